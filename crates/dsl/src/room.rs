//! Room for writers: who is about to write asks first, and is told when there is none.
//!
//! # Theory
//! What a change will take of the pool is only known when its group syncs, and then it is too late to say no. So a writer
//! says how many bytes he is about to make dirty, and these, times what may become of them at the worst (24: raidz parity, ditto copies
//! and the blocks above), count as *in flight* on his directory and all above it until the group has written them. He is refused when
//! what is on disk has reached a quota, or the pool's size less its slop; when only what is in flight would reach it,
//! he waits for a group to sync and asks again. His own bytes are not counted against him: so a quota is overshot by one change, and the
//! last bytes of it are not out of reach. Who frees more than he takes heeds no quota, and may go
//! half-way into the slop: so a full pool or dataset can always be emptied.
//!
//! Within a reservation, what is *written* counts. While the bytes on disk have not reached it, it
//! covers a change, though not the worst that may become of the change. What is left of half of the
//! slop answers for that, for all changes in flight together ([`State::covers`]). If that is used
//! up, the change waits for a group. The bytes of changes overshoot it by [`BEYOND_MAX`]
//! at most; copies and raidz may make several times as many of them. OpenZFS charges the worst and refuses the change. So the last bytes of a
//! reservation can be written, and a full volume within its reservation can be written over.
//!
//! Operations on datasets are checked against the slop too ([`crate::SyncTask::need`]).
//!
//! # Life
//! [`Dsl::reserve`] gives a [`Reservation`], which goes with the transaction. When that is over, what it really made dirty stays in flight
//! in place of what was asked for, until the directories' sums have been brought up to date by the sync ([`Room::settle`]).
//!
//! # Locks
//! One mutex. It is held while a directory is read from the MOS, which happens once for each directory and group: so that what was read
//! before a sync changed it can't be entered after.
//!
//! # See
//! OpenZFS `dsl_dir_tempreserve_space`, `dsl_dir_willuse_space`, `dsl_dataset_check_quota`, `spa_get_worst_case_asize`.

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

/// What a byte may become at the worst (`spa_asize_inflation`).
const INFLATION: u64 = 24;
/// No block is smaller.
const MIN_BLOCK: u64 = 512;
/// Groups that can be told apart at a time (`TXG_SIZE`).
const TXG_SIZE: usize = 4;
/// What is in flight may pass a quota by one part in `2^5`.
const OVERSHOOT_SHIFT: u32 = 5;
/// No directory is deeper than a name can be long.
const MAX_DEPTH: usize = crate::ZFS_MAX_DATASET_NAME_LEN;

/// What a writer is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes that it makes dirty at most: whole blocks, and those that describe them.
    pub bytes: u64,
    /// In the end it frees more than it takes (`dmu_tx_mark_netfree`): removing, truncating.
    pub netfree: bool,
}

/// The answer to a writer.
#[derive(Debug)]
pub enum Asked {
    /// He may go on.
    Granted(Reservation),
    /// What is in flight may fill what is left: he is to let a group sync, and ask again (`ERESTART`).
    Again {
        /// The pool is full but for what was freed and can't be used yet; that takes two groups more.
        full: bool,
    },
}

/// Bytes in flight by directory, and what is known of directories as long as no sync changes them.
#[derive(Debug)]
pub struct Room(Mutex<State>);

/// Where it is waited for.
static ROOM: Site = Site::new("dsl room");

impl Default for Room {
    fn default() -> Self {
        Room(Mutex::new(&ROOM, State::default()))
    }
}

#[derive(Debug, Default)]
struct State {
    in_flight: HashMap<u64, [u64; TXG_SIZE]>,
    /// What changes that reservations cover may take beyond these at the worst.
    beyond: [u64; TXG_SIZE],
    dirs: HashMap<u64, DirRoom>,
    heads: HashMap<u64, HeadRoom>,
}

#[derive(Debug, Clone, Copy)]
struct DirRoom {
    parent: u64,
    used: u64,
    reserved: u64,
    quota: u64,
    has_head: bool,
}

#[derive(Debug, Clone, Copy)]
struct HeadRoom {
    dir: u64,
    referenced: u64,
    unique: u64,
    refquota: u64,
    refreservation: u64,
}

/// Bytes that a transaction has in flight; dropped with it, before it lets its group go.
#[derive(Debug)]
pub struct Reservation {
    room: Arc<Room>,
    dsl: Dsl,
    txg: Txg,
    head: u64,
    taken: Vec<(u64, u64)>,
    /// What was asked for, at the worst, and how much of that is beyond a reservation that covers
    /// it.
    worst: u64,
    beyond: u64,
    dirtied: AtomicU64,
}

impl Reservation {
    /// Counts what the transaction makes dirty; see [`dmu::Hold`].
    pub fn dirtied(&self, bytes: u64) {
        self.dirtied.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.room.0.lock();
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
            // What can't be read now could be read when room was asked for; the next who asks learns why.
            let _ = state.will_use(&self.dsl, self.head, self.txg, worst(dirtied));
        }
    }
}

fn slot(txg: Txg) -> usize {
    txg.0 as usize % TXG_SIZE
}

/// What bytes may become at the worst (`spa_get_worst_case_asize`).
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

    fn dir(&mut self, dsl: &Dsl, object: u64) -> Result<DirRoom> {
        if let Some(dir) = self.dirs.get(&object) {
            return Ok(*dir);
        }
        let dn = dsl.mos().objset().dnode(ObjNum(object))?;
        let p = DslDirPhys::decode(dn.bonus()).map_err(Error::corrupt(ObjNum(object)))?;
        let dir = DirRoom {
            parent: p.parent_obj,
            used: p.used_bytes,
            reserved: p.reserved,
            quota: p.quota,
            has_head: p.head_dataset_obj != 0,
        };
        self.dirs.insert(object, dir);
        Ok(dir)
    }

    fn head(&mut self, dsl: &Dsl, object: u64) -> Result<HeadRoom> {
        if let Some(head) = self.heads.get(&object) {
            return Ok(*head);
        }
        let dn = dsl.mos().objset().dnode(ObjNum(object))?;
        let p = DslDatasetPhys::decode(dn.bonus()).map_err(Error::corrupt(ObjNum(object)))?;
        let dn = dsl.mos().objset().dnode(ObjNum(p.dir_obj))?;
        let d = DslDirPhys::decode(dn.bonus()).map_err(Error::corrupt(ObjNum(p.dir_obj)))?;
        let props = PropZap::read(dsl.mos(), ObjNum(d.props_zapobj))?;
        let number = |prop: Prop| props.number(prop.name(), prop.desc()).unwrap_or(0);
        let head = HeadRoom {
            dir: p.dir_obj,
            referenced: p.referenced_bytes,
            unique: p.unique_bytes,
            refquota: number(Prop::Refquota),
            refreservation: number(Prop::Refreservation),
        };
        self.heads.insert(object, head);
        Ok(head)
    }

    /// Counts what was made dirty (`dsl_dir_willuse_space`).
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

/// What one directory, or the dataset, says to a writer.
enum Verdict {
    Fine,
    Again { full: bool },
    Refused(Refusal),
}

impl HeadRoom {
    /// Whether the dataset's own quota lets somebody in (`dsl_dataset_check_quota`).
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

impl DirRoom {
    /// Whether the directory lets somebody in, who uses `used` of it.
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

impl Room {
    /// The directories' sums now have what the group `txg` wrote (`dsl_dir_sync`).
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
    /// Asks for room in a dataset for a change in the open group `txg`, which the caller holds (`dsl_dir_tempreserve_space`).
    ///
    /// # Errors
    /// [`Refusal::Quota`] (`EDQUOT`) when a quota of the dataset or of a directory above has been reached, [`Refusal::NoSpace`] (`ENOSPC`)
    /// when the pool is full; as reading fails.
    pub fn reserve(&self, head: u64, txg: Txg, need: Need) -> Result<Asked> {
        let room = self.room().clone();
        let mut granted = Reservation {
            room: room.clone(),
            dsl: self.clone(),
            txg,
            head,
            taken: Vec::new(),
            worst: worst(need.bytes),
            beyond: 0,
            dirtied: AtomicU64::new(0),
        };
        if need.bytes == 0 {
            return Ok(Asked::Granted(granted));
        }
        // What was taken before a refusal is given back, which takes the lock.
        let verdict = {
            let mut state = room.0.lock();
            state.reserve(self, need, &mut granted)
        };
        match verdict? {
            Verdict::Fine => Ok(Asked::Granted(granted)),
            Verdict::Again { full } => Ok(Asked::Again { full }),
            Verdict::Refused(why) => Err(self.refused(head, why)),
        }
    }

    /// What somebody is told who has waited long enough for freed space that doesn't come.
    pub fn full(&self, head: u64) -> Error {
        self.refused(head, Refusal::NoSpace)
    }

    fn refused(&self, head: u64, why: Refusal) -> Error {
        self.by_object(ObjNum(head)).map_or_else(|e| e, |ds| Error::Refused { name: ds.name(), why })
    }
}

/// What a reservation is asked to cover.
struct Claim {
    reserved: u64,
    /// Bytes on disk that count against it.
    used: u64,
    in_flight: u64,
    /// Bytes asked for, at the worst.
    asize: u64,
    /// Bytes asked for.
    bytes: u64,
}

/// How far beyond a reservation the bytes of changes may go that are in flight together: what is
/// written over counts until its old blocks are freed.
const BEYOND_MAX: u64 = 8 << 20;

impl State {
    /// What of a change a reservation does not cover, and whether it would but for what is in
    /// flight.
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
        // What earlier changes went beyond is on disk by now, and takes from what is left here. So do
        // changes that free more than they take, since these go into the same half of the slop.
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
        // Once nothing is in flight it will be covered, or it never is.
        Ok((over, fits(0) && beyond(0) <= most))
    }

    fn reserve(&mut self, dsl: &Dsl, need: Need, granted: &mut Reservation) -> Result<Verdict> {
        let mut asize = worst(need.bytes);
        let head = self.head(dsl, granted.head)?;
        let mut at = head.dir;
        // What the dataset has reserved for itself and does not use.
        let mut unused = head.refreservation.saturating_sub(head.unique);
        let mut ignore_quota = false;
        // Only what is in flight made it go beyond what is reserved below.
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
