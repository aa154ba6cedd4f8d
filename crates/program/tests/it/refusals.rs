//! Invalid commands on an existing pool: each gives OpenZFS's message and exit code, and changes
//! nothing.

use std::rc::Rc;

use crate::common::run;
use api::Requests;
use server::service::LocalService;

/// Lines, exit codes and the first line of the message. `DIR` is the directory of the images.
const BAD: &[(&str, i32, &str)] = &[
    ("zpool create log DIR/b", 1, "cannot create 'log': name is reserved"),
    ("zpool create 9t DIR/b", 1, "cannot create '9t': name must begin with a letter"),
    ("zpool create -O nope=1 t DIR/b", 1, "property 'nope' is not a valid filesystem property"),
    (
        "zpool create -m rel t DIR/b",
        1,
        "invalid mountpoint 'rel': must be an absolute path, 'legacy', or 'none'",
    ),
    ("zpool create t raidz DIR/b", 1, "invalid vdev specification: raidz requires at least 2 devices"),
    ("zpool create t mirror DIR/b", 1, "invalid vdev specification: mirror requires at least 2 devices"),
    ("zpool destroy nope", 1, "cannot open 'nope': no such pool"),
    ("zpool export nope", 1, "cannot open 'nope': no such pool"),
    ("zpool reopen nope", 1, "cannot open 'nope': no such pool"),
    ("zpool add tank", 2, "missing vdev specification"),
    ("zpool set nope=1 tank", 255, "cannot set property for 'tank': invalid property 'nope'"),
    ("zpool set size=1 tank", 255, "cannot set property for 'tank': 'size' is readonly"),
    (
        "zpool set failmode=maybe tank",
        255,
        "cannot set property for 'tank': 'failmode' must be one of 'wait | continue | panic'",
    ),
    ("zpool set a=b nope", 22, "cannot open 'nope': is not a pool"),
    ("zpool remove tank nope", 1, "cannot remove nope: no such device in pool"),
    ("zpool clear tank nope", 1, "cannot clear errors for nope: no such device in pool"),
    (
        "zpool clear -nF tank",
        1,
        "cannot clear errors for tank: the pool is open, so -F would discard nothing; leave out -n to clear errors",
    ),
    ("zpool clear -n tank", 2, "-n or -X only meaningful with -F"),
    ("zpool checkpoint -d tank", 1, "cannot discard checkpoint in 'tank': checkpoint does not exist"),
    ("zpool split tank", 2, "Missing new pool name"),
    ("zpool split nope new", 1, "cannot open 'nope': no such pool"),
    ("zpool split -o ro tank new", 2, "setting mntopts is only valid when importing the pool"),
    ("zpool split -l tank new", 2, "loading keys is only valid when importing the pool"),
    ("zpool split tank log", 1, "Unable to split tank: name is reserved"),
    ("zpool split tank new", 1, "Unable to split tank: Source pool must be composed only of mirrors"),
    ("zpool split tank new DIR/nope", 1, "cannot resolve path 'DIR/nope'"),
    ("zpool labelclear DIR/a", 1, "DIR/a is a member (ACTIVE) of pool \"tank\""),
    ("zfs create tank", 1, "cannot create 'tank': missing dataset name"),
    ("zfs create nope/a", 1, "cannot create 'nope/a': no such pool 'nope'"),
    ("zfs create -p nope/a/b", 1, "cannot create 'nope/a/b': no such pool 'nope'"),
    ("zfs create tank/n/a", 1, "cannot create 'tank/n/a': parent does not exist"),
    ("zfs create tank/a@b", 1, "cannot create 'tank/a@b': snapshot delimiter '@' is not expected here"),
    ("zfs create tank/%b", 1, "cannot create 'tank/%b': invalid character % in name"),
    ("zfs snapshot tank/a@x%y", 1, "cannot create snapshot 'tank/a@x%y': invalid character % in name"),
    ("zfs rename tank/a tank/x%y", 1, "cannot rename to 'tank/x%y': invalid character % in name"),
    ("zfs create tank/v/w", 1, "cannot create 'tank/v/w': parent is not a filesystem"),
    ("zfs create -V 10G tank/w", 1, "cannot create 'tank/w': out of space"),
    ("zfs create -o reservation=1G tank/w", 1, "cannot create 'tank/w': out of space"),
    ("zfs create -o quota=1 tank/w", 1, "cannot create 'tank/w': out of space"),
    ("zfs create -o refquota=1k tank/w", 1, "cannot create 'tank/w': out of space"),
    ("zfs create -o quota=1M -o reservation=2M tank/w", 1, "cannot create 'tank/w': out of space"),
    ("zpool create -m none -O quota=1 t DIR/b", 1, "cannot create 't': one or more devices is out of space"),
    (
        "zpool create -m none -O reservation=1G t DIR/b",
        1,
        "cannot create 't': one or more devices is out of space",
    ),
    (
        "zfs create -o version=2 -o utf8only=on tank/w",
        1,
        "cannot create 'tank/w': pool and or dataset must be upgraded to set this property or value",
    ),
    ("zpool create -o compatibility=nope t DIR/b", 1, "Error: could not read/parse feature file(s): nope "),
    ("zfs create -V 0 tank/w", 1, "cannot create 'tank/w': 'volsize' cannot be zero"),
    (
        "zfs create -V 1M -o quota=1M tank/w",
        1,
        "cannot create 'tank/w': 'quota' does not apply to datasets of this type",
    ),
    ("zfs create -o type=x tank/w", 1, "cannot create 'tank/w': 'type' is readonly"),
    ("zfs snapshot tank/nope@a", 2, "cannot open 'tank/nope': dataset does not exist"),
    ("zfs destroy tank/nope", 1, "cannot open 'tank/nope': dataset does not exist"),
    ("zfs destroy tank/a@nope", 1, "could not find any snapshots to destroy; check snapshot names."),
    ("zfs destroy tank/a@s", 1, "cannot destroy snapshot tank/a@s: dataset is busy"),
    ("zfs rename tank/a other/a", 1, "cannot rename to 'other/a': datasets must be within same pool"),
    ("zfs rollback tank/a@nope", 1, "cannot open 'tank/a@nope': dataset does not exist"),
    (
        "zfs release nope tank/a@s",
        1,
        "cannot release hold from snapshot 'tank/a@s': no such tag on this dataset",
    ),
    ("zfs inherit quota tank/a", 1, "'quota' property cannot be inherited"),
    ("zfs inherit type tank/a", 1, "type property is read-only"),
    ("zfs inherit nope tank/a", 2, "invalid property 'nope'"),
    ("zfs set version=4 tank/a", 1, "cannot set property for 'tank/a': Invalid argument"),
    ("zfs set type=x tank/a", 1, "cannot set property for 'tank/a': 'type' is readonly"),
    (
        "zfs set quota=1k tank/a",
        1,
        "cannot set property for 'tank/a': size is less than current used or reserved space",
    ),
    ("zfs set quota=0 tank/a", 1, "cannot set property for 'tank/a': use 'none' to disable quota/refquota"),
    (
        "zfs set reservation=1G tank/a",
        1,
        "cannot set property for 'tank/a': size is greater than available space",
    ),
    (
        "zfs set volsize=200M tank/v",
        1,
        "cannot set property for 'tank/v': size is greater than available space",
    ),
    (
        "zfs set keylocation=prompt tank/a",
        1,
        "cannot set property for 'tank/a': keylocation must be 'none' for unencrypted datasets",
    ),
    (
        "zfs set keylocation=none tank/e",
        1,
        "cannot set property for 'tank/e': keylocation must not be 'none' for encrypted datasets",
    ),
    (
        "zfs set keylocation=file:///key tank/e/c",
        1,
        "cannot set property for 'tank/e/c': keylocation may only be set on encryption roots",
    ),
    (
        "zfs create -o keylocation=file://DIR/key tank/e/d",
        1,
        "cannot create 'tank/e/d': Keyformat required for new encryption root.",
    ),
    (
        "zfs create -o encryption=on tank/d",
        1,
        "cannot create 'tank/d': Keyformat required for new encryption root.",
    ),
    (
        "zfs create -o keyformat=raw -o keylocation=file://DIR/key tank/d",
        1,
        "cannot create 'tank/d': Encryption must be turned on to set encryption properties.",
    ),
    (
        "zfs create -o pbkdf2iters=200000 tank/d",
        1,
        "cannot create 'tank/d': Encryption must be turned on to set encryption properties.",
    ),
    (
        "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://DIR/key -o pbkdf2iters=200000 tank/d",
        1,
        "cannot create 'tank/d': Cannot specify pbkdf2iters with a non-passphrase keyformat.",
    ),
    (
        "zfs clone -o encryption=off tank/e@s tank/e/d",
        1,
        "cannot create 'tank/e/d': Encryption properties must inherit from origin dataset.",
    ),
    (
        "zfs clone -o keylocation=prompt tank/e@s tank/e/d",
        1,
        "cannot create 'tank/e/d': Encryption properties must inherit from origin dataset.",
    ),
    (
        "zfs change-key -o encryption=off tank/e",
        255,
        "Key change error: Only keyformat, keylocation and pbkdf2iters may be set with this command.",
    ),
    (
        "zfs change-key -o bogus=1 tank/e",
        255,
        "Key change error: Only keyformat, keylocation and pbkdf2iters may be set with this command.",
    ),
    (
        "zfs change-key -o pbkdf2iters=200000 tank/e",
        255,
        "Key change error: Cannot specify pbkdf2iters with a non-passphrase keyformat.",
    ),
    (
        "zfs change-key -o keyformat=x tank/e",
        255,
        "Key change error: 'keyformat' must be one of 'none | raw | hex | passphrase'",
    ),
    ("zfs change-key tank/e/k", 255, "Key change error: Keys cannot be changed on clones."),
    (
        "zfs change-key -i tank/e/c",
        255,
        "Key change error: Key inheritting can only be performed on encryption roots.",
    ),
    (
        "zfs set compression=on tank/a@s",
        1,
        "cannot set property for 'tank/a@s': this property can not be modified for snapshots",
    ),
    ("zfs clone tank/a@s tank/a", 1, "cannot create 'tank/a': dataset already exists"),
    ("zfs clone tank/a@s tank/x/y", 1, "cannot create 'tank/x/y': parent does not exist"),
    ("zfs clone tank/a@s nope/y", 1, "cannot create 'nope/y': no such pool 'nope'"),
    ("zfs promote tank/a", 1, "cannot promote 'tank/a': not a cloned filesystem"),
    ("zfs mount tank/v", 1, "cannot open 'tank/v': operation not applicable to datasets of this type"),
    ("zfs unmount tank/a", 1, "cannot unmount 'tank/a': not currently mounted"),
    ("zfs load-key tank/a", 255, "Key load error: 'tank/a' is not encrypted."),
];

/// Goal: what is not allowed is refused as in OpenZFS, and leaves pools and datasets unchanged.
#[test]
fn bad_commands_change_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    std::fs::write(dir.path().join("key"), [7; 32]).expect("a key");
    for name in ["a", "b"] {
        let image = std::fs::File::create(dir.path().join(name)).expect("an image");
        image.set_len(128 << 20).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(&line.replace("DIR", &at), house.clone());
    for line in [
        "zpool create -m none tank DIR/a",
        "zfs create tank/a",
        "zfs snapshot tank/a@s",
        "zfs hold keep tank/a@s",
        "zfs create -V 8M tank/v",
        "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://DIR/key tank/e",
        "zfs create tank/e/c",
        "zfs snapshot tank/e@s",
        "zfs clone tank/e@s tank/e/k",
    ] {
        let made = ran(line);
        assert_eq!(made.code, 0, "{line}: {}", made.err);
    }
    let state = || {
        let all = "zfs get -H -t filesystem,volume,snapshot -s local -o name,property,value all";
        [ran("zpool list -H -o name,health").out, ran("zfs list -H -t all -o name").out, ran(all).out]
    };
    let before = state();
    for (line, code, words) in BAD {
        let r = ran(line);
        let said = r.err.replace(&at, "DIR");
        assert_eq!((r.code, said.lines().next().unwrap_or_default()), (*code, *words), "{line}");
    }
    assert_eq!(state(), before);
}

/// Goal: if several of the snapshots to destroy are held, each of these is named, and none is
/// destroyed.
#[test]
fn held_snapshots_are_all_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("a");
    std::fs::File::create(&image).expect("an image").set_len(128 << 20).expect("room");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(line, house.clone());
    for line in [
        &format!("zpool create -m none tank {}", image.display()),
        "zfs create tank/a",
        "zfs create tank/b",
        "zfs snapshot -r tank@s",
        "zfs hold keep tank/a@s tank/b@s",
    ] {
        assert_eq!(ran(line).err, "", "{line}");
    }
    let r = ran("zfs destroy -r tank@s");
    assert_eq!(
        (r.code, r.err.as_str()),
        (
            1,
            "cannot destroy snapshot tank/a@s: dataset is busy\ncannot destroy snapshot tank/b@s: dataset is busy\n"
        )
    );
    assert_eq!(ran("zfs list -H -t snapshot -o name").out, "tank@s\ntank/a@s\ntank/b@s\n");
}

/// Goal: a hot spare of another pool is reported with its pool, and can't become a cache device.
#[test]
fn a_spare_is_known_to_be_a_pools() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    for name in ["a", "b", "s"] {
        std::fs::File::create(dir.path().join(name)).expect("an image").set_len(128 << 20).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(&line.replace("DIR", &at), house.clone());
    assert_eq!(ran("zpool create -m none tank DIR/a spare DIR/s").err, "");
    assert_eq!(ran("zpool create -m none other DIR/b").err, "");
    let r = ran("zpool add other cache DIR/s");
    let said = r.err.replace(&at, "DIR");
    let last = said.lines().last();
    assert_eq!((r.code, last), (1, Some("DIR/s is reserved as a hot spare for pool tank")));
}
