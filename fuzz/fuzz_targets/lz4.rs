#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::decoders::lz4(data));
