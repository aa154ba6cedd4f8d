//! A written block reads back the same, in the form that OpenZFS would have stored it.

use crate::{Bookmark, NoSpace, ReadOptions, Space, Want, Workers, WritePolicy, WriteReq, Zio};
use device::{AlignedBuf, Block, Device, MemDevice, Sparse};
use observe::lock::Mutex;
use ondisk::blkptr::Body;
use ondisk::label::SPA_MINDEVSIZE;
use ondisk::{
    Ashift, BlkId, Blkptr, ChecksumKind, CompressKind, DmuType, Dva, Guid, Level, Lsize, ObjNum, Offset, Txg,
    VdevConfig, VdevId, VdevKind,
};
use std::sync::Arc;
use vdev::Tree;

mod deferred;
mod failing;
mod healing;
mod protected;
mod remade;
mod shared;

/// Allocates space from the front, a top-level vdev for each copy, and records what is freed.
pub(crate) struct Front {
    tree: Arc<Tree>,
    next: Mutex<Vec<u64>>,
    pub(crate) freed: Mutex<Vec<Dva>>,
    pub(crate) returned: Mutex<Vec<Dva>>,
    /// Larger blocks find no space.
    pub(crate) largest: u64,
    /// Bytes that may still be allocated.
    pub(crate) left: Mutex<u64>,
}

impl Front {
    fn new(tree: Arc<Tree>, tops: u64, largest: u64) -> Front {
        Front {
            tree,
            next: Mutex::new(vec![0; tops as usize]),
            freed: Mutex::default(),
            returned: Mutex::default(),
            largest,
            left: Mutex::new(u64::MAX),
        }
    }

    /// Bytes allocated.
    pub(crate) fn taken(&self) -> u64 {
        self.next.lock().iter().sum()
    }
}

impl Space for Front {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        if want.psize.0 > self.largest {
            return Err(NoSpace);
        }
        let mut dvas = [None; 3];
        let mut next = self.next.lock();
        let mut left = self.left.lock();
        *left = left.checked_sub(want.psize.0 * u64::from(want.copies)).ok_or(NoSpace)?;
        let tops = next.len();
        for (n, dva) in dvas.iter_mut().enumerate().take(usize::from(want.copies)) {
            let vdev = VdevId((n % tops) as u32);
            let asize = self.tree.psize_to_asize(vdev, want.psize, want.txg).map_err(|_| NoSpace)?;
            let at = &mut next[n % tops];
            *dva = Some(Dva { vdev, offset: Offset(*at), asize, gang: false });
            *at += asize.0;
        }
        Ok(dvas)
    }

    fn free(&self, dva: &Dva, _: Txg, _: Txg) {
        self.freed.lock().push(*dva);
    }

    fn unallocate(&self, dva: &Dva, _: Txg) {
        self.returned.lock().push(*dva);
    }
}

/// A pool of `tops` disks in memory.
pub(crate) fn pool(tops: u64, ashift: u8, largest: u64) -> (Zio, Arc<Front>) {
    let leaf = |id| VdevConfig {
        id,
        path: Some(format!("/d{id}").into_bytes()),
        ashift: Some(Ashift(ashift)),
        ..VdevConfig::new(VdevKind::File, Guid(100 + id))
    };
    let root =
        VdevConfig { children: (0..tops).map(leaf).collect(), ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let open = &mut |_: &VdevConfig| Ok(Arc::new(MemDevice::new("d", SPA_MINDEVSIZE)) as Arc<dyn Device>);
    let tree = Arc::new(Tree::open(&root, open).unwrap());
    let zio = Zio::new(Arc::clone(&tree));
    let space = Arc::new(Front::new(tree, tops, largest));
    zio.set_space(space.clone());
    (zio, space)
}

pub(crate) const BOOKMARK: Bookmark =
    Bookmark { objset: 5, object: ObjNum(7), level: Level(0), blkid: BlkId(0) };

/// The read options of these tests.
pub(crate) static READ: ReadOptions = ReadOptions::demand();

pub(crate) fn req(data: Block, policy: WritePolicy) -> WriteReq {
    WriteReq {
        data: data.into(),
        compressed: None,
        encrypted: None,
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        bookmark: BOOKMARK,
        fill: 1,
        policy,
        old: None,
        in_place: false,
    }
}

pub(crate) fn text(len: usize) -> Block {
    let words = b"the quick brown fox jumps over the lazy dog and ";
    let bytes: Vec<u8> =
        words.iter().cycle().zip(0u64..).map(|(b, i)| b ^ (i / 997) as u8).take(len).collect();
    Block::copy_of(&bytes)
}

pub(crate) fn noise(len: usize) -> Block {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let bytes: Vec<u8> = (0..len)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as u8
        })
        .collect();
    Block::copy_of(&bytes)
}

const COMPRESSORS: [CompressKind; 8] = [
    CompressKind::Off,
    CompressKind::Lzjb,
    CompressKind::Empty,
    CompressKind::Gzip1,
    CompressKind::Gzip9,
    CompressKind::Zle,
    CompressKind::Lz4,
    CompressKind::Zstd,
];

const CHECKSUMS: [ChecksumKind; 9] = [
    ChecksumKind::Off,
    ChecksumKind::Noparity,
    ChecksumKind::Fletcher2,
    ChecksumKind::Fletcher4,
    ChecksumKind::Sha256,
    ChecksumKind::Sha512,
    ChecksumKind::Skein,
    ChecksumKind::Edonr,
    ChecksumKind::Blake3,
];

/// Goal: with any compressor, checksum, size and number of threads, a block reads as it was
/// written, and its pointer survives encoding.
#[test]
fn round_trips() {
    for threads in [1, 3] {
        let (zio, _) = pool(3, 12, u64::MAX);
        zio.set_workers(Arc::new(Workers::new("test", threads)));
        let mut reqs = Vec::new();
        for compress in COMPRESSORS {
            for checksum in CHECKSUMS {
                for data in [text(512), text(4096), text(131_072), noise(16_384), Block::zeroed(8192)] {
                    let policy = WritePolicy { compress, checksum, copies: 2, ..WritePolicy::PLAIN };
                    reqs.push(req(data, policy));
                }
            }
        }
        let pointers = zio.write_batch(Txg(5), reqs.clone(), &zio.workers()).unwrap();
        for (bp, req) in pointers.iter().zip(&reqs) {
            assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), *bp);
            if req.data.whole().iter().all(|b| *b == 0) && req.policy.compress != CompressKind::Off {
                assert_eq!(*bp, Blkptr::HOLE);
                continue;
            }
            assert_eq!(zio.read(bp, &BOOKMARK, &READ).unwrap(), req.data.whole());
            let s = bp.stored().unwrap();
            assert_eq!((s.copies().count(), s.checksum), (2, req.policy.checksum));
            assert!(
                s.psize.0 <= bp.lsize.0 && (s.compress == CompressKind::Off) == (s.psize.0 == bp.lsize.0)
            );
        }
    }
}

/// Goal: a block of which only the beginning is given is stored as if all its zeros had been given,
/// with any compressor.
#[test]
fn sparse_blocks() {
    for compress in COMPRESSORS {
        let policy = WritePolicy { compress, ..WritePolicy::PLAIN };
        let reqs = |whole: bool| {
            let one = |(head, len): (Block, usize)| {
                let data = Sparse::new(head, len);
                WriteReq { data: if whole { data.whole().into() } else { data }, ..req(text(512), policy) }
            };
            let small = Block::copy_of(&text(4096)[..200]);
            let empty = Block::zeroed(0);
            [(small, 131_072), (noise(4096), 8192), (text(4096), 131_072), (empty, 4096)].map(one).to_vec()
        };
        let [(zio, _), (other, _)] = [pool(1, 9, u64::MAX), pool(1, 9, u64::MAX)];
        let pointers = zio.write_batch(Txg(5), reqs(false), &zio.workers()).unwrap();
        assert_eq!(
            pointers,
            other.write_batch(Txg(5), reqs(true), &other.workers()).unwrap(),
            "{compress:?}"
        );
        for (bp, req) in pointers.iter().zip(reqs(true)).filter(|(bp, _)| !bp.is_hole()) {
            assert_eq!(zio.read(bp, &BOOKMARK, &READ).unwrap(), req.data.whole());
        }
    }
}

/// Goal: an indirect block that is mostly zeros is read without them, where its compressor tells.
/// One that is not, or of another kind, is read whole.
#[test]
fn starts_of_blocks() {
    let (zio, _) = pool(1, 9, u64::MAX);
    let pointers = |used: usize| {
        let mut block = AlignedBuf::zeroed(131_072);
        block[..used].copy_from_slice(&noise(131_072)[..used]);
        block.freeze()
    };
    let level = |level: u8| Bookmark { level: Level(level), ..BOOKMARK };
    for compress in COMPRESSORS {
        for (used, at, held) in [(200, 1, 512), (40_000, 1, 40_448), (70_000, 1, 131_072), (200, 0, 131_072)]
        {
            let policy = WritePolicy { compress, ..WritePolicy::PLAIN };
            let one = WriteReq { bookmark: level(at), level: Level(at), ..req(pointers(used), policy) };
            let bp = zio.write_batch(Txg(5), vec![one], &zio.workers()).unwrap()[0];
            assert_eq!(bp.level.0, at);
            let opened = zio.read_packed(&bp, &level(at), &READ).unwrap();
            let stored_as = bp.stored().unwrap().compress;
            let held = if stored_as == CompressKind::Lz4 { held } else { 131_072 };
            assert_eq!(opened.block.head().len(), held, "{used} bytes, level {at}, {compress:?}");
            assert_eq!(opened.block.whole(), pointers(used));
            assert_eq!(zio.read(&bp, &level(at), &READ).unwrap(), pointers(used));
            assert_eq!(opened.packed.is_some(), stored_as != CompressKind::Off);
        }
    }
}

/// Goal: a block that fits is overwritten where it is; one that doesn't is moved. Zeros that follow
/// something are a hole with a birth.
#[test]
fn in_place() {
    let (zio, space) = pool(1, 12, u64::MAX);
    let first =
        zio.write_batch(Txg(9), vec![req(text(65_536), WritePolicy::PLAIN)], &zio.workers()).unwrap()[0];
    let again = |data: Block, txg: u64| {
        let mut req = req(data, WritePolicy::PLAIN);
        (req.old, req.in_place) = (Some(first), true);
        zio.write_batch(Txg(txg), vec![req.clone()], &zio.workers())
            .map(|bps| (bps[0], req.data.whole()))
            .unwrap()
    };
    let dvas = |bp: &Blkptr| bp.stored().unwrap().dvas;
    let (smaller, data) = again(Block::copy_of(&[&text(4096)[..], &[0; 61_440]].concat()), 9);
    assert_eq!(
        (dvas(&smaller), smaller.stored().unwrap().psize),
        (dvas(&first), first.stored().unwrap().psize)
    );
    assert_eq!(zio.read(&smaller, &BOOKMARK, &READ).unwrap(), data);
    assert_ne!(dvas(&again(noise(65_536), 9).0), dvas(&first), "it does not fit");
    assert_ne!(dvas(&again(text(65_536), 10).0), dvas(&first), "it belongs to another group");
    let (hole, _) = again(Block::zeroed(65_536), 10);
    assert_eq!((hole.body, hole.birth, hole.lsize), (Body::Hole, Txg(10), Lsize(65_536)));
    zio.free(Txg(11), &first).unwrap();
    assert_eq!(*space.freed.lock(), [dvas(&first)[0].unwrap()]);
}

/// Goal: of small data only the pointer is written, as the feature allows.
#[test]
fn embedded() {
    let (zio, _) = pool(1, 12, u64::MAX);
    let data = Block::copy_of(&[&b"poolhouse"[..], &[0; 4087]].concat());
    let write = |embed, copies| {
        let policy = WritePolicy { embed, copies, ..WritePolicy::PLAIN };
        zio.write_batch(Txg(4), vec![req(data.clone(), policy)], &zio.workers()).unwrap()[0]
    };
    let bp = write(true, 1);
    assert!(matches!(bp.body, Body::Embedded(_)));
    assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), bp);
    assert_eq!(zio.read(&bp, &BOOKMARK, &READ).unwrap(), data);
    assert!(write(false, 1).stored().is_some());
}

/// Goal: an equal block under a strong checksum keeps the old pointer, and nothing is written or
/// allocated.
#[test]
fn nop_write() {
    let (zio, _) = pool(1, 9, u64::MAX);
    for (checksum, kept) in
        [(ChecksumKind::Sha256, true), (ChecksumKind::Edonr, true), (ChecksumKind::Fletcher4, false)]
    {
        let policy = WritePolicy { checksum, nopwrite: true, ..WritePolicy::PLAIN };
        let old = zio.write_batch(Txg(4), vec![req(text(8192), policy)], &zio.workers()).unwrap()[0];
        let again = WriteReq { old: Some(old), ..req(text(8192), policy) };
        assert_eq!(zio.write_batch(Txg(5), vec![again.clone()], &zio.workers()).unwrap()[0] == old, kept);
        let two = WriteReq { policy: WritePolicy { copies: 2, ..policy }, ..again };
        assert_ne!(zio.write_batch(Txg(6), vec![two], &zio.workers()).unwrap()[0], old);
    }
}

/// Goal: a block without contiguous space is written as a gang, of gangs if needed. It is read
/// back, overwritten in place, and frees exactly what was allocated.
#[test]
fn gangs() {
    for (largest, copies, encrypt) in
        [(16_384, 1, false), (4096, 2, false), (1024, 3, false), (4096, 1, true)]
    {
        let (zio, space) = pool(3, 9, largest);
        zio.set_keys(Arc::new(protected::Keys::new()));
        zio.set_entropy(Arc::new(protected::Counter::default()));
        let policy = WritePolicy { copies, encrypt, checksum: ChecksumKind::Sha256, ..WritePolicy::PLAIN };
        let small = req(text(300 * 512), WritePolicy { compress: CompressKind::Off, ..policy });
        let pointers = zio
            .write_batch(Txg(6), vec![req(noise(131_072), policy), small.clone()], &zio.workers())
            .unwrap();
        let [bp, old] = pointers[..] else { panic!("two were written") };
        for (bp, data) in [(&bp, noise(131_072)), (&old, small.data.whole())] {
            assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), *bp);
            assert!(bp.is_gang());
            assert_eq!(bp.stored().unwrap().copies().count(), usize::from(copies.max(2)), "of its header");
            assert_eq!(zio.read(bp, &BOOKMARK, &READ).unwrap(), data);
        }
        let counted: u64 =
            pointers.iter().flat_map(|bp| bp.stored().unwrap().copies()).map(|d| d.asize.0).sum();
        let taken = space.taken();
        assert_eq!(counted, taken);

        let mut again = WriteReq { old: Some(old), in_place: true, ..small };
        again.data = noise(300 * 512).into();
        let new = zio.write_batch(Txg(6), vec![again.clone()], &zio.workers()).unwrap()[0];
        if !encrypt {
            assert_eq!((new.stored().unwrap().dvas, space.taken()), (old.stored().unwrap().dvas, taken));
        }
        assert_eq!(zio.read(&new, &BOOKMARK, &READ).unwrap(), again.data.whole());
        for bp in [&bp, &new] {
            zio.free(Txg(7), bp).unwrap();
        }
        let mut freed: Vec<Dva> = space.freed.lock().clone();
        assert!(freed.iter().all(|d| !d.gang));
        freed.sort_unstable();
        assert!(freed.windows(2).all(|w| w[0] != w[1]));
        let sum: u64 = freed.iter().map(|d| d.asize.0).sum();
        assert!(sum == taken || encrypt);
    }
}

/// Goal: a batch that finds no space at all, or whose device fails, gives back everything that it
/// had allocated.
#[test]
fn failures_leave_nothing_behind() {
    let (zio, space) = pool(2, 9, 1024);
    *space.left.lock() = 20_000;
    let reqs = vec![req(noise(8192), WritePolicy::PLAIN), req(noise(65_536), WritePolicy::PLAIN)];
    let error = zio.write_batch(Txg(4), reqs, &zio.workers()).unwrap_err();
    assert!(matches!(error, crate::Error::NoSpace { .. }), "{error}");
    let returned: u64 = space.returned.lock().iter().map(|d| d.asize.0).sum();
    assert_eq!(returned, space.taken());

    let (zio, space) = pool(1, 9, u64::MAX);
    let (guid, _) = zio.tree().devices().next().unwrap();
    zio.tree().set_state(guid, vdev::VdevState::Faulted, vdev::VdevAux::External).unwrap();
    let error =
        zio.write_batch(Txg(4), vec![req(noise(8192), WritePolicy::PLAIN)], &zio.workers()).unwrap_err();
    assert!(matches!(error, crate::Error::Write { .. }), "{error}");
    let returned: u64 = space.returned.lock().iter().map(|d| d.asize.0).sum();
    assert_eq!(returned, space.taken());
    assert!(zio.tree().dtl(guid).unwrap().contains(4));
}
