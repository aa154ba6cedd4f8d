//! How long a call may wait for its peer.
//!
//! # Theory
//! A peer that sends one byte now and then is not silent, and still it holds a call, its bytes and
//! a worker. So a call has an account of time. While the call waits for the peer, time is drawn
//! from it. Each byte that the peer sends or acknowledges pays some in. The call ends when nothing
//! is left.
//!
//! A client that has taken all of the reply so far owes nothing: its account is full again. Else
//! late acknowledgements of a slow program's small parts would add up.
//!
//! A program that is slow itself draws nothing: then the call does not wait for the peer.

use std::time::Duration;

use super::time::Time;

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// Bytes or acknowledgements of the peer.
    Owes,
    /// The program, which has not taken or sent everything.
    Waits,
    /// The program, which has all of the request, and whose reply so far has arrived.
    OwesNothing,
}

/// The account of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Microseconds that are left, as of `since`, and the most there can be.
    left: u64,
    most: u64,
    since: Time,
    waits: bool,
    /// Bytes that have paid already.
    moved: u64,
}

impl Patience {
    pub(super) fn new(now: Time, most: Duration) -> Patience {
        Patience { left: micros(most), most: micros(most), since: now, waits: false, moved: 0 }
    }

    /// Brings the account up to date. `moved` is how many bytes there were in all, `rate` how many
    /// pay for a second. From now on, `peer` says what the call waits for.
    pub(super) fn watch(&mut self, now: Time, moved: u64, peer: Peer, rate: u64) {
        if self.waits {
            self.left = self.left.saturating_sub(micros(now.since(self.since)));
        }
        let paid = match peer {
            Peer::OwesNothing => self.most,
            _ => moved.saturating_sub(self.moved).saturating_mul(1_000_000) / rate.max(1),
        };
        // What is used up stays so until the call is ended.
        if self.left > 0 {
            self.left = self.left.saturating_add(paid).min(self.most);
        }
        (self.moved, self.since, self.waits) = (moved, now, peer == Peer::Owes);
    }

    /// Gives the account another limit, and fills it.
    pub(super) fn refill(&mut self, most: Duration) {
        (self.most, self.left) = (micros(most), micros(most));
    }

    /// When nothing will be left, if the call waits for the peer.
    pub(super) fn ends(&self) -> Option<Time> {
        self.waits.then(|| self.since.after(Duration::from_micros(self.left)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
