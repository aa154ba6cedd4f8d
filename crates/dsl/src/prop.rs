//! Native properties: their names, their values, and how values are stored and printed.
//!
//! # Theory
//! [`PROPS`] is a table of facts, and the only one: parsing, printing, the commands' columns and
//! usage texts, shell completions and the manual page read it. [`text`] prints values as `zfs get`
//! does. [`value`] finds the values of a dataset and their sources.

pub mod parse;
mod share;
mod table;
pub mod text;
pub mod value;

pub use table::{PROPS, Prop};
pub use value::{OwnValues, Property, Source, Value};

/// Longest value of a property, its NUL included (`ZFS_MAXPROPLEN`).
pub const ZFS_MAXPROPLEN: usize = 8192;
/// Longest name of a property, its NUL included (`ZAP_MAXNAMELEN`).
pub(crate) const ZAP_MAXNAMELEN: usize = 256;

/// The kind of a dataset, as a bit (`zfs_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A POSIX file system.
    Filesystem = 1,
    /// A snapshot of a file system or volume.
    Snapshot = 2,
    /// A block volume.
    Volume = 4,
    /// A bookmark.
    Bookmark = 16,
}

impl Kind {
    /// The value of the `type` property.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Snapshot => "snapshot",
            Self::Volume => "volume",
            Self::Bookmark => "bookmark",
        }
    }
}

/// Names of an index property's values; of several names for a number, the first is shown.
pub type Index = &'static [(&'static str, u64)];

/// How a property's value is stored (`zprop_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropKind {
    /// A number.
    Number,
    /// A string.
    String,
    /// A number that stands for a name.
    Index,
}

/// How a property can be set, and whether children inherit it (`zprop_attr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropAttr {
    /// It can be set, and is not inherited.
    Default,
    /// It is computed.
    Readonly,
    /// It can be set, and is inherited.
    Inherit,
    /// It is set at creation.
    Onetime,
    /// It is set at creation, and has a default.
    OnetimeDefault,
}

/// A property of the table (`zprop_desc_t`).
#[derive(Debug, Clone, Copy)]
pub struct PropDesc {
    /// The property.
    pub id: Prop,
    /// The name (`zfs_prop_to_name`).
    pub name: &'static str,
    /// How its value is stored.
    pub kind: PropKind,
    /// The default of a number or an index (`zfs_prop_default_numeric`).
    pub default: u64,
    /// The default of a string that has one (`zfs_prop_default_string`).
    pub default_str: Option<&'static str>,
    /// How it is set and inherited.
    pub attr: PropAttr,
    /// The [`Kind`]s that have it, as bits.
    pub types: u8,
    /// The head of its column in `zfs list` (`zfs_prop_column_name`).
    pub column: &'static str,
    /// The allowed values, as usage messages print them (`zfs_prop_values`).
    pub values: &'static str,
    /// Names of an index property's values; empty for others.
    pub index: Index,
    /// Whether lists of all properties show it (`zfs_prop_visible`).
    pub visible: bool,
    /// Whether its column is aligned right (`zfs_prop_align_right`).
    pub right_align: bool,
    /// Whether its column is as wide as its widest value, even without `-p` (`zfs_prop_width`).
    pub flex: bool,
    /// Its meaning, in the manual page `zfsprops`; empty if it is not visible.
    pub help: &'static str,
    /// Whether it has an effect; otherwise it is stored and shown.
    pub effective: bool,
}

impl PropDesc {
    const fn base(
        id: Prop,
        name: &'static str,
        attr: PropAttr,
        types: u8,
        column: &'static str,
        values: &'static str,
    ) -> Self {
        Self {
            id,
            name,
            kind: PropKind::Number,
            default: 0,
            default_str: None,
            attr,
            types,
            column,
            values,
            index: &[],
            visible: true,
            right_align: true,
            flex: false,
            help: "",
            effective: true,
        }
    }

    const fn with_help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn without_effect(mut self) -> Self {
        self.effective = false;
        self
    }

    const fn number(mut self, default: u64) -> Self {
        self.default = default;
        self
    }

    /// A number that is not a quantity: all of its digits are printed.
    const fn id(mut self, default: u64) -> Self {
        self.default = default;
        self.flex = true;
        self
    }

    /// Seconds since 1970.
    const fn date(self, default: u64) -> Self {
        let mut d = self.id(default);
        d.right_align = false;
        d
    }

    const fn index(mut self, default: u64, index: Index) -> Self {
        self.kind = PropKind::Index;
        self.default = default;
        self.index = index;
        (self.right_align, self.flex) = (false, true);
        self
    }

    const fn string(mut self, default: Option<&'static str>) -> Self {
        self.kind = PropKind::String;
        self.default_str = default;
        (self.right_align, self.flex) = (false, true);
        self
    }

    const fn hidden(mut self, number: bool) -> Self {
        if !number {
            self.kind = PropKind::String;
        }
        self.visible = false;
        (self.right_align, self.flex) = (number, !number);
        self
    }

    const fn hidden_id(self) -> Self {
        let mut d = self.hidden(true);
        d.flex = true;
        d
    }

    /// Whether it is a number that is not a quantity, such as a guid.
    pub(crate) fn is_id(&self) -> bool {
        self.kind == PropKind::Number && self.right_align && self.flex
    }

    /// Whether it is computed or fixed at creation (`zfs_prop_readonly`).
    pub fn is_readonly(&self) -> bool {
        !matches!(self.attr, PropAttr::Default | PropAttr::Inherit)
    }

    /// Whether it is fixed at creation (`zfs_prop_setonce`).
    pub fn is_setonce(&self) -> bool {
        matches!(self.attr, PropAttr::Onetime | PropAttr::OnetimeDefault)
    }

    /// Whether children inherit it (`zfs_prop_inheritable`).
    pub fn is_inheritable(&self) -> bool {
        matches!(self.attr, PropAttr::Inherit | PropAttr::Onetime)
    }

    /// Whether datasets of this kind have it (`zfs_prop_valid_for_type`).
    pub fn is_valid_for(&self, kind: Kind) -> bool {
        self.types & kind as u8 != 0
    }

    /// The name of an index value (`zfs_prop_index_to_string`).
    pub fn index_name(&self, value: u64) -> Option<&'static str> {
        self.index.iter().find(|(_, v)| *v == value).map(|(n, _)| *n)
    }

    /// The value of a name (`zfs_prop_string_to_index`).
    pub fn index_value(&self, name: &str) -> Option<u64> {
        self.index.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
}

impl Prop {
    /// The property's row of the table.
    pub fn desc(self) -> &'static PropDesc {
        &PROPS[self as usize]
    }

    /// The property's name (`zfs_prop_to_name`).
    pub fn name(self) -> &'static str {
        self.desc().name
    }

    /// The property of a name, or of a column's head in lower case (`zfs_name_to_prop`).
    pub fn by_name(name: &str) -> Option<Prop> {
        let by = |p: &&PropDesc| p.name == name || p.column.to_ascii_lowercase() == name;
        PROPS.iter().find(|p| p.name == name).or_else(|| PROPS.iter().find(by)).map(|p| p.id)
    }
}

/// Whether this can name a user property: such names have a colon (`zfs_prop_user`).
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
        && name
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_' | b'.' | b':'))
}

#[cfg(test)]
mod tests;
