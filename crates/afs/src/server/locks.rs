//! The locks that clients take on files.
//!
//! # Theory
//! Locks are advisory, and a lease of five minutes. A client extends it. Locks have a count and no
//! owner: who holds one is the client's matter. They are lost when the server stops, as every lease
//! that is not extended.
//!
//! # See
//! OpenAFS: `HandleLocking` in `src/viced/afsfileprocs.c`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use observe::lock::Mutex;

use crate::errors::errno::EAGAIN;
use crate::types::Vnode;

/// How long a lock holds (`AFS_LOCKWAIT`).
const LEASE: Duration = Duration::from_secs(5 * 60);
/// Most locked files of a volume. Expired locks are removed first.
const MOST: usize = 1 << 16;

/// A lock of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// For reading: others may have read locks too.
    Read,
    /// For writing.
    Write,
}

#[derive(Debug, Clone, Copy)]
struct Lock {
    /// -1 for a write lock, else the number of read locks.
    count: i32,
    until: Instant,
}

/// The locks of a volume's files.
#[derive(Debug, Default)]
pub struct Locks {
    table: Mutex<HashMap<Vnode, Lock>>,
    /// Whether there was ever a lock. Each status asks for locks, and few volumes have any.
    any: AtomicBool,
}

impl Locks {
    /// Locks a file.
    ///
    /// # Errors
    /// EAGAIN: another lock is in the way, or the volume has too many.
    pub fn set(&self, vnode: Vnode, kind: Kind, now: Instant) -> Result<(), i32> {
        let mut locks = self.table.lock();
        let held = locks.get(&vnode).filter(|lock| lock.until > now).map_or(0, |lock| lock.count);
        let count = match kind {
            Kind::Read if held >= 0 => held + 1,
            Kind::Write if held == 0 => -1,
            _ => return Err(EAGAIN),
        };
        if locks.len() >= MOST && !locks.contains_key(&vnode) {
            locks.retain(|_, lock| lock.until > now);
            if locks.len() >= MOST {
                return Err(EAGAIN);
            }
        }
        locks.insert(vnode, Lock { count, until: now + LEASE });
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Extends a lock.
    ///
    /// # Errors
    /// EINVAL: the file has none.
    pub fn extend(&self, vnode: Vnode, now: Instant) -> Result<(), i32> {
        match self.table.lock().get_mut(&vnode).filter(|lock| lock.until > now) {
            Some(lock) => {
                lock.until = now + LEASE;
                Ok(())
            }
            None => Err(crate::errors::errno::EINVAL),
        }
    }

    /// Releases a lock, if the file has one. Returns whether others can lock it for writing since.
    pub fn release(&self, vnode: Vnode, now: Instant) -> bool {
        let mut locks = self.table.lock();
        match locks.get_mut(&vnode).filter(|lock| lock.until > now) {
            Some(lock) if lock.count > 1 => {
                lock.count -= 1;
                false
            }
            _ => locks.remove(&vnode).is_some(),
        }
    }

    /// Removes the locks of a file that is gone.
    pub fn forget(&self, vnode: Vnode) {
        self.table.lock().remove(&vnode);
    }

    /// -1 for a write lock, else the number of read locks.
    pub fn count(&self, vnode: Vnode, now: Instant) -> i32 {
        if !self.any.load(Ordering::Acquire) {
            return 0;
        }
        let locks = self.table.lock();
        locks.get(&vnode).filter(|lock| lock.until > now).map_or(0, |lock| lock.count)
    }

    /// The locked files with their counts.
    pub fn all(&self, now: Instant) -> Vec<(Vnode, i32)> {
        let held = |(vnode, lock): (&Vnode, &Lock)| (lock.until > now).then_some((*vnode, lock.count));
        self.table.lock().iter().filter_map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: readers share, a writer is alone, a released or expired lock is free, and a lock that
    /// is extended holds on.
    #[test]
    fn leases() {
        let (locks, file, now) = (Locks::default(), Vnode(2), Instant::now());
        locks.set(file, Kind::Read, now).unwrap();
        locks.set(file, Kind::Read, now).unwrap();
        assert_eq!((locks.set(file, Kind::Write, now), locks.count(file, now)), (Err(EAGAIN), 2));
        assert!(!locks.release(file, now));
        assert!(locks.release(file, now));
        assert!(!locks.release(file, now));
        locks.set(file, Kind::Write, now).unwrap();
        assert_eq!((locks.set(file, Kind::Read, now), locks.count(file, now)), (Err(EAGAIN), -1));
        let later = now + LEASE - Duration::from_secs(1);
        locks.extend(file, later).unwrap();
        assert_eq!(locks.count(file, now + LEASE), -1);
        assert_eq!(locks.count(file, later + LEASE), 0);
        assert_eq!(locks.extend(file, later + LEASE), Err(crate::errors::errno::EINVAL));
        locks.set(file, Kind::Read, later + LEASE).unwrap();
        assert_eq!(locks.all(later + LEASE), [(file, 1)]);
    }
}
