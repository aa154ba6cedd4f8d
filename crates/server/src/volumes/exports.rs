//! Volumes that are served over NBD.
//!
//! # Theory
//! The daemon has a Unix socket beside its control socket. There its user, and root, may open any
//! volume and any snapshot of one by its full name.
//!
//! For others, the user offers volumes by name at an address. Each client that reaches that address
//! may use what is offered there and nothing else, since NBD without TLS has no authentication.
//! With certificates ([`nbd::Tls`]), an address accepts the clients that they accept.
//!
//! # Life
//! Offers belong to this daemon: they end with their dataset and with the daemon. An export of a
//! pool waits for no client. Clients make the pool busy, and a forced export disconnects them.
//!
//! # Locks
//! The table of offers is held for look-ups and inserts, and while a socket is created.

use crate::commands::dataset::tasks;
use crate::pools::imported::Imported;
use crate::pools::table::PoolTable;
use crate::replies::of_dsl;
use api::chain;
use api::{Caller, DatasetChange, Error, ExportList, OfferRequest, Offered, Reason, WithdrawRequest};
use dsl::{Kind, Name, Prop, PropError, Tail};
use nbd::{Exports, Listener, Listing, Offer, Server, Tls};
use observe::lock::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The port of NBD.
const PORT: u16 = 10_809;

/// The sockets, and what is served at each.
#[derive(Default)]
pub(crate) struct Doors(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Listeners come before the server that has their connections, since fields drop in order.
    own: Option<Listener>,
    offers: BTreeMap<ListenAddress, Door>,
    server: Option<Server>,
}

/// An address where something is offered.
struct Door {
    /// Dropping it closes the address.
    _listener: Listener,
    names: Arc<Names>,
    tls: Option<Tls>,
}

/// What is offered at an address: names, and whether they are read-only.
type Names = Mutex<BTreeMap<String, bool>>;

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ListenAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl ListenAddress {
    fn parse(text: &str) -> Option<ListenAddress> {
        let text = text.strip_prefix("unix:").or_else(|| text.strip_prefix("tcp:")).unwrap_or(text);
        if text.starts_with('/') {
            return Some(ListenAddress::Unix(PathBuf::from(text)));
        }
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let host = |host: &str| match host {
            "localhost" => Some(local),
            host => host.trim_start_matches('[').trim_end_matches(']').parse().ok(),
        };
        if let Some(address) = host(text) {
            return Some(ListenAddress::Tcp(SocketAddr::new(address, PORT)));
        }
        let (before, port) = text.rsplit_once(':')?;
        Some(ListenAddress::Tcp(SocketAddr::new(host(before)?, port.parse().ok()?)))
    }

    /// The URI of an export at this address.
    fn uri(&self, export: &str, tls: bool) -> String {
        let (scheme, export) = (if tls { "nbds" } else { "nbd" }, encoded(export));
        match self {
            ListenAddress::Unix(path) => {
                format!("{scheme}+unix:///{export}?socket={}", encoded(&path.display().to_string()))
            }
            ListenAddress::Tcp(address) => format!("{scheme}://{address}/{export}"),
        }
    }
}

/// A name with percent-encoding for a URI.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~:@".contains(&byte);
    name.bytes().fold(String::new(), |mut out, byte| {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// All volumes of all pools.
struct Everything(Weak<PoolTable>);

impl Exports for Everything {
    fn find(&self, name: &str) -> Option<Offer> {
        offer(&*self.0.upgrade()?, name, false)
    }

    fn listing(&self) -> Listing {
        let pools = self.0.upgrade().map(|pools| pools.all()).unwrap_or_default();
        Listing::All(pools.iter().map(|pool| Arc::clone(&pool.volumes)).collect())
    }
}

/// What is offered at one address.
struct Chosen {
    pools: Weak<PoolTable>,
    names: Arc<Names>,
}

impl Exports for Chosen {
    fn find(&self, name: &str) -> Option<Offer> {
        let (name, read_only) = {
            let names = self.names.lock();
            match name {
                // A single export is the default one.
                "" if names.len() == 1 => names.iter().next().map(|(name, fixed)| (name.clone(), *fixed)),
                _ => names.get_key_value(name).map(|(name, fixed)| (name.clone(), *fixed)),
            }
        }?;
        offer(&*self.pools.upgrade()?, &name, read_only)
    }

    fn listing(&self) -> Listing {
        Listing::Names(self.names.lock().keys().cloned().collect())
    }
}

fn offer(pools: &PoolTable, name: &str, read_only: bool) -> Option<Offer> {
    let pool = pools.pool_of(name).ok()?;
    Some(Offer { name: name.to_owned(), volumes: Arc::clone(&pool.volumes), read_only })
}

/// The protocol's error for a failure to serve a volume.
pub(crate) fn of_nbd(about: &str, error: &nbd::Error) -> Error {
    Error::new(about, crate::replies::of_nbd(error))
}

/// The server, which starts when it is first needed.
fn server(table: &mut Table) -> Result<&Server, nbd::Error> {
    if table.server.is_none() {
        table.server = Some(Server::start()?);
    }
    Ok(table.server.as_ref().expect("it was started"))
}

impl Doors {
    /// Serves all volumes to this user on a socket of the daemon.
    pub(crate) fn open(&self, pools: &Arc<PoolTable>, socket: &Path) {
        let mut table = self.0.lock();
        let exports = Arc::new(Everything(Arc::downgrade(pools)));
        match server(&mut table).and_then(|server| server.listen_unix(socket, exports, None)) {
            Ok(listener) => table.own = Some(listener),
            Err(error) => tracing::warn!(error = chain(&error), "volumes are not served"),
        }
    }

    /// Accepts no more clients of volumes. Dropping the result disconnects the present ones.
    pub(crate) fn close(&self) -> Option<Server> {
        let Table { own, offers, server } = std::mem::take(&mut *self.0.lock());
        drop((own, offers));
        server
    }

    /// Offers volumes at an address.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * [`Reason::NoSuchPool`], [`Reason::NoSuchDataset`]: there is no such volume.
    /// * [`Reason::BadType`]: the dataset is not a volume or a snapshot of one.
    /// * [`Reason::BadValue`]: the address is malformed, or has offers with other certificates; or
    ///   the certificates can't be used.
    /// * [`Reason::System`]: the server or the socket can't be set up.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: the volume can't be read.
    pub(crate) fn offer(
        &self,
        caller: &Caller,
        pools: &Arc<PoolTable>,
        request: &OfferRequest,
    ) -> Result<Vec<Offered>, Error> {
        caller.must_own(&request.listen)?;
        for name in &request.datasets {
            let pool = pools.pool_of(name)?;
            let dataset = pool.pool.spa().read(|| pool.pool.dsl().dataset(name));
            dataset.map_err(|error| Error::new(name, of_dsl(&error)))?;
            pool.volumes.about(name).map_err(|error| of_nbd(name, &error))?;
        }
        let bad = |what: &str| Error::new(&request.listen, Reason::BadValue { what: what.to_owned() });
        let place = ListenAddress::parse(&request.listen)
            .ok_or_else(|| bad("neither the path of a socket nor an IP address and port"))?;
        let tls = request.tls.as_deref().map(Path::new).map(Tls::from_dir).transpose();
        let tls = tls.map_err(|error| of_nbd(&request.listen, &error))?;
        let mut table = self.0.lock();
        let new: BTreeMap<_, _> =
            request.datasets.iter().map(|name| (name.clone(), request.read_only)).collect();
        let place = match table.offers.get(&place) {
            // The existing certificates stay in use. The same folder may hold other ones by now.
            Some(door) if tls.is_none() || tls.as_ref().map(Tls::dir) == door.tls.as_ref().map(Tls::dir) => {
                door.names.lock().extend(new);
                place
            }
            Some(_) => return Err(bad("something is offered there with other certificates, or without any")),
            None => {
                let names = Arc::new(Names::new(new));
                let exports = Arc::new(Chosen { pools: Arc::downgrade(pools), names: Arc::clone(&names) });
                let server = server(&mut table).map_err(|error| of_nbd(&request.listen, &error))?;
                let listener = match &place {
                    ListenAddress::Unix(path) => server.listen_unix(path, exports, tls.clone()),
                    ListenAddress::Tcp(address) => server.listen_tcp(*address, exports, tls.clone()),
                };
                let listener = listener.map_err(|error| of_nbd(&request.listen, &error))?;
                // With port 0, the system chooses the port.
                let place = listener.address().map_or(place, ListenAddress::Tcp);
                table.offers.insert(place.clone(), Door { _listener: listener, names, tls });
                place
            }
        };
        let is_secure = table.offers.get(&place).is_some_and(|door| door.tls.is_some());
        let offered = |name: &String| Offered {
            dataset: name.clone(),
            uri: place.uri(name, is_secure),
            read_only: request.read_only,
        };
        Ok(request.datasets.iter().map(offered).collect())
    }

    /// Stops offering volumes. Present connections continue.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * [`Reason::BadValue`]: the address is malformed.
    /// * [`Reason::NotOffered`]: a volume is not offered there. Then nothing is withdrawn.
    pub(crate) fn withdraw(&self, caller: &Caller, request: &WithdrawRequest) -> Result<(), Error> {
        caller.must_own("withdraw")?;
        let place = match &request.listen {
            None => None,
            Some(text) => {
                let what = "neither the path of a socket nor an IP address and port".to_owned();
                Some(ListenAddress::parse(text).ok_or_else(|| Error::new(text, Reason::BadValue { what }))?)
            }
        };
        let offered = |name: &String| {
            let table = self.0.lock();
            let mut places = table.offers.iter().filter(|(at, _)| place.as_ref().is_none_or(|p| p == *at));
            places.any(|(_, door)| door.names.lock().contains_key(name))
        };
        if let Some(name) = request.datasets.iter().find(|name| !offered(name)) {
            return Err(Error::new(name, Reason::NotOffered));
        }
        self.forget(place.as_ref(), |name| {
            request.datasets.is_empty() || request.datasets.iter().any(|n| n == name)
        });
        Ok(())
    }

    /// The sockets, the offers, and the volumes in use.
    pub(crate) fn exports(&self, pools: &PoolTable) -> ExportList {
        let table = self.0.lock();
        let socket = table.own.as_ref().map(|own| own.place().to_owned());
        let mut offered = Vec::new();
        for (place, door) in &table.offers {
            offered.extend(door.names.lock().iter().map(|(name, read_only)| Offered {
                dataset: name.clone(),
                uri: place.uri(name, door.tls.is_some()),
                read_only: *read_only,
            }));
        }
        drop(table);
        let pools = pools.all();
        let users = pools.iter().flat_map(|pool| pool.volumes.users());
        ExportList { socket, offered, used: users.map(|u| (u.name, u.connections as u64)).collect() }
    }

    /// Adapts offers and open volumes to a change that was made.
    pub(crate) fn follow(&self, imported: &Imported, change: &DatasetChange) {
        match change {
            DatasetChange::Set { .. } | DatasetChange::Inherit { .. } => imported.volumes.follow(),
            DatasetChange::Destroy { names, .. } => {
                let gone = |name: &str| {
                    let found = imported.pool.dsl().dataset(name);
                    matches!(found, Err(dsl::Error::NoSuchDataset { .. }))
                };
                self.forget(None, |name| names.iter().any(|n| n == name) && gone(name));
            }
            DatasetChange::Rename { from, to, .. } => {
                imported.volumes.follow();
                self.rename(from, to);
            }
            _ => {}
        }
    }

    /// Withdraws all offers of a pool.
    pub(crate) fn forget_offers(&self, pool: &str) {
        self.forget(None, |name| Name::parse(name).is_ok_and(|name| name.pool() == pool));
    }

    /// Withdraws offers, and closes addresses where nothing is offered any more.
    fn forget(&self, place: Option<&ListenAddress>, which: impl Fn(&str) -> bool) {
        self.0.lock().offers.retain(|at, door| {
            let mut names = door.names.lock();
            if place.is_none_or(|place| place == at) {
                names.retain(|name, _| !which(name));
            }
            !names.is_empty()
        });
    }

    fn rename(&self, from: &str, to: &str) {
        for door in self.0.lock().offers.values() {
            let mut names = door.names.lock();
            let renamed = std::mem::take(&mut *names).into_iter().map(|(name, read_only)| {
                let tail = name.strip_prefix(from).filter(|t| t.is_empty() || t.starts_with(['/', '@']));
                (tail.map_or_else(|| name.clone(), |tail| format!("{to}{tail}")), read_only)
            });
            *names = renamed.collect();
        }
    }
}

/// A new size for a volume that is open. The open volume itself must change it.
pub(crate) struct Resize {
    /// The object number of the dataset.
    pub(crate) object: u64,
    size: u64,
}

/// Takes the new size of an open volume out of a change.
///
/// The change keeps the reservation that follows the size (`zfs_add_synthetic_resv`).
///
/// # Errors
/// * [`Reason::BadValue`]: the size is not valid, 0, or not a multiple of the block size.
/// * [`Reason::NoSuchDataset`]: there is no such dataset.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the dataset can't be read.
pub(crate) fn split_resize(
    imported: &Imported,
    room: tasks::Room<'_>,
    change: &DatasetChange,
) -> Result<(DatasetChange, Option<Resize>), Error> {
    let mut change = change.clone();
    let DatasetChange::Set { name, props, .. } = &mut change else { return Ok((change, None)) };
    let (volsize, reserved) = (Prop::Volsize.name(), Prop::Refreservation.name());
    let is_head = Name::parse(name).is_ok_and(|parsed| parsed.tail == Tail::Head);
    if !is_head || !props.iter().any(|(p, _)| p == volsize) {
        return Ok((change, None));
    }
    let fail = |error: &dsl::Error| Error::new(name.as_str(), of_dsl(error));
    let dsl = imported.pool.dsl();
    let dataset = dsl.dataset(name).map_err(|e| fail(&e))?;
    let object = dataset.object().0;
    let is_volume = dataset.head_kind().map_err(|e| fail(&e))? == Some(Kind::Volume);
    if !is_volume || !imported.volumes.objects().contains(&object) {
        return Ok((change, None));
    }
    let mine = |p: &str| p == volsize || p == reserved;
    let sizes: Vec<_> = props.iter().filter(|(p, _)| mine(p)).cloned().collect();
    let mut sizes = tasks::settings(dsl, name, Kind::Volume, false, &sizes)?;
    let Some(size) = tasks::number_of(&sizes, Prop::Volsize) else { return Ok((change, None)) };
    let block = dataset.volume().map_err(|e| fail(&e))?.map_or(512, |(_, block)| block);
    if size == 0 || !size.is_multiple_of(block) {
        let why = if size == 0 { PropError::Zero(volsize) } else { PropError::NotMultiple(block) };
        return Err(tasks::bad_value(name, &why));
    }
    crate::commands::dataset::volume::reserve(dsl, name, &mut sizes, room)?;
    props.retain(|(p, _)| !mine(p));
    // In old pools, `reservation` reserves the space.
    for prop in [Prop::Refreservation, Prop::Reservation] {
        if let Some(n) = tasks::number_of(&sizes, prop) {
            props.push((prop.name().to_owned(), n.to_string()));
        }
    }
    Ok((change, Some(Resize { object, size })))
}

impl Resize {
    /// Resizes the volume (`zvol_set_volsize`).
    ///
    /// # Errors
    /// * [`Reason::Busy`]: the volume is no longer open.
    /// * [`Reason::BadValue`]: the size is not a multiple of the block size.
    /// * [`Reason::Suspended`]: the pool accepts no writes.
    /// * [`Reason::Io`]: writing failed.
    pub(crate) fn run(&self, imported: &Imported, about: &str) -> Result<(), Error> {
        match imported.volumes.resize(self.object, self.size) {
            Some(done) => done.map_err(|error| of_nbd(about, &error)),
            None => Err(Error::new(about, Reason::Busy)),
        }
    }
}

#[cfg(test)]
mod tests;
