//! `zstream decompress`: the blocks that the command line names, decompressed
//! (`zstream_decompress.c`).
//!
//! # Theory
//! It repairs streams whose records say that a block is not compressed though it is, or the other
//! way round (OpenZFS issue 12762).

use std::collections::HashMap;

use codec::compress::decompress;
use ondisk::CompressKind;
use ondisk::replay::{MAX_DATA, Record, Write};
use stream::Packet;
use stream::rewrite::Change;

use crate::Io;
use crate::edit::{Why, edit, place, standard_input, verbose};

/// Runs `zstream decompress`. Returns the exit code.
pub(crate) fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    match prepare(io, args) {
        Ok((verbose, kinds)) => convert(io, verbose, &kinds).unwrap_or_else(|code| code),
        Err(code) => code,
    }
}

/// Compressors by object and offset.
type Kinds = HashMap<(u64, u64), CompressKind>;

fn prepare(io: &mut Io<'_>, args: &[String]) -> Result<(bool, Kinds), i32> {
    let (verbose, operands) = verbose(io, "decompress", args)?;
    let mut kinds = Kinds::new();
    for word in &operands {
        let (place, kind) = place(io, "decompress", word)?;
        let kind = match kind.unwrap_or("lz4") {
            "off" => CompressKind::Off,
            "lz4" => CompressKind::Lz4,
            "lzjb" => CompressKind::Lzjb,
            // All levels have the same format.
            "gzip" => CompressKind::Gzip1,
            "zle" => CompressKind::Zle,
            "zstd" => CompressKind::Zstd,
            other => {
                writeln!(io.err, "Invalid compression type {other}.");
                io.err.put("Supported types are off, lz4, lzjb, gzip, zle, and zstd\n");
                return Err(2);
            }
        };
        kinds.insert(place, kind);
    }
    Ok((verbose, kinds))
}

fn convert(io: &mut Io<'_>, verbose: bool, kinds: &Kinds) -> Result<i32, i32> {
    let input = standard_input(io)?;
    Ok(edit(io, input, |err, packet| {
        let write = match &packet.record {
            Record::WriteByRef(_) => return Err(Why::Deduplicated),
            Record::Write(write) => write,
            _ => return Ok(Change::Keep),
        };
        let (object, offset) = (write.object, write.offset);
        let Some(kind) = kinds.get(&(object, offset)) else { return Ok(Change::Keep) };
        let (said, payload) = if *kind == CompressKind::Off {
            ("Resetting compression type to off for", None)
        } else if let Some(plain) = unpack(*kind, packet.payload, write.logical_size) {
            ("successfully decompressed", Some(plain))
        } else {
            // An object can have other contents at this offset in other streams of a package.
            writeln!(err, "zstream: decompression failed for ino {object} offset {offset}");
            return Ok(Change::Keep);
        };
        if verbose {
            writeln!(err, "{said} ino {object} offset {offset}");
        }
        Ok(uncompressed(packet, write, payload))
    }))
}

/// A block in its logical size, or `None` if it was not compressed like this.
pub(crate) fn unpack(kind: CompressKind, packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok().filter(|_| size <= MAX_DATA)?;
    let mut plain = vec![0; size];
    decompress(kind, packed, &mut plain).ok()?;
    Some(plain)
}

/// The record as that of a block that is not compressed.
pub(crate) fn uncompressed(packet: &Packet<'_>, write: &Write, payload: Option<Vec<u8>>) -> Change {
    let raw = packet.with(&Record::Write(Write { compression: 0, compressed_size: 0, ..*write }));
    Change::Replace { raw, payload }
}
