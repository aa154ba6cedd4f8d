//! The kernel's FUSE protocol, version 7.40: the messages that a file system meets.
//!
//! # Theory
//! A message is a fixed header and, by opcode, a fixed body and names that end in NUL. Kernel and daemon share the
//! machine, so everything is in native byte order. The structures here are those bytes and nothing else; names and
//! meanings are those of `include/uapi/linux/fuse.h`, whose type names stand in each comment.
//!
//! # Absent
//! Locks, polling, writing back from the page cache: the kernel is told that it needn't ask, or never asked to.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major protocol version; a kernel that offers another is told ours and asks again.
pub const VERSION_MAJOR: u32 = 7;
/// Minor protocol version that these structures follow.
pub const VERSION_MINOR: u32 = 40;
/// Node number of the root of every mount (`FUSE_ROOT_ID`).
pub const ROOT_ID: u64 = 1;

/// What the kernel asks for (`enum fuse_opcode`).
pub mod op {
    #![allow(missing_docs, reason = "the names are the kernel's")]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Capabilities offered and taken in INIT (`FUSE_*` flags; bits above 31 travel in `flags2`).
pub mod init {
    #![allow(missing_docs, reason = "the names are the kernel's")]
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
}

/// The smallest buffer with which the kernel lets a daemon read a request (`FUSE_MIN_READ_BUFFER`).
pub const MIN_READ_BUFFER: usize = 8192;

/// Head of every request (`fuse_in_header`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InHeader {
    /// Whole length of the request in bytes.
    pub len: u32,
    /// One of [`op`].
    pub opcode: u32,
    /// The request's number, repeated in its answer.
    pub unique: u64,
    /// The node that is asked about.
    pub nodeid: u64,
    /// File-system user of the caller.
    pub uid: u32,
    /// File-system group of the caller.
    pub gid: u32,
    /// Process of the caller.
    pub pid: u32,
    /// Length of extensions (in units of 8 bytes) and padding.
    pub padding: u32,
}

/// Head of every answer (`fuse_out_header`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OutHeader {
    /// Whole length of the answer in bytes.
    pub len: u32,
    /// 0, or a negative errno.
    pub error: i32,
    /// The request's number.
    pub unique: u64,
}

/// What INIT asks (`fuse_init_in`, its first four words, which every version has).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InitIn {
    /// The kernel's protocol version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
    /// The largest readahead in bytes.
    pub max_readahead: u32,
    /// Capabilities, low half.
    pub flags: u32,
}

/// Answer to INIT (`fuse_init_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InitOut {
    /// Our protocol version.
    pub major: u32,
    /// Our minor version.
    pub minor: u32,
    /// The readahead that we want, bytes.
    pub max_readahead: u32,
    /// Capabilities taken, low half.
    pub flags: u32,
    /// How many background requests (readahead) may be in flight.
    pub max_background: u16,
    /// From how many on the kernel calls the file system congested.
    pub congestion_threshold: u16,
    /// The largest write in bytes.
    pub max_write: u32,
    /// Granularity of time stamps in nanoseconds.
    pub time_gran: u32,
    /// The largest request in pages.
    pub max_pages: u16,
    /// Unused: DAX only.
    pub map_alignment: u16,
    /// Capabilities taken, high half.
    pub flags2: u32,
    /// Unused: passthrough only.
    pub max_stack_depth: u32,
    /// Unused.
    pub unused: [u32; 6],
}

/// A file's attributes (`fuse_attr`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AttrPhys {
    /// Inode number that `stat` shows.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Seconds.
    pub atime: i64,
    /// Seconds.
    pub mtime: i64,
    /// Seconds.
    pub ctime: i64,
    /// Nanoseconds.
    pub atimensec: u32,
    /// Nanoseconds.
    pub mtimensec: u32,
    /// Nanoseconds.
    pub ctimensec: u32,
    /// `st_mode`, type included.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number in the kernel's 32-bit form.
    pub rdev: u32,
    /// `st_blksize`.
    pub blksize: u32,
    /// `FUSE_ATTR_*`; none of use here.
    pub flags: u32,
}

/// Answer to LOOKUP (`fuse_entry_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EntryOut {
    /// The node found; 0 says that the name is known to be absent.
    pub nodeid: u64,
    /// Generation of the node number.
    pub generation: u64,
    /// Seconds for which the name may be cached.
    pub entry_valid: u64,
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds of the same.
    pub entry_valid_nsec: u32,
    /// Nanoseconds of the same.
    pub attr_valid_nsec: u32,
    /// The node's attributes.
    pub attr: AttrPhys,
}

/// Answer to GETATTR (`fuse_attr_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AttrOut {
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds of the same.
    pub attr_valid_nsec: u32,
    /// Unused.
    pub dummy: u32,
    /// The node's attributes.
    pub attr: AttrPhys,
}

/// What STATX asks (`fuse_statx_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatxIn {
    /// Whether `fh` is valid.
    pub getattr_flags: u32,
    /// Unused.
    pub reserved: u32,
    /// Open file.
    pub fh: u64,
    /// `AT_STATX_*`.
    pub sx_flags: u32,
    /// `STATX_*` wanted.
    pub sx_mask: u32,
}

/// A time in STATX (`fuse_sx_time`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatxTime {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: u32,
    /// Unused.
    pub reserved: i32,
}

/// Answer to STATX (`fuse_statx_out` with its `fuse_statx`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatxOut {
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds of the same.
    pub attr_valid_nsec: u32,
    /// Unused.
    pub flags: u32,
    /// Unused.
    pub spare: [u64; 2],
    /// `STATX_*` of the fields that follow.
    pub mask: u32,
    /// `st_blksize`.
    pub blksize: u32,
    /// `STATX_ATTR_*`.
    pub attributes: u64,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `st_mode`.
    pub mode: u16,
    /// Unused.
    pub spare0: u16,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Which bits of `attributes` mean something.
    pub attributes_mask: u64,
    /// Last access.
    pub atime: StatxTime,
    /// Birth.
    pub btime: StatxTime,
    /// Last change of attributes.
    pub ctime: StatxTime,
    /// Last change of contents.
    pub mtime: StatxTime,
    /// Device number.
    pub rdev_major: u32,
    /// Device number.
    pub rdev_minor: u32,
    /// Filled in by the kernel.
    pub dev_major: u32,
    /// Filled in by the kernel.
    pub dev_minor: u32,
    /// Unused.
    pub spare2: [u64; 14],
}

/// What READ, READDIR and READDIRPLUS ask (`fuse_read_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ReadIn {
    /// Our handle.
    pub fh: u64,
    /// Byte offset, or the cookie of a directory.
    pub offset: u64,
    /// Bytes wanted at most.
    pub size: u32,
    /// `FUSE_READ_*`.
    pub read_flags: u32,
    /// Owner of a mandatory lock.
    pub lock_owner: u64,
    /// Open flags.
    pub flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to STATFS (`fuse_statfs_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatfsOut {
    /// Size in units of `frsize`.
    pub blocks: u64,
    /// Free.
    pub bfree: u64,
    /// Free for users.
    pub bavail: u64,
    /// Files, used and possible.
    pub files: u64,
    /// Files possible.
    pub ffree: u64,
    /// Preferred transfer size.
    pub bsize: u32,
    /// Longest name.
    pub namelen: u32,
    /// Unit of `blocks`.
    pub frsize: u32,
    /// Unused.
    pub padding: u32,
    /// Unused.
    pub spare: [u32; 6],
}

/// What GETXATTR and LISTXATTR ask (`fuse_getxattr_in`); a name follows in GETXATTR.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetxattrIn {
    /// Room for the answer; 0 asks for the size only.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to GETXATTR and LISTXATTR when the size was asked (`fuse_getxattr_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetxattrOut {
    /// Bytes needed.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// What IOCTL asks (`fuse_ioctl_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoctlIn {
    /// Our handle.
    pub fh: u64,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// The command.
    pub cmd: u32,
    /// The caller's pointer.
    pub arg: u64,
    /// Bytes that follow.
    pub in_size: u32,
    /// Room for the answer.
    pub out_size: u32,
}

/// Answer to IOCTL (`fuse_ioctl_out`); data follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoctlOut {
    /// What the call returns.
    pub result: i32,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// Unused: unrestricted ioctls only.
    pub in_iovs: u32,
    /// Unused: unrestricted ioctls only.
    pub out_iovs: u32,
}

/// What LSEEK asks (`fuse_lseek_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LseekIn {
    /// Our handle.
    pub fh: u64,
    /// Where to start.
    pub offset: u64,
    /// `SEEK_DATA` (3) or `SEEK_HOLE` (4).
    pub whence: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to LSEEK (`fuse_lseek_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LseekOut {
    /// Where it is.
    pub offset: u64,
}

/// Head of a directory entry in READDIR (`fuse_dirent`); the name follows, padded to 8 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Dirent {
    /// Inode number that `d_ino` shows.
    pub ino: u64,
    /// Cookie of the next entry.
    pub off: u64,
    /// Length of the name.
    pub namelen: u32,
    /// `DT_*`.
    pub typ: u32,
}

/// What FORGET says (`fuse_forget_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ForgetIn {
    /// How often the node was given out.
    pub nlookup: u64,
}

/// What BATCH_FORGET says first (`fuse_batch_forget_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BatchForgetIn {
    /// Nodes that follow.
    pub count: u32,
    /// Unused.
    pub dummy: u32,
}

/// One node of BATCH_FORGET (`fuse_forget_one`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ForgetOne {
    /// The node.
    pub nodeid: u64,
    /// How often it was given out.
    pub nlookup: u64,
}

/// What CREATE and TMPFILE ask (`fuse_create_in`); a name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CreateIn {
    /// Flags of `open`.
    pub flags: u32,
    /// Type and permissions.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// `FUSE_OPEN_*`.
    pub open_flags: u32,
}

/// What they answer behind the entry (`fuse_open_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OpenOut {
    /// Our handle.
    pub fh: u64,
    /// `FOPEN_*`.
    pub open_flags: u32,
    /// Unused.
    pub backing_id: i32,
}

/// What MKNOD asks (`fuse_mknod_in`); the name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MknodIn {
    /// Type and permissions.
    pub mode: u32,
    /// Device number in the kernel's 32-bit form.
    pub rdev: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Unused.
    pub padding: u32,
}

/// What MKDIR asks (`fuse_mkdir_in`); the name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MkdirIn {
    /// Permissions.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// What LINK asks (`fuse_link_in`); the name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LinkIn {
    /// The file.
    pub oldnodeid: u64,
}

/// What RENAME asks (`fuse_rename_in`); both names follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RenameIn {
    /// The directory of the new name.
    pub newdir: u64,
}

/// What RENAME2 asks (`fuse_rename2_in`); both names follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Rename2In {
    /// The directory of the new name.
    pub newdir: u64,
    /// `RENAME_*`.
    pub flags: u32,
    /// Unused.
    pub padding: u32,
}

/// What WRITE asks (`fuse_write_in`); the data follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct WriteIn {
    /// Our handle.
    pub fh: u64,
    /// Where.
    pub offset: u64,
    /// Bytes that follow.
    pub size: u32,
    /// `FUSE_WRITE_*`.
    pub write_flags: u32,
    /// Owner of a mandatory lock.
    pub lock_owner: u64,
    /// Open flags.
    pub flags: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to WRITE (`fuse_write_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct WriteOut {
    /// Bytes written.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// What SETATTR asks (`fuse_setattr_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetattrIn {
    /// `FATTR_*`: which of the fields count.
    pub valid: u32,
    /// Unused.
    pub padding: u32,
    /// Our handle.
    pub fh: u64,
    /// Bytes.
    pub size: u64,
    /// Owner of a mandatory lock.
    pub lock_owner: u64,
    /// Seconds.
    pub atime: i64,
    /// Seconds.
    pub mtime: i64,
    /// Seconds.
    pub ctime: i64,
    /// Nanoseconds.
    pub atimensec: u32,
    /// Nanoseconds.
    pub mtimensec: u32,
    /// Nanoseconds.
    pub ctimensec: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Unused.
    pub unused4: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Unused.
    pub unused5: u32,
}

/// What COPY_FILE_RANGE asks (`fuse_copy_file_range_in`), of the file that is read.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyFileRangeIn {
    /// Our handle.
    pub fh_in: u64,
    /// From where.
    pub off_in: u64,
    /// The file that is written.
    pub nodeid_out: u64,
    /// Our handle.
    pub fh_out: u64,
    /// To where.
    pub off_out: u64,
    /// Bytes.
    pub len: u64,
    /// Unused.
    pub flags: u64,
}

/// Answer to COPY_FILE_RANGE_64 (`fuse_copy_file_range_out`); COPY_FILE_RANGE answers with [`WriteOut`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyFileRangeOut {
    /// Bytes.
    pub bytes_copied: u64,
}

/// What FALLOCATE asks (`fuse_fallocate_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FallocateIn {
    /// Our handle.
    pub fh: u64,
    /// Where.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// `FALLOC_FL_*`.
    pub mode: u32,
    /// Unused.
    pub padding: u32,
}

/// What SETXATTR asks (`fuse_setxattr_in`, its first two words); name and value follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetxattrIn {
    /// Bytes of the value.
    pub size: u32,
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
}

/// What SETXATTR asks of who takes `FUSE_SETXATTR_EXT` (`fuse_setxattr_in`); name and value follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetxattrExtIn {
    /// The shorter form.
    pub short: SetxattrIn,
    /// `FUSE_SETXATTR_*`.
    pub setxattr_flags: u32,
    /// Unused.
    pub padding: u32,
}

/// In the place of an error, in a message that answers nothing: pages of a file are to be dropped (`FUSE_NOTIFY_INVAL_INODE`).
pub const NOTIFY_INVAL_INODE: i32 = 2;

/// Which pages (`fuse_notify_inval_inode_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InvalInode {
    /// Whose.
    pub nodeid: u64,
    /// From this byte on; if negative, attributes alone are dropped.
    pub offset: i64,
    /// Bytes; 0 for all.
    pub length: i64,
}

/// Likewise: a name is to be looked up again (`FUSE_NOTIFY_INVAL_ENTRY`).
pub const NOTIFY_INVAL_ENTRY: i32 = 3;

/// Which name; it follows, with a NUL (`fuse_notify_inval_entry_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InvalEntry {
    /// The directory.
    pub parent: u64,
    /// Bytes of the name.
    pub namelen: u32,
    /// How; 0: at once.
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<InvalInode>() == 24 && size_of::<InvalEntry>() == 16);
    assert!(size_of::<CreateIn>() == 16 && size_of::<OpenOut>() == 16 && size_of::<MknodIn>() == 16);
    assert!(size_of::<WriteIn>() == 40 && size_of::<SetattrIn>() == 88 && size_of::<FallocateIn>() == 32);
    assert!(size_of::<CopyFileRangeIn>() == 56 && size_of::<CopyFileRangeOut>() == 8);
    assert!(size_of::<ForgetOne>() == 16 && size_of::<Rename2In>() == 16 && size_of::<SetxattrIn>() == 8);
    assert!(size_of::<SetxattrExtIn>() == 16);
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InitIn>() == 16 && size_of::<InitOut>() == 64);
    assert!(size_of::<AttrPhys>() == 88 && size_of::<EntryOut>() == 128 && size_of::<AttrOut>() == 104);
    assert!(size_of::<StatxIn>() == 24 && size_of::<StatxOut>() == 32 + 256);
    assert!(size_of::<ReadIn>() == 40 && size_of::<StatfsOut>() == 80 && size_of::<Dirent>() == 24);
    assert!(size_of::<IoctlIn>() == 32 && size_of::<IoctlOut>() == 16 && size_of::<LseekIn>() == 24);
};
