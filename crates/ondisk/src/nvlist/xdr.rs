//! The XDR encoding: big-endian, in units of four bytes.

use super::{Kind, MAX_DEPTH, Nvlist, Value, WHAT};
use crate::{Corrupt, Result};

/// Bytes of the smallest list: version, flags and the two zeros at its end.
const MIN_LIST: usize = 16;

struct Reader<'a> {
    buf: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn left(&self) -> usize {
        self.buf.len() - self.at
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.left() {
            return Err(Corrupt::Truncated {
                what: WHAT,
                need: self.at.saturating_add(n),
                have: self.buf.len(),
            });
        }
        let s = &self.buf[self.at..self.at + n];
        self.at += n;
        Ok(s)
    }

    fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&mut self) -> Result<u64> {
        let hi = self.u32()?;
        Ok(u64::from(hi) << 32 | u64::from(self.u32()?))
    }

    /// Takes bytes that are padded to a multiple of four.
    fn opaque(&mut self, n: usize) -> Result<&'a [u8]> {
        let s = self.take(n)?;
        self.take(n.wrapping_neg() % 4)?;
        Ok(s)
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        let n = self.u32()? as usize;
        let s = self.opaque(n)?;
        if s.contains(&0) {
            return Err(Corrupt::Shape { what: WHAT, why: "a string holds a NUL" });
        }
        Ok(s.to_vec())
    }

    /// Decodes `count` elements of at least `min` bytes each, after a check that so many bytes are
    /// left.
    fn elements<T>(
        &mut self,
        count: usize,
        min: usize,
        mut one: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let need = count.saturating_mul(min);
        if need > self.left() {
            return Err(Corrupt::Truncated {
                what: WHAT,
                need: self.at.saturating_add(need),
                have: self.buf.len(),
            });
        }
        let mut v = Vec::with_capacity(count);
        for _ in 0..count {
            v.push(one(self)?);
        }
        Ok(v)
    }

    /// Decodes a counted array. Before its elements the count is stored a second time; an empty
    /// array has neither.
    fn array<T>(
        &mut self,
        count: u32,
        unit: usize,
        one: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.u32()? != count {
            return Err(Corrupt::Shape { what: WHAT, why: "an array's two counts differ" });
        }
        self.elements(count as usize, unit, one)
    }

    fn value(&mut self, kind: Kind, count: u32, depth: u32) -> Result<Value> {
        let n = count as usize;
        Ok(match kind {
            Kind::Boolean => Value::Boolean,
            Kind::Byte => Value::Byte(self.u32()? as u8),
            Kind::Int8 => Value::Int8(self.u32()? as i8),
            Kind::Uint8 => Value::Uint8(self.u32()? as u8),
            Kind::Int16 => Value::Int16(self.u32()? as i16),
            Kind::Uint16 => Value::Uint16(self.u32()? as u16),
            Kind::Int32 => Value::Int32(self.u32()? as i32),
            Kind::Uint32 => Value::Uint32(self.u32()?),
            Kind::Int64 => Value::Int64(self.u64()? as i64),
            Kind::Uint64 => Value::Uint64(self.u64()?),
            Kind::Hrtime => Value::Hrtime(self.u64()? as i64),
            Kind::Double => Value::Double(f64::from_bits(self.u64()?)),
            Kind::BooleanValue => Value::BooleanValue(self.u32()? != 0),
            Kind::String => Value::String(self.string()?),
            Kind::ByteArray => Value::ByteArray(self.opaque(n)?.to_vec()),
            Kind::Int8Array => Value::Int8Array(self.array(count, 4, |r| Ok(r.u32()? as i8))?),
            Kind::Uint8Array => Value::Uint8Array(self.array(count, 4, |r| Ok(r.u32()? as u8))?),
            Kind::Int16Array => Value::Int16Array(self.array(count, 4, |r| Ok(r.u32()? as i16))?),
            Kind::Uint16Array => Value::Uint16Array(self.array(count, 4, |r| Ok(r.u32()? as u16))?),
            Kind::Int32Array => Value::Int32Array(self.array(count, 4, |r| Ok(r.u32()? as i32))?),
            Kind::Uint32Array => Value::Uint32Array(self.array(count, 4, Self::u32)?),
            Kind::BooleanArray => Value::BooleanArray(self.array(count, 4, |r| Ok(r.u32()? != 0))?),
            Kind::Int64Array => Value::Int64Array(self.array(count, 8, |r| Ok(r.u64()? as i64))?),
            Kind::Uint64Array => Value::Uint64Array(self.array(count, 8, Self::u64)?),
            Kind::StringArray => Value::StringArray(self.elements(n, 4, Self::string)?),
            Kind::List => Value::List(self.list(depth + 1)?),
            Kind::ListArray => Value::ListArray(self.elements(n, MIN_LIST, |r| r.list(depth + 1))?),
        })
    }

    fn list(&mut self, depth: u32) -> Result<Nvlist> {
        if depth > MAX_DEPTH {
            return Err(Corrupt::Shape { what: WHAT, why: "lists nest too deeply" });
        }
        let version = self.u32()?;
        if version != 0 {
            return Err(Corrupt::Range { what: WHAT, field: "version", value: version.into() });
        }
        let flags = self.u32()?;
        let mut pairs = Vec::new();
        loop {
            // The stored sizes serve only to find the end. OpenZFS doesn't check them, and stores a
            // wrong size for an empty array (see `put_list`).
            let (_encoded, decoded) = (self.u32()?, self.u32()?);
            if decoded == 0 {
                return Ok(Nvlist { flags, pairs });
            }
            let name = self.string()?;
            let kind = Kind::from_disk(self.u32()?)?;
            let count = self.u32()?;
            kind.check_count(count)?;
            let value = self.value(kind, count, depth)?;
            pairs.push((name, value));
        }
    }
}

pub(super) fn decode(body: &[u8]) -> Result<Nvlist> {
    Reader { buf: body, at: 0 }.list(0)
}

fn put(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_be_bytes());
}

fn size32(n: usize) -> u32 {
    assert!(n <= i32::MAX as usize, "an nvlist of 2 GiB");
    n as u32
}

fn put_opaque(out: &mut Vec<u8>, s: &[u8]) {
    out.extend_from_slice(s);
    out.resize(out.len() + s.len().wrapping_neg() % 4, 0);
}

fn put_string(out: &mut Vec<u8>, s: &[u8]) {
    put(out, size32(s.len()));
    put_opaque(out, s);
}

fn put_array<T: Copy>(out: &mut Vec<u8>, v: &[T], one: impl Fn(&mut Vec<u8>, T)) {
    if !v.is_empty() {
        put(out, size32(v.len()));
        v.iter().for_each(|x| one(out, *x));
    }
}

fn put64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_be_bytes());
}

/// Bytes that the pair takes in the memory of OpenZFS (`nvp_size`). They are stored, and its
/// decoder checks them.
fn native_size(name: &[u8], value: &Value) -> usize {
    let align = |n: usize| n.next_multiple_of(8);
    let n = value.count();
    let data = match value {
        Value::Boolean => 0,
        Value::Byte(_) | Value::Int8(_) | Value::Uint8(_) => 1,
        Value::Int16(_) | Value::Uint16(_) => 2,
        Value::Int32(_) | Value::Uint32(_) | Value::BooleanValue(_) => 4,
        Value::Int64(_) | Value::Uint64(_) | Value::Hrtime(_) | Value::Double(_) => 8,
        Value::ByteArray(_) | Value::Int8Array(_) | Value::Uint8Array(_) => n,
        Value::Int16Array(_) | Value::Uint16Array(_) => 2 * n,
        Value::Int32Array(_) | Value::Uint32Array(_) | Value::BooleanArray(_) => 4 * n,
        Value::Int64Array(_) | Value::Uint64Array(_) => 8 * n,
        Value::String(s) => s.len() + 1,
        Value::StringArray(v) => 8 * n + v.iter().map(|s| s.len() + 1).sum::<usize>(),
        Value::List(_) => 24,
        Value::ListArray(_) => (8 + 24) * n,
    };
    align(16 + name.len() + 1) + align(data)
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Boolean => {}
        Value::Byte(v) | Value::Uint8(v) => put(out, *v as i8 as i32 as u32),
        Value::Int8(v) => put(out, i32::from(*v) as u32),
        Value::Int16(v) => put(out, i32::from(*v) as u32),
        Value::Uint16(v) => put(out, u32::from(*v)),
        Value::Int32(v) => put(out, *v as u32),
        Value::Uint32(v) => put(out, *v),
        Value::BooleanValue(v) => put(out, u32::from(*v)),
        Value::Int64(v) | Value::Hrtime(v) => put64(out, *v as u64),
        Value::Uint64(v) => put64(out, *v),
        Value::Double(v) => put64(out, v.to_bits()),
        Value::String(s) => put_string(out, s),
        Value::ByteArray(v) => put_opaque(out, v),
        Value::Int8Array(v) => put_array(out, v, |o, x| put(o, i32::from(x) as u32)),
        Value::Uint8Array(v) => put_array(out, v, |o, x| put(o, x as i8 as i32 as u32)),
        Value::Int16Array(v) => put_array(out, v, |o, x| put(o, i32::from(x) as u32)),
        Value::Uint16Array(v) => put_array(out, v, |o, x| put(o, u32::from(x))),
        Value::Int32Array(v) => put_array(out, v, |o, x| put(o, x as u32)),
        Value::Uint32Array(v) => put_array(out, v, put),
        Value::BooleanArray(v) => put_array(out, v, |o, x| put(o, u32::from(x))),
        Value::Int64Array(v) => put_array(out, v, |o, x| put64(o, x as u64)),
        Value::Uint64Array(v) => put_array(out, v, put64),
        Value::StringArray(v) => v.iter().for_each(|s| put_string(out, s)),
        Value::List(l) => put_list(out, l),
        Value::ListArray(v) => v.iter().for_each(|l| put_list(out, l)),
    }
}

fn put_list(out: &mut Vec<u8>, list: &Nvlist) {
    put(out, 0);
    put(out, list.flags);
    for (name, value) in &list.pairs {
        let start = out.len();
        put(out, 0);
        put(out, size32(native_size(name, value)));
        put_string(out, name);
        put(out, value.kind() as u32);
        put(out, size32(value.count()));
        put_value(out, value);
        // OpenZFS counts the second element count of an empty array, although the array has none.
        let phantom = match value {
            Value::ByteArray(_) | Value::StringArray(_) | Value::ListArray(_) => 0,
            v if v.kind().is_array() && v.count() == 0 => 4,
            _ => 0,
        };
        let size = size32(out.len() - start + phantom);
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    }
    put(out, 0);
    put(out, 0);
}

pub(super) fn encode(list: &Nvlist) -> Vec<u8> {
    // The second byte is the writer's byte order (little-endian), on which XDR doesn't depend.
    let mut out = vec![1, 1, 0, 0];
    put_list(&mut out, list);
    out
}
