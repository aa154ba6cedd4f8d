//! Name-value lists: the self-describing records of labels, pool configs, properties, history and `xattr=sa`.
//!
//! # On disk
//! A packed list starts with four bytes: the encoding (0 native, 1 XDR), the byte order of a native encoding (0 big,
//! 1 little), two unused. XDR (big-endian, 4-byte units) is what pools hold; the native form is the writer's memory
//! image and appears in messages and caches. In both, a list is its version (0), its flags, its pairs and a zero size;
//! each pair gives its own size, name, type and element count.
//!
//! # Theory
//! The bytes are hostile: each count is compared with the bytes that are left before anything is allocated, so
//! memory is bounded by a small multiple of the input, and nesting is bounded by [`MAX_DEPTH`]. Names and strings are
//! bytes, since names of extended attributes are. Order is kept, and encoding what was decoded from OpenZFS's bytes
//! gives the same bytes.
//!
//! See OpenZFS `module/nvpair/nvpair.c`, `include/sys/nvpair.h`.

mod native;
mod print;
mod xdr;

#[cfg(test)]
mod tests;

use crate::{ByteOrder, Corrupt, Result};

/// Deepest nesting of lists that the decoders follow (`nvpair_max_recursion`).
pub const MAX_DEPTH: u32 = 100;
/// Names are unique in the list (`NV_UNIQUE_NAME`).
pub const UNIQUE_NAME: u32 = 1;
/// Pairs of name and type are unique in the list (`NV_UNIQUE_NAME_TYPE`).
pub const UNIQUE_NAME_TYPE: u32 = 2;

const WHAT: &str = "nvlist";

/// A value of a pair (`data_type_t`).
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The name alone (`DATA_TYPE_BOOLEAN`).
    Boolean,
    /// A byte (`DATA_TYPE_BYTE`).
    Byte(u8),
    /// `DATA_TYPE_INT16`.
    Int16(i16),
    /// `DATA_TYPE_UINT16`.
    Uint16(u16),
    /// `DATA_TYPE_INT32`.
    Int32(i32),
    /// `DATA_TYPE_UINT32`.
    Uint32(u32),
    /// `DATA_TYPE_INT64`.
    Int64(i64),
    /// `DATA_TYPE_UINT64`.
    Uint64(u64),
    /// Bytes without a NUL (`DATA_TYPE_STRING`).
    String(Vec<u8>),
    /// Bytes (`DATA_TYPE_BYTE_ARRAY`).
    ByteArray(Vec<u8>),
    /// `DATA_TYPE_INT16_ARRAY`.
    Int16Array(Vec<i16>),
    /// `DATA_TYPE_UINT16_ARRAY`.
    Uint16Array(Vec<u16>),
    /// `DATA_TYPE_INT32_ARRAY`.
    Int32Array(Vec<i32>),
    /// `DATA_TYPE_UINT32_ARRAY`.
    Uint32Array(Vec<u32>),
    /// `DATA_TYPE_INT64_ARRAY`.
    Int64Array(Vec<i64>),
    /// `DATA_TYPE_UINT64_ARRAY`.
    Uint64Array(Vec<u64>),
    /// `DATA_TYPE_STRING_ARRAY`.
    StringArray(Vec<Vec<u8>>),
    /// Nanoseconds (`DATA_TYPE_HRTIME`).
    Hrtime(i64),
    /// A nested list (`DATA_TYPE_NVLIST`).
    List(Nvlist),
    /// Nested lists (`DATA_TYPE_NVLIST_ARRAY`).
    ListArray(Vec<Nvlist>),
    /// Yes or no (`DATA_TYPE_BOOLEAN_VALUE`).
    BooleanValue(bool),
    /// `DATA_TYPE_INT8`.
    Int8(i8),
    /// `DATA_TYPE_UINT8`.
    Uint8(u8),
    /// `DATA_TYPE_BOOLEAN_ARRAY`.
    BooleanArray(Vec<bool>),
    /// `DATA_TYPE_INT8_ARRAY`.
    Int8Array(Vec<i8>),
    /// `DATA_TYPE_UINT8_ARRAY`.
    Uint8Array(Vec<u8>),
    /// `DATA_TYPE_DOUBLE`.
    Double(f64),
}

/// A value's type as stored (`data_type_t`).
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

    /// Refuses a count of elements that the type can't have.
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

    /// Number of elements as stored: 0 for [`Value::Boolean`], the length of an array, else 1.
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

impl Nvlist {
    /// An empty list with unique names.
    pub fn new() -> Self {
        Self { flags: UNIQUE_NAME, pairs: Vec::new() }
    }

    /// The list packed at the start of `buf`, in whichever encoding its header names (`nvlist_unpack`). What follows
    /// the list is not looked at.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes are no list.
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

    /// The list in XDR, header included (`nvlist_pack(NV_ENCODE_XDR)`).
    ///
    /// # Panics
    /// When the packed list would exceed 2 GiB, or an element count 2^31: a caller's list is far from it.
    pub fn encode_xdr(&self) -> Vec<u8> {
        xdr::encode(self)
    }

    /// Flags: [`UNIQUE_NAME`] or [`UNIQUE_NAME_TYPE`] (`nvl_nvflag`).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in stored order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.pairs.iter().map(|(n, v)| (n.as_slice(), v))
    }

    /// The first value named `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Value> {
        let name = name.as_ref();
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Sets `name`, in place if there is one, else at the end (`nvlist_add_*` on a list of unique names).
    pub fn set(&mut self, name: impl Into<Vec<u8>>, value: Value) {
        let name = name.into();
        match self.pairs.iter_mut().find(|(n, _)| *n == name) {
            Some((_, v)) => *v = value,
            None => self.pairs.push((name, value)),
        }
    }

    /// Removes every pair named `name`; whether there was one (`nvlist_remove_all`).
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let before = self.pairs.len();
        self.pairs.retain(|(n, _)| n != name);
        self.pairs.len() != before
    }

    /// Whether there is a pair of this name, of whichever type.
    pub fn has(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// The `uint64` of this name; `None` if absent or of another type (`nvlist_lookup_uint64`).
    pub fn u64(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        match self.get(name)? {
            Value::Uint64(v) => Some(*v),
            _ => None,
        }
    }

    /// The `uint64` array of this name.
    pub fn u64s(&self, name: impl AsRef<[u8]>) -> Option<&[u64]> {
        match self.get(name)? {
            Value::Uint64Array(v) => Some(v),
            _ => None,
        }
    }

    /// The string of this name, as bytes.
    pub fn string(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name)? {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    /// The string of this name when it is UTF-8.
    pub fn str(&self, name: impl AsRef<[u8]>) -> Option<&str> {
        std::str::from_utf8(self.string(name)?).ok()
    }

    /// The list of this name.
    pub fn list(&self, name: impl AsRef<[u8]>) -> Option<&Nvlist> {
        match self.get(name)? {
            Value::List(v) => Some(v),
            _ => None,
        }
    }

    /// The lists of this name.
    pub fn lists(&self, name: impl AsRef<[u8]>) -> Option<&[Nvlist]> {
        match self.get(name)? {
            Value::ListArray(v) => Some(v),
            _ => None,
        }
    }

    /// The bytes of this name: a byte array or a `uint8` array.
    pub fn bytes(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name)? {
            Value::ByteArray(v) | Value::Uint8Array(v) => Some(v),
            _ => None,
        }
    }
}
