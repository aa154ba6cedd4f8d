//! Pools created and changed by commands in this process: the output, and the resulting state of
//! the pool.

use std::rc::Rc;

use crate::common::{good, pool, run};
use api::Requests;
use server::service::LocalService;

/// What the datasets of `datasets_come_and_go` do not allow, and the messages.
const REFUSED: [(&str, &str); 11] = [
    ("zfs create tank/a", "cannot create 'tank/a': dataset already exists\n"),
    ("zfs create tank/x/y", "cannot create 'tank/x/y': parent does not exist\n"),
    ("zfs snapshot tank/a@s2", "cannot create snapshot 'tank/a@s2': dataset already exists\n"),
    ("zfs set quota=x tank/b", "cannot set property for 'tank/b': bad numeric value 'x'\n"),
    ("zfs set nope=1 tank/b", "cannot set property for 'tank/b': invalid property 'nope'\n"),
    ("zfs hold keep tank/a@s2", "cannot hold snapshot 'tank/a@s2': tag already exists on this dataset\n"),
    (
        "zfs destroy tank/a@s2",
        "cannot destroy 'tank/a@s2': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\ntank/clone\n",
    ),
    (
        "zfs destroy tank/b",
        "cannot destroy 'tank/b': filesystem has children\nuse '-r' to destroy the following datasets:\ntank/b@s2\n",
    ),
    (
        "zfs destroy tank",
        "cannot destroy 'tank': operation does not apply to pools\nuse 'zfs destroy -r tank' to destroy all datasets in the pool\n\
         use 'zpool destroy tank' to destroy the pool itself\n",
    ),
    (
        "zfs rename tank/b tank/b/c",
        "cannot rename to 'tank/b/c': New dataset name cannot be a descendant of current dataset name\n",
    ),
    ("zfs promote tank/a", "cannot promote 'tank/a': not a cloned filesystem\n"),
];

/// Goal: datasets are created, changed and destroyed by commands, and each reply reflects the
/// change before it.
#[test]
fn datasets_come_and_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    for line in [
        "zfs create tank/a",
        "zfs create -p tank/b/c/d",
        "zfs snapshot -r tank@s1",
        "zfs clone tank/a@s1 tank/clone",
        "zfs create -s -V 20M -b 8k tank/v",
        "zfs set compression=zstd-3 quota=50M tank/b",
        "zfs bookmark tank/a@s1 #mark",
        "zfs hold keep tank/a@s1",
        "zfs rename tank/b/c tank/c",
        "zfs rename -r tank@s1 s2",
    ] {
        good(line);
    }
    assert_eq!(
        good("zfs list -H -t all -o name"),
        "tank\ntank@s2\ntank/a\ntank/a@s2\ntank/a#mark\ntank/b\ntank/b@s2\ntank/c\ntank/c@s2\ntank/c/d\ntank/c/d@s2\n\
         tank/clone\ntank/v\n"
    );
    assert_eq!(good("zfs get -H -o value compression,quota tank/b"), "zstd-3\n50M\n");
    assert_eq!(good("zfs get -H -o value origin tank/clone"), "tank/a@s2\n");
    for (line, words) in REFUSED {
        let r = ran(line);
        assert_eq!((r.code, r.err.as_str()), (1, words), "{line}");
    }
    for line in [
        "zfs release keep tank/a@s2",
        "zfs destroy tank/clone",
        "zfs destroy tank/a#mark",
        "zfs destroy -r tank/b",
        "zfs destroy tank@%",
        "zfs inherit compression tank/c",
        "zfs destroy -r tank/c",
        "zfs destroy tank/v",
        "zfs destroy -r tank/a",
    ] {
        good(line);
    }
    assert_eq!(good("zfs list -H -t all -o name"), "tank\n");
    assert!(good("zpool history tank").contains(" zfs destroy -r tank/a\n"));
    good("zpool destroy tank");
    assert_eq!(good("zpool list"), "no pools available\n");
}

/// Goal: a pool is not created on devices of another pool, nor twice with one name.
#[test]
fn pools_keep_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let image = dir.path().join("d0.img").display().to_string();
    let other = dir.path().join("d1.img").display().to_string();
    std::fs::File::create(&other).expect("an image").set_len(256 << 20).expect("room");
    let same = run(&format!("zpool create -f -m none more {image}"), house.clone());
    assert_eq!(
        (same.code, same.err),
        (
            1,
            format!(
                "invalid vdev specification\nthe following errors must be manually repaired:\n{image} is part of active pool 'tank'\n"
            )
        )
    );
    let twice = run(&format!("zpool create -m none tank {other}"), house.clone());
    assert_eq!((twice.code, twice.err.as_str()), (1, "cannot create 'tank': pool already exists\n"));
    let small = dir.path().join("small").display().to_string();
    std::fs::File::create(&small).expect("an image").set_len(1 << 20).expect("room");
    let small = run(&format!("zpool create -m none more {small}"), house);
    assert_eq!(
        (small.code, small.err.as_str()),
        (1, "cannot create 'more': one or more devices is less than the minimum size (64M)\n")
    );
}

/// Goal: a pool grows, and gets spares and cache devices, and loses these again, by commands.
///
/// Invalid requests are refused with OpenZFS's messages, and the history records all changes.
#[test]
fn a_pool_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    let image = |name: &str| {
        let path = dir.path().join(name);
        std::fs::File::create(&path).expect("an image").set_len(128 << 20).expect("room");
        path.display().to_string()
    };
    let (d1, d2, m0, m1, l0, s0, s1) =
        (image("d1"), image("d2"), image("m0"), image("m1"), image("l0"), image("s0"), image("s1"));
    let size = |of: &str| of.trim().parse::<u64>().expect("a number");
    let before = size(&good("zpool list -Hp -o size tank"));
    good(&format!("zpool add tank {d1}"));
    assert!(size(&good("zpool list -Hp -o size tank")) > before);
    let mixed = ran(&format!("zpool add tank mirror {m0} {m1}"));
    assert_eq!(
        (mixed.code, mixed.err.as_str()),
        (
            1,
            "invalid vdev specification\nuse '-f' to override the following errors:\n\
             mismatched replication level: pool uses file and new vdev is mirror\n"
        )
    );
    let odd = ran(&format!("zpool add -o ashift=12 tank {d2}"));
    assert_eq!(
        (odd.code, odd.err.as_str()),
        (1, "cannot add to 'tank': adding devices with different physical sector sizes is not allowed\n")
    );
    good(&format!("zpool add -f tank mirror {m0} {m1}"));
    good(&format!("zpool add tank spare {s0} {s1} cache {l0}"));
    let status = good("zpool status -P tank");
    for line in [format!("  {s0}"), format!("  {l0}"), "mirror-2".to_owned()] {
        assert!(status.contains(&line), "{line}: {status}");
    }
    good(&format!("zpool remove tank {s1}"));
    good(&format!("zpool remove tank {l0}"));
    let status = good("zpool status -P tank");
    assert!(status.contains(&s0) && !status.contains(&s1) && !status.contains(&l0), "{status}");
    let gone = ran(&format!("zpool remove tank {s1}"));
    assert_eq!((gone.code, gone.err), (1, format!("cannot remove {s1}: no such device in pool\n")));
    assert_eq!(ran(&format!("zpool remove tank {d1}")).code, 1);
    good("zpool clear tank");
    good(&format!("zpool clear tank {d1}"));
    let history = good("zpool history -i tank");
    for line in ["zpool add -f tank mirror", "vdev remove"] {
        assert!(history.contains(line), "{line}: {history}");
    }
    good("zpool destroy tank");
}

/// Goal: a pool gets properties and another guid by commands, and has them after an import.
///
/// Invalid values are refused with OpenZFS's messages, and the history records all changes.
#[test]
fn properties_of_a_pool_change() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    for (property, value) in
        [("comment", "mine"), ("autoexpand", "on"), ("failmode", "continue"), ("org.example:a", "b")]
    {
        good(&format!("zpool set {property}={value} tank"));
        assert_eq!(good(&format!("zpool get -H -o value {property} tank")), format!("{value}\n"));
    }
    for (set, words) in [
        ("size=1", "'size' is readonly"),
        ("nope=1", "invalid property 'nope'"),
        ("failmode=x", "'failmode' must be one of 'wait | continue | panic'"),
        ("bootfs=tank/none", "dataset does not exist"),
    ] {
        let r = ran(&format!("zpool set {set} tank"));
        assert_eq!((r.code, r.err), (255, format!("cannot set property for 'tank': {words}\n")));
    }
    good("zfs create tank/boot");
    good("zpool set bootfs=tank/boot tank");
    assert_eq!(good("zpool get -H -o value bootfs tank"), "tank/boot\n");
    let guid = good("zpool get -H -o value guid tank");
    good("zpool reguid tank");
    assert_ne!(good("zpool get -H -o value guid tank"), guid);
    good("zpool reguid -g 12345 tank");
    assert_eq!(good("zpool get -H -o value guid tank"), "12345\n");
    let history = good("zpool history -i tank");
    for line in ["guid change", "comment=mine", "zpool reguid -g 12345"] {
        assert!(history.contains(line), "{line}: {history}");
    }
    good("zpool export tank");
    let folder = dir.path().display();
    good(&format!("zpool import -N -d {folder} tank"));
    assert_eq!(good("zpool get -H -o value comment,guid tank"), "mine\n12345\n");
    good("zpool destroy tank");
}

/// Goal: `zpool upgrade` enables all features that this release writes on a pool that was created
/// without features.
#[test]
fn upgrades() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("d0.img");
    std::fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(line, house.clone());
    let made = ran(&format!("zpool create -d -o comment=old -m none tank {}", image.display()));
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    assert_eq!(ran("zpool get -H -o value comment,feature@lz4_compress tank").out, "old\ndisabled\n");
    assert!(ran("zpool upgrade").out.contains("Some supported features are not enabled"));
    let up = ran("zpool upgrade tank");
    assert_eq!((up.code, up.err.as_str()), (0, ""));
    assert!(up.out.contains("Enabled the following features on 'tank':\n"), "{}", up.out);
    assert_eq!(ran("zpool get -H -o value feature@lz4_compress tank").out, "active\n");
    let again = ran("zpool upgrade -a");
    assert!(again.out.contains("Every feature flags pool already has all supported"), "{}", again.out);
}

/// Goal: a cache file has the pools that name it, as long as they are imported, and keeps entries
/// of other programs. `zpool import -c` finds pools by it.
///
/// The file is removed with its last pool.
#[test]
fn the_cache_file_remembers() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let good = |line: &str| good(line, &house);
    let file = dir.path().join("cache");
    let path = file.display();
    let names = || -> Vec<String> {
        let list = ondisk::Nvlist::decode(&std::fs::read(&file).expect("a file")).expect("a list");
        list.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
    };
    let mut foreign = ondisk::Nvlist::new();
    let mut other = ondisk::Nvlist::new();
    other.set("pool_guid", ondisk::Value::Uint64(7));
    foreign.set("theirs", ondisk::Value::List(other));
    std::fs::write(&file, foreign.encode_xdr()).expect("a file");
    good(&format!("zpool set cachefile={path} tank"));
    assert_eq!(names(), ["theirs", "tank"]);
    if let Some(zdb) = std::env::var_os("ZDB") {
        let said = std::process::Command::new(zdb).arg("-C").arg("-U").arg(&file).output().expect("zdb runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("name: 'tank'") && said.contains("d0.img"), "{said}");
    }
    good("zpool set comment=new tank");
    // A damaged cache file is set aside, and a new one has the imported pools.
    std::fs::write(&file, "no list").expect("a file");
    good("zpool set comment=newer tank");
    assert_eq!(names(), ["tank"]);
    assert_eq!(std::fs::read(dir.path().join("cache.bad-1")).expect("it is kept"), b"no list");
    std::fs::write(&file, foreign.encode_xdr()).expect("a file");
    good("zpool set comment=newest tank");
    good("zpool set cachefile=none tank");
    assert_eq!(names(), ["theirs"]);
    good(&format!("zpool set cachefile={path} tank"));
    let copy = dir.path().join("copy");
    std::fs::copy(&file, &copy).expect("a copy");
    good("zpool export tank");
    assert_eq!(names(), ["theirs"]);
    std::fs::remove_file(&file).expect("it is there");
    // The foreign entry is no complete config, so the file for the import omits it.
    let mut mine = ondisk::Nvlist::decode(&std::fs::read(&copy).expect("a file")).expect("a list");
    let tank = mine.get("tank").cloned().expect("it was there");
    mine = ondisk::Nvlist::new();
    mine.set("tank", tank);
    std::fs::write(&copy, mine.encode_xdr()).expect("a file");
    good(&format!("zpool import -N -c {} -o cachefile={path} tank", copy.display()));
    assert_eq!(names(), ["tank"]);
    good("zpool destroy tank");
    assert!(!file.exists(), "the last pool takes the file with it");
}

/// Goal: a checkpoint is taken and shown, prevents changes that would lose it, is rewound to and
/// discarded, with OpenZFS's messages.
#[test]
fn checkpoints() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    let bad = |line: &str, words: &str| {
        let r = ran(line);
        assert_eq!((r.code, r.err.as_str()), (1, words), "{line}");
    };
    bad("zpool checkpoint -d tank", "cannot discard checkpoint in 'tank': checkpoint does not exist\n");
    good("zfs create tank/before");
    good("zpool checkpoint tank");
    bad("zpool checkpoint tank", "cannot checkpoint 'tank': checkpoint exists\n");
    bad("zpool reguid tank", "cannot reguid 'tank': checkpoint exists\n");
    assert!(good("zpool status tank").contains("\ncheckpoint: created "), "it is shown");
    assert_eq!(good("zpool get -H -o value feature@zpool_checkpoint tank"), "active\n");
    good("zfs destroy tank/before");
    good("zfs create tank/after");
    good("zpool export tank");
    good(&format!("zpool import -N -d {} --rewind-to-checkpoint tank", dir.path().display()));
    assert_eq!(good("zfs list -H -o name"), "tank\ntank/before\n");
    assert!(good("zpool history -i tank").contains(" checkpoint rewind rewound state to txg="));
    good("zpool checkpoint tank");
    good("zfs destroy tank/before");
    good("zpool checkpoint -d -w tank");
    assert!(!good("zpool status tank").contains("\ncheckpoint:"), "it is gone");
    assert_eq!(good("zpool get -H -o value checkpoint,feature@zpool_checkpoint tank"), "-\nenabled\n");
    good("zpool export tank");
    let back = format!("zpool import -N -d {} --rewind-to-checkpoint tank", dir.path().display());
    assert_eq!(ran(&back).code, 1);
}

/// Goal: properties of vdevs are set, survive an export, and are refused if invalid, with OpenZFS's
/// messages.
#[test]
fn properties_of_vdevs() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    let disk = dir.path().join("d0.img").display().to_string();
    let other = dir.path().join("d1.img").display().to_string();
    std::fs::File::create(&other).expect("an image").set_len(256 << 20).expect("room");
    for (what, code, words) in [
        ("guid=1", 255, format!("cannot set property guid for {disk} on tank: 'guid' is readonly\n")),
        ("nope=1", 255, format!("cannot set property nope for {disk} on tank: invalid property: 'nope'\n")),
        ("io_n=x", 255, format!("cannot set property io_n for {disk} on tank: bad numeric value 'x'\n")),
        ("allocating=off", 255, format!("cannot set property allocating for {disk} on tank: out of space\n")),
    ] {
        let r = ran(&format!("zpool set {what} tank {disk}"));
        assert_eq!((r.code, r.err), (code, words), "{what}");
    }
    let r = ran("zpool set io_n=1 tank nothing");
    assert_eq!((r.code, r.err.as_str()), (22, "cannot find 'nothing' in 'tank': device not in pool\n"));
    good(&format!("zpool add tank {other}"));
    for what in
        ["local:place=shelf", "comment=left", "io_n=12", "checksum_t=none", "allocating=off", "failfast=off"]
    {
        good(&format!("zpool set {what} tank {disk}"));
    }
    good("zpool set a:b=c tank root");
    let shown = |good: &dyn Fn(&str) -> String| {
        let props = "local:place,comment,io_n,checksum_t,allocating,failfast";
        assert_eq!(
            good(&format!("zpool get -H -o value {props} tank {disk}")),
            "shelf\nleft\n12\n-\noff\noff\n"
        );
        assert_eq!(good("zpool get -H -o value a:b tank root-0"), "c\n");
    };
    shown(&good);
    good("zpool export tank");
    good(&format!("zpool import -N -d {} tank", dir.path().display()));
    shown(&good);
    good(&format!("zpool set allocating=on tank {disk}"));
    good(&format!("zpool set local:place= tank {disk}"));
    assert!(good("zpool history -i tank").contains(" vdev set vdev_guid="));
    good("zpool destroy tank");
}

/// Goal: a pool's root file system can be created encrypted, its children inherit that, and it
/// opens only with its key. Properties that are fixed at creation can be given for it too.
#[test]
fn an_encrypted_pool() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("d0.img").display().to_string();
    std::fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
    let key = dir.path().join("key").display().to_string();
    std::fs::write(&key, [7; 32]).expect("a key");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    for (options, words) in [
        ("-O encryption=on", "encryption enabled on root dataset without a 'keyformat'"),
        ("-O encryption=off -O keyformat=raw", "Encryption must be turned on to set encryption properties."),
    ] {
        let r = ran(&format!("zpool create -m none {options} tank {image}"));
        assert_eq!(r.code, 1, "{options}");
        assert!(r.err.starts_with("cannot create 'tank': "), "{words}: {}", r.err);
        assert_eq!(good("zpool list"), "no pools available\n");
    }
    good(&format!(
        "zpool create -f -m none -O encryption=aes-192-gcm -O keyformat=raw -O keylocation=file://{key} -O casesensitivity=mixed tank {image}"
    ));
    good("zfs create tank/a");
    let shown = "zfs get -H -o value encryption,encryptionroot,keystatus,keyformat,casesensitivity tank/a";
    assert_eq!(good(shown), "aes-192-gcm\ntank\navailable\nraw\nmixed\n");
    assert_eq!(good("zpool get -H -o value feature@encryption tank"), "active\n");
    good("zpool export tank");
    good(&format!("zpool import -N -d {} tank", dir.path().display()));
    assert_eq!(good("zfs get -H -o value keystatus tank"), "unavailable\n");
    good("zfs load-key tank");
    assert_eq!(good("zfs get -H -o value keystatus tank/a"), "available\n");
    good("zfs create tank/b");
    good("zpool export tank");
}

/// Goal: a pool can have a temporary name until its export, given at its creation or import. Its
/// devices keep the permanent name.
#[test]
fn temporary_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("d0.img").display().to_string();
    std::fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let good = |line: &str| good(line, &house);
    good(&format!("zpool create -m none -t short tank {image}"));
    good("zfs create short/a");
    assert_eq!(good("zpool list -H -o name"), "short\n");
    good("zpool export short");
    good(&format!("zpool import -N -t -d {} tank again", dir.path().display()));
    good("zfs create again/b");
    good("zpool export again");
    good(&format!("zpool import -N -d {} tank", dir.path().display()));
    assert_eq!(good("zfs list -H -o name"), "tank\ntank/a\ntank/b\n");
    good("zpool export tank");
    good(&format!("zpool import -N -d {} tank other", dir.path().display()));
    good("zpool export other");
    assert!(run(&format!("zpool import -N -d {} tank", dir.path().display()), house.clone()).code != 0);
    good(&format!("zpool import -N -d {} other", dir.path().display()));
}

/// Goal: a volume reserves the space of its blocks with their parity, by OpenZFS's formula.
#[test]
fn volumes_reserve_parity() {
    let dir = tempfile::tempdir().expect("a folder");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let image = |n: u64| {
        let path = dir.path().join(format!("d{n}.img"));
        std::fs::File::create(&path).expect("an image").set_len(256 << 20).expect("room");
        path.display().to_string()
    };
    let images = (0..3).map(image).collect::<Vec<_>>().join(" ");
    for line in [
        format!("zpool create -m none -o ashift=12 tank raidz {images}"),
        "zfs create -V 100M -b 16k tank/v16".to_owned(),
        "zfs create -V 100M -b 4k tank/v4".to_owned(),
    ] {
        assert_eq!(run(&line, house.clone()).code, 0, "{line}");
    }
    let got = run("zfs get -H -p -o value refreservation tank/v16 tank/v4", house.clone()).out;
    // 4 KiB take two sectors, and 128 KiB take 48. Of 16 KiB and of 128 KiB alike, a third is
    // parity.
    let (small, large) = ((25_600 * 8192 / 384) * 256 + 66 * (128 << 10), (100u64 << 20) + 30 * (128 << 10));
    assert_eq!(got, format!("{large}\n{small}\n"));
}

/// Goal: the directory of a mount is removed with its file system unless the mount point was given
/// by name, and one with contents stays.
///
/// The test prints a message and ends if mounting is not possible.
#[test]
fn folders_go_with_their_file_systems() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("d0.img").display().to_string();
    std::fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
    let root = dir.path().join("root");
    let named = dir.path().join("root/named");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(line, house.clone());
    let made = ran(&format!("zpool create -R {} tank {image}", root.display()));
    if made.code != 0 {
        eprintln!("nothing can be mounted here: {}", made.err);
        return;
    }
    for line in [
        "zfs create tank/a",
        "zfs create tank/a/b",
        "zfs create -o mountpoint=/named tank/c",
        "zfs create tank/d",
    ] {
        assert_eq!(ran(line).code, 0, "{line}");
    }
    let at = |name: &str| root.join("tank").join(name).is_dir();
    assert!(at("a/b") && at("d") && named.is_dir());
    for line in ["zfs rename tank/d tank/e", "zfs destroy -r tank/a", "zfs destroy tank/c"] {
        assert_eq!(ran(line).code, 0, "{line}");
    }
    assert!(!at("a") && !at("d") && at("e") && named.is_dir());
    assert_eq!(ran("zpool export tank").code, 0);
    assert!(!root.join("tank").exists());
}

/// Goal: an encryption root whose key another dataset needs, which was moved below its own clone,
/// is not destroyed, nor anything below it.
///
/// The dry run says so too. After that dataset has its own key, the root is destroyed.
#[test]
fn a_root_of_others_is_not_half_destroyed() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    let key = dir.path().join("key");
    std::fs::write(&key, "correct horse").expect("a key");
    let location = format!("-o keyformat=passphrase -o keylocation=file://{}", key.display());
    for line in [
        format!("zfs create -o encryption=on {location} tank/p"),
        "zfs create tank/p/d".to_owned(),
        "zfs create tank/p/below".to_owned(),
        "zfs snapshot tank/p/d@s".to_owned(),
        "zfs clone tank/p/d@s tank/n".to_owned(),
        "zfs rename tank/p/d tank/n/d".to_owned(),
    ] {
        good(&line);
    }
    let before = good("zfs list -H -t all -o name");
    for line in ["zfs destroy -nr tank/p", "zfs destroy -r tank/p"] {
        let ran = ran(line);
        assert_eq!(ran.code, 1, "{line}");
        assert!(
            ran.err.starts_with("cannot destroy 'tank/p': it is the encryption root of 'tank/n"),
            "{}",
            ran.err
        );
        assert_eq!(good("zfs list -H -t all -o name"), before, "{line}");
    }
    good(&format!("zfs change-key {location} tank/n/d"));
    good("zfs destroy -r tank/p");
    good("zfs promote tank/n");
    good("zfs destroy -R tank/n");
    assert_eq!(good("zfs list -H -t all -o name"), "tank\n");
    good("zpool export tank");
}

/// Goal: a file system that depends on itself is not destroyed with its dependents. The dry run,
/// the command and a rollback report that in OpenZFS's words and change nothing.
///
/// After another promotion they succeed.
#[test]
fn what_depends_on_itself_is_not_half_destroyed() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 256 << 20, "");
    let ran = |line: &str| run(line, house.clone());
    let good = |line: &str| good(line, &house);
    for line in [
        "zfs create tank/p",
        "zfs create tank/p/other",
        "zfs snapshot tank/p@r",
        "zfs snapshot tank/p@s",
        "zfs clone tank/p@s tank/p/cl",
        "zfs promote tank/p/cl",
    ] {
        good(line);
    }
    let before = good("zfs list -H -t all -o name");
    for (line, name) in [
        ("zfs destroy -nvR tank/p", "tank/p"),
        ("zfs destroy -R tank/p", "tank/p"),
        ("zfs destroy -r tank/p", "tank/p"),
        ("zfs destroy -nR tank/p/cl", "tank/p/cl"),
        ("zfs destroy -R tank/p/cl@s", "tank/p"),
        ("zfs rollback -R tank/p/cl@r", "tank/p"),
    ] {
        let ran = ran(line);
        let words = format!("cannot determine dependent datasets: recursive dependency at '{name}'\n");
        assert_eq!((ran.code, ran.err), (1, words), "{line}");
        assert_eq!(good("zfs list -H -t all -o name"), before, "{line}");
    }
    good("zfs promote tank/p");
    let promised = good("zfs destroy -nvR tank/p");
    for name in ["tank/p", "tank/p@s", "tank/p/cl", "tank/p/other"] {
        assert!(promised.contains(&format!("would destroy {name}\n")), "{promised}");
    }
    good("zfs destroy -R tank/p");
    assert_eq!(good("zfs list -H -t all -o name"), "tank\n");
    good("zpool export tank");
}
