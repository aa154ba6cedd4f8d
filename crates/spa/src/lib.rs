//! The whole pool alive: import, traversal, export.

pub mod traverse;
