//! `poolhouse histogram`: how numbers are distributed, and whether two samples differ.
//!
//! # Theory
//! A mean of ten starts says little without its interval, and a change that makes a mean smaller by
//! four percent may have done nothing. The command reads the numbers of any program, prints their
//! moments with a confidence interval and a bar for each range, and compares them with another
//! sample. `sample` has the mathematics.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own.

mod sample;
#[cfg(test)]
mod tests;

use crate::json::{self, Json, Object};
use console::getopt::{Found, Getopt, Long, Opt};
use console::{Out, escaped};
use sample::{MannWhitney, Sample, Welch};
use std::fs::File;
use std::io::{BufRead, BufReader};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse histogram [-j] [--confidence P] [--bins N] [--against FILE] [FILE]";

const USAGE: &str = "\
usage: poolhouse histogram [-j] [--confidence P] [--bins N] [--against FILE] [FILE]

Reads numbers, from the standard input without FILE, and prints how they are distributed. Numbers are
separated by blanks or lines; what follows a # is a comment.
    --confidence P   of the interval of the mean: 0.95
    --bins N         how many ranges have a bar, 1 to 1000: 10
    --against FILE   say whether the numbers of FILE differ from these
    -j               JSON
";

const LONG: [Long; 5] = [
    crate::estimate::long("confidence", true),
    crate::estimate::long("bins", true),
    crate::estimate::long("against", true),
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Short('h'), arg: false },
];

/// The most numbers of a sample.
const NUMBERS_MAX: usize = 10_000_000;
/// The most bytes of a line, so that a stream without lines takes no memory.
const LINE_MAX: u64 = 1 << 20;
const BINS_MAX: usize = 1000;
/// The longest bar.
const BAR: u64 = 60;

/// What is wanted.
#[derive(Debug, PartialEq)]
struct Asked {
    confidence: f64,
    bins: usize,
    against: Option<String>,
    file: Option<String>,
    json: bool,
}

/// Why nothing is printed.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Help,
    Usage(String),
    Failed(String),
}

/// Runs `histogram` with the arguments after it. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, args: &[String]) -> i32 {
    run_on(out, err, args, &mut std::io::stdin().lock())
}

fn run_on(out: &mut Out, err: &mut Out, args: &[String], input: &mut dyn BufRead) -> i32 {
    match read_args(args).and_then(|asked| show(out, &asked, input)) {
        Ok(()) => 0,
        Err(Stop::Help) => {
            out.put(USAGE);
            0
        }
        Err(Stop::Usage(why)) => {
            err.put(&why);
            err.put(USAGE);
            2
        }
        Err(Stop::Failed(why)) => {
            err.put(&why);
            1
        }
    }
}

fn read_args(args: &[String]) -> Result<Asked, Stop> {
    let mut asked = Asked { confidence: 0.95, bins: 10, against: None, file: None, json: false };
    let mut g = Getopt::new(args, "jh", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('j'), _) => asked.json = true,
            Found::Is(Opt::Short('h'), _) => return Err(Stop::Help),
            Found::Is(Opt::Named("confidence"), value) => {
                let wrong = || {
                    let why = "choose more than 0 and less than 1, such as 0.9";
                    Stop::Usage(format!(
                        "invalid value '{}' of option '--confidence': {why}\n",
                        escaped(&value)
                    ))
                };
                let number = value.parse::<f64>().ok().filter(|p| *p > 0.0 && *p < 1.0);
                asked.confidence = number.ok_or_else(wrong)?;
            }
            Found::Is(Opt::Named("bins"), value) => {
                let wrong = || {
                    let value = escaped(&value);
                    Stop::Usage(format!(
                        "invalid value '{value}' of option '--bins': choose 1 to {BINS_MAX}\n"
                    ))
                };
                let number = value.parse().ok().filter(|bins| (1..=BINS_MAX).contains(bins));
                asked.bins = number.ok_or_else(wrong)?;
            }
            Found::Is(_, file) => asked.against = Some(file),
            Found::Invalid(_) => return Err(Stop::Usage(format!("invalid option '{}'\n", g.word()))),
            Found::Missing(_) => {
                return Err(Stop::Usage(format!("missing argument for option '{}'\n", g.word())));
            }
        }
    }
    match &g.operands()[..] {
        [] => {}
        [file] => asked.file = Some(file.clone()).filter(|file| file != "-"),
        _ => return Err(Stop::Usage("too many arguments\n".to_owned())),
    }
    Ok(asked)
}

/// Reads the numbers of a file, or of the standard input.
fn sample(file: Option<&str>, input: &mut dyn BufRead) -> Result<Sample, Stop> {
    let name = file.map_or_else(|| "the standard input".to_owned(), |file| escaped(file).into_owned());
    let failed = |error: std::io::Error| Stop::Failed(format!("cannot read {name}: {error}\n"));
    let numbers = match file {
        Some(path) => numbers(&name, &mut BufReader::new(File::open(path).map_err(failed)?))?,
        None => numbers(&name, input)?,
    };
    Sample::new(numbers).ok_or_else(|| Stop::Failed(format!("there are no numbers in {name}\n")))
}

fn numbers(name: &str, input: &mut dyn BufRead) -> Result<Vec<f64>, Stop> {
    let (mut numbers, mut line) = (Vec::new(), Vec::new());
    for at in 1u64.. {
        line.clear();
        let read = std::io::Read::take(&mut *input, LINE_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| Stop::Failed(format!("cannot read {name}: {error}\n")))?;
        if read == 0 {
            break;
        }
        if read as u64 == LINE_MAX && line.last() != Some(&b'\n') {
            return Err(Stop::Failed(format!("{name}, line {at}: it is longer than {LINE_MAX} bytes\n")));
        }
        let text = String::from_utf8_lossy(&line);
        for word in text.split('#').next().unwrap_or_default().split_whitespace() {
            let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
            let wrong = || Stop::Failed(format!("{name}, line {at}: '{}' is no number\n", escaped(word)));
            numbers.push(number.ok_or_else(wrong)?);
            if numbers.len() > NUMBERS_MAX {
                return Err(Stop::Failed(format!("{name} has more than {NUMBERS_MAX} numbers\n")));
            }
        }
    }
    Ok(numbers)
}

/// What two samples are to each other.
struct Compared {
    base: Sample,
    welch: Option<Welch>,
    ranks: MannWhitney,
}

fn show(out: &mut Out, asked: &Asked, input: &mut dyn BufRead) -> Result<(), Stop> {
    let of = sample(asked.file.as_deref(), input)?;
    let compared = match &asked.against {
        Some(file) => {
            let base = sample(Some(file), input)?;
            let welch = Welch::new(&of, &base, asked.confidence);
            let ranks = MannWhitney::new(&of, &base);
            Some(Compared { base, welch, ranks })
        }
        None => None,
    };
    match asked.json {
        true => print_json(out, asked, &of, compared.as_ref()),
        false => print(out, asked, &of, compared.as_ref()),
    }
    Ok(())
}

/// A confidence in percent.
fn percent(confidence: f64) -> String {
    let text = format!("{:.3}", confidence * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The lines with the moments of a sample.
fn moments(out: &mut Out, of: &Sample, confidence: f64) {
    writeln!(out, "# NumSamples = {}; Min = {:.6}; Max = {:.6}", of.len(), of.min(), of.max());
    let interval = match of.error(confidence) {
        Some(error) => format!(" (+/- {error:.6} at {})", percent(confidence)),
        None => String::new(),
    };
    let variance = of.variance().unwrap_or(0.0);
    writeln!(
        out,
        "# Mean = {:.6}{interval}; Variance = {variance:.6}; SD = {:.6}; Median = {:.6}",
        of.mean(),
        variance.sqrt(),
        of.median()
    );
}

fn print(out: &mut Out, asked: &Asked, of: &Sample, compared: Option<&Compared>) {
    moments(out, of, asked.confidence);
    let bins = of.bins(asked.bins);
    let most = bins.iter().map(|(.., count)| *count).max().unwrap_or(0);
    let each = most.div_ceil(BAR).max(1);
    writeln!(out, "# each * represents a count of {each}");
    let width = |of: fn(&(f64, f64, u64)) -> String| bins.iter().map(|bin| of(bin).len()).max().unwrap_or(0);
    let (from, to) = (width(|bin| format!("{:.4}", bin.0)), width(|bin| format!("{:.4}", bin.1)));
    let counts = width(|bin| bin.2.to_string());
    for (low, high, count) in &bins {
        let bar = "*".repeat((count / each) as usize);
        let line = format!("{low:from$.4} - {high:to$.4} [{count:counts$}]: {bar}");
        writeln!(out, "{}", line.trim_end());
    }
    let Some(Compared { base, welch, ranks }) = compared else { return };
    writeln!(out, "# against {}:", escaped(asked.against.as_deref().unwrap_or_default()));
    moments(out, base, asked.confidence);
    let verdict = |p: f64| {
        let word = if p < 1.0 - asked.confidence { "significant" } else { "not significant" };
        format!("p = {p:.4}: {word} at {}", percent(asked.confidence))
    };
    match welch {
        Some(welch) => {
            writeln!(out, "# the means differ by {}; Welch's t-test: {}", by(welch, base), verdict(welch.p));
        }
        None => out.put("# Welch's t-test needs two numbers of each that differ\n"),
    }
    writeln!(out, "# Mann-Whitney: U = {}, {}", ranks.u, verdict(ranks.p));
}

/// A difference with its interval: in percent of the other mean, if that is not 0.
fn by(welch: &Welch, base: &Sample) -> String {
    let (low, high) = (welch.difference - welch.error, welch.difference + welch.error);
    match base.mean() {
        0.0 => format!("{:+.6} ({low:+.6} to {high:+.6})", welch.difference),
        mean => {
            let of = |value: f64| value / mean.abs() * 100.0;
            format!("{:+.1} % ({:+.1} to {:+.1})", of(welch.difference), of(low), of(high))
        }
    }
}

/// The moments of a sample.
fn object(of: &Sample, confidence: f64) -> Object {
    let mut object = Object::new();
    object.number("samples", of.len() as u64);
    for (key, value) in [
        ("min", Some(of.min())),
        ("max", Some(of.max())),
        ("mean", Some(of.mean())),
        ("mean_error", of.error(confidence)),
        ("variance", of.variance()),
        ("sd", of.variance().map(f64::sqrt)),
        ("median", Some(of.median())),
    ] {
        value.into_iter().for_each(|value| object.decimal(key, value));
    }
    object
}

fn print_json(out: &mut Out, asked: &Asked, of: &Sample, compared: Option<&Compared>) {
    let mut root = json::schema("poolhouse histogram");
    root.decimal("confidence", asked.confidence);
    root.object("sample", object(of, asked.confidence));
    let bin = |(low, high, count): (f64, f64, u64)| {
        let mut object = Object::new();
        object.decimal("from", low);
        object.decimal("to", high);
        object.number("count", count);
        object
    };
    root.put("bins", Json::Objects(of.bins(asked.bins).into_iter().map(bin).collect()));
    if let Some(Compared { base, welch, ranks }) = compared {
        root.object("against", object(base, asked.confidence));
        if let Some(welch) = welch {
            let mut object = Object::new();
            object.decimal("difference", welch.difference);
            object.decimal("error", welch.error);
            object.decimal("p", welch.p);
            root.object("welch", object);
        }
        let mut object = Object::new();
        object.decimal("u", ranks.u);
        object.decimal("p", ranks.p);
        root.object("mann_whitney", object);
    }
    writeln!(out, "{}", root.line());
}
