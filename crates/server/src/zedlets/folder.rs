//! The folder of zedlets: which of them an event runs, and which are not run at all.
//!
//! # Theory
//! A zedlet is named after what it wants: an event's class or the part of it behind `….fs.zfs.` (*subclass*), or `all`, and then nothing, or something that is no letter: `statechange-led.sh`, `scrub_finish`, `all-log`.
//! What runs here does so with the daemon's rights: it must belong to root or the daemon's user, and nobody else may write to it, nor into the folder. The folder is
//! read at each event, so a zedlet is there as soon as its file is; why one is not run is said once, until its file changes.

use super::ZedletError;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files of the folder that are looked at; more are no zedlets.
const MOST: usize = 4096;
/// What others than the owner need to write.
const OTHERS_WRITE: u32 = 0o022;

pub(super) struct Folder {
    path: PathBuf,
    /// Why files are not run, as it was said, by their names.
    said: BTreeMap<OsString, String>,
    /// Why the folder can't be used, as it was said.
    trouble: Option<String>,
}

impl Folder {
    /// A folder that is fit for it.
    pub(super) fn open(path: &Path) -> Result<Self, ZedletError> {
        check(path)?;
        Ok(Self { path: path.to_owned(), said: BTreeMap::new(), trouble: None })
    }

    /// What is run at events of a class, in the order of the names.
    pub(super) fn fitting(&mut self, class: &str) -> Vec<PathBuf> {
        let names = check(&self.path).and_then(|()| {
            let failed = |source| ZedletError::Io { folder: self.path.clone(), source };
            let names = std::fs::read_dir(&self.path).map_err(failed)?.take(MOST);
            names.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect::<Result<Vec<_>, _>>()
        });
        let mut names = match names {
            Ok(names) => {
                self.trouble = None;
                names
            }
            Err(error) => {
                let trouble = api::chain(&error);
                if self.trouble.as_ref() != Some(&trouble) {
                    tracing::error!("{trouble}");
                }
                self.trouble = Some(trouble);
                return Vec::new();
            }
        };
        names.sort();
        self.said.retain(|name, _| names.binary_search(name).is_ok());
        names.into_iter().filter(|name| fits(name, class)).filter_map(|name| self.accept(name)).collect()
    }

    /// A file's path, if it may be run.
    fn accept(&mut self, name: OsString) -> Option<PathBuf> {
        let path = self.path.join(&name);
        let Err(why) = may_run(&path) else {
            self.said.remove(&name);
            return Some(path);
        };
        if self.said.get(&name) != Some(&why) {
            tracing::warn!(zedlet = %path.display(), "it is not run at events: {why}");
            self.said.insert(name, why);
        }
        None
    }
}

/// Whether a file is named after a class of events.
pub(super) fn fits(name: &OsStr, class: &str) -> bool {
    [class, subclass(class), "all"].iter().any(|wanted| {
        let rest = name.as_bytes().strip_prefix(wanted.as_bytes());
        !wanted.is_empty() && rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphabetic))
    })
}

/// What follows the first three parts of a class, which end with `fs.zfs`; all of a class that has fewer.
pub(super) fn subclass(class: &str) -> &str {
    class.splitn(4, '.').nth(3).unwrap_or(class)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn check(path: &Path) -> Result<(), ZedletError> {
    let folder = path.to_owned();
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(source) => return Err(ZedletError::Io { folder, source }),
    };
    if !meta.is_dir() {
        return Err(ZedletError::NoFolder { folder });
    }
    if ![0, user()].contains(&meta.uid()) {
        return Err(ZedletError::Foreign { folder, owner: meta.uid(), user: user() });
    }
    if meta.mode() & OTHERS_WRITE != 0 {
        return Err(ZedletError::Open { folder, mode: meta.mode() & 0o7777 });
    }
    Ok(())
}

/// Why a file is not run.
fn may_run(path: &Path) -> Result<(), String> {
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("it is no file".to_owned());
    }
    if ![0, user()].contains(&meta.uid()) {
        return Err(format!("it belongs to user {}, and not to root or user {}", meta.uid(), user()));
    }
    if meta.mode() & OTHERS_WRITE != 0 {
        return Err(format!("others may write to it: its mode is {:04o}", meta.mode() & 0o7777));
    }
    if meta.mode() & 0o100 == 0 {
        return Err("it is not executable".to_owned());
    }
    Ok(())
}
