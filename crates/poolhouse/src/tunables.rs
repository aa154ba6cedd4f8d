//! All tunables of the engine.
//!
//! # Theory
//! Each crate declares its tunables beside the code that uses them, and lists them. This module
//! joins the lists. A program shows and sets tunables by their names. These are the names of
//! OpenZFS's module parameters, where OpenZFS has them.

use observe::{OutOfRange, Tunable, Unit};

/// How many events of pools a program keeps that reports them.
pub static ZEVENT_LEN_MAX: Tunable = Tunable::new(
    "zfs_zevent_len_max",
    512,
    1..=1 << 20,
    Unit::Count,
    "number of events that the daemon keeps",
);

/// All tunables, in no order.
pub fn all() -> impl Iterator<Item = &'static Tunable> {
    let lists = [
        vdev::TUNABLES,
        arc::tunables::ALL,
        dmu::zfetch::TUNABLES,
        dsl::TUNABLES,
        stream::send::TUNABLES,
        stream::receive::TUNABLES,
        zil::tunables::ALL,
        spa::tunables::ALL,
    ];
    lists.into_iter().flatten().copied().chain([&ZEVENT_LEN_MAX])
}

/// The tunable of this name.
pub fn find(name: &str) -> Option<&'static Tunable> {
    all().find(|tunable| tunable.parameter().name == name)
}

/// Why a tunable was not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunableError {
    /// No tunable has this name.
    #[error("there is no such tunable")]
    Unknown,
    /// The value is outside the tunable's range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// Sets a tunable, for all pools of this process.
///
/// # Errors
/// * [`TunableError::Unknown`]: no tunable has this name.
/// * [`TunableError::OutOfRange`]: the value is outside the tunable's range. The tunable keeps its
///   value.
pub fn set(name: &str, value: u64) -> Result<(), TunableError> {
    Ok(find(name).ok_or(TunableError::Unknown)?.assign(value)?)
}
