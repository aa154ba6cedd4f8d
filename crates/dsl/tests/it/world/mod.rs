//! A pool that OpenZFS wrote, changed in memory: shared helpers of the tests of operations.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses some of it")]

use crate::common;
use dmu::{Objset, Tx};
use dsl::ops::create::Create;
use dsl::ops::snapshot::Snapshot;
use dsl::{Contents, Dsl, Env, Error, Kind, Options, Refusal, SyncTask, Syncing};
use ondisk::{Blkptr, Txg};
use pool::Mos;
use pool::space::PoolSpace;
use std::sync::Arc;

/// A pool whose MOS is changed in memory only.
pub struct World {
    pub dsl: Dsl,
    txg: u64,
    seed: u64,
    vdevs: Vec<pool::metaslab::TopVdev>,
}

/// The contents of an empty object set.
pub struct Empty;

impl Contents for Empty {
    fn kind(&self) -> Kind {
        Kind::Filesystem
    }

    fn fill(&self, _: &Objset, _: &Tx) -> Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

impl World {
    pub fn open(name: &str) -> World {
        let images = testkit::fixture(name);
        let o = common::open(&images);
        let os = Objset::open_live(o.cache.clone(), 0, &o.mos.objset().root_bp(), zio::ReadOptions::demand())
            .unwrap();
        let mos = Mos::open(os).unwrap();
        let vdevs = o.vdevs();
        let space = PoolSpace::of(&mos, &vdevs, &[]).unwrap();
        let options = Options { pool_name: o.config.name.clone().unwrap(), space, altroot: None };
        let dsl = Dsl::open(mos, options).unwrap();
        World { dsl, txg: o.txg + 1, seed: 1, vdevs }
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}{rest}", self.dsl.pool_name())
    }

    /// Runs tasks in their own transaction group, and checks the space sums.
    pub fn run(&mut self, tasks: &mut [&mut dyn SyncTask]) -> Vec<dsl::Result<()>> {
        let out = self.run_damaged(tasks);
        self.check_sums();
        out
    }

    /// Changes the MOS in a way that no operation does.
    pub fn damage(&mut self, how: impl FnOnce(&Dsl, &Tx)) {
        let tx = Tx::new(Txg(self.txg), None);
        how(&self.dsl, &tx);
    }

    /// As `run`, for a pool whose sums may disagree.
    pub fn run_damaged(&mut self, tasks: &mut [&mut dyn SyncTask]) -> Vec<dsl::Result<()>> {
        let tx = Tx::new(Txg(self.txg), None);
        self.txg += 1;
        let seed = &mut self.seed;
        let mut random = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *seed
        };
        let vdevs = &self.vdevs;
        let dsize = |bp: &Blkptr| {
            bp.stored().map_or(0, |s| {
                s.copies().map(|d| vdevs.iter().find(|v| v.id == d.vdev).unwrap().deflate(d.asize.0)).sum()
            })
        };
        let env = Env { now: 1_800_000_000, random: &mut random, dsize: &dsize };
        let mut s = Syncing::new(&self.dsl, &tx, env);
        let out = tasks.iter_mut().map(|t| s.run(&mut **t).unwrap()).collect();
        s.finish().unwrap();
        out
    }

    pub fn ok(&mut self, task: &mut dyn SyncTask) {
        self.run(&mut [task]).remove(0).unwrap();
    }

    pub fn refused(&mut self, task: &mut dyn SyncTask) -> Refusal {
        match self.run(&mut [task]).remove(0) {
            Err(Error::Refused { why, .. }) => why,
            r => panic!("{r:?}"),
        }
    }

    /// Checks that space sums agree: a directory's breakdown with its total, and its children's use
    /// with its own count of it.
    pub fn check_sums(&self) {
        let all = dsl::ListOptions { hidden: true, snapshots: false, ..dsl::ListOptions::default() };
        let mut children = std::collections::HashMap::<u64, u64>::new();
        let dirs = self.dsl.list_sorted(None, &all).unwrap().whole().unwrap();
        for d in &dirs {
            let p = d.dir().phys();
            assert_eq!(p.used_breakdown.iter().sum::<u64>(), p.used_bytes, "{}", d.name());
            if let Some(parent) = d.dir().parent() {
                *children.entry(parent.object().0).or_default() += p.used_bytes.max(p.reserved);
            }
            if let Some(prev) = Some(d.phys().prev_snap_obj).filter(|o| *o != 0) {
                let prev = self.dsl.by_object(ondisk::ObjNum(prev)).unwrap();
                assert_eq!(prev.phys().creation_txg.0, d.phys().prev_snap_txg, "{}", d.name());
            }
        }
        for d in &dirs {
            let p = d.dir().phys();
            // $MOS and $FREE have no head and are not listed.
            if d.dir().parent().is_some() {
                let below = children.get(&d.dir().object().0).copied().unwrap_or(0);
                assert_eq!(p.used_breakdown[2] + p.used_breakdown[3], below, "{}", d.name());
            }
        }
    }
}

pub fn create(name: String, contents: impl Contents + 'static) -> Create {
    Create { name, contents: Arc::new(contents), props: Vec::new(), crypt: None, enforce_limits: true }
}

pub fn snapshot(names: &[String]) -> Snapshot {
    Snapshot { names: names.to_vec(), ..Snapshot::default() }
}
