//! Measures the write pipeline: `write DIR LAYOUT COMPRESS MIB`.
//!
//! Writes MIB mebibytes of 128 KiB blocks to images in DIR. Prints the CPU time and elapsed time of
//! a gigabyte, in seconds. LAYOUT is `disk`, `mirror2`, `raidz1-3`, `raidz2-6` or `raidz3-9`;
//! COMPRESS is a compressor's name.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program to measure with")]

use device::{Block, Device, FileDevice, Mode};
use ondisk::{
    Ashift, BlkId, CompressKind, DmuType, Dva, Guid, Level, ObjNum, Offset, Txg, VdevConfig, VdevId, VdevKind,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vdev::Tree;
use zio::{Bookmark, NoSpace, Space, Want, Workers, WritePolicy, WriteReq, Zio};

/// Allocates space from the front, and never reuses any.
struct Front(Arc<Tree>, AtomicU64);

impl Space for Front {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        let asize = self.0.psize_to_asize(VdevId(0), want.psize, want.txg).map_err(|_| NoSpace)?;
        let offset = Offset(self.1.fetch_add(asize.0, Ordering::Relaxed));
        Ok([Some(Dva { vdev: VdevId(0), offset, asize, gang: false }), None, None])
    }

    fn free(&self, _: &Dva, _: Txg, _: Txg) {}

    fn unallocate(&self, _: &Dva, _: Txg) {}
}

fn tree(dir: &std::path::Path, layout: &str, bytes: u64) -> Tree {
    let (kind, parity, children) = match layout {
        "disk" => (VdevKind::File, None, 1),
        "mirror2" => (VdevKind::Mirror, None, 2),
        "raidz1-3" => (VdevKind::Raidz, Some(1), 3),
        "raidz2-6" => (VdevKind::Raidz, Some(2), 6),
        "raidz3-9" => (VdevKind::Raidz, Some(3), 9),
        other => panic!("no layout {other}"),
    };
    let leaf =
        |id| VdevConfig { id, ashift: Some(Ashift(12)), ..VdevConfig::new(VdevKind::File, Guid(10 + id)) };
    let top = match kind {
        VdevKind::File => leaf(0),
        kind => VdevConfig {
            nparity: parity,
            ashift: Some(Ashift(12)),
            children: (0..children).map(leaf).collect(),
            ..VdevConfig::new(kind, Guid(2))
        },
    };
    let root = VdevConfig { children: vec![top], ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let open = &mut |leaf: &VdevConfig| {
        let path = dir.join(format!("d{}", leaf.guid));
        std::fs::File::create(&path).unwrap().set_len(bytes + (64 << 20)).unwrap();
        Ok(Arc::new(FileDevice::open(&path, Mode::Write).unwrap()) as Arc<dyn Device>)
    };
    Tree::open(&root, open).unwrap()
}

/// CPU time of this process in seconds.
fn cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// A block that compresses to about half: random letters and repeats.
fn block(seed: u64) -> Block {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(131_072);
    while out.len() < 131_072 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (n, back) = ((x >> 33) as usize % 48 + 8, (x >> 40) as usize % 4000 + 64);
        if x >> 62 & 1 == 0 && out.len() > back + n {
            let at = out.len() - back;
            out.extend_from_within(at..at + n);
        } else {
            out.extend((0..n as u64).map(|i| (x.rotate_left(i as u32 * 7) >> 9) as u8));
        }
    }
    out.truncate(131_072);
    Block::copy_of(&out)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, layout, compress, mib] = args.as_slice() else {
        panic!("usage: write DIR LAYOUT COMPRESS MIB")
    };
    let compress =
        (2..=16).map(|n| CompressKind::from_disk(n).unwrap()).find(|c| c.name() == compress).unwrap();
    let total = mib.parse::<u64>().unwrap() << 20;
    let tree = Arc::new(tree(&PathBuf::from(dir), layout, total));
    let zio = Zio::new(Arc::clone(&tree));
    zio.set_space(Arc::new(Front(tree, AtomicU64::new(0))));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    zio.set_workers(Arc::new(Workers::new("zio", cores)));
    let blocks: Vec<Block> = (0..64).map(block).collect();
    let req = |n: u64| WriteReq {
        data: blocks[n as usize % blocks.len()].clone().into(),
        compressed: None,
        encrypted: None,
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        bookmark: Bookmark { objset: 5, object: ObjNum(1), level: Level(0), blkid: BlkId(n) },
        fill: 1,
        policy: WritePolicy { compress, ..WritePolicy::PLAIN },
        old: None,
        in_place: false,
    };
    let (cpu_start, start) = (cpu(), Instant::now());
    let mut stored = 0;
    for first in (0..total >> 17).step_by(128) {
        let bps = zio
            .write_batch(Txg(5), (first..(first + 128).min(total >> 17)).map(req).collect(), &zio.workers())
            .unwrap();
        stored += bps.iter().filter_map(|bp| bp.stored()).map(|s| s.psize.0).sum::<u64>();
    }
    let gb = total as f64 / 1e9;
    println!(
        "{layout} {}: {:.2} s of processor, {:.2} s per GB; packed to {:.0} %",
        compress.name(),
        (cpu() - cpu_start) / gb,
        start.elapsed().as_secs_f64() / gb,
        stored as f64 * 100.0 / total as f64
    );
}
