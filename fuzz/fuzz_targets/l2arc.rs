#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::decoders::l2arc(data));
