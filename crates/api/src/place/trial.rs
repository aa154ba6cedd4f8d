//! Whether a daemon could live in a folder: found by doing there what it does.

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// What a trial writes, bytes: a folder without room for that has none for the journal of mounts.
const SIZE: usize = 4096;
/// Names that are tried before a folder is given up.
const TRIES: usize = 16;

/// Makes a file, locks it, writes to it and makes a socket, and takes all of it away.
///
/// # Errors
/// As the system refuses one of these.
pub(super) fn in_folder(dir: &Path) -> io::Result<()> {
    let name = format!(".trial-{}", word());
    let (file, socket) = (dir.join(&name), dir.join(format!("{name}s")));
    let attempt = || {
        let mut made = File::options().write(true).create_new(true).mode(0o600).open(&file)?;
        flock(&made, FlockOperation::NonBlockingLockExclusive)?;
        // A limit of the shell on the sizes of files is not the folder's, and would end this process.
        if getrlimit(Resource::Fsize).current.is_none_or(|most| most >= SIZE as u64) {
            made.write_all(&[0; SIZE])?;
        }
        // Whether there is room is known to some file systems only then.
        made.sync_data()
    };
    let written = attempt();
    remove(&file)?;
    written?;
    // Its name may be too long only because this is a trial: who asks checks the real ones.
    let bound = match UnixListener::bind(&socket) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        bound => bound.map(drop),
    };
    remove(&socket)?;
    bound
}

/// The same in a folder that is made for it in `parent`.
///
/// # Errors
/// As the system refuses one of these.
pub(super) fn in_new_folder(parent: &Path) -> io::Result<()> {
    let dir = make(parent, ".poolhouse-", 0o700)?;
    let tried = in_folder(&dir);
    let removed = std::fs::remove_dir(&dir);
    tried.and(removed)
}

/// Makes a folder in `parent` whose name begins with `start`, and is nobody's yet.
///
/// # Errors
/// As the system refuses it.
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

/// Eight characters that are others each time.
fn word() -> String {
    // Each state has random keys of its own.
    format!("{:08x}", RandomState::new().build_hasher().finish() & 0xffff_ffff)
}
