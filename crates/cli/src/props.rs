//! What commands need to know about properties to show them: names, headers, widths, and the kinds
//! of dataset that have them.
//!
//! The values come from the engine. The properties of datasets have their table there
//! ([`dsl::prop::PROPS`]). The other tables are the display side of `zpool_prop.c`, in the order of
//! its enumerations.

use Edit::{Inherited, Once, OnceOwn, Own, ReadOnly};
use Kind::{Index, Number, Text};
use dsl::prop::{PROPS, PropAttr, PropKind};

pub use dsl::prop::is_user_property as is_user;

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
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// The kinds of dataset that have it, as bits of [`dsl::Kind`]; 0 for pools and vdevs.
    pub types: u8,
    /// The values that it may be set to, as usage texts show them.
    pub values: &'static str,
}

const fn p(
    name: &'static str,
    column: &'static str,
    kind: Kind,
    flags: &'static str,
    edit: Edit,
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
        types: 0,
        values,
    }
}

/// The length of the longest name.
const fn longest(index: dsl::prop::Index) -> usize {
    let (mut most, mut i) = (0, 0);
    while i < index.len() {
        if index[i].0.len() > most {
            most = index[i].0.len();
        }
        i += 1;
    }
    most
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
        let kind = match kind {
            D::Filesystem => dsl::Kind::Filesystem,
            D::Volume => dsl::Kind::Volume,
            D::Snapshot => dsl::Kind::Snapshot,
            D::Bookmark => dsl::Kind::Bookmark,
        };
        self.types & kind as u8 != 0
    }

    const fn of_dataset(row: &dsl::prop::PropDesc) -> Self {
        Self {
            name: row.name,
            column: row.column,
            kind: match row.kind {
                PropKind::Number => Number,
                PropKind::String => Text,
                PropKind::Index => Index(longest(row.index)),
            },
            right: row.right_align,
            hidden: !row.visible,
            flex: row.flex,
            edit: match row.attr {
                PropAttr::Readonly => ReadOnly,
                PropAttr::Default => Own,
                PropAttr::Inherit => Inherited,
                PropAttr::Onetime => Once,
                PropAttr::OnetimeDefault => OnceOwn,
            },
            types: row.types,
            values: row.values,
        }
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

/// Dataset properties (`zfs_prop_t`): the table of `dsl`, as commands show it.
pub static DATASET: &[PropDesc] = &datasets();

const fn datasets() -> [PropDesc; PROPS.len()] {
    let mut all = [p("", "", Text, "", ReadOnly, ""); PROPS.len()];
    let mut i = 0;
    while i < PROPS.len() {
        all[i] = PropDesc::of_dataset(&PROPS[i]);
        i += 1;
    }
    all
}

/// Pool properties (`zpool_prop_t`).
pub static POOL: &[PropDesc] = &[
    p("name", "NAME", Text, "hx", ReadOnly, ""),
    p("size", "SIZE", Number, "r", ReadOnly, "<size>"),
    p("capacity", "CAP", Number, "r", ReadOnly, "<percent>"),
    p("altroot", "ALTROOT", Text, "x", Own, "<path>"),
    p("health", "HEALTH", Number, "r", ReadOnly, "<state>"),
    p("guid", "GUID", Number, "rx", ReadOnly, "<guid>"),
    p("version", "VERSION", Number, "r", Own, "<version>"),
    p("bootfs", "BOOTFS", Text, "x", Own, "<filesystem>"),
    p("delegation", "DELEGATION", Index(3), "x", Own, "on | off"),
    p("autoreplace", "REPLACE", Index(3), "x", Own, "on | off"),
    p("cachefile", "CACHEFILE", Text, "x", Own, "<file> | none"),
    p("failmode", "FAILMODE", Index(8), "x", Own, "wait | continue | panic"),
    p("listsnapshots", "LISTSNAPS", Index(3), "x", Own, "on | off"),
    p("autoexpand", "EXPAND", Index(3), "x", Own, "on | off"),
    p("dedupditto", "DEDUPDITTO", Number, "rh", Own, ""),
    p("dedupratio", "DEDUP", Number, "r", ReadOnly, "<1.00x or higher if deduped>"),
    p("free", "FREE", Number, "r", ReadOnly, "<size>"),
    p("allocated", "ALLOC", Number, "r", ReadOnly, "<size>"),
    p("readonly", "RDONLY", Index(3), "x", Own, "on | off"),
    p("ashift", "ASHIFT", Number, "r", Own, "<ashift, 9-16, or 0=default>"),
    p("comment", "COMMENT", Text, "x", Own, "<comment-string>"),
    p("expandsize", "EXPANDSZ", Number, "r", ReadOnly, "<size>"),
    p("freeing", "FREEING", Number, "r", ReadOnly, "<size>"),
    p("fragmentation", "FRAG", Number, "r", ReadOnly, "<percent>"),
    p("leaked", "LEAKED", Number, "r", ReadOnly, "<size>"),
    p("maxblocksize", "MAXBLOCKSIZE", Number, "rh", ReadOnly, ""),
    p("tname", "TNAME", Text, "hx", Once, ""),
    p("maxdnodesize", "MAXDNODESIZE", Number, "rh", ReadOnly, ""),
    p("multihost", "MULTIHOST", Index(3), "x", Own, "on | off"),
    p("checkpoint", "CKPOINT", Number, "r", ReadOnly, "<size>"),
    p("load_guid", "LOAD_GUID", Number, "rx", ReadOnly, "<load_guid>"),
    p("autotrim", "AUTOTRIM", Index(3), "x", Own, "on | off"),
    p("compatibility", "COMPATIBILITY", Text, "x", Own, "<file[,file...]> | off | legacy"),
    p("bcloneused", "BCLONE_USED", Number, "r", ReadOnly, "<size>"),
    p("bclonesaved", "BCLONE_SAVED", Number, "r", ReadOnly, "<size>"),
    p("bcloneratio", "BCLONE_RATIO", Number, "r", ReadOnly, "<1.00x or higher if cloned>"),
    p("dedup_table_size", "DDTSIZE", Number, "r", ReadOnly, "<size>"),
    p("dedup_table_quota", "DDTQUOTA", Number, "r", Own, "<size>"),
    p("dedupcached", "DEDUPCACHED", Number, "rh", ReadOnly, ""),
    p("last_scrubbed_txg", "LAST_SCRUBBED_TXG", Number, "r", ReadOnly, "<txg>"),
];

/// Vdev properties (`vdev_prop_t`).
pub static VDEV: &[PropDesc] = &[
    p("name", "NAME", Text, "hx", ReadOnly, ""),
    p("capacity", "CAP", Number, "r", ReadOnly, "<size>"),
    p("state", "STATE", Number, "r", ReadOnly, "<state>"),
    p("guid", "GUID", Number, "rx", ReadOnly, "<guid>"),
    p("asize", "ASIZE", Number, "r", ReadOnly, "<asize>"),
    p("psize", "PSIZE", Number, "r", ReadOnly, "<psize>"),
    p("ashift", "ASHIFT", Number, "r", ReadOnly, "<ashift>"),
    p("size", "SIZE", Number, "r", ReadOnly, "<size>"),
    p("free", "FREE", Number, "r", ReadOnly, "<size>"),
    p("allocated", "ALLOC", Number, "r", ReadOnly, "<size>"),
    p("comment", "COMMENT", Text, "x", Own, "<comment-string>"),
    p("expandsize", "EXPANDSZ", Number, "r", ReadOnly, "<size>"),
    p("fragmentation", "FRAG", Number, "r", ReadOnly, "<percent>"),
    p("bootsize", "BOOTSIZE", Number, "r", ReadOnly, "<size>"),
    p("parity", "PARITY", Number, "r", ReadOnly, "<parity>"),
    p("path", "PATH", Text, "x", Own, "<device-path>"),
    p("devid", "DEVID", Text, "x", ReadOnly, "<devid>"),
    p("physpath", "PHYSPATH", Text, "x", ReadOnly, "<physpath>"),
    p("encpath", "ENCPATH", Text, "x", ReadOnly, "<encpath>"),
    p("fru", "FRU", Text, "x", ReadOnly, "<fru>"),
    p("parent", "PARENT", Text, "x", ReadOnly, "<parent>"),
    p("children", "CHILDREN", Text, "x", ReadOnly, "<child[,...]>"),
    p("numchildren", "NUMCHILD", Number, "r", ReadOnly, "<number-of-children>"),
    p("read_errors", "RDERR", Number, "r", ReadOnly, "<errors>"),
    p("write_errors", "WRERR", Number, "r", ReadOnly, "<errors>"),
    p("checksum_errors", "CKERR", Number, "r", ReadOnly, "<errors>"),
    p("initialize_errors", "INITERR", Number, "r", ReadOnly, "<errors>"),
    p("null_ops", "NULLOP", Number, "r", ReadOnly, "<operations>"),
    p("read_ops", "READOP", Number, "r", ReadOnly, "<operations>"),
    p("write_ops", "WRITEOP", Number, "r", ReadOnly, "<operations>"),
    p("free_ops", "FREEOP", Number, "r", ReadOnly, "<operations>"),
    p("claim_ops", "CLAIMOP", Number, "r", ReadOnly, "<operations>"),
    p("trim_ops", "TRIMOP", Number, "r", ReadOnly, "<operations>"),
    p("null_bytes", "NULLBYTE", Number, "r", ReadOnly, "<bytes>"),
    p("read_bytes", "READBYTE", Number, "r", ReadOnly, "<bytes>"),
    p("write_bytes", "WRITEBYTE", Number, "r", ReadOnly, "<bytes>"),
    p("free_bytes", "FREEBYTE", Number, "r", ReadOnly, "<bytes>"),
    p("claim_bytes", "CLAIMBYTE", Number, "r", ReadOnly, "<bytes>"),
    p("trim_bytes", "TRIMBYTE", Number, "r", ReadOnly, "<bytes>"),
    p("removing", "REMOVING", Index(3), "x", ReadOnly, "on | off"),
    p("allocating", "ALLOCATING", Index(3), "x", Own, "on | off"),
    p("failfast", "FAILFAST", Index(3), "x", Own, "on | off"),
    p("checksum_n", "CKSUM_N", Number, "r", Own, "<events>"),
    p("checksum_t", "CKSUM_T", Number, "r", Own, "<seconds>"),
    p("io_n", "IO_N", Number, "r", Own, "<events>"),
    p("io_t", "IO_T", Number, "r", Own, "<seconds>"),
    p("raidz_expanding", "RAIDZ_EXPANDING", Index(3), "x", ReadOnly, "on | off"),
    p("slow_io_n", "SLOW_IO_N", Number, "r", Own, "<events>"),
    p("slow_io_t", "SLOW_IO_T", Number, "r", Own, "<seconds>"),
    p("trim_support", "TRIMSUP", Index(3), "x", ReadOnly, "on | off"),
    p("trim_errors", "TRIMERR", Number, "r", ReadOnly, "<errors>"),
    p("slow_ios", "SLOW", Number, "r", ReadOnly, "<slowios>"),
];
