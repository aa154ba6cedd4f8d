//! The outputs, the options and the outcome of a run, for all modes.

use super::opts::Opts;
use super::text::Numbers;
use console::{Clock, Out};

/// The outputs and the options of one run.
pub struct Ctx<'a> {
    /// Standard output.
    pub out: &'a mut Out,
    /// Standard error.
    pub err: &'a mut Out,
    /// The clock, with the time zone to print in.
    pub clock: &'a Clock,
    /// The parsed command line.
    pub opts: Opts,
    /// The form of printed numbers.
    pub numbers: Numbers,
    /// Size of the block cache in bytes.
    pub cache_bytes: u64,
    /// Whether something could not be read. The exit code is then not 0.
    pub trouble: bool,
}

/// The reason why a mode stopped early.
#[derive(Debug)]
pub enum Stop {
    /// The command ends with this exit code. It has printed the reason.
    Exit(i32),
    /// An object, block or device could not be read, or does not decode.
    Failed(anyhow::Error),
}

/// The result of a mode.
///
/// # Errors
/// * [`Stop::Failed`]: an object, block or device can't be read, or does not decode.
/// * [`Stop::Exit`]: the command can't continue, and has printed the reason. A function that fails
///   so says when.
pub type Run<T = ()> = Result<T, Stop>;

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stop {
    fn from(e: E) -> Self {
        Stop::Failed(anyhow::Error::new(e))
    }
}

impl Ctx<'_> {
    /// Prints that the command can't continue, and returns the error for it: exit code 1 (`fatal`).
    pub fn fatal(&mut self, message: impl std::fmt::Display) -> Stop {
        writeln!(self.err, "zdb: {message}");
        Stop::Exit(1)
    }

    /// Reports a read error on standard error, and sets [`Ctx::trouble`].
    pub fn report(&mut self, error: &anyhow::Error) {
        self.trouble = true;
        writeln!(self.err, "zdb: {error:#}");
    }

    /// Runs a part of a mode, and reports its read error instead of failing.
    ///
    /// After such an error, the rest of that part is left out.
    ///
    /// # Errors
    /// * [`Stop::Exit`]: `f` ended the command.
    pub fn part<T: Default>(&mut self, f: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        match f(self) {
            Err(Stop::Failed(e)) => {
                self.report(&e);
                Ok(T::default())
            }
            r => r,
        }
    }

    /// A number in readable form, or exact with `-P` (`zdb_nicenum`).
    pub fn num(&self, n: u64) -> String {
        self.numbers.num(n)
    }
}
