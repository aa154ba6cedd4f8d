//! The whole pool alive: import, traversal, export.
