//! Where a daemon lives: its folder, socket and locks.
//!
//! # Theory
//! Each user has one daemon of their own, and the system has root's. A daemon's folder holds three files: `control.sock`;
//! `daemon.lock`, locked for as long as the daemon lives, by which a socket without a daemon is told from one with;
//! and `start.lock`, locked for the moments in which a daemon begins or ends, so that two commands that start one at
//! the same time end up with one, and none reaches a daemon that is on its way out.
//!
//! The folder of a user is in `$XDG_RUNTIME_DIR`, or else in the temporary directory, where it is trusted only if it
//! belongs to the user and nobody else may enter.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names another folder for the daemon, so that several can live side by side.
pub const ENV_DIR: &str = "POOLHOUSE_RUN_DIR";
const SYSTEM_DIR: &str = "/run/poolhouse";

/// A daemon's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    /// Whether everybody may knock (root's daemon).
    shared: bool,
}

/// A folder that can't be a daemon's.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// It can't be made, read or locked.
    #[error("cannot use the daemon's folder {}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no folder.
    #[error("the daemon's folder {} is no folder", dir.display())]
    NoFolder {
        /// What is there.
        dir: PathBuf,
    },
    /// It is somebody else's.
    #[error("the daemon's folder {} belongs to user {owner}, and not to user {wanted}", dir.display())]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        wanted: u32,
    },
    /// Others may enter it, or write in it.
    #[error("others may use the daemon's folder {0}: its mode is {mode:04o}; `chmod {wanted:o} {0}`", dir.display())]
    Open {
        /// The folder.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
        /// What it should be.
        wanted: u32,
    },
}

impl Place {
    /// The folder of this user's daemon.
    pub fn of_user() -> Self {
        let uid = rustix::process::geteuid();
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(dir) = var(ENV_DIR) {
            // One of root's that others may enter is for everybody, as root's own is.
            let shared =
                std::fs::metadata(&dir).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o055 != 0);
            return Self { dir, shared };
        }
        if uid.is_root() {
            return Self::of_system();
        }
        let dir = match var("XDG_RUNTIME_DIR") {
            Some(runtime) => runtime.join("poolhouse"),
            None => std::env::temp_dir().join(format!("poolhouse-{}", uid.as_raw())),
        };
        Self { dir, shared: false }
    }

    /// The folder of root's daemon.
    pub fn of_system() -> Self {
        Self { dir: PathBuf::from(SYSTEM_DIR), shared: true }
    }

    /// A folder of the caller's choice.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), shared: false }
    }

    /// The same folder, open to everybody who wants to knock.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Where the files of volumes are mounted that are attached as block devices.
    pub fn attached(&self) -> PathBuf {
        self.dir.join("zvol")
    }

    /// The socket of its volumes, which speaks NBD.
    pub fn volumes(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    /// What a daemon in the background has to say.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Whether everybody may connect.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Makes the folder if need be, and checks that it can be trusted.
    pub fn prepare(&self) -> Result<(), PlaceError> {
        let mode = self.mode();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&self.dir)
            .map_err(|e| self.failed(e))?;
        self.check()
    }

    /// The mode that it has.
    fn mode(&self) -> u32 {
        if self.shared { 0o755 } else { 0o700 }
    }

    /// Whether the folder is this user's (or, the system's, root's) and nobody else may write in it.
    pub fn check(&self) -> Result<(), PlaceError> {
        let meta = std::fs::symlink_metadata(&self.dir).map_err(|e| self.failed(e))?;
        let wanted = if self.shared { 0 } else { rustix::process::geteuid().as_raw() };
        let forbidden = if self.shared { 0o022 } else { 0o077 };
        let (dir, mode) = (|| self.dir.clone(), meta.mode() & 0o7777);
        if !meta.is_dir() {
            Err(PlaceError::NoFolder { dir: dir() })
        } else if meta.uid() != wanted {
            Err(PlaceError::Foreign { dir: dir(), owner: meta.uid(), wanted })
        } else if mode & forbidden != 0 {
            Err(PlaceError::Open { dir: dir(), mode, wanted: self.mode() })
        } else {
            Ok(())
        }
    }

    /// Waits for its turn to begin or end a daemon. Held until dropped.
    pub fn lock_start(&self) -> Result<OwnedFd, PlaceError> {
        let lock = self.open("start.lock")?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(|e| self.failed(e.into()))?;
        Ok(lock)
    }

    /// Becomes the daemon of this folder, until dropped. `None` when there is one.
    pub fn lock_daemon(&self) -> Result<Option<OwnedFd>, PlaceError> {
        let lock = self.open("daemon.lock")?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.failed(errno.into())),
        }
    }

    fn open(&self, name: &str) -> Result<OwnedFd, PlaceError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(self.dir.join(name), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.failed(e.into()))
    }

    fn failed(&self, source: std::io::Error) -> PlaceError {
        PlaceError::Io { dir: self.dir.clone(), source }
    }
}

#[cfg(test)]
mod tests;
