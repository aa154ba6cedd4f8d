//! Files that take long to free.

use crate::rig::Rig;
use device::{Device, Fault, Faulty};
use ondisk::ObjNum;
use spa::create::claim_file;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zpl::{FileSystem, Kind, NewFile, NewFileSystem, Policy};

/// Bytes below one indirect block, with blocks of 512 bytes.
const SPAN: u64 = 512 << 10;
/// Number of indirect blocks that are freed at a time.
const PIECE: u64 = 256;

/// Creates a file with a little data below each of `spans` indirect blocks.
fn sparse(fs: &FileSystem, name: &str, spans: u64) -> ObjNum {
    let new = NewFile::new(Kind::Regular, 0o600);
    let object = fs.create(fs.root(), name.as_bytes(), &new).unwrap().object;
    for n in 0..spans {
        fs.write(object, n * SPAN + 512 * (n % 1000), &[n as u8 | 1; 512], false).unwrap();
    }
    object
}

/// Goal: indirect blocks of a large file are read before its txg, so that no other thread waits for
/// that.
///
/// The file is freed in pieces, with a txg for each, also when it is truncated or gets a hole.
/// Afterwards all of its space is free.
#[test]
fn large_files_go_in_pieces() {
    let device = Mutex::new(None);
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let faulty = Arc::new(Faulty::new(inner, 1));
        *device.lock().unwrap() = Some(faulty.clone());
        Ok((faulty as Arc<dyn Device>, kind))
    };
    let policy = Policy { recordsize: 512, ..Policy::default() };
    let rig = Rig::on(&NewFileSystem::new((1_000_000, 0)), policy, &claimer);
    let device = device.into_inner().unwrap().unwrap();
    let (fs, root, live) = (&rig.fs, rig.fs.root(), rig.pool.live());
    let [gone, cut, holed] = ["gone", "cut", "holed"].map(|name| sparse(fs, name, 2 * PIECE + 10));
    rig.sync();
    assert_eq!(fs.unlink(root, b"gone").unwrap(), Some(gone));
    rig.sync();
    // Its attributes stay in memory, and everything else must be read.
    let node = fs.node(gone).unwrap();
    fs.objset().cache().purge();
    device.inject(Fault::Stalled);
    let before = live.txgs().synced();
    std::thread::scope(|scope| {
        let reaper = scope.spawn(|| fs.reap(gone).unwrap());
        while device.waiting() == 0 {
            std::thread::yield_now();
        }
        // Closing the open txg requires that all of its holders have left it.
        let open = live.txgs().open();
        let syncer = scope.spawn(|| live.sync_all().unwrap());
        while live.tx(0).unwrap().txg() == open {
            std::thread::yield_now();
        }
        assert!(!reaper.is_finished() && !syncer.is_finished());
        device.heal();
    });
    assert!(live.txgs().synced().0 - before.0 >= 2, "there was one group for all");
    let (size, half) = ((2 * PIECE + 10) * SPAN, SPAN / 2);
    let seen = |object: ObjNum, n: u64| {
        let mut block = [0; 512];
        fs.read(object, n * SPAN + 512 * (n % 1000), &mut block).unwrap();
        block[0]
    };
    fs.truncate(cut, 3 * SPAN + half, false).unwrap();
    fs.punch(holed, 5 * SPAN + half, size - 10 * SPAN).unwrap();
    assert_eq!(fs.attr(cut).unwrap().size, 3 * SPAN + half);
    fs.truncate(cut, size, false).unwrap();
    for n in 0..2 * PIECE + 10 {
        assert_eq!(seen(cut, n), if n <= 3 { n as u8 | 1 } else { 0 }, "block {n}");
        let kept = n <= 5 || n > 2 * PIECE + 5;
        // The last block of the hole ends in the middle of a span.
        if n < 2 * PIECE + 5 || kept {
            assert_eq!(seen(holed, n), if kept { n as u8 | 1 } else { 0 }, "block {n}");
        }
    }
    drop((device, node));
    let rig = rig.again(policy);
    for name in ["cut", "holed"] {
        let object = rig.fs.unlink(rig.fs.root(), name.as_bytes()).unwrap().unwrap();
        rig.fs.reap(object).unwrap();
    }
    rig.sync();
    drop(rig.again(policy));
}
