//! What happened to pools, for whoever wants to know (`zpool events`).
//!
//! # Theory
//! A ring holds the newest events of all pools; who reads it remembers the number of the last one that it has seen. What the daemon does to a pool it
//! enters itself, under the classes that OpenZFS's kernel module posts; what the pool does by itself, and what its history was told, the engine keeps, and what went wrong
//! the devices and the pipeline, until somebody asks: an operation when it is done, whoever reads events, and who runs something at them (`zedlets`) all the time.
//!
//! # Absent
//! The state of an I/O in the pipeline (`zio_stage`): a report of a device knows the place on it alone, and one of a block its bookmark.
//!
//! # See
//! OpenZFS `fm.c`, `zfs_fm.c`, `spa_history_log_notify`.

use crate::pools::Imported;
use crate::pools::halts::Halt;
use crate::zedlets::Zedlets;
use api::{Event, EventPage, EventQuery, EventValue, Nameless};
use ondisk::Nvlist;
use parking_lot::Mutex;
use spa::Spa;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vdev::{Report, Trouble, VdevInfo, VdevState};
use zio::Why;

/// Events that are kept (`zfs_zevent_len_max`).
pub(crate) static LEN_MAX: observe::Tunable = observe::Tunable::new(
    "zfs_zevent_len_max",
    512,
    1..=1 << 20,
    observe::Unit::Count,
    "number of events that the daemon keeps",
);
/// `ECKSUM` and `EIO`, as the kernel module numbers them.
const ECKSUM: u64 = 52;
const EIO: u64 = 5;

/// How a pool is used (`spa_load_state_t`), as `pool_context` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// It is open.
    None = 0,
    /// It is imported.
    Import = 2,
    /// It is made.
    Create = 6,
}

/// The newest events.
pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// What is run at each of them.
    zedlets: OnceLock<Arc<Zedlets>>,
}

impl Default for Events {
    fn default() -> Self {
        // Whoever tells of events is told from others by it, and there is always somebody.
        let teller = RandomState::new().hash_one(std::process::id()) | 1;
        Self { ring: Mutex::new(Ring { teller, ..Ring::default() }), zedlets: OnceLock::new() }
    }
}

#[derive(Default)]
struct Ring {
    /// Devices whose files were removed, of which that was told: pool and device.
    nameless: BTreeSet<(u64, u64)>,
    teller: u64,
    last: u64,
    kept: VecDeque<Event>,
}

/// What all events of a pool say of it.
struct Of {
    pool: String,
    guid: u64,
    /// `pool_state_t`.
    state: u64,
    context: Context,
}

/// Something that happened, before it has a number.
struct Found {
    class: String,
    details: Vec<(String, EventValue)>,
    at: SystemTime,
}

/// What time it is by both clocks.
#[derive(Clone, Copy)]
struct Clock(Instant, SystemTime);

impl Clock {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    fn wall(self, at: Instant) -> SystemTime {
        self.1.checked_sub(self.0.saturating_duration_since(at)).unwrap_or(self.1)
    }
}

impl Events {
    /// Events after one, or none and the ring is empty.
    pub(crate) fn tell(&self, query: &EventQuery, pools: &[Arc<Imported>]) -> EventPage {
        self.gather(pools);
        let ring = &mut *self.ring.lock();
        if query.clear {
            let cleared = ring.kept.len() as u64;
            ring.kept.clear();
            return EventPage { cleared, teller: ring.teller, ..EventPage::default() };
        }
        // Who has seen another's last event has seen none of these.
        let after = if query.teller == ring.teller { query.after } else { 0 };
        let events: Vec<Event> = ring.kept.iter().filter(|e| e.eid > after).cloned().collect();
        let first = events.first().map_or(ring.last + 1, |e| e.eid);
        // Who asks for the first time has missed nothing.
        let dropped = if after == 0 { 0 } else { first.saturating_sub(after + 1) };
        EventPage { events, dropped, cleared: 0, teller: ring.teller }
    }

    /// Enters what happened to devices since somebody asked last.
    pub(crate) fn gather(&self, pools: &[Arc<Imported>]) {
        for pool in pools {
            self.ask(pool, Context::None);
        }
    }

    /// Has this told of each event from now on; the first one that is named.
    pub(crate) fn run(&self, zedlets: Arc<Zedlets>) {
        self.zedlets.get_or_init(|| zedlets);
    }

    /// What is told of each event.
    pub(crate) fn zedlets(&self) -> Option<&Arc<Zedlets>> {
        self.zedlets.get()
    }

    /// Something that was done to a pool, by the last part of its class.
    pub(crate) fn post(&self, imported: &Imported, what: &str, context: Context) {
        let spa = imported.pool.spa();
        self.enter(&of(spa, 0, context), &format!("sysevent.fs.zfs.{what}"), Vec::new(), SystemTime::now());
    }

    /// Files of a pool's devices were removed; each is told once (`zfs_post_remove`).
    pub(crate) fn nameless(&self, imported: &Imported, files: &[Nameless]) {
        let spa = imported.pool.spa();
        for file in files {
            if !self.ring.lock().nameless.insert((spa.guid().0, file.guid)) {
                continue;
            }
            tracing::error!(
                pool = spa.name(),
                file = file.path,
                still = file.still,
                "a device's file was removed"
            );
            let details = vec![
                ("vdev_guid".to_owned(), EventValue::Number(file.guid)),
                ("vdev_path".to_owned(), EventValue::Text(file.path.clone())),
            ];
            self.enter(&of(spa, 0, Context::None), "resource.fs.zfs.removed", details, SystemTime::now());
        }
    }

    /// A pool is gone, destroyed or exported.
    pub(crate) fn gone(&self, pool: &str, guid: u64, destroyed: bool) {
        let (what, state) = if destroyed { ("pool_destroy", 2) } else { ("pool_export", 1) };
        let of = Of { pool: pool.to_owned(), guid, state, context: Context::None };
        for what in [what, "config_sync"] {
            self.enter(&of, &format!("sysevent.fs.zfs.{what}"), Vec::new(), SystemTime::now());
        }
        let ring = &mut *self.ring.lock();
        ring.nameless.retain(|(pool, _)| *pool != guid);
    }

    /// Enters what happened to a pool that nobody has asked for, in the order in which it did: what its history was told, what its scans and devices did, and what went wrong.
    pub(crate) fn ask(&self, imported: &Imported, context: Context) {
        let spa = imported.pool.spa();
        let mut found = reports(spa);
        found.extend(imported.halts.take().into_iter().map(|halt| halted(spa, halt)));
        found.extend(losses(spa));
        found.extend(notices(spa));
        let recorded = spa.writer().map(|live| live.take_recorded()).unwrap_or_default();
        found.extend(recorded.into_iter().map(|one| Found {
            class: "sysevent.fs.zfs.history_event".to_owned(),
            details: history_details(&one.record),
            at: one.at,
        }));
        if found.is_empty() {
            return;
        }
        found.sort_by_key(|one| one.at);
        let of = of(spa, 0, context);
        for Found { class, details, at } in found {
            self.enter(&of, &class, details, at);
        }
    }

    fn enter(&self, of: &Of, class: &str, more: Vec<(String, EventValue)>, when: SystemTime) {
        let since = when.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let time = (since.as_secs(), since.subsec_nanos());
        let ring = &mut *self.ring.lock();
        ring.last += 1;
        let eid = ring.last;
        let mut details = Vec::new();
        let mut put = |name: &str, value| details.push((name.to_owned(), value));
        if !class.starts_with("ereport.") {
            put("version", EventValue::Number(0));
        }
        put("class", EventValue::Text(class.to_owned()));
        if class.starts_with("ereport.") {
            put("ena", EventValue::Number(eid << 20 | 1));
        }
        put("pool", EventValue::Text(of.pool.clone()));
        put("pool_guid", EventValue::Number(of.guid));
        put("pool_state", EventValue::Number(of.state));
        put("pool_context", EventValue::Number(of.context as u64));
        details.extend(more);
        details.push(("time".to_owned(), EventValue::Numbers(vec![time.0, time.1.into()])));
        details.push(("eid".to_owned(), EventValue::Number(eid)));
        let most = usize::try_from(LEN_MAX.get()).unwrap_or(usize::MAX).max(1);
        while ring.kept.len() >= most {
            ring.kept.pop_front();
        }
        let event = Event { eid, time, class: class.to_owned(), pool: of.pool.clone(), details };
        // Under the lock, so that they come in the order of their numbers; nothing is waited for.
        if let Some(zedlets) = self.zedlets.get() {
            zedlets.put(&event);
        }
        ring.kept.push_back(event);
    }
}

/// What went wrong on devices since the last call.
fn reports(spa: &Spa) -> Vec<Found> {
    let tree = spa.tree();
    let (reports, lost) = tree.take_reports();
    if lost > 0 {
        tracing::warn!(pool = spa.name(), lost, "more went wrong on its devices than is told");
    }
    if reports.is_empty() {
        return Vec::new();
    }
    let clock = Clock::now();
    let info = tree.describe();
    let mut vdevs = HashMap::new();
    index(&info, None, &mut vdevs);
    let mut found = Vec::new();
    for (guid, report) in &reports {
        let Some((vdev, parent)) = vdevs.get(&guid.0) else { continue };
        let (class, details) = told(spa, report, vdev, *parent);
        let at = clock.wall(report.at);
        if matches!(report.what, Trouble::State { now: VdevState::Removed, .. }) {
            found.push(Found { class: "resource.fs.zfs.removed".to_owned(), details: details.clone(), at });
        }
        found.push(Found { class: class.to_owned(), details, at });
    }
    found
}

/// Blocks that no copy could give since the last call; one that is not what its dataset's key had sealed is told twice, as in OpenZFS.
fn losses(spa: &Spa) -> Vec<Found> {
    let (losses, dropped) = spa.take_losses();
    if dropped > 0 {
        tracing::warn!(pool = spa.name(), dropped, "more of its blocks are damaged than is told");
    }
    let clock = Clock::now();
    let mut found = Vec::new();
    for loss in &losses {
        let classes: &[&str] = match loss.why {
            Why::Mac => &["authentication", "data"],
            Why::Unread | Why::Checksum => &["data"],
        };
        let error = if loss.why == Why::Checksum { ECKSUM } else { EIO };
        let of = &loss.bookmark;
        let place = [
            ("zio_err", error),
            ("zio_objset", of.objset),
            ("zio_object", of.object.0),
            ("zio_level", of.level.0.into()),
            ("zio_blkid", of.blkid.0),
        ];
        let place = place.map(|(name, n)| (name.to_owned(), EventValue::Number(n)));
        let details: Vec<_> = failmode(spa).into_iter().chain(place).collect();
        for class in classes {
            let class = format!("ereport.fs.zfs.{class}");
            found.push(Found { class, details: details.clone(), at: clock.wall(loss.at) });
        }
    }
    found
}

/// What happened to scans and to the work of devices since the last call (`spa_event_notify`).
fn notices(spa: &Spa) -> Vec<Found> {
    let Some(live) = spa.writer() else { return Vec::new() };
    let (scans, works) = (live.take_scan_notices(), live.take_work_notices());
    if scans.is_empty() && works.is_empty() {
        return Vec::new();
    }
    let info = spa.tree().describe();
    let class = |what: &str| format!("sysevent.fs.zfs.{what}");
    let kind = |kind: &str| ("resilver_type".to_owned(), EventValue::Text(kind.to_owned()));
    let mut found = Vec::new();
    for notice in scans {
        let details = match notice.rebuilt {
            Some(top) => [described(&info, top.0), vec![kind("sequential")]].concat(),
            None if notice.what.starts_with("resilver") => vec![kind("healing")],
            None => Vec::new(),
        };
        found.push(Found { class: class(notice.what), details, at: notice.at });
    }
    for notice in works {
        let mut details = described(&info, notice.leaf.0);
        if let Some(path) = &notice.path {
            let path = String::from_utf8_lossy(path).into_owned();
            details.push(("vdev_path".to_owned(), EventValue::Text(path)));
        }
        found.push(Found { class: class(notice.what), details, at: notice.at });
    }
    found
}

/// A pool stopped writing (`zio_suspend`). One that is broken has its cause.
fn halted(spa: &Spa, halt: Halt) -> Found {
    let cause = halt.broken.map(|cause| ("cause".to_owned(), EventValue::Text(cause)));
    let details = failmode(spa).into_iter().chain(cause).collect();
    Found { class: "ereport.fs.zfs.io_failure".to_owned(), details, at: halt.at }
}

/// What a pool does when it can't go on, as reports tell it.
fn failmode(spa: &Spa) -> Option<(String, EventValue)> {
    let words = match spa.writer()?.failmode() {
        spa::engine::FailMode::Wait => "wait",
        spa::engine::FailMode::Continue => "continue",
        spa::engine::FailMode::Panic => "panic",
    };
    Some(("pool_failmode".to_owned(), EventValue::Text(words.to_owned())))
}

fn of(spa: &Spa, state: u64, context: Context) -> Of {
    Of { pool: spa.name().to_owned(), guid: spa.guid().0, state, context }
}

fn index<'a>(
    v: &'a VdevInfo,
    parent: Option<&'a VdevInfo>,
    into: &mut HashMap<u64, (&'a VdevInfo, Option<&'a VdevInfo>)>,
) {
    into.insert(v.guid.0, (v, parent));
    v.children.iter().for_each(|c| index(c, Some(v), into));
}

/// What an event tells of a vdev.
fn described(root: &VdevInfo, guid: u64) -> Vec<(String, EventValue)> {
    let mut vdevs = HashMap::new();
    index(root, None, &mut vdevs);
    let mut details = vec![("vdev_guid".to_owned(), EventValue::Number(guid))];
    if let Some((vdev, _)) = vdevs.get(&guid) {
        details.push(("vdev_state".to_owned(), EventValue::State(vdev.state as u64)));
        if let Some(path) = &vdev.path {
            let path = String::from_utf8_lossy(path).into_owned();
            details.push(("vdev_path".to_owned(), EventValue::Text(path)));
        }
    }
    details
}

/// A record of a history by the names that events have for its parts.
fn history_details(record: &Nvlist) -> Vec<(String, EventValue)> {
    const PARTS: [(&str, &str); 8] = [
        ("history hostname", "history_hostname"),
        ("dsname", "history_dsname"),
        ("history internal str", "history_internal_str"),
        ("internal_name", "history_internal_name"),
        ("dsid", "history_dsid"),
        ("history txg", "history_txg"),
        ("history time", "history_time"),
        ("history who", "history_who"),
    ];
    let value = |key: &str| match record.string(key) {
        Some(text) => Some(EventValue::Text(String::from_utf8_lossy(text).into_owned())),
        None => record.u64(key).map(EventValue::Number),
    };
    PARTS.iter().filter_map(|(key, name)| Some(((*name).to_owned(), value(key)?))).collect()
}

/// The class of a report of a device, and what it says.
fn told(
    spa: &Spa,
    report: &Report,
    vdev: &VdevInfo,
    parent: Option<&VdevInfo>,
) -> (&'static str, Vec<(String, EventValue)>) {
    use EventValue::{Number, State, Text};
    let mut all: Vec<(String, EventValue)> = Vec::new();
    let mut put = |name: &str, value| all.push((name.to_owned(), value));
    let path = vdev.path.as_deref().map(|p| String::from_utf8_lossy(p).into_owned());
    if let Trouble::State { before, now, aux } = report.what {
        put("vdev_guid", Number(vdev.guid.0));
        put("vdev_state", State(now as u64));
        if let Some(path) = path {
            put("vdev_path", Text(path));
        }
        put("vdev_laststate", State(before as u64));
        tracing::info!(pool = spa.name(), vdev = vdev.name, ?now, ?aux, "a device is in another state");
        return ("resource.fs.zfs.statechange", all);
    }
    all.extend(failmode(spa));
    let mut put = |name: &str, value| all.push((name.to_owned(), value));
    put("vdev_guid", Number(vdev.guid.0));
    put("vdev_type", Text(vdev.kind.name().to_owned()));
    if let Some(path) = path {
        put("vdev_path", Text(path));
    }
    put("vdev_ashift", Number(vdev.ashift.into()));
    put("vdev_read_errors", Number(report.charged.reads));
    put("vdev_write_errors", Number(report.charged.writes));
    put("vdev_cksum_errors", Number(report.charged.checksums));
    put("vdev_delays", Number(report.charged.slow));
    if let Some(parent) = parent {
        put("parent_guid", Number(parent.guid.0));
        put("parent_type", Text(parent.kind.name().to_owned()));
    }
    let (class, error, took) = match report.what {
        Trouble::Checksum => ("ereport.fs.zfs.checksum", ECKSUM, None),
        Trouble::Delay { took_ns } => ("ereport.fs.zfs.delay", 0, Some(took_ns)),
        Trouble::Deadman { for_ns } => ("ereport.fs.zfs.deadman", 0, Some(for_ns)),
        Trouble::Read | Trouble::Write | Trouble::Flush | Trouble::State { .. } => {
            let error = report.errno.and_then(|errno| u64::try_from(errno).ok());
            ("ereport.fs.zfs.io", error.unwrap_or(EIO), None)
        }
    };
    put("zio_err", Number(error));
    if let Some(took) = took {
        put("zio_delay", Number(took));
        put("zio_delta", Number(took));
    }
    if let Some((offset, size)) = report.range {
        put("zio_offset", Number(offset));
        put("zio_size", Number(size));
    }
    (class, all)
}

#[cfg(test)]
mod tests;
