//! Volumes as exports over NBD, and as block devices of this machine.

pub(crate) mod attach;
pub(crate) mod exports;
