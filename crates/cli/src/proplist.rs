//! The columns of lists, and the values of properties in JSON.

use api::{Dataset, Pool, Source};

use crate::cx::Stop;
use crate::json::Object;
use crate::props::{self, PropDesc};

/// The table of properties that a list uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Datasets.
    Dataset,
    /// Pools.
    Pool,
    /// Vdevs.
    Vdev,
}

impl Table {
    fn props(self) -> &'static [PropDesc] {
        match self {
            Self::Dataset => props::DATASET,
            Self::Pool => props::POOL,
            Self::Vdev => props::VDEV,
        }
    }

    fn takes(self, name: &str) -> bool {
        match self {
            Self::Dataset => props::is_user(name) || props::is_userquota(name) || props::is_written(name),
            Self::Pool => {
                props::is_user(name) || name.starts_with("feature@") || name.starts_with("unsupported@")
            }
            Self::Vdev => props::is_user(name),
        }
    }
}

/// A column of a list: a property and its width (`zprop_list_t`).
#[derive(Debug, Clone)]
pub struct Column {
    /// The native property, or the name of a property that is not native.
    pub what: Result<&'static PropDesc, String>,
    /// The width in characters.
    pub width: usize,
    /// The width of received values.
    pub received_width: usize,
    /// Whether the column is here because the user requested all properties.
    pub of_all: bool,
}

impl Column {
    fn native(desc: &'static PropDesc, of_all: bool) -> Self {
        Self { what: Ok(desc), width: desc.width(), received_width: 0, of_all }
    }

    /// A column of a property that is not native.
    pub fn other(name: &str, of_all: bool) -> Self {
        Self { width: name.len(), what: Err(name.to_owned()), received_width: 0, of_all }
    }

    /// The property's name.
    pub fn name(&self) -> &str {
        match &self.what {
            Ok(d) => d.name,
            Err(name) => name,
        }
    }

    /// The header: the native property's own, or the property's name in capitals.
    pub fn header(&self) -> String {
        match &self.what {
            Ok(d) => d.column.to_owned(),
            Err(name) => name.to_ascii_uppercase(),
        }
    }

    /// Whether the column is aligned to the right.
    pub fn right(&self) -> bool {
        match &self.what {
            Ok(d) => d.right,
            Err(name) => props::is_userquota(name) || props::is_written(name),
        }
    }

    /// Makes the column as wide as a value. Columns of fixed width grow only for exact values.
    pub fn widen(&mut self, value: &str, exact: bool) {
        let grows = match &self.what {
            Ok(d) => d.flex || exact,
            Err(_) => true,
        };
        if grows {
            self.width = self.width.max(value.chars().count());
        }
    }
}

/// Reads a list of properties: `-o` (`zprop_get_list`).
///
/// An empty result stands for all properties, until the list is expanded.
///
/// # Errors
/// * [`Stop::Usage`]: the list is empty, or the table has no property of a name.
pub fn parse(table: Table, list: &str) -> Result<Vec<Column>, Stop> {
    if list == "all" {
        return Ok(Vec::new());
    }
    if list.is_empty() {
        return Err(Stop::usage("bad property list: no properties specified\n"));
    }
    const SPACE: [&str; 7] = [
        "name",
        "avail",
        "used",
        "usedbysnapshots",
        "usedbydataset",
        "usedbyrefreservation",
        "usedbychildren",
    ];
    let mut columns = Vec::new();
    for word in list.split(',') {
        let words: &[&str] = if word == "space" { &SPACE } else { &[word] };
        for word in words {
            columns.push(match props::find(table.props(), word) {
                Some(desc) => Column::native(desc, false),
                None if table.takes(word) => Column::other(word, false),
                None => return Err(Stop::usage(format!("bad property list: invalid property '{word}'\n"))),
            });
        }
    }
    Ok(columns)
}

fn all(table: Table) -> Vec<Column> {
    let name = props::find(table.props(), "name").expect("each table has a name");
    std::iter::once(name)
        .chain(table.props().iter().filter(|p| !p.hidden))
        .map(|d| Column::native(d, true))
        .collect()
}

/// Replaces an empty list with all properties of pools (`zpool_expand_proplist`).
///
/// These are the native ones, the first pool's user properties, features, and unsupported features.
pub fn expand_pool(columns: Vec<Column>, pools: &[Pool]) -> Vec<Column> {
    if !columns.is_empty() {
        return columns;
    }
    let mut columns = all(Table::Pool);
    let mut add = |name: &str| {
        if !columns.iter().any(|c| c.name() == name) {
            columns.push(Column::other(name, true));
        }
    };
    for p in pools.first().iter().flat_map(|p| &p.props).filter(|p| props::is_user(&p.name)) {
        add(&p.name);
    }
    for prefix in ["feature@", "unsupported@"] {
        for p in pools.iter().flat_map(|p| &p.props).filter(|p| p.name.starts_with(prefix)) {
            add(&p.name);
        }
    }
    columns
}

/// Replaces an empty list with all properties of datasets (`zfs_expand_proplist`).
///
/// These are the native ones, then the user properties of any of the datasets.
pub fn expand_datasets<'a>(columns: Vec<Column>, datasets: impl Iterator<Item = &'a Dataset>) -> Vec<Column> {
    if !columns.is_empty() {
        return columns;
    }
    let mut columns = all(Table::Dataset);
    let mut seen = std::collections::HashSet::new();
    for p in datasets.flat_map(|d| &d.props).filter(|p| props::is_user(&p.name)) {
        if seen.insert(p.name.as_str()) {
            columns.push(Column::other(&p.name, true));
        }
    }
    columns
}

/// Replaces an empty list with all native properties of vdevs.
pub fn expand_vdevs(columns: Vec<Column>) -> Vec<Column> {
    if columns.is_empty() { all(Table::Vdev) } else { columns }
}

/// The names of properties to request from the engine. An empty result stands for all.
pub fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|c| c.name().to_owned()).filter(|n| n != "name").collect()
}

/// A value with its source, as JSON (`zprop_nvlist_one_property`).
pub fn json_value(value: &str, source: &Source, received: Option<&str>, as_int: bool) -> Object {
    let mut o = Object::new();
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    match value.parse::<u64>() {
        Ok(n) if as_int && digits => o.number("value", n),
        _ => o.text("value", value),
    }
    let (kind, data) = match source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", received.unwrap_or("-")),
    };
    let mut s = Object::new();
    s.text("type", kind);
    s.text("data", data);
    o.object("source", s);
    o
}
