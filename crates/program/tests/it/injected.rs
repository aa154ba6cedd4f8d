//! `zinject` with a daemon: the faults that it injects, lists and refuses.

use crate::daemon::{Daemon, image, said, tank};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// A daemon with a pool `one`, a mirror of `a` and `b`, that is not mounted.
fn mirror() -> (tempfile::TempDir, Daemon) {
    let dir = tempfile::tempdir().expect("a folder");
    ["a", "b"].iter().for_each(|name| image(&dir.path().join(name)));
    let daemon = Daemon::start(dir.path());
    daemon.good(&format!("zpool create -m none one mirror {0}/a {0}/b", dir.path().display()));
    (dir, daemon)
}

fn row(status: &str, name: &Path) -> Vec<String> {
    let found = status.lines().find(|line| line.trim_start().starts_with(&format!("{} ", name.display())));
    found.unwrap_or_else(|| panic!("{status}")).split_whitespace().map(str::to_owned).collect()
}

/// The id of the fault that a command adds.
fn add(daemon: &Daemon, line: &str) -> String {
    daemon.good(&format!("zinject -q {line}")).trim().to_owned()
}

/// Goal: faults are listed and reported as by OpenZFS's command, in its tables and words. They can
/// be canceled one by one or all at once.
#[test]
fn listed_and_cancelled() {
    let (dir, daemon) = mirror();
    let a = dir.path().join("a").display().to_string();
    let none = "No handlers registered.\nRun 'zinject -h' for usage information.\n";
    assert_eq!(daemon.good("zinject"), none);
    let told = daemon.good(&format!("zinject -d {a} -L uber -e io -T write -f 50 one"));
    let guid = told.split_once("vdev: ").expect("a device").1.trim().to_owned();
    assert_eq!(
        told,
        format!("Added handler 1 with the following properties:\n  pool: one\n  vdev: {guid}\n")
    );
    assert_eq!(add(&daemon, &format!("-d {a} -e corrupt -T read -f 0.001 one")), "2");
    assert_eq!(add(&daemon, &format!("-d {a} -L nvlist one")), "3");
    assert_eq!(add(&daemon, &format!("-d {a} -D 1:2 one")), "4");
    assert_eq!(
        daemon.good("zinject -b ff:2:1:3fff -e checksum one"),
        "Added handler 5 with the following properties:\n  pool: one\nobjset: 255\nobject: 2\n  type: 0\n \
         level: 1\n range: [16383, 16384)\n  dvas: 0x0\n"
    );
    assert_eq!(add(&daemon, "-t spacemap -C 0,2 one"), "6");
    assert_eq!(
        daemon.good("zinject -P export -s 7 one"),
        "Added handler 7 with the following properties:\n  pool: one\n time: 7 seconds\n"
    );
    assert_eq!(
        daemon.good("zinject -I -g 400 one"),
        "Added handler 8 with the following properties:\n  pool: one\n txgs: 400 \n"
    );
    assert_eq!(add(&daemon, "-I one"), "9");
    let listed = format!(
        " ID  POOL             GUID              TYPE   ERROR       FREQ     
---  ---------------  ----------------  -----  ----------  ---------
  1  one              {guid}  write  io           50.0000%
  2  one              {guid}  read   corrupt       0.0010%
  3  one              {guid}  all    nxio        100.0000%

 ID  POOL             DELAY (ms)       LANES            GUID
---  ---------------  ---------------  ---------------  ----------------
  4  one              1                2                {guid}

 ID  POOL             OBJSET  OBJECT  TYPE      LVL  DVAs  RANGE          
---  ---------------  ------  ------  --------  ---  ----  ---------------
  5  one              255     2       -         1    0x00  [16383, 16383]
  6  one              0       0       spacemap  0    0x05  all

 ID  POOL                 DELAY (sec)  COMMAND
---  -------------------  -----------  -------
  7  one                  7            export

 ID  POOL             LOST WRITES
---  ---------------  ---------------
  8  one              400 txgs
  9  one              30 seconds

"
    );
    assert_eq!(daemon.good("zinject"), listed);
    assert_eq!(daemon.good("zinject -c 6"), "removed handler 6\n");
    assert!(!daemon.good("zinject").contains("spacemap"));
    let gone = daemon.ran("zinject -c 6");
    assert_eq!(said(&gone), "failed to remove handler 6: No such file or directory\n");
    assert_eq!(daemon.good("zinject -c all"), "removed all registered handlers\n");
    assert_eq!(daemon.good("zinject"), none);
}

/// Goal: invalid words and invalid combinations are refused, and no fault is added.
#[test]
fn refused() {
    let (dir, daemon) = mirror();
    let a = dir.path().join("a").display().to_string();
    let no = [
        (format!("-d {a} -L middle one"), "invalid label type 'middle'"),
        (format!("-d {a} -L uber -D 1:1 one"), "labels (-L) incompatible with -D and -A"),
        (format!("-d {a} -L uber -T flush one"), "labels are read, written and probed"),
        (format!("-d {a} -e corrupt -f 5 one"), "device corrupt errors require io type read and a frequency"),
        (format!("-d {a} -e checksum one"), "device error type must be 'io', 'nxio' or 'corrupt'"),
        (format!("-d {a} -l 1 one"), "device (-d) incompatible with data error injection"),
        ("-L uber one".to_owned(), "labels (-L) are a device's (-d)"),
        ("-b 1:2:3 one".to_owned(), "bad raw spec '1:2:3': must be of the form 'objset:object:level:blkid'"),
        ("-b 1:x:3:4 one".to_owned(), "bad raw spec '1:x:3:4'"),
        ("-b 1:2:fff:4 one".to_owned(), "no object has so many levels"),
        ("-b 1:2:0:4 -l 1 one".to_owned(), "raw (-b) format with any other options"),
        ("-b 1:2:0:4 -e nxio one".to_owned(), "data error type must be 'checksum' or 'io'"),
        ("-b 1:2:0:4".to_owned(), "raw (-b) injection requires a single name"),
        ("-b 1:2:0:4 two".to_owned(), "failed to add handler: two"),
        ("-I -s 5 -g 5 one".to_owned(), "choose a duration either in seconds (-s) or a number of txgs (-g)"),
        ("-I -g 0 one".to_owned(), "invalid duration '0': must be a positive integer"),
        ("-I -t mos one".to_owned(), "hardware failure (-I) incompatible with other options"),
        ("-s 5 one".to_owned(), "-s or -g meaningless without -I (ignore writes)"),
        ("-I".to_owned(), "ignore writes (-I) injection requires a single name"),
        ("-t heaven one".to_owned(), "invalid type 'heaven'"),
        ("-t mos -r 0,5 one".to_owned(), "without -l and -r"),
        (format!("-t dnode -r 0,5 {a}"), "range cannot be specified when type is 'dnode'"),
        ("-t mos -e decrypt one".to_owned(), "decryption errors may only be injected for 'data' types"),
        (
            "-t mos -e decompress -C 0 one".to_owned(),
            "the '-C' option may not be used with logical data errors",
        ),
        (
            "-t mos -f 0.00001 one".to_owned(),
            "out of range: frequency value must be in the range [0.0001, 100.0]",
        ),
        ("-t mos -f often one".to_owned(), "invalid value: frequency value"),
    ];
    for (words, why) in no {
        let ran = daemon.ran(&format!("zinject {words}"));
        assert!(!ran.status.success() && said(&ran).contains(why), "{words}: {}", said(&ran));
    }
    assert!(daemon.good("zinject").starts_with("No handlers"));
}

/// Goal: the status counts the errors of a device whose uberblocks can't be written. If its probe
/// fails too, it is faulted; a clear makes it healthy again.
#[test]
fn labels_fail() {
    let (dir, daemon) = mirror();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    daemon.good(&format!("zinject -d {} -L uber -e io -T write one", a.display()));
    daemon.good("zfs create one/fs");
    let status = daemon.good("zpool status -pP one");
    assert_eq!(row(&status, &b)[1..], ["ONLINE", "0", "0", "0"]);
    let charged = row(&status, &a);
    assert!(charged[1] == "ONLINE" && charged[3].parse::<u64>().expect("a number") >= 4, "{status}");
    daemon.good(&format!("zinject -d {} -L pad2 -e io one", a.display()));
    daemon.good("zfs create one/other");
    let status = daemon.good("zpool status -pP one");
    assert_eq!((row(&status, &a)[1].as_str(), row(&status, &b)[1].as_str()), ("FAULTED", "ONLINE"));
    daemon.good("zinject -c all");
    daemon.good("zpool clear one");
    daemon.good("zpool wait -t resilver one");
    assert_eq!(row(&daemon.good("zpool status -pP one"), &a)[1..], ["ONLINE", "0", "0", "0"]);
}

/// Goal: a block that is selected by its numbers can't be read, its neighbours can, and after the
/// fault is canceled all can.
#[test]
fn one_block() {
    let Some((dir, daemon)) = tank() else { return };
    daemon.good("zfs set recordsize=4k tank/home");
    let file = dir.path().join("mnt/home/file");
    // Compressible contents would be embedded in the block pointer, and never read.
    let mut seed = 1u32;
    let noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    });
    let contents: Vec<u8> = noise.take(64 << 10).collect();
    fs::write(&file, &contents).expect("room");
    let objset: u64 =
        daemon.good("zfs get -Hp -o value objsetid tank/home").trim().parse().expect("a number");
    let object = fs::metadata(&file).expect("a file").ino();
    daemon.good("zfs unmount tank/home");
    daemon.good(&format!("zinject -a -b {objset:x}:{object:x}:0:b tank"));
    daemon.good("zfs mount tank/home");
    let read = |block: u64| {
        let mut bytes = [0; 4096];
        fs::File::open(&file)?.read_exact_at(&mut bytes, block << 12)?;
        Ok::<bool, std::io::Error>(bytes == contents[(block << 12) as usize..][..4096])
    };
    let failed = read(11).expect_err("it is found wrong");
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    assert!(read(0).expect("it is well") && read(15).expect("it is well"));
    let status = daemon.good("zpool status -v tank");
    assert!(status.contains(&format!("{}", file.display())), "{status}");
    daemon.good("zinject -c all");
    assert!(read(11).expect("it is well again"));
}

/// Goal: with a fault in one block of dnodes, the files of that block can't be read and those of
/// other blocks can.
#[test]
fn one_block_of_dnodes() {
    let Some((dir, daemon)) = tank() else { return };
    let home = dir.path().join("mnt/home");
    (0..200).for_each(|n| fs::write(home.join(format!("f{n}")), "text").expect("room"));
    let object = |n: u64| fs::metadata(home.join(format!("f{n}"))).expect("a file").ino();
    // Object numbers are allocated in chunks, so the last file is in another block than the objects
    // that the file system itself needs.
    let last = (0..200).max_by_key(|n| object(*n)).expect("some");
    let (bad, block) = (home.join(format!("f{last}")), object(last) / 32);
    let (beside, away): (Vec<u64>, Vec<u64>) = (0..200).partition(|n| object(*n) / 32 == block);
    assert!(block > 0 && !away.is_empty(), "{block}");
    daemon.good("zpool sync tank");
    let told = daemon.good(&format!("zinject -t dnode -e checksum {}", bad.display()));
    assert!(
        told.contains(&format!("object: 0\n  type: 0\n level: 0\n range: [{block}, {})", block + 1)),
        "{told}"
    );
    daemon.good("zfs unmount tank/home");
    daemon.good("zinject -a");
    daemon.good("zfs mount tank/home");
    let read = |n: u64| fs::read(home.join(format!("f{n}")));
    for n in beside {
        assert_eq!(read(n).expect_err("its dnode is found wrong").raw_os_error(), Some(5));
    }
    away.iter().for_each(|n| assert_eq!(read(*n).expect("it is well"), b"text"));
    daemon.good("zinject -c all");
    assert_eq!(read(last).expect("it is well again"), b"text");
}

/// Goal: a resilver continues past an unreadable block, ends, and does not start again. The file is
/// damaged while the fault lasts, and nothing is lost afterwards.
#[test]
fn a_resilver_meets_a_fault() {
    let Some((dir, daemon)) = tank() else { return };
    let (at, side) = (dir.path().display(), dir.path().join("side"));
    image(&side);
    daemon.good("zfs set recordsize=1k compression=off tank/home");
    let file = dir.path().join("mnt/home/file");
    fs::write(&file, vec![7; 1 << 20]).expect("room");
    let objset: u64 =
        daemon.good("zfs get -Hp -o value objsetid tank/home").trim().parse().expect("a number");
    let object = fs::metadata(&file).expect("a file").ino();
    daemon.good("zpool sync tank");
    daemon.good(&format!("zinject -b {objset:x}:{object:x}:0:1ff tank"));
    daemon.good(&format!("zpool attach -w tank {at}/d0 {}", side.display()));
    daemon.good("zpool sync -f tank");
    let count = |class: &str| daemon.good("zpool events -H").matches(class).count();
    assert_eq!((count("resilver_start"), count("resilver_finish")), (1, 1));
    let status = daemon.good("zpool status -pPv tank");
    assert!(
        status.contains(" with 1 errors ") && status.contains(&format!("{}", file.display())),
        "{status}"
    );
    assert_ne!(row(&status, &dir.path().join("d0"))[2], "0");
    daemon.good("zinject -c all");
    // The new child still lacks data, and a clear makes it resilver.
    daemon.good("zpool clear tank");
    daemon.good("zpool wait -t resilver tank");
    daemon.good("zpool scrub -w tank");
    daemon.good("zpool wait -t resilver tank");
    daemon.good(&format!("zpool detach tank {at}/d0"));
    daemon.good("zinject -a");
    daemon.good("zpool scrub -w tank");
    let status = daemon.good("zpool status -v tank");
    assert!(status.contains(" 0 errors ") && status.contains("No known data errors"), "{status}");
}

/// Goal: with an injected fault, data can't be decompressed or decrypted, and reads of it fail.
/// Uncompressed or unencrypted data can be read, and all of it after the fault is canceled.
#[test]
fn undecodable_files() {
    let Some((dir, daemon)) = tank() else { return };
    fs::write(dir.path().join("key"), "0123456789".repeat(4)).expect("room");
    let key = format!(
        "-o encryption=on -o keyformat=passphrase -o keylocation=file://{}/key",
        dir.path().display()
    );
    daemon.good(&format!("zfs create {key} -o compression=off tank/secret"));
    daemon.good("zfs set compression=lz4 tank/home");
    let text = "a line that packs well\n".repeat(20_000);
    let at = |file: &str| dir.path().join("mnt").join(file);
    let read = |file: &str| fs::read_to_string(at(file)).map_err(|e| e.raw_os_error());
    let forget = |daemon: &Daemon| {
        for name in ["home", "secret"] {
            daemon.good(&format!("zfs unmount tank/{name}"));
            daemon.good("zinject -a");
            daemon.good(&format!("zfs mount tank/{name}"));
        }
    };
    ["home/file", "secret/file"].iter().for_each(|file| fs::write(at(file), &text).expect("room"));
    daemon.good("zpool sync tank");
    for (error, bad, good) in
        [("decompress", "home/file", "secret/file"), ("decrypt", "secret/file", "home/file")]
    {
        for file in [bad, good] {
            daemon.good(&format!("zinject -a -t data -e {error} {}", at(file).display()));
        }
        forget(&daemon);
        daemon.good("zpool events -c");
        assert_eq!(read(bad), Err(Some(5)), "{error}");
        assert!(read(good).expect("it is well") == text, "{error}");
        let told = daemon.good("zpool events -v");
        let told = |class: &str| {
            let class = format!("class = \"ereport.fs.zfs.{class}\"");
            let found = told.split("\n\n").find(|event| event.contains(&class));
            found.map(|event| {
                let object = format!("zio_object = 0x{:x}\n", fs::metadata(at(bad)).expect("a file").ino());
                assert!(event.contains("zio_err = 0x5\n") && event.contains("zio_blkid = 0x"), "{event}");
                assert!(event.contains("pool_failmode = \"") && event.contains(&object), "{event}");
            })
        };
        assert!(told("data").is_some(), "{error}");
        assert_eq!(told("authentication").is_some(), error == "decrypt");
        daemon.good("zinject -c all");
        forget(&daemon);
        assert!(read(bad).expect("it is well again") == text, "{error}");
    }
}

/// Goal: the kernel does not cache data of a dataset with `primarycache=none` either: a file that
/// is opened again is read from the devices.
#[test]
fn what_is_not_kept() {
    let Some((dir, daemon)) = tank() else { return };
    daemon.good("zfs create -o primarycache=none tank/bare");
    // Otherwise so little data would be in the block pointer.
    daemon.good("zfs set compression=off tank");
    let at = |name: &str| dir.path().join("mnt").join(name).join("file");
    let read = |name: &str| fs::read(at(name)).map_err(|e| e.raw_os_error());
    for name in ["home", "bare"] {
        fs::write(at(name), b"text").expect("room");
    }
    daemon.good("zpool sync tank");
    for name in ["home", "bare"] {
        assert_eq!(read(name).expect("it is well"), b"text", "{name}");
        daemon.good(&format!("zinject -t data -e io {}", at(name).display()));
    }
    assert_eq!(read("home").expect("it is kept"), b"text");
    assert_eq!(read("bare"), Err(Some(5)));
    daemon.good("zinject -c all");
    assert_eq!(read("bare").expect("it is well again"), b"text");
}
