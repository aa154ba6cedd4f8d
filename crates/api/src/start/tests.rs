use super::*;
use std::os::unix::fs::PermissionsExt;

/// A program that runs `lines` instead of a daemon.
fn program(dir: &Path, lines: &str) -> PathBuf {
    let path = dir.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Goal: the reason why a daemon did not start reaches the command. It is the daemon's message, or
/// the error output of a program that could not run.
#[test]
fn says_why_none_started() {
    let dir = tempfile::tempdir().unwrap();
    let starts = |lines: &str| start(None, Some(&program(dir.path(), lines))).map_err(|e| e.to_string());
    assert_eq!(starts("echo 'note: elsewhere'; echo ready; exec >&- 2>&-"), Ok(()));
    let said = starts("echo 'failed: the folder is full'; echo more");
    assert_eq!(said, Err("the daemon did not start: the folder is full".to_owned()));
    let said = starts("echo 'libfuse.so: cannot open' >&2; exit 127");
    assert_eq!(said, Err("the daemon did not start: libfuse.so: cannot open".to_owned()));
    let silent = starts("echo 'note: elsewhere'; exit 3").unwrap_err();
    assert!(silent.contains("did not say why") && silent.contains("`poolhouse serve`"), "{silent}");
    // A line that only begins like `ready` does not count.
    assert!(starts("echo readymade").is_err());
}
