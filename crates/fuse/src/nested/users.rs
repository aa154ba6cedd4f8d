//! Who uses a nested file system.
//!
//! # Theory
//! A mount of its own is found in the tables of mounts of those who have it. What is nested has the
//! device of the mount around it, so that its files are told by their inode numbers, which begin
//! with the dataset's, or by their paths. `/proc` leads to the files of each process: what it has
//! open or mapped, where it is, what it watches (`inotify`). The kernel answers from what it knows,
//! so that nothing waits for a file system that hangs.
//!
//! # Absent
//! Processes that this one may not look at: of others, for a user.

use super::OBJECT_BITS;
use crate::place::look_through;
use crate::system::program;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of one process that are looked at.
const FILES_MAX: usize = 1 << 16;
/// Bytes of what `/proc` says of a process's maps, or of what it watches.
const TEXT_MAX: u64 = 4 << 20;
/// How long it is looked for.
const PATIENCE: Duration = Duration::from_millis(500);

/// The files of a nested file system.
pub(super) struct Files<'a> {
    /// The device of the mount around it.
    pub(super) device: (u32, u32),
    /// The dataset's object number.
    pub(super) dataset: u64,
    /// Where it is mounted.
    pub(super) target: &'a Path,
}

impl Files<'_> {
    /// Processes that use one of them, and their programs: at most `most`.
    pub(super) fn users(&self, most: usize) -> Vec<(u32, String)> {
        let until = Instant::now() + PATIENCE;
        let own = std::process::id();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let used = pids.filter(|pid| *pid != own).take_while(|_| Instant::now() < until);
        used.filter(|pid| self.used_by(*pid)).map(|pid| (pid, program(pid))).take(most).collect()
    }

    fn used_by(&self, pid: u32) -> bool {
        let at = PathBuf::from(format!("/proc/{pid}"));
        let open = fs::read_dir(at.join("fd")).into_iter().flatten().flatten().take(FILES_MAX);
        ["cwd", "root", "exe"].iter().any(|link| self.has_link(&at.join(link)))
            || text(&at.join("maps")).split(|byte| *byte == b'\n').any(|line| self.maps(line))
            || open.map(|entry| entry.path()).any(|link| self.has_link(&link) || self.watched(&link))
    }

    fn has(&self, device: (u32, u32), ino: u64, path: &Path) -> bool {
        let its = self.dataset != 0 && ino >> OBJECT_BITS == self.dataset;
        device == self.device && (its || path.starts_with(self.target))
    }

    /// Whether a link of `/proc` leads to one.
    fn has_link(&self, link: &Path) -> bool {
        let Ok(stat) = look_through(link) else { return false };
        let path = fs::read_link(link).unwrap_or_default();
        self.has((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino, &path)
    }

    /// Whether a line of `maps` is of one: `from-to mode offset major:minor inode path`.
    fn maps(&self, line: &[u8]) -> bool {
        let parse = || {
            let line = std::str::from_utf8(line).ok()?;
            let mut words = line.split_ascii_whitespace().skip(3);
            let (major, minor) = words.next()?.split_once(':')?;
            let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
            let ino = words.next()?.parse().ok()?;
            // A path has blanks as they are.
            let path = line.find('/').map_or("", |at| &line[at..]);
            Some(self.has(device, ino, Path::new(path)))
        };
        parse().unwrap_or(false)
    }

    /// Whether an open file is an `inotify` instance that watches one.
    fn watched(&self, link: &Path) -> bool {
        if !fs::read_link(link).is_ok_and(|to| to.as_os_str().as_bytes().ends_with(b"inotify")) {
            return false;
        }
        let (Some(number), Some(process)) = (link.file_name(), link.parent().and_then(Path::parent)) else {
            return false;
        };
        let about = text(&process.join("fdinfo").join(number));
        String::from_utf8_lossy(&about).lines().any(|line| self.watch(line) == Some(true))
    }

    /// The same of a line about it: `inotify wd:1 ino:HEX sdev:HEX …`, with 20 bits of minor.
    fn watch(&self, line: &str) -> Option<bool> {
        let word = |key: &str| {
            let found = line.split(' ').find_map(|word| word.strip_prefix(key))?;
            u64::from_str_radix(found, 16).ok()
        };
        let (ino, device) = (word("ino:")?, u32::try_from(word("sdev:")?).ok()?);
        Some(self.has((device >> 20, device & 0xf_ffff), ino, Path::new("")))
    }
}

fn text(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(TEXT_MAX).read_to_end(&mut text));
    // A process that ends meanwhile, or that is another user's.
    if read.is_err() { Vec::new() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a map and a watch are of a file system if they are on its device, and have its numbers
    /// or its path.
    #[test]
    fn lines_are_told_apart() {
        let files = Files { device: (0, 0x1_2f), dataset: 70, target: Path::new("/m/a b") };
        let ino = (70_u64 << OBJECT_BITS) | 34;
        for (line, its) in [
            (format!("7f00-7f10 r--p 00000000 00:12f {ino}                     /elsewhere"), true),
            ("7f00-7f10 r-xp 00001000 00:12f 9   /m/a b/lib.so (deleted)".to_owned(), true),
            ("7f00-7f10 r-xp 00001000 00:12f 9   /m/a bc".to_owned(), false),
            (format!("7f00-7f10 r--p 00000000 00:12e {ino} /m/a b/f"), false),
            ("7f00-7f10 rw-p 00000000 00:00 0 ".to_owned(), false),
            ("7f00-7f10 rw-p".to_owned(), false),
        ] {
            assert_eq!(files.maps(line.as_bytes()), its, "{line}");
        }
        let watch =
            |ino: u64, device: u32| format!("inotify wd:1 ino:{ino:x} sdev:{device:x} mask:2 ignored_mask:0");
        assert_eq!(files.watch(&watch(ino, 0x12f)), Some(true));
        assert_eq!(files.watch(&watch(ino, 0x10_012f)), Some(false));
        assert_eq!(files.watch(&watch(34, 0x12f)), Some(false));
        assert_eq!(files.watch("pos: 0"), None);
    }
}
