//! Pools that a daemon of this user holds: their files are read where the daemon has them mounted.
//!
//! Reading the devices beside the daemon would miss what it has not written, and meet what it
//! writes meanwhile.

use super::args::Args;
use super::ls::{Shown, line};
use super::target::{Error, Target};
use super::{Chain, Io};
use poolhouse::spa::SpaError;
use poolhouse::zpl::FileType;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use server::api::{DatasetKind, DatasetQuery, PoolQuery, PropSelect};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the daemon knows of a target.
pub struct Held {
    /// The target, with the pool's name.
    target: Target,
    /// The root of its file system, if that is mounted.
    root: Option<PathBuf>,
}

/// Whether the daemon holds the pool of a target. A state of the past, and devices that are named,
/// are read by ourselves.
pub fn held(io: &Io, args: &Args, target: &Target) -> Option<Held> {
    let past = args.txg.is_some() || args.checkpoint || args.extreme || args.list_txgs;
    if args.peek || past || !args.devices.is_empty() {
        return None;
    }
    find(io, target)
}

/// The same for a pool whose devices were found to be in use.
pub fn if_in_use(io: &Io, target: &Target, error: &Error) -> Option<Held> {
    let Error::Pool(poolhouse::Error::Import(failure)) = error else { return None };
    matches!(failure.error, SpaError::InUse(_)).then(|| find(io, target))?
}

fn find(io: &Io, target: &Target) -> Option<Held> {
    // Without a daemon there is nothing; one that refuses is said to be in use later.
    let names = io.service.pool_names().ok()?;
    let called = target.pool();
    let is_it = |name: &&String| {
        let guid =
            || io.service.pool(name, &PoolQuery::default()).is_ok_and(|p| p.guid.to_string() == called);
        *name == called || called.bytes().all(|b| b.is_ascii_digit()) && guid()
    };
    let target = target.of(names.iter().find(is_it)?);
    let mounts = io.service.mounts().unwrap_or_default();
    let at = |dataset: &str| Some(mounts.iter().find(|m| m.dataset == dataset)?.mountpoint.clone().into());
    let snapshot = || {
        let (head, name) = target.dataset.split_once('@')?;
        let root: PathBuf = at(head)?;
        Some(root.join(".zfs/snapshot").join(name))
    };
    let root = at(&target.dataset).or_else(snapshot);
    Some(Held { target, root })
}

impl Held {
    /// Why `cp` does not copy: the kernel does.
    pub fn refusal(self) -> Error {
        let path = self.target.path.unwrap_or_default();
        let dataset = self.target.dataset;
        match self.root {
            Some(root) => Error::Mounted { dataset, at: root.join(path.trim_start_matches('/')) },
            None => Error::NotMounted { dataset },
        }
    }

    /// Lists datasets, or the files at a path; `Ok(false)` if something could not be read.
    ///
    /// # Errors
    /// [`Error::NotMounted`], [`Error::Local`], [`Error::Daemon`].
    pub fn list(&self, io: &mut Io, args: &Args) -> Result<bool, Error> {
        match (&self.target.path, &self.root) {
            (None, _) if !self.target.dataset.contains('@') => self.datasets(io),
            (_, None) => Err(Error::NotMounted { dataset: self.target.dataset.clone() }),
            (path, Some(root)) => {
                Listing { io, args, whole: true }.path(root, path.as_deref().unwrap_or("/"))
            }
        }
    }

    fn datasets(&self, io: &mut Io) -> Result<bool, Error> {
        let query = DatasetQuery {
            root: Some(self.target.dataset.clone()),
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot],
            props: PropSelect::None,
            ..DatasetQuery::default()
        };
        let list = io.service.datasets(&query).map_err(|e| Error::Daemon { why: e.to_string() })?;
        for dataset in &list.datasets {
            writeln!(io.out, "{}", dataset.name);
        }
        for error in &list.failures {
            writeln!(io.err, "poolhouse ls: {error}");
        }
        Ok(list.failures.is_empty())
    }
}

struct Listing<'a> {
    io: &'a mut Io,
    args: &'a Args,
    whole: bool,
}

impl Listing<'_> {
    fn path(mut self, root: &Path, path: &str) -> Result<bool, Error> {
        let local = |path: &Path| {
            let path = path.to_owned();
            move |errno: Errno| Error::Local { path, source: errno.into() }
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root_fd =
            rustix::fs::open(root, flags | OFlags::DIRECTORY, Mode::empty()).map_err(local(root))?;
        let below = path.trim_matches('/');
        let shown = root.join(below);
        // Links lead to places within the file system, as when devices are read.
        let below = if below.is_empty() { "." } else { below };
        let found = rustix::fs::openat2(&root_fd, below, flags, Mode::empty(), ResolveFlags::IN_ROOT)
            .map_err(local(&shown))?;
        let stat = rustix::fs::fstat(&found).map_err(local(&shown))?;
        if kind(&stat) != FileType::Directory {
            let name = below.rsplit('/').next().unwrap_or(below);
            self.entry(name.as_bytes(), &stat, None);
            return Ok(self.whole);
        }
        // Folders still to list, each looked up in the one that it was found in by its path.
        let mut todo = vec![below.as_bytes().to_vec()];
        let mut first = true;
        while let Some(folder) = todo.pop() {
            let heading = if folder == b"." { Vec::new() } else { [b"/", folder.as_slice()].concat() };
            if self.args.recursive {
                let gap = if first { "" } else { "\n" };
                let shown = if heading.is_empty() { b"/".as_slice() } else { &heading };
                writeln!(self.io.out, "{gap}{}:", String::from_utf8_lossy(shown));
            }
            first = false;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let name = OsStr::from_bytes(&folder);
            let opened = rustix::fs::openat2(&root_fd, name, flags, Mode::empty(), ResolveFlags::IN_ROOT);
            match opened.and_then(|fd| self.folder(&fd)) {
                Ok(below) if self.args.recursive => {
                    let full = |name: Vec<u8>| match folder.as_slice() {
                        b"." => name,
                        folder => [folder, b"/", &name].concat(),
                    };
                    todo.extend(below.into_iter().rev().map(full));
                }
                Ok(_) => {}
                Err(errno) => self.failed(&heading, errno),
            }
        }
        Ok(self.whole)
    }

    /// Lists one folder, sorted; the folders in it.
    fn folder(&mut self, folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            names.push(entry?.file_name().to_bytes().to_vec());
        }
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        let mut below = Vec::new();
        for name in names {
            let at = OsStr::from_bytes(&name);
            match rustix::fs::statat(folder, at, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let link = (kind(&stat) == FileType::Symlink)
                        .then(|| rustix::fs::readlinkat(folder.as_fd(), at, Vec::new()));
                    let link = link.and_then(|link| link.map_err(|e| self.failed(&name, e)).ok());
                    self.entry(&name, &stat, link.map(std::ffi::CString::into_bytes));
                    if kind(&stat) == FileType::Directory {
                        below.push(name);
                    }
                }
                Err(errno) => self.failed(&name, errno),
            }
        }
        Ok(below)
    }

    fn entry(&mut self, name: &[u8], stat: &Stat, link: Option<Vec<u8>>) {
        let is_device = matches!(kind(stat), FileType::CharDevice | FileType::BlockDevice);
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let shown = Shown {
            kind: kind(stat),
            mode: stat.st_mode,
            nlink: links(stat),
            owner: (stat.st_uid, stat.st_gid),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: is_device.then_some(device),
            mtime: stat.st_mtime,
            link,
        };
        line(&mut self.io.out, self.args.long, name, &shown);
    }

    fn failed(&mut self, path: &[u8], errno: Errno) {
        self.whole = false;
        let (path, why) = (String::from_utf8_lossy(path), std::io::Error::from(errno));
        writeln!(self.io.err, "poolhouse ls: {path}: {}", Chain(&why));
    }
}

#[allow(clippy::useless_conversion, reason = "not all machines have the same type here")]
fn links(stat: &Stat) -> u64 {
    stat.st_nlink.into()
}

fn kind(stat: &Stat) -> FileType {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::Fifo => FileType::Fifo,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::RegularFile => FileType::Regular,
        rustix::fs::FileType::Unknown => FileType::Unknown,
    }
}
