//! What commands need to know about properties to show them: names, headers, widths, and the kinds
//! of dataset that have them.
//!
//! The values come from the engine. This table is the display side of `zfs_prop.c` and
//! `zpool_prop.c`, in the order of their enumerations.

use Edit::{Inherited, Once, OnceOwn, Own, ReadOnly};
use Kind::{Index, Number, Text};

/// The type of a property's value (`zprop_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// Text.
    Text,
    /// One of several words. The longest has this many characters.
    Index(usize),
}

/// When a property can be set (`zprop_attr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Never.
    ReadOnly,
    /// On an object, for this object alone.
    Own,
    /// On an object, for this object and those below it.
    Inherited,
    /// Only when the object is created. A property that is not set then is inherited.
    Once,
    /// Only when the object is created.
    OnceOwn,
}

/// A property, as commands show it (`zprop_desc_t`).
#[derive(Debug)]
pub struct PropDesc {
    /// Its name.
    pub name: &'static str,
    /// Its column header.
    pub column: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Whether its column is aligned to the right.
    pub right: bool,
    /// Whether it is not part of `all`.
    pub hidden: bool,
    /// Whether its column is as wide as its widest value, even without `-p`.
    pub flex: bool,
    /// When it can be set.
    pub edit: Edit,
    /// The kinds of dataset that have it: letters f, v, s, b. Empty for pools and vdevs.
    pub types: &'static str,
    /// The values that it may be set to, as usage texts show them.
    pub values: &'static str,
}

const fn p(
    name: &'static str,
    column: &'static str,
    kind: Kind,
    flags: &'static str,
    edit: Edit,
    types: &'static str,
    values: &'static str,
) -> PropDesc {
    PropDesc {
        name,
        column,
        kind,
        right: has(flags, b'r'),
        hidden: has(flags, b'h'),
        flex: has(flags, b'x'),
        edit,
        types,
        values,
    }
}

const fn has(flags: &str, flag: u8) -> bool {
    let bytes = flags.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == flag {
            return true;
        }
        i += 1;
    }
    false
}

impl PropDesc {
    /// The least width of its column (`zprop_width`).
    pub fn width(&self) -> usize {
        let header = self.column.len();
        match self.kind {
            Number if self.column == "HEALTH" => 8,
            Number => header.max(5),
            Index(longest) => header.max(longest),
            Text => header,
        }
    }

    /// Whether a dataset of this kind has the property (`zfs_prop_valid_for_type`).
    pub fn applies(&self, kind: api::DatasetKind) -> bool {
        use api::DatasetKind as D;
        self.types.contains(match kind {
            D::Filesystem => 'f',
            D::Volume => 'v',
            D::Snapshot => 's',
            D::Bookmark => 'b',
        })
    }
}

/// Finds a property by its name, or by its column's header in lower case (`zprop_name_to_prop`).
pub fn find(table: &'static [PropDesc], name: &str) -> Option<&'static PropDesc> {
    table.iter().find(|p| p.name == name || p.column.to_ascii_lowercase() == name)
}

/// The visible properties in the order of usage texts: read-only ones first, then by name
/// (`zprop_compare`).
pub fn ordered(table: &'static [PropDesc]) -> Vec<&'static PropDesc> {
    let mut v: Vec<&PropDesc> = table.iter().filter(|p| !p.hidden).collect();
    v.sort_by_key(|p| (p.edit != Edit::ReadOnly, p.name));
    v
}

/// Whether this is a user property's name (`zfs_prop_user`).
///
/// It has only lower-case letters, digits and `-_.:`, and at least one colon.
pub fn is_user(name: &str) -> bool {
    name.contains(':')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:".contains(&b))
}

/// Whether this is the name of a property of one user, group or project, like `userused@1000`
/// (`zfs_prop_userquota`).
pub fn is_userquota(name: &str) -> bool {
    const KIN: [&str; 12] = [
        "userused@",
        "userquota@",
        "groupused@",
        "groupquota@",
        "userobjused@",
        "userobjquota@",
        "groupobjused@",
        "groupobjquota@",
        "projectused@",
        "projectquota@",
        "projectobjused@",
        "projectobjquota@",
    ];
    KIN.iter().any(|k| name.starts_with(k))
}

/// Whether this is the name of a property for the space written since a snapshot or bookmark
/// (`zfs_prop_written`).
pub fn is_written(name: &str) -> bool {
    name.starts_with("written@") || name.starts_with("written#")
}

/// Dataset properties (`zfs_prop_t`).
pub static DATASET: &[PropDesc] = &[
    p("type", "TYPE", Text, "x", ReadOnly, "fvsb", "filesystem | volume | snapshot | bookmark"),
    p("creation", "CREATION", Number, "x", ReadOnly, "fvsb", "<date>"),
    p("used", "USED", Number, "r", ReadOnly, "fvs", "<size>"),
    p("available", "AVAIL", Number, "r", ReadOnly, "fv", "<size>"),
    p("referenced", "REFER", Number, "r", ReadOnly, "fvsb", "<size>"),
    p("compressratio", "RATIO", Number, "r", ReadOnly, "fvsb", "<1.00x or higher if compressed>"),
    p("mounted", "MOUNTED", Index(3), "x", ReadOnly, "f", "yes | no"),
    p("origin", "ORIGIN", Text, "x", ReadOnly, "fv", "<snapshot>"),
    p("quota", "QUOTA", Number, "r", Own, "f", "<size> | none"),
    p("reservation", "RESERV", Number, "r", Own, "fv", "<size> | none"),
    p("volsize", "VOLSIZE", Number, "r", Own, "vs", "<size>"),
    p("volblocksize", "VOLBLOCK", Number, "r", Once, "v", "512 to 128k, power of 2"),
    p("recordsize", "RECSIZE", Number, "r", Inherited, "f", "512 to 1M, power of 2"),
    p("mountpoint", "MOUNTPOINT", Text, "x", Inherited, "f", "<path> | legacy | none"),
    p("sharenfs", "SHARENFS", Text, "x", Inherited, "f", "on | off | NFS share options"),
    p(
        "checksum",
        "CHECKSUM",
        Index(9),
        "x",
        Inherited,
        "fv",
        "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3",
    ),
    p(
        "compression",
        "COMPRESS",
        Index(14),
        "x",
        Inherited,
        "fv",
        "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]",
    ),
    p("atime", "ATIME", Index(3), "x", Inherited, "f", "on | off"),
    p("devices", "DEVICES", Index(3), "x", Inherited, "fs", "on | off"),
    p("exec", "EXEC", Index(3), "x", Inherited, "fs", "on | off"),
    p("setuid", "SETUID", Index(3), "x", Inherited, "fs", "on | off"),
    p("readonly", "RDONLY", Index(3), "x", Inherited, "fv", "on | off"),
    p("zoned", "ZONED", Index(3), "x", Inherited, "f", "on | off"),
    p("snapdir", "SNAPDIR", Index(8), "x", Inherited, "f", "disabled | hidden | visible"),
    p("aclmode", "ACLMODE", Index(11), "x", Inherited, "f", "discard | groupmask | passthrough | restricted"),
    p(
        "aclinherit",
        "ACLINHERIT",
        Index(13),
        "x",
        Inherited,
        "f",
        "discard | noallow | restricted | passthrough | passthrough-x",
    ),
    p("createtxg", "CREATETXG", Number, "rx", ReadOnly, "fvsb", "<uint64>"),
    p("name", "NAME", Text, "hx", ReadOnly, "fvsb", ""),
    p("canmount", "CANMOUNT", Index(6), "x", Own, "f", "on | off | noauto"),
    p("iscsioptions", "ISCSIOPTIONS", Text, "hx", Inherited, "v", ""),
    p("xattr", "XATTR", Index(3), "x", Inherited, "fs", "on | off | dir | sa"),
    p("numclones", "NUMCLONES", Number, "rh", ReadOnly, "s", ""),
    p("copies", "COPIES", Index(1), "x", Inherited, "fv", "1 | 2 | 3"),
    p("version", "VERSION", Index(7), "x", Own, "fs", "1 | 2 | 3 | 4 | 5 | current"),
    p("utf8only", "UTF8ONLY", Index(3), "x", Once, "fs", "on | off"),
    p("normalization", "NORMALIZATION", Index(6), "x", Once, "fs", "none | formC | formD | formKC | formKD"),
    p("casesensitivity", "CASE", Index(11), "x", Once, "fs", "sensitive | insensitive | mixed"),
    p("vscan", "VSCAN", Index(3), "x", Inherited, "f", "on | off"),
    p("nbmand", "NBMAND", Index(3), "x", Inherited, "fs", "on | off"),
    p("sharesmb", "SHARESMB", Text, "x", Inherited, "f", "on | off | SMB share options"),
    p("refquota", "REFQUOTA", Number, "r", Own, "f", "<size> | none"),
    p("refreservation", "REFRESERV", Number, "r", Own, "fv", "<size> | none"),
    p("guid", "GUID", Number, "rx", ReadOnly, "fvsb", "<uint64>"),
    p("primarycache", "PRIMARYCACHE", Index(8), "x", Inherited, "fvs", "all | none | metadata"),
    p("secondarycache", "SECONDARYCACHE", Index(8), "x", Inherited, "fvs", "all | none | metadata"),
    p("usedbysnapshots", "USEDSNAP", Number, "r", ReadOnly, "fv", "<size>"),
    p("usedbydataset", "USEDDS", Number, "r", ReadOnly, "fv", "<size>"),
    p("usedbychildren", "USEDCHILD", Number, "r", ReadOnly, "fv", "<size>"),
    p("usedbyrefreservation", "USEDREFRESERV", Number, "r", ReadOnly, "fv", "<size>"),
    p("useraccounting", "USERACCOUNTING", Number, "rh", ReadOnly, "fvs", ""),
    p("stmf_sbd_lu", "STMF_SBD_LU", Text, "hx", Inherited, "v", ""),
    p("defer_destroy", "DEFER_DESTROY", Index(3), "x", ReadOnly, "s", "yes | no"),
    p("userrefs", "USERREFS", Number, "r", ReadOnly, "s", "<count>"),
    p("logbias", "LOGBIAS", Index(10), "x", Inherited, "fv", "latency | throughput"),
    p("unique", "UNIQUE", Number, "rh", ReadOnly, "fvs", ""),
    p("objsetid", "OBJSETID", Number, "rx", ReadOnly, "fvs", "<uint64>"),
    p(
        "dedup",
        "DEDUP",
        Index(13),
        "x",
        Inherited,
        "fv",
        "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]",
    ),
    p("mlslabel", "MLSLABEL", Text, "x", Inherited, "fvs", "<sensitivity label>"),
    p("sync", "SYNC", Index(8), "x", Inherited, "fv", "standard | always | disabled"),
    p("dnodesize", "DNSIZE", Index(6), "x", Inherited, "f", "legacy | auto | 1k | 2k | 4k | 8k | 16k"),
    p("refcompressratio", "REFRATIO", Number, "r", ReadOnly, "fvs", "<1.00x or higher if compressed>"),
    p("written", "WRITTEN", Number, "r", ReadOnly, "fvs", "<size>"),
    p("clones", "CLONES", Text, "x", ReadOnly, "s", "<dataset>[,...]"),
    p("logicalused", "LUSED", Number, "r", ReadOnly, "fv", "<size>"),
    p("logicalreferenced", "LREFER", Number, "r", ReadOnly, "fvsb", "<size>"),
    p("inconsistent", "INCONSISTENT", Number, "rh", ReadOnly, "fvs", ""),
    p("volmode", "VOLMODE", Index(7), "x", Inherited, "fv", "default | full | geom | dev | none"),
    p("filesystem_limit", "FSLIMIT", Number, "r", Own, "f", "<count> | none"),
    p("snapshot_limit", "SSLIMIT", Number, "r", Own, "fv", "<count> | none"),
    p("filesystem_count", "FSCOUNT", Number, "r", ReadOnly, "f", "<count>"),
    p("snapshot_count", "SSCOUNT", Number, "r", ReadOnly, "fv", "<count>"),
    p("snapdev", "SNAPDEV", Index(7), "x", Inherited, "fv", "hidden | visible"),
    p("acltype", "ACLTYPE", Index(8), "x", Inherited, "fs", "off | nfsv4 | posix"),
    p("context", "CONTEXT", Text, "x", Own, "fvs", "<selinux context>"),
    p("fscontext", "FSCONTEXT", Text, "x", Own, "fvs", "<selinux fscontext>"),
    p("defcontext", "DEFCONTEXT", Text, "x", Own, "fvs", "<selinux defcontext>"),
    p("rootcontext", "ROOTCONTEXT", Text, "x", Own, "fvs", "<selinux rootcontext>"),
    p("relatime", "RELATIME", Index(3), "x", Inherited, "f", "on | off"),
    p("redundant_metadata", "REDUND_MD", Index(4), "x", Inherited, "fv", "all | most | some | none"),
    p("overlay", "OVERLAY", Index(3), "x", Inherited, "f", "on | off"),
    p("prevsnap", "PREVSNAP", Text, "hx", ReadOnly, "fv", ""),
    p("receive_resume_token", "RESUMETOK", Text, "x", ReadOnly, "fv", "<string token>"),
    p(
        "encryption",
        "ENCRYPTION",
        Index(11),
        "x",
        Once,
        "fvs",
        "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm",
    ),
    p("keylocation", "KEYLOCATION", Text, "x", Own, "fv", "prompt | <file URI> | <https URL> | <http URL>"),
    p("keyformat", "KEYFORMAT", Index(10), "x", OnceOwn, "fv", "none | raw | hex | passphrase"),
    p("pbkdf2salt", "PBKDF2SALT", Number, "rh", OnceOwn, "fv", ""),
    p("pbkdf2iters", "PBKDF2ITERS", Number, "rx", OnceOwn, "fv", "<iters>"),
    p("encryptionroot", "ENCROOT", Text, "x", ReadOnly, "fvs", "<filesystem | volume>"),
    p("keyguid", "KEYGUID", Number, "rhx", ReadOnly, "fvs", ""),
    p("keystatus", "KEYSTATUS", Index(11), "x", ReadOnly, "fvs", "none | unavailable | available"),
    p("remaptxg", "REMAPTXG", Number, "rh", ReadOnly, "fvs", ""),
    p(
        "special_small_blocks",
        "SPECIAL_SMALL_BLOCKS",
        Number,
        "r",
        Inherited,
        "f",
        "zero or 512 to 1M, power of 2",
    ),
    p("ivsetguid", "IVSETGUID", Number, "rhx", ReadOnly, "fvsb", ""),
    p("redacted", "REDACTED", Number, "rh", ReadOnly, "fvs", ""),
    p("redact_snaps", "RSNAPS", Text, "x", ReadOnly, "fvsb", "<snapshot>[,...]"),
    p("snapshots_changed", "SNAPSHOTS_CHANGED", Number, "x", ReadOnly, "fv", "<date>"),
    p("prefetch", "PREFETCH", Index(8), "x", Inherited, "fvs", "none | metadata | all"),
    p("volthreading", "zvol threading", Index(3), "x", Own, "v", "on | off"),
    p("direct", "DIRECT", Index(8), "x", Inherited, "f", "disabled | standard | always"),
    p("longname", "LONGNAME", Index(3), "x", Inherited, "f", "on | off"),
];

/// Pool properties (`zpool_prop_t`).
pub static POOL: &[PropDesc] = &[
    p("name", "NAME", Text, "hx", ReadOnly, "", ""),
    p("size", "SIZE", Number, "r", ReadOnly, "", "<size>"),
    p("capacity", "CAP", Number, "r", ReadOnly, "", "<percent>"),
    p("altroot", "ALTROOT", Text, "x", Own, "", "<path>"),
    p("health", "HEALTH", Number, "r", ReadOnly, "", "<state>"),
    p("guid", "GUID", Number, "rx", ReadOnly, "", "<guid>"),
    p("version", "VERSION", Number, "r", Own, "", "<version>"),
    p("bootfs", "BOOTFS", Text, "x", Own, "", "<filesystem>"),
    p("delegation", "DELEGATION", Index(3), "x", Own, "", "on | off"),
    p("autoreplace", "REPLACE", Index(3), "x", Own, "", "on | off"),
    p("cachefile", "CACHEFILE", Text, "x", Own, "", "<file> | none"),
    p("failmode", "FAILMODE", Index(8), "x", Own, "", "wait | continue | panic"),
    p("listsnapshots", "LISTSNAPS", Index(3), "x", Own, "", "on | off"),
    p("autoexpand", "EXPAND", Index(3), "x", Own, "", "on | off"),
    p("dedupditto", "DEDUPDITTO", Number, "rh", Own, "", ""),
    p("dedupratio", "DEDUP", Number, "r", ReadOnly, "", "<1.00x or higher if deduped>"),
    p("free", "FREE", Number, "r", ReadOnly, "", "<size>"),
    p("allocated", "ALLOC", Number, "r", ReadOnly, "", "<size>"),
    p("readonly", "RDONLY", Index(3), "x", Own, "", "on | off"),
    p("ashift", "ASHIFT", Number, "r", Own, "", "<ashift, 9-16, or 0=default>"),
    p("comment", "COMMENT", Text, "x", Own, "", "<comment-string>"),
    p("expandsize", "EXPANDSZ", Number, "r", ReadOnly, "", "<size>"),
    p("freeing", "FREEING", Number, "r", ReadOnly, "", "<size>"),
    p("fragmentation", "FRAG", Number, "r", ReadOnly, "", "<percent>"),
    p("leaked", "LEAKED", Number, "r", ReadOnly, "", "<size>"),
    p("maxblocksize", "MAXBLOCKSIZE", Number, "rh", ReadOnly, "", ""),
    p("tname", "TNAME", Text, "hx", Once, "", ""),
    p("maxdnodesize", "MAXDNODESIZE", Number, "rh", ReadOnly, "", ""),
    p("multihost", "MULTIHOST", Index(3), "x", Own, "", "on | off"),
    p("checkpoint", "CKPOINT", Number, "r", ReadOnly, "", "<size>"),
    p("load_guid", "LOAD_GUID", Number, "rx", ReadOnly, "", "<load_guid>"),
    p("autotrim", "AUTOTRIM", Index(3), "x", Own, "", "on | off"),
    p("compatibility", "COMPATIBILITY", Text, "x", Own, "", "<file[,file...]> | off | legacy"),
    p("bcloneused", "BCLONE_USED", Number, "r", ReadOnly, "", "<size>"),
    p("bclonesaved", "BCLONE_SAVED", Number, "r", ReadOnly, "", "<size>"),
    p("bcloneratio", "BCLONE_RATIO", Number, "r", ReadOnly, "", "<1.00x or higher if cloned>"),
    p("dedup_table_size", "DDTSIZE", Number, "r", ReadOnly, "", "<size>"),
    p("dedup_table_quota", "DDTQUOTA", Number, "r", Own, "", "<size>"),
    p("dedupcached", "DEDUPCACHED", Number, "rh", ReadOnly, "", ""),
    p("last_scrubbed_txg", "LAST_SCRUBBED_TXG", Number, "r", ReadOnly, "", "<txg>"),
];

/// Vdev properties (`vdev_prop_t`).
pub static VDEV: &[PropDesc] = &[
    p("name", "NAME", Text, "hx", ReadOnly, "", ""),
    p("capacity", "CAP", Number, "r", ReadOnly, "", "<size>"),
    p("state", "STATE", Number, "r", ReadOnly, "", "<state>"),
    p("guid", "GUID", Number, "rx", ReadOnly, "", "<guid>"),
    p("asize", "ASIZE", Number, "r", ReadOnly, "", "<asize>"),
    p("psize", "PSIZE", Number, "r", ReadOnly, "", "<psize>"),
    p("ashift", "ASHIFT", Number, "r", ReadOnly, "", "<ashift>"),
    p("size", "SIZE", Number, "r", ReadOnly, "", "<size>"),
    p("free", "FREE", Number, "r", ReadOnly, "", "<size>"),
    p("allocated", "ALLOC", Number, "r", ReadOnly, "", "<size>"),
    p("comment", "COMMENT", Text, "x", Own, "", "<comment-string>"),
    p("expandsize", "EXPANDSZ", Number, "r", ReadOnly, "", "<size>"),
    p("fragmentation", "FRAG", Number, "r", ReadOnly, "", "<percent>"),
    p("bootsize", "BOOTSIZE", Number, "r", ReadOnly, "", "<size>"),
    p("parity", "PARITY", Number, "r", ReadOnly, "", "<parity>"),
    p("path", "PATH", Text, "x", Own, "", "<device-path>"),
    p("devid", "DEVID", Text, "x", ReadOnly, "", "<devid>"),
    p("physpath", "PHYSPATH", Text, "x", ReadOnly, "", "<physpath>"),
    p("encpath", "ENCPATH", Text, "x", ReadOnly, "", "<encpath>"),
    p("fru", "FRU", Text, "x", ReadOnly, "", "<fru>"),
    p("parent", "PARENT", Text, "x", ReadOnly, "", "<parent>"),
    p("children", "CHILDREN", Text, "x", ReadOnly, "", "<child[,...]>"),
    p("numchildren", "NUMCHILD", Number, "r", ReadOnly, "", "<number-of-children>"),
    p("read_errors", "RDERR", Number, "r", ReadOnly, "", "<errors>"),
    p("write_errors", "WRERR", Number, "r", ReadOnly, "", "<errors>"),
    p("checksum_errors", "CKERR", Number, "r", ReadOnly, "", "<errors>"),
    p("initialize_errors", "INITERR", Number, "r", ReadOnly, "", "<errors>"),
    p("null_ops", "NULLOP", Number, "r", ReadOnly, "", "<operations>"),
    p("read_ops", "READOP", Number, "r", ReadOnly, "", "<operations>"),
    p("write_ops", "WRITEOP", Number, "r", ReadOnly, "", "<operations>"),
    p("free_ops", "FREEOP", Number, "r", ReadOnly, "", "<operations>"),
    p("claim_ops", "CLAIMOP", Number, "r", ReadOnly, "", "<operations>"),
    p("trim_ops", "TRIMOP", Number, "r", ReadOnly, "", "<operations>"),
    p("null_bytes", "NULLBYTE", Number, "r", ReadOnly, "", "<bytes>"),
    p("read_bytes", "READBYTE", Number, "r", ReadOnly, "", "<bytes>"),
    p("write_bytes", "WRITEBYTE", Number, "r", ReadOnly, "", "<bytes>"),
    p("free_bytes", "FREEBYTE", Number, "r", ReadOnly, "", "<bytes>"),
    p("claim_bytes", "CLAIMBYTE", Number, "r", ReadOnly, "", "<bytes>"),
    p("trim_bytes", "TRIMBYTE", Number, "r", ReadOnly, "", "<bytes>"),
    p("removing", "REMOVING", Index(3), "x", ReadOnly, "", "on | off"),
    p("allocating", "ALLOCATING", Index(3), "x", Own, "", "on | off"),
    p("failfast", "FAILFAST", Index(3), "x", Own, "", "on | off"),
    p("checksum_n", "CKSUM_N", Number, "r", Own, "", "<events>"),
    p("checksum_t", "CKSUM_T", Number, "r", Own, "", "<seconds>"),
    p("io_n", "IO_N", Number, "r", Own, "", "<events>"),
    p("io_t", "IO_T", Number, "r", Own, "", "<seconds>"),
    p("raidz_expanding", "RAIDZ_EXPANDING", Index(3), "x", ReadOnly, "", "on | off"),
    p("slow_io_n", "SLOW_IO_N", Number, "r", Own, "", "<events>"),
    p("slow_io_t", "SLOW_IO_T", Number, "r", Own, "", "<seconds>"),
    p("trim_support", "TRIMSUP", Index(3), "x", ReadOnly, "", "on | off"),
    p("trim_errors", "TRIMERR", Number, "r", ReadOnly, "", "<errors>"),
    p("slow_ios", "SLOW", Number, "r", ReadOnly, "", "<slowios>"),
];
