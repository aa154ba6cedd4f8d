//! What volumes contain: the model of a workload, and what a pool really has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afs::acl::Acl;
use afs::dir::Directory;
use afs::dump::{Attributes, Event, Reader};
use afs::types::{Fid, Unique, Vnode, VnodeType, VolumeId, VolumeInfo};

use crate::crash::Point;

pub(super) type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// What there is after a step of an operation.
pub(super) struct State {
    pub(super) what: String,
    pub(super) began: Point,
    /// The operation waited for a commit of the file.
    pub(super) is_durable: bool,
    pub(super) world: World,
}

/// What a client has seen.
pub(super) struct Sight {
    pub(super) fid: Fid,
    pub(super) version: u32,
    pub(super) file: Arc<File>,
    pub(super) from: Point,
}

/// A commit that has returned.
pub(super) struct Mark {
    pub(super) fid: Fid,
    /// The number of the state that it made durable, for this file and the names in its volume.
    pub(super) state: usize,
    pub(super) from: Point,
}

/// A file in its volume.
pub(super) type Id = (Vnode, Unique);

/// The root directory of each volume.
pub(super) const ROOT: Id = (Vnode::ROOT, Unique(1));

/// The bits of a mode that a client sets.
const MODE: u32 = 0o777;

pub(super) fn id(fid: Fid) -> Id {
    (fid.vnode, fid.unique)
}

pub(super) fn fid(volume: VolumeId, (vnode, unique): Id) -> Fid {
    Fid { volume, vnode, unique }
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// A file, with its contents.
    File(Arc<Vec<u8>>),
    /// A symbolic link, with its target.
    Link(Arc<Vec<u8>>),
    /// A directory, with its entries but for `.` and `..`, and its access list.
    Directory(BTreeMap<String, Id>, Acl),
}

/// A file, directory or symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) body: Body,
    /// The directory that has it; of the root, itself.
    pub(super) parent: Id,
    pub(super) links: u32,
    pub(super) mode: u32,
}

impl File {
    pub(super) fn entries(&self) -> Option<&BTreeMap<String, Id>> {
        match &self.body {
            Body::Directory(entries, _) => Some(entries),
            _ => None,
        }
    }

    /// What a client keeps as long as the version is the same: contents, or entries.
    pub(super) fn has_contents_of(&self, other: &Self) -> bool {
        match (&self.body, &other.body) {
            (Body::Directory(one, _), Body::Directory(two, _)) => one == two && self.parent == other.parent,
            (one, two) => one == two,
        }
    }

    /// What a namespace says of it.
    fn place(&self) -> (Option<&BTreeMap<String, Id>>, Id, u32) {
        (self.entries(), self.parent, self.links)
    }

    /// What is its own: contents, mode, access list.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let same = match (&self.body, &other.body) {
            (Body::Directory(_, one), Body::Directory(_, two)) => one == two,
            (one, two) => one == two,
        };
        same && self.mode == other.mode
    }

    /// Whether `found` is this file with the beginning of a write that makes `next` of it. A large
    /// write is in the log as several records, and a crash may leave only the first of them.
    pub(super) fn is_partly(&self, next: &Self, found: &Self) -> bool {
        let (Body::File(old), Body::File(new), Body::File(data)) = (&self.body, &next.body, &found.body)
        else {
            return false;
        };
        let written = data.iter().zip(new.iter()).take_while(|(one, other)| one == other).count();
        let has_rest =
            data.len() == old.len().max(written) && data[written..] == old[written.min(old.len())..];
        has_rest && self.mode == found.mode
    }

    /// A description for people.
    fn words(&self) -> String {
        let body = match &self.body {
            Body::File(data) => format!("file of {} bytes from {:?}", data.len(), &data[..data.len().min(8)]),
            Body::Link(target) => format!("link to {}", String::from_utf8_lossy(target)),
            Body::Directory(entries, acl) => {
                let rights: Vec<u32> = acl.positive().iter().map(|entry| entry.rights.0).collect();
                format!("directory of {} entries, list {rights:?}", entries.len())
            }
        };
        format!("{body}, mode {:o}, {} links, in {}.{}", self.mode, self.links, self.parent.0, self.parent.1)
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Volume {
    pub(super) name: String,
    /// The numbers of [`afs::types::VolumeType`].
    pub(super) kind: i32,
    pub(super) parent: VolumeId,
    pub(super) quota: i32,
    pub(super) files: BTreeMap<Id, Arc<File>>,
}

impl Volume {
    /// Notes what a list says of it.
    pub(super) fn note(&mut self, info: &VolumeInfo) {
        self.name = String::from_utf8_lossy(info.name.as_bytes()).into_owned();
        self.kind = info.kind;
        self.parent = info.parent;
        self.quota = info.quota;
    }

    pub(super) fn file(&mut self, id: Id) -> &mut File {
        Arc::make_mut(self.files.get_mut(&id).expect("the model has it"))
    }

    pub(super) fn entries(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.file(id).body {
            Body::Directory(entries, _) => entries,
            _ => panic!("the model has a directory here"),
        }
    }

    pub(super) fn set_acl(&mut self, id: Id, acl: Acl) {
        match &mut self.file(id).body {
            Body::Directory(_, list) => *list = acl,
            _ => panic!("the model has a directory here"),
        }
    }

    /// The access list of a directory.
    pub(super) fn acl(&self, id: Id) -> Acl {
        match &self.files[&id].body {
            Body::Directory(_, acl) => acl.clone(),
            _ => panic!("the model has a directory here"),
        }
    }

    /// The identity and all but the files.
    pub(super) fn header(&self) -> (&str, i32, VolumeId, i32) {
        (&self.name, self.kind, self.parent, self.quota)
    }

    /// Whether both have the same files with the same names.
    pub(super) fn has_names_of(&self, other: &Self) -> bool {
        let places = |volume: &Self| volume.files.len();
        places(self) == places(other)
            && self
                .files
                .iter()
                .zip(&other.files)
                .all(|((one, a), (two, b))| one == two && a.place() == b.place())
    }

    /// The first differences, for people.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.header() != other.header() {
            all.push(format!("header {:?}, not {:?}", self.header(), other.header()));
        }
        let ids: BTreeSet<&Id> = self.files.keys().chain(other.files.keys()).collect();
        for id in ids {
            let (one, two) = (self.files.get(id), other.files.get(id));
            if one != two {
                let words = |file: Option<&Arc<File>>| file.map_or("nothing".to_owned(), |file| file.words());
                all.push(format!("{}.{}: {}, not {}", id.0, id.1, words(one), words(two)));
            }
        }
        all.truncate(6);
        all
    }
}

/// All volumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct World {
    pub(super) volumes: BTreeMap<VolumeId, Arc<Volume>>,
}

impl World {
    pub(super) fn volume(&mut self, id: VolumeId) -> &mut Volume {
        Arc::make_mut(self.volumes.get_mut(&id).expect("the model has it"))
    }

    pub(super) fn file(&self, fid: Fid) -> Option<&Arc<File>> {
        self.volumes.get(&fid.volume)?.files.get(&id(fid))
    }

    /// The first differences, for people.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let ids: BTreeSet<&VolumeId> = self.volumes.keys().chain(other.volumes.keys()).collect();
        for id in ids {
            match (self.volumes.get(id), other.volumes.get(id)) {
                (Some(one), Some(two)) => {
                    all.extend(one.differences(two).into_iter().map(|text| format!("{id}: {text}")));
                }
                (one, _) => all.push(format!("{id}: {} there", if one.is_some() { "is" } else { "is not" })),
            }
        }
        all.truncate(8);
        all
    }
}

/// The versions of files, as clients see them.
pub(super) type Versions = BTreeMap<Fid, u32>;

/// Takes the files of a volume from its full dump, and adds their versions.
///
/// # Errors
/// The dump is damaged, or its vnodes, entries and counts of links do not agree.
pub(super) fn of_dump(volume: VolumeId, dump: &[u8], versions: &mut Versions) -> Fallible<Volume> {
    let mut found = Volume::default();
    let mut reader = Reader::new(dump);
    let mut last: Option<(Id, Attributes, Vec<u8>)> = None;
    loop {
        let next = match reader.next_event()? {
            Event::Data(data) => {
                last.as_mut().ok_or("data without a vnode")?.2.extend_from_slice(data);
                continue;
            }
            Event::Vnode(record) => {
                let attributes = record.attributes.ok_or("a full dump has a vnode without attributes")?;
                Some(((record.vnode, record.unique), attributes, Vec::new()))
            }
            Event::End => None,
            Event::Header(_) | Event::Volume(_) => continue,
        };
        let is_end = next.is_none();
        if let Some((id, attributes, data)) = std::mem::replace(&mut last, next) {
            versions.insert(fid(volume, id), attributes.data_version.0);
            if found.files.insert(id, Arc::new(file(id, &attributes, data)?)).is_some() {
                return Err(format!("vnode {} is there twice", id.0).into());
            }
        }
        if is_end {
            return Ok(found);
        }
    }
}

/// A file of a dump. Its parent is known by its number only, until the directories are read.
fn file(own: Id, attributes: &Attributes, data: Vec<u8>) -> Fallible<File> {
    let mut parent = (attributes.parent, Unique(0));
    let body = match attributes.kind {
        VnodeType::File => Body::File(Arc::new(data)),
        VnodeType::Symlink => Body::Link(Arc::new(data)),
        VnodeType::Directory => {
            let directory = Directory::new(&data)?;
            if !directory.is_allocation_right() {
                return Err(format!("directory {} has a wrong map", own.0).into());
            }
            let mut entries = BTreeMap::new();
            for entry in directory.entries() {
                let to = (entry.vnode, entry.unique);
                match entry.name {
                    b"." if to == own => {}
                    b"." => return Err(format!("{} is not itself", own.0).into()),
                    b".." => parent = to,
                    name => drop(entries.insert(String::from_utf8_lossy(name).into_owned(), to)),
                }
            }
            Body::Directory(entries, Acl::from_raw(&attributes.acl.ok_or("a directory has no list")?)?)
        }
    };
    let mode = u32::from(attributes.mode) & MODE;
    Ok(File { body, parent, links: attributes.link_count.into(), mode })
}

/// Checks that directories, vnodes and counts of links agree, and that each vnode has a name.
/// Completes the parents of files.
///
/// # Errors
/// What does not agree.
pub(super) fn check(mut volume: Volume) -> Fallible<Volume> {
    let mut names: BTreeMap<Id, (u32, Id)> = BTreeMap::from([(ROOT, (0, ROOT))]);
    for (own, file) in &volume.files {
        for (name, to) in file.entries().into_iter().flatten() {
            let Some(target) = volume.files.get(to) else {
                return Err(format!("{name} in {} names {}.{}, which is not there", own.0, to.0, to.1).into());
            };
            let is_directory = target.entries().is_some();
            let named = names.entry(*to).or_insert((0, *own));
            named.0 += 1;
            let one_place = match is_directory {
                true => named.0 == 1 && target.parent == *own,
                false => named.1 == *own && target.parent.0 == own.0,
            };
            if !one_place {
                return Err(format!("{}.{} is in two directories", to.0, to.1).into());
            }
        }
    }
    let subdirectories = |file: &File| {
        let is_directory = |to: &&Id| volume.files[to].entries().is_some();
        file.entries().map(|entries| entries.values().filter(is_directory).count() as u32)
    };
    for (own, file) in &volume.files {
        let Some((count, _)) = names.get(own) else {
            return Err(format!("{}.{} is an orphan", own.0, own.1).into());
        };
        let links = subdirectories(file).map_or(*count, |count| count + 2);
        if links != file.links {
            return Err(format!("{}.{} has {} links, not {links}", own.0, own.1, file.links).into());
        }
    }
    for (own, file) in &mut volume.files {
        Arc::make_mut(file).parent = names[own].1;
    }
    Ok(volume)
}

#[cfg(test)]
mod tests {
    use super::{Body, File, ROOT};
    use std::sync::Arc;

    /// Goal: a file may have the beginning of a write, and nothing else of it.
    #[test]
    fn beginnings_of_writes() {
        let file =
            |data: &[u8]| File { body: Body::File(Arc::new(data.to_vec())), parent: ROOT, links: 1, mode: 0 };
        let is_partly = |old: &[u8], new: &[u8], found: &[u8]| file(old).is_partly(&file(new), &file(found));
        for found in ["ab", "abC", "abCD", "abCDE"] {
            assert!(is_partly(b"ab", b"abCDE", found.as_bytes()), "{found}");
        }
        for found in ["abcde", "aXYde", "aXYZe"] {
            assert!(is_partly(b"abcde", b"aXYZe", found.as_bytes()), "{found}");
        }
        for found in ["", "a", "abD", "abCDEF", "abCX"] {
            assert!(!is_partly(b"ab", b"abCDE", found.as_bytes()), "{found}");
        }
        assert!(!is_partly(b"abcde", b"aXYZe", b"abcZe"));
        assert!(!is_partly(b"abcde", b"aXYZe", b"aXY"));
    }
}
