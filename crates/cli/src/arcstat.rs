//! `poolhouse arcstat`: the cache's activity line by line, as OpenZFS's `arcstat` prints it.
//!
//! # Theory
//! A column (`columns`) is computed from counters by name, in the current reading and in the one
//! of the line before. A counter that the daemon lacks ends the program with its name.
//!
//! As in OpenZFS, the columns of the L2ARC exist only if it holds something.

mod columns;

use crate::counts::Counts;
use api::Requests;
use columns::{Column, Value};
use console::Clock;
use console::Out;
use console::getopt::{Found, Getopt, Long, Opt};
use std::time::Duration;

const USAGE: &str = "\
Usage: arcstat [-havxzp] [-f fields] [-o file] [-s string] [interval [count]]

\t -h : Print this help message
\t -a : Print all possible stats
\t -v : List all possible field headers and definitions
\t -x : Print extended stats
\t -z : Print zfetch stats
\t -f : Specify specific fields to print (see -v)
\t -o : Redirect output to the specified file
\t -s : Override default field separator with custom character or string
\t -p : Disable auto-scaling of numerical fields

Examples:
\tarcstat -o /tmp/a.log 2 10
\tarcstat -s \",\" -o /tmp/a.log 2 10
\tarcstat -v
\tarcstat -f time,hit%,dh%,ph%,mh% 1

";
const LONG: &[Long] = &[
    Long { name: "all", val: Opt::Short('a'), arg: false },
    Long { name: "extended", val: Opt::Short('x'), arg: false },
    Long { name: "zfetch", val: Opt::Short('z'), arg: false },
    Long { name: "outfile", val: Opt::Short('o'), arg: true },
    Long { name: "help", val: Opt::Short('h'), arg: false },
    Long { name: "verbose", val: Opt::Short('v'), arg: false },
    Long { name: "separator", val: Opt::Short('s'), arg: true },
    Long { name: "columns", val: Opt::Short('f'), arg: true },
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
];

/// Lines from a header to the next, if no terminal reports its height.
const HEADER_EVERY: usize = 21;
const DEFAULT: &str = "time,read,ddread,ddh%,dmread,dmh%,pread,ph%,size,c,avail";
const EXTENDED: &str = "time,mfu,mru,mfug,mrug,unc,eskip,mtxmis,dread,pread,read";
const ZFETCH: &str = "time,ztotal,zhits,zahead,zpast,zmisses,zmax,zfuture,zstride,zissued,zactive";

/// Which columns are requested.
#[derive(Debug, PartialEq, Eq)]
enum Which {
    All,
    Named(String),
}

/// The request, from the command line.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    which: Which,
    separator: String,
    parsable: bool,
    file: Option<String>,
    interval: u64,
    /// How many lines to print. `None` prints without end.
    count: Option<u64>,
}

/// The counters now and a line before.
struct Reading<'a> {
    before: &'a Counts,
    now: &'a Counts,
    /// The requested seconds between both.
    interval: u64,
}

impl Reading<'_> {
    /// How much the sum of these grew in a second.
    fn rate(&self, names: &[&str]) -> Result<f64, String> {
        Ok((self.now.sum(names)? - self.before.sum(names)?) as f64 / self.interval as f64)
    }
}

/// Why there are no lines, and what standard error shows for it.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// The user requests the list of columns.
    List,
    /// The message, then the usage text.
    Usage(String),
    /// These columns need an L2ARC, and there is none. Standard output lists them before the
    /// message.
    NoL2(Vec<String>),
    Failed(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Failed(why)
    }
}

/// Runs `arcstat`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Requests, args: &[String], clock: &Clock) -> i32 {
    let told = parse(args).and_then(|asked| match &asked.file {
        None => lines(out, service, &asked, clock),
        Some(name) => {
            let cannot = |_| Stop::Failed(format!("Cannot open {name} for writing"));
            let file = std::fs::File::create(name).map_err(cannot)?;
            lines(&mut Out::new(Box::new(file)), service, &asked, clock)
        }
    });
    match told {
        Ok(()) => return 0,
        Err(Stop::List) => {
            let first = USAGE.lines().next().unwrap_or_default();
            writeln!(err, "{first}\n\nField definitions are as follows:");
            columns::all().iter().for_each(|c| writeln!(err, "{:>11} : {}", c.name, c.what));
            err.put("\n");
            return 0;
        }
        Err(Stop::Usage(why)) => {
            err.put(&why);
            err.put(USAGE);
        }
        Err(Stop::NoL2(names)) => {
            names.iter().for_each(|name| writeln!(out, "No L2ARC Here\n{name}"));
            writeln!(err, "Incompatible field specified! -- {}", bracketed(&names));
            err.put(USAGE);
        }
        Err(Stop::Failed(why)) => writeln!(err, "{why}"),
    }
    1
}

/// Names as OpenZFS's program lists them.
fn bracketed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!("[{}]", quoted.join(", "))
}

fn lines(out: &mut Out, service: &dyn Requests, asked: &Asked, clock: &Clock) -> Result<(), Stop> {
    let mut before = counts(service)?;
    let columns = choose(&asked.which, before.get("l2_size")? > 0)?;
    let mut shown = 0;
    for line in 1.. {
        let screen = crate::terminal::screen().map(|(rows, _)| rows).filter(|rows| *rows > 3);
        if shown == 0 {
            out.put(&header(&columns, asked));
        }
        let now = counts(service)?;
        let time = clock.history(clock.now());
        let read = Reading { before: &before, now: &now, interval: asked.interval };
        out.put(&row(&columns, asked, &read, time.rsplit('.').next().unwrap_or_default())?);
        before = now;
        if !out.flush() || asked.count.is_some_and(|count| line >= count) {
            break;
        }
        // A header, its lines and one free line fill the screen.
        shown = if shown + 1 >= screen.map_or(HEADER_EVERY, |rows| rows - 2) { 0 } else { shown + 1 };
        std::thread::sleep(Duration::from_secs(asked.interval));
    }
    Ok(())
}

fn counts(service: &dyn Requests) -> Result<Counts, String> {
    let all = service.kstats().map_err(|e| format!("cannot get kstats: {}", e.about))?;
    let mut counts = Counts::default();
    counts.add(&all, "arcstats", "")?;
    counts.add(&all, "zfetchstats", "zfetch_")?;
    Ok(counts)
}

/// The requested columns. Those of the L2ARC require one.
fn choose(which: &Which, l2: bool) -> Result<Vec<Column>, Stop> {
    let mut all = columns::all();
    let names = match which {
        Which::All => {
            all.retain(|c| l2 || !c.of_l2());
            return Ok(all);
        }
        Which::Named(names) => names,
    };
    let find = |name: &str| all.iter().find(|c| c.name == name).cloned().ok_or_else(|| name.to_owned());
    let (found, bad): (Vec<_>, Vec<_>) = names.split(',').map(find).partition(Result::is_ok);
    if !bad.is_empty() {
        let bad: Vec<String> = bad.into_iter().filter_map(Result::err).collect();
        return Err(Stop::Usage(format!("Invalid column definition! -- {}\n", bracketed(&bad))));
    }
    let found: Vec<Column> = found.into_iter().flatten().collect();
    let second: Vec<String> = found.iter().filter(|c| c.of_l2()).map(|c| c.name.to_string()).collect();
    if l2 || second.is_empty() { Ok(found) } else { Err(Stop::NoL2(second)) }
}

/// Parses the arguments.
fn parse(args: &[String]) -> Result<Asked, Stop> {
    let (mut names, mut flags, mut file) = (None, String::new(), None);
    let mut separator = "  ".to_owned();
    let mut options = Getopt::new(args, "axzo:hvs:f:p", LONG);
    for found in options.by_ref() {
        match found {
            Found::Is(Opt::Short('f'), value) => names = Some(value),
            Found::Is(Opt::Short('s'), value) => separator = value,
            Found::Is(Opt::Short('o'), value) => file = Some(value),
            Found::Is(Opt::Short(flag), _) => flags.push(flag),
            Found::Is(Opt::Named(name), _) => {
                return Err(Stop::Usage(format!("Error: option --{name} not recognized\n")));
            }
            Found::Invalid('\0') => return Err(Stop::Usage("Error: option not recognized\n".to_owned())),
            Found::Invalid(c) => return Err(Stop::Usage(format!("Error: option -{c} not recognized\n"))),
            Found::Missing(c) => return Err(Stop::Usage(format!("Error: option -{c} requires argument\n"))),
        }
    }
    let number = |word: String| {
        let n = word.parse::<u64>();
        n.map_err(|_| Stop::Usage(format!("Error: '{word}' is no number\n")))
    };
    let numbers = options.operands().into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let is = |flag: char| flags.contains(flag);
    let chosen = [is('x'), is('z'), names.is_some()].into_iter().filter(|is| *is).count();
    if is('h') || chosen > 1 || numbers.len() > 2 {
        return Err(Stop::Usage(String::new()));
    }
    if is('v') {
        return Err(Stop::List);
    }
    let which = match names {
        _ if is('a') => Which::All,
        Some(names) => Which::Named(names),
        None if is('x') => Which::Named(EXTENDED.to_owned()),
        None if is('z') => Which::Named(ZFETCH.to_owned()),
        None => Which::Named(DEFAULT.to_owned()),
    };
    let interval = numbers.first().copied().unwrap_or(1);
    if interval == 0 {
        return Err(Stop::Usage("Error: nothing happens in 0 seconds\n".to_owned()));
    }
    let count = match numbers[..] {
        [] => Some(1),
        [_] => None,
        [_, count, ..] => Some(count).filter(|c| *c > 0),
    };
    Ok(Asked { which, separator, parsable: is('p'), file, interval, count })
}

fn header(columns: &[Column], asked: &Asked) -> String {
    let names = columns.iter().map(|c| match asked.parsable {
        true => c.name.to_string(),
        false => format!("{:>width$}", c.name, width = c.width),
    });
    names.collect::<Vec<_>>().join(&asked.separator) + "\n"
}

fn row(columns: &[Column], asked: &Asked, read: &Reading<'_>, time: &str) -> Result<String, String> {
    let one = |c: &Column| {
        Ok(match c.value(read)? {
            None => time.to_owned(),
            Some(Value::Whole(n)) if asked.parsable => n.to_string(),
            Some(Value::Float(n)) if asked.parsable => float(n),
            Some(value) => pretty(c.width, c.scale, value.float(), asked.interval),
        })
    };
    Ok(columns.iter().map(one).collect::<Result<Vec<_>, String>>()?.join(&asked.separator) + "\n")
}

/// A number in its shortest form, as Python prints it: scripts parsed that from OpenZFS's program.
fn float(n: f64) -> String {
    if n == 0.0 || (1e-4..1e16).contains(&n.abs()) {
        return format!("{n:?}");
    }
    let text = format!("{n:e}");
    match text.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        Some((digits, power)) => {
            format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        None => text,
    }
}

/// A number in a column, with a suffix if it is large (`prettynum`).
fn pretty(width: usize, scale: u32, mut value: f64, interval: u64) -> String {
    const SUFFIXES: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut index = 0;
    while scale != 100 && value.abs() > f64::from(scale) && index < 5 {
        value /= f64::from(scale);
        index += 1;
    }
    let width = width - usize::from(index > 0);
    let whole = interval == 1 && value.fract() == 0.0;
    let decimals = usize::from(!whole && width >= format!("{value:.0}").len() + 2);
    format!("{value:width$.decimals$}{}", SUFFIXES[index])
}

#[cfg(test)]
mod tests;
