//! A call that a thread reads and writes, waiting where it must.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::block::Slice;
use crate::engine::{CallId, Info};
use crate::net::Outbox;
use crate::shard::{Shard, State, Waiter};
use crate::{Error, Result, code};

/// A call, at the server or at the client.
///
/// A call that is dropped before it ended is aborted. A server's call has no deadline of its own:
/// the engine ends it when the client is silent or too slow.
pub struct Call {
    shard: Arc<Shard>,
    id: CallId,
    info: Info,
    waiter: Arc<Waiter>,
    outbox: Outbox,
    /// Bytes that arrived and were not read.
    buffer: Vec<u8>,
    at: usize,
    done: bool,
    ended: bool,
    deadline: Option<Instant>,
}

impl Call {
    /// The call of a thread. `buffer` is what arrived already, and `done` says whether that is all.
    pub(crate) fn new(
        shard: &Arc<Shard>,
        state: &mut State,
        id: CallId,
        info: Info,
        (buffer, done): (Vec<u8>, bool),
        outbox: Outbox,
    ) -> Call {
        let waiter = Shard::wait_for(state, id);
        Call {
            shard: Arc::clone(shard),
            id,
            info,
            waiter,
            outbox,
            buffer,
            at: 0,
            done,
            ended: false,
            deadline: None,
        }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Sets the moment after which waiting fails.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Bytes that were written and that the peer has not acknowledged. A peer acknowledges only a
    /// limited number of bytes that its program has not read. 0 if the call has ended.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.shard.lock().engine.unacknowledged(self.id)
    }

    /// Sets how long a server's call may wait for its client in all, and forgets what it waited so
    /// far. Each 4 KiB that arrive, or are acknowledged, give a second back.
    ///
    /// The default is made for strangers. A restore by an administrator may take its bytes from a
    /// slow source. A client that answers no pings is still given up.
    pub fn set_patience(&mut self, time: Duration) {
        let shard = Arc::clone(&self.shard);
        let mut state = shard.lock();
        state.engine.set_patience(self.id, time);
        shard.settle(state, &mut self.outbox);
    }

    fn error(&self) -> Error {
        match self.waiter.failed() {
            Some(code::CALL_DEAD) => Error::Dead,
            Some(code) => Error::Aborted { code },
            None => Error::Gone,
        }
    }

    /// Waits until more bytes are there. Returns `false` if none follow.
    fn fill(&mut self) -> Result<bool> {
        let shard = Arc::clone(&self.shard);
        while self.at == self.buffer.len() && !self.done {
            let mut state = shard.lock();
            let read = state.engine.take(self.id).map_err(|_| self.error())?;
            (self.buffer, self.at, self.done) = (read.bytes, 0, read.done);
            if self.buffer.is_empty() && !self.done {
                if self.waiter.failed().is_some() {
                    return Err(self.error());
                }
                if !shard.wait(&mut state, &self.waiter, self.deadline) {
                    return Err(Error::Deadline);
                }
            } else {
                // The sender may wait for the room.
                shard.settle(state, &mut self.outbox);
            }
        }
        Ok(self.at < self.buffer.len())
    }

    /// The next bytes, as many as have arrived. Empty at the end.
    ///
    /// # Errors
    /// [`Error::Aborted`], [`Error::Dead`], [`Error::Deadline`], [`Error::Gone`].
    pub fn read(&mut self) -> Result<Vec<u8>> {
        self.fill()?;
        let bytes =
            if self.at == 0 { std::mem::take(&mut self.buffer) } else { self.buffer.split_off(self.at) };
        (self.buffer, self.at) = (Vec::new(), 0);
        Ok(bytes)
    }

    /// Replaces the contents of a buffer by the next bytes. Waits for `least` of them, or until a
    /// moment. Then the buffer gets all that are there. It stays empty at the end of the stream.
    ///
    /// A thread that reads a stream so wakes up rarely. The call uses the memory of the buffer for
    /// what arrives next. The deadline of [`Call::set_deadline`] does not count here.
    ///
    /// # Errors
    /// Those of [`Call::read`]. [`Error::Deadline`] says that nothing arrived.
    pub fn read_into(&mut self, bytes: &mut Vec<u8>, least: usize, until: Instant) -> Result<()> {
        bytes.clear();
        if self.at < self.buffer.len() || self.done {
            bytes.extend_from_slice(&self.buffer[self.at..]);
            (self.buffer, self.at) = (Vec::new(), 0);
            return Ok(());
        }
        let shard = Arc::clone(&self.shard);
        let mut state = shard.lock();
        while !state.engine.want(shard.now(), self.id, least).map_err(|_| self.error())? {
            if self.waiter.failed().is_some() {
                return Err(self.error());
            }
            if !shard.wait(&mut state, &self.waiter, Some(until)) {
                break;
            }
        }
        let read = state.engine.take_into(self.id, std::mem::take(bytes)).map_err(|_| self.error())?;
        (*bytes, self.done) = (read.bytes, read.done);
        let late = bytes.is_empty() && !self.done;
        // The sender may wait for the room.
        shard.settle(state, &mut self.outbox);
        if late { Err(Error::Deadline) } else { Ok(()) }
    }

    /// Fills a buffer with the next bytes.
    ///
    /// # Errors
    /// Those of [`Call::read`], and [`Error::Short`] if the bytes end before.
    pub fn read_exact(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            if !self.fill()? {
                return Err(Error::Short { missing: bytes.len() - filled });
            }
            let n = (self.buffer.len() - self.at).min(bytes.len() - filled);
            bytes[filled..filled + n].copy_from_slice(&self.buffer[self.at..self.at + n]);
            (self.at, filled) = (self.at + n, filled + n);
        }
        Ok(())
    }

    /// All bytes up to the end, `limit` at most.
    ///
    /// # Errors
    /// Those of [`Call::read`], and [`Error::TooLong`].
    pub fn read_all(&mut self, limit: usize) -> Result<Vec<u8>> {
        let mut all = self.read()?;
        loop {
            if all.len() > limit {
                return Err(Error::TooLong { length: all.len(), limit });
            }
            let more = self.read()?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    /// Says that a long stream will be written. A write that waits then does so until half of what
    /// may be under way has left: it costs fewer wake-ups, and holds the thread for longer.
    pub fn will_stream(&mut self) {
        self.shard.lock().engine.will_stream(self.id);
    }

    /// Sends bytes. Waits while too many bytes are under way.
    ///
    /// # Errors
    /// Those of [`Call::read`].
    pub fn write(&mut self, part: impl Into<Slice>) -> Result<()> {
        self.push(vec![part.into()], false)
    }

    /// Sends bytes in parts. It waits as [`Call::write`] does, but once for all of them.
    ///
    /// # Errors
    /// Those of [`Call::read`].
    pub fn write_parts(&mut self, parts: Vec<Slice>) -> Result<()> {
        self.push(parts, false)
    }

    /// Says that no more bytes follow: the request or the reply is complete.
    ///
    /// # Errors
    /// [`Error::Gone`] and what [`Call::read`] has.
    pub fn write_last(&mut self, part: impl Into<Slice>) -> Result<()> {
        self.push(vec![part.into()], true)
    }

    fn push(&mut self, parts: Vec<Slice>, last: bool) -> Result<()> {
        let shard = Arc::clone(&self.shard);
        let mut state = shard.lock();
        let mut room = state.engine.send(self.id, parts, last).map_err(|_| self.error())?;
        shard.settle(state, &mut self.outbox);
        while !room && !last {
            let mut state = shard.lock();
            room = state.engine.send(self.id, [], false).map_err(|_| self.error())?;
            if !room && !shard.wait(&mut state, &self.waiter, self.deadline) {
                return Err(Error::Deadline);
            }
        }
        Ok(())
    }

    /// Ends the call. What was written still leaves. `last`: no more follows, which was not said
    /// before. Returns the means to send.
    pub(crate) fn finish(mut self, last: bool) -> Outbox {
        self.ended = true;
        let shard = Arc::clone(&self.shard);
        let mut state = shard.lock();
        Shard::forget(&mut state, self.id);
        if last {
            // If the client is gone, nothing is left to do.
            let _ = state.engine.send(self.id, [], true);
        }
        state.engine.finish(self.id);
        shard.settle(state, &mut self.outbox);
        std::mem::take(&mut self.outbox)
    }

    /// Ends the call with a code for the peer.
    pub fn abort(mut self, code: i32) {
        self.end(code);
    }

    /// [`Call::abort`], which returns the means to send.
    pub(crate) fn fail(mut self, code: i32) -> Outbox {
        self.end(code);
        std::mem::take(&mut self.outbox)
    }

    fn end(&mut self, code: i32) {
        self.ended = true;
        let shard = Arc::clone(&self.shard);
        let mut state = shard.lock();
        Shard::forget(&mut state, self.id);
        state.engine.abort(self.id, code);
        shard.settle(state, &mut self.outbox);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.end(code::USER_ABORT);
        }
    }
}
