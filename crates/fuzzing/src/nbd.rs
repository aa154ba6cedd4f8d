//! Input from NBD clients: options and requests.

use ::nbd::command::{Mode, REQUEST_LEN, Request, run};
use ::nbd::option::Wish;
use ::nbd::{Disk, Extent, Result};
use std::sync::Mutex;

/// A small disk in memory.
struct Memory(Mutex<Vec<u8>>);

const SIZE: usize = 16 << 10;
const BLOCK: usize = 512;

impl Memory {
    /// Calls `what` with the bytes of a range. The range is within the disk, as the `nbd` crate has
    /// checked that.
    fn at<R>(&self, offset: u64, len: usize, what: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = self.0.lock().expect("no holder panicked");
        what(&mut bytes[usize::try_from(offset).expect("it was checked")..][..len])
    }
}

impl Disk for Memory {
    fn size(&self) -> u64 {
        SIZE as u64
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.at(offset, buf.len(), |bytes| buf.copy_from_slice(bytes));
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.at(offset, data.len(), |bytes| bytes.copy_from_slice(data));
        Ok(())
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.at(offset, usize::try_from(len).expect("it was checked"), |bytes| bytes.fill(0));
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn next(&self, offset: u64, want: Extent) -> Result<u64> {
        let zero = |at: u64| {
            let block = at / BLOCK as u64 * BLOCK as u64;
            self.at(block, BLOCK, |bytes| bytes.iter().all(|b| *b == 0))
        };
        Ok((offset..SIZE as u64).find(|at| zero(*at) == (want == Extent::Hole)).unwrap_or(SIZE as u64))
    }
}

/// An option: four bytes for its number, then its data.
pub fn option(data: &[u8]) {
    if let Some((number, data)) = data.split_first_chunk::<4>() {
        // The number from the input, and each known number.
        let _ = Wish::parse(u32::from_be_bytes(*number), data);
        for number in 0..12 {
            let _ = Wish::parse(number, data);
        }
    }
}

/// A sequence of requests with their payloads.
pub fn requests(mut data: &[u8]) {
    let disk = Memory(Mutex::new(vec![0; SIZE]));
    let modes = [Mode { structured: true, status: true, read_only: false }, Mode::default()];
    while let Some((head, rest)) = data.split_first_chunk::<REQUEST_LEN>() {
        let Some(request) = Request::decode(head) else { return };
        assert!(request.cost() > 0);
        let Some((payload, rest)) = rest.split_at_checked(request.payload() as usize) else { return };
        for mode in modes {
            let reply = run(&disk, mode, &request, payload, &|| false).0.to_bytes();
            assert!(reply.len() >= 16 && reply.len() < 4 * SIZE);
        }
        data = rest;
    }
}

/// Options as real clients send them.
pub fn options() -> Vec<Vec<u8>> {
    let string = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
    let contexts = [string(b"tank/v"), vec![0, 0, 0, 1], string(b"base:allocation")].concat();
    let of = |option: u32, data: &[u8]| [&option.to_be_bytes(), data].concat();
    vec![
        of(1, b"tank/v"),
        of(3, b""),
        of(7, &[string(b"tank/v"), vec![0, 2, 0, 3, 0, 1]].concat()),
        of(9, &contexts),
        of(10, &contexts),
    ]
}

/// Sequences of requests as real clients send them.
pub fn conversations() -> Vec<Vec<u8>> {
    let one = |flags: u16, command: u16, offset: u64, len: u32, data: &[u8]| {
        [
            &0x2560_9513_u32.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &[7; 8],
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ]
        .concat()
    };
    let size = SIZE as u32;
    vec![
        [one(1, 1, 500, 700, &[5; 700]), one(0, 0, 0, size, b""), one(0, 7, 0, size, b"")].concat(),
        [one(0, 1, 0, 3, b"abc"), one(2, 6, 1, 9000, b""), one(4, 0, 100, 2000, b"")].concat(),
        [one(0, 4, 0, size, b""), one(0x10, 6, 0, size, b""), one(8, 7, 5, 9, b""), one(0, 3, 0, 0, b"")]
            .concat(),
        [one(0, 5, 0, size, b""), one(0, 0, u64::MAX, 1, b""), one(0, 6, 0, u32::MAX, b"")].concat(),
    ]
}
