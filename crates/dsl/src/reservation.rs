//! Space reservations for writers.
//!
//! # Theory
//! Only the sync of a txg knows what a change takes of the pool, and then it is too late to refuse.
//! So a writer first says how many bytes it makes dirty. These are multiplied by 24, the worst that
//! can become of them: raidz parity, ditto copies and the blocks above. The product counts as *in
//! flight* on the writer's directory and all above it, until the txg has written them.
//!
//! | state of a directory | answer |
//! |---|---|
//! | the bytes on disk reach a quota, or the pool's size less its slop | refused |
//! | they would with the bytes in flight | the writer waits for a sync, and tries again |
//! | neither | granted |
//!
//! The writer's own bytes do not count against it. So one change can exceed a quota, and the last
//! bytes of a quota are usable. A change that frees more than it takes ignores quotas, and may use
//! half of the slop. So a full pool or dataset can always be emptied.
//!
//! Within a reservation, *written* bytes count. While the bytes on disk have not reached it, the
//! reservation covers a change, but not the worst that may become of it. The free part of half of
//! the slop answers for that, for all changes in flight together ([`State::covers`]). When it is
//! used up, the change waits for a txg.
//!
//! The bytes of changes exceed a reservation by [`BEYOND_MAX`] at most; copies and raidz may
//! multiply them. OpenZFS instead counts the worst, and refuses the change. So here the last bytes
//! of a reservation can be written, and a full volume within its reservation can be overwritten.
//!
//! Operations on datasets are checked against the slop too ([`crate::SyncTask::need`]).
//!
//! # Life
//! [`Dsl::reserve`] gives a [`Reservation`], which lives as long as the transaction. After that,
//! the bytes that became dirty stay in flight instead of the requested ones. They stay until the
//! sync has updated the sums of the directories ([`TempReserve::settle`]).
//!
//! # Locks
//! One mutex. It is held while a directory is read from the MOS, once for each directory and txg.
//! So sums read before a sync changed them are never entered after it.
//!
//! # See
//! OpenZFS `dsl_dir_tempreserve_space`, `dsl_dir_willuse_space`, `dsl_dataset_check_quota`,
//! `spa_get_worst_case_asize`.

use crate::account::past;
use crate::error::Refusal;
use crate::prop::Prop;
use crate::prop::value::PropZap;
use crate::{Dsl, Error, Result};
use observe::{Mutex, Site};
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::{Corrupt, ObjNum, Txg};
use pool::space::SpaceCheck;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The worst that can become of a byte (`spa_asize_inflation`).
const INFLATION: u64 = 24;
/// No block is smaller (`SPA_MINBLOCKSIZE`).
const MIN_BLOCK: u64 = 512;
/// Txgs that can exist at a time (`TXG_SIZE`).
const TXG_SIZE: usize = 4;
/// The bytes in flight may exceed a quota by one part in `2^5`.
const OVERSHOOT_SHIFT: u32 = 5;
/// No directory is deeper than a name can be long.
const MAX_DEPTH: usize = crate::ZFS_MAX_DATASET_NAME_LEN;

/// What a writer is about to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes that become dirty at most: whole blocks, with those that describe them.
    pub bytes: u64,
    /// Whether the change frees more than it takes in the end (`dmu_tx_mark_netfree`).
    pub netfree: bool,
}

impl Need {
    /// A change that takes space, and dirties at most `bytes`.
    pub fn growing(bytes: u64) -> Need {
        Need { bytes, netfree: false }
    }

    /// A change that frees more space than it takes, and dirties at most `bytes`
    /// (`dmu_tx_mark_netfree`).
    pub fn netfree(bytes: u64) -> Need {
        Need { bytes, netfree: true }
    }
}

/// The answer to a writer.
#[derive(Debug)]
pub enum ReserveOutcome {
    /// The writer may go on.
    Granted(Reservation),
    /// The bytes in flight may fill the free space.
    ///
    /// The writer waits for a txg to sync, and tries again (`ERESTART`).
    Again {
        /// Only freed space that is not usable yet is left; it takes two more txgs.
        full: bool,
    },
}

/// Bytes in flight by directory, and directories as no sync has changed them yet.
#[derive(Debug)]
pub struct TempReserve(Mutex<State>);

/// The name under which waits for the lock are counted.
static LOCK: Site = Site::new("dsl room");

impl Default for TempReserve {
    fn default() -> Self {
        TempReserve(Mutex::of(&LOCK, State::default()))
    }
}

#[derive(Debug, Default)]
struct State {
    in_flight: HashMap<u64, [u64; TXG_SIZE]>,
    /// The worst of changes in flight, beyond the reservations that cover them.
    beyond: [u64; TXG_SIZE],
    dirs: HashMap<u64, DirSpace>,
    heads: HashMap<u64, HeadSpace>,
}

#[derive(Debug, Clone, Copy)]
struct DirSpace {
    parent: u64,
    used: u64,
    reserved: u64,
    quota: u64,
    has_head: bool,
}

#[derive(Debug, Clone, Copy)]
struct HeadSpace {
    dir: u64,
    referenced: u64,
    unique: u64,
    refquota: u64,
    refreservation: u64,
}

/// Bytes that a transaction has in flight (`dsl_dir_tempreserve_clear`).
///
/// It is dropped with the transaction, before the transaction releases its txg.
#[derive(Debug)]
pub struct Reservation {
    reserve: Arc<TempReserve>,
    dsl: Dsl,
    txg: Txg,
    head: u64,
    taken: Vec<(u64, u64)>,
    /// The request at its worst, and the part of it beyond a reservation that covers it.
    worst: u64,
    beyond: u64,
    dirtied: AtomicU64,
}

impl Reservation {
    /// Counts bytes that the transaction makes dirty; see [`dmu::Hold`].
    pub fn dirtied(&self, bytes: u64) {
        self.dirtied.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.reserve.0.lock();
        let slot = slot(self.txg);
        for (dir, bytes) in &self.taken {
            if let Some(n) = state.in_flight.get_mut(dir) {
                n[slot] = n[slot].saturating_sub(*bytes);
            }
        }
        let dirtied = self.dirtied.load(Ordering::Relaxed);
        let unused = if dirtied > 0 { self.worst.saturating_sub(worst(dirtied)) } else { self.worst };
        state.beyond[slot] = state.beyond[slot].saturating_sub(self.beyond.min(unused));
        if dirtied > 0 {
            // The same read succeeded for the request. The next request reports an error.
            let _ = state.will_use(&self.dsl, self.head, self.txg, worst(dirtied));
        }
    }
}

fn slot(txg: Txg) -> usize {
    txg.0 as usize % TXG_SIZE
}

/// The worst that bytes may become (`spa_get_worst_case_asize`).
fn worst(bytes: u64) -> u64 {
    bytes.max(MIN_BLOCK).saturating_mul(INFLATION)
}

impl State {
    fn in_flight(&self, dir: u64) -> u64 {
        self.in_flight.get(&dir).map_or(0, |n| n.iter().fold(0, |a, b| a.saturating_add(*b)))
    }

    fn add(&mut self, dir: u64, txg: Txg, bytes: u64) {
        let n = &mut self.in_flight.entry(dir).or_default()[slot(txg)];
        *n = n.saturating_add(bytes);
    }

    fn dir(&mut self, dsl: &Dsl, object: u64) -> Result<DirSpace> {
        if let Some(dir) = self.dirs.get(&object) {
            return Ok(*dir);
        }
        let dn = dsl.mos().objset().dnode(ObjNum(object))?;
        let p = DslDirPhys::decode(dn.bonus()).map_err(Error::corrupt(ObjNum(object)))?;
        let dir = DirSpace {
            parent: p.parent_obj,
            used: p.used_bytes,
            reserved: p.reserved,
            quota: p.quota,
            has_head: p.head_dataset_obj != 0,
        };
        self.dirs.insert(object, dir);
        Ok(dir)
    }

    fn head(&mut self, dsl: &Dsl, object: u64) -> Result<HeadSpace> {
        if let Some(head) = self.heads.get(&object) {
            return Ok(*head);
        }
        let dn = dsl.mos().objset().dnode(ObjNum(object))?;
        let p = DslDatasetPhys::decode(dn.bonus()).map_err(Error::corrupt(ObjNum(object)))?;
        let dn = dsl.mos().objset().dnode(ObjNum(p.dir_obj))?;
        let d = DslDirPhys::decode(dn.bonus()).map_err(Error::corrupt(ObjNum(p.dir_obj)))?;
        let props = PropZap::read(dsl.mos(), ObjNum(d.props_zapobj))?;
        let number = |prop: Prop| props.number(prop.name(), prop.desc()).unwrap_or(0);
        let head = HeadSpace {
            dir: p.dir_obj,
            referenced: p.referenced_bytes,
            unique: p.unique_bytes,
            refquota: number(Prop::Refquota),
            refreservation: number(Prop::Refreservation),
        };
        self.heads.insert(object, head);
        Ok(head)
    }

    /// Counts bytes that became dirty (`dsl_dir_willuse_space`).
    fn will_use(&mut self, dsl: &Dsl, head: u64, txg: Txg, bytes: u64) -> Result<()> {
        let (mut at, mut bytes) = (self.head(dsl, head)?.dir, bytes);
        for _ in 0..MAX_DEPTH {
            let dir = self.dir(dsl, at)?;
            self.add(at, txg, bytes);
            let used = self.in_flight(at).saturating_add(dir.used);
            bytes = past(dir.reserved, used, clamp(bytes)).max(0) as u64;
            if dir.parent == 0 || bytes == 0 {
                return Ok(());
            }
            at = dir.parent;
        }
        Err(endless(at))
    }
}

fn clamp(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn endless(dir: u64) -> Error {
    let source = Corrupt::Shape { what: "DSL directory", why: "no way leads to the root" };
    Error::Corrupt { object: ObjNum(dir), source }
}

/// The answer of one directory, or of the dataset.
enum Verdict {
    Fine,
    Again { full: bool },
    Refused(Refusal),
}

impl HeadSpace {
    /// Whether the dataset's own quota allows a change (`dsl_dataset_check_quota`).
    fn judge(&self, netfree: bool, in_flight: u64) -> Verdict {
        if netfree || self.refquota == 0 || self.referenced.saturating_add(in_flight) < self.refquota {
            Verdict::Fine
        } else if in_flight > 0 || self.referenced < self.refquota {
            Verdict::Again { full: false }
        } else {
            Verdict::Refused(Refusal::Quota)
        }
    }
}

impl DirSpace {
    /// Whether the directory allows a change by a user of `used` bytes of it.
    fn judge(&self, dsl: &Dsl, ignore_quota: bool, netfree: bool, used: u64, in_flight: u64) -> Verdict {
        let mut quota = if ignore_quota || netfree || self.quota == 0 { u64::MAX } else { self.quota };
        let mut why = Refusal::Quota;
        let space = dsl.space();
        if self.parent == 0 {
            let check = if netfree { SpaceCheck::Reserved } else { SpaceCheck::Normal };
            let room = space.unreserved(check);
            if room < quota {
                (quota, why) = (room, Refusal::NoSpace);
            }
        }
        if used >= quota {
            return match why {
                Refusal::NoSpace if used - quota < space.waiting => Verdict::Again { full: true },
                why => Verdict::Refused(why),
            };
        }
        let more = if quota == u64::MAX { 0 } else { quota >> OVERSHOOT_SHIFT };
        if used.saturating_add(in_flight) >= quota.saturating_add(more) {
            return Verdict::Again { full: false };
        }
        Verdict::Fine
    }
}

impl TempReserve {
    /// Notes that the sums of the directories include what `txg` wrote (`dsl_dir_sync`).
    pub(crate) fn settle(&self, txg: Txg) {
        let mut state = self.0.lock();
        state.dirs.clear();
        state.heads.clear();
        state.in_flight.values_mut().for_each(|n| n[slot(txg)] = 0);
        state.beyond[slot(txg)] = 0;
        state.in_flight.retain(|_, n| *n != [0; TXG_SIZE]);
    }
}

impl Dsl {
    /// Requests space in a dataset for a change in the open `txg`, which the caller holds
    /// (`dsl_dir_tempreserve_space`).
    ///
    /// # Errors
    /// * [`Error::Refused`] with [`Refusal::Quota`]: a quota of the dataset or of a directory above
    ///   is reached (`EDQUOT`).
    /// * [`Error::Refused`] with [`Refusal::NoSpace`]: the pool is full (`ENOSPC`).
    /// * [Reading](Error#reading): the dataset or a directory above it can't be read.
    pub fn reserve(&self, head: u64, txg: Txg, need: Need) -> Result<ReserveOutcome> {
        let reserve = self.temp_reserve().clone();
        let mut granted = Reservation {
            reserve: reserve.clone(),
            dsl: self.clone(),
            txg,
            head,
            taken: Vec::new(),
            worst: worst(need.bytes),
            beyond: 0,
            dirtied: AtomicU64::new(0),
        };
        if need.bytes == 0 {
            return Ok(ReserveOutcome::Granted(granted));
        }
        // The lock must be free: a refusal drops what was taken, which locks again.
        let verdict = {
            let mut state = reserve.0.lock();
            state.reserve(self, need, &mut granted)
        };
        match verdict? {
            Verdict::Fine => Ok(ReserveOutcome::Granted(granted)),
            Verdict::Again { full } => Ok(ReserveOutcome::Again { full }),
            Verdict::Refused(why) => Err(self.refused(head, why)),
        }
    }

    /// The error for a writer that has waited too long for freed space.
    pub fn full(&self, head: u64) -> Error {
        self.refused(head, Refusal::NoSpace)
    }

    fn refused(&self, head: u64, why: Refusal) -> Error {
        self.by_object(ObjNum(head)).map_or_else(|e| e, |ds| Error::Refused { name: ds.name(), why })
    }
}

/// What a reservation is to cover.
struct Claim {
    reserved: u64,
    /// Bytes on disk that count against the reservation.
    used: u64,
    in_flight: u64,
    /// Requested bytes at their worst.
    asize: u64,
    /// Requested bytes.
    bytes: u64,
}

/// How far the bytes of changes in flight may exceed a reservation together.
///
/// Overwritten blocks count until their old versions are freed.
const BEYOND_MAX: u64 = 8 << 20;

impl State {
    /// The part of a change that a reservation does not cover, and whether only changes in flight
    /// are the reason.
    fn covers(&mut self, dsl: &Dsl, claim: &Claim, granted: &mut Reservation) -> Result<(u64, bool)> {
        let Claim { reserved, used, in_flight, asize, bytes } = *claim;
        let beyond = |in_flight: u64| {
            let all = clamp(asize.saturating_add(in_flight));
            asize.min(past(reserved, used, all).max(0) as u64)
        };
        let over = beyond(in_flight);
        if over == 0 || used >= reserved {
            return Ok((over, false));
        }
        // The excess of earlier changes is on disk by now, and reduces what is free here. So do
        // changes that free more than they take, since they use the same half of the slop.
        let space = dsl.space();
        let root = dsl.root_object().0;
        let free = space.unreserved(SpaceCheck::Reserved).saturating_sub(self.dir(dsl, root)?.used);
        let half =
            space.unreserved(SpaceCheck::Reserved).saturating_sub(space.unreserved(SpaceCheck::Normal));
        let most = half.min(free);
        let fits = |in_flight: u64| {
            let real = used.saturating_add(in_flight / INFLATION).saturating_add(bytes);
            real <= reserved.saturating_add(BEYOND_MAX.min(most / INFLATION))
        };
        let others = self.beyond.iter().fold(0u64, |a, b| a.saturating_add(*b));
        let left = half.min(free.saturating_sub(self.in_flight(root))).saturating_sub(others);
        if fits(in_flight) && over <= left {
            let slot = slot(granted.txg);
            self.beyond[slot] = self.beyond[slot].saturating_add(over);
            granted.beyond = granted.beyond.saturating_add(over);
            return Ok((0, false));
        }
        // If it does not fit with nothing in flight, waiting does not help.
        Ok((over, fits(0) && beyond(0) <= most))
    }

    fn reserve(&mut self, dsl: &Dsl, need: Need, granted: &mut Reservation) -> Result<Verdict> {
        let mut asize = worst(need.bytes);
        let head = self.head(dsl, granted.head)?;
        let mut at = head.dir;
        // The part of the dataset's own reservation that it does not use.
        let mut unused = head.refreservation.saturating_sub(head.unique);
        let mut ignore_quota = false;
        // Set if only bytes in flight exceed a reservation below.
        let mut spilled = false;
        for depth in 0..MAX_DEPTH {
            let dir = self.dir(dsl, at)?;
            let in_flight = self.in_flight(at);
            let used = dir.used.saturating_sub(unused);
            if depth == 0 {
                match head.judge(need.netfree, in_flight) {
                    Verdict::Fine => {}
                    no => return Ok(no),
                }
            }
            match dir.judge(dsl, ignore_quota, need.netfree, used, in_flight) {
                Verdict::Fine => {}
                Verdict::Refused(_) if spilled => return Ok(Verdict::Again { full: false }),
                no => return Ok(no),
            }
            self.add(at, granted.txg, asize);
            granted.taken.push((at, asize));
            let mut up = asize;
            if unused > 0 {
                let (reserved, used) = (head.refreservation, head.unique);
                let claim = Claim { reserved, used, in_flight, asize: up, bytes: need.bytes };
                let (left, waits) = self.covers(dsl, &claim, granted)?;
                (up, spilled) = (left, spilled || waits);
                unused = 0;
            }
            let claim = Claim { reserved: dir.reserved, used, in_flight, asize: up, bytes: need.bytes };
            let (left, waits) = self.covers(dsl, &claim, granted)?;
            (asize, spilled) = (left, spilled || waits);
            if dir.parent == 0 || asize == 0 {
                return Ok(Verdict::Fine);
            }
            at = dir.parent;
            ignore_quota = !self.dir(dsl, at)?.has_head;
        }
        Err(endless(at))
    }
}
