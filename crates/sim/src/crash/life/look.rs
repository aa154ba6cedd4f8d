//! Checking the pool that a crash left, in a test with changing devices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ondisk::config::PoolState;
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{VdevConfig, VdevKind};
use poolhouse::{OpenOptions, Pool};
use spa::Spa;
use spa::create::claim_file;
use spa::engine::{ScanCommand, Verdict};
use spa::import::{Options, Resources, SystemClock, import_for_writing};
use vdev::VdevState;

use super::{Life, SIZE, Staged, shape, until};
use crate::chain;
use crate::crash::split::{file_name, make};
use crate::crash::work::{POOL, Seen, host, look, next};
use crate::crash::{Outcome, Point, SplitMix, Tape};

/// The directory of devices that are hidden.
const AWAY: &str = "away";

impl Life {
    /// Number of crash points.
    pub fn points(&self) -> Point {
        self.tape.end()
    }

    /// The directory of the images that a crash leaves.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A description of a crash point: the last step that had begun, and its progress in percent.
    pub fn step_at(&self, point: Point) -> String {
        let n = self.begun(point);
        let step = &self.steps[n];
        let len = (step.acknowledged - step.began).max(1);
        let percent = (point.saturating_sub(step.began) * 100 / len).min(100);
        format!("step {n}, {}, at {percent} %", step.what)
    }

    /// The crash points of a step, from one percentage of it to another.
    ///
    /// The step is the first whose name begins with `what`.
    ///
    /// # Panics
    /// The tale has no such step.
    pub fn points_of(&self, what: &str, percent: std::ops::Range<usize>) -> std::ops::Range<Point> {
        let step =
            self.steps.iter().find(|step| step.what.starts_with(what)).expect("the tale has this step");
        let at = |percent| step.began + (step.acknowledged - step.began) * percent / 100;
        at(percent.start)..at(percent.end)
    }

    fn begun(&self, point: Point) -> usize {
        self.steps.iter().rposition(|step| step.began <= point).unwrap_or(0)
    }

    /// Crashes at `point`, checks the pool, continues with it, and checks it again.
    ///
    /// With `thorough`, each device is absent once. Otherwise only one is, which follows from the
    /// seed. The step in the result is the step at which the pool is.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be written.
    pub fn crash(&self, point: Point, seed: u64, thorough: bool) -> std::io::Result<Outcome> {
        let state = AtomicU64::new(seed);
        self.tape.develop(point, SIZE, self.tale.devices(), self.dir(), &mut || next(&state))?;
        let first = self.steps.iter().rposition(|step| step.acknowledged <= point);
        let may = first.unwrap_or(0)..=self.begun(point);
        let mut visit = Visit { life: self, may, is_made: first.is_some(), dice: SplitMix(seed), thorough };
        if first.is_none() && open(self.dir()).is_err() {
            return Ok(Outcome::Nothing);
        }
        let found = visit.all().map_err(|what| format!("{}: {what}", self.step_at(point)));
        Ok(found.map_or_else(Outcome::Wrong, Outcome::Step))
    }
}

fn open(dir: &Path) -> poolhouse::Result<Pool> {
    let options = OpenOptions {
        force: true,
        cache_bytes: Some(32 << 20),
        no_read_ahead: true,
        ..OpenOptions::default()
    };
    Pool::open(&[dir], &options)
}

fn told<E: std::error::Error>(what: &str) -> impl Fn(E) -> String {
    move |e| format!("{what}: {}", chain(&e))
}

/// A device whose image is hidden until this is dropped.
struct Hidden<'a> {
    dir: &'a Path,
    name: String,
}

impl<'a> Hidden<'a> {
    fn new(dir: &'a Path, name: String) -> Result<Hidden<'a>, String> {
        let away = dir.join(AWAY);
        std::fs::create_dir_all(&away).map_err(told("a folder"))?;
        std::fs::rename(dir.join(&name), away.join(&name)).map_err(told("an image"))?;
        Ok(Hidden { dir, name })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let back = std::fs::rename(self.dir.join(AWAY).join(&self.name), self.dir.join(&self.name));
        back.expect("it was just there");
    }
}

/// The check of the pool that one crash left.
struct Visit<'a> {
    life: &'a Life,
    /// The steps at which the pool may be.
    may: std::ops::RangeInclusive<usize>,
    /// The creation of the pool was acknowledged. Before, some devices may have no uberblock.
    is_made: bool,
    dice: SplitMix,
    thorough: bool,
}

impl Visit<'_> {
    /// Runs all checks. Returns the step at which the pool is.
    fn all(&mut self) -> Result<usize, String> {
        let steps = &self.life.steps;
        let (seen, spared) = self.read()?;
        if self.is_made {
            self.without(&spared, None)?;
        }
        // Background work may take its time.
        let tape = Tape::default();
        let spa = self.import(&tape)?;
        let came = self.settle(&spa)?;
        let at = self.may.clone().rev().find(|n| steps[*n].seen == seen && steps[*n].shape == came);
        let at = at.ok_or_else(|| {
            let shapes: Vec<&str> = self.may.clone().map(|n| &*steps[n].shape).collect();
            format!("it comes to {came}, with {:?}; it may be {shapes:?}", seen.keys().collect::<Vec<_>>())
        })?;
        heal(&spa)?;
        scrub(&spa)?;
        self.call_spares(&spa)?;
        let spared = spared_by(&spa);
        let live = spa.writer().expect("it was imported for writing");
        make(live, &format!("{POOL}/later"))?;
        live.export().map_err(told("it is not exported"))?;
        let spares = spa.spares();
        drop(spa);
        for spare in spares.iter().filter(|spare| spare.config.kind != VdevKind::DraidSpare) {
            self.is_free(&spare.config)?;
        }
        let mut later = seen;
        later.insert(format!("{POOL}/later"), Vec::new());
        self.without(&spared, Some(&later))?;
        Ok(at)
    }

    /// The contents of the pool, and the devices that the pool reports as not needed.
    fn read(&self) -> Result<(Seen, Vec<String>), String> {
        let pool = open(self.life.dir()).map_err(told("it does not open"))?;
        let seen = look(&pool).map_err(told("it cannot be read"))?;
        self.expect(&seen, None)?;
        Ok((seen, spared_by(pool.spa())))
    }

    /// Compares the visible contents with what they must be.
    fn expect(&self, seen: &Seen, later: Option<&Seen>) -> Result<(), String> {
        let steps = &self.life.steps;
        let right = match later {
            Some(later) => seen == later,
            None => self.may.clone().any(|n| steps[n].seen == *seen),
        };
        match right {
            true => Ok(()),
            false => Err(format!("in steps {:?} there is no such state: {:?}", self.may, seen.keys())),
        }
    }

    /// Reads the whole pool with one of these devices absent at a time.
    fn without(&mut self, devices: &[String], later: Option<&Seen>) -> Result<(), String> {
        let chosen = self.dice.below(devices.len().max(1) as u64) as usize;
        for (n, device) in devices.iter().enumerate() {
            if !self.thorough && n != chosen {
                continue;
            }
            let _away = Hidden::new(self.life.dir(), device.clone())?;
            let pool = open(self.life.dir()).map_err(|e| format!("without {device}: {}", chain(&e)))?;
            let seen =
                look(&pool).map_err(|e| format!("without {device} it cannot be read: {}", chain(&e)))?;
            self.expect(&seen, later).map_err(|e| format!("without {device}: {e}"))?;
        }
        Ok(())
    }

    fn import(&mut self, tape: &Tape) -> Result<Spa, String> {
        let scan = spa::discover(&[self.life.dir()]);
        let [found] = &scan.pools[..] else {
            return Err(format!("there are {} pools", scan.pools.len()));
        };
        let world = Staged::new(tape, self.dice.roll());
        let options = Options {
            readonly: false,
            force: true,
            cache: (32u64 << 20).into(),
            layer: tape.layer(),
            ..Options::default()
        };
        let resources = Resources { workers: Arc::new(zio::Workers::new("zio", 1)), world };
        import_for_writing(found, &options, None, &host(), &SystemClock, resources)
            .map_err(told("it is not imported"))
    }

    /// Waits until background work has ended. Returns the shape that the pool has then.
    fn settle(&self, spa: &Spa) -> Result<String, String> {
        let live = spa.writer().expect("it was imported for writing");
        for _ in 0..4 {
            live.monitor().run_now();
            live.scans().wait().map_err(told("waiting"))?;
            live.vdevs().end_replacements().map_err(told("replacements do not end"))?;
            live.sync_anew().map_err(told("a group"))?;
        }
        Ok(shape(spa))
    }

    /// Checks that an unused hot spare is activated when needed, and released afterwards.
    fn call_spares(&self, spa: &Spa) -> Result<(), String> {
        let Some(spare) = spa.spares().into_iter().next() else { return Ok(()) };
        if spare.state != VdevState::Healthy {
            return Err(format!("the spare is {:?}, {:?}", spare.state, spare.aux));
        }
        let live = spa.writer().expect("it was imported for writing");
        let config = spa.config();
        let root = config.vdev_tree.as_ref().expect("a pool has a tree");
        let top = root.children.iter().find(|top| !top.is_log && !top.children.is_empty());
        let Some(leaf) = top.and_then(|top| top.leaves().next()) else { return Ok(()) };
        let (free, spare) = (shape(spa), super::words(&spare.config));
        let name = file_name(leaf).unwrap_or_default();
        live.vdevs().fault(leaf.guid, Verdict::ByHandForNow).map_err(told("a fault"))?;
        let stood = free.replacen(&name, &format!("spare({name} {spare})"), 1);
        until(spa, &stood)?;
        live.scans().wait().map_err(told("waiting"))?;
        live.clear(None).map_err(told("clearing"))?;
        until(spa, &free)
    }

    /// Checks that the labels of an unused hot spare say that it is a spare.
    fn is_free(&self, spare: &VdevConfig) -> Result<(), String> {
        let name = file_name(spare).unwrap_or_default();
        let (device, _) = claim_file(&self.life.dir().join(&name)).map_err(told("a spare"))?;
        let labels = spa::Labels::read(&*device);
        let right =
            labels.newest().is_some_and(|l| l.state == PoolState::Spare && l.guid == Some(spare.guid));
        match right {
            true => Ok(()),
            false => Err(format!("the spare {name} says that it is {:?}", labels.newest().map(|l| l.state))),
        }
    }
}

/// The images of the devices without which everything can be read, as the pool reports.
fn spared_by(spa: &Spa) -> Vec<String> {
    let config = spa.config();
    let leaves = config.vdev_tree.iter().flat_map(VdevConfig::leaves);
    let devices = leaves.filter(|leaf| matches!(leaf.kind, VdevKind::File | VdevKind::Disk));
    let spared = devices.filter(|leaf| spa.can_spare(&[leaf.guid]));
    let here =
        |leaf: &VdevConfig| spa.tree().state_of(leaf.guid).is_ok_and(|(s, _)| s >= VdevState::Degraded);
    spared.filter(|leaf| here(leaf)).filter_map(file_name).collect()
}

/// Brings all devices online, and waits until they are up to date.
fn heal(spa: &Spa) -> Result<(), String> {
    let live = spa.writer().expect("it was imported for writing");
    live.clear(None).map_err(told("clearing"))?;
    let config = spa.config();
    for leaf in config.vdev_tree.iter().flat_map(VdevConfig::leaves) {
        if matches!(leaf.kind, VdevKind::File | VdevKind::Disk) {
            // An active spare may be released meanwhile, so this may fail.
            let _ = live.vdevs().online(leaf.guid, false);
        }
    }
    for _ in 0..super::GROUPS {
        live.scans().wait().map_err(told("waiting"))?;
        live.monitor().run_now();
        let stands_in = |vdev: &VdevConfig| matches!(vdev.kind, VdevKind::Spare | VdevKind::Replacing);
        let root = spa.config().vdev_tree.clone().expect("a pool has a tree");
        if spa.tree().behind().is_empty() && !root.walk().any(stands_in) {
            let ill =
                root.walk().find(|v| spa.tree().state_of(v.guid).is_ok_and(|(s, _)| s != VdevState::Healthy));
            return match ill {
                Some(ill) => Err(format!("{} is {:?}", super::words(ill), spa.tree().state_of(ill.guid))),
                None => Ok(()),
            };
        }
        live.sync_anew().map_err(told("a group"))?;
    }
    Err(format!("it never heals: {}, {:?} lack something", shape(spa), spa.tree().behind()))
}

/// Scrubs the pool. The scrub must neither find errors nor repair anything.
fn scrub(spa: &Spa) -> Result<(), String> {
    let live = spa.writer().expect("it was imported for writing");
    live.scan(ScanCommand::Scrub).map_err(told("a scrub"))?;
    live.scans().wait().map_err(told("waiting"))?;
    let phys = live.scans().stat().ok_or("there was no scrub")?.phys;
    let right = (phys.func, phys.state) == (ScanFunc::Scrub, ScanState::Finished);
    match right && (phys.errors, phys.processed) == (0, 0) {
        true => Ok(()),
        false => Err(format!("the scrub: {phys:?}")),
    }
}
