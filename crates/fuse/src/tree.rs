//! The interface between the protocol and a file system: a tree of nodes, addressed by number.

use crate::caller::Asker;
use observe::ops::{Ended, Frontend};
use rustix::io::Errno;

/// A node of a tree, by the number under which the kernel addresses it.
///
/// The head dataset uses its object numbers as node numbers. So a node needs no memory here: no
/// table of nodes and no reference count. The control directory and snapshots use numbers above
/// [`crate::ctldir::SLOT_SHIFT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u64);

/// A point in time, as `timespec` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since the epoch, negative before it.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// The attributes of a node, as `stat` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// The node.
    pub node: Node,
    /// `st_ino`: the object number in the head dataset.
    pub ino: u64,
    /// Generation of the object number, for file handles of NFS.
    pub generation: u64,
    /// The directory that holds the node. A file with several links names one of its directories.
    pub parent: Node,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Number of links.
    pub nlink: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Major and minor number of a device, 0 otherwise.
    pub rdev: (u32, u32),
    /// Size: bytes of a file, number of entries of a directory.
    pub size: u64,
    /// Allocated blocks, in units of 512 bytes.
    pub blocks: u64,
    /// `st_blksize`: the preferred size of reads and writes, in bytes.
    pub blksize: u32,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the contents.
    pub mtime: Time,
    /// Time of the last change of the attributes.
    pub ctime: Time,
    /// Time of creation.
    pub btime: Time,
    /// Whether the attributes stay the same until the kernel changes them.
    ///
    /// They don't while blocks of the file are not yet written: `blocks` will change. Then the
    /// kernel keeps the attributes for a short time only.
    pub settled: bool,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, which needn't be UTF-8.
    pub name: Vec<u8>,
    /// The node of that name. `None` if only the type is known: a lookup by name finds the node.
    pub node: Option<Node>,
    /// `d_ino`: the inode number in the listing.
    pub ino: u64,
    /// The type of the file as `DT_*`, 0 if unknown.
    pub kind: u8,
    /// The position after this entry, from which the next read continues. Above 1.
    pub cookie: u64,
}

/// Sizes of the file system, as `statvfs` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statfs {
    /// Unit of `blocks` and `free`, in bytes.
    pub unit: u32,
    /// Preferred transfer size, in bytes.
    pub transfer: u32,
    /// Size of the file system, in units.
    pub blocks: u64,
    /// Free space, in units.
    pub free: u64,
    /// Number of files: those that exist and those that could be created.
    pub files: u64,
    /// Number of files that could be created.
    pub files_free: u64,
    /// Length of the longest possible name, in bytes.
    pub name_max: u32,
}

/// File flags and project, as `lsattr` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `FS_IOC_GETFLAGS` bits: 0x10 immutable, 0x20 append-only, 0x40 nodump, 0x20000000 project
    /// inheritance.
    pub bits: u32,
    /// Project ID.
    pub project: u32,
}

/// What `lseek` searches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored (`SEEK_DATA`).
    Data,
    /// The next hole (`SEEK_HOLE`). The end of a file counts as a hole.
    Hole,
}

/// The user and group of the process that creates a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its user ID, which becomes the file's owner.
    pub uid: u32,
    /// Its group ID. The file gets it unless the directory passes its own group on.
    pub gid: u32,
}

/// A file to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Permission bits to leave out (`umask`). The kernel has removed them from `mode` already,
    /// unless the mount has POSIX ACLs.
    pub umask: u32,
    /// Major and minor number of a device file.
    pub rdev: (u32, u32),
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// The creating user and group.
    pub caller: Caller,
}

/// Attributes to change. `None` leaves an attribute as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permissions: the low twelve bits of the mode.
    pub mode: Option<u32>,
    /// User ID of the owner.
    pub uid: Option<u32>,
    /// Group ID.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<SetTime>,
    /// Time of the last change of the contents.
    pub mtime: Option<SetTime>,
    /// Whether to clear the set-user-ID and set-group-ID bits.
    pub kill: bool,
}

/// A value for a time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change itself.
    Now,
    /// The given time.
    At(Time),
}

/// What a rename does with an existing entry of the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// The rename replaces the existing entry.
    Replace,
    /// The rename fails if there is an entry (`RENAME_NOREPLACE`).
    NoReplace,
    /// The two entries change places (`RENAME_EXCHANGE`).
    Exchange,
    /// A whiteout stays under the old name (`RENAME_WHITEOUT`).
    ///
    /// It is a character device 0:0. An overlay takes it as a sign that the name doesn't exist.
    Whiteout {
        /// Whether the rename replaces an existing entry. Otherwise it fails if there is one.
        replace: bool,
        /// The user and group that own the whiteout.
        caller: Caller,
    },
}

/// A range of a file to share with another file, without a copy of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneRange {
    /// The file to read from.
    pub source: Node,
    /// Offset in `source`, in bytes.
    pub from: u64,
    /// The file to write to.
    pub target: Node,
    /// Offset in `target`, in bytes.
    pub to: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether to clear the set-user-ID and set-group-ID bits of `target`.
    pub kill: bool,
}

/// Whether `setxattr` may create or replace an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// It may do both.
    Either,
    /// It fails if the attribute exists (`XATTR_CREATE`).
    Create,
    /// It fails if the attribute doesn't exist (`XATTR_REPLACE`).
    Replace,
}

/// What `fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Makes the file at least long enough to include the range.
    Extend,
    /// Changes nothing that a program can see: the length stays (`FALLOC_FL_KEEP_SIZE`).
    Keep,
    /// Makes a hole, within the length of the file (`FALLOC_FL_PUNCH_HOLE`).
    Punch,
    /// Makes the range read as zeros, and the file long enough to include it
    /// (`FALLOC_FL_ZERO_RANGE`).
    Zero,
}

/// A tree of files. A program can change it unless it is read-only.
///
/// Several threads may call each method at once, and each call may block on devices. Names are
/// single path components, without NUL and `/`. The protocol handles `.` and `..`: a tree neither
/// lists them nor gets lookups for them.
///
/// # Errors
/// Each method returns the errno for the system call. These can come from any of them:
///
/// * `EIO`: a block can't be read or is damaged; the pool has stopped writing; or the file system
///   could not be reopened after a rollback.
/// * `ESTALE`: the node number leads to no file, or to another file than it did.
/// * `ENOTCONN`: the node is in a nested file system that was unmounted by force.
///
/// The methods that change the tree also return:
///
/// * `EROFS`: the tree, or the part that holds the node, is read-only.
/// * `ENOSPC`: the pool has no free space left.
/// * `EDQUOT`: a quota is exhausted.
/// * `EPERM`: the file or directory is immutable or append-only.
pub trait FileTree: Send + Sync {
    /// The node of the root directory.
    fn root(&self) -> Node;

    /// Finds the node called `name` in a directory.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENOENT`: there is no such name.
    /// * `ENOTDIR`: `dir` is not a directory.
    /// * `ENAMETOOLONG`: the name is longer than the file system allows.
    /// * `EILSEQ`: the name is not UTF-8 and the file system allows nothing else.
    /// * `ENFILE`: no node numbers are left for snapshots or nested file systems.
    ///
    /// OpenZFS: `zpl_lookup`.
    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno>;

    /// Reads the attributes of a node.
    ///
    /// # Errors
    /// [Those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_getattr`.
    fn attr(&self, node: Node) -> Result<Attr, Errno>;

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL`: the node is not a symbolic link. Besides, [those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_get_link`.
    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno>;

    /// Fills `buf` with the bytes from `offset` on, and returns how many it read.
    ///
    /// The count is less than the length of `buf` only at the end of the file. A byte that can't be
    /// read fails the whole call, since the kernel takes a short answer for the end of the file.
    ///
    /// # Errors
    /// `EISDIR`: the node is a directory. Besides, [those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_iter_read`.
    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno>;

    /// Lists up to `limit` entries that follow `cookie`. 0 starts at the first entry.
    ///
    /// The list is empty at the end.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENOTDIR`: `dir` is not a directory.
    /// * `EOVERFLOW`: the position after an entry does not fit into a cookie.
    ///
    /// OpenZFS: `zpl_iterate`.
    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno>;

    /// Reads the value of an extended attribute.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENODATA`: the node has no attribute of that name.
    /// * `EOPNOTSUPP`: properties switch attributes of this kind off.
    /// * `E2BIG`: the value is too large to return.
    /// * `EINVAL`: no attribute can have this name.
    ///
    /// OpenZFS: `zpl_xattr_get`.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno>;

    /// Lists the names of all extended attributes.
    ///
    /// # Errors
    /// `E2BIG`: the names are too long to return together. Besides, [those of all
    /// methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_xattr_list`.
    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno>;

    /// Reads the sizes of the file system, as seen from this node.
    ///
    /// A node in a project with a quota shows the quota as the size.
    ///
    /// # Errors
    /// [Those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_statfs`.
    fn statfs(&self, node: Node) -> Result<Statfs, Errno>;

    /// Finds the next data or hole at or after `offset`.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENXIO`: `offset` is past the end, or no data follow it.
    /// * `EINVAL`: the node is in the control directory.
    ///
    /// OpenZFS: `zpl_llseek`.
    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno>;

    /// Reads the file flags and the project ID.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EOVERFLOW`: the project ID has more than 32 bits.
    /// * `ENOTTY`: the node is in the control directory.
    ///
    /// OpenZFS: `zpl_ioctl_getflags`, `zpl_ioctl_getxattr`.
    fn flags(&self, node: Node) -> Result<Flags, Errno>;

    /// Whether the methods below change anything. If not, they fail or do nothing.
    fn writable(&self) -> bool {
        false
    }

    /// Whether the kernel may keep what it knows of the names in a directory.
    ///
    /// It may not in two cases:
    ///
    /// * Different names can mean one entry: then a change of one changes others, unknown to the
    ///   kernel.
    /// * Entries change without the kernel, as snapshots do.
    fn names_stay(&self, _dir: Node) -> bool {
        true
    }

    /// Whether cached pages of a file stay valid while no process has it open.
    ///
    /// If they do at the first open of a file, the kernel sends no more OPEN requests.
    fn keeps_pages(&self) -> bool {
        true
    }

    /// Whether another front end changes files, unknown to the kernel.
    ///
    /// Then the kernel keeps no listings, and drops pages of a file when its attributes show a
    /// change. Attributes must not be [`Attr::settled`], nor names stay ([`FileTree::names_stay`]).
    fn changes_elsewhere(&self) -> bool {
        false
    }

    /// Whether the contents of files differ at each read.
    ///
    /// Then the kernel must not cache pages, nor rely on the sizes of files.
    fn is_live(&self) -> bool {
        false
    }

    /// Whether the caller may change names in a directory, beyond what the permissions say.
    ///
    /// The kernel itself grants such changes to root of any user namespace into which the
    /// directory's owner is mapped. Changes that act on more than files, such as `mkdir` of a
    /// snapshot, need a stricter check.
    fn admits(&self, _dir: Node, _who: Asker) -> bool {
        true
    }

    /// Creates a file of any type.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EEXIST`: the name exists.
    /// * `ENOENT`: the directory was removed.
    /// * `ENOTDIR`: `dir` is not a directory.
    /// * `EINVAL`: no file can have this name or this type.
    /// * `ENAMETOOLONG`: the name, or the target of a symbolic link, is too long.
    /// * `EILSEQ`: the name is not UTF-8 and the file system allows nothing else.
    /// * `EPERM`: the name is `.zfs` in the root; or a plain file would lie among the snapshots.
    ///
    /// OpenZFS: `zpl_mknod`, `zpl_mkdir`, `zpl_symlink`.
    fn create(&self, _dir: Node, _name: &[u8], _new: &NewNode<'_>) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Creates a plain file without a name, as if in this directory (`O_TMPFILE`).
    ///
    /// The file is freed when the kernel forgets it, unless [`FileTree::link`] names it before.
    ///
    /// # Errors
    /// `ENOTDIR`: `dir` is not a directory. Besides, [those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_tmpfile`.
    fn create_unnamed(&self, _dir: Node, _new: &NewNode<'_>) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EEXIST`, `ENOENT`, `ENOTDIR`, `EINVAL`, `ENAMETOOLONG`, `EILSEQ`: as
    ///   [`FileTree::create`].
    /// * `EPERM`: the node is a directory.
    /// * `ESTALE`: the file has no name left.
    /// * `EXDEV`: the directory is in another file system, or passes another project on.
    ///
    /// OpenZFS: `zpl_link`.
    fn link(&self, _node: Node, _dir: Node, _name: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Removes a name. The file is freed when the kernel forgets its node, if no name is left.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENOENT`: there is no such name.
    /// * `ENOTDIR`: `dir` is not a directory.
    /// * `EISDIR`: the name is that of a directory.
    ///
    /// OpenZFS: `zpl_unlink`.
    fn unlink(&self, _dir: Node, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Removes an empty directory. Among the snapshots, it destroys a snapshot.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENOENT`: there is no such name.
    /// * `ENOTDIR`: `dir`, or what the name means, is not a directory.
    /// * `ENOTEMPTY`: the directory has entries.
    /// * `EBUSY`: a nested file system is mounted there; or the snapshot is in use or held, or has
    ///   clones.
    /// * `EINVAL`: the name is `.` or `..`.
    ///
    /// OpenZFS: `zpl_rmdir`, `zfsctl_snapdir_remove`.
    fn rmdir(&self, _dir: Node, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Moves an entry to another name, directory, or both. Among the snapshots, it renames a
    /// snapshot.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `ENOENT`: there is no entry of the old name, or a directory was removed.
    /// * `EEXIST`: the new name exists, and `how` forbids that.
    /// * `ENOTEMPTY`, `EISDIR`, `ENOTDIR`: the entry of the new name can't be replaced by this one.
    /// * `EINVAL`: a directory would move below itself; or no entry can have the new name; or `how`
    ///   isn't possible there.
    /// * `EXDEV`: the directories are in different file systems, or the new one passes another
    ///   project on.
    /// * `EBUSY`: a nested file system is mounted on one of the entries.
    /// * `ENAMETOOLONG`, `EILSEQ`: as [`FileTree::create`].
    ///
    /// OpenZFS: `zpl_rename`, `zfsctl_snapdir_rename`.
    fn rename(&self, _from: (Node, &[u8]), _to: (Node, &[u8]), _how: Rename) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Writes all of `data` at `offset`. `kill` clears the set-user-ID and set-group-ID bits.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EISDIR` or `EINVAL`: the node is not a plain file.
    /// * `EFBIG`: the file would become larger than any file can be.
    ///
    /// OpenZFS: `zpl_iter_write`.
    fn write(&self, _node: Node, _offset: u64, _data: &[u8], _kill: bool) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Writes pages of the file that a program changed through a memory map.
    ///
    /// A file system that only this process keeps from changes accepts them all the same. The
    /// program changed the map long ago and can't get an error any more.
    ///
    /// # Errors
    /// Those of [`FileTree::write`].
    ///
    /// OpenZFS: `zpl_writepages`.
    fn write_pages(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        self.write(node, offset, data, kill)
    }

    /// Shares as much of a range as possible with another file, from the start of the range on.
    ///
    /// Returns the number of bytes that are shared.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EXDEV`: not even the first byte can be shared; the caller has to copy the range.
    /// * `EISDIR` or `EINVAL`: a node is not a plain file, or the range overlaps itself.
    /// * `EFBIG`: the target would become larger than any file can be.
    ///
    /// OpenZFS: `zpl_copy_file_range`.
    fn clone_range(&self, _range: &CloneRange) -> Result<u64, Errno> {
        Err(Errno::XDEV)
    }

    /// Shares a range of a snapshot of this tree. The snapshot must exist until this returns.
    ///
    /// # Errors
    /// Those of [`FileTree::clone_range`].
    fn clone_out_of(&self, _snapshot: &dyn FileTree, _range: &CloneRange) -> Result<u64, Errno> {
        Err(Errno::XDEV)
    }

    /// The file system behind the tree, if it has blocks that can be shared.
    fn file_system(&self) -> Option<zpl::FileSystem> {
        None
    }

    /// Notes that a program read a file, listed a directory or followed a link.
    fn accessed(&self, _node: Node) {}

    /// Changes attributes, and returns the attributes after the change.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EFBIG`: no file can have this size.
    /// * `EISDIR` or `EINVAL`: the size of something else than a plain file can't change.
    ///
    /// OpenZFS: `zpl_setattr`.
    fn set_attr(&self, _node: Node, _set: &SetAttr) -> Result<Attr, Errno> {
        Err(Errno::ROFS)
    }

    /// Does with a range what [`Allocate`] says.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EFBIG`: no file can be as large as the end of the range.
    /// * `ENOSPC`: the range is larger than the free space.
    /// * `EISDIR` or `EINVAL`: the node is not a plain file.
    ///
    /// OpenZFS: `zpl_fallocate_common`.
    fn allocate(&self, _node: Node, _offset: u64, _len: u64, _what: Allocate) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Besides [those of all methods](FileTree#errors):
    ///
    /// * `EEXIST`: the attribute exists, with [`SetXattr::Create`].
    /// * `ENODATA`: it does not exist, with [`SetXattr::Replace`].
    /// * `EOPNOTSUPP`: attributes of this kind are switched off, or unknown.
    /// * `EINVAL`: no attribute can have this name, or the value is not an ACL.
    /// * `ENAMETOOLONG`, `E2BIG`: the name or the value is too long.
    ///
    /// OpenZFS: `zpl_xattr_set`.
    fn set_xattr(&self, _node: Node, _name: &[u8], _value: &[u8], _how: SetXattr) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`: the node has no attribute of that name. Besides, those of
    /// [`FileTree::set_xattr`].
    ///
    /// OpenZFS: `zpl_xattr_set`.
    fn remove_xattr(&self, _node: Node, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Changes file flags and the project ID.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: this node can't have these flags or a project. Besides, [those of all
    /// methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_ioctl_setflags`, `zpl_ioctl_setxattr`.
    fn set_flags(&self, _node: Node, _flags: Flags) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    /// Makes all earlier changes of a file or directory durable, and its name.
    ///
    /// # Errors
    /// [Those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_fsync`.
    fn fsync(&self, _node: Node) -> Result<(), Errno> {
        self.sync()
    }

    /// Waits until all earlier changes of the file system are durable.
    ///
    /// # Errors
    /// [Those of all methods](FileTree#errors).
    ///
    /// OpenZFS: `zpl_sync_fs`.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Notes that the next answer gives the kernel a reference to this node.
    ///
    /// The kernel counts such references, and returns them by FORGET.
    ///
    /// # Errors
    /// `ESTALE`: the node's file system was unmounted, so the kernel must not get the node.
    fn given(&self, _node: Node) -> Result<(), Errno> {
        Ok(())
    }

    /// Notes that the kernel has returned `times` references to a node ([`FileTree::given`]).
    ///
    /// When it has returned all, no process has the file open. None will open it unless it has a
    /// name.
    ///
    /// OpenZFS: `zpl_evict_inode`.
    fn forget(&self, _node: Node, _times: u64) {}

    /// What users reach the nodes through.
    fn frontend(&self) -> Frontend {
        Frontend::Fuse
    }

    /// The name of a node's dataset, and the node's object there. This waits for no device.
    fn dataset_of(&self, _node: Node) -> Option<(String, Option<u64>)> {
        None
    }

    /// The path of a node in its dataset, if it has one. This may wait for a device. The mount is
    /// not suspended meanwhile.
    fn path_of(&self, _node: Node) -> Option<Vec<u8>> {
        None
    }

    /// Counts an operation on a node that has ended, for the node's dataset.
    fn count(&self, _node: Node, _ended: &Ended) {}
}
