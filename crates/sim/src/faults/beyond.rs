//! One fault more than redundancy makes up for, in one block. The error names the block's file, and
//! all else is unchanged.

use std::path::Path;

use ondisk::{BlkId, Guid, Level, Psize};
use poolhouse::Pool;
use tempfile::TempDir;
use vdev::inject::{Bad, Blocks, Target};
use zpl::FileSystem;

use super::base::{Base, LATE, POOL, damaged, file_system, finish, image, import, judge, live, scrub};
use super::within::{Injected, compare, guid, overwrite, read};
use super::{Failure, Fault, Outcome};

const BYTES: usize = 1 << 17;

/// A range of a device, by its number, that holds a part of the block.
struct Piece {
    device: usize,
    copy: usize,
    range: std::ops::Range<u64>,
}

fn pieces(base: &Base, pool: &Pool, fs: &FileSystem, block: u64) -> Result<Vec<Piece>, Failure> {
    let object = fs.lookup(fs.root(), LATE.0.as_bytes())?;
    let bp = pool.dataset(POOL)?.objset()?.dnode(object)?.bp(Level(0), BlkId(block))?;
    let s = bp.stored().ok_or("the block is stored")?;
    let guids: Vec<Guid> = (0..base.kind.devices()).map(|d| guid(pool, d)).collect::<Result<_, _>>()?;
    let tree = pool.spa().tree();
    let mut out = Vec::new();
    for (copy, dva) in s.copies().enumerate() {
        for at in tree.pieces_of(dva.vdev, dva.offset.0, Psize(s.psize.0), s.phys_birth)? {
            let device = guids.iter().position(|g| *g == at.device).ok_or("a piece is on a device")?;
            out.push(Piece { device, copy, range: at.range });
        }
    }
    Ok(out)
}

/// Checks that only the block can't be read, and that all else has the written bytes.
fn only_the_block_is_lost(base: &Base, fs: &FileSystem, block: u64) -> Result<(), Failure> {
    compare(base, fs, Some(LATE.0))?;
    let bytes = &base.files[LATE.0];
    let object = fs.lookup(fs.root(), LATE.0.as_bytes())?;
    for (n, want) in bytes.chunks(BYTES).enumerate() {
        match read(fs, LATE.0, n * BYTES, want.len()) {
            Ok(got) if got != want => return Err(format!("block {n} has other bytes").into()),
            Ok(_) if n as u64 == block => return Err("the block was read, who knows how".into()),
            Ok(_) => {}
            Err(e) if n as u64 != block => return Err(format!("block {n}: {e}").into()),
            // The error that the reader gets must name the object.
            Err(e) if !e.to_string().contains(&format!("{}", object.0)) => {
                return Err(format!("the error does not name object {}: {e}", object.0).into());
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn expect_named(pool: &Pool, fs: &FileSystem) -> Result<(), Failure> {
    let (names, want) = (damaged(pool, fs)?, vec![format!("{POOL}:/{}", LATE.0)]);
    if names == want { Ok(()) } else { Err(format!("damaged are {names:?} and not {want:?}").into()) }
}

fn let_go(fs: FileSystem, pool: Pool) -> Result<(), Failure> {
    drop(fs);
    pool.export()?;
    Ok(())
}

impl Base {
    /// The number of the device, or of the copy, of a part.
    fn number(&self, piece: &Piece) -> usize {
        if self.kind.is_ditto() { piece.copy } else { piece.device }
    }

    /// A block with a part on each of these devices, and its parts.
    ///
    /// `None` if there is no such block, as some vdevs put a block on some of their devices only.
    fn victim(&self, dir: &Path, faults: &[(usize, Fault)]) -> Result<Option<(u64, Vec<Piece>)>, Failure> {
        let pool = import(dir)?;
        let fs = file_system(&pool)?;
        let mut found = None;
        for block in 0..(LATE.2 / BYTES) as u64 {
            let pieces = pieces(self, &pool, &fs, block)?;
            if faults.iter().all(|(n, _)| pieces.iter().any(|piece| self.number(piece) == *n)) {
                found = Some((block, pieces));
                break;
            }
        }
        let_go(fs, pool)?;
        Ok(found)
    }

    pub(super) fn beyond(&self, faults: &[(usize, Fault)]) -> Result<Outcome, Failure> {
        let (dir, away) = (self.copy(), TempDir::new()?);
        let Some((block, pieces)) = self.victim(dir.path(), faults)? else {
            return Ok(Outcome::Untried);
        };
        let hit = |n: usize| pieces.iter().filter(move |piece| self.number(piece) == n);
        for (n, fault) in faults {
            match fault {
                Fault::Gone => std::fs::rename(dir.path().join(image(*n)), away.path().join(image(*n)))?,
                Fault::Errors => {}
                _ => {
                    for piece in hit(*n) {
                        let (name, old) = (image(piece.device), self.old.path().join(image(piece.device)));
                        overwrite(&dir.path().join(name), piece.range.clone(), *fault, &old)?;
                    }
                }
            }
        }
        let pool = import(dir.path())?;
        let fs = file_system(&pool)?;
        let injected = self.unreadable(&pool, &fs, faults, block)?;
        only_the_block_is_lost(self, &fs, block)?;
        expect_named(&pool, &fs)?;
        let errors = scrub(&pool)?.phys.errors;
        if errors != 1 {
            return Err(format!("the scrub found {errors} errors").into());
        }
        expect_named(&pool, &fs)?;
        only_the_block_is_lost(self, &fs, block)?;
        drop(injected);
        let_go(fs, pool)?;
        let back = faults.iter().any(|(_, f)| matches!(f, Fault::Gone | Fault::Errors));
        for (n, _) in faults.iter().filter(|(_, f)| *f == Fault::Gone) {
            std::fs::rename(away.path().join(image(*n)), dir.path().join(image(*n)))?;
        }
        self.end(dir.path(), back)?;
        Ok(Outcome::Tried)
    }

    /// Makes all copies of the block unreadable, if that is the fault.
    fn unreadable(
        &self,
        pool: &Pool,
        fs: &FileSystem,
        faults: &[(usize, Fault)],
        block: u64,
    ) -> Result<Injected, Failure> {
        let injected = Injected::into(pool);
        if faults.iter().any(|(_, f)| *f == Fault::Errors) {
            let objset = pool.dataset(POOL)?.dsl().object().0;
            let object = fs.lookup(fs.root(), LATE.0.as_bytes())?.0;
            let blkid = block..block + 1;
            injected.add(Target::Data(Blocks {
                objset,
                object,
                level: 0,
                blkid,
                copies: 0,
                how: Bad::Io,
            }))?;
        }
        Ok(injected)
    }

    /// Checks the pool after the faults are gone.
    ///
    /// If faults ended (`back`), the block must be right again. Otherwise the pool must have no
    /// damage after the file is removed.
    fn end(&self, dir: &Path, back: bool) -> Result<(), Failure> {
        let pool = import(dir)?;
        let fs = file_system(&pool)?;
        while !pool.spa().tree().behind().is_empty() {
            finish(&pool)?;
        }
        let gone = if back {
            None
        } else {
            expect_named(&pool, &fs)?;
            if let Some(object) = fs.unlink(fs.root(), LATE.0.as_bytes())? {
                fs.reap(object)?;
            }
            live(&pool)?.sync_all()?;
            Some(LATE.0)
        };
        for _ in 0..2 {
            let errors = scrub(&pool)?.phys.errors;
            let names = damaged(&pool, &fs)?;
            if errors != 0 || !names.is_empty() {
                return Err(format!("in the end there are {errors} errors, damaged {names:?}").into());
            }
        }
        pool.spa().cache().purge();
        compare(self, &fs, gone)?;
        let_go(fs, pool)?;
        judge(dir)
    }
}
