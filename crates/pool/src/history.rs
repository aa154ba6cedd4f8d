//! The history of a pool (`spa_history.c`).

use crate::{Error, Mos, Result};
use dmu::Dnode;
use ondisk::history::HistoryPhys;
use ondisk::{Corrupt, Nvlist, mos};

mod write;

const WHAT: &str = "history record";
/// Longest accepted record. The ring of a huge pool has 1 GiB in OpenZFS, and its records some KiB.
const MAX_RECORD: u64 = 16 << 20;

/// Names of the internal events of pools before version 28, by number (`zfs_history_event_names`).
pub const LEGACY_EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// Iterator over the records of a pool's history, oldest first. The record of `zpool create` comes
/// before the ring.
#[derive(Debug)]
pub struct History {
    dn: Dnode,
    phys: HistoryPhys,
    at: u64,
    over: bool,
}

impl Mos {
    /// The history of the pool (`spa_history_get`). `None` if the pool is too old to have one.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn history(&self) -> Result<Option<History>> {
        self.history_from(0)
    }

    /// As [`Mos::history`], from a [`History::position`] on.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn history_from(&self, position: u64) -> Result<Option<History>> {
        let Some(obj) = self.dir(mos::HISTORY)? else { return Ok(None) };
        let bad = Error::corrupt(obj);
        let dn = self.objset().dnode(obj)?;
        let phys = HistoryPhys::decode(dn.bonus()).map_err(&bad)?;
        Ok(Some(History { dn, phys, at: position, over: false }))
    }
}

impl History {
    /// The bounds of the ring (`spa_history_phys_t`).
    pub fn phys(&self) -> &HistoryPhys {
        &self.phys
    }

    /// The position of the next record, in bytes of everything that was ever written.
    pub fn position(&self) -> u64 {
        self.at
    }

    fn step(&mut self) -> Result<Option<Nvlist>> {
        let bad = Error::corrupt(self.dn.object());
        if self.at >= self.phys.pool_create_len {
            self.at = self.at.max(self.phys.bof);
        }
        if self.at >= self.phys.eof {
            return Ok(None);
        }
        let left = self.phys.eof - self.at;
        let mut len = [0; 8];
        if left < 8 {
            return Err(bad(Corrupt::Truncated { what: WHAT, need: 8, have: left as usize }));
        }
        read(&self.dn, &self.phys, self.at, &mut len)?;
        let len = u64::from_le_bytes(len);
        if len > left - 8 || len > MAX_RECORD {
            return Err(bad(Corrupt::Range { what: WHAT, field: "length", value: len }));
        }
        let mut buf = vec![0; len as usize];
        read(&self.dn, &self.phys, self.at + 8, &mut buf)?;
        self.at += 8 + len;
        Nvlist::decode(&buf).map(Some).map_err(bad)
    }
}

/// Reads from logical offset `at` on.
fn read(dn: &Dnode, phys: &HistoryPhys, at: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let logical = at + done as u64;
        let offset = phys.to_phys(logical);
        let first = logical < phys.pool_create_len;
        let end = if first { phys.pool_create_len } else { phys.phys_max_off };
        let n = ((end - offset).min((buf.len() - done) as u64)) as usize;
        dn.read_at(offset, &mut buf[done..done + n])?;
        done += n;
    }
    Ok(())
}

impl Iterator for History {
    type Item = Result<Nvlist>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let r = self.step();
        self.over = !matches!(r, Ok(Some(_)));
        r.transpose()
    }
}
