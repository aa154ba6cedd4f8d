//! The values of pool and vdev properties, and the features of new pools.
//!
//! # Theory
//! A user gives names and texts. Here they become values that the engine stores, or an error in
//! OpenZFS's words. The engine has the properties of datasets ([`dsl::prop`]). Those of pools are
//! few, and no lower layer needs their texts.

pub mod compat;
pub mod pool;
