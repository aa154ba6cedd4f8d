//! Which file systems move with another's `mountpoint` (`changelist_gather`).

use super::{Imported, within};
use crate::faults::of_dsl;
use api::{DatasetChange, Error};
use dsl::prop::{Prop, Source};

/// What a change of `mountpoint` or `canmount` moves beside its own dataset: the file systems below that inherit their mountpoint, mounted or not. Of other
/// changes nothing.
///
/// # Errors
/// As reading properties fails: what is about to move has to be known whole.
pub(super) fn of(imported: &Imported, change: &DatasetChange) -> Result<Vec<String>, Error> {
    let root = match change {
        DatasetChange::Set { name, props, keep_mounted: false } if props.iter().any(|(p, _)| is_place(p)) => {
            name
        }
        DatasetChange::Inherit { name, prop, .. } if is_place(prop) => name,
        _ => return Ok(Vec::new()),
    };
    let about = |error: &dsl::Error| Error::new(root, of_dsl(error));
    let dsl = imported.pool.dsl();
    let dir = dsl.dir(root).map_err(|e| about(&e))?;
    let listing = dsl.list_sorted(Some(dir), &dsl::ListOptions::default()).map_err(|e| about(&e))?;
    let mut heirs: Vec<String> = Vec::new();
    // Each follows what is above it.
    for dataset in &listing.datasets {
        let name = dataset.name();
        let file_system =
            !dataset.is_snapshot() && matches!(dataset.head_kind(), Ok(Some(dsl::Kind::Filesystem)));
        if name == *root || !file_system {
            continue;
        }
        let place = dataset.property(Prop::Mountpoint).map_err(|e| about(&e))?;
        let moves = match place.map(|p| p.source) {
            Some(Source::Inherited(from)) => !within(root, &from) || from == *root,
            Some(Source::Default | Source::None) => true,
            Some(Source::Local | Source::Received | Source::Temporary) | None => false,
        };
        if moves {
            heirs.push(name);
        }
    }
    Ok(heirs)
}

fn is_place(prop: &str) -> bool {
    ["mountpoint", "canmount"].contains(&prop)
}
