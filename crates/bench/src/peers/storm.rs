//! Many small synchronous writes: each thread writes 8 KiB to an object of its own and commits it,
//! repeatedly.

use super::knobs::{BS, OBJ_MB, TITLE};
use super::stage::{Stage, duration, noise, together};
use super::{Answer, Knobs};
use anyhow::Result;
use poolhouse::dmu::Dnode;
use poolhouse::ondisk::ObjNum;
use poolhouse::zil::{Bytes, Missing, Source};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The written objects, sorted by number. The log reads their data from here.
struct Objects(Vec<Dnode>);

impl Objects {
    fn of(&self, object: ObjNum) -> Option<&Dnode> {
        self.0.binary_search_by_key(&object, Dnode::object).ok().map(|at| &self.0[at])
    }
}

impl Source for Objects {
    fn data(&self, object: ObjNum, offset: u64, len: usize) -> std::result::Result<Bytes, Missing> {
        let dnode = self.of(object).ok_or(Missing::Gone)?;
        Bytes::of(dnode, offset, len).map_err(|_| Missing::Unreadable)
    }
}

/// The result of a thread.
struct Done {
    us: Vec<f64>,
}

/// Nanoseconds of waiting for locks, by site.
fn waits() -> BTreeMap<&'static str, u64> {
    observe::lock_stats().into_iter().map(|s| (s.name, s.total_ns)).collect()
}

pub(super) fn storm(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let (bs, mb) = (knobs.number(BS)?, knobs.number(OBJ_MB)?);
    let title = knobs.word(TITLE)?.to_owned();
    let stage = Stage::new(dir, knobs)?;
    let threads = knobs.threads()?;
    let most = threads.iter().copied().max().unwrap_or(1);
    let mut objects: Vec<Dnode> = (0..most).map(|_| stage.object(bs)).collect::<Result<_>>()?;
    objects.sort_by_key(Dnode::object);
    let objects = Objects(objects);
    stage.sync()?;
    let log = stage.live().logs().open(&stage.owned);
    let blocks = (mb << 20) / bs;
    let run = |threads: usize, time: Duration| {
        together(threads, time, |id, stop| {
            let (dnode, data) = (&objects.0[id], noise(usize::try_from(bs)?, 77 + id as u64));
            let mut us = Vec::with_capacity(1 << 16);
            while !stop.load(Ordering::Relaxed) {
                let since = Instant::now();
                let offset = us.len() as u64 % blocks * bs;
                {
                    let tx = stage.tx(bs)?;
                    dnode.write_at(&tx, offset, &data)?;
                    log.log_write(&tx, dnode.object(), offset, &data, true);
                }
                log.commit(Some(dnode.object()), &objects)?;
                us.push(since.elapsed().as_secs_f64() * 1e6);
            }
            Ok(Done { us })
        })
    };
    // The log starts with the first commit, which waits for a transaction group.
    run(most, Duration::from_millis(200))?;
    let mut answer = Answer::default();
    for threads in threads {
        let (before, waited) = (log.stats(), waits());
        let done = run(threads, duration(knobs)?)?;
        let after = log.stats();
        let all_ns = done.wall_s * 1e9 * threads as f64;
        for (site, ns) in waits() {
            let percent = (ns - waited.get(site).copied().unwrap_or(0)) as f64 / all_ns * 100.0;
            answer.put(&title, &format!("t{threads}.lock_wait_percent.{}", site.replace(' ', "-")), percent);
        }
        let us: Vec<f64> = done.each.into_iter().flat_map(|d| d.us).collect();
        let (ops, name) = (us.len() as f64, format!("t{threads}"));
        answer.put(&title, &format!("{name}.ops_s"), ops / done.wall_s);
        answer.put(&title, &format!("{name}.cpu_us"), done.cpu_s / ops * 1e6);
        let share = |a: u64, b: u64| (a - b) as f64 / ops;
        answer.put(&title, &format!("{name}.flushes_per_op"), share(after.flush_count, before.flush_count));
        answer.put(&title, &format!("{name}.blocks_per_op"), share(after.block_count, before.block_count));
        let waits = share(after.commit_group_waits, before.commit_group_waits);
        answer.put(&title, &format!("{name}.group_waits_per_op"), waits);
        answer.put_latency(&title, threads, us);
    }
    drop(log);
    drop(objects);
    stage.end()?;
    Ok(answer)
}
