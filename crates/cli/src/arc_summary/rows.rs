//! The contents of the sections: rows of labels and values.
//!
//! Labels are OpenZFS's, since people and programs look for them.

use super::format;
use crate::counts::{CACHES, Counts, List, WHOLE};

/// A number that is computed from counters by name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    /// One counter.
    Of(&'static str),
    /// The sum of several counters.
    Sum(&'static [&'static str]),
    /// One counter minus several others.
    Less(&'static str, &'static [&'static str]),
    /// The target that the balance gives to a list.
    Target(List),
    /// The whole that an [`Amount::Target`] is a part of.
    Balance,
}

use Amount::{Balance, Less, Of, Sum, Target};

/// The value in a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    Bytes(Amount),
    Count(Amount),
    /// A number without a unit.
    Plain(Amount),
    /// The first amount as a percentage of the second.
    Part(Amount, Amount),
    /// Whether all of these counters are zero.
    Health(&'static [&'static str]),
}

use Cell::{Bytes, Count, Health, Part, Plain};

/// A line of a section.
#[derive(Debug, Clone, Copy)]
pub(super) enum Row {
    /// Text alone.
    Head(&'static str),
    /// At the margin, with one value.
    One(&'static str, Cell),
    /// At the margin, with two values.
    Two(&'static str, Cell, Cell),
    /// Below a heading, with one value.
    Under(&'static str, Cell),
    /// Below a heading, with two values.
    Both(&'static str, Cell, Cell),
    /// An empty line.
    Gap,
}

use Row::{Both, Gap, Head, One, Two, Under};

impl Amount {
    fn of(self, counts: &Counts) -> Result<f64, String> {
        match self {
            Target(list) => counts.target(list),
            Balance => Ok(WHOLE),
            _ => self.whole(counts).map(|n| n as f64),
        }
    }

    /// The amount as a whole number. A part of the balance becomes bytes.
    fn whole(self, counts: &Counts) -> Result<i128, String> {
        match self {
            Of(name) => counts.get(name),
            Sum(names) => counts.sum(names),
            Less(name, names) => Ok(counts.get(name)? - counts.sum(names)?),
            Target(list) => counts.target_bytes(list).map(|bytes| bytes as i128),
            Balance => Ok(WHOLE as i128),
        }
    }
}

impl Cell {
    fn text(self, counts: &Counts) -> Result<String, String> {
        Ok(match self {
            Bytes(amount) => format::bytes(amount.whole(counts)?),
            Count(amount) => format::count(amount.whole(counts)?),
            Plain(amount) => amount.whole(counts)?.to_string(),
            Part(part, whole) => format::percent(part.of(counts)?, whole.of(counts)?),
            Health(names) if counts.sum(names)? > 0 => "DEGRADED".to_owned(),
            Health(_) => "HEALTHY".to_owned(),
        })
    }
}

impl Row {
    /// The line for these counters.
    ///
    /// # Errors
    /// A text with the first name that was not added to the counters.
    pub(super) fn text(self, counts: &Counts) -> Result<String, String> {
        let two = |a: Cell, b: Cell| -> Result<String, String> {
            Ok(format!("  {:>9}  {:>9}", a.text(counts)?, b.text(counts)?))
        };
        Ok(match self {
            Head(label) => format!("{label}\n"),
            Gap => "\n".to_owned(),
            One(label, cell) => super::spread("", label, &cell.text(counts)?),
            Two(label, a, b) => super::spread("", label, &two(a, b)?),
            Under(label, cell) => super::spread(super::INDENT, label, &cell.text(counts)?),
            Both(label, a, b) => super::spread(super::INDENT, label, &two(a, b)?),
        })
    }
}

/// Below a heading: bytes, as a percentage of a whole and as a number.
const fn bytes_of(label: &'static str, name: &'static str, whole: Amount) -> Row {
    Both(label, Part(Of(name), whole), Bytes(Of(name)))
}

/// Below a heading: events, as a percentage of a whole and as a number.
const fn count_of(label: &'static str, name: &'static str, whole: Amount) -> Row {
    Both(label, Part(Of(name), whole), Count(Of(name)))
}

/// Below a heading: the target that the balance gives to a list.
const fn target(label: &'static str, frequent: bool, metadata: bool) -> Row {
    let list = Target(List { frequent, metadata });
    Both(label, Part(list, Balance), Bytes(list))
}

const SIZE: Amount = Of("size");
const HELD: Amount = Sum(CACHES);
const ELIGIBLE: Amount = Of("evict_l2_eligible");

/// Section `arc`, from `arcstats`.
pub(super) const ARC: &[Row] = &[
    Head("ARC status:"),
    Under("Total memory size:", Bytes(Of("memory_all_bytes"))),
    bytes_of("Min target size:", "c_min", Of("memory_all_bytes")),
    bytes_of("Max target size:", "c_max", Of("memory_all_bytes")),
    // As in OpenZFS, the percentage is the current size's, and the bytes are the target's.
    Both("Target size (adaptive):", Part(SIZE, Of("c_max")), Bytes(Of("c"))),
    bytes_of("Current size:", "size", Of("c_max")),
    Under("Free memory size:", Bytes(Of("memory_free_bytes"))),
    Under("Available memory size:", Bytes(Of("memory_available_bytes"))),
    Gap,
    One("ARC structural breakdown (current size):", Bytes(SIZE)),
    bytes_of("Compressed size:", "compressed_size", SIZE),
    bytes_of("Overhead size:", "overhead_size", SIZE),
    bytes_of("Bonus size:", "bonus_size", SIZE),
    bytes_of("Dnode size:", "dnode_size", SIZE),
    bytes_of("Dbuf size:", "dbuf_size", SIZE),
    bytes_of("Header size:", "hdr_size", SIZE),
    bytes_of("L2 header size:", "l2_hdr_size", SIZE),
    bytes_of("ABD chunk waste size:", "abd_chunk_waste_size", SIZE),
    Gap,
    One("ARC types breakdown (compressed + overhead):", Bytes(HELD)),
    bytes_of("Data size:", "data_size", HELD),
    bytes_of("Metadata size:", "metadata_size", HELD),
    Gap,
    One("ARC states breakdown (compressed + overhead):", Bytes(HELD)),
    bytes_of("Anonymous data size:", "anon_data", HELD),
    bytes_of("Anonymous metadata size:", "anon_metadata", HELD),
    target("MFU data target:", true, false),
    bytes_of("MFU data size:", "mfu_data", HELD),
    bytes_of("MFU evictable data size:", "mfu_evictable_data", HELD),
    Under("MFU ghost data size:", Bytes(Of("mfu_ghost_data"))),
    target("MFU metadata target:", true, true),
    bytes_of("MFU metadata size:", "mfu_metadata", HELD),
    bytes_of("MFU evictable metadata size:", "mfu_evictable_metadata", HELD),
    Under("MFU ghost metadata size:", Bytes(Of("mfu_ghost_metadata"))),
    target("MRU data target:", false, false),
    bytes_of("MRU data size:", "mru_data", HELD),
    bytes_of("MRU evictable data size:", "mru_evictable_data", HELD),
    Under("MRU ghost data size:", Bytes(Of("mru_ghost_data"))),
    target("MRU metadata target:", false, true),
    bytes_of("MRU metadata size:", "mru_metadata", HELD),
    bytes_of("MRU evictable metadata size:", "mru_evictable_metadata", HELD),
    Under("MRU ghost metadata size:", Bytes(Of("mru_ghost_metadata"))),
    bytes_of("Uncached data size:", "uncached_data", HELD),
    bytes_of("Uncached metadata size:", "uncached_metadata", HELD),
    Gap,
    Head("ARC hash breakdown:"),
    Under("Elements:", Count(Of("hash_elements"))),
    Under("Collisions:", Count(Of("hash_collisions"))),
    Under("Chain max:", Count(Of("hash_chain_max"))),
    Under("Chains:", Count(Of("hash_chains"))),
    Gap,
    Head("ARC misc:"),
    Under("Memory throttles:", Plain(Of("memory_throttle_count"))),
    Under("Memory direct reclaims:", Plain(Of("memory_direct_count"))),
    Under("Memory indirect reclaims:", Plain(Of("memory_indirect_count"))),
    Under("Deleted:", Count(Of("deleted"))),
    Under("Mutex misses:", Count(Of("mutex_miss"))),
    Under("Eviction skips:", Count(Of("evict_skip"))),
    Under("Eviction skips due to L2 writes:", Count(Of("evict_l2_skip"))),
    Under("L2 cached evictions:", Bytes(Of("evict_l2_cached"))),
    Under("L2 eligible evictions:", Bytes(ELIGIBLE)),
    bytes_of("L2 eligible MFU evictions:", "evict_l2_eligible_mfu", ELIGIBLE),
    bytes_of("L2 eligible MRU evictions:", "evict_l2_eligible_mru", ELIGIBLE),
    Under("L2 ineligible evictions:", Bytes(Of("evict_l2_ineligible"))),
    Gap,
];

const ACCESSES: Amount = Sum(&["hits", "iohits", "misses"]);
const DEMAND_DATA: Amount = Sum(&["demand_data_hits", "demand_data_iohits", "demand_data_misses"]);
const DEMAND_METADATA: Amount =
    Sum(&["demand_metadata_hits", "demand_metadata_iohits", "demand_metadata_misses"]);
const AHEAD_DATA: Amount = Sum(&["prefetch_data_hits", "prefetch_data_iohits", "prefetch_data_misses"]);
const AHEAD_METADATA: Amount =
    Sum(&["prefetch_metadata_hits", "prefetch_metadata_iohits", "prefetch_metadata_misses"]);
const AHEAD: Amount = Sum(&["predictive_prefetch", "prescient_prefetch"]);
const UNWANTED_PREDICTIVE: Amount =
    Less("predictive_prefetch", &["demand_hit_predictive_prefetch", "demand_iohit_predictive_prefetch"]);
const UNWANTED_PRESCIENT: Amount =
    Less("prescient_prefetch", &["demand_hit_prescient_prefetch", "demand_iohit_prescient_prefetch"]);

/// Section `archits`, from `arcstats`.
pub(super) const ARCHITS: &[Row] = &[
    One("ARC total accesses:", Count(ACCESSES)),
    count_of("Total hits:", "hits", ACCESSES),
    count_of("Total I/O hits:", "iohits", ACCESSES),
    count_of("Total misses:", "misses", ACCESSES),
    Gap,
    Two("ARC demand data accesses:", Part(DEMAND_DATA, ACCESSES), Count(DEMAND_DATA)),
    count_of("Demand data hits:", "demand_data_hits", DEMAND_DATA),
    count_of("Demand data I/O hits:", "demand_data_iohits", DEMAND_DATA),
    count_of("Demand data misses:", "demand_data_misses", DEMAND_DATA),
    Gap,
    Two("ARC demand metadata accesses:", Part(DEMAND_METADATA, ACCESSES), Count(DEMAND_METADATA)),
    count_of("Demand metadata hits:", "demand_metadata_hits", DEMAND_METADATA),
    count_of("Demand metadata I/O hits:", "demand_metadata_iohits", DEMAND_METADATA),
    count_of("Demand metadata misses:", "demand_metadata_misses", DEMAND_METADATA),
    Gap,
    Two("ARC prefetch data accesses:", Part(AHEAD_DATA, ACCESSES), Count(AHEAD_DATA)),
    count_of("Prefetch data hits:", "prefetch_data_hits", AHEAD_DATA),
    count_of("Prefetch data I/O hits:", "prefetch_data_iohits", AHEAD_DATA),
    count_of("Prefetch data misses:", "prefetch_data_misses", AHEAD_DATA),
    Gap,
    Two("ARC prefetch metadata accesses:", Part(AHEAD_METADATA, ACCESSES), Count(AHEAD_METADATA)),
    count_of("Prefetch metadata hits:", "prefetch_metadata_hits", AHEAD_METADATA),
    count_of("Prefetch metadata I/O hits:", "prefetch_metadata_iohits", AHEAD_METADATA),
    count_of("Prefetch metadata misses:", "prefetch_metadata_misses", AHEAD_METADATA),
    Gap,
    Two(
        "ARC predictive prefetches:",
        Part(Of("predictive_prefetch"), AHEAD),
        Count(Of("predictive_prefetch")),
    ),
    count_of("Demand hits after predictive:", "demand_hit_predictive_prefetch", Of("predictive_prefetch")),
    count_of(
        "Demand I/O hits after predictive:",
        "demand_iohit_predictive_prefetch",
        Of("predictive_prefetch"),
    ),
    Both(
        "Never demanded after predictive:",
        Part(UNWANTED_PREDICTIVE, Of("predictive_prefetch")),
        Count(UNWANTED_PREDICTIVE),
    ),
    Gap,
    Two("ARC prescient prefetches:", Part(Of("prescient_prefetch"), AHEAD), Count(Of("prescient_prefetch"))),
    count_of("Demand hits after prescient:", "demand_hit_prescient_prefetch", Of("prescient_prefetch")),
    count_of("Demand I/O hits after prescient:", "demand_iohit_prescient_prefetch", Of("prescient_prefetch")),
    Both(
        "Never demanded after prescient:",
        Part(UNWANTED_PRESCIENT, Of("prescient_prefetch")),
        Count(UNWANTED_PRESCIENT),
    ),
    Gap,
    Head("ARC states hits of all accesses:"),
    count_of("Most frequently used (MFU):", "mfu_hits", ACCESSES),
    count_of("Most recently used (MRU):", "mru_hits", ACCESSES),
    count_of("Most frequently used (MFU) ghost:", "mfu_ghost_hits", ACCESSES),
    count_of("Most recently used (MRU) ghost:", "mru_ghost_hits", ACCESSES),
    count_of("Uncached:", "uncached_hits", ACCESSES),
    Gap,
];

const CALLS: Amount = Sum(&["hits", "future", "stride", "past", "misses"]);
const BEYOND: Amount = Sum(&["future", "stride"]);

/// Section `dmu`, from `zfetchstats`.
pub(super) const DMU: &[Row] = &[
    One("DMU predictive prefetcher calls:", Count(CALLS)),
    count_of("Stream hits:", "hits", CALLS),
    Both("Hits ahead of stream:", Part(BEYOND, CALLS), Count(BEYOND)),
    count_of("Hits behind stream:", "past", CALLS),
    count_of("Stream misses:", "misses", CALLS),
    count_of("Streams limit reached:", "max_streams", Of("misses")),
    Under("Stream strides:", Count(Of("stride"))),
    Under("Prefetches issued", Count(Of("io_issued"))),
    Gap,
];

const L2_SIZE: Amount = Of("l2_size");
const L2_ASIZE: Amount = Of("l2_asize");
const L2_ACCESSES: Amount = Sum(&["l2_hits", "l2_misses"]);

/// Section `l2arc`, from `arcstats`, if there is an L2ARC.
pub(super) const L2ARC: &[Row] = &[
    One("L2ARC status:", Health(&["l2_writes_error", "l2_cksum_bad", "l2_io_error"])),
    Under("Low memory aborts:", Count(Of("l2_abort_lowmem"))),
    Under("Free on write:", Count(Of("l2_free_on_write"))),
    Under("R/W clashes:", Count(Of("l2_rw_clash"))),
    Under("Bad checksums:", Count(Of("l2_cksum_bad"))),
    Under("Read errors:", Count(Of("l2_io_error"))),
    Under("Write errors:", Count(Of("l2_writes_error"))),
    Gap,
    One("L2ARC size (adaptive):", Bytes(L2_SIZE)),
    bytes_of("Compressed:", "l2_asize", L2_SIZE),
    bytes_of("Header size:", "l2_hdr_size", L2_SIZE),
    bytes_of("MFU allocated size:", "l2_mfu_asize", L2_ASIZE),
    bytes_of("MRU allocated size:", "l2_mru_asize", L2_ASIZE),
    bytes_of("Prefetch allocated size:", "l2_prefetch_asize", L2_ASIZE),
    bytes_of("Data (buffer content) allocated size:", "l2_bufc_data_asize", L2_ASIZE),
    bytes_of("Metadata (buffer content) allocated size:", "l2_bufc_metadata_asize", L2_ASIZE),
    Gap,
    One("L2ARC breakdown:", Count(L2_ACCESSES)),
    count_of("Hit ratio:", "l2_hits", L2_ACCESSES),
    count_of("Miss ratio:", "l2_misses", L2_ACCESSES),
    Gap,
    Head("L2ARC I/O:"),
    Both("Reads:", Bytes(Of("l2_read_bytes")), Count(Of("l2_hits"))),
    Both("Writes:", Bytes(Of("l2_write_bytes")), Count(Of("l2_writes_sent"))),
    Gap,
    Head("L2ARC evicts:"),
    Under("L1 cached:", Count(Of("l2_evict_l1cached"))),
    Under("While reading:", Count(Of("l2_evict_reading"))),
    Gap,
];

/// Section `zil`, from `zil`.
pub(super) const ZIL: &[Row] = &[
    One("ZIL committed transactions:", Count(Of("zil_itx_count"))),
    Under("Commit requests:", Count(Of("zil_commit_count"))),
    Under("Flushes to stable storage:", Count(Of("zil_commit_writer_count"))),
    Both(
        "Transactions to SLOG storage pool:",
        Bytes(Of("zil_itx_metaslab_slog_bytes")),
        Count(Of("zil_itx_metaslab_slog_count")),
    ),
    Both(
        "Transactions to non-SLOG storage pool:",
        Bytes(Of("zil_itx_metaslab_normal_bytes")),
        Count(Of("zil_itx_metaslab_normal_count")),
    ),
    Gap,
];
