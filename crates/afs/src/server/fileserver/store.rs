//! Calls that store data, statuses and access lists.

use rx::Call as RxCall;
use zpl::{SetAttr, Time};

use super::changed::changing;
use super::{FileServer, Outcome, PIECE, code_of, need_directory, sync};
use crate::acl::AclText;
use crate::calls::fileserver::{AclBytes, Call, ChangeReply};
use crate::errors::{self, errno, rxgen};
use crate::server::access::{Caller, SET_ID};
use crate::server::open::Open;
use crate::server::vnode::{Found, kib};
use crate::server::volume::{Access, Volume};
use crate::types::{Fid, StoreStatus, Vnode, VnodeType};
use crate::volume::object;
use crate::wire::Wire;

/// A store, as far as it has come.
struct Store<'a> {
    volume: &'a Volume,
    caller: &'a Caller,
    fid: Fid,
    set: &'a StoreStatus,
    /// A step has changed the file.
    begun: bool,
}

/// Data for a place of a file.
type Piece = (u64, Vec<u8>);

impl FileServer {
    /// Serves a call with data.
    pub(super) fn store_data(&self, call: &mut RxCall, caller: &Caller, arguments: Call) -> Outcome<()> {
        let (fid, set, position, length, file_length) = match arguments {
            Call::StoreData { fid, status, position, length, file_length } => {
                (fid, status, position.into(), length.into(), file_length.into())
            }
            Call::StoreData64 { fid, status, position, length, file_length } => {
                (fid, status, position, length, file_length)
            }
            _ => return Err(rxgen::RXGEN_OPCODE),
        };
        let end = position.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        let size = end.map(|end| end.max(file_length)).filter(|size| i64::try_from(*size).is_ok());
        let size = size.ok_or(errno::EFBIG)?;
        let volume = self.volume(fid.volume)?;
        let mut store = Store { volume: &volume, caller, fid, set: &set, begun: false };
        let _storing = volume.store(fid.vnode, caller.user.id);
        let begun = store.begin(file_length, size);
        let received = begun.and_then(|()| store.receive(call, position, length));
        let done = received.and_then(|last| store.end(size, last)).map_err(|code| {
            // What was stored before it broke off stays, with a new version.
            let gave_up = store.give_up();
            gave_up.err().unwrap_or(code)
        });
        if store.begun {
            // A client whose store broke off does not know what there is.
            let by = Some(&*caller.host).filter(|_| done.is_ok());
            volume.callbacks.changed(&[(fid.vnode, fid.unique)], by);
        }
        call.write(done?.to_bytes()).map_err(|_| errors::rx::RX_USER_ABORT)
    }

    pub(super) fn store_status(&self, caller: &Caller, fid: Fid, set: &StoreStatus) -> Outcome<ChangeReply> {
        let volume = self.volume(fid.volume)?;
        changing(&volume.callbacks, Some(&caller.host), |changed| {
            let open = volume.enter(Access::Change)?;
            let _locks = open.lock(&[fid.vnode]);
            let file = open.find(fid.vnode, fid.unique)?;
            let granted = caller.granted(&open.acl(&file)?);
            caller.check_store_status(&file.about(), granted, set)?;
            let done = change(&open, caller, &file, set, false);
            changed.by(&[(fid.vnode, fid.unique)], done)?;
            if fid.vnode == Vnode::ROOT
                && let Some(owner) = set.owner
            {
                open.change_header(|stored| stored.header.owner = owner);
            }
            durable(&open, fid, set)?;
            let file = open.find(fid.vnode, fid.unique)?;
            Ok(ChangeReply { status: open.status(&file, caller, granted)?, sync: sync(&open) })
        })
    }

    pub(super) fn store_acl(&self, caller: &Caller, fid: Fid, text: &AclBytes) -> Outcome<ChangeReply> {
        let volume = self.volume(fid.volume)?;
        let parsed = AclText::parse(text.as_bytes()).map_err(|_| errno::EINVAL)?;
        // The rights come first: a stranger must not make the server ask the database.
        {
            let open = volume.enter(Access::Change)?;
            let _lock = open.lock_shared(fid.vnode);
            let directory = open.find(fid.vnode, fid.unique)?;
            need_directory(&directory)?;
            let granted = caller.granted(&open.acl(&directory)?);
            caller.check_administer(granted, open.owner())?;
        }
        let names: Vec<Vec<u8>> = parsed.names().map(<[u8]>::to_vec).collect();
        let ids = self.core.protection.ids(&names)?;
        let acl = parsed.resolve(&ids).map_err(|_| errno::EINVAL)?;
        // The rights of all files in it change, and clients ask for these with the directory. So
        // the caller loses its promise, too.
        changing(&volume.callbacks, None, |changed| {
            let open = volume.enter(Access::Change)?;
            let _locks = open.lock(&[fid.vnode]);
            let directory = open.find(fid.vnode, fid.unique)?;
            let granted = caller.granted(&open.acl(&directory)?);
            caller.check_administer(granted, open.owner())?;
            open.forget(fid.vnode);
            let fs = open.fs.by_afs_user(caller.user.id.0);
            let stored = fs.set_access_list(object(fid.vnode), &acl.to_compact());
            changed.by(&[(fid.vnode, fid.unique)], stored.map_err(|error| code_of(&open, &error)))?;
            let directory = open.find(fid.vnode, fid.unique)?;
            let granted = caller.granted(&acl);
            Ok(ChangeReply { status: open.status(&directory, caller, granted)?, sync: sync(&open) })
        })
    }
}

impl Store<'_> {
    fn file(&self, open: &Open) -> Outcome<Found> {
        let file = open.find(self.fid.vnode, self.fid.unique)?;
        match file.kind {
            VnodeType::Directory => Err(errno::EISDIR),
            // The target of a symbolic link never changes.
            VnodeType::Symlink => Err(errno::EINVAL),
            VnodeType::File => Ok(file),
        }
    }

    /// A handle for a step. The last one raises the version, so that no client can take half of the
    /// store for its result.
    fn files(&self, open: &Open, is_last: bool) -> zpl::FileSystem {
        open.forget(self.fid.vnode);
        let user = self.caller.user.id.0;
        if is_last { open.fs.by_afs_user(user) } else { open.fs.by_afs_user_again(user) }
    }

    /// Checks rights and quota, and cuts the file.
    fn begin(&mut self, file_length: u64, size: u64) -> Outcome<()> {
        let open = self.volume.enter(Access::Change)?;
        let _locks = open.lock(&[self.fid.vnode]);
        let file = self.file(&open)?;
        let granted = self.caller.granted(&open.acl(&file)?);
        self.caller.check_store(&file.about(), granted, self.set)?;
        let now = file.node.attr().size;
        let more = kib(size) - kib(now);
        open.check_store(more)?;
        if file_length < now {
            self.begun = true;
            let cut = self.files(&open, false).truncate(object(self.fid.vnode), file_length, false);
            cut.map_err(|error| code_of(&open, &error))?;
            open.charge_over(kib(file_length) - kib(now));
        }
        Ok(())
    }

    /// Writes the data as they come, up to the last piece.
    fn receive(&mut self, call: &mut RxCall, position: u64, length: u64) -> Outcome<Option<Piece>> {
        let mut done = 0;
        let mut last: Option<Piece> = None;
        while done < length {
            let at = position + done;
            // Pieces end where blocks do.
            let n = (PIECE as u64 - at % PIECE as u64).min(length - done);
            let mut bytes = Vec::new();
            if let Some((at, piece)) = last.take() {
                self.begun = true;
                self.write(at, &piece, false)?;
                bytes = piece;
            }
            bytes.resize(n as usize, 0);
            call.read_exact(&mut bytes).map_err(|_| errors::rx::RX_PROTOCOL_ERROR)?;
            last = Some((at, bytes));
            done += n;
            self.volume.usage.written.add(n);
            self.caller.usage.written.add(n);
        }
        match call.read() {
            Ok(rest) if rest.is_empty() => Ok(last),
            _ => Err(rxgen::RXGEN_SS_UNMARSHAL),
        }
    }

    fn write(&self, at: u64, piece: &[u8], is_last: bool) -> Outcome<()> {
        let open = self.volume.enter(Access::GoOn)?;
        let _locks = open.lock(&[self.fid.vnode]);
        self.write_locked(&open, at, piece, is_last)
    }

    fn write_locked(&self, open: &Open, at: u64, piece: &[u8], is_last: bool) -> Outcome<()> {
        let (now, end) = (self.file(open)?.node.attr().size, at + piece.len() as u64);
        let blocks = kib(now.max(end)) - kib(now);
        open.charge_store(blocks)?;
        let written = self.files(open, is_last).write(object(self.fid.vnode), at, piece, false);
        written.map_err(|error| {
            open.charge_over(-blocks);
            code_of(open, &error)
        })
    }

    /// Writes the last piece, extends the file to its size, and changes its status.
    fn end(&mut self, size: u64, last: Option<Piece>) -> Outcome<ChangeReply> {
        let open = self.volume.enter(Access::GoOn)?;
        let _locks = open.lock(&[self.fid.vnode]);
        self.begun = true;
        if let Some((at, piece)) = &last {
            self.write_locked(&open, *at, piece, true)?;
        }
        let file = self.file(&open)?;
        let now = file.node.attr().size;
        if size > now || last.is_none() {
            let blocks = kib(size.max(now)) - kib(now);
            open.charge_store(blocks)?;
            let files = self.files(&open, last.is_none());
            let sized = files.truncate(object(self.fid.vnode), size.max(now), false);
            sized.map_err(|error| {
                open.charge_over(-blocks);
                code_of(&open, &error)
            })?;
        }
        change(&open, self.caller, &file, self.set, true)?;
        durable(&open, self.fid, self.set)?;
        let file = self.file(&open)?;
        let granted = self.caller.granted(&open.acl(&file)?);
        Ok(ChangeReply { status: open.status(&file, self.caller, granted)?, sync: sync(&open) })
    }

    /// Raises the version of a file that was changed in part.
    fn give_up(&self) -> Outcome<()> {
        if !self.begun {
            return Ok(());
        }
        // A volume that is busy or offline lets it in too: this changes the version and no data.
        let open = self.volume.open().map_err(|_| errors::volume::VOFFLINE)?;
        let _locks = open.lock(&[self.fid.vnode]);
        self.file(&open)?;
        let raised = open.raise_version(self.fid.vnode, self.caller.user.id);
        raised.map_err(|error| code_of(&open, &error))
    }
}

/// Changes a status as the client asks. `data`: after a store of data.
fn change(open: &Open, caller: &Caller, file: &Found, set: &StoreStatus, data: bool) -> Outcome<()> {
    let mut mode = set.mode.map(|mode| caller.mode(mode));
    if mode.is_none() && (data || set.owner.is_some()) && !caller.is_administrator() {
        let now = file.about().mode;
        mode = Some(now & !SET_ID).filter(|mode| *mode != now);
    }
    let attributes = SetAttr {
        permissions: mode,
        uid: set.owner.map(|owner| owner.0.cast_unsigned()),
        gid: set.group.map(i32::cast_unsigned),
        mtime: set.modify_time.map(|time| Time { secs: time.0.into(), nanos: 0 }),
        ..SetAttr::default()
    };
    if attributes == SetAttr::default() && data {
        return Ok(());
    }
    open.forget(file.vnode);
    let fs = open.fs.by_afs_user_again(caller.user.id.0);
    fs.set_attr(object(file.vnode), &attributes).map_err(|error| code_of(open, &error))?;
    Ok(())
}

/// Waits until a change is durable, if the client asks for it.
fn durable(open: &Open, fid: Fid, set: &StoreStatus) -> Outcome<()> {
    match set.is_durable {
        true => open.fs.fsync(object(fid.vnode)).map_err(|error| code_of(open, &error)),
        false => Ok(()),
    }
}
