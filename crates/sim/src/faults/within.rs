//! Faults that redundancy makes up for. No user of the pool notices them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ondisk::label::LABEL_START_SIZE;
use ondisk::{BlkId, Blkptr, Guid, Level, ObjNum};
use poolhouse::Pool;
use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;
use vdev::inject::{self, ALWAYS, Bad, Blocks, On, Target, Wrong};
use zpl::FileSystem;

use super::base::{
    Base, POOL, SIZE, SPACE, damaged, file_system, finish, image, import, judge, live, noise, scrub, write,
};
use super::{Failure, Fault, Outcome, Trial};
use crate::chain;
use crate::crash::SplitMix;

/// Bytes that are read and written at a time.
const STEP: usize = 1 << 20;

/// The injected faults of a trial. Dropping it removes them.
pub(super) struct Injected(Guid);

impl Injected {
    pub(super) fn into(pool: &Pool) -> Injected {
        Injected(pool.spa().guid())
    }

    pub(super) fn add(&self, target: Target) -> Result<(), Failure> {
        let fault = inject::Fault { pool: self.0, target, often: ALWAYS };
        inject::add(fault).map(drop).ok_or_else(|| "there are too many faults".into())
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        inject::forget(self.0);
    }
}

/// Overwrites a range of an image. Zeros become a hole.
pub(super) fn overwrite(
    image: &Path,
    at: std::ops::Range<u64>,
    fault: Fault,
    old: &Path,
) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).open(image)?;
    let before = File::open(old)?;
    if matches!(fault, Fault::Zeros | Fault::Stale) {
        fallocate(
            &file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            at.start,
            at.end - at.start,
        )?;
    }
    let mut pos = at.start;
    while pos < at.end && fault != Fault::Zeros {
        let len = (STEP as u64).min(at.end - pos) as usize;
        let mut bytes = vec![0; len];
        match fault {
            Fault::Stale => before.read_exact_at(&mut bytes, pos)?,
            _ => bytes = noise(pos, len),
        }
        if bytes.iter().any(|b| *b != 0) {
            file.write_all_at(&bytes, pos)?;
        }
        pos += len as u64;
    }
    Ok(())
}

/// The end of the last nonzero step in the space for blocks of an image.
fn used(image: &Path) -> Result<u64, Failure> {
    let file = File::open(image)?;
    let mut buf = vec![0; STEP];
    let mut end = SPACE.start;
    let mut pos = SPACE.start;
    while pos < SPACE.end {
        let len = (STEP as u64).min(SPACE.end - pos) as usize;
        file.read_exact_at(&mut buf[..len], pos)?;
        if buf[..len].iter().any(|b| *b != 0) {
            end = pos + len as u64;
        }
        pos += len as u64;
    }
    Ok(end)
}

/// Gives a device a fault before the pool is imported.
fn harm(base: &Base, dir: &Path, away: &Path, device: usize, fault: Fault) -> Result<(), Failure> {
    let (name, old) = (image(device), base.old.path().join(image(device)));
    let path = dir.join(&name);
    match fault {
        Fault::Gone => std::fs::rename(&path, away.join(&name))?,
        Fault::Past => overwrite(&path, 0..SIZE, Fault::Stale, &old)?,
        Fault::Errors => {}
        Fault::Random => {
            let bytes = used(&path)? - SPACE.start;
            let mut dice = SplitMix(device as u64 ^ 0xfa17);
            for _ in 0..if bytes == 0 { 0 } else { 60 } {
                let start = SPACE.start + dice.below(bytes);
                let most = 1 << (4 + dice.below(14));
                let len = 1 + dice.below(most);
                overwrite(&path, start..(start + len).min(SPACE.end), fault, &old)?;
            }
        }
        Fault::Whole => overwrite(&path, SPACE.start..used(&path)?, fault, &old)?,
        Fault::Stale | Fault::Zeros => overwrite(&path, SPACE, fault, &old)?,
    }
    Ok(())
}

/// The guid of a device, by its path.
pub(super) fn guid(pool: &Pool, device: usize) -> Result<Guid, Failure> {
    let config = pool.spa().config();
    let is = |path: &[u8]| path.ends_with(format!("/{}", image(device)).as_bytes());
    let mut leaves = config.vdev_tree.iter().flat_map(|root| root.leaves());
    let found = leaves.find(|leaf| leaf.path.as_deref().is_some_and(is));
    found.map(|leaf| leaf.guid).ok_or_else(|| format!("there is no device {device}").into())
}

pub(super) fn read(fs: &FileSystem, name: &str, at: usize, len: usize) -> Result<Vec<u8>, Failure> {
    let object = fs.lookup(fs.root(), name.as_bytes())?;
    let mut bytes = vec![0; len];
    let got = fs.read(object, at as u64, &mut bytes).map_err(|e| chain(&e))?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Checks that every file has the written bytes.
pub(super) fn compare(base: &Base, fs: &FileSystem, but: Option<&str>) -> Result<(), Failure> {
    for (name, bytes) in base.files.iter().filter(|(name, _)| Some(name.as_str()) != but) {
        let got = read(fs, name, 0, bytes.len() + 1).map_err(|e| format!("{name}: {e}"))?;
        if got != *bytes {
            return Err(format!("{name} has other bytes").into());
        }
    }
    Ok(())
}

/// All blocks of all files, with their block pointers.
fn blocks(base: &Base, pool: &Pool, fs: &FileSystem) -> Result<Vec<(ObjNum, u8, u64, Blkptr)>, Failure> {
    let os = pool.dataset(POOL)?.objset()?;
    let mut out = Vec::new();
    for name in base.files.keys() {
        let object = fs.lookup(fs.root(), name.as_bytes())?;
        let dnode = os.dnode(object)?;
        let blocks = dnode.max_size().div_ceil(dnode.block_size());
        for level in 0..dnode.phys().nlevels {
            let last = if level == 0 { blocks } else { 1 };
            for blkid in 0..last {
                out.push((object, level, blkid, dnode.bp(Level(level), BlkId(blkid))?));
            }
        }
    }
    Ok(out)
}

/// Gives copies of each block of a pool on one disk a fault.
fn harm_copies(base: &Base, dir: &Path, faults: &[(usize, Fault)]) -> Result<(), Failure> {
    let pool = import(dir)?;
    let fs = file_system(&pool)?;
    let all = blocks(base, &pool, &fs)?;
    drop(fs);
    pool.export()?;
    drop(pool);
    for (_, _, _, bp) in all {
        let Some(s) = bp.stored() else { continue };
        for (copy, fault) in faults.iter().filter(|(_, fault)| *fault != Fault::Errors) {
            let Some(dva) = s.copies().nth(*copy) else { continue };
            let at = LABEL_START_SIZE + dva.offset.0;
            overwrite(&dir.join(image(0)), at..at + dva.asize.0, *fault, &base.old.path().join(image(0)))?;
        }
    }
    Ok(())
}

fn inject_all(base: &Base, pool: &Pool, faults: &[(usize, Fault)]) -> Result<Injected, Failure> {
    let injected = Injected::into(pool);
    let errors: Vec<usize> = faults.iter().filter(|(_, f)| *f == Fault::Errors).map(|(d, _)| *d).collect();
    if !base.kind.is_ditto() {
        for device in errors {
            let leaf = guid(pool, device)?;
            injected.add(Target::Leaf { leaf, on: Some(On::Read), wrong: Wrong::Error(5) })?;
        }
        return Ok(injected);
    }
    let copies = errors.iter().fold(0, |all, n| all | 1u32 << n);
    if copies != 0 {
        let objset = pool.dataset(POOL)?.dsl().object().0;
        let fs = file_system(pool)?;
        for (object, level, blkid, _) in blocks(base, pool, &fs)? {
            let blkid = blkid..blkid + 1;
            injected.add(Target::Data(Blocks {
                objset,
                object: object.0,
                level,
                blkid,
                copies,
                how: Bad::Io,
            }))?;
        }
    }
    Ok(injected)
}

fn expect_clean(pool: &Pool, fs: &FileSystem, what: &str, repaired: Option<bool>) -> Result<(), Failure> {
    let stat = scrub(pool)?;
    let names = damaged(pool, fs)?;
    if stat.phys.errors != 0 || !names.is_empty() {
        return Err(format!("{what}: {} errors, damaged {names:?}", stat.phys.errors).into());
    }
    match repaired {
        Some(any) if any != (stat.phys.processed > 0) => {
            Err(format!("{what}: {} bytes repaired", stat.phys.processed).into())
        }
        _ => Ok(()),
    }
}

impl Base {
    /// Runs a trial.
    ///
    /// # Errors
    /// [`Failure`]: a check of the trial failed (see the module's theory), or the pool could not be
    /// imported, written or exported.
    pub fn run(&self, trial: &Trial) -> Result<Outcome, Failure> {
        match trial {
            Trial::Within(faults) => self.within(faults).map(|()| Outcome::Tried),
            Trial::Beyond(faults) => self.beyond(faults),
        }
    }

    fn within(&self, faults: &[(usize, Fault)]) -> Result<(), Failure> {
        let (dir, away) = (self.copy(), TempDir::new()?);
        if self.kind.is_ditto() {
            harm_copies(self, dir.path(), faults)?;
        } else {
            faults.iter().try_for_each(|(d, fault)| harm(self, dir.path(), away.path(), *d, *fault))?;
        }
        let has = |fault: Fault| faults.iter().any(|(_, f)| *f == fault);
        let mut pool = import(dir.path())?;
        let injected = inject_all(self, &pool, faults)?;
        let mut fs = file_system(&pool)?;
        compare(self, &fs, None)?;
        let missed = noise(9, 300_000);
        if has(Fault::Gone) {
            write(&fs, "missed", &missed)?;
        }
        expect_clean(&pool, &fs, "the first scrub", None)?;
        drop(injected);
        // A device with many errors may have been replaced by a spare by now. The next scrub writes
        // what the spare lacks.
        live(&pool)?.monitor().run_now();
        expect_clean(&pool, &fs, "the scrub in between", None)?;
        if has(Fault::Gone) {
            drop(fs);
            pool.export()?;
            drop(pool);
            for entry in std::fs::read_dir(away.path())? {
                let entry = entry?;
                std::fs::rename(entry.path(), dir.path().join(entry.file_name()))?;
            }
            pool = import(dir.path())?;
            fs = file_system(&pool)?;
            while !pool.spa().tree().behind().is_empty() {
                finish(&pool)?;
            }
        }
        // Blocks that were unreadable before, or that reads have repaired, may need no repair now.
        expect_clean(&pool, &fs, "the second scrub", Some(false))?;
        pool.spa().cache().purge();
        compare(self, &fs, None)?;
        if has(Fault::Gone) && read(&fs, "missed", 0, missed.len())? != missed {
            return Err("what was written while a device was away has other bytes".into());
        }
        live(&pool)?.sync_all()?;
        drop(fs);
        pool.export()?;
        drop(pool);
        judge(dir.path())
    }
}
