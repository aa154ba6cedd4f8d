//! What keeps a file system mounted.
//!
//! # Theory
//! Three things do: mounts in it or over it, programs that use it, and other places where it is
//! mounted. The table of mounts shows the first, and this daemon knows its nested file systems.
//! [`fuse::Served`] finds the others.
//!
//! Callers other than the daemon's owner see no processes: they learn only that it is busy.

use crate::mounts::{MountedFs, Mounts};
use api::{Caller, Error, Reason};
use std::path::Path;

/// How many users of one file system are named.
const NAMED_MAX: usize = 8;

impl MountedFs {
    /// The processes that have it mounted elsewhere, as text.
    pub fn kept_by(&self) -> String {
        let holders = self.mount.holders();
        if holders.is_empty() { "another mount of it".to_owned() } else { holders.join(", ") }
    }

    /// Whether it is mounted at the place of another, or below.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        self.target().starts_with(other.target()) && self.object != other.object && self.number > other.number
    }
}

impl Mounts {
    /// Adds to the error of a busy file system what keeps it mounted, if the caller may see that.
    pub(crate) fn with_holders(&self, caller: &Caller, live: &MountedFs, error: Error) -> Error {
        match error.reason {
            Reason::Busy => match self.held_by(caller, live) {
                Some(by) => Error::new(error.about, Reason::HeldOpen { by }),
                None => error,
            },
            _ => error,
        }
    }

    /// What keeps a busy file system mounted, as text, if the caller may see that.
    pub(super) fn held_by(&self, caller: &Caller, live: &MountedFs) -> Option<String> {
        if !caller.owns() {
            return None;
        }
        let mut found = self.inside(live);
        // A mount inside has its own users.
        if found.is_empty() {
            found = live.mount.in_use_by(caller.peer().pid);
        }
        if found.is_empty() {
            let at = live.target().display();
            found.push(format!(
                "a program that this daemon can't look at; 'fuser -vm {at}' by root of the machine may find it"
            ));
        }
        found.truncate(NAMED_MAX);
        Some(found.join(", "))
    }

    /// The mounts in a file system or over it, as text.
    fn inside(&self, live: &MountedFs) -> Vec<String> {
        let named = |name: &str, at: &Path| format!("'{name}', mounted at {}", at.display());
        let all = self.list();
        let nested = all.iter().filter(|other| other.mount.is_nested() && other.is_below(live));
        let mut found: Vec<String> = nested.map(|other| named(&other.name(), other.target())).collect();
        let table = fuse::system::table().unwrap_or_else(|error| {
            tracing::warn!(%error, "it is not known what else is mounted");
            Vec::new()
        });
        let device = |live: &MountedFs| {
            let (major, minor) = live.mount.device();
            format!("{major}:{minor}")
        };
        let (own, target) = (device(live), live.target());
        // A file system that was mounted before can only be hidden by this one.
        let since = table.iter().rposition(|row| row.device == own && target.starts_with(&row.target));
        let later = table.iter().skip(since.map_or(0, |at| at + 1));
        for row in later.filter(|row| row.target.starts_with(target) || target.starts_with(&row.target)) {
            if found.len() >= NAMED_MAX {
                break;
            }
            let ours = all.iter().find(|other| other.target() == row.target && device(other) == row.device);
            found.push(match ours {
                Some(other) => named(&other.name(), &row.target),
                None if row.fs_type == fuse::system::FS_TYPE => {
                    named(&row.source.to_string_lossy(), &row.target)
                }
                None => format!("what is mounted at {} ({})", row.target.display(), row.fs_type),
            });
        }
        found
    }
}
