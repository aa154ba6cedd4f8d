//! What a connection, a host or all hosts take of an engine.

/// Amounts of everything that is shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) connections: usize,
    /// Bytes of requests.
    pub(super) requests: usize,
    /// Bytes of replies.
    pub(super) replies: usize,
    /// Calls that the program has, and not ended.
    pub(super) started: usize,
    pub(super) calls: usize,
}

impl Taken {
    /// Replaces one part of the amounts by another.
    pub(super) fn change(&mut self, old: &Taken, new: &Taken) {
        self.connections = self.connections - old.connections + new.connections;
        self.requests = self.requests - old.requests + new.requests;
        self.replies = self.replies - old.replies + new.replies;
        self.started = self.started - old.started + new.started;
        self.calls = self.calls - old.calls + new.calls;
    }
}
