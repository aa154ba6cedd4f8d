//! Streams within a pool and between two pools: which are possible, and what becomes of them.
//!
//! # Theory
//! A snapshot and all that were received from it have the same id, as they have the same guid. So
//! the models say which snapshot of one pool another pool can build on, over any number of
//! snapshots between them.
//!
//! A stream that breaks off leaves a part. Until the rest is received or the part is given up, its
//! head gets no other steps, while all other heads of both pools do.

use stream::Forms;

use super::model::{MOST_PARTS, MOST_SNAPSHOTS, Model, Op, Snap};
use super::transfer::{Partial, Transfer};
use crate::crash::SplitMix;

/// Chooses a stream of a snapshot of `from`: a whole one, or one onto a head of `to` that has an
/// earlier snapshot. Newer snapshots of that head are destroyed by it.
pub(super) fn choose(from: &Model, to: &Model, dice: &mut SplitMix) -> Option<Transfer> {
    let mut onto = increments(from, to);
    let mut transfer = if !onto.is_empty() && dice.below(4) != 0 {
        onto.swap_remove(dice.below(onto.len() as u64) as usize)
    } else {
        whole(from, to, dice)?
    };
    let head = from.head_of(&transfer.snapshot);
    let target = to.datasets.heads.get(&transfer.to);
    let split = head.split || target.is_some_and(|target| target.split);
    let bits = dice.below(16);
    let raw = match target {
        Some(target) => target.encrypted,
        // Without encryption, `-w` is `-L`, `-e` and `-c`.
        None => {
            if head.encrypted {
                bits & 12 != 0
            } else {
                bits & 12 == 12 && !split
            }
        }
    };
    let large_blocks = !split && (target.is_some() || bits & 1 != 0);
    transfer.forms = Forms { large_blocks, embedded: bits & 2 != 0, compressed: dice.below(2) == 0, raw };
    transfer.resumable = dice.below(4) != 0;
    Some(transfer)
}

/// All streams onto heads of `to`.
fn increments(from: &Model, to: &Model) -> Vec<Transfer> {
    let mut all = Vec::new();
    for (name, head) in &to.datasets.heads {
        let bases = head.snapshots.iter().enumerate().filter(|(at, _)| {
            let mut later = head.snapshots[at + 1..].iter();
            *at + 1 < MOST_SNAPSHOTS && later.all(|snap| to.clones(name, &snap.name).is_empty())
        });
        for (_, base) in bases.filter(|_| !to.datasets.partials.contains_key(name)) {
            for (sender, sent) in &from.datasets.heads {
                let Some(at) = sent.snapshots.iter().position(|snap| snap.id == base.id) else { continue };
                // Keys travel in raw streams only. Blocks that were split are not joined.
                if head.encrypted && !sent.encrypted || sent.split && !head.split {
                    continue;
                }
                let is_new = |snap: &&Snap| head.snapshots.iter().all(|own| own.name != snap.name);
                all.extend(sent.snapshots[at + 1..].iter().filter(is_new).map(|snap| Transfer {
                    snapshot: format!("{sender}@{}", snap.name),
                    base: Some(format!("{sender}@{}", sent.snapshots[at].name)),
                    to: name.clone(),
                    forms: Forms::default(),
                    resumable: true,
                }));
            }
        }
    }
    all
}

/// A stream that becomes a new head.
fn whole(from: &Model, to: &Model, dice: &mut SplitMix) -> Option<Transfer> {
    let full = |name: &String, snap: &Snap| format!("{name}@{}", snap.name);
    let heads = from.datasets.heads.iter();
    let all: Vec<String> =
        heads.flat_map(|(name, head)| head.snapshots.iter().map(move |snap| full(name, snap))).collect();
    let snapshot = all.get(dice.below(all.len().max(1) as u64) as usize)?.clone();
    let to = to.has_room().then(|| format!("{}/v{}", to.name(), to.made + 1))?;
    Some(Transfer { snapshot, base: None, to, forms: Forms::default(), resumable: true })
}

/// The models of the pools of a life.
pub(super) struct Models<'a> {
    pub(super) first: &'a mut Model,
    pub(super) second: Option<&'a mut Model>,
}

impl Models<'_> {
    /// Chooses the next step from a seed, and applies it.
    pub(super) fn step(&mut self, dice: u64) -> Op {
        let mut dice = SplitMix(dice);
        let op = (0..20).find_map(|_| self.choose(&mut dice)).unwrap_or(Op::Reimport);
        self.apply(&op);
        op
    }

    fn choose(&mut self, dice: &mut SplitMix) -> Option<Op> {
        let Some(second) = self.second.as_deref_mut() else { return self.first.choose(dice, within) };
        match dice.below(20) {
            0..9 => self.first.choose(dice, within),
            9..12 => second.choose(dice, within).map(|op| Op::Second(Box::new(op))),
            12..17 => between(self.first, second, dice),
            17 => between(second, self.first, dice),
            _ => self.choose_end(dice),
        }
    }

    /// The pool with a dataset of this name.
    fn of(&mut self, name: &str) -> &mut Model {
        match self.second.as_deref_mut() {
            Some(second) if second.has(name) => second,
            _ => self.first,
        }
    }

    /// A step for a stream that broke off. If it can't be resumed, it is given up.
    fn choose_end(&mut self, dice: &mut SplitMix) -> Option<Op> {
        let second = self.second.as_deref()?;
        let parts = |model: &Model| model.datasets.partials.clone();
        let all: Vec<(String, Partial)> = parts(self.first).into_iter().chain(parts(second)).collect();
        let (to, partial) = all.get(dice.below(all.len().max(1) as u64) as usize)?.clone();
        let gives_up = dice.below(4) == 0;
        let rest = self.of(&partial.transfer.snapshot).rest(partial).filter(|_| !gives_up);
        Some(rest.map_or(Op::GiveUp(to), Op::Resume))
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Second(op) => self.second.as_deref_mut().expect("there are two pools").apply(op),
            Op::Receive(t) | Op::Cramped(t, _) | Op::Resume(t) => {
                let from = self.of(&t.snapshot);
                let (snap, encrypted) = (from.snap(&t.snapshot), from.head_of(&t.snapshot).encrypted);
                let split = from.head_of(&t.snapshot).split || !(t.forms.large_blocks || t.forms.raw);
                let base = t.base.as_ref().map(|base| from.snap(base).id);
                self.of(&t.to).receive(t, snap, base, (encrypted && t.forms.raw, split));
            }
            Op::Break(t, _) => {
                let from = self.of(&t.snapshot);
                let copies = (from.snap(&t.snapshot).copy, t.base.as_ref().map(|base| from.snap(base).copy));
                let partial = Partial { transfer: t.clone(), copies };
                self.of(&t.to).datasets.partials.insert(t.to.clone(), partial);
            }
            Op::GiveUp(to) => drop(self.of(to).datasets.partials.remove(to)),
            op => self.first.apply(op),
        }
    }
}

/// A step that sends a snapshot, and receives it elsewhere in the pool.
fn within(pool: &mut Model, dice: &mut SplitMix) -> Option<Op> {
    let transfer = choose(pool, pool, dice)?;
    pool.made += 1;
    Some(Op::Receive(transfer))
}

/// A step that sends a snapshot of one pool to another.
fn between(from: &mut Model, to: &mut Model, dice: &mut SplitMix) -> Option<Op> {
    let mut transfer = choose(from, to, dice)?;
    to.made += 1;
    let base = transfer.base.as_ref().map(|base| from.snap(base).contents);
    // A stream without records leaves nothing.
    let has_records = base != Some(from.snap(&transfer.snapshot).contents);
    Some(match dice.below(6) {
        0..2 if to.datasets.partials.len() < MOST_PARTS && has_records => {
            transfer.resumable = true;
            Op::Break(transfer, dice.below(1000))
        }
        2..4 if to.scarce => Op::Cramped(transfer, dice.below(1000)),
        _ => Op::Receive(transfer),
    })
}

impl Model {
    /// Whether a dataset of this name is one of this pool.
    pub(super) fn has(&self, name: &str) -> bool {
        name.split(['/', '@']).next() == Some(self.name())
    }

    /// The rest of a stream, if its snapshots are still there. Their heads may have other names.
    fn rest(&self, partial: Partial) -> Option<Transfer> {
        let (snapshot, base) = partial.copies;
        self.datasets.heads.iter().find_map(|(name, head)| {
            let full = |copy| {
                let snap = head.snapshots.iter().find(|snap| snap.copy == copy)?;
                Some(format!("{name}@{}", snap.name))
            };
            let base = match base {
                None => None,
                Some(base) => Some(full(base)?),
            };
            Some(Transfer { snapshot: full(snapshot)?, base, ..partial.transfer.clone() })
        })
    }

    /// Receives a snapshot, whose base has the id `base`. The flags say whether a new head is
    /// encrypted, and whether its large blocks are split.
    fn receive(
        &mut self,
        transfer: &Transfer,
        snap: Snap,
        base: Option<u64>,
        (encrypted, split): (bool, bool),
    ) {
        self.taken += 1;
        let copy = self.taken;
        self.datasets.partials.remove(&transfer.to);
        let head = self.datasets.heads.entry(transfer.to.clone()).or_default();
        if base.is_none() {
            (head.encrypted, head.split) = (encrypted, split);
        }
        let kept = head.snapshots.iter().position(|own| Some(own.id) == base).map_or(0, |at| at + 1);
        head.snapshots.truncate(kept);
        head.contents = snap.contents.clone();
        head.snapshots.push(Snap { copy, ..snap });
    }
}
