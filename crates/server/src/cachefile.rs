//! The cache file: what is imported, for whoever imports it again after a restart (`zpool import -c`).
//!
//! # Theory
//! A pool that is written is remembered in a file with its config, until it is exported. Which file, its property `cachefile` says: a path, `none`,
//! or nothing, which is the usual one. Only root's daemon has a usual one; others remember what they are told to. A pool under an
//! alternate root is remembered only where a file is named.
//!
//! Others may keep pools in the same file: a kernel module, or another daemon. So what the file says of pools that are not ours stays, and a file
//! that can't be read is left alone. One that can be read and is damaged is kept under another name, `FILE.bad-N`, before a new one takes its place.
//! That a file can't be written is no failure of what was asked for: it is logged.
//!
//! # Crash
//! A new file takes the old one's place as a whole.
//!
//! # See
//! OpenZFS `spa_write_cachefile`, which rewrites the file in place, and from its own pools alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ondisk::{Guid, Nvlist, Value};
use parking_lot::{Mutex, RwLock};

use crate::pools::Imported;
use crate::view::PoolFacts;

/// The usual cache file (`ZPOOL_CACHE`).
pub const USUAL: &str = "/etc/zfs/zpool.cache";
/// Most bytes of a cache file that are read.
const MAX: u64 = 64 << 20;
/// How long a file that is half written is waited for.
const MOMENT: Duration = Duration::from_millis(100);
/// Most damaged files that are kept beside one.
const BAD_MAX: u32 = 1000;

/// The cache files of a daemon's pools.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    usual: RwLock<Option<PathBuf>>,
    /// Held while a file is read and written again.
    writing: Mutex<()>,
}

impl Memory {
    /// Names the usual file.
    pub(crate) fn set_usual(&self, file: &Path) {
        *self.usual.write() = Some(file.to_owned());
    }

    /// The file that remembers a pool, if one does.
    pub(crate) fn file_of(&self, facts: &PoolFacts) -> Option<PathBuf> {
        match facts.cachefile.as_deref() {
            Some("none") => None,
            Some(file) => Some(PathBuf::from(file)),
            None if facts.altroot.is_some() => None,
            None => self.usual.read().clone(),
        }
    }

    /// Writes a file anew: with those of these pools that are remembered in it, and without the pool `gone`.
    pub(crate) fn write(&self, file: &Path, pools: &[Arc<Imported>], gone: Option<Guid>) {
        let _alone = self.writing.lock();
        let old = match old(file) {
            // OpenZFS writes it in place: what is half written now is whole in a moment.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                std::thread::sleep(MOMENT);
                match old(file) {
                    Err(e) if e.kind() == io::ErrorKind::InvalidData => keep_bad(file, &e),
                    old => old,
                }
            }
            old => old,
        };
        let written = old.and_then(|old| {
            let new = self.contents(file, &old, pools, gone);
            if new.iter().next().is_some() {
                replace(file, &new.encode_xdr())
            } else {
                std::fs::remove_file(file)
            }
        });
        match written {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                tracing::debug!(file = %file.display(), "no cache file, nor a folder for it");
            }
            Err(error) => tracing::warn!(file = %file.display(), %error, "the cache file stays as it was"),
            Ok(()) => {}
        }
    }

    fn contents(&self, file: &Path, old: &Nvlist, pools: &[Arc<Imported>], gone: Option<Guid>) -> Nvlist {
        let ours: Vec<u64> = pools.iter().map(|p| p.pool.spa().guid().0).chain(gone.map(|g| g.0)).collect();
        let mut new = Nvlist::new();
        for (name, value) in old.iter() {
            let guid = old.list(name).and_then(|pool| pool.u64("pool_guid"));
            if guid.is_none_or(|guid| !ours.contains(&guid)) {
                new.set(name, value.clone());
            }
        }
        for pool in pools {
            let spa = pool.pool.spa();
            let here = self.file_of(&pool.facts.read()).is_some_and(|own| own == file);
            // Whether one that is only read could be imported for writing, nobody knows.
            if here && spa.writer().is_some() && Some(spa.guid()) != gone {
                let config = spa.config();
                let name = config.name.clone().unwrap_or_else(|| spa.name().to_owned());
                new.set(name, Value::List(config.to_mos(config.txg)));
            }
        }
        new
    }
}

/// What a file says now; nothing if there is none.
fn old(file: &Path) -> io::Result<Nvlist> {
    let open = match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Nvlist::new()),
        open => open?,
    };
    let mut bytes = Vec::new();
    open.take(MAX).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        return Ok(Nvlist::new());
    }
    Nvlist::decode(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Keeps a damaged file under a name that is free, and begins with nothing. It stays where it is, too, until a new one takes its place.
fn keep_bad(file: &Path, why: &io::Error) -> io::Result<Nvlist> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    for n in 1..=BAD_MAX {
        let kept = file.with_file_name(format!("{name}.bad-{n}"));
        match std::fs::hard_link(file, &kept) {
            Ok(()) => {
                let (file, kept) = (file.display(), kept.display());
                tracing::warn!(%file, %kept, why = api::chain(why), "the cache file is damaged: it is kept, and a new one is written");
                return Ok(Nvlist::new());
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // It was kept before, and no new one could be written.
                if is_same(file, &kept) {
                    return Ok(Nvlist::new());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many damaged ones are kept beside it"))
}

fn is_same(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some_and(|a| id(b) == Some(a))
}

/// Puts a file in the place of another, as a whole.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let beside = file.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let fill = || {
        // A process of this number may have died here, and in a container each has the same.
        match std::fs::remove_file(&beside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
        new.write_all(bytes)?;
        new.sync_all()?;
        std::fs::rename(&beside, file)
    };
    let done = fill();
    if done.is_err() {
        // What is left of it is of no use; that it can't be removed either changes nothing.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
mod tests;
