//! A client of a cell's database servers, by the cell's own key.
//!
//! OpenAFS's `ptserver` and `vlserver` judge the crate's client by it.
//!
//! Usage: `cell_client KEYFILEEXT DATABASE-HOST OWN-HOST`

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use rx::security::rxkad::{Client, Keys, SUPERUSER};
use rx::security::{Class, Level, Null};
use rx::xdr::{Reader, Writer};
use rx::{Connection, Endpoint, Options, call_all};

const PR_PORT: u16 = 7_002;
const PR_SERVICE: u16 = 73;
const PR_NAME_TO_ID: u32 = 504;
const PR_NAME: usize = 64;
const VL_PORT: u16 = 7_003;
const VL_SERVICE: u16 = 52;
const VL_PROBE: u32 = 514;
const VL_REGISTER_ADDRS: u32 = 532;
const TIME: Duration = Duration::from_secs(20);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The number of a user or group.
fn id_of(connection: &Connection, name: &str) -> Outcome<i32> {
    let mut request = Writer::new();
    request.u32(PR_NAME_TO_ID).u32(1);
    // Each character of a name is a word.
    for at in 0..PR_NAME {
        request.u32(u32::from(name.as_bytes().get(at).copied().unwrap_or(0)));
    }
    let reply = connection.call(request.finish(), TIME)?;
    let mut reader = Reader::new(&reply);
    reader.array(1, 4)?;
    let id = reader.i32()?;
    reader.finish()?;
    Ok(id)
}

/// Tells the cell that a file server with this number has this address.
fn register(connection: &Connection, uuid: u32, address: Ipv4Addr) -> Outcome<()> {
    let mut request = Writer::new();
    request.u32(VL_REGISTER_ADDRS).u32(uuid);
    for word in 0..10 {
        request.u32(word);
    }
    request.u32(0).u32(1).u32(address.to_bits());
    connection.call(request.finish(), TIME)?;
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, database, own] = &args[..] else {
        return Err("usage: cell_client KEYFILEEXT DATABASE-HOST OWN-HOST".into());
    };
    let (database, own): (Ipv4Addr, Ipv4Addr) = (database.parse()?, own.parse()?);
    let keys = Keys::of_file(file)?;
    let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Options::default())?;
    let (pr, vl) = (SocketAddrV4::new(database, PR_PORT), SocketAddrV4::new(database, VL_PORT));
    let mut out = std::io::stdout().lock();
    for level in [Level::Clear, Level::Auth, Level::Crypt] {
        let class = Client::local(&keys, SUPERUSER, level)?;
        let connection = endpoint.connect(pr, PR_SERVICE, &class)?;
        for name in ["system:administrators", "admin", "not-in-this-cell"] {
            writeln!(out, "{level:?} {name} {}", id_of(&connection, name)?)?;
        }
        let connection = endpoint.connect(vl, VL_SERVICE, &class)?;
        register(&connection, 0x0a00_0000 + level as u32, own)?;
        writeln!(out, "{level:?} registered")?;
    }
    let mut probe = Writer::new();
    probe.u32(VL_PROBE);
    let connect = |to| endpoint.connect(to, VL_SERVICE, &Null as &dyn Class);
    // Port 9 has no server.
    let all = [connect(vl)?, connect(SocketAddrV4::new(database, 9))?, connect(vl)?];
    let answers = call_all(&all, &probe.finish(), Duration::from_secs(1));
    writeln!(out, "probes {:?}", answers.iter().map(Result::is_ok).collect::<Vec<_>>())?;
    let class = Client::local(&keys, "someone", Level::Crypt)?;
    let refused = register(&endpoint.connect(vl, VL_SERVICE, &class)?, 1, own);
    writeln!(
        out,
        "someone registers: {}",
        refused.err().map_or("allowed".into(), |error| error.to_string())
    )?;
    Ok(())
}
