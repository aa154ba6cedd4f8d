//! Lists as text, in the form in which `zdb` prints configs (`dump_nvlist`).

use std::fmt::{Display, Formatter, Result};

use super::{Nvlist, Value};

/// Prints one line for each value, with nested lists indented by four. The format's width is the
/// initial indent.
impl Display for Nvlist {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        dump(self, f, f.width().unwrap_or(0))
    }
}

fn array<T>(f: &mut Formatter<'_>, indent: usize, name: &str, v: &[T], one: impl Fn(&T) -> String) -> Result {
    for (i, x) in v.iter().enumerate() {
        writeln!(f, "{:indent$}{name}[{i}]: {}", "", one(x))?;
    }
    Ok(())
}

fn quoted(s: &[u8]) -> String {
    format!("'{}'", String::from_utf8_lossy(s))
}

fn dump(list: &Nvlist, f: &mut Formatter<'_>, indent: usize) -> Result {
    for (name, value) in list.iter() {
        let name = &*String::from_utf8_lossy(name);
        let one: &dyn Display = match value {
            Value::Boolean => {
                writeln!(f, "{:indent$}{name}", "")?;
                continue;
            }
            Value::BooleanValue(v) => v,
            Value::Byte(v) | Value::Uint8(v) => v,
            Value::Int8(v) => v,
            Value::Int16(v) => v,
            Value::Uint16(v) => v,
            Value::Int32(v) => v,
            Value::Uint32(v) => v,
            Value::Int64(v) | Value::Hrtime(v) => v,
            Value::Uint64(v) => v,
            Value::Double(v) => v,
            Value::String(v) => &quoted(v),
            Value::List(l) => {
                writeln!(f, "{:indent$}{name}:", "")?;
                dump(l, f, indent + 4)?;
                continue;
            }
            several => {
                dump_array(several, f, indent, name)?;
                continue;
            }
        };
        writeln!(f, "{:indent$}{name}: {one}", "")?;
    }
    Ok(())
}

fn dump_array(value: &Value, f: &mut Formatter<'_>, indent: usize, name: &str) -> Result {
    match value {
        Value::ByteArray(v) | Value::Uint8Array(v) => array(f, indent, name, v, u8::to_string),
        Value::Int8Array(v) => array(f, indent, name, v, i8::to_string),
        Value::Int16Array(v) => array(f, indent, name, v, i16::to_string),
        Value::Uint16Array(v) => array(f, indent, name, v, u16::to_string),
        Value::Int32Array(v) => array(f, indent, name, v, i32::to_string),
        Value::Uint32Array(v) => array(f, indent, name, v, u32::to_string),
        Value::Int64Array(v) => array(f, indent, name, v, i64::to_string),
        Value::Uint64Array(v) => array(f, indent, name, v, u64::to_string),
        Value::BooleanArray(v) => array(f, indent, name, v, bool::to_string),
        Value::StringArray(v) => array(f, indent, name, v, |s| quoted(s)),
        Value::ListArray(v) => {
            for (i, l) in v.iter().enumerate() {
                writeln!(f, "{:indent$}{name}[{i}]:", "")?;
                dump(l, f, indent + 4)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
