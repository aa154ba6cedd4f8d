//! Increments: what changed, beside more and more that did not.

use super::{Phases, Stage, lz4, number};
use crate::images::Geometry;
use crate::making::object;
use crate::measure::here;
use anyhow::Result;
use poolhouse::dmu::{Dnode, NewObject};
use poolhouse::dsl::{Need, Owned};
use poolhouse::ondisk::{Ashift, DmuType};
use poolhouse::spa::engine::PoolWriter;
use poolhouse::stream::Forms;
use serde_json::json;
use std::path::Path;

/// How many blocks or files change.
const CHANGED: u64 = 1000;
/// Bytes of a block.
const BLOCK: u32 = 512;
/// Blocks or files of one transaction.
const AT_ONCE: u64 = 500;

/// What consists of many parts.
#[derive(Clone, Copy)]
enum Kind {
    /// A file of many blocks.
    File,
    /// Many files of a block.
    Tree,
}

/// The many parts.
enum Many {
    File(Dnode),
    Tree(Vec<Dnode>),
}

pub(super) fn run(dir: &Path, done: &mut Phases) -> Result<()> {
    let most = number("BENCH_STREAM_MOST", 100_000)?;
    let geometry = Geometry { ashift: Some(Ashift(9)), cache_bytes: 1 << 30, ..Geometry::default() };
    for (kind, name) in [(Kind::File, "blocks"), (Kind::Tree, "files")] {
        let sizes = std::iter::successors(Some(1000), |n| Some(n * 10)).take_while(|n| *n <= most);
        for unchanged in sizes {
            let stage = Stage::new(dir, &geometry)?;
            let (live, all) = (stage.live()?, unchanged + CHANGED);
            let (owned, first) = object(live, "fs", lz4()?, DmuType::PLAIN_FILE_CONTENTS)?;
            let mut many = match kind {
                Kind::File => Many::File(first),
                Kind::Tree => Many::Tree(Vec::new()),
            };
            many.fill(live, &owned, all)?;
            live.sync_all()?;
            stage.snapshot("fs@a")?;
            let mut whole = Vec::new();
            stage.send("fs@a", None, Forms::default(), &mut whole)?;
            stage.receive("r@a", &whole[..])?;
            let steps = [("together", 1), ("apart", all / CHANGED)];
            for ((how, step), [from, to]) in steps.into_iter().zip([["a", "b"], ["b", "c"]]) {
                let begin = if step == 1 { unchanged / 2 } else { 0 };
                many.change(live, &owned, (0..CHANGED).map(|i| begin + i * step), to.as_bytes()[0])?;
                live.sync_all()?;
                stage.snapshot(&format!("fs@{to}"))?;
                let (to_name, from_name) = (format!("fs@{to}"), format!("fs@{from}"));
                let mut increment = Vec::new();
                let sink = &mut increment;
                let ((), took) = here(|| stage.send(&to_name, Some(&from_name), Forms::default(), sink))?;
                let counts = json!({ "unchanged": unchanged, "changed": CHANGED, "stream": increment.len() });
                done.add(&format!("send {name} {how} {unchanged}"), took, counts.clone());
                let (_, took) = here(|| stage.receive(&format!("r@{to}"), &increment[..]))?;
                done.add(&format!("receive {name} {how} {unchanged}"), took, counts);
            }
            drop(owned);
            live.export()?;
        }
    }
    Ok(())
}

/// The content of a part. It does not compress.
fn content(number: u64, version: u8) -> [u8; BLOCK as usize] {
    let mut seed = (number << 8 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = [0; BLOCK as usize];
    for word in out.chunks_exact_mut(8) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        word.copy_from_slice(&seed.to_le_bytes());
    }
    out
}

impl Many {
    fn fill(&mut self, live: &PoolWriter, owned: &Owned, all: u64) -> Result<()> {
        for first in (0..all).step_by(AT_ONCE as usize) {
            let tx = live.tx_for(owned, Need { bytes: AT_ONCE << 12, netfree: false })?;
            for number in first..all.min(first + AT_ONCE) {
                match self {
                    Many::File(file) => {
                        if number == 0 {
                            file.set_block_size(&tx, BLOCK)?;
                        }
                        file.write_at(&tx, number * u64::from(BLOCK), &content(number, 0))?;
                    }
                    Many::Tree(files) => {
                        let kind = DmuType::PLAIN_FILE_CONTENTS;
                        let spec = NewObject { block_size: BLOCK, ..NewObject::new(kind) };
                        let file = owned.objset().create_object(&tx, &spec)?;
                        file.write_at(&tx, 0, &content(number, 0))?;
                        files.push(file);
                    }
                }
            }
        }
        Ok(())
    }

    fn change(
        &self,
        live: &PoolWriter,
        owned: &Owned,
        which: impl Iterator<Item = u64>,
        version: u8,
    ) -> Result<()> {
        for number in which {
            let tx = live.tx_for(owned, Need { bytes: 1 << 12, netfree: false })?;
            match self {
                Many::File(file) => {
                    file.write_at(&tx, number * u64::from(BLOCK), &content(number, version))?;
                }
                Many::Tree(files) => files[number as usize].write_at(&tx, 0, &content(number, version))?,
            }
        }
        Ok(())
    }
}
