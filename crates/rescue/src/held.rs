//! Pools that a daemon holds: the daemon provides their files.
//!
//! Reading the devices beside the daemon would miss what it has not written yet. It would also read
//! what the daemon is writing meanwhile.

use super::Io;
use super::args::Args;
use super::target::{self, Error, Target};
use api::files::{Denied, Opened, Opening, Visit};
use api::{Dataset, DatasetKind, DatasetQuery, PoolQuery, PropSelect};
use poolhouse::spa::SpaError;

/// A target in a pool that the daemon holds.
pub struct Held {
    /// The target, with the pool's name in place of a guid.
    pub target: Target,
}

/// The target, if the daemon holds its pool.
///
/// `None` also if the command has to read the devices itself ([`by_ourselves`]).
pub fn held(io: &Io, args: &Args, target: &Target) -> Option<Held> {
    if by_ourselves(args) { None } else { find(io, target) }
}

/// Whether the command reads the pool's devices although a daemon may hold it.
///
/// It does for a state of the past, for named devices, and with `--peek`.
pub fn by_ourselves(args: &Args) -> bool {
    let past = args.txg.is_some() || args.checkpoint || args.extreme || args.list_txgs;
    args.peek || past || !args.devices.is_empty()
}

/// The target, if the daemon holds its pool, after the pool's devices were found to be in use.
pub fn if_in_use(io: &Io, target: &Target, error: &Error) -> Option<Held> {
    let Error::Pool(poolhouse::Error::Import(failure)) = error else { return None };
    matches!(failure.error, SpaError::InUse(_)).then(|| find(io, target))?
}

fn find(io: &Io, target: &Target) -> Option<Held> {
    // Without a daemon there is nothing to find. If the daemon refuses, the pool is reported as in
    // use later.
    let names = io.service.pool_names().ok()?;
    let called = target.pool();
    let is_it = |name: &&String| {
        let guid =
            || io.service.pool(name, &PoolQuery::default()).is_ok_and(|p| p.guid.to_string() == called);
        *name == called || called.bytes().all(|b| b.is_ascii_digit()) && guid()
    };
    Some(Held { target: target.of(names.iter().find(is_it)?) })
}

/// The position of a dataset in a list: by name, then its snapshots by age.
fn order(dataset: &Dataset) -> (&str, u64, &str) {
    let (head, snapshot) = dataset.name.split_once('@').unwrap_or((&dataset.name, ""));
    let age = if snapshot.is_empty() { 0 } else { dataset.createtxg };
    (head, age, snapshot)
}

impl Held {
    /// Opens a dataset of the pool.
    ///
    /// # Errors
    /// * [`Error::KeyFile`]: a key file can't be read.
    /// * [`Error::Theirs`]: the daemon belongs to another user.
    /// * [`Error::Refused`]: the daemon refused the request.
    /// * [`Error::Denied`]: the daemon does not open the dataset for another reason.
    pub fn visit(
        &self,
        io: &Io,
        args: &Args,
        dataset: &str,
        command: &str,
        write: bool,
    ) -> Result<(Visit, Opened), Error> {
        let keys = target::keys(args)?;
        let (dataset, command) = (dataset.to_owned(), command.to_owned());
        let opening = Opening { dataset, command, write, keys, beside: false };
        (io.visit)(&opening).map_err(|denied| match denied {
            Denied::Theirs => {
                let mounts = io.service.mounts().unwrap_or_default();
                let mount = mounts.into_iter().find(|mount| mount.dataset == opening.dataset);
                Error::Theirs { dataset: opening.dataset, at: mount.map(|mount| mount.mountpoint.into()) }
            }
            Denied::Api(error) => {
                let why = console::words::reason(&error.reason, &console::Clock::system());
                Error::Refused { about: error.about, why }
            }
            denied => denied.into(),
        })
    }

    /// The names of datasets and snapshots from `root` on, and texts about those that can't be
    /// listed.
    ///
    /// # Errors
    /// * [`Error::Daemon`]: the daemon can't list datasets.
    pub fn datasets(&self, io: &Io, root: &str) -> Result<(Vec<String>, Vec<String>), Error> {
        let query = DatasetQuery {
            root: Some(root.to_owned()),
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot],
            props: PropSelect::None,
            ..DatasetQuery::default()
        };
        let list = io.service.datasets(&query).map_err(|e| Error::Daemon { why: e.to_string() })?;
        let mut found = list.datasets;
        // The order of a pool that is read directly: each dataset with its snapshots, the oldest
        // first.
        found.sort_by(|a, b| order(a).cmp(&order(b)));
        let names = found.into_iter().map(|dataset| dataset.name).collect();
        Ok((names, list.failures.iter().map(ToString::to_string).collect()))
    }
}
