//! `zstream redup`: a deduplicated stream in full (`zstream_redup.c`).
//!
//! # Theory
//! `zfs send -D` of OpenZFS before 2.0 sent a block once. Where the block came again, the record
//! WRITE_BYREF named the snapshot, object and offset of the first WRITE. Receivers since 2.0 refuse
//! that. This verb writes a WRITE in its place, and takes the payload from the file again. So it
//! keeps a few words of memory for each WRITE, no payloads, and needs a file in which it can seek.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;

use ondisk::ByteOrder;
use ondisk::replay::{Begin, RECORD_SIZE, Record, WriteByRef, features, list_length};
use stream::rewrite::Change;

use crate::Io;
use crate::edit::{Why, edit, refuse_terminal, verbose};
use crate::usage;

/// Size of what OpenZFS keeps of a WRITE (`redup_entry_t`), which `-v` reports.
const ENTRY_SIZE: u64 = 40;

/// Runs `zstream redup`. Returns the exit code.
pub(crate) fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    let (verbose, operands) = match verbose(io, "redup", args) {
        Ok(read) => read,
        Err(code) => return code,
    };
    let [name] = &operands[..] else { return usage(io, "redup") };
    if let Err(code) = refuse_terminal(io) {
        return code;
    }
    let file = match File::open(name) {
        Ok(file) => file,
        Err(e) => {
            writeln!(io.err, "Error while opening file '{name}': {}", console::words::io(&e));
            return 1;
        }
    };
    let mut blocks = Blocks::default();
    let (mut records, mut references) = (0u64, 0u64);
    let code = edit(io, BufReader::with_capacity(1 << 20, &file), |_, packet| {
        records += 1;
        match &packet.record {
            Record::Begin(begin) => {
                let raw = packet.with(&Record::Begin(without_dedup(begin)));
                Ok(Change::Replace { raw, payload: None })
            }
            Record::Write(write) => {
                blocks.insert((write.to_guid, write.object, write.offset), packet.at);
                Ok(Change::Keep)
            }
            Record::WriteByRef(reference) => {
                references += 1;
                blocks.resolve(&file, packet.order, reference)
            }
            _ => Ok(Change::Keep),
        }
    });
    if verbose && code == 0 {
        writeln!(
            io.err,
            "converted stream with {records} total records, including {references} dedup records, using {}B memory.",
            console::numbers::num(blocks.inserted * ENTRY_SIZE)
        );
    }
    code
}

/// A BEGIN that does not announce a deduplicated stream.
fn without_dedup(begin: &Begin) -> Begin {
    let dedup = features::DEDUP | features::DEDUPPROPS;
    Begin { version_info: begin.version_info & !(dedup << Begin::FEATURES_SHIFT), ..*begin }
}

/// Where the file has the blocks that later records may refer to.
#[derive(Default)]
struct Blocks {
    /// Guid of the snapshot, object and offset, and the place of the last WRITE of that.
    places: HashMap<(u64, u64, u64), u64>,
    inserted: u64,
}

impl Blocks {
    fn insert(&mut self, block: (u64, u64, u64), at: u64) {
        self.places.insert(block, at);
        self.inserted += 1;
    }

    /// The WRITE that says in full what this record refers to.
    fn resolve(&self, file: &File, order: ByteOrder, reference: &WriteByRef) -> Result<Change, Why> {
        let block = (reference.ref_guid, reference.ref_object, reference.ref_offset);
        let (guid, object, offset) = block;
        let at = *self.places.get(&block).ok_or(Why::Missing { guid, object, offset })?;
        let mut raw = Box::new([0; RECORD_SIZE]);
        file.read_exact_at(&mut raw[..], at).map_err(Why::Reread)?;
        // The record was right when it was first read. Since then, the file may have changed.
        let record = Record::decode(&raw, order).map_err(|_| Why::Changed(at))?;
        let size = record.payload_size(list_length(&raw, order)).map_err(|_| Why::Changed(at))?;
        let Record::Write(mut write) = record else { return Err(Why::Changed(at)) };
        if (write.to_guid, write.object, write.offset) != block {
            return Err(Why::Changed(at));
        }
        let mut payload = vec![0; size];
        file.read_exact_at(&mut payload, at + RECORD_SIZE as u64).map_err(Why::Reread)?;
        (write.to_guid, write.object, write.offset) = (reference.to_guid, reference.object, reference.offset);
        Record::Write(write).store(&mut raw, order);
        Ok(Change::Replace { raw, payload: Some(payload) })
    }
}

#[cfg(test)]
mod tests;
