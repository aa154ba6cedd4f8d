//! Loop devices of this machine: whether anybody has one open, and releasing it.
//!
//! # Theory
//! An exclusive open tells of mounts, swap and device mapper, but not of programs that just have
//! the device open. The driver knows. `LOOP_CLR_FD` releases a device that only its caller has
//! open, and marks any other to go with its last user (`LO_FLAGS_AUTOCLEAR`). So
//! [`LoopDevice::release`] asks for that, looks what came of it, and takes the mark away again.
//! Meanwhile its own open file keeps the device there.

use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl, opcode};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// `LOOP_CLR_FD`, `LOOP_SET_STATUS64`, `LOOP_GET_STATUS64`.
const CLEAR: Opcode = opcode::none(b'L', 1);
const SET_STATUS: Opcode = opcode::none(b'L', 4);
const GET_STATUS: Opcode = opcode::none(b'L', 5);
/// `LO_FLAGS_AUTOCLEAR`: it goes when nobody has it open.
const AUTOCLEAR: u32 = 4;

/// `struct loop_info64`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LoopInfo {
    /// Device and inode of the file, its own number, offset, size.
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
    /// Opens one, claiming nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).map(Self)
    }

    /// Has what programs wrote to it reach its file, and the file be flushed.
    ///
    /// # Errors
    /// What the system says: something was not written.
    pub fn flush(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Releases it when this is dropped, unless somebody else has it open: then it stays as it was.
    /// Says whether it goes.
    ///
    /// # Errors
    /// What the system says: `ENXIO` if it is no loop device any more.
    #[allow(unsafe_code)]
    pub fn release(&self) -> io::Result<bool> {
        // SAFETY: this call takes no argument.
        unsafe { ioctl(&self.0, NoArg::<CLEAR>::new()) }?;
        // SAFETY: the system fills in a `struct loop_info64`, which is what `LoopInfo` is, and any
        // bytes are one.
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
