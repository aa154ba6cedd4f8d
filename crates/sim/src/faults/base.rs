//! The pools of the trials: created once, copied for each trial.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dsl::{Setting as Property, Value};
use ondisk::feature::{FEATURES, Feature};
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{ObjNum, Txg};
use poolhouse::{OpenOptions, Pool};
use spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, claim_file, create};
use spa::engine::{PoolWriter, ScanCommand, ScanRefusal, ScanStat, SystemWorld};
use tempfile::TempDir;
use zpl::{FileSystem, Kind as NodeKind, NewFile, NewFileSystem, Policies};

use super::{Failure, Kind};
use crate::crash::SplitMix;

/// The name of the pool.
pub(super) const POOL: &str = "tank";
/// Size of each device in bytes.
pub(super) const SIZE: u64 = 128 << 20;
/// The part of a device for blocks: all but its labels.
pub(super) const SPACE: std::ops::Range<u64> = 4 << 20..SIZE - (512 << 10);
/// A file that only the newer state has: its name, the seed of its bytes, and its size.
pub(super) const LATE: (&str, u64, usize) = ("late", 77, 600_000);

/// Contents of files, by name.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// A pool with files, and an older state of it.
pub struct Base {
    pub(super) kind: Kind,
    /// The newer state.
    now: TempDir,
    pub(super) old: TempDir,
    pub(super) files: Files,
}

/// Incompressible bytes that follow from a seed.
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = SplitMix(seed);
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).collect();
    out.truncate(len);
    out
}

fn images(dir: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|n| dir.join(image(n))).collect()
}

/// The name of a device's image.
pub(super) fn image(device: usize) -> String {
    format!("d{device}.img")
}

pub(super) fn live(pool: &Pool) -> Result<&PoolWriter, Failure> {
    pool.spa().writer().ok_or_else(|| "the pool is not open for writing".into())
}

pub(super) fn file_system(pool: &Pool) -> Result<FileSystem, Failure> {
    Ok(pool.open_for_writing(pool.dataset(POOL)?.dsl(), Policies::default())?)
}

pub(super) fn write(fs: &FileSystem, name: &str, bytes: &[u8]) -> Result<ObjNum, Failure> {
    let object = match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(object) => object,
        Err(_) => fs.create(fs.root(), name.as_bytes(), &NewFile::new(NodeKind::Regular, 0o600))?.object,
    };
    for (n, piece) in bytes.chunks(1 << 17).enumerate() {
        fs.write(object, (n as u64) << 17, piece, false)?;
    }
    Ok(object)
}

fn create_pool(kind: &Kind, dir: &Path) -> Result<Pool, Failure> {
    let paths = images(dir, kind.devices());
    paths.iter().try_for_each(|p| File::create(p)?.set_len(SIZE))?;
    let mut rest = paths.into_iter().map(|path| NewLeaf { path });
    let vdev = |p: &super::table::Part| NewVdev {
        shape: p.shape,
        bias: p.bias,
        leaves: rest.by_ref().take(p.devices).collect(),
    };
    let vdevs = kind.parts.iter().map(vdev).collect();
    let new = NewPool { name: POOL.into(), vdevs, ashift: None, force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let begin = Beginning {
        features: &features,
        contents: &NewFileSystem::new((1_700_000_000, 0)),
        props: &vec![Property { name: "copies".into(), value: Value::Number(kind.copies) }],
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let setting = Setting {
        host: &spa::Host { hostid: 1, hostname: "sim".into() },
        world: Arc::new(SystemWorld),
        claimer: &claim_file,
        workers: Arc::new(zio::Workers::new("zio", 2)),
        cache: (32u64 << 20).into(),
        altroot: None,
    };
    Ok(Pool::with_spa(create(&new, &begin, &setting)?, None)?)
}

impl Base {
    /// Creates the pool of a kind.
    ///
    /// # Errors
    /// [`Failure`]: the pool can't be created or written. That is a bug, or the machine lacks
    /// space.
    pub fn new(kind: Kind) -> Result<Base, Failure> {
        let home = TempDir::new()?;
        let pool = create_pool(&kind, home.path())?;
        let mut files = Files::new();
        let fs = file_system(&pool)?;
        let mut put = |name: String, bytes: Vec<u8>| {
            write(&fs, &name, &bytes)?;
            files.insert(name, bytes);
            Ok::<_, Failure>(())
        };
        for n in 0..3 {
            put(format!("large{n}"), noise(n, 500_000))?;
        }
        for n in 0..12 {
            put(format!("small{n}"), noise(100 + n, 300 + 700 * n as usize))?;
        }
        put("text".into(), b"It is a truth universally acknowledged. ".repeat(7000))?;
        live(&pool)?.sync_all()?;
        let old = testkit::copy_of(home.path());
        put("large1".into(), noise(50, 500_000))?;
        (0..6).try_for_each(|n| put(format!("small{n}"), noise(200 + n, 4000 + 900 * n as usize)))?;
        put(LATE.0.into(), noise(LATE.1, LATE.2))?;
        live(&pool)?.sync_all()?;
        // Both states are copies. A device that a trial removes must not be found at the path in
        // its label.
        let now = if kind.has_log() {
            // The pool is left with records in its log, for an import to replay. The first commit
            // waits for a transaction group.
            put("logged0".into(), noise(300, 9000))?;
            fs.fsync(fs.lookup(fs.root(), b"logged0")?)?;
            let hold = live(&pool)?.tx(0)?;
            put("logged1".into(), noise(301, 90_000))?;
            fs.fsync(fs.lookup(fs.root(), b"logged1")?)?;
            live(&pool)?.txgs().wait_synced(Txg(hold.txg().0 - 1))?;
            let left = testkit::copy_of(home.path());
            drop((hold, fs));
            pool.export()?;
            left
        } else {
            drop(fs);
            pool.export()?;
            testkit::copy_of(home.path())
        };
        Ok(Base { kind, now, old, files })
    }

    /// A copy of the newer state, for a trial.
    pub(super) fn copy(&self) -> TempDir {
        testkit::copy_of(self.now.path())
    }
}

/// Imports a copy.
pub(super) fn import(dir: &Path) -> Result<Pool, Failure> {
    let options =
        OpenOptions { write: true, force: true, cache_bytes: Some(32 << 20), ..OpenOptions::default() };
    Pool::open(&[dir], &options).map_err(|e| format!("it is not imported: {}", crate::chain(&e)).into())
}

/// Syncs transaction groups until no scan is running.
pub(super) fn finish(pool: &Pool) -> Result<Option<ScanStat>, Failure> {
    loop {
        live(pool)?.sync_all()?;
        match live(pool)?.scans().stat() {
            Some(stat) if stat.is_scanning() => {}
            stat => return Ok(stat),
        }
    }
}

/// Runs a complete scrub, after the scans that the pool started itself.
///
/// A spare that stands in for a device is resilvered, and that ends a scrub.
pub(super) fn scrub(pool: &Pool) -> Result<ScanStat, Failure> {
    loop {
        finish(pool)?;
        match live(pool)?.scan(ScanCommand::Scrub) {
            Ok(_) => {}
            Err(ScanRefusal::Busy) => continue,
            Err(e) => return Err(e.into()),
        }
        let stat = finish(pool)?.ok_or("there was no scan")?;
        if stat.phys.func == ScanFunc::Scrub && stat.phys.state == ScanState::Finished {
            return Ok(stat);
        }
    }
}

/// The paths of the files in the pool's error log.
pub(super) fn damaged(pool: &Pool, fs: &FileSystem) -> Result<Vec<String>, Failure> {
    let mut out = Vec::new();
    for (dataset, object) in pool.spa().damaged_objects(pool.dsl().heads())? {
        if dataset == 0 {
            out.push(format!("<metadata>:{object:#x}"));
            continue;
        }
        let name = pool.dsl().by_object(ObjNum(dataset))?.name();
        let path = fs.object_path(ObjNum(object));
        out.push(path.map_or(format!("{name}:<{object:#x}>"), |p| {
            format!("{name}:/{}", String::from_utf8_lossy(&p).trim_start_matches('/'))
        }));
    }
    Ok(out)
}

/// Checks an exported pool with OpenZFS's `zdb`, if the environment variable `ZDB` names it.
pub(super) fn judge(dir: &Path) -> Result<(), Failure> {
    let Some(zdb) = std::env::var_os("ZDB") else { return Ok(()) };
    let out = std::process::Command::new(zdb).args(["-e", "-p"]).arg(dir).args(["-bcc", POOL]).output()?;
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    match out.status.success() && text.contains("No leaks") {
        true => Ok(()),
        false => Err(format!("zdb -bcc: {}: {text}", out.status).into()),
    }
}
