//! Files of feature names, as OpenZFS reads them.

use super::*;

fn folders(local: &[(&str, &str)], shared: &[(&str, &str)]) -> (tempfile::TempDir, Folders) {
    let dir = tempfile::tempdir().unwrap();
    let folders = Folders { local: dir.path().join("local"), shared: dir.path().join("shared") };
    for (folder, files) in [(&folders.local, local), (&folders.shared, shared)] {
        std::fs::create_dir(folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    (dir, folders)
}

fn names(value: &str, folders: &Folders) -> Vec<&'static str> {
    load(value, folders).unwrap().names
}

/// Goal: several files mean the features that all of them name. Comments don't count. The
/// administrator's file takes precedence.
#[test]
fn sets() {
    let (_dir, folders) = folders(
        &[("a", "async_destroy # lz4_compress\nbookmarks,hole_birth\n")],
        &[("a", "lz4_compress\n"), ("b", "bookmarks async_destroy\n")],
    );
    assert_eq!(names("a", &folders).len(), 3);
    assert_eq!(names("a,b", &folders), ["async_destroy", "bookmarks"]);
    assert_eq!(names("off", &folders).len(), FEATURES.len());
    assert!(names("legacy", &folders).is_empty());
}

/// Goal: errors are in OpenZFS's words. An unknown name of the distribution's is only a warning.
#[test]
fn faults() {
    let (_dir, folders) = folders(&[("odd", "nope\n"), ("cut", "bookmarks")], &[("new", "bookmarks nope\n")]);
    for (value, fault) in [
        ("none,cut", "could not read/parse feature file(s): none cut "),
        (",", "no valid compatibility files specified"),
        ("odd", "invalid feature name(s) in local compatibility files: nope "),
    ] {
        assert_eq!(load(value, &folders).unwrap_err(), fault);
    }
    let new = load("new", &folders).unwrap();
    assert_eq!(
        new.warning.as_deref(),
        Some("unrecognized feature name(s) in distribution compatibility files: nope ")
    );
}

/// Goal: the sets that OpenZFS ships exist without any file, by all their names. A file of such a
/// name takes precedence, even if it is broken.
#[test]
fn shipped_sets() {
    let (_dir, none) = folders(&[], &[]);
    for set in shipped::all() {
        let listed = shipped::names(set).unwrap();
        assert_eq!(
            names(set, &none).len(),
            listed.len(),
            "{set} has a name twice, or one that is no feature's"
        );
    }
    assert_eq!(names("zol-0.6.1", &none), ["async_destroy", "empty_bpobj", "lz4_compress"]);
    // The numbers of features in the files of OpenZFS 2.3.
    for (set, count) in [
        ("2018", 11),
        ("freebsd-12.4", 18),
        ("grub2", 22),
        ("ubuntu-18.04", 17),
        ("zol-0.8", 26),
        ("truenas-12.0", 32),
        ("openzfs-2.1-linux", 34),
        ("openzfs-2.2", 39),
        ("openzfs-2.3-linux", 44),
    ] {
        assert_eq!(names(set, &none).len(), count, "{set}");
    }
    assert!(!names("openzfs-2.1-freebsd", &none).contains(&"edonr"));
    assert_eq!(names("grub2,zol-0.6.4", &none).len(), 9);
    assert!(load("openzfs-9.9", &none).is_err());

    let (_dir, own) = folders(&[("grub2", "lz4_compress\n"), ("2019", "bookmarks")], &[]);
    assert_eq!(names("grub2", &own), ["lz4_compress"]);
    assert_eq!(load("2019", &own).unwrap_err(), "could not read/parse feature file(s): 2019 ");
}
