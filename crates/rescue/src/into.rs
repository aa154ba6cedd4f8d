//! `poolhouse cp` into a pool: files of this machine become files of a dataset, without a mount.
//!
//! # Theory
//! The pool is imported for writing, with this process as its only owner. At the end everything is
//! on disk, and the pool is exported. So nothing is written to a state that can't be written.
//!
//! A pool that the daemon holds stays there: the daemon writes, and the end is a sync.
//!
//! Each file that can't be read or written is reported by name, and the rest continues, as when
//! copying out.
//!
//! Links in the sources are copied, not followed. Links in the destination's path are followed
//! within the dataset.
//!
//! Each source is opened within the open folder in which it was found. So what is copied is what
//! was there, even if another process changes the tree meanwhile. What has a file's name in the
//! pool is removed once the file itself is open.
//!
//! # Absent
//! * Volumes.
//! * Trees deeper than the number of files that this process may have open.
//! * Copies from one pool to another: that takes two copies.

use super::args::{Args, Owners};
use super::nested::{Child, Nested};
use super::progress::Progress;
use super::target::{self, Error, Target};
use super::{Chain, Io};
use api::files::{Engine, Fault, Files, Kind as FaultKind, PART_MAX};
use mount_rules::Plan;
use poolhouse::ondisk::ObjNum;
use poolhouse::spa::Host;
use poolhouse::zpl::{FileType, Kind, NewFile, Policies, SetAttr, Time};
use poolhouse::{Claim, OpenOptions, Pool};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes of one write.
const CHUNK: usize = PART_MAX;
/// The most bytes of an extended attribute, and of the names of all attributes of a file, that
/// Linux passes.
const XATTR_MAX: usize = 1 << 16;

/// Why one file can't be copied.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Source(#[from] std::io::Error),
    #[error(transparent)]
    Pool(#[from] Fault),
    #[error("a folder is in its place")]
    Folder,
    #[error("is a folder, and something else is in its place")]
    NoFolder,
    #[error("was replaced meanwhile")]
    Replaced,
    #[error("is a folder: use -r")]
    NotRecursive,
    #[error("no kind of file that a pool can have")]
    Kind,
    #[error("{0} has its mountpoint there and would hide it: copy it to {0}:/")]
    Hidden(String),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Source(errno.into())
    }
}

/// The place in a pool that an operand names. `None` if it names a file of this machine.
pub fn place(operand: &str) -> Option<Target> {
    let local = operand.starts_with(['/', '.']) || Path::new(operand).symlink_metadata().is_ok();
    Some(Target::parse(operand)).filter(|target| !local && target.path.is_some())
}

/// Copies files of this machine into a pool. Returns `false` if something could not be read or
/// written.
///
/// # Errors
/// * [`Error::Operand`]: the request needs an older state, a source is in a pool, or the
///   destination can't be written.
/// * [`Error::Hidden`]: the path lies below the mountpoint of another file system.
/// * [`Error::Path`]: the destination's path can't be resolved, or the final sync failed.
/// * [`Error::NotWritable`]: a device of the pool can only be read.
/// * [`Error::Pool`]: the pool can't be imported, opened or exported.
/// * [`Error::Theirs`], [`Error::Refused`], [`Error::Denied`], [`Error::Daemon`]: the daemon that
///   holds the pool does not open the dataset, or does not list its mounts.
/// * [`Error::NoKey`], [`Error::KeyFile`]: the key is not loaded, or its file can't be read.
/// * The errors of [`target::scan`] and [`target::candidate`].
pub fn run(io: &mut Io, args: &Args, target: &Target, sources: &[String]) -> Result<bool, Error> {
    let refuse = |operand: &str, why| Err(Error::Operand { operand: operand.to_owned(), why });
    if args.peek || args.extreme || args.checkpoint || args.txg.is_some() {
        return refuse(&target.dataset, "only a pool's newest state can be written, by its owner");
    }
    if let Some(other) = sources.iter().find(|source| place(source).is_some()) {
        return refuse(other, "is in a pool: copy it out first");
    }
    let path = target.path.clone().unwrap_or_default();
    if path.is_empty() {
        return refuse(&target.dataset, "volumes are not written: a path must follow the colon");
    }
    if let Some(held) = super::held::held(io, args, target) {
        return by_daemon(io, args, &held, &path, sources);
    }
    let scan = target::scan(args)?;
    let candidate = target::candidate(&scan, target.pool())?;
    let options = OpenOptions {
        write: true,
        claim: Claim::default(),
        missing_log: args.missing_log,
        ..OpenOptions::default()
    };
    let pool = match Pool::import(candidate, &options, &Host::of_system()).map_err(Error::from) {
        Ok(pool) => pool,
        Err(error) => match super::held::if_in_use(io, target, &error) {
            Some(held) => return by_daemon(io, args, &held, &path, sources),
            // The engine counts a device that can't be opened for writing as missing.
            None => {
                let closed = spa::unwritable(candidate);
                return Err(closed.map_or(error, |(path, errno)| Error::NotWritable {
                    path: path.to_owned(),
                    source: errno.into(),
                }));
            }
        },
    };
    let target = &target.of(pool.name());
    let keys = target::load_keys(&pool, args, target);
    let copied = keys
        .and_then(|()| target::check_key(&pool, &target.dataset))
        .and_then(|()| copy(io, args, &pool, target, &path, sources));
    let left = pool.export().map_err(Error::from);
    let whole = copied?;
    left?;
    Ok(whole)
}

/// Copies by requests to the daemon that holds the pool.
fn by_daemon(
    io: &mut Io,
    args: &Args,
    held: &super::held::Held,
    path: &str,
    sources: &[String],
) -> Result<bool, Error> {
    let (mut visit, _) = held.visit(io, args, &held.target.dataset, "cp", true)?;
    let nested = Nested::of_held(io, held)?;
    write(io, args, &mut visit, (&held.target.dataset, path, &nested), sources)
}

fn copy(
    io: &mut Io,
    args: &Args,
    pool: &Pool,
    target: &Target,
    path: &str,
    sources: &[String],
) -> Result<bool, Error> {
    let refuse = |why| Err(Error::Operand { operand: format!("{}:{path}", target.dataset), why });
    let dataset = pool.dataset(&target.dataset)?;
    let Some(plan) = Plan::of(dataset.dsl().clone()).map_err(poolhouse::Error::from)? else {
        return refuse("is no file system that can be written");
    };
    if plan.options.read_only {
        return refuse("has the property readonly=on");
    }
    let nested = Nested::of_pool(pool, &target.dataset)?;
    let fs = pool.open_for_writing(dataset.dsl(), Policies::new(plan.policy))?;
    write(io, args, &mut Engine::files(fs), (&target.dataset, path, &nested), sources)
}

/// Writes the sources to a path of a file system.
fn write(
    io: &mut Io,
    args: &Args,
    files: &mut dyn Files,
    (dataset, path, nested): (&str, &str, &Nested),
    sources: &[String],
) -> Result<bool, Error> {
    nested.refuse(path)?;
    let at = |source| Error::Path { dataset: dataset.to_owned(), path: path.to_owned(), source };
    let folder = match files.resolve(path.as_bytes(), true) {
        Ok(meta) if meta.kind == FileType::Directory => Some(meta.object),
        Ok(_) => None,
        Err(fault) if fault.kind == FaultKind::NoEntry => None,
        Err(fault) => return Err(at(fault)),
    };
    let mut copy = Copy {
        progress: Progress::new(io.terminal && !args.quiet, None),
        io,
        args,
        files,
        whole: true,
        gone: false,
        linked: HashMap::new(),
        hidden: HashMap::new(),
        covered: HashMap::new(),
        buf: vec![0; CHUNK],
    };
    for child in nested.mounted() {
        copy.watch(child).map_err(at)?;
    }
    match folder {
        Some(folder) => {
            for source in sources {
                // The contents of `DIR/.`, `..` or `/` go into the folder itself.
                let inside = source.ends_with("/.");
                let source = Path::new(source);
                match source.file_name().filter(|_| !inside) {
                    Some(name) => copy.tree(source, folder, name.as_bytes()),
                    None => copy.inside(source, folder),
                }
            }
        }
        None if sources.len() > 1 => {
            let why = "several sources need a folder to go into";
            return Err(Error::Operand { operand: format!("{dataset}:{path}"), why });
        }
        None => {
            let path = path.trim_end_matches('/');
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let above = copy.files.resolve(above.as_bytes(), true).map_err(at)?;
            copy.tree(Path::new(&sources[0]), above.object, name.as_bytes());
        }
    }
    copy.progress.finish();
    let (whole, gone) = (copy.whole, copy.gone);
    if !gone {
        copy.files.sync().map_err(at)?;
    }
    Ok(whole)
}

struct Copy<'a> {
    io: &'a mut Io,
    args: &'a Args,
    files: &'a mut dyn Files,
    progress: Progress,
    whole: bool,
    /// The daemon that writes is no longer reachable. Nothing more can be copied.
    gone: bool,
    /// Copied files that have several names, by device and inode.
    linked: HashMap<(u64, u64), ObjNum>,
    /// For folders of the pool: the ways from there to mountpoints of other file systems.
    hidden: HashMap<ObjNum, Vec<Child>>,
    /// Folders of the pool that other file systems cover.
    covered: HashMap<ObjNum, String>,
    buf: Vec<u8>,
}

/// A file to copy, or a folder whose contents are copied and that now gets its times.
enum Step {
    Copy(Entry, ObjNum, Vec<u8>),
    Finish(Rc<Source>, ObjNum),
}

/// A name of this machine.
struct Entry {
    path: PathBuf,
    /// The folder in which the name's last part is looked up. `None` for a name from the command
    /// line.
    within: Option<Rc<Source>>,
}

/// A file of this machine, held open.
struct Source {
    path: PathBuf,
    /// The descriptor from which a file or folder is read. Other kinds are only held.
    file: File,
    meta: Metadata,
}

/// The identity of a file.
fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl Source {
    fn open(entry: Entry) -> Result<Self, Failure> {
        let Entry { path, within } = entry;
        let open = |flags| {
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = match &within {
                Some(folder) => {
                    let name = path.file_name().unwrap_or(path.as_os_str());
                    rustix::fs::openat(&folder.file, name, flags, Mode::empty())
                }
                None => rustix::fs::open(&path, flags, Mode::empty()),
            };
            opened.map(File::from)
        };
        let held = open(OFlags::PATH)?;
        let meta = held.metadata()?;
        let file = match meta.file_type() {
            kind if kind.is_dir() => open(OFlags::RDONLY | OFlags::DIRECTORY)?,
            // Another file may have taken its place meanwhile. Opening a fifo, for example, would
            // wait for a partner.
            kind if kind.is_file() => open(OFlags::RDONLY | OFlags::NONBLOCK)?,
            _ => held,
        };
        let now = file.metadata()?;
        if identity(&now) != identity(&meta) || now.file_type() != meta.file_type() {
            return Err(Failure::Replaced);
        }
        Ok(Self { path, file, meta: now })
    }

    /// Opens a folder by a path whose links are followed.
    fn folder(path: &Path) -> Result<Self, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let meta = file.metadata()?;
        Ok(Self { path: path.to_owned(), file, meta })
    }

    /// Names of extended attributes, except for those that a file system generates.
    fn names_of_xattrs(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = vec![0; XATTR_MAX];
        let got = match self.only_held() {
            Some(path) => rustix::fs::listxattr(path, &mut names[..]),
            None => rustix::fs::flistxattr(&self.file, &mut names[..]),
        };
        let n = match got {
            Ok(n) => n,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let known = |name: &&[u8]| {
            let kept: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
            kept.iter().any(|prefix| name.starts_with(prefix))
        };
        Ok(names[..n].split(|b| *b == 0).filter(known).map(<[u8]>::to_vec).collect())
    }

    fn xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; XATTR_MAX];
        let n = match self.only_held() {
            Some(path) => rustix::fs::getxattr(path, name, &mut value[..])?,
            None => rustix::fs::fgetxattr(&self.file, name, &mut value[..])?,
        };
        value.truncate(n);
        Ok(value)
    }

    /// The path through which Linux gives the extended attributes of a file that is held, but not
    /// open for reading.
    fn only_held(&self) -> Option<PathBuf> {
        let read = self.meta.is_file() || self.meta.is_dir();
        (!read).then(|| PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())))
    }

    fn kind(&self) -> Result<Kind, Failure> {
        let (kind, rdev) = (self.meta.file_type(), self.meta.rdev());
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        Ok(match kind {
            k if k.is_file() => Kind::Regular,
            k if k.is_dir() => Kind::Directory,
            k if k.is_symlink() => {
                Kind::Symlink(rustix::fs::readlinkat(&self.file, "", Vec::new())?.into_bytes())
            }
            k if k.is_fifo() => Kind::Fifo,
            k if k.is_socket() => Kind::Socket,
            k if k.is_char_device() => Kind::CharDevice(major, minor),
            k if k.is_block_device() => Kind::BlockDevice(major, minor),
            _ => return Err(Failure::Kind),
        })
    }
}

impl Copy<'_> {
    fn failed(&mut self, path: &Path, e: &Failure) {
        self.whole = false;
        if self.gone {
            return;
        }
        self.gone = matches!(e, Failure::Pool(fault) if fault.kind == FaultKind::Gone);
        let err = &mut self.io.err;
        self.progress.suspend(|| writeln!(err, "poolhouse cp: {}: {}", path.display(), Chain(e)));
    }

    /// Notes the existing folders on the way to a mountpoint.
    fn watch(&mut self, child: &Child) -> Result<(), Fault> {
        let mut folder = self.files.resolve(b"/", true)?.object;
        for done in 0..child.at.len() {
            let rest = Child { name: child.name.clone(), at: child.at[done..].to_vec() };
            self.hidden.entry(folder).or_default().push(rest);
            match self.files.lookup(folder, &child.at[done]) {
                Ok(next) => folder = next,
                // Folders that are created there later are noted then. Nothing is mounted in a link
                // or a file.
                Err(fault) if matches!(fault.kind, FaultKind::NoEntry | FaultKind::NotFolder) => {
                    return Ok(());
                }
                Err(fault) => return Err(fault),
            }
        }
        self.covered.insert(folder, child.name.clone());
        Ok(())
    }

    /// Refuses a name that is a mountpoint or lies in one, because links may lead there.
    fn check_hidden(&self, dir: ObjNum, name: &[u8]) -> Result<(), Failure> {
        if let Some(child) = self.covered.get(&dir) {
            return Err(Failure::Hidden(child.clone()));
        }
        let ways = self.hidden.get(&dir).into_iter().flatten();
        match ways.into_iter().find(|way| way.at.len() == 1 && way.at[0] == name) {
            Some(child) => Err(Failure::Hidden(child.name.clone())),
            None => Ok(()),
        }
    }

    /// Notes the ways that continue from a new folder.
    fn made(&mut self, dir: ObjNum, name: &[u8], folder: ObjNum) {
        let ways = self.hidden.get(&dir).into_iter().flatten();
        let leads = ways.filter(|way| way.at.len() > 1 && way.at[0] == name);
        let on: Vec<Child> =
            leads.map(|way| Child { name: way.name.clone(), at: way.at[1..].to_vec() }).collect();
        if !on.is_empty() {
            self.hidden.insert(folder, on);
        }
    }

    /// Copies a file or folder to a name in a folder of the pool.
    fn tree(&mut self, source: &Path, dir: ObjNum, name: &[u8]) {
        let entry = Entry { path: source.to_owned(), within: None };
        self.steps(vec![Step::Copy(entry, dir, name.to_vec())]);
    }

    /// Copies the contents of a folder.
    fn inside(&mut self, source: &Path, dir: ObjNum) {
        if !self.args.recursive {
            return self.failed(source, &Failure::NotRecursive);
        }
        let mut steps = Vec::new();
        match Source::folder(source) {
            Ok(folder) => self.list(&Rc::new(folder), dir, &mut steps),
            Err(e) => self.failed(source, &e),
        }
        self.steps(steps);
    }

    fn steps(&mut self, mut steps: Vec<Step>) {
        while let Some(step) = steps.pop() {
            if self.gone {
                return;
            }
            match step {
                Step::Finish(source, object) => {
                    if let Err(e) = self.keep(&source, object) {
                        self.failed(&source.path, &e);
                    }
                }
                Step::Copy(entry, dir, name) => {
                    let path = entry.path.clone();
                    match self.one(entry, dir, &name) {
                        Ok(None) => {}
                        Ok(Some((source, folder))) => {
                            let source = Rc::new(source);
                            steps.push(Step::Finish(Rc::clone(&source), folder));
                            self.list(&source, folder, &mut steps);
                        }
                        Err(e) => self.failed(&path, &e),
                    }
                }
            }
        }
    }

    fn list(&mut self, source: &Rc<Source>, folder: ObjNum, steps: &mut Vec<Step>) {
        let mut add = || -> Result<(), Errno> {
            for entry in rustix::fs::Dir::read_from(&source.file)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                let path = source.path.join(OsStr::from_bytes(name));
                let entry = Entry { path, within: Some(Rc::clone(source)) };
                steps.push(Step::Copy(entry, folder, name.to_vec()));
            }
            Ok(())
        };
        if let Err(e) = add() {
            self.failed(&source.path, &e.into());
        }
    }

    /// Copies one file. Of a folder it copies only the folder itself, and returns it.
    fn one(&mut self, entry: Entry, dir: ObjNum, name: &[u8]) -> Result<Option<(Source, ObjNum)>, Failure> {
        let source = Source::open(entry)?;
        let meta = &source.meta;
        self.progress.file(source.path.as_os_str().as_bytes());
        if self.args.verbose {
            let out = &mut self.io.out;
            self.progress.suspend(|| writeln!(out, "{}", source.path.display()));
        }
        if meta.is_dir() && !self.args.recursive {
            return Err(Failure::NotRecursive);
        }
        self.check_hidden(dir, name)?;
        let there = match self.files.lookup(dir, name) {
            Ok(object) => Some(object),
            Err(fault) if fault.kind == FaultKind::NoEntry => None,
            Err(fault) => return Err(fault.into()),
        };
        let kind = source.kind()?;
        if let Some(object) = there {
            let is_folder = self.files.meta(object)?.kind == FileType::Directory;
            match (meta.is_dir(), is_folder) {
                (true, true) => return Ok(Some((source, object))),
                (true, false) => return Err(Failure::NoFolder),
                (false, true) => return Err(Failure::Folder),
                // Another name of the same file was copied to this name.
                (false, false) if self.linked.get(&identity(meta)) == Some(&object) => return Ok(None),
                (false, false) => {}
            }
            if let Some(gone) = self.files.remove(dir, name)? {
                self.linked.retain(|_, object| *object != gone);
            }
        }
        if let Some(first) = self.linked.get(&identity(meta)) {
            self.files.link(*first, dir, name)?;
            return Ok(None);
        }
        let (uid, gid) = self.owner(meta);
        // Linux shows the same mode for every link. Other files get theirs at the end.
        let permissions = if meta.is_symlink() { 0o777 } else { 0o600 };
        let new = NewFile { uid, gid, ..NewFile::new(kind, permissions) };
        let object = self.files.create(dir, name, &new)?;
        if meta.is_dir() {
            self.made(dir, name, object);
            return Ok(Some((source, object)));
        }
        if meta.is_file() {
            self.contents(&source, object)?;
        }
        self.keep(&source, object)?;
        if meta.nlink() > 1 {
            self.linked.insert(identity(meta), object);
        }
        Ok(None)
    }

    /// Writes a file's data. Its holes stay holes.
    fn contents(&mut self, source: &Source, object: ObjNum) -> Result<(), Failure> {
        let (file, size) = (&source.file, source.meta.len());
        let mut at = 0;
        while at < size {
            // If the file system can't find holes, everything counts as data.
            let data = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(data)).unwrap_or(size);
            at = data;
            while at < hole {
                let most = CHUNK - (at % CHUNK as u64) as usize;
                let room = usize::try_from(hole - at).unwrap_or(CHUNK).min(most);
                let n = file.read_at(&mut self.buf[..room], at)?;
                if n == 0 {
                    // The file became shorter meanwhile.
                    return Ok(());
                }
                self.files.write(object, at, &self.buf[..n])?;
                self.progress.bytes(n as u64);
                at += n as u64;
            }
        }
        Ok(self.files.extend(object, size)?)
    }

    /// The owner that a file gets in the pool.
    fn owner(&self, meta: &Metadata) -> (u32, u32) {
        match self.args.owners {
            Owners::IfAllowed | Owners::Numeric => (meta.uid(), meta.gid()),
            Owners::No => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        }
    }

    /// Sets a file's extended attributes, owner, mode and times.
    fn keep(&mut self, source: &Source, object: ObjNum) -> Result<(), Failure> {
        let meta = &source.meta;
        for name in source.names_of_xattrs()? {
            self.files.set_xattr(object, &name, &source.xattr(&name)?)?;
        }
        let time = |secs, nanos: i64| {
            Some(Time { secs, nanos: u32::try_from(nanos).ok().filter(|n| *n < 1_000_000_000).unwrap_or(0) })
        };
        let (uid, gid) = self.owner(meta);
        let set = SetAttr {
            uid: Some(uid),
            gid: Some(gid),
            permissions: (!meta.is_symlink()).then_some(meta.mode() & 0o7777),
            atime: time(meta.atime(), meta.atime_nsec()),
            mtime: time(meta.mtime(), meta.mtime_nsec()),
            ..SetAttr::default()
        };
        self.files.set_attr(object, &set)?;
        Ok(())
    }
}
