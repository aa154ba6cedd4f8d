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
    ($($id:ident $name:literal $ctor:ident($($arg:expr),*) $attr:ident ($types:expr) $column:literal $values:literal;)*) => {
        /// A native property, in the order of `zfs get all` (`zfs_prop_t`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)] // their names say what they are; the manual says more
        pub enum Prop { $($id,)* }

        /// All native properties, hidden ones included, in order.
        pub const PROPS: &[PropDesc] = &[
            $(PropDesc::$ctor(Prop::$id, $name, PropAttr::$attr, $types, $column, $values, $($arg),*),)*
        ];
    };
}

props! {
    Type "type" string(None) Readonly (DS | BOOK) "TYPE" "filesystem | volume | snapshot | bookmark";
    Creation "creation" number(0) Readonly (DS | BOOK) "CREATION" "<date>";
    Used "used" number(0) Readonly (DS) "USED" "<size>";
    Available "available" number(0) Readonly (FS | VOL) "AVAIL" "<size>";
    Referenced "referenced" number(0) Readonly (DS | BOOK) "REFER" "<size>";
    Compressratio "compressratio" number(0) Readonly (DS | BOOK) "RATIO" "<1.00x or higher if compressed>";
    Mounted "mounted" index(0, BOOLEAN) Readonly (FS) "MOUNTED" "yes | no";
    Origin "origin" string(None) Readonly (FS | VOL) "ORIGIN" "<snapshot>";
    Quota "quota" number(0) Default (FS) "QUOTA" "<size> | none";
    Reservation "reservation" number(0) Default (FS | VOL) "RESERV" "<size> | none";
    Volsize "volsize" number(0) Default (SNAP | VOL) "VOLSIZE" "<size>";
    Volblocksize "volblocksize" number(16384) Onetime (VOL) "VOLBLOCK" "512 to 128k, power of 2";
    Recordsize "recordsize" number(131072) Inherit (FS) "RECSIZE" "512 to 1M, power of 2";
    Mountpoint "mountpoint" string(Some("/")) Inherit (FS) "MOUNTPOINT" "<path> | legacy | none";
    Sharenfs "sharenfs" string(Some("off")) Inherit (FS) "SHARENFS" "on | off | NFS share options";
    Checksum "checksum" index(1, CHECKSUM) Inherit (FS | VOL) "CHECKSUM" "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3";
    Compression "compression" index(1, COMPRESS) Inherit (FS | VOL) "COMPRESS" "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]";
    Atime "atime" index(1, BOOLEAN) Inherit (FS) "ATIME" "on | off";
    Devices "devices" index(1, BOOLEAN) Inherit (FS | SNAP) "DEVICES" "on | off";
    Exec "exec" index(1, BOOLEAN) Inherit (FS | SNAP) "EXEC" "on | off";
    Setuid "setuid" index(1, BOOLEAN) Inherit (FS | SNAP) "SETUID" "on | off";
    Readonly "readonly" index(0, BOOLEAN) Inherit (FS | VOL) "RDONLY" "on | off";
    Zoned "zoned" index(0, BOOLEAN) Inherit (FS) "ZONED" "on | off";
    Snapdir "snapdir" index(0, SNAPDIR) Inherit (FS) "SNAPDIR" "disabled | hidden | visible";
    Aclmode "aclmode" index(0, ACL_MODE) Inherit (FS) "ACLMODE" "discard | groupmask | passthrough | restricted";
    Aclinherit "aclinherit" index(4, ACL_INHERIT) Inherit (FS) "ACLINHERIT" "discard | noallow | restricted | passthrough | passthrough-x";
    Createtxg "createtxg" number(0) Readonly (DS | BOOK) "CREATETXG" "<uint64>";
    Name "name" hidden(false) Readonly (DS | BOOK) "NAME" "";
    Canmount "canmount" index(1, CANMOUNT) Default (FS) "CANMOUNT" "on | off | noauto";
    Iscsioptions "iscsioptions" hidden(false) Inherit (VOL) "ISCSIOPTIONS" "";
    Xattr "xattr" index(2, XATTR) Inherit (FS | SNAP) "XATTR" "on | off | dir | sa";
    Numclones "numclones" hidden(true) Readonly (SNAP) "NUMCLONES" "";
    Copies "copies" index(1, COPIES) Inherit (FS | VOL) "COPIES" "1 | 2 | 3";
    Version "version" index(0, VERSION) Default (FS | SNAP) "VERSION" "1 | 2 | 3 | 4 | 5 | current";
    Utf8only "utf8only" index(0, BOOLEAN) Onetime (FS | SNAP) "UTF8ONLY" "on | off";
    Normalize "normalization" index(0, NORMALIZE) Onetime (FS | SNAP) "NORMALIZATION" "none | formC | formD | formKC | formKD";
    Case "casesensitivity" index(0, CASE) Onetime (FS | SNAP) "CASE" "sensitive | insensitive | mixed";
    Vscan "vscan" index(0, BOOLEAN) Inherit (FS) "VSCAN" "on | off";
    Nbmand "nbmand" index(0, BOOLEAN) Inherit (FS | SNAP) "NBMAND" "on | off";
    Sharesmb "sharesmb" string(Some("off")) Inherit (FS) "SHARESMB" "on | off | SMB share options";
    Refquota "refquota" number(0) Default (FS) "REFQUOTA" "<size> | none";
    Refreservation "refreservation" number(0) Default (FS | VOL) "REFRESERV" "<size> | none";
    Guid "guid" number(0) Readonly (DS | BOOK) "GUID" "<uint64>";
    Primarycache "primarycache" index(2, CACHE) Inherit (FS | SNAP | VOL) "PRIMARYCACHE" "all | none | metadata";
    Secondarycache "secondarycache" index(2, CACHE) Inherit (FS | SNAP | VOL) "SECONDARYCACHE" "all | none | metadata";
    Usedsnap "usedbysnapshots" number(0) Readonly (FS | VOL) "USEDSNAP" "<size>";
    Usedds "usedbydataset" number(0) Readonly (FS | VOL) "USEDDS" "<size>";
    Usedchild "usedbychildren" number(0) Readonly (FS | VOL) "USEDCHILD" "<size>";
    Usedrefreserv "usedbyrefreservation" number(0) Readonly (FS | VOL) "USEDREFRESERV" "<size>";
    Useraccounting "useraccounting" hidden(true) Readonly (DS) "USERACCOUNTING" "";
    StmfShareinfo "stmf_sbd_lu" hidden(false) Inherit (VOL) "STMF_SBD_LU" "";
    DeferDestroy "defer_destroy" index(0, BOOLEAN) Readonly (SNAP) "DEFER_DESTROY" "yes | no";
    Userrefs "userrefs" number(0) Readonly (SNAP) "USERREFS" "<count>";
    Logbias "logbias" index(0, LOGBIAS) Inherit (FS | VOL) "LOGBIAS" "latency | throughput";
    Unique "unique" hidden(true) Readonly (DS) "UNIQUE" "";
    Objsetid "objsetid" number(0) Readonly (DS) "OBJSETID" "<uint64>";
    Dedup "dedup" index(2, DEDUP) Inherit (FS | VOL) "DEDUP" "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]";
    Mlslabel "mlslabel" string(Some("none")) Inherit (DS) "MLSLABEL" "<sensitivity label>";
    Sync "sync" index(0, SYNC) Inherit (FS | VOL) "SYNC" "standard | always | disabled";
    Dnodesize "dnodesize" index(0, DNSIZE) Inherit (FS) "DNSIZE" "legacy | auto | 1k | 2k | 4k | 8k | 16k";
    Refratio "refcompressratio" number(0) Readonly (DS) "REFRATIO" "<1.00x or higher if compressed>";
    Written "written" number(0) Readonly (DS) "WRITTEN" "<size>";
    Clones "clones" string(None) Readonly (SNAP) "CLONES" "<dataset>[,...]";
    Logicalused "logicalused" number(0) Readonly (FS | VOL) "LUSED" "<size>";
    Logicalreferenced "logicalreferenced" number(0) Readonly (DS | BOOK) "LREFER" "<size>";
    Inconsistent "inconsistent" hidden(true) Readonly (DS) "INCONSISTENT" "";
    Volmode "volmode" index(0, VOLMODE) Inherit (FS | VOL) "VOLMODE" "default | full | geom | dev | none";
    FilesystemLimit "filesystem_limit" number(u64::MAX) Default (FS) "FSLIMIT" "<count> | none";
    SnapshotLimit "snapshot_limit" number(u64::MAX) Default (FS | VOL) "SSLIMIT" "<count> | none";
    FilesystemCount "filesystem_count" number(u64::MAX) Readonly (FS) "FSCOUNT" "<count>";
    SnapshotCount "snapshot_count" number(u64::MAX) Readonly (FS | VOL) "SSCOUNT" "<count>";
    Snapdev "snapdev" index(0, SNAPDEV) Inherit (FS | VOL) "SNAPDEV" "hidden | visible";
    Acltype "acltype" index(0, ACLTYPE) Inherit (FS | SNAP) "ACLTYPE" "off | nfsv4 | posix";
    SelinuxContext "context" string(Some("none")) Default (DS) "CONTEXT" "<selinux context>";
    SelinuxFscontext "fscontext" string(Some("none")) Default (DS) "FSCONTEXT" "<selinux fscontext>";
    SelinuxDefcontext "defcontext" string(Some("none")) Default (DS) "DEFCONTEXT" "<selinux defcontext>";
    SelinuxRootcontext "rootcontext" string(Some("none")) Default (DS) "ROOTCONTEXT" "<selinux rootcontext>";
    Relatime "relatime" index(1, BOOLEAN) Inherit (FS) "RELATIME" "on | off";
    RedundantMetadata "redundant_metadata" index(0, REDUNDANT_METADATA) Inherit (FS | VOL) "REDUND_MD" "all | most | some | none";
    Overlay "overlay" index(1, BOOLEAN) Inherit (FS) "OVERLAY" "on | off";
    PrevSnap "prevsnap" hidden(false) Readonly (FS | VOL) "PREVSNAP" "";
    ReceiveResumeToken "receive_resume_token" string(None) Readonly (FS | VOL) "RESUMETOK" "<string token>";
    Encryption "encryption" index(2, CRYPTO) Onetime (DS) "ENCRYPTION" "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm";
    Keylocation "keylocation" string(Some("none")) Default (FS | VOL) "KEYLOCATION" "prompt | <file URI> | <https URL> | <http URL>";
    Keyformat "keyformat" index(0, KEYFORMAT) OnetimeDefault (FS | VOL) "KEYFORMAT" "none | raw | hex | passphrase";
    Pbkdf2Salt "pbkdf2salt" hidden(true) OnetimeDefault (FS | VOL) "PBKDF2SALT" "";
    Pbkdf2Iters "pbkdf2iters" number(0) OnetimeDefault (FS | VOL) "PBKDF2ITERS" "<iters>";
    EncryptionRoot "encryptionroot" string(None) Readonly (DS) "ENCROOT" "<filesystem | volume>";
    KeyGuid "keyguid" hidden(true) Readonly (DS) "KEYGUID" "";
    Keystatus "keystatus" index(0, KEYSTATUS) Readonly (DS) "KEYSTATUS" "none | unavailable | available";
    Remaptxg "remaptxg" hidden(true) Readonly (DS) "REMAPTXG" "";
    SpecialSmallBlocks "special_small_blocks" number(0) Inherit (FS) "SPECIAL_SMALL_BLOCKS" "zero or 512 to 1M, power of 2";
    IvsetGuid "ivsetguid" hidden(true) Readonly (DS | BOOK) "IVSETGUID" "";
    Redacted "redacted" hidden(true) Readonly (DS) "REDACTED" "";
    RedactSnaps "redact_snaps" string(None) Readonly (DS | BOOK) "RSNAPS" "<snapshot>[,...]";
    SnapshotsChanged "snapshots_changed" number(0) Readonly (FS | VOL) "SNAPSHOTS_CHANGED" "<date>";
    Prefetch "prefetch" index(2, PREFETCH) Inherit (FS | SNAP | VOL) "PREFETCH" "none | metadata | all";
    Volthreading "volthreading" index(1, BOOLEAN) Default (VOL) "zvol threading" "on | off";
    Direct "direct" index(1, DIRECT) Inherit (FS) "DIRECT" "disabled | standard | always";
    Longname "longname" index(0, BOOLEAN) Inherit (FS) "LONGNAME" "on | off";
}
