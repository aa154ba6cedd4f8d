//! Requests: decoded, checked, and run on a disk.
//!
//! # Theory
//! One thread runs a request as a whole and makes its reply. Before any memory is allocated, the
//! size of a request is checked: data against [`PAYLOAD_MAX`], extents against [`EXTENTS_MAX`]. A
//! request without data may be as long as the export.
//!
//! Runs of zeros in data that were read are sent as holes, wherever they come from. To check the
//! bytes is cheaper than to walk the block tree, and can't contradict the data.

use crate::abi::{REQUEST_MAGIC, RequestHead, cmd, cmd_flag, state};
use crate::disk::Disk;
use crate::error::{Code, Error, Result};
use crate::reply::Reply;
use dmu::Extent;
use observe::ops::{Ended, Op};
use std::time::Instant;
use zerocopy::FromBytes;

/// The most bytes that one request may read or write.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// The most extents in one reply. The client continues after the last.
pub const EXTENTS_MAX: usize = 4096;
/// The smallest run of zeros that is sent as a hole, in bytes. The header of a hole costs more than
/// a few zeros.
const ZERO_UNIT: usize = 4096;
/// How many bytes are zeroed or prefetched at a time.
const STEP: u32 = 1 << 20;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// One of [`cmd`], or an unknown command.
    pub command: u16,
    /// Some of [`cmd_flag`], or unknown flags.
    pub flags: u16,
    /// Identifies the answer.
    pub cookie: u64,
    /// The first byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u32,
}

/// Size of a request's header in bytes.
pub const REQUEST_LEN: usize = size_of::<RequestHead>();

impl Request {
    /// Decodes a header. `None` if it has the wrong magic number: then the next request can't be
    /// found.
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Option<Request> {
        let head = RequestHead::read_from_bytes(bytes).ok()?;
        (head.magic.get() == REQUEST_MAGIC).then(|| Request {
            command: head.command.get(),
            flags: head.flags.get(),
            cookie: head.cookie.get(),
            offset: head.offset.get(),
            len: head.len.get(),
        })
    }

    /// Number of bytes that follow the header.
    pub fn payload(&self) -> u32 {
        if self.command == cmd::WRITE { self.len } else { 0 }
    }

    /// About how many bytes of memory it needs until its reply is sent.
    pub fn cost(&self) -> u32 {
        const LEAST: u32 = 4096;
        match self.command {
            cmd::READ | cmd::WRITE => self.len.clamp(LEAST, PAYLOAD_MAX),
            cmd::BLOCK_STATUS => 3 * 8 * EXTENTS_MAX as u32,
            cmd::CACHE | cmd::WRITE_ZEROES => STEP,
            _ => LEAST,
        }
    }

    /// The operation that it is.
    pub fn op(&self) -> Op {
        match self.command {
            cmd::READ => Op::Read,
            cmd::WRITE => Op::Write,
            cmd::FLUSH => Op::Flush,
            cmd::TRIM => Op::Trim,
            cmd::WRITE_ZEROES => Op::WriteZeroes,
            cmd::BLOCK_STATUS => Op::BlockStatus,
            cmd::CACHE => Op::Cache,
            _ => Op::Unknown,
        }
    }

    /// The operation that it was, if it ends now. `began` is when all of it was there.
    pub fn ended(&self, began: Instant, failed: Option<Code>) -> Ended {
        let bytes = if matches!(self.command, cmd::READ | cmd::WRITE) { self.len } else { 0 };
        // The codes of the protocol are errnos of Linux.
        Ended::now(self.op(), began, bytes.into(), failed.map(|code| code as i32))
    }

    fn is_write(&self) -> bool {
        matches!(self.command, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES)
    }

    /// The flags that its command allows.
    fn known_flags(&self) -> u16 {
        cmd_flag::FUA
            | match self.command {
                cmd::READ => cmd_flag::DF,
                cmd::WRITE_ZEROES => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
                cmd::BLOCK_STATUS => cmd_flag::REQ_ONE,
                _ => 0,
            }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The result of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Whether replies are structured.
    pub structured: bool,
    /// Whether the client selected the context `base:allocation`.
    pub status: bool,
    /// Whether the handshake announced the export as read-only.
    pub read_only: bool,
}

/// Runs a request with its complete payload, and makes the reply.
///
/// An error becomes a reply with its [`Code`], which is returned beside it. `gone` tells whether
/// the client is gone.
pub fn run(
    disk: &dyn Disk,
    mode: Mode,
    request: &Request,
    payload: &[u8],
    gone: &dyn Fn() -> bool,
) -> (Reply, Option<Code>) {
    match done(disk, mode, request, payload, gone) {
        Ok(reply) => (reply, None),
        Err(error) => {
            let code = error.code(request.is_write());
            tracing::debug!(?request, %error, "a request failed");
            let reply = match mode.structured {
                true => Reply::error(request.cookie, code, &error.to_string()),
                false => Reply::simple(request.cookie, Some(code)),
            };
            (reply, Some(code))
        }
    }
}

fn done(
    disk: &dyn Disk,
    mode: Mode,
    request: &Request,
    payload: &[u8],
    gone: &dyn Fn() -> bool,
) -> Result<Reply> {
    if request.flags & !request.known_flags() != 0 {
        return Err(Error::BadRequest { why: "a flag is not its command's" });
    }
    if request.has(cmd_flag::DF) && !mode.structured {
        return Err(Error::BadRequest { why: "replies are not structured" });
    }
    if request.is_write() && (mode.read_only || disk.is_read_only()) {
        return Err(Error::ReadOnly);
    }
    check_range(disk, request)?;
    let (offset, len) = (request.offset, u64::from(request.len));
    match request.command {
        cmd::READ => return read(disk, mode, request),
        cmd::BLOCK_STATUS => return status(disk, mode, request),
        cmd::WRITE if len > 0 => disk.write(offset, payload)?,
        cmd::TRIM => trim(disk, offset, len)?,
        cmd::WRITE_ZEROES => zero(disk, request, gone)?,
        cmd::CACHE => cache(disk, request, gone)?,
        cmd::FLUSH => disk.flush()?,
        cmd::WRITE => {}
        _ => return Err(Error::BadRequest { why: "no such command" }),
    }
    if request.is_write() && request.has(cmd_flag::FUA) {
        disk.flush()?;
    }
    Ok(match mode.structured {
        true => Reply::done(request.cookie),
        false => Reply::simple(request.cookie, None),
    })
}

fn check_range(disk: &dyn Disk, request: &Request) -> Result<()> {
    let (offset, len, size) = (request.offset, u64::from(request.len), disk.size());
    if request.command == cmd::FLUSH {
        return match (offset, len) {
            (0, 0) => Ok(()),
            _ => Err(Error::BadRequest { why: "a flush has no range" }),
        };
    }
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::PastEnd { offset, len, size }),
    }
}

fn read(disk: &dyn Disk, mode: Mode, request: &Request) -> Result<Reply> {
    if request.len > PAYLOAD_MAX {
        return Err(match mode.structured {
            true => Error::TooLong { len: request.len.into() },
            false => Error::BadRequest { why: "it asks for too much" },
        });
    }
    let mut data = vec![0; request.len as usize];
    if data.is_empty() {
        return Ok(match mode.structured {
            true => Reply::done(request.cookie),
            false => Reply::simple(request.cookie, None),
        });
    }
    disk.read(request.offset, &mut data)?;
    if !mode.structured {
        return Ok(Reply::simple_data(request.cookie, data));
    }
    let extents = match request.has(cmd_flag::DF) {
        true => vec![(data.len(), false)],
        false => zeroes(&data, request.offset, ZERO_UNIT.max(disk.block_size() as usize)),
    };
    Ok(Reply::read(request.cookie, request.offset, data, &extents))
}

/// The ends of runs of zeros and of data, where `true` means zeros. The units are `unit` bytes of
/// the export.
fn zeroes(data: &[u8], offset: u64, unit: usize) -> Vec<(usize, bool)> {
    let mut extents: Vec<(usize, bool)> = Vec::new();
    let mut start = 0;
    // The first unit may be incomplete.
    let mut end = unit - (offset % unit as u64) as usize;
    while start < data.len() {
        end = end.min(data.len());
        let zero = is_zero(&data[start..end]);
        match extents.last_mut() {
            Some(last) if last.1 == zero => last.0 = end,
            _ => extents.push((end, zero)),
        }
        start = end;
        end += unit;
    }
    extents
}

fn is_zero(bytes: &[u8]) -> bool {
    let (heads, words, tail) = (bytes.chunks_exact(64), bytes.len() / 64 * 64, 0u8);
    heads.map(|chunk| chunk.iter().fold(0, |all, byte| all | byte)).all(|all| all == 0)
        && bytes[words..].iter().fold(tail, |all, byte| all | byte) == 0
}

/// Frees the whole blocks of a range. The rest of the range stays, since to zero it the blocks
/// would have to be read. A client must expect that from a trim.
fn trim(disk: &dyn Disk, offset: u64, len: u64) -> Result<()> {
    let block = u64::from(disk.block_size());
    let start = offset.next_multiple_of(block);
    let end = (offset + len) / block * block;
    if start < end { disk.punch(start, end - start) } else { Ok(()) }
}

fn zero(disk: &dyn Disk, request: &Request, gone: &dyn Fn() -> bool) -> Result<()> {
    if request.len == 0 {
        return Ok(());
    }
    if !request.has(cmd_flag::NO_HOLE) {
        return disk.punch(request.offset, request.len.into());
    }
    if request.has(cmd_flag::FAST_ZERO) {
        return Err(Error::NotFast);
    }
    let zeroes = vec![0; request.len.min(STEP) as usize];
    steps(request, gone, |offset, len| disk.write(offset, &zeroes[..len]))
}

/// Prefetches a range that a client is about to read, up to the size of one read.
fn cache(disk: &dyn Disk, request: &Request, gone: &dyn Fn() -> bool) -> Result<()> {
    let mut data = vec![0; request.len.min(STEP) as usize];
    let request = Request { len: request.len.min(PAYLOAD_MAX), ..*request };
    steps(&request, gone, |offset, len| disk.read(offset, &mut data[..len]))
}

/// Runs `step` over a range, until the client is gone.
fn steps(
    request: &Request,
    gone: &dyn Fn() -> bool,
    mut step: impl FnMut(u64, usize) -> Result<()>,
) -> Result<()> {
    let mut done = 0;
    while done < request.len && !gone() {
        let len = (request.len - done).min(STEP);
        step(request.offset + u64::from(done), len as usize)?;
        done += len;
    }
    Ok(())
}

fn status(disk: &dyn Disk, mode: Mode, request: &Request) -> Result<Reply> {
    if !mode.status {
        return Err(Error::BadRequest { why: "no metadata context was chosen" });
    }
    if request.len == 0 {
        return Err(Error::BadRequest { why: "it has no length" });
    }
    let end = request.offset + u64::from(request.len);
    let most = if request.has(cmd_flag::REQ_ONE) { 1 } else { EXTENTS_MAX };
    let mut extents: Vec<(u32, u32)> = Vec::new();
    let mut at = request.offset;
    while at < end && extents.len() < most {
        let data = disk.next(at, Extent::Data)?.clamp(at, end);
        let (stop, state) = match data > at {
            true => (data, state::HOLE | state::ZERO),
            // If it became a hole just now, it is reported as data, which is always allowed.
            false => (disk.next(at, Extent::Hole)?.clamp(at + 1, end), 0),
        };
        let len = u32::try_from(stop - at).expect("no longer than the request");
        match extents.last_mut() {
            Some((before, same)) if *same == state => *before += len,
            _ => extents.push((len, state)),
        }
        at = stop;
    }
    Ok(Reply::status(request.cookie, &extents))
}

#[cfg(test)]
mod tests;
