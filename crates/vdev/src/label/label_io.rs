//! A device as its labels are read and written: injected faults may change the outcome.

use device::{Device, DeviceError, Op, Result};
use observe::work::{self, Wait, Waiting};
use ondisk::Guid;

use crate::inject::{self, On, Wrong};

/// A device, and its leaf if a pool has it open.
#[derive(Clone, Copy)]
pub(crate) struct LabelIo<'d> {
    device: &'d dyn Device,
    leaf: Option<Guid>,
    probing: bool,
}

impl<'d> LabelIo<'d> {
    /// A device without injected faults.
    pub(crate) fn new(device: &'d dyn Device) -> Self {
        LabelIo { device, leaf: None, probing: false }
    }

    /// The device of a leaf, with its injected faults.
    pub(crate) fn of(device: &'d dyn Device, leaf: Guid) -> Self {
        LabelIo { leaf: Some(leaf), ..LabelIo::new(device) }
    }

    /// The same, for a probe.
    pub(crate) fn probing(self) -> Self {
        LabelIo { probing: true, ..self }
    }

    /// Size of the device in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.device.size()
    }

    /// Reads from byte `at` of the label at `start`.
    pub(crate) fn read(&self, buf: &mut [u8], start: u64, at: u64) -> Result<()> {
        let _waiting = self.waits(Wait::Read);
        match self.strike(at, On::Read) {
            Some(Wrong::Error(code)) => Err(self.error(code, Op::Read, start + at, buf.len())),
            struck => self.device.read_at(buf, start + at).map(|()| {
                if let (Some(Wrong::Corrupt), Some(byte)) = (struck, buf.first_mut()) {
                    *byte ^= 1;
                }
            }),
        }
    }

    /// Makes all writes so far durable.
    pub(crate) fn flush(&self) -> Result<()> {
        let _waiting = self.waits(Wait::Flush);
        self.device.flush()
    }

    /// Writes to byte `at` of the label at `start`.
    pub(crate) fn write(&self, bytes: &[u8], start: u64, at: u64) -> Result<()> {
        let _waiting = self.waits(Wait::Write);
        match self.strike(at, On::Write) {
            Some(Wrong::Error(code)) => Err(self.error(code, Op::Write, start + at, bytes.len())),
            Some(Wrong::Noop) => Ok(()),
            _ => self.device.write_at(bytes, start + at),
        }
    }

    fn waits(&self, wait: Wait) -> Waiting {
        work::wait(wait, self.leaf.map_or(0, |leaf| leaf.0))
    }

    fn strike(&self, at: u64, on: On) -> Option<Wrong> {
        inject::strike_label(self.leaf?, at, on, self.probing)
    }

    fn error(&self, code: i32, op: Op, offset: u64, len: usize) -> DeviceError {
        inject::error(code, op, self.device.name(), offset, len as u64)
    }
}
