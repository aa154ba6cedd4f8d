//! Calls that no other test makes, with the codes that they end with.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afs::calls::fileserver::{Call, Reply};
use afs::calls::volserver::{self, attach};
use afs::errors::{errno, volser, volume as code};
use afs::types::{Date, Destination, Fid, Replica, RestoreCookie, StoreStatus, VolumeId};
use afs::wire::{Chars, List, Wire};

use super::{Client, Operator, Rig, TIME, VOLUME, name, root, unified};

const OTHER: VolumeId = VolumeId(VOLUME.0 + 10);
const RXGEN_OPCODE: i32 = -455;
const RESTARTING: i32 = -100;

/// Goal: the calls of old clients do the same as the new ones.
#[test]
fn calls_of_old_clients() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, top) = (rig.client(None), root(VOLUME));
    let file = client.create(top, "f").unwrap().fid;
    let status = StoreStatus::default();
    let store = Call::StoreData { fid: file, status, position: 2, length: 3, file_length: 5 };
    client.raw(&store, b"abc").unwrap();
    let reply = client.raw(&Call::FetchData { fid: file, position: 1, length: 100 }, &[]).unwrap();
    let (length, rest) = reply.split_first_chunk().unwrap();
    let (data, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
    assert_eq!(data, b"\0abc");
    let after = afs::calls::fileserver::StatusReply::from_bytes(rest).unwrap().status;
    assert_eq!((after.length, after.data_version.0), (5, 1));
    let acl = afs::calls::fileserver::AclBytes::new(b"1\n0\nsystem:anyuser\t9\n\0".to_vec()).unwrap();
    rig.client(Some("admin")).call(Call::OldStoreAcl { fid: top, acl }).unwrap();
    let Reply::FetchAcl(list) = client.call(Call::FetchAcl { fid: top }).unwrap() else { panic!() };
    assert!(String::from_utf8_lossy(list.acl.as_bytes()).contains("system:anyuser\t9\n"));
}

/// Goal: while partitions are expected, a volume or partition that is not here is one to wait for:
/// no client looks elsewhere, and no administrator deletes it from the database. That ends when no
/// more are expected, and by itself.
#[test]
fn what_may_still_come_is_waited_for() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, operator) = (rig.client(None), rig.operator());
    let partition_info = || {
        let name = afs::wire::Text::new("/vicepb").unwrap();
        operator.call(volserver::Call::PartitionInfo64 { name }).err()
    };
    let begin_there = || {
        let call = volserver::Call::TransCreate { volume: OTHER, partition: 1, flags: attach::BUSY };
        operator.call(call).err()
    };
    let codes = || {
        // What is here is served all the time.
        client.status(root(VOLUME)).unwrap();
        let file = client.status(root(OTHER)).err();
        let volumes = [operator.listed(OTHER).err(), operator.begin(OTHER, attach::BUSY).err()];
        ([file, volumes[1]], [volumes[0], begin_there(), partition_info()])
    };
    let none = Some(volser::VOLSERILLEGAL_PARTITION);
    let settled = ([Some(code::VNOVOL); 2], [Some(errno::ENODEV), none, none]);
    let busy = ([Some(RESTARTING); 2], [Some(RESTARTING); 3]);
    assert_eq!(codes(), settled);
    rig.server().expect_more(Instant::now() + Duration::from_secs(3600));
    assert_eq!(codes(), busy);
    rig.server().expect_no_more();
    assert_eq!(codes(), settled);
    rig.server().expect_more(Instant::now());
    assert_eq!(codes(), settled);
}

/// Goal: calls about the server itself are answered, and those that OpenAFS refuses are refused.
#[test]
fn calls_about_the_server() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let client = rig.client(None);
    let Reply::GetTime(time) = client.call(Call::GetTime {}).unwrap() else { panic!() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32;
    assert!(now - time.seconds.0 < 60 && time.microseconds < 1_000_000);
    let Reply::XStatsVersion(version) = client.call(Call::XStatsVersion {}).unwrap() else { panic!() };
    let call = Call::GetXStats { client_version: version, collection: 3 };
    let Reply::GetXStats(statistics) = client.call(call).unwrap() else { panic!() };
    assert!(!statistics.data.is_empty() && now - statistics.time.0 < 60);
    let call = Call::GetXStats { client_version: version, collection: 99 };
    assert!(
        client.call(call).is_ok_and(|reply| matches!(reply, Reply::GetXStats(all) if all.data.is_empty()))
    );
    let lookup = Call::Lookup { directory: root(VOLUME), name: name("f") };
    assert_eq!(client.call(lookup).err(), Some(unified(errno::EINVAL)));
    assert_eq!(client.call(Call::GetRootVolume {}).err(), Some(RXGEN_OPCODE));
    let flush = || Call::FlushCps {
        users: List::new(vec![super::ALICE]).unwrap(),
        addresses: List::default(),
        spare: 0,
    };
    assert_eq!(client.call(flush()).err(), Some(unified(errno::EPERM)));
    assert!(rig.with_key().call(flush()).is_ok());
}

/// Goal: a promise that a client gave up is not broken any more; the others are.
#[test]
fn promises_that_are_given_up() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (one, two, top) = (rig.client(None), rig.client(None), root(VOLUME));
    let file = one.create(top, "f").unwrap().fid;
    let other = one.create(top, "g").unwrap().fid;
    two.status(file).unwrap();
    two.status(other).unwrap();
    let fids = List::new(vec![file]).unwrap();
    two.call(Call::GiveUpCallBacks { fids, callbacks: List::default() }).unwrap();
    one.store(file, 0, b"x", 1).unwrap();
    one.store(other, 0, b"x", 1).unwrap();
    assert_eq!(two.told.broken.lock().as_slice(), [other]);
}

/// Goal: when a volume is the trouble, a bulk call fails as a whole, so that a client asks again
/// about all of it.
#[test]
fn bulk_calls_and_volumes() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "other");
    let client = rig.client(None);
    let both = |fids: Vec<Fid>| {
        let (one, two) = (List::new(fids.clone()).unwrap(), List::new(fids).unwrap());
        let plain = client.call(Call::BulkStatus { fids: one }).err();
        [plain, client.call(Call::InlineBulkStatus { fids: two }).err()]
    };
    assert_eq!(both(vec![root(VOLUME), root(OTHER)]), [None; 2]);
    let absent = Fid { volume: VolumeId(VOLUME.0 + 99), ..root(VOLUME) };
    assert_eq!(both(vec![root(VOLUME), absent]), [Some(code::VNOVOL); 2]);
    let operator = rig.operator();
    let transaction = operator.begin(OTHER, attach::OFFLINE).unwrap();
    assert_eq!(both(vec![root(VOLUME), root(OTHER)]), [Some(code::VOFFLINE); 2]);
    operator.end(transaction).unwrap();
    assert_eq!(both(vec![root(VOLUME), root(OTHER)]), [None; 2]);
}

/// Goal: a rename that can't be done has the code of its cause, and changes nothing.
#[test]
fn renames_that_fail() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "other");
    let (client, top) = (rig.client(None), root(VOLUME));
    client.create(top, "file").unwrap();
    let dir = client.make_dir(top, "dir").unwrap().fid;
    let deep = client.make_dir(dir, "deep").unwrap().fid;
    client.make_dir(top, "empty").unwrap();
    let version = client.version(top);
    let rename = |from: Fid, old: &str, to: Fid, new: &str| {
        let (old_name, new_name) = (name(old), name(new));
        client.call(Call::Rename { old_directory: from, old_name, new_directory: to, new_name }).err()
    };
    for (found, expected) in [
        (rename(top, "none", top, "x"), errno::ENOENT),
        (rename(top, "file", top, "dir"), errno::EISDIR),
        (rename(top, "dir", top, "file"), errno::ENOTDIR),
        (rename(top, "empty", top, "dir"), errno::EEXIST),
        (rename(top, "dir", deep, "loop"), errno::EINVAL),
        (rename(top, "file", root(OTHER), "file"), errno::EXDEV),
    ] {
        assert_eq!(found, Some(unified(expected)), "{expected}");
    }
    assert_eq!(client.version(top), version);
    assert_eq!(rename(top, "empty", dir, "moved"), None);
}

/// Goal: the lists and questions of `vos` are answered by both kinds of calls.
#[test]
fn questions_of_vos() {
    use volserver::{Call, Reply};
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let operator = rig.operator();
    let ask = |call: Call| operator.call(call);
    let Reply::XListVolumes(all) = ask(Call::XListVolumes { partition: 0, flags: 1 }).unwrap() else {
        panic!()
    };
    let Reply::XListOneVolume(one) = ask(Call::XListOneVolume { partition: 0, volume: VOLUME }).unwrap()
    else {
        panic!()
    };
    assert_eq!((all.len(), all[0].id, all[0].name.as_bytes()), (1, VOLUME, &b"v"[..]));
    assert_eq!((one.len(), one[0].id, one[0].quota), (1, VOLUME, all[0].quota));
    let Reply::ListPartitions(ids) = ask(Call::ListPartitions {}).unwrap() else { panic!() };
    assert_eq!((ids[0], ids[1]), (0, -1));
    let text = |text: &str| afs::wire::Text::new(text).unwrap();
    let Reply::PartitionInfo(space) = ask(Call::PartitionInfo { name: text("/vicepa") }).unwrap() else {
        panic!()
    };
    assert!(space.free > 0 && space.total >= space.free);
    let none = ask(Call::PartitionInfo { name: text("/vicepb") });
    assert_eq!(none.err(), Some(volser::VOLSERILLEGAL_PARTITION));
    ask(Call::SignalRestore {
        name: volserver::Name::new("x").unwrap(),
        kind: 0,
        parent: VOLUME,
        clone: VOLUME,
    })
    .unwrap();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    let Reply::GetName(text) = ask(Call::GetName { transaction }).unwrap() else { panic!() };
    assert_eq!(text.as_bytes(), b"v");
    ask(Call::SetForwarding { transaction, new_site: 1 }).unwrap();
    operator.end(transaction).unwrap();
    assert_eq!(ask(Call::GetNthVolume { index: 0 }).err(), Some(volser::VOLSERNO_OP));
    let split = Call::SplitVolume { volume: VOLUME, new: OTHER, directory: 1, verbose: 0 };
    assert_eq!(ask(split).err(), Some(RXGEN_OPCODE));
    let long = operator.create(OTHER, &"n".repeat(32));
    assert_eq!(long.err(), Some(volser::VOLSERBADNAME));
}

/// Where a server takes dumps.
fn destination(rig: &Rig) -> Destination {
    let address = rig.server().volume_address().unwrap();
    Destination { host: address.ip().to_bits(), port: address.port().into(), security: 1 }
}

/// Begins a volume on a server, and restores it from the dump that `send` has another server send.
fn received(rig: &Rig, volume: VolumeId, send: impl FnOnce(i32, RestoreCookie)) -> Operator {
    let operator = rig.operator();
    let transaction = operator.create(volume, "copy").unwrap();
    let cookie = RestoreCookie { name: Chars::new(b"copy"), parent: volume, ..RestoreCookie::default() };
    send(transaction, cookie);
    operator.complete(transaction);
    operator
}

/// Goal: a volume goes to another server, and to several at once, of which one may fail. DumpV2 is
/// the same dump.
#[test]
fn dumps_between_servers() {
    use volserver::{Call, Reply};
    let (rig, there) = (Rig::new(), Rig::new());
    rig.volume(VOLUME, "v");
    let client = rig.client(None);
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(file, 0, b"contents", 8).unwrap();
    let (operator, since) = (rig.operator(), Date(0));
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    let dump = operator.raw(&Call::Dump { transaction, since }, &[]).unwrap();
    let again = operator.raw(&Call::DumpV2 { transaction, since, flags: 0 }, &[]).unwrap();
    // But for the date of the dump, in its header.
    assert_eq!((again.len(), again.len() > 100), (dump.len(), true));
    assert_eq!(again[64..], dump[64..]);
    received(&there, OTHER, |to_transaction, cookie| {
        let to = destination(&there);
        operator.call(Call::Forward { transaction, since, to, to_transaction, cookie }).unwrap();
    });
    let third = VolumeId(OTHER.0 + 1);
    received(&there, third, |to_transaction, cookie| {
        let replica = |transaction| Replica { transaction, server: destination(&there) };
        let to = List::new(vec![replica(to_transaction), replica(9_999)]).unwrap();
        let call = Call::ForwardMultiple { transaction, since, to, spare: 0, cookie };
        let Reply::ForwardMultiple(codes) = operator.call(call).unwrap() else { panic!() };
        assert_eq!((codes[0], codes[1]), (0, errno::ENOENT));
    });
    operator.end(transaction).unwrap();
    let reader = there.client(None);
    for volume in [OTHER, third] {
        assert_eq!(reader.fetch(Fid { volume, ..file }, 0, 99).unwrap().0, b"contents");
    }
}

/// Goal: a transaction that no call uses ends, and takes the volume that it did not complete with
/// it. Another volume is served again.
#[test]
fn transactions_time_out() {
    let mut rig = Rig::new();
    let image = rig.dir.path().join("d0");
    rig.stop();
    rig.open(image);
    rig.start_with(|options| options.transactions = Duration::from_millis(50));
    let (operator, client) = (rig.operator(), rig.client(None));
    rig.volume(VOLUME, "v");
    operator.begin(VOLUME, attach::OFFLINE).unwrap();
    operator.create(OTHER, "half").unwrap();
    let made = VolumeId(OTHER.0 + 10);
    let transaction = operator.create(made, "made").unwrap();
    operator.call(volserver::Call::GetName { transaction }).unwrap();
    let until = |done: &dyn Fn(&Client) -> bool| {
        let begun = Instant::now();
        while !done(&client) {
            assert!(begun.elapsed() < TIME, "it does not end");
            std::thread::yield_now();
        }
    };
    until(&|client| client.status(root(VOLUME)).is_ok());
    for volume in [OTHER, made] {
        until(&|client| client.status(root(volume)).err() == Some(code::VNOVOL));
        until(&|_| operator.begin(volume, attach::OFFLINE).err() == Some(code::VNOVOL));
    }
}
