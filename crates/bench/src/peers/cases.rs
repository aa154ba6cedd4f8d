//! The workloads and settings of a comparison.

use std::path::{Path, PathBuf};

/// The directories of images.
#[derive(Debug, Clone)]
pub struct Places {
    /// In memory.
    pub memory: PathBuf,
    /// On a disk.
    pub disk: PathBuf,
}

/// One workload with its settings, which are the same for both sides.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The title of its figures.
    pub(super) title: String,
    /// The group by which a command line selects it.
    pub(super) group: &'static str,
    /// The name of the workload in both programs.
    pub(super) work: &'static str,
    /// The directory of its images.
    pub(super) dir: PathBuf,
    /// Its settings, without the title.
    pub(super) knobs: Vec<String>,
    /// Whether it needs a mounted file system. Its peer is then zfs-fuse.
    pub(super) mounted: bool,
    /// The workload of ours that first creates images for both sides.
    pub(super) made_by: Option<&'static str>,
    /// Whether it runs only once, whatever the number of rounds, because it is so large.
    pub(super) once: bool,
}

/// How large the workloads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Enough to show that everything works.
    Smoke,
    /// A few minutes for a round.
    Normal,
    /// The largest objects: ten million cached blocks, and sixteen million blocks of a volume.
    Full,
}

/// All workloads for a machine with `cpus` processors.
pub(super) fn cases(places: &Places, scale: Scale, cpus: usize) -> Vec<Case> {
    let mut all = Vec::new();
    reads(&mut all, places, scale, cpus);
    storms(&mut all, places, scale);
    frees(&mut all, places, scale);
    overwrites(&mut all, places, scale);
    scrubs(&mut all, places, scale);
    sends(&mut all, places, scale);
    mounts(&mut all, places, scale, cpus);
    all
}

fn case(title: &str, group: &'static str, work: &'static str, dir: &Path, knobs: &[String]) -> Case {
    let (title, dir, knobs) = (title.to_owned(), dir.to_owned(), knobs.to_vec());
    Case { title, group, work, dir, knobs, mounted: false, made_by: None, once: false }
}

fn set(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name}={value}")
}

fn msecs(scale: Scale) -> String {
    set("msecs", if scale == Scale::Smoke { 100 } else { 1500 })
}

/// 1, 2, 4 and so on, up to twice the processors.
fn threads(cpus: usize) -> String {
    let mut all: Vec<usize> = (0..).map(|i| 1 << i).take_while(|n| *n < cpus * 2).collect();
    all.push(cpus * 2);
    set("threads", all.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
}

/// Reads of 32 objects, in two sizes. The peer keeps the small ones as dbufs. Of the large ones it
/// finds most only in its ARC.
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

/// Workloads with more blocks than this run once, and use the disk, as the cached blocks fill the
/// memory.
const MANY: u64 = 4 << 20;

fn frees(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    let counts: &[u64] = match scale {
        Scale::Smoke => &[1_000],
        Scale::Normal => &[10_000, 100_000, 1_000_000],
        Scale::Full => &[10_000, 100_000, 1_000_000, 10_000_000],
    };
    // One block of 512 bytes in each eight: sixteen million of them are a volume of 64 GiB.
    let sparse: &[u64] = match scale {
        Scale::Smoke => &[1_000],
        Scale::Normal => &[1 << 20],
        Scale::Full => &[1 << 20, 16 << 20],
    };
    let mut add = |work: &'static str, count: u64, stride: u64| {
        let (once, mb) = (count > MANY, (count >> 10) + 1024);
        let dir = if once { &places.disk } else { &places.memory };
        let mut knobs = vec![set("count", count), set("rs", 512), set("ashift", 9)];
        match stride {
            1 => knobs.push(set("size_mb", mb)),
            _ => knobs.extend([set("stride", stride), set("size_mb", mb * 2)]),
        }
        all.push(Case { once, ..case(&format!("{work}-{count}"), work, work, dir, &knobs) });
    };
    counts.iter().for_each(|count| add("free", *count, 1));
    sparse.iter().for_each(|count| add("unmap", *count, 8));
}

fn overwrites(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    for (title, rs) in [("overwrite-8k-in-128k", 128 << 10), ("overwrite-8k-in-8k", 8 << 10)] {
        let (mb, count) = if scale == Scale::Smoke { (16, 1_000) } else { (256, 30_000) };
        let knobs = [set("rs", rs), set("count", count), set("obj_mb", mb)];
        all.push(case(title, "overwrite", "overwrite", &places.memory, &knobs));
    }
}

/// Scrubs. Both sides import and scrub the same image.
fn scrubs(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    for (title, rs, disks) in
        [("scrub-128k", 128 << 10, 1), ("scrub-8k", 8 << 10, 1), ("scrub-128k-raidz2", 128 << 10, 6)]
    {
        let objs = if scale == Scale::Smoke { 2 } else { 64 };
        let size = if disks > 1 { 1024 } else { 4096 };
        let knobs =
            [set("rs", rs), set("objs", objs), set("obj_mb", 16), set("disks", disks), set("size_mb", size)];
        let made_by = Some("scrub-image");
        all.push(Case { made_by, ..case(title, "scrub", "scrub", &places.memory, &knobs) });
    }
}

/// Sends of 2 GiB to a pipe. Both sides import and send the same image.
fn sends(all: &mut Vec<Case>, places: &Places, scale: Scale) {
    for form in ["plain", "compressed", "raw"] {
        let objs = if scale == Scale::Smoke { 2 } else { 128 };
        let knobs = [set("rs", 128 << 10), set("objs", objs), set("obj_mb", 16), set("form", form)];
        let made_by = Some("send-image");
        let title = format!("send-{form}");
        all.push(Case { made_by, ..case(&title, "send", "send", &places.memory, &knobs) });
    }
}

fn mounts(all: &mut Vec<Case>, places: &Places, scale: Scale, cpus: usize) {
    let mut add = |title: &str, work, dir: &Path, knobs: &[String]| {
        all.push(Case { mounted: true, ..case(title, "mounts", work, dir, knobs) });
    };
    let mb = if scale == Scale::Smoke { 1 } else { 8 };
    let knobs = [threads(cpus), msecs(scale), set("obj_mb", mb)];
    add("fuse-read", "fio", &places.memory, &knobs);
    for (title, log) in [("mail", 0), ("mail-log-device", 1)] {
        add(title, "mail", &places.disk, &[set("threads", "1,16"), msecs(scale), set("log", log)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the peer's program has each workload, and each setting that a case uses.
    #[test]
    fn the_peer_knows_what_it_is_asked() {
        let peer = include_str!("../../peers/libzpool.c");
        let places = Places { memory: "/m".into(), disk: "/d".into() };
        for scale in [Scale::Smoke, Scale::Normal, Scale::Full] {
            let all = cases(&places, scale, 2);
            for case in all.iter().filter(|c| !c.mounted) {
                assert!(peer.contains(&format!("{{ \"{}\", work_", case.work)), "{case:?}");
                assert!(case.made_by.is_none() || peer.contains("strcmp(arg, \"image\")"));
                assert!(case.work != "send" || peer.contains("strcmp(arg, \"form\")"));
                for (name, _) in case.knobs.iter().filter_map(|k| k.split_once('=')) {
                    let known =
                        ["threads", "form"].contains(&name) || peer.contains(&format!("{{ \"{name}\", &"));
                    assert!(known, "{}: {name}", case.title);
                }
            }
            let titles: std::collections::BTreeSet<&str> = all.iter().map(|c| c.title.as_str()).collect();
            assert_eq!(titles.len(), all.len());
        }
        assert_eq!(threads(2), "threads=1,2,4");
        assert_eq!(threads(6), "threads=1,2,4,8,12");
    }

    /// Goal: each case names a workload of the table, of the right kind, and uses only its
    /// settings.
    #[test]
    fn cases_are_known() {
        let places = Places { memory: "/m".into(), disk: "/d".into() };
        for scale in [Scale::Smoke, Scale::Normal, Scale::Full] {
            for case in cases(&places, scale, 2) {
                let work = super::super::Workload::by_name(case.work).unwrap();
                assert_eq!(work.mounts(), case.mounted, "{case:?}");
                super::super::Knobs::parse(work.knobs(), &case.knobs).unwrap();
            }
        }
    }
}
