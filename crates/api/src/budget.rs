//! How much memory and time one request and its answer may take.
//!
//! # Theory
//! A short request can ask for a long answer: the datasets of a pool times the properties that it
//! names. So whoever makes an answer takes from a budget as the answer grows, and stops when the
//! budget is used up. Memory comes from shares: all requests of one user that does not own the
//! daemon have one share together, and all such users have another. It goes back when the answer
//! was sent. The text of a request takes from the same shares, until the request was answered. So
//! neither one request nor many at once, of one user or of many, hold more than that.
//!
//! The owner of the daemon has a limit for each answer alone: what the client takes (`client`).

use super::{Error, Reason, clipped};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most bytes of an answer to the owner: several times what a pool of 100,000 datasets with all
/// their properties is.
pub const ANSWER_MAX: u64 = 1 << 30;
/// How long one request of another user may work.
pub const TIME_OF_OTHERS: Duration = Duration::from_secs(60);
/// Most bytes of all answers to one other user at a time, and to all of them, where the machine is
/// large.
const BYTES_OF_OTHERS: [u64; 2] = [256 << 20, 512 << 20];
/// The part of the machine's memory that answers to one other user, and to all of them, take at
/// most.
const PART_OF_MEMORY: [u64; 2] = [32, 16];
/// What one of them may take on a machine however small.
const BYTES_LEAST: u64 = 8 << 20;

/// Memory that several budgets take from.
#[derive(Debug)]
pub struct Share {
    left: AtomicU64,
}

impl Share {
    /// A share of so many bytes.
    pub fn of(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes) })
    }

    /// The share of one user that does not own the daemon, on a machine with so much memory.
    pub fn of_user(memory: u64) -> Arc<Self> {
        Self::of((memory / PART_OF_MEMORY[0]).clamp(BYTES_LEAST, BYTES_OF_OTHERS[0]))
    }

    /// The share of all such users together.
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

/// What one answer may take. What it took goes back when this is dropped.
#[derive(Debug)]
pub struct Budget {
    shares: Vec<Arc<Share>>,
    taken: AtomicU64,
    until: Option<Instant>,
}

impl Budget {
    /// A budget out of these shares, which ends at this moment.
    pub fn new(shares: Vec<Arc<Share>>, until: Option<Instant>) -> Arc<Self> {
        Arc::new(Self { shares, taken: AtomicU64::new(0), until })
    }

    /// A budget of so many bytes, for as long as it takes.
    pub fn of(bytes: u64) -> Arc<Self> {
        Self::new(vec![Share::of(bytes)], None)
    }

    /// The budget of an answer to the owner.
    pub fn of_owner() -> Arc<Self> {
        Self::of(ANSWER_MAX)
    }

    /// When its time is over, if it has an end.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Takes memory for a part of the answer.
    ///
    /// # Errors
    /// [`Reason::TooMuch`] if there is not so much left, or the time is over; `about` names what
    /// the answer is about.
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
