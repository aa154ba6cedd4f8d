//! A file system that is served: by a mount of its own, or nested in another mount.

use crate::dataset::Stale;
use crate::error::Error;
use crate::mount::Mount;
use crate::nested::{Content, Nested};
use crate::system::{self, Detach, Options, Places};
use crate::tree::Node;
use crate::workers::Workers;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Which file systems are nested in the mount around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nesting {
    /// None: this process may mount anywhere.
    Never,
    /// Those with a mountpoint where this process may not mount.
    Needed,
    /// All with a mountpoint in a mount of the same workers.
    Always,
}

impl Nesting {
    /// The rule for this process: always if `always`, and else only if it must use `fusermount3`.
    pub fn of_this_process(always: bool) -> Self {
        match (always, system::mounts_itself()) {
            (true, _) => Self::Always,
            (false, true) => Self::Never,
            (false, false) => Self::Needed,
        }
    }
}

/// A file system that is served at a mountpoint.
pub enum Served {
    /// It has a mount of its own.
    Own(Mount),
    /// It is nested in another mount.
    Nested(Nested),
}

impl Served {
    /// Mounts `content` at `target`. `dataset` is the object number of its dataset.
    ///
    /// `around` is the mount in which to nest it, if it is to be nested ([`Mount::nests`]). A file
    /// system with a mount of its own is opened at once, a nested one possibly later.
    ///
    /// # Errors
    /// * Those of [`Mount::new`].
    /// * [`Error::Mount`] with another errno: the content can't be opened, or its root can't be
    ///   read.
    /// * If it is nested, [`Error::Inside`]: it needs options that the mount `around` doesn't have.
    /// * If it is nested, [`Error::Mount`] with `EBUSY`: a nested file system is mounted there
    ///   already.
    /// * If it is nested, [`Error::Mount`] with the errno by which the lookup of the mountpoint
    ///   fails.
    pub fn new(
        workers: &Arc<Workers>,
        (nesting, around): (Nesting, Option<&Mount>),
        (content, dataset): (Content, u64),
        target: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        if let Some(top) = around {
            return Nested::new(top, content, dataset, target, options).map(Self::Nested);
        }
        let failed = |source| Error::Mount { target: target.to_owned(), source };
        let tree = content.open().map_err(failed)?;
        match nesting {
            Nesting::Never => Mount::new(workers, tree, target, options),
            Nesting::Needed | Nesting::Always => Mount::with_nest(workers, tree, target, options),
        }
        .map(Self::Own)
    }

    /// Its own mount, if it has one.
    pub fn own(&self) -> Option<&Mount> {
        match self {
            Self::Own(mount) => Some(mount),
            Self::Nested(_) => None,
        }
    }

    /// Whether it is nested. The kernel knows no mount options of a nested file system.
    pub fn is_nested(&self) -> bool {
        self.own().is_none()
    }

    /// Mounts a lingering file system again ([`Mount::again`]).
    ///
    /// A nested file system is attached again together with the mount around it.
    ///
    /// # Errors
    /// Those of [`Mount::again`]. [`Error::Mount`] with `EBUSY` if it is nested.
    pub fn again(&self, target: &Path, options: &Options) -> Result<Self, Error> {
        match self {
            Self::Own(mount) => mount.again(target, options).map(Self::Own),
            Self::Nested(_) => Err(Error::Mount { target: target.to_owned(), source: Errno::BUSY }),
        }
    }

    /// The path at which it was mounted.
    pub fn target(&self) -> &Path {
        match self {
            Self::Own(mount) => mount.target(),
            Self::Nested(nested) => nested.target(),
        }
    }

    /// `st_dev` of its files, as major and minor number.
    pub fn device(&self) -> (u32, u32) {
        match self {
            Self::Own(mount) => mount.device(),
            Self::Nested(nested) => nested.device(),
        }
    }

    /// Whether it is no longer mounted anywhere, and so no longer served.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Own(mount) => mount.is_over(),
            Self::Nested(nested) => nested.is_over(),
        }
    }

    /// Whether it is still served although this process no longer has it mounted
    /// ([`Mount::lingers`]).
    pub fn lingers(&self) -> bool {
        match self {
            Self::Own(mount) => mount.lingers(),
            Self::Nested(nested) => nested.lingers(),
        }
    }

    /// Whether it is still mounted ([`Mount::is_attached`]).
    pub fn is_attached(&self) -> bool {
        match self {
            Self::Own(mount) => mount.is_attached(),
            Self::Nested(nested) => nested.is_attached(),
        }
    }

    /// Whether it is the topmost mount at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        match self {
            Self::Own(mount) => mount.is_at(path),
            Self::Nested(nested) => nested.is_at(path),
        }
    }

    /// Processes that have it mounted ([`Mount::users`]). If it is nested: processes that use it.
    pub fn users(&self) -> Vec<(u32, String)> {
        match self {
            Self::Own(mount) => mount.users(),
            Self::Nested(nested) => nested.users(),
        }
    }

    /// Descriptions of what has it mounted ([`Mount::holders`]). If it is nested: of what uses it.
    pub fn holders(&self) -> Vec<String> {
        match self {
            Self::Own(mount) => mount.holders(),
            Self::Nested(nested) => nested.holders(None),
        }
    }

    /// Descriptions of what keeps it from being unmounted here, as far as `/proc` shows it.
    ///
    /// These are processes and loop devices that use it. If it is nested, also other mountpoints of
    /// parts of it. `asker` is the process that requests the unmount. It is left out unless it is
    /// the only user.
    pub fn in_use_by(&self, asker: Option<u32>) -> Vec<String> {
        match self {
            Self::Own(mount) => mount.in_use_by(asker),
            Self::Nested(nested) => nested.holders(asker),
        }
    }

    /// Whether both are nested, and this one lies in the other.
    pub fn lies_in(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nested(one), Self::Nested(other)) => one.lies_in(other),
            (Self::Own(_), _) | (_, Self::Own(_)) => false,
        }
    }

    /// Places a nested file system anew after a rollback of `parent` ([`Nested::settle`]).
    ///
    /// # Errors
    /// Those of [`Nested::settle`].
    pub fn settle(&self, parent: &Self) -> Result<(), Error> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Nested(nested) => nested.settle(parent),
        }
    }

    /// What would keep it mounted if this process unmounted it now ([`Mount::keeper`]).
    ///
    /// `None` for a nested file system: what keeps it keeps the mount around it.
    pub fn keeper(&self, places: &Places) -> Option<String> {
        self.own()?.keeper(places)
    }

    /// Opens its files now, rather than at the first request.
    ///
    /// # Errors
    /// Those of [`Nested::open`].
    pub fn open(&self) -> Result<(), Error> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Nested(nested) => nested.open(),
        }
    }

    /// Closes the files of an idle nested file system ([`Nested::rest`]). Returns whether it did.
    pub fn rest(&self, closing: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Nested(nested) => nested.rest(closing),
        }
    }

    /// Changes its options while it is mounted.
    ///
    /// # Errors
    /// Those of [`Mount::remount`] if it has a mount of its own, else those of [`Nested::remount`].
    pub fn remount(&self, options: &Options) -> Result<(), Error> {
        match self {
            Self::Own(mount) => mount.remount(options),
            Self::Nested(nested) => nested.remount(options),
        }
    }

    /// Refuses changes from now on, or allows them again ([`Mount::keep_unchanged`]).
    ///
    /// Returns whether it had an effect. It has none on a nested file system: [`Served::remount`]
    /// does the same for it.
    pub fn keep_unchanged(&self, read_only: bool) -> bool {
        match self {
            Self::Own(mount) => mount.keep_unchanged(read_only),
            Self::Nested(_) => false,
        }
    }

    /// Why it can't have POSIX ACLs ([`Nested::refuses_acls`]). `None` if it can.
    pub fn refuses_acls(&self) -> Option<Error> {
        match self {
            Self::Own(_) => None,
            Self::Nested(nested) => nested.refuses_acls(),
        }
    }

    /// Runs `work` while no request of its mount is in progress ([`Mount::suspended`]).
    ///
    /// For a nested file system this suspends the whole mount around it.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        match self {
            Self::Own(mount) => mount.suspended(work),
            Self::Nested(nested) => nested.suspended(work),
        }
    }

    /// Has the kernel drop cached data that are no longer true ([`Mount::tell`]).
    pub fn tell(&self, stale: &[Stale]) {
        match self {
            Self::Own(mount) => mount.tell(stale),
            Self::Nested(nested) => nested.tell(stale),
        }
    }

    /// Has the kernel drop all that it has cached of a file ([`Mount::drop_file`]).
    pub fn drop_file(&self, node: Node) -> bool {
        match self {
            Self::Own(mount) => mount.drop_file(node),
            Self::Nested(nested) => nested.drop_file(node),
        }
    }

    /// Unmounts ([`Mount::unmount`], [`Nested::unmount`]).
    ///
    /// # Errors
    /// Those of [`Mount::unmount`] if it has a mount of its own, else those of [`Nested::unmount`].
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        match self {
            Self::Own(mount) => mount.unmount(how),
            Self::Nested(nested) => nested.unmount(how),
        }
    }

    /// Removes it from the tree of mounts and goes on serving it ([`Mount::leave_tree`]).
    ///
    /// Does nothing to a nested file system, which leaves with the mount around it.
    ///
    /// # Errors
    /// Those of [`Mount::leave_tree`].
    pub fn leave_tree(&self, how: Detach) -> Result<(), Error> {
        match self {
            Self::Own(mount) => mount.leave_tree(how),
            Self::Nested(_) => Ok(()),
        }
    }
}
