//! What a directory tree would take in a pool, by record size and compressor.
//!
//! # Theory
//! The estimate stores nothing, but computes what a pool would store. For each record of a file it
//! runs the compressors of `codec`, and applies the rules of `zio` to their results (`rule`). The
//! metadata of files and directories are made as bytes and compressed like any metadata
//! (`metadata`, `directory`).
//!
//! The files are below directories of this system (`walk`), or in file systems that a caller reads
//! (`systems`). A tree is walked twice at most. The first walk reads only names and attributes. If
//! all contents are within the limit on reading, the second walk reads everything, and the result
//! is exact (`exact`). Otherwise a sample is read (`sample`).
//!
//! # The sample
//! Files are cut into units of the largest record size. A unit is a cluster: it holds whole records
//! of each record size, so one read serves the whole table. The first walk draws units with
//! replacement, with probabilities that are proportional to their sizes in whole sectors. It needs
//! no list of files: each draw is a reservoir of one.
//!
//! The share of its weight that a unit takes has the same mean as the tree (Hansen and Hurwitz). So
//! the estimate is the weight of the tree times the mean of the shares. The interval is Student's,
//! at 95 %. It is computed as if there were two more draws, one that takes nothing and one that
//! takes all. So a sample whose units are all alike doesn't claim that the rest is, too.
//!
//! # Deduplication
//! A sample can't find duplicates: with a share `f` of the data it sees a pair with the probability
//! `f` squared. So all contents are read and hashed. Of the hashes, those with a prefix below a
//! threshold are kept, which bounds memory. Equal records have equal hashes, so of a kept record
//! all copies are counted.
//!
//! # Absent
//! Extended attributes and ACLs; raidz, whose parity and padding depend on the vdev; gang blocks;
//! intent logs; snapshots; encryption.
//!
//! # See
//! OpenZFS `zio_compress_data`, `zdb -S`.

mod dedup;
mod directory;
mod error;
mod exact;
mod metadata;
mod origin;
mod pointers;
mod report;
mod rule;
mod sample;
mod systems;
mod unit;
mod walk;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use error::{Error, Failures, Result};
pub use origin::Walked;
pub use report::{Deduplicated, Report, Row};
pub use systems::{FileSystems, Kind, Node, Wanted};

use codec::compress::ZstdLevel;
use ondisk::CompressKind;
use origin::Origin;

/// Most record sizes, and most compressors.
pub const COLUMNS_MAX: usize = 16;
/// The sizes that a record may have (`recordsize`).
pub const RECORD_SIZES: std::ops::RangeInclusive<u32> = 4 << 10..=16 << 20;
/// The sector sizes that a pool may have, as powers of two.
pub const ASHIFTS: std::ops::RangeInclusive<u32> = 9..=16;

/// A compressor with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressor {
    /// The value of the property `compression`.
    pub name: String,
    /// The algorithm. Neither `Inherit`, `On` nor `Empty`.
    pub kind: CompressKind,
    /// The level, if the algorithm is zstd.
    pub level: ZstdLevel,
}

/// What to estimate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Record sizes in bytes: powers of two.
    pub records: Vec<u32>,
    /// Compressors.
    pub compressors: Vec<Compressor>,
    /// The sector size of the pool as a power of two (`ashift`).
    pub ashift: u32,
    /// Bytes to read, on average. `None` reads everything.
    pub sample: Option<u64>,
    /// How long contents may be read.
    pub time: Option<Duration>,
    /// Look for equal records. This reads everything.
    pub dedup: bool,
    /// Enter file systems that are mounted below the directories.
    pub cross: bool,
    /// Chooses the sample. The same seed chooses the same sample of the same tree.
    pub seed: u64,
    /// Number of threads that compress.
    pub threads: usize,
}

impl Options {
    fn check(&self) -> Result<()> {
        let Options { records, compressors, .. } = self;
        let fits = |size: &u32| size.is_power_of_two() && RECORD_SIZES.contains(size);
        if let Some(&size) = records.iter().find(|size| !fits(size)) {
            return Err(Error::RecordSize { size });
        }
        if !ASHIFTS.contains(&self.ashift) {
            return Err(Error::Ashift { ashift: self.ashift });
        }
        let counts = 1..=COLUMNS_MAX;
        match counts.contains(&records.len()) && counts.contains(&compressors.len()) {
            true => Ok(()),
            false => Err(Error::Columns),
        }
    }

    fn sector(&self) -> u64 {
        1 << self.ashift
    }

    /// Bytes of a unit of the sample: whole records of each size.
    fn unit(&self) -> u64 {
        self.records.iter().copied().max().unwrap_or(0).max(128 << 10).into()
    }
}

/// When to stop reading.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(time: Option<Duration>) -> Deadline {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Estimates what these directories would take in a file system of a pool.
///
/// Symbolic links are not followed, and a file with several names counts once. Files that can't be
/// read are in [`Report::failures`].
///
/// # Errors
/// * [`Error::Directory`]: one of the directories can't be opened, or is a symbolic link.
/// * [`Error::RecordSize`], [`Error::Ashift`], [`Error::Columns`]: the options are invalid.
/// * [`Error::Time`]: the time ended before the sample was large enough, or, when equal records are
///   searched, before everything was read.
pub fn estimate(roots: &[PathBuf], options: &Options) -> Result<Report> {
    options.check()?;
    run(&walk::Roots::open(roots, options.cross)?, options)
}

/// Estimates what these file systems would take, each with the same records and compressor.
///
/// Equal records are searched in all of them. What can't be read is in [`Report::failures`].
///
/// # Errors
/// * [`Error::RecordSize`], [`Error::Ashift`], [`Error::Columns`]: the options are invalid.
/// * [`Error::Time`]: see [`estimate`].
pub fn estimate_file_systems(systems: &dyn FileSystems, options: &Options) -> Result<Report> {
    options.check()?;
    run(&systems::All(systems), options)
}

fn run(origin: &dyn Origin, options: &Options) -> Result<Report> {
    let mut failures = Failures::default();
    let mut survey = sample::Survey::new(options);
    let walked = origin.walk(&mut survey, &mut failures);
    let exact = options.sample.is_none_or(|most| walked.bytes <= most);
    let mut report = Report { walked, exact, draws: 0, read: 0, rows: Vec::new(), failures };
    let mut savings = None;
    if exact || options.dedup {
        match everything(origin, options, &report)? {
            Some((failures, whole)) => {
                report.failures = failures;
                if exact {
                    report.rows = report::rows(options, &whole.measured, whole.savings.as_deref());
                    report.read = whole.read;
                    return Ok(report);
                }
                savings = whole.savings;
            }
            None => report.exact = false,
        }
    }
    let sample = survey.sample(origin, options, Deadline::after(options.time))?;
    report.rows = report::rows(options, &sample.measured, savings.as_deref());
    (report.draws, report.read) = (sample.draws, sample.read);
    // Reading everything has met the same failures.
    if savings.is_none() {
        sample.failures.into_iter().for_each(|(path, error)| report.failures.add(&path, error));
    }
    Ok(report)
}

/// Reads everything. Measures it if the report is to be exact, and otherwise finds only what equal
/// records save.
///
/// `None` if that takes too long and a sample can replace it.
fn everything(
    origin: &dyn Origin,
    options: &Options,
    report: &Report,
) -> Result<Option<(Failures, exact::Whole)>> {
    let needed = options.dedup || options.sample.is_none();
    // If everything takes too long, half of the time is left for the sample.
    let time = if needed { options.time } else { options.time.map(|time| time / 2) };
    let (size, mut failures) = (report.walked.bytes, Failures::default());
    let share = match options.sample {
        Some(most) if !report.exact => most as f64 / size as f64,
        _ => 1.0,
    };
    let table = options.dedup.then(|| dedup::Table::new(&options.records, share));
    let mut pass = exact::Pass::new(options, report.exact, table, Deadline::after(time));
    origin.walk(&mut pass, &mut failures);
    match pass.finish(&mut failures) {
        Ok(whole) => Ok(Some((failures, whole))),
        Err(read) if needed => Err(Error::Time { read, size }),
        Err(_) => Ok(None),
    }
}
