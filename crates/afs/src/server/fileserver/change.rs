//! Calls that change directories.

use ondisk::ObjNum;
use zpl::{FileSystem, Kind, NewFile, Place, Rename, Time, Unlinked};

use super::changed::{Changed, changing};
use super::read::directory_to_change;
use super::{FileServer, Outcome, check_name, code_of, sync};
use crate::acl::Rights;
use crate::calls::fileserver::{ChangeReply, EntryReply, LinkReply, RenameReply, SymlinkReply};
use crate::dir::{Editor, Entry};
use crate::errors::{errno, volume as code};
use crate::server::access::{Caller, Granted, need};
use crate::server::open::Open;
use crate::server::vnode::{Found, kib};
use crate::server::volume::Access;
use crate::types::{FetchStatus, Fid, StoreStatus, Unique, Vnode, VnodeType};
use crate::volume::{object, vnode};

/// The mode of a file whose creator gives none.
const MODE: u32 = 0o777;
/// Execute by anyone. A symbolic link without it is a mount point.
const EXECUTE: u32 = 0o111;
/// How often a lookup may find another file than was locked.
const LOOKUPS: usize = 1000;

/// A new entry, with the statuses for the reply.
struct Made {
    fid: Fid,
    status: FetchStatus,
    directory: FetchStatus,
}

impl FileServer {
    pub(super) fn create_file(
        &self,
        caller: &Caller,
        directory: Fid,
        name: &[u8],
        set: &StoreStatus,
    ) -> Outcome<EntryReply> {
        self.new_entry(caller, directory, name, set, Kind::Regular)
    }

    pub(super) fn make_dir(
        &self,
        caller: &Caller,
        directory: Fid,
        name: &[u8],
        set: &StoreStatus,
    ) -> Outcome<EntryReply> {
        self.new_entry(caller, directory, name, set, Kind::Directory)
    }

    fn new_entry(
        &self,
        caller: &Caller,
        directory: Fid,
        name: &[u8],
        set: &StoreStatus,
        kind: Kind,
    ) -> Outcome<EntryReply> {
        let volume = self.volume(directory.volume)?;
        changing(&volume.callbacks, Some(&caller.host), |changed| {
            let open = volume.enter(Access::Change)?;
            let _locks = open.lock(&[directory.vnode]);
            let made = self.make(&open, caller, (directory, name), set, kind, changed)?;
            let callback = self.promise(&volume, &open, made.fid, caller);
            let Made { fid, status, directory: above } = made;
            Ok(EntryReply { fid, status, directory: above, callback, sync: sync(&open) })
        })
    }

    pub(super) fn symlink(
        &self,
        caller: &Caller,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        set: &StoreStatus,
    ) -> Outcome<SymlinkReply> {
        let volume = self.volume(directory.volume)?;
        changing(&volume.callbacks, Some(&caller.host), |changed| {
            let open = volume.enter(Access::Change)?;
            let _locks = open.lock(&[directory.vnode]);
            if set.mode.is_some_and(|mode| mode & EXECUTE == 0) {
                let (_, granted) = directory_to_change(&open, caller, directory, Rights::INSERT)?;
                need(granted.rights.has(Rights::ADMINISTER))?;
            }
            let kind = Kind::Symlink(target.to_vec());
            let made = self.make(&open, caller, (directory, name), set, kind, changed)?;
            let Made { fid, status, directory: above } = made;
            Ok(SymlinkReply { fid, status, directory: above, sync: sync(&open) })
        })
    }

    /// Makes a file in a directory that the caller has locked.
    fn make(
        &self,
        open: &Open,
        caller: &Caller,
        (fid, name): (Fid, &[u8]),
        set: &StoreStatus,
        kind: Kind,
        changed: &mut Changed,
    ) -> Outcome<Made> {
        check_name(name)?;
        let (directory, granted) = directory_to_change(open, caller, fid, Rights::INSERT)?;
        let before = has_room(open, &directory, name)?;
        if look_in(open, &directory, name)?.is_some() {
            return Err(errno::EEXIST);
        }
        let size = if let Kind::Symlink(target) = &kind { target.len() as u64 } else { 0 };
        let is_directory = kind == Kind::Directory;
        let blocks = if is_directory { kib(crate::dir::PAGE_SIZE as u64) } else { kib(size) };
        open.charge(blocks, 1)?;
        open.forget(fid.vnode);
        let fs = open.fs.by_afs_user(caller.user.id.0);
        let made = self.place(open, (&fs, changed), (&directory, name), caller, set, kind);
        let made = made.inspect_err(|_| {
            // Without growth, no quota is in the way.
            let _ = open.charge(-blocks, -1);
        });
        let (number, unique) = made?;
        let file = open.find(number, unique)?;
        let above = edited(open, &directory, |blob| blob.add(Entry { name, vnode: number, unique }))?;
        let granted_there = if is_directory { granted } else { Self::as_creator(granted) };
        // What is known of the directory then spares a look for the file's parent.
        let directory = open.status(&above, caller, granted)?;
        // Its vnode is not locked, and no client knows it yet.
        let status = open.present(number, &open.examine(&file)?, caller, granted_there);
        recount(open, before, directory.length);
        if set.is_durable {
            open.fs.fsync(object(number)).map_err(|error| code_of(open, &error))?;
        }
        Ok(Made { fid: Fid { volume: open.id, vnode: number, unique }, status, directory })
    }

    /// The creator of a file owns it, and the right to administer says so.
    fn as_creator(granted: Granted) -> Granted {
        Granted { rights: granted.rights.with(Rights::ADMINISTER), ..granted }
    }

    fn place(
        &self,
        open: &Open,
        (fs, changed): (&FileSystem, &mut Changed),
        (directory, name): (&Found, &[u8]),
        caller: &Caller,
        set: &StoreStatus,
        kind: Kind,
    ) -> Outcome<(Vnode, Unique)> {
        let owner = set.owner.unwrap_or(caller.user.id);
        let new = NewFile {
            uid: owner.0.cast_unsigned(),
            gid: set.group.unwrap_or_else(|| directory.about().group).cast_unsigned(),
            ..NewFile::new(kind.clone(), caller.mode(set.mode.unwrap_or(MODE)))
        };
        let time = set.modify_time.map(|time| Time { secs: time.0.into(), nanos: 0 });
        loop {
            let number = open.free_vnode(kind == Kind::Directory)?;
            let unique = open.next_unique()?;
            let place = Place { object: object(number), generation: unique.0.into() };
            match fs.create_at(object(directory.vnode), name, &new, place, time) {
                // An object that was freed a moment ago.
                Err(zpl::Error::Dmu(dmu::Error::ObjectExists { .. })) => {}
                made => {
                    let made = made.map(|_| (number, unique)).map_err(|error| code_of(open, &error));
                    return changed.by(&[(directory.vnode, directory.unique)], made);
                }
            }
        }
    }

    pub(super) fn link(
        &self,
        caller: &Caller,
        directory: Fid,
        name: &[u8],
        existing: Fid,
    ) -> Outcome<LinkReply> {
        check_name(name)?;
        if directory.volume != existing.volume {
            return Err(errno::EXDEV);
        }
        let volume = self.volume(directory.volume)?;
        let files = [directory, existing].map(|fid| (fid.vnode, fid.unique));
        changing(&volume.callbacks, Some(&caller.host), |changed| {
            let open = volume.enter(Access::Change)?;
            let _locks = open.lock(&[directory.vnode, existing.vnode]);
            let (above, granted) = directory_to_change(&open, caller, directory, Rights::INSERT)?;
            let file = open.find(existing.vnode, existing.unique)?;
            match file.kind {
                VnodeType::Directory | VnodeType::Symlink => return Err(errno::EISDIR),
                VnodeType::File if file.governor() != directory.vnode => return Err(errno::EXDEV),
                VnodeType::File => {}
            }
            let before = has_room(&open, &above, name)?;
            [directory, existing].iter().for_each(|fid| open.forget(fid.vnode));
            let fs = open.fs.by_afs_user(caller.user.id.0);
            let linked = fs.link(object(existing.vnode), object(directory.vnode), name);
            changed.by(&files, linked.map_err(|error| code_of(&open, &error)))?;
            let status = open.status(&open.find_any(existing.vnode)?, caller, granted)?;
            let Fid { vnode, unique, .. } = existing;
            let above = edited(&open, &above, |blob| blob.add(Entry { name, vnode, unique }))?;
            let above = open.status(&above, caller, granted)?;
            recount(&open, before, above.length);
            Ok(LinkReply { status, directory: above, sync: sync(&open) })
        })
    }

    pub(super) fn remove(
        &self,
        caller: &Caller,
        directory: Fid,
        name: &[u8],
        is_directory: bool,
    ) -> Outcome<ChangeReply> {
        if matches!(name, b"." | b"..") {
            return Err(errno::EINVAL);
        }
        let volume = self.volume(directory.volume)?;
        changing(&volume.callbacks, Some(&caller.host), |changed| {
            let open = volume.enter(Access::Change)?;
            let removed = with_entries(&open, [(directory, name)], |[target]| {
                self.remove_locked(&open, caller, (directory, name), (target, is_directory), changed)
            });
            Ok(ChangeReply { status: removed?, sync: sync(&open) })
        })
    }

    fn remove_locked(
        &self,
        open: &Open,
        caller: &Caller,
        (fid, name): (Fid, &[u8]),
        (target, is_directory): (Option<Vnode>, bool),
        changed: &mut Changed,
    ) -> Outcome<FetchStatus> {
        let (above, granted) = directory_to_change(open, caller, fid, Rights::DELETE)?;
        let target = target.ok_or(errno::ENOENT)?;
        let (unique, kind, length) = brief(open, target)?;
        match (kind == VnodeType::Directory, is_directory) {
            (true, false) => return Err(errno::EISDIR),
            (false, true) => return Err(errno::ENOTDIR),
            _ => {}
        }
        let before = open.length(&above)?;
        [fid.vnode, target].into_iter().for_each(|vnode| open.forget(vnode));
        let fs = open.fs.by_afs_user(caller.user.id.0);
        let dir = object(fid.vnode);
        let failed = |error: zpl::Error| code_of(open, &error);
        // No call has the file open, because its vnode is locked.
        let gone = match is_directory {
            true => fs.rmdir(dir, name).map(Unlinked::Orphan),
            false => fs.unlink_unused(dir, name),
        };
        let gone = changed.by(&[(fid.vnode, fid.unique), (target, unique)], gone.map_err(failed))?;
        if let Unlinked::Orphan(gone) = gone {
            // If this fails, the file system frees the file when it is opened next.
            let _ = fs.reap(gone).map_err(failed);
        }
        if gone != Unlinked::Named {
            let _ = open.charge(-kib(length), -1);
            open.locks.forget(target);
        }
        let above = edited(open, &above, |blob| blob.remove(name))?;
        let status = open.status(&above, caller, granted)?;
        recount(open, before, status.length);
        Ok(status)
    }

    pub(super) fn rename(
        &self,
        caller: &Caller,
        (old, old_name): (Fid, &[u8]),
        (new, new_name): (Fid, &[u8]),
    ) -> Outcome<RenameReply> {
        check_name(new_name)?;
        if matches!(old_name, b"" | b"." | b"..") {
            return Err(errno::EINVAL);
        }
        if old.volume != new.volume {
            return Err(errno::EXDEV);
        }
        let volume = self.volume(old.volume)?;
        changing(&volume.callbacks, Some(&caller.host), |changed| {
            let open = volume.enter(Access::Change)?;
            let entries = [(old, old_name), (new, new_name)];
            let renamed = with_entries(&open, entries, |[source, target]| {
                let (old, new) = ((old, old_name, source), (new, new_name, target));
                self.rename_locked(&open, caller, old, new, changed)
            });
            let (old_directory, new_directory) = renamed?;
            Ok(RenameReply { old_directory, new_directory, sync: sync(&open) })
        })
    }

    fn rename_locked(
        &self,
        open: &Open,
        caller: &Caller,
        (old, old_name, source): (Fid, &[u8], Option<Vnode>),
        (new, new_name, target): (Fid, &[u8], Option<Vnode>),
        changed: &mut Changed,
    ) -> Outcome<(FetchStatus, FetchStatus)> {
        let (from, granted) = directory_to_change(open, caller, old, Rights::DELETE)?;
        let (to, granted_there) = directory_to_change(open, caller, new, Rights::INSERT)?;
        let source = open.find_any(source.ok_or(errno::ENOENT)?)?;
        if source.vnode == old.vnode || source.vnode == new.vnode {
            return Err(errno::EINVAL);
        }
        let target = target.map(|target| open.find_any(target)).transpose()?;
        if let Some(target) = &target {
            need(granted_there.rights.has(Rights::DELETE))?;
            if [source.vnode, old.vnode, new.vnode].contains(&target.vnode) {
                return Err(errno::EINVAL);
            }
        }
        // Names of a file that is linked must stay in one directory.
        let moves = old.vnode != new.vnode;
        if moves && source.kind != VnodeType::Directory && source.node.attr().nlink > 1 {
            return Err(errno::EXDEV);
        }
        let (before, before_there) = (open.length(&from)?, has_room(open, &to, new_name)?);
        let blocks = target.as_ref().map(|target| open.length(target)).transpose()?.map(kib);
        let fs = open.fs.by_afs_user(caller.user.id.0);
        let involved = [old.vnode, new.vnode, source.vnode].into_iter();
        involved.chain(target.as_ref().map(|target| target.vnode)).for_each(|vnode| open.forget(vnode));
        let names = ((object(old.vnode), old_name), (object(new.vnode), new_name));
        let gone = fs.rename(names.0, names.1, Rename::Replace).map_err(|error| code_of(open, &error));
        let gone = changed.by(&renamed((old, new), &source, target.as_ref()), gone)?;
        if let Some(gone) = gone {
            let _ = fs.reap(gone).map_err(|error| code_of(open, &error));
            let _ = open.charge(-blocks.unwrap_or(0), -1);
            target.iter().for_each(|target| open.locks.forget(target.vnode));
        }
        let entry = Entry { name: new_name, vnode: source.vnode, unique: source.unique };
        let enter = |blob: &mut Editor| match target {
            Some(_) => blob.replace(entry),
            None => blob.add(entry),
        };
        let (old_after, new_after) = match moves {
            true => {
                let above = Entry { name: b"..", vnode: new.vnode, unique: new.unique };
                if source.kind == VnodeType::Directory {
                    edited(open, &source, |blob| blob.replace(above))?;
                }
                (edited(open, &from, |blob| blob.remove(old_name))?, edited(open, &to, enter)?)
            }
            false => {
                let both = |blob: &mut Editor| blob.remove(old_name) && enter(blob);
                (edited(open, &from, both)?, open.find_any(new.vnode)?)
            }
        };
        let old_status = open.status(&old_after, caller, granted)?;
        recount(open, before, old_status.length);
        let new_status = open.status(&new_after, caller, granted_there)?;
        if moves {
            recount(open, before_there, new_status.length);
        }
        Ok((old_status, new_status))
    }
}

/// The files that a rename from one directory to another changes.
fn renamed((old, new): (Fid, Fid), source: &Found, target: Option<&Found>) -> Vec<(Vnode, Unique)> {
    let mut files = vec![(old.vnode, old.unique)];
    if old.vnode != new.vnode {
        // The status of the file names its directory, and a directory has it as an entry.
        files.extend([(new.vnode, new.unique), (source.vnode, source.unique)]);
    }
    files.extend(target.map(|target| (target.vnode, target.unique)));
    files
}

/// The length of a directory, which must have space for one more entry.
fn has_room(open: &Open, directory: &Found, name: &[u8]) -> Outcome<u64> {
    let blob = open.blob(directory)?;
    if blob.has_room(name) { Ok(blob.len() as u64) } else { Err(errno::EFBIG) }
}

/// A directory after a change, which its blob gets too.
fn edited(open: &Open, before: &Found, change: impl FnOnce(&mut Editor) -> bool) -> Outcome<Found> {
    let after = open.find_any(before.vnode)?;
    let versions = (before.status.data_version, after.status.data_version);
    open.blobs().edit((open.instance, before.vnode), versions, change);
    Ok(after)
}

/// Counts a directory whose pages became more or fewer. The change is made already, so the quota
/// may be exceeded by it.
fn recount(open: &Open, before: u64, after: u64) {
    let more = kib(after) - kib(before);
    if more != 0 && open.charge(more, 0).is_err() {
        open.charge_over(more);
    }
}

/// The unique, kind and length of a vnode that the caller has locked.
fn brief(open: &Open, vnode: Vnode) -> Outcome<(Unique, VnodeType, u64)> {
    if let Some(known) = open.known_alone(vnode)
        && let Some(kind) = known.status.kind
    {
        return Ok((known.unique, kind, known.status.length));
    }
    let found = open.find_any(vnode)?;
    Ok((found.unique, found.kind, open.length(&found)?))
}

/// The vnode of an entry; `None` if there is no such entry.
fn look(open: &Open, (directory, name): (Fid, &[u8])) -> Outcome<Option<Vnode>> {
    found(open, open.fs.lookup(object(directory.vnode), name))
}

/// [`look`] in a directory at hand.
fn look_in(open: &Open, directory: &Found, name: &[u8]) -> Outcome<Option<Vnode>> {
    found(open, directory.node.lookup_entry(name, false).map(|entry| entry.object))
}

fn found(open: &Open, looked: Result<ObjNum, zpl::Error>) -> Outcome<Option<Vnode>> {
    match looked {
        Ok(found) => vnode(found).map(Some).ok_or(code::VNOVNODE),
        Err(zpl::Error::NoEntry { .. } | zpl::Error::NoFile { .. }) => Ok(None),
        Err(zpl::Error::NotDirectory { .. }) => Err(errno::ENOTDIR),
        Err(error) => Err(code_of(open, &error)),
    }
}

/// Locks the directories of entries and the files that these name, and calls `then` with the files.
fn with_entries<T, const N: usize>(
    open: &Open,
    entries: [(Fid, &[u8]); N],
    then: impl FnOnce([Option<Vnode>; N]) -> Outcome<T>,
) -> Outcome<T> {
    let look_all = || -> Outcome<[Option<Vnode>; N]> {
        let mut found = [None; N];
        for (found, entry) in found.iter_mut().zip(entries) {
            *found = look(open, entry)?;
        }
        Ok(found)
    };
    let directories: Vec<Vnode> = entries.iter().map(|(directory, _)| directory.vnode).collect();
    {
        let _locks = open.lock(&directories);
        let found = look_all()?;
        // The locks of the files may come before these, so they can't be waited for.
        if let Some(_more) = open.try_lock_too(&found.into_iter().flatten().collect::<Vec<_>>(), &directories)
        {
            return then(found);
        }
    }
    for _ in 0..LOOKUPS {
        let found = look_all()?;
        let files = found.into_iter().flatten();
        let vnodes: Vec<Vnode> = directories.iter().copied().chain(files).collect();
        let _locks = open.lock(&vnodes);
        // The entries may be others since.
        if look_all()? == found {
            return then(found);
        }
    }
    Err(code::VBUSY)
}
