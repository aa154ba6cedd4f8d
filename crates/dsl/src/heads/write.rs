//! Writing the heads of a group, several at a time.
//!
//! # Theory
//! What a head's sync writes depends on no other head, so each is written by itself: a group in which thousands of datasets were made or
//! changed a little consists of small batches, which leave processors idle one after the other. With one worker they are written in order,
//! and space is allocated the same way each time. Where there are as many heads as threads, each thread writes its heads by itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use dmu::Tx;
use ondisk::Blkptr;
use parking_lot::Mutex;
use zio::{Alone, Patience};

use super::HeadSync;
use crate::Result;

/// A head, and where its object set is now.
pub(super) type Written<'a> = (HeadSync<'a>, Blkptr);

impl<'a> HeadSync<'a> {
    /// Writes it.
    pub(super) fn write(mut self, tx: &Tx, pass: u32) -> Result<Written<'a>> {
        let root = self.os.sync(tx, pass, &mut self.sink)?;
        Ok((self, root))
    }
}

/// Writes all of them; the answers are in their order.
///
/// # Errors
/// The first in that order.
pub(super) fn all<'a>(heads: Vec<HeadSync<'a>>, tx: &Tx, pass: u32) -> Result<Vec<Written<'a>>> {
    let workers = heads.first().map_or(1, |head| head.os.cache().zio().workers().count());
    let threads = workers.min(heads.len());
    if threads < 2 {
        return heads.into_iter().map(|head| head.write(tx, pass)).collect();
    }
    let count = heads.len();
    let items: Vec<Mutex<Option<HeadSync<'a>>>> = heads.into_iter().map(|h| Mutex::new(Some(h))).collect();
    let results: Vec<Mutex<Option<Result<Written<'a>>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    // A thread has its patience for itself: who waits for devices that fail has others wait for him.
    let patient = Patience::is_here();
    let work = || {
        let _patience = patient.then(Patience::begin);
        let _alone = (count >= threads * 2).then(Alone::begin);
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(n) else { return };
            let head = item.lock().take().expect("each number is given out once");
            *results[n].lock() = Some(head.write(tx, pass));
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    results.into_iter().map(|slot| slot.into_inner().expect("every head was written")).collect()
}
