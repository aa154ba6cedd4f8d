//! The multihost heartbeat: threads that write uberblocks while no txg does.
//!
//! # See
//! OpenZFS `module/zfs/mmp.c` (`mmp_thread`, `mmp_write_uberblock`).

use std::sync::Arc;
use std::thread::JoinHandle;

use device::Device;
use observe::lock::Mutex;
use ondisk::label::{LABELS, MMP_BLOCKS_PER_LABEL, uberblock_count, uberblock_shift};
use ondisk::{Ashift, Guid, Txg, VdevConfig};
use vdev::label::LabelWriter;
use zio::Reason;

use crate::multihost::{INTERVAL, Tick};
use crate::pool_core::PoolCore;

/// The threads of a pool's heartbeat; dropping it stops them.
pub(crate) struct Beating {
    core: Arc<PoolCore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Beating {
    pub(crate) fn start(pool: &str, core: &Arc<PoolCore>) -> Beating {
        let thread = |name: &str, body: fn(&PoolCore)| {
            let core = Arc::clone(core);
            let builder = std::thread::Builder::new().name(format!("{name}/{pool}"));
            builder.spawn(move || body(&core)).expect("a process that imports a pool can start a thread")
        };
        let threads = Mutex::new(vec![thread("mmp", keep_time), thread("mmp_write", write_beats)]);
        Beating { core: Arc::clone(core), threads }
    }

    /// Stops the threads once the write under way has ended: other hosts may take the pool then.
    pub(crate) fn stop(&self) {
        self.core.heart.state.lock().closing = true;
        self.core.heart.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread that shows the pool to be in use has panicked");
            }
        }
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop();
    }
}

fn keep_time(core: &PoolCore) {
    loop {
        let suspension = core.cache.zio().suspension();
        let tick = core.heart.tick(suspension.reason().is_some(), core.uptime());
        if tick == Tick::Suspend {
            suspension.suspend(Reason::Mmp);
        }
        let leaves = beaten(core).len().max(1) as u32;
        let mut s = core.heart.state.lock();
        if s.closing {
            return;
        }
        if tick == Tick::Write && !s.asked {
            s.asked = true;
            core.heart.wake.notify_all();
        }
        match s.on {
            true => drop(core.heart.wake.wait_for(&mut s, INTERVAL / leaves)),
            false => core.heart.wake.wait(&mut s),
        }
    }
}

fn write_beats(core: &PoolCore) {
    let mut s = core.heart.state.lock();
    loop {
        if s.closing {
            return;
        }
        if !s.asked {
            core.heart.wake.wait(&mut s);
            continue;
        }
        drop(s);
        let good = beat(core);
        core.heart.done(good, beaten(core).len(), core.uptime());
        s = core.heart.state.lock();
        s.asked = false;
    }
}

/// The writable leaves, with their sector sizes.
fn beaten(core: &PoolCore) -> Vec<(Guid, Arc<dyn Device>, Ashift)> {
    let config = core.synced.read().config.clone();
    let tops = config.root().children.iter();
    let all = |top: &VdevConfig| {
        let shift = top.ashift.unwrap_or_default();
        core.leaves(top).into_iter().map(|(leaf, device)| (leaf.guid, device, shift)).collect::<Vec<_>>()
    };
    tops.flat_map(all).collect()
}

/// Writes to a random label of a random leaf; false if that failed (`mmp_write_uberblock`).
pub(crate) fn beat(core: &PoolCore) -> bool {
    let leaves = beaten(core);
    if leaves.is_empty() {
        return false;
    }
    let (guid, device, ashift) = &leaves[(core.world.random() % leaves.len() as u64) as usize];
    let shift = uberblock_shift(*ashift);
    // The first of the slots that are reserved for MMP; there is one.
    let slot = uberblock_count(shift) - MMP_BLOCKS_PER_LABEL;
    let label = core.world.random() as usize % LABELS;
    let uberblock = core.heart.next(core.world.now());
    if LabelWriter::of(&**device, *guid).uberblock(label, shift, slot, &uberblock).is_err() {
        return false;
    }
    // Other hosts read what is on the device, so a failed flush counts as a failure of the
    // write too.
    let txg = Txg(uberblock.txg.0 + 1);
    core.tree().flush_leaf(*guid, txg).is_ok()
}
