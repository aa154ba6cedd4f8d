//! Properties of the pool that its parts obey.

use pool::Mos;
use zio::FailMode;

use crate::pool_core::PoolCore;

impl PoolCore {
    /// Whether a property of the pool is on.
    pub(crate) fn is_on(&self, prop: &str) -> bool {
        let props = self.mos.pool_props().unwrap_or_default();
        props.get(prop).and_then(|value| value.first()).is_some_and(|on| on != 0)
    }

    /// The pool property `multihost` (`spa_multihost`).
    pub(crate) fn multihost(&self) -> bool {
        let props = self.sync_mos.dir(ondisk::mos::PROPS).ok().flatten();
        let value = props.and_then(|props| self.sync_mos.u64(props, "multihost").ok().flatten());
        value.unwrap_or(0) != 0
    }

    /// The pool property `failmode`. If it can't be read, the default applies, which is the safe
    /// one.
    pub(crate) fn failmode(mos: &Mos) -> FailMode {
        let props = mos.dir(ondisk::mos::PROPS).ok().flatten();
        let value = props.and_then(|props| mos.u64(props, "failmode").ok().flatten());
        FailMode::from_disk(value.unwrap_or(0))
    }
}
