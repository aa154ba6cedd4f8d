//! Rewinding to an older state, and the list of states.
//!
//! # Theory
//! Freed blocks are not reused for some txgs, so the states of the last few uberblocks are whole.
//! Older ones may be partly overwritten. A plain rewind stays within the former, an extreme one
//! doesn't. Each step back is a new load with a lower limit. Nothing is written, so a failed step
//! costs only time.

use std::collections::BTreeMap;

use device::{Layer, Mode};
use ondisk::{Txg, Uberblock};
use pool::alloc::TXG_DEFER_SIZE;
use vdev::Tree;

use crate::error::RewindInfo;
use crate::import::devices::{Devices, Trust, top_level_leaves};
use crate::import::load::{Loader, Progress};
use crate::import::uberblock::{leaves, read_all};
use crate::import::{Options, Rewind, verify};
use crate::{Candidate, Failure, Spa, SpaError};

/// First txg of any pool (`TXG_INITIAL`).
const TXG_INITIAL: u64 = 4;
/// Most steps back: the slots of a ring of the smallest size on each label, if all differ.
const MAX_STEPS: usize = 1024;

/// Loads the newest state that can be opened within what the options allow (`spa_load_best`).
pub(super) fn best(loader: &Loader<'_>) -> Result<Spa, Box<Failure>> {
    let options: &Options = loader.options;
    let max = options.max_txg.unwrap_or(Txg(u64::MAX));
    let (devices, mut progress) = (loader.devices(), Progress::default());
    let loaded = loader.load(&devices, max, options.max_txg.is_some(), &mut progress);
    let error = match loaded {
        // A caller that wants the best state doesn't want one with damaged metadata.
        Ok(spa) if options.rewind != Rewind::No => match whole(&spa, false) {
            Ok(_) => return Ok(spa),
            Err(error) => error,
        },
        Ok(spa) => return Ok(spa),
        Err(error) => error,
    };
    let mut failure = progress.failure(error);
    let Some((last, last_time)) = failure.used.filter(|_| failure.error.worth_rewinding()) else {
        return Err(Box::new(failure));
    };
    let safe = Txg(last.0.saturating_sub(TXG_DEFER_SIZE));
    let floor = if options.rewind == Rewind::Extreme { Txg(TXG_INITIAL) } else { safe };
    let mut at = last;
    for _ in 0..MAX_STEPS {
        if at < floor || at.0 == 0 {
            break;
        }
        let limit = Txg(at.0 - 1);
        let mut step = Progress::default();
        // Export rewrites the labels last, so a label is often newer than the state of a rewind. It
        // serves all the same. OpenZFS accepts it only in an extreme rewind, and so fails where one
        // txg back would succeed.
        let found = loader
            .load(&devices, limit, true, &mut step)
            .and_then(|spa| Ok((whole(&spa, limit < safe)?, spa)));
        let Some((txg, timestamp)) = step.uberblock.map(|u| (u.txg, u.timestamp)) else { break };
        match found {
            Ok((_, mut spa)) if options.rewind != Rewind::No => {
                // Records of the log belong to abandoned txgs.
                spa.log_dropped = true;
                return Ok(spa);
            }
            Ok((data_errors, _)) => {
                let lost_secs = last_time.saturating_sub(timestamp);
                failure.rewind = Some(RewindInfo { txg, timestamp, lost_secs, data_errors });
                break;
            }
            Err(_) => at = txg,
        }
    }
    Err(Box::new(failure))
}

/// Refuses a state with damaged metadata; else gives the number of other unreadable blocks.
fn whole(spa: &Spa, all: bool) -> Result<u64, SpaError> {
    let damage = verify::damage(spa, all)?;
    if damage.metadata == 0 { Ok(damage.data) } else { Err(SpaError::Damaged { blocks: damage.metadata }) }
}

/// A state that an uberblock of the pool leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxgState {
    /// The uberblock: its txg, time and the rest.
    pub uberblock: Uberblock,
    /// Number of labels that hold it, over all devices.
    pub copies: usize,
    /// Number of devices that hold it.
    pub devices: usize,
}

/// The states of a pool's uberblocks, newest first. Only an attempt shows whether one can be
/// opened.
///
/// # Errors
/// * [`SpaError::Config`]: the labels make no valid config.
pub fn list_txgs(candidate: &Candidate) -> Result<Vec<TxgState>, SpaError> {
    let root = candidate.config.vdev_tree.as_ref().ok_or(SpaError::NoLabel)?;
    let devices = Devices::new(&candidate.members, Mode::Peek, Layer::default());
    let tops = top_level_leaves(root);
    let tree = Tree::open(root, &mut |leaf| {
        devices.open(leaf, tops.contains(&leaf.guid), Trust::Labels { pool: candidate.guid })
    })
    .map_err(SpaError::Config)?;
    let mut states: BTreeMap<(Txg, u64, [u8; 128]), TxgState> = BTreeMap::new();
    for (_, found) in read_all(&leaves(&tree, root)) {
        let mut seen = Vec::new();
        for u in found {
            let key = (u.uberblock.txg, u.uberblock.timestamp, u.uberblock.rootbp);
            let state =
                states.entry(key).or_insert(TxgState { uberblock: u.uberblock, copies: 0, devices: 0 });
            state.copies += 1;
            if !seen.contains(&key) {
                state.devices += 1;
                seen.push(key);
            }
        }
    }
    let mut states: Vec<_> = states.into_values().collect();
    states.sort_by(|a, b| b.uberblock.newer(&a.uberblock));
    Ok(states)
}
