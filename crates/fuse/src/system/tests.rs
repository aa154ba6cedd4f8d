use super::*;

/// Goal: a line of the mount table gives target (with its escapes decoded), source, type, device
/// and user, whatever optional fields lie between.
#[test]
fn reads_lines_of_the_mount_table() {
    let line = br"36 35 0:47 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - fuse.poolhouse tank/a\040b ro,user_id=1000,group_id=5,allow_other";
    let mount = parse_line(line).unwrap();
    assert_eq!(mount.target, PathBuf::from("/mnt/a b\\c"));
    assert_eq!((mount.id, mount.source.as_os_str()), (36, std::ffi::OsStr::new("tank/a b")));
    assert_eq!(mount.fs_type, FS_TYPE);
    assert_eq!(mount.device, "0:47");
    assert_eq!((mount.user, mount.others), (Some(1000), true));
    let line = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw";
    let mount = parse_line(line).unwrap();
    assert_eq!((mount.target, mount.user, mount.others), (PathBuf::from("/"), None, false));
    assert_eq!(parse_line(b""), None);
    assert_eq!(parse_line(b"1 2 3 4"), None);
}

/// Goal: a mount in another namespace, or a bind mount, keeps a file system unless the unmount may
/// propagate to it.
///
/// It may if the parent mount is in the same peer group, or follows a group, and the mountpoint is
/// the same directory.
#[test]
fn knows_what_keeps_a_file_system() {
    const OURS: &str = "- fuse.poolhouse tank/a rw,user_id=0";
    let keeper = |own: &str, foreign: &str| {
        let places = Places {
            own: Table::read(own.replace("OURS", OURS).as_bytes()),
            foreign: vec![(u32::MAX, Table::read(foreign.replace("OURS", OURS).as_bytes()))],
        };
        places.keeper("0:47", Path::new("/mnt/a"))
    };
    let shared = "20 1 8:1 / / rw shared:1 - ext4 sda rw\n30 20 0:47 / /mnt/a rw shared:9 OURS";
    let private = "20 1 8:1 / / rw - ext4 sda rw\n30 20 0:47 / /mnt/a rw OURS";
    let there = Some(format!(" (pid {})", u32::MAX));
    let copy = |tags: &str, target: &str| {
        format!("50 1 8:1 / / rw {tags}- ext4 sda rw\n51 50 0:47 / {target} rw shared:8 OURS")
    };
    for (own, foreign, kept) in [
        (shared, String::new(), false),
        (shared, copy("shared:1 ", "/mnt/a"), false),
        (shared, copy("master:1 ", "/mnt/a"), false),
        (shared, copy("shared:7 master:3 ", "/mnt/a"), false),
        (shared, copy("master:1 ", "/mnt/b"), true),
        (shared, copy("shared:2 ", "/mnt/a"), true),
        (shared, copy("", "/mnt/a"), true),
        (private, copy("", "/mnt/a"), true),
        (private, copy("master:1 ", "/mnt/a"), true),
        // The parent mount is not visible.
        (shared, "51 50 0:47 / /mnt/a rw OURS".to_owned(), false),
        (shared, copy("", "/mnt/a").replace("0:47", "0:48"), false),
    ] {
        assert_eq!(keeper(own, &foreign), there.clone().filter(|_| kept), "{foreign}");
    }
    // The root of the other namespace is a folder of ours.
    let inside = "50 1 8:1 /mnt / rw master:1 - ext4 sda rw\n51 50 0:47 / /a rw OURS";
    assert_eq!(keeper(shared, inside), None);
    for own in [shared, private] {
        let bound = format!("{own}\n31 20 0:47 /sub /other rw shared:9 OURS");
        assert_eq!(keeper(&bound, ""), Some("another mount of it, at /other".to_owned()));
        let places = Places { own: Table::read(bound.replace("OURS", OURS).as_bytes()), foreign: Vec::new() };
        let of = |folder: &str| places.bound("0:47", Path::new(folder), 8);
        assert_eq!((of("/sub"), of("/su")), (vec!["another mount of it, at /other".to_owned()], Vec::new()));
    }
}

/// Goal: only a line of its own with the exact word lets other users in.
#[test]
fn reads_the_helpers_settings() {
    for (text, allowed) in [
        ("# user_allow_other - lets users\n#user_allow_other\nmount_max = 1000\n", false),
        ("user_allow_others\n", false),
        ("", false),
        ("mount_max = 5\n  user_allow_other # all\n", true),
    ] {
        assert_eq!(allows_others(text), allowed, "{text}");
    }
}

/// Goal: the table of this machine is readable and has a root.
#[test]
fn reads_the_table_of_this_machine() {
    assert!(table().unwrap().iter().any(|mount| mount.target == Path::new("/")));
    assert!(is_mounted(Path::new("/proc")).unwrap());
    assert!(!is_mounted(Path::new("/proc/self")).unwrap());
}

/// Goal: only octal triples are escapes; other backslashes stay.
#[test]
fn unescapes_only_octal_triples() {
    assert_eq!(unescape(br"a\04"), br"a\04");
    assert_eq!(unescape(br"a\999b"), br"a\999b");
    assert_eq!(unescape(br"\011"), b"\t");
}

/// Goal: a mountpoint opens only through a path without symbolic links.
#[test]
fn no_link_is_followed_to_a_mountpoint() {
    let dir = tempfile::tempdir().unwrap();
    let at = std::fs::canonicalize(dir.path()).unwrap();
    std::fs::create_dir_all(at.join("a/b")).unwrap();
    std::os::unix::fs::symlink("a", at.join("link")).unwrap();
    let Ok(Some(_)) = pin(&at.join("a/b")) else { return };
    assert_eq!(pin(&at.join("link")).map(drop), Err(Errno::LOOP));
    assert_eq!(pin(&at.join("link/b")).map(drop), Err(Errno::LOOP));
    assert_eq!(pin(&at.join("none")).map(drop), Err(Errno::NOENT));
}
