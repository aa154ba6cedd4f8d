//! The script that runs all tests, with a `cargo` that only says what it would.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// What cargo prints of three programs, of which two fail and one is built for documentation.
const CARGO: &str = r#"#!/bin/sh
[ "$1" = test ] || exit 3
echo "     Running unittests src/lib.rs (DIR/good)"
echo "test one ... ok"
echo "     Running tests/shaky.rs (DIR/shaky)"
echo "test wavers ... FAILED"
echo "error: test failed, to rerun pass \`-p poolhouse-cli --test shaky\`"
echo "     Running tests/broken.rs (DIR/broken)"
echo "test never ... FAILED"
echo "error: test failed, to rerun pass \`-p poolhouse-vdev --test broken\`"
exit 101
"#;

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(dir: &Path, words: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test.sh");
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    Command::new(script).args(words).env("PATH", path).env("CARGO_TARGET_DIR", dir).output().unwrap()
}

/// Goal: without `--retry` each failed program is named, and the run has failed; with it a program
/// that passes alone is listed as FLAKY with its output kept, and only one that fails twice fails
/// the run.
#[test]
fn failed_programs_run_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    program(&dir.join("cargo"), &CARGO.replace("DIR", &dir.display().to_string()));
    program(&dir.join("shaky"), "#!/bin/sh\npwd\n");
    program(&dir.join("broken"), "#!/bin/sh\nexit 1\n");
    let said = |ran: &Output| String::from_utf8_lossy(&ran.stdout).into_owned();
    let ran = run(dir, &[]);
    assert_eq!(ran.status.code(), Some(1));
    let end = "FAILED -p poolhouse-cli --test shaky\nFAILED -p poolhouse-vdev --test broken\n";
    assert!(said(&ran).ends_with(end), "{}", said(&ran));

    let ran = run(dir, &["--retry"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).contains("\nFLAKY -p poolhouse-cli --test shaky: wavers "), "{}", said(&ran));
    assert!(said(&ran).ends_with("\nFAILED -p poolhouse-vdev --test broken\n"), "{}", said(&ran));
    assert!(said(&ran).contains("/crates/cli\n"), "it runs in its package's folder: {}", said(&ran));
    let list = fs::read_to_string(dir.join("flaky/list")).unwrap();
    assert_eq!(list.lines().count(), 1);
    let kept = fs::read_to_string(dir.join("flaky/poolhouse-cli-test-shaky.log")).unwrap();
    assert!(kept.contains("test wavers ... FAILED") && !kept.contains("never"), "{kept}");

    program(&dir.join("broken"), "#!/bin/sh\nexit 0\n");
    assert!(run(dir, &["--retry"]).status.success(), "all that failed wavered");
}

/// Goal: a build that fails is a failure, with nothing to run once more.
#[test]
fn failed_builds_fail() {
    let dir = tempfile::tempdir().unwrap();
    program(&dir.path().join("cargo"), "#!/bin/sh\necho 'error: could not compile'\nexit 101\n");
    assert_eq!(run(dir.path(), &["--retry"]).status.code(), Some(101));
}
