//! `sync(2)`: the daemon syncs all its pools when the kernel notifies it.
//!
//! # Theory
//! The notification comes through a mount of a block device ([`fuse::Hearing`]). The device is a
//! loop device over empty memory, which ends with the daemon in any case. It needs root, loop
//! devices and Linux 6.18. Elsewhere, what was not fsynced is on disk after its transaction group:
//! after `zfs_txg_timeout` at most.
//!
//! A pool that does not sync in time no longer delays `sync(2)`, which would block the whole
//! machine. Any user may call `sync(2)`, so a pool has at most one thread for it ([`Turns`]). Calls
//! during a sync share the next one, which begins after them. While a sync is overdue, no call
//! waits for that pool.
//!
//! For the same reason a daemon in a user's session does not listen. Before a suspend of the
//! machine, systemd freezes sessions, and the kernel syncs after that.
//!
//! # Locks
//! No lock is held while pools sync.

use crate::pools::table::PoolTable;
use fuse::Hearing;
use fuse::tree::{Attr, Entry, FileTree, Flags, Node, Seek, Statfs, Time};
use observe::lock::{Condvar, Mutex, MutexGuard};
use ondisk::Guid;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long `sync(2)` waits for pools.
const PATIENCE: Duration = Duration::from_secs(30);
/// The size of the device in bytes.
const SIZE: u64 = 1 << 20;
const ROOT: Node = Node(1);

/// The notification of `sync(2)`, once it is set up.
#[derive(Default)]
pub(crate) struct Syncs {
    coming: Mutex<Option<JoinHandle<Option<Hearing>>>>,
    here: Mutex<Option<Hearing>>,
}

impl Syncs {
    /// Starts to set up the notification, if that is possible.
    pub(crate) fn begin(&self, pools: &Arc<PoolTable>) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if groups.lines().any(may_be_frozen) {
            tracing::info!("sync(2) is not heard: the daemon is in a user's session, which may be frozen");
            return;
        }
        let all = Arc::new(All {
            pools: Arc::downgrade(pools),
            heard: AtomicU64::new(0),
            turns: Turns::new(PATIENCE),
        });
        match std::thread::Builder::new().name("sync".to_owned()).spawn(move || listen(&all)) {
            Ok(thread) => *self.coming.lock() = Some(thread),
            Err(error) => tracing::debug!(%error, "sync(2) is not heard"),
        }
    }

    /// Waits until the set-up of the notification has ended.
    pub(crate) fn wait(&self) {
        let Some(coming) = self.coming.lock().take() else { return };
        match coming.join() {
            Ok(hearing) => *self.here.lock() = hearing,
            Err(_) => tracing::error!("the thread that listens for sync(2) panicked"),
        }
    }
}

/// Whether a line of `/proc/self/cgroup` names a group that is frozen when the machine is
/// suspended.
fn may_be_frozen(line: &str) -> bool {
    line.split('/').any(|part| part == "user.slice")
}

fn listen(all: &Arc<All>) -> Option<Hearing> {
    let hearing = match make(all) {
        Ok(hearing) => hearing,
        Err(why) => {
            tracing::info!(why, "sync(2) is not heard: there is no mount of a block device");
            return None;
        }
    };
    let asked = hearing.ask();
    if all.heard.load(Ordering::Relaxed) == 0 {
        tracing::info!(?asked, "sync(2) is not heard: this kernel does not tell");
        return None;
    }
    tracing::info!("sync(2) is heard");
    Some(hearing)
}

fn make(all: &Arc<All>) -> Result<Hearing, String> {
    let memory = rustix::fs::memfd_create("poolhouse-sync", MemfdFlags::CLOEXEC);
    let memory = memory.map_err(|errno| errno.to_string())?;
    rustix::fs::ftruncate(&memory, SIZE).map_err(|errno| errno.to_string())?;
    let file = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()));
    let device =
        crate::volumes::attach::losetup(&["--find", "--show"], &file).map_err(|why| format!("{why:?}"))?;
    let hearing = Hearing::new(Path::new(&device), Arc::clone(all) as Arc<dyn FileTree>);
    // The device is detached with its last user, which is the mount.
    if let Err(why) = crate::volumes::attach::losetup(&["--detach"], Path::new(&device)) {
        tracing::warn!(device, ?why, "a loop device stays");
    }
    hearing.map_err(|error| api::chain(&error))
}

/// All pools, as an empty folder that can be synced.
struct All {
    pools: Weak<PoolTable>,
    /// The number of notifications.
    heard: AtomicU64,
    turns: Arc<Turns>,
}

/// Syncs a pool. Returns whether it is synced.
type Work = Box<dyn FnOnce() -> bool + Send>;

/// The syncs of pools, one at a time for each.
struct Turns {
    /// After this time, a sync is overdue.
    patience: Duration,
    /// One for each pool that there ever was.
    by_pool: Mutex<BTreeMap<Guid, Turn>>,
    ended: Condvar,
}

/// The numbered syncs of a pool.
#[derive(Default)]
struct Turn {
    /// The number of the last sync that began.
    begun: u64,
    /// The number of the last sync that ended.
    ended: u64,
    /// Whether that sync succeeded.
    good: bool,
    /// The next sync, if a call wants one.
    next: Option<Work>,
    /// When the present sync began; `None` if the pool has no thread.
    since: Option<Instant>,
}

impl Turns {
    fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self { patience, by_pool: Mutex::default(), ended: Condvar::new() })
    }

    /// Requests a sync of a pool that begins after this call. Returns its number; `None` if it is
    /// not worth waiting for.
    fn ask(self: &Arc<Self>, pool: Guid, work: Work) -> Option<u64> {
        let mut turns = self.by_pool.lock();
        let turn = turns.entry(pool).or_default();
        let number = turn.begun + 1;
        let before = turn.next.replace(work);
        let asked = match turn.since {
            Some(since) => (since.elapsed() < self.patience).then_some(number),
            None => {
                turn.since = Some(Instant::now());
                let own = Arc::clone(self);
                match std::thread::Builder::new().name("sync-pool".to_owned()).spawn(move || own.run(pool)) {
                    Ok(_) => Some(number),
                    Err(error) => {
                        tracing::error!(?pool, %error, "not synced for sync(2)");
                        turn.since = None;
                        None
                    }
                }
            }
        };
        // Dropping it may drop its pool.
        drop(turns);
        drop(before);
        asked
    }

    /// Syncs a pool until no call wants another sync.
    fn run(&self, pool: Guid) {
        let mut turns = self.by_pool.lock();
        loop {
            let turn = turns.entry(pool).or_default();
            let Some(work) = turn.next.take() else {
                turn.since = None;
                return;
            };
            (turn.begun, turn.since) = (turn.begun + 1, Some(Instant::now()));
            let good = MutexGuard::unlocked(&mut turns, work);
            let turn = turns.entry(pool).or_default();
            (turn.ended, turn.good) = (turn.begun, good);
            self.ended.notify_all();
        }
    }

    /// Waits for that sync or a later one to end. Returns whether it succeeded.
    fn wait(&self, pool: Guid, number: u64, end: Instant) -> bool {
        let mut turns = self.by_pool.lock();
        let over = |turns: &BTreeMap<Guid, Turn>| {
            turns.get(&pool).filter(|turn| turn.ended >= number).map(|turn| turn.good)
        };
        loop {
            if let Some(good) = over(&turns) {
                return good;
            }
            if self.ended.wait_until(&mut turns, end).timed_out() {
                return over(&turns).unwrap_or(false);
            }
        }
    }
}

impl FileTree for All {
    fn root(&self) -> Node {
        ROOT
    }

    fn lookup(&self, _: Node, _: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::NOENT)
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let time = Time::default();
        let attr = Attr {
            node,
            ino: node.0,
            generation: 0,
            parent: ROOT,
            mode: 0o040_700,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: 2,
            blocks: 0,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            settled: true,
        };
        if node == ROOT { Ok(attr) } else { Err(Errno::STALE) }
    }

    fn readlink(&self, _: Node) -> Result<Vec<u8>, Errno> {
        Err(Errno::INVAL)
    }

    fn read(&self, _: Node, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::ISDIR)
    }

    fn readdir(&self, _: Node, _: u64, _: usize) -> Result<Vec<Entry>, Errno> {
        Ok(Vec::new())
    }

    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs { unit: 512, transfer: 4096, name_max: 20, ..Statfs::default() })
    }

    fn seek(&self, _: Node, _: u64, _: Seek) -> Result<u64, Errno> {
        Err(Errno::NXIO)
    }

    fn flags(&self, _: Node) -> Result<Flags, Errno> {
        Ok(Flags::default())
    }

    fn writable(&self) -> bool {
        true
    }

    /// Syncs all pools at once, and waits for them.
    fn sync(&self) -> Result<(), Errno> {
        self.heard.fetch_add(1, Ordering::Relaxed);
        let Some(pools) = self.pools.upgrade() else { return Ok(()) };
        let (mut waiting, mut all) = (Vec::new(), true);
        for pool in pools.present() {
            let (guid, name) = (pool.pool.spa().guid(), pool.pool.name().to_owned());
            let sync = move || {
                pool.pool.spa().writer().is_none_or(|live| {
                    // A suspended pool syncs when it is cleared.
                    live.suspended().is_none() && live.sync_all().is_ok()
                })
            };
            match self.turns.ask(guid, Box::new(sync)) {
                Some(number) => waiting.push((guid, name, number)),
                None => all = false,
            }
        }
        let end = Instant::now() + PATIENCE;
        for (guid, name, number) in waiting {
            if !self.turns.wait(guid, number, end) {
                tracing::warn!(pool = name, "sync(2) has not synced it");
                all = false;
            }
        }
        if all { Ok(()) } else { Err(Errno::IO) }
    }
}

#[cfg(test)]
mod tests;
