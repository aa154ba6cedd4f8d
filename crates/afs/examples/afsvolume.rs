//! Restores dumps into a volume of a pool and dumps it again, for OpenAFS's programs to judge and
//! for measurements.
//!
//! * `afsvolume apply SINCE all|changed DUMP... >NEW` restores the dumps one after the other into
//!   one volume, and dumps what changed since `SINCE` (seconds since 1970; 0 is everything). The
//!   dump has all directories, or only the changed ones.
//! * `afsvolume change DUMP DIRECTORY` restores a dump, changes files in each directory, and writes
//!   into DIRECTORY: `before` and `after`, full dumps; `all` and `changed`, increments with all
//!   directories, and with the changed ones.
//! * `afsvolume bench FILES BYTES` restores a generated dump with so many files and bytes, dumps
//!   it, and restores it over itself. Then it changes 100 files, and dumps the change from the
//!   volume and from a snapshot. It prints the seconds of the processors and of the clock.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use afs::acl::Acl;
use afs::dir::{Builder, Entry};
use afs::dump::{Attributes, Header, Reader, Span, VnodeRecord, VolumeHeader, Writer};
use afs::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId};
use afs::volume::{DumpScope, dump, dump_size, header, new_volume, object, restore};
use dsl::ops::create::Create;
use dsl::ops::snapshot::Snapshot;
use ondisk::ObjNum;
use spa::create::VdevShape;
use spa::{OpenHead, Spa};
use testpools::{HookedSource, images, new_pool};
use zpl::{DirCookie, DirEntry, FileSystem, FileType, Kind, NewFile, Place, Policies, Policy, Rename};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["apply", since, which @ ("all" | "changed"), ref dumps @ ..] => {
            apply(since, which == "changed", dumps)
        }
        ["change", dump, to] => change(dump.as_ref(), to.as_ref()),
        ["bench", files, bytes] => bench(files, bytes),
        _ => Err("say `apply`, `change` or `bench`".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "afsvolume: {}", afs::server::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// A pool in files with a new volume.
struct Volume {
    fs: FileSystem,
    spa: Arc<Spa>,
    _dir: tempfile::TempDir,
}

impl Volume {
    fn new() -> Result<Volume, Failure> {
        let dir = tempfile::tempdir()?;
        let spa = Arc::new(new_pool(VdevShape::Single, &images(dir.path(), 1, 4 << 30)));
        let live = spa.writer().ok_or("the pool is not open for changes")?;
        let contents = Arc::new(new_volume((1_700_000_000, 0), Vec::new()));
        let name = "tank/536870915".to_owned();
        live.run(Box::new(Create { name, contents, props: Vec::new(), crypt: None, enforce_limits: false }))?;
        let head = OpenHead::open(&spa, &live.dsl().dataset("tank/536870915")?)?;
        let os = head.objset().clone();
        let source = Arc::new(HookedSource::new(head, SystemTime::now));
        let fs = FileSystem::open_live(&os, source, Policies::new(Policy::default()))?;
        Ok(Volume { fs, spa, _dir: dir })
    }
}

/// Seconds of the processors that this process has used, in units of 1/100.
fn processor() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or("").split(' ');
    let ticks: Vec<f64> = fields.skip(12).take(2).filter_map(|field| field.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn timed<T>(what: &str, run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let (begin, used) = (Instant::now(), processor()?);
    let done = run()?;
    let used = processor()? - used;
    writeln!(io::stdout(), "{what}: {used:.2} s of the processors, {:.2} s", begin.elapsed().as_secs_f64())?;
    Ok(done)
}

fn apply(since: &str, omit_unchanged_directories: bool, dumps: &[&str]) -> Result<(), Failure> {
    let volume = Volume::new()?;
    for path in dumps {
        take(&volume.fs, path.as_ref())?;
    }
    let own = header(&volume.fs)?.ok_or("no dump was named")?;
    let scope = DumpScope { since: Date(since.parse()?), omit_unchanged_directories, version_base: 0 };
    dump(&volume.fs, &own, scope, io::BufWriter::new(io::stdout().lock()))?.flush()?;
    Ok(())
}

/// Restores a dump into a volume, and keeps its header.
fn take(fs: &FileSystem, path: &Path) -> Result<VolumeHeader, Failure> {
    let mut reader = Reader::new(std::fs::File::open(path)?);
    Ok(restore(fs, &mut reader, 0, |restored| restored.volume.clone())?.volume)
}

fn change(from: &Path, to: &Path) -> Result<(), Failure> {
    let volume = Volume::new()?;
    let fs = &volume.fs;
    let own = take(fs, from)?;
    let write = |name: &str, scope| -> Result<(), Failure> {
        let file = io::BufWriter::new(std::fs::File::create(to.join(name))?);
        Ok(dump(fs, &own, scope, file)?.flush()?)
    };
    write("before", DumpScope::FULL)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let since = Date(u32::try_from(now)?);
    // Each second directory changes, so that some stay.
    let mut next = Places { vnode: 1 << 20, unique: own.next_unique.0 };
    for (i, directory) in directories(fs)?.into_iter().enumerate().filter(|(i, _)| i % 2 == 0) {
        change_in(fs, directory, i, &mut next)?;
    }
    write("after", DumpScope::FULL)?;
    write("all", DumpScope { since, omit_unchanged_directories: false, version_base: 0 })?;
    write("changed", DumpScope { since, omit_unchanged_directories: true, version_base: 0 })
}

/// All directories, the root first.
fn directories(fs: &FileSystem) -> Result<Vec<ObjNum>, Failure> {
    let mut all = vec![fs.root()];
    let mut at = 0;
    while let Some(directory) = all.get(at) {
        for entry in fs.read_dir(*directory, DirCookie(2))? {
            let entry = entry?;
            if entry.kind == FileType::Directory {
                all.push(entry.object);
            }
        }
        at += 1;
    }
    Ok(all)
}

/// Numbers that no vnode has yet.
struct Places {
    vnode: u32,
    unique: u32,
}

impl Places {
    fn take(&mut self, directory: bool) -> Place {
        self.vnode += 2;
        self.unique += 1;
        let vnode = Vnode(self.vnode + u32::from(directory));
        Place { object: object(vnode), generation: self.unique.into() }
    }
}

/// Removes, renames, rewrites and makes files in a directory.
fn change_in(fs: &FileSystem, directory: ObjNum, i: usize, next: &mut Places) -> Result<(), Failure> {
    let fs = fs.by_afs_user(1);
    let entries: Vec<DirEntry> = fs.read_dir(directory, DirCookie(2))?.collect::<Result<_, _>>()?;
    let mut files = entries.iter().filter(|entry| entry.kind == FileType::Regular);
    if let Some(gone) = files.next()
        && let Some(object) = fs.unlink(directory, &gone.name)?
    {
        fs.reap(object)?;
        // Its number gets another use at once.
        let place = Place { object, generation: next.take(false).generation };
        let new = NewFile::new(Kind::Symlink(b"elsewhere".to_vec()), 0o755);
        fs.create_at(directory, format!("link {i}").as_bytes(), &new, place, None)?;
    }
    if let Some(moved) = files.next() {
        let to = format!("moved {i}");
        fs.rename((directory, &moved.name), (directory, to.as_bytes()), Rename::Replace)?;
    }
    if let Some(changed) = files.next() {
        fs.truncate(changed.object, 10, false)?;
        fs.write(changed.object, 100_000, b"the end", false)?;
    }
    let new = |kind, mode| NewFile { uid: 1, ..NewFile::new(kind, mode) };
    let name = format!("new {i}");
    let made =
        fs.create_at(directory, name.as_bytes(), &new(Kind::Directory, 0o750), next.take(true), None)?;
    let file = fs.create_at(made.object, b"file", &new(Kind::Regular, 0o640), next.take(false), None)?;
    fs.write(file.object, 0, name.as_bytes(), false)?;
    Ok(())
}

/// A sink that counts.
#[derive(Default)]
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn bench(files: &str, bytes: &str) -> Result<(), Failure> {
    let (files, bytes): (u32, u64) = (files.parse()?, bytes.parse()?);
    let made = generated(files, bytes)?;
    let volume = Volume::new()?;
    let fs = &volume.fs;
    let again = || Ok(restore(fs, &mut Reader::new(&made[..]), 0, |restored| restored.volume.clone())?);
    timed("restore", again)?;
    timed("txg", || Ok(fs.sync()?))?;
    let own = header(fs)?.ok_or("the volume has no header")?;
    let count = timed("dump", || Ok(dump(fs, &own, DumpScope::FULL, Count::default())?))?;
    writeln!(io::stdout(), "{} bytes came, {} went", made.len(), count.0)?;
    timed("size", || Ok(dump_size(fs, &own, DumpScope::FULL)?))?;
    let scope = DumpScope { since: Date(1_700_000_000), omit_unchanged_directories: true, version_base: 0 };
    let named = timed("dump of no change", || Ok(dump(fs, &own, scope, Vec::new())?))?;
    let apply = || Ok(restore(fs, &mut Reader::new(&named[..]), 0, |restored| restored.volume.clone())?);
    timed("restore of no change", apply)?;
    timed("restore over it", again)?;
    timed("txg", || Ok(fs.sync()?))?;
    increments(&volume, &own, files)?;
    drop(volume.fs);
    drop(volume.spa);
    Ok(())
}

/// Dumps the change of 100 files.
fn increments(volume: &Volume, own: &VolumeHeader, files: u32) -> Result<(), Failure> {
    let fs = &volume.fs;
    for n in 0..100.min(files) {
        let file = u64::from(n) * u64::from(files) / 100;
        fs.write(object(Vnode(2 + 2 * u32::try_from(file)?)), 0, b"changed", false)?;
    }
    let scope = DumpScope { since: Date(1_700_000_000), omit_unchanged_directories: true, version_base: 0 };
    timed("dump of 100 changes, not synced", || Ok(dump(fs, own, scope, Count::default())?))?;
    timed("txg", || Ok(fs.sync()?))?;
    let live = timed("dump of 100 changes", || Ok(dump(fs, own, scope, Vec::new())?))?;
    let writer = volume.spa.writer().ok_or("the pool is not open for changes")?;
    let name = "tank/536870915@1".to_owned();
    writer.run(Box::new(Snapshot { names: vec![name], ..Snapshot::default() }))?;
    let os = writer.dsl().dataset("tank/536870915@1")?.objset()?.ok_or("the snapshot has no files")?;
    let snapshot = FileSystem::open(&os)?;
    for time in ["first", "second"] {
        let what = format!("dump of 100 changes from a snapshot, {time} time");
        let dumped = timed(&what, || Ok(dump(&snapshot, own, scope, Vec::new())?))?;
        if dumped != live {
            return Err("the snapshot has another dump than the volume".into());
        }
    }
    timed("size of 100 changes from a snapshot", || Ok(dump_size(&snapshot, own, scope)?))?;
    Ok(())
}

/// A dump of directories with up to 1,000 files each. The contents don't compress.
fn generated(files: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut writer = Writer::new(Vec::new());
    let id = VolumeId(536_870_915);
    let volume = VolumeHeader { id, version: 1, name: b"bench".to_vec(), ..VolumeHeader::default() };
    writer.header(&Header { volume: id, name: volume.name.clone(), spans: vec![Span::default()] })?;
    writer.volume(&volume)?;
    let directories = files.div_ceil(1000);
    let own = |vnode: u32| (Vnode(vnode), Unique(vnode));
    let mut root = Builder::new(own(1), own(1));
    for n in 0..directories {
        let name = format!("d{n}");
        root.add(Entry { name: name.as_bytes(), vnode: Vnode(3 + 2 * n), unique: Unique(3 + 2 * n) })?;
    }
    let root = root.finish();
    writer.vnode(&record(1, VnodeType::Directory, 0, 2 + directories, root.len()))?;
    writer.data(&root)?;
    for n in 0..directories {
        let number = 3 + 2 * n;
        let mut blob = Builder::new(own(number), own(1));
        for file in (1000 * n..files).take(1000) {
            let name = format!("a file with the number {file}");
            blob.add(Entry {
                name: name.as_bytes(),
                vnode: Vnode(2 + 2 * file),
                unique: Unique(2 + 2 * file),
            })?;
        }
        let blob = blob.finish();
        writer.vnode(&record(number, VnodeType::Directory, 1, 2, blob.len()))?;
        writer.data(&blob)?;
    }
    let length = usize::try_from(bytes / u64::from(files.max(1)))?;
    for file in 0..files {
        writer.vnode(&record(2 + 2 * file, VnodeType::File, 3 + 2 * (file / 1000), 1, length))?;
        writer.data(&testpools::noise(file.into(), length))?;
    }
    Ok(writer.end()?)
}

fn record(number: u32, kind: VnodeType, parent: u32, links: u32, length: usize) -> VnodeRecord {
    VnodeRecord {
        vnode: Vnode(number),
        unique: Unique(number),
        attributes: Some(Attributes {
            kind,
            link_count: u16::try_from(links).unwrap_or(u16::MAX),
            data_version: DataVersion(1),
            modify_time: Date(1_600_000_000),
            author: PrincipalId(7),
            owner: PrincipalId(1000),
            group: 0,
            mode: 0o644,
            parent: Vnode(parent),
            server_modify_time: Date(1_600_000_000),
            acl: (kind == VnodeType::Directory).then(|| Acl::of_new_volume().to_raw()),
            length: Some(length as u64),
        }),
    }
}
