//! `poolhouse send`: the stream of a snapshot of a pool that is not imported.
//!
//! # Theory
//! A pool that can't be imported, or is too damaged to be used, may still be replicated. With
//! `--skip-unreadable`, the stream has everything that can be read. Lost bytes of a file are a hole
//! in it. A directory that has lost a part is left out, as receivers would search in vain in what
//! is left. So any receiver takes the stream, and the report of this command is the only place that
//! says what is missing.

use super::args::Args;
use super::target::{self, Error, Target};
use super::{Chain, Io, held};
use poolhouse::dsl::Tail;
use poolhouse::{Dataset, Pool};
use std::collections::BTreeMap;
use std::io::{BufWriter, IsTerminal};
use stream::{Lost, LostPart, Options, Origin, SendError};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;
/// Most paths of damaged files that are remembered, so that each is looked up once.
const PATHS_MAX: usize = 1 << 16;

/// Sends the operand. Returns `false` if something was left out.
///
/// # Errors
/// * [`Error::Operand`]: it is no snapshot, the pool is imported, or options don't fit together.
/// * [`Error::Stream`]: the stream is not whole. For all causes see [`stream::send`].
/// * [`Error::Destination`]: standard output can't be used, or is a terminal.
/// * The errors of [`target::scan`], [`target::open`] and [`target::check_key`].
///
/// # Panics
/// If there are no operands. [`Args::parse`] makes sure that there is one.
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let operand = args.operands.first().expect("the arguments were counted");
    let fails = |why| Error::Operand { operand: operand.clone(), why };
    if args.forms.raw && args.skip_unreadable {
        return Err(fails("--skip-unreadable can't leave anything out of a raw stream (-w)"));
    }
    let target = Target::parse(operand);
    let parsed = poolhouse::dsl::Name::parse(&target.dataset).map_err(poolhouse::Error::from)?;
    if target.path.is_some() || !matches!(parsed.tail, Tail::Snapshot(_)) {
        return Err(fails("is no snapshot: write POOL/DATASET@SNAPSHOT"));
    }
    if held::held(io, args, &target).is_some() {
        return Err(fails("the daemon of this user holds the pool: use `zfs send`"));
    }
    let sink =
        (io.stream)().map_err(|source| Error::Destination { path: "standard output".into(), source })?;
    if sink.is_terminal() {
        let source = std::io::Error::other("a stream can't be written to a terminal");
        return Err(Error::Destination { path: "standard output".into(), source });
    }
    let (pool, target) = target::open(io, args, &target::scan(args)?, &target)?;
    if !args.forms.raw {
        target::check_key(&pool, &target.dataset)?;
    }
    let dataset = pool.dataset(&target.dataset)?;
    let options = Options {
        origin: args.from.as_deref().map(|from| origin(&pool, &target, &dataset, from)).transpose()?,
        forms: args.forms,
        ..Options::default()
    };
    let failed = |source: SendError| Error::Stream { dataset: target.dataset.clone(), source };
    let sink = BufWriter::with_capacity(BUFFER, sink);
    if !args.skip_unreadable {
        stream::send(dataset.dsl(), &options, sink).map_err(failed)?;
        return Ok(true);
    }
    let (files, paths) = (dataset.filesystem().ok(), BTreeMap::new());
    let mut report = Report { io, dataset: &target.dataset, files, paths, lost: 0 };
    stream::send_readable(dataset.dsl(), &options, sink, &mut |lost| report.add(lost)).map_err(failed)?;
    let lost = report.lost;
    if lost > 0 {
        writeln!(io.err, "poolhouse send: {}: {lost} parts are left out of the stream", target.dataset);
    }
    Ok(lost == 0)
}

/// The snapshot that a stream builds on. `from` is its full name, or only `@` and what follows.
fn origin(pool: &Pool, target: &Target, dataset: &Dataset, from: &str) -> Result<Origin, Error> {
    let head = target.dataset.split('@').next().unwrap_or_default();
    let name = if from.starts_with('@') { format!("{head}{from}") } else { from.to_owned() };
    if !name.contains('@') {
        return Err(Error::Operand { operand: name, why: "is no snapshot: write POOL/DATASET@SNAPSHOT" });
    }
    let from = pool.dataset(&name)?;
    let failed = |source| Error::Stream { dataset: target.dataset.clone(), source };
    Origin::of_snapshot(dataset.dsl(), from.dsl()).map_err(failed)
}

/// Reports what is left out.
struct Report<'a> {
    io: &'a mut Io,
    dataset: &'a str,
    /// Absent for volumes, and if too much of it is damaged.
    files: Option<poolhouse::zpl::FileSystem>,
    /// The paths of objects.
    paths: BTreeMap<u64, Option<String>>,
    /// How many parts are left out.
    lost: u64,
}

impl Report<'_> {
    fn add(&mut self, lost: &Lost) {
        self.lost += 1;
        let (object, what) = match lost.part {
            LostPart::Objects { first, count } => {
                let last = first.saturating_add(count.saturating_sub(1));
                (None, format!("objects {first} to {last}"))
            }
            LostPart::Object { object } => (Some(object.0), "a part, so all of it is left out".to_owned()),
            LostPart::Bytes { object, length: 0, .. } => {
                (Some(object.0), "a pointer behind its end".to_owned())
            }
            LostPart::Bytes { object, offset, length, .. } => (
                Some(object.0),
                format!("bytes {offset} to {}", offset.saturating_add(length.saturating_sub(1))),
            ),
            LostPart::Spill { object } => {
                (Some(object.0), "extended attributes, ACL or link target".to_owned())
            }
        };
        let place = object.map(|object| self.place(object)).unwrap_or_default();
        let (dataset, why) = (self.dataset, Chain(&lost.why));
        writeln!(self.io.err, "poolhouse send: {dataset}{place}: {what}: {why}");
    }

    /// An object, with its path if that can be found.
    fn place(&mut self, object: u64) -> String {
        if self.paths.len() >= PATHS_MAX {
            self.paths.clear();
        }
        let path = self.paths.entry(object).or_insert_with(|| path_of(self.files.as_ref()?, object));
        match path {
            Some(path) => format!(":{path} (object {object})"),
            None => format!(": object {object}"),
        }
    }
}

/// The path of an object of a file system.
fn path_of(files: &poolhouse::zpl::FileSystem, object: u64) -> Option<String> {
    let path = files.object_path(poolhouse::ondisk::ObjNum(object)).ok()?;
    Some(String::from_utf8_lossy(&path).into_owned())
}
