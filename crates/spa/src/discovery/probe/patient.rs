//! A device that is read by a thread of its own, so that who reads it does not hang with it.

use crate::discovery::probe::{HANGING, patience};
use device::{Device, DeviceError, Layer, Op};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

/// One read: where, how much, and who waits for it.
struct Job {
    offset: u64,
    len: usize,
    answer: Sender<device::Result<Vec<u8>>>,
}

/// What the device's thread and those who wait for it share.
#[derive(Default)]
struct Shared {
    done: AtomicU64,
    /// Somebody gave it up.
    silent: AtomicBool,
}

/// A device that is read, while it answers in time.
struct Patient {
    inner: Arc<dyn Device>,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

/// What makes devices patient: for a look at a pool, which reads and nothing else.
pub(crate) fn layer(inner: Layer) -> Layer {
    Layer::new(move |device| {
        let device = inner.around(device);
        Patient::new(&device).map_or(device, |patient| Arc::new(patient))
    })
}

impl Patient {
    /// `None` where there is no thread for it.
    fn new(inner: &Arc<dyn Device>) -> Option<Patient> {
        let (jobs, work) = channel::<Job>();
        let shared = Arc::<Shared>::default();
        let (device, own) = (Arc::clone(inner), Arc::clone(&shared));
        let serve = move || {
            for job in work {
                let mut buf = vec![0; job.len];
                let read = device.read_at(&mut buf, job.offset).map(|()| buf);
                own.done.fetch_add(1, Ordering::SeqCst);
                // Nobody may wait any more.
                job.answer.send(read).unwrap_or_default();
            }
            if own.silent.load(Ordering::SeqCst) {
                HANGING.ends(&PathBuf::from(device.name()));
            }
        };
        std::thread::Builder::new().name("ask-read".to_owned()).spawn(serve).ok()?;
        Some(Patient { inner: Arc::clone(inner), jobs, shared })
    }

    fn late(&self, offset: u64, len: usize) -> DeviceError {
        let source = io::ErrorKind::TimedOut.into();
        DeviceError::Io { op: Op::Read, device: self.name().to_owned(), offset, len: len as u64, source }
    }
}

impl Device for Patient {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> device::Result<()> {
        let len = buf.len();
        if self.shared.silent.load(Ordering::SeqCst) {
            return Err(self.late(offset, len));
        }
        let (answer, told) = channel();
        let mut before = self.shared.done.load(Ordering::SeqCst);
        if self.jobs.send(Job { offset, len, answer }).is_err() {
            return Err(self.late(offset, len));
        }
        loop {
            match told.recv_timeout(patience()) {
                Ok(read) => {
                    buf.copy_from_slice(&read?);
                    return Ok(());
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.late(offset, len)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.shared.done.load(Ordering::SeqCst);
            if now == before {
                if !self.shared.silent.swap(true, Ordering::SeqCst) {
                    HANGING.begins(&PathBuf::from(self.name()));
                }
                return Err(self.late(offset, len));
            }
            // Others are in front of it.
            before = now;
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> device::Result<()> {
        Err(DeviceError::ReadOnly { op: Op::Write, device: self.name().to_owned() })
    }

    fn flush(&self) -> device::Result<()> {
        Ok(())
    }

    fn trim(&self, _: u64, _: u64) -> device::Result<()> {
        Err(DeviceError::ReadOnly { op: Op::Trim, device: self.name().to_owned() })
    }

    fn can_trim(&self) -> bool {
        false
    }

    fn size(&self) -> u64 {
        self.inner.size()
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
