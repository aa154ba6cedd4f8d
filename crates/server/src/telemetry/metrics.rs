//! Metrics of pools, devices and the cache for Prometheus (OpenMetrics 1.0).
//!
//! # Theory
//! A page has no state of its own. It is made from the answers of [`Requests`] when it is
//! requested, so a command makes the same page as the daemon.
//!
//! | metric | meaning |
//! |---|---|
//! | hard errors of a device | a read or write failed |
//! | soft errors of a device | redundancy repaired a wrong checksum, or an answer was late |
//! | service times | the histograms of `zpool iostat -w` |
//!
//! The errors are the columns of `zpool status`. `docs/reference/metrics.md` lists all metrics, and
//! `metrics/page.txt` is a page with each of them, which `scripts/check-grafana.py` reads.

mod devices;
mod kstats;
pub(crate) mod listener;
mod ops;
mod waits;

use crate::telemetry::kstats::COMMITS;
use api::{
    Error, IoStat, Kstat, KstatValue, Pool, PoolQuery, Requests, ScanFunc, ScanState, TopLock, TopPool,
    TxgTotals, Vdev, VdevStat, VdevState,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// The content type of a page (RFC 9110's `Content-Type`).
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page. A pool that disappears meanwhile is not on it.
///
/// # Errors
/// Those of [`Requests::pool_names`] and [`Requests::kstats`].
pub fn page(service: &(impl Requests + ?Sized)) -> Result<String, Error> {
    let query = PoolQuery { io: true, ..PoolQuery::default() };
    let mut pools = Vec::new();
    for name in service.pool_names()? {
        match service.pool(&name, &query) {
            Ok(pool) => pools.push(pool),
            Err(error) => tracing::debug!(?error, "a pool without metrics"),
        }
    }
    let mut registry = Registry::default();
    let [ops, datasets] =
        ops::queries().map(|query| known(service.top(&query)).map(|top| top.pools).unwrap_or_default());
    let locks = known(service.top(&waits::query())).map(|top| top.locks).unwrap_or_default();
    let txgs = known(service.txgs(&None)).map(|txgs| txgs.totals).unwrap_or_default();
    let page = Page { pools, kstats: service.kstats()?, ops, datasets, locks, txgs };
    registry.register_collector(Box::new(page));
    let mut text = String::new();
    let written = prometheus_client::encoding::text::encode(&mut text, &registry);
    written.expect("a string takes whatever is written");
    Ok(text)
}

/// An answer that a daemon of another version may not know.
fn known<T>(answer: Result<T, Error>) -> Option<T> {
    answer.inspect_err(|error| tracing::debug!(?error, "a part of the metrics is missing")).ok()
}

/// The contents of a page.
#[derive(Debug, Default)]
struct Page {
    pools: Vec<Pool>,
    kstats: Vec<Kstat>,
    ops: Vec<TopPool>,
    datasets: Vec<TopPool>,
    locks: Vec<TopLock>,
    txgs: Vec<TxgTotals>,
}

impl Collector for Page {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        self.of_pools(&mut to)?;
        self.of_scans(&mut to)?;
        self.of_vdevs(&mut to)?;
        self.service_times(&mut to)?;
        devices::encode(&mut to, &self.pools)?;
        self.commits(&mut to)?;
        ops::encode(&mut to, &self.ops, &self.datasets)?;
        waits::encode(&mut to, &self.txgs, &self.locks)?;
        kstats::encode(&mut to, &self.kstats)
    }
}

/// The name and value of each label.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A metric: its name, description and unit, and the function that reads it.
struct Told<T> {
    name: &'static str,
    help: &'static str,
    bytes: bool,
    rises: bool,
    of: fn(&T) -> u64,
}

/// A counter.
const fn counter<T>(name: &'static str, help: &'static str, of: fn(&T) -> u64) -> Told<T> {
    Told { name, help, bytes: false, rises: true, of }
}

/// A gauge.
const fn gauge<T>(name: &'static str, help: &'static str, of: fn(&T) -> u64) -> Told<T> {
    Told { name, help, bytes: false, rises: false, of }
}

/// A gauge in bytes.
const fn size<T>(name: &'static str, help: &'static str, of: fn(&T) -> u64) -> Told<T> {
    Told { name, help, bytes: true, rises: false, of }
}

/// A counter in bytes.
const fn bytes<T>(name: &'static str, help: &'static str, of: fn(&T) -> u64) -> Told<T> {
    Told { name, help, bytes: true, rises: true, of }
}

impl<T> Told<T> {
    fn encode<'a>(
        &self,
        to: &mut DescriptorEncoder,
        rows: impl Iterator<Item = (&'a T, Labels<'a>)>,
    ) -> fmt::Result
    where
        T: 'a,
    {
        let kind = if self.rises { MetricType::Counter } else { MetricType::Gauge };
        let mut family =
            to.encode_descriptor(self.name, self.help, self.bytes.then_some(&Unit::Bytes), kind)?;
        for (row, labels) in rows {
            let (value, mut one) = ((self.of)(row), family.encode_family(&labels)?);
            if self.rises {
                one.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            } else {
                one.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

const OF_POOL: [Told<Pool>; 4] = [
    gauge("poolhouse_pool_txg", "The last transaction group", |p| p.txg),
    gauge("poolhouse_pool_known_errors", "Damaged objects known", |p| p.error_count.unwrap_or(0)),
    gauge("poolhouse_pool_suspended", "1 if its devices fail and it waits", |p| {
        u64::from(p.suspended.is_some())
    }),
    gauge("poolhouse_pool_silent", "1 if its devices don't answer; the rest is what was known", |p| {
        u64::from(p.stale)
    }),
];

const OF_SCAN: [Told<Pool>; 5] = [
    gauge("poolhouse_scan_running", "1 while the pool is scrubbed or resilvered", |p| {
        p.scan.as_ref().map_or(0, |scan| u64::from(scan.state == ScanState::Scanning))
    }),
    size("poolhouse_scan_to_examine", "What the last or current scan has to look at", |p| {
        p.scan.as_ref().map_or(0, |scan| scan.to_examine)
    }),
    size("poolhouse_scan_issued", "What it has read", |p| p.scan.as_ref().map_or(0, |scan| scan.issued)),
    size("poolhouse_scan_repaired", "What it has written anew", |p| {
        p.scan.as_ref().map_or(0, |scan| scan.processed)
    }),
    gauge("poolhouse_scan_errors", "Blocks that it could not repair", |p| {
        p.scan.as_ref().map_or(0, |scan| scan.errors)
    }),
];

/// Indexes of [`VdevStat::ops`].
const READ: usize = 1;
const WRITE: usize = 2;
const TRIM: usize = 5;

const OF_VDEV: [Told<VdevStat>; 12] = [
    size("poolhouse_vdev_allocated", "Space allocated", |s| s.alloc),
    size("poolhouse_vdev_size", "Space in all; 0 below a top-level vdev", |s| s.space),
    counter("poolhouse_vdev_reads", "Reads", |s| s.ops[READ]),
    counter("poolhouse_vdev_writes", "Writes", |s| s.ops[WRITE]),
    counter("poolhouse_vdev_trims", "Discards", |s| s.ops[TRIM]),
    bytes("poolhouse_vdev_read", "What was read", |s| s.bytes[READ]),
    bytes("poolhouse_vdev_written", "What was written", |s| s.bytes[WRITE]),
    counter("poolhouse_vdev_read_errors", "Reads that failed, since zpool clear", |s| s.read_errors),
    counter("poolhouse_vdev_write_errors", "Writes that failed, since zpool clear", |s| s.write_errors),
    counter("poolhouse_vdev_checksum_errors", "Wrong checksums, since zpool clear", |s| s.checksum_errors),
    counter("poolhouse_vdev_slow_ios", "What took longer than zio_slow_io_ms, since zpool clear", |s| {
        s.slow_ios
    }),
    bytes("poolhouse_vdev_self_healed", "What was written anew because it was wrong", |s| s.self_healed),
];

/// All vdevs of the pools, with their spares and cache devices, each with its labels.
fn vdevs(pools: &[Pool]) -> Vec<(&Vdev, [(&'static str, String); 4])> {
    let mut found = Vec::new();
    for pool in pools {
        let mut todo: Vec<(&Vdev, &str)> = vec![(&pool.root, "root")];
        let own = |vdevs: &'static str| move |vdev| (vdev, vdevs);
        todo.extend(pool.spares.iter().map(own("spare")));
        todo.extend(pool.l2cache.iter().map(own("cache")));
        while let Some((vdev, role)) = todo.pop() {
            if vdev.is_hole {
                continue;
            }
            let path = vdev.path.clone().unwrap_or_default();
            let name = match path.rsplit('/').next() {
                _ if vdev.kind == "root" => pool.name.clone(),
                Some(last) if !last.is_empty() => last.to_owned(),
                _ => format!("{}-{}", vdev.kind, vdev.id),
            };
            let role = match vdev {
                Vdev { is_log: true, .. } => "log",
                Vdev { alloc_bias: Some(bias), .. } => class_of(bias),
                _ if role == "root" && vdev.kind != "root" => "data",
                _ => role,
            };
            todo.extend(vdev.children.iter().rev().map(|child| (child, role)));
            found.push((
                vdev,
                [
                    ("pool", pool.name.clone()),
                    ("vdev", escaped(&name)),
                    ("path", escaped(&path)),
                    ("role", role.to_owned()),
                ],
            ));
        }
    }
    found
}

/// A label's value with the escapes of the format, which the encoder does not add.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn class_of(bias: &str) -> &'static str {
    match bias {
        "special" => "special",
        "dedup" => "dedup",
        _ => "data",
    }
}

/// A state as in `zpool status`, in lower case.
fn state_of(state: VdevState) -> &'static str {
    match state {
        VdevState::Unknown => "unknown",
        VdevState::Closed | VdevState::Offline => "offline",
        VdevState::Removed => "removed",
        VdevState::CantOpen => "unavail",
        VdevState::Faulted => "faulted",
        VdevState::Degraded => "degraded",
        VdevState::Healthy => "online",
    }
}

fn name_of(scan: ScanFunc) -> &'static str {
    match scan {
        ScanFunc::Resilver => "resilver",
        _ => "scrub",
    }
}

/// The powers of two, in nanoseconds, of the lowest and highest bounds: 2 µs and 34 s.
const BOUNDS: std::ops::RangeInclusive<usize> = 10..=34;

/// A histogram in seconds: the upper bounds with their counts, the total count, and the sum.
///
/// Each duration counts as the middle of its power of two, as in `zpool iostat -l`.
fn seconds(histogram: &[u64]) -> (Vec<(f64, u64)>, u64, f64) {
    let from = |power: usize| 2_f64.powi(i32::try_from(power).unwrap_or(i32::MAX)) / 1e9;
    let sum = histogram.iter().enumerate().fold(0.0, |sum, (power, n)| sum + from(power) * 1.5 * *n as f64);
    let below = |power: usize| histogram.iter().take(power).sum::<u64>();
    let bound = |power| {
        let low = if power == *BOUNDS.start() { 0 } else { below(power) };
        (from(power + 1), below(power + 1) - low)
    };
    let mut buckets: Vec<_> = BOUNDS.map(bound).collect();
    let all = below(histogram.len());
    buckets.push((f64::MAX, all - below(BOUNDS.end() + 1)));
    (buckets, all, sum)
}

impl Page {
    fn of_pools(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        for told in &OF_POOL {
            told.encode(to, self.pools.iter().map(|pool| (pool, vec![("pool", pool.name.as_str())])))?;
        }
        Ok(())
    }

    fn of_scans(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        for told in &OF_SCAN {
            let rows = self.pools.iter().filter_map(|pool| {
                let what = name_of(pool.scan.as_ref()?.func);
                Some((pool, vec![("pool", pool.name.as_str()), ("scan", what)]))
            });
            told.encode(to, rows)?;
        }
        self.ends_of_scans(to)
    }

    /// When scans ended; none of a scan that is under way, or was canceled.
    fn ends_of_scans(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let (name, help) = ("poolhouse_scan_end_timestamp", "When the last scan ended, since 1970");
        let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for pool in &self.pools {
            let Some(scan) = pool.scan.as_ref().filter(|scan| scan.state == ScanState::Finished) else {
                continue;
            };
            let labels = [("pool", pool.name.as_str()), ("scan", name_of(scan.func))];
            family.encode_family(&labels)?.encode_gauge(&scan.end_time)?;
        }
        Ok(())
    }

    fn of_vdevs(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let all = vdevs(&self.pools);
        let labels = |own: &'_ [(&'static str, String); 4]| -> Vec<(&'static str, String)> { own.to_vec() };
        let help = "1: the state that it is in";
        let mut family = to.encode_descriptor("poolhouse_vdev_state", help, None, MetricType::Gauge)?;
        for (vdev, own) in &all {
            let mut labels = labels(own);
            labels.push(("state", state_of(vdev.stat.state).to_owned()));
            family.encode_family(&labels)?.encode_gauge(&1_u64)?;
        }
        let help = "Fragmentation of the free space; of top-level vdevs where it is known";
        let mut family =
            to.encode_descriptor("poolhouse_vdev_fragmentation_ratio", help, None, MetricType::Gauge)?;
        for (vdev, own) in all.iter().filter(|(vdev, _)| vdev.stat.space > 0) {
            if let Some(percent) = vdev.stat.fragmentation {
                family.encode_family(own)?.encode_gauge(&(percent as f64 / 100.0))?;
            }
        }
        for told in &OF_VDEV {
            let rows = all.iter().map(|(vdev, own)| {
                (&vdev.stat, own.iter().map(|(name, value)| (*name, value.as_str())).collect())
            });
            told.encode(to, rows)?;
        }
        Ok(())
    }

    /// The service times of devices.
    fn service_times(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let all = vdevs(&self.pools);
        let io = || all.iter().filter_map(|(vdev, own)| Some((vdev.stat.io.as_deref()?, own)));
        let times = [
            ("poolhouse_vdev_read_service", "How long reads took", "read"),
            ("poolhouse_vdev_write_service", "How long writes took", "write"),
        ];
        for (name, help, of) in times {
            let kind = MetricType::Histogram;
            let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?;
            for (io, own) in io() {
                let (buckets, count, sum) = seconds(&io.histogram(of, |one| &one.disk));
                let mut one = family.encode_family(own)?;
                one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        let active: [Told<IoStat>; 3] = [
            gauge("poolhouse_vdev_reads_active", "Reads under way", |io| io.active("read")),
            gauge("poolhouse_vdev_writes_active", "Writes under way", |io| io.active("write")),
            gauge("poolhouse_vdev_trims_active", "Discards under way", |io| io.active("trim")),
        ];
        for told in &active {
            let labels = |own: &'_ [(&'static str, String); 4]| own.clone();
            let owned: Vec<_> = io().map(|(io, own)| (io, labels(own))).collect();
            let rows = owned
                .iter()
                .map(|(io, own)| (*io, own.iter().map(|(name, value)| (*name, value.as_str())).collect()));
            told.encode(to, rows)?;
        }
        Ok(())
    }

    /// The durations of commits in each pool.
    fn commits(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let (name, help) = ("poolhouse_zil_commit", "How long fsync, flushes and synchronous writes took");
        let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for kstat in self.kstats.iter().filter(|kstat| kstat.name == COMMITS) {
            let Some(pool) = &kstat.pool else { continue };
            let count = |(_, value): &(String, KstatValue)| match value {
                KstatValue::Number(n) => *n,
                KstatValue::Signed(_) | KstatValue::Text(_) => 0,
            };
            let powers: Vec<u64> = kstat.values.iter().map(count).collect();
            let (buckets, count, sum) = seconds(&powers);
            let labels = [("pool", pool.as_str())];
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
