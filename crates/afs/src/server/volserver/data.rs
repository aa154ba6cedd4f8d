//! Dumps and restores.

use std::io::{self, Read};

use rx::Call as RxCall;

use super::forward::Source;
use super::{Outcome, VolumeServer, failed};
use crate::dump::Reader;
use crate::errors::{errno, volser};
use crate::server::chain;
use crate::server::header::Service as State;
use crate::server::header::Stored;
use crate::server::store::{Found, Head};
use crate::server::volume::Volume;
use crate::types::{Date, RestoreCookie, VolumeId, VolumeType};
use crate::volume::{restore, restored_header};

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

impl VolumeServer {
    pub(super) fn dump(&self, call: &mut RxCall, transaction: i32, since: Date, omit: bool) -> Outcome<()> {
        let lease = self.lease(transaction, if omit { "DumpV2" } else { "Dump" })?;
        let open = self.open(&lease)?;
        let source = Source::new(&open, since, omit);
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
}
