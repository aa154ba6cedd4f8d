//! Requests: taken apart, checked, and done on a disk.
//!
//! # Theory
//! A request is done whole by one thread, which makes its reply. What a client may ask for is bounded before anything is allocated: data by
//! [`PAYLOAD_MAX`], extents by [`EXTENTS_MAX`]; what has no data may be as long as the export.
//!
//! Runs of zeroes in what was read are sent as holes, wherever they come from: a look at the bytes is cheaper than a walk down the block tree, and can't be
//! at odds with them.

use crate::abi::{REQUEST_MAGIC, RequestHead, cmd, cmd_flag, state};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::reply::Reply;
use dmu::Extent;
use zerocopy::FromBytes;

/// Most bytes that are read or written by one request.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Most extents in one reply; the client asks on from there.
pub const EXTENTS_MAX: usize = 4096;
/// Runs of zeroes are told in units of at least so many bytes: a head for each costs more than a few zeroes.
const ZERO_UNIT: usize = 4096;
/// How much is zeroed or read ahead at a time, bytes.
const STEP: u32 = 1 << 20;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// One of [`cmd`], or something unknown.
    pub command: u16,
    /// Some of [`cmd_flag`], or something unknown.
    pub flags: u16,
    /// What its answer is known by.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Bytes of a request's head.
pub const REQUEST_LEN: usize = size_of::<RequestHead>();

impl Request {
    /// Takes a head apart; `None` if it is none: then nobody knows where the next begins.
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

    /// Bytes that follow the head.
    pub fn payload(&self) -> u32 {
        if self.command == cmd::WRITE { self.len } else { 0 }
    }

    /// Bytes of memory that it may need until its reply is sent, about.
    pub fn cost(&self) -> u32 {
        const LEAST: u32 = 4096;
        match self.command {
            cmd::READ | cmd::WRITE => self.len.clamp(LEAST, PAYLOAD_MAX),
            cmd::BLOCK_STATUS => 3 * 8 * EXTENTS_MAX as u32,
            cmd::CACHE | cmd::WRITE_ZEROES => STEP,
            _ => LEAST,
        }
    }

    fn is_write(&self) -> bool {
        matches!(self.command, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES)
    }

    /// Flags that its command knows.
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

/// What was negotiated on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Replies are structured.
    pub structured: bool,
    /// The context `base:allocation` was chosen.
    pub status: bool,
    /// Its client was told that it can't write.
    pub read_only: bool,
}

/// Does a request, whose payload is all there, and makes its reply. `gone` says whether anybody still waits for it.
pub fn run(disk: &dyn Disk, mode: Mode, request: &Request, payload: &[u8], gone: &dyn Fn() -> bool) -> Reply {
    match done(disk, mode, request, payload, gone) {
        Ok(reply) => reply,
        Err(error) => {
            let code = error.code(request.is_write());
            tracing::debug!(?request, %error, "a request failed");
            match mode.structured {
                true => Reply::error(request.cookie, code, &error.to_string()),
                false => Reply::simple(request.cookie, Some(code)),
            }
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

/// The ends of runs of zeroes and of data, in units of `unit` bytes of the export.
fn zeroes(data: &[u8], offset: u64, unit: usize) -> Vec<(usize, bool)> {
    let mut extents: Vec<(usize, bool)> = Vec::new();
    let mut start = 0;
    // The first unit may be cut off.
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

/// A hint: blocks that it covers in part stay as they are, since zeroing these would mean reading them.
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

/// Reads what a client is about to ask for. More than a request could read is not read ahead.
fn cache(disk: &dyn Disk, request: &Request, gone: &dyn Fn() -> bool) -> Result<()> {
    let mut data = vec![0; request.len.min(STEP) as usize];
    let request = Request { len: request.len.min(PAYLOAD_MAX), ..*request };
    steps(&request, gone, |offset, len| disk.read(offset, &mut data[..len]))
}

/// Goes through a range, as long as somebody waits for it.
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
            // One that became a hole just now is told as data: that is always true enough.
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
