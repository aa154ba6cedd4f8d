//! What happened to pools, for whoever wants to know (`zpool events`).
//!
//! # Theory
//! A ring holds the newest events of all pools; who reads it remembers the number of the last one that it has seen. What the daemon does to a pool it
//! enters itself, under the classes that OpenZFS's kernel module posts; what operations on datasets did is taken from the pool's history
//! after each of them; what went wrong on devices is taken from the vdevs, which keep it, when somebody asks: who runs something at events (`zedlets`) asks all the time.
//!
//! # Absent
//! The state of an I/O in the pipeline (`zio_stage`, `zio_objset`): a report of a device knows the place on it alone.
//!
//! # See
//! OpenZFS `fm.c`, `zfs_fm.c`, `spa_history_log_notify`.

use crate::api::{Event, EventPage, EventQuery, EventValue, Nameless};
use crate::pools::Imported;
use crate::zedlets::Zedlets;
use ondisk::Nvlist;
use parking_lot::Mutex;
use spa::Spa;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vdev::{Report, Trouble, VdevInfo, VdevState};

/// Events that are kept (`zfs_zevent_len_max`).
pub(crate) static LEN_MAX: observe::Tunable = observe::Tunable::new(512);
/// Records of a history that are taken at once, bytes; what is more is not told.
const HISTORY_MAX: u64 = 1 << 20;

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
    /// Where the history of each pool ends that has been told, by the pool's guid.
    told: HashMap<u64, u64>,
}

/// What all events of a pool say of it.
struct Of {
    pool: String,
    guid: u64,
    /// `pool_state_t`.
    state: u64,
    context: Context,
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
            self.reports(pool.pool.spa());
            self.notices(pool.pool.spa());
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
        ring.told.remove(&guid);
        ring.nameless.retain(|(pool, _)| *pool != guid);
    }

    /// What operations did since the last call, by the pool's history. What it held before the first one is not told, unless the
    /// pool is new.
    pub(crate) fn history(&self, imported: &Imported, context: Context) {
        let spa = imported.pool.spa();
        // Before the pool may go.
        self.notices(spa);
        let guid = spa.guid().0;
        let records = loop {
            let told = self.ring.lock().told.get(&guid).copied();
            let from = told.or((context == Context::Create).then_some(0));
            let (records, end) = match spa.read(|| history_from(spa, from)) {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!(pool = spa.name(), %error, "its history can't be told as events");
                    return;
                }
            };
            let ring = &mut *self.ring.lock();
            if ring.told.get(&guid).copied() == told {
                ring.told.insert(guid, end);
                break records;
            }
            // Another operation ended meanwhile, and these were told with it.
        };
        let of = of(spa, 0, context);
        for record in records.iter().filter(|r| r.get("internal_name").is_some()) {
            let details = history_details(record);
            self.enter(&of, "sysevent.fs.zfs.history_event", details, SystemTime::now());
        }
    }

    /// What went wrong on devices since the last call.
    fn reports(&self, spa: &Spa) {
        let tree = spa.tree();
        let (reports, lost) = tree.take_reports();
        if lost > 0 {
            tracing::warn!(pool = spa.name(), lost, "more went wrong on its devices than is told");
        }
        if reports.is_empty() {
            return;
        }
        let (now, wall) = (Instant::now(), SystemTime::now());
        let info = tree.describe();
        let mut vdevs = HashMap::new();
        index(&info, None, &mut vdevs);
        let of = of(spa, 0, Context::None);
        for (guid, report) in &reports {
            let Some((vdev, parent)) = vdevs.get(&guid.0) else { continue };
            let (class, details) = told(spa, &of, report, vdev, *parent);
            let when = wall.checked_sub(now.saturating_duration_since(report.at)).unwrap_or(wall);
            if matches!(report.what, Trouble::State { now: VdevState::Removed, .. }) {
                self.enter(&of, "resource.fs.zfs.removed", details.clone(), when);
            }
            self.enter(&of, class, details, when);
        }
    }

    /// What happened to scans and to the work of devices since the last call (`spa_event_notify`).
    fn notices(&self, spa: &Spa) {
        for notice in spa.writer().map(|live| live.take_scan_notices()).unwrap_or_default() {
            let class = format!("sysevent.fs.zfs.{}", notice.what);
            let kind = |kind: &str| ("resilver_type".to_owned(), EventValue::Text(kind.to_owned()));
            let details = match notice.rebuilt {
                Some(top) => [described(&spa.tree().describe(), top.0), vec![kind("sequential")]].concat(),
                None if notice.what.starts_with("resilver") => vec![kind("healing")],
                None => Vec::new(),
            };
            self.enter(&of(spa, 0, Context::None), &class, details, notice.at);
        }
        let notices = spa.writer().map(|live| live.take_work_notices()).unwrap_or_default();
        if notices.is_empty() {
            return;
        }
        let info = spa.tree().describe();
        for notice in notices {
            let details = described(&info, notice.leaf.0);
            let class = format!("sysevent.fs.zfs.{}", notice.what);
            self.enter(&of(spa, 0, Context::None), &class, details, notice.at);
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

/// What a pool's history holds from a place on, and where it ends; without a place only that.
fn history_from(spa: &Spa, from: Option<u64>) -> pool::Result<(Vec<Nvlist>, u64)> {
    let Some(mut all) = spa.mos().history_from(from.unwrap_or(u64::MAX))? else {
        return Ok((Vec::new(), 0));
    };
    let end = all.phys().eof;
    let mut records = Vec::new();
    if from.is_some_and(|from| end.saturating_sub(from) <= HISTORY_MAX) {
        for record in all.by_ref() {
            records.push(record?);
        }
    }
    Ok((records, end.max(all.position().min(end))))
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
    of: &Of,
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
        tracing::info!(pool = of.pool, vdev = vdev.name, ?now, ?aux, "a device is in another state");
        return ("resource.fs.zfs.statechange", all);
    }
    if let Some(live) = spa.writer() {
        let words = match live.failmode() {
            spa::engine::FailMode::Wait => "wait",
            spa::engine::FailMode::Continue => "continue",
            spa::engine::FailMode::Panic => "panic",
        };
        put("pool_failmode", Text(words.to_owned()));
    }
    put("vdev_guid", Number(vdev.guid.0));
    put("vdev_type", Text(vdev.kind.name().to_owned()));
    if let Some(path) = path {
        put("vdev_path", Text(path));
    }
    put("vdev_ashift", Number(vdev.ashift.into()));
    put("vdev_read_errors", Number(vdev.stats.read_errors));
    put("vdev_write_errors", Number(vdev.stats.write_errors));
    put("vdev_cksum_errors", Number(vdev.stats.checksum_errors));
    put("vdev_delays", Number(vdev.stats.slow_ios));
    if let Some(parent) = parent {
        put("parent_guid", Number(parent.guid.0));
        put("parent_type", Text(parent.kind.name().to_owned()));
    }
    // `ECKSUM` and `EIO`, as the kernel module numbers them.
    let (class, error, took) = match report.what {
        Trouble::Checksum => ("ereport.fs.zfs.checksum", 52, None),
        Trouble::Delay { took_ns } => ("ereport.fs.zfs.delay", 0, Some(took_ns)),
        Trouble::Deadman { for_ns } => ("ereport.fs.zfs.deadman", 0, Some(for_ns)),
        Trouble::Read | Trouble::Write | Trouble::Flush | Trouble::State { .. } => {
            ("ereport.fs.zfs.io", 5, None)
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
