//! Which operation a request is, for the counters of its dataset.
//!
//! # Theory
//! A request is counted before its answer is sent. So a client that has the answer finds the
//! operation in the counters.
//!
//! Some errnos are results and no failures. The kernel looks for names before it creates them, and
//! for an attribute before each write. Programs look for the next data of a file, for the size of
//! an attribute, and for what a file system can do.

use crate::abi::{self, op};
use crate::dispatch::node_of;
use crate::message::{Answer, Request};
use crate::tree::FileTree;
use observe::ops::{Ended, Op};
use observe::work::{self, Job, Kind, Running};
use rustix::io::Errno;
use std::time::Instant;

/// The operation of a request. `None`: no user waits for it, or it is not part of one's work.
fn op_of(opcode: u32) -> Option<Op> {
    Some(match opcode {
        op::INIT | op::DESTROY | op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return None,
        op::LOOKUP => Op::Lookup,
        op::GETATTR | op::STATX => Op::Getattr,
        op::SETATTR => Op::Setattr,
        op::READLINK => Op::Readlink,
        op::SYMLINK => Op::Symlink,
        op::MKNOD => Op::Mknod,
        op::TMPFILE => Op::Tmpfile,
        op::MKDIR => Op::Mkdir,
        op::UNLINK => Op::Unlink,
        op::RMDIR => Op::Rmdir,
        op::RENAME | op::RENAME2 => Op::Rename,
        op::LINK => Op::Link,
        op::OPEN | op::OPENDIR => Op::Open,
        op::READ => Op::Read,
        op::WRITE => Op::Write,
        op::STATFS => Op::Statfs,
        op::FSYNC | op::FSYNCDIR => Op::Fsync,
        op::SYNCFS => Op::Syncfs,
        op::SETXATTR => Op::Setxattr,
        op::GETXATTR => Op::Getxattr,
        op::LISTXATTR => Op::Listxattr,
        op::REMOVEXATTR => Op::Removexattr,
        op::READDIR | op::READDIRPLUS => Op::Readdir,
        op::IOCTL => Op::Ioctl,
        op::LSEEK => Op::Seek,
        op::FALLOCATE => Op::Fallocate,
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => Op::CopyFileRange,
        _ => Op::Unknown,
    })
}

/// Begins a request on this thread, for those who want to know what is under way. `None`: no user
/// waits for it.
pub(super) fn begin(
    tree: &dyn FileTree,
    place: u64,
    request: &Request<'_>,
    began: Instant,
) -> Option<Running> {
    let head = &request.head;
    let kind = Kind::Request(tree.frontend(), op_of(head.opcode)?);
    let (node, pid, uid) = (head.nodeid, head.pid, head.uid);
    Some(work::begin(Job { kind, place, node, pid, uid, client: 0, began }))
}

/// Counts a request that was answered with `result`, for the dataset of its file.
pub(super) fn count(
    tree: &dyn FileTree,
    request: &Request<'_>,
    began: Instant,
    result: Result<(), Errno>,
    out: &Answer,
) {
    // After `ENOSYS` the kernel does the work itself, and sends no more such requests.
    let Some(op) = op_of(request.head.opcode).filter(|_| result != Err(Errno::NOSYS)) else { return };
    let failed = match (op, result) {
        (_, Ok(()))
        | (Op::Getxattr | Op::Listxattr, Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP))
        | (Op::Seek, Err(Errno::NXIO))
        | (Op::Ioctl, Err(Errno::NOTTY)) => None,
        (_, Err(errno)) => Some(errno.raw_os_error()),
    };
    let bytes = match op {
        Op::Read => out.len() as u64,
        Op::Write => request.body::<abi::WriteIn>().map_or(0, |ask| ask.size.into()),
        _ => 0,
    };
    tree.count(node_of(tree, request.head.nodeid), &Ended::now(op, began, bytes, failed));
}
