//! Pools that get a copy of a tree.

use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::prop::parse::{Context, setting};
use poolhouse::dsl::{Kind as DatasetKind, Prop, PropList, Value};
use poolhouse::ondisk::feature::{FEATURES, Feature};
use poolhouse::ondisk::{Ashift, ObjNum};
use poolhouse::spa::Host;
use poolhouse::spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use poolhouse::spa::import::Resources;
use poolhouse::zpl::{FileSystem, Kind, NewFile, NewFileSystem, Policies, Policy};
use poolhouse::{Dataset, Pool};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// A new pool on one image.
pub fn new_pool(image: &Path, ashift: u32) -> Pool {
    File::create(image).unwrap().set_len(1 << 30).unwrap();
    let leaves = vec![NewLeaf { path: image.to_owned() }];
    let vdevs = vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }];
    let ashift = Some(Ashift(ashift as u8));
    let new = NewPool { name: "tank".into(), vdevs, ashift, force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let contents = NewFileSystem::new((1_700_000_000, 0));
    let begin = Beginning {
        features: &features,
        contents: &contents,
        props: &Vec::new(),
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let Resources { workers, world } = Resources::of_system("tank");
    let (host, cache) = (Host { hostid: 1, hostname: "here".into() }, (64u64 << 20).into());
    let setting = Setting { host: &host, world, claimer: &claim_file, workers, cache, altroot: None };
    Pool::with_spa(create(&new, &begin, &setting).unwrap(), None).unwrap()
}

fn props(all: &[(&str, &str)]) -> PropList {
    let context = Context { kind: DatasetKind::Filesystem, creating: true, max_block: 1 << 24 };
    all.iter().map(|(name, value)| setting(name, value, context).unwrap()).collect()
}

/// A new file system with these properties.
pub fn file_system(pool: &Pool, name: &str, set: &[(&str, &str)]) -> Dataset {
    let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
    let task =
        Create { name: name.to_owned(), contents, props: props(set), crypt: None, enforce_limits: false };
    pool.run(task).unwrap();
    pool.dataset(name).unwrap()
}

/// The number of a property.
pub fn number(dataset: &Dataset, prop: Prop) -> u64 {
    match dataset.dsl().property(prop).unwrap().unwrap().value {
        Value::Number(n) => n,
        other => panic!("{prop:?} is {other:?}"),
    }
}

/// Copies a tree into a file system, and waits until it is on disk.
pub fn copy(pool: &Pool, name: &str, from: &Path) -> Dataset {
    let dataset = pool.dataset(name).unwrap();
    let policies = Policies::new(Policy::of(dataset.dsl()).unwrap());
    let fs = pool.open_for_writing(dataset.dsl(), policies).unwrap();
    let mut copied = HashMap::new();
    directory(&fs, fs.root(), from, &mut copied);
    drop(fs);
    pool.sync().unwrap();
    // What the first txg made dirty, such as its intent log, is gone in the next.
    pool.sync().unwrap();
    pool.dataset(name).unwrap()
}

fn directory(fs: &FileSystem, object: ObjNum, from: &Path, copied: &mut HashMap<u64, ObjNum>) {
    let mut entries: Vec<_> = fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let name = entry.file_name();
        if let Some(first) = copied.get(&meta.ino()) {
            fs.link(*first, object, name.as_bytes()).unwrap();
            continue;
        }
        let kind = match meta.file_type() {
            t if t.is_dir() => Kind::Directory,
            t if t.is_symlink() => {
                Kind::Symlink(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            }
            _ => Kind::Regular,
        };
        let new = NewFile {
            kind,
            permissions: meta.permissions().mode() & 0o7777,
            umask: 0,
            uid: meta.uid(),
            gid: meta.gid(),
        };
        let made = fs.create(object, name.as_bytes(), &new).unwrap().object;
        if meta.is_dir() {
            directory(fs, made, &path, copied);
        } else if meta.is_file() {
            copied.insert(meta.ino(), made);
            contents(fs, made, &File::open(&path).unwrap(), meta.len());
        }
    }
}

/// Copies a file, without its holes.
fn contents(fs: &FileSystem, object: ObjNum, from: &File, size: u64) {
    use rustix::fs::{SeekFrom, seek};
    // The size decides the size of its blocks.
    fs.truncate(object, size, false).unwrap();
    let mut at = 0;
    while at < size {
        let Ok(begin) = seek(from, SeekFrom::Data(at)) else { break };
        let end = seek(from, SeekFrom::Hole(begin)).unwrap().min(size);
        at = begin;
        while at < end {
            let mut buf = vec![0; (end - at).min(1 << 20) as usize];
            match from.read_exact_at(&mut buf, at) {
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => panic!("the tree changed"),
                other => other.unwrap(),
            }
            fs.write(object, at, &buf, false).unwrap();
            at += buf.len() as u64;
        }
    }
}
