//! Volumes that OpenZFS wrote, byte for byte.
#![allow(clippy::unwrap_used)]

#[path = "../../pool/tests/it/common/mod.rs"]
mod common;

use dmu::Extent;
use dsl::keys::KeyFormat;
use dsl::{Dsl, ListOptions, Options};
use sha2::{Digest, Sha256};
use zvol::{Error, Volume};

fn open(f: &testkit::Fixture) -> Dsl {
    let o = common::open(f.images());
    let options = Options { pool_name: f.pool().to_owned(), ..Options::default() };
    let dsl = Dsl::open(o.mos, options).unwrap();
    o.cache.zio().set_keys(dsl.keys().clone());
    for d in dsl.list_sorted(None, &ListOptions::default()).unwrap().whole().unwrap() {
        let root = d.dir().encryption_root().unwrap();
        if root.is_some_and(|r| r.object() == d.dir().object()) {
            let key = match d.dir().key_format().unwrap().unwrap() {
                KeyFormat::Passphrase => b"correct horse".to_vec(),
                KeyFormat::Raw => f.file("raw.key"),
                KeyFormat::Hex => f.file("hex.key").trim_ascii().to_vec(),
            };
            dsl.keys().load(d.dir(), &key, false).unwrap();
        }
    }
    dsl
}

fn volume(dsl: &Dsl, name: &str) -> zvol::Result<Volume> {
    Volume::open(&dsl.dataset(name).unwrap().objset().unwrap().unwrap())
}

/// Hash of all of a volume; holes are not read but count as zeros.
fn hash(v: &Volume) -> String {
    let mut sum = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < v.size() {
        let data = v.next(at, Extent::Data).unwrap();
        let end = v.next(data, Extent::Hole).unwrap();
        buf.fill(0);
        while at < data {
            let n = (data - at).min(buf.len() as u64);
            sum.update(&buf[..n as usize]);
            at += n;
        }
        while at < end {
            let n = (end - at).min(buf.len() as u64) as usize;
            v.read_at(&mut buf[..n], at).unwrap();
            sum.update(&buf[..n]);
            at += n as u64;
        }
    }
    sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Goal: size, block size and content of every volume and volume snapshot are what the kernel
/// module showed.
#[test]
fn volumes_agree_with_the_kernel() {
    let mut compared = 0;
    for name in ["zvols", "encrypted", "send-src", "send-partial"] {
        let Some(f) = testkit::find(name) else { continue };
        let dsl = open(&f);
        for z in f.zvols().iter().filter(|z| z.when.is_none()) {
            let v = volume(&dsl, &z.name).unwrap();
            if let Some(size) = z.size {
                assert_eq!(v.size(), size, "{}", z.name);
            }
            if let Some(block) = z.volblocksize {
                assert_eq!(v.block_size(), block, "{}", z.name);
            }
            assert_eq!(hash(&v), z.sha256, "{}", z.name);
            compared += 1;
        }
    }
    assert!(compared >= 5, "only {compared} volumes");
}

/// Goal: a read past the end fails, and a file system can't be opened as a volume.
#[test]
fn limits() {
    let f = testkit::load("zvols");
    let dsl = open(&f);
    assert!(matches!(volume(&dsl, "zvols"), Err(Error::NotVolume)));
    let v = volume(&dsl, "zvols/pat").unwrap();
    let mut buf = [0; 512];
    v.read_at(&mut buf, v.size() - 512).unwrap();
    assert!(matches!(v.read_at(&mut buf, v.size() - 511), Err(Error::PastEnd { .. })));
    assert!(matches!(v.read_at(&mut buf, u64::MAX), Err(Error::PastEnd { .. })));
    assert_eq!(v.next(v.size(), Extent::Data).unwrap(), v.size());
}
