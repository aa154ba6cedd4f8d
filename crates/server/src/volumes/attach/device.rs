//! A loop device, and the link to it.

use api::Reason;
use device::LoopDevice;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The folder of the links (`ZVOL_DIR`).
const DEV: &str = "/dev/zvol";

/// How many attempts to release a device before it counts as in use.
const TRIES: u32 = 10;
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Most programs to name that have a device open.
const NAMED: usize = 8;

/// The path of the link to a volume's device.
pub(crate) fn link_of(name: &str) -> PathBuf {
    Path::new(DEV).join(name)
}

/// A block device.
pub(crate) struct Device {
    pub(crate) object: u64,
    pub(crate) path: PathBuf,
    pub(crate) link: PathBuf,
    /// The file under the loop device.
    file: PathBuf,
}

/// Detached devices: the names of their volumes, and whether they were read-only.
pub(crate) type Taken = Vec<(String, bool)>;

/// Runs `losetup`, and returns its output.
///
/// # Errors
/// * [`Reason::Program`]: the program can't be run, or it failed, with its error output.
pub(crate) fn losetup(args: &[&str], path: &Path) -> Result<String, Reason> {
    let ran = Command::new("losetup").args(args).arg(path).output();
    let failed = |what: String| Reason::Program { what };
    let ran = ran.map_err(|error| failed(format!("losetup: {}", api::chain(&error))))?;
    if !ran.status.success() {
        return Err(failed(String::from_utf8_lossy(&ran.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

impl Device {
    /// Makes a loop device over a file, with a link to it.
    ///
    /// It uses direct I/O if possible. Then the page cache keeps no second copy of what the daemon
    /// has in its own cache.
    ///
    /// # Errors
    /// * [`Reason::Program`]: `losetup` failed.
    /// * [`Reason::System`]: the link can't be created.
    pub(crate) fn make(object: u64, file: &Path, read_only: bool, link: PathBuf) -> Result<Device, Reason> {
        let mut args = vec!["--find", "--show", "--partscan"];
        if read_only {
            args.push("--read-only");
        }
        let direct = [&args[..], &["--direct-io=on"]].concat();
        let path = losetup(&direct, file).or_else(|_| losetup(&args, file)).map(PathBuf::from)?;
        let device = Device { object, path, link, file: file.to_owned() };
        match make_link(&device.path, &device.link) {
            Ok(()) => Ok(device),
            Err(error) => {
                device.remove()?;
                Err(Reason::System { errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()) })
            }
        }
    }

    /// The users of the device, as text: programs that have it open, as far as they are visible,
    /// and mounts. The text is never empty for a device in use.
    pub(crate) fn users(&self) -> Vec<String> {
        if !self.is_ours() {
            return Vec::new();
        }
        let numbers = self.numbers();
        let mut users = openers(&numbers);
        let mounts = fuse::system::table().unwrap_or_default();
        let mounts = mounts.iter().filter(|mount| numbers.contains(&mount.device));
        users.extend(mounts.map(|mount| format!("mounted at {}", mount.target.display())));
        // Swap, a device of LVM, and the like.
        if users.is_empty() && self.is_claimed() {
            users.push("claimed by the system".to_owned());
        }
        users
    }

    fn is_claimed(&self) -> bool {
        let claim = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(&self.path, claim, Mode::empty()).is_err()
    }

    /// Whether one of these devices is in use, as far as that is visible. One pass over the
    /// processes serves all devices.
    pub(crate) fn any_used<'a>(devices: impl Iterator<Item = &'a Device>) -> bool {
        let ours: Vec<&Device> = devices.filter(|device| device.is_ours()).collect();
        let numbers: BTreeSet<String> = ours.iter().flat_map(|device| device.numbers()).collect();
        !numbers.is_empty()
            && (!openers(&numbers).is_empty() || ours.iter().any(|device| device.is_claimed()))
    }

    /// The numbers of the device and its partitions, as `major:minor`.
    fn numbers(&self) -> BTreeSet<String> {
        let name = self.path.file_name().unwrap_or_default();
        let number = |dir: PathBuf| std::fs::read_to_string(dir.join("dev")).ok();
        let whole = Path::new("/sys/block").join(name);
        let parts = std::fs::read_dir(&whole).into_iter().flatten().flatten().map(|entry| entry.path());
        parts.chain([whole.clone()]).filter_map(number).map(|number| number.trim_end().to_owned()).collect()
    }

    /// Whether the device still has this file. Root may have detached it without the daemon, and
    /// its number may have been reused.
    fn is_ours(&self) -> bool {
        loop_devices().contains(&(self.path.clone(), self.file.clone()))
    }

    /// Flushes the device into the volume and detaches it, if it is not open.
    ///
    /// # Errors
    /// * [`Reason::HeldOpen`]: it is open. The reason names the users.
    /// * [`Reason::System`]: it can't be opened, flushed or released.
    pub(crate) fn release(&self) -> Result<(), Reason> {
        let system = |error: std::io::Error| Reason::System { errno: error.raw_os_error().unwrap_or(5) };
        if !self.is_ours() {
            unlink(&self.path, &self.link);
            return Ok(());
        }
        let device = LoopDevice::open(&self.path).map_err(system)?;
        // A program that inspects new devices, such as udev, has it open for a moment.
        for left in (0..TRIES).rev() {
            device.flush().map_err(system)?;
            if device.release().map_err(system)? {
                unlink(&self.path, &self.link);
                return Ok(());
            }
            if left > 0 {
                std::thread::sleep(PAUSE);
            }
        }
        let users = self.users();
        let (device, volume) = (self.path.display(), self.link.display());
        tracing::info!(%device, %volume, ?users, "in use: it stays attached");
        Err(Reason::HeldOpen { by: if users.is_empty() { "a program".to_owned() } else { users.join(", ") } })
    }

    /// Detaches the device even if it is in use. Then the kernel removes it after its last user.
    ///
    /// # Errors
    /// * [`Reason::Program`]: `losetup` failed.
    pub(crate) fn remove(&self) -> Result<(), Reason> {
        if self.is_ours() {
            losetup(&["--detach"], &self.path)?;
        }
        unlink(&self.path, &self.link);
        Ok(())
    }

    /// Replaces the link to the device.
    ///
    /// # Errors
    /// The system's error: the new link or its folder can't be created.
    pub(crate) fn link_as(&mut self, link: PathBuf) -> std::io::Result<()> {
        unlink(&self.path, &self.link);
        self.link = link;
        make_link(&self.path, &self.link)
    }

    /// Flushes what its users wrote into the volume, since they are about to lose the device.
    pub(crate) fn settle(&self) {
        let users = self.users();
        tracing::warn!(device = %self.path.display(), volume = %self.link.display(), ?users, "in use: detached, its users lose it");
        let numbers = self.numbers();
        let mounts = fuse::system::table().unwrap_or_default();
        for mount in mounts.iter().filter(|mount| numbers.contains(&mount.device)) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let synced = rustix::fs::open(&mount.target, flags, Mode::empty()).and_then(rustix::fs::syncfs);
            if let Err(error) = synced {
                tracing::error!(target = %mount.target.display(), %error, "it can't be synced");
            }
        }
        let synced = rustix::fs::open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(rustix::fs::fsync);
        if let Err(error) = synced {
            tracing::error!(device = %self.path.display(), %error, "it can't be flushed");
        }
    }
}

/// Up to [`NAMED`] programs that have a device of these numbers open, as text. Processes that are
/// not visible in this process namespace are missing.
fn openers(numbers: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let mut files = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let opened = files.any(|file| {
            // Its name comes first: querying any other attribute of a remote file may wait for a
            // server.
            std::fs::read_link(file.path()).is_ok_and(|to| to.starts_with("/dev"))
                && special(&file.path()).is_some_and(|number| numbers.contains(&number))
        });
        if opened {
            found.push(format!("{} (pid {pid})", fuse::system::program(pid)));
            if found.len() == NAMED {
                break;
            }
        }
    }
    found
}

/// The number of a special file as `major:minor`, without waiting for a server.
fn special(path: &Path) -> Option<String> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE).ok()?;
    Some(format!("{}:{}", stat.stx_rdev_major, stat.stx_rdev_minor))
}

/// Removes the link if it leads to this device, and its parent folders if they are empty.
fn unlink(device: &Path, link: &Path) {
    if std::fs::read_link(link).is_ok_and(|to| to == device)
        && let Err(error) = std::fs::remove_file(link)
    {
        tracing::warn!(link = %link.display(), %error, "it stays");
    }
    let above = link.ancestors().skip(1).take_while(|dir| dir.starts_with(DEV));
    // A folder that is not empty stays, and so do its parents.
    above.map(std::fs::remove_dir).take_while(Result::is_ok).for_each(drop);
}

fn make_link(device: &Path, link: &Path) -> std::io::Result<()> {
    if let Some(above) = link.parent() {
        std::fs::create_dir_all(above)?;
    }
    // A link that a dead daemon left.
    if std::fs::symlink_metadata(link).is_ok_and(|meta| meta.is_symlink()) {
        std::fs::remove_file(link)?;
    }
    std::os::unix::fs::symlink(device, link)
}

/// Detaches the devices that a dead daemon left over files in a folder, and removes their links.
///
/// The kernel removes a device in use after its last user. The folder's mounts must still exist:
/// without them the kernel does not report the path of a device's file.
pub(crate) fn detach_dead(folder: &Path) {
    for (device, file) in loop_devices() {
        if file.starts_with(folder) {
            tracing::warn!(device = %device.display(), "detaching what a dead daemon left");
            if let Err(reason) = losetup(&["--detach"], &device) {
                tracing::warn!(?reason, "it stays");
            }
            links_to(&device, Path::new(DEV)).iter().for_each(|link| unlink(&device, link));
        }
    }
}

/// The links to a device in a folder and below it.
fn links_to(device: &Path, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
            found.extend(links_to(device, &path));
        } else if std::fs::read_link(&path).is_ok_and(|to| to == device) {
            found.push(path);
        }
    }
    found
}

/// The loop devices of this machine, with their files.
fn loop_devices() -> Vec<(PathBuf, PathBuf)> {
    let Ok(all) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let names = all.flatten().map(|entry| entry.file_name());
    let file = |name: std::ffi::OsString| {
        let file =
            std::fs::read_to_string(Path::new("/sys/block").join(&name).join("loop/backing_file")).ok()?;
        Some((Path::new("/dev").join(name), PathBuf::from(file.trim_end())))
    };
    names.filter_map(file).collect()
}
