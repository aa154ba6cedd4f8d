//! `zfs wait`: waits until an activity in a file system ends.

use api::{DatasetKind as K, Reason};

use super::open::open;
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt};

/// The shortest and the longest time between two status queries, in seconds.
const LOOKS: (f64, f64) = (0.05, 1.0);

/// `zfs wait [-t <activity>] <filesystem>` (`zfs_do_wait`).
///
/// The only activity is `deleteq`: removed files whose space is not free yet.
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut g = Getopt::new(args, "t:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(_, arg) => {
                if let Some(word) = arg.split(',').find(|word| *word != "deleteq") {
                    return Err(Stop::usage(format!("invalid activity '{word}'\n")));
                }
            }
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing 'filesystem' argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    open(cx, name, &[K::Filesystem], &[])?;
    let service = cx.service()?;
    let mut pause = LOOKS.0;
    loop {
        match service.unlinked(name) {
            Ok(0) => return Ok(0),
            Ok(_) => {}
            Err(e) if matches!(e.reason, Reason::NoSuchDataset | Reason::NoSuchPool) => return Ok(0),
            Err(e) => return Err(cx.fail(&format!("error waiting in fs '{name}'"), &e)),
        }
        (cx.sleep)(pause);
        pause = (pause * 2.0).min(LOOKS.1);
    }
}
