//! Each request is checked for its own caller, whatever else its thread does meanwhile.

use crate::service::*;
use api::{HistoryKind, Layout, Peer, Vdev};
use observe::lock::Mutex;

/// What happens in the middle of the next request that reads the host's identity.
type Midway = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A service with the pool `tank`, whose requests are interrupted by `midway`.
fn service(midway: &Midway, image: &std::path::Path) -> Arc<LocalService> {
    let midway = Arc::clone(midway);
    let host = move || {
        let work = midway.lock().take();
        work.into_iter().for_each(|work| work());
        Host { hostid: 1, hostname: "h".to_owned() }
    };
    std::fs::File::create(image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    let disk = Vdev { kind: "file".into(), path: Some(image.display().to_string()), ..Vdev::default() };
    let layout = Layout { tops: vec![disk], ..Layout::default() };
    let root_props = vec![("mountpoint".to_owned(), "none".to_owned())];
    let request = CreatePool { name: "tank".into(), layout, root_props, ..CreatePool::default() };
    let service = Arc::new(LocalService::asking(Box::new(host), Box::new(SystemClock)));
    service.create_pool(&Caller::this_process(), &request).expect("a pool");
    service
}

/// The user `uid`, at the other end of a connection to this process as a daemon.
fn caller(uid: u32) -> Caller {
    Caller::of_connection(Peer { uid, gid: uid, pid: None }, Peer::own().uid, Budget::of(1 << 20))
}

/// Goal: one user's request may be answered in the middle of another's, on the same thread. Each is
/// checked for its own user: what is withheld, and the name in the history.
#[test]
fn callers_on_one_thread() {
    let dir = tempfile::tempdir().expect("a folder");
    let midway = Midway::default();
    let service = service(&midway, &dir.path().join("d0.img"));
    let (owner, stranger) = (Peer::own().uid, Peer::own().uid + 7);
    for (outer, inner) in [(owner, stranger), (stranger, owner)] {
        let again = Arc::clone(&service);
        *midway.lock() = Some(Box::new(move || {
            let query = PoolQuery { errors: true, ..PoolQuery::default() };
            let told = again.pool(&caller(inner), "tank", &query).expect("it is there");
            assert_eq!(told.errors_withheld, inner == stranger);
        }));
        let line = PoolChange::Log { command: format!("zfs by {outer}") };
        service.change_pool(&caller(outer), "tank", &line).expect("it is written");
        assert!(midway.lock().is_none(), "the other request came in between");
    }
    let page = service.history(&caller(owner), "tank", &0).expect("a history");
    let by = |uid: u32| {
        let line = HistoryKind::Command(format!("zfs by {uid}"));
        page.records.iter().find(|record| record.what == line).and_then(|record| record.who)
    };
    assert_eq!([by(owner), by(stranger)], [owner, stranger].map(|uid| Some(u64::from(uid))));
    let export = ExportRequest { name: "tank".into(), ..ExportRequest::default() };
    service.export(&caller(owner), &export).expect("it goes");
}

/// Goal: what is the owners' alone is refused to others where it is done, not only at the socket.
#[test]
fn strangers_change_nothing() {
    let service = LocalService::new();
    let stranger = caller(Peer::own().uid + 7);
    let volume = || "tank/vol".to_owned();
    let offer = OfferRequest { datasets: vec![volume()], ..OfferRequest::default() };
    let attach = AttachRequest { dataset: volume(), ..AttachRequest::default() };
    let detach = DetachRequest { dataset: volume(), ..DetachRequest::default() };
    let results = [
        service.mount(&stranger, &MountRequest::default()).map(drop),
        service.offer(&stranger, &offer).map(drop),
        service.withdraw(&stranger, &WithdrawRequest::default()),
        service.attach(&stranger, &attach).map(drop),
        service.detach(&stranger, &detach),
        service.set_tunable(&stranger, "zfs_txg_timeout", &5),
        service.inject(&stranger, &InjectRequest::List).map(drop),
    ];
    for result in results {
        assert_eq!(result.map_err(|error| error.reason), Err(Reason::Permission));
    }
}
