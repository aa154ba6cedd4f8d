//! Events of pools (`zpool events`).
//!
//! # Theory
//! A ring holds the newest events of all pools. A reader remembers the number of the last event
//! that it has seen.
//!
//! | event | source |
//! |---|---|
//! | the daemon changes a pool | the daemon enters it under the class of OpenZFS's kernel module |
//! | the pool acts by itself, or records history | the engine keeps it |
//! | something goes wrong | the devices and the pipeline keep it |
//!
//! What the others keep is collected after an operation, and when a client reads events. It is
//! collected all the time if programs run at events (`zedlets`).
//!
//! # Absent
//! The stage of an I/O in the pipeline (`zio_stage`). A report of a device has only the position on
//! it, and a report of a block has its bookmark.
//!
//! # See
//! OpenZFS's `fm.c`, `zfs_fm.c` and `spa_history_log_notify`.

pub(crate) mod zedlets;

use crate::events::zedlets::Zedlets;
use crate::pools::halts::Halt;
use crate::pools::imported::Imported;
use api::{Event, EventPage, EventQuery, EventValue, Nameless};
use observe::lock::Mutex;
use ondisk::Nvlist;
use poolhouse::tunables::ZEVENT_LEN_MAX;
use spa::Spa;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vdev::{Report, Trouble, VdevInfo, VdevState};
use zio::Why;

/// `ECKSUM` and `EIO`, by the kernel module's numbers.
const ECKSUM: u64 = 52;
const EIO: u64 = 5;

/// The use of a pool (`spa_load_state_t`), as `pool_context` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// It is open (`SPA_LOAD_NONE`).
    None = 0,
    /// It is being imported (`SPA_LOAD_IMPORT`).
    Import = 2,
    /// It is being created (`SPA_LOAD_CREATE`).
    Create = 6,
}

/// The newest events of all pools (`zevent_list`).
pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// The programs that run at each event.
    zedlets: OnceLock<Arc<Zedlets>>,
}

impl Default for Events {
    fn default() -> Self {
        // Tells this daemon's events from those of others. It is never 0, which is a client's value
        // at first.
        let teller = RandomState::new().hash_one(std::process::id()) | 1;
        Self { ring: Mutex::new(Ring { teller, ..Ring::default() }), zedlets: OnceLock::new() }
    }
}

#[derive(Default)]
struct Ring {
    /// Devices whose removed files have been reported: pool and device.
    nameless: BTreeSet<(u64, u64)>,
    teller: u64,
    last: u64,
    kept: VecDeque<Event>,
}

/// What all events of a pool have in common.
struct Of {
    pool: String,
    guid: u64,
    /// `pool_state_t`.
    state: u64,
    context: Context,
}

/// An event before it has a number.
struct Found {
    class: String,
    details: Vec<(String, EventValue)>,
    at: SystemTime,
}

/// The present time by both clocks.
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
    /// The events after a number. With `clear`, none, and the ring becomes empty
    /// (`zfs_zevent_next`, `zfs_zevent_drain_all`).
    pub(crate) fn tell(&self, query: &EventQuery, pools: &[Arc<Imported>]) -> EventPage {
        self.gather(pools);
        let ring = &mut *self.ring.lock();
        if query.clear {
            let cleared = ring.kept.len() as u64;
            ring.kept.clear();
            return EventPage { cleared, teller: ring.teller, ..EventPage::default() };
        }
        // A client that has seen the last event of another daemon has seen none of these.
        let after = if query.teller == ring.teller { query.after } else { 0 };
        let events: Vec<Event> = ring.kept.iter().filter(|e| e.eid > after).cloned().collect();
        let first = events.first().map_or(ring.last + 1, |e| e.eid);
        // A client that asks for the first time has missed nothing.
        let dropped = if after == 0 { 0 } else { first.saturating_sub(after + 1) };
        EventPage { events, dropped, cleared: 0, teller: ring.teller }
    }

    /// Collects what the engines of all pools have kept since the last call.
    pub(crate) fn gather(&self, pools: &[Arc<Imported>]) {
        for pool in pools {
            self.ask(pool, Context::None);
        }
    }

    /// Passes each event to these programs from now on. Only the first call has an effect.
    pub(crate) fn run(&self, zedlets: Arc<Zedlets>) {
        self.zedlets.get_or_init(|| zedlets);
    }

    /// The programs that run at each event.
    pub(crate) fn zedlets(&self) -> Option<&Arc<Zedlets>> {
        self.zedlets.get()
    }

    /// Enters a change of a pool (`spa_event_notify`). `what` is the last part of its class.
    pub(crate) fn post(&self, imported: &Imported, what: &str, context: Context) {
        let spa = imported.pool.spa();
        self.enter(&of(spa, 0, context), &format!("sysevent.fs.zfs.{what}"), Vec::new(), SystemTime::now());
    }

    /// Enters removed files of a pool's devices, each once (`zfs_post_remove`).
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

    /// Enters the export or destruction of a pool.
    pub(crate) fn gone(&self, pool: &str, guid: u64, destroyed: bool) {
        let (what, state) = if destroyed { ("pool_destroy", 2) } else { ("pool_export", 1) };
        let of = Of { pool: pool.to_owned(), guid, state, context: Context::None };
        for what in [what, "config_sync"] {
            self.enter(&of, &format!("sysevent.fs.zfs.{what}"), Vec::new(), SystemTime::now());
        }
        let ring = &mut *self.ring.lock();
        ring.nameless.retain(|(pool, _)| *pool != guid);
    }

    /// Collects what a pool's engine has kept since the last call.
    ///
    /// The order is that of the causes: its history, then scans and devices, then failures.
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
        let most = usize::try_from(ZEVENT_LEN_MAX.get()).unwrap_or(usize::MAX).max(1);
        while ring.kept.len() >= most {
            ring.kept.pop_front();
        }
        let event = Event { eid, time, class: class.to_owned(), pool: of.pool.clone(), details };
        // This happens under the lock, so that the programs get events in the order of their
        // numbers. It waits for nothing.
        if let Some(zedlets) = self.zedlets.get() {
            zedlets.put(&event);
        }
        ring.kept.push_back(event);
    }
}

/// The failures of devices since the last call (`zfs_ereport_post`).
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

/// The blocks that no copy could give since the last call.
///
/// A block that fails the authentication with its dataset's key is reported twice, as in OpenZFS.
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

/// What happened to scans and to background work of devices since the last call
/// (`spa_event_notify`).
fn notices(spa: &Spa) -> Vec<Found> {
    let Some(live) = spa.writer() else { return Vec::new() };
    let (scans, works) = (live.scans().take_notices(), live.initialize_trim().take_notices());
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

/// The event that a pool stopped writing (`zio_suspend`). A broken pool also has its cause.
fn halted(spa: &Spa, halt: Halt) -> Found {
    let cause = halt.broken.map(|cause| ("cause".to_owned(), EventValue::Text(cause)));
    let details = failmode(spa).into_iter().chain(cause).collect();
    Found { class: "ereport.fs.zfs.io_failure".to_owned(), details, at: halt.at }
}

/// What a pool does when it can't continue (`failmode`), as reports show it.
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

/// The parts of an event that describe a vdev.
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

/// A history record, with the names that events have for its parts.
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

/// The class of a device's report, and its details.
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
