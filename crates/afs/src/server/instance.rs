//! Numbers of volumes in service.

use crate::types::Vnode;

/// A volume in service. One that is served anew is another one: a late call on the former, whose
/// pool was abandoned, must note nothing that is then taken for the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance(pub(super) u64);

impl Instance {
    /// A number that tells the parts of tables apart.
    pub(super) fn mix(self, vnode: Vnode) -> usize {
        ((self.0 as u32).wrapping_mul(0x9e37_79b9) ^ (vnode.0 >> 1)) as usize
    }
}
