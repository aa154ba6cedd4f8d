//! Words for the numbers of events, and numbers for words.

use api::{TraceColumn, TraceCondition, TraceUnit};
use observe::event::{Event, Meaning};
use observe::ops::{Frontend, Op};
use observe::trace::{COMMON, Source, TASKS, Test};
use observe::work::{Task, WAITS, Wait};
use std::collections::HashMap;

use super::super::errnos::{errno_name, errno_of};
use super::super::work::waited;

/// A thread that waits for nothing.
const COMPUTES: &str = "computes";

/// The names of devices, by guid.
pub(super) struct Names {
    devices: HashMap<u64, String>,
}

/// What a field has.
pub(super) fn unit(meaning: Meaning) -> TraceUnit {
    match meaning {
        Meaning::Number => TraceUnit::Number,
        Meaning::Time => TraceUnit::Time,
        Meaning::Bytes => TraceUnit::Bytes,
        Meaning::Frontend
        | Meaning::Op
        | Meaning::Errno
        | Meaning::Wait
        | Meaning::Device
        | Meaning::What
        | Meaning::Dataset
        | Meaning::Word => TraceUnit::Text,
    }
}

/// What a source has.
pub(super) fn unit_of(event: &Event, source: Source) -> TraceUnit {
    match source {
        Source::Field(at) => event.fields.get(at).map_or(TraceUnit::Number, |field| unit(field.meaning)),
        Source::Pid | Source::Uid | Source::Thread | Source::Under(_) => TraceUnit::Number,
        Source::Waited(_) | Source::Cpu => TraceUnit::Time,
        Source::Op
        | Source::Frontend
        | Source::Process
        | Source::Dataset
        | Source::Home
        | Source::File
        | Source::Longest => TraceUnit::Text,
    }
}

/// The column of a source.
pub(super) fn column(event: &Event, source: Source) -> TraceColumn {
    let of_all = || COMMON.iter().find(|(_, known)| *known == source).map(|(name, _)| *name);
    let name = match source {
        Source::Field(at) => event.fields.get(at).map(|field| field.name),
        Source::Waited(wait) => Some(wait.name()),
        Source::Cpu => Some("cpu"),
        Source::Dataset => Some("dataset"),
        _ => of_all(),
    };
    TraceColumn { name: name.unwrap_or_default().to_owned(), unit: unit_of(event, source) }
}

/// A number from its digits and a unit.
pub(super) fn value(unit: TraceUnit, text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(at);
    let times = match (unit, suffix) {
        (_, "") | (TraceUnit::Time, "ns") => 1,
        (TraceUnit::Time, "us") => 1000,
        (TraceUnit::Time, "ms") => 1_000_000,
        (TraceUnit::Time, "s") => 1_000_000_000,
        (TraceUnit::Bytes, "K" | "k") => 1 << 10,
        (TraceUnit::Bytes, "M" | "m") => 1 << 20,
        (TraceUnit::Bytes, "G" | "g") => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(times)
}

/// The place of a name in a list.
fn place<T: Copy>(all: &[T], name: fn(T) -> &'static str, wanted: &str) -> Option<u64> {
    all.iter().position(|one| name(*one) == wanted).map(|at| at as u64)
}

/// The name at a place of a list.
fn at<T: Copy>(all: &[T], name: fn(T) -> &'static str, number: u64) -> Option<String> {
    let found = usize::try_from(number).ok().and_then(|at| all.get(at))?;
    Some(name(*found).to_owned())
}

/// A number and 1; 0 for the word that stands for none.
fn after_none(number: Option<u64>, wanted: &str) -> Option<u64> {
    if wanted == "none" { Some(0) } else { number.map(|number| number + 1) }
}

impl Names {
    pub(super) fn new(devices: HashMap<u64, String>) -> Self {
        Self { devices }
    }

    /// The word for a number, or its digits. `wait`: the kind of the wait, if it is known.
    pub(super) fn text(&self, event: &Event, source: Source, number: u64, wait: Option<Wait>) -> String {
        let before = number.checked_sub(1);
        let found = match source {
            Source::Field(field) => event.fields.get(field).and_then(|field| match field.meaning {
                Meaning::Frontend => at(Frontend::ALL, Frontend::name, number),
                Meaning::Op => at(Op::ALL, Op::name, number),
                Meaning::Errno => Some(errno(number)),
                Meaning::Wait if number == WAITS as u64 => Some(COMPUTES.to_owned()),
                Meaning::Wait => at(Wait::ALL, Wait::name, number),
                Meaning::Device => self.devices.get(&number).cloned(),
                Meaning::Word => at(field.words, |word| word, number),
                // Of a thread that computes, there is nothing more to say.
                Meaning::What => {
                    let what = wait.map(|wait| waited(wait, number, 0, &self.devices).what);
                    what.or_else(|| (number == 0).then(String::new))
                }
                Meaning::Number | Meaning::Time | Meaning::Bytes | Meaning::Dataset => None,
            }),
            Source::Op => Some(op(number)),
            Source::Frontend => {
                Some(before.and_then(|number| at(Frontend::ALL, Frontend::name, number)).unwrap_or_default())
            }
            Source::Longest => {
                Some(before.and_then(|number| at(Wait::ALL, Wait::name, number)).unwrap_or_default())
            }
            _ => None,
        };
        found.unwrap_or_else(|| number.to_string())
    }

    /// The number for a word.
    fn number(&self, event: &Event, source: Source, word: &str) -> Option<u64> {
        let by_digits = |unit| value(unit, word);
        match source {
            Source::Field(field) => {
                let field = event.fields.get(field)?;
                match field.meaning {
                    Meaning::Frontend => place(Frontend::ALL, Frontend::name, word),
                    Meaning::Op => place(Op::ALL, Op::name, word),
                    Meaning::Errno => errno_of(word),
                    Meaning::Wait if word == COMPUTES => Some(WAITS as u64),
                    Meaning::Wait => place(Wait::ALL, Wait::name, word),
                    Meaning::Device => {
                        let named = self.devices.iter().find(|(_, name)| *name == word);
                        named.map(|(guid, _)| *guid).or_else(|| by_digits(TraceUnit::Number))
                    }
                    Meaning::Word => place(field.words, |word| word, word),
                    meaning => by_digits(unit(meaning)),
                }
            }
            Source::Op => op_of(word),
            Source::Frontend => after_none(place(Frontend::ALL, Frontend::name, word), word),
            Source::Longest => after_none(place(Wait::ALL, Wait::name, word), word),
            source => by_digits(unit_of(event, source)),
        }
    }
}

/// The name of an errno; 0 is no failure.
fn errno(number: u64) -> String {
    match i32::try_from(number) {
        Ok(0) => "0".to_owned(),
        Ok(code) => errno_name(code),
        Err(_) => number.to_string(),
    }
}

/// The name of an operation or task: [`Source::Op`].
fn op(number: u64) -> String {
    let task = number.checked_sub(TASKS).and_then(|number| at(Task::ALL, Task::name, number));
    let op = || number.checked_sub(1).and_then(|number| at(Op::ALL, Op::name, number));
    task.or_else(op).unwrap_or_default()
}

fn op_of(word: &str) -> Option<u64> {
    let task = place(Task::ALL, Task::name, word).map(|number| number + TASKS);
    task.or_else(|| after_none(place(Op::ALL, Op::name, word), word))
}

/// The test of a condition.
///
/// # Errors
/// What is wrong with it.
pub(super) fn test(
    event: &Event,
    source: Source,
    condition: &TraceCondition,
    names: &Names,
) -> Result<Test, String> {
    let TraceCondition { field, test, value: word } = condition;
    if matches!(source, Source::File | Source::Home) {
        return Err(format!("'{field}' can't be in a condition of {}: it is looked up later", event.name));
    }
    if source.is_text() {
        let (is_pattern, wanted) = match test.as_str() {
            "=" => (false, true),
            "!=" => (false, false),
            "~" => (true, true),
            "!~" => (true, false),
            _ => return Err(format!("'{field}' is a text: compare it with =, !=, ~ or !~")),
        };
        return Ok(Test::Text { text: word.clone(), is_pattern, wanted });
    }
    let number = names.number(event, source, word);
    let number = number.ok_or_else(|| format!("'{word}' is no value of '{field}'"))?;
    let is_ordered = unit_of(event, source) != TraceUnit::Text;
    match test.as_str() {
        "=" => Ok(Test::Is(number)),
        "!=" => Ok(Test::IsNot(number)),
        ">" if is_ordered => Ok(Test::AtLeast(number.saturating_add(1))),
        ">=" if is_ordered => Ok(Test::AtLeast(number)),
        "<" if is_ordered => Ok(Test::Below(number)),
        "<=" if is_ordered => Ok(Test::Below(number.saturating_add(1))),
        "~" | "!~" => Err(format!("'{field}' is no text, so no pattern can fit it")),
        _ => Err(format!("'{field}' has no order: compare it with = or !=")),
    }
}
