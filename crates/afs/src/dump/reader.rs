//! Taking a dump apart.

use std::io::{BufRead, BufReader, Read};

use super::input::Input;
use super::{
    ACL_SIZE, Attributes, BEGIN_MAGIC, END_MAGIC, Header, MAX_LENGTH, MAX_MESSAGE, MAX_NAME, MAX_SPANS, Span,
    VERSION, VnodeRecord, VolumeHeader, section,
};
use crate::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId, VolumeType};
use crate::{Error, Place, Record, Result};

/// Size of the buffer of an input that has none: the largest piece of its data.
const BUFFER: usize = 64 << 10;

/// A part of a dump.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The dump header. It comes first, and once.
    Header(Header),
    /// The volume header. A merged dump may have another one after vnodes.
    Volume(Box<VolumeHeader>),
    /// A vnode. If its attributes have a length that is not 0, its data follow.
    Vnode(Box<VnodeRecord>),
    /// The next range of the data of the last vnode.
    Data(&'a [u8]),
    /// The end. The input has no byte after it.
    End,
}

/// What the next call of [`Reader::next_event`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    /// The section with this number begins.
    Section(u8),
    /// Data of a vnode, with so many bytes left.
    Data(u64),
    /// The rest of a vnode after its data.
    AfterData,
    End,
    Failed,
}

/// Reads a dump from any input.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    state: State,
}

/// An unknown tag was skipped, or the section ended with the number of the next one.
enum Tag {
    Known(u8),
    Section(u8),
}

impl<R: Read> Reader<BufReader<R>> {
    /// A reader at the beginning of a dump. It reads ahead, up to the end of `input`.
    pub fn new(input: R) -> Self {
        Self::buffered(BufReader::with_capacity(BUFFER, input))
    }
}

impl<R: BufRead> Reader<R> {
    /// A reader at the beginning of a dump that takes the bytes out of the buffer of `input`.
    pub fn buffered(input: R) -> Self {
        Self { input: Input::new(input), state: State::Begin }
    }

    /// The next part of the dump. After [`Event::End`], it is [`Event::End`] again.
    ///
    /// # Errors
    /// * [`Error::Read`]: the input failed.
    /// * [`Error::Truncated`]: the input ended before the dump did.
    /// * [`Error::Magic`], [`Error::Range`], [`Error::TooLong`], [`Error::Tag`], [`Error::Shape`]:
    ///   the dump is damaged, or is none.
    ///
    /// After an error, each further call returns [`Error::Shape`].
    pub fn next_event(&mut self) -> Result<Event<'_>> {
        if let State::Data(left) = self.state {
            // The state is changed first, so that it is right if the input fails.
            self.state = State::Failed;
            let piece = self.input.piece(left, "the data")?;
            let rest = left - piece.len() as u64;
            self.state = if rest == 0 { State::AfterData } else { State::Data(rest) };
            return Ok(Event::Data(piece));
        }
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Begin => self.header(),
            State::AfterData => {
                let next = self.after_data()?;
                self.section(next)
            }
            State::Section(number) => self.section(number),
            State::End => {
                self.state = State::End;
                Ok(Event::End)
            }
            State::Failed | State::Data(_) => Err(self.shape("an earlier part of the dump was refused")),
        }
    }

    /// Skips what is left of the data of the last vnode.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Truncated`].
    pub fn skip_data(&mut self) -> Result<()> {
        if let State::Data(left) = self.state {
            self.state = State::Failed;
            self.input.skip(left, "the data")?;
            self.state = State::AfterData;
        }
        Ok(())
    }

    /// How many bytes of the dump were taken.
    pub fn offset(&self) -> u64 {
        self.input.place().at
    }

    /// The section of the last event, and where it begins.
    pub fn place(&self) -> Place {
        self.input.record_place()
    }

    fn shape(&self, why: &'static str) -> Error {
        Error::Shape { place: self.input.before(), why }
    }

    fn range(&self, field: &'static str, value: impl Into<u64>) -> Error {
        Error::Range { place: self.input.before(), field, value: value.into() }
    }

    fn section(&mut self, number: u8) -> Result<Event<'_>> {
        match number {
            section::VOLUME_HEADER => self.volume(),
            section::VNODE => self.vnode(),
            section::DUMP_END => self.end(),
            _ => Err(self.range("the section", number)),
        }
    }

    /// The next tag that `known` has. Skips others where the format allows it.
    fn tag(&mut self, known: fn(u8) -> bool) -> Result<Tag> {
        let mut critical = false;
        loop {
            let tag = self.input.u8("a tag")?;
            match tag {
                0..=section::MAX => return Ok(Tag::Section(tag)),
                _ if known(tag) => return Ok(Tag::Known(tag)),
                // "The next tag is critical."
                126 => critical = true,
                _ if critical => return Err(Error::Tag { place: self.input.before(), tag }),
                _ => self.skip_tag(tag)?,
            }
        }
    }

    /// Skips the value of an unknown tag. The ranges of tags are OpenAFS's.
    fn skip_tag(&mut self, tag: u8) -> Result<()> {
        const FIELD: &str = "an unknown tag";
        match tag {
            // A length in one byte, or in as many as the lower bits say. 0xfe and 0xff are values.
            0x15..=0x60 => {
                let length = match self.input.u8(FIELD)? {
                    short @ 0..0x80 => u64::from(short),
                    0xfe | 0xff => 0,
                    // 0x80 is a length that is not known.
                    long => match long & 0x7f {
                        count @ 1..=8 => {
                            let mut bytes = [0; 8];
                            self.input.exact(&mut bytes[8 - usize::from(count)..], FIELD)?;
                            u64::from_be_bytes(bytes)
                        }
                        _ => return Err(Error::Tag { place: self.input.before(), tag }),
                    },
                };
                self.input.skip(length, FIELD)
            }
            0x61..=0x7a => self.input.skip(4, FIELD),
            0x7b..=0x7f => Ok(()),
            _ => Err(Error::Tag { place: self.input.before(), tag }),
        }
    }

    fn header(&mut self) -> Result<Event<'_>> {
        let first = self.input.u8("a section")?;
        let magic = self.input.u32("the magic number")?;
        if first != section::DUMP_HEADER || magic != BEGIN_MAGIC {
            return Err(Error::Magic { place: self.input.before(), found: magic.into() });
        }
        let version = self.input.u32("the version")?;
        if version != VERSION {
            return Err(self.range("the version", version));
        }
        let mut header = Header::default();
        let next = loop {
            match self.tag(|tag| b"vnt".contains(&tag))? {
                Tag::Section(number) => break number,
                Tag::Known(b'v') => header.volume = VolumeId(self.input.u32("the volume")?),
                Tag::Known(b'n') => header.name = self.input.string(MAX_NAME, "the volume's name")?,
                Tag::Known(_) => header.spans = self.spans()?,
            }
        };
        if header.volume.0 == 0 || header.spans.is_empty() {
            return Err(self.shape("the dump header has no volume, or no dates"));
        }
        if next != section::VOLUME_HEADER {
            return Err(self.shape("no volume header follows the dump header"));
        }
        self.state = State::Section(next);
        Ok(Event::Header(header))
    }

    fn spans(&mut self) -> Result<Vec<Span>> {
        let words = usize::from(self.input.u16("the dates")?);
        if words % 2 == 1 {
            return Err(self.shape("the dates of the dump are not pairs"));
        }
        if words / 2 > MAX_SPANS {
            let place = self.input.before();
            return Err(Error::TooLong { place, field: "the list of dates", max: 2 * MAX_SPANS });
        }
        let mut date = || self.input.u32("the dates").map(Date);
        (0..words / 2).map(|_| Ok(Span { from: date()?, to: date()? })).collect()
    }

    fn volume(&mut self) -> Result<Event<'_>> {
        self.input.begin(Record::VolumeHeader);
        let mut header = Box::<VolumeHeader>::default();
        loop {
            match self.tag(|tag| b"ivnsbutpcqmdfaoCAUEBOMWDZV".contains(&tag))? {
                Tag::Known(tag) => self.volume_field(tag, &mut header)?,
                Tag::Section(number) => {
                    self.state = State::Section(number);
                    return Ok(Event::Volume(header));
                }
            }
        }
    }

    fn volume_field(&mut self, tag: u8, header: &mut VolumeHeader) -> Result<()> {
        let input = &mut self.input;
        match tag {
            b'i' => header.id = VolumeId(input.u32("the volume")?),
            b'v' => header.version = input.u32("the version")?,
            b'n' => header.name = input.string(MAX_NAME, "the volume's name")?,
            b's' => header.in_service = input.u8("the service flag")? != 0,
            b'b' => header.blessed = input.u8("the blessed flag")? != 0,
            b'u' => header.next_unique = Unique(input.u32("the unique")?),
            b't' => {
                let number = input.u8("the volume's type")?;
                header.kind = VolumeType::from_number(number.into())
                    .ok_or_else(|| self.range("the volume's type", number))?;
            }
            b'p' => header.parent = VolumeId(input.u32("the parent")?),
            b'c' => header.clone = VolumeId(input.u32("the clone")?),
            b'q' => header.quota = input.u32("the quota")?,
            b'm' => header.min_quota = input.u32("the least quota")?,
            b'd' => header.disk_used = input.u32("the space in use")?,
            b'f' => header.file_count = input.u32("the number of files")?,
            b'a' => header.account = input.u32("the account")?,
            b'o' => header.owner = PrincipalId(input.i32("the owner")?),
            b'C' => header.creation_date = Date(input.u32("the creation date")?),
            b'A' => header.access_date = Date(input.u32("the access date")?),
            b'U' => header.update_date = Date(input.u32("the update date")?),
            b'E' => header.expiration_date = Date(input.u32("the expiration date")?),
            b'B' => header.backup_date = Date(input.u32("the backup date")?),
            b'O' => header.offline_message = input.string(MAX_MESSAGE, "the offline message")?,
            b'M' => header.motd = input.string(MAX_MESSAGE, "the message of the day")?,
            b'W' => self.week_use(&mut header.week_use)?,
            b'D' => header.day_use_date = Date(input.u32("the date of use")?),
            b'Z' => header.day_use = input.u32("today's use")?,
            // 'V': a counter of changes that OpenAFS reads and drops.
            _ => _ = input.u32("the update counter")?,
        }
        Ok(())
    }

    /// An array that may be longer than a week; the rest is dropped.
    fn week_use(&mut self, week: &mut [u32; 7]) -> Result<()> {
        for day in 0..usize::from(self.input.u16("the week's use")?) {
            let uses = self.input.u32("the week's use")?;
            if let Some(place) = week.get_mut(day) {
                *place = uses;
            }
        }
        Ok(())
    }

    fn vnode(&mut self) -> Result<Event<'_>> {
        let began = self.input.before().at;
        let vnode = Vnode(self.input.u32("the vnode's number")?);
        self.input.begin_at(Record::Vnode(vnode), began);
        if vnode.0 == 0 {
            return Err(self.range("the vnode's number", vnode.0));
        }
        let unique = Unique(self.input.u32("the unique")?);
        let mut found = Found::default();
        self.state = loop {
            match self.tag(is_vnode_tag)? {
                Tag::Section(number) => break State::Section(number),
                Tag::Known(tag @ (b'f' | b'h')) => {
                    let length = self.length(tag)?;
                    found.length = Some(length);
                    break if length == 0 { State::AfterData } else { State::Data(length) };
                }
                Tag::Known(tag) => self.vnode_field(tag, &mut found)?,
            }
        };
        let attributes = self.attributes(vnode, found).inspect_err(|_| self.state = State::Failed)?;
        Ok(Event::Vnode(Box::new(VnodeRecord { vnode, unique, attributes })))
    }

    fn vnode_field(&mut self, tag: u8, found: &mut Found) -> Result<()> {
        let input = &mut self.input;
        found.any = true;
        match tag {
            b't' => {
                let number = input.u8("the vnode's type")?;
                let kind = VnodeType::from_number(number.into());
                found.kind = Some(kind.ok_or_else(|| self.range("the vnode's type", number))?);
            }
            b'l' => found.link_count = input.u16("the link count")?,
            b'v' => found.data_version = DataVersion(input.u32("the data version")?),
            b'm' => found.modify_time = Date(input.u32("the modification time")?),
            b's' => found.server_modify_time = Date(input.u32("the server's time")?),
            b'a' => found.author = PrincipalId(input.i32("the author")?),
            b'o' => found.owner = PrincipalId(input.i32("the owner")?),
            b'g' => found.group = input.i32("the group")?,
            b'b' => found.mode = input.u16("the mode")?,
            b'p' => found.parent = Vnode(input.u32("the parent")?),
            _ => {
                let acl = found.acl.insert([0; ACL_SIZE]);
                input.exact(acl, "the access list")?;
            }
        }
        Ok(())
    }

    fn length(&mut self, tag: u8) -> Result<u64> {
        let high = if tag == b'h' { self.input.u32("the length")? } else { 0 };
        let length = u64::from(high) << 32 | u64::from(self.input.u32("the length")?);
        if length > MAX_LENGTH {
            return Err(self.range("the length", length));
        }
        Ok(length)
    }

    /// The attributes that a section has, if it has any.
    fn attributes(&self, vnode: Vnode, found: Found) -> Result<Option<Attributes>> {
        if !found.any && found.length.is_none() {
            return Ok(None);
        }
        let Some(kind) = found.kind else { return Err(self.shape("the vnode has no type")) };
        let is_directory = kind == VnodeType::Directory;
        if is_directory != vnode.is_directory() {
            return Err(self.shape("the vnode's number is not one of its type"));
        }
        if found.acl.is_some() && !is_directory {
            return Err(self.shape("a vnode that is no directory has an access list"));
        }
        Ok(Some(Attributes {
            kind,
            link_count: found.link_count,
            data_version: found.data_version,
            modify_time: found.modify_time,
            author: found.author,
            owner: found.owner,
            group: found.group,
            mode: found.mode,
            parent: found.parent,
            server_modify_time: found.server_modify_time,
            acl: found.acl,
            length: found.length,
        }))
    }

    /// The number of the section after a vnode's data. A second copy of the data is skipped, as
    /// OpenAFS does.
    fn after_data(&mut self) -> Result<u8> {
        loop {
            match self.tag(is_vnode_tag)? {
                Tag::Section(number) => return Ok(number),
                Tag::Known(tag @ (b'f' | b'h')) => {
                    let length = self.length(tag)?;
                    self.input.skip(length, "the data")?;
                }
                Tag::Known(_) => return Err(self.shape("an attribute follows the vnode's data")),
            }
        }
    }

    fn end(&mut self) -> Result<Event<'_>> {
        self.input.begin(Record::DumpEnd);
        let magic = self.input.u32("the magic number")?;
        if magic != END_MAGIC {
            return Err(Error::Magic { place: self.input.before(), found: magic.into() });
        }
        if !self.input.ended()? {
            return Err(Error::Shape { place: self.input.place(), why: "bytes follow the end of the dump" });
        }
        self.state = State::End;
        Ok(Event::End)
    }
}

fn is_vnode_tag(tag: u8) -> bool {
    b"tlvmsaogbpAfh".contains(&tag)
}

/// The attributes found so far.
#[derive(Default)]
struct Found {
    any: bool,
    kind: Option<VnodeType>,
    link_count: u16,
    data_version: DataVersion,
    modify_time: Date,
    author: PrincipalId,
    owner: PrincipalId,
    group: i32,
    mode: u16,
    parent: Vnode,
    server_modify_time: Date,
    acl: Option<[u8; ACL_SIZE]>,
    length: Option<u64>,
}
