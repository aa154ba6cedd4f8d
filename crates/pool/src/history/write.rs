//! Writing the history.

use crate::{Error, Mos, Result};
use dmu::{Dnode, NewObject, Tx};
use ondisk::history::HistoryPhys;
use ondisk::{DmuType, Nvlist, ObjNum, mos};

/// Least and most bytes of the ring (`spa_history_create_obj`).
const RING: std::ops::RangeInclusive<u64> = 128 << 10..=1 << 30;

/// log2 of the bytes of its blocks and of their indirect blocks. Each txg with an event writes the
/// last of both. OpenZFS has 128 KiB, and takes any size.
const BLOCK_SHIFT: u8 = 14;

impl Mos {
    /// Creates the history of a new pool, whose normal class has `space` deflated bytes.
    ///
    /// The ring takes a thousandth of that, within limits.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_history(&self, tx: &Tx, space: u64) -> Result<ObjNum> {
        let phys_max_off = (space / 1000).clamp(*RING.start(), *RING.end());
        let phys = HistoryPhys { phys_max_off, ..HistoryPhys::default() };
        let spec = NewObject {
            block_size: 1 << BLOCK_SHIFT,
            indblkshift: BLOCK_SHIFT,
            ..NewObject::new(DmuType::SPA_HISTORY).with_bonus(DmuType::SPA_HISTORY_OFFSETS, phys.encode())
        };
        let object = self.objset().create_object(tx, &spec)?.object();
        self.link(tx, mos::HISTORY, object)?;
        Ok(object)
    }

    /// Adds a record to the history (`spa_history_log_sync`).
    ///
    /// The oldest records are dropped to make space; all of them, if the oldest is malformed. The
    /// first record of a command is that of the pool's creation, which is never dropped. A record
    /// that is larger than the ring counts as lost.
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing).
    /// * [`Error::Missing`]: the pool has no history.
    pub fn log_history(&self, tx: &Tx, record: &Nvlist) -> Result<()> {
        let object = self.dir(mos::HISTORY)?.ok_or(Error::Missing { name: mos::HISTORY })?;
        let bad = Error::corrupt(object);
        let dn = self.objset().dnode(object)?;
        let phys = HistoryPhys::decode(dn.bonus()).map_err(&bad)?;
        let packed = record.encode_xdr();
        let mut ring = Ring { dn, phys };
        let raw = [&(packed.len() as u64).to_le_bytes()[..], &packed].concat();
        if ring.make_room(raw.len() as u64)? {
            ring.append(tx, &raw)?;
        }
        if ring.phys.pool_create_len == 0 && record.has("history command") {
            ring.phys.pool_create_len = ring.phys.eof;
            ring.phys.bof = ring.phys.eof;
        }
        ring.dn.set_bonus(tx, DmuType::SPA_HISTORY_OFFSETS, &ring.phys.encode())?;
        Ok(())
    }
}

/// The ring while it is written.
struct Ring {
    dn: Dnode,
    phys: HistoryPhys,
}

impl Ring {
    /// Drops the oldest records until there is space for `len` bytes and one more. False if the
    /// ring is too small.
    fn make_room(&mut self, len: u64) -> Result<bool> {
        let size = self.phys.phys_max_off - self.phys.pool_create_len;
        if len >= size {
            self.phys.records_lost += 1;
            return Ok(false);
        }
        while size.saturating_sub(self.phys.eof - self.phys.bof) <= len {
            let mut raw = [0; 8];
            super::read(&self.dn, &self.phys, self.phys.bof, &mut raw)?;
            let oldest = u64::from_le_bytes(raw);
            let all = self.phys.eof - self.phys.bof;
            self.phys.bof += oldest.saturating_add(8).min(all);
            self.phys.records_lost += 1;
        }
        Ok(true)
    }

    fn append(&mut self, tx: &Tx, mut raw: &[u8]) -> Result<()> {
        while !raw.is_empty() {
            let at = self.phys.to_phys(self.phys.eof);
            let n = raw.len().min((self.phys.phys_max_off - at) as usize);
            self.dn.write_at(tx, at, &raw[..n])?;
            self.phys.eof += n as u64;
            raw = &raw[n..];
        }
        Ok(())
    }
}
