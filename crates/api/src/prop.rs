//! A property's value as commands show it.

use serde::{Deserialize, Serialize};

/// One property of a pool, vdev or dataset, with its value and where the value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prop {
    /// The property's name: native (`used`), a user's (`com.example:note`), or a family member (`userused@1000`, `feature@lz4`).
    pub name: String,
    /// The value for people (`1.50K`, `2.00x`, `on`). Dates are left as their number: the reader knows its time zone.
    pub text: String,
    /// The exact value (`zfs get -p`), where it differs from `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// The number behind the value, for numeric and index properties: what `zfs list -s` sorts by.
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

    /// The value, exact if asked for.
    pub fn value(&self, exact: bool) -> &str {
        match &self.exact {
            Some(e) if exact => e,
            _ => &self.text,
        }
    }
}

/// Where a property's value was set (`zprop_source_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// It can't be set: a statistic.
    #[default]
    None,
    /// Nobody set it.
    Default,
    /// Set on this object.
    Local,
    /// Set for this import or mount only.
    Temporary,
    /// Set on the named ancestor.
    Inherited(String),
    /// Came with a received stream.
    Received,
}
