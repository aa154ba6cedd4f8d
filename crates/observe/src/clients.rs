//! Clients: who sends operations, how many, how long they took, and how they ended.
//!
//! # Theory
//! A client is a process that uses a mount, a peer of an exported volume, or a user of the control
//! socket. Each operation counts for its client when it ends, by kind. That is a few relaxed
//! additions. Nothing is kept for an operation itself.
//!
//! A request through FUSE has the number of a thread, which says nothing about it later. So at the
//! first operation of a thread, its process is looked up: number, begin, name and control group.
//! The operation has not been answered yet, so the process still exists. A connection holds its
//! client.
//!
//! Each thread of this program remembers the clients that it served last. Each second, the begin of
//! a client's thread is read again: another begin means that the number is another thread's now. So
//! an operation counts for the wrong process only if a number is used again within a second.
//!
//! At most [`KEPT`] clients have counters. For another one, those that have no connection and did
//! nothing for the longest time *retire*. Other threads may still count for a retired client. Only
//! when none can are its counters added to a sum, and freed. If all have connections, further
//! clients count together. So the sum of all is always right.
//!
//! A client takes 1.5 KB, and 1.2 KB each for reads and writes: 16 MB for all. What threads of this
//! program remember keeps at most [`REMEMBERED`] retired clients each.
//!
//! # Locks
//! The lock of the table is taken at the first operation of a thread, once a second for each, and
//! for a reading. Files of `/proc` are read without it.
//!
//! # Absent
//! Names of users, and what an address means.

mod counters;
mod memory;
mod process;

use crate::op::{BEGAN, Ended, Measured, nanos};
use crate::work;
use counters::Counters;
use memory::{Memory, Seen};
use parking_lot::Mutex;
use process::{Look, Proc};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

pub use counters::{Counted, Done};
pub use memory::REMEMBERED;

/// The most clients that have counters of their own.
pub const KEPT: usize = 4096;
/// How many retire at a time.
const ROOM: usize = KEPT / 8;
/// The most threads of clients that the table knows. It learns them again at their next operation.
const SEEN_MAX: usize = 4 * KEPT;

named! {
    /// What a client uses.
    Kind {
        /// A mounted file system.
        Fuse "fuse",
        /// An exported volume.
        Nbd "nbd",
        /// A volume that is attached as a block device.
        Block "block",
        /// The control socket.
        Control "control",
    }
}

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Who {
    /// A process, with the user for whom it acts.
    ///
    /// The kernel has the number 0, and so does a process that this program can't see.
    Process {
        /// Its number.
        pid: u32,
        /// When it began, in clock ticks after the system. 0: unknown.
        start: u64,
        /// The user.
        uid: u32,
    },
    /// A host.
    Address(IpAddr),
    /// A user of this system.
    User(u32),
    /// The kernel.
    Kernel,
}

/// What makes a client the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// What it uses.
    pub kind: Kind,
    /// Who it is.
    pub who: Who,
    /// The volume that it uses, by the name under which it asked for it.
    pub export: Option<Arc<str>>,
    /// The subject of its certificate.
    pub subject: Option<Arc<str>>,
}

/// What is known of a client for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct About {
    /// The name of its process, or nothing.
    name: String,
    /// The control group of its process, or nothing.
    cgroup: String,
}

/// A client and its counters.
#[derive(Debug)]
pub struct Client {
    number: u64,
    key: Key,
    name: Mutex<String>,
    cgroup: String,
    counters: Counters,
    /// When its last operation ended, by [`Measured::at`].
    last: AtomicU64,
    /// Connections that count here. Changed upwards only under the lock of the table.
    uses: AtomicUsize,
    is_retired: AtomicBool,
}

/// The number of the next client.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number that the next client gets. Each gets a greater one than all before.
pub fn next_number() -> u64 {
    NEXT.load(Relaxed)
}

impl Client {
    fn new(key: Key, about: About) -> Arc<Self> {
        Arc::new(Self {
            number: NEXT.fetch_add(1, Relaxed),
            key,
            name: Mutex::new(about.name),
            cgroup: about.cgroup,
            counters: Counters::default(),
            last: AtomicU64::new(0),
            uses: AtomicUsize::new(0),
            is_retired: AtomicBool::new(false),
        })
    }

    /// The number of its counters. A client that did nothing for long can get new ones.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it is.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The name of its process when that was last looked up; empty if there is none.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// The control group of its process at its first operation; empty if there is none.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.uses.load(Relaxed)
    }

    /// A number that grows with the time of the last operation.
    pub fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// What it has done until now.
    pub fn done(&self) -> Done {
        self.counters.done()
    }

    fn count(&self, ended: &Measured) {
        self.counters.count(ended);
        // Of several threads, any may be the last.
        self.last.store(ended.at, Relaxed);
    }

    fn is_retired(&self) -> bool {
        self.is_retired.load(Relaxed)
    }

    /// Notes the present name of its process, which changes with `exec`.
    fn rename(&self, name: &str) {
        let mut known = self.name.lock();
        if *known != name {
            name.clone_into(&mut known);
        }
    }
}

/// The clients that have counters.
struct Table {
    kept: HashMap<Key, Arc<Client>>,
    /// Threads of processes, with their users.
    seen: HashMap<(u32, u32), Arc<Seen>>,
    /// Clients for which another thread may still count.
    retired: Vec<Arc<Client>>,
    /// The operations of those for which none does.
    gone: Done,
    /// Those of all that found no room.
    crowd: Arc<Client>,
}

impl Table {
    /// The counters of a client; of the crowd if there is no room.
    fn client(&mut self, key: Key, about: impl FnOnce() -> About) -> &Arc<Client> {
        if self.kept.len() >= KEPT && !self.kept.contains_key(&key) && !self.make_room() {
            return &self.crowd;
        }
        self.kept.entry(key).or_insert_with_key(|key| Client::new(key.clone(), about()))
    }

    /// Makes room for another. Returns false if all have connections.
    fn make_room(&mut self) -> bool {
        self.fold();
        let kept = self.kept.values().filter(|client| client.uses.load(Acquire) == 0);
        let mut idle: Vec<(u64, u64, Key)> =
            kept.map(|client| (client.last(), client.number, client.key.clone())).collect();
        idle.sort_unstable_by_key(|(last, number, _)| (*last, *number));
        for (_, _, key) in idle.iter().take(ROOM) {
            if let Some(client) = self.kept.remove(key) {
                client.is_retired.store(true, Relaxed);
                self.retired.push(client);
            }
        }
        self.seen.retain(|_, seen| !seen.client().is_retired());
        self.fold();
        !idle.is_empty()
    }

    /// Adds retired clients to the sum, if this table has them alone: then their numbers are final.
    fn fold(&mut self) {
        for client in std::mem::take(&mut self.retired) {
            match Arc::try_unwrap(client) {
                Ok(client) => self.gone.merge(&client.done()),
                Err(client) => self.retired.push(client),
            }
        }
    }

    /// The operations of all clients that have no counters now.
    fn others(&mut self) -> Done {
        self.fold();
        let mut others = self.gone.clone();
        self.retired.iter().chain([&self.crowd]).for_each(|client| others.merge(&client.done()));
        others
    }
}

/// The clients of this program.
struct Clients {
    table: Mutex<Table>,
    /// The number of [`Table::crowd`].
    crowd: u64,
    look: Box<dyn Look>,
}

impl Clients {
    fn new(look: Box<dyn Look>) -> Self {
        let key = Key { kind: Kind::Control, who: Who::Kernel, export: None, subject: None };
        let crowd = Client::new(key, About::default());
        let (kept, seen, number) = (HashMap::new(), HashMap::new(), crowd.number);
        let table = Table { kept, seen, retired: Vec::new(), gone: Done::default(), crowd };
        Self { table: Mutex::new(table), crowd: number, look }
    }

    /// Counts an operation of a thread of a process, for this user.
    fn count(&self, memory: &Memory, tid: u32, uid: u32, ended: &Measured) {
        memory.with((tid, uid), |known| match known {
            Some(seen) if seen.is_still(ended.began) => {
                seen.client().count(ended);
                None
            }
            _ => {
                let seen = self.find(tid, uid, ended.began);
                seen.client().count(ended);
                Some(seen)
            }
        });
    }

    /// The client of a thread that began an operation at this time.
    fn find(&self, tid: u32, uid: u32, began: u64) -> Arc<Seen> {
        let known = self.table.lock().seen.get(&(tid, uid)).cloned();
        let known = known.filter(|seen| !seen.client().is_retired());
        if let Some(seen) = known.as_ref().filter(|seen| seen.is_still(began)) {
            return Arc::clone(seen);
        }
        // Before the look, so that what begins after it is not taken for what it saw.
        let now = nanos(BEGAN.get_or_init(Instant::now).elapsed());
        let thread = if tid == 0 { None } else { self.look.thread(tid) };
        // There may be room now for one of the crowd.
        let known = known.filter(|seen| seen.client().number != self.crowd);
        if let Some((seen, thread)) = known.as_ref().zip(thread.as_ref())
            && seen.again(thread.start, now)
        {
            if matches!(seen.client().key.who, Who::Process { pid, .. } if pid == tid) {
                seen.client().rename(&thread.name);
            }
            return Arc::clone(seen);
        }
        let start = thread.as_ref().map_or(0, |thread| thread.start);
        let process = thread.and_then(|thread| self.look.process(tid, thread)).unwrap_or_default();
        let pid = if process.pid == 0 { tid } else { process.pid };
        let who = Who::Process { pid, start: process.start, uid };
        let key = Key { kind: Kind::Fuse, who, export: None, subject: None };
        let mut table = self.table.lock();
        let about = About { name: process.name, cgroup: process.cgroup };
        let client = Arc::clone(table.client(key, || about));
        let seen = Arc::new(Seen::new(client, start, if tid == 0 { u64::MAX } else { now }));
        if table.seen.len() >= SEEN_MAX {
            table.seen.clear();
        }
        table.seen.insert((tid, uid), Arc::clone(&seen));
        seen
    }

    /// Counts an operation of a user of this system.
    fn count_of_user(&self, uid: u32, ended: &Measured) {
        let key = Key { kind: Kind::Control, who: Who::User(uid), export: None, subject: None };
        self.table.lock().client(key, About::default).count(ended);
    }

    fn connect(&self, key: Key) -> Connection {
        let about = match key.who {
            Who::Process { pid, .. } if pid != 0 => self.look.process_of(pid),
            _ => None,
        };
        let about = about.map(|process| About { name: process.name, cgroup: process.cgroup });
        let mut table = self.table.lock();
        let client = table.client(key, || about.unwrap_or_default());
        client.uses.fetch_add(1, Relaxed);
        Connection(Arc::clone(client))
    }

    fn all(&self) -> (Vec<Arc<Client>>, Done) {
        let mut table = self.table.lock();
        (table.kept.values().cloned().collect(), table.others())
    }

    fn by_number(&self, number: u64) -> Option<Arc<Client>> {
        let table = self.table.lock();
        let mut all = table.kept.values().chain(&table.retired);
        all.find(|client| client.number == number).cloned()
    }
}

/// A connection of a client, which keeps its counters as long as it exists.
#[derive(Debug)]
pub struct Connection(Arc<Client>);

impl Connection {
    /// Begins a connection of the client with this key.
    ///
    /// The begin of a process is looked up if it is 0.
    pub fn new(mut key: Key) -> Self {
        if let Who::Process { pid, start: start @ 0, .. } = &mut key.who {
            *start = ALL.look.thread(*pid).map_or(0, |thread| thread.start);
        }
        ALL.connect(key)
    }

    /// The number of its client, for [`work::Job::client`].
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Counts an operation of the client that has ended.
    pub fn count(&self, ended: &Ended) {
        self.count_measured(&ended.measured());
    }

    pub(crate) fn count_measured(&self, ended: &Measured) {
        self.0.count(ended);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // What it counted is visible to a thread that sees this.
        self.0.uses.fetch_sub(1, Release);
    }
}

/// All clients of this program.
static ALL: LazyLock<Clients> = LazyLock::new(|| Clients::new(Box::new(Proc)));

/// Counts an operation for the process and user of this thread's job.
pub fn count(ended: &Ended) {
    count_measured(&ended.measured());
}

pub(crate) fn count_measured(ended: &Measured) {
    let (tid, uid) = work::job().map_or((0, 0), |job| (job.pid, job.uid));
    memory::mine(|memory| ALL.count(memory, tid, uid, ended));
}

/// Counts a request of a user on the control socket.
pub fn count_of_user(uid: u32, ended: &Ended) {
    ALL.count_of_user(uid, &ended.measured());
}

/// The clients that have counters, and what all others have done.
pub fn all() -> (Vec<Arc<Client>>, Done) {
    ALL.all()
}

/// The client with this number, while it has counters.
pub fn by_number(number: u64) -> Option<Arc<Client>> {
    ALL.by_number(number)
}

#[cfg(test)]
mod tests;
