//! Sessions: counts of events, or the events themselves, for a person who asks.
//!
//! # Theory
//! A session has a [`Plan`]: an event, conditions, and keys. Each thread has a table of its own for
//! each session, where it counts events by the keys. A reader collects the tables. So threads that
//! make events do not wait for each other.
//!
//! All keys are numbers. Texts get numbers at their first sight ([`names`]): a process is looked up
//! while it waits for its operation, since later it may have ended.
//!
//! A session takes at most its share of the program's processor time ([`COST`]). It measures its
//! own cost, and takes one of two, four, eight and so on operations if that is too much. Which ones
//! depends on the time when an operation began: so all events of an operation are taken, or none.
//! An event then counts for as many as it stands for.
//!
//! An event may happen while its thread has locks of any layer. So what happens here takes no lock
//! but those of this module and of counters, and asks no front end for names.
//!
//! The event `sample` has a thread of its own ([`sampler`]), while a session wants it.
//!
//! A session ends if its reader does not come back within [`PATIENCE`].
//!
//! # Locks
//! A thread takes the lock of its own table for each event. The locks of a session's texts, groups
//! and events are taken for what comes first or is rare. The list of sessions is locked when one
//! begins or ends, and by each thread once after that.
//!
//! # See
//! DTrace's aggregations. OpenZFS has no counterpart.

mod governor;
mod names;
mod plan;
mod sampler;
mod table;

pub use governor::COST;
pub use plan::{
    Buckets, COLUMNS, COMMON, CONDITIONS, Condition, KEYS, LINEAR, Plan, Refused, SUMS, Source, TASKS, Test,
};
pub use table::{Counted, GROUPS, Groups, Keys};

use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use crate::event::{self, Event};
use crate::op::nanos;
use crate::work::{self, Job, Kind, Spent};
use governor::Governor;
use names::{FRESH_NS, Names, Process};
use table::Measured;

/// The most sessions at a time.
pub const SESSIONS: usize = 4;
/// The most events that a session keeps until the next reading.
pub const RING: usize = 65_536;
/// A session ends after so much time without a reading.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A number of [`Source::Home`] with this bit is that of a text, not of a node.
const TEXT: u64 = 1 << 63;
/// The most entries of each memory of a thread's table.
const REMEMBERED: usize = 4096;

/// All sessions.
static LIST: Mutex<Vec<Arc<Session>>> = Mutex::new(Vec::new());
/// Changes with [`LIST`].
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// The number of the next session. A program that starts later begins elsewhere: a reader must not
/// take another's session for its own.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(std::process::id()) >> 16 | 1));

/// An event that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// When it happened.
    pub at: SystemTime,
    /// The number of its thread in the system.
    pub tid: u32,
    /// The numbers of the plan's keys, in their order.
    pub values: [u64; COLUMNS],
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Kept>,
    lost: u64,
}

/// What a thread has seen for a session.
#[derive(Debug, Default)]
struct Table {
    groups: Groups,
    /// Events that happened, and those that met the conditions; the latter as an estimate.
    seen: u64,
    met: u64,
    /// Numbers of texts by those of datasets, numbers of nodes, and processes.
    datasets: HashMap<u64, u64>,
    files: HashMap<(u64, u64), u64>,
    processes: HashMap<u32, (u64, Process)>,
    /// Whether a text fits the pattern of a condition, by the place of the condition.
    fits: HashMap<(usize, u64), bool>,
}

/// The tables of all threads.
#[derive(Debug, Default)]
struct Tables {
    all: Vec<Arc<Mutex<Table>>>,
    /// What threads have seen that have ended, and how much of it met the conditions.
    seen: u64,
    met: u64,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    number: u64,
    plan: Plan,
    began: Instant,
    /// Nanoseconds after the begin, when it ends without another reading.
    until: AtomicU64,
    has_ended: AtomicBool,
    governor: Governor,
    names: Mutex<Names>,
    tables: Mutex<Tables>,
    groups: Mutex<Groups>,
    ring: Mutex<Ring>,
}

/// What a session has seen.
#[derive(Debug, Default)]
pub struct Reading {
    /// Nanoseconds since its begin.
    pub ns: u64,
    /// Events that happened since then.
    pub seen: u64,
    /// Those that met the conditions.
    pub met: u64,
    /// One of how many operations is taken now.
    pub one_of: u64,
    /// Whether only a part was taken at any time.
    pub is_sampled: bool,
    /// Processor time of the program since the session began, in nanoseconds.
    pub cpu_ns: u64,
    /// The session's share of it, in parts of a million.
    pub cost_ppm: u64,
    /// The groups, with at most [`GROUPS`] keys.
    pub groups: Groups,
    /// Events that were kept, the oldest first.
    pub events: Vec<Kept>,
    /// How many found no room since the reading before.
    pub lost: u64,
}

/// Begins a session. It ends if it is not read.
///
/// # Errors
/// [`Refused`].
pub fn begin(plan: Plan) -> Result<Arc<Session>, Refused> {
    if !plan.is_valid() {
        return Err(Refused::TooLarge);
    }
    expire();
    let mut list = LIST.lock();
    if list.len() >= SESSIONS {
        return Err(Refused::TooMany);
    }
    let governor = Governor::begin(plan.under().is_some());
    let session = Arc::new(Session {
        number: NEXT.fetch_add(1, Relaxed),
        plan,
        began: Instant::now(),
        until: AtomicU64::new(nanos(PATIENCE)),
        has_ended: AtomicBool::new(false),
        governor,
        names: Mutex::default(),
        tables: Mutex::default(),
        groups: Mutex::default(),
        ring: Mutex::default(),
    });
    event::read_with(see);
    list.push(Arc::clone(&session));
    GENERATION.fetch_add(1, AcqRel);
    session.plan.event.sessions.fetch_add(1, Relaxed);
    drop(list);
    if std::ptr::eq(session.plan.event, &event::SAMPLE) && sampler::start().is_err() {
        session.end();
        return Err(Refused::NoThread);
    }
    Ok(session)
}

/// The session with this number.
pub fn session(number: u64) -> Option<Arc<Session>> {
    expire();
    LIST.lock().iter().find(|session| session.number == number).cloned()
}

/// Ends sessions without a reader.
fn expire() {
    let old: Vec<Arc<Session>> = LIST.lock().iter().filter(|session| session.is_over()).cloned().collect();
    old.iter().for_each(|session| session.end());
}

impl Session {
    /// Its number; each has a greater one than all before.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it wants.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The text of a number of [`Source::Process`] or [`Source::Dataset`].
    pub fn text(&self, number: u64) -> Arc<str> {
        self.names.lock().text(number)
    }

    /// The dataset of a number of [`Source::Home`], if a reading has looked for it. `None`: it is
    /// that of a node.
    pub fn home(&self, number: u64) -> Option<Arc<str>> {
        (number & TEXT != 0).then(|| self.text(number & !TEXT))
    }

    /// The place and the node of a number of [`Source::File`], or of [`Source::Home`] of an event
    /// that was kept.
    pub fn node(&self, number: u64) -> (u64, u64) {
        self.names.lock().node_of(number)
    }

    fn is_over(&self) -> bool {
        nanos(self.began.elapsed()) > self.until.load(Relaxed)
    }

    /// Ends it. What was not read is lost.
    pub fn end(&self) {
        let mut list = LIST.lock();
        if self.has_ended.swap(true, AcqRel) {
            return;
        }
        list.retain(|session| session.number != self.number);
        self.plan.event.sessions.fetch_sub(1, Relaxed);
        GENERATION.fetch_add(1, AcqRel);
        drop(list);
        // Idle threads keep the session until their next event, so it must hold nothing.
        let tables = std::mem::take(&mut self.tables.lock().all);
        tables.iter().for_each(|table| *table.lock() = Table::default());
        *self.groups.lock() = Groups::default();
        *self.ring.lock() = Ring::default();
        *self.names.lock() = Names::default();
    }

    /// What it has seen since its begin. With `anew`: what its groups counted since the reading
    /// before. Events that were kept are returned once.
    pub fn read(&self, anew: bool) -> Reading {
        let ns = nanos(self.began.elapsed());
        self.until.store(ns.saturating_add(nanos(PATIENCE)), Relaxed);
        let mut reading = Reading { ns, ..Reading::default() };
        let mut tables = self.tables.lock();
        (reading.seen, reading.met) = (tables.seen, tables.met);
        let mut gone = (0, 0);
        tables.all.retain(|shared| {
            // Only its thread has another reference. Without one, nothing is added any more.
            let has_ended = Arc::strong_count(shared) == 1;
            let mut table = shared.lock();
            let mut new = std::mem::take(&mut table.groups);
            let (seen, met) = (table.seen, table.met);
            drop(table);
            self.groups.lock().collect(&mut new);
            (reading.seen, reading.met) = (reading.seen + seen, reading.met + met);
            if has_ended {
                gone = (gone.0 + seen, gone.1 + met);
            }
            !has_ended
        });
        (tables.seen, tables.met) = (tables.seen + gone.0, tables.met + gone.1);
        drop(tables);
        self.join_nodes();
        let mut groups = self.groups.lock();
        reading.groups = match anew {
            true => std::mem::take(&mut *groups),
            false => Groups { groups: groups.groups.clone(), others: groups.others.clone() },
        };
        drop(groups);
        let mut ring = self.ring.lock();
        reading.events = std::mem::take(&mut ring.events).into();
        reading.lost = std::mem::take(&mut ring.lost);
        drop(ring);
        self.governor.state(&mut reading);
        reading
    }

    /// Makes one group of those whose nodes are of one dataset, so that there is room for others.
    fn join_nodes(&self) {
        let is_home = |source: &Source| *source == Source::Home;
        let homes: Vec<usize> =
            (0..self.plan.keys.len()).filter(|at| is_home(&self.plan.keys[*at])).collect();
        if homes.is_empty() || self.plan.is_raw {
            return;
        }
        let nodes: HashSet<u64> = {
            let groups = self.groups.lock();
            let numbers = groups.groups.keys().flat_map(|keys| homes.iter().map(|at| keys[*at]));
            numbers.filter(|number| number & TEXT == 0).collect()
        };
        // No lock of this module is held while a front end looks for names.
        let text = |number: u64| {
            let (place, node) = self.node(number);
            let name = work::place(place).and_then(|place| place.dataset(node)).map(|(name, _)| name);
            (number, TEXT | self.names.lock().number(&name.unwrap_or_default()))
        };
        let texts: HashMap<u64, u64> = nodes.into_iter().map(text).collect();
        self.groups.lock().rename(|mut keys| {
            homes.iter().for_each(|at| keys[*at] = texts.get(&keys[*at]).copied().unwrap_or(keys[*at]));
            keys
        });
    }

    /// Takes an event. Returns whether the session is over.
    fn see(&self, table: &Mutex<Table>, values: &[u64]) -> bool {
        let mut table = table.lock();
        table.seen += 1;
        let from = self.governor.is_measured(table.seen).then(Instant::now);
        let mut facts = Facts { session: self, table: &mut table, values, job: work::job(), spent: None };
        facts.take();
        let Some(from) = from else { return false };
        self.governor.measured(from) && self.is_over()
    }
}

/// An event, and what can be known of it.
struct Facts<'a> {
    session: &'a Session,
    table: &'a mut Table,
    values: &'a [u64],
    job: Option<Job>,
    spent: Option<Spent>,
}

/// Looks for a number in a memory of a thread, and elsewhere if it is not there.
fn remembered<K: std::hash::Hash + Eq>(
    memory: &mut HashMap<K, u64>,
    key: K,
    find: impl FnOnce(&K) -> u64,
) -> u64 {
    if let Some(number) = memory.get(&key) {
        return *number;
    }
    if memory.len() >= REMEMBERED {
        memory.clear();
    }
    let number = find(&key);
    memory.insert(key, number);
    number
}

impl Facts<'_> {
    /// Counts or keeps the event, if it is taken and meets the conditions.
    fn take(&mut self) {
        let session = self.session;
        let plan = &session.plan;
        // Without a job, the events of a thread are as good as operations.
        let alone = self.table.seen.wrapping_add(u64::from(work::tid()) << 32);
        let weight = session.governor.weight(self.job.map_or(alone, |job| work::stamp(job.began)));
        if weight == 0 {
            return;
        }
        for (at, condition) in plan.conditions.iter().enumerate() {
            if !self.meets(at, condition) {
                return;
            }
        }
        self.table.met += weight;
        if plan.is_raw {
            let mut values = [0; COLUMNS];
            for (value, source) in values.iter_mut().zip(&plan.keys) {
                *value = self.value(*source);
            }
            session.keep(Kept { at: SystemTime::now(), tid: work::tid(), values });
            return;
        }
        let mut keys = Keys::default();
        for (key, source) in keys.iter_mut().zip(&plan.keys) {
            *key = self.value(*source);
        }
        let value = plan.measure.map_or(0, |source| self.value(source));
        let mut sums = [0; SUMS];
        for (sum, source) in sums.iter_mut().zip(&plan.sums) {
            *sum = self.value(*source);
        }
        let event = Measured { value, weight, sums: &sums[..plan.sums.len()] };
        if self.table.groups.add(keys, &event, plan.buckets) {
            session.groups.lock().collect(&mut self.table.groups);
        }
    }

    fn meets(&mut self, at: usize, condition: &Condition) -> bool {
        let value = self.value(condition.source);
        let session = self.session;
        match &condition.test {
            Test::Is(number) => value == *number,
            Test::IsNot(number) => value != *number,
            Test::AtLeast(number) => value >= *number,
            Test::Below(number) => value < *number,
            Test::Text { text, is_pattern, wanted } => {
                if self.table.fits.len() >= REMEMBERED {
                    self.table.fits.clear();
                }
                let fits = || {
                    let found = session.text(value);
                    if *is_pattern { plan::fits(text, &found) } else { text.as_str() == &*found }
                };
                *self.table.fits.entry((at, value)).or_insert_with(fits) == *wanted
            }
        }
    }

    fn value(&mut self, source: Source) -> u64 {
        match source {
            Source::Field(at) => self.values.get(at).copied().unwrap_or(0),
            Source::Op => match self.job.map(|job| job.kind) {
                Some(Kind::Request(_, op)) => 1 + op as u64,
                Some(Kind::Task(task)) => TASKS + task as u64,
                None => 0,
            },
            Source::Frontend => match self.job.map(|job| job.kind) {
                Some(Kind::Request(frontend, _)) => 1 + frontend as u64,
                _ => 0,
            },
            Source::Pid => self.job.map_or(0, |job| job.pid.into()),
            Source::Uid => self.job.map_or(0, |job| job.uid.into()),
            Source::Process => self.process().name,
            Source::Under(pid) => u64::from(self.process().line.contains(&pid)),
            Source::Dataset => self.dataset(),
            Source::File | Source::Home => {
                let (session, node) = (self.session, self.node());
                remembered(&mut self.table.files, node, |node| session.names.lock().node(*node))
            }
            Source::Waited(wait) => self.spent().of(wait),
            Source::Cpu => {
                let waits: u64 = self.spent().ns.iter().sum();
                let took = self.session.plan.event.field("ns").and_then(|at| self.values.get(at));
                took.copied().unwrap_or(0).saturating_sub(waits)
            }
            Source::Longest => self.spent().longest.map_or(0, |longest| 1 + longest.wait as u64),
            Source::Thread => work::tid().into(),
        }
    }

    fn spent(&mut self) -> Spent {
        *self.spent.get_or_insert_with(|| work::current().map_or(Spent::default(), |(_, spent)| spent))
    }

    fn node(&self) -> (u64, u64) {
        self.job.map_or((0, 0), |job| (job.place, job.node))
    }

    fn process(&mut self) -> Process {
        let session = self.session;
        let Some(job) = self.job.filter(|job| job.pid != 0) else {
            return Process { name: session.names.lock().number(""), line: Arc::default() };
        };
        let now = work::stamp(job.began);
        if let Some((at, process)) = self.table.processes.get(&job.pid)
            && now < at.saturating_add(FRESH_NS)
        {
            return process.clone();
        }
        let from = Instant::now();
        let process = session.names.lock().process(job.pid, now, session.plan.under());
        session.governor.took(from);
        if self.table.processes.len() >= REMEMBERED {
            self.table.processes.clear();
        }
        self.table.processes.insert(job.pid, (now, process.clone()));
        process
    }

    fn dataset(&mut self) -> u64 {
        let session = self.session;
        let field = session.plan.event.field("dataset").and_then(|at| self.values.get(at));
        remembered(&mut self.table.datasets, field.copied().unwrap_or(0), |number| {
            let name = crate::ops::name_of(*number).unwrap_or_default();
            session.names.lock().number(&name)
        })
    }
}

impl Session {
    fn keep(&self, event: Kept) {
        let mut ring = self.ring.lock();
        if ring.events.len() >= RING {
            ring.events.pop_front();
            ring.lost += 1;
        }
        ring.events.push_back(event);
    }
}

/// The sessions that a thread knows, with its tables.
#[derive(Default)]
struct Local {
    generation: u64,
    sessions: Vec<(Arc<Session>, Arc<Mutex<Table>>)>,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::default();
}

impl Local {
    /// Looks which sessions there are now.
    fn renew(&mut self) {
        let list = LIST.lock();
        self.generation = GENERATION.load(Acquire);
        self.sessions.retain(|(session, _)| !session.has_ended.load(Relaxed));
        for session in list.iter() {
            if self.sessions.iter().all(|(known, _)| known.number != session.number) {
                let table = Arc::default();
                session.tables.lock().all.push(Arc::clone(&table));
                self.sessions.push((Arc::clone(session), table));
            }
        }
    }
}

/// Shows an event to the sessions that want it.
#[cold]
#[inline(never)]
fn see(event: &'static Event, values: &[u64]) {
    let over = LOCAL.try_with(|local| {
        // Taking an event may make another one, which does not count.
        let mut local = local.try_borrow_mut().ok()?;
        if local.generation != GENERATION.load(Acquire) {
            local.renew();
        }
        let mut over = None;
        for (session, table) in &local.sessions {
            if std::ptr::eq(session.plan.event, event) && session.see(table, values) {
                over = Some(Arc::clone(session));
            }
        }
        over
    });
    // A thread that ends makes no more events.
    if let Ok(Some(session)) = over {
        session.end();
    }
}

#[cfg(test)]
mod tests;
