//! Native properties: what they are called, what they may be, how their values read.
//!
//! # Theory
//! [`PROPS`] is a table of facts; [`text`] turns values to text as `zfs get` prints them; [`value`] finds the stored
//! values of a dataset and where they come from.

pub mod parse;
mod share;
mod table;
pub mod text;
pub mod value;

pub use table::{PROPS, Prop};
pub use value::{Property, Source, Value};

/// What a dataset is, as a bit each (`zfs_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A POSIX file system.
    Filesystem = 1,
    /// A snapshot of either.
    Snapshot = 2,
    /// A block volume.
    Volume = 4,
    /// A bookmark.
    Bookmark = 16,
}

impl Kind {
    /// The name that the `type` property shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Snapshot => "snapshot",
            Self::Volume => "volume",
            Self::Bookmark => "bookmark",
        }
    }
}

/// Names of an index property's values; the first name of a number is the one that is shown.
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

/// Who may set a property, and whether children inherit it (`zprop_attr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropAttr {
    /// Settable, not inherited.
    Default,
    /// Computed.
    Readonly,
    /// Settable and inherited.
    Inherit,
    /// Set at creation.
    Onetime,
    /// Set at creation, with a default.
    OnetimeDefault,
}

/// A property of the table (`zprop_desc_t`).
#[derive(Debug, Clone, Copy)]
pub struct PropDesc {
    /// Which it is.
    pub id: Prop,
    /// Its name.
    pub name: &'static str,
    /// How its value is stored.
    pub kind: PropKind,
    /// Its default, if it is a number or an index.
    pub default: u64,
    /// Its default, if it is a string that has one.
    pub default_str: Option<&'static str>,
    /// Who sets it and who inherits it.
    pub attr: PropAttr,
    /// For which [`Kind`]s it is valid, as bits.
    pub types: u8,
    /// Head of its column in `zfs list`.
    pub column: &'static str,
    /// What it may be, as usage messages say.
    pub values: &'static str,
    /// Names of an index property's values; empty for others.
    pub index: Index,
    /// Hidden properties can be asked for by name only.
    pub visible: bool,
    /// Whether its column is set right.
    pub right_align: bool,
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
        }
    }

    #[allow(clippy::too_many_arguments)] // a row of the table
    const fn number(
        id: Prop,
        name: &'static str,
        attr: PropAttr,
        types: u8,
        column: &'static str,
        values: &'static str,
        default: u64,
    ) -> Self {
        let mut d = Self::base(id, name, attr, types, column, values);
        d.default = default;
        d
    }

    #[allow(clippy::too_many_arguments)] // a row of the table
    const fn index(
        id: Prop,
        name: &'static str,
        attr: PropAttr,
        types: u8,
        column: &'static str,
        values: &'static str,
        default: u64,
        index: Index,
    ) -> Self {
        let mut d = Self::number(id, name, attr, types, column, values, default);
        d.kind = PropKind::Index;
        d.index = index;
        d.right_align = false;
        d
    }

    #[allow(clippy::too_many_arguments)] // a row of the table
    const fn string(
        id: Prop,
        name: &'static str,
        attr: PropAttr,
        types: u8,
        column: &'static str,
        values: &'static str,
        default: Option<&'static str>,
    ) -> Self {
        let mut d = Self::base(id, name, attr, types, column, values);
        d.kind = PropKind::String;
        d.default_str = default;
        d.right_align = false;
        d
    }

    #[allow(clippy::too_many_arguments)] // a row of the table
    const fn hidden(
        id: Prop,
        name: &'static str,
        attr: PropAttr,
        types: u8,
        column: &'static str,
        values: &'static str,
        number: bool,
    ) -> Self {
        let mut d = Self::base(id, name, attr, types, column, values);
        if !number {
            d.kind = PropKind::String;
        }
        d.visible = false;
        d.right_align = number;
        d
    }

    /// True if it is computed or fixed at creation (`zfs_prop_readonly`).
    pub fn is_readonly(&self) -> bool {
        !matches!(self.attr, PropAttr::Default | PropAttr::Inherit)
    }

    /// True if it is fixed at creation (`zfs_prop_setonce`).
    pub fn is_setonce(&self) -> bool {
        matches!(self.attr, PropAttr::Onetime | PropAttr::OnetimeDefault)
    }

    /// True if children inherit it (`zfs_prop_inheritable`).
    pub fn is_inheritable(&self) -> bool {
        matches!(self.attr, PropAttr::Inherit | PropAttr::Onetime)
    }

    /// True if datasets of this kind have it (`zfs_prop_valid_for_type`).
    pub fn is_valid_for(&self, kind: Kind) -> bool {
        self.types & kind as u8 != 0
    }

    /// The name of an index value (`zfs_prop_index_to_string`).
    pub fn index_name(&self, value: u64) -> Option<&'static str> {
        self.index.iter().find(|(_, v)| *v == value).map(|(n, _)| *n)
    }

    /// The value that a name stands for (`zfs_prop_string_to_index`).
    pub fn index_value(&self, name: &str) -> Option<u64> {
        self.index.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
}

impl Prop {
    /// Its row of the table.
    pub fn desc(self) -> &'static PropDesc {
        &PROPS[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.desc().name
    }

    /// The property of a name, or of the head of its column in lower case (`zfs_name_to_prop`).
    pub fn by_name(name: &str) -> Option<Prop> {
        let by = |p: &&PropDesc| p.name == name || p.column.to_ascii_lowercase() == name;
        PROPS.iter().find(|p| p.name == name).or_else(|| PROPS.iter().find(by)).map(|p| p.id)
    }
}

/// True for names of user properties: they have a colon (`zfs_prop_user`).
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
        && name
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_' | b'.' | b':'))
}

#[cfg(test)]
mod tests;
