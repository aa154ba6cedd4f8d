//! Kstats and tunables as files: `proc/spl/kstat/zfs/...`, `sys/module/zfs/...` and
//! `sys/module/spl/...` in a folder. They serve programs that read those of the kernel modules.
//!
//! # Theory
//! The folder is a mount of the daemon's own. Each read of a file is answered with the present
//! values, since the kernel caches nothing of it ([`FileTree::is_live`]). A node's number is a hash
//! of its path, so the tree stores nothing. A collision of two 62-bit numbers is not expected.
//!
//! # Locks
//! None of its own: it queries the pools, as any command does. Names are in memory. The contents of
//! a pool's file need only that pool, and several threads answer. So a pool whose devices hang does
//! not block the files of others.

use crate::telemetry::kstats::Name;
use crate::telemetry::spl;
use api::{Caller, Kstat, Service, Tunable};
use fuse::tree::{Attr, Entry, FileTree, Flags, Node, Seek, SetAttr, Statfs, Time};
use fuse::{Mount, Options, Workers};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

/// The number of threads that answer.
const THREADS: usize = 8;
/// The reported size of a file, whose contents are made when it is read.
const SIZE: u64 = 4096;
const ROOT: Node = Node(1);
const KSTATS: &str = "proc/spl/kstat/zfs";
const PARAMETERS: &str = "sys/module/zfs/parameters";
const SPL: &str = "sys/module/spl/parameters";

/// A service that returns kstats one by one.
pub trait Counters: Service {
    /// Constant files: paths and contents.
    fn facts(&self) -> &[(String, String)] {
        &[]
    }
    /// The names of all kstats. Waits for no device.
    fn kstat_names(&self) -> Vec<Name>;
    /// One kstat, if it exists.
    fn kstat(&self, pool: Option<&str>, name: &str) -> Option<Kstat>;
}

/// The tree over a service.
pub struct StatTree<S> {
    service: Arc<S>,
    hash: RandomState,
    /// Constant nodes, by path and by number.
    facts: BTreeMap<String, Thing>,
    paths: HashMap<Node, String>,
}

/// The kind of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Folder,
    /// A constant file.
    Fact(String),
    Kstat(Name),
    Parameter(Tunable),
    /// A parameter of the module `spl`.
    Spl(&'static str),
}

impl<S: Counters> StatTree<S> {
    /// The tree over this service.
    pub fn new(service: Arc<S>) -> Self {
        let mut facts = BTreeMap::new();
        for (path, text) in service.facts() {
            put(&mut facts, path.clone(), Thing::Fact(text.clone()));
        }
        let mut tree = Self { service, hash: RandomState::new(), facts, paths: HashMap::new() };
        tree.paths = tree.facts.keys().map(|path| (tree.number(path), path.clone())).collect();
        tree
    }

    /// All present nodes that may change, by path. The root is the empty path.
    fn things(&self) -> BTreeMap<String, Thing> {
        let mut things = BTreeMap::new();
        let mut put = |path: String, thing: Thing| put(&mut things, path, thing);
        put(String::new(), Thing::Folder);
        put(KSTATS.to_owned(), Thing::Folder);
        put(PARAMETERS.to_owned(), Thing::Folder);
        for name in self.service.kstat_names() {
            put(path_of(&name), Thing::Kstat(name));
        }
        for tunable in self.service.tunables(&of_the_tree()).unwrap_or_default() {
            put(format!("{PARAMETERS}/{}", tunable.name), Thing::Parameter(tunable));
        }
        for name in spl::NAMES {
            put(format!("{SPL}/{name}"), Thing::Spl(name));
        }
        things
    }

    fn number(&self, path: &str) -> Node {
        if path.is_empty() { ROOT } else { Node(self.hash.hash_one(path) >> 2 | 2) }
    }

    fn find(&self, node: Node) -> Result<(String, Thing), Errno> {
        if let Some((path, thing)) = self.paths.get(&node).and_then(|path| self.facts.get_key_value(path)) {
            return Ok((path.clone(), thing.clone()));
        }
        self.things().into_iter().find(|(path, _)| self.number(path) == node).ok_or(Errno::NOENT)
    }

    fn describe(&self, path: &str, thing: &Thing) -> Attr {
        let (mode, nlink, size) = match thing {
            Thing::Folder => (0o040_555, 2, 2),
            Thing::Kstat(_) | Thing::Fact(_) | Thing::Spl(_) => (0o100_444, 1, SIZE),
            Thing::Parameter(tunable) if tunable.read_only => (0o100_444, 1, SIZE),
            Thing::Parameter(_) => (0o100_644, 1, SIZE),
        };
        let parent = path.rsplit_once('/').map_or("", |(above, _)| above);
        let time = Time::default();
        Attr {
            node: self.number(path),
            ino: self.number(path).0,
            generation: 0,
            parent: self.number(parent),
            mode,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: (0, 0),
            size,
            blocks: 0,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            settled: false,
        }
    }
}

/// The caller for reads and writes of files.
///
/// The kernel gives no identity when it reads for its cache. It checks the modes of files
/// (`default_permissions`), and only the daemon's user may write. So the daemon sends its own
/// requests.
fn of_the_tree() -> Caller {
    Caller::this_process()
}

/// Adds a node at a path, with the folders above it.
fn put(things: &mut BTreeMap<String, Thing>, path: String, thing: Thing) {
    for (at, _) in path.match_indices('/') {
        things.insert(path[..at].to_owned(), Thing::Folder);
    }
    things.insert(path, thing);
}

fn path_of((pool, name): &Name) -> String {
    match pool {
        Some(pool) => format!("{KSTATS}/{pool}/{name}"),
        None => format!("{KSTATS}/{name}"),
    }
}

impl<S: Counters + Send + Sync> FileTree for StatTree<S> {
    fn root(&self) -> Node {
        ROOT
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        let (above, _) = self.find(dir)?;
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
        let fact = self.facts.get(&path).cloned();
        let thing = fact.or_else(|| self.things().remove(&path)).ok_or(Errno::NOENT)?;
        Ok(self.describe(&path, &thing))
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        self.find(node).map(|(path, thing)| self.describe(&path, &thing))
    }

    fn readlink(&self, _: Node) -> Result<Vec<u8>, Errno> {
        Err(Errno::INVAL)
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let text = match self.find(node)?.1 {
            Thing::Folder => return Err(Errno::ISDIR),
            Thing::Fact(text) => text,
            Thing::Kstat((pool, name)) => {
                let kstat = self.service.kstat(pool.as_deref(), &name).ok_or(Errno::NOENT)?;
                kstat.file()
            }
            Thing::Parameter(tunable) => format!("{}\n", tunable.told(tunable.value)),
            Thing::Spl(name) => {
                let all = self.service.spl(&of_the_tree()).map_err(|_| Errno::IO)?;
                let found = all.into_iter().find(|p| p.name == name).ok_or(Errno::NOENT)?;
                format!("{}\n", found.value)
            }
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let part = &text.as_bytes()[from..];
        let len = part.len().min(buf.len());
        buf[..len].copy_from_slice(&part[..len]);
        Ok(len)
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        let (above, thing) = self.find(dir)?;
        if thing != Thing::Folder {
            return Err(Errno::NOTDIR);
        }
        let mut things = self.things();
        things.extend(self.facts.iter().map(|(path, thing)| (path.clone(), thing.clone())));
        let inside = things.iter().filter_map(|(path, thing)| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent == above && !name.is_empty()).then_some((path, name, thing))
        });
        let entry = |(at, (path, name, thing)): (usize, (&String, &str, &Thing))| Entry {
            name: name.as_bytes().to_vec(),
            node: Some(self.number(path)),
            ino: self.number(path).0,
            kind: if *thing == Thing::Folder { 4 } else { 8 },
            cookie: at as u64 + 2,
        };
        let from = usize::try_from(cookie.saturating_sub(1)).unwrap_or(usize::MAX);
        Ok(inside.enumerate().skip(from).take(limit).map(entry).collect())
    }

    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs { unit: 4096, transfer: 4096, name_max: 255, ..Statfs::default() })
    }

    fn seek(&self, _: Node, _: u64, _: Seek) -> Result<u64, Errno> {
        Err(Errno::INVAL)
    }

    fn flags(&self, _: Node) -> Result<Flags, Errno> {
        Err(Errno::NOTTY)
    }

    fn writable(&self) -> bool {
        true
    }

    fn is_live(&self) -> bool {
        true
    }

    fn names_stay(&self, _: Node) -> bool {
        false
    }

    fn write(&self, node: Node, _: u64, data: &[u8], _: bool) -> Result<(), Errno> {
        let Thing::Parameter(tunable) = self.find(node)?.1 else { return Err(Errno::ACCESS) };
        // Root may open the file in spite of its mode.
        if tunable.read_only {
            return Err(Errno::ACCESS);
        }
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?.trim();
        let value = tunable.value_of(text, number);
        let set = self.service.set_tunable(&of_the_tree(), &tunable.name, &value.ok_or(Errno::INVAL)?);
        set.map_err(|_| Errno::INVAL)
    }

    /// Truncation is how shells begin to write a file.
    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        if set.size.is_none() || set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Err(Errno::PERM);
        }
        self.attr(node)
    }
}

/// A number as the kernel parses those of module parameters (`kstrtoull` with base 0).
///
/// It is hexadecimal after `0x`, octal after `0`, and decimal otherwise.
fn number(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // Rust would accept a second sign.
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Mounts the tree on a folder, which is created if needed. Dropping the result unmounts it.
///
/// With `others`, other users may use it. Root's tree is for all users.
///
/// # Errors
/// * [`fuse::Error::Mount`]: the folder can't be created.
/// * [`fuse::Error::Workers`]: the threads can't be started.
/// * All others: see [`Mount::new`].
pub fn mount<S: Counters + Send + Sync + 'static>(
    service: Arc<S>,
    at: &Path,
    others: bool,
) -> Result<Mount, fuse::Error> {
    std::fs::create_dir_all(at).map_err(|e| fuse::Error::Mount {
        target: at.to_owned(),
        source: Errno::from_io_error(&e).unwrap_or(Errno::IO),
    })?;
    let workers = Arc::new(Workers::start("stats", THREADS)?);
    let allow_other = others || rustix::process::geteuid().is_root();
    let options = Options { source: "poolhouse".into(), allow_other, ..Options::default() };
    // The user that runs the daemon chooses the folder, so it may be a link.
    let at = &std::fs::canonicalize(at).unwrap_or_else(|_| at.to_owned());
    Mount::new(&workers, Arc::new(StatTree::new(service)), at, &options)
}

#[cfg(test)]
mod tests;
