//! A device that remembers, for the crash test, everything that was written to it.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Device, Op, Result, check_range};

/// What happened to a [`Recording`] device, in the order in which it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// A range was trimmed.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes in the range.
        len: u64,
    },
    /// A flush succeeded: the writes that are before this event are durable.
    Flush,
}

/// A device that passes everything through and keeps a log of writes, trims and flushes.
///
/// A flush is logged once it has succeeded, at the place in the log where it was asked: a write that another
/// thread made in the meantime comes after it, and is not promised.
pub struct Recording {
    inner: Arc<dyn Device>,
    log: Mutex<Vec<Event>>,
}

impl Recording {
    /// Records what happens to `inner` from now on.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, log: Mutex::default() }
    }

    /// The log so far.
    pub fn events(&self) -> Vec<Event> {
        self.log.lock().clone()
    }

    /// Takes the log, leaving an empty one.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.log.lock())
    }
}

impl Device for Recording {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(self, Op::Write, offset, buf.len() as u64)?;
        // Logged before it is done: a write that failed half way may have changed the medium.
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

    fn can_trim(&self) -> bool {
        self.inner.can_trim()
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn is_not_at(&self, path: &Path) -> bool {
        self.inner.is_not_at(path)
    }

    fn give_way(&self) {
        self.inner.give_way();
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn size_now(&self) -> u64 {
        self.inner.size_now()
    }

    fn grow(&self) {
        self.inner.grow();
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn physical_sector(&self) -> u32 {
        self.inner.physical_sector()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}
