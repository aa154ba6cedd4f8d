//! A property's value as commands show it.

use serde::{Deserialize, Serialize};

/// One property of a pool, vdev or dataset, with its value and the value's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prop {
    /// The property's name: native (`used`), a user's (`com.example:note`), or a member of a family
    /// (`userused@1000`, `feature@lz4`).
    pub name: String,
    /// The value for people (`1.50K`, `2.00x`, `on`). Dates stay numbers, since only the reader
    /// knows the time zone.
    pub text: String,
    /// The exact value (`zfs get -p`), where it differs from `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// The number behind the value of a numeric or index property. `zfs list -s` sorts by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Where the value was set.
    #[serde(default)]
    pub source: Source,
    /// The received value (`zfs get -o received`), text and exact text, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<(String, String)>,
}

impl Prop {
    /// A property whose exact text is its text.
    pub fn new(name: impl Into<String>, text: impl Into<String>, source: Source) -> Self {
        Self { name: name.into(), text: text.into(), exact: None, number: None, source, received: None }
    }

    /// A numeric property: text for people, and the number as the exact text.
    pub fn number(name: impl Into<String>, text: impl Into<String>, number: u64, source: Source) -> Self {
        let (text, exact) = (text.into(), number.to_string());
        let exact = (exact != text).then_some(exact);
        Self { name: name.into(), text, exact, number: Some(number), source, received: None }
    }

    /// The value; with `exact`, the exact one.
    pub fn value(&self, exact: bool) -> &str {
        match &self.exact {
            Some(e) if exact => e,
            _ => &self.text,
        }
    }
}

/// The source of a property's value (`zprop_source_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// It can't be set: it is a statistic.
    #[default]
    None,
    /// The default value.
    Default,
    /// Set on this object itself.
    Local,
    /// Set for this import or mount only.
    Temporary,
    /// Inherited from the named ancestor.
    Inherited(String),
    /// Received with a stream.
    Received,
}
