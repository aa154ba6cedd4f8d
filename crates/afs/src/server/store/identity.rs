//! What tells whether a volume is still what it was.

use ondisk::blkptr::Body;

use super::{Found, Partition};
use crate::server::Result;

/// What a volume has in it: the guid of its dataset, and the checksum of its root block.
pub type Identity = [u64; 5];

impl Partition {
    /// The guid of its file system.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): it can't be read.
    pub fn guid(&self) -> Result<u64> {
        Ok(self.pool.dataset(&self.dataset)?.dsl().phys().guid)
    }

    /// The nonce of the end of this use.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The nonce of the end of the last use. `None`: that was a crash, or there was none.
    pub fn nonce_before(&self) -> Option<u64> {
        self.before.nonce
    }

    /// Whether a server has used the partition before.
    pub fn was_served(&self) -> bool {
        self.before.was_served
    }

    /// What a volume has in it on disk.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): there is no such volume.
    pub fn identity(&self, found: Found) -> Result<Identity> {
        let name = match found {
            Found::Dataset(id) => self.name(id),
            Found::Snapshot { head, id } => self.snapshot_name(head, id),
        };
        let dataset = self.pool.dataset(&name)?;
        let phys = dataset.dsl().phys();
        let [a, b, c, d] = match &phys.bp.body {
            Body::Stored(stored) => stored.sum,
            Body::Hole | Body::Embedded(_) | Body::Redacted => [0; 4],
        };
        Ok([phys.guid, a, b, c, d])
    }
}
