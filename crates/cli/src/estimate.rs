//! `poolhouse estimate`: what a directory tree would take in a pool.
//!
//! # Theory
//! The command reads the tree itself, with the rights of its user, and needs no daemon and no pool.
//! `estimate` computes the sizes; here are the grammar, the table, the JSON and the chart.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own.

mod chart;
#[cfg(test)]
mod tests;

use crate::json::{self, Json, Object};
use console::getopt::{Found, Getopt, Long, Opt};
use console::{Out, numbers, words};
use dsl::prop::parse;
use estimate::{Compressor, Error, Options, Report, Row};
use std::path::PathBuf;
use std::time::Duration;

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse estimate [-Hjp] [-r SIZE[,SIZE]...] [-c COMPRESSION[,COMPRESSION]...] [-a ASHIFT] [--dedup] [--cross] [--sample SIZE] [--time SECONDS] [--seed N] [--svg FILE] DIR ...";

const USAGE: &str = "\
usage: poolhouse estimate [-Hjp] [-r SIZE[,SIZE]...] [-c COMPRESSION[,COMPRESSION]...] [-a ASHIFT]
                          [--dedup] [--cross] [--sample SIZE] [--time SECONDS] [--seed N]
                          [--svg FILE] DIR ...

Prints what the files below directories would take in a file system of a pool, by record size and
compressor. Large trees are sampled, and each size has its error, at 95 %. Needs no pool.
    -r SIZE,...      record sizes: 16K,128K,1M
    -c COMPRESSION,...  values of the property compression: off,lz4,zstd,gzip
    -a ASHIFT        sectors of 2^ASHIFT bytes: 12
    --dedup          also what equal records save; this reads everything
    --cross          enter file systems that are mounted below
    --sample SIZE    read so much, or 'all': 256M
    --time SECONDS   how long contents may be read; 0 is no limit: 60
    --seed N         choose another sample: 1
    --svg FILE       draw the sizes
    -H               no headers, and tabs between the columns
    -j               JSON
    -p               exact numbers
";

/// An option with an argument, or without.
pub(crate) const fn long(name: &'static str, arg: bool) -> Long {
    Long { name, val: Opt::Named(name), arg }
}

const LONG: [Long; 8] = [
    long("dedup", false),
    long("cross", false),
    long("sample", true),
    long("time", true),
    long("seed", true),
    long("svg", true),
    Long { name: "json", val: Opt::Short('j'), arg: false },
    long("help", false),
];
const RECORDS: &str = "16K,128K,1M";
const COMPRESSORS: &str = "off,lz4,zstd,gzip";
/// Bytes to read, and for how many seconds, if the command line doesn't say.
const SAMPLE: u64 = 256 << 20;
const SECONDS: u64 = 60;
/// Most threads that compress.
const THREADS_MAX: usize = 16;

/// What is wanted of an estimate.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) options: Options,
    pub(crate) scripted: bool,
    pub(crate) json: bool,
    pub(crate) exact: bool,
    svg: Option<PathBuf>,
}

/// Why nothing is estimated.
#[derive(Debug, PartialEq, Eq)]
enum Usage {
    Help,
    Bad(String),
}

/// Runs `estimate`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, args: &[String]) -> i32 {
    let (asked, roots) = match read(args) {
        Ok(read) => read,
        Err(Usage::Help) => {
            out.put(USAGE);
            return 0;
        }
        Err(Usage::Bad(why)) => {
            write!(err, "{why}\n{USAGE}");
            return 2;
        }
    };
    match estimate::estimate(&roots, &asked.options) {
        Ok(report) => print(out, err, &asked, (&roots, &report)),
        Err(error) => {
            writeln!(err, "cannot estimate: {}", cause(&error, asked.options.dedup));
            if matches!(error, Error::RecordSize { .. } | Error::Ashift { .. } | Error::Columns) {
                2
            } else {
                1
            }
        }
    }
}

/// An error, and what to do about it.
pub(crate) fn cause(error: &Error, dedup: bool) -> String {
    match error {
        Error::Directory { path, source } => {
            format!("'{}': {}", path.display(), words::io(source))
        }
        Error::Time { .. } if dedup => {
            format!("{error}; --dedup reads everything: --time SECONDS gives more time, 0 is no limit")
        }
        Error::Time { .. } => format!("{error}; --time SECONDS gives more, --sample SIZE reads less"),
        Error::RecordSize { .. } | Error::Ashift { .. } | Error::Columns => error.to_string(),
    }
}

impl Asked {
    /// What an estimate is without options.
    ///
    /// # Errors
    /// None: the defaults are valid.
    pub(crate) fn usual() -> Result<Self, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let options = Options {
            records: records(RECORDS)?,
            compressors: compressors(COMPRESSORS)?,
            ashift: 12,
            sample: Some(SAMPLE),
            time: Some(Duration::from_secs(SECONDS)),
            dedup: false,
            cross: false,
            seed: 1,
            threads,
        };
        Ok(Self { options, scripted: false, json: false, exact: false, svg: None })
    }

    /// Takes an option. Returns whether it is one of an estimate.
    ///
    /// # Errors
    /// Its argument is wrong. The text says why.
    pub(crate) fn take(&mut self, option: Opt, arg: &str) -> Result<bool, String> {
        let options = &mut self.options;
        match option {
            Opt::Short('H') => self.scripted = true,
            Opt::Short('j') => self.json = true,
            Opt::Short('p') => self.exact = true,
            Opt::Short('r') => options.records = records(arg)?,
            Opt::Short('c') => options.compressors = compressors(arg)?,
            Opt::Short('a') => options.ashift = number("-a", arg)? as u32,
            Opt::Named("dedup") => options.dedup = true,
            Opt::Named("cross") => options.cross = true,
            Opt::Named("sample") if arg == "all" => options.sample = None,
            Opt::Named("sample") => options.sample = Some(bytes(arg)?),
            Opt::Named("time") => {
                options.time = Some(number("--time", arg)?).filter(|n| *n > 0).map(Duration::from_secs);
            }
            Opt::Named("seed") => options.seed = number("--seed", arg)?,
            Opt::Named("svg") => self.svg = Some(PathBuf::from(arg)),
            Opt::Short(_) | Opt::Named(_) => return Ok(false),
        }
        Ok(true)
    }
}

fn read(args: &[String]) -> Result<(Asked, Vec<PathBuf>), Usage> {
    let mut asked = Asked::usual().map_err(Usage::Bad)?;
    let mut g = Getopt::new(args, "Hjpr:c:a:h", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(option, arg) => match asked.take(option, &arg).map_err(Usage::Bad)? {
                true => {}
                false => return Err(Usage::Help),
            },
            Found::Invalid(_) => return Err(Usage::Bad(format!("invalid option '{}'", g.word()))),
            Found::Missing(_) => {
                return Err(Usage::Bad(format!("missing argument for option '{}'", g.word())));
            }
        }
    }
    let roots: Vec<PathBuf> = g.operands().into_iter().map(PathBuf::from).collect();
    match roots.is_empty() {
        true => Err(Usage::Bad("missing directory argument".to_owned())),
        false => Ok((asked, roots)),
    }
}

fn number(option: &str, text: &str) -> Result<u64, String> {
    let bad = |_| format!("invalid value '{text}' of option '{option}': a number is needed");
    text.parse::<u32>().map(u64::from).map_err(bad)
}

fn bytes(text: &str) -> Result<u64, String> {
    parse::number(text).map_err(|_| format!("bad size '{text}'"))
}

/// Record sizes, the larger ones last.
fn records(list: &str) -> Result<Vec<u32>, String> {
    let size = |text: &str| {
        let bad = || format!("bad record size '{text}': choose a power of two from 4K to 16M");
        let fits = |n: &u32| n.is_power_of_two() && estimate::RECORD_SIZES.contains(n);
        u32::try_from(bytes(text)?).ok().filter(fits).ok_or_else(bad)
    };
    let mut sizes = list.split(',').map(size).collect::<Result<Vec<u32>, String>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn compressors(list: &str) -> Result<Vec<Compressor>, String> {
    let mut all: Vec<Compressor> = Vec::new();
    for name in list.split(',') {
        let bad = || format!("bad compression '{name}': see 'man zfsprops' for the values");
        let (kind, level) = dsl::compression_named(name).ok_or_else(bad)?;
        if all.iter().all(|c| c.name != name) {
            all.push(Compressor { name: name.to_owned(), kind, level });
        }
    }
    match all.len() <= estimate::COLUMNS_MAX {
        true => Ok(all),
        false => Err(format!("too many compressions: at most {}", estimate::COLUMNS_MAX)),
    }
}

fn print(out: &mut Out, err: &mut Out, asked: &Asked, (roots, report): (&[PathBuf], &Report)) -> i32 {
    if asked.json {
        let mut root = json::schema("poolhouse estimate");
        fields(&mut root, report);
        writeln!(out, "{}", root.line());
    } else {
        text(out, asked, report);
    }
    let names: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    let whole = failures(err, report);
    let drawn = draw(err, asked, &names.join(", "), report);
    i32::from(!(whole && drawn))
}

/// Prints the table, with a summary above it.
pub(crate) fn text(out: &mut Out, asked: &Asked, report: &Report) {
    if !asked.scripted {
        summary(out, asked, report);
    }
    table(out, asked, report);
}

/// Reports what could not be read. Returns whether everything was.
pub(crate) fn failures(err: &mut Out, report: &Report) -> bool {
    for (path, error) in &report.failures.first {
        writeln!(err, "cannot read '{}': {}", path.display(), words::io(error));
    }
    if report.failures.count > 0 {
        let more = report.failures.count - report.failures.first.len() as u64;
        if more > 0 {
            writeln!(err, "and {more} more");
        }
        writeln!(err, "{} could not be read; the sizes are without them", report.failures.count);
    }
    report.failures.count == 0
}

/// Draws the chart, if one is wanted. Returns whether it could be written.
pub(crate) fn draw(err: &mut Out, asked: &Asked, of: &str, report: &Report) -> bool {
    let Some(file) = &asked.svg else { return true };
    let drawn = std::fs::write(file, chart::draw(of, report));
    if let Err(error) = &drawn {
        writeln!(err, "cannot write '{}': {}", file.display(), words::io(error));
    }
    drawn.is_ok()
}

/// Bytes as the user wants them.
fn size(asked: &Asked, n: u64) -> String {
    if asked.exact { n.to_string() } else { numbers::bytes(n) }
}

/// The share of the files' bytes that is saved, in percent.
fn saved(report: &Report, row: &Row) -> i64 {
    let bytes = report.walked.bytes as f64;
    if bytes > 0.0 { (100.0 - row.size as f64 * 100.0 / bytes).round() as i64 } else { 0 }
}

fn summary(out: &mut Out, asked: &Asked, report: &Report) {
    let found = &report.walked;
    writeln!(
        out,
        "{} in {} files, {} directories, {} others",
        size(asked, found.bytes),
        found.files,
        found.directories,
        found.others
    );
    if found.mounts > 0 {
        writeln!(out, "{} mounted file systems were not entered: --cross enters them", found.mounts);
    }
    match report.exact {
        true => out.put("everything was read\n\n"),
        false => writeln!(
            out,
            "{} were read, in {} draws; the sizes are within +/- at 95 %\n",
            size(asked, report.read),
            report.draws
        ),
    }
}

fn table(out: &mut Out, asked: &Asked, report: &Report) {
    let mut head = vec!["RECORDSIZE", "COMPRESSION", "SIZE", "+/-", "SAVED", "RATIO"];
    if asked.options.dedup {
        head.extend(["DEDUP", "+/-", "DEDUPRATIO"]);
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in &report.rows {
        let mut cells = vec![
            size(asked, row.record.into()),
            row.compressor.clone(),
            size(asked, row.size),
            size(asked, row.error),
            format!("{}{}", saved(report, row), if asked.exact { "" } else { "%" }),
            numbers::ratio(row.ratio, asked.exact),
        ];
        if let Some(dedup) = &row.dedup {
            cells.extend([size(asked, dedup.size), size(asked, dedup.error)]);
            cells.push(numbers::ratio(dedup.ratio, asked.exact));
        }
        rows.push(cells);
    }
    if asked.scripted {
        rows.iter().for_each(|row| writeln!(out, "{}", row.join("\t")));
        return;
    }
    let width = |at: usize| rows.iter().map(|row| row[at].len()).chain([head[at].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let cell = |(at, text): (usize, &&str)| match at {
            1 => format!("{text:<0$}", widths[at]),
            _ => format!("{text:>0$}", widths[at]),
        };
        cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
    };
    writeln!(out, "{}", line(&head));
    for row in &rows {
        writeln!(out, "{}", line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

/// Adds the numbers of an estimate.
pub(crate) fn fields(root: &mut Object, report: &Report) {
    let found = &report.walked;
    for (name, n) in [
        ("files", found.files),
        ("directories", found.directories),
        ("others", found.others),
        ("bytes", found.bytes),
        ("mounts_not_entered", found.mounts),
        ("read", report.read),
        ("draws", report.draws),
        ("failures", report.failures.count),
    ] {
        root.number(name, n);
    }
    root.put("exact", Json::Bool(report.exact));
    let mut sizes = Object::new();
    for of_size in report.rows.chunk_by(|a, b| a.record == b.record) {
        let mut compressors = Object::new();
        for row in of_size {
            compressors.object(&row.compressor, row_json(row));
        }
        sizes.object(of_size[0].record.to_string(), compressors);
    }
    root.object("recordsizes", sizes);
}

fn row_json(row: &Row) -> Object {
    let mut shown = Object::new();
    shown.number("size", row.size);
    shown.number("error", row.error);
    shown.number("metadata", row.metadata);
    shown.number("logicalused", row.logical);
    shown.text("compressratio", numbers::ratio(row.ratio, true));
    if let Some(dedup) = &row.dedup {
        let mut of = Object::new();
        of.number("size", dedup.size);
        of.number("error", dedup.error);
        of.text("dedupratio", numbers::ratio(dedup.ratio, true));
        of.number("records", dedup.records);
        shown.object("dedup", of);
    }
    shown
}
