//! Clients, and what each of them did.
//!
//! # Theory
//! A client is an address with a user. Its counters belong to it from its first call on, and each
//! caller has them ([`Caller`](crate::server::access::Caller)), so a call adds without a look-up.
//!
//! The table is bounded. When a part of it is full, clients are evicted: first those that did not
//! prove their address, then those that called least recently. What they did moves to a sum, so no
//! total loses it. What an evicted one does is added to the sum, until its caller is looked up
//! again.
//!
//! # Locks
//! The lock of a part. No other is taken under it. A call takes it only to make counters, or if
//! its client made room meanwhile.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use observe::Counter;
use observe::lock::Mutex;
use rx::engine::Info;

/// Parts of the table, each with its own lock.
const PARTS: usize = 16;
/// Most clients of a part: 4,096 in all.
const CLIENTS: usize = 256;
/// So many of a part make room at once.
const LEAVING: usize = CLIENTS / 4;
/// Longest name of a user that is kept, in bytes.
const NAME: usize = 256;

/// Kinds of calls that are counted for each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// CreateFile.
    MakeFile,
    /// RemoveFile.
    RemoveFile,
    /// MakeDir.
    MakeDir,
    /// RemoveDir.
    RemoveDir,
    /// Rename.
    Rename,
    /// Lookup.
    Lookup,
    /// Link.
    Link,
    /// Symlink.
    Symlink,
    /// StoreStatus.
    StoreStatus,
    /// StoreData, StoreData64.
    StoreData,
    /// FetchData, FetchData64.
    Fetch,
    /// FetchStatus, BulkStatus, InlineBulkStatus.
    Status,
    /// All others.
    Other,
}

/// The number of [`Kind`]s.
pub const KINDS: usize = Kind::Other as usize + 1;

impl Kind {
    /// The kind of a call of the file server, by its number.
    fn of(number: u32) -> Self {
        match number {
            137 => Self::MakeFile,
            136 => Self::RemoveFile,
            141 => Self::MakeDir,
            142 => Self::RemoveDir,
            138 => Self::Rename,
            161 => Self::Lookup,
            140 => Self::Link,
            139 => Self::Symlink,
            135 => Self::StoreStatus,
            133 | 65_538 => Self::StoreData,
            130 | 65_537 => Self::Fetch,
            132 | 155 | 65_536 => Self::Status,
            _ => Self::Other,
        }
    }
}

/// What clients did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Calls by their [`Kind`].
    pub kinds: [u64; KINDS],
    /// Calls that failed.
    pub errors: u64,
    /// Nanoseconds of all calls.
    pub ns: u64,
    /// Bytes of files that were read.
    pub read: u64,
    /// Bytes of files that were stored.
    pub written: u64,
}

impl Done {
    /// All calls.
    pub fn calls(&self) -> u64 {
        self.kinds.iter().sum()
    }
}

impl AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.kinds.iter_mut().zip(other.kinds).for_each(|(sum, more)| *sum += more);
        self.errors += other.errors;
        self.ns = self.ns.wrapping_add(other.ns);
        self.read += other.read;
        self.written += other.written;
    }
}

/// The counters of one client.
#[derive(Debug)]
pub struct Client {
    /// No other counters of this server have this number. Later ones have larger ones.
    pub number: u64,
    /// Where its calls come from.
    pub peer: SocketAddrV4,
    /// The user, if the calls prove one: a name, and the cell or realm if it is a foreign one.
    pub user: Option<Box<str>>,
    kinds: [Counter; KINDS],
    errors: Counter,
    ns: Counter,
    /// Bytes of files that were read.
    pub read: Counter,
    /// Bytes of files that were stored.
    pub written: Counter,
    /// Calls that ended. It is written last, and taken first ([`Clients::ended`]).
    ended: AtomicU64,
    /// It has made room.
    has_left: AtomicBool,
    is_proved: AtomicBool,
    /// The second of its last call.
    called: AtomicU32,
}

impl Client {
    /// The second of its last call, since the start of the server.
    pub fn called(&self) -> u32 {
        self.called.load(Ordering::Relaxed)
    }

    fn done(&self) -> Done {
        Done {
            kinds: std::array::from_fn(|kind| self.kinds[kind].get()),
            errors: self.errors.get(),
            ns: self.ns.get(),
            read: self.read.get(),
            written: self.written.get(),
        }
    }

    /// Takes what was counted.
    fn take(&self) -> Done {
        // Before the rest: what was added before it is visible then.
        self.ended.swap(0, Ordering::SeqCst);
        Done {
            kinds: std::array::from_fn(|kind| self.kinds[kind].take()),
            errors: self.errors.take(),
            ns: self.ns.take(),
            read: self.read.take(),
            written: self.written.take(),
        }
    }
}

type Key = (SocketAddrV4, Option<Box<str>>);

#[derive(Default)]
struct Part {
    clients: HashMap<Key, Arc<Client>>,
    /// What those did that have made room.
    others: Done,
}

impl Part {
    /// Has clients make room.
    fn make_room(&mut self) {
        let mut all: Vec<_> = self.clients.values().cloned().collect();
        // The keys change meanwhile.
        all.sort_by_cached_key(|client| {
            (client.is_proved.load(Ordering::Relaxed), client.called(), client.number)
        });
        for client in all.into_iter().take(LEAVING) {
            self.clients.remove(&(client.peer, client.user.clone()));
            client.has_left.store(true, Ordering::SeqCst);
            self.others += client.take();
        }
    }
}

/// The clients of a file server.
pub struct Clients {
    parts: [Mutex<Part>; PARTS],
    next: AtomicU64,
}

impl Default for Clients {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()), next: AtomicU64::new(1) }
    }
}

impl Clients {
    fn part(&self, peer: SocketAddrV4) -> &Mutex<Part> {
        let mixed = (peer.ip().to_bits() ^ u32::from(peer.port())).wrapping_mul(0x9e37_79b1);
        &self.parts[(mixed >> 28) as usize % PARTS]
    }

    /// The counters of the client that makes a call.
    pub fn of(&self, info: &Info, seconds: u32) -> Arc<Client> {
        let user = info.identity.as_ref().map(|identity| {
            let mut name = identity.name.clone();
            if !identity.cell.is_empty() {
                name = format!("{name}@{}", identity.cell);
            }
            name.truncate(name.floor_char_boundary(NAME));
            name.into_boxed_str()
        });
        let key = (info.peer, user);
        let mut part = self.part(info.peer).lock();
        if let Some(client) = part.clients.get(&key) {
            client.is_proved.fetch_or(info.proved, Ordering::Relaxed);
            return Arc::clone(client);
        }
        if part.clients.len() >= CLIENTS {
            part.make_room();
        }
        let client = Arc::new(Client {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            peer: info.peer,
            user: key.1.clone(),
            kinds: Default::default(),
            errors: Counter::new(),
            ns: Counter::new(),
            read: Counter::new(),
            written: Counter::new(),
            ended: AtomicU64::new(0),
            has_left: AtomicBool::new(false),
            is_proved: AtomicBool::new(info.proved),
            called: AtomicU32::new(seconds),
        });
        part.clients.insert(key, Arc::clone(&client));
        client
    }

    /// Counts a call of a client that has ended, in this second since the start of the server.
    pub fn ended(&self, client: &Client, number: u32, took: Duration, failed: bool, seconds: u32) {
        client.kinds[Kind::of(number) as usize].inc();
        client.ns.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if failed {
            client.errors.inc();
        }
        if client.called() != seconds {
            client.called.store(seconds, Ordering::Relaxed);
        }
        // Either the thread that had the client make room sees this call, or this sees that.
        client.ended.fetch_add(1, Ordering::SeqCst);
        if client.has_left.load(Ordering::SeqCst) {
            let mut part = self.part(client.peer).lock();
            part.others += client.take();
        }
    }

    /// What each client did, and what those did that have made room. The number is that of the next
    /// new client.
    pub fn snapshot(&self) -> (Vec<(Arc<Client>, Done)>, Done, u64) {
        let next = self.next.load(Ordering::Relaxed);
        let (mut all, mut others) = (Vec::new(), Done::default());
        for part in &self.parts {
            let part = part.lock();
            all.extend(part.clients.values().map(|client| (Arc::clone(client), client.done())));
            others += part.others;
        }
        (all, others, next)
    }
}

#[cfg(test)]
mod tests;
