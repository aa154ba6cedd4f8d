//! Dumps and restores.

use std::io::{self, BufRead, Read};
use std::time::Instant;

use rx::Call as RxCall;

use super::forward::{CHECK, Source};
use super::transactions::Lease;
use super::{Outcome, VolumeServer, failed};
use crate::dump::{Reader, VolumeHeader};
use crate::errors::{errno, volser};
use crate::server::header::Service as State;
use crate::server::header::Stored;
use crate::server::store::{Found, Head};
use crate::server::volume::Volume;
use crate::server::{Result, chain};
use crate::types::{Date, RestoreCookie, VolumeId, VolumeType};
use crate::volume::{restore, restored_header};
use crate::volume_name::VolumeName;

/// Bytes that the thread of a restore waits for. With fewer, it would be awake more often than the
/// data need.
const LEAST: usize = 128 << 10;

/// The data of a call as a stream.
pub(super) struct Incoming<'a> {
    call: &'a mut RxCall,
    lease: &'a Lease<'a>,
    bytes: Vec<u8>,
    at: usize,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(call: &'a mut RxCall, lease: &'a Lease<'a>) -> Self {
        Self { call, lease, bytes: Vec::new(), at: 0 }
    }
}

impl BufRead for Incoming<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.bytes.len() {
            if self.lease.has_ended() {
                return Err(io::Error::other("the transaction has ended"));
            }
            self.at = 0;
            match self.call.read_into(&mut self.bytes, LEAST, Instant::now() + CHECK) {
                Err(rx::Error::Deadline) => continue,
                read => read.map_err(io::Error::other)?,
            }
            if self.bytes.is_empty() {
                break;
            }
        }
        Ok(&self.bytes[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let n = buffer.len().min(from.len());
        buffer[..n].copy_from_slice(&from[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl VolumeServer {
    pub(super) fn dump(&self, call: &mut RxCall, transaction: i32, since: Date, omit: bool) -> Outcome<()> {
        let lease = self.lease(transaction, if omit { "DumpV2" } else { "Dump" })?;
        let open = self.open(&lease)?;
        let source = Source::new(&open, since, omit);
        call.will_stream();
        source.write(0, |part| call.write(part).map_err(io::Error::other)).map_err(|error| {
            tracing::error!(volume = open.id.0, error = chain(&error), "the volume can't be dumped");
            volser::VOLSERDUMPERROR
        })
    }

    pub(super) fn size(&self, transaction: i32, since: Date) -> Outcome<u64> {
        let lease = self.lease(transaction, "GetSize")?;
        let open = self.open(&lease)?;
        let size = Source::new(&open, since, false).size();
        size.map_err(|error| failed(&lease.volume, &error.into()))
    }

    pub(super) fn restore(&self, call: &mut RxCall, transaction: i32, cookie: &RestoreCookie) -> Outcome<()> {
        let lease = self.lease(transaction, "Restore")?;
        let volume = &lease.volume;
        let id = self.detach(volume)?;
        let kind = super::make::kind_of(cookie.kind)?;
        let is_read_only = self.open(&lease)?.is_read_only;
        if !is_read_only {
            // What clients wrote meanwhile would be lost.
            volume.set_service(State::Offline);
        }
        let own = self.open(&lease)?.stored();
        let partition = &volume.partition;
        partition.begin_restore(id).map_err(|error| failed(volume, &error))?;
        let mut incoming = Incoming::new(call, &lease);
        let restored = restore_hidden(volume, (id, &own), (kind, cookie), &mut incoming);
        let done = restored.and_then(|()| self.switch(&lease, is_read_only, || partition.switch(id)));
        // The old contents, or those of a dump that failed.
        if let Err(error) = partition.end_restore(id) {
            let error = chain(&error);
            tracing::error!(
                volume = id.0,
                error,
                "what a restore needed stays until the next restore or start"
            );
        }
        if done.is_ok()
            && let Err(error) = partition.drop_bases(id)
        {
            // It keeps space. The next increment of blocks needs it no more.
            tracing::warn!(volume = id.0, error = chain(&error), "what was received stays as a snapshot");
        }
        done
    }

    /// Gives a volume the contents that were restored. Calls that use its files end before, and
    /// others wait for it.
    pub(super) fn switch(
        &self,
        lease: &Lease<'_>,
        is_read_only: bool,
        exchange: impl FnOnce() -> Result<()>,
    ) -> Outcome<()> {
        let volume = &lease.volume;
        if lease.has_ended() {
            return Err(errno::ENOENT);
        }
        let switched = volume.exclusively(exchange);
        // A failure may have come after the exchange. Then clients must not go on with the old
        // ones.
        if is_read_only {
            // It is on disk, and its clients have it already.
            self.note_change(lease);
        } else {
            self.note_new_contents(lease);
        }
        volume.callbacks.volume_changed();
        switched.map_err(|error| failed(volume, &error))
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
}

/// The header of a volume that is restored: it becomes what the cookie says.
///
/// `vos` restores a read-only volume under the name of its read-write volume, and then gives it its
/// own. One that has that already keeps it, so that nothing changes then.
pub(super) fn as_told(own: &VolumeHeader, (kind, cookie): (VolumeType, &RestoreCookie)) -> VolumeHeader {
    let base = VolumeName::new(cookie.name.as_bytes());
    let later = base.filter(|_| kind == VolumeType::ReadOnly).and_then(|name| name.with_type(kind));
    let has_it = own.kind == kind && later.is_some_and(|name| name.as_str().as_bytes() == own.name);
    let name = if has_it { own.name.clone() } else { cookie.name.as_bytes().to_vec() };
    VolumeHeader { name, kind, parent: cookie.parent, clone: cookie.clone, ..own.clone() }
}

/// Restores a dump into the hidden clone of a volume.
fn restore_hidden(
    volume: &Volume,
    (id, own): (VolumeId, &Stored),
    (kind, cookie): (VolumeType, &RestoreCookie),
    from: &mut Incoming<'_>,
) -> Outcome<()> {
    let unusable = |error: &dyn std::error::Error| {
        tracing::error!(volume = id.0, error = chain(error), "the dump can't be restored");
        volser::VOLSERREAD_DUMPERROR
    };
    let fs = volume.partition.hidden_fs(id).map_err(|error| failed(volume, &error))?;
    let header = as_told(&own.header, (kind, cookie));
    let restored = restore(&fs, &mut Reader::buffered(&mut *from), own.version_base, |restored| {
        restored_header(&header, &restored.volume)
    });
    let restored = restored.map_err(|error| unusable(&error))?;
    let mut more = [0];
    if !matches!(from.read(&mut more), Ok(0)) {
        tracing::error!(volume = id.0, "the dump can't be restored: bytes follow its end");
        return Err(volser::VOLSERREAD_DUMPERROR);
    }
    // The flags stay as they are: `vos` sets them when all is done.
    let mut stored = Stored { header: restored_header(&header, &restored.volume), ..own.clone() };
    stored.header.in_service = own.header.in_service;
    stored.used = stored.header.disk_used.into();
    (stored.vnode_hints, stored.is_counting) = ([0; 2], false);
    stored.write(&fs).map_err(|error| unusable(&error)).map(drop)
}
