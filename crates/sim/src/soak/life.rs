//! A life: the steps of one pool, or of two that send to each other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::Failure;
use super::disk::Power;
use super::model::{Contents, Model, Op};
use super::pool::SoakPool;
use super::streams::Models;
use super::terms::Terms;
use crate::chain;
use crate::crash::SplitMix;

/// One or two pools, and what they must hold.
pub struct Life {
    seed: u64,
    /// Number of steps done.
    steps: u64,
    power: Arc<Power>,
    first: SoakPool,
    second: Option<SoakPool>,
    /// What happened to receives, and how often.
    happened: RefCell<BTreeMap<&'static str, u64>>,
}

/// The first steps of a life.
pub fn plan(terms: Terms, steps: u64) -> Vec<Op> {
    let (mut first, mut second) = (Model::first(&terms), Model::second(&terms));
    let mut models = Models { first: &mut first, second: second.as_mut() };
    (0..steps).map(|n| models.step(dice(terms.seed, n))).collect()
}

/// The seed of a step.
fn dice(seed: u64, step: u64) -> u64 {
    SplitMix(seed ^ step.wrapping_mul(0xa076_1d64_78bd_642f)).roll()
}

impl Life {
    /// The directory of the second pool, in that of the first.
    pub const SECOND: &'static str = "second";

    fn of(dir: &Path, terms: Terms, workers: usize) -> Life {
        let power: Arc<Power> = Arc::default();
        let pool = |dir: &Path, seed, model| SoakPool::new(dir, seed, workers, model, &power);
        let first = pool(dir, terms.seed, Model::first(&terms));
        let second = Model::second(&terms).map(|model| pool(&dir.join(Life::SECOND), !terms.seed, model));
        Life { seed: terms.seed, steps: 0, power, first, second, happened: RefCell::default() }
    }

    /// Creates the pools on images in the directory `dir`, with `workers` I/O workers each.
    ///
    /// # Errors
    /// [`Failure`]: an image can't be created, or a pool can't be created.
    pub fn begin(dir: &Path, terms: Terms, workers: usize) -> Result<Life, Failure> {
        let mut life = Life::of(dir, terms, workers);
        life.first.create(terms.shape)?;
        if let Some(second) = &mut life.second {
            second.create(terms.second_shape())?;
        }
        Ok(life)
    }

    /// Continues a life with the pools that a killed actor left.
    ///
    /// The pools must show the state after `steps` steps, or after one more. What is left of
    /// streams must be the model's, but for the head of the step that was begun.
    ///
    /// # Errors
    /// [`Failure`]: a pool shows another state, or can't be opened.
    pub fn resume(dir: &Path, terms: Terms, workers: usize, steps: u64) -> Result<Life, Failure> {
        let mut life = Life::of(dir, terms, workers);
        (0..steps).for_each(|n| drop(life.models().step(dice(terms.seed, n))));
        life.turn(steps);
        life.pools().for_each(SoakPool::set_moods);
        let seen = life.look().map_err(|e| format!("as it was left: {}", chain(&*e)))?;
        let before = life.partials();
        let is_before = seen == life.wanted();
        let kept: Vec<Model> = life.pools().map(|pool| pool.model.clone()).collect();
        let op = life.models().step(dice(terms.seed, steps));
        let after = life.partials();
        let (allowed, begun) = if is_before {
            life.pools_mut().zip(kept).for_each(|(pool, model)| pool.model = model);
            ([before, after], op.receives_into())
        } else {
            life.turn(steps + 1);
            life.compare(&seen).map_err(|e| format!("after {steps} steps, and {op:?} begun: {e}"))?;
            ([after.clone(), after], None)
        };
        for pool in life.pools_mut() {
            pool.import().map_err(|e| format!("when it is imported: {}", chain(&*e)))?;
        }
        life.compare_partials(&allowed, begun)?;
        Ok(life)
    }

    /// Compares the heads that have a part of a stream with those that may have one, but for one
    /// head.
    fn compare_partials(&self, allowed: &[BTreeSet<String>], but: Option<&String>) -> Result<(), Failure> {
        let mut found = BTreeSet::new();
        for pool in self.pools() {
            found.append(&mut pool.partials()?);
        }
        let others = |set: &BTreeSet<String>| -> BTreeSet<String> {
            set.iter().filter(|name| but != Some(name)).cloned().collect()
        };
        match allowed.iter().any(|set| others(set) == others(&found)) {
            true => Ok(()),
            false => Err(format!("parts of streams are in {found:?}, and should be in {allowed:?}").into()),
        }
    }

    fn pools(&self) -> impl Iterator<Item = &SoakPool> {
        [&self.first].into_iter().chain(&self.second)
    }

    fn pools_mut(&mut self) -> impl Iterator<Item = &mut SoakPool> {
        [&mut self.first].into_iter().chain(&mut self.second)
    }

    fn models(&mut self) -> Models<'_> {
        Models { first: &mut self.first.model, second: self.second.as_mut().map(|pool| &mut pool.model) }
    }

    /// Notes the number of steps done.
    fn turn(&mut self, steps: u64) {
        self.steps = steps;
        self.pools_mut().for_each(|pool| pool.steps = steps);
    }

    /// Number of steps done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What happened to receives that no plan says, and how often: those that ran out of space, and
    /// those that a crash interrupted.
    pub fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.happened.borrow().clone()
    }

    pub(super) fn note(&self, what: &'static str) {
        *self.happened.borrow_mut().entry(what).or_default() += 1;
    }

    /// The pool with a dataset of this name.
    pub(super) fn pool_of(&self, name: &str) -> &SoakPool {
        self.pools().find(|pool| pool.model.has(name)).expect("each name is that of a pool")
    }

    /// Does the next step. The step is on disk when this returns.
    ///
    /// # Errors
    /// [`Failure`]: a pool refuses the step. The models choose only steps that the pools must
    /// accept.
    pub fn step(&mut self) -> Result<Op, Failure> {
        let number = dice(self.seed, self.steps);
        let op = self.models().step(number);
        self.perform(&op).map_err(|e| format!("step {}, {op:?}: {}", self.steps, chain(&*e)))?;
        self.turn(self.steps + 1);
        Ok(op)
    }

    /// Begins the next step. The machine loses its power after so many writes to devices.
    pub fn crash(mut self, writes: u64) {
        self.power.fail_after(writes);
        // Without power the step may fail, or seem to be done.
        drop(self.step());
    }

    fn perform(&mut self, op: &Op) -> Result<(), Failure> {
        match op {
            Op::Receive(t) => self.receive(t),
            Op::Break(t, at) => self.break_off(t, *at),
            Op::Cramped(t, free) => self.receive_cramped(t, *free),
            Op::Resume(t) => self.resume_receive(t),
            Op::GiveUp(to) => self.give_up(to),
            Op::Second(op) => self.second.as_mut().ok_or("there is no second pool")?.perform(op),
            op => self.first.perform(op),
        }
    }

    /// Removes all faults, exports the pools and checks their contents.
    ///
    /// # Errors
    /// [`Failure`]: a device or block is still damaged, the contents differ from the model, or a
    /// pool can't be exported.
    pub fn finish(&mut self) -> Result<(), Failure> {
        for pool in self.pools_mut() {
            for op in pool.model.ends() {
                pool.perform(&op).map_err(|e| format!("in the end, {op:?}: {}", chain(&*e)))?;
            }
        }
        self.export()?;
        self.check()
    }

    /// Exports the pools.
    ///
    /// # Errors
    /// [`Failure`]: a pool is not open for writing, or has stopped.
    pub fn export(&mut self) -> Result<(), Failure> {
        self.pools_mut().try_for_each(SoakPool::export)
    }

    /// Compares the exported pools with their models.
    ///
    /// # Errors
    /// [`Failure`]: they differ, or a pool can't be read.
    pub fn check(&self) -> Result<(), Failure> {
        self.compare(&self.look()?)
    }

    fn compare(&self, seen: &[BTreeMap<String, Contents>]) -> Result<(), Failure> {
        self.pools().zip(seen).try_for_each(|(pool, seen)| pool.compare(seen))
    }

    /// What the pools on the images hold.
    fn look(&self) -> Result<Vec<BTreeMap<String, Contents>>, Failure> {
        self.pools().map(SoakPool::look).collect()
    }

    fn wanted(&self) -> Vec<BTreeMap<String, Contents>> {
        self.pools().map(SoakPool::wanted).collect()
    }

    /// The heads that have a part of a stream by the models.
    fn partials(&self) -> BTreeSet<String> {
        self.pools().flat_map(|pool| pool.model.datasets.partials.keys().cloned()).collect()
    }

    /// A hash of all images. With one worker, the same seed gives the same hash.
    ///
    /// # Errors
    /// [`std::io::Error`]: a directory or an image can't be read.
    pub fn digest(&self) -> std::io::Result<String> {
        let mut hash = blake3::Hasher::new();
        for pool in self.pools() {
            pool.hash(&mut hash)?;
        }
        Ok(hash.finalize().to_hex().to_string())
    }
}
