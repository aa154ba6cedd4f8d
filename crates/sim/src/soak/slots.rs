//! The state of each device of a pool, and what may happen to it next.
//!
//! # Theory
//! A slot is a place in a top-level vdev. It is well or ill. The device of an ill slot is away,
//! offline, has wrong bytes, fails, loses writes, or lacks writes of a time when it was absent. One
//! child of a mirror is always well. A raidz or draid never has more ill slots than its parity.
//! This is the *budget*. Within it, no user of the pool may notice a fault.
//!
//! A device is well again when the pool has *settled*: all devices are back, up to date, and
//! scrubbed without an error. Meanwhile the pool repairs things on its own. How far it has come
//! makes no difference to the next step, which follows from the seed alone.
//!
//! Some of a device's four labels may be spoiled as well, never all. The device makes up for that
//! itself, so it is well and uses no budget. The labels count as spoiled until the pool has
//! settled.

use spa::create::VdevShape;

use super::disk::Mood;
use super::shape::Shape;
use crate::crash::SplitMix;

/// The most children of a mirror.
const MOST_SIDES: usize = 4;

/// Which faults the devices of a life have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// None.
    None,
    /// All but lost writes, spoiled labels and sequential rebuilds, which came later. The seeds
    /// that are kept as tests depend on this choice.
    Early,
    /// All kinds.
    All,
}

/// The fault of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ill {
    /// It was pulled.
    Away,
    /// It was taken offline.
    Offline,
    /// It fails.
    Failing(Mood),
    /// It may have wrong bytes, or lack writes of a time when it was absent.
    Doubtful,
    /// It is new, and may lack everything.
    New,
    /// It is new, and replaces another device, which stays in the pool for an unknown time.
    Successor,
}

/// A place of a vdev.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// The name of the image in it.
    pub(super) device: String,
    pub(super) ill: Option<Ill>,
    pub(super) slow: bool,
    /// Whether some of its labels may be spoiled.
    labels: bool,
}

impl Slot {
    fn new(device: String, ill: Option<Ill>) -> Slot {
        Slot { device, ill, slow: false, labels: false }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Top {
    shape: VdevShape,
    pub(super) slots: Vec<Slot>,
}

/// All slots of a pool.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) tops: Vec<Top>,
    /// Number of images created so far.
    made: usize,
}

/// A fault of a device, or an operation on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceOp {
    /// Pull it. The flag says whether the system reports it as gone; otherwise each operation
    /// fails.
    Pull(String, bool),
    /// Put it back.
    Plug(String),
    /// Take it offline, temporarily or not.
    Offline(String, bool),
    /// Bring it online.
    Online(String),
    /// Write random bytes to ranges that follow from a seed.
    Spoil(String, u64),
    /// Let one in so many operations fail.
    Fail(String, u64),
    /// Let each write fail for lack of space.
    Fill(String),
    /// Lose one in so many writes, also to its labels, but report them as done.
    Lose(String, u64),
    /// Write random bytes to some of its labels, not to all, as follows from a seed. The flag says
    /// whether the pool is exported meanwhile.
    SpoilLabels(String, u64, bool),
    /// Make all of its operations slow.
    Slow(String),
    /// Remove its faults.
    Calm(String),
    /// Attach a new device to it. The flag requests a sequential rebuild (`-s`) in place of a
    /// resilver.
    Attach(String, String, bool),
    /// Replace it with a new device. The flag is that of `Attach`.
    Replace(String, String, bool),
    /// Detach it from its mirror. The flag also removes it from the machine, as it would not record
    /// in its labels that it has left.
    Detach(String, bool),
    /// Start a scrub.
    Scrub,
    /// Pause the scrub, if it still runs.
    Pause,
    /// Bring all devices back and up to date, and scrub the pool.
    Settle,
}

impl DeviceOp {
    /// The kind of operation, for people.
    pub fn word(&self) -> &'static str {
        match self {
            DeviceOp::Pull(..) => "pulled",
            DeviceOp::Plug(_) => "plugged in",
            DeviceOp::Offline(..) => "offline",
            DeviceOp::Online(_) => "online",
            DeviceOp::Spoil(..) => "spoiled",
            DeviceOp::Fail(..) => "failing",
            DeviceOp::Fill(_) => "full",
            DeviceOp::Lose(..) => "losing writes",
            DeviceOp::SpoilLabels(_, _, false) => "labels spoiled",
            DeviceOp::SpoilLabels(_, _, true) => "labels spoiled while exported",
            DeviceOp::Slow(_) => "slow",
            DeviceOp::Calm(_) => "calmed",
            DeviceOp::Attach(_, _, false) => "attached",
            DeviceOp::Attach(_, _, true) => "attached -s",
            DeviceOp::Replace(_, _, false) => "replaced",
            DeviceOp::Replace(_, _, true) => "replaced -s",
            DeviceOp::Detach(..) => "detached",
            DeviceOp::Scrub => "scrubs",
            DeviceOp::Pause => "pauses",
            DeviceOp::Settle => "settled",
        }
    }
}

/// The name of an image.
pub(super) fn image(number: usize) -> String {
    format!("d{number}.img")
}

impl Top {
    fn is_mirror(&self) -> bool {
        matches!(self.shape, VdevShape::Single | VdevShape::Mirror)
    }

    /// Whether a sequential rebuild is possible.
    fn is_sequential(&self) -> bool {
        self.is_mirror() || matches!(self.shape, VdevShape::Draid(..))
    }

    /// How many more of its devices may fall ill.
    fn budget(&self) -> usize {
        let ill = self.slots.iter().filter(|s| s.ill.is_some()).count();
        match self.shape {
            VdevShape::Raidz(parity) | VdevShape::Draid(parity, _) => parity as usize - ill,
            VdevShape::Single | VdevShape::Mirror => self.slots.len() - ill - 1,
        }
    }
}

impl Slots {
    pub(super) fn new(shape: Shape) -> Slots {
        let mut made = 0;
        let mut slot = || {
            made += 1;
            Slot::new(image(made - 1), None)
        };
        let top = |(shape, _, count): &(VdevShape, _, usize)| Top {
            shape: *shape,
            slots: (0..*count).map(|_| slot()).collect(),
        };
        let tops = shape.tops.iter().map(top).collect();
        Slots { tops, made: made + shape.spares }
    }

    /// All slots.
    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.tops.iter().flat_map(|top| &top.slots)
    }

    /// Whether all devices are well.
    pub(super) fn are_well(&self) -> bool {
        self.all().all(|slot| slot.ill.is_none())
    }

    fn find(&mut self, device: &str) -> &mut Slot {
        let mut all = self.tops.iter_mut().flat_map(|top| &mut top.slots);
        all.find(|slot| slot.device == device).expect("a step is chosen among what is there")
    }

    fn top_of(&mut self, device: &str) -> &mut Top {
        let mut tops = self.tops.iter_mut();
        let of = |top: &&mut Top| top.slots.iter().any(|slot| slot.device == device);
        tops.find(of).expect("a step is chosen among what is there")
    }

    /// The device of a random slot that satisfies `so`.
    fn pick(&self, dice: &mut SplitMix, so: impl Fn(&Top, &Slot) -> bool) -> Option<String> {
        let all = self.tops.iter().flat_map(|top| top.slots.iter().map(move |slot| (top, slot)));
        let fit: Vec<&Slot> = all.filter(|(top, slot)| so(top, slot)).map(|(_, slot)| slot).collect();
        (!fit.is_empty()).then(|| fit[dice.below(fit.len() as u64) as usize].device.clone())
    }

    /// Chooses what happens to a device next. With a checkpoint, the pool keeps its shape.
    pub(super) fn choose(
        &mut self,
        dice: &mut SplitMix,
        faults: Faults,
        checkpoint: bool,
    ) -> Option<DeviceOp> {
        let kind = dice.below(if faults == Faults::All { 114 } else { 100 });
        if matches!(kind, 70..82) && checkpoint {
            return None;
        }
        let well = |top: &Top, slot: &Slot| slot.ill.is_none() && top.budget() > 0;
        let is = |ill: Ill| move |_: &Top, slot: &Slot| slot.ill == Some(ill);
        match kind {
            0..14 => Some(DeviceOp::Pull(self.pick(dice, well)?, dice.below(2) == 0)),
            14..26 => Some(DeviceOp::Plug(self.pick(dice, is(Ill::Away))?)),
            26..33 => Some(DeviceOp::Offline(self.pick(dice, well)?, dice.below(2) == 0)),
            33..41 => Some(DeviceOp::Online(self.pick(dice, is(Ill::Offline))?)),
            41..53 => Some(DeviceOp::Spoil(self.pick(dice, well)?, dice.roll())),
            53..58 => Some(DeviceOp::Fail(self.pick(dice, well)?, 1 + dice.below(30))),
            58..61 => Some(DeviceOp::Fill(self.pick(dice, well)?)),
            61..63 => Some(DeviceOp::Slow(self.pick(dice, |_, slot| !slot.slow && slot.ill.is_none())?)),
            63..70 => {
                let fails = |slot: &Slot| matches!(slot.ill, Some(Ill::Failing(_)));
                Some(DeviceOp::Calm(self.pick(dice, |_, slot| slot.slow || fails(slot))?))
            }
            70..74 => {
                let room = |top: &Top, slot: &Slot| {
                    top.is_mirror() && top.slots.len() < MOST_SIDES && slot.ill.is_none()
                };
                let device = self.pick(dice, room)?;
                let sequential = self.by_space(dice, faults, &device);
                Some(DeviceOp::Attach(device, self.new_image(), sequential))
            }
            74..79 => {
                // The replacement of an ill device uses no further budget.
                let fits = |top: &Top, slot: &Slot| match slot.ill {
                    None => top.budget() > 0,
                    Some(ill) => !matches!(ill, Ill::New | Ill::Successor),
                };
                let device = self.pick(dice, fits)?;
                let sequential = self.by_space(dice, faults, &device);
                Some(DeviceOp::Replace(device, self.new_image(), sequential))
            }
            79..82 => {
                let fits = |top: &Top, slot: &Slot| {
                    let leaves = slot.ill.is_some_and(|ill| ill != Ill::Successor);
                    top.is_mirror()
                        && top.slots.len() > 1
                        && (leaves || slot.ill.is_none() && top.budget() > 0)
                };
                let device = self.pick(dice, fits)?;
                let deaf = matches!(self.find(&device).ill, Some(Ill::Failing(Mood::Loses(_))));
                Some(DeviceOp::Detach(device, deaf))
            }
            82..87 => Some(DeviceOp::Scrub),
            87..90 => Some(DeviceOp::Pause),
            // While there is a checkpoint, a device keeps what it lacks: no scan sees all blocks of
            // the checkpoint.
            90..100 => (!checkpoint).then_some(DeviceOp::Settle),
            100..107 => Some(DeviceOp::Lose(self.pick(dice, well)?, 1 + dice.below(6))),
            _ => {
                let whole = |_: &Top, slot: &Slot| slot.ill.is_none() && !slot.labels;
                Some(DeviceOp::SpoilLabels(self.pick(dice, whole)?, dice.roll(), dice.below(2) == 0))
            }
        }
    }

    /// Whether a device that is added beside this one is filled by a sequential rebuild.
    fn by_space(&mut self, dice: &mut SplitMix, faults: Faults, device: &str) -> bool {
        faults == Faults::All && self.top_of(device).is_sequential() && dice.below(2) == 0
    }

    fn new_image(&mut self) -> String {
        self.made += 1;
        image(self.made - 1)
    }

    pub(super) fn apply(&mut self, op: &DeviceOp) {
        match op {
            DeviceOp::Pull(device, _) => self.find(device).ill = Some(Ill::Away),
            DeviceOp::Offline(device, _) => self.find(device).ill = Some(Ill::Offline),
            DeviceOp::Fail(device, one_in) => {
                self.find(device).ill = Some(Ill::Failing(Mood::Errors(*one_in)));
            }
            DeviceOp::Fill(device) => self.find(device).ill = Some(Ill::Failing(Mood::Full)),
            DeviceOp::Plug(device) | DeviceOp::Online(device) | DeviceOp::Spoil(device, _) => {
                self.find(device).ill = Some(Ill::Doubtful);
            }
            DeviceOp::Lose(device, one_in) => {
                self.find(device).ill = Some(Ill::Failing(Mood::Loses(*one_in)));
            }
            DeviceOp::SpoilLabels(device, ..) => self.find(device).labels = true,
            DeviceOp::Slow(device) => self.find(device).slow = true,
            DeviceOp::Calm(device) => {
                let slot = self.find(device);
                slot.slow = false;
                if matches!(slot.ill, Some(Ill::Failing(_))) {
                    slot.ill = Some(Ill::Doubtful);
                }
            }
            DeviceOp::Attach(device, new, _) => {
                self.top_of(device).slots.push(Slot::new(new.clone(), Some(Ill::New)));
            }
            DeviceOp::Replace(device, new, _) => {
                *self.find(device) = Slot::new(new.clone(), Some(Ill::Successor));
            }
            DeviceOp::Detach(device, _) => self.top_of(device).slots.retain(|slot| slot.device != *device),
            DeviceOp::Scrub | DeviceOp::Pause => {}
            DeviceOp::Settle => {
                for slot in self.tops.iter_mut().flat_map(|top| &mut top.slots) {
                    (slot.ill, slot.slow, slot.labels) = (None, false, false);
                }
            }
        }
    }

    /// Rewinds to a checkpoint. A device that was taken offline since then is online again.
    pub(super) fn rewind(&mut self) {
        for slot in self.tops.iter_mut().flat_map(|top| &mut top.slots) {
            if slot.ill == Some(Ill::Offline) {
                slot.ill = Some(Ill::Doubtful);
            }
        }
    }
}
