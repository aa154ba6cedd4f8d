#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| sim::open::pool(data));
