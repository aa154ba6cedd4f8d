//! What is asked of whom.

use std::path::{Path, PathBuf};

/// Where images lie.
#[derive(Debug, Clone)]
pub struct Places {
    /// In memory.
    pub memory: PathBuf,
    /// On a disk.
    pub disk: PathBuf,
}

/// One workload with its settings, which both sides get.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// What its figures are called.
    pub(super) title: String,
    /// The group that a command line asks for.
    pub(super) group: &'static str,
    /// The program's word for it.
    pub(super) work: &'static str,
    /// Where its images lie.
    pub(super) dir: PathBuf,
    /// Settings, without the title.
    pub(super) knobs: Vec<String>,
    /// Whether there is a peer for it.
    pub(super) has_peer: bool,
}

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Enough to see that everything works.
    Smoke,
    /// What a round of minutes takes.
    Normal,
    /// All that is promised of large objects: ten million cached blocks, and sixteen million of a volume.
    Full,
}

/// All workloads on `cpus` processors.
pub(super) fn cases(places: &Places, scale: Scale, cpus: usize) -> Vec<Case> {
    let mut all = Vec::new();
    reads(&mut all, places, scale, cpus);
    storms(&mut all, places, scale);
    frees(&mut all, places, scale);
    overwrites(&mut all, places, scale);
    all
}

fn case(title: &str, group: &'static str, work: &'static str, dir: &Path, knobs: &[String]) -> Case {
    let (title, dir, knobs) = (title.to_owned(), dir.to_owned(), knobs.to_vec());
    Case { title, group, work, dir, knobs, has_peer: true }
}

fn set(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name}={value}")
}

fn msecs(scale: Scale) -> String {
    set("msecs", if scale == Scale::Smoke { 100 } else { 1500 })
}

/// 1, 2, 4 and so on up to twice the processors.
fn threads(cpus: usize) -> String {
    let mut all: Vec<usize> = (0..).map(|i| 1 << i).take_while(|n| *n < cpus * 2).collect();
    all.push(cpus * 2);
    set("threads", all.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
}

/// 32 objects: few enough bytes that the peer keeps all of them as dbufs; and so many that it can't, and finds most in its cache.
fn reads(all: &mut Vec<Case>, places: &Places, scale: Scale, cpus: usize) {
    let small = scale == Scale::Smoke;
    for (title, mb) in [("cached-read", 8), ("cached-read-large", 32)] {
        let mb = if small { 1 } else { mb };
        let knobs = [threads(cpus), msecs(scale), set("obj_mb", mb)];
        all.push(case(title, "reads", "reads", &places.memory, &knobs));
    }
}

fn storms(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    let threads = set("threads", "1,8,64");
    for (title, dir, more) in [
        ("fsync-storm-memory", &places.memory, vec![]),
        ("fsync-storm-disk", &places.disk, vec![set("prefill", 1), set("size_mb", 3072)]),
        ("fsync-storm-5ms", &places.memory, vec![set("delay_us", 5000)]),
    ] {
        let mut knobs = vec![threads.clone(), msecs(scale)];
        if scale != Scale::Smoke {
            knobs.extend(more);
        } else if title.ends_with("5ms") {
            knobs.push(set("delay_us", 5000));
        }
        all.push(case(title, "storm", "storm", dir, &knobs));
    }
}

fn frees(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    let counts: &[u64] = match scale {
        Scale::Smoke => &[1_000],
        Scale::Normal => &[10_000, 100_000, 1_000_000],
        Scale::Full => &[10_000, 100_000, 1_000_000, 10_000_000],
    };
    for count in counts {
        let mb = (count >> 10) + 1024;
        let knobs = [set("count", count), set("rs", 512), set("ashift", 9), set("size_mb", mb)];
        all.push(case(&format!("free-{count}"), "free", "free", &places.memory, &knobs));
    }
    // One block of 512 B in each eight: sixteen million of them are a volume of 64 GiB.
    let count: u64 = match scale {
        Scale::Smoke => 1_000,
        Scale::Normal => 1 << 20,
        Scale::Full => 16 << 20,
    };
    let mb = (count >> 10) + 1024;
    let knobs =
        [set("count", count), set("stride", 8), set("rs", 512), set("ashift", 9), set("size_mb", mb * 2)];
    all.push(case(&format!("unmap-{count}"), "unmap", "unmap", &places.memory, &knobs));
}

fn overwrites(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    for (title, rs) in [("overwrite-8k-in-128k", 128 << 10), ("overwrite-8k-in-8k", 8 << 10)] {
        let (mb, count) = if scale == Scale::Smoke { (16, 1_000) } else { (256, 30_000) };
        let knobs = [set("rs", rs), set("count", count), set("obj_mb", mb)];
        all.push(case(title, "overwrite", "overwrite", &places.memory, &knobs));
    }
}
