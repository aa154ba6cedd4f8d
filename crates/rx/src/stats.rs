//! What an endpoint counts.

use observe::Counter;

use crate::engine::Counts;

/// Counters of all sockets of an endpoint, since it was bound.
#[derive(Debug, Default)]
pub struct Stats {
    /// Packets that arrived.
    pub packets_received: Counter,
    /// Packets that were sent.
    pub packets_sent: Counter,
    /// Data packets that were sent again.
    pub packets_resent: Counter,
    /// Data packets that arrived twice.
    pub packets_duplicate: Counter,
    /// Datagrams that are no packets.
    pub packets_bogus: Counter,
    /// Pings to peers that were silent.
    pub pings_sent: Counter,
    /// Calls of clients that were started.
    pub calls: Counter,
    /// Bytes of data that arrived.
    pub bytes_received: Counter,
    /// Bytes of data that were sent, repetitions included.
    pub bytes_sent: Counter,
    /// Packets that a security class refused.
    pub refused_security: Counter,
    /// Responses to challenges that proved nothing.
    pub refused_response: Counter,
    /// Connections to services or classes that do not exist.
    pub refused_service: Counter,
    /// Connections and packets that a limit refused.
    pub refused_limit: Counter,
    /// Connections that made room for others.
    pub evicted: Counter,
    /// Datagrams that the system refused to send.
    pub send_failures: Counter,
    /// Questions of `rxdebug` that came too fast.
    pub refused_questions: Counter,
}

impl Stats {
    /// Adds what an engine counted since the last time.
    pub(crate) fn publish(&self, now: &Counts, last: &Counts) {
        let sum = |all: &[u32]| all.iter().fold(0u32, |sum, n| sum.wrapping_add(*n));
        let (debug, old) = (&now.debug, &last.debug);
        for (counter, now, last) in [
            (&self.packets_received, sum(&debug.read), sum(&old.read)),
            (&self.packets_sent, sum(&debug.sent), sum(&old.sent)),
            (&self.packets_resent, debug.resent, old.resent),
            (&self.packets_duplicate, debug.duplicates, old.duplicates),
            (&self.packets_bogus, debug.bogus, old.bogus),
            (&self.pings_sent, debug.pings, old.pings),
        ] {
            add(counter, u64::from(now.wrapping_sub(last)));
        }
        for (counter, now, last) in [
            (&self.calls, now.calls, last.calls),
            (&self.bytes_received, now.bytes[0], last.bytes[0]),
            (&self.bytes_sent, now.bytes[1], last.bytes[1]),
            (&self.refused_security, now.refused_security, last.refused_security),
            (&self.refused_response, now.refused_response, last.refused_response),
            (&self.refused_service, now.refused_service, last.refused_service),
            (&self.refused_limit, now.refused_limit, last.refused_limit),
            (&self.evicted, now.evicted, last.evicted),
        ] {
            add(counter, now - last);
        }
    }

    /// Adds datagrams that could not be sent.
    pub(crate) fn failed(&self, n: u64) {
        add(&self.send_failures, n);
    }

    /// Adds a question that got no answer.
    pub(crate) fn refused_question(&self) {
        add(&self.refused_questions, 1);
    }
}

fn add(counter: &Counter, n: u64) {
    if n > 0 {
        counter.add(n);
    }
}
