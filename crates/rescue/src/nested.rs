//! File systems that a mount shows within the one that is read or written.
//!
//! # Theory
//! `poolhouse cp -r tank:/ out` reads one file system. `cp -r` from its mount would also enter the
//! file systems that are mounted in it. This command does not enter them, like `cp -x`. It names
//! each, with the command that copies it.
//!
//! A path below the mountpoint of another file system leads into a folder that the other one hides.
//! The command reads such a folder, and refuses to write it.
//!
//! The place of a file system is its mountpoint if it is mounted, and otherwise its property
//! `mountpoint`.
//!
//! # Absent
//! * In a pool that is read directly: file systems that lie in another one and are not below it by
//!   name.
//! * Snapshots: in a snapshot of a file system, the other ones are empty folders, as in a mount.

use super::held::Held;
use super::target::Error;
use super::{Chain, Io};
use api::{DatasetKind, DatasetQuery, PropSelect};
use mount_rules::{CanMount, Plan, Where};
use poolhouse::Pool;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A file system of the pool.
#[derive(Debug, Clone)]
struct Spot {
    name: String,
    /// Its mountpoint, now or as its property says.
    at: Option<PathBuf>,
    /// Whether it is mounted, or would be mounted with all others.
    shown: bool,
}

/// A file system within another one, or below it by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// The names of the folders from the root of the outer file system to its mountpoint.
    ///
    /// Empty if it is below the outer one only by name.
    pub at: Vec<Vec<u8>>,
}

/// The file systems within one file system.
#[derive(Debug, Default)]
pub struct Nested {
    /// The name of the outer file system.
    outer: String,
    children: Vec<Child>,
    /// Texts about file systems whose place is unknown.
    failures: Vec<String>,
}

impl Nested {
    /// Finds those within a dataset of a pool that is read directly.
    ///
    /// # Errors
    /// * [`Error::Pool`]: the datasets of the pool can't be listed.
    pub fn of_pool(pool: &Pool, dataset: &str) -> Result<Self, Error> {
        if dataset.contains('@') {
            return Ok(Self::default());
        }
        let names = pool.dataset_names(false)?;
        let mut failures: Vec<String> =
            names.failures.iter().map(|(name, error)| format!("{name}: {}", Chain(error))).collect();
        let mut spots = Vec::new();
        // A pool may have thousands of file systems. Those elsewhere in its tree are not read for
        // this.
        let below = format!("{dataset}/");
        let near = names.names.into_iter().filter(|name| name == dataset || name.starts_with(&below));
        for name in near {
            let plan = pool.dataset(&name).and_then(|dataset| Ok(Plan::of(dataset.dsl().clone())?));
            match plan {
                Ok(Some(plan)) => {
                    let at = match plan.place {
                        Where::Path(path) => Some(path),
                        Where::Legacy | Where::None => None,
                    };
                    spots.push(Spot { name, at, shown: plan.can_mount == CanMount::On });
                }
                // Volumes have no place.
                Ok(None) => {}
                Err(error) => failures.push(format!("{name}: {}", Chain(&error))),
            }
        }
        Ok(Self { outer: dataset.to_owned(), children: children(dataset, &spots), failures })
    }

    /// Finds those within a target's dataset, in a pool that the daemon holds.
    ///
    /// # Errors
    /// * [`Error::Daemon`]: the daemon can't list datasets or mounts.
    pub fn of_held(io: &Io, held: &Held) -> Result<Self, Error> {
        let dataset = &held.target.dataset;
        if dataset.contains('@') {
            return Ok(Self::default());
        }
        let query = DatasetQuery {
            root: Some(held.target.pool().to_owned()),
            kinds: vec![DatasetKind::Filesystem],
            props: PropSelect::Named(vec!["mountpoint".to_owned(), "canmount".to_owned()]),
            ..DatasetQuery::default()
        };
        let daemon = |error: api::Error| Error::Daemon { why: error.to_string() };
        let list = io.service.datasets(&query).map_err(daemon)?;
        let mounts = io.service.mounts().map_err(daemon)?;
        let mounted: HashMap<&str, &str> =
            mounts.iter().map(|mount| (mount.dataset.as_str(), mount.mountpoint.as_str())).collect();
        let spots: Vec<Spot> = (list.datasets.iter())
            .map(|found| {
                let text = |name| found.prop(name).map(|prop| prop.text.as_str());
                let mount = mounted.get(found.name.as_str()).copied();
                let at = mount.or_else(|| text("mountpoint")).filter(|at| at.starts_with('/'));
                let shown = mount.is_some() || text("canmount") == Some("on");
                Spot { name: found.name.clone(), at: at.map(PathBuf::from), shown }
            })
            .collect();
        let failures = list.failures.iter().map(ToString::to_string).collect();
        Ok(Self { outer: dataset.clone(), children: children(dataset, &spots), failures })
    }

    /// Those that hide folders.
    pub fn mounted(&self) -> impl Iterator<Item = &Child> {
        self.children.iter().filter(|child| !child.at.is_empty())
    }

    /// The innermost one that hides a path, and the path within it.
    pub fn hiding(&self, path: &[u8]) -> Option<(&Child, String)> {
        let parts = parts(path);
        let child = self.mounted().filter(|child| parts.starts_with(&child.at));
        let child = child.max_by_key(|child| child.at.len())?;
        let rest = parts[child.at.len()..].join(&b'/');
        Some((child, format!("/{}", String::from_utf8_lossy(&rest))))
    }

    /// Refuses to write to a path that a mount hides.
    ///
    /// # Errors
    /// * [`Error::Hidden`]: the path lies below the mountpoint of another file system.
    pub fn refuse(&self, path: &str) -> Result<(), Error> {
        let Some((child, rest)) = self.hiding(path.as_bytes()) else { return Ok(()) };
        Err(Error::Hidden {
            operand: format!("{}:{path}", self.outer),
            child: child.name.clone(),
            instead: format!("{}:{rest}", child.name),
        })
    }

    /// Reports what is read although other file systems hide it.
    ///
    /// If everything below the path is read (`below`), also reports what is not entered.
    pub fn report(&self, io: &mut Io, command: &str, path: &str, below: bool) {
        let outer = &self.outer;
        if let Some((child, rest)) = self.hiding(path.as_bytes()) {
            let name = &child.name;
            writeln!(
                io.err,
                "poolhouse {command}: {outer}:{path}: {name} has its mountpoint there and hides this: \
                 its files are {name}:{rest}"
            );
        }
        if !below {
            return;
        }
        let parts = parts(path.as_bytes());
        let option = if command == "cp" { "-r" } else { "-R" };
        let to = if command == "cp" { " FOLDER" } else { "" };
        let is_below = |child: &&Child| {
            child.at.starts_with(&parts) && (child.at.len() > parts.len() || parts.is_empty())
        };
        for Child { name, .. } in self.children.iter().filter(is_below) {
            writeln!(
                io.err,
                "poolhouse {command}: {name}: not entered, a file system of its own: \
                 poolhouse {command} {option} {name}:/{to}"
            );
        }
        for failure in &self.failures {
            writeln!(io.err, "poolhouse {command}: {failure}: not entered, if it lies in {outer}");
        }
    }
}

/// The file systems of a pool that lie in `outer`, or below it by name without a place of their
/// own.
fn children(outer: &str, spots: &[Spot]) -> Vec<Child> {
    let top = spots.iter().find(|spot| spot.name == outer).and_then(|spot| spot.at.as_ref());
    let below = format!("{outer}/");
    let child = |spot: &Spot| {
        let within = top.zip(spot.at.as_ref().filter(|_| spot.shown));
        let rest = within.and_then(|(top, at)| at.strip_prefix(top).ok());
        let at = rest.map(|rest| parts(rest.as_os_str().as_bytes())).unwrap_or_default();
        // A file system that is mounted elsewhere is not in the tree.
        let elsewhere = within.is_some() && rest.is_none();
        let is_one = !at.is_empty() || !elsewhere && spot.name.starts_with(&below);
        is_one.then(|| Child { name: spot.name.clone(), at })
    };
    spots.iter().filter(|spot| spot.name != outer).filter_map(child).collect()
}

/// The names in a path, without empty ones and `.`. `..` removes the name before it, because there
/// are no links.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            name => parts.push(name.to_vec()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    //! Which file systems lie in which.

    use super::*;

    fn nested(outer: &str) -> Nested {
        let spot = |name: &str, at: &str, shown| Spot {
            name: name.to_owned(),
            at: Some(PathBuf::from(at)).filter(|at| at.is_absolute()),
            shown,
        };
        let spots = [
            spot("t", "/t", true),
            spot("t/docs", "/t/docs", true),
            spot("t/docs/old", "/t/docs/old", true),
            spot("t/docs2", "/t/docs2", false),
            spot("t/far", "/elsewhere", true),
            spot("t/none", "none", true),
            spot("t/far/back", "/t/x/y", true),
        ];
        Nested { outer: outer.to_owned(), children: children(outer, &spots), failures: Vec::new() }
    }

    /// Goal: mountpoints decide what lies in a file system. Without a mountpoint, the name decides.
    #[test]
    fn by_mountpoint_then_by_name() {
        let of = |outer| {
            let found = nested(outer).children;
            found.into_iter().map(|c| (c.name, String::from_utf8(c.at.join(&b'/')).unwrap())).collect()
        };
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, at)| ((*name).to_owned(), (*at).to_owned())).collect()
        };
        let all: Vec<(String, String)> = of("t");
        let want = [
            ("t/docs", "docs"),
            ("t/docs/old", "docs/old"),
            ("t/docs2", ""),
            ("t/none", ""),
            ("t/far/back", "x/y"),
        ];
        assert_eq!(all, pairs(&want));
        assert_eq!(of("t/docs"), pairs(&[("t/docs/old", "old")]));
        assert_eq!(of("t/far"), pairs(&[]));
    }

    /// Goal: the innermost file system that hides a path is found, and never by part of a name.
    #[test]
    fn hidden_paths() {
        let nested = nested("t");
        let hiding =
            |path: &str| nested.hiding(path.as_bytes()).map(|(c, rest)| format!("{}:{rest}", c.name));
        assert_eq!(hiding("/docs").as_deref(), Some("t/docs:/"));
        assert_eq!(hiding("//x/../docs/./f").as_deref(), Some("t/docs:/f"));
        assert_eq!(hiding("/docs/old/a/b").as_deref(), Some("t/docs/old:/a/b"));
        for path in ["/", "/docs2/f", "/x", "/doc"] {
            assert_eq!(hiding(path), None, "{path}");
        }
    }
}
