use super::hex;

/// Goal: numbers end where they end, as C reads them.
#[test]
fn numbers_end() {
    assert_eq!((hex("8000"), hex("0x10L"), hex("200L"), hex(""), hex("z")), (0x8000, 0x10, 0x200, 0, 0));
}
