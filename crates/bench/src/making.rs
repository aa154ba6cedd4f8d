//! Workloads on new pools: writing blocks, creating datasets, adding ZAP entries.
//!
//! Each workload creates its own pool on sparse images in an empty directory, and removes them at
//! the end.

use crate::images::{Geometry, Images, POOL};
use crate::measure::{Took, here};
use anyhow::{Context, Result, ensure};
use poolhouse::dmu::zap::{Value as Entry, Zap};
use poolhouse::dmu::{Dnode, NewObject};
use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::ops::snapshot::Snapshot;
use poolhouse::dsl::prop::parse::{Context as Parsing, setting};
use poolhouse::dsl::{Kind, Need, PropList, SyncTask};
use poolhouse::ondisk::DmuType;
use poolhouse::spa::engine::PoolWriter;
use poolhouse::zpl::NewFileSystem;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Bytes that a write workload writes.
const BYTES: u64 = 1 << 30;
/// Bytes of one write call, and so of one transaction.
const CHUNK: usize = 1 << 20;
/// Bytes of generated data. Written data repeats after one chunk less than this.
const PATTERN: usize = 64 << 20;
/// Number of entries that `zap-add` adds.
const ENTRIES: u64 = 1_000_000;
/// Entries of one transaction.
const BATCH: u64 = 50;
/// Size of an image in bytes.
const IMAGE: u64 = 4 << 30;

/// The workload on a new pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// Write 1 GiB in 128 KiB records with lz4, on one device.
    Lz4,
    /// The same with zstd-3.
    Zstd,
    /// The same without compression, on a raidz2 of six devices.
    Raidz2,
    /// Create the 2,602 file systems of the mount benchmark, in one call.
    Datasets,
    /// Create a snapshot of each of these file systems, in one call.
    Snapshots,
    /// Add a million entries to a ZAP.
    Zap,
}

impl Making {
    /// Runs the workload on images in the directory `dir`.
    ///
    /// # Errors
    /// The images or the pool can't be created, or an operation on the pool failed.
    pub fn run(self, dir: &Path) -> Result<(Value, Took)> {
        let images = Images::new(dir, "making", if self == Making::Raidz2 { 6 } else { 1 }, IMAGE)?;
        let spa = images.pool(&Geometry::default())?;
        let live = spa.writer().context("a new pool is open for writing")?;
        let done = match self {
            Making::Lz4 => write(live, "lz4"),
            Making::Zstd => write(live, "zstd-3"),
            Making::Raidz2 => write(live, "off"),
            Making::Datasets => make_datasets(live),
            Making::Snapshots => snapshots(live),
            Making::Zap => zap(live),
        };
        live.export()?;
        done
    }
}

fn task(name: &str, props: PropList) -> Box<dyn SyncTask + Send> {
    let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
    Box::new(Create { name: name.to_owned(), contents, props, crypt: None, enforce_limits: false })
}

/// Data for writes: each 4 KiB is half random bytes and half text, as in the peer's harness.
pub(crate) fn pattern() -> Vec<u8> {
    const TEXT: &[u8] =
        b"the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs 0123456789 ";
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut out = vec![0; PATTERN];
    for page in out.chunks_exact_mut(4096) {
        let (noise, text) = page.split_at_mut(2048);
        noise.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&next().to_le_bytes()));
        let shift = next() as usize % TEXT.len();
        text.iter_mut().enumerate().for_each(|(i, byte)| *byte = TEXT[(i + shift) % TEXT.len()]);
    }
    out
}

/// A new object in a new file system, which is owned for writing.
pub(crate) fn object(
    live: &PoolWriter,
    name: &str,
    props: PropList,
    kind: DmuType,
) -> Result<(poolhouse::dsl::Owned, Dnode)> {
    let name = format!("{POOL}/{name}");
    live.run(task(&name, props))?;
    let owned = live.dsl().heads().own(&live.dsl().dataset(&name)?)?;
    let tx = live.tx_for(&owned, Need { bytes: 1 << 14, netfree: false })?;
    let spec = NewObject { block_size: 1 << 17, ..NewObject::new(kind) };
    let dnode = owned.objset().create_object(&tx, &spec)?;
    Ok((owned, dnode))
}

fn write(live: &PoolWriter, compression: &str) -> Result<(Value, Took)> {
    let pattern = pattern();
    // The first use of memory costs a page fault for each page. That must not be measured, so the
    // first run is not timed.
    fill(live, "warm", compression, &pattern)?;
    let took = fill(live, "fs", compression, &pattern)?;
    Ok((json!({ "bytes": BYTES }), took))
}

fn fill(live: &PoolWriter, name: &str, compression: &str, pattern: &[u8]) -> Result<Took> {
    let parsing = Parsing { kind: Kind::Filesystem, creating: true, max_block: 1 << 20 };
    let props = vec![setting("compression", compression, parsing).context("a compressor")?];
    let (owned, dnode) = object(live, name, props, DmuType::PLAIN_FILE_CONTENTS)?;
    live.sync_all()?;
    let ((), took) = here(|| {
        for offset in (0..BYTES).step_by(CHUNK) {
            let from = offset as usize % (PATTERN - CHUNK);
            let tx = live.tx_for(&owned, Need { bytes: CHUNK as u64, netfree: false })?;
            dnode.write_at(&tx, offset, &pattern[from..from + CHUNK])?;
        }
        Ok(live.sync_all()?)
    })?;
    Ok(took)
}

/// The names of the datasets of illumos issue 8115's pool, parents first.
fn names() -> Vec<String> {
    program::bench::names(POOL, program::bench::Shape::default())
}

fn all_done(done: Vec<poolhouse::dsl::Result<()>>) -> Result<u64> {
    let count = done.len() as u64;
    done.into_iter().collect::<poolhouse::dsl::Result<()>>()?;
    Ok(count)
}

fn make_datasets(live: &PoolWriter) -> Result<(Value, Took)> {
    let tasks = names().iter().map(|name| task(name, PropList::new())).collect();
    let (datasets, took) = here(|| all_done(live.run_all(tasks)?))?;
    Ok((json!({ "datasets": datasets }), took))
}

fn snapshots(live: &PoolWriter) -> Result<(Value, Took)> {
    let names = names();
    all_done(live.run_all(names.iter().map(|name| task(name, PropList::new())).collect())?)?;
    let names: Vec<String> = names.iter().map(|name| format!("{name}@s")).collect();
    let count = names.len();
    let (_, took) = here(|| Ok(live.run(Box::new(Snapshot { names, ..Snapshot::default() }))?))?;
    ensure!(live.dsl().dataset(&format!("{POOL}/group-0@s")).is_ok(), "no snapshot was made");
    Ok((json!({ "snapshots": count }), took))
}

fn zap(live: &PoolWriter) -> Result<(Value, Took)> {
    let (owned, _) = object(live, "fs", PropList::new(), DmuType::PLAIN_FILE_CONTENTS)?;
    let tx = live.tx_for(&owned, Need { bytes: 1 << 14, netfree: false })?;
    let zap = Zap::create_kind(owned.objset(), &tx, DmuType::DIRECTORY_CONTENTS)?;
    drop(tx);
    let (_, took) = here(|| {
        for first in (0..ENTRIES).step_by(BATCH as usize) {
            let tx = live.tx_for(&owned, Need { bytes: BATCH << 12, netfree: false })?;
            for i in first..first + BATCH {
                zap.add(&tx, format!("entry-{i:08}").as_bytes(), &Entry::integers(8, &[i]))?;
            }
        }
        Ok(live.sync_all()?)
    })?;
    Ok((
        json!({ "entries": ENTRIES, "us_per_entry": crate::measure::round(took.cpu_s * 1e6 / ENTRIES as f64) }),
        took,
    ))
}
