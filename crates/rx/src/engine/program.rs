//! What programs do with calls: take bytes, send bytes, start and end calls.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{Call, Channel, Connection, Program, Proof};
use super::output::{FULL, LOW};
use super::taken::Taken;
use super::{CallId, ConnectionRef, Engine, Event, Time};
use crate::block::Slice;
use crate::packet::CHANNEL_MASK;
use crate::security::{Class, ConnectionId, Identity};
use crate::{Error, Result};

/// Most bytes that a program can wait for at once: half of those for which the sender is stopped.
pub const WANTED_MOST: usize = super::receive::FULL / 2;
/// How often an abort is repeated for late packets of its call.
pub(super) const ABORTS: u8 = 8;
/// The congestion window of a client's first call.
const INITIAL: u32 = 16;

/// What a program may know of a call.
#[derive(Debug, Clone)]
pub struct Info {
    /// The peer.
    pub peer: SocketAddrV4,
    /// The service.
    pub service: u16,
    /// The security index.
    pub security: u8,
    /// Who the peer is, if it proved that.
    pub identity: Option<Arc<Identity>>,
    /// The byte that the client's program sent.
    pub user_status: u8,
    /// What the connection is on the wire.
    pub connection: ConnectionId,
    /// Whether the peer has shown that it receives what is sent to it.
    pub proved: bool,
}

/// Bytes that a program took.
#[derive(Debug, Default)]
pub struct Read {
    /// The bytes, in order.
    pub bytes: Vec<u8>,
    /// Whether they are the last.
    pub done: bool,
}

impl Engine {
    /// What a program may know of a call.
    #[must_use]
    pub fn info(&mut self, id: CallId) -> Option<Info> {
        let connection = self.connection(id.connection)?;
        let user_status = connection.call(id)?.user_status;
        Some(Info {
            peer: connection.address,
            service: connection.service,
            security: connection.security,
            identity: connection.identity.clone(),
            user_status,
            connection: connection.id,
            proved: connection.proved,
        })
    }

    /// Takes the bytes that arrived.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn take(&mut self, id: CallId) -> Result<Read> {
        self.take_into(id, Vec::new())
    }

    /// [`Engine::take`], which gives the call a buffer for what arrives next. It should be empty.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn take_into(&mut self, id: CallId, buffer: Vec<u8>) -> Result<Read> {
        let call = self.connection(id.connection).and_then(|connection| connection.call(id));
        let call = call.ok_or(Error::Gone)?;
        let bytes = call.receiver.take(buffer);
        (call.noticed, call.wanted) = (false, 1);
        // Taking bytes can make room for others that waited.
        let done = call.receiver.done() && call.receiver.ready().is_empty();
        let read = Read { bytes, done };
        self.account(id.connection.slot);
        self.touch(id.connection.slot);
        Ok(read)
    }

    /// Has [`Event::Readable`] wait until so many bytes are there, or the last ones, up to the next
    /// [`Engine::take`]. Returns whether they are there already.
    ///
    /// More than [`WANTED_MOST`] count as that many: a call holds no more than about twice that.
    /// From now on, a client that has sent less uses its patience.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn want(&mut self, now: Time, id: CallId, bytes: usize) -> Result<bool> {
        let config = &self.config;
        let ConnectionRef { slot, generation } = id.connection;
        let place = self.slots.get_mut(slot as usize).filter(|place| place.generation == generation);
        let connection = place.and_then(|place| place.connection.as_deref_mut()).ok_or(Error::Gone)?;
        let proved = connection.proved;
        let call = connection.call(id).ok_or(Error::Gone)?;
        call.wanted = bytes.clamp(1, WANTED_MOST);
        call.noticed = call.has_wanted();
        call.watch(now, config, proved);
        let has = call.noticed;
        self.schedule(slot);
        Ok(has)
    }

    /// Says that the call sends a long stream: from now on, [`Event::Writable`] follows once half
    /// of what may wait has left.
    pub fn will_stream(&mut self, id: CallId) {
        if let Some(call) = self.connection(id.connection).and_then(|connection| connection.call(id)) {
            call.goes_on_below = LOW;
        }
    }

    /// Appends bytes to what the call sends. `last` says that no more follow.
    ///
    /// Returns whether there is room for more. If not, [`Event::Writable`] follows as soon as there
    /// is some.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn send(&mut self, id: CallId, parts: impl IntoIterator<Item = Slice>, last: bool) -> Result<bool> {
        let call = self.connection(id.connection).and_then(|connection| connection.call(id));
        let call = call.ok_or(Error::Gone)?;
        call.sender.push(parts, last);
        call.stopped = call.sender.queued() >= FULL;
        let room = !call.stopped;
        self.account(id.connection.slot);
        self.make_room(id.connection.slot);
        self.touch(id.connection.slot);
        Ok(room)
    }

    /// Bytes of a call that the peer has not acknowledged. 0 if the call is gone.
    pub fn unacknowledged(&mut self, id: CallId) -> usize {
        let call = self.connection(id.connection).and_then(|connection| connection.call(id));
        call.map_or(0, |call| call.sender.unacknowledged())
    }

    /// Lets a server's call wait for its client for another time in all than
    /// [`Config::patience`](super::Config::patience). What it has waited so far is forgotten.
    pub fn set_patience(&mut self, id: CallId, time: Duration) {
        if let Some(call) = self.connection(id.connection).and_then(|connection| connection.call(id)) {
            call.patience.refill(time);
            self.touch(id.connection.slot);
        }
    }

    /// The program wants no more of a call. A server's reply still leaves.
    pub fn finish(&mut self, id: CallId) {
        let reference = id.connection;
        let Some(connection) = self.connection(reference) else { return };
        let client = connection.client;
        let channel = &mut connection.channels[id.channel as usize];
        if channel.old == Some(id.number) {
            channel.old = None;
            connection.started = connection.started.saturating_sub(1);
        } else if let Some(call) = channel.call.as_deref_mut().filter(|call| call.number == id.number) {
            let running = call.program == Program::Running;
            call.program = Program::Done;
            if !client && call.sender.done() {
                channel.call = None;
            }
            connection.started = connection.started.saturating_sub(usize::from(running));
        }
        if client {
            self.events.push_back(Event::Free(reference));
        }
        self.account(reference.slot);
        // The call that waited for the program may start.
        self.offer(reference.slot, usize::from(id.channel));
        self.touch(reference.slot);
    }

    /// The program ends a call with a code, which the peer gets.
    pub fn abort(&mut self, id: CallId, code: i32) {
        let slot = id.connection.slot;
        if let Some(connection) = self.connection(id.connection)
            && connection.call(id).is_some()
        {
            let channel = &mut connection.channels[id.channel as usize];
            if channel.call.take().is_some_and(|call| call.program == Program::Running) {
                channel.old = Some(id.number);
            }
            channel.aborted = Some((code, ABORTS));
            self.queue_abort(slot, id.channel as usize, id.number, code);
        }
        self.finish(id);
    }

    /// Opens a connection to a server.
    ///
    /// # Errors
    /// [`Error::Security`] if the class is for servers alone, [`Error::Random`], [`Error::Gone`]
    /// after [`Engine::shut_down`].
    pub fn connect(
        &mut self,
        now: Time,
        to: SocketAddrV4,
        service: u16,
        class: &dyn Class,
    ) -> Result<ConnectionRef> {
        // The number has the engine's own, so that replies find it whichever socket they arrive at.
        if self.closing {
            return Err(Error::Gone);
        }
        let last = match self.opened {
            Some(last) => last,
            None => self.random.next().ok_or(Error::Random)?,
        };
        let opened = last.wrapping_add(1) & 0x3f_ffff;
        self.opened = Some(opened);
        let cid = opened << 10 | u32::from(self.config.shard) << 2;
        debug_assert_eq!(cid & CHANNEL_MASK, 0);
        let id = ConnectionId { epoch: self.config.epoch, cid };
        let session = class.client(id)?;
        let (peer, host) = (self.peers.number(to), self.hosts.number(*to.ip()));
        let slot = self.insert(Connection {
            id,
            address: to,
            peer,
            host,
            client: true,
            service,
            security: class.index(),
            session,
            proof: Proof::Done,
            identity: None,
            serial: 0,
            channels: std::array::from_fn(|_| Channel::default()),
            used: now,
            scheduled: Time(u64::MAX),
            dirty: false,
            // The program chose its address.
            proved: true,
            member: true,
            echo_from: 0,
            taken: Taken::default(),
            started: 0,
            open: true,
        });
        Ok(self.reference(slot))
    }

    /// The program makes no more calls on a connection.
    pub fn close(&mut self, id: ConnectionRef) {
        let Some(connection) = self.connection(id) else { return };
        connection.open = false;
        if connection.is_idle() {
            self.remove(id.slot);
        }
    }

    /// Starts a call on a free channel. Returns `None` if there is none: [`Event::Free`] follows.
    ///
    /// # Errors
    /// [`Error::Gone`] if the connection is closed.
    pub fn start(&mut self, now: Time, id: ConnectionRef) -> Result<Option<CallId>> {
        if self.closing {
            return Err(Error::Gone);
        }
        let config = &self.config;
        let peers = &mut self.peers;
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let connection = slot.and_then(|slot| slot.connection.as_deref_mut()).ok_or(Error::Gone)?;
        let peer = peers.get_mut(connection.peer);
        let free = |channel: &Channel| {
            let done = channel.call.as_ref().is_none_or(|call| call.program == Program::Done);
            channel.old.is_none() && done
        };
        let Some(at) = connection.channels.iter().position(free) else { return Ok(None) };
        let channel = &mut connection.channels[at];
        // 0 is no number: it stands for the whole connection.
        channel.number = channel.number.wrapping_add(1).max(1);
        channel.aborted = None;
        let offered = if peer.offered == 0 { INITIAL } else { peer.offered };
        let initial = peer.window.max(INITIAL);
        let mut call = Call::new(channel.number, now, config, initial, offered, true);
        call.program = Program::Running;
        channel.call = Some(Box::new(call));
        connection.used = now;
        let number = channel.number;
        self.account(id.slot);
        self.touch(id.slot);
        Ok(Some(CallId { connection: id, channel: at as u8, number }))
    }
}
