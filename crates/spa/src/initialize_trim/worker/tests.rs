use crate::initialize_trim::worker::whole;

/// Goal: whatever size is set, writes and discards are of whole sectors, at least one.
#[test]
fn whole_sectors() {
    for (bytes, sector, is) in [
        (512, 4096, 4096),
        (4608, 4096, 4096),
        (1 << 20, 512, 1 << 20),
        ((1 << 16) + 512, 8192, 1 << 16),
        (0, 512, 512),
    ] {
        assert_eq!(whole(bytes, sector), is, "{bytes} bytes of sectors of {sector}");
    }
}
