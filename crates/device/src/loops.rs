//! Loop devices of this machine: whether one is in use, and its release.
//!
//! # Theory
//! An exclusive open detects mounts, swap and device mapper, but not programs that only have the
//! device open. The driver knows these. `LOOP_CLR_FD` releases a device that only its caller has
//! open. It marks any other device for release with its last user (`LO_FLAGS_AUTOCLEAR`). So
//! [`LoopDevice::release`] makes that call, checks the result, and removes the mark. Meanwhile its
//! own open file keeps the device there.

use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl, opcode};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// `LOOP_CLR_FD`; below, `LOOP_SET_STATUS64` and `LOOP_GET_STATUS64`.
const CLEAR: Opcode = opcode::none(b'L', 1);
const SET_STATUS: Opcode = opcode::none(b'L', 4);
const GET_STATUS: Opcode = opcode::none(b'L', 5);
/// `LO_FLAGS_AUTOCLEAR`: the driver releases the device with its last user.
const AUTOCLEAR: u32 = 4;

/// `struct loop_info64`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LoopInfo {
    /// Device and inode of the file, the loop device's own number, offset, size limit.
    places: [u64; 5],
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names: [[u8; 64]; 2],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);

/// A loop device that this process has open.
#[derive(Debug)]
pub struct LoopDevice(File);

impl LoopDevice {
    /// Opens a loop device, without a claim.
    ///
    /// # Errors
    /// The error of `open`, such as `ENOENT` or `EACCES`.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).map(Self)
    }

    /// Writes all data that programs wrote to the device to its file, and flushes the file.
    ///
    /// # Errors
    /// The error of `fsync`: some data were not written.
    pub fn flush(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Releases the device when this handle is dropped, unless another process has it open.
    ///
    /// Returns true if the device will be released. Otherwise it stays as it was.
    ///
    /// # Errors
    /// * `ENXIO`: it is no longer a loop device with a file.
    /// * Other errors of `LOOP_CLR_FD`, `LOOP_GET_STATUS64` or `LOOP_SET_STATUS64`.
    #[allow(unsafe_code)]
    pub fn release(&self) -> io::Result<bool> {
        // SAFETY: this call takes no argument.
        unsafe { ioctl(&self.0, NoArg::<CLEAR>::new()) }?;
        // SAFETY: the system fills in a `struct loop_info64`, which `LoopInfo` is, and any bytes
        // are valid.
        let mut info = match unsafe { ioctl(&self.0, Getter::<GET_STATUS, LoopInfo>::new()) } {
            Ok(info) => info,
            Err(Errno::NXIO) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        info.flags &= !AUTOCLEAR;
        // SAFETY: the system reads a `struct loop_info64` and keeps no reference to it.
        unsafe { ioctl(&self.0, Setter::<SET_STATUS, LoopInfo>::new(info)) }?;
        Ok(false)
    }
}
