//! Workloads on a pool.

use crate::making::Making;
use crate::measure::{Took, here};
use anyhow::{Context, Result, ensure};
use fuse::dataset::Shown;
use fuse::tree::Statfs;
use fuse::{Detach, Mount, Workers};
use poolhouse::dmu::{Dnode, Objset};
use poolhouse::dsl::traverse::{pool_roots, traverse};
use poolhouse::ondisk::{DmuType, ObjNum};
use poolhouse::zpl::{DirCookie, FileSystem, FileType, Node};
use poolhouse::{Claim, OpenOptions, Pool};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use verify::block_stats::{BlockStats, Known, Verify};

/// Size of the cache in bytes, for reads that must be cold.
const SMALL_CACHE: u64 = 16 << 20;
/// Bytes of one read.
const CHUNK: usize = 1 << 20;
/// The smallest object that is enough to measure throughput.
const LEAST_BYTES: u64 = 1 << 20;

/// A workload on a pool.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The name of the workload.
    pub name: &'static str,
    /// A line that describes it.
    pub what: &'static str,
    /// Whether it creates a new pool in a scratch directory. Otherwise it uses an existing pool.
    pub makes: bool,
    /// Whether OpenZFS's `zdb -bcc` does the same work.
    pub zdb: bool,
    does: fn(&Path, usize) -> Result<(Value, Took)>,
}

const fn reads(
    name: &'static str,
    what: &'static str,
    does: fn(&Path, usize) -> Result<(Value, Took)>,
) -> Work {
    Work { name, what, makes: false, zdb: false, does }
}

const fn makes(
    name: &'static str,
    what: &'static str,
    does: fn(&Path, usize) -> Result<(Value, Took)>,
) -> Work {
    Work { name, what, makes: true, zdb: false, does }
}

impl Work {
    /// All workloads.
    pub const ALL: &[Work] = &[
        Work {
            zdb: true,
            ..reads(
                "traverse",
                "opens the pool, visits every block and verifies it, as zdb -bcc",
                |dir, threads| here(|| verify(dir, threads)),
            )
        },
        reads("read", "reads the largest object from start to end, with next to no cache", |dir, _| {
            read(dir)
        }),
        reads("datasets", "opens the pool and lists every dataset with all its properties", |dir, _| {
            here(|| datasets(dir))
        }),
        reads(
            "files",
            "opens the pool and looks at every file of every file system: ls -lR by the library",
            |dir, _| here(|| files(dir)),
        ),
        reads(
            "mount-read",
            "reads the largest file through a FUSE mount; mounting isn't counted",
            mount_read,
        ),
        reads(
            "mount-files",
            "ls -lR of the file system with the most files, through a FUSE mount; mounting isn't counted",
            mount_files,
        ),
        makes("write-lz4", "writes 1 GiB in records of 128 KiB with lz4, on one device", |dir, _| {
            Making::Lz4.run(dir)
        }),
        makes("write-zstd", "the same with zstd-3", |dir, _| Making::Zstd.run(dir)),
        makes("write-raidz2", "the same without compression, on a raidz2 of six", |dir, _| {
            Making::Raidz2.run(dir)
        }),
        makes("make-datasets", "makes 2,602 file systems in one call", |dir, _| Making::Datasets.run(dir)),
        makes("make-snapshots", "makes a snapshot of each of 2,602 file systems in one call", |dir, _| {
            Making::Snapshots.run(dir)
        }),
        makes("zap-add", "adds a million entries to a ZAP", |dir, _| Making::Zap.run(dir)),
        makes(
            "mount8115",
            "imports and mounts a new pool of 2,603 file systems; making it isn't counted",
            |dir, _| mount8115(dir),
        ),
    ];

    /// The workload of that name.
    pub fn by_name(name: &str) -> Option<Work> {
        Work::ALL.iter().find(|w| w.name == name).copied()
    }

    /// Runs the workload on the pool in the directory `dir`.
    ///
    /// The result has `wall_s`, `cpu_s`, and what was done.
    ///
    /// # Errors
    /// The pool can't be opened, a block can't be read, or the pool has nothing that the workload
    /// needs.
    pub fn run(self, dir: &Path, threads: usize) -> Result<Value> {
        let (mut done, took) = (self.does)(dir, threads)?;
        done["wall_s"] = json!(took.wall_s);
        done["cpu_s"] = json!(took.cpu_s);
        Ok(done)
    }
}

/// Measures from the devices of illumos issue 8115's pool to all of its mounts. The result also has
/// the other phases.
fn mount8115(dir: &Path) -> Result<(Value, Took)> {
    let room = tempfile::tempdir_in(dir)?;
    program::bench::make(room.path(), program::bench::Shape::default())?;
    let threads = server::mounts::threads::mount_threads();
    let case = program::bench::Case { latency_us: 0, in_flight: threads, threads, idle_s: 0 };
    let took = program::bench::once(room.path(), &case)?;
    let done: serde_json::Map<_, _> = took
        .named()
        .into_iter()
        // The creation of the pool took memory of this process, which is reused. So this figure
        // would be wrong.
        .filter(|(name, _)| *name != "kib_per_mount")
        .map(|(name, value)| (name.to_owned(), json!(crate::measure::round(value))))
        .collect();
    Ok((Value::Object(done), Took { wall_s: took.together_s, cpu_s: took.cpu_s }))
}

fn open(dir: &Path, cache_bytes: Option<u64>) -> Result<Pool> {
    let options = OpenOptions { claim: Claim::Nothing, force: true, cache_bytes, ..OpenOptions::default() };
    Pool::open(&[dir], &options).with_context(|| format!("open the pool in {}", dir.display()))
}

fn verify(dir: &Path, threads: usize) -> Result<Value> {
    let pool = open(dir, None)?;
    let spa = pool.spa();
    let zio = spa.cache().zio();
    let census = BlockStats::new(zio, Verify::All, Known::default());
    let mut unread = 0;
    let roots = pool_roots(spa.mos().objset(), |_| unread += 1);
    ensure!(unread == 0, "{unread} objects of the pool could not be read");
    traverse(zio, roots, threads, &census);
    let counts = census.finish();
    ensure!(counts.failures == 0, "{} blocks could not be read", counts.failures);
    let total = counts.total();
    Ok(json!({ "blocks": total.count, "bytes": total.lsize, "bytes_stored": total.psize }))
}

/// The file systems and volumes that have contents.
fn heads(pool: &Pool) -> Result<Vec<(String, Objset)>> {
    let mut out = Vec::new();
    for dataset in pool.dsl().list_sorted(None, &poolhouse::dsl::ListOptions::default())?.whole()? {
        if let Some(os) = dataset.objset()? {
            out.push((dataset.name(), os));
        }
    }
    Ok(out)
}

fn read(dir: &Path) -> Result<(Value, Took)> {
    let pool = open(dir, Some(SMALL_CACHE))?;
    let mut largest: Option<Dnode> = None;
    for (_, os) in heads(&pool)? {
        for dnode in os.objects(ObjNum(1)) {
            let dnode = dnode?;
            if largest.as_ref().is_none_or(|l| l.used_bytes() < dnode.used_bytes()) {
                largest = Some(dnode);
            }
        }
    }
    let object = largest.filter(|d| d.max_size() >= LEAST_BYTES).context("no object is worth reading")?;
    let (_, took) = here(|| {
        let mut buf = vec![0; CHUNK];
        for offset in (0..object.max_size()).step_by(CHUNK) {
            let n = (object.max_size() - offset).min(CHUNK as u64) as usize;
            object.read_at(offset, &mut buf[..n])?;
        }
        Ok(())
    })?;
    Ok((json!({ "bytes": object.max_size(), "record": object.block_size() }), took))
}

fn datasets(dir: &Path) -> Result<Value> {
    let pool = open(dir, None)?;
    let (mut datasets, mut properties) = (0u64, 0);
    for dataset in pool.dsl().list_sorted(None, &poolhouse::dsl::ListOptions::default())?.whole()? {
        datasets += 1;
        properties += dataset.properties()?.len();
    }
    Ok(json!({ "datasets": datasets, "properties": properties }))
}

fn files(dir: &Path) -> Result<Value> {
    let pool = open(dir, None)?;
    let (mut files, mut bytes) = (0u64, 0u64);
    for (_, os) in file_systems(&pool)? {
        let fs = FileSystem::open(&os)?;
        each_node(&fs, &mut |node| {
            files += 1;
            bytes += node.attr().size;
        })?;
    }
    ensure!(files > 0, "no file system has files");
    Ok(json!({ "files": files, "bytes": bytes }))
}

/// The file systems, without those that were never formatted.
fn file_systems(pool: &Pool) -> Result<Vec<(String, Objset)>> {
    let mut all = Vec::new();
    for (name, os) in heads(pool)? {
        match FileSystem::open(&os) {
            Ok(_) => all.push((name, os)),
            Err(poolhouse::zpl::Error::NotFileSystem) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(all)
}

/// Calls `see` with every node of a file system.
fn each_node(fs: &FileSystem, see: &mut dyn FnMut(&Node)) -> Result<()> {
    let mut folders = vec![fs.root()];
    while let Some(folder) = folders.pop() {
        let node = fs.node(folder)?;
        for entry in node.read_dir(DirCookie::START)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            if entry.kind == FileType::Directory {
                folders.push(entry.object);
            } else {
                see(&fs.node(entry.object)?);
            }
        }
        see(&node);
    }
    Ok(())
}

/// Mounts a file system, calls `work` with its root, and unmounts it.
fn mounted<T>(os: &Objset, threads: usize, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let sizes = Statfs { unit: 512, transfer: 131_072, name_max: 1023, ..Statfs::default() };
    let shown = Shown { name: "bench".to_owned(), posix_acl: false, xattrs: true, sizes };
    let tree = Arc::new(fuse::dataset::Dataset::new(FileSystem::open(os)?, shown));
    let workers = Arc::new(Workers::start("bench", threads)?);
    let target = tempfile::tempdir()?;
    let options = fuse::Options { source: "bench".to_owned(), read_only: true, ..fuse::Options::default() };
    let mount = Mount::new(&workers, tree, target.path(), &options)?;
    let out = work(target.path());
    mount.unmount(Detach::Lazy)?;
    out
}

fn mount_read(dir: &Path, threads: usize) -> Result<(Value, Took)> {
    let pool = open(dir, Some(SMALL_CACHE * 8))?;
    let mut largest: Option<(u64, Objset, ObjNum)> = None;
    for (_, os) in file_systems(&pool)? {
        for dnode in os.objects(ObjNum(1)) {
            let dnode = dnode?;
            let larger = largest.as_ref().is_none_or(|(size, ..)| *size < dnode.max_size());
            if larger && dnode.kind() == DmuType::PLAIN_FILE_CONTENTS {
                largest = Some((dnode.max_size(), os.clone(), dnode.object()));
            }
        }
    }
    let (_, os, object) =
        largest.filter(|(size, ..)| *size >= LEAST_BYTES).context("no file is worth reading")?;
    let fs = FileSystem::open(&os)?;
    let name = path_of(&fs, object)?.context("the largest file has no name")?;
    mounted(&os, threads, |root| {
        let mut file = File::open(root.join(name))?;
        let mut buf = vec![0; CHUNK];
        let (bytes, took) = here(|| {
            let mut bytes = 0u64;
            loop {
                match file.read(&mut buf)? {
                    0 => return Ok(bytes),
                    n => bytes += n as u64,
                }
            }
        })?;
        Ok((json!({ "bytes": bytes }), took))
    })
}

/// The path of an object below the root. The search walks the whole tree.
fn path_of(fs: &FileSystem, object: ObjNum) -> Result<Option<std::path::PathBuf>> {
    use std::os::unix::ffi::OsStringExt;
    let mut folders = vec![(fs.root(), std::path::PathBuf::new())];
    while let Some((folder, path)) = folders.pop() {
        for entry in fs.read_dir(folder, DirCookie::START)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = path.join(std::ffi::OsString::from_vec(entry.name));
            if entry.object == object {
                return Ok(Some(path));
            }
            if entry.kind == FileType::Directory {
                folders.push((entry.object, path));
            }
        }
    }
    Ok(None)
}

fn mount_files(dir: &Path, threads: usize) -> Result<(Value, Took)> {
    let pool = open(dir, Some(SMALL_CACHE * 8))?;
    let mut fullest: Option<(usize, Objset)> = None;
    for (_, os) in file_systems(&pool)? {
        let objects = os.objects(ObjNum(1)).filter(Result::is_ok).count();
        if fullest.as_ref().is_none_or(|(n, _)| *n < objects) {
            fullest = Some((objects, os));
        }
    }
    let (_, os) = fullest.context("there is no file system")?;
    // Open the pool again, as the count has warmed its cache.
    let id = os.id();
    drop(pool);
    let pool = open(dir, None)?;
    let os = file_systems(&pool)?.into_iter().find(|(_, os)| os.id() == id).context("it is gone")?.1;
    mounted(&os, threads, |root| {
        let (files, took) = here(|| {
            let (mut files, mut folders) = (0u64, vec![root.to_owned()]);
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(&folder)? {
                    let path = entry?.path();
                    files += 1;
                    if fs::symlink_metadata(&path)?.is_dir() {
                        folders.push(path);
                    }
                }
            }
            Ok(files)
        })?;
        Ok((json!({ "files": files }), took))
    })
}
