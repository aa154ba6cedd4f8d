//! The context of a command: its output, its service, its clock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use api::files::{Denied, Files, Opening};
use api::streams::{Parts, Received};
use api::{Error, PoolChange, Reason, ReceiveRequest, Requests, SendRequest};

use crate::terminal::{self, Secrets};
use console::{Clock, Out};

/// Connects to the service that holds the pools.
pub type Connect = Box<dyn Fn() -> Result<Rc<dyn Requests>, Error>>;

/// Asks the daemon for a send stream, which it may write to this file.
pub type Fetch = Box<dyn Fn(&SendRequest, Option<BorrowedFd<'_>>) -> Result<Box<dyn Parts>, Denied>>;

/// Opens a dataset of a pool that the daemon holds, to read its files.
pub type Look = fn(&Opening) -> Result<Box<dyn Files + Send>, Denied>;

/// Has the daemon keep snapshots that will be sent one after the other, perhaps raw. They are kept
/// while the result lives.
pub type Keep = fn(bool, &[&str]) -> Result<Box<dyn std::any::Any>, Denied>;

/// Has the daemon receive a stream: the request, the bytes of BEGIN, and where the rest comes from.
pub type Deliver = Box<dyn Fn(&ReceiveRequest, &[u8], &File) -> Result<Received, Denied>>;

/// The context of a command.
pub struct Cx {
    /// Standard output.
    pub out: Out,
    /// Standard error.
    pub err: Out,
    /// The clock and the time zone.
    pub clock: Clock,
    /// The command's environment variables.
    pub env: fn(&str) -> Option<String>,
    /// Whether the output has colours.
    pub color: bool,
    /// Rows and columns of the output terminal, if there is one.
    pub screen: fn() -> Option<(usize, usize)>,
    /// Makes a second connection, which watches what this command does. Set if standard output is a
    /// terminal.
    pub watcher: Option<fn() -> Box<dyn Requests>>,
    /// Makes one more connection, for requests that run at the same time.
    pub another: Option<fn() -> Box<dyn Requests>>,
    /// Finds the sockets of this user's own daemon and of root's daemon, if both exist.
    ///
    /// Commands use the user's own daemon, and then not root's.
    pub overshadowed: Option<fn() -> Option<[std::path::PathBuf; 2]>>,
    /// Asks the daemon for a send stream.
    pub stream: Fetch,
    /// Opens the files of a dataset.
    pub look: Look,
    /// Has the daemon keep snapshots.
    pub keep: Keep,
    /// Has the daemon receive a stream.
    pub deliver: Deliver,
    /// Standard input without a buffer, for a stream that the daemon reads on.
    pub input: Box<dyn Fn() -> io::Result<File>>,
    /// Shows a title of the process.
    pub title: fn(&str) -> io::Result<()>,
    /// Waits this many seconds between two rounds of output.
    pub sleep: fn(f64),
    /// Reads a secret from the caller's terminal or standard input.
    pub secret: Box<dyn Secrets>,
    /// The command line as the history of pools records it (`history_str`).
    pub command: String,
    /// What scripts report about devices (`zpool iostat -c`).
    pub scripts: Option<Rc<ScriptOutput>>,
    /// The pool that was changed last. Its history gets the command line.
    touched: Option<String>,
    /// Whether that change is complete, even if the command fails afterwards.
    made: bool,
    connect: Connect,
    service: Option<Rc<dyn Requests>>,
}

/// The output of scripts about devices (`vdev_cmd_data_list_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptOutput {
    /// Names of columns, with their widths.
    pub(crate) columns: Vec<(String, usize)>,
    /// Values by the device's guid and the column's name.
    pub(crate) values: BTreeMap<u64, BTreeMap<String, String>>,
}

/// Why a command stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The command line is wrong. Prints the message, if any, and the usage text; the exit code is
    /// 2.
    Usage(String),
    /// The command failed and has reported the cause. Holds the exit code.
    Fail(i32),
}

impl Stop {
    /// A wrong command line, with a message.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// An option that the grammar lacks.
    pub fn invalid(option: char) -> Self {
        Self::Usage(format!("invalid option '{option}'\n"))
    }

    /// An option whose argument is missing.
    pub fn missing(option: char) -> Self {
        Self::Usage(format!("missing argument for '{option}' option\n"))
    }
}

/// What a command returns: its exit code.
///
/// # Errors
/// * [`Stop::Usage`]: the command line does not follow the grammar.
/// * [`Stop::Fail`]: an operand is invalid, the service can't be reached, or it refused the
///   request. The command has reported that.
pub type Outcome = Result<i32, Stop>;

impl Cx {
    /// Creates a context that writes to `out` and `err`. It connects at the first request.
    pub fn new(out: Out, err: Out, clock: Clock, secret: Box<dyn Secrets>, connect: Connect) -> Self {
        Self {
            out,
            err,
            clock,
            env: |name| std::env::var(name).ok(),
            color: false,
            screen: terminal::screen,
            watcher: None,
            another: None,
            overshadowed: None,
            stream: Box::new(|request, to| Ok(Box::new(api::client::stream(request, to)?))),
            look: |opening| Ok(Box::new(api::client::visit(opening)?.0)),
            keep: |raw, snapshots| Ok(Box::new(api::client::keep(raw, snapshots)?)),
            deliver: Box::new(|request, begin, rest| {
                let mut copy = |into: &mut dyn io::Write| crate::stream_copy::copy_rest(begin, rest, into);
                api::client::receive(request, begin, rest.as_fd(), &mut copy)
            }),
            input: Box::new(|| Ok(io::stdin().as_fd().try_clone_to_owned()?.into())),
            title: crate::title::show,
            sleep: |s| std::thread::sleep(std::time::Duration::from_secs_f64(s)),
            secret,
            command: String::new(),
            scripts: None,
            touched: None,
            made: false,
            connect,
            service: None,
        }
    }

    /// Begins a command, and keeps its line for the pool's history.
    pub fn begin(&mut self, name: &str, args: &[String]) {
        self.command =
            std::iter::once(name).chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    }

    /// Notes that a pool was changed. `name` is the pool or any dataset of it.
    pub fn changed(&mut self, name: &str) {
        let end = name.find(['/', '@', '#']).unwrap_or(name.len());
        self.touched = Some(name[..end].to_owned());
    }

    /// Notes a change that is complete even if the command fails afterwards.
    ///
    /// For example, a new file system may exist and fail to mount.
    pub fn made(&mut self, name: &str) {
        self.changed(name);
        self.made = true;
    }

    /// Ends a command, and returns its exit code. If the command line was wrong, prints the message
    /// and calls `usage`.
    pub fn finish(&mut self, outcome: Outcome, usage: impl FnOnce(&mut Self)) -> i32 {
        match outcome {
            Ok(code) | Err(Stop::Fail(code)) => {
                self.record(code);
                code
            }
            Err(Stop::Usage(message)) => {
                self.out.flush();
                self.err.put(&message);
                usage(self);
                2
            }
        }
    }

    /// Adds the command line to the pool's history if the command changed a pool and succeeded, or
    /// if its change is complete ([`Cx::made`]).
    fn record(&mut self, code: i32) {
        let made = std::mem::take(&mut self.made);
        let Some(pool) = self.touched.take().filter(|_| code == 0 || made) else { return };
        let change = PoolChange::Log { command: std::mem::take(&mut self.command) };
        let logged = self.service().map(|service| service.change_pool(&pool, &change));
        if let Ok(Err(e)) = logged
            // A suspended pool can't record history, and the command has reported the suspension.
            && !matches!(e.reason, Reason::NotSupported { .. } | Reason::Suspended)
        {
            self.complain(&format!("the history of '{pool}' lacks this command"), &e);
        }
    }

    /// The service that holds the pools.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: the service can't be reached, which is reported.
    pub fn service(&mut self) -> Result<Rc<dyn Requests>, Stop> {
        if let Some(s) = &self.service {
            return Ok(s.clone());
        }
        match (self.connect)() {
            Ok(s) => {
                self.service = Some(s.clone());
                Ok(s)
            }
            Err(e) => {
                let why = console::words::reason(&e.reason, &self.clock);
                writeln!(self.err, "cannot reach the poolhouse daemon: {why}");
                Err(Stop::Fail(1))
            }
        }
    }

    /// Reports an error in OpenZFS's form: what could not be done, and why.
    pub fn complain(&mut self, what: &str, error: &Error) {
        let why = console::words::reason(&error.reason, &self.clock);
        writeln!(self.err, "{what}: {why}");
        if matches!(error.reason, Reason::NoSuchPool | Reason::NoSuchDataset) {
            self.tell_whom_was_asked();
        }
    }

    /// Reports once that root's daemon, which may have the missing name, was not queried.
    pub fn tell_whom_was_asked(&mut self) {
        if let Some([own, roots]) = self.overshadowed.take().and_then(|find| find()) {
            let dir = roots.parent().unwrap_or(&roots).display();
            self.out.flush();
            writeln!(
                self.err,
                "only the daemon at {} was asked; for root's pools, set POOLHOUSE_RUN_DIR={dir}",
                own.display()
            );
        }
    }

    /// Reports an error, and returns the [`Stop`] that ends the command.
    pub fn fail(&mut self, what: &str, error: &Error) -> Stop {
        self.complain(what, error);
        Stop::Fail(1)
    }

    /// Whether an environment variable is set to a number above 0, `yes` or `on`
    /// (`libzfs_envvar_is_set`).
    pub fn env_is_set(&self, name: &str) -> bool {
        (self.env)(name).is_some_and(|v| {
            let v = v.to_ascii_lowercase();
            v.parse::<u64>().is_ok_and(|n| n > 0) || v == "yes" || v == "on"
        })
    }

    /// How many threads mount and unmount, if the environment sets it.
    ///
    /// `ZFS_SERIAL_MOUNT` with any value means one. Otherwise `POOLHOUSE_MOUNT_THREADS` is the
    /// number.
    pub fn mount_threads(&self) -> Option<u32> {
        if (self.env)("ZFS_SERIAL_MOUNT").is_some() {
            return Some(1);
        }
        (self.env)("POOLHOUSE_MOUNT_THREADS")?.parse().ok().filter(|n| *n > 0)
    }

    /// Writes text in a colour, if colours are on (`printf_color`).
    pub fn colored(&mut self, color: Option<Color>, text: &str) {
        match color {
            Some(c) => {
                self.start_color(c);
                self.out.put(text);
                self.end_color();
            }
            None => self.out.put(text),
        }
    }

    /// Writes bytes in a colour, if colours are on.
    pub fn colored_bytes(&mut self, color: Color, bytes: &[u8]) {
        self.start_color(color);
        self.out.put_bytes(bytes);
        self.end_color();
    }

    /// Starts a colour, if colours are on (`color_start`).
    pub fn start_color(&mut self, color: Color) {
        if self.color {
            self.out.put_raw(color.code().as_bytes());
        }
    }

    /// Ends a colour, if colours are on (`color_end`).
    pub fn end_color(&mut self) {
        if self.color {
            self.out.put_raw(b"\x1b[0m");
        }
    }
}

/// The colours that OpenZFS uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "colours")]
pub enum Color {
    Red,
    Green,
    Yellow,
    Blue,
    BoldBlue,
    Magenta,
    Cyan,
    Gray,
    Bold,
}

impl Color {
    fn code(self) -> &'static str {
        match self {
            Self::Red => "\x1b[0;31m",
            Self::Green => "\x1b[0;32m",
            Self::BoldBlue => "\x1b[1;34m",
            Self::Magenta => "\x1b[0;35m",
            Self::Cyan => "\x1b[0;36m",
            Self::Gray => "\x1b[0;37m",
            Self::Yellow => "\x1b[0;33m",
            Self::Blue => "\x1b[0;34m",
            Self::Bold => "\x1b[1m",
        }
    }
}
