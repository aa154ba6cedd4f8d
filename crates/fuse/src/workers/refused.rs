//! Files with pages that the kernel has to drop.
//!
//! # Theory
//! A program that writes through a shared map changes the page cache before any check, and the
//! kernel sends no request at the open. So for a file that can't change, the cache has wrong bytes
//! once its pages are refused. Such a file is immutable, append-only or in a snapshot.
//!
//! The kernel takes the refusal for a failure of the device, and keeps the pages. So a thread has
//! the kernel drop them (`FUSE_NOTIFY_INVAL_INODE`). After that every program reads the bytes of
//! the file.
//!
//! # Locks
//! The notification waits until pages that were changed again are refused again, and that needs a
//! worker. So one thread does nothing but send these notifications. A mount is served until a
//! notification in progress is done ([`Refused::quiet`]). A file is queued once, however often its
//! pages are refused.

use super::Shared;
use crate::abi::{self, InvalEntry, InvalInode, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, OutHeader};
use observe::lock::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// The files, by mount and node number.
#[derive(Default)]
pub(super) struct Refused {
    files: Mutex<Files>,
    changed: Condvar,
    /// Held for reading during a notification; several may run at a time.
    telling: RwLock<()>,
}

#[derive(Default)]
struct Files {
    waiting: BTreeSet<(u64, u64)>,
    stopped: bool,
}

impl Refused {
    /// Queues a file of which the kernel has wrong pages.
    pub(super) fn add(&self, mount: u64, nodeid: u64) {
        self.files.lock().waiting.insert((mount, nodeid));
        self.changed.notify_one();
    }

    /// Waits until no notification is in progress, and prevents new ones while the caller keeps the
    /// result.
    pub(super) fn quiet(&self) -> RwLockWriteGuard<'_, ()> {
        self.telling.write()
    }

    /// A lock to hold during a notification.
    pub(super) fn telling(&self) -> RwLockReadGuard<'_, ()> {
        self.telling.read()
    }

    /// Has [`Refused::tell`] return.
    pub(super) fn stop(&self) {
        self.files.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Sends notifications until [`Refused::stop`].
    pub(super) fn tell(&self, shared: &Shared) {
        loop {
            let mut files = self.files.lock();
            while files.waiting.is_empty() && !files.stopped {
                self.changed.wait(&mut files);
            }
            if files.stopped {
                return;
            }
            let Some((mount, nodeid)) = files.waiting.pop_first() else { continue };
            drop(files);
            let _telling = self.telling.read();
            let Some(session) = shared.sessions.read().get(&mount).cloned() else { continue };
            if let Err(errno) = session.notify(&drop_pages(nodeid)) {
                tracing::warn!(nodeid, %errno, "the kernel keeps pages that are not the file's");
            }
        }
    }
}

/// The message by which the kernel drops what it knows of a name in a directory.
pub(super) fn drop_name(parent: u64, name: &[u8]) -> Vec<u8> {
    let namelen = u32::try_from(name.len()).expect("names are short");
    let len = size_of::<OutHeader>() + size_of::<InvalEntry>() + name.len() + 1;
    let head =
        OutHeader { len: u32::try_from(len).expect("names are short"), error: NOTIFY_INVAL_ENTRY, unique: 0 };
    let body = InvalEntry { parent, namelen, flags: 0 };
    [head.as_bytes(), body.as_bytes(), name, &[0]].concat()
}

/// The message by which the kernel drops all pages and attributes of a file.
pub(super) fn drop_pages(nodeid: u64) -> [u8; size_of::<OutHeader>() + size_of::<InvalInode>()] {
    let mut message = [0; size_of::<OutHeader>() + size_of::<InvalInode>()];
    let len = u32::try_from(message.len()).expect("forty bytes");
    let (head, body) = message.split_at_mut(size_of::<abi::OutHeader>());
    head.copy_from_slice(OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 }.as_bytes());
    body.copy_from_slice(InvalInode { nodeid, offset: 0, length: 0 }.as_bytes());
    message
}
