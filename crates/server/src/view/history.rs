//! A pool's history.

use std::fmt::Display;

use ondisk::Nvlist;
use ondisk::nvlist::Value;
use pool::Mos;

use crate::view::engine;
use api::{Error, HistoryKind, HistoryPage, HistoryRecord};

/// The deepest nesting to dump. Nvlists are not decoded deeper either.
const DEPTH: usize = 32;

/// The bytes of stored records in one part of an answer.
pub const HISTORY_PART: u64 = 256 << 10;

/// Records from a position on, oldest first, until `bytes` of stored records (`spa_history_get`).
///
/// # Errors
/// * [`Reason::Io`](api::Reason::Io), [`Reason::Corrupt`](api::Reason::Corrupt): a record can't be
///   read.
pub fn history(name: &str, mos: &Mos, from: u64, bytes: u64) -> Result<HistoryPage, Error> {
    let mut page = HistoryPage::default();
    let Some(mut all) = mos.history_from(from).map_err(|e| engine(name, &e))? else { return Ok(page) };
    let begin = all.position();
    while let Some(r) = all.next() {
        page.records.push(record(&r.map_err(|e| engine(name, &e))?));
        if all.position().saturating_sub(begin) >= bytes {
            page.next = Some(all.position());
            break;
        }
    }
    Ok(page)
}

fn text(nv: &Nvlist, key: &str) -> Option<String> {
    nv.string(key).map(|s| String::from_utf8_lossy(s).into_owned())
}

fn i64_of(nv: &Nvlist, key: &str) -> Option<i64> {
    match nv.get(key)? {
        Value::Int64(n) => Some(*n),
        Value::Uint64(n) => i64::try_from(*n).ok(),
        _ => None,
    }
}

fn record(nv: &Nvlist) -> HistoryRecord {
    let number = |key: &str| nv.u64(key);
    let what = if let Some(command) = text(nv, "history command") {
        HistoryKind::Command(command)
    } else if let Some(event) = number("history internal event") {
        HistoryKind::LegacyEvent {
            event,
            txg: number("history txg").unwrap_or(0),
            text: text(nv, "history internal str").unwrap_or_default(),
        }
    } else if let Some(name) = text(nv, "internal_name") {
        let dataset = text(nv, "dsname").map(|name| (name, number("dsid").unwrap_or(0)));
        let told = text(nv, "history internal str").unwrap_or_default();
        HistoryKind::Internal { name, txg: number("history txg").unwrap_or(0), dataset, text: told }
    } else if let Some(name) = text(nv, "ioctl") {
        let list = |key: &str| nv.list(key).map(|l| dump(l, 8));
        HistoryKind::Ioctl {
            name,
            input: list("in_nvl"),
            output: list("out_nvl"),
            output_size: i64_of(nv, "out_size"),
            errno: i64_of(nv, "errno"),
        }
    } else {
        HistoryKind::Unknown(dump(nv, 4))
    };
    HistoryRecord {
        time: number("history time"),
        elapsed_ns: i64_of(nv, "elapsed_ns").and_then(|n| u64::try_from(n).ok()),
        who: number("history who"),
        host: text(nv, "history hostname"),
        zone: text(nv, "history zone"),
        what,
    }
}

/// A list as lines, as `dump_nvlist` writes it.
fn dump(nv: &Nvlist, indent: usize) -> String {
    let mut out = String::new();
    write_list(&mut out, nv, indent, 0);
    out
}

fn write_list(out: &mut String, nv: &Nvlist, indent: usize, depth: usize) {
    if depth > DEPTH {
        return;
    }
    for (name, value) in nv.iter() {
        let name = format!("{:indent$}{}", "", String::from_utf8_lossy(name));
        match value {
            Value::Boolean => *out += &format!("{name}\n"),
            Value::List(inner) => {
                *out += &format!("{name}:\n");
                write_list(out, inner, indent + 4, depth + 1);
            }
            Value::ListArray(list) => {
                for (i, inner) in list.iter().enumerate() {
                    *out += &format!("{name}[{i}]:\n");
                    write_list(out, inner, indent + 4, depth + 1);
                }
            }
            Value::BooleanValue(v) => one(out, &name, v),
            Value::Byte(v) | Value::Uint8(v) => one(out, &name, v),
            Value::Int8(v) => one(out, &name, v),
            Value::Int16(v) => one(out, &name, v),
            Value::Uint16(v) => one(out, &name, v),
            Value::Int32(v) => one(out, &name, v),
            Value::Uint32(v) => one(out, &name, v),
            Value::Int64(v) => one(out, &name, v),
            Value::Uint64(v) => one(out, &name, v),
            Value::String(v) => one(out, &name, quoted(v)),
            Value::ByteArray(v) | Value::Uint8Array(v) => many(out, &name, v.iter()),
            Value::Int8Array(v) => many(out, &name, v.iter()),
            Value::Int16Array(v) => many(out, &name, v.iter()),
            Value::Uint16Array(v) => many(out, &name, v.iter()),
            Value::Int32Array(v) => many(out, &name, v.iter()),
            Value::Uint32Array(v) => many(out, &name, v.iter()),
            Value::Int64Array(v) => many(out, &name, v.iter()),
            Value::Uint64Array(v) => many(out, &name, v.iter()),
            Value::StringArray(v) => many(out, &name, v.iter().map(|s| quoted(s))),
            Value::BooleanArray(v) => many(out, &name, v.iter()),
            // OpenZFS prints the name of a type that it can't show. A history record has neither
            // type.
            Value::Hrtime(v) => one(out, &name, v),
            Value::Double(v) => one(out, &name, v),
        }
    }
}

fn quoted(s: &[u8]) -> String {
    format!("'{}'", String::from_utf8_lossy(s))
}

fn one(out: &mut String, name: &str, value: impl Display) {
    *out += &format!("{name}: {value}\n");
}

fn many(out: &mut String, name: &str, values: impl Iterator<Item = impl Display>) {
    for (i, value) in values.enumerate() {
        *out += &format!("{name}[{i}]: {value}\n");
    }
}
