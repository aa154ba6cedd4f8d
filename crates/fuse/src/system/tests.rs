use super::*;

/// A line of the mount table gives target (with its escapes undone), source, type, device and user, whatever
/// optional fields lie between.
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

/// The helper's settings let others in by a word on a line of its own, and by nothing that looks like it.
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

/// The table of this machine is readable and has a root.
#[test]
fn reads_the_table_of_this_machine() {
    assert!(table().unwrap().iter().any(|mount| mount.target == Path::new("/")));
    assert!(is_mounted(Path::new("/proc")).unwrap());
    assert!(!is_mounted(Path::new("/proc/self")).unwrap());
}

/// Escapes that are none stay as they are.
#[test]
fn unescapes_only_octal_triples() {
    assert_eq!(unescape(br"a\04"), br"a\04");
    assert_eq!(unescape(br"a\999b"), br"a\999b");
    assert_eq!(unescape(br"\011"), b"\t");
}

/// A path leads to what is mounted on as long as there is no link in it.
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
