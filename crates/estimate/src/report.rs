//! The result of an estimate.

use crate::dedup::Saving;
use crate::origin::Walked;
use crate::rule::Space;
use crate::{Failures, Options};
use ondisk::CompressKind;

/// What was measured for one record size and compressor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Bytes of data on devices (`asize`), and half of its interval.
    pub(crate) data: f64,
    pub(crate) error: f64,
    /// Bytes on devices of data that are embedded, if they were not.
    pub(crate) apart: f64,
    /// Bytes of data as stored.
    pub(crate) psize: f64,
    /// Bytes of data before compression, without holes.
    pub(crate) logical: f64,
    pub(crate) metadata: Space,
}

/// What a tree would take in a file system.
#[derive(Debug)]
pub struct Report {
    /// What was found.
    pub walked: Walked,
    /// Everything was read, so that the sizes have no error of sampling.
    pub exact: bool,
    /// How often a unit was drawn; 0 if everything was read.
    pub draws: u64,
    /// Bytes that were read for the sizes.
    pub read: u64,
    /// By record size and compressor, in the order of the options.
    pub rows: Vec<Row>,
    /// What could not be read. It counts as nothing, or as the average of a sample.
    pub failures: Failures,
}

/// What a tree would take with one record size and compressor.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The record size in bytes (`recordsize`).
    pub record: u32,
    /// The value of `compression`.
    pub compressor: String,
    /// Bytes that the file system would use (`used`), metadata included.
    pub size: u64,
    /// Half of the interval around the size, at 95 %.
    pub error: u64,
    /// The bytes of metadata in the size, in two copies.
    pub metadata: u64,
    /// Bytes before compression (`logicalused`).
    pub logical: u64,
    /// The ratio of compression in hundredths (`compressratio`).
    pub ratio: u64,
    /// With deduplication.
    pub dedup: Option<Deduplicated>,
}

/// What a tree would take with deduplication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deduplicated {
    /// Bytes on devices, the table aside.
    pub size: u64,
    /// Half of the interval around the size, at 95 %.
    pub error: u64,
    /// The ratio in hundredths: bytes of all records over those of different ones (`dedupratio`).
    pub ratio: u64,
    /// Different records, each of which has an entry in the table.
    pub records: u64,
}

/// Rows of what was measured, with what equal records save.
pub(crate) fn rows(options: &Options, measured: &[Measured], savings: Option<&[Saving]>) -> Vec<Row> {
    let names = options.records.iter().flat_map(|r| options.compressors.iter().map(|c| (*r, c.name.clone())));
    let row = |(i, ((record, compressor), m)): (usize, ((u32, String), &Measured))| {
        let stored = m.psize + m.metadata.psize as f64;
        let logical = m.logical + m.metadata.logical as f64;
        Row {
            record,
            compressor,
            size: whole(m.data) + m.metadata.asize,
            error: whole(m.error),
            metadata: m.metadata.asize,
            logical: whole(logical),
            ratio: if stored > 0.0 { (logical * 100.0 / stored) as u64 } else { 100 },
            dedup: savings
                .map(|all| deduplicated(m, &all[i], options.compressors[i % options.compressors.len()].kind)),
        }
    };
    names.zip(measured).enumerate().map(row).collect()
}

fn deduplicated(m: &Measured, saving: &Saving, kind: CompressKind) -> Deduplicated {
    // A block in the table is not embedded.
    let all = m.data + m.apart;
    // With compression, zeros are holes.
    let (zeros, left) = if kind == CompressKind::Off { saving.zeros } else { (0, 0) };
    let others = (all - zeros as f64).max(0.0);
    let data = others * saving.share + left as f64;
    let error = (m.error * saving.share).hypot(others * saving.error);
    Deduplicated {
        size: whole(data) + m.metadata.asize,
        error: whole(error),
        ratio: if data > 0.0 { (all * 100.0 / data) as u64 } else { 100 },
        records: whole(saving.unique),
    }
}

fn whole(n: f64) -> u64 {
    n.max(0.0).round() as u64
}
