//! `poolhouse arc_summary`: a report on the cache and its parts, as OpenZFS's `arc_summary` prints
//! it.
//!
//! # Theory
//! A section is a table of rows (`rows`). Each row has a label and values that are computed from
//! the counters of one kstat. Parameters are listed unchanged.
//!
//! The command gets all data from the daemon before it prints anything, so that a report doesn't
//! contradict itself. A counter that the daemon lacks ends the report with its name.
//!
//! # Absent
//! * Section `vdev`: OpenZFS names it in its help and lacks it too.
//! * Descriptions (`-d`) in OpenZFS's words: they are those of `poolhouse get tunable`.

mod format;
mod rows;

use crate::counts::Counts;
use api::{Kstat, KstatValue, Requests, SplParameter, Tunable};
use console::Clock;
use console::Out;
use console::getopt::{Found, Getopt, Long, Opt};
use rows::Row;

const USAGE: &str = "\
usage: arc_summary [-h] [-a] [-d] [-g] [-p PAGE] [-r] [-s SECTION]
";
const HELP: &str = "
Print ARC and other statistics for OpenZFS

options:
  -h, --help            show this help message and exit
  -a, --alternate       use alternate formatting for tunables and SPL
  -d, --description     print descriptions with tunables and SPL
  -g, --graph           print graph on ARC use and exit
  -p, --page PAGE       print page by number (DEPRECATED, use \"-s\")
  -r, --raw             dump all available data with minimal formatting
  -s, --section SECTION
                        print info from one section
                        (arc archits dmu l2arc spl tunables zil)
";
const LONG: &[Long] = &[
    Long { name: "help", val: Opt::Short('h'), arg: false },
    Long { name: "alternate", val: Opt::Short('a'), arg: false },
    Long { name: "description", val: Opt::Short('d'), arg: false },
    Long { name: "graph", val: Opt::Short('g'), arg: false },
    Long { name: "page", val: Opt::Short('p'), arg: true },
    Long { name: "raw", val: Opt::Short('r'), arg: false },
    Long { name: "section", val: Opt::Short('s'), arg: true },
];
const INDENT: &str = "        ";
/// Columns of a line.
const WIDTH: usize = 72;
/// The kstats that the report reads, in the order in which `-r` lists them.
const KSTATS: [&str; 4] = ["arcstats", "dmu_tx", "zfetchstats", "zil"];

/// A section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Rows computed from the counters of one kstat.
    Arc,
    ArcHits,
    Dmu,
    L2Arc,
    Spl,
    Tunables,
    Zil,
}

/// The sections by name, in the order of a whole report.
const SECTIONS: [(&str, Section); 7] = [
    ("arc", Section::Arc),
    ("archits", Section::ArcHits),
    ("dmu", Section::Dmu),
    ("l2arc", Section::L2Arc),
    ("spl", Section::Spl),
    ("tunables", Section::Tunables),
    ("zil", Section::Zil),
];
/// The sections by their old page numbers. The fifth, of devices, no longer exists.
const PAGES: [&str; 6] = ["arc", "archits", "l2arc", "dmu", "vdev", "tunables"];

/// The request, from the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    alternate: bool,
    described: bool,
    graph: bool,
    raw: bool,
    section: Option<String>,
    page: Option<i64>,
}

/// The daemon's data.
struct Told {
    kstats: Vec<Kstat>,
    tunables: Vec<Tunable>,
    spl: Vec<SplParameter>,
}

/// Runs `arc_summary`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Requests, args: &[String], clock: &Clock) -> i32 {
    let asked = match parse(args) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            out.put(USAGE);
            out.put(HELP);
            return 0;
        }
        Err(why) => {
            err.put(USAGE);
            writeln!(err, "arc_summary: error: {why}");
            return 2;
        }
    };
    let said = ask(service).and_then(|told| {
        match asked.graph {
            true => told.graph(),
            false => Ok(header(clock)),
        }
        .map(|begin| (told, begin))
    });
    let (told, begin) = match said {
        Ok(said) => said,
        Err(why) => {
            writeln!(err, "arc_summary: {why}");
            return 1;
        }
    };
    out.put(&begin);
    if asked.graph {
        return 0;
    }
    match told.report(&asked) {
        Ok(text) => {
            out.put(&text);
            0
        }
        Err(Stop::NoSuch(why)) => {
            out.put(&why);
            1
        }
        Err(Stop::Failed(why)) => {
            writeln!(err, "arc_summary: {why}");
            1
        }
    }
}

/// Why there is no report.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// There is no such section. As in OpenZFS, the message takes the place of the report.
    NoSuch(String),
    Failed(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Failed(why)
    }
}

fn ask(service: &dyn Requests) -> Result<Told, String> {
    let failed = |what: &str, e: api::Error| format!("cannot get {what}: {}", e.about);
    Ok(Told {
        kstats: service.kstats().map_err(|e| failed("kstats", e))?,
        tunables: service.tunables().map_err(|e| failed("tunables", e))?,
        spl: service.spl().map_err(|e| failed("parameters of spl", e))?,
    })
}

/// Parses the arguments. `None` means help.
fn parse(args: &[String]) -> Result<Option<Asked>, String> {
    let mut asked = Asked::default();
    let mut options = Getopt::new(args, "hadgp:rs:", LONG);
    for found in options.by_ref() {
        match found {
            Found::Is(Opt::Short('h'), _) => return Ok(None),
            Found::Is(Opt::Short('a'), _) => asked.alternate = true,
            Found::Is(Opt::Short('d'), _) => asked.described = true,
            Found::Is(Opt::Short('g'), _) => asked.graph = true,
            Found::Is(Opt::Short('r'), _) => asked.raw = true,
            Found::Is(Opt::Short('s'), name) => asked.section = Some(name),
            Found::Is(_, page) => {
                let number = page.parse().ok();
                let number =
                    number.ok_or_else(|| format!("argument -p/--page: invalid int value: '{page}'"))?;
                asked.page = Some(number);
            }
            Found::Invalid('\0') => return Err("unrecognized option".to_owned()),
            Found::Invalid(c) => return Err(format!("unrecognized arguments: -{c}")),
            Found::Missing(c) => return Err(format!("argument -{c}: expected one argument")),
        }
    }
    match options.operands().as_slice() {
        [] => Ok(Some(asked)),
        words => Err(format!("unrecognized arguments: {}", words.join(" "))),
    }
}

/// A label, and a value at the end of the line.
fn spread(indent: &str, label: &str, value: &str) -> String {
    let room = WIDTH.saturating_sub(indent.len() + label.len());
    format!("{indent}{label}{value:>room$}\n")
}

/// The header: the time, the machine and the release.
fn header(clock: &Clock) -> String {
    let version = crate::version::module();
    // The same words as in `uname`.
    let word = |what: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{what}"));
        text.map_or_else(|_| "(unknown)".to_owned(), |text| text.trim_end().to_owned())
    };
    let machine = format!("Machine: {} ({})", word("hostname"), std::env::consts::ARCH);
    format!(
        "\n{}\n{}{}{}\n",
        "-".repeat(WIDTH),
        spread("", "ZFS Subsystem Report", &clock.padded(clock.now())),
        spread("", &format!("{} {}", word("ostype"), word("osrelease")), &version),
        // Both modules have the same version.
        spread("", &machine, &version),
    )
}

impl Told {
    /// The requested report, without the header.
    fn report(&self, asked: &Asked) -> Result<String, Stop> {
        if asked.raw {
            return Ok(self.raw(asked)?);
        }
        let find = |name: &str| SECTIONS.iter().find(|(n, _)| *n == name).map(|(_, section)| *section);
        if let Some(name) = &asked.section {
            let unknown = || Stop::NoSuch(format!("Error: Section \"{name}\" unknown\n"));
            return Ok(self.section(find(name).ok_or_else(unknown)?, asked)?);
        }
        if let Some(page) = asked.page {
            let name = usize::try_from(page).ok().and_then(|n| PAGES.get(n.checked_sub(1)?));
            let warning = "WARNING: Pages are deprecated, please use \"--section\"\n\n";
            let unknown = || Stop::NoSuch(format!("{warning}Error: Page \"{page}\" not supported\n"));
            let section = name.and_then(|name| find(name)).ok_or_else(unknown)?;
            return Ok(warning.to_owned() + &self.section(section, asked)?);
        }
        Ok(SECTIONS
            .iter()
            .map(|(_, section)| self.section(*section, asked))
            .collect::<Result<String, _>>()?)
    }

    fn section(&self, section: Section, asked: &Asked) -> Result<String, String> {
        let rows = |kstat: &str, rows: &[Row]| -> Result<String, String> {
            let counts = self.counts(kstat)?;
            rows.iter().map(|row| row.text(&counts)).collect()
        };
        match section {
            Section::Arc => rows("arcstats", rows::ARC),
            Section::ArcHits => rows("arcstats", rows::ARCHITS),
            Section::Dmu => rows("zfetchstats", rows::DMU),
            Section::Zil => rows("zil", rows::ZIL),
            Section::L2Arc if self.counts("arcstats")?.get("l2_size")? == 0 => {
                Ok("L2ARC not detected, skipping section\n\n".to_owned())
            }
            Section::L2Arc => rows("arcstats", rows::L2ARC),
            Section::Spl => {
                let all = self.spl.iter().map(|p| (&p.name, p.value.clone(), p.what.clone()));
                Ok(parameters("Solaris Porting Layer (SPL):", all, asked))
            }
            Section::Tunables => {
                let mark = |t: &Tunable| if t.no_effect { " (no effect here)" } else { "" };
                let what = |t: &Tunable| format!("{}{}", t.what, mark(t));
                let all = self.tunables.iter().map(|t| (&t.name, t.told(t.value), what(t)));
                Ok(parameters("Tunables:", all, asked))
            }
        }
    }

    fn counts(&self, kstat: &str) -> Result<Counts, String> {
        let mut counts = Counts::default();
        counts.add(&self.kstats, kstat, "")?;
        Ok(counts)
    }

    /// All counters and parameters by name.
    fn raw(&self, asked: &Asked) -> Result<String, String> {
        let mut text = String::new();
        for name in KSTATS {
            let of = self.kstats.iter().find(|k| k.pool.is_none() && k.name == name);
            let of = of.ok_or_else(|| format!("nothing is counted as '{name}'"))?;
            text += &format!("\n{}:\n", name.to_uppercase());
            let mut values: Vec<_> = of.values.iter().collect();
            values.sort_by_key(|(name, _)| name);
            for (name, value) in values {
                let value = match value {
                    KstatValue::Number(n) => n.to_string(),
                    KstatValue::Signed(n) => n.to_string(),
                    KstatValue::Text(text) => text.clone(),
                };
                text += &plain(name, &value, asked);
            }
        }
        let lists = [Section::Spl, Section::Tunables].map(|section| self.section(section, asked));
        Ok(lists
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .fold(text + "\n", |text, list| text + &list))
    }

    /// A bar that shows how full the cache is, and of what.
    fn graph(&self) -> Result<String, String> {
        const MARGIN: &str = "    ";
        const ROOM: usize = 70;
        let counts = self.counts("arcstats")?;
        let (size, most) = (counts.get("size")?, counts.get("c_max")? as f64);
        let parts = [("data_size", 'D'), ("metadata_size", 'M'), ("dnode_size", 'N')];
        let [data, metadata, dnodes] = parts.map(|(name, _)| counts.get(name));
        let line = format!(
            "ARC: {} ({}) Data: {} Meta: {} Dnode: {}",
            format::bytes(size),
            format::percent(size as f64, most),
            format::bytes(data?),
            format::bytes(metadata?),
            format::bytes(dnodes?)
        );
        let before = ROOM.saturating_sub(line.len()) / 2;
        let ticks = |n: i128| if most > 0.0 { n as f64 / most * ROOM as f64 } else { 0.0 };
        let (mut bar, mut drawn) = (String::new(), 0.0);
        for (name, letter) in parts {
            let long = ticks(counts.get(name)?);
            // A part below one tick is not drawn, and adds to no other part.
            bar.extend(std::iter::repeat_n(letter, long as usize));
            drawn += long;
        }
        bar.extend(std::iter::repeat_n('O', (ticks(size) - drawn) as usize));
        let edge = format!("{MARGIN}+{}+", "-".repeat(ROOM - 2));
        let room = ROOM - 2;
        Ok(format!("\n{MARGIN}{:before$}{line}\n{edge}\n{MARGIN}|{bar:<room$}|\n{edge}\n\n", ""))
    }
}

/// A name and its value, in the layout of `-a`.
fn plain(name: &str, value: &str, asked: &Asked) -> String {
    if asked.alternate {
        return format!("{INDENT}{name}={value}\n");
    }
    // At least one space separates them.
    spread(INDENT, name, &format!(" {value}"))
}

/// Parameters by name, with their descriptions if these are requested.
fn parameters<'a>(
    title: &str,
    all: impl Iterator<Item = (&'a String, String, String)>,
    asked: &Asked,
) -> String {
    let mut all: Vec<_> = all.collect();
    all.sort();
    let mut text = format!("{title}\n");
    for (name, value, what) in all {
        if asked.described {
            text += &format!("{INDENT}# {what}\n");
        }
        text += &plain(name, &value, asked);
    }
    text + "\n"
}

#[cfg(test)]
mod tests;
