//! Daemons of users who are not root. Needs root, to become such users where `/dev/fuse` is everybody's; says so aloud and does nothing elsewhere.

#![allow(clippy::print_stderr, reason = "a helper says what it leaves out")]

#[path = "common/daemon.rs"]
mod daemon;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use daemon::said;

/// `nobody`: fusermount3 serves users whom `/etc/passwd` knows.
const ANN: u32 = 65_534;
/// A user that nothing else on this machine is.
const BOB: u32 = 61_012;
/// In a namespace of mounts of its own `/dev/fuse` is everybody's, and fuse.conf a file of the test's.
/// Copies of other tests' mounts go first: they would keep these busy.
const FURNISH: &str = "cut -d' ' -f2,3 /proc/self/mounts | grep ' fuse.poolhouse$' | cut -d' ' -f1 | xargs -r -n1 umount -l; \
                       mount -t tmpfs -o mode=755 none $1/dev && mknod $1/dev/fuse c 10 229 && chmod 666 $1/dev/fuse && \
                       mount --bind $1/dev/fuse /dev/fuse && mount --bind $1/fuse.conf /etc/fuse.conf && echo ready && exec sleep infinity";

/// A machine whose users may mount, with a home for one of them.
struct Machine {
    dir: tempfile::TempDir,
    /// Keeps the namespace.
    holder: Child,
    program: PathBuf,
}

impl Machine {
    /// `None` where there can't be one.
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

    /// What fuse.conf says from now on.
    fn settings(&self, text: &str) {
        // The file itself is mounted, not its name.
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

    /// Runs one that succeeds, as Ann.
    fn good(&self, line: &str) -> String {
        let ran = self.ran(ANN, line);
        assert!(ran.status.success(), "{line}: {}", said(&ran));
        String::from_utf8(ran.stdout).expect("text")
    }

    /// Runs one that fails, as Ann: what it says.
    fn bad(&self, line: &str) -> String {
        let ran = self.ran(ANN, line);
        assert_eq!(ran.status.code(), Some(1), "{line}: {}", said(&ran));
        said(&ran)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Goal: somebody who is not root makes a pool of an own file, mounts it in an own folder, writes, exports and goes on; nobody else reaches the mount,
/// the daemon or its folder.
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
    // Others, root too, find nothing there: the kernel keeps them out.
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
    // fusermount3 does nothing for who has no name.
    let told = machine.ran(BOB, "XDG_RUNTIME_DIR= poolhouse doctor");
    assert_eq!(told.status.code(), Some(1), "{}", said(&told));
    assert!(said(&told).contains(&format!("MISSING  fusermount3: will not mount for user {BOB}")));
}

/// Goal: somebody who may only read an image locks it as they like, and its owner imports it all
/// the same; a second owner, another user, is refused meanwhile and afterwards.
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

/// Goal: a user lets others in by choice, for one mount or for all, where fuse.conf has the word; then file systems are mounted in each other too. Where it has not, each
/// way says what is missing, and so does a child that can't be mounted below its parent.
#[test]
fn let_in() {
    let Some(machine) = Machine::new() else { return };
    let (good, bad) = (|line: &str| machine.good(line), |line: &str| machine.bad(line));
    let home = machine.home();
    let at = home.display();
    good(&format!("truncate -s 128M {at}/d0"));
    good(&format!("poolhouse zpool create -m {at}/mnt own {at}/d0"));
    let told = bad("poolhouse zfs create own/sub");
    assert!(
        told.contains(&format!("cannot mount 'own/sub': its mountpoint lies in the mount of {at}/mnt,")),
        "{told}"
    );
    assert!(told.contains("poolhouse serve --allow-other") && told.contains("user_allow_other"), "{told}");
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
    // The kernel is told of it when it mounts.
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
    // As far as the files let them.
    assert!(!machine.ran(BOB, &format!("touch {at}/mnt/sub/deep/file")).status.success());
    good("poolhouse zpool export own");
}

/// Goal: root of a user namespace, beside a `/run/poolhouse` that isn't its own, has a daemon in a folder of its own,
/// which is neither the user's outside nor that of another namespace; what is chosen and why is said once, and by doctor.
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

/// Goal: a daemon that began elsewhere since `/run` was full is the one that commands find when there is room again,
/// root's as well as for others; a folder that was named is not left for another, and the reason is given.
#[test]
fn a_full_run() {
    let Some(machine) = Machine::new() else { return };
    let at = machine.home().display().to_string();
    let root = |line: &str| machine.ran(0, &format!("cd {at}; unset XDG_RUNTIME_DIR; {line}"));
    let furnished = root(
        "mount -t tmpfs -o mode=755,size=1M none /run && mkdir /run/named && mount -t tmpfs -o mode=1777 none /tmp; \
         head -c 4M /dev/zero >/run/full; truncate -s 128M d0 d1",
    );
    assert!(furnished.status.success(), "{}", said(&furnished));
    let named = root("POOLHOUSE_RUN_DIR=/run/named poolhouse zpool create -m none tank $PWD/d0");
    assert!(!named.status.success());
    let words = said(&named);
    assert!(words.contains("/run/named") && words.contains("No space left on device"), "{words}");
    let ran = root("poolhouse zpool create -m none tank $PWD/d0");
    assert!(ran.status.success(), "{}", said(&ran));
    let words = said(&ran);
    assert!(words.contains("note: the daemon's folder is /tmp/poolhouse-0: "), "{words}");
    assert!(words.contains("/run/poolhouse: No space left on device"), "{words}");
    assert!(root("rm /run/full").status.success());
    let second = root("poolhouse zpool create -m none second $PWD/d1; poolhouse zpool list -H -o name");
    assert!(said(&second).ends_with("second\ntank\n"), "{}", said(&second));
    assert!(said(&root("poolhouse doctor")).contains("/run/poolhouse, which could not be used when that daemon began"));
    // A daemon that is started by hand finds it too.
    assert!(said(&root("timeout 20 poolhouse serve")).contains("a daemon runs already at /tmp/poolhouse-0"));
    assert_eq!(said(&machine.ran(BOB, "poolhouse zpool list -H -o name")), "second\ntank\n");
    assert!(root("poolhouse zpool export -a").status.success());
}

/// Goal: a mount that fails names its cause and what to do, doctor finds the same, and no folder stays that a script would fill.
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
    // A user's mountpoint has to be the user's.
    fs::create_dir(machine.dir.path().join("roots")).expect("a folder");
    let roots = machine.dir.path().join("roots").display().to_string();
    machine.good(&format!("truncate -s 128M {at}/own && poolhouse zpool create -m none own {at}/own"));
    let words = said(&machine.ran(ANN, &format!("poolhouse zfs set mountpoint={roots} own; poolhouse zfs mount own")));
    assert!(words.contains("a user mounts on folders of their own only"), "{words}");
    machine.good("poolhouse zpool export own");
}

/// Goal: an image that can be read and not written says so, and that `-o readonly=on` imports it.
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
