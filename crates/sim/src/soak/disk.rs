//! Devices of a soak: they keep unflushed writes in memory, and have the faults that the test sets.
//!
//! # Theory
//! A killed process leaves all of its writes in its image files, in any order, as the system keeps
//! them. A disk that loses power does not. So a [`Disk`] keeps some writes in memory until it is
//! flushed. A killed process loses these.
//!
//! The [`Rack`] holds the [`Mood`] of each disk by name. A mood holds for each opening of the disk,
//! until it is changed. A pulled disk fails for all of its holders. When it is put back, it must be
//! opened anew.
//!
//! The racks of a life share their [`Power`]. When it fails, no later write reaches an image. The
//! process does not notice, so that a test can crash at any write without a process of its own.
//!
//! A disk that loses writes differs from a kill. A kill breaks no promise, as the writes were not
//! flushed. The disk reports writes and flushes as done that never reached it.
//!
//! # Absent
//! Flushing the image itself: the system survives the killed process.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::{Device, DeviceError, Layer, Op};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::crash::SplitMix;

/// How long a slow disk takes for each operation.
const LATENCY: Duration = Duration::from_millis(3);

/// How a disk behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mood {
    /// Without faults.
    #[default]
    Well,
    /// One in so many operations fails.
    Errors(u64),
    /// Each write fails for lack of space, as on a full host file system.
    Full,
    /// One in so many writes is lost, at any offset, but reported as done. No later read sees the
    /// data, even before a flush.
    Loses(u64),
    /// Each operation takes [`LATENCY`].
    Slow,
}

/// The power of a machine.
pub(super) struct Power {
    /// Number of writes before it fails.
    left: AtomicU64,
}

impl Default for Power {
    fn default() -> Power {
        Power { left: AtomicU64::new(u64::MAX) }
    }
}

impl Power {
    /// Lets the power fail after so many writes.
    pub(super) fn fail_after(&self, writes: u64) {
        self.left.store(writes, Relaxed);
    }

    fn is_off(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Counts a write. Returns whether it can still reach the disk.
    fn write(&self) -> bool {
        let one_less = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(1) };
        self.left.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }
}

/// The disks of a pool, by the names of their images.
#[derive(Default)]
pub(super) struct Rack {
    power: Arc<Power>,
    moods: Mutex<HashMap<String, Mood>>,
    open: Mutex<Vec<Weak<Disk>>>,
    dice: AtomicU64,
}

struct Disk {
    rack: Arc<Rack>,
    image_name: String,
    /// Every operation fails from now on.
    pulled: AtomicBool,
    /// The system reports the disk as gone.
    told: AtomicBool,
    inner: Mutex<Inner>,
    size: u64,
    sectors: (u32, u32),
    path: String,
}

struct Inner {
    /// `None` once the disk was pulled.
    image: Option<Arc<dyn Device>>,
    /// Writes since the last flush, in order.
    held: Vec<(u64, Box<[u8]>)>,
}

impl Rack {
    /// A rack with this power.
    pub(super) fn on(power: &Arc<Power>) -> Rack {
        Rack { power: Arc::clone(power), ..Rack::default() }
    }

    /// Whether the power has failed.
    pub(super) fn is_off(&self) -> bool {
        self.power.is_off()
    }

    /// A layer that wraps each opened image in a disk.
    pub(super) fn layer(self: &Arc<Self>) -> Layer {
        let rack = Arc::clone(self);
        Layer::new(move |image| rack.around(image))
    }

    /// A disk around an image.
    pub(super) fn around(self: &Arc<Self>, image: Arc<dyn Device>) -> Arc<dyn Device> {
        let path = image.name().to_owned();
        let disk = Arc::new(Disk {
            rack: Arc::clone(self),
            image_name: Path::new(&path)
                .file_name()
                .map_or(String::new(), |n| n.to_string_lossy().into_owned()),
            pulled: AtomicBool::new(false),
            told: AtomicBool::new(false),
            size: image.size(),
            sectors: (image.logical_sector(), image.physical_sector()),
            path,
            inner: Mutex::new(Inner { image: Some(image), held: Vec::new() }),
        });
        let mut open = self.open.lock();
        open.retain(|disk| disk.strong_count() > 0);
        open.push(Arc::downgrade(&disk));
        disk
    }

    /// Sets the mood of a disk.
    pub(super) fn set(&self, name: &str, mood: Mood) {
        self.moods.lock().insert(name.to_owned(), mood);
    }

    /// Resets the moods of all disks.
    pub(super) fn calm(&self) {
        self.moods.lock().clear();
    }

    /// Pulls a disk. All operations of its holders fail from now on.
    ///
    /// With `told` the system reports that it is gone. Otherwise only the errors show it.
    pub(super) fn pull(&self, name: &str, told: bool) {
        let open: Vec<Arc<Disk>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        for disk in open.iter().filter(|disk| disk.image_name == name) {
            disk.pulled.store(true, Relaxed);
            disk.told.store(told, Relaxed);
            *disk.inner.lock() = Inner { image: None, held: Vec::new() };
        }
    }

    fn mood(&self, name: &str) -> Mood {
        self.moods.lock().get(name).copied().unwrap_or_default()
    }

    fn roll(&self) -> u64 {
        SplitMix(self.dice.fetch_add(1, Relaxed)).roll()
    }
}

impl Inner {
    /// Whether memory holds a write to the range that is not in the image yet.
    fn holds(&self, offset: u64, len: u64) -> bool {
        self.held.iter().any(|(at, bytes)| *at < offset + len && offset < at + bytes.len() as u64)
    }

    fn overlay(&self, buf: &mut [u8], offset: u64) {
        let end = offset + buf.len() as u64;
        for (at, bytes) in &self.held {
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
    }
}

impl Disk {
    fn fail(&self, op: Op, offset: u64, len: u64, errno: Errno) -> DeviceError {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        DeviceError::Io { op, device: self.path.clone(), offset, len, source }
    }

    /// Fails an operation, or lets it pass.
    fn gate(&self, op: Op, offset: u64, len: u64) -> device::Result<()> {
        if self.pulled.load(Relaxed) {
            return Err(self.fail(op, offset, len, Errno::NXIO));
        }
        match self.rack.mood(&self.image_name) {
            Mood::Errors(one_in) if self.rack.roll().is_multiple_of(one_in.max(1)) => {
                return Err(self.fail(op, offset, len, Errno::IO));
            }
            Mood::Full if op == Op::Write => return Err(self.fail(op, offset, len, Errno::NOSPC)),
            Mood::Slow => std::thread::sleep(LATENCY),
            _ => {}
        }
        Ok(())
    }

    fn gone(&self, op: Op) -> DeviceError {
        self.fail(op, 0, 0, Errno::NXIO)
    }
}

impl Device for Disk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> device::Result<()> {
        self.gate(Op::Read, offset, buf.len() as u64)?;
        // The lock is held across the read: a held write must not reach the image between the read
        // and the overlay. Speed does not matter here.
        let inner = self.inner.lock();
        inner.image.as_ref().ok_or_else(|| self.gone(Op::Read))?.read_at(buf, offset)?;
        inner.overlay(buf, offset);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> device::Result<()> {
        self.gate(Op::Write, offset, buf.len() as u64)?;
        let mut inner = self.inner.lock();
        let image = inner.image.clone().ok_or_else(|| self.gone(Op::Write))?;
        if let Mood::Loses(one_in) = self.rack.mood(&self.image_name)
            && self.rack.roll().is_multiple_of(one_in.max(1))
        {
            return Ok(());
        }
        // Some writes reach the disk at once, ahead of others.
        if self.rack.power.write()
            && self.rack.roll().is_multiple_of(4)
            && !inner.holds(offset, buf.len() as u64)
        {
            return image.write_at(buf, offset);
        }
        inner.held.push((offset, buf.into()));
        Ok(())
    }

    fn flush(&self) -> device::Result<()> {
        self.gate(Op::Flush, 0, 0)?;
        let mut inner = self.inner.lock();
        let image = inner.image.clone().ok_or_else(|| self.gone(Op::Flush))?;
        if !self.rack.is_off() {
            for (offset, bytes) in std::mem::take(&mut inner.held) {
                image.write_at(&bytes, offset)?;
            }
        }
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> device::Result<()> {
        // A disk may keep freed bytes.
        self.gate(Op::Trim, offset, len)
    }

    fn can_trim(&self) -> bool {
        false
    }

    fn is_gone(&self) -> bool {
        self.told.load(Relaxed)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn logical_sector(&self) -> u32 {
        self.sectors.0
    }

    fn physical_sector(&self) -> u32 {
        self.sectors.1
    }

    fn name(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use device::MemDevice;

    use super::*;

    /// Goal: after a power failure no write reaches the image, flushed or not. The process still
    /// sees its writes.
    #[test]
    fn nothing_is_written_without_power() {
        let power: Arc<Power> = Arc::default();
        let rack = Arc::new(Rack::on(&power));
        let image = Arc::new(MemDevice::new("d0.img", 1 << 20));
        let disk = rack.around(Arc::<MemDevice>::clone(&image));
        let byte_of = |device: &dyn Device, offset| {
            let mut byte = [0];
            device.read_at(&mut byte, offset).unwrap();
            byte[0]
        };
        power.fail_after(2);
        disk.write_at(&[1; 512], 0).unwrap();
        disk.flush().unwrap();
        for offset in [4096, 8192, 12_288] {
            disk.write_at(&[2; 512], offset).unwrap();
        }
        disk.flush().unwrap();
        let all = [0, 4096, 8192, 12_288];
        assert_eq!(all.map(|offset| byte_of(&*disk, offset)), [1, 2, 2, 2]);
        let there = all.map(|offset| byte_of(&*image, offset));
        // The second write may have reached the disk without a flush.
        assert!(there == [1, 0, 0, 0] || there == [1, 2, 0, 0], "{there:?}");
    }

    /// Goal: a lost write is acknowledged, and is not found before or after a flush. Other writes
    /// are.
    #[test]
    fn lost_writes_are_answered() {
        let rack: Arc<Rack> = Arc::default();
        let image = Arc::new(MemDevice::new("d0.img", 1 << 20));
        let disk = rack.around(Arc::<MemDevice>::clone(&image));
        let seen = |offset| {
            let mut byte = [0];
            disk.read_at(&mut byte, offset).unwrap();
            byte[0]
        };
        disk.write_at(&[1; 512], 0).unwrap();
        rack.set("d0.img", Mood::Loses(1));
        disk.write_at(&[2; 512], 0).unwrap();
        disk.write_at(&[2; 512], 4096).unwrap();
        assert_eq!((seen(0), seen(4096)), (1, 0));
        disk.flush().unwrap();
        assert_eq!((seen(0), seen(4096)), (1, 0));
        rack.calm();
        disk.write_at(&[3; 512], 4096).unwrap();
        disk.flush().unwrap();
        let mut byte = [0];
        image.read_at(&mut byte, 4096).unwrap();
        assert_eq!((seen(4096), byte[0]), (3, 3));
    }
}
