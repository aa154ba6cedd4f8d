//! The errors of a file system.

use ondisk::{Corrupt, ObjNum};
use std::sync::Arc;

/// An operation on a file system failed.
///
/// Each variant is one `errno` at a front end.
///
/// # Reading
/// Every operation that reads objects may return these errors:
///
/// * [`Error::Dmu`]: a block can't be read, its key is not loaded, or an object's blocks contradict
///   the format.
/// * [`Error::Corrupt`]: a file's attributes or contents are not what the format says.
///
/// # Opening
/// Every operation that opens a file by its number may return these, and those of
/// [reading](Error#reading):
///
/// * [`Error::NoFile`]: the number belongs to no object, or the object is no file.
///
/// # Changing
/// Every operation that changes the file system may return these, and those of
/// [opening](Error#opening):
///
/// * [`Error::ReadOnly`]: the file system is not open for changes.
/// * [`Error::NoSpace`]: the pool has no free space.
/// * [`Error::Quota`]: a quota is exceeded.
/// * [`Error::Stopped`]: the pool accepts no more changes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read or changed (`EIO`, `ECKSUM`).
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
    /// The file system's version is newer than this crate supports (`ENOTSUP`).
    #[error("file system version {version} is not supported")]
    UnsupportedVersion {
        /// The file system's version.
        version: u64,
    },
    /// The directory has no entry of this name (`ENOENT`).
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
    /// The file was removed, and only waits for its last user (`ESTALE`).
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
    /// The extended attribute is larger than front ends can pass (`E2BIG`).
    #[error("object {object}: an extended attribute of {size} bytes is too large")]
    XattrTooLarge {
        /// The file.
        object: ObjNum,
        /// The attribute's size in bytes.
        size: u64,
    },
    /// The extended attributes are larger than the caller's limit (`E2BIG`).
    #[error("object {object}: its extended attributes are more than {max} bytes")]
    XattrsTooLarge {
        /// The file.
        object: ObjNum,
        /// The caller's limit in bytes.
        max: usize,
    },
    /// The operation needs a directory (`ENOTDIR`).
    #[error("object {object} is no directory")]
    NotDirectory {
        /// The object.
        object: ObjNum,
    },
    /// The operation does not apply to directories (`EISDIR`).
    #[error("object {object} is a directory")]
    IsDirectory {
        /// The object.
        object: ObjNum,
    },
    /// The operation needs a symbolic link (`EINVAL`).
    #[error("object {object} is no symbolic link")]
    NotSymlink {
        /// The object.
        object: ObjNum,
    },
    /// The name or path is too long (`ENAMETOOLONG`).
    #[error("a name of {len} bytes is too long")]
    NameTooLong {
        /// The length in bytes.
        len: usize,
    },
    /// The name is not UTF-8, and the file system accepts only UTF-8 (`EILSEQ`).
    #[error("the name is no UTF-8")]
    NotUtf8,
    /// The path leads over too many symbolic links (`ELOOP`).
    #[error("too many symbolic links")]
    TooManyLinks,
    /// A symbolic link on the path leaves the file system (`EXDEV`).
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
    /// The directory has an entry of this name (`EEXIST`).
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
    /// The file's flags or its type forbid the operation (`EPERM`).
    #[error("object {object}: not permitted")]
    NotPermitted {
        /// The file.
        object: ObjNum,
    },
    /// The operation needs a regular file (`EINVAL`).
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
    /// The directory passes its project on to its files, and the file has another project
    /// (`EXDEV`).
    #[error("directory {dir}: the file is of another project")]
    OtherProject {
        /// The directory.
        dir: ObjNum,
    },
    /// The file would become larger than any file can be (`EFBIG`).
    #[error("object {object}: no file can be so large")]
    TooLarge {
        /// The file.
        object: ObjNum,
    },
    /// The extended attribute exists already (`EEXIST`).
    #[error("object {object}: the extended attribute exists")]
    XattrExists {
        /// The file.
        object: ObjNum,
    },
    /// No file has these flags, or this file can't have such a project (`EOPNOTSUPP`).
    #[error("object {object}: these flags or this project cannot be set")]
    BadFlags {
        /// The file.
        object: ObjNum,
    },
    /// The file system doesn't count the usage that the quota would limit (`ENOTSUP`).
    #[error("the file system does not count what is to be limited")]
    NotCounted,
    /// The file's blocks can't be shared with the target; they can be copied (`EXDEV`).
    #[error("object {object}: this range cannot be cloned")]
    NotCloneable {
        /// The source.
        object: ObjNum,
    },
    /// The source and target ranges overlap (`EINVAL`).
    #[error("object {object}: the range overlaps with itself")]
    BadRange {
        /// The file.
        object: ObjNum,
    },
    /// The value is no POSIX ACL (`EINVAL`).
    #[error("object {object}: not a POSIX ACL")]
    BadAcl {
        /// The file, or the directory that passes the ACL on.
        object: ObjNum,
    },
    /// The pool has no free space (`ENOSPC`).
    #[error("no space left")]
    NoSpace,
    /// A quota is exceeded (`EDQUOT`).
    #[error("the quota is exceeded")]
    Quota,
    /// The pool accepts no more changes (`EIO`).
    #[error("the pool takes no more writes")]
    Stopped {
        /// The cause.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl From<zil::TxError> for Error {
    fn from(e: zil::TxError) -> Self {
        match e {
            zil::TxError::NoSpace => Error::NoSpace,
            zil::TxError::Quota => Error::Quota,
            zil::TxError::Stopped { source } => Error::Stopped { source },
        }
    }
}
