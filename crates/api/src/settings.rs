//! What properties of pools may be set to, and which features a pool is to have.
//!
//! # Theory
//! A user gives names and texts. Here they become values that the engine stores, or a sentence in
//! OpenZFS's words that says what is wrong with them. Properties of datasets are the engine's own
//! (`dsl::prop`), and those of vdevs the daemon's. Those of pools are few, and nobody below needs
//! to know their texts.

pub mod compat;
pub mod pool;
