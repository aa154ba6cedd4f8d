//! A device that a thread of its own reads, so that a hung device does not hang its readers.

use crate::discovery::probe::{HANGING, patience};
use device::wrapper::Wrapper;
use device::{Device, DeviceError, Layer, Op};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

/// One read: the range, and the channel for its answer.
struct Job {
    offset: u64,
    len: usize,
    answer: Sender<device::Result<Vec<u8>>>,
}

/// What the device's thread and its readers share.
#[derive(Default)]
struct Shared {
    done: AtomicU64,
    /// A reader gave the device up.
    silent: AtomicBool,
}

/// A device that is readable while it answers in time.
struct Patient {
    inner: Arc<dyn Device>,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

/// A layer that makes devices patient: for the examination of a pool, which only reads.
pub(crate) fn layer(inner: Layer) -> Layer {
    Layer::new(move |device| {
        let device = inner.around(device);
        Patient::new(&device).map_or(device, |patient| Arc::new(patient))
    })
}

impl Patient {
    /// `None` if no thread can be started.
    fn new(inner: &Arc<dyn Device>) -> Option<Patient> {
        let (jobs, work) = channel::<Job>();
        let shared = Arc::<Shared>::default();
        let (device, own) = (Arc::clone(inner), Arc::clone(&shared));
        let serve = move || {
            for job in work {
                let mut buf = vec![0; job.len];
                let read = device.read_at(&mut buf, job.offset).map(|()| buf);
                own.done.fetch_add(1, Ordering::SeqCst);
                // The reader may have given up.
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
        DeviceError::Io {
            op: Op::Read,
            device: self.inner.name().to_owned(),
            offset,
            len: len as u64,
            source,
        }
    }
}

impl Wrapper for Patient {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

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
                    HANGING.begins(&PathBuf::from(self.inner.name()));
                }
                return Err(self.late(offset, len));
            }
            // Other reads are in front of it.
            before = now;
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> device::Result<()> {
        Err(DeviceError::ReadOnly { op: Op::Write, device: self.inner.name().to_owned() })
    }

    fn flush(&self) -> device::Result<()> {
        Ok(())
    }

    fn trim(&self, _: u64, _: u64) -> device::Result<()> {
        Err(DeviceError::ReadOnly { op: Op::Trim, device: self.inner.name().to_owned() })
    }

    fn can_trim(&self) -> bool {
        false
    }
}
