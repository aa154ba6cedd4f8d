//! Splitting a pool, with a power failure at any moment.
//!
//! # Theory
//! A split turns devices of one pool into another pool. After a crash there is one pool with all
//! devices, or two pools with half of them each. The order and number of imports make no
//! difference. No device ever belongs to both. Each pool has the contents of the old one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dsl::ops::create::Create;
use ondisk::{Guid, VdevConfig};
use spa::Spa;
use spa::SplitTerms;
use spa::create::VdevShape;
use spa::engine::PoolWriter;
use spa::import::{Options, Resources, SystemClock, import_for_writing};
use zpl::NewFileSystem;

use super::work::{POOL, SIZE, begin_with, host, next, read, write};
use super::{Outcome, Point, Tape};
use crate::chain;

/// The name of the pool that is split off.
const HALF: &str = "half";
/// The file system that both pools have.
const SHARED: &str = "a";
const COUNT: usize = 4;

/// A recorded split.
pub struct Split {
    tape: Tape,
    contents: Vec<u8>,
    begun: Point,
    done: Point,
}

pub(super) fn make(live: &PoolWriter, name: &str) -> Result<(), String> {
    let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
    let (props, crypt) = (Vec::new(), None);
    let task = Create { name: name.to_owned(), contents, props, crypt, enforce_limits: false };
    live.run(Box::new(task)).map_err(|e| format!("{name} cannot be made: {}", chain(&e)))
}

/// The file name of a device, without its directory.
pub(super) fn file_name(leaf: &VdevConfig) -> Option<String> {
    let path = String::from_utf8_lossy(leaf.path.as_deref()?).into_owned();
    path.rsplit('/').next().map(str::to_owned)
}

fn leaves(root: &VdevConfig) -> Vec<&VdevConfig> {
    let mut all: Vec<_> = root.leaves().filter(|leaf| leaf.path.is_some()).collect();
    all.sort_by_key(|leaf| leaf.path.clone());
    all
}

/// Splits a pool of two mirrors, continues with both pools, and records all of it.
///
/// # Panics
/// A step fails. No step should, as there are no faults yet.
pub fn split(seed: u64) -> Split {
    const FINE: &str = "nothing stands in the way of it";
    let tape = Tape::default();
    let mirror = (VdevShape::Mirror, None, COUNT / 2);
    let spa = begin_with(&tape, &[mirror, mirror], seed);
    let live = spa.writer().expect("a new pool is open for writing");
    let name = format!("{POOL}/{SHARED}");
    make(live, &name).expect(FINE);
    let contents = write(live, &name, seed);
    live.sync_all().expect(FINE);
    let config = live.config();
    let root = config.vdev_tree.as_ref().expect("a pool has a tree");
    let odd: Vec<Guid> = leaves(root).iter().skip(1).step_by(2).map(|leaf| leaf.guid).collect();
    let begun = tape.end();
    let half = live
        .split(&SplitTerms {
            name: HALF,
            guid: Guid(seed | 1 << 63),
            leaves: &odd,
            altroot: None,
            host: &host(),
            workers: Arc::new(zio::Workers::new("zio", 1)),
            cache: (32u64 << 20).into(),
        })
        .expect(FINE);
    let done = tape.end();
    make(half.writer().expect("it is open for writing"), &format!("{HALF}/later")).expect(FINE);
    make(live, &format!("{POOL}/later")).expect(FINE);
    drop(half);
    drop(spa);
    Split { tape, contents, begun, done }
}

/// Imports a pool. `None` if no pool has this name.
fn import(dir: &Path, name: &str) -> Result<Option<Spa>, String> {
    let scan = spa::discover(&[dir]);
    let Some(found) = scan.pools.iter().find(|pool| pool.name == name) else { return Ok(None) };
    let options = Options { readonly: false, force: true, cache: (32u64 << 20).into(), ..Options::default() };
    let resources = Resources::of_system(name);
    let spa = import_for_writing(found, &options, None, &host(), &SystemClock, resources);
    spa.map(Some).map_err(|e| format!("{name} cannot be imported: {}", chain(&e)))
}

impl Split {
    /// The first and the last crash point of the split.
    pub fn points(&self) -> (Point, Point) {
        (self.begun, self.tape.end())
    }

    /// Crashes at `point`, and imports the remaining pools twice.
    ///
    /// `new_first` imports the new pool first. [`Outcome::Step`] has the number of pools.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be written.
    pub fn crash(&self, point: Point, seed: u64, new_first: bool, dir: &Path) -> std::io::Result<Outcome> {
        let state = AtomicU64::new(seed);
        self.tape.develop(point, SIZE, COUNT, dir, &mut || next(&state))?;
        Ok(self.look(point, new_first, dir).map_or_else(Outcome::Wrong, Outcome::Step))
    }

    fn look(&self, point: Point, new_first: bool, dir: &Path) -> Result<usize, String> {
        let order = if new_first { [HALF, POOL] } else { [POOL, HALF] };
        let mut before = None;
        for round in 0..2 {
            let mut devices: Vec<(&str, Vec<String>)> = Vec::new();
            for name in order {
                if let Some(spa) = import(dir, name)? {
                    devices.push((name, self.use_pool(&spa, name, round)?));
                }
            }
            devices.sort();
            let halves = devices.iter().any(|(name, _)| *name == HALF);
            let counts: Vec<_> = devices.iter().map(|(name, devices)| (*name, devices.len())).collect();
            let right: &[_] = if halves { &[(HALF, COUNT / 2), (POOL, COUNT / 2)] } else { &[(POOL, COUNT)] };
            if counts != right || self.done <= point && !halves {
                return Err(format!("round {round}: {counts:?} is what there is"));
            }
            if before.as_ref().is_some_and(|b| *b != devices) {
                return Err(format!("first there was {before:?}, then {devices:?}"));
            }
            before = Some(devices);
        }
        Ok(before.map_or(0, |devices| devices.len()))
    }

    /// Checks the contents of a pool, changes and exports it. Returns its devices.
    fn use_pool(&self, spa: &Spa, name: &str, round: usize) -> Result<Vec<String>, String> {
        let live = spa.writer().expect("it was imported for writing");
        if read(live, &format!("{name}/{SHARED}")).as_ref() != Some(&self.contents) {
            return Err(format!("{name} has lost what it had"));
        }
        make(live, &format!("{name}/round{round}"))?;
        let healthy = spa.tree().state().0 == vdev::VdevState::Healthy;
        let config = live.config();
        live.export().map_err(|e| format!("{name} cannot be exported: {}", chain(&e)))?;
        let root = config.vdev_tree.as_ref().expect("a pool has a tree");
        // A path may still be the one from before the crash, so their order means nothing.
        let mut names: Vec<_> = leaves(root).iter().filter_map(|leaf| file_name(leaf)).collect();
        names.sort();
        if healthy { Ok(names) } else { Err(format!("{name} lacks a device")) }
    }
}
