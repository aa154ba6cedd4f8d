//! The running AFS server: the cell's configuration, its database servers, and the server itself.

use super::settings::Settings;
use afs::cell::location::{Addresses, host_addresses, server_uuid};
use afs::cell::{Databases, PR_PORT, PR_SERVICE, PtServer, Registration, VL_PORT, VL_SERVICE};
use afs::config::{CellServDb, Realms, Superusers, this_cell};
use afs::server::{Options, Server};
use afs::wire::Uuid;
use api::chain;
use rx::Endpoint;
use rx::security::Level;
use rx::security::rxkad::Keys;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of the configuration of OpenAFS's servers.
const CONFIG: &str = "/etc/openafs/server";
/// The folder of what is a server's own, as OpenAFS has it.
const LOCAL: &str = "/var/lib/openafs/local";

/// Where the files of a server are.
struct Folders {
    /// ThisCell, CellServDB, KeyFileExt, UserList, krb.conf, krb.excl.
    config: PathBuf,
    /// sysid, NetInfo, NetRestrict.
    local: PathBuf,
}

impl Folders {
    fn of(settings: &Settings) -> Self {
        match &settings.config {
            Some(config) => Self { config: config.clone(), local: config.clone() },
            None => Self { config: CONFIG.into(), local: LOCAL.into() },
        }
    }
}

/// What the cell's configuration says.
struct Cell {
    name: String,
    databases: Vec<Ipv4Addr>,
    keys: Arc<Keys>,
    superusers: Superusers,
    realms: Realms,
}

/// The file in the folder for local state that keeps clients' promises until the next start.
const PROMISES: &str = "poolhouse-promises";

/// The running server.
pub(crate) struct Running {
    pub(crate) settings: Settings,
    pub(crate) config: PathBuf,
    pub(crate) cell: String,
    pub(crate) uuid: Uuid,
    pub(crate) keys: Arc<Keys>,
    /// The superusers, as the server reads them.
    pub(crate) superusers: Superusers,
    pub(crate) protection: Arc<PtServer>,
    pub(crate) server: Server,
    /// Only its end takes it.
    registration: Option<Registration>,
}

/// What to do about a file, beside the reason.
fn wrong(path: &Path, why: &dyn std::fmt::Display, advice: &str) -> String {
    format!("{}: {why}; {advice}", path.display())
}

fn read(path: &Path, advice: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| wrong(path, &api::plain(&error.to_string()), advice))
}

impl Cell {
    /// Reads the configuration. Each error names the file, and what to do.
    fn read(folder: &Path) -> Result<Self, String> {
        let copy = "copy it from another server of the cell, or name its folder with --config";
        let path = folder.join("ThisCell");
        let name = this_cell(&read(&path, copy)?).map_err(|error| wrong(&path, &chain(&error), copy))?;
        let path = folder.join("CellServDB");
        let cells = CellServDb::parse(&read(&path, copy)?);
        let cells = cells.map_err(|error| wrong(&path, &chain(&error), "correct this line"))?;
        let Some(cell) = cells.cell(&name) else {
            let why = format!("it has no cell {name}, which ThisCell names");
            return Err(wrong(&path, &why, "add the cell and its database servers"));
        };
        let databases: Vec<Ipv4Addr> = cell.hosts.iter().map(|host| host.address).collect();
        if databases.is_empty() {
            let why = format!("the cell {name} has no database server");
            return Err(wrong(&path, &why, "add a line with its address and name"));
        }
        let path = folder.join("KeyFileExt");
        let keys = Keys::of_file(&path).map_err(|error| {
            wrong(&path, &chain(&error), "copy it from another server of the cell, or make it with asetkey")
        })?;
        if keys.all().is_empty() {
            let why = "it has no key of the type rxkad_krb5 that this server knows";
            return Err(wrong(&path, &why, "add the cell's key with asetkey"));
        }
        let path = folder.join("UserList");
        let superusers = Superusers::of_file(&path);
        let superusers = superusers.map_err(|error| {
            wrong(&path, &api::plain(&error.to_string()), "let the daemon read it, or remove it")
        })?;
        let optional = |file: &str| {
            let path = folder.join(file);
            match std::fs::read(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) => {
                    Err(wrong(&path, &api::plain(&error.to_string()), "let the daemon read it, or remove it"))
                }
                Ok(bytes) => Ok(bytes),
            }
        };
        let realms = Realms::parse(&name, &optional("krb.conf")?, &optional("krb.excl")?);
        Ok(Self { name, databases, keys: Arc::new(keys), superusers, realms })
    }
}

/// The server's UUID. A folder for it is made if it is missing.
fn uuid(local: &Path) -> Result<Uuid, String> {
    let path = local.join("sysid");
    let made = std::fs::create_dir_all(local);
    made.map_err(|error| {
        wrong(local, &api::plain(&error.to_string()), "make this folder, or name another one with --config")
    })?;
    let addresses = host_addresses().unwrap_or_default();
    server_uuid(&path, &addresses).map_err(|error| chain(&error))
}

impl Running {
    /// Starts the server. `early`: the host may get its address later.
    ///
    /// # Errors
    /// The file or address that can't be used, why, and what to do.
    pub(crate) fn start(settings: &Settings, early: bool) -> Result<Self, String> {
        let folders = Folders::of(settings);
        let cell = Cell::read(&folders.config)?;
        let superusers = Superusers::of_file(folders.config.join("UserList"))
            .map_err(|error| wrong(&folders.config.join("UserList"), &error, "let the daemon read it"))?;
        let uuid = uuid(&folders.local)?;
        let address = settings.address();
        let outward =
            Endpoint::bind(SocketAddrV4::new(address, 0), rx::Options { early, ..rx::Options::default() });
        let outward = Arc::new(outward.map_err(|error| not_bound(address, settings, &error))?);
        let databases = |name, port, service| {
            let at: Vec<_> = cell.databases.iter().map(|at| SocketAddrV4::new(*at, port)).collect();
            let (endpoint, keys) = (Arc::clone(&outward), Arc::clone(&cell.keys));
            Databases::new(name, endpoint, service, keys, Level::Crypt, &at)
        };
        let protection = Arc::new(PtServer::new(databases("protection", PR_PORT, PR_SERVICE)));
        let options = Options {
            early,
            file_port: settings.file_port(),
            volume_port: settings.volume_port(),
            superusers: cell.superusers,
            realms: cell.realms,
            shards: sockets(),
            promises_file: Some(folders.local.join(PROMISES)),
            ..Options::new(address, Arc::clone(&cell.keys), cell.name.clone(), uuid)
        };
        let server = Server::start(options, Arc::clone(&protection) as Arc<_>);
        let server = server.map_err(|error| not_bound(address, settings, &error))?;
        let locations = databases("volume location", VL_PORT, VL_SERVICE);
        let registration = if address.is_unspecified() {
            let (net_info, net_restrict) = (folders.local.join("NetInfo"), folders.local.join("NetRestrict"));
            Registration::start(locations, uuid, Addresses { net_info, net_restrict })
        } else {
            Registration::start_with(locations, uuid, move || Ok(chosen(address, &host_addresses()?)))
        };
        let registration = registration.map_err(|error| format!("no thread can be started: {error}"))?;
        tracing::info!(
            cell = cell.name,
            files = server.file_address().map(tracing::field::display),
            volumes = server.volume_address().map(tracing::field::display),
            "the AFS server runs"
        );
        Ok(Self {
            settings: settings.clone(),
            config: folders.config,
            cell: cell.name,
            uuid,
            keys: cell.keys,
            superusers,
            protection,
            server,
            registration: Some(registration),
        })
    }

    /// How the registration with the cell stands.
    pub(crate) fn registration(&self) -> afs::cell::Status {
        self.registration.as_ref().map(Registration::status).unwrap_or_default()
    }
}

/// The address to register: the one that the server is bound to, once the host has it. As with
/// NetInfo, the loopback interface is of no use to clients.
fn chosen(address: Ipv4Addr, of_host: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
    Some(address).filter(|at| !at.is_loopback() && of_host.contains(at)).into_iter().collect()
}

/// Sockets of the file server: one for each four cores. With more of them, fewer replies leave
/// together.
fn sockets() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).clamp(1, 16))
}

/// Why an address can't be used.
fn not_bound(address: Ipv4Addr, settings: &Settings, error: &dyn std::error::Error) -> String {
    format!(
        "{address}, ports {} and {}: {}; end what uses them (OpenAFS's dafileserver and davolserver?), \
         or choose others with --address, --port and --volume-port",
        settings.file_port(),
        settings.volume_port(),
        chain(error)
    )
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(registration) = self.registration.take() else { return };
        // It waits for a call to a database server, which may not answer for seconds.
        let ended = std::thread::Builder::new().name("afs-unlist".into()).spawn(move || drop(registration));
        if let Err(error) = ended {
            tracing::debug!(%error, "the registration ended without a thread of its own");
        }
    }
}
