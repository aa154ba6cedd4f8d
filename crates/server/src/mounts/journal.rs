//! The mounts that a daemon made, for its successor in the same folder.
//!
//! # Theory
//! A daemon that is killed leaves dead mounts, which its successor removes ([`crate::daemon`]).
//! `zfs mount -a` restores mounts that properties describe. No property describes the place of a
//! legacy file system, nor the options given to a mount. So the daemon records each mount in its
//! folder when it is made. A line has these parts:
//!
//! * the dataset;
//! * the place;
//! * the given options;
//! * the number of the mounted device. With it, the table of mounts shows whether the mount still
//!   exists.
//!
//! Before the successor removes the dead mounts, it keeps their lines: these mounts are *left*.
//! When all file systems of a pool are mounted next, the left ones are restored as they were
//! ([`crate::pools`]). Each is tried once and then forgotten. All those of a pool are forgotten
//! when it is exported. A mount that was unmounted meanwhile no longer exists, and so is not left.
//!
//! Nothing of this outlives a restart of the machine, nor do mounts.
//!
//! # Crash
//! Lines are only appended, and an incomplete line is skipped. The list of left mounts replaces its
//! predecessor as a whole, before any mount is removed.
//!
//! # Absent
//! Mounts of daemons that had no journal, and pools that were exported in order.

use fuse::system::Mounted;
use observe::lock::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of either file to read.
const MAX: u64 = 64 << 20;
/// The size in bytes at which the journal is rewritten with the present mounts.
const LARGE: u64 = 4 << 20;

/// A mount that a daemon made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The dataset, by its name at that time.
    pub(crate) dataset: String,
    /// The mountpoint.
    pub(crate) target: PathBuf,
    /// The options that were given.
    pub(crate) given: Vec<String>,
    /// `st_dev` of the mounted file system, as `major:minor`.
    device: String,
    /// It was unmounted. The table of mounts doesn't show that for a file system nested in another
    /// mount.
    #[serde(default, skip_serializing_if = "is_false")]
    ended: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(ended: &bool) -> bool {
    !ended
}

/// The files in a daemon's folder; none without a daemon.
#[derive(Default)]
pub(crate) struct Journal {
    folder: Mutex<Option<PathBuf>>,
}

fn journal(folder: &Path) -> PathBuf {
    folder.join("mounts")
}

fn left(folder: &Path) -> PathBuf {
    folder.join("mounts.left")
}

impl Journal {
    /// Records mounts in this folder from now on.
    pub(crate) fn open(&self, folder: &Path) {
        *self.folder.lock() = Some(folder.to_owned());
    }

    /// Records a mount, or its new options or name.
    pub(crate) fn made(&self, dataset: &str, mount: &fuse::Served, given: &[String]) {
        self.add(dataset, (mount.target(), mount.device()), given, false);
    }

    /// Records that a dataset nested in another mount was unmounted.
    pub(crate) fn ended(&self, dataset: &str, mount: &fuse::Served) {
        self.add(dataset, (mount.target(), mount.device()), &[], true);
    }

    fn add(
        &self,
        dataset: &str,
        (target, (major, minor)): (&Path, (u32, u32)),
        given: &[String],
        ended: bool,
    ) {
        let folder = self.folder.lock();
        let Some(folder) = &*folder else { return };
        let write = || {
            let device = format!("{major}:{minor}");
            let note = Note {
                dataset: dataset.to_owned(),
                target: target.to_owned(),
                given: given.to_vec(),
                device,
                ended,
            };
            let file = journal(folder);
            if file.metadata().is_ok_and(|meta| meta.len() > LARGE) {
                let here = fuse::system::table().map_err(io::Error::other)?;
                replace(&file, &there(read(&file)?, &here))?;
            }
            let mut end = OpenOptions::new().append(true).create(true).mode(0o600).open(&file)?;
            end.write_all(&line(&note))
        };
        if let Err(error) = write() {
            tracing::warn!(dataset, %error, "should the daemon die, it is not mounted here again by itself");
        }
    }

    /// The left mounts of a pool, by dataset. They are forgotten here.
    pub(crate) fn take(&self, pool: &str) -> Vec<Note> {
        let folder = self.folder.lock();
        let Some(folder) = &*folder else { return Vec::new() };
        let own = |note: &Note| note.dataset.split(['/', '@']).next() == Some(pool);
        let take = || {
            let (taken, kept): (Vec<Note>, Vec<Note>) = read(&left(folder))?.into_iter().partition(own);
            if !taken.is_empty() {
                replace(&left(folder), &kept)?;
            }
            Ok::<_, io::Error>(taken)
        };
        take().unwrap_or_else(|error| {
            tracing::warn!(pool, %error, "what a dead daemon had mounted of it can't be told");
            Vec::new()
        })
    }
}

impl Journal {
    /// Keeps a left mount in the list.
    pub(crate) fn leave(&self, note: &Note) {
        let folder = self.folder.lock();
        let Some(folder) = &*folder else { return };
        let keep = || {
            let mut all = read(&left(folder))?;
            all.push(note.clone());
            replace(&left(folder), &all)
        };
        if let Err(error) = keep() {
            tracing::warn!(dataset = note.dataset, %error, "it is not mounted again by itself");
        }
    }
}

/// Records which of the folder's mounts exist, and returns them.
///
/// Call it after the daemon that made them is gone, and before any mount is removed.
///
/// # Errors
/// The system's error: the files of the journal can't be read or written.
pub(crate) fn remember(folder: &Path, here: &[Mounted]) -> io::Result<Vec<Mounted>> {
    let made = read(&journal(folder))?;
    let own = |mount: &&Mounted| made.iter().any(|note| is(note, mount));
    let own: Vec<Mounted> = here.iter().filter(own).cloned().collect();
    let mut all = read(&left(folder))?;
    for note in there(made, &own) {
        all.retain(|old| old.dataset != note.dataset);
        all.push(note);
    }
    replace(&left(folder), &all)?;
    // From now on the journal is this daemon's.
    replace(&journal(folder), &[])?;
    Ok(own)
}

/// The notes whose mounts, or the mounts around them, exist: the last note of each.
fn there(notes: Vec<Note>, here: &[Mounted]) -> Vec<Note> {
    let mut kept: Vec<Note> = Vec::new();
    for note in notes {
        if here.iter().any(|mount| holds(&note, mount)) {
            kept.retain(|old| (&old.device, &old.target) != (&note.device, &note.target));
            if !note.ended {
                kept.push(note);
            }
        }
    }
    kept
}

fn is(note: &Note, mount: &Mounted) -> bool {
    note.device == mount.device && note.target == mount.target
}

/// Whether a note is about this mount, or about a file system nested in it.
fn holds(note: &Note, mount: &Mounted) -> bool {
    note.device == mount.device && note.target.starts_with(&mount.target)
}

fn line(note: &Note) -> Vec<u8> {
    let mut line = serde_json::to_vec(note).expect("texts can be written");
    line.push(b'\n');
    line
}

fn read(file: &Path) -> io::Result<Vec<Note>> {
    let open = match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        open => open?,
    };
    let mut bytes = Vec::new();
    open.take(MAX).read_to_end(&mut bytes)?;
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn replace(file: &Path, notes: &[Note]) -> io::Result<()> {
    let beside = file.with_extension("new");
    let bytes: Vec<u8> = notes.iter().flat_map(line).collect();
    let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    new.write_all(&bytes)?;
    new.sync_all()?;
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests;
