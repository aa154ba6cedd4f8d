use super::*;
use crate::tree::{self, CloneRange, Entry, NewNode, Rename, Seek, SetAttr, Statfs, Time};
use std::collections::BTreeMap;

/// A tree of directories, each with its number, its parent and its name there.
struct Dirs {
    root: u64,
    /// The object number of the dataset of its snapshot.
    snapshot: u64,
    /// Parent and name of each directory.
    dirs: Mutex<BTreeMap<u64, (u64, Vec<u8>)>>,
}

impl Dirs {
    fn new(root: u64, snapshot: u64, dirs: &[(u64, u64, &str)]) -> Arc<Self> {
        let all = dirs.iter().map(|(node, parent, name)| (*node, (*parent, name.as_bytes().to_vec())));
        Arc::new(Self { root, snapshot, dirs: Mutex::new(all.collect()) })
    }

    fn ino(&self, node: u64) -> u64 {
        let dataset = if node >> SLOT_SHIFT == 0 { 0 } else { self.snapshot };
        dataset << OBJECT_BITS | node & OBJECT_MASK
    }

    fn under(&self, dir: Node, name: &[u8]) -> Result<u64, Errno> {
        let dirs = self.dirs.lock();
        let found = dirs.iter().find(|(_, (parent, own))| *parent == dir.0 && own == name);
        found.map(|(node, _)| *node).ok_or(Errno::NOENT)
    }
}

impl FileTree for Dirs {
    fn root(&self) -> Node {
        Node(self.root)
    }
    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        self.attr(Node(self.under(dir, name)?))
    }
    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let parent = match self.dirs.lock().get(&node.0) {
            Some((parent, _)) => *parent,
            None if node.0 == self.root => self.root,
            None => return Err(Errno::STALE),
        };
        let time = Time::default();
        Ok(Attr {
            node,
            ino: self.ino(node.0),
            generation: 0,
            parent: Node(parent),
            mode: S_IFDIR | 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: 2,
            blocks: 0,
            blksize: 512,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            settled: true,
        })
    }
    fn readlink(&self, _: Node) -> Result<Vec<u8>, Errno> {
        Err(Errno::INVAL)
    }
    fn read(&self, _: Node, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::ISDIR)
    }
    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        let dirs = self.dirs.lock();
        let own = dirs.iter().filter(|(node, (parent, _))| *parent == dir.0 && **node > cookie);
        let entry = |(node, (_, name)): (&u64, &(u64, Vec<u8>))| Entry {
            name: name.clone(),
            node: Some(Node(*node)),
            ino: self.ino(*node),
            kind: 4,
            cookie: *node,
        };
        Ok(own.take(limit).map(entry).collect())
    }
    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }
    fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }
    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs { blocks: self.root, ..Statfs::default() })
    }
    fn seek(&self, _: Node, _: u64, _: Seek) -> Result<u64, Errno> {
        Err(Errno::INVAL)
    }
    fn flags(&self, _: Node) -> Result<tree::Flags, Errno> {
        Ok(tree::Flags::default())
    }
    fn writable(&self) -> bool {
        true
    }
    fn create(&self, dir: Node, name: &[u8], _: &NewNode<'_>) -> Result<Attr, Errno> {
        let next = self.dirs.lock().keys().last().map_or(self.root, |last| *last) + 1;
        self.dirs.lock().insert(next, (dir.0, name.to_vec()));
        self.attr(Node(next))
    }
    fn link(&self, node: Node, _: Node, _: &[u8]) -> Result<Attr, Errno> {
        self.attr(node)
    }
    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        let node = self.under(dir, name)?;
        self.dirs.lock().remove(&node);
        Ok(())
    }
    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), _: Rename) -> Result<(), Errno> {
        let node = self.under(from.0, from.1)?;
        self.dirs.lock().insert(node, (to.0.0, to.1.to_vec()));
        Ok(())
    }
    fn clone_range(&self, range: &CloneRange) -> Result<u64, Errno> {
        Ok(range.len)
    }
    fn set_attr(&self, node: Node, _: &SetAttr) -> Result<Attr, Errno> {
        self.attr(node)
    }
}

const NEW: NewNode<'_> = NewNode {
    mode: S_IFDIR,
    umask: 0,
    rdev: (0, 0),
    target: b"",
    caller: crate::tree::Caller { uid: 0, gid: 0 },
};

fn nest() -> (Nest, Arc<Dirs>) {
    let top = Dirs::new(34, 7, &[(35, 34, "a"), (36, 34, "plain"), (37, 36, "deep")]);
    (Nest::new(Arc::clone(&top) as Arc<dyn FileTree>, false), top)
}

fn put(nest: &Nest, path: &str, dataset: u64) -> (Arc<Fs>, Arc<Dirs>) {
    // One directory has the upper bits of a snapshot's slot, one those of an era.
    let slot = 5 << SLOT_SHIFT;
    let tree = Dirs::new(
        34,
        1000 + (dataset & 0xffff),
        &[(35, 34, "b"), (slot | 36, 34, "snap"), (1 << 40 | 37, 34, "era")],
    );
    let content = Content::Open(Arc::clone(&tree) as Arc<dyn FileTree>);
    let fs = nest.put(Path::new(path), content, dataset, Flags::default());
    (fs.expect("it can be put there"), tree)
}

fn walk(nest: &Nest, path: &str) -> Result<Attr, Errno> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let root = nest.attr(nest.root());
    names.fold(root, |at, name| nest.lookup(at?.node, name.as_bytes()))
}

/// Goal: the outer file system keeps its numbers. Each node of a nested one has its own node and
/// inode number, and is found again by it. The upper bits of the inner number don't matter.
#[test]
fn numbers_are_distinct() {
    let (nest, _) = nest();
    let all = ["", "a", "plain", "plain/deep"];
    assert_eq!(all.map(|path| walk(&nest, path).unwrap().node.0), [34, 35, 36, 37]);
    put(&nest, "a", 100);
    put(&nest, "plain/deep", 101);
    put(&nest, "a/b", 1 << 30);
    let mut seen = std::collections::BTreeSet::new();
    for (path, dataset) in [("", 0), ("plain", 0), ("a", 100), ("plain/deep", 101), ("a/b", 0)] {
        for below in ["", "b", "snap", "era"] {
            // The outer file system has none of these names, and `a/b` is the root of another.
            let Ok(attr) = walk(&nest, &format!("{path}/{below}")) else { continue };
            if (path, below) == ("a", "b") {
                continue;
            }
            assert!(
                seen.insert((attr.node.0, ())) && seen.insert((attr.ino | 1 << 62, ())),
                "{path}/{below}"
            );
            assert_eq!(nest.attr(attr.node).unwrap(), attr, "{path}/{below}");
            if dataset > 0 && below == "b" {
                assert_eq!(attr.ino, dataset << 40 | 35);
            }
        }
    }
    assert_eq!(nest.attr(Node(NESTED | 999 << OBJECT_BITS | 34)).err(), Some(Errno::STALE));
    assert_eq!(nest.attr(NOWHERE).err(), Some(Errno::STALE));
}

/// Goal: a mountpoint shows the root of the file system mounted there: in lookups, in listings, and
/// as a parent. After the unmount it shows the folder again.
#[test]
fn mountpoints_are_covered() {
    let (nest, _) = nest();
    let (fs, _) = put(&nest, "a", 100);
    let root = walk(&nest, "a").unwrap();
    assert_eq!((root.ino, root.parent), (100 << 40 | 34, Node(34)));
    let listed = nest.readdir(Node(34), 0, 10).unwrap();
    let a = listed.iter().find(|entry| entry.name == b"a").unwrap();
    assert_eq!((a.node, a.ino), (Some(root.node), root.ino));
    assert_eq!((nest.statfs(root.node).unwrap().blocks, nest.count()), (34, 1));
    assert_eq!(nest.find(Path::new("")).err(), Some(Errno::BUSY));
    let again = nest.put(Path::new("a"), Content::Open(Dirs::new(34, 7, &[])), 7, Flags::default());
    assert_eq!(again.err(), Some(Errno::BUSY));
    assert!(fs.known.close());
    nest.take_out(&fs);
    assert_eq!((walk(&nest, "a").unwrap().node, nest.count(), nest.places.taken()), (Node(35), 0, 0));
    assert_eq!(nest.attr(root.node).err(), Some(Errno::STALE));
}

/// Goal: a mountpoint can't be removed, renamed or replaced. No operation mixes two file systems.
#[test]
fn file_systems_are_kept_apart() {
    let (nest, top) = nest();
    let (fs, _) = put(&nest, "a", 100);
    let root = walk(&nest, "a").unwrap().node;
    let how = Rename::Replace;
    assert_eq!(nest.rmdir(Node(34), b"a"), Err(Errno::BUSY));
    assert_eq!(nest.rename((Node(34), b"a"), (Node(36), b"new"), how), Err(Errno::BUSY));
    assert_eq!(nest.rename((Node(34), b"plain"), (Node(34), b"a"), how), Err(Errno::BUSY));
    assert_eq!(nest.rename((Node(34), b"plain"), (root, b"x"), how), Err(Errno::XDEV));
    assert_eq!(nest.rename((root, b"b"), (Node(34), b"x"), how), Err(Errno::XDEV));
    let b = walk(&nest, "a/b").unwrap().node;
    assert_eq!(nest.link(b, Node(34), b"x").err(), Some(Errno::XDEV));
    assert_eq!(nest.link(Node(36), root, b"x").err(), Some(Errno::XDEV));
    let range = |source, target| CloneRange { source, from: 0, target, to: 0, len: 9, kill: false };
    assert_eq!(nest.clone_range(&range(b, Node(36))), Err(Errno::XDEV));
    assert_eq!(nest.clone_range(&range(b, root)), Ok(9));
    // A folder around a mountpoint may be renamed, and the mountpoint moves with it.
    put(&nest, "plain/deep", 101);
    nest.rename((Node(34), b"plain"), (Node(34), b"other"), how).unwrap();
    assert_eq!(walk(&nest, "other/deep").unwrap().ino, 101 << 40 | 34);
    nest.create(root, b"new", &NEW).unwrap();
    assert_eq!(top.dirs.lock().len(), 3);
    fs.read_only.store(true, Ordering::Release);
    assert_eq!(nest.create(root, b"more", &NEW).err(), Some(Errno::ROFS));
    assert_eq!(nest.rmdir(root, b"new"), Err(Errno::ROFS));
    assert_eq!(nest.set_attr(root, &SetAttr::default()).err(), Some(Errno::ROFS));
    nest.create(Node(34), b"more", &NEW).unwrap();
}

/// Goal: a file system is in use while the kernel knows a node of it, or another is mounted in it.
///
/// If it is unmounted in use, its nodes answer `ENOTCONN` until the kernel has forgotten them.
/// After that its places are free.
#[test]
fn use_is_counted() {
    let (nest, _) = nest();
    let (a, _) = put(&nest, "a", 100);
    let (b, _) = put(&nest, "a/b", 101);
    assert!(!a.known.close(), "something is mounted in it");
    assert!(b.known.close());
    nest.take_out(&b);
    let (root, snap) = (walk(&nest, "a").unwrap().node, walk(&nest, "a/snap").unwrap().node);
    for node in [root, snap, snap] {
        nest.given(node).unwrap();
    }
    assert!(!a.known.close());
    nest.forget(snap, 1);
    nest.forget(root, 1);
    assert!(!a.known.close());
    a.known.force();
    nest.take_out(&a);
    assert_eq!(nest.attr(snap).err(), Some(Errno::NOTCONN));
    assert_eq!(nest.given(snap), Err(Errno::STALE));
    assert_eq!((walk(&nest, "a").unwrap().node, nest.places.taken()), (Node(35), 2));
    nest.forget(snap, 1);
    assert_eq!((nest.attr(snap).err(), nest.places.taken()), (Some(Errno::STALE), 0));
    // Nothing can be mounted in a file system that is gone. A FORGET with too high a count does no
    // harm.
    nest.forget(snap, u64::MAX);
    let (c, _) = put(&nest, "a", 102);
    nest.forget(walk(&nest, "a").unwrap().node, u64::MAX);
    assert!(c.known.close());
}

/// Goal: an impossible size or type in a damaged pool doesn't reach the kernel, which would refuse
/// the answer and lose count of the node.
#[test]
fn impossible_attributes_are_refused() {
    let (nest, top) = nest();
    let (fs, _) = put(&nest, "a", 100);
    let attr = top.attr(Node(34)).unwrap();
    assert!(nest.show(&fs, attr.clone()).is_ok());
    assert_eq!(nest.show(&fs, Attr { size: 1 << 63, ..attr.clone() }).err(), Some(Errno::IO));
    assert_eq!(nest.show(&fs, Attr { mode: 0o030_000, ..attr }).err(), Some(Errno::IO));
}

/// Goal: a file system that needs a flag that the mount lacks is refused, with the property named.
/// A change of the mount is refused likewise. A mount that protects more is accepted.
#[test]
fn flags_of_the_mount_count() {
    let all = Options { noexec: true, nosuid: true, nodev: true, posix_acl: true, ..Options::default() };
    let (none, ro) = (Options::default(), Options { read_only: true, ..Options::default() });
    for (options, what) in [
        (Options { noexec: true, ..none.clone() }, "exec=off"),
        (Options { nosuid: true, ..none.clone() }, "setuid=off"),
        (Options { nodev: true, ..none.clone() }, "devices=off"),
        (Options { posix_acl: true, ..none.clone() }, "acltype=posix"),
    ] {
        assert_eq!(Flags::of(&options).missing(&none).as_deref(), Some(what));
        assert_eq!(Flags::of(&options).missing(&all), None);
        assert_eq!(Flags::of(&none).missing(&options), None);
        assert_eq!(Flags::of(&options).within(&none), Flags::default());
    }
    assert_eq!(Flags::of(&none).missing(&ro).as_deref(), Some("readonly=off"));
    assert_eq!(Flags::of(&ro).missing(&none), None);
    let lifted = Flags::default().denied(Flags::of(&all), &all);
    let every = Some("exec=on, setuid=on, devices=on");
    assert_eq!(lifted.lifted().as_deref(), every);
    assert_eq!(Flags::default().denied(lifted, &none).lifted(), None);
    assert_eq!(Flags::default().denied(Flags::default(), &all).lifted(), None);
    assert_eq!(Flags::default().or(lifted), lifted);
    let top = Dirs::new(34, 7, &[(35, 34, "a"), (36, 34, "b")]);
    let nest = Nest::new(top as Arc<dyn FileTree>, true);
    let put = |path: &str, options: &Options| {
        let tree = Dirs::new(34, 7, &[(35, 34, "deep")]);
        nest.put(Path::new(path), Content::Open(tree), 100, Flags::of(options)).expect("it can be put there")
    };
    put("a", &none);
    assert_eq!((nest.refuses(&none), nest.refuses(&ro).as_deref()), (None, Some("readonly=off")));
    let deep = put("a/deep", &all);
    let refused = nest.refuses(&none);
    assert!(nest.refuses(&all).is_none() && refused.is_some_and(|what| what.starts_with("exec=off")));
    assert!(deep.known.close());
    nest.take_out(&deep);
    assert_eq!(nest.refuses(&none), None);
}

/// Goal: content that is opened late is opened once, by the first request that leads into it.
///
/// A listing of the directory that holds its mountpoint doesn't open it, nor does `sync`, nor an
/// unmount. A failure is returned to the caller, and the next request tries again.
#[test]
fn opened_late() {
    let (nest, _) = nest();
    let tries = Arc::new(AtomicUsize::new(0));
    let put = |path: &str, dataset: u64, fails: usize| {
        let tries = Arc::clone(&tries);
        let open = move || match tries.fetch_add(1, Ordering::Relaxed) < fails {
            true => Err(Errno::IO),
            false => Ok(Dirs::new(34, 1000, &[(35, 34, "b")]) as Arc<dyn FileTree>),
        };
        nest.put(Path::new(path), Content::Later(Arc::new(open)), dataset, Flags::default()).unwrap()
    };
    let opened = || tries.swap(0, Ordering::Relaxed);
    let fs = put("a", 100, 1);
    let listed = nest.readdir(nest.root(), 0, 10).unwrap();
    let (name, node) = (&listed[0].name, listed[0].node);
    assert_eq!((name.as_slice(), node), (&b"a"[..], None));
    nest.sync().unwrap();
    assert_eq!((opened(), fs.open_tree().is_some()), (0, false));
    assert_eq!(walk(&nest, "a").unwrap_err(), Errno::IO);
    let root = walk(&nest, "a").unwrap();
    assert_eq!(
        (root.ino, walk(&nest, "a/b").unwrap().ino),
        (100 << OBJECT_BITS | 34, 100 << OBJECT_BITS | 35)
    );
    assert_eq!(opened(), 2);
    assert_eq!(nest.readdir(nest.root(), 0, 10).unwrap()[0].node, Some(root.node));
    // A path to another mountpoint leads through it, too.
    let below = put("a/b", 101, 0);
    let unused = put("plain/deep", 102, 0);
    assert_eq!(opened(), 0);
    for fs in [&below, &unused] {
        assert!(fs.known.close());
        nest.take_out(fs);
    }
    assert_eq!((opened(), nest.count()), (0, 1));
    assert_eq!(below.tree().err(), Some(Errno::NOTCONN));
}
