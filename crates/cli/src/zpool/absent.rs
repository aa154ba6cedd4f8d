//! The commands of OpenZFS's `zpool` that this release lacks.

use super::usage;
use crate::cx::{Cx, Outcome, Stop};

/// Reports that this release lacks a command, or that no such command exists.
pub fn run(cx: &mut Cx, verb: &str) -> Outcome {
    if !usage::COMMANDS.iter().flatten().any(|c| c.0 == verb) {
        return Err(Stop::usage(format!("unrecognized command '{verb}'\n")));
    }
    writeln!(
        cx.err,
        "zpool {verb}: not in this release of Poolhouse; docs/reference lists the commands that it has"
    );
    Ok(1)
}
