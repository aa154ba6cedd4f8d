//! What can go wrong with a dataset.

use ondisk::{Corrupt, ObjNum};

/// Failure of an operation on datasets.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// A pool-wide structure could not be read.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// The bytes of a dataset are not what the format says.
    #[error("dataset object {object}: {source}")]
    Corrupt {
        /// The object.
        object: ObjNum,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// There is no such dataset (`ENOENT`).
    #[error("dataset {name:?} does not exist")]
    NoSuchDataset {
        /// The name asked for.
        name: String,
    },
    /// The name is no dataset's (`EINVAL`).
    #[error("invalid dataset name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// It may not be done.
    #[error("{name}: {why}")]
    Refused {
        /// What it was asked of.
        name: String,
        /// Why not.
        why: Refusal,
    },
    /// Some of many may not be done, and so none was.
    #[error("{} of the operations may not be done", .0.len())]
    Several(Vec<Error>),
    /// A property may not be set so.
    #[error("cannot set property {property:?} for {name:?}: {why}")]
    BadProperty {
        /// The dataset.
        name: String,
        /// The property.
        property: String,
        /// Why not.
        why: PropError,
    },
    /// A key cannot be used.
    #[error("{name}: {why}")]
    Key {
        /// The dataset.
        name: String,
        /// Why not.
        why: KeyRefusal,
    },
    /// What a new dataset is to hold could not be made.
    #[error("the contents of {name:?} could not be made")]
    Contents {
        /// The dataset.
        name: String,
        /// Why.
        #[source]
        source: std::sync::Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The dataset has no such property.
    #[error("dataset {name:?} has no property {property:?}")]
    NoSuchProperty {
        /// The dataset.
        name: String,
        /// The property.
        property: String,
    },
}

/// Why a name cannot be a dataset's (`namecheck_err_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than 255 bytes.
    #[error("name is too long")]
    TooLong,
    /// Begins with a slash.
    #[error("leading slash in name")]
    LeadingSlash,
    /// Ends with a slash.
    #[error("trailing slash in name")]
    TrailingSlash,
    /// Has an empty component.
    #[error("empty component or misplaced '@' or '#' delimiter in name")]
    EmptyComponent,
    /// Has a character that names may not have.
    #[error("invalid character {0:?} in name")]
    InvalidChar(char),
    /// Has more than one `@` or `#`.
    #[error("multiple '@' and/or '#' delimiters in name")]
    MultipleDelimiters,
    /// A component is `.` or `..`.
    #[error("self reference or parent reference, '.' or '..', in name")]
    DotReference,
}

/// Why an operation may not be done. The words are OpenZFS's, where it has some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is one of this name already (`EEXIST`).
    #[error("dataset already exists")]
    Exists,
    /// The dataset above does not exist (`ENOENT`).
    #[error("no such parent dataset")]
    NoParent,
    /// The dataset above is no file system (`ZFS_ERR_WRONG_PARENT`).
    #[error("parent is not a filesystem")]
    WrongParent,
    /// Somebody uses it (`EBUSY`).
    #[error("dataset is busy")]
    Busy,
    /// It has snapshots (`EBUSY`).
    #[error("dataset has snapshots")]
    HasSnapshots,
    /// It has children (`EEXIST`).
    #[error("dataset has children")]
    HasChildren,
    /// The snapshot has clones (`EEXIST`).
    #[error("snapshot has dependent clones")]
    HasClones,
    /// The snapshot is held (`EBUSY`).
    #[error("snapshot is held")]
    Held,
    /// There is no room (`ENOSPC`).
    #[error("out of space")]
    NoSpace,
    /// A quota or limit would be exceeded (`EDQUOT`).
    #[error("disk quota exceeded")]
    Quota,
    /// A dataset is received into it or was destroyed in part (`EBUSY`).
    #[error("dataset is inconsistent")]
    Inconsistent,
    /// There is a snapshot of this very transaction group; try again (`EAGAIN`).
    #[error("a snapshot was made in this transaction group")]
    Again,
    /// It is a snapshot (`EROFS`).
    #[error("snapshots cannot be written to")]
    ReadOnly,
    /// It is no snapshot (`EINVAL`).
    #[error("operation only applies to snapshots")]
    NotSnapshot,
    /// It is a snapshot or a bookmark where a file system or volume is wanted (`EINVAL`).
    #[error("operation only applies to filesystems and volumes")]
    NotHead,
    /// It is no clone (`EINVAL`).
    #[error("not a cloned filesystem")]
    NotClone,
    /// The names are of different pools, or kinds (`EXDEV`).
    #[error("source and target differ in pool or kind")]
    CrossDevice,
    /// A dataset cannot be moved below itself (`EINVAL`).
    #[error("a dataset cannot become its own descendant")]
    Recursive,
    /// The pool's own root dataset cannot be (`EINVAL`, `EBUSY`).
    #[error("the pool's root dataset cannot be")]
    Root,
    /// Names would become too long (`ENAMETOOLONG`).
    #[error("dataset name too long")]
    NameTooLong,
    /// Too many levels (`ENAMETOOLONG`).
    #[error("maximum dataset nesting depth exceeded")]
    TooDeep,
    /// A snapshot of this name is in the way; promote would move another of that name there (`EEXIST`).
    #[error("conflicting snapshot name")]
    SnapshotConflict,
    /// A newer snapshot or bookmark is in the way (`EEXIST`).
    #[error("more recent snapshots or bookmarks exist")]
    NotLatest,
    /// The dataset has no snapshot (`ESRCH`).
    #[error("dataset has no snapshot")]
    NoSnapshot,
    /// A hold with this tag exists (`EEXIST`).
    #[error("tag already exists on this dataset")]
    TagExists,
    /// There is no hold with this tag (`ESRCH`).
    #[error("no such tag on this dataset")]
    NoTag,
    /// A tag is too long (`E2BIG`).
    #[error("tag too long")]
    TagTooLong,
    /// A feature is needed that is not enabled (`ENOTSUP`).
    #[error("pool must be upgraded: feature {0} is not enabled")]
    Feature(&'static str),
    /// The snapshot is not in the dataset's past (`EXDEV`).
    #[error("not an earlier snapshot from the same filesystem")]
    NotBefore,
    /// What is to be granted can't be, or to nobody (`EINVAL`).
    #[error("operation not applicable to datasets of this type")]
    BadGrant,
}

/// Why a property may not be set so, in OpenZFS's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropError {
    /// There is no such property.
    #[error("invalid property '{0}'")]
    Unknown(String),
    /// It is computed.
    #[error("'{0}' is readonly")]
    ReadOnly(&'static str),
    /// It is what a user, group or project uses.
    #[error("'{0}' is readonly")]
    CountedOnly(String),
    /// It is about a user or group that there is not.
    #[error("'{0}' has an invalid user/group name")]
    NobodyOf(String),
    /// It is fixed when a dataset is created.
    #[error("'{0}' can only be set at creation time")]
    Onetime(&'static str),
    /// Datasets of this kind lack it.
    #[error("'{0}' does not apply to datasets of this type")]
    WrongType(&'static str),
    /// It must be one of its names.
    #[error("'{property}' must be one of '{values}'")]
    NotOneOf {
        /// The property.
        property: &'static str,
        /// What it may be.
        values: &'static str,
    },
    /// It must be a number.
    #[error("bad numeric value '{0}'")]
    NotNumber(String),
    /// It is a greater number than there is.
    #[error("numeric value is too large")]
    TooLarge,
    /// A unit is none.
    #[error("invalid numeric suffix '{0}'")]
    Suffix(String),
    /// Snapshots have user properties only.
    #[error("this property can not be modified for snapshots")]
    NotForSnapshots,
    /// `auto` is for volumes.
    #[error("'{0}=auto' only allowed on volumes")]
    AutoForVolumes(&'static str),
    /// `auto` is for another property.
    #[error("'auto' is invalid value for '{0}'")]
    NotAuto(&'static str),
    /// It must be zero, or a power of 2 within bounds.
    #[error("invalid '{property}={value}' property: must be zero or a power of 2 from 512B to {most}")]
    NotZeroOrPowerOf2 {
        /// The property.
        property: &'static str,
        /// What was given.
        value: u64,
        /// The greatest, as it is printed.
        most: String,
    },
    /// There are no labels on this system.
    #[error("mlslabels are unsupported")]
    NoLabels,
    /// A component of a path is too long.
    #[error("component of '{0}' is too long")]
    ComponentTooLong(&'static str),
    /// No options of a share.
    #[error("'{0}' cannot be set to invalid options")]
    ShareOptions(&'static str),
    /// Too few rounds to make a key of a passphrase.
    #[error("minimum pbkdf2 iterations is {0}")]
    FewIterations(u64),
    /// `none` and 0 mean the same, but not here.
    #[error("use 'none' to disable {0}")]
    UseNone(&'static str),
    /// A value is too long.
    #[error("'{0}' is too long")]
    TooLong(String),
    /// A name of a user property is too long.
    #[error("property name '{0}' is too long")]
    NameTooLong(String),
    /// It must be a power of 2 within bounds.
    #[error("'{property}' must be power of 2 from 512B to {most}")]
    NotPowerOf2 {
        /// The property.
        property: &'static str,
        /// The greatest, as it is printed.
        most: String,
    },
    /// A mountpoint must be a path, `none` or `legacy`.
    #[error("'{0}' must be an absolute path, 'none', or 'legacy'")]
    NotPath(&'static str),
    /// A key location is none of the kinds that there are.
    #[error("invalid keylocation")]
    KeyLocation,
    /// Only an encrypted dataset has a key somewhere (`EACCES`).
    #[error("keylocation must be 'none' for unencrypted datasets")]
    KeyLocationOfNone,
    /// An encrypted dataset has a key somewhere (`EINVAL`).
    #[error("keylocation must not be 'none' for encrypted datasets")]
    NoKeyLocation,
    /// Where the key is, is the encryption root's to say (`EACCES`).
    #[error("keylocation may only be set on encryption roots")]
    KeyLocationBelowRoot,
    /// The size of a volume must be a multiple of its block size.
    #[error("'volsize' must be a multiple of volume block size ({size})", size = crate::prop::text::nicebytes(*.0))]
    NotMultiple(u64),
    /// A size must not be zero.
    #[error("'{0}' cannot be zero")]
    Zero(&'static str),
    /// A volume needs its size.
    #[error("missing volume size")]
    NoVolsize,
    /// More than the volume's size is of no use.
    #[error("'{0}' is greater than current volume size")]
    MoreThanVolume(&'static str),
    /// There is less room (`ENOSPC`).
    #[error("size is greater than available space")]
    NoSpace,
    /// A quota below what is used or reserved (`ENOSPC`).
    #[error("size is less than current used or reserved space")]
    BelowUsed,
    /// A feature must be enabled first (`ENOTSUP`).
    #[error("pool must be upgraded to set this property or value")]
    Feature,
    /// Some property cannot be inherited.
    #[error("'{0}' cannot be inherited")]
    NotInheritable(&'static str),
}

/// Why an encrypted dataset cannot be made or changed so, in OpenZFS's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// The key of the dataset above is not loaded (`EACCES`).
    #[error("encryption root's key is not loaded or provided")]
    NotLoaded,
    /// Settings of a key without encryption (`EINVAL`).
    #[error("Encryption must be turned on to set encryption properties.")]
    NotEncrypted,
    /// A new encryption root needs a format (`EINVAL`).
    #[error("Keyformat required for new encryption root.")]
    NoFormat,
    /// The dataset is no encryption root (`EINVAL`).
    #[error("Key change not allowed: dataset is not an encryption root.")]
    NotRoot,
    /// The dataset has no encrypted one above to inherit from (`EINVAL`).
    #[error("Encryption root cannot inherit: parent is not encrypted.")]
    NoParentRoot,
    /// The parent is a clone that has this root's key: there is none to inherit (`EINVAL`).
    #[error("Encryption root cannot inherit: its parent has the same key.")]
    KeyOfParent,
    /// The dataset is the encryption root of others (`EBUSY`).
    #[error(
        "it is the encryption root of other datasets, which have to be destroyed or get a key of their own first"
    )]
    RootOfOthers,
    /// The feature is not enabled (`ENOTSUP`).
    #[error("Encryption feature not enabled.")]
    Feature,
    /// A clone has its origin's key (`EINVAL`).
    #[error("Keys cannot be changed on clones.")]
    Clone,
    /// The dataset would come under another encryption root (`EACCES`).
    #[error("cannot move encrypted child outside of its encryption root")]
    LeavesRoot,
}

impl Error {
    pub(crate) fn corrupt(object: ObjNum) -> impl Fn(Corrupt) -> Error {
        move |source| Error::Corrupt { object, source }
    }
}
