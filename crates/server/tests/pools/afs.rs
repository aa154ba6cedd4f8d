//! The AFS server of a daemon that starts, with the pools that its cache file lists.

use ::afs::calls::fileserver::Call;
use ::afs::errors::volume::VNOVOL;
use ::afs::types::{Fid, Unique, Vnode, VolumeId};
use api::{AfsEnable, Caller, ExportRequest, ImportRequest, ScanRequest, Service};
use ondisk::{Nvlist, Value};
use rx::security::Null;
use rx::{Endpoint, Error};
use server::daemon::DaemonService;
use server::service::LocalService;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::Duration;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const TIME: Duration = Duration::from_secs(30);
/// The server is starting.
const RESTARTING: i32 = -100;

/// The configuration of a cell whose database server does not exist.
fn configure(config: &Path) {
    let words = [1u32, 16, 2, 1, 18, 32];
    let key: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).chain([9; 32]).collect();
    std::fs::create_dir(config).unwrap();
    std::fs::write(config.join("ThisCell"), "made.test\n").unwrap();
    std::fs::write(config.join("CellServDB"), ">made.test #made up\n127.0.0.9 #db1\n").unwrap();
    std::fs::write(config.join("KeyFileExt"), key).unwrap();
}

/// Makes a pool in a folder of its own. Returns its GUID.
fn make(dir: &Path, name: &str) -> u64 {
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    let image = folder.join("d0");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let pool = poolhouse::Pool::create(name, &[&[&image]]).unwrap();
    pool.set(name, "mountpoint", "none").unwrap();
    let guid = pool.spa().guid().0;
    pool.export().unwrap();
    guid
}

fn import(service: &LocalService, dir: &Path, (name, guid): (&str, u64)) {
    let scan = ScanRequest { paths: vec![dir.join(name)], ..ScanRequest::default() };
    let request = ImportRequest { guid, scan, force: true, ..ImportRequest::default() };
    service.import(&Caller::this_process(), &request).unwrap();
}

/// The code that a client gets for a volume that is not here.
fn code_of_missing(port: u16) -> i32 {
    let endpoint = Endpoint::bind(SocketAddrV4::new(HERE, 0), rx::Options::default()).unwrap();
    let connection = endpoint.connect(SocketAddrV4::new(HERE, port), 1, &Null).unwrap();
    let fid = Fid { volume: VolumeId(536_870_912), vnode: Vnode(1), unique: Unique(1) };
    match connection.call(Call::FetchStatus { fid }.request(), TIME) {
        Err(Error::Aborted { code }) => code,
        other => panic!("{other:?}"),
    }
}

/// Goal: a daemon that starts has no volume of the pools that are not imported yet. Until all pools
/// of its cache file are, clients are not told that such a volume is not here.
#[test]
fn pools_of_the_cache_file_are_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    configure(&dir.join("cell"));
    let pools = ["one", "two"].map(|name| (name, make(dir, name)));
    let ports = [(); 2].map(|()| UdpSocket::bind((HERE, 0)).unwrap());
    let [port, volume_port] = ports.map(|socket| socket.local_addr().unwrap().port());
    let service = LocalService::new();
    import(&service, dir, pools[0]);
    let enable = AfsEnable {
        dataset: "one/vicepa".to_owned(),
        partition: Some("a".to_owned()),
        create: true,
        config: Some(dir.join("cell").display().to_string()),
        address: Some(HERE.to_string()),
        port: Some(port),
        volume_port: Some(volume_port),
    };
    service.afs_enable(&Caller::this_process(), &enable).unwrap();
    // No cache file: nothing more is to come.
    assert_eq!(code_of_missing(port), VNOVOL);
    let export = ExportRequest { name: "one".to_owned(), ..ExportRequest::default() };
    service.export(&Caller::this_process(), &export).unwrap();
    let mut list = Nvlist::new();
    for (name, guid) in pools {
        let mut pool = Nvlist::new();
        pool.set("pool_guid", Value::Uint64(guid));
        list.set(name, Value::List(pool));
    }
    let cache = dir.join("zpool.cache");
    std::fs::write(&cache, list.encode_xdr()).unwrap();
    let service = LocalService::new();
    service.remember_in(&cache);
    import(&service, dir, pools[0]);
    assert_eq!(code_of_missing(port), RESTARTING);
    import(&service, dir, pools[1]);
    assert_eq!(code_of_missing(port), VNOVOL);
    assert!(service.close(TIME).is_empty());
}
