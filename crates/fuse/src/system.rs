//! Mounting and unmounting: the system's side of a mount.
//!
//! # Theory
//! Whoever may mount (root, or root of a user namespace) mounts by system call. Everybody else goes through
//! `fusermount3`, which is installed set-user-id root, checks that the caller owns the mount point, mounts, and hands
//! the open device back through a socket. What is mounted is read from `/proc/self/mountinfo`, where the type
//! `fuse.poolhouse` marks our mounts; nothing is kept in files of our own, so a daemon that died leaves all that its
//! successor needs to clean up.

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

/// Type of our mounts in the table of mounts.
pub const FS_TYPE: &str = "fuse.poolhouse";
pub(crate) const HELPER: &str = "fusermount3";
/// Where `fusermount3` reads what it may do for users.
pub const HELPER_CONF: &str = "/etc/fuse.conf";
/// The word in it that lets users let others in (`allow_other`).
pub const OTHERS_WORD: &str = "user_allow_other";

/// How to mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// What `df` and `mount` show as the device: the dataset's name.
    pub source: String,
    /// Refuse writes.
    pub read_only: bool,
    /// Ignore set-user-id bits (`setuid=off`).
    pub nosuid: bool,
    /// Ignore device nodes (`devices=off`).
    pub nodev: bool,
    /// Refuse to run programs (`exec=off`).
    pub noexec: bool,
    /// Don't update access times (`atime=off`).
    pub noatime: bool,
    /// Let users other than the one who mounts in. Root may always; others need `user_allow_other` in fuse.conf.
    pub allow_other: bool,
    /// Let the kernel check POSIX ACLs.
    pub posix_acl: bool,
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detach {
    /// Refuse if somebody uses it.
    Normal,
    /// Fail whatever is under way, then unmount (`-f`); root only, as lazy for others.
    Force,
    /// Take it out of the tree of names now and let its users finish (`umount -l`).
    Lazy,
}

/// Mounts at `target` and gives the device on which the kernel asks, non-blocking.
pub fn attach(target: &Path, options: &Options) -> Result<OwnedFd, Error> {
    match attach_by_call(target, options) {
        Err(
            Error::Mount { source: Errno::PERM | Errno::ACCESS, .. }
            | Error::Device { source: Errno::PERM | Errno::ACCESS },
        ) if !rustix::process::geteuid().is_root() => attach_by_helper(target, options),
        result => result,
    }
}

/// Whether this process mounts by itself, rather than by a helper. It is found out once.
///
/// The system is asked for a mount that lacks its device. It says `EPERM` to those who may not
/// mount, and to others `EINVAL`.
pub fn mounts_itself() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let refused = |errno| matches!(errno, Errno::PERM | Errno::ACCESS);
    *FOUND.get_or_init(|| {
        let asked = || rustix::mount::mount("poolhouse", "/", FS_TYPE, MountFlags::empty(), c"");
        let device = || rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        rustix::process::geteuid().is_root() || !(device().is_err_and(refused) || asked().is_err_and(refused))
    })
}

/// Whether this process may let other users into what it mounts: root may, and everybody where the helper's settings say so.
pub fn may_let_others_in() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string(HELPER_CONF).is_ok_and(|text| allows_others(&text))
}

/// Whether the helper's settings have the word on a line of its own, as it wants it.
pub fn allows_others(conf: &str) -> bool {
    conf.lines().any(|line| line.split('#').next().unwrap_or_default().trim() == OTHERS_WORD)
}

/// What the system calls know of the options.
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

/// These options, and what more the system says of the mount at `target`.
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

/// Changes the options of what is mounted at `target`: what may be written, and what is believed of its files.
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

/// Mounts what is behind a device at `target`. A device that serves a mount already gives that
/// file system one more place (Linux 5.15).
///
/// # Errors
/// [`Error::Mount`] if the system refuses.
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

/// A path that leads to an open directory, whatever it is called now.
pub(crate) fn by_number(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The directory at a path in which there is no link: whoever puts one there in this moment leads nobody elsewhere. `None` where the system can't say.
fn pin(target: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, target, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(place) => Ok(Some(place)),
        // An old kernel, or a container that doesn't know the call.
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn attach_by_helper(target: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let plumbing =
        |operation| move |source: Errno| Error::Workers { operation, source: std::io::Error::from(source) };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(plumbing("make a socket"))?;
    // A comma or backslash in a name would end the option.
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
    // The socket is the child's standard input, so that no other child can inherit it.
    let child = Command::new(HELPER)
        .args(["-o", &words, "--"])
        .arg(target)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Helper { source })?;
    // The child's end closes when it ends, so this never waits for nothing.
    let device = receive_device(&ours).map_err(plumbing("receive the device"))?;
    let ended = child.wait_with_output().map_err(|source| Error::Helper { source })?;
    let Some(device) = device else {
        let (target, message) = (target.to_owned(), Words(ended.stderr));
        // It looks at the place as root under the user's name, and of such a mixture the kernel knows only that it is not the user.
        return Err(match closed_around(&target) {
            Some(mount) => Error::Closed { target, mount, message },
            None => Error::HelperRefused { target, message },
        });
    };
    rustix::fs::fcntl_setfl(&device, OFlags::RDWR | OFlags::NONBLOCK)
        .map_err(plumbing("set up the device"))?;
    Ok(device)
}

/// Where the mount is that a path lies in, if that is one of ours that lets nobody in but its user.
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

/// Unmounts what is mounted at `target`, whatever that is.
pub fn detach(target: &Path, how: Detach) -> Result<(), Error> {
    detach_at(target, target, how)
}

/// Unmounts what is mounted at `place`, which `target` is called.
pub(crate) fn detach_at(place: &Path, target: &Path, how: Detach) -> Result<(), Error> {
    let flags = match how {
        Detach::Normal => UnmountFlags::empty(),
        Detach::Force => UnmountFlags::FORCE,
        Detach::Lazy => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(place, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // The helper has files of its own, so that it needs the name.
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

/// A line of the table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Its number in the table; another mount may get it when this one is gone.
    pub id: u64,
    /// Where.
    pub target: PathBuf,
    /// What: a dataset's name in our mounts.
    pub source: OsString,
    /// File-system type.
    pub fs_type: String,
    /// `st_dev` as `major:minor`.
    pub device: String,
    /// The user who mounted it, where the file system says so.
    pub user: Option<u32>,
    /// Whether other users are let in, as far as FUSE keeps them out (`allow_other`).
    pub others: bool,
}

/// A line of the table of mounts with how the mount hangs together with others.
#[derive(Debug)]
struct Row {
    mount: Mounted,
    /// The number of the mount that its mountpoint is in.
    parent: u64,
    /// Which directory of its file system its root is.
    root: PathBuf,
    /// The peer group with which it shares what is mounted and unmounted in it (`shared:N`).
    shared: Option<u64>,
    /// Whether it follows a peer group (`master:N`).
    follows: bool,
}

/// All mounts that this process sees, in the order in which they were made.
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

/// The tables of mounts of all processes that can be read, one for each namespace of mounts that
/// `seen` lacks, each with a process in it.
fn tables(mut seen: BTreeSet<PathBuf>) -> impl Iterator<Item = (u32, Vec<u8>)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let namespace = std::fs::read_link(entry.path().join("ns/mnt")).ok()?;
        // A process that ends meanwhile has none.
        let table = seen.insert(namespace).then(|| std::fs::read(entry.path().join("mountinfo")).ok());
        Some((pid, table.flatten()?))
    })
}

/// What a process runs. It chooses that name itself, so control characters are escaped.
pub fn program(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).escape_default().to_string()
}

/// Processes with a mount of this device, one for each namespace of mounts, and what they run:
/// at most `most` of them.
pub(crate) fn seen_by(device: &str, most: usize) -> Vec<(u32, String)> {
    let has = |table: &[u8]| lines(table).iter().any(|mount| mount.device == device);
    let users = tables(BTreeSet::new()).filter(|(_, table)| has(table));
    users.map(|(pid, _)| (pid, program(pid))).take(most).collect()
}

/// A table of mounts in which our mounts are found by their device.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<u64, Row>,
    /// Numbers of our mounts, in their order.
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

    /// The mounts of a device that is ours, each with the mount that it is in, as far as that is
    /// known.
    fn of(&self, device: &str) -> impl DoubleEndedIterator<Item = (&Row, &Row)> {
        self.ours.get(device).into_iter().flatten().filter_map(|id| {
            let row = self.rows.get(id)?;
            Some((row, self.rows.get(&row.parent)?))
        })
    }
}

/// Where our file systems are mounted, in all namespaces of mounts that can be read, at one moment.
///
/// # Theory
/// To unmount a place here unmounts it in another namespace, too, if the mount that it is in shares
/// a peer group with ours, or follows one, and has it at the same directory. On a machine with
/// systemd, most services have copies of that kind. [`Places::keeper`] names only what surely
/// stays. Of the rest, the unmount itself shows whether it stays.
#[derive(Debug)]
pub struct Places {
    own: Table,
    /// Each with a process.
    foreign: Vec<(u32, Table)>,
}

impl Places {
    /// Reads the tables.
    ///
    /// # Errors
    /// [`Error::Table`] if the table of this process can't be read.
    pub fn read() -> Result<Self, Error> {
        let seen = std::fs::read_link("/proc/self/ns/mnt").into_iter().collect();
        let own = std::fs::read("/proc/self/mountinfo").map_err(|source| Error::Table { source })?;
        let foreign = tables(seen).map(|(pid, table)| (pid, Table::read(&table)));
        let foreign = foreign.filter(|(_, table)| !table.ours.is_empty()).collect();
        Ok(Self { own: Table::read(&own), foreign })
    }

    /// The mounts of a device, in words: where this process sees them, and a process of each other
    /// namespace that has some; at most `most`.
    pub(crate) fn holders(&self, device: &str, most: usize) -> Vec<String> {
        let own = self.own.of(device).map(|(row, _)| at(&row.mount.target));
        let foreign = self.foreign.iter().filter(|(_, table)| table.of(device).next().is_some());
        own.chain(foreign.map(|(pid, _)| process(*pid))).take(most).collect()
    }

    /// The mounts of a part of a device, from a folder of it on, in words, as [`Places::holders`];
    /// not that of the whole.
    pub(crate) fn bound(&self, device: &str, folder: &Path, most: usize) -> Vec<String> {
        let part = |row: &Row| row.root.starts_with(folder) && row.root != Path::new("/");
        let own = self.own.of(device).filter(|(row, _)| part(row)).map(|(row, _)| at(&row.mount.target));
        let has = |table: &Table| table.of(device).any(|(row, _)| part(row));
        let foreign = self.foreign.iter().filter(|(_, table)| has(table));
        own.chain(foreign.map(|(pid, _)| process(*pid))).take(most).collect()
    }

    /// What keeps a file system mounted when it is unmounted at `target`: a mountpoint that this
    /// process sees, or a process in another namespace. `None` if it may go everywhere.
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

/// Whether to unmount `own` may unmount another mount of its device, each given with the mount that
/// it is in.
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

/// `id parent major:minor root target options tags... - type source super-options`
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

/// Undoes the table's `\ooo` for space, tab, newline and backslash.
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

/// Asks a mount whether anybody serves it, past the kernel's cache. A mount whose daemon died says `ENOTCONN`.
pub fn probe(target: &Path) -> Result<rustix::fs::Statx, Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(CWD, target, flags, StatxFlags::BASIC_STATS)
}

/// The device number of what is mounted at (or holds) a path, without asking the daemon that serves
/// it.
pub fn device_at(path: &Path) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// The same of the nearest folder above a path, or of the path, that can be looked at.
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

/// Our mounts (of this user), the last made first, whether anybody serves them or not.
pub fn ours() -> Result<Vec<Mounted>, Error> {
    let user = rustix::process::geteuid().as_raw();
    let mut found = table()?;
    found.retain(|mount| mount.fs_type == FS_TYPE && mount.user == Some(user));
    found.reverse();
    Ok(found)
}

/// Whether nobody serves a mount of ours any more.
///
/// One that is served by another daemon answers this question; one whose daemon hangs makes it wait, so ask off the main path.
pub fn is_orphan(target: &Path) -> bool {
    matches!(probe(target), Err(Errno::NOTCONN))
}

/// Raises the kernel's readahead on a mount, which it sets to 128 KiB whatever a file system asks for. Only root may,
/// and without it reads are merely smaller, so failure is no error.
pub fn raise_readahead(major: u32, minor: u32, bytes: u32) {
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, (bytes / 1024).to_string()) {
        tracing::debug!(knob, %error, "the kernel's readahead stays as it is");
    }
}

/// Whether `path` is a place where something is mounted, by the table.
pub fn is_mounted(path: &Path) -> Result<bool, Error> {
    Ok(table()?.iter().any(|mount| mount.target.as_os_str().as_bytes() == path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests;
