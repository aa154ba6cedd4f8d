//! What is different between two states of one file system, by number and name: for who keeps what he was told of one, and is about to have the other
//! (`zfs rollback` while it is mounted).
//!
//! # Theory
//! Whatever changes of a file changes its dnode, and with it its block of dnodes. The two trees of dnodes are gone through side by side, and what both
//! share is passed over, as high up as it is shared: the way is as long as what was changed.
//!
//! A number means the same file in both if it was made in the same group. Of one without names that waits to be freed nothing is to be had: who
//! opens the other state frees it.

use crate::{DirCookie, Error, FileSystem, FileType, Result};
use dmu::Extent;
use ondisk::dnode::DNODE_MIN_SIZE;
use ondisk::{BlkId, Level, ObjNum};
use std::collections::{HashMap, HashSet};

/// What [`compare`] found, by the numbers of the one state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Files of the one state that may be different in the other, or not there.
    pub files: Vec<ObjNum>,
    /// Those whose numbers mean other files in the other state, or none, and all that have no name in the other state.
    pub gone: Vec<ObjNum>,
    /// Names that mean something else, or nothing, in directories of the one state, and those that mean something in the other alone.
    pub names: Vec<(ObjNum, Vec<u8>)>,
}

/// A file, as far as it matters whether another is the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Is {
    /// The group that made it (`z_gen`): where it was received, of the pool that sent it.
    generation: u64,
    directory: bool,
}

/// Compares what a file system is now with what it is going to be. Neither may change meanwhile. `None` if more than `most` files and names
/// are different, or a directory that changed has more names: so this takes no more memory.
///
/// # Errors
/// As reading fails.
pub fn compare(now: &FileSystem, then: &FileSystem, most: usize) -> Result<Option<Differences>> {
    let mut found = Differences::default();
    let mut dirs = Vec::new();
    let whole = each_changed(now, then, &mut |object| {
        let Some(is) = file(now, object)? else { return Ok(true) };
        found.files.push(object);
        let stays = file(then, object)? == Some(is);
        if !stays {
            found.gone.push(object);
        }
        if is.directory {
            dirs.push((object, stays));
        }
        Ok(found.files.len() < most)
    })?;
    if !whole {
        return Ok(None);
    }
    for object in then.unlinked()? {
        found.files.push(object);
        found.gone.push(object);
    }
    let gone: HashSet<ObjNum> = found.gone.iter().copied().collect();
    for (dir, stays) in dirs {
        let left = most.saturating_sub(found.files.len() + found.names.len());
        let Some(mut names) = names(now, dir, left)? else { return Ok(None) };
        if stays {
            let more = names_later(then, dir, &mut names, &gone, left)?;
            let Some(more) = more else { return Ok(None) };
            found.names.extend(more.into_iter().map(|name| (dir, name)));
        }
        found.names.extend(names.into_keys().map(|name| (dir, name)));
    }
    Ok(Some(found))
}

/// What a number means; `None` if it is no file's.
fn file(fs: &FileSystem, object: ObjNum) -> Result<Option<Is>> {
    match fs.node(object) {
        Ok(node) => {
            let attr = node.attr();
            let directory = attr.kind == FileType::Directory;
            Ok(Some(Is { generation: attr.generation, directory }))
        }
        Err(Error::NoFile { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All names in a directory; `None` if they are more than `most`.
fn names(fs: &FileSystem, dir: ObjNum, most: usize) -> Result<Option<HashMap<Vec<u8>, ObjNum>>> {
    let mut names = HashMap::new();
    for entry in fs.node(dir)?.read_dir(DirCookie::START)? {
        let entry = entry?;
        names.insert(entry.name, entry.object);
        if names.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(names))
}

/// Takes from `names` those that mean the same in the other state, and returns those that are there alone; `None` if they are more than
/// `most`.
fn names_later(
    then: &FileSystem,
    dir: ObjNum,
    names: &mut HashMap<Vec<u8>, ObjNum>,
    gone: &HashSet<ObjNum>,
    most: usize,
) -> Result<Option<Vec<Vec<u8>>>> {
    let mut alone = Vec::new();
    for entry in then.node(dir)?.read_dir(DirCookie::START)? {
        let entry = entry?;
        match names.get(&entry.name) {
            Some(object) if *object == entry.object && !gone.contains(object) => {
                names.remove(&entry.name);
            }
            Some(_) => {}
            None => alone.push(entry.name),
        }
        if alone.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(alone))
}

/// Goes through the numbers of all objects whose blocks of dnodes are not the same, as long as `each` says so; whether to their end.
fn each_changed(
    now: &FileSystem,
    then: &FileSystem,
    each: &mut dyn FnMut(ObjNum) -> Result<bool>,
) -> Result<bool> {
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
        let Some(blkid) = next.map(|offset| BlkId(offset / size)) else { return Ok(true) };
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
                for object in blkid.0 * per..(blkid.0 + 1) * per {
                    if !each(ObjNum(object))? {
                        return Ok(false);
                    }
                }
                blkid.0 + 1
            }
        };
    }
}
