//! The open files of a volume.
//!
//! # Locks
//! The lock for writing the header comes before the one of the header in memory, and after all
//! others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use dsl::LongHold;
use observe::lock::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ondisk::Txg;
use zpl::FileSystem;

use super::blobs::Blobs;
use super::header::{Service, Stored};
use super::instance::Instance;
use super::known::Knowledge;
use super::locks::Locks;
use super::shared::Shared;
use super::{Result, chain, now};
use crate::dump::VolumeHeader;
use crate::errors::{errno, volume as code};
use crate::types::{Date, PrincipalId, Unique, Vnode, VolSync, VolumeId};
use crate::volume::object;

/// Locks of vnodes in a volume. Vnodes with equal remainders share one.
const STRIPES: usize = 64;
/// Uniques that are reserved at a time.
pub(super) const RESERVE: u32 = 1 << 16;
/// The search for free vnodes begins anew when it is so far beyond the number of files.
const SPARSE: u32 = 1 << 16;
/// Most numbers that one search for a free vnode looks at.
const SEARCH: u32 = 1 << 24;
/// The last vnode. The numbers of OpenAFS's indices end here.
const LAST_VNODE: u32 = 1 << 30;

/// The open files of a volume.
pub struct Open {
    /// The volume.
    pub id: VolumeId,
    /// What is known of its files is noted under this.
    pub(super) instance: Instance,
    /// Whether it never changes.
    pub is_read_only: bool,
    /// When the volume was made or cloned, and its owner.
    creation_date: AtomicU32,
    owner: AtomicI32,
    version_base: u32,
    head: Mutex<Live>,
    dirty: AtomicBool,
    /// The stored header says that the counts may lack changes.
    counting: AtomicBool,
    /// Held while the header is written.
    writing: Mutex<()>,
    /// The last transaction group in which it was written.
    written: AtomicU64,
    /// A crash raised the versions of data, and the stored header lacks that. Each opening computes
    /// it again, but another partition would compute it from other crashes.
    pub(super) is_raised: bool,
    stripes: [RwLock<()>; STRIPES],
    /// The locks of clients.
    pub locks: Arc<Locks>,
    shared: Arc<Shared>,
    /// The files.
    pub fs: FileSystem,
    _hold: Option<LongHold>,
}

struct Live {
    /// The header. Its next unique is the bound that is written next.
    stored: Stored,
    next_unique: u32,
    /// The bound that is on disk.
    usable: u32,
}

fn head_needs(bound: u32, next: u32, left: u32) -> bool {
    bound.saturating_sub(next) < left
}

impl Open {
    /// The open files with this header. `locks` outlive them.
    pub(super) fn new(
        (id, instance, is_read_only): (VolumeId, Instance, bool),
        stored: Stored,
        changed: bool,
        (fs, hold): (FileSystem, Option<LongHold>),
        (locks, shared): (Arc<Locks>, Arc<Shared>),
    ) -> Self {
        let next_unique = stored.header.next_unique.0;
        let counting = AtomicBool::new(stored.is_counting);
        let open = Self {
            id,
            instance,
            is_read_only,
            counting,
            creation_date: AtomicU32::new(stored.header.creation_date.0),
            owner: AtomicI32::new(stored.header.owner.0),
            version_base: stored.version_base,
            head: Mutex::new(Live { stored, next_unique, usable: next_unique }),
            dirty: AtomicBool::new(false),
            writing: Mutex::new(()),
            written: AtomicU64::new(0),
            is_raised: false,
            stripes: std::array::from_fn(|_| RwLock::default()),
            locks,
            shared,
            fs,
            _hold: hold,
        };
        if changed {
            open.note_change();
        }
        open
    }

    /// Whether clients may use the volume, as its header says.
    pub fn service(&self) -> Service {
        self.head.lock().stored.service()
    }

    /// The header as it is now.
    pub fn header(&self) -> VolumeHeader {
        self.stored().header
    }

    /// The stored header as it is now.
    pub fn stored(&self) -> Stored {
        let head = self.head.lock();
        let mut stored = head.stored.clone();
        stored.header.next_unique = Unique(head.next_unique);
        stored
    }

    /// Changes the header in memory. [`Self::flush`] writes it.
    pub fn change_header(&self, change: impl FnOnce(&mut Stored)) {
        let mut head = self.head.lock();
        let before = head.stored.clone();
        change(&mut head.stored);
        head.stored.header.next_unique = before.header.next_unique;
        if head.stored == before {
            return;
        }
        self.creation_date.store(head.stored.header.creation_date.0, Ordering::Relaxed);
        self.owner.store(head.stored.header.owner.0, Ordering::Relaxed);
        drop(head);
        self.note_change();
    }

    /// What tells clients that the volume was replaced.
    pub fn sync(&self) -> VolSync {
        VolSync { creation_date: Date(self.creation_date.load(Ordering::Relaxed)) }
    }

    /// The owner of the volume.
    pub fn owner(&self) -> PrincipalId {
        PrincipalId(self.owner.load(Ordering::Relaxed))
    }

    /// Notes that the header in memory is newer than the stored one.
    fn note_change(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.shared.note_change(self.id);
        }
    }

    /// Whether the header in memory is newer than the stored one.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Has the stored header say that the counts may lack changes. It is part of the transaction
    /// group of the first change, or of an earlier one.
    ///
    /// # Errors
    /// [`Error::Files`](super::Error::Files): nothing may be changed.
    pub fn begin_changes(&self) -> Result<()> {
        if self.counting.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.writing.lock();
        if self.counting.load(Ordering::Acquire) {
            return Ok(());
        }
        let stored = {
            let mut head = self.head.lock();
            head.stored.is_counting = true;
            head.stored.clone()
        };
        self.write(&stored)?;
        self.counting.store(true, Ordering::Release);
        Ok(())
    }

    /// Writes the header if it changed, and reserves uniques. They may be used after the pool was
    /// synced and [`Self::reserved`] was called. Returns whether some were reserved.
    ///
    /// # Errors
    /// [`Error::Files`]: nothing is lost, and the next flush tries again.
    pub fn flush(&self) -> Result<bool> {
        if !self.fs.is_writable() {
            return Ok(false);
        }
        let _one = self.writing.lock();
        self.flush_locked(RESERVE / 2)
    }

    /// Only one thread at a time writes the header, so that an older one never follows a newer one.
    fn flush_locked(&self, left: u32) -> Result<bool> {
        let (stored, reserves, was_dirty) = {
            let mut head = self.head.lock();
            // Before the copy is made: a change after it is written by the next flush.
            let was_dirty = self.dirty.swap(false, Ordering::AcqRel);
            let Live { stored, next_unique, .. } = &mut *head;
            let bound = &mut stored.header.next_unique;
            // A volume in which nothing was created since it was opened needs none.
            let reserves = *next_unique > 1 && head_needs(bound.0, *next_unique, left) && !self.is_read_only;
            if reserves {
                *bound = Unique(bound.0.max(*next_unique).saturating_add(RESERVE));
            }
            (stored.clone(), reserves, was_dirty)
        };
        if !was_dirty && !reserves {
            return Ok(false);
        }
        if let Err(error) = self.write(&stored) {
            self.dirty.store(true, Ordering::Release);
            self.shared.note_change(self.id);
            return Err(error);
        }
        Ok(reserves)
    }

    fn write(&self, stored: &Stored) -> Result<()> {
        let txg = stored.write(&self.fs)?;
        self.written.fetch_max(txg.0, Ordering::AcqRel);
        Ok(())
    }

    /// The last transaction group in which the header was written since the volume was opened.
    pub fn written(&self) -> Txg {
        Txg(self.written.load(Ordering::Acquire))
    }

    /// The uniques up to the bound that [`Self::flush`] wrote before the last sync of the pool may
    /// be used.
    pub fn reserved(&self) {
        let _one = self.writing.lock();
        self.publish();
    }

    fn publish(&self) {
        let mut head = self.head.lock();
        head.usable = head.stored.header.next_unique.0;
    }

    /// Writes the header for the last time: uniques that were reserved and not used are free again.
    ///
    /// # Errors
    /// [`Error::Files`](super::Error::Files): nothing is lost, and the files can be used on.
    pub(super) fn close(&self) -> Result<()> {
        if !self.fs.is_writable() {
            return Ok(());
        }
        let _one = self.writing.lock();
        let stored = {
            let head = self.head.lock();
            let mut stored = head.stored.clone();
            stored.header.next_unique = Unique(head.next_unique);
            stored.is_counting = false;
            let is_raised = self.is_raised && self.written() == Txg(0);
            (self.dirty.load(Ordering::Acquire) || is_raised || stored != head.stored).then_some(stored)
        };
        let Some(stored) = stored else { return Ok(()) };
        self.write(&stored)?;
        self.head.lock().stored = stored;
        self.dirty.store(false, Ordering::Release);
        Ok(())
    }

    /// Reserves uniques at once, and waits until the reservation is on disk.
    fn reserve(&self) -> Result<()> {
        let _one = self.writing.lock();
        {
            let head = self.head.lock();
            if head.next_unique < head.usable {
                return Ok(());
            }
        }
        self.flush_locked(1)?;
        self.fs.sync()?;
        self.publish();
        Ok(())
    }

    /// A unique for a new vnode.
    ///
    /// # Errors
    /// * VIO: the reservation can't be written.
    /// * ENOSPC: the volume has no unique left.
    pub fn next_unique(&self) -> std::result::Result<Unique, i32> {
        loop {
            {
                let mut head = self.head.lock();
                if head.next_unique < head.usable {
                    head.next_unique += 1;
                    let unique = Unique(head.next_unique - 1);
                    let runs_out = head.usable - unique.0 == RESERVE / 2;
                    drop(head);
                    if runs_out {
                        // The next flush reserves more.
                        self.note_change();
                    }
                    return Ok(unique);
                }
                if head.next_unique == u32::MAX {
                    return Err(errno::ENOSPC);
                }
                head.next_unique = head.next_unique.max(2);
            }
            self.reserve().map_err(|error| {
                tracing::error!(volume = self.id.0, error = chain(&error), "no uniques can be reserved");
                code::VIO
            })?;
        }
    }

    /// A vnode that is free, for a directory or another file.
    ///
    /// # Errors
    /// * ENOSPC: none is found.
    /// * VIO: the objects can't be read.
    pub fn free_vnode(&self, directory: bool) -> std::result::Result<Vnode, i32> {
        let which = usize::from(directory);
        for _ in 0..SEARCH {
            let number = {
                let mut head = self.head.lock();
                let files = head.stored.header.file_count;
                let hint = &mut head.stored.vnode_hints[which];
                let first = 2 + which as u32;
                if *hint < first || *hint >= LAST_VNODE || *hint / 8 > files.saturating_add(SPARSE) {
                    *hint = first;
                }
                let number = *hint;
                *hint += 2;
                number
            };
            match self.fs.objset().is_free_object(object(Vnode(number))) {
                Ok(true) => return Ok(Vnode(number)),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(volume = self.id.0, error = chain(&error), "an object can't be read");
                    return Err(code::VIO);
                }
            }
        }
        Err(errno::ENOSPC)
    }

    /// Raises the version of a file whose data changed in part. The caller has locked it.
    ///
    /// # Errors
    /// The errors of [`zpl::FileSystem::truncate`].
    pub fn raise_version(&self, vnode: Vnode, user: PrincipalId) -> zpl::Result<()> {
        self.forget(vnode);
        let file = object(vnode);
        let now = self.fs.node(file)?.attr().size;
        self.fs.by_afs_user(user.0).truncate(file, now, false)
    }

    /// Counts space in KiB and files. Growth is checked against the quota.
    ///
    /// # Errors
    /// VOVERQUOTA: nothing is counted.
    pub fn charge(&self, kib: i64, files: i64) -> std::result::Result<(), i32> {
        self.charge_beyond(kib, files, 0)
    }

    /// Counts space of a store, in KiB. It may exceed the quota by [`STORE_SPARE`].
    ///
    /// # Errors
    /// VOVERQUOTA: nothing is counted.
    pub fn charge_store(&self, kib: i64) -> std::result::Result<(), i32> {
        self.charge_beyond(kib, 0, STORE_SPARE)
    }

    fn charge_beyond(&self, kib: i64, files: i64, spare: u64) -> std::result::Result<(), i32> {
        let mut head = self.head.lock();
        check_quota(&head.stored, kib, spare)?;
        head.stored.count(kib);
        let header = &mut head.stored.header;
        header.file_count = header.file_count.saturating_add_signed(files as i32);
        header.update_date = now();
        drop(head);
        self.note_change();
        Ok(())
    }

    /// Whether a store may grow a file by so many KiB.
    ///
    /// # Errors
    /// VOVERQUOTA.
    pub fn check_store(&self, kib: i64) -> std::result::Result<(), i32> {
        check_quota(&self.head.lock().stored, kib, STORE_SPARE)
    }

    /// Counts space in KiB that is used already, whatever the quota says.
    pub fn charge_over(&self, kib: i64) {
        self.head.lock().stored.count(kib);
        self.note_change();
    }

    /// The version that clients see.
    pub fn version(&self, stored: u64) -> u32 {
        (stored as u32).wrapping_add(self.version_base)
    }

    /// The blobs of directories.
    pub fn blobs(&self) -> &Blobs {
        &self.shared.blobs
    }

    /// What is known of files.
    pub fn knowledge(&self) -> &Knowledge {
        &self.shared.known
    }

    /// Locks a vnode for reading, if no thread changes it or waits to.
    pub fn try_lock_shared(&self, vnode: Vnode) -> Option<RwLockReadGuard<'_, ()>> {
        self.stripes[vnode.0 as usize % STRIPES].try_read()
    }

    /// Locks a vnode for reading, by a thread that may have this lock already. `None`: another
    /// thread changes the vnode, or this one does.
    pub fn try_lock_again(&self, vnode: Vnode) -> Option<RwLockReadGuard<'_, ()>> {
        self.stripes[vnode.0 as usize % STRIPES].try_read_recursive()
    }

    /// Locks a vnode for reading.
    pub fn lock_shared(&self, vnode: Vnode) -> RwLockReadGuard<'_, ()> {
        self.stripes[vnode.0 as usize % STRIPES].read()
    }

    /// Locks more vnodes for changes, if that needs no wait. The caller has locked the others so.
    pub fn try_lock_too(&self, more: &[Vnode], locked: &[Vnode]) -> Option<Vec<RwLockWriteGuard<'_, ()>>> {
        let of = |vnode: &Vnode| vnode.0 as usize % STRIPES;
        let mut stripes: Vec<usize> = more.iter().map(of).collect();
        stripes.retain(|stripe| locked.iter().all(|other| of(other) != *stripe));
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.stripes[stripe].try_write()).collect()
    }

    /// Locks vnodes for changes.
    pub fn lock(&self, vnodes: &[Vnode]) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut stripes: Vec<usize> = vnodes.iter().map(|vnode| vnode.0 as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.stripes[stripe].write()).collect()
    }
}

/// By how many KiB stores may exceed a quota (the default of the option `-spare` of OpenAFS's file
/// server). A client stores a file when it is closed, and many programs ignore the error.
const STORE_SPARE: u64 = 1024;

fn check_quota(stored: &Stored, kib: i64, spare: u64) -> std::result::Result<(), i32> {
    let quota = u64::from(stored.header.quota);
    let over = quota != 0 && stored.used.saturating_add_signed(kib) > quota + spare;
    if kib > 0 && over { Err(code::VOVERQUOTA) } else { Ok(()) }
}
