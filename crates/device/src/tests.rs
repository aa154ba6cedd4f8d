use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Goal: reads and writes at odd offsets give the same data through memory, a file, and a region of
/// each.
#[test]
fn backends_agree() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let file: Arc<dyn Device> = Arc::new(FileDevice::open(&path, Mode::Write).unwrap());
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new("mem", 1 << 20));
    for whole in [file, mem] {
        let part = Region::new(whole.clone(), 4096, 512 << 10, "part").unwrap();
        for (offset, len) in [(0, 1), (65_535, 2), (100, 200_000), ((512 << 10) - 7, 7)] {
            let bytes = pattern(len, offset as u8);
            part.write_at(&bytes, offset).unwrap();
            let mut back = vec![0; len];
            whole.read_at(&mut back, offset + 4096).unwrap();
            assert_eq!(back, bytes);
            back.fill(0);
            part.read_at(&mut back, offset).unwrap();
            assert_eq!(back, bytes);
        }
        part.flush().unwrap();
        let err = part.read_at(&mut [0; 2], (512 << 10) - 1).unwrap_err();
        assert!(matches!(err, DeviceError::Range { .. }));
        assert!(matches!(part.write_at(&[0], u64::MAX), Err(DeviceError::Range { .. })));
        part.trim(0, 128 << 10).unwrap();
        assert!(Region::new(whole, 1 << 20, 1, "past").is_err());
    }
}

/// Goal: an image has one owner, which writes or not, or many readers; [`Mode::Peek`] is always
/// possible.
#[test]
fn images_are_locked() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 1024]).unwrap();
    let busy = |mode| matches!(FileDevice::open(file.path(), mode), Err(DeviceError::Busy { .. }));
    let reader = FileDevice::open(file.path(), Mode::Share).unwrap();
    assert!(busy(Mode::Own) && busy(Mode::Write) && !busy(Mode::Share));
    assert!(matches!(reader.write_at(&[0], 0), Err(DeviceError::ReadOnly { .. })));
    drop(reader);
    for mode in [Mode::Own, Mode::Write] {
        let owner = FileDevice::open(file.path(), mode).unwrap();
        assert!(busy(Mode::Own) && busy(Mode::Write) && busy(Mode::Share) && !busy(Mode::Peek));
        assert_eq!(owner.write_at(&[0], 0).is_ok(), mode == Mode::Write);
        assert_eq!(owner.size(), 1024);
    }
}

/// Goal: a path that is neither a file nor a block device is refused, even a FIFO without a writer.
#[test]
fn other_kinds_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for path in [dir.path(), &fifo, std::path::Path::new("/dev/null")] {
        for mode in [Mode::Peek, Mode::Own] {
            let opened = FileDevice::open(path, mode);
            assert!(matches!(opened, Err(DeviceError::NotADevice { .. })), "{}", path.display());
        }
    }
    assert!(matches!(FileDevice::open(&dir.path().join("none"), Mode::Own), Err(DeviceError::Open { .. })));
}

/// Goal: buffers are aligned for direct I/O at every length, and freezing copies nothing.
#[test]
fn buffers_are_aligned() {
    for len in [0, 1, 511, 512, 513, 131_072] {
        let mut buf = AlignedBuf::zeroed(len);
        assert_eq!((buf.len(), buf.as_ptr() as usize % 512), (len, 0));
        buf.fill(3);
        let at = buf.as_ptr();
        let block = buf.freeze();
        assert_eq!(block.as_ptr(), at);
        let other = block.clone();
        assert!(other.ptr_eq(&block));
        assert_ne!(other.thaw().as_ptr(), if len == 0 { std::ptr::null() } else { at });
        assert_eq!(block.thaw().as_ptr(), at);
    }
    let mut buf = AlignedBuf::copy_of(&pattern(1000, 1));
    buf.truncate(600);
    buf.truncate(700);
    assert_eq!(buf[..], pattern(1000, 1)[..600]);
}

/// Goal: a recording device logs writes and flushes in order, and a replay of the log gives the
/// same data.
#[test]
fn recording_replays() {
    let mem = Arc::new(MemDevice::new("m", 4096));
    let rec = Recording::new(mem.clone());
    rec.write_at(b"one", 0).unwrap();
    rec.flush().unwrap();
    rec.write_at(b"two", 1).unwrap();
    let log = rec.events();
    assert_eq!(log[1], Event::Flush);
    let copy = MemDevice::new("c", 4096);
    for event in rec.take() {
        if let Event::Write { offset, bytes } = event {
            copy.write_at(&bytes, offset).unwrap();
        }
    }
    let (mut a, mut b) = ([0; 8], [0; 8]);
    mem.read_at(&mut a, 0).unwrap();
    copy.read_at(&mut b, 0).unwrap();
    assert_eq!(a, b);
    assert!(rec.events().is_empty());
}

/// Goal: a faulty device fails exactly where requested, and at the same moments for the same seed.
#[test]
fn faults_are_repeatable() {
    let mem = Arc::new(MemDevice::from_bytes("m", &pattern(8192, 9)));
    let bad = Faulty::new(mem.clone(), 1);
    bad.inject(Fault::Error { op: Op::Read, range: 100..200 });
    bad.inject(Fault::Corrupt { range: 1000..1010 });
    assert!(bad.read_at(&mut [0; 10], 195).is_err());
    bad.read_at(&mut [0; 10], 200).unwrap();
    let mut got = vec![0; 1000];
    bad.read_at(&mut got, 500).unwrap();
    let want = &pattern(8192, 9)[500..1500];
    let wrong: Vec<usize> = (0..1000).filter(|i| got[*i] != want[*i]).collect();
    assert_eq!(wrong, (500..510).collect::<Vec<_>>());
    let run = |seed| {
        let bad = Faulty::new(mem.clone(), seed);
        bad.inject(Fault::Rate { op: Op::Read, one_in: 4 });
        (0..64).map(|_| bad.read_at(&mut [0; 1], 0).is_err()).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    assert!(run(5).contains(&true) && run(5).contains(&false));
}

/// Goal: a faulty device counts operations, fails by number, blocks its callers while it is
/// stalled, and loses unflushed writes.
#[test]
fn faults_come_and_go() {
    let device = Arc::new(Faulty::volatile(Arc::new(MemDevice::new("m", 4096)), 1));
    device.write_at(b"kept", 0).unwrap();
    device.flush().unwrap();
    assert_eq!(device.count(), 2);
    device.inject(Fault::Numbered { range: 3..4 });
    device.write_at(b"lost", 0).unwrap();
    assert!(device.write_at(b"never", 0).is_err());
    device.write_at(b"too", 2).unwrap();
    device.lose().unwrap();
    let mut back = [0; 6];
    device.read_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"kept\0\0");
    device.inject(Fault::Gone);
    assert!(device.flush().is_err() && device.read_at(&mut back, 0).is_err());
    device.heal();
    device.inject(Fault::Stalled);
    let other = device.clone();
    let waiter = std::thread::spawn(move || other.write_at(b"late", 0));
    while device.waiting() == 0 {
        std::thread::yield_now();
    }
    assert!(!waiter.is_finished());
    device.heal();
    waiter.join().unwrap().unwrap();
    device.read_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"late\0\0");
}

struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn sleep_until(&self, deadline_ns: u64) {
        self.0.fetch_max(deadline_ns, Ordering::Relaxed);
    }
}

/// Goal: each operation on a slow device takes its latency, by the given clock.
#[test]
fn slow_takes_its_time() {
    let clock = Arc::new(TestClock(AtomicU64::new(0)));
    let slow = Slow::new(Arc::new(MemDevice::new("m", 512)), clock.clone(), 1000, 1);
    for _ in 0..3 {
        slow.read_at(&mut [0; 512], 0).unwrap();
    }
    assert_eq!(clock.now_ns(), 3000);
}

/// Goal: on a device with quick writes only reads take the latency.
#[test]
fn quick_writes_take_no_time() {
    let clock = Arc::new(TestClock(AtomicU64::new(0)));
    let slow = Slow::new(Arc::new(MemDevice::new("m", 4096)), clock.clone(), 1000, 2).with_quick_writes();
    slow.write_at(&[7; 512], 0).unwrap();
    slow.write_vectored_at(&[&[8; 512], &[9; 512]], 512).unwrap();
    slow.flush().unwrap();
    slow.trim(0, 512).unwrap();
    assert_eq!(clock.now_ns(), 0);
    let mut back = [0; 512];
    slow.read_at(&mut back, 1024).unwrap();
    assert_eq!((clock.now_ns(), back), (1000, [9; 512]));
}

/// Goal: a disk with a head takes the time of its reads, and a seek for a read that does not follow
/// the previous one. Operations that arrive meanwhile wait.
#[test]
fn a_head_goes_where_it_is_sent() {
    let clock = Arc::new(TestClock(AtomicU64::new(0)));
    // One byte each nanosecond.
    let disk = Spinning::new(Arc::new(MemDevice::new("m", 8192)), clock.clone(), 1_000_000_000, 5000);
    disk.read_at(&mut [0; 512], 0).unwrap();
    disk.write_vectored_at(&[&[1; 512], &[2; 512]], 512).unwrap();
    disk.flush().unwrap();
    assert_eq!(clock.now_ns(), 1536);
    disk.read_at(&mut [0; 512], 0).unwrap();
    assert_eq!(clock.now_ns(), 1536 + 5512);
    let (read, write) = ((512 + 5512, 1024, 1), (1024, 1024, 0));
    let effort = |(busy_ns, bytes, seeks)| Effort { busy_ns, bytes, seeks };
    assert_eq!(disk.take_efforts(), [effort(read), effort(write)]);
    assert_eq!((disk.take_efforts(), disk.transfer_ns(7)), ([Effort::default(); 2], 7));
}

/// Goal: a layer wraps each device; no layer leaves a device as it is; only clones are the same
/// layer.
#[test]
fn layers_are_put_around() {
    let device = || -> Arc<dyn Device> { Arc::new(MemDevice::new("m", 512)) };
    let bare = device();
    assert!(Arc::ptr_eq(&bare, &Layer::default().around(bare.clone())));
    let clock = Arc::new(TestClock(AtomicU64::new(0)));
    let time = clock.clone();
    let slow = move |device| -> Arc<dyn Device> { Arc::new(Slow::new(device, time.clone(), 50, 1)) };
    let layer = Layer::new(slow.clone());
    for device in [layer.around(device()), layer.clone().around(device())] {
        device.read_at(&mut [0; 512], 0).unwrap();
        assert_eq!(device.name(), "m");
    }
    assert_eq!(clock.now_ns(), 100);
    assert!(layer == layer.clone() && layer != Layer::new(slow) && layer != Layer::default());
    assert!(Layer::default() == Layer::default());
    assert_eq!(format!("{layer:?} {:?}", Layer::default()), "Layer(…) Layer(none)");
}

/// Goal: a trimmed block keeps its sectors up to the last that is not zeros, and reads as before. A
/// block keeps its memory if trimming would save less than half. So does a block that ends inside a
/// sector without zeros.
#[test]
fn blocks_are_trimmed() {
    const LEN: usize = 8 * 512;
    let with = |at: usize, len: usize| {
        let mut buf = AlignedBuf::zeroed(len);
        buf[at] = 1;
        buf.freeze()
    };
    for (at, held) in [(0, 512), (511, 512), (512, 1024), (4 * 512 - 1, 4 * 512)] {
        let block = with(at, LEN);
        let trimmed = Sparse::trimmed(&block);
        assert_eq!((trimmed.head().len(), trimmed.len(), trimmed.is_whole()), (held, LEN, false), "{at}");
        assert_eq!(trimmed.whole(), block, "{at}");
    }
    let empty = Sparse::trimmed(&Block::zeroed(LEN));
    assert_eq!((empty.head().len(), empty.whole()), (0, Block::zeroed(LEN)));
    for block in [with(4 * 512, LEN), with(LEN - 1, LEN), with(600, 700), with(0, 512), with(0, 100)] {
        let same = Sparse::trimmed(&block);
        assert!(same.is_whole() && same.head().ptr_eq(&block), "{}", block.len());
    }
    let odd = with(3, 2000);
    let trimmed = Sparse::trimmed(&odd);
    assert_eq!((trimmed.head().len(), trimmed.whole()), (512, odd));
}
