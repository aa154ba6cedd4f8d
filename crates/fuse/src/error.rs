//! Errors of mounts.

use rustix::io::Errno;
use std::path::PathBuf;

/// A failure to mount, unmount or serve. Requests in a mount fail with an errno instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `/dev/fuse` can't be opened: the kernel has no FUSE, or denies it to this user.
    #[error("cannot open /dev/fuse")]
    Device {
        /// The errno of open(2).
        #[source]
        source: Errno,
    },
    /// The kernel refused to mount, or the mountpoint can't be used.
    #[error("cannot mount at {}", target.display())]
    Mount {
        /// The mountpoint.
        target: PathBuf,
        /// The errno of the failed call.
        #[source]
        source: Errno,
    },
    /// `fusermount3`, which mounts for users, is missing or can't be run.
    #[error("cannot run fusermount3")]
    Helper {
        /// The error of the start.
        #[source]
        source: std::io::Error,
    },
    /// `fusermount3` ran and refused.
    #[error("fusermount3 refused {}: {}", target.display(), message.trim())]
    HelperRefused {
        /// The mountpoint.
        target: PathBuf,
        /// The message of `fusermount3`.
        message: Words,
    },
    /// `fusermount3` refused a mountpoint that lies in a mount which only its own user may enter.
    ///
    /// `fusermount3` runs as root, so FUSE takes it for another user there.
    #[error(
        "its mountpoint lies in the mount of {}, which only this user may enter, and fusermount3 is root ({}); \
         a daemon that lets others in ('poolhouse serve --allow-other') can mount it, where /etc/fuse.conf has the line \
         'user_allow_other', or a mountpoint outside of that mount helps",
        mount.display(),
        message.trim()
    )]
    Closed {
        /// The mountpoint.
        target: PathBuf,
        /// The mountpoint of the mount around it.
        mount: PathBuf,
        /// The message of `fusermount3`.
        message: Words,
    },
    /// A file system can't be nested in a mount, since the mount has other options than it needs.
    #[error(
        "{what} takes effect only if {} says the same, in whose mount it lies: set it there, too, or give it a \
         mountpoint outside of that mount",
        mount.display()
    )]
    Inside {
        /// The mountpoint.
        target: PathBuf,
        /// The mountpoint of the mount around it.
        mount: PathBuf,
        /// The properties that need other options.
        what: String,
    },
    /// A mount can't change its options, since a file system nested in it needs them.
    #[error(
        "a file system in the mount of {} has {what}, which takes effect only if that mount has the same: change it \
         there first, or unmount what lies in it",
        target.display()
    )]
    Holds {
        /// The mountpoint of the mount.
        target: PathBuf,
        /// The properties of the nested file system that need the options.
        what: String,
    },
    /// The kernel mounted it, but the first request failed.
    #[error("mounted at {}, but it does not answer", target.display())]
    Silent {
        /// The mountpoint.
        target: PathBuf,
        /// The errno of the request.
        #[source]
        source: Errno,
    },
    /// The kernel refused to unmount.
    #[error("cannot unmount {}", target.display())]
    Unmount {
        /// The mountpoint.
        target: PathBuf,
        /// The errno: `EBUSY` if the mount is in use.
        #[source]
        source: Errno,
    },
    /// A system call that the workers, or the start of `fusermount3`, need failed.
    #[error("cannot {operation} for the FUSE workers")]
    Workers {
        /// The call, as a phrase.
        operation: &'static str,
        /// The error of the call.
        #[source]
        source: std::io::Error,
    },
    /// This process, or the system, has reached its limit of open files.
    #[error("too many open files")]
    Descriptors {
        /// The limit: `EMFILE` for the process, `ENFILE` for the system.
        #[source]
        source: Errno,
    },
    /// The table of mounts can't be read.
    #[error("cannot read the table of mounts")]
    Table {
        /// The error of the read.
        #[source]
        source: std::io::Error,
    },
}

/// A message of another program, quoted in ours.
#[derive(Clone, PartialEq, Eq)]
pub struct Words(pub Vec<u8>);

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.trim())
    }
}

impl Words {
    fn trim(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.0.trim_ascii())
    }
}

impl Error {
    /// Whether it failed because the file system is in use.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Unmount { source, .. } => *source == Errno::BUSY,
            Self::HelperRefused { message, .. } => message.trim().contains("busy"),
            Self::Device { .. }
            | Self::Mount { .. }
            | Self::Helper { .. }
            | Self::Closed { .. }
            | Self::Inside { .. }
            | Self::Holds { .. }
            | Self::Silent { .. }
            | Self::Workers { .. }
            | Self::Descriptors { .. }
            | Self::Table { .. } => false,
        }
    }

    /// Whether it failed because of too many open files.
    pub fn lacks_descriptors(&self) -> bool {
        matches!(self, Self::Descriptors { .. })
    }
}
