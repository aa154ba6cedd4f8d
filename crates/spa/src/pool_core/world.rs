//! The environment of an open pool: clock, random numbers and memory.

use std::sync::Arc;

use device::{Clock, Layer, SystemClock};

/// The environment of an open pool; tests provide their own.
pub trait World: Send + Sync {
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// The current time with full precision, for comparison with other clocks.
    fn wall(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(self.now())
    }
    /// A random number.
    fn random(&self) -> u64;
    /// Bytes of memory that the pool may use.
    fn memory(&self) -> u64;
    /// The layer around devices that the pool itself opens: reopened devices, replacements and
    /// cache devices.
    fn layer(&self) -> Layer {
        Layer::default()
    }
    /// The clock by which scans measure devices and wait; each pool calls this once.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock::default())
    }
}

/// The system's clock, random numbers and memory.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemWorld;

impl World for SystemWorld {
    fn now(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }

    fn wall(&self) -> std::time::SystemTime {
        std::time::SystemTime::now()
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the system gives random numbers")
    }

    fn memory(&self) -> u64 {
        crate::discovery::host::memory()
    }
}
