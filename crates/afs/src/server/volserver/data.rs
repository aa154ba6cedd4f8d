//! Dumps and restores.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use rx::Call as RxCall;
use rx::security::Level;
use rx::security::rxkad::{Client, SUPERUSER};

use super::{Outcome, VolumeServer, failed};
use crate::calls::volserver::Call;
use crate::dump::Reader;
use crate::errors::{self, errno, rxgen, volser};
use crate::server::chain;
use crate::server::header::Service as State;
use crate::server::header::Stored;
use crate::server::open::Open;
use crate::server::store::{Found, Head};
use crate::server::volume::Volume;
use crate::server::{Error, VOLUME_SERVICE};
use crate::types::{Date, Destination, Replica, RestoreCookie, VolumeId, VolumeType};
use crate::volume::{DumpScope, dump, dump_size, restore, restored_header};
use crate::wire::List;

/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;
/// How long a call to another volume server may wait at any point.
const TIME: Duration = Duration::from_secs(24 * 3600);

/// The data of a call as a stream.
struct Incoming<'a> {
    call: &'a mut RxCall,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.bytes.len() {
            self.bytes = self.call.read().map_err(io::Error::other)?;
            self.at = 0;
        }
        let n = buffer.len().min(self.bytes.len() - self.at);
        buffer[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The reply of a call as a stream.
struct Outgoing<'a> {
    call: &'a mut RxCall,
    bytes: Vec<u8>,
}

impl<'a> Outgoing<'a> {
    fn new(call: &'a mut RxCall) -> Self {
        Self { call, bytes: Vec::with_capacity(PIECE) }
    }
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.bytes, Vec::with_capacity(PIECE));
        if full.is_empty() { Ok(()) } else { self.call.write(full).map_err(io::Error::other) }
    }
}

fn scope(open: &Open, since: Date, omit: bool) -> DumpScope {
    DumpScope { since, omit_unchanged_directories: omit, version_base: open.version(0) }
}

impl VolumeServer {
    pub(super) fn dump(&self, call: &mut RxCall, transaction: i32, since: Date, omit: bool) -> Outcome<()> {
        let lease = self.lease(transaction, if omit { "DumpV2" } else { "Dump" })?;
        let open = self.open(&lease)?;
        write_dump(&open, scope(&open, since, omit), call).map_err(|error| {
            tracing::error!(volume = open.id.0, error = chain(&error), "the volume can't be dumped");
            volser::VOLSERDUMPERROR
        })
    }

    pub(super) fn size(&self, transaction: i32, since: Date) -> Outcome<u64> {
        let lease = self.lease(transaction, "GetSize")?;
        let open = self.open(&lease)?;
        let size = dump_size(&open.fs, &open.header(), scope(&open, since, false));
        size.map_err(|error| failed(&lease.volume, &error.into()))
    }

    pub(super) fn restore(&self, call: &mut RxCall, transaction: i32, cookie: &RestoreCookie) -> Outcome<()> {
        let lease = self.lease(transaction, "Restore")?;
        let volume = &lease.volume;
        let id = self.detach(volume)?;
        let kind = super::make::kind_of(cookie.kind)?;
        let own = self.open(&lease)?.stored();
        let partition = &volume.partition;
        // While the files are replaced, no call of a client waits for them.
        volume.set_service(State::Offline);
        let mut incoming = Incoming { call, bytes: Vec::new(), at: 0 };
        let mut unsent = None;
        let restored = volume.exclusively(|| {
            partition.guard(id)?;
            let done = self.restore_guarded(&lease.volume, &own, kind, cookie, &mut incoming);
            partition.release_guard(id, done.is_ok())?;
            if let Err(error) = done {
                unsent = Some(error);
            }
            Ok(())
        });
        self.note_new_contents(&lease);
        restored.map_err(|error| failed(volume, &error))?;
        if let Some(error) = unsent {
            tracing::error!(volume = id.0, error = chain(&error), "the dump can't be restored");
            return Err(volser::VOLSERREAD_DUMPERROR);
        }
        let mut more = [0];
        match incoming.read(&mut more) {
            Ok(0) => Ok(()),
            _ => Err(volser::VOLSERREAD_DUMPERROR),
        }
    }

    /// Makes a volume of its own of a clone whose volume is gone, so that its files may change. A
    /// read-only volume is one at its site until the read-write volume moves away.
    fn detach(&self, volume: &Volume) -> Outcome<VolumeId> {
        let (head, id) = match volume.found() {
            Found::Dataset(id) => return Ok(id),
            Found::Snapshot { head, id } => (head, id),
        };
        if head.gone.is_none() {
            return Err(errno::EROFS);
        }
        volume.write_out(false).map_err(|error| failed(volume, &error))?;
        let detached = volume.exclusively(|| volume.partition.detach(head, id));
        detached.map_err(|error| failed(volume, &error))?;
        volume.set_found(Found::Dataset(id));
        self.core.move_clones(&volume.partition, head, Head::of(id));
        Ok(id)
    }

    fn restore_guarded(
        &self,
        volume: &Volume,
        own: &Stored,
        kind: VolumeType,
        cookie: &RestoreCookie,
        from: &mut Incoming<'_>,
    ) -> super::super::Result<()> {
        let fs = volume.partition.fs(volume.id)?;
        let mut header = own.header.clone();
        header.name = cookie.name.as_bytes().to_vec();
        header.kind = kind;
        header.parent = cookie.parent;
        header.clone = cookie.clone;
        let mut reader = Reader::new(from);
        let restored = restore(&fs, &mut reader, own.version_base, |restored| {
            restored_header(&header, &restored.volume)
        })?;
        // The flags stay as they are: `vos` sets them when all is done.
        let mut stored = Stored { header: restored_header(&header, &restored.volume), ..own.clone() };
        stored.header.in_service = own.header.in_service;
        stored.used = stored.header.disk_used.into();
        (stored.vnode_hints, stored.is_counting) = ([0; 2], false);
        stored.write(&fs)?;
        Ok(())
    }

    pub(super) fn forward(
        &self,
        transaction: i32,
        since: Date,
        to: &Destination,
        to_transaction: i32,
        cookie: &RestoreCookie,
    ) -> Outcome<()> {
        let lease = self.lease(transaction, "Forward")?;
        let open = self.open(&lease)?;
        self.send(&open, since, to, to_transaction, cookie)
    }

    pub(super) fn forward_multiple(
        &self,
        transaction: i32,
        since: Date,
        to: &[Replica],
        cookie: &RestoreCookie,
    ) -> Outcome<List<i32, { crate::calls::volserver::MAX_DESTINATIONS }>> {
        let lease = self.lease(transaction, "ForwardMulti")?;
        let open = self.open(&lease)?;
        let send = |replica: &Replica| {
            let sent = self.send(&open, since, &replica.server, replica.transaction, cookie);
            sent.err().unwrap_or(0)
        };
        let codes = std::thread::scope(|scope| {
            let threads: Vec<_> = to.iter().map(|replica| scope.spawn(|| send(replica))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(errno::EIO)).collect()
        });
        Ok(List::new(codes).expect("there are as many as destinations"))
    }

    /// Sends a dump to another volume server, which restores it.
    fn send(
        &self,
        open: &Open,
        since: Date,
        to: &Destination,
        to_transaction: i32,
        cookie: &RestoreCookie,
    ) -> Outcome<()> {
        let endpoint = self.core.outward.get().and_then(std::sync::Weak::upgrade).ok_or(errno::EIO)?;
        let port = u16::try_from(to.port).map_err(|_| errno::EINVAL)?;
        let peer = SocketAddrV4::new(Ipv4Addr::from_bits(to.host), port);
        let report = |error: &dyn std::error::Error| {
            tracing::error!(volume = open.id.0, %peer, error = chain(error), "the volume can't be sent to another server");
        };
        // The security index of the destination has no meaning: `vos` sends 1.
        let class = Client::local(&self.core.keys, SUPERUSER, Level::Clear).map_err(|error| {
            report(&error);
            errors::rxkad::RXKADUNKNOWNKEY
        })?;
        let of_rx = |error: rx::Error| {
            report(&error);
            match error {
                rx::Error::Aborted { code } => code,
                _ => errors::rx::RX_CALL_DEAD,
            }
        };
        let connection = endpoint.connect(peer, VOLUME_SERVICE, &class).map_err(of_rx)?;
        let mut call = connection.open(TIME).map_err(of_rx)?;
        let request = Call::Restore { transaction: to_transaction, flags: 0, cookie: cookie.clone() };
        call.write(request.request()).map_err(of_rx)?;
        let sent = write_dump(open, scope(open, since, true), &mut call);
        if let Err(error) = &sent {
            report(error);
        }
        if sent.is_ok() {
            call.write_last(Vec::new()).map_err(of_rx)?;
        }
        // If the other server refused, its code tells why the dump could not be sent.
        let reply = call.read_all(4).map_err(of_rx)?;
        match (sent, reply.is_empty()) {
            (Ok(()), true) => Ok(()),
            (Ok(()), false) => Err(rxgen::RXGEN_CC_UNMARSHAL),
            (Err(_), _) => Err(volser::VOLSERDUMPERROR),
        }
    }
}

fn write_dump(open: &Open, scope: DumpScope, call: &mut RxCall) -> Result<(), Error> {
    let mut outgoing = dump(&open.fs, &open.header(), scope, Outgoing::new(call))?;
    let written = outgoing.flush();
    let volume: VolumeId = open.id;
    written.map_err(|_| Error::Busy { volume })
}
