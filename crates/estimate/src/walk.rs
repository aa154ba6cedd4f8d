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
use crate::origin::{BATCH, File, LINKED_MAX, Origin, Other, PAGE, Visitor, Walked};
use crate::{Error, Failures, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The directories at which the walk begins.
#[derive(Debug)]
pub(crate) struct Roots {
    paths: Vec<PathBuf>,
    open: Vec<OwnedFd>,
    ids: Vec<(u64, u64)>,
    /// Enter file systems that are mounted below.
    cross: bool,
}

impl Roots {
    /// Opens these directories.
    ///
    /// # Errors
    /// * [`Error::Directory`]: one of them can't be opened, or is a symbolic link.
    pub(crate) fn open(paths: &[PathBuf], cross: bool) -> Result<Roots> {
        let mut roots = Roots { paths: Vec::new(), open: Vec::new(), ids: Vec::new(), cross };
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
fn open(roots: &Roots, file: &File) -> io::Result<fs::File> {
    let above = file.path.parent().unwrap_or(Path::new(""));
    let name = file.path.file_name().ok_or(Errno::ISDIR)?;
    let fd = directory(roots, file.root, above)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode).is_file() && (stat.st_dev, stat.st_ino) == file.id
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
        id: (stat.st_dev, stat.st_ino),
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
    roots: &'a Roots,
    visitor: &'a mut dyn Visitor,
    failures: &'a mut Failures,
    done: Walked,
    /// Directories to read.
    todo: Vec<(usize, PathBuf)>,
    /// Files with several names that were found.
    linked: HashSet<(u64, u64)>,
    ended: bool,
}

impl Origin for Roots {
    fn walk(&self, visitor: &mut dyn Visitor, failures: &mut Failures) -> Walked {
        let todo = (0..self.open.len()).rev().map(|root| (root, PathBuf::new())).collect();
        let (done, linked) = (Walked::default(), HashSet::new());
        let mut walk = Walk { roots: self, visitor, failures, done, todo, linked, ended: false };
        while let Some((root, path)) = walk.todo.pop() {
            if let Err(e) = walk.enter(root, &path) {
                walk.failures.add(&self.path(root, &path), e.into());
            }
            if walk.ended {
                break;
            }
        }
        let Walk { visitor, done, ended, .. } = walk;
        if !ended {
            visitor.end(self);
        }
        done
    }

    fn path(&self, root: usize, below: &Path) -> PathBuf {
        match below.as_os_str().is_empty() {
            true => self.paths[root].clone(),
            false => self.paths[root].join(below),
        }
    }

    fn fill(&self, file: &File, offset: u64, data: &mut [u8], pages: &mut [bool]) -> io::Result<u64> {
        let opened = open(self, file)?;
        if !file.sparse {
            opened.read_exact_at(data, offset)?;
            return Ok(data.len() as u64);
        }
        let (mut at, end, mut read) = (offset, offset + data.len() as u64, 0);
        while at < end {
            let from = match seek(&opened, SeekFrom::Data(at)) {
                Ok(from) => from.max(at),
                // There is a hole up to the end.
                Err(Errno::NXIO) => break,
                // The file system doesn't know holes.
                Err(Errno::INVAL) => at,
                Err(e) => return Err(e.into()),
            };
            let to = match seek(&opened, SeekFrom::Hole(from)) {
                Ok(to) => to,
                Err(Errno::NXIO | Errno::INVAL) => end,
                Err(e) => return Err(e.into()),
            };
            let to = to.clamp(from.saturating_add(1), end.max(from.saturating_add(1)));
            if from >= end {
                break;
            }
            let range = (from - offset) as usize..(to - offset) as usize;
            opened.read_exact_at(&mut data[range.clone()], from)?;
            pages[range.start / PAGE as usize..range.end.div_ceil(PAGE as usize)].fill(true);
            read += to - from;
            at = to;
        }
        Ok(read)
    }
}

impl Walk<'_> {
    fn enter(&mut self, root: usize, path: &Path) -> std::result::Result<(), Errno> {
        let fd = directory(self.roots, root, path)?;
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
            if stat.st_dev != above.st_dev && !self.roots.cross {
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
                self.ended = !self.visitor.file(self.roots, file);
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
