//! Which volumes are estimated, and what ends an estimate.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use api::{AfsVolume, Error, Reason};
use poolhouse::zpl;

fn line(id: u32, name: &str, dataset: &str, updated: u64) -> Line {
    let (name, dataset) = (name.to_owned(), dataset.to_owned());
    Line { volume: AfsVolume { id, name, dataset, updated, ..AfsVolume::default() }, space: None }
}

/// Goal: files that volumes share count once: those of the file system, or else of its newest
/// clone.
#[test]
fn shared_files() {
    let lines = [
        line(3, "root.backup", "t/a/1@3", 9),
        line(1, "root", "t/a/1", 5),
        line(2, "root.readonly", "t/a/1@2", 9),
        line(6, "old.backup", "t/a/4.clones-1@6", 8),
        line(5, "old.readonly", "t/a/4.clones-1@5", 9),
        line(7, "", "t/a/7", 1),
    ];
    let names: Vec<String> = heads(&lines).into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["root", "old.readonly", "7"]);
}

fn volumes(look: Look) -> Volumes {
    let each = heads(&[line(1, "one", "t/a/1", 1), line(2, "two", "t/a/2", 1)]);
    Volumes { each, look, state: Mutex::default() }
}

/// Goal: a volume that the daemon refuses is left out, with what to do. Without the daemon, nothing
/// more is requested.
#[test]
fn refusals() {
    let locked = volumes(|opening| match opening.dataset.as_str() {
        "t/a/1" => Err(Denied::NoKey { dataset: "t/a/1".to_owned(), root: "t/a".to_owned() }),
        _ => Err(Denied::Api(Error::new("t/a/2", Reason::Suspended))),
    });
    let why = locked.root(0).unwrap_err().to_string();
    assert_eq!(why, "its key is not loaded: use 'zfs load-key t/a' first");
    assert!(locked.root(1).is_err());
    assert_eq!(locked.state().left_out, BTreeSet::from([0, 1]));
    // A second walk has its own.
    assert!(locked.root(0).is_err());
    assert_eq!(locked.state().left_out, BTreeSet::from([0]));
    assert_eq!(locked.state().gone, None);

    let away = volumes(|opening| match opening.dataset.as_str() {
        "t/a/1" => Err(Denied::Theirs),
        _ => panic!("a second request"),
    });
    assert!(away.root(0).is_err() && away.root(1).is_err());
    assert_eq!(away.state().gone.as_deref(), Some("the daemon is another user's"));
}

/// Goal: what is opened is read beside the server, and not for writing.
#[test]
fn readers() {
    let asked = volumes(|opening| {
        assert!(opening.beside && !opening.write && opening.keys.is_empty(), "{opening:?}");
        Err(Denied::Theirs)
    });
    assert!(asked.root(0).is_err());
}

/// A file with a generation and a size. What is behind its end reads as zeros.
struct File {
    generation: u64,
    size: u64,
}

fn unused<T>() -> T {
    panic!("an estimate does not do this")
}

impl Files for File {
    fn meta(&mut self, object: ObjNum) -> Result<Meta, Fault> {
        let (kind, mode, nlink, times) = (FileType::Regular, 0o100_644, 1, (0, 0));
        let (generation, size, sparse) = (self.generation, self.size, false);
        let (uid, gid, rdev, atime, mtime) = (0, 0, None, times, times);
        Ok(Meta { object, kind, mode, nlink, uid, gid, size, rdev, atime, mtime, generation, sparse })
    }

    fn begin(&mut self, _: ObjNum) -> Result<(), Fault> {
        Ok(())
    }

    fn read(&mut self, _: u64, buf: &mut [u8]) -> Result<usize, Gap> {
        Ok(buf.len())
    }

    fn resolve(&mut self, _: &[u8], _: bool) -> Result<Meta, Fault> {
        unused()
    }

    fn page(&mut self, _: ObjNum, _: DirCookie) -> Result<files::Page, Fault> {
        unused()
    }

    fn readlink(&mut self, _: ObjNum) -> Result<Vec<u8>, Fault> {
        unused()
    }

    fn xattr_names(&mut self, _: ObjNum) -> Result<Vec<Vec<u8>>, Fault> {
        unused()
    }

    fn xattr(&mut self, _: ObjNum, _: &[u8]) -> Result<Vec<u8>, Fault> {
        unused()
    }

    fn next(&mut self, _: u64, _: bool) -> Result<Option<u64>, Gap> {
        unused()
    }

    fn lookup(&mut self, _: ObjNum, _: &[u8]) -> Result<ObjNum, Fault> {
        unused()
    }

    fn remove(&mut self, _: ObjNum, _: &[u8]) -> Result<Option<ObjNum>, Fault> {
        unused()
    }

    fn link(&mut self, _: ObjNum, _: ObjNum, _: &[u8]) -> Result<(), Fault> {
        unused()
    }

    fn create(&mut self, _: ObjNum, _: &[u8], _: &zpl::NewFile) -> Result<ObjNum, Fault> {
        unused()
    }

    fn write(&mut self, _: ObjNum, _: u64, _: &[u8]) -> Result<(), Fault> {
        unused()
    }

    fn extend(&mut self, _: ObjNum, _: u64) -> Result<(), Fault> {
        unused()
    }

    fn set_xattr(&mut self, _: ObjNum, _: &[u8], _: &[u8]) -> Result<(), Fault> {
        unused()
    }

    fn set_attr(&mut self, _: ObjNum, _: &zpl::SetAttr) -> Result<(), Fault> {
        unused()
    }

    fn sync(&mut self) -> Result<(), Fault> {
        unused()
    }
}

/// Goal: of a file that is another one by now, or shorter, nothing counts as read.
#[test]
fn changed_files() {
    let all = volumes(|opening| {
        let (generation, size) = if opening.dataset == "t/a/1" { (7, 8192) } else { (8, 8191) };
        Ok(Box::new(File { generation, size }))
    });
    let read = |system, generation, from| {
        let mut bytes = 0;
        let wanted = Wanted { number: 5, generation, sparse: false, from };
        let done = all.read(system, wanted, &mut [0; 4096], &mut |range| bytes += range.len());
        done.map_err(|error| (error.to_string(), bytes)).map(|()| bytes)
    };
    let failed = |why: &str| Err((why.to_owned(), 0));
    assert_eq!((read(0, 7, 4096), read(0, 7, 0)), (Ok(4096), Ok(4096)));
    assert_eq!(read(1, 7, 0), failed("it was replaced meanwhile"));
    assert_eq!(read(1, 8, 4096), failed("it became shorter meanwhile"));
    assert_eq!(read(1, 8, 0), Ok(4096));
}
