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
//! # On disk
//! The file [`FILE`] in the file system [`TABLE`] of the partition: entries of little-endian words
//! of 32 bits. An entry `3` ends a group; what follows the last one is ignored.
//!
//! | entry | words |
//! | --- | --- |
//! | a file system | 1; volume; flags; number; clones that follow; 4 objects; the clones |
//! | one that is gone | 2; volume; flags; number |
//! | the end of a group | 3; the txg; the pool's GUID; the partition's directory |
//!
//! An object, a txg and a GUID have two words. A list of another pool or partition is of no use:
//! the file may be a copy. The flags: 1, the volume is gone, and the number is that of the file
//! system ([`Head::gone`]); 2, it must be read again at each start.
//!
//! # Crash
//! Each transaction group has the file with a part of an append, in the order of its bytes, so a
//! group that is not complete has no end.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dmu::Change;
use dsl::ops::create::Create;
use dsl::{Setting, Value};
use ondisk::dsl::DslDirPhys;
use ondisk::{DmuType, ObjNum, Txg};
use parking_lot::Mutex;
use zpl::{FileSystem, Kind, NewFile, NewFileSystem, Policies, Policy, Rename};

use super::left::{Contents, Failures, Read};
use super::{CANMOUNT_OFF, Head, Partition, SYNC_DISABLED, now};
use crate::server::{Error, Result, chain};
use crate::types::VolumeId;

/// The file system with the list, in the partition.
const TABLE: &str = "volume-table";
/// The file.
const FILE: &[u8] = b"volumes";
/// The file while it is written anew.
const NEW_FILE: &[u8] = b"volumes.new";

const HEAD: u32 = 1;
const GONE: u32 = 2;
const END: u32 = 3;
const IS_GONE: u32 = 1;
const READ_AGAIN: u32 = 2;

/// How long another thread may take to release the list, and how often this one looks.
const CLOSING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// Bytes of one write and one read.
const PIECE: usize = 1 << 20;
/// The largest file that is read: ten million volumes.
const MOST_BYTES: u64 = 1 << 30;
/// Most clones of one file system.
const MOST_CLONES: u32 = 1 << 16;
/// The file is written anew when so many of its entries are old, and they are the larger part.
const MOST_OLD: usize = 10_000;
/// With more changes than this, and than file systems, it is quicker to list them all.
const MOST_CHANGES: usize = 20_000;
/// Most threads that read datasets: they wait for the pool.
const READERS: usize = 16;

/// Objects of the MOS that change with what the list has of a file system: its directory, its
/// dataset, its properties, the names of its snapshots.
pub(super) type Objects = [u64; 4];

/// What the list has of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) objects: Objects,
    pub(super) clones: Vec<VolumeId>,
    /// A change of it may be half-made.
    pub(super) read_again: bool,
}

/// The list of a partition.
#[derive(Debug)]
pub(super) struct List {
    fs: FileSystem,
    owner: Owner,
    /// The directory of its file system.
    dir: u64,
    /// Changes of datasets that it may lack.
    pub(super) changes: AtomicUsize,
    /// Only one thread at a time brings it up to date.
    file: Mutex<File>,
}

/// The file.
#[derive(Debug)]
struct File {
    object: ObjNum,
    /// The end of its last group.
    end: u64,
    /// Entries before it.
    entries: usize,
}

/// The partition that a list is of: its pool's GUID, and the object of its directory.
type Owner = (u64, u64);

/// A list as it was in a txg.
#[derive(Default)]
struct State {
    txg: Txg,
    owner: Owner,
    heads: HashMap<Head, Kept>,
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn wide(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// An entry of the file.
enum Entry {
    Head(Head, Kept),
    Gone(Head),
    End(Txg, Owner),
}

impl Entry {
    fn head(words: &mut impl Iterator<Item = u32>) -> Option<(Head, u32)> {
        let (volume, flags, number) = (VolumeId(words.next()?), words.next()?, words.next()?);
        Some((Head { volume, gone: (flags & IS_GONE != 0).then_some(number) }, flags))
    }

    fn words(head: Head, flags: u32) -> [u32; 3] {
        let is_gone = if head.gone.is_some() { IS_GONE } else { 0 };
        [head.volume.0, is_gone | flags, head.gone.unwrap_or(0)]
    }

    /// The next entry. `None`: there is none that is complete and known.
    fn read(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        match words.next()? {
            HEAD => {
                let (head, flags) = Self::head(words)?;
                let clones = words.next()?;
                let mut object = || Some(wide(words.next()?, words.next()?));
                let objects = [object()?, object()?, object()?, object()?];
                if clones > MOST_CLONES {
                    return None;
                }
                let clones: Vec<VolumeId> = words.take(clones as usize).map(VolumeId).collect();
                Some(Self::Head(head, Kept { objects, clones, read_again: flags & READ_AGAIN != 0 }))
            }
            GONE => Some(Self::Gone(Self::head(words)?.0)),
            END => {
                let mut number = || Some(wide(words.next()?, words.next()?));
                Some(Self::End(Txg(number()?), (number()?, number()?)))
            }
            _ => None,
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let mut put = |words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        match self {
            Self::Head(head, kept) => {
                put(&[HEAD]);
                put(&Self::words(*head, if kept.read_again { READ_AGAIN } else { 0 }));
                put(&[kept.clones.len() as u32]);
                kept.objects.iter().for_each(|object| put(&halves(*object)));
                kept.clones.iter().for_each(|clone| put(&[clone.0]));
            }
            Self::Gone(head) => {
                put(&[GONE]);
                put(&Self::words(*head, 0));
            }
            Self::End(txg, owner) => {
                put(&[END]);
                [txg.0, owner.0, owner.1].iter().for_each(|number| put(&halves(*number)));
            }
        }
    }
}

impl State {
    /// The complete groups of a file, with their end and how many entries they have.
    fn parse(bytes: &[u8]) -> (Self, u64, usize) {
        let mut state = Self::default();
        let (mut end, mut entries, mut group) = (0, 0, Vec::new());
        let mut words = words_of(bytes);
        while let Some(entry) = Entry::read(&mut words) {
            let Entry::End(txg, owner) = entry else {
                group.push(entry);
                continue;
            };
            entries += group.len();
            for entry in group.drain(..) {
                match entry {
                    Entry::Head(head, kept) => _ = state.heads.insert(head, kept),
                    Entry::Gone(head) => _ = state.heads.remove(&head),
                    Entry::End(..) => {}
                }
            }
            (state.txg, state.owner) = (txg, owner);
            end = (bytes.len() / 4 - words.size_hint().0) as u64 * 4;
        }
        (state, end, entries)
    }
}

/// What changed in the MOS: objects that are there, and ranges of free numbers in order.
#[derive(Default)]
struct Changed {
    used: HashSet<u64>,
    free: Vec<(u64, u64)>,
}

impl Changed {
    fn has(&self, object: u64) -> bool {
        let at = self.free.partition_point(|(_, last)| *last < object);
        self.used.contains(&object) || self.free.get(at).is_some_and(|(first, _)| *first <= object)
    }
}

/// File systems that were read. `None`: it is gone.
type Fresh = BTreeMap<Head, Option<Read>>;

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
        let object = match fs.lookup(fs.root(), FILE) {
            Ok(object) => object,
            Err(zpl::Error::NoEntry { .. }) => {
                fs.create(fs.root(), FILE, &NewFile::new(Kind::Regular, 0o600))?.object
            }
            Err(error) => return Err(error.into()),
        };
        let file = Mutex::new(File { object, end: 0, entries: 0 });
        Ok(Self { fs, owner, dir, changes: AtomicUsize::new(1), file })
    }

    /// Reads the file. One that is damaged is an empty list.
    fn read(&self, file: &mut File) -> State {
        let bytes = self.bytes(file.object).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "the list of volumes can't be read, and is made anew");
            Vec::new()
        });
        let (state, end, entries) = State::parse(&bytes);
        (file.end, file.entries) = (end, entries);
        if state.owner == self.owner { state } else { State::default() }
    }

    fn bytes(&self, object: ObjNum) -> Result<Vec<u8>> {
        let size = self.fs.node(object)?.attr().size;
        let mut bytes = vec![0; usize::try_from(size.min(MOST_BYTES)).unwrap_or(0)];
        let mut at = 0;
        while at < bytes.len() {
            let to = bytes.len().min(at + PIECE);
            match self.fs.read(object, at as u64, &mut bytes[at..to])? {
                0 => break,
                count => at += count,
            }
        }
        bytes.truncate(at);
        Ok(bytes)
    }

    fn write(&self, object: ObjNum, at: u64, bytes: &[u8]) -> Result<()> {
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            self.fs.write(object, at + (number * PIECE) as u64, piece, false)?;
        }
        Ok(())
    }

    /// Appends a group to the file.
    fn append(&self, file: &mut File, entries: Vec<Entry>, txg: Txg) -> Result<()> {
        let mut bytes = Vec::new();
        let count = entries.len();
        entries.into_iter().chain([Entry::End(txg, self.owner)]).for_each(|entry| entry.write(&mut bytes));
        // A part of another group must not follow.
        self.fs.truncate(file.object, file.end, false)?;
        self.write(file.object, file.end, &bytes)?;
        (file.end, file.entries) = (file.end + bytes.len() as u64, file.entries + count);
        Ok(())
    }

    /// Writes the whole list to a new file, which then takes the place of the other.
    fn write_anew(&self, file: &mut File, heads: &HashMap<Head, Kept>, txg: Txg) -> Result<()> {
        let root = self.fs.root();
        match self.fs.unlink(root, NEW_FILE) {
            Ok(Some(old)) => self.fs.reap(old)?,
            Ok(None) | Err(zpl::Error::NoEntry { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let object = self.fs.create(root, NEW_FILE, &NewFile::new(Kind::Regular, 0o600))?.object;
        let mut bytes = Vec::new();
        let sorted: BTreeMap<_, _> = heads.iter().collect();
        sorted.into_iter().for_each(|(head, kept)| Entry::Head(*head, kept.clone()).write(&mut bytes));
        Entry::End(txg, self.owner).write(&mut bytes);
        self.write(object, 0, &bytes)?;
        if let Some(old) = self.fs.rename((root, NEW_FILE), (root, FILE), Rename::Replace)? {
            self.fs.reap(old)?;
        }
        *file = File { object, end: bytes.len() as u64, entries: heads.len() };
        Ok(())
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

    /// Brings the list up to date for the last time, and closes its file.
    pub(super) fn end_list(&self) {
        self.keep_list();
        let Some(mut list) = self.list.lock().take() else { return };
        let until = Instant::now() + CLOSING;
        loop {
            // Another thread may be at it.
            drop(list.file.lock());
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
        let policy = Policy::of(dataset.dsl()).map_err(poolhouse::Error::from)?;
        let fs = self.pool.open_for_writing(dataset.dsl(), Policies::new(policy))?;
        Ok((fs, dataset.dsl().dir().object().0))
    }

    /// What the partition has, by the list, which is brought up to date.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Files`]: the list or the partition can't be read, or the list not
    /// be written.
    pub(super) fn contents_by(&self, list: &List) -> Result<Contents> {
        let (state, fresh, failures) = self.update(list)?;
        let mut contents = Contents { failures, ..Contents::default() };
        for (head, kept) in state.heads.iter().filter(|(head, _)| !fresh.contains_key(head)) {
            contents.note_kept(*head, &kept.clones);
        }
        fresh.iter().for_each(|(head, read)| {
            read.iter().for_each(|read| contents.note_read(*head, read));
        });
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

    fn update(&self, list: &List) -> Result<(State, Fresh, Failures)> {
        let file = &mut *list.file.lock();
        // Those that come later are found by the next look.
        let changes = list.changes.swap(0, Ordering::AcqRel);
        let updated = self.update_file(list, file);
        updated.inspect_err(|_| _ = list.changes.fetch_add(changes.max(1), Ordering::AcqRel))
    }

    fn update_file(&self, list: &List, file: &mut File) -> Result<(State, Fresh, Failures)> {
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let txg = live.txgs().synced();
        let mut state = list.read(file);
        let Some(heads) = self.to_read(list, &state, txg)? else {
            let (all, failures) = self.read_all()?;
            state.heads = all.iter().map(|(head, read)| (*head, read.kept(*head))).collect();
            // What can't be read must not be forgotten.
            if failures.is_empty() {
                list.write_anew(file, &state.heads, txg)?;
            }
            return Ok((state, all.into_iter().map(|(head, read)| (head, Some(read))).collect(), failures));
        };
        let (mut fresh, mut failures) = self.read_heads(heads);
        // One that is gone may be there under another name.
        let has_moved = |(head, read): (&Head, &Option<Read>)| {
            let dir = read.as_ref().map(|read| read.kept(*head).objects[0]);
            state.heads.get(head).is_some_and(|kept| dir != Some(kept.objects[0]))
        };
        if fresh.iter().any(has_moved) {
            let mut more = self.not_in(&state)?;
            more.retain(|head| !fresh.contains_key(head));
            let (found, failed) = self.read_heads(more);
            fresh.extend(found);
            failures.extend(failed);
        }
        let mut entries = Vec::new();
        for (head, read) in &fresh {
            let now = read.as_ref().map(|read| read.kept(*head));
            let was = match &now {
                Some(now) => state.heads.insert(*head, now.clone()),
                None => state.heads.remove(head),
            };
            if was != now {
                entries.push(now.map_or(Entry::Gone(*head), |now| Entry::Head(*head, now)));
            }
        }
        if !failures.is_empty() {
            return Ok((state, fresh, failures));
        }
        let old = (file.entries + entries.len()).saturating_sub(state.heads.len());
        if old > MOST_OLD && old > state.heads.len() {
            list.write_anew(file, &state.heads, txg)?;
        } else {
            list.append(file, entries, txg)?;
        }
        Ok((state, fresh, failures))
    }

    /// The file systems that may not be as the list has them. `None`: it is quicker to read all.
    fn to_read(&self, list: &List, state: &State, synced: Txg) -> Result<Option<BTreeSet<Head>>> {
        if state.txg == Txg(0) || state.txg > synced {
            return Ok(None);
        }
        let pool = |error: dmu::Error| Error::from(poolhouse::Error::from(dsl::Error::from(error)));
        let (mos, mut changed) = (self.pool.dsl().mos().objset(), Changed::default());
        for change in mos.changes_since(state.txg, ObjNum(1)) {
            match change.map_err(pool)? {
                Change::Used(object) => _ = changed.used.insert(object.0),
                Change::Free(first, last) => changed.free.push((first.0, last.0)),
            }
            if changed.used.len() > MOST_CHANGES.max(state.heads.len()) {
                return Ok(None);
            }
        }
        let mut heads = BTreeSet::new();
        let mut known = HashSet::from([list.dir]);
        for (head, kept) in &state.heads {
            if kept.read_again || kept.objects.iter().any(|object| changed.has(*object)) {
                heads.insert(*head);
                known.insert(kept.objects[0]);
            }
        }
        // Directories that the list does not have.
        let is_new = |object: &u64| match mos.dnode(ObjNum(*object)) {
            Ok(dnode) if dnode.bonus_kind() == DmuType::DSL_DIR => {
                Ok(DslDirPhys::decode(dnode.bonus()).is_ok_and(|phys| phys.parent_obj == list.owner.1))
            }
            // It was freed since.
            Ok(_) | Err(dmu::Error::NoSuchObject { .. }) => Ok(false),
            Err(error) => Err(pool(error)),
        };
        for object in changed.used.difference(&known) {
            if is_new(object)? {
                heads.extend(self.not_in(state)?);
                break;
            }
        }
        Ok(Some(heads))
    }

    /// The file systems that the list does not have.
    fn not_in(&self, state: &State) -> Result<BTreeSet<Head>> {
        let children = || self.pool.dsl().dir(&self.dataset)?.child_objects();
        let children = self.pool.spa().read(children).map_err(poolhouse::Error::from)?;
        let heads = children.iter().filter_map(|(name, _)| Head::parse(name));
        Ok(heads.filter(|head| !state.heads.contains_key(head)).collect())
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
mod tests {
    use super::*;
    use crate::partition::PartitionId;
    use crate::server::header::Stored;
    use crate::server::store::Found;
    use poolhouse::Pool;

    fn stored(id: u32) -> Stored {
        let mut stored = Stored::default();
        stored.header.id = VolumeId(id);
        stored.header.name = b"v".to_vec();
        stored
    }

    fn heads(ids: &[u32]) -> BTreeSet<Head> {
        ids.iter().map(|id| Head::of(VolumeId(*id))).collect()
    }

    /// A partition with these volumes.
    struct Rig {
        _dir: tempfile::TempDir,
        pool: Pool,
        partition: Arc<Partition>,
        list: Arc<List>,
    }

    impl Rig {
        fn new(ids: impl Iterator<Item = u32>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let image = dir.path().join("d0");
            std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
            let pool = Pool::create("cell", &[&[&image]]).unwrap();
            pool.create_filesystem("cell/vicepa").unwrap();
            let partition = Partition::begin(PartitionId(0), pool.clone(), "cell/vicepa").unwrap();
            for id in ids {
                drop(partition.create(VolumeId(id), &stored(id)).unwrap());
                partition.finish(VolumeId(id), None, true).unwrap();
            }
            let list = partition.list().unwrap();
            Self { _dir: dir, pool, partition, list }
        }

        fn synced(&self) -> Txg {
            self.pool.spa().writer().unwrap().txgs().synced()
        }

        fn to_read(&self) -> Option<BTreeSet<Head>> {
            let state = self.list.read(&mut self.list.file.lock());
            self.partition.to_read(&self.list, &state, self.synced()).unwrap()
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
        drop(partition.create(VolumeId(3200), &stored(3200)).unwrap());
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
                list.write(file.object, 0, &bytes).unwrap();
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

    fn bytes(entries: &[Entry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.write(&mut bytes));
        bytes
    }

    /// Goal: a file gives its entries back, the last one of a file system counts, and a group
    /// without its end does not.
    #[test]
    fn groups() {
        let head = |id, gone| Head { volume: VolumeId(id), gone };
        let kept = |object: u64, clones: &[u32]| Kept {
            objects: [object, 1, 2, 1 << 40],
            clones: clones.iter().copied().map(VolumeId).collect(),
            read_again: object == 9,
        };
        let (one, two) = (head(7, None), head(7, Some(3)));
        let whole = bytes(&[
            Entry::Head(one, kept(8, &[])),
            Entry::Head(two, kept(9, &[10, 11])),
            Entry::End(Txg(1 << 33), (1, 2)),
            Entry::Head(one, kept(12, &[13])),
            Entry::End(Txg(5), (1 << 40, 7)),
        ]);
        let (state, end, entries) = State::parse(&whole);
        assert_eq!((state.txg, state.owner), (Txg(5), (1 << 40, 7)));
        assert_eq!((end, entries), (whole.len() as u64, 3));
        let expected = HashMap::from([(one, kept(12, &[13])), (two, kept(9, &[10, 11]))]);
        assert_eq!(state.heads, expected);
        let more = [whole.clone(), bytes(&[Entry::Gone(two), Entry::Gone(one)])].concat();
        for cut in [more.len(), more.len() - 5, whole.len() + 4] {
            let (state, end, _) = State::parse(&more[..cut]);
            assert_eq!((state.heads.len(), end), (2, whole.len() as u64), "{cut}");
        }
        let gone = [more, bytes(&[Entry::End(Txg(6), (1, 2))])].concat();
        assert_eq!(State::parse(&gone).0.heads.len(), 0);
    }

    /// Goal: hostile bytes make no list, and take no memory.
    #[test]
    fn hostile_bytes() {
        let mut many = bytes(&[Entry::Head(
            Head::of(VolumeId(1)),
            Kept { objects: [1; 4], clones: Vec::new(), read_again: false },
        )]);
        many[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        many.extend(bytes(&[Entry::End(Txg(1), (1, 2))]));
        for bytes in [&many[..], &[0xff; 64], &[0; 64], &[]] {
            let (state, end, entries) = State::parse(bytes);
            assert_eq!((state.heads.len(), end, entries), (0, 0, 0));
        }
    }

    /// Goal: an object is changed if it is there or in a range of free numbers.
    #[test]
    fn changed_objects() {
        let changed = Changed { used: HashSet::from([5]), free: vec![(8, 9), (20, 20)] };
        let all: Vec<u64> = (0..25).filter(|object| changed.has(*object)).collect();
        assert_eq!(all, [5, 8, 9, 20]);
    }
}
