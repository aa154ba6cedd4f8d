mod cache;
mod location;
mod servers;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use observe::lock::Mutex;
use rx::security::rxkad::{Key, Keys, Server};
use rx::security::{Class, Level};
use rx::{Endpoint, Reply, Request, Service};

use super::Databases;
use crate::errors::rxgen;

const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// AES with 256 bits.
const ENCTYPE: i32 = 18;

/// How a database of a test answers.
type Answer = Box<dyn Fn(u32, &[u8]) -> Result<Vec<u8>, i32> + Send + Sync>;

/// A database server: the operations that it served, and how it answers.
struct Database {
    answer: Answer,
    log: Arc<Mutex<Vec<u32>>>,
}

impl Service for Database {
    fn quick(&self, _: &Request) -> Option<Reply> {
        None
    }

    fn run(&self, call: &mut rx::Call) -> Result<(), i32> {
        let identity = call.info().identity.clone().expect("a ticket was shown");
        assert_eq!((identity.name.as_str(), identity.level), (rx::security::rxkad::SUPERUSER, Level::Crypt));
        let request = call.read_all(1 << 20).unwrap();
        let (opcode, arguments) = request.split_at(4);
        let opcode = u32::from_be_bytes(opcode.try_into().unwrap());
        self.log.lock().push(opcode);
        let reply = (self.answer)(opcode, arguments)?;
        call.write(reply).map_err(|_| rxgen::RXGEN_SS_MARSHAL)
    }
}

fn key(kvno: i32) -> Key {
    Key::new(kvno, ENCTYPE, &[kvno as u8; 32])
}

/// A database server with this key, and what it served.
fn database(at: SocketAddrV4, service: u16, kvno: i32, answer: Answer) -> (Endpoint, Arc<Mutex<Vec<u32>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let keys = Arc::new(Keys::fixed(vec![key(kvno)]));
    let classes: Vec<Arc<dyn Class>> = vec![Arc::new(Server::new(keys, Level::Crypt))];
    let services: Vec<(u16, Arc<dyn Service>)> =
        vec![(service, Arc::new(Database { answer, log: Arc::clone(&log) }))];
    let options = rx::Options { services, classes, ..rx::Options::default() };
    (Endpoint::bind(at, options).unwrap(), log)
}

fn databases(service: u16, keys: Keys, addresses: &[SocketAddrV4]) -> Databases {
    // Endpoints that are bound in the same second number their connections alike. So there is one.
    static ENDPOINT: OnceLock<Arc<Endpoint>> = OnceLock::new();
    let endpoint = ENDPOINT.get_or_init(|| Arc::new(Endpoint::bind(LOCAL, rx::Options::default()).unwrap()));
    let endpoint = Arc::clone(endpoint);
    let mut databases = Databases::new("test", endpoint, service, Arc::new(keys), Level::Crypt, addresses);
    databases.set_times(Duration::from_secs(10), Duration::from_secs(5));
    databases
}
