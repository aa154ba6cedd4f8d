//! What destroying snapshots would free.

use dsl::Dsl;

use super::dataset as trouble;
use api::{Error, Reason};

/// Bytes that only a run of neighbouring snapshots of one dataset refers to: the first and the last of them.
///
/// # Errors
/// [`Reason::NoSuchDataset`] if one of them is not there, or the first is not before the last; as reading fails.
pub fn reclaimed(dsl: &Dsl, first: &str, last: &str) -> Result<u64, Error> {
    let oldest = dsl.dataset(first).map_err(|e| trouble(first, &e))?;
    let newest = dsl.dataset(last).map_err(|e| trouble(last, &e))?;
    if !oldest.is_snapshot() || !newest.is_snapshot() {
        return Err(Error::new(first, Reason::BadType));
    }
    let bytes = oldest.would_free(&newest).map_err(|e| trouble(first, &e))?;
    bytes.ok_or_else(|| Error::new(last, Reason::NoSuchDataset))
}
