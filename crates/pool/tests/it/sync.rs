//! Transaction groups that change only a pool's own metadata, synced to copies of pools that
//! OpenZFS wrote.
//!
//! If the variable `ZDB` names OpenZFS's `zdb`, it checks the results.

use crate::common::{Opened, open, open_in};
use device::Mode;
use dmu::{Objset, SyncSink, Tx};
use ondisk::dnode::DnodePhys;
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::{Blkptr, CompressKind, DmuType, Level, Nvlist, ObjNum, Txg, Uberblock, Value, mos};
use pool::Mos;
use pool::alloc::Allocator;
use pool::metaslab::{LogChanges, TopVdev};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use vdev::label::LabelWriter;
use zio::{ReadOptions, WritePolicy};

/// Exported pools of each kind of vdev, with and without space map logs, old and new.
const POOLS: &[&str] = &[
    "single-lz4",
    "gang",
    "v28",
    "v1",
    "v5000-nofeat",
    "mirror2",
    "raidz1-3",
    "raidz2-5",
    "draid1",
    "stripe-classes",
    "multi-vdev",
];

/// Collects the blocks that the MOS no longer needs, to free them.
struct Sink<'a> {
    vdevs: &'a [TopVdev],
    compress: CompressKind,
    dead: Vec<Blkptr>,
}

impl SyncSink for Sink<'_> {
    fn policy(&self, _: DmuType, _: Level, _: &DnodePhys) -> WritePolicy {
        WritePolicy { compress: self.compress, copies: 2, hole_birth: false, ..WritePolicy::PLAIN }
    }

    fn born(&mut self, _: &Blkptr) {}

    fn large_dnode(&mut self) {}

    fn kill(&mut self, bp: &Blkptr) {
        self.dead.push(*bp);
    }

    fn dsize(&self, bp: &Blkptr) -> u64 {
        let dsize = Opened::dsize(self.vdevs);
        bp.stored().map_or(0, |s| s.copies().map(&dsize).sum())
    }

    fn hole_birth(&self) -> bool {
        false
    }
}

struct Writing {
    o: Opened,
    mos: Mos,
    vdevs: Vec<TopVdev>,
    alloc: Arc<Allocator>,
    deferred: Option<ObjNum>,
    compress: CompressKind,
}

impl Writing {
    fn open(images: &[std::path::PathBuf]) -> Writing {
        let o = open_in(images, Mode::Write).unwrap();
        let os =
            Objset::open_live(o.cache.clone(), 0, &o.mos.objset().root_bp(), ReadOptions::demand()).unwrap();
        let (mos, vdevs) = (Mos::open(os).unwrap(), o.vdevs());
        let alloc = Arc::new(Allocator::open(&o.mos, o.cache.zio().tree().clone(), &vdevs).unwrap());
        o.cache.zio().set_space(alloc.clone());
        let deferred = mos.dir(mos::SYNC_BPOBJ).unwrap();
        let lz4 = o.mos.features().is_ok_and(|f| f.is_enabled("org.illumos:lz4_compress"));
        let compress = if lz4 { CompressKind::Lz4 } else { CompressKind::Lzjb };
        Writing { o, mos, vdevs, alloc, deferred, compress }
    }

    fn free(&self, txg: Txg, bp: &Blkptr) {
        self.o.cache.zio().free(txg, bp).unwrap();
    }

    /// Syncs a transaction group with the changes of `work`. Returns the number of passes.
    fn group(&self, txg: u64, work: impl FnOnce(&Mos, &Tx)) -> u32 {
        let tx = Tx::new(Txg(txg), None);
        work(&self.mos, &tx);
        let dsize = |bp: &Blkptr| {
            let dsize = Opened::dsize(&self.vdevs);
            bp.stored().map_or(0, |s| s.copies().map(&dsize).sum())
        };
        if let Some(list) = self.deferred {
            let mut put_off = Vec::new();
            let each = &mut |bp: &Blkptr, _| {
                put_off.push(*bp);
                Ok(())
            };
            self.mos.bpobj_take(&tx, list, u64::MAX, &dsize, each).unwrap();
            put_off.iter().for_each(|bp| self.free(tx.txg(), bp));
        }
        for pass in 1..20 {
            self.alloc.sync(&tx, &self.mos, pass).unwrap();
            let mut sink = Sink { vdevs: &self.vdevs, compress: self.compress, dead: Vec::new() };
            if pass > 8 {
                sink.compress = CompressKind::Off;
            }
            let root = self
                .mos
                .objset()
                .sync(&tx, pass, &mut sink, &self.mos.objset().cache().zio().workers())
                .unwrap();
            match self.deferred.filter(|_| pass > 1) {
                None => sink.dead.iter().for_each(|bp| self.free(tx.txg(), bp)),
                Some(list) => self.mos.bpobj_append(&tx, list, &sink.dead, false, &dsize).unwrap(),
            }
            if !self.mos.objset().is_dirty(tx.txg()) && !self.alloc.is_dirty(tx.txg()) {
                self.commit(&tx, &root);
                self.alloc.sync_done(tx.txg(), &self.mos);
                return pass;
            }
        }
        panic!("group {txg} does not converge");
    }

    fn commit(&self, tx: &Tx, root: &Blkptr) {
        let shift = uberblock_shift(self.o.ashift);
        let (txg, rootbp) = (tx.txg(), root.encode());
        let uberblock =
            Uberblock { txg, rootbp, timestamp: self.o.newest.timestamp + 1, ..self.o.newest.clone() };
        let slots = (128 << 10) >> shift;
        for (_, device) in self.o.cache.zio().tree().devices() {
            for label in 0..LABELS {
                let writer = LabelWriter::new(&**device);
                writer.uberblock(label, shift, (txg.0 % slots) as usize, &uberblock).unwrap();
            }
            device.flush().unwrap();
        }
    }
}

fn record(n: u64) -> Nvlist {
    let mut list = Nvlist::new();
    list.set("history time", Value::Uint64(n));
    list.set("history command", Value::String(format!("command {n}").into_bytes()));
    list
}

/// Runs OpenZFS's `zdb`, if it is available, on all blocks of a pool and on its space maps.
fn judge(dir: &Path, pool: &str) {
    let Some(zdb) = std::env::var_os("ZDB") else { return };
    for args in [&["-bcc"][..], &["-mm"], &["-d"]] {
        let out = Command::new(&zdb).args(["-e", "-p"]).arg(dir).args(args).arg(pool).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        let bad = ["leaked", "double", "error", "mismatch", "refcount", "ASSERT", "corrupt"];
        let said: Vec<&str> = text.lines().filter(|l| bad.iter().any(|b| l.contains(b))).collect();
        let fine = |l: &&str| {
            l.contains("No leaks")
                || l.contains("nothing leaked ...")
                || l.starts_with("Verified ")
                || l.contains("errors: 0")
                || l.contains("error_scrub")
        };
        let said: Vec<_> = said.into_iter().filter(|l| !fine(l)).collect();
        assert!(out.status.success() && said.is_empty(), "{pool} {args:?}: {} {said:#?}", out.status);
    }
}

/// Goal: once the allocator stays in its metaslabs, a transaction group with few changes takes two
/// passes: the maps that the second one writes were rewritten in the first.
#[test]
fn two_passes() {
    for name in POOLS {
        let Some(f) = testkit::find(name) else { continue };
        let copy = f.copy();
        let w = Writing::open(copy.images());
        let passes: Vec<u32> = (w.o.txg + 1..w.o.txg + 13)
            .map(|txg| {
                w.group(txg, |mos, tx| {
                    mos.set_dir_words(tx, "tmp", &[txg]).unwrap();
                })
            })
            .collect();
        assert!(passes[4..].iter().filter(|passes| **passes == 2).count() >= 6, "{name}: {passes:?}");
    }
}

/// Goal: transaction groups converge in few passes and leave consistent pools, also after a second
/// import.
///
/// * The contents of each space map agree with its header.
/// * The space map logs are folded in.
/// * The history has all added records.
#[test]
fn groups_converge_and_leave_whole_pools() {
    for name in POOLS {
        let Some(f) = testkit::find(name) else { continue };
        let copy = f.copy();
        let mut last = 0;
        let mut added = Vec::new();
        for round in 0..2u64 {
            let w = Writing::open(copy.images());
            let first = w.o.txg + 1;
            for txg in first..first + 6 {
                let passes = w.group(txg, |mos, tx| {
                    for n in 0..40 {
                        added.push(txg * 1000 + n);
                        if mos.dir(mos::HISTORY).unwrap().is_some() {
                            mos.log_history(tx, &record(txg * 1000 + n)).unwrap();
                        } else {
                            mos.set_dir_words(tx, "tmp", &[round + n]).unwrap();
                            mos.unlink(tx, "tmp").unwrap();
                        }
                    }
                });
                assert!(passes <= 9, "{name}: group {txg} took {passes} passes");
                last = txg;
            }
            assert_eq!(w.alloc.bad_frees(), 0, "{name}");
        }
        let o = open(copy.images());
        assert_eq!(o.txg, last, "{name}");
        let (vdevs, logs) = (o.vdevs(), LogChanges::default());
        assert!(o.mos.log_spacemaps().unwrap().is_empty(), "{name}");
        for vd in &vdevs {
            let each = |ms: pool::metaslab::Metaslab| {
                let sum = ms.phys.as_ref().map_or(0, |p| p.alloc);
                assert_eq!(sum, ms.allocated.space() as i64, "{name}: {}/{}", vd.id, ms.id);
                Ok(())
            };
            o.mos.metaslabs(vd, &logs, each).unwrap();
        }
        if let Some(history) = o.mos.history().unwrap() {
            let all: Vec<u64> = history.filter_map(|r| r.unwrap().u64("history time")).collect();
            assert_eq!(all[all.len() - added.len()..], added, "{name}");
        }
        judge(copy.dir(), f.pool());
    }
}
