//! Shares: how much of the engine one host can take.
//!
//! # Theory
//! A source address in a datagram proves nothing: every host can write it. So there are two classes
//! of connections.
//!
//! * A **stranger** has proved nothing. The sender of its packets may not even get the answers.
//! * A connection is **proven** when its peer has returned a number that only the receiver of our
//!   packets knows: the serial number that an acknowledgement echoes, or the nonce of a challenge.
//!
//! A proven connection leaves the class of strangers when its host's share has room for what it
//! holds.
//!
//! The class belongs to the connection and not to the address. Else a forger could use what the
//! owner of the address has proved.
//!
//! Strangers have a quarter of everything, and half of the connections. Among them, the oldest
//! makes room for the newest. So forgers push each other out, and a real client needs only one
//! round trip to leave their class. Nothing that strangers do takes anything from proven
//! connections, not even from those of the address that they pretend to have.
//!
//! A host is an IPv4 address. Of the part of the proven connections, a host has at most its share,
//! and of bytes at most as much as is still free. So the last byte is never gone: however many
//! hosts are greedy, one that has nothing finds something.
//!
//! | resource | share of a host | when it is used up |
//! |---|---|---|
//! | connections | `connections_per_host` | its oldest stranger goes, else the new one is refused |
//! | bytes of requests | `bytes_per_host`, and what is free | packets are dropped, and sent again |
//! | bytes of replies | `replies_per_host`, and what is free | its next calls wait |
//! | calls that run or wait for a worker | `calls_per_host` | its next calls wait |
//! | workers | a quarter, in the endpoint's pool | its calls wait for its own |
//!
//! A request counts with the memory that its call takes, as a packet without bytes begins one. A
//! reply counts with the whole blocks that it keeps in memory.
//!
//! A host without any reply in memory may always start one call. So the bytes of replies have no
//! hard limit, but each host adds one reply at most. The endpoint starts few calls at a time, and
//! counts their replies before the next.
//!
//! # Absent
//! Each socket of an endpoint has an engine. The limits in all are divided among them. A host whose
//! packets arrive at several sockets, from several ports, has its share at each.
//!
//! Hosts behind one address are one host. Networks of hosts are not grouped.

use std::collections::VecDeque;

use super::connection::Connection;
use super::taken::Taken;
use super::{CallId, Config, ConnectionRef, Engine};

/// Strangers have one part in so many.
const PARTS: usize = 4;
/// The most connections that are looked at to make room for one.
const CANDIDATES: usize = 32;
/// How many calls that wait for their host's share are tried when some of it becomes free.
const CHANCES: usize = 8;

/// The class of connections that proved nothing, and of others.
const STRANGER: usize = 0;
const PROVEN: usize = 1;

/// What the connections of one class of a host take.
#[derive(Debug, Default)]
pub(super) struct Use {
    pub(super) taken: Taken,
    /// Channels with calls that wait for the share.
    waiting: VecDeque<(ConnectionRef, u8)>,
}

/// What is known of one address.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) uses: [Use; 2],
    /// Its strangers in the order of their age. Some are gone already.
    strangers: VecDeque<ConnectionRef>,
}

/// The class of a connection.
fn class(connection: &Connection) -> usize {
    if connection.member { PROVEN } else { STRANGER }
}

/// The part of a limit that a class has.
fn part(limit: usize, class: usize) -> usize {
    if class == STRANGER { (limit / PARTS).max(1) } else { limit }
}

/// The part of a total that a class has. The two parts are the whole.
fn total(limit: usize, class: usize) -> usize {
    if class == STRANGER { limit / PARTS } else { limit - limit / PARTS }
}

/// Where the engine keeps what is shared.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// What strangers take, and proven connections.
    pub(super) totals: [Taken; 2],
    /// Strangers, and proven connections, in the order of their age. Some are gone already.
    ages: [VecDeque<ConnectionRef>; 2],
    /// Channels whose call can start.
    starts: [VecDeque<(ConnectionRef, u8)>; 2],
}

impl Engine {
    /// Notes what a connection takes now.
    pub(super) fn account(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let taken = connection.measure();
        let old = std::mem::replace(&mut connection.taken, taken);
        let (host, class) = (connection.host, class(connection));
        let busy = !connection.is_idle();
        self.list_busy(slot, busy);
        self.charge(host, class, &old, &taken);
    }

    fn charge(&mut self, host: u32, class: usize, old: &Taken, new: &Taken) {
        if old == new {
            return;
        }
        self.shared.totals[class].change(old, new);
        let part = &mut self.hosts.get_mut(host).uses[class];
        part.taken.change(old, new);
        if new.started < old.started || new.replies < old.replies {
            let chances = part.waiting.len().min(CHANCES);
            self.shared.starts[class].extend(part.waiting.drain(..chances));
        }
    }

    /// Counts a connection that was put into a slot.
    pub(super) fn enter(&mut self, slot: u32) {
        let reference = self.reference(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        connection.taken = connection.measure();
        let (host, class, taken) = (connection.host, class(connection), connection.taken);
        let client = connection.client;
        self.charge(host, class, &Taken::default(), &taken);
        if client {
            return;
        }
        let slots = &self.slots;
        let exists = |id: &ConnectionRef| {
            let slot = &slots[id.slot as usize];
            slot.generation == id.generation && slot.connection.is_some()
        };
        let queue = |queue: &mut VecDeque<ConnectionRef>, count: usize| {
            queue.push_back(reference);
            // Places of connections that are gone take room, too.
            if queue.len() > 2 * count + 64 {
                queue.retain(exists);
            }
        };
        queue(&mut self.shared.ages[class], self.shared.totals[class].connections);
        if class == STRANGER {
            let host = self.hosts.get_mut(host);
            queue(&mut host.strangers, host.uses[STRANGER].taken.connections);
        }
    }

    /// Ends what [`Engine::enter`] began. A host without connections is forgotten.
    pub(super) fn leave(&mut self, connection: &Connection) {
        let (host, class) = (connection.host, class(connection));
        self.charge(host, class, &connection.taken, &Taken::default());
        let uses = &self.hosts.get_mut(host).uses;
        if uses.iter().all(|part| part.taken.connections == 0) {
            self.hosts.remove(host);
        }
    }

    /// The peer of a connection has shown that it receives what is sent to it.
    pub(super) fn prove(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        connection.proved = true;
        self.promote(slot);
        // Calls that are large, or that waited for the share of strangers.
        (0..crate::packet::CHANNELS).for_each(|at| self.offer(slot, at));
    }

    /// Counts a connection among the proven ones if it is, and if its host's share has room for
    /// what it holds. Else a host could fill the share of strangers again and again.
    pub(super) fn promote(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref() else { return };
        if connection.member || !connection.proved {
            return;
        }
        let (host, own, config) = (connection.host, connection.taken, &self.config);
        let (taken, all) = (&self.hosts.get(host).uses[PROVEN].taken, &self.shared.totals[PROVEN]);
        let fits = |own: usize, taken: usize, share: usize, limit: usize, all: usize| {
            own == 0 || taken + own <= share.min(total(limit, PROVEN).saturating_sub(all))
        };
        let requests = fits(own.requests, taken.requests, config.bytes_per_host, config.bytes, all.requests);
        let replies = fits(own.replies, taken.replies, config.replies_per_host, config.replies, all.replies);
        if !requests
            || !(replies || taken.replies == 0)
            || taken.started + own.started > config.calls_per_host
        {
            return;
        }
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        connection.member = true;
        connection.channels.iter_mut().for_each(|channel| channel.offered = false);
        self.charge(host, STRANGER, &own, &Taken::default());
        self.enter(slot);
        (0..crate::packet::CHANNELS).for_each(|at| self.offer(slot, at));
    }

    /// Whether another connection of a host may exist. Older strangers make room for it.
    pub(super) fn admit(&mut self, host: Option<u32>) -> bool {
        let Config { connections, connections_per_host: share, .. } = self.config;
        if let Some(number) = host {
            let [strangers, proven] =
                self.hosts.get(number).uses.each_ref().map(|part| part.taken.connections);
            let full = strangers >= part(share, STRANGER) || strangers + proven >= share;
            if full && !self.evict(Some(number), None, false) {
                return false;
            }
        }
        if self.shared.totals[STRANGER].connections >= (connections / 2).max(1) {
            return self.evict(None, None, false);
        }
        self.connections() < connections || self.evict(None, None, false) || self.evict_idle()
    }

    /// Removes the oldest stranger, of a host or of all, whose calls the program doesn't have.
    ///
    /// `holding` asks for one that holds bytes. The connection `keep` stays.
    fn evict(&mut self, host: Option<u32>, keep: Option<u32>, holding: bool) -> bool {
        for _ in 0..CANDIDATES {
            let queue = match host {
                Some(host) => &mut self.hosts.get_mut(host).strangers,
                None => &mut self.shared.ages[STRANGER],
            };
            let Some(id) = queue.pop_front() else { return false };
            let Some(connection) = self.connection(id) else { continue };
            if connection.member || host.is_some_and(|host| host != connection.host) {
                continue;
            }
            let taken = connection.taken;
            let empty = taken.requests + taken.replies == 0;
            if taken.started == 0 && keep != Some(id.slot) && !(holding && empty) {
                self.remove(id.slot);
                self.counts.evicted += 1;
                return true;
            }
            match host {
                Some(host) => self.hosts.get_mut(host).strangers.push_back(id),
                None => self.shared.ages[STRANGER].push_back(id),
            }
        }
        false
    }

    /// Removes the oldest proven connection without a call.
    fn evict_idle(&mut self) -> bool {
        for _ in 0..CANDIDATES {
            let Some(id) = self.shared.ages[PROVEN].pop_front() else { return false };
            let Some(connection) = self.connection(id).filter(|connection| connection.member) else {
                continue;
            };
            if connection.is_idle() {
                self.remove(id.slot);
                self.counts.evicted += 1;
                return true;
            }
            self.shared.ages[PROVEN].push_back(id);
        }
        false
    }

    /// Whether a connection may hold more bytes of requests. Older strangers make room for others.
    pub(super) fn may_hold(&mut self, slot: u32, more: usize) -> bool {
        let connection = self.slots[slot as usize].connection.as_deref().expect("the caller has it");
        let (host, class) = (connection.host, class(connection));
        let share = part(self.config.bytes_per_host, class);
        let all = total(self.config.bytes, class);
        if class == PROVEN {
            let free = all.saturating_sub(self.shared.totals[class].requests);
            return self.hosts.get(host).uses[class].taken.requests + more <= share.min(free);
        }
        while self.hosts.get(host).uses[class].taken.requests + more > share {
            if !self.evict(Some(host), Some(slot), true) {
                return false;
            }
        }
        while self.shared.totals[class].requests + more > all {
            if !self.evict(None, Some(slot), true) {
                return false;
            }
        }
        true
    }

    /// Makes older strangers give way to what a stranger holds.
    pub(super) fn make_room(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref() else { return };
        if class(connection) == PROVEN {
            return;
        }
        let (host, config) = (connection.host, &self.config);
        let exceeds = |taken: &Taken, requests: usize, replies: usize| {
            taken.requests > requests || taken.replies > replies
        };
        let share = (part(config.bytes_per_host, STRANGER), part(config.replies_per_host, STRANGER));
        let all = (total(config.bytes, STRANGER), total(config.replies, STRANGER));
        while exceeds(&self.hosts.get(host).uses[STRANGER].taken, share.0, share.1)
            && self.evict(Some(host), Some(slot), true)
        {}
        while exceeds(&self.shared.totals[STRANGER], all.0, all.1) && self.evict(None, Some(slot), true) {}
    }

    /// Notes that a channel has a call that may be able to start.
    pub(super) fn offer(&mut self, slot: u32, at: usize) {
        let reference = self.reference(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let (class, can) = (class(connection), connection.can_start(at));
        let channel = &mut connection.channels[at];
        if can && !channel.offered {
            channel.offered = true;
            self.shared.starts[class].push_back((reference, at as u8));
        }
    }

    /// Whether the share of a host has room for another call.
    fn may_start(&self, host: u32, class: usize) -> bool {
        let taken = &self.hosts.get(host).uses[class].taken;
        let free = total(self.config.replies, class).saturating_sub(self.shared.totals[class].replies);
        let replies = part(self.config.replies_per_host, class).min(free);
        let first = taken.started == 0 && taken.replies == 0;
        taken.started < part(self.config.calls_per_host, class) && (taken.replies < replies || first)
    }

    /// The next call that starts, proven connections first.
    pub(super) fn next_start(&mut self) -> Option<CallId> {
        loop {
            let next = self.shared.starts[PROVEN].pop_front();
            let (id, at) = next.or_else(|| self.shared.starts[STRANGER].pop_front())?;
            let Some(connection) = self.connection(id) else { continue };
            let (host, class) = (connection.host, class(connection));
            let can = connection.can_start(usize::from(at));
            connection.channels[usize::from(at)].offered = false;
            if !can {
                continue;
            }
            if !self.may_start(host, class) {
                self.wait_for_share(host, class, id, at);
                continue;
            }
            let connection = self.connection(id).expect("it was found");
            let number = connection.begin(usize::from(at));
            self.account(id.slot);
            return Some(CallId { connection: id, channel: at, number });
        }
    }

    fn wait_for_share(&mut self, host: u32, class: usize, id: ConnectionRef, at: u8) {
        let connection = self.connection(id).expect("the caller has it");
        connection.channels[usize::from(at)].offered = true;
        let slots = &self.slots;
        let part = &mut self.hosts.get_mut(host).uses[class];
        part.waiting.push_back((id, at));
        // Connections that are gone, or have another class or host now, left their places.
        if part.waiting.len() > crate::packet::CHANNELS * part.taken.connections + 64 {
            part.waiting.retain(|(id, _)| {
                let slot = &slots[id.slot as usize];
                let connection = slot.connection.as_deref().filter(|_| slot.generation == id.generation);
                connection.is_some_and(|own| own.host == host && self::class(own) == class)
            });
        }
    }

    /// Moves a connection to another host, where it is a stranger.
    pub(super) fn change_host(&mut self, slot: u32, host: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let (old, old_class, taken) = (connection.host, class(connection), connection.taken);
        (connection.host, connection.proved, connection.member) = (host, false, false);
        connection.channels.iter_mut().for_each(|channel| channel.offered = false);
        self.charge(old, old_class, &taken, &Taken::default());
        let empty = self.hosts.get(old).uses.iter().all(|part| part.taken.connections == 0);
        if empty && old != host {
            self.hosts.remove(old);
        }
        self.enter(slot);
        (0..crate::packet::CHANNELS).for_each(|at| self.offer(slot, at));
        self.make_room(slot);
    }
}
