//! `zfs diff`: the differences that it finds, and its output. The tests do nothing if mounting is
//! not possible.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::common::stand::Stand;

/// The lines of a diff, with `/` for the mount point.
fn lines(stand: &Stand, line: &str) -> Vec<String> {
    let root = stand.path("tank/fs").display().to_string();
    let mut all: Vec<String> =
        stand.good(line).lines().map(|l| l.replace(&format!("{root}/"), "/").replace(&root, "/")).collect();
    all.sort();
    all
}

/// Goal: each kind of change has OpenZFS's letter, between snapshots and to the live file system,
/// as in its test `zfs_diff_changes`, and for links. A diff of the live file system leaves no
/// snapshot.
#[test]
fn each_change_has_its_letter() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/fs");
    let at = |name: &str| stand.path("tank/fs").join(name);
    for name in ["fremoved", "frenamed", "fmodified", "linked", "unlinked", "replaced", "same"] {
        fs::write(at(name), name).expect("a file");
    }
    for name in ["dremoved", "drenamed", "dmodified"] {
        fs::create_dir(at(name)).expect("a folder");
    }
    fs::hard_link(at("unlinked"), at("unlinked.2")).expect("a link");
    stand.good("zfs snapshot tank/fs@a");
    assert_eq!(lines(&stand, "zfs diff tank/fs@a"), [""; 0]);
    fs::remove_file(at("fremoved")).expect("removed");
    fs::rename(at("frenamed"), at("frenamed.new")).expect("renamed");
    fs::write(at("fmodified"), "other").expect("written");
    fs::remove_dir(at("dremoved")).expect("removed");
    fs::rename(at("drenamed"), at("drenamed.new")).expect("renamed");
    fs::write(at("dmodified/file"), "").expect("a file");
    fs::create_dir(at("dcreated")).expect("a folder");
    fs::hard_link(at("linked"), at("linked.2")).expect("a link");
    fs::remove_file(at("unlinked.2")).expect("removed");
    fs::remove_file(at("replaced")).expect("removed");
    fs::create_dir(at("replaced")).expect("a folder");
    let want = [
        "+\t/dcreated",
        "+\t/dmodified/file",
        "+\t/replaced",
        "-\t/dremoved",
        "-\t/fremoved",
        "-\t/replaced",
        "M\t/",
        "M\t/dmodified",
        "M\t/fmodified",
        "M\t/linked\t(+1)",
        "M\t/unlinked\t(-1)",
        "R\t/drenamed -> /drenamed.new",
        "R\t/frenamed -> /frenamed.new",
    ];
    assert_eq!(lines(&stand, "zfs diff tank/fs@a"), want);
    assert_eq!(stand.good("zfs list -H -o name -t snapshot"), "tank/fs@a\n");
    stand.good("zfs snapshot tank/fs@b");
    fs::write(at("later"), "").expect("a file");
    for line in ["zfs diff tank/fs@a tank/fs@b", "zfs diff tank/fs@a @b", "zfs diff @a tank/fs@b"] {
        assert_eq!(lines(&stand, line), want, "{line}");
    }
    assert_eq!(lines(&stand, "zfs diff tank/fs@b tank/fs"), ["+\t/later", "M\t/"]);
    assert!(lines(&stand, "zfs diff -H tank/fs@a @b").contains(&"R\t/drenamed\t/drenamed.new".to_owned()));
}

/// Goal: file types, times and names have OpenZFS's format (its tests `zfs_diff_types`,
/// `_timestamp` and `_mangle`).
#[test]
fn kinds_times_and_names() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/fs");
    stand.good("zfs snapshot tank/fs@a");
    let at = |name: &str| stand.path("tank/fs").join(name);
    fs::write(at("file"), "").expect("a file");
    symlink("file", at("link")).expect("a link");
    fs::create_dir(at("dir")).expect("a folder");
    let _socket = std::os::unix::net::UnixListener::bind(at("sock")).expect("a socket");
    fs::write(at("śmieszny żupan"), "").expect("a file");
    fs::write(at("back\\slash"), "").expect("a file");
    let kinds = lines(&stand, "zfs diff -F tank/fs@a");
    for line in ["+\tF\t/file", "+\t@\t/link", "+\t/\t/dir", "+\t=\t/sock", "M\t/\t/"] {
        assert!(kinds.contains(&line.to_owned()), "{line} in {kinds:?}");
    }
    let names = lines(&stand, "zfs diff tank/fs@a");
    for name in ["+\t/\\0305\\0233mieszny\\0040\\0305\\0274upan", "+\t/back\\0134slash"] {
        assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    assert!(lines(&stand, "zfs diff -h tank/fs@a").contains(&"+\t/śmieszny żupan".to_owned()));
    let m = fs::metadata(at("file")).expect("a file");
    let line = format!("{}.{:09}\t+\tF\t/file", m.ctime(), m.ctime_nsec());
    assert!(lines(&stand, "zfs diff -tFH tank/fs@a").contains(&line), "{line}");
}

/// Goal: a clone is compared with its origin's snapshots.
#[test]
fn a_clone_is_compared_with_its_origin() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/fs");
    fs::write(stand.path("tank/fs/old"), "").expect("a file");
    for line in ["zfs snapshot tank/fs@a", "zfs snapshot tank/fs@b", "zfs clone tank/fs@b tank/c"] {
        stand.good(line);
    }
    fs::write(stand.path("tank/c/new"), "").expect("a file");
    let place = stand.path("tank/c").display().to_string();
    for line in ["zfs diff tank/fs@a tank/c", "zfs diff tank/fs@b tank/c"] {
        let mut all: Vec<String> = stand.good(line).lines().map(str::to_owned).collect();
        all.sort();
        assert_eq!(all, [format!("+\t{place}/new"), format!("M\t{place}/")], "{line}");
    }
}

/// Goal: invalid comparisons are refused with OpenZFS's messages.
#[test]
fn what_cannot_be_compared_is_refused() {
    let Some(stand) = Stand::new("") else { return };
    for line in ["zfs create tank/fs", "zfs create -o canmount=off tank/off", "zfs create tank/other"] {
        stand.good(line);
    }
    for line in ["zfs snapshot -r tank@a", "zfs snapshot -r tank@b"] {
        stand.good(line);
    }
    for (line, words) in [
        ("zfs diff tank/fs", "Badly formed snapshot name tank/fs: missing '@' delimiter in snapshot name\n"),
        ("zfs diff tank/no@a", "cannot open 'tank/no': dataset does not exist\n"),
        ("zfs diff tank/fs@no", "Unable to obtain diffs: No such file or directory\n"),
        (
            "zfs diff tank/fs@b tank/fs@a",
            "Unable to obtain diffs: \n   Not an earlier snapshot from the same fs\n",
        ),
        ("zfs diff tank/fs@a tank/other@b", "Not an earlier snapshot from the same fs: invalid name\n"),
        ("zfs diff tank/fs@a tank/fs@", "Unable to determine which snapshots to compare: invalid name\n"),
        (
            "zfs diff tank/off@a",
            "Cannot diff an unmounted snapshot: operation not applicable to datasets of this type\n",
        ),
    ] {
        assert_eq!(stand.bad(line), words, "{line}");
    }
    for (line, words) in [
        ("zfs diff", "must provide at least one snapshot name\n"),
        ("zfs diff tank/fs@a b c", "too many arguments\n"),
        ("zfs diff -x tank/fs@a", "invalid option 'x'\n"),
    ] {
        let ran = stand.ran(line);
        assert_eq!(ran.code, 2, "{line}");
        assert!(ran.err.starts_with(&format!("{words}usage:\n\tdiff [-FHth] ")), "{}", ran.err);
    }
}

/// Goal: a file with a name is never shown as removed. This holds if its last new name was removed,
/// with or without its directory, and if none of its old names is left.
#[test]
fn a_living_link_is_not_removed() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/fs");
    let at = |name: &str| stand.path("tank/fs").join(name);
    for name in ["s", "d", "x"] {
        fs::create_dir(at(name)).expect("a folder");
    }
    for name in ["s/kept", "s/deep", "s/moved", "s/gone"] {
        fs::write(at(name), name).expect("a file");
    }
    stand.good("zfs snapshot tank/fs@a");
    fs::create_dir(at("e")).expect("a folder");
    let link = |from: &str, to: &str| fs::hard_link(at(from), at(to)).expect("a link");
    link("s/kept", "d/k");
    fs::remove_file(at("d/k")).expect("removed");
    link("s/deep", "e/d");
    fs::remove_dir_all(at("e")).expect("removed");
    link("s/moved", "x/m");
    link("s/moved", "d/m");
    fs::remove_file(at("s/moved")).expect("removed");
    fs::remove_file(at("d/m")).expect("removed");
    fs::remove_file(at("s/gone")).expect("removed");
    let want =
        ["-\t/s/gone", "M\t/", "M\t/d", "M\t/s", "M\t/s/deep", "M\t/s/kept", "M\t/x", "R\t/s/moved -> /x/m"];
    assert_eq!(lines(&stand, "zfs diff tank/fs@a"), want);
}

/// Goal: a chain of directories deeper than any path that a program can use is shown, each
/// directory with its whole path.
#[test]
fn a_deep_chain_is_shown() {
    const DEPTH: usize = 3000;
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/fs");
    stand.good("zfs snapshot tank/fs@a");
    let name = "a-folder-of-a-long-chain";
    let mut at = fs::File::open(stand.path("tank/fs")).expect("it is mounted");
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).expect("a folder");
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
        at = rustix::fs::openat(&at, name, flags, rustix::fs::Mode::empty()).expect("it is there").into();
    }
    drop(at);
    let all = lines(&stand, "zfs diff tank/fs@a");
    assert_eq!(all.len(), DEPTH + 1);
    let longest = all.iter().map(String::len).max();
    assert_eq!(longest, Some("+\t".len() + DEPTH * ("/".len() + name.len())));
}
