//! What changed between two states of a file system (`zfs diff`).
//!
//! # Theory
//! The engine says which objects may have changed ([`dmu::Objset::changes_since`]); each of them is looked at in both states, and the two
//! pictures of it (its kind, its generation, when it changed, how many names it has, one path) say what happened, by OpenZFS's rules. An object
//! whose generation is another is another file.
//!
//! # See
//! OpenZFS `libzfs_diff.c`, `zfs_obj_to_stats`.

use dmu::Change;
use dsl::Dsl;
use ondisk::dirent::FileType;
use ondisk::{ObjNum, Txg};
use zpl::{FileSystem, Paths};

use super::{dataset as trouble, engine};
use crate::api::{DiffPart, DiffRequest, Error, FileAt, FileChange, Reason, Refusal};
use crate::faults::of_zpl;

/// Objects described in one part.
const DIFF_PART: usize = 20_000;
/// What stands for the path of a file that was removed and is still open.
const ON_DELETE_QUEUE: &[u8] = b"(on_delete_queue)";

/// A file system in one state.
struct State {
    name: String,
    fs: FileSystem,
    paths: Paths,
}

/// A file in one state.
#[derive(Clone)]
struct Picture {
    kind: FileType,
    links: u64,
    generation: u64,
    at: FileAt,
    /// It has no name any more, but an owner.
    unlinked: bool,
}

/// What an object is in one state.
enum Side {
    /// No file.
    None,
    /// A file without a path: the directory that should know it doesn't.
    Lost(Picture),
    /// A file.
    Here(Picture),
}

impl State {
    fn open(dsl: &Dsl, name: &str) -> Result<(Self, dsl::Dataset), Error> {
        let dataset = dsl.dataset(name).map_err(|e| trouble(name, &e))?;
        let objset = dataset.objset().map_err(|e| trouble(name, &e))?;
        let objset = objset.ok_or_else(|| Error::new(name, Reason::BadType))?;
        let fs = FileSystem::open(&objset).map_err(|e| Error::new(name, of_zpl(&e)))?;
        let paths = Paths::of(fs.clone());
        Ok((Self { name: name.to_owned(), fs, paths }, dataset))
    }

    fn look(&mut self, object: ObjNum) -> zpl::Result<Side> {
        let node = match self.fs.node(object) {
            Ok(node) => node,
            Err(zpl::Error::NoFile { .. }) => return Ok(Side::None),
            Err(e) => return Err(e),
        };
        let attr = node.attr();
        let at =
            FileAt { path: Vec::new().into(), mode: attr.mode, ctime: (attr.ctime.secs, attr.ctime.nanos) };
        let mut picture =
            Picture { kind: attr.kind, links: attr.nlink, generation: attr.generation, at, unlinked: false };
        match self.paths.path(object) {
            Ok(path) => picture.at.path = path.into(),
            Err(zpl::Error::Unlinked { .. }) => {
                picture.at.path = ON_DELETE_QUEUE.to_vec().into();
                picture.unlinked = true;
            }
            Err(zpl::Error::NoEntry { .. } | zpl::Error::NoFile { .. }) => return Ok(Side::Lost(picture)),
            Err(e) => return Err(e),
        }
        Ok(Side::Here(picture))
    }
}

/// Two states of a file system, to be compared. Nothing keeps a snapshot from being destroyed meanwhile: then its blocks can't be read.
pub struct Compared {
    request: DiffRequest,
    from: State,
    to: State,
    /// When the earlier one was made.
    since: Txg,
}

/// Two states of a file system: a snapshot, and a later one.
///
/// # Errors
/// [`Reason::NoSuchDataset`], [`Reason::BadType`], [`Reason::KeyNotLoaded`]; [`Refusal::NotBefore`] if the one is not in the other's past; as
/// reading fails.
pub fn compared(dsl: &Dsl, request: &DiffRequest) -> Result<Compared, Error> {
    let (from, earlier) = State::open(dsl, &request.from)?;
    let (to, later) = State::open(dsl, &request.to)?;
    if !earlier.is_snapshot() {
        return Err(Error::new(&request.from, Reason::BadType));
    }
    if !later.is_after(&earlier).map_err(|e| trouble(&request.to, &e))? {
        return Err(Error::new(&request.to, Reason::Refused { why: Refusal::NotBefore }));
    }
    Ok(Compared { request: request.clone(), from, to, since: earlier.phys().creation_txg })
}

/// A part of what changed.
///
/// # Errors
/// As reading fails.
pub fn diff(compared: Compared) -> Result<DiffPart, Error> {
    let Compared { request, mut from, mut to, since } = compared;
    let shares = to.fs.shares();
    let mut part = DiffPart::default();
    let mut looked = 0;
    let go_on = |object: u64| Some(DiffRequest { first: object, ..request.clone() });
    for change in to.fs.objset().changes_since(since, ObjNum(request.first)) {
        let change = change.map_err(|e| engine(&request.to, &e))?;
        let (first, last) = match change {
            Change::Used(object) => {
                if looked >= DIFF_PART {
                    part.next = go_on(object.0);
                    return Ok(part);
                }
                looked += 1;
                if Some(object) != shares {
                    used(&mut from, &mut to, object, &mut part);
                }
                continue;
            }
            Change::Free(first, last) => (first, last),
        };
        for dnode in from.fs.objset().objects(first) {
            let object = dnode.map_err(|e| engine(&request.from, &e))?.object();
            if object > last {
                break;
            }
            if looked >= DIFF_PART {
                part.next = go_on(object.0);
                return Ok(part);
            }
            looked += 1;
            if Some(object) != shares {
                freed(&mut from, object, &mut part);
            }
        }
    }
    Ok(part)
}

/// An object that is no more.
fn freed(from: &mut State, object: ObjNum, part: &mut DiffPart) {
    match from.look(object) {
        Ok(Side::Here(was)) if !was.unlinked => part.changes.push(FileChange::Removed(was.at)),
        Ok(_) => {}
        Err(e) => part.failures.push((object.0, Error::new(&from.name, of_zpl(&e)))),
    }
}

/// An object that is there, and may have been.
fn used(from: &mut State, to: &mut State, object: ObjNum, part: &mut DiffPart) {
    let (was, is) = match (from.look(object), to.look(object)) {
        (Ok(was), Ok(is)) => (was, is),
        // One message is enough.
        (Err(e), _) => return part.failures.push((object.0, Error::new(&from.name, of_zpl(&e)))),
        (_, Err(e)) => return part.failures.push((object.0, Error::new(&to.name, of_zpl(&e)))),
    };
    let links = links_by(&was, &is);
    let linked = |file: FileAt| FileChange::Linked { file, by: links };
    part.changes.extend(match (was, is) {
        (Side::None | Side::Lost(_), Side::None | Side::Lost(_)) => vec![],
        (Side::None | Side::Lost(_), Side::Here(is)) if links != 0 => vec![linked(is.at)],
        (Side::None | Side::Lost(_), Side::Here(is)) => vec![FileChange::Added(is.at)],
        (Side::Here(was), Side::None | Side::Lost(_)) if links != 0 => vec![linked(was.at)],
        (Side::Here(was), Side::None | Side::Lost(_)) => vec![FileChange::Removed(was.at)],
        // It has no name any more, though somebody may have it open, or the kernel may not have let go of it yet.
        (Side::Here(was), Side::Here(is)) if is.unlinked && !was.unlinked => {
            vec![FileChange::Removed(was.at)]
        }
        (Side::Here(was), Side::Here(is)) if was.generation != is.generation || was.kind != is.kind => {
            vec![FileChange::Removed(was.at), FileChange::Added(is.at)]
        }
        (Side::Here(was), Side::Here(is)) if was.at.ctime == is.at.ctime => vec![],
        // Of a file that lost a name, one that it still has; of one that got one, that which it had.
        (Side::Here(was), Side::Here(is)) if links > 0 => {
            vec![linked(FileAt { path: was.at.path, ..is.at })]
        }
        (Side::Here(_), Side::Here(is)) if links < 0 => vec![linked(is.at)],
        (Side::Here(was), Side::Here(is)) if was.at.path == is.at.path => vec![FileChange::Modified(is.at)],
        (Side::Here(was), Side::Here(is)) => vec![FileChange::Renamed { from: was.at.path, to: is.at }],
    });
}

/// How many names a file got, of one that had some and has some; directories have one.
fn links_by(was: &Side, is: &Side) -> i32 {
    match (was, is) {
        (Side::Lost(was) | Side::Here(was), Side::Lost(is) | Side::Here(is))
            if [was, is].iter().all(|p| p.links != 0 && p.kind != FileType::Directory) =>
        {
            let by = i128::from(is.links) - i128::from(was.links);
            by.clamp(i32::MIN.into(), i32::MAX.into()) as i32
        }
        _ => 0,
    }
}
