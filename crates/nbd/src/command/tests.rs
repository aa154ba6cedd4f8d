#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::*;
use observe::lock::Mutex;

/// A disk in memory with blocks of 4 KiB, which records what was flushed.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    flushed: Mutex<Vec<u8>>,
    read_only: bool,
}

const BLOCK: u64 = 4096;

impl Memory {
    fn new(blocks: u64) -> Memory {
        let bytes = vec![0; (blocks * BLOCK) as usize];
        Memory { bytes: Mutex::new(bytes.clone()), flushed: Mutex::new(bytes), read_only: false }
    }
}

impl Disk for Memory {
    fn size(&self) -> u64 {
        self.bytes.lock().len() as u64
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.bytes.lock()[offset as usize..][..buf.len()]);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.bytes.lock()[offset as usize..][..len as usize].fill(0);
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        *self.flushed.lock() = self.bytes.lock().clone();
        Ok(())
    }
    fn next(&self, offset: u64, want: Extent) -> Result<u64> {
        let bytes = self.bytes.lock();
        let mut at = offset;
        while (at as usize) < bytes.len() {
            let block = &bytes[(at / BLOCK * BLOCK) as usize..][..BLOCK as usize];
            if block.iter().all(|b| *b == 0) == (want == Extent::Hole) {
                return Ok(at);
            }
            at = (at / BLOCK + 1) * BLOCK;
        }
        Ok(bytes.len() as u64)
    }
}

const MODE: Mode = Mode { structured: true, status: true, read_only: false };

fn request(command: u16, flags: u16, offset: u64, len: u64) -> Request {
    Request { command, flags, cookie: 7, offset, len: len as u32 }
}

fn ask(disk: &dyn Disk, mode: Mode, request: Request, payload: &[u8]) -> Vec<u8> {
    run(disk, mode, &request, payload, &|| false).0.to_bytes()
}

/// The chunks of a structured reply: type, flags, payload.
fn chunks(mut bytes: &[u8]) -> Vec<(u16, u16, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = crate::abi::ChunkHead::read_from_prefix(bytes).unwrap();
        assert_eq!((head.magic.get(), head.cookie.get()), (0x668e_33ef, 7));
        let (body, rest) = rest.split_at(head.len.get() as usize);
        found.push((head.kind.get(), head.flags.get(), body.to_vec()));
        bytes = rest;
    }
    found
}

/// The error of a reply, 0 if there is none.
fn error(bytes: &[u8]) -> u32 {
    match chunks(bytes).last().unwrap() {
        (0x8001, 1, body) => u32::from_be_bytes(body[..4].try_into().unwrap()),
        (_, 1, _) => 0,
        other => panic!("the last chunk is not marked so: {other:?}"),
    }
}

/// Goal: data that were written are read, in the layouts of the protocol's document.
#[test]
fn layouts() {
    let disk = Memory::new(4);
    let written = ask(&disk, MODE, request(cmd::WRITE, 0, 4090, 12), b"hello world!");
    assert_eq!(written, [&[0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0][..], &7u64.to_be_bytes(), &[0; 4]].concat());
    let simple = Mode { structured: false, ..MODE };
    let read = ask(&disk, simple, request(cmd::READ, 0, 4090, 5), b"");
    assert_eq!(read, [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &7u64.to_be_bytes(), b"hello"].concat());
    let all = chunks(&ask(&disk, MODE, request(cmd::READ, 0, 0, 4 * BLOCK), b""));
    let kinds: Vec<_> = all.iter().map(|(kind, flags, body)| (*kind, *flags, body.len())).collect();
    assert_eq!(kinds, [(1, 0, 8 + 8192), (2, 1, 12)]);
    assert_eq!(all[0].2[8 + 4090..][..12], *b"hello world!");
    assert_eq!(all[1].2, [8192u64.to_be_bytes().to_vec(), 8192u32.to_be_bytes().to_vec()].concat());
    let whole = chunks(&ask(&disk, MODE, request(cmd::READ, cmd_flag::DF, 0, 4 * BLOCK), b""));
    assert_eq!((whole.len(), whole[0].0, whole[0].2.len()), (1, 1, 8 + 4 * BLOCK as usize));
}

/// Goal: a read that begins and ends within blocks reports holes in whole blocks, and each byte
/// once.
#[test]
fn zeroes_between() {
    let disk = Memory::new(8);
    disk.write(3 * BLOCK + 5, b"x").unwrap();
    for (offset, len) in [(1, 8 * BLOCK - 2), (3 * BLOCK + 6, BLOCK), (3 * BLOCK + 1, 10), (0, 3 * BLOCK)] {
        let mut at = offset;
        for (kind, _, body) in chunks(&ask(&disk, MODE, request(cmd::READ, 0, offset, len), b"")) {
            assert_eq!(u64::from_be_bytes(body[..8].try_into().unwrap()), at);
            let size = match kind {
                1 => {
                    assert!(body[8..].iter().any(|b| *b != 0));
                    body.len() as u64 - 8
                }
                _ => u64::from(u32::from_be_bytes(body[8..12].try_into().unwrap())),
            };
            at += size;
        }
        assert_eq!(at, offset + len);
    }
}

/// Goal: status reports holes and data, merged and within the range. It reports one extent if
/// requested.
#[test]
fn status_tells() {
    let disk = Memory::new(16);
    disk.write(4 * BLOCK, &[1; 2 * BLOCK as usize]).unwrap();
    let told = |flags, offset, len| {
        let all = chunks(&ask(&disk, MODE, request(cmd::BLOCK_STATUS, flags, offset, len), b""));
        let words: Vec<u32> = all[0].2.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect();
        assert_eq!((all.len(), all[0].0, words[0]), (1, 5, 1));
        words[1..].chunks(2).map(|pair| (u64::from(pair[0]), pair[1])).collect::<Vec<_>>()
    };
    assert_eq!(told(0, 0, 16 * BLOCK), [(4 * BLOCK, 3), (2 * BLOCK, 0), (10 * BLOCK, 3)]);
    assert_eq!(told(0, 4 * BLOCK + 1, 10), [(10, 0)]);
    assert_eq!(told(cmd_flag::REQ_ONE, 0, 16 * BLOCK), [(4 * BLOCK, 3)]);
    assert_eq!(error(&ask(&disk, MODE, request(cmd::BLOCK_STATUS, 0, 0, 0), b"")), 22);
    let without = Mode { status: false, ..MODE };
    assert_eq!(error(&ask(&disk, without, request(cmd::BLOCK_STATUS, 0, 0, 1), b"")), 22);
}

/// Goal: trim keeps to whole blocks, and zeroing doesn't. Zeros that take space are refused if they
/// must be fast.
#[test]
fn zeroing() {
    let disk = Memory::new(4);
    let full = || disk.write(0, &[9; 4 * BLOCK as usize]).unwrap();
    full();
    ask(&disk, MODE, request(cmd::TRIM, 0, 1, 2 * BLOCK), b"");
    let zero = || disk.bytes.lock().iter().filter(|b| **b == 0).count() as u64;
    assert_eq!(zero(), BLOCK);
    ask(&disk, MODE, request(cmd::TRIM, 0, 2 * BLOCK + 1, BLOCK), b"");
    assert_eq!(zero(), BLOCK);
    full();
    for (flags, after, code) in [
        (0, 100, 0),
        (cmd_flag::NO_HOLE, 100, 0),
        (cmd_flag::FAST_ZERO, 100, 0),
        (cmd_flag::FAST_ZERO | cmd_flag::NO_HOLE, 0, 95),
    ] {
        let reply = ask(&disk, MODE, request(cmd::WRITE_ZEROES, flags, 50, 100), b"");
        assert_eq!((error(&reply), zero()), (code, after), "{flags}");
        full();
    }
}

/// Goal: changes acknowledged before a flush are durable, and forced ones; no others are.
#[test]
fn durable() {
    let disk = Memory::new(1);
    let is_flushed = || *disk.flushed.lock() == *disk.bytes.lock();
    ask(&disk, MODE, request(cmd::WRITE, 0, 0, 1), b"a");
    assert!(!is_flushed());
    ask(&disk, MODE, request(cmd::FLUSH, 0, 0, 0), b"");
    assert!(is_flushed());
    ask(&disk, MODE, request(cmd::WRITE, cmd_flag::FUA, 1, 1), b"b");
    assert!(is_flushed());
    ask(&disk, MODE, request(cmd::WRITE_ZEROES, cmd_flag::FUA, 0, 2), b"");
    assert!(is_flushed());
}

/// Goal: an invalid request gets the error of the protocol's document, and changes nothing.
#[test]
fn refused() {
    let disk = Memory::new(2);
    let before = disk.bytes.lock().clone();
    let size = 2 * BLOCK;
    let all = [
        (cmd::READ, 0, size, 1, 22),
        (cmd::READ, 0, u64::MAX, 1, 22),
        (cmd::READ, cmd_flag::NO_HOLE, 0, 1, 22),
        (cmd::WRITE, 0, size - 1, 2, 28),
        (cmd::WRITE, 0, u64::MAX, 2, 28),
        (cmd::WRITE, 1 << 15, 0, 1, 22),
        (cmd::WRITE_ZEROES, 0, size, 1, 28),
        (cmd::TRIM, 0, size, 1, 28),
        (cmd::FLUSH, 0, 1, 0, 22),
        (cmd::CACHE, 0, 0, size + 1, 22),
        (cmd::CACHE, cmd_flag::DF, 0, 1, 22),
        (cmd::BLOCK_STATUS, 0, 0, size + 1, 22),
        (8, 0, 0, 1, 22),
        (u16::MAX, 0, 0, 1, 22),
    ];
    for (command, flags, offset, len, code) in all {
        let reply = ask(&disk, MODE, request(command, flags, offset, len), &[1; 2][..len.min(2) as usize]);
        assert_eq!(error(&reply), code, "{command} {flags} {offset} {len}");
    }
    assert!(*disk.bytes.lock() == before);
    let huge = Memory { bytes: Mutex::new(vec![0; 33 << 20]), ..Memory::new(1) };
    assert_eq!(error(&ask(&huge, MODE, request(cmd::READ, 0, 0, 33 << 20), b"")), 75);
    let read_only = Memory { read_only: true, ..Memory::new(1) };
    for (disk, mode) in [(&read_only, MODE), (&disk, Mode { read_only: true, ..MODE })] {
        for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(error(&ask(disk, mode, request(command, 0, 0, 1), b"x")), 1);
        }
        assert_eq!(error(&ask(disk, mode, request(cmd::READ, 0, 0, 1), b"")), 0);
        assert_eq!(error(&ask(disk, mode, request(cmd::FLUSH, 0, 0, 0), b"")), 0);
    }
}

/// Goal: requests of length 0 do nothing, and are answered.
#[test]
fn of_no_length() {
    let disk = Memory::new(1);
    for command in [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES, cmd::CACHE] {
        assert_eq!(error(&ask(&disk, MODE, request(command, 0, BLOCK, 0), b"")), 0, "{command}");
    }
}
