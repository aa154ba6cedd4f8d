//! Writing the heads of a txg, several at a time.
//!
//! # Theory
//! The writes of one head depend on no other head. A txg that creates thousands of datasets, or
//! changes each a little, consists of small batches. Written one head after the other, these would
//! leave processors idle. So several threads write heads.
//!
//! * With one worker, heads are written in order, and space is allocated the same way each time.
//! * With at least two heads for each thread, a thread writes its heads without helpers.

use std::sync::atomic::{AtomicUsize, Ordering};

use dmu::Tx;
use observe::lock::Mutex;
use ondisk::Blkptr;
use zio::Workers;

use super::HeadSync;
use crate::Result;

/// A head, and its new root block.
pub(super) type Written<'a> = (HeadSync<'a>, Blkptr);

impl<'a> HeadSync<'a> {
    /// Writes the head.
    pub(super) fn write(mut self, tx: &Tx, pass: u32, workers: &Workers) -> Result<Written<'a>> {
        let root = self.os.sync(tx, pass, &mut self.sink, workers)?;
        Ok((self, root))
    }
}

/// Writes all heads; the results are in the order of the heads.
///
/// # Errors
/// The first error in that order.
pub(super) fn all<'a>(heads: Vec<HeadSync<'a>>, tx: &Tx, pass: u32) -> Result<Vec<Written<'a>>> {
    let Some(first) = heads.first() else { return Ok(Vec::new()) };
    let workers = first.os.cache().zio().workers();
    let threads = workers.count().min(heads.len());
    if threads < 2 {
        return heads.into_iter().map(|head| head.write(tx, pass, &workers)).collect();
    }
    let count = heads.len();
    let items: Vec<Mutex<Option<HeadSync<'a>>>> = heads.into_iter().map(|h| Mutex::new(Some(h))).collect();
    let results: Vec<Mutex<Option<Result<Written<'a>>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let inline = (count >= threads * 2).then(Workers::inline);
    let workers = inline.as_ref().unwrap_or(&*workers);
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(n) else { return };
            let head = item.lock().take().expect("each number is given out once");
            *results[n].lock() = Some(head.write(tx, pass, workers));
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    results.into_iter().map(|slot| slot.into_inner().expect("every head was written")).collect()
}
