//! The receiving half of a call: order, duplicates and acknowledgements.
//!
//! # Theory
//! Packets in order are appended to `ready`, which the program takes. Others wait in `held`, inside
//! of the window. While `ready` is full, packets in order wait too, so the window does not move and
//! the sender stops.
//!
//! An acknowledgement follows every second packet, and at once what the sender must know: a gap, a
//! duplicate, a request, the end of a reply. Else it waits: a reply acknowledges its request by
//! itself.
//!
//! # When a reply is not enough
//! Linux's client measures round trips by the acknowledgement that it requests with the last packet
//! of a request. A reply does not end such a measurement: the client can only discard it. So if the
//! packet that completes a request requests an acknowledgement, one leaves before the reply.
//!
//! This costs other clients nothing. OpenAFS requests no acknowledgement with a last packet, unless
//! it sends that packet again (`rxi_SendList`). Of the packets before the last it does request
//! some, so a reply that is ready at once replaces those acknowledgements.

use std::collections::BTreeMap;
use std::time::Duration;

use super::time::Time;
use crate::packet::{Ack, Flags, Reason, Trailer, ack};

/// Bytes that a packet takes in memory beside its data, about.
pub(super) const PACKET: usize = 64;
/// Bytes that wait for the program before the sender is stopped.
pub(super) const FULL: usize = 256 << 10;
/// How long an acknowledgement may wait.
const DELAY: Duration = Duration::from_millis(100);
/// How long that of a request's last packet may wait: the reply makes it needless.
const DELAY_LAST: Duration = Duration::from_millis(400);
/// After how many packets a call counts as a stream.
const STREAM: u32 = 8;
/// After how many packets an acknowledgement is sent.
const RATE: u32 = 2;

/// The receiving half of a call.
#[derive(Debug)]
pub(super) struct Receiver {
    next: u32,
    held: BTreeMap<u32, (Vec<u8>, bool)>,
    /// Bytes of `held`.
    kept: usize,
    ready: Vec<u8>,
    done: bool,
    last: Option<u32>,
    highest: u32,
    /// Packets since the last acknowledgement.
    pending: u32,
    due: Option<(Reason, u32)>,
    timer: Option<Time>,
    serial: u32,
    window: u32,
    stopped: bool,
    client: bool,
    /// Bytes that arrived in order, in all.
    moved: u64,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet {
    /// The program has more to read.
    Ready,
    /// The packet waits for others.
    Held,
    /// The packet arrived before.
    Duplicate,
    /// The packet is of no use.
    Refused,
}

impl Receiver {
    /// A half without data, with a window of so many packets. A client receives replies.
    pub(super) fn new(window: u32, client: bool) -> Receiver {
        Receiver {
            next: 1,
            held: BTreeMap::new(),
            kept: 0,
            ready: Vec::new(),
            done: false,
            last: None,
            highest: 0,
            pending: 0,
            due: None,
            timer: None,
            serial: 0,
            window,
            stopped: false,
            client,
            moved: 0,
        }
    }

    /// Bytes that the program can take.
    pub(super) fn ready(&self) -> &[u8] {
        &self.ready
    }

    /// Whether many packets have arrived, and more will.
    pub(super) fn streams(&self) -> bool {
        !self.done && self.next > STREAM
    }

    /// Whether everything has arrived in order.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.ready.len() + self.kept
    }

    /// Bytes that arrived in order, in all.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether packets arrived, and not the first one.
    pub(super) fn lacks_first(&self) -> bool {
        self.next == 1 && !self.held.is_empty()
    }

    /// Whether the sender waits for the program.
    pub(super) fn is_full(&self) -> bool {
        self.ready.len() >= FULL
    }

    /// Whether a packet is inside of the window, and has not arrived.
    pub(super) fn is_new(&self, seq: u32) -> bool {
        let inside = seq >= self.next && seq < self.next.saturating_add(self.window);
        inside && !self.past_end(seq) && !self.held.contains_key(&seq)
    }

    /// Takes a packet. Duplicates and what lies beyond the window are acknowledged at once.
    pub(super) fn take_packet(
        &mut self,
        now: Time,
        seq: u32,
        serial: u32,
        flags: Flags,
        body: &[u8],
    ) -> Packet {
        let last = flags.has(Flags::LAST);
        if seq == 0 || (last && self.last.is_some_and(|known| known != seq)) || self.past_end(seq) {
            return Packet::Refused;
        }
        if seq < self.next || self.held.contains_key(&seq) {
            self.due = Some((Reason::DUPLICATE, serial));
            return Packet::Duplicate;
        }
        if seq >= self.next.saturating_add(self.window) {
            self.due = Some((Reason::EXCEEDS_WINDOW, serial));
            return Packet::Refused;
        }
        if last {
            self.last = Some(seq);
        }
        (self.serial, self.highest) = (serial, self.highest.max(seq));
        self.pending += 1;
        let in_order = seq == self.next;
        if in_order && self.ready.len() < FULL {
            self.append(body, last);
            self.drain();
        } else {
            self.stopped |= in_order;
            self.kept += body.len() + PACKET;
            self.held.insert(seq, (body.to_vec(), last));
        }
        if !in_order {
            self.due = Some((Reason::OUT_OF_SEQUENCE, serial));
        } else if flags.has(Flags::REQUEST_ACK) {
            self.due = Some((Reason::REQUESTED, serial));
        }
        if self.client && self.done {
            // Linux's server sends its reply again after some 20 ms.
            self.due.get_or_insert((Reason::DELAY, serial));
        }
        if self.timer.is_none() {
            self.timer = Some(now.after(if self.done && !self.client { DELAY_LAST } else { DELAY }));
        }
        if in_order { Packet::Ready } else { Packet::Held }
    }

    fn past_end(&self, seq: u32) -> bool {
        self.last.is_some_and(|last| seq > last)
    }

    fn append(&mut self, body: &[u8], last: bool) {
        self.ready.extend_from_slice(body);
        self.moved += body.len() as u64;
        self.next += 1;
        self.done = last;
    }

    fn drain(&mut self) {
        while self.ready.len() < FULL
            && let Some((body, last)) = self.held.remove(&self.next)
        {
            self.kept -= body.len() + PACKET;
            self.append(&body, last);
        }
        self.stopped = self.held.contains_key(&self.next);
    }

    /// The bytes in order. The next ones are gathered in `buffer`. The sender learns of the room if
    /// it was stopped.
    pub(super) fn take(&mut self, mut buffer: Vec<u8>) -> Vec<u8> {
        buffer.clear();
        let bytes = std::mem::replace(&mut self.ready, buffer);
        if self.stopped {
            self.drain();
            self.due = Some((Reason::IDLE, self.serial));
        }
        bytes
    }

    /// The peer asks whether this end still has the call.
    pub(super) fn pinged(&mut self, serial: u32) {
        self.due = Some((Reason::PING_RESPONSE, serial));
    }

    /// Whether the packet that completed everything requested an acknowledgement, which is due.
    pub(super) fn is_end_requested(&self) -> bool {
        self.done && self.due == Some((Reason::REQUESTED, self.serial))
    }

    /// No acknowledgement is needed: what is sent now says the same.
    pub(super) fn implied(&mut self) {
        self.pending = 0;
        self.timer = None;
        if !matches!(self.due, Some((Reason::PING_RESPONSE, _))) {
            self.due = None;
        }
    }

    /// An acknowledgement is due by the passing of time.
    pub(super) fn timed_out(&mut self) {
        self.due.get_or_insert((Reason::DELAY, self.serial));
        self.timer = None;
    }

    /// When an acknowledgement is due.
    pub(super) fn timer(&self) -> Option<Time> {
        self.timer
    }

    /// Whether an acknowledgement is due now.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some() || (self.pending >= RATE && !self.done)
    }

    /// The content of the acknowledgement that is due, or of one with this reason.
    pub(super) fn acknowledge(&mut self, reason: Option<Reason>) -> Vec<u8> {
        let due = self.due.take().unwrap_or((Reason::IDLE, self.serial));
        let (reason, serial) = reason.map_or(due, |reason| (reason, 0));
        self.pending = 0;
        self.timer = None;
        let end = self.held.last_key_value().map_or(self.next, |(seq, _)| seq + 1);
        let states: Vec<u8> =
            (self.next..end).take(ack::MOST).map(|seq| u8::from(self.held.contains_key(&seq))).collect();
        let ack = Ack {
            first: self.next,
            previous: self.highest,
            serial,
            reason,
            states: &states,
            max_mtu: None,
            window: None,
        };
        ack.encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: self.window, jumbo: 1 })
    }
}
