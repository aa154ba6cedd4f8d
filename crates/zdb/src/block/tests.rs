use super::hex;

/// Goal: a number ends at the first character that is no digit, as in C.
#[test]
fn numbers_end() {
    assert_eq!((hex("8000"), hex("0x10L"), hex("200L"), hex(""), hex("z")), (0x8000, 0x10, 0x200, 0, 0));
}
