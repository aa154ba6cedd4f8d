//! Which datasets an import must look at.
//!
//! # Theory
//! An import claims intent logs, and destroys what receives left incomplete. OpenZFS opens each
//! dataset to find them. With a hundred thousand datasets that takes most of the import.
//!
//! Here the pool keeps a list of these heads as they were in some txg. A head can have got a log
//! since only by a new root block, whose pointer is in the bonus of the head's object in the MOS.
//! So the objects in blocks of the MOS that were born later ([`dmu::Objset::changes_since`]) and
//! those of the list are all that an import must look at. That holds whatever program has written
//! the pool since, and an old list is only slower.
//!
//! # On disk
//! The entry [`UNSETTLED`] of the pool's directory. OpenZFS does not know it, and keeps it.
//!
//! | word | what |
//! | --- | --- |
//! | 0 | layout: 1 |
//! | 1 | the txg |
//! | 2 and following | the heads |
//!
//! It is written in the first txg after an import, in the last one before an export, and once a
//! minute with a txg that is written anyway. With more heads than [`MOST`], the old list stays.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dmu::{Change, Tx};
use dsl::Dsl;
use observe::lock::Mutex;
use ondisk::mos::UNSETTLED;
use ondisk::{ObjNum, Txg};
use pool::Mos;

const LAYOUT: u64 = 1;
/// Most heads of the list. A value of a ZAP has 1,024 words at most.
const MOST: usize = 1000;
/// Seconds from one list to the next.
const PERIOD: u64 = 60;
/// Items for which one more thread is started.
const STEP: usize = 16;

/// The heads that had to be looked at in some txg.
struct List {
    txg: Txg,
    heads: Vec<u64>,
}

impl List {
    /// The list of a pool whose last txg is `synced`. `None`: it has none that is of use.
    fn read(mos: &Mos, synced: Txg) -> pool::Result<Option<Self>> {
        let words = mos.dir_words(UNSETTLED)?.unwrap_or_default();
        let [LAYOUT, txg, heads @ ..] = &words[..] else { return Ok(None) };
        let list = Self { txg: Txg(*txg), heads: heads.to_vec() };
        Ok((list.txg <= synced && list.heads.len() <= MOST).then_some(list))
    }
}

/// The heads that an import of a pool whose last txg is `synced` must look at, in order. `None`: it
/// must look at all datasets.
pub(crate) fn heads(dsl: &Dsl, synced: Txg, threads: usize) -> dsl::Result<Option<Vec<u64>>> {
    let Some(list) = List::read(dsl.mos(), synced)? else { return Ok(None) };
    let mut objects: BTreeSet<u64> = list.heads.into_iter().collect();
    for change in dsl.mos().objset().changes_since(list.txg, ObjNum(1)) {
        if let Change::Used(object) = change? {
            objects.insert(object.0);
        }
    }
    let objects: Vec<u64> = objects.into_iter().collect();
    let found = Mutex::new(Ok(Vec::new()));
    in_threads(&objects, threads, &|object| {
        let is_unsettled = dsl.is_unsettled(ObjNum(*object));
        match (&mut *found.lock(), is_unsettled) {
            (Ok(all), Ok(true)) => all.push(*object),
            (found @ Ok(_), Err(e)) => *found = Err(e),
            (_, _) => {}
        }
    });
    let mut heads = found.into_inner()?;
    heads.sort_unstable();
    Ok(Some(heads))
}

/// Does some work for each item, in several threads at once: it waits for metadata.
pub(crate) fn in_threads<T: Sync>(items: &[T], threads: usize, work: &(impl Fn(&T) + Sync)) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len().div_ceil(STEP)) {
            // Fewer threads do the same work, only slower.
            let _ = std::thread::Builder::new().name("spa-survey".into()).spawn_scoped(scope, run);
        }
        run();
    });
}

/// When the list of a live pool is written next.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    /// In seconds since 1970; 0: with the next txg; the largest number: never.
    next: AtomicU64,
}

impl Keeper {
    /// Keeps the old list: the new one would lack heads that could not be read.
    pub(crate) fn stop(&self) {
        self.next.store(u64::MAX, Ordering::Release);
    }

    /// Has the next txg write the list.
    pub(crate) fn hurry(&self) {
        let _ = self
            .next
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| (next != u64::MAX).then_some(0));
    }

    /// The list to write in the txg of `tx`, if it is due. Nothing of the txg is written yet.
    pub(crate) fn due(&self, dsl: &Dsl, tx: &Tx, now: u64) -> Option<Vec<u64>> {
        let next = self.next.load(Ordering::Acquire);
        // A clock that was set back must not stop it for long.
        if next == u64::MAX || next > now && next <= now + PERIOD {
            return None;
        }
        let heads = dsl.heads().unsettled();
        let words = [LAYOUT, tx.txg().0 - 1].into_iter().chain(heads);
        Some(words.collect()).filter(|words: &Vec<u64>| words.len() <= MOST + 2)
    }

    /// Writes a list of [`Self::due`].
    pub(crate) fn write(&self, mos: &Mos, tx: &Tx, words: &[u64], now: u64) -> pool::Result<()> {
        mos.set_dir_words(tx, UNSETTLED, words)?;
        self.next.store(now + PERIOD, Ordering::Release);
        Ok(())
    }
}
