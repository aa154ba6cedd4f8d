//! The reasons for which a decoder refuses bytes.

/// The bytes are not what the format says they must be.
///
/// This type says what is wrong with the bytes. Callers add where the bytes came from (vdev,
/// object, offset).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The structure needs more bytes than there are.
    #[error("{what}: needs {need} bytes, has {have}")]
    Truncated {
        /// The structure being decoded.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// A magic number is neither the expected number nor its byte-swapped form.
    #[error("{what}: unknown magic {found:#x}")]
    Magic {
        /// The structure being decoded.
        what: &'static str,
        /// The number found.
        found: u64,
    },
    /// A field has a value that the format does not allow.
    #[error("{what}: {field} is {value}, which is out of range")]
    Range {
        /// The structure being decoded.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The structure contradicts itself.
    #[error("{what}: {why}")]
    Shape {
        /// The structure being decoded.
        what: &'static str,
        /// The contradiction.
        why: &'static str,
    },
}
