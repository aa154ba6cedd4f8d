//! The recording of a workload: clients change files, and the model follows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use afs::acl::Acl;
use afs::types::{FetchStatus, Fid, StoreStatus, VolumeId};
use parking_lot::Mutex;
use poolhouse::Pool;

use super::net::{Cell, Client, Operator, acl};
use super::world::{Body, File, Id, Mark, ROOT, Sight, State, World, fid, id};
use crate::crash::{Point, SplitMix, Tape};

pub(super) const FINE: &str = "a healthy server does it";
/// A volume with so many files gets no more.
const MOST_FILES: usize = 24;
/// Bytes that one transaction writes at most.
const PIECE: usize = 1 << 20;
/// The mode of new files and directories.
const MODE: u32 = 0o755;

/// No client of the workload: all that have a promise hear of the change.
pub(super) const NOBODY: usize = usize::MAX;

/// Until when the states are on disk: the number of the last one, and since when.
pub(super) type Durable = Arc<Mutex<Vec<(usize, Point)>>>;

/// A thread that syncs the pool while clients change it.
struct Syncer {
    requests: Option<Sender<usize>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    fn start(pool: &Pool, tape: &Tape, durable: &Durable) -> Self {
        let (requests, taken) = channel();
        let (pool, tape, durable) = (pool.clone(), tape.clone(), Arc::clone(durable));
        let thread = std::thread::spawn(move || {
            for state in taken {
                pool.sync().expect(FINE);
                durable.lock().push((state, tape.end()));
            }
        });
        Self { requests: Some(requests), thread: Some(thread) }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a client has cached under a promise: the version, and the file.
type Cache = BTreeMap<Fid, (u32, Arc<File>)>;

/// A client, and what it has.
struct Holder {
    client: Client,
    cache: Cache,
}

/// What belongs together.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) made: u32,
    /// The clones of read-write volumes at their site, in the order in which they were made.
    pub(super) clones: BTreeMap<VolumeId, Vec<VolumeId>>,
    /// Copies of volumes as at another site, and since when their source may have changed.
    pub(super) copies: BTreeMap<VolumeId, (VolumeId, u32)>,
}

/// A workload that is being recorded.
pub(super) struct Recorder {
    pub(super) tape: Tape,
    pool: Pool,
    holders: [Holder; 2],
    pub(super) admin: Client,
    pub(super) operator: Operator,
    pub(super) dice: SplitMix,
    pub(super) world: World,
    pub(super) states: Vec<State>,
    sights: Vec<Sight>,
    /// The contents of each version that a client has seen.
    seen: HashMap<(Fid, u32), Arc<File>>,
    pub(super) durable: Durable,
    marks: Vec<Mark>,
    pub(super) groups: Groups,
    /// When the operation that is being done has begun.
    began: Point,
    names: u64,
    /// The pool is synced beside each step: a transaction group ends amid many calls.
    is_busy: bool,
    syncer: Syncer,
    /// The server. It ends last.
    _cell: Cell,
}

/// The results of a recording.
pub(super) struct Recorded {
    pub(super) states: Vec<State>,
    pub(super) sights: Vec<Sight>,
    pub(super) marks: Vec<Mark>,
    pub(super) durable: Vec<(usize, Point)>,
    pub(super) end: Point,
}

impl Recorder {
    /// A recorder on a pool that has a partition.
    pub(super) fn new(pool: Pool, tape: &Tape, seed: u64) -> Self {
        let cell = Cell::start(&pool).expect(FINE);
        let holder = |number| Holder { client: cell.client(number).expect(FINE), cache: Cache::new() };
        let (holders, admin) = ([holder(1), holder(2)], cell.admin().expect(FINE));
        let operator = cell.operator().expect(FINE);
        let durable = Durable::default();
        pool.sync().expect(FINE);
        let began = tape.end();
        let first = State { what: "the start".into(), began: 0, is_durable: false, world: World::default() };
        durable.lock().push((0, began));
        Self {
            syncer: Syncer::start(&pool, tape, &durable),
            tape: tape.clone(),
            pool,
            holders,
            admin,
            operator,
            dice: SplitMix(seed),
            world: World::default(),
            states: vec![first],
            sights: Vec::new(),
            seen: HashMap::new(),
            durable,
            marks: Vec::new(),
            groups: Groups::default(),
            began,
            names: 0,
            is_busy: seed.is_multiple_of(2),
            _cell: cell,
        }
    }

    pub(super) fn run(mut self, steps: usize) -> Recorded {
        self.new_volume();
        for _ in 0..steps {
            self.step();
        }
        let end = self.tape.end();
        drop(self.syncer);
        let durable = self.durable.lock().clone();
        Recorded { states: self.states, sights: self.sights, marks: self.marks, durable, end }
    }

    fn step(&mut self) {
        if self.is_busy {
            self.sync_beside();
        }
        match self.dice.below(100) {
            0..15 => self.change_volumes(),
            15..19 => {
                let state = self.states.len() - 1;
                self.pool.sync().expect(FINE);
                self.durable.lock().push((state, self.tape.end()));
            }
            19..26 => self.sync_beside(),
            26..40 => self.look(),
            _ => self.change_files(),
        }
    }

    /// Has the pool synced while the workload goes on.
    pub(super) fn sync_beside(&self) {
        let requests = self.syncer.requests.as_ref().expect("it runs");
        requests.send(self.states.len() - 1).expect(FINE);
    }

    /// Begins an operation.
    pub(super) fn begin(&mut self) {
        self.began = self.tape.end();
    }

    /// Notes a state on the way of an operation that takes several transactions.
    fn on_the_way(&mut self, what: &str, world: World) {
        self.states.push(State { what: what.to_owned(), began: self.began, is_durable: false, world });
    }

    /// Ends an operation: its state, and what both clients have heard. The client `by` has learned
    /// the versions of the `kept` files by its own change.
    ///
    /// # Panics
    /// A client believes in something that is not so.
    pub(super) fn end(&mut self, what: &str, is_durable: bool, by: usize, kept: &[(Fid, &FetchStatus)]) {
        let (began, world) = (self.began, self.world.clone());
        self.states.push(State { what: what.to_owned(), began, is_durable, world });
        for (fid, status) in kept {
            let file = self.world.file(*fid).expect("the model has it");
            if let Some(has) = self.holders.get_mut(by).and_then(|holder| holder.cache.get_mut(fid)) {
                *has = (status.data_version.0, Arc::clone(file));
            }
        }
        for (number, holder) in self.holders.iter_mut().enumerate() {
            for broken in holder.client.told.broken.lock().drain(..) {
                holder.cache.retain(|fid, _| match broken.vnode.0 {
                    0 => fid.volume != broken.volume,
                    _ => *fid != broken,
                });
            }
            for (fid, (version, had)) in &holder.cache {
                let now = self.world.file(*fid);
                let is_so = now.is_some_and(|now| now.has_contents_of(had));
                assert!(is_so, "after {what}, client {number} trusts version {version} of {fid}");
            }
        }
        for (fid, status) in kept {
            self.see(*fid, status);
        }
    }

    /// Notes that all states so far are on disk.
    pub(super) fn note_durable(&mut self) {
        self.durable.lock().push((self.states.len() - 1, self.tape.end()));
    }

    /// Notes that a commit of a file has returned.
    fn note_commit(&mut self, fid: Fid) {
        self.marks.push(Mark { fid, state: self.states.len() - 1, from: self.tape.end() });
    }

    /// Notes that a client has seen the present contents of a file, in this version.
    ///
    /// # Panics
    /// A client has seen other contents in that version.
    fn see(&mut self, fid: Fid, status: &FetchStatus) {
        let version = status.data_version.0;
        let file = self.world.file(fid).expect("the model has it");
        let known = self.seen.entry((fid, version)).or_insert_with(|| Arc::clone(file));
        assert!(known.has_contents_of(file), "{fid} has other contents in version {version}");
        self.sights.push(Sight { fid, version, file: Arc::clone(file), from: self.tape.end() });
    }

    /// A client has fetched a file, with a promise.
    fn cache(&mut self, who: usize, fid: Fid, status: &FetchStatus) {
        self.see(fid, status);
        let file = Arc::clone(self.world.file(fid).expect("the model has it"));
        self.holders[who].cache.insert(fid, (status.data_version.0, file));
    }

    fn forget(&mut self, who: usize, fid: Fid) {
        self.holders[who].cache.remove(&fid);
    }

    /// One of these. `None`: there is none.
    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let at = self.dice.below(of.len().max(1) as u64) as usize;
        of.get(at).cloned()
    }

    fn name(&mut self) -> String {
        self.names += 1;
        // Some names take several slots of a directory's page.
        format!("{}{}", "long-name-".repeat((self.names % 5) as usize * 3), self.names)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(8)).flat_map(|_| self.dice.roll().to_le_bytes()).take(length).collect()
    }

    /// Compares a file with the model, as a client fetches it.
    fn look(&mut self) {
        let volumes: Vec<VolumeId> = self.world.volumes.keys().copied().collect();
        let Some(volume) = self.pick(&volumes) else { return };
        let all: Vec<Id> = self.world.volumes[&volume].files.keys().copied().collect();
        for _ in 0..2 {
            let Some(own) = self.pick(&all) else { return };
            let (fid, who) = (fid(volume, own), self.dice.below(2) as usize);
            let (data, status) = self.holders[who].client.fetch(fid).expect(FINE);
            let file = self.world.file(fid).expect("the model has it");
            let same = match &file.body {
                Body::File(right) | Body::Link(right) => **right == data,
                Body::Directory(entries, _) => {
                    let found = afs::dir::Directory::new(&data).expect(FINE);
                    found.entries().len() == entries.len() + 2
                        && entries.iter().all(|(name, to)| {
                            let entry = found.lookup(name.as_bytes());
                            entry.is_some_and(|entry| (entry.vnode, entry.unique) == *to)
                        })
                }
            };
            assert!(same, "{fid} has other contents than the model");
            self.cache(who, fid, &status);
        }
    }

    fn change_files(&mut self) {
        let writable =
            |(id, volume): (&VolumeId, &Arc<super::world::Volume>)| (volume.kind == 0).then_some(*id);
        let volumes: Vec<VolumeId> = self.world.volumes.iter().filter_map(writable).collect();
        let Some(volume) = self.pick(&volumes) else { return };
        let who = self.dice.below(2) as usize;
        let (mut directories, mut files, mut links) = (Vec::new(), Vec::new(), Vec::new());
        for (own, file) in &self.world.volumes[&volume].files {
            match &file.body {
                Body::Directory(..) => directories.push(*own),
                Body::File(_) => files.push(*own),
                Body::Link(_) => links.push(*own),
            }
        }
        let directory = self.pick(&directories).expect("there is a root directory");
        let file = self.pick(&files);
        let is_full = directories.len() + files.len() + links.len() >= MOST_FILES;
        match (self.dice.below(20), file) {
            (0..5, _) if !is_full => self.make(who, volume, directory, false),
            (5, _) if !is_full => self.make(who, volume, directory, true),
            (6, _) if !is_full => self.symlink(who, volume, directory),
            (7, Some(file)) => self.link(who, volume, file),
            (8..11, _) => self.rename(who, volume, directory),
            (11 | 12, _) => self.remove(who, volume, directory),
            (13, _) => self.set_mode(who, volume, file.unwrap_or(directory)),
            (14, _) => self.set_acl(who, volume, directory),
            (_, Some(file)) => self.store(who, volume, file),
            _ => self.make(who, volume, directory, false),
        }
    }

    /// What an operation may ask for beside its change: that it be durable before the reply.
    fn options(&mut self) -> StoreStatus {
        StoreStatus { is_durable: self.dice.below(6) == 0, ..StoreStatus::default() }
    }

    fn make(&mut self, who: usize, volume: VolumeId, directory: Id, is_directory: bool) {
        let (name, status, above) = (self.name(), self.options(), fid(volume, directory));
        let status = StoreStatus { mode: Some(MODE), ..status };
        let is_durable = status.is_durable;
        self.begin();
        let made = self.holders[who].client.make(above, &name, is_directory, status);
        let (new, [own, of_directory]) = made.expect(FINE);
        let list = self.world.volumes[&volume].acl(directory);
        let body = match is_directory {
            true => Body::Directory(BTreeMap::new(), list),
            false => Body::File(Arc::default()),
        };
        self.add(volume, directory, &name, (id(new), body));
        let what = format!("make {name} as {new} in {above}");
        self.end(&what, is_durable, who, &[(above, &of_directory)]);
        self.cache(who, new, &own);
        if is_durable {
            self.note_commit(new);
        }
    }

    /// Adds a new file to the model.
    fn add(&mut self, volume: VolumeId, directory: Id, name: &str, (new, body): (Id, Body)) {
        let volume = self.world.volume(volume);
        let (is_directory, mode) = (matches!(body, Body::Directory(..)), MODE);
        let links = if is_directory { 2 } else { 1 };
        let file = File { body, parent: directory, links, mode };
        assert!(volume.files.insert(new, Arc::new(file)).is_none(), "a fid was given out twice");
        volume.entries(directory).insert(name.to_owned(), new);
        volume.file(directory).links += u32::from(is_directory);
    }

    fn symlink(&mut self, who: usize, volume: VolumeId, directory: Id) {
        let (name, above) = (self.name(), fid(volume, directory));
        let target = format!("to/{name}").into_bytes();
        self.begin();
        let made = self.holders[who].client.symlink(above, &name, &target);
        let (new, [own, of_directory]) = made.expect(FINE);
        self.add(volume, directory, &name, (id(new), Body::Link(Arc::new(target))));
        self.world.volume(volume).file(id(new)).mode = own.mode & 0o777;
        let what = format!("symlink {name} as {new} in {above}");
        self.end(&what, false, who, &[(above, &of_directory), (new, &own)]);
    }

    fn link(&mut self, who: usize, volume: VolumeId, file: Id) {
        let directory = self.world.volumes[&volume].files[&file].parent;
        let (name, above, existing) = (self.name(), fid(volume, directory), fid(volume, file));
        self.begin();
        let [own, of_directory] = self.holders[who].client.link(above, &name, existing).expect(FINE);
        let model = self.world.volume(volume);
        model.entries(directory).insert(name.clone(), file);
        model.file(file).links += 1;
        let what = format!("link {name} to {existing} in {above}");
        self.end(&what, false, who, &[(existing, &own), (above, &of_directory)]);
    }

    /// Takes a name away from the model, and the file with its last name.
    fn drop_name(&mut self, volume: VolumeId, directory: Id, name: &str) -> (Id, bool) {
        let volume = self.world.volume(volume);
        let gone = volume.entries(directory).remove(name).expect("the model has it");
        let file = volume.file(gone);
        let is_directory = file.entries().is_some();
        file.links -= 1;
        if is_directory || file.links == 0 {
            volume.files.remove(&gone);
        }
        volume.file(directory).links -= u32::from(is_directory);
        (gone, is_directory)
    }

    /// An entry of a directory that can be removed: a directory must be empty.
    fn removable(&mut self, volume: VolumeId, directory: Id) -> Option<(String, Id)> {
        let files = &self.world.volumes[&volume].files;
        let empty = |to: &Id| files[to].entries().is_none_or(BTreeMap::is_empty);
        let entries = files[&directory].entries()?;
        let all: Vec<_> =
            entries.iter().filter(|(_, to)| empty(to)).map(|(name, to)| (name.clone(), *to)).collect();
        self.pick(&all)
    }

    fn remove(&mut self, who: usize, volume: VolumeId, directory: Id) {
        let Some((name, to)) = self.removable(volume, directory) else { return };
        let above = fid(volume, directory);
        let is_directory = self.world.volumes[&volume].files[&to].entries().is_some();
        self.begin();
        let status = self.holders[who].client.remove(above, &name, is_directory).expect(FINE);
        self.drop_name(volume, directory, &name);
        if self.world.file(fid(volume, to)).is_none() {
            self.forget(who, fid(volume, to));
        }
        let what = format!("remove {name}, {}, in {above}", fid(volume, to));
        self.end(&what, false, who, &[(above, &status)]);
    }

    /// Renames an entry, in its directory or to another, perhaps over another one.
    fn rename(&mut self, who: usize, volume: VolumeId, directory: Id) {
        let files = &self.world.volumes[&volume].files;
        let directories: Vec<Id> =
            files.iter().filter(|(_, file)| file.entries().is_some()).map(|(id, _)| *id).collect();
        let entries = files[&directory].entries().cloned().unwrap_or_default();
        let entries: Vec<(String, Id)> = entries.into_iter().collect();
        let Some((old_name, source)) = self.pick(&entries) else { return };
        let mut to = self.pick(&directories).expect("there is a root directory");
        let source_file = Arc::clone(&self.world.volumes[&volume].files[&source]);
        let is_directory = source_file.entries().is_some();
        if !is_directory && source_file.links > 1 || is_directory && self.is_below(volume, to, source) {
            to = directory;
        }
        let mut new_name = self.name();
        let over = self.removable(volume, to).filter(|(_, over)| {
            let is_same_kind = self.world.volumes[&volume].files[over].entries().is_some() == is_directory;
            is_same_kind && *over != source && *over != directory
        });
        if let Some((over, _)) = over.clone().filter(|_| self.names.is_multiple_of(2)) {
            new_name = over;
        }
        let (old, new) = (fid(volume, directory), fid(volume, to));
        self.begin();
        let renamed = self.holders[who].client.rename((old, &old_name), (new, &new_name)).expect(FINE);
        if let Some((over, gone)) = over.filter(|(over, _)| *over == new_name) {
            self.drop_name(volume, to, &over);
            if self.world.file(fid(volume, gone)).is_none() {
                self.forget(who, fid(volume, gone));
            }
        }
        let model = self.world.volume(volume);
        model.entries(directory).remove(&old_name);
        model.entries(to).insert(new_name.clone(), source);
        model.file(source).parent = to;
        model.file(directory).links -= u32::from(is_directory);
        model.file(to).links += u32::from(is_directory);
        if directory != to && is_directory {
            // It has another entry `..`, and the reply does not have its version.
            self.forget(who, fid(volume, source));
        }
        let what = format!("rename {old_name} in {old} to {new_name} in {new}");
        self.end(&what, false, who, &[(old, &renamed[0]), (new, &renamed[1])]);
    }

    /// Whether a directory is another one, or below it.
    fn is_below(&self, volume: VolumeId, mut directory: Id, top: Id) -> bool {
        let files = &self.world.volumes[&volume].files;
        while directory != ROOT && directory != top {
            directory = files[&directory].parent;
        }
        directory == top
    }

    fn set_mode(&mut self, who: usize, volume: VolumeId, own: Id) {
        let mode = 0o700 | self.dice.below(0o100) as u32;
        let (fid, status) = (fid(volume, own), StoreStatus { mode: Some(mode), ..self.options() });
        let is_durable = status.is_durable;
        self.begin();
        let status = self.holders[who].client.store_status(fid, status).expect(FINE);
        self.world.volume(volume).file(own).mode = mode;
        self.end(&format!("mode {mode:o} of {fid}"), is_durable, who, &[(fid, &status)]);
        if is_durable {
            self.note_commit(fid);
        }
    }

    fn set_acl(&mut self, who: usize, volume: VolumeId, directory: Id) {
        let (rights, fid) = (self.dice.roll() as u32 >> 8, fid(volume, directory));
        self.begin();
        let status = self.holders[who].client.store_acl(fid, rights).expect(FINE);
        self.world.volume(volume).set_acl(directory, acl(rights));
        self.end(&format!("access list of {fid}"), false, NOBODY, &[(fid, &status)]);
    }

    /// Stores data, or changes the length of a file.
    fn store(&mut self, who: usize, volume: VolumeId, own: Id) {
        let Body::File(old) = self.world.volumes[&volume].files[&own].body.clone() else { return };
        let most = [0, 100, 5000, 70_000, 200_000, 1_500_000][self.dice.below(40).min(5) as usize];
        let length = match most {
            1_500_000 if self.dice.below(12) > 0 => 3000,
            0 => 0,
            most => 1 + self.dice.below(most) as usize,
        };
        let at = self.dice.below(old.len() as u64 + 2000) as usize * (self.dice.below(2) as usize);
        let file_length = match self.dice.below(3) {
            0 => old.len().max(at + length),
            1 => at + length,
            _ => self.dice.below(old.len() as u64 + 10_000) as usize,
        };
        let (data, status, fid) = (self.bytes(length), self.options(), fid(volume, own));
        let is_durable = status.is_durable;
        let what = format!("store {length} at {at} in {fid}, length {file_length}");
        self.begin();
        let mut contents = (*old).clone();
        if file_length < contents.len() {
            contents.truncate(file_length);
            self.set_on_the_way(&what, volume, own, &contents);
        }
        let mut done = 0;
        while done < length {
            let n = (PIECE - (at + done) % PIECE).min(length - done);
            contents.resize(contents.len().max(at + done + n), 0);
            contents[at + done..at + done + n].copy_from_slice(&data[done..done + n]);
            self.set_on_the_way(&what, volume, own, &contents);
            done += n;
        }
        contents.resize(contents.len().max(file_length), 0);
        let stored = self.holders[who].client.store(fid, (at as u64, &data), file_length as u64, status);
        self.world.volume(volume).file(own).body = Body::File(Arc::new(contents));
        let status = stored.expect(FINE);
        self.end(&what, is_durable, who, &[(fid, &status)]);
        if is_durable {
            self.note_commit(fid);
        }
    }

    fn set_on_the_way(&mut self, what: &str, volume: VolumeId, own: Id, contents: &[u8]) {
        let mut world = self.world.clone();
        world.volume(volume).file(own).body = Body::File(Arc::new(contents.to_vec()));
        self.on_the_way(what, world);
    }

    /// The administrator lets anyone do all in a new volume.
    pub(super) fn open_root(&mut self, volume: VolumeId) {
        let rights = self.dice.roll() as u32 >> 8;
        self.begin();
        let status = self.admin.store_acl(fid(volume, ROOT), rights).expect(FINE);
        self.world.volume(volume).set_acl(ROOT, acl(rights));
        let what = format!("access list of the root of {volume}");
        self.end(&what, false, NOBODY, &[(fid(volume, ROOT), &status)]);
    }
}

/// The root directory of a new volume.
pub(super) fn new_root() -> File {
    let body = Body::Directory(BTreeMap::new(), Acl::of_new_volume());
    File { body, parent: ROOT, links: 2, mode: MODE }
}
