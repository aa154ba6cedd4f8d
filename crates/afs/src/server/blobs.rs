//! The directories of volumes as clients fetch them, kept in memory.
//!
//! # Theory
//! A client fetches a directory as a blob of pages ([`crate::dir`]), and a status has the length of
//! the blob. It is made of the entries of the file system when it is first needed, kept for its
//! version, and changed with the directory. All volumes share one limit of bytes.
//!
//! A blob that was changed may have its entries in other places than one that is made anew. So a
//! client that fetches a directory in parts, with a restart of the server in between, may fetch it
//! twice.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use observe::lock::Mutex;
use zpl::{DirCookie, FileSystem, Node};

use super::instance::Instance;
use crate::dir::{Builder, Editor, Entry};
use crate::types::{Unique, Vnode};
use crate::volume::vnode;
use crate::{Error, Place, Record, Result};

/// Parts of the cache, each with a lock.
const SHARDS: usize = 16;
/// The default limit in bytes.
const LIMIT: usize = 64 << 20;

type Key = (Instance, Vnode);

/// Directories of all volumes.
#[derive(Debug)]
pub struct Blobs {
    shards: [Mutex<Shard>; SHARDS],
    /// Most bytes of a shard.
    limit: usize,
}

#[derive(Debug, Default)]
struct Shard {
    blobs: HashMap<Key, (u64, Arc<Editor>)>,
    /// The keys in the order in which they came.
    order: VecDeque<Key>,
    bytes: usize,
}

impl Default for Blobs {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Blobs {
    /// A cache of so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), limit: limit / SHARDS }
    }

    fn shard(&self, (volume, vnode): Key) -> &Mutex<Shard> {
        &self.shards[volume.mix(vnode) % SHARDS]
    }

    /// The blob of a directory at this version. The caller has locked the directory.
    ///
    /// # Errors
    /// The errors of [`blob`].
    pub fn get(&self, volume: Instance, fs: &FileSystem, node: &Node, version: u64) -> Result<Arc<Editor>> {
        let number = vnode(node.object()).unwrap_or_default();
        let key = (volume, number);
        if let Some((known, blob)) = self.shard(key).lock().blobs.get(&key)
            && *known == version
        {
            return Ok(Arc::clone(blob));
        }
        let made = Arc::new(Editor::new(blob(fs, number, node)?));
        let mut shard = self.shard(key).lock();
        shard.bytes += made.len();
        match shard.blobs.insert(key, (version, Arc::clone(&made))) {
            Some((_, old)) => shard.bytes -= old.len(),
            None => shard.order.push_back(key),
        }
        while shard.bytes > self.limit
            && let Some(oldest) = shard.order.pop_front()
        {
            if let Some((_, old)) = shard.blobs.remove(&oldest) {
                shard.bytes -= old.len();
            }
        }
        Ok(made)
    }

    /// Changes the blob of a directory from one version to another, if it is kept. The caller has
    /// locked the directory.
    pub fn edit(
        &self,
        (volume, vnode): (Instance, Vnode),
        (from, to): (u64, u64),
        change: impl FnOnce(&mut Editor) -> bool,
    ) {
        if from == to {
            return;
        }
        let key = (volume, vnode);
        let shard = &mut *self.shard(key).lock();
        let Some((version, blob)) = shard.blobs.get_mut(&key) else { return };
        let before = blob.len();
        // The former version may be under way to a client still. Then this copies it.
        let fits = *version == from && change(Arc::make_mut(blob));
        shard.bytes = shard.bytes + blob.len() - before;
        // A blob that does not fit is made anew.
        *version = if fits { to } else { u64::MAX };
    }

    /// Forgets the directories of a volume.
    pub fn forget(&self, volume: Instance) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            let bytes = &mut shard.bytes;
            shard.blobs.retain(|(of, _), (_, blob)| {
                let keep = *of != volume;
                *bytes -= if keep { 0 } else { blob.len() };
                keep
            });
            shard.order.retain(|(of, _)| *of != volume);
        }
    }
}

/// The entries of a directory as clients of a cell have them.
///
/// # Errors
/// * [`Error::Shape`], [`Error::Range`]: an entry is no vnode of AFS.
/// * [`Error::TooLong`]: there are more entries than AFS allows.
/// * [`Error::FileSystem`]: the directory can't be read.
fn blob(fs: &FileSystem, number: Vnode, node: &Node) -> Result<Vec<u8>> {
    let place = Place { record: Record::Vnode(number), at: 0 };
    let named = |object| -> Result<(Vnode, Unique)> {
        let vnode = vnode(object).ok_or(Error::Shape { place, why: "an entry names no vnode" })?;
        let generation = fs.node(object)?.attr().generation;
        let range = |_| Error::Range { place, field: "the unique", value: generation };
        Ok((vnode, Unique(u32::try_from(generation).map_err(range)?)))
    };
    let mut builder = Builder::new(named(node.object())?, named(node.attr().parent)?);
    for entry in fs.read_dir(node.object(), DirCookie(2))? {
        let entry = entry?;
        let (vnode, unique) = named(entry.object)?;
        builder.add(Entry { name: &entry.name, vnode, unique })?;
    }
    Ok(builder.finish())
}
