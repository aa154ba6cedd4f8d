//! Files whose pages the kernel is to drop.
//!
//! # Theory
//! What is written through a shared map is in the page cache before anybody is asked, and nobody is asked when a file is opened. So a file that can't be
//! changed (it is immutable, append-only, or in a snapshot) has wrong bytes in the cache when its pages are refused, and the kernel keeps them: it takes
//! that for a fault of the device. It is told to drop them (`FUSE_NOTIFY_INVAL_INODE`), after which everybody reads what is in the file.
//!
//! # Locks
//! Telling it waits until pages that were changed again are refused again, for which a worker is needed: so one thread does nothing else, and a
//! mount is served until it is done ([`Refused::quiet`]). A file waits once, however often it is refused.

use super::Shared;
use crate::abi::{self, InvalEntry, InvalInode, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, OutHeader};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// The files, by mount and node number.
#[derive(Default)]
pub(super) struct Refused {
    files: Mutex<Files>,
    changed: Condvar,
    /// Held for reading while the kernel is told, by several at a time.
    telling: RwLock<()>,
}

#[derive(Default)]
struct Files {
    waiting: BTreeSet<(u64, u64)>,
    stopped: bool,
}

impl Refused {
    /// The kernel has wrong pages of a file.
    pub(super) fn add(&self, mount: u64, nodeid: u64) {
        self.files.lock().waiting.insert((mount, nodeid));
        self.changed.notify_one();
    }

    /// Waits until nobody tells the kernel of a mount, and has nobody begin as long as what comes back is kept.
    pub(super) fn quiet(&self) -> RwLockWriteGuard<'_, ()> {
        self.telling.write()
    }

    /// What is kept while the kernel is told.
    pub(super) fn telling(&self) -> RwLockReadGuard<'_, ()> {
        self.telling.read()
    }

    /// Has [`Refused::tell`] end.
    pub(super) fn stop(&self) {
        self.files.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Tells the kernel, until somebody says stop.
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

/// The message that has the kernel drop what a name in a directory means.
pub(super) fn drop_name(parent: u64, name: &[u8]) -> Vec<u8> {
    let namelen = u32::try_from(name.len()).expect("names are short");
    let len = size_of::<OutHeader>() + size_of::<InvalEntry>() + name.len() + 1;
    let head =
        OutHeader { len: u32::try_from(len).expect("names are short"), error: NOTIFY_INVAL_ENTRY, unique: 0 };
    let body = InvalEntry { parent, namelen, flags: 0 };
    [head.as_bytes(), body.as_bytes(), name, &[0]].concat()
}

/// The message that has the kernel drop all pages and attributes of a file.
pub(super) fn drop_pages(nodeid: u64) -> [u8; size_of::<OutHeader>() + size_of::<InvalInode>()] {
    let mut message = [0; size_of::<OutHeader>() + size_of::<InvalInode>()];
    let len = u32::try_from(message.len()).expect("forty bytes");
    let (head, body) = message.split_at_mut(size_of::<abi::OutHeader>());
    head.copy_from_slice(OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 }.as_bytes());
    body.copy_from_slice(InvalInode { nodeid, offset: 0, length: 0 }.as_bytes());
    message
}
