//! What a door serves: a tree of nodes, asked by number.

use rustix::io::Errno;

/// A node of a tree, as the kernel names it back to us.
///
/// The head of a dataset uses its object numbers, so that a node needs no memory here: nothing is counted and
/// nothing forgotten. The control directory and snapshots use numbers above [`crate::ctldir::SLOT_SHIFT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u64);

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since the epoch, negative before it.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// What `stat` shows of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// The node.
    pub node: Node,
    /// `st_ino`: the object number on the head of a dataset.
    pub ino: u64,
    /// Generation of the object number, for file handles of NFS.
    pub generation: u64,
    /// The node's directory (a file with several links has one of them).
    pub parent: Node,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device, 0 otherwise.
    pub rdev: (u32, u32),
    /// Bytes; of a directory, its entries.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// `st_blksize`.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, which needn't be UTF-8.
    pub name: Vec<u8>,
    /// The node of that name. `None`: known by its type only, and looked up when somebody asks.
    pub node: Option<Node>,
    /// `d_ino`.
    pub ino: u64,
    /// `DT_*`, 0 when unknown.
    pub kind: u8,
    /// Where to go on after this entry; above 1, never 0.
    pub cookie: u64,
}

/// Sizes of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statfs {
    /// Unit of the counts, bytes.
    pub unit: u32,
    /// Preferred transfer size, bytes.
    pub transfer: u32,
    /// Whole size in units.
    pub blocks: u64,
    /// Free units.
    pub free: u64,
    /// Files, used and possible.
    pub files: u64,
    /// Files possible.
    pub files_free: u64,
    /// Longest name, bytes.
    pub name_max: u32,
}

/// File flags and project, as `lsattr` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `FS_IOC_GETFLAGS` bits: 0x10 immutable, 0x20 append-only, 0x40 nodump, 0x20000000 project inheritance.
    pub bits: u32,
    /// Project number.
    pub project: u32,
}

/// What `lseek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored (`SEEK_DATA`).
    Data,
    /// The next hole; the end of a file counts as one (`SEEK_HOLE`).
    Hole,
}

/// A read-only tree of files.
///
/// Every method may be called by several threads at once, may block on devices, and answers with the errno that the
/// caller of the system call shall see. Names are single components, without NUL and `/`. `.` and `..` are the
/// session's business: a tree neither lists them nor is asked for them.
pub trait Tree: Send + Sync {
    /// The root's node.
    fn root(&self) -> Node;

    /// The node called `name` in a directory. `ENOENT` when there is none.
    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno>;

    /// A node's attributes.
    fn attr(&self, node: Node) -> Result<Attr, Errno>;

    /// Where a symbolic link points.
    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno>;

    /// Fills `buf` from `offset` on and says how much: less than `buf` only at the end of the file. A byte that can't
    /// be read fails the whole call, since the kernel takes a short answer for the end of the file.
    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno>;

    /// Up to `limit` entries that follow `cookie` (0: from the start). Empty at the end.
    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno>;

    /// The value of an extended attribute; `ENODATA` when there is none, `EOPNOTSUPP` when its kind is off.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno>;

    /// Names of all extended attributes.
    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno>;

    /// Sizes.
    fn statfs(&self) -> Result<Statfs, Errno>;

    /// The next data or hole at or after `offset`; `ENXIO` past the end.
    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno>;

    /// File flags and project number.
    fn flags(&self, node: Node) -> Result<Flags, Errno>;
}
