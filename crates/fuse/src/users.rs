//! The processes and loop devices that use a file system.
//!
//! # Theory
//! `/proc` shows the files of each process:
//!
//! * open and mapped files;
//! * its working directory, root directory and program;
//! * files that it watches (`inotify`);
//! * sockets with a name in the file system.
//!
//! The kernel answers from memory, so nothing waits for a file system that hangs.
//!
//! A file system with a mount of its own is identified by its device and its mount ID. A copy of
//! the mount in another mount namespace doesn't keep ours busy, unless one unmount removes both. So
//! users of copies count only where there are no others.
//!
//! A nested file system has the device of the mount around it. Its files are identified by their
//! inode numbers, which begin with the dataset's object number, or by their paths.
//!
//! A watch keeps a nested file system busy, but not a mount.
//!
//! # Absent
//! * Processes that this one may not inspect: for a user, those of other users.
//! * Threads with a working directory of their own.
//! * Sockets bound to a relative path.

use crate::nested::OBJECT_BITS;
use crate::place::look_through;
use crate::system::{process, program};
use rustix::fs::StatxFlags;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many open files of one process are inspected.
const FILES_MAX: usize = 1 << 16;
/// How many bytes are read of one file in `/proc`: the maps or watches of a process, or the list of
/// Unix sockets.
const TEXT_MAX: u64 = 4 << 20;
/// How long one search may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// What distinguishes the files of a file system from others on its device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// Nothing: all files of the device are its own. If this mount ID is known, the files must be
    /// reached through that mount.
    Mount(Option<u64>),
    /// It is nested, and its dataset has this object number.
    Dataset(u64),
}

/// The files of a file system.
pub(crate) struct Files<'a> {
    /// The device of the mount that holds them.
    pub(crate) device: (u32, u32),
    pub(crate) which: Which,
    /// Where the file system is mounted.
    pub(crate) target: &'a Path,
}

/// What the kernel shows of a file.
struct Seen<'a> {
    device: (u32, u32),
    ino: u64,
    /// The ID of the mount through which the file is reached.
    mount: Option<u64>,
    path: &'a Path,
}

impl Files<'_> {
    /// Processes that use one of the files, with the names of their programs. At most `most`
    /// entries.
    pub(crate) fn users(&self, most: usize) -> Vec<(u32, String)> {
        self.pids().map(|pid| (pid, program(pid))).take(most).collect()
    }

    /// Descriptions of what uses one of the files: processes and loop devices, at most `most`.
    ///
    /// `asker` is the process that requests the unmount. It is left out unless it is the only user.
    /// This process is left out likewise.
    pub(crate) fn holders(&self, most: usize, asker: Option<u32>) -> Vec<String> {
        let mut asks = false;
        let others = self.pids().filter(|pid| {
            let other = Some(*pid) != asker;
            asks |= !other;
            other
        });
        let mut found: Vec<_> = others.map(process).chain(self.loops()).take(most).collect();
        if let Some(pid) = asker.filter(|_| asks && found.is_empty()) {
            found.push(process(pid));
        }
        if found.is_empty() {
            found.extend(self.own());
        }
        found
    }

    /// A description of this process, if it has one of the files open: a device of a pool, for
    /// example.
    fn own(&self) -> Option<String> {
        let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let link = open.map(|entry| entry.path()).find(|link| self.has_link(link))?;
        let file = fs::read_link(link).ok()?;
        Some(format!("this daemon, which has {} open", file.display()))
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        let until = Instant::now() + PATIENCE;
        let own = std::process::id();
        let sockets = self.sockets(&text(Path::new("/proc/net/unix")));
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let used = pids.filter(move |pid| *pid != own).take_while(move |_| Instant::now() < until);
        used.filter(move |pid| self.used_by(*pid, &sockets))
    }

    fn used_by(&self, pid: u32, sockets: &BTreeSet<u64>) -> bool {
        let at = PathBuf::from(format!("/proc/{pid}"));
        let open = fs::read_dir(at.join("fd")).into_iter().flatten().flatten().take(FILES_MAX);
        ["cwd", "root", "exe"].iter().any(|link| self.has_link(&at.join(link)))
            || text(&at.join("maps")).split(|byte| *byte == b'\n').any(|line| self.maps(&at, line))
            || open
                .map(|entry| entry.path())
                .any(|link| self.has_link(&link) || is_socket(&link, sockets) || self.watched(&link))
    }

    fn has(&self, seen: &Seen<'_>) -> bool {
        let its = match self.which {
            Which::Mount(own) => seen.mount.is_none() || own.is_none() || seen.mount == own,
            Which::Dataset(dataset) => {
                let numbered = dataset != 0 && seen.ino >> OBJECT_BITS == dataset;
                numbered || seen.path.starts_with(self.target)
            }
        };
        seen.device == self.device && its
    }

    /// Whether a link in `/proc` leads to one of the files.
    fn has_link(&self, link: &Path) -> bool {
        self.link(link).unwrap_or(false)
    }

    /// As [`Files::has_link`]. `None` if the target can't be determined.
    fn link(&self, link: &Path) -> Option<bool> {
        let stat = look_through(link).ok()?;
        let path = fs::read_link(link).unwrap_or_default();
        let mount = (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id);
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        Some(self.has(&Seen { device, ino: stat.stx_ino, mount, path: &path }))
    }

    /// Whether a line in the maps of a process is for one of the files. `at` is the process's
    /// folder in `/proc`.
    ///
    /// Format: `from-to mode offset major:minor inode path`.
    fn maps(&self, at: &Path, line: &[u8]) -> bool {
        let parse = || {
            let line = std::str::from_utf8(line).ok()?;
            let mut words = line.split_ascii_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let (major, minor) = words.nth(2)?.split_once(':')?;
            let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
            let ino = words.next()?.parse().ok()?;
            // A path may contain blanks, so it is the rest of the line.
            let path = line.find('/').map_or("", |at| &line[at..]);
            let its = self.has(&Seen { device, ino, mount: None, path: Path::new(path) });
            // Only root may follow this link, and learn through which mount the file was opened.
            let [from, to] = [from, to].map(|number| number.trim_start_matches('0'));
            let link = || self.link(&at.join("map_files").join(format!("{from}-{to}")));
            Some(its && link().unwrap_or(true))
        };
        parse().unwrap_or(false)
    }

    /// Whether an open file is an `inotify` instance that watches one of the files.
    fn watched(&self, link: &Path) -> bool {
        if matches!(self.which, Which::Mount(_))
            || !fs::read_link(link).is_ok_and(|to| to.as_os_str().as_bytes().ends_with(b"inotify"))
        {
            return false;
        }
        let (Some(number), Some(process)) = (link.file_name(), link.parent().and_then(Path::parent)) else {
            return false;
        };
        let about = text(&process.join("fdinfo").join(number));
        String::from_utf8_lossy(&about).lines().any(|line| self.watch(line) == Some(true))
    }

    /// As [`Files::watched`], for one line of its description: `inotify wd:1 ino:HEX sdev:HEX …`.
    /// The minor device number has 20 bits.
    fn watch(&self, line: &str) -> Option<bool> {
        let word = |key: &str| {
            let found = line.split(' ').find_map(|word| word.strip_prefix(key))?;
            u64::from_str_radix(found, 16).ok()
        };
        let (ino, device) = (word("ino:")?, u32::try_from(word("sdev:")?).ok()?);
        let device = (device >> 20, device & 0xf_ffff);
        Some(self.has(&Seen { device, ino, mount: None, path: Path::new("") }))
    }

    /// The inode numbers of sockets with a name in the file system.
    ///
    /// Format of the table: `number: references protocol flags type state inode path`.
    fn sockets(&self, table: &[u8]) -> BTreeSet<u64> {
        let parse = |line: &[u8]| {
            let line = line.trim_ascii();
            let at = line.windows(2).position(|two| two == b" /")? + 1;
            let mut words = std::str::from_utf8(&line[..at]).ok()?.split_ascii_whitespace();
            let inode = words.nth(6)?;
            // If a word follows, the blank was part of an abstract name, which is not a path.
            let is_path = words.next().is_none();
            let path = PathBuf::from(OsString::from_vec(line[at..].to_vec()));
            (is_path && path.starts_with(self.target)).then(|| inode.parse().ok())?
        };
        table.split(|byte| *byte == b'\n').filter_map(parse).collect()
    }

    /// Loop devices over files in the file system. No process has these files open.
    fn loops(&self) -> impl Iterator<Item = String> {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        disks.filter_map(|disk| {
            let file = text(&disk.path().join("loop/backing_file"));
            let file = PathBuf::from(OsString::from_vec(file.trim_ascii_end().to_vec()));
            let its = file.starts_with(self.target);
            its.then(|| format!("/dev/{}, which is over {}", disk.file_name().display(), file.display()))
        })
    }
}

/// Whether an open file is one of these sockets.
fn is_socket(link: &Path, sockets: &BTreeSet<u64>) -> bool {
    let number = |to: &Path| {
        let inode = to.as_os_str().to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    };
    let inode = || number(&fs::read_link(link).ok()?);
    !sockets.is_empty() && inode().is_some_and(|inode: u64| sockets.contains(&inode))
}

fn text(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(TEXT_MAX).read_to_end(&mut text));
    // A process that has ended meanwhile, or another user's.
    if read.is_err() { Vec::new() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a map or watch counts if it is on the device of the file system, and its inode number
    /// or path is in it.
    #[test]
    fn lines_are_told_apart() {
        let files = Files { device: (0, 0x1_2f), which: Which::Dataset(70), target: Path::new("/m/a b") };
        let ino = (70_u64 << OBJECT_BITS) | 34;
        for (line, its) in [
            (format!("7f00-7f10 r--p 00000000 00:12f {ino}                     /elsewhere"), true),
            ("7f00-7f10 r-xp 00001000 00:12f 9   /m/a b/lib.so (deleted)".to_owned(), true),
            ("7f00-7f10 r-xp 00001000 00:12f 9   /m/a bc".to_owned(), false),
            (format!("7f00-7f10 r--p 00000000 00:12e {ino} /m/a b/f"), false),
            ("7f00-7f10 rw-p 00000000 00:00 0 ".to_owned(), false),
            ("7f00-7f10 rw-p".to_owned(), false),
        ] {
            assert_eq!(files.maps(Path::new("/proc/none"), line.as_bytes()), its, "{line}");
        }
        let watch =
            |ino: u64, device: u32| format!("inotify wd:1 ino:{ino:x} sdev:{device:x} mask:2 ignored_mask:0");
        assert_eq!(files.watch(&watch(ino, 0x12f)), Some(true));
        assert_eq!(files.watch(&watch(ino, 0x10_012f)), Some(false));
        assert_eq!(files.watch(&watch(34, 0x12f)), Some(false));
        assert_eq!(files.watch("pos: 0"), None);
    }

    /// Goal: a mount is identified by its device, and by the mount ID where that is known.
    #[test]
    fn mounts_are_told_apart() {
        let of = |device, mount| Seen { device, ino: 3, mount, path: Path::new("/elsewhere/f") };
        let has = |own, seen| {
            let target = Path::new("/m");
            Files { device: (0, 9), which: Which::Mount(own), target }.has(&seen)
        };
        for (own, device, mount, its) in [
            (Some(5), (0, 9), Some(5), true),
            (Some(5), (0, 9), Some(6), false),
            (Some(5), (0, 9), None, true),
            (None, (0, 9), Some(6), true),
            (Some(5), (0, 8), Some(5), false),
        ] {
            assert_eq!(has(own, of(device, mount)), its, "{own:?} {device:?} {mount:?}");
        }
    }

    /// Goal: the list of sockets yields those with a name in the file system, whatever the name,
    /// and no others.
    #[test]
    fn sockets_have_names() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 11 /m/a b/s o\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12 /m/a bc\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 13 @/m/a b/s\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 16 @x /m/a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 14\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 15 /m/a b/\xff\n";
        let files = Files { device: (0, 9), which: Which::Mount(None), target: Path::new("/m/a b") };
        assert_eq!(files.sockets(table).into_iter().collect::<Vec<_>>(), [11, 15]);
    }
}
