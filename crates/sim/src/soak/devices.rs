//! Faults and operations on the devices of a pool.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ondisk::label::{LABEL_SIZE, LABEL_START_SIZE, LABELS, PHYS_OFFSET, RING_OFFSET, label_offset};
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{Guid, VdevConfig, VdevKind};
use spa::Labels;
use spa::create::{NewLeaf, claim_file};
use spa::engine::{AttachTerms, LifeError, PoolWriter, ScanCommand, ScanRefusal};
use vdev::{VdevAux, VdevState};

use super::Failure;
use super::disk::Mood;
use super::pool::SoakPool;
use super::slots::{DeviceOp, Ill};
use crate::chain;
use crate::crash::SplitMix;

/// The directory of devices that were pulled.
const AWAY: &str = "away";
/// The most ranges of a device that get random bytes at once.
const PLACES: u64 = 60;

/// Number of transaction groups within which every device must be up to date.
const ROUNDS: usize = 3000;

/// The name of a device's image file.
fn file_name(leaf: &VdevConfig) -> Option<String> {
    let path = String::from_utf8_lossy(leaf.path.as_deref()?).into_owned();
    path.rsplit('/').next().map(str::to_owned)
}

impl SoakPool {
    fn root(&self) -> Result<VdevConfig, Failure> {
        self.live()?.config().vdev_tree.clone().ok_or_else(|| "the pool has no tree".into())
    }

    /// The guid of a device, if the pool has the device.
    fn guid(&self, device: &str) -> Result<Option<Guid>, Failure> {
        let root = self.root()?;
        Ok(root.leaves().find(|leaf| file_name(leaf).as_deref() == Some(device)).map(|leaf| leaf.guid))
    }

    fn known(&self, device: &str) -> Result<Guid, Failure> {
        self.guid(device)?.ok_or_else(|| format!("the pool has no {device}").into())
    }

    /// Does an operation to a device. The operation is repeatable, as a killed actor may have done
    /// all or half of it.
    ///
    /// # Errors
    /// [`Failure`]: the pool refuses an operation that it must accept, or an image can't be
    /// changed.
    pub(super) fn befall(&mut self, op: &DeviceOp) -> Result<(), Failure> {
        match op {
            DeviceOp::Pull(device, told) => {
                self.rack.pull(device, *told);
                self.hide(device)
            }
            DeviceOp::Plug(device) => {
                self.unhide(device)?;
                self.live()?.monitor().run_now();
                Ok(self.live()?.clear(Some(self.known(device)?))?)
            }
            DeviceOp::Offline(device, temporary) => {
                Ok(self.live()?.vdevs().offline(self.known(device)?, *temporary)?)
            }
            DeviceOp::Online(device) => match self.live()?.vdevs().online(self.known(device)?, false)? {
                VdevState::Healthy | VdevState::Degraded => Ok(()),
                state => Err(format!("{device} is brought online, and {state:?}").into()),
            },
            DeviceOp::Spoil(device, seed) => self.spoil(device, *seed),
            DeviceOp::SpoilLabels(device, seed, exported) => {
                if *exported {
                    self.export()?;
                }
                self.spoil_labels(device, *seed)?;
                if *exported {
                    self.check()?;
                    self.import()?;
                }
                Ok(())
            }
            DeviceOp::Fail(..) | DeviceOp::Fill(_) | DeviceOp::Lose(..) | DeviceOp::Slow(_) => {
                self.set_moods();
                Ok(())
            }
            DeviceOp::Calm(device) => {
                self.set_moods();
                Ok(self.live()?.clear(Some(self.known(device)?))?)
            }
            DeviceOp::Attach(device, new, sequential) => self.attach(device, new, false, *sequential),
            DeviceOp::Replace(device, new, sequential) => {
                // The old device stops losing writes, as its labels must record that it has left.
                self.set_moods();
                self.attach(device, new, true, *sequential)
            }
            DeviceOp::Detach(device, deaf) => {
                self.detach(device)?;
                if *deaf {
                    // Its labels may still say that it belongs to the pool.
                    self.hide(device)?;
                }
                Ok(())
            }
            DeviceOp::Scrub => match self.live()?.scan(ScanCommand::Scrub) {
                Ok(_) | Err(ScanRefusal::Busy) => Ok(()),
                Err(e) => Err(e.into()),
            },
            DeviceOp::Pause => match self.live()?.scan(ScanCommand::Pause) {
                Ok(_) | Err(ScanRefusal::Idle | ScanRefusal::Busy) => Ok(()),
                Err(e) => Err(e.into()),
            },
            DeviceOp::Settle => self.settle(),
        }
    }

    /// Sets the moods of all devices to those of the model.
    pub(super) fn set_moods(&self) {
        self.rack.calm();
        for slot in self.model.slots().all() {
            let mood = match slot.ill {
                Some(Ill::Failing(mood)) => mood,
                _ if slot.slow => Mood::Slow,
                _ => continue,
            };
            self.rack.set(&slot.device, mood);
        }
    }

    fn hide(&self, device: &str) -> Result<(), Failure> {
        let (from, away) = (self.dir.join(device), self.dir.join(AWAY));
        std::fs::create_dir_all(&away)?;
        if from.exists() {
            std::fs::rename(from, away.join(device))?;
        }
        Ok(())
    }

    fn unhide(&self, device: &str) -> Result<(), Failure> {
        let away = self.dir.join(AWAY).join(device);
        if away.exists() {
            std::fs::rename(away, self.dir.join(device))?;
        }
        Ok(())
    }

    /// Writes random bytes to ranges of a device.
    fn spoil(&self, device: &str, seed: u64) -> Result<(), Failure> {
        let image = OpenOptions::new().write(true).open(self.dir.join(device))?;
        let mut dice = SplitMix(seed);
        // Most blocks are at the front of a device. So use the whole device only sometimes.
        // Where blocks may lie.
        let space = LABEL_START_SIZE..self.size - (512 << 10);
        let room = space.end - space.start;
        let room = if dice.below(4) == 0 { room } else { room / 8 };
        for _ in 0..1 + dice.below(PLACES) {
            let at = space.start + dice.below(room);
            let most = 1 << (4 + dice.below(15));
            let len = (1 + dice.below(most)).min(space.end - at);
            let bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).collect();
            image.write_all_at(&bytes[..len as usize], at)?;
        }
        Ok(())
    }

    /// Writes random bytes to one to three labels of a device.
    ///
    /// They cover a whole label, its config, its uberblocks, or a few bytes.
    fn spoil_labels(&self, device: &str, seed: u64) -> Result<(), Failure> {
        let image = OpenOptions::new().write(true).open(self.dir.join(device))?;
        let mut dice = SplitMix(seed);
        let (first, count) = (dice.below(LABELS as u64), 1 + dice.below(LABELS as u64 - 1));
        for label in first..first + count {
            let start = label_offset(self.size, label as usize % LABELS).ok_or("a device without labels")?;
            let (from, to) = match dice.below(4) {
                0 => (0, LABEL_SIZE),
                1 => (PHYS_OFFSET, RING_OFFSET),
                2 => (RING_OFFSET, LABEL_SIZE),
                _ => {
                    let from = dice.below(LABEL_SIZE - 1);
                    (from, (from + 1 + dice.below(4096)).min(LABEL_SIZE))
                }
            };
            let bytes: Vec<u8> =
                (0..(to - from).div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).collect();
            image.write_all_at(&bytes[..(to - from) as usize], start + from)?;
        }
        Ok(())
    }

    fn attach(&self, device: &str, new: &str, replace: bool, sequential: bool) -> Result<(), Failure> {
        if self.guid(new)?.is_some() {
            return Ok(());
        }
        let path = self.dir.join(new);
        File::create(&path)?.set_len(self.size)?;
        let rack = &self.rack;
        let claimer =
            |path: &std::path::Path| claim_file(path).map(|(image, kind)| (rack.around(image), kind));
        let terms = AttachTerms { replace, sequential, force: true, unattended: false, claimer: &claimer };
        let (live, leaf) = (self.live()?, NewLeaf { path });
        for _ in 0..ROUNDS {
            match live.vdevs().attach(self.known(device)?, &leaf, &terms) {
                // A resilver can't start during a rebuild, nor a rebuild during a resilver. A
                // distributed spare that has just become active causes a rebuild.
                Err(LifeError::Rebuilding | LifeError::Resilvering) => live.sync_anew()?,
                done => return Ok(done?),
            };
        }
        Err(format!("{new} can't be attached: what is rebuilt never ends: {}", self.words()?).into())
    }

    /// Detaches a device from its mirror.
    ///
    /// A spare that stands in for the device is detached first. Otherwise it would take the place
    /// of the device for good.
    fn detach(&self, device: &str) -> Result<(), Failure> {
        let (root, live) = (self.root()?, self.live()?);
        let Some(guid) = self.guid(device)? else { return self.recall_spares() };
        let has = |vdev: &VdevConfig| vdev.leaves().any(|leaf| leaf.guid == guid);
        let replaced = root.walk().find(|vdev| vdev.kind == VdevKind::Spare && has(vdev));
        let spares = self.model.spares();
        let stands_in = |leaf: &&VdevConfig| file_name(leaf).is_some_and(|name| spares.contains(&name));
        if let Some(spare) = replaced.and_then(|vdev| vdev.leaves().find(stands_in)) {
            live.vdevs().detach(spare.guid)?;
        }
        live.vdevs().detach(guid)?;
        self.recall_spares()
    }

    /// Makes hot spares available again that became ordinary devices.
    ///
    /// A spare becomes an ordinary device if it is activated just when its device is detached.
    fn recall_spares(&self) -> Result<(), Failure> {
        let (root, live, spares) = (self.root()?, self.live()?, self.model.spares());
        let is_spare = |vdev: &&VdevConfig| file_name(vdev).is_some_and(|name| spares.contains(&name));
        let ordinary = root.walk().filter(|vdev| vdev.kind != VdevKind::Spare);
        for side in ordinary.flat_map(|vdev| &vdev.children).filter(is_spare) {
            live.vdevs().detach(side.guid)?;
        }
        let known: Vec<String> = self
            .spa
            .as_ref()
            .ok_or("the pool is not imported")?
            .spares()
            .iter()
            .filter_map(|spare| file_name(&spare.config))
            .collect();
        for name in spares.iter().filter(|name| !known.contains(name)) {
            let rack = &self.rack;
            let claimer =
                |path: &std::path::Path| claim_file(path).map(|(image, kind)| (rack.around(image), kind));
            live.vdevs().add_aux(&[NewLeaf { path: self.dir.join(name) }], &[], true, &claimer)?;
        }
        Ok(())
    }

    /// Brings all devices back and up to date, and scrubs the pool. Afterwards no fault is left.
    ///
    /// # Errors
    /// [`Failure`], because of one of these:
    ///
    /// * A device does not come online, or never gets up to date.
    /// * A scrub finds errors, or the second scrub still repairs blocks.
    /// * In the end a device, a label or an object is damaged, or the set of devices is wrong.
    fn settle(&mut self) -> Result<(), Failure> {
        self.set_moods();
        let devices: Vec<String> = self.model.slots().all().map(|slot| slot.device.clone()).collect();
        devices.iter().try_for_each(|device| self.unhide(device))?;
        let live = self.live()?;
        live.monitor().run_now();
        for device in &devices {
            live.vdevs().online(self.known(device)?, false).map_err(|e| format!("{device}: {e}"))?;
        }
        live.clear(None)?;
        self.heal()?;
        let stat = self.scrub()?;
        if stat.errors != 0 {
            return Err(format!("the scrub found {} errors", stat.errors).into());
        }
        // The scrub may have found more errors than the limit of a device.
        self.live()?.clear(None)?;
        self.heal()?;
        let again = self.scrub()?;
        if (again.errors, again.processed) != (0, 0) {
            let (errors, bytes) = (again.errors, again.processed);
            return Err(format!("the second scrub found {errors} errors, and repaired {bytes} bytes").into());
        }
        self.expect_well(&devices)?;
        self.tidy(&devices)
    }

    /// Syncs transaction groups until all devices are up to date and no device stands in for
    /// another.
    ///
    /// A resilver may find more errors of a device than its limit. The device is then degraded, and
    /// a spare stands in for it until the errors are cleared.
    fn heal(&self) -> Result<(), Failure> {
        let live = self.live()?;
        let spa = self.spa.as_ref().ok_or("the pool is not imported")?;
        for _ in 0..ROUNDS {
            live.sync_anew()?;
            live.monitor().run_now();
            if live.scans().stat().is_some_and(|s| s.is_scanning() && s.phys.func == ScanFunc::Resilver) {
                continue;
            }
            if self.has_too_many_errors()? {
                live.clear(None)?;
            }
            if spa.tree().behind().is_empty() && self.stand_ins()? == 0 {
                return Ok(());
            }
        }
        let (behind, tree, scan) = (spa.tree().behind(), self.words()?, live.scans().stat());
        Err(format!("it never heals: {tree}; {behind:?} lack something; {scan:?}").into())
    }

    /// A description of the vdev tree, with the states of devices and their DTLs.
    fn words(&self) -> Result<String, Failure> {
        let tree = self.spa.as_ref().ok_or("the pool is not imported")?.tree();
        let one = |vdev: &VdevConfig| {
            let name = file_name(vdev).unwrap_or_default();
            let state = tree.state_of(vdev.guid);
            let lacks = tree.dtl(vdev.guid).ok().filter(|dtl| vdev.kind.is_leaf() && !dtl.is_empty());
            let lacks = lacks.map(|dtl| format!(" lacks {:?}", dtl.iter().collect::<Vec<_>>()));
            format!("{} {name} {state:?}{}", vdev.kind.name(), lacks.unwrap_or_default())
        };
        Ok(self.root()?.walk().map(one).collect::<Vec<_>>().join(", "))
    }

    /// Whether a device is degraded or faulted because of its errors.
    fn has_too_many_errors(&self) -> Result<bool, Failure> {
        let tree = self.spa.as_ref().ok_or("the pool is not imported")?.tree();
        let root = self.root()?;
        Ok(root
            .leaves()
            .any(|leaf| tree.state_of(leaf.guid).is_ok_and(|(_, aux)| aux == VdevAux::ErrExceeded)))
    }

    /// Number of vdevs in which one device stands in for another.
    fn stand_ins(&self) -> Result<usize, Failure> {
        let is = |vdev: &&VdevConfig| matches!(vdev.kind, VdevKind::Spare | VdevKind::Replacing);
        Ok(self.root()?.walk().filter(is).count())
    }

    /// Runs a complete scrub.
    fn scrub(&self) -> Result<ondisk::scan::ScanPhys, Failure> {
        let live = self.live()?;
        // A running scan may already have passed the damaged blocks.
        match live.scan(ScanCommand::Stop) {
            Ok(_) | Err(ScanRefusal::Idle | ScanRefusal::Busy) => {}
            Err(e) => return Err(e.into()),
        }
        loop {
            match live.scan(ScanCommand::Scrub) {
                Ok(_) | Err(ScanRefusal::Busy) => {}
                Err(e) => return Err(e.into()),
            }
            let phys = finish(live)?;
            if phys.func == ScanFunc::Scrub && phys.state == ScanState::Finished {
                return Ok(phys);
            }
        }
    }

    fn expect_well(&self, devices: &[String]) -> Result<(), Failure> {
        let spa = self.spa.as_ref().ok_or("the pool is not imported")?;
        for device in devices {
            let state = spa.tree().state_of(self.known(device)?)?;
            if state.0 != VdevState::Healthy {
                return Err(format!("{device} is {state:?} in the end").into());
            }
        }
        for (_, device) in spa.tree().devices() {
            let spoiled: Vec<String> = Labels::read(&**device)
                .copies
                .iter()
                .filter_map(|copy| Some(chain(copy.as_ref().err()?)))
                .collect();
            if !spoiled.is_empty() {
                return Err(format!("{} has spoiled labels in the end: {spoiled:?}", device.name()).into());
            }
        }
        let damaged = spa.damaged_objects(self.live()?.dsl().heads())?;
        if !damaged.is_empty() {
            return Err(format!("damaged are {damaged:?}").into());
        }
        let root = self.root()?;
        let mut has: Vec<String> = root.leaves().filter_map(file_name).collect();
        let mut wanted = devices.to_vec();
        has.sort();
        wanted.sort();
        match has == wanted {
            true => Ok(()),
            false => Err(format!("the pool has {has:?}, and should have {wanted:?}").into()),
        }
    }

    /// Removes the images of devices that have left the pool.
    fn tidy(&self, devices: &[String]) -> Result<(), Failure> {
        if self.rack.is_off() {
            // They have left the pool in memory only.
            return Ok(());
        }
        let spares = self.model.spares();
        for dir in [self.dir.clone(), self.dir.join(AWAY)] {
            let Ok(entries) = std::fs::read_dir(dir) else { continue };
            for entry in entries {
                let path: PathBuf = entry?.path();
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                if path.is_file() && !devices.contains(&name) && !spares.contains(&name) {
                    std::fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }
}

/// Syncs transaction groups until no scan is running.
fn finish(live: &PoolWriter) -> Result<ondisk::scan::ScanPhys, Failure> {
    loop {
        live.sync_anew()?;
        match live.scans().stat() {
            Some(stat) if stat.is_scanning() => {}
            stat => return Ok(stat.ok_or("there was no scan")?.phys),
        }
    }
}
