//! Names of users and groups, from the system's own tables.
//!
//! # Absent
//! Directory services: an id that only they know is shown as a number.

/// The name of a user.
pub fn user(id: u32) -> Option<String> {
    lookup("/etc/passwd", id)
}

/// The name of a group.
pub fn group(id: u32) -> Option<String> {
    lookup("/etc/group", id)
}

/// Both tables have the name first and the id third.
fn lookup(path: &str, id: u32) -> Option<String> {
    let table = std::fs::read_to_string(path).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}
