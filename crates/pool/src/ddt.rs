//! Deduplication tables and their statistics.

use crate::{Error, Mos, Result};
use dmu::zap::{Key, Zap};
use ondisk::ddt::{
    DDL_FLAG_FLUSHING, DDT_CLASS_NAMES, DDT_FLAG_FLAT, DDT_FLAG_LOG, DDT_FLAT_PHYS_SIZE, DDT_TRAD_PHYS_SIZE,
    DdtKey, DdtLogHeader, DdtPacking, DdtPhys, log_entries,
};
use ondisk::mos::{DDT_STATS, DIRECTORY_OBJECT};
use ondisk::{ByteOrder, ChecksumKind, Corrupt, Dva, ObjNum, bytes};
use std::collections::BTreeMap;

mod prune;
mod table;

pub use prune::Unshared;
pub use table::DedupTables;

const WHAT: &str = "DDT";
/// The checksums that may have tables, in the order of their numbers.
const CHECKSUMS: [ChecksumKind; 5] = [
    ChecksumKind::Sha256,
    ChecksumKind::Sha512,
    ChecksumKind::Skein,
    ChecksumKind::Edonr,
    ChecksumKind::Blake3,
];

/// Sums over entries (`ddt_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DdtStat {
    /// Blocks stored.
    pub blocks: u64,
    /// Their logical bytes.
    pub lsize: u64,
    /// Their stored bytes.
    pub psize: u64,
    /// Their allocated, deflated bytes.
    pub dsize: u64,
    /// References to them.
    pub ref_blocks: u64,
    /// Logical bytes with all references.
    pub ref_lsize: u64,
    /// Stored bytes with all references.
    pub ref_psize: u64,
    /// Allocated, deflated bytes with all references.
    pub ref_dsize: u64,
}

impl DdtStat {
    fn from_words(w: &[u64]) -> Self {
        Self {
            blocks: w[0],
            lsize: w[1],
            psize: w[2],
            dsize: w[3],
            ref_blocks: w[4],
            ref_lsize: w[5],
            ref_psize: w[6],
            ref_dsize: w[7],
        }
    }

    /// Adds another sum (`ddt_stat_add`).
    pub fn add(&mut self, o: &Self) {
        self.blocks = self.blocks.wrapping_add(o.blocks);
        self.lsize = self.lsize.wrapping_add(o.lsize);
        self.psize = self.psize.wrapping_add(o.psize);
        self.dsize = self.dsize.wrapping_add(o.dsize);
        self.ref_blocks = self.ref_blocks.wrapping_add(o.ref_blocks);
        self.ref_lsize = self.ref_lsize.wrapping_add(o.ref_lsize);
        self.ref_psize = self.ref_psize.wrapping_add(o.ref_psize);
        self.ref_dsize = self.ref_dsize.wrapping_add(o.ref_dsize);
    }

    /// Subtracts a sum that was added before (`ddt_stat_sub`).
    pub(crate) fn subtract(&mut self, o: &Self) {
        self.blocks = self.blocks.saturating_sub(o.blocks);
        self.lsize = self.lsize.saturating_sub(o.lsize);
        self.psize = self.psize.saturating_sub(o.psize);
        self.dsize = self.dsize.saturating_sub(o.dsize);
        self.ref_blocks = self.ref_blocks.saturating_sub(o.ref_blocks);
        self.ref_lsize = self.ref_lsize.saturating_sub(o.ref_lsize);
        self.ref_psize = self.ref_psize.saturating_sub(o.ref_psize);
        self.ref_dsize = self.ref_dsize.saturating_sub(o.ref_dsize);
    }

    pub(crate) fn to_words(self) -> [u64; 8] {
        [
            self.blocks,
            self.lsize,
            self.psize,
            self.dsize,
            self.ref_blocks,
            self.ref_lsize,
            self.ref_psize,
            self.ref_dsize,
        ]
    }

    /// The statistics of an entry (`ddt_stat_generate`).
    ///
    /// # Errors
    /// * [`Corrupt`]: a DVA contradicts the format.
    pub fn of(key: &DdtKey, phys: &DdtPhys, dsize: &dyn Fn(&Dva) -> u64) -> ondisk::Result<Self> {
        let mut out = Self::default();
        let (lsize, psize) = (key.lsize().0, key.psize().0);
        for slot in phys.slots().iter().filter(|s| s.phys_birth.0 != 0) {
            let d = slot.dvas(key)?.iter().flatten().fold(0u64, |n, v| n.saturating_add(dsize(v)));
            let n = slot.refcnt;
            out.add(&Self {
                blocks: 1,
                lsize,
                psize,
                dsize: d,
                ref_blocks: n,
                ref_lsize: lsize.saturating_mul(n),
                ref_psize: psize.saturating_mul(n),
                ref_dsize: d.saturating_mul(n),
            });
        }
        Ok(out)
    }
}

/// Sums by reference count (`ddt_histogram_t`).
///
/// Bucket `i` holds counts of at least `2^i` and less than twice that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtHistogram(pub [DdtStat; 64]);

impl Default for DdtHistogram {
    fn default() -> Self {
        Self([DdtStat::default(); 64])
    }
}

impl DdtHistogram {
    /// Adds another histogram (`ddt_histogram_add`).
    pub fn add(&mut self, o: &Self) {
        for (a, b) in self.0.iter_mut().zip(&o.0) {
            a.add(b);
        }
    }

    /// The sum of all buckets (`ddt_histogram_total`).
    pub fn total(&self) -> DdtStat {
        self.0.iter().fold(DdtStat::default(), |mut t, s| {
            t.add(s);
            t
        })
    }
}

/// One ZAP of a table.
#[derive(Debug, Clone)]
pub struct DdtClass {
    /// Index into [`DDT_CLASS_NAMES`].
    pub class: usize,
    /// The ZAP.
    pub object: ObjNum,
    /// Entries in it.
    pub entries: u64,
    /// Allocated bytes of the object.
    pub dspace: u64,
    /// The statistics that the pool keeps of it.
    pub histogram: DdtHistogram,
}

/// A log of a fast table.
#[derive(Debug, Clone)]
pub struct DdtLog {
    /// Its number, 0 or 1.
    pub number: u32,
    /// The object.
    pub object: ObjNum,
    /// Its header.
    pub header: DdtLogHeader,
    /// The last entry of each key, with the class that it goes to. Class 3 means none yet.
    pub entries: BTreeMap<DdtKey, (u8, DdtPhys)>,
}

impl DdtLog {
    /// True if it is being flushed into the ZAPs.
    pub fn is_flushing(&self) -> bool {
        self.header.flags & DDL_FLAG_FLUSHING != 0
    }
}

/// The table of one checksum (`ddt_t`).
#[derive(Debug, Clone)]
pub struct Ddt {
    /// The checksum.
    pub checksum: ChecksumKind,
    /// 0 for a legacy table, 1 for a fast one.
    pub version: u64,
    /// Its flags, `DDT_FLAG_*`.
    pub flags: u64,
    /// The directory that names its objects.
    pub dir: ObjNum,
    /// Its ZAPs.
    pub classes: Vec<DdtClass>,
    /// Its logs.
    pub logs: Vec<DdtLog>,
    /// Statistics of the entries in its logs.
    pub log_histogram: DdtHistogram,
}

/// An entry of a table's ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtEntry {
    /// The block.
    pub key: DdtKey,
    /// Its copies and references.
    pub phys: DdtPhys,
}

impl Ddt {
    /// True if its values are flat.
    pub fn is_flat(&self) -> bool {
        self.flags & DDT_FLAG_FLAT != 0
    }

    /// True if it has entries in its ZAPs or logs.
    pub fn has_entries(&self) -> bool {
        self.classes.iter().any(|c| c.entries > 0) || self.logs.iter().any(|l| !l.entries.is_empty())
    }

    /// Statistics of all entries, by reference count.
    pub fn histogram(&self) -> DdtHistogram {
        let mut out = self.log_histogram.clone();
        for c in &self.classes {
            out.add(&c.histogram);
        }
        out
    }

    /// Statistics of all entries.
    pub fn total(&self) -> DdtStat {
        self.histogram().total()
    }

    /// The name of the ZAP of a class.
    pub fn class_name(&self, class: usize) -> String {
        format!("DDT-{}-zap-{}", self.checksum.name(), DDT_CLASS_NAMES[class])
    }
}

impl Mos {
    /// All dedup tables with their logs. `dsize` returns the deflated size of a DVA's allocation.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also for an unknown version.
    pub fn ddts(&self, dsize: &dyn Fn(&Dva) -> u64) -> Result<Vec<Ddt>> {
        let Some(stats) = self.dir(DDT_STATS)? else { return Ok(Vec::new()) };
        let stats = self.zap(stats)?;
        let mut out = Vec::new();
        for checksum in CHECKSUMS {
            if let Some(ddt) = self.ddt(checksum, &stats, dsize)? {
                out.push(ddt);
            }
        }
        Ok(out)
    }

    fn ddt(&self, checksum: ChecksumKind, stats: &Zap, dsize: &dyn Fn(&Dva) -> u64) -> Result<Option<Ddt>> {
        let (dir, version, flags) = match self.dir(&format!("DDT-{}", checksum.name()))? {
            None => (ObjNum(DIRECTORY_OBJECT), 0, 0),
            Some(dir) => {
                let version = self.u64(dir, "version")?.unwrap_or(0);
                let flags = self.u64(dir, "flags")?.unwrap_or(0);
                let known = version == 1 && flags & !(DDT_FLAG_FLAT | DDT_FLAG_LOG) == 0;
                if !known {
                    let source = Corrupt::Range { what: WHAT, field: "version", value: version };
                    return Err(Error::Corrupt { object: dir, source });
                }
                (dir, version, flags)
            }
        };
        let mut ddt = Ddt {
            checksum,
            version,
            flags,
            dir,
            classes: Vec::new(),
            logs: Vec::new(),
            log_histogram: DdtHistogram::default(),
        };
        for class in 0..DDT_CLASS_NAMES.len() {
            let name = ddt.class_name(class);
            let Some(object) = self.u64(dir, &name)?.map(ObjNum) else { continue };
            let dn = self.objset().dnode(object)?;
            let entries = Zap::open(&dn)?.count()?;
            let mut histogram = DdtHistogram::default();
            if let Some(v) = stats.lookup(name.as_bytes())? {
                let w: Vec<u64> = v.iter().collect();
                for (slot, w) in histogram.0.iter_mut().zip(w.chunks_exact(8)) {
                    *slot = DdtStat::from_words(w);
                }
            }
            ddt.classes.push(DdtClass { class, object, entries, dspace: dn.used_bytes(), histogram });
        }
        if flags & DDT_FLAG_LOG != 0 {
            self.ddt_logs(&mut ddt, dsize)?;
        }
        let exists = version != 0 || !ddt.classes.is_empty();
        Ok(exists.then_some(ddt))
    }

    fn ddt_logs(&self, ddt: &mut Ddt, dsize: &dyn Fn(&Dva) -> u64) -> Result<()> {
        for number in 0..2 {
            let name = format!("DDT-log-{}-{number}", ddt.checksum.name());
            let Some(object) = self.u64(ddt.dir, &name)?.map(ObjNum) else { continue };
            let bad = Error::corrupt(object);
            let dn = self.objset().dnode(object)?;
            let header = DdtLogHeader::decode(dn.bonus()).map_err(&bad)?;
            if header.length > dn.max_size() {
                return Err(bad(Corrupt::Range { what: "DDT log", field: "length", value: header.length }));
            }
            let mut entries = BTreeMap::new();
            for block in dn.log_blocks(header.length.div_ceil(dn.block_size())) {
                // The blocks of a log of the other byte order are swapped as words, which is what
                // they consist of.
                for e in log_entries(ddt.is_flat(), &block?).map_err(&bad)? {
                    if header.checkpoint.is_none_or(|c| e.key > c) {
                        entries.insert(e.key, (e.class, e.phys));
                    }
                }
            }
            ddt.logs.push(DdtLog { number, object, header, entries });
        }
        // An entry in both logs counts once. The active log has the newer one.
        let mut live: BTreeMap<DdtKey, &DdtPhys> = BTreeMap::new();
        let mut logs: Vec<&DdtLog> = ddt.logs.iter().collect();
        logs.sort_by_key(|l| !l.is_flushing());
        for log in logs {
            live.extend(log.entries.iter().map(|(k, (_, p))| (*k, p)));
        }
        let mut histogram = DdtHistogram::default();
        for (key, phys) in live {
            let stat = DdtStat::of(&key, phys, dsize).map_err(Error::corrupt(ddt.dir))?;
            if let Some(bucket) = stat.ref_blocks.checked_ilog2() {
                histogram.0[bucket as usize].add(&stat);
            }
        }
        ddt.log_histogram = histogram;
        Ok(())
    }

    /// The entries of a table's ZAP. Those of its logs are in [`Ddt::logs`].
    ///
    /// # Errors
    /// From this function or from the iterator:
    ///
    /// * The errors of [reading](Error#reading).
    /// * [`Error::Unpack`]: an entry does not decompress.
    pub fn ddt_entries(
        &self,
        ddt: &Ddt,
        class: &DdtClass,
    ) -> Result<impl Iterator<Item = Result<DdtEntry>> + use<>> {
        let (object, flat) = (class.object, ddt.is_flat());
        Ok(crate::mos::walk(&self.zap(object)?).map(move |e| {
            let e = e?;
            let bad = Error::corrupt(object);
            let shape = |why| bad(Corrupt::Shape { what: WHAT, why });
            let Key::Words(key) = &e.key else { return Err(shape("a key is a name")) };
            let key: [u64; 5] = key.as_slice().try_into().map_err(|_| shape("a key is not five words"))?;
            let raw = e.value.as_bytes().ok_or_else(|| shape("a value is not bytes"))?;
            let phys = unpack(object, flat, raw)?;
            Ok(DdtEntry { key: DdtKey::from_words(key), phys })
        }))
    }
}

/// Unpacks the value of an entry.
fn unpack(object: ObjNum, flat: bool, raw: &[u8]) -> Result<DdtPhys> {
    let bad = Error::corrupt(object);
    let (packing, rest) = DdtPacking::split(raw).map_err(&bad)?;
    let mut buf = vec![0; if flat { DDT_FLAT_PHYS_SIZE } else { DDT_TRAD_PHYS_SIZE }];
    codec::compress::decompress(packing.compress, rest, &mut buf)
        .map_err(|source| Error::Unpack { object, source })?;
    if packing.order == ByteOrder::Big {
        bytes::swap64(&mut buf);
    }
    DdtPhys::decode(flat, &buf).map_err(bad)
}
