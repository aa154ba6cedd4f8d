//! Which redacted streams fit which datasets.
//!
//! # Theory
//! A redacted dataset lacks blocks that another stream may take for granted. So these are received
//! on top of a redacted snapshot, and no others:
//!
//! * full streams;
//! * streams whose origin was redacted for some of the snapshots for which the dataset is;
//! * redacted streams for some of these snapshots;
//! * streams of these snapshots: they replace all that is redacted.
//!
//! # See
//! OpenZFS `redact_check`, `compatible_redact_snaps`.

use crate::Result;
use crate::error::Refusal;
use crate::mos_objects::words;
use crate::ops::receive::Received;
use crate::sync::Syncing;
use ondisk::feature::Feature;
use ondisk::mos;
use ondisk::zap::ZAP_MAXVALUELEN;

const UNFIT: &str = "it does not fit a redacted snapshot: send it from a redaction bookmark, redacted for the \
                     same snapshots, or send one of the redaction snapshots";

/// For which snapshots a stream is redacted, by their guids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redacted {
    /// The stream itself; `None` if it is not redacted (`redact_snaps`).
    pub to: Option<Vec<u64>>,
    /// What it builds on (`redact_from_snaps`).
    pub from: Option<Vec<u64>>,
}

impl Received {
    /// Refuses a stream that is redacted for more snapshots than an entry of a ZAP holds.
    pub(crate) fn check_redaction_lists(&self) -> Result<()> {
        let lists = [&self.redacted.to, &self.redacted.from];
        if lists.into_iter().flatten().any(|snaps| snaps.len() * 8 > ZAP_MAXVALUELEN) {
            return Syncing::refuse(&self.name, Refusal::TooManySnapshots);
        }
        Ok(())
    }

    /// Refuses a stream that does not fit the redacted snapshot on which it builds.
    pub(crate) fn check_redacted(&self, s: &Syncing<'_>, snap: u64) -> Result<()> {
        let Some(redacted) = redacted_for(s, snap)?.filter(|_| self.begin.from_guid != 0) else {
            return Ok(());
        };
        let some = |snaps: &Vec<u64>| snaps.len() <= redacted.len() && within(snaps, &redacted);
        let fits = match (&self.redacted.from, &self.redacted.to) {
            (Some(from), _) => some(from),
            (None, Some(to)) => some(to),
            (None, None) => redacted.contains(&self.begin.to_guid),
        };
        if fits { Ok(()) } else { Syncing::refuse(&self.name, Refusal::Stream(UNFIT)) }
    }

    /// Refuses the rest of a redacted stream for other snapshots than those of its begin.
    pub(crate) fn check_still_redacted(&self, s: &Syncing<'_>, ds: u64) -> Result<()> {
        let Some(to) = &self.redacted.to else { return Ok(()) };
        let fits =
            redacted_for(s, ds)?.is_some_and(|redacted| redacted.len() == to.len() && within(to, &redacted));
        let why = "it is redacted for other snapshots than what was received here";
        if fits { Ok(()) } else { Syncing::refuse(&self.name, Refusal::Stream(why)) }
    }

    /// Notes for which snapshots a new dataset is redacted (`dsl_dataset_activate_redaction`).
    pub(crate) fn set_redacted(&self, s: &mut Syncing<'_>, ds: u64) -> Result<()> {
        // A clone of a redacted snapshot says so.
        s.deactivate(ds, "redacted_datasets")?;
        let Some(to) = &self.redacted.to else { return Ok(()) };
        let feature = Feature::by_name("redacted_datasets").expect("the name is in the table");
        s.activate(ds, feature, &words(to))
    }
}

/// The snapshots for which a dataset is redacted.
fn redacted_for(s: &Syncing<'_>, ds: u64) -> Result<Option<Vec<u64>>> {
    Ok(s.field(ds, mos::DS_REDACTED_SNAPS)?.map(|guids| guids.iter().collect()))
}

/// Whether all of these are among those.
fn within(these: &[u64], those: &[u64]) -> bool {
    these.iter().all(|guid| those.contains(guid))
}
