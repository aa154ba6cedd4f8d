//! Calls of our own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::engine::ConnectionRef;
use crate::net::Outbox;
use crate::shard::Shard;
use crate::{Error, Result};

/// The most bytes of a reply that is returned whole.
const REPLY: usize = 16 << 20;

/// A connection to a service. It carries four calls at a time; others wait.
pub struct Connection {
    shard: Arc<Shard>,
    id: ConnectionRef,
}

impl Connection {
    pub(super) fn new(shard: Arc<Shard>, id: ConnectionRef) -> Connection {
        Connection { shard, id }
    }

    /// Starts a call, whose request and reply the caller writes and reads.
    ///
    /// # Errors
    /// [`Error::Deadline`] if no channel becomes free in time, [`Error::Gone`].
    pub fn open(&self, time: Duration) -> Result<Call> {
        self.open_until(Instant::now() + time)
    }

    fn open_until(&self, deadline: Instant) -> Result<Call> {
        let mut state = self.shard.lock();
        let id = loop {
            if let Some(id) = state.engine.start(self.shard.now(), self.id)? {
                break id;
            }
            if !self.shard.wait_free(&mut state, Some(deadline)) {
                return Err(Error::Deadline);
            }
        };
        let info = state.engine.info(id).ok_or(Error::Gone)?;
        let mut call = Call::new(&self.shard, &mut state, id, info, (Vec::new(), false), Outbox::new());
        call.set_deadline(Some(deadline));
        Ok(call)
    }

    /// Makes a call and returns the whole reply, of 16 MiB at most.
    ///
    /// # Errors
    /// [`Error::Aborted`] with the server's code, [`Error::Dead`], [`Error::Deadline`],
    /// [`Error::TooLong`].
    pub fn call(&self, request: Vec<u8>, time: Duration) -> Result<Vec<u8>> {
        self.call_up_to(REPLY, request, time)
    }

    /// [`Connection::call`] with another limit for the bytes of the reply.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub fn call_up_to(&self, limit: usize, request: Vec<u8>, time: Duration) -> Result<Vec<u8>> {
        let mut call = self.open(time)?;
        call.write_last(request)?;
        finish(call, limit)
    }
}

fn finish(mut call: Call, limit: usize) -> Result<Vec<u8>> {
    let reply = call.read_all(limit)?;
    call.finish(false);
    Ok(reply)
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.shard.lock();
        state.engine.close(self.id);
        self.shard.settle(state, &mut Outbox::new());
    }
}

/// Sends one request over many connections at the same time, and waits for all replies.
///
/// A peer that does not answer delays no other. A connection without a free channel does, because
/// its call begins first. All calls have one deadline, after `time`. OpenAFS: `multi_Rx`.
pub fn call_all<'a>(
    connections: impl IntoIterator<Item = &'a Connection>,
    request: &[u8],
    time: Duration,
) -> Vec<Result<Vec<u8>>> {
    let deadline = Instant::now() + time;
    let begin = |connection: &Connection| {
        let mut call = connection.open_until(deadline)?;
        call.write_last(request.to_vec())?;
        Ok(call)
    };
    let calls: Vec<Result<Call>> = connections.into_iter().map(begin).collect();
    calls.into_iter().map(|call| call.and_then(|call| finish(call, REPLY))).collect()
}
