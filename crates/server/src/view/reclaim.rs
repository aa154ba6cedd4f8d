//! The space that destroying snapshots would free.

use dsl::Dsl;

use crate::view::dataset as trouble;
use api::{Error, Reason};

/// The bytes that only a range of neighbouring snapshots of one dataset refers to
/// (`dsl_dataset_space_wouldfree`).
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: a snapshot does not exist, or `first` is
///   not an earlier snapshot of the same dataset.
/// * [`Reason::BadType`]: one of them is not a snapshot.
/// * [`Reason::Io`], [`Reason::Corrupt`]: a deadlist can't be read.
pub fn reclaimed(dsl: &Dsl, first: &str, last: &str) -> Result<u64, Error> {
    let oldest = dsl.dataset(first).map_err(|e| trouble(first, &e))?;
    let newest = dsl.dataset(last).map_err(|e| trouble(last, &e))?;
    if !oldest.is_snapshot() || !newest.is_snapshot() {
        return Err(Error::new(first, Reason::BadType));
    }
    let bytes = oldest.would_free(&newest).map_err(|e| trouble(first, &e))?;
    bytes.ok_or_else(|| Error::new(last, Reason::NoSuchDataset))
}
