//! `poolhouse doctor`: what this machine lacks, and how to get it.
//!
//! # Theory
//! Each finding is about one thing: it is there, or some feature lacks it, or little works without
//! it.
//!
//! The exit code is 1 only if something prevents all mounting, or the daemon. A machine without
//! `nbd` is healthy.
//!
//! # Absent
//! Changes to the machine.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use api::run_dir::{RunDir, RunDirError, choice};
use rustix::process::{Resource, geteuid, getrlimit};

use crate::daemon::Daemon;
use console::Out;

/// The owner that a file shows if its real owner is unknown in a user namespace (`overflowuid`).
const OVERFLOW_UID: u32 = 65_534;

/// The state of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is there.
    Well,
    /// It is missing, and a feature does not work. Says which, and how to get it.
    Without(String),
    /// It is missing, and little works. Says what does not, and how to get it.
    Ill(String),
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The thing.
    pub name: &'static str,
    /// The thing's state.
    pub state: State,
    /// What the check found.
    pub seen: String,
}

/// A machine to examine.
///
/// Its files lie below a folder, so that a test can make a machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The folder that holds its files.
    pub root: PathBuf,
    /// Whether the user is root.
    pub is_root: bool,
    /// The user's number.
    pub uid: u32,
    /// Whether the system knows a name for that number.
    pub named: bool,
    /// The folders of programs.
    pub path: Vec<PathBuf>,
    /// How many files a process may have open. `None` means no limit.
    pub files: Option<u64>,
    /// How many bytes of memory a process may lock. `None` means no limit.
    pub locked: Option<u64>,
    /// The daemon's folder, or why there can be none.
    pub place: Result<String, String>,
    /// Why the daemon's folder is not one of the preceding candidates, in sentences.
    pub passed: Vec<String>,
    /// Whether a daemon answers there.
    pub daemon: bool,
    /// Which namespaces that daemon does not share with this process.
    pub apart: Option<String>,
    /// The folder of root's daemon, if one answers.
    pub roots: Option<String>,
    /// What prevents this process from mounting, and what to do about it.
    ///
    /// A missing `/dev/fuse` or a missing helper does not count here.
    pub mounting: Option<String>,
    /// The path of this program.
    pub own: PathBuf,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn this(daemon: &Daemon) -> Self {
        let (place, passed, stream) = daemons_folder();
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self {
            root: PathBuf::from("/"),
            is_root: geteuid().is_root(),
            uid: geteuid().as_raw(),
            named: named(geteuid().as_raw()),
            path: std::env::split_paths(&path).collect(),
            files: getrlimit(Resource::Nofile).maximum,
            locked: getrlimit(Resource::Memlock).maximum,
            daemon: stream.is_some(),
            apart: stream.as_ref().and_then(|stream| apart(stream, daemon)),
            roots: choice::roots_running().ok().flatten().map(|(_, place)| place.dir().display().to_string()),
            // The device has a finding of its own.
            mounting: fuse::why::Means { device: true, ..fuse::why::Means::of_this() }.obstacle(),
            own: std::env::current_exe().and_then(fs::canonicalize).unwrap_or_default(),
            place,
            passed,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok().map(|text| text.trim().to_owned())
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|dir| dir.join(name)).find(|file| file.is_file())
    }

    /// Runs all checks.
    pub fn examine(&self) -> Vec<Finding> {
        vec![
            self.fuse(),
            self.fusermount(),
            self.mounting(),
            self.others(),
            self.place(),
            self.commands(),
            self.open_files(),
            self.locked_memory(),
            self.io_uring(),
            self.device(
                "loop devices",
                "/dev/loop-control",
                "no volume can be a block device over a file",
                "modprobe loop",
            ),
            self.nbd(),
            self.device(
                "ublk",
                "/dev/ublk-control",
                "no volume can be a block device by ublk",
                "modprobe ublk_drv (Linux 6.0 or later)",
            ),
            self.namespaces(),
            self.module(),
            self.hostid(),
            self.cache_folder(),
        ]
    }

    fn fuse(&self) -> Finding {
        let path = self.at("/dev/fuse");
        let name = "/dev/fuse";
        let opened = File::options().read(true).write(true).open(&path);
        let (state, seen) = match opened {
            Ok(_) => (State::Well, "can be opened".to_owned()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (
                State::Ill(
                    "nothing can be mounted; `modprobe fuse`, or, in a container, start it with `--device /dev/fuse`"
                        .into(),
                ),
                "is not there".to_owned(),
            ),
            Err(e) => (
                State::Ill("nothing can be mounted; `chmod 666 /dev/fuse`, as root, as udev does where it runs".into()),
                console::words::io(&e),
            ),
        };
        Finding { name, state, seen }
    }

    fn fusermount(&self) -> Finding {
        let name = "fusermount3";
        let lacks = |how: &str| {
            // Root mounts without the helper.
            let how = format!("a user who is not root can't mount; {how}");
            if self.is_root { State::Without(how) } else { State::Ill(how) }
        };
        let (state, seen) = match self.program(name) {
            None => (lacks("install the package fuse3"), "is not in PATH".to_owned()),
            Some(_) if !self.is_root && !self.named => (
                lacks(&format!(
                    "it serves nobody without a name: give user {} a line in /etc/passwd",
                    self.uid
                )),
                format!("will not mount for user {}, who has no name", self.uid),
            ),
            Some(program) => {
                let meta = fs::metadata(&program);
                let overflow = self.text("/proc/sys/kernel/overflowuid").and_then(|uid| uid.parse().ok());
                if meta.as_ref().is_ok_and(|meta| meta.permissions().mode() & 0o4000 != 0 && meta.uid() == 0)
                {
                    (State::Well, program.display().to_string())
                } else if self.uid != OVERFLOW_UID
                    && meta.is_ok_and(|meta| meta.uid() == overflow.unwrap_or(OVERFLOW_UID))
                {
                    let how = "set-user-ID has no effect here: become root of a namespace that may mount \
                               (`unshare -rm`), or mount outside and bind it in";
                    (lacks(how), format!("{} is of no user of this user namespace", program.display()))
                } else {
                    let how = format!("`chmod u+s {}`, as root", program.display());
                    (lacks(&how), "is not set to run as root".to_owned())
                }
            }
        };
        Finding { name, state, seen }
    }

    fn mounting(&self) -> Finding {
        let (state, seen) = match &self.mounting {
            Some(why) => (State::Ill(why.clone()), "this process can't".to_owned()),
            None => (State::Well, "nothing is known that forbids it".to_owned()),
        };
        Finding { name: "mounting", state, seen }
    }

    fn others(&self) -> Finding {
        let name = fuse::system::OTHERS_WORD;
        let conf = self.text(fuse::system::HELPER_CONF);
        let allowed = conf.is_some_and(|text| fuse::system::allows_others(&text));
        let missed = "nobody else reaches this user's mounts";
        let (state, seen) = match (self.is_root, allowed) {
            (true, _) => (State::Well, "root needs no leave".to_owned()),
            (false, true) => (
                State::Well,
                "is in /etc/fuse.conf: what `poolhouse serve --allow-other` or `zfs mount -o allow_other` mounts lets others in; nothing else does".to_owned(),
            ),
            (false, false) => (
                State::Without(format!("{missed}; put that word on a line of /etc/fuse.conf, and then start the daemon with `poolhouse serve --allow-other`")),
                "is not in /etc/fuse.conf".to_owned(),
            ),
        };
        Finding { name, state, seen }
    }

    fn place(&self) -> Finding {
        let roots = self.roots.as_ref().filter(|_| !self.is_root);
        let daemon = match (self.daemon, roots) {
            (true, Some(dir)) => {
                format!("and a daemon answers there; root's answers too, to POOLHOUSE_RUN_DIR={dir}")
            }
            (true, None) => "and a daemon answers there".to_owned(),
            (false, Some(_)) => {
                "which can be written; no daemon runs, root's is asked until the first import starts one"
                    .to_owned()
            }
            (false, None) => "which can be written; no daemon runs, the commands start one".to_owned(),
        };
        let (state, seen) = match &self.place {
            Ok(dir) if let Some(apart) = &self.apart => (
                State::Without(
                    "what it mounts need not be visible here, and it may see devices, mountpoints and keys at \
                     other paths, or not at all; `poolhouse ls` and `poolhouse cp` work. For the rest, run the \
                     commands where the daemon runs"
                        .into(),
                ),
                format!("{dir}, {daemon}, from {apart}"),
            ),
            Ok(dir) if self.passed.is_empty() => (State::Well, format!("{dir}, {daemon}")),
            // Users look in the preceding folders first, so say why those are not used.
            Ok(dir) => (State::Well, format!("{dir}, {daemon}. Not used: {}", self.passed.join("; "))),
            Err(why) => {
                let how = "no daemon can run; POOLHOUSE_RUN_DIR names another folder";
                (State::Ill(how.into()), why.clone())
            }
        };
        Finding { name: "the daemon's folder", state, seen }
    }

    /// Which program a script gets that runs `zpool` or `zfs`.
    fn commands(&self) -> Finding {
        let name = "zpool and zfs";
        if self.own.as_os_str().is_empty() {
            let seen = "can't be told from this program, since /proc says where that is".into();
            return Finding { name, state: State::Without("`mount -t proc proc /proc`".into()), seen };
        }
        let found = ["zpool", "zfs"].map(|name| self.program(name));
        let is_own = |file: &PathBuf| fs::canonicalize(file).is_ok_and(|file| file == self.own);
        let link = format!(
            "make links of these names to {}, in a folder that comes first in PATH",
            self.own.display()
        );
        let (state, seen) = match found.iter().flatten().find(|file| !is_own(file)) {
            Some(other) => (
                State::Without(format!("scripts call that program; {link}")),
                format!("{} is another program", other.display()),
            ),
            None if found.iter().any(Option::is_none) => (
                State::Without(format!(
                    "`poolhouse zpool` and `poolhouse zfs` are the same; for scripts, {link}"
                )),
                "are not in PATH".to_owned(),
            ),
            None => (State::Well, "are this program".to_owned()),
        };
        Finding { name, state, seen }
    }

    fn open_files(&self) -> Finding {
        let name = "open files";
        let seen = self.files.map_or_else(|| "no limit".to_owned(), |n| format!("at most {n}"));
        let state = match self.files {
            Some(n) if n < 16_384 => State::Without(format!(
                "a mount is an open file: some {} file systems; raise the hard limit (LimitNOFILE=, limits.conf: nofile)",
                n.saturating_sub(64)
            )),
            _ => State::Well,
        };
        Finding { name, state, seen }
    }

    fn locked_memory(&self) -> Finding {
        // Keys are wiped when they are released and never locked in memory. So this program needs
        // no locked memory.
        let seen = self.locked.map_or_else(|| "no limit".to_owned(), |n| format!("at most {n} bytes"));
        Finding { name: "locked memory", state: State::Well, seen: format!("{seen}; none is needed") }
    }

    fn io_uring(&self) -> Finding {
        let name = "io_uring";
        let seen = match self.text("/proc/sys/kernel/io_uring_disabled").as_deref() {
            Some("0") => "the kernel has it",
            Some("1") => "the kernel keeps it for some",
            Some(_) => "the kernel has it switched off (sysctl kernel.io_uring_disabled)",
            None => "the kernel does not say",
        };
        Finding {
            name,
            state: State::Well,
            seen: format!("{seen}; this release reads and writes without it"),
        }
    }

    fn device(&self, name: &'static str, path: &str, without: &str, how: &str) -> Finding {
        if self.at(path).exists() {
            return Finding { name, state: State::Well, seen: format!("{path} is there") };
        }
        let state = State::Without(format!("{without}; {how}"));
        Finding { name, state, seen: format!("{path} is not there") }
    }

    fn nbd(&self) -> Finding {
        let name = "nbd devices";
        if self.at("/sys/module/nbd").exists() || self.at("/dev/nbd0").exists() {
            return Finding { name, state: State::Well, seen: "the kernel has them".into() };
        }
        let how = "no block device over a network block device here; modprobe nbd. Clients such as qemu and nbdcopy need none";
        Finding { name, state: State::Without(how.into()), seen: "the kernel module is not loaded".into() }
    }

    fn namespaces(&self) -> Finding {
        let name = "user namespaces";
        let most = self.text("/proc/sys/user/max_user_namespaces").and_then(|n| n.parse::<u64>().ok());
        let closed = self.text("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0");
        let how = "`unshare -r` can't give a user mounts of its own; sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone";
        let (state, seen) = match most {
            Some(0) | None => (State::Without(how.into()), "the kernel allows none"),
            Some(_) if closed && !self.is_root => {
                (State::Without(how.into()), "the kernel keeps them for root")
            }
            Some(_) => (State::Well, "the kernel allows them"),
        };
        Finding { name, state, seen: seen.to_owned() }
    }

    fn module(&self) -> Finding {
        let name = "OpenZFS's kernel module";
        if !self.at("/sys/module/zfs").exists() {
            return Finding { name, state: State::Well, seen: "is not loaded".into() };
        }
        let how = "one pool has one owner: block devices are told apart, an image that the module has itself imported is not; keep its import services off pools that are ours";
        Finding { name, state: State::Without(how.into()), seen: "is loaded".into() }
    }

    fn hostid(&self) -> Finding {
        let name = "host id";
        if self.text("/proc/sys/kernel/spl/hostid").is_some() || self.at("/etc/hostid").exists() {
            return Finding { name, state: State::Well, seen: "/etc/hostid".into() };
        }
        let how = "pools on devices that two machines see can't tell them apart by it; zgenhostid, or four random bytes in /etc/hostid";
        Finding { name, state: State::Without(how.into()), seen: "there is no /etc/hostid".into() }
    }

    fn cache_folder(&self) -> Finding {
        let name = "/etc/zfs";
        if !self.is_root || self.at(name).is_dir() {
            let seen = if self.is_root { "is there" } else { "is for root's daemon" };
            return Finding { name, state: State::Well, seen: seen.into() };
        }
        let how = "pools are not remembered for the next start; mkdir /etc/zfs";
        Finding { name, state: State::Without(how.into()), seen: "is not there".into() }
    }
}

/// Which namespaces the daemon at the other end does not share with this process.
fn apart(stream: &UnixStream, daemon: &Daemon) -> Option<String> {
    let Some(process) = (daemon.peer)(stream).ok()?.pid else {
        return Some("another PID namespace".to_owned());
    };
    let differs = |kind: &&str| {
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{kind}")).ok();
        of("self").zip(of(&process.to_string())).is_some_and(|(ours, its)| ours != its)
    };
    let found: Vec<&str> = ["pid", "mnt"].into_iter().filter(|kind| differs(kind)).collect();
    match found.as_slice() {
        [] => None,
        ["pid"] => Some("another PID namespace".to_owned()),
        ["mnt"] => Some("another mount namespace".to_owned()),
        _ => Some("another PID and another mount namespace".to_owned()),
    }
}

/// The folder of this user's daemon, why other folders are not used, and the connection.
///
/// The first is the reason if there is no folder. The last is set if a daemon answers.
fn daemons_folder() -> (Result<String, String>, Vec<String>, Option<UnixStream>) {
    let words = |error: RunDirError| api::chain(&error);
    if let Some(place) = RunDir::named() {
        let dir = place.dir().display().to_string();
        return match place.connect() {
            Ok(Some(stream)) => (Ok(dir), Vec::new(), Some(stream)),
            Ok(None) => (place.try_out().map(|()| dir).map_err(words), Vec::new(), None),
            Err(error) => (Err(words(error)), Vec::new(), None),
        };
    }
    let running = choice::running();
    let chosen = choice::choose();
    let passed = chosen.as_ref().map(choice::Choice::passed).unwrap_or_default();
    match running {
        Err(error) => (Err(words(error)), Vec::new(), None),
        // The obstacles of the preceding folders are those of now.
        Ok(Some((stream, place))) => {
            let dir = place.dir().display().to_string();
            let first = match &chosen {
                Ok(choice) if choice.name() != dir => {
                    Some(format!("{}, which could not be used when that daemon began", choice.name()))
                }
                _ => None,
            };
            (Ok(dir), passed.into_iter().chain(first).collect(), Some(stream))
        }
        Ok(None) => (chosen.map(|choice| choice.name()).map_err(words), passed, None),
    }
}

/// Whether the system knows a user of this number, from the table of users or from another source.
fn named(uid: u32) -> bool {
    let by_system = || {
        let mut ask = std::process::Command::new("getent");
        let asked = ask.args(["passwd", &uid.to_string()]).stdin(std::process::Stdio::null()).output();
        asked.is_ok_and(|told| told.status.success())
    };
    api::accounts::user(uid).is_some() || by_system()
}

/// Writes the findings. Returns the exit code.
pub fn report(out: &mut Out, findings: &[Finding]) -> i32 {
    for finding in findings {
        let (mark, how) = match &finding.state {
            State::Well => ("ok", None),
            State::Without(how) => ("without", Some(how)),
            State::Ill(how) => ("MISSING", Some(how)),
        };
        writeln!(out, "{mark:<8} {}: {}", finding.name, finding.seen);
        if let Some(how) = how {
            writeln!(out, "         {how}");
        }
    }
    i32::from(findings.iter().any(|f| matches!(f.state, State::Ill(_))))
}

/// Runs `poolhouse doctor`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, args: &[String], daemon: &Daemon) -> i32 {
    if !args.is_empty() {
        let asked = args.iter().all(|arg| arg == "--help" || arg == "-h");
        let usage = "usage: poolhouse doctor\n\nSays what this machine lacks for Poolhouse, and how to get it. Changes nothing.\n";
        if asked {
            out.put(usage)
        } else {
            err.put("too many arguments\n");
            err.put(usage)
        }
        return if asked { 0 } else { 2 };
    }
    report(out, &Machine::this(daemon).examine())
}

#[cfg(test)]
mod tests;
