//! How much memory and time one request and its answer may take.
//!
//! # Theory
//! A short request can require a long answer: the datasets of a pool times the properties that it
//! names. So the code that builds an answer takes from a budget as the answer grows. It stops when
//! the budget is used up.
//!
//! Memory comes from shares. All requests of one user that does not own the daemon have one share
//! together, and all such users together have another. An answer returns its memory when it has
//! been sent. The text of a request takes from the same shares, until the request is answered. So
//! neither one request nor many at once, of one user or of many, hold more than the shares.
//!
//! The owner of the daemon has only a limit for each answer: what the client accepts (`client`).

use super::{Error, Reason, clipped};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most bytes of an answer to the owner. A pool of 100,000 datasets with all their properties needs
/// a fraction of it.
pub const ANSWER_MAX: u64 = 1 << 30;
/// How long one request of another user may run.
pub const TIME_OF_OTHERS: Duration = Duration::from_secs(60);
/// Upper limits of the two shares: of one other user, and of all of them. They apply to machines
/// with much memory.
const BYTES_OF_OTHERS: [u64; 2] = [256 << 20, 512 << 20];
/// The divisors of the machine's memory that give the two shares: of one other user, and of all of
/// them.
const PART_OF_MEMORY: [u64; 2] = [32, 16];
/// The least share of one user, however small the machine is.
const BYTES_LEAST: u64 = 8 << 20;

/// An amount of memory that several budgets take from.
#[derive(Debug)]
pub struct Share {
    left: AtomicU64,
}

impl Share {
    /// A share of `bytes` bytes.
    pub fn of(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes) })
    }

    /// The share of one user that does not own the daemon. `memory` is the machine's memory in
    /// bytes.
    pub fn of_user(memory: u64) -> Arc<Self> {
        Self::of((memory / PART_OF_MEMORY[0]).clamp(BYTES_LEAST, BYTES_OF_OTHERS[0]))
    }

    /// The share of all users together that do not own the daemon. `memory` is as in
    /// [`Share::of_user`].
    pub fn of_users(memory: u64) -> Arc<Self> {
        Self::of((memory / PART_OF_MEMORY[1]).clamp(2 * BYTES_LEAST, BYTES_OF_OTHERS[1]))
    }

    fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What one answer may take. Dropping it returns the memory that it took to its shares.
#[derive(Debug)]
pub struct Budget {
    shares: Vec<Arc<Share>>,
    taken: AtomicU64,
    until: Option<Instant>,
}

impl Budget {
    /// A budget that takes from each of `shares`, and ends at `until`.
    pub fn new(shares: Vec<Arc<Share>>, until: Option<Instant>) -> Arc<Self> {
        Arc::new(Self { shares, taken: AtomicU64::new(0), until })
    }

    /// A budget of `bytes` bytes without a time limit.
    pub fn of(bytes: u64) -> Arc<Self> {
        Self::new(vec![Share::of(bytes)], None)
    }

    /// The budget of an answer to the daemon's owner: [`ANSWER_MAX`] bytes, without a time limit.
    pub fn of_owner() -> Arc<Self> {
        Self::of(ANSWER_MAX)
    }

    /// When its time is over, if it has a limit.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Takes memory for a part of the answer. `about` is the subject of the error.
    ///
    /// # Errors
    /// * [`Reason::TooMuch`]: a share has fewer than `bytes` bytes left, or the time is over.
    ///   Nothing is taken then.
    pub fn take(&self, about: &str, bytes: u64) -> Result<(), Error> {
        let too_much = || Error::new(clipped(about), Reason::TooMuch);
        if self.until.is_some_and(|until| Instant::now() > until) {
            return Err(too_much());
        }
        for (n, share) in self.shares.iter().enumerate() {
            if !share.take(bytes) {
                self.shares[..n].iter().for_each(|share| share.give(bytes));
                return Err(too_much());
            }
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.shares.iter().for_each(|share| share.give(*self.taken.get_mut()));
    }
}

#[cfg(test)]
mod tests;
