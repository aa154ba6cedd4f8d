//! The verbs that change a stream, on streams that are made here.

use std::io;

use console::Out;
use ondisk::ByteOrder;
use ondisk::replay::{RECORD_SIZE, Record, Write, features};
use stream::Writer;
use stream::check::check;
use zstream::Io;

use crate::made::{
    FIRST, Made, all_types, begin, by_ref, deduplicated, embedded, noise, records, text, write,
};
use crate::{Ran, run, run_bytes};

/// Each verb with a command line that leaves most records alone. `redup` gets a file instead.
const VERBS: [&[&str]; 3] = [&["decompress"], &["recompress", "off"], &["drop_record"]];

/// Runs a verb that has to succeed, and returns what it wrote.
fn changed(args: &[&str], input: &[u8]) -> Vec<u8> {
    let (code, out, err) = run_bytes(zstream::run, args, input);
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    out
}

/// Runs `redup` on a file with these bytes.
fn redup(options: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input).unwrap();
    let path = file.path().to_str().unwrap();
    run_bytes(zstream::run, &[&["redup"], options, &[path]].concat(), &[])
}

fn whole(bytes: &[u8]) -> bool {
    check(bytes, drop).is_ok()
}

/// Goal: a verb that has nothing to change changes nothing, in both byte orders.
#[test]
fn nothing_to_change() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = all_types(order);
        assert!(whole(&bytes));
        for verb in VERBS {
            assert!(changed(verb, &bytes) == bytes, "{verb:?}");
        }
        assert!(redup(&[], &bytes) == (0, bytes, String::new()));
    }
}

/// Goal: a deduplicated package becomes the package in full, and `-v` counts as OpenZFS does.
#[test]
fn references_are_resolved() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let [short, full] = deduplicated(order);
        assert!(whole(&short) && whole(&full));
        let (code, out, err) = redup(&["-v"], &short);
        assert!(out == full, "{order:?}");
        assert_eq!(code, 0);
        assert_eq!(
            err,
            "converted stream with 15 total records, including 4 dedup records, using 160B memory.\n"
        );
    }
}

/// Goal: a reference to what no earlier record has is named, be it a later one.
#[test]
fn references_to_nothing() {
    for block in [(FIRST, 3, 512), (FIRST, 4, 0), (FIRST + 1, 3, 0), (FIRST, 5, 0)] {
        let bytes = Made::new(ByteOrder::Little)
            .begin(&begin(FIRST, 1, features::DEDUP), &[])
            .block(FIRST, 3, 0, &[1; 512])
            .put(&by_ref(FIRST, 4, 0, block), &[])
            .block(FIRST, 5, 0, &[1; 512])
            .end(FIRST)
            .bytes();
        let (code, out, err) = redup(&[], &bytes);
        assert!(code == 1 && !whole(&out), "{block:?}");
        assert!(err.starts_with("no record before has the block at offset "), "{err}");
        assert!(err.ends_with("zstream: stopped at record 2 at byte 1136\n"), "{err}");
    }
}

/// Goal: the other verbs refuse references, in OpenZFS's words.
#[test]
fn references_elsewhere() {
    let [short, _] = deduplicated(ByteOrder::Little);
    for verb in VERBS {
        let (code, out, err) = run_bytes(zstream::run, verb, &short);
        assert!(code == 1 && !whole(&out), "{verb:?}");
        assert_eq!(
            err,
            "Deduplicated streams are not supported\nzstream: stopped at record 5 at byte 3128\n"
        );
    }
}

/// Goal: `drop_record` drops the named WRITE and WRITE_EMBEDDED, and nothing else: no other record
/// of the same object and offset, and no other block.
#[test]
fn named_records_are_dropped() {
    let bytes = all_types(ByteOrder::Little);
    let args = ["drop_record", "-v", "3,0", "3,0x2000,ignored", "4,1", "9,0"];
    let (code, out, err) = run_bytes(zstream::run, &args, &bytes);
    assert_eq!(code, 0);
    assert_eq!(
        err,
        "Dropping WRITE record for object 3 offset 0\nDropping WRITE_EMBEDDED record for object 3 offset 8192\n"
    );
    assert!(whole(&out));
    let gone = |record: &Record| match record {
        Record::Write(w) => (w.object, w.offset) == (3, 0),
        Record::WriteEmbedded(w) => w.offset == 8192,
        _ => false,
    };
    // Sums change behind the first record that is gone.
    let compared = |bytes: &[u8]| -> Vec<_> {
        records(bytes).into_iter().map(|(r, _, p)| (r, p)).filter(|(r, _)| !gone(r)).collect()
    };
    let (had, has) = (compared(&bytes), compared(&out));
    assert_eq!(has.len(), records(&bytes).len() - 2);
    assert_eq!(records(&out).len(), has.len());
    let (last, rest) = has.split_last().unwrap();
    assert!(rest == &had[..had.len() - 1] && matches!(last.0, Record::End(_)));
}

/// Goal: what `recompress` packs, `recompress off` and `decompress` unpack to the same stream, by
/// each compressor and in both byte orders. Payloads that can't shrink by a sector stay.
#[test]
fn there_and_back() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = all_types(order);
        for (name, number, unpack) in [
            ("lzjb", 3, "lzjb"),
            ("gzip-1", 5, "gzip"),
            ("gzip-9", 13, "gzip"),
            ("zle", 14, "zle"),
            ("lz4", 15, "lz4"),
            ("zstd", 16, "zstd"),
        ] {
            let input = if name == "zle" { zeros(order) } else { bytes.clone() };
            let packed = changed(&["recompress", "-l", "3", name], &input);
            assert!(whole(&packed), "{name}");
            let of = |r: Record| if let Record::Write(w) = r { Some(w) } else { None };
            let all: Vec<Write> = records(&packed).into_iter().filter_map(|(r, ..)| of(r)).collect();
            assert_eq!((all[0].compression, all[0].logical_size), (number, 4096), "{name}");
            assert!(all[0].compressed_size.is_multiple_of(512) && all[0].compressed_size < 4096);
            let padding = |payload: &[u8]| {
                let len = u32::from_be_bytes(*payload.first_chunk().unwrap()) as usize;
                payload[len + if number == 16 { 8 } else { 4 }..].iter().all(|byte| *byte == 0)
            };
            let payload = &records(&packed).into_iter().find(|(r, ..)| of(*r).is_some()).unwrap().2;
            assert!(number < 15 || padding(payload), "{name}: zeros up to whole sectors");
            let plain = |w: &Write| (w.compression, w.compressed_size) == (0, 0);
            assert!(all[1..].iter().all(plain), "{name}: noise, and what has one sector");
            assert!(changed(&["recompress", "off"], &packed) == input, "{name}");
            let place = format!("3,0,{unpack}");
            let ran = run_bytes(zstream::run, &["decompress", "-v", &place], &packed);
            assert!(ran == (0, input, "successfully decompressed ino 3 offset 0\n".to_owned()), "{name}");
        }
    }
}

/// A stream of a block with a long run of zeros, which is all that `zle` packs.
fn zeros(order: ByteOrder) -> Vec<u8> {
    let mut block = noise(4096);
    block[1024..3072].fill(0);
    Made::new(order)
        .begin(&begin(FIRST, 1, 0), &[])
        .block(FIRST, 3, 0, &block)
        .block(FIRST, 3, 4096, &noise(4096))
        .end(FIRST)
        .bytes()
}

/// Goal: blocks of any size come back, small and odd ones too.
#[test]
fn all_sizes() {
    for kind in ["lzjb", "gzip-6", "zle", "lz4", "zstd"] {
        for size in (0..2100).step_by(4).chain([131_072, 200_000, 1 << 20]) {
            let bytes = Made::new(ByteOrder::Little)
                .begin(&begin(FIRST, 1, 0), &[])
                .block(FIRST, 3, 0, &text(size))
                .block(FIRST, 4, 0, &vec![0; size])
                .end(FIRST)
                .bytes();
            let packed = changed(&["recompress", "-l3", kind], &bytes);
            assert!(packed.len() <= bytes.len() && whole(&packed), "{kind} {size}");
            assert!(changed(&["recompress", "off"], &packed) == bytes, "{kind} {size}");
        }
    }
}

/// Goal: the level is a byte, as in OpenZFS 2.3. Without one, or with one that zstd lacks, zstd
/// packs nothing; 255 means the default.
#[test]
fn levels_of_zstd() {
    let bytes = all_types(ByteOrder::Little);
    let at = |level: &[&str]| changed(&[&["recompress"], level, &["zstd"]].concat(), &bytes);
    let third = at(&["-l", "3"]);
    assert!(third.len() < bytes.len());
    for same in ["255", "259", " 3x", "-253", "+3", "99999999999999999999"] {
        assert!(at(&["-l", same]) == third, "{same}");
    }
    assert!(at(&["-l", "105"]) != third);
    for none in [&[][..], &["-l", "0"], &["-l", "20"], &["-l", "-5"], &["-l", "256"]] {
        assert!(at(none) == bytes, "{none:?}");
    }
}

/// A stream of one block, with its fields changed.
fn one_block(payload: &[u8], change: impl FnOnce(&mut Write)) -> Vec<u8> {
    let mut fields = write(FIRST, 3, 0, 4096);
    change(&mut fields);
    Made::new(ByteOrder::Little)
        .begin(&begin(FIRST, 1, 0), &[])
        .put(&Record::Write(fields), payload)
        .end(FIRST)
        .bytes()
}

/// Goal: an encrypted block stays as it is, whatever its compression; one bit of salt decides.
#[test]
fn encrypted_blocks() {
    let sealed = |salt: u8| {
        one_block(&noise(512), |w| {
            (w.compression, w.compressed_size, w.crypt.salt[7]) = (15, 512, salt);
        })
    };
    assert!(changed(&["recompress", "gzip-6"], &sealed(1)) == sealed(1));
    let (code, _, err) = run_bytes(zstream::run, &["recompress", "gzip-6"], &sealed(0));
    assert_eq!(code, 4);
    assert_eq!(
        err,
        "zstream: decompression type 15 failed for ino 3 offset 0\nzstream: stopped at record 1 at byte 312\n"
    );
}

/// Goal: compressors that do not exist, and sizes that do not fit, are errors with the exit codes
/// of OpenZFS; no stream comes out that can't be read.
#[test]
fn impossible_blocks() {
    let of = |compression: u8, size: u64| {
        one_block(&text(512), |w| {
            (w.compression, w.compressed_size, w.logical_size) = (compression, 512, size);
        })
    };
    let ran = |args: &[&str], bytes: &[u8]| {
        let (code, out, err) = run_bytes(zstream::run, args, bytes);
        assert!(code == 0 || !whole(&out), "{args:?}");
        (code, err)
    };
    let (code, err) = ran(&["recompress", "lz4"], &of(17, 512));
    assert_eq!(code, 3);
    assert!(
        err.starts_with("Invalid compression type in stream: 17\nzstream: stopped at record 1 "),
        "{err}"
    );
    // A size that no block has takes no memory.
    assert_eq!(ran(&["recompress", "off"], &of(15, u64::MAX)).0, 4);
    // Numbers that are no compressor mean that the payload is the block, if it has its size.
    for number in [1, 2, 4] {
        assert_eq!(ran(&["recompress", "lz4"], &of(number, 512)), (0, String::new()));
        for kind in ["off", "lz4"] {
            let (code, err) = ran(&["recompress", kind], &of(number, 4096));
            assert_eq!(code, 1, "{err}");
            assert!(err.contains("record 1 at byte 312: its payload has 512 bytes"), "{err}");
        }
    }
    let (code, err) = ran(&["decompress", "3,0,off"], &of(15, 4096));
    assert!(code == 1 && err.contains("record 1 at byte 312: its payload has 512 bytes"), "{err}");
}

/// Goal: `decompress` says when a block is not compressed as named, leaves it, and goes on.
/// `off` resets the compression of a record only.
#[test]
fn blocks_that_are_not_compressed() {
    let bytes = one_block(&text(4096), |w| (w.compression, w.compressed_size) = (15, 4096));
    for kind in ["", ",lz4", ",gzip", ",zstd"] {
        let (code, out, err) = run_bytes(zstream::run, &["decompress", &format!("3,0{kind}")], &bytes);
        assert!(code == 0 && out == bytes, "{kind}");
        assert_eq!(err, "zstream: decompression failed for ino 3 offset 0\n");
    }
    let huge = one_block(&text(4096), |w| {
        (w.compression, w.compressed_size, w.logical_size) = (15, 4096, 1 << 40);
    });
    assert!(run(zstream::run, &["decompress", "3,0"], &huge).err.contains("decompression failed"));
    // The last word about a place counts.
    let args = ["decompress", "-v", "3,0,lz4", "3,0,off"];
    let (code, out, err) = run_bytes(zstream::run, &args, &bytes);
    assert_eq!((code, err.as_str()), (0, "Resetting compression type to off for ino 3 offset 0\n"));
    assert!(out == one_block(&text(4096), |_| {}));
}

/// Goal: each verb ends in an error, without a whole stream, wherever its input is cut, and
/// whichever of its bytes changes. The error names the record and its place.
#[test]
fn spoiled_input() {
    let bytes = all_types(ByteOrder::Little);
    let refused = |verb: &[&str], spoiled: &[u8], what: &str| {
        let (code, out, err) = run_bytes(zstream::run, verb, spoiled);
        assert!(code == 1 && !whole(&out), "{verb:?}: {what}");
        let placed = err.contains("record ") && err.contains("byte");
        assert!(placed || err.starts_with("zstream: no stream: "), "{verb:?}: {what}: {err}");
    };
    for verb in VERBS {
        for len in (0..bytes.len()).step_by(61).chain([bytes.len() - RECORD_SIZE, bytes.len() - 1]) {
            refused(verb, &bytes[..len], &format!("cut at {len}"));
        }
        for at in (0..bytes.len()).step_by(7) {
            let mut spoiled = bytes.clone();
            spoiled[at] ^= 0x10;
            refused(verb, &spoiled, &format!("byte {at}"));
        }
    }
    let [short, _] = deduplicated(ByteOrder::Little);
    for at in (0..short.len()).step_by(31) {
        let mut spoiled = short.clone();
        spoiled[at] ^= 0x10;
        for input in [&spoiled[..], &short[..at]] {
            let (code, out, _) = redup(&[], input);
            assert!(code == 1 && !whole(&out), "byte {at}");
        }
    }
}

/// Goal: fields that an attacker chose, under right checksums, end in an error or in a whole
/// stream, whichever byte of a record they change.
#[test]
fn hostile_fields() {
    let [short, _] = deduplicated(ByteOrder::Little);
    let packed = changed(&["recompress", "lz4"], &all_types(ByteOrder::Little));
    for source in [&short, &packed] {
        let all = records(source);
        for (number, at) in (0..all.len()).flat_map(|n| (0..280).map(move |at| (n, at))) {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, ByteOrder::Little);
            for (n, (_, raw, payload)) in all.iter().enumerate() {
                let mut raw = *raw;
                raw[at] ^= if n == number { 0x81 } else { 0 };
                writer.copy(&raw, payload).unwrap();
            }
            for args in [&["decompress", "3,0"][..], &["recompress", "zle"], &["drop_record", "3,0"]] {
                let (code, out, err) = run_bytes(zstream::run, args, &bytes);
                assert!(whole(&out) == (code == 0), "{args:?}: record {number} byte {at}: {err}");
            }
            if at % 16 < 2 {
                let (code, out, err) = redup(&[], &bytes);
                assert!(whole(&out) == (code == 0), "record {number} byte {at}: {err}");
            }
        }
    }
}

/// Goal: wrong command lines have OpenZFS's messages and exit codes, to the letter.
#[test]
fn wrong_lines() {
    let usage = run(zstream::run, &[], &[]).err;
    let with = |text: &str| format!("{text}{usage}");
    let kinds = "Supported types are off, lz4, lzjb, gzip, zle, and zstd\n";
    for (args, code, err) in [
        (&["redup"][..], 1, usage.clone()),
        (&["redup", "a", "b"], 1, usage.clone()),
        (&["redup", "-x"], 1, with("redup: invalid option -- 'x'\ninvalid option 'x'\n")),
        (&["redup", "/nonexistent"], 1, open_error("/nonexistent")),
        (&["decompress", "--long"], 1, with("decompress: invalid option -- '-'\ninvalid option '-'\n")),
        (&["decompress", "1"], 1, usage.clone()),
        (&["decompress", "x,1"], 1, "zstream: invalid value for object\n".to_owned()),
        (&["decompress", "1,08"], 1, "zstream: invalid value for offset\n".to_owned()),
        (&["decompress", "1,2,on"], 2, format!("Invalid compression type on.\n{kinds}")),
        (&["decompress", "1,2,"], 2, format!("Invalid compression type .\n{kinds}")),
        (&["recompress"], 1, usage.clone()),
        (&["recompress", "lz4", "zle"], 1, usage.clone()),
        (
            &["recompress", "-l"],
            1,
            with("recompress: option requires an argument -- 'l'\ninvalid option 'l'\n"),
        ),
        (&["recompress", "-l", "x", "lz4"], 1, with("failed to parse level 'x'\n")),
        (&["recompress", "gzip"], 2, "Invalid compression type gzip.\n".to_owned()),
        (&["recompress", "inherit"], 2, "Invalid compression type inherit.\n".to_owned()),
        (&["recompress", "uncompressed"], 2, "Invalid compression type uncompressed.\n".to_owned()),
        (&["drop_record", "1,y"], 1, "zstream: invalid value for offset\n".to_owned()),
    ] {
        let input = all_types(ByteOrder::Little);
        assert_eq!(run(zstream::run, args, &input), Ran { code, out: String::new(), err }, "{args:?}");
    }
    let ran = run(zstream::run, &["drop_record", "1"], &[]);
    assert!(ran.code == 1 && ran.err.contains("\tzstream drop_record [-v] [OBJECT,OFFSET] ...\n"));
}

fn open_error(name: &str) -> String {
    format!("Error while opening file '{name}': No such file or directory\n")
}

/// A sink that is full.
struct Full;

impl io::Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Goal: no stream is read from a terminal or written to one, and a full output ends a verb.
#[test]
fn where_streams_go() {
    let bytes = Made::new(ByteOrder::Little)
        .begin(&begin(FIRST, 1, 0), &[])
        .put(&embedded(3, 0), &[4; 24])
        .end(FIRST)
        .bytes();
    let on = |args: &[&str], mut out: Out, terminal: bool| {
        let err = crate::Sink::default();
        let args: Vec<String> = args.iter().map(|s| (*s).to_owned()).collect();
        let messages = &mut Out::new(Box::new(err.clone()));
        let mut io = Io { out: &mut out, err: messages, input: Box::new(&bytes[..]), terminal };
        let code = zstream::run(&mut io, &args);
        (code, String::from_utf8(err.0.take()).unwrap())
    };
    for verb in VERBS {
        let (code, err) = on(verb, Out::new(Box::new(io::sink())), true);
        assert!(code == 1 && err.contains("terminal.  Standard input must be redirected.\n"), "{err}");
        let (code, err) = on(verb, Out::new(Box::new(Full)), false);
        assert_eq!(code, 1);
        let want =
            "zstream: what becomes of record 0 at byte 0 can't be written: standard output takes no more\n";
        assert_eq!(err, want);
    }
    for verb in [VERBS[0], VERBS[1], VERBS[2], &["redup", "/nonexistent"]] {
        let (code, err) = on(verb, Out::terminal(Box::new(io::sink())), false);
        assert_eq!(code, 1);
        let want = "Error: Stream can not be written to a terminal.\nYou must redirect standard output.\n";
        assert_eq!(err, want);
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, err) = on(&["redup", dir.path().to_str().unwrap()], Out::new(Box::new(io::sink())), false);
    assert_eq!(code, 1);
    assert!(
        err.starts_with("Error while reading file: Is a directory\nzstream: record 0 at byte 0 "),
        "{err}"
    );
}
