//! Clients over a restart of the server that ended in order.

use std::path::PathBuf;

use afs::calls::fileserver::Call;
use afs::partition::PartitionId;
use afs::types::Fid;
use afs::wire::Uuid;

use super::{Client, Rig, VOLUME, root};

/// A server that keeps promises, always at the same port.
struct Lasting {
    rig: Rig,
    port: u16,
}

impl Lasting {
    fn new() -> Self {
        let mut rig = Rig::new();
        let port = rig.server().file_address().unwrap().port();
        drop(rig.server.take());
        let mut lasting = Self { rig, port };
        lasting.start();
        lasting.rig.volume(VOLUME, "v");
        lasting
    }

    fn file(&self) -> PathBuf {
        self.rig.dir.path().join("promises")
    }

    fn start(&mut self) {
        self.start_as(Uuid([1; 16]));
    }

    fn start_as(&mut self, uuid: Uuid) {
        let (file, port) = (self.file(), self.port);
        self.rig.start_with(|options| {
            (options.file_port, options.promises_file, options.uuid) = (port, Some(file), uuid);
        });
    }

    /// Ends the server, calls `meanwhile` with the pool exported, and starts the server again.
    fn restart(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        self.rig.stop();
        meanwhile(self);
        self.rig.open(self.rig.dir.path().join("d0"));
        self.start();
        wait(|| self.rig.server().core().has_checked_promises());
    }
}

fn resets(client: &Client) -> u32 {
    *client.told.resets.lock()
}

fn broken(client: &Client) -> Vec<Fid> {
    std::mem::take(&mut *client.told.broken.lock())
}

fn probe(client: &Client) {
    client.call(Call::GetTime {}).unwrap();
}

/// Calls `is_true` until it is.
pub fn wait(mut is_true: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + super::TIME;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
}

/// Goal: a restart resets no client. A promise from before is kept by the next server and by the
/// one after it, until the file changes.
#[test]
fn promises_outlive_the_server() {
    let mut server = Lasting::new();
    let (one, two) = (server.rig.client(None), server.rig.client(None));
    let file = one.create(root(VOLUME), "f").unwrap().fid;
    two.status(file).unwrap();
    two.status(root(VOLUME)).unwrap();
    for _ in 0..2 {
        server.restart(|server| assert!(server.file().exists()));
        assert!(!server.file().exists(), "it is used once");
        [&one, &two].into_iter().for_each(probe);
        assert_eq!((resets(&one), resets(&two)), (1, 1));
    }
    one.store(file, 0, b"new", 3).unwrap();
    assert_eq!(broken(&two), [file]);
    one.store(file, 0, b"more", 4).unwrap();
    assert_eq!((broken(&one), broken(&two)), (vec![], vec![]));
    // What was broken is not promised after the next start, and the rest is.
    server.restart(|_| ());
    one.store(file, 0, b"more", 4).unwrap();
    assert_eq!(broken(&two), []);
    one.create(root(VOLUME), "g").unwrap();
    assert_eq!(broken(&two), [root(VOLUME)]);
    assert_eq!((resets(&one), resets(&two)), (1, 1));
}

/// Goal: a volume that another program changes between two servers is not what its clients have:
/// all of them hear of it, without a call of theirs.
#[test]
fn changes_in_between_are_told() {
    let mut server = Lasting::new();
    let client = server.rig.client(None);
    client.status(root(VOLUME)).unwrap();
    server.restart(|server| {
        let rig = &mut server.rig;
        rig.open(rig.dir.path().join("d0"));
        let pool = rig.pool.take().unwrap();
        let dataset = pool.dataset(&format!("cell/vicepa/{VOLUME}")).unwrap();
        let fs = pool.open_for_writing(dataset.dsl(), zpl::Policies::default()).unwrap();
        let new = zpl::NewFile::new(zpl::Kind::Regular, 0o600);
        fs.create(fs.root(), b"from elsewhere", &new).unwrap();
        drop(fs);
        pool.export().unwrap();
    });
    let all = Fid { vnode: afs::types::Vnode(0), unique: afs::types::Unique(0), ..root(VOLUME) };
    wait(|| broken(&client) == [all]);
    assert_eq!(resets(&client), 1);
}

/// Goal: clients of a partition that does not come back are reset, as after a crash, and so are
/// those of another server's file.
#[test]
fn promises_of_what_is_gone_are_void() {
    let mut server = Lasting::new();
    let client = server.rig.client(None);
    client.status(root(VOLUME)).unwrap();
    server.rig.stop();
    // Another partition of the same number.
    let mut other = Rig::new();
    drop(other.server.take());
    std::mem::swap(&mut server.rig.pool, &mut other.pool);
    server.start();
    wait(|| {
        probe(&client);
        resets(&client) == 2
    });
    // The client has no promises, so nothing has to come back for it.
    drop(server.rig.server.take());
    server.start();
    probe(&client);
    assert_eq!(resets(&client), 2);
    drop(server.rig.server.take());
    server.start_as(Uuid([2; 16]));
    probe(&client);
    assert_eq!((resets(&client), server.file().exists()), (3, false));
}

/// Goal: an old file of promises, which could not be removed or came back, resets all clients: they
/// may believe in promises that it does not have.
#[test]
fn an_old_file_of_promises_is_of_no_use() {
    let mut server = Lasting::new();
    let (one, two) = (server.rig.client(None), server.rig.client(None));
    [&one, &two].into_iter().for_each(probe);
    drop(server.rig.server.take());
    let old = std::fs::read(server.file()).unwrap();
    server.start();
    two.status(root(VOLUME)).unwrap();
    drop(server.rig.server.take());
    std::fs::write(server.file(), old).unwrap();
    server.start();
    probe(&two);
    assert_eq!(resets(&two), 2);
    one.create(root(VOLUME), "f").unwrap();
    assert_eq!(resets(&one), 2);
}

/// Goal: what is set aside when a partition ends is there again when the partition comes back to
/// the same server.
#[test]
fn promises_are_set_aside() {
    let server = Lasting::new();
    let (one, two) = (server.rig.client(None), server.rig.client(None));
    let file = one.create(root(VOLUME), "f").unwrap().fid;
    two.status(file).unwrap();
    let partition = PartitionId(0);
    server.rig.server().end(partition).unwrap();
    let pool = server.rig.pool.clone().unwrap();
    let again = afs::server::store::Partition::begin(partition, pool, "cell/vicepa").unwrap();
    server.rig.server().add(again).unwrap();
    one.store(file, 0, b"new", 3).unwrap();
    assert_eq!(broken(&two), [file]);
    assert_eq!((resets(&one), resets(&two)), (1, 1));
}

/// Goal: a file of promises that is damaged, cut or of another program is no obstacle. Clients are
/// reset.
#[test]
fn damaged_files_of_promises() {
    let mut server = Lasting::new();
    let client = server.rig.client(None);
    client.status(root(VOLUME)).unwrap();
    drop(server.rig.server.take());
    let whole = std::fs::read(server.file()).unwrap();
    let huge = {
        // The length of the list of hosts.
        let mut bytes = whole.clone();
        bytes[52..56].fill(0xff);
        bytes
    };
    let damaged = [whole[..whole.len() - 1].to_vec(), huge, Vec::new(), b"something else".to_vec()];
    for (number, bytes) in damaged.into_iter().enumerate() {
        std::fs::write(server.file(), bytes).unwrap();
        server.start();
        assert!(!server.file().exists());
        probe(&client);
        assert_eq!(resets(&client), 2 + number as u32);
        drop(server.rig.server.take());
    }
}

/// Goal: clients of a partition that is served no more hear of it at once, while the server goes
/// on: the next change of its files may be another server's.
#[test]
fn clients_of_a_partition_that_goes() {
    let server = Lasting::new();
    let client = server.rig.client(None);
    client.status(root(VOLUME)).unwrap();
    server.rig.server().remove(PartitionId(0)).unwrap();
    let all = Fid { vnode: afs::types::Vnode(0), unique: afs::types::Unique(0), ..root(VOLUME) };
    assert_eq!(broken(&client), [all]);
}
