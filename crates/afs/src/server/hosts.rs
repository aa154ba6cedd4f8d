//! The clients of a file server.
//!
//! # Theory
//! A client is known by its UUID, not by its address: laptops move, and routers change ports. The
//! server asks a client who it is with the first call from a new address. It asks again when the
//! client's program was started anew, because another client may have the address now. Rx tells
//! that by the epoch of the client's connections.
//!
//! A client that is new to the server may believe in promises of an earlier server process. So the
//! server ends them all before it makes promises of its own.
//!
//! # Life
//! | state | moved to by | calls of the client |
//! |---|---|---|
//! | not ready | created; an unknown epoch; a failed call to it | are served without promises |
//! | ready | it said who it is, and took all that it was owed | are served at once |
//! | without an address | another client has the address | come from another address |
//!
//! A host that is not ready is owed each end of a promise. It gets them with its next call, before
//! that call is served. If it does not answer then, the server waits before it asks again.
//!
//! # Strangers
//! Anyone can send a packet with another host's address, and so make a first call in its name. So a
//! host at a new address is a stranger, until its Rx connection proves the address or the host
//! answers a call. What strangers take is not taken from others: they have few places of their own,
//! where the oldest makes room for the newest, and threads of their own to talk to them.
//!
//! A first call with the address of a known host changes nothing of that host, unless the epoch is
//! known, too. It is served without promises.
//!
//! # Locks
//! `by_uuid`, then one of: a shard of `by_peer`, the state of a host. The list of strangers comes
//! after a shard, and before the state of a host. No call to a client is made under a lock.
//!
//! # Absent
//! Addresses that a client lists but does not call from.
//!
//! # See
//! OpenAFS: `src/viced/host.c`.

mod saved;

pub(super) use saved::SavedHost;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex, RwLock};

use super::clients::{About, Clients, Failure};
use crate::calls::callback::ERROR_TRANSLATION;
use crate::calls::fileserver::MAX_FIDS;
use crate::types::{Fid, Unique, Vnode, VolumeId};
use crate::wire::Uuid;

/// Parts of the table of addresses, each with its own lock.
const SHARDS: usize = 64;
/// Epochs of one client that are known at the same time.
const EPOCHS: usize = 4;
/// Files whose ended promises are kept for a host. With more, the host gets a reset instead.
const MOST_OWED: usize = 1_000;
/// How often a delivery is continued because more was owed meanwhile.
const ROUNDS: usize = 8;
/// No promise holds longer than this after the client's last call.
const LONGEST: Duration = Duration::from_secs(4 * 3600 + 5 * 60);

/// Limits and times.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most hosts. Calls of further ones are served without promises. Default: 100,000.
    pub hosts: usize,
    /// Most hosts beside these whose addresses are not proved. Default: 1,000.
    pub strangers: usize,
    /// Most threads that talk to hosts or wait for that at the same time, so that silent clients
    /// don't take all threads. Half as many more talk to strangers. Default: 8.
    pub talks: usize,
    /// How long a client may take for an answer. Default: 2 s.
    pub patience: Duration,
    /// The pause after a call to a client failed. It doubles with each failure, up to 16 times.
    /// Default: 5 s.
    pub retry: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: 100_000,
            strangers: 1_000,
            talks: 8,
            patience: Duration::from_secs(2),
            retry: Duration::from_secs(5),
        }
    }
}

/// What a host has not been told yet.
#[derive(Debug, Default)]
pub(super) struct Owed {
    reset: bool,
    fids: Vec<Fid>,
}

impl Owed {
    fn add(&mut self, fids: &[Fid]) {
        if self.reset {
            return;
        }
        let new = fids.iter().filter(|fid| !self.fids.contains(fid)).copied();
        let new: Vec<Fid> = new.take(MOST_OWED + 1).collect();
        if self.fids.len() + new.len() > MOST_OWED {
            *self = Self { reset: true, fids: Vec::new() };
        } else {
            self.fids.extend(new);
        }
    }

    fn is_empty(&self) -> bool {
        !self.reset && self.fids.is_empty()
    }
}

/// What is known of who a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
    /// It was not asked yet, or did not answer.
    Unknown,
    /// It has no UUID.
    Nameless,
    /// It has this UUID.
    Named(Uuid),
}

impl From<Option<Uuid>> for Identity {
    fn from(uuid: Option<Uuid>) -> Self {
        uuid.map_or(Self::Nameless, Self::Named)
    }
}

#[derive(Debug)]
struct State {
    /// Where it is called. The table of addresses has the same.
    address: Option<SocketAddrV4>,
    identity: Identity,
    /// A thread talks to it.
    busy: bool,
    retry_at: Option<Instant>,
    failures: u32,
    owed: Owed,
}

/// A client.
#[derive(Debug)]
pub struct Host {
    number: u64,
    ready: AtomicBool,
    unified: AtomicBool,
    /// It is in the list of strangers. Changed under the lock of its shard and of that list.
    stranger: AtomicBool,
    epochs: [AtomicU32; EPOCHS],
    /// The generation of its promises, and in the lower half how many there are.
    ledger: AtomicU64,
    /// Seconds since the start of the server at its last call, and when it answered last.
    called: AtomicU32,
    heard: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Host {
    fn new(number: u64, address: Option<SocketAddrV4>, identity: Identity) -> Arc<Self> {
        Arc::new(Self {
            number,
            ready: AtomicBool::new(false),
            unified: AtomicBool::new(false),
            stranger: AtomicBool::new(false),
            epochs: std::array::from_fn(|_| AtomicU32::new(0)),
            ledger: AtomicU64::new(0),
            called: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            state: Mutex::new(State {
                address,
                identity,
                busy: false,
                retry_at: None,
                failures: 0,
                owed: Owed { reset: true, fids: Vec::new() },
            }),
            changed: Condvar::new(),
        })
    }

    /// A number that no other host of this process has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the host can be given promises.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Whether errors are to be sent in the form that does not depend on the system
    /// ([`crate::errors::to_unified`]).
    pub fn wants_unified(&self) -> bool {
        self.unified.load(Ordering::Relaxed)
    }

    /// Where the host is called.
    pub fn address(&self) -> Option<SocketAddrV4> {
        self.state.lock().address
    }

    /// The host's UUID, if it has one and said so.
    pub fn uuid(&self) -> Option<Uuid> {
        match self.state.lock().identity {
            Identity::Named(uuid) => Some(uuid),
            Identity::Unknown | Identity::Nameless => None,
        }
    }

    /// How many promises the host has.
    pub fn promises(&self) -> usize {
        self.ledger.load(Ordering::Acquire) as u32 as usize
    }

    /// What promises of now belong to. Promises of an earlier generation are void.
    pub(super) fn generation(&self) -> u32 {
        (self.ledger.load(Ordering::Acquire) >> 32) as u32
    }

    /// Counts one more promise, and returns its generation. `None`: the host has as many as this.
    pub(super) fn reserve(&self, most: usize) -> Option<u32> {
        let more = |ledger: u64| ((ledger as u32 as usize) < most).then_some(ledger + 1);
        let before = self.ledger.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some((before >> 32) as u32)
    }

    /// Counts one promise less, if it is of the present generation.
    pub(super) fn release(&self, generation: u32) {
        let is_of_now = |ledger: u64| (ledger >> 32) as u32 == generation && ledger as u32 > 0;
        let less = |ledger: u64| is_of_now(ledger).then(|| ledger - 1);
        // A promise of an earlier generation is not counted any more.
        let _ = self.ledger.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Makes all promises void.
    pub(super) fn forget_promises(&self) {
        let next = |ledger: u64| Some(u64::from(((ledger >> 32) as u32).wrapping_add(1)) << 32);
        let _ = self.ledger.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    fn knows(&self, epoch: u32) -> bool {
        self.epochs.iter().any(|known| known.load(Ordering::Relaxed) == epoch)
    }

    fn is_ready_for(&self, epoch: u32) -> bool {
        self.is_ready() && self.knows(epoch)
    }

    fn is_stranger(&self) -> bool {
        self.stranger.load(Ordering::Acquire)
    }

    /// Where to call a host that is ready. One that is not is owed these ends of promises instead.
    pub(super) fn address_or_owe(&self, fids: &[Fid]) -> Option<SocketAddrV4> {
        let mut state = self.state.lock();
        match state.address {
            Some(address) if self.is_ready() => Some(address),
            _ => {
                state.owed.add(fids);
                None
            }
        }
    }

    /// Has the host reset with its next call: it may believe in promises that the server has not.
    pub(super) fn owe_reset(&self) {
        let mut state = self.state.lock();
        state.owed = Owed { reset: true, fids: Vec::new() };
        self.ready.store(false, Ordering::Release);
    }

    /// Notes that a call to the host failed. It is owed these ends of promises.
    pub(super) fn went_silent(&self, fids: &[Fid], failure: Failure) {
        let mut state = self.state.lock();
        state.owed.add(fids);
        let was_ready = self.ready.swap(false, Ordering::AcqRel);
        let address = state.address;
        drop(state);
        if was_ready {
            tracing::info!(
                ?address,
                ?failure,
                "a client takes no callbacks; it gets them when it calls next"
            );
        }
    }

    /// Ends a talk without success.
    fn failed(&self, failure: Failure, retry: Duration, now: Instant) {
        let mut state = self.state.lock();
        self.ready.store(false, Ordering::Release);
        state.retry_at = Some(now + retry * (1 << state.failures.min(4)));
        state.failures += 1;
        state.busy = false;
        self.changed.notify_all();
        let (address, is_first) = (state.address, state.failures == 1);
        drop(state);
        // Of strangers there can be any number.
        if is_first && !self.is_stranger() {
            tracing::info!(?address, ?failure, "a client can't be called; it is served without promises");
        }
    }

    /// Ends a talk with success, if nothing is owed. Else returns what is.
    fn settle(&self, epoch: u32) -> Option<Owed> {
        let mut state = self.state.lock();
        if !state.owed.is_empty() {
            return Some(std::mem::take(&mut state.owed));
        }
        if !self.knows(epoch) {
            // The oldest one makes room.
            for at in (1..EPOCHS).rev() {
                self.epochs[at].store(self.epochs[at - 1].load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.epochs[0].store(epoch, Ordering::Relaxed);
        }
        (state.retry_at, state.failures, state.busy) = (None, 0, false);
        self.ready.store(true, Ordering::Release);
        self.changed.notify_all();
        None
    }

    /// Puts back what could not be delivered.
    fn owe_again(&self, owed: Owed) {
        let mut state = self.state.lock();
        match owed.reset {
            true => state.owed = owed,
            false => state.owed.add(&owed.fids),
        }
    }
}

/// A thread's place among those that talk to hosts.
struct Talk<'a>(&'a AtomicUsize);

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All clients.
pub struct Hosts {
    clients: Arc<dyn Clients>,
    options: Options,
    begun: Instant,
    by_peer: [RwLock<HashMap<SocketAddrV4, Arc<Host>>>; SHARDS],
    by_uuid: Mutex<HashMap<Uuid, Arc<Host>>>,
    /// Entries of `by_peer` that are no strangers.
    count: AtomicUsize,
    /// Entries of `by_peer` that are strangers, the oldest first.
    strangers: Mutex<VecDeque<Arc<Host>>>,
    next: AtomicU64,
    /// Threads that talk to hosts, and those that talk to strangers.
    talking: [AtomicUsize; 2],
}

/// A call's host, as far as it is known.
#[derive(Debug, Clone, Copy)]
struct Address {
    peer: SocketAddrV4,
    epoch: u32,
    /// Rx says that the peer receives what is sent to it.
    is_proved: bool,
}

impl Hosts {
    /// No hosts yet.
    pub fn new(clients: Arc<dyn Clients>, options: Options) -> Self {
        Self {
            clients,
            options,
            begun: Instant::now(),
            by_peer: std::array::from_fn(|_| RwLock::default()),
            by_uuid: Mutex::default(),
            count: AtomicUsize::new(0),
            strangers: Mutex::default(),
            next: AtomicU64::new(1),
            talking: [const { AtomicUsize::new(0) }; 2],
        }
    }

    /// The calls to clients.
    pub fn clients(&self) -> &Arc<dyn Clients> {
        &self.clients
    }

    /// How many hosts have an address, without strangers.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The hosts with an address, by their numbers, without strangers.
    pub fn all(&self) -> Vec<Arc<Host>> {
        let mut all = self.each();
        all.retain(|host| !host.is_stranger());
        all.sort_unstable_by_key(|host| host.number);
        all
    }

    /// Has each host reset with its next call, also those that have lost their address.
    pub(super) fn owe_resets(&self) {
        let by_uuid: Vec<Arc<Host>> = self.by_uuid.lock().values().cloned().collect();
        by_uuid.iter().chain(&self.all()).for_each(|host| host.owe_reset());
    }

    /// How long ago a host made its last call.
    pub fn idle(&self, host: &Host) -> Duration {
        let now = self.seconds(Instant::now());
        Duration::from_secs(now.saturating_sub(host.called.load(Ordering::Relaxed)).into())
    }

    /// How many threads talk to hosts, or wait for that.
    #[cfg(test)]
    pub(super) fn talks(&self) -> usize {
        self.talking.iter().map(|talking| talking.load(Ordering::Relaxed)).sum()
    }

    /// How many hosts have an address, with strangers.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.each().len()
    }

    fn shard(&self, peer: SocketAddrV4) -> &RwLock<HashMap<SocketAddrV4, Arc<Host>>> {
        let mixed = (peer.ip().to_bits() ^ u32::from(peer.port())).wrapping_mul(0x9e37_79b1);
        &self.by_peer[(mixed >> 26) as usize % SHARDS]
    }

    fn seconds(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.begun).as_secs() as u32
    }

    fn make(&self, address: Option<SocketAddrV4>, identity: Identity) -> Arc<Host> {
        Host::new(self.next.fetch_add(1, Ordering::Relaxed), address, identity)
    }

    /// The host at this address, whose connection has this epoch, if no call to it is needed. It
    /// never waits for a client.
    pub fn known(&self, peer: SocketAddrV4, epoch: u32) -> Option<Arc<Host>> {
        let shard = self.shard(peer).read();
        let host = shard.get(&peer).filter(|host| host.is_ready_for(epoch))?;
        host.called.store(self.seconds(Instant::now()), Ordering::Relaxed);
        Some(Arc::clone(host))
    }

    /// The host at this address, whose connection has this epoch. `is_proved`: Rx knows that the
    /// address is the peer's.
    ///
    /// The server asks a new host who it is, and delivers the ends of promises that a host is owed.
    /// That takes twice the patience for a client that does not answer. Such a host is returned,
    /// too, but is not ready: it gets no promises.
    pub fn of(&self, peer: SocketAddrV4, epoch: u32, is_proved: bool) -> Arc<Host> {
        if let Some(host) = self.known(peer, epoch) {
            return host;
        }
        let (now, at) = (Instant::now(), Address { peer, epoch, is_proved });
        let Some(host) = self.find_or_add(at, now) else { return self.make(None, Identity::Unknown) };
        if host.is_stranger() {
            self.limit_strangers();
        }
        self.introduce(host, at, now)
    }

    /// The host at this address. `None`: it would be one too many, or the caller may be another
    /// host.
    fn find_or_add(&self, at: Address, now: Instant) -> Option<Arc<Host>> {
        let mut shard = self.shard(at.peer).write();
        let host = match shard.get(&at.peer) {
            Some(host) if at.is_proved => {
                let host = Arc::clone(host);
                if !self.acquaint(&host) {
                    return None;
                }
                host
            }
            Some(host) if host.is_stranger() || host.knows(at.epoch) => Arc::clone(host),
            Some(_) => return None,
            None if self.count() >= self.options.hosts => return None,
            None => {
                let host = self.make(Some(at.peer), Identity::Unknown);
                shard.insert(at.peer, Arc::clone(&host));
                if at.is_proved {
                    self.count.fetch_add(1, Ordering::Relaxed);
                } else {
                    host.stranger.store(true, Ordering::Release);
                    self.strangers.lock().push_back(Arc::clone(&host));
                }
                host
            }
        };
        host.called.store(self.seconds(now), Ordering::Relaxed);
        Some(host)
    }

    /// Notes that the address of a host is proved. The caller has locked the shard where it is.
    /// `false`: it would be one host too many.
    fn acquaint(&self, host: &Arc<Host>) -> bool {
        if host.is_stranger() {
            if self.count() >= self.options.hosts {
                return false;
            }
            self.strangers.lock().retain(|other| !Arc::ptr_eq(other, host));
            host.stranger.store(false, Ordering::Release);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Has the oldest stranger to which no thread talks make room for the newest.
    fn limit_strangers(&self) {
        let oldest = {
            let strangers = self.strangers.lock();
            let too_many = strangers.len() > self.options.strangers;
            strangers.iter().find(|host| too_many && !host.state.lock().busy).cloned()
        };
        if let Some(oldest) = oldest {
            self.forget(&oldest);
        }
    }

    fn introduce(&self, mut host: Arc<Host>, at: Address, now: Instant) -> Arc<Host> {
        let talk = self.talk(at.is_proved || !host.is_stranger());
        let deadline = now + self.options.patience * 2;
        loop {
            let mut state = host.state.lock();
            if state.address == Some(at.peer) {
                if host.is_ready_for(at.epoch) {
                    return Arc::clone(&host);
                }
                // Until it is known who has the address, there are no promises.
                host.ready.store(false, Ordering::Release);
                if talk.is_none() || state.retry_at.is_some_and(|at| Instant::now() < at) {
                    return Arc::clone(&host);
                }
                if !state.busy {
                    state.busy = true;
                    break;
                }
                if host.changed.wait_until(&mut state, deadline).timed_out() {
                    return Arc::clone(&host);
                }
            }
            drop(state);
            // Another host may have the address now.
            match self.find_or_add(at, now) {
                Some(found) => host = found,
                None => return host,
            }
        }
        self.ask(&host, at.peer, at.epoch)
    }

    /// A place among the threads that talk to hosts, or to strangers.
    fn talk(&self, is_known: bool) -> Option<Talk<'_>> {
        let (talking, most) = match is_known {
            true => (&self.talking[0], self.options.talks),
            false => (&self.talking[1], self.options.talks.div_ceil(2)),
        };
        let talk = Talk(talking);
        (talking.fetch_add(1, Ordering::Relaxed) < most).then_some(talk)
    }

    /// Asks who has an address, and tells the host what it is owed. This thread has `host`.
    fn ask(&self, host: &Arc<Host>, peer: SocketAddrV4, epoch: u32) -> Arc<Host> {
        let retry = self.options.retry;
        let About { uuid, capabilities } = match self.clients.about(peer, self.options.patience) {
            Ok(about) => about,
            Err(failure) => {
                host.failed(failure, retry, Instant::now());
                return Arc::clone(host);
            }
        };
        // Only a host at the address can have answered.
        let has_place = {
            let _shard = self.shard(peer).write();
            self.acquaint(host)
        };
        let target = if has_place { self.identify(host, peer, uuid) } else { None };
        let Some(target) = target else {
            host.failed(Failure::Silent, Duration::ZERO, Instant::now());
            return Arc::clone(host);
        };
        target.unified.store(capabilities & ERROR_TRANSLATION != 0, Ordering::Relaxed);
        let seconds = self.seconds(Instant::now());
        target.called.store(seconds, Ordering::Relaxed);
        target.heard.store(seconds, Ordering::Relaxed);
        if let Err(failure) = self.tell(&target, peer, uuid.is_some(), epoch) {
            target.failed(failure, retry, Instant::now());
        }
        target
    }

    /// The host that said that it has this UUID. This thread has it, and the address is its own.
    ///
    /// `None`: another thread talks to it, at another address.
    fn identify(&self, host: &Arc<Host>, peer: SocketAddrV4, uuid: Option<Uuid>) -> Option<Arc<Host>> {
        let mut by_uuid = self.by_uuid.lock();
        if by_uuid.len() >= self.options.hosts.saturating_mul(2) {
            // Hosts that lost their address. If one calls again, it is new, and gets a reset.
            by_uuid.retain(|_, host| host.address().is_some());
        }
        let known = uuid.and_then(|uuid| by_uuid.get(&uuid).cloned());
        let target = match known {
            Some(known) if Arc::ptr_eq(&known, host) => return Some(known),
            Some(known) => known,
            None => {
                let mut state = host.state.lock();
                if state.identity == Identity::Unknown {
                    state.identity = uuid.into();
                    by_uuid.extend(uuid.map(|uuid| (uuid, Arc::clone(host))));
                }
                if state.identity == Identity::from(uuid) {
                    return Some(Arc::clone(host));
                }
                let new = self.make(None, uuid.into());
                by_uuid.extend(uuid.map(|uuid| (uuid, Arc::clone(&new))));
                new
            }
        };
        let before = {
            let mut state = target.state.lock();
            if state.busy {
                return None;
            }
            state.busy = true;
            target.ready.store(false, Ordering::Release);
            state.address.replace(peer)
        };
        self.shard(peer).write().insert(peer, Arc::clone(&target));
        if let Some(before) = before {
            self.vacate(before, &target);
            tracing::debug!(%before, now = %peer, "a client has another address");
        }
        let mut state = host.state.lock();
        (state.address, state.busy) = (None, false);
        if !matches!(state.identity, Identity::Named(_)) {
            // Nothing can find this host again.
            host.forget_promises();
        }
        host.changed.notify_all();
        Some(Arc::clone(&target))
    }

    /// Removes an address, if this host has it.
    fn vacate(&self, peer: SocketAddrV4, host: &Arc<Host>) {
        let mut shard = self.shard(peer).write();
        if shard.get(&peer).is_some_and(|known| Arc::ptr_eq(known, host)) {
            shard.remove(&peer);
            if host.is_stranger() {
                self.strangers.lock().retain(|other| !Arc::ptr_eq(other, host));
            } else {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            drop(shard);
            self.clients.forget(peer);
        }
    }

    /// Tells a host what it is owed, until nothing is. Then it is ready.
    fn tell(&self, host: &Host, peer: SocketAddrV4, has_uuid: bool, epoch: u32) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let Some(owed) = host.settle(epoch) else { return Ok(()) };
            let told = match owed.reset {
                true => self.clients.reset(peer, has_uuid, self.options.patience),
                false => self.call_back(peer, &owed.fids),
            };
            match told {
                Ok(()) if owed.reset => host.forget_promises(),
                Ok(()) => {}
                Err(failure) => {
                    host.owe_again(owed);
                    return Err(failure);
                }
            }
        }
        // Its files change faster than it can be told. That ends with one call for all of them.
        host.owe_again(Owed { reset: true, fids: Vec::new() });
        Err(Failure::Silent)
    }

    /// Ends promises of one host, however many.
    pub(super) fn call_back(&self, peer: SocketAddrV4, fids: &[Fid]) -> Result<(), Failure> {
        for part in fids.chunks(MAX_FIDS) {
            let results = self.clients.call_back(&[peer], part, self.options.patience);
            results.into_iter().collect::<Result<(), Failure>>()?;
        }
        Ok(())
    }

    fn each(&self) -> Vec<Arc<Host>> {
        let shards = self.by_peer.iter();
        shards.flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Checks that hosts with promises are still there, if they have not called for this time. So
    /// the next change of one of their files does not wait for a host that is gone.
    pub(super) fn probe_idle(&self, idle: Duration, now: Instant) {
        let seconds = self.seconds(now);
        let since = |time: &AtomicU32| seconds.saturating_sub(time.load(Ordering::Relaxed));
        let is_idle = |host: &Arc<Host>| {
            let heard = since(&host.called).min(since(&host.heard));
            host.is_ready() && host.promises() > 0 && u64::from(heard) >= idle.as_secs()
        };
        let hosts: Vec<_> = self.each().into_iter().filter(is_idle).collect();
        for part in hosts.chunks(256) {
            let known: Vec<_> =
                part.iter().filter_map(|host| host.address().map(|address| (host, address))).collect();
            let addresses: Vec<_> = known.iter().map(|(_, address)| *address).collect();
            let results = self.clients.probe(&addresses, self.options.patience);
            for ((host, _), result) in known.into_iter().zip(results) {
                match result {
                    Ok(()) => host.heard.store(seconds, Ordering::Relaxed),
                    Err(failure) => host.went_silent(&[], failure),
                }
            }
        }
    }

    /// Forgets hosts that have not called for so long that no promise to them holds. Of too many
    /// hosts, those that have no promises and called least recently go, too.
    pub(super) fn forget_idle(&self, now: Instant) {
        let seconds = self.seconds(now);
        let idle = |host: &Host| seconds.saturating_sub(host.called.load(Ordering::Relaxed));
        let is_over = |host: &Host| u64::from(idle(host)) > LONGEST.as_secs();
        let mut hosts = self.each();
        let mut gone: Vec<_> = hosts.extract_if(.., |host| is_over(host)).collect();
        hosts.retain(|host| !host.is_stranger());
        let (most, least) = (self.options.hosts / 8 * 7, self.options.hosts / 4 * 3);
        if hosts.len() > most {
            let needed = hosts.len() - least;
            hosts.retain(|host| host.promises() == 0);
            hosts.sort_by_key(|host| std::cmp::Reverse(idle(host)));
            gone.extend(hosts.into_iter().take(needed));
        }
        for host in gone {
            self.forget(&host);
        }
        // Hosts without an address.
        self.by_uuid.lock().retain(|_, host| host.address().is_some() || !is_over(host));
    }

    fn forget(&self, host: &Arc<Host>) {
        let mut by_uuid = self.by_uuid.lock();
        let mut state = host.state.lock();
        if state.busy {
            return;
        }
        let (address, identity) = (state.address.take(), state.identity);
        host.ready.store(false, Ordering::Release);
        drop(state);
        if let Identity::Named(uuid) = identity {
            by_uuid.remove(&uuid);
        }
        host.forget_promises();
        drop(by_uuid);
        if let Some(address) = address {
            self.vacate(address, host);
        }
    }
}

/// The fid that means a whole volume.
pub(super) fn whole(volume: VolumeId) -> Fid {
    Fid { volume, vnode: Vnode(0), unique: Unique(0) }
}
