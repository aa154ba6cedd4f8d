//! File systems that are meant to harm, and what several of them take.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::{Compressor, Options, estimate_file_systems};
use codec::compress::ZstdLevel;
use ondisk::CompressKind;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A file: its contents, or the names of a directory.
#[derive(Clone)]
enum Made {
    File(Vec<u8>),
    Folder(Vec<(&'static str, u64)>),
}

/// File systems with the root 1. One without files can't be read.
struct Memory {
    each: Vec<HashMap<u64, Made>>,
    /// The generation of files when they are read.
    later: u64,
}

impl Memory {
    fn new(each: &[&[(u64, Made)]]) -> Self {
        Self { each: each.iter().map(|files| files.iter().cloned().collect()).collect(), later: 7 }
    }

    fn made(&self, system: usize, number: u64) -> io::Result<&Made> {
        self.each[system].get(&number).ok_or_else(|| io::Error::other("there is no such file"))
    }
}

impl FileSystems for Memory {
    fn count(&self) -> usize {
        self.each.len()
    }

    fn name(&self, system: usize) -> PathBuf {
        format!("system-{system}").into()
    }

    fn root(&self, system: usize) -> io::Result<Node> {
        self.node(system, 1)
    }

    fn node(&self, system: usize, number: u64) -> io::Result<Node> {
        let (kind, size) = match self.made(system, number)? {
            Made::File(bytes) => (Kind::Regular, bytes.len() as u64),
            Made::Folder(names) => (Kind::Directory, names.len() as u64 + 2),
        };
        let (links, mode, times) = (1, 0o100_644, [[0; 2]; 2]);
        Ok(Node { number, generation: 7, kind, size, sparse: false, links, mode, uid: 0, gid: 0, times })
    }

    fn list(&self, system: usize, folder: u64, each: &mut dyn FnMut(&[u8], u64)) -> io::Result<()> {
        if let Made::Folder(names) = self.made(system, folder)? {
            names.iter().for_each(|(name, number)| each(name.as_bytes(), *number));
        }
        Ok(())
    }

    fn read(
        &self,
        system: usize,
        file: Wanted,
        data: &mut [u8],
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()> {
        let Made::File(bytes) = self.made(system, file.number)? else { panic!("it is a directory") };
        if file.generation != self.later {
            return Err(io::Error::other("it was replaced"));
        }
        data.copy_from_slice(&bytes[file.from as usize..][..data.len()]);
        found(0..data.len());
        Ok(())
    }
}

fn options() -> Options {
    let off = Compressor { name: "off".into(), kind: CompressKind::Off, level: ZstdLevel::DEFAULT };
    Options {
        records: vec![4096],
        compressors: vec![off],
        ashift: 12,
        sample: None,
        time: None,
        dedup: false,
        cross: false,
        seed: 1,
        threads: 2,
    }
}

/// Goal: directories that contain each other are entered once, and reported. A name without a file,
/// and a file system that can't be read, are reported and left out.
#[test]
fn damaged() {
    let root = Made::Folder(vec![("file", 2), ("loop", 3), ("lost", 9)]);
    let below = Made::Folder(vec![("above", 1), ("self", 3), ("two", 4)]);
    let files = [(1, root), (2, Made::File(vec![1; 100])), (3, below), (4, Made::File(vec![2; 5000]))];
    let report = estimate_file_systems(&Memory::new(&[&[], &files]), &options()).unwrap();
    let found = &report.walked;
    assert_eq!((found.files, found.directories, found.bytes), (2, 2, 5100));
    let failures: Vec<String> =
        report.failures.first.iter().map(|(path, error)| format!("{}: {error}", path.display())).collect();
    let named = [
        "system-0: there is no such file",
        "system-1/lost: there is no such file",
        "system-1/loop/above: the directory has another name already",
        "system-1/loop/self: the directory has another name already",
    ];
    assert_eq!(failures, named);
    assert_eq!(report.rows[0].size - report.rows[0].metadata, 4096 + 8192);
}

/// Goal: a file that was replaced after the walk counts as nothing, and is reported.
#[test]
fn replaced() {
    let files = [(1, Made::Folder(vec![("file", 2)])), (2, Made::File(vec![1; 100]))];
    let replaced = Memory { later: 8, ..Memory::new(&[&files]) };
    let report = estimate_file_systems(&replaced, &options()).unwrap();
    assert_eq!(report.rows[0].size, report.rows[0].metadata);
    assert_eq!(report.failures.first[0].0, Path::new("system-0/file"));
}

/// Goal: each file system has its own metadata, so that two take twice what one takes.
#[test]
fn sums() {
    let files: &[(u64, Made)] = &[(1, Made::Folder(vec![("file", 2)])), (2, Made::File(vec![1; 100]))];
    for sample in [None, Some(1)] {
        let options = Options { sample, ..options() };
        let size =
            |all: &[&[(u64, Made)]]| estimate_file_systems(&Memory::new(all), &options).unwrap().rows[0].size;
        assert_eq!(size(&[files, files, files]), 3 * size(&[files]), "{sample:?}");
    }
}

/// Two file systems with a large file each: zeros, and noise. A read becomes slow after some.
struct Slow {
    fast: usize,
    reads: AtomicUsize,
    /// When slow reads end.
    end: Instant,
}

impl FileSystems for Slow {
    fn count(&self) -> usize {
        2
    }

    fn name(&self, system: usize) -> PathBuf {
        format!("system-{system}").into()
    }

    fn root(&self, system: usize) -> io::Result<Node> {
        self.node(system, 1)
    }

    fn node(&self, _: usize, number: u64) -> io::Result<Node> {
        let (kind, size) = if number == 1 { (Kind::Directory, 3) } else { (Kind::Regular, LARGE) };
        let (links, mode, times) = (1, 0o100_644, [[0; 2]; 2]);
        Ok(Node { number, generation: 7, kind, size, sparse: false, links, mode, uid: 0, gid: 0, times })
    }

    fn list(&self, _: usize, _: u64, each: &mut dyn FnMut(&[u8], u64)) -> io::Result<()> {
        each(b"file", 2);
        Ok(())
    }

    fn read(
        &self,
        system: usize,
        _: Wanted,
        data: &mut [u8],
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()> {
        if self.reads.fetch_add(1, Ordering::SeqCst) >= self.fast {
            while Instant::now() < self.end {
                std::thread::yield_now();
            }
        }
        if system == 1 {
            let mut x = 0x9e37_79b9_7f4a_7c15u64;
            for word in data.chunks_exact_mut(8) {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                word.copy_from_slice(&(x ^ x >> 29).to_le_bytes());
            }
        }
        found(0..data.len());
        Ok(())
    }
}

const LARGE: u64 = 1 << 36;

/// Goal: when the time ends, the sample has only draws of batches that were read whole. So it has
/// not more of the first file systems, which are read first.
#[test]
fn late() {
    let time = Duration::from_secs(3);
    // Of the fourth batch, so few are read that none is of the second file system.
    let slow = Slow { fast: 64 + 6, reads: AtomicUsize::new(0), end: Instant::now() + 2 * time };
    let lz4 = Compressor { name: "lz4".into(), kind: CompressKind::Lz4, level: ZstdLevel::DEFAULT };
    let (records, compressors) = (vec![128 << 10], vec![lz4]);
    let (sample, time, threads) = (Some(1 << 30), Some(time), 1);
    let options = Options { records, compressors, sample, time, threads, ..options() };
    let report = estimate_file_systems(&slow, &options).unwrap();
    assert_eq!((report.draws, report.read), (64, 64 << 17));
    let row = &report.rows[0];
    assert!(row.size.abs_diff(LARGE + row.metadata) <= row.error, "{row:?}");
}

/// Goal: directories with long paths take a bounded amount of memory until they are entered. Those
/// beyond, and those with too long a path, are reported and left out.
#[test]
fn many_long_paths() {
    let name = |first: u64, len: usize| -> &'static str { format!("{first:0len$}").leak() };
    let folder = |names: Vec<(&'static str, u64)>| Made::Folder(names);
    let depth = PATH_MAX as u64 / 256 - 1;
    let mut files: Vec<(u64, Made)> = (1..=depth).map(|n| (n, folder(vec![(name(n, 255), n + 1)]))).collect();
    let most = TODO_MAX as u64 / (256 * depth);
    let below = (1..=most).map(|n| (name(n, 200), 1000 + n));
    files.push((depth + 1, folder(below.chain([(name(0, 255 * 2), 999)]).collect())));
    files.extend((0..=most).map(|n| (999 + n, folder(Vec::new()))));
    let report = estimate_file_systems(&Memory::new(&[&files]), &options()).unwrap();
    let (found, failures) = (report.walked.directories, &report.failures);
    assert_eq!(found + failures.count, depth + 2 + most);
    let memory = (found - depth - 1) * (255 * depth + 200);
    assert!(failures.count > most / 20 && memory <= TODO_MAX as u64, "{found} {}", failures.count);
    let why = |at: usize| failures.first[at].1.to_string();
    assert!(why(0).contains("4096 bytes") && why(1).contains("too many directories"), "{failures:?}");
}
