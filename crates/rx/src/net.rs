//! Sockets: many datagrams in one system call.
//!
//! # Theory
//! System calls and wake-ups cost more than the protocol. So datagrams are received in batches, and
//! leave in batches. Packets of equal length to one peer leave as one message that the kernel cuts
//! (UDP_SEGMENT): a window then costs little more than a packet. The header and the data of a
//! packet are gathered by the kernel, so data are not copied here.
//!
//! The kernel refuses to cut for some peers and paths, and for some addresses it refuses
//! everything. So a message that it refuses is sent once more without cutting. Only if that helps,
//! for several peers in a row, the kernel or the interface can't cut at all.
//!
//! To wait in the system call that receives takes one system call, and `poll` before it would be
//! another one. But no other thread can end that wait, so it is short ([`WAIT`]).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, ControlMessage, MsgFlags, MultiHeaders, SockaddrIn};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::engine::Datagram;

/// Datagrams of one batch.
const BATCH: usize = 64;
/// Datagrams to ask for while few arrive: each place costs time, even if it stays empty.
const FEW: usize = 8;
/// Bytes for each datagram that is received. A response with a large ticket is the longest.
const SIZE: usize = crate::packet::MOST;
/// Bytes of one message that the kernel cuts, and its pieces.
const CUT_BYTES: usize = 60_000;
const CUT_PIECES: usize = 60;
/// Peers in a row for which the kernel can't cut, before it is not requested any more.
const UNCUT: usize = 8;
/// Bytes that the kernel may hold for a socket.
const BUFFER: usize = 8 << 20;
/// How long a receiver waits at most for the first datagram, if it waits.
pub const WAIT: Duration = Duration::from_millis(10);

/// What else an address may be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bind {
    /// Other sockets may share it.
    pub shared: bool,
    /// The host may get it later.
    pub early: bool,
}

/// A socket with an address.
///
/// # Errors
/// Those of the system: the address is in use, for example.
pub fn bind(address: SocketAddrV4, how: Bind) -> io::Result<UdpSocket> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    if how.shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Without the privilege, the system's limit holds.
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
    }
    if sockopt::set_socket_send_buffer_size_force(&socket, BUFFER).is_err() {
        sockopt::set_socket_send_buffer_size(&socket, BUFFER)?;
    }
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(WAIT))?;
    let mut bound = rustix::net::bind(&socket, &address);
    if how.early && bound == Err(rustix::io::Errno::ADDRNOTAVAIL) {
        tracing::warn!(%address, "the host does not have this address yet");
        sockopt::set_ip_freebind(&socket, true)?;
        bound = rustix::net::bind(&socket, &address);
    }
    bound?;
    Ok(UdpSocket::from(socket))
}

/// Received datagrams.
pub struct Inbox {
    bytes: Vec<u8>,
    headers: MultiHeaders<SockaddrIn>,
    arrived: Vec<(usize, SocketAddrV4)>,
    /// The datagrams that were asked for.
    room: usize,
}

impl Inbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Inbox {
        Inbox {
            bytes: vec![0; BATCH * SIZE],
            headers: MultiHeaders::preallocate(BATCH, None),
            arrived: Vec::with_capacity(BATCH),
            room: BATCH,
        }
    }

    /// Receives what is there. If nothing is, it can wait for [`WAIT`]. Returns how many datagrams
    /// arrived.
    ///
    /// # Errors
    /// Those of the system.
    pub fn receive(&mut self, socket: &UdpSocket, wait: bool) -> io::Result<usize> {
        self.room = if self.was_full() || self.arrived.len() > FEW / 2 { BATCH } else { FEW };
        self.arrived.clear();
        let chunks = self.bytes.chunks_exact_mut(SIZE).take(self.room);
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = chunks.map(|chunk| [IoSliceMut::new(chunk)]).collect();
        let flags = if wait { MsgFlags::MSG_WAITFORONE } else { MsgFlags::MSG_DONTWAIT };
        let got = socket::recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None);
        let got = match got {
            Ok(got) => got,
            // An ICMP message about an earlier send: its call times out by itself.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        for message in got {
            let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
            let length = if whole { message.bytes } else { 0 };
            let from = message.address.map_or(SocketAddrV4::new([0, 0, 0, 0].into(), 0), SocketAddrV4::from);
            self.arrived.push((length, from));
        }
        Ok(self.arrived.len())
    }

    /// The datagrams of the last batch.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (SocketAddrV4, &mut [u8])> {
        let chunks = self.bytes.chunks_exact_mut(SIZE);
        chunks.zip(&self.arrived).map(|(chunk, (length, from))| (*from, &mut chunk[..*length]))
    }

    /// Whether more datagrams may be waiting.
    #[must_use]
    pub fn was_full(&self) -> bool {
        self.arrived.len() == self.room
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

/// Datagrams that leave together.
pub struct Outbox {
    /// The datagrams.
    pub datagrams: Vec<Datagram>,
    /// Made when they are first used: an outbox that sends nothing costs nothing.
    plain: Option<MultiHeaders<SockaddrIn>>,
    cutting: Option<MultiHeaders<SockaddrIn>>,
    /// Whether the kernel cuts messages.
    cuts: bool,
    /// Peers in a row to which a message was sent only without cutting.
    uncut: Vec<SocketAddrV4>,
    /// Datagrams that the kernel refused.
    pub failures: u64,
}

/// Consecutive datagrams to one peer: equally long, but for the last.
struct Run {
    count: usize,
    length: usize,
}

fn length(datagram: &Datagram) -> usize {
    datagram.head.len() + datagram.body.len()
}

/// How many of the first datagrams are one message.
fn run(datagrams: &[Datagram], cuts: bool) -> Run {
    let (to, size) = (datagrams[0].to, length(&datagrams[0]));
    let (mut count, mut total) = (1, size);
    while cuts && count < CUT_PIECES && count < datagrams.len() {
        let next = length(&datagrams[count]);
        if datagrams[count].to != to || next > size || total + next > CUT_BYTES {
            break;
        }
        (count, total) = (count + 1, total + next);
        if next < size {
            break;
        }
    }
    Run { count, length: size }
}

impl Outbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Outbox {
        Outbox {
            datagrams: Vec::new(),
            plain: None,
            cutting: None,
            cuts: true,
            uncut: Vec::new(),
            failures: 0,
        }
    }

    /// Sends all datagrams.
    pub fn send(&mut self, socket: &UdpSocket) {
        let datagrams = std::mem::take(&mut self.datagrams);
        let mut rest = &datagrams[..];
        while !rest.is_empty() {
            rest = &rest[self.send_some(socket, rest)..];
        }
        self.datagrams = datagrams;
        self.datagrams.clear();
    }

    /// Sends the first datagrams, as many as one system call takes. Returns how many those are.
    fn send_some(&mut self, socket: &UdpSocket, datagrams: &[Datagram]) -> usize {
        self.send_runs(socket, datagrams, self.cuts)
    }

    fn send_runs(&mut self, socket: &UdpSocket, datagrams: &[Datagram], cuts: bool) -> usize {
        let mut runs: Vec<Run> = Vec::new();
        // All messages of one system call are cut alike, and those of one packet are no longer.
        let (mut at, mut cut, mut longest) = (0, None, 0);
        while runs.len() < BATCH && at < datagrams.len() {
            let next = run(&datagrams[at..], cuts);
            let fits = match cut {
                Some(cut) => next.length <= cut && (next.count == 1 || next.length == cut),
                None => next.count == 1 || longest <= next.length,
            };
            if !fits {
                break;
            }
            if next.count > 1 {
                cut = Some(next.length);
            }
            longest = longest.max(next.length);
            at += next.count;
            runs.push(next);
        }
        self.submit(socket, datagrams, &runs, cut)
    }

    /// Notes a peer to which a message left only without cutting.
    fn note_uncut(&mut self, to: SocketAddrV4) {
        if !self.uncut.contains(&to) {
            self.uncut.push(to);
            self.cuts &= self.uncut.len() < UNCUT;
        }
    }

    fn submit(
        &mut self,
        socket: &UdpSocket,
        datagrams: &[Datagram],
        runs: &[Run],
        cut: Option<usize>,
    ) -> usize {
        let total: usize = runs.iter().map(|run| run.count).sum();
        let slices: Vec<IoSlice<'_>> = datagrams[..total]
            .iter()
            .flat_map(|datagram| [IoSlice::new(&datagram.head), IoSlice::new(datagram.body.bytes())])
            .collect();
        let (mut messages, mut addresses, mut at) = (Vec::new(), Vec::new(), 0);
        for run in runs {
            addresses.push(Some(SockaddrIn::from(datagrams[at].to)));
            messages.push(&slices[2 * at..2 * (at + run.count)]);
            at += run.count;
        }
        let size = cut.unwrap_or_default() as u16;
        let control = [ControlMessage::UdpGsoSegments(&size)];
        let control: &[ControlMessage<'_>] = if cut.is_some() { &control } else { &[] };
        let headers = match cut {
            Some(_) => self
                .cutting
                .get_or_insert_with(|| MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(u16)))),
            None => self.plain.get_or_insert_with(|| MultiHeaders::preallocate(BATCH, None)),
        };
        let sent = socket::sendmmsg(
            socket.as_raw_fd(),
            headers,
            messages.iter(),
            &addresses,
            control,
            MsgFlags::empty(),
        )
        .map(Iterator::count);
        match sent {
            Ok(count) if count > 0 => {
                // A message of one datagram says nothing of cutting.
                if runs[..count].iter().any(|run| run.count > 1) {
                    self.uncut.clear();
                }
                runs[..count].iter().map(|run| run.count).sum()
            }
            Err(Errno::EINTR | Errno::ECONNREFUSED) => 0,
            Err(Errno::EINVAL | Errno::EIO | Errno::EMSGSIZE) if cut.is_some() => {
                // The first message failed. Its datagrams are sent one by one.
                let (to, count) = (datagrams[0].to, runs[0].count);
                let failures = self.failures;
                let sent = self.send_runs(socket, &datagrams[..count], false);
                if self.failures == failures && count > 1 {
                    self.note_uncut(to);
                }
                sent
            }
            _ => {
                self.failures += runs[0].count as u64;
                runs[0].count
            }
        }
    }
}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Instant;

    use super::*;
    use crate::block::Slice;
    use crate::packet::HEADER;

    const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

    /// Goal: an address that the host lacks is an error, unless it may come later.
    #[test]
    fn early_address() {
        // TEST-NET-1.
        let missing = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 0);
        // Here, every socket may have an address that is missing.
        let is_free = std::fs::read("/proc/sys/net/ipv4/ip_nonlocal_bind").is_ok_and(|on| on == b"1\n");
        if !is_free {
            let error = bind(missing, Bind::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        }
        let socket = bind(missing, Bind { early: true, ..Bind::default() }).unwrap();
        assert_eq!(socket.local_addr().unwrap().ip(), *missing.ip());
        let mut outbox = Outbox::new();
        outbox.datagrams.push(Datagram { to: LOCAL, head: [0; HEADER], body: Slice::from(vec![1]) });
        outbox.send(&socket);
        assert_eq!(outbox.failures, 1);
    }

    /// Goal: a peer to which nothing can be sent costs its own datagrams, and no other peer's. The
    /// kernel goes on cutting.
    #[test]
    fn one_refused_peer_changes_nothing() {
        let (socket, receiver) = (bind(LOCAL, Bind::default()).unwrap(), UdpSocket::bind(LOCAL).unwrap());
        receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let SocketAddr::V4(good) = receiver.local_addr().unwrap() else { panic!("not IPv4") };
        let bad = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let mut outbox = Outbox::new();
        for round in 1..=20u8 {
            for (to, count) in [(bad, 3), (good, 3), (bad, 2)] {
                let datagram =
                    |_| Datagram { to, head: [round; HEADER], body: Slice::from(vec![round; 500]) };
                outbox.datagrams.extend((0..count).map(datagram));
            }
            outbox.send(&socket);
            assert!(outbox.cuts && outbox.datagrams.is_empty());
            assert_eq!(outbox.failures, u64::from(round) * 5);
            for _ in 0..3 {
                let mut bytes = [0; 1_000];
                assert_eq!(receiver.recv(&mut bytes).unwrap(), HEADER + 500);
                assert_eq!(bytes[HEADER], round);
            }
        }
    }

    /// Goal: a wait for datagrams ends by itself. What has arrived needs no wait.
    #[test]
    fn waits_are_short() {
        let (socket, sender) = (bind(LOCAL, Bind::default()).unwrap(), UdpSocket::bind(LOCAL).unwrap());
        let mut inbox = Inbox::new();
        let begun = Instant::now();
        assert_eq!(inbox.receive(&socket, true).unwrap(), 0);
        assert!(begun.elapsed() >= WAIT / 2);
        assert_eq!(inbox.receive(&socket, false).unwrap(), 0);
        // More than it asks for at first, so it takes two turns.
        for _ in 0..=FEW {
            sender.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        }
        assert_eq!(inbox.receive(&socket, true).unwrap(), FEW);
        assert!(inbox.was_full());
        assert_eq!(inbox.receive(&socket, false).unwrap(), 1);
        assert!(!inbox.was_full());
    }

    /// Goal: cutting ends when it fails for several peers in a row, and not for one that repeats.
    #[test]
    fn cutting_ends_after_several_peers() {
        let mut outbox = Outbox::new();
        let peer = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        (0..100).for_each(|_| outbox.note_uncut(peer(1)));
        (2..UNCUT as u16).for_each(|port| outbox.note_uncut(peer(port)));
        assert!(outbox.cuts);
        outbox.note_uncut(peer(99));
        assert!(!outbox.cuts);
    }
}
