//! What the daemon needs of the service that it runs.

use crate::events::zedlets::{Terms, ZedletError};
use api::run_dir::RunDir;
use api::{Caller, Error, Reason, Service};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The service that holds the pools.
pub trait DaemonService: Service + Send + Sync {
    /// Whether nothing is imported.
    fn is_empty(&self) -> bool;
    /// Checks whether a caller that does not own the daemon may make a request. By default it may
    /// not.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller lacks a permission, or the request is the owners'
    ///   alone.
    /// * [`Reason::DelegationOff`]: the pool's `delegation` is off.
    /// * All others: the subject of the request does not exist or can't be read.
    fn allows(&self, _caller: &Caller, method: &str, _body: &[u8]) -> Result<(), Error> {
        Err(Error::new(method, Reason::Permission))
    }
    /// Mounts statistics and parameters as files.
    ///
    /// # Errors
    /// Those of [`fuse::Mount::new`]: the mount can't be made.
    fn stats(self: Arc<Self>, at: &Path) -> Result<fuse::Mount, fuse::Error>;
    /// Sets the default cache file.
    fn remember_in(&self, _cachefile: &Path) {}
    /// Runs programs at each event from now on, until the service is closed.
    ///
    /// # Errors
    /// * [`ZedletError`]: their folder can't be used, or the thread can't be started.
    fn run_at_events(&self, _terms: Terms) -> Result<(), ZedletError> {
        Ok(())
    }
    /// Starts the services beside the control socket.
    fn open_doors(&self, _place: &RunDir) {}
    /// Makes every volume a block device from now on.
    fn attach_every(&self) {}
    /// Allows other users to use what is mounted from now on (`allow_other`).
    fn let_others_in(&self) {}
    /// Nests file systems in mounts of their pool from now on, even if the daemon may mount them.
    fn nest_always(&self) {}
    /// Unmounts and exports everything as far as possible. There are no requests after this.
    ///
    /// A pool that makes no progress for `patience` is left. Returns what was left, and why.
    fn close(&self, patience: Duration) -> Vec<Error>;
}
