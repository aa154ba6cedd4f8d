//! Events in a file, for <https://ui.perfetto.dev> and `chrome://tracing`.
//!
//! # See
//! The Trace Event Format of Chrome: an array of objects, whose end may be missing.

use api::{TraceUnit, Traced};
use std::fs::File;
use std::io::{BufWriter, Write};

use crate::cx::{Cx, Stop};
use crate::json::{Json, Object};

/// A file of events.
pub(super) struct Writer {
    name: String,
    file: BufWriter<File>,
    is_empty: bool,
}

impl Writer {
    /// Makes the file, or empties it.
    pub(super) fn new(cx: &mut Cx, name: &str) -> Result<Self, Stop> {
        match File::create(name) {
            Ok(file) => Ok(Self { name: name.to_owned(), file: BufWriter::new(file), is_empty: true }),
            Err(error) => {
                writeln!(cx.err, "cannot write '{name}': {error}");
                Err(Stop::Fail(1))
            }
        }
    }

    /// Adds events.
    pub(super) fn write(&mut self, cx: &mut Cx, traced: &Traced) -> Result<(), Stop> {
        for event in &traced.kept {
            let text = object(traced, event).line();
            let before = if std::mem::take(&mut self.is_empty) { "[\n" } else { ",\n" };
            let written = write!(self.file, "{before}{text}");
            written.or_else(|error| self.failed(cx, &error))?;
        }
        if traced.lost > 0 {
            writeln!(cx.err, "{} events are not in the file: too many at a time", traced.lost);
        }
        Ok(())
    }

    /// Ends the file.
    pub(super) fn end(mut self, cx: &mut Cx) -> Result<(), Stop> {
        let rest = if self.is_empty { "[]\n" } else { "\n]\n" };
        let written = self.file.write_all(rest.as_bytes()).and_then(|()| self.file.flush());
        written.or_else(|error| self.failed(cx, &error))
    }

    fn failed(&self, cx: &mut Cx, error: &std::io::Error) -> Result<(), Stop> {
        writeln!(cx.err, "cannot write '{}': {error}", self.name);
        Err(Stop::Fail(1))
    }
}

/// Microseconds with three decimals.
fn microseconds(ns: u64) -> Json {
    Json::Decimal(format!("{}.{:03}", ns / 1000, ns % 1000))
}

/// An event with its time, its length, and its fields.
fn object(traced: &Traced, event: &api::TraceKept) -> Object {
    let columns = || traced.columns.iter().zip(&event.values);
    let of = |name: &str| columns().find(|(column, _)| column.name == name).map(|(_, text)| text.as_str());
    let took = of("ns").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut args = Object::new();
    for (column, text) in columns() {
        let number = text.parse::<u64>().ok().filter(|_| column.unit != TraceUnit::Text);
        args.put(column.name.as_str(), number.map_or_else(|| Json::Text(text.clone()), Json::Number));
    }
    let mut object = Object::new();
    object.text("name", of("op").filter(|name| !name.is_empty()).unwrap_or("event"));
    object.text("ph", "X");
    object.put("ts", microseconds(event.at_ns.saturating_sub(took)));
    object.put("dur", microseconds(took));
    object.number("pid", 1);
    object.number("tid", event.tid.into());
    object.object("args", args);
    object
}
