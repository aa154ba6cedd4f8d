//! One request in, one answer out: the meaning of the protocol, over a [`FileTree`].
//!
//! # Theory
//! The kernel may cache all that it learns, for good: names, absent names, attributes, listings,
//! links and data. That is right since the tree never changes without the kernel. Either it is
//! read-only, or changes come through this mount and the kernel knows them. Other changes notify
//! the kernel: those of `poolhouse cp`, and a rollback, which changes everything at once.
//!
//! There are these exceptions:
//!
//! | what | kept for | why |
//! |---|---|---|
//! | names and listings that another front end changes | 0 s | the kernel is not notified |
//! | attributes of such files | 1 s | the same; pages go with attributes that differ |
//! | names, where several may mean one entry | 0 s | a change of one changes others |
//! | attributes of a file with unwritten blocks | 1 s | the writes change the allocated size |
//! | attributes of a file with set-ID bits | 0 s | a write clears them without notice |
//!
//! An open file has no state here. The answer to OPEN and OPENDIR is `ENOSYS`, so the kernel stops
//! asking and keeps its page cache. So a small file costs one LOOKUP and one READ. CREATE would
//! open a new file, and the later RELEASE would keep the file busy after the close. So CREATE gets
//! `ENOSYS`, too, and new files come by MKNOD.
//!
//! A file that is removed while open stays until the kernel forgets it, which happens at the last
//! close.
//!
//! The kernel checks permissions (`default_permissions`), and reads ACLs as extended attributes.
//!
//! There is no write-back cache: writes arrive at once, so that a program learns that no space is
//! left.
//!
//! # Absent
//! * Locks (`flock`, `fcntl`): the kernel keeps them, since only this kernel has the files.
//! * `FICLONE` and `FICLONERANGE`, which the kernel doesn't pass on. `copy_file_range` does the
//!   same.
//! * Access times of reads from the page cache, of which the kernel sends no notice.

mod change;

pub use change::leaves_wrong_pages;

use crate::abi::{self, init, op};
use crate::message::{Answer, Request};
use crate::tree::{Attr, Entry, FileTree, Node, Seek, Time};
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// The kernel must not cache pages of the file (`FOPEN_DIRECT_IO`).
const FOPEN_DIRECT_IO: u32 = 1;
/// How long the kernel may cache what doesn't change, in seconds: 34 years.
const FOREVER: u64 = 1 << 30;
/// How long it may cache attributes that are about to change, in seconds.
const SOON: u64 = 1;
/// The largest read that is answered, and the readahead to request, in bytes.
pub const MAX_READ: u32 = 1 << 20;
/// The largest write that is accepted, in bytes. It determines the size of each worker's buffer.
pub const MAX_WRITE: u32 = 1 << 20;
/// How many readahead requests of one mount may be in progress.
const MAX_BACKGROUND: u16 = 64;
/// The longest name that the kernel passes, in bytes (`FUSE_NAME_LOW_MAX`).
const NAME_MAX: usize = 1024;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_XFLAG_IMMUTABLE: u32 = 0x8;
const FS_XFLAG_APPEND: u32 = 0x10;
const FS_XFLAG_NODUMP: u32 = 0x80;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;
/// File flags in both forms: of `FS_IOC_GETFLAGS`, and of `FS_IOC_FSGETXATTR`.
const FLAGS: [(u32, u32); 4] = [
    (0x10, FS_XFLAG_IMMUTABLE),
    (0x20, FS_XFLAG_APPEND),
    (0x40, FS_XFLAG_NODUMP),
    (0x2000_0000, FS_XFLAG_PROJINHERIT),
];

/// Open flag: a read must not change the access time.
const O_NOATIME: u32 = 0o1_000_000;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// What the caller of [`answer`] has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Send the answer with this result.
    Send(Result<(), Errno>),
    /// Nothing: the kernel expects no answer.
    Silent,
}

/// How a mount behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behaviour {
    /// Whether the kernel checks POSIX ACLs (`acltype=posix`).
    pub posix_acl: bool,
    /// Whether SETXATTR has the longer form ([`takes_setxattr_ext`]).
    pub setxattr_ext: bool,
}

/// Whether the answer to this INIT accepts `FUSE_SETXATTR_EXT`.
///
/// If it does, SETXATTR has a longer form from then on.
pub fn takes_setxattr_ext(request: &Request<'_>) -> bool {
    let offered = request.body::<abi::InitIn>().map(|hello| u64::from(hello.flags));
    request.head.opcode == op::INIT && offered.is_ok_and(|offered| offered & init::SETXATTR_EXT != 0)
}

/// Answers one request. The body of the answer is in `out` afterwards.
pub fn answer(tree: &dyn FileTree, behaviour: Behaviour, request: &Request<'_>, out: &mut Answer) -> Outcome {
    let node = node_of(tree, request.head.nodeid);
    Outcome::Send(match request.head.opcode {
        op::FORGET | op::BATCH_FORGET => {
            change::forget(tree, request);
            return Outcome::Silent;
        }
        op::INTERRUPT => return Outcome::Silent,
        op::INIT => handshake(tree, behaviour, request, out),
        op::DESTROY => Ok(()),
        op::LOOKUP => lookup(tree, node, request, out),
        op::GETATTR => getattr(tree, node, out),
        op::STATX => statx(tree, node, out),
        op::READLINK => tree.readlink(node).map(|target| {
            tree.accessed(node);
            out.bytes(&target);
        }),
        op::READ => read(tree, node, request, out),
        op::READDIR => readdir(tree, node, request, out, false),
        op::READDIRPLUS => readdir(tree, node, request, out, true),
        op::STATFS => statfs(tree, node, out),
        op::GETXATTR => getxattr(tree, node, request, out),
        op::LISTXATTR => listxattr(tree, node, request, out),
        op::IOCTL => ioctl(tree, node, request, out),
        op::LSEEK => lseek(tree, node, request, out),
        op::OPEN if tree.is_live() => {
            out.put(&abi::OpenOut { open_flags: FOPEN_DIRECT_IO, ..abi::OpenOut::default() });
            Ok(())
        }
        op::OPEN if !tree.keeps_pages() || tree.changes_elsewhere() => {
            out.put(&abi::OpenOut::default());
            Ok(())
        }
        // The kernel caches the listing unless this answer comes without a flag.
        op::OPENDIR if tree.changes_elsewhere() => {
            out.put(&abi::OpenOut::default());
            Ok(())
        }
        op::TMPFILE | op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 if !tree.writable() => Err(Errno::ROFS),
        // For all other requests, such as OPEN, CREATE, RELEASE, FLUSH, ACCESS and locks: one
        // `ENOSYS` is enough for the kernel to stop sending them.
        _ => change::answer(tree, behaviour, node, request, out).unwrap_or(Err(Errno::NOSYS)),
    })
}

/// The node that the kernel knows by a number.
pub(crate) fn node_of(tree: &dyn FileTree, nodeid: u64) -> Node {
    if nodeid == abi::ROOT_ID { tree.root() } else { Node(nodeid) }
}

/// The number by which the kernel knows a node.
pub(crate) fn nodeid_of(tree: &dyn FileTree, node: Node) -> u64 {
    if node == tree.root() { abi::ROOT_ID } else { node.0 }
}

fn handshake(
    tree: &dyn FileTree,
    behaviour: Behaviour,
    request: &Request<'_>,
    out: &mut Answer,
) -> Result<(), Errno> {
    let hello: abi::InitIn = request.body()?;
    let mut reply = abi::InitOut {
        major: abi::VERSION_MAJOR,
        minor: abi::VERSION_MINOR,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: MAX_WRITE,
        time_gran: 1,
        max_pages: u16::try_from(MAX_READ / 4096).expect("256"),
        // The kernel takes the smaller of its own limit and this one.
        max_readahead: MAX_READ,
        ..abi::InitOut::default()
    };
    if hello.major > abi::VERSION_MAJOR {
        // It repeats INIT with our version.
        out.put(&reply);
        return Ok(());
    }
    let needed = init::NO_OPEN_SUPPORT | init::NO_OPENDIR_SUPPORT | init::MAX_PAGES;
    let mut wanted = init::ASYNC_READ
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::HAS_IOCTL_DIR
        | init::DO_READDIRPLUS
        // A program that reads names only gets no attributes.
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::CACHE_SYMLINKS
        | init::INIT_EXT
        // Needed even while the file system is read-only: it may become writable later.
        | init::HANDLE_KILLPRIV_V2
        // With this, the kernel reports when a new ACL clears the set-group-ID bit.
        | init::SETXATTR_EXT
        | needed;
    if behaviour.posix_acl {
        // In a directory with a default ACL the umask has no effect. The tree decides that.
        wanted |= init::POSIX_ACL | init::DONT_MASK;
    }
    if tree.changes_elsewhere() {
        // A read of an open file checks its attributes, and drops pages if they differ.
        wanted |= init::AUTO_INVAL_DATA;
    }
    let offered = u64::from(hello.flags);
    if hello.major < abi::VERSION_MAJOR || offered & needed != needed {
        return Err(Errno::PROTO);
    }
    let taken = wanted & offered;
    reply.flags = u32::try_from(taken & u64::from(u32::MAX)).expect("masked to 32 bits");
    out.put(&reply);
    Ok(())
}

fn attr_phys(attr: &Attr) -> abi::AttrPhys {
    abi::AttrPhys {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.sec,
        mtime: attr.mtime.sec,
        ctime: attr.ctime.sec,
        atimensec: attr.atime.nsec,
        mtimensec: attr.mtime.nsec,
        ctimensec: attr.ctime.nsec,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: kernel_dev(attr.rdev),
        blksize: attr.blksize,
        flags: 0,
    }
}

/// A device number as the kernel packs it into 32 bits: 12 bits of major, 20 of minor
/// (`new_encode_dev`).
fn kernel_dev((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// The major and minor number of a packed device number, as [`kernel_dev`] makes it.
fn kernel_dev_parts(dev: u32) -> (u32, u32) {
    (dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xf_ff00)
}

/// For how many seconds the kernel may cache attributes.
///
/// A write by an ordinary user clears the set-ID bits of a file. The kernel leaves that to the
/// server, and keeps the cached mode even when it runs the program. So the attributes of such a
/// file must not be cached.
fn attr_valid(attr: &Attr) -> u64 {
    if attr.mode & S_IFMT == S_IFREG && attr.mode & (S_ISUID | S_ISGID) != 0 {
        0
    } else if attr.settled {
        FOREVER
    } else {
        SOON
    }
}

/// For how many seconds the kernel may cache names.
fn entry_valid(tree: &dyn FileTree, dir: Node) -> u64 {
    if tree.names_stay(dir) { FOREVER } else { 0 }
}

fn attr_out(attr: &Attr) -> abi::AttrOut {
    abi::AttrOut { attr_valid: attr_valid(attr), attr: attr_phys(attr), ..abi::AttrOut::default() }
}

/// An answer that gives the kernel a reference to a node. The caller has to send it.
fn entry_out(tree: &dyn FileTree, dir: Node, attr: &Attr) -> Result<abi::EntryOut, Errno> {
    tree.given(attr.node)?;
    Ok(abi::EntryOut {
        nodeid: nodeid_of(tree, attr.node),
        generation: attr.generation,
        entry_valid: entry_valid(tree, dir),
        attr_valid: attr_valid(attr),
        attr: attr_phys(attr),
        ..abi::EntryOut::default()
    })
}

fn lookup(tree: &dyn FileTree, dir: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let name = request.name_after::<()>()?;
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let found = match name {
        // Requested when an NFS server rebuilds a path.
        b"." => tree.attr(dir),
        b".." => tree.attr(dir).and_then(|attr| tree.attr(attr.parent)),
        _ => tree.lookup(dir, name),
    };
    match found {
        Ok(attr) => out.put(&entry_out(tree, dir, &attr)?),
        Err(Errno::NOENT) => {
            out.put(&abi::EntryOut { entry_valid: entry_valid(tree, dir), ..abi::EntryOut::default() });
        }
        Err(errno) => return Err(errno),
    }
    Ok(())
}

fn getattr(tree: &dyn FileTree, node: Node, out: &mut Answer) -> Result<(), Errno> {
    out.put(&attr_out(&tree.attr(node)?));
    Ok(())
}

fn statx(tree: &dyn FileTree, node: Node, out: &mut Answer) -> Result<(), Errno> {
    let attr = tree.attr(node)?;
    let time = |time: Time| abi::StatxTime { sec: time.sec, nsec: time.nsec, reserved: 0 };
    out.put(&abi::StatxOut {
        attr_valid: attr_valid(&attr),
        mask: STATX_BASIC_STATS | STATX_BTIME,
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: u16::try_from(attr.mode & 0xffff).expect("masked to 16 bits"),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: attr.rdev.0,
        rdev_minor: attr.rdev.1,
        ..abi::StatxOut::default()
    });
    Ok(())
}

fn read(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::ReadIn = request.body()?;
    let got = tree.read(node, ask.offset, out.room(ask.size.min(MAX_READ) as usize))?;
    out.commit(got);
    if ask.flags & O_NOATIME == 0 {
        tree.accessed(node);
    }
    Ok(())
}

/// The position of the tree's first entry in READDIR. 0 is before `.`, and 1 is before `..`. The
/// tree's own cookies are shifted up by 2.
const FIRST: u64 = 2;

fn readdir(
    tree: &dyn FileTree,
    dir: Node,
    request: &Request<'_>,
    out: &mut Answer,
    plus: bool,
) -> Result<(), Errno> {
    let ask: abi::ReadIn = request.body()?;
    let room = ask.size.min(MAX_READ) as usize;
    if ask.offset == 0 {
        tree.accessed(dir);
    }
    if ask.offset < FIRST {
        let attr = tree.attr(dir)?;
        let parent = tree.attr(attr.parent).map_or(attr.ino, |parent| parent.ino);
        for (at, name, ino) in [(0, &b"."[..], attr.ino), (1, &b".."[..], parent)] {
            let dirent = abi::Dirent { ino, off: at + 1, namelen: 0, typ: 4 };
            if ask.offset <= at && !put_entry(out, room, plus.then(abi::EntryOut::default), dirent, name) {
                return Ok(());
            }
        }
    }
    let fixed = size_of::<abi::Dirent>() + if plus { size_of::<abi::EntryOut>() } else { 0 };
    let limit = room.saturating_sub(out.len()) / (fixed + 8) + 1;
    let entries = tree.readdir(dir, ask.offset.saturating_sub(FIRST), limit)?;
    for entry in &entries {
        // The kernel's offsets are signed.
        let off = entry.cookie.checked_add(FIRST).filter(|&off| i64::try_from(off).is_ok());
        let dirent = abi::Dirent {
            ino: entry.ino,
            off: off.ok_or(Errno::OVERFLOW)?,
            namelen: 0,
            typ: u32::from(entry.kind),
        };
        if room - out.len() < padded(fixed + entry.name.len()) {
            break;
        }
        let head = plus.then(|| entry_attr(tree, dir, entry));
        if !put_entry(out, room, head, dirent, &entry.name) {
            break;
        }
    }
    Ok(())
}

/// The attributes that go with an entry. An entry with unreadable attributes is listed by name
/// only.
fn entry_attr(tree: &dyn FileTree, dir: Node, entry: &Entry) -> abi::EntryOut {
    match entry.node.map(|node| tree.attr(node)) {
        Some(Ok(attr)) => entry_out(tree, dir, &attr).unwrap_or_default(),
        Some(Err(_)) | None => abi::EntryOut::default(),
    }
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// Appends an entry if it fits. Returns whether it did.
fn put_entry(
    out: &mut Answer,
    room: usize,
    head: Option<abi::EntryOut>,
    mut dirent: abi::Dirent,
    name: &[u8],
) -> bool {
    let size = head.map_or(0, |_| size_of::<abi::EntryOut>()) + size_of::<abi::Dirent>() + name.len();
    if out.len() + padded(size) > room {
        return false;
    }
    dirent.namelen = u32::try_from(name.len()).expect("the name fits into a megabyte");
    if let Some(head) = head {
        out.put(&head);
    }
    out.put(&dirent);
    out.bytes(name);
    out.bytes(&[0; 8][..padded(size) - size]);
    true
}

fn statfs(tree: &dyn FileTree, node: Node, out: &mut Answer) -> Result<(), Errno> {
    let sizes = tree.statfs(node)?;
    out.put(&abi::StatfsOut {
        blocks: sizes.blocks,
        bfree: sizes.free,
        bavail: sizes.free,
        files: sizes.files,
        ffree: sizes.files_free,
        bsize: sizes.transfer,
        namelen: sizes.name_max,
        frsize: sizes.unit,
        ..abi::StatfsOut::default()
    });
    Ok(())
}

fn getxattr(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::GetxattrIn = request.body()?;
    let value = tree.xattr(node, request.name_after::<abi::GetxattrIn>()?)?;
    sized(ask.size, &value, out)
}

fn listxattr(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::GetxattrIn = request.body()?;
    let mut list = Vec::new();
    for name in tree.xattr_names(node)? {
        list.extend_from_slice(&name);
        list.push(0);
    }
    sized(ask.size, &list, out)
}

/// The answer to a request with a size. A size of 0 requests only the size of the answer.
///
/// # Errors
/// `ERANGE`: the value is larger than `room`. `E2BIG`: its size does not fit into 32 bits.
fn sized(room: u32, value: &[u8], out: &mut Answer) -> Result<(), Errno> {
    let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    if room == 0 {
        out.put(&abi::GetxattrOut { size, padding: 0 });
    } else if size > room {
        return Err(Errno::RANGE);
    } else {
        out.bytes(value);
    }
    Ok(())
}

fn ioctl(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::IoctlIn = request.body()?;
    match ask.cmd {
        FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => {
            let flags = tree.flags(node)?;
            out.put(&abi::IoctlOut::default());
            out.put(&flags.bits);
        }
        FS_IOC_FSGETXATTR => {
            let flags = tree.flags(node)?;
            let xflags =
                FLAGS.iter().filter(|(bit, _)| flags.bits & bit != 0).fold(0, |all, (_, flag)| all | flag);
            // The fields of `struct fsxattr`: xflags, extsize, nextents, projid, cowextsize, 8
            // bytes of padding.
            out.put(&abi::IoctlOut::default());
            out.bytes([xflags, 0, 0, flags.project, 0, 0, 0].as_bytes());
        }
        _ => {
            let data = request.rest_after::<abi::IoctlIn>()?;
            return change::ioctl(tree, node, ask.cmd, data, out).unwrap_or(Err(Errno::NOTTY));
        }
    }
    Ok(())
}

/// File flags in the form of `FS_IOC_SETFLAGS`, from the form of `FS_IOC_FSSETXATTR`.
fn fs_flags(xflags: u32) -> u32 {
    FLAGS.iter().filter(|(_, flag)| xflags & flag != 0).fold(0, |all, (bit, _)| all | bit)
}

fn lseek(tree: &dyn FileTree, node: Node, request: &Request<'_>, out: &mut Answer) -> Result<(), Errno> {
    let ask: abi::LseekIn = request.body()?;
    let what = match ask.whence {
        3 => Seek::Data,
        4 => Seek::Hole,
        _ => return Err(Errno::INVAL),
    };
    out.put(&abi::LseekOut { offset: tree.seek(node, ask.offset, what)? });
    Ok(())
}
