//! The directory for a mount, found without trusting other users.
//!
//! # Theory
//! A mountpoint may lie in folders that other users may change. A user that can put a link into its
//! path would decide where root's daemon mounts. So the path is walked folder by folder, each
//! opened in the one before. Links of root and of the daemon's own user are followed, and those of
//! others are refused.
//!
//! The resulting path has no link in it. The mount is made only while that is still so
//! ([`fuse::Mount::new`]): a link that is put there later is not followed.
//!
//! # Absent
//! Folders themselves: a user that may move them decides what a path means, as everywhere.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Most links to follow on one path (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory to mount on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Its path, in which nothing is a link.
    pub(super) path: PathBuf,
    /// The folders that were created for it, outermost first. If it was created itself, it is the
    /// last.
    pub(super) made: Vec<PathBuf>,
}

impl Spot {
    /// Whether it was created.
    pub(super) fn is_fresh(&self) -> bool {
        self.made.last() == Some(&self.path)
    }

    /// Removes the created folders as long as they are empty. Users would fill an unmounted one by
    /// mistake.
    pub(super) fn undo(&self) {
        for folder in self.made.iter().rev() {
            if let Err(error) = std::fs::remove_dir(folder) {
                tracing::debug!(folder = %folder.display(), %error, "it stays");
                return;
            }
        }
    }
}

/// Finds the directory of an absolute path, and creates what is missing. It does not create what a
/// link names.
///
/// # Errors
/// * `ENOENT`: a link leads nowhere.
/// * `ELOOP`: a link belongs to another user, or there are too many links.
/// * `ENOTDIR`: a part of the path is not a directory.
/// * All others: the system's error from opening or creating a folder.
pub(super) fn find(target: &Path) -> std::io::Result<Spot> {
    let (mut dir, mut path) = root()?;
    let mut todo: VecDeque<(OsString, bool)> = names(target).map(|name| (name, false)).collect();
    let (mut links, mut made) = (0, Vec::new());
    while let Some((name, of_link)) = todo.pop_front() {
        if name == ".." {
            dir = rustix::fs::openat(&dir, "..", LOOK, Mode::empty())?;
            path.pop();
            continue;
        }
        let next = match rustix::fs::openat(&dir, &name, LOOK, Mode::empty()) {
            // A link to nowhere is not completed.
            Err(Errno::NOENT) if !of_link => {
                if make(&dir, &name)? {
                    made.push(path.join(&name));
                }
                rustix::fs::openat(&dir, &name, LOOK, Mode::empty())?
            }
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                dir = next;
                path.push(&name);
            }
            FileType::Symlink => {
                links += 1;
                let own = [0, rustix::process::geteuid().as_raw()];
                if links > LINKS_MAX || !own.contains(&stat.st_uid) {
                    return Err(Errno::LOOP.into());
                }
                let to = rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes();
                let to = PathBuf::from(OsString::from_vec(to));
                if to.is_absolute() {
                    (dir, path) = root()?;
                }
                for name in names(&to).collect::<Vec<_>>().into_iter().rev() {
                    todo.push_front((name, true));
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(Spot { path, made })
}

fn root() -> rustix::io::Result<(OwnedFd, PathBuf)> {
    Ok((rustix::fs::openat(CWD, "/", LOOK, Mode::empty())?, PathBuf::from("/")))
}

/// The names on a path, in order.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name)
}

/// Creates a folder. Returns false if it exists.
fn make(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<bool> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        // Another process was faster.
        Err(Errno::EXIST) => Ok(false),
        made => made.map(|()| true),
    }
}

#[cfg(test)]
mod tests;
