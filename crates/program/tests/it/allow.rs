//! `zfs allow`: its grammar, its output, and what root's daemon then lets other users do. The last
//! part needs root; without it, the tests print a message and do nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use crate::common::{Ran, run};
use api::Requests;
use server::service::LocalService;

fn image(dir: &Path, name: &str) -> PathBuf {
    let image = dir.join(name);
    fs::File::create(&image).expect("an image").set_len(128 << 20).expect("room");
    image
}

/// Goal: grants are stored, shown as OpenZFS shows them, inherited by descendants, given to
/// creators of datasets, and removed. They are there after an import.
#[test]
fn granted_and_shown() {
    let dir = tempfile::tempdir().expect("a folder");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let good = |line: &str| {
        let ran = run(line, house.clone());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    };
    good(&format!("zpool create -O mountpoint=none tank {}", image(dir.path(), "d0").display()));
    good("zfs create tank/home");
    assert_eq!(good("zfs allow tank"), "");
    good("zfs allow daemon snapshot,@keep,mount tank/home");
    good("zfs allow -l -g daemon rollback tank/home");
    good("zfs allow -d everyone hold tank");
    good("zfs allow -s @keep hold,release tank");
    good("zfs allow -c destroy,@keep tank");
    good("zfs allow -u 4000000000 userprop,compress tank");
    let tank = "---- Permissions on tank ---------------------------------------------\n\
                Permission sets:\n\t@keep hold,release\n\
                Create time permissions:\n\t@keep,destroy\n\
                Descendent permissions:\n\teveryone hold\n\
                Local+Descendent permissions:\n\tuser (unknown: 4000000000) compress,userprop\n";
    assert_eq!(good("zfs allow tank"), tank);
    let home = "---- Permissions on tank/home ----------------------------------------\n\
                Local permissions:\n\tgroup daemon rollback\n\
                Local+Descendent permissions:\n\tuser daemon @keep,mount,snapshot\n";
    assert_eq!(good("zfs allow tank/home"), format!("{home}{tank}"));
    // The creator of a dataset, here root, gets the create-time grants.
    good("zfs create tank/home/new");
    let new = "---- Permissions on tank/home/new ------------------------------------\n\
               Local permissions:\n\tuser root @keep,destroy\n";
    assert!(good("zfs allow tank/home/new").starts_with(new) || !is_root());
    good("zfs unallow daemon mount tank/home");
    good("zfs unallow -g daemon tank/home");
    good("zfs unallow -e tank");
    good("zfs unallow -s @keep release tank");
    good("zfs unallow -c tank");
    good("zfs unallow -r daemon tank");
    good("zpool export tank");
    good(&format!("zpool import -d {} tank", dir.path().display()));
    let left = "---- Permissions on tank ---------------------------------------------\n\
                Permission sets:\n\t@keep hold\n\
                Local+Descendent permissions:\n\tuser (unknown: 4000000000) compress,userprop\n";
    assert_eq!(good("zfs allow tank/home"), left);
    let history = good("zpool history -i tank");
    assert!(
        history.contains("permission update tank/home (") && history.contains("ud$1 snapshot"),
        "{history}"
    );
    good("zpool export tank");
    zdb(dir.path());
}

/// Runs OpenZFS's `zdb`, if the variable `ZDB` names it: no block and no object of the MOS leaks.
///
/// zdb does not visit the objects of grants and reports them as leaked for any pool that has some,
/// also one of OpenZFS (`dump_mos_leaks`).
fn zdb(dir: &Path) {
    let Some(zdb) = std::env::var_os("ZDB") else { return };
    for what in ["-bcc", "-d"] {
        let ran = Command::new(&zdb).arg("-e").arg("-p").arg(dir).args([what, "tank"]).output().expect("zdb");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let leaked: Vec<&str> = said.lines().filter(|line| line.ends_with(" leaked")).collect();
        assert!(leaked.iter().all(|line| line.contains("(DSL permissions)")), "{said}");
        assert!(ran.status.success() || !leaked.is_empty(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(what != "-bcc" || said.contains("No leaks"), "{said}");
    }
}

/// Goal: invalid command lines are refused as OpenZFS refuses them.
#[test]
fn grammar() {
    let dir = tempfile::tempdir().expect("a folder");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let ran = |line: &str| run(line, house.clone());
    assert_eq!(
        ran(&format!("zpool create -O mountpoint=none tank {}", image(dir.path(), "d0").display())).code,
        0
    );
    let ends = |line: &str, code: i32, end: &str| {
        let Ran { code: got, out, err } = ran(line);
        assert_eq!(got, code, "{line}: {err}");
        assert!(format!("{out}{err}").ends_with(end), "{line}: {out}{err}");
    };
    ends("zfs allow", 2, "zfs: error: wrong number of parameters\n");
    ends("zfs allow -u -g x mount tank", 2, "zfs: error: -u, -g, and -e are mutually exclusive\n");
    ends("zfs allow -s keep mount tank", 2, "zfs: error: invalid set name: missing '@' prefix\n");
    ends("zfs allow -c -l mount tank", 2, "zfs: error: invalid options combined with -c\n");
    ends(
        "zfs allow nobody-of-this-name mount tank",
        0,
        "zfs: error: invalid user/group nobody-of-this-name\n",
    );
    ends(
        "zfs allow root frobnicate tank",
        1,
        "cannot set permissions on 'tank': operation not applicable to datasets of this type\n",
    );
    ends("zfs allow root mount tank/none", 255, "Failed to open dataset: tank/none\n");
    ends("zfs allow -x", 2, "For further help on a command or topic, run: zfs help [<topic>]\n");
    let help = ran("zfs allow -h");
    assert_eq!(help.code, 0);
    assert!(help.out.starts_with("Usage: \tallow <filesystem|volume>\n"), "{}", help.out);
    assert!(help.out.contains("\nsnapshot         subcommand    \t\n"), "{}", help.out);
    assert!(help.out.contains("\ncompression      property      \t\n"), "{}", help.out);
    assert_eq!(ran("zpool export tank").code, 0);
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n")
}

/// A uid that nothing else on this machine uses.
const ANN: u32 = 61_001;
/// Another such uid.
const BOB: u32 = 61_002;

/// Root's daemon, open to all users, with a pool.
struct Stand {
    daemon: Child,
    dir: tempfile::TempDir,
}

impl Stand {
    fn new() -> Option<Self> {
        if !is_root() {
            eprintln!("only root has a daemon for others");
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let open =
            |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
        open(dir.path());
        fs::create_dir(dir.path().join("bin")).expect("a folder");
        for name in ["zpool", "zfs", "poolhouse"] {
            let program = dir.path().join("bin").join(name);
            if name == "zpool" {
                testkit::copy_program(env!("CARGO_BIN_EXE_poolhouse"), &program);
                open(&program);
            } else {
                std::os::unix::fs::symlink("zpool", &program).expect("a link");
            }
        }
        let mut daemon = Command::new(dir.path().join("bin/poolhouse"))
            .args(["serve", "--shared", "--run-dir"])
            .arg(dir.path().join("run"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log")).expect("a log"))
            .spawn()
            .expect("a daemon");
        let socket = dir.path().join("run/control.sock");
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(daemon.try_wait().expect("a child").is_none(), "the daemon ended");
            std::thread::yield_now();
        }
        let stand = Self { daemon, dir };
        let image = image(stand.dir.path(), "d0");
        stand.good(
            0,
            // The pool is kept out of the cache file that all programs of this machine read.
            &format!(
                "zpool create -o cachefile=none -m {} tank {}",
                stand.dir.path().join("mnt").display(),
                image.display()
            ),
        );
        Some(stand)
    }

    fn ran(&self, uid: u32, line: &str) -> Ran {
        let mut words = line.split_whitespace();
        let program = words.next().expect("a command");
        self.ended(uid, Command::new(self.dir.path().join("bin").join(program)).args(words))
    }

    /// Runs a line of a shell as a user, with our programs first on PATH.
    fn shell(&self, uid: u32, line: &str) -> Ran {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.dir.path().join("bin").display());
        self.ended(uid, Command::new("sh").args(["-c", line]).env("PATH", path))
    }

    /// Runs a command as a user.
    fn ended(&self, uid: u32, command: &mut Command) -> Ran {
        command.env("POOLHOUSE_RUN_DIR", self.dir.path().join("run")).current_dir(self.dir.path());
        let ran = command.uid(uid).gid(uid).output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Ran { code: ran.status.code().expect("a code"), out: text(ran.stdout), err: text(ran.stderr) }
    }

    fn good(&self, uid: u32, line: &str) -> String {
        let ran = self.ran(uid, line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{uid}: {line}");
        ran.out
    }

    /// Checks that a command is denied.
    fn bad(&self, uid: u32, line: &str) {
        let ran = self.ran(uid, line);
        assert!(
            ran.code == 1 && ran.err.contains("permission denied"),
            "{uid}: {line}: {} {}",
            ran.code,
            ran.err
        );
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.ran(0, "zpool destroy -f tank");
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Goal: `send` and `receive` are granted to other users as OpenZFS grants them: by the dataset,
/// for raw streams alone, for receives that add snapshots, and for each property of a stream.
#[test]
fn streams() {
    let Some(s) = Stand::new() else { return };
    s.good(0, "zfs create -o mountpoint=none tank/from");
    s.good(0, "zfs create -o mountpoint=none tank/to");
    s.good(0, "zfs snapshot tank/from@1");
    s.good(0, "zfs set a:b=c tank/from");
    let open = |name: &str| {
        let file = s.dir.path().join(name);
        fs::write(&file, b"").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
    };
    ["stream", "raw"].iter().for_each(|name| open(name));
    let refused = |line: &str, told: &str| {
        let ran = s.shell(ANN, line);
        assert_eq!((ran.code, ran.err.as_str()), (1, told), "{line}");
    };
    let good = |uid: u32, line: &str| {
        let ran = s.shell(uid, line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{uid}: {line}");
    };
    let unsent = "warning: cannot send 'tank/from@1': permission denied\n";
    refused("zfs send tank/from@1 >stream", unsent);
    good(0, &format!("zfs allow -u {ANN} send:raw tank/from"));
    good(ANN, "zfs send -w tank/from@1 >raw");
    refused("zfs send tank/from@1 >stream", unsent);
    good(0, &format!("zfs allow -u {BOB} send tank/from"));
    good(BOB, "zfs send -w tank/from@1 >raw");
    good(BOB, "zfs send -p tank/from@1 >stream");
    receives(&s, &refused, &good);
    // The history names the user.
    let history = s.good(0, "zpool history -l tank");
    assert!(history.contains(&format!("zfs receive -u -o atime=off tank/to/a [user {ANN}")), "{history}");
}

/// What another user may receive.
fn receives(s: &Stand, refused: &dyn Fn(&str, &str), good: &dyn Fn(u32, &str)) {
    let new = "cannot receive new filesystem stream: permission denied\n";
    refused("zfs receive tank/to/a <stream", new);
    good(0, &format!("zfs allow -u {ANN} receive:append,create tank/to"));
    refused("zfs receive tank/to/a <stream", new);
    good(0, &format!("zfs allow -u {ANN} mount tank/to"));
    good(0, "zfs allow -c snapshot tank/to");
    // From a file and from a pipe. The properties need permissions of their own.
    let denied = "cannot receive mountpoint property on tank/to/a: permission denied\n\
                  cannot receive a:b property on tank/to/a: permission denied\n\
                  cannot receive atime property on tank/to/a: permission denied\n";
    let ran = s.shell(ANN, "zfs receive -u -o atime=off tank/to/a <stream");
    assert_eq!((ran.code, ran.err.as_str()), (0, denied));
    assert_eq!(s.good(0, "zfs get -H -o value,source a:b,atime tank/to/a"), "-\t-\non\tdefault\n");
    good(0, &format!("zfs allow -u {ANN} userprop,mountpoint tank/to"));
    good(ANN, "cat stream | zfs receive -u tank/to/b");
    assert_eq!(s.good(0, "zfs get -H -o value,source a:b tank/to/b"), "c\treceived\n");
    // The creator has what creators are granted.
    good(ANN, "zfs snapshot tank/to/b@own");
    good(0, "zfs snapshot tank/from@2");
    good(BOB, "zfs send -i @1 tank/from@2 >stream");
    let on = "cannot receive incremental stream: permission denied\n";
    refused("zfs receive -F tank/to/b <stream", on);
    good(0, "zfs destroy tank/to/b@own");
    good(ANN, "zfs receive tank/to/b <stream");
    good(0, &format!("zfs allow -u {ANN} receive tank/to"));
    good(ANN, "zfs receive -F tank/to/a <stream");
    let ran = s.shell(BOB, "poolhouse ls tank/from:/");
    assert!(ran.code != 0 && ran.err.contains("another user"), "{}", ran.err);
}

/// Goal: a user of root's daemon can do what was granted and nothing else, verb by verb. Datasets
/// that the user creates are not mounted, and the history records the user.
#[test]
fn enforced() {
    let Some(s) = Stand::new() else { return };
    s.good(0, "zfs create -o mountpoint=none tank/home");
    s.good(0, "zfs create -o canmount=off tank/home/b");
    s.good(0, "zfs snapshot tank/home@root");
    for step in [
        queries_are_all_without_grants,
        messages_name_what_was_denied,
        grants_have_a_place,
        limits_bind_users,
        groups_and_sets,
        creators_get_grants,
        missing_parents_need_grants,
        use_of_others_needs_a_grant,
        datasets_belong_to_their_creator,
        grants_are_passed_on,
        delegation_can_be_off,
    ] {
        step(&s);
    }
}

/// Any user may run queries, and nothing else.
fn queries_are_all_without_grants(s: &Stand) {
    assert_eq!(s.good(ANN, "zfs list -H -o name -r tank/home"), "tank/home\ntank/home/b\n");
    assert_eq!(s.good(ANN, "zpool list -H -o name,health"), "tank\tONLINE\n");
    for line in [
        "zfs snapshot tank/home@ann",
        "zfs destroy tank/home@root",
        "zfs rollback tank/home@root",
        "zfs create tank/home/ann",
        "zfs clone tank/home@root tank/home/c",
        "zfs rename tank/home/b tank/home/c",
        "zfs rename tank/home@root @r",
        "zfs set compression=off tank/home",
        "zfs set a:b=c tank/home",
        "zfs inherit compression tank/home",
        "zfs hold x tank/home@root",
        "zfs bookmark tank/home@root #mark",
        "zfs allow everyone mount tank/home",
        "zfs unallow everyone tank/home",
        "zfs mount tank/home/b",
        "zfs unmount tank",
        "zfs userspace tank",
        "zpool export tank",
        "zpool destroy tank",
        "zpool set comment=x tank",
        "zpool history tank",
        "zpool sync tank",
        "zpool scrub tank",
    ] {
        let ran = s.ran(ANN, line);
        assert!(ran.code == 1 || ran.code == 255, "{line}: {}", ran.out);
    }
}

/// The message names what was denied, for every request, and nothing else.
fn messages_name_what_was_denied(s: &Stand) {
    s.good(0, "zfs create -s -V 16M tank/home/v");
    for (line, told) in [
        ("zfs mount tank/home/b", "cannot mount 'tank/home/b': permission denied\n"),
        ("zfs hold x tank/home@root", "cannot hold: permission denied\n"),
        ("zfs release x tank/home@root", "cannot release: permission denied\n"),
        ("zpool export tank", "cannot export 'tank': permission denied\n"),
        ("zpool destroy tank", "cannot destroy 'tank': permission denied\n"),
        ("poolhouse export -l /nowhere/sock tank/home/v", "cannot export 'tank/home/v': permission denied\n"),
        (
            "poolhouse attach tank/home/v",
            "cannot attach 'tank/home/v': permission denied: only root attaches and detaches volumes\n",
        ),
    ] {
        assert_eq!((s.ran(ANN, line).err.as_str(), line), (told, line));
    }
    s.good(0, "zfs destroy tank/home/v");
}

/// A permission for this dataset, for its descendants, and for snapshots, which are descendants.
fn grants_have_a_place(s: &Stand) {
    s.good(0, &format!("zfs allow -l -u {ANN} snapshot,hold,bookmark tank/home"));
    s.good(ANN, "zfs snapshot tank/home@ann");
    s.bad(ANN, "zfs snapshot tank/home/b@ann");
    s.bad(ANN, "zfs snapshot -r tank/home@all");
    s.bad(BOB, "zfs snapshot tank/home@bob");
    s.bad(ANN, "zfs snapshot -o a:b=c tank/home@props");
    s.good(ANN, "zfs hold x tank/home@ann");
    s.bad(ANN, "zfs release x tank/home@ann");
    s.good(0, "zfs release x tank/home@ann");
    s.good(ANN, "zfs bookmark tank/home@ann #mark");
    s.good(0, &format!("zfs allow -l -u {ANN} destroy,mount tank/home"));
    s.bad(ANN, "zfs destroy tank/home@ann");
    s.good(0, &format!("zfs allow -d -u {ANN} destroy,mount tank/home"));
    s.good(ANN, "zfs destroy tank/home@ann");
    s.good(ANN, "zfs destroy tank/home#mark");
}

/// Limits bind other users, whatever permissions they have, and not root.
fn limits_bind_users(s: &Stand) {
    s.good(0, "zfs create -o canmount=off tank/home/few");
    s.good(0, "zfs set snapshot_limit=1 tank/home/few");
    s.good(0, &format!("zfs allow -u {ANN} snapshot,snapshot_limit tank/home/few"));
    s.good(ANN, "zfs snapshot tank/home/few@1");
    let full = s.ran(ANN, "zfs snapshot tank/home/few@2");
    assert!(
        full.code == 1 && full.err.contains("cannot create snapshot 'tank/home/few@2': out of space"),
        "{}",
        full.err
    );
    s.good(0, "zfs snapshot tank/home/few@2");
    s.good(0, "zfs destroy -r tank/home/few");
}

/// Grants by group and by set, and for properties.
fn groups_and_sets(s: &Stand) {
    s.good(0, "zfs allow -s @edit compression,userprop tank");
    s.good(0, &format!("zfs allow -g {BOB} @edit tank/home"));
    s.good(BOB, "zfs set compress=off tank/home/b");
    s.good(BOB, "zfs set a:b=c tank/home@root");
    s.good(BOB, "zfs inherit compression tank/home/b");
    s.bad(BOB, "zfs set atime=off tank/home/b");
    s.bad(ANN, "zfs set compression=off tank/home/b");
}

/// Create: with properties, and with the create-time grants. The new dataset is not mounted, nor
/// could it be unmounted.
fn creators_get_grants(s: &Stand) {
    s.good(0, &format!("zfs allow -u {ANN} create tank/home"));
    s.good(0, "zfs allow -c snapshot,canmount,mountpoint,destroy,mount tank/home");
    s.bad(ANN, "zfs create -o atime=off tank/home/ann");
    let made = s.ran(ANN, "zfs create -o mountpoint=/poolhouse-none tank/home/ann");
    assert_eq!(made.err, "filesystem successfully created, but it may only be mounted by root\n");
    assert_eq!(s.good(0, "zfs get -H -o value mounted tank/home/ann"), "no\n");
    assert!(
        s.good(BOB, "zfs allow tank/home/ann")
            .contains(&format!("\tuser (unknown: {ANN}) canmount,destroy,mount,mountpoint,snapshot\n"))
    );
    s.good(ANN, "zfs snapshot tank/home/ann@own");
    s.bad(BOB, "zfs snapshot tank/home/ann@bob");
    s.bad(ANN, "zfs mount tank/home/ann");
    s.good(ANN, "zfs destroy -r tank/home/ann");
}

/// Create with missing parents: this needs the permission on the existing dataset and on each
/// that is created.
fn missing_parents_need_grants(s: &Stand) {
    s.ran(ANN, "zfs create -p -o mountpoint=none tank/home/x/y/z");
    assert_eq!(
        s.good(ANN, "zfs list -H -o name -r tank/home/x"),
        "tank/home/x\ntank/home/x/y\ntank/home/x/y/z\n"
    );
    s.bad(BOB, "zfs create -p tank/home/x/o/p");
    s.good(0, "zfs create -o canmount=off tank/only");
    s.good(0, &format!("zfs allow -l -u {ANN} create,mount tank/only"));
    s.bad(ANN, "zfs create -p tank/only/a/b");
    s.ran(ANN, "zfs create -p tank/only/a");
    assert_eq!(s.good(ANN, "zfs list -H -o name tank/only/a"), "tank/only/a\n");
    s.good(0, "zfs destroy -r tank/only");
    s.good(0, "zfs destroy -r tank/home/x");
}

/// The use of other users is reported where that is granted, and not below.
fn use_of_others_needs_a_grant(s: &Stand) {
    let of_bob = format!("userused@{BOB}");
    s.good(0, &format!("zfs allow -l -u {ANN} userused tank/home"));
    assert_eq!(
        s.good(ANN, &format!("zfs get -r -H -o name,value {of_bob} tank/home"))
            .lines()
            .filter(|l| !l.ends_with("\t-"))
            .collect::<Vec<_>>(),
        ["tank/home\t0B"]
    );
    s.good(0, &format!("zfs allow -u {ANN} userused tank/home"));
    let told = s.good(ANN, &format!("zfs get -r -H -o name,value {of_bob} tank/home"));
    assert!(told.contains("tank/home/b\t0B\n"), "{told}");
}

/// The new dataset belongs to its creator, also if another user mounts it.
fn datasets_belong_to_their_creator(s: &Stand) {
    let own = s.dir.path().join("own");
    s.ran(ANN, &format!("zfs create -o mountpoint={} tank/home/own", own.display()));
    s.good(0, "zfs mount tank/home/own");
    let root = fs::metadata(&own).expect("it is mounted");
    assert_eq!((root.uid(), root.gid()), (ANN, ANN));
    s.good(0, "zfs destroy -r tank/home/own");
    s.good(0, &format!("zfs create -o mountpoint={} tank/home/live", s.dir.path().join("live").display()));
    s.bad(ANN, "zfs destroy tank/home/live");
    assert_eq!(s.good(0, "zfs get -H -o value mounted tank/home/live"), "yes\n");
}

/// A user can grant permissions that it has, except `allow` itself, and remove only its own.
fn grants_are_passed_on(s: &Stand) {
    s.good(0, &format!("zfs allow -u {ANN} allow tank/home"));
    s.good(ANN, &format!("zfs allow -u {BOB} snapshot tank/home"));
    s.bad(ANN, &format!("zfs allow -u {BOB} rollback tank/home"));
    s.bad(ANN, &format!("zfs allow -u {BOB} allow tank/home"));
    s.bad(ANN, &format!("zfs unallow -u {BOB} snapshot tank/home"));
    s.good(BOB, "zfs snapshot tank/home@bob");
    s.good(ANN, &format!("zfs unallow -u {ANN} allow tank/home"));
    s.bad(ANN, &format!("zfs allow -u {BOB} hold tank/home"));
    let history = s.good(0, "zpool history -l tank");
    assert!(
        history
            .lines()
            .any(|l| l.contains("zfs snapshot tank/home@bob") && l.contains(&format!("[user {BOB}"))),
        "{history}"
    );
}

/// With `delegation=off` on the pool, no grant applies.
fn delegation_can_be_off(s: &Stand) {
    s.good(0, "zpool set delegation=off tank");
    let off = s.ran(BOB, "zfs snapshot tank/home@off");
    assert_eq!(
        (off.code, off.err.contains("delegated administration is disabled on pool")),
        (1, true),
        "{}",
        off.err
    );
}

/// Goal: a user who may set mount points and roll back can't make root's daemon mount anything
/// elsewhere by that.
#[test]
fn rollback_moves_no_mount() {
    let Some(s) = Stand::new() else { return };
    let (here, there) = (s.dir.path().join("here"), s.dir.path().join("there"));
    s.good(0, &format!("zfs create -o mountpoint={} tank/roll", here.display()));
    s.good(0, "zfs snapshot tank/roll@then");
    fs::write(here.join("file"), "content").expect("it is mounted");
    s.good(0, &format!("zfs allow -u {ANN} mount,mountpoint,rollback tank/roll"));
    s.good(ANN, &format!("zfs set -u mountpoint={} tank/roll", there.display()));
    s.good(ANN, "zfs rollback tank/roll@then");
    assert!(!here.join("file").exists() && !there.exists());
    let mounts = s.good(0, "zfs mount");
    assert!(mounts.lines().any(|l| l.ends_with(&format!(" {}", here.display()))), "{mounts}");
}
