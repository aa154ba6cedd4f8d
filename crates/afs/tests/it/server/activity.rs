//! What the server counts, after calls that are known.

use std::collections::BTreeMap;

use afs::calls::fileserver::Call;
use afs::server::activity::calls::Calls;
use afs::server::activity::clients::{Done, Kind};
use afs::server::activity::volumes::{Order, Used};
use afs::types::{Fid, VolumeId};
use afs::wire::List;

use super::{Client, Rig, VOLUME, name, root};

const OTHER: VolumeId = VolumeId(VOLUME.0 + 10);

impl Rig {
    /// Volumes with counters, and the sum of the others.
    fn used(&self) -> (BTreeMap<VolumeId, Used>, Used) {
        let (all, past, _) = self.server().core().table.usage(Order::Most, usize::MAX);
        let mut others = Used::default();
        past.into_values().for_each(|used| others += used);
        (all.into_iter().map(|of| (of.id, of.used)).collect(), others)
    }

    /// What the client at this endpoint did.
    fn done(&self, client: &Client) -> Done {
        let port = client.endpoint.address().port();
        let (all, ..) = self.server().core().activity.clients.snapshot();
        all.into_iter().find(|(known, _)| known.peer.port() == port).map(|(_, done)| done).unwrap()
    }
}

/// How often each call was made, and how often it failed.
fn counts(calls: &Calls) -> BTreeMap<&'static str, (u64, u64)> {
    let errors = |errors: &[(i32, u64)]| errors.iter().map(|(_, count)| count).sum();
    let all = calls.snapshot().into_iter();
    all.map(|one| (one.name, (one.latency.count(), errors(&one.errors)))).collect()
}

/// Goal: after a known mix of calls, the counters of calls, clients and volumes have exactly these,
/// failed ones too.
#[test]
fn a_known_mix() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "w");
    let before = rig.used().0;
    let files = counts(&rig.server().core().activity.files);
    let (client, top) = (rig.client(None), root(VOLUME));
    let file = client.create(top, "f").unwrap().fid;
    client.create(top, "g").unwrap();
    client.create(top, "f").unwrap_err();
    client.make_dir(top, "d").unwrap();
    client.store(file, 0, &[7; 3000], 3000).unwrap();
    client.store(file, 3000, &[7; 2000], 5000).unwrap();
    client.fetch(file, 0, 4000).unwrap();
    // Past the end there are 1,000 bytes.
    client.fetch(file, 4000, 4000).unwrap();
    client.remove(top, "g").unwrap();
    client.remove(top, "nope").unwrap_err();
    client.call(Call::RemoveDir { directory: top, name: name("d") }).unwrap();
    (0..4).for_each(|_| _ = client.status(root(OTHER)).unwrap());
    // A bulk call of both volumes: it counts once for each.
    let fids = || List::new(vec![top, file, root(OTHER)]).unwrap();
    client.call(Call::InlineBulkStatus { fids: fids() }).unwrap();
    client.call(Call::InlineBulkStatus { fids: fids() }).unwrap();
    client.call(Call::BulkStatus { fids: fids() }).unwrap();
    client.call(Call::GetTime {}).unwrap();
    let (used, others) = rig.used();
    let added = |id: VolumeId| {
        let was = before[&id];
        let now = used[&id];
        (now.calls - was.calls, now.read - was.read, now.written - was.written)
    };
    assert_eq!(added(VOLUME), (14, 5_000, 5_000));
    assert_eq!(added(OTHER), (7, 0, 0));
    assert!(others.is_nothing());
    let mut done = Done { errors: 2, read: 5_000, written: 5_000, ..Done::default() };
    for (kind, calls) in [
        (Kind::MakeFile, 3),
        (Kind::MakeDir, 1),
        (Kind::StoreData, 2),
        (Kind::Fetch, 2),
        (Kind::RemoveFile, 2),
        (Kind::RemoveDir, 1),
        (Kind::Status, 7),
        (Kind::Other, 1),
    ] {
        done.kinds[kind as usize] = calls;
    }
    let found = rig.done(&client);
    assert!(found.ns > 0, "the calls took time");
    assert_eq!(Done { ns: 0, ..found }, done);
    let mut expected = files;
    for (name, count, failed) in [
        ("CreateFile", 3, 1),
        ("MakeDir", 1, 0),
        ("StoreData64", 2, 0),
        ("FetchData64", 2, 0),
        ("RemoveFile", 2, 1),
        ("RemoveDir", 1, 0),
        ("FetchStatus", 4, 0),
        ("InlineBulkStatus", 2, 0),
        ("BulkStatus", 1, 0),
        ("GetTime", 1, 0),
    ] {
        let known = expected.entry(name).or_default();
        *known = (known.0 + count, known.1 + failed);
    }
    assert_eq!(counts(&rig.server().core().activity.files), expected);
    assert!(counts(&rig.server().core().activity.callbacks).contains_key("TellMeAboutYourself"));
}

/// Goal: what clients did with a volume stays in the totals when the volume comes to rest, and when
/// it is removed. A volume that comes into use again counts from zero, and each coming into use is
/// counted.
#[test]
fn totals_outlive_volumes() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "w");
    let client = rig.client(None);
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(file, 0, &[1; 100], 100).unwrap();
    client.status(root(OTHER)).unwrap();
    let give_up = |client: &Client| _ = client.call(Call::GiveUpAllCallBacks {}).unwrap();
    let rest = || rig.server().core().table.rest(0, usize::MAX);
    let total = || {
        let (used, mut sum) = rig.used();
        used.into_values().for_each(|used| sum += used);
        sum
    };
    let before = total();
    let partition = rig.server().core().attached().next().unwrap().1;
    let (attached, opened) = (partition.attached.get(), partition.opened.snapshot().count());
    give_up(&client);
    rest();
    assert!(rig.used().0.is_empty());
    assert_eq!((total(), partition.rested.get()), (before, 2));
    assert_eq!(partition.closed.get(), opened);
    client.status(Fid { volume: VOLUME, ..file }).unwrap();
    assert_eq!(rig.used().0[&VOLUME].calls, 1);
    assert_eq!(total().calls, before.calls + 1);
    assert_eq!((partition.attached.get(), partition.opened.snapshot().count()), (attached + 1, opened + 1));
    let operator = rig.operator();
    let call = afs::calls::volserver::Call::NukeVolume { partition: 0, volume: VOLUME };
    operator.call(call).unwrap();
    assert_eq!((rig.used().0.len(), total().calls, total().written), (0, before.calls + 1, 100));
}

/// Goal: a list of volumes is bounded, in its order, and the sum of the others completes it.
#[test]
fn bounded_list_of_volumes() {
    let rig = Rig::new();
    let ids: Vec<VolumeId> = (0..6).map(|n| VolumeId(VOLUME.0 + 10 * n)).collect();
    ids.iter().for_each(|id| rig.volume(*id, &id.to_string()));
    let client = rig.client(None);
    for (n, id) in ids.iter().enumerate() {
        let file = client.create(root(*id), "f").unwrap().fid;
        client.store(file, 0, &vec![1; 10 * (n + 1)], 10 * (n as u64 + 1)).unwrap();
    }
    let (all, past, next) = rig.server().core().table.usage(Order::Most, 2);
    let shown: Vec<_> = all.iter().map(|of| (of.id, of.used.written)).collect();
    assert_eq!(shown, [(ids[5], 60), (ids[4], 50)]);
    assert!(all.iter().all(|of| of.number < next));
    assert_eq!(past.into_values().map(|used| used.written).sum::<u64>(), 10 + 20 + 30 + 40);
}

/// Goal: promises are listed by volume and client, the most first. A list that is cut says how many
/// promises it lacks. Promises that a client gave up are not in it.
#[test]
fn held_promises() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "w");
    let (one, two) = (rig.client(None), rig.client(None));
    let files: Vec<Fid> = (0..5).map(|n| one.create(root(VOLUME), &n.to_string()).unwrap().fid).collect();
    one.call(Call::GiveUpAllCallBacks {}).unwrap();
    files.iter().for_each(|file| _ = one.status(*file).unwrap());
    two.status(files[0]).unwrap();
    two.status(root(OTHER)).unwrap();
    two.status(root(VOLUME)).unwrap();
    let port = |client: &Client| client.endpoint.address().port();
    let held = |volume, hosts: Option<&_>, most| {
        let (all, others) = rig.server().core().callbacks.held(volume, hosts, most);
        let row = |held: &afs::server::callbacks::Held| {
            (held.host.address().unwrap().port(), held.volume, held.files, held.whole)
        };
        (all.iter().map(row).collect::<Vec<_>>(), others)
    };
    let rows =
        [(port(&one), VOLUME, 5, false), (port(&two), VOLUME, 2, false), (port(&two), OTHER, 1, false)];
    assert_eq!(held(None, None, 10), (rows.to_vec(), 0));
    assert_eq!(held(None, None, 1), (rows[..1].to_vec(), 3));
    assert_eq!(held(None, None, 2), (rows[..2].to_vec(), 1));
    assert_eq!(held(Some(OTHER), None, 10), (rows[2..].to_vec(), 0));
    let hosts = rig.server().core().hosts.all();
    let second = hosts.iter().find(|host| host.address().unwrap().port() == port(&two)).unwrap();
    assert_eq!(held(None, Some(&[second.number()].into()), 10), (rows[1..].to_vec(), 0));
    one.call(Call::GiveUpAllCallBacks {}).unwrap();
    assert_eq!(held(None, None, 10), (rows[1..].to_vec(), 0));
}
