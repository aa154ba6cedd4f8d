//! What happens because time passes.

use super::connection::{Program, Proof};
use super::{Engine, Time};
use crate::code;
use crate::packet::{CHANNELS, Kind, Reason};

/// Repetitions to an address that never acknowledged anything.
const UNPROVED_TRIES: u32 = 3;

impl Engine {
    /// When [`Engine::tick`] has something to do. It may be early, and is never late.
    #[must_use]
    pub fn timer(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time) {
        while let Some(&(time, slot)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            let place = &mut self.slots[slot as usize];
            let Some(connection) = place.connection.as_deref_mut() else { continue };
            connection.scheduled = Time(u64::MAX);
            if connection.due(&self.config) <= now {
                self.due(now, slot);
            }
            self.schedule(slot);
        }
    }

    fn due(&mut self, now: Time, slot: u32) {
        for channel in 0..CHANNELS {
            self.due_call(now, slot, channel);
        }
        let config = &self.config;
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let silent = now.since(connection.used) >= config.idle;
        if let Proof::Pending { since, last, .. } = &mut connection.proof {
            if now.since(*since) >= config.dead {
                self.remove(slot);
                return;
            }
            if now.since(*last) >= config.challenge {
                *last = now;
                if let Some(challenge) = connection.session.challenge() {
                    self.queue_special(slot, Kind::Challenge, challenge);
                }
            }
        } else if silent && connection.is_idle() && !connection.open {
            self.remove(slot);
        } else if silent {
            // Calls have time-outs of their own.
            connection.used = now;
        }
    }

    fn due_call(&mut self, now: Time, slot: u32, channel: usize) {
        let config = &self.config;
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let (client, proved) = (connection.client, connection.proved);
        let Some(call) = connection.channels[channel].call.as_deref_mut() else { return };
        let peer = self.peers.get(connection.peer);
        call.watch(now, config, proved);
        let mut dirty = false;
        if call.sender.timer().is_some_and(|at| at <= now) {
            call.sender.timed_out(now, &peer.rtt);
            dirty = true;
        }
        if call.receiver.timer().is_some_and(|at| at <= now) {
            call.receiver.timed_out();
            dirty = true;
        }
        let needs_peer = call.needs_peer(client);
        let silent = now.since(call.heard);
        let in_vain = !client && !proved && call.sender.tries() > UNPROVED_TRIES;
        let ping = needs_peer && now.since(call.heard.max(call.pinged)) >= config.ping;
        if needs_peer && (silent >= config.dead || in_vain) {
            self.fail(slot, channel, code::CALL_DEAD);
            return;
        }
        if !client && call.receiver.lacks_first() && now.since(call.begun) >= config.first {
            call.begun = now;
            let number = call.number;
            if !self.lose(now, slot, channel, number) {
                self.touch(slot);
            }
            return;
        }
        let idle = call.is_incomplete(proved) && now.since(call.progress) >= config.idle_call;
        let slow = !client && call.patience.ends().is_some_and(|at| at <= now);
        if idle || slow {
            let number = call.number;
            self.fail(slot, channel, code::CALL_TIMEOUT);
            self.queue_abort(slot, channel, number, code::CALL_TIMEOUT);
            return;
        }
        if ping {
            call.pinged = now;
            self.acknowledge(slot, channel, Some(Reason::PING));
        }
        if dirty {
            self.touch(slot);
        }
    }

    /// Ends all calls: the program ends. Peers get an abort with [`code::RESTARTING`], and new
    /// calls are refused in the same way. What leaves is returned by [`Engine::transmit`].
    pub fn shut_down(&mut self) {
        self.closing = true;
        for slot in 0..self.slots.len() as u32 {
            for at in 0..CHANNELS {
                let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { break };
                // A reply that the program has given whole may still arrive.
                let call = connection.channels[at].call.as_deref();
                let Some(call) = call.filter(|call| call.program != Program::Done) else { continue };
                let number = call.number;
                connection.channels[at].aborted = Some((code::RESTARTING, 1));
                self.fail(slot, at, code::RESTARTING);
                self.queue_abort(slot, at, number, code::RESTARTING);
            }
        }
    }
}
