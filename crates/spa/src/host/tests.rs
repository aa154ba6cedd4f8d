use super::*;

/// Goal: the hostid comes from the module's parameter, else from the file, else there is none.
#[test]
fn sources_of_the_hostid() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, bytes: &[u8]| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    assert_eq!(Host::from_root(root.path()), Host { hostid: 0, hostname: String::new() });
    put("etc/hostid", &[1, 2]);
    assert_eq!(Host::from_root(root.path()).hostid, 0);
    put("etc/hostid", &0x1234_5678u32.to_ne_bytes());
    put("proc/sys/kernel/hostname", b"box\n");
    assert_eq!(Host::from_root(root.path()), Host { hostid: 0x1234_5678, hostname: "box".into() });
    put("sys/module/spl/parameters/spl_hostid", b"0\n");
    assert_eq!(Host::from_root(root.path()).hostid, 0x1234_5678);
    put("sys/module/spl/parameters/spl_hostid", b"77\n");
    assert_eq!(Host::from_root(root.path()).hostid, 77);
}
