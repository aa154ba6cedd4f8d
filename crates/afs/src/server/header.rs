//! The stored header of a volume.
//!
//! # On disk
//! A dump of a volume without vnodes ([`crate::dump`]), and after its end:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | layout: 1 |
//! | 4 | flags: 1, the volume is to be destroyed; 2, the counts may lack changes |
//! | 4 | what is added to the data versions of files for clients |
//! | 4 | how often the partition had crashed when that was right |
//! | 8 | where the search for a free vnode goes on: files, directories |
//! | 4 | the backup volume of the group |
//! | 4 | when this copy was made |
//! | 8 | the space in use, in KiB; 0: as in the dump |

use ondisk::Txg;
use zpl::FileSystem;

use super::{Error, Result, now};
use crate::dump::{Event, Header, Reader, Span, VolumeHeader, Writer};
use crate::types::{Date, VolumeId};
use crate::volume::Counts;

const LAYOUT: u32 = 1;
/// What a crash adds to the versions of data.
const CRASH_STEP: u32 = 1 << 16;
const DESTROY_ME: u32 = 1;
const IS_COUNTING: u32 = 2;
const WORDS: usize = 10;
/// The words of a header without any.
const NO_WORDS: [u8; 4 * WORDS] = {
    let mut words = [0; 4 * WORDS];
    words[3] = LAYOUT as u8;
    words
};
/// The last bytes of a dump (`DUMPENDMAGIC`).
const DUMP_END: [u8; 4] = 0x3a21_4b6e_u32.to_be_bytes();

/// Whether clients may use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Service {
    /// It is not opened yet, so the header decides.
    #[default]
    Unknown,
    /// They may.
    Online,
    /// They may read it. Changes get VBUSY.
    Busy,
    /// They get VOFFLINE.
    Offline,
    /// The volume is deleted: they get VNOVOL.
    Gone,
}

/// A header with what dumps don't have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// The header.
    pub header: VolumeHeader,
    /// The volume is not complete yet. It is destroyed at the next start (`V_destroyMe`).
    pub destroy_me: bool,
    /// A server changes the volume, so the counts of space and files may lack changes.
    pub is_counting: bool,
    /// What is added to data versions. It grows with each crash, since clients may know versions
    /// that the crash undid.
    pub version_base: u32,
    /// How often the partition had crashed when `version_base` was set.
    pub crashes: u32,
    /// The number of the next vnode that may be free: for files, and for directories.
    pub vnode_hints: [u32; 2],
    /// The backup volume of the group (`V_backupId`).
    pub backup: VolumeId,
    /// When this copy was made (`V_copyDate`).
    pub copy_date: Date,
    /// The space in use, in KiB. [`VolumeHeader::disk_used`] has it as far as it can.
    pub used: u64,
}

impl Stored {
    /// The bytes.
    ///
    /// # Errors
    /// [`Error::Format`]: a number or string is too long for a dump.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = Writer::new(Vec::new());
        let header = &self.header;
        writer.header(&Header {
            volume: header.id,
            name: header.name.clone(),
            spans: vec![Span::default()],
        })?;
        writer.volume(header)?;
        let mut bytes = writer.end()?;
        let flags = (u32::from(self.destroy_me) * DESTROY_ME) | (u32::from(self.is_counting) * IS_COUNTING);
        let [files, directories] = self.vnode_hints;
        let (backup, copied) = (self.backup.0, self.copy_date.0);
        let (high, low) = ((self.used >> 32) as u32, self.used as u32);
        for word in
            [LAYOUT, flags, self.version_base, self.crashes, files, directories, backup, copied, high, low]
        {
            bytes.extend(word.to_be_bytes());
        }
        Ok(bytes)
    }

    /// Parses the bytes. Those without the part after the dump are of a restored volume.
    ///
    /// # Errors
    /// [`Error::Format`], [`Error::Malformed`]: the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (dump, words) = match bytes.split_last_chunk::<{ 4 * WORDS }>() {
            Some((dump, words)) if dump.ends_with(&DUMP_END) => (dump, *words),
            _ => (bytes, NO_WORDS),
        };
        let mut reader = Reader::buffered(dump);
        let mut header = None;
        loop {
            match reader.next_event()? {
                Event::Volume(volume) => header = Some(*volume),
                Event::End => break,
                _ => {}
            }
        }
        let header = header.ok_or(Error::Malformed)?;
        let mut all =
            words.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        let mut next = || all.next().unwrap_or_default();
        let (layout, flags, version_base, crashes) = (next(), next(), next(), next());
        let vnode_hints = [next(), next()];
        let (backup, copy_date) = (VolumeId(next()), Date(next()));
        if layout != LAYOUT {
            return Err(Error::Malformed);
        }
        let used = u64::from(next()) << 32 | u64::from(next());
        let used = if used == 0 { header.disk_used.into() } else { used };
        let (destroy_me, is_counting) = (flags & DESTROY_ME != 0, flags & IS_COUNTING != 0);
        Ok(Self {
            header,
            destroy_me,
            is_counting,
            version_base,
            crashes,
            vnode_hints,
            backup,
            copy_date,
            used,
        })
    }

    /// Whether clients may use the volume.
    pub fn service(&self) -> Service {
        let usable = self.header.in_service && self.header.blessed && !self.destroy_me;
        if usable { Service::Online } else { Service::Offline }
    }

    /// Raises the versions of data for crashes that the header does not know yet. Returns whether
    /// it must be stored: the header of a volume that came from elsewhere counts the crashes of
    /// another partition. For one of this partition, each opening computes the same.
    pub fn note_crashes(&mut self, crashes: u32) -> bool {
        let more = crashes.checked_sub(self.crashes);
        let step = more.unwrap_or(1).wrapping_mul(CRASH_STEP);
        self.version_base = self.version_base.wrapping_add(step);
        self.crashes = crashes;
        more.is_none()
    }

    /// A header as it is on disk, of a volume whose files are not open.
    ///
    /// If it may lack changes, a server crashed, and it may also lack the time of the last change.
    /// Then the volume counts as changed now: a program that believed the older time would not
    /// release the last changes.
    #[must_use]
    pub fn of_disk(mut self) -> Self {
        if self.is_counting {
            self.header.update_date = self.header.update_date.max(now());
        }
        self
    }

    /// Counts space in KiB.
    pub fn count(&mut self, kib: i64) {
        self.used = self.used.saturating_add_signed(kib);
        self.header.disk_used = u32::try_from(self.used).unwrap_or(u32::MAX);
    }

    /// Sets the counts of space and files.
    pub fn set_counts(&mut self, counts: Counts) {
        self.used = counts.blocks;
        self.header.file_count = u32::try_from(counts.vnodes).unwrap_or(u32::MAX);
        self.count(0);
    }

    /// Stores the header in a volume.
    ///
    /// # Errors
    /// [`Error::Format`], [`Error::Files`].
    pub fn write(&self, fs: &FileSystem) -> Result<Txg> {
        Ok(fs.set_afs_header(&self.encode()?)?)
    }

    /// The header of a volume. `None`: it has none.
    ///
    /// # Errors
    /// [`Error::Format`], [`Error::Malformed`], [`Error::Files`].
    pub fn read(fs: &FileSystem) -> Result<Option<Self>> {
        fs.afs_header()?.map(|bytes| Self::decode(&bytes)).transpose()
    }
}
