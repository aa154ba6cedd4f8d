//! The registration of a server with the cell.
//!
//! # Theory
//! The volume location servers list each file server by a UUID, with its addresses. Clients find
//! volumes by that list. So a server registers at its start, and again when its addresses change.
//! It serves meanwhile: the list of last time is usually right.
//!
//! # On disk
//! The file `sysid` has the server's UUID, in OpenAFS's layout. So an OpenAFS server and this one
//! can take each other's place. The words have the byte order of the machine.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | 0x88aabbcc |
//! | 4 | version: 1 |
//! | 8 | the UUID, in network byte order |
//! | 24 | number of addresses, 1 to 16 |
//! | 28 | the addresses, in network byte order |
//!
//! The addresses are written for OpenAFS and not read.
//!
//! # See
//! OpenAFS: `src/viced/viced.c` (`ReadSysIdFile`, `Do_VLRegisterRPC`).

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use observe::lock::{Condvar, Mutex};

use super::databases::{Databases, Failure};
use crate::calls::vlserver::Call;
use crate::config::{NetInfo, NetRestrict};
use crate::errors::{rxgen, vldb};
use crate::wire::{List, Uuid};

const MAGIC: u32 = 0x88aa_bbcc;
const VERSION: u32 = 1;
/// Where the UUID is in the file, and the size of the file up to the first address.
const UUID: std::ops::Range<usize> = 8..24;
/// Most addresses of a server in the list (`ADDRSPERSITE`).
const MOST: usize = 16;
/// The longest pause after a registration failed.
const RETRY: Duration = Duration::from_secs(300);
/// The first pause.
const FIRST: Duration = Duration::from_secs(5);
/// How often the addresses of the host are checked.
const CHECK: Duration = Duration::from_secs(60);

/// Why a server has no UUID.
#[derive(Debug, thiserror::Error)]
pub enum SysidError {
    /// The file can't be read.
    #[error("the server's UUID can't be read from {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file can't be written.
    #[error("the server's UUID can't be written to {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers for a UUID")]
    Random,
    /// The file does not have OpenAFS's layout.
    #[error(
        "{} is damaged; restore it, or remove it and the server's old entry (vos listaddrs, vos changeaddr)",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
    },
}

/// The UUID in the bytes of a `sysid`. `None`: they have another layout.
pub fn parse_sysid(bytes: &[u8]) -> Option<Uuid> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (magic, version) = (word(0)?, word(4)?);
    let uuid = Uuid(bytes.get(UUID)?.try_into().ok()?);
    let is_known = (magic, version) == (MAGIC, VERSION)
        || (magic.swap_bytes(), version.swap_bytes()) == (MAGIC, VERSION);
    Some(uuid).filter(|uuid| is_known && *uuid != Uuid::default())
}

fn sysid(uuid: Uuid, addresses: &[Ipv4Addr]) -> Vec<u8> {
    // OpenAFS refuses a file without addresses.
    let addresses = if addresses.is_empty() { &[Ipv4Addr::UNSPECIFIED] } else { addresses };
    let addresses = &addresses[..addresses.len().min(MOST)];
    let mut bytes = [MAGIC.to_ne_bytes(), VERSION.to_ne_bytes()].concat();
    bytes.extend(uuid.0);
    bytes.extend((addresses.len() as u32).to_ne_bytes());
    bytes.extend(addresses.iter().flat_map(Ipv4Addr::octets));
    bytes
}

/// The server's UUID from the file `sysid`, which is made if it is missing.
///
/// `addresses` are noted in a new file. A file that is there is never changed: with another UUID,
/// the cell would refuse the server's addresses.
///
/// # Errors
/// [`SysidError`]
pub fn server_uuid(path: &Path, addresses: &[Ipv4Addr]) -> Result<Uuid, SysidError> {
    let read = || match fs::read(path) {
        Ok(bytes) => parse_sysid(&bytes).map(Some).ok_or_else(|| SysidError::Shape { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SysidError::Read { path: path.into(), source }),
    };
    if let Some(uuid) = read()? {
        return Ok(uuid);
    }
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|_| SysidError::Random)?;
    // Version 4, of the usual variant.
    (uuid[6], uuid[8]) = (uuid[6] & 0x0f | 0x40, uuid[8] & 0x3f | 0x80);
    let suffix = u32::from_ne_bytes([uuid[0], uuid[1], uuid[2], uuid[3]]);
    let made = create(path, suffix, &sysid(Uuid(uuid), addresses));
    made.map_err(|source| SysidError::Write { path: path.into(), source })?;
    // Another process may have been faster.
    read()?.ok_or_else(|| SysidError::Shape { path: path.into() })
}

/// Makes a file with these bytes, unless it exists. It is never seen half-written: it has another
/// name until it is complete, with a suffix that no other process has.
fn create(path: &Path, suffix: u32, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix:08x}.new"));
    let new = PathBuf::from(name);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let linked =
        file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| match fs::hard_link(&new, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        });
    let _ = fs::remove_file(&new);
    linked?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The IPv4 addresses of the host, without those of the loopback interface.
///
/// # Errors
/// The system's error.
pub fn host_addresses() -> io::Result<Vec<Ipv4Addr>> {
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    for interface in nix::ifaddrs::getifaddrs()? {
        let address = interface.address.as_ref().and_then(|address| address.as_sockaddr_in());
        let address = address.map(|address| address.ip());
        addresses.extend(address.filter(|address| !address.is_loopback() && !addresses.contains(address)));
    }
    Ok(addresses)
}

/// Which addresses a server registers.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The file NetInfo. It need not exist.
    pub net_info: PathBuf,
    /// The file NetRestrict. It need not exist.
    pub net_restrict: PathBuf,
}

impl Addresses {
    /// The addresses to register, by the files as they are now.
    ///
    /// # Errors
    /// The addresses of the host are not known, or a file is there and can't be read.
    pub fn choose(&self) -> io::Result<Vec<Ipv4Addr>> {
        self.choose_from(&host_addresses()?)
    }

    pub(super) fn choose_from(&self, of_host: &[Ipv4Addr]) -> io::Result<Vec<Ipv4Addr>> {
        self.look(of_host).map(|(chosen, _)| chosen)
    }

    /// The addresses to register, and what is wrong in the files.
    pub(super) fn look(&self, of_host: &[Ipv4Addr]) -> io::Result<(Vec<Ipv4Addr>, Vec<String>)> {
        let read = |path: &Path| match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            result => result,
        };
        let info = NetInfo::parse(&read(&self.net_info)?);
        let restrict = NetRestrict::parse(&read(&self.net_restrict)?);
        let mut chosen = restrict.keep(&info.choose(of_host));
        chosen.truncate(MOST);
        let mut remarks = Vec::new();
        for (path, lines) in
            [(&self.net_info, &info.wrong_lines), (&self.net_restrict, &restrict.wrong_lines)]
        {
            let line = |line: &usize| {
                format!("{}: line {line} is no address or net, and is ignored", path.display())
            };
            remarks.extend(lines.iter().map(line));
        }
        if info.misses(of_host) {
            let path = self.net_info.display();
            remarks.push(format!("{path}: the host has no such address; all its addresses are registered"));
        }
        Ok((chosen, remarks))
    }
}

/// Why a server is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The host has no address that may be registered.
    #[error("the host has no address to register; check its interfaces, NetInfo and NetRestrict")]
    NoAddress,
    /// No volume location server answers.
    #[error("no volume location server takes the registration")]
    Away,
    /// One of the addresses is registered for another server (`VL_MULTIPADDR`).
    #[error(
        "the cell has one of the addresses for another server; find it by `vos listaddrs -printuuid`, \
         and remove it by `vos changeaddr ADDRESS -remove`, or restore the old sysid"
    )]
    AnotherServer,
    /// The server's key is not the cell's (`VL_PERM`).
    #[error("the volume location servers don't accept the key; KeyFileExt must be that of the cell")]
    Key,
    /// The volume location servers are too old.
    #[error("the volume location servers have no call to register a server")]
    TooOld,
    /// A volume location server refuses by this code.
    #[error("a volume location server refuses the registration: code {0}")]
    Refused(i32),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Away => Self::Away,
            Failure::Refused(vldb::VL_MULTIPADDR) => Self::AnotherServer,
            Failure::Refused(vldb::VL_PERM) => Self::Key,
            Failure::Refused(rxgen::RXGEN_OPCODE) => Self::TooOld,
            Failure::Refused(code) => Self::Refused(code),
        }
    }
}

/// How the registration stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether the cell has the present addresses.
    pub is_registered: bool,
    /// The addresses of the last attempt.
    pub addresses: Vec<Ipv4Addr>,
    /// When the server was last registered.
    pub registered_at: Option<SystemTime>,
    /// Why the last attempt failed, and when.
    pub problem: Option<(Problem, SystemTime)>,
}

struct State {
    stop: bool,
    status: Status,
}

struct Shared {
    databases: Databases,
    uuid: Uuid,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn register(&self, addresses: &[Ipv4Addr]) -> Result<(), Problem> {
        if addresses.is_empty() {
            return Err(Problem::NoAddress);
        }
        let words = addresses.iter().map(|address| address.to_bits()).collect();
        let addresses = List::new(words).ok_or(Problem::NoAddress)?;
        let call = Call::RegisterAddrs { server: self.uuid, spare: 0, addresses };
        self.databases.call(&call.request()).map(|_| ()).map_err(Problem::from)
    }

    /// Registers these addresses, and notes the result.
    fn attempt(&self, addresses: Vec<Ipv4Addr>) {
        let result = self.register(&addresses);
        let mut state = self.state.lock();
        let status = &mut state.status;
        let before = status.problem.map(|(problem, _)| problem);
        status.is_registered = result.is_ok();
        match result {
            Ok(()) => {
                tracing::info!(?addresses, "the server is registered with the cell");
                (status.registered_at, status.problem) = (Some(SystemTime::now()), None);
            }
            Err(problem) => {
                if before != Some(problem) {
                    tracing::error!(?addresses, "{problem}; the server goes on, and tries again");
                }
                status.problem = Some((problem, SystemTime::now()));
            }
        }
        status.addresses = addresses;
        self.changed.notify_all();
    }

    /// Registers the addresses if they are new, or if it is time to try again. Returns when to try
    /// again, and the pause before that.
    fn check(&self, addresses: Vec<Ipv4Addr>, (due, pause): (Instant, Duration)) -> (Instant, Duration) {
        let status = self.status();
        let is_new = addresses != status.addresses;
        if !is_new && (status.is_registered || Instant::now() < due) {
            return (due, pause);
        }
        let pause = if is_new { FIRST } else { (pause * 2).min(RETRY) };
        self.attempt(addresses);
        (Instant::now() + pause, pause)
    }

    fn run(&self, choose: impl Fn() -> io::Result<Vec<Ipv4Addr>>) {
        let mut next = (Instant::now(), FIRST);
        loop {
            match choose() {
                Ok(addresses) => next = self.check(addresses, next),
                Err(error) => tracing::warn!(%error, "the addresses of the host are not known"),
            }
            let mut state = self.state.lock();
            let check = Instant::now() + CHECK;
            let until = if state.status.is_registered { check } else { check.min(next.0) };
            while !state.stop && Instant::now() < until {
                self.changed.wait_until(&mut state, until);
            }
            if state.stop {
                return;
            }
        }
    }

    fn status(&self) -> Status {
        self.state.lock().status.clone()
    }
}

/// Keeps a server registered. Dropping it ends its thread, after a call that is under way.
pub struct Registration {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Registration {
    /// Registers the server with this UUID by these servers of [`super::VL_SERVICE`].
    ///
    /// # Errors
    /// The system can't start a thread.
    pub fn start(databases: Databases, uuid: Uuid, addresses: Addresses) -> io::Result<Self> {
        // What is wrong is said once, until it changes.
        let told = Mutex::new(Vec::new());
        Self::start_with(databases, uuid, move || {
            let (chosen, remarks) = addresses.look(&host_addresses()?)?;
            let mut told = told.lock();
            if *told != remarks {
                remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
                *told = remarks;
            }
            Ok(chosen)
        })
    }

    /// Registers the server with the addresses that `choose` has at the time.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub fn start_with(
        databases: Databases,
        uuid: Uuid,
        choose: impl Fn() -> io::Result<Vec<Ipv4Addr>> + Send + 'static,
    ) -> io::Result<Self> {
        let state = Mutex::new(State { stop: false, status: Status::default() });
        let shared = Arc::new(Shared { databases, uuid, state, changed: Condvar::new() });
        let thread = std::thread::Builder::new().name("afs-location".into());
        let runner = Arc::clone(&shared);
        let thread = thread.spawn(move || runner.run(choose))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Checks these addresses at once.
    #[cfg(test)]
    pub(super) fn check_now(&self, addresses: Vec<Ipv4Addr>) {
        self.shared.check(addresses, (Instant::now() + RETRY, RETRY));
    }

    /// How the registration stands.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Waits for the end of an attempt, so long at most, and returns the status.
    pub fn wait(&self, time: Duration) -> Status {
        let until = Instant::now() + time;
        let mut state = self.shared.state.lock();
        while state.status == Status::default() {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.status.clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
    }
}
