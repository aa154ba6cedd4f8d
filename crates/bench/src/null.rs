//! A FUSE file system that does almost nothing. It shows the limit of what FUSE can do.
//!
//! # Theory
//! It keeps names and sizes in memory, and no data. A read returns what the buffer held, a write is
//! dropped, and an fsync has nothing to do. The answers are like those of a real mount, so the
//! kernel sends as many requests.
//!
//! Its loop is simple and separate from that of the FUSE front end: each thread waits in `read`
//! with a buffer of its own. So a fault of the real loop can't be hidden in the limit.

use anyhow::{Context, Result};
use fuse::dispatch::{Behaviour, MAX_READ, MAX_WRITE, Outcome, answer};
use fuse::message::{Answer, Request};
use fuse::system::{attach, detach, probe, raise_readahead};
use fuse::tree::{Attr, Entry, FileTree, Flags, NewNode, Node, Rename, Seek, SetAttr, Statfs, Time};
use fuse::{Detach, Options};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

const ROOT: u64 = 34;
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
/// The number of threads that libfuse keeps.
const THREADS: usize = 10;

#[derive(Debug, Clone, Copy)]
struct Meta {
    mode: u32,
    size: u64,
    parent: u64,
}

#[derive(Debug, Default)]
struct Dir {
    by_name: HashMap<Vec<u8>, u64>,
    /// Entries in the order of a listing. The number of a node is its cookie.
    by_node: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<u64, Meta>,
    dirs: HashMap<u64, Dir>,
    last: u64,
}

/// The file system: names in memory.
#[derive(Debug)]
struct Null(Mutex<State>);

impl Null {
    fn new() -> Self {
        let mut state = State { last: ROOT, ..State::default() };
        state.nodes.insert(ROOT, Meta { mode: S_IFDIR | 0o755, size: 0, parent: ROOT });
        state.dirs.insert(ROOT, Dir::default());
        Self(Mutex::new(state))
    }
}

impl State {
    fn attr(&self, node: u64) -> Result<Attr, Errno> {
        let meta = self.nodes.get(&node).ok_or(Errno::STALE)?;
        let time = Time { sec: 1_700_000_000, nsec: 0 };
        Ok(Attr {
            node: Node(node),
            ino: node,
            generation: 1,
            parent: Node(meta.parent),
            mode: meta.mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: meta.size,
            blocks: meta.size.div_ceil(512),
            blksize: 131_072,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            settled: true,
        })
    }

    fn dir(&mut self, node: Node) -> Result<&mut Dir, Errno> {
        self.dirs.get_mut(&node.0).ok_or(Errno::NOTDIR)
    }

    /// Removes a name from a directory, and returns its node.
    fn take(&mut self, dir: Node, name: &[u8]) -> Result<u64, Errno> {
        let dir = self.dir(dir)?;
        let node = dir.by_name.remove(name).ok_or(Errno::NOENT)?;
        dir.by_node.remove(&node);
        Ok(node)
    }
}

impl FileTree for Null {
    fn root(&self) -> Node {
        Node(ROOT)
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        let mut state = self.0.lock();
        let node = *state.dir(dir)?.by_name.get(name).ok_or(Errno::NOENT)?;
        state.attr(node)
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        self.0.lock().attr(node.0)
    }

    fn readlink(&self, _: Node) -> Result<Vec<u8>, Errno> {
        Err(Errno::INVAL)
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let size = self.attr(node)?.size;
        Ok(usize::try_from(size.saturating_sub(offset)).map_or(buf.len(), |rest| rest.min(buf.len())))
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        let mut state = self.0.lock();
        let mut entries: Vec<Entry> = state
            .dir(dir)?
            .by_node
            .range(cookie + 1..)
            .take(limit)
            .map(|(&node, name)| Entry {
                name: name.clone(),
                node: Some(Node(node)),
                ino: node,
                kind: 0,
                cookie: node,
            })
            .collect();
        for entry in &mut entries {
            entry.kind = state
                .nodes
                .get(&entry.ino)
                .map_or(0, |meta| u8::try_from(meta.mode >> 12 & 0xf).expect("four bits"));
        }
        Ok(entries)
    }

    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NODATA)
    }

    fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs { unit: 512, transfer: 131_072, name_max: 255, ..Statfs::default() })
    }

    fn seek(&self, _: Node, _: u64, _: Seek) -> Result<u64, Errno> {
        Err(Errno::NXIO)
    }

    fn flags(&self, _: Node) -> Result<Flags, Errno> {
        Ok(Flags::default())
    }

    fn writable(&self) -> bool {
        true
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Attr, Errno> {
        let mut state = self.0.lock();
        if state.dir(dir)?.by_name.contains_key(name) {
            return Err(Errno::EXIST);
        }
        state.last += 1;
        let node = state.last;
        let to = state.dir(dir)?;
        to.by_name.insert(name.to_vec(), node);
        to.by_node.insert(node, name.to_vec());
        state.nodes.insert(node, Meta { mode: new.mode, size: 0, parent: dir.0 });
        if new.mode & S_IFMT == S_IFDIR {
            state.dirs.insert(node, Dir::default());
        }
        state.attr(node)
    }

    fn unlink(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.0.lock();
        let node = state.take(dir, name)?;
        state.nodes.remove(&node);
        Ok(())
    }

    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.0.lock();
        let node = state.take(dir, name)?;
        state.nodes.remove(&node);
        state.dirs.remove(&node);
        Ok(())
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), _: Rename) -> Result<(), Errno> {
        let mut state = self.0.lock();
        let node = state.take(from.0, from.1)?;
        let dir = state.dir(to.0)?;
        dir.by_node.insert(node, to.1.to_vec());
        if let Some(old) = dir.by_name.insert(to.1.to_vec(), node) {
            dir.by_node.remove(&old);
            state.nodes.remove(&old);
        }
        Ok(())
    }

    fn write(&self, node: Node, offset: u64, data: &[u8], _: bool) -> Result<(), Errno> {
        let mut state = self.0.lock();
        let meta = state.nodes.get_mut(&node.0).ok_or(Errno::STALE)?;
        meta.size = meta.size.max(offset + data.len() as u64);
        Ok(())
    }

    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        let mut state = self.0.lock();
        let meta = state.nodes.get_mut(&node.0).ok_or(Errno::STALE)?;
        meta.size = set.size.unwrap_or(meta.size);
        meta.mode = set.mode.map_or(meta.mode, |mode| meta.mode & S_IFMT | mode);
        state.attr(node.0)
    }
}

/// Mounts the file system at `target`, prints a line, and serves it until standard input ends.
///
/// # Errors
/// The file system can't be mounted or unmounted, or does not answer.
#[allow(clippy::print_stdout, reason = "its starter waits for the line")]
pub fn serve(target: &Path) -> Result<()> {
    let options = Options { source: "null".to_owned(), ..Options::default() };
    let device = attach(target, &options)?;
    fcntl_setfl(&device, fcntl_getfl(&device)? & !OFlags::NONBLOCK)?;
    let tree = Null::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| work(&device, &tree));
        }
        let stat = probe(target).context("it does not answer")?;
        raise_readahead(stat.stx_dev_major, stat.stx_dev_minor, MAX_READ);
        println!("ready");
        std::io::stdin().read_to_end(&mut Vec::new())?;
        Ok(detach(target, Detach::Normal)?)
    })
}

/// Answers requests until the file system is unmounted.
fn work(device: &std::os::fd::OwnedFd, tree: &Null) {
    let mut buf = vec![0; MAX_WRITE as usize + 4096];
    let mut out = Answer::default();
    loop {
        let len = match rustix::io::read(device, &mut *buf) {
            Ok(len) => len,
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
            Err(_) => return,
        };
        let Some(request) = Request::parse(&buf[..len]) else { return };
        out.clear();
        let behaviour = Behaviour::default();
        if let Outcome::Send(result) = answer(tree, behaviour, &request, &mut out) {
            // The process that sent the request may have been killed meanwhile.
            let _ = rustix::io::write(device, out.finish(request.head.unique, result));
        }
    }
}
