//! A file server without files: it answers a few calls of AFS from memory.
//!
//! OpenAFS's programs judge the crate by it: `rxdebug`, and load clients that read and write files.
//! No file is read or written.
//!
//! Usage: `memory_server ADDRESS:PORT SHARDS [KEYFILEEXT]`

use std::sync::Arc;

use rx::security::rxkad::{self, Keys};
use rx::security::{Class, Level, Null};
use rx::xdr::{Reader, Writer};
use rx::{Call, Endpoint, Options, Reply, Request, Service, Slice};

const FETCH_STATUS: u32 = 132;
const REMOVE_FILE: u32 = 136;
const CREATE_FILE: u32 = 137;
const INLINE_BULK_STATUS: u32 = 65_536;
const FETCH_DATA_64: u32 = 65_537;
const STORE_DATA_64: u32 = 65_538;
const GIVE_UP_ALL_CALLBACKS: u32 = 65_539;
const GET_CAPABILITIES: u32 = 65_540;

/// Bytes of the block that all reads come from.
const BLOCK: usize = 1 << 20;
/// Bytes of each file.
const FILE: u32 = 16 << 20;
/// The most bytes of a read.
const READ: i64 = 64 << 20;

struct Memory {
    block: Arc<Vec<u8>>,
}

fn fid(out: &mut Writer, vnode: u32) {
    out.u32(1).u32(vnode).u32(1);
}

/// The status of a file or directory: 21 words.
fn status(out: &mut Writer, file: bool) {
    let length = if file { FILE } else { 2_048 };
    out.u32(1).u32(if file { 1 } else { 2 }).u32(1).u32(length).u32(1);
    out.u32(0).u32(0).u32(127).u32(127).u32(0o777).u32(1).u32(1);
    out.fixed(&[0; 36]);
}

fn callback(out: &mut Writer) {
    out.u32(1).u32(3_600).u32(2);
}

fn volume_sync(out: &mut Writer) {
    out.fixed(&[0; 24]);
}

impl Memory {
    fn answer(&self, request: &Request) -> rx::Result<Option<Reply>> {
        let mut args = Reader::new(&request.body);
        let mut out = Writer::with_capacity(256);
        match args.u32()? {
            GET_CAPABILITIES => drop(out.u32(1).u32(7)),
            GIVE_UP_ALL_CALLBACKS => {}
            FETCH_STATUS => {
                args.fixed(12)?;
                status(&mut out, false);
                callback(&mut out);
                volume_sync(&mut out);
            }
            CREATE_FILE => {
                fid(&mut out, 4);
                status(&mut out, true);
                status(&mut out, false);
                callback(&mut out);
                volume_sync(&mut out);
            }
            REMOVE_FILE => {
                status(&mut out, false);
                volume_sync(&mut out);
            }
            INLINE_BULK_STATUS => {
                let count = args.array(50, 12)? as u32;
                out.u32(count);
                (0..count).for_each(|_| status(&mut out, false));
                out.u32(count);
                (0..count).for_each(|_| callback(&mut out));
                volume_sync(&mut out);
            }
            FETCH_DATA_64 => {
                args.fixed(12)?;
                let (from, length) = (args.i64()?, args.i64()?);
                return Ok(Some(self.read(from, length)));
            }
            STORE_DATA_64 => return Ok(None),
            _ => return Ok(Some(Reply::Abort(rx::code::OPCODE))),
        }
        Ok(Some(Reply::Parts(vec![Slice::from(out.finish())])))
    }

    fn read(&self, from: i64, length: i64) -> Reply {
        if from < 0 || !(0..=READ).contains(&length) {
            return Reply::Abort(22);
        }
        let mut head = Writer::new();
        head.i64(length);
        let mut parts = vec![Slice::from(head.finish())];
        let (mut at, mut left) = (from as usize % BLOCK, length as usize);
        while left > 0 {
            let n = left.min(BLOCK - at);
            parts.push(Slice::new(Arc::clone(&self.block) as rx::Block, at..at + n));
            (at, left) = (0, left - n);
        }
        let mut tail = Writer::new();
        status(&mut tail, true);
        callback(&mut tail);
        volume_sync(&mut tail);
        parts.push(Slice::from(tail.finish()));
        Reply::Parts(parts)
    }

    fn store(call: &mut Call) -> rx::Result<()> {
        let mut args = [0; 4 + 12 + 24 + 24];
        call.read_exact(&mut args)?;
        let mut lengths = Reader::new(&args[48..]);
        let (length, _) = (lengths.u64()?, lengths.u64()?);
        let mut got = 0;
        loop {
            let bytes = call.read()?;
            if bytes.is_empty() {
                break;
            }
            got += bytes.len() as u64;
        }
        if got != length {
            return Err(rx::Error::Short { missing: length.abs_diff(got) as usize });
        }
        let mut out = Writer::new();
        status(&mut out, true);
        volume_sync(&mut out);
        call.write(out.finish())
    }
}

impl Service for Memory {
    fn quick(&self, request: &Request) -> Option<Reply> {
        self.answer(request).unwrap_or(Some(Reply::Abort(rx::code::SS_UNMARSHAL)))
    }

    fn run(&self, call: &mut Call) -> Result<(), i32> {
        Memory::store(call).map_err(|_| rx::code::SS_UNMARSHAL)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().ok_or("usage: memory_server ADDRESS:PORT SHARDS [KEYFILEEXT]")?.parse()?;
    let shards = args.next().map_or(Ok(1), |text| text.parse())?;
    let mut classes: Vec<Arc<dyn Class>> = vec![Arc::new(Null)];
    if let Some(path) = args.next() {
        classes.push(Arc::new(rxkad::Server::new(Arc::new(Keys::of_file(path)?), Level::Clear)));
    }
    let block = Arc::new((0..BLOCK).map(|i| (i % 251) as u8).collect());
    let options =
        Options { shards, classes, services: vec![(1, Arc::new(Memory { block }))], ..Options::default() };
    let _endpoint = Endpoint::bind(address, options)?;
    loop {
        std::thread::park();
    }
}
