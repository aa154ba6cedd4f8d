//! `zstream recompress`: all blocks compressed in another way (`zstream_recompress.c`).

use codec::compress::{ZstdLevel, compress};
use console::getopt::{Found, Getopt, Opt};
use ondisk::CompressKind;
use ondisk::replay::{Crypt, Record, Write};
use stream::Packet;
use stream::rewrite::Change;

use crate::Io;
use crate::decompress::{uncompressed, unpack};
use crate::edit::{Why, edit, invalid, standard_input};
use crate::usage;

/// What compressed payloads are rounded up to (`SPA_MINBLOCKSIZE`).
const SECTOR: usize = 512;
/// The level with which a compressor's default is meant (`ZIO_COMPLEVEL_DEFAULT`).
const DEFAULT_LEVEL: u8 = 255;

/// Runs `zstream recompress`. Returns the exit code.
pub(crate) fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    match prepare(io, args) {
        Ok(target) => convert(io, target).unwrap_or_else(|code| code),
        Err(code) => code,
    }
}

/// How blocks are to be compressed.
#[derive(Debug, Clone, Copy)]
struct Target {
    kind: CompressKind,
    /// The level of zstd. `None` if there is no such level.
    level: Option<ZstdLevel>,
}

fn prepare(io: &mut Io<'_>, args: &[String]) -> Result<Target, i32> {
    const VERB: &str = "recompress";
    let mut level = 0;
    let mut g = Getopt::new(args, "l:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('l'), text) => match integer(&text) {
                Some(number) => level = number,
                None => {
                    writeln!(io.err, "failed to parse level '{text}'");
                    return Err(usage(io, VERB));
                }
            },
            Found::Is(..) => {}
            Found::Invalid(c) => return Err(invalid(io, VERB, c, "invalid option")),
            Found::Missing(c) => return Err(invalid(io, VERB, c, "option requires an argument")),
        }
    }
    let operands = g.operands();
    let [name] = &operands[..] else { return Err(usage(io, VERB)) };
    let Some(kind) = compressor(name) else {
        writeln!(io.err, "Invalid compression type {name}.");
        return Err(2);
    };
    // As OpenZFS does, the level becomes a byte. Without one, or with one that zstd does not have,
    // zstd compresses nothing.
    let level = match level as u8 {
        DEFAULT_LEVEL => Some(ZstdLevel::DEFAULT),
        level => ZstdLevel::from_disk(level),
    };
    Ok(Target { kind, level })
}

/// The compressor of this name, in the names of `zio_compress_table`; `off` for none.
fn compressor(name: &str) -> Option<CompressKind> {
    if name == "off" {
        return Some(CompressKind::Off);
    }
    let all = (0..=u8::MAX).map_while(|number| CompressKind::from_disk(number).ok());
    all.filter(|kind| compresses(*kind)).find(|kind| kind.name() == name)
}

/// Whether it is a compressor, and no other value of a property or block pointer.
fn compresses(kind: CompressKind) -> bool {
    !matches!(kind, CompressKind::Inherit | CompressKind::On | CompressKind::Off | CompressKind::Empty)
}

/// Parses the number at the start of a word as C's `scanf` does.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let mut digits = digits.chars().map_while(|c| c.to_digit(10)).peekable();
    digits.peek()?;
    let sign = if negative { -1 } else { 1 };
    Some(digits.fold(0i64, |all, digit| all.saturating_mul(10).saturating_add(sign * i64::from(digit))))
}

fn convert(io: &mut Io<'_>, target: Target) -> Result<i32, i32> {
    let input = standard_input(io)?;
    Ok(edit(io, input, |_, packet| match &packet.record {
        Record::WriteByRef(_) => Err(Why::Deduplicated),
        Record::Write(write) => block(packet, write, target),
        _ => Ok(Change::Keep),
    }))
}

/// A block, compressed as wanted. An encrypted one stays.
fn block(packet: &Packet<'_>, write: &Write, target: Target) -> Result<Change, Why> {
    if write.crypt.salt != Crypt::default().salt {
        return Ok(Change::Keep);
    }
    let number = write.compression;
    let kind = CompressKind::from_disk(number).map_err(|_| Why::Compression(number))?;
    let unpacked = if compresses(kind) {
        let (object, offset) = (write.object, write.offset);
        let plain = unpack(kind, packet.payload, write.logical_size);
        Some(plain.ok_or(Why::Decompression { kind: number, object, offset })?)
    } else {
        None
    };
    let plain = unpacked.as_deref().unwrap_or(packet.payload);
    // A payload of another size than the block is refused, as its record can't be written.
    let whole = plain.len() as u64 == write.logical_size;
    let Some(packed) = pack(target, plain).filter(|_| whole) else {
        return Ok(uncompressed(packet, write, unpacked));
    };
    let fields = Write { compression: target.kind as u8, compressed_size: packed.len() as u64, ..*write };
    Ok(Change::Replace { raw: packet.with(&Record::Write(fields)), payload: Some(packed) })
}

/// A block in whole sectors, or `None` if that saves none.
fn pack(target: Target, plain: &[u8]) -> Option<Vec<u8>> {
    let level = match target.kind {
        CompressKind::Zstd => target.level?,
        _ => ZstdLevel::DEFAULT,
    };
    if plain.is_empty() {
        return None;
    }
    let mut packed = vec![0; plain.len()];
    let size = compress(target.kind, level, plain, &mut packed)?;
    let rounded = size.next_multiple_of(SECTOR);
    if rounded >= plain.len() {
        return None;
    }
    packed.truncate(rounded);
    packed[size..].fill(0);
    Some(packed)
}
