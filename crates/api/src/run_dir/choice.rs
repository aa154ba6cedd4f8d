//! The choice of a folder for a user's daemon, if none is named.
//!
//! # Theory
//! The candidates have an order:
//!
//! | user | candidates |
//! |---|---|
//! | root | `/run/poolhouse` |
//! | others | `$XDG_RUNTIME_DIR`, `/run/user/UID` |
//! | all | then the temporary directories |
//!
//! A new daemon takes the first candidate that belongs to this user and can be written now, which a
//! trial finds out. The answer may change: a full file system has free space later. So commands
//! look for a running daemon in all candidates. The first one that has a daemon is the user's
//! folder.
//!
//! User 0 of a user namespace is not root of the machine. It owns `/run/poolhouse` in a container,
//! and not otherwise. The names of its other candidates have the number of its namespace, so that
//! they differ from those of the user outside.
//!
//! In a folder where all users may create files, another user may have taken the wanted name. Then
//! the new folder gets a random suffix. Commands find it again by its owner: this user created each
//! folder there that belongs to this user. The reason is that only root can give folders away, and
//! the sticky bit keeps others from renaming them. A mount isn't trusted: the server of that file
//! system may claim any owner.
//!
//! # Locks
//! Two daemons of one user must not begin in two candidates. The order is this:
//!
//! 1. Each creates its folder, with its `start.lock`.
//! 2. It locks those of all candidates that exist and are this user's, in the order of their paths,
//!    until it sees no new one.
//!
//! Of any two that begin, the one whose file was created second sees the file of the first. So they
//! meet at a lock, and the later one finds the daemon of the earlier.
//!
//! # Absent
//! Folders that `POOLHOUSE_RUN_DIR` or `--run-dir` names: they are used as they are, or refused.

use super::{RunDir, RunDirError, trial};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The well-known folders where all users may create files.
const CROWDED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// The parent folder of root's daemon.
const SYSTEM: &str = "/run";
/// The number of the machine's first user namespace (`PROC_USER_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFD;
/// Most passes over the folders until their set stays the same.
const LOOKS: u32 = 64;

/// The user for whom a folder is chosen.
#[derive(Debug, Clone, Default)]
struct Who {
    uid: u32,
    /// The number of its user namespace, if that is not the machine's first.
    namespace: Option<u64>,
    /// `XDG_RUNTIME_DIR`.
    runtime: Option<PathBuf>,
    /// `TMPDIR`.
    temporary: Option<PathBuf>,
}

/// A possible location of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    parent: PathBuf,
    name: String,
    /// Whether all users may connect.
    shared: bool,
    /// Whether all users may create files in the parent.
    crowded: bool,
}

/// What exists at a candidate.
struct Found {
    /// Folders of this user: one, as a rule.
    places: Vec<RunDir>,
    /// What is wrong with the object that has the usual name, if there is one.
    plain: Option<RunDirError>,
}

/// The chosen folder for a daemon that is about to begin.
#[derive(Debug)]
pub struct Choice {
    target: Target,
    passed: Vec<RunDirError>,
}

#[derive(Debug)]
enum Target {
    /// It exists.
    There(RunDir),
    /// It will be created; with a suffix, if the name is taken.
    New(Candidate, bool),
}

impl Who {
    fn this() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let namespace = std::fs::metadata("/proc/self/ns/user").map(|meta| meta.ino());
        Self {
            uid: rustix::process::geteuid().as_raw(),
            namespace: namespace.ok().filter(|number| *number != FIRST_NAMESPACE),
            runtime: var("XDG_RUNTIME_DIR").filter(|path| path.is_absolute()),
            temporary: var("TMPDIR").filter(|path| path.is_absolute()),
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let crowded = CROWDED.map(PathBuf::from);
        let mut all: Vec<Candidate> = Vec::new();
        let mut add = |parent: PathBuf, name: String, shared| {
            if !all.iter().any(|other| other.parent == parent && other.name == name) {
                let everybody = |path: &Path| mode_of(path).is_some_and(|mode| mode & 0o002 != 0);
                let crowded = everybody(&parent);
                all.push(Candidate { parent, name, shared, crowded });
            }
        };
        match (self.uid, self.namespace) {
            // Other users must find it too, so it can't depend on root's environment.
            (0, None) => {
                add(SYSTEM.into(), "poolhouse".into(), true);
                crowded.into_iter().for_each(|parent| add(parent, "poolhouse-0".into(), true));
            }
            (0, Some(number)) => {
                add(SYSTEM.into(), "poolhouse".into(), true);
                let parents = self.runtime.iter().chain(&self.temporary).chain(&crowded);
                parents.for_each(|parent| add(parent.clone(), format!("poolhouse-ns{number}"), false));
            }
            (uid, _) => {
                let usual = PathBuf::from(format!("/run/user/{uid}"));
                let usual = usual.is_dir().then_some(usual);
                let runtime = self.runtime.iter().chain(&usual);
                runtime.for_each(|parent| add(parent.clone(), "poolhouse".into(), false));
                let parents = self.temporary.iter().chain(&crowded);
                parents.for_each(|parent| add(parent.clone(), format!("poolhouse-{uid}"), false));
            }
        }
        all
    }
}

impl Candidate {
    fn place(&self, name: &str) -> RunDir {
        RunDir { dir: self.parent.join(name), shared: self.shared }
    }

    /// Finds out what exists at this candidate.
    fn look(&self) -> Found {
        let plain = self.place(&self.name);
        let wrong = match self.check(&plain) {
            Ok(()) => return Found { places: vec![plain], plain: None },
            Err(RunDirError::Io { source, .. }) if is_absent(&source) => None,
            Err(error) => Some(error),
        };
        let start = format!("{}.", self.name);
        let mut places = Vec::new();
        if self.crowded
            && let Ok(names) = std::fs::read_dir(&self.parent)
        {
            let names = names.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            let ours = names.filter(|name| name.starts_with(&start)).map(|name| self.place(&name));
            places.extend(ours.filter(|place| self.check(place).is_ok()));
            places.sort_by(|a, b| a.dir.cmp(&b.dir));
        }
        Found { places, plain: wrong }
    }

    /// Checks whether a folder is this user's.
    ///
    /// In a crowded parent it first makes sure that the folder is not a mount. That check sends no
    /// request to the mounted file system, which another user may serve.
    fn check(&self, place: &RunDir) -> Result<(), RunDirError> {
        if self.crowded {
            let device = |path: &Path| {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
                statx(CWD, path, flags, StatxFlags::BASIC_STATS)
                    .map(|at| (at.stx_dev_major, at.stx_dev_minor))
            };
            match (device(&place.dir), device(&self.parent)) {
                (Ok(own), Ok(around)) if own != around => {
                    return Err(RunDirError::Mount { dir: place.dir.clone() });
                }
                // If a mount denies access, nothing else can be found out about it.
                (Err(errno), _) if errno != rustix::io::Errno::NOSYS => {
                    return Err(place.failed(errno.into()));
                }
                _ => {}
            }
        }
        place.check()
    }

    /// Checks whether a folder could be created and used here.
    fn try_new(&self) -> Result<(), RunDirError> {
        let place = self.place(&self.name);
        if let Some(mode) = mode_of(&self.parent)
            && self.crowded
            && mode & 0o1000 == 0
        {
            return Err(RunDirError::Loose { parent: self.parent.clone(), mode });
        }
        place.check_sockets()?;
        trial::in_new_folder(&self.parent).map_err(|e| place.failed(e))
    }
}

impl Choice {
    /// The path of the daemon's folder, for messages. A suffix that is not known yet shows as `…`.
    pub fn name(&self) -> String {
        match &self.target {
            Target::There(place) => place.dir.display().to_string(),
            Target::New(candidate, suffix) => {
                let more = if *suffix { ".…" } else { "" };
                format!("{}{more}", candidate.place(&candidate.name).dir.display())
            }
        }
    }

    /// Why earlier candidates were not chosen, a sentence for each.
    pub fn passed(&self) -> Vec<String> {
        self.passed.iter().map(|error| crate::chain(error)).collect()
    }

    /// Creates the folder, if it does not exist.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: the folder can't be created.
    /// * All others: another process created an object of that name meanwhile, and it can't be
    ///   trusted. See [`RunDir::check`] and [`RunDirError::Mount`].
    pub fn make(&self) -> Result<RunDir, RunDirError> {
        let (candidate, suffix) = match &self.target {
            Target::There(place) => return Ok(place.clone()),
            Target::New(candidate, suffix) => (candidate, *suffix),
        };
        let plain = candidate.place(&candidate.name);
        if suffix {
            let start = format!("{}.", candidate.name);
            let made = trial::make(&candidate.parent, &start, plain.mode());
            return made.map(|dir| RunDir { dir, ..plain.clone() }).map_err(|e| plain.failed(e));
        }
        match std::fs::DirBuilder::new().mode(plain.mode()).create(&plain.dir) {
            // Another command of this user was faster, or another user was.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => candidate.check(&plain)?,
            made => made.map_err(|e| plain.failed(e))?,
        }
        Ok(plain)
    }
}

/// Chooses the folder for a new daemon of this user.
///
/// # Errors
/// * [`RunDirError::Nowhere`]: no candidate can be used. It has the reason for each.
pub fn choose() -> Result<Choice, RunDirError> {
    choose_among(&Who::this().candidates())
}

fn choose_among(candidates: &[Candidate]) -> Result<Choice, RunDirError> {
    let mut passed = Vec::new();
    for candidate in candidates {
        let found = candidate.look();
        if let Some(place) = found.places.into_iter().next() {
            passed.extend(found.plain);
            match place
                .check_sockets()
                .and_then(|()| trial::in_folder(&place.dir).map_err(|e| place.failed(e)))
            {
                Ok(()) => return Ok(Choice { target: Target::There(place), passed }),
                Err(error) => passed.push(error),
            }
            continue;
        }
        let taken = found.plain.is_some();
        passed.extend(found.plain);
        if taken && !candidate.crowded {
            continue;
        }
        match candidate.try_new() {
            Ok(()) => return Ok(Choice { target: Target::New(candidate.clone(), taken), passed }),
            Err(error) => passed.push(error),
        }
    }
    let why: Vec<String> = passed.iter().map(|error| crate::chain(error)).collect();
    Err(RunDirError::Nowhere { why: why.join("; ") })
}

/// A connection to this user's daemon, with the daemon's folder. `None` if none listens.
///
/// # Errors
/// * [`RunDirError::Io`]: the socket of a trusted folder can't be used.
/// * [`RunDirError::Open`]: a daemon listens in a folder of this user's that others may use.
/// * All others: a folder changed meanwhile. See [`RunDir::check`].
pub fn running() -> Result<Option<(UnixStream, RunDir)>, RunDirError> {
    running_among(&Who::this().candidates())
}

/// The same as [`running`], for root's daemon.
///
/// # Errors
/// As those of [`running`].
pub fn roots_running() -> Result<Option<(UnixStream, RunDir)>, RunDirError> {
    running_among(&Who::default().candidates())
}

fn running_among(candidates: &[Candidate]) -> Result<Option<(UnixStream, RunDir)>, RunDirError> {
    for candidate in candidates {
        let found = candidate.look();
        for place in found.places {
            if let Some(stream) = place.connect()? {
                return Ok(Some((stream, place)));
            }
        }
        // The folder is this user's, but others may have changed it. A second daemon elsewhere
        // would hide the first.
        if let Some(error @ RunDirError::Open { .. }) = found.plain
            && candidate.place(&candidate.name).connect().is_ok_and(|stream| stream.is_some())
        {
            return Err(error);
        }
    }
    Ok(None)
}

/// Whether commands of this user look into a folder even if it is not named.
pub fn is_usual(place: &RunDir) -> bool {
    let name = place.dir.file_name().and_then(|name| name.to_str());
    let (Some(parent), Some(name)) = (place.dir.parent(), name) else { return false };
    Who::this().candidates().iter().any(|candidate| {
        let rest = name.strip_prefix(candidate.name.as_str());
        candidate.parent == parent && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// A named folder. It is shared if it is the one that [`ENV_DIR`](super::ENV_DIR) names, or the
/// usual shared one, and private otherwise.
pub fn at(dir: &Path) -> RunDir {
    let named = RunDir::named().filter(|place| place.dir == dir);
    let usual = || {
        let shared = Who::this().candidates().into_iter().find(|candidate| candidate.shared)?;
        (shared.place(&shared.name).dir == dir).then(|| shared.place(&shared.name))
    };
    named.or_else(usual).unwrap_or_else(|| RunDir::at(dir))
}

/// Permission to begin a daemon. No other daemon of this user begins or ends until it is dropped.
pub struct Turn(#[allow(dead_code, reason = "holds locks")] Vec<OwnedFd>);

/// Waits until this process may begin a daemon in the existing folder `place`.
///
/// Returns the folder of another daemon of this user, if one runs.
///
/// # Errors
/// * [`RunDirError::Io`]: a lock file can't be opened or locked.
pub fn take_turn(place: &RunDir) -> Result<(Turn, Option<RunDir>), RunDirError> {
    if !is_usual(place) {
        return Ok((Turn(vec![place.lock_start()?]), None));
    }
    take_turn_among(place, &Who::this().candidates())
}

fn take_turn_among(place: &RunDir, candidates: &[Candidate]) -> Result<(Turn, Option<RunDir>), RunDirError> {
    let look = || {
        let there = candidates.iter().flat_map(|candidate| candidate.look().places);
        let dirs: BTreeSet<PathBuf> = there.map(|other| other.dir).chain([place.dir.clone()]).collect();
        dirs
    };
    // This comes before the first look. A process that does not see this file has created its own
    // before, which this process sees.
    drop(place.open("start.lock")?);
    let mut dirs = look();
    for _ in 0..LOOKS {
        let mut locks = Vec::new();
        for dir in &dirs {
            if *dir == place.dir {
                locks.push(place.lock_start()?);
            } else {
                locks.extend(RunDir::at(dir).lock_start_of_other()?);
            }
        }
        let now = look();
        if now != dirs {
            dirs = now;
            continue;
        }
        let others = dirs.into_iter().filter(|dir| *dir != place.dir);
        for other in others.map(|dir| RunDir { dir, shared: place.shared }) {
            if other.has_daemon()? {
                return Ok((Turn(locks), Some(other)));
            }
        }
        return Ok((Turn(locks), None));
    }
    Err(place.failed(ErrorKind::ResourceBusy.into()))
}

fn mode_of(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|meta| meta.mode() & 0o7777)
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests;
