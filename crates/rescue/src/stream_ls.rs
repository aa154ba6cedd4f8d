//! `poolhouse stream ls`: what the receiver of a stored stream would get.
//!
//! # Theory
//! The stream is received without the contents of files, into a pool of its own in a temporary
//! folder, and then listed like any other. So the folder takes about as much as the metadata of the
//! stream. All that keeps a receive safe from hostile streams keeps this safe too.

use super::args::Args;
use super::ls;
use super::target::{Error, Target};
use super::{Chain, Io};
use api::files::Engine;
use poolhouse::Pool;
use poolhouse::ondisk::DmuType;
use poolhouse::ondisk::replay::{Begin, HeaderType, Record, features, flags};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use stream::rewrite::{Change, rewrite};
use stream::{ReceiveOptions, Receiving};

/// The temporary pool.
const POOL: &str = "stream";
/// The size of its device, which is sparse.
const SIZE: u64 = 64 << 30;

/// Lists what the operands name: a file with streams, and perhaps one of their snapshots with a
/// path. Returns `false` if something could not be read.
///
/// # Errors
/// * [`Error::Device`]: the file can't be read.
/// * [`Error::Operand`]: the file has no such snapshot, or several and none is named; a stream is
///   an increment on what the file does not have, or encrypted; a path leads into a volume.
/// * [`Error::Stored`]: a stream is damaged.
/// * [`Error::NotReceived`]: it is of a kind that can't be received.
/// * [`Error::Destination`]: the temporary folder can't be written.
/// * [`Error::Pool`], [`Error::Path`]: as for `poolhouse ls`.
///
/// # Panics
/// If there are no operands. [`Args::parse`] makes sure that there is one.
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let file = args.operands.first().expect("the arguments were counted");
    let target = args.operands.get(1).map(|operand| Target::parse(operand));
    let temporary = |source| Error::Destination { path: std::env::temp_dir(), source };
    let dir = tempfile::tempdir().map_err(temporary)?;
    let metadata = dir.path().join("metadata");
    let source: Box<dyn Read> = if file == "-" {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(file);
        Box::new(opened.map_err(|source| Error::Device { path: file.into(), source })?)
    };
    let begins = without_contents(source, file, &metadata)?;
    let named = target.as_ref().map(|target| target.dataset.as_str()).filter(|name| !name.is_empty());
    let name = match (named, &begins[..]) {
        (_, []) => return Err(Error::Operand { operand: file.clone(), why: "has no stream" }),
        (Some(name), _) => name,
        (None, [only]) => &only.name,
        (None, _) if target.is_some() => {
            return Err(Error::Operand { operand: file.clone(), why: "has several snapshots: name one" });
        }
        (None, several) => {
            several.iter().for_each(|one| writeln!(io.out, "{}", one.name));
            return Ok(true);
        }
    };
    let path = target.as_ref().and_then(|target| target.path.as_deref()).unwrap_or("/");
    list(io, args, (file, dir.path()), &begins, (name, path))
}

/// A stream of the file.
struct Found {
    /// The snapshot, as its sender called it.
    name: String,
    begin: Begin,
    /// Where it begins in the file without contents.
    at: u64,
}

/// Writes the streams of a file to another one, without the contents of files and volumes.
fn without_contents(source: impl Read, file: &str, into: &Path) -> Result<Vec<Found>, Error> {
    let failed = |source| Error::Destination { path: into.to_owned(), source };
    let written = Cell::new(0);
    let mut sink = Counted { sink: BufWriter::new(File::create(into).map_err(failed)?), written: &written };
    let found = RefCell::new(Vec::new());
    let change = |packet: &stream::Packet<'_>| {
        match &packet.record {
            Record::Begin(begin) if begin.header_type() == Ok(HeaderType::Substream) => {
                let end = begin.to_name.iter().position(|byte| *byte == 0).unwrap_or(begin.to_name.len());
                let name = String::from_utf8_lossy(&begin.to_name[..end]).into_owned();
                found.borrow_mut().push(Found { name, begin: *begin, at: written.get() });
            }
            Record::Write(write) if is_content(write.kind) => return Ok(Change::Drop),
            _ => {}
        }
        Ok::<_, stream::Error>(Change::Keep)
    };
    rewrite(source, &mut sink, change).map_err(|source| match source {
        stream::Error::Write { source, .. } => failed(source),
        source => Error::Stored { file: file.to_owned(), source },
    })?;
    sink.flush().map_err(failed)?;
    Ok(found.into_inner())
}

/// Whether blocks of this type have the contents of a file or volume.
fn is_content(kind: u32) -> bool {
    [DmuType::PLAIN_FILE_CONTENTS, DmuType::ZVOL].iter().any(|content| u32::from(content.to_disk()) == kind)
}

/// A file that counts what is written to it.
struct Counted<'a> {
    sink: BufWriter<File>,
    written: &'a Cell<u64>,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.sink.write(bytes)?;
        self.written.set(self.written.get() + taken as u64);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// The streams that lead to the last of these, in order: a whole one, and increments.
fn chain<'a>(file: &str, begins: &'a [Found], last: usize) -> Result<Vec<&'a Found>, Error> {
    let mut chain = vec![&begins[last]];
    let mut at = last;
    loop {
        let found = &begins[at];
        let operand = |why| Error::Operand { operand: format!("{file}: {}", found.name), why };
        if found.begin.features() & features::RAW != 0 {
            return Err(operand("is encrypted, so that only a receiver with its key can list it"));
        }
        if found.begin.from_guid == 0 {
            chain.reverse();
            return Ok(chain);
        }
        let before = begins[..at].iter().rposition(|one| one.begin.to_guid == found.begin.from_guid);
        at = before.ok_or_else(|| operand("builds on a snapshot that is not in the file before it"))?;
        chain.push(&begins[at]);
    }
}

/// Receives the streams that lead to a snapshot, and lists its files.
fn list(
    io: &mut Io,
    args: &Args,
    (file, dir): (&str, &Path),
    begins: &[Found],
    (name, path): (&str, &str),
) -> Result<bool, Error> {
    let operand = |why| Error::Operand { operand: format!("{file}: {name}"), why };
    let last = begins.iter().rposition(|found| found.name == name);
    let chain = chain(file, begins, last.ok_or_else(|| operand("the file has no such snapshot"))?)?;
    let image = dir.join("image");
    let failed = |source| Error::Destination { path: dir.to_owned(), source };
    File::create(&image).and_then(|image| image.set_len(SIZE)).map_err(failed)?;
    let pool = Pool::create(POOL, &[&[&image]])?;
    let mut metadata = File::open(dir.join("metadata")).map_err(failed)?;
    // The snapshot that was received last.
    let mut full = String::new();
    for (number, found) in chain.iter().enumerate() {
        let starts = found.begin.from_guid == 0;
        let clones = found.begin.flags & flags::CLONE != 0;
        let head = match full.split_once('@') {
            Some((head, _)) if !starts && !clones => head.to_owned(),
            _ => format!("{POOL}/{number}"),
        };
        let origin = (!starts && clones).then_some(full);
        let short = found.name.split_once('@').map_or("head", |(_, short)| short);
        full = format!("{head}@{short}");
        let options = ReceiveOptions { name: full.clone(), origin, ..ReceiveOptions::default() };
        metadata.seek(SeekFrom::Start(found.at)).map_err(failed)?;
        let received = Receiving::new(pool.spa(), &metadata, &options).and_then(Receiving::finish);
        received.map_err(|source| Error::NotReceived { snapshot: found.name.clone(), source })?;
    }
    let dataset = pool.dataset(&full)?;
    if let Ok(volume) = dataset.volume() {
        if path != "/" {
            return Err(operand("is a volume, which has no files"));
        }
        writeln!(io.out, "{name}: a volume of {} bytes", volume.size());
        return Ok(true);
    }
    let listed = ls::files(io, args, name, path, &mut Engine::files(dataset.filesystem()?));
    if let Err(error) = pool.export() {
        // What was listed is right nevertheless.
        writeln!(io.err, "poolhouse stream ls: {}: {}", dir.display(), Chain(&error));
    }
    listed
}
