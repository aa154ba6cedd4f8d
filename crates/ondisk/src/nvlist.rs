//! Name-value lists: the self-describing records of labels, pool configs, properties, history and
//! `xattr=sa`.
//!
//! # On disk
//! A packed list starts with four bytes:
//!
//! 1. the encoding: 0 native, 1 XDR
//! 2. the byte order of a native encoding: 0 big-endian, 1 little-endian
//! 3. two unused bytes
//!
//! Pools hold XDR, which is big-endian in units of 4 bytes. The native encoding is the writer's
//! memory image, and occurs in messages and caches. In both, a list is its version (0), its flags,
//! its pairs and a zero size. Each pair has its own size, a name, a type and an element count.
//!
//! # Theory
//! The bytes can be hostile. The decoders compare each count with the number of bytes left before
//! they allocate memory. So memory is bounded by a small multiple of the input. [`MAX_DEPTH`]
//! bounds the nesting.
//!
//! Names and strings are bytes, as names of extended attributes are. The order of pairs is kept.
//! OpenZFS's bytes, decoded and encoded again, are the same bytes.
//!
//! OpenZFS: `module/nvpair/nvpair.c`, `include/sys/nvpair.h`.

mod native;
mod print;
mod xdr;

#[cfg(test)]
mod tests;

use crate::{ByteOrder, Corrupt, Result};

/// Deepest nesting of lists that the decoders accept (`nvpair_max_recursion`).
pub const MAX_DEPTH: u32 = 100;
/// Flag of a list: names are unique (`NV_UNIQUE_NAME`).
pub const UNIQUE_NAME: u32 = 1;
/// Flag of a list: pairs of name and type are unique (`NV_UNIQUE_NAME_TYPE`).
pub const UNIQUE_NAME_TYPE: u32 = 2;

const WHAT: &str = "nvlist";

/// Value of a pair (`data_type_t`).
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The name alone, without a value (`DATA_TYPE_BOOLEAN`).
    Boolean,
    /// A byte (`DATA_TYPE_BYTE`).
    Byte(u8),
    /// A 16-bit integer (`DATA_TYPE_INT16`).
    Int16(i16),
    /// An unsigned 16-bit integer (`DATA_TYPE_UINT16`).
    Uint16(u16),
    /// A 32-bit integer (`DATA_TYPE_INT32`).
    Int32(i32),
    /// An unsigned 32-bit integer (`DATA_TYPE_UINT32`).
    Uint32(u32),
    /// A 64-bit integer (`DATA_TYPE_INT64`).
    Int64(i64),
    /// An unsigned 64-bit integer (`DATA_TYPE_UINT64`).
    Uint64(u64),
    /// Bytes without a NUL (`DATA_TYPE_STRING`).
    String(Vec<u8>),
    /// Bytes (`DATA_TYPE_BYTE_ARRAY`).
    ByteArray(Vec<u8>),
    /// 16-bit integers (`DATA_TYPE_INT16_ARRAY`).
    Int16Array(Vec<i16>),
    /// Unsigned 16-bit integers (`DATA_TYPE_UINT16_ARRAY`).
    Uint16Array(Vec<u16>),
    /// 32-bit integers (`DATA_TYPE_INT32_ARRAY`).
    Int32Array(Vec<i32>),
    /// Unsigned 32-bit integers (`DATA_TYPE_UINT32_ARRAY`).
    Uint32Array(Vec<u32>),
    /// 64-bit integers (`DATA_TYPE_INT64_ARRAY`).
    Int64Array(Vec<i64>),
    /// Unsigned 64-bit integers (`DATA_TYPE_UINT64_ARRAY`).
    Uint64Array(Vec<u64>),
    /// Strings, as bytes without a NUL (`DATA_TYPE_STRING_ARRAY`).
    StringArray(Vec<Vec<u8>>),
    /// A time in nanoseconds (`DATA_TYPE_HRTIME`).
    Hrtime(i64),
    /// A nested list (`DATA_TYPE_NVLIST`).
    List(Nvlist),
    /// Nested lists (`DATA_TYPE_NVLIST_ARRAY`).
    ListArray(Vec<Nvlist>),
    /// A boolean with a value (`DATA_TYPE_BOOLEAN_VALUE`).
    BooleanValue(bool),
    /// An 8-bit integer (`DATA_TYPE_INT8`).
    Int8(i8),
    /// An unsigned 8-bit integer (`DATA_TYPE_UINT8`).
    Uint8(u8),
    /// Booleans (`DATA_TYPE_BOOLEAN_ARRAY`).
    BooleanArray(Vec<bool>),
    /// 8-bit integers (`DATA_TYPE_INT8_ARRAY`).
    Int8Array(Vec<i8>),
    /// Unsigned 8-bit integers (`DATA_TYPE_UINT8_ARRAY`).
    Uint8Array(Vec<u8>),
    /// A floating-point number (`DATA_TYPE_DOUBLE`).
    Double(f64),
}

/// Type of a value as stored (`data_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Boolean = 1,
    Byte,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    String,
    ByteArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Int64Array,
    Uint64Array,
    StringArray,
    Hrtime,
    List,
    ListArray,
    BooleanValue,
    Int8,
    Uint8,
    BooleanArray,
    Int8Array,
    Uint8Array,
    Double,
}

const KINDS: [Kind; 27] = {
    use Kind::*;
    [
        Boolean,
        Byte,
        Int16,
        Uint16,
        Int32,
        Uint32,
        Int64,
        Uint64,
        String,
        ByteArray,
        Int16Array,
        Uint16Array,
        Int32Array,
        Uint32Array,
        Int64Array,
        Uint64Array,
        StringArray,
        Hrtime,
        List,
        ListArray,
        BooleanValue,
        Int8,
        Uint8,
        BooleanArray,
        Int8Array,
        Uint8Array,
        Double,
    ]
};

impl Kind {
    fn from_disk(v: u32) -> Result<Kind> {
        (v as usize).checked_sub(1).and_then(|i| KINDS.get(i)).copied().ok_or(Corrupt::Range {
            what: WHAT,
            field: "type",
            value: v.into(),
        })
    }

    fn is_array(self) -> bool {
        use Kind::*;
        matches!(
            self,
            ByteArray
                | Int16Array
                | Uint16Array
                | Int32Array
                | Uint32Array
                | Int64Array
                | Uint64Array
                | StringArray
                | ListArray
                | BooleanArray
                | Int8Array
                | Uint8Array
        )
    }

    /// Refuses an element count that the type can't have.
    fn check_count(self, count: u32) -> Result<()> {
        let ok = match self {
            Kind::Boolean => count == 0,
            k if k.is_array() => true,
            _ => count == 1,
        };
        if ok {
            Ok(())
        } else {
            Err(Corrupt::Range { what: WHAT, field: "element count", value: count.into() })
        }
    }
}

impl Value {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Value::Boolean => Kind::Boolean,
            Value::Byte(_) => Kind::Byte,
            Value::Int16(_) => Kind::Int16,
            Value::Uint16(_) => Kind::Uint16,
            Value::Int32(_) => Kind::Int32,
            Value::Uint32(_) => Kind::Uint32,
            Value::Int64(_) => Kind::Int64,
            Value::Uint64(_) => Kind::Uint64,
            Value::String(_) => Kind::String,
            Value::ByteArray(_) => Kind::ByteArray,
            Value::Int16Array(_) => Kind::Int16Array,
            Value::Uint16Array(_) => Kind::Uint16Array,
            Value::Int32Array(_) => Kind::Int32Array,
            Value::Uint32Array(_) => Kind::Uint32Array,
            Value::Int64Array(_) => Kind::Int64Array,
            Value::Uint64Array(_) => Kind::Uint64Array,
            Value::StringArray(_) => Kind::StringArray,
            Value::Hrtime(_) => Kind::Hrtime,
            Value::List(_) => Kind::List,
            Value::ListArray(_) => Kind::ListArray,
            Value::BooleanValue(_) => Kind::BooleanValue,
            Value::Int8(_) => Kind::Int8,
            Value::Uint8(_) => Kind::Uint8,
            Value::BooleanArray(_) => Kind::BooleanArray,
            Value::Int8Array(_) => Kind::Int8Array,
            Value::Uint8Array(_) => Kind::Uint8Array,
            Value::Double(_) => Kind::Double,
        }
    }

    /// Number of elements as stored (`NVP_NELEM`): 0 for [`Value::Boolean`], the length of an
    /// array, else 1.
    pub fn count(&self) -> usize {
        match self {
            Value::Boolean => 0,
            Value::ByteArray(v) | Value::Uint8Array(v) => v.len(),
            Value::Int8Array(v) => v.len(),
            Value::Int16Array(v) => v.len(),
            Value::Uint16Array(v) => v.len(),
            Value::Int32Array(v) => v.len(),
            Value::Uint32Array(v) => v.len(),
            Value::Int64Array(v) => v.len(),
            Value::Uint64Array(v) => v.len(),
            Value::BooleanArray(v) => v.len(),
            Value::StringArray(v) => v.len(),
            Value::ListArray(v) => v.len(),
            _ => 1,
        }
    }
}

/// A list of named values, in stored order (`nvlist_t`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Nvlist {
    flags: u32,
    pairs: Vec<(Vec<u8>, Value)>,
}

impl FromIterator<(Vec<u8>, Value)> for Nvlist {
    /// A list of these pairs, whose names must be unique.
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Value)>>(pairs: I) -> Self {
        Self { flags: UNIQUE_NAME, pairs: pairs.into_iter().collect() }
    }
}

impl Nvlist {
    /// An empty list with unique names (`nvlist_alloc`).
    pub fn new() -> Self {
        Self { flags: UNIQUE_NAME, pairs: Vec::new() }
    }

    /// Decodes the list at the start of `buf`, in the encoding that its header names
    /// (`nvlist_unpack`).
    ///
    /// Bytes after the list are ignored.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` ends before the list does, or an element count needs more
    ///   bytes than are left.
    /// * [`Corrupt::Range`]: the encoding, the byte order, a version, a type or an element count is
    ///   impossible.
    /// * [`Corrupt::Shape`]: lists nest deeper than [`MAX_DEPTH`], a name or string has a NUL
    ///   inside or no end, or the two counts of an array differ.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let (head, body) =
            buf.split_at_checked(4).ok_or(Corrupt::Truncated { what: WHAT, need: 4, have: buf.len() })?;
        match (head[0], head[1]) {
            (0, 0) => native::decode(body, ByteOrder::Big),
            (0, 1) => native::decode(body, ByteOrder::Little),
            (0, e) => Err(Corrupt::Range { what: WHAT, field: "byte order", value: e.into() }),
            (1, _) => xdr::decode(body),
            (e, _) => Err(Corrupt::Range { what: WHAT, field: "encoding", value: e.into() }),
        }
    }

    /// Encodes the list in XDR, header included (`nvlist_pack` with `NV_ENCODE_XDR`).
    ///
    /// # Panics
    /// If a pair would exceed 2 GiB, or an element count is 2^31 or more. Lists of callers are far
    /// smaller.
    pub fn encode_xdr(&self) -> Vec<u8> {
        xdr::encode(self)
    }

    /// Encodes the list as a little-endian machine has it in memory, header included (`nvlist_pack`
    /// with `NV_ENCODE_NATIVE`).
    pub fn encode_native(&self) -> Vec<u8> {
        native::encode(self)
    }

    /// Flags of the list: [`UNIQUE_NAME`] or [`UNIQUE_NAME_TYPE`] (`nvl_nvflag`).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// True if the list has no pairs (`nvlist_empty`).
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in stored order (`nvlist_next_nvpair`).
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.pairs.iter().map(|(n, v)| (n.as_slice(), v))
    }

    /// The first value with this name (`nvlist_lookup_nvpair`).
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Value> {
        let name = name.as_ref();
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Sets the value of `name` (`nvlist_add_nvpair` on a list of unique names).
    ///
    /// An existing pair keeps its position; a new pair goes to the end.
    pub fn set(&mut self, name: impl Into<Vec<u8>>, value: Value) {
        let name = name.into();
        match self.pairs.iter_mut().find(|(n, _)| *n == name) {
            Some((_, v)) => *v = value,
            None => self.pairs.push((name, value)),
        }
    }

    /// Removes all pairs with this name, and returns true if there were any (`nvlist_remove_all`).
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let before = self.pairs.len();
        self.pairs.retain(|(n, _)| n != name);
        self.pairs.len() != before
    }

    /// True if a pair has this name, whatever its type (`nvlist_exists`).
    pub fn has(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// The `uint64` with this name; `None` if absent or of another type (`nvlist_lookup_uint64`).
    pub fn u64(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        match self.get(name)? {
            Value::Uint64(v) => Some(*v),
            _ => None,
        }
    }

    /// The `uint64` array with this name; `None` if absent or of another type
    /// (`nvlist_lookup_uint64_array`).
    pub fn u64s(&self, name: impl AsRef<[u8]>) -> Option<&[u64]> {
        match self.get(name)? {
            Value::Uint64Array(v) => Some(v),
            _ => None,
        }
    }

    /// The string with this name, as bytes; `None` if absent or of another type
    /// (`nvlist_lookup_string`).
    pub fn string(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name)? {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    /// The string with this name; `None` if absent, of another type or not UTF-8.
    pub fn str(&self, name: impl AsRef<[u8]>) -> Option<&str> {
        std::str::from_utf8(self.string(name)?).ok()
    }

    /// The list with this name; `None` if absent or of another type (`nvlist_lookup_nvlist`).
    pub fn list(&self, name: impl AsRef<[u8]>) -> Option<&Nvlist> {
        match self.get(name)? {
            Value::List(v) => Some(v),
            _ => None,
        }
    }

    /// The array of lists with this name; `None` if absent or of another type
    /// (`nvlist_lookup_nvlist_array`).
    pub fn lists(&self, name: impl AsRef<[u8]>) -> Option<&[Nvlist]> {
        match self.get(name)? {
            Value::ListArray(v) => Some(v),
            _ => None,
        }
    }

    /// The byte array or `uint8` array with this name; `None` if absent or of another type
    /// (`nvlist_lookup_byte_array`).
    pub fn bytes(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name)? {
            Value::ByteArray(v) | Value::Uint8Array(v) => Some(v),
            _ => None,
        }
    }
}
