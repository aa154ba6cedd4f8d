//! Corrective receives: damaged blocks of a snapshot, restored from its stream. The kernel module
//! wrote the pools and the streams of the first test.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::words;
use crate::send::{compare, records};
use poolhouse::ondisk::replay::Record;
use poolhouse::ondisk::{BlkId, Level, ObjNum};
use poolhouse::stream::rewrite::{Change, rewrite};
use poolhouse::stream::{Error, Forms, Options, Packet, ReceiveError, correct};
use poolhouse::{OpenOptions, Pool};
use testkit::find;

const PLAIN: Forms = Forms { large_blocks: false, embedded: false, compressed: false, raw: false };
/// Where the space of a device begins (`VDEV_LABEL_START_SIZE`).
const LABELS: u64 = 4 << 20;

/// The places of the blocks in a snapshot for which a stream has a WRITE: byte and length on the
/// only device.
fn places(pool: &Pool, name: &str, stream: &[u8]) -> BTreeMap<(u64, u64), (u64, u64)> {
    let os = pool.dataset(name).unwrap().dsl().objset().unwrap().unwrap();
    let mut places = BTreeMap::new();
    for (record, _) in records(name, stream) {
        let Record::Write(write) = record else { continue };
        let dnode = os.dnode_undecrypted(ObjNum(write.object)).unwrap();
        // A part of a large block does not restore it.
        if write.logical_size != dnode.block_size() {
            continue;
        }
        let bp = dnode.bp(Level(0), BlkId(write.offset / dnode.block_size())).unwrap();
        // A block with other copies is not damaged by one.
        let Some(stored) = bp.stored().filter(|stored| stored.copies().count() == 1) else { continue };
        for dva in stored.copies() {
            assert!(!dva.gang && dva.vdev.0 == 0, "{name}");
            places.insert((write.object, write.offset), (LABELS + dva.offset.0, stored.psize.0));
        }
    }
    places
}

/// Damages every third of these places.
fn spoil(image: &Path, places: &BTreeMap<(u64, u64), (u64, u64)>) -> Vec<(u64, Vec<u8>)> {
    let image = std::fs::File::options().read(true).write(true).open(image).unwrap();
    let each = places.values().step_by(3).map(|(at, length)| {
        let mut bytes = vec![0; *length as usize];
        image.read_exact_at(&mut bytes, *at).unwrap();
        let was = bytes.clone();
        bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 0x5a);
        image.write_all_at(&bytes, *at).unwrap();
        (*at, was)
    });
    each.collect()
}

fn sent(pool: &Pool, name: &str, forms: Forms) -> Result<Vec<u8>, poolhouse::Error> {
    let mut stream = Vec::new();
    let options = Options { forms, ..Options::default() };
    pool.dataset(name).unwrap().send(&options, &mut stream)?;
    Ok(stream)
}

/// Goal: blocks that the kernel module wrote are restored from its streams, compressed and raw,
/// with the bytes that they had. Another snapshot's stream restores nothing.
#[test]
fn by_streams_of_openzfs() {
    let Some(fixture) = find("send-src") else { return };
    let compressed = Forms { compressed: true, ..PLAIN };
    let raw = Forms { raw: true, ..PLAIN };
    let cases = [
        ("compressed-c", "send-src/fs@c", "full-a", compressed),
        ("raw-enc-e1", "send-src/enc@e1", "raw-enc-incr", raw),
        ("vol-raw", "send-src/tree/vol@r1", "full-a", raw),
    ];
    for (file, name, other, forms) in cases {
        let copy = fixture.copy();
        let [image] = copy.images() else { panic!("one device") };
        let stream = fixture.stream(&format!("{file}.zsend")).unwrap();
        let other = fixture.stream(&format!("{other}.zsend")).unwrap();
        let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
        let open = || Pool::open(copy.images(), &options).unwrap();
        let pool = open();
        let places = places(&pool, name, &stream);
        assert!(places.len() > 5, "{name}: {}", places.len());
        pool.export().unwrap();
        drop(pool);
        let was = spoil(image, &places);
        let pool = open();
        sent(&pool, name, forms).expect_err("it is damaged");
        assert!(pool.spa().error_count() > 0, "{name}");
        let now = || {
            let image = std::fs::File::open(image).unwrap();
            let read = |(at, was): &(u64, Vec<u8>)| {
                let mut bytes = vec![0; was.len()];
                image.read_exact_at(&mut bytes, *at).unwrap();
                (*at, bytes)
            };
            was.iter().map(read).collect::<Vec<_>>()
        };
        let damaged = now();
        let refused = correct(pool.spa(), &other[..], name).unwrap_err();
        assert!(matches!(refused, ReceiveError::Incompatible(_)), "{name}: {}", words(&refused));
        assert!(now() == damaged, "{name}: a stream of another snapshot changed it");
        // With best effort, blocks that both snapshots have are restored, and no other changes.
        poolhouse::tunables::set("zfs_recv_best_effort_corrective", 1).unwrap();
        let some = correct(pool.spa(), &other[..], name);
        // The snapshots of the file system have files in common.
        assert!(!name.contains("/fs@") || some.as_ref().is_ok_and(|some| some.blocks > 0), "{some:?}");
        let mut each = now().into_iter().zip(&damaged).zip(&was);
        assert!(each.all(|((now, damaged), was)| now == *damaged || now == *was), "{name}");
        poolhouse::tunables::set("zfs_recv_best_effort_corrective", 0).unwrap();
        let done = correct(pool.spa(), &stream[..], name).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
        assert!(done.blocks > 0 && done.bytes == stream.len() as u64, "{name}: {done:?}");
        assert!(now() == was, "{name}");
        pool.spa().writer().unwrap().sync_all().unwrap();
        assert_eq!(pool.spa().error_count(), 0, "{name}");
        let again = sent(&pool, name, forms).unwrap();
        compare(name, &records(name, &again)[1..], &records(name, &stream)[1..]);
        assert_eq!(correct(pool.spa(), &stream[..], name).unwrap().blocks, 0);
        pool.export().unwrap();
        drop(pool);
        testpools::judge(image.parent().unwrap(), "send-src");
    }
}

/// Goal: blocks that this engine wrote are restored from plain streams too: they are compressed
/// again as they were. A block that does not become the stored one is an error, or left alone.
#[test]
fn by_plain_streams() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("d0");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let pool = Pool::create("p", &[&[&image]]).unwrap();
    let fs = pool.create_filesystem("p/fs").unwrap();
    for n in 0..6u64 {
        let file = fs.create_file(format!("/{n}")).unwrap();
        // Half of each block can be compressed.
        let mut bytes = testpools::noise(n, 512 << 10);
        bytes.chunks_mut(4096).step_by(2).for_each(|part| part.fill(n as u8));
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
    }
    pool.snapshot("p/fs@1").unwrap();
    let stream = sent(&pool, "p/fs@1", PLAIN).unwrap();
    let places = places(&pool, "p/fs@1", &stream);
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    let was = spoil(&image, &places);
    let writing = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    let pool = Pool::open(&[&image], &writing).unwrap();
    let blocks = correct(pool.spa(), &stream[..], "p/fs@1").unwrap().blocks;
    // Metadata has other copies.
    assert!((5..=was.len() as u64).contains(&blocks), "{blocks} of {}", was.len());
    assert!(sent(&pool, "p/fs@1", PLAIN).unwrap() == stream);
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir.path(), "p");
    // A stream whose blocks differ restores nothing.
    spoil(&image, &places);
    let pool = Pool::open(&[&image], &writing).unwrap();
    let mut wrong = Vec::new();
    let spoiled = |packet: &Packet<'_>| {
        let mut payload = packet.payload.to_vec();
        Ok::<_, Error>(match packet.record {
            Record::Write(_) => {
                payload[7] ^= 1;
                Change::Replace { raw: Box::new(*packet.raw), payload: Some(payload) }
            }
            _ => Change::Keep,
        })
    };
    rewrite(&stream[..], &mut wrong, spoiled).unwrap();
    let refused = correct(pool.spa(), &wrong[..], "p/fs@1").unwrap_err();
    assert!(matches!(refused, ReceiveError::NotRestored { .. }), "{}", words(&refused));
    let blocks = correct(pool.spa(), &stream[..], "p/fs@1").unwrap().blocks;
    // Metadata has other copies.
    assert!((5..=was.len() as u64).contains(&blocks), "{blocks} of {}", was.len());
}
