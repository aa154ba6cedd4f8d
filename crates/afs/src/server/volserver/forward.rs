//! Dumps to other volume servers.
//!
//! # Theory
//! `vos move` sends a volume to one server, and `vos release` to several at once. The volume is
//! read once for all of them ([`super::fan`]).
//!
//! A server that is slower than the others is left behind, and its thread reads the volume anew
//! for the rest of its dump. The two parts fit together, because only a volume that never changes
//! is dumped so. Of other volumes, the slowest server has the others wait.
//!
//! # See
//! OpenAFS: `SAFSVolForwardMultiple` in `src/volser/volprocs.c`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Weak;
use std::time::{Duration, Instant};

use rx::security::Level;
use rx::security::rxkad::{Client, SUPERUSER};
use rx::{Call as RxCall, Connection, Slice};

use super::fan::{Fan, Next, Receiver};
use super::transactions::Lease;
use super::{Outcome, VolumeServer};
use crate::calls::volserver::{Call, MAX_DESTINATIONS};
use crate::dump::VolumeHeader;
use crate::errors::{self, errno, rxgen, volser};
use crate::server::open::Open;
use crate::server::{VOLUME_SERVICE, chain};
use crate::types::{Date, Destination, Replica, RestoreCookie};
use crate::volume::{DumpScope, Walk, dump_from};
use crate::wire::List;
use crate::{Error, Place, Record};

/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;
/// How often a wait, or a dump that puts nothing out, checks the receiver.
pub(super) const CHECK: Duration = Duration::from_secs(1);
/// Most bytes of a reply that are read. It should have none.
const REPLY: usize = 4;
/// How long the end of a restore may take, after the other server received all bytes.
const RESTORE: Duration = Duration::from_secs(24 * 3600);

/// How long other servers may take for dumps.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a server that takes nothing may have others wait. Default: 10 seconds.
    pub lag: Duration,
    /// When a server that takes no more bytes is given up. Default: 10 minutes.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lag: Duration::from_secs(10), idle: Duration::from_secs(600) }
    }
}

/// A dump that can be made more than once.
pub(super) struct Source<'a> {
    open: &'a Open,
    header: VolumeHeader,
    scope: DumpScope,
    walk: Walk,
}

impl<'a> Source<'a> {
    pub(super) fn new(open: &'a Open, since: Date, omit_unchanged_directories: bool) -> Self {
        let scope = DumpScope { since, omit_unchanged_directories, version_base: open.version(0) };
        Self { open, header: open.header(), scope, walk: Walk::default() }
    }

    pub(super) fn size(&self) -> crate::Result<u64> {
        crate::volume::dump_size(&self.open.fs, &self.header, self.scope)
    }

    /// Makes the dump, and puts it out in parts, without its first `skip` bytes. While it skips, an
    /// empty part now and then lets `put` end the dump.
    pub(super) fn write(&self, skip: u64, put: impl FnMut(Vec<u8>) -> io::Result<()>) -> crate::Result<()> {
        let parts = Parts { at: skip, bytes: Vec::with_capacity(PIECE), put_at: Instant::now(), put };
        let mut parts = dump_from(&self.open.fs, &self.header, self.scope, &self.walk, skip, parts)?;
        let place = Place { record: Record::DumpEnd, at: parts.at };
        parts.flush().map_err(|source| Error::Write { place, source })
    }

    fn report(&self, peer: SocketAddrV4, error: &dyn std::error::Error) {
        let volume = self.open.id.0;
        tracing::error!(volume, %peer, error = chain(error), "the volume can't be sent to another server");
    }
}

/// An output in parts of [`PIECE`] bytes.
struct Parts<F> {
    at: u64,
    bytes: Vec<u8>,
    /// When the last part was put out.
    put_at: Instant,
    put: F,
}

impl<F: FnMut(Vec<u8>) -> io::Result<()>> Parts<F> {
    fn put_out(&mut self) -> io::Result<()> {
        self.put_at = Instant::now();
        let full = std::mem::replace(&mut self.bytes, Vec::with_capacity(PIECE));
        (self.put)(full)
    }
}

impl<F: FnMut(Vec<u8>) -> io::Result<()>> Write for Parts<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.at += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PIECE - self.bytes.len()));
            self.bytes.extend_from_slice(now);
            rest = later;
            if self.bytes.len() == PIECE {
                self.put_out()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() && self.put_at.elapsed() < CHECK { Ok(()) } else { self.put_out() }
    }
}

/// A call of Restore at another volume server.
struct Site<'a> {
    call: RxCall,
    // The call is its own, so it goes after it.
    _connection: Connection,
    peer: SocketAddrV4,
    source: &'a Source<'a>,
    lease: &'a Lease<'a>,
    idle: Duration,
}

impl Site<'_> {
    fn code(&self, error: &rx::Error) -> i32 {
        self.source.report(self.peer, error);
        code(error)
    }

    fn part(&mut self, part: impl Into<Slice>) -> Outcome<()> {
        let mut parts = vec![part.into()];
        // What was written once only needs room.
        self.wait(self.idle, |call| call.write_parts(std::mem::take(&mut parts)))
    }

    /// Repeats a step until its deadline does not end it. The wait ends, too, when the other server
    /// takes nothing for long, and soon after the transaction ended. `rest` is how long the server
    /// may take once it has all bytes.
    fn wait<T>(&mut self, rest: Duration, mut step: impl FnMut(&mut RxCall) -> rx::Result<T>) -> Outcome<T> {
        let (mut left, mut since) = (self.call.unacknowledged(), Instant::now());
        loop {
            if self.lease.has_ended() {
                return Err(errno::ENOENT);
            }
            let until = since + if left > 0 { self.idle } else { rest };
            self.call.set_deadline(Some(until.min(Instant::now() + CHECK)));
            let done = step(&mut self.call);
            let now_left = self.call.unacknowledged();
            match done {
                Err(rx::Error::Deadline) if now_left != left => (left, since) = (now_left, Instant::now()),
                Err(rx::Error::Deadline) if Instant::now() < until => {}
                done => return done.map_err(|error| self.code(&error)),
            }
        }
    }

    /// Sends the dump without its first `skip` bytes, and waits until the other server has all.
    fn rest(mut self, skip: u64) -> Outcome<()> {
        let (source, mut refused) = (self.source, None);
        let put = |part| {
            let sent = self.part(part);
            sent.map_err(|code| io::Error::other(format!("code {}", refused.insert(code))))
        };
        let made = source.write(skip, put);
        match (made, refused) {
            (Ok(()), _) => self.end(),
            (Err(_), Some(code)) => Err(code),
            (Err(error), None) => {
                source.report(self.peer, &error);
                Err(self.fail())
            }
        }
    }

    /// Sends what comes from a dump for several servers.
    fn follow(mut self, from: &Receiver<'_>) -> Outcome<()> {
        let mut sent = 0;
        loop {
            match from.next() {
                Next::Part(part) => {
                    sent += part.len() as u64;
                    self.part(part)?;
                }
                Next::End => return self.end(),
                Next::Behind => {
                    let (volume, peer) = (self.source.open.id.0, self.peer);
                    tracing::info!(volume, %peer, sent, "a slow server is left behind");
                    return self.rest(sent);
                }
                Next::Failed => return Err(self.fail()),
            }
        }
    }

    /// Ends the call, because the dump can't be made.
    fn fail(self) -> i32 {
        self.call.abort(volser::VOLSERDUMPERROR);
        volser::VOLSERDUMPERROR
    }

    fn end(mut self) -> Outcome<()> {
        self.call.write_last(Vec::new()).map_err(|error| self.code(&error))?;
        let reply = self.wait(RESTORE, |call| call.read_all(REPLY))?;
        if reply.is_empty() { Ok(()) } else { Err(rxgen::RXGEN_CC_UNMARSHAL) }
    }
}

/// The code of a call that failed. It is never 0, which stands for success in replies.
fn code(error: &rx::Error) -> i32 {
    match error {
        rx::Error::Aborted { code: 0 } => errors::rx::RX_CALL_DEAD,
        rx::Error::Aborted { code } => *code,
        _ => errors::rx::RX_CALL_DEAD,
    }
}

impl VolumeServer {
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
        let source = Source::new(&open, since, true);
        self.reach((&source, &lease), to, to_transaction, cookie)?.rest(0)
    }

    pub(super) fn forward_multiple(
        &self,
        transaction: i32,
        since: Date,
        to: &[Replica],
        cookie: &RestoreCookie,
    ) -> Outcome<List<i32, MAX_DESTINATIONS>> {
        let lease = self.lease(transaction, "ForwardMulti")?;
        let open = self.open(&lease)?;
        let source = Source::new(&open, since, true);
        let lag = (!open.fs.objset().is_live()).then_some(self.core.forwards.lag);
        let fan = Fan::new(to.len(), lag);
        let send = |replica: &Replica, from: &Receiver<'_>| {
            self.reach((&source, &lease), &replica.server, replica.transaction, cookie)?.follow(from)
        };
        let codes = std::thread::scope(|scope| {
            let send = &send;
            let threads: Vec<_> = to
                .iter()
                .enumerate()
                .map(|(lane, replica)| {
                    let (from, thread) = (fan.receiver(lane), std::thread::Builder::new());
                    let run = move || send(replica, &from).err().unwrap_or(0);
                    thread.name("forward".to_owned()).spawn_scoped(scope, run)
                })
                .collect();
            let maker = fan.maker();
            let put = |part: Vec<u8>| match maker.push(&part.into()) {
                true => Ok(()),
                false => Err(io::Error::other("no server follows any more")),
            };
            match source.write(0, put) {
                Ok(()) => maker.end(),
                // Each server that left has said why.
                Err(Error::Write { .. }) => drop(maker),
                Err(error) => {
                    let volume = open.id.0;
                    tracing::error!(volume, error = chain(&error), "the volume can't be dumped");
                    drop(maker);
                }
            }
            let join = |thread: io::Result<std::thread::ScopedJoinHandle<'_, i32>>| {
                thread.map_or(errno::EAGAIN, |thread| thread.join().unwrap_or(errno::EIO))
            };
            threads.into_iter().map(join).collect()
        });
        Ok(List::new(codes).expect("there are as many as destinations"))
    }

    /// Calls Restore at another volume server.
    fn reach<'a>(
        &self,
        (source, lease): (&'a Source<'a>, &'a Lease<'a>),
        to: &Destination,
        to_transaction: i32,
        cookie: &RestoreCookie,
    ) -> Outcome<Site<'a>> {
        let endpoint = self.core.outward.get().and_then(Weak::upgrade).ok_or(errno::EIO)?;
        let port = u16::try_from(to.port).map_err(|_| errno::EINVAL)?;
        let peer = SocketAddrV4::new(Ipv4Addr::from_bits(to.host), port);
        // The security index of the destination has no meaning: `vos` sends 1.
        let class = Client::local(&self.core.keys, SUPERUSER, Level::Clear).map_err(|error| {
            source.report(peer, &error);
            errors::rxkad::RXKADUNKNOWNKEY
        })?;
        let idle = self.core.forwards.idle;
        let failed = |error: rx::Error| {
            source.report(peer, &error);
            code(&error)
        };
        let connection = endpoint.connect(peer, VOLUME_SERVICE, &class).map_err(failed)?;
        // The server's end drops the last reference, which ends the calls.
        drop(endpoint);
        let call = connection.open(idle).map_err(failed)?;
        let mut site = Site { call, _connection: connection, peer, source, lease, idle };
        let request = Call::Restore { transaction: to_transaction, flags: 0, cookie: cookie.clone() };
        site.part(request.request())?;
        Ok(site)
    }
}
