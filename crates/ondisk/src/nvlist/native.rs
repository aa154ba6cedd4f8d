//! The native encoding: the memory image of the machine that wrote it, with pointers as zeros.
//!
//! A pair consists of:
//!
//! 1. `size: i32`, `name size with NUL: i16`, `unused: i16`, `element count: i32`, `type: i32`
//! 2. the name, padded to eight bytes
//! 3. the value, padded to eight bytes
//!
//! The value of a nested list is a 24-byte head: version, flags, 16 unused bytes. Its pairs come
//! after the pair that holds the list. Arrays of strings and lists begin with one unused pointer
//! for each element.

use super::{Kind, MAX_DEPTH, Nvlist, Value, WHAT};
use crate::{ByteOrder, Corrupt, Result};

const PAIR_HEAD: usize = 16;
const LIST_HEAD: usize = 24;

struct Reader<'a> {
    buf: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.buf.len() - self.at {
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

    /// Checks the version in the list head `head`, and returns its flags.
    fn head(&self, head: &[u8]) -> Result<u32> {
        let version = self.order.u32(WHAT, head, 0)?;
        if version != 0 {
            return Err(Corrupt::Range { what: WHAT, field: "version", value: version.into() });
        }
        self.order.u32(WHAT, head, 4)
    }

    /// Decodes the pairs of one list, up to its zero size.
    fn pairs(&mut self, flags: u32, depth: u32) -> Result<Nvlist> {
        if depth > MAX_DEPTH {
            return Err(Corrupt::Shape { what: WHAT, why: "lists nest too deeply" });
        }
        let mut pairs = Vec::new();
        loop {
            let size = self.order.u32(WHAT, self.buf, self.at)? as usize;
            if size == 0 {
                self.at += 4;
                return Ok(Nvlist { flags, pairs });
            }
            let pair = self.take(size)?;
            let name_size = usize::from(self.order.u16(WHAT, pair, 4)?);
            let count = self.order.u32(WHAT, pair, 8)?;
            let kind = Kind::from_disk(self.order.u32(WHAT, pair, 12)?)?;
            kind.check_count(count)?;
            let name = pair
                .get(PAIR_HEAD..PAIR_HEAD + name_size)
                .and_then(|n| n.split_last())
                .filter(|(last, name)| **last == 0 && !name.contains(&0))
                .ok_or(Corrupt::Shape { what: WHAT, why: "a name does not end where it says" })?
                .1;
            let data = pair.get((PAIR_HEAD + name_size).next_multiple_of(8)..).unwrap_or(&[]);
            let value = self.value(kind, count as usize, data, depth)?;
            pairs.push((name.to_vec(), value));
        }
    }

    fn ints<T, const N: usize>(
        &self,
        count: usize,
        data: &[u8],
        one: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let need = count.saturating_mul(N);
        let raw = data.get(..need).ok_or(Corrupt::Truncated { what: WHAT, need, have: data.len() })?;
        Ok(raw
            .as_chunks::<N>()
            .0
            .iter()
            .map(|c| {
                let mut c = *c;
                if self.order == ByteOrder::Big {
                    c.reverse();
                }
                one(c)
            })
            .collect())
    }

    fn int<T: Copy, const N: usize>(&self, data: &[u8], one: impl Fn([u8; N]) -> T) -> Result<T> {
        Ok(self.ints(1, data, one)?[0])
    }

    fn strings(&self, count: usize, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut rest = data.get(count.saturating_mul(8)..).ok_or(Corrupt::Truncated {
            what: WHAT,
            need: count.saturating_mul(8),
            have: data.len(),
        })?;
        let mut v = Vec::with_capacity(count);
        for _ in 0..count {
            let (s, tail) = c_string(rest)?;
            v.push(s);
            rest = tail;
        }
        Ok(v)
    }

    fn lists(&mut self, count: usize, data: &[u8], depth: u32) -> Result<Vec<Nvlist>> {
        let need = count.saturating_mul(8 + LIST_HEAD);
        let heads = data.get(..need).ok_or(Corrupt::Truncated { what: WHAT, need, have: data.len() })?;
        let mut v = Vec::with_capacity(count);
        for head in heads[8 * count..].chunks_exact(LIST_HEAD) {
            let flags = self.head(head)?;
            v.push(self.pairs(flags, depth + 1)?);
        }
        Ok(v)
    }

    fn value(&mut self, kind: Kind, n: usize, data: &[u8], depth: u32) -> Result<Value> {
        Ok(match kind {
            Kind::Boolean => Value::Boolean,
            Kind::Byte => Value::Byte(self.int(data, u8::from_le_bytes)?),
            Kind::Int8 => Value::Int8(self.int(data, i8::from_le_bytes)?),
            Kind::Uint8 => Value::Uint8(self.int(data, u8::from_le_bytes)?),
            Kind::Int16 => Value::Int16(self.int(data, i16::from_le_bytes)?),
            Kind::Uint16 => Value::Uint16(self.int(data, u16::from_le_bytes)?),
            Kind::Int32 => Value::Int32(self.int(data, i32::from_le_bytes)?),
            Kind::Uint32 => Value::Uint32(self.int(data, u32::from_le_bytes)?),
            Kind::Int64 => Value::Int64(self.int(data, i64::from_le_bytes)?),
            Kind::Uint64 => Value::Uint64(self.int(data, u64::from_le_bytes)?),
            Kind::Hrtime => Value::Hrtime(self.int(data, i64::from_le_bytes)?),
            Kind::Double => Value::Double(self.int(data, f64::from_le_bytes)?),
            Kind::BooleanValue => Value::BooleanValue(self.int(data, u32::from_le_bytes)? != 0),
            Kind::String => Value::String(c_string(data)?.0),
            Kind::ByteArray => Value::ByteArray(self.ints(n, data, u8::from_le_bytes)?),
            Kind::Int8Array => Value::Int8Array(self.ints(n, data, i8::from_le_bytes)?),
            Kind::Uint8Array => Value::Uint8Array(self.ints(n, data, u8::from_le_bytes)?),
            Kind::Int16Array => Value::Int16Array(self.ints(n, data, i16::from_le_bytes)?),
            Kind::Uint16Array => Value::Uint16Array(self.ints(n, data, u16::from_le_bytes)?),
            Kind::Int32Array => Value::Int32Array(self.ints(n, data, i32::from_le_bytes)?),
            Kind::Uint32Array => Value::Uint32Array(self.ints(n, data, u32::from_le_bytes)?),
            Kind::Int64Array => Value::Int64Array(self.ints(n, data, i64::from_le_bytes)?),
            Kind::Uint64Array => Value::Uint64Array(self.ints(n, data, u64::from_le_bytes)?),
            Kind::BooleanArray => Value::BooleanArray(self.ints(n, data, |b| u32::from_le_bytes(b) != 0)?),
            Kind::StringArray => Value::StringArray(self.strings(n, data)?),
            Kind::List => {
                let flags = self.head(data)?;
                Value::List(self.pairs(flags, depth + 1)?)
            }
            Kind::ListArray => Value::ListArray(self.lists(n, data, depth)?),
        })
    }
}

/// The string up to the first NUL of `data`, and the bytes after the NUL.
fn c_string(data: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let end = data
        .iter()
        .position(|b| *b == 0)
        .ok_or(Corrupt::Shape { what: WHAT, why: "a string does not end" })?;
    Ok((data[..end].to_vec(), &data[end + 1..]))
}

/// Encodes a list as a little-endian machine does, header included.
pub(super) fn encode(list: &Nvlist) -> Vec<u8> {
    // The encoding (native), and the byte order (little).
    let mut out = vec![0, 1, 0, 0];
    out.extend([0; 4]);
    out.extend(list.flags.to_le_bytes());
    put_pairs(&mut out, list);
    out
}

fn put_pairs(out: &mut Vec<u8>, list: &Nvlist) {
    for (name, value) in &list.pairs {
        let start = out.len();
        out.extend([0; 4]);
        out.extend(((name.len() + 1) as u16).to_le_bytes());
        out.extend([0; 2]);
        out.extend((value.count() as u32).to_le_bytes());
        out.extend((value.kind() as u32).to_le_bytes());
        out.extend(name);
        out.push(0);
        pad(out, start);
        put_value(out, value);
        pad(out, start);
        let size = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&size.to_le_bytes());
        match value {
            Value::List(inner) => put_pairs(out, inner),
            Value::ListArray(inner) => inner.iter().for_each(|list| put_pairs(out, list)),
            _ => {}
        }
    }
    out.extend([0; 4]);
}

/// Pads a pair that begins at `start` to eight bytes.
fn pad(out: &mut Vec<u8>, start: usize) {
    out.resize(start + (out.len() - start).next_multiple_of(8), 0);
}

/// The part of a value that is in its pair: all of it, or of a list its head.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    let head = |out: &mut Vec<u8>, list: &Nvlist| {
        out.extend([0; 4]);
        out.extend(list.flags.to_le_bytes());
        out.extend([0; LIST_HEAD - 8]);
    };
    macro_rules! words {
        ($v:expr) => {
            $v.iter().for_each(|n| out.extend(n.to_le_bytes()))
        };
    }
    match value {
        Value::Boolean => {}
        Value::Byte(n) | Value::Uint8(n) => out.push(*n),
        Value::Int8(n) => words!([n]),
        Value::Int16(n) => words!([n]),
        Value::Uint16(n) => words!([n]),
        Value::Int32(n) => words!([n]),
        Value::Uint32(n) => words!([n]),
        Value::Int64(n) | Value::Hrtime(n) => words!([n]),
        Value::Uint64(n) => words!([n]),
        Value::Double(n) => words!([n]),
        Value::BooleanValue(b) => out.extend(u32::from(*b).to_le_bytes()),
        Value::String(s) => {
            out.extend(s);
            out.push(0);
        }
        Value::ByteArray(v) | Value::Uint8Array(v) => out.extend(v),
        Value::Int8Array(v) => words!(v),
        Value::Int16Array(v) => words!(v),
        Value::Uint16Array(v) => words!(v),
        Value::Int32Array(v) => words!(v),
        Value::Uint32Array(v) => words!(v),
        Value::Int64Array(v) => words!(v),
        Value::Uint64Array(v) => words!(v),
        Value::BooleanArray(v) => v.iter().for_each(|b| out.extend(u32::from(*b).to_le_bytes())),
        Value::StringArray(v) => {
            out.extend(vec![0; 8 * v.len()]);
            for s in v {
                out.extend(s);
                out.push(0);
            }
        }
        Value::List(list) => head(out, list),
        Value::ListArray(v) => {
            out.extend(vec![0; 8 * v.len()]);
            v.iter().for_each(|list| head(out, list));
        }
    }
}

pub(super) fn decode(body: &[u8], order: ByteOrder) -> Result<Nvlist> {
    let mut r = Reader { buf: body, at: 0, order };
    let head = r.take(8)?;
    let flags = r.head(head)?;
    r.pairs(flags, 0)
}
