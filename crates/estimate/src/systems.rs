//! File systems that a caller reads, by the numbers of their files.
//!
//! # Theory
//! Each file system is walked from its root. A caller may read it while others change it, and it
//! may be damaged. So a file is read only if its generation is the one that the walk found. A
//! directory that was entered is not entered again, and paths have a greatest length. So the walk
//! ends even if directories contain each other. The directories that wait to be entered have a
//! limit of memory: further ones are reported.

use crate::Failures;
use crate::directory::Names;
use crate::origin::{BATCH, File, LINKED_MAX, Origin, Other, PAGE, Visitor, Walked};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path of a directory below a root in bytes, as that of a system call. Each draw of a
/// sample and each unit to read keeps a path.
const PATH_MAX: usize = 1 << 12;
/// Most memory of directories that were found and not entered yet, in bytes.
const TODO_MAX: usize = 64 << 20;

/// Types of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, fifo or socket.
    Special,
}

/// A file with its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u64,
    /// Tells it from earlier files of its number.
    pub generation: u64,
    /// Its type.
    pub kind: Kind,
    /// Bytes, holes included.
    pub size: u64,
    /// Whether it may have holes.
    pub sparse: bool,
    /// The number of its names.
    pub links: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access and last change, each in seconds since 1970 and nanoseconds.
    pub times: [[u64; 2]; 2],
}

/// File systems whose files have numbers.
pub trait FileSystems: Sync {
    /// How many file systems there are.
    fn count(&self) -> usize;

    /// The name of a file system, for messages.
    fn name(&self, system: usize) -> PathBuf;

    /// The root directory of a file system.
    ///
    /// # Errors
    /// The file system can't be read. It is left out.
    fn root(&self, system: usize) -> io::Result<Node>;

    /// The file of a number.
    ///
    /// # Errors
    /// It can't be read, or there is none.
    fn node(&self, system: usize, number: u64) -> io::Result<Node>;

    /// Calls `each` with the names in a directory, without `.` and `..`, and the numbers of their
    /// files. `each` calls the other methods.
    ///
    /// # Errors
    /// The directory can't be read behind these names.
    fn list(&self, system: usize, folder: u64, each: &mut dyn FnMut(&[u8], u64)) -> io::Result<()>;

    /// Reads a file from `from` on into `data`, which has zeros. Calls `found` with the ranges of
    /// `data` that are no holes.
    ///
    /// # Errors
    /// It can't be read, or there is another file of its number.
    fn read(
        &self,
        system: usize,
        file: Wanted,
        data: &mut [u8],
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()>;
}

/// A range of a file that is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The number of the file.
    pub number: u64,
    /// Its generation.
    pub generation: u64,
    /// Whether it may have holes.
    pub sparse: bool,
    /// The first byte.
    pub from: u64,
}

/// All of some file systems.
pub(crate) struct All<'a>(pub(crate) &'a dyn FileSystems);

/// The walk over a file system.
struct Walk<'a> {
    all: &'a All<'a>,
    system: usize,
    visitor: &'a mut dyn Visitor,
    failures: &'a mut Failures,
    done: &'a mut Walked,
    /// Directories to read.
    todo: Vec<(Node, PathBuf)>,
    /// The memory of these.
    todo_bytes: usize,
    /// Directories that were found, and files with several names.
    known: HashSet<u64>,
    ended: bool,
}

/// The memory of a directory that waits to be entered.
fn memory(path: &Path) -> usize {
    size_of::<(Node, PathBuf)>() + path.as_os_str().len()
}

fn described(root: usize, path: PathBuf, node: &Node) -> File {
    File {
        root,
        path,
        id: (node.generation, node.number),
        size: node.size,
        sparse: node.sparse,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        times: node.times,
    }
}

impl Origin for All<'_> {
    fn walk(&self, visitor: &mut dyn Visitor, failures: &mut Failures) -> Walked {
        let mut done = Walked::default();
        for system in 0..self.0.count() {
            let root = match self.0.root(system) {
                Ok(root) => root,
                Err(e) => {
                    failures.add(&self.0.name(system), e);
                    continue;
                }
            };
            let (todo, known) = (vec![(root, PathBuf::new())], HashSet::from([root.number]));
            let (done, ended, todo_bytes) = (&mut done, false, memory(Path::new("")));
            let mut walk =
                Walk { all: self, system, visitor, failures, done, todo, todo_bytes, known, ended };
            while let Some((folder, path)) = walk.todo.pop() {
                walk.todo_bytes -= memory(&path);
                walk.enter(&folder, path);
                if walk.ended {
                    break;
                }
            }
            if walk.ended || !visitor.end(self) {
                break;
            }
        }
        done
    }

    fn path(&self, root: usize, below: &Path) -> PathBuf {
        match below.as_os_str().is_empty() {
            true => self.0.name(root),
            false => self.0.name(root).join(below),
        }
    }

    fn fill(&self, file: &File, offset: u64, data: &mut [u8], pages: &mut [bool]) -> io::Result<u64> {
        let (generation, number) = file.id;
        let wanted = Wanted { number, generation, sparse: file.sparse, from: offset };
        let mut read = 0;
        let mut found = |range: Range<usize>| {
            read += range.len() as u64;
            pages[range.start / PAGE as usize..range.end.div_ceil(PAGE as usize)].fill(true);
        };
        self.0.read(file.root, wanted, data, &mut found)?;
        Ok(read)
    }
}

impl Walk<'_> {
    fn fail(&mut self, path: &Path, error: io::Error) {
        self.failures.add(&self.all.path(self.system, path), error);
    }

    fn enter(&mut self, folder: &Node, path: PathBuf) {
        self.done.directories += 1;
        let (mut names, mut batch) = (Names::default(), Vec::new());
        let (all, system) = (self.all, self.system);
        let mut keep = |name: &[u8], number: u64| {
            names.add(name);
            batch.push((name.to_owned(), number));
            if batch.len() == BATCH {
                self.entries(&path, std::mem::take(&mut batch));
            }
        };
        let listed = all.0.list(system, folder.number, &mut keep);
        self.entries(&path, batch);
        if let Err(e) = listed {
            self.fail(&path, e);
        }
        if !self.ended {
            self.visitor.directory(&described(system, path, folder), names);
        }
    }

    /// Visits the files of these names, in an order that is the same each time.
    fn entries(&mut self, above: &Path, mut batch: Vec<(Vec<u8>, u64)>) {
        batch.sort_unstable();
        for (name, number) in batch {
            if self.ended {
                return;
            }
            self.entry(above.join(OsStr::from_bytes(&name)), number);
        }
    }

    /// Adds a directory to those that are to be entered.
    ///
    /// # Errors
    /// Why it is left out.
    fn enqueue(&mut self, node: Node, path: &Path) -> Result<(), &'static str> {
        let bytes = memory(path);
        if path.as_os_str().len() > PATH_MAX {
            return Err("its path has more than 4096 bytes: it is left out");
        }
        if self.known.contains(&node.number) {
            return Err("the directory has another name already");
        }
        if self.known.len() >= LINKED_MAX || self.todo_bytes + bytes > TODO_MAX {
            return Err("too many directories: it is left out");
        }
        self.known.insert(node.number);
        self.todo_bytes += bytes;
        self.todo.push((node, path.to_owned()));
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, number: u64) {
        let node = match self.all.0.node(self.system, number) {
            Ok(node) => node,
            Err(e) => return self.fail(&path, e),
        };
        if node.kind == Kind::Directory {
            return match self.enqueue(node, &path) {
                Ok(()) => {}
                Err(why) => self.fail(&path, io::Error::other(why)),
            };
        }
        // A file that is not remembered counts with each name.
        if node.links > 1 {
            if self.known.contains(&number) {
                return;
            }
            if self.known.len() < LINKED_MAX {
                self.known.insert(number);
            }
        }
        let file = described(self.system, path, &node);
        let other = match node.kind {
            Kind::Symlink => Other::Symlink,
            Kind::Special => Other::Special,
            Kind::Regular | Kind::Directory => {
                self.done.files += 1;
                self.done.bytes = self.done.bytes.saturating_add(file.size);
                self.ended = !self.visitor.file(self.all, file);
                return;
            }
        };
        self.done.others += 1;
        self.visitor.other(&file, other);
    }
}

#[cfg(test)]
mod tests;
