//! The native properties of datasets in OpenZFS 2.3: a table of facts.

use super::{Index, Kind, PropAttr, PropDesc};

const FS: u8 = Kind::Filesystem as u8;
const VOL: u8 = Kind::Volume as u8;
const SNAP: u8 = Kind::Snapshot as u8;
const BOOK: u8 = Kind::Bookmark as u8;
const DS: u8 = FS | VOL | SNAP;

const CHECKSUM: Index = &[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
];
const DEDUP: Index = &[
    ("on", 1),
    ("off", 2),
    ("verify", 257),
    ("sha256", 8),
    ("sha256,verify", 264),
    ("sha512", 11),
    ("sha512,verify", 267),
    ("skein", 12),
    ("skein,verify", 268),
    ("edonr,verify", 269),
    ("blake3", 14),
    ("blake3,verify", 270),
];
const COMPRESS: Index = &[
    ("on", 1),
    ("off", 2),
    ("lzjb", 3),
    ("gzip", 10),
    ("gzip-1", 5),
    ("gzip-2", 6),
    ("gzip-3", 7),
    ("gzip-4", 8),
    ("gzip-5", 9),
    ("gzip-6", 10),
    ("gzip-7", 11),
    ("gzip-8", 12),
    ("gzip-9", 13),
    ("zle", 14),
    ("lz4", 15),
    ("zstd", 16),
    ("zstd-fast", 13200),
    ("zstd-1", 144),
    ("zstd-2", 272),
    ("zstd-3", 400),
    ("zstd-4", 528),
    ("zstd-5", 656),
    ("zstd-6", 784),
    ("zstd-7", 912),
    ("zstd-8", 1040),
    ("zstd-9", 1168),
    ("zstd-10", 1296),
    ("zstd-11", 1424),
    ("zstd-12", 1552),
    ("zstd-13", 1680),
    ("zstd-14", 1808),
    ("zstd-15", 1936),
    ("zstd-16", 2064),
    ("zstd-17", 2192),
    ("zstd-18", 2320),
    ("zstd-19", 2448),
    ("zstd-fast-1", 13200),
    ("zstd-fast-2", 13328),
    ("zstd-fast-3", 13456),
    ("zstd-fast-4", 13584),
    ("zstd-fast-5", 13712),
    ("zstd-fast-6", 13840),
    ("zstd-fast-7", 13968),
    ("zstd-fast-8", 14096),
    ("zstd-fast-9", 14224),
    ("zstd-fast-10", 14352),
    ("zstd-fast-20", 14480),
    ("zstd-fast-30", 14608),
    ("zstd-fast-40", 14736),
    ("zstd-fast-50", 14864),
    ("zstd-fast-60", 14992),
    ("zstd-fast-70", 15120),
    ("zstd-fast-80", 15248),
    ("zstd-fast-90", 15376),
    ("zstd-fast-100", 15504),
    ("zstd-fast-500", 15632),
    ("zstd-fast-1000", 15760),
];
const CRYPTO: Index = &[
    ("on", 1),
    ("off", 2),
    ("aes-128-ccm", 3),
    ("aes-192-ccm", 4),
    ("aes-256-ccm", 5),
    ("aes-128-gcm", 6),
    ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];
const KEYFORMAT: Index = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
const SNAPDIR: Index = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
const SNAPDEV: Index = &[("hidden", 0), ("visible", 1)];
const ACL_MODE: Index = &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)];
const ACLTYPE: Index =
    &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)];
const ACL_INHERIT: Index = &[
    ("discard", 0),
    ("noallow", 1),
    ("restricted", 4),
    ("passthrough", 3),
    ("secure", 4),
    ("passthrough-x", 5),
];
const CASE: Index = &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
const COPIES: Index = &[("1", 1), ("2", 2), ("3", 3)];
const NORMALIZE: Index = &[("none", 0), ("formD", 16), ("formKC", 96), ("formC", 80), ("formKD", 32)];
const VERSION: Index = &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)];
const BOOLEAN: Index = &[("off", 0), ("on", 1)];
const KEYSTATUS: Index = &[("none", 0), ("unavailable", 1), ("available", 2)];
const LOGBIAS: Index = &[("latency", 0), ("throughput", 1)];
const CANMOUNT: Index = &[("off", 0), ("on", 1), ("noauto", 2)];
const CACHE: Index = &[("none", 0), ("metadata", 1), ("all", 2)];
const PREFETCH: Index = &[("none", 0), ("metadata", 1), ("all", 2)];
const SYNC: Index = &[("standard", 0), ("always", 1), ("disabled", 2)];
const XATTR: Index = &[("off", 0), ("on", 2), ("sa", 2), ("dir", 1)];
const DNSIZE: Index =
    &[("legacy", 0), ("auto", 1), ("1k", 1024), ("2k", 2048), ("4k", 4096), ("8k", 8192), ("16k", 16384)];
const REDUNDANT_METADATA: Index = &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
const VOLMODE: Index = &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)];
const DIRECT: Index = &[("disabled", 0), ("standard", 1), ("always", 2)];

macro_rules! props {
    ($($id:ident $name:literal $ctor:ident($($arg:expr),*) $attr:ident ($types:expr) $column:literal $values:literal $help:literal $($effect:ident)?;)*) => {
        /// A native property, in the order of `zfs get all` (`zfs_prop_t`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)] // their names say what they are; the manual says more
        pub enum Prop { $($id,)* }

        /// All native properties, hidden ones included, in order.
        pub const PROPS: &[PropDesc] = &[
            $(PropDesc::base(Prop::$id, $name, PropAttr::$attr, $types, $column, $values)
                .$ctor($($arg),*)
                .with_help($help)
                $(.$effect())?,)*
        ];
    };
}

props! {
    Type "type" string(None) Readonly (DS | BOOK) "TYPE" "filesystem | volume | snapshot | bookmark"
        "The kind of dataset.";
    Creation "creation" date(0) Readonly (DS | BOOK) "CREATION" "<date>"
        "When it was created.";
    Used "used" number(0) Readonly (DS) "USED" "<size>"
        "Space used by the dataset, its children, snapshots and reservations.";
    Available "available" number(0) Readonly (FS | VOL) "AVAIL" "<size>"
        "Space that the dataset and its children may still use.";
    Referenced "referenced" number(0) Readonly (DS | BOOK) "REFER" "<size>"
        "Space reachable from the dataset, shared or not.";
    Compressratio "compressratio" number(0) Readonly (DS | BOOK) "RATIO" "<1.00x or higher if compressed>"
        "How much smaller compression makes the used data.";
    Mounted "mounted" index(0, BOOLEAN) Readonly (FS) "MOUNTED" "yes | no"
        "Whether it is mounted.";
    Origin "origin" string(None) Readonly (FS | VOL) "ORIGIN" "<snapshot>"
        "The snapshot from which a clone was made.";
    Quota "quota" number(0) Default (FS) "QUOTA" "<size> | none"
        "Limit for the dataset with its children and snapshots.";
    Reservation "reservation" number(0) Default (FS | VOL) "RESERV" "<size> | none"
        "Space guaranteed to the dataset and its children.";
    Volsize "volsize" number(0) Default (SNAP | VOL) "VOLSIZE" "<size>"
        "The size of a volume. Its reservation changes with it.";
    Volblocksize "volblocksize" number(16384) Onetime (VOL) "VOLBLOCK" "512 to 128k, power of 2"
        "The block size of a volume, 16K by default.";
    Recordsize "recordsize" number(131072) Inherit (FS) "RECSIZE" "512 to 1M, power of 2"
        "The largest block of a new file. 128K suits most uses. For a database, use the size of its pages.";
    Mountpoint "mountpoint" string(Some("/")) Inherit (FS) "MOUNTPOINT" "<path> | legacy | none"
        "Where the file system is mounted. Children are mounted below it, unless they have a mountpoint of their own.";
    Sharenfs "sharenfs" string(Some("off")) Inherit (FS) "SHARENFS" "on | off | NFS share options"
        "Checked; shares nothing here." without_effect;
    Checksum "checksum" index(1, CHECKSUM) Inherit (FS | VOL) "CHECKSUM" "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3"
        "The checksum of blocks. on means fletcher4, or a stronger one where dedup needs it.";
    Compression "compression" index(1, COMPRESS) Inherit (FS | VOL) "COMPRESS" "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"
        "The compression of blocks that become smaller by it. on means lz4, if the pool supports it.";
    Atime "atime" index(1, BOOLEAN) Inherit (FS) "ATIME" "on | off"
        "Whether reading a file updates its access time.";
    Devices "devices" index(1, BOOLEAN) Inherit (FS | SNAP) "DEVICES" "on | off"
        "Whether device nodes in the file system work.";
    Exec "exec" index(1, BOOLEAN) Inherit (FS | SNAP) "EXEC" "on | off"
        "Whether programs in the file system can run.";
    Setuid "setuid" index(1, BOOLEAN) Inherit (FS | SNAP) "SETUID" "on | off"
        "Whether set-user-ID bits have an effect.";
    Readonly "readonly" index(0, BOOLEAN) Inherit (FS | VOL) "RDONLY" "on | off"
        "Whether the file system is read-only. In a pool that was imported read-only, mounted file systems show on as a temporary value.";
    Zoned "zoned" index(0, BOOLEAN) Inherit (FS) "ZONED" "on | off"
        "Whether it belongs to a container, and is not mounted here.";
    Snapdir "snapdir" index(0, SNAPDIR) Inherit (FS) "SNAPDIR" "disabled | hidden | visible"
        "Whether .zfs is listed, found only by its name, or absent.";
    Aclmode "aclmode" index(0, ACL_MODE) Inherit (FS) "ACLMODE" "discard | groupmask | passthrough | restricted"
        "What chmod does to an NFSv4 ACL. No interface here edits one.";
    Aclinherit "aclinherit" index(4, ACL_INHERIT) Inherit (FS) "ACLINHERIT" "discard | noallow | restricted | passthrough | passthrough-x"
        "What a new file inherits from its folder's NFSv4 ACL.";
    Createtxg "createtxg" id(0) Readonly (DS | BOOK) "CREATETXG" "<uint64>"
        "The transaction group in which it was created.";
    Name "name" hidden(false) Readonly (DS | BOOK) "NAME" "" "";
    Canmount "canmount" index(1, CANMOUNT) Default (FS) "CANMOUNT" "on | off | noauto"
        "Whether it is mounted with all others, by name only, or never.";
    Iscsioptions "iscsioptions" hidden(false) Inherit (VOL) "ISCSIOPTIONS" "" "";
    Xattr "xattr" index(2, XATTR) Inherit (FS | SNAP) "XATTR" "on | off | dir | sa"
        "How extended attributes are stored: on and sa beside the file's own, dir as hidden files. off hides those of users.";
    Numclones "numclones" hidden(true) Readonly (SNAP) "NUMCLONES" "" "";
    Copies "copies" index(1, COPIES) Inherit (FS | VOL) "COPIES" "1 | 2 | 3"
        "How many copies of each block are stored, on different devices if possible. Blocks already written keep their number.";
    Version "version" index(0, VERSION) Default (FS | SNAP) "VERSION" "1 | 2 | 3 | 4 | 5 | current"
        "The version of the file system's format. zfs upgrade raises it.";
    Utf8only "utf8only" index(0, BOOLEAN) Onetime (FS | SNAP) "UTF8ONLY" "on | off"
        "Whether names that are not UTF-8 are refused.";
    Normalize "normalization" index(0, NORMALIZE) Onetime (FS | SNAP) "NORMALIZATION" "none | formC | formD | formKC | formKD"
        "The Unicode form in which names are compared.";
    Case "casesensitivity" index(0, CASE) Onetime (FS | SNAP) "CASE" "sensitive | insensitive | mixed"
        "Whether names that differ only by case are different.";
    Vscan "vscan" index(0, BOOLEAN) Inherit (FS) "VSCAN" "on | off"
        "Scans for viruses." without_effect;
    Nbmand "nbmand" index(0, BOOLEAN) Inherit (FS | SNAP) "NBMAND" "on | off"
        "Mandatory locks." without_effect;
    Sharesmb "sharesmb" string(Some("off")) Inherit (FS) "SHARESMB" "on | off | SMB share options"
        "Checked; shares nothing here." without_effect;
    Refquota "refquota" number(0) Default (FS) "REFQUOTA" "<size> | none"
        "Limit for the dataset without its children and snapshots.";
    Refreservation "refreservation" number(0) Default (FS | VOL) "REFRESERV" "<size> | none"
        "Space guaranteed to the dataset without its children. A volume that is not sparse reserves its full size. auto stands for that.";
    Guid "guid" id(0) Readonly (DS | BOOK) "GUID" "<uint64>"
        "A number that no other dataset has.";
    Primarycache "primarycache" index(2, CACHE) Inherit (FS | SNAP | VOL) "PRIMARYCACHE" "all | none | metadata"
        "Which blocks the cache in memory may keep: all, metadata or none.";
    Secondarycache "secondarycache" index(2, CACHE) Inherit (FS | SNAP | VOL) "SECONDARYCACHE" "all | none | metadata"
        "Which blocks cache devices may keep: all, metadata or none.";
    Usedsnap "usedbysnapshots" number(0) Readonly (FS | VOL) "USEDSNAP" "<size>"
        "Space that destroying all its snapshots would free.";
    Usedds "usedbydataset" number(0) Readonly (FS | VOL) "USEDDS" "<size>"
        "Space used by the dataset alone.";
    Usedchild "usedbychildren" number(0) Readonly (FS | VOL) "USEDCHILD" "<size>"
        "Space used by its children.";
    Usedrefreserv "usedbyrefreservation" number(0) Readonly (FS | VOL) "USEDREFRESERV" "<size>"
        "Space of its refreservation that nothing uses.";
    Useraccounting "useraccounting" hidden(true) Readonly (DS) "USERACCOUNTING" "" "";
    StmfShareinfo "stmf_sbd_lu" hidden(false) Inherit (VOL) "STMF_SBD_LU" "" "";
    DeferDestroy "defer_destroy" index(0, BOOLEAN) Readonly (SNAP) "DEFER_DESTROY" "yes | no"
        "Whether a snapshot will be destroyed when it has no more holds and clones.";
    Userrefs "userrefs" number(0) Readonly (SNAP) "USERREFS" "<count>"
        "How many holds a snapshot has.";
    Logbias "logbias" index(0, LOGBIAS) Inherit (FS | VOL) "LOGBIAS" "latency | throughput"
        "latency: commits use the log devices. throughput: large writes go to their final places at once, and the log refers to them.";
    Unique "unique" hidden(true) Readonly (DS) "UNIQUE" "" "";
    Objsetid "objsetid" id(0) Readonly (DS) "OBJSETID" "<uint64>"
        "The number of its object set in the pool.";
    Dedup "dedup" index(2, DEDUP) Inherit (FS | VOL) "DEDUP" "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]"
        "Whether equal blocks are stored once. With verify, they are compared first.";
    Mlslabel "mlslabel" string(Some("none")) Inherit (DS) "MLSLABEL" "<sensitivity label>"
        "A label of Trusted Extensions." without_effect;
    Sync "sync" index(0, SYNC) Inherit (FS | VOL) "SYNC" "standard | always | disabled"
        "standard: a request for durability is obeyed. always: every write is made durable at once. disabled: such requests have no effect, and a crash may lose data that a program believes safe.";
    Dnodesize "dnodesize" index(0, DNSIZE) Inherit (FS) "DNSIZE" "legacy | auto | 1k | 2k | 4k | 8k | 16k"
        "The dnode size of new files. A larger one has more space for attributes.";
    Refratio "refcompressratio" number(0) Readonly (DS) "REFRATIO" "<1.00x or higher if compressed>"
        "How much smaller compression makes the referenced data.";
    Written "written" number(0) Readonly (DS) "WRITTEN" "<size>"
        "How much was written since its last snapshot.";
    Clones "clones" string(None) Readonly (SNAP) "CLONES" "<dataset>[,...]"
        "The clones of a snapshot.";
    Logicalused "logicalused" number(0) Readonly (FS | VOL) "LUSED" "<size>"
        "The used space before compression, without extra copies.";
    Logicalreferenced "logicalreferenced" number(0) Readonly (DS | BOOK) "LREFER" "<size>"
        "The referenced space before compression, without extra copies.";
    Inconsistent "inconsistent" hidden(true) Readonly (DS) "INCONSISTENT" "" "";
    Volmode "volmode" index(0, VOLMODE) Inherit (FS | VOL) "VOLMODE" "default | full | geom | dev | none"
        "none: the volume is not offered. Other values have no effect here.";
    FilesystemLimit "filesystem_limit" number(u64::MAX) Default (FS) "FSLIMIT" "<count> | none"
        "Limit for the number of file systems and volumes below it. It doesn't bind root.";
    SnapshotLimit "snapshot_limit" number(u64::MAX) Default (FS | VOL) "SSLIMIT" "<count> | none"
        "Limit for the number of its snapshots and those of its children. It doesn't bind root.";
    FilesystemCount "filesystem_count" number(u64::MAX) Readonly (FS) "FSCOUNT" "<count>"
        "The number of file systems and volumes, if it or an ancestor has a limit.";
    SnapshotCount "snapshot_count" number(u64::MAX) Readonly (FS | VOL) "SSCOUNT" "<count>"
        "The number of snapshots, if it or an ancestor has a limit.";
    Snapdev "snapdev" index(0, SNAPDEV) Inherit (FS | VOL) "SNAPDEV" "hidden | visible"
        "Whether NBD clients see a volume's snapshots in the list.";
    Acltype "acltype" index(0, ACLTYPE) Inherit (FS | SNAP) "ACLTYPE" "off | nfsv4 | posix"
        "The ACLs of files: POSIX, NFSv4 or none.";
    SelinuxContext "context" string(Some("none")) Default (DS) "CONTEXT" "<selinux context>"
        "For SELinux." without_effect;
    SelinuxFscontext "fscontext" string(Some("none")) Default (DS) "FSCONTEXT" "<selinux fscontext>"
        "For SELinux." without_effect;
    SelinuxDefcontext "defcontext" string(Some("none")) Default (DS) "DEFCONTEXT" "<selinux defcontext>"
        "For SELinux." without_effect;
    SelinuxRootcontext "rootcontext" string(Some("none")) Default (DS) "ROOTCONTEXT" "<selinux rootcontext>"
        "For SELinux." without_effect;
    Relatime "relatime" index(1, BOOLEAN) Inherit (FS) "RELATIME" "on | off"
        "With atime: the access time is updated only if it is a day old, or older than the last change.";
    RedundantMetadata "redundant_metadata" index(0, REDUNDANT_METADATA) Inherit (FS | VOL) "REDUND_MD" "all | most | some | none"
        "How much metadata has one copy more than data.";
    Overlay "overlay" index(1, BOOLEAN) Inherit (FS) "OVERLAY" "on | off"
        "Whether it may be mounted on a folder that is not empty.";
    PrevSnap "prevsnap" hidden(false) Readonly (FS | VOL) "PREVSNAP" "" "";
    ReceiveResumeToken "receive_resume_token" string(None) Readonly (FS | VOL) "RESUMETOK" "<string token>"
        "The token with which an interrupted receive can continue.";
    Encryption "encryption" index(2, CRYPTO) Onetime (DS) "ENCRYPTION" "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm"
        "The cipher that encrypts it.";
    Keylocation "keylocation" string(Some("none")) Default (FS | VOL) "KEYLOCATION" "prompt | <file URI> | <https URL> | <http URL>"
        "The location of its key, for an encryption root.";
    Keyformat "keyformat" index(0, KEYFORMAT) OnetimeDefault (FS | VOL) "KEYFORMAT" "none | raw | hex | passphrase"
        "The form of its key.";
    Pbkdf2Salt "pbkdf2salt" hidden(true) OnetimeDefault (FS | VOL) "PBKDF2SALT" "" "";
    Pbkdf2Iters "pbkdf2iters" id(0) OnetimeDefault (FS | VOL) "PBKDF2ITERS" "<iters>"
        "The number of PBKDF2 iterations that turn a passphrase into a key.";
    EncryptionRoot "encryptionroot" string(None) Readonly (DS) "ENCROOT" "<filesystem | volume>"
        "The dataset whose key it uses.";
    KeyGuid "keyguid" hidden_id() Readonly (DS) "KEYGUID" "" "";
    Keystatus "keystatus" index(0, KEYSTATUS) Readonly (DS) "KEYSTATUS" "none | unavailable | available"
        "Whether its key is loaded.";
    Remaptxg "remaptxg" hidden(true) Readonly (DS) "REMAPTXG" "" "";
    SpecialSmallBlocks "special_small_blocks" number(0) Inherit (FS) "SPECIAL_SMALL_BLOCKS" "zero or 512 to 1M, power of 2"
        "Blocks of this size and smaller go to special vdevs.";
    IvsetGuid "ivsetguid" hidden_id() Readonly (DS | BOOK) "IVSETGUID" "" "";
    Redacted "redacted" hidden(true) Readonly (DS) "REDACTED" "" "";
    RedactSnaps "redact_snaps" string(None) Readonly (DS | BOOK) "RSNAPS" "<snapshot>[,...]"
        "The snapshots by which a bookmark or clone was redacted.";
    SnapshotsChanged "snapshots_changed" date(0) Readonly (FS | VOL) "SNAPSHOTS_CHANGED" "<date>"
        "When a snapshot of it was last created, renamed or destroyed.";
    Prefetch "prefetch" index(2, PREFETCH) Inherit (FS | SNAP | VOL) "PREFETCH" "none | metadata | all"
        "What may be read ahead.";
    Volthreading "volthreading" index(1, BOOLEAN) Default (VOL) "zvol threading" "on | off"
        "Threads of a volume." without_effect;
    Direct "direct" index(1, DIRECT) Inherit (FS) "DIRECT" "disabled | standard | always"
        "Whether O_DIRECT bypasses the cache." without_effect;
    Longname "longname" index(0, BOOLEAN) Inherit (FS) "LONGNAME" "on | off"
        "Whether names may have up to 1023 bytes.";
}
