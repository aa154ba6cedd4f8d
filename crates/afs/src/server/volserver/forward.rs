//! Dumps to other volume servers.
//!
//! # Theory
//! `vos move` sends a volume to one server, and `vos release` to several at once. The volume is
//! read once for all of them ([`super::fan`]).
//!
//! A server of ours gets the blocks of a clone instead, if it can take them ([`super::blocks`]).
//!
//! A server that is slower than the others is left behind, and its thread reads the volume anew
//! for the rest of its dump. The two parts fit together, because only a volume that never changes
//! is dumped so. Of other volumes, the slowest server has the others wait.
//!
//! # See
//! OpenAFS: `SAFSVolForwardMultiple` in `src/volser/volprocs.c`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rx::security::Level;
use rx::security::rxkad::{Client, SUPERUSER};
use rx::{Call as RxCall, Connection, Slice};

use super::fan::{Fan, Next, Receiver};
use super::transactions::{Lease, Sent};
use super::{Outcome, VolumeServer};
use crate::calls::volserver::{Call, MAX_DESTINATIONS};
use crate::dump::{Output, VolumeHeader};
use crate::errors::{self, errno, rxgen, volser};
use crate::server::open::Open;
use crate::server::{VOLUME_SERVICE, chain};
use crate::types::{Date, Destination, Replica, RestoreCookie};
use crate::volume::{DumpScope, Walk, dump_from};
use crate::wire::List;
use crate::{Error, Place, Record};

#[cfg(test)]
mod tests;

/// Bytes that are sent at once.
pub(super) const PIECE: usize = 64 << 10;
/// How often a wait, or a dump that puts nothing out, checks the receiver.
pub(super) const CHECK: Duration = Duration::from_secs(1);
/// Most bytes of a reply that are read. It should have none.
pub(super) const REPLY: usize = 4;
/// How long the end of a restore may take, after the other server received all bytes.
pub(super) const RESTORE: Duration = Duration::from_secs(24 * 3600);

/// How volumes are sent to other servers, and how long these may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a server that takes nothing may have others wait. Default: 10 seconds.
    pub lag: Duration,
    /// When a server that takes no more bytes is given up. Default: 10 minutes.
    pub idle: Duration,
    /// Whether volumes travel as blocks between servers of ours. Default: yes, unless
    /// [`super::blocks::AFS_SEND_BLOCKS`] is 0.
    pub blocks: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lag: Duration::from_secs(10), idle: Duration::from_secs(600), blocks: true }
    }
}

/// A dump that can be made more than once.
pub(super) struct Source<'a> {
    pub(super) open: &'a Open,
    header: VolumeHeader,
    pub(super) scope: DumpScope,
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
    pub(super) fn write(&self, skip: u64, put: impl FnMut(Slice) -> io::Result<()>) -> crate::Result<()> {
        let parts = Parts { at: skip, bytes: Vec::with_capacity(PIECE), put_at: Instant::now(), put };
        let mut parts = dump_from(&self.open.fs, &self.header, self.scope, &self.walk, skip, parts)?;
        let place = Place { record: Record::DumpEnd, at: parts.at };
        parts.flush().map_err(|source| Error::Write { place, source })
    }

    pub(super) fn report(&self, peer: SocketAddrV4, error: &dyn std::error::Error) {
        let volume = self.open.id.0;
        tracing::error!(volume, %peer, error = chain(error), "the volume can't be sent to another server");
    }
}

/// An output in parts of at most [`PIECE`] bytes. Blocks of files that are as large go out
/// uncopied.
struct Parts<F> {
    at: u64,
    bytes: Vec<u8>,
    /// When the last part was put out.
    put_at: Instant,
    put: F,
}

impl<F: FnMut(Slice) -> io::Result<()>> Parts<F> {
    fn put_out(&mut self) -> io::Result<()> {
        self.put_at = Instant::now();
        let part = match self.bytes.len() {
            PIECE => std::mem::replace(&mut self.bytes, Vec::with_capacity(PIECE)),
            // A part that waits has no memory that it does not fill.
            _ => self.bytes.as_slice().into(),
        };
        self.bytes.clear();
        (self.put)(part.into())
    }
}

impl<F: FnMut(Slice) -> io::Result<()>> Output for Parts<F> {
    fn block<B: AsRef<[u8]> + Clone + Send + Sync + 'static>(
        &mut self,
        block: &B,
        range: Range<usize>,
    ) -> io::Result<()> {
        if range.len() < PIECE {
            return self.write_all(&block.as_ref()[range]);
        }
        if !self.bytes.is_empty() {
            self.put_out()?;
        }
        self.at += range.len() as u64;
        let mut left = Slice::new(Arc::new(block.clone()), range);
        while !left.is_empty() {
            (self.put)(left.take(PIECE))?;
        }
        self.put_at = Instant::now();
        Ok(())
    }
}

impl<F: FnMut(Slice) -> io::Result<()>> Write for Parts<F> {
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

/// A volume that is sent, and the transaction that has it.
pub(super) type Sending<'a> = (&'a Source<'a>, &'a Lease<'a>);

/// A call at another volume server.
pub(super) struct Site<'a> {
    call: RxCall,
    // The call is its own, so it goes after it.
    _connection: Connection,
    pub(super) peer: SocketAddrV4,
    source: &'a Source<'a>,
    lease: &'a Lease<'a>,
    idle: Duration,
}

impl Site<'_> {
    pub(super) fn code(&self, error: &rx::Error) -> i32 {
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
    fn wait<T>(&mut self, rest: Duration, step: impl FnMut(&mut RxCall) -> rx::Result<T>) -> Outcome<T> {
        self.try_wait(rest, step)?.map_err(|error| self.code(&error))
    }

    /// [`Self::wait`], whose caller reports what the other server said.
    fn try_wait<T>(
        &mut self,
        rest: Duration,
        mut step: impl FnMut(&mut RxCall) -> rx::Result<T>,
    ) -> Outcome<rx::Result<T>> {
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
                done => return Ok(done),
            }
        }
    }

    /// Sends a part of a stream. Its caller reports what the other server said.
    pub(super) fn try_part(&mut self, part: Vec<u8>) -> Outcome<rx::Result<()>> {
        let mut parts = vec![part.into()];
        self.try_wait(self.idle, |call| call.write_parts(std::mem::take(&mut parts)))
    }

    /// Ends the request, and reads the reply. The other server may take `rest` for it.
    pub(super) fn reply(&mut self, rest: Option<Duration>, most: usize) -> Outcome<rx::Result<Vec<u8>>> {
        if let Err(error) = self.call.write_last(Vec::new()) {
            return Ok(Err(error));
        }
        self.try_wait(rest.unwrap_or(self.idle), |call| call.read_all(most))
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
    pub(super) fn fail(self) -> i32 {
        self.call.abort(volser::VOLSERDUMPERROR);
        volser::VOLSERDUMPERROR
    }

    fn end(mut self) -> Outcome<()> {
        let reply = self.reply(Some(RESTORE), REPLY)?.map_err(|error| self.code(&error))?;
        if reply.is_empty() { Ok(()) } else { Err(rxgen::RXGEN_CC_UNMARSHAL) }
    }
}

/// The code of a call that failed. It is never 0, which stands for success in replies.
pub(super) fn code(error: &rx::Error) -> i32 {
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
        let sending = (&source, &lease);
        let send = || {
            if let Some(plan) = self.ask_for_blocks(sending, to, to_transaction)?
                && self.send_blocks(sending, (to, to_transaction, cookie), plan)?
            {
                return Ok(());
            }
            self.send_dump(sending, to, to_transaction, cookie)?.rest(0)
        };
        send().inspect_err(|_| self.note_sent(&lease, Sent::Part))
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
        let sending = (&source, &lease);
        let fan = Fan::new(to.len(), lag);
        let send = |replica: &Replica, from: Receiver<'_>| {
            let Replica { server, transaction } = replica;
            // Meanwhile the others get what they take.
            let Some(plan) = self.ask_for_blocks(sending, server, *transaction)? else {
                return self.send_dump(sending, server, *transaction, cookie)?.follow(&from);
            };
            // The dump is not made for it.
            drop(from);
            match self.send_blocks(sending, (server, *transaction, cookie), plan)? {
                true => Ok(()),
                false => self.send_dump(sending, server, *transaction, cookie)?.rest(0),
            }
        };
        let codes = std::thread::scope(|scope| {
            let (send, lease) = (&send, &lease);
            let threads: Vec<_> = to
                .iter()
                .enumerate()
                .map(|(lane, replica)| {
                    let (from, thread) = (fan.receiver(lane), std::thread::Builder::new());
                    let run = move || {
                        let failed = send(replica, from).inspect_err(|_| self.note_sent(lease, Sent::Part));
                        failed.err().unwrap_or(0)
                    };
                    thread.name("forward".to_owned()).spawn_scoped(scope, run)
                })
                .collect();
            let maker = fan.maker();
            let put = |part: Slice| match maker.push(&part) {
                true => Ok(()),
                false => Err(io::Error::other("no server follows any more")),
            };
            // With servers that get blocks, no vnode is visited.
            let made = if maker.begin() { source.write(0, put) } else { Ok(()) };
            match made {
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
    fn send_dump<'a>(
        &self,
        sending: Sending<'a>,
        to: &Destination,
        to_transaction: i32,
        cookie: &RestoreCookie,
    ) -> Outcome<Site<'a>> {
        let request = Call::Restore { transaction: to_transaction, flags: 0, cookie: cookie.clone() };
        let mut site = self.reach(sending, to)?;
        site.part(request.request())?;
        self.core.traffic.dumps.fetch_add(1, Ordering::Relaxed);
        Ok(site)
    }

    /// The address of another volume server.
    pub(super) fn peer(to: &Destination) -> Outcome<SocketAddrV4> {
        let port = u16::try_from(to.port).map_err(|_| errno::EINVAL)?;
        Ok(SocketAddrV4::new(Ipv4Addr::from_bits(to.host), port))
    }

    /// Opens a call at another volume server.
    pub(super) fn reach<'a>(&self, (source, lease): Sending<'a>, to: &Destination) -> Outcome<Site<'a>> {
        let endpoint = self.core.outward.get().and_then(Weak::upgrade).ok_or(errno::EIO)?;
        let peer = Self::peer(to)?;
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
        let mut call = connection.open(idle).map_err(failed)?;
        call.will_stream();
        Ok(Site { call, _connection: connection, peer, source, lease, idle })
    }
}
