//! The kernel's FUSE protocol, version 7.40: the messages that a file system needs.
//!
//! # Theory
//! A message is a fixed header, then by opcode a fixed body and names that end in NUL. Kernel and
//! daemon share the machine, so everything is in native byte order. The structures are those bytes
//! and nothing else. Names and meanings are those of `include/uapi/linux/fuse.h`. Each comment has
//! the type's name there.
//!
//! # Absent
//! Locks, polling and the write-back cache. INIT doesn't accept them, or an `ENOSYS` has the kernel
//! stop asking.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major protocol version. A kernel with a newer one repeats INIT with this one.
pub const VERSION_MAJOR: u32 = 7;
/// Minor protocol version of these structures.
pub const VERSION_MINOR: u32 = 40;
/// Node number of the root of every mount (`FUSE_ROOT_ID`).
pub const ROOT_ID: u64 = 1;

/// The opcodes of requests (`enum fuse_opcode`).
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

/// Capabilities in INIT (`FUSE_*` flags). Bits above 31 are in `flags2`.
pub mod init {
    #![allow(missing_docs, reason = "the names are the kernel's")]
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
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

/// The smallest buffer with which a daemon may read a request (`FUSE_MIN_READ_BUFFER`).
pub const MIN_READ_BUFFER: usize = 8192;

/// Header of every request (`fuse_in_header`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InHeader {
    /// Length of the whole request in bytes.
    pub len: u32,
    /// One of [`op`].
    pub opcode: u32,
    /// The request's number, repeated in its answer.
    pub unique: u64,
    /// The node to which the request applies.
    pub nodeid: u64,
    /// File-system user ID of the caller.
    pub uid: u32,
    /// File-system group ID of the caller.
    pub gid: u32,
    /// Thread ID of the caller.
    pub pid: u32,
    /// Length of extensions (in units of 8 bytes) and padding.
    pub padding: u32,
}

/// Header of every answer (`fuse_out_header`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OutHeader {
    /// Length of the whole answer in bytes.
    pub len: u32,
    /// 0, or a negative errno.
    pub error: i32,
    /// The request's number.
    pub unique: u64,
}

/// Body of INIT (`fuse_init_in`): its first four words, which every version has.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InitIn {
    /// The kernel's major protocol version.
    pub major: u32,
    /// The kernel's minor protocol version.
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
    /// Our major protocol version.
    pub major: u32,
    /// Our minor protocol version.
    pub minor: u32,
    /// The readahead that we request, in bytes.
    pub max_readahead: u32,
    /// Capabilities taken, low half.
    pub flags: u32,
    /// How many background requests (readahead) may be in progress.
    pub max_background: u16,
    /// The number of background requests from which the kernel regards the file system as
    /// congested.
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
    /// `FUSE_ATTR_*`. This crate uses none.
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
    /// Nanoseconds to add to `entry_valid`.
    pub entry_valid_nsec: u32,
    /// Nanoseconds to add to `attr_valid`.
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
    /// Nanoseconds to add to `attr_valid`.
    pub attr_valid_nsec: u32,
    /// Unused.
    pub dummy: u32,
    /// The node's attributes.
    pub attr: AttrPhys,
}

/// Body of STATX (`fuse_statx_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatxIn {
    /// Whether `fh` is valid.
    pub getattr_flags: u32,
    /// Unused.
    pub reserved: u32,
    /// Handle of an open file.
    pub fh: u64,
    /// `AT_STATX_*`.
    pub sx_flags: u32,
    /// `STATX_*` fields that the caller wants.
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
    /// Nanoseconds to add to `attr_valid`.
    pub attr_valid_nsec: u32,
    /// Unused.
    pub flags: u32,
    /// Unused.
    pub spare: [u64; 2],
    /// `STATX_*` fields that are set.
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
    /// Which bits of `attributes` are valid.
    pub attributes_mask: u64,
    /// Time of the last access.
    pub atime: StatxTime,
    /// Time of creation.
    pub btime: StatxTime,
    /// Time of the last change of attributes.
    pub ctime: StatxTime,
    /// Time of the last change of contents.
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

/// Body of READ, READDIR and READDIRPLUS (`fuse_read_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ReadIn {
    /// Our handle of the open file.
    pub fh: u64,
    /// Byte offset, or the cookie of a directory.
    pub offset: u64,
    /// How many bytes the kernel wants at most.
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
    /// Free space in units of `frsize`.
    pub bfree: u64,
    /// Free space for ordinary users.
    pub bavail: u64,
    /// Number of files: those that exist and those that could be created.
    pub files: u64,
    /// Number of files that could be created.
    pub ffree: u64,
    /// Preferred transfer size in bytes.
    pub bsize: u32,
    /// Length of the longest possible name in bytes.
    pub namelen: u32,
    /// Unit of `blocks` in bytes.
    pub frsize: u32,
    /// Unused.
    pub padding: u32,
    /// Unused.
    pub spare: [u32; 6],
}

/// Body of GETXATTR and LISTXATTR (`fuse_getxattr_in`). In GETXATTR a name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetxattrIn {
    /// Space for the answer in bytes. 0 requests the size only.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Answer to GETXATTR and LISTXATTR with a size of 0 (`fuse_getxattr_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetxattrOut {
    /// Bytes needed.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

/// Body of IOCTL (`fuse_ioctl_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoctlIn {
    /// Our handle of the open file.
    pub fh: u64,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// The command.
    pub cmd: u32,
    /// The caller's argument, often a pointer.
    pub arg: u64,
    /// Number of bytes that follow.
    pub in_size: u32,
    /// Space for the answer in bytes.
    pub out_size: u32,
}

/// Answer to IOCTL (`fuse_ioctl_out`). Data follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoctlOut {
    /// The result of the system call.
    pub result: i32,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// Unused: unrestricted ioctls only.
    pub in_iovs: u32,
    /// Unused: unrestricted ioctls only.
    pub out_iovs: u32,
}

/// Body of LSEEK (`fuse_lseek_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LseekIn {
    /// Our handle of the open file.
    pub fh: u64,
    /// The offset to start from.
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
    /// The offset found.
    pub offset: u64,
}

/// Header of an entry in READDIR (`fuse_dirent`). The name follows, padded to 8 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Dirent {
    /// Inode number that `d_ino` shows.
    pub ino: u64,
    /// The position of the next entry.
    pub off: u64,
    /// Length of the name.
    pub namelen: u32,
    /// `DT_*`.
    pub typ: u32,
}

/// Body of FORGET (`fuse_forget_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ForgetIn {
    /// How many references to the node the kernel returns.
    pub nlookup: u64,
}

/// Body of BATCH_FORGET (`fuse_batch_forget_in`), before the nodes.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BatchForgetIn {
    /// Number of nodes that follow.
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
    /// How many references to it the kernel returns.
    pub nlookup: u64,
}

/// Body of CREATE and TMPFILE (`fuse_create_in`). A name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CreateIn {
    /// Flags of open(2).
    pub flags: u32,
    /// Type and permissions.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// `FUSE_OPEN_*`.
    pub open_flags: u32,
}

/// Answer to CREATE and TMPFILE after the entry, and to OPEN (`fuse_open_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OpenOut {
    /// Our handle of the open file.
    pub fh: u64,
    /// `FOPEN_*`.
    pub open_flags: u32,
    /// Unused.
    pub backing_id: i32,
}

/// Body of MKNOD (`fuse_mknod_in`). The name follows.
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

/// Body of MKDIR (`fuse_mkdir_in`). The name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MkdirIn {
    /// Permissions.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// Body of LINK (`fuse_link_in`). The name follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LinkIn {
    /// The file.
    pub oldnodeid: u64,
}

/// Body of RENAME (`fuse_rename_in`). Both names follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RenameIn {
    /// The directory of the new name.
    pub newdir: u64,
}

/// Body of RENAME2 (`fuse_rename2_in`). Both names follow.
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

/// Body of WRITE (`fuse_write_in`). The data follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct WriteIn {
    /// Our handle of the open file.
    pub fh: u64,
    /// Byte offset in the file.
    pub offset: u64,
    /// Number of bytes that follow.
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

/// Body of SETATTR (`fuse_setattr_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetattrIn {
    /// `FATTR_*`: which of the fields are set.
    pub valid: u32,
    /// Unused.
    pub padding: u32,
    /// Our handle of the open file.
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

/// Body of COPY_FILE_RANGE (`fuse_copy_file_range_in`). The node in the header is the source.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyFileRangeIn {
    /// Our handle of the source.
    pub fh_in: u64,
    /// Byte offset in the source.
    pub off_in: u64,
    /// The target.
    pub nodeid_out: u64,
    /// Our handle of the target.
    pub fh_out: u64,
    /// Byte offset in the target.
    pub off_out: u64,
    /// Number of bytes.
    pub len: u64,
    /// Unused.
    pub flags: u64,
}

/// Answer to COPY_FILE_RANGE_64 (`fuse_copy_file_range_out`).
///
/// The answer to COPY_FILE_RANGE is a [`WriteOut`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyFileRangeOut {
    /// Number of bytes copied.
    pub bytes_copied: u64,
}

/// Body of FALLOCATE (`fuse_fallocate_in`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FallocateIn {
    /// Our handle of the open file.
    pub fh: u64,
    /// Byte offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// `FALLOC_FL_*`.
    pub mode: u32,
    /// Unused.
    pub padding: u32,
}

/// Body of SETXATTR (`fuse_setxattr_in`, its first two words). Name and value follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetxattrIn {
    /// Size of the value in bytes.
    pub size: u32,
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
}

/// Body of SETXATTR with `FUSE_SETXATTR_EXT` (`fuse_setxattr_in`). Name and value follow.
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

/// Code of a notification: drop pages of a file (`FUSE_NOTIFY_INVAL_INODE`).
///
/// A notification answers no request. The code takes the place of the error in the header.
pub const NOTIFY_INVAL_INODE: i32 = 2;

/// The pages to drop (`fuse_notify_inval_inode_out`).
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InvalInode {
    /// The file.
    pub nodeid: u64,
    /// The first byte to drop. If negative, only attributes are dropped.
    pub offset: i64,
    /// Number of bytes. 0 for all.
    pub length: i64,
}

/// Code of a notification: look a name up again (`FUSE_NOTIFY_INVAL_ENTRY`).
pub const NOTIFY_INVAL_ENTRY: i32 = 3;

/// The name to look up again (`fuse_notify_inval_entry_out`). It follows, with a NUL.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InvalEntry {
    /// The directory.
    pub parent: u64,
    /// Length of the name in bytes.
    pub namelen: u32,
    /// `FUSE_EXPIRE_ONLY`, or 0 to drop the name at once.
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
