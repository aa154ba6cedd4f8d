//! Differences that OpenZFS's own test suite found: commands on a pool of this process, and on
//! mounts if they are possible.

use crate::common::stand::Stand;
use crate::common::{good, pool, run};
use std::fs;
use std::os::unix::fs::FileExt;

/// Goal: a dataset that is a clone of its own descendant, after a promotion, is visited once.
#[test]
fn a_dataset_may_depend_on_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    for line in ["zfs create tank/fs", "zfs snapshot tank/fs@snap", "zfs clone tank/fs@snap tank/fs/clone"] {
        good(line, &house);
    }
    good("zfs promote tank/fs/clone", &house);
    let said = run("zfs destroy tank/fs", house.clone());
    assert_eq!(said.code, 1);
    assert!(said.err.starts_with("cannot destroy 'tank/fs': filesystem has children\n"), "{}", said.err);
    let said = run("zfs destroy tank/fs/clone", house.clone());
    assert!(
        said.err.starts_with("cannot destroy 'tank/fs/clone': filesystem has children\n"),
        "{}",
        said.err
    );
    good("zfs promote tank/fs", &house);
    good("zfs destroy -r tank/fs", &house);
}

/// Goal: names have fewer than fifty levels below their pool, and names of properties are
/// case-sensitive.
#[test]
fn names_have_bounds() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let deep = |levels: usize| format!("tank{}", "/a".repeat(levels));
    let said = run(&format!("zfs create -p {}", deep(50)), house.clone());
    assert_eq!(said.code, 1);
    assert!(said.err.ends_with("maximum name nesting depth exceeded\n"), "{}", said.err);
    good(&format!("zfs create -p {}", deep(49)), &house);
    let said = run("zfs create -o QuOta=none tank/b", house.clone());
    assert_eq!(said.code, 1, "{}", said.err);
    // The limit can be raised. Datasets that are too deep after it is lowered again may be renamed,
    // but not deeper.
    house.set_tunable("zfs_max_dataset_nesting", &60).expect("it is set");
    good(&format!("zfs create -p {}/b", deep(52)), &house);
    house.set_tunable("zfs_max_dataset_nesting", &50).expect("it is set back");
    good(&format!("zfs rename {}/b {}/c", deep(52), deep(52)), &house);
    assert_ne!(run(&format!("zfs rename {}/c {}/d/d", deep(52), deep(52)), house.clone()).code, 0);
}

/// Goal: share options are checked although nothing is shared. `zfs share -a` does nothing if no
/// dataset requests it, and `zfs share` by name is refused with the reason.
#[test]
fn nothing_is_shared() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    good("zfs create tank/fs", &house);
    good("zfs share -a", &house);
    good("zfs unshare -a", &house);
    let legacy = "cannot share 'tank/fs': legacy share\nuse exports(5) or smb.conf(5) to share this filesystem, or set the sharenfs or \
                  sharesmb property\n";
    let said = run("zfs share tank/fs", house.clone());
    assert_eq!((said.code, said.err.as_str()), (1, legacy));
    for bad in ["ON", "sss", "rw=[::1", ""] {
        let said = run(&format!("zfs set sharenfs={bad} tank/fs"), house.clone());
        let why = "cannot set property for 'tank/fs': 'sharenfs' cannot be set to invalid options\n";
        assert_eq!((said.code, said.err.as_str()), (1, why), "{bad}");
    }
    assert_ne!(run("zfs set sharesmb=rw tank/fs", house.clone()).code, 0);
    for fine in ["on", "rw=@192.168.0.0/24:[2001:db8::]/32,no_root_squash,sec=sys", "off"] {
        good(&format!("zfs set sharenfs={fine} tank/fs"), &house);
    }
    good("zfs set sharenfs=on tank/fs", &house);
    assert_eq!(run("zfs share tank/fs", house.clone()).err, "cannot share 'tank/fs': no mountpoint set\n");
    assert_eq!(
        run("zfs unshare tank/fs", house.clone()).err,
        "cannot unshare 'tank/fs': not currently shared\n"
    );
}

/// Goal: the zstd feature is active as soon as the property requests it. A pool without a feature
/// is not created with a property that needs it.
#[test]
fn features_go_with_properties() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let zstd = || good("zpool get -H -o value feature@zstd_compress tank", &house);
    assert_eq!(zstd(), "enabled\n");
    good("zfs create -o compression=zstd-9 tank/fs", &house);
    assert_eq!(zstd(), "active\n");
    good("zfs destroy tank/fs", &house);
    assert_eq!(zstd(), "enabled\n");
    let image = dir.path().join("other");
    fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    let line = format!(
        "zpool create -O mountpoint=none -O compression=lz4 -o feature@lz4_compress=disabled other {}",
        image.display()
    );
    assert_eq!(run(&line, house.clone()).code, 1);
    good(&line.replace("compression=lz4", "compression=lzjb"), &house);
}

/// Goal: a device that was a hot spare of a pool that no longer exists is free.
#[test]
fn spares_of_nobody_are_free() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let image = |name: &str| {
        let path = dir.path().join(name);
        fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("an image");
        path.display().to_string()
    };
    let (data, spare) = (image("data"), image("spare"));
    good(&format!("zpool create -m none other {data} spare {spare}"), &house);
    good("zpool destroy other", &house);
    good(&format!("zpool create -m none other mirror {data} {spare}"), &house);
}

/// Goal: `zdb -l` finds no label where labels were cleared.
#[test]
fn cleared_labels_are_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    good("zpool export tank", &house);
    let image = dir.path().join("d0.img").display().to_string();
    let looked = || {
        let words = ["-lq".to_owned(), image.clone()];
        let clock = console::Clock::system();
        let sink = || console::Out::new(Box::new(std::io::sink()));
        zdb::run(&words, &mut sink(), &mut sink(), &clock)
    };
    assert_eq!(looked(), 0);
    good(&format!("zpool labelclear -f {image}"), &house);
    assert_eq!(looked(), 2);
}

/// Goal: property values sort as words, not by the numbers that encode them.
#[test]
fn words_sort_as_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    for (name, checksum) in
        [("a", "on"), ("b", "sha256"), ("c", "off"), ("d", "fletcher4"), ("e", "fletcher2")]
    {
        good(&format!("zfs create -o checksum={checksum} tank/{name}"), &house);
    }
    let sorted = good("zfs list -H -d 1 -o name -s checksum -t filesystem tank", &house);
    assert_eq!(sorted, "tank/e\ntank/d\ntank/c\ntank\ntank/a\ntank/b\n");
}

/// Goal: a file system below an encrypted one may be unencrypted.
#[test]
fn encryption_can_end_below() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let key = dir.path().join("key");
    fs::write(&key, "a passphrase\n").expect("a key");
    good(
        &format!(
            "zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{} tank/e",
            key.display()
        ),
        &house,
    );
    good("zfs create -o encryption=off tank/e/clear", &house);
    let shown = "zfs get -H -o value encryption,encryptionroot,keystatus tank/e/clear";
    assert_eq!(good(shown, &house), "off\n-\n-\n");
    good("zfs unload-key tank/e", &house);
    good("zfs create tank/e/clear/below", &house);
}

/// Goal: file systems that inherit a mount point follow it, from `none` too. With `canmount=off`,
/// those inside the mount continue in the directory below it.
#[test]
fn heirs_follow_a_mountpoint() {
    let Some(stand) = Stand::new("") else { return };
    for line in [
        "zfs create -o mountpoint=none tank/a",
        "zfs create tank/a/b",
        "zfs create -o mountpoint=/own tank/a/own",
    ] {
        stand.good(line);
    }
    stand.good("zfs unmount tank/a/own");
    stand.good("zfs inherit mountpoint tank/a");
    assert_eq!(
        stand.good("zfs list -H -o name,mounted -r tank/a"),
        "tank/a\tyes\ntank/a/b\tyes\ntank/a/own\tno\n"
    );
    stand.good("zfs set canmount=off tank/a");
    assert_eq!(
        stand.good("zfs list -H -o name,mounted -r tank/a"),
        "tank/a\tno\ntank/a/b\tyes\ntank/a/own\tno\n"
    );
    // A mount that fails is reported, and the property is set.
    let file = stand.path("file");
    fs::write(&file, b"").expect("a file");
    stand.good("zfs create -o mountpoint=legacy tank/l");
    let said = stand.ran("zfs set mountpoint=/file tank/l");
    assert_eq!((said.code, said.err.contains("cannot mount 'tank/l'")), (0, true), "{}", said.err);
}

/// Goal: a user property of a pool that was never set is a dash.
#[test]
fn properties_that_nobody_set() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let shown = || good("zpool get -H -o value,source cool:one tank", &house);
    assert_eq!(shown(), "-\tdefault\n");
    good("zpool set cool:one=1 tank", &house);
    assert_eq!(shown(), "1\tlocal\n");
    good("zpool set cool:one= tank", &house);
    assert_eq!(shown(), "-\tdefault\n");
}

/// Goal: `zpool destroy` releases a read-only pool unchanged. The label of an unused spare can be
/// cleared, and that of one in use can't.
#[test]
fn pools_and_spares_are_let_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let spare = dir.path().join("spare");
    fs::File::create(&spare).and_then(|file| file.set_len(128 << 20)).expect("an image");
    let spare = spare.display().to_string();
    good(&format!("zpool add tank spare {spare}"), &house);
    assert_ne!(run(&format!("zpool labelclear -f {spare}"), house.clone()).code, 0);
    good(&format!("zpool remove tank {spare}"), &house);
    good(&format!("zpool labelclear {spare}"), &house);
    good("zpool export tank", &house);
    let import = format!("zpool import -d {} -o readonly=on tank", dir.path().display());
    good(&import, &house);
    good("zpool destroy tank", &house);
    good(&import, &house);
}

/// Goal: the label of a detached device belongs to no pool, and can be cleared once.
///
/// Before the detach its pool uses it. If the device is offline or faulted, the label can be
/// cleared by force, and the device can be replaced by itself.
#[test]
fn what_is_detached_may_be_cleared() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let [first, side] = ["d0.img", "side"].map(|name| dir.path().join(name).display().to_string());
    fs::File::create(&side).and_then(|file| file.set_len(128 << 20)).expect("an image");
    good(&format!("zpool attach -w tank {first} {side}"), &house);
    let clear = format!("zpool labelclear {side}");
    let by_force = format!("zpool labelclear -f {side}");
    for rest in ["offline", "offline -f"] {
        assert_ne!(run(&by_force, house.clone()).code, 0, "{rest}");
        good(&format!("zpool {rest} tank {side}"), &house);
        assert_ne!(run(&clear, house.clone()).code, 0, "{rest}");
        good(&by_force, &house);
        good(&format!("zpool replace -w tank {side}"), &house);
        good("zpool scrub -w tank", &house);
        let status = good("zpool status tank", &house);
        assert!(status.contains("state: ONLINE") && status.contains(" 0 errors "), "{status}");
    }
    // A device that was overwritten while in use can be replaced by itself too.
    let file = fs::File::options().write(true).open(&side).expect("an image");
    file.write_all_at(&vec![0; 128 << 20], 0).expect("room");
    good(&format!("zpool replace -w tank {side}"), &house);
    good("zpool scrub -w tank", &house);
    let status = good("zpool status tank", &house);
    assert!(status.contains("state: ONLINE") && status.contains(" 0 errors "), "{status}");
    assert_ne!(run(&clear, house.clone()).code, 0);
    good(&format!("zpool detach tank {side}"), &house);
    good(&clear, &house);
    assert_ne!(run(&clear, house.clone()).code, 0);
}

/// Goal: a device fails as injected and counts the errors, until the fault is canceled or the pool
/// is exported.
#[test]
fn faults_are_asked_for() {
    use api::{DeviceFault, InjectRequest};
    let dir = tempfile::tempdir().expect("a folder");
    let images: Vec<String> = ["d0.img", "d1.img"].map(|n| dir.path().join(n).display().to_string()).into();
    for image in &images {
        fs::File::create(image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    }
    let house: std::rc::Rc<dyn api::Requests> =
        std::rc::Rc::new(server::service::LocalService::new().in_process());
    good(&format!("zpool create -m none tank mirror {}", images.join(" ")), &house);
    let ask = |request: &InjectRequest| house.inject(request).expect("it is done");
    let listed = |id| ask(&InjectRequest::List).into_iter().find(|one| one.id == id);
    let fault = |on: &str| InjectRequest::Device {
        pool: "tank".into(),
        device: images[0].clone(),
        label: None,
        on: Some(on.to_owned()),
        wrong: DeviceFault::Error(5),
        often: u32::MAX,
    };
    let write = |name: &str| {
        good(&format!("zfs create tank/{name}"), &house);
        good("zpool sync tank", &house);
    };
    let charged = || {
        let status = good("zpool status -pP tank", &house);
        let line = status.lines().find(|l| l.trim_start().starts_with(&images[0])).expect("the device");
        let errors = line.split_whitespace().nth(3).and_then(|n| n.parse::<u64>().ok());
        errors.expect("errors of writing")
    };
    write("before");
    assert_eq!(charged(), 0);
    let added = ask(&fault("write"));
    assert_eq!((added.len(), added[0].pool.as_str()), (1, "tank"));
    let id = added[0].id;
    write("with");
    let hits = listed(id).expect("it is still asked for").hits;
    assert!(hits > 0 && charged() > 0, "it struck {hits} times");
    assert_eq!(ask(&InjectRequest::Cancel { id: Some(id) }).len(), 1);
    assert!(listed(id).is_none());
    good("zpool clear tank", &house);
    write("after");
    assert_eq!(charged(), 0);
    let other = ask(&fault("free"))[0].id;
    assert!(listed(other).is_some());
    good("zpool export tank", &house);
    assert!(listed(other).is_none(), "it went with its pool");
}

/// Goal: `zpool sync -f` syncs a txg although nothing has changed. Without `-f`, none is synced.
#[test]
fn syncing_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    good("zpool sync tank", &house);
    let image = dir.path().join("d0.img");
    let txg = || {
        let device = device::FileDevice::open(&image, device::Mode::Peek).expect("the image");
        let found = spa::discovery::label::read_uberblocks(&device, ondisk::Ashift(9));
        found.iter().map(|one| one.uberblock.txg.0).max()
    };
    let before = txg();
    good("zpool sync -f tank", &house);
    assert!(txg() > before);
}

/// Goal: a dry run of `zfs create` checks everything, and shows the space that would be reserved.
/// Volumes of pools of old versions use `reservation`.
#[test]
fn drafts_are_checked() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let drafted = good("zfs create -nP -b 4k -V 10m tank/v", &house);
    let lines: Vec<&str> = drafted.lines().collect();
    let begin = ["create\ttank/v", "property\tvolblocksize\t4096", "property\tvolsize\t10485760"];
    assert_eq!(lines[..3], begin);
    assert!(lines.len() == 4 && lines[3].starts_with("property\trefreservation\t"), "{drafted}");
    assert_eq!(good("zfs create -nP -s -b 4k -V 10m tank/v", &house).lines().count(), 3);
    assert_eq!(good("zfs create -n -p -o compression=on tank/a/b", &house), "");
    for bad in ["-o nosuchprop=42 tank/a", "-o compression=loud tank/a", "-b 1234 -V 10m tank/v"] {
        let said = run(&format!("zfs create -n {bad}"), house.clone());
        assert!(said.code != 0 && said.err.starts_with("cannot create 'tank/"), "{bad}: {}", said.err);
    }
    assert_eq!(good("zfs list -H -o name", &house), "tank\n");
    let made = good("zfs create -P -b 4k -V 10m tank/v", &house);
    assert_eq!(made, drafted);
    let reserved = good("zfs get -Hp -o value refreservation tank/v", &house);
    assert_eq!(lines[3].split('\t').nth(2), Some(reserved.trim()));
    let image = dir.path().join("old");
    fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    good(&format!("zpool create -o version=1 -m none old {}", image.display()), &house);
    good("zfs create -V 1m old/v", &house);
    let kept = good("zfs get -Hp -o value reservation old/v", &house);
    assert!(kept.trim().parse::<u64>().is_ok_and(|n| n > 1 << 20), "{kept}");
}

/// Goal: the list of a snapshot's clones is truncated where OpenZFS truncates it, for display only.
/// A destroy finds all of them.
#[test]
fn long_values_are_cut_off() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    good("zfs create tank/fs", &house);
    good("zfs snapshot tank/fs@s", &house);
    for n in 0..42 {
        good(&format!("zfs clone tank/fs@s tank/{}{n:02}", "x".repeat(200)), &house);
    }
    for shown in ["zfs list -H -t snapshot -o clones tank/fs@s", "zfs get -H -o value clones tank/fs@s"] {
        assert_eq!(good(shown, &house).len(), 8192, "{shown}");
    }
    good("zfs destroy -R tank/fs@s", &house);
    assert_eq!(good("zfs list -H -o name", &house), "tank\ntank/fs\n");
}

/// Goal: a mount option that differs from its property is shown as a temporary value, and no longer
/// after a new mount.
#[test]
fn options_of_a_mount_are_temporary() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    let shown = |stand: &Stand| {
        stand.good("zfs get -H -o property,value,source atime,exec,readonly,setuid,devices tank/a")
    };
    let before = shown(&stand);
    assert!(!before.contains("temporary"), "{before}");
    stand.good("zfs unmount tank/a");
    stand.good("zfs mount -o noatime,ro,noexec,nosuid,nodev tank/a");
    let with = "atime\toff\ttemporary\nexec\toff\ttemporary\nreadonly\ton\ttemporary\nsetuid\toff\ttemporary\ndevices\toff\ttemporary\n";
    assert_eq!(shown(&stand), with);
    assert_eq!(stand.good("zfs get -H -o name,property -s temporary atime tank/a"), "tank/a\tatime\n");
    stand.good("zfs unmount tank/a");
    stand.good("zfs mount tank/a");
    assert_eq!(shown(&stand), before);
}

/// Goal: `mount -t zfs` mounts a snapshot read-only at a directory. It is unmounted with its
/// snapshot unless it is in use, and with its pool.
#[test]
fn snapshots_are_mounted() {
    let Some(stand) = Stand::new("") else { return };
    if !Stand::is_root() {
        return;
    }
    stand.good("zfs create tank/a");
    fs::write(stand.path("tank/a/file"), b"then").expect("a file");
    stand.good("zfs snapshot tank/a@s");
    fs::write(stand.path("tank/a/file"), b"now").expect("a file");
    let at = stand.path("there");
    fs::create_dir(&at).expect("a folder");
    let mount = |options: &str| {
        let sink = || console::Out::new(Box::new(std::io::sink()));
        let words = ["-o", options, "tank/a@s", &at.display().to_string()].map(str::to_owned);
        cli::mount_zfs::run(&mut sink(), &mut sink(), &*stand.house, &words)
    };
    assert_eq!(mount("rw"), 0);
    assert_eq!(fs::read(at.join("file")).expect("it is there"), b"then");
    let refused = fs::write(at.join("file"), b"never").expect_err("it is a snapshot");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_ne!(mount("rw,remount"), 0);
    assert_eq!(mount("ro,remount"), 0);
    let open = fs::File::open(at.join("file")).expect("it opens");
    assert_ne!(stand.ran("zfs destroy tank/a@s").code, 0);
    drop(open);
    stand.good("zfs rename tank/a tank/b");
    let mounts = stand.house.mounts().expect("they are told");
    assert!(mounts.iter().any(|mount| mount.dataset == "tank/b@s"), "{mounts:?}");
    stand.good("zfs destroy tank/b@s");
    assert!(fs::read_dir(&at).expect("a folder").next().is_none());
}

/// Goal: an object is found by its object set's number and its own. The path is that in the whole
/// system if the dataset is mounted.
#[test]
fn objects_have_paths() {
    use std::os::unix::fs::MetadataExt;
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    fs::create_dir(stand.path("tank/a/d")).expect("a folder");
    fs::write(stand.path("tank/a/d/f"), b"").expect("a file");
    let object = fs::metadata(stand.path("tank/a/d/f")).expect("it is there").ino();
    let objset: u64 = stand.good("zfs get -H -o value objsetid tank/a").trim().parse().expect("a number");
    let found = || stand.house.object_path("tank", &objset, &object).expect("it is told");
    let whole = found();
    assert_eq!((whole.dataset.as_deref(), whole.path.as_deref()), (Some("tank/a"), Some("/d/f")));
    assert!(whole.mountpoint.is_some_and(|at| at.ends_with("/tank/a")));
    stand.good("zfs unmount tank/a");
    let stored = found();
    assert_eq!((stored.path.as_deref(), stored.mountpoint), (Some("/d/f"), None));
    assert_eq!(stand.house.object_path("tank", &u64::MAX, &1).expect("it is told").dataset, None);
    let nothing = stand.house.object_path("tank", &objset, &(1 << 40)).expect("it is told");
    assert_eq!((nothing.dataset.as_deref(), nothing.path), (Some("tank/a"), None));
}

/// Goal: keys are requested over HTTP and HTTPS, and a failure is reported with its reason.
#[test]
fn keys_may_be_far() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    for scheme in ["https", "http"] {
        let url = format!("{scheme}://localhost:{closed}/key");
        let line = format!("zfs create -o encryption=on -o keyformat=raw -o keylocation={url} tank/e");
        let said = run(&line, house.clone());
        let begin = format!("cannot create 'tank/e': Failed to connect to {url}: ");
        assert!(said.code == 1 && said.err.starts_with(&begin), "{}", said.err);
    }
}
