//! Lists as text, in the two forms in which OpenZFS prints them.
//!
//! `zdb` prints configs with `dump_nvlist`. `zstream` prints what a package has with
//! `nvlist_print`, which says the types apart.

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

impl Nvlist {
    /// The list as `nvlist_print` writes it: a tab for each level, numbers in hexadecimal.
    pub fn tabbed(&self) -> impl Display + '_ {
        Tabbed(self)
    }
}

struct Tabbed<'a>(&'a Nvlist);

impl Display for Tabbed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        tabbed(self.0, f, 0)
    }
}

fn tabbed(list: &Nvlist, f: &mut Formatter<'_>, depth: usize) -> Result {
    let (outer, inner) = ("\t".repeat(depth), "\t".repeat(depth + 1));
    writeln!(f, "{outer}nvlist version: 0")?;
    for (name, value) in list.iter() {
        let name = &*String::from_utf8_lossy(name);
        match value {
            Value::List(l) => {
                writeln!(f, "{inner}{name} = (embedded nvlist)")?;
                tabbed(l, f, depth + 1)?;
                writeln!(f, "{inner}(end {name})\n")?;
            }
            Value::ListArray(lists) => {
                writeln!(f, "{inner}{name} = (array of embedded nvlists)")?;
                for (i, l) in lists.iter().enumerate() {
                    writeln!(f, "{inner}(start {name}[{i}])")?;
                    tabbed(l, f, depth + 1)?;
                    writeln!(f, "{inner}(end {name}[{i}])")?;
                }
                writeln!(f)?;
            }
            value => match typed(value) {
                Some(text) => writeln!(f, "{inner}{name} = {text}")?,
                // Of an array without elements, only the end of the line is printed.
                None => writeln!(f)?,
            },
        }
    }
    Ok(())
}

/// A value in the form of its type; `None` for an empty array.
fn typed(value: &Value) -> Option<String> {
    fn all<T>(values: &[T], one: impl Fn(&T) -> String) -> Option<String> {
        let texts: Vec<String> = values.iter().map(one).collect();
        (!texts.is_empty()).then(|| texts.join(" "))
    }
    let text = |s: &[u8]| String::from_utf8_lossy(s).into_owned();
    Some(match value {
        Value::Boolean => "1".to_owned(),
        Value::BooleanValue(v) => u8::from(*v).to_string(),
        Value::Byte(v) => format!("0x{v:02x}"),
        Value::Uint8(v) => format!("0x{v:x}"),
        Value::Int8(v) => v.to_string(),
        Value::Int16(v) => v.to_string(),
        Value::Uint16(v) => format!("0x{v:x}"),
        Value::Int32(v) => v.to_string(),
        Value::Uint32(v) => format!("0x{v:x}"),
        Value::Int64(v) => v.to_string(),
        Value::Uint64(v) => format!("0x{v:x}"),
        Value::Hrtime(v) => format!("0x{v:x}"),
        Value::Double(v) => format!("0x{v:.6}"),
        Value::String(v) => text(v),
        Value::ByteArray(v) => return all(v, |b| format!("0x{b:02x}")),
        Value::Uint8Array(v) => return all(v, |b| format!("0x{b:x}")),
        Value::Int8Array(v) => return all(v, i8::to_string),
        Value::Int16Array(v) => return all(v, i16::to_string),
        Value::Uint16Array(v) => return all(v, |n| format!("0x{n:x}")),
        Value::Int32Array(v) => return all(v, i32::to_string),
        Value::Uint32Array(v) => return all(v, |n| format!("0x{n:x}")),
        Value::Int64Array(v) => return all(v, i64::to_string),
        Value::Uint64Array(v) => return all(v, |n| format!("0x{n:x}")),
        Value::BooleanArray(v) => return all(v, |b| u8::from(*b).to_string()),
        Value::StringArray(v) => return all(v, |s| text(s)),
        Value::List(_) | Value::ListArray(_) => return None,
    })
}
