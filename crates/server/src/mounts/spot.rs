//! Where something is to be mounted, found so that nobody else leads it astray.
//!
//! # Theory
//! A mountpoint may lie in folders that other users may change, and whoever may put a link into its path decides where root's daemon mounts. So the path is walked
//! folder by folder, each opened in the one before: links of root and of the daemon's own user are followed, those of others refused. What comes out has no link in it, and is
//! mounted on only as long as that is so ([`fuse::Mount::new`]): a link that is put there later is not followed any more.
//!
//! # Absent
//! Folders themselves: who may move them decides what a path means, as everywhere.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Links that are followed on one way (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory to mount on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Its path, in which nothing is a link.
    pub(super) path: PathBuf,
    /// Folders that were made for it, outermost first: the last is itself, if it was.
    pub(super) made: Vec<PathBuf>,
}

impl Spot {
    /// It was made.
    pub(super) fn is_fresh(&self) -> bool {
        self.made.last() == Some(&self.path)
    }

    /// Removes what was made, as long as it is empty: a folder on which nothing is mounted would be filled by mistake.
    pub(super) fn undo(&self) {
        for folder in self.made.iter().rev() {
            if let Err(error) = std::fs::remove_dir(folder) {
                tracing::debug!(folder = %folder.display(), %error, "it stays");
                return;
            }
        }
    }
}

/// Finds the directory of an absolute path, and makes what is missing of it, but for what links in it name.
///
/// # Errors
/// `ENOENT` for a link to nowhere; `ELOOP` for a link that is somebody else's, or too many of them; `ENOTDIR`; as the system refuses it.
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
            // A link to nowhere leads nowhere.
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

/// Makes a folder; says whether it is this that did.
fn make(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<bool> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        // Somebody else was faster.
        Err(Errno::EXIST) => Ok(false),
        made => made.map(|()| true),
    }
}

#[cfg(test)]
mod tests;
