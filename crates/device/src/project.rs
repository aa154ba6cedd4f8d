//! The project of a file on any file system of this machine (`struct fsxattr`).
//!
//! # Theory
//! Only an `ioctl` reports it. It is here because this crate may have `unsafe` code.

use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::fs::File;
use std::io;

/// New files in a directory get its project (`FS_XFLAG_PROJINHERIT`).
const PROJINHERIT: u32 = 0x200;
const GET: Opcode = opcode::read::<FsXattr>(b'X', 31);
const SET: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// `struct fsxattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<FsXattr>() == 28);

/// The project of a file, and whether new files in it inherit the project (`zfsxattr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Project {
    raw: FsXattr,
}

impl Project {
    /// Reads the project of an open file (`FS_IOC_FSGETXATTR`).
    ///
    /// # Errors
    /// The error of the system call: `ENOTTY` on a file system without projects.
    #[allow(unsafe_code)]
    pub fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the system fills in a `struct fsxattr`, which `FsXattr` is, and any bytes are
        // valid.
        let raw = unsafe { ioctl(file, Getter::<GET, FsXattr>::new()) }?;
        Ok(Self { raw })
    }

    /// Sets a file's project, and its other flags as they were read with this project
    /// (`FS_IOC_FSSETXATTR`).
    ///
    /// # Errors
    /// The error of the system call, such as `EPERM` or `EROFS`.
    #[allow(unsafe_code)]
    pub fn give(self, file: &File) -> io::Result<()> {
        // SAFETY: the system reads a `struct fsxattr` and keeps no reference to it.
        unsafe { ioctl(file, Setter::<SET, FsXattr>::new(self.raw)) }?;
        Ok(())
    }

    /// Number of the project; 0 is none.
    pub fn id(self) -> u32 {
        self.raw.projid
    }

    /// True if new files in the directory inherit the project.
    pub fn inherits(self) -> bool {
        self.raw.xflags & PROJINHERIT != 0
    }

    /// The same with another number.
    #[must_use]
    pub fn with_id(mut self, id: u32) -> Self {
        self.raw.projid = id;
        self
    }

    /// The same with inheritance on or off.
    #[must_use]
    pub fn with_inherits(mut self, yes: bool) -> Self {
        self.raw.xflags = self.raw.xflags & !PROJINHERIT | if yes { PROJINHERIT } else { 0 };
        self
    }
}
