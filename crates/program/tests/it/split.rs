//! The command `zpool split`.

use std::rc::Rc;

use crate::common::run;
use api::Requests;
use server::service::LocalService;

/// Goal: pools of mirrors are split as in OpenZFS: with a dry run, refused, exported, and imported
/// with another altroot.
#[test]
fn a_pool_of_mirrors() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    for name in ["a", "b", "c", "d", "e"] {
        let image = std::fs::File::create(dir.path().join(name)).expect("an image");
        image.set_len(128 << 20).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| {
        let r = run(&line.replace("DIR", &at), house.clone());
        (r.code, r.out.replace(&at, "DIR"), r.err.replace(&at, "DIR"))
    };
    let good = |line: &str| {
        let (code, out, err) = ran(line);
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        out
    };
    good("zpool create -f -m none tank mirror DIR/a DIR/b DIR/c mirror DIR/d DIR/e");
    good("zfs create tank/x");
    let plan = "would create 'new' with the following layout:\n\n\tnew\n\t  DIR/b\n\t  DIR/e\n";
    assert_eq!(good("zpool split -n tank new DIR/b"), plan);
    let bad = [
        ("zpool split tank new DIR/a DIR/b", "Device list must include at most one disk from each mirror"),
        ("zpool split tank tank", "pool already exists"),
        ("zpool split -R rel tank new", "bad alternate root 'rel'"),
        ("zpool split -o failmode=x tank new", "'failmode' must be one of 'wait | continue | panic'"),
    ];
    for (line, words) in bad {
        assert_eq!(ran(line), (1, String::new(), format!("Unable to split tank: {words}\n")), "{line}");
    }
    let group = ran("zpool split tank new mirror DIR/a DIR/b");
    assert_eq!(group, (1, String::new(), "Cannot use 'mirror' as a device for splitting\n".to_owned()));
    good("zpool checkpoint tank");
    assert_eq!(ran("zpool split tank new").2, "Unable to split tank: checkpoint exists\n");
    good("zpool checkpoint -d -w tank");

    good("zpool split -o comment=half tank new");
    assert_eq!(good("zpool list -H -o name"), "tank\n");
    good("zpool import -d DIR new");
    assert_eq!(good("zpool list -H -o name,health,comment"), "new\tONLINE\thalf\ntank\tONLINE\t-\n");
    assert_eq!(good("zfs list -H -o name -r new"), "new\nnew/x\n");
    good("zpool export new");
    assert!(good("zpool history -i tank").contains("zpool split -o comment=half tank new"));
    let lone = ran("zpool split tank other");
    assert_eq!(lone.2, "Unable to split tank: Source pool must be composed only of mirrors\n\n");
    good("zpool destroy tank");

    good("zpool create -f -m none tank mirror DIR/a DIR/b");
    good("zpool split -R /mnt/other tank half DIR/a");
    assert_eq!(good("zpool list -H -o name,altroot"), "half\t/mnt/other\ntank\t-\n");
    assert!(good("zpool history -i half").contains("from pool tank"));
    good("zpool export half");
    good("zpool export tank");
}
