//! `poolhouse afs report`: what volumes hold, and what they take in their pools.
//!
//! # Theory
//! The daemon lists volumes by their headers, and their datasets with the space that the pool
//! counts. Both open no volume. Here they are joined by the names of datasets.
//!
//! A clone is a snapshot of its volume's file system, whose `used` includes it. So the total counts
//! file systems only.
//!
//! With `--estimate`, the command also reads files of the volumes, as of the last transaction
//! group, and computes what they would take otherwise (`volumes`).

#[cfg(test)]
mod tests;
mod volumes;

use super::{Wanted, invalid, missing, pages};
use crate::cx::{Cx, Outcome, Stop};
use crate::estimate::{self, long};
use crate::json::{self, Object};
use api::{AfsVolume, Dataset, DatasetKind, DatasetQuery, PropSelect};
use console::getopt::{Found, Getopt, Long, Opt};
use console::numbers;
use std::collections::{BTreeSet, HashMap};

const LONG: [Long; 9] = [
    super::valued("partition"),
    Long { name: "json", val: Opt::Short('j'), arg: false },
    long("estimate", false),
    long("dedup", false),
    long("cross", false),
    long("sample", true),
    long("time", true),
    long("seed", true),
    long("svg", true),
];
/// The properties to request of each dataset.
const PROPS: [&str; 5] = ["used", "logicalused", "referenced", "logicalreferenced", "refcompressratio"];
/// More volumes than these are not requested one by one.
const SINGLE_MAX: usize = 32;

/// The order of rows: numbers from the largest on, and names from the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Id,
    Name,
    Type,
    Files,
    Logical,
    Refer,
    Used,
    Ratio,
}

const ORDERS: [(&str, Order); 8] = [
    ("id", Order::Id),
    ("name", Order::Name),
    ("type", Order::Type),
    ("files", Order::Files),
    ("logical", Order::Logical),
    ("refer", Order::Refer),
    ("used", Order::Used),
    ("ratio", Order::Ratio),
];

/// The space of a volume, as its pool counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Space {
    /// Bytes before compression that it refers to (`logicalreferenced`), and after (`referenced`).
    logical: u64,
    refer: u64,
    /// Bytes that its end would free (`used`).
    used: u64,
    /// Of a file system, with its clones: `logicalused`.
    logical_used: Option<u64>,
    /// In hundredths (`refcompressratio`).
    ratio: u64,
}

/// A volume with its space, if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    volume: AfsVolume,
    space: Option<Space>,
}

/// Sums over file systems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Total {
    volumes: u64,
    files: u64,
    logical: u64,
    used: u64,
    /// In hundredths.
    ratio: u64,
}

/// A parsed command line.
struct Asked {
    wanted: Wanted,
    order: Order,
    volumes: Vec<String>,
    /// What is wanted of an estimate.
    estimate: Option<estimate::Asked>,
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let (mut wanted, mut order) = (Wanted::default(), Order::Used);
    let wrong = |why: String| Stop::usage(format!("{why}\n"));
    let mut estimate = estimate::Asked::usual().map_err(wrong)?;
    let (mut is_wanted, mut needs) = (false, None);
    let mut g = Getopt::new(args, "Hjps:r:c:a:", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('s'), name) => {
                let found = ORDERS.iter().find(|(known, _)| *known == name);
                let names = ORDERS.map(|(known, _)| known).join(", ");
                let wrong = || Stop::usage(format!("invalid column '{name}': choose {names}\n"));
                order = found.ok_or_else(wrong)?.1;
            }
            Found::Is(Opt::Named("partition"), letters) => wanted.query.partition = Some(letters),
            Found::Is(Opt::Named("estimate"), _) => is_wanted = true,
            Found::Is(Opt::Named("cross"), _) => {
                let why = "option '--cross' is for directories: leave it out";
                return Err(wrong(why.to_owned()));
            }
            Found::Is(option, arg) => {
                estimate.take(option, &arg).map_err(wrong)?;
                match option {
                    Opt::Short('H' | 'j' | 'p') => {}
                    Opt::Short(letter) => needs = Some(format!("-{letter}")),
                    Opt::Named(name) => needs = Some(format!("--{name}")),
                }
            }
            Found::Invalid(_) => return Err(invalid(&g)),
            Found::Missing(_) => return Err(missing(&g)),
        }
    }
    if let Some(option) = needs.filter(|_| !is_wanted) {
        return Err(wrong(format!("option '{option}' needs --estimate")));
    }
    (wanted.json, wanted.scripted, wanted.exact) = (estimate.json, estimate.scripted, estimate.exact);
    Ok(Asked { wanted, order, volumes: g.operands(), estimate: is_wanted.then_some(estimate) })
}

/// Runs `report` with the arguments after it.
pub(super) fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let asked = read(args)?;
    let of = |service: &dyn api::Requests, query: &api::AfsQuery| service.afs_volumes(query);
    let all = pages(cx, &asked.wanted, "cannot list volumes", of, |volume| volume.id.into())?;
    let (volumes, unknown) = chosen(all, &asked.volumes);
    let mut code = 0;
    for name in &unknown {
        writeln!(cx.err, "cannot report on '{name}': no volume has this number or name");
        code = 1;
    }
    let (datasets, whole) = datasets(cx, &volumes, !asked.volumes.is_empty())?;
    let lines = joined(volumes, &datasets, asked.order);
    code = if whole { code } else { 1 };
    let wanted = &asked.wanted;
    // With an estimate, scripts get its rows alone.
    let is_estimate_alone = wanted.scripted && asked.estimate.is_some();
    if !wanted.json && !is_estimate_alone {
        print(cx, wanted, &lines);
    }
    let mut root = if wanted.json { as_json(&lines) } else { Object::new() };
    if let Some(estimate) = &asked.estimate {
        let part = (wanted.query.partition.as_deref(), asked.volumes.is_empty());
        let done = volumes::run(cx, estimate, part, &lines, &mut root);
        if done.is_err() && wanted.json {
            // The report is whole without the estimate.
            writeln!(cx.out, "{}", root.line());
        }
        code = if done? { code } else { 1 };
    }
    if wanted.json {
        writeln!(cx.out, "{}", root.line());
    }
    Ok(code)
}

/// The volumes with these numbers or names, or all; and the names that no volume has.
fn chosen(all: Vec<AfsVolume>, names: &[String]) -> (Vec<AfsVolume>, Vec<String>) {
    let is = |volume: &AfsVolume, name: &String| volume.id.to_string() == *name || volume.name == *name;
    let unknown = names.iter().filter(|name| !all.iter().any(|volume| is(volume, name))).cloned().collect();
    let one_of = |volume: &AfsVolume| names.is_empty() || names.iter().any(|name| is(volume, name));
    (all.into_iter().filter(one_of).collect(), unknown)
}

/// The datasets of volumes, and whether all could be read.
fn datasets(cx: &mut Cx, volumes: &[AfsVolume], some: bool) -> Result<(Vec<Dataset>, bool), Stop> {
    let single = some && volumes.len() <= SINGLE_MAX;
    let roots: BTreeSet<&str> = match single {
        true => volumes.iter().map(|volume| volume.dataset.as_str()).collect(),
        // The file system of the partition is above.
        false => volumes.iter().filter_map(|v| Some(v.dataset.rsplit_once('/')?.0)).collect(),
    };
    let service = cx.service()?;
    let (mut found, mut whole) = (Vec::new(), true);
    for root in roots {
        let query = DatasetQuery {
            root: Some(root.to_owned()),
            depth: Some(if single { 0 } else { 2 }),
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Snapshot],
            props: PropSelect::Named(PROPS.map(str::to_owned).to_vec()),
            ..DatasetQuery::default()
        };
        match service.datasets(&query) {
            Ok(list) => {
                found.extend(list.datasets);
                for error in &list.failures {
                    cx.complain(&format!("cannot read '{}'", error.about), error);
                    whole = false;
                }
            }
            Err(error) => {
                cx.complain(&format!("cannot read '{root}'"), &error);
                whole = false;
            }
        }
    }
    Ok((found, whole))
}

/// Volumes with the space of their datasets, in order.
fn joined(volumes: Vec<AfsVolume>, datasets: &[Dataset], order: Order) -> Vec<Line> {
    let by_name: HashMap<&str, &Dataset> = datasets.iter().map(|d| (d.name.as_str(), d)).collect();
    let space = |name: &str| {
        let dataset = by_name.get(name)?;
        Some(Space {
            logical: dataset.number("logicalreferenced")?,
            refer: dataset.number("referenced")?,
            used: dataset.number("used")?,
            logical_used: dataset.number("logicalused"),
            ratio: dataset.number("refcompressratio")?,
        })
    };
    let mut lines: Vec<Line> =
        volumes.into_iter().map(|volume| Line { space: space(&volume.dataset), volume }).collect();
    let number = |line: &Line, of: fn(&Space) -> u64| line.space.as_ref().map_or(0, of);
    lines.sort_by_key(|line| line.volume.id);
    match order {
        Order::Id => {}
        Order::Name => lines.sort_by(|a, b| a.volume.name.cmp(&b.volume.name)),
        Order::Type => lines.sort_by(|a, b| a.volume.kind.cmp(&b.volume.kind)),
        Order::Files => lines.sort_by_key(|line| std::cmp::Reverse(line.volume.files)),
        Order::Logical => lines.sort_by_key(|line| std::cmp::Reverse(number(line, |s| s.logical))),
        Order::Refer => lines.sort_by_key(|line| std::cmp::Reverse(number(line, |s| s.refer))),
        Order::Used => lines.sort_by_key(|line| std::cmp::Reverse(number(line, |s| s.used))),
        Order::Ratio => lines.sort_by_key(|line| std::cmp::Reverse(number(line, |s| s.ratio))),
    }
    lines
}

fn total(lines: &[Line]) -> Total {
    let (mut total, mut packed) = (Total::default(), 0u128);
    for line in lines {
        total.volumes += 1;
        total.files += line.volume.files;
        let Some(space) = line.space else { continue };
        // Clones are part of the file system of their volume.
        let Some(logical) = space.logical_used else { continue };
        total.logical = total.logical.saturating_add(logical);
        total.used = total.used.saturating_add(space.used);
        packed += u128::from(logical) * 100 / u128::from(space.ratio.max(1));
    }
    let ratio = (u128::from(total.logical) * 100).checked_div(packed).unwrap_or(100);
    Total { ratio: u64::try_from(ratio).unwrap_or(u64::MAX), ..total }
}

fn print(cx: &mut Cx, wanted: &Wanted, lines: &[Line]) {
    let size = |n: u64| if wanted.exact { n.to_string() } else { numbers::bytes(n) };
    let row = |line: &Line| {
        let Line { volume, space } = line;
        let of = |get: &dyn Fn(&Space) -> String| space.as_ref().map_or_else(|| "-".to_owned(), get);
        vec![
            volume.id.to_string(),
            cx.out.cell(&volume.name).into_owned(),
            volume.kind.clone(),
            volume.files.to_string(),
            of(&|s| size(s.logical)),
            of(&|s| size(s.refer)),
            of(&|s| size(s.used)),
            of(&|s| numbers::ratio(s.ratio, wanted.exact)),
            volume.dataset.clone(),
        ]
    };
    let mut rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    if !wanted.scripted && lines.len() > 1 {
        let sum = total(lines);
        let ratio = numbers::ratio(sum.ratio, wanted.exact);
        let (files, logical, used) = (sum.files.to_string(), size(sum.logical), size(sum.used));
        let cells = ["-", "total", "-", &files, &logical, "-", &used, &ratio, "-"];
        rows.push(cells.map(str::to_owned).to_vec());
    }
    let head = [
        ("ID", true),
        ("NAME", false),
        ("TYPE", false),
        ("FILES", true),
        ("LOGICAL", true),
        ("REFER", true),
        ("USED", true),
        ("RATIO", true),
        ("DATASET", false),
    ];
    wanted.print(cx, &head, &rows);
}

fn as_json(lines: &[Line]) -> Object {
    let mut volumes = Object::new();
    for Line { volume, space } in lines {
        let mut shown = Object::new();
        shown.text("name", &volume.name);
        shown.text("type", &volume.kind);
        shown.text("partition", &volume.partition);
        shown.text("dataset", &volume.dataset);
        shown.number("files", volume.files);
        if let Some(space) = space {
            shown.number("logicalreferenced", space.logical);
            shown.number("referenced", space.refer);
            shown.number("used", space.used);
            if let Some(logical) = space.logical_used {
                shown.number("logicalused", logical);
            }
            shown.text("refcompressratio", numbers::ratio(space.ratio, true));
        }
        volumes.push(volume.id.to_string(), json::Json::Object(shown));
    }
    let sum = total(lines);
    let mut all = Object::new();
    all.number("volumes", sum.volumes);
    all.number("files", sum.files);
    all.number("logicalused", sum.logical);
    all.number("used", sum.used);
    all.text("compressratio", numbers::ratio(sum.ratio, true));
    let mut root = json::schema("poolhouse afs report");
    root.object("volumes", volumes);
    root.object("total", all);
    root
}
