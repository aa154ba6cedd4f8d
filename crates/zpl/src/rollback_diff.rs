//! The differences between two states of one file system, by number and name.
//!
//! A front end with cached state of a mounted file system uses them for `zfs rollback`.
//!
//! # Theory
//! Every change of a file changes its dnode, and so its block of dnodes. The comparison walks both
//! trees of dnodes in parallel. It skips what they share, at the highest level where it is shared.
//! So it costs as much as was changed.
//!
//! A number means the same file in both states if both files were created in the same txg. Files
//! without names that wait to be freed are not compared: opening the other state frees them.

use crate::{DirCookie, Error, FileSystem, FileType, Result};
use dmu::Extent;
use ondisk::dnode::DNODE_MIN_SIZE;
use ondisk::{BlkId, Level, ObjNum};
use std::collections::{HashMap, HashSet};

/// The differences that [`compare`] found, by the object numbers of the current state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RollbackDiff {
    /// Files of the current state that differ in the other state, or don't exist there.
    pub files: Vec<ObjNum>,
    /// Those of `files` whose numbers mean other files in the other state, or none. All files
    /// without a name in the other state are included.
    pub gone: Vec<ObjNum>,
    /// Directory and name pairs. They are the names of the current state that mean something else
    /// in the other state, or nothing. Names that only the other state has are included.
    pub names: Vec<(ObjNum, Vec<u8>)>,
}

/// What identifies a file for this comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    /// The txg that created the file (`z_gen`). In a received file system it is a txg of the
    /// sending pool.
    generation: u64,
    directory: bool,
}

/// Compares the current state of a file system with the state that will replace it.
///
/// Neither may change meanwhile. Returns `None` if more than `most` files and names differ, or if a
/// changed directory has more names. So `most` bounds the memory.
///
/// # Errors
/// The errors of [opening](Error#opening).
pub fn compare(now: &FileSystem, then: &FileSystem, most: usize) -> Result<Option<RollbackDiff>> {
    let mut found = RollbackDiff::default();
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

/// The file that a number means; `None` if it means no file.
fn file(fs: &FileSystem, object: ObjNum) -> Result<Option<FileIdentity>> {
    match fs.node(object) {
        Ok(node) => {
            let attr = node.attr();
            let directory = attr.kind == FileType::Directory;
            Ok(Some(FileIdentity { generation: attr.generation, directory }))
        }
        Err(Error::NoFile { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All names in a directory; `None` if there are more than `most`.
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

/// Removes from `names` those with the same meaning in the other state, and returns the names that
/// only the other state has. `None` if there are more than `most`.
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

/// Calls `each` for every object whose blocks of dnodes differ, until `each` returns false. Returns
/// whether it reached the end.
fn each_changed(
    now: &FileSystem,
    then: &FileSystem,
    each: &mut dyn FnMut(ObjNum) -> Result<bool>,
) -> Result<bool> {
    let (a, b) = (now.objset().meta_dnode(), then.objset().meta_dnode());
    let epbs = a.phys().epbs();
    // Trees of different shapes share no blocks by position.
    let alike = b.phys().epbs() == epbs && b.block_size() == a.block_size() && a.nlevels() == b.nlevels();
    let shared = if alike { a.nlevels() } else { 0 };
    let per = a.block_size() / DNODE_MIN_SIZE as u64;
    let (size, mut walks) = (a.block_size(), [a.walk(), b.walk()]);
    let mut at = 0_u64;
    loop {
        let mut next = None;
        for walk in &mut walks {
            // A tree with a cycle ends in an error.
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
