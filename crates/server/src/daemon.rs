//! The daemon's life: from the lock on its folder to the last unmount.
//!
//! # Life
//! 1. *Begin*: it holds `start.lock` of each folder where it may live ([`choice`]) and takes
//!    `daemon.lock`. It replaces the socket of a dead predecessor, listens, removes the mounts that
//!    the predecessor left, and reports that it is ready.
//! 2. *Serve*.
//! 3. *End*: by a signal, by a request, or because nothing has been imported for a moment. The last
//!    applies only if a command started it. It holds `start.lock` again, removes its socket,
//!    unmounts and exports everything, and releases its locks.
//!
//! A command that needs a daemon meanwhile waits for `start.lock` and starts a new one. A second
//! signal ends the daemon at once.
//!
//! # Crash
//! A daemon that is killed leaves a stale socket, locks that the kernel releases, and mounts that
//! answer `ENOTCONN`. The next daemon cleans up.
//!
//! Its pools are no longer imported: nothing on disk records an import. Mounts that no property
//! describes are recorded in the folder, and are restored with their pool (`journal.rs`).

mod orphans;
pub(crate) mod service;

pub use service::DaemonService;

use crate::control::turns;
use crate::control::turns::Callers;
use crate::control::{http, service_manager};
use crate::events::zedlets::{Terms, USUAL, ZedletError};
use crate::inherited;
use crate::telemetry::logging;
use api::run_dir::{RunDir, RunDirError, choice};
use api::start::{FAILED, NOTE, READY};
use api::{Caller, Error, Reason};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// How long a daemon with nothing imported waits for the next command.
const LINGER: Duration = Duration::from_secs(2);
/// How long the end of the daemon waits for a pool that makes no progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// The options of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Its folder.
    pub place: RunDir,
    /// Notes about the folder: why it isn't the usual one.
    pub notes: Vec<String>,
    /// Detach from the terminal, write to the log, and end when nothing is imported.
    pub background: bool,
    /// The folder for statistics and parameters as files, if they are mounted.
    pub tree: Option<PathBuf>,
    /// Make every volume a block device.
    pub attach: bool,
    /// Allow other users to use what is mounted, as root's daemon does.
    pub others: bool,
    /// Nest file systems in mounts of their pool, as a user's daemon does.
    pub nest: bool,
    /// How long the daemon waits at its end for a pool that makes no progress.
    pub patience: Duration,
    /// The address that serves metrics to Prometheus, if any.
    pub metrics: Option<SocketAddr>,
    /// What to run at events. If absent, root's daemon runs the programs of its default folder.
    pub events: Option<Terms>,
    /// Tunables to set before anything is imported, by OpenZFS's names.
    pub tunables: Vec<(String, u64)>,
}

impl Options {
    /// The options of a daemon in the foreground, with nothing beside the pools.
    pub fn at(place: RunDir) -> Self {
        Self {
            place,
            notes: Vec::new(),
            background: false,
            tree: None,
            attach: false,
            others: false,
            nest: false,
            patience: PATIENCE,
            metrics: None,
            events: None,
            tunables: Vec::new(),
        }
    }
}

/// Why a daemon could not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its folder can't be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Another daemon runs already.
    #[error("a daemon runs already at {}{}", place.socket().display(), beside(*pid))]
    Running {
        /// The folder of the other daemon.
        place: RunDir,
        /// Its process, if it answers.
        pid: Option<rustix::process::Pid>,
    },
    /// Statistics and parameters can't be mounted.
    #[error("cannot mount kstats and tunables on {}", at.display())]
    Tree {
        /// The folder for the mount.
        at: PathBuf,
        /// Why.
        #[source]
        source: fuse::Error,
    },
    /// The programs for events can't be run.
    #[error(transparent)]
    Zedlets(#[from] ZedletError),
    /// There is no such tunable, or it can't have that value.
    #[error("cannot set '{name}' to {value}: {}", tunable_reason(reason))]
    Tunable {
        /// Its name.
        name: String,
        /// The requested value.
        value: u64,
        /// Why it is not set.
        reason: Reason,
    },
    /// Metrics can't be served.
    #[error("cannot serve metrics at {at}")]
    Metrics {
        /// The address.
        at: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// This user may not let other users use its mounts.
    #[error(
        "nobody else may be let in: there is no line '{}' in {}",
        fuse::system::OTHERS_WORD,
        fuse::system::HELPER_CONF
    )]
    NobodyElse,
    /// Pools could not be exported. What was synced is on their devices.
    #[error("left as their last transaction groups left them: {}", Pools(pools))]
    Left {
        /// Their names, and why.
        pools: Vec<Error>,
    },
    /// The system refused an operation.
    #[error("cannot {operation}")]
    System {
        /// The operation.
        operation: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Who serves already, and what the user can do.
fn beside(pid: Option<rustix::process::Pid>) -> String {
    let (who, end) = match pid {
        Some(pid) => (format!(" (pid {pid})"), format!("end it with 'kill {pid}'")),
        None => (String::new(), "end it".to_owned()),
    };
    format!("{who}. Commands use it. To start another one, {end}, or choose another folder with --run-dir.")
}

/// Why a tunable is not set.
fn tunable_reason(reason: &Reason) -> &str {
    match reason {
        Reason::BadValue { what } => what,
        _ => "there is no such tunable",
    }
}

/// The names of pools that were left, in one line.
struct Pools<'a>(&'a [Error]);

impl std::fmt::Display for Pools<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, Error { about, reason }) in self.0.iter().enumerate() {
            let why = match reason {
                Reason::Suspended => "is suspended",
                Reason::Silent => "has devices that do not answer",
                _ => "is in use",
            };
            write!(f, "{}'{about}' {why}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

fn cannot(operation: &'static str) -> impl Fn(std::io::Error) -> DaemonError {
    move |source| DaemonError::System { operation, source }
}

/// What a daemon holds while it lives.
struct Held {
    listener: std::os::unix::net::UnixListener,
    _lock: OwnedFd,
}

/// Chooses the folder of a daemon for which none was named.
fn choose() -> Result<(RunDir, Vec<String>), RunDirError> {
    if let Some(place) = RunDir::named() {
        return Ok((place, Vec::new()));
    }
    let choice = choice::choose()?;
    let place = choice.make()?;
    let passed = choice.passed();
    let notes = if passed.is_empty() {
        Vec::new()
    } else {
        vec![format!("the daemon's folder is {}: {}", place.dir().display(), passed.join("; "))]
    };
    Ok((place, notes))
}

/// Runs a daemon to its end.
///
/// # Errors
/// * [`DaemonError::NobodyElse`]: `others` is set, and this user may not do that.
/// * [`DaemonError::RunDir`]: the folder can't be used or locked.
/// * [`DaemonError::Running`]: another daemon runs. With `background` that is a success.
/// * [`DaemonError::Tunable`]: there is no such tunable, or it can't have that value.
/// * [`DaemonError::Tree`]: statistics and parameters can't be mounted.
/// * [`DaemonError::Metrics`]: the address for metrics can't be bound.
/// * [`DaemonError::Zedlets`]: the named folder of programs can't be used.
/// * [`DaemonError::System`]: a session, the runtime, the socket or a signal handler can't be set
///   up.
/// * [`DaemonError::Left`]: at its end, pools could not be exported.
pub fn run(options: &Options, service: Arc<dyn DaemonService>) -> Result<(), DaemonError> {
    let place = &options.place;
    if options.others && !fuse::system::may_let_others_in() {
        return Err(DaemonError::NobodyElse);
    }
    place.prepare()?;
    if options.background {
        leave_terminal()?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("request")
        .max_blocking_threads(turns::THREADS)
        .build()
        .map_err(cannot("start the runtime"))?;
    // This comes before any write: a limit of the shell must not end the daemon.
    catch_limits(&runtime)?;
    logging::start(options.background.then(|| place.log()));
    inherited::raise_limits();
    fuse::reserve::keep();
    set_tunables(options, &*service)?;
    let held = match begin(place) {
        Err(DaemonError::Running { .. }) if options.background => {
            // Two commands started a daemon, and the other one serves both.
            return say_ready(&[]);
        }
        held => held?,
    };
    for note in &options.notes {
        tracing::warn!("{note}");
    }
    orphans::remove(place, options.tree.as_deref());
    set_defaults(options, &*service);
    // Before anything is served, so that a folder that can't be used is reported before clients
    // depend on the daemon.
    let tree = match &options.tree {
        Some(at) => {
            Some(service.clone().stats(at).map_err(|source| DaemonError::Tree { at: at.clone(), source })?)
        }
        None => None,
    };
    let metrics = match options.metrics {
        Some(at) => Some(listen(at).map_err(|source| DaemonError::Metrics { at, source })?),
        None => None,
    };
    run_at_events(options, &*service)?;
    service.open_doors(place);
    if options.attach {
        service.attach_every();
    }
    if options.background {
        say_ready(&options.notes)?;
    }
    tracing::info!(socket = %place.socket().display(), "serving");
    let result = runtime.block_on(serve(options, held, metrics, &service));
    // Don't wait for a request that still runs on a hanging pool.
    runtime.shutdown_background();
    if let Some(tree) = &tree
        && let Err(error) = tree.leave_tree(fuse::Detach::Lazy)
    {
        tracing::warn!(%error, "kstats and tunables stay mounted, dead");
    }
    result
}

/// Leaves the session, the umask and the priority of the command that started this process.
fn leave_terminal() -> Result<(), DaemonError> {
    match rustix::process::setsid() {
        // The leader of a process group has its own session, or a shell's job control, already.
        Ok(_) | Err(rustix::io::Errno::PERM) => {}
        Err(errno) => return Err(cannot("leave the terminal")(errno.into())),
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    inherited::take_back_nice();
    Ok(())
}

fn set_tunables(options: &Options, service: &dyn DaemonService) -> Result<(), DaemonError> {
    for (name, value) in &options.tunables {
        let failed = |e: Error| DaemonError::Tunable { name: name.clone(), value: *value, reason: e.reason };
        // The user who starts the daemon sets these on its command line.
        service.set_tunable(&Caller::this_process(), name, value).map_err(failed)?;
    }
    Ok(())
}

/// Sets what applies to all pools that are imported later.
fn set_defaults(options: &Options, service: &dyn DaemonService) {
    if options.place.is_shared() {
        service.remember_in(Path::new(crate::commands::pool::cachefile::USUAL));
    }
    if options.others {
        service.let_others_in();
    }
    if options.nest {
        service.nest_always();
    }
}

/// Catches the signals of limits on file sizes and CPU time, which would end this process. A write
/// beyond its limit then fails with `EFBIG`.
fn catch_limits(runtime: &tokio::runtime::Runtime) -> Result<(), DaemonError> {
    let _inside = runtime.enter();
    for limit in [rustix::process::Signal::XFSZ, rustix::process::Signal::XCPU] {
        // A handler stays for the life of the process.
        drop(signal(SignalKind::from_raw(limit.as_raw())).map_err(cannot("watch for signals"))?);
    }
    Ok(())
}

/// Starts to run programs at events. The default folder is used without a request, so an unusable
/// one does not keep the daemon from running.
fn run_at_events(options: &Options, service: &dyn DaemonService) -> Result<(), ZedletError> {
    let run_dir = Some(options.place.dir().to_owned());
    if let Some(terms) = &options.events {
        return service.run_at_events(Terms { run_dir, ..terms.clone() });
    }
    let usual = Path::new(USUAL);
    if options.place.is_shared()
        && rustix::process::geteuid().is_root()
        && usual.exists()
        && let Err(error) = service.run_at_events(Terms { run_dir, ..Terms::of(usual) })
    {
        tracing::error!("nothing is run at events: {}", api::chain(&error));
    }
    Ok(())
}

/// The usage message of `serve`.
const USAGE: &str = "\
usage: poolhouse serve [--run-dir DIR] [--shared] [--allow-other] [--nest] [--tree DIR] [--attach] [--stop-timeout SECONDS]
                       [--metrics ADDRESS:PORT] [--event-dir DIR] [--event-timeout SECONDS] [--tunable NAME=VALUE] ...

Holds imported pools and their mounts, in the foreground, until it gets SIGTERM. Commands start it by themselves where none runs.
    --run-dir DIR            its folder, instead of this user's
    --shared                 anybody may ask, as root's own lets them: `zfs allow` says what for
    --allow-other            let other users into what is mounted, as far as the files let them; root's always does. A user
                             may where /etc/fuse.conf has the line user_allow_other, and then file systems can be mounted in each other
    --nest                   one mount for all file systems whose mountpoints lie in each other, as a user's daemon has it:
                             thousands take one open file. They share its setuid, devices, exec and acltype
    --tree DIR               mount kstats and tunables as files there
    --attach                 make every volume a block device
    --stop-timeout SECONDS   how long it waits at the end for a pool in which nothing moves: 60
    --metrics ADDRESS:PORT   answer Prometheus there, at /metrics; whoever reaches it reads the names of pools and devices
    --event-dir DIR          run executables of DIR at events, by their names, as OpenZFS's zed does: all-*, CLASS*, SUBCLASS*;
                             root's own daemon looks into /etc/poolhouse/events.d by itself
    --event-timeout SECONDS  kill what runs longer than that at an event: 60
    --tunable NAME=VALUE     set a tunable before anything is imported, as `poolhouse set tunable` does later";

/// The options that take a value.
const WITH_VALUE: [&str; 7] =
    ["--run-dir", "--tree", "--stop-timeout", "--metrics", "--event-dir", "--event-timeout", "--tunable"];

/// What is wrong with a word of the command line, if it is.
fn misuse(word: &OsStr, value: Option<&OsStr>) -> String {
    let name = word.display();
    match value {
        Some(value) => format!("invalid value '{}' of option '{name}'", value.display()),
        None if WITH_VALUE.iter().any(|option| word == *option) => {
            format!("missing value of option '{name}'")
        }
        None if word.as_encoded_bytes().starts_with(b"-") => format!("invalid option '{name}'"),
        None => format!("too many arguments: '{name}'"),
    }
}

/// The parsed command line of `serve`.
struct Arguments {
    /// The options, with an empty folder.
    options: Options,
    /// Whether other users may make requests.
    shared: bool,
    /// How long a program may run at an event.
    limit: Option<Duration>,
    /// The named folder.
    run_dir: Option<PathBuf>,
}

/// The command line is wrong, for this reason.
struct BadUsage(String);

/// Parses the command line of `serve`. `None` if it asks for help.
fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Arguments>, BadUsage> {
    let options = Options::at(RunDir::at(Path::new("")));
    let mut parsed = Arguments { options, shared: false, limit: None, run_dir: None };
    let options = &mut parsed.options;
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let value = if WITH_VALUE.iter().any(|option| arg == *option) { args.next() } else { None };
        let seconds = value.as_ref().and_then(|value| value.to_str()?.parse().ok());
        let address = value.as_ref().and_then(|value| value.to_str()?.parse().ok());
        let pair = value.as_ref().and_then(|value| value.to_str()?.split_once('='));
        let pair = pair.and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        let misuse = misuse(&arg, value.as_deref());
        match (arg.to_str(), value) {
            (Some("--help" | "-h"), _) => return Ok(None),
            (Some("--background"), _) => options.background = true,
            (Some("--shared"), _) => parsed.shared = true,
            (Some("--allow-other"), _) => options.others = true,
            (Some("--nest"), _) => options.nest = true,
            (Some("--attach"), _) => options.attach = true,
            (Some("--tree"), Some(dir)) => options.tree = Some(PathBuf::from(dir)),
            (Some("--stop-timeout"), Some(_)) if seconds.is_some() => {
                options.patience = Duration::from_secs(seconds.unwrap_or_default());
            }
            (Some("--metrics"), Some(_)) if address.is_some() => options.metrics = address,
            // A relative path refers to the directory where the daemon is started, which it leaves.
            (Some("--event-dir"), Some(dir)) => {
                let dir = std::path::absolute(&dir).unwrap_or_else(|_| dir.into());
                options.events = Some(Terms::of(&dir));
            }
            (Some("--event-timeout"), Some(_)) if seconds.is_some_and(|seconds| seconds > 0) => {
                parsed.limit = seconds.map(Duration::from_secs);
            }
            (Some("--tunable"), Some(_)) if pair.is_some() => options.tunables.extend(pair),
            (Some("--run-dir"), Some(dir)) => {
                parsed.run_dir = Some(std::path::absolute(&dir).unwrap_or_else(|_| dir.into()));
            }
            _ => return Err(BadUsage(misuse)),
        }
    }
    Ok(Some(parsed))
}

/// Runs `poolhouse serve` with its options (`USAGE`) and returns the exit code.
///
/// A command that starts a daemon passes `--background`. With that, the daemon detaches from the
/// terminal and ends when nothing is imported.
pub fn main(args: impl IntoIterator<Item = OsString>, service: Arc<dyn DaemonService>) -> u8 {
    let Arguments { mut options, shared, limit, run_dir } = match parse(args) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            // The reader of the output may be gone.
            writeln!(std::io::stdout(), "{USAGE}").unwrap_or_default();
            return 0;
        }
        Err(BadUsage(misuse)) => {
            say(&format!("{misuse}\n{USAGE}"));
            return 2;
        }
    };
    let chosen = match run_dir {
        // A named folder that is the usual one stays as open as that, as root's is.
        Some(dir) => Ok((choice::at(&dir), Vec::new())),
        None => choose(),
    };
    match chosen {
        Ok((place, notes)) => (options.place, options.notes) = (place, notes),
        Err(error) => return cannot_serve(options.background, &error),
    }
    if shared {
        options.place = options.place.shared();
    }
    match (&mut options.events, limit) {
        (Some(terms), Some(limit)) => terms.limit = limit,
        (None, Some(_)) => {
            say("--event-timeout is for what --event-dir names");
            return 2;
        }
        (_, None) => {}
    }
    // A command starts the daemon as `/proc/self/exe`, and that would be its name.
    if let Err(errno) = rustix::thread::set_name(c"poolhouse") {
        tracing::debug!(%errno, "it is called by its program's name");
    }
    match run(&options, service) {
        Ok(()) => 0,
        Err(error @ DaemonError::Left { .. }) => {
            tracing::error!("{error}");
            1
        }
        Err(error) => cannot_serve(options.background, &error),
    }
}

/// Reports why there is no daemon, to the waiting command if there is one. Returns the exit code.
fn cannot_serve(background: bool, error: &dyn std::error::Error) -> u8 {
    let why = api::chain(error);
    if background {
        // The command that started the daemon may be gone.
        writeln!(std::io::stdout(), "{FAILED}{}", why.replace('\n', " ")).unwrap_or_default();
    } else {
        say(&format!("cannot serve: {why}"));
    }
    1
}

fn say(line: &str) {
    // Standard error may be closed. The exit code reports the failure too.
    writeln!(std::io::stderr(), "{line}").unwrap_or_default();
}

/// The error for another daemon in this folder.
fn running(place: RunDir) -> DaemonError {
    let stream = place.connect().ok().flatten();
    let pid = stream.and_then(|stream| rustix::net::sockopt::socket_peercred(stream).ok());
    DaemonError::Running { place, pid: pid.map(|peer| peer.pid) }
}

fn begin(place: &RunDir) -> Result<Held, DaemonError> {
    let (_turn, other) = choice::take_turn(place)?;
    if let Some(place) = other {
        return Err(running(place));
    }
    let Some(lock) = place.lock_daemon()? else { return Err(running(place.clone())) };
    let socket = place.socket();
    // While this process has the lock, no daemon listens on the socket.
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(cannot("remove an old socket")(error));
        }
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&socket).map_err(cannot("make the socket"))?;
    let mode = if place.is_shared() { 0o666 } else { 0o600 };
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(mode))
        .and_then(|()| listener.set_nonblocking(true))
        .map_err(cannot("set up the socket"))?;
    Ok(Held { listener, _lock: lock })
}

fn say_ready(notes: &[String]) -> Result<(), DaemonError> {
    let mut out = std::io::stdout();
    let notes: String = notes.iter().map(|note| format!("{NOTE}{}\n", note.replace('\n', " "))).collect();
    // The command that started the daemon may be gone. That is no reason not to serve.
    if let Err(error) = writeln!(out, "{notes}{READY}").and_then(|()| out.flush()) {
        tracing::debug!(%error, "nobody waits for the daemon");
    }
    let null = std::fs::File::options().write(true).open("/dev/null").map_err(cannot("open /dev/null"))?;
    // Standard error is the log by now, unless the log can't be opened. Then it still is the pipe,
    // which the command waits for.
    let pipe = same_file(&out, std::io::stderr()).map_err(cannot("look at standard error"))?;
    let released = rustix::stdio::dup2_stdout(&null).and_then(|()| match pipe {
        true => rustix::stdio::dup2_stderr(&null),
        false => Ok(()),
    });
    released.map_err(|e| cannot("release the pipe")(e.into()))
}

fn same_file(one: impl AsFd, other: impl AsFd) -> std::io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// The requests in progress.
#[derive(Default)]
struct Activity {
    running: AtomicUsize,
    changed: Notify,
}

/// One request in progress.
#[derive(Clone)]
struct Busy(#[allow(dead_code, reason = "counts by living")] Arc<BusyOnce>);

struct BusyOnce(Arc<Activity>);

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::SeqCst);
        Self(Arc::new(BusyOnce(Arc::clone(activity))))
    }
}

impl Drop for BusyOnce {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

/// A socket for metrics. It can be bound again at once after a daemon has ended.
fn listen(at: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    tracing::info!(at = %listener.local_addr()?, "metrics");
    Ok(listener)
}

async fn serve(
    options: &Options,
    held: Held,
    metrics: Option<std::net::TcpListener>,
    service: &Arc<dyn DaemonService>,
) -> Result<(), DaemonError> {
    let listener = UnixListener::from_std(held.listener).map_err(cannot("listen"))?;
    let mut term = signal(SignalKind::terminate()).map_err(cannot("watch for signals"))?;
    let mut int = signal(SignalKind::interrupt()).map_err(cannot("watch for signals"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(cannot("watch for signals"))?;
    if let Some(metrics) = metrics {
        let metrics = TcpListener::from_std(metrics).map_err(cannot("listen for who asks for metrics"))?;
        tokio::spawn(crate::telemetry::metrics::listener::open(metrics, Arc::clone(service)));
    }
    // A service manager that receives this may end the daemon from now on.
    service_manager::tell("READY=1\nSTATUS=serving");
    let activity = Arc::new(Activity::default());
    let stop = Arc::new(Notify::new());
    let callers = Arc::new(Callers::default());
    // Set while the reserve of open files is in use. Then only the daemon's owners may connect.
    let mut short = false;
    loop {
        let idle = options.background && activity.running.load(Ordering::SeqCst) == 0 && service.is_empty();
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if std::mem::take(&mut short) && !is_own(&stream) => {
                    drop(stream);
                    fuse::reserve::refill();
                }
                Ok((stream, _)) => hear(stream, service, &activity, &stop, &callers),
                Err(error) if !short && lacks_descriptors(&error) && fuse::reserve::lend() => {
                    tracing::warn!(%error, "the reserve of open files is used for a caller");
                    short = true;
                }
                Err(error) => {
                    // Files may have run out: wait a moment for open ones to close.
                    tracing::warn!(%error, "a caller could not be let in");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = activity.changed.notified() => {}
            () = stop.notified() => break tracing::info!("ending: asked to"),
            _ = term.recv() => break tracing::info!("ending: terminated"),
            _ = int.recv() => break tracing::info!("ending: interrupted"),
            _ = hangup.recv() => break tracing::info!("ending: its terminal is gone"),
            () = tokio::time::sleep(LINGER), if idle => break tracing::info!("ending: nothing is imported"),
        }
    }
    service_manager::tell("STOPPING=1");
    fuse::reserve::give_up();
    finish(options, service, &mut term, &mut int).await
}

/// Serves a connection.
fn hear(
    stream: tokio::net::UnixStream,
    service: &Arc<dyn DaemonService>,
    activity: &Arc<Activity>,
    stop: &Arc<Notify>,
    callers: &Arc<Callers>,
) {
    // Busy from here on: the caller's request must not reach a daemon that has begun to end.
    let heard = Busy::new(activity);
    let activity = Arc::clone(activity);
    let service = Arc::<dyn DaemonService>::clone(service);
    let busy = move || Busy::new(&activity);
    let (stop, callers) = (Arc::clone(stop), Arc::clone(callers));
    tokio::spawn(async move {
        http::connection(stream, service, stop, &callers, busy).await;
        fuse::reserve::refill();
        drop(heard);
    });
}

/// Ends what the daemon serves. A second signal ends the process at once.
async fn finish(
    options: &Options,
    service: &Arc<dyn DaemonService>,
    term: &mut Signal,
    int: &mut Signal,
) -> Result<(), DaemonError> {
    let place = options.place.clone();
    let service = Arc::clone(service);
    // Hanging requests may hold all other threads.
    let patience = options.patience;
    let ending = http::alone(move || end(&place, &*service, patience));
    tokio::select! {
        ended = ending => match ended {
            Some(result) => result,
            None => {
                tracing::error!("ending failed");
                Ok(())
            }
        },
        _ = term.recv() => leave_at_once(),
        _ = int.recv() => leave_at_once(),
    }
}

/// Ends the process at once. Cleaning up the holders of pools would have to wait for them.
fn leave_at_once() -> ! {
    tracing::warn!("told twice: leaving everything as it is");
    std::process::exit(1);
}

/// Whether the peer is root or the daemon's own user.
fn is_own(stream: &tokio::net::UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

fn lacks_descriptors(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn end(place: &RunDir, service: &dyn DaemonService, patience: Duration) -> Result<(), DaemonError> {
    let _turn = place.lock_start()?;
    if let Err(error) = std::fs::remove_file(place.socket()) {
        tracing::warn!(%error, "the socket stays");
    }
    match service.close(patience) {
        left if left.is_empty() => Ok(()),
        pools => Err(DaemonError::Left { pools }),
    }
}
