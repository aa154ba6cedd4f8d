//! The list of its volumes that a partition keeps on disk.
//!
//! # Theory
//! To list a partition takes several objects of the MOS for each dataset: minutes for a million
//! volumes. So the list is kept in a file, as it was in some txg. Whatever happened to a dataset
//! since has changed an object of it in the MOS, by whatever program.
//!
//! So a start reads the file, looks for blocks of the MOS that were born later
//! ([`dmu::Objset::changes_since`]), and reads the datasets again that have an object there. An old
//! list is only slower. Once a minute, and when the partition closes, what changed is appended.
//!
//! The file is [`FILE`] in the file system [`TABLE`] of the partition ([`super::entry`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dmu::Change;
use dsl::ops::create::Create;
use dsl::{Setting, Value};
use observe::lock::Mutex;
use ondisk::dsl::DslDirPhys;
use ondisk::{DmuType, ObjNum, Txg};
use poolhouse::arc::{CacheType, Policy};
use zpl::{FileSystem, NewFileSystem, Policies};

use super::entry::{Changed, Entry, Kept, Owner, State};
use super::left::{Contents, Failures, Read};
use super::log::Log;
use super::scan::Scan;
use super::{CANMOUNT_OFF, Head, Partition, SYNC_DISABLED, now};
use crate::server::{Error, Result, chain};
use crate::types::VolumeId;

/// The file system with the list, in the partition.
const TABLE: &str = "volume-table";
/// The file.
const FILE: &[u8] = b"volumes";
/// The file while it is written anew.
const NEW_FILE: &[u8] = b"volumes.new";
/// The file with the headers, and while it is written anew.
const HEADERS: &[u8] = b"headers";
const NEW_HEADERS: &[u8] = b"headers.new";

/// A start reads the list once, in pieces that are longer than its blocks.
const CACHING: Policy = Policy { keep: CacheType::Metadata, ahead: CacheType::None };

/// How long another thread may take to release the list, and how often this one looks.
const CLOSING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// The file is written anew when so many of its entries are old, and they are the larger part.
const MOST_OLD: usize = 10_000;
/// With so many changes in the MOS, the end of a group is written although no file system changed.
pub(super) const MANY_CHANGES: usize = 1000;
/// With more changes than this, and than file systems, it is quicker to list them all.
const MOST_CHANGES: usize = 20_000;
/// Most threads that read datasets: they wait for the pool.
const READERS: usize = 16;

/// The list of a partition.
#[derive(Debug)]
pub(super) struct List {
    pub(super) fs: FileSystem,
    pub(super) owner: Owner,
    /// The directory of its file system.
    dir: u64,
    /// Changes of datasets that it may lack.
    pub(super) changes: AtomicUsize,
    /// The headers ([`super::headers`]). Locked before the other file.
    pub(super) headers: Mutex<Log>,
    /// Only one thread at a time brings it up to date.
    file: Mutex<Log>,
    /// The use of the partition ends: what takes long ends early.
    ending: AtomicBool,
}

fn of_dmu(error: dmu::Error) -> Error {
    poolhouse::Error::from(dsl::Error::from(error)).into()
}

/// File systems that were read. `None`: it is gone.
pub(super) type Fresh = BTreeMap<Head, Option<Read>>;

/// A list that was brought up to date.
pub(super) struct Updated {
    pub(super) txg: Txg,
    scan: Scan,
    /// What was read again.
    fresh: Fresh,
    failures: Failures,
}

impl Updated {
    /// How many file systems there are, or a few more.
    pub(super) fn len(&self) -> usize {
        self.scan.len() + self.fresh.len()
    }

    /// The file systems that were not read again, with their clones.
    fn old(&self) -> impl Iterator<Item = (Head, &[VolumeId])> {
        self.scan.each().filter(|(head, _)| !self.fresh.contains_key(head))
    }

    /// All file systems with their clones.
    pub(super) fn each(&self) -> impl Iterator<Item = (Head, Cow<'_, [VolumeId]>)> {
        let fresh = self.fresh.iter().filter_map(|(head, read)| Some((*head, read.as_ref()?.kept(*head))));
        let fresh = fresh.map(|(head, kept)| (head, Cow::Owned(kept.clones)));
        self.old().map(|(head, clones)| (head, Cow::Borrowed(clones))).chain(fresh)
    }
}

impl List {
    /// The list of a partition. It is made if there is none yet.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Files`]: it can't be opened or made.
    pub(super) fn open(partition: &Partition) -> Result<Self> {
        let (fs, dir) = partition.table_files()?;
        let of_partition = partition.pool.spa().read(|| partition.pool.dsl().dir(&partition.dataset));
        let of_partition = of_partition.map_err(poolhouse::Error::from)?.object().0;
        let owner = (partition.pool.spa().guid().0, of_partition);
        let file = Mutex::new(Log::open(&fs, FILE, NEW_FILE)?);
        let headers = Mutex::new(Log::open(&fs, HEADERS, NEW_HEADERS)?);
        let (changes, ending) = (AtomicUsize::new(1), AtomicBool::new(false));
        Ok(Self { fs, owner, dir, changes, headers, file, ending })
    }

    /// Whether the use of the partition ends.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Reads the whole file. One that is damaged is an empty list.
    fn read(&self, file: &mut Log) -> State {
        let bytes = file.bytes(&self.fs).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "the list of volumes can't be read, and is made anew");
            Vec::new()
        });
        let (state, end, entries) = State::parse(&bytes);
        (file.end, file.entries) = (end, entries);
        if state.owner == self.owner { state } else { State::default() }
    }

    /// The end of the last group, and its txg. `None`: the list is of no use.
    fn last_end(&self, file: &mut Log) -> Option<(u64, Txg)> {
        match file.tail(&self.fs) {
            Ok(Some((end, txg, owner))) if owner == self.owner => Some((end, txg)),
            // A group may not be complete.
            _ => Some(self.read(file))
                .filter(|state| state.owner == self.owner)
                .map(|state| (file.end, state.txg)),
        }
    }

    /// Appends a group to the file.
    fn append(&self, file: &mut Log, entries: Vec<Entry>, txg: Txg) -> Result<()> {
        let mut bytes = Vec::new();
        let count = entries.len();
        entries.into_iter().chain([Entry::End(txg, self.owner)]).for_each(|entry| entry.write(&mut bytes));
        file.append(&self.fs, &bytes, count)
    }

    /// Writes the whole list to a new file.
    fn write_anew(&self, file: &mut Log, heads: &HashMap<Head, Kept>, txg: Txg) -> Result<()> {
        let mut bytes = Vec::new();
        let sorted: BTreeMap<_, _> = heads.iter().collect();
        sorted.into_iter().for_each(|(head, kept)| Entry::Head(*head, kept.clone()).write(&mut bytes));
        Entry::End(txg, self.owner).write(&mut bytes);
        file.write_anew(&self.fs, &bytes, heads.len())
    }
}

impl Partition {
    /// The list of its volumes.
    pub(super) fn list(&self) -> Option<Arc<List>> {
        self.list.lock().clone()
    }

    /// Brings the list of its volumes up to date. Without that, the next start takes longer.
    pub fn keep_list(&self) {
        if let Some(list) = self.list()
            && let Err(error) = self.keep(&list)
        {
            tracing::warn!(partition = %self.id, error = chain(&error), "the list of volumes is old");
        }
    }

    /// Brings the list and the headers up to date, if datasets changed since. This may take a
    /// while.
    pub(in crate::server) fn keep_all(&self, used: &HashSet<VolumeId>) {
        if self.list().is_none_or(|list| list.changes.load(Ordering::Acquire) == 0) {
            return;
        }
        // With the list, too.
        if let Err(error) = self.headers(used) {
            tracing::warn!(partition = %self.id, error = chain(&error), "the list of volumes is old");
        }
    }

    /// Has listings that take long end early: the use of the partition ends.
    pub(in crate::server) fn end_listings(&self) {
        if let Some(list) = self.list() {
            list.ending.store(true, Ordering::Relaxed);
        }
    }

    /// Brings the list up to date for the last time, and closes its files.
    pub(super) fn end_list(&self) {
        self.end_listings();
        self.keep_list();
        let Some(mut list) = self.list.lock().take() else { return };
        let until = Instant::now() + CLOSING;
        loop {
            // Another thread may be at it.
            drop((list.headers.try_lock_until(until), list.file.try_lock_until(until)));
            match Arc::try_unwrap(list) {
                Ok(_) => return,
                Err(shared) if Instant::now() >= until => {
                    drop(shared);
                    tracing::warn!(partition = %self.id, "the file with the list of volumes is still open");
                    return;
                }
                Err(shared) => list = shared,
            }
            std::thread::sleep(POLL);
        }
    }

    /// The file system with the list, which is made if there is none.
    fn table_files(&self) -> Result<(FileSystem, u64)> {
        let name = format!("{}/{}", self.dataset, TABLE);
        if self.pool.dataset(&name).is_err() {
            let number = |name: &str, number| Setting { name: name.to_owned(), value: Value::Number(number) };
            // A replay must not bring back what a rewind undid.
            let props = vec![number("canmount", CANMOUNT_OFF), number("sync", SYNC_DISABLED)];
            self.run(vec![Box::new(Create {
                name: name.clone(),
                contents: Arc::new(NewFileSystem::new(now())),
                props,
                crypt: None,
                enforce_limits: false,
            })])?;
        }
        let dataset = self.pool.dataset(&name)?;
        let policy = zpl::Policy::of(dataset.dsl()).map_err(poolhouse::Error::from)?;
        let fs = self.pool.open_for_writing(dataset.dsl(), Policies::new(policy))?;
        self.pool.spa().cache().set_policy(dataset.dsl().object().0, CACHING);
        Ok((fs, dataset.dsl().dir().object().0))
    }

    /// What the partition has, by the list, which is brought up to date.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Files`]: the list or the partition can't be read, or the list not
    /// be written.
    pub(super) fn contents_by(&self, list: &List) -> Result<Contents> {
        let updated = self.update(list)?;
        let mut contents = Contents::default();
        contents.volumes.reserve(updated.len());
        updated.old().for_each(|(head, clones)| contents.note_kept(head, clones));
        updated.fresh.iter().for_each(|(head, read)| {
            read.iter().for_each(|read| contents.note_read(*head, read));
        });
        contents.failures = updated.failures;
        Ok(contents)
    }

    /// Brings the list up to date, if datasets changed since.
    ///
    /// # Errors
    /// Those of [`Self::contents_by`].
    pub(super) fn keep(&self, list: &List) -> Result<()> {
        match list.changes.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => self.update(list).map(drop),
        }
    }

    pub(super) fn update(&self, list: &List) -> Result<Updated> {
        let file = &mut *list.file.lock();
        // Those that come later are found by the next look.
        let changes = list.changes.swap(0, Ordering::AcqRel);
        let updated = self.update_file(list, file);
        updated.inspect_err(|_| _ = list.changes.fetch_add(changes.max(1), Ordering::AcqRel))
    }

    fn update_file(&self, list: &List, file: &mut Log) -> Result<Updated> {
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let txg = live.txgs().synced();
        let Some((scan, heads)) = self.to_read(list, file, txg)? else {
            let (all, failures) = self.read_all()?;
            // What can't be read must not be forgotten.
            if failures.is_empty() {
                let heads = all.iter().map(|(head, read)| (*head, read.kept(*head))).collect();
                list.write_anew(file, &heads, txg)?;
            }
            let fresh = all.into_iter().map(|(head, read)| (head, Some(read))).collect();
            return Ok(Updated { txg, scan: Scan::default(), fresh, failures });
        };
        let (mut fresh, mut failures) = self.read_heads(heads);
        // One that is gone may be there under another name.
        let has_moved = |(head, read): (&Head, &Option<Read>)| {
            let dir = read.as_ref().map(|read| read.kept(*head).objects[0]);
            scan.wrong.get(head).is_some_and(|kept| dir != Some(kept.objects[0]))
        };
        if fresh.iter().any(has_moved) {
            let mut more = self.not_in(&scan)?;
            more.retain(|head| !fresh.contains_key(head));
            let (found, failed) = self.read_heads(more);
            fresh.extend(found);
            failures.extend(failed);
        }
        let mut entries = Vec::new();
        for (head, read) in &fresh {
            let now = read.as_ref().map(|read| read.kept(*head));
            if scan.wrong.get(head) != now.as_ref() {
                entries.push(now.map_or(Entry::Gone(*head), |now| Entry::Head(*head, now)));
            }
        }
        let updated = Updated { txg, scan, fresh, failures };
        if updated.failures.is_empty()
            && let Err(error) = self.write_list(list, file, entries, &updated)
        {
            tracing::warn!(partition = %self.id, error = chain(&error), "the list of volumes is old");
            list.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(updated)
    }

    /// Writes what changed.
    fn write_list(&self, list: &List, file: &mut Log, entries: Vec<Entry>, updated: &Updated) -> Result<()> {
        let len = updated.scan.len();
        let old = (file.entries + entries.len()).saturating_sub(len);
        let has_many_old = old > MOST_OLD && old > len;
        if entries.is_empty() && updated.scan.changes < MANY_CHANGES && !has_many_old {
            return Ok(());
        }
        list.append(file, entries, updated.txg)?;
        if has_many_old {
            let state = list.read(file);
            // A list that was not read to its end must not replace the whole one.
            if state.txg == updated.txg && state.heads.len() == updated.each().count() {
                list.write_anew(file, &state.heads, updated.txg)?;
            }
        }
        Ok(())
    }

    /// What the list has, and the file systems that may not be as it has them. `None`: it is of no
    /// use, or it is quicker to read all.
    fn to_read(&self, list: &List, file: &mut Log, synced: Txg) -> Result<Option<(Scan, BTreeSet<Head>)>> {
        let Some((end, txg)) = list.last_end(file) else { return Ok(None) };
        if txg == Txg(0) || txg > synced {
            return Ok(None);
        }
        let many = end as usize / 4 / Entry::LEAST;
        let Some(changed) = self.changed_since(txg, many)? else { return Ok(None) };
        let mut words = file.words(&list.fs, end);
        let scan = Scan::read(&mut words, (txg, list.owner), &changed).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "the list of volumes can't be read, and is made anew");
            None
        });
        let Some(scan) = scan else { return Ok(None) };
        (file.end, file.entries) = (scan.end, scan.entries);
        let mos = self.pool.dsl().mos().objset();
        let mut heads: BTreeSet<Head> = scan.wrong.keys().copied().collect();
        let mut known = HashSet::from([list.dir]);
        known.extend(scan.wrong.values().map(|kept| kept.objects[0]));
        // Directories that the list does not have.
        let is_new = |object: &u64| match mos.dnode(ObjNum(*object)) {
            Ok(dnode) if dnode.bonus_kind() == DmuType::DSL_DIR => {
                Ok(DslDirPhys::decode(dnode.bonus()).is_ok_and(|phys| phys.parent_obj == list.owner.1))
            }
            // It was freed since.
            Ok(_) | Err(dmu::Error::NoSuchObject { .. }) => Ok(false),
            Err(error) => Err(of_dmu(error)),
        };
        for object in changed.used.difference(&known) {
            if is_new(object)? {
                heads.extend(self.not_in(&scan)?);
                break;
            }
        }
        Ok(Some((scan, heads)))
    }

    /// What changed in the MOS since a txg. `None`: so much that it is quicker to read all of
    /// `many`.
    pub(super) fn changed_since(&self, txg: Txg, many: usize) -> Result<Option<Changed>> {
        let mut changed = Changed::default();
        for change in self.pool.dsl().mos().objset().changes_since(txg, ObjNum(1)) {
            match change.map_err(of_dmu)? {
                Change::Used(object) => _ = changed.used.insert(object.0),
                Change::Free(first, last) => changed.free.push((first.0, last.0)),
            }
            if changed.used.len() > MOST_CHANGES.max(many) {
                return Ok(None);
            }
        }
        Ok(Some(changed))
    }

    /// The file systems that the list does not have.
    fn not_in(&self, scan: &Scan) -> Result<BTreeSet<Head>> {
        let children = || self.pool.dsl().dir(&self.dataset)?.child_objects();
        let children = self.pool.spa().read(children).map_err(poolhouse::Error::from)?;
        let heads = children.iter().filter_map(|(name, _)| Head::parse(name));
        Ok(heads.filter(|head| !scan.has(*head)).collect())
    }

    /// Reads these file systems. One that can't be read counts as gone, with a failure.
    fn read_heads(&self, heads: BTreeSet<Head>) -> (Fresh, Failures) {
        let heads: Vec<Head> = heads.into_iter().collect();
        let (found, failures) = (Mutex::new(Fresh::new()), Mutex::new(Failures::new()));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(head) = heads.get(next.fetch_add(1, Ordering::Relaxed)) {
                let name = self.head_name(*head);
                let read = match self.pool.spa().read(|| self.pool.dsl().dataset(&name)) {
                    Ok(dataset) => self.pool.spa().read(|| Read::new(&dataset, &failures)).map(Some),
                    Err(dsl::Error::NoSuchDataset { .. }) => Ok(None),
                    Err(error) => Err(error),
                };
                let read = read.unwrap_or_else(|error| {
                    failures.lock().push((name, error));
                    None
                });
                found.lock().insert(*head, read);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..READERS.min(heads.len().div_ceil(READERS)) {
                // Fewer threads do the same work, only slower.
                let _ = std::thread::Builder::new().name("afs-list".into()).spawn_scoped(scope, work);
            }
            work();
        });
        (found.into_inner(), failures.into_inner())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::partition::PartitionId;
    use crate::server::header::Stored;
    use crate::server::store::Found;
    use poolhouse::Pool;

    pub(in crate::server::store) fn stored(id: u32) -> Stored {
        let mut stored = Stored::default();
        stored.header.id = VolumeId(id);
        stored.header.name = b"v".to_vec();
        stored
    }

    fn heads(ids: &[u32]) -> BTreeSet<Head> {
        ids.iter().map(|id| Head::of(VolumeId(*id))).collect()
    }

    /// A partition with these volumes.
    pub(in crate::server::store) struct Rig {
        _dir: tempfile::TempDir,
        pub(in crate::server::store) pool: Pool,
        pub(in crate::server::store) partition: Arc<Partition>,
        pub(in crate::server::store) list: Arc<List>,
    }

    impl Rig {
        pub(in crate::server::store) fn new(ids: impl Iterator<Item = u32>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let image = dir.path().join("d0");
            std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
            let pool = Pool::create("cell", &[&[&image]]).unwrap();
            pool.create_filesystem("cell/vicepa").unwrap();
            let partition = Partition::begin(PartitionId(0), pool.clone(), "cell/vicepa").unwrap();
            for id in ids {
                partition.create(VolumeId(id), &stored(id)).unwrap();
                partition.finish(VolumeId(id), None, true).unwrap();
            }
            let list = partition.list().unwrap();
            Self { _dir: dir, pool, partition, list }
        }

        fn synced(&self) -> Txg {
            self.pool.spa().writer().unwrap().txgs().synced()
        }

        fn to_read(&self) -> Option<BTreeSet<Head>> {
            let file = &mut *self.list.file.lock();
            let found = self.partition.to_read(&self.list, file, self.synced()).unwrap();
            found.map(|(_, heads)| heads)
        }

        /// How many volumes and clones the list leads to.
        fn found(&self) -> usize {
            let contents = self.partition.contents_by(&self.list).unwrap();
            assert!(self.partition.is_right(&contents) && contents.failures.is_empty());
            contents.volumes.len()
        }
    }

    /// Goal: a start reads only what changed, and finds all of it: also what the server did not do
    /// itself.
    #[test]
    fn only_what_changed_is_read() {
        let rig = Rig::new((100..=3000).step_by(100));
        let (partition, pool) = (&rig.partition, &rig.pool);
        partition.clone_volume(VolumeId(100), &stored(102), None).unwrap();
        // There is no list yet.
        assert_eq!(rig.to_read(), None);
        assert_eq!(rig.found(), 31);
        partition.keep(&rig.list).unwrap();
        let before = rig.list.file.lock().end;
        // The partition's own directory and the list are in blocks of the MOS with some volumes.
        assert!(rig.to_read().unwrap().len() < 16);
        assert_eq!((rig.found(), rig.list.file.lock().entries), (31, 30));
        assert!(rig.list.file.lock().end <= before + 28);
        // By other commands: nothing here counts as a change.
        pool.snapshot("cell/vicepa/2000@2002").unwrap();
        pool.destroy("cell/vicepa/3000").unwrap();
        pool.create_filesystem("cell/vicepa/3100").unwrap();
        let read = rig.to_read().unwrap();
        assert!(read.is_superset(&heads(&[2000, 3000, 3100])), "{read:?}");
        assert_eq!(rig.found(), 32);
        assert!(rig.to_read().unwrap().is_disjoint(&heads(&[100])));
        // A volume that goes leaves its clones under another name.
        assert!(partition.destroy(VolumeId(100)).unwrap().is_some());
        assert_eq!(rig.found(), 31);
        // A volume that is not complete is read each time.
        partition.create(VolumeId(3200), &Stored { destroy_me: true, ..stored(3200) }).unwrap();
        assert_eq!((rig.found(), rig.found()), (31, 31));
        assert!(rig.to_read().unwrap().contains(&Head::of(VolumeId(3200))));
        let contents = partition.contents_by(&rig.list).unwrap();
        let head = Head { volume: VolumeId(100), gone: Some(1) };
        assert!(contents.volumes.contains(&Found::Snapshot { id: VolumeId(102), head }));
        let Rig { pool, partition, list, .. } = rig;
        drop(list);
        partition.end().unwrap();
        drop(partition);
        pool.export().unwrap();
    }

    /// Goal: a list of another partition, or of a later txg than the pool's, is of no use. It came
    /// with a copy, or the pool was rewound.
    #[test]
    fn lists_of_others() {
        let rig = Rig::new([7, 8].into_iter());
        assert_eq!(rig.found(), 2);
        let (list, txg) = (&rig.list, rig.synced());
        let (pool, dir) = list.owner;
        for (owner, txg) in [((1, dir), txg), ((pool, 1), txg), (list.owner, Txg(txg.0 + 1000))] {
            let mut bytes = Vec::new();
            Entry::End(txg, owner).write(&mut bytes);
            {
                let file = list.file.lock();
                list.fs.truncate(file.object, 0, false).unwrap();
                super::super::log::write(&list.fs, file.object, 0, &bytes).unwrap();
            }
            assert_eq!(rig.to_read(), None);
            assert_eq!(rig.found(), 2);
            assert!(rig.to_read().is_some());
        }
    }

    /// Goal: a file with many old entries is written anew.
    #[test]
    fn old_entries_go() {
        let rig = Rig::new([7].into_iter());
        assert_eq!(rig.found(), 1);
        let list = &rig.list;
        {
            let file = &mut *list.file.lock();
            let gone = (0..=MOST_OLD).map(|id| Entry::Gone(Head::of(VolumeId(1000 + id as u32)))).collect();
            list.append(file, gone, Txg(5)).unwrap();
            assert_eq!(file.entries, MOST_OLD + 2);
        }
        assert_eq!((rig.found(), list.file.lock().entries), (1, 1));
        let size = list.fs.node(list.file.lock().object).unwrap().attr().size;
        assert_eq!(size, list.file.lock().end);
    }

    /// Goal: a list that is read in pieces is the one that is read as a whole, in whatever order
    /// its entries come; what changed is kept whole.
    #[test]
    fn lists_in_pieces() {
        let rig = Rig::new([7].into_iter());
        let (list, file) = (&rig.list, &mut *rig.list.file.lock());
        let changed = Changed { used: HashSet::from([5]), free: vec![(8, 9)] };
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut entry = |volumes| {
            let gone = Some(random(3) as u32).filter(|number| *number < 2);
            let head = Head { volume: VolumeId(1 + random(volumes) as u32), gone };
            let clones = (0..random(3)).map(|clone| VolumeId(clone as u32)).collect();
            let objects = [0, 0, 0, 0].map(|_| 1 + random(40));
            match random(4) {
                0 => Entry::Gone(head),
                again => {
                    Entry::Head(head, Kept { objects, clones, read_again: again == 1 && random(9) == 0 })
                }
            }
        };
        // The first group is longer than a piece.
        for (group, count) in [60_000, 1, 0, 300, 40].into_iter().enumerate() {
            let entries = (0..count).map(|_| entry(if group == 0 { 1 << 20 } else { 50 })).collect();
            list.append(file, entries, Txg(group as u64 + 1)).unwrap();
            let (state, end, entries) = State::parse(&file.bytes(&list.fs).unwrap());
            let last = (Txg(group as u64 + 1), list.owner);
            let read = |end| Scan::read(&mut file.words(&list.fs, end), last, &changed).unwrap();
            let scan = read(end).unwrap();
            assert_eq!((scan.end, scan.entries, scan.len()), (end, entries, state.heads.len()));
            let of_state: BTreeMap<_, _> =
                state.heads.iter().map(|(head, kept)| (*head, &kept.clones[..])).collect();
            assert!(scan.each().eq(of_state));
            let is_wrong =
                |kept: &Kept| kept.read_again || kept.objects.iter().any(|object| changed.has(*object));
            let wrong: HashMap<_, _> = state.heads.into_iter().filter(|(_, kept)| is_wrong(kept)).collect();
            assert!(wrong.keys().all(|head| scan.has(*head)) && scan.wrong == wrong);
            // It must end with the group that was expected.
            assert!(read(end - 4).is_none() && list.last_end(file) == Some((end, last.0)));
        }
        let end = file.end;
        file.append(&list.fs, &[1, 0, 0, 0, 9], 1).unwrap();
        assert_eq!(list.last_end(file), Some((end, Txg(5))));
    }
}
