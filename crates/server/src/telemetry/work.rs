//! What is under way, what was slow, and what each thread does.
//!
//! # Theory
//! Layers and front ends note numbers ([`observe::work`]). Here they become names.
//!
//! The path of a file needs reads of its directories, which may hang with their device. So one
//! thread looks for paths, and a reply waits for it [`PATIENCE`] at most. While it hangs, replies
//! have no paths. It looks for none in a suspended pool, whose mounts can end meanwhile: a search
//! is a use of the mount, as a request is.

use crate::pools::{Imported, Pools};
use crate::query::is_suspended;
use api::{
    AllUnderWay, Caller, Error, METHODS, SLOW_MAX, SlowOp, SlowOps, SlowQuery, Subject, TopThread, UnderWay,
    Waited,
};
use observe::clients::{self, Who};
use observe::work::{Job, Kind, Task, ThreadState, TxgReason, Wait};
use observe::{slow, work};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::errnos::errno_name;

/// How long a reply waits for paths.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long after an operation, the number of its process is still that process's.
const NEW: Duration = Duration::from_secs(2);
/// The number of the file system's clock ticks in a second (`USER_HZ`).
const TICKS: u64 = 100;

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The names of devices, by guid.
pub(super) fn devices(pools: &[Arc<Imported>]) -> HashMap<u64, String> {
    let of = |pool: &Arc<Imported>| {
        let tree = pool.pool.spa().tree();
        tree.devices().map(|(guid, device)| (guid.0, device.name().to_owned())).collect::<Vec<_>>()
    };
    pools.iter().flat_map(of).collect()
}

/// The names of the pools that are suspended.
pub(super) fn suspended(pools: &[Arc<Imported>]) -> HashSet<String> {
    let all = pools.iter().filter(|pool| is_suspended(pool));
    all.map(|pool| pool.pool.name().to_owned()).collect()
}

/// Whether a dataset is in one of these pools.
pub(super) fn is_in(dataset: &str, pools: &HashSet<String>) -> bool {
    dataset.split(['/', '@']).next().is_some_and(|pool| pools.contains(pool))
}

/// A wait in words.
pub(super) fn waited(wait: Wait, what: u64, ns: u64, devices: &HashMap<u64, String>) -> Waited {
    let name = match wait {
        Wait::Read | Wait::Write | Wait::Flush | Wait::Discard => devices.get(&what).cloned(),
        Wait::Lock => observe::site_name(what).map(str::to_owned),
        Wait::Txg => {
            let at = usize::try_from(what).ok();
            at.and_then(|at| TxgReason::ALL.get(at)).map(|reason| reason.name().to_owned())
        }
        Wait::Queue | Wait::Log | Wait::Cache | Wait::Pace | Wait::Workers | Wait::Suspended => None,
    };
    Waited { wait: wait.name().to_owned(), what: name.unwrap_or_default(), ns }
}

/// Nanoseconds of waits by kind, those that there were.
pub(super) fn by_kind(waits: &[u64]) -> Vec<(String, u64)> {
    let named = Wait::ALL.iter().zip(waits).filter(|(_, ns)| **ns > 0);
    named.map(|(wait, ns)| (wait.name().to_owned(), *ns)).collect()
}

/// A node of a [`work::Place`].
pub(super) type Node = (u64, u64);

/// Whether a thread looks for paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths(Arc<AtomicBool>);

/// Marks the end of a search for paths.
struct Search(Arc<AtomicBool>);

impl Drop for Search {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Paths {
    /// The paths of nodes, those that are found in time.
    pub(super) fn of(&self, nodes: HashSet<Node>) -> HashMap<Node, String> {
        let mut found = HashMap::new();
        if nodes.is_empty() || self.0.swap(true, Ordering::Acquire) {
            return found;
        }
        let search = Search(Arc::clone(&self.0));
        let (send, receive) = channel();
        let thread = std::thread::Builder::new().name("paths".to_owned()).spawn(move || {
            let _search = search;
            for (number, node) in nodes {
                let path = work::place(number).and_then(|place| place.path(node));
                // Without a receiver, the reply did not wait any longer.
                if send.send(((number, node), path)).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = thread {
            tracing::debug!(%error, "no thread looks for paths");
        }
        let until = Instant::now() + PATIENCE;
        while let Ok((node, path)) = receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
            found.extend(path.map(|path| (node, String::from_utf8_lossy(&path).into_owned())));
        }
        found
    }
}

/// The names of a kind's front end and operation. `node`: the job's.
pub(super) fn op_name(kind: Kind, node: u64) -> (&'static str, &'static str) {
    match kind {
        Kind::Request(frontend, op) => (frontend.name(), op.name()),
        Kind::Task(Task::Command) => {
            let at = usize::try_from(node).ok();
            ("control", at.and_then(|at| METHODS.get(at)).copied().unwrap_or("request"))
        }
        Kind::Task(task) => ("", task.name()),
    }
}

/// What a job is about, without its path.
fn subject(job: &Job) -> Subject {
    let here = work::place(job.place).and_then(|place| place.dataset(job.node));
    let (dataset, object) = here.unwrap_or_default();
    let (frontend, op) = op_name(job.kind, job.node);
    let Sender { pid, uid, process, address } =
        sender(job.client).unwrap_or_else(|| Sender::of(job.pid, job.uid, slow::process_name(job.pid)));
    Subject {
        frontend: frontend.to_owned(),
        op: op.to_owned(),
        dataset,
        object,
        path: None,
        txg: (job.kind == Kind::Task(Task::Sync)).then_some(job.node),
        pid,
        uid,
        process,
        address,
    }
}

/// The client that sent an operation.
struct Sender {
    pid: u32,
    uid: u32,
    process: String,
    address: Option<String>,
}

impl Sender {
    fn of(pid: u32, uid: u32, process: String) -> Self {
        Self { pid, uid, process, address: None }
    }
}

/// The client with this number, if it is one with connections that is still known.
fn sender(number: u64) -> Option<Sender> {
    let client = if number == 0 { None } else { clients::by_number(number) }?;
    let name = super::clients::name(&client);
    Some(match client.key().who {
        Who::Process { pid, uid, .. } => Sender::of(pid, uid, name),
        Who::User(uid) => Sender::of(0, uid, name),
        Who::Kernel => Sender::of(0, 0, name),
        Who::Address(_) => Sender { address: Some(name), ..Sender::of(0, 0, String::new()) },
    })
}

/// What is under way.
///
/// # Errors
/// See [`api::Service::under_way`].
pub(crate) fn under_way(caller: &Caller, pools: &Pools, paths: &Paths) -> Result<AllUnderWay, Error> {
    caller.must_own("what is under way")?;
    let pools = pools.table().present();
    let (devices, suspended) = (devices(&pools), suspended(&pools));
    let mut jobs: HashMap<Job, Vec<ThreadState>> = HashMap::new();
    // This request itself is of no interest.
    let here = work::current().map(|(job, _)| job);
    for thread in work::threads() {
        if let Some(job) = thread.job.filter(|job| here != Some(*job)) {
            jobs.entry(job).or_default().push(thread);
        }
    }
    let now = Instant::now();
    let mut all: Vec<(Job, UnderWay)> =
        jobs.into_iter().map(|(job, threads)| (job, row(&job, &threads, now, &devices))).collect();
    all.sort_by_key(|(_, row)| Reverse(row.age_ns));
    all.truncate(SLOW_MAX);
    let has_path = |row: &UnderWay| row.subject.object.is_some() && !is_in(&row.subject.dataset, &suspended);
    let nodes = all.iter().filter(|(_, row)| has_path(row));
    let paths = paths.of(nodes.map(|(job, _)| (job.place, job.node)).collect());
    for (job, row) in &mut all {
        row.subject.path = paths.get(&(job.place, job.node)).cloned();
    }
    Ok(AllUnderWay { process: api::process_id(), ops: all.into_iter().map(|(_, row)| row).collect() })
}

/// A job and the threads that work for it.
fn row(job: &Job, threads: &[ThreadState], now: Instant, devices: &HashMap<u64, String>) -> UnderWay {
    // The thread with the job waits for the others, so their waits say more than its own.
    let rank = |thread: &&ThreadState| match thread.wait {
        Some((Wait::Workers, ..)) => 0,
        None => 1,
        Some(_) => 2,
    };
    let mut row = UnderWay { subject: subject(job), ..UnderWay::default() };
    row.age_ns = ns(now.saturating_duration_since(job.began));
    if let Some(shown) = threads.iter().max_by_key(rank) {
        row.wait = shown.wait.map(|(wait, what, time)| waited(wait, what, ns(time), devices));
        (row.thread, row.tid) = (shown.name.clone(), shown.tid);
    }
    row.helpers = (threads.len() as u64).saturating_sub(1);
    row
}

/// Slow operations.
///
/// # Errors
/// See [`api::Service::slow`].
pub(crate) fn slow(
    caller: &Caller,
    pools: &Pools,
    query: &SlowQuery,
    paths: &Paths,
) -> Result<SlowOps, Error> {
    caller.must_own("the slow operations")?;
    let pools = pools.table().present();
    let (least, devices) = (Duration::from_nanos(query.least_ns), devices(&pools));
    let mut reply = SlowOps { process: api::process_id(), ..SlowOps::default() };
    let mut found: Vec<slow::SlowOp> = Vec::new();
    for pool in &pools {
        let (slowest, number) = (pool.pool.ops().slowest(), pool.pool.ops().number());
        if let Some(since) = query.since_ns {
            let since = UNIX_EPOCH + Duration::from_nanos(since);
            found.extend(slowest.since(since, least));
            continue;
        }
        let after = query.next.iter().find(|(of, _)| *of == number).map(|(_, next)| *next);
        // What ended in a pool since its import, which came after the reply before, is new.
        let after = after.or_else(|| (!query.next.is_empty()).then_some(0));
        let seen = slowest.watch(least, after);
        reply.next.push((number, seen.next));
        reply.lost = reply.lost.saturating_add(seen.lost);
        found.extend(seen.ops);
    }
    found.retain(|op| is_wanted(query, op));
    if found.len() > SLOW_MAX {
        found.sort_by_key(|op| Reverse(op.took_ns));
        reply.lost = reply.lost.saturating_add((found.len() - SLOW_MAX) as u64);
        found.truncate(SLOW_MAX);
    }
    found.sort_by_key(|op| (op.at, op.number));
    let (mut nodes, suspended) = (HashSet::new(), suspended(&pools));
    for op in found.iter().filter(|op| !is_in(&op.dataset, &suspended)) {
        let object =
            work::place(op.place).and_then(|place| place.dataset(op.node)).and_then(|(_, object)| object);
        nodes.extend(object.map(|_| (op.place, op.node)));
    }
    let paths = paths.of(nodes);
    reply.ops = found.into_iter().map(|op| slow_op(op, &paths, &devices)).collect();
    Ok(reply)
}

/// Whether an operation is one of those that a query names.
fn is_wanted(query: &SlowQuery, op: &slow::SlowOp) -> bool {
    let is_of = |name: &String| {
        let below = op.dataset.strip_prefix(name.as_str());
        below.is_some_and(|below| below.is_empty() || below.starts_with(['/', '@']))
    };
    let has_name = query.ops.is_empty() || query.ops.iter().any(|name| name == op.op.name());
    has_name && query.dataset.as_ref().is_none_or(is_of)
}

fn slow_op(op: slow::SlowOp, paths: &HashMap<Node, String>, devices: &HashMap<u64, String>) -> SlowOp {
    let here = work::place(op.place).and_then(|place| place.dataset(op.node));
    // Later, the number may be another process's.
    let is_new = op.at.elapsed().is_ok_and(|age| age < NEW);
    let process = if op.process.is_empty() && is_new { slow::process_name(op.pid) } else { op.process };
    let sender = sender(op.client).unwrap_or_else(|| Sender::of(op.pid, op.uid, process));
    let subject = Subject {
        frontend: op.frontend.name().to_owned(),
        op: op.op.name().to_owned(),
        dataset: op.dataset,
        object: here.and_then(|(_, object)| object),
        path: paths.get(&(op.place, op.node)).cloned(),
        txg: None,
        pid: sender.pid,
        uid: sender.uid,
        process: sender.process,
        address: sender.address,
    };
    let longest = op.spent.longest.map(|longest| waited(longest.wait, longest.what, longest.ns, devices));
    SlowOp {
        subject,
        at_ns: ns(op.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        took_ns: op.took_ns,
        bytes: op.bytes,
        error: op.failed.map(errno_name),
        waits: by_kind(&op.spent.ns),
        longest,
    }
}

/// The threads of this process, `limit` at most: those that computed or waited the most.
pub(super) fn threads(limit: usize) -> Vec<TopThread> {
    let states: HashMap<u32, ThreadState> =
        work::threads().into_iter().map(|thread| (thread.tid, thread)).collect();
    let tids = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut all: Vec<TopThread> = tids.filter_map(|tid| thread(tid, states.get(&tid))).collect();
    let rank = |thread: &TopThread| {
        let waits: u64 = thread.waits.iter().map(|(_, ns)| ns).sum();
        thread.user_ns.saturating_add(thread.system_ns).saturating_add(waits)
    };
    all.sort_by_key(|thread| (Reverse(rank(thread)), thread.tid));
    all.truncate(limit);
    all
}

/// A thread. `None` if it has ended.
fn thread(tid: u32, state: Option<&ThreadState>) -> Option<TopThread> {
    let stat = std::fs::read(format!("/proc/self/task/{tid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // A name may have parentheses and spaces.
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc_pid_stat(5), whose field 3 comes first here.
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
    let ticks = |number| field(number).map(|ticks| ticks.saturating_mul(1_000_000_000 / TICKS));
    // Without that file, the kernel does not measure it.
    let sched = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    let exact = |at| sched.split_ascii_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (user_ns, system_ns) = split(exact(0).unwrap_or(0), ticks(14)?, ticks(15)?);
    Some(TopThread {
        tid,
        name,
        began: field(22)?,
        user_ns,
        system_ns,
        latency_ns: exact(1).unwrap_or(0),
        waits: state.map(|state| by_kind(&state.waited)).unwrap_or_default(),
        doing: state.map(doing).unwrap_or_default(),
    })
}

/// Splits the exact time of a thread as its ticks are. Without it, the ticks are all there is.
fn split(exact: u64, user: u64, system: u64) -> (u64, u64) {
    match user.saturating_add(system) {
        _ if exact == 0 => (user, system),
        0 => (exact, 0),
        ticks => {
            let user = u128::from(exact) * u128::from(user) / u128::from(ticks);
            let user = u64::try_from(user).unwrap_or(u64::MAX);
            (user, exact.saturating_sub(user))
        }
    }
}

/// What a thread does now.
fn doing(state: &ThreadState) -> String {
    let mut words = Vec::new();
    if let Some(job) = &state.job {
        let subject = subject(job);
        words.push(subject.op);
        if !subject.dataset.is_empty() {
            words.push(subject.dataset);
        }
        if let Some(txg) = subject.txg {
            words.push(format!("txg {txg}"));
        }
    }
    if let Some((wait, _, time)) = state.wait {
        words.push(format!("({} for {:.1} ms)", wait.name(), time.as_secs_f64() * 1e3));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests;
