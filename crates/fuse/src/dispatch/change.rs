//! Requests that change a tree.

use super::{Behaviour, S_IFMT, S_IFREG, S_ISGID, S_ISUID, entry_out, node_of};
use crate::abi::{self, op};
use crate::caller::Asker;
use crate::dispatch::{attr_out, kernel_dev_parts};
use crate::message::{Answer, Request};
use crate::tree::{
    Allocate, Caller, CloneRange, FileTree, Flags, NewNode, Node, Rename, SetAttr, SetTime, SetXattr, Time,
};
use rustix::io::Errno;

const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;
/// Open flag: each write is durable when it is acknowledged. Also part of `O_SYNC`.
const O_DSYNC: u32 = 0o10_000;
/// Cached pages of the file stay valid (`FOPEN_KEEP_CACHE`).
const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// The write clears the set-ID bits (`FUSE_WRITE_KILL_SUIDGID`).
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// The data are pages of the page cache (`FUSE_WRITE_CACHE`).
const WRITE_CACHE: u32 = 1 << 0;

const FATTR_MODE: u32 = 1 << 0;
const FATTR_UID: u32 = 1 << 1;
const FATTR_GID: u32 = 1 << 2;
const FATTR_SIZE: u32 = 1 << 3;
const FATTR_ATIME: u32 = 1 << 4;
const FATTR_MTIME: u32 = 1 << 5;
const FATTR_ATIME_NOW: u32 = 1 << 7;
const FATTR_MTIME_NOW: u32 = 1 << 8;
const FATTR_KILL_SUIDGID: u32 = 1 << 11;

/// The new ACL clears the set-group-ID bit (`FUSE_SETXATTR_ACL_KILL_SGID`).
const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// The capabilities that a program gets, stored with its file.
const CAPABILITY: &[u8] = b"security.capability";

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
/// The largest count that an answer of 32 bits can hold and that is a multiple of any block size.
const COPY_MAX: u64 = 1 << 30;

const FALLOC_KEEP_SIZE: u32 = 0x1;
const FALLOC_PUNCH_HOLE: u32 = 0x2;
const FALLOC_ZERO_RANGE: u32 = 0x10;

const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// Answers a request that changes the tree. `None` if it is another request.
pub(super) fn answer(
    tree: &dyn FileTree,
    behaviour: Behaviour,
    node: Node,
    request: &Request<'_>,
    out: &mut Answer,
) -> Option<Result<(), Errno>> {
    Some(match request.head.opcode {
        op::TMPFILE => tmpfile(tree, node, request, out),
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => copy_file_range(tree, node, request, out),
        op::MKNOD => mknod(tree, node, request, out),
        op::MKDIR => mkdir(tree, node, request, out),
        op::SYMLINK => symlink(tree, node, request, out),
        op::LINK => link(tree, node, request, out),
        op::UNLINK => request.name_after::<()>().and_then(|name| tree.unlink(node, name)),
        op::RMDIR => admitted(tree, node, request)
            .and_then(|()| request.name_after::<()>())
            .and_then(|name| tree.rmdir(node, name)),
        op::RENAME => rename(tree, node, request),
        op::RENAME2 => rename2(tree, node, request),
        op::WRITE => write(tree, node, request, out),
        op::SETATTR => setattr(tree, node, request, out),
        op::FALLOCATE => fallocate(tree, node, request),
        op::SETXATTR => setxattr(tree, behaviour, node, request),
        op::REMOVEXATTR => request.name_after::<()>().and_then(|name| tree.remove_xattr(node, name)),
        // On a read-only tree there is nothing to do. But `ENOSYS` would have the kernel stop
        // asking, and the tree may become writable later.
        op::FSYNC | op::FSYNCDIR => {
            if tree.writable() {
                tree.fsync(node)
            } else {
                Ok(())
            }
        }
        op::SYNCFS => {
            if tree.writable() {
                tree.sync()
            } else {
                Ok(())
            }
        }
        _ => return None,
    })
}

/// Whether the kernel now has pages that differ from the file.
///
/// That is so if this request wrote pages of a file that can't change, and was refused.
pub fn leaves_wrong_pages(request: &Request<'_>, result: Result<(), Errno>) -> bool {
    request.head.opcode == op::WRITE
        && matches!(result, Err(Errno::PERM | Errno::ROFS))
        && request.body::<abi::WriteIn>().is_ok_and(|ask| ask.write_flags & WRITE_CACHE != 0)
}

fn admitted(tree: &dyn FileTree, dir: Node, request: &Request<'_>) -> Result<(), Errno> {
    let who = Asker { uid: request.head.uid, pid: request.head.pid };
    if tree.admits(dir, who) { Ok(()) } else { Err(Errno::PERM) }
}

fn made(
    tree: &dyn FileTree,
    dir: Node,
    name: &[u8],
    new: &NewNode<'_>,
    out: &mut Answer,
) -> Result<(), Errno> {
    let attr = tree.create(dir, name, new)?;
    out.put(&entry_out(tree, dir, &attr)?);
    Ok(())
}

fn caller(request: &Request<'_>) -> Caller {
    Caller { uid: request.head.uid, gid: request.head.gid }
}

fn tmpfile(tree: &dyn FileTree, dir: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::CreateIn = request.body()?;
    let mode = S_IFREG | ask.mode & !S_IFMT;
    let new = NewNode { mode, umask: ask.umask, rdev: (0, 0), target: b"", caller: caller(request) };
    let attr = tree.create_unnamed(dir, &new)?;
    out.put(&entry_out(tree, dir, &attr)?);
    out.put(&abi::OpenOut { open_flags: FOPEN_KEEP_CACHE, ..abi::OpenOut::default() });
    Ok(())
}

fn copy_file_range(
    tree: &dyn FileTree,
    node: Node,
    request: &Request<'_>,
    out: &mut Answer,
) -> Result<(), Errno> {
    let ask: abi::CopyFileRangeIn = request.body()?;
    let target = node_of(tree, ask.nodeid_out);
    drop_capability(tree, target)?;
    let bytes_copied = tree.clone_range(&CloneRange {
        source: node,
        from: ask.off_in,
        target,
        to: ask.off_out,
        len: ask.len.min(COPY_MAX),
        kill: request.head.uid != 0,
    })?;
    if request.head.opcode == op::COPY_FILE_RANGE_64 {
        out.put(&abi::CopyFileRangeOut { bytes_copied });
    } else {
        let size = u32::try_from(bytes_copied).expect("no more than was asked for");
        out.put(&abi::WriteOut { size, padding: 0 });
    }
    Ok(())
}

fn mknod(tree: &dyn FileTree, dir: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::MknodIn = request.body()?;
    let name = request.name_after::<abi::MknodIn>()?;
    let rdev = kernel_dev_parts(ask.rdev);
    let new = NewNode { mode: ask.mode, umask: ask.umask, rdev, target: b"", caller: caller(request) };
    made(tree, dir, name, &new, out)
}

fn mkdir(tree: &dyn FileTree, dir: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    admitted(tree, dir, request)?;
    let ask: abi::MkdirIn = request.body()?;
    let name = request.name_after::<abi::MkdirIn>()?;
    let mode = S_IFDIR | ask.mode & !S_IFMT;
    let new = NewNode { mode, umask: ask.umask, rdev: (0, 0), target: b"", caller: caller(request) };
    made(tree, dir, name, &new, out)
}

fn symlink(tree: &dyn FileTree, dir: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let (name, target) = request.names_after::<()>()?;
    let new = NewNode { mode: S_IFLNK | 0o777, umask: 0, rdev: (0, 0), target, caller: caller(request) };
    made(tree, dir, name, &new, out)
}

fn link(tree: &dyn FileTree, dir: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::LinkIn = request.body()?;
    let attr = tree.link(node_of(tree, ask.oldnodeid), dir, request.name_after::<abi::LinkIn>()?)?;
    out.put(&entry_out(tree, dir, &attr)?);
    Ok(())
}

fn rename(tree: &dyn FileTree, dir: Node, request: &Request<'_>) -> Result<(), Errno> {
    admitted(tree, dir, request)?;
    let ask: abi::RenameIn = request.body()?;
    let (old, new) = request.names_after::<abi::RenameIn>()?;
    tree.rename((dir, old), (node_of(tree, ask.newdir), new), Rename::Replace)
}

fn rename2(tree: &dyn FileTree, dir: Node, request: &Request<'_>) -> Result<(), Errno> {
    admitted(tree, dir, request)?;
    let ask: abi::Rename2In = request.body()?;
    let how = match ask.flags {
        0 => Rename::Replace,
        RENAME_NOREPLACE => Rename::NoReplace,
        RENAME_EXCHANGE => Rename::Exchange,
        f if f & !RENAME_NOREPLACE == RENAME_WHITEOUT => {
            Rename::Whiteout { replace: f & RENAME_NOREPLACE == 0, caller: caller(request) }
        }
        // Flags of later kernels.
        _ => return Err(Errno::INVAL),
    };
    let (old, new) = request.names_after::<abi::Rename2In>()?;
    tree.rename((dir, old), (node_of(tree, ask.newdir), new), how)
}

fn write(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::WriteIn = request.body()?;
    let data = request.rest_after::<abi::WriteIn>()?.get(..ask.size as usize).ok_or(Errno::INVAL)?;
    let kill = ask.write_flags & WRITE_KILL_SUIDGID != 0;
    match ask.write_flags & WRITE_CACHE {
        0 => tree.write(node, ask.offset, data, kill)?,
        _ => tree.write_pages(node, ask.offset, data, kill)?,
    }
    if ask.flags & O_DSYNC != 0 {
        tree.fsync(node)?;
    }
    out.put(&abi::WriteOut { size: ask.size, padding: 0 });
    Ok(())
}

fn setattr(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::SetattrIn = request.body()?;
    let has = |bit: u32| ask.valid & bit != 0;
    let time = |given: u32, now: u32, sec: i64, nsec: u32| match (has(given), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Time { sec, nsec })),
    };
    let (uid, gid) = (has(FATTR_UID).then_some(ask.uid), has(FATTR_GID).then_some(ask.gid));
    let set = SetAttr {
        mode: has(FATTR_MODE).then_some(ask.mode & 0o7777),
        uid,
        gid,
        size: has(FATTR_SIZE).then_some(ask.size),
        atime: time(FATTR_ATIME, FATTR_ATIME_NOW, ask.atime, ask.atimensec),
        mtime: time(FATTR_MTIME, FATTR_MTIME_NOW, ask.mtime, ask.mtimensec),
        // A change of the owner always clears the set-ID bits.
        kill: has(FATTR_KILL_SUIDGID) || uid.is_some() || gid.is_some(),
    };
    let attr = tree.set_attr(node, &set)?;
    out.put(&attr_out(&attr));
    Ok(())
}

fn fallocate(tree: &dyn FileTree, node: Node, request: &Request<'_>) -> Result<(), Errno> {
    let ask: abi::FallocateIn = request.body()?;
    let what = match ask.mode {
        0 => Allocate::Extend,
        FALLOC_KEEP_SIZE => Allocate::Keep,
        m if m == FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE => Allocate::Punch,
        m if m == FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE => Allocate::Punch,
        FALLOC_ZERO_RANGE => Allocate::Zero,
        _ => return Err(Errno::OPNOTSUPP),
    };
    // The kernel says nothing of set-ID bits here, as it does for writes. Only root may let the
    // file keep them.
    if request.head.uid != 0 && tree.attr(node)?.mode & (S_ISUID | S_ISGID) != 0 {
        tree.set_attr(node, &SetAttr { kill: true, ..SetAttr::default() })?;
    }
    drop_capability(tree, node)?;
    tree.allocate(node, ask.offset, ask.length, what)
}

/// Removes the capabilities of a file that is about to change. The user doesn't matter.
///
/// The kernel does this itself before writes and truncations. Before the requests here, only later
/// kernels do.
///
/// # Errors
/// Those of [`FileTree::xattr`] and [`FileTree::remove_xattr`], except for the absence of the
/// attribute.
fn drop_capability(tree: &dyn FileTree, node: Node) -> Result<(), Errno> {
    match tree.xattr(node, CAPABILITY) {
        Ok(_) => tree.remove_xattr(node, CAPABILITY),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn setxattr(
    tree: &dyn FileTree,
    behaviour: Behaviour,
    node: Node,
    request: &Request<'_>,
) -> Result<(), Errno> {
    let ask: abi::SetxattrIn = request.body()?;
    let (extra, name, rest) = if behaviour.setxattr_ext {
        let extended: abi::SetxattrExtIn = request.body()?;
        let name = request.name_after::<abi::SetxattrExtIn>()?;
        (extended.setxattr_flags, name, request.rest_after::<abi::SetxattrExtIn>()?)
    } else {
        let name = request.name_after::<abi::SetxattrIn>()?;
        (0, name, request.rest_after::<abi::SetxattrIn>()?)
    };
    let value = rest.get(name.len() + 1..).and_then(|v| v.get(..ask.size as usize)).ok_or(Errno::INVAL)?;
    let how = match ask.flags {
        0 => SetXattr::Either,
        1 => SetXattr::Create,
        2 => SetXattr::Replace,
        _ => return Err(Errno::INVAL),
    };
    if extra & SETXATTR_ACL_KILL_SGID != 0 {
        let mode = tree.attr(node)?.mode;
        if mode & S_ISGID != 0 {
            let mode = Some(mode & 0o7777 & !S_ISGID);
            tree.set_attr(node, &SetAttr { mode, ..SetAttr::default() })?;
        }
    }
    tree.set_xattr(node, name, value, how)
}

/// Changes file flags. `None` if the command is another one.
pub(super) fn ioctl(
    tree: &dyn FileTree,
    node: Node,
    cmd: u32,
    data: &[u8],
    out: &mut Answer,
) -> Option<Result<(), Errno>> {
    let word = |at: usize| {
        let bytes = data.get(at * 4..at * 4 + 4).ok_or(Errno::INVAL)?;
        Ok::<u32, Errno>(u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
    };
    let set = || match cmd {
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
            let project = tree.flags(node)?.project;
            tree.set_flags(node, Flags { bits: word(0)?, project })
        }
        _ => tree.set_flags(node, Flags { bits: super::fs_flags(word(0)?), project: word(3)? }),
    };
    if !matches!(cmd, FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS | FS_IOC_FSSETXATTR) {
        return None;
    }
    Some(set().map(|()| out.put(&abi::IoctlOut::default())))
}

/// Passes the nodes that the kernel has forgotten on to the tree.
pub(super) fn forget(tree: &dyn FileTree, request: &Request<'_>) {
    if !tree.writable() {
        return;
    }
    if request.head.opcode == op::FORGET {
        let times = request.body::<abi::ForgetIn>().map_or(0, |body| body.nlookup);
        tree.forget(node_of(tree, request.head.nodeid), times);
        return;
    }
    let (Ok(head), Ok(rest)) =
        (request.body::<abi::BatchForgetIn>(), request.rest_after::<abi::BatchForgetIn>())
    else {
        return;
    };
    for one in rest.chunks_exact(size_of::<abi::ForgetOne>()).take(head.count as usize) {
        let word = |at: usize| u64::from_ne_bytes(one[at..at + 8].try_into().expect("eight bytes"));
        tree.forget(node_of(tree, word(0)), word(8));
    }
}
