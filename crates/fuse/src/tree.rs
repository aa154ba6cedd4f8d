//! What a door serves: a tree of nodes, asked by number.

use crate::caller::Asker;
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
    /// Whether it stays as it is until the kernel changes it. If not (its blocks are not written yet, so that their number will
    /// change), the kernel asks again soon.
    pub settled: bool,
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

/// Who asks for a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its user, who will own the file.
    pub uid: u32,
    /// Its group, unless the directory gives its own on.
    pub gid: u32,
}

/// A file to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// What the caller doesn't want to give (`umask`). The kernel has taken it off already unless the mount has POSIX ACLs.
    pub umask: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// Who asks.
    pub caller: Caller,
}

/// Attributes to be changed; `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permissions: the low twelve bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Take set-user-id and set-group-id from the file.
    pub kill: bool,
}

/// A time to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// This one.
    At(Time),
}

/// How to treat what has the new name of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// It is replaced.
    Replace,
    /// There must be nothing.
    NoReplace,
    /// The two change places.
    Exchange,
    /// A whiteout stays where the entry was: a device 0, by which an overlay knows that there is nothing.
    Whiteout {
        /// What has the new name is replaced; else there must be nothing.
        replace: bool,
        /// Who asks.
        caller: Caller,
    },
}

/// A range of a file that is to become part of another without being copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneRange {
    /// The file that it is in.
    pub source: Node,
    /// From this byte on.
    pub from: u64,
    /// The other file.
    pub target: Node,
    /// From this byte on.
    pub to: u64,
    /// Bytes.
    pub len: u64,
    /// Take set-user-id and set-group-id from the other file.
    pub kill: bool,
}

/// When a `setxattr` is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Never because of what is there.
    Either,
    /// If the attribute is there (`XATTR_CREATE`).
    Create,
    /// If it is not (`XATTR_REPLACE`).
    Replace,
}

/// What `fallocate` is to do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Make the file at least so long.
    Extend,
    /// Nothing that shows: the file's length stays.
    Keep,
    /// Make a hole, within the file's length.
    Punch,
    /// Make zeros, and the file at least so long.
    Zero,
}

/// A tree of files, which can be changed unless it is read-only.
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

    /// Sizes, as seen from this node.
    fn statfs(&self, node: Node) -> Result<Statfs, Errno>;

    /// The next data or hole at or after `offset`; `ENXIO` past the end.
    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno>;

    /// File flags and project number.
    fn flags(&self, node: Node) -> Result<Flags, Errno>;

    /// Whether the methods below do anything.
    fn writable(&self) -> bool {
        false
    }

    /// Whether the kernel knows all that becomes of names in a directory. Not where names that differ may mean one entry, so that
    /// it can't tell what a change of one does to another, and not where they change by themselves.
    fn names_stay(&self, _dir: Node) -> bool {
        true
    }

    /// Whether pages of a file stay good when nobody has it open. If they do when a file is opened for the first time, the kernel never asks again.
    fn keeps_pages(&self) -> bool {
        true
    }

    /// Whether files say something else at each read, so that the kernel may keep nothing of them, nor trust their sizes.
    fn is_live(&self) -> bool {
        false
    }

    /// Whether the one who asks may change names in a directory, beyond what its permissions say. The kernel grants what those don't to whoever
    /// is root of a user namespace that the directory's owner is mapped into; what is not a file needs more.
    fn admits(&self, _dir: Node, _who: Asker) -> bool {
        true
    }

    /// Makes a file of any kind.
    fn create(&self, _dir: Node, _name: &[u8], _new: &NewNode<'_>) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Makes a plain file without a name, as if in this directory; it goes when the kernel forgets it, unless [`Tree::link`] names it.
    fn create_unnamed(&self, _dir: Node, _new: &NewNode<'_>) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Gives a file one more name.
    fn link(&self, _node: Node, _dir: Node, _name: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Removes a name; its file goes when the kernel forgets it.
    fn unlink(&self, _dir: Node, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, _dir: Node, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Moves an entry.
    fn rename(&self, _from: (Node, &[u8]), _to: (Node, &[u8]), _how: Rename) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Writes all of `data`. `kill` takes set-user-id and set-group-id from the file.
    fn write(&self, _node: Node, _offset: u64, _data: &[u8], _kill: bool) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// The same of pages of the file that a program changed through a map. Where only this process
    /// keeps a file system from changes, they come through: the program can't be told any more.
    fn write_pages(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        self.write(node, offset, data, kill)
    }

    /// Makes as much of a range as can be shared part of another file, from its start on, and says how much. `EXDEV` if it must be copied.
    fn clone_range(&self, _range: &CloneRange) -> Result<u64, Errno> {
        Err(Errno::XDEV)
    }

    /// The same out of a snapshot of this tree, which stays meanwhile.
    fn clone_out_of(&self, _snapshot: &dyn Tree, _range: &CloneRange) -> Result<u64, Errno> {
        Err(Errno::XDEV)
    }

    /// The file system behind it, if it has blocks that can be shared.
    fn file_system(&self) -> Option<zpl::FileSystem> {
        None
    }

    /// Somebody has read a file, listed a directory or followed a link.
    fn accessed(&self, _node: Node) {}

    /// Changes attributes, and says what they are then.
    fn set_attr(&self, _node: Node, _set: &SetAttr) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// See [`Allocate`].
    fn allocate(&self, _node: Node, _offset: u64, _len: u64, _what: Allocate) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Sets an extended attribute.
    fn set_xattr(&self, _node: Node, _name: &[u8], _value: &[u8], _how: SetXattr) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, _node: Node, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Changes file flags.
    fn set_flags(&self, _node: Node, _flags: Flags) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Makes what was done to a file or directory before durable, with its name.
    fn fsync(&self, _node: Node) -> Result<(), Errno> {
        self.sync()
    }

    /// Waits until everything that was changed before is on disk.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// The kernel is about to be given a node, once more than it has forgotten it. Fails if the node
    /// can't be given any more.
    fn given(&self, _node: Node) -> Result<(), Errno> {
        Ok(())
    }

    /// The kernel has forgotten a node that it was given so many times: nobody has it open, and
    /// nobody will unless it has a name.
    fn forget(&self, _node: Node, _times: u64) {}
}
