//! What the devices of a pool are like, and what may befall them next.
//!
//! # Theory
//! Each place in a top-level vdev is well or ill: its device is away, out of use, has wrong bytes, fails, loses writes, or lacks what was written without it. Of a mirror one side is always well; of a
//! raidz or draid no more are ill than it has parity. That is the *budget*: as long as it holds, nobody may notice anything. A device is well again when the pool has been
//! *settled*: everything is back, brought up to date, and scrubbed without an error. So what the pool does by itself meanwhile, and how far it has come, makes no difference to what may
//! happen next, which follows from the seed alone.
//!
//! Of a device's four labels some may be spoiled besides, never all: it makes up for that itself, so it is well, and nothing of the budget is used. They count as spoiled until the pool has been settled.

use spa::create::VdevShape;

use super::disk::Mood;
use super::shape::Shape;
use crate::crash::SplitMix;

/// Most sides of a mirror.
const MOST_SIDES: usize = 4;

/// What befalls the devices of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Nothing.
    None,
    /// What befell them before there were lost writes, spoiled labels and sequential rebuilds: the seeds that are kept as tests lead to their steps by these.
    Early,
    /// Everything.
    All,
}

/// What is the matter with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ill {
    /// It was pulled.
    Away,
    /// It was taken out of use.
    Offline,
    /// It fails.
    Failing(Mood),
    /// It may have wrong bytes, or lack what was written meanwhile.
    Doubtful,
    /// It is new, and may lack everything.
    New,
    /// The same, and another's place is what it takes: until nobody knows when, that is there too.
    Successor,
}

/// A place of a vdev.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// The image in it.
    pub(super) device: String,
    pub(super) ill: Option<Ill>,
    pub(super) slow: bool,
    /// Some of its labels may be spoiled.
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

/// All places of a pool.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) tops: Vec<Top>,
    /// Images that there were.
    made: usize,
}

/// Something that befalls a device, or is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceOp {
    /// It is pulled; the system says so, or everything that is asked of it fails.
    Pull(String, bool),
    /// It is back.
    Plug(String),
    /// It is taken out of use, for now or for good.
    Offline(String, bool),
    /// It is brought back.
    Online(String),
    /// It gets rubbish in places that follow from a seed.
    Spoil(String, u64),
    /// One in so many operations fails.
    Fail(String, u64),
    /// It takes no writes.
    Fill(String),
    /// One in so many writes, to its labels too, is lost, and it says that all is well.
    Lose(String, u64),
    /// It gets rubbish in some of its labels, but not in all, as follows from a seed; while the pool is exported, or used.
    SpoilLabels(String, u64, bool),
    /// It takes its time for everything.
    Slow(String),
    /// It is as it was.
    Calm(String),
    /// A new one joins it, and is filled in the order of its space (`-s`), or by a resilver.
    Attach(String, String, bool),
    /// A new one takes its place, filled so or so.
    Replace(String, String, bool),
    /// It leaves its mirror; and the machine too, if it would not hear that it has left.
    Detach(String, bool),
    /// A scrub is begun.
    Scrub,
    /// It is paused, if it still goes on.
    Pause,
    /// Everything comes back, is brought up to date, and scrubbed.
    Settle,
}

impl DeviceOp {
    /// What kind of thing it is, for people.
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

    /// Whether it can be rebuilt in the order of its space.
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

    /// All places.
    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.tops.iter().flat_map(|top| &top.slots)
    }

    /// Whether nothing is the matter with any device.
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

    /// One of the places that are so.
    fn pick(&self, dice: &mut SplitMix, so: impl Fn(&Top, &Slot) -> bool) -> Option<String> {
        let all = self.tops.iter().flat_map(|top| top.slots.iter().map(move |slot| (top, slot)));
        let fit: Vec<&Slot> = all.filter(|(top, slot)| so(top, slot)).map(|(_, slot)| slot).collect();
        (!fit.is_empty()).then(|| fit[dice.below(fit.len() as u64) as usize].device.clone())
    }

    /// What may befall a device next. With a checkpoint the pool's shape stays as it is.
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
                // One that is ill takes nothing more of the budget when it is replaced.
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
            // What a device lacks it lacks as long as there is a checkpoint: no scan sees all that this holds.
            90..100 => (!checkpoint).then_some(DeviceOp::Settle),
            100..107 => Some(DeviceOp::Lose(self.pick(dice, well)?, 1 + dice.below(6))),
            _ => {
                let whole = |_: &Top, slot: &Slot| slot.ill.is_none() && !slot.labels;
                Some(DeviceOp::SpoilLabels(self.pick(dice, whole)?, dice.roll(), dice.below(2) == 0))
            }
        }
    }

    /// Whether what is put beside a device is filled in the order of its space.
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

    /// Goes back to a checkpoint: who was taken out of use since then is not.
    pub(super) fn rewind(&mut self) {
        for slot in self.tops.iter_mut().flat_map(|top| &mut top.slots) {
            if slot.ill == Some(Ill::Offline) {
                slot.ill = Some(Ill::Doubtful);
            }
        }
    }
}
