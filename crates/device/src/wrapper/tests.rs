use std::path::Path;
use std::sync::Arc;

use observe::lock::Mutex;

use crate::{Clock, Device, Faulty, Recording, Region, Result, Slow, Spinning};

/// A device that notes the operations that reach it, and answers unlike the defaults of `Device`.
#[derive(Default)]
struct Noting(Mutex<Vec<&'static str>>);

impl Noting {
    fn note<T>(&self, operation: &'static str, answer: T) -> T {
        self.0.lock().push(operation);
        answer
    }
}

impl Device for Noting {
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        self.note("read_at", Ok(()))
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        self.note("write_at", Ok(()))
    }

    fn write_vectored_at(&self, _: &[&[u8]], _: u64) -> Result<()> {
        self.note("write_vectored_at", Ok(()))
    }

    fn flush(&self) -> Result<()> {
        self.note("flush", Ok(()))
    }

    fn trim(&self, _: u64, _: u64) -> Result<()> {
        self.note("trim", Ok(()))
    }

    fn can_trim(&self) -> bool {
        self.note("can_trim", false)
    }

    fn is_gone(&self) -> bool {
        self.note("is_gone", true)
    }

    fn nameless(&self) -> Option<i32> {
        self.note("nameless", Some(7))
    }

    fn is_not_at(&self, _: &Path) -> bool {
        self.note("is_not_at", true)
    }

    fn give_way(&self) {
        self.note("give_way", ());
    }

    fn size(&self) -> u64 {
        self.note("size", 1 << 20)
    }

    fn size_now(&self) -> u64 {
        self.note("size_now", 2 << 20)
    }

    fn grow(&self) {
        self.note("grow", ());
    }

    fn logical_sector(&self) -> u32 {
        self.note("logical_sector", 1024)
    }

    fn physical_sector(&self) -> u32 {
        self.note("physical_sector", 2048)
    }

    fn name(&self) -> &str {
        self.note("name", "noting")
    }
}

/// A clock on which nothing takes time.
struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }

    fn sleep_until(&self, _: u64) {}
}

/// Every operation of a device: its name, and a call of it.
type Operation = (&'static str, fn(&dyn Device));

const OPERATIONS: [Operation; 16] = [
    ("read_at", |device| device.read_at(&mut [0; 8], 0).unwrap()),
    ("write_at", |device| device.write_at(&[0; 8], 0).unwrap()),
    ("write_vectored_at", |device| device.write_vectored_at(&[&[0; 8], &[0; 8]], 0).unwrap()),
    ("flush", |device| device.flush().unwrap()),
    ("trim", |device| device.trim(0, 8).unwrap()),
    ("can_trim", |device| assert!(!device.can_trim())),
    ("is_gone", |device| assert!(device.is_gone())),
    ("nameless", |device| assert_eq!(device.nameless(), Some(7))),
    ("is_not_at", |device| assert!(device.is_not_at(Path::new("/dev/null")))),
    ("give_way", |device| device.give_way()),
    ("size", |device| assert_eq!(device.size(), 1 << 20)),
    ("size_now", |device| assert_eq!(device.size_now(), 2 << 20)),
    ("grow", |device| device.grow()),
    ("logical_sector", |device| assert_eq!(device.logical_sector(), 1024)),
    ("physical_sector", |device| assert_eq!(device.physical_sector(), 2048)),
    ("name", |device| assert_eq!(device.name(), "noting")),
];

/// The operations of `wrapper` that do not reach the device inside.
fn kept(inner: &Noting, wrapper: &dyn Device, but: &[&'static str]) -> Vec<&'static str> {
    let reaches = |(name, call): &Operation| {
        inner.0.lock().clear();
        call(wrapper);
        let reached = inner.0.lock();
        // A wrapper may split a write of several buffers.
        let split = *name == "write_vectored_at" && reached.iter().filter(|n| **n == "write_at").count() == 2;
        split || reached.contains(name)
    };
    let asked = OPERATIONS.iter().filter(|(name, _)| !but.contains(name));
    asked.filter(|operation| !reaches(operation)).map(|(name, _)| *name).collect()
}

/// Goal: every operation of every wrapper reaches the device inside, and its answer comes back. A
/// region answers for its own size and name.
#[test]
fn every_operation_reaches_the_inner_device() {
    let inner = Arc::new(Noting::default());
    let device: Arc<dyn Device> = Arc::<Noting>::clone(&inner);
    let clock = Arc::new(Still);
    let around: [Box<dyn Device>; 4] = [
        Box::new(Slow::new(Arc::clone(&device), clock.clone(), 1, 1)),
        Box::new(Spinning::new(Arc::clone(&device), clock, 1 << 20, 1)),
        Box::new(Faulty::new(Arc::clone(&device), 1)),
        Box::new(Recording::new(Arc::clone(&device))),
    ];
    for wrapper in around {
        assert_eq!(kept(&inner, &*wrapper, &[]), Vec::<&str>::new());
    }
    let own = ["size", "size_now", "grow", "name"];
    let region = Region::new(device, 4096, 8192, "part").unwrap();
    assert_eq!(kept(&inner, &region, &own), Vec::<&str>::new());
    assert_eq!((region.size(), region.size_now(), Device::name(&region)), (8192, 8192, "part"));
}
