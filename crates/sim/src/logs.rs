//! Intent logs with impossible records under right checksums. They are claimed and replayed, and
//! the pool is then written.
//!
//! # Theory
//! Each block of a log chain has its own checksum, bound to the chain. So a block can be changed in
//! place. A block that is no log block ends the chain at once, and would test nothing. So the
//! changes are to words of records, mostly to values that are valid elsewhere: object numbers,
//! lengths, kinds.
//!
//! Whatever a log contains, an import must end, nothing may panic, and the pool must stay readable
//! and writable.

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

/// Where the space for blocks begins on a device, after two labels and the boot block.
const LABELS: u64 = 4 << 20;
/// Values for a word of a record.
const WORDS: [u64; 14] =
    [0, 1, 2, 9, 34, 128, 4096, 131_072, 1 << 32, (1 << 48) - 1, 1 << 48, 1 << 61, i64::MAX as u64, u64::MAX];

/// A block of an unencrypted chain.
#[derive(Debug)]
struct Block {
    at: u64,
    sum: [u64; 4],
    contents: Vec<u8>,
    /// Offsets of the records in `contents`.
    records: Vec<usize>,
}

/// A pool with intent logs, for many rounds of damage.
#[derive(Debug)]
pub struct Logs {
    fixture: Fixture,
    blocks: Vec<Block>,
}

/// The result of a round.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Whether the pool could be imported.
    pub imported: bool,
    /// Number of replayed records.
    pub replayed: u64,
    /// Number of logs that ended early, at an impossible record.
    pub ended: u64,
}

impl Logs {
    /// The logs of a fixture on one disk.
    ///
    /// # Panics
    /// The fixture can't be opened, its logs can't be read, or it has fewer than five log blocks.
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

    /// Changes one to four blocks as `seed` determines, imports the pool, replays its logs and
    /// writes.
    ///
    /// # Errors
    /// A description of the failed step:
    ///
    /// * The image can't be changed.
    /// * The datasets can't be listed, or a write after the replay failed.
    /// * The pool can't be exported, or not imported again.
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
        // Words of a record: 0 is the kind, 1 the length, 2 the txg, 3 the sequence number. The
        // rest depends on the kind.
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
            // A log that can't be replayed now is kept. That is a valid outcome.
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
