//! `poolhouse cp`.
//!
//! # Theory
//! What is copied may have been made to fill the destination. A block of data may be at many places of a file, by
//! deduplication and by clones, and nothing but the file's size bounds how often; so what is written of a file is bounded by its
//! size and by the room of the destination, as with any `cp` from a pool. An indirect block is at one place only: one that
//! is met at a second place is damage, and what is below it a hole, so that a file of petabytes takes a pool that has the
//! indirect blocks for it ([`dmu::Walk`]).
//!
//! A tree may be deeper than a process may have descriptors: only the folders nearest to the one that is being copied are held open. The way
//! back up is `..`, and leads to the folder that was left or nowhere.

use super::args::{Args, Owners};
use super::dest::{self, Folder, Identity, Kept, Lost};
use super::progress::Progress;
use super::target::{self, Error, Target};
use super::{Chain, Io, held, into};
use poolhouse::dmu::{Dnode, Extent};
use poolhouse::ondisk::{BlkId, Level, ObjNum};
use poolhouse::zpl::{DirCookie, DirEntry, FileSystem, FileType, Node, ReadDir, XATTRS_MAX};
use poolhouse::{Dataset, dmu};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of one read.
const CHUNK: usize = 1 << 20;

/// Copies the operands into the last one; `Ok(false)` if something could not be read or written.
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
            return Err(held.refusal());
        }
        let scan = match &mut scan {
            Some(scan) => scan,
            none => none.insert(target::scan(args)?),
        };
        let (pool, target) = target::open(io, args, scan, &target)?;
        target::check_key(&pool, &target.dataset)?;
        let dataset = pool.dataset(&target.dataset)?;
        let (top, at, child) = place(dest, into_folder, &path, &target.dataset)?;
        // What is copied is counted as files see it.
        let total = dataset.dsl().phys().uncompressed_bytes;
        let shown = io.terminal && !args.quiet;
        let whole_tree = path.trim_matches('/').is_empty();
        let progress = Progress::new(shown, whole_tree.then_some(total));
        let mut copy = Copy::new(io, args, &target.dataset, (top, at), progress);
        if path.is_empty() {
            copy.volume(&dataset, &child)?;
        } else {
            copy.tree(&dataset.filesystem()?, &path, child.as_deref())?;
        }
        copy.progress.finish();
        whole &= copy.whole;
    }
    Ok(whole)
}

/// The folder to write into, its path, and the name there; no name means that the folder itself is the destination.
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
    top: Folder,
    /// Where the top is.
    at: PathBuf,
    progress: Progress,
    whole: bool,
    /// What this user may not set was said.
    said: BTreeSet<Kept>,
    /// Files with several names that were copied, with the path of their first copy below the top.
    copied: HashMap<ObjNum, Vec<u8>>,
    /// Folders that were copied: each has one name, so a second one is a loop or damage.
    entered: HashSet<ObjNum>,
    buf: Vec<u8>,
}

/// How many of the folders above the one that is being copied are kept open.
const OPEN_MAX: usize = 16;

/// A folder that is being copied.
struct Frame {
    object: ObjNum,
    /// How much of the walk's paths is its own.
    lengths: (usize, usize),
    state: Depth,
}

/// Whether a folder is near enough to the one that is being copied to be held open.
enum Depth {
    Open(Box<Opened>),
    /// The folder's identity in the destination, and where its entries go on.
    Parked(Identity, Option<DirCookie>),
}

/// A folder, open in the pool and in the destination.
struct Opened {
    node: Node,
    folder: Folder,
    entries: Option<ReadDir>,
    /// Behind the entry that came last.
    next: DirCookie,
}

/// The folders from the top of a tree to the one that is being copied.
#[derive(Default)]
struct Trail {
    frames: Vec<Frame>,
    /// Path of the last in the dataset, and below the top of the destination.
    path: Vec<u8>,
    below: Vec<u8>,
}

impl Trail {
    /// The paths of something in the last folder.
    fn paths(&self, name: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let gap: &[u8] = if self.below.is_empty() { b"" } else { b"/" };
        ([&self.path, &b"/"[..], name].concat(), [&self.below, gap, name].concat())
    }

    fn push(&mut self, opened: Opened, (path, below): (Vec<u8>, Vec<u8>)) -> Result<(), Errno> {
        (self.path, self.below) = (path, below);
        let lengths = (self.path.len(), self.below.len());
        let object = opened.node.object();
        self.frames.push(Frame { object, lengths, state: Depth::Open(Box::new(opened)) });
        // The one that is too far above now.
        if let Some(far) = self.frames.len().checked_sub(OPEN_MAX + 1)
            && let Depth::Open(open) = &self.frames[far].state
        {
            let next = open.entries.is_some().then_some(open.next);
            self.frames[far].state = Depth::Parked(open.folder.identity()?, next);
        }
        Ok(())
    }
}

impl<'a> Copy<'a> {
    fn new(
        io: &'a mut Io,
        args: &'a Args,
        dataset: &'a str,
        (top, at): (Folder, PathBuf),
        progress: Progress,
    ) -> Copy<'a> {
        Copy {
            io,
            args,
            dataset,
            top,
            at,
            progress,
            whole: true,
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

    /// Something of the destination failed, which has no fault of the pool's.
    fn refused(&mut self, below: &[u8], errno: Errno) {
        self.whole = false;
        let at = self.at.join(OsStr::from_bytes(below));
        let err = &mut self.io.err;
        let why = std::io::Error::from(errno);
        self.progress.suspend(|| writeln!(err, "poolhouse cp: cannot write {}: {why}", at.display()));
    }

    fn lost(&mut self, path: &[u8], lost: Vec<Lost>) {
        for l in lost {
            // Nobody but a machine's root may set all of that: it is expected, and said once.
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

    /// Copies one path with all below it.
    fn tree(&mut self, fs: &FileSystem, path: &str, child: Option<&[u8]>) -> Result<(), Error> {
        let node = fs.resolve_link(path.as_bytes()).map_err(|source| Error::Path {
            dataset: self.dataset.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        let shown = path;
        let path = path.trim_end_matches('/').as_bytes().to_vec();
        if node.attr().kind != FileType::Directory {
            let name = child.unwrap_or(b"file").to_vec();
            match self.top.again() {
                Ok(top) => self.leaf(&node, &top, &name, &path, name.clone()),
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
                self.entered.insert(node.object());
                let opened = self.opened(node, folder, DirCookie::START, &path);
                let mut trail = Trail::default();
                let begun = trail.push(opened, (path, below));
                if let Err(e) = begun.and_then(|()| self.walk(fs, &mut trail)) {
                    self.failed(&trail.path, "", &std::io::Error::from(e));
                }
            }
            Err(e) => self.refused(child.unwrap_or_default(), e),
        }
        Ok(())
    }

    fn opened(&mut self, node: Node, folder: Folder, from: DirCookie, path: &[u8]) -> Opened {
        let entries = match node.read_dir(from) {
            Ok(entries) => Some(entries),
            Err(e) => {
                self.failed(path, "", &e);
                None
            }
        };
        Opened { node, folder, entries, next: from }
    }

    /// Copies folders, the deepest one first. Those far above it are closed meanwhile, so that a tree may be deeper than
    /// there are descriptors.
    ///
    /// # Errors
    /// When a folder that was closed can't be opened again: the rest of the tree is then left out.
    fn walk(&mut self, fs: &FileSystem, trail: &mut Trail) -> Result<(), Errno> {
        while let Some(Frame { state: Depth::Open(last), .. }) = trail.frames.last_mut() {
            match last.entries.as_mut().and_then(Iterator::next) {
                None => self.leave(fs, trail)?,
                Some(Err(e)) => self.failed(&trail.path, "", &e),
                Some(Ok(e)) => {
                    last.next = e.next;
                    if e.name != b"." && e.name != b".." {
                        self.entry(fs, trail, &e)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies what is no folder, or enters it.
    fn entry(&mut self, fs: &FileSystem, trail: &mut Trail, e: &DirEntry) -> Result<(), Errno> {
        let Some(Frame { state: Depth::Open(last), .. }) = trail.frames.last() else { return Ok(()) };
        let (path, below) = trail.paths(&e.name);
        let node = match fs.node(e.object) {
            Ok(node) => node,
            Err(e) => {
                self.failed(&path, "", &e);
                return Ok(());
            }
        };
        if node.attr().kind != FileType::Directory {
            self.leaf(&node, &last.folder, &e.name, &path, below);
            return Ok(());
        }
        if !self.entered.insert(node.object()) {
            self.failed(&path, "", &Loop);
            return Ok(());
        }
        match last.folder.enter(&e.name) {
            Ok(folder) => {
                let opened = self.opened(node, folder, DirCookie::START, &path);
                trail.push(opened, (path, below))
            }
            Err(e) => {
                self.refused(&below, e);
                Ok(())
            }
        }
    }

    /// Ends the last folder, and opens the one above it again if it was closed.
    fn leave(&mut self, fs: &FileSystem, trail: &mut Trail) -> Result<(), Errno> {
        let Some(Frame { state: Depth::Open(done), .. }) = trail.frames.pop() else { return Ok(()) };
        // Before the folder loses the right to be left.
        let above = match trail.frames.last() {
            Some(Frame { state: Depth::Parked(identity, _), .. }) => Some(done.folder.above(identity)?),
            _ => None,
        };
        let owners = self.args.owners;
        let lost = done.folder.keep(done.node.attr(), owners, self.xattrs(&done.node, &trail.path));
        self.lost(&trail.path, lost);
        let Some(frame) = trail.frames.last_mut() else { return Ok(()) };
        trail.path.truncate(frame.lengths.0);
        trail.below.truncate(frame.lengths.1);
        let (Some(folder), Depth::Parked(_, next)) = (above, &frame.state) else { return Ok(()) };
        let next = *next;
        let path = &trail.path;
        let node = match fs.node(frame.object) {
            Ok(node) => node,
            Err(e) => {
                self.failed(path, "", &e);
                return Err(Errno::IO);
            }
        };
        let mut opened = self.opened(node, folder, next.unwrap_or(DirCookie::START), path);
        if next.is_none() {
            opened.entries = None;
        }
        frame.state = Depth::Open(Box::new(opened));
        Ok(())
    }

    /// Its extended attributes, each read when it is asked for.
    fn xattrs(&mut self, node: &Node, path: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let names = node.xattr_names(XATTRS_MAX).unwrap_or_else(|e| {
            self.failed(path, "extended attributes: ", &e);
            Vec::new()
        });
        names.into_iter().filter_map(move |name| match node.xattr(&name) {
            Ok(value) => Some((name, value)),
            Err(e) => {
                let what = format!("extended attribute {}: ", String::from_utf8_lossy(&name));
                self.failed(path, &what, &e);
                None
            }
        })
    }

    /// Copies anything that is not a folder.
    fn leaf(&mut self, node: &Node, folder: &Folder, name: &[u8], path: &[u8], below: Vec<u8>) {
        self.progress.file(path);
        if self.args.verbose {
            let out = &mut self.io.out;
            let line = String::from_utf8_lossy(path);
            self.progress.suspend(|| writeln!(out, "{line}"));
        }
        let attr = *node.attr();
        if let Some(first) = self.copied.get(&node.object()) {
            if let Err(e) = folder.link(name, &self.top, first) {
                self.refused(&below, e);
            }
            return;
        }
        let made = match attr.kind {
            FileType::Regular => match folder.create(name) {
                Ok(file) => {
                    self.contents(node.dnode(), attr.size, &file, path, &below);
                    let lost = dest::keep(&file, &attr, self.args.owners, self.xattrs(node, path));
                    self.lost(path, lost);
                    Ok(())
                }
                Err(e) => Err(e),
            },
            FileType::Symlink => match node.readlink() {
                Ok(target) => folder.symlink(name, &target),
                Err(e) => return self.failed(path, "", &e),
            },
            _ => folder.node(name, &attr),
        };
        if let Err(e) = made {
            return self.refused(&below, e);
        }
        if attr.kind != FileType::Regular {
            let lost = folder.keep_at(name, &attr, self.args.owners);
            self.lost(path, lost);
        }
        if attr.nlink > 1 {
            self.copied.insert(node.object(), below);
        }
    }

    /// Copies a volume into one file.
    fn volume(&mut self, dataset: &Dataset, child: &Option<Vec<u8>>) -> Result<(), Error> {
        let volume = dataset.volume()?;
        let dnode = dataset.objset()?.dnode(VOLUME_DATA).map_err(poolhouse::Error::from)?;
        let name = child.as_deref().unwrap_or(b"volume");
        match self.top.create(name) {
            Ok(file) => self.contents(&dnode, volume.size(), &file, b"", name),
            Err(e) => self.refused(name, e),
        }
        Ok(())
    }

    /// Copies data and leaves holes; what can't be read is reported once per stretch, and becomes a hole.
    fn contents(&mut self, dnode: &Dnode, size: u64, file: &File, path: &[u8], below: &[u8]) {
        let mut walk = dnode.walk();
        let mut at = 0;
        let mut bad = Stretch::default();
        while at < size {
            let data = match walk.next_offset(at, Extent::Data) {
                Ok(Some(data)) => data.max(at),
                Ok(None) => break,
                // Up to there is a hole.
                Err(damage) => {
                    let to = damage.to.min(size);
                    if damage.from < size {
                        self.skip(path, &mut bad, damage.from.max(at), to, &damage.error);
                    }
                    at = to.max(at + 1);
                    continue;
                }
            };
            if data >= size {
                break;
            }
            let end = match walk.next_offset(data, Extent::Hole) {
                Ok(hole) => hole.unwrap_or(size),
                Err(damage) => damage.from,
            };
            let end = end.max(data + 1).min(size);
            at = match self.range(dnode, data, end, file, path, &mut bad) {
                Ok(at) => at,
                Err(errno) => return self.refused(below, errno),
            };
        }
        self.report(path, &mut bad);
        if let Err(errno) = rustix::fs::ftruncate(file, size) {
            self.refused(below, errno);
        }
    }

    /// Notes a stretch that can't be read, and reports the last one if this doesn't follow it at once.
    fn skip(&mut self, path: &[u8], bad: &mut Stretch, from: u64, to: u64, error: &dmu::Error) {
        if !bad.grow(from, to, error) {
            self.report(path, bad);
            bad.grow(from, to, error);
        }
    }

    /// Copies up to `end`; how far it came, unless writing failed.
    fn range(
        &mut self,
        dnode: &Dnode,
        from: u64,
        end: u64,
        file: &File,
        path: &[u8],
        bad: &mut Stretch,
    ) -> Result<u64, Errno> {
        let block = dnode.block_size();
        let mut at = from;
        while at < end {
            let stop = (at / CHUNK as u64 + 1).saturating_mul(CHUNK as u64).min(end);
            let mut buf = std::mem::take(&mut self.buf);
            let chunk = &mut buf[..(stop - at) as usize];
            let next = match dnode.read_at(at, chunk) {
                Ok(()) => Ok((chunk.len(), stop)),
                // The good blocks of the chunk one by one.
                Err(_) => {
                    let one = (at / block + 1).saturating_mul(block).min(stop);
                    let n = (one - at) as usize;
                    dnode.read_at(at, &mut chunk[..n]).map(|()| (n, one))
                }
            };
            let written = match &next {
                Ok((n, _)) => file.write_all_at(&chunk[..*n], at),
                Err(_) => Ok(()),
            };
            self.buf = buf;
            if let Err(e) = written {
                return Err(Errno::from_io_error(&e).unwrap_or(Errno::IO));
            }
            match next {
                Ok((n, stop)) => {
                    self.progress.bytes(n as u64);
                    at = stop;
                }
                Err(e) => {
                    let past = past_damage(dnode, &e, at).min(end);
                    self.skip(path, bad, at, past, &e);
                    at = past;
                }
            }
        }
        Ok(at)
    }

    fn report(&mut self, path: &[u8], bad: &mut Stretch) {
        if let Some(e) = bad.error.take() {
            let what = format!("offset {}, {} bytes: ", bad.from, bad.to - bad.from);
            self.failed(path, &what, &e);
        }
    }
}

/// Object of a volume's data (`ZVOL_OBJ`).
const VOLUME_DATA: ObjNum = ObjNum(1);

/// The first byte that an unreadable block does not hide: an indirect block hides all below it.
fn past_damage(dnode: &Dnode, e: &dmu::Error, at: u64) -> u64 {
    let (level, blkid) = match e {
        dmu::Error::Read(e) => (e.bookmark().level, e.bookmark().blkid),
        dmu::Error::Misplaced { level, blkid, .. } => (*level, *blkid),
        _ => (Level(0), BlkId(0)),
    };
    let block = dnode.block_size();
    let next_block = (at / block + 1).saturating_mul(block);
    if level.0 == 0 {
        return next_block;
    }
    let shift = u32::from(level.0) * dnode.phys().epbs();
    let blocks = blkid.0.saturating_add(1).checked_mul(1u64.checked_shl(shift).unwrap_or(u64::MAX));
    blocks.unwrap_or(u64::MAX).saturating_mul(block).max(next_block)
}

/// A stretch of bytes that could not be read, and why the first of them.
#[derive(Default)]
struct Stretch {
    from: u64,
    to: u64,
    error: Option<dmu::Error>,
}

impl Stretch {
    /// Adds what follows at once; false if it doesn't.
    fn grow(&mut self, from: u64, to: u64, e: &dmu::Error) -> bool {
        if self.error.is_none() {
            *self = Stretch { from, to, error: Some(e.clone()) };
            return true;
        }
        if self.to != from {
            return false;
        }
        self.to = to;
        true
    }
}

/// A folder was met a second time.
#[derive(Debug, thiserror::Error)]
#[error("this folder is also elsewhere in the tree, and is not copied twice")]
struct Loop;
