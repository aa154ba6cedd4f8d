//! One run: import, mounts, unmount and export.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{
    ExportRequest, ImportRequest, KstatValue, MountReport, MountRequest, Requests, ScanRequest,
    UnmountRequest,
};
use device::{Layer, Slow, SystemClock};
use server::service::LocalService;

use super::tree::{POOL, image};

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The time of a read, in microseconds.
    pub latency_us: u64,
    /// How many reads the device does at a time.
    pub in_flight: u32,
    /// Threads that visit the datasets, mount and unmount.
    pub threads: u32,
    /// Seconds of idling before the memory is measured. Meanwhile memory that only mounting needed
    /// returns to the system.
    pub idle_s: u64,
}

impl Case {
    /// The case as arguments of a process that measures it in a folder.
    pub(super) fn to_words(&self, room: &Path) -> Vec<OsString> {
        let numbers = [self.latency_us, self.in_flight.into(), self.threads.into(), self.idle_s];
        std::iter::once(room.into()).chain(numbers.map(|n| n.to_string().into())).collect()
    }

    /// Parses such arguments.
    pub(super) fn from_words(words: &[String]) -> Option<(Case, PathBuf)> {
        let [room, latency_us, in_flight, threads, idle_s] = words else { return None };
        let case = Case {
            latency_us: latency_us.parse().ok()?,
            in_flight: in_flight.parse().ok()?,
            threads: threads.parse().ok()?,
            idle_s: idle_s.parse().ok()?,
        };
        Some((case, PathBuf::from(room)))
    }

    /// The layer that delays the pool's devices.
    fn layer(&self) -> Layer {
        let (latency_ns, in_flight) = (self.latency_us * 1000, self.in_flight);
        if latency_ns == 0 {
            return Layer::default();
        }
        let clock = Arc::new(SystemClock::default());
        Layer::new(move |device| {
            Arc::new(Slow::new(device, clock.clone(), latency_ns, in_flight).with_quick_writes())
        })
    }
}

/// The measurements of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Took {
    /// Seconds from the devices to an imported pool, without the search for devices.
    pub import_s: f64,
    /// Seconds to read datasets and their properties.
    pub load_s: f64,
    /// Seconds to mount.
    pub mount_s: f64,
    /// The sum of these three.
    pub together_s: f64,
    /// CPU seconds for these three, of all threads.
    pub cpu_s: f64,
    /// Seconds to unmount everything.
    pub unmount_s: f64,
    /// Seconds to read datasets and their properties once more.
    pub load_warm_s: f64,
    /// Seconds to mount once more.
    pub mount_warm_s: f64,
    /// Seconds to export the pool with everything mounted.
    pub export_s: f64,
    /// How many file systems are mounted.
    pub mounts: f64,
    /// Growth of the process for each mount since before the import, in KiB, after idling.
    ///
    /// It covers the imported pool, cached blocks and the mounts.
    pub kib_per_mount: f64,
    /// How much of that growth is in the cache, for each mount, in KiB.
    pub cached_kib_per_mount: f64,
    /// Growth of the kernel's unreclaimable and per-processor memory for each mount, in KiB.
    ///
    /// It is the whole machine's memory, so nothing else may run meanwhile.
    pub kernel_kib_per_mount: f64,
    /// Open files of the process with everything mounted.
    pub open_files: f64,
    /// Threads of the process.
    pub threads: f64,
}

/// A figure by name.
type Field = (&'static str, fn(&mut Took) -> &mut f64);

const FIELDS: [Field; 15] = [
    ("import_s", |t| &mut t.import_s),
    ("load_s", |t| &mut t.load_s),
    ("mount_s", |t| &mut t.mount_s),
    ("together_s", |t| &mut t.together_s),
    ("cpu_s", |t| &mut t.cpu_s),
    ("unmount_s", |t| &mut t.unmount_s),
    ("load_warm_s", |t| &mut t.load_warm_s),
    ("mount_warm_s", |t| &mut t.mount_warm_s),
    ("export_s", |t| &mut t.export_s),
    ("mounts", |t| &mut t.mounts),
    ("kib_per_mount", |t| &mut t.kib_per_mount),
    ("cached_kib_per_mount", |t| &mut t.cached_kib_per_mount),
    ("kernel_kib_per_mount", |t| &mut t.kernel_kib_per_mount),
    ("open_files", |t| &mut t.open_files),
    ("process_threads", |t| &mut t.threads),
];

impl Took {
    /// All figures by name.
    pub fn named(mut self) -> Vec<(&'static str, f64)> {
        FIELDS.iter().map(|(name, field)| (*name, *field(&mut self))).collect()
    }

    /// The figures as text, one a line.
    pub(super) fn to_words(self) -> String {
        self.named().iter().map(|(name, value)| format!("{name} {value}\n")).collect()
    }

    /// Parses figures from such text.
    ///
    /// # Errors
    /// An [`anyhow::Error`]: a line is not a known name and a number.
    pub(super) fn from_words(text: &str) -> Result<Took> {
        let mut took = Took::default();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').context("a run said something else than figures")?;
            let (_, field) =
                FIELDS.iter().find(|(n, _)| *n == name).context("a run said an unknown figure")?;
            *field(&mut took) = value.parse().context("a run said something else than figures")?;
        }
        Ok(took)
    }

    /// The median of each figure.
    pub(super) fn median(rounds: &[Took]) -> Took {
        let mut took = Took::default();
        for (_, field) in FIELDS {
            let mut values: Vec<f64> = rounds.iter().map(|round| *field(&mut round.clone())).collect();
            values.sort_by(f64::total_cmp);
            *field(&mut took) = values.get(values.len() / 2).copied().unwrap_or_default();
        }
        took
    }
}

fn seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let begun = Instant::now();
    Ok((work()?, begun.elapsed().as_secs_f64()))
}

/// Turns an error of the API into text.
fn said<T>(done: Result<T, api::Error>, what: &str) -> Result<T> {
    done.map_err(|error| anyhow::anyhow!("{what} '{}': {:?}", error.about, error.reason))
}

/// Imports the pool in a folder, mounts everything, unmounts it, mounts it again, and exports it.
///
/// # Errors
/// An [`anyhow::Error`] whose text names the cause:
///
/// * the pool in the folder can't be found, imported or exported;
/// * a file system can't be mounted or unmounted;
/// * the daemon's counters or a file in `/proc` can't be read.
pub fn once(room: &Path, case: &Case) -> Result<Took> {
    server::inherited::raise_limits();
    let service = LocalService::new().with_layer(case.layer()).in_process();
    let mut took = Took::default();
    let threads = Some(case.threads);
    let scan = ScanRequest { paths: vec![image(room)], ..ScanRequest::default() };
    let found = said(service.scan(&scan), "look for")?;
    let candidate = found.pools.first().context("the pool is not there")?;
    let altroot = room.join("mnt").display().to_string();
    let import = ImportRequest {
        guid: candidate.pool.guid,
        scan,
        props: vec![("altroot".into(), altroot), ("cachefile".into(), "none".into())],
        force: true,
        seen: candidate.seen,
        threads,
        ..ImportRequest::default()
    };
    let cpu = cpu_seconds()?;
    let (kib, kernel) = (status("VmRSS:")?, kernel_kib()?);
    let (_, import_s) = seconds(|| said(service.import(&import), "import"))?;
    took.import_s = import_s;
    let (report, s) = seconds(|| mount(&service, threads))?;
    took.together_s = import_s + s;
    took.cpu_s = cpu_seconds()? - cpu;
    (took.load_s, took.mount_s) = (report.load_ms as f64 / 1e3, report.mount_ms as f64 / 1e3);
    took.mounts = report.mounted as f64;
    std::thread::sleep(Duration::from_secs(case.idle_s));
    took.kib_per_mount = (status("VmRSS:")? - kib) / took.mounts;
    took.cached_kib_per_mount = cached_kib(&service)? / took.mounts;
    took.kernel_kib_per_mount = (kernel_kib()? - kernel) / took.mounts;
    took.open_files = std::fs::read_dir("/proc/self/fd")?.count() as f64;
    took.threads = status("Threads:")?;
    let unmount = UnmountRequest { threads, ..UnmountRequest::default() };
    let (gone, s) = seconds(|| said(service.unmount(&unmount), "unmount"))?;
    ensure!(gone.failures.is_empty(), "not unmounted: {:?}", gone.failures);
    took.unmount_s = s;
    let again = mount(&service, threads)?;
    (took.load_warm_s, took.mount_warm_s) = (again.load_ms as f64 / 1e3, again.mount_ms as f64 / 1e3);
    let export = ExportRequest { name: POOL.into(), threads, ..ExportRequest::default() };
    took.export_s = seconds(|| said(service.export(&export), "export"))?.1;
    Ok(took)
}

fn mount(service: &dyn Requests, threads: Option<u32>) -> Result<MountReport> {
    let request = MountRequest { threads, ..MountRequest::default() };
    let report = said(service.mount(&request), "mount")?;
    let failed = report.failures.first().map(|f| format!("'{}': {:?}", f.name, f.error.reason));
    ensure!(failed.is_none() && report.mounted > 0, "not mounted: {}", failed.unwrap_or_default());
    Ok(report)
}

/// What the caches of all pools hold, in KiB.
fn cached_kib(service: &dyn Requests) -> Result<f64> {
    let kstats = said(service.kstats(), "count")?;
    let arc =
        kstats.into_iter().find(|kstat| kstat.name == "arcstats").context("nothing counts the cache")?;
    let size = arc.values.into_iter().find(|(name, _)| name == "size");
    match size {
        Some((_, KstatValue::Number(bytes))) => Ok(bytes as f64 / 1024.0),
        _ => anyhow::bail!("the cache does not say what it holds"),
    }
}

/// A number from the system's status of this process.
fn status(field: &str) -> Result<f64> {
    number("/proc/self/status", field)
}

/// The kernel memory that can't be reclaimed, in KiB.
fn kernel_kib() -> Result<f64> {
    Ok(number("/proc/meminfo", "SUnreclaim:")? + number("/proc/meminfo", "Percpu:")?)
}

fn number(file: &str, field: &str) -> Result<f64> {
    let text = std::fs::read_to_string(file)?;
    let value =
        text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok());
    value.with_context(|| format!("{file} lacks {field}"))
}

/// CPU seconds of this process.
fn cpu_seconds() -> Result<f64> {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The program's name may hold any character, so fields count from the parenthesis that ends it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>().context("/proc/self/stat")? / TICKS)
}
