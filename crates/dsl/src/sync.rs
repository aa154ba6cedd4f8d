//! Sync tasks: how datasets change.
//!
//! # Theory
//! A dataset's settings and links change only while a txg syncs, and one thread changes them. An
//! operation is a [`SyncTask`] with two halves:
//!
//! * *check* changes nothing, and may refuse.
//! * *sync* may fail only because of damage.
//!
//! A [`Syncing`] runs both, one after the other. So what the check found still holds when the
//! change is made, and an operation appears entirely or not at all.
//!
//! One txg takes thousands of tasks. A [`Syncing`] therefore keeps the directories and datasets
//! that they touch (`bonus_cache.rs`). It reads and writes each once, and looks up each component
//! of a name once.
//!
//! # Life
//! The pool makes a [`Syncing`] for each pass of a txg. The pass has three steps:
//!
//! 1. The dirty heads are synced ([`crate::Heads`]).
//! 2. The tasks run.
//! 3. [`Syncing::finish`] writes the changes to the MOS, which is synced last.
//!
//! # Crash
//! No change is on disk before the uberblock of the txg is.
//!
//! # Locks
//! None: the caller keeps readers of the datasets out.

use crate::bonus_cache::BonusCache;
use crate::error::Refusal;
use crate::ops::key::KeyUsers;
use crate::{Dsl, Error, Result};
use dmu::Tx;
use dmu::zap::Zap;
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::objset::ObjsetKind;
use ondisk::{Blkptr, ObjNum};
use pool::Mos;
use pool::space::SpaceCheck;
use std::collections::HashMap;

/// What the caller provides.
pub struct Env<'a> {
    /// Seconds since 1970.
    pub now: u64,
    /// Random numbers that are fit for keys: an attacker can't guess them.
    pub random: &'a mut dyn FnMut() -> u64,
    /// The space that a block takes of the pool, deflated (`bp_get_dsize_sync`).
    pub dsize: &'a (dyn Fn(&Blkptr) -> u64 + Sync),
}

impl std::fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now).finish_non_exhaustive()
    }
}

/// An operation on datasets (`dsl_sync_task_t`).
pub trait SyncTask {
    /// The space that the operation needs.
    ///
    /// The default is for a small operation that may help to free space.
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(3)
    }

    /// Whether the operation is allowed; changes nothing.
    ///
    /// # Errors
    /// * [`Error::Refused`], [`Error::BadProperty`], [`Error::Key`]: the operation is not allowed.
    /// * [`Error::Several`]: several parts of the operation are not allowed.
    /// * [`Error::BadName`], [`Error::NoSuchDataset`]: a name is malformed, or has no dataset.
    /// * [Reading](Error#reading): a dataset or directory can't be read.
    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()>;

    /// Does the operation; runs only right after a check that passed.
    ///
    /// # Errors
    /// * [Writing](Error#writing): the txg must not reach the disk.
    /// * [`Error::Contents`]: the initial contents of a new dataset can't be written.
    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()>;
}

/// The space of the MOS that an operation needs (`dsl_sync_task`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskNeed {
    /// Changed blocks of the MOS, a rough estimate (`blocks_modified`).
    pub blocks: u64,
    /// How far the operation may use the slop space (`zfs_space_check_t`).
    pub check: SpaceCheck,
}

impl TaskNeed {
    /// For an operation that takes space for good (`ZFS_SPACE_CHECK_NORMAL`).
    pub const fn normal(blocks: u64) -> TaskNeed {
        TaskNeed { blocks, check: SpaceCheck::Normal }
    }

    /// For a small operation that may help to free space (`ZFS_SPACE_CHECK_RESERVED`).
    pub const fn reserved(blocks: u64) -> TaskNeed {
        TaskNeed { blocks, check: SpaceCheck::Reserved }
    }

    /// For an operation that frees space, or prepares that (`ZFS_SPACE_CHECK_DESTROY`).
    pub const FREEING: TaskNeed = TaskNeed { blocks: 0, check: SpaceCheck::ExtraReserved };
}

/// Bytes of an average block of the MOS in three copies (`DST_AVG_BLKSHIFT`).
const TASK_BLOCK: u64 = 3 << 14;

/// An event of the pool's history (`spa_history_log_internal`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The operation, in OpenZFS's word: `create`, `snapshot`, `destroy`.
    pub what: &'static str,
    /// The dataset's full name.
    pub dataset: String,
    /// Its object.
    pub object: u64,
    /// Details; may be empty.
    pub text: String,
}

/// One pass of a txg over the datasets.
pub struct Syncing<'a> {
    pub(crate) dsl: &'a Dsl,
    /// The handle that checks read through.
    check: &'a Dsl,
    pub(crate) tx: &'a Tx,
    pub(crate) env: Env<'a>,
    pub(crate) bonuses: BonusCache,
    /// Directories by path.
    names: HashMap<String, u64>,
    /// Kinds of heads, by dataset.
    kinds: HashMap<u64, ObjsetKind>,
    /// Users of keys, once an operation of the txg has needed them.
    pub(crate) keys: Option<KeyUsers>,
    events: Vec<Event>,
    pub(crate) log_blocks: Option<LogBlocks<'a>>,
}

/// Finds the blocks of an object set's intent log (`zil_destroy`); a layer above implements it.
pub type LogBlocks<'a> = &'a dyn Fn(&dmu::Objset) -> Result<Vec<Blkptr>>;

impl std::fmt::Debug for Syncing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncing").field("tx", &self.tx).finish_non_exhaustive()
    }
}

impl<'a> Syncing<'a> {
    /// Begins a pass of the txg of `tx`; it reads with the options of `dsl`.
    pub fn new(dsl: &'a Dsl, tx: &'a Tx, env: Env<'a>) -> Self {
        Syncing {
            dsl,
            check: dsl,
            tx,
            env,
            bonuses: BonusCache::default(),
            names: HashMap::new(),
            kinds: HashMap::new(),
            keys: None,
            events: Vec::new(),
            log_blocks: None,
        }
    }

    /// The same, with checks that read through `dsl`.
    ///
    /// So an operation whose blocks are damaged is refused, and does not wait for them.
    #[must_use]
    pub fn with_checks(self, dsl: &'a Dsl) -> Self {
        Syncing { check: dsl, ..self }
    }

    /// The same, with the means to destroy datasets that have an intent log.
    #[must_use]
    pub fn with_logs(self, log_blocks: LogBlocks<'a>) -> Self {
        Syncing { log_blocks: Some(log_blocks), ..self }
    }

    /// Checks a task, and does it if it is allowed (`dsl_sync_task_sync`).
    ///
    /// The inner result is the check's.
    ///
    /// # Errors
    /// * [Writing](Error#writing): the task failed half-way. The txg must not reach the disk.
    /// * [`Error::Contents`]: the initial contents of a new dataset can't be written. The same
    ///   holds.
    pub fn run(&mut self, task: &mut dyn SyncTask) -> Result<Result<()>> {
        // A check that meets damaged blocks refuses the task, since nothing has changed yet.
        let dsl = std::mem::replace(&mut self.dsl, self.check);
        let checked = task.check(self).and_then(|()| self.check_room(task.need()));
        self.dsl = dsl;
        match checked {
            Ok(()) => task.sync(self).map(Ok),
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Whether the pool has space for an operation.
    fn check_room(&mut self, need: TaskNeed) -> Result<()> {
        let used = self.dir(self.dsl.root_object().0)?.used_bytes;
        let wants = need.blocks.saturating_mul(TASK_BLOCK);
        if used.saturating_add(wants) > self.dsl.space().unreserved(need.check) {
            return Self::refuse(self.dsl.pool_name(), Refusal::NoSpace);
        }
        Ok(())
    }

    /// Writes the changes to the MOS, and returns the events for the history.
    ///
    /// # Errors
    /// * [Writing](Error#writing): a directory or dataset can't be written.
    pub fn finish(mut self) -> Result<Vec<Event>> {
        self.flush()?;
        self.dsl.heads().end_writes();
        self.dsl.temp_reserve().settle(self.tx.txg());
        Ok(self.events)
    }

    /// Accounts for the space that syncing the MOS took and freed (`dsl_pool_mos_diduse_space`).
    ///
    /// It must run before the next pass of that sync.
    ///
    /// # Errors
    /// * [Reading](Error#reading): `$MOS` can't be read.
    /// * [`Error::Corrupt`]: a count of space would become negative.
    pub fn mos_diduse(&mut self, delta: crate::account::Delta) -> Result<()> {
        let dir = self.special_dir("$MOS")?;
        self.diduse(dir, ondisk::dsl::DdUsed::Head, delta)
    }

    /// The object of one of the pool's own directories, such as `$FREE`.
    pub(crate) fn special_dir(&mut self, name: &'static str) -> Result<u64> {
        let missing = || Error::Pool(pool::Error::Missing { name });
        let path = format!("{}/{name}", self.dsl.pool_name());
        self.find_dir(&path)?.ok_or_else(missing)
    }

    /// The MOS.
    pub(crate) fn mos(&self) -> &'a Mos {
        self.dsl.mos()
    }

    /// The pool's version (`spa_version`).
    pub(crate) fn version(&self) -> u64 {
        self.mos().version()
    }

    /// The number of the txg.
    pub(crate) fn txg(&self) -> u64 {
        self.tx.txg().0
    }

    fn random(&mut self) -> u64 {
        (self.env.random)()
    }

    /// Fills a buffer with random bytes.
    pub(crate) fn random_bytes(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let word = self.random().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// A guid; never 0.
    pub(crate) fn guid(&mut self) -> u64 {
        loop {
            let guid = self.random();
            if guid != 0 {
                return guid;
            }
        }
    }

    /// An id for `statfs`: 56 bits, not 0 (`unique_create`).
    pub(crate) fn fsid(&mut self) -> u64 {
        loop {
            let id = self.random() & ((1 << 56) - 1);
            if id != 0 {
                return id;
            }
        }
    }

    /// Adds an event for the history.
    pub(crate) fn log(&mut self, what: &'static str, dataset: &str, object: u64, text: String) {
        self.events.push(Event { what, dataset: dataset.to_owned(), object, text });
    }

    /// Opens a ZAP of the MOS.
    pub(crate) fn zap(&self, object: u64) -> Result<Zap> {
        Ok(self.mos().zap(ObjNum(object))?)
    }

    /// The directory of a path that begins with the pool's name, if it exists.
    pub(crate) fn find_dir(&mut self, path: &str) -> Result<Option<u64>> {
        if let Some(dir) = self.names.get(path) {
            return Ok(Some(*dir));
        }
        let found = match path.rsplit_once('/') {
            None if path == self.dsl.pool_name() => Some(self.dsl.root_object().0),
            None => None,
            Some((above, name)) => match self.find_dir(above)? {
                None => None,
                Some(parent) => {
                    let map = self.dir(parent)?.child_dir_zapobj;
                    let found = if map == 0 { None } else { self.zap(map)?.lookup_u64(name.as_bytes())? };
                    // So each directory that has a name has a path up to the root.
                    if let Some(dir) = found {
                        self.check_parent(dir, parent)?;
                    }
                    found
                }
            },
        };
        if let Some(dir) = found {
            self.names.insert(path.to_owned(), dir);
        }
        Ok(found)
    }

    /// The directory of a path.
    pub(crate) fn hold_dir(&mut self, path: &str) -> Result<u64> {
        self.find_dir(path)?.ok_or_else(|| Error::NoSuchDataset { name: path.to_owned() })
    }

    /// The live dataset of a path.
    pub(crate) fn hold_head(&mut self, path: &str) -> Result<u64> {
        let dir = self.hold_dir(path)?;
        match self.dir(dir)?.head_dataset_obj {
            0 => Err(Error::NoSuchDataset { name: path.to_owned() }),
            head => Ok(head),
        }
    }

    /// The snapshot of a head, if it exists.
    pub(crate) fn find_snapshot(&mut self, head: u64, name: &str) -> Result<Option<u64>> {
        let map = self.ds(head)?.snapnames_zapobj;
        if map == 0 { Ok(None) } else { Ok(self.zap(map)?.lookup_u64(name.as_bytes())?) }
    }

    /// The head and the snapshot of a full name `path@name`.
    pub(crate) fn hold_snapshot(&mut self, full: &str) -> Result<(u64, u64)> {
        let missing = || Error::NoSuchDataset { name: full.to_owned() };
        let (path, name) = full.split_once('@').ok_or_else(missing)?;
        let head = self.hold_head(path).map_err(|e| match e {
            Error::NoSuchDataset { .. } => missing(),
            e => e,
        })?;
        let snap = self.find_snapshot(head, name)?.ok_or_else(missing)?;
        Ok((head, snap))
    }

    /// Forgets all paths, after some were renamed or removed.
    pub(crate) fn forget_names(&mut self) {
        self.names.clear();
    }

    /// The kind of a head.
    pub(crate) fn head_kind(&mut self, head: u64) -> Result<ObjsetKind> {
        if let Some(kind) = self.kinds.get(&head) {
            return Ok(*kind);
        }
        let kind = match self.dsl.heads().get(head, self.mos().options()) {
            Some(os) => os.kind(),
            None => {
                let bp = self.ds(head)?.bp;
                if bp.is_hole() {
                    ObjsetKind::None
                } else {
                    // The root block has the kind in the clear, so no key is needed.
                    let cache = self.mos().objset().cache().clone();
                    dmu::Objset::open(cache, head, &bp, self.mos().options().clone())?.kind()
                }
            }
        };
        self.kinds.insert(head, kind);
        Ok(kind)
    }

    /// Refuses the operation on `name`.
    pub(crate) fn refuse<T>(name: &str, why: Refusal) -> Result<T> {
        Err(Error::Refused { name: name.to_owned(), why })
    }

    /// The present state of a directory.
    pub(crate) fn dir(&mut self, object: u64) -> Result<DslDirPhys> {
        let mos = self.mos();
        self.bonuses.dir(mos, object).map(|b| b.phys)
    }

    /// A directory, to be changed.
    pub(crate) fn dir_mut(&mut self, object: u64) -> Result<&mut DslDirPhys> {
        let mos = self.mos();
        let book = self.bonuses.dir(mos, object)?;
        book.dirty = true;
        Ok(&mut book.phys)
    }

    /// The present state of a dataset.
    pub(crate) fn ds(&mut self, object: u64) -> Result<DslDatasetPhys> {
        let mos = self.mos();
        self.bonuses.dataset(mos, object).map(|b| b.phys)
    }

    /// A dataset, to be changed.
    pub(crate) fn ds_mut(&mut self, object: u64) -> Result<&mut DslDatasetPhys> {
        let mos = self.mos();
        let book = self.bonuses.dataset(mos, object)?;
        book.dirty = true;
        Ok(&mut book.phys)
    }

    /// Writes the changed directories and datasets to the MOS. Without that, readers see a part of
    /// what the operations did.
    ///
    /// # Errors
    /// * [Writing](Error#writing): a directory or dataset can't be written.
    pub fn flush(&mut self) -> Result<()> {
        let mos = self.mos();
        self.bonuses.flush(mos, self.tx)
    }
}
