use super::*;

/// Goal: inode numbers of snapshots differ from those of live files and from each other. Numbers
/// too large to combine still differ within a mount.
#[test]
fn numbers_of_snapshots_are_their_own() {
    let mut seen = std::collections::HashSet::new();
    for (slot, dataset) in [(1, 54), (2, 387), (3, (1 << 23) - 1), (4, 1 << 23), (5, 1 << 47)] {
        for object in [1, 34, 1 << 20, (1 << 40) - 1, 1 << 40, (1 << 48) - 1] {
            let ino = snapshot_ino(slot, dataset, object);
            assert!(ino >= 1 << 40, "a live file could have {ino}");
            assert!(seen.insert(ino), "{slot} {dataset} {object}");
        }
    }
}

/// A tree of one directory that contains itself and has this parent.
struct Odd {
    parent: u64,
}

impl FileTree for Odd {
    fn root(&self) -> Node {
        Node(34)
    }
    fn lookup(&self, _: Node, _: &[u8]) -> Result<Attr, Errno> {
        self.attr(Node(35))
    }
    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let time = Time::default();
        Ok(Attr {
            node,
            ino: node.0,
            generation: 0,
            parent: Node(self.parent),
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
    fn readdir(&self, _: Node, cookie: u64, _: usize) -> Result<Vec<Entry>, Errno> {
        let entry = Entry {
            name: b"odd".to_vec(),
            node: Some(Node(self.parent)),
            ino: self.parent,
            kind: DT_DIR,
            cookie: 3,
        };
        Ok(if cookie == 0 { vec![entry] } else { Vec::new() })
    }
    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NODATA)
    }
    fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }
    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs::default())
    }
    fn seek(&self, _: Node, _: u64, _: Seek) -> Result<u64, Errno> {
        Err(Errno::NXIO)
    }
    fn flags(&self, _: Node) -> Result<Flags, Errno> {
        Ok(Flags::default())
    }
}

/// A number of snapshots, each an odd tree, with a count of those that were listed.
#[derive(Default)]
struct Many {
    count: u64,
    parent: u64,
    listed: std::sync::atomic::AtomicU64,
}

impl Snapshots for Arc<Many> {
    fn page(&self, from: u64, limit: usize) -> Result<Vec<Named>, Errno> {
        let first = from.max(2);
        let all = (first..self.count + 2).take(limit);
        let page: Vec<Named> =
            all.map(|n| Named { name: n.to_string().into(), dataset: n, next: n + 1 }).collect();
        self.listed.fetch_add(page.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(page)
    }
    fn count(&self) -> Result<u64, Errno> {
        Ok(self.count)
    }
    fn open(&self, _: &[u8]) -> Result<Snapshot, Errno> {
        Ok(Snapshot { tree: Arc::new(Odd { parent: self.parent }), dataset: 7, born: 1 })
    }
    fn visible(&self) -> bool {
        false
    }
    fn disabled(&self) -> bool {
        false
    }
}

/// Goal: a parent that no object number can be leads nowhere: neither into another snapshot nor
/// into the control directory.
#[test]
fn odd_parents_lead_nowhere() {
    for parent in [u64::MAX, CONTROL.0, 2 << SLOT_SHIFT | 34, 1 << SLOT_SHIFT] {
        let many = Arc::new(Many { count: 2, parent, ..Many::default() });
        let mount = WithSnapshots::new(Arc::new(Odd { parent }), Box::new(many));
        let snapshot = mount.lookup(SNAPDIR, b"1").unwrap();
        assert_eq!(snapshot.parent, SNAPDIR);
        for dir in [mount.root(), snapshot.node] {
            let below = mount.lookup(dir, b"below").unwrap();
            assert_eq!(below.node.0 >> SLOT_SHIFT, dir.0 >> SLOT_SHIFT);
            assert_eq!(mount.attr(below.node).unwrap().parent, below.parent);
            assert_eq!(mount.attr(below.parent).unwrap_err(), Errno::STALE, "{parent:x}");
            assert_eq!(mount.readdir(dir, 0, 10).unwrap()[0].node, None);
        }
    }
}

/// Goal: a directory of many snapshots, listed in parts, is read once. Its size is found without a
/// listing.
#[test]
fn listing_snapshots_is_one_pass() {
    let many = Arc::new(Many { count: 1000, parent: 34, ..Many::default() });
    let mount = WithSnapshots::new(Arc::new(Odd { parent: 34 }), Box::new(many.clone()));
    let (mut seen, mut cookie) = (std::collections::HashSet::new(), 0);
    loop {
        let page = mount.readdir(SNAPDIR, cookie, 10).unwrap();
        let Some(last) = page.last() else { break };
        cookie = last.cookie;
        seen.extend(page.into_iter().map(|entry| (entry.name, entry.ino)));
    }
    assert_eq!(seen.len(), 1000);
    assert_eq!(mount.attr(SNAPDIR).unwrap().size, 1002);
    assert_eq!(many.listed.load(std::sync::atomic::Ordering::Relaxed), 1000);
}

/// Goal: only root and the user that serves the mount can change snapshots through it. In other
/// directories only the permissions count.
#[test]
fn snapshots_have_one_master() {
    let mount = WithSnapshots::new(Arc::new(Odd { parent: 34 }), Box::new(Arc::new(Many::default())));
    let ours = rustix::process::geteuid();
    let nobody = |uid| Asker { uid, pid: 0 };
    let us = Asker { uid: ours.as_raw(), pid: std::process::id() };
    assert!(mount.admits(SNAPDIR, us), "the test's own process has no rights here");
    assert_eq!(mount.admits(SNAPDIR, nobody(us.uid)), !ours.is_root());
    assert!(!mount.admits(SNAPDIR, nobody(us.uid + 1)));
    assert!(mount.admits(mount.root(), nobody(us.uid + 1)));
    let shown = mount.attr(SNAPDIR).unwrap();
    assert_eq!((shown.uid, shown.gid, shown.mode & 0o777), (0, 0, 0o555));
}
