//! `mount.zfs`: the helper of mount(8) for `mount -t zfs DATASET FOLDER` (`mount_zfs.c`).
//!
//! # Theory
//! It mounts only snapshots and file systems with `mountpoint=legacy`. `zfs mount` mounts the
//! others, because it knows their mountpoints. Exit codes are mount(8)'s.
//!
//! # Absent
//! `/etc/mtab`: it is a link to the kernel's own list wherever this runs.

use api::{DatasetKind as K, DatasetQuery, MountRequest, PropSelect, Reason, Requests};

use console::Clock;
use console::Out;
use console::getopt::{Found, Getopt, Opt};
use console::words;

const USAGE: i32 = 1;
const SYSERR: i32 = 2;
const BUSY: i32 = 128;

/// Whether an option of mount(8) is not meant for the file system.
fn is_for_others(option: &str) -> bool {
    matches!(
        option,
        "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" | "zfsutil" | "loop"
    ) || ["x-", "X-", "comment=", "mntpoint="].iter().any(|begin| option.starts_with(begin))
}

/// What the command line requests.
struct Wanted {
    name: String,
    target: String,
    fake: bool,
    verbose: bool,
    /// `zfs mount` runs the helper.
    by_zfs: bool,
    remount: bool,
    /// The options for the file system.
    options: Vec<String>,
}

impl Wanted {
    /// Reads the command line. `None` if it is wrong; the reason is printed.
    fn read(err: &mut Out, args: &[String]) -> Option<Self> {
        let (mut fake, mut verbose, mut options) = (false, false, Vec::<String>::new());
        let mut g = Getopt::new(args, "sfnvho:", &[]);
        for found in g.by_ref() {
            match found {
                Found::Is(Opt::Short('f'), _) => fake = true,
                Found::Is(Opt::Short('v'), _) => verbose = true,
                Found::Is(Opt::Short('o'), arg) => options.extend(arg.split(',').map(str::to_owned)),
                Found::Is(Opt::Short('s' | 'n'), _) => {}
                Found::Is(..) | Found::Invalid(_) | Found::Missing(_) => {
                    if let Found::Invalid(c) = found {
                        writeln!(err, "Invalid option '{c}'");
                    }
                    err.put("Usage: mount.zfs [-sfnvh] [-o options] <dataset> <mountpoint>\n");
                    return None;
                }
            }
        }
        let operands = g.operands();
        let [name, target] = &operands[..] else {
            err.put(match operands.len() {
                0 => "missing dataset argument\n",
                1 => "missing mountpoint argument\n",
                _ => "too many arguments\n",
            });
            return None;
        };
        let by_zfs = options.iter().any(|option| option == "zfsutil");
        let remount = options.iter().any(|option| option == "remount");
        options.retain(|option| !is_for_others(option));
        Some(Self { name: name.clone(), target: target.clone(), fake, verbose, by_zfs, remount, options })
    }

    /// The dataset's mountpoint. `None` if there is no such file system or snapshot.
    fn mountpoint(&self, service: &dyn Requests) -> Option<String> {
        let query = DatasetQuery {
            root: Some(self.name.clone()),
            depth: Some(0),
            kinds: vec![K::Filesystem, K::Snapshot],
            props: PropSelect::Named(vec!["mountpoint".to_owned()]),
            ..DatasetQuery::default()
        };
        let found = service.datasets(&query).ok()?.datasets.into_iter().next()?;
        match found.kind {
            // A snapshot has no mountpoint of its own.
            K::Snapshot if found.head == K::Filesystem => Some("legacy".to_owned()),
            _ => found.prop("mountpoint").map(|p| p.value(false).to_owned()),
        }
    }

    /// Whether mount(8) and `zfs mount` leave this dataset to each other. The reason is printed.
    fn is_for_another_command(&self, err: &mut Out, legacy: bool) -> bool {
        let (name, target) = (&self.name, &self.target);
        if self.by_zfs && legacy {
            writeln!(
                err,
                "filesystem '{name}' cannot be mounted using 'zfs mount'.\nUse 'zfs set mountpoint={target}' or 'mount -t zfs {name} {target}'.\n\
                 See zfs(8) for more information."
            );
            return true;
        }
        if !(self.by_zfs || self.remount || self.fake || legacy) {
            writeln!(
                err,
                "filesystem '{name}' cannot be mounted using 'mount'.\nUse 'zfs set mountpoint=legacy' or 'zfs mount {name}'.\n\
                 See zfs(8) for more information."
            );
            return true;
        }
        false
    }
}

/// Runs the helper. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Requests, args: &[String]) -> i32 {
    let Some(wanted) = Wanted::read(err, args) else { return USAGE };
    let (name, target) = (&wanted.name, &wanted.target);
    let Some(mountpoint) = wanted.mountpoint(service) else {
        writeln!(err, "filesystem '{name}' cannot be mounted, unable to open the dataset");
        return USAGE;
    };
    if wanted.is_for_another_command(err, mountpoint == "legacy") {
        return USAGE;
    }
    // The daemon has another working directory.
    let Ok(at) = std::fs::canonicalize(target) else {
        writeln!(err, "mount point '{target}' does not exist");
        return SYSERR;
    };
    if wanted.verbose {
        writeln!(
            out,
            "mount.zfs:\n  dataset:    \"{name}\"\n  mountpoint: \"{}\"\n  options:    \"{}\"",
            at.display(),
            wanted.options.join(",")
        );
    }
    if wanted.fake {
        return 0;
    }
    let request = MountRequest {
        datasets: vec![name.clone()],
        explicit: true,
        options: wanted.options.clone(),
        // A mount by mount(8) covers what the folder held.
        overlay: true,
        at: Some(at.display().to_string()).filter(|_| !wanted.remount),
        ..MountRequest::default()
    };
    let failed = match service.mount(&request) {
        Ok(report) => report.failures.into_iter().next().map(|f| f.error),
        Err(error) => Some(error),
    };
    match failed.map(|error| error.reason) {
        None => 0,
        Some(Reason::AlreadyMounted) => {
            writeln!(err, "filesystem '{name}' is already mounted");
            BUSY
        }
        Some(reason) => {
            let why = words::reason(&reason, &Clock::system());
            writeln!(err, "filesystem '{name}' can not be mounted: {why}");
            USAGE
        }
    }
}
