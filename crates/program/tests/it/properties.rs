//! Effects of properties: key locations are kept, reservations follow sizes, and limits bind the
//! right users.

use crate::common::{good, pool, run, run_with};

/// Goal: a change of an encryption root's key keeps its format and location unless they are given,
/// and the new key opens it.
#[test]
fn a_changed_key_stays_where_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "");
    let good = |line: &str| good(line, &house);
    let own = |name: &str| good(&format!("zfs get -H -o value keyformat,keylocation,encryptionroot {name}"));
    for (format, old, new) in [
        ("passphrase", "the first one\n".to_owned(), "another one\n".to_owned()),
        ("hex", "0a".repeat(32), "1B".repeat(32)),
    ] {
        let (key, name) = (dir.path().join(format), format!("tank/{format}"));
        let at = format!("file://{}", key.display());
        std::fs::write(&key, old).expect("a key");
        good(&format!("zfs create -o encryption=on -o keyformat={format} -o keylocation={at} {name}"));
        std::fs::write(&key, new).expect("a key");
        good(&format!("zfs change-key {name}"));
        assert_eq!(own(&name), format!("{format}\n{at}\n{name}\n"));
        if format == "passphrase" {
            good(&format!("zfs change-key -o pbkdf2iters=200000 {name}"));
            assert_eq!(own(&name), format!("{format}\n{at}\n{name}\n"));
            assert_eq!(good(&format!("zfs get -H -o value pbkdf2iters {name}")), "200000\n");
        }
        good(&format!("zfs unload-key {name}"));
        good(&format!("zfs load-key {name}"));
    }
    // Given values apply. A dataset that becomes a root without a given key location prompts for
    // its key.
    good("zfs create tank/hex/child");
    let line = "zfs change-key -o keyformat=passphrase tank/hex/child";
    let typed = run_with(line, house.clone(), vec![b"typed by hand".to_vec()]);
    assert_eq!((typed.code, typed.err.as_str()), (0, ""));
    assert_eq!(own("tank/hex/child"), "passphrase\nprompt\ntank/hex/child\n");
    good(&format!("zfs set keylocation=file://{} tank/hex/child", dir.path().join("passphrase").display()));
    good("zfs change-key tank/hex/child");
    good("zfs unload-key tank/hex/child");
    good("zfs load-key tank/hex/child");
}

/// Goal: a volume's reservation follows its size, up and down, while it is the one that the size
/// requires. `refreservation=auto` sets that one, wherever it can be given.
#[test]
fn reservations_go_with_sizes() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "");
    let good = |line: &str| good(line, &house);
    let of = |name: &str| good(&format!("zfs get -Hp -o value volsize,refreservation {name}"));
    good("zfs create -V 20M tank/v");
    let at_20 = of("tank/v");
    assert_eq!(at_20, format!("{}\n{}\n", 20 << 20, 23592960));
    good("zfs create -V 30M tank/w");
    let at_30 = of("tank/w");
    good("zfs destroy tank/w");
    good("zfs set volsize=30M tank/v");
    assert_eq!(of("tank/v"), at_30);
    good("zfs set volsize=20M tank/v");
    assert_eq!(of("tank/v"), at_20);
    // A reservation that the user set stays.
    good("zfs set refreservation=1M tank/v");
    good("zfs set volsize=30M tank/v");
    assert_eq!(of("tank/v"), format!("{}\n{}\n", 30 << 20, 1 << 20));
    good("zfs set refreservation=auto tank/v");
    assert_eq!(of("tank/v"), at_30);
    good("zfs set refreservation=none tank/v");
    good("zfs set volsize=20M refreservation=auto tank/v");
    assert_eq!(of("tank/v"), at_20);
    good("zfs snapshot tank/v@s");
    good("zfs clone -o refreservation=auto tank/v@s tank/c");
    assert_eq!(of("tank/c"), at_20);
    good("zfs destroy tank/c");
    for options in ["-V 20M -o refreservation=auto", "-s -V 20M -o refreservation=auto"] {
        good(&format!("zfs create {options} tank/a"));
        assert_eq!(of("tank/a"), at_20, "{options}");
        good("zfs destroy tank/a");
    }
    good("zfs create -s -V 20M tank/sparse");
    good("zfs set volsize=30M tank/sparse");
    assert_eq!(of("tank/sparse"), format!("{}\n0\n", 30 << 20));
    // Copies count in both.
    good("zfs create -V 8M -o copies=2 tank/two");
    let two = of("tank/two");
    good("zfs set volsize=4M tank/two");
    good("zfs set volsize=8M tank/two");
    assert_eq!(of("tank/two"), two);
}

/// Goal: count limits don't bind users who may change them, and the counts are kept all the same.
#[test]
fn limits_of_counts_do_not_bind_their_owner() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O filesystem_limit=1 -O snapshot_limit=1");
    let good = |line: &str| good(line, &house);
    for line in [
        "zfs create tank/a",
        "zfs create tank/b",
        "zfs snapshot -r tank@one",
        "zfs snapshot tank/a@two",
        "zfs clone tank/a@two tank/c",
    ] {
        good(line);
    }
    assert_eq!(good("zfs get -H -o value filesystem_count,snapshot_count tank"), "3\n4\n");
}

/// Goal: a quota and a reservation of a new pool's root file system are set and enforced.
#[test]
fn a_new_pool_has_its_quota() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O quota=40M -O reservation=10M -O compression=off");
    let shown = "zfs get -H -o value,source quota,reservation,compression tank";
    assert_eq!(good(shown, &house), "40M\tlocal\n10M\tlocal\noff\tlocal\n");
    let full = run("zfs create -V 50M tank/v", house.clone());
    assert_eq!(full.err, "cannot create 'tank/v': out of space\n");
}

/// Goal: a new pool has all features that can be enabled. Neither its status nor the list of
/// importable pools reports missing features.
#[test]
fn a_new_pool_is_up_to_date() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "");
    let status = good("zpool status tank", &house);
    assert!(!status.contains("status:"), "{status}");
    assert_eq!(good("zpool status -x", &house), "all pools are healthy\n");
    good("zpool export tank", &house);
    let listed = good(&format!("zpool import -d {}", dir.path().display()), &house);
    assert!(listed.contains("state: ONLINE") && !listed.contains("status:"), "{listed}");
}

/// Goal: a pool with `compatibility` has the features of that set and no more, without any file on
/// this machine.
#[test]
fn pools_for_other_software() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-o compatibility=openzfs-2.1-linux");
    let shown = "zpool get -H -o value compatibility,feature@draid,feature@edonr,feature@blake3,feature@longname tank";
    assert_eq!(good(shown, &house), "openzfs-2.1-linux\nenabled\nenabled\ndisabled\ndisabled\n");
    let status = good("zpool status tank", &house);
    assert!(!status.contains("status:"), "{status}");
    let less = run("zpool set compatibility=grub2 tank", house.clone());
    assert_eq!((less.code, less.err.lines().count()), (0, 2), "{}", less.err);
}
