//! The differences between two states of a file system (`zfs diff`).
//!
//! # Theory
//! The engine finds the objects that may have changed ([`dmu::Objset::changes_since`]). This module
//! reads each of them in both states: its kind, its generation, its last change, its number of
//! names, and one path. From these it derives what happened, by OpenZFS's rules. An object with a
//! different generation is a different file.
//!
//! A file with several names has one parent attribute, that of its last new name. If that name is
//! removed, nothing on disk leads from the file to the other names. The search for them starts
//! where the other state has the file. Then it covers all directories, once for each part.
//!
//! # See
//! OpenZFS's `libzfs_diff.c`, `zfs_obj_to_stats`.

use std::collections::BTreeSet;

use dmu::Change;
use dsl::Dsl;
use ondisk::dirent::FileType;
use ondisk::{ObjNum, Txg};
use zpl::{FileSystem, Paths};

use crate::replies::of_zpl;
use crate::view::{dataset as trouble, engine};
use api::{DiffPart, DiffRequest, Error, FileAt, FileChange, Reason, Refusal};

/// Most objects in one part, and about how many bytes of paths.
const DIFF_PART: usize = 20_000;
const PART_BYTES: usize = 4 << 20;
/// The path of a file that was removed and is still open.
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
    /// It has no names, but is still open.
    unlinked: bool,
}

/// An object in one state.
enum Side {
    /// Not a file.
    None,
    /// A file without a path: its parent directory does not list it.
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
            Err(zpl::Error::NoEntry { .. } | zpl::Error::NoFile { .. } | zpl::Error::NotDirectory { .. }) => {
                return Ok(Side::Lost(picture));
            }
            Err(e) => return Err(e),
        }
        Ok(Side::Here(picture))
    }

    /// Whether an object is a file with names, none of which is known.
    fn is_lost(&mut self, object: ObjNum) -> bool {
        self.look(object).is_ok_and(|side| side.is_lost())
    }
}

impl Side {
    /// Whether it has names, none of which is known. A directory has one, which its parent
    /// attribute gives.
    fn is_lost(&self) -> bool {
        matches!(self, Side::Lost(file) if file.links > 0 && file.kind != FileType::Directory)
    }
}

/// Two states of a file system, for a comparison.
///
/// Nothing keeps a snapshot from being destroyed meanwhile. Then its blocks can't be read.
pub struct Compared {
    request: DiffRequest,
    from: State,
    to: State,
    /// The transaction group of the earlier state.
    since: Txg,
}

/// Opens two states of a file system: a snapshot, and a later state.
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: a state does not exist.
/// * [`Reason::BadType`]: the earlier state is not a snapshot, or one is not a file system.
/// * [`Reason::Refused`] with [`Refusal::NotBefore`]: the snapshot is not an earlier state of the
///   other.
/// * [`Reason::Io`], [`Reason::Corrupt`]: a state can't be read. Without its key, that is an I/O
///   error.
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

/// The contents of a part so far.
#[derive(Default)]
struct Found {
    /// The changes by object.
    changes: Vec<(u64, FileChange)>,
    failures: Vec<(u64, Error)>,
    /// Files with names, none of which is known yet.
    lost: Vec<ObjNum>,
    looked: usize,
    bytes: usize,
}

impl Found {
    fn push(&mut self, object: ObjNum, change: FileChange) {
        self.bytes += match &change {
            FileChange::Added(file) | FileChange::Removed(file) | FileChange::Modified(file) => {
                file.path.bytes().len()
            }
            FileChange::Linked { file, .. } => file.path.bytes().len(),
            FileChange::Renamed { from, to } => from.bytes().len() + to.path.bytes().len(),
        };
        self.changes.push((object.0, change));
    }

    fn fail(&mut self, object: ObjNum, state: &str, error: &zpl::Error) {
        self.failures.push((object.0, Error::new(state, of_zpl(error))));
    }

    /// Counts an object. Returns false if the part is full.
    fn has_room(&mut self) -> bool {
        let room = self.looked < DIFF_PART && self.bytes < PART_BYTES;
        self.looked += usize::from(room);
        room
    }
}

/// A part of the differences (`zfs_show_diffs`).
///
/// # Errors
/// * [`Reason::Io`], [`Reason::Corrupt`]: the list of changed objects can't be read. Objects that
///   can't be read themselves are in [`DiffPart::failures`].
pub fn diff(compared: Compared) -> Result<DiffPart, Error> {
    let Compared { request, mut from, mut to, since } = compared;
    let mut found = Found::default();
    let next = look(&request, since, &mut from, &mut to, &mut found)?;
    find_lost(&mut from, &mut to, &mut found);
    found.changes.sort_by_key(|(object, _)| *object);
    Ok(DiffPart {
        changes: found.changes.into_iter().map(|(_, change)| change).collect(),
        failures: found.failures,
        next: next.map(|object| DiffRequest { first: object.0, ..request }),
    })
}

/// Compares the objects that may have changed. Returns where to continue if the part is full.
fn look(
    request: &DiffRequest,
    since: Txg,
    from: &mut State,
    to: &mut State,
    found: &mut Found,
) -> Result<Option<ObjNum>, Error> {
    let shares = to.fs.shares();
    for change in to.fs.clone().objset().changes_since(since, ObjNum(request.first)) {
        let change = change.map_err(|e| engine(&request.to, &e))?;
        let (first, last) = match change {
            Change::Used(object) => {
                if !found.has_room() {
                    return Ok(Some(object));
                }
                if Some(object) != shares {
                    used(from, to, object, true, found);
                }
                continue;
            }
            Change::Free(first, last) => (first, last),
        };
        for dnode in from.fs.clone().objset().objects(first) {
            let object = dnode.map_err(|e| engine(&request.from, &e))?.object();
            if object > last {
                break;
            }
            if !found.has_room() {
                return Ok(Some(object));
            }
            if Some(object) != shares {
                freed(from, object, true, found);
            }
        }
    }
    Ok(None)
}

/// Finds names of files whose parent attribute gives none, and records what happened to them.
fn find_lost(from: &mut State, to: &mut State, found: &mut Found) {
    let lost = std::mem::take(&mut found.lost);
    for object in &lost {
        hint(from, to, *object);
        hint(to, from, *object);
    }
    for state in [&mut *from, &mut *to] {
        let left: BTreeSet<ObjNum> = lost.iter().copied().filter(|object| state.is_lost(*object)).collect();
        if left.is_empty() {
            continue;
        }
        if let Err(e) = state.paths.find(&left) {
            left.iter().for_each(|object| found.fail(*object, &state.name, &e));
        }
    }
    let failed: BTreeSet<u64> = found.failures.iter().map(|(object, _)| *object).collect();
    for object in lost.into_iter().filter(|object| !failed.contains(&object.0)) {
        used(from, to, object, false, found);
    }
}

/// Looks for a file where the other state has it.
fn hint(known: &mut State, state: &mut State, object: ObjNum) {
    let place = known.paths.place(object).ok().flatten();
    if let Some((dir, name)) = place
        && state.is_lost(object)
    {
        // The search through all directories finds or reports what can't be read here.
        state.paths.try_name(object, dir, &name).unwrap_or_default();
    }
}

/// Records a freed object. With `off`, one without a known name is put off.
fn freed(from: &mut State, object: ObjNum, off: bool, found: &mut Found) {
    match from.look(object) {
        Ok(was) if off && was.is_lost() => found.lost.push(object),
        Ok(Side::Here(was)) if !was.unlinked => found.push(object, FileChange::Removed(was.at)),
        Ok(_) => {}
        Err(e) => found.fail(object, &from.name, &e),
    }
}

/// Records an object in use that may have existed before. With `off`, one without a known name is
/// put off.
fn used(from: &mut State, to: &mut State, object: ObjNum, off: bool, found: &mut Found) {
    let (was, is) = match (from.look(object), to.look(object)) {
        (Ok(was), Ok(is)) => (was, is),
        // One message for an object is enough.
        (Err(e), _) => return found.fail(object, &from.name, &e),
        (_, Err(e)) => return found.fail(object, &to.name, &e),
    };
    if off && (was.is_lost() || is.is_lost()) {
        return found.lost.push(object);
    }
    let links = links_by(&was, &is);
    let linked = |file: FileAt| FileChange::Linked { file, by: links };
    let changes = match (was, is) {
        (Side::None | Side::Lost(_), Side::None | Side::Lost(_)) => vec![],
        (Side::None | Side::Lost(_), Side::Here(is)) if links != 0 => vec![linked(is.at)],
        (Side::None | Side::Lost(_), Side::Here(is)) => vec![FileChange::Added(is.at)],
        (Side::Here(was), Side::None | Side::Lost(_)) if links != 0 => vec![linked(was.at)],
        (Side::Here(was), Side::None | Side::Lost(_)) => vec![FileChange::Removed(was.at)],
        // It has no names. It may still be open, or the kernel may not have released it yet.
        (Side::Here(was), Side::Here(is)) if is.unlinked && !was.unlinked => {
            vec![FileChange::Removed(was.at)]
        }
        (Side::Here(was), Side::Here(is)) if was.generation != is.generation || was.kind != is.kind => {
            vec![FileChange::Removed(was.at), FileChange::Added(is.at)]
        }
        (Side::Here(was), Side::Here(is)) if was.at.ctime == is.at.ctime => vec![],
        // A file that lost a name shows one that it still has. One that gained a name shows an old
        // one.
        (Side::Here(was), Side::Here(is)) if links > 0 => {
            vec![linked(FileAt { path: was.at.path, ..is.at })]
        }
        (Side::Here(_), Side::Here(is)) if links < 0 => vec![linked(is.at)],
        (Side::Here(was), Side::Here(is)) if was.at.path == is.at.path => vec![FileChange::Modified(is.at)],
        (Side::Here(was), Side::Here(is)) => vec![FileChange::Renamed { from: was.at.path, to: is.at }],
    };
    changes.into_iter().for_each(|change| found.push(object, change));
}

/// The number of gained names of a file with names in both states. A directory has one name.
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
