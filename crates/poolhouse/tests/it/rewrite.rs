//! Blocks of pools that OpenZFS wrote, read and written again at the same offsets. The block
//! pointers must be the same, with sizes, checksums and MACs.

use poolhouse::device::{Device, MemDevice};
use poolhouse::dmu;
use poolhouse::dsl::traverse::{Visitor, pool_roots, traverse};
use poolhouse::ondisk::blkptr::{Body, CryptParams};
use poolhouse::ondisk::dnode::DnodePhys;
use poolhouse::ondisk::mos::CHECKSUM_SALT;
use poolhouse::ondisk::{
    Asize, Blkptr, ByteOrder, ChecksumKind, CompressKind, Dva, Guid, Offset, Txg, VdevConfig, VdevId,
    VdevKind,
};
use poolhouse::vdev::Tree;
use poolhouse::zio::{
    Bookmark, Dedup, Entropy, Found, NoSpace, ReadOptions, Space, Want, WritePolicy, WriteReq, Zio,
};
use poolhouse::{Claim, OpenOptions, Pool};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The offsets, salt and IV for the next write.
#[derive(Default)]
struct Given(Mutex<([Option<Dva>; 3], Option<CryptParams>)>);

impl Space for Given {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        let dvas = self.0.lock().unwrap().0;
        assert_eq!(dvas.iter().flatten().count(), usize::from(want.copies));
        Ok(dvas)
    }

    fn free(&self, _: &Dva, _: Txg, _: Txg) {
        panic!("nothing is freed");
    }

    fn unallocate(&self, _: &Dva, _: Txg) {
        panic!("nothing fails");
    }
}

impl Entropy for Given {
    fn fill(&self, buf: &mut [u8]) {
        let params = self.0.lock().unwrap().1.unwrap();
        match buf.len() {
            8 => buf.copy_from_slice(&params.salt),
            _ => buf.copy_from_slice(&params.iv),
        }
    }
}

/// A dedup table that is always empty.
struct Empty;

impl Dedup for Empty {
    fn has(&self, _: Txg, _: &Blkptr, _: &ReadOptions) -> bool {
        false
    }

    fn find(&self, _: Txg, _: &Blkptr, _: u8) -> Found {
        Found::New
    }

    fn enter(&self, _: Txg, _: &Blkptr) {}

    fn revoke(&self, _: Txg, _: &Blkptr, _: &[Dva]) {}

    fn release(&self, _: Txg, _: &Blkptr) -> bool {
        true
    }
}

struct Rewriter<'p> {
    pool: &'p Pool,
    ours: Zio,
    given: Arc<Given>,
    /// The number of blocks with the same pointer and with another, by kind.
    count: Mutex<BTreeMap<String, usize>>,
}

impl Visitor for Rewriter<'_> {
    fn block(&self, bp: &Blkptr, bookmark: &Bookmark, _: Option<&DnodePhys>) {
        let theirs = self.pool.spa().cache().zio();
        let (policy, exact) = match &bp.body {
            Body::Hole | Body::Redacted => return,
            Body::Embedded(e) => {
                // If it compresses to another size, it may not fit into its pointer.
                let place = Dva { vdev: VdevId(0), offset: Offset(0), asize: Asize(131_072), gang: false };
                *self.given.0.lock().unwrap() = ([Some(place), None, None], None);
                let policy = WritePolicy { compress: e.compress, embed: true, ..WritePolicy::PLAIN };
                (policy, matches!(e.compress, CompressKind::Zle | CompressKind::Lzjb))
            }
            // Log blocks, gang blocks, and blocks with another physical birth from dedup or cloning
            // are written in other ways.
            Body::Stored(s) => {
                let log = matches!(s.checksum, ChecksumKind::Zilog | ChecksumKind::Zilog2);
                if log || bp.is_gang() || s.phys_birth != bp.birth || bp.order == ByteOrder::Big {
                    return;
                }
                *self.given.0.lock().unwrap() = (s.dvas, Some(s.crypt_params));
                let policy = WritePolicy {
                    compress: s.compress,
                    checksum: s.checksum,
                    copies: s.copies().count() as u8,
                    dedup: s.dedup,
                    encrypt: s.crypt,
                    ..WritePolicy::PLAIN
                };
                let kinds = [CompressKind::Off, CompressKind::Lzjb, CompressKind::Zle];
                (policy, kinds.contains(&s.compress))
            }
        };
        let data = theirs.read(bp, bookmark, &ReadOptions::demand()).unwrap();
        let fill = bp.stored().map_or(1, |s| s.fill);
        let (kind, level, bookmark) = (bp.kind, bp.level, *bookmark);
        let req = WriteReq {
            compressed: None,
            encrypted: None,
            data: data.clone().into(),
            kind,
            level,
            bookmark,
            fill,
            policy,
            old: None,
            in_place: false,
        };
        let new = self.ours.write_batch(bp.birth, vec![req], &self.ours.workers()).unwrap()[0];
        assert_eq!(self.ours.read(&new, &bookmark, &ReadOptions::demand()).unwrap(), data);
        let salt = |bp: &Blkptr| bp.stored().map(|s| s.crypt_params.salt);
        let other_salt = salt(&new) != salt(bp);
        assert!(!exact || other_salt || new == *bp, "{bookmark}: {bp:x?}\nbecame\n{new:x?}");
        let protected = match bp.stored() {
            Some(s) if s.crypt => format!(", protected {} of level {}", bp.kind.name(), bp.level),
            _ => String::new(),
        };
        let compress = bp.stored().map_or("embedded", |s| s.compress.name());
        let same = if new == *bp { "same" } else { "other" };
        *self.count.lock().unwrap().entry(format!("{same} {compress}{protected}")).or_default() += 1;
    }

    fn failed(&self, bookmark: &Bookmark, error: &dmu::Error) {
        panic!("{bookmark}: {error}");
    }
}

/// Writes every block of a fixture on one disk again. Counts the blocks with the same pointer and
/// with another, by kind.
fn rewrite(name: &str) -> Option<BTreeMap<String, usize>> {
    let fixture = testkit::find(name)?;
    // Tests of other processes read the same images.
    let options = OpenOptions { claim: Claim::Share, ..OpenOptions::default() };
    let pool = Pool::open(fixture.images(), &options).unwrap();
    for name in pool.dataset_names(true).unwrap().names {
        for key in
            [b"correct horse".to_vec(), fixture_file(&fixture, "raw.key"), fixture_file(&fixture, "hex.key")]
        {
            // All keys but one are wrong, or the dataset has its key already.
            let _ = pool.load_key(&name, key.trim_ascii());
            let _ = pool.load_key(&name, &key);
        }
        let _ = pool.dataset(&name).unwrap().objset();
    }
    let spa = pool.spa();
    let ashift = spa.tree().top_spec(VdevId(0)).unwrap().ashift;
    let leaf = VdevConfig { ashift, ..VdevConfig::new(VdevKind::File, Guid(2)) };
    let root = VdevConfig { children: vec![leaf], ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let size = spa.tree().devices().next().unwrap().1.size();
    let open = &mut |_: &VdevConfig| Ok(Arc::new(MemDevice::new("blank", size)) as Arc<dyn Device>);
    let ours = Zio::new(Arc::new(Tree::open(&root, open).unwrap()));
    let given = Arc::new(Given::default());
    ours.set_space(given.clone());
    ours.set_entropy(given.clone());
    ours.set_dedup(Arc::new(Empty));
    ours.set_keys(pool.dsl().keys().clone());
    if let Some(salt) = spa.mos().dir_bytes(CHECKSUM_SALT).unwrap() {
        ours.set_salt(&salt.try_into().unwrap());
    }
    let rewriter = Rewriter { pool: &pool, ours, given, count: Mutex::default() };
    let roots = pool_roots(spa.mos().objset(), |e| panic!("{e}"));
    traverse(spa.cache().zio(), roots, 1, &rewriter);
    Some(rewriter.count.into_inner().unwrap())
}

fn fixture_file(fixture: &testkit::Fixture, name: &str) -> Vec<u8> {
    if fixture.dir().join(name).exists() { fixture.file(name) } else { Vec::new() }
}

/// Goal: with every compressor and checksum, a block gets the pointer that OpenZFS gave it. If
/// compressed output may differ between implementations, the block reads back the same.
#[test]
fn pointers_come_out_the_same() {
    let count = rewrite("single-lz4").expect("this fixture is bundled");
    for (what, least) in [("same uncompressed", 500), ("same lzjb", 30), ("same zle", 8)] {
        assert!(count.get(what).is_some_and(|n| *n >= least), "{what}: {count:#?}");
    }
    assert!(["uncompressed", "lzjb", "zle"].iter().all(|c| !count.contains_key(&format!("other {c}"))));
}

/// Goal: the same holds for an encrypted pool, given salt and IV: ciphertext, MACs of all kinds,
/// object sets.
#[test]
fn protected_pointers_come_out_the_same() {
    let count = rewrite("encrypted").expect("this fixture is bundled");
    for what in [
        "DMU dnode of level 0",
        "DMU objset of level 0",
        "ZFS plain file of level 0",
        "ZFS master node of level 0",
    ] {
        let what = format!("same uncompressed, protected {what}");
        assert!(count.get(&what).is_some_and(|n| *n > 5), "{what}: {count:#?}");
    }
}
