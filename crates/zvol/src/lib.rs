//! The block volume on an object set.
