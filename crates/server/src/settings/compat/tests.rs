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

/// Goal: several files mean what all of them name; comments don't count; the administrator's file comes first.
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

/// Goal: what is wrong is said in OpenZFS's words, and an unknown name of the distribution's is only a warning.
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
