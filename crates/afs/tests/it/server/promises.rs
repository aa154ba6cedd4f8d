//! Promises to clients, kept.

use std::time::{Duration, Instant};

use afs::calls::fileserver::Call;
use afs::calls::volserver::attach;
use afs::types::{CallBack, VolumeId};

use super::{Client, Rig, VOLUME, root};

const CLONE: VolumeId = VolumeId(VOLUME.0 + 2);

fn broken(client: &Client) -> Vec<String> {
    client.told.broken.lock().drain(..).map(|fid| fid.to_string()).collect()
}

/// Goal: the other holders hear of a change before its caller gets the reply, and not to the
/// caller.
#[test]
fn changes_are_told() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (one, two) = (rig.client(None), rig.client(None));
    let top = root(VOLUME);
    let file = one.create(top, "f").unwrap().fid;
    let promise = two.status(top).unwrap().callback;
    assert_eq!((promise.kind, promise.version), (CallBack::SHARED, 1));
    two.status(file).unwrap();
    one.create(top, "g").unwrap();
    assert_eq!(broken(&two), [top.to_string()]);
    assert!(broken(&one).is_empty());
    // Without a new promise, no more message comes.
    one.create(top, "h").unwrap();
    assert!(broken(&two).is_empty());
    one.store(file, 0, b"data", 4).unwrap();
    assert_eq!(broken(&two), [file.to_string()]);
    two.fetch(file, 0, 4).unwrap();
    two.status(top).unwrap();
    one.remove(top, "f").unwrap();
    let mut told = broken(&two);
    told.sort();
    assert_eq!(told, [top.to_string(), file.to_string()]);
    two.status(top).unwrap();
    two.call(Call::GiveUpAllCallBacks {}).unwrap();
    one.create(top, "i").unwrap();
    assert!(broken(&two).is_empty());
    assert_eq!(*two.told.resets.lock(), 1);
}

/// Goal: a client that vanished delays a change once and shortly.
#[test]
fn a_vanished_client_delays_little() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (one, two) = (rig.client(None), rig.client(None));
    let top = root(VOLUME);
    two.status(top).unwrap();
    drop(two);
    let begun = Instant::now();
    one.create(top, "f").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Goal: holders of a clone learn with one message that it was replaced, and get its new date.
#[test]
fn clones_are_replaced() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let client = rig.client(None);
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    let operator = rig.operator();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 2, "v.backup", CLONE).unwrap();
    operator.end(transaction).unwrap();
    let of_clone = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.complete(of_clone);
    broken(&client);
    let in_clone = afs::types::Fid { volume: CLONE, ..file };
    assert_eq!(client.fetch(in_clone, 0, 10).unwrap().0, b"");
    client.store(file, 0, b"new", 3).unwrap();
    assert_eq!(client.fetch(in_clone, 0, 10).unwrap().0, b"");
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    let clone = afs::calls::volserver::Call::ReClone { transaction, clone: CLONE };
    operator.call(clone).unwrap();
    operator.end(transaction).unwrap();
    assert!(broken(&client).contains(&format!("{CLONE}.0.0")));
    assert_eq!(client.fetch(in_clone, 0, 10).unwrap().0, b"new");
}

/// Goal: an idle client, which only probes, hears of a restart: it is reset before it gets the
/// reply. It hears once.
#[test]
fn probes_reset_clients() {
    for probe in [Call::GetTime {}, Call::GetCapabilities {}] {
        let rig = Rig::new();
        let client = rig.client(None);
        let resets = || *client.told.resets.lock();
        assert_eq!(resets(), 0);
        client.call(probe.clone()).unwrap();
        assert_eq!(resets(), 1);
        client.call(probe).unwrap();
        assert_eq!(resets(), 1);
    }
}
