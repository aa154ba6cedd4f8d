//! Which folder a user's daemon lives in, where nobody names one.
//!
//! # Theory
//! There are several candidates, in an order: `/run/poolhouse` for root; for others `$XDG_RUNTIME_DIR`, `/run/user/UID`;
//! for all of them the temporary directories. A new daemon takes the first that is this user's own and can be written
//! now, which a trial tells. That may change: what is full now has room later. So a daemon that runs is looked for in
//! all candidates, and the first one that has a daemon is the user's folder.
//!
//! User 0 of a user namespace isn't root of the machine. It owns `/run/poolhouse` in a container, and not otherwise;
//! its other candidates carry the number of its namespace, so that they aren't those of the user outside.
//!
//! In a folder where everybody may make things, the name that we want may be taken by somebody else. Then a suffix is
//! added at random. It is found again by its owner: a folder there that is ours was made by us, since nobody gives
//! folders away, and the sticky bit keeps others from renaming them. A mount isn't trusted: who serves it may claim any owner.
//!
//! # Locks
//! Two daemons of one user must not begin in two candidates. Each makes its folder first, with its `start.lock`. Then it locks
//! those of all candidates that exist and are ours, in the order of their paths, until it sees no new one. Of any two that
//! begin, the one whose file was made second sees the file of the first. So they meet at a lock, and the later finds the
//! daemon of the earlier.
//!
//! # Absent
//! Folders that `POOLHOUSE_RUN_DIR` or `--run-dir` names: they are taken as they are, or refused.

use super::{Place, PlaceError, trial};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The folders that everybody has, in which everybody may make things.
const CROWDED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Where root's daemon lives.
const SYSTEM: &str = "/run";
/// The number of the user namespace that the machine begins with (`PROC_USER_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFD;
/// How often a set of folders is looked at until it stays the same.
const LOOKS: u32 = 64;

/// Who looks for a folder.
#[derive(Debug, Clone, Default)]
struct Who {
    uid: u32,
    /// The number of a user namespace other than the machine's first.
    namespace: Option<u64>,
    /// `XDG_RUNTIME_DIR`.
    runtime: Option<PathBuf>,
    /// `TMPDIR`.
    temporary: Option<PathBuf>,
}

/// Where the folder may be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    parent: PathBuf,
    name: String,
    /// Whether everybody may knock.
    shared: bool,
    /// Whether everybody may make things in the parent.
    crowded: bool,
}

/// What a candidate has.
struct Found {
    /// Folders that are ours: one, as a rule.
    places: Vec<Place>,
    /// What is wrong with what has the usual name, if something has.
    plain: Option<PlaceError>,
}

/// A folder for a daemon that is to begin.
#[derive(Debug)]
pub struct Choice {
    target: Target,
    passed: Vec<PlaceError>,
}

#[derive(Debug)]
enum Target {
    /// It is there.
    There(Place),
    /// It is to be made; with a suffix, if the name is taken.
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
            // Others find it too: so it doesn't depend on root's environment.
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
    fn place(&self, name: &str) -> Place {
        Place { dir: self.parent.join(name), shared: self.shared }
    }

    /// What is there of it.
    fn look(&self) -> Found {
        let plain = self.place(&self.name);
        let wrong = match self.check(&plain) {
            Ok(()) => return Found { places: vec![plain], plain: None },
            Err(PlaceError::Io { source, .. }) if is_absent(&source) => None,
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

    /// Whether a folder is ours. In a crowd that is found without asking a file system that somebody may serve.
    fn check(&self, place: &Place) -> Result<(), PlaceError> {
        if self.crowded {
            let device = |path: &Path| {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
                statx(CWD, path, flags, StatxFlags::BASIC_STATS)
                    .map(|at| (at.stx_dev_major, at.stx_dev_minor))
            };
            match (device(&place.dir), device(&self.parent)) {
                (Ok(own), Ok(around)) if own != around => {
                    return Err(PlaceError::Mount { dir: place.dir.clone() });
                }
                // Of a mount that keeps us out no more can be told.
                (Err(errno), _) if errno != rustix::io::Errno::NOSYS => {
                    return Err(place.failed(errno.into()));
                }
                _ => {}
            }
        }
        place.check()
    }

    /// Whether a folder could be made and used here.
    fn try_new(&self) -> Result<(), PlaceError> {
        let place = self.place(&self.name);
        if let Some(mode) = mode_of(&self.parent)
            && self.crowded
            && mode & 0o1000 == 0
        {
            return Err(PlaceError::Loose { parent: self.parent.clone(), mode });
        }
        place.check_sockets()?;
        trial::in_new_folder(&self.parent).map_err(|e| place.failed(e))
    }
}

impl Choice {
    /// Where the daemon will live, as a text: what is added to a name that is taken isn't known before.
    pub fn name(&self) -> String {
        match &self.target {
            Target::There(place) => place.dir.display().to_string(),
            Target::New(candidate, suffix) => {
                let more = if *suffix { ".…" } else { "" };
                format!("{}{more}", candidate.place(&candidate.name).dir.display())
            }
        }
    }

    /// Why candidates that come before it are not taken, each in a sentence.
    pub fn passed(&self) -> Vec<String> {
        self.passed.iter().map(|error| crate::chain(error)).collect()
    }

    /// Makes the folder, if need be.
    ///
    /// # Errors
    /// As the system refuses it, or if somebody was faster.
    pub fn make(&self) -> Result<Place, PlaceError> {
        let (candidate, suffix) = match &self.target {
            Target::There(place) => return Ok(place.clone()),
            Target::New(candidate, suffix) => (candidate, *suffix),
        };
        let plain = candidate.place(&candidate.name);
        if suffix {
            let start = format!("{}.", candidate.name);
            let made = trial::make(&candidate.parent, &start, plain.mode());
            return made.map(|dir| Place { dir, ..plain.clone() }).map_err(|e| plain.failed(e));
        }
        match std::fs::DirBuilder::new().mode(plain.mode()).create(&plain.dir) {
            // Another command of this user was faster, or a stranger.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => candidate.check(&plain)?,
            made => made.map_err(|e| plain.failed(e))?,
        }
        Ok(plain)
    }
}

/// The folder for a daemon of this user that begins.
///
/// # Errors
/// [`PlaceError::Nowhere`] with what is wrong with each.
pub fn choose() -> Result<Choice, PlaceError> {
    choose_among(&Who::this().candidates())
}

fn choose_among(candidates: &[Candidate]) -> Result<Choice, PlaceError> {
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
    Err(PlaceError::Nowhere { why: why.join("; ") })
}

/// A connection to this user's daemon, and where it lives; `None` if none listens.
///
/// # Errors
/// [`PlaceError`], if one listens where it can't be trusted, or can't be asked.
pub fn running() -> Result<Option<(UnixStream, Place)>, PlaceError> {
    running_among(&Who::this().candidates())
}

/// The same for root's.
///
/// # Errors
/// As of [`running`].
pub fn roots_running() -> Result<Option<(UnixStream, Place)>, PlaceError> {
    running_among(&Who::default().candidates())
}

fn running_among(candidates: &[Candidate]) -> Result<Option<(UnixStream, Place)>, PlaceError> {
    for candidate in candidates {
        let found = candidate.look();
        for place in found.places {
            if let Some(stream) = place.connect()? {
                return Ok(Some((stream, place)));
            }
        }
        // Ours, but others may have been in it. To start a second daemon elsewhere would hide the first.
        if let Some(error @ PlaceError::Open { .. }) = found.plain
            && candidate.place(&candidate.name).connect().is_ok_and(|stream| stream.is_some())
        {
            return Err(error);
        }
    }
    Ok(None)
}

/// Whether commands of this user look into a folder without being told to.
pub fn is_usual(place: &Place) -> bool {
    let name = place.dir.file_name().and_then(|name| name.to_str());
    let (Some(parent), Some(name)) = (place.dir.parent(), name) else { return false };
    Who::this().candidates().iter().any(|candidate| {
        let rest = name.strip_prefix(candidate.name.as_str());
        candidate.parent == parent && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// A folder that somebody names: as open as it is where it is meant without being named, and else this user's alone.
pub fn at(dir: &Path) -> Place {
    let named = Place::named().filter(|place| place.dir == dir);
    let usual = || {
        let shared = Who::this().candidates().into_iter().find(|candidate| candidate.shared)?;
        (shared.place(&shared.name).dir == dir).then(|| shared.place(&shared.name))
    };
    named.or_else(usual).unwrap_or_else(|| Place::at(dir))
}

/// The turn of a daemon to begin; nothing of this user begins or ends until it is dropped.
pub struct Turn(#[allow(dead_code, reason = "holds locks")] Vec<OwnedFd>);

/// Waits for its turn to begin a daemon in `place`, which is there; and finds another that runs.
///
/// # Errors
/// As the system refuses it.
pub fn take_turn(place: &Place) -> Result<(Turn, Option<Place>), PlaceError> {
    if !is_usual(place) {
        return Ok((Turn(vec![place.lock_start()?]), None));
    }
    take_turn_among(place, &Who::this().candidates())
}

fn take_turn_among(place: &Place, candidates: &[Candidate]) -> Result<(Turn, Option<Place>), PlaceError> {
    let look = || {
        let there = candidates.iter().flat_map(|candidate| candidate.look().places);
        let dirs: BTreeSet<PathBuf> = there.map(|other| other.dir).chain([place.dir.clone()]).collect();
        dirs
    };
    // Before it looks: who doesn't see this file has made its own, which we see.
    drop(place.open("start.lock")?);
    let mut dirs = look();
    for _ in 0..LOOKS {
        let mut locks = Vec::new();
        for dir in &dirs {
            if *dir == place.dir {
                locks.push(place.lock_start()?);
            } else {
                locks.extend(Place::at(dir).lock_start_of_other()?);
            }
        }
        let now = look();
        if now != dirs {
            dirs = now;
            continue;
        }
        let others = dirs.into_iter().filter(|dir| *dir != place.dir);
        for other in others.map(|dir| Place { dir, shared: place.shared }) {
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
