//! What is different between two states of one file system, by number and name: for who keeps what he was told of one, and is about to have the other
//! (`zfs rollback` while it is mounted).
//!
//! # Theory
//! Whatever changes of a file changes its dnode, and with it its block of dnodes. The two trees of dnodes are gone through side by side, and what both
//! share is passed over, as high up as it is shared: the way is as long as what was changed.

use crate::{DirCookie, Error, FileSystem, FileType, Result};
use dmu::Extent;
use ondisk::dnode::DNODE_MIN_SIZE;
use ondisk::{BlkId, Level, ObjNum};
use std::collections::{HashMap, HashSet};

/// Which file an object number means: there may be another of that number later, of another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileRef {
    /// The number.
    pub object: ObjNum,
    /// The group that made it (`z_gen`).
    pub generation: u64,
}

/// What [`compare`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Files of the one state that may be different in the other, or not there.
    pub files: Vec<FileRef>,
    /// Files of the other state whose numbers other files have in the first.
    pub reborn: Vec<FileRef>,
    /// Names that mean something else, or nothing, in directories of the one state, and those that mean something in the other alone.
    pub names: Vec<(FileRef, Vec<u8>)>,
}

/// Compares what a file system is now with what it is going to be. Neither may change meanwhile.
///
/// # Errors
/// As reading fails.
pub fn compare(now: &FileSystem, then: &FileSystem) -> Result<Differences> {
    let mut found = Differences::default();
    let mut dirs = Vec::new();
    each_changed(now, then, &mut |object| {
        let (Some((file, is_dir)), later) = (file(now, object)?, file(then, object)?) else { return Ok(()) };
        found.files.push(file);
        let stays = later.filter(|(later, _)| *later == file);
        found.reborn.extend(later.filter(|_| stays.is_none()).map(|(later, _)| later));
        if is_dir {
            dirs.push((file, stays.is_some_and(|(_, is_dir)| is_dir)));
        }
        Ok(())
    })?;
    let reborn: HashSet<ObjNum> = found.reborn.iter().map(|file| file.object).collect();
    for (dir, stays) in dirs {
        let mut names = names(now, dir.object)?;
        let later = if stays { names_later(then, dir.object, &mut names, &reborn)? } else { Vec::new() };
        found.names.extend(names.into_keys().chain(later).map(|name| (dir, name)));
    }
    Ok(found)
}

/// A file's identity, and whether it is a directory; `None` if there is none of that number.
fn file(fs: &FileSystem, object: ObjNum) -> Result<Option<(FileRef, bool)>> {
    match fs.node(object) {
        Ok(node) => {
            let attr = node.attr();
            let file = FileRef { object, generation: attr.generation };
            Ok(Some((file, attr.kind == FileType::Directory)))
        }
        Err(Error::NoFile { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn names(fs: &FileSystem, dir: ObjNum) -> Result<HashMap<Vec<u8>, ObjNum>> {
    let entries = fs.node(dir)?.read_dir(DirCookie::START)?;
    entries.map(|entry| entry.map(|entry| (entry.name, entry.object))).collect()
}

/// Takes from `names` those that mean the same in the other state, and returns those that are there alone.
fn names_later(
    then: &FileSystem,
    dir: ObjNum,
    names: &mut HashMap<Vec<u8>, ObjNum>,
    reborn: &HashSet<ObjNum>,
) -> Result<Vec<Vec<u8>>> {
    let mut alone = Vec::new();
    for entry in then.node(dir)?.read_dir(DirCookie::START)? {
        let entry = entry?;
        match names.get(&entry.name) {
            Some(object) if *object == entry.object && !reborn.contains(object) => {
                names.remove(&entry.name);
            }
            Some(_) => {}
            None => alone.push(entry.name),
        }
    }
    Ok(alone)
}

/// Goes through the numbers of all objects whose blocks of dnodes are not the same.
fn each_changed(
    now: &FileSystem,
    then: &FileSystem,
    each: &mut dyn FnMut(ObjNum) -> Result<()>,
) -> Result<()> {
    let (a, b) = (now.objset().meta_dnode(), then.objset().meta_dnode());
    let epbs = a.phys().epbs();
    // Trees of other shapes have no blocks in common by place.
    let alike = b.phys().epbs() == epbs && b.block_size() == a.block_size() && a.nlevels() == b.nlevels();
    let shared = if alike { a.nlevels() } else { 0 };
    let per = a.block_size() / DNODE_MIN_SIZE as u64;
    let (size, mut walks) = (a.block_size(), [a.walk(), b.walk()]);
    let mut at = 0_u64;
    loop {
        let mut next = None;
        for walk in &mut walks {
            // A tree that leads back to itself ends in an error.
            let found =
                walk.next_offset(at.saturating_mul(size), Extent::Data).map_err(|damage| damage.error)?;
            next = [next, found].into_iter().flatten().min();
        }
        let Some(blkid) = next.map(|offset| BlkId(offset / size)) else { return Ok(()) };
        let mut same = None;
        for level in 0..shared {
            let above = BlkId(blkid.0 >> (u32::from(level) * epbs));
            if a.bp(Level(level), above)? != b.bp(Level(level), above)? {
                break;
            }
            same = Some((u32::from(level) * epbs, above));
        }
        at = match same {
            Some((shift, above)) => (above.0 + 1) << shift,
            None => {
                (blkid.0 * per..(blkid.0 + 1) * per).try_for_each(|object| each(ObjNum(object)))?;
                blkid.0 + 1
            }
        };
    }
}
