//! What can go wrong with a file.

use ondisk::{Corrupt, ObjNum};
use std::sync::Arc;

/// Failure of an operation on a file system. Each variant is one `errno` at a front door.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read (`EIO`, `ECKSUM`).
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// A file's bytes are not what the format says (`EIO`).
    #[error("object {object}: {source}")]
    Corrupt {
        /// The file.
        object: ObjNum,
        /// What is wrong.
        source: Corrupt,
    },
    /// The object set is no file system: it has no master node (`EINVAL`).
    #[error("the object set holds no file system")]
    NotFileSystem,
    /// The file system's version is newer than this project knows (`ENOTSUP`).
    #[error("file system version {version} is not supported")]
    UnsupportedVersion {
        /// Its version.
        version: u64,
    },
    /// No entry of this name (`ENOENT`).
    #[error("directory {dir}: no such entry")]
    NoEntry {
        /// The directory.
        dir: ObjNum,
    },
    /// The object doesn't exist, or is no file (`ENOENT`, or `ESTALE` for a handle).
    #[error("object {object} is no file")]
    NoFile {
        /// The object.
        object: ObjNum,
    },
    /// The file was removed and is only waiting for its last user (`ESTALE`).
    #[error("object {object} was removed")]
    Unlinked {
        /// The object.
        object: ObjNum,
    },
    /// The file has no such extended attribute (`ENODATA`).
    #[error("object {object}: no such extended attribute")]
    NoXattr {
        /// The file.
        object: ObjNum,
    },
    /// The extended attribute is larger than the door can pass (`E2BIG`).
    #[error("object {object}: an extended attribute of {size} bytes is too large")]
    XattrTooLarge {
        /// The file.
        object: ObjNum,
        /// Its size.
        size: u64,
    },
    /// The extended attributes are more than were asked for at most (`E2BIG`).
    #[error("object {object}: its extended attributes are more than {max} bytes")]
    XattrsTooLarge {
        /// The file.
        object: ObjNum,
        /// What was asked for at most.
        max: usize,
    },
    /// A directory is needed (`ENOTDIR`).
    #[error("object {object} is no directory")]
    NotDirectory {
        /// The object.
        object: ObjNum,
    },
    /// The operation is not for directories (`EISDIR`).
    #[error("object {object} is a directory")]
    IsDirectory {
        /// The object.
        object: ObjNum,
    },
    /// A symbolic link is needed (`EINVAL`).
    #[error("object {object} is no symbolic link")]
    NotSymlink {
        /// The object.
        object: ObjNum,
    },
    /// The name, or a path, is longer than any can be (`ENAMETOOLONG`).
    #[error("a name of {len} bytes is too long")]
    NameTooLong {
        /// Its length.
        len: usize,
    },
    /// The name is no UTF-8, and the file system takes nothing else (`EILSEQ`).
    #[error("the name is no UTF-8")]
    NotUtf8,
    /// Too many symbolic links on the way (`ELOOP`).
    #[error("too many symbolic links")]
    TooManyLinks,
    /// A symbolic link on the way leaves the file system (`EXDEV`).
    #[error("object {object}: the link leads out of the file system")]
    LeavesFileSystem {
        /// The link.
        object: ObjNum,
    },
    /// The position is at or past the end of the file (`ENXIO`).
    #[error("object {object}: offset {offset} is past the end")]
    PastEnd {
        /// The file.
        object: ObjNum,
        /// The position.
        offset: u64,
    },
    /// The file system is not open for changes (`EROFS`).
    #[error("the file system is read-only")]
    ReadOnly,
    /// There is an entry of this name (`EEXIST`).
    #[error("directory {dir}: the name exists")]
    Exists {
        /// The directory.
        dir: ObjNum,
    },
    /// The directory is not empty (`ENOTEMPTY`).
    #[error("directory {object} is not empty")]
    NotEmpty {
        /// The directory.
        object: ObjNum,
    },
    /// The file's flags, or what it is, forbid it (`EPERM`).
    #[error("object {object}: not permitted")]
    NotPermitted {
        /// The file.
        object: ObjNum,
    },
    /// The operation is for plain files (`EINVAL`).
    #[error("object {object} is no plain file")]
    NotRegular {
        /// The object.
        object: ObjNum,
    },
    /// No entry can have this name (`EINVAL`).
    #[error("no entry can have this name")]
    BadName,
    /// A directory would be moved below itself (`EINVAL`).
    #[error("directory {object} cannot be moved below itself")]
    IntoItself {
        /// The directory.
        object: ObjNum,
    },
    /// The directory gives its project to what is in it, and the file has another (`EXDEV`).
    #[error("directory {dir}: the file is of another project")]
    OtherProject {
        /// The directory.
        dir: ObjNum,
    },
    /// No file can be so large (`EFBIG`).
    #[error("object {object}: no file can be so large")]
    TooLarge {
        /// The file.
        object: ObjNum,
    },
    /// The extended attribute is there (`EEXIST`).
    #[error("object {object}: the extended attribute exists")]
    XattrExists {
        /// The file.
        object: ObjNum,
    },
    /// No file has these flags, or this one can't have such a project (`EOPNOTSUPP`).
    #[error("object {object}: these flags or this project cannot be set")]
    BadFlags {
        /// The file.
        object: ObjNum,
    },
    /// The file system doesn't count what was to be limited (`ENOTSUP`).
    #[error("the file system does not count what is to be limited")]
    NotCounted,
    /// Blocks of this file can't become the other's: it can be copied (`EXDEV`).
    #[error("object {object}: this range cannot be cloned")]
    NotCloneable {
        /// The source.
        object: ObjNum,
    },
    /// The range overlaps with where it is to go (`EINVAL`).
    #[error("object {object}: the range overlaps with itself")]
    BadRange {
        /// The file.
        object: ObjNum,
    },
    /// The value is no POSIX ACL (`EINVAL`).
    #[error("object {object}: not a POSIX ACL")]
    BadAcl {
        /// The file, or the directory that gives it on.
        object: ObjNum,
    },
    /// There is no room (`ENOSPC`).
    #[error("no space left")]
    NoSpace,
    /// A quota does not allow it (`EDQUOT`).
    #[error("the quota is exceeded")]
    Quota,
    /// The pool has stopped writing (`EIO`).
    #[error("the pool takes no more writes")]
    Stopped {
        /// Why.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}
