use super::*;

/// Goal: the initial pipe is that of the submission: bytes 0x80, 0x81, ... 0xff.
#[test]
fn initial_pipe() {
    assert_eq!(Pipe::START.0[0], 0x8081_8283_8485_8687);
    assert_eq!(Pipe::START.1[7], 0xf8f9_fafb_fcfd_feff);
}

/// Goal: lengths around the edges of the padding have different hashes, and don't panic.
#[test]
fn padding_edges() {
    let mut seen = std::collections::HashSet::new();
    for len in [0, 1, 119, 120, 127, 128, 129, 247, 248, 256] {
        assert!(seen.insert(edonr512(&vec![0; len])), "{len}");
    }
}
