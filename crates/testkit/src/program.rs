use std::path::Path;
use std::process::Command;

/// Copies the executable `from` to `to`, which can be executed at once.
///
/// The program `cp` makes the copy, not this process. If this process wrote it, a child that
/// another test's thread starts meanwhile would inherit the open file. Until that child executes
/// its own program, executing the copy fails with `ETXTBSY`.
///
/// # Panics
/// `cp` can't be started, or fails.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let done = Command::new("cp").arg("--").args([from, to]).status();
    assert!(done.is_ok_and(|s| s.success()), "cp {} {}", from.display(), to.display());
}
