//! The table of `zpool get` and `zfs get`: a line for each property of each object.

use api::Source;

use crate::cx::{Cx, Stop};
use crate::proplist::Column;

/// A column of the table (`zfs_get_column_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words say it")]
pub enum Field {
    Name,
    Property,
    Value,
    Received,
    Source,
}

/// The fields that `zfs get` accepts. `zpool get` accepts them without `received`.
const FIELDS: [(&str, Field); 5] = [
    ("name", Field::Name),
    ("property", Field::Property),
    ("value", Field::Value),
    ("received", Field::Received),
    ("source", Field::Source),
];

/// The kinds of source that `-s` selects (`zprop_source_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words say it")]
pub enum SourceKind {
    Local,
    Default,
    Inherited,
    Received,
    Temporary,
    None,
}

impl SourceKind {
    fn of(source: &Source) -> Self {
        match source {
            Source::None => Self::None,
            Source::Default => Self::Default,
            Source::Local => Self::Local,
            Source::Temporary => Self::Temporary,
            Source::Inherited(_) => Self::Inherited,
            Source::Received => Self::Received,
        }
    }
}

/// How to print the table (`zprop_get_cbdata_t`).
#[derive(Debug, Clone)]
pub struct GetTable {
    /// Separate fields with tabs and print no header (`-H`).
    pub scripted: bool,
    /// The fields to show (`-o`).
    pub fields: Vec<Field>,
    /// The sources to show (`-s`). `None` shows all.
    pub sources: Option<Vec<SourceKind>>,
    widths: [usize; 5],
    headed: bool,
}

impl Default for GetTable {
    fn default() -> Self {
        Self {
            scripted: false,
            fields: vec![Field::Name, Field::Property, Field::Value, Field::Source],
            sources: None,
            widths: [4, 8, 5, 8, 6],
            headed: false,
        }
    }
}

impl GetTable {
    /// Reads the argument of `-o`. `received` says whether that field is allowed.
    ///
    /// # Errors
    /// * [`Stop::Usage`]: there are too many fields, `all` follows another field, or a name is
    ///   unknown.
    pub fn set_fields(&mut self, list: &str, received: bool) -> Result<(), Stop> {
        self.fields.clear();
        for word in list.split(',') {
            if self.fields.len() >= if received { 5 } else { 4 } {
                return Err(Stop::usage("too many fields given to -o option\n"));
            }
            let known = FIELDS.iter().filter(|f| received || f.1 != Field::Received);
            if word == "all" {
                if !self.fields.is_empty() {
                    return Err(Stop::usage("\"all\" conflicts with specific fields given to -o option\n"));
                }
                self.fields = known.map(|f| f.1).collect();
            } else {
                match known.into_iter().find(|f| f.0 == word) {
                    Some(f) => self.fields.push(f.1),
                    None => return Err(Stop::usage(format!("invalid column name '{word}'\n"))),
                }
            }
        }
        Ok(())
    }

    /// Reads the argument of `-s`.
    ///
    /// # Errors
    /// * [`Stop::Usage`]: a source is unknown.
    pub fn set_sources(&mut self, list: &str) -> Result<(), Stop> {
        use SourceKind as K;
        let mut kinds = Vec::new();
        for word in list.split(',') {
            kinds.push(match word {
                "local" => K::Local,
                "default" => K::Default,
                "inherited" => K::Inherited,
                "received" => K::Received,
                "temporary" => K::Temporary,
                "none" => K::None,
                _ => return Err(Stop::usage(format!("invalid source '{word}'\n"))),
            });
        }
        self.sources = Some(kinds);
        Ok(())
    }

    /// Whether values of this source are shown.
    pub fn wants(&self, source: &Source) -> bool {
        self.sources.as_ref().is_none_or(|s| s.contains(&SourceKind::of(source)))
    }

    /// Whether received values are shown.
    pub fn received(&self) -> bool {
        self.fields.contains(&Field::Received)
    }

    /// Sets the widths from the list of properties. Its first column is the objects' names
    /// (`zprop_print_headers`).
    pub fn measure(&mut self, columns: &[Column]) {
        for (i, c) in columns.iter().enumerate() {
            self.widths[1] = self.widths[1].max(c.name().len());
            if i > 0 {
                self.widths[2] = self.widths[2].max(c.width);
                self.widths[3] = self.widths[3].max(c.received_width);
            }
            if c.name() == "name" && c.width > self.widths[0] {
                self.widths[0] = c.width;
                self.widths[4] = c.width + "inherited from".len();
            }
        }
    }

    /// Prints a property, and the header before the first one (`zprop_print_one_property`).
    pub fn line(
        &mut self,
        cx: &mut Cx,
        name: &str,
        property: &str,
        value: &str,
        source: &Source,
        received: Option<&str>,
    ) {
        if !self.wants(source) {
            return;
        }
        if !std::mem::replace(&mut self.headed, true) && !self.scripted {
            self.row(cx, |f| match f {
                Field::Name => "NAME".into(),
                Field::Property => "PROPERTY".into(),
                Field::Value => "VALUE".into(),
                Field::Received => "RECEIVED".into(),
                Field::Source => "SOURCE".into(),
            });
        }
        self.row(cx, |f| match f {
            Field::Name => name.to_owned(),
            Field::Property => property.to_owned(),
            Field::Value => value.to_owned(),
            Field::Received => received.unwrap_or("-").to_owned(),
            Field::Source => source_text(source),
        });
    }

    fn row(&self, cx: &mut Cx, text: impl Fn(Field) -> String) {
        for (i, &field) in self.fields.iter().enumerate() {
            let text = text(field);
            let text = cx.out.cell(&text);
            let width = self.widths[field as usize];
            match (i + 1 == self.fields.len(), self.scripted) {
                (true, _) => cx.out.put(&text),
                (false, true) => write!(cx.out, "{text}\t"),
                (false, false) => write!(cx.out, "{text:<width$}  "),
            }
        }
        cx.out.put("\n");
    }
}

fn source_text(source: &Source) -> String {
    match source {
        Source::None => "-".into(),
        Source::Default => "default".into(),
        Source::Local => "local".into(),
        Source::Temporary => "temporary".into(),
        Source::Inherited(from) => format!("inherited from {from}"),
        Source::Received => "received".into(),
    }
}
