//! Mounting and unmounting: system calls, `fusermount3`, and the table of mounts.
//!
//! # Theory
//! A process that may mount (root, or root of a user namespace) mounts by system call. Any other
//! process uses `fusermount3`, which is installed set-user-ID root. `fusermount3` checks that the
//! caller owns the mountpoint, mounts, and passes the open FUSE device back through a socket.
//!
//! The table of mounts is `/proc/self/mountinfo`. The type `fuse.poolhouse` marks our mounts there.
//! This crate keeps no files of its own about mounts. So after a crash the next daemon finds in the
//! table all that it has to clean up.

use crate::error::{Error, Words};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// File-system type of our mounts in the table of mounts.
pub const FS_TYPE: &str = "fuse.poolhouse";
pub(crate) const HELPER: &str = "fusermount3";
/// The configuration file of `fusermount3`.
pub const HELPER_CONF: &str = "/etc/fuse.conf";
/// The line in that file that lets users mount with `allow_other`.
pub const OTHERS_WORD: &str = "user_allow_other";

/// Mount options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// What `df` and `mount` show as the device: the dataset's name.
    pub source: String,
    /// Refuse changes (`readonly=on`).
    pub read_only: bool,
    /// Ignore set-user-ID bits (`setuid=off`).
    pub nosuid: bool,
    /// Ignore device nodes (`devices=off`).
    pub nodev: bool,
    /// Refuse to run programs (`exec=off`).
    pub noexec: bool,
    /// Don't update access times (`atime=off`).
    pub noatime: bool,
    /// Let in other users than the one that mounts. Root may always set this; other users need
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Let the kernel check POSIX ACLs.
    pub posix_acl: bool,
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detach {
    /// Fail if a process uses the mount.
    Normal,
    /// Abort requests in progress, then unmount (`-f`). Without root, this is the same as
    /// [`Detach::Lazy`].
    Force,
    /// Remove it from the tree of mounts now, and serve its users until they finish (`umount -l`).
    Lazy,
}

/// Mounts at `target`, by system call or through `fusermount3`.
///
/// Returns the FUSE device, on which the kernel sends requests. It is non-blocking.
///
/// # Errors
/// * [`Error::Device`]: `/dev/fuse` can't be opened. Without root, `EPERM` and `EACCES` lead to
///   `fusermount3` instead.
/// * [`Error::Mount`]: `target` can't be opened without following links, or the kernel refuses the
///   mount. Without root, `EPERM` and `EACCES` lead to `fusermount3` instead.
/// * [`Error::Helper`]: `fusermount3` is missing or can't be run.
/// * [`Error::HelperRefused`]: `fusermount3` refuses.
/// * [`Error::Closed`]: `fusermount3` refuses, and `target` lies in a FUSE mount that only its user
///   may enter.
/// * [`Error::Workers`]: the socket to `fusermount3` fails.
pub fn attach(target: &Path, options: &Options) -> Result<OwnedFd, Error> {
    match attach_by_call(target, options) {
        Err(
            Error::Mount { source: Errno::PERM | Errno::ACCESS, .. }
            | Error::Device { source: Errno::PERM | Errno::ACCESS },
        ) if !rustix::process::geteuid().is_root() => attach_by_helper(target, options),
        result => result,
    }
}

/// Whether this process mounts by system call, rather than through `fusermount3`. Determined once.
///
/// To find out, this attempts a mount without its device. The kernel returns `EPERM` to a process
/// that may not mount, and `EINVAL` to one that may.
pub fn mounts_itself() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let refused = |errno| matches!(errno, Errno::PERM | Errno::ACCESS);
    *FOUND.get_or_init(|| {
        let asked = || rustix::mount::mount("poolhouse", "/", FS_TYPE, MountFlags::empty(), c"");
        let device = || rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        rustix::process::geteuid().is_root() || !(device().is_err_and(refused) || asked().is_err_and(refused))
    })
}

/// Whether this process may let other users into its mounts.
///
/// Root may, and any user if the configuration of `fusermount3` allows it.
pub fn may_let_others_in() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string(HELPER_CONF).is_ok_and(|text| allows_others(&text))
}

/// Whether this text of [`HELPER_CONF`] has [`OTHERS_WORD`] on a line of its own, as `fusermount3`
/// requires it.
pub fn allows_others(conf: &str) -> bool {
    conf.lines().any(|line| line.split('#').next().unwrap_or_default().trim() == OTHERS_WORD)
}

/// The flags of mount(2) for these options.
fn flags(options: &Options) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (wanted, flag) in [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
    ] {
        flags.set(flag, wanted);
    }
    flags
}

/// These options, with the flags that the mount at `target` has besides.
pub(crate) fn with_flags_of(target: &Path, options: &Options) -> Options {
    let has = rustix::fs::statvfs(target).map_or(StatVfsMountFlags::empty(), |stat| stat.f_flag);
    Options {
        read_only: options.read_only || has.contains(StatVfsMountFlags::RDONLY),
        nosuid: options.nosuid || has.contains(StatVfsMountFlags::NOSUID),
        nodev: options.nodev || has.contains(StatVfsMountFlags::NODEV),
        noexec: options.noexec || has.contains(StatVfsMountFlags::NOEXEC),
        ..options.clone()
    }
}

/// Changes the options of the mount at `target`: read-only or not, and which bits of its files
/// count.
///
/// # Errors
/// [`Error::Mount`]: the kernel refuses; `EPERM` if this process is not root.
pub(crate) fn remount(target: &Path, options: &Options) -> Result<(), Error> {
    rustix::mount::mount_remount(target, flags(options), "")
        .map_err(|source| Error::Mount { target: target.to_owned(), source })
}

fn attach_by_call(target: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let device =
        rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
            .map_err(|source| Error::Device { source })?;
    attach_device(&device, target, options)?;
    Ok(device)
}

/// Mounts the file system behind a FUSE device at `target`.
///
/// If the device already serves a mount, that file system gets one more mountpoint (Linux 5.15).
///
/// # Errors
/// [`Error::Mount`]: `target` can't be opened without following links, or the kernel refuses the
/// mount.
pub(crate) fn attach_device(device: impl AsFd, target: &Path, options: &Options) -> Result<(), Error> {
    let flags = flags(options);
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_fd().as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("digits and letters have no NUL");
    let failed = |source| Error::Mount { target: target.to_owned(), source };
    let place = pin(target).map_err(failed)?;
    let by_number = place.as_ref().map(by_number);
    let on = by_number.as_deref().unwrap_or(target);
    rustix::mount::mount(options.source.as_str(), on, FS_TYPE, flags, data.as_c_str()).map_err(failed)
}

/// A path that leads to an open directory even after it was renamed.
pub(crate) fn by_number(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Opens the directory at a path without following any symbolic link.
///
/// So a link that another process puts there at this moment can't redirect the mount. `None` if the
/// kernel doesn't support this.
fn pin(target: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, target, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(place) => Ok(Some(place)),
        // An old kernel, or a container whose filter doesn't know the call.
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn attach_by_helper(target: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let plumbing =
        |operation| move |source: Errno| Error::Workers { operation, source: std::io::Error::from(source) };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(plumbing("make a socket"))?;
    // A comma ends the option, so it and the backslash are escaped.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = format!("default_permissions,subtype=poolhouse,fsname={source}");
    for (wanted, word) in [
        (options.read_only, ",ro"),
        (options.nosuid, ",nosuid"),
        (options.nodev, ",nodev"),
        (options.noexec, ",noexec"),
        (options.noatime, ",noatime"),
        (options.allow_other, ",allow_other"),
    ] {
        if wanted {
            words.push_str(word);
        }
    }
    // As standard input of this child, no other child can inherit the socket.
    let child = Command::new(HELPER)
        .args(["-o", &words, "--"])
        .arg(target)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Helper { source })?;
    // The child's end closes when the child exits, so this can't wait forever.
    let device = receive_device(&ours).map_err(plumbing("receive the device"))?;
    let ended = child.wait_with_output().map_err(|source| Error::Helper { source })?;
    let Some(device) = device else {
        let (target, message) = (target.to_owned(), Words(ended.stderr));
        // `fusermount3` checks the mountpoint as root with the user's file-system ID. FUSE takes
        // such a mixture for another user, and refuses.
        return Err(match closed_around(&target) {
            Some(mount) => Error::Closed { target, mount, message },
            None => Error::HelperRefused { target, message },
        });
    };
    rustix::fs::fcntl_setfl(&device, OFlags::RDWR | OFlags::NONBLOCK)
        .map_err(plumbing("set up the device"))?;
    Ok(device)
}

/// The mountpoint of the mount around a path, if it is one of ours that only its user may enter.
fn closed_around(target: &Path) -> Option<PathBuf> {
    let mounts = table().ok()?;
    let around = mounts.into_iter().rev().filter(|mount| target.starts_with(&mount.target));
    let inner = around.max_by_key(|mount| mount.target.as_os_str().len())?;
    (inner.fs_type == FS_TYPE && !inner.others).then_some(inner.target)
}

fn receive_device(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [rustix::io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(Some(fd));
        }
    }
    Ok(None)
}

/// Unmounts the topmost mount at `target`, of whatever type.
///
/// # Errors
/// * [`Error::Unmount`] with `EBUSY`: a process uses the mount.
/// * [`Error::Unmount`] with another errno: the kernel refuses, such as `EINVAL` if nothing is
///   mounted there.
/// * [`Error::Helper`]: `fusermount3` is missing or can't be run.
/// * [`Error::HelperRefused`]: `fusermount3` refuses.
pub fn detach(target: &Path, how: Detach) -> Result<(), Error> {
    detach_at(target, target, how)
}

/// Unmounts the topmost mount at `place`. `target` is the name of that place, for `fusermount3` and
/// for messages.
///
/// # Errors
/// Those of [`detach`].
pub(crate) fn detach_at(place: &Path, target: &Path, how: Detach) -> Result<(), Error> {
    let flags = match how {
        Detach::Normal => UnmountFlags::empty(),
        Detach::Force => UnmountFlags::FORCE,
        Detach::Lazy => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(place, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // `fusermount3` can't use our open files, so it needs the name.
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => detach_by_helper(target, how),
        Err(source) => Err(Error::Unmount { target: target.to_owned(), source }),
    }
}

fn detach_by_helper(target: &Path, how: Detach) -> Result<(), Error> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if how != Detach::Normal {
        command.arg("-z");
    }
    let ended = command
        .arg("--")
        .arg(target)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Helper { source })?;
    if ended.status.success() {
        return Ok(());
    }
    Err(Error::HelperRefused { target: target.to_owned(), message: Words(ended.stderr) })
}

/// An entry of the table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Its mount ID in the table. A later mount may reuse the ID once this mount is gone.
    pub id: u64,
    /// Its mountpoint.
    pub target: PathBuf,
    /// Its source: the dataset's name for our mounts.
    pub source: OsString,
    /// Its file-system type.
    pub fs_type: String,
    /// `st_dev` as `major:minor`.
    pub device: String,
    /// The user that mounted it, if the file system shows that.
    pub user: Option<u32>,
    /// Whether FUSE lets other users in (`allow_other`).
    pub others: bool,
}

/// An entry of the table of mounts with its relation to other mounts.
#[derive(Debug)]
struct Row {
    mount: Mounted,
    /// The ID of the mount that holds its mountpoint.
    parent: u64,
    /// The directory of its file system that is its root.
    root: PathBuf,
    /// The peer group with which it shares mounts and unmounts below it (`shared:N`).
    shared: Option<u64>,
    /// Whether it receives mounts and unmounts from a peer group (`master:N`).
    follows: bool,
}

/// Lists all mounts that this process sees, in the order in which they were made.
///
/// # Errors
/// * [`Error::Descriptors`]: too many open files.
/// * [`Error::Table`]: `/proc/self/mountinfo` can't be read for another reason.
pub fn table() -> Result<Vec<Mounted>, Error> {
    let text = std::fs::read("/proc/self/mountinfo");
    let text = text.map_err(|source| match Errno::from_io_error(&source) {
        Some(source @ (Errno::MFILE | Errno::NFILE)) => Error::Descriptors { source },
        _ => Error::Table { source },
    })?;
    Ok(lines(&text))
}

fn lines(text: &[u8]) -> Vec<Mounted> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// The tables of mounts of other processes: one for each mount namespace that is not in `seen`,
/// with the ID of a process in it. Tables that can't be read are left out.
fn tables(mut seen: BTreeSet<PathBuf>) -> impl Iterator<Item = (u32, Vec<u8>)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let namespace = std::fs::read_link(entry.path().join("ns/mnt")).ok()?;
        // A process that has ended meanwhile has no table.
        let table = seen.insert(namespace).then(|| std::fs::read(entry.path().join("mountinfo")).ok());
        Some((pid, table.flatten()?))
    })
}

/// The name of the program that a process runs.
///
/// A process can choose this name, so control characters are escaped.
pub fn program(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).escape_default().to_string()
}

/// Processes that have a mount of this device, one for each mount namespace, with the names of
/// their programs. At most `most` entries.
pub(crate) fn seen_by(device: &str, most: usize) -> Vec<(u32, String)> {
    let has = |table: &[u8]| lines(table).iter().any(|mount| mount.device == device);
    let users = tables(BTreeSet::new()).filter(|(_, table)| has(table));
    users.map(|(pid, _)| (pid, program(pid))).take(most).collect()
}

/// A table of mounts, with an index of our mounts by device.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<u64, Row>,
    /// The IDs of our mounts, in the order of the table.
    ours: BTreeMap<String, Vec<u64>>,
}

impl Table {
    fn read(text: &[u8]) -> Self {
        let mut table = Self::default();
        for row in text.split(|&byte| byte == b'\n').filter_map(parse_row) {
            if row.mount.fs_type == FS_TYPE {
                table.ours.entry(row.mount.device.clone()).or_default().push(row.mount.id);
            }
            table.rows.insert(row.mount.id, row);
        }
        table
    }

    /// The mounts of one of our devices, each with the mount that holds its mountpoint. Mounts
    /// without a known parent are left out.
    fn of(&self, device: &str) -> impl DoubleEndedIterator<Item = (&Row, &Row)> {
        self.ours.get(device).into_iter().flatten().filter_map(|id| {
            let row = self.rows.get(id)?;
            Some((row, self.rows.get(&row.parent)?))
        })
    }
}

/// Where our file systems are mounted, in all mount namespaces that this process can read, at one
/// moment.
///
/// # Theory
/// An unmount here propagates to another namespace under two conditions. The parent mount there
/// shares a peer group with ours, or receives from one. And both mountpoints are the same
/// directory. On a machine with systemd, most services have copies of that kind.
///
/// `Places::keeper` names only mounts that certainly stay. For the rest, only the unmount itself
/// shows whether they stay.
#[derive(Debug)]
pub struct Places {
    own: Table,
    /// The tables of other namespaces, each with a process in it.
    foreign: Vec<(u32, Table)>,
}

impl Places {
    /// Reads the tables of mounts.
    ///
    /// # Errors
    /// [`Error::Table`]: the table of this process can't be read. Tables of other processes that
    /// can't be read are left out.
    pub fn read() -> Result<Self, Error> {
        let seen = std::fs::read_link("/proc/self/ns/mnt").into_iter().collect();
        let own = std::fs::read("/proc/self/mountinfo").map_err(|source| Error::Table { source })?;
        let foreign = tables(seen).map(|(pid, table)| (pid, Table::read(&table)));
        let foreign = foreign.filter(|(_, table)| !table.ours.is_empty()).collect();
        Ok(Self { own: Table::read(&own), foreign })
    }

    /// Descriptions of the mounts of a device, at most `most`.
    ///
    /// Mounts that this process sees are named by path, those in other namespaces by a process.
    pub(crate) fn holders(&self, device: &str, most: usize) -> Vec<String> {
        let own = self.own.of(device).map(|(row, _)| at(&row.mount.target));
        let foreign = self.foreign.iter().filter(|(_, table)| table.of(device).next().is_some());
        own.chain(foreign.map(|(pid, _)| process(*pid))).take(most).collect()
    }

    /// Descriptions of the mounts of a part of a device: of `folder`, or of a folder below it.
    ///
    /// Mounts of the whole file system are left out. The entries are as those of
    /// [`Places::holders`].
    pub(crate) fn bound(&self, device: &str, folder: &Path, most: usize) -> Vec<String> {
        let part = |row: &Row| row.root.starts_with(folder) && row.root != Path::new("/");
        let own = self.own.of(device).filter(|(row, _)| part(row)).map(|(row, _)| at(&row.mount.target));
        let has = |table: &Table| table.of(device).any(|(row, _)| part(row));
        let foreign = self.foreign.iter().filter(|(_, table)| has(table));
        own.chain(foreign.map(|(pid, _)| process(*pid))).take(most).collect()
    }

    /// What keeps a file system mounted after an unmount at `target`.
    ///
    /// That is a mountpoint that this process sees, or a process in another namespace. `None` if
    /// the unmount may remove all mounts.
    pub(crate) fn keeper(&self, device: &str, target: &Path) -> Option<String> {
        let (own, above) = self.own.of(device).rfind(|(row, _)| row.mount.target == target)?;
        let stays = |(row, parent): &(&Row, &Row)| !may_go((own, above), (row, parent));
        let mut others = self.own.of(device).filter(|(row, _)| row.mount.id != own.mount.id);
        if let Some((row, _)) = others.find(stays) {
            return Some(at(&row.mount.target));
        }
        let (pid, _) = self.foreign.iter().find(|(_, table)| table.of(device).any(|row| stays(&row)))?;
        Some(process(*pid))
    }
}

fn at(target: &Path) -> String {
    format!("another mount of it, at {}", target.display())
}

pub(crate) fn process(pid: u32) -> String {
    format!("{} (pid {pid})", program(pid))
}

/// Whether an unmount of `own` may propagate to `other`. Each comes with the mount that holds its
/// mountpoint.
fn may_go((own, above): (&Row, &Row), (other, parent): (&Row, &Row)) -> bool {
    let hears = above.shared.is_some() && (parent.shared == above.shared || parent.follows);
    let place = |row: &Row, parent: &Row| {
        let below = row.mount.target.strip_prefix(&parent.mount.target);
        below.ok().map(|below| parent.root.join(below))
    };
    let (ours, theirs) = (place(own, above), place(other, parent));
    hears && (ours == theirs || ours.is_none() || theirs.is_none())
}

fn parse_line(line: &[u8]) -> Option<Mounted> {
    parse_row(line).map(|row| row.mount)
}

/// Parses `id parent major:minor root target options tags... - type source super-options`.
fn parse_row(line: &[u8]) -> Option<Row> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = number(words.next()?)?;
    let parent = number(words.next()?)?;
    let device = words.next()?;
    let root = unescape(words.next()?);
    let target = unescape(words.next()?);
    let tags = words.clone().skip(1).take_while(|word| *word != b"-");
    let shared = tags.clone().find_map(|tag| number(tag.strip_prefix(b"shared:")?));
    let follows = tags.clone().any(|tag| tag.starts_with(b"master:"));
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let fs_type = words.next()?;
    let source = unescape(words.next()?);
    let mut own = words.next()?.split(|&byte| byte == b',');
    let others = own.clone().any(|word| word == b"allow_other");
    let user = own.find_map(|word| std::str::from_utf8(word.strip_prefix(b"user_id=")?).ok()?.parse().ok());
    let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
    let mount = Mounted {
        id,
        target: path(target),
        source: OsString::from_vec(source),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
        device: String::from_utf8_lossy(device).into_owned(),
        user,
        others,
    };
    Some(Row { mount, parent, root: path(root), shared, follows })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Decodes the table's octal escapes (`\ooo`) of space, tab, newline and backslash.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(u8::is_ascii_digit));
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(value.unwrap_or(byte));
        rest = if value.is_some() { &tail[3..] } else { tail };
    }
    out
}

/// Reads the attributes of `target` from the daemon that serves it, not from the kernel's cache.
///
/// # Errors
/// Any errno of statx(2). `ENOTCONN`: the daemon that served the mount is gone.
pub fn probe(target: &Path) -> Result<rustix::fs::Statx, Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(CWD, target, flags, StatxFlags::BASIC_STATS)
}

/// The device number of the file system at a path, without a request to the daemon that serves it.
///
/// A symbolic link at the end of the path is not followed.
///
/// # Errors
/// Any errno of statx(2): `ENOENT` if there is no such path, `EACCES` if a folder denies access.
pub fn device_at(path: &Path) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// The device number at a path, or at the nearest folder above it that this process can access.
///
/// # Errors
/// Any errno of statx(2) on a folder above, except `ENOENT` and `EACCES`.
pub fn device_around(path: &Path) -> Result<(u32, u32), Errno> {
    let mut seen = Err(Errno::NOENT);
    for at in path.ancestors() {
        seen = device_at(at);
        if !matches!(seen, Err(Errno::NOENT | Errno::ACCESS)) {
            break;
        }
    }
    seen
}

/// Lists our mounts that this user made, the newest first. Mounts without a daemon are among them.
///
/// # Errors
/// Those of [`table`].
pub fn ours() -> Result<Vec<Mounted>, Error> {
    let user = rustix::process::geteuid().as_raw();
    let mut found = table()?;
    found.retain(|mount| mount.fs_type == FS_TYPE && mount.user == Some(user));
    found.reverse();
    Ok(found)
}

/// Whether the daemon that served this mount is gone.
///
/// If another daemon serves it, that daemon answers. If the daemon hangs, this call waits. So call
/// it from a thread of its own.
pub fn is_orphan(target: &Path) -> bool {
    matches!(probe(target), Err(Errno::NOTCONN))
}

/// Raises the kernel's readahead on a mount.
///
/// The kernel sets it to 128 KiB, whatever a file system requests. Only root may raise it. Without
/// it reads are only smaller, so a failure is no error.
pub fn raise_readahead(major: u32, minor: u32, bytes: u32) {
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, (bytes / 1024).to_string()) {
        tracing::debug!(knob, %error, "the kernel's readahead stays as it is");
    }
}

/// Whether something is mounted at `path`, by the table of mounts.
///
/// # Errors
/// Those of [`table`].
pub fn is_mounted(path: &Path) -> Result<bool, Error> {
    Ok(table()?.iter().any(|mount| mount.target.as_os_str().as_bytes() == path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests;
