//! The title of the process, which `ps` shows in place of the command line.
//!
//! # Theory
//! Linux shows the memory in which the arguments of a process lie, so a title is written there.
//! Behind it lies the environment, which must stay. A command line is often shorter than a title.
//! So the program starts itself again with blanks after its own name, before it does anything else
//! ([`prepare`]). `ps` shows these until the first title.
//!
//! # See
//! OpenZFS `zfs_setproctitle`, which moves the environment instead.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Bytes that a title may need: two numbers and the longest name of a snapshot.
const SPACE: u64 = 512;

/// Makes space for a title if this command shows one (`zfs send -V`). `words` are its arguments.
pub fn prepare(command: &str, words: &[OsString]) {
    if command != "zfs" || !shows_title(words) {
        return;
    }
    let mut all = std::env::args_os();
    let (Some(called), Ok(place)) = (all.next(), place()) else { return };
    let name = own_name(&called);
    if name != called {
        // The kernel named it after the file.
        let short = Path::new(&name).file_name().unwrap_or_default();
        _ = std::fs::write("/proc/self/comm", short.as_bytes());
    } else if place.end - place.start < SPACE
        && let Ok(itself) = std::env::current_exe()
    {
        let mut padded = called;
        padded.push(" ".repeat(SPACE as usize));
        // After a failure, this process goes on, and its titles are cut.
        _ = std::process::Command::new(itself).arg0(padded).args(all).exec();
    }
}

/// The name that the program was called by, without the blanks of [`prepare`].
pub fn own_name(called: &OsString) -> OsString {
    OsString::from_vec(called.as_bytes().trim_ascii_end().to_vec())
}

/// Whether these are the words of a `zfs send` that has `-V`.
fn shows_title(words: &[OsString]) -> bool {
    let Some((verb, options)) = words.split_first() else { return false };
    let is_it = |word: &OsString| match word.as_bytes() {
        [b'-', b'-', long @ ..] => !long.is_empty() && b"proctitle".starts_with(long),
        [b'-', letters @ ..] => letters.contains(&b'V'),
        _ => false,
    };
    verb == "send" && options.iter().any(is_it)
}

/// Shows a title. It is cut to the length of the command line.
///
/// # Errors
/// * Any [`io::Error`] of `/proc/self`.
pub fn show(title: &str) -> io::Result<()> {
    let place = place()?;
    let mut bytes = vec![0; (place.end - place.start) as usize];
    // The last byte stays 0, which ends the last argument.
    let fits = title.len().min(bytes.len().saturating_sub(1));
    bytes[..fits].copy_from_slice(&title.as_bytes()[..fits]);
    std::fs::File::options().write(true).open("/proc/self/mem")?.write_all_at(&bytes, place.start)
}

/// Where the arguments lie in memory.
fn place() -> io::Result<Range<u64>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    arguments(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The fields `arg_start` and `arg_end` of `/proc/PID/stat`.
fn arguments(stat: &str) -> Option<Range<u64>> {
    // The second field is the name, which may have blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(45);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (0 < start && start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Goal: the arguments are found in a line of Linux, also with an odd name.
    #[test]
    fn the_place_of_the_arguments() {
        let line = |start: u64, end: u64| {
            let zeros = "0 ".repeat(44);
            format!("7 (a ) b) S {zeros}{start} {end} 9 9 0\n")
        };
        assert_eq!(arguments(&line(100, 130)), Some(100..130));
        // Of a kernel thread, or of a process that hides them.
        assert_eq!(arguments(&line(0, 0)), None);
        assert_eq!(arguments("7 (zfs) S 0"), None);
    }

    /// Goal: only `zfs send -V` needs space.
    #[test]
    fn what_needs_space() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (line, needs) in [
            ("send -V a@b", true),
            ("send -nvV a@b", true),
            ("send --proctitle a@b", true),
            ("send --proc a@b", true),
            ("send -v a@b", false),
            ("send -- a@V", false),
            ("receive -V a", false),
        ] {
            assert_eq!(shows_title(&words(line)), needs, "{line}");
        }
        assert_eq!(own_name(&"/sbin/zfs   ".into()), "/sbin/zfs");
    }
}
