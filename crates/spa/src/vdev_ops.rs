//! Operations on a pool's devices: `zpool add`, `attach`, `replace`, `detach`, `remove`, `split`,
//! `online`, `offline` and `reopen`.
//!
//! # Theory
//! An operation is checked while its caller waits, and then queued for a transaction group
//! ([`pool_tasks`]). The txg changes the config and the vdev tree together, so that labels and
//! uberblocks of one state fit together.
//!
//! # See
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_add`, `spa_vdev_attach`, `spa_vdev_detach`),
//! `vdev_removal.c`, `vdev.c` (`vdev_offline`, `vdev_online`).

pub(crate) mod attach;
pub(crate) mod aux_vdevs;
pub(crate) mod expand;
pub(crate) mod log_removal;
pub(crate) mod online_offline;
pub(crate) mod pool_tasks;
pub(crate) mod reopen;
pub(crate) mod replicas;
pub(crate) mod split;
pub(crate) mod vdev_props;
