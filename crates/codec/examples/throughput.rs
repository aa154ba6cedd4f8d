//! Throughput of this crate's functions over 128 KiB blocks in one thread, in GB/s.
//!
//! That is 10^9 bytes of plain data in a second of processor time, so that other work on the
//! machine counts little. Run `cargo run --release -p poolhouse-codec --example throughput`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring tool, which prints")]

use codec::compress::{ZstdLevel, compress, decompress};
use codec::crypt::{CryptoSuite, DataKeys, KeyVersion};
use codec::{Checksummer, checksum};
use ondisk::blkptr::CryptParams;
use ondisk::{ByteOrder, ChecksumKind, CompressKind, DmuType, Guid};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

const BLOCK: usize = 128 << 10;

/// Processor time of this thread.
fn processor_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The best of many short rounds, in GB/s. Other work is unlikely to disturb all of them.
fn measure(name: &str, mut f: impl FnMut()) {
    let mut best = 0f64;
    for _ in 0..200 {
        let (start, mut blocks) = (processor_time(), 0u32);
        let spent = loop {
            f();
            blocks += 1;
            let spent = processor_time() - start;
            if spent > Duration::from_millis(1) {
                break spent;
            }
        };
        best = best.max(f64::from(blocks) * BLOCK as f64 / spent.as_secs_f64() / 1e9);
    }
    println!("{name:28} {best:8.2}");
}

/// Data like text: words from a small vocabulary, with numbers between them. LZ4 roughly halves it.
fn text() -> Vec<u8> {
    let words =
        ["pool", "block", "dataset", "snapshot", "the", "of", "checksum", "mirror", "0x", "\n", "vdev "];
    let (mut out, mut state) = (Vec::new(), 1u32);
    while out.len() < BLOCK {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.extend_from_slice(words[(state >> 24) as usize % words.len()].as_bytes());
        if state >> 16 & 3 == 0 {
            out.extend_from_slice(format!("{:x} ", state >> 12).as_bytes());
        }
    }
    out.truncate(BLOCK);
    out
}

fn main() {
    let data = text();
    let sums = Checksummer::new(&[1; 32]);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        measure(&format!("fletcher4 {order:?}"), || {
            black_box(checksum::fletcher4(order, black_box(&data)));
        });
    }
    for kind in [
        ChecksumKind::Fletcher2,
        ChecksumKind::Sha256,
        ChecksumKind::Sha512,
        ChecksumKind::Skein,
        ChecksumKind::Edonr,
        ChecksumKind::Blake3,
    ] {
        measure(kind.name(), || {
            black_box(sums.compute(kind, ByteOrder::Little, black_box(&data)).unwrap());
        });
    }
    for (kind, level) in [
        (CompressKind::Lzjb, 3),
        (CompressKind::Zle, 3),
        (CompressKind::Lz4, 3),
        (CompressKind::Gzip6, 3),
        (CompressKind::Zstd, 1),
        (CompressKind::Zstd, 3),
    ] {
        let level = ZstdLevel::from_disk(level).unwrap();
        let mut packed = vec![0; BLOCK + 4096];
        let mut len = 0;
        let name = format!("{} {}", kind.name(), if kind == CompressKind::Zstd { level.zstd() } else { 0 });
        measure(&format!("{name} pack"), || {
            len = compress(kind, level, black_box(&data), &mut packed).unwrap_or(0);
        });
        if len == 0 {
            continue;
        }
        let mut back = vec![0; BLOCK];
        measure(&format!("{name} unpack ({}%)", len * 100 / BLOCK), || {
            decompress(kind, black_box(&packed[..len]), &mut back).unwrap();
        });
    }
    let params = CryptParams { salt: [1; 8], iv: [2; 12] };
    for suite in [CryptoSuite::Aes128Gcm, CryptoSuite::Aes256Gcm, CryptoSuite::Aes256Ccm] {
        let keys = DataKeys::new(suite, KeyVersion::V1, Guid(1), &[3; 32][..suite.key_len()], &[4; 64]);
        let mut block = data.clone();
        measure(&format!("{} encrypt", suite.name()), || {
            black_box(keys.encrypt(DmuType::PLAIN_FILE_CONTENTS, &params, &mut block).unwrap());
        });
        let mut stored = data.clone();
        let mac = keys.encrypt(DmuType::PLAIN_FILE_CONTENTS, &params, &mut stored).unwrap();
        let mut block = stored.clone();
        measure(&format!("{} decrypt (+copy)", suite.name()), || {
            block.copy_from_slice(&stored);
            let kind = DmuType::PLAIN_FILE_CONTENTS;
            keys.decrypt(kind, ByteOrder::Little, &params, &mac, &mut block).unwrap();
        });
    }
}
