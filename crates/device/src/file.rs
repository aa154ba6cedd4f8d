//! Image files and block devices of the system, through `pread` and `pwrite`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use observe::lock::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, OFlags};

use crate::writeback::{self, Writeback};
use crate::{Device, DeviceError, Op, Result, check_range, discard};

use claim::Claim;

mod claim;

/// Most buffers that the system takes at once (`IOV_MAX`).
const IOV_MAX: usize = 1024;

/// Purpose for which a device is opened, which decides what is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To inspect the device, without a claim; its owner may be writing. `zdb` and discovery do
    /// this.
    Peek,
    /// To read beside other readers, while the device has no owner. An image is claimed shared.
    ///
    /// A block device can't be claimed shared. That it has no owner is known only at the moment of
    /// opening.
    Share,
    /// To own and only read the device. An image is claimed, a block device is opened with
    /// `O_EXCL`.
    ///
    /// An image that this user may not write is claimed as a reader claims it. An owner then makes
    /// this fail, but this keeps no owner out.
    Own,
    /// To own and write the device.
    Write,
}

impl Mode {
    /// True if no other process may own the device meanwhile.
    fn owns(self) -> bool {
        matches!(self, Mode::Own | Mode::Write)
    }
}

/// An image file or a block device (`vdev_file_ops`, `vdev_disk_ops`).
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    name: String,
    size: AtomicU64,
    logical: u32,
    physical: u32,
    block: bool,
    writable: bool,
    /// Starts the writeback of large writes; `None` if the file can't be opened a second time.
    ahead: OnceLock<Option<Writeback>>,
    /// True until the device has reported that it can't be trimmed.
    trims: AtomicBool,
    /// Held while an image is written. Its file system admits one writer at a time, and threads
    /// that wait in the system for that spin.
    turn: Mutex<()>,
    /// The claim of an image.
    claim: Claim,
    /// Loop devices over the image, which are claimed with it.
    #[expect(dead_code, reason = "held, never used")]
    loops: Vec<File>,
}

impl FileDevice {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// * [`DeviceError::Busy`]: another process, or another part of this one, has the device or a
    ///   loop device over the image.
    /// * [`DeviceError::NotADevice`]: the path names another kind of file.
    /// * [`DeviceError::Open`]: the system refuses for another reason.
    pub fn open(path: &Path, mode: Mode) -> Result<Self> {
        let name = path.display().to_string();
        let fail = |source: io::Error| match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::BUSY | rustix::io::Errno::WOULDBLOCK) => {
                DeviceError::Busy { device: name.clone() }
            }
            _ => DeviceError::Open { device: name.clone(), source },
        };
        let kind = std::fs::metadata(path).map_err(fail)?.file_type();
        // The type is checked first, because opening some character devices starts them.
        let block = kind.is_block_device();
        if !block && !kind.is_file() {
            return Err(DeviceError::NotADevice { device: name });
        }
        if block && mode == Mode::Share {
            // Closed at once: a reader keeps no other reader out.
            open_as(path, Mode::Own, true).map_err(fail)?;
        }
        let file = open_as(path, mode, block).map_err(fail)?;
        // By now another file may have this name. The opened file counts.
        let kind = file.metadata().map_err(fail)?.file_type();
        if kind.is_block_device() != block || !(block || kind.is_file()) {
            return Err(DeviceError::NotADevice { device: name });
        }
        let (file, claim) =
            if block { (file, Claim::default()) } else { Claim::take(file, mode).map_err(fail)? };
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|e| fail(e.into()))?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(|e| fail(e.into()))?;
        let mut loops = Vec::new();
        if !block && mode != Mode::Peek {
            loops = claim_loops(&file).map_err(fail)?;
            if !mode.owns() {
                loops.clear();
            }
        }
        let (size, logical, physical) = if block {
            // A block device has no length as a file; its end is the end for a seek.
            let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|e| fail(e.into()))?;
            let (logical, physical) = block_sectors(&file).unwrap_or((512, 512));
            (size, logical, physical)
        } else {
            (file.metadata().map_err(fail)?.len(), 512, 512)
        };
        let (writable, turn) = (mode == Mode::Write, Mutex::default());
        let trims = AtomicBool::new(!block || discard::may_discard(&file));
        let size = AtomicU64::new(size);
        let ahead = OnceLock::new();
        Ok(Self { file, name, size, logical, physical, block, writable, ahead, trims, turn, claim, loops })
    }

    fn io(&self, op: Op, offset: u64, len: usize, source: io::Error) -> DeviceError {
        DeviceError::Io { op, device: self.name.clone(), offset, len: len as u64, source }
    }

    /// Starts the writeback of the last write if it is large.
    fn go_on(&self, offset: u64, len: u64) {
        if len < writeback::WORTH {
            return;
        }
        let open = || {
            // The same file, although its name may belong to another file now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            OpenOptions::new().write(true).open(path).ok().map(Writeback::new)
        };
        if let Some(ahead) = self.ahead.get_or_init(open) {
            ahead.wrote(offset, len);
        }
    }

    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        (!self.block).then(|| self.turn.lock())
    }

    /// Frees an image's bytes in its file system.
    fn punch(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, offset, len)
    }

    /// The end of the block device or image now.
    fn end(&self) -> rustix::io::Result<u64> {
        match self.block {
            true => rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)),
            false => rustix::fs::fstat(&self.file).map(|stat| stat.st_size.max(0) as u64),
        }
    }

    fn check_write(&self, op: Op) -> Result<()> {
        if !self.writable {
            return Err(DeviceError::ReadOnly { op, device: self.name.clone() });
        }
        self.check_claim(op)
    }

    /// Takes locks that are still owed, and fails if there is another owner.
    fn check_claim(&self, op: Op) -> Result<()> {
        self.claim.settle(&self.file).map_err(|e| self.io(op, 0, 0, e))
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        self.claim.release(&self.file);
    }
}

/// Opens without waiting, because a FIFO would wait for its writer, and without a controlling
/// terminal.
fn open_as(path: &Path, mode: Mode, block: bool) -> io::Result<File> {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if block && mode.owns() {
        flags |= OFlags::EXCL;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(mode == Mode::Write).custom_flags(flags.bits().cast_signed());
    options.open(path)
}

/// Opens the loop devices that the system has over an image, so that they have one owner together.
///
/// A loop device that this user may not open is skipped.
///
/// # Errors
/// `EBUSY` if a loop device already has an owner, or the error of reading the image's metadata.
fn claim_loops(image: &File) -> io::Result<Vec<File>> {
    let image = image.metadata()?;
    let Ok(disks) = std::fs::read_dir("/sys/block") else { return Ok(Vec::new()) };
    let mut claimed = Vec::new();
    for disk in disks.flatten() {
        let Ok(backing) = std::fs::read_to_string(disk.path().join("loop/backing_file")) else { continue };
        let Ok(backing) = std::fs::metadata(backing.trim_end_matches('\n')) else { continue };
        if (backing.dev(), backing.ino()) != (image.dev(), image.ino()) {
            continue;
        }
        match open_as(&Path::new("/dev").join(disk.file_name()), Mode::Own, true) {
            Ok(device) => claimed.push(device),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e),
            Err(_) => {}
        }
    }
    Ok(claimed)
}

/// Logical and physical sector size of a block device in sysfs. A partition has those of its disk.
fn block_sectors(file: &File) -> Option<(u32, u32)> {
    let read = |what: &str| queue_limit(file, what).and_then(|n| u32::try_from(n).ok());
    let logical = read("logical_block_size").filter(|s| s.is_power_of_two() && *s >= 512)?;
    let physical = read("physical_block_size").filter(|s| s.is_power_of_two()).unwrap_or(logical);
    Some((logical, physical.max(logical)))
}

/// A limit of a block device's queue in sysfs. A partition has those of its disk.
pub(crate) fn queue_limit(file: &File, what: &str) -> Option<u64> {
    let rdev = rustix::fs::fstat(file).ok()?.st_rdev;
    let base = format!("/sys/dev/block/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    ["queue", "../queue"]
        .iter()
        .find_map(|queue| std::fs::read_to_string(format!("{base}/{queue}/{what}")).ok()?.trim().parse().ok())
}

impl Device for FileDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(self, Op::Read, offset, buf.len() as u64)?;
        let len = buf.len();
        self.file.read_exact_at(buf, offset).map_err(|e| self.io(Op::Read, offset, len, e))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_write(Op::Write)?;
        check_range(self, Op::Write, offset, buf.len() as u64)?;
        let _turn = self.turn();
        self.file.write_all_at(buf, offset).map_err(|e| self.io(Op::Write, offset, buf.len(), e))
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        self.check_write(Op::Write)?;
        let total: u64 = bufs.iter().map(|b| b.len() as u64).sum();
        check_range(self, Op::Write, offset, total)?;
        let turn = self.turn();
        let mut slices: Vec<IoSlice<'_>> = bufs.iter().map(|b| IoSlice::new(b)).collect();
        let mut rest = slices.as_mut_slice();
        let mut at = offset;
        while at < offset + total {
            // The system takes at most so many buffers at once, and may write less than all of
            // them.
            let some = &rest[..rest.len().min(IOV_MAX)];
            match rustix::io::pwritev(&self.file, some, at) {
                Ok(0) => return Err(self.io(Op::Write, at, total as usize, io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    IoSlice::advance_slices(&mut rest, n);
                    at += n as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.io(Op::Write, at, total as usize, e.into())),
            }
        }
        drop(turn);
        self.go_on(offset, total);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.check_claim(Op::Flush)?;
        // A write never extends an image. The sync of its data includes an earlier extension.
        self.file.sync_data().map_err(|e| self.io(Op::Flush, 0, 0, e))
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.check_write(Op::Trim)?;
        check_range(self, Op::Trim, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if !self.trims.load(Relaxed) {
            return Ok(());
        }
        let done =
            if self.block { discard::discard(&self.file, offset, len) } else { self.punch(offset, len) };
        match done {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTTY) => {
                self.trims.store(false, Relaxed);
                Ok(())
            }
            done => done.map_err(|e| DeviceError::Io {
                op: Op::Trim,
                device: self.name.clone(),
                offset,
                len,
                source: e.into(),
            }),
        }
    }

    fn can_trim(&self) -> bool {
        self.trims.load(Relaxed)
    }

    fn is_gone(&self) -> bool {
        // A removed image exists as long as it is open. A pulled disk has no end any more, or no
        // entry in sysfs.
        if !self.block {
            return false;
        }
        let end = self.end().is_ok_and(|end| end > 0);
        let listed = rustix::fs::fstat(&self.file).is_ok_and(|stat| {
            let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists()
        });
        // Without sysfs a missing entry means nothing.
        !end || Path::new("/sys/dev/block").exists() && !listed
    }

    fn nameless(&self) -> Option<i32> {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        // Metadata that the system knows without a request to a file system that can hang.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let known = || statx(&self.file, "", flags, StatxFlags::NLINK);
        let gone = !self.block && known().is_ok_and(|meta| meta.stx_nlink == 0);
        gone.then(|| self.file.as_raw_fd())
    }

    fn is_not_at(&self, path: &Path) -> bool {
        let (Ok(there), Ok(here)) = (path.metadata(), self.file.metadata()) else { return false };
        match self.block {
            true => !there.file_type().is_block_device() || there.rdev() != here.rdev(),
            false => (there.dev(), there.ino()) != (here.dev(), here.ino()),
        }
    }

    fn give_way(&self) {
        if !self.block && self.writable {
            self.claim.give_way(&self.file);
        }
    }

    fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    fn size_now(&self) -> u64 {
        // A device that can't report its end, or has shrunk, keeps its size.
        self.end().unwrap_or(0).max(self.size())
    }

    fn grow(&self) {
        self.size.fetch_max(self.size_now(), Relaxed);
    }

    fn logical_sector(&self) -> u32 {
        self.logical
    }

    fn physical_sector(&self) -> u32 {
        self.physical
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl FileDevice {
    /// True for a block device of the system, false for an image file.
    pub fn is_block(&self) -> bool {
        self.block
    }
}

#[cfg(test)]
mod tests;
