//! `poolhouse cp`.
//!
//! # Theory
//! A hostile pool may try to fill the destination. By deduplication and clones, one block of data
//! may be at many places of a file, and only the file's size limits how often. So the bytes written
//! for a file are limited by its size and by the destination's free space, as with any `cp` from a
//! pool.
//!
//! An indirect block has one place only. A second reference to it is damage, and what is below it
//! becomes a hole. So a file of petabytes needs a pool with the indirect blocks for it
//! ([`dmu::Walk`]).
//!
//! A tree may be deeper than a process may have open descriptors. Only the folders nearest to the
//! one that is being copied stay open. The way back up is `..`, which leads to the folder that was
//! left, or nowhere.

use super::args::{Args, Owners};
use super::dest::{self, Folder, Identity, Kept, Lost};
use super::nested::Nested;
use super::progress::Progress;
use super::target::{self, Error, Target};
use super::{Chain, Io, held, into};
use api::files::{Engine, Fault, Files, Gap, Item, Kind, Meta, PART_MAX};
use console::words;
use poolhouse::ondisk::ObjNum;
use poolhouse::zpl::{DirCookie, FileType};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of one read.
const CHUNK: usize = PART_MAX;

/// Copies the operands into the last one. Returns `false` if something could not be read or
/// written.
///
/// # Errors
/// * [`Error::Operand`]: several sources go to something that is not a folder, or a source has no
///   path, or the wrong kind of path.
/// * [`Error::Destination`]: the destination can't be opened.
/// * [`Error::Path`]: a source's path leads to nothing.
/// * [`Error::Theirs`], [`Error::Refused`], [`Error::Denied`], [`Error::Daemon`]: the daemon that
///   holds the pool does not provide the files.
/// * The errors of [`target::scan`], [`target::open`] and [`target::check_key`].
/// * The errors of [`into::run`], if the destination is in a pool.
///
/// # Panics
/// If there are no operands. [`Args::parse`] makes sure that there are.
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let (dest, sources) = args.operands.split_last().expect("the arguments were counted");
    if let Some(target) = into::place(dest) {
        return into::run(io, args, &target, sources);
    }
    let dest = Path::new(dest);
    let into_folder = dest.is_dir();
    if sources.len() > 1 && !into_folder {
        let operand = dest.display().to_string();
        return Err(Error::Operand { operand, why: "several sources need a folder to go into" });
    }
    let mut scan = None;
    let mut whole = true;
    for source in sources {
        let target = Target::parse(source);
        let why = "no path: write POOL/DATASET:/PATH";
        let path = target.path.clone().ok_or_else(|| Error::Operand { operand: source.clone(), why })?;
        if let Some(held) = held::held(io, args, &target) {
            whole &= out_of_daemon(io, args, &held, (dest, into_folder), &path)?;
            continue;
        }
        let scan = match &mut scan {
            Some(scan) => scan,
            none => none.insert(target::scan(args)?),
        };
        let (pool, target) = match target::open(io, args, scan, &target) {
            Ok(opened) => opened,
            Err(error) => match held::if_in_use(io, &target, &error) {
                Some(held) => {
                    whole &= out_of_daemon(io, args, &held, (dest, into_folder), &path)?;
                    continue;
                }
                None => return Err(error),
            },
        };
        target::check_key(&pool, &target.dataset)?;
        let dataset = pool.dataset(&target.dataset)?;
        // Progress counts uncompressed bytes, as files show them.
        let total = dataset.dsl().phys().uncompressed_bytes;
        let (mut engine, volume) = match path.is_empty() {
            true => (Engine::objects(dataset.objset()?), Some(dataset.volume()?.size())),
            false => (Engine::files(dataset.filesystem()?), None),
        };
        if volume.is_none() {
            let nested = Nested::of_pool(&pool, &target.dataset)?;
            nested.report(io, "cp", &path, args.recursive);
        }
        let source = Source { dataset: &target.dataset, path: &path, files: &mut engine, volume, total };
        whole &= one(io, args, source, (dest, into_folder))?;
    }
    Ok(whole)
}

/// Copies from a pool that the daemon holds.
fn out_of_daemon(
    io: &mut Io,
    args: &Args,
    held: &held::Held,
    to: (&Path, bool),
    path: &str,
) -> Result<bool, Error> {
    let dataset = &held.target.dataset;
    let (mut visit, opened) = held.visit(io, args, dataset, "cp", false)?;
    if path.is_empty() != opened.volume.is_some() {
        let why = if path.is_empty() {
            "is no volume: write POOL/DATASET:/PATH"
        } else {
            "is a volume: write POOL/VOLUME:"
        };
        return Err(Error::Operand { operand: dataset.clone(), why });
    }
    let (volume, total) = (opened.volume, opened.total);
    if volume.is_none() {
        Nested::of_held(io, held)?.report(io, "cp", path, args.recursive);
    }
    one(io, args, Source { dataset, path, files: &mut visit, volume, total }, to)
}

/// The source of a copy.
struct Source<'a> {
    dataset: &'a str,
    path: &'a str,
    files: &'a mut dyn Files,
    /// Size of a volume, in bytes.
    volume: Option<u64>,
    /// Bytes of the whole dataset.
    total: u64,
}

/// Copies one operand. Returns `false` if something could not be read or written.
fn one(
    io: &mut Io,
    args: &Args,
    source: Source<'_>,
    (dest, into_folder): (&Path, bool),
) -> Result<bool, Error> {
    let Source { dataset, path, files, volume, total } = source;
    let (top, at, child) = place(dest, into_folder, path, dataset)?;
    let shown = io.terminal && !args.quiet;
    let whole_tree = path.trim_matches('/').is_empty();
    let progress = Progress::new(shown, whole_tree.then_some(total));
    let mut copy = Copy::new(io, args, (dataset, files), (top, at), progress);
    match volume {
        Some(size) => copy.volume(size, &child)?,
        None => copy.tree(path, child.as_deref())?,
    }
    copy.progress.finish();
    Ok(copy.whole)
}

/// The folder to write into, its path, and the name in it. Without a name, the folder itself is the
/// destination.
fn place(
    dest: &Path,
    into_folder: bool,
    path: &str,
    dataset: &str,
) -> Result<(Folder, PathBuf, Option<Vec<u8>>), Error> {
    let open =
        |p: &Path| Folder::open(p).map_err(|e| Error::Destination { path: p.to_owned(), source: e.into() });
    if into_folder {
        let last = path.rsplit('/').find(|p| !p.is_empty());
        let name = match last {
            Some(last) => Some(last.as_bytes().to_vec()),
            None if path.is_empty() => dataset.rsplit('/').next().map(|n| n.as_bytes().to_vec()),
            None => None,
        };
        return Ok((open(dest)?, dest.to_owned(), name));
    }
    let parent = dest.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = dest.file_name().map(|n| n.as_bytes().to_vec());
    Ok((open(parent)?, parent.to_owned(), name))
}

struct Copy<'a> {
    io: &'a mut Io,
    args: &'a Args,
    dataset: &'a str,
    files: &'a mut dyn Files,
    top: Folder,
    /// The path of the top folder.
    at: PathBuf,
    progress: Progress,
    whole: bool,
    /// The daemon that has the files is no longer reachable. Nothing more can be copied.
    gone: bool,
    /// The kinds of metadata that this user may not set, and that are already reported.
    said: BTreeSet<Kept>,
    /// Copied files that have several names, with the path of their first copy below the top.
    copied: HashMap<ObjNum, Vec<u8>>,
    /// Folders that were copied. Each has one name, so a second occurrence is a loop or damage.
    entered: HashSet<ObjNum>,
    buf: Vec<u8>,
}

/// How many folders above the one that is being copied stay open.
const OPEN_MAX: usize = 16;

/// A folder that is being copied.
struct Frame {
    object: ObjNum,
    /// How much of the walk's two paths belongs to this folder.
    lengths: (usize, usize),
    state: Depth,
}

/// Whether a folder is open, which depends on its distance from the one that is being copied.
enum Depth {
    Open(Box<Opened>),
    /// Closed: the folder's identity in the destination, and where its entries continue.
    Parked(Identity, Option<DirCookie>),
}

/// A folder, open in the pool and in the destination.
struct Opened {
    meta: Meta,
    folder: Folder,
    /// Entries that were read and not copied yet.
    entries: VecDeque<Item>,
    /// Where the next entries are read, if there may be any.
    next: Option<DirCookie>,
    /// The position after the entry that was taken last.
    taken: DirCookie,
}

impl Opened {
    /// Where to continue if the folder is closed meanwhile. `None` if it is complete.
    fn mark(&self) -> Option<DirCookie> {
        if self.entries.is_empty() { self.next } else { Some(self.taken) }
    }
}

/// The folders from the top of a tree to the one that is being copied.
#[derive(Default)]
struct Trail {
    frames: Vec<Frame>,
    /// Path of the last folder in the dataset, and below the top of the destination.
    path: Vec<u8>,
    below: Vec<u8>,
}

impl Trail {
    /// The two paths of an entry in the last folder.
    fn paths(&self, name: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let gap: &[u8] = if self.below.is_empty() { b"" } else { b"/" };
        ([&self.path, &b"/"[..], name].concat(), [&self.below, gap, name].concat())
    }

    fn push(&mut self, opened: Opened, (path, below): (Vec<u8>, Vec<u8>)) -> Result<(), Errno> {
        (self.path, self.below) = (path, below);
        let lengths = (self.path.len(), self.below.len());
        let object = opened.meta.object;
        self.frames.push(Frame { object, lengths, state: Depth::Open(Box::new(opened)) });
        // This push puts one more folder beyond the limit.
        if let Some(far) = self.frames.len().checked_sub(OPEN_MAX + 1)
            && let Depth::Open(open) = &self.frames[far].state
        {
            self.frames[far].state = Depth::Parked(open.folder.identity()?, open.mark());
        }
        Ok(())
    }
}

impl<'a> Copy<'a> {
    fn new(
        io: &'a mut Io,
        args: &'a Args,
        (dataset, files): (&'a str, &'a mut dyn Files),
        (top, at): (Folder, PathBuf),
        progress: Progress,
    ) -> Copy<'a> {
        Copy {
            io,
            args,
            dataset,
            files,
            top,
            at,
            progress,
            whole: true,
            gone: false,
            said: BTreeSet::new(),
            copied: HashMap::new(),
            entered: HashSet::new(),
            buf: vec![0; CHUNK],
        }
    }

    fn failed(&mut self, path: &[u8], what: &str, e: &dyn std::error::Error) {
        self.whole = false;
        let err = &mut self.io.err;
        let (dataset, path) = (self.dataset, String::from_utf8_lossy(path));
        self.progress.suspend(|| writeln!(err, "poolhouse cp: {dataset}:{path}: {what}{}", Chain(e)));
    }

    /// Reports that something can't be read. That the daemon is unreachable is reported once.
    fn fault(&mut self, path: &[u8], what: &str, fault: &Fault) {
        if !self.gone {
            self.failed(path, what, fault);
        }
        self.gone |= fault.kind == Kind::Gone;
    }

    /// Reports a failure of the destination, for which the pool is not the cause.
    fn refused(&mut self, below: &[u8], errno: Errno) {
        self.whole = false;
        let at = self.at.join(OsStr::from_bytes(below));
        let err = &mut self.io.err;
        let why = words::errno(errno.raw_os_error());
        self.progress.suspend(|| writeln!(err, "poolhouse cp: cannot write {}: {why}", at.display()));
    }

    fn lost(&mut self, path: &[u8], lost: Vec<Lost>) {
        for l in lost {
            // Only a machine's root may set all of these. The failure is expected, and reported
            // once.
            if l.is_refused() && (l.kept != Kept::Owner || self.args.owners != Owners::Numeric) {
                if self.said.insert(l.kept) {
                    let err = &mut self.io.err;
                    let line = match l.kept {
                        Kept::Owner => {
                            "owners are not kept: this user may not set them, all belongs to this user \
                             (--no-owner: without this line; --numeric-owner: an error for each file)"
                        }
                        _ => "some extended attributes are not kept: this user may not set them",
                    };
                    self.progress.suspend(|| writeln!(err, "poolhouse cp: {line}"));
                }
                continue;
            }
            self.failed(path, &format!("cannot keep its {}: ", l.what), &std::io::Error::from(l.why));
        }
    }

    /// Copies one path with everything below it.
    fn tree(&mut self, path: &str, child: Option<&[u8]>) -> Result<(), Error> {
        let meta = self.files.resolve(path.as_bytes(), false).map_err(|source| Error::Path {
            dataset: self.dataset.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        let shown = path;
        let path = path.trim_end_matches('/').as_bytes().to_vec();
        if meta.kind != FileType::Directory {
            let name = child.unwrap_or(b"file").to_vec();
            match self.top.again() {
                Ok(top) => self.leaf(&meta, &top, &name, &path, name.clone()),
                Err(e) => self.refused(b"", e),
            }
            return Ok(());
        }
        if !self.args.recursive {
            let operand = format!("{}:{shown}", self.dataset);
            return Err(Error::Operand { operand, why: "is a folder: use -r" });
        }
        let folder = match child {
            Some(name) => self.top.enter(name),
            None => self.top.again(),
        };
        match folder {
            Ok(folder) => {
                let below = child.unwrap_or_default().to_vec();
                self.entered.insert(meta.object);
                let opened = opened(meta, folder, Some(DirCookie::START));
                let mut trail = Trail::default();
                let begun = trail.push(opened, (path, below));
                if let Err(e) = begun.and_then(|()| self.walk(&mut trail)) {
                    self.failed(&trail.path, "", &std::io::Error::from(e));
                }
            }
            Err(e) => self.refused(child.unwrap_or_default(), e),
        }
        Ok(())
    }

    /// Copies folders, the deepest one first.
    ///
    /// Folders far above it are closed meanwhile, so that a tree may be deeper than there are
    /// descriptors.
    ///
    /// # Errors
    /// An [`Errno`]: a folder that was closed can't be opened again. The rest of the tree is then
    /// left out.
    fn walk(&mut self, trail: &mut Trail) -> Result<(), Errno> {
        while let Some(Frame { state: Depth::Open(last), .. }) = trail.frames.last_mut() {
            if self.gone {
                return Ok(());
            }
            if let Some(item) = last.entries.pop_front() {
                last.taken = DirCookie(item.next);
                self.entry(trail, &item)?;
                continue;
            }
            let Some(from) = last.next.take() else {
                self.leave(trail)?;
                continue;
            };
            match self.files.page(last.meta.object, from) {
                Ok(page) => {
                    let end = page.entries.last().map_or(from, |item| DirCookie(item.next));
                    last.next = page.more.then_some(end);
                    last.entries = page.entries.into();
                    if let Some(fault) = page.fault {
                        self.fault(&trail.path, "", &fault);
                    }
                }
                Err(fault) => self.fault(&trail.path, "", &fault),
            }
        }
        Ok(())
    }

    /// Copies an entry that is no folder, or enters the folder.
    fn entry(&mut self, trail: &mut Trail, item: &Item) -> Result<(), Errno> {
        let Some(Frame { state: Depth::Open(last), .. }) = trail.frames.last() else { return Ok(()) };
        let (path, below) = trail.paths(&item.name.0);
        let meta = match self.files.meta(item.object) {
            Ok(meta) => meta,
            Err(fault) => {
                self.fault(&path, "", &fault);
                return Ok(());
            }
        };
        if meta.kind != FileType::Directory {
            self.leaf(&meta, &last.folder, &item.name.0, &path, below);
            return Ok(());
        }
        if !self.entered.insert(meta.object) {
            self.failed(&path, "", &Loop);
            return Ok(());
        }
        match last.folder.enter(&item.name.0) {
            Ok(folder) => trail.push(opened(meta, folder, Some(DirCookie::START)), (path, below)),
            Err(e) => {
                self.refused(&below, e);
                Ok(())
            }
        }
    }

    /// Ends the last folder. Opens the one above it again if that was closed.
    fn leave(&mut self, trail: &mut Trail) -> Result<(), Errno> {
        let Some(Frame { state: Depth::Open(done), .. }) = trail.frames.pop() else { return Ok(()) };
        // The folder's final mode may forbid opening `..`, so this comes first.
        let above = match trail.frames.last() {
            Some(Frame { state: Depth::Parked(identity, _), .. }) => Some(done.folder.above(identity)?),
            _ => None,
        };
        let owners = self.args.owners;
        let lost = done.folder.keep(&done.meta, owners, self.xattrs(&done.meta, &trail.path));
        self.lost(&trail.path, lost);
        let Some(frame) = trail.frames.last_mut() else { return Ok(()) };
        trail.path.truncate(frame.lengths.0);
        trail.below.truncate(frame.lengths.1);
        let (Some(folder), Depth::Parked(_, next)) = (above, &frame.state) else { return Ok(()) };
        let next = *next;
        match self.files.meta(frame.object) {
            Ok(meta) => {
                frame.state = Depth::Open(Box::new(opened(meta, folder, next)));
                Ok(())
            }
            Err(fault) => {
                self.fault(&trail.path, "", &fault);
                Err(Errno::IO)
            }
        }
    }

    /// The extended attributes of a file. Each is read when the iterator reaches it.
    fn xattrs(&mut self, meta: &Meta, path: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let names = self.files.xattr_names(meta.object).unwrap_or_else(|fault| {
            self.fault(path, "extended attributes: ", &fault);
            Vec::new()
        });
        let object = meta.object;
        names.into_iter().filter_map(move |name| match self.files.xattr(object, &name) {
            Ok(value) => Some((name, value)),
            Err(fault) => {
                let what = format!("extended attribute {}: ", String::from_utf8_lossy(&name));
                self.fault(path, &what, &fault);
                None
            }
        })
    }

    /// Copies anything that is not a folder.
    fn leaf(&mut self, meta: &Meta, folder: &Folder, name: &[u8], path: &[u8], below: Vec<u8>) {
        self.progress.file(path);
        if self.args.verbose {
            let out = &mut self.io.out;
            let line = String::from_utf8_lossy(path);
            self.progress.suspend(|| writeln!(out, "{line}"));
        }
        if let Some(first) = self.copied.get(&meta.object) {
            if let Err(e) = folder.link(name, &self.top, first) {
                self.refused(&below, e);
            }
            return;
        }
        let made = match meta.kind {
            FileType::Regular => match folder.create(name) {
                Ok(file) => {
                    self.contents(meta.object, meta.size, &file, path, &below);
                    let lost = dest::keep(&file, meta, self.args.owners, self.xattrs(meta, path));
                    self.lost(path, lost);
                    Ok(())
                }
                Err(e) => Err(e),
            },
            FileType::Symlink => match self.files.readlink(meta.object) {
                Ok(target) => folder.symlink(name, &target),
                Err(fault) => return self.fault(path, "", &fault),
            },
            _ => folder.node(name, meta),
        };
        if let Err(e) = made {
            return self.refused(&below, e);
        }
        if meta.kind != FileType::Regular {
            let lost = folder.keep_at(name, meta, self.args.owners);
            self.lost(path, lost);
        }
        if meta.nlink > 1 {
            self.copied.insert(meta.object, below);
        }
    }

    /// Copies a volume into one file.
    fn volume(&mut self, size: u64, child: &Option<Vec<u8>>) -> Result<(), Error> {
        let name = child.as_deref().unwrap_or(b"volume");
        match self.top.create(name) {
            Ok(file) => self.contents(VOLUME_DATA, size, &file, b"", name),
            Err(e) => self.refused(name, e),
        }
        Ok(())
    }

    /// Copies data and keeps holes. An unreadable stretch is reported once, and becomes a hole.
    fn contents(&mut self, object: ObjNum, size: u64, file: &File, path: &[u8], below: &[u8]) {
        let mut at = 0;
        let mut bad = Stretch::default();
        if let Err(fault) = self.files.begin(object) {
            return self.fault(path, "", &fault);
        }
        while at < size {
            let data = match self.files.next(at, true) {
                Ok(Some(data)) => data.max(at),
                Ok(None) => break,
                // Everything before the gap is a hole.
                Err(gap) => {
                    let to = gap.to.min(size);
                    if gap.from < size {
                        self.skip(path, &mut bad, Gap { from: gap.from.max(at), to, ..gap });
                    }
                    at = to.max(at + 1);
                    continue;
                }
            };
            if data >= size {
                break;
            }
            let end = match self.files.next(data, false) {
                Ok(hole) => hole.unwrap_or(size),
                Err(gap) => gap.from,
            };
            let end = end.max(data + 1).min(size);
            at = match self.range(data, end, file, path, &mut bad) {
                Ok(at) => at,
                Err(errno) => return self.refused(below, errno),
            };
        }
        self.report(path, &mut bad);
        if let Err(errno) = rustix::fs::ftruncate(file, size) {
            self.refused(below, errno);
        }
    }

    /// Notes an unreadable stretch. Reports the last one if this one doesn't continue it.
    fn skip(&mut self, path: &[u8], bad: &mut Stretch, gap: Gap) {
        if let Err(gap) = bad.grow(gap) {
            self.report(path, bad);
            *bad = Stretch(Some(gap));
        }
    }

    /// Copies up to `end`. Returns how far it came, unless a write failed.
    fn range(
        &mut self,
        from: u64,
        end: u64,
        file: &File,
        path: &[u8],
        bad: &mut Stretch,
    ) -> Result<u64, Errno> {
        let mut at = from;
        while at < end {
            let stop = (at / CHUNK as u64 + 1).saturating_mul(CHUNK as u64).min(end);
            let most = (stop - at) as usize;
            match self.files.read(at, &mut self.buf[..most]) {
                Ok(n) => {
                    if let Err(e) = file.write_all_at(&self.buf[..n], at) {
                        return Err(Errno::from_io_error(&e).unwrap_or(Errno::IO));
                    }
                    self.progress.bytes(n as u64);
                    at += n as u64;
                }
                Err(gap) => {
                    let to = gap.to.min(end);
                    self.skip(path, bad, Gap { to, ..gap });
                    at = to.max(at + 1);
                }
            }
        }
        Ok(at)
    }

    fn report(&mut self, path: &[u8], bad: &mut Stretch) {
        if let Some(gap) = bad.0.take() {
            let what = format!("offset {}, {} bytes: ", gap.from, gap.to - gap.from);
            self.fault(path, &what, &gap.fault);
        }
    }
}

/// The object of a volume's data (`ZVOL_OBJ`).
const VOLUME_DATA: ObjNum = ObjNum(1);

/// A folder whose entries are copied from a position. Without a position, all of them were copied.
fn opened(meta: Meta, folder: Folder, next: Option<DirCookie>) -> Opened {
    Opened { meta, folder, entries: VecDeque::new(), next, taken: DirCookie::START }
}

/// A stretch of bytes that could not be read, and the cause at its first byte.
#[derive(Default)]
struct Stretch(Option<Gap>);

impl Stretch {
    /// Extends the stretch with a gap that follows directly. Returns a gap that doesn't.
    fn grow(&mut self, gap: Gap) -> Result<(), Gap> {
        match &mut self.0 {
            None => self.0 = Some(gap),
            Some(all) if all.to == gap.from => all.to = gap.to,
            Some(_) => return Err(gap),
        }
        Ok(())
    }
}

/// The walk found a folder for the second time.
#[derive(Debug, thiserror::Error)]
#[error("this folder is also elsewhere in the tree, and is not copied twice")]
struct Loop;
