//! Conditions of events: `op=rmdir and ns>20ms`.

use api::TraceCondition;

/// The comparisons; of two that begin alike, the longer one first.
const TESTS: [&str; 8] = ["!=", "!~", ">=", "<=", "=", "~", ">", "<"];

/// The conditions of a text, joined by `and`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(text: &str) -> Result<Vec<TraceCondition>, String> {
    text.split(" and ").map(|one| read_one(one.trim())).collect()
}

fn read_one(text: &str) -> Result<TraceCondition, String> {
    let wrong = || format!("'{text}' is no condition: write FIELD=VALUE, with one of = != > >= < <= ~ !~\n");
    let at = text.find(['=', '!', '>', '<', '~']).ok_or_else(wrong)?;
    let (field, rest) = text.split_at(at);
    let test = TESTS.into_iter().find(|test| rest.starts_with(test)).ok_or_else(wrong)?;
    let (field, value) = (field.trim(), rest[test.len()..].trim());
    if field.is_empty() {
        return Err(wrong());
    }
    Ok(TraceCondition { field: field.to_owned(), test: test.to_owned(), value: value.to_owned() })
}
