//! The file systems that follow another's `mountpoint` (`changelist_gather`).

use crate::pools::imported::Imported;
use crate::replies::of_dsl;
use api::{DatasetChange, Error};
use dsl::prop::{Prop, Source};

/// The file systems below a dataset that inherit the mountpoint which a change sets, mounted or
/// not.
///
/// Empty for other changes than those of `mountpoint` and `canmount`.
///
/// # Errors
/// What will move must be known completely:
///
/// * [`Reason::NoSuchDataset`](api::Reason::NoSuchDataset): the dataset does not exist.
/// * [`Reason::Io`](api::Reason::Io), [`Reason::Corrupt`](api::Reason::Corrupt): a property can't
///   be read.
pub(crate) fn of(imported: &Imported, change: &DatasetChange) -> Result<Vec<String>, Error> {
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
    // Each follows its parents in this order.
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

/// Whether `name` is the dataset `root`, or below it.
pub(crate) fn within(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}
