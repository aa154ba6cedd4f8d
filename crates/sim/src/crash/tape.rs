//! Devices that record their writes and flushes in one common order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::wrapper::Wrapper;
use device::{Device, Layer, MemDevice};
use parking_lot::Mutex;

/// Writes tear at multiples of this many bytes.
const SECTOR: usize = 512;

#[derive(Clone)]
enum Event {
    Write { device: usize, offset: u64, bytes: Arc<[u8]> },
    Flush { device: usize },
}

/// The recorded writes and flushes of several devices. Clones share the record.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Vec<Event>>>);

/// The file name of the image of this device.
pub fn image(number: usize) -> String {
    format!("d{number}.img")
}

/// A place on the tape: the number of events before it.
pub type Point = usize;

struct Taped {
    tape: Tape,
    number: usize,
    inner: Arc<dyn Device>,
}

impl Wrapper for Taped {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> device::Result<()> {
        let event = Event::Write { device: self.number, offset, bytes: buf.into() };
        self.tape.0.lock().push(event);
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> device::Result<()> {
        // Only the tape decides what a crash keeps, so the inner device needs no flush.
        self.tape.0.lock().push(Event::Flush { device: self.number });
        Ok(())
    }

    fn trim(&self, _: u64, _: u64) -> device::Result<()> {
        Ok(())
    }

    fn can_trim(&self) -> bool {
        true
    }

    fn logical_sector(&self) -> u32 {
        SECTOR as u32
    }

    fn physical_sector(&self) -> u32 {
        SECTOR as u32
    }
}

impl Tape {
    /// Creates devices of `size` bytes each, all recorded on this tape.
    pub fn devices(&self, count: usize, size: u64) -> Vec<Arc<dyn Device>> {
        let device = |number| -> Arc<dyn Device> {
            let inner = Arc::new(MemDevice::new(&image(number), size));
            Arc::new(Taped { tape: self.clone(), number, inner })
        };
        (0..count).map(device).collect()
    }

    /// Wraps an image, so that this tape records it.
    ///
    /// `image` must have named the image. An image that is opened again is the same device on the
    /// tape.
    ///
    /// # Panics
    /// The image has another name.
    pub fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        let path = PathBuf::from(inner.name());
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let number = name.strip_prefix('d').and_then(|n| n.strip_suffix(".img")).and_then(|n| n.parse().ok());
        Arc::new(Taped {
            tape: self.clone(),
            number: number.expect("an image is named by its number"),
            inner,
        })
    }

    /// A layer that wraps each opened image, as [`Tape::around`] does.
    pub fn layer(&self) -> Layer {
        let tape = self.clone();
        Layer::new(move |device| tape.around(device))
    }

    /// The current end of the tape.
    pub fn end(&self) -> Point {
        self.0.lock().len()
    }

    /// Deletes all events from `point` on.
    pub fn cut(&self, point: Point) {
        self.0.lock().truncate(point);
    }

    /// Writes the image files that a crash at `point` leaves: `dN.img` in `dir`, of `size` bytes
    /// each.
    ///
    /// `random` decides what becomes of unflushed writes.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be created or written.
    ///
    /// # Panics
    /// `point` is after the end of the tape, or the tape has more than `count` devices.
    pub fn develop(
        &self,
        point: Point,
        size: u64,
        count: usize,
        dir: &Path,
        random: &mut dyn FnMut() -> u64,
    ) -> std::io::Result<()> {
        let files = (0..count).map(|n| File::create(dir.join(image(n))));
        let files = files.collect::<std::io::Result<Vec<_>>>()?;
        files.iter().try_for_each(|f| f.set_len(size))?;
        // An earlier workload may have had more devices.
        let mut more = (count..).map(|n| dir.join(image(n))).take_while(|path| path.exists());
        more.try_for_each(std::fs::remove_file)?;
        self.write(point, &files, random)
    }

    /// Crashes at `point`, after an earlier crash that left the image files in `dir`.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be opened or written.
    ///
    /// # Panics
    /// As [`Tape::develop`].
    pub fn develop_on(
        &self,
        point: Point,
        count: usize,
        dir: &Path,
        random: &mut dyn FnMut() -> u64,
    ) -> std::io::Result<()> {
        let files = (0..count).map(|n| File::options().write(true).open(dir.join(image(n))));
        self.write(point, &files.collect::<std::io::Result<Vec<_>>>()?, random)
    }

    /// Writes what a crash at `point` keeps.
    fn write(&self, point: Point, files: &[File], random: &mut dyn FnMut() -> u64) -> std::io::Result<()> {
        let events: Vec<Event> = self.0.lock()[..point].to_vec();
        let mut flushed = vec![0; files.len()];
        for (at, event) in events.iter().enumerate() {
            if let Event::Flush { device } = event {
                flushed[*device] = at;
            }
        }
        for (at, event) in events.iter().enumerate() {
            let Event::Write { device, offset, bytes } = event else { continue };
            let file = &files[*device];
            if at < flushed[*device] {
                file.write_all_at(bytes, *offset)?;
                continue;
            }
            match random() % 3 {
                0 => {}
                1 => file.write_all_at(bytes, *offset)?,
                _ => {
                    for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                        if random().is_multiple_of(2) {
                            file.write_all_at(sector, *offset + (n * SECTOR) as u64)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
