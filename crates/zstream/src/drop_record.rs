//! `zstream drop_record`: a stream without the blocks that the command line names.
//!
//! # Theory
//! It repairs streams of datasets with blocks where no block can be (OpenZFS issue 18239). OpenZFS
//! 2.3 lacks this verb; it follows OpenZFS's `zstream_drop_record.c` of March 2026.

use std::collections::HashSet;

use ondisk::replay::Record;
use stream::rewrite::Change;

use crate::Io;
use crate::edit::{Why, edit, place, standard_input, verbose};

/// Runs `zstream drop_record`. Returns the exit code.
pub(crate) fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    match prepare(io, args) {
        Ok((verbose, places)) => convert(io, verbose, &places).unwrap_or_else(|code| code),
        Err(code) => code,
    }
}

/// Objects and offsets.
type Places = HashSet<(u64, u64)>;

fn prepare(io: &mut Io<'_>, args: &[String]) -> Result<(bool, Places), i32> {
    let (verbose, operands) = verbose(io, "drop_record", args)?;
    let mut places = Places::new();
    for word in &operands {
        // What is behind another comma is ignored, as in OpenZFS.
        let (place, _) = place(io, "drop_record", word)?;
        places.insert(place);
    }
    Ok((verbose, places))
}

fn convert(io: &mut Io<'_>, verbose: bool, places: &Places) -> Result<i32, i32> {
    let input = standard_input(io)?;
    Ok(edit(io, input, |err, packet| {
        let (name, object, offset) = match &packet.record {
            Record::WriteByRef(_) => return Err(Why::Deduplicated),
            Record::Write(write) => ("WRITE", write.object, write.offset),
            Record::WriteEmbedded(write) => ("WRITE_EMBEDDED", write.object, write.offset),
            _ => return Ok(Change::Keep),
        };
        if !places.contains(&(object, offset)) {
            return Ok(Change::Keep);
        }
        if verbose {
            writeln!(err, "Dropping {name} record for object {object} offset {offset}");
        }
        Ok(Change::Drop)
    }))
}
