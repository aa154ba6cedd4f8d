use crate::telemetry::tree::*;

/// Goal: values for a parameter are parsed as in the kernel, and refused as there.
#[test]
fn numbers() {
    for (text, value) in
        [("0", 0), ("12", 12), ("+12", 12), ("0x20000000", 1 << 29), ("0Xff", 255), ("017", 15)]
    {
        assert_eq!(number(text), Some(value), "{text}");
    }
    for text in ["", "-1", "0x", "0x-1", "0x+1", "++1", "08", "1 2", "18446744073709551616"] {
        assert_eq!(number(text), None, "{text}");
    }
}
