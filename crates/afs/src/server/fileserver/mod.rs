//! The file server: the calls of clients on files.
//!
//! # Theory
//! A call finds its volume, locks the vnodes that it concerns, checks the caller's rights, and
//! reads or changes the files. Every status in a reply is of the moment of the change, because the
//! vnodes are still locked when it is made. Promises to other clients are broken after the locks
//! are released, and before the reply.
//!
//! # Errors
//! A call fails with a code ([`crate::errors`]). Codes of volumes are sent as they are. Others are
//! those of Unix, and are translated for clients that ask for it.
//!
//! # See
//! OpenAFS: `src/viced/afsfileprocs.c`.

mod change;
pub(super) mod changed;
mod read;
mod store;
mod volume;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rx::{Call as RxCall, Reply as RxReply, Request, Service};
use zpl::Error as FileError;

use super::access::Caller;
use super::activity::clients::Client;
use super::callbacks::Promising;
use super::open::Open;
use super::vnode::Found;
use super::volume::Volume;
use super::{Core, chain};
use crate::calls::fileserver::{Call, Reply, TimeReply, capability};
use crate::errors::{self, errno, rxgen, volume as code};
use crate::types::{CallBack, Date, Fid, VnodeType, VolSync, VolumeId};
use crate::wire::List;

/// Longest arguments of a call without data.
const ARGUMENTS: usize = 64 << 10;
/// Bytes of data that are read or written at once.
const PIECE: usize = 1 << 20;
/// Bytes from which on a read takes long.
const LONG: i64 = 128 << 10;
/// Calls that read.
const FETCH_DATA: u32 = 130;
const FETCH_DATA_64: u32 = 65_537;
/// Calls that are answered at once if all that they need is known.
const FETCH_STATUS: u32 = 132;
const GET_TIME: u32 = 153;
const INLINE_BULK_STATUS: u32 = 65_536;
const GET_CAPABILITIES: u32 = 65_540;
/// Longest name of an entry.
const NAME_MAX: usize = 255;

/// The result of a call: the reply, or the code that it fails with.
pub(super) type Outcome<T> = Result<T, i32>;

/// The service.
pub struct FileServer {
    core: Arc<Core>,
}

impl FileServer {
    /// The service of a server.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    fn serve(&self, call: &mut RxCall, caller: &Caller, number: u32) -> Outcome<()> {
        // The messages of a call name the call and the client. Those of a volume name it.
        let (name, client) = (Call::name(number).unwrap_or_default(), call.info().peer);
        let _entered = tracing::error_span!("call", name, %client).entered();
        if let Some(size) = Call::size_before_data(number) {
            let mut arguments = vec![0; size];
            call.read_exact(&mut arguments).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?;
            return self.store_data(call, caller, decode(number, &arguments)?);
        }
        let arguments = call.read_all(ARGUMENTS).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?;
        match decode(number, &arguments)? {
            Call::FetchData { fid, position, length } => {
                let (position, length) = (i64::from(position), i64::from(length));
                self.fetch_data(call, caller, fid, (position, length), false)
            }
            Call::FetchData64 { fid, position, length } => {
                self.fetch_data(call, caller, fid, (position, length), true)
            }
            Call::FlushCps { .. } if !self.core.is_superuser(call.info()) => Err(errno::EPERM),
            other => {
                let reply = self.answer(caller, other)?;
                call.write(reply.encode()).map_err(|_| errors::rx::RX_USER_ABORT)
            }
        }
    }

    fn answer(&self, caller: &Caller, call: Call) -> Outcome<Reply> {
        Ok(match call {
            Call::FetchStatus { fid } => Reply::FetchStatus(self.fetch_status(caller, fid)?),
            Call::BulkStatus { fids } => Reply::BulkStatus(self.bulk_status(caller, &fids)?),
            Call::InlineBulkStatus { fids } => {
                Reply::InlineBulkStatus(self.inline_bulk_status(caller, &fids)?)
            }
            Call::Lookup { .. } => return Err(errno::EINVAL),
            Call::FetchAcl { fid } => Reply::FetchAcl(self.fetch_acl(caller, fid)?),
            Call::StoreAcl { fid, acl } => Reply::StoreAcl(self.store_acl(caller, fid, &acl)?),
            Call::OldStoreAcl { fid, acl } => Reply::OldStoreAcl(self.store_acl(caller, fid, &acl)?),
            Call::StoreStatus { fid, status } => Reply::StoreStatus(self.store_status(caller, fid, &status)?),
            Call::RemoveFile { directory, name } => {
                Reply::RemoveFile(self.remove(caller, directory, name.as_bytes(), false)?)
            }
            Call::RemoveDir { directory, name } => {
                Reply::RemoveDir(self.remove(caller, directory, name.as_bytes(), true)?)
            }
            Call::CreateFile { directory, name, status } => {
                Reply::CreateFile(self.create_file(caller, directory, name.as_bytes(), &status)?)
            }
            Call::MakeDir { directory, name, status } => {
                Reply::MakeDir(self.make_dir(caller, directory, name.as_bytes(), &status)?)
            }
            Call::Symlink { directory, name, target, status } => Reply::Symlink(self.symlink(
                caller,
                directory,
                name.as_bytes(),
                target.as_bytes(),
                &status,
            )?),
            Call::Link { directory, name, existing } => {
                Reply::Link(self.link(caller, directory, name.as_bytes(), existing)?)
            }
            Call::Rename { old_directory, old_name, new_directory, new_name } => {
                let old = (old_directory, old_name.as_bytes());
                Reply::Rename(self.rename(caller, old, (new_directory, new_name.as_bytes()))?)
            }
            Call::GiveUpCallBacks { fids, .. } => {
                self.give_up(caller, &fids);
                Reply::GiveUpCallBacks(())
            }
            Call::GiveUpAllCallBacks {} => {
                self.core.callbacks.give_up_all(&caller.host);
                Reply::GiveUpAllCallBacks(())
            }
            Call::GetVolumeStatus { volume } => Reply::GetVolumeStatus(self.volume_status(caller, volume)?),
            Call::SetVolumeStatus { volume, status, name, offline_message, .. } => {
                self.set_volume_status(caller, volume, &status, (&name, &offline_message))?;
                Reply::SetVolumeStatus(())
            }
            // The peer has it from a file that no client asks for any more.
            Call::GetRootVolume {} => return Err(rxgen::RXGEN_OPCODE),
            Call::SetLock { fid, kind } => Reply::SetLock(self.set_lock(caller, fid, kind)?),
            Call::ExtendLock { fid } => Reply::ExtendLock(self.extend_lock(fid)?),
            Call::ReleaseLock { fid } => Reply::ReleaseLock(self.release_lock(caller, fid)?),
            Call::XStatsVersion {} => Reply::XStatsVersion(volume::STATISTICS_VERSION),
            Call::GetXStats { collection, .. } => Reply::GetXStats(self.statistics(collection)?),
            Call::FlushCps { users, addresses, .. } => {
                self.core.flush(&users, &addresses);
                Reply::FlushCps(Default::default())
            }
            Call::GetTime {} => Reply::GetTime(time()),
            Call::GetCapabilities {} => Reply::GetCapabilities(capabilities()),
            Call::FetchData { .. }
            | Call::FetchData64 { .. }
            | Call::StoreData { .. }
            | Call::StoreData64 { .. } => unreachable!("calls with data are served elsewhere"),
        })
    }

    /// The volume of this number, for a call on its files. Each call takes it once, which counts.
    fn volume(&self, id: VolumeId) -> Outcome<Arc<Volume>> {
        let volume = self.core.table.get(id).ok_or_else(|| self.core.no_volume(id))?;
        volume.usage.calls.inc();
        Ok(volume)
    }

    /// Counts a call that has ended.
    fn ended(&self, client: &Client, number: u32, began: Instant, failed: Option<i32>) {
        let activity = &self.core.activity;
        activity.files.ended(number, began, failed);
        let (took, seconds) = (began.elapsed(), self.core.shared.seconds());
        activity.clients.ended(client, number, took, failed.is_some(), seconds);
    }

    /// The promise for a file that the caller may cache from now on.
    fn promise(&self, volume: &Volume, open: &Open, fid: Fid, caller: &Caller) -> CallBack {
        promise(&mut volume.callbacks.promising(&caller.host, Instant::now()), open, fid)
    }

    /// Answers a call from memory. `None`: it has to wait for something.
    fn quick_answer(&self, caller: &Caller, number: u32, arguments: &[u8]) -> Option<Outcome<Reply>> {
        Some(Ok(match number {
            // An idle client learns by these that the server was restarted, and what it missed.
            GET_TIME => Reply::GetTime(time()),
            GET_CAPABILITIES => Reply::GetCapabilities(capabilities()),
            _ => match Call::decode(number, arguments).ok()? {
                Call::FetchStatus { fid } => match self.quick_status(caller, fid)? {
                    Ok(reply) => Reply::FetchStatus(reply),
                    Err(code) => return Some(Err(code)),
                },
                Call::InlineBulkStatus { fids } => {
                    Reply::InlineBulkStatus(self.quick_bulk_status(caller, &fids)?)
                }
                _ => return None,
            },
        }))
    }

    fn give_up(&self, caller: &Caller, fids: &[Fid]) {
        if fids.is_empty() {
            self.core.callbacks.give_up_all(&caller.host);
        }
        for fid in fids {
            if let Some(volume) = self.core.table.get(fid.volume) {
                volume.callbacks.give_up(&caller.host, &[(fid.vnode, fid.unique)]);
            }
        }
    }
}

impl Service for FileServer {
    fn quick(&self, request: &Request) -> Option<RxReply> {
        let (opcode, arguments) = request.body.split_first_chunk()?;
        let (began, number) = (Instant::now(), u32::from_be_bytes(*opcode));
        if !matches!(number, GET_TIME | GET_CAPABILITIES | FETCH_STATUS | INLINE_BULK_STATUS) {
            // A call that there is may have to wait.
            if Call::name(number).is_some() {
                return None;
            }
            let client = self.core.activity.clients.of(&request.info, self.core.shared.seconds());
            self.ended(&client, number, began, Some(rxgen::RXGEN_OPCODE));
            return Some(RxReply::Abort(rxgen::RXGEN_OPCODE));
        }
        let caller = self.core.known_caller(&request.info)?;
        let answer = self.quick_answer(&caller, number, arguments)?;
        self.ended(&caller.usage, number, began, answer.as_ref().err().copied());
        Some(match answer {
            Ok(reply) => RxReply::Parts(vec![reply.encode().into()]),
            Err(code) => RxReply::Abort(caller.code(code)),
        })
    }

    fn is_long(&self, request: &Request) -> bool {
        let Some((opcode, arguments)) = request.body.split_first_chunk() else { return false };
        let length = match u32::from_be_bytes(*opcode) {
            number @ (FETCH_DATA | FETCH_DATA_64) => match Call::decode(number, arguments) {
                Ok(Call::FetchData { length, .. }) => length.into(),
                Ok(Call::FetchData64 { length, .. }) => length,
                _ => 0,
            },
            _ => 0,
        };
        length > LONG
    }

    fn run(&self, call: &mut RxCall) -> Result<(), i32> {
        let (began, mut opcode) = (Instant::now(), [0; 4]);
        call.read_exact(&mut opcode).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?;
        let number = u32::from_be_bytes(opcode);
        let caller = self.core.caller(call.info());
        let done = caller.as_ref().map_err(|code| *code).and_then(|caller| self.serve(call, caller, number));
        let unknown;
        let client = match &caller {
            Ok(caller) => &caller.usage,
            Err(_) => {
                unknown = self.core.activity.clients.of(call.info(), self.core.shared.seconds());
                &unknown
            }
        };
        self.ended(client, number, began, done.err());
        done.map_err(|code| caller.map_or(code, |caller| caller.code(code)))
    }
}

fn decode(opcode: u32, arguments: &[u8]) -> Outcome<Call> {
    Call::decode(opcode, arguments).map_err(|error| match error {
        crate::Error::Opcode { .. } => rxgen::RXGEN_OPCODE,
        _ => rxgen::RXGEN_SS_UNMARSHAL,
    })
}

fn time() -> TimeReply {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeReply { seconds: Date(now.as_secs() as u32), microseconds: now.subsec_micros() }
}

fn capabilities() -> crate::calls::fileserver::Capabilities {
    let all = capability::ERROR_TRANSLATION | capability::FILES_64 | capability::WRITE_LOCK_ACL;
    List::new(vec![all]).expect("one word fits")
}

/// The promise for a file that its host may cache from now on.
fn promise(promising: &mut Promising<'_>, open: &Open, fid: Fid) -> CallBack {
    match open.is_read_only {
        true => promising.volume(),
        false => promising.file(fid.vnode, fid.unique),
    }
}

/// What tells clients that a volume was replaced.
fn sync(open: &Open) -> VolSync {
    open.sync()
}

/// ENOTDIR unless the file is a directory.
fn need_directory(file: &Found) -> Outcome<()> {
    if file.kind == VnodeType::Directory { Ok(()) } else { Err(errno::ENOTDIR) }
}

/// Checks a name of a new entry (`FileNameOK`).
fn check_name(name: &[u8]) -> Outcome<()> {
    if name.len() > NAME_MAX {
        return Err(errno::ENAMETOOLONG);
    }
    // Clients take names that end so for names of systems.
    let bad = matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.ends_with(b"@sys");
    if bad { Err(errno::EINVAL) } else { Ok(()) }
}

/// The code for a failed operation on files.
fn code_of(open: &Open, error: &FileError) -> i32 {
    match error {
        FileError::NoEntry { .. } => errno::ENOENT,
        FileError::NoFile { .. } | FileError::Unlinked { .. } => code::VNOVNODE,
        FileError::NotDirectory { .. } => errno::ENOTDIR,
        FileError::IsDirectory { .. } => errno::EISDIR,
        FileError::Exists { .. } | FileError::XattrExists { .. } => errno::EEXIST,
        FileError::NotEmpty { .. } => errno::EEXIST,
        FileError::NameTooLong { .. } => errno::ENAMETOOLONG,
        FileError::NotPermitted { .. } => errno::EPERM,
        FileError::LeavesFileSystem { .. }
        | FileError::OtherProject { .. }
        | FileError::NotCloneable { .. } => errno::EXDEV,
        FileError::ReadOnly => errno::EROFS,
        FileError::TooLarge { .. } => errno::EFBIG,
        FileError::XattrTooLarge { .. } | FileError::XattrsTooLarge { .. } => errno::E2BIG,
        FileError::NotUtf8
        | FileError::NotSymlink { .. }
        | FileError::NotRegular { .. }
        | FileError::PastEnd { .. }
        | FileError::BadName
        | FileError::IntoItself { .. }
        | FileError::BadFlags { .. }
        | FileError::BadRange { .. }
        | FileError::BadAcl { .. }
        | FileError::TooManyLinks
        | FileError::NoXattr { .. }
        | FileError::NotCounted => errno::EINVAL,
        FileError::NoSpace => code::VDISKFULL,
        FileError::Quota => code::VOVERQUOTA,
        FileError::Dmu(_)
        | FileError::Corrupt { .. }
        | FileError::NotFileSystem
        | FileError::UnsupportedVersion { .. }
        | FileError::Stopped { .. } => {
            tracing::error!(volume = open.id.0, error = chain(error), "a call failed");
            errno::EIO
        }
    }
}
