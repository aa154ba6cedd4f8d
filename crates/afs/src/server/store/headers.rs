//! The headers of its volumes that a partition keeps on disk.
//!
//! # Theory
//! `vos listvol` needs the header of each volume. To read one takes opening a file system, or the
//! properties of a snapshot. So the headers are kept in a second file beside the list
//! ([`super::kept`]), as they were in some txg. A header changes with an object of the MOS: that of
//! a volume with its dataset, and that of a clone with the snapshot's properties. So a listing
//! reads the file, and only those headers again that may have changed since.
//!
//! A header in memory may be newer than that of the file, which is left out once it is found to be
//! old. What is missing for this or another reason is read from the volume itself.
//!
//! # On disk
//! A [`Log`] beside the list:
//!
//! | entry | words |
//! | --- | --- |
//! | a file system | 1; volume; flags; number; headers that follow; 2 objects |
//! | a header | volume; bytes; 2 objects; the bytes, padded |
//! | a file system that is gone | 2; volume; flags; number |
//!
//! An object has two words, and is 0 if there is none. Those of a file system are its directory and
//! the names of its snapshots: a rename changes them. Those of a header are the dataset or
//! snapshot, and the properties of a snapshot. The bytes are those of [`Stored::encode`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use observe::lock::Mutex;
use ondisk::Txg;

use super::entry::{Changed, Entry, GONE, HEAD, MOST_CLONES, Owner};
use super::kept::{List, MANY_CHANGES};
use super::log::{END, Log, MOST_BYTES, put, put_wide, wide};
use super::{Found, Head, Partition};
use crate::server::header::Stored;
use crate::server::{Result, chain};
use crate::types::VolumeId;

/// The longest header.
const MOST_HEADER: u32 = 1 << 16;
/// The file is written anew when so many of its entries are old, and they are the larger part.
const MOST_OLD: usize = 10_000;
/// Most threads that read headers: they wait for the pool.
const READERS: usize = 16;
/// Headers that one thread takes at a time.
const BATCH: usize = 64;

/// Headers of volumes, as they were at a moment.
#[derive(Debug, Default)]
pub struct Headers {
    /// The file.
    bytes: Vec<u8>,
    /// Where in it the last entry of each file system begins.
    entries: HashMap<Head, usize>,
    txg: Txg,
    owner: Owner,
}

/// A header in the file.
struct One<'a> {
    id: VolumeId,
    objects: [u64; 2],
    bytes: &'a [u8],
}

/// Words of a part of the file.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Words<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let word = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_le_bytes(*word))
    }
}

impl<'a> Words<'a> {
    /// The count of headers and the objects of a file system.
    fn begin(&mut self) -> Option<(u32, [u64; 2])> {
        let count = self.next().filter(|count| *count <= MOST_CLONES + 1)?;
        Some((count, [wide(self)?, wide(self)?]))
    }

    fn one(&mut self) -> Option<One<'a>> {
        let (id, length) = (VolumeId(self.next()?), self.next()?);
        let objects = [wide(self)?, wide(self)?];
        if length > MOST_HEADER {
            return None;
        }
        let bytes = self.bytes.get(self.at..self.at + length as usize)?;
        self.at += (length as usize).next_multiple_of(4);
        Some(One { id, objects, bytes })
    }
}

impl Headers {
    /// The complete groups of a file, with their end and how many entries they have.
    fn parse(bytes: Vec<u8>) -> (Self, u64, usize) {
        let mut found = Self::default();
        let (mut end, mut count, mut group) = (0, 0, Vec::new());
        let mut words = Words { bytes: &bytes, at: 0 };
        while let Some(kind) = words.next() {
            if kind == END {
                let (Some(txg), Some(pool), Some(dir)) =
                    (wide(&mut words), wide(&mut words), wide(&mut words))
                else {
                    break;
                };
                count += group.len();
                for (head, at) in group.drain(..) {
                    match at {
                        Some(at) => found.entries.insert(head, at),
                        None => found.entries.remove(&head),
                    };
                }
                (found.txg, found.owner, end) = (Txg(txg), (pool, dir), words.at);
                continue;
            }
            let Some((head, _)) = Entry::head(&mut words) else { break };
            let at = words.at;
            match kind {
                HEAD => {
                    let Some((headers, _)) = words.begin() else { break };
                    if (0..headers).any(|_| words.one().is_none()) {
                        break;
                    }
                    group.push((head, Some(at)));
                }
                GONE => group.push((head, None)),
                _ => break,
            }
        }
        (Self { bytes, ..found }, end as u64, count)
    }

    /// The headers of a file system.
    fn of(&self, head: Head) -> impl Iterator<Item = One<'_>> {
        let at = self.entries.get(&head).copied();
        let mut words = Words { bytes: &self.bytes, at: at.unwrap_or(self.bytes.len()) };
        let count = words.begin().map_or(0, |(count, _)| count);
        (0..count).map_while(move |_| words.one())
    }

    /// The header of a volume or clone. `None`: only the volume itself has it.
    pub fn get(&self, found: Found) -> Option<Stored> {
        let one = self.of(found.head()).find(|one| one.id == found.id())?;
        Stored::decode(one.bytes).ok()
    }

    /// The entry of a file system, from its count on.
    fn part(&self, head: Head) -> &[u8] {
        let at = self.entries.get(&head).copied().unwrap_or(self.bytes.len());
        let mut words = Words { bytes: &self.bytes, at };
        let count = words.begin().map_or(0, |(count, _)| count);
        (0..count).for_each(|_| _ = words.one());
        &self.bytes[at..words.at]
    }

    /// How many file systems have headers here.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the headers of a file system are those of its volume and clones, and as they were.
    /// Those of `in_memory` need not be there, but none may be an old one: later lists ask for
    /// later changes.
    fn is_right(
        &self,
        head: Head,
        clones: &[VolumeId],
        changed: &Changed,
        in_memory: &HashSet<VolumeId>,
    ) -> bool {
        let mut ids = volumes_of(head, clones).map(Found::id).filter(|id| !in_memory.contains(id)).peekable();
        let mut ones = self.of(head).peekable();
        if ids.peek().is_none() && ones.peek().is_none() {
            return true;
        }
        let Some(at) = self.entries.get(&head).copied() else { return false };
        let objects = Words { bytes: &self.bytes, at }.begin().map(|(_, objects)| objects);
        let has_changed = |objects: &[u64; 2]| objects.iter().any(|object| changed.has(*object));
        if objects.is_none_or(|objects| has_changed(&objects)) {
            return false;
        }
        let same = |one: One<'_>| {
            let is_known = in_memory.contains(&one.id) || ids.next() == Some(one.id);
            is_known && !has_changed(&one.objects)
        };
        ones.all(same) && ids.next().is_none()
    }

    /// Appends an entry. Returns whether it differs from the last one.
    fn push(&mut self, head: Head, headers: &[u8]) -> bool {
        let at = self.entries.get(&head).copied();
        if at.is_some_and(|at| self.bytes[at..].starts_with(headers)) {
            return false;
        }
        put(&mut self.bytes, &[HEAD]);
        put(&mut self.bytes, &Entry::words(head, 0));
        self.entries.insert(head, self.bytes.len());
        self.bytes.extend_from_slice(headers);
        true
    }
}

/// The volumes and clones of a file system, in the order of the file.
fn volumes_of(head: Head, clones: &[VolumeId]) -> impl Iterator<Item = Found> + '_ {
    let itself = head.gone.is_none().then_some(Found::Dataset(head.volume));
    itself.into_iter().chain(clones.iter().map(move |id| Found::Snapshot { head, id: *id }))
}

impl Partition {
    /// The headers of its volumes but for `in_memory`. `None`: the partition keeps none, or its
    /// pool does not answer.
    ///
    /// `in_memory` are at least those whose headers memory had when the caller began. Only they may
    /// have one that is not on disk yet. Some headers are missing if the use of the partition ends
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool), [`Error::Files`](crate::server::Error::Files):
    /// the list or the headers can't be read.
    pub fn headers(&self, in_memory: &HashSet<VolumeId>) -> Result<Option<Headers>> {
        let Some(list) = self.list().filter(|_| !self.is_stuck()) else { return Ok(None) };
        // A volume that was closed has left its header to a transaction group.
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        live.txgs().wait_synced(self.last_header()).map_err(poolhouse::Error::from)?;
        let mut log = list.headers.lock();
        let listed = self.update(&list)?;
        let bytes = log.bytes(&list.fs).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "the headers of volumes can't be read, and are kept anew");
            Vec::new()
        });
        let (mut headers, end, entries) = Headers::parse(bytes);
        (log.end, log.entries) = (end, entries);
        let usable = headers.owner == list.owner && headers.txg > Txg(0) && headers.txg <= listed.txg;
        let changed = if usable { self.changed_since(headers.txg, listed.len())? } else { None };
        let is_new = changed.is_none();
        let changed = changed.unwrap_or_default();
        if is_new {
            headers = Headers::default();
        }
        // Appended groups follow the last one that is complete.
        headers.bytes.truncate(log.end as usize);
        let begin = headers.bytes.len();
        let mut gone: HashSet<Head> = headers.entries.keys().copied().collect();
        let mut wrong = Vec::new();
        for (head, clones) in listed.each() {
            gone.remove(&head);
            if is_new || !headers.is_right(head, &clones, &changed, in_memory) {
                wrong.push((head, clones.into_owned()));
            }
        }
        for head in &gone {
            headers.entries.remove(head);
            put(&mut headers.bytes, &[GONE]);
            put(&mut headers.bytes, &Entry::words(*head, 0));
        }
        let mut read = self.read_headers(&list, &wrong, in_memory);
        read.sort_unstable_by_key(|(head, _)| *head);
        let count = read.iter().filter(|(head, bytes)| headers.push(*head, bytes)).count() + gone.len();
        if list.is_ending() {
            return Ok(Some(headers));
        }
        Self::keep_headers(
            &list,
            &mut log,
            &mut headers,
            (begin, count, is_new, changed.count()),
            listed.txg,
        );
        Ok(Some(headers))
    }

    /// Writes what a listing has read.
    fn keep_headers(
        list: &List,
        log: &mut Log,
        headers: &mut Headers,
        (begin, count, is_new, changes): (usize, usize, bool, usize),
        txg: Txg,
    ) {
        if headers.bytes.len() as u64 > MOST_BYTES || (count == 0 && changes < MANY_CHANGES && !is_new) {
            return;
        }
        let end = |bytes: &mut Vec<u8>| {
            put(bytes, &[END]);
            [txg.0, list.owner.0, list.owner.1].iter().for_each(|number| put_wide(bytes, *number));
        };
        let old = (log.entries + count).saturating_sub(headers.len());
        let written = if is_new || (old > MOST_OLD && old > headers.len()) {
            let mut whole = Headers::default();
            let mut heads: Vec<Head> = headers.entries.keys().copied().collect();
            heads.sort_unstable();
            for head in heads {
                whole.push(head, headers.part(head));
            }
            end(&mut whole.bytes);
            let written = log.write_anew(&list.fs, &whole.bytes, whole.len());
            *headers = whole;
            written
        } else {
            end(&mut headers.bytes);
            log.append(&list.fs, &headers.bytes[begin..], count)
        };
        if let Err(error) = written {
            tracing::warn!(error = chain(&error), "the headers of volumes can't be kept");
        }
    }

    /// The entries of file systems, without what can't be read.
    fn read_headers(
        &self,
        list: &List,
        heads: &[(Head, Vec<VolumeId>)],
        in_memory: &HashSet<VolumeId>,
    ) -> Vec<(Head, Vec<u8>)> {
        let (all, next) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let work = || {
            loop {
                let begin = next.fetch_add(BATCH, Ordering::Relaxed).min(heads.len());
                let batch = &heads[begin..heads.len().min(begin + BATCH)];
                if batch.is_empty() || list.is_ending() {
                    return;
                }
                let read =
                    batch.iter().map(|(head, clones)| (*head, self.read_entry(*head, clones, in_memory)));
                let read: Vec<_> = read.collect();
                all.lock().extend(read);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..READERS.min(heads.len().div_ceil(BATCH)) {
                // Fewer threads do the same work, only slower.
                let _ = std::thread::Builder::new().name("afs-headers".into()).spawn_scoped(scope, work);
            }
            work();
        });
        all.into_inner()
    }

    /// The headers of a file system, as its entry has them.
    fn read_entry(&self, head: Head, clones: &[VolumeId], in_memory: &HashSet<VolumeId>) -> Vec<u8> {
        let (mut bytes, mut count) = (vec![0; 4], 0u32);
        let objects = self.objects_of(head).unwrap_or_default();
        objects.iter().for_each(|object| put_wide(&mut bytes, *object));
        for found in volumes_of(head, clones).filter(|found| !in_memory.contains(&found.id())) {
            // A listing then reads the volume itself, and gets the error.
            let Ok((header, objects)) = self.header_and_objects(found) else { continue };
            if header.len() > MOST_HEADER as usize {
                continue;
            }
            put(&mut bytes, &[found.id().0, header.len() as u32]);
            objects.iter().for_each(|object| put_wide(&mut bytes, *object));
            bytes.extend_from_slice(&header);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            count += 1;
        }
        bytes[..4].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    /// The objects that change with the names of a file system and of its clones.
    fn objects_of(&self, head: Head) -> Result<[u64; 2]> {
        let dataset = self.pool.dataset(&self.head_name(head))?;
        Ok([dataset.dsl().dir().object().0, dataset.dsl().phys().snapnames_zapobj])
    }

    fn header_and_objects(&self, found: Found) -> Result<(Vec<u8>, [u64; 2])> {
        let objects = match found {
            Found::Dataset(id) => [self.pool.dataset(&self.name(id))?.dsl().object().0, 0],
            Found::Snapshot { head, id } => {
                let snapshot = self.pool.dataset(&self.snapshot_name(head, id))?;
                [snapshot.dsl().object().0, snapshot.dsl().phys().props_obj]
            }
        };
        // After the objects: a change between the two is of a later txg.
        Ok((self.stored(found)?.encode()?, objects))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{Rig, stored};
    use super::*;
    use dsl::ops::rename::{Rename, RenameSnapshot};

    fn named(id: u32, name: &[u8]) -> Stored {
        let mut stored = stored(id);
        stored.header.name = name.to_vec();
        stored
    }

    impl Rig {
        /// The headers, which are those that the volumes have.
        fn headers(&self) -> Headers {
            let headers = self.partition.headers(&HashSet::new()).unwrap().unwrap();
            let contents = self.partition.contents_by(&self.list).unwrap();
            for found in &contents.volumes {
                assert_eq!(headers.get(*found), Some(self.partition.stored(*found).unwrap()), "{found:?}");
            }
            let heads: HashSet<Head> = contents.volumes.iter().map(|found| found.head()).collect();
            assert!(headers.entries.keys().all(|head| heads.contains(head) || head.gone.is_some()));
            headers
        }

        /// How many entries the next listing writes.
        fn writes(&self) -> usize {
            let before = self.list.headers.lock().entries;
            self.headers();
            self.list.headers.lock().entries - before
        }

        /// Changes the header of a volume, as one that is closed.
        fn change(&self, id: u32, name: &[u8]) {
            let fs = self.partition.fs(VolumeId(id)).unwrap();
            let txg = named(id, name).write(&fs).unwrap();
            drop(fs);
            self.partition.note_closed(txg);
        }
    }

    /// Goal: a listing has what the volumes have after any change, and reads only what changed.
    #[test]
    fn what_changed() {
        let rig = Rig::new((100..=3000).step_by(100));
        let partition = &rig.partition;
        partition.clone_volume(VolumeId(100), &named(102, b"v.backup"), None).unwrap();
        assert_eq!(rig.headers().len(), 30);
        assert_eq!(rig.writes(), 0);
        rig.change(2000, b"w");
        assert_eq!(rig.writes(), 1);
        partition.set_clone_header(Head::of(VolumeId(100)), VolumeId(102), &named(102, b"x.backup")).unwrap();
        assert_eq!(rig.writes(), 1);
        let old = Some(Found::Snapshot { head: Head::of(VolumeId(100)), id: VolumeId(102) });
        partition.clone_volume(VolumeId(100), &named(102, b"y.backup"), old).unwrap();
        assert_eq!(rig.writes(), 1);
        partition.rename(VolumeId(200), VolumeId(201), &named(201, b"z")).unwrap();
        partition.destroy(VolumeId(300)).unwrap();
        // One comes, one goes by a rename, and one goes.
        assert_eq!(rig.writes(), 3);
        let head = partition.destroy(VolumeId(100)).unwrap().unwrap();
        assert_eq!(rig.writes(), 2);
        partition.revive(head, VolumeId(102), &named(100, b"again")).unwrap();
        rig.headers();
        // By other commands.
        rig.pool.destroy("cell/vicepa/3000").unwrap();
        assert_eq!(rig.writes(), 1);
        assert_eq!(rig.headers().len(), 28);
        let rename = |old: &str, new: &str| {
            let [old, new] = [old, new].map(|name| format!("cell/vicepa/{name}"));
            partition.run(vec![Box::new(Rename { old, new, enforce_limits: false })]).unwrap();
        };
        rig.change(400, b"x");
        rename("400", "4000");
        rename("500", "400");
        rename("4000", "500");
        rig.headers();
        let renames = |id: u32, names: &[(&str, &str)]| {
            for (old, new) in names {
                let (dataset, recursive) = (format!("cell/vicepa/{id}"), false);
                let (old, new) = (old.to_string(), new.to_string());
                partition.run(vec![Box::new(RenameSnapshot { dataset, old, new, recursive })]).unwrap();
            }
        };
        partition.clone_volume(VolumeId(600), &named(602, b"one"), None).unwrap();
        partition.clone_volume(VolumeId(600), &named(603, b"two"), None).unwrap();
        rig.headers();
        renames(600, &[("602", "old"), ("603", "602"), ("old", "603")]);
        let found = Found::Snapshot { head: Head::of(VolumeId(600)), id: VolumeId(602) };
        assert_eq!(rig.headers().get(found).unwrap().header.name, b"two");
    }

    /// Goal: headers of volumes in use are left out, without a read of their file systems for each
    /// listing, and are there when the volume is closed.
    #[test]
    fn volumes_in_use() {
        let rig = Rig::new([7, 8].into_iter());
        let used = HashSet::from([VolumeId(7)]);
        let fs = rig.partition.fs(VolumeId(7)).unwrap();
        let found = Found::Dataset(VolumeId(7));
        for _ in 0..2 {
            let headers = rig.partition.headers(&used).unwrap().unwrap();
            assert_eq!((headers.get(found), headers.len()), (None, 2));
            assert_eq!(rig.list.headers.lock().entries, 2);
            let is_right = |used| headers.is_right(found.head(), &[], &Changed::default(), used);
            assert!(is_right(&used) && !is_right(&HashSet::new()));
        }
        rig.partition.note_closed(named(7, b"w").write(&fs).unwrap());
        drop(fs);
        assert_eq!(rig.headers().get(found).unwrap().header.name, b"w");
        assert_eq!(rig.list.headers.lock().entries, 3);
    }

    /// Goal: a header that changes while memory has a newer one does not stay in the file. Nor does
    /// that of a volume that was made again under its number meanwhile.
    #[test]
    fn changes_in_use() {
        let rig = Rig::new([7, 8].into_iter());
        let used = HashSet::from([VolumeId(7)]);
        rig.headers();
        rig.change(7, b"w");
        rig.change(8, b"x");
        // The next listing looks for later changes only.
        rig.partition.headers(&used).unwrap().unwrap();
        rig.headers();
        rig.partition.destroy(VolumeId(7)).unwrap();
        rig.partition.create(VolumeId(7), &named(7, b"again")).unwrap();
        rig.change(8, b"y");
        rig.partition.headers(&used).unwrap().unwrap();
        rig.headers();
    }

    /// Goal: a file of another partition, or of a later txg than the list's, is written anew; and
    /// so is one that can't be read, or with many old entries.
    #[test]
    fn files_of_no_use() {
        let rig = Rig::new([7, 8].into_iter());
        assert_eq!(rig.headers().len(), 2);
        let (pool, dir) = rig.list.owner;
        for (txg, owner) in [(1, (1, dir)), (1, (pool, 1)), (1 << 40, (pool, dir)), (0, (pool, dir))] {
            let mut bytes = Vec::new();
            put(&mut bytes, &[HEAD, 7, 0, 0, 0, 0, 0, 0, 0, END]);
            [txg, owner.0, owner.1].iter().for_each(|number| put_wide(&mut bytes, *number));
            {
                let log = &mut *rig.list.headers.lock();
                log.write_anew(&rig.list.fs, &bytes, 1).unwrap();
            }
            assert_eq!((rig.headers().len(), rig.list.headers.lock().entries), (2, 2));
        }
        let log = || rig.list.headers.lock();
        let mut many = Vec::new();
        (0..=MOST_OLD as u32).for_each(|_| put(&mut many, &[GONE, 9, 0, 0]));
        put(&mut many, &[END]);
        let txg = rig.pool.spa().writer().unwrap().txgs().synced();
        [txg.0, pool, dir].iter().for_each(|number| put_wide(&mut many, *number));
        log().append(&rig.list.fs, &many, MOST_OLD + 1).unwrap();
        rig.change(7, b"w");
        assert_eq!((rig.headers().len(), log().entries), (2, 2));
        let size = rig.list.fs.node(log().object).unwrap().attr().size;
        assert_eq!(size, log().end);
    }

    /// Goal: a group without its end does not count, and hostile bytes make no headers and take no
    /// memory.
    #[test]
    fn groups() {
        let mut bytes = Vec::new();
        let head = Head::of(VolumeId(7));
        let mut headers = Headers::default();
        let header = stored(7).encode().unwrap();
        put(&mut bytes, &[1, 0, 0, 0, 0, 7, header.len() as u32]);
        [0, 0].iter().for_each(|object| put_wide(&mut bytes, *object));
        bytes.extend(&header);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        assert!(headers.push(head, &bytes) && !headers.push(head, &bytes));
        let without_end = headers.bytes.clone();
        put(&mut headers.bytes, &[END]);
        [5, 1, 2].iter().for_each(|number| put_wide(&mut headers.bytes, *number));
        let whole = headers.bytes;
        let (found, end, entries) = Headers::parse(whole.clone());
        assert_eq!((found.txg, found.owner, end, entries), (Txg(5), (1, 2), whole.len() as u64, 1));
        assert_eq!(found.get(Found::Dataset(VolumeId(7))), Some(stored(7)));
        assert_eq!((found.get(Found::Dataset(VolumeId(8))), found.part(head)), (None, &bytes[..]));
        let gone = [&whole[..], &2u32.to_le_bytes(), &7u32.to_le_bytes(), &[0; 8]].concat();
        let (found, end, _) = Headers::parse([&gone[..], &whole[whole.len() - 28..]].concat());
        assert_eq!((found.len(), end), (0, gone.len() as u64 + 28));
        for cut in [gone, [&whole[..], &without_end].concat(), [&whole[..], &whole[..40]].concat()] {
            let (found, end, _) = Headers::parse(cut);
            assert_eq!((found.len(), end), (1, whole.len() as u64));
        }
        let mut many = whole.clone();
        many[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut long = whole.clone();
        long[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut short = whole;
        short[40..44].copy_from_slice(&1u32.to_le_bytes());
        for bytes in [many, long, short, without_end, vec![0xff; 64], vec![0; 64], Vec::new()] {
            let (found, end, _) = Headers::parse(bytes);
            assert_eq!((found.len(), end), (0, 0));
        }
    }
}
