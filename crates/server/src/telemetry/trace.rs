//! Sessions that count or keep events.
//!
//! # Theory
//! [`observe::trace`] knows numbers alone. Here names become numbers for it, and its numbers become
//! names again.

mod words;

use api::{
    Caller, Error, Reason, TraceColumn, TraceEvent, TraceGroup, TraceKept, TraceQuery, TraceUnit, Traced,
};
use observe::event::{EVENTS, Event};
use observe::trace::{self, Buckets, COMMON, Condition, Counted, Plan, Reading, Session, Source, Test};
use observe::work::Wait;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::UNIX_EPOCH;

use super::work::{Node, Paths, devices, is_in, suspended};
use crate::pools::Pools;
use words::{Names, unit, value};

/// The most paths that a reply looks for.
const PATHS: usize = 256;

fn refused(what: String) -> Error {
    Error::new("trace", Reason::BadValue { what })
}

/// Begins, reads or ends a session.
///
/// # Errors
/// See [`api::Service::trace`].
pub(crate) fn trace(
    caller: &Caller,
    pools: &Pools,
    query: &TraceQuery,
    paths: &Paths,
) -> Result<Traced, Error> {
    caller.must_own("events of the daemon")?;
    let process = api::process_id();
    let session = match query.session {
        Some(number) => {
            let gone = || refused(format!("the session {number} has ended: nothing read it for ten seconds"));
            trace::session(number).ok_or_else(gone)?
        }
        None if query.event.is_empty() => {
            return Ok(Traced {
                process,
                events: EVENTS.iter().map(|event| kind(event)).collect(),
                ..Traced::default()
            });
        }
        None => {
            let names = Names::new(devices(&pools.table().present()));
            let plan = plan(caller, query, &names)?;
            trace::begin(plan).map_err(|why| refused(why.to_string()))?
        }
    };
    let reading = session.read(query.anew);
    let names = Names::new(devices(&pools.table().present()));
    let silent = suspended(&pools.table().present());
    let traced = shown(&session, reading, &names, (paths, &silent));
    if query.end {
        session.end();
    }
    Ok(Traced { process, ..traced })
}

/// An event for the list of them.
fn kind(event: &Event) -> TraceEvent {
    let column = |(name, unit): (&str, TraceUnit)| TraceColumn { name: name.to_owned(), unit };
    let fields = event.fields.iter().map(|field| column((field.name, unit(field.meaning))));
    let waits = observe::work::Wait::ALL.iter().map(|wait| (wait.name(), TraceUnit::Time));
    let common = COMMON.iter().map(|(name, source)| (*name, words::unit_of(event, *source)));
    let cpu = event.field("op").map(|_| ("cpu", TraceUnit::Time));
    let common = common.chain(waits).chain(cpu).filter(|(name, _)| event.field(name).is_none());
    TraceEvent {
        name: event.name.to_owned(),
        about: event.about.to_owned(),
        fields: fields.collect(),
        common: common.map(column).collect(),
    }
}

/// The source of a field.
fn source(event: &'static Event, name: &str) -> Result<Source, Error> {
    Source::named(event, name).ok_or_else(|| {
        let known: Vec<String> =
            kind(event).fields.into_iter().chain(kind(event).common).map(|column| column.name).collect();
        refused(format!("the event {} has no field '{name}': choose {}", event.name, known.join(", ")))
    })
}

/// The plan of a session.
fn plan(caller: &Caller, query: &TraceQuery, names: &Names) -> Result<Plan, Error> {
    let event = EVENTS.iter().find(|event| event.name == query.event);
    let event: &'static Event = event.copied().ok_or_else(|| {
        let known: Vec<&str> = EVENTS.iter().map(|event| event.name).collect();
        refused(format!("there is no event '{}': choose {}", query.event, known.join(", ")))
    })?;
    let mut conditions = Vec::new();
    for condition in &query.conditions {
        let source = source(event, &condition.field)?;
        let test = words::test(event, source, condition, names).map_err(refused)?;
        conditions.push(Condition { source, test });
    }
    if query.under {
        let hidden = || {
            refused("the daemon can't see your process: it is in another namespace of processes".to_owned())
        };
        let pid = caller.peer().pid.ok_or_else(hidden)?;
        conditions.push(Condition { source: Source::Under(pid), test: Test::Is(1) });
    }
    let most = if query.raw { trace::COLUMNS } else { trace::KEYS };
    if query.keys.len() > most {
        return Err(refused(format!("{} keys: choose at most {most}", query.keys.len())));
    }
    if conditions.len() > trace::CONDITIONS {
        return Err(refused(format!(
            "{} conditions: choose at most {}",
            conditions.len(),
            trace::CONDITIONS
        )));
    }
    let mut keys = Vec::new();
    for name in &query.keys {
        keys.push(source(event, name)?);
    }
    if query.raw && keys.is_empty() {
        keys = usual(event);
    }
    let (measure, buckets) = measure(event, &query.measure)?;
    let sums = query.sums.iter().map(|name| number(event, name).map(|(source, _)| source));
    let sums = sums.collect::<Result<Vec<Source>, Error>>()?;
    if sums.len() > trace::SUMS {
        return Err(refused(format!("{} sums: choose at most {}", sums.len(), trace::SUMS)));
    }
    Ok(Plan { event, conditions, keys, measure, buckets, sums, is_raw: query.raw })
}

/// What is kept of an event if no fields are named.
fn usual(event: &'static Event) -> Vec<Source> {
    const OF_OPERATIONS: [&str; 8] = ["op", "frontend", "dataset", "process", "pid", "bytes", "errno", "ns"];
    let own: Vec<&str> = event.fields.iter().map(|field| field.name).chain(["op", "dataset"]).collect();
    let names = if event.field("op").is_some() { OF_OPERATIONS.to_vec() } else { own };
    names.into_iter().filter_map(|name| Source::named(event, name)).collect()
}

/// The source of a field that is a number, and what it has.
fn number(event: &'static Event, name: &str) -> Result<(Source, TraceUnit), Error> {
    let source = source(event, name)?;
    match words::unit_of(event, source) {
        TraceUnit::Text => Err(refused(format!("'{name}' is no number, so it can't be measured"))),
        unit => Ok((source, unit)),
    }
}

/// What is measured, and how it is distributed.
fn measure(event: &'static Event, text: &str) -> Result<(Option<Source>, Buckets), Error> {
    const FORMS: &str =
        "count, sum:FIELD, avg:FIELD, min:FIELD, max:FIELD, quantize:FIELD, lquantize:FIELD:FROM:TO:STEP";
    let wrong = || refused(format!("'{text}' can't be measured: choose {FORMS}"));
    let words: Vec<&str> = text.split(':').collect();
    let field = |name: &str| number(event, name);
    match words.as_slice() {
        [""] | ["count"] => Ok((None, Buckets::None)),
        ["sum" | "avg" | "min" | "max", name] => Ok((Some(field(name)?.0), Buckets::None)),
        ["quantize", name] => Ok((Some(field(name)?.0), Buckets::Powers)),
        ["lquantize", name, from, to, step] => {
            let (source, unit) = field(name)?;
            let number = |text: &str| value(unit, text).ok_or_else(wrong);
            let (from, to, step) = (number(from)?, number(to)?, number(step)?);
            let has_room = step > 0 && to > from && (to - from) / step <= trace::LINEAR;
            let many = || refused(format!("'{text}' has no or more than {} buckets", trace::LINEAR));
            has_room.then_some((Some(source), Buckets::Linear { from, to, step })).ok_or_else(many)
        }
        _ => Err(wrong()),
    }
}

/// A reading in words.
fn shown(session: &Session, reading: Reading, names: &Names, paths: (&Paths, &HashSet<String>)) -> Traced {
    let plan = session.plan();
    let columns = plan.keys.iter().map(|source| words::column(plan.event, *source));
    let measured = plan.measure.map_or(TraceUnit::Number, |source| words::unit_of(plan.event, source));
    let nodes = Nodes::of(session, &reading, paths);
    let wait_at = plan.event.field("wait").map(Source::Field);
    let wait_at = wait_at.and_then(|wait| plan.keys.iter().position(|source| *source == wait));
    let texts = |numbers: &[u64]| -> Vec<String> {
        let wait = wait_at.and_then(|at| numbers.get(at)).and_then(|at| usize::try_from(*at).ok());
        let wait = wait.and_then(|at| Wait::ALL.get(at)).copied();
        let text = |(source, number): (&Source, &u64)| match source {
            Source::File => nodes.file(*number),
            Source::Home => match session.home(*number) {
                Some(name) => name.to_string(),
                None => nodes.dataset(*number),
            },
            Source::Process | Source::Dataset => session.text(*number).to_string(),
            source => names.text(plan.event, *source, *number, wait),
        };
        plan.keys.iter().zip(numbers).map(text).collect()
    };
    let group = |keys: &[u64], counted: Counted| TraceGroup {
        keys: texts(keys),
        count: counted.count,
        sum: u64::try_from(counted.sum).unwrap_or(u64::MAX),
        min: counted.min,
        max: counted.max,
        sums: counted.sums,
        buckets: counted.buckets.into_iter().collect(),
    };
    let others = Some(reading.groups.others).filter(|others| others.count > 0);
    let kept = |event: &trace::Kept| TraceKept {
        at_ns: super::work::ns(event.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        tid: event.tid,
        values: texts(&event.values),
    };
    Traced {
        session: session.number(),
        columns: columns.collect(),
        measured,
        ns: reading.ns,
        seen: reading.seen,
        met: reading.met,
        one_of: reading.one_of,
        is_sampled: reading.is_sampled,
        cpu_ns: reading.cpu_ns,
        cost_ppm: reading.cost_ppm,
        kept: reading.events.iter().map(kept).collect(),
        others: others.map(|others| group(&[], others)),
        groups: merged(reading.groups.groups.into_iter().map(|(keys, counted)| group(&keys, counted))),
        lost: reading.lost,
        ..Traced::default()
    }
}

/// Joins groups whose keys have the same names: several nodes may be of one dataset.
fn merged(groups: impl Iterator<Item = TraceGroup>) -> Vec<TraceGroup> {
    let mut all: HashMap<Vec<String>, TraceGroup> = HashMap::new();
    for group in groups {
        match all.get_mut(&group.keys) {
            None => drop(all.insert(group.keys.clone(), group)),
            Some(known) => join(known, group),
        }
    }
    all.into_values().collect()
}

fn join(known: &mut TraceGroup, other: TraceGroup) {
    known.count = known.count.saturating_add(other.count);
    known.sum = known.sum.saturating_add(other.sum);
    known.min = known.min.min(other.min);
    known.max = known.max.max(other.max);
    for (sum, more) in known.sums.iter_mut().zip(other.sums) {
        *sum = sum.saturating_add(more);
    }
    let mut buckets: BTreeMap<u64, u64> = known.buckets.drain(..).collect();
    for (bucket, count) in other.buckets {
        *buckets.entry(bucket).or_default() += count;
    }
    known.buckets = buckets.into_iter().collect();
}

/// The end of a path. Many events may be of one file, and a path may be very long.
fn clipped(path: &str) -> String {
    const MOST: usize = 1024;
    match path.len().checked_sub(MOST) {
        None | Some(0) => path.to_owned(),
        Some(from) => format!("…{}", &path[path.ceil_char_boundary(from)..]),
    }
}

/// The nodes of a reading, by their numbers.
struct Nodes {
    datasets: HashMap<u64, (String, Option<u64>)>,
    paths: HashMap<u64, String>,
}

impl Nodes {
    /// Looks for the datasets of all, and for the paths of some: of none in a suspended pool, where
    /// a search would hang.
    fn of(session: &Session, reading: &Reading, (paths, silent): (&Paths, &HashSet<String>)) -> Self {
        let keys = &session.plan().keys;
        let is_node = |source: &Source| matches!(source, Source::File | Source::Home);
        // How many events are of each.
        let mut seen: HashMap<u64, u64> = HashMap::new();
        for at in (0..keys.len()).filter(|at| is_node(&keys[*at])) {
            for (keys, counted) in &reading.groups.groups {
                *seen.entry(keys[at]).or_default() += counted.count;
            }
            for event in &reading.events {
                *seen.entry(event.values[at]).or_default() += 1;
            }
        }
        let nodes: HashMap<u64, Node> = seen.keys().map(|number| (*number, session.node(*number))).collect();
        let here = |(place, node): Node| observe::work::place(place).and_then(|place| place.dataset(node));
        let datasets: HashMap<u64, (String, Option<u64>)> =
            nodes.iter().filter_map(|(number, node)| Some((*number, here(*node)?))).collect();
        let answers = |number: &u64| datasets.get(number).is_none_or(|(dataset, _)| !is_in(dataset, silent));
        let mut wanted: Vec<(&u64, &Node)> = nodes
            .iter()
            .filter(|(number, (place, _))| *place != 0 && keys.contains(&Source::File) && answers(number))
            .collect();
        // Those with the most events are printed first.
        wanted.sort_by_cached_key(|(number, _)| (Reverse(seen.get(*number).copied()), **number));
        let found = paths.of(wanted.into_iter().map(|(_, node)| *node).take(PATHS).collect());
        let paths =
            nodes.iter().filter_map(|(number, node)| Some((*number, clipped(found.get(node)?)))).collect();
        Self { datasets, paths }
    }

    fn dataset(&self, number: u64) -> String {
        self.datasets.get(&number).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    /// The path of a node, or its object.
    fn file(&self, number: u64) -> String {
        let object = || self.datasets.get(&number).and_then(|(_, object)| *object);
        let named = || object().map(|object| format!("object {object}")).unwrap_or_default();
        self.paths.get(&number).cloned().unwrap_or_else(named)
    }
}

#[cfg(test)]
mod tests;
