//! Making a dump.

use std::io::{self, Write};
use std::ops::Range;

use super::{
    Attributes, BEGIN_MAGIC, END_MAGIC, Header, MAX_LENGTH, MAX_MESSAGE, MAX_NAME, MAX_SPANS, VERSION,
    VnodeRecord, VolumeHeader, section,
};
use crate::types::{Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// Bytes of a vnode that a dump only names.
pub(crate) const NAME_SIZE: u64 = 9;

/// Which section may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Volume,
    Vnodes,
    End,
}

/// An output that can take blocks of files as they are.
pub(crate) trait Output: Write {
    /// Writes a part of a block. The output may keep the block instead of a copy of it.
    fn block<B: AsRef<[u8]> + Clone + Send + Sync + 'static>(
        &mut self,
        block: &B,
        range: Range<usize>,
    ) -> io::Result<()>;
}

/// An output that gets copies.
pub(crate) struct Plain<W>(pub(crate) W);

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write> Output for Plain<W> {
    fn block<B: AsRef<[u8]>>(&mut self, block: &B, range: Range<usize>) -> io::Result<()> {
        self.0.write_all(&block.as_ref()[range])
    }
}

/// Writes a dump with the tags and in the order of OpenAFS's `vos dump`.
///
/// The caller writes the header, the volume header, each vnode followed by its data, and the end.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    at: u64,
    record: Record,
    stage: Stage,
    /// How much data of the last vnode is missing.
    left: u64,
    /// How many bytes at the beginning are not put out.
    skip: u64,
}

impl<W: Write> Writer<W> {
    /// A writer of a dump that goes to `to`.
    pub fn new(to: W) -> Self {
        Self::skipping(to, 0)
    }

    /// A writer that does not put out the first `skip` bytes. Meanwhile it flushes the output again
    /// and again. An error of the output ends the dump, as always.
    pub(crate) fn skipping(to: W, skip: u64) -> Self {
        Self { to, at: 0, record: Record::DumpHeader, stage: Stage::Begin, left: 0, skip }
    }

    /// How many bytes were written, with those that were not put out.
    pub fn offset(&self) -> u64 {
        self.at
    }

    fn place(&self) -> Place {
        Place { record: self.record, at: self.at }
    }

    fn shape<T>(&self, why: &'static str) -> Result<T> {
        Err(Error::Shape { place: self.place(), why })
    }

    /// Begins a record, if the last one is whole and this one may follow.
    fn begin(&mut self, record: Record, after: Stage) -> Result<()> {
        if self.left > 0 {
            return self.shape("the vnode has less data than its length says");
        }
        self.record = record;
        if self.stage == after { Ok(()) } else { self.shape("this section can't come here") }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let skipped = usize::try_from(self.skip.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let bytes = match bytes.split_at_checked(skipped) {
            Some((_, rest)) if skipped == 0 => rest,
            Some((skipped, rest)) => {
                self.pass(skipped.len() as u64)?;
                rest
            }
            None => return self.pass(bytes.len() as u64),
        };
        let place = self.place();
        self.to.write_all(bytes).map_err(|source| Error::Write { place, source })?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Advances without output.
    fn pass(&mut self, bytes: u64) -> Result<()> {
        let place = self.place();
        self.to.flush().map_err(|source| Error::Write { place, source })?;
        self.at += bytes;
        Ok(())
    }

    /// Advances in the data of the last vnode, as far as they are not put out. Returns by how many
    /// bytes. The caller need not read these.
    pub(crate) fn skip_data(&mut self) -> Result<u64> {
        let skipped = self.left.min(self.skip.saturating_sub(self.at));
        if skipped > 0 {
            self.pass(skipped)?;
            self.left -= skipped;
        }
        Ok(skipped)
    }

    fn check_string(&self, string: &[u8], max: usize, field: &'static str) -> Result<()> {
        if string.len() > max {
            return Err(Error::TooLong { place: self.place(), field, max });
        }
        if string.contains(&0) { self.shape("a string has a NUL inside") } else { Ok(()) }
    }

    /// Writes the dump header.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::TooLong`] and [`Error::Shape`] if the header can't be read again.
    pub fn header(&mut self, header: &Header) -> Result<()> {
        self.begin(Record::DumpHeader, Stage::Begin)?;
        self.check_string(&header.name, MAX_NAME, "the volume's name")?;
        if header.spans.len() > MAX_SPANS {
            let place = self.place();
            return Err(Error::TooLong { place, field: "the list of dates", max: 2 * MAX_SPANS });
        }
        if header.volume.0 == 0 || header.spans.is_empty() {
            return self.shape("the dump header has no volume, or no dates");
        }
        self.write(&header_bytes(header))?;
        self.stage = Stage::Volume;
        Ok(())
    }

    /// Writes the volume header.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::TooLong`] and [`Error::Shape`] if the header can't be read again.
    pub fn volume(&mut self, header: &VolumeHeader) -> Result<()> {
        self.begin(Record::VolumeHeader, Stage::Volume)?;
        self.check_string(&header.name, MAX_NAME, "the volume's name")?;
        self.check_string(&header.offline_message, MAX_MESSAGE, "the offline message")?;
        self.check_string(&header.motd, MAX_MESSAGE, "the message of the day")?;
        self.write(&volume_bytes(header))?;
        self.stage = Stage::Vnodes;
        Ok(())
    }

    /// Writes a vnode that the dump only names.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Range`] if the vnode can't be read again.
    pub fn name(&mut self, vnode: Vnode, unique: Unique) -> Result<()> {
        self.begin(Record::Vnode(vnode), Stage::Vnodes)?;
        if vnode.0 == 0 {
            return Err(Error::Range { place: self.place(), field: "the vnode's number", value: 0 });
        }
        let mut bytes = [section::VNODE; NAME_SIZE as usize];
        bytes[1..5].copy_from_slice(&vnode.0.to_be_bytes());
        bytes[5..].copy_from_slice(&unique.0.to_be_bytes());
        self.write(&bytes)
    }

    /// Writes a vnode without its data. The next calls of [`Self::data`] write as many bytes as its
    /// length says.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Range`] and [`Error::Shape`] if the vnode can't be read again.
    pub fn vnode(&mut self, record: &VnodeRecord) -> Result<()> {
        self.begin(Record::Vnode(record.vnode), Stage::Vnodes)?;
        if record.vnode.0 == 0 {
            return Err(Error::Range { place: self.place(), field: "the vnode's number", value: 0 });
        }
        if let Some(attributes) = &record.attributes {
            let is_directory = attributes.kind == VnodeType::Directory;
            if is_directory != record.vnode.is_directory() {
                return self.shape("the vnode's number is not one of its type");
            }
            if attributes.acl.is_some() && !is_directory {
                return self.shape("a vnode that is no directory has an access list");
            }
            let length = attributes.length.unwrap_or(0);
            if length > MAX_LENGTH {
                return Err(Error::Range { place: self.place(), field: "the length", value: length });
            }
        }
        self.write(&vnode_bytes(record))?;
        self.left = record.attributes.as_ref().and_then(|a| a.length).unwrap_or(0);
        Ok(())
    }

    /// Writes the next range of the data of the last vnode.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Shape`] if there is more than the vnode's length.
    pub fn data(&mut self, data: &[u8]) -> Result<()> {
        let Some(left) = self.left.checked_sub(data.len() as u64) else {
            return self.shape("the vnode has more data than its length says");
        };
        self.write(data)?;
        self.left = left;
        Ok(())
    }

    /// [`Self::data`] of a part of a block, which the output may keep.
    pub(crate) fn block<B>(&mut self, block: &B, range: Range<usize>) -> Result<()>
    where
        W: Output,
        B: AsRef<[u8]> + Clone + Send + Sync + 'static,
    {
        let length = range.len() as u64;
        let Some(left) = self.left.checked_sub(length).filter(|_| self.skip <= self.at) else {
            // Some of it is not put out, or it is too much.
            return self.data(&block.as_ref()[range]);
        };
        let place = self.place();
        self.to.block(block, range).map_err(|source| Error::Write { place, source })?;
        self.at += length;
        self.left = left;
        Ok(())
    }

    /// Writes the end, and returns the output.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Shape`] if the last vnode misses data.
    pub fn end(mut self) -> Result<W> {
        self.begin(Record::DumpEnd, Stage::Vnodes)?;
        self.stage = Stage::End;
        let mut bytes = vec![section::DUMP_END];
        bytes.extend_from_slice(&END_MAGIC.to_be_bytes());
        self.write(&bytes)?;
        Ok(self.to)
    }
}

/// The size of the dump of these parts in bytes, as OpenAFS answers it for GetSize.
pub fn dump_size<'a>(
    header: &Header,
    volume: &VolumeHeader,
    vnodes: impl IntoIterator<Item = &'a VnodeRecord>,
) -> u64 {
    const END: u64 = 5;
    let vnodes = vnodes.into_iter().map(record_size);
    let heads = header_bytes(header).len() + volume_bytes(volume).len();
    vnodes.fold(heads as u64 + END, u64::saturating_add)
}

/// The size of a vnode with its data in bytes.
pub(crate) fn record_size(record: &VnodeRecord) -> u64 {
    let data = record.attributes.as_ref().and_then(|a| a.length).unwrap_or(0);
    (vnode_bytes(record).len() as u64).saturating_add(data)
}

/// A section in the making.
struct Section(Vec<u8>);

impl Section {
    fn tag(&mut self, tag: u8, value: &[u8]) -> &mut Self {
        self.0.push(tag);
        self.0.extend_from_slice(value);
        self
    }

    fn u16(&mut self, tag: u8, value: u16) -> &mut Self {
        self.tag(tag, &value.to_be_bytes())
    }

    fn u32(&mut self, tag: u8, value: u32) -> &mut Self {
        self.tag(tag, &value.to_be_bytes())
    }

    fn i32(&mut self, tag: u8, value: i32) -> &mut Self {
        self.tag(tag, &value.to_be_bytes())
    }

    fn string(&mut self, tag: u8, value: &[u8]) -> &mut Self {
        self.tag(tag, value);
        self.0.push(0);
        self
    }

    fn array(&mut self, tag: u8, values: &[u32]) -> &mut Self {
        let count = u16::try_from(values.len()).expect("lists of dates and of days are short");
        self.u16(tag, count);
        self.0.extend(values.iter().flat_map(|value| value.to_be_bytes()));
        self
    }
}

fn header_bytes(header: &Header) -> Vec<u8> {
    let mut section = Section(vec![section::DUMP_HEADER]);
    section.0.extend_from_slice(&BEGIN_MAGIC.to_be_bytes());
    section.0.extend_from_slice(&VERSION.to_be_bytes());
    let dates: Vec<u32> = header.spans.iter().flat_map(|span| [span.from.0, span.to.0]).collect();
    section.u32(b'v', header.volume.0).string(b'n', &header.name).array(b't', &dates);
    section.0
}

fn volume_bytes(header: &VolumeHeader) -> Vec<u8> {
    let mut section = Section(vec![section::VOLUME_HEADER]);
    section
        .u32(b'i', header.id.0)
        .u32(b'v', header.version)
        .string(b'n', &header.name)
        .tag(b's', &[header.in_service.into()])
        .tag(b'b', &[header.blessed.into()])
        .u32(b'u', header.next_unique.0)
        .tag(b't', &[header.kind as u8])
        .u32(b'p', header.parent.0)
        .u32(b'c', header.clone.0)
        .u32(b'q', header.quota)
        .u32(b'm', header.min_quota)
        .u32(b'd', header.disk_used)
        .u32(b'f', header.file_count)
        .u32(b'a', header.account)
        .i32(b'o', header.owner.0)
        .u32(b'C', header.creation_date.0)
        .u32(b'A', header.access_date.0)
        .u32(b'U', header.update_date.0)
        .u32(b'E', header.expiration_date.0)
        .u32(b'B', header.backup_date.0)
        .string(b'O', &header.offline_message)
        .string(b'M', &header.motd)
        .array(b'W', &header.week_use)
        .u32(b'D', header.day_use_date.0)
        .u32(b'Z', header.day_use);
    section.0
}

fn vnode_bytes(record: &VnodeRecord) -> Vec<u8> {
    let mut section = Section(vec![section::VNODE]);
    section.0.extend_from_slice(&record.vnode.0.to_be_bytes());
    section.0.extend_from_slice(&record.unique.0.to_be_bytes());
    if let Some(attributes) = &record.attributes {
        attribute_bytes(&mut section, attributes);
    }
    section.0
}

fn attribute_bytes(section: &mut Section, attributes: &Attributes) {
    section
        .tag(b't', &[attributes.kind as u8])
        .u16(b'l', attributes.link_count)
        .u32(b'v', attributes.data_version.0)
        .u32(b'm', attributes.modify_time.0)
        .i32(b'a', attributes.author.0)
        .i32(b'o', attributes.owner.0);
    // OpenAFS leaves out the group of most files.
    if attributes.group != 0 {
        section.i32(b'g', attributes.group);
    }
    section
        .u16(b'b', attributes.mode)
        .u32(b'p', attributes.parent.0)
        .u32(b's', attributes.server_modify_time.0);
    if let Some(acl) = &attributes.acl {
        section.tag(b'A', acl);
    }
    match attributes.length {
        None => {}
        Some(length) => match u32::try_from(length) {
            Ok(small) => _ = section.u32(b'f', small),
            Err(_) => _ = section.tag(b'h', &length.to_be_bytes()),
        },
    }
}
