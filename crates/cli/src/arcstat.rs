//! `poolhouse arcstat`: what the cache does, line by line, as OpenZFS's `arcstat` prints it.
//!
//! # Absent
//! Columns of an L2ARC, which is not here, and of the breakdowns by size (`-a` has all others); `-o`, which a shell does. What is not here is refused by name.

use crate::clock::Clock;
use crate::cx::Out;
use server::api::{KstatValue, Service};
use std::collections::BTreeMap;
use std::time::Duration;

const USAGE: &str = "\
Usage: arcstat [-havxzp] [-f fields] [-s string] [interval [count]]
";

/// Lines between headers.
const HEADER_EVERY: u64 = 20;
const DEFAULT: &str = "time,read,ddread,ddh%,dmread,dmh%,pread,ph%,size,c,avail";
const EXTENDED: &str = "time,mfu,mru,mfug,mrug,unc,eskip,mtxmis,dread,pread,read";
const ZFETCH: &str = "time,ztotal,zhits,zahead,zpast,zmisses,zmax,zfuture,zstride,zissued,zactive";

/// What a column shows, of counters by their names.
enum Shows {
    Time,
    /// How much these grew in a second.
    Rate(&'static [&'static str]),
    /// What part of the growth of the second the first is.
    Part(&'static [&'static str], &'static [&'static str]),
    /// What it is now.
    Now(&'static str),
    /// 1 while it is 0.
    Not(&'static str),
}

use Shows::{Not, Now, Part, Rate, Time};

struct Column {
    name: &'static str,
    width: usize,
    /// 1000 or 1024 for numbers that get a suffix, 100 for percent.
    scale: u32,
    what: &'static str,
    shows: Shows,
}

const fn column(name: &'static str, width: usize, scale: u32, what: &'static str, shows: Shows) -> Column {
    Column { name, width, scale, what, shows }
}

const READS: &[&str] = &["hits", "iohits", "misses"];
const DEMAND_HITS: &[&str] = &["demand_data_hits", "demand_metadata_hits"];
const DEMAND_IOHITS: &[&str] = &["demand_data_iohits", "demand_metadata_iohits"];
const DEMAND_MISSES: &[&str] = &["demand_data_misses", "demand_metadata_misses"];
const DEMAND: &[&str] = &[
    "demand_data_hits",
    "demand_metadata_hits",
    "demand_data_iohits",
    "demand_metadata_iohits",
    "demand_data_misses",
    "demand_metadata_misses",
];
const DEMAND_DATA: &[&str] = &["demand_data_hits", "demand_data_iohits", "demand_data_misses"];
const DEMAND_METADATA: &[&str] =
    &["demand_metadata_hits", "demand_metadata_iohits", "demand_metadata_misses"];
const PREFETCH_HITS: &[&str] = &["prefetch_data_hits", "prefetch_metadata_hits"];
const PREFETCH: &[&str] = &[
    "prefetch_data_hits",
    "prefetch_metadata_hits",
    "prefetch_data_iohits",
    "prefetch_metadata_iohits",
    "prefetch_data_misses",
    "prefetch_metadata_misses",
];
const METADATA_HITS: &[&str] = &["demand_metadata_hits", "prefetch_metadata_hits"];
const METADATA_MISSES: &[&str] = &["demand_metadata_misses", "prefetch_metadata_misses"];
const METADATA: &[&str] = &[
    "demand_metadata_hits",
    "prefetch_metadata_hits",
    "demand_metadata_iohits",
    "prefetch_metadata_iohits",
    "demand_metadata_misses",
    "prefetch_metadata_misses",
];

const L2_READS: &[&str] = &["l2_hits", "l2_misses"];

const COLUMNS: &[Column] = &[
    column("time", 8, 0, "Time", Time),
    column("hits", 4, 1000, "ARC hits per second", Rate(&["hits"])),
    column("iohs", 4, 1000, "ARC I/O hits per second", Rate(&["iohits"])),
    column("miss", 4, 1000, "ARC misses per second", Rate(&["misses"])),
    column("read", 4, 1000, "Total ARC accesses per second", Rate(READS)),
    column("hit%", 4, 100, "ARC hit percentage", Part(&["hits"], READS)),
    column("ioh%", 4, 100, "ARC I/O hit percentage", Part(&["iohits"], READS)),
    column("miss%", 5, 100, "ARC miss percentage", Part(&["misses"], READS)),
    column("dhit", 4, 1000, "Demand hits per second", Rate(DEMAND_HITS)),
    column("dioh", 4, 1000, "Demand I/O hits per second", Rate(DEMAND_IOHITS)),
    column("dmis", 4, 1000, "Demand misses per second", Rate(DEMAND_MISSES)),
    column("dread", 5, 1000, "Demand accesses per second", Rate(DEMAND)),
    column("dh%", 3, 100, "Demand hit percentage", Part(DEMAND_HITS, DEMAND)),
    column("di%", 3, 100, "Demand I/O hit percentage", Part(DEMAND_IOHITS, DEMAND)),
    column("dm%", 3, 100, "Demand miss percentage", Part(DEMAND_MISSES, DEMAND)),
    column("ddhit", 5, 1000, "Demand data hits per second", Rate(&["demand_data_hits"])),
    column("ddioh", 5, 1000, "Demand data I/O hits per second", Rate(&["demand_data_iohits"])),
    column("ddmis", 5, 1000, "Demand data misses per second", Rate(&["demand_data_misses"])),
    column("ddread", 6, 1000, "Demand data accesses per second", Rate(DEMAND_DATA)),
    column("ddh%", 4, 100, "Demand data hit percentage", Part(&["demand_data_hits"], DEMAND_DATA)),
    column("ddi%", 4, 100, "Demand data I/O hit percentage", Part(&["demand_data_iohits"], DEMAND_DATA)),
    column("ddm%", 4, 100, "Demand data miss percentage", Part(&["demand_data_misses"], DEMAND_DATA)),
    column("dmhit", 5, 1000, "Demand metadata hits per second", Rate(&["demand_metadata_hits"])),
    column("dmioh", 5, 1000, "Demand metadata I/O hits per second", Rate(&["demand_metadata_iohits"])),
    column("dmmis", 5, 1000, "Demand metadata misses per second", Rate(&["demand_metadata_misses"])),
    column("dmread", 6, 1000, "Demand metadata accesses per second", Rate(DEMAND_METADATA)),
    column(
        "dmh%",
        4,
        100,
        "Demand metadata hit percentage",
        Part(&["demand_metadata_hits"], DEMAND_METADATA),
    ),
    column(
        "dmi%",
        4,
        100,
        "Demand metadata I/O hit percentage",
        Part(&["demand_metadata_iohits"], DEMAND_METADATA),
    ),
    column(
        "dmm%",
        4,
        100,
        "Demand metadata miss percentage",
        Part(&["demand_metadata_misses"], DEMAND_METADATA),
    ),
    column("phit", 4, 1000, "Prefetch hits per second", Rate(PREFETCH_HITS)),
    column("pread", 5, 1000, "Prefetch accesses per second", Rate(PREFETCH)),
    column("ph%", 3, 100, "Prefetch hits percentage", Part(PREFETCH_HITS, PREFETCH)),
    column("mhit", 4, 1000, "Metadata hits per second", Rate(METADATA_HITS)),
    column("mmis", 4, 1000, "Metadata misses per second", Rate(METADATA_MISSES)),
    column("mread", 5, 1000, "Metadata accesses per second", Rate(METADATA)),
    column("mh%", 3, 100, "Metadata hit percentage", Part(METADATA_HITS, METADATA)),
    column("mm%", 3, 100, "Metadata miss percentage", Part(METADATA_MISSES, METADATA)),
    column("arcsz", 5, 1024, "ARC size", Now("size")),
    column("size", 5, 1024, "ARC size", Now("size")),
    column("c", 5, 1024, "ARC target size", Now("c")),
    column("mfu", 4, 1000, "MFU list hits per second", Rate(&["mfu_hits"])),
    column("mru", 4, 1000, "MRU list hits per second", Rate(&["mru_hits"])),
    column("mfug", 4, 1000, "MFU ghost list hits per second", Rate(&["mfu_ghost_hits"])),
    column("mrug", 4, 1000, "MRU ghost list hits per second", Rate(&["mru_ghost_hits"])),
    column("unc", 4, 1000, "Uncached list hits per second", Rate(&["uncached_hits"])),
    column("eskip", 5, 1000, "evict_skip per second", Rate(&["evict_skip"])),
    column("mtxmis", 6, 1000, "mutex_miss per second", Rate(&["mutex_miss"])),
    column("l2hits", 6, 1000, "L2ARC hits per second", Rate(&["l2_hits"])),
    column("l2miss", 6, 1000, "L2ARC misses per second", Rate(&["l2_misses"])),
    column("l2read", 6, 1000, "Total L2ARC accesses per second", Rate(L2_READS)),
    column("l2hit%", 6, 100, "L2ARC access hit percentage", Part(&["l2_hits"], L2_READS)),
    column("l2miss%", 7, 100, "L2ARC access miss percentage", Part(&["l2_misses"], L2_READS)),
    column("l2pref", 6, 1024, "L2ARC prefetch allocated size", Now("l2_prefetch_asize")),
    column("l2mfu", 5, 1024, "L2ARC MFU allocated size", Now("l2_mfu_asize")),
    column("l2mru", 5, 1024, "L2ARC MRU allocated size", Now("l2_mru_asize")),
    column("l2data", 6, 1024, "L2ARC data allocated size", Now("l2_bufc_data_asize")),
    column("l2meta", 6, 1024, "L2ARC metadata allocated size", Now("l2_bufc_metadata_asize")),
    column("l2asize", 7, 1024, "Actual (compressed) size of the L2ARC", Now("l2_asize")),
    column("l2size", 6, 1024, "Size of the L2ARC", Now("l2_size")),
    column("l2bytes", 7, 1024, "Bytes read per second from the L2ARC", Rate(&["l2_read_bytes"])),
    column("l2wbytes", 8, 1024, "Bytes written per second to the L2ARC", Rate(&["l2_write_bytes"])),
    column("el2skip", 7, 1000, "evict_l2_skip per second", Rate(&["evict_l2_skip"])),
    column("grow", 4, 1000, "ARC grow disabled", Not("arc_no_grow")),
    column("need", 5, 1024, "ARC reclaim need", Now("arc_need_free")),
    column("free", 5, 1024, "ARC free memory", Now("memory_free_bytes")),
    column("avail", 5, 1024, "ARC available memory", Now("memory_available_bytes")),
    column(
        "ztotal",
        6,
        1000,
        "zfetch total prefetcher calls per second",
        Rate(&["zfetch_hits", "zfetch_future", "zfetch_stride", "zfetch_past", "zfetch_misses"]),
    ),
    column("zhits", 5, 1000, "zfetch stream hits per second", Rate(&["zfetch_hits"])),
    column(
        "zahead",
        6,
        1000,
        "zfetch hits ahead of streams per second",
        Rate(&["zfetch_future", "zfetch_stride"]),
    ),
    column("zpast", 5, 1000, "zfetch hits behind streams per second", Rate(&["zfetch_past"])),
    column("zmisses", 7, 1000, "zfetch stream misses per second", Rate(&["zfetch_misses"])),
    column("zmax", 4, 1000, "zfetch limit reached per second", Rate(&["zfetch_max_streams"])),
    column("zfuture", 7, 1000, "zfetch stream future per second", Rate(&["zfetch_future"])),
    column("zstride", 7, 1000, "zfetch stream strides per second", Rate(&["zfetch_stride"])),
    column("zissued", 7, 1000, "zfetch prefetches issued per second", Rate(&["zfetch_io_issued"])),
    column("zactive", 7, 1000, "zfetch prefetches active per second", Rate(&["zfetch_io_active"])),
];

/// What is asked for.
struct Asked {
    columns: Vec<&'static Column>,
    separator: String,
    parsable: bool,
    interval: u64,
    /// Lines; none is no end.
    count: Option<u64>,
}

/// Counters by name.
type Counts = BTreeMap<String, u64>;

/// Runs it; the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Service, args: &[String], clock: &Clock) -> i32 {
    let asked = match parse(args) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            err.put("Field definitions are as follows:\n");
            COLUMNS.iter().for_each(|c| writeln!(err, "{:>11} : {}", c.name, c.what));
            return 1;
        }
        Err(why) => {
            err.put(&why);
            err.put(USAGE);
            return 1;
        }
    };
    let snapshot = || counts(service);
    let told = snapshot().and_then(|mut before| {
        for line in 0.. {
            if line % HEADER_EVERY == 0 {
                out.put(&header(&asked));
            }
            let now = snapshot()?;
            let time = clock.history(clock.now());
            out.put(&row(&asked, &before, &now, time.rsplit('.').next().unwrap_or_default()));
            before = now;
            if !out.flush() || asked.count.is_some_and(|count| line + 1 >= count) {
                break;
            }
            std::thread::sleep(Duration::from_secs(asked.interval));
        }
        Ok(())
    });
    match told {
        Ok(()) => 0,
        Err(why) => {
            writeln!(err, "{why}");
            1
        }
    }
}

fn counts(service: &dyn Service) -> Result<Counts, String> {
    let all = service.kstats().map_err(|e| format!("cannot get kstats: {}", e.about))?;
    let mut counts = Counts::new();
    for (kstat, prefix) in [("arcstats", ""), ("zfetchstats", "zfetch_")] {
        let of = all.iter().find(|k| k.pool.is_none() && k.name == kstat);
        for (name, value) in of.into_iter().flat_map(|k| &k.values) {
            let n = match value {
                KstatValue::Number(n) => *n,
                KstatValue::Signed(n) => u64::try_from(*n).unwrap_or(0),
                KstatValue::Text(_) => continue,
            };
            counts.insert(format!("{prefix}{name}"), n);
        }
    }
    Ok(counts)
}

/// What the arguments ask for; nothing for the list of columns.
fn parse(args: &[String]) -> Result<Option<Asked>, String> {
    let (mut names, mut which, mut numbers) = (None, Vec::new(), Vec::new());
    let (mut separator, mut parsable) = ("  ".to_owned(), false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value =
            |what: &str| args.next().cloned().ok_or(format!("Error: option {what} requires argument\n"));
        match arg.as_str() {
            "-f" | "--columns" => names = Some(value(arg)?),
            "-s" | "--separator" => separator = value(arg)?,
            "-h" | "--help" => return Err(String::new()),
            flags if flags.starts_with('-') && flags.len() > 1 => {
                for flag in flags[1..].chars() {
                    match flag {
                        'a' | 'x' | 'z' => which.push(flag),
                        'p' => parsable = true,
                        'v' => return Ok(None),
                        _ => return Err(format!("Error: option -{flag} not recognized\n")),
                    }
                }
            }
            number => {
                numbers.push(number.parse::<u64>().map_err(|_| format!("Error: '{number}' is no number\n"))?)
            }
        }
    }
    if numbers.len() > 2 || which.len() + usize::from(names.is_some()) > 1 {
        return Err(String::new());
    }
    let all = || COLUMNS.iter().map(|c| c.name).collect::<Vec<_>>().join(",");
    let names = match (names, which.first()) {
        (Some(names), _) => names,
        (None, Some('x')) => EXTENDED.to_owned(),
        (None, Some('z')) => ZFETCH.to_owned(),
        (None, Some(_)) => all(),
        (None, None) => DEFAULT.to_owned(),
    };
    let find = |name: &str| COLUMNS.iter().find(|c| c.name == name).ok_or(format!("'{name}'"));
    let (found, bad): (Vec<_>, Vec<_>) = names.split(',').map(find).partition(Result::is_ok);
    if !bad.is_empty() {
        let bad: Vec<String> = bad.into_iter().filter_map(Result::err).collect();
        return Err(format!("Invalid column definition! -- [{}]\n", bad.join(", ")));
    }
    let count = match numbers[..] {
        [] => Some(1),
        [_] => None,
        [_, count, ..] => Some(count).filter(|c| *c > 0),
    };
    let interval = numbers.first().copied().unwrap_or(1).max(1);
    let columns = found.into_iter().flatten().collect();
    Ok(Some(Asked { columns, separator, parsable, interval, count }))
}

fn header(asked: &Asked) -> String {
    let names = asked.columns.iter().map(|c| match asked.parsable {
        true => c.name.to_owned(),
        false => format!("{:>width$}", c.name, width = c.width),
    });
    names.collect::<Vec<_>>().join(&asked.separator) + "\n"
}

fn row(asked: &Asked, before: &Counts, now: &Counts, time: &str) -> String {
    let at = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let grown = |names: &[&str]| -> f64 {
        let sum: u64 = names.iter().map(|name| at(now, name).saturating_sub(at(before, name))).sum();
        sum as f64
    };
    let one = |c: &&Column| {
        let value = match c.shows {
            Time => return format!("{time:>width$}", width = if asked.parsable { 0 } else { c.width }),
            Rate(names) => grown(names) / asked.interval as f64,
            Part(part, whole) => match grown(whole) {
                0.0 => 0.0,
                whole => 100.0 * grown(part) / whole,
            },
            Now(name) => at(now, name) as f64,
            Not(name) => f64::from(u8::from(at(now, name) == 0)),
        };
        if asked.parsable { format!("{value}") } else { pretty(c.width, c.scale, value, asked.interval) }
    };
    asked.columns.iter().map(one).collect::<Vec<_>>().join(&asked.separator) + "\n"
}

/// A number in a column, with a suffix where it is large (`prettynum`).
fn pretty(width: usize, scale: u32, mut value: f64, interval: u64) -> String {
    const SUFFIXES: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut index = 0;
    while scale != 100 && value > f64::from(scale) && index < 5 {
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
