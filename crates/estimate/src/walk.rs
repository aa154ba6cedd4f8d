//! Walks over directory trees.
//!
//! # Theory
//! Names are hostile: another user may change the tree during the walk. So a directory is opened
//! from its root, component by component, and no symbolic link is followed. A file is opened
//! without blocking, and must still be the file that the walk found.
//!
//! The names of a directory are read in batches. Each batch is sorted, so that a tree with the same
//! names is walked in the same order on any file system.

use crate::directory::Names;
use crate::{Error, Failures, Options, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names that are sorted at a time.
const BATCH: usize = 1 << 16;
/// Most files with several names that are remembered.
const LINKED_MAX: usize = 1 << 22;

/// The directories at which the walk begins.
#[derive(Debug)]
pub(crate) struct Roots {
    paths: Vec<PathBuf>,
    open: Vec<OwnedFd>,
    ids: Vec<(u64, u64)>,
}

/// A file or directory that the walk found.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Index of the root.
    pub(crate) root: usize,
    /// Its path below the root.
    pub(crate) path: PathBuf,
    dev: u64,
    ino: u64,
    pub(crate) size: u64,
    /// Whether it takes less space than its size, so that it may have holes.
    pub(crate) sparse: bool,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Access and change, each in seconds and nanoseconds.
    pub(crate) times: [[u64; 2]; 2],
}

/// Something with a dnode and without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    /// A symbolic link.
    Symlink,
    /// A device, fifo or socket.
    Special,
}

/// What a walk found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Regular files. A file with several names counts once.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices, fifos and sockets.
    pub others: u64,
    /// Bytes of all files, holes included.
    pub bytes: u64,
    /// Directories where another file system is mounted, which was not entered.
    pub mounts: u64,
}

/// Gets what a walk finds.
pub(crate) trait Visitor {
    /// A regular file. False ends the walk.
    fn file(&mut self, roots: &Roots, file: File) -> bool;
    /// A directory with its names, after all of them were read.
    fn directory(&mut self, directory: &File, names: Names);
    /// Anything else.
    fn other(&mut self, file: &File, kind: Other);
    /// The walk ends.
    fn end(&mut self, roots: &Roots);
}

impl Roots {
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Roots> {
        let mut roots = Roots { paths: Vec::new(), open: Vec::new(), ids: Vec::new() };
        for path in paths {
            let failed = |source: Errno| Error::Directory { path: path.clone(), source: source.into() };
            // A slash at the end would follow a link.
            let bare: PathBuf = path.components().collect();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&bare, flags, Mode::empty()).map_err(failed)?;
            let stat = fstat(&fd).map_err(failed)?;
            let id = (stat.st_dev, stat.st_ino);
            if !roots.ids.contains(&id) {
                roots.ids.push(id);
                roots.open.push(fd);
                roots.paths.push(path.clone());
            }
        }
        Ok(roots)
    }

    /// The whole path of a file.
    pub(crate) fn path(&self, root: usize, below: &Path) -> PathBuf {
        match below.as_os_str().is_empty() {
            true => self.paths[root].clone(),
            false => self.paths[root].join(below),
        }
    }
}

/// Opens a directory below a root.
fn directory(roots: &Roots, root: usize, path: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut fd = openat(&roots.open[root], ".", flags, Mode::empty())?;
    for name in path.iter() {
        fd = openat(&fd, name, flags, Mode::empty())?;
    }
    Ok(fd)
}

/// Opens a file that a walk found.
pub(crate) fn open(roots: &Roots, file: &File) -> io::Result<fs::File> {
    let above = file.path.parent().unwrap_or(Path::new(""));
    let name = file.path.file_name().ok_or(Errno::ISDIR)?;
    let fd = directory(roots, file.root, above)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode).is_file() && (stat.st_dev, stat.st_ino) == (file.dev, file.ino)
    };
    let opened = is(&found).then(|| openat(&fd, name, flags, Mode::empty())).ok_or(Errno::STALE)??;
    if !is(&fstat(&opened)?) {
        return Err(Errno::STALE.into());
    }
    Ok(opened.into())
}

fn described(root: usize, path: PathBuf, stat: &Stat) -> File {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let word = |n: i64| n as u64;
    File {
        root,
        path,
        dev: stat.st_dev,
        ino: stat.st_ino,
        size,
        sparse: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size,
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        times: [[word(stat.st_atime), stat.st_atime_nsec], [word(stat.st_mtime), stat.st_mtime_nsec]],
    }
}

/// The state of a walk.
struct Walk<'a> {
    roots: Roots,
    cross: bool,
    visitor: &'a mut dyn Visitor,
    failures: &'a mut Failures,
    done: Walked,
    /// Directories to read.
    todo: Vec<(usize, PathBuf)>,
    /// Files with several names that were found.
    linked: HashSet<(u64, u64)>,
    ended: bool,
}

/// Walks over everything below these directories.
///
/// # Errors
/// * [`Error::Directory`]: one of the directories can't be opened, or is a symbolic link.
pub(crate) fn walk(
    paths: &[PathBuf],
    options: &Options,
    visitor: &mut dyn Visitor,
    failures: &mut Failures,
) -> Result<Walked> {
    let roots = Roots::open(paths)?;
    let todo = (0..roots.open.len()).rev().map(|root| (root, PathBuf::new())).collect();
    let (done, linked) = (Walked::default(), HashSet::new());
    let mut walk = Walk { roots, cross: options.cross, visitor, failures, done, todo, linked, ended: false };
    while let Some((root, path)) = walk.todo.pop() {
        if let Err(e) = walk.enter(root, &path) {
            walk.failures.add(&walk.roots.path(root, &path), e.into());
        }
        if walk.ended {
            break;
        }
    }
    let Walk { roots, visitor, done, ended, .. } = walk;
    if !ended {
        visitor.end(&roots);
    }
    Ok(done)
}

impl Walk<'_> {
    fn enter(&mut self, root: usize, path: &Path) -> std::result::Result<(), Errno> {
        let fd = directory(&self.roots, root, path)?;
        let stat = fstat(&fd)?;
        self.done.directories += 1;
        let mut names = Names::default();
        let mut entries = Dir::read_from(&fd)?;
        loop {
            let mut batch = Vec::new();
            for entry in entries.by_ref().take(BATCH) {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    batch.push(name.to_owned());
                }
            }
            if batch.is_empty() {
                break;
            }
            batch.sort_unstable();
            for name in batch {
                names.add(&name);
                self.entry(&fd, &stat, root, path.join(OsStr::from_bytes(&name)));
                if self.ended {
                    return Ok(());
                }
            }
        }
        self.visitor.directory(&described(root, path.to_owned(), &stat), names);
        Ok(())
    }

    fn entry(&mut self, fd: &impl AsFd, above: &Stat, root: usize, path: PathBuf) {
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let stat = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(e) => return self.failures.add(&self.roots.path(root, &path), e.into()),
        };
        let id = (stat.st_dev, stat.st_ino);
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind.is_dir() {
            if self.roots.ids.contains(&id) {
                return;
            }
            if stat.st_dev != above.st_dev && !self.cross {
                self.done.mounts += 1;
                return;
            }
            return self.todo.push((root, path));
        }
        // A file that is not remembered counts with each name.
        if stat.st_nlink > 1 {
            if self.linked.contains(&id) {
                return;
            }
            if self.linked.len() < LINKED_MAX {
                self.linked.insert(id);
            }
        }
        let file = described(root, path, &stat);
        match kind {
            FileType::RegularFile => {
                self.done.files += 1;
                self.done.bytes = self.done.bytes.saturating_add(file.size);
                self.ended = !self.visitor.file(&self.roots, file);
            }
            kind => {
                self.done.others += 1;
                let other = if kind == FileType::Symlink { Other::Symlink } else { Other::Special };
                self.visitor.other(&file, other);
            }
        }
    }
}

#[cfg(test)]
mod tests;
