//! Causes of failed mounts, and what to do about them.
//!
//! # Theory
//! `EPERM` of mount(2) has a dozen causes. This process finds the cause by its capabilities, its
//! user namespace, and the message and mode of `fusermount3`. If two causes can't be distinguished,
//! the text names both.
//!
//! # Absent
//! Failures that the kernel's text explains have no advice here.

use crate::error::Error;
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsopen};
use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set, no_new_privs};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What works without a mount.
const WITHOUT: &str = "without a mount, `poolhouse ls`, `poolhouse cp` and `poolhouse serve` with NBD work";
/// The advice where no program can gain privileges.
const CONFINED: &str = "this process may gain no privileges (no_new_privs, as in bubblewrap or with \
    `--security-opt no-new-privileges`), so fusermount3 doesn't run as root: mount outside, or as root in a namespace \
    (`unshare -rm`); without a mount, `poolhouse ls`, `poolhouse cp` and `poolhouse serve` with NBD work";
/// The advice where no program of a container can mount.
const BARRED: &str = "no program here may mount, since the container's capabilities lack CAP_SYS_ADMIN: start it \
    with `--cap-add SYS_ADMIN --device /dev/fuse` (Docker also wants `--security-opt apparmor=unconfined`), or run in \
    `unshare -rm`; without a mount, `poolhouse ls`, `poolhouse cp` and `poolhouse serve` with NBD work";
/// The inode number of the initial user namespace (`PROC_USER_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFD;

/// What this process may do, as far as mounts depend on it.
#[derive(Debug, Clone, Default)]
pub struct Means {
    /// Whether it is user 0 of its user namespace.
    pub is_root: bool,
    /// Whether it has the capability to mount (`CAP_SYS_ADMIN`).
    pub may_administer: bool,
    /// Whether no program that it runs can gain that capability.
    ///
    /// This includes set-user-ID programs. The bounding set lacks the capability, as in containers.
    pub barred: bool,
    /// The errno of the first step of a mount (`fsopen`), which changes nothing.
    pub refusal: Option<Errno>,
    /// Whether no program that it runs can gain privileges (`no_new_privs`).
    pub confined: bool,
    /// Whether it is in a user namespace other than the initial one. False if that is unknown.
    pub namespace: bool,
    /// Whether `/proc` is mounted. Mounts are made and found through it.
    pub proc: bool,
    /// Whether `/dev/fuse` exists.
    pub device: bool,
    /// The path of `fusermount3`, and whether it is set to run as root.
    pub helper: Option<(PathBuf, bool)>,
}

impl Means {
    /// Those of this process.
    pub fn of_this() -> Self {
        let capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        let namespace =
            std::fs::metadata("/proc/self/ns/user").is_ok_and(|meta| meta.ino() != FIRST_NAMESPACE);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let helper = std::env::split_paths(&path)
            .map(|dir| dir.join(crate::system::HELPER))
            .find(|file| file.is_file());
        let as_root = |file: &Path| {
            std::fs::metadata(file)
                .is_ok_and(|meta| meta.uid() == 0 && meta.permissions().mode() & 0o4000 != 0)
        };
        Self {
            is_root: rustix::process::geteuid().is_root(),
            may_administer: capable,
            barred: matches!(capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN), Ok(false)),
            refusal: fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).err(),
            confined: no_new_privs().unwrap_or_default(),
            namespace,
            proc: Path::new("/proc/self/fd").exists(),
            device: Path::new("/dev/fuse").exists(),
            helper: helper.map(|file| (file.clone(), as_root(&file))),
        }
    }

    /// What keeps this process from mounting by itself, and what to do. `None` if nothing is known
    /// before it tries.
    pub fn obstacle(&self) -> Option<String> {
        if !self.proc {
            return Some(
                "/proc is not mounted, and mounts are found by it: `mount -t proc proc /proc`".into(),
            );
        }
        if !self.device {
            return Some(format!(
                "there is no /dev/fuse: `modprobe fuse`, or start the container with `--device /dev/fuse`; {WITHOUT}"
            ));
        }
        if self.is_root && !self.may_administer {
            return Some(format!(
                "this process is root without CAP_SYS_ADMIN: start the container with `--cap-add SYS_ADMIN --device /dev/fuse` \
                 (Docker also wants `--security-opt apparmor=unconfined`), or run in `unshare -rm`; {WITHOUT}"
            ));
        }
        match self.refusal {
            Some(Errno::NODEV) => Some("this kernel has no FUSE: `modprobe fuse`".into()),
            Some(Errno::PERM | Errno::ACCESS) if self.is_root => Some(self.filtered()),
            Some(_) if !self.is_root && self.confined => Some(CONFINED.into()),
            _ if !self.is_root && self.barred => Some(BARRED.into()),
            _ => None,
        }
    }

    /// The cause of `EPERM` or `EACCES` from mount(2).
    fn forbidden(&self) -> String {
        self.obstacle().unwrap_or_else(|| self.filtered())
    }

    /// The cause if this process has the capability to mount.
    fn filtered(&self) -> String {
        if self.namespace {
            return format!(
                "either this process has no mount namespace of its own (`unshare -rm` makes one, `unshare -r` doesn't), or \
                 the container's seccomp filter, AppArmor or SELinux forbids mount(2); {WITHOUT}"
            );
        }
        format!(
            "this process has CAP_SYS_ADMIN, so a seccomp filter, AppArmor or SELinux forbids mount(2): \
             `--security-opt seccomp=unconfined --security-opt apparmor=unconfined` for a container; {WITHOUT}"
        )
    }

    /// The cause by the message of `fusermount3`. `None` if the message explains itself.
    fn refused(&self, message: &str) -> Option<String> {
        let has = |words: &str| message.contains(words);
        if has("too many FUSE filesystems") {
            return Some(
                "mount_max in /etc/fuse.conf limits them: unmount some, or have root raise it".into(),
            );
        }
        if has("no write access to mountpoint") || has("not owned by user") {
            return Some("a user mounts on folders of their own only: choose one, as by `zfs set mountpoint=$HOME/NAME`".into());
        }
        if has("could not determine username") {
            return Some("fusermount3 serves no user without a name: add a line to /etc/passwd".into());
        }
        if has("user_allow_other") {
            return Some("have root put that line into /etc/fuse.conf, or mount without allow_other".into());
        }
        if !self.device || has("fuse device not found") {
            return Some(format!(
                "there is no /dev/fuse: `modprobe fuse`, or start the container with `--device /dev/fuse`; {WITHOUT}"
            ));
        }
        if has("failed to open /dev/fuse") {
            return Some(
                "`chmod 666 /dev/fuse`, as root; in a container, start it with `--device /dev/fuse`".into(),
            );
        }
        if !has("not permitted") && !has("Permission denied") {
            return None;
        }
        match &self.helper {
            _ if self.confined => Some(CONFINED.into()),
            // In a user namespace the file's owner may be unmapped, and the mode has no effect.
            Some((file, false)) if !self.namespace => {
                Some(format!("fusermount3 isn't set to run as root: `chmod u+s {}`, as root", file.display()))
            }
            _ if self.barred => Some(BARRED.into()),
            _ if self.namespace => Some(format!(
                "fusermount3 isn't root in this user namespace: become its root with a mount namespace (`unshare -rm`); {WITHOUT}"
            )),
            _ => None,
        }
    }
}

impl Error {
    /// The cause of a failed mount and what to do, where the kernel's text doesn't say it.
    pub fn advice(&self) -> Option<String> {
        self.advice_to(&Means::of_this())
    }

    fn advice_to(&self, means: &Means) -> Option<String> {
        match self {
            Self::Device { source: Errno::NOENT | Errno::NODEV | Errno::NXIO } => Some(format!(
                "there is no FUSE: `modprobe fuse`, or start the container with `--device /dev/fuse`; {WITHOUT}"
            )),
            Self::Device { source: Errno::ACCESS | Errno::PERM } => Some(format!(
                "`chmod 666 /dev/fuse` as root, or, where the container's rules forbid the device, start it with \
                 `--device /dev/fuse`; {WITHOUT}"
            )),
            Self::Mount { source: Errno::PERM | Errno::ACCESS, .. } => Some(means.forbidden()),
            Self::Mount { source: Errno::NOENT, .. } if !means.proc => means.obstacle(),
            Self::Mount { source: Errno::NODEV, .. } => {
                Some("this kernel has no FUSE: `modprobe fuse`".into())
            }
            Self::Table { .. } if !means.proc => means.obstacle(),
            Self::Helper { source } => Some(match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    format!("a user mounts by it: `chmod 4755` it, as root; {WITHOUT}")
                }
                _ => format!("a user mounts by it: install the package fuse3; {WITHOUT}"),
            }),
            Self::HelperRefused { message, .. } => means.refused(&String::from_utf8_lossy(&message.0)),
            Self::Device { .. }
            | Self::Mount { .. }
            | Self::Closed { .. }
            | Self::Silent { .. }
            | Self::Unmount { .. }
            | Self::Workers { .. }
            | Self::Descriptors { .. }
            | Self::Inside { .. }
            | Self::Holds { .. }
            | Self::Table { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
