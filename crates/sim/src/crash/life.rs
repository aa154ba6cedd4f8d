//! Devices that are added, replaced and removed, with a power failure at any moment.
//!
//! # Theory
//! A tale is a list of operations on the devices of a pool, with writes between. After each
//! operation the vdev tree reaches a certain shape by itself, however long that takes.
//!
//! After a crash the pool is at one step of the tale. The step is not before the last acknowledged
//! one, and not after the last one that had begun. So:
//!
//! * The pool holds what was written until that step.
//! * This is also true without any one device that the pool reports as not needed.
//! * Given time, the tree reaches the shape of that step.
//! * A scrub then finds nothing to repair.
//! * An unused hot spare is activated when it is needed.
//!
//! A device that was closed is opened again by its path. So the devices are image files, and the
//! tape wraps each opened one. The images of all devices of a tale exist from the start, blank. A
//! crash leaves its images at the same paths.
//!
//! # Absent
//! A tape that depends on the seed alone. The device monitor's thread runs beside the tale, so the
//! same seed gives the same steps, but not quite the same tape. Therefore a crash point is also
//! named by its step ([`Life::step_at`]).

mod look;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use device::{Device, Layer};
use ondisk::config::{AllocBias, DraidShape};
use ondisk::{Guid, VdevConfig, VdevKind};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{AddTerms, AttachTerms, PoolWriter, Verdict, World};
use tempfile::TempDir;

use super::split::{file_name, make};
use super::tape::image;
use super::work::{POOL, Seen, begin_on, next, write};
use super::{Point, Tape};

/// Size of each device in bytes.
const SIZE: u64 = 128 << 20;
/// Blocks of one slice of a scan. So a scan takes several transaction groups.
const SLICE: u64 = 25;
/// Number of transaction groups within which every operation must end.
const GROUPS: usize = 10_000;
const FINE: &str = "nothing stands in the way of it";

/// The operations on the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tale {
    /// A disk becomes a mirror of two, then of three. Then children are detached.
    Sides,
    /// A disk, a child of a mirror and a child of a raidz are replaced.
    Replacements,
    /// A hot spare is activated three times. It is released, then its device is replaced, then it
    /// takes the place of the device for good.
    Spares,
    /// Children of a mirror are attached and replaced, with sequential rebuilds.
    Rebuilds,
    /// Log, cache and spare devices are added and removed.
    Beside,
    /// Devices go offline and come back, with writes between.
    Outages,
    /// The distributed spare of a draid is activated and released.
    Distributed,
}

impl Tale {
    /// All tales.
    pub const ALL: [Tale; 7] = [
        Tale::Sides,
        Tale::Replacements,
        Tale::Spares,
        Tale::Rebuilds,
        Tale::Beside,
        Tale::Outages,
        Tale::Distributed,
    ];

    /// Number of devices that the tale needs.
    fn devices(self) -> usize {
        match self {
            Tale::Sides => 3,
            Tale::Replacements => 9,
            Tale::Spares | Tale::Rebuilds => 4,
            Tale::Beside => 6,
            Tale::Outages => 5,
            Tale::Distributed => 6,
        }
    }

    fn vdevs(self) -> Vec<(VdevShape, usize)> {
        match self {
            Tale::Sides => vec![(VdevShape::Single, 1)],
            Tale::Replacements => {
                vec![(VdevShape::Single, 1), (VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)]
            }
            Tale::Spares | Tale::Rebuilds | Tale::Beside => vec![(VdevShape::Mirror, 2)],
            Tale::Outages => vec![(VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)],
            Tale::Distributed => {
                vec![(VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 5 }), 6)]
            }
        }
    }

    fn tell(self, told: &mut Telling) {
        match self {
            Tale::Sides => told.sides(),
            Tale::Replacements => told.replacements(),
            Tale::Spares => told.spares(),
            Tale::Rebuilds => told.rebuilds(),
            Tale::Beside => told.beside(),
            Tale::Outages => told.outages(),
            Tale::Distributed => told.distributed(),
        }
    }
}

/// One operation of a tale.
struct Step {
    what: String,
    /// The visible contents after it.
    seen: Seen,
    /// The shape that the vdev tree reaches after it.
    shape: String,
    began: Point,
    acknowledged: Point,
}

/// A recorded tale.
pub struct Life {
    tale: Tale,
    tape: Tape,
    dir: TempDir,
    steps: Vec<Step>,
}

/// A world whose devices are recorded on a tape.
struct Staged {
    dice: AtomicU64,
    layer: Layer,
}

impl Staged {
    fn new(tape: &Tape, seed: u64) -> Arc<Staged> {
        Arc::new(Staged { dice: AtomicU64::new(seed), layer: tape.layer() })
    }
}

impl World for Staged {
    fn now(&self) -> u64 {
        1_700_000_000
    }

    fn random(&self) -> u64 {
        next(&self.dice)
    }

    fn memory(&self) -> u64 {
        1 << 30
    }

    fn layer(&self) -> Layer {
        self.layer.clone()
    }
}

/// A description of a vdev and of all vdevs below it.
fn words(vdev: &VdevConfig) -> String {
    if vdev.kind.is_leaf() {
        let path = vdev.path.as_deref().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default();
        let name = file_name(vdev).unwrap_or_else(|| vdev.kind.name().to_owned());
        // A device that is being replaced in place has `/old` at the end of its path.
        return path.strip_suffix("/old").map_or(name, |p| p.rsplit('/').next().unwrap_or(p).to_owned());
    }
    let all: Vec<String> = vdev.children.iter().map(words).collect();
    match vdev.kind {
        VdevKind::Hole => "hole".to_owned(),
        kind => format!("{}({})", kind.name(), all.join(" ")),
    }
}

/// A description of the vdev tree, the spares and the cache devices.
fn shape(spa: &Spa) -> String {
    let config = spa.config();
    let tops = config.vdev_tree.iter().flat_map(|root| &root.children);
    let mut all: Vec<String> =
        tops.map(|top| if top.is_log { format!("log:{}", words(top)) } else { words(top) }).collect();
    // A removed log at the end leaves no hole here: the next vdev takes its place.
    all.extend(spa.spares().iter().map(|spare| format!("spare:{}", words(&spare.config))));
    all.extend(spa.l2cache().iter().map(|cache| format!("cache:{}", words(&cache.config))));
    all.join(" ")
}

/// The guid of a device of the tree, of a spare or of a cache device.
fn guid(spa: &Spa, device: usize) -> Option<Guid> {
    let config = spa.config();
    let (spares, cache) = (spa.spares(), spa.l2cache());
    let beside = spares.iter().chain(&cache).map(|aux| &aux.config);
    let mut all = config.vdev_tree.iter().flat_map(VdevConfig::leaves).chain(beside);
    all.find(|leaf| file_name(leaf) == Some(image(device))).map(|leaf| leaf.guid)
}

/// A tale that is being recorded.
struct Telling {
    tape: Tape,
    dir: PathBuf,
    spa: Spa,
    dice: AtomicU64,
    seen: Seen,
    steps: Vec<Step>,
}

impl Telling {
    fn live(&self) -> &PoolWriter {
        self.spa.writer().expect("it is open for writing")
    }

    fn guid(&self, device: usize) -> Guid {
        guid(&self.spa, device).expect("the pool has it")
    }

    fn leaf(&self, device: usize) -> NewLeaf {
        NewLeaf { path: self.dir.join(image(device)) }
    }

    fn claim(&self, path: &std::path::Path) -> device::Result<(Arc<dyn Device>, VdevKind)> {
        claim_file(path).map(|(device, kind)| (self.tape.around(device), kind))
    }

    /// Does an operation that leads to this shape, and records its crash points.
    fn step(&mut self, what: impl Into<String>, shape: &str, done: impl FnOnce(&mut Telling)) {
        let began = self.tape.end();
        done(self);
        let (seen, acknowledged) = (self.seen.clone(), self.tape.end());
        self.steps.push(Step { what: what.into(), seen, shape: shape.to_owned(), began, acknowledged });
    }

    /// The shape that the last step leads to.
    fn last(&self) -> String {
        self.steps.last().map_or_else(|| shape(&self.spa), |step| step.shape.clone())
    }

    /// Writes new contents to a file system. It is created if it does not exist.
    fn write(&mut self, name: &str) {
        let (last, head) = (self.last(), format!("{POOL}/{name}"));
        if !self.seen.contains_key(&head) {
            self.step(format!("create {name}"), &last, |t| {
                make(t.live(), &head).expect(FINE);
                t.seen.insert(head.clone(), Vec::new());
            });
        }
        self.step(format!("write {name}"), &last, |t| {
            let contents = write(t.live(), &head, next(&t.dice));
            t.seen.insert(head, contents);
        });
    }

    fn join(&mut self, old: usize, new: usize, replace: bool, sequential: bool, shape: &str) {
        let what =
            format!("{} d{old} d{new}, sequential {sequential}", if replace { "replace" } else { "attach" });
        self.step(what, shape, |t| {
            let claimer = |path: &std::path::Path| t.claim(path);
            let terms =
                AttachTerms { replace, sequential, force: false, unattended: false, claimer: &claimer };
            t.live().vdevs().attach(t.guid(old), &t.leaf(new), &terms).expect(FINE);
        });
    }

    fn attach(&mut self, old: usize, new: usize, shape: &str) {
        self.join(old, new, false, false, shape);
    }

    fn replace(&mut self, old: usize, new: usize, shape: &str) {
        self.join(old, new, true, false, shape);
    }

    fn detach(&mut self, device: usize, shape: &str) {
        self.step(format!("detach d{device}"), shape, |t| {
            t.live().vdevs().detach(t.guid(device)).expect(FINE)
        });
    }

    /// Waits until no background work is left.
    fn settle(&mut self) {
        let last = self.last();
        let what = format!("wait after {}", self.steps.last().map_or("", |step| &*step.what));
        self.step(what, &last, |t| {
            t.live().scans().wait().expect(FINE);
            until(&t.spa, &last).expect(FINE);
        });
    }

    /// Faults a device, so that a spare is activated.
    fn fault(&mut self, device: usize, shape: &str) {
        self.step(format!("fault d{device}"), shape, |t| {
            t.live().vdevs().fault(t.guid(device), Verdict::ByHand).expect(FINE);
            until(&t.spa, shape).expect(FINE);
        });
    }

    /// Clears the fault of a device.
    fn clear(&mut self, device: usize, shape: &str) {
        self.step(format!("clear d{device}"), shape, |t| t.live().clear(Some(t.guid(device))).expect(FINE));
    }

    fn add(&mut self, log: Option<usize>, spares: &[usize], cache: &[usize], shape: &str) {
        self.step(format!("add log {log:?}, spares {spares:?}, cache {cache:?}"), shape, |t| {
            let claimer = |path: &std::path::Path| t.claim(path);
            if let Some(log) = log {
                let leaves = vec![t.leaf(log)];
                let vdev = NewVdev { shape: VdevShape::Single, bias: Some(AllocBias::Log), leaves };
                let terms = AddTerms { ashift: None, check_ashift: false, force: false, claimer: &claimer };
                t.live().vdevs().add(&[vdev], &terms).expect(FINE);
                return;
            }
            let leaves = |of: &[usize]| of.iter().map(|d| t.leaf(*d)).collect::<Vec<_>>();
            t.live().vdevs().add_aux(&leaves(spares), &leaves(cache), false, &claimer).expect(FINE);
        });
    }

    fn remove(&mut self, device: usize, log: bool, shape: &str) {
        self.step(format!("remove d{device}"), shape, |t| {
            let guid = t.guid(device);
            match log {
                true => t.live().vdevs().remove_log(guid).expect(FINE),
                false => t.live().vdevs().remove_aux(guid).expect(FINE),
            }
        });
    }

    /// Takes a device offline during a write, and brings it online again.
    fn outage(&mut self, device: usize, temporary: bool, name: &str) {
        let last = self.last();
        self.step(format!("offline d{device}, temporary {temporary}"), &last, |t| {
            t.live().vdevs().offline(t.guid(device), temporary).expect(FINE);
        });
        self.write(name);
        self.step(format!("online d{device}"), &last, |t| {
            t.live().vdevs().online(t.guid(device), false).expect(FINE);
        });
    }

    fn sides(&mut self) {
        self.write("a");
        self.attach(0, 1, "mirror(d0.img d1.img)");
        self.write("b");
        self.settle();
        self.attach(1, 2, "mirror(d0.img d1.img d2.img)");
        self.write("a");
        self.settle();
        self.detach(0, "mirror(d1.img d2.img)");
        self.write("c");
        self.detach(1, "d2.img");
        self.write("b");
    }

    fn replacements(&mut self) {
        self.write("a");
        self.write("b");
        let shape = |a: &str, b: &str, c: &str| {
            format!("{a}.img mirror(d1.img {b}.img) raidz(d3.img {c}.img d5.img)")
        };
        self.replace(0, 6, &shape("d6", "d2", "d4"));
        self.settle();
        self.write("a");
        self.replace(2, 7, &shape("d6", "d7", "d4"));
        self.write("c");
        self.replace(4, 8, &shape("d6", "d7", "d8"));
        self.write("b");
        self.settle();
        self.write("c");
    }

    fn spares(&mut self) {
        self.write("a");
        self.add(None, &[2], &[], "mirror(d0.img d1.img) spare:d2.img");
        self.fault(0, "mirror(spare(d0.img d2.img) d1.img) spare:d2.img");
        self.write("b");
        self.settle();
        self.clear(0, "mirror(d0.img d1.img) spare:d2.img");
        self.settle();
        self.write("a");
        self.fault(1, "mirror(d0.img spare(d1.img d2.img)) spare:d2.img");
        self.write("c");
        self.replace(1, 3, "mirror(d0.img d3.img) spare:d2.img");
        self.settle();
        self.write("b");
        self.fault(0, "mirror(spare(d0.img d2.img) d3.img) spare:d2.img");
        self.settle();
        self.detach(0, "mirror(d2.img d3.img)");
        self.write("a");
    }

    fn rebuilds(&mut self) {
        self.write("a");
        self.write("b");
        self.join(0, 2, false, true, "mirror(d0.img d1.img d2.img)");
        self.write("a");
        self.settle();
        self.join(1, 3, true, true, "mirror(d0.img d3.img d2.img)");
        self.write("c");
        self.settle();
        self.write("b");
    }

    fn beside(&mut self) {
        self.write("a");
        let mirror = "mirror(d0.img d1.img)";
        self.add(Some(2), &[], &[], &format!("{mirror} log:d2.img"));
        self.write("b");
        self.add(None, &[3], &[4], &format!("{mirror} log:d2.img spare:d3.img cache:d4.img"));
        self.write("a");
        self.remove(2, true, &format!("{mirror} spare:d3.img cache:d4.img"));
        self.write("c");
        self.remove(4, false, &format!("{mirror} spare:d3.img"));
        self.remove(3, false, mirror);
        self.write("b");
        self.add(Some(4), &[], &[], &format!("{mirror} log:d4.img"));
        self.add(None, &[], &[5], &format!("{mirror} log:d4.img cache:d5.img"));
        self.write("b");
    }

    fn outages(&mut self) {
        self.write("a");
        self.outage(0, false, "b");
        self.settle();
        self.outage(3, true, "a");
        self.write("c");
        self.settle();
        self.outage(1, true, "c");
        self.outage(2, false, "b");
        self.settle();
        self.write("a");
    }

    fn distributed(&mut self) {
        let shape = |c: &str| format!("draid(d0.img d1.img {c} d3.img d4.img d5.img) spare:draid1-0-0");
        self.write("a");
        self.write("b");
        self.fault(2, &shape("spare(d2.img draid1-0-0)"));
        self.write("c");
        self.settle();
        self.clear(2, &shape("d2.img"));
        self.write("a");
        self.settle();
        self.write("b");
    }
}

/// Syncs transaction groups until the pool has a shape.
fn until(spa: &Spa, wanted: &str) -> Result<(), String> {
    let live = spa.writer().expect("it is open for writing");
    for _ in 0..GROUPS {
        let now = shape(spa);
        if now == wanted {
            return Ok(());
        }
        live.sync_anew().map_err(|e| e.to_string())?;
        live.monitor().run_now();
    }
    Err(format!("it comes to {}, and never to {wanted}", shape(spa)))
}

/// Runs a tale on a new pool, and records it.
///
/// # Panics
/// A step fails. No step should, as there are no faults yet.
pub fn live(tale: Tale, seed: u64) -> Life {
    let dir = tempfile::tempdir().expect("a folder for image files");
    let path = dir.path().canonicalize().expect("it was just made");
    let tape = Tape::default();
    let paths: Vec<PathBuf> = (0..tale.devices()).map(|n| path.join(image(n))).collect();
    for path in &paths {
        File::create(path).and_then(|file| file.set_len(SIZE)).expect("image files can be made");
    }
    let mut rest = paths.into_iter().map(|path| NewLeaf { path });
    let vdevs = tale.vdevs().into_iter().map(|(shape, count)| NewVdev {
        shape,
        bias: None,
        leaves: rest.by_ref().take(count).collect(),
    });
    let vdevs = vdevs.collect();
    let claimer = |path: &std::path::Path| claim_file(path).map(|(device, kind)| (tape.around(device), kind));
    let spa = begin_on(vdevs, Staged::new(&tape, seed), &claimer);
    spa.writer().expect("a new pool is open for writing").scans().limit_slices(SLICE);
    let seen = Seen::from([(POOL.to_owned(), Vec::new())]);
    let dice = AtomicU64::new(seed);
    let mut told = Telling { tape: tape.clone(), dir: path, spa, dice, seen, steps: Vec::new() };
    let shape = shape(&told.spa);
    told.step("create the pool", &shape, |_| ());
    told.steps[0].began = 0;
    tale.tell(&mut told);
    let end = tape.end();
    let steps = told.steps;
    drop(told.spa);
    tape.cut(end);
    Life { tale, tape, dir, steps }
}
