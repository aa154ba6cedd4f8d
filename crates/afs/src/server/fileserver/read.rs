//! Calls that read: status, data, access lists, locks.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use rx::{Call as RxCall, Slice};

use super::{FileServer, Outcome, PIECE, code_of, need_directory, promise, sync};
use crate::acl::Rights;
use crate::calls::fileserver::{AclBytes, AclReply, BulkReply, StatusReply};
use crate::errors::{self, errno, volume as code};
use crate::server::access::{Caller, Granted, need};
use crate::server::known::Known;
use crate::server::open::Open;
use crate::server::vnode::Found;
use crate::server::volume::{Access, Volume};
use crate::types::{CallBack, FetchStatus, Fid, Vnode, VnodeType, VolSync};
use crate::volume::object;
use crate::wire::{List, Wire};

/// Largest read that is one of its moment. A larger one may see a change half-way, and then the
/// client's promise is broken.
const WHOLE: u64 = 4 << 20;

/// A block is sent without a copy if this part of it is read, at least.
const SHARED: usize = 4;
/// Bytes of zeros that all holes share.
const ZEROS_SIZE: usize = 128 << 10;

/// The rights of a caller in the directory of the last file: the next one often has the same. An
/// access list that changes during a call may count from the next call on.
#[derive(Default)]
struct LastRights(Option<(Vnode, Granted)>);

impl LastRights {
    /// The rights of the caller in a file. The volume and the caller are always the same ones.
    /// `None`: the access list is not known.
    fn granted(&mut self, open: &Open, caller: &Caller, known: &Known) -> Option<Granted> {
        match self.0 {
            Some((last, granted)) if last == known.governor => Some(granted),
            _ => {
                let governor = open.known_alone(known.governor)?;
                let granted = caller.granted(governor.acl.as_ref()?);
                self.0 = Some((known.governor, granted));
                Some(granted)
            }
        }
    }
}

impl FileServer {
    pub(super) fn fetch_status(&self, caller: &Caller, fid: Fid) -> Outcome<StatusReply> {
        let volume = self.volume(fid.volume)?;
        let open = volume.enter(Access::Read)?;
        let (status, callback) = self.status_of(&volume, &open, caller, fid)?;
        Ok(StatusReply { status, callback, sync: sync(&open) })
    }

    /// The status of a file and the promise for it.
    fn status_of(
        &self,
        volume: &Volume,
        open: &Open,
        caller: &Caller,
        fid: Fid,
    ) -> Outcome<(FetchStatus, CallBack)> {
        let _lock = open.lock_shared(fid.vnode);
        let context = (Instant::now(), &mut LastRights::default());
        if let Some(known) = self.known_status(open, caller, fid, context) {
            return known.map(|status| (status, self.promise(volume, open, fid, caller)));
        }
        let file = open.find(fid.vnode, fid.unique)?;
        let granted = caller.granted(&open.acl(&file)?);
        caller.check_status(&file.about(), granted)?;
        let status = open.status(&file, caller, granted)?;
        Ok((status, self.promise(volume, open, fid, caller)))
    }

    /// The status of a file of which all is known, without a promise. The caller has locked the
    /// vnode, shared at least.
    fn known_status(
        &self,
        open: &Open,
        caller: &Caller,
        fid: Fid,
        (now, rights): (Instant, &mut LastRights),
    ) -> Option<Outcome<FetchStatus>> {
        let known = open.known_alone(fid.vnode)?;
        if known.unique != fid.unique {
            return Some(Err(code::VNOVNODE));
        }
        let granted = rights.granted(open, caller, &known)?;
        let checked = caller.check_status(&known.about(), granted);
        Some(checked.map(|()| open.present_at(fid.vnode, &known, caller, granted, now)))
    }

    /// [`Self::fetch_status`] if it needs no wait.
    pub(super) fn quick_status(&self, caller: &Caller, fid: Fid) -> Option<Outcome<StatusReply>> {
        let volume = self.core.table.get(fid.volume)?;
        let open = volume.try_enter()?;
        let _lock = open.try_lock_shared(fid.vnode)?;
        let now = Instant::now();
        let found = self.known_status(&open, caller, fid, (now, &mut LastRights::default()))?;
        volume.usage.calls.inc();
        Some(found.map(|status| {
            let callback = promise(&mut volume.callbacks.promising(&caller.host, now), &open, fid);
            StatusReply { status, callback, sync: sync(&open) }
        }))
    }

    /// [`Self::inline_bulk_status`] if it needs no wait.
    pub(super) fn quick_bulk_status(&self, caller: &Caller, fids: &[Fid]) -> Option<BulkReply> {
        let (mut statuses, mut callbacks) = (Vec::with_capacity(fids.len()), Vec::with_capacity(fids.len()));
        let (now, mut last) = (Instant::now(), VolSync::default());
        let mut volumes = Vec::new();
        for fids in fids.chunk_by(|one, next| one.volume == next.volume) {
            let volume = self.core.table.get(fids.first()?.volume)?;
            let open = volume.try_enter()?;
            let mut rights = LastRights::default();
            let mut promising = volume.callbacks.promising(&caller.host, now);
            for fid in fids {
                let _lock = open.try_lock_shared(fid.vnode)?;
                let found = self.known_status(&open, caller, *fid, (now, &mut rights))?;
                let (status, callback) = match found {
                    Ok(status) => {
                        last = sync(&open);
                        (status, promise(&mut promising, &open, *fid))
                    }
                    Err(code) => (FetchStatus::of_error(caller.code(code)), CallBack::dropped()),
                };
                statuses.push(status);
                callbacks.push(callback);
            }
            drop((open, promising));
            volumes.push(volume);
        }
        // Only now it is certain that the call is not served again.
        volumes.iter().for_each(|volume| volume.usage.calls.inc());
        Some(BulkReply { statuses: List::new(statuses)?, callbacks: List::new(callbacks)?, sync: last })
    }

    pub(super) fn bulk_status(&self, caller: &Caller, fids: &[Fid]) -> Outcome<BulkReply> {
        self.bulk(caller, fids, Err)
    }

    pub(super) fn inline_bulk_status(&self, caller: &Caller, fids: &[Fid]) -> Outcome<BulkReply> {
        self.bulk(caller, fids, |code| Ok((FetchStatus::of_error(caller.code(code)), CallBack::dropped())))
    }

    fn bulk(
        &self,
        caller: &Caller,
        fids: &[Fid],
        failed: impl Fn(i32) -> Outcome<(FetchStatus, CallBack)>,
    ) -> Outcome<BulkReply> {
        let (mut statuses, mut callbacks) = (Vec::with_capacity(fids.len()), Vec::with_capacity(fids.len()));
        let mut last = VolSync::default();
        let mut volume: Option<Arc<Volume>> = None;
        for fid in fids {
            // If the volume is the trouble, the whole call fails: a client would take the error of
            // one file for good.
            let volume = match volume.take_if(|volume| volume.id == fid.volume) {
                Some(same) => volume.insert(same),
                None => volume.insert(self.volume(fid.volume)?),
            };
            let open = volume.enter(Access::Read)?;
            last = sync(&open);
            let found = self.status_of(volume, &open, caller, *fid);
            let (status, callback) = found.or_else(&failed)?;
            statuses.push(status);
            callbacks.push(callback);
        }
        let whole = "there are as many as fids";
        let (statuses, callbacks) = (List::new(statuses).expect(whole), List::new(callbacks).expect(whole));
        Ok(BulkReply { statuses, callbacks, sync: last })
    }

    pub(super) fn fetch_acl(&self, caller: &Caller, fid: Fid) -> Outcome<AclReply> {
        let volume = self.volume(fid.volume)?;
        let open = volume.enter(Access::Read)?;
        let (acl, status) = {
            let _lock = open.lock_shared(fid.vnode);
            let file = open.find(fid.vnode, fid.unique)?;
            let acl = open.acl(&file)?;
            let granted = caller.granted(&acl);
            need(granted.rights.has(Rights::LOOKUP))?;
            (acl, open.status(&file, caller, granted)?)
        };
        let sync = sync(&open);
        // The database may need time, and the volume must not wait for it.
        drop(open);
        let names = self.core.protection.names(&acl.principals())?;
        let text = acl.text(&names).map_err(|_| errno::E2BIG)?;
        let acl = AclBytes::new(text).ok_or(errno::E2BIG)?;
        Ok(AclReply { acl, status, sync })
    }

    /// Serves a call for data. `wide`: the length before the data has two words.
    pub(super) fn fetch_data(
        &self,
        call: &mut RxCall,
        caller: &Caller,
        fid: Fid,
        (position, length): (i64, i64),
        wide: bool,
    ) -> Outcome<()> {
        let (Ok(from), Ok(length)) = (u64::try_from(position), u64::try_from(length)) else {
            return Err(errno::EINVAL);
        };
        let volume = self.volume(fid.volume)?;
        let mut parts = Vec::new();
        let (count, reply) = {
            let open = volume.enter(Access::Read)?;
            let _lock = open.lock_shared(fid.vnode);
            let file = open.find(fid.vnode, fid.unique)?;
            let granted = caller.granted(&open.acl(&file)?);
            caller.check_read(&file.about(), granted, open.owner())?;
            // The promise comes first: a change during a long read then breaks it.
            let callback = self.promise(&volume, &open, fid, caller);
            let status = open.status(&file, caller, granted)?;
            let count = length.min(status.length.saturating_sub(from));
            if count <= WHOLE {
                parts = read(&open, &file, from, count)?;
            }
            (count, StatusReply { status, callback, sync: sync(&open) })
        };
        let gone = |_| errors::rx::RX_USER_ABORT;
        let head = match (wide, u32::try_from(count)) {
            (true, _) => count.to_be_bytes().to_vec(),
            (false, Ok(count)) => count.to_be_bytes().to_vec(),
            (false, Err(_)) => return Err(errno::EFBIG),
        };
        if count <= WHOLE {
            parts.insert(0, Slice::from(head));
            parts.push(Slice::from(reply.to_bytes()));
            call.write_parts(parts).map_err(gone)?;
            note_read(&volume, caller, count);
            return Ok(());
        }
        call.write(head).map_err(gone)?;
        self.send_long(call, (&volume, caller), fid, from, count)?;
        call.write(reply.to_bytes()).map_err(gone)
    }

    /// Sends data in pieces, with no lock held while the client takes them.
    fn send_long(
        &self,
        call: &mut RxCall,
        (volume, caller): (&Volume, &Caller),
        fid: Fid,
        from: u64,
        count: u64,
    ) -> Outcome<()> {
        let mut sent = 0;
        while sent < count {
            let n = (count - sent).min(PIECE as u64);
            let parts = {
                let open = volume.enter(Access::Read)?;
                let _lock = open.lock_shared(fid.vnode);
                let file = open.find(fid.vnode, fid.unique)?;
                read(&open, &file, from + sent, n)?
            };
            call.write_parts(parts).map_err(|_| errors::rx::RX_USER_ABORT)?;
            note_read(volume, caller, n);
            sent += n;
        }
        Ok(())
    }

    pub(super) fn set_lock(&self, caller: &Caller, fid: Fid, kind: i32) -> Outcome<VolSync> {
        self.locked(fid, |open, file| {
            let granted = caller.granted(&open.acl(file)?);
            let kind = caller.check_lock(&file.about(), granted, kind)?;
            if open.is_read_only && kind == crate::server::locks::Kind::Write {
                return Err(errno::EROFS);
            }
            open.locks.set(fid.vnode, kind, Instant::now())
        })
    }

    /// A client may keep and release what it has, whatever its rights are by now.
    pub(super) fn extend_lock(&self, fid: Fid) -> Outcome<VolSync> {
        self.locked(fid, |open, _| open.locks.extend(fid.vnode, Instant::now()))
    }

    /// Clients that wait for a lock learn by a broken promise that they can try again.
    pub(super) fn release_lock(&self, caller: &Caller, fid: Fid) -> Outcome<VolSync> {
        let mut freed = false;
        let done = self.locked(fid, |open, _| {
            freed = open.locks.release(fid.vnode, Instant::now());
            Ok(())
        });
        if freed && let Some(volume) = self.core.table.get(fid.volume) {
            volume.callbacks.changed(&[(fid.vnode, fid.unique)], Some(&caller.host));
        }
        done
    }

    fn locked(&self, fid: Fid, change: impl FnOnce(&Open, &Found) -> Outcome<()>) -> Outcome<VolSync> {
        let volume = self.volume(fid.volume)?;
        let open = volume.enter(Access::Read)?;
        let _lock = open.lock(&[fid.vnode]);
        let file = open.find(fid.vnode, fid.unique)?;
        change(&open, &file)?;
        Ok(sync(&open))
    }
}

/// Counts bytes that were sent to a client.
fn note_read(volume: &Volume, caller: &Caller, bytes: u64) {
    volume.usage.read.add(bytes);
    caller.usage.read.add(bytes);
}

/// Bytes of a file, of a symbolic link, or of a directory's pages.
fn read(open: &Open, file: &Found, from: u64, count: u64) -> Outcome<Vec<Slice>> {
    let range = |bytes: &[u8]| {
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(usize::try_from(count).unwrap_or(usize::MAX)).min(bytes.len());
        start..end
    };
    match file.kind {
        VnodeType::Directory => {
            let blob = open.blob(file)?;
            let range = range((*blob).as_ref());
            Ok(vec![Slice::new(blob, range)])
        }
        VnodeType::Symlink => {
            let target = file.node.readlink().map_err(|error| code_of(open, &error))?;
            let range = range(&target);
            Ok(vec![Slice::from(target[range].to_vec())])
        }
        VnodeType::File => {
            let found = open.fs.read_blocks(object(file.vnode), from, count);
            let found = found.map_err(|error| code_of(open, &error))?;
            let mut parts = Vec::with_capacity(found.len() + 1);
            let mut left = count;
            for part in found {
                left -= part.range.len() as u64;
                match part.block {
                    None => zeros(part.range.len() as u64, &mut parts),
                    // A small read must not keep a large block in memory.
                    Some(block) if part.range.len() < block.len() / SHARED => {
                        parts.push(Slice::from(block[part.range].to_vec()));
                    }
                    Some(block) => parts.push(Slice::new(Arc::new(block), part.range)),
                }
            }
            // A file that became shorter: the client was promised these bytes.
            zeros(left, &mut parts);
            Ok(parts)
        }
    }
}

/// Adds so many zeros.
fn zeros(mut count: u64, parts: &mut Vec<Slice>) {
    static ZEROS: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(vec![0; ZEROS_SIZE]));
    while count > 0 {
        let n = count.min(ZEROS_SIZE as u64) as usize;
        parts.push(Slice::new(Arc::clone(&*ZEROS) as rx::Block, 0..n));
        count -= n as u64;
    }
}

/// The rights in a directory that a call changes.
pub(super) fn directory_to_change(
    open: &Open,
    caller: &Caller,
    fid: Fid,
    right: Rights,
) -> Outcome<(Found, Granted)> {
    let directory = open.find(fid.vnode, fid.unique)?;
    need_directory(&directory)?;
    let granted = caller.granted(&open.acl(&directory)?);
    need(granted.rights.has(right))?;
    Ok((directory, granted))
}
