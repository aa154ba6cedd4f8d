//! What can go wrong with a dataset.

use ondisk::{Corrupt, ObjNum};

/// Failure of an operation on datasets.
///
/// # Reading
/// An operation that reads the pool can fail with:
/// * [`Error::Object`]: a block can't be read, or an object is missing or malformed.
/// * [`Error::Pool`]: a structure of the MOS is missing or malformed.
/// * [`Error::Corrupt`]: a directory, dataset, bookmark or key contradicts the format.
///
/// # Writing
/// An operation that changes the MOS can fail with the errors of reading, and with:
/// * [`Error::Object`]: a block can't be allocated, written or freed, or a ZAP is full.
///
/// The txg must then not reach the disk.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object can't be read or changed.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// A structure of the MOS can't be read or changed.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// The bytes of a dataset contradict the format.
    #[error("dataset object {object}: {source}")]
    Corrupt {
        /// The object.
        object: ObjNum,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// The dataset does not exist (`ENOENT`).
    #[error("dataset {name:?} does not exist")]
    NoSuchDataset {
        /// The requested name.
        name: String,
    },
    /// The name can't name a dataset (`EINVAL`).
    #[error("invalid dataset name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// The operation is not allowed in the present state.
    #[error("{name}: {why}")]
    Refused {
        /// The dataset of the operation.
        name: String,
        /// The reason.
        why: Refusal,
    },
    /// Several parts of an operation are refused, so none was done.
    #[error("{} of the operations may not be done", .0.len())]
    Several(Vec<Error>),
    /// A property can't have this value here.
    #[error("cannot set property {property:?} for {name:?}: {why}")]
    BadProperty {
        /// The dataset.
        name: String,
        /// The property.
        property: String,
        /// The reason.
        why: PropError,
    },
    /// The encryption key or its settings don't allow the operation.
    #[error("{name}: {why}")]
    Key {
        /// The dataset.
        name: String,
        /// The reason.
        why: KeyRefusal,
    },
    /// The initial contents of a new dataset could not be written.
    #[error("the contents of {name:?} could not be made")]
    Contents {
        /// The dataset.
        name: String,
        /// The cause.
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

/// Why a name can't name a dataset (`namecheck_err_t`).
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

/// Why an operation is not allowed; the messages are OpenZFS's where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A dataset of this name exists (`EEXIST`).
    #[error("dataset already exists")]
    Exists,
    /// The parent dataset does not exist (`ENOENT`).
    #[error("no such parent dataset")]
    NoParent,
    /// The parent dataset is no file system (`ZFS_ERR_WRONG_PARENT`).
    #[error("parent is not a filesystem")]
    WrongParent,
    /// The dataset is in use (`EBUSY`).
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
    /// Too many names in one list have hashes that begin like that of the new one (`ENOSPC`).
    #[error("too many names in its list collide with this one: choose another name")]
    NamesCollide,
    /// The pool has too little free space (`ENOSPC`).
    #[error("out of space")]
    NoSpace,
    /// A quota or limit would be exceeded (`EDQUOT`).
    #[error("disk quota exceeded")]
    Quota,
    /// It was received or destroyed only in part (`EBUSY`).
    #[error("dataset is inconsistent")]
    Inconsistent,
    /// It has a snapshot of this very txg; try again (`EAGAIN`).
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
    /// The names are of different pools or kinds (`EXDEV`).
    #[error("source and target differ in pool or kind")]
    CrossDevice,
    /// A dataset cannot be moved below itself (`EINVAL`).
    #[error("a dataset cannot become its own descendant")]
    Recursive,
    /// The operation can't apply to the root dataset of the pool (`EINVAL`, `EBUSY`).
    #[error("the pool's root dataset cannot be")]
    Root,
    /// A name would become too long (`ENAMETOOLONG`).
    #[error("dataset name too long")]
    NameTooLong,
    /// The name has too many levels (`ENAMETOOLONG`).
    #[error("maximum dataset nesting depth exceeded")]
    TooDeep,
    /// A snapshot or bookmark has the name that a promotion would move here (`EEXIST`).
    #[error("conflicting snapshot name")]
    SnapshotConflict,
    /// A newer snapshot or bookmark exists (`EEXIST`).
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
    /// A redaction list can't name so many snapshots (`E2BIG`).
    #[error("too many redaction snapshots")]
    TooManySnapshots,
    /// The operation needs a feature that is not enabled (`ENOTSUP`).
    #[error("pool must be upgraded: feature {0} is not enabled")]
    Feature(&'static str),
    /// The snapshot is not in the past of the dataset (`EXDEV`).
    #[error("not an earlier snapshot from the same filesystem")]
    NotBefore,
    /// The latest snapshot is not the source of the received stream (`ENODEV`).
    #[error("most recent snapshot does not match incremental source")]
    NotSource,
    /// The dataset has changed since its latest snapshot (`ETXTBSY`).
    #[error("destination has been modified since most recent snapshot")]
    Modified,
    /// The stream lacks the large blocks of earlier ones (`ZFS_ERR_STREAM_LARGE_BLOCK_MISMATCH`).
    #[error("incremental send stream requires -L (--large-block), to match previous receive")]
    LargeBlocks,
    /// The rest of a stream would replace an existing dataset (`ZFS_ERR_RESUME_EXISTS`).
    #[error("Resuming recv on existing dataset without force")]
    ResumeExists,
    /// The permission can't be granted, or the grantee is malformed (`EINVAL`).
    #[error("operation not applicable to datasets of this type")]
    BadGrant,
    /// A stream can't be received here, whatever it contains (`EINVAL`).
    #[error("the stream cannot be received here: {0}")]
    Stream(&'static str),
    /// A raw stream does not fit the encryption of its target, in OpenZFS's words (`EACCES`,
    /// `EINVAL`, `ZFS_ERR_FROM_IVSET_GUID_MISSING`, `ZFS_ERR_FROM_IVSET_GUID_MISMATCH`).
    #[error("{0}")]
    RawStream(&'static str),
}

/// Why a property can't have a value, in OpenZFS's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropError {
    /// The property does not exist.
    #[error("invalid property '{0}'")]
    Unknown(String),
    /// The property is computed.
    #[error("'{0}' is readonly")]
    ReadOnly(&'static str),
    /// The property counts what a user, group or project uses.
    #[error("'{0}' is readonly")]
    CountedOnly(String),
    /// The property names a user or group that does not exist.
    #[error("'{0}' has an invalid user/group name")]
    NobodyOf(String),
    /// The property is fixed at creation.
    #[error("'{0}' can only be set at creation time")]
    Onetime(&'static str),
    /// Datasets of this kind don't have the property.
    #[error("'{0}' does not apply to datasets of this type")]
    WrongType(&'static str),
    /// The value must be one of the property's names.
    #[error("'{property}' must be one of '{values}'")]
    NotOneOf {
        /// The property.
        property: &'static str,
        /// The allowed values.
        values: &'static str,
    },
    /// The value must be a number.
    #[error("bad numeric value '{0}'")]
    NotNumber(String),
    /// The number exceeds 64 bits.
    #[error("numeric value is too large")]
    TooLarge,
    /// The unit is unknown.
    #[error("invalid numeric suffix '{0}'")]
    Suffix(String),
    /// Snapshots have only user properties.
    #[error("this property can not be modified for snapshots")]
    NotForSnapshots,
    /// `auto` is only for volumes.
    #[error("'{0}=auto' only allowed on volumes")]
    AutoForVolumes(&'static str),
    /// This property does not take `auto`.
    #[error("'auto' is invalid value for '{0}'")]
    NotAuto(&'static str),
    /// The value must be zero, or a power of 2 within bounds.
    #[error("invalid '{property}={value}' property: must be zero or a power of 2 from 512B to {most}")]
    NotZeroOrPowerOf2 {
        /// The property.
        property: &'static str,
        /// The given value.
        value: u64,
        /// The greatest allowed value, as printed.
        most: String,
    },
    /// This system has no security labels.
    #[error("mlslabels are unsupported")]
    NoLabels,
    /// A component of a path is too long.
    #[error("component of '{0}' is too long")]
    ComponentTooLong(&'static str),
    /// The options of a share are malformed.
    #[error("'{0}' cannot be set to invalid options")]
    ShareOptions(&'static str),
    /// Too few rounds for a key from a passphrase.
    #[error("minimum pbkdf2 iterations is {0}")]
    FewIterations(u64),
    /// `none` disables this property, 0 does not.
    #[error("use 'none' to disable {0}")]
    UseNone(&'static str),
    /// The value is too long.
    #[error("'{0}' is too long")]
    TooLong(String),
    /// The name of a user property is too long.
    #[error("property name '{0}' is too long")]
    NameTooLong(String),
    /// The value must be a power of 2 within bounds.
    #[error("'{property}' must be power of 2 from 512B to {most}")]
    NotPowerOf2 {
        /// The property.
        property: &'static str,
        /// The greatest allowed value, as printed.
        most: String,
    },
    /// A mountpoint must be a path, `none` or `legacy`.
    #[error("'{0}' must be an absolute path, 'none', or 'legacy'")]
    NotPath(&'static str),
    /// The key location is of no known kind.
    #[error("invalid keylocation")]
    KeyLocation,
    /// An unencrypted dataset has no key location (`EACCES`).
    #[error("keylocation must be 'none' for unencrypted datasets")]
    KeyLocationOfNone,
    /// An encrypted dataset needs a key location (`EINVAL`).
    #[error("keylocation must not be 'none' for encrypted datasets")]
    NoKeyLocation,
    /// Only encryption roots have a key location (`EACCES`).
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
    /// The value exceeds the size of the volume.
    #[error("'{0}' is greater than current volume size")]
    MoreThanVolume(&'static str),
    /// The value exceeds the free space (`ENOSPC`).
    #[error("size is greater than available space")]
    NoSpace,
    /// The quota is below what is used or reserved (`ENOSPC`).
    #[error("size is less than current used or reserved space")]
    BelowUsed,
    /// The value needs a feature or pool version that is not enabled (`ENOTSUP`).
    #[error("pool must be upgraded to set this property or value")]
    Feature,
    /// The property is not inherited.
    #[error("'{0}' cannot be inherited")]
    NotInheritable(&'static str),
}

/// Why a dataset can't be encrypted this way, in OpenZFS's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// The key of the encryption root is not loaded (`EACCES`).
    #[error("encryption root's key is not loaded or provided")]
    NotLoaded,
    /// Key settings need encryption (`EINVAL`).
    #[error("Encryption must be turned on to set encryption properties.")]
    NotEncrypted,
    /// A new encryption root needs a key format (`EINVAL`).
    #[error("Keyformat required for new encryption root.")]
    NoFormat,
    /// The dataset is no encryption root (`EINVAL`).
    #[error("Key change not allowed: dataset is not an encryption root.")]
    NotRoot,
    /// The dataset is an encryption root already (`EINVAL`).
    #[error("Key change not allowed: dataset is an encryption root already.")]
    IsRoot,
    /// The parent is not encrypted, so there is no key to inherit (`EINVAL`).
    #[error("Encryption root cannot inherit: parent is not encrypted.")]
    NoParentRoot,
    /// The parent is a clone that has the key of this root: there is none to inherit (`EINVAL`).
    #[error("Encryption root cannot inherit: its parent has the same key.")]
    KeyOfParent,
    /// The keys are wrapped by another key than the one that the new encryption root has.
    #[error("its keys are wrapped by another key than its parent's")]
    OtherKey,
    /// The dataset is the encryption root of others (`EBUSY`).
    #[error(
        "it is the encryption root of other datasets, which have to be destroyed or get a key of their own first"
    )]
    RootOfOthers,
    /// The feature is not enabled (`ENOTSUP`).
    #[error("Encryption feature not enabled.")]
    Feature,
    /// A clone has the key of its origin (`EINVAL`).
    #[error("Keys cannot be changed on clones.")]
    Clone,
    /// The dataset would move under another encryption root (`EACCES`).
    #[error("cannot move encrypted child outside of its encryption root")]
    LeavesRoot,
}

impl Error {
    pub(crate) fn corrupt(object: ObjNum) -> impl Fn(Corrupt) -> Error {
        move |source| Error::Corrupt { object, source }
    }
}
