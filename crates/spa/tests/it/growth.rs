//! Devices that become larger. OpenZFS's `zdb` checks the results if it is available.

use std::path::Path;

use device::{FileDevice, Mode};
use ondisk::config::DraidShape;
use spa::create::VdevShape;
use testpools::patient::{Patient, patient};

/// Goal: a vdev expands when all its devices have grown, by command or with `autoexpand=on`. Its
/// contents stay, and the new space is used.
#[test]
fn vdevs_grow() {
    let top = |p: &Patient| p.spa.config().vdev_tree.as_ref().unwrap().children[0].clone();
    let longer = |p: &Patient, name: &str, size: u64| {
        std::fs::File::options().write(true).open(p.path(name)).unwrap().set_len(size).unwrap();
    };
    for (shape, names) in [(VdevShape::Mirror, &["a", "b"][..]), (VdevShape::Raidz(1), &["a", "b", "c"])] {
        let p = patient(shape, names);
        let first = p.write(1);
        let before = top(&p).asize.unwrap();
        longer(&p, "a", 512 << 20);
        p.live().vdevs().online(p.guid("a"), true).unwrap();
        assert_eq!(
            (top(&p).asize.unwrap(), p.spa.room_to_grow(&top(&p))),
            (before, 0),
            "the others have not grown"
        );
        names.iter().for_each(|name| longer(&p, name, 512 << 20));
        let room = p.spa.room_to_grow(&top(&p));
        assert!(room > before, "{room}");
        p.live().take_recorded();
        p.live().vdevs().online(p.guid("a"), true).unwrap();
        // The history records it as OpenZFS does.
        let recorded = p.live().take_recorded();
        let told = recorded.iter().find(|one| one.record.string("internal_name") == Some(b"vdev online"));
        let told = told.and_then(|one| one.record.string("history internal str")).expect("an entry");
        let told = String::from_utf8_lossy(told);
        assert!(told.starts_with("pool '") && told.ends_with(&format!("(+{room})")), "{told} {room}");
        assert_eq!(p.spa.room_to_grow(&top(&p)), 0);
        let after = top(&p).asize.unwrap();
        assert!(after >= before + room);
        // More data than the old size had space for.
        let files: Vec<_> = (2..60).map(|seed| p.write(seed)).collect();
        let p = p.again(|_| ());
        assert_eq!(top(&p).asize, Some(after));
        p.check(&[first]);
        p.check(&files);
        names.iter().for_each(|name| longer(&p, name, 1 << 30));
        p.live().monitor().run_now();
        assert_eq!(top(&p).asize, Some(after));
        p.set("autoexpand", 1);
        p.until("larger", |p| top(p).asize > Some(after));
        let last = p.write(100);
        let p = p.again(|_| ());
        p.check(&[first, last]);
    }
}

/// Goal: the last labels of a grown device have the same uberblocks as the first, also those of
/// earlier txgs, whatever lay there before.
///
/// This holds also for a device that grew while it was offline.
#[test]
fn uberblocks_at_a_new_end() {
    let draid = VdevShape::Draid(1, DraidShape { ndata: 1, nspares: 1, ngroups: 3 });
    for (shape, away) in
        [(VdevShape::Single, false), (VdevShape::Mirror, true), (VdevShape::Raidz(1), true), (draid, false)]
    {
        let names = &["a", "b", "c"][..if matches!(shape, VdevShape::Single) { 1 } else { 3 }];
        let p = patient(shape, names);
        let first = p.write(1);
        let longer = |name: &str| {
            let file = std::fs::File::options().write(true).open(p.path(name)).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[7; 1 << 20], 511 << 20).unwrap();
        };
        if away {
            p.live().vdevs().offline(p.guid("a"), true).unwrap();
            p.write(2);
        }
        let before = p.spa.last_synced_txg();
        let ashift = p.spa.config().vdev_tree.as_ref().unwrap().children[0].ashift.unwrap();
        names.iter().for_each(|name| longer(name));
        for name in names {
            p.live().vdevs().online(p.guid(name), true).unwrap();
        }
        let second = p.write(3);
        // No pool writes to the devices at this moment.
        let look = |dir: &Path| {
            for name in names {
                let device = FileDevice::open(&dir.join(name), Mode::Peek).unwrap();
                let labels = vdev::label::Labels::new(&device);
                let ring = |label| labels.uberblocks(label, ondisk::label::uberblock_shift(ashift)).unwrap();
                let front = ring(0);
                assert!(front.iter().any(|(_, ub)| ub.txg <= before), "{name}");
                (1..4).for_each(|label| assert!(ring(label) == front, "{name}: label {label}"));
                let Some(zdb) = testpools::zdb() else { continue };
                let told = std::process::Command::new(zdb).arg("-lu").arg(dir.join(name)).output().unwrap();
                let told = String::from_utf8_lossy(&told.stdout).into_owned();
                let lines: Vec<&str> = told.lines().filter(|line| line.contains("labels = ")).collect();
                assert!(
                    lines.len() > 2 && lines.iter().all(|line| line.ends_with("labels = 0 1 2 3 ")),
                    "{told}"
                );
            }
        };
        let p = p.again(look);
        p.healed();
        p.check(&[first, second]);
    }
}
