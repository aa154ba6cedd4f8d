//! An AFS server of a pool, and its clients.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use afs::acl::{Acl, AclText};
use afs::calls::callback::{self, AboutReply, Interface};
use afs::calls::fileserver::{AclBytes, Call, Name, Path, Reply};
use afs::calls::volserver;
use afs::cell::protection::{Protection, User};
use afs::partition::PartitionId;
use afs::server::store::{PARTITION, Partition};
use afs::server::{Options, Server};
use afs::types::{
    Destination, FetchStatus, Fid, PrincipalId, RestoreCookie, StoreStatus, Unique, Vnode, VolumeId,
    VolumeInfo,
};
use afs::wire::{Chars, List, Uuid, Wire};
use parking_lot::Mutex;
use poolhouse::Pool;
use rx::security::rxkad::{Client as Ticket, Key, Keys, SUPERUSER};
use rx::security::{Class, Level, Null};
use rx::{Connection, Endpoint, Service};

use super::world::Fallible;
use crate::crash::work::POOL;

/// The type of the cell's key: aes256-cts-hmac-sha1-96.
const ENCTYPE: i32 = 18;
const TIME: Duration = Duration::from_secs(120);
/// Threads of an endpoint of a program.
const WORKERS: usize = 2;

/// The name of the partition's file system.
pub(super) fn partition() -> String {
    format!("{POOL}/vicepa")
}

/// The root directory of a volume.
pub(super) fn root(volume: VolumeId) -> Fid {
    Fid { volume, vnode: Vnode::ROOT, unique: Unique(1) }
}

/// A protection database in which users have the numbers in their names.
struct Users;

impl Users {
    fn id(name: &[u8]) -> PrincipalId {
        let number = || std::str::from_utf8(name).ok()?.parse().ok();
        number().map_or(PrincipalId::ANYUSER, PrincipalId)
    }
}

impl Protection for Users {
    fn user(&self, _: &str) -> Result<Arc<User>, i32> {
        let groups = vec![PrincipalId::ANYUSER, PrincipalId::ADMINISTRATORS];
        Ok(Arc::new(User::new(PrincipalId(1), groups)))
    }

    fn host(&self, _: Ipv4Addr) -> Result<Arc<[PrincipalId]>, i32> {
        Ok(Arc::default())
    }

    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<Vec<u8>>, i32> {
        Ok(ids.iter().map(|id| id.to_string().into_bytes()).collect())
    }

    fn ids(&self, names: &[Vec<u8>]) -> Result<Vec<PrincipalId>, i32> {
        Ok(names.iter().map(|name| Users::id(name)).collect())
    }

    fn anonymous(&self) -> Result<Arc<User>, i32> {
        Ok(Arc::new(User::anonymous()))
    }

    fn flush(&self, _: &[PrincipalId], _: &[u32]) {}
}

/// The text of an access list in which anyone may do all. User 100 has `rights` too, which tell
/// such lists apart.
fn acl_text(rights: u32) -> Vec<u8> {
    format!("2\n0\nanyone\t127\n100\t{}\n\0", rights % 127 + 1).into_bytes()
}

/// The access list of that text.
pub(super) fn acl(rights: u32) -> Acl {
    const FINE: &str = "the text is right";
    let parsed = AclText::parse(&acl_text(rights)).expect(FINE);
    let ids: Vec<PrincipalId> = parsed.names().map(Users::id).collect();
    parsed.resolve(&ids).expect(FINE)
}

/// A server with one partition.
pub(super) struct Cell {
    server: Server,
    keys: Arc<Keys>,
}

impl Cell {
    /// Makes a file system of the pool a partition.
    pub(super) fn prepare(pool: &Pool) -> Fallible<()> {
        pool.create_filesystem(&partition())?;
        pool.set(&partition(), PARTITION, "a")?;
        Ok(())
    }

    /// Starts a server on a pool that has a partition.
    pub(super) fn start(pool: &Pool) -> Fallible<Self> {
        let keys = Arc::new(Keys::fixed(vec![Key::new(1, ENCTYPE, &[9; 32])]));
        let options = Options {
            file_port: 0,
            volume_port: 0,
            workers: WORKERS,
            ..Options::new(Ipv4Addr::LOCALHOST, Arc::clone(&keys), "test".into(), Uuid([1; 16]))
        };
        let partition = Partition::begin(PartitionId(0), pool.clone(), &partition())?;
        let server = Server::start(options, Arc::new(Users))?;
        server.add(partition)?;
        Ok(Self { server, keys })
    }

    /// A client. Its number tells it apart from others, also after a restart of the server.
    pub(super) fn client(&self, number: u8) -> Fallible<Client> {
        self.client_as(number, &Null)
    }

    /// A client of an administrator.
    pub(super) fn admin(&self) -> Fallible<Client> {
        self.client_as(0, &Ticket::local(&self.keys, "admin", Level::Clear)?)
    }

    fn client_as(&self, number: u8, class: &dyn Class) -> Fallible<Client> {
        let told = Arc::new(Told::default());
        let service = Callbacks { told: Arc::clone(&told), uuid: Uuid([100 + number; 16]) };
        let options = rx::Options {
            classes: vec![Arc::new(Null)],
            services: vec![(1, Arc::new(service))],
            workers: WORKERS,
            ..rx::Options::default()
        };
        let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), options)?;
        let address = self.server.file_address().ok_or("the file server has no address")?;
        let connection = endpoint.connect(address, 1, class)?;
        Ok(Client { told, _endpoint: endpoint, connection })
    }

    /// An administrator's program for volumes.
    pub(super) fn operator(&self) -> Fallible<Operator> {
        let options = rx::Options { workers: WORKERS, ..rx::Options::default() };
        let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), options)?;
        let class = Ticket::local(&self.keys, SUPERUSER, Level::Clear)?;
        let address = self.server.volume_address().ok_or("the volume server has no address")?;
        let connection = endpoint.connect(address, 4, &class)?;
        Ok(Operator { _endpoint: endpoint, connection, address })
    }
}

/// What a client has heard.
#[derive(Default)]
pub(super) struct Told {
    /// Ends of promises. A fid of vnode 0 means the whole volume.
    pub(super) broken: Mutex<Vec<Fid>>,
    /// How often all promises of the server ended.
    pub(super) resets: Mutex<u32>,
}

/// The client's side of promises.
struct Callbacks {
    told: Arc<Told>,
    uuid: Uuid,
}

impl Service for Callbacks {
    fn quick(&self, _: &rx::Request) -> Option<rx::Reply> {
        None
    }

    fn run(&self, call: &mut rx::Call) -> Result<(), i32> {
        let request = call.read_all(1 << 16).map_err(|_| -453)?;
        let (opcode, arguments) = request.split_first_chunk().ok_or(-453)?;
        let decoded = callback::Call::decode(u32::from_be_bytes(*opcode), arguments).map_err(|_| -455)?;
        let reply = match decoded {
            callback::Call::TellMeAboutYourself {} => {
                let interface = Interface { uuid: self.uuid, ..Interface::default() };
                AboutReply { interface, capabilities: List::default() }.to_bytes()
            }
            callback::Call::CallBack { fids, .. } => {
                self.told.broken.lock().extend(fids.into_vec());
                Vec::new()
            }
            callback::Call::InitCallBackState3 { .. } | callback::Call::InitCallBackState {} => {
                *self.told.resets.lock() += 1;
                Vec::new()
            }
            _ => Vec::new(),
        };
        call.write(reply).map_err(|_| -6)
    }
}

/// Makes a call, and returns its reply.
fn raw(connection: &Connection, mut request: Vec<u8>, data: &[u8], what: &str) -> Fallible<Vec<u8>> {
    request.extend_from_slice(data);
    Ok(connection.call(request, TIME).map_err(|error| format!("{what}: {error}"))?)
}

/// A reply of another call.
fn other<T>(reply: &dyn std::fmt::Debug) -> Fallible<T> {
    Err(format!("this is the reply of another call: {reply:?}").into())
}

/// A client of the file server on a host of its own.
pub(super) struct Client {
    pub(super) told: Arc<Told>,
    _endpoint: Endpoint,
    connection: Connection,
}

impl Client {
    fn call(&self, call: &Call) -> Fallible<Reply> {
        let reply = raw(&self.connection, call.request(), &[], &format!("{call:?}"))?;
        Ok(Reply::decode(call.opcode(), &reply)?)
    }

    pub(super) fn status(&self, fid: Fid) -> Fallible<FetchStatus> {
        match self.call(&Call::FetchStatus { fid })? {
            Reply::FetchStatus(reply) => Ok(reply.status),
            reply => other(&reply),
        }
    }

    /// The contents and status of a file, or the pages of a directory.
    pub(super) fn fetch(&self, fid: Fid) -> Fallible<(Vec<u8>, FetchStatus)> {
        let call = Call::FetchData64 { fid, position: 0, length: i64::MAX };
        let reply = raw(&self.connection, call.request(), &[], &format!("{call:?}"))?;
        let (head, rest) = reply.split_first_chunk().ok_or("the reply is too short")?;
        let count = usize::try_from(u64::from_be_bytes(*head))?;
        let (data, rest) = rest.split_at_checked(count).ok_or("the reply has fewer data")?;
        let reply = afs::calls::fileserver::StatusReply::from_bytes(rest)?;
        Ok((data.to_vec(), reply.status))
    }

    /// Makes a file or a directory. Returns it, its status and that of the directory.
    pub(super) fn make(
        &self,
        directory: Fid,
        name: &str,
        is_directory: bool,
        status: StoreStatus,
    ) -> Fallible<(Fid, [FetchStatus; 2])> {
        let name = self::name(name)?;
        let call = match is_directory {
            true => Call::MakeDir { directory, name, status },
            false => Call::CreateFile { directory, name, status },
        };
        match self.call(&call)? {
            Reply::CreateFile(reply) | Reply::MakeDir(reply) => {
                Ok((reply.fid, [reply.status, reply.directory]))
            }
            reply => other(&reply),
        }
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(
        &self,
        directory: Fid,
        name: &str,
        target: &[u8],
    ) -> Fallible<(Fid, [FetchStatus; 2])> {
        let (name, target) = (self::name(name)?, Path::new(target).ok_or("the target is too long")?);
        match self.call(&Call::Symlink { directory, name, target, status: StoreStatus::default() })? {
            Reply::Symlink(reply) => Ok((reply.fid, [reply.status, reply.directory])),
            reply => other(&reply),
        }
    }

    /// Makes another name of a file. Returns its status and that of the directory.
    pub(super) fn link(&self, directory: Fid, name: &str, existing: Fid) -> Fallible<[FetchStatus; 2]> {
        match self.call(&Call::Link { directory, name: self::name(name)?, existing })? {
            Reply::Link(reply) => Ok([reply.status, reply.directory]),
            reply => other(&reply),
        }
    }

    /// Removes a name. Returns the status of the directory.
    pub(super) fn remove(&self, directory: Fid, name: &str, is_directory: bool) -> Fallible<FetchStatus> {
        let name = self::name(name)?;
        let call = match is_directory {
            true => Call::RemoveDir { directory, name },
            false => Call::RemoveFile { directory, name },
        };
        match self.call(&call)? {
            Reply::RemoveFile(reply) | Reply::RemoveDir(reply) => Ok(reply.status),
            reply => other(&reply),
        }
    }

    /// Renames. Returns the statuses of the old and the new directory.
    pub(super) fn rename(&self, old: (Fid, &str), new: (Fid, &str)) -> Fallible<[FetchStatus; 2]> {
        let call = Call::Rename {
            old_directory: old.0,
            old_name: name(old.1)?,
            new_directory: new.0,
            new_name: name(new.1)?,
        };
        match self.call(&call)? {
            Reply::Rename(reply) => Ok([reply.old_directory, reply.new_directory]),
            reply => other(&reply),
        }
    }

    /// Stores data at a position, after the file was cut or extended to a length.
    pub(super) fn store(
        &self,
        fid: Fid,
        (position, data): (u64, &[u8]),
        file_length: u64,
        status: StoreStatus,
    ) -> Fallible<FetchStatus> {
        let call = Call::StoreData64 { fid, status, position, length: data.len() as u64, file_length };
        let reply = raw(&self.connection, call.request(), data, &format!("{call:?}"))?;
        match Reply::decode(call.opcode(), &reply)? {
            Reply::StoreData64(reply) => Ok(reply.status),
            reply => other(&reply),
        }
    }

    pub(super) fn store_status(&self, fid: Fid, status: StoreStatus) -> Fallible<FetchStatus> {
        match self.call(&Call::StoreStatus { fid, status })? {
            Reply::StoreStatus(reply) => Ok(reply.status),
            reply => other(&reply),
        }
    }

    /// Sets the access list [`acl`].
    pub(super) fn store_acl(&self, fid: Fid, rights: u32) -> Fallible<FetchStatus> {
        let acl = AclBytes::new(acl_text(rights)).ok_or("the text is too long")?;
        match self.call(&Call::StoreAcl { fid, acl })? {
            Reply::StoreAcl(reply) => Ok(reply.status),
            reply => other(&reply),
        }
    }
}

fn name(text: &str) -> Fallible<Name> {
    Ok(Name::new(text).ok_or("the name is too long")?)
}

/// A program of an administrator.
pub(super) struct Operator {
    _endpoint: Endpoint,
    connection: Connection,
    /// That of the server.
    address: SocketAddrV4,
}

impl Operator {
    pub(super) fn call(&self, call: &volserver::Call) -> Fallible<volserver::Reply> {
        let reply = raw(&self.connection, call.request(), &[], &format!("{call:?}"))?;
        Ok(volserver::Reply::decode(call.opcode(), &reply)?)
    }

    /// Makes a volume, and returns the transaction.
    pub(super) fn create(&self, volume: VolumeId, name: &str, kind: i32) -> Fallible<i32> {
        let name = volserver::Name::new(name).ok_or("the name is too long")?;
        let parent = VolumeId(0);
        match self.call(&volserver::Call::CreateVolume { partition: 0, name, kind, parent, volume })? {
            volserver::Reply::CreateVolume(reply) => Ok(reply.transaction),
            reply => other(&reply),
        }
    }

    /// Begins a transaction.
    pub(super) fn begin(&self, volume: VolumeId, flags: i32) -> Fallible<i32> {
        match self.call(&volserver::Call::TransCreate { volume, partition: 0, flags })? {
            volserver::Reply::TransCreate(transaction) => Ok(transaction),
            reply => other(&reply),
        }
    }

    /// Ends a transaction.
    pub(super) fn end(&self, transaction: i32) -> Fallible<()> {
        self.call(&volserver::Call::EndTrans { transaction }).map(drop)
    }

    /// Puts the volume of a transaction into service.
    pub(super) fn complete(&self, transaction: i32) -> Fallible<()> {
        self.call(&volserver::Call::SetFlags { transaction, flags: 0 }).map(drop)
    }

    /// What the server says of a volume.
    pub(super) fn list_one(&self, volume: VolumeId) -> Fallible<VolumeInfo> {
        match self.call(&volserver::Call::ListOneVolume { partition: 0, volume })? {
            volserver::Reply::ListOneVolume(list) => Ok(list.into_vec().pop().ok_or("it is not listed")?),
            reply => other(&reply),
        }
    }

    /// The dump of a volume since a date.
    pub(super) fn dump(&self, volume: VolumeId, since: u32) -> Fallible<Vec<u8>> {
        let transaction = self.begin(volume, volserver::attach::BUSY)?;
        let call = volserver::Call::Dump { transaction, since: afs::types::Date(since) };
        let dump = raw(&self.connection, call.request(), &[], &format!("{call:?}"))?;
        self.end(transaction)?;
        Ok(dump)
    }

    /// Restores a dump into the volume of a transaction.
    pub(super) fn restore(
        &self,
        transaction: i32,
        (name, kind, parent): (&str, i32, VolumeId),
        dump: &[u8],
    ) -> Fallible<()> {
        let name = Chars::new(name.as_bytes());
        let cookie = RestoreCookie { name, kind, parent, ..RestoreCookie::default() };
        let call = volserver::Call::Restore { transaction, flags: 0, cookie };
        raw(&self.connection, call.request(), dump, "Restore").map(drop)
    }

    /// Has a server send the volume of a transaction to itself, into that of another one. A clone
    /// goes as blocks if it can.
    pub(super) fn forward(
        &self,
        [transaction, to_transaction]: [i32; 2],
        (name, kind, parent): (&str, i32, VolumeId),
    ) -> Fallible<()> {
        let name = Chars::new(name.as_bytes());
        let cookie = RestoreCookie { name, kind, parent, ..RestoreCookie::default() };
        let (host, port) = (self.address.ip().to_bits(), self.address.port().into());
        let to = Destination { host, port, security: 1 };
        let since = afs::types::Date(0);
        self.call(&volserver::Call::Forward { transaction, since, to, to_transaction, cookie }).map(drop)
    }

    /// All volumes. Incomplete ones are not listed.
    pub(super) fn list(&self) -> Fallible<Vec<VolumeInfo>> {
        match self.call(&volserver::Call::ListVolumes { partition: 0, flags: 1 })? {
            volserver::Reply::ListVolumes(list) => Ok(list.into_vec()),
            reply => other(&reply),
        }
    }

    /// The numbers of all volumes.
    pub(super) fn numbers(&self) -> Fallible<Vec<VolumeId>> {
        match self.call(&volserver::Call::ListVolumes { partition: 0, flags: 0 })? {
            volserver::Reply::ListVolumes(list) => Ok(list.into_vec().iter().map(|info| info.id).collect()),
            reply => other(&reply),
        }
    }
}
