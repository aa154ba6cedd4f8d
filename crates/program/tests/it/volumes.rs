//! Volumes that commands create, serve over NBD, change and remove while they are in use.

use crate::client::Client;
use crate::common::run;
use api::Requests;
use nbd::abi::{cmd, flag, rep};
use server::service::LocalService;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

const MIB: u64 = 1 << 20;

struct Stand {
    dir: tempfile::TempDir,
    house: Rc<dyn Requests>,
}

impl Stand {
    /// A pool on one device with nothing mounted.
    fn new() -> Stand {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dev")).unwrap();
        let image = dir.path().join("dev/d0.img");
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let stand = Stand { dir, house: Rc::new(LocalService::new().in_process()) };
        stand.good(&format!("zpool create -m none tank {}", image.display()));
        stand
    }

    fn good(&self, line: &str) -> String {
        let ran = run(line, self.house.clone());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    /// Runs a command that must fail. Returns its error output.
    fn bad(&self, line: &str) -> String {
        let ran = run(line, self.house.clone());
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{line}");
        ran.err
    }

    fn get(&self, prop: &str, name: &str) -> String {
        self.good(&format!("zfs get -Hpo value {prop} {name}")).trim().to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn offer(&self, words: &str) -> String {
        self.good(&format!("poolhouse export -l {} {words}", self.socket().display()))
    }

    fn client(&self, name: &str) -> Client {
        Client::of(&self.socket(), name)
    }

    /// Runs `zdb` on the exported pool, if it is available.
    fn judge(&self) {
        let named = std::env::var_os("ZDB").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|d| d.join("zdb")).find(|p| p.is_file());
        let Some(zdb) = named.or(found) else { return };
        let mut zdb = std::process::Command::new(&zdb);
        let out = zdb.args(["-e", "-p"]).arg(self.dir.path().join("dev")).args(["-bcc", "tank"]).output();
        let out = out.unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("No leaks"), "{text}");
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        run("zpool export -f tank", self.house.clone());
    }
}

/// Goal: volumes are created with and without a reservation, with blocks of any size, and served
/// under their names.
///
/// Data written over NBD is in snapshots and clones and survives an export, as `zdb` confirms.
#[test]
fn made_and_served() {
    let stand = Stand::new();
    stand.good("zfs create -V 16M -b 4096 tank/full");
    stand.good("zfs create -s -V 32M tank/sparse");
    assert_eq!(stand.get("refreservation", "tank/sparse"), "0");
    assert!(stand.get("refreservation", "tank/full").parse::<u64>().unwrap() > 16 * MIB);
    assert_eq!(stand.get("volblocksize", "tank/full"), "4096");
    let uri = format!("?socket={}\n", stand.socket().display());
    let said = stand.offer("tank/full tank/sparse");
    assert_eq!(said, format!("nbd+unix:///tank/full{uri}nbd+unix:///tank/sparse{uri}"));
    let mut c = stand.client("tank/full");
    assert_eq!((c.size, c.flags & flag::READ_ONLY), (16 * MIB, 0));
    c.write(5 * MIB, b"first");
    stand.good("zfs snapshot tank/full@one");
    stand.good("zfs clone tank/full@one tank/clone");
    c.write(5 * MIB, b"later");
    assert_eq!(Client::connect(&stand.socket()).go("tank/full@one"), Err(rep::ERR_UNKNOWN));
    stand.offer("tank/full@one tank/clone");
    let (mut snapshot, mut clone) = (stand.client("tank/full@one"), stand.client("tank/clone"));
    assert_eq!(snapshot.flags & flag::READ_ONLY, flag::READ_ONLY);
    assert_eq!(clone.size, 16 * MIB);
    clone.write(5 * MIB, b"mine!");
    let read = |c: &mut Client| String::from_utf8(c.read(5 * MIB, 5)).unwrap();
    assert_eq!(
        (read(&mut snapshot), read(&mut clone), read(&mut c)),
        ("first".into(), "mine!".into(), "later".into())
    );
    let used = stand.good("poolhouse exports -H");
    assert!(used.contains(&format!("tank/full\trw\t1\tnbd+unix:///tank/full{uri}")), "{used}");
    assert!(used.contains("tank/sparse\trw\t0\t") && used.contains("tank/full@one\trw\t1\t"), "{used}");
    c.bye();
    snapshot.bye();
    clone.bye();
    stand.good("zpool export tank");
    stand.judge();
    assert!(!stand.socket().exists());
    stand.good(&format!("zpool import -d {} tank", stand.dir.path().join("dev").display()));
    stand.offer("-r tank/full");
    let mut c = stand.client("");
    assert_eq!((read(&mut c), c.flags & flag::READ_ONLY), ("later".into(), flag::READ_ONLY));
    assert_eq!(c.ask(cmd::WRITE, 0, 0, 1, b"x").error, 1);
}

/// Goal: a volume is resized while in use, and its reservation follows. `readonly` takes effect at
/// once, in both directions.
#[test]
fn changed_while_used() {
    let stand = Stand::new();
    stand.good("zfs create -V 16M tank/v");
    stand.offer("tank/v");
    let mut c = stand.client("tank/v");
    c.write(15 * MIB, b"end");
    let reserved = || stand.get("refreservation", "tank/v").parse::<u64>().unwrap();
    let before = reserved();
    stand.good("zfs set volsize=32M tank/v");
    assert_eq!(stand.get("volsize", "tank/v"), (32 * MIB).to_string());
    assert!(reserved() > before + 15 * MIB);
    c.write(31 * MIB, b"new");
    assert_eq!(stand.client("tank/v").size, 32 * MIB);
    assert_eq!(
        stand.bad("zfs set volsize=100001 tank/v"),
        "cannot set property for 'tank/v': 'volsize' must be a multiple of volume block size (16K)\n"
    );
    stand.good("zfs set volsize=16M tank/v");
    assert_eq!(reserved(), before);
    assert_eq!(c.ask(cmd::READ, 0, 31 * MIB, 3, b"").error, 22);
    assert_eq!(c.read(15 * MIB, 3), b"end");
    // A reservation that the user set stays.
    stand.good("zfs set refreservation=20M tank/v");
    stand.good("zfs set volsize=8M tank/v");
    assert_eq!((reserved(), stand.get("volsize", "tank/v")), (20 * MIB, (8 * MIB).to_string()));
    stand.good("zfs set readonly=on tank/v");
    assert_eq!(c.ask(cmd::WRITE, 0, 0, 1, b"x").error, 1);
    assert_eq!(stand.client("tank/v").flags & flag::READ_ONLY, flag::READ_ONLY);
    stand.good("zfs inherit readonly tank/v");
    c.write(0, b"x");
    c.bye();
    stand.good("zfs set volsize=24M tank/v");
    assert_eq!(stand.client("tank/v").size, 24 * MIB);
}

/// Goal: a volume in use, its pool and its key can't be removed: the error is OpenZFS's busy
/// message. A forced export succeeds all the same.
#[test]
fn busy() {
    let stand = Stand::new();
    stand.good("zfs create -V 16M tank/v");
    stand.good("zfs create -V 16M tank/idle");
    stand.offer("tank/v");
    let mut c = stand.client("tank/v");
    assert_eq!(
        stand.bad("zfs destroy tank/v"),
        "cannot destroy 'tank/v': dataset is busy: in use by an NBD client\n"
    );
    stand.good("zfs snapshot tank/v@s");
    stand.offer("tank/v@s");
    let snapshot = stand.client("tank/v@s");
    assert_eq!(
        stand.bad("zfs destroy tank/v@s"),
        "cannot destroy snapshot tank/v@s: dataset is busy: in use by an NBD client\n"
    );
    assert_eq!(
        stand.bad("zfs rollback tank/v@s"),
        "cannot rollback 'tank/v': dataset is busy: in use by an NBD client\n"
    );
    assert_eq!(
        stand.bad("zpool export tank"),
        "cannot export 'tank': pool is busy: 'tank/v' is in use by an NBD client\n"
    );
    assert_eq!(
        stand.bad("zpool destroy tank"),
        "cannot destroy 'tank': pool is busy: 'tank/v' is in use by an NBD client\n"
    );
    stand.good("zfs rename tank/v tank/renamed");
    c.write(0, b"still");
    let used = stand.good("poolhouse exports -H");
    assert!(used.contains("tank/renamed\trw\t1\t") && used.contains("tank/renamed@s\trw\t1\t"), "{used}");
    assert_eq!(stand.bad("poolhouse unexport tank/v"), "cannot unexport 'tank/v': not exported\n");
    stand.good("poolhouse unexport tank/renamed");
    assert_eq!(Client::connect(&stand.socket()).go("tank/renamed"), Err(rep::ERR_UNKNOWN));
    c.write(0, b"still");
    snapshot.bye();
    stand.good("zfs destroy tank/idle");
    stand.good("zpool export -f tank");
    assert!(c.is_over());
    stand.judge();
}

/// Goal: what can't be served is refused with a reason.
#[test]
fn refused() {
    let stand = Stand::new();
    stand.good("zfs create -V 16M tank/v");
    stand.good("zfs create tank/fs");
    let sock = stand.socket().display().to_string();
    for (words, why) in [
        (format!("-l {sock} tank/none"), "cannot export 'tank/none': dataset does not exist\n".to_owned()),
        (format!("-l {sock} other/v"), "cannot export 'other/v': dataset does not exist\n".to_owned()),
        (
            format!("-l {sock} tank/fs"),
            "cannot export 'tank/fs': operation not applicable to datasets of this type\n".to_owned(),
        ),
        (
            "-l nowhere tank/v".to_owned(),
            "cannot export 'nowhere': neither the path of a socket nor an IP address and port\n".to_owned(),
        ),
        (format!("-l {sock}/x tank/v"), format!("cannot export '{sock}/x': No such file or directory\n")),
    ] {
        assert_eq!(stand.bad(&format!("poolhouse export {words}")), why);
    }
    // Different obstacles at an address have different messages.
    let plain = stand.dir.path().join("plain");
    fs::write(&plain, "text").unwrap();
    let (plain, used) = (plain.display().to_string(), stand.dir.path().join("used"));
    let err = stand.bad(&format!("poolhouse export -l {plain} tank/v"));
    assert_eq!(err, format!("cannot export '{plain}': Socket operation on non-socket\n"));
    let _listener = std::os::unix::net::UnixListener::bind(&used).unwrap();
    let err = stand.bad(&format!("poolhouse export -l {} tank/v", used.display()));
    assert_eq!(err, format!("cannot export '{}': Address already in use\n", used.display()));
    let err = stand.bad("zfs set volsize=100000 tank/v");
    let why = "'volsize' must be a multiple of volume block size (16K)";
    assert_eq!(err, format!("cannot set property for 'tank/v': {why}\n"));
    for (words, why) in
        [("export tank/v", "missing address\nusage: "), ("unexport", "missing volume argument\nusage: ")]
    {
        let ran = run(&format!("poolhouse {words}"), stand.house.clone());
        assert_eq!((ran.code, &ran.err[..why.len()]), (2, why));
    }
    stand.good("zfs set volmode=none tank/v");
    let err = stand.bad(&format!("poolhouse export -l {sock} tank/v"));
    assert_eq!(err, "cannot export 'tank/v': operation not applicable to datasets of this type\n");
    assert!(!stand.socket().exists());
}
