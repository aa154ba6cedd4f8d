//! Whether stored streams are whole, without a pool.

use std::io::Read;

use codec::Checksum;
use ondisk::replay::{Begin, HeaderType, RECORD_SIZE, Record, features};

use crate::{Error, Packet, Reader, Result};

/// A stream that has been read to its end, and is as its sender wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The snapshot, as its sender called it.
    pub name: Vec<u8>,
    /// Guid of the snapshot.
    pub to_guid: u64,
    /// Guid of the snapshot that it builds on, or 0 for a full stream.
    pub from_guid: u64,
    /// Its [`features`].
    pub features: u64,
    /// Number of records.
    pub records: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Reads all streams of a file, and calls `each` with every one.
///
/// # Errors
/// * Those of [`Reader::next_packet`].
/// * [`Error::Order`]: the records are in an order that no sender makes; the checksum at the end
///   differs; a record belongs to another snapshot; a feature is unknown.
/// * [`Error::Truncated`]: a stream or package has no end.
pub fn check(source: impl Read, mut each: impl FnMut(Checked)) -> Result<()> {
    let mut reader = Reader::new(source);
    let mut state = State::default();
    loop {
        let at = reader.position();
        let Some(packet) = reader.next_packet()? else { return state.finish(at) };
        if let Some(checked) = state.take(&packet)? {
            each(checked);
        }
    }
}

/// A stream whose end has not come yet.
struct Open {
    begin: Begin,
    /// The head of a package: no stream, but a list.
    head: bool,
    first: u64,
    at: u64,
}

/// How far the streams have been checked.
#[derive(Default)]
pub(crate) struct State {
    open: Option<Open>,
    /// Whether a package has begun, whose END is still to come.
    packaged: bool,
    pub(crate) records: u64,
}

impl State {
    /// Takes the next record. Returns the stream that it ends.
    ///
    /// # Errors
    /// * [`Error::Order`], [`Error::Record`]: it can't follow the records before it.
    pub(crate) fn take(&mut self, packet: &Packet<'_>) -> Result<Option<Checked>> {
        self.records = packet.number + 1;
        let wrong = |why: String| Error::Order { record: packet.number, at: packet.at, why };
        match (&packet.record, self.open.take()) {
            (Record::Begin(begin), None) => self.begin(begin, packet).map(|()| None),
            (Record::Begin(_), Some(_)) => Err(wrong("a stream begins inside another one".to_owned())),
            (Record::End(end), open) => {
                if packet.before.is_some_and(|sum| sum != Checksum(end.checksum)) {
                    return Err(wrong("the checksum of the whole stream is wrong".to_owned()));
                }
                match open {
                    Some(Open { head: true, .. }) => Ok(None),
                    Some(open) => Ok(Some(Checked {
                        name: open.begin.name().to_vec(),
                        to_guid: open.begin.to_guid,
                        from_guid: open.begin.from_guid,
                        features: open.begin.features(),
                        records: packet.number + 1 - open.first,
                        bytes: packet.at + RECORD_SIZE as u64 - open.at,
                    })),
                    None if std::mem::take(&mut self.packaged) => Ok(None),
                    None => Err(wrong("an end without a begin".to_owned())),
                }
            }
            (_, None) => Err(wrong("it belongs to no stream".to_owned())),
            (record, Some(open)) => {
                if open.head {
                    return Err(wrong("a package's head has data".to_owned()));
                }
                if record.to_guid() != open.begin.to_guid {
                    return Err(wrong("it belongs to another snapshot than its stream".to_owned()));
                }
                self.open = Some(open);
                Ok(None)
            }
        }
    }

    /// Takes the end of the input, at this byte.
    ///
    /// # Errors
    /// * [`Error::Truncated`]: a stream or package has no end.
    pub(crate) fn finish(&self, at: u64) -> Result<()> {
        let whole = self.open.is_none() && !self.packaged;
        whole.then_some(()).ok_or(Error::Truncated { record: self.records, at })
    }

    fn begin(&mut self, begin: &Begin, packet: &Packet<'_>) -> Result<()> {
        let wrong = |why: String| Error::Order { record: packet.number, at: packet.at, why };
        let kind = begin.header_type().map_err(|source| Error::Record {
            record: packet.number,
            at: packet.at,
            source,
        })?;
        let head = kind == HeaderType::Compound;
        if head && std::mem::replace(&mut self.packaged, true) {
            return Err(wrong("a package begins inside another one".to_owned()));
        }
        let unknown = begin.features() & !features::KNOWN;
        if unknown != 0 {
            return Err(wrong(format!("it has features that this release does not know: {unknown:#x}")));
        }
        self.open = Some(Open { begin: *begin, head, first: packet.number, at: packet.at });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
