//! What leaves: data, acknowledgements, aborts.

use std::net::SocketAddrV4;

use super::connection::{Connection, Program};
use super::{Engine, Event, Time};
use crate::block::Slice;
use crate::packet::{CHANNELS, DATA, Flags, HEADER, Header, Kind, Reason};

/// Bytes that wait to be sent before the program is stopped.
pub(super) const FULL: usize = 512 << 10;
/// Bytes that still wait when a program that was stopped goes on, if it writes a long stream: so it
/// wakes up rarely.
pub(super) const LOW: usize = FULL / 2;

/// A datagram to send.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Its destination.
    pub to: SocketAddrV4,
    /// The header.
    pub head: [u8; HEADER],
    /// What follows the header.
    pub body: Slice,
}

impl Engine {
    /// Appends the datagrams that leave now.
    pub fn transmit(&mut self, now: Time, out: &mut Vec<Datagram>) {
        let dirty = std::mem::take(&mut self.dirty);
        self.streaming = 0;
        for &slot in &dirty {
            let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { continue };
            connection.dirty = false;
            for channel in 0..CHANNELS {
                self.transmit_channel(now, slot, channel);
            }
            self.account(slot);
            self.schedule(slot);
        }
        self.dirty = dirty;
        self.dirty.clear();
        out.append(&mut self.ready);
    }

    fn transmit_channel(&mut self, now: Time, slot: u32, channel: usize) {
        self.acknowledge_request(slot, channel);
        let reference = self.reference(slot);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("the caller has it");
        let (client, proved) = (connection.client, connection.proved);
        let template = connection.header(channel, Kind::Data);
        let Some(call) = connection.channels[channel].call.as_deref_mut() else { return };
        let peer = self.peers.get_mut(connection.peer);
        let (overhead, unit) = connection.session.overhead();
        let data = DATA / unit * unit - overhead;
        let rtt = peer.rtt;
        call.sender.pack(&mut *connection.session, data, template.cid, call.number);
        let (to, counts, ready) = (connection.address, &mut self.counts, &mut self.ready);
        let sent = call.sender.leave(now, &rtt, !proved, &mut connection.serial, |packet| {
            let mut flags = template.flags;
            if packet.last {
                flags = flags.with(Flags::LAST);
            }
            if packet.request_ack {
                flags = flags.with(Flags::REQUEST_ACK);
            }
            let header = Header {
                seq: packet.seq,
                serial: packet.serial,
                checksum: packet.checksum,
                flags,
                ..template
            };
            counts.debug.sent[0] = counts.debug.sent[0].wrapping_add(1);
            counts.debug.resent = counts.debug.resent.wrapping_add(u32::from(packet.again));
            counts.bytes[1] += packet.payload.len() as u64;
            peer.bytes[0] += packet.payload.len() as u64;
            peer.resent = peer.resent.wrapping_add(u32::from(packet.again));
            ready.push(Datagram { to, head: header.encode(), body: packet.payload });
        });
        peer.sent = peer.sent.wrapping_add(sent);
        if proved {
            peer.window = call.sender.window();
        }
        if sent > 0 && !client {
            call.receiver.implied();
        }
        self.streaming += usize::from(call.sender.queued() > 0 || call.receiver.streams());
        let id = super::CallId { connection: reference, channel: channel as u8, number: call.number };
        let goes_on = call.stopped && call.sender.queued() < call.goes_on_below;
        if goes_on && call.program == Program::Running {
            call.stopped = false;
            self.events.push_back(Event::Writable(id));
        }
        call.watch(now, &self.config, proved);
        if call.receiver.is_due() {
            // The answer to a ping proves where it comes from.
            let ping = (!proved && call.program == Program::Waiting && !call.receiver.done())
                .then_some(Reason::PING);
            self.acknowledge(slot, channel, ping);
        }
    }

    /// Queues the acknowledgement that a client requested with the end of its request. It leaves
    /// before the reply, because the reply ends the measurement.
    fn acknowledge_request(&mut self, slot: u32, channel: usize) {
        let connection = self.slots[slot as usize].connection.as_deref().expect("the caller has it");
        let call = connection.channels[channel].call.as_deref();
        if !connection.client && call.is_some_and(|call| call.receiver.is_end_requested()) {
            self.acknowledge(slot, channel, None);
        }
    }

    /// Queues the acknowledgement of a call that is due, or one with this reason.
    pub(super) fn acknowledge(&mut self, slot: u32, channel: usize, reason: Option<Reason>) {
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("the caller has it");
        let mut header = connection.header(channel, Kind::Ack);
        let Some(call) = connection.channels[channel].call.as_deref_mut() else { return };
        let body = call.receiver.acknowledge(reason);
        connection.serial = connection.serial.wrapping_add(1);
        (header.serial, header.call) = (connection.serial, call.number);
        header.flags = header.flags.with(Flags::SLOW_START_OR_JUMBO);
        if reason == Some(Reason::PING) {
            header.flags = header.flags.with(Flags::REQUEST_ACK);
            self.counts.debug.pings = self.counts.debug.pings.wrapping_add(1);
        }
        let to = connection.address;
        self.queue(to, &header, body);
    }

    /// Queues a packet that is no data.
    pub(super) fn queue(&mut self, to: SocketAddrV4, header: &Header, body: Vec<u8>) {
        let count = &mut self.counts.debug.sent[header.kind as usize - 1];
        *count = count.wrapping_add(1);
        self.ready.push(Datagram { to, head: header.encode(), body: Slice::from(body) });
    }

    /// Queues a packet of a connection that belongs to no call.
    pub(super) fn queue_special(&mut self, slot: u32, kind: Kind, body: Vec<u8>) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let header = special(connection, kind);
        let to = connection.address;
        self.queue(to, &header, body);
    }

    /// Queues the abort of a call.
    pub(super) fn queue_abort(&mut self, slot: u32, channel: usize, number: u32, code: i32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        connection.serial = connection.serial.wrapping_add(1);
        let header =
            Header { call: number, serial: connection.serial, ..connection.header(channel, Kind::Abort) };
        let to = connection.address;
        self.queue(to, &header, code.to_be_bytes().to_vec());
    }
}

/// The header of a packet that belongs to no call.
fn special(connection: &mut Connection, kind: Kind) -> Header {
    connection.serial = connection.serial.wrapping_add(1);
    Header { call: 0, cid: connection.id.cid, serial: connection.serial, ..connection.header(0, kind) }
}
