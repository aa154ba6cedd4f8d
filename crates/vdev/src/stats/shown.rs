//! I/O of devices as events.

use std::time::Duration;

use device::DeviceError;
use observe::event::{self, DevIo};
use ondisk::Guid;

use super::IoType;
use crate::hung::nanos;
use crate::request::Priority;

/// An I/O that a device has done.
pub(crate) struct Io<'a> {
    pub(crate) device: Guid,
    /// Its class and type. `None`: a flush.
    pub(crate) what: Option<(Priority, IoType)>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    pub(crate) failed: Option<&'a DeviceError>,
}

impl Io<'_> {
    /// Shows it to those who want to see it.
    pub(crate) fn show(&self) {
        /// The error of devices that did not say which.
        const EIO: u64 = 5;
        event::dev_io(|| DevIo {
            device: self.device.0,
            work: self.what.map_or(IoType::ALL.len(), |(_, io)| io as usize) as u64,
            class: self.what.map_or(Priority::ALL.len(), |(class, _)| class as usize) as u64,
            offset: self.offset,
            bytes: self.bytes,
            ns: nanos(self.took),
            errno: self.failed.map_or(0, |why| why.errno().map_or(EIO, |code| code.unsigned_abs().into())),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the words of events are the names of classes and types, at their numbers.
    #[test]
    fn words() {
        let classes: Vec<&str> = Priority::ALL.iter().map(|class| class.name()).chain(["none"]).collect();
        assert_eq!(classes, event::IO_CLASSES);
        let types: Vec<&str> = IoType::ALL.iter().map(|io| io.name()).chain(["flush"]).collect();
        assert_eq!(types, event::DEVICE_WORK);
        assert!(Priority::ALL.iter().enumerate().all(|(at, class)| *class as usize == at));
        assert!(IoType::ALL.iter().enumerate().all(|(at, io)| *io as usize == at));
    }
}
