//! A device that records all writes, for the crash test.

use std::sync::Arc;

use observe::lock::Mutex;

use crate::wrapper::Wrapper;
use crate::{Device, Op, Result, check_range};

/// An operation on a [`Recording`] device, in the order of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write.
    Write {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes written.
        bytes: Arc<[u8]>,
    },
    /// A trim.
    Trim {
        /// Offset of the first byte.
        offset: u64,
        /// Bytes in the range.
        len: u64,
    },
    /// A successful flush: the writes before this event are durable.
    Flush,
}

/// A device that passes all operations on, and keeps a log of writes, trims and flushes.
///
/// A flush is logged after its success, at the position in the log where it began. A write that
/// another thread made in the meantime comes after it, and is not durable.
pub struct Recording {
    inner: Arc<dyn Device>,
    log: Mutex<Vec<Event>>,
}

impl Recording {
    /// Records the operations on `inner` from now on.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, log: Mutex::default() }
    }

    /// A copy of the log so far.
    pub fn events(&self) -> Vec<Event> {
        self.log.lock().clone()
    }

    /// Takes the log, and leaves an empty one.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.log.lock())
    }
}

impl Wrapper for Recording {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(self, Op::Write, offset, buf.len() as u64)?;
        // Logged first: a write that fails half way may have changed the medium.
        self.log.lock().push(Event::Write { offset, bytes: buf.into() });
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        let place = self.log.lock().len();
        self.inner.flush()?;
        let mut log = self.log.lock();
        let place = place.min(log.len());
        log.insert(place, Event::Flush);
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.log.lock().push(Event::Trim { offset, len });
        self.inner.trim(offset, len)
    }
}
