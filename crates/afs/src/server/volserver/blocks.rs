//! Volumes that travel as blocks between two servers of ours.
//!
//! # Theory
//! A dump has files as AFS sees them. A send stream has blocks as they are stored, compressed, and
//! only those that were born since the snapshot that the other server has. `vos` knows nothing of
//! it: it calls Forward, and the two servers agree.
//!
//! 1. The sender calls OfferBlocks with the transaction of the other server. OpenAFS's server has
//!    no such call. The sender remembers that for [`DEAF`], and sends a dump.
//! 2. The reply has the guid of the last snapshot that the volume got as blocks. If the sender has
//!    that snapshot, or a bookmark of it, the stream is an increment. Otherwise it is whole, if the
//!    volume can take that and the dump would be no smaller.
//! 3. RestoreBlocks has the cookie of Restore, the header of the volume, and the stream. If the
//!    clone has no other files than that snapshot, and the volume at the other server neither,
//!    the guid stands for the stream.
//!
//! Both calls need what Restore needs. If anything is refused, the volume at the other server is
//! as before, and the sender makes a dump.
//!
//! # Absent
//! * Streams of volumes that are no clones: the last step of `vos move` is a dump.
//! * Whole streams into encrypted volumes. So these get dumps.
//!
//! # See
//! [`crate::server::store`]: what both sides keep.

use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use observe::lock::Mutex;
use observe::{Tunable, Unit};
use poolhouse::stream::{Forms, Options, Origin, SendError, send};
use rx::Call as RxCall;
use zpl::AFS_HEADER_MAX;

use super::data::{Incoming, as_told};
use super::forward::{PIECE, REPLY, RESTORE, Sending, Site, code};
use super::plan::Plan;
use super::transactions::{Lease, Sent};
use super::{Outcome, VolumeServer, failed, make};
use crate::calls::volserver::{BLOCKS_SAME, BLOCKS_VERSION, BLOCKS_WHOLE, BlocksReply, Call};
use crate::errors::{errno, rx as rx_code, rxgen, volser};
use crate::server::header::{Service as State, Stored};
use crate::server::store::{Blocks, Found, Head};
use crate::server::volume::Volume;
use crate::server::{Error, Result, chain};
use crate::types::{Destination, RestoreCookie, Unique, VolumeId, VolumeType};
use crate::volume::{Sums, restored_header};
use crate::wire::Wire;

/// Whether volumes travel as blocks between servers of ours.
pub static AFS_SEND_BLOCKS: Tunable = Tunable::new(
    "afs_send_blocks",
    1,
    0..=1,
    Unit::Flag,
    "1: AFS volumes travel between Poolhouse servers as stored blocks; 0: as dumps",
);

/// How long another server may take to say what it takes.
const ASK: Duration = Duration::from_secs(30);
/// How long a server without these calls is not asked again.
const DEAF: Duration = Duration::from_secs(600);
/// The bytes in the place of a stream: fewer than a stream has.
const SAME: usize = 8;
/// Most servers that are remembered.
const MOST_DEAF: usize = 1024;

/// How volumes travelled to and from other servers.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Volumes that were sent as blocks.
    pub sent: AtomicU64,
    /// Bytes of these streams.
    pub sent_bytes: AtomicU64,
    /// Volumes that had not changed, so that only the header was sent.
    pub same: AtomicU64,
    /// Volumes that were received as blocks.
    pub received: AtomicU64,
    /// Bytes of these streams.
    pub received_bytes: AtomicU64,
    /// Increments of which only the vnodes that changed were checked.
    pub compared: AtomicU64,
    /// Dumps that were sent.
    pub dumps: AtomicU64,
}

impl Traffic {
    fn note(count: &AtomicU64, bytes: &AtomicU64, more: u64) {
        count.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(more, Ordering::Relaxed);
    }
}

/// The servers that have no calls for blocks, and when they said so.
#[derive(Debug, Default)]
pub struct Deaf(Mutex<HashMap<SocketAddrV4, Instant>>);

impl Deaf {
    fn has(&self, peer: SocketAddrV4) -> bool {
        self.0.lock().get(&peer).is_some_and(|since| since.elapsed() < DEAF)
    }

    fn note(&self, peer: SocketAddrV4) {
        let mut all = self.0.lock();
        if all.len() >= MOST_DEAF {
            all.clear();
        }
        all.insert(peer, Instant::now());
    }
}

/// A stream on its way to another server.
struct Outgoing<'a> {
    site: Site<'a>,
    bytes: u64,
    refused: Option<Outcome<rx::Error>>,
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let refused = match self.site.try_part(bytes.to_vec()) {
            Ok(Ok(())) => {
                self.bytes += bytes.len() as u64;
                return Ok(bytes.len());
            }
            Ok(Err(error)) => Ok(error),
            Err(code) => Err(code),
        };
        self.refused = Some(refused);
        Err(io::Error::other("the other server takes no more"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl VolumeServer {
    fn sends_blocks(&self) -> bool {
        self.core.forwards.blocks && AFS_SEND_BLOCKS.get() == 1
    }

    /// Asks another server what its volume can take. `None`: it gets a dump.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn ask_for_blocks(
        &self,
        sending: Sending<'_>,
        to: &Destination,
        to_transaction: i32,
    ) -> Outcome<Option<Plan>> {
        let (source, lease) = sending;
        let Found::Snapshot { head, id } = lease.volume.found() else { return Ok(None) };
        let peer = Self::peer(to)?;
        if !self.sends_blocks() || self.core.deaf.has(peer) {
            return Ok(None);
        }
        let mut site = self.reach(sending, to)?;
        let call = Call::OfferBlocks { transaction: to_transaction, version: BLOCKS_VERSION };
        let asked = match site.try_part(call.request())? {
            Ok(()) => site.reply(Some(ASK), BlocksReply::SIZE)?,
            Err(error) => Err(error),
        };
        let takes = match asked {
            Ok(reply) => BlocksReply::from_bytes(&reply).ok().filter(|reply| reply.version == BLOCKS_VERSION),
            Err(rx::Error::Aborted { code: rxgen::RXGEN_OPCODE }) => {
                tracing::debug!(%peer, "the other server takes dumps only");
                self.core.deaf.note(peer);
                None
            }
            Err(rx::Error::Aborted { code }) => {
                tracing::debug!(%peer, code, "the volume can't be sent as blocks");
                None
            }
            Err(rx::Error::Deadline) => {
                tracing::info!(%peer, "the other server doesn't say what it takes: a dump is sent");
                None
            }
            Err(error) => return Err(site.code(&error)),
        };
        let plan = takes.map(|takes| self.plan(source, &lease.volume, (head, id), &takes));
        Ok(plan
            .transpose()
            .unwrap_or_else(|error| {
                tracing::warn!(volume = id.0, %peer, error = chain(&error), "it is sent as a dump");
                None
            })
            .flatten())
    }

    /// What is sent to a volume that takes this.
    fn plan(
        &self,
        source: &super::forward::Source<'_>,
        volume: &Volume,
        (head, id): (Head, VolumeId),
        takes: &BlocksReply,
    ) -> Result<Option<Plan>> {
        let partition = &volume.partition;
        let origin = match takes.base {
            0 => None,
            base => partition.origin(head, id, base)?,
        };
        if let Some((origin, hold)) = origin {
            let same = takes.flags & BLOCKS_SAME != 0 && partition.is_same_as(head, id, &origin)?;
            return Ok(Some(Plan { head, id, base: takes.base, origin: Some(origin), _hold: hold, same }));
        }
        if takes.flags & BLOCKS_WHOLE == 0 {
            return Ok(None);
        }
        // How large an increment would be takes as long as to make it, while the other one waits.
        let is_whole = source.scope.since.0 == 0;
        Ok(is_whole.then_some(Plan { head, id, base: 0, origin: None, _hold: None, same: false }))
    }

    /// Sends a clone as blocks. False: the other server has not taken it, and may get a dump.
    ///
    /// # Errors
    /// The other server does not answer, or the clone can't be read.
    pub(super) fn send_blocks(
        &self,
        sending: Sending<'_>,
        (to, transaction, cookie): (&Destination, i32, &RestoreCookie),
        plan: Plan,
    ) -> Outcome<bool> {
        let (source, lease) = sending;
        let Plan { head, id, base, origin, same, .. } = plan;
        let partition = &lease.volume.partition;
        let snapshot = partition.snapshot(head, id).map_err(|error| failed(&lease.volume, &error))?;
        let stored = source.open.stored().encode().map_err(|error| failed(&lease.volume, &error))?;
        let header = stored.len() as u32;
        let (version, own) = (BLOCKS_VERSION, cookie.clone());
        let call = Call::RestoreBlocks { transaction, version, cookie: own, base, header };
        let site = self.reach(sending, to)?;
        let peer = site.peer;
        let mut outgoing = Outgoing { site, bytes: 0, refused: None };
        let front = [call.request(), stored].concat();
        let sent = outgoing.write_all(&front).map_err(SendError::Write);
        let sent = sent.and_then(|()| {
            if same {
                return outgoing.write_all(&same_bytes(base)).map_err(SendError::Write);
            }
            let mut parts = BufWriter::with_capacity(PIECE, &mut outgoing);
            send(&snapshot, &options(origin), &mut parts)?;
            parts.flush().map_err(SendError::Write)
        });
        let Outgoing { mut site, bytes, refused } = outgoing;
        if sent.is_ok() && !same {
            // The other server may take it, and its reply be lost.
            partition.forget_unsent(id);
        }
        let done = match (sent, refused) {
            (Ok(()), _) => site.reply(Some(RESTORE), REPLY)?,
            (Err(_), Some(refused)) => Err(refused?),
            (Err(error), None) => {
                source.report(peer, &error);
                return Err(site.fail());
            }
        };
        match done {
            Ok(reply) if reply.is_empty() => {}
            Ok(_) => return Err(rxgen::RXGEN_CC_UNMARSHAL),
            Err(error @ rx::Error::Aborted { .. }) if !lease.has_ended() => {
                let code = code(&error);
                if same {
                    tracing::debug!(volume = id.0, %peer, code, "a header alone is not taken");
                    return self.send_blocks(
                        sending,
                        (to, transaction, cookie),
                        Plan { same: false, ..plan },
                    );
                }
                tracing::warn!(volume = id.0, %peer, code, "the blocks are not taken: a dump is sent");
                // A server that ends the call with 0 is away.
                return if code == rx_code::RX_CALL_DEAD { Err(code) } else { Ok(false) };
            }
            Err(error) => return Err(site.code(&error)),
        }
        let increment = origin.is_some();
        tracing::info!(volume = id.0, %peer, bytes, increment, same, "the volume is sent as blocks");
        let traffic = &self.core.traffic;
        self.note_sent(lease, if same { Sent::Header } else { Sent::Blocks });
        if same {
            traffic.same.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        Traffic::note(&traffic.sent, &traffic.sent_bytes, bytes);
        Ok(true)
    }

    pub(super) fn note_sent(&self, lease: &Lease<'_>, sent: Sent) {
        self.core.transactions.update(lease.id, |found| found.sent = found.sent.max(sent));
    }

    /// What the volume of a transaction can take.
    pub(super) fn offer_blocks(&self, transaction: i32, version: u32) -> Outcome<BlocksReply> {
        let lease = self.lease(transaction, "OfferBlocks")?;
        if !self.sends_blocks() || version == 0 {
            return Err(rxgen::RXGEN_OPCODE);
        }
        let Found::Dataset(id) = lease.volume.found() else {
            return Ok(BlocksReply { version: BLOCKS_VERSION, ..BlocksReply::default() });
        };
        let partition = &lease.volume.partition;
        let takes = partition.takes_blocks(id).map_err(|error| failed(&lease.volume, &error))?;
        let flag = |is, flag| if is { flag } else { 0 };
        let same = takes.base.is_some_and(|base| partition.is_as_received(id, base))
            && self.open(&lease)?.stored().header.kind == VolumeType::ReadOnly;
        let flags = flag(takes.whole, BLOCKS_WHOLE) | flag(same, BLOCKS_SAME);
        Ok(BlocksReply { version: BLOCKS_VERSION, flags, base: takes.base.unwrap_or(0) })
    }

    /// Replaces the content of a volume by blocks. `base` and `length` are arguments of the call.
    pub(super) fn restore_blocks(
        &self,
        call: &mut RxCall,
        (transaction, version): (i32, u32),
        cookie: &RestoreCookie,
        (base, length): (u64, u32),
    ) -> Outcome<()> {
        let lease = self.lease(transaction, "RestoreBlocks")?;
        let volume = &lease.volume;
        if !self.sends_blocks() || version != BLOCKS_VERSION {
            return Err(rxgen::RXGEN_OPCODE);
        }
        let Found::Dataset(id) = volume.found() else { return Err(errno::EROFS) };
        let kind = make::kind_of(cookie.kind)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= AFS_HEADER_MAX);
        let length = length.ok_or(rxgen::RXGEN_SS_UNMARSHAL)?;
        let is_read_only = self.open(&lease)?.is_read_only;
        if !is_read_only {
            // What clients wrote meanwhile would be lost.
            volume.set_service(State::Offline);
        }
        let own = self.open(&lease)?.stored();
        let mut incoming = Incoming::new(call, &lease);
        let received = receive(volume, (id, &own), (kind, cookie), (&mut incoming, length, base));
        let (blocks, stored) = received?;
        let partition = &volume.partition;
        let Some(blocks) = blocks else {
            self.switch(&lease, is_read_only, || partition.keep_blocks(id, base, &stored))?;
            tracing::info!("the volume keeps its files, and gets a header");
            return Ok(());
        };
        let (bytes, is_compared) = (blocks.bytes(), blocks.is_compared);
        self.switch(&lease, is_read_only, || partition.switch_to_blocks(id, blocks, &stored))?;
        if kind != VolumeType::ReadOnly
            && let Err(error) = partition.drop_bases(id)
        {
            // It keeps space, and nothing else.
            tracing::warn!(volume = id.0, error = chain(&error), "what was received stays as a snapshot");
        }
        tracing::info!(
            bytes,
            increment = base != 0,
            compared = is_compared,
            "the volume is received as blocks"
        );
        let traffic = &self.core.traffic;
        traffic.compared.fetch_add(is_compared.into(), Ordering::Relaxed);
        Traffic::note(&traffic.received, &traffic.received_bytes, bytes);
        Ok(())
    }
}

/// What is sent in the place of a stream if the files are those of the snapshot with this guid.
fn same_bytes(base: u64) -> [u8; SAME] {
    base.to_be_bytes()
}

/// How streams are made.
fn options(origin: Option<Origin>) -> Options {
    let forms = Forms { large_blocks: true, embedded: true, compressed: true, raw: false };
    Options { origin, forms, only_differing: true, ..Options::default() }
}

/// Receives the header and the stream of a volume, and checks both. Returns what is to take the
/// place of its contents, and the header. `None`: they stay.
fn receive(
    volume: &Volume,
    (id, own): (VolumeId, &Stored),
    (kind, cookie): (VolumeType, &RestoreCookie),
    (from, length, base): (&mut Incoming<'_>, usize, u64),
) -> Outcome<(Option<Blocks>, Stored)> {
    let unusable = |error: &dyn std::error::Error| {
        tracing::error!(volume = id.0, error = chain(error), "the blocks can't be restored");
        volser::VOLSERREAD_DUMPERROR
    };
    let mut header = vec![0; length];
    from.read_exact(&mut header).map_err(|error| unusable(&error))?;
    let sent = Stored::decode(&header).map_err(|error| unusable(&error))?;
    let mut first = Vec::new();
    from.take(SAME as u64 + 1).read_to_end(&mut first).map_err(|error| unusable(&error))?;
    if first == same_bytes(base) && kind == VolumeType::ReadOnly && own.header.kind == kind {
        let Unique(next) = own.header.next_unique;
        let (vnodes, greatest_unique) = (own.header.file_count.into(), Unique(next.saturating_sub(1)));
        let sums = Sums { blocks: own.used, vnodes, greatest_unique };
        return Ok((None, received_header(volume, (own, &sent), (kind, cookie), &sums)));
    }
    let stream = first.chain(&mut *from);
    let received = volume.partition.receive_blocks(id, stream, Some(base).filter(|base| *base != 0));
    let mut blocks = received.map_err(|error| unusable(&error))?;
    let mut more = [0];
    if !matches!(from.read(&mut more), Ok(0)) {
        tracing::error!(volume = id.0, "the blocks can't be restored: bytes follow their end");
        return Err(volser::VOLSERREAD_DUMPERROR);
    }
    if !blocks.fs.is_afs() {
        return Err(unusable(&Error::Header { volume: id }));
    }
    let sums = blocks.check().map_err(|error| unusable(&error))?;
    Ok((Some(blocks), received_header(volume, (own, &sent), (kind, cookie), &sums)))
}

/// The header of a volume that has received contents with these sums.
fn received_header(
    volume: &Volume,
    (own, sent): (&Stored, &Stored),
    (kind, cookie): (VolumeType, &RestoreCookie),
    sums: &Sums,
) -> Stored {
    let mut dump = sent.header.clone();
    dump.disk_used = u32::try_from(sums.blocks).unwrap_or(u32::MAX);
    dump.file_count = u32::try_from(sums.vnodes).unwrap_or(u32::MAX);
    dump.next_unique = dump.next_unique.max(Unique(sums.greatest_unique.0.saturating_add(1)));
    // The versions of data are stored as at the sender, and clients see them as there.
    let (version_base, crashes) = (sent.version_base, volume.partition.crashes());
    let header = restored_header(&as_told(&own.header, (kind, cookie)), &dump);
    let mut stored = Stored { header, version_base, crashes, ..own.clone() };
    // The flags stay as they are: `vos` sets them when all is done.
    stored.header.in_service = own.header.in_service;
    stored.used = sums.blocks;
    (stored.vnode_hints, stored.is_counting) = ([0; 2], false);
    stored
}
