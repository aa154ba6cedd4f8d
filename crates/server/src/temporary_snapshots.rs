//! Temporary snapshots of this daemon.
//!
//! # Theory
//! The differences of a live file system are those of a snapshot of this moment (`zfs diff`,
//! `ZFS_IOC_TMP_SNAPSHOT`). The snapshot is destroyed after the last part of the answer. A command
//! that needs several parts may die between them. So an old snapshot is destroyed with the next
//! request, and all of a pool's with its export.
//!
//! # Crash
//! A daemon that is killed leaves the snapshot. Its name shows what it is. OpenZFS would destroy it
//! at the next import.

use crate::pools::Pools;
use crate::view;
use api::{Caller, DatasetChange, DiffPart, DiffRequest, Error, Reason};
use observe::lock::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a command may take between two parts.
const PATIENCE: Duration = Duration::from_secs(300);
/// Most snapshots at a time. A command that dies between two parts leaves one.
const MOST: usize = 64;
/// The prefix of the names of such snapshots (`ZDIFF_PREFIX`).
const PREFIX: &str = "zfs-diff-";

/// The temporary snapshots of this daemon, each with the time when it expires.
#[derive(Default)]
pub(crate) struct Leases {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    until: HashMap<String, Instant>,
    made: u64,
}

impl Leases {
    /// A part of the differences since a snapshot (`zfs_show_diffs`). For a live file system, this
    /// creates a snapshot first.
    ///
    /// # Errors
    /// * [`Reason::TooMuch`]: there are 64 such snapshots.
    /// * Others from creating and destroying the snapshot: see [`Pools::change`].
    /// * Others from comparing: see [`view::compared`] and [`view::diff`].
    pub(crate) fn diff(
        &self,
        caller: &Caller,
        pools: &Pools,
        request: &DiffRequest,
    ) -> Result<DiffPart, Error> {
        self.drop_old(pools, &request.to);
        let imported = pools.table().pool_of(&request.from)?;
        let mut request = request.clone();
        if !request.to.contains('@') && imported.pool.spa().writer().is_some() {
            request.to = self.snapshot(caller, pools, &request.to)?;
        }
        let spa = imported.pool.spa();
        // The walk may take long. What it reads doesn't change, so operations on datasets may
        // continue.
        let compared = spa.read(|| view::compared(imported.pool.dsl(), &request));
        let told = compared.and_then(view::diff);
        let mut table = self.table.lock();
        let Some(until) = table.until.get_mut(&request.to) else { return told };
        if told.as_ref().is_ok_and(|part| part.next.is_some()) {
            *until = Instant::now() + PATIENCE;
            return told;
        }
        table.until.remove(&request.to);
        drop(table);
        let gone = remove(caller, pools, &request.to);
        told.and_then(|part| gone.map(|()| part))
    }

    /// Destroys all temporary snapshots of a pool.
    pub(crate) fn end(&self, caller: &Caller, pools: &Pools, pool: &str) {
        self.drop_if(caller, pools, |name, _| name.split(['/', '@']).next() == Some(pool));
    }

    /// Destroys expired snapshots, except the one of the present request.
    ///
    /// Other users may have made them, so the daemon destroys them, and not the present caller.
    fn drop_old(&self, pools: &Pools, asked: &str) {
        let now = Instant::now();
        self.drop_if(&Caller::this_process(), pools, |name, until| *until < now && name != asked);
    }

    fn drop_if(&self, caller: &Caller, pools: &Pools, which: impl Fn(&str, &Instant) -> bool) {
        let mut old = Vec::new();
        self.table.lock().until.retain(|name, until| {
            let goes = which(name, until);
            if goes {
                old.push(name.clone());
            }
            !goes
        });
        for name in old {
            if let Err(error) = remove(caller, pools, &name) {
                tracing::warn!(%error, snapshot = name, "a snapshot of a diff stays");
            }
        }
    }

    fn snapshot(&self, caller: &Caller, pools: &Pools, head: &str) -> Result<String, Error> {
        let name = {
            let mut table = self.table.lock();
            if table.until.len() >= MOST {
                return Err(Error::new(head, Reason::TooMuch));
            }
            table.made += 1;
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let name = format!("{head}@{PREFIX}{:x}-{:x}", now.as_nanos(), table.made);
            table.until.insert(name.clone(), Instant::now() + PATIENCE);
            name
        };
        let made =
            pools.change(caller, &DatasetChange::Snapshot { names: vec![name.clone()], props: Vec::new() });
        match made {
            Ok(_) => Ok(name),
            Err(error) => {
                self.table.lock().until.remove(&name);
                Err(Error::new(head, error.reason))
            }
        }
    }
}

fn remove(caller: &Caller, pools: &Pools, name: &str) -> Result<(), Error> {
    let change = DatasetChange::Destroy { names: vec![name.to_owned()], force: false, defer: true };
    pools.change(caller, &change).map(drop)
}
