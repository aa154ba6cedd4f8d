//! The sending half of a call: the window, acknowledgements and repetition.
//!
//! # Theory
//! The program's bytes wait in `source` until the window has room. Then they become packets, which
//! stay until the receiver has taken them for good.
//!
//! Each transmission of a packet has a place in the order of transmissions. A packet counts as lost
//! when three transmissions after its own were acknowledged. So a packet that was sent twice is
//! judged by its second transmission.
//!
//! When nothing is heard, the last packet is sent once more as a probe: its acknowledgement shows
//! which others are lost. If nothing is heard of that either, all packets count as lost.
//!
//! The congestion window follows RFC 5681: slow start, then one packet for each window, half of it
//! after a loss, two packets after a time-out.

use std::collections::VecDeque;
use std::time::Duration;

use super::time::{Rtt, Time};
use crate::block::Slice;
use crate::packet::{Ack, Reason};
use crate::security::{Outgoing, Session};

/// How many later transmissions must arrive before a packet counts as lost.
const REORDERED: u64 = 3;
/// The congestion window after a time-out.
const AFTER_TIMEOUT: u32 = 2;
/// Packets that are sealed at a time, where sealing costs something: as many as the cipher takes.
const SEALED: u32 = 8;
/// The packets of a reply whose end the receiver should acknowledge at once.
const LARGE: u64 = 4;

/// A packet that was sent or is about to be.
#[derive(Debug)]
struct Sent {
    payload: Slice,
    checksum: u16,
    last: bool,
    serial: u32,
    order: u64,
    at: Time,
    tries: u32,
    acked: bool,
    lost: bool,
    /// Its acknowledgement was requested.
    prompt: bool,
}

/// A packet that leaves now.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) seq: u32,
    pub(super) serial: u32,
    pub(super) checksum: u16,
    pub(super) last: bool,
    pub(super) request_ack: bool,
    pub(super) payload: Slice,
    pub(super) again: bool,
}

/// What an acknowledgement changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Acked {
    /// Packets that are known to have arrived now.
    pub(super) packets: u32,
    /// A measured round trip.
    pub(super) rtt: Option<Duration>,
}

/// A block with bytes of the stream that the receiver has not taken.
#[derive(Debug)]
struct Shared {
    /// Where it is in memory, and how large.
    block: (usize, usize),
    /// The bytes of the stream up to the last of the block.
    end: u64,
}

/// The sending half of a call.
#[derive(Debug)]
pub(super) struct Sender {
    source: VecDeque<Slice>,
    /// The blocks of what the receiver has not taken, in the order of the stream.
    blocks: VecDeque<Shared>,
    /// Bytes of `blocks`.
    shared: usize,
    /// Bytes that were appended, in all.
    pushed: u64,
    queued: usize,
    /// Bytes of `packets`.
    packed: usize,
    /// Bytes of packets that were acknowledged for good.
    moved: u64,
    closed: bool,
    packets: VecDeque<Sent>,
    first: u32,
    sealed_last: bool,
    peer_window: u32,
    own_window: u32,
    window: u32,
    threshold: u32,
    grown: u32,
    recover: u32,
    order: u64,
    highest: u64,
    tries: u32,
    /// The place of the last probe, until something later is sent.
    probe: u64,
    timer: Option<Time>,
}

impl Sender {
    /// A half without data. `initial` is the congestion window, `most` the largest window.
    pub(super) fn new(initial: u32, peer: u32, most: u32) -> Sender {
        Sender {
            source: VecDeque::new(),
            blocks: VecDeque::new(),
            shared: 0,
            pushed: 0,
            queued: 0,
            packed: 0,
            moved: 0,
            closed: false,
            packets: VecDeque::new(),
            first: 1,
            sealed_last: false,
            peer_window: peer,
            own_window: most,
            window: initial,
            threshold: most,
            grown: 0,
            recover: 0,
            order: 0,
            highest: 0,
            tries: 0,
            probe: u64::MAX,
            timer: None,
        }
    }

    /// Appends bytes. `last` says that no more follow.
    pub(super) fn push(&mut self, parts: impl IntoIterator<Item = Slice>, last: bool) {
        for part in parts {
            if !part.is_empty() && !self.closed {
                self.queued += part.len();
                self.share(&part);
                self.source.push_back(part);
            }
        }
        self.closed |= last;
    }

    /// Counts the block of what is appended, once for all of its parts that follow each other.
    fn share(&mut self, part: &Slice) {
        self.pushed += part.len() as u64;
        let (block, end) = (part.block(), self.pushed);
        match self.blocks.back_mut().filter(|last| last.block == block) {
            Some(last) => last.end = end,
            None => {
                self.shared += block.1;
                self.blocks.push_back(Shared { block, end });
            }
        }
    }

    /// Counts no block any more that the receiver has. What is sealed takes no less of the stream
    /// than its bytes, and is a copy.
    fn unshare(&mut self) {
        while let Some(gone) = self.blocks.pop_front_if(|first| first.end <= self.moved) {
            self.shared -= gone.block.1;
        }
    }

    /// Bytes that wait for room in the window.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes in memory. A part of a block keeps all of it there, also the last packet alone: a
    /// receiver could else hold many large blocks for a byte of each.
    pub(super) fn bytes(&self) -> usize {
        self.shared.max(self.unacknowledged())
    }

    /// Bytes that the receiver has not taken for good.
    pub(super) fn unacknowledged(&self) -> usize {
        self.queued + self.packed
    }

    /// Bytes that the receiver has taken for good, in all.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether the program has no more bytes.
    pub(super) fn closed(&self) -> bool {
        self.closed
    }

    /// Whether the receiver has taken everything.
    pub(super) fn done(&self) -> bool {
        self.sealed_last && self.packets.is_empty()
    }

    /// Whether packets were sent and not acknowledged.
    pub(super) fn waits(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Whether anything was sent.
    pub(super) fn started(&self) -> bool {
        self.order > 0
    }

    /// When the time-out of the oldest packet passes.
    pub(super) fn timer(&self) -> Option<Time> {
        self.timer
    }

    /// The congestion window.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// How often the time-out passed in a row.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    fn next(&self) -> u32 {
        self.first.wrapping_add(self.packets.len() as u32)
    }

    /// The peer answered: it needs no more of the request than it has.
    pub(super) fn answered(&mut self) {
        self.source.clear();
        self.blocks.clear();
        (self.queued, self.shared) = (0, 0);
        self.sealed_last = true;
        self.first = self.next();
        self.packets.clear();
        self.packed = 0;
        self.timer = None;
        self.tries = 0;
    }

    /// Takes an acknowledgement into account. Returns `None` if it is old or impossible.
    pub(super) fn acked(&mut self, now: Time, ack: &Ack<'_>, rtt: &Rtt) -> Option<Acked> {
        let gone = ack.first.wrapping_sub(self.first);
        if gone as usize > self.packets.len() {
            return None;
        }
        let mut result = Acked::default();
        for _ in 0..gone {
            let packet = self.packets.pop_front().expect("gone is at most their number");
            self.packed -= packet.payload.len();
            self.moved += packet.payload.len() as u64;
            self.count(&packet, ack, now, &mut result);
        }
        self.unshare();
        self.first = ack.first;
        for at in 0..ack.states.len().min(self.packets.len()) {
            let acked = ack.states[at] & 1 == 1 && self.packets[at].tries > 0;
            if acked && !self.packets[at].acked {
                let packet = &self.packets[at];
                let (order, serial, sent, tries) = (packet.order, packet.serial, packet.at, packet.tries);
                self.highest = self.highest.max(order);
                result.packets += 1;
                measure(&mut result, ack, serial, tries, now.since(sent));
            }
            // The receiver may discard what it did not take for good.
            self.packets[at].acked = acked;
            self.packets[at].lost &= !acked;
        }
        if let Some(window) = ack.window {
            self.peer_window = window.clamp(1, 255);
        }
        self.find_lost();
        self.grow(result.packets);
        if result.packets > 0 {
            self.tries = 0;
            self.timer = self.waits().then(|| now.after(self.patience(rtt)));
        }
        Some(result)
    }

    fn count(&mut self, packet: &Sent, ack: &Ack<'_>, now: Time, result: &mut Acked) {
        self.highest = self.highest.max(packet.order);
        if !packet.acked {
            result.packets += 1;
            measure(result, ack, packet.serial, packet.tries, now.since(packet.at));
        }
    }

    fn find_lost(&mut self) {
        let highest = self.highest;
        // Nothing was sent for long before a probe: what arrives, arrived.
        let later = if highest >= self.probe { 1 } else { REORDERED };
        let mut newest = None;
        for (at, packet) in self.packets.iter_mut().enumerate() {
            if !packet.acked && !packet.lost && packet.tries > 0 && packet.order + later <= highest {
                packet.lost = true;
                newest = Some(at as u32);
            }
        }
        // One loss in a window halves it once.
        if let Some(at) = newest
            && self.first.wrapping_add(at).wrapping_sub(self.recover) < 1 << 31
        {
            self.threshold = (self.flying() / 2).max(AFTER_TIMEOUT);
            self.window = self.threshold;
            self.recover = self.next();
        }
    }

    fn grow(&mut self, packets: u32) {
        let recovered = self.first.wrapping_sub(self.recover) < 1 << 31;
        if packets == 0 || !recovered {
            return;
        }
        if self.window < self.threshold {
            self.window += packets;
        } else {
            self.grown += packets;
            if self.grown >= self.window {
                self.grown = 0;
                self.window += 1;
            }
        }
        self.window = self.window.min(self.own_window);
    }

    /// Packets that are on their way, as far as is known.
    fn flying(&self) -> u32 {
        self.packets.iter().filter(|packet| packet.tries > 0 && !packet.acked && !packet.lost).count() as u32
    }

    /// How long to wait for an acknowledgement. The receiver sends that of the last packet late.
    fn patience(&self, rtt: &Rtt) -> Duration {
        let prompt = self.packets.back().is_some_and(|packet| packet.prompt);
        if self.tries == 0 && prompt { rtt.probe() } else { rtt.timeout(self.tries) }
    }

    /// The time-out passed: a probe is sent, or everything without acknowledgement counts as lost.
    pub(super) fn timed_out(&mut self, now: Time, rtt: &Rtt) {
        self.tries += 1;
        self.timer = Some(now.after(rtt.timeout(self.tries - 1)));
        let mut unheard = self.packets.iter_mut().filter(|packet| packet.tries > 0 && !packet.acked);
        if self.tries == 1
            && let Some(last) = unheard.next_back()
        {
            last.lost = true;
            return;
        }
        self.threshold = (self.flying() / 2).max(AFTER_TIMEOUT);
        self.window = AFTER_TIMEOUT;
        // The window may grow at once, by slow start.
        self.recover = self.first;
        for packet in &mut self.packets {
            packet.lost |= packet.tries > 0 && !packet.acked;
        }
    }

    /// The peer has no room for the call now: it is repeated soon.
    pub(super) fn postponed(&mut self, at: Time) {
        if self.waits() {
            self.timer = Some(at);
        }
    }

    /// Makes packets of the waiting bytes, as far as the window has room.
    ///
    /// `data` is the most bytes of a packet, `cid` and `call` its place.
    pub(super) fn pack(&mut self, session: &mut dyn Session, data: usize, cid: u32, call: u32) {
        let room = self.window.min(self.peer_window).min(self.own_window);
        let mut free = (room.saturating_sub(self.flying_or_lost()))
            .min(self.peer_window.saturating_sub(self.packets.len() as u32));
        if free > 0 && session.overhead().0 > 0 {
            free = free.next_multiple_of(SEALED);
        }
        let mut packets = Vec::new();
        let mut seq = self.next();
        while free > 0 && !self.sealed_last {
            let whole = self.queued >= data;
            if !whole && !self.closed {
                break;
            }
            let payload = self.fill(data);
            self.sealed_last = self.closed && self.queued == 0;
            packets.push(Outgoing { cid, call, seq, checksum: 0, payload });
            (seq, free) = (seq.wrapping_add(1), free - 1);
        }
        if packets.is_empty() {
            return;
        }
        session.seal(&mut packets);
        let count = packets.len();
        for (at, packet) in packets.into_iter().enumerate() {
            self.packed += packet.payload.len();
            self.packets.push_back(Sent {
                payload: packet.payload,
                checksum: packet.checksum,
                last: self.sealed_last && at + 1 == count,
                serial: 0,
                order: 0,
                at: Time::default(),
                tries: 0,
                acked: false,
                lost: false,
                prompt: false,
            });
        }
    }

    fn flying_or_lost(&self) -> u32 {
        self.packets.iter().filter(|packet| !packet.acked).count() as u32
    }

    /// The next bytes, `data` at most. They are copied only where a packet spans two blocks.
    fn fill(&mut self, data: usize) -> Slice {
        let Some(front) = self.source.front_mut() else { return Slice::from(Vec::new()) };
        let head = front.take(data);
        if front.is_empty() {
            self.source.pop_front();
        }
        self.queued -= head.len();
        if head.len() == data || self.source.is_empty() {
            return head;
        }
        let mut bytes = Vec::with_capacity(data.min(head.len() + self.queued));
        bytes.extend_from_slice(head.bytes());
        while bytes.len() < data
            && let Some(front) = self.source.front_mut()
        {
            let part = front.take(data - bytes.len());
            bytes.extend_from_slice(part.bytes());
            self.queued -= part.len();
            if front.is_empty() {
                self.source.pop_front();
            }
        }
        Slice::from(bytes)
    }

    /// Passes the packets that leave now to `send`. `serial` is the last one of the connection.
    /// `prove` says that the peer has to prove its address: the last packet requests an answer.
    pub(super) fn leave(
        &mut self,
        now: Time,
        rtt: &Rtt,
        prove: bool,
        serial: &mut u32,
        mut send: impl FnMut(Leaving),
    ) -> u32 {
        let mut room = self.window.max(1).saturating_sub(self.flying());
        let (first, count) = (self.first, self.packets.len());
        let mut sent = 0;
        for at in 0..count {
            let packet = &mut self.packets[at];
            let due = packet.tries == 0 || packet.lost;
            if !due {
                continue;
            }
            if room == 0 || at as u32 >= self.peer_window {
                break;
            }
            room -= 1;
            sent += 1;
            *serial = serial.wrapping_add(1);
            self.order += 1;
            let again = packet.tries > 0;
            self.probe = if again && self.tries == 1 { self.order } else { u64::MAX };
            (packet.serial, packet.order, packet.at) = (*serial, self.order, now);
            packet.tries += 1;
            packet.lost = false;
            // The window's last packet: without a request the sender may wait for a delayed answer.
            let end = room == 0 || at + 1 == count || at as u32 + 1 == self.peer_window;
            packet.prompt = again || (end && (prove || !packet.last || self.order > LARGE));
            send(Leaving {
                seq: first.wrapping_add(at as u32),
                serial: *serial,
                checksum: packet.checksum,
                last: packet.last,
                request_ack: packet.prompt,
                payload: packet.payload.clone(),
                again,
            });
        }
        if sent > 0 && self.timer.is_none() {
            self.timer = Some(now.after(self.patience(rtt)));
        }
        sent
    }
}

/// A round trip counts if the packet was sent once, and its receiver did not wait.
fn measure(result: &mut Acked, ack: &Ack<'_>, serial: u32, tries: u32, time: Duration) {
    if ack.serial == serial && tries == 1 && ack.reason != Reason::DELAY {
        result.rtt = Some(time);
    }
}
