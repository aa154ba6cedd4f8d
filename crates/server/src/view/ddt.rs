//! The totals of the deduplication tables.

use ondisk::{BlkId, Level};
use pool::ddt::{Ddt, DdtStat};
use spa::Spa;

use crate::view::engine;
use api::{DdtSummary, DdtTotals, Error};

/// The totals of a pool's tables (`ddt_get_dedup_object_stats`).
///
/// # Errors
/// * [`pool::Error`]: the dnode of a table can't be read.
pub fn summary(spa: &Spa, ddts: &[Ddt]) -> pool::Result<DdtSummary> {
    let mut out = DdtSummary::default();
    let mut all = pool::ddt::DdtHistogram::default();
    for ddt in ddts {
        all.add(&ddt.histogram());
        for class in &ddt.classes {
            out.count = out.count.saturating_add(class.entries);
            out.dspace = out.dspace.saturating_add(class.dspace);
            // In memory: each block of the object, whole (`doi_fill_count * doi_data_block_size`).
            let dn = spa.mos().objset().dnode(class.object)?;
            let top = dn.nlevels().saturating_sub(1);
            let mut fill = 0u64;
            for i in 0..3 {
                match dn.bp(Level(top), BlkId(i)) {
                    Ok(bp) => fill = fill.saturating_add(bp.stored().map_or(0, |s| s.fill)),
                    Err(_) => break,
                }
            }
            out.mspace = out.mspace.saturating_add(fill.saturating_mul(dn.block_size()));
        }
        for log in &ddt.logs {
            out.count = out.count.saturating_add(log.entries.len() as u64);
        }
    }
    out.total = totals(&all.total());
    let buckets = all.0.iter().zip(0u32..).filter(|(s, _)| s.blocks != 0);
    out.histogram = buckets.map(|(s, power)| (power, totals(s))).collect();
    Ok(out)
}

/// The cached bytes of the tables (`dmu_object_cached_size`).
///
/// # Errors
/// * [`pool::Error`]: a dnode or indirect block of a table can't be read.
pub fn cached(spa: &Spa, ddts: &[Ddt]) -> pool::Result<u64> {
    let mut bytes = 0u64;
    for class in ddts.iter().flat_map(|ddt| &ddt.classes) {
        let dnode = spa.mos().objset().dnode(class.object)?;
        let mut at = BlkId(0);
        while let Some(found) = dnode.next_data_block(at)? {
            let bp = dnode.bp(Level(0), found)?;
            if spa.cache().holds(&bp, spa.mos().objset().id()) {
                bytes = bytes.saturating_add(bp.lsize.0);
            }
            at = BlkId(found.0 + 1);
        }
    }
    Ok(bytes)
}

/// Reads the tables into the cache, as far as it holds them (`ddt_prefetch_all`). Returns their
/// bytes.
///
/// # Errors
/// * [`Reason::Io`](api::Reason::Io), [`Reason::Corrupt`](api::Reason::Corrupt): a table can't be
///   read.
pub fn prefetch(spa: &Spa) -> Result<u64, Error> {
    let name = spa.name();
    let ddts = spa.top_vdevs().and_then(|tops| spa.ddts(&tops)).map_err(|e| engine(name, &e))?;
    let mut bytes = 0u64;
    for class in ddts.iter().flat_map(|ddt| &ddt.classes) {
        let dnode = spa.mos().objset().dnode(class.object).map_err(|e| engine(name, &e))?;
        let mut at = BlkId(0);
        while let Some(found) = dnode.next_data_block(at).map_err(|e| engine(name, &e))? {
            let block = dnode.block(found).map_err(|e| engine(name, &e))?;
            bytes = bytes.saturating_add(block.map_or(0, |b| b.len() as u64));
            at = BlkId(found.0 + 1);
        }
    }
    Ok(bytes)
}

fn totals(s: &DdtStat) -> DdtTotals {
    DdtTotals {
        blocks: s.blocks,
        lsize: s.lsize,
        psize: s.psize,
        dsize: s.dsize,
        ref_blocks: s.ref_blocks,
        ref_lsize: s.ref_lsize,
        ref_psize: s.ref_psize,
        ref_dsize: s.ref_dsize,
    }
}
