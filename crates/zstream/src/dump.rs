//! `zstream dump`: the records of a stream, and how many there are of each type
//! (`zstream_dump.c`).

use std::fs::File;
use std::io::{BufReader, Read};

use codec::Checksum;
use console::Out;
use console::getopt::{Found, Getopt, Opt};
use ondisk::Nvlist;
use ondisk::replay::{Begin, Crypt, RECORD_SIZE, Record, features};
use stream::{Error, Packet, Reader};

use crate::{Io, usage};

const BYTES_PER_LINE: usize = 16;
const DUMP_GROUPING: usize = 4;

/// How much is shown.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    /// Each record (`-v`).
    records: bool,
    /// The checksum of each record (`-vv`).
    checksums: bool,
    /// The payloads (`-d`).
    data: bool,
    /// Whatever the checksums are (`-C`).
    unchecked: bool,
}

/// Numbers of records and bytes, by type.
#[derive(Default)]
struct Counts {
    records: [u64; Record::TYPES as usize],
    bytes: [u64; Record::TYPES as usize],
}

/// Runs `zstream dump`. Returns the exit code.
pub(crate) fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    let mut options = Options::default();
    let mut g = Getopt::new(args, ":vCd", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('C'), _) => options.unchecked = true,
            Found::Is(Opt::Short('v'), _) => {
                options.checksums = options.records;
                options.records = true;
            }
            Found::Is(..) => (options.records, options.checksums, options.data) = (true, true, true),
            Found::Invalid(c) | Found::Missing(c) => {
                writeln!(io.err, "invalid option '{c}'");
                return usage(io, "dump");
            }
        }
    }
    let input: Box<dyn Read + '_> = match g.operands().first() {
        Some(name) => match File::open(name) {
            Ok(file) => Box::new(BufReader::with_capacity(1 << 20, file)),
            Err(e) => {
                writeln!(io.err, "Error while opening file '{name}': {}", console::words::io(&e));
                return 1;
            }
        },
        None if io.terminal => {
            io.err.put(
                "Error: The send stream is a binary format and can not be read from a\n\
                 terminal.  Standard input must be redirected, or a file must be\n\
                 specified as a command-line argument.\n",
            );
            return 1;
        }
        None => std::mem::replace(&mut io.input, Box::new(std::io::empty())),
    };
    let mut reader = if options.unchecked { Reader::unchecked(input) } else { Reader::new(input) };
    let mut counts = Counts::default();
    if let Err(error) = records(io, &mut reader, options, &mut counts)
        && let Some(code) = failed(io, &error)
    {
        return code;
    }
    summary(io.out, &counts, reader.position());
    0
}

fn records(
    io: &mut Io<'_>,
    reader: &mut Reader<impl Read>,
    options: Options,
    counts: &mut Counts,
) -> stream::Result<()> {
    let mut raw = false;
    while let Some(packet) = reader.next_packet()? {
        let kind = packet.record.number() as usize;
        counts.records[kind] += 1;
        counts.bytes[kind] += packet.payload.len() as u64;
        match &packet.record {
            Record::Begin(b) => {
                raw = b.features() & features::RAW != 0;
                begin(io, b, packet.payload, options);
            }
            Record::End(e) => {
                if let Some(before) = packet.before.filter(|sum| *sum != Checksum(e.checksum)) {
                    writeln!(io.out, "Expected checksum differs from checksum in stream.");
                    writeln!(io.out, "Expected checksum = {}", slashes(&before.0));
                }
                writeln!(io.out, "END checksum = {}", slashes(&e.checksum));
            }
            Record::Object(o) if raw && o.bonus_len > o.raw_bonus_len => writeln!(
                io.err,
                "Warning: Object {} has bonuslen = {} > raw_bonuslen = {}\n",
                o.object, o.bonus_len, o.raw_bonus_len
            ),
            _ => {}
        }
        if options.records {
            other(io.out, &packet);
        }
        if options.data && !matches!(packet.record, Record::Begin(_)) {
            bytes(io.out, packet.payload);
        }
        if options.checksums && !matches!(packet.record, Record::Begin(_)) {
            writeln!(io.out, "    checksum = {}", slashes(&packet.stored.0));
        }
    }
    Ok(())
}

/// Reports why a stream was not read to its end. Returns the exit code if there is nothing to
/// summarize.
fn failed(io: &mut Io<'_>, error: &Error) -> Option<i32> {
    match error {
        Error::Magic { .. } => {
            io.err.put("Invalid stream (bad magic number)\n");
            Some(1)
        }
        Error::Checksum { computed, .. } => {
            io.err.put("invalid checksum\n");
            writeln!(io.out, "Incorrect checksum in record header.");
            writeln!(io.out, "Expected checksum = {}", slashes(&computed.0));
            None
        }
        Error::Record { source, .. } => {
            writeln!(io.err, "{error}: {source}");
            writeln!(io.out, "Aborting.");
            Some(1)
        }
        Error::Io { source, .. } | Error::Write { source, .. } => {
            writeln!(io.err, "{error}: {}", console::words::io(source));
            Some(1)
        }
        // OpenZFS says nothing of a stream that is cut.
        Error::Empty { .. } | Error::Truncated { .. } | Error::Order { .. } => {
            writeln!(io.err, "{error}");
            None
        }
    }
}

fn begin(io: &mut Io<'_>, b: &Begin, list: &[u8], options: Options) {
    let out = &mut *io.out;
    writeln!(out, "BEGIN record");
    writeln!(out, "\thdrtype = {}", b.version_info & 3);
    writeln!(out, "\tfeatures = {:x}", b.features());
    writeln!(out, "\tmagic = {:x}", b.magic);
    writeln!(out, "\tcreation_time = {:x}", b.creation_time);
    writeln!(out, "\ttype = {}", b.objset_type);
    writeln!(out, "\tflags = 0x{:x}", b.flags);
    writeln!(out, "\ttoguid = {:x}", b.to_guid);
    writeln!(out, "\tfromguid = {:x}", b.from_guid);
    out.put("\ttoname = ");
    out.put_bytes(b.name());
    writeln!(out, "\n\tpayloadlen = {}", list.len());
    if options.records {
        out.put("\n");
    }
    if list.is_empty() {
        return;
    }
    match Nvlist::decode(list) {
        Ok(list) => write!(out, "{}", list.tabbed()),
        Err(error) => writeln!(io.err, "the list behind BEGIN can't be decoded: {error}"),
    }
}

/// A line of each record but BEGIN and END.
fn other(out: &mut Out, packet: &Packet<'_>) {
    match &packet.record {
        Record::Begin(_) | Record::End(_) => {}
        Record::Object(r) => writeln!(
            out,
            "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} raw_bonuslen = {} \
             flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
            r.object,
            r.kind,
            r.bonus_type,
            r.block_size,
            r.bonus_len,
            r.dn_slots,
            r.raw_bonus_len,
            r.flags,
            r.max_block,
            r.indirect_shift,
            r.levels,
            r.block_pointers
        ),
        Record::FreeObjects(r) => writeln!(out, "FREEOBJECTS firstobj = {} numobjs = {}", r.first, r.count),
        Record::Write(r) => writeln!(
            out,
            "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} \
             logical_size = {} compressed_size = {} payload_size = {} props = {:x} {}",
            r.object,
            r.kind,
            r.checksum_type,
            r.compression,
            r.flags,
            r.offset,
            r.logical_size,
            r.compressed_size,
            packet.payload.len(),
            r.key_prop,
            crypt(&r.crypt)
        ),
        Record::Free(r) => {
            writeln!(out, "FREE object = {} offset = {} length = {}", r.object, r.offset, r.length as i64);
        }
        Record::WriteByRef(r) => writeln!(
            out,
            "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} \
             refguid = {:x} refobject = {} refoffset = {}",
            r.object,
            r.checksum_type,
            r.key_prop,
            r.offset,
            r.length,
            r.to_guid,
            r.ref_guid,
            r.ref_object,
            r.ref_offset
        ),
        record => rarer(out, record, packet.payload.len()),
    }
}

/// A line of the records that most streams do not have.
fn rarer(out: &mut Out, record: &Record, payload: usize) {
    match record {
        Record::Spill(r) => writeln!(
            out,
            "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} \
             payload_size = {} {}",
            r.object,
            r.length,
            r.flags,
            r.compression,
            r.compressed_size,
            payload,
            crypt(&r.crypt)
        ),
        Record::WriteEmbedded(r) => writeln!(
            out,
            "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} lsize = {} \
             psize = {}",
            r.object,
            r.offset,
            r.length,
            r.to_guid,
            r.compression,
            r.embedded_type,
            r.logical_size,
            r.physical_size
        ),
        Record::ObjectRange(r) => writeln!(
            out,
            "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
            r.first,
            r.slots,
            r.flags,
            crypt(&r.crypt)
        ),
        Record::Redact(r) => {
            writeln!(out, "REDACT object = {} offset = {} length = {}", r.object, r.offset, r.length);
        }
        Record::Begin(_)
        | Record::End(_)
        | Record::Object(_)
        | Record::FreeObjects(_)
        | Record::Write(_)
        | Record::Free(_)
        | Record::WriteByRef(_) => {}
    }
}

fn slashes(words: &[u64; 4]) -> String {
    let [a, b, c, d] = words;
    format!("{a:x}/{b:x}/{c:x}/{d:x}")
}

fn crypt(c: &Crypt) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("salt = {} iv = {} mac = {}", hex(&c.salt), hex(&c.iv), hex(&c.mac))
}

/// Bytes in hexadecimal and as text (`print_block`).
fn bytes(out: &mut Out, payload: &[u8]) {
    let width = BYTES_PER_LINE * 3 + BYTES_PER_LINE / DUMP_GROUPING + 2;
    for line in payload.chunks(BYTES_PER_LINE) {
        let mut text = String::new();
        for group in line.chunks(DUMP_GROUPING) {
            text.push(' ');
            group.iter().for_each(|b| text += &format!("{b:02x} "));
        }
        let shown = |b: &u8| if (0x20..0x7f).contains(b) { *b as char } else { '.' };
        let groups: Vec<String> =
            line.chunks(DUMP_GROUPING).map(|group| group.iter().map(shown).collect()).collect();
        writeln!(out, "{text:width$}{}", groups.join(" "));
    }
}

fn summary(out: &mut Out, counts: &Counts, stream: u64) {
    let Counts { records, bytes } = counts;
    writeln!(out, "SUMMARY:");
    for (name, kind) in [
        ("BEGIN", 0),
        ("END", 5),
        ("OBJECT", 1),
        ("FREEOBJECTS", 2),
        ("WRITE", 3),
        ("WRITE_BYREF", 6),
        ("WRITE_EMBEDDED", 8),
        ("FREE", 4),
        ("SPILL", 7),
    ] {
        writeln!(out, "\tTotal DRR_{name} records = {} ({} bytes)", records[kind], bytes[kind]);
    }
    let (total, payload) = (records.iter().sum::<u64>(), bytes.iter().sum::<u64>());
    let overhead = total * RECORD_SIZE as u64;
    writeln!(out, "\tTotal records = {total}");
    writeln!(out, "\tTotal payload size = {payload} (0x{payload:x})");
    writeln!(out, "\tTotal header overhead = {overhead} (0x{overhead:x})");
    writeln!(out, "\tTotal stream length = {stream} (0x{stream:x})");
}
