//! How often each host may ask.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::Ipv4Addr;

use super::Time;

/// Accounts, which hosts share by a hash that they don't know.
const ACCOUNTS: usize = 1_024;

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
