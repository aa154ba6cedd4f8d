//! Promises to call clients before files change.
//!
//! # Theory
//! A client caches a file until the server calls it back, or until the promise ends. So a change
//! calls back all other holders before its reply leaves. Each volume keeps its own promises under
//! its own lock, because changes in one volume must not wait for those in another.
//!
//! | volume | a promise is for | it holds |
//! |---|---|---|
//! | read-write | one file | 4 hours to 7 minutes, by the number of holders |
//! | read-only, backup | all files | 2 hours |
//!
//! A client that has gone may delay one change, by [`Limits::deadline`]. Then its host is not ready
//! ([`hosts`](super::hosts)), and later changes only note what it is owed.
//!
//! A promise stays until its holder knows that it is broken. So another change of the file, which
//! comes meanwhile, calls the holder too, and does not return earlier.
//!
//! # Order
//! A status is read, and the promise for it is made, while the vnode is locked. A change breaks
//! promises after it was made, and before its reply. So a change after the reading finds the
//! promise.
//!
//! # Memory
//! A promise takes about 70 bytes. Their number is bounded, for each host and in all. Shortly
//! before a bound is reached, a thread breaks those promises that end first. At the bound, no more
//! promises are made.
//!
//! # Locks
//! The table of a volume; the list of volumes. Neither is held during a call to a client.
//!
//! # See
//! OpenAFS: `src/viced/callback.c`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex, MutexGuard};

use super::hosts::{Host, Hosts, whole};
use crate::calls::fileserver::MAX_FIDS;
use crate::types::{CallBack, Fid, Unique, Vnode, VolumeId};

/// How much longer than promised the server keeps a promise, in seconds (`ServerBias`).
const BIAS: u32 = 3 * 60;
/// Seconds of a promise for a whole volume.
const VOLUME: u32 = 2 * 3600;
/// Seconds of a promise for a file, by the number of holders in steps of eight (`TimeOuts`).
const TIMES: [u32; 8] = [4 * 3600, 3600, 30 * 60, 15 * 60, 15 * 60, 10 * 60, 10 * 60, 10 * 60];
/// Seconds of a promise for a file that has more holders than the table (`MinTimeOut`).
const SHORTEST: u32 = 7 * 60;
/// How often promises that ended are removed, and silent hosts are probed.
const PERIOD: Duration = Duration::from_secs(300);
/// Hosts with promises are probed after this silence.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// Promises of a volume that are counted at a time.
const SEEN: usize = 4_096;
/// Parts of the list of volumes, each with its own lock.
const SHARDS: usize = 16;

/// Bounds of memory, and the time for clients.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most promises in all. Default: 1,000,000, which take about 70 MB.
    pub promises: usize,
    /// Most promises of one host. Default: 200,000.
    pub promises_per_host: usize,
    /// How long one change waits for all holders together. Default: 1.5 s.
    pub deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { promises: 1_000_000, promises_per_host: 200_000, deadline: Duration::from_millis(1_500) }
    }
}

/// Seconds of a promise for a file that has so many holders already.
fn time_for(holders: usize) -> u32 {
    TIMES.get(holders / 8).copied().unwrap_or(SHORTEST)
}

/// A file of a volume, and the number of a host.
type Key = (u32, u32, u64);

/// A promise.
#[derive(Debug)]
struct Promise {
    host: Arc<Host>,
    generation: u32,
    /// When it ends, in seconds since the start of the server.
    until: u32,
    /// The last break whose call to the holder has begun. 0: none since the promise was made.
    broken_by: u32,
}

impl Promise {
    fn holds(&self, seconds: u32) -> bool {
        self.until > seconds && self.generation == self.host.generation()
    }
}

/// The promises of a volume to a host.
#[derive(Debug, Clone)]
pub struct Held {
    /// The volume.
    pub volume: VolumeId,
    /// The host.
    pub host: Arc<Host>,
    /// For how many files it has one.
    pub files: u64,
    /// Whether it has one for the whole volume.
    pub whole: bool,
}

impl Held {
    fn promises(&self) -> u64 {
        self.files + u64::from(self.whole)
    }
}

/// Keeps so many of these, those with the most promises first. Returns how many promises the others
/// are.
fn keep(all: &mut Vec<Held>, most: usize) -> u64 {
    all.sort_unstable_by_key(|held| (std::cmp::Reverse(held.promises()), held.volume, held.host.number()));
    all.drain(most.min(all.len())..).map(|held| held.promises()).sum()
}

/// A promise for a file of a volume that is not served for a while.
#[derive(Debug, Clone)]
pub(super) struct SetAside {
    pub(super) vnode: Vnode,
    pub(super) unique: Unique,
    pub(super) host: Arc<Host>,
    /// It is void if its host has another one.
    pub(super) generation: u32,
    /// How long it holds.
    pub(super) seconds: u32,
}

/// What the promises of all volumes share.
struct Shared {
    hosts: Arc<Hosts>,
    limits: Limits,
    begun: Instant,
    total: AtomicUsize,
    next: AtomicU64,
    tickets: AtomicU32,
    /// The volumes that have promises.
    volumes: [Mutex<HashMap<u64, Weak<VolumeCallBacks>>>; SHARDS],
    work: Mutex<Work>,
    wake: Condvar,
}

/// What the thread has to do.
#[derive(Default)]
struct Work {
    stop: bool,
    /// There are too many promises in all.
    crowded: bool,
    /// Hosts that have too many.
    greedy: Vec<Arc<Host>>,
}

/// Fifteen sixteenths: from here on, promises are broken to make room.
fn high(limit: usize) -> usize {
    limit - limit / 16
}

/// Seven eighths: so many promises are left.
fn low(limit: usize) -> usize {
    limit - limit / 8
}

impl Shared {
    fn seconds(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.begun).as_secs() as u32
    }

    fn shard(&self, number: u64) -> &Mutex<HashMap<u64, Weak<VolumeCallBacks>>> {
        &self.volumes[number as usize % SHARDS]
    }

    /// The volumes that have promises.
    fn each(&self) -> Vec<Arc<VolumeCallBacks>> {
        let shards = self.volumes.iter();
        shards.flat_map(|shard| shard.lock().values().filter_map(Weak::upgrade).collect::<Vec<_>>()).collect()
    }

    /// Counts one more promise of a host. `None`: there are too many.
    fn reserve(&self, host: &Arc<Host>) -> Option<u32> {
        let total = self.total.fetch_add(1, Ordering::AcqRel);
        let generation = match total < self.limits.promises {
            true => host.reserve(self.limits.promises_per_host),
            false => None,
        };
        if generation.is_none() {
            self.total.fetch_sub(1, Ordering::AcqRel);
        }
        let is_crowded = total >= high(self.limits.promises);
        let is_greedy = host.promises() >= high(self.limits.promises_per_host);
        if is_crowded || is_greedy {
            let mut work = self.work.lock();
            work.crowded |= is_crowded;
            if is_greedy && !work.greedy.iter().any(|known| Arc::ptr_eq(known, host)) {
                work.greedy.push(Arc::clone(host));
            }
            self.wake.notify_one();
        }
        generation
    }

    /// The number of a break that begins.
    fn ticket(&self) -> u32 {
        let mut ticket = 0;
        while ticket == 0 {
            ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        }
        ticket
    }

    /// Forgets promises whose holders know that they are broken, or are owed that.
    fn end_broken(&self, promises: impl Iterator<Item = (Key, Promise)>) {
        promises.for_each(|(_, promise)| self.release(&promise));
    }

    fn release(&self, promise: &Promise) {
        self.total.fetch_sub(1, Ordering::AcqRel);
        promise.host.release(promise.generation);
    }

    /// Calls back all these hosts at the same time, and waits for those that answer in time. Each
    /// host gets all of the files: a client ignores what it does not cache.
    fn break_all(&self, holders: &[Arc<Host>], fids: &[Fid]) {
        for part in fids.chunks(MAX_FIDS) {
            let ready = holders.iter().filter_map(|host| Some((host, host.address_or_owe(part)?)));
            let (hosts, addresses): (Vec<_>, Vec<_>) = ready.unzip();
            if hosts.is_empty() {
                continue;
            }
            let results = self.hosts.clients().call_back(&addresses, part, self.limits.deadline);
            for (host, result) in hosts.into_iter().zip(results) {
                if let Err(failure) = result {
                    host.went_silent(part, failure);
                }
            }
        }
    }

    /// Removes promises that ended. Returns how many are left, of this host or of all.
    fn sweep(&self, seconds: u32, of: Option<&Host>) -> Vec<u32> {
        let mut times = Vec::new();
        for volume in self.each() {
            let mut table = volume.table.lock();
            let ended: Vec<_> = table.extract_if(.., |_, promise| !promise.holds(seconds)).collect();
            ended.iter().for_each(|(_, promise)| self.release(promise));
            let of_host = |number: u64| of.is_none_or(|host| host.number() == number);
            times.extend(
                table.iter().filter(|((.., host), _)| of_host(*host)).map(|(_, promise)| promise.until),
            );
            if table.is_empty() {
                self.shard(volume.number).lock().remove(&volume.number);
            }
        }
        times
    }

    /// Breaks the promises that end first, of this host or of all, until only so many are left.
    fn make_room(&self, now: Instant, of: Option<&Host>, most: usize) {
        let seconds = self.seconds(now);
        let mut times = self.sweep(seconds, of);
        let Some(excess) = times.len().checked_sub(most).filter(|excess| *excess > 0) else { return };
        let (_, last, _) = times.select_nth_unstable(excess - 1);
        let (last, mut left, ticket) = (*last, excess, self.ticket());
        let mut broken: HashMap<u64, (Arc<Host>, Vec<Fid>)> = HashMap::new();
        let volumes = self.each();
        for volume in &volumes {
            let is_chosen = |key: &Key, promise: &Promise| {
                promise.until <= last && of.is_none_or(|host| host.number() == key.2)
            };
            let mut table = volume.table.lock();
            let chosen = table.iter_mut().filter(|(key, promise)| is_chosen(key, promise));
            for ((vnode, unique, number), promise) in chosen.take(left) {
                promise.broken_by = ticket;
                left -= 1;
                let fid = Fid { volume: volume.volume, vnode: Vnode(*vnode), unique: Unique(*unique) };
                let host = || (Arc::clone(&promise.host), Vec::new());
                broken.entry(*number).or_insert_with(host).1.push(fid);
            }
        }
        tracing::info!(broken = excess - left, "promises to clients are broken, since there are too many");
        for (host, fids) in broken.into_values() {
            if let Some(address) = host.address_or_owe(&fids)
                && let Err(failure) = self.hosts.call_back(address, &fids)
            {
                host.went_silent(&fids, failure);
            }
        }
        for volume in volumes {
            self.end_broken(volume.table.lock().extract_if(.., |_, promise| promise.broken_by == ticket));
        }
    }

    /// Does what the counters request, and if `all` what is due from time to time.
    fn maintain(&self, now: Instant, all: bool) {
        let (crowded, greedy) = {
            let mut work = self.work.lock();
            (std::mem::take(&mut work.crowded), std::mem::take(&mut work.greedy))
        };
        for host in greedy {
            self.make_room(now, Some(&host), low(self.limits.promises_per_host));
        }
        if crowded {
            self.make_room(now, None, low(self.limits.promises));
        }
        if all {
            self.sweep(self.seconds(now), None);
            self.hosts.probe_idle(IDLE, now);
            self.hosts.forget_idle(now);
        }
    }

    fn run(&self) {
        let mut due = Instant::now() + PERIOD;
        loop {
            let mut work = self.work.lock();
            while !work.stop && !work.crowded && work.greedy.is_empty() && Instant::now() < due {
                self.wake.wait_until(&mut work, due);
            }
            if work.stop {
                return;
            }
            drop(work);
            let now = Instant::now();
            self.maintain(now, now >= due);
            if now >= due {
                due = now + PERIOD;
            }
        }
    }
}

/// The promises of a server. Dropping it ends the thread that keeps them within their bounds.
pub struct CallBacks {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CallBacks {
    /// No promises yet.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub fn start(hosts: Arc<Hosts>, limits: Limits) -> std::io::Result<Self> {
        let callbacks = Self::without_thread(hosts, limits);
        let shared = Arc::clone(&callbacks.shared);
        let thread = std::thread::Builder::new().name("afs-callbacks".into());
        *callbacks.thread.lock() = Some(thread.spawn(move || shared.run())?);
        Ok(callbacks)
    }

    fn without_thread(hosts: Arc<Hosts>, limits: Limits) -> Self {
        let shared = Shared {
            hosts,
            limits,
            begun: Instant::now(),
            total: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            tickets: AtomicU32::new(1),
            volumes: std::array::from_fn(|_| Mutex::default()),
            work: Mutex::default(),
            wake: Condvar::new(),
        };
        Self { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Ends the thread that keeps promises within their bounds. All hosts then know what it has
    /// broken, or are owed it.
    pub(super) fn stop(&self) {
        self.shared.work.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
    }

    /// The promises of a volume, none yet. The volume owns them: if it is dropped, so are they.
    pub fn volume(&self, volume: VolumeId) -> Arc<VolumeCallBacks> {
        Arc::new_cyclic(|me| VolumeCallBacks {
            volume,
            number: self.shared.next.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(&self.shared),
            me: Weak::clone(me),
            ended: AtomicBool::new(false),
            table: Mutex::default(),
        })
    }

    /// Forgets all promises to a host, in all volumes (GiveUpAllCallBacks).
    pub fn give_up_all(&self, host: &Host) {
        host.forget_promises();
    }

    /// Does all of the thread's work, as if it were this time.
    #[cfg(test)]
    pub(super) fn maintain(&self, now: Instant) {
        self.shared.maintain(now, true);
    }

    /// Which host holds how many promises of which volume, at most `most` of these pairs. The
    /// number is that of all other promises. `volume`, `hosts`: only these, by their numbers.
    pub fn held(
        &self,
        volume: Option<VolumeId>,
        hosts: Option<&HashSet<u64>>,
        most: usize,
    ) -> (Vec<Held>, u64) {
        let (mut all, mut others) = (Vec::new(), 0);
        let seconds = self.shared.seconds(Instant::now());
        for of in self.shared.each() {
            if volume.is_none_or(|wanted| wanted == of.volume) {
                all.extend(of.held(seconds, hosts));
            }
            if all.len() > most.saturating_mul(2) {
                others += keep(&mut all, most);
            }
        }
        others += keep(&mut all, most);
        (all, others)
    }

    /// How many promises there are. Some may have ended already.
    pub fn count(&self) -> usize {
        self.shared.total.load(Ordering::Relaxed)
    }
}

impl Drop for CallBacks {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The promises of one volume.
pub struct VolumeCallBacks {
    volume: VolumeId,
    number: u64,
    shared: Arc<Shared>,
    me: Weak<Self>,
    /// No more promises are made. Changed under the lock of the table.
    ended: AtomicBool,
    table: Mutex<BTreeMap<Key, Promise>>,
}

impl VolumeCallBacks {
    /// Promises to call a host before this file changes.
    ///
    /// Make the promise before the vnode is unlocked that was locked to read the status. The answer
    /// is [`CallBack::dropped`] if the host is not ready, or if there are too many promises.
    pub fn promise(&self, host: &Arc<Host>, vnode: Vnode, unique: Unique, now: Instant) -> CallBack {
        self.promising(host, now).file(vnode, unique)
    }

    /// Promises to call a host before anything in this volume changes, as for read-only volumes.
    pub fn promise_volume(&self, host: &Arc<Host>, now: Instant) -> CallBack {
        self.promising(host, now).volume()
    }

    /// Makes several promises to a host. No other thread makes or breaks promises of the volume
    /// until the answer is dropped. Who holds it must not wait for a vnode.
    pub fn promising<'a>(&'a self, host: &'a Arc<Host>, now: Instant) -> Promising<'a> {
        Promising { of: self, host, seconds: self.shared.seconds(now), table: self.table.lock() }
    }

    /// Breaks the promises for files that were changed, except those of the host that changed them.
    ///
    /// It returns when all holders know, or when [`Limits::deadline`] has passed. A holder that did
    /// not answer gets the break with its next call.
    pub fn changed(&self, files: &[(Vnode, Unique)], by: Option<&Host>) {
        let by = by.map(Host::number);
        let is_other = |key: &Key| Some(key.2) != by;
        let range =
            |(vnode, unique): &(Vnode, Unique)| (vnode.0, unique.0, 0)..=(vnode.0, unique.0, u64::MAX);
        let (ticket, mut holders, mut fids) = (self.shared.ticket(), BTreeMap::new(), Vec::new());
        {
            let seconds = self.shared.seconds(Instant::now());
            let mut table = self.table.lock();
            for file in files {
                let mut found = false;
                for (key, promise) in table.range_mut(range(file)).filter(|(key, _)| is_other(key)) {
                    promise.broken_by = ticket;
                    if promise.holds(seconds) {
                        found = true;
                        holders.insert(key.2, Arc::clone(&promise.host));
                    }
                }
                if found {
                    fids.push(Fid { volume: self.volume, vnode: file.0, unique: file.1 });
                }
            }
        }
        let holders: Vec<_> = holders.into_values().collect();
        self.shared.break_all(&holders, &fids);
        let mut table = self.table.lock();
        for file in files {
            self.shared.end_broken(table.extract_if(range(file), |_, promise| promise.broken_by == ticket));
        }
    }

    /// Breaks all promises of the volume: it was replaced, moved or taken offline.
    ///
    /// It waits as [`Self::changed`] does.
    pub fn volume_changed(&self) {
        let seconds = self.shared.seconds(Instant::now());
        let (ticket, mut holders) = (self.shared.ticket(), BTreeMap::new());
        for ((.., number), promise) in &mut *self.table.lock() {
            promise.broken_by = ticket;
            if promise.holds(seconds) {
                holders.insert(*number, Arc::clone(&promise.host));
            }
        }
        let holders: Vec<_> = holders.into_values().collect();
        self.shared.break_all(&holders, &[whole(self.volume)]);
        self.shared.end_broken(self.table.lock().extract_if(.., |_, promise| promise.broken_by == ticket));
    }

    /// Takes the promises that hold. Clients believe in them still.
    pub(super) fn set_aside(&self, now: Instant) -> Vec<SetAside> {
        let seconds = self.shared.seconds(now);
        let mut set_aside = Vec::new();
        for ((vnode, unique, _), promise) in std::mem::take(&mut *self.table.lock()) {
            self.shared.release(&promise);
            if promise.holds(seconds) {
                let Promise { host, generation, until, .. } = promise;
                let (vnode, unique) = (Vnode(vnode), Unique(unique));
                set_aside.push(SetAside { vnode, unique, host, generation, seconds: until - seconds });
            }
        }
        set_aside
    }

    /// Makes promises again that were set aside. The time in between does not count. A host for
    /// which there are too many is reset.
    pub(super) fn take_back(&self, promises: Vec<SetAside>, now: Instant) {
        let mut table = self.table.lock();
        if !promises.is_empty() {
            self.shared.shard(self.number).lock().insert(self.number, Weak::clone(&self.me));
        }
        for SetAside { vnode, unique, host, generation, seconds } in promises {
            if generation != host.generation() {
                continue;
            }
            let Some(generation) = self.shared.reserve(&host) else {
                host.owe_reset();
                continue;
            };
            let key = (vnode.0, unique.0, host.number());
            let until = self.shared.seconds(now).saturating_add(seconds);
            if let Some(other) = table.insert(key, Promise { host, generation, until, broken_by: 0 }) {
                self.shared.release(&other);
            }
        }
    }

    /// Ends all promises of the volume without a call: their hosts are reset when they call next.
    /// No more are made.
    pub(super) fn forsake(&self) {
        {
            let _table = self.table.lock();
            self.ended.store(true, Ordering::Release);
        }
        self.reset_holders();
    }

    /// Ends all promises of the volume without a call: their hosts are reset when they call next.
    pub(super) fn reset_holders(&self) {
        for promise in self.set_aside(Instant::now()) {
            promise.host.owe_reset();
        }
    }

    /// Forgets promises to a host, which does not need them any more (GiveUpCallBacks). Vnode 0
    /// means the promise for the whole volume.
    pub fn give_up(&self, host: &Host, files: &[(Vnode, Unique)]) {
        let mut table = self.table.lock();
        for (vnode, unique) in files {
            if let Some(promise) = table.remove(&(vnode.0, unique.0, host.number())) {
                self.shared.release(&promise);
            }
        }
    }

    /// Which hosts hold how many promises.
    fn held(&self, seconds: u32, hosts: Option<&HashSet<u64>>) -> impl Iterator<Item = Held> + use<> {
        let (mut all, mut next) = (HashMap::<u64, Held>::new(), Some((0, 0, 0)));
        while let Some(from) = next.take() {
            // Calls wait for the lock: it is held for a part of the promises at a time.
            let table = self.table.lock();
            for (seen, (key, promise)) in table.range(from..).enumerate() {
                if seen == SEEN {
                    next = Some(*key);
                    break;
                }
                let is_wanted = hosts.is_none_or(|hosts| hosts.contains(&key.2));
                if !is_wanted || !promise.holds(seconds) {
                    continue;
                }
                let (volume, host) = (self.volume, &promise.host);
                let held = all.entry(key.2).or_insert_with(|| Held {
                    volume,
                    host: Arc::clone(host),
                    files: 0,
                    whole: false,
                });
                match key.0 {
                    0 => held.whole = true,
                    _ => held.files += 1,
                }
            }
        }
        all.into_values()
    }

    /// Whether a promise holds.
    pub fn has_any(&self) -> bool {
        let seconds = self.shared.seconds(Instant::now());
        self.table.lock().values().any(|promise| promise.holds(seconds))
    }

    /// How many promises the volume has. Some may have ended already.
    pub fn count(&self) -> usize {
        self.table.lock().len()
    }
}

/// Promises of one volume to one host, made one after another.
pub struct Promising<'a> {
    of: &'a VolumeCallBacks,
    host: &'a Arc<Host>,
    seconds: u32,
    table: MutexGuard<'a, BTreeMap<Key, Promise>>,
}

impl Promising<'_> {
    /// [`VolumeCallBacks::promise`].
    pub fn file(&mut self, vnode: Vnode, unique: Unique) -> CallBack {
        self.add(vnode.0, unique.0)
    }

    /// [`VolumeCallBacks::promise_volume`].
    pub fn volume(&mut self) -> CallBack {
        self.add(0, 0)
    }

    fn add(&mut self, vnode: u32, unique: u32) -> CallBack {
        let Self { of, host, seconds, table } = self;
        if !host.is_ready() || of.ended.load(Ordering::Acquire) {
            return CallBack::dropped();
        }
        let key = (vnode, unique, host.number());
        // Each step of the times is reached with 64 holders at most.
        let (mut holders, mut known) = (0, None);
        for (of, promise) in table.range_mut((vnode, unique, 0)..=(vnode, unique, u64::MAX)).take(64) {
            holders += 1;
            if *of == key {
                known = Some(promise);
            }
        }
        let time = if vnode == 0 { VOLUME } else { time_for(holders) };
        let until = *seconds + time + BIAS;
        // Behind 64 others it was not found.
        let known = if known.is_none() && holders == 64 { table.get_mut(&key) } else { known };
        match known {
            Some(known) if known.generation == host.generation() => {
                (known.until, known.broken_by) = (known.until.max(until), 0);
            }
            known => {
                let Some(generation) = of.shared.reserve(host) else { return CallBack::dropped() };
                let promise = Promise { host: Arc::clone(host), generation, until, broken_by: 0 };
                match known {
                    Some(known) => of.shared.release(&std::mem::replace(known, promise)),
                    None => {
                        if table.is_empty() {
                            let mut volumes = of.shared.shard(of.number).lock();
                            volumes.insert(of.number, Weak::clone(&of.me));
                        }
                        table.insert(key, promise);
                    }
                }
                if host.generation() != generation {
                    // A reset reached the host meanwhile: it believes in no promise.
                    return CallBack::dropped();
                }
            }
        }
        CallBack::shared(time)
    }
}

impl Drop for VolumeCallBacks {
    fn drop(&mut self) {
        self.shared.shard(self.number).lock().remove(&self.number);
        self.table.get_mut().values().for_each(|promise| self.shared.release(promise));
    }
}
