//! What arrives: packets of each type.

use std::net::SocketAddrV4;
use std::time::Duration;

use super::batch::Opened;
use super::connection::{Call, Channel, Connection, Program, Proof};
use super::lost::ABORT;
use super::receive::Packet;
use super::taken::Taken;
use super::{CallId, Engine, Event, Time};
use crate::packet::{Ack, CHANNELS, EPOCH_MOVES, Flags, Header, Kind, Reason, abort_code};
use crate::security::rxkad::SKEW;
use crate::security::{ConnectionId, Level};
use crate::{Error, code};

/// The congestion window towards an address that never acknowledged anything.
const UNPROVED: u32 = 4;
/// The congestion window towards others, and the window that a peer has before it says its own.
const INITIAL: u32 = 16;
/// Packets that wait while a client proves itself.
const PARKED: usize = 32;
/// The bits of a connection's first serial number. Some peers compare such numbers with sign.
const SERIAL: u32 = (1 << 30) - 1;

impl Engine {
    /// Takes in a packet. `body` is what follows the header. It is decrypted in place.
    pub fn receive(&mut self, now: Time, from: SocketAddrV4, header: &Header, body: &mut [u8]) {
        self.receive_opened(now, from, header, body, None);
    }

    pub(super) fn receive_opened(
        &mut self,
        now: Time,
        from: SocketAddrV4,
        header: &Header,
        body: &mut [u8],
        opened: Option<Opened>,
    ) {
        let kind = header.kind;
        let count = &mut self.counts.debug.read[kind as usize - 1];
        *count = count.wrapping_add(1);
        let Some(slot) = self.find(now, from, header, body) else { return };
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        connection.used = now;
        self.peers.get_mut(connection.peer).bytes[1] += body.len() as u64;
        match kind {
            Kind::Data => self.data(now, slot, header, body, opened),
            Kind::Ack => self.ack(now, slot, header, body),
            Kind::AckAll => self.ack_all(now, slot, header),
            Kind::Busy => self.busy(now, slot, header),
            Kind::Abort => self.aborted(slot, header, body),
            Kind::Challenge => self.challenged(slot, body),
            Kind::Response => self.response(now, slot, header, body),
            Kind::Debug | Kind::Params | Kind::Version => {}
        }
        self.schedule(slot);
    }

    /// Whether this engine has the connection of a packet.
    #[must_use]
    pub fn knows(&self, from: SocketAddrV4, header: &Header) -> bool {
        let id = ConnectionId { epoch: header.epoch, cid: header.connection() };
        let client = !header.flags.has(Flags::CLIENT);
        self.keys.contains_key(&(id, from, client)) || (!client && self.movable.contains_key(&id))
    }

    /// The connection of a packet. A client's first packet makes it.
    fn find(&mut self, now: Time, from: SocketAddrV4, header: &Header, body: &mut [u8]) -> Option<u32> {
        let id = ConnectionId { epoch: header.epoch, cid: header.connection() };
        let client = !header.flags.has(Flags::CLIENT);
        if let Some(&slot) = self.keys.get(&(id, from, client)) {
            let connection = self.slots[slot as usize].connection.as_deref();
            return connection.is_some_and(|c| c.security == header.security).then_some(slot);
        }
        if client {
            self.unknown(now, from, header, body);
            return None;
        }
        if header.epoch & EPOCH_MOVES != 0
            && let Some(&slot) = self.movable.get(&id)
        {
            return self.moved(slot, from, header, body).then_some(slot);
        }
        if header.kind != Kind::Data || header.call == 0 || header.seq == 0 {
            self.unknown(now, from, header, body);
            return None;
        }
        self.accept(now, from, header, body)
    }

    /// A proven client sends from another address. Its packet must be new to its call, and have the
    /// session's seal: a packet that was recorded moves nothing.
    fn moved(&mut self, slot: u32, from: SocketAddrV4, header: &Header, body: &[u8]) -> bool {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return false };
        let channel = &connection.channels[header.channel()];
        let new = match &channel.call {
            Some(call) if call.number == header.call => call.receiver.is_new(header.seq),
            _ => header.call > channel.number && header.seq <= self.config.receive_window,
        };
        let genuine = header.kind == Kind::Data
            && header.security == connection.security
            && new
            && connection.session.open(header, &mut body.to_vec()).is_ok();
        if !genuine {
            return false;
        }
        let (old, old_peer) = ((connection.id, connection.address, false), connection.peer);
        let host = self.hosts.find(from.ip());
        if !self.admit(host) {
            self.counts.refused_limit += 1;
            return false;
        }
        // Making room may have taken the connection itself.
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return false };
        let (peer, host) = (self.peers.number(from), self.hosts.number(*from.ip()));
        (connection.address, connection.peer) = (from, peer);
        // Only what the new address receives can prove it.
        connection.echo_from = connection.serial;
        self.keys.remove(&old);
        self.keys.insert((old.0, from, false), slot);
        self.peers.get_mut(peer).connections += 1;
        let entry = self.peers.get_mut(old_peer);
        entry.connections -= 1;
        if entry.connections == 0 {
            self.peers.remove(old_peer);
        }
        self.change_host(slot, host);
        true
    }

    /// Makes the connection of a client's first packet.
    fn accept(&mut self, now: Time, from: SocketAddrV4, header: &Header, body: &[u8]) -> Option<u32> {
        let id = ConnectionId { epoch: header.epoch, cid: header.connection() };
        let class = self.classes.iter().find(|class| class.index() == header.security).cloned();
        let (Some(class), true) = (class, self.services.contains(&header.service)) else {
            self.counts.refused_service += 1;
            self.refuse(now, from, header, body, code::INVALID_OPERATION);
            return None;
        };
        if self.closing {
            self.refuse(now, from, header, body, code::RESTARTING);
            return None;
        }
        if !self.admit(self.hosts.find(from.ip())) {
            self.counts.refused_limit += 1;
            return None;
        }
        let (Some(nonce), Some(serial)) = (self.random.next(), self.random.next()) else {
            tracing::error!("the system has no random numbers: an Rx connection is refused");
            return None;
        };
        let serial = serial & SERIAL;
        let mut session = match class.server(id, nonce) {
            Ok(session) => session,
            Err(_) => {
                self.refuse(now, from, header, body, code::INVALID_OPERATION);
                return None;
            }
        };
        let challenge = session.challenge();
        let proof = match &challenge {
            Some(_) => Proof::Pending { since: now, last: now, parked: Vec::new() },
            None => Proof::Done,
        };
        let (peer, host) = (self.peers.number(from), self.hosts.number(*from.ip()));
        let slot = self.insert(Connection {
            id,
            address: from,
            peer,
            host,
            client: false,
            service: header.service,
            security: header.security,
            session,
            proof,
            identity: None,
            serial,
            channels: std::array::from_fn(|_| Channel::default()),
            used: now,
            scheduled: Time(u64::MAX),
            dirty: false,
            proved: false,
            member: false,
            echo_from: serial,
            taken: Taken::default(),
            started: 0,
            open: false,
        });
        if let Some(challenge) = challenge {
            self.queue_special(slot, Kind::Challenge, challenge);
        }
        Some(slot)
    }

    /// Answers a packet for which there is no connection by an abort, if the address may get one.
    /// The answer is no larger than the packet.
    pub(super) fn refuse(&mut self, now: Time, to: SocketAddrV4, header: &Header, body: &[u8], code: i32) {
        if body.len() < ABORT || !self.aborts.allows(now, *to.ip()) {
            return;
        }
        let from_client = header.flags.has(Flags::CLIENT);
        let answer = Header {
            kind: Kind::Abort,
            flags: if from_client { Flags::default() } else { Flags::CLIENT },
            seq: 0,
            serial: 0,
            checksum: 0,
            user_status: 0,
            ..*header
        };
        self.queue(to, &answer, code.to_be_bytes().to_vec());
    }

    fn data(&mut self, now: Time, slot: u32, header: &Header, body: &mut [u8], opened: Option<Opened>) {
        let reference = self.reference(slot);
        self.promote(slot);
        let cost = self.slots[slot as usize].connection.as_deref().map_or(0, |it| it.cost(header, body));
        if !self.may_hold(slot, cost) {
            self.counts.refused_limit += 1;
            self.note_refused(now, slot, header);
            return;
        }
        let unix = self.unix(now);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        if let Proof::Pending { parked, .. } = &mut connection.proof {
            if parked.len() < PARKED {
                parked.push((*header, body.to_vec()));
                self.account(slot);
            }
            return;
        }
        if connection.identity.as_ref().is_some_and(|identity| is_over(identity.expires, unix)) {
            if self.may_abort(now, slot) {
                self.queue_special(slot, Kind::Abort, code::KAD_EXPIRED.to_be_bytes().to_vec());
            }
            self.fail_all(slot, code::KAD_EXPIRED);
            return;
        }
        let range = match opened {
            Some((id, range)) if id == reference => range,
            // Another connection has its place now: it refuses what was decrypted.
            _ => connection.session.open(header, body),
        };
        let Ok(range) = range else {
            self.counts.refused_security += 1;
            return;
        };
        let body = &body[range];
        if connection.client {
            self.reply_data(now, slot, header, body);
        } else {
            self.request_data(now, slot, header, body);
        }
        self.account(slot);
        self.offer(slot, header.channel());
        self.touch(slot);
    }

    /// Notes that there was no space for a packet. A call whose first packet is refused here began
    /// after the start of this program, so it is not lost.
    fn note_refused(&mut self, now: Time, slot: u32, header: &Header) {
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let call = connection.channels[header.channel()].call.as_deref_mut();
        if header.seq == 1
            && let Some(call) = call.filter(|call| call.number == header.call)
        {
            call.begun = now;
        }
    }

    /// Data of a client. A higher call number makes a call, and ends the last one.
    fn request_data(&mut self, now: Time, slot: u32, header: &Header, body: &[u8]) {
        let at = header.channel();
        let reference = self.reference(slot);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let channel = &mut connection.channels[at];
        if header.call < channel.number {
            self.counts.debug.spurious = self.counts.debug.spurious.wrapping_add(1);
            return;
        }
        if header.call == channel.number && channel.call.is_none() {
            // The reply was acknowledged, or the call was aborted.
            self.repeat_abort(now, slot, at, header.call);
            return;
        }
        if self.is_lost(slot, header, body) {
            self.lose(now, slot, at, header.call);
            return;
        }
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let channel = &mut connection.channels[at];
        if header.call > channel.number {
            if self.closing {
                if self.may_abort(now, slot) {
                    self.queue_abort(slot, at, header.call, code::RESTARTING);
                }
                return;
            }
            end_of_last(channel, reference, at, &mut self.events);
            channel.number = header.call;
            let peer = self.peers.get(connection.peer);
            let initial = if connection.proved { peer.window.max(INITIAL) } else { UNPROVED };
            let offered = if peer.offered == 0 { INITIAL } else { peer.offered };
            channel.call = Some(Box::new(Call::new(header.call, now, &self.config, initial, offered, false)));
            self.counts.calls += 1;
        }
        let call = channel.call.as_deref_mut().expect("it exists, or was made");
        (call.heard, call.user_status) = (now, header.user_status);
        let taken = call.receiver.take_packet(now, header.seq, header.serial, header.flags, body);
        self.counts.bytes[0] +=
            if matches!(taken, Packet::Ready | Packet::Held) { body.len() as u64 } else { 0 };
        match taken {
            Packet::Duplicate => {
                self.counts.debug.duplicates = self.counts.debug.duplicates.wrapping_add(1);
            }
            Packet::Ready | Packet::Held => call.progress = now,
            Packet::Refused => {}
        }
        let id = CallId { connection: reference, channel: at as u8, number: header.call };
        if taken == Packet::Ready && call.program == Program::Running && !call.noticed && call.has_wanted() {
            call.noticed = true;
            self.events.push_back(Event::Readable(id));
        }
    }

    /// Data of a server: the reply, which acknowledges the request.
    fn reply_data(&mut self, now: Time, slot: u32, header: &Header, body: &[u8]) {
        let at = header.channel();
        let reference = self.reference(slot);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let Some(call) = connection.channels[at].call.as_deref_mut() else {
            self.repeat_abort(now, slot, at, header.call);
            return;
        };
        // A reply before the request is complete breaks the protocol.
        if call.number != header.call || !call.sender.closed() || !call.sender.started() {
            self.counts.debug.spurious = self.counts.debug.spurious.wrapping_add(1);
            return;
        }
        (call.heard, call.progress) = (now, now);
        call.sender.answered();
        let taken = call.receiver.take_packet(now, header.seq, header.serial, header.flags, body);
        self.counts.bytes[0] += body.len() as u64;
        if taken == Packet::Duplicate {
            self.counts.debug.duplicates = self.counts.debug.duplicates.wrapping_add(1);
        }
        if taken == Packet::Ready && call.program == Program::Running && !call.noticed && call.has_wanted() {
            call.noticed = true;
            let id = CallId { connection: reference, channel: at as u8, number: header.call };
            self.events.push_back(Event::Readable(id));
        }
    }

    fn ack(&mut self, now: Time, slot: u32, header: &Header, body: &[u8]) {
        let Ok(ack) = Ack::parse(body) else {
            self.counts.debug.bogus = self.counts.debug.bogus.wrapping_add(1);
            return;
        };
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let at = header.channel();
        let (echo, proved) = (connection.is_echo(ack.serial), connection.proved);
        let Some(call) = connection.channels[at].call.as_deref_mut() else {
            self.ack_of_no_call(now, slot, header, &ack);
            return;
        };
        if call.number != header.call {
            return;
        }
        call.heard = now;
        if ack.reason == Reason::PING {
            call.receiver.pinged(header.serial);
            self.touch(slot);
        }
        if !proved {
            if !echo {
                // Every host can have sent it. A repeated packet requests a better one.
                return;
            }
            self.prove(slot);
        }
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let Some(call) = connection.channels[at].call.as_deref_mut() else { return };
        let peer = self.peers.get_mut(connection.peer);
        let acked = call.sender.acked(now, &ack, &peer.rtt);
        call.watch(now, &self.config, true);
        if let Some(window) = ack.window {
            peer.offered = window.clamp(1, 255);
        }
        if let Some(rtt) = acked.and_then(|acked| acked.rtt) {
            peer.rtt.measured(rtt);
        }
        if !connection.client && call.program == Program::Done && call.sender.done() {
            connection.channels[at].call = None;
        }
        self.account(slot);
        self.promote(slot);
        self.touch(slot);
    }

    fn ack_all(&mut self, now: Time, slot: u32, header: &Header) {
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        if !connection.proved {
            // It echoes nothing.
            return;
        }
        let channel = &mut connection.channels[header.channel()];
        let Some(call) = channel.call.as_deref_mut().filter(|call| call.number == header.call) else {
            return;
        };
        call.heard = now;
        if call.sender.closed() && call.sender.queued() == 0 {
            call.sender.answered();
            if !connection.client && call.program == Program::Done {
                channel.call = None;
            }
            self.account(slot);
        }
    }

    /// The server has no thread for the call. The request is sent again soon.
    fn busy(&mut self, now: Time, slot: u32, header: &Header) {
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        let Some(call) = connection.channels[header.channel()].call.as_deref_mut() else { return };
        if connection.client && call.number == header.call {
            call.heard = now;
            call.sender.postponed(now.after(Duration::from_millis(100)));
        }
    }

    fn aborted(&mut self, slot: u32, header: &Header, body: &[u8]) {
        let Ok(code) = abort_code(body) else { return };
        let at = header.channel();
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        if header.call == 0 {
            self.fail_all(slot, code);
            if let Some(connection) = self.slots[slot as usize].connection.as_deref()
                && !connection.client
                && connection.is_idle()
            {
                self.remove(slot);
            }
        } else if connection.channels[at].call.as_ref().is_some_and(|call| call.number == header.call) {
            self.fail(slot, at, code);
        }
    }

    /// Ends a call whose program may not know it yet.
    pub(super) fn fail(&mut self, slot: u32, at: usize, code: i32) {
        let reference = self.reference(slot);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("the caller has it");
        let client = connection.client;
        let channel = &mut connection.channels[at];
        if let Some(call) = channel.call.take()
            && call.program == Program::Running
        {
            channel.old = Some(call.number);
            let id = CallId { connection: reference, channel: at as u8, number: call.number };
            self.events.push_back(Event::Failed(id, code));
        } else if client {
            self.events.push_back(Event::Free(reference));
        }
        self.account(slot);
    }

    pub(super) fn fail_all(&mut self, slot: u32, code: i32) {
        for at in 0..CHANNELS {
            self.fail(slot, at, code);
        }
    }

    fn challenged(&mut self, slot: u32, body: &[u8]) {
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        if !connection.client {
            return;
        }
        let calls = connection.channels.each_ref().map(next_call);
        match connection.session.respond(body, calls) {
            Ok(response) => self.queue_special(slot, Kind::Response, response),
            Err(Error::Security { code }) => self.fail_all(slot, code),
            Err(_) => self.fail_all(slot, code::PROTOCOL_ERROR),
        }
    }

    fn response(&mut self, now: Time, slot: u32, header: &Header, body: &[u8]) {
        let unix = self.unix(now);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("it was found");
        if connection.client || !matches!(connection.proof, Proof::Pending { .. }) {
            return;
        }
        match connection.session.accept(body, unix) {
            Ok(accepted) => {
                // A seal at the level clear is only a checksum of 16 bits: it proves no address.
                let movable = accepted.identity.level > Level::Clear && header.epoch & EPOCH_MOVES != 0;
                connection.identity = Some(accepted.identity);
                for (channel, number) in connection.channels.iter_mut().zip(accepted.calls) {
                    // The number is that of the channel's present or next call.
                    channel.number = channel.number.max(number.saturating_sub(1));
                }
                let (id, address) = (connection.id, connection.address);
                let old = std::mem::replace(&mut connection.proof, Proof::Done);
                if movable {
                    self.movable.insert(id, slot);
                }
                self.account(slot);
                self.prove(slot);
                if let Proof::Pending { parked, .. } = old {
                    for (header, mut body) in parked {
                        self.data(now, slot, &header, &mut body, None);
                    }
                }
                debug_assert_eq!(self.keys.get(&(id, address, false)), Some(&slot));
            }
            Err(error) => {
                let code = if let Error::Security { code } = error { code } else { code::PROTOCOL_ERROR };
                self.counts.refused_response += 1;
                if self.may_abort(now, slot) {
                    self.queue_special(slot, Kind::Abort, code.to_be_bytes().to_vec());
                }
                self.remove(slot);
            }
        }
    }
}

/// The number that a response has for a channel: that of its call, or of the next one if the client
/// has the whole reply. A channel without any call has 0. OpenAFS: `rxi_GetCallNumberVector`.
pub(super) fn next_call(channel: &Channel) -> u32 {
    let goes_on = channel.call.as_ref().is_some_and(|call| call.program != Program::Done);
    if goes_on || channel.number == 0 { channel.number } else { channel.number.wrapping_add(1) }
}

/// Whether a ticket has expired, as far as clocks agree.
fn is_over(expires: u32, unix: u32) -> bool {
    expires.saturating_add(SKEW) < unix
}

/// A higher call number says that the client has or wants no more of the last call.
fn end_of_last(
    channel: &mut Channel,
    connection: super::ConnectionRef,
    at: usize,
    events: &mut std::collections::VecDeque<Event>,
) {
    channel.aborted = None;
    if let Some(call) = channel.call.take()
        && call.program == Program::Running
    {
        channel.old = Some(call.number);
        let id = CallId { connection, channel: at as u8, number: call.number };
        events.push_back(Event::Failed(id, code::USER_ABORT));
    }
}
