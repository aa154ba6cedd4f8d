//! Automatic TRIM: freed space is discarded a while later (`autotrim=on`).
//!
//! # Theory
//! The allocator records which space may be used again. Every few seconds a part of the metaslabs
//! is checked, one in [`BATCH`]. So space that is reused again and again is discarded only once.
//! Those with enough to discard are set aside one by one, and what is still free is discarded on
//! each device. As in OpenZFS, it skips devices that are being replaced or have a spare, and those
//! under `zpool trim`.
//!
//! The records are lost when the pool is released, and of a metaslab that an allocation waits for.
//! `zpool trim` finds that space.
//!
//! # See
//! OpenZFS `vdev_autotrim_thread`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use observe::{Tunable, Unit};
use ondisk::{Guid, VdevId, VdevKind};
use pool::alloc::{DisableOutcome, DisabledMetaslab};
use pool::range::RangeSet;

use crate::initialize_trim::worker::{TRIM_MAX, TRIM_MIN, whole};
use crate::initialize_trim::{Control, InitializeTrim, WorkKind};

/// Rounds in which each metaslab is checked once (`zfs_trim_txg_batch`).
pub static BATCH: Tunable = Tunable::new(
    "zfs_trim_txg_batch",
    32,
    1..=1 << 20,
    Unit::Count,
    "number of rounds over which autotrim visits every metaslab",
);

/// A metaslab with something to discard, and the devices that may lie below it.
struct Due {
    top: VdevId,
    metaslab: u32,
    leaves: Vec<Guid>,
}

impl InitializeTrim {
    /// The metaslabs of a round; those of all rounds if `None`.
    fn due(&self, round: Option<u64>) -> Vec<Due> {
        let (config, tree) = (self.core.config_now(), self.core.tree());
        let batch = BATCH.get().max(1);
        let now = |id: &u32| round.is_none_or(|round| u64::from(*id) % batch == round % batch);
        let mut out = Vec::new();
        for top in &config.root().children {
            let id = VdevId(top.id as u32);
            if !tree.holds_blocks(id) {
                continue;
            }
            let below = if top.kind.is_leaf() { std::slice::from_ref(top) } else { &top.children[..] };
            let fit = |kind| matches!(kind, VdevKind::Disk | VdevKind::File);
            let leaves: Vec<Guid> =
                below.iter().filter(|leaf| fit(leaf.kind)).map(|leaf| leaf.guid).collect();
            for metaslab in self.core.allocator.freed_lately(id, TRIM_MIN.get()).into_iter().filter(now) {
                out.push(Due { top: id, metaslab, leaves: leaves.clone() });
            }
        }
        out
    }

    /// Starts a thread that discards what is due, if the pool wants that and none is running.
    pub(crate) fn trim_by_itself(self: &Arc<Self>) {
        let on = self.core.is_on("autotrim");
        self.core.allocator.note_frees(on);
        if !on || self.core.cache.zio().suspension().reason().is_some() {
            return;
        }
        let _one = self.works.commands.lock();
        let mut auto = self.works.auto.lock();
        if auto.as_ref().is_some_and(|(thread, _)| !thread.is_finished()) {
            return;
        }
        let due = self.due(Some(self.works.round.fetch_add(1, Relaxed)));
        if due.is_empty() {
            return;
        }
        let (me, control) = (Arc::clone(self), Arc::new(Control::default()));
        let mine = Arc::clone(&control);
        let name = format!("vdev_autotrim/{}", self.core.dsl.pool_name());
        // If no thread can be started, a later round does it.
        if let Ok(thread) = std::thread::Builder::new().name(name).spawn(move || me.trim_due(due, &mine)) {
            *auto = Some((thread, control));
        }
    }

    /// Ends the thread, and waits for it.
    pub(crate) fn stop_trimming(&self) {
        let auto = self.works.auto.lock().take();
        if let Some((thread, control)) = auto {
            control.stop();
            thread.join().expect("a panic ends the program");
        }
    }

    fn trim_due(&self, due: Vec<Due>, control: &Control) {
        let stop = || control.is_stopped() || self.core.cache.zio().suspension().reason().is_some();
        for one in due {
            if stop() {
                return;
            }
            // A metaslab that can't be set aside now keeps its records.
            if let Ok(DisableOutcome::Disabled(aside)) =
                self.core.allocator.disable_metaslab(one.top, one.metaslab, &stop)
            {
                let freed = aside.take_freed();
                one.leaves.iter().for_each(|leaf| self.trim_freed_on(*leaf, &freed, &aside, &stop));
            }
        }
    }

    /// Discards what lies on one device. The device counts a discard that it refuses.
    fn trim_freed_on(
        &self,
        leaf: Guid,
        freed: &[(u64, u64)],
        aside: &DisabledMetaslab<'_>,
        stop: &dyn Fn() -> bool,
    ) {
        let tree = self.core.tree();
        let by_hand = || self.works.all.lock().get(&(leaf, WorkKind::Trim)).is_some_and(|work| work.runs());
        if !tree.is_writable(leaf) || !tree.can_trim(leaf) || by_hand() {
            return;
        }
        let mut runs = RangeSet::new();
        for (start, end) in freed {
            // A device that has left meanwhile has nothing to discard.
            if tree.translate(leaf, *start, *end, &mut |start, end| runs.cover(start, end)).is_err() {
                return;
            }
        }
        let most = whole(TRIM_MAX.get(), 1 << 16);
        for (start, end) in runs.iter().filter(|(start, end)| end - start >= TRIM_MIN.get()) {
            let mut at = start;
            while at < end {
                if stop() || aside.is_wanted() || !tree.is_writable(leaf) {
                    return;
                }
                let len = (end - at).min(most);
                let _ = tree.discard(leaf, at, len);
                at += len;
            }
        }
    }
}

impl InitializeTrim {
    /// Discards at once what was freed since the last time, if `autotrim=on`.
    pub fn trim_freed(self: &Arc<Self>) {
        self.trim_by_itself();
        let thread = self.works.auto.lock().take();
        if let Some((thread, _)) = thread {
            thread.join().expect("a panic ends the program");
        }
        self.trim_due(self.due(None), &Control::default());
    }
}
