//! Names of users and groups, from the system's own tables.
//!
//! # Absent
//! Directory services: an id that only they know is shown as a number.

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The name of a user, if `/etc/passwd` lists the id.
pub fn user(id: u32) -> Option<String> {
    find(USERS, |_, found| found == id).map(|(name, _)| name)
}

/// The name of a group, if `/etc/group` lists the id.
pub fn group(id: u32) -> Option<String> {
    find(GROUPS, |_, found| found == id).map(|(name, _)| name)
}

/// The id of a user. `name` may also be a number.
pub fn user_id(name: &str) -> Option<u32> {
    find(USERS, |found, _| found == name).map(|(_, id)| id).or_else(|| name.parse().ok())
}

/// The id of a group. `name` may also be a number.
pub fn group_id(name: &str) -> Option<u32> {
    find(GROUPS, |found, _| found == name).map(|(_, id)| id).or_else(|| name.parse().ok())
}

/// The groups of a user: its primary group `gid`, and those that list it as a member.
pub fn groups_of(uid: u32, gid: u32) -> Vec<u32> {
    let mut groups = vec![gid];
    let table = std::fs::read_to_string(GROUPS).unwrap_or_default();
    let Some(name) = user(uid) else { return groups };
    for line in table.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, id, members] = fields[..] else { continue };
        if let (true, Ok(id)) = (members.split(',').any(|member| member == name), id.parse()) {
            groups.push(id);
        }
    }
    groups
}

/// Finds an entry by name and id. Both tables have the name first and the id third.
fn find(path: &str, wanted: impl Fn(&str, u32) -> bool) -> Option<(String, u32)> {
    let table = std::fs::read_to_string(path).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?.parse().ok()?;
        wanted(name, id).then(|| (name.to_owned(), id))
    })
}
