//! A part of another device.

use std::sync::Arc;

use crate::wrapper::Wrapper;
use crate::{Device, DeviceError, Op, Result, check_range};

/// A contiguous part of another device, such as a partition in a disk image.
pub struct Region {
    inner: Arc<dyn Device>,
    start: u64,
    size: u64,
    name: String,
}

impl Region {
    /// The `size` bytes of `inner` from `start`, with the name `name`.
    ///
    /// # Errors
    /// * [`DeviceError::Range`]: the region passes the end of `inner`.
    pub fn new(inner: Arc<dyn Device>, start: u64, size: u64, name: &str) -> Result<Self> {
        check_range(&*inner, Op::Open, start, size)?;
        Ok(Self { inner, start, size, name: name.to_owned() })
    }

    fn named(&self, e: DeviceError) -> DeviceError {
        match e {
            DeviceError::Io { op, offset, len, source, .. } => DeviceError::Io {
                op,
                device: self.name.clone(),
                offset: offset.saturating_sub(self.start),
                len,
                source,
            },
            other => other,
        }
    }
}

impl Wrapper for Region {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(self, Op::Read, offset, buf.len() as u64)?;
        self.inner.read_at(buf, self.start + offset).map_err(|e| self.named(e))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(self, Op::Write, offset, buf.len() as u64)?;
        self.inner.write_at(buf, self.start + offset).map_err(|e| self.named(e))
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        check_range(self, Op::Write, offset, bufs.iter().map(|b| b.len() as u64).sum())?;
        self.inner.write_vectored_at(bufs, self.start + offset).map_err(|e| self.named(e))
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        check_range(self, Op::Trim, offset, len)?;
        self.inner.trim(self.start + offset, len).map_err(|e| self.named(e))
    }

    fn size(&self) -> u64 {
        self.size
    }

    /// A region does not grow with its device.
    fn size_now(&self) -> u64 {
        self.size
    }

    fn grow(&self) {}

    fn name(&self) -> &str {
        &self.name
    }
}
