//! Packets of calls that this program does not have.
//!
//! # Theory
//! A program that is killed and started again on its port gets packets of the calls that it had.
//! The peer waits for an answer until its dead time: 420 s for OpenAFS's volume server, 600 s for
//! `vos dump`. An abort with [`code::RESTARTING`] ends its call at once. A file server's client
//! then repeats the call, as after an orderly end of this program.
//!
//! An abort must not end a new call whose first packets are lost or late. So there is one only for
//! what no new call sends:
//!
//! | packet | why no new call sends it |
//! |---|---|
//! | data of a client, beyond the first window | nothing of the call was acknowledged here |
//! | data of a client, without packet 1 for [`Config::first`] | a new call repeats packet 1 |
//! | acknowledgement of a client that has part of a reply | nothing was replied here |
//! | data or acknowledgement of a server | this program knows its own connections |
//!
//! [`Config::first`]: super::Config::first
//!
//! A ping of a client that has no part of a reply gets no answer. Its request may have been lost.
//! Or it was executed before the crash, and the client should not believe that it may repeat it.
//!
//! OpenAFS's server drops all of these packets, because old clients get confused by
//! acknowledgements of such calls (`rxi_ReceiveServerCall` in `src/rx/rx.c`). An abort ends the
//! call of each of them.
//!
//! # Bounds
//! The source address may be forged. An answer is never larger than its packet, and each host gets
//! few of them (module `limit`). An abort is never answered, so two programs can't keep each other
//! busy.

use std::net::SocketAddrV4;

use super::program::ABORTS;
use super::{Engine, Time};
use crate::code;
use crate::packet::{Ack, Flags, Header, Kind, Reason};

/// Bytes of an abort after its header.
pub(super) const ABORT: usize = 4;

impl Engine {
    /// Answers a packet that is of no connection, and makes none.
    pub(super) fn unknown(&mut self, now: Time, from: SocketAddrV4, header: &Header, body: &[u8]) {
        let from_client = header.flags.has(Flags::CLIENT);
        let is_old = match header.kind {
            Kind::Data => !from_client,
            Kind::Ack => Ack::parse(body).is_ok_and(|ack| !from_client || ack.first > 1),
            _ => false,
        };
        if is_old && header.call != 0 {
            self.counts.debug.spurious = self.counts.debug.spurious.wrapping_add(1);
            self.refuse(now, from, header, body, code::RESTARTING);
        }
    }

    /// Whether data of a client belongs to a call that began before this program did. The call is
    /// new to this program, or lacks its first packet.
    pub(super) fn is_lost(&self, slot: u32, header: &Header, body: &[u8]) -> bool {
        let connection = self.slots[slot as usize].connection.as_deref().expect("the caller has it");
        let channel = &connection.channels[header.channel()];
        let begins = match &channel.call {
            Some(call) if call.number == header.call => call.receiver.lacks_first(),
            _ => header.call > channel.number,
        };
        begins && header.seq > self.config.receive_window && body.len() >= ABORT
    }

    /// Ends a call of a client that this program can't serve, because it began before. Returns
    /// whether it did: the host may have got too many aborts. Then the call stays, as its first
    /// packet may still come.
    pub(super) fn lose(&mut self, now: Time, slot: u32, at: usize, number: u32) -> bool {
        self.counts.debug.spurious = self.counts.debug.spurious.wrapping_add(1);
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("the caller has it");
        let channel = &connection.channels[at];
        if channel.call.as_ref().is_some_and(|call| call.number != number) {
            // A client that goes on with another call sends this no more.
            return false;
        }
        let goes_on = channel.call.is_some();
        if !self.may_abort(now, slot) {
            return false;
        }
        if goes_on {
            self.fail(slot, at, code::RESTARTING);
        }
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("the caller has it");
        let channel = &mut connection.channels[at];
        channel.number = number;
        channel.aborted = Some((code::RESTARTING, ABORTS));
        self.account(slot);
        self.queue_abort(slot, at, number, code::RESTARTING);
        true
    }

    /// An acknowledgement of a known connection, for a call that is not here. No seal protects it,
    /// so it changes nothing here.
    pub(super) fn ack_of_no_call(&mut self, now: Time, slot: u32, header: &Header, ack: &Ack<'_>) {
        let connection = self.slots[slot as usize].connection.as_deref().expect("the caller has it");
        let at = header.channel();
        if header.call > connection.channels[at].number {
            if !connection.client && ack.first > 1 && self.may_abort(now, slot) {
                self.counts.debug.spurious = self.counts.debug.spurious.wrapping_add(1);
                self.queue_abort(slot, at, header.call, code::RESTARTING);
            }
        } else if ack.reason == Reason::PING {
            self.repeat_abort(now, slot, at, header.call);
        }
    }

    /// Whether a packet of a connection may be answered by an abort now.
    pub(super) fn may_abort(&mut self, now: Time, slot: u32) -> bool {
        let Some(connection) = self.slots[slot as usize].connection.as_deref() else { return false };
        let (host, proved) = (*connection.address.ip(), connection.proved);
        let limiter = if proved { &mut self.aborts_of_proven } else { &mut self.aborts };
        limiter.allows(now, host)
    }

    /// Says again that a call was aborted, if it was: the abort may have been lost.
    pub(super) fn repeat_abort(&mut self, now: Time, slot: u32, at: usize, number: u32) {
        let connection = self.slots[slot as usize].connection.as_deref().expect("the caller has it");
        let channel = &connection.channels[at];
        let Some((code, left @ 1..)) = channel.aborted.filter(|_| number == channel.number) else { return };
        if !self.may_abort(now, slot) {
            return;
        }
        let connection = self.slots[slot as usize].connection.as_deref_mut().expect("the caller has it");
        connection.channels[at].aborted = Some((code, left - 1));
        self.queue_abort(slot, at, number, code);
    }
}
