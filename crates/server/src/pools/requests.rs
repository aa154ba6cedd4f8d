//! Requests as the pool's history keeps them.

use api::DatasetChange;
use ondisk::Nvlist;
use ondisk::nvlist::Value;

/// The record of a change of snapshots, with OpenZFS's name for the request
/// (`zfs_ioctl_register`). `None` for other changes, of which the history has the operations alone.
pub(crate) fn record(change: &DatasetChange) -> Option<(&'static str, Nvlist)> {
    let each = |names: &[String], value: Value| -> Nvlist {
        names.iter().map(|name| (name.clone().into_bytes(), value.clone())).collect()
    };
    let text = |text: &str| Value::String(text.as_bytes().to_vec());
    let mut input = Nvlist::new();
    let name = match change {
        DatasetChange::Snapshot { names, props } => {
            input.set("snaps", Value::List(each(names, Value::Boolean)));
            if !props.is_empty() {
                let props = props.iter().map(|(name, value)| (name.clone().into_bytes(), text(value)));
                input.set("props", Value::List(props.collect()));
            }
            "snapshot"
        }
        DatasetChange::Destroy { names, defer, .. } => {
            let snaps: Vec<String> = names.iter().filter(|name| name.contains('@')).cloned().collect();
            if snaps.is_empty() {
                return None;
            }
            input.set("snaps", Value::List(each(&snaps, Value::Boolean)));
            if *defer {
                input.set("defer", Value::Boolean);
            }
            "destroy_snaps"
        }
        DatasetChange::Hold { snapshots, tag } => {
            input.set("holds", Value::List(each(snapshots, text(tag))));
            "hold"
        }
        DatasetChange::Release { snapshots, tag } => {
            let mut tags = Nvlist::new();
            tags.set(tag.as_str(), Value::Boolean);
            input = each(snapshots, Value::List(tags));
            "release"
        }
        _ => return None,
    };
    Some((name, input))
}

#[cfg(test)]
mod tests;
