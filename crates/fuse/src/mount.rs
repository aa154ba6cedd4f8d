//! A mounted tree, from mount to unmount.

use crate::dataset::Stale;
use crate::dispatch::{Behaviour, MAX_READ};
use crate::error::Error;
use crate::system::{self, Detach, Options};
use crate::tree::Tree;
use crate::workers::{Done, Workers};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a mount is unmounted that is busy.
const TRIES: u32 = 10;
/// How long apart.
const PAUSE: Duration = Duration::from_millis(5);

/// A mount that this process serves.
///
/// Dropping it leaves the mount as it is, served until somebody unmounts it or the workers end; call
/// [`Mount::unmount`].
pub struct Mount {
    target: PathBuf,
    /// `st_dev`, by which it is told from what else is mounted there.
    device: (u32, u32),
    id: u64,
    done: Arc<Done>,
    workers: Arc<Workers>,
}

impl Mount {
    /// Mounts `tree` at the directory `target`, whose path has no link in it, and serves it from `workers`. On return the mount answers.
    pub fn new(
        workers: &Arc<Workers>,
        tree: Arc<dyn Tree>,
        target: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        let device = system::attach(target, options)?;
        let behaviour = Behaviour { posix_acl: options.posix_acl, ..Behaviour::default() };
        let (id, done) = match workers.serve(device, tree, behaviour) {
            Ok(served) => served,
            Err(error) => {
                undo(target);
                return Err(error);
            }
        };
        // The first question waits for the handshake, after which the readahead may be set.
        match system::probe(target) {
            Ok(stat) => {
                let device = (stat.stx_dev_major, stat.stx_dev_minor);
                system::raise_readahead(device.0, device.1, MAX_READ);
                Ok(Self { target: target.to_owned(), device, id, done, workers: Arc::clone(workers) })
            }
            Err(source) => {
                undo(target);
                workers.abandon(id);
                Err(Error::Silent { target: target.to_owned(), source })
            }
        }
    }

    /// Where it is mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Whether it has ended: somebody unmounted it.
    pub fn is_over(&self) -> bool {
        self.done.is_over()
    }

    /// Lets other options take effect while it is mounted. Only root may.
    ///
    /// # Errors
    /// [`Error::Mount`] if the system refuses.
    pub fn remount(&self, options: &Options) -> Result<(), Error> {
        if self.is_over() || !self.is_on_top()? {
            return Err(Error::Mount { target: self.target.clone(), source: Errno::INVAL });
        }
        system::remount(&self.target, options)
    }

    /// Does something while nothing that the kernel asks is under way; what it asks waits. What programs changed through maps of files comes before.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.is_on_top().unwrap_or(false)
            && let Err(error) = system::flush(&self.target)
        {
            tracing::debug!(%error, "what the kernel has not written comes later");
        }
        self.workers.suspended(self.id, work)
    }

    /// Has the kernel drop what it knows and is no longer so. No request may wait for who calls this.
    pub fn tell(&self, stale: &[Stale]) {
        self.workers.tell(self.id, stale);
    }

    /// Unmounts. When this returns, its tree is let go, and after a forced or lazy unmount whoever still uses it gets
    /// `ENOTCONN`.
    ///
    /// After a failure (say, because it is busy) the mount is served as before.
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        if self.is_over() {
            return Ok(());
        }
        if !self.is_on_top()? {
            // Somebody unmounted it, and the workers are about to hear of that.
            self.workers.abandon(self.id);
            self.done.wait();
            return Ok(());
        }
        match (self.detach(how), how) {
            // Forcing aborts whatever is under way, so nothing is left to serve, but an open file or a working
            // directory keeps the mount in place.
            (Err(error), Detach::Force) if error.is_busy() => system::detach(&self.target, Detach::Lazy)?,
            (result, _) => result?,
        }
        // Another mount namespace may hold a copy, which is not waited for.
        self.workers.abandon(self.id);
        self.done.wait();
        Ok(())
    }

    /// Takes it out of the tree. Whoever looks at all mounts, as `df` does and a daemon that starts, holds each for a moment: that is waited for.
    fn detach(&self, how: Detach) -> Result<(), Error> {
        for _ in 1..TRIES {
            match system::detach(&self.target, how) {
                Err(error) if error.is_busy() && how == Detach::Normal => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
        system::detach(&self.target, how)
    }

    /// Whether unmounting its mountpoint unmounts this. `false` if it isn't mounted any more; `EBUSY` if something else
    /// is mounted over it.
    fn is_on_top(&self) -> Result<bool, Error> {
        if system::device_at(&self.target).is_ok_and(|device| device == self.device) {
            return Ok(true);
        }
        let device = format!("{}:{}", self.device.0, self.device.1);
        if system::table()?.iter().any(|mount| mount.device == device && mount.target == self.target) {
            return Err(Error::Unmount { target: self.target.clone(), source: Errno::BUSY });
        }
        Ok(false)
    }
}

fn undo(target: &Path) {
    if let Err(error) = system::detach(target, Detach::Lazy) {
        tracing::error!(%error, "a mount that failed stays behind");
    }
}
