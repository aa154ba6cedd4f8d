//! `poolhouse ls` and `cp` with file systems inside each other, and with a daemon in another PID
//! namespace.

use crate::daemon;
use crate::daemon::Daemon;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a command of this program. Returns exit code, output and errors.
fn run(dir: &Path, line: &str) -> (i32, String, String) {
    let ran = daemon::command(dir, line).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
}

/// A directory with a pool `tank` with nothing mounted. The mount points of `tank/docs` and
/// `tank/docs/old` are inside it, that of `tank/far` is elsewhere, and `tank/bare` has none.
fn unmounted() -> (tempfile::TempDir, Daemon) {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let at = dir.path().display();
    daemon::image(&dir.path().join("d0"));
    daemon.good(&format!("zpool create -O canmount=noauto -m {at}/tank tank {at}/d0"));
    for (name, place) in [("docs", "tank/docs"), ("docs/old", "tank/docs/old"), ("far", "far")] {
        daemon.good(&format!("zfs create -u -o mountpoint={at}/{place} tank/{name}"));
    }
    daemon.good("zfs create -u -o mountpoint=none tank/bare");
    fs::write(dir.path().join("file"), "content").unwrap();
    fs::create_dir_all(dir.path().join("tree/docs/old")).unwrap();
    fs::create_dir_all(dir.path().join("tree/other")).unwrap();
    for name in ["top", "docs/hidden", "docs/old/hidden", "other/file"] {
        fs::write(dir.path().join("tree").join(name), name).unwrap();
    }
    (dir, daemon)
}

/// Copies, and checks the messages about other file systems. `words` are options of each command.
fn nested(dir: &Path, words: &str) {
    let at = dir.display();
    let cp = |rest: &str| run(dir, &format!("cp {words} {rest}"));
    // A path that a mount would hide is refused, and the rest of a tree is copied.
    for (path, instead) in [
        ("/docs", "tank/docs:/"),
        ("/docs/f", "tank/docs:/f"),
        ("/x/../docs/./f", "tank/docs:/f"),
        ("/docs/old/a/b", "tank/docs/old:/a/b"),
    ] {
        let (code, _, err) = cp(&format!("{at}/file tank:{path}"));
        assert_eq!(code, 1, "{path}: {err}");
        assert!(
            err.contains(&format!("tank:{path}: ")) && err.contains(&format!("write {instead}")),
            "{err}"
        );
    }
    let (code, _, err) = cp(&format!("-r {at}/tree/. tank:/"));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("/docs: tank/docs has its mountpoint there"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let (code, out, err) = run(dir, &format!("ls {words} tank:/"));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "other\ntop\n", ""));
    let (code, _, err) = cp(&format!("{at}/file tank/docs:/file"));
    assert_eq!(code, 0, "{err}");
    // Each file system that is not entered is named once. One that is mounted elsewhere is not in
    // the tree.
    let out = dir.join("out").display().to_string();
    let (code, _, err) = cp(&format!("-r tank:/ {out}"));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read_to_string(dir.join("out/other/file")).unwrap(), "other/file");
    for name in ["tank/docs", "tank/docs/old", "tank/bare"] {
        let line = format!("poolhouse cp: {name}: not entered, ");
        assert_eq!(err.matches(&line).count(), 1, "{name}: {err}");
        assert!(err.contains(&format!("poolhouse cp -r {name}:/ FOLDER")), "{err}");
    }
    assert_eq!(err.lines().count(), 3, "{err}");
    fs::remove_dir_all(&out).unwrap();
    let (code, _, err) = cp(&format!("-r tank:/other {out}"));
    assert_eq!((code, err.as_str()), (0, ""));
    fs::remove_dir_all(&out).unwrap();
    // A missing file is reported with its path, and with the other file system.
    let (code, _, err) = cp(&format!("tank:/docs/file {out}"));
    assert_eq!(code, 1);
    assert!(err.contains("its files are tank/docs:/file"), "{err}");
    assert!(err.contains("tank:/docs/file: no such file or directory"), "{err}");
    let (_, _, err) = run(dir, &format!("ls {words} -R tank:/"));
    assert!(err.contains("tank/docs/old: not entered"), "{err}");
    let (_, _, err) = run(dir, &format!("ls {words} tank:/docs"));
    assert!(err.contains("its files are tank/docs:/"), "{err}");
}

/// Goal: files of other file systems are neither omitted nor written to silently. This holds in a
/// pool of a daemon and in one that the command opens.
#[test]
fn file_systems_in_each_other() {
    let (dir, daemon) = unmounted();
    nested(dir.path(), "");
    daemon.good("zpool export tank");
    drop(daemon);
    let (code, _, err) = run(dir.path(), &format!("ls -d {0}/d0 tank/docs:/", dir.path().display()));
    assert_eq!(code, 0, "{err}");
    nested(dir.path(), &format!("-d {}/d0", dir.path().display()));
}

/// Goal: a link doesn't lead a copy into a directory that a file system covers. Files written there
/// before that file system was created can still be copied.
#[test]
fn covered_folders() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let at = dir.path().display();
    daemon::image(&dir.path().join("d0"));
    daemon.good(&format!("zpool create -O canmount=noauto -m {at}/tank tank {at}/d0"));
    fs::create_dir_all(dir.path().join("tree/docs")).unwrap();
    fs::write(dir.path().join("tree/docs/old"), "old").unwrap();
    std::os::unix::fs::symlink("docs", dir.path().join("tree/link")).unwrap();
    daemon.good(&format!("cp -r {at}/tree/. tank:/"));
    daemon.good("zfs create -u tank/docs");
    for path in ["/link", "/link/new"] {
        let (code, _, err) = run(dir.path(), &format!("cp {at}/tree/docs/old tank:{path}"));
        assert!(code == 1 && err.contains("tank/docs has its mountpoint there"), "{path}: {err}");
    }
    let (code, _, err) = run(dir.path(), &format!("cp -r tank:/docs {at}/out"));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("its files are tank/docs:/"), "{err}");
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 1);
    // A file system that is only mounted by name hides nothing until it is mounted.
    daemon.good("zfs set canmount=noauto tank/docs");
    daemon.good(&format!("cp {at}/tree/docs/old tank:/docs/new"));
    daemon.good("zpool export tank");
}

/// Goal: `ls --find` over an encrypted file system names it and `-k`.
#[test]
fn finds_past_a_missing_key() {
    let (dir, daemon) = unmounted();
    let at = dir.path().display();
    fs::write(dir.path().join("key"), [7; 32]).unwrap();
    daemon.good(&format!("cp {at}/file tank/docs:/file"));
    let key = format!("-o encryption=on -o keyformat=raw -o keylocation=file://{at}/key");
    daemon.good(&format!("zfs create -u {key} tank/secret"));
    daemon.good(&format!("zfs create {key} -V 16M tank/volume"));
    daemon.good("zpool export tank");
    let (code, out, err) = run(dir.path(), &format!("ls -d {at}/d0 --find /file tank"));
    assert_eq!((code, out.as_str()), (1, "tank/docs:/file\n"), "{err}");
    assert!(err.contains("tank/secret is encrypted") && err.contains("-k tank/secret=FILE"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}

/// Goal: a daemon serves files to commands of other PID namespaces, and `doctor` shows where the
/// daemon is.
#[test]
fn from_another_pid_namespace() {
    let (dir, daemon) = unmounted();
    let at = dir.path().display();
    daemon.good(&format!("cp {at}/file tank/docs:/file"));
    let alone = format!("{} exec \"$0\" \"$@\"", daemon::DROP_COPIES);
    let elsewhere = |words: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            &alone,
            env!("CARGO_BIN_EXE_poolhouse"),
        ]);
        command.args(words.split_whitespace()).env("POOLHOUSE_RUN_DIR", dir.path().join("run"));
        let ran = command.output().unwrap();
        (ran.status.success(), daemon::said(&ran))
    };
    let (able, why) = elsewhere("--version");
    if !able {
        eprintln!("no PID namespace can be made here: {why}");
        return;
    }
    // In the inner namespace the daemon has no pid. In the daemon's namespace the command has one.
    assert_eq!(elsewhere("ls tank/docs:/"), (true, "file\n".to_owned()));
    let (_, doctor) = elsewhere("doctor");
    assert!(doctor.contains("from another PID namespace"), "{doctor}");
    // The other way round.
    daemon.good("zpool export tank");
    drop(daemon);
    let inside = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &alone])
        .args([env!("CARGO_BIN_EXE_poolhouse"), "serve", "--run-dir"])
        .arg(dir.path().join("run"))
        .stderr(fs::File::create(dir.path().join("log")).unwrap())
        .spawn();
    let mut inside = inside.unwrap();
    while std::os::unix::net::UnixStream::connect(dir.path().join("run/control.sock")).is_err() {
        assert!(inside.try_wait().unwrap().is_none(), "the daemon ended");
        std::thread::yield_now();
    }
    let good = |line: &str| {
        let (code, out, err) = run(dir.path(), line);
        assert_eq!(code, 0, "{line}: {err}");
        out
    };
    good(&format!("zpool import -N -d {at} tank"));
    assert_eq!(good("ls tank/docs:/"), "file\n");
    good(&format!("cp {at}/file tank/docs:/again"));
    let (_, doctor, _) = run(dir.path(), "doctor");
    assert!(doctor.contains("from another PID and another mount namespace"), "{doctor}");
    good("zpool export tank");
    inside.kill().unwrap();
    inside.wait().unwrap();
}
