//! What the pool must hold, and which steps are possible next.

use std::collections::BTreeMap;

use super::shape::Shape;
use super::slots::{DeviceOp, Faults, Slots, image};
use super::terms::{Second, Terms};
use super::transfer::{Partial, Transfer};
use crate::crash::SplitMix;

/// The most heads at a time.
const MOST_HEADS: usize = 12;
/// The same in a pool with scarce space.
const FEW_HEADS: usize = 3;
/// The most snapshots of a head.
pub(super) const MOST_SNAPSHOTS: usize = 6;
/// How many objects each dataset may hold.
pub(super) const OBJECTS: u64 = 4;
/// The most bytes of an object.
const MOST_BYTES: u64 = 400_000;
/// The same if a pool has scarce space: the last transaction group may exceed the space by a 32nd.
const MANY_BYTES: u64 = 2_400_000;
/// The most parts of streams that wait in a pool to be resumed.
pub(super) const MOST_PARTS: usize = 2;
/// Property values that steps set.
const SETTINGS: [(&str, &str); 15] = [
    ("compression", "off"),
    ("compression", "lz4"),
    ("compression", "zstd"),
    ("checksum", "sha256"),
    ("checksum", "fletcher4"),
    ("checksum", "blake3"),
    ("compression", "gzip-1"),
    ("compression", "zle"),
    ("dedup", "on"),
    ("dedup", "verify"),
    ("dedup", "off"),
    ("special_small_blocks", "16K"),
    ("copies", "2"),
    ("copies", "1"),
    ("poolhouse:soak", "yes"),
];

/// The contents of a dataset: its objects.
pub type Contents = BTreeMap<u64, Vec<u8>>;

/// A snapshot of a head.
#[derive(Debug, Clone)]
pub(super) struct Snap {
    pub(super) name: String,
    /// What no other snapshot has but those that were received from it, as a guid.
    pub(super) id: u64,
    /// What no other snapshot has.
    pub(super) copy: u64,
    pub(super) contents: Contents,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    pub(super) contents: Contents,
    /// Oldest first.
    pub(super) snapshots: Vec<Snap>,
    /// The head and the snapshot that it was cloned from.
    origin: Option<(String, String)>,
    /// It has an encryption key of its own.
    pub(super) encrypted: bool,
    /// It was received without `-L`: its large blocks were split.
    pub(super) split: bool,
}

/// The datasets of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Datasets {
    pub(super) heads: BTreeMap<String, Head>,
    /// What interrupted receives have left, by the name of the head.
    pub(super) partials: BTreeMap<String, Partial>,
}

/// What a pool must hold.
#[derive(Debug, Clone)]
pub struct Model {
    pool: &'static str,
    pub(super) datasets: Datasets,
    /// The datasets when the checkpoint was taken, if there is one.
    checkpoint: Option<Datasets>,
    pub(super) made: u64,
    /// How many snapshots were taken or received, above a number that is the pool's own.
    pub(super) taken: u64,
    /// Whether snapshots are sent and received in the pool.
    streams: bool,
    /// Whether objects have blocks and dnodes of many sizes, and object [`OBJECTS`] large blocks.
    pub(super) wide: bool,
    /// The most bytes of an object.
    most_bytes: u64,
    /// Whether the pool has so little space that it is filled up before some receives.
    pub(super) scarce: bool,
    slots: Slots,
    /// Names of the images of hot spares.
    spares: Vec<String>,
    /// Which faults devices have.
    faults: Faults,
}

/// One step of a life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Create a file system.
    Create(String),
    /// Create an encrypted file system.
    CreateEncrypted(String),
    /// Write bytes that follow from a seed.
    Write {
        /// The head.
        head: String,
        /// The object. It is created if it does not exist.
        object: u64,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The seed of the bytes.
        seed: u64,
    },
    /// Zero bytes of an object: offset and length.
    Punch(String, u64, u64, u64),
    /// Free an object.
    Remove(String, u64),
    /// Give an object of a head the contents of another, by block cloning.
    Share(String, u64, u64),
    /// Take snapshots in one transaction group. Full names.
    Snapshot(Vec<String>),
    /// Destroy a snapshot.
    DestroySnapshot(String),
    /// Clone a snapshot as a new head.
    Clone(String, String),
    /// Make a clone the origin of its origin.
    Promote(String),
    /// Roll back to the last snapshot.
    Rollback(String),
    /// Rename a head.
    Rename(String, String),
    /// Destroy a head.
    Destroy(String),
    /// Send a snapshot, and receive it in the same pool or another one.
    Receive(Transfer),
    /// The same, but the stream breaks off at so many thousandths, and stays to be resumed.
    Break(Transfer, u64),
    /// The same, but the target first has space for about so many thousandths of the
    /// stream. For the lowest of them, the receive does not even begin.
    Cramped(Transfer, u64),
    /// Resume a receive that broke off, with its token.
    Resume(Transfer),
    /// Give up a receive into a head that broke off.
    GiveUp(String),
    /// A step of the second pool.
    Second(Box<Op>),
    /// Set a property to a value.
    Set(String, &'static str, &'static str),
    /// Export the pool and import it again.
    Reimport,
    /// Take a checkpoint of the pool.
    Checkpoint,
    /// Discard the checkpoint.
    Discard,
    /// Rewind the pool to the checkpoint.
    Rewind,
    /// Do an operation to a device.
    Device(DeviceOp),
}

impl Op {
    /// The head that a stream goes into.
    pub(super) fn receives_into(&self) -> Option<&String> {
        match self {
            Op::Receive(t) | Op::Break(t, _) | Op::Cramped(t, _) | Op::Resume(t) => Some(&t.to),
            Op::GiveUp(to) => Some(to),
            _ => None,
        }
    }
}

/// Bytes that follow from a seed. Every other page is compressible.
pub(super) fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut dice = SplitMix(seed);
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).collect();
    out.truncate(len as usize);
    out.chunks_mut(8192).for_each(|page| page.iter_mut().skip(4096).for_each(|b| *b &= 1));
    out
}

fn most_bytes(terms: &Terms) -> u64 {
    if terms.second == Some(Second::Scarce) { MANY_BYTES } else { MOST_BYTES }
}

/// Names of snapshots and heads of the second pool have higher numbers.
const SECOND: u64 = 1_000_000;

impl Model {
    /// The name of the first pool.
    pub const POOL: &'static str = "soak";
    /// The name of the second pool.
    pub const SECOND: &'static str = "copy";

    /// The first pool of a life.
    pub(super) fn first(terms: &Terms) -> Model {
        let streams = terms.streams;
        let model = Model::of(Model::POOL, terms.shape, terms.faults);
        Model { streams, wide: terms.second.is_some(), most_bytes: most_bytes(terms), ..model }
    }

    /// The second pool of a life, if there is one.
    pub(super) fn second(terms: &Terms) -> Option<Model> {
        let scarce = terms.second? == Second::Scarce;
        let model = Model::of(Model::SECOND, terms.second_shape(), terms.faults);
        let most_bytes = most_bytes(terms);
        Some(Model { made: SECOND, taken: SECOND, wide: true, most_bytes, scarce, ..model })
    }

    fn of(pool: &'static str, shape: Shape, faults: Faults) -> Model {
        let heads = BTreeMap::from([(pool.to_owned(), Head::default())]);
        let first: usize = shape.tops.iter().map(|(.., count)| count).sum();
        Model {
            pool,
            datasets: Datasets { heads, partials: BTreeMap::new() },
            checkpoint: None,
            made: 0,
            taken: 0,
            streams: false,
            wide: false,
            most_bytes: MOST_BYTES,
            scarce: false,
            slots: Slots::new(shape),
            spares: (first..first + shape.spares).map(image).collect(),
            faults,
        }
    }

    /// The name of the pool.
    pub fn name(&self) -> &'static str {
        self.pool
    }

    /// Whether there may be another head.
    pub(super) fn has_room(&self) -> bool {
        self.datasets.heads.len() < if self.scarce { FEW_HEADS } else { MOST_HEADS }
    }

    /// The steps that end a life.
    pub(super) fn ends(&mut self) -> Vec<Op> {
        let discard = self.checkpoint.is_some().then_some(Op::Discard);
        let ops: Vec<Op> = discard.into_iter().chain([Op::Device(DeviceOp::Settle)]).collect();
        ops.iter().for_each(|op| self.apply(op));
        ops
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(super) fn spares(&self) -> &[String] {
        &self.spares
    }

    /// What each dataset must hold, by name.
    pub fn seen(&self) -> BTreeMap<String, Contents> {
        let mut out = BTreeMap::new();
        for (name, head) in &self.datasets.heads {
            out.insert(name.clone(), head.contents.clone());
            let snapshots = head.snapshots.iter().map(|s| (format!("{name}@{}", s.name), s.contents.clone()));
            out.extend(snapshots);
        }
        out
    }

    /// The heads that may change: not the root, nor what waits for the rest of a stream.
    fn free(&self) -> impl Iterator<Item = &String> {
        let Datasets { heads, partials } = &self.datasets;
        heads.keys().filter(|name| **name != self.pool && !partials.contains_key(*name))
    }

    /// One of the heads that may change.
    fn any(&self, dice: &mut SplitMix) -> Option<String> {
        let names: Vec<&String> = self.free().collect();
        (!names.is_empty()).then(|| names[dice.below(names.len() as u64) as usize].clone())
    }

    pub(super) fn clones(&self, head: &str, snapshot: &str) -> Vec<&String> {
        let of = |h: &&Head| h.origin.as_ref().is_some_and(|(o, s)| o == head && s == snapshot);
        self.datasets.heads.iter().filter(|(_, h)| of(h)).map(|(n, _)| n).collect()
    }

    /// Chooses the next step. `within` chooses a stream within the pool.
    pub(super) fn choose(
        &mut self,
        dice: &mut SplitMix,
        within: fn(&mut Model, &mut SplitMix) -> Option<Op>,
    ) -> Option<Op> {
        if self.faults != Faults::None && dice.below(4) == 0 {
            return self.slots.choose(dice, self.faults, self.checkpoint.is_some()).map(Op::Device);
        }
        // A life without streams has the steps that it had before there were any.
        match dice.below(if self.streams { 124 } else { 108 }) {
            108.. => within(self, dice),
            0..12 => self.choose_new_head(dice),
            kind @ 99..103 => self.choose_for_pool(kind),
            kind @ 54..80 => self.choose_for_snapshots(kind, dice),
            kind => self.choose_for_head(kind, dice),
        }
    }

    fn choose_new_head(&mut self, dice: &mut SplitMix) -> Option<Op> {
        self.made += 1;
        let (room, made, pool) = (self.has_room(), self.made, self.pool);
        let encrypted = dice.below(4) < if self.wide { 2 } else { 1 };
        room.then(|| match encrypted {
            true => Op::CreateEncrypted(format!("{pool}/e{made}")),
            false => Op::Create(format!("{pool}/fs{made}")),
        })
    }

    /// A step for the whole pool.
    fn choose_for_pool(&self, kind: u64) -> Option<Op> {
        match (kind, &self.checkpoint) {
            (99, _) => Some(Op::Reimport),
            // DTLs describe the newest state only, so a checkpoint needs healthy devices.
            (100, None) => self.slots.are_well().then_some(Op::Checkpoint),
            (100..102, Some(_)) => Some(Op::Discard),
            (102, Some(_)) => Some(Op::Rewind),
            _ => None,
        }
    }

    /// A step that makes, destroys or clones a snapshot.
    fn choose_for_snapshots(&mut self, kind: u64, dice: &mut SplitMix) -> Option<Op> {
        let name = self.any(dice)?;
        let head = &self.datasets.heads[&name];
        if kind < 66 {
            self.made += 1;
            let snap = format!("s{}", self.made);
            // One dataset, or all in one transaction group.
            let all = dice.below(4) == 0;
            let of: Vec<String> = self.free().filter(|n| all || **n == name).cloned().collect();
            let room = of.iter().all(|n| self.datasets.heads[n].snapshots.len() < MOST_SNAPSHOTS);
            return room.then(|| Op::Snapshot(of.iter().map(|n| format!("{n}@{snap}")).collect()));
        }
        let at = dice.below(head.snapshots.len().max(1) as u64) as usize;
        let snap = &head.snapshots.get(at)?.name;
        let full = format!("{name}@{snap}");
        if kind < 74 {
            return self.clones(&name, snap).is_empty().then_some(Op::DestroySnapshot(full));
        }
        let encrypted = head.encrypted;
        self.made += 1;
        // A clone must be below its origin's encryption root.
        (self.has_room() && !encrypted).then(|| Op::Clone(full, format!("{}/c{}", self.pool, self.made)))
    }

    /// Whether an object has large blocks.
    ///
    /// It is never removed. So a snapshot and its copies agree on whether their dataset uses large
    /// blocks: they do as soon as there is the object.
    pub(super) fn is_large(&self, object: u64) -> bool {
        self.wide && object == OBJECTS
    }

    fn choose_write(&self, head: String, dice: &mut SplitMix) -> Option<Op> {
        let mut object = 1 + dice.below(OBJECTS);
        let offset = dice.below(self.most_bytes / 2);
        let mut len = 1 + dice.below(self.most_bytes / 2);
        let seed = dice.roll();
        match self.wide.then(|| dice.below(12)) {
            // Alone in its block, this is embedded in the pointer.
            Some(0..2) => len = 1 + dice.below(80),
            Some(2) => {
                let object = *self.datasets.heads[&head].contents.keys().next()?;
                return Some(Op::Punch(head, object, offset, len));
            }
            _ => {}
        }
        if self.is_large(object) && self.datasets.heads[&head].split {
            object = 1;
        }
        Some(Op::Write { head, object, offset, len, seed })
    }

    /// A step for one head.
    fn choose_for_head(&mut self, kind: u64, dice: &mut SplitMix) -> Option<Op> {
        let name = self.any(dice)?;
        let head = &self.datasets.heads[&name];
        match kind {
            12..50 => self.choose_write(name, dice),
            50..54 => {
                let object = *head.contents.keys().next()?;
                (!self.is_large(object)).then_some(Op::Remove(name, object))
            }
            80..84 => {
                let (origin, snap) = head.origin.clone()?;
                let waits = self.datasets.partials.contains_key(&origin);
                // The clone takes over the origin's snapshots up to its own origin. Their names
                // must be free in the clone.
                let moved = self.datasets.heads[&origin].snapshots.iter().position(|s| s.name == snap)? + 1;
                let taken = |s: &Snap| head.snapshots.iter().any(|own| own.name == s.name);
                let room = moved + head.snapshots.len() <= MOST_SNAPSHOTS;
                let free = !self.datasets.heads[&origin].snapshots[..moved].iter().any(taken);
                (room && free && !waits).then_some(Op::Promote(name))
            }
            84..89 => (!head.snapshots.is_empty()).then_some(Op::Rollback(name)),
            89..92 => {
                self.made += 1;
                Some(Op::Rename(name, format!("{}/r{}", self.pool, self.made)))
            }
            92..96 => head.snapshots.is_empty().then_some(Op::Destroy(name)),
            103..108 => {
                let from = *head.contents.keys().next_back()?;
                let to = 1 + dice.below(OBJECTS);
                let alike = !self.is_large(from) && !self.is_large(to);
                (from != to && alike).then_some(Op::Share(name, from, to))
            }
            _ => {
                let (prop, value) = SETTINGS[dice.below(SETTINGS.len() as u64) as usize];
                Some(Op::Set(name, prop, value))
            }
        }
    }

    fn head(&mut self, name: &str) -> &mut Head {
        self.datasets.heads.get_mut(name).expect("a step is chosen among what is there")
    }

    /// The head of a snapshot.
    pub(super) fn head_of(&self, snapshot: &str) -> &Head {
        let (head, _) = snapshot.split_once('@').expect("it names a snapshot");
        self.datasets.heads.get(head).expect("a step is chosen among what is there")
    }

    /// A snapshot by its full name.
    pub(super) fn snap(&self, full: &str) -> Snap {
        let found =
            self.head_of(full).snapshots.iter().find(|snap| full.ends_with(&format!("@{}", snap.name)));
        found.expect("a step is chosen among what is there").clone()
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Create(name) | Op::CreateEncrypted(name) => {
                let encrypted = matches!(op, Op::CreateEncrypted(_));
                self.datasets.heads.insert(name.clone(), Head { encrypted, ..Head::default() });
            }
            Op::Write { head, object, offset, len, seed } => {
                let held = self.head(head).contents.entry(*object).or_default();
                let end = (offset + len) as usize;
                held.resize(held.len().max(end), 0);
                held[*offset as usize..end].copy_from_slice(&bytes(*seed, *len));
            }
            Op::Punch(head, object, offset, len) => self.punch(head, *object, *offset, *len),
            Op::Remove(head, object) => drop(self.head(head).contents.remove(object)),
            Op::Share(head, from, to) => {
                let contents = &mut self.head(head).contents;
                let bytes = contents.get(from).expect("a step is chosen among what is there").clone();
                contents.insert(*to, bytes);
            }
            Op::Snapshot(names) => {
                for (name, snap) in names.iter().filter_map(|n| n.split_once('@')) {
                    self.taken += 1;
                    let id = self.taken;
                    let head = self.head(name);
                    let contents = head.contents.clone();
                    head.snapshots.push(Snap { name: snap.to_owned(), id, copy: id, contents });
                }
            }
            Op::DestroySnapshot(full) => {
                let (name, snap) = full.split_once('@').expect("it names a snapshot");
                self.head(name).snapshots.retain(|s| s.name != snap);
            }
            Op::Clone(full, name) => {
                let contents = self.snap(full).contents;
                let split = self.head_of(full).split;
                let (origin, snap) = full.split_once('@').expect("it names a snapshot");
                let origin = Some((origin.to_owned(), snap.to_owned()));
                self.datasets.heads.insert(name.clone(), Head { contents, origin, split, ..Head::default() });
            }
            Op::Promote(name) => self.promote(name),
            Op::Rollback(name) => {
                let head = self.head(name);
                head.contents =
                    head.snapshots.last().expect("a step is chosen among what is there").contents.clone();
            }
            Op::Rename(old, new) => {
                let head = self.datasets.heads.remove(old).expect("a step is chosen among what is there");
                self.datasets.heads.insert(new.clone(), head);
                for (origin, _) in self.datasets.heads.values_mut().filter_map(|h| h.origin.as_mut()) {
                    if origin == old {
                        origin.clone_from(new);
                    }
                }
            }
            Op::Destroy(name) => drop(self.datasets.heads.remove(name)),
            Op::Set(..) | Op::Reimport => {}
            Op::Checkpoint => self.checkpoint = Some(self.datasets.clone()),
            Op::Discard => self.checkpoint = None,
            Op::Device(op) => self.slots.apply(op),
            Op::Rewind => {
                self.datasets = self.checkpoint.take().expect("a step is chosen among what is there");
                self.slots.rewind();
            }
            _ => unreachable!("two pools may take part in it"),
        }
    }

    fn punch(&mut self, head: &str, object: u64, offset: u64, len: u64) {
        let held = self.head(head).contents.entry(object).or_default();
        let at = |n: u64| held.len().min(n as usize);
        let range = at(offset)..at(offset + len);
        held[range].fill(0);
    }

    fn promote(&mut self, name: &str) {
        let (origin, snap) = self.head(name).origin.clone().expect("it is a clone");
        let from = self.head(&origin);
        let moved = from.snapshots.iter().position(|s| s.name == snap).expect("its origin is there") + 1;
        let mut snapshots: Vec<_> = from.snapshots.drain(..moved).collect();
        let names: Vec<String> = snapshots.iter().map(|s| s.name.clone()).collect();
        let grand = from.origin.replace((name.to_owned(), snap));
        let head = self.head(name);
        snapshots.append(&mut head.snapshots);
        head.snapshots = snapshots;
        head.origin = grand;
        // Other clones of the moved snapshots now have this dataset as their origin.
        for (other, h) in &mut self.datasets.heads {
            if let Some((o, s)) = &mut h.origin
                && other != name
                && *o == origin
                && names.contains(s)
            {
                name.clone_into(o);
            }
        }
    }
}
