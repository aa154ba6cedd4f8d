//! What the pool must hold, and which steps are possible next.

use std::collections::BTreeMap;

use super::pool::Terms;
use super::slots::{DeviceOp, Faults, Slots, image};
use crate::crash::SplitMix;

/// The most heads at a time.
const MOST_HEADS: usize = 12;
/// The most snapshots of a head.
const MOST_SNAPSHOTS: usize = 6;
/// How many objects each dataset may hold.
pub(super) const OBJECTS: u64 = 4;
/// The most bytes of an object.
const MOST_BYTES: u64 = 400_000;
const POOL: &str = "soak";
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
struct Snap {
    name: String,
    /// What no other snapshot has but those that were received from it.
    id: u64,
    contents: Contents,
}

#[derive(Debug, Clone, Default)]
struct Head {
    contents: Contents,
    /// Oldest first.
    snapshots: Vec<Snap>,
    /// The head and the snapshot that it was cloned from.
    origin: Option<(String, String)>,
    /// It has an encryption key of its own.
    encrypted: bool,
}

/// The datasets of a pool.
#[derive(Debug, Clone)]
pub struct Model {
    heads: BTreeMap<String, Head>,
    /// The heads when the checkpoint was taken, if there is one.
    checkpoint: Option<BTreeMap<String, Head>>,
    made: u64,
    /// How many snapshots were taken.
    taken: u64,
    /// Whether snapshots are sent and received.
    streams: bool,
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
    /// Send a snapshot, and receive it as a new head or into one that has its base.
    Receive {
        /// The full name of the snapshot.
        snapshot: String,
        /// That of the snapshot that it builds on.
        base: Option<String>,
        /// The head.
        to: String,
    },
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

/// Bytes that follow from a seed. Every other page is compressible.
pub(super) fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut dice = SplitMix(seed);
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).collect();
    out.truncate(len as usize);
    out.chunks_mut(8192).for_each(|page| page.iter_mut().skip(4096).for_each(|b| *b &= 1));
    out
}

impl Model {
    /// The name of the pool.
    pub const POOL: &'static str = POOL;

    /// A new pool of this shape.
    pub fn new(Terms { shape, faults, streams, .. }: Terms) -> Model {
        let heads = BTreeMap::from([(POOL.to_owned(), Head::default())]);
        let first: usize = shape.tops.iter().map(|(.., count)| count).sum();
        let spares = (first..first + shape.spares).map(image).collect();
        let slots = Slots::new(shape);
        Model { heads, checkpoint: None, made: 0, taken: 0, streams, slots, spares, faults }
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
        for (name, head) in &self.heads {
            out.insert(name.clone(), head.contents.clone());
            let snapshots = head.snapshots.iter().map(|s| (format!("{name}@{}", s.name), s.contents.clone()));
            out.extend(snapshots);
        }
        out
    }

    /// Chooses the next step from a seed, and applies it to the model.
    pub fn step(&mut self, dice: u64) -> Op {
        let mut dice = SplitMix(dice);
        let op = (0..20).find_map(|_| self.choose(&mut dice)).unwrap_or(Op::Reimport);
        self.apply(&op);
        op
    }

    /// One of the heads, except the root.
    fn any(&self, dice: &mut SplitMix) -> Option<String> {
        let names: Vec<&String> = self.heads.keys().filter(|n| *n != POOL).collect();
        (!names.is_empty()).then(|| names[dice.below(names.len() as u64) as usize].clone())
    }

    fn clones(&self, head: &str, snapshot: &str) -> Vec<&String> {
        let of = |h: &&Head| h.origin.as_ref().is_some_and(|(o, s)| o == head && s == snapshot);
        self.heads.iter().filter(|(_, h)| of(h)).map(|(n, _)| n).collect()
    }

    fn choose(&mut self, dice: &mut SplitMix) -> Option<Op> {
        if self.faults != Faults::None && dice.below(4) == 0 {
            return self.slots.choose(dice, self.faults, self.checkpoint.is_some()).map(Op::Device);
        }
        // A life without streams has the steps that it had before there were any.
        match dice.below(if self.streams { 124 } else { 108 }) {
            108.. => self.choose_stream(dice),
            0..12 => self.choose_new_head(dice),
            kind @ 99..103 => self.choose_for_pool(kind),
            kind @ 54..80 => self.choose_for_snapshots(kind, dice),
            kind => self.choose_for_head(kind, dice),
        }
    }

    fn choose_new_head(&mut self, dice: &mut SplitMix) -> Option<Op> {
        self.made += 1;
        let (room, made) = (self.heads.len() < MOST_HEADS, self.made);
        let encrypted = dice.below(4) == 0;
        room.then(|| match encrypted {
            true => Op::CreateEncrypted(format!("{POOL}/e{made}")),
            false => Op::Create(format!("{POOL}/fs{made}")),
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
        let head = &self.heads[&name];
        if kind < 66 {
            self.made += 1;
            let snap = format!("s{}", self.made);
            // One dataset, or all in one transaction group.
            let all = dice.below(4) == 0;
            let of: Vec<String> =
                self.heads.keys().filter(|n| all && *n != POOL || **n == name).cloned().collect();
            let room = of.iter().all(|n| self.heads[n].snapshots.len() < MOST_SNAPSHOTS);
            return room.then(|| Op::Snapshot(of.iter().map(|n| format!("{n}@{snap}")).collect()));
        }
        let at = dice.below(head.snapshots.len().max(1) as u64) as usize;
        let snap = &head.snapshots.get(at)?.name;
        let full = format!("{name}@{snap}");
        if kind < 74 {
            return self.clones(&name, snap).is_empty().then_some(Op::DestroySnapshot(full));
        }
        self.made += 1;
        // A clone must be below its origin's encryption root.
        (self.heads.len() < MOST_HEADS && !head.encrypted)
            .then(|| Op::Clone(full, format!("{POOL}/c{}", self.made)))
    }

    /// A step that sends a snapshot and receives it elsewhere: whole, or onto a head whose newest
    /// snapshot is its predecessor.
    fn choose_stream(&mut self, dice: &mut SplitMix) -> Option<Op> {
        let all = || self.heads.iter().flat_map(|(name, head)| head.snapshots.iter().map(move |s| (name, s)));
        let full = |(head, snap): (&String, &Snap)| format!("{head}@{}", snap.name);
        let next = |id: u64| {
            self.heads.iter().find_map(|(from, other)| {
                let at = other.snapshots.iter().position(|snap| snap.id == id)?;
                let next = other.snapshots.get(at + 1)?;
                Some((full((from, next)), full((from, &other.snapshots[at]))))
            })
        };
        let onto = self.heads.iter().filter_map(|(to, head)| {
            let has_room = head.snapshots.len() < MOST_SNAPSHOTS && !head.encrypted;
            let (snapshot, base) = head.snapshots.last().filter(|_| has_room).and_then(|s| next(s.id))?;
            Some(Op::Receive { snapshot, base: Some(base), to: to.clone() })
        });
        let mut onto: Vec<Op> = onto.collect();
        if !onto.is_empty() && dice.below(4) != 0 {
            return Some(onto.swap_remove(dice.below(onto.len() as u64) as usize));
        }
        let count = all().count() as u64;
        let snapshot = all().nth(dice.below(count.max(1)) as usize).map(full)?;
        self.made += 1;
        let to = format!("{POOL}/v{}", self.made);
        (self.heads.len() < MOST_HEADS).then_some(Op::Receive { snapshot, base: None, to })
    }

    /// A step for one head.
    fn choose_for_head(&mut self, kind: u64, dice: &mut SplitMix) -> Option<Op> {
        let name = self.any(dice)?;
        let head = &self.heads[&name];
        match kind {
            12..50 => Some(Op::Write {
                head: name,
                object: 1 + dice.below(OBJECTS),
                offset: dice.below(MOST_BYTES / 2),
                len: 1 + dice.below(MOST_BYTES / 2),
                seed: dice.roll(),
            }),
            50..54 => {
                let object = *head.contents.keys().next()?;
                Some(Op::Remove(name, object))
            }
            80..84 => {
                let (origin, snap) = head.origin.clone()?;
                // The clone takes over the origin's snapshots up to its own origin. Their names
                // must be free in the clone.
                let moved = self.heads[&origin].snapshots.iter().position(|s| s.name == snap)? + 1;
                let taken = |s: &Snap| head.snapshots.iter().any(|own| own.name == s.name);
                let room = moved + head.snapshots.len() <= MOST_SNAPSHOTS;
                let free = !self.heads[&origin].snapshots[..moved].iter().any(taken);
                (room && free).then_some(Op::Promote(name))
            }
            84..89 => (!head.snapshots.is_empty()).then_some(Op::Rollback(name)),
            89..92 => {
                self.made += 1;
                Some(Op::Rename(name, format!("{POOL}/r{}", self.made)))
            }
            92..96 => head.snapshots.is_empty().then_some(Op::Destroy(name)),
            103..108 => {
                let from = *head.contents.keys().next_back()?;
                let to = 1 + dice.below(OBJECTS);
                (from != to).then_some(Op::Share(name, from, to))
            }
            _ => {
                let (prop, value) = SETTINGS[dice.below(SETTINGS.len() as u64) as usize];
                Some(Op::Set(name, prop, value))
            }
        }
    }

    fn head(&mut self, name: &str) -> &mut Head {
        self.heads.get_mut(name).expect("a step is chosen among what is there")
    }

    /// A snapshot by its full name.
    fn snap(&mut self, full: &str) -> Snap {
        let (head, name) = full.split_once('@').expect("it names a snapshot");
        let found = self.head(head).snapshots.iter().find(|snap| snap.name == name);
        found.expect("a step is chosen among what is there").clone()
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Create(name) | Op::CreateEncrypted(name) => {
                let encrypted = matches!(op, Op::CreateEncrypted(_));
                self.heads.insert(name.clone(), Head { encrypted, ..Head::default() });
            }
            Op::Write { head, object, offset, len, seed } => {
                let held = self.head(head).contents.entry(*object).or_default();
                let end = (offset + len) as usize;
                held.resize(held.len().max(end), 0);
                held[*offset as usize..end].copy_from_slice(&bytes(*seed, *len));
            }
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
                    head.snapshots.push(Snap { name: snap.to_owned(), id, contents });
                }
            }
            Op::DestroySnapshot(full) => {
                let (name, snap) = full.split_once('@').expect("it names a snapshot");
                self.head(name).snapshots.retain(|s| s.name != snap);
            }
            Op::Clone(full, name) => {
                let contents = self.snap(full).contents;
                let (origin, snap) = full.split_once('@').expect("it names a snapshot");
                let origin = Some((origin.to_owned(), snap.to_owned()));
                self.heads.insert(name.clone(), Head { contents, origin, ..Head::default() });
            }
            Op::Promote(name) => self.promote(name),
            Op::Rollback(name) => {
                let head = self.head(name);
                head.contents =
                    head.snapshots.last().expect("a step is chosen among what is there").contents.clone();
            }
            Op::Receive { snapshot, to, .. } => {
                let snap = self.snap(snapshot);
                let head = self.heads.entry(to.clone()).or_default();
                head.contents = snap.contents.clone();
                head.snapshots.push(snap);
            }
            Op::Rename(old, new) => {
                let head = self.heads.remove(old).expect("a step is chosen among what is there");
                self.heads.insert(new.clone(), head);
                for (origin, _) in self.heads.values_mut().filter_map(|h| h.origin.as_mut()) {
                    if origin == old {
                        origin.clone_from(new);
                    }
                }
            }
            Op::Destroy(name) => drop(self.heads.remove(name)),
            Op::Set(..) | Op::Reimport => {}
            Op::Checkpoint => self.checkpoint = Some(self.heads.clone()),
            Op::Discard => self.checkpoint = None,
            Op::Device(op) => self.slots.apply(op),
            Op::Rewind => {
                self.heads = self.checkpoint.take().expect("a step is chosen among what is there");
                self.slots.rewind();
            }
        }
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
        for (other, h) in &mut self.heads {
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
