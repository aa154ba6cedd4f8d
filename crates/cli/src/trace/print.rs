//! What a session has seen, for people and scripts.
//!
//! The values of fields are hostile text: another user chose the names of processes and files.

use api::{TraceColumn, TraceEvent, TraceGroup, TraceUnit, Traced};
use console::escaped;
use std::cmp::Reverse;

use super::{Asked, Measure};
use crate::cx::Cx;
use crate::json::{Json, Object, schema};
use crate::top::table::{Cell, Form, NO_SPAN, Unit, shown};

/// Columns of events are at least so wide: they come one by one.
const WIDTH: usize = 10;
/// The width of a bar.
const BAR: u64 = 40;

/// Prints readings of a session.
pub(super) struct Printer<'a> {
    asked: &'a Asked,
    has_head: bool,
}

/// The kind of a table's column.
fn unit(of: TraceUnit) -> Unit {
    match of {
        TraceUnit::Text => Unit::Text,
        TraceUnit::Number | TraceUnit::Bytes => Unit::Number,
        TraceUnit::Time => Unit::Time,
    }
}

/// The head of a column.
fn head(column: &TraceColumn, form: Form) -> String {
    match (column.unit, form) {
        (TraceUnit::Time, Form::Text) => format!("{} ms", column.name.to_ascii_uppercase()),
        _ => column.name.to_ascii_uppercase(),
    }
}

/// A value of a column.
fn value(column: &TraceColumn, text: &str, form: Form) -> String {
    match (column.unit, form, text.parse::<u64>()) {
        (TraceUnit::Time, Form::Text, Ok(ns)) => shown(Unit::Time, &Cell::Number(ns), &NO_SPAN),
        _ if text.is_empty() => "-".to_owned(),
        _ => escaped(text).into_owned(),
    }
}

/// A value in JSON.
fn json(column: &TraceColumn, text: &str) -> Json {
    match (column.unit, text.parse::<u64>()) {
        (TraceUnit::Text, _) | (_, Err(_)) => Json::Text(text.to_owned()),
        (_, Ok(number)) => Json::Number(number),
    }
}

impl<'a> Printer<'a> {
    pub(super) fn new(asked: &'a Asked) -> Self {
        Self { asked, has_head: false }
    }

    /// Prints events that were kept.
    pub(super) fn kept(&mut self, cx: &mut Cx, traced: &Traced) {
        let form = self.asked.form;
        if !std::mem::replace(&mut self.has_head, true) {
            let names = traced.columns.iter().map(|column| head(column, form)).collect();
            line(cx, form, &traced.columns, "TIME".to_owned(), names);
        }
        for event in &traced.kept {
            if form == Form::Json {
                let mut object = Object::new();
                object.push("time", Json::Number(event.at_ns));
                object.push("tid", Json::Number(event.tid.into()));
                for (column, text) in traced.columns.iter().zip(&event.values) {
                    object.put(column.name.as_str(), json(column, text));
                }
                writeln!(cx.out, "{}", object.line());
                continue;
            }
            let time = match form {
                Form::Text => {
                    let us = event.at_ns / 1000;
                    format!("{}.{:06}", cx.clock.time(us / 1_000_000), us % 1_000_000)
                }
                Form::Parsable | Form::Json => event.at_ns.to_string(),
            };
            let cells = traced.columns.iter().zip(&event.values);
            let cells = cells.map(|(column, text)| value(column, text, form)).collect();
            line(cx, form, &traced.columns, time, cells);
        }
        if traced.lost > 0 {
            writeln!(cx.err, "{} events are not shown: too many at a time", traced.lost);
        }
    }

    /// Prints groups.
    pub(super) fn groups(&mut self, cx: &mut Cx, traced: &Traced) {
        let mut groups: Vec<&TraceGroup> = traced.groups.iter().collect();
        groups.sort_by_key(|group| (Reverse(self.rank(group)), group.keys.clone()));
        groups.truncate(self.asked.rows);
        match self.asked.form {
            Form::Json => self.document(cx, traced, &groups),
            Form::Parsable => self.exact(cx, traced, &groups),
            Form::Text if self.asked.measure == Measure::Distribution => distributions(cx, traced, &groups),
            Form::Text => self.table(cx, traced, &groups),
        }
    }

    /// What groups are sorted by.
    fn rank(&self, group: &TraceGroup) -> u64 {
        match self.asked.measure {
            Measure::Count | Measure::Distribution => group.count,
            Measure::Sum => group.sum,
            Measure::Average => average(group),
            Measure::Least => group.min,
            Measure::Most => group.max,
        }
    }

    fn document(&self, cx: &mut Cx, traced: &Traced, groups: &[&TraceGroup]) {
        let mut root = schema("poolhouse trace");
        root.number("ns", traced.ns);
        root.number("events", traced.seen);
        root.number("met", traced.met);
        root.number("one_of", traced.one_of);
        root.put("sampled", Json::Bool(traced.is_sampled));
        root.number("cost_ppm", traced.cost_ppm);
        let object = |group: &TraceGroup| {
            let mut object = Object::new();
            for (column, text) in traced.columns.iter().zip(&group.keys) {
                object.put(column.name.as_str(), json(column, text));
            }
            object.put("count", Json::Number(group.count));
            if self.asked.measure != Measure::Count {
                object.put("sum", Json::Number(group.sum));
                object.put("min", Json::Number(group.min));
                object.put("max", Json::Number(group.max));
            }
            if self.asked.measure == Measure::Distribution {
                let bucket = |(least, count): &(u64, u64)| {
                    let mut bucket = Object::new();
                    bucket.push("from", Json::Number(*least));
                    bucket.push("count", Json::Number(*count));
                    bucket
                };
                object.put("buckets", Json::Objects(group.buckets.iter().map(bucket).collect()));
            }
            object
        };
        root.put("groups", Json::Objects(groups.iter().map(|group| object(group)).collect()));
        if let Some(others) = &traced.others {
            root.object("others", object(others));
        }
        writeln!(cx.out, "{}", root.line());
    }

    /// Lines for scripts.
    fn exact(&mut self, cx: &mut Cx, traced: &Traced, groups: &[&TraceGroup]) {
        let form = Form::Parsable;
        if !std::mem::replace(&mut self.has_head, true) {
            let names = traced.columns.iter().map(|column| head(column, form));
            let names: Vec<String> = names.chain(["COUNT", "SUM", "MIN", "MAX"].map(str::to_owned)).collect();
            writeln!(cx.out, "{}", names.join("\t"));
        }
        let crowd = crowd(traced);
        for group in groups.iter().copied().chain(&crowd) {
            let keys = traced.columns.iter().zip(&group.keys).map(|(column, text)| value(column, text, form));
            let numbers = [group.count, group.sum, group.min, group.max].map(|number| number.to_string());
            writeln!(cx.out, "{}", keys.chain(numbers).collect::<Vec<_>>().join("\t"));
        }
    }

    /// A table for people.
    fn table(&mut self, cx: &mut Cx, traced: &Traced, groups: &[&TraceGroup]) {
        let crowd = crowd(traced);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for group in groups.iter().copied().chain(&crowd) {
            let keys = traced.columns.iter().zip(&group.keys);
            let mut row: Vec<String> = keys.map(|(column, text)| value(column, text, Form::Text)).collect();
            row.push(self.number(traced, group));
            rows.push(row);
        }
        if traced.columns.is_empty() {
            // One number needs no head, and a series of them is easy to read.
            let none = || if self.asked.measure == Measure::Count { "0" } else { "-" }.to_owned();
            let number = rows.first().and_then(|row| row.first().cloned()).unwrap_or_else(none);
            writeln!(cx.out, "{number}");
            return;
        }
        if std::mem::replace(&mut self.has_head, true) {
            cx.out.put("\n");
        }
        let mut heads: Vec<String> = traced.columns.iter().map(|column| head(column, Form::Text)).collect();
        heads.push(self.name(traced));
        let width = |at: usize| {
            let cells = rows.iter().chain([&heads]).filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        for row in [&heads].into_iter().chain(&rows) {
            let cell = |(at, cell): (usize, &String)| match traced.columns.get(at).map(|column| column.unit) {
                Some(TraceUnit::Text) => format!("{cell:<0$}", widths[at]),
                _ => format!("{cell:>0$}", widths[at]),
            };
            let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
            writeln!(cx.out, "{}", cells.join("  ").trim_end());
        }
    }

    /// The head of the measured column.
    fn name(&self, traced: &Traced) -> String {
        let of = match self.asked.measure {
            Measure::Count | Measure::Distribution => return "COUNT".to_owned(),
            Measure::Sum => "SUM",
            Measure::Average => "AVG",
            Measure::Least => "MIN",
            Measure::Most => "MAX",
        };
        let unit = if traced.measured == TraceUnit::Time { " ms" } else { "" };
        format!("{of}{unit}")
    }

    /// What was measured of a group.
    fn number(&self, traced: &Traced, group: &TraceGroup) -> String {
        let number = self.rank(group);
        match self.asked.measure {
            Measure::Count => number.to_string(),
            _ => shown(unit(traced.measured), &Cell::Number(number), &NO_SPAN),
        }
    }

    /// Prints what was traced and what it cost, for people; in other forms, whether numbers are
    /// estimates.
    pub(super) fn foot(&self, cx: &mut Cx, traced: &Traced) {
        if self.asked.form != Form::Text {
            if traced.is_sampled {
                cx.err.put("the numbers are estimates: not all operations were taken\n");
            }
            return;
        }
        let cost = traced.cost_ppm as f64 / 1e4;
        let sampled = match traced.is_sampled {
            true => {
                format!("; numbers are estimates, 1 of {} operations was taken at the end", traced.one_of)
            }
            false => String::new(),
        };
        let (met, seen) = (traced.met, traced.seen);
        writeln!(cx.err, "traced {met} of {seen} events, cost {cost:.2} % of the daemon's time{sampled}");
    }
}

/// The events that found no room in a group, as a group.
fn crowd(traced: &Traced) -> Option<TraceGroup> {
    let others = traced.others.clone()?;
    let mut keys = vec![String::new(); traced.columns.len()];
    if let Some(first) = keys.first_mut() {
        *first = "(others)".to_owned();
    }
    Some(TraceGroup { keys, ..others })
}

fn average(group: &TraceGroup) -> u64 {
    group.sum / group.count.max(1)
}

/// Prints an event.
fn line(cx: &mut Cx, form: Form, columns: &[TraceColumn], time: String, cells: Vec<String>) {
    match form {
        Form::Json => {}
        Form::Parsable => {
            let all: Vec<String> = std::iter::once(time).chain(cells).collect();
            writeln!(cx.out, "{}", all.join("\t"));
        }
        Form::Text => {
            let cell = |(cell, column): (String, &TraceColumn)| match column.unit {
                TraceUnit::Text => format!("{cell:<WIDTH$}"),
                _ => format!("{cell:>WIDTH$}"),
            };
            let cells: Vec<String> = cells.into_iter().zip(columns).map(cell).collect();
            writeln!(cx.out, "{}", format!("{time:<15} {}", cells.join(" ")).trim_end());
        }
    }
}

/// A number with its unit, as short as powers of two and round numbers allow.
fn label(unit: TraceUnit, number: u64) -> String {
    let names: &[(u64, &str)] = match unit {
        TraceUnit::Time => &[(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")],
        TraceUnit::Bytes => &[(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")],
        TraceUnit::Number | TraceUnit::Text => &[],
    };
    // Five digits are exact enough: 2^20 ns are 1048 us.
    let fits = |(of, _): &&(u64, &str)| match unit {
        TraceUnit::Time => number >= of * 10 || *of == 1,
        _ => number >= *of && number.is_multiple_of(*of),
    };
    match names.iter().find(fits) {
        Some((of, name)) => format!("{} {name}", number / of),
        None => number.to_string(),
    }
}

/// Prints distributions as DTrace does.
fn distributions(cx: &mut Cx, traced: &Traced, groups: &[&TraceGroup]) {
    let crowd = crowd(traced);
    for group in groups.iter().copied().chain(&crowd) {
        let keys = traced.columns.iter().zip(&group.keys);
        let keys: Vec<String> = keys.map(|(column, text)| value(column, text, Form::Text)).collect();
        writeln!(cx.out, "\n  {}", keys.join("  "));
        writeln!(cx.out, "{:>16}  ------------- Distribution ------------- count", "value");
        for (least, count) in &group.buckets {
            let share = u128::from(*count) * u128::from(BAR) / u128::from(group.count.max(1));
            let bar = "@".repeat(usize::try_from(share).unwrap_or(0));
            writeln!(cx.out, "{:>16} |{bar:<40} {count}", label(traced.measured, *least));
        }
        let number = |number: u64| shown(unit(traced.measured), &Cell::Number(number), &NO_SPAN);
        let ms = if traced.measured == TraceUnit::Time { " ms" } else { "" };
        let (mean, most) = (number(average(group)), number(group.max));
        writeln!(cx.out, "  n {}  mean {mean}{ms}  max {most}{ms}", group.count);
    }
}

/// Prints the events that there are.
pub(super) fn events(cx: &mut Cx, form: Form, events: &[TraceEvent]) {
    let names = |columns: &[TraceColumn]| -> Vec<String> {
        columns.iter().map(|column| column.name.clone()).collect()
    };
    match form {
        Form::Json => {
            let mut root = schema("poolhouse trace");
            let object = |event: &TraceEvent| {
                let mut object = Object::new();
                object.push("name", Json::Text(event.name.clone()));
                object.push("about", Json::Text(event.about.clone()));
                object.push("fields", Json::Texts(names(&event.fields)));
                object.push("common", Json::Texts(names(&event.common)));
                object
            };
            root.put("events", Json::Objects(events.iter().map(object).collect()));
            writeln!(cx.out, "{}", root.line());
        }
        Form::Parsable => {
            for event in events {
                let (fields, common) = (names(&event.fields).join(","), names(&event.common).join(","));
                writeln!(cx.out, "{}\t{fields}\t{common}", event.name);
            }
        }
        Form::Text => {
            for event in events {
                writeln!(cx.out, "{:<12} {}", event.name, event.about);
                writeln!(cx.out, "{:<12}   its fields: {}", "", names(&event.fields).join(", "));
                writeln!(cx.out, "{:<12}   of its thread: {}", "", names(&event.common).join(", "));
            }
        }
    }
}
