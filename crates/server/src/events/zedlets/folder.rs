//! The folder of zedlets: which of them an event runs, and which never run.
//!
//! # Theory
//! The name of a zedlet begins with an event's class, the part of it behind `….fs.zfs.`
//! (*subclass*), or `all`. After that it ends, or continues with a character that is not a letter:
//! `statechange-led.sh`, `scrub_finish`, `all-log`.
//!
//! A zedlet runs with the daemon's rights. So it must belong to root or the daemon's user, and no
//! other user may write to it or into the folder. The folder is read at each event, so a new file
//! takes effect at once. The reason why a file does not run is logged once, until the file changes.

use crate::events::zedlets::ZedletError;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most files of the folder. The others are not zedlets.
const MOST: usize = 4096;
/// The mode bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;

pub(crate) struct Folder {
    path: PathBuf,
    /// The logged reasons why files do not run, by file name.
    said: BTreeMap<OsString, String>,
    /// The logged reason why the folder can't be used.
    trouble: Option<String>,
}

impl Folder {
    /// Opens a folder that can be used.
    ///
    /// # Errors
    /// * [`ZedletError::Io`]: it can't be read.
    /// * [`ZedletError::NoFolder`]: it is not a directory.
    /// * [`ZedletError::Foreign`], [`ZedletError::Open`]: other users control it.
    pub(crate) fn open(path: &Path) -> Result<Self, ZedletError> {
        check(path)?;
        Ok(Self { path: path.to_owned(), said: BTreeMap::new(), trouble: None })
    }

    /// The zedlets for events of a class, in the order of their names.
    pub(crate) fn fitting(&mut self, class: &str) -> Vec<PathBuf> {
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

    /// The path of a file, if it may run.
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

/// Whether a file's name matches a class of events.
pub(crate) fn fits(name: &OsStr, class: &str) -> bool {
    [class, subclass(class), "all"].iter().any(|wanted| {
        let rest = name.as_bytes().strip_prefix(wanted.as_bytes());
        !wanted.is_empty() && rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphabetic))
    })
}

/// The part of a class after its first three, which end with `fs.zfs`. All of a class with fewer
/// parts.
pub(crate) fn subclass(class: &str) -> &str {
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

/// Checks whether a file may run. The error is the reason.
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
