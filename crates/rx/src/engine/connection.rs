//! A connection, its channels and their calls.

use std::net::SocketAddrV4;
use std::sync::Arc;

use super::output::FULL;
use super::patience::{Patience, Peer};
use super::receive::{PACKET, Receiver};
use super::send::Sender;
use super::taken::Taken;
use super::time::Time;
use super::{CallId, Config};
use crate::packet::{CHANNELS, Flags, Header, Kind, debug};
use crate::security::{ConnectionId, Identity, Session};

/// Bytes that a call takes in memory beside what it received and sends.
pub(super) const CALL: usize = size_of::<Call>();
/// Bytes of a request that a program starts with before the request is complete.
const ENOUGH: usize = 20 << 10;

/// How far the program is with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// It does not know the call yet.
    Waiting,
    /// It reads or writes.
    Running,
    /// It wants no more of the call.
    Done,
}

/// A call of a channel.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) program: Program,
    /// When it was made.
    pub(super) begun: Time,
    /// When a packet of the call arrived.
    pub(super) heard: Time,
    /// When data arrived.
    pub(super) progress: Time,
    /// When a ping was sent.
    pub(super) pinged: Time,
    pub(super) user_status: u8,
    /// The program knows that there are bytes, and has not taken them yet.
    pub(super) noticed: bool,
    /// How many bytes the program waits for.
    pub(super) wanted: usize,
    /// The program waits for room to write.
    pub(super) stopped: bool,
    /// It goes on when fewer bytes than these wait to be sent.
    pub(super) goes_on_below: usize,
    pub(super) patience: Patience,
}

impl Call {
    pub(super) fn new(
        number: u32,
        now: Time,
        config: &Config,
        initial: u32,
        peer: u32,
        client: bool,
    ) -> Call {
        Call {
            number,
            receiver: Receiver::new(config.receive_window, client),
            sender: Sender::new(initial, peer, config.send_window),
            program: Program::Waiting,
            begun: now,
            heard: now,
            progress: now,
            pinged: now,
            user_status: 0,
            noticed: false,
            wanted: 1,
            stopped: false,
            goes_on_below: FULL,
            patience: Patience::new(now, config.patience),
        }
    }

    /// Whether a program may start with the call. An incomplete request keeps a worker waiting, so
    /// its client must be proven.
    pub(super) fn can_start(&self, proved: bool) -> bool {
        let enough = self.receiver.done() || (proved && self.receiver.ready().len() >= ENOUGH);
        self.program == Program::Waiting && enough
    }

    /// Whether as many bytes have arrived as the program waits for, or the last ones.
    pub(super) fn has_wanted(&self) -> bool {
        self.receiver.done() || self.receiver.ready().len() >= self.wanted
    }

    /// Whether more of the request must arrive before a program may start.
    pub(super) fn is_incomplete(&self, proved: bool) -> bool {
        self.program == Program::Waiting && !self.can_start(proved)
    }

    /// Brings the call's patience with its client up to date.
    pub(super) fn watch(&mut self, now: Time, config: &Config, proved: bool) {
        let reads = match self.program {
            Program::Waiting => self.is_incomplete(proved) && !self.receiver.is_full(),
            Program::Running => !self.has_wanted(),
            Program::Done => false,
        };
        let peer = match reads || self.sender.waits() {
            true => Peer::Owes,
            false if self.receiver.done() && self.sender.queued() == 0 => Peer::OwesNothing,
            false => Peer::Waits,
        };
        let moved = self.receiver.moved() + self.sender.moved();
        self.patience.watch(now, moved, peer, u64::from(config.rate));
    }

    /// Whether this end needs the peer to go on.
    pub(super) fn needs_peer(&self, client: bool) -> bool {
        self.sender.waits()
            || self.program == Program::Running
            || (client && !self.receiver.done())
            || (!client && self.program == Program::Waiting)
    }

    /// When something is due.
    pub(super) fn due(&self, config: &Config, client: bool, proved: bool) -> Option<Time> {
        let ping = self
            .needs_peer(client)
            .then(|| self.heard.max(self.pinged).after(config.ping).min(self.heard.after(config.dead)));
        let idle = self.is_incomplete(proved).then(|| self.progress.after(config.idle_call));
        let patience = if client { None } else { self.patience.ends() };
        let first = self.receiver.lacks_first() && !client;
        let first = first.then(|| self.begun.after(config.first));
        [self.sender.timer(), self.receiver.timer(), ping, idle, patience, first].into_iter().flatten().min()
    }
}

/// A channel: the number of its last call, and the call if it goes on.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) number: u32,
    pub(super) call: Option<Box<Call>>,
    /// A call that ended while its program runs. The next call waits for the program.
    pub(super) old: Option<u32>,
    /// The code that the last call was aborted with, and how often it may be said again.
    pub(super) aborted: Option<(i32, u8)>,
    /// The engine knows already that a call may be able to start.
    pub(super) offered: bool,
}

/// Whether a connection has proved who its client is.
#[derive(Debug)]
pub(super) enum Proof {
    /// It has, or need not.
    Done,
    /// It was challenged. Its packets wait.
    Pending { since: Time, last: Time, parked: Vec<(Header, Vec<u8>)> },
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) address: SocketAddrV4,
    pub(super) peer: u32,
    pub(super) host: u32,
    pub(super) client: bool,
    pub(super) service: u16,
    pub(super) security: u8,
    pub(super) session: Box<dyn Session>,
    pub(super) proof: Proof,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) serial: u32,
    pub(super) channels: [Channel; CHANNELS],
    pub(super) used: Time,
    /// When the connection is looked at next.
    pub(super) scheduled: Time,
    pub(super) dirty: bool,
    /// The peer has shown that it receives what is sent to it.
    pub(super) proved: bool,
    /// It counts among the proven ones, and not among the strangers.
    pub(super) member: bool,
    /// The serial number after which an echo is proof.
    pub(super) echo_from: u32,
    /// What the connection takes of the shares, as of the last time it was counted.
    pub(super) taken: Taken,
    /// Calls that the program has.
    pub(super) started: usize,
    /// The program holds the connection open.
    pub(super) open: bool,
}

impl Connection {
    /// The header of a packet without its data: serial number and position are to be filled in.
    pub(super) fn header(&self, channel: usize, kind: Kind) -> Header {
        Header {
            epoch: self.id.epoch,
            cid: self.id.cid | channel as u32,
            call: self.channels[channel].number,
            seq: 0,
            serial: 0,
            kind,
            flags: if self.client { Flags::CLIENT } else { Flags::default() },
            user_status: 0,
            security: self.security,
            checksum: 0,
            service: self.service,
        }
    }

    /// The call with this number, if it goes on.
    pub(super) fn call(&mut self, id: CallId) -> Option<&mut Call> {
        let call = self.channels[id.channel as usize].call.as_deref_mut()?;
        (call.number == id.number).then_some(call)
    }

    /// Whether the call of a channel can start.
    pub(super) fn can_start(&self, at: usize) -> bool {
        let channel = &self.channels[at];
        channel.old.is_none() && channel.call.as_ref().is_some_and(|call| call.can_start(self.proved))
    }

    /// Gives the call of a channel, which can start, to the program. Returns its number.
    pub(super) fn begin(&mut self, at: usize) -> u32 {
        self.started += 1;
        let call = self.channels[at].call.as_deref_mut().expect("the caller knows that it can start");
        (call.program, call.noticed) = (Program::Running, true);
        call.number
    }

    /// What the connection takes of the shares.
    pub(super) fn measure(&self) -> Taken {
        let mut taken = Taken { connections: 1, started: self.started, ..Taken::default() };
        if let Proof::Pending { parked, .. } = &self.proof {
            taken.requests = parked.iter().map(|(_, bytes)| bytes.len() + PACKET).sum();
        }
        for call in self.channels.iter().filter_map(|channel| channel.call.as_ref()) {
            taken.calls += 1;
            taken.requests += CALL + call.receiver.bytes();
            taken.replies += call.sender.bytes();
        }
        taken
    }

    /// Most bytes that this data of a client takes: one of a new call begins that, too.
    pub(super) fn cost(&self, header: &Header, body: &[u8]) -> usize {
        let call = self.channels[header.channel()].call.as_ref();
        let is_new = !self.client && call.is_none_or(|call| call.number != header.call);
        body.len() + PACKET + if is_new { CALL } else { 0 }
    }

    /// Whether an acknowledgement's serial number is one that was sent to the peer.
    pub(super) fn is_echo(&self, serial: u32) -> bool {
        let sent = self.serial.wrapping_sub(self.echo_from);
        (1..=sent).contains(&serial.wrapping_sub(self.echo_from))
    }

    /// Whether no call goes on, as far as this end cares.
    pub(super) fn is_idle(&self) -> bool {
        let idle = |channel: &Channel| {
            channel.old.is_none() && channel.call.as_ref().is_none_or(|call| call.program == Program::Done)
        };
        self.channels.iter().all(idle)
    }

    /// When something is due.
    pub(super) fn due(&self, config: &Config) -> Time {
        let idle = if self.client && self.open { Time(u64::MAX) } else { self.used.after(config.idle) };
        let proof = match &self.proof {
            Proof::Pending { last, .. } => Some(last.after(config.challenge)),
            Proof::Done => None,
        };
        let calls = self.channels.iter().filter_map(|channel| channel.call.as_ref());
        let calls = calls.filter_map(|call| call.due(config, self.client, self.proved)).min();
        [Some(idle), proof, calls].into_iter().flatten().min().unwrap_or(idle)
    }

    /// What `rxdebug` shows.
    pub(super) fn debug(&self) -> debug::Connection {
        let channel = |channel: &Channel| {
            let mut shown = debug::Channel { call: channel.number, ..debug::Channel::default() };
            let Some(call) = &channel.call else { return shown };
            (shown.state, shown.mode) = match call.program {
                Program::Waiting => (1, 0),
                Program::Running => (2, if call.receiver.done() && !self.client { 1 } else { 2 }),
                Program::Done => (if call.sender.waits() { 4 } else { 3 }, 4),
            };
            shown.other = u8::from(!call.receiver.ready().is_empty()) | u8::from(call.sender.waits()) << 1;
            shown
        };
        debug::Connection {
            peer: self.address,
            cid: self.id.cid,
            epoch: self.id.epoch,
            serial: self.serial,
            error: 0,
            server: !self.client,
            security_index: self.security,
            channels: self.channels.each_ref().map(channel),
            security: self.session.stats(),
            mtu: 1444,
        }
    }
}
