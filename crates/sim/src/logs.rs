//! Intent logs that say what can't be, under right checksums: claimed, replayed, and the pool written on.
//!
//! # Theory
//! Each block of a chain carries its own checksum, bound to the chain, so that a block may be changed where it lies. Whole blocks that are no log
//! blocks end a chain at once and try nothing: so what is changed are words of records, mostly to what makes sense elsewhere: numbers of objects,
//! lengths, kinds. Whatever a log says, an import must end, nothing may panic, and the pool must be written and read on.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use codec::checksum::Checksum;
use codec::checksum::embedded::{Verifier, seal};
use fuzzing::mutate::Rng;
use ondisk::ChecksumKind;
use ondisk::zil::ZIL_CHAIN_SIZE;
use poolhouse::zpl::Policies;
use poolhouse::{Claim, OpenOptions, Pool, zil};
use testkit::Fixture;

use crate::chain;

/// Where space begins on a device, behind two labels and the boot block.
const LABELS: u64 = 4 << 20;
/// Words that a record may be given.
const WORDS: [u64; 14] =
    [0, 1, 2, 9, 34, 128, 4096, 131_072, 1 << 32, (1 << 48) - 1, 1 << 48, 1 << 61, i64::MAX as u64, u64::MAX];

/// A block of a chain that is not encrypted.
#[derive(Debug)]
struct Block {
    at: u64,
    sum: [u64; 4],
    contents: Vec<u8>,
    /// Where its records begin.
    records: Vec<usize>,
}

/// A pool with logs, to be spoiled again and again.
#[derive(Debug)]
pub struct Logs {
    fixture: Fixture,
    blocks: Vec<Block>,
}

/// What a round came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// The pool could be imported.
    pub imported: bool,
    /// Records that were replayed.
    pub replayed: u64,
    /// Logs that ended at a record that can't be.
    pub ended: u64,
}

impl Logs {
    /// Of a fixture on one disk.
    ///
    /// # Panics
    /// When the fixture's own logs can't be read.
    pub fn of(name: &str) -> Logs {
        let fixture = testkit::load(name);
        let options = OpenOptions { claim: Claim::Nothing, force: true, ..OpenOptions::default() };
        let pool = Pool::open(fixture.images(), &options).expect("a fixture opens");
        let mut blocks = Vec::new();
        for name in pool.dataset_names(false).expect("its datasets can be read").names {
            let os = pool.dataset(&name).and_then(|d| d.objset()).expect("it holds something");
            let synced = pool.spa().last_synced_txg().0;
            let Some(log) = zil::Log::open(&os, synced, 0).expect("its log can be read") else { continue };
            for block in log.blocks().map_while(Result::ok).filter(|b| b.records.is_some()) {
                let Some(s) = block.bp.stored().filter(|s| !s.crypt && s.checksum == ChecksumKind::Zilog2)
                else {
                    continue;
                };
                let dva = s.copies().next().expect("it has a place");
                let contents = log.read_block(&block.bp, ondisk::ObjNum(0), ondisk::BlkId(0));
                let mut at = ZIL_CHAIN_SIZE;
                let mut records = Vec::new();
                for record in block.records.iter().flatten() {
                    records.push(at);
                    at += record.header.reclen;
                }
                let contents = contents.expect("it was read before").to_vec();
                blocks.push(Block { at: dva.offset.0 + LABELS, sum: s.sum, contents, records });
            }
        }
        assert!(blocks.len() > 4, "there are chains to spoil");
        Logs { fixture, blocks }
    }

    /// One to four blocks, changed as `seed` says; the pool is imported, its logs replayed, and something written.
    ///
    /// # Errors
    /// What went wrong that should not, in words.
    pub fn seeded(&self, seed: u64) -> Result<Round, String> {
        let mut rng = Rng::new(seed);
        let copy = self.fixture.copy();
        let image =
            std::fs::OpenOptions::new().write(true).open(&copy.images()[0]).map_err(|e| e.to_string())?;
        let mut changed: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for _ in 0..1 + rng.below(4) {
            let index = rng.below(self.blocks.len());
            let block = &self.blocks[index];
            let contents = changed.entry(index).or_insert_with(|| block.contents.clone());
            spoil(&mut rng, contents, &block.records);
        }
        for (index, mut contents) in changed {
            let block = &self.blocks[index];
            seal(&Verifier::Zilog2(Checksum(block.sum)), &mut contents, None).map_err(|e| e.to_string())?;
            image.write_all_at(&contents, block.at).map_err(|e| e.to_string())?;
        }
        drop(image);
        let mut round = Round::default();
        let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
        let Ok(pool) = Pool::open(&[copy.dir()], &options) else { return Ok(round) };
        round.imported = true;
        replay(&pool, &mut round)?;
        pool.export().map_err(|e| chain(&e))?;
        drop(pool);
        let pool = Pool::open(&[copy.dir()], &options).map_err(|e| chain(&e))?;
        crate::open::walk(&pool);
        pool.export().map_err(|e| chain(&e))?;
        Ok(round)
    }
}

/// Changes a few words of records.
fn spoil(rng: &mut Rng, contents: &mut [u8], records: &[usize]) {
    for _ in 0..1 + rng.below(3) {
        if records.is_empty() {
            return;
        }
        let at = records[rng.below(records.len())];
        // The first word is the kind, the next the length, then group and number, then what it is about.
        let (word, value) = match rng.below(8) {
            0 => (0, 1 + rng.below(24) as u64),
            1 => (2 + rng.below(2), WORDS[rng.below(WORDS.len())]),
            2 => (4 + rng.below(20), rng.next_u64()),
            3 => (4 + rng.below(8), rng.below(300) as u64),
            _ => (4 + rng.below(20), WORDS[rng.below(WORDS.len())]),
        };
        if let Some(place) = contents.get_mut(at + word * 8..at + word * 8 + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
}

fn replay(pool: &Pool, round: &mut Round) -> Result<(), String> {
    for name in pool.dataset_names(false).map_err(|e| chain(&e))?.names {
        let _ = pool.load_key(&name, b"correct horse");
        let Ok(dataset) = pool.dataset(&name) else { continue };
        match pool.replay(dataset.dsl()) {
            Ok(Some(done)) => {
                round.replayed += done.records;
                round.ended += u64::from(done.ended.is_some());
            }
            Ok(None) => {}
            // What can't be applied now stays; that is no panic.
            Err(_) => continue,
        }
        if dataset.volume().is_err()
            && let Ok(fs) = pool.open_for_writing(dataset.dsl(), Policies::default())
        {
            let new = zpl::NewFile::new(zpl::Kind::Regular, 0o644);
            if let Ok(made) = fs.create(fs.root(), b"after the replay", &new) {
                fs.write(made.object, 0, b"something", false)
                    .map_err(|e| format!("{name}: {}", chain(&e)))?;
            }
        }
    }
    Ok(())
}
