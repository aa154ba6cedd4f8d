//! The common fields of pools and vdevs in JSON output (`fill_pool_info`, `fill_vdev_info`).

use api::{Pool, StatusReason, Vdev, VdevAux, VdevState};

use crate::json::Object;

/// The text of a vdev's state (`zpool_state_to_name`).
pub fn state_name(state: VdevState, aux: VdevAux) -> &'static str {
    match state {
        VdevState::Closed | VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::CantOpen => match aux {
            VdevAux::CorruptData | VdevAux::BadLog => "FAULTED",
            VdevAux::SplitPool => "SPLIT",
            _ => "UNAVAIL",
        },
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Healthy => "ONLINE",
        VdevState::Unknown => "UNKNOWN",
    }
}

/// The text of a pool's state (`zpool_get_state_str`).
pub fn pool_state_name(pool: &Pool) -> &'static str {
    use StatusReason as S;
    match pool.status {
        S::IoFailureWait | S::IoFailureContinue | S::IoFailureMmp | S::Broken => "SUSPENDED",
        _ => state_name(pool.root.stat.state, pool.root.stat.aux),
    }
}

/// The name of a vdev's state in JSON (`vdev_state_t`).
pub fn state_word(state: VdevState) -> &'static str {
    match state {
        VdevState::Unknown => "UNKNOWN",
        VdevState::Closed => "CLOSED",
        VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::CantOpen => "CANT_OPEN",
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Healthy => "ONLINE",
    }
}

/// The name of a vdev's aux state in JSON (`vdev_aux_t`).
pub fn aux_word(aux: VdevAux) -> &'static str {
    match aux {
        VdevAux::None => "NONE",
        VdevAux::OpenFailed => "OPEN_FAILED",
        VdevAux::CorruptData => "CORRUPT_DATA",
        VdevAux::NoReplicas => "NO_REPLICAS",
        VdevAux::BadGuidSum => "BAD_GUID_SUM",
        VdevAux::TooSmall => "TOO_SMALL",
        VdevAux::BadLabel => "BAD_LABEL",
        VdevAux::VersionNewer => "VERSION_NEWER",
        VdevAux::VersionOlder => "VERSION_OLDER",
        VdevAux::UnsupFeat => "UNSUP_FEAT",
        VdevAux::Spared => "SPARED",
        VdevAux::ErrExceeded => "ERR_EXCEEDED",
        VdevAux::IoFailure => "IO_FAILURE",
        VdevAux::BadLog => "BAD_LOG",
        VdevAux::External => "EXTERNAL",
        VdevAux::SplitPool => "SPLIT_POOL",
        VdevAux::BadAshift => "BAD_ASHIFT",
        VdevAux::ExternalPersist => "EXTERNAL_PERSIST",
        VdevAux::Active => "ACTIVE",
        VdevAux::ChildrenOffline => "CHILDREN_OFFLINE",
        VdevAux::AshiftTooBig => "ASHIFT_TOO_BIG",
    }
}

/// The role of a vdev in its pool, from which its class follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// A vdev of the tree, below this one.
    Below(&'a Vdev),
    /// The root vdev.
    Root,
    /// A cache device.
    Cache,
    /// A hot spare.
    Spare,
}

/// Writes the common fields of a pool (`fill_pool_info`).
pub fn pool_info(o: &mut Object, pool: &Pool, with_type: bool, as_int: bool) {
    o.text("name", &pool.name);
    if with_type {
        o.text("type", "POOL");
    }
    o.text("state", pool_state_name(pool));
    if pool.guid != 0 {
        o.int("pool_guid", pool.guid, as_int);
    }
    if pool.txg != 0 {
        o.int("txg", pool.txg, as_int);
    }
    o.int("spa_version", 5000, as_int);
    o.int("zpl_version", 5, as_int);
}

/// Writes the common fields of a vdev (`fill_vdev_info`).
pub fn vdev_info(o: &mut Object, name: &str, v: &Vdev, role: Role<'_>, with_type: bool, as_int: bool) {
    o.text("name", name);
    if with_type {
        o.text("type", "VDEV");
    }
    o.text("vdev_type", &v.kind);
    if v.guid != 0 {
        o.int("guid", v.guid, as_int);
    }
    for (key, value) in [("path", &v.path), ("phys_path", &v.phys_path), ("devid", &v.devid)] {
        if let Some(value) = value {
            o.text(key, value);
        }
    }
    let class = match role {
        _ if v.is_hole => "hole",
        Role::Cache => "l2cache",
        Role::Spare => "spare",
        _ if v.is_spare => "spare",
        _ if v.is_log => "log",
        Role::Below(parent) => v.alloc_bias.as_deref().or(parent.alloc_bias.as_deref()).unwrap_or("normal"),
        Role::Root => v.alloc_bias.as_deref().unwrap_or("normal"),
    };
    o.text("class", class);
    o.text("state", state_word(v.stat.state));
}
