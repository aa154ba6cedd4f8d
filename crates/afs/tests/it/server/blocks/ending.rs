//! Calls on a volume that has just got other contents, whose marks are still to go: the operations
//! that remove them are queued, and their transaction group is not on disk.

use super::*;

const MARK: &str = "poolhouse:volume-incomplete";
const HEADER: &str = "poolhouse:volume-header";
const DATE: Date = Date(1_234_567_890);

/// A site with the contents of the last release, in a transaction, whose marks are still there.
struct Ending {
    cell: Cell,
    operator: Operator,
    transaction: i32,
    /// What the first file has at the site.
    seed: u64,
    images: u32,
}

impl Ending {
    /// Its site writes transaction groups on demand only.
    fn new() -> Self {
        let mut cell = Cell::new(3);
        cell.release(0).unwrap();
        cell.there.sync_on_demand();
        let operator = cell.there.operator();
        let transaction = Cell::begin(&operator);
        let seed = 100;
        send(&mut cell, seed, transaction);
        let ending = Self { cell, operator, transaction, seed, images: 0 };
        assert!(ending.is_marked(CLONE));
        ending
    }

    /// Whether the site's pool has the marks of what a volume received: both of them, or none.
    fn is_marked(&self, volume: VolumeId) -> bool {
        let pool = self.cell.there.pool.as_ref().unwrap();
        let dataset = pool.dataset(&format!("cell/vicepa/{volume}")).unwrap();
        let [mark, header] =
            [MARK, HEADER].map(|name| dataset.dsl().user_property(name).unwrap().map(|found| found.value));
        match (mark, header.is_some()) {
            (None, false) => false,
            (Some(Value::Text(mark)), true) if mark == "received" => true,
            marks => panic!("{marks:?}"),
        }
    }

    /// The site's pool as a crash leaves it now. No transaction group is being written.
    fn image(&mut self) -> PathBuf {
        let directory = self.cell.there.dir.path();
        let image = directory.join(format!("image{}", self.images));
        self.images += 1;
        std::fs::copy(directory.join("d0"), &image).unwrap();
        image
    }

    /// Starts the site on what a crash left.
    fn crash(&mut self, image: PathBuf) {
        self.cell.there.stop();
        self.cell.there.open(image);
        self.cell.there.start();
        self.operator = self.cell.there.operator();
    }

    /// The site's volume of this number has all files, the first one with this content, and nothing
    /// is half-made. It is in service.
    fn check(&self, volume: VolumeId, seed: u64) {
        self.check_files(volume, seed);
        let about = self.operator.listed(volume).unwrap();
        assert_eq!(about.in_use.0, 1, "{about:?}");
        let own = if volume == CLONE { READ_ONLY } else { 0 };
        assert_eq!((about.kind, about.parent, about.file_count), (own, VOLUME, 5));
        assert!(!is_there(&self.cell.there, &format!("cell/vicepa/{volume}/%recv")));
        self.cell.settle();
        assert!(!self.is_marked(volume));
    }

    fn check_files(&self, volume: VolumeId, seed: u64) {
        let client = self.cell.there.client(None);
        for (number, file) in self.cell.files.iter().enumerate() {
            let expected = text(if number == 0 { seed } else { number as u64 + 1 }, FILE);
            let found = client.fetch(Fid { volume, ..*file }, 0, FILE as i64).unwrap().0;
            assert!(found == expected, "file {number} of {volume}");
        }
    }

    /// The next release is taken, and `zdb` finds no fault in the pool of the site.
    fn end(mut self) {
        self.cell.change(1, 2);
        self.cell.change(0, 900);
        self.cell.reclone();
        self.cell.release(1).unwrap();
        self.cell.check_equal();
        self.check(CLONE, 900);
        self.cell.there.stop();
        testpools::judge(self.cell.there.dir.path(), "cell");
    }
}

/// Sends the clone, with other contents in its first file.
fn send(cell: &mut Cell, seed: u64, transaction: i32) {
    cell.change(0, seed);
    cell.reclone();
    let sent = cell.traffic().0;
    cell.send(1, destination(&cell.there), transaction).unwrap();
    assert_eq!(cell.traffic().0, sent + 1, "it is sent as blocks");
}

/// Goal: at that moment, a crash keeps the new contents, and so it does after a call that only
/// reads: a dump has them too.
#[test]
fn a_dump() {
    let mut ending = Ending::new();
    let crashed = ending.image();
    let dump = raw_dump(&ending.operator, ending.transaction);
    assert!(vnodes(&dump) == vnodes(&ending.cell.here.operator().dump(CLONE, 0)));
    assert!(ending.is_marked(CLONE));
    ending.check_files(CLONE, ending.seed);
    let after = ending.image();
    ending.operator.complete(ending.transaction);
    ending.check(CLONE, ending.seed);
    for image in [crashed, after] {
        ending.crash(image);
        ending.check(CLONE, ending.seed);
    }
    ending.end();
}

/// Goal: a restore of a dump replaces the new contents.
#[test]
fn a_restore() {
    let mut ending = Ending::new();
    ending.cell.change(0, 7);
    ending.cell.reclone();
    let dump = ending.cell.here.operator().dump(CLONE, 0);
    let restore = Call::Restore { transaction: ending.transaction, flags: 0, cookie: cookie() };
    // One that breaks off.
    assert!(ending.operator.raw(&restore, &dump[..dump.len() / 2]).is_err());
    ending.check_files(CLONE, ending.seed);
    let (transaction, first) = (ending.transaction, ending.image());
    ending.operator.raw(&restore, &dump).unwrap();
    ending.check_files(CLONE, 7);
    let second = ending.image();
    ending.operator.complete(transaction);
    ending.check(CLONE, 7);
    for (image, seed) in [(first, ending.seed), (second, 7)] {
        ending.crash(image);
        ending.check(CLONE, seed);
    }
    ending.end();
}

/// Goal: a restore that is the first call replaces the new contents as well.
#[test]
fn a_restore_at_once() {
    let mut ending = Ending::new();
    let dump = ending.cell.here.operator().dump(CLONE, 0);
    let (transaction, cookie) = (ending.transaction, cookie());
    send(&mut ending.cell, 101, transaction);
    assert!(ending.is_marked(CLONE));
    let before = ending.image();
    ending.operator.raw(&Call::Restore { transaction, flags: 0, cookie }, &dump).unwrap();
    let after = ending.image();
    for (image, seed) in [(before, 101), (after, 100)] {
        ending.crash(image);
        ending.check(CLONE, seed);
    }
    ending.end();
}

/// Goal: a change of the header stays, also after a crash that comes when its transaction has
/// ended: the header that came with the contents does not follow.
#[test]
fn a_date() {
    let mut ending = Ending::new();
    let transaction = ending.transaction;
    let volume = ending.cell.there.server().core().table.get(CLONE).unwrap();
    let came = volume.peek().unwrap().header.creation_date;
    drop(volume);
    assert!(ending.is_marked(CLONE) && came != DATE);
    ending.operator.call(Call::SetDate { transaction, date: DATE }).unwrap();
    assert!(!ending.is_marked(CLONE));
    let before = ending.image();
    ending.operator.complete(transaction);
    let after = ending.image();
    ending.check(CLONE, ending.seed);
    for (image, dates) in [(before, vec![came, DATE]), (after, vec![DATE])] {
        ending.crash(image);
        ending.check(CLONE, ending.seed);
        let date = ending.operator.listed(CLONE).unwrap().creation_date;
        assert!(dates.contains(&date), "{date:?}, not {dates:?}");
    }
    ending.end();
}

/// Goal: a volume that is deleted does not come back, nor do its snapshots.
#[test]
fn a_deletion() {
    let mut ending = Ending::new();
    let transaction = ending.transaction;
    let before = ending.image();
    ending.operator.call(Call::DeleteVolume { transaction }).unwrap();
    let name = format!("cell/vicepa/{CLONE}");
    let after = ending.image();
    ending.operator.end(transaction).unwrap();
    assert!(!is_there(&ending.cell.there, &name));
    // Another one of the number has nothing of it.
    ending.cell.release(0).unwrap();
    ending.cell.check_equal();
    ending.crash(after);
    assert!(ending.operator.listed(CLONE).is_err() && !is_there(&ending.cell.there, &name));
    assert!(datasets(&ending.cell.there, '@').is_empty());
    ending.crash(before);
    ending.check(CLONE, ending.seed);
    ending.end();
}

/// Goal: the next release comes onto the new contents.
#[test]
fn another_release() {
    let mut ending = Ending::new();
    let transaction = ending.transaction;
    for seed in 101..104 {
        send(&mut ending.cell, seed, transaction);
        assert!(ending.is_marked(CLONE));
        ending.check_files(CLONE, seed);
    }
    let crashed = ending.image();
    ending.operator.complete(transaction);
    ending.check(CLONE, 103);
    assert_eq!(datasets(&ending.cell.there, '@').len(), 1);
    ending.crash(crashed);
    ending.check(CLONE, 103);
    ending.end();
}

/// Goal: within the transaction, a conversion is refused. Of one that was forced to end, the
/// read-write volume has the new contents, and keeps what clients then write.
#[test]
fn a_conversion() {
    let mut ending = Ending::new();
    let convert = || Call::ConvertRoToRw { partition: 0, volume: CLONE };
    assert_eq!(ending.operator.call(convert()).err(), Some(volser::VOLSERVOLBUSY));
    let before = ending.image();
    let core = Arc::clone(ending.cell.there.server().core());
    core.transactions.end(ending.transaction).unwrap();
    core.table.get(CLONE).unwrap().set_service(afs::server::header::Service::Unknown);
    assert!(ending.is_marked(CLONE));
    ending.operator.call(convert()).unwrap();
    let after = ending.image();
    ending.check(VOLUME, ending.seed);
    assert!(ending.operator.listed(CLONE).is_err());
    let file = ending.cell.there.client(None).create(root(VOLUME), "new").unwrap().fid;
    assert!(ending.cell.files.iter().all(|old| old.unique.0 < file.unique.0));
    assert!(datasets(&ending.cell.there, '@').is_empty());
    drop(core);
    ending.crash(after);
    ending.check(VOLUME, ending.seed);
    assert!(ending.operator.listed(CLONE).is_err());
    ending.crash(before);
    ending.check(CLONE, ending.seed);
    ending.end();
}
