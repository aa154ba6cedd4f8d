//! The test runner, with scripts in place of test programs.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A test program with the tests `good`, `shaky`, `broken`, `hangs` and `left_out`.
const PROGRAM: &str = r#"#!/bin/sh
case "$*" in
*--list*--ignored*) echo "left_out: test" ;;
*--list*) for name in broken good hangs left_out shaky; do echo "$name: test"; done; echo "fast: benchmark" ;;
"--exact good "*) pwd ;;
"--exact shaky "*) [ -e DIR/ran ] || { : >DIR/ran; echo "it wavers"; exit 1; } ;;
"--exact broken "*) echo "never" >&2; exit 1 ;;
"--exact hangs "*) sleep 100 & echo $! >DIR/child; wait ;;
esac
"#;

/// Cargo's messages about a library's tests and another test program, among other messages.
fn messages(dir: &Path) -> String {
    let mut text =
        "a build script printed this\n{\"reason\":\"build-finished\",\"success\":true}\n".to_owned();
    for (kind, name) in [("lib", "spa"), ("test", "it")] {
        writeln!(
            text,
            r#"{{"reason":"compiler-artifact","manifest_path":"{0}/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":true}},"executable":"{0}/{name}"}}"#,
            dir.display(),
        )
        .unwrap();
    }
    text
}

fn run(dir: &Path, text: &str, words: &[&str]) -> Output {
    let mut runner = Command::new(env!("CARGO_BIN_EXE_run-tests"));
    runner.args(words).arg("--out").arg(dir.join("flaky"));
    let mut child =
        runner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Goal: each test runs by its name, in its package's directory.
///
/// * A test that fails twice is listed, and the run fails.
/// * A test that passes alone is FLAKY, and the run does not fail. Its output is kept.
/// * A test that hangs is killed with its children.
#[test]
fn failed_tests_run_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("spa");
    fs::create_dir(&dir).unwrap();
    let said = |ran: &Output| String::from_utf8_lossy(&ran.stdout).into_owned();
    for name in ["spa", "it"] {
        let file = dir.join(name);
        fs::write(&file, PROGRAM.replace("DIR", &folder.path().display().to_string())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let text = messages(&dir);
    let all = run(&dir, &text, &["--limit", "1", "=spa good", "=spa::it shaky", "=spa::it broken", "hangs"]);
    let (words, code) = (said(&all), all.status.code());
    assert_eq!(code, Some(1), "{words}");
    let end = "FAILED spa hangs\nFAILED spa::it broken\nFAILED spa::it hangs\nFAILED spa::it shaky\n\
               test result: FAILED. 1 passed; 4 failed; 0 ignored";
    assert!(words.contains(end), "{words}");
    assert!(
        words.contains("test spa hangs ... FAILED") && words.contains("it did not end in 1 s"),
        "{words}"
    );
    let pid = fs::read_to_string(folder.path().join("child")).unwrap();
    let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let began = std::time::Instant::now();
    while !state().is_empty() && !state().contains(") Z ") {
        assert!(began.elapsed().as_secs() < 10, "what a test started ends with it: {}", state());
        std::thread::yield_now();
    }

    fs::remove_file(folder.path().join("ran")).unwrap();
    let ran = run(&dir, &text, &["--retry", "--jobs", "1", "it shaky", "spa good", "left_out"]);
    let words = said(&ran);
    assert!(ran.status.success(), "{words}");
    assert!(
        words.contains(
            "FLAKY spa::it shaky: failed 1 of 1 times\ntest result: ok. 2 passed; 0 failed; 2 ignored"
        ),
        "{words}"
    );
    let list = fs::read_to_string(dir.join("flaky/list")).unwrap();
    assert_eq!(list, "FLAKY spa::it shaky: failed 1 of 1 times\n");
    let kept = fs::read_to_string(dir.join("flaky/spa--it-shaky.1.log")).unwrap();
    assert!(kept.contains("it wavers"), "{kept}");

    let ran = run(&dir, &text, &["--retry", "--limit", "20", "broken"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).matches("never").count() == 4, "both programs' ran twice: {}", said(&ran));
    // A test that fails in one round and passes in another is listed as well.
    fs::remove_file(folder.path().join("ran")).unwrap();
    let ran = run(&dir, &text, &["--rounds", "3", "it shaky"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        said(&ran).contains("FLAKY spa::it shaky: failed 1 of 3 times\nFAILED spa::it shaky\n"),
        "{}",
        said(&ran)
    );
}

/// Goal: the output of a second failure is kept too, and that of an earlier run is removed. With
/// `--any`, a run without a matching test succeeds.
#[test]
fn what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, file) = (dir.path(), dir.path().join("spa"));
    fs::write(&file, PROGRAM.replace("DIR", &dir.display().to_string())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let text = messages(dir);
    fs::create_dir(dir.join("flaky")).unwrap();
    fs::write(dir.join("flaky/old.log"), "").unwrap();
    assert!(!run(dir, &text.replace("/it", "/spa"), &["--retry", "=it broken", "broken"]).status.success());
    let kept = fs::read_dir(dir.join("flaky")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut kept: Vec<_> = kept.map(|name| name.into_string().unwrap()).collect();
    kept.sort();
    assert!(kept.iter().any(|name| name.ends_with("broken.1.alone.log")), "{kept:?}");
    assert!(kept.iter().any(|name| name.ends_with("broken.1.log")) && !kept.contains(&"old.log".into()));
    assert!(run(dir, &text.replace("/it", "/spa"), &["--any", "no such test"]).status.success());
}

/// Goal: a run without tests and an unknown option fail with a message.
#[test]
fn nothing_to_run_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    for (text, words, why) in [
        ("", &[][..], "cargo built no test program"),
        ("", &["--rounds", "0"], "0 is no number above 0"),
        ("", &["--quick"], "there is no option --quick"),
    ] {
        let ran = run(dir.path(), text, words);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.code() == Some(2) && said.contains(why), "{said}");
    }
}
