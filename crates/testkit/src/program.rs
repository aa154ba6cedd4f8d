use std::path::Path;
use std::process::Command;

/// Copies the executable `from` to `to`, which can be run at once.
///
/// A copy made by this process would be open for writing in any child that another test's thread starts
/// meanwhile, until that child has become its own program, and running it then fails with `ETXTBSY`; so another
/// process makes it.
///
/// # Panics
/// When `cp` can't be run or fails.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let done = Command::new("cp").arg("--").args([from, to]).status();
    assert!(done.is_ok_and(|s| s.success()), "cp {} {}", from.display(), to.display());
}
