//! One config from the labels of a pool's members.

use ondisk::config::MAX_CHILDREN;
use ondisk::{Nvlist, PoolConfig, Value};

use crate::discovery::Member;

/// Fields of the pool that are copied from the newest label.
const POOL_FIELDS: [&str; 9] =
    ["version", "name", "comment", "compatibility", "state", "pool_guid", "hostid", "hostname", "errata"];
/// Fields that only the newest label can know.
const NEWEST_FIELDS: [&str; 4] = ["txg", "vdev_children", "hole_array", "features_for_read"];

/// The config from the labels of these members, best first. `None` if no label is of use.
pub(super) fn config(members: &[Member]) -> Option<PoolConfig> {
    let newest = members.iter().max_by_key(|m| (m.config.txg, std::cmp::Reverse(m.order)))?;
    let mut nv = Nvlist::new();
    for field in POOL_FIELDS.into_iter().chain(NEWEST_FIELDS) {
        if let Some(value) = newest.config.nvlist.get(field) {
            nv.set(field, value.clone());
        }
    }
    if let Some(split) = newest.config.nvlist.get("splitcfg") {
        nv.set("splitcfg", split.clone());
    }
    nv.set("vdev_tree", Value::List(root(members, &newest.config)?));
    PoolConfig::from_nvlist(&nv).ok()
}

fn root(members: &[Member], newest: &PoolConfig) -> Option<Nvlist> {
    let trees = || {
        members
            .iter()
            .filter_map(|m| Some((m.config.vdev_tree.as_ref()?.id, m.config.nvlist.list("vdev_tree")?)))
    };
    // Old labels don't count the top-level vdevs; then the highest id found counts.
    let seen = trees().map(|(id, _)| id.saturating_add(1)).max()?;
    let count = newest.vdev_children.unwrap_or(seen).min(MAX_CHILDREN as u64);
    let mut children: Vec<Nvlist> = (0..count)
        .map(|id| placeholder(if newest.hole_array.contains(&id) { "hole" } else { "missing" }, id))
        .collect();
    // Members come best first, so each place gets its newest tree. A tree beyond the count, or in
    // the place of a hole, belongs to a vdev that was removed later.
    for (id, list) in trees() {
        let Some(slot) = usize::try_from(id).ok().and_then(|i| children.get_mut(i)) else { continue };
        if slot.string("type") == Some(b"missing") {
            *slot = list.clone();
        }
    }
    let mut root = Nvlist::new();
    root.set("type", Value::String(b"root".to_vec()));
    root.set("id", Value::Uint64(0));
    root.set("guid", Value::Uint64(newest.pool_guid?.0));
    root.set("children", Value::ListArray(children));
    Some(root)
}

fn placeholder(kind: &str, id: u64) -> Nvlist {
    let mut nv = Nvlist::new();
    nv.set("type", Value::String(kind.into()));
    nv.set("id", Value::Uint64(id));
    nv.set("guid", Value::Uint64(0));
    nv
}
