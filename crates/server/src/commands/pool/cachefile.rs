//! The cache file: the imported pools, for an import after a restart (`zpool import -c`).
//!
//! # Theory
//! A writable pool is listed in a cache file with its config, until it is exported. Its property
//! `cachefile` selects the file: a path, `none`, or nothing for the default file. Only root's
//! daemon has a default file; other daemons write only named ones. A pool under an alternate root
//! is listed only in a named file.
//!
//! A kernel module or another daemon may keep pools in the same file. So this module keeps the
//! entries of all pools that are not its own. It does not touch a file that it can't read. It keeps
//! a readable but damaged file as `FILE.bad-N` before it writes a new one.
//!
//! A request does not fail if the file can't be written. The daemon logs that.
//!
//! # Crash
//! A new file replaces the old one as a whole.
//!
//! # See
//! OpenZFS's `spa_write_cachefile` rewrites the file in place, and from its own pools alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use observe::lock::{Mutex, RwLock};
use ondisk::{Guid, Nvlist, Value};

use crate::pools::imported::Imported;
use crate::view::PoolFacts;

/// The default cache file (`ZPOOL_CACHE`).
pub const USUAL: &str = "/etc/zfs/zpool.cache";
/// Most bytes of a cache file to read.
const MAX: u64 = 64 << 20;
/// How long to wait before a damaged file is read again.
const MOMENT: Duration = Duration::from_millis(100);
/// Most damaged files to keep beside one.
const BAD_MAX: u32 = 1000;

/// The cache files of a daemon's pools.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    usual: RwLock<Option<PathBuf>>,
    /// Held while a file is read and rewritten.
    writing: Mutex<()>,
}

impl Memory {
    /// Sets the default file.
    pub(crate) fn set_usual(&self, file: &Path) {
        *self.usual.write() = Some(file.to_owned());
    }

    /// The file that lists a pool, if one does.
    pub(crate) fn file_of(&self, facts: &PoolFacts) -> Option<PathBuf> {
        match facts.cachefile.as_deref() {
            Some("none") => None,
            Some(file) => Some(PathBuf::from(file)),
            None if facts.altroot.is_some() => None,
            None => self.usual.read().clone(),
        }
    }

    /// Rewrites a file with those of `pools` that belong in it, and without the pool `gone`.
    pub(crate) fn write(&self, file: &Path, pools: &[Arc<Imported>], gone: Option<Guid>) {
        let _alone = self.writing.lock();
        let old = match old(file) {
            // OpenZFS writes the file in place: half of it now is all of it in a moment.
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
            // A pool that is imported read-only may not be importable for writing.
            if here && spa.writer().is_some() && Some(spa.guid()) != gone {
                let config = spa.config();
                let name = config.name.clone().unwrap_or_else(|| spa.name().to_owned());
                new.set(name, Value::List(config.to_mos(config.txg)));
            }
        }
        new
    }
}

/// The present contents of a file; empty if it does not exist.
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

/// The pools that a file lists; none if it can't be read.
pub(crate) fn pools_of(file: &Path) -> Vec<Guid> {
    let list = match old(file) {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the cache file can't be read");
            return Vec::new();
        }
    };
    let guid = |name: &[u8]| list.list(name)?.u64("pool_guid").map(Guid);
    list.iter().filter_map(|(name, _)| guid(name)).collect()
}

/// Keeps a copy of a damaged file under a free name, and returns an empty list. The file itself
/// stays until a new one replaces it.
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
                // The file was kept earlier, and no new one could be written.
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

/// Replaces a file by another as a whole.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let beside = file.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let fill = || {
        // A process of this number may have died here, and in a container each daemon has the same
        // number.
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
        // The partial file is useless, and failing to remove it changes nothing.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
mod tests;
