//! What a command runs in: where it writes, whom it asks, what time it is.

use std::{io, rc::Rc};

use api::{Error, PoolChange, Reason, Requests};

use console::{Clock, Out};

/// Makes the connection to whoever holds the pools.
pub type Connect = Box<dyn Fn() -> Result<Rc<dyn Requests>, Error>>;

/// What a command runs in.
pub struct Cx {
    /// Standard output.
    pub out: Out,
    /// Standard error.
    pub err: Out,
    /// The clock and the time zone.
    pub clock: Clock,
    /// The command's environment variables.
    pub env: fn(&str) -> Option<String>,
    /// Whether to colour.
    pub color: bool,
    /// Rows and columns of the terminal that is written to, if it is one.
    pub screen: fn() -> Option<(usize, usize)>,
    /// Connects once more, to watch what this command does: where standard output is a terminal.
    pub watcher: Option<fn() -> Box<dyn Requests>>,
    /// Connects once more, for what is asked at the same time.
    pub another: Option<fn() -> Box<dyn Requests>>,
    /// The sockets of this user's own daemon, which is asked, and of root's, which is not, where both are there.
    pub overshadowed: Option<fn() -> Option<[std::path::PathBuf; 2]>>,
    /// Waits this many seconds between two rounds of output.
    pub sleep: fn(f64),
    /// Reads a secret: where from is decided by the caller's terminal.
    pub secret: Box<dyn Secrets>,
    /// The command line as the history of pools records it (`history_str`).
    pub command: String,
    /// What scripts tell of devices (`zpool iostat -c`).
    pub scripts: Option<Rc<crate::zpool::Answers>>,
    /// The pool that was changed last, whose history gets the command line.
    touched: Option<String>,
    /// That change is made, whatever the command fails at afterwards.
    made: bool,
    connect: Connect,
    service: Option<Rc<dyn Requests>>,
}

/// Where keys are read from when a key's location is `prompt`.
pub trait Secrets {
    /// Whether standard input is a terminal, so that a user can try again.
    fn interactive(&self) -> bool;
    /// Reads a line without echo, after writing the prompt; or, without a terminal, a line of standard input.
    fn line(&mut self, prompt: &str) -> io::Result<Vec<u8>>;
    /// Reads at most this many bytes of standard input.
    fn bytes(&mut self, at_most: usize) -> io::Result<Vec<u8>>;
}

/// Why a command stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The command line is wrong: the message, if any, then the usage text, and exit code 2.
    Usage(String),
    /// The command failed and has said why.
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
pub type Outcome = Result<i32, Stop>;

impl Cx {
    /// A context that writes to these, and connects when it must.
    pub fn new(out: Out, err: Out, clock: Clock, secret: Box<dyn Secrets>, connect: Connect) -> Self {
        Self {
            out,
            err,
            clock,
            env: |name| std::env::var(name).ok(),
            color: false,
            screen: crate::terminal::screen,
            watcher: None,
            another: None,
            overshadowed: None,
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

    /// Begins a command: its line is what the history will tell.
    pub fn begin(&mut self, name: &str, args: &[String]) {
        self.command =
            std::iter::once(name).chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    }

    /// Notes that a pool was changed: `tank`, or any dataset of it.
    pub fn changed(&mut self, name: &str) {
        let end = name.find(['/', '@', '#']).unwrap_or(name.len());
        self.touched = Some(name[..end].to_owned());
    }

    /// The same of a change that is made, whatever the command fails at afterwards: what it made
    /// may not be mounted.
    pub fn made(&mut self, name: &str) {
        self.changed(name);
        self.made = true;
    }

    /// Ends a command: one that succeeded in changing a pool, or made what it was asked for, goes
    /// into its history.
    pub fn end(&mut self, code: i32) {
        let made = std::mem::take(&mut self.made);
        let Some(pool) = self.touched.take().filter(|_| code == 0 || made) else { return };
        let change = PoolChange::Log { command: std::mem::take(&mut self.command) };
        let logged = self.service().map(|service| service.change_pool(&pool, &change));
        if let Ok(Err(e)) = logged
            // A pool that is suspended lacks it, and says so by itself.
            && !matches!(e.reason, Reason::NotSupported { .. } | Reason::Suspended)
        {
            self.complain(&format!("the history of '{pool}' lacks this command"), &e);
        }
    }

    /// Whoever holds the pools. A failure to reach them has been reported.
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
                let why = crate::words::reason(&e.reason, &self.clock);
                writeln!(self.err, "cannot reach the poolhouse daemon: {why}");
                Err(Stop::Fail(1))
            }
        }
    }

    /// Reports an error in OpenZFS's way: what could not be done, and why.
    pub fn complain(&mut self, what: &str, error: &Error) {
        let why = crate::words::reason(&error.reason, &self.clock);
        writeln!(self.err, "{what}: {why}");
        if matches!(error.reason, Reason::NoSuchPool | Reason::NoSuchDataset) {
            self.tell_whom_was_asked();
        }
    }

    /// What was looked for is not there: says once that root's daemon, which may have it, was not asked.
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

    /// Reports an error and stops.
    pub fn fail(&mut self, what: &str, error: &Error) -> Stop {
        self.complain(what, error);
        Stop::Fail(1)
    }

    /// Whether an environment variable is set to something that means yes (`libzfs_envvar_is_set`).
    pub fn env_is_set(&self, name: &str) -> bool {
        (self.env)(name).is_some_and(|v| {
            let v = v.to_ascii_lowercase();
            v.parse::<u64>().is_ok_and(|n| n > 0) || v == "yes" || v == "on"
        })
    }

    /// How many threads mount and unmount, if it is said: one with `ZFS_SERIAL_MOUNT`, whatever it is set to, or `POOLHOUSE_MOUNT_THREADS`.
    pub fn mount_threads(&self) -> Option<u32> {
        if (self.env)("ZFS_SERIAL_MOUNT").is_some() {
            return Some(1);
        }
        (self.env)("POOLHOUSE_MOUNT_THREADS")?.parse().ok().filter(|n| *n > 0)
    }

    /// Writes text in a colour, if colours are on.
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

    /// From here on in this colour, if colours are on.
    pub fn start_color(&mut self, color: Color) {
        if self.color {
            self.out.put_raw(color.code().as_bytes());
        }
    }

    /// The end of a colour.
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
