//! The project of a file on any file system of this machine (`struct fsxattr`).
//!
//! # Theory
//! No system call tells it but `ioctl`, and this is the room that may hold what Rust can't check.

use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::fs::File;
use std::io;

/// What is in a directory gets its project (`FS_XFLAG_PROJINHERIT`).
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

/// A file's project, and whether it gives it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Project {
    raw: FsXattr,
}

impl Project {
    /// That of an open file.
    ///
    /// # Errors
    /// What the system says: `ENOTTY` where files have no projects.
    #[allow(unsafe_code)]
    pub fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the system fills in a `struct fsxattr`, which is what `FsXattr` is, and any bytes are one.
        let raw = unsafe { ioctl(file, Getter::<GET, FsXattr>::new()) }?;
        Ok(Self { raw })
    }

    /// Gives a file this project; its other flags become those that this one was read with.
    ///
    /// # Errors
    /// What the system says.
    #[allow(unsafe_code)]
    pub fn give(self, file: &File) -> io::Result<()> {
        // SAFETY: the system reads a `struct fsxattr` and keeps no reference to it.
        unsafe { ioctl(file, Setter::<SET, FsXattr>::new(self.raw)) }?;
        Ok(())
    }

    /// Its number; 0 is none.
    pub fn id(self) -> u32 {
        self.raw.projid
    }

    /// Whether what is made in it gets it.
    pub fn inherits(self) -> bool {
        self.raw.xflags & PROJINHERIT != 0
    }

    /// Another number.
    #[must_use]
    pub fn with_id(mut self, id: u32) -> Self {
        self.raw.projid = id;
        self
    }

    /// Giving it on or not.
    #[must_use]
    pub fn with_inherits(mut self, yes: bool) -> Self {
        self.raw.xflags = self.raw.xflags & !PROJINHERIT | if yes { PROJINHERIT } else { 0 };
        self
    }
}
