//! The form of numbers, block pointers, histograms and name-value lists.

use console::Out;
use console::numbers;
use ondisk::blkptr::{Body, Stored};
use ondisk::bytes::le64;
use ondisk::kind::ByteSwap;
use ondisk::nvlist::{Nvlist, Value};
use ondisk::{Blkptr, ByteOrder, DmuType};
use std::fmt::Write;

/// The form of numbers: readable, or exact with `-P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Whether numbers are exact.
    pub exact: bool,
}

impl Numbers {
    /// A count or a size (`zdb_nicenum`).
    pub fn num(self, n: u64) -> String {
        if self.exact { n.to_string() } else { numbers::num(n) }
    }

    /// A size with its unit (`zdb_nicebytes`).
    pub fn bytes(self, n: u64) -> String {
        if self.exact { n.to_string() } else { numbers::bytes(n) }
    }
}

/// Bytes as text, with a replacement character for what is no UTF-8.
pub fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The name of an object type; a self-describing one without "metadata" (`zdb_ot_name`).
pub fn type_name(kind: DmuType) -> &'static str {
    kind.name().strip_suffix(" (metadata)").unwrap_or(kind.name())
}

/// Whether a type is self-describing (`DMU_OT_NEWTYPE`).
pub fn is_self_describing(kind: DmuType) -> bool {
    kind.to_disk() & 0x80 != 0
}

/// The four words of a checksum.
fn words(sum: &[u64; 4]) -> String {
    format!("{:016x}:{:016x}:{:016x}:{:016x}", sum[0], sum[1], sum[2], sum[3])
}

/// The type as a block pointer shows it.
fn pointer_type(kind: DmuType) -> String {
    if !is_self_describing(kind) {
        return kind.name().to_owned();
    }
    let what = if kind.is_metadata() { "metadata" } else { "data" };
    let swap = match kind.byteswap() {
        ByteSwap::Uint8 => "uint8",
        ByteSwap::Uint16 => "uint16",
        ByteSwap::Uint32 => "uint32",
        ByteSwap::Uint64 => "uint64",
        ByteSwap::Zap => "zap",
        ByteSwap::Dnode => "dnode",
        ByteSwap::Objset => "objset",
        ByteSwap::Znode => "znode",
        ByteSwap::OldAcl => "oldacl",
        ByteSwap::Acl => "acl",
    };
    format!("bswap {what} {swap}")
}

/// A block pointer with all its fields (`snprintf_blkptr`).
pub fn blkptr(bp: &Blkptr) -> String {
    let head = format!("[L{} {}]", bp.level.0, pointer_type(bp.kind));
    match &bp.body {
        Body::Hole => format!("HOLE {head} size={:x}L birth={}L", hole_size(bp), bp.birth.0),
        Body::Embedded(e) => format!(
            "EMBEDDED {head} et=0 {} size={:x}L/{:x}P birth={}L",
            e.compress.name(),
            bp.lsize.0,
            e.payload().len(),
            bp.birth.0
        ),
        Body::Redacted => format!(
            "EMBEDDED {head} et=2 inherit size={:x}L/{:x}P birth={}L",
            bp.lsize.0,
            redacted_psize(bp),
            bp.birth.0
        ),
        Body::Stored(s) => stored(bp, s, &head),
    }
}

fn stored(bp: &Blkptr, s: &Stored, head: &str) -> String {
    const COPIES: [&str; 4] = ["zero", "single", "double", "triple"];
    let mut out = String::new();
    for (i, d) in s.copies().enumerate() {
        let _ = write!(out, "DVA[{i}]=<{}:{:x}:{:x}> ", d.vdev.0, d.offset.0, d.asize.0);
    }
    let crypt = if bp.is_encrypted() {
        let raw = bp.encode();
        let iv2 = le64(&raw, 88) >> 32;
        let _ = write!(out, "salt={:x} iv={:x}:{iv2:x} ", le64(&raw, 32), le64(&raw, 40));
        "encrypted"
    } else if bp.is_authenticated() {
        "authenticated"
    } else if bp.has_indirect_mac() {
        "indirect-MAC"
    } else {
        "unencrypted"
    };
    let _ = write!(
        out,
        "{head} {} {} {crypt} {} {} {} {} size={:x}L/{:x}P birth={}L/{}P fill={} cksum={}",
        s.checksum.name(),
        s.compress.name(),
        if bp.order == ByteOrder::Big { "BE" } else { "LE" },
        if bp.is_gang() { "gang" } else { "contiguous" },
        if s.dedup { "dedup" } else { "unique" },
        COPIES[s.copies().count().min(3)],
        bp.lsize.0,
        s.psize.0,
        bp.birth.0,
        s.phys_birth.0,
        s.fill,
        words(&s.sum)
    );
    out
}

/// The size of a hole. The field holds sectors less one, so the minimum is one sector.
fn hole_size(bp: &Blkptr) -> u64 {
    bp.lsize.0.max(512)
}

/// The size field of a redaction mark, which OpenZFS prints.
fn redacted_psize(bp: &Blkptr) -> u64 {
    (le64(&bp.encode(), 48) >> 25 & 0x7f) + 1
}

/// The fill count of a pointer: objects or blocks below it (`BP_GET_FILL`).
pub fn fill(bp: &Blkptr) -> u64 {
    match &bp.body {
        Body::Stored(s) => s.fill,
        Body::Embedded(_) | Body::Redacted => 1,
        Body::Hole => 0,
    }
}

/// A block pointer in short, with its first copy or all (`snprintf_blkptr_compact`).
pub fn compact(bp: &Blkptr, all_copies: bool, freed: bool) -> String {
    match &bp.body {
        Body::Embedded(e) => {
            format!("EMBEDDED et=0 {:x}L/{:x}P B={}", bp.lsize.0, e.payload().len(), bp.birth.0)
        }
        Body::Redacted => {
            format!("EMBEDDED et=2 {:x}L/{:x}P B={}", bp.lsize.0, redacted_psize(bp), bp.birth.0)
        }
        Body::Hole => {
            let dva = if all_copies { "" } else { "0:0:0 " };
            format!("{dva}{:x}L B={}", hole_size(bp), bp.birth.0)
        }
        Body::Stored(s) => {
            let mut out = String::new();
            for d in s.copies().take(if all_copies { 3 } else { 1 }) {
                let _ = write!(out, "{}:{:x}:{:x} ", d.vdev.0, d.offset.0, d.asize.0);
            }
            let free = if freed { " FREE" } else { "" };
            let _ = write!(
                out,
                "{:x}L/{:x}P F={} B={}/{}{free} cksum={}",
                bp.lsize.0,
                s.psize.0,
                s.fill,
                bp.birth.0,
                s.phys_birth.0,
                words(&s.sum)
            );
            out
        }
    }
}

/// Prints a histogram: a row per bucket, from the first filled one to the last (`dump_histogram`).
pub fn histogram(out: &mut Out, buckets: &[u64], offset: usize) {
    const WIDTH: u64 = 40;
    let first = buckets.iter().position(|n| *n != 0).unwrap_or(buckets.len().saturating_sub(1));
    let last = buckets.iter().rposition(|n| *n != 0).unwrap_or(0);
    let max = buckets.iter().copied().max().unwrap_or(0).max(WIDTH);
    for (i, n) in buckets.iter().enumerate().take(last + 1).skip(first) {
        // The missing part of a full bar is rounded down, so that the least count shows one star.
        let missing = u128::from(max - n) * u128::from(WIDTH) / u128::from(max);
        let stars = WIDTH as usize - missing as usize;
        writeln!(out, "\t\t\t{:3}: {n:6} {}", i + offset, "*".repeat(stars));
    }
}

/// Prints a name-value list, indented (`dump_nvlist`).
pub fn nvlist(out: &mut Out, list: &Nvlist, indent: usize) {
    for (name, value) in list.iter() {
        let name = lossy(name);
        match value {
            Value::Boolean => writeln!(out, "{:indent$}{name}", ""),
            Value::List(v) => {
                writeln!(out, "{:indent$}{name}:", "");
                nvlist(out, v, indent + 4);
            }
            Value::ListArray(v) => {
                for (i, v) in v.iter().enumerate() {
                    writeln!(out, "{:indent$}{name}[{i}]:", "");
                    nvlist(out, v, indent + 4);
                }
            }
            Value::Hrtime(_) | Value::BooleanArray(_) | Value::Double(_) => {
                writeln!(out, "{:indent$}{name}: {value:?}", "");
            }
            _ => match scalar(value) {
                Some(v) => writeln!(out, "{:indent$}{name}: {v}", ""),
                None => {
                    for (i, v) in elements(value).iter().enumerate() {
                        writeln!(out, "{:indent$}{name}[{i}]: {v}", "");
                    }
                }
            },
        }
    }
}

/// The text of a value with one element; `None` for a list or an array.
fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::BooleanValue(v) => v.to_string(),
        Value::Byte(v) | Value::Uint8(v) => v.to_string(),
        Value::Int8(v) => v.to_string(),
        Value::Int16(v) => v.to_string(),
        Value::Uint16(v) => v.to_string(),
        Value::Int32(v) => v.to_string(),
        Value::Uint32(v) => v.to_string(),
        Value::Int64(v) => v.to_string(),
        Value::Uint64(v) => v.to_string(),
        Value::String(v) => format!("'{}'", lossy(v)),
        _ => return None,
    })
}

/// The texts of the elements of an array.
fn elements(value: &Value) -> Vec<String> {
    fn all<T: ToString>(v: &[T]) -> Vec<String> {
        v.iter().map(T::to_string).collect()
    }
    match value {
        Value::ByteArray(v) | Value::Uint8Array(v) => all(v),
        Value::Int8Array(v) => all(v),
        Value::Int16Array(v) => all(v),
        Value::Uint16Array(v) => all(v),
        Value::Int32Array(v) => all(v),
        Value::Uint32Array(v) => all(v),
        Value::Int64Array(v) => all(v),
        Value::Uint64Array(v) => all(v),
        Value::StringArray(v) => v.iter().map(|s| format!("'{}'", lossy(s))).collect(),
        _ => Vec::new(),
    }
}
