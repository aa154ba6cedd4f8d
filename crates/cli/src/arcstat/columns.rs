//! The columns. Their names, widths, meanings and order are OpenZFS's, as `-v` and `-a` list them.

use super::Reading;
use crate::counts::{CACHES, List};
use std::borrow::Cow;

/// A kstat's name. Those of `zfetchstats` have the prefix `zfetch_`.
type Name = Cow<'static, str>;

/// What a column shows.
#[derive(Debug, Clone)]
pub(super) enum Shows {
    Time,
    /// How much the sum of these grew in a second.
    Rate(&'static [&'static str]),
    /// The growth of the first as a percentage of the growth of the second.
    Part(&'static [&'static str], &'static [&'static str]),
    /// What the percentages of these parts leave of a hundred.
    Rest(&'static [&'static [&'static str]], &'static [&'static str]),
    /// The current amount.
    Now(Amount),
    /// The current amount as a percentage of the sum of these.
    Share(Amount, &'static [&'static str]),
    /// 1 while the counter is 0, and 0 otherwise.
    Not(&'static str),
}

/// An amount that has a current size.
#[derive(Debug, Clone)]
pub(super) enum Amount {
    Kstat(Name),
    /// The targets that the balance gives to these lists.
    Targets(&'static [List]),
}

use Shows::{Not, Now, Part, Rate, Rest, Share, Time};

/// A column.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: Name,
    pub(super) width: usize,
    /// 1000 or 1024 for numbers that get a suffix, 100 for percentages.
    pub(super) scale: u32,
    pub(super) what: Name,
    pub(super) shows: Shows,
}

/// A column's number. Keeps whole numbers apart, because programs read them as such.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Whole(i128),
    Float(f64),
}

impl Column {
    /// Whether the column requires an L2ARC. As in OpenZFS, its name decides.
    pub(super) fn of_l2(&self) -> bool {
        self.name.starts_with("l2")
    }

    /// The column's number. The column of the time has none.
    ///
    /// # Errors
    /// A text with the first name that was not added to the counters.
    pub(super) fn value(&self, read: &Reading<'_>) -> Result<Option<Value>, String> {
        let percent = |part: f64, whole: f64| match whole > 0.0 {
            true => Value::Float(100.0 * part / whole),
            false => Value::Whole(0),
        };
        Ok(Some(match &self.shows {
            Time => return Ok(None),
            Rate(names) => Value::Float(read.rate(names)?),
            Part(part, whole) => percent(read.rate(part)?, read.rate(whole)?),
            Rest(parts, whole) => {
                let whole = read.rate(whole)?;
                let mut left = 100.0;
                for part in *parts {
                    left -= percent(read.rate(part)?, whole).float();
                }
                if whole > 0.0 { Value::Float(left) } else { Value::Whole(0) }
            }
            Now(amount) => amount.value(read)?,
            Share(amount, whole) => percent(amount.value(read)?.float(), read.now.sum(whole)? as f64),
            Not(name) => Value::Whole(i128::from(read.now.get(name)? == 0)),
        }))
    }
}

impl Amount {
    fn value(&self, read: &Reading<'_>) -> Result<Value, String> {
        match self {
            Amount::Kstat(name) => read.now.get(name).map(Value::Whole),
            Amount::Targets(lists) => {
                let each = lists.iter().map(|list| read.now.target_bytes(*list));
                Ok(Value::Float(each.sum::<Result<f64, _>>()?))
            }
        }
    }
}

impl Value {
    pub(super) fn float(self) -> f64 {
        match self {
            Value::Whole(n) => n as f64,
            Value::Float(n) => n,
        }
    }
}

const fn column(name: &'static str, width: usize, scale: u32, what: &'static str, shows: Shows) -> Column {
    Column { name: Cow::Borrowed(name), width, scale, what: Cow::Borrowed(what), shows }
}

const fn kstat(name: &'static str) -> Amount {
    Amount::Kstat(Cow::Borrowed(name))
}

const fn now(name: &'static str) -> Shows {
    Now(kstat(name))
}

const READS: &[&str] = &["hits", "iohits", "misses"];
const DEMAND_HITS: &[&str] = &["demand_data_hits", "demand_metadata_hits"];
const DEMAND_IOHITS: &[&str] = &["demand_data_iohits", "demand_metadata_iohits"];
const DEMAND_MISSES: &[&str] = &["demand_data_misses", "demand_metadata_misses"];
const DEMAND: &[&str] = &[
    "demand_data_hits",
    "demand_metadata_hits",
    "demand_data_iohits",
    "demand_metadata_iohits",
    "demand_data_misses",
    "demand_metadata_misses",
];
const DEMAND_DATA: &[&str] = &["demand_data_hits", "demand_data_iohits", "demand_data_misses"];
const DEMAND_METADATA: &[&str] =
    &["demand_metadata_hits", "demand_metadata_iohits", "demand_metadata_misses"];
const AHEAD_HITS: &[&str] = &["prefetch_data_hits", "prefetch_metadata_hits"];
const AHEAD_IOHITS: &[&str] = &["prefetch_data_iohits", "prefetch_metadata_iohits"];
const AHEAD_MISSES: &[&str] = &["prefetch_data_misses", "prefetch_metadata_misses"];
const AHEAD: &[&str] = &[
    "prefetch_data_hits",
    "prefetch_metadata_hits",
    "prefetch_data_iohits",
    "prefetch_metadata_iohits",
    "prefetch_data_misses",
    "prefetch_metadata_misses",
];
const AHEAD_DATA: &[&str] = &["prefetch_data_hits", "prefetch_data_iohits", "prefetch_data_misses"];
const AHEAD_METADATA: &[&str] =
    &["prefetch_metadata_hits", "prefetch_metadata_iohits", "prefetch_metadata_misses"];
const METADATA_HITS: &[&str] = &["demand_metadata_hits", "prefetch_metadata_hits"];
const METADATA_IOHITS: &[&str] = &["demand_metadata_iohits", "prefetch_metadata_iohits"];
const METADATA_MISSES: &[&str] = &["demand_metadata_misses", "prefetch_metadata_misses"];
const METADATA: &[&str] = &[
    "demand_metadata_hits",
    "prefetch_metadata_hits",
    "demand_metadata_iohits",
    "prefetch_metadata_iohits",
    "demand_metadata_misses",
    "prefetch_metadata_misses",
];
const L2_READS: &[&str] = &["l2_hits", "l2_misses"];
const L2_ASIZE: &[&str] = &["l2_asize"];

const COLUMNS: &[Column] = &[
    column("time", 8, 0, "Time", Time),
    column("hits", 4, 1000, "ARC hits per second", Rate(&["hits"])),
    column("iohs", 4, 1000, "ARC I/O hits per second", Rate(&["iohits"])),
    column("miss", 4, 1000, "ARC misses per second", Rate(&["misses"])),
    column("read", 4, 1000, "Total ARC accesses per second", Rate(READS)),
    column("hit%", 4, 100, "ARC hit percentage", Part(&["hits"], READS)),
    column("ioh%", 4, 100, "ARC I/O hit percentage", Part(&["iohits"], READS)),
    column("miss%", 5, 100, "ARC miss percentage", Rest(&[&["hits"], &["iohits"]], READS)),
    column("dhit", 4, 1000, "Demand hits per second", Rate(DEMAND_HITS)),
    column("dioh", 4, 1000, "Demand I/O hits per second", Rate(DEMAND_IOHITS)),
    column("dmis", 4, 1000, "Demand misses per second", Rate(DEMAND_MISSES)),
    column("dh%", 3, 100, "Demand hit percentage", Part(DEMAND_HITS, DEMAND)),
    column("di%", 3, 100, "Demand I/O hit percentage", Part(DEMAND_IOHITS, DEMAND)),
    column("dm%", 3, 100, "Demand miss percentage", Rest(&[DEMAND_HITS, DEMAND_IOHITS], DEMAND)),
    column("ddhit", 5, 1000, "Demand data hits per second", Rate(&["demand_data_hits"])),
    column("ddioh", 5, 1000, "Demand data I/O hits per second", Rate(&["demand_data_iohits"])),
    column("ddmis", 5, 1000, "Demand data misses per second", Rate(&["demand_data_misses"])),
    column("ddh%", 4, 100, "Demand data hit percentage", Part(&["demand_data_hits"], DEMAND_DATA)),
    column("ddi%", 4, 100, "Demand data I/O hit percentage", Part(&["demand_data_iohits"], DEMAND_DATA)),
    column(
        "ddm%",
        4,
        100,
        "Demand data miss percentage",
        Rest(&[&["demand_data_hits"], &["demand_data_iohits"]], DEMAND_DATA),
    ),
    column("dmhit", 5, 1000, "Demand metadata hits per second", Rate(&["demand_metadata_hits"])),
    column("dmioh", 5, 1000, "Demand metadata I/O hits per second", Rate(&["demand_metadata_iohits"])),
    column("dmmis", 5, 1000, "Demand metadata misses per second", Rate(&["demand_metadata_misses"])),
    column(
        "dmh%",
        4,
        100,
        "Demand metadata hit percentage",
        Part(&["demand_metadata_hits"], DEMAND_METADATA),
    ),
    column(
        "dmi%",
        4,
        100,
        "Demand metadata I/O hit percentage",
        Part(&["demand_metadata_iohits"], DEMAND_METADATA),
    ),
    column(
        "dmm%",
        4,
        100,
        "Demand metadata miss percentage",
        Rest(&[&["demand_metadata_hits"], &["demand_metadata_iohits"]], DEMAND_METADATA),
    ),
    column("phit", 4, 1000, "Prefetch hits per second", Rate(AHEAD_HITS)),
    column("pioh", 4, 1000, "Prefetch I/O hits per second", Rate(AHEAD_IOHITS)),
    column("pmis", 4, 1000, "Prefetch misses per second", Rate(AHEAD_MISSES)),
    column("ph%", 3, 100, "Prefetch hits percentage", Part(AHEAD_HITS, AHEAD)),
    column("pi%", 3, 100, "Prefetch I/O hits percentage", Part(AHEAD_IOHITS, AHEAD)),
    column("pm%", 3, 100, "Prefetch miss percentage", Rest(&[AHEAD_HITS, AHEAD_IOHITS], AHEAD)),
    column("pdhit", 5, 1000, "Prefetch data hits per second", Rate(&["prefetch_data_hits"])),
    column("pdioh", 5, 1000, "Prefetch data I/O hits per second", Rate(&["prefetch_data_iohits"])),
    column("pdmis", 5, 1000, "Prefetch data misses per second", Rate(&["prefetch_data_misses"])),
    column("pdh%", 4, 100, "Prefetch data hits percentage", Part(&["prefetch_data_hits"], AHEAD_DATA)),
    column("pdi%", 4, 100, "Prefetch data I/O hits percentage", Part(&["prefetch_data_iohits"], AHEAD_DATA)),
    column(
        "pdm%",
        4,
        100,
        "Prefetch data miss percentage",
        Rest(&[&["prefetch_data_hits"], &["prefetch_data_iohits"]], AHEAD_DATA),
    ),
    column("pmhit", 5, 1000, "Prefetch metadata hits per second", Rate(&["prefetch_metadata_hits"])),
    column("pmioh", 5, 1000, "Prefetch metadata I/O hits per second", Rate(&["prefetch_metadata_iohits"])),
    column("pmmis", 5, 1000, "Prefetch metadata misses per second", Rate(&["prefetch_metadata_misses"])),
    column(
        "pmh%",
        4,
        100,
        "Prefetch metadata hits percentage",
        Part(&["prefetch_metadata_hits"], AHEAD_METADATA),
    ),
    column(
        "pmi%",
        4,
        100,
        "Prefetch metadata I/O hits percentage",
        Part(&["prefetch_metadata_iohits"], AHEAD_METADATA),
    ),
    column(
        "pmm%",
        4,
        100,
        "Prefetch metadata miss percentage",
        Rest(&[&["prefetch_metadata_hits"], &["prefetch_metadata_iohits"]], AHEAD_METADATA),
    ),
    column("mhit", 4, 1000, "Metadata hits per second", Rate(METADATA_HITS)),
    column("mioh", 4, 1000, "Metadata I/O hits per second", Rate(METADATA_IOHITS)),
    column("mmis", 4, 1000, "Metadata misses per second", Rate(METADATA_MISSES)),
    column("mread", 5, 1000, "Metadata accesses per second", Rate(METADATA)),
    column("mh%", 3, 100, "Metadata hit percentage", Part(METADATA_HITS, METADATA)),
    column("mi%", 3, 100, "Metadata I/O hit percentage", Part(METADATA_IOHITS, METADATA)),
    column("mm%", 3, 100, "Metadata miss percentage", Rest(&[METADATA_HITS, METADATA_IOHITS], METADATA)),
    column("arcsz", 5, 1024, "ARC size", now("size")),
    column("size", 5, 1024, "ARC size", now("size")),
    column("c", 5, 1024, "ARC target size", now("c")),
    column("mfu", 4, 1000, "MFU list hits per second", Rate(&["mfu_hits"])),
    column("mru", 4, 1000, "MRU list hits per second", Rate(&["mru_hits"])),
    column("mfug", 4, 1000, "MFU ghost list hits per second", Rate(&["mfu_ghost_hits"])),
    column("mrug", 4, 1000, "MRU ghost list hits per second", Rate(&["mru_ghost_hits"])),
    column("unc", 4, 1000, "Uncached list hits per second", Rate(&["uncached_hits"])),
    column("eskip", 5, 1000, "evict_skip per second", Rate(&["evict_skip"])),
    column("el2skip", 7, 1000, "evict skip, due to l2 writes, per second", Rate(&["evict_l2_skip"])),
    column("el2cach", 7, 1024, "Size of L2 cached evictions per second", Rate(&["evict_l2_cached"])),
    column("el2el", 5, 1024, "Size of L2 eligible evictions per second", Rate(&["evict_l2_eligible"])),
    column(
        "el2mfu",
        6,
        1024,
        "Size of L2 eligible MFU evictions per second",
        Rate(&["evict_l2_eligible_mfu"]),
    ),
    column(
        "el2mru",
        6,
        1024,
        "Size of L2 eligible MRU evictions per second",
        Rate(&["evict_l2_eligible_mru"]),
    ),
    column("el2inel", 7, 1024, "Size of L2 ineligible evictions per second", Rate(&["evict_l2_ineligible"])),
    column("mtxmis", 6, 1000, "mutex_miss per second", Rate(&["mutex_miss"])),
    column("dread", 5, 1000, "Demand accesses per second", Rate(DEMAND)),
    column("ddread", 6, 1000, "Demand data accesses per second", Rate(DEMAND_DATA)),
    column("dmread", 6, 1000, "Demand metadata accesses per second", Rate(DEMAND_METADATA)),
    column("pread", 5, 1000, "Prefetch accesses per second", Rate(AHEAD)),
    column("pdread", 6, 1000, "Prefetch data accesses per second", Rate(AHEAD_DATA)),
    column("pmread", 6, 1000, "Prefetch metadata accesses per second", Rate(AHEAD_METADATA)),
    column("l2hits", 6, 1000, "L2ARC hits per second", Rate(&["l2_hits"])),
    column("l2miss", 6, 1000, "L2ARC misses per second", Rate(&["l2_misses"])),
    column("l2read", 6, 1000, "Total L2ARC accesses per second", Rate(L2_READS)),
    column("l2hit%", 6, 100, "L2ARC access hit percentage", Part(&["l2_hits"], L2_READS)),
    column("l2miss%", 7, 100, "L2ARC access miss percentage", Rest(&[&["l2_hits"]], L2_READS)),
    column("l2pref", 6, 1024, "L2ARC prefetch allocated size", now("l2_prefetch_asize")),
    column("l2mfu", 5, 1024, "L2ARC MFU allocated size", now("l2_mfu_asize")),
    column("l2mru", 5, 1024, "L2ARC MRU allocated size", now("l2_mru_asize")),
    column("l2data", 6, 1024, "L2ARC data allocated size", now("l2_bufc_data_asize")),
    column("l2meta", 6, 1024, "L2ARC metadata allocated size", now("l2_bufc_metadata_asize")),
    column("l2pref%", 7, 100, "L2ARC prefetch percentage", Share(kstat("l2_prefetch_asize"), L2_ASIZE)),
    column("l2mfu%", 6, 100, "L2ARC MFU percentage", Share(kstat("l2_mfu_asize"), L2_ASIZE)),
    column("l2mru%", 6, 100, "L2ARC MRU percentage", Share(kstat("l2_mru_asize"), L2_ASIZE)),
    column("l2data%", 7, 100, "L2ARC data percentage", Share(kstat("l2_bufc_data_asize"), L2_ASIZE)),
    column("l2meta%", 7, 100, "L2ARC metadata percentage", Share(kstat("l2_bufc_metadata_asize"), L2_ASIZE)),
    column("l2asize", 7, 1024, "Actual (compressed) size of the L2ARC", now("l2_asize")),
    column("l2size", 6, 1024, "Size of the L2ARC", now("l2_size")),
    column("l2bytes", 7, 1024, "Bytes read per second from the L2ARC", Rate(&["l2_read_bytes"])),
    column("l2wbytes", 8, 1024, "Bytes written per second to the L2ARC", Rate(&["l2_write_bytes"])),
    column("grow", 4, 1000, "ARC grow disabled", Not("arc_no_grow")),
    column("need", 5, 1024, "ARC reclaim need", now("arc_need_free")),
    column("free", 5, 1024, "ARC free memory", now("memory_free_bytes")),
    column("avail", 5, 1024, "ARC available memory", now("memory_available_bytes")),
    column("waste", 5, 1024, "Wasted memory due to round up to pagesize", now("abd_chunk_waste_size")),
    column(
        "ztotal",
        6,
        1000,
        "zfetch total prefetcher calls per second",
        Rate(&["zfetch_hits", "zfetch_future", "zfetch_stride", "zfetch_past", "zfetch_misses"]),
    ),
    column("zhits", 5, 1000, "zfetch stream hits per second", Rate(&["zfetch_hits"])),
    column(
        "zahead",
        6,
        1000,
        "zfetch hits ahead of streams per second",
        Rate(&["zfetch_future", "zfetch_stride"]),
    ),
    column("zpast", 5, 1000, "zfetch hits behind streams per second", Rate(&["zfetch_past"])),
    column("zmisses", 7, 1000, "zfetch stream misses per second", Rate(&["zfetch_misses"])),
    column("zmax", 4, 1000, "zfetch limit reached per second", Rate(&["zfetch_max_streams"])),
    column("zfuture", 7, 1000, "zfetch stream future per second", Rate(&["zfetch_future"])),
    column("zstride", 7, 1000, "zfetch stream strides per second", Rate(&["zfetch_stride"])),
    column("zissued", 7, 1000, "zfetch prefetches issued per second", Rate(&["zfetch_io_issued"])),
    column("zactive", 7, 1000, "zfetch prefetches active per second", Rate(&["zfetch_io_active"])),
];

const fn list(frequent: bool, metadata: bool) -> List {
    List { frequent, metadata }
}

const MFU_DATA: List = list(true, false);
const MFU_METADATA: List = list(true, true);
const MRU_DATA: List = list(false, false);
const MRU_METADATA: List = list(false, true);

/// All columns.
pub(super) fn all() -> Vec<Column> {
    let mut all = COLUMNS.to_vec();
    all.extend(sizes());
    all
}

/// The columns of sizes: by content, by kind and by state.
///
/// Most have a second column with the percentage of the whole.
fn sizes() -> Vec<Column> {
    let mut all = Vec::new();
    for (short, of, what) in [
        ("cmp", "compressed", "Compressed"),
        ("ovh", "overhead", "Overhead"),
        ("bon", "bonus", "Bonus"),
        ("dno", "dnode", "Dnode"),
        ("dbu", "dbuf", "Dbuf"),
        ("hdr", "hdr", "Header"),
        ("l2h", "l2_hdr", "L2 header"),
        ("abd", "abd_chunk_waste", "ABD chunk waste"),
    ] {
        size(&mut all, format!("{short}sz"), format!("{what} size"), named(of, "size"), Some(&["size"]));
    }
    let kinds: [(_, _, _, &[List]); 2] = [
        ("data", "data", "ARC data", &[MFU_DATA, MRU_DATA]),
        ("meta", "metadata", "ARC metadata", &[MFU_METADATA, MRU_METADATA]),
    ];
    for (short, of, what, lists) in kinds {
        let targets = Amount::Targets(lists);
        size(&mut all, format!("{short}tg"), format!("{what} target"), targets, Some(CACHES));
        size(&mut all, format!("{short}sz"), format!("{what} size"), named(of, "size"), Some(CACHES));
    }
    // All lists, those of data, and those of metadata.
    const MFU: [&[List]; 3] = [&[MFU_DATA, MFU_METADATA], &[MFU_DATA], &[MFU_METADATA]];
    const MRU: [&[List]; 3] = [&[MRU_DATA, MRU_METADATA], &[MRU_DATA], &[MRU_METADATA]];
    for (short, of, what, lists) in [
        ("ano", "anon", "Anonymous", None),
        ("mfu", "mfu", "MFU", Some(MFU)),
        ("mru", "mru", "MRU", Some(MRU)),
        ("unc", "uncached", "Uncached", None),
    ] {
        state(&mut all, short, of, what, lists);
    }
    all
}

/// The columns of a state. A state that the balance knows also has targets and a ghost list.
fn state(all: &mut Vec<Column>, short: &str, of: &str, what: &str, lists: Option<[&'static [List]; 3]>) {
    let targets = [("tg", "target"), ("dt", "data target"), ("mt", "metadata target")];
    for ((end, words), lists) in targets.into_iter().zip(lists.into_iter().flatten()) {
        let targets = Amount::Targets(lists);
        size(all, format!("{short}{end}"), format!("{what} {words}"), targets, Some(CACHES));
    }
    for (end, name, words) in [
        ("sz", "size", "size"),
        ("da", "data", "data size"),
        ("me", "metadata", "metadata size"),
        ("ed", "evictable_data", "evictable data size"),
        ("em", "evictable_metadata", "evictable metadata size"),
    ] {
        size(all, format!("{short}{end}"), format!("{what} {words}"), named(of, name), Some(CACHES));
    }
    if lists.is_some() {
        for (end, name, words) in [
            ("gsz", "ghost_size", "ghost size"),
            ("gd", "ghost_data", "ghost data size"),
            ("gm", "ghost_metadata", "ghost metadata size"),
        ] {
            size(all, format!("{short}{end}"), format!("{what} {words}"), named(of, name), None);
        }
    }
}

fn named(of: &str, name: &str) -> Amount {
    Amount::Kstat(format!("{of}_{name}").into())
}

/// Adds a column as wide as its name, and one for its percentage of a whole.
fn size(
    all: &mut Vec<Column>,
    name: String,
    what: String,
    amount: Amount,
    whole: Option<&'static [&'static str]>,
) {
    let column = |name: String, scale, what: String, shows| Column {
        width: name.len(),
        name: name.into(),
        scale,
        what: what.into(),
        shows,
    };
    let share = whole.map(|whole| {
        column(format!("{name}%"), 100, format!("{what} percentage"), Share(amount.clone(), whole))
    });
    all.push(column(name, 1024, what, Now(amount)));
    all.extend(share);
}
