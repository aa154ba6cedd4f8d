//! Devices around another device.
//!
//! # Theory
//! A wrapper changes a few operations, and passes all others on. If each wrapper listed what it
//! passes on, a new operation of [`Device`] would end at the wrapper that forgot it. So a wrapper
//! implements [`Wrapper`], and gets [`Device`] from here.

use std::path::Path;

use crate::{Device, Result};

/// A device around an inner one: each operation goes to the inner device, unless the wrapper
/// replaces it.
///
/// The operations, their arguments and their errors are those of [`Device`].
pub trait Wrapper: Send + Sync {
    /// The device inside.
    fn inner(&self) -> &dyn Device;

    /// See [`Device::read_at`].
    ///
    /// # Errors
    /// Those of [`Device::read_at`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner().read_at(buf, offset)
    }

    /// See [`Device::write_at`].
    ///
    /// # Errors
    /// Those of [`Device::write_at`].
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner().write_at(buf, offset)
    }

    /// See [`Device::write_vectored_at`].
    ///
    /// By default each buffer is a write of this wrapper, so that no write passes it by.
    ///
    /// # Errors
    /// Those of [`Device::write_vectored_at`].
    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            Wrapper::write_at(self, buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// See [`Device::flush`].
    ///
    /// # Errors
    /// Those of [`Device::flush`].
    fn flush(&self) -> Result<()> {
        self.inner().flush()
    }

    /// See [`Device::trim`].
    ///
    /// # Errors
    /// Those of [`Device::trim`].
    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.inner().trim(offset, len)
    }

    /// See [`Device::can_trim`].
    fn can_trim(&self) -> bool {
        self.inner().can_trim()
    }

    /// See [`Device::is_gone`].
    fn is_gone(&self) -> bool {
        self.inner().is_gone()
    }

    /// See [`Device::nameless`].
    fn nameless(&self) -> Option<i32> {
        self.inner().nameless()
    }

    /// See [`Device::is_not_at`].
    fn is_not_at(&self, path: &Path) -> bool {
        self.inner().is_not_at(path)
    }

    /// See [`Device::give_way`].
    fn give_way(&self) {
        self.inner().give_way();
    }

    /// See [`Device::size`].
    fn size(&self) -> u64 {
        self.inner().size()
    }

    /// See [`Device::size_now`].
    fn size_now(&self) -> u64 {
        self.inner().size_now()
    }

    /// See [`Device::grow`].
    fn grow(&self) {
        self.inner().grow();
    }

    /// See [`Device::logical_sector`].
    fn logical_sector(&self) -> u32 {
        self.inner().logical_sector()
    }

    /// See [`Device::physical_sector`].
    fn physical_sector(&self) -> u32 {
        self.inner().physical_sector()
    }

    /// See [`Device::name`].
    fn name(&self) -> &str {
        self.inner().name()
    }
}

impl<W: Wrapper> Device for W {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        Wrapper::read_at(self, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        Wrapper::write_at(self, buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        Wrapper::write_vectored_at(self, bufs, offset)
    }

    fn flush(&self) -> Result<()> {
        Wrapper::flush(self)
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        Wrapper::trim(self, offset, len)
    }

    fn can_trim(&self) -> bool {
        Wrapper::can_trim(self)
    }

    fn is_gone(&self) -> bool {
        Wrapper::is_gone(self)
    }

    fn nameless(&self) -> Option<i32> {
        Wrapper::nameless(self)
    }

    fn is_not_at(&self, path: &Path) -> bool {
        Wrapper::is_not_at(self, path)
    }

    fn give_way(&self) {
        Wrapper::give_way(self);
    }

    fn size(&self) -> u64 {
        Wrapper::size(self)
    }

    fn size_now(&self) -> u64 {
        Wrapper::size_now(self)
    }

    fn grow(&self) {
        Wrapper::grow(self);
    }

    fn logical_sector(&self) -> u32 {
        Wrapper::logical_sector(self)
    }

    fn physical_sector(&self) -> u32 {
        Wrapper::physical_sector(self)
    }

    fn name(&self) -> &str {
        Wrapper::name(self)
    }
}

#[cfg(test)]
mod tests;
