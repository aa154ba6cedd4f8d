//! A server of a pool, with clients of our own.
//!
//! OpenAFS's clients send a part of the calls, and see a part of the replies. These send the rest.

mod activity;
mod adopting;
mod blocks;
mod calls;
mod crash;
mod files;
mod forwards;
mod promises;
mod restarts;
mod resting;
mod restores;
mod rights;
mod volumes;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use afs::calls::callback::{self, AboutReply, Interface};
use afs::calls::fileserver::{self, Call, EntryReply, Name, Reply};
use afs::calls::volserver;
use afs::cell::protection::{Protection, User};
use afs::errors::errno;
use afs::partition::PartitionId;
use afs::server::store::{PARTITION, Partition};
use afs::server::{Options, Server};
use afs::types::{Fid, PrincipalId, StoreStatus, Unique, Vnode, VolumeId};
use afs::wire::{List, Uuid, Wire};
use parking_lot::Mutex;
use poolhouse::spa::txg::Tunables;
use poolhouse::{OpenOptions, Pool};
use rx::security::rxkad::{Client as Ticket, Key, Keys, SUPERUSER};
use rx::security::{Class, Level, Null};
use rx::{Connection, Endpoint, Service};

/// The type of the cell's key: aes256-cts-hmac-sha1-96.
const ENCTYPE: i32 = 18;
const SIZE: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(20);
pub const ALICE: PrincipalId = PrincipalId(100);
pub const BOB: PrincipalId = PrincipalId(101);
pub const ADMIN: PrincipalId = PrincipalId(1);
/// A group with Alice alone.
pub const FRIENDS: PrincipalId = PrincipalId(-300);
/// A volume.
pub const VOLUME: VolumeId = VolumeId(536_870_912);

/// A protection database of three users.
struct Users;

impl Users {
    fn named(name: &str) -> Option<User> {
        let everyone = [PrincipalId::ANYUSER, PrincipalId::AUTHUSER];
        let user = |id, more: &[PrincipalId]| User::new(id, [&everyone, more].concat());
        Some(match name {
            "admin" => user(ADMIN, &[PrincipalId::ADMINISTRATORS]),
            "alice" => user(ALICE, &[FRIENDS]),
            "bob" => user(BOB, &[]),
            _ => return None,
        })
    }
}

impl Protection for Users {
    fn user(&self, name: &str) -> Result<Arc<User>, i32> {
        Ok(Arc::new(Self::named(name).unwrap_or_else(User::anonymous)))
    }

    fn host(&self, _: Ipv4Addr) -> Result<Arc<[PrincipalId]>, i32> {
        Ok(Arc::default())
    }

    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<Vec<u8>>, i32> {
        let known = [(ALICE, "alice"), (BOB, "bob"), (PrincipalId::ANYUSER, "system:anyuser")];
        let name = |id: &PrincipalId| known.iter().find(|(known, _)| known == id).map(|(_, name)| *name);
        Ok(ids.iter().map(|id| name(id).map_or_else(|| id.to_string(), str::to_owned).into_bytes()).collect())
    }

    fn ids(&self, names: &[Vec<u8>]) -> Result<Vec<PrincipalId>, i32> {
        let id = |name: &Vec<u8>| match name.as_slice() {
            b"alice" => ALICE,
            b"bob" => BOB,
            b"admins" => PrincipalId::ADMINISTRATORS,
            b"system:anyuser" => PrincipalId::ANYUSER,
            _ => PrincipalId::ANONYMOUS,
        };
        Ok(names.iter().map(id).collect())
    }

    fn anonymous(&self) -> Result<Arc<User>, i32> {
        Ok(Arc::new(User::anonymous()))
    }

    fn flush(&self, _: &[PrincipalId], _: &[u32]) {}
}

/// A server with one partition.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub server: Option<Server>,
    pub pool: Option<Pool>,
    keys: Arc<Keys>,
}

impl Rig {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("d0");
        std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
        let pool = Pool::create("cell", &[&[&image]]).unwrap();
        pool.create_filesystem("cell/vicepa").unwrap();
        pool.set("cell/vicepa", PARTITION, "a").unwrap();
        let keys = Arc::new(Keys::fixed(vec![Key::new(1, ENCTYPE, &[9; 32])]));
        let mut rig = Rig { dir, server: None, pool: Some(pool), keys };
        rig.start();
        rig
    }

    /// Starts the server on the pool that is open.
    pub fn start(&mut self) {
        self.start_with(|_| ());
    }

    /// Starts the server with changed options.
    pub fn start_with(&mut self, change: impl FnOnce(&mut Options)) {
        let pool = self.pool.clone().unwrap();
        let partition = Partition::begin(PartitionId(0), pool, "cell/vicepa").unwrap();
        let mut options = Options {
            file_port: 0,
            volume_port: 0,
            // Volumes come to rest in all tests.
            patience: Duration::ZERO,
            ..Options::new(Ipv4Addr::LOCALHOST, Arc::clone(&self.keys), "test".into(), Uuid([1; 16]))
        };
        change(&mut options);
        let server = Server::start(options, Arc::new(Users)).unwrap();
        server.add(partition).unwrap();
        self.server = Some(server);
    }

    pub fn stop(&mut self) {
        drop(self.server.take());
        self.pool.take().unwrap().export().unwrap();
    }

    pub fn open(&mut self, image: PathBuf) {
        let options =
            OpenOptions { write: true, force: true, claim: poolhouse::Claim::Own, ..OpenOptions::default() };
        self.pool = Some(Pool::open(&[image], &options).unwrap());
    }

    /// Has the pool write transaction groups only when a call waits for one.
    pub fn sync_on_demand(&self) {
        let live = self.pool.as_ref().unwrap().spa().writer().unwrap();
        live.sync_all().unwrap();
        live.set_tunables(Tunables { timeout: Duration::from_secs(86_400), ..Tunables::default() });
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn client(&self, user: Option<&str>) -> Client {
        Client::new(self, user, true)
    }

    /// An administrator's program.
    pub fn operator(&self) -> Operator {
        let endpoint =
            Endpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), rx::Options::default()).unwrap();
        let class = Ticket::local(&self.keys, SUPERUSER, Level::Clear).unwrap();
        let connection = endpoint.connect(self.server().volume_address().unwrap(), 4, &class).unwrap();
        Operator { _endpoint: endpoint, connection }
    }

    /// The cell's own key, as a client of the file server has it.
    pub fn with_key(&self) -> Client {
        Client::new(self, Some(SUPERUSER), true)
    }

    /// Makes a volume in whose root directory anyone may do all.
    pub fn volume(&self, id: VolumeId, name: &str) {
        let operator = self.operator();
        let transaction = operator.create(id, name).unwrap();
        operator.complete(transaction);
        let admin = self.client(Some("admin"));
        admin.set_acl(root(id), "1\n0\nsystem:anyuser\t127\n").unwrap();
    }
}

/// What a client has heard.
#[derive(Default)]
pub struct Told {
    pub broken: Mutex<Vec<Fid>>,
    pub resets: Mutex<u32>,
}

/// The client's side of promises.
struct Callbacks {
    told: Arc<Told>,
    uuid: Uuid,
    unified: bool,
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
                let capabilities = List::new(vec![u32::from(self.unified)]).unwrap();
                AboutReply { interface, capabilities }.to_bytes()
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

/// A client on a host of its own.
pub struct Client {
    pub told: Arc<Told>,
    pub endpoint: Endpoint,
    connection: Connection,
}

impl Client {
    pub fn new(rig: &Rig, user: Option<&str>, unified: bool) -> Self {
        static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(10);
        let mut uuid = [0; 16];
        uuid[0] = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let told = Arc::new(Told::default());
        let service = Callbacks { told: Arc::clone(&told), uuid: Uuid(uuid), unified };
        let options = rx::Options {
            classes: vec![Arc::new(Null)],
            services: vec![(1, Arc::new(service))],
            workers: 4,
            ..rx::Options::default()
        };
        let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), options).unwrap();
        let class: Box<dyn Class> = match user {
            None => Box::new(Null),
            Some(user) => Box::new(Ticket::local(&rig.keys, user, Level::Crypt).unwrap()),
        };
        let connection = endpoint.connect(rig.server().file_address().unwrap(), 1, &*class).unwrap();
        Client { told, endpoint, connection }
    }

    fn raw(&self, call: &Call, data: &[u8]) -> Result<Vec<u8>, i32> {
        let failed = |error| match error {
            rx::Error::Aborted { code } => code,
            error => panic!("{call:?}: {error}"),
        };
        let mut request = call.request();
        request.extend_from_slice(data);
        self.connection.call(request, TIME).map_err(failed)
    }

    pub fn call(&self, call: Call) -> Result<Reply, i32> {
        let reply = self.raw(&call, &[])?;
        Ok(Reply::decode(call.opcode(), &reply).unwrap())
    }

    pub fn status(&self, fid: Fid) -> Result<fileserver::StatusReply, i32> {
        match self.call(Call::FetchStatus { fid })? {
            Reply::FetchStatus(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub fn version(&self, fid: Fid) -> u32 {
        self.status(fid).unwrap().status.data_version.0
    }

    pub fn create(&self, directory: Fid, file: &str) -> Result<EntryReply, i32> {
        match self.call(Call::CreateFile { directory, name: name(file), status: StoreStatus::default() })? {
            Reply::CreateFile(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub fn make_dir(&self, directory: Fid, file: &str) -> Result<EntryReply, i32> {
        match self.call(Call::MakeDir { directory, name: name(file), status: StoreStatus::default() })? {
            Reply::MakeDir(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub fn remove(&self, directory: Fid, file: &str) -> Result<(), i32> {
        self.call(Call::RemoveFile { directory, name: name(file) }).map(drop)
    }

    pub fn store(
        &self,
        fid: Fid,
        at: u64,
        data: &[u8],
        file_length: u64,
    ) -> Result<fileserver::ChangeReply, i32> {
        let (status, length) = (StoreStatus::default(), data.len() as u64);
        let call = Call::StoreData64 { fid, status, position: at, length, file_length };
        let reply = self.raw(&call, data)?;
        match Reply::decode(call.opcode(), &reply).unwrap() {
            Reply::StoreData64(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub fn fetch(
        &self,
        fid: Fid,
        position: i64,
        length: i64,
    ) -> Result<(Vec<u8>, fileserver::StatusReply), i32> {
        let reply = self.raw(&Call::FetchData64 { fid, position, length }, &[])?;
        let (head, rest) = reply.split_first_chunk().unwrap();
        let count = u64::from_be_bytes(*head) as usize;
        let (data, rest) = rest.split_at(count);
        Ok((data.to_vec(), fileserver::StatusReply::from_bytes(rest).unwrap()))
    }

    pub fn set_acl(&self, fid: Fid, text: &str) -> Result<(), i32> {
        let acl = fileserver::AclBytes::new([text.as_bytes(), b"\0"].concat()).unwrap();
        self.call(Call::StoreAcl { fid, acl }).map(drop)
    }
}

/// A program of an administrator.
pub struct Operator {
    _endpoint: Endpoint,
    pub connection: Connection,
}

impl Operator {
    pub fn raw(&self, call: &volserver::Call, data: &[u8]) -> Result<Vec<u8>, i32> {
        let mut request = call.request();
        request.extend_from_slice(data);
        self.connection.call(request, TIME).map_err(|error| match error {
            rx::Error::Aborted { code } => code,
            error => panic!("{call:?}: {error}"),
        })
    }

    pub fn call(&self, call: volserver::Call) -> Result<volserver::Reply, i32> {
        let reply = self.raw(&call, &[])?;
        Ok(volserver::Reply::decode(call.opcode(), &reply).unwrap())
    }

    /// Makes a volume, and returns the transaction.
    pub fn create(&self, volume: VolumeId, name: &str) -> Result<i32, i32> {
        let name = volserver::Name::new(name).unwrap();
        let call = volserver::Call::CreateVolume { partition: 0, name, kind: 0, parent: VolumeId(0), volume };
        match self.call(call)? {
            volserver::Reply::CreateVolume(reply) => Ok(reply.transaction),
            other => panic!("{other:?}"),
        }
    }

    pub fn begin(&self, volume: VolumeId, flags: i32) -> Result<i32, i32> {
        match self.call(volserver::Call::TransCreate { volume, partition: 0, flags })? {
            volserver::Reply::TransCreate(transaction) => Ok(transaction),
            other => panic!("{other:?}"),
        }
    }

    pub fn end(&self, transaction: i32) -> Result<(), i32> {
        self.call(volserver::Call::EndTrans { transaction }).map(drop)
    }

    /// Puts the volume of a transaction into service, and ends the transaction.
    pub fn complete(&self, transaction: i32) {
        self.call(volserver::Call::SetFlags { transaction, flags: 0 }).unwrap();
        self.end(transaction).unwrap();
    }

    pub fn clone_volume(&self, transaction: i32, kind: i32, name: &str, volume: VolumeId) -> Result<(), i32> {
        let name = volserver::Name::new(name).unwrap();
        let purge = VolumeId(0);
        self.call(volserver::Call::Clone { transaction, purge, kind, name, volume }).map(drop)
    }

    pub fn dump(&self, volume: VolumeId, since: u32) -> Vec<u8> {
        let transaction = self.begin(volume, volserver::attach::BUSY).unwrap();
        let since = afs::types::Date(since);
        let dump = self.raw(&volserver::Call::Dump { transaction, since }, &[]).unwrap();
        self.end(transaction).unwrap();
        dump
    }

    pub fn listed(&self, volume: VolumeId) -> Result<afs::types::VolumeInfo, i32> {
        match self.call(volserver::Call::ListOneVolume { partition: 0, volume })? {
            volserver::Reply::ListOneVolume(list) => Ok(list.into_vec().pop().unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

pub fn root(volume: VolumeId) -> Fid {
    Fid { volume, vnode: Vnode::ROOT, unique: Unique(1) }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The number of an errno for clients that want unified ones.
pub fn unified(code: i32) -> i32 {
    afs::errors::to_unified(code)
}

/// EACCES for such clients.
pub fn denied<T>() -> Result<T, i32> {
    Err(unified(errno::EACCES))
}
