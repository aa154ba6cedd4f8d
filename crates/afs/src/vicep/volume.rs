//! A volume of a partition, and its dump.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::index::{Index, read_at, unreadable};
use super::layout::{DiskVnode, HEAD_SIZE, Head, INFO_SIZE, Info, VI_INFO};
use super::{Damage, Error, FILES, Part, Partition, Result, file_in, folder_in, names};
use crate::dir::{Directory, MAX_PAGES, PAGE_SIZE};
use crate::dump::{Header, MAX_LENGTH, Span, VnodeRecord, Writer, dump_size, record_size};
use crate::types::{Date, Vnode, VnodeType, VolumeId};
use crate::volume::blocks;
use crate::volume::tree::{Known, Tree};
use crate::{Place, Record};

/// Bytes of data that are read at once.
const PIECE: usize = 1 << 20;
/// Longest target of a symbolic link.
const TARGET_MAX: u64 = 4095;

/// A volume, open for reading.
#[derive(Debug)]
pub struct Volume {
    /// What its server knew of it.
    pub info: Info,
    /// The bytes of its information.
    info_bytes: Vec<u8>,
    /// The folder of its group, and that folder's path in the partition.
    group: (OwnedFd, String),
    /// The folder of the group's special files.
    special: OwnedFd,
    small: Index,
    large: Index,
    /// The folder of the last vnode's data, and its names.
    last: RefCell<Option<([u32; 2], Rc<OwnedFd>)>>,
}

/// What a volume has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Survey {
    /// The size of its dump in bytes.
    pub bytes: u64,
    /// Its vnodes.
    pub vnodes: u64,
    /// How many parts are missing or damaged.
    pub damaged: u64,
}

/// Why a dump can't be made.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// A part of the volume is damaged.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The output can't be written, or a value can't be in a dump.
    #[error(transparent)]
    Dump(#[from] crate::Error),
}

/// A record of this size at the beginning of a file, which may be longer.
fn record(file: &File, name: &str, size: usize) -> std::result::Result<Vec<u8>, Damage> {
    let mut bytes = vec![0; size];
    let read = read_at(file, &mut bytes, 0).map_err(|source| unreadable(name, source))?;
    bytes.truncate(read);
    Ok(bytes)
}

impl Volume {
    pub(super) fn open(partition: &Partition, id: VolumeId) -> Result<Self> {
        let name = names::head(id);
        let head = file_in(&partition.root, &name, &name)
            .and_then(|(file, _)| Head::decode(&record(&file, &name, HEAD_SIZE)?, id))
            .map_err(|damage| damage.of(Part::Head))?;
        let [first, second] = names::group(head.parent);
        let path = format!("{FILES}/{first}/{second}");
        let special = folder_in(&partition.root, FILES, FILES)
            .and_then(|folder| folder_in(folder, &first, &format!("{FILES}/{first}")))
            .and_then(|folder| folder_in(folder, &second, &path))
            .and_then(|group| Ok((folder_in(&group, "special", &format!("{path}/special"))?, group)));
        let (special, group) = special.map_err(|damage| damage.of(Part::Info))?;
        let open = |file: u64, part: Part| {
            let name = names::flipped(file);
            let path = format!("{path}/special/{name}");
            let opened = file_in(&special, &name, &path).map_err(|damage| damage.of(part));
            opened.map(|opened| (opened, path))
        };
        let [info, small, large] = head.files();
        let ((file, _), name) = open(info, Part::Info)?;
        let info_bytes = record(&file, &name, INFO_SIZE).map_err(|damage| damage.of(Part::Info))?;
        let info = Info::decode(&info_bytes, head).map_err(|damage| damage.of(Part::Info))?;
        let (opened, name) = open(small, Part::SmallIndex)?;
        let small = Index::new(opened, name, false)?;
        let (opened, name) = open(large, Part::LargeIndex)?;
        let large = Index::new(opened, name, true)?;
        let (group, last) = ((group, path), RefCell::default());
        Ok(Self { info, info_bytes, group, special, small, large, last })
    }

    /// Checks that the information is as it was when the volume was opened. A server that begins to
    /// use the volume changes it (`inUse`).
    fn check_info(&self) -> std::result::Result<(), Damage> {
        let name = names::flipped(names::special(self.info.header.id, VI_INFO));
        let path = format!("{}/special/{name}", self.group.1);
        let (file, _) = file_in(&self.special, &name, &path)?;
        match record(&file, &path, INFO_SIZE)? == self.info_bytes {
            true => Ok(()),
            false => Err(Damage::Changed { file: path }),
        }
    }

    /// Calls `each` with the vnodes in the order of a dump, and with what is damaged.
    fn each<E>(
        &self,
        each: &mut dyn FnMut(Result<DiskVnode>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.large.each(each)?;
        self.small.each(each)
    }

    /// The folder with the data of a vnode.
    fn folder(&self, vnode: Vnode) -> std::result::Result<Rc<OwnedFd>, Damage> {
        let numbers = names::folders(vnode);
        let mut last = self.last.borrow_mut();
        if let Some((_, folder)) = last.as_ref().filter(|(of, _)| *of == numbers) {
            return Ok(Rc::clone(folder));
        }
        let [first, second] = numbers.map(|number| names::flipped(number.into()));
        let (group, path) = &self.group;
        let outer = folder_in(group, &first, &format!("{path}/{first}"))?;
        let folder = Rc::new(folder_in(outer, &second, &format!("{path}/{first}/{second}"))?);
        *last = Some((numbers, Rc::clone(&folder)));
        Ok(folder)
    }

    /// The path in the partition of the file with the data of a vnode.
    fn path(&self, vnode: &DiskVnode) -> String {
        let [first, second] = names::folders(vnode.vnode).map(|number| names::flipped(number.into()));
        format!("{}/{first}/{second}/{}", self.group.1, names::flipped(vnode.file))
    }

    /// The file with the data of a vnode. It has the length that the index says.
    fn data(&self, vnode: &DiskVnode) -> std::result::Result<File, Damage> {
        let folder = self.folder(vnode.vnode)?;
        let (file, found) = file_in(&*folder, &names::flipped(vnode.file), &self.path(vnode))?;
        let most = match vnode.attributes.kind {
            VnodeType::Directory => (MAX_PAGES * PAGE_SIZE) as u64,
            VnodeType::Symlink => TARGET_MAX,
            VnodeType::File => MAX_LENGTH,
        };
        match vnode.length {
            wanted if wanted != found => Err(Damage::Length { found, wanted }),
            0 if vnode.attributes.kind == VnodeType::Symlink => Err(Damage::Length { found: 0, wanted: 1 }),
            length if length > most => Err(Damage::Field { field: "length", value: length }),
            _ => Ok(file),
        }
    }

    /// Checks a vnode: that its data are there, and that a directory is one. Adds it to the tree.
    fn check_vnode(&self, vnode: &DiskVnode, tree: &mut Tree) -> std::result::Result<(), Damage> {
        let file = self.data(vnode)?;
        let DiskVnode { vnode: number, unique, ref attributes, length, .. } = *vnode;
        let (kind, links, at) = (Some(attributes.kind), attributes.link_count, 0);
        let known = Known { unique, kind, parent: attributes.parent, links, at, is_new: true };
        tree.insert(number, known, blocks(length))?;
        if vnode.attributes.kind == VnodeType::Directory {
            let mut blob = vec![0; usize::try_from(vnode.length).expect("checked with the file")];
            let read =
                read_at(&file, &mut blob, 0).map_err(|source| unreadable(&self.path(vnode), source))?;
            let directory = Directory::new(&blob[..read])?;
            for entry in directory.entries().filter(|entry| !matches!(entry.name, b"." | b"..")) {
                tree.name(number, entry.vnode, entry.unique, at)?;
            }
        }
        Ok(())
    }

    fn dump_header(&self) -> Header {
        let header = &self.info.header;
        // As OpenAFS writes it: a full dump has changes since the beginning.
        let span = Span { from: Date(0), to: header.update_date };
        Header { volume: header.id, name: header.name.clone(), spans: vec![span] }
    }

    /// Looks at all vnodes, and calls `note` with each part that is missing or damaged. The data of
    /// files are not read, but the directories are. If nothing else is damaged, the first vnode is
    /// noted that is not where it should be in the tree.
    pub fn check(&self, note: &mut dyn FnMut(Error)) -> Survey {
        let (mut survey, mut tree) = (Survey::default(), Tree::default());
        let mut each = |found: Result<DiskVnode>| {
            let checked = found.and_then(|vnode| {
                let part = Part::Vnode(vnode.vnode);
                self.check_vnode(&vnode, &mut tree).map_err(|damage| match damage {
                    Damage::Format(error @ crate::Error::Shape { .. }) => of_tree(error),
                    damage => damage.of(part),
                })?;
                Ok(record_of(vnode))
            });
            match checked {
                Ok(record) => {
                    survey.vnodes += 1;
                    survey.bytes = survey.bytes.saturating_add(record_size(&record));
                }
                Err(error) => {
                    survey.damaged += 1;
                    note(error);
                }
            }
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = self.each(&mut each);
        if survey.damaged == 0
            && let Err(error) = tree.check(0)
        {
            survey.damaged = 1;
            note(of_tree(error));
        }
        let heads = dump_size(&self.dump_header(), &self.info.header, []);
        survey.bytes = survey.bytes.saturating_add(heads);
        survey
    }

    /// Writes the full dump of the volume.
    ///
    /// # Errors
    /// * [`DumpError::Volume`]: a part is damaged, or changed meanwhile. The dump ends there.
    /// * [`DumpError::Dump`]: the output can't be written.
    pub fn dump<W: Write>(&self, to: W) -> std::result::Result<W, DumpError> {
        let mut writer = Writer::new(to);
        writer.header(&self.dump_header())?;
        writer.volume(&self.info.header)?;
        let mut piece = vec![0; PIECE];
        self.each(&mut |found| self.dump_vnode(found?, &mut piece, &mut writer))?;
        self.check_info().map_err(|damage| damage.of(Part::Info))?;
        Ok(writer.end()?)
    }

    fn dump_vnode<W: Write>(
        &self,
        vnode: DiskVnode,
        piece: &mut [u8],
        writer: &mut Writer<W>,
    ) -> std::result::Result<(), DumpError> {
        let (part, length) = (Part::Vnode(vnode.vnode), vnode.length);
        let path = self.path(&vnode);
        let file = self.data(&vnode).map_err(|damage| damage.of(part))?;
        writer.vnode(&record_of(vnode))?;
        let mut at = 0;
        while at < length {
            let wanted = usize::try_from(length - at).unwrap_or(PIECE).min(PIECE);
            let read = read_at(&file, &mut piece[..wanted], at);
            let read = read.map_err(|source| unreadable(&path, source).of(part))?;
            writer.data(&piece[..read])?;
            at += read as u64;
            if read < wanted {
                return Err(Damage::Length { found: at, wanted: length }.of(part).into());
            }
        }
        Ok(())
    }
}

/// What the check of the tree says, without places of a dump.
fn of_tree(error: crate::Error) -> Error {
    match error {
        crate::Error::Shape { place: Place { record: Record::Vnode(vnode), .. }, why } => {
            Damage::Tree { why }.of(Part::Vnode(vnode))
        }
        error => Damage::Format(error).of(Part::LargeIndex),
    }
}

fn record_of(vnode: DiskVnode) -> VnodeRecord {
    VnodeRecord { vnode: vnode.vnode, unique: vnode.unique, attributes: Some(vnode.attributes) }
}
