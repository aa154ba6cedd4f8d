use crate::discovery::host::*;

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

/// Goal: a pool's history records what created it, in OpenZFS's words, also if the system gives no
/// names.
#[test]
fn versions_of_all() {
    let root = tempfile::tempdir().unwrap();
    let own = env!("CARGO_PKG_VERSION");
    let told = |system: &str| {
        let machine = std::env::consts::ARCH;
        format!("pool version 28; software version poolhouse-{own}; uts box {system} {machine}")
    };
    assert_eq!(versions_below(root.path(), 28, "box"), told("- -"));
    std::fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
    for (file, text) in [("osrelease", "6.1.0-4\n"), ("version", "#1 SMP Debian\n")] {
        std::fs::write(root.path().join("proc/sys/kernel").join(file), text).unwrap();
    }
    assert_eq!(versions_below(root.path(), 28, "box"), told("6.1.0-4 #1 SMP Debian"));
}

/// Goal: memory is the machine's, or the least that the control groups above allow, in both
/// versions.
#[test]
fn memory_of_a_control_group() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let memory = || memory_below(root.path());
    assert_eq!(memory(), 1 << 30);
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");
    assert_eq!(memory(), 16 << 30);
    put("proc/self/cgroup", "0::/a/b\n");
    assert_eq!(memory(), 16 << 30);
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_eq!(memory(), 16 << 30);
    put("sys/fs/cgroup/a/memory.max", "4294967296\n");
    assert_eq!(memory(), 4 << 30);
    put("proc/self/cgroup", "5:cpu:/x\n4:memory:/x\n0::/a/b\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    assert_eq!(memory(), 2 << 30);
}

/// Goal: free memory is the machine's, or the least that the control groups above have left, in
/// both versions. Reclaimable memory counts as left, and a group without a limit leaves all.
#[test]
fn memory_left_in_a_control_group() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let left = || memory_left_below(root.path());
    assert_eq!(left(), None);
    put("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 1000 kB\n");
    assert_eq!(left(), Some(1000 << 10));
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "600000\n");
    assert_eq!(left(), Some(1000 << 10), "no limit");
    put("sys/fs/cgroup/a/memory.max", "900000\n");
    put("sys/fs/cgroup/a/memory.current", "800000\n");
    assert_eq!(left(), Some(100_000));
    put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 20000\nslab_reclaimable 3000\nactive_file 9\n");
    assert_eq!(left(), Some(123_000));
    put("sys/fs/cgroup/a/b/memory.high", "650000\n");
    assert_eq!(left(), Some(50_000));
    put("sys/fs/cgroup/a/b/memory.current", "700000\n");
    assert_eq!(left(), Some(0), "more than it should");
    put("proc/self/cgroup", "4:memory:/x\n");
    put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000\n");
    put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4500\n");
    put("sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 100\n");
    assert_eq!(left(), Some(600));
}
