//! Devices of a soak: they keep what was not flushed to themselves, and fare as they are told.
//!
//! # Theory
//! A killed process leaves in its image files whatever it wrote, in whatever order: the system keeps it. Disks whose power fails do not. So a [`Disk`] keeps writes
//! in memory until it is flushed, some of them, and whoever is killed has lost those. What a disk is like is said to the [`Rack`] by its name, and holds for every opening of it, until something else is
//! said; one that is pulled is gone for whoever has it open, and what comes back is opened anew.
//!
//! One that loses writes is another thing than what a kill costs: there it broke no promise, as nothing was flushed; here it says that it has written, and flushed, what never was there.
//!
//! # Absent
//! The image's own flush: the system outlives whoever is killed.

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

/// How long a slow disk takes for everything.
const LATENCY: Duration = Duration::from_millis(3);

/// What a disk is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mood {
    /// All is well.
    #[default]
    Well,
    /// One in so many operations is an error.
    Errors(u64),
    /// It takes no writes: nothing is left where its blocks are kept.
    Full,
    /// One in so many writes is lost, wherever it goes, though it says that it has been done. Nobody has it: also not who asks before there was a flush.
    Loses(u64),
    /// Everything takes its time.
    Slow,
}

/// The disks of a life, by the names of their images.
#[derive(Default)]
pub(super) struct Rack {
    moods: Mutex<HashMap<String, Mood>>,
    open: Mutex<Vec<Weak<Disk>>>,
    dice: AtomicU64,
}

struct Disk {
    rack: Arc<Rack>,
    image_name: String,
    /// Nothing of it can be had any more.
    pulled: AtomicBool,
    /// The system knows that it was pulled.
    told: AtomicBool,
    inner: Mutex<Inner>,
    size: u64,
    sectors: (u32, u32),
    path: String,
}

struct Inner {
    /// Nothing once it was pulled.
    image: Option<Arc<dyn Device>>,
    /// Writes since the last flush, in their order.
    held: Vec<(u64, Box<[u8]>)>,
}

impl Rack {
    /// Puts a disk around each image that is opened.
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

    /// Says what a disk is like from now on.
    pub(super) fn set(&self, name: &str, mood: Mood) {
        self.moods.lock().insert(name.to_owned(), mood);
    }

    /// All disks are well from now on.
    pub(super) fn calm(&self) {
        self.moods.lock().clear();
    }

    /// Pulls a disk: who has it open has it no more, and is `told` so by the system, or by errors alone.
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
    /// Whether something was written there that is not in the image yet.
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

    /// Lets an operation pass, or not.
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
        // The lock is held across reading, as what is held must not reach the image in between: nobody measures this.
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
        // Some reach the disk at once, ahead of others.
        if self.rack.roll().is_multiple_of(4) && !inner.holds(offset, buf.len() as u64) {
            return image.write_at(buf, offset);
        }
        inner.held.push((offset, buf.into()));
        Ok(())
    }

    fn flush(&self) -> device::Result<()> {
        self.gate(Op::Flush, 0, 0)?;
        let mut inner = self.inner.lock();
        let image = inner.image.clone().ok_or_else(|| self.gone(Op::Flush))?;
        for (offset, bytes) in std::mem::take(&mut inner.held) {
            image.write_at(&bytes, offset)?;
        }
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> device::Result<()> {
        // What is free may be kept.
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

    /// Goal: a write that is lost is answered, and found nowhere: neither before a flush nor after it, and other writes are.
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
