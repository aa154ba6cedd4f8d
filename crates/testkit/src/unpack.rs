//! Unpacking the files of a fixture once, into `target/fixtures/`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fixture::{Fixture, workspace_root};
use crate::{damage, tar};

/// The directory of unpacked fixtures.
pub(crate) fn cache() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace_root().join("target"), |t| workspace_root().join(t));
    target.join("fixtures")
}

/// Returns the directory `NAME-KEY` of the cache. If it does not exist, `fill` creates it.
fn once(name: &str, key: u64, fill: impl FnOnce(&Path)) -> PathBuf {
    let cache = cache();
    let done = cache.join(format!("{name}-{key:x}"));
    if done.is_dir() {
        return done;
    }
    fs::create_dir_all(&cache).unwrap_or_else(|e| panic!("{}: {e}", cache.display()));
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).unwrap_or_else(|e| panic!("{}: {e}", lock_path.display()));
    lock.lock().unwrap_or_else(|e| panic!("{}: {e}", lock_path.display()));
    if !done.is_dir() {
        let making = cache.join(format!("{name}.making"));
        // An interrupted run left it. The lock excludes all others, so it is safe to remove.
        let _ = fs::remove_dir_all(&making);
        fs::create_dir(&making).unwrap_or_else(|e| panic!("{}: {e}", making.display()));
        fill(&making);
        fs::rename(&making, &done).unwrap_or_else(|e| panic!("{}: {e}", done.display()));
    }
    done
}

/// A key for the version of a source file: its length and a hash (FNV-1a) of both ends.
fn key_of(path: &Path) -> u64 {
    let read_ends = || -> std::io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut bytes = len.to_le_bytes().to_vec();
        for start in [0, len.saturating_sub(4096)] {
            let mut end = vec![0; len.min(4096) as usize];
            file.read_exact_at(&mut end, start)?;
            bytes.append(&mut end);
        }
        Ok(bytes)
    };
    let bytes = read_ends().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

fn unpack_archive(archive: &Path, to: &Path) {
    let file = File::open(archive).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
    let zstd = zstd::Decoder::new(file).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
    tar::unpack(zstd, to).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
}

/// Unpacks a `.tar.zst` of regular files and folders into a folder.
///
/// # Panics
/// If it can't be read or unpacked.
pub fn unpacked(archive: &Path, to: &Path) {
    unpack_archive(archive, to);
}

/// The directory with the images of the fixture NAME, whose source is `dir`.
pub(crate) fn images(name: &str, dir: &Path) -> PathBuf {
    let archive = dir.join("images.tar.zst");
    once(name, key_of(&archive), |to| unpack_archive(&archive, to))
}

/// The directory with those images of `base` that the fixture NAME damages.
pub(crate) fn damaged(name: &str, dir: &Path, base: &Fixture) -> PathBuf {
    let key = key_of(&dir.join("damage.json")) ^ key_of(&base.dir().join("images.tar.zst")).rotate_left(7);
    once(name, key, |to| damage::apply(dir, base, to))
}

/// The directory `what` of a fixture: beside its images, or unpacked from `what.tar.zst`.
pub(crate) fn folder(name: &str, dir: &Path, what: &str) -> PathBuf {
    let plain = dir.join(what);
    let archive = dir.join(format!("{what}.tar.zst"));
    if plain.is_dir() || !archive.is_file() {
        return plain;
    }
    once(&format!("{name}-{what}"), key_of(&archive), |to| unpack_archive(&archive, to)).join(what)
}

/// The names in a directory, sorted. Empty if it does not exist.
pub(crate) fn file_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().into_string().expect("fixture files have UTF-8 names"))
        .collect();
    names.sort();
    names
}

/// The content of the file `path`, or of the compressed file `path.zst`.
pub(crate) fn read_plain_or_zst(path: &Path) -> Option<Vec<u8>> {
    if let Ok(bytes) = fs::read(path) {
        return Some(bytes);
    }
    let mut packed = path.as_os_str().to_owned();
    packed.push(".zst");
    let file = File::open(&packed).ok()?;
    let mut out = Vec::new();
    zstd::Decoder::new(file)
        .and_then(|mut d| d.read_to_end(&mut out))
        .unwrap_or_else(|e| panic!("{}: {e}", Path::new(&packed).display()));
    Some(out)
}
