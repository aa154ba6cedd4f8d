//! Daemons of ordinary users. The tests need root, to become such users with access to `/dev/fuse`.
//! Without it they print a message and do nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::daemon::said;

/// The user `nobody`, because fusermount3 serves only users in `/etc/passwd`.
const ANN: u32 = 65_534;
/// A uid that nothing else on this machine uses.
const BOB: u32 = 61_012;
/// Prepares a mount namespace in which all users can use `/dev/fuse`, and `fuse.conf` is a file of
/// the test. First it unmounts copies of other tests' mounts, which would keep these busy.
const FURNISH: &str = "cut -d' ' -f2,3 /proc/self/mounts | grep ' fuse.poolhouse$' | cut -d' ' -f1 | xargs -r -n1 umount -l; \
                       mount -t tmpfs -o mode=755 none $1/dev && mknod $1/dev/fuse c 10 229 && chmod 666 $1/dev/fuse && \
                       mount --bind $1/dev/fuse /dev/fuse && mount --bind $1/fuse.conf /etc/fuse.conf && echo ready && exec sleep infinity";

/// A machine whose users may mount, with a home directory for one of them.
struct Machine {
    dir: tempfile::TempDir,
    /// Keeps the namespace.
    holder: Child,
    program: PathBuf,
}

impl Machine {
    /// Returns `None` if that is not possible.
    fn new() -> Option<Self> {
        let has = |name: &str| ["/bin", "/usr/bin"].iter().any(|at| Path::new(at).join(name).exists());
        if !Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n")
            || !["fusermount3", "unshare", "nsenter", "setpriv"].iter().all(|name| has(name))
        {
            eprintln!("users can't mount here: that takes root, fusermount3, unshare, nsenter and setpriv");
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let open =
            |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
        open(dir.path());
        for folder in ["home", "dev"] {
            fs::create_dir(dir.path().join(folder)).expect("a folder");
        }
        std::os::unix::fs::chown(dir.path().join("home"), Some(ANN), Some(ANN)).expect("a home");
        fs::write(dir.path().join("fuse.conf"), "#user_allow_other\n").expect("settings");
        let program = dir.path().join("poolhouse");
        testkit::copy_program(env!("CARGO_BIN_EXE_poolhouse"), &program);
        open(&program);
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", FURNISH, "sh"])
            .arg(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("it was asked for")).read_line(&mut line).expect("a pipe");
        let machine = Self { dir, holder, program };
        if line != "ready\n" {
            eprintln!("users can't mount here: there can be no namespace in which /dev/fuse is theirs");
            return None;
        }
        Some(machine)
    }

    /// Changes `fuse.conf`.
    fn settings(&self, text: &str) {
        // The bind mount shows this file, not its name, so it must be written in place.
        fs::write(self.dir.path().join("fuse.conf"), text).expect("settings");
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Runs a line as a user.
    fn ran(&self, uid: u32, line: &str) -> Output {
        let (holder, uid) = (self.holder.id().to_string(), uid.to_string());
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &holder, "setpriv", "--reuid", &uid, "--regid", &uid]);
        command.args(["--clear-groups", "sh", "-c"]);
        command.arg(line.replace("poolhouse ", &format!("{} ", self.program.display())));
        let command = command.env_remove("POOLHOUSE_RUN_DIR").env("XDG_RUNTIME_DIR", self.home());
        command.current_dir("/").output().expect("it runs")
    }

    /// Runs a line as Ann, which must succeed.
    fn good(&self, line: &str) -> String {
        let ran = self.ran(ANN, line);
        assert!(ran.status.success(), "{line}: {}", said(&ran));
        String::from_utf8(ran.stdout).expect("text")
    }

    /// The process of Ann's daemon.
    fn daemon(&self) -> u32 {
        let home = format!("XDG_RUNTIME_DIR={}", self.home().display());
        let has = |pid: &u32, file: &str, word: &str| {
            let words = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
        };
        let serves = |pid: &u32| has(pid, "cmdline", "serve") && has(pid, "environ", &home);
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(serves).last().expect("there is a daemon")
    }

    /// The output of a line, which may succeed or fail.
    fn bad_or(&self, line: &str) -> String {
        said(&self.ran(ANN, line))
    }

    /// Runs a line as Ann, which must fail. Returns its output.
    fn bad(&self, line: &str) -> String {
        let ran = self.ran(ANN, line);
        assert_eq!(ran.status.code(), Some(1), "{line}: {}", said(&ran));
        said(&ran)
    }

    /// Runs a line as Ann, whose change only the kernel could apply to a mounted file system. The
    /// message must name the file system that it concerns.
    fn stale(&self, line: &str, expected: &str) {
        let ran = self.ran(ANN, line);
        let told = said(&ran);
        let first = format!("cannot mount '{expected}");
        assert_eq!(ran.status.code(), Some(255), "{line}: {told}");
        assert!(told.starts_with(&first) && told.matches("cannot mount").count() == 1, "{line}: {told}");
        assert!(told.ends_with("property may be set but unable to remount filesystem\n"), "{line}: {told}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Goal: an ordinary user creates a pool on an own file, mounts it in an own directory, writes,
/// exports and imports. No other user reaches the mount, the daemon or its directory.
#[test]
fn alone() {
    let Some(machine) = Machine::new() else { return };
    let (good, home) = (|line: &str| machine.good(line), machine.home());
    let at = home.display();
    good(&format!("truncate -s 128M {at}/d0"));
    good(&format!("poolhouse zpool create -m {at}/mnt own {at}/d0"));
    good(&format!("poolhouse zfs create -o mountpoint={at}/sub own/sub"));
    good(&format!("echo content >{at}/mnt/file && echo content >{at}/sub/file && sync {at}/sub/file"));
    assert_eq!(good(&format!("stat -c %u {at}/mnt/file {at}/sub/file")), format!("{ANN}\n{ANN}\n"));
    // The kernel denies other users access, also root.
    for other in [0, BOB] {
        assert!(!machine.ran(other, &format!("cat {at}/sub/file")).status.success());
    }
    assert!(machine.ran(BOB, "poolhouse zpool list -H").stdout.is_empty());
    assert!(!machine.ran(BOB, "poolhouse zpool export own").status.success());
    assert_eq!(fs::metadata(home.join("poolhouse")).expect("a folder").mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(home.join("poolhouse/control.sock")).expect("a socket").mode() & 0o777, 0o600);
    good("poolhouse zpool export own");
    good(&format!("poolhouse zpool import -d {at} own"));
    assert_eq!(good(&format!("cat {at}/sub/file")), "content\n");
    good("poolhouse zpool export own");
    assert!(good("poolhouse doctor").contains("the daemon's folder"));
    // fusermount3 refuses users without a name.
    let told = machine.ran(BOB, "XDG_RUNTIME_DIR= poolhouse doctor");
    assert_eq!(told.status.code(), Some(1), "{}", said(&told));
    assert!(said(&told).contains(&format!("MISSING  fusermount3: will not mount for user {BOB}")));
}

/// Goal: a user who can only read an image may lock it, and its owner can import it all the same. A
/// claim by another user is refused meanwhile and afterwards.
#[test]
fn locked_by_a_reader() {
    let Some(machine) = Machine::new() else { return };
    let image = machine.home().join("d0");
    let at = machine.home().display().to_string();
    machine.good(&format!("truncate -s 128M {at}/d0 && chmod 644 {at}/d0"));
    machine.good(&format!("poolhouse zpool create -m none own {at}/d0 && poolhouse zpool export own"));
    let second = || device::FileDevice::open(&image, device::Mode::Write);
    for how in ["-s", "-x"] {
        let (uid, path) = (BOB.to_string(), image.display().to_string());
        let mut reader = Command::new("setpriv")
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "flock", how, &path])
            .args(["sh", "-c", "echo locked; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("flock");
        let mut line = String::new();
        BufReader::new(reader.stdout.take().expect("it was asked for")).read_line(&mut line).expect("a pipe");
        assert_eq!(line, "locked\n");
        machine.good(&format!("poolhouse zpool import -d {at} own"));
        assert!(matches!(second(), Err(device::DeviceError::Busy { .. })), "beside the reader");
        drop(reader.stdin.take());
        reader.wait().expect("it ends");
        machine.good("poolhouse zpool sync -f own");
        assert!(matches!(second(), Err(device::DeviceError::Busy { .. })), "after the reader");
        machine.good("poolhouse zpool export own");
        drop(second().expect("nobody has it"));
    }
}

/// Goal: a user can allow others access, for one mount or for all, if `fuse.conf` permits that.
/// Then each file system has its own mount, also inside another's.
///
/// Otherwise each way reports what is missing.
#[test]
fn let_in() {
    let Some(machine) = Machine::new() else { return };
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    let home = machine.home();
    let at = home.display();
    good(&format!("truncate -s 128M {at}/d0"));
    good(&format!("poolhouse zpool create -m {at}/mnt own {at}/d0"));
    good("poolhouse zfs create own/sub");
    let told = bad("poolhouse serve --allow-other");
    assert_eq!(
        told,
        "cannot serve: nobody else may be let in: there is no line 'user_allow_other' in /etc/fuse.conf\n"
    );
    good("poolhouse zfs unmount own");
    let told = bad("poolhouse zfs mount -o allow_other own");
    assert_eq!(told, "cannot mount 'own': allow_other takes the line 'user_allow_other' in /etc/fuse.conf\n");
    assert!(good("poolhouse doctor").contains("without  user_allow_other"));

    machine.settings("user_allow_other\n");
    assert!(good("poolhouse doctor").contains("ok       user_allow_other"));
    good("poolhouse zfs mount -o allow_other own && poolhouse zfs mount own/sub");
    good(&format!("echo content >{at}/mnt/file && echo content >{at}/mnt/sub/file"));
    let read = |uid: u32, file: &str| machine.ran(uid, &format!("cat {at}/mnt/{file}")).status.success();
    assert_eq!([read(BOB, "file"), read(BOB, "sub/file"), read(ANN, "sub/file")], [true, false, true]);
    // The kernel takes this option only at the time of the mount.
    let told = bad("poolhouse zfs mount -o remount,allow_other own/sub");
    assert!(told.starts_with("cannot mount 'own/sub': invalid mount option 'allow_other'"), "{told}");
    good("poolhouse zpool export own");
    let socket = home.join("poolhouse/control.sock");
    while socket.exists() {
        std::thread::yield_now();
    }
    good("poolhouse serve --allow-other --background >/dev/null 2>&1 &");
    while !socket.exists() {
        std::thread::yield_now();
    }
    good(&format!("poolhouse zpool import -d {at} own && poolhouse zfs create own/sub/deep"));
    good(&format!("echo content >{at}/mnt/sub/deep/file"));
    assert_eq!([read(BOB, "sub/file"), read(BOB, "sub/deep/file"), read(0, "sub/deep/file")], [true; 3]);
    // Files' permissions still apply.
    assert!(!machine.ran(BOB, &format!("touch {at}/mnt/sub/deep/file")).status.success());
    good("poolhouse zpool export own");
}

/// Goal: root of a user namespace, with a `/run/poolhouse` of another owner, gets a daemon in its
/// own directory.
///
/// That is neither the user's directory outside nor that of another namespace. The choice and its
/// reason are reported once, and by `doctor`.
#[test]
fn root_of_a_namespace() {
    let Some(machine) = Machine::new() else { return };
    if !machine.ran(ANN, "unshare -rm true").status.success() {
        eprintln!("users have no namespaces of their own here");
        return;
    }
    let at = machine.home().display().to_string();
    assert!(machine.ran(0, "mount -t tmpfs -o mode=755 none /run && mkdir /run/poolhouse").status.success());
    machine.good(&format!("truncate -s 128M {at}/d0 {at}/d1"));
    machine.good(&format!("poolhouse zpool create -m none outside {at}/d0"));
    let inside = format!(
        "unshare -rm sh -ec 'poolhouse zpool create -m {at}/mnt inside {at}/d1; poolhouse zpool list -H -o name; \
         poolhouse doctor || true; echo content >{at}/mnt/file; poolhouse zpool export inside'"
    );
    let ran = machine.ran(ANN, &inside);
    assert!(ran.status.success(), "{}", said(&ran));
    let words = said(&ran);
    assert_eq!(words.matches("note: the daemon's folder is ").count(), 1, "{words}");
    assert!(words.contains(&format!("{at}/poolhouse-ns")), "{words}");
    assert!(words.contains("Not used: the daemon's folder /run/poolhouse belongs to user"), "{words}");
    assert!(words.contains("inside\n") && !words.contains("outside\n"), "{words}");
    assert_eq!(machine.good("poolhouse zpool list -H -o name"), "outside\n");
    machine.good("poolhouse zpool export outside");
}

/// Goal: a daemon that started elsewhere because `/run` was full is found by commands of root and
/// of others when there is space again.
///
/// A directory that was named is never replaced by another, and the error gives the reason.
#[test]
fn a_full_run() {
    let Some(machine) = Machine::new() else { return };
    let at = machine.home().display().to_string();
    let root = |line: &str| machine.ran(0, &format!("cd {at}; unset XDG_RUNTIME_DIR; {line}"));
    let furnished = root(
        // The test's own directory may lie in the covered /tmp.
        "mount -t tmpfs -o mode=755,size=1M none /run && mkdir /run/named /run/own && mount --bind .. /run/own && \
         own=$(cd .. && pwd) && mount -t tmpfs -o mode=1777 none /tmp && mkdir -p $own && \
         mount --bind /run/own $own && cd $own/home && truncate -s 128M d0 d1; head -c 4M /dev/zero >/run/full; true",
    );
    assert!(furnished.status.success(), "{}", said(&furnished));
    // A command that only reads does not treat it as a daemon without pools either.
    for line in ["zpool create -m none tank $PWD/d0", "zpool list", "zfs list", "zpool export -a", "ls"] {
        let named = root(&format!("POOLHOUSE_RUN_DIR=/run/named poolhouse {line}"));
        let words = said(&named);
        assert!(!named.status.success(), "{line}: {words}");
        assert!(words.contains("/run/named") && words.contains("No space left on device"), "{line}: {words}");
    }
    for (folder, why) in
        [("/dev/null/run", "Not a directory"), ("/proc/run", "/proc/run"), ("/etc/passwd", "is no folder")]
    {
        let named = root(&format!("POOLHOUSE_RUN_DIR={folder} poolhouse zpool list"));
        assert!(!named.status.success() && said(&named).contains(why), "{folder}: {}", said(&named));
    }
    let roots = machine.ran(BOB, "POOLHOUSE_RUN_DIR=/etc poolhouse zfs list");
    assert!(
        !roots.status.success() && said(&roots).contains("/etc is a folder of root's"),
        "{}",
        said(&roots)
    );
    let theirs = machine.ran(BOB, &format!("cd {at}; POOLHOUSE_RUN_DIR={at} poolhouse ls tank:/"));
    assert!(!theirs.status.success() && said(&theirs).contains("belongs to user"), "{}", said(&theirs));
    let ran = root("poolhouse zpool create -m none tank $PWD/d0");
    assert!(ran.status.success(), "{}", said(&ran));
    let words = said(&ran);
    assert!(words.contains("note: the daemon's folder is /tmp/poolhouse-0: "), "{words}");
    assert!(words.contains("/run/poolhouse: No space left on device"), "{words}");
    assert!(root("rm /run/full").status.success());
    let second = root("poolhouse zpool create -m none second $PWD/d1; poolhouse zpool list -H -o name");
    assert!(said(&second).ends_with("second\ntank\n"), "{}", said(&second));
    assert!(
        said(&root("poolhouse doctor"))
            .contains("/run/poolhouse, which could not be used when that daemon began")
    );
    // A daemon that is started by hand finds it too.
    assert!(said(&root("timeout 20 poolhouse serve")).contains("a daemon runs already at /tmp/poolhouse-0"));
    assert_eq!(said(&machine.ran(BOB, "poolhouse zpool list -H -o name")), "second\ntank\n");
    assert!(root("poolhouse zpool export -a").status.success());
}

/// Goal: a mount that fails names its cause and a remedy, and `doctor` finds the same. No directory
/// remains that a script could fill.
#[test]
fn reasons_of_failed_mounts() {
    let Some(machine) = Machine::new() else { return };
    let at = machine.home().display().to_string();
    let bare = format!(
        "mkdir {at}/dev && mount -t tmpfs none {at}/dev && mknod -m 666 {at}/dev/null c 1 3 && mount --bind {at}/dev /dev"
    );
    let cases = [
        ("nofuse", format!("unshare -m sh -c '{bare}; LINE'"), "--device /dev/fuse", "MISSING  /dev/fuse"),
        (
            "nocap",
            "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin sh -c 'LINE'".to_owned(),
            "without CAP_SYS_ADMIN",
            "MISSING  mounting",
        ),
    ];
    for (name, how, cause, finding) in cases {
        let lines = format!(
            "export POOLHOUSE_RUN_DIR={at}/{name}.run; truncate -s 128M {at}/{name}; \
             poolhouse zpool create -m {at}/mnt/{name} {name} {at}/{name}; poolhouse zfs mount {name}; \
             poolhouse doctor; poolhouse zpool export {name}"
        );
        let words = said(&machine.ran(0, &how.replace("LINE", &lines)));
        assert!(words.matches(cause).count() >= 3, "{name}: {words}");
        assert!(words.contains(finding), "{name}: {words}");
        assert!(!machine.home().join("mnt").exists(), "{name}: {words}");
    }
    // A mount point of a user must belong to that user.
    fs::create_dir(machine.dir.path().join("roots")).expect("a folder");
    let roots = machine.dir.path().join("roots").display().to_string();
    machine.good(&format!("truncate -s 128M {at}/own && poolhouse zpool create -m none own {at}/own"));
    let words = said(
        &machine.ran(ANN, &format!("poolhouse zfs set mountpoint={roots} own; poolhouse zfs mount own")),
    );
    assert!(words.contains("a user mounts on folders of their own only"), "{words}");
    machine.good("poolhouse zpool export own");
}

/// Goal: without /proc an unused image can be read, and one in use can't.
#[test]
fn images_without_proc() {
    let Some(machine) = Machine::new() else { return };
    let at = machine.home().display().to_string();
    let root = |line: &str| machine.ran(0, line);
    let bare = |line: &str| root(&format!("unshare -m sh -c 'mount -t tmpfs none /proc && {line}'"));
    machine.good(&format!("truncate -s 128M {at}/d0 && poolhouse zpool create -m {at}/mnt own {at}/d0"));
    machine.good(&format!("echo text >{at}/mnt/file && poolhouse zpool sync"));
    let held = bare(&format!("poolhouse ls -d {at}/d0 own:/"));
    assert!(!held.status.success() && said(&held).contains("in use"), "{}", said(&held));
    machine.good("poolhouse zpool export own");
    let free = bare(&format!("poolhouse ls -d {at}/d0 own:/ && poolhouse cp -d {at}/d0 own:/file {at}/out"));
    assert!(free.status.success() && said(&free).contains("file"), "{}", said(&free));
    assert_eq!(fs::read_to_string(machine.home().join("out")).expect("a copy"), "text\n");
}

/// Goal: an image that can be read and not written is reported, with the hint that `-o readonly=on`
/// imports it.
#[test]
fn an_image_that_cant_be_written() {
    let Some(machine) = Machine::new() else { return };
    let at = machine.home().display().to_string();
    machine.good(&format!("truncate -s 128M {at}/d0 && poolhouse zpool create -m none own {at}/d0"));
    machine.good(&format!("poolhouse zpool export own && chmod 444 {at}/d0"));
    let words = machine.bad(&format!("poolhouse zpool import -d {at} own"));
    assert!(words.contains(&format!("cannot write {at}/d0: Permission denied")), "{words}");
    assert!(words.contains("-o readonly=on"), "{words}");
    machine.good(&format!("poolhouse zpool import -o readonly=on -d {at} own"));
    machine.good("poolhouse zpool export own");
}

/// Goal: a file system below a mounted one is a separate file system in that mount: in listings,
/// sizes, numbers and its `.zfs`.
///
/// Changes stay in it, and it is unmounted like any other.
#[test]
fn nested() {
    let Some(machine) = Machine::new() else { return };
    let good = |line: &str| machine.good(line);
    let at = machine.home().display().to_string();
    let mnt = format!("{at}/mnt");
    good(&format!("truncate -s 256M {at}/d0"));
    good(&format!("poolhouse zpool create -m {mnt} own {at}/d0"));
    good("poolhouse zfs create own/a && poolhouse zfs create own/a/b && poolhouse zfs create own/other");
    let mounted = format!("own\t{mnt}\nown/a\t{mnt}/a\nown/a/b\t{mnt}/a/b\nown/other\t{mnt}/other\n");
    let listed = good("poolhouse zfs mount");
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), mounted.split_whitespace().collect::<Vec<_>>());
    assert_eq!(good("poolhouse zfs list -H -o mounted own/a own/a/b own/other"), "yes\n".repeat(3));
    assert_eq!(good("cut -d' ' -f3 /proc/self/mounts | grep -c '^fuse.poolhouse$'"), "1\n");
    own_numbers(&machine, &mnt);
    own_sizes(&machine, &mnt);
    borders(&machine, &mnt);
    own_readonly(&machine, &mnt);
    own_snapshots(&machine, &mnt);
    in_use(&machine, &mnt);
    over_a_directory(&machine, &mnt);
    // All are unmounted at once, and mounted again.
    good("poolhouse zfs unmount own");
    assert_eq!(good(&format!("poolhouse zfs mount; ls {mnt} | wc -l")), "0\n");
    good(&format!("poolhouse zfs mount -a && test -e {mnt}/a/b/file"));
    good(&format!("poolhouse zpool export own && poolhouse zpool import -d {at} own"));
    assert_eq!(good(&format!("cat {mnt}/other/file {mnt}/a/b/moved")), format!("{mnt}/other\n{mnt}/a\n"));
    good("poolhouse zfs destroy -r own/a && poolhouse zpool export own");
}

/// Each has a file with the same inode number.
fn own_numbers(machine: &Machine, mnt: &str) {
    let good = |line: &str| machine.good(line);
    good(&format!("for d in {mnt} {mnt}/a {mnt}/a/b {mnt}/other; do echo $d >$d/file; done"));
    let numbers = good(&format!(
        "stat -c %i {mnt} {mnt}/a {mnt}/a/b {mnt}/other {mnt}/file {mnt}/a/file {mnt}/a/b/file {mnt}/other/file"
    ));
    let mut numbers: Vec<&str> = numbers.lines().collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 8);
    assert_eq!(
        good(&format!("stat -c %d {mnt} {mnt}/a/b | uniq | wc -l; ls -id {mnt}/a; ls -i {mnt} | grep ' a$'"))
            .split_whitespace()
            .filter(|word| !word.starts_with('/') && *word != "a")
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        2
    );
    assert_eq!(good(&format!("cat {mnt}/a/b/../file")), format!("{mnt}/a\n"));
}

/// It has its own size.
fn own_sizes(machine: &Machine, mnt: &str) {
    let good = |line: &str| machine.good(line);
    good("poolhouse zfs set quota=8M own/a/b");
    assert!(machine.bad_or(&format!("head -c 20M /dev/urandom >{mnt}/a/b/big")).contains("quota exceeded"));
    good(&format!("rm {mnt}/a/b/big && test $(df -k --output=size {mnt}/a/b | tail -1) -le 8192"));
    good(&format!("test $(df -k --output=size {mnt}/a | tail -1) -gt 8192"));
    good("poolhouse zfs set quota=none own/a/b && poolhouse zpool sync own");
}

fn borders(machine: &Machine, mnt: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    // Files can't be linked or renamed across file systems; `mv` copies.
    assert!(bad(&format!("ln {mnt}/a/file {mnt}/a/b/link")).contains("Invalid cross-device link"));
    good(&format!("mv {mnt}/a/file {mnt}/a/b/moved && cp --reflink=auto {mnt}/a/b/moved {mnt}/a/file"));
    assert_eq!(good(&format!("cat {mnt}/a/b/moved {mnt}/a/file")), format!("{mnt}/a\n").repeat(2));
    // A mount point can't be removed or renamed.
    for line in [format!("rmdir {mnt}/other"), format!("mv -T {mnt}/a/b {mnt}/a/c")] {
        assert!(bad(&line).contains("Device or resource busy"), "{line}");
    }
}

/// A read-only property takes effect at once, and other file systems stay writable.
fn own_readonly(machine: &Machine, mnt: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    good("poolhouse zfs set readonly=on own/a");
    for line in ["touch {}/new", "rm {}/file", "mkdir {}/d", "chmod 700 {}/file", "truncate -s 1 {}/file"] {
        assert!(bad(&line.replace("{}", &format!("{mnt}/a"))).contains("Read-only file system"), "{line}");
    }
    good(&format!("touch {mnt}/new && poolhouse zfs set readonly=off own/a && touch {mnt}/a/new"));
}

/// Each has its own snapshots. A clone, and other names.
fn own_snapshots(machine: &Machine, mnt: &str) {
    let good = |line: &str| machine.good(line);
    good("poolhouse zfs snapshot -r own@s && poolhouse zfs set snapdir=visible own/a/b");
    good(&format!("echo later >{mnt}/a/b/file"));
    assert_eq!(good(&format!("cat {mnt}/a/b/.zfs/snapshot/s/file")), format!("{mnt}/a/b\n"));
    assert!(good(&format!("ls -A {mnt}/a/b")).contains(".zfs"));
    good(&format!("poolhouse zfs rollback own/a/b@s && grep -q /a/b {mnt}/a/b/file"));
    // A clone, and other names.
    good("poolhouse zfs clone own/a/b@s own/clone && poolhouse zfs rename own/clone own/a/clone");
    assert_eq!(good(&format!("cat {mnt}/a/clone/file")), format!("{mnt}/a/b\n"));
    good(&format!("test ! -e {mnt}/clone/file && poolhouse zfs destroy own/a/clone"));
    good(&format!("poolhouse zfs set mountpoint={mnt}/a/b/far own/other && test -e {mnt}/a/b/far/file"));
    assert_eq!(good(&format!("ls -A {mnt}/a/b/far")), "file\n");
    good("poolhouse zfs inherit mountpoint own/other");
}

/// Errors for file systems in use.
fn in_use(machine: &Machine, mnt: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    for line in [format!("exec 9<{mnt}/a/b/file"), format!("cd {mnt}/a/b"), format!("cd {mnt}/a/b/.zfs")] {
        let told = bad(&format!("{line}; poolhouse zfs unmount own/a/b"));
        let expected = format!("cannot unmount '{mnt}/a/b': dataset is busy: in use by sh (pid ");
        assert!(told.starts_with(&expected), "{line}: {told}");
        assert!(bad(&format!("{line}; poolhouse zpool export own")).contains("busy"));
        assert_eq!(good("poolhouse zfs list -H -o mounted -r own"), "yes\n".repeat(4), "{line}");
        assert!(good(&format!("cat {mnt}/a/b/file")).contains("/a/b"));
    }
    assert!(bad(&format!("poolhouse zfs unmount {mnt}")).contains("busy"), "others are in it");
}

/// The directory below the mount point is visible after an unmount, and is not mistaken for the
/// file system.
fn over_a_directory(machine: &Machine, mnt: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    good(&format!("poolhouse zfs unmount {mnt}/a/b && test ! -e {mnt}/a/b/file && touch {mnt}/a/b/under"));
    assert_eq!(good("poolhouse zfs list -H -o mounted own/a/b"), "no\n");
    good("poolhouse zfs set overlay=off own/a/b");
    assert!(bad("poolhouse zfs mount own/a/b").contains("directory is not empty"));
    good(&format!("poolhouse zfs mount -O own/a/b && test ! -e {mnt}/a/b/under && test -e {mnt}/a/b/file"));
    good("poolhouse zfs inherit overlay own/a/b");
}

/// Goal: nested file systems of a daemon that was killed are mounted again with their pool as
/// before, except those that were unmounted.
#[test]
fn nested_in_a_killed_daemon() {
    let Some(machine) = Machine::new() else { return };
    let good = |line: &str| machine.good(line);
    let at = machine.home().display().to_string();
    good(&format!("truncate -s 256M {at}/d0"));
    good(&format!("poolhouse zpool create -m {at}/mnt own {at}/d0"));
    good("poolhouse zfs create own/a && poolhouse zfs create -o canmount=noauto own/kept");
    good("poolhouse zfs create -o canmount=noauto own/left && poolhouse zfs mount own/left");
    good("poolhouse zfs mount -o ro own/kept && poolhouse zfs unmount own/left");
    good(&format!("echo content >{at}/mnt/a/file && sync {at}/mnt/a/file"));
    let pid = machine.daemon();
    good(&format!("kill -9 {pid}; while test -d /proc/{pid}; do sleep 0.1; done"));
    good(&format!("poolhouse zpool import -d {at} own"));
    assert_eq!(good(&format!("cat {at}/mnt/a/file")), "content\n");
    assert_eq!(good("poolhouse zfs list -H -o mounted own/a own/kept own/left"), "yes\nyes\nno\n");
    assert!(machine.bad(&format!("touch {at}/mnt/kept/new")).contains("Read-only file system"));
    good("poolhouse zpool export own");
}

/// Goal: nested file systems that are mounted together are opened at their first use. Before that,
/// a snapshot has all durable data, and each command works as usual.
#[test]
fn nested_and_opened_late() {
    let Some(machine) = Machine::new() else { return };
    let good = |line: &str| machine.good(line);
    let at = machine.home().display().to_string();
    let mnt = format!("{at}/mnt");
    let open = || good("poolhouse get kstat | grep -o 'objset-0x[0-9a-f]*' | sort -u | wc -l");
    good(&format!("truncate -s 256M {at}/d0 && echo passphrase >{at}/key"));
    good(&format!("poolhouse zpool create -m {mnt} own {at}/d0"));
    good("for d in a a/b gone kept back; do poolhouse zfs create own/$d; done");
    good(&format!(
        "poolhouse zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{at}/key own/x"
    ));
    good(&format!("for d in a a/b gone kept back x; do echo $d >{mnt}/$d/file; done"));
    good(&format!(
        "poolhouse zfs snapshot own/back@s && echo new >{mnt}/back/file && poolhouse zpool sync own"
    ));
    good(&format!("echo durable >{mnt}/kept/file && sync {mnt}/kept/file"));
    let pid = machine.daemon();
    good(&format!("kill -9 {pid}; while test -d /proc/{pid}; do sleep 0.1; done"));
    good(&format!("poolhouse zpool import -l -d {at} own"));
    assert_eq!(open(), "2\n", "own, and own/a for its mountpoint b");
    assert_eq!(good("poolhouse zfs list -H -o mounted -r own"), "yes\n".repeat(7));
    assert_eq!(good(&format!("ls {mnt}")), "a\nback\ngone\nkept\nx\n");
    // These commands find durable data before the first use.
    good("poolhouse zfs snapshot own/kept@s && poolhouse zfs clone own/kept@s own/clone");
    assert_eq!(good(&format!("cat {mnt}/clone/file")), "durable\n");
    good("poolhouse zfs destroy own/clone && poolhouse zfs rename own/gone own/went");
    assert!(machine.bad_or("poolhouse zfs unload-key own/x").contains("busy"));
    assert_eq!(open(), "2\n");
    // Properties that are set before the first use apply.
    good("poolhouse zfs set readonly=on own/x && poolhouse zfs set snapdir=visible own/kept");
    assert!(machine.bad(&format!("touch {mnt}/x/new")).contains("Read-only file system"));
    good(&format!("poolhouse zfs set readonly=off own/x && touch {mnt}/x/new"));
    assert_eq!(
        good(&format!("ls -A {mnt}/kept; cat {mnt}/kept/file {mnt}/x/file")),
        ".zfs\nfile\ndurable\nx\n"
    );
    assert_eq!(open(), "4\n");
    good(&format!("poolhouse zfs rollback own/back@s && grep -qx back {mnt}/back/file"));
    good(&format!("poolhouse zfs set userquota@1234=1M own/a/b && grep -qx a/b {mnt}/a/b/file"));
    good(&format!(
        "poolhouse zfs unmount own/went && poolhouse zfs mount own/went && grep -qx gone {mnt}/went/file"
    ));
    // File systems are unmounted and destroyed without having been used.
    good(&format!("poolhouse zpool export own && poolhouse zpool import -l -d {at} own"));
    good(
        "poolhouse zfs destroy own/went && poolhouse zfs unmount own/kept && poolhouse zfs destroy -r own/a",
    );
    assert_eq!(
        good("poolhouse zfs list -H -o name,mounted -r own"),
        "own\tyes\nown/back\tyes\nown/kept\tno\nown/x\tyes\n"
    );
    assert_eq!(open(), "1\n");
    // Mount points through links, into the mount and out of it.
    good(&format!("ln -s mnt {at}/link && mkdir {at}/away && ln -s ../away {mnt}/leads"));
    good(&format!(
        "poolhouse zfs create -o mountpoint={at}/link/in own/in && poolhouse zfs create -o mountpoint={mnt}/leads/y own/y"
    ));
    assert!(good("poolhouse zfs mount").contains(&format!("{mnt}/in\n")));
    assert!(good("cat /proc/self/mounts").contains(&format!(" {at}/away/y fuse.poolhouse ")));
    good("poolhouse zfs destroy own/in && poolhouse zfs destroy own/y");
    // Many concurrent first uses.
    good(&format!(
        "for i in 1 2 3 4 5 6 7 8; do cat {mnt}/back/file & done >{at}/out; wait; test $(grep -cx back {at}/out) = 8"
    ));
    good("poolhouse zpool export own");
}

/// Goal: a nested file system is not mounted if it needs what the mount around it lacks. The error
/// gives the reason and a remedy. One that the mount around it protects better is mounted.
#[test]
fn nested_against_its_will() {
    let Some(machine) = Machine::new() else { return };
    let good = |line: &str| machine.good(line);
    let at = machine.home().display().to_string();
    good(&format!("truncate -s 256M {at}/d0"));
    good(&format!("poolhouse zpool create -m {at}/mnt own {at}/d0"));
    lacks_of_the_outer_mount(&machine, &at);
    changes_that_need_the_kernel(&machine, &at);
    readonly_by_the_daemon(&machine, &at);
    inherited_properties(&machine, &at);
    good("poolhouse zpool export own");
}

fn lacks_of_the_outer_mount(machine: &Machine, at: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    for prop in ["exec=off", "acltype=posix"] {
        good(&format!("poolhouse zfs create -o canmount=noauto -o {prop} own/x"));
        let told = bad("poolhouse zfs mount own/x");
        let expected = format!(
            "cannot mount 'own/x': {prop} takes effect only if {at}/mnt says the same, in whose mount"
        );
        assert!(told.contains(&expected), "{told}");
        good(&format!("poolhouse zfs set mountpoint={at}/out own/x && poolhouse zfs mount own/x"));
        good("poolhouse zfs destroy own/x");
    }
    // ACLs need no check if nothing can change and only this user has access.
    good(&format!("mkdir {at}/mnt/x"));
    good("poolhouse zfs create -o canmount=noauto -o acltype=posix own/x && poolhouse zpool export own");
    good(&format!("poolhouse zpool import -d {at} -o readonly=on own && poolhouse zfs mount own/x"));
    good(&format!("ls {at}/mnt/x && poolhouse zpool export own && poolhouse zpool import -d {at} own"));
    assert!(bad("poolhouse zfs mount own/x").contains("acltype=posix takes effect only if"));
    good("poolhouse zfs destroy own/x");
}

fn changes_that_need_the_kernel(machine: &Machine, at: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    good("poolhouse zfs create own/ro && poolhouse zfs create -o readonly=off own/rw");
    good("poolhouse zfs unmount own && poolhouse zfs set readonly=on own");
    good("poolhouse zfs mount own && poolhouse zfs mount own/ro");
    let told = bad("poolhouse zfs mount own/rw");
    assert!(told.contains("readonly=off takes effect only if"), "{told}");
    machine.stale(
        "poolhouse zfs set readonly=off own",
        "own': readonly=off takes effect when it is mounted again",
    );
    machine.stale(
        "poolhouse zfs set acltype=posix own/ro",
        &format!("own/ro': acltype=posix takes effect only if {at}/mnt says"),
    );
    good("poolhouse zfs inherit acltype own/ro && poolhouse zfs set acltype=posix own");
    good("poolhouse zfs inherit acltype own && poolhouse zfs unmount own");
    good("poolhouse zfs set exec=off acltype=posix own && poolhouse zfs mount own");
}

/// The daemon enforces read-only itself, since the kernel is not notified. Nested file systems keep
/// their own property.
fn readonly_by_the_daemon(machine: &Machine, at: &str) {
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    let readonly = || good("poolhouse zfs get -H -o value,source readonly own own/ro own/rw");
    good(&format!("poolhouse zfs mount -a && touch {at}/mnt/new {at}/mnt/ro/new {at}/mnt/rw/new"));
    good("poolhouse zfs set readonly=on own");
    assert_eq!(readonly(), "on\tlocal\non\tinherited from own\noff\tlocal\n");
    for path in ["new", "other", "ro/new"] {
        let refused = bad(&format!("touch {at}/mnt/{path}"));
        assert!(refused.contains("Read-only file system"), "{path}: {refused}");
    }
    good(&format!(
        "touch {at}/mnt/rw/other && poolhouse zfs set readonly=off own && touch {at}/mnt/other {at}/mnt/ro/new"
    ));
    // Changes through an existing memory map are not lost.
    let map = format!(
        "import mmap, subprocess\nf = open(\"{at}/mnt/new\", \"r+b\"); f.truncate(4096)\n\
         m = mmap.mmap(f.fileno(), 4096); m[0:3] = b\"one\"\n\
         subprocess.check_call([\"sh\", \"-c\", \"poolhouse zfs set readonly=on own\"])\n\
         m[4:7] = b\"two\"; m.flush()"
    );
    good(&format!("python3 -c '{map}' && poolhouse zfs unmount own/ro && poolhouse zfs mount own/ro"));
    assert!(bad(&format!("touch {at}/mnt/other")).contains("Read-only file system"));
    assert_eq!(good(&format!("tr -d '\\0' <{at}/mnt/new")), "onetwo");
    good("poolhouse zfs set readonly=off own");
}

/// File systems that inherit it are mounted with their pool, before their first use.
fn inherited_properties(machine: &Machine, at: &str) {
    let good = |line: &str| machine.good(line);
    let readonly = || good("poolhouse zfs get -H -o value,source readonly own own/ro own/rw");
    good(
        "poolhouse zfs set readonly=on own && poolhouse zfs inherit readonly own/rw && poolhouse zpool export own",
    );
    good(&format!("poolhouse zpool import -d {at} own && ls {at}/mnt/ro/new"));
    assert_eq!(readonly(), "on\tlocal\non\tinherited from own\non\tinherited from own\n");
    good("poolhouse zfs unmount own && poolhouse zfs set readonly=off own && poolhouse zfs mount -a");
    good("poolhouse zfs create own/same && poolhouse zfs create -o acltype=off own/less");
    machine.stale(
        "poolhouse zfs set exec=on own/same",
        &format!("own/same': exec=on takes effect only if {at}/mnt says"),
    );
    good("poolhouse zfs inherit exec own/same");
    good(&format!("touch {at}/mnt/less/file && cat {at}/mnt/less/file && mkdir {at}/mnt/less/d"));
    machine.stale("poolhouse zfs set exec=on own", "own': exec=on takes effect when it is mounted again");
    good("poolhouse zfs set atime=off own && poolhouse zfs set setuid=off own && poolhouse zfs unmount own");
    good("poolhouse zfs mount -a");
    machine.stale(
        "poolhouse zfs set exec=off own/less",
        &format!("own/less': exec=off takes effect only if {at}/mnt says"),
    );
    good("poolhouse zfs inherit exec own/less");
    machine.stale("poolhouse zfs set exec=off own", "own': exec=off takes effect when it is mounted again");
    good(
        "poolhouse zfs set readonly=on own && poolhouse zfs set readonly=off own && poolhouse zfs unmount own",
    );
    good(&format!("poolhouse zfs mount -a && cp /bin/true {at}/mnt/less/true"));
    assert!(machine.bad_or(&format!("{at}/mnt/less/true")).contains("ermission denied"));
}
