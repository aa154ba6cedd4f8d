//! What can fail about a mount itself.

use rustix::io::Errno;
use std::path::PathBuf;

/// A mount that could not be made or undone. (What happens inside a mount is an errno for its user.)
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `/dev/fuse` can't be opened: no FUSE in this kernel, or none for this user.
    #[error("cannot open /dev/fuse")]
    Device {
        /// Why.
        #[source]
        source: Errno,
    },
    /// The kernel refused the mount.
    #[error("cannot mount at {}", target.display())]
    Mount {
        /// Where.
        target: PathBuf,
        /// Why.
        #[source]
        source: Errno,
    },
    /// `fusermount3`, which mounts for users, is missing or can't run.
    #[error("cannot run fusermount3")]
    Helper {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// `fusermount3` refused.
    #[error("fusermount3 refused {}: {}", target.display(), message.trim())]
    HelperRefused {
        /// Where.
        target: PathBuf,
        /// What it said.
        message: Words,
    },
    /// `fusermount3` refused a place in a mount that only its own user enters. `fusermount3`, which is root under that user's name, is somebody else there.
    #[error(
        "its mountpoint lies in the mount of {}, which only this user may enter, and fusermount3 is root ({}); \
         a daemon that lets others in ('poolhouse serve --allow-other') can mount it, where /etc/fuse.conf has the line \
         'user_allow_other', or a mountpoint outside of that mount helps",
        mount.display(),
        message.trim()
    )]
    Closed {
        /// Where.
        target: PathBuf,
        /// Where the mount is that it lies in.
        mount: PathBuf,
        /// What it said.
        message: Words,
    },
    /// What a file system is to be like can't be had inside the mount of another.
    #[error(
        "{what} takes effect only if {} says the same, in whose mount it lies: set it there, too, or give it a \
         mountpoint outside of that mount",
        mount.display()
    )]
    Inside {
        /// Where.
        target: PathBuf,
        /// Where the mount is that it lies in.
        mount: PathBuf,
        /// The properties that ask for it.
        what: String,
    },
    /// What a mount is to be like would take from what is nested in it what that says.
    #[error(
        "a file system in the mount of {} has {what}, which takes effect only if that mount has the same: change it \
         there first, or unmount what lies in it",
        target.display()
    )]
    Holds {
        /// Where the mount is.
        target: PathBuf,
        /// The properties of what is nested.
        what: String,
    },
    /// Mounted, but the first look at it failed.
    #[error("mounted at {}, but it does not answer", target.display())]
    Silent {
        /// Where.
        target: PathBuf,
        /// Why.
        #[source]
        source: Errno,
    },
    /// The kernel would not unmount.
    #[error("cannot unmount {}", target.display())]
    Unmount {
        /// Where.
        target: PathBuf,
        /// Why: `EBUSY` when somebody uses it.
        #[source]
        source: Errno,
    },
    /// The workers' own plumbing failed.
    #[error("cannot {operation} for the FUSE workers")]
    Workers {
        /// Which call.
        operation: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// This process, or the system, has as many open files as it may.
    #[error("too many open files")]
    Descriptors {
        /// Whose limit it is: `EMFILE` or `ENFILE`.
        #[source]
        source: Errno,
    },
    /// The table of mounts can't be read.
    #[error("cannot read the table of mounts")]
    Table {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Words of another program, quoted in a message.
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
    /// Whether the reason is that somebody uses the file system.
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

    /// Whether the reason is that there are too many open files.
    pub fn lacks_descriptors(&self) -> bool {
        matches!(self, Self::Descriptors { .. })
    }
}
