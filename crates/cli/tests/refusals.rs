//! Bad commands on a pool that is here: each answers in OpenZFS's words and exit code, and changes nothing.

mod common;

use std::rc::Rc;

use common::run;
use server::api::Service;
use server::house::House;

/// Lines, exit codes and the first line of what they say; `DIR` is the folder of the images.
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
    ("zfs create nope/a", 1, "cannot create 'nope/a': parent does not exist"),
    ("zfs create tank/a@b", 1, "cannot create 'tank/a@b': snapshot delimiter '@' is not expected here"),
    ("zfs create tank/%b", 1, "cannot create 'tank/%b': Invalid argument"),
    ("zfs create tank/v/w", 1, "cannot create 'tank/v/w': parent is not a filesystem"),
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
    ("zfs set type=x tank/a", 1, "cannot set property for 'tank/a': 'type' is readonly"),
    (
        "zfs set quota=1k tank/a",
        1,
        "cannot set property for 'tank/a': size is less than current used or reserved space",
    ),
    ("zfs set quota=0 tank/a", 1, "cannot set property for 'tank/a': use 'none' to disable quota/refquota"),
    (
        "zfs set compression=on tank/a@s",
        1,
        "cannot set property for 'tank/a@s': this property can not be modified for snapshots",
    ),
    ("zfs clone tank/a@s tank/a", 1, "cannot create 'tank/a': dataset already exists"),
    ("zfs clone tank/a@s tank/x/y", 1, "cannot create 'tank/x/y': parent does not exist"),
    ("zfs promote tank/a", 1, "cannot promote 'tank/a': not a cloned filesystem"),
    ("zfs mount tank/v", 1, "cannot open 'tank/v': operation not applicable to datasets of this type"),
    ("zfs unmount tank/a", 1, "cannot unmount 'tank/a': not currently mounted"),
    ("zfs load-key tank/a", 255, "Key load error: 'tank/a' is not encrypted."),
];

/// Goal: what may not be done is refused as OpenZFS refuses it, and leaves pools and datasets as they were.
#[test]
fn bad_commands_change_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    for name in ["a", "b"] {
        let image = std::fs::File::create(dir.path().join(name)).expect("an image");
        image.set_len(128 << 20).expect("room");
    }
    let house: Rc<dyn Service> = Rc::new(House::new());
    let ran = |line: &str| run(&line.replace("DIR", &at), house.clone());
    for line in [
        "zpool create -m none tank DIR/a",
        "zfs create tank/a",
        "zfs snapshot tank/a@s",
        "zfs hold keep tank/a@s",
        "zfs create -V 8M tank/v",
    ] {
        assert_eq!(ran(line).code, 0, "{line}");
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
