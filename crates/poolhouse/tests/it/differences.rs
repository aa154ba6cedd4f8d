//! The differences between snapshots that OpenZFS made, compared with those that a full walk of
//! both finds.

use poolhouse::ondisk::ObjNum;
use poolhouse::zpl::{Attr, DirCookie, FileSystem, FileType, RollbackDiff, compare};
use poolhouse::{OpenOptions, Pool};
use std::collections::{BTreeMap, BTreeSet};

/// All files that have names, by object number, and the object of each name.
#[derive(Default)]
struct Whole {
    files: BTreeMap<ObjNum, Attr>,
    names: BTreeMap<(ObjNum, Vec<u8>), ObjNum>,
}

fn whole(fs: &FileSystem) -> Whole {
    let mut all = Whole::default();
    let mut left = vec![fs.root()];
    while let Some(object) = left.pop() {
        let node = fs.node(object).unwrap();
        let is_dir = node.attr().kind == FileType::Directory;
        if all.files.insert(object, *node.attr()).is_some() || !is_dir {
            continue;
        }
        for entry in node.read_dir(DirCookie::START).unwrap() {
            let entry = entry.unwrap();
            left.push(entry.object);
            all.names.insert((object, entry.name), entry.object);
        }
    }
    all
}

/// Checks the differences that were found. Returns the number of changed files and names.
fn judge(now: &Whole, then: &Whole, found: &RollbackDiff) -> (usize, usize) {
    let files: BTreeSet<_> = found.files.iter().copied().collect();
    let gone: BTreeSet<_> = found.gone.iter().copied().collect();
    let names: BTreeSet<_> = found.names.iter().cloned().collect();
    let same = |object: &ObjNum| {
        let made = |whole: &Whole| whole.files.get(object).map(|attr| attr.generation);
        made(now).is_some() && made(now) == made(then)
    };
    let mut changed = (0, 0);
    for (object, attr) in &now.files {
        assert_eq!(gone.contains(object), !same(object), "{object}");
        if then.files.get(object) != Some(attr) {
            assert!(files.contains(object), "{object}");
            changed.0 += 1;
        }
    }
    let all: BTreeSet<_> = now.names.keys().chain(then.names.keys()).collect();
    for name in all.into_iter().filter(|(dir, _)| now.files.contains_key(dir)) {
        let (means, meant) = (now.names.get(name), then.names.get(name));
        let stays = means.is_some() && means == meant && means.is_some_and(same);
        // Names in a removed directory are not checked further.
        if same(&name.0) || means.is_some() {
            let stays = stays && same(&name.0);
            assert_eq!(names.contains(name), !stays, "{name:?}");
            changed.1 += usize::from(!stays);
        }
    }
    changed
}

/// Goal: the comparison of two snapshots finds every file and name that differs, in both
/// directions. If there are more than the caller's limit, it returns none of them.
#[test]
fn all_that_differs_is_found() {
    let images = testkit::fixture("single-lz4");
    let options = OpenOptions { force: true, ..OpenOptions::default() };
    let pool = Pool::open(&images, &options).unwrap();
    let open = |name: &str| pool.dataset(name).unwrap().filesystem().unwrap();
    for (earlier, later) in [("one", "two"), ("two", "three"), ("one", "three")] {
        let [earlier, later] = [earlier, later].map(|s| open(&format!("single-lz4/snaps@{s}")));
        for (now, then) in [(&later, &earlier), (&earlier, &later)] {
            let found = compare(now, then, usize::MAX).unwrap().unwrap();
            let changed = judge(&whole(now), &whole(then), &found);
            assert!(changed.0 > 0 && changed.1 > 0, "{changed:?}");
            assert_eq!(compare(now, then, 1).unwrap(), None);
        }
        let nothing = compare(&later, &later, 1).unwrap().unwrap();
        assert!(nothing.files.is_empty() && nothing.names.is_empty(), "{nothing:?}");
    }
}
