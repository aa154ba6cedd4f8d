//! Volumes that travel between two servers as blocks.

mod ending;
mod former;
mod groups;
mod lost;
mod touched;
mod unchanged;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use afs::calls::volserver::{BLOCKS_VERSION, Call, Name, Reply, attach};
use afs::dump::{Event, Reader};
use afs::errors::{rxgen, volser};
use afs::partition::PartitionId;
use afs::server::header::Stored;
use afs::server::store::{Found, Head, Offline, OnDisk, Partition};
use afs::types::{Date, Destination, Fid, Replica, RestoreCookie, VolumeId};
use afs::wire::{Chars, List};
use poolhouse::dsl::Value;
use poolhouse::dsl::ops::bookmark::{CreateBookmarks, DestroyBookmarks};
use poolhouse::dsl::ops::hold::{HoldSnapshots, ReleaseSnapshots};
use poolhouse::stream;
use rx::security::{Level, Null, rxkad};
use rx::{Endpoint, Service};

use super::crash::datasets;
use super::files::quota;
use super::{Client, Operator, Rig, TIME, VOLUME, root};

/// The read-only volume: a clone at the source, and a volume of its own elsewhere.
const CLONE: VolumeId = VolumeId(VOLUME.0 + 1);
const READ_ONLY: i32 = 1;
const FILE: usize = 128 << 10;
/// Where a stream says what it builds on (`drr_fromguid`).
const FROM_GUID: usize = 48;

fn cookie() -> RestoreCookie {
    let name = Chars::new(b"v.readonly");
    RestoreCookie { name, kind: READ_ONLY, parent: VOLUME, ..RestoreCookie::default() }
}

/// Data that compress to a few percent.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let noise = testpools::noise(seed, length / 64 + 1);
    let line = |byte: &u8| [&[*byte][..], &[b'a'; 63]].concat();
    noise.iter().flat_map(line).take(length).collect()
}

/// A cell of two servers: the read-write volume with its clone, and another site of the clone.
struct Cell {
    here: Rig,
    there: Rig,
    client: Client,
    files: Vec<Fid>,
    data: fn(u64, usize) -> Vec<u8>,
}

fn is_there(rig: &Rig, name: &str) -> bool {
    rig.pool.as_ref().unwrap().dataset(name).is_ok()
}

impl Cell {
    fn new(files: usize) -> Self {
        Self::with(files, text)
    }

    /// Files with these data.
    fn with(files: usize, data: fn(u64, usize) -> Vec<u8>) -> Self {
        let (here, there) = (Rig::new(), Rig::new());
        here.volume(VOLUME, "v");
        here.client(Some("admin")).call(quota(0)).unwrap();
        let client = here.client(None);
        let directory = client.make_dir(root(VOLUME), "d").unwrap().fid;
        let make = |number: usize| {
            let parent = if number.is_multiple_of(2) { root(VOLUME) } else { directory };
            let file = client.create(parent, &format!("file {number}")).unwrap().fid;
            client.store(file, 0, &data(number as u64 + 1, FILE), FILE as u64).unwrap();
            file
        };
        let files = (0..files).map(make).collect();
        let cell = Self { here, there, client, files, data };
        let operator = cell.here.operator();
        let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
        operator.clone_volume(transaction, READ_ONLY, "v.readonly", CLONE).unwrap();
        operator.end(transaction).unwrap();
        operator.complete(operator.begin(CLONE, attach::OFFLINE).unwrap());
        cell
    }

    fn reclone(&self) {
        let operator = self.here.operator();
        let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
        operator.call(Call::ReClone { transaction, clone: CLONE }).unwrap();
        operator.end(transaction).unwrap();
    }

    fn change(&self, number: usize, seed: u64) {
        self.client.store(self.files[number], 0, &(self.data)(seed, FILE), FILE as u64).unwrap();
    }

    /// A transaction on the volume of a site, which is made if it is not there.
    fn begin(operator: &Operator) -> i32 {
        if let Ok(transaction) = operator.begin(CLONE, attach::OFFLINE) {
            return transaction;
        }
        let name = Name::new("v.readonly").unwrap();
        let call = Call::CreateVolume { partition: 0, name, kind: READ_ONLY, parent: VOLUME, volume: CLONE };
        let Reply::CreateVolume(made) = operator.call(call).unwrap() else { panic!() };
        made.transaction
    }

    /// Sends the clone to a server.
    fn send(&self, since: u32, server: Destination, transaction: i32) -> Result<(), i32> {
        let operator = self.here.operator();
        let own = operator.begin(CLONE, attach::BUSY).unwrap();
        let (since, cookie) = (Date(since), cookie());
        let call = Call::Forward { transaction: own, since, to: server, to_transaction: transaction, cookie };
        let done = operator.call(call).map(drop);
        operator.end(own).unwrap();
        done
    }

    /// Releases the clone to the other site.
    fn release(&self, since: u32) -> Result<(), i32> {
        let operator = self.there.operator();
        let transaction = Self::begin(&operator);
        let sent = self.send(since, destination(&self.there), transaction);
        match sent {
            Ok(()) => operator.complete(transaction),
            Err(_) => operator.end(transaction).unwrap(),
        }
        self.settle();
        sent
    }

    /// Waits until what was received has its header in place, and its marks are gone.
    fn settle(&self) {
        let partition = self.there.server().core().partition(PartitionId(0)).unwrap();
        partition.settle_all_received();
    }

    /// How many volumes were sent as blocks, with how many bytes, and how many dumps.
    fn traffic(&self) -> (u64, u64, u64) {
        let traffic = &self.here.server().core().traffic;
        let [sent, bytes, dumps] = [&traffic.sent, &traffic.sent_bytes, &traffic.dumps];
        (sent.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed), dumps.load(Ordering::Relaxed))
    }

    /// Both sites have the same vnodes.
    fn check_equal(&self) {
        let (ours, theirs) =
            (vnodes(&self.here.operator().dump(CLONE, 0)), vnodes(&self.there.operator().dump(CLONE, 0)));
        assert_eq!(ours.len(), theirs.len());
        ours.iter()
            .zip(&theirs)
            .for_each(|(ours, theirs)| assert!(ours == theirs, "{} {}", ours.0, theirs.0));
        let (ours, theirs) =
            (self.here.operator().listed(CLONE).unwrap(), self.there.operator().listed(CLONE).unwrap());
        let of = |about: &afs::types::VolumeInfo| {
            (about.creation_date, about.update_date, about.kind, about.parent, about.size, about.file_count)
        };
        assert_eq!(of(&ours), of(&theirs));
        assert_eq!(ours.name, theirs.name);
    }

    fn base(&self) -> u64 {
        let pool = self.there.pool.as_ref().unwrap();
        let snapshots = pool.dataset(&format!("cell/vicepa/{CLONE}")).unwrap().snapshots().unwrap();
        snapshots.last().unwrap().dsl().phys().guid
    }

    /// Receives a stream, and ends with an image of the pool before the header is in place. Returns
    /// the former header.
    fn crash(&mut self, stream: &[u8], change: impl Fn(&mut Stored)) -> (Stored, PathBuf) {
        let core = Arc::clone(self.there.server().core());
        let volume = core.table.get(CLONE).unwrap();
        let old = volume.peek().unwrap();
        let mut stored = old.clone();
        change(&mut stored);
        let partition = &volume.partition;
        let blocks = partition.receive_blocks(CLONE, stream, None).unwrap();
        let image = self.there.dir.path().join("crashed");
        volume
            .exclusively(|| {
                partition.exchange_blocks(CLONE, blocks, &stored)?;
                std::fs::copy(self.there.dir.path().join("d0"), &image).unwrap();
                partition.finish_received(CLONE)
            })
            .unwrap();
        drop((volume, core));
        self.there.stop();
        (old, image)
    }

    /// The header of the site's volume as one has it who only reads the pool, and volumes that are
    /// not complete.
    fn offline(&self) -> (Option<Stored>, Vec<VolumeId>) {
        let found = Offline::open(self.there.pool.as_ref().unwrap(), "cell/vicepa").unwrap();
        let header = |volume: &OnDisk| found.header(volume, &found.files(volume).unwrap()).unwrap();
        (found.volumes.first().map(header), found.unfinished.clone())
    }

    /// What RestoreBlocks takes behind its arguments: the header, and the stream.
    fn stream(&self) -> (u32, Vec<u8>) {
        let name = format!("cell/vicepa/{VOLUME}@{CLONE}");
        let snapshot = self.here.pool.as_ref().unwrap().dataset(&name).unwrap();
        let volume = self.here.server().core().table.get(CLONE).unwrap();
        let mut bytes = volume.peek().unwrap().encode().unwrap();
        let length = bytes.len() as u32;
        let forms = stream::Forms { compressed: true, ..stream::Forms::default() };
        let options = stream::Options { forms, ..stream::Options::default() };
        snapshot.send(&options, &mut bytes).unwrap();
        (length, bytes)
    }
}

/// Each vnode with its record, and its data.
fn vnodes(dump: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (mut reader, mut all) = (Reader::new(dump), Vec::<(String, Vec<u8>)>::new());
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => all.push((format!("{record:?}"), Vec::new())),
            Event::Data(data) => all.last_mut().unwrap().1.extend_from_slice(data),
            Event::End => return all,
            Event::Header(_) | Event::Volume(_) => {}
        }
    }
}

fn destination(rig: &Rig) -> Destination {
    let address = rig.server().volume_address().unwrap();
    Destination { host: address.ip().to_bits(), port: address.port().into(), security: 1 }
}

/// Goal: the first release sends all blocks, and the next ones those that changed. Both sites then
/// have the same vnodes, also after files and directories came and went. Only the last snapshot
/// stays, and few bookmarks.
#[test]
fn releases() {
    let cell = Cell::new(6);
    cell.release(0).unwrap();
    cell.check_equal();
    let (sent, _, dumps) = cell.traffic();
    assert_eq!((sent, dumps), (1, 0));
    let reader = cell.there.client(None);
    for round in 0..8 {
        cell.change(round % 3, 100 + round as u64);
        let file = cell.client.create(root(VOLUME), &format!("new {round}")).unwrap().fid;
        cell.client.store(file, 0, b"new", 3).unwrap();
        if round > 0 {
            cell.client.remove(root(VOLUME), &format!("new {}", round - 1)).unwrap();
        }
        cell.reclone();
        cell.release(1).unwrap();
        cell.check_equal();
        let there = Fid { volume: CLONE, ..cell.files[round % 3] };
        assert!(reader.fetch(there, 0, FILE as i64).unwrap().0 == text(100 + round as u64, FILE));
        assert_eq!(cell.traffic().0, 2 + round as u64);
        assert_eq!(datasets(&cell.there, '@').len(), 1);
    }
    assert_eq!(cell.traffic().2, 0);
    let compared = || cell.there.server().core().traffic.compared.load(Ordering::Relaxed);
    assert_eq!(compared(), 8);
    // Without the sums of the snapshot, all vnodes are checked.
    let base = datasets(&cell.there, '@').pop().unwrap();
    cell.there.pool.as_ref().unwrap().set(&base, "poolhouse:volume-sums", "1 0 1 1 1").unwrap();
    for more in 0..2 {
        cell.change(0, 200 + more);
        cell.reclone();
        cell.release(1).unwrap();
        cell.check_equal();
        assert_eq!(compared(), 8 + more);
    }
    let pool = cell.here.pool.as_ref().unwrap();
    let volume = pool.dataset(&format!("cell/vicepa/{VOLUME}")).unwrap();
    assert_eq!(volume.dsl().bookmarks().unwrap().len(), 4);
    assert!(!is_there(&cell.there, &format!("cell/vicepa/{CLONE}/%recv")));
    // Its end leaves nothing.
    let operator = cell.there.operator();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.call(Call::DeleteVolume { transaction }).unwrap();
    operator.end(transaction).unwrap();
    assert!(datasets(&cell.there, '@').is_empty() && !is_there(&cell.there, &format!("cell/vicepa/{CLONE}")));
    let operator = cell.here.operator();
    let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
    operator.call(Call::DeleteVolume { transaction }).unwrap();
    operator.end(transaction).unwrap();
}

/// Changes a file of a read-only volume: the volume becomes read-write in its header meanwhile.
fn write_at(rig: &Rig, file: Fid) {
    let operator = rig.operator();
    for kind in [0, READ_ONLY] {
        let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
        let (name, backup) = (Name::new("v.readonly").unwrap(), VolumeId(0));
        let call = Call::SetIdsTypes { transaction, name, kind, parent: VOLUME, clone: backup, backup };
        operator.call(call).unwrap();
        operator.complete(transaction);
        if kind == 0 {
            let writer = rig.client(None);
            writer.store(Fid { volume: CLONE, ..file }, 0, b"other", 5).unwrap();
            writer.create(root(CLONE), "another").unwrap();
        }
    }
}

/// Goal: a volume that moves travels as blocks, and keeps no snapshot where clients write. At its
/// new site, its clone takes the place of the read-only volume that came by releases.
#[test]
fn a_move() {
    let cell = Cell::new(3);
    cell.release(0).unwrap();
    let (own, operator) = (cell.here.operator(), cell.there.operator());
    let transaction = own.begin(CLONE, attach::BUSY).unwrap();
    let to_transaction = operator.create(VOLUME, "v").unwrap();
    let cookie = RestoreCookie { name: Chars::new(b"v"), parent: VOLUME, clone: CLONE, ..cookie() };
    let cookie = RestoreCookie { kind: 0, ..cookie };
    let (since, to) = (Date(0), destination(&cell.there));
    own.call(Call::Forward { transaction, since, to, to_transaction, cookie }).unwrap();
    own.end(transaction).unwrap();
    operator.complete(to_transaction);
    assert_eq!((cell.traffic().0, cell.traffic().2), (2, 0));
    assert_eq!(datasets(&cell.there, '@').len(), 1);
    let client = cell.there.client(None);
    let file = client.create(root(VOLUME), "after the move").unwrap().fid;
    client.store(file, 0, b"contents", 8).unwrap();
    client.store(cell.files[0], 0, &text(99, FILE), FILE as u64).unwrap();
    // A former unique is not given out again.
    assert!(cell.files.iter().all(|old| old.unique.0 < file.unique.0));
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.call(Call::ReClone { transaction, clone: CLONE }).unwrap();
    operator.end(transaction).unwrap();
    assert_eq!(datasets(&cell.there, '@'), [format!("cell/vicepa/{VOLUME}@{CLONE}")]);
    let there = Fid { volume: CLONE, ..cell.files[0] };
    assert!(client.fetch(there, 0, FILE as i64).unwrap().0 == text(99, FILE));
    assert_eq!(client.fetch(Fid { volume: CLONE, ..file }, 0, 9).unwrap().0, b"contents");
}

/// Goal: a release after the change of one file of 128 KiB, in a volume of 64 MiB, costs less than
/// 1 MiB on the wire.
#[test]
fn bytes_of_a_release() {
    let cell = Cell::new(512);
    cell.release(0).unwrap();
    let whole = cell.traffic().1;
    assert!(whole < (512 * FILE) as u64 / 4, "the data compress: {whole}");
    cell.change(7, 4711);
    cell.reclone();
    cell.release(1).unwrap();
    let (sent, bytes, dumps) = cell.traffic();
    println!("whole: {whole} bytes; increment: {} bytes", bytes - whole);
    assert_eq!((sent, dumps), (2, 0));
    assert!(bytes - whole < 1 << 20, "{}", bytes - whole);
    let reader = cell.there.client(None);
    for (number, file) in cell.files.iter().enumerate() {
        let (data, _) = reader.fetch(Fid { volume: CLONE, ..*file }, 0, FILE as i64).unwrap();
        let seed = if number == 7 { 4711 } else { number as u64 + 1 };
        assert!(data == text(seed, FILE), "file {number}");
    }
}

/// Goal: a site that lost what it received, or whose sender lost the bookmark, gets a dump, and has
/// the same vnodes. A full release goes as blocks again.
#[test]
fn without_a_common_snapshot() {
    // A whole stream would be larger than the dump.
    let cell = Cell::with(3, testpools::noise);
    cell.release(0).unwrap();
    let base = cell.base();
    for is_here in [true, false] {
        cell.change(0, 10 + u64::from(is_here));
        cell.reclone();
        let (sent, _, dumps) = cell.traffic();
        match is_here {
            true => {
                let bookmark = format!("cell/vicepa/{VOLUME}#sent-{:016x}", cell.base());
                let task = dsl_task(bookmark);
                let pool = cell.here.pool.as_ref().unwrap();
                pool.spa().writer().unwrap().run(task).unwrap();
                pool.destroy(&former::name()).unwrap();
            }
            false => {
                let snapshot = datasets(&cell.there, '@').pop().unwrap();
                cell.there.pool.as_ref().unwrap().destroy(&snapshot).unwrap();
            }
        }
        // The date is that of the last release.
        let since = cell.there.operator().listed(CLONE).unwrap().update_date.0;
        cell.release(since).unwrap();
        cell.check_equal();
        assert_eq!(cell.traffic(), (sent, cell.traffic().1, dumps + 1), "{is_here}");
        // After a dump, nothing common is left.
        assert!(datasets(&cell.there, '@').is_empty());
        cell.change(1, 20);
        cell.reclone();
        cell.release(0).unwrap();
        cell.check_equal();
        assert_eq!((cell.traffic().0, cell.traffic().2), (sent + 1, dumps + 1));
        assert_ne!(cell.base(), base);
    }
}

/// Goal: snapshots and bookmarks whose names only begin as those of the server stay, whatever
/// travels.
#[test]
fn names_of_an_administrator() {
    let cell = Cell::new(2);
    cell.release(0).unwrap();
    let (here, there) = (cell.here.pool.as_ref().unwrap(), cell.there.pool.as_ref().unwrap());
    let volume = format!("cell/vicepa/{VOLUME}");
    let mine = ["sent-weekly", "sent-0000000000000001", "sent-"];
    let snapshot = format!("{volume}@{CLONE}");
    let pairs = mine.iter().map(|name| (format!("{volume}#{name}"), snapshot.clone())).collect();
    here.run(CreateBookmarks { pairs }).unwrap();
    for round in 0..6 {
        cell.change(0, 10 + round);
        cell.reclone();
        cell.release(1).unwrap();
    }
    assert_eq!(cell.traffic().0, 7);
    let found = here.dataset(&volume).unwrap().dsl().bookmarks().unwrap();
    assert_eq!(found.len(), 4 + mine.len());
    assert!(mine.iter().all(|name| found.iter().any(|found| found.name == *name)));
    // The site has later snapshots, and gets dumps.
    let kept = ["release-base.2", "release-base.00"].map(|name| format!("cell/vicepa/{CLONE}@{name}"));
    kept.iter().for_each(|name| drop(there.snapshot(name).unwrap()));
    for since in [1, 0] {
        cell.change(0, 20 + u64::from(since));
        cell.reclone();
        cell.release(since).unwrap();
        cell.check_equal();
        assert_eq!(datasets(&cell.there, '@').len(), 2);
        assert!(kept.iter().all(|name| is_there(&cell.there, name)));
    }
    assert_eq!((cell.traffic().0, cell.traffic().2), (7, 2));
}

/// Goal: a received snapshot that is held or has a clone stays alone. All others go as ever, and
/// without a free name for the next one the site gets a dump.
#[test]
fn a_snapshot_in_use() {
    let cell = Cell::new(2);
    let pool = cell.there.pool.as_ref().unwrap();
    let names = ["0", "1"].map(|number| format!("cell/vicepa/{CLONE}@release-base.{number}"));
    let holds = || vec![(names[0].clone(), "mine".to_owned())];
    let release = |seed, since| {
        cell.change(0, seed);
        cell.reclone();
        cell.release(since).unwrap();
        cell.check_equal();
        (cell.traffic().0, cell.traffic().2)
    };
    cell.release(0).unwrap();
    pool.run(HoldSnapshots { holds: holds() }).unwrap();
    assert_eq!(release(10, 1), (2, 0));
    assert_eq!(datasets(&cell.there, '@'), names);
    // The next one has no name. What was received last goes with a dump.
    assert_eq!(release(11, 0), (2, 1));
    assert_eq!(datasets(&cell.there, '@'), names[..1]);
    // It is a base as before.
    assert_eq!(release(12, 1), (3, 1));
    assert_eq!(datasets(&cell.there, '@'), names);
    pool.run(ReleaseSnapshots { holds: holds() }).unwrap();
    assert_eq!(release(13, 1), (4, 1));
    assert_eq!(datasets(&cell.there, '@'), names[..1]);
    pool.clone_snapshot(&names[0], "cell/mine").unwrap();
    assert_eq!(release(14, 1), (5, 1));
    assert_eq!(datasets(&cell.there, '@'), names);
    pool.destroy("cell/mine").unwrap();
    // The second is the last one, and the first is free again.
    assert_eq!(release(15, 1), (6, 1));
    assert_eq!(datasets(&cell.there, '@'), names[..1]);
}

fn dsl_task(bookmark: String) -> Box<dyn poolhouse::dsl::SyncTask + Send> {
    Box::new(DestroyBookmarks { names: vec![bookmark] })
}

/// Goal: what changed at the site since the last release does not survive the next one. A snapshot
/// of an administrator does, and the site gets a dump.
#[test]
fn a_site_that_changed() {
    let cell = Cell::new(3);
    cell.release(0).unwrap();
    write_at(&cell.there, cell.files[1]);
    cell.change(0, 10);
    cell.reclone();
    cell.release(1).unwrap();
    assert_eq!((cell.traffic().0, cell.traffic().2), (2, 0));
    cell.check_equal();
    let daily = format!("cell/vicepa/{CLONE}@daily");
    cell.there.pool.as_ref().unwrap().snapshot(&daily).unwrap();
    cell.change(0, 11);
    cell.reclone();
    cell.release(0).unwrap();
    assert_eq!((cell.traffic().0, cell.traffic().2), (2, 1));
    assert!(is_there(&cell.there, &daily));
    cell.check_equal();
}

/// A server of OpenAFS as far as these calls go.
struct Foreign;

impl Service for Foreign {
    fn quick(&self, _: &rx::Request) -> Option<rx::Reply> {
        None
    }

    fn run(&self, call: &mut rx::Call) -> Result<(), i32> {
        let mut opcode = [0; 4];
        call.read_exact(&mut opcode).map_err(|_| 1)?;
        match u32::from_be_bytes(opcode) {
            102 => call.read_all(64 << 20).map(drop).map_err(|_| 2),
            _ => Err(rxgen::RXGEN_OPCODE),
        }
    }
}

/// Goal: a server without these calls gets dumps. Of two sites, one of them, each gets what it can
/// take. With the switch off, all get dumps.
#[test]
fn several_sites() {
    let mut cell = Cell::new(3);
    let key = rxkad::Server::new(Arc::clone(&cell.here.keys), Level::Clear);
    let options = rx::Options {
        classes: vec![Arc::new(Null), Arc::new(key)],
        services: vec![(4, Arc::new(Foreign))],
        workers: 2,
        ..rx::Options::default()
    };
    let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0);
    let foreign = Endpoint::bind(address, options).unwrap();
    let (host, port) = (foreign.address().ip().to_bits(), foreign.address().port());
    let other = Destination { host, port: port.into(), security: 1 };
    let third = Rig::new();
    for (round, blocks) in [(0, true), (1, true), (2, false)] {
        if !blocks {
            cell.here.server = None;
            cell.here.start_with(|options| options.forwards.blocks = false);
        }
        let before = cell.traffic();
        let own = cell.here.operator();
        let transaction = own.begin(CLONE, attach::BUSY).unwrap();
        let (ours, thirds) = (cell.there.operator(), third.operator());
        let (at_ours, at_third) = (Cell::begin(&ours), Cell::begin(&thirds));
        let to = vec![
            Replica { transaction: at_ours, server: destination(&cell.there) },
            Replica { transaction: 5, server: other.clone() },
            Replica { transaction: at_third, server: destination(&third) },
        ];
        let (since, to) = (Date(round), List::new(to).unwrap());
        let call = Call::ForwardMultiple { transaction, since, to, spare: 0, cookie: cookie() };
        let Reply::ForwardMultiple(codes) = own.call(call).unwrap() else { panic!() };
        assert_eq!(codes.into_vec(), [0, 0, 0]);
        own.end(transaction).unwrap();
        ours.complete(at_ours);
        thirds.complete(at_third);
        cell.check_equal();
        assert!(vnodes(&thirds.dump(CLONE, 0)) == vnodes(&own.dump(CLONE, 0)));
        let (more, dumps) = if blocks { (2, 1) } else { (0, 3) };
        assert_eq!((cell.traffic().0, cell.traffic().2), (before.0 + more, before.2 + dumps));
        cell.client = cell.here.client(None);
        cell.change(0, 50 + u64::from(round));
        cell.reclone();
    }
}

/// Goal: a stream that breaks off, has other bytes, does not fit, or bytes after its end, changes
/// nothing. So does one without the rights of a superuser.
#[test]
fn streams_that_are_refused() {
    let cell = Cell::new(3);
    cell.release(0).unwrap();
    let before = vnodes(&cell.there.operator().dump(CLONE, 0));
    let (base, snapshots) = (cell.base(), datasets(&cell.there, '@'));
    cell.change(0, 10);
    cell.reclone();
    let (header, stream) = cell.stream();
    let operator = cell.there.operator();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    let call = |base, header| {
        let (version, cookie) = (BLOCKS_VERSION, cookie());
        Call::RestoreBlocks { transaction, version, cookie, base, header }
    };
    let refused = |call: &Call, data: &[u8]| {
        assert_eq!(operator.raw(call, data).err(), Some(volser::VOLSERREAD_DUMPERROR));
        assert!(vnodes(&raw_dump(&operator, transaction)) == before);
        assert!(!is_there(&cell.there, &format!("cell/vicepa/{CLONE}/%recv")));
    };
    // As an increment, what was received stays.
    for length in [0, 10, header as usize, stream.len() / 2, stream.len() - 100] {
        refused(&call(base, header), &stream[..length]);
    }
    refused(&call(base, header), &[&stream[..], b"x"].concat());
    // One that builds on something, but not on what was offered, or not as the call says.
    for (argument, builds_on) in [(base ^ 1, base ^ 1), (base, base ^ 1), (base ^ 1, base), (0, base)] {
        let mut other = stream.clone();
        // BEGIN, whose checksum comes later.
        other[header as usize + FROM_GUID..][..8].copy_from_slice(&builds_on.to_le_bytes());
        refused(&call(argument, header), &other);
    }
    // The guid of what it has stands for a stream. That of another one does not, nor a part of it.
    for bytes in
        [&(base ^ 1).to_be_bytes()[..], &base.to_be_bytes()[..7], &[&base.to_be_bytes()[..], b"x"].concat()]
    {
        refused(&call(base, header), &[&stream[..header as usize], bytes].concat());
    }
    assert_eq!(datasets(&cell.there, '@'), snapshots);
    let mut random = 1_u64;
    for _ in 0..40 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, mut other) = ((random >> 20) as usize % stream.len(), stream.clone());
        // The first record has no checksum, and some of its fields no meaning here.
        let at = at.max(header as usize + 312);
        other[at] ^= 1 << (random >> 61);
        let done = operator.raw(&call(0, header), &other);
        assert_eq!(done.err(), Some(volser::VOLSERREAD_DUMPERROR), "byte {at} of {}", stream.len());
        assert!(vnodes(&raw_dump(&operator, transaction)) == before);
    }
    // A whole stream without a header, and a stranger.
    refused(&call(0, header - 1), &stream);
    assert_eq!(operator.raw(&call(0, 1 << 20), &stream).err(), Some(rxgen::RXGEN_SS_UNMARSHAL));
    let address = cell.there.server().volume_address().unwrap();
    let stranger = cell.client.endpoint.connect(address, 4, &Null).unwrap();
    for request in [
        [call(0, header).request(), stream.clone()].concat(),
        Call::OfferBlocks { transaction, version: BLOCKS_VERSION }.request(),
    ] {
        let code = match stranger.call(request, TIME) {
            Err(rx::Error::Aborted { code }) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code, volser::VOLSERBAD_ACCESS);
    }
    assert!(vnodes(&raw_dump(&operator, transaction)) == before);
    // And as it is, it is taken.
    operator.raw(&call(0, header), &stream).unwrap();
    operator.complete(transaction);
    cell.check_equal();
}

fn raw_dump(operator: &Operator, transaction: i32) -> Vec<u8> {
    operator.raw(&Call::Dump { transaction, since: Date(0) }, &[]).unwrap()
}

/// Goal: a file system that is no volume, or whose vnodes are no tree, is refused.
#[test]
fn contents_that_are_no_volume() {
    let cell = Cell::new(2);
    cell.release(0).unwrap();
    let before = vnodes(&cell.there.operator().dump(CLONE, 0));
    let pool = cell.here.pool.as_ref().unwrap();
    pool.create_filesystem("cell/plain").unwrap().create_dir("/d").unwrap();
    pool.snapshot("cell/plain@s").unwrap();
    // A volume with a file of another front end, whose number is no file's.
    pool.clone_snapshot(&format!("cell/vicepa/{VOLUME}@{CLONE}"), "cell/odd").unwrap();
    for number in 0..2 {
        pool.dataset("cell/odd").unwrap().create_file(format!("/{number}")).unwrap();
    }
    pool.snapshot("cell/odd@s").unwrap();
    // One with a directory that has no access list.
    pool.clone_snapshot(&format!("cell/vicepa/{VOLUME}@{CLONE}"), "cell/open").unwrap();
    let open = pool.dataset("cell/open").unwrap();
    let fs = pool.open_for_writing(open.dsl(), zpl::Policies::default()).unwrap();
    fs.set_access_list(fs.resolve(b"/d").unwrap().object(), &[]).unwrap();
    drop(fs);
    pool.snapshot("cell/open@s").unwrap();
    let (header, stream) = cell.stream();
    let operator = cell.there.operator();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    for name in ["cell/plain@s", "cell/odd@s", "cell/open@s"] {
        let mut other = stream[..header as usize].to_vec();
        pool.dataset(name).unwrap().send(&stream::Options::default(), &mut other).unwrap();
        let (version, cookie) = (BLOCKS_VERSION, cookie());
        let call = Call::RestoreBlocks { transaction, version, cookie, base: 0, header };
        assert_eq!(operator.raw(&call, &other).err(), Some(volser::VOLSERREAD_DUMPERROR), "{name}");
        assert!(vnodes(&raw_dump(&operator, transaction)) == before);
    }
    operator.end(transaction).unwrap();
}

/// Goal: after a crash between the exchange and the header, the next start puts the header in
/// place.
#[test]
fn a_crash_before_the_header() {
    let mut cell = Cell::new(2);
    cell.release(0).unwrap();
    cell.change(0, 10);
    cell.reclone();
    let (header, stream) = cell.stream();
    let sent = Stored::decode(&stream[..header as usize]).unwrap();
    let (old, image) = cell.crash(&stream[header as usize..], |stored| {
        stored.header.update_date = sent.header.update_date;
        stored.header.quota = 4711;
    });
    assert_ne!(old.header.kind, volume_header(&cell).kind);
    cell.there.open(image);
    // Who only reads the pool has the same header.
    let (stored, unfinished) = cell.offline();
    let header = stored.unwrap().header;
    assert_eq!((header.quota, header.kind, header.id), (4711, old.header.kind, CLONE));
    assert!(unfinished.is_empty());
    cell.there.start();
    let header = cell.there.server().core().table.get(CLONE).unwrap().peek().unwrap().header;
    assert_eq!((header.quota, header.kind, header.id), (4711, old.header.kind, CLONE));
    // The crash has raised the versions of data.
    let data = |rig: &Rig| vnodes(&rig.operator().dump(CLONE, 0)).into_iter().map(|(_, data)| data);
    assert!(data(&cell.there).eq(data(&cell.here)));
    // The sender has what was sent by hand as its clone.
    cell.change(1, 20);
    let sent = cell.traffic().0;
    cell.here.server().core().table.get(CLONE).unwrap().partition.forget_unsent(CLONE);
    cell.reclone();
    cell.release(1).unwrap();
    assert_eq!(cell.traffic().0, sent + 1);
    cell.check_equal();
}

/// Goal: a new volume that a crash left between the exchange and the header is not complete.
#[test]
fn a_crash_of_a_volume_that_is_not_complete() {
    let mut cell = Cell::new(1);
    cell.release(0).unwrap();
    let (header, stream) = cell.stream();
    let (_, image) = cell.crash(&stream[header as usize..], |stored| stored.destroy_me = true);
    cell.there.open(image);
    let (stored, unfinished) = cell.offline();
    assert!(stored.is_none());
    assert_eq!(unfinished, [CLONE]);
    cell.there.start();
    assert!(!is_there(&cell.there, &format!("cell/vicepa/{CLONE}")));
}

/// Goal: a volume whose header can't be put in place at the start is not served with that of its
/// sender later, and again when the header can be read.
#[test]
fn a_header_that_is_damaged() {
    let mut cell = Cell::new(1);
    cell.release(0).unwrap();
    let (header, stream) = cell.stream();
    let (_, image) = cell.crash(&stream[header as usize..], |stored| stored.header.quota = 4711);
    cell.there.open(image);
    let pool = cell.there.pool.clone().unwrap();
    let (name, property) = (format!("cell/vicepa/{CLONE}"), "poolhouse:volume-header");
    let found = pool.dataset(&name).unwrap().dsl().user_property(property).unwrap().unwrap();
    let Value::Text(right) = found.value else { panic!() };
    pool.set(&name, property, "damaged").unwrap();
    let partition = Partition::begin(PartitionId(0), pool.clone(), "cell/vicepa").unwrap();
    let mut contents = partition.contents().unwrap();
    partition.clean(&mut contents);
    assert!(contents.volumes.is_empty());
    // As when a partition is served again that could not be closed.
    let found = partition.contents().unwrap().volumes;
    assert_eq!(found, [Found::Dataset(CLONE)]);
    assert!(partition.finish_received(CLONE).is_err() && partition.stored(found[0]).is_err());
    pool.set(&name, property, &right).unwrap();
    assert_eq!(partition.stored(found[0]).unwrap().header.quota, 4711);
    partition.finish_received(CLONE).unwrap();
    assert_eq!(partition.stored(found[0]).unwrap().header.quota, 4711);
    let fs = partition.fs(CLONE).unwrap();
    assert_eq!(Stored::read(&fs).unwrap().unwrap().header.id, CLONE);
    // As in volumes that are made.
    assert_eq!(fs.objset().phys().meta_dnode.indblkshift, zpl::AFS_DNODES.indirect_shift);
}

/// The header that the file system at the source has: of the read-write volume.
fn volume_header(cell: &Cell) -> afs::dump::VolumeHeader {
    cell.here.server().core().table.get(VOLUME).unwrap().peek().unwrap().header
}
