//! A file system that is served, by a mount of its own or nested in that of another.

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

/// Which file systems are nested in a mount around them, rather than mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nesting {
    /// None: this process may mount anywhere.
    Never,
    /// Those whose mountpoint lies where this process may not mount.
    Needed,
    /// All whose mountpoint lies in a mount of the same workers.
    Always,
}

impl Nesting {
    /// What this process needs, or more if `always` is wanted.
    pub fn of_this_process(always: bool) -> Self {
        match (always, system::mounts_itself()) {
            (true, _) => Self::Always,
            (false, true) => Self::Never,
            (false, false) => Self::Needed,
        }
    }
}

/// A file system that is served at a place.
pub enum Served {
    /// It has a mount.
    Own(Mount),
    /// It is in the mount of another.
    Nested(Nested),
}

impl Served {
    /// Mounts `content`, of the dataset with this object number, at `target`. `around` is the mount
    /// in which it is nested, if it is to be ([`Mount::nests`]). Only what is nested is opened
    /// later.
    ///
    /// # Errors
    /// As [`Mount::new`]; [`Error::Inside`] if `options` say what can't be had in another's mount.
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

    /// The mount that it has.
    pub fn own(&self) -> Option<&Mount> {
        match self {
            Self::Own(mount) => Some(mount),
            Self::Nested(_) => None,
        }
    }

    /// Whether its options are the kernel's business, which only root may change.
    pub fn is_nested(&self) -> bool {
        self.own().is_none()
    }

    /// As [`Mount::again`]. What is nested has a place again when the mount around it has.
    ///
    /// # Errors
    /// As [`Mount::again`]; [`Error::Mount`] with `EBUSY` for what is nested.
    pub fn again(&self, target: &Path, options: &Options) -> Result<Self, Error> {
        match self {
            Self::Own(mount) => mount.again(target, options).map(Self::Own),
            Self::Nested(_) => Err(Error::Mount { target: target.to_owned(), source: Errno::BUSY }),
        }
    }

    /// Where it was mounted.
    pub fn target(&self) -> &Path {
        match self {
            Self::Own(mount) => mount.target(),
            Self::Nested(nested) => nested.target(),
        }
    }

    /// `st_dev` of its files.
    pub fn device(&self) -> (u32, u32) {
        match self {
            Self::Own(mount) => mount.device(),
            Self::Nested(nested) => nested.device(),
        }
    }

    /// Whether it has ended: nobody has it mounted.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Own(mount) => mount.is_over(),
            Self::Nested(nested) => nested.is_over(),
        }
    }

    /// As [`Mount::lingers`].
    pub fn lingers(&self) -> bool {
        match self {
            Self::Own(mount) => mount.lingers(),
            Self::Nested(nested) => nested.lingers(),
        }
    }

    /// As [`Mount::is_attached`].
    pub fn is_attached(&self) -> bool {
        match self {
            Self::Own(mount) => mount.is_attached(),
            Self::Nested(nested) => nested.is_attached(),
        }
    }

    /// Whether this is what is mounted at a path.
    pub fn is_at(&self, path: &Path) -> bool {
        match self {
            Self::Own(mount) => mount.is_at(path),
            Self::Nested(nested) => nested.is_at(path),
        }
    }

    /// As [`Mount::users`]; of what is nested, processes that use it.
    pub fn users(&self) -> Vec<(u32, String)> {
        match self {
            Self::Own(mount) => mount.users(),
            Self::Nested(nested) => nested.users(),
        }
    }

    /// As [`Mount::holders`]; of what is nested, who uses it.
    pub fn holders(&self) -> Vec<String> {
        match self {
            Self::Own(mount) => mount.holders(),
            Self::Nested(nested) => nested.holders(None),
        }
    }

    /// What keeps it from being unmounted here, in words, as far as that can be told: processes and
    /// loop devices that use it, and other mountpoints of a part of what is nested. The process
    /// `asker`, which wants it unmounted, is left out, unless it is the only one.
    pub fn in_use_by(&self, asker: Option<u32>) -> Vec<String> {
        match self {
            Self::Own(mount) => mount.in_use_by(asker),
            Self::Nested(nested) => nested.holders(asker),
        }
    }

    /// Whether it is nested in another that is nested.
    pub fn lies_in(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nested(one), Self::Nested(other)) => one.lies_in(other),
            (Self::Own(_), _) | (_, Self::Own(_)) => false,
        }
    }

    /// Has what is nested lie where its path leads in `parent`, which was rolled back
    /// ([`Nested::settle`]).
    ///
    /// # Errors
    /// As [`Nested::settle`].
    pub fn settle(&self, parent: &Self) -> Result<(), Error> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Nested(nested) => nested.settle(parent),
        }
    }

    /// As [`Mount::keeper`]; what keeps a nested one keeps the mount around it.
    pub fn keeper(&self, places: &Places) -> Option<String> {
        self.own()?.keeper(places)
    }

    /// Opens its files, if they are only opened when they are first asked for.
    ///
    /// # Errors
    /// As [`Nested::open`].
    pub fn open(&self) -> Result<(), Error> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Nested(nested) => nested.open(),
        }
    }

    /// As [`Nested::rest`]; what has a mount of its own stays open.
    pub fn rest(&self, closing: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Nested(nested) => nested.rest(closing),
        }
    }

    /// Lets other options take effect while it is mounted.
    ///
    /// # Errors
    /// [`Error::Mount`] if the system refuses, as to all but root for what has a mount; with
    /// `EPERM` for what can't be changed of a nested one.
    pub fn remount(&self, options: &Options) -> Result<(), Error> {
        match self {
            Self::Own(mount) => mount.remount(options),
            Self::Nested(nested) => nested.remount(options),
        }
    }

    /// As [`Mount::keep_unchanged`]; of a nested one [`Served::remount`] does that.
    pub fn keep_unchanged(&self, read_only: bool) -> bool {
        match self {
            Self::Own(mount) => mount.keep_unchanged(read_only),
            Self::Nested(_) => false,
        }
    }

    /// As [`Nested::refuses_acls`].
    pub fn refuses_acls(&self) -> Option<Error> {
        match self {
            Self::Own(_) => None,
            Self::Nested(nested) => nested.refuses_acls(),
        }
    }

    /// As [`Mount::suspended`]; with a nested one the whole mount is suspended.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        match self {
            Self::Own(mount) => mount.suspended(work),
            Self::Nested(nested) => nested.suspended(work),
        }
    }

    /// As [`Mount::tell`].
    pub fn tell(&self, stale: &[Stale]) {
        match self {
            Self::Own(mount) => mount.tell(stale),
            Self::Nested(nested) => nested.tell(stale),
        }
    }

    /// As [`Mount::drop_file`].
    pub fn drop_file(&self, node: Node) -> bool {
        match self {
            Self::Own(mount) => mount.drop_file(node),
            Self::Nested(nested) => nested.drop_file(node),
        }
    }

    /// As [`Mount::unmount`] and [`Nested::unmount`].
    ///
    /// # Errors
    /// As theirs.
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        match self {
            Self::Own(mount) => mount.unmount(how),
            Self::Nested(nested) => nested.unmount(how),
        }
    }

    /// As [`Mount::leave_tree`]. A nested one leaves with the mount around it.
    ///
    /// # Errors
    /// As [`Mount::leave_tree`].
    pub fn leave_tree(&self, how: Detach) -> Result<(), Error> {
        match self {
            Self::Own(mount) => mount.leave_tree(how),
            Self::Nested(_) => Ok(()),
        }
    }
}
