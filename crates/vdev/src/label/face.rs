//! A device as its labels are read and written: what is asked of it may come to what somebody asked for.

use device::{Device, DeviceError, Op, Result};
use ondisk::Guid;

use crate::inject::{self, On, Wrong};

/// A device, and the leaf that it is if a pool has it open.
#[derive(Clone, Copy)]
pub(crate) struct Face<'d> {
    device: &'d dyn Device,
    leaf: Option<Guid>,
    probing: bool,
}

impl<'d> Face<'d> {
    /// One that no faults befall.
    pub(crate) fn new(device: &'d dyn Device) -> Self {
        Face { device, leaf: None, probing: false }
    }

    /// That of a leaf.
    pub(crate) fn of(device: &'d dyn Device, leaf: Guid) -> Self {
        Face { leaf: Some(leaf), ..Face::new(device) }
    }

    /// The same, to find out whether the device works.
    pub(crate) fn probing(self) -> Self {
        Face { probing: true, ..self }
    }

    /// Bytes of the device.
    pub(crate) fn size(&self) -> u64 {
        self.device.size()
    }

    /// Reads what begins `at` in the label at `start`.
    pub(crate) fn read(&self, buf: &mut [u8], start: u64, at: u64) -> Result<()> {
        match self.strike(at, On::Read) {
            Some(Wrong::Error(code)) => Err(self.error(code, Op::Read, start + at, buf.len())),
            struck => self.device.read_at(buf, start + at).map(|()| {
                if let (Some(Wrong::Corrupt), Some(byte)) = (struck, buf.first_mut()) {
                    *byte ^= 1;
                }
            }),
        }
    }

    /// Makes durable what was written.
    pub(crate) fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    /// Writes what begins `at` in the label at `start`.
    pub(crate) fn write(&self, bytes: &[u8], start: u64, at: u64) -> Result<()> {
        match self.strike(at, On::Write) {
            Some(Wrong::Error(code)) => Err(self.error(code, Op::Write, start + at, bytes.len())),
            Some(Wrong::Noop) => Ok(()),
            _ => self.device.write_at(bytes, start + at),
        }
    }

    fn strike(&self, at: u64, on: On) -> Option<Wrong> {
        inject::strike_label(self.leaf?, at, on, self.probing)
    }

    fn error(&self, code: i32, op: Op, offset: u64, len: usize) -> DeviceError {
        inject::error(code, op, self.device.name(), offset, len as u64)
    }
}
