//! A trial whether a daemon could live in a folder: it does there what a daemon does.

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// How many bytes a trial writes. A folder without space for that has none for the journal of
/// mounts.
const SIZE: usize = 4096;
/// How many names are tried for a new folder.
const TRIES: usize = 16;

/// Creates, locks and writes a file, creates a socket, and removes both.
///
/// # Errors
/// The system's error for the first of these steps that fails.
pub(super) fn in_folder(dir: &Path) -> io::Result<()> {
    let name = format!(".trial-{}", word());
    let (file, socket) = (dir.join(&name), dir.join(format!("{name}s")));
    let attempt = || {
        let mut made = File::options().write(true).create_new(true).mode(0o600).open(&file)?;
        flock(&made, FlockOperation::NonBlockingLockExclusive)?;
        // A `RLIMIT_FSIZE` of the shell says nothing about the folder, and exceeding it would end
        // this process.
        if getrlimit(Resource::Fsize).current.is_none_or(|most| most >= SIZE as u64) {
            made.write_all(&[0; SIZE])?;
        }
        // Some file systems find out only here whether there is free space.
        made.sync_data()
    };
    let written = attempt();
    remove(&file)?;
    written?;
    // The name of the trial's socket may be longer than the real ones. The caller checks those.
    let bound = match UnixListener::bind(&socket) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        bound => bound.map(drop),
    };
    remove(&socket)?;
    bound
}

/// The same in a new folder in `parent`, which it removes again.
///
/// # Errors
/// The system's error for the first step that fails.
pub(super) fn in_new_folder(parent: &Path) -> io::Result<()> {
    let dir = make(parent, ".poolhouse-", 0o700)?;
    let tried = in_folder(&dir);
    let removed = std::fs::remove_dir(&dir);
    tried.and(removed)
}

/// Creates a new folder in `parent` whose name begins with `start`.
///
/// # Errors
/// The system's error from `mkdir`; `AlreadyExists` after 16 names that were taken.
pub(super) fn make(parent: &Path, start: &str, mode: u32) -> io::Result<PathBuf> {
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..TRIES {
        let dir = parent.join(format!("{start}{}", word()));
        match std::fs::DirBuilder::new().mode(mode).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Eight random characters.
fn word() -> String {
    // Each state has its own random keys.
    format!("{:08x}", RandomState::new().build_hasher().finish() & 0xffff_ffff)
}
