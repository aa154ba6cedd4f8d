//! Redacted streams, as they are received.
//!
//! # Theory
//! As with OpenZFS, a redacted block becomes a hole. The dataset says for which snapshots it is
//! redacted, so that only streams which fit are received on top of it ([`dsl::ops::receive`]), and
//! that it is not mounted by mistake.
//!
//! # See
//! OpenZFS `receive_redact`.

use dsl::ops::receive::Redacted;
use ondisk::nvlist::Nvlist;
use ondisk::replay::{Begin, Free, Record, features};

use super::ReceiveError;

/// Most snapshots for which a stream is redacted: as many as one entry of a ZAP has space for.
const SNAPS_MAX: usize = 1024;

/// For which snapshots a stream and its origin are redacted, as the list behind its BEGIN says.
///
/// # Errors
/// * [`ReceiveError::Record`]: it is redacted and does not say so there, or for too many snapshots.
pub(super) fn of_stream(begin: &Begin, list: &Nvlist) -> Result<Redacted, ReceiveError> {
    let wrong = |why| ReceiveError::Record { record: 0, at: 0, why };
    let snaps = |name: &str| match list.u64s(name) {
        None => Ok(None),
        Some(snaps) if (1..=SNAPS_MAX).contains(&snaps.len()) => Ok(Some(snaps.to_vec())),
        Some(_) => Err(wrong("it is redacted for no snapshot, or for too many")),
    };
    let (to, from) = (snaps("redact_snaps")?, snaps("redact_from_snaps")?);
    // The stream of a redacted dataset names the snapshots too, and is not redacted itself.
    let to = match begin.features() & features::REDACTED {
        0 => None,
        _ => Some(to.ok_or_else(|| wrong("it is redacted, but does not name its redaction snapshots"))?),
    };
    Ok(Redacted { to, from })
}

/// A record as it is written: redacted blocks become holes.
pub(super) fn as_written(record: Record) -> Record {
    match record {
        Record::Redact(r) => {
            Record::Free(Free { object: r.object, offset: r.offset, length: r.length, to_guid: r.to_guid })
        }
        record => record,
    }
}
