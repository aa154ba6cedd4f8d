//! How often each host may ask, and how many aborts its packets can make this program send.
//!
//! # Theory
//! A program ends a call with one abort, which always leaves. Other aborts answer a packet: of a
//! call that was aborted, that began before this program, or that comes too late. A peer can send
//! such packets for ever, and can write another host's address on them. So each host has a rate of
//! these answers. An abort that is left out is no loss: the peer sends its packet again, and gets
//! the answer then.
//!
//! OpenAFS's file server counts by connection. After ten aborts, a connection gets one in three
//! seconds (`rxi_SendConnectionAbort`, `-abortthreshold`). But a peer can open new connections, so
//! here the host counts.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::Ipv4Addr;

use super::Time;

/// Accounts, which hosts share by a hash that they don't know.
const ACCOUNTS: usize = 1_024;

/// Aborts that answer packets of an address that has proved nothing: so many in a second, and so
/// many at once.
pub(super) const OF_STRANGERS: (u64, u64) = (10, 64);
/// The same for the connections of a host that have proved that it gets what is sent to it. A
/// client with many calls gets an abort for each at once when the program ends.
pub(super) const OF_PROVEN: (u64, u64) = (100, 1_000);

/// Questions of each host in a second.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// What hosts don't know.
    secret: u64,
    /// How many questions are left, in millionths, and when that was so.
    accounts: Vec<(u64, Time)>,
    rate: u64,
    burst: u64,
}

impl Limiter {
    /// So many in a second, and so many at once. `secret` decides which hosts share an account.
    pub(crate) fn new(secret: u64, rate: u64, burst: u64) -> Limiter {
        let accounts = vec![(burst * 1_000_000, Time(0)); ACCOUNTS];
        Limiter { secret, accounts, rate, burst }
    }

    /// Whether a host may ask now.
    pub(crate) fn allows(&mut self, now: Time, host: Ipv4Addr) -> bool {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let at = hasher.hash_one((self.secret, host)) as usize % ACCOUNTS;
        let (left, since) = &mut self.accounts[at];
        let earned = now.0.saturating_sub(since.0).saturating_mul(self.rate);
        (*left, *since) = (left.saturating_add(earned).min(self.burst * 1_000_000), now.max(*since));
        if *left < 1_000_000 {
            return false;
        }
        *left -= 1_000_000;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a host gets its burst, then its rate, whatever it asked before.
    #[test]
    fn a_host_has_a_rate() {
        let (mut limiter, host) = (Limiter::new(7, 10, 50), Ipv4Addr::new(10, 0, 0, 1));
        let mut asked = |time| (0..1_000).filter(|_| limiter.allows(Time(time), host)).count();
        assert_eq!(asked(1), 50);
        assert_eq!(asked(1_000_001), 10);
        assert_eq!(asked(500_000), 0);
        assert_eq!(asked(900_000_000), 50);
    }
}
