//! Whether a server uses a partition, and how often one has crashed.
//!
//! # On disk
//! The property [`STATE`](super::STATE): `running CRASHES`, or `stopped CRASHES NONCE`. Each end in
//! order has another nonce.

const RUNNING: &str = "running";
const STOPPED: &str = "stopped";

/// The state of a partition, as a server leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    /// How often servers have crashed.
    pub(super) crashes: u32,
    /// The nonce of the last end. `None`: the last server crashed, or there was none.
    pub(super) nonce: Option<u64>,
    /// There was a server.
    pub(super) was_served: bool,
}

impl State {
    /// The state in a property.
    pub(super) fn parse(text: Option<&str>) -> Self {
        let mut words = text.unwrap_or_default().split(' ');
        let (word, count, nonce) = (words.next(), words.next(), words.next());
        let count: u32 = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        let nonce = nonce.filter(|_| word == Some(STOPPED));
        Self {
            crashes: count.wrapping_add(u32::from(word == Some(RUNNING))),
            nonce: nonce.and_then(|nonce| u64::from_str_radix(nonce, 16).ok()),
            was_served: text.is_some(),
        }
    }
}

/// The property while a server runs.
pub(super) fn running(crashes: u32) -> String {
    format!("{RUNNING} {crashes}")
}

/// The property after a server ended in order.
pub(super) fn stopped(crashes: u32, nonce: u64) -> String {
    format!("{STOPPED} {crashes} {nonce:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what one server leaves is what the next one reads; a crash counts.
    #[test]
    fn states() {
        let state = |text: &str| State::parse(Some(text));
        let ended = State { crashes: 3, nonce: Some(0xabc), was_served: true };
        assert_eq!(state(&stopped(3, 0xabc)), ended);
        assert_eq!(state(&running(3)), State { crashes: 4, nonce: None, was_served: true });
        assert_eq!(state("stopped 3"), State { nonce: None, ..ended });
        assert_eq!(state("running 3 abc"), State { crashes: 4, nonce: None, ..ended });
        assert_eq!(state("anything"), State { crashes: 0, nonce: None, was_served: true });
        assert_eq!(State::parse(None), State::default());
    }
}
