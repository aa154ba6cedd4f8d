use serde::Deserialize as _;
use serde::de::value::{Error, StrDeserializer};

use super::*;

/// Goal: each reason without fields has a text of its own.
#[test]
fn each_reason_has_a_text() {
    let read = |name| Reason::deserialize(StrDeserializer::<Error>::new(name));
    // The error lists the names of all reasons.
    let error = read("no such name").unwrap_err().to_string();
    let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(names.len() > 50, "{error}");
    let plain: Vec<Reason> = names.iter().filter_map(|name| read(name).ok()).collect();
    assert!(plain.len() > 40, "{plain:?}");
    for reason in plain {
        assert!(fixed(&reason).is_some(), "no text: {reason:?}");
    }
}
