//! Which mounts a daemon made, for the next one in its folder, should it die.
//!
//! # Theory
//! A daemon that is killed leaves dead mounts, which the next one takes away ([`crate::daemon`]). What belongs somewhere by its properties comes back with `zfs mount -a`; but where
//! somebody mounted a legacy file system, or with which options any other, no property says. So every mount is written down in the daemon's folder when it is made: a line with the dataset,
//! the place, the options that it was given, and the number of the mounted device, by which the table of mounts tells whether it is still there.
//!
//! The next daemon keeps the lines whose mounts are there, dead, before it takes them away: they are *left*. When a pool's file systems are mounted next, all at once, those come back as they were
//! ([`crate::pools`]); each is tried once, and then forgotten, as all of a pool are when it is exported. What somebody unmounted meanwhile is not there, and so not left.
//!
//! Nothing of this outlives a restart of the machine, nor do mounts.
//!
//! # Crash
//! Lines are only added, and one that was not written whole is passed over; the list of what is left takes its predecessor's place as a whole, and is there before anything is taken away.
//!
//! # Absent
//! Mounts of daemons from before this was written, and pools that were exported in order.

use fuse::system::Mounted;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of either file that are read.
const MAX: u64 = 64 << 20;
/// Bytes of the journal from which it is written anew, with what is mounted still.
const LARGE: u64 = 4 << 20;

/// A mount that a daemon made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The dataset, as it was called then.
    pub(crate) dataset: String,
    /// Where.
    pub(crate) target: PathBuf,
    /// The options that it was given.
    pub(crate) given: Vec<String>,
    /// `st_dev` of what is mounted, as `major:minor`.
    device: String,
    /// It was unmounted, which the table of mounts doesn't show of what lies in the mount of another.
    #[serde(default, skip_serializing_if = "is_false")]
    ended: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(ended: &bool) -> bool {
    !ended
}

/// The files of a daemon's folder; none where there is no daemon.
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
    /// Writes down what is mounted from now on.
    pub(crate) fn open(&self, folder: &Path) {
        *self.folder.lock() = Some(folder.to_owned());
    }

    /// A dataset was mounted, with these options; or has others, or another name, since.
    pub(crate) fn made(&self, dataset: &str, mount: &fuse::Served, given: &[String]) {
        self.add(dataset, (mount.target(), mount.device()), given, false);
    }

    /// A dataset that lies in the mount of another was unmounted.
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

    /// What was left of a pool, by dataset; it is forgotten here.
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
    /// Something of what was left stays so.
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

/// Before anything is taken away, and after the daemon that made them is gone: remembers which of the folder's mounts are there. Says which these are.
///
/// # Errors
/// As reading and writing fails.
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
    // From now on it tells of another daemon's.
    replace(&journal(folder), &[])?;
    Ok(own)
}

/// Those whose mounts are here, or the mounts that they lie in; the last that was written of each.
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

/// The same, or it lies in this mount.
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
