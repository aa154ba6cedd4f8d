//! The volume server: the calls of administrators on volumes.
//!
//! # Theory
//! A change of a volume is made in a transaction ([`transactions`]). `vos` makes a volume in steps,
//! and marks it with the last one as complete. Each end of a transaction that changed something
//! waits until the change is on disk, because `vos` then changes the cell's database.
//!
//! Clones are snapshots, so making one takes the same time for every volume. A restore changes a
//! hidden clone, which takes the place of the volume when it is complete. So a read-only volume
//! stays online.
//!
//! # Absent
//! * SplitVolume.
//! * Clones of clones.
//!
//! # See
//! OpenAFS: `src/volser/volprocs.c`, `src/volser/vsprocs.c` (the order of calls).

pub mod blocks;
mod clones;
mod data;
mod fan;
pub mod forward;
mod info;
mod make;
mod plan;
pub mod transactions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rx::engine::Info;
use rx::{Call as RxCall, Reply as RxReply, Request, Service};

use super::header::Service as State;
use super::open::Open;
use super::volume::Volume;
use super::{Core, Error, chain};
use crate::calls::volserver::{Call, Reply, attach, volume_flag};
use crate::errors::{self, errno, rxgen, volser, volume as code};
use crate::partition::PartitionId;
use crate::types::{VolumeId, VolumeType};
use transactions::{Lease, Transaction};

/// Longest arguments of a call without data.
const ARGUMENTS: usize = 64 << 10;

/// How long a superuser's program may leave a dump or restore alone.
const PATIENCE: Duration = Duration::from_secs(3600);

type Outcome<T> = Result<T, i32>;

/// The service.
pub struct VolumeServer {
    core: Arc<Core>,
}

impl VolumeServer {
    /// The service of a server.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    fn serve(&self, call: &mut RxCall, number: u32) -> Outcome<()> {
        let name = Call::name(number).ok_or(rxgen::RXGEN_OPCODE)?;
        let arguments = match Call::size_before_data(number) {
            Some(size) => {
                let mut arguments = vec![0; size];
                call.read_exact(&mut arguments).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?;
                arguments
            }
            None => call.read_all(ARGUMENTS).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?,
        };
        let decoded = Call::decode(number, &arguments).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?;
        // The messages of a call name the call, the client and the volume.
        let client = call.info().peer;
        let span = tracing::info_span!("call", name, %client, volume = tracing::field::Empty);
        let _entered = span.enter();
        if is_for_anyone(&decoded) {
            return self.run_decoded(call, decoded);
        }
        self.check_superuser(call.info(), name)?;
        // Its program may wait for a tape, or for another server.
        call.set_patience(PATIENCE);
        let is_noted = is_noted(&decoded);
        let done = self.run_decoded(call, decoded);
        match done {
            Ok(()) if is_noted => tracing::info!("an administrator has changed the volume"),
            Ok(()) => {}
            Err(code) => tracing::info!(code, "a call of the volume server failed"),
        }
        done
    }

    fn run_decoded(&self, call: &mut RxCall, decoded: Call) -> Outcome<()> {
        match decoded {
            Call::Dump { transaction, since } => self.dump(call, transaction, since, false),
            Call::DumpV2 { transaction, since, flags } => {
                let omit = flags & crate::calls::volserver::OMIT_DIRECTORIES != 0;
                self.dump(call, transaction, since, omit)
            }
            Call::Restore { transaction, cookie, .. } => self.restore(call, transaction, &cookie),
            Call::RestoreBlocks { transaction, version, cookie, base, header } => {
                self.restore_blocks(call, (transaction, version), &cookie, (base, header))
            }
            other => {
                let reply = self.answer(other)?;
                call.write(reply.encode()).map_err(|_| errors::rx::RX_USER_ABORT)
            }
        }
    }

    fn check_superuser(&self, info: &Info, call: &str) -> Outcome<()> {
        let who = info.identity.as_ref().map_or("anonymous", |identity| &identity.name);
        if !self.core.is_superuser(info) {
            tracing::warn!(call, peer = %info.peer, who, "a call of the volume server is refused");
            return Err(volser::VOLSERBAD_ACCESS);
        }
        tracing::debug!(call, peer = %info.peer, who, "a call of the volume server");
        Ok(())
    }

    fn answer(&self, call: Call) -> Outcome<Reply> {
        Ok(match call {
            Call::CreateVolume { partition, name, kind, parent, volume } => {
                Reply::CreateVolume(self.create(partition, name.as_bytes(), kind, parent, volume)?)
            }
            Call::DeleteVolume { transaction } => {
                self.delete(transaction)?;
                Reply::DeleteVolume(())
            }
            Call::Forward { transaction, since, to, to_transaction, cookie } => {
                self.forward(transaction, since, &to, to_transaction, &cookie)?;
                Reply::Forward(())
            }
            Call::ForwardMultiple { transaction, since, to, cookie, .. } => {
                Reply::ForwardMultiple(self.forward_multiple(transaction, since, &to, &cookie)?)
            }
            Call::EndTrans { transaction } => Reply::EndTrans(self.end(transaction)?),
            Call::Clone { transaction, purge, kind, name, volume } => {
                Reply::Clone(self.clone_volume(transaction, purge, kind, name.as_bytes(), volume)?)
            }
            Call::ReClone { transaction, clone } => {
                self.reclone(transaction, clone)?;
                Reply::ReClone(())
            }
            Call::SetFlags { transaction, flags } => {
                self.set_flags(transaction, flags)?;
                Reply::SetFlags(())
            }
            Call::GetFlags { transaction } => Reply::GetFlags(self.flags(transaction)?),
            Call::TransCreate { volume, partition, flags } => {
                Reply::TransCreate(self.begin(volume, partition, flags)?)
            }
            Call::GetNthVolume { .. } => return Err(volser::VOLSERNO_OP),
            // The peer has no effect of it either: its clients ask the database again.
            Call::SetForwarding { transaction, .. } => {
                self.lease(transaction, "SetForwarding")?;
                Reply::SetForwarding(())
            }
            Call::GetName { transaction } => Reply::GetName(self.name(transaction)?),
            Call::GetStatus { transaction } => Reply::GetStatus(self.status(transaction)?),
            Call::SignalRestore { .. } => Reply::SignalRestore(()),
            Call::SetIdsTypes { transaction, name, kind, parent, clone, backup } => {
                self.set_ids(transaction, name.as_bytes(), kind, (parent, clone, backup))?;
                Reply::SetIdsTypes(())
            }
            Call::SetDate { transaction, date } => {
                self.set_date(transaction, date)?;
                Reply::SetDate(())
            }
            Call::SetInfo { transaction, info } => {
                self.set_info(transaction, &info)?;
                Reply::SetInfo(())
            }
            Call::NukeVolume { partition, volume } => {
                self.nuke(partition, volume)?;
                Reply::NukeVolume(())
            }
            Call::ConvertRoToRw { partition, volume } => {
                self.convert(partition, volume)?;
                Reply::ConvertRoToRw(())
            }
            Call::OfferBlocks { transaction, version } => {
                Reply::OfferBlocks(self.offer_blocks(transaction, version)?)
            }
            Call::GetSize { transaction, since } => Reply::GetSize(self.size(transaction, since)?),
            Call::SplitVolume { .. } => return Err(rxgen::RXGEN_OPCODE),
            other => return self.answer_list(other),
        })
    }

    /// Answers the calls that list volumes, partitions and transactions.
    fn answer_list(&self, call: Call) -> Outcome<Reply> {
        Ok(match call {
            Call::ListPartitions {} => Reply::ListPartitions(self.list_partitions()),
            Call::XListPartitions {} => Reply::XListPartitions(self.x_list_partitions()),
            Call::ListVolumes { partition, flags } => Reply::ListVolumes(self.list(partition, flags)?),
            Call::XListVolumes { partition, flags } => Reply::XListVolumes(self.x_list(partition, flags)?),
            Call::ListOneVolume { partition, volume } => {
                Reply::ListOneVolume(self.list_one(partition, volume)?)
            }
            Call::XListOneVolume { partition, volume } => {
                Reply::XListOneVolume(self.x_list_one(partition, volume)?)
            }
            Call::Monitor {} => Reply::Monitor(self.monitor()),
            Call::PartitionInfo { name } => Reply::PartitionInfo(self.partition_info(name.as_bytes())?),
            Call::PartitionInfo64 { name } => {
                Reply::PartitionInfo64(self.partition_info_64(name.as_bytes())?)
            }
            _ => return Err(rxgen::RXGEN_OPCODE),
        })
    }

    /// Uses a transaction for a call. Its volume exists.
    fn lease(&self, transaction: i32, call: &'static str) -> Outcome<Lease<'_>> {
        let lease = self.lease_unmade(transaction, call)?;
        if let Some(stored) = &lease.unmade {
            self.make(&lease, stored)?;
        }
        Ok(lease)
    }

    /// Uses a transaction for a call. Its volume may not exist yet.
    fn lease_unmade(&self, transaction: i32, call: &'static str) -> Outcome<Lease<'_>> {
        let lease = self.core.transactions.lease(transaction, call)?;
        name_volume(lease.volume.id);
        Ok(lease)
    }

    /// The volume of a number, at this partition.
    fn find(&self, partition: i32, volume: VolumeId) -> Outcome<Arc<Volume>> {
        name_volume(volume);
        let id = self.partition(partition)?.id;
        let found = self.core.table.get(volume).filter(|found| found.partition.id == id);
        found.ok_or_else(|| self.core.no_volume(volume))
    }

    fn partition(&self, number: i32) -> Outcome<Arc<super::store::Partition>> {
        let id = PartitionId::from_number(number).ok_or(volser::VOLSERILLEGAL_PARTITION)?;
        self.core.partition(id).ok_or_else(|| self.core.no_partition(id))
    }

    fn begin(&self, id: VolumeId, partition: i32, flags: i32) -> Outcome<i32> {
        let known = attach::OFFLINE | attach::BUSY | attach::READ_ONLY | attach::CREATE;
        if flags & known == 0 {
            return Err(errno::EINVAL);
        }
        let volume = self.find(partition, id)?;
        let transaction = self.core.transactions.begin(Arc::clone(&volume), flags)?;
        // It may delete the volume, whether that can be opened or not.
        if state_in(flags) == Some(State::Offline) {
            if is_read_only(&volume) {
                return Ok(transaction.id);
            }
            volume.quiesce(State::Offline);
            volume.callbacks.volume_changed();
            return Ok(transaction.id);
        }
        match volume.open() {
            Ok(open) if state_in(flags) == Some(State::Busy) && open.service() == State::Online => {
                volume.quiesce(State::Busy);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(volume = id.0, error = chain(&error), "the volume can't be opened");
                let _ = self.core.transactions.end(transaction.id);
                return Err(code::VSALVAGE);
            }
        }
        Ok(transaction.id)
    }

    fn end(&self, id: i32) -> Outcome<i32> {
        self.end_unmade(id);
        // Before another transaction may have the volume.
        if let Some(transaction) = self.core.transactions.unused(id) {
            transaction.end_of_former();
        }
        let ended: Transaction = self.core.transactions.end(id)?;
        if ended.is_deleted {
            return Ok(0);
        }
        let volume = &ended.volume;
        let written = volume.write_out(false);
        let durable = match (ended.has_new_contents, ended.has_changed) {
            // The volume is opened anew when it is used: it may be of another type now.
            (true, _) => volume.exclusively(|| Ok(volume.partition.pool().sync()?)),
            (false, true) => volume.flush().and_then(|reserved| {
                volume.settle()?;
                reserved.iter().for_each(|open| open.reserved());
                Ok(())
            }),
            (false, false) => Ok(()),
        };
        let durable = written.and(durable);
        volume.set_service(State::Unknown);
        // A read-only volume may be offline only now.
        let is_offline = ended.has_changed && volume.peek().is_ok_and(|it| it.service() != State::Online);
        if ended.has_new_contents || is_offline {
            volume.callbacks.volume_changed();
        }
        durable.map_err(|error| failed(volume, &error)).map(|()| 0)
    }

    /// At the end of a transaction that did not complete its new volume: OpenAFS leaves that until
    /// its next start. So the volume is made, as one to be destroyed then, if it can be.
    fn end_unmade(&self, transaction: i32) {
        let Ok(lease) = self.lease_unmade(transaction, "EndTrans") else { return };
        let Some(stored) = &lease.unmade else { return };
        if self.make(&lease, stored).is_err() {
            self.core.table.remove_this(&lease.volume);
            self.core.transactions.deleted(transaction);
        }
    }

    /// The files of a transaction's volume.
    fn open(&self, transaction: &Transaction) -> Outcome<Arc<Open>> {
        transaction.volume.open().map_err(|error| failed(&transaction.volume, &error))
    }

    /// Notes that the header of a transaction's volume changed.
    fn note_change(&self, transaction: &Transaction) {
        self.core.transactions.update(transaction.id, |found| found.has_changed = true);
    }

    /// Notes that the volume of a transaction has other contents, or is of another kind.
    fn note_new_contents(&self, transaction: &Transaction) {
        self.core.transactions.update(transaction.id, |found| found.has_new_contents = true);
    }
}

impl Service for VolumeServer {
    fn quick(&self, _: &Request) -> Option<RxReply> {
        None
    }

    fn is_long(&self, _: &Request) -> bool {
        true
    }

    fn run(&self, call: &mut RxCall) -> Result<(), i32> {
        let (began, mut opcode) = (Instant::now(), [0; 4]);
        call.read_exact(&mut opcode).map_err(|_| rxgen::RXGEN_SS_UNMARSHAL)?;
        let number = u32::from_be_bytes(opcode);
        let done = self.serve(call, number);
        self.core.activity.volumes.ended(number, began, done.err());
        done
    }
}

/// Names the volume of the present call in its messages.
fn name_volume(id: VolumeId) {
    tracing::Span::current().record("volume", id.0);
}

/// The calls that change what volumes there are or what they contain. The log has each of them.
fn is_noted(call: &Call) -> bool {
    matches!(
        call,
        Call::CreateVolume { .. }
            | Call::DeleteVolume { .. }
            | Call::NukeVolume { .. }
            | Call::Clone { .. }
            | Call::ReClone { .. }
            | Call::Restore { .. }
            | Call::RestoreBlocks { .. }
            | Call::SetIdsTypes { .. }
            | Call::ConvertRoToRw { .. }
    )
}

/// How clients see a volume in a transaction; `None`: as before.
fn state_in(flags: i32) -> Option<State> {
    match flags {
        _ if flags & (attach::CREATE | attach::OFFLINE) != 0 => Some(State::Offline),
        _ if flags & attach::BUSY != 0 => Some(State::Busy),
        _ => None,
    }
}

/// The calls that need no rights.
fn is_for_anyone(call: &Call) -> bool {
    matches!(
        call,
        Call::ListPartitions {}
            | Call::XListPartitions {}
            | Call::ListVolumes { .. }
            | Call::XListVolumes { .. }
            | Call::ListOneVolume { .. }
            | Call::XListOneVolume { .. }
            | Call::PartitionInfo { .. }
            | Call::PartitionInfo64 { .. }
            | Call::Monitor {}
            | Call::GetNthVolume { .. }
    )
}

/// Logs why a call on a volume failed, and returns its code.
fn failed(volume: &Volume, error: &Error) -> i32 {
    tracing::error!(volume = volume.id.0, error = chain(error), "a call of the volume server failed");
    match error {
        Error::Busy { .. } | Error::InTransaction { .. } => volser::VOLSERVOLBUSY,
        Error::Header { .. } | Error::Malformed => code::VSALVAGE,
        Error::Exists { .. }
        | Error::Ended { .. }
        | Error::Taken { .. }
        | Error::Base { .. }
        | Error::Pool(_)
        | Error::Files(_)
        | Error::Format(_)
        | Error::Rx(_)
        | Error::Random
        | Error::Config { .. } => errno::EIO,
    }
}

/// Whether clients can't change a volume, so that they may use it while a transaction has it. It
/// changes at once, or by a switch to other contents.
fn is_read_only(volume: &Volume) -> bool {
    volume.is_clone() || volume.peek().is_ok_and(|stored| stored.header.kind != VolumeType::ReadWrite)
}

/// Whether a volume's header says that it is offline for good.
fn is_incomplete(flags: i32) -> bool {
    flags & volume_flag::DELETE_ON_SALVAGE != 0
}
