//! Claiming the intent logs of all datasets when a pool is opened for writing.
//!
//! # Theory
//! A dataset's root block says whether it has a log; then the chain is read. Only datasets that may
//! have one are looked at ([`unsettled`]). A pool whose last import was by another program may not
//! say which these are. Then many threads go over all datasets, because the work is waiting for
//! metadata. Datasets with nothing to claim are not touched.
//!
//! The first txg claims the blocks of all other logs, and changes their headers, before anything
//! else can allocate. [`super::open_for_writing`] holds that txg open until this is done.
//!
//! If a failing device hides the end of a log, the import fails, because fsynced data would be
//! lost. If log devices are missing and the caller allows that, or the pool was rewound, all logs
//! are dropped. Their allocated blocks are freed.
//!
//! # Absent
//! Replay: it happens when the dataset is opened.
//!
//! # See
//! OpenZFS `spa_check_logs`, `spa_ld_claim_log_blocks`, `zil_claim`.

use dmu::{Objset, Tx};
use dsl::ops::receive::{RECEIVING, ReceiveAbort};
use dsl::{Dataset, Dsl, ListOptions, Listed};
use observe::lock::Mutex;
use ondisk::objset::ZIL_HEADER;
use ondisk::{Blkptr, ObjNum, Txg, mos};
use zil::{Claimant, Log, Plan};
use zio::{ReadOptions, Space};

use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::PoolWriter;
use crate::import::open_for_writing::WriteRefusal;
use crate::import::{Pass, unsettled};
use crate::pool_core::PoolCore;

/// Which logs to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// None.
    None,
    /// Those not yet claimed at the checkpoint that the pool is rewound to: their blocks may be
    /// overwritten.
    Unclaimed,
    /// Those in use when the pool was split off. A log that waits for its replay prevents the
    /// split.
    Written,
    /// All: of a pool that was rewound, or that lacks log devices (`SPA_LOG_CLEAR`).
    All,
}

/// The decision about a log.
enum Fate {
    /// It is claimed.
    Claim(Box<Plan>),
    /// It is dropped; these blocks of it are allocated.
    Drop(Vec<Blkptr>),
}

/// The logs that the first txg changes.
pub(crate) struct Logs {
    logs: Vec<(Dataset, Fate)>,
    /// The datasets of receives that broke off and can't be resumed.
    incomplete: Vec<(String, u64)>,
    /// All heads with a log, and those that are not complete.
    unsettled: Vec<u64>,
    /// No other head may be such a one.
    is_whole: bool,
}

/// A look at datasets, by several threads.
struct Survey {
    synced: Txg,
    give_up: GiveUp,
    found: Mutex<Vec<Result<(Dataset, Fate), WriteRefusal>>>,
    incomplete: Mutex<Vec<(String, u64)>>,
    unsettled: Mutex<Vec<u64>>,
    /// All could be read.
    is_whole: AtomicBool,
}

impl Survey {
    fn new(synced: Txg, give_up: GiveUp) -> Self {
        let (found, incomplete, unsettled) = Default::default();
        Self { synced, give_up, found, incomplete, unsettled, is_whole: AtomicBool::new(true) }
    }

    fn look(&self, listed: Listed) {
        let result = match listed {
            // What a receive left has no log.
            Listed::Failed { name, .. } if name.ends_with(RECEIVING) => {
                self.is_whole.store(false, Ordering::Relaxed);
                return;
            }
            Listed::Failed { error, .. } => Err(WriteRefusal::from(error)),
            // The pool's own directories have no logs.
            Listed::Dataset(dataset) if is_own(&dataset.name()) => return,
            Listed::Dataset(dataset) if dataset.is_inconsistent() => {
                self.unsettled.lock().push(dataset.object().0);
                // What can't be read stays.
                if let Ok(None) = dataset.field(mos::DS_RESUME_TOGUID) {
                    self.incomplete.lock().push((dataset.name(), dataset.object().0));
                }
                return;
            }
            Listed::Dataset(dataset) => match self.fate(&dataset) {
                Ok(None) => return,
                Ok(Some(fate)) => Ok((dataset, fate)),
                Err(e) => Err(e),
            },
        };
        self.found.lock().push(result);
    }

    fn end(self) -> Result<Logs, WriteRefusal> {
        let mut logs = self.found.into_inner().into_iter().collect::<Result<Vec<_>, _>>()?;
        // Sorted, so that of logs that want the same blocks always the same one gets them.
        logs.sort_by_key(|(dataset, _)| dataset.object());
        let mut incomplete = self.incomplete.into_inner();
        // A dataset is destroyed before the one above it.
        incomplete.sort_by(|a, b| b.cmp(a));
        let (unsettled, is_whole) = (self.unsettled.into_inner(), self.is_whole.into_inner());
        Ok(Logs { logs, incomplete, unsettled, is_whole })
    }

    /// The decision about a dataset's log; `None` if it has none, or the log may stay as it is.
    fn fate(&self, dataset: &Dataset) -> Result<Option<Fate>, WriteRefusal> {
        let Some(os) = dataset.objset()? else { return Ok(None) };
        if os.phys().zil_header != [0; ZIL_HEADER.end - ZIL_HEADER.start] {
            self.unsettled.lock().push(dataset.object().0);
        }
        fate(dataset, &os, self.synced, self.give_up)
    }
}

/// Whether it is a directory of the pool itself, or in one: `$MOS`, `$FREE`, `$ORIGIN`.
fn is_own(name: &str) -> bool {
    name.split('/').nth(1).is_some_and(|top| top.starts_with('$'))
}

impl Logs {
    /// Reads all logs, and changes nothing. `synced` is the last txg of the state that is opened.
    ///
    /// # Errors
    /// * [`WriteRefusal::Log`]: a device hides the end of a log.
    /// * Other variants of [`WriteRefusal`]: a dataset cannot be read.
    pub(crate) fn survey(dsl: &Dsl, synced: Txg, give_up: GiveUp, pass: &Pass) -> Result<Logs, WriteRefusal> {
        // If that fails, the look at all datasets names the one that can't be read.
        let heads = unsettled::heads(dsl, synced, pass.threads).ok().flatten();
        let datasets = heads.map(|heads| {
            let dataset = |head| dsl.by_object(ObjNum(head));
            heads.into_iter().map(dataset).collect::<dsl::Result<Vec<_>>>()
        });
        let Some(Ok(datasets)) = datasets else { return Self::survey_all(dsl, synced, give_up, pass) };
        let survey = Survey::new(synced, give_up);
        unsettled::in_threads(&datasets, pass.threads, &|dataset| {
            survey.look(Listed::Dataset(dataset.clone()));
        });
        let logs = survey.end()?;
        // A log that is missed is data lost.
        #[cfg(debug_assertions)]
        if let Ok(all) = Self::survey_all(dsl, synced, give_up, pass) {
            let of = |logs: &Logs| logs.logs.iter().map(|(dataset, _)| dataset.object()).collect::<Vec<_>>();
            assert_eq!((of(&logs), &logs.incomplete), (of(&all), &all.incomplete), "not all logs were found");
        }
        Ok(logs)
    }

    fn survey_all(dsl: &Dsl, synced: Txg, give_up: GiveUp, pass: &Pass) -> Result<Logs, WriteRefusal> {
        let survey = Survey::new(synced, give_up);
        // Receives have hidden datasets.
        let options = ListOptions { threads: pass.threads, hidden: true, ..ListOptions::default() };
        dsl.list(None, &options, &|listed| survey.look(listed))?;
        survey.end()
    }

    /// Notes the heads that the next import must look at too, for now.
    pub(crate) fn note_unsettled(&self, dsl: &Dsl, keeper: &unsettled::Keeper) {
        if !self.is_whole {
            keeper.stop();
        }
        self.unsettled.iter().for_each(|head| dsl.heads().note_unsettled(*head));
    }

    /// Destroys what is left of receives that broke off and can't be resumed
    /// (`dsl_destroy_inconsistent`).
    ///
    /// What can't be destroyed stays, and is tried again when the pool is next opened.
    ///
    /// # Errors
    /// * [`WriteRefusal`]: the pool has stopped.
    pub(crate) fn destroy_incomplete(&self, live: &PoolWriter) -> Result<(), WriteRefusal> {
        if self.incomplete.is_empty() {
            return Ok(());
        }
        let task = |(_, object): &(_, u64)| Box::new(ReceiveAbort { object: *object, hold: None }) as Box<_>;
        // One that is refused has clones or damage, and does no harm.
        live.run_all(self.incomplete.iter().map(task).collect())?;
        Ok(())
    }

    /// The latest birth of a block to claim (`spa_claim_max_txg`).
    pub(crate) fn latest(&self) -> Txg {
        let plans = self.logs.iter().filter_map(|(_, fate)| match fate {
            Fate::Claim(plan) => plan.births().max(),
            Fate::Drop(_) => None,
        });
        plans.max().unwrap_or(Txg(0))
    }

    /// Claims and drops logs in the txg of `tx`, which must be the first.
    ///
    /// # Errors
    /// * [`WriteRefusal`]: a dataset cannot be opened, or a space map cannot be read. Nothing has
    ///   changed.
    pub(crate) fn settle(&self, live: &PoolWriter, tx: &Tx) -> Result<(), WriteRefusal> {
        let core = &*live.parts().core;
        self.learn_what_is_free(core)?;
        let own = |(dataset, _): &(Dataset, Fate)| {
            let dsl = live.dsl();
            dsl.heads().own_locked(&dsl.dataset(&dataset.name())?)
        };
        let heads = self.logs.iter().map(own).collect::<dsl::Result<Vec<_>>>()?;
        let mut taker = Taker { core, txg: tx.txg(), shared: Vec::new() };
        for (owned, (_, fate)) in heads.iter().zip(&self.logs) {
            let header = match fate {
                Fate::Claim(plan) => plan.take(&mut taker).encode(),
                Fate::Drop(blocks) => {
                    // Blocks on log devices that the pool no longer has are gone with them.
                    let tree = core.tree();
                    let here = |bp: &&Blkptr| {
                        bp.stored().is_none_or(|s| s.copies().all(|dva| !is_hole(&tree, dva.vdev)))
                    };
                    live.free_log(tx, blocks.iter().filter(here).copied().collect());
                    [0; ZIL_HEADER.end - ZIL_HEADER.start]
                }
            };
            owned.objset().set_zil_header(tx, header).map_err(dsl::Error::from)?;
        }
        live.parts().sync.claimed.lock().append(&mut taker.shared);
        Ok(())
    }
}

impl Logs {
    /// Loads the space maps of the logs' blocks. A log whose space is unknown must not look like
    /// one that ends there.
    fn learn_what_is_free(&self, core: &PoolCore) -> Result<(), pool::Error> {
        for (_, fate) in &self.logs {
            let Fate::Claim(plan) = fate else { continue };
            for bp in plan.blocks() {
                let Ok(places) = core.cache.zio().places(bp, &ReadOptions::demand()) else { continue };
                places.iter().try_for_each(|(dva, _)| core.allocator.is_allocated(dva).map(drop))?;
            }
        }
        Ok(())
    }
}

fn is_hole(tree: &vdev::Tree, vdev: ondisk::VdevId) -> bool {
    tree.top_spec(vdev).map_or(true, |top| top.kind == ondisk::VdevKind::Hole)
}

fn fate(dataset: &Dataset, os: &Objset, synced: Txg, give_up: GiveUp) -> Result<Option<Fate>, WriteRefusal> {
    let Some(log) = Log::open(os, synced.0, 0)? else { return Ok(None) };
    let lost = || WriteRefusal::Log { dataset: dataset.name() };
    let claimed = log.header().claim_txg != 0;
    match (claimed, give_up) {
        (true, GiveUp::Written) => Err(WriteRefusal::Unreplayed { dataset: dataset.name() }),
        (true, GiveUp::All) => Ok(Some(Fate::Drop(log.references()))),
        // The log waits for its replay; whether that is readable shows now.
        (true, GiveUp::None | GiveUp::Unclaimed) if log.is_cut_short() => Err(lost()),
        (true, GiveUp::None | GiveUp::Unclaimed) => Ok(None),
        (false, GiveUp::All | GiveUp::Unclaimed | GiveUp::Written) => {
            Ok(Some(Fate::Drop(log.plan().allocated())))
        }
        (false, GiveUp::None) => {
            let plan = log.plan();
            if plan.cut_short().is_some() {
                return Err(lost());
            }
            Ok((!plan.is_idle()).then(|| Fate::Claim(Box::new(plan))))
        }
    }
}

/// Claims blocks in the first txg.
struct Taker<'a> {
    core: &'a PoolCore,
    txg: Txg,
    /// Blocks that gain a reference.
    shared: Vec<Blkptr>,
}

impl Claimant for Taker<'_> {
    fn take(&mut self, bp: &Blkptr) -> bool {
        // Finding a gang block's places reads its header; checking its data has read it before.
        let Ok(places) = self.core.cache.zio().places(bp, &ReadOptions::demand()) else { return false };
        let allocator = &self.core.allocator;
        for (n, (dva, _)) in places.iter().enumerate() {
            if !allocator.claim(dva, self.txg).is_ok_and(|free| free) {
                places[..n].iter().for_each(|(taken, _)| allocator.unallocate(taken, self.txg));
                return false;
            }
        }
        true
    }

    fn share(&mut self, bps: &[Blkptr]) -> bool {
        let allocator = &self.core.allocator;
        let is_allocated = |dva: &ondisk::Dva| allocator.is_allocated(dva).is_ok_and(|allocated| allocated);
        let held = |bp: &Blkptr| bp.stored().is_some_and(|s| s.copies().all(is_allocated));
        let all = bps.iter().all(held);
        if all {
            self.shared.extend_from_slice(bps);
        }
        all
    }
}
