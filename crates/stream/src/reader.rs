//! Records and payloads of a stream, verified.
//!
//! # Theory
//! Nothing behind an END is read, since the next stream may belong to another reader. Within a
//! stream a record follows each payload. So one read takes the rest of a payload and, if it is
//! there already, the record that follows. After BEGIN only its own payload is read: a command
//! reads that far, and then gives the file to a daemon.

use std::io::{ErrorKind, IoSliceMut, Read};

use codec::Checksum;
use codec::checksum::Fletcher4;
use device::{AlignedBuf, Block};
use ondisk::ByteOrder;
use ondisk::replay::{BACKUP_MAGIC, CHECKSUM_AT, RECORD_SIZE, Record, list_length, stored_checksum};

use crate::{Error, Result};

/// A record with its payload.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The record.
    pub record: Record,
    /// The bytes of the record.
    pub raw: &'a [u8; RECORD_SIZE],
    /// The sender's byte order.
    pub order: ByteOrder,
    /// What follows it.
    pub payload: &'a [u8],
    /// Number of the record, from 0.
    pub number: u64,
    /// Where it begins, in bytes.
    pub at: u64,
    /// The checksum in the record; not in a BEGIN.
    pub stored: Checksum,
    /// The checksum of all before the record since the last BEGIN, which an END repeats. `None` if
    /// checksums are ignored.
    pub before: Option<Checksum>,
}

impl Packet<'_> {
    /// The bytes of the record with other fields. These must be of the same type.
    pub fn with(&self, fields: &Record) -> Box<[u8; RECORD_SIZE]> {
        let mut raw = Box::new(*self.raw);
        fields.store(&mut raw, self.order);
        raw
    }
}

/// Reads a stream, or several behind one another.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    /// The sender's byte order, once the first record is known.
    order: Option<ByteOrder>,
    /// The sum of the stream so far, unless checksums are ignored.
    sum: Option<Fletcher4>,
    checked: bool,
    number: u64,
    at: u64,
    raw: [u8; RECORD_SIZE],
    /// The start of the next record, and how much of it was read with the last payload.
    next: ([u8; RECORD_SIZE], usize),
    payload: AlignedBuf,
}

impl<R: Read> Reader<R> {
    /// Reads a stream, and verifies its checksums.
    pub fn new(source: R) -> Self {
        Self {
            source,
            order: None,
            sum: None,
            checked: true,
            number: 0,
            at: 0,
            raw: [0; RECORD_SIZE],
            next: ([0; RECORD_SIZE], 0),
            payload: AlignedBuf::for_overwrite(0),
        }
    }

    /// Reads a stream whatever its checksums are (`zstream dump -C`).
    pub fn unchecked(source: R) -> Self {
        Self { checked: false, ..Self::new(source) }
    }

    /// Bytes read so far, whole records and payloads.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next record, or `None` behind the last.
    ///
    /// # Errors
    /// * [`Error::Io`]: reading fails.
    /// * [`Error::Empty`], [`Error::Magic`]: it is no stream.
    /// * [`Error::Truncated`]: it ends inside a record or payload.
    /// * [`Error::Checksum`]: the record's checksum is wrong.
    /// * [`Error::Record`]: its type is unknown, or its payload too large.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        let (number, at) = (self.number, self.at);
        let (mut raw, have) = (self.next.0, std::mem::take(&mut self.next.1));
        match have + self.fill(&mut raw[have..], false)? {
            0 if self.order.is_some() => return Ok(None),
            RECORD_SIZE => {}
            have if self.order.is_none() => return Err(Error::Empty { have }),
            _ => return Err(Error::Truncated { record: number, at }),
        }
        let order = self.order_of(&raw)?;
        let stored = Checksum(stored_checksum(&raw, order));
        let record =
            Record::decode(&raw, order).map_err(|source| Error::Record { record: number, at, source });
        let begins = matches!(record, Ok(Record::Begin(_)));
        if begins || self.sum.is_none() {
            self.sum = self.checked.then(|| Fletcher4::new(order));
        }
        let before = self.sum.map(Fletcher4::finish);
        if let Some(sum) = &mut self.sum {
            sum.append(&raw[..CHECKSUM_AT]);
            let computed = sum.finish();
            // Old senders store no checksum.
            if !begins && stored.0 != [0; 4] && stored != computed {
                return Err(Error::Checksum { record: number, at, computed });
            }
            sum.append(&raw[CHECKSUM_AT..]);
        }
        let record = record?;
        let size = record.payload_size(list_length(&raw, order)).map_err(|source| Error::Record {
            record: number,
            at,
            source,
        })?;
        self.read_payload(size, !matches!(record, Record::Begin(_) | Record::End(_)))?;
        self.number += 1;
        self.at += (RECORD_SIZE + size) as u64;
        if matches!(record, Record::End(_)) {
            self.sum = None;
        }
        self.raw = raw;
        Ok(Some(Packet { record, raw: &self.raw, order, payload: &self.payload, number, at, stored, before }))
    }

    /// The payload of the last packet, which is then gone from here.
    pub(crate) fn take_payload(&mut self) -> Block {
        std::mem::replace(&mut self.payload, AlignedBuf::for_overwrite(0)).freeze()
    }

    fn order_of(&mut self, raw: &[u8; RECORD_SIZE]) -> Result<ByteOrder> {
        if let Some(order) = self.order {
            return Ok(order);
        }
        let found = ondisk::bytes::le64(raw, 8);
        let order = ByteOrder::by_magic(found, BACKUP_MAGIC).ok_or(Error::Magic { found })?;
        self.order = Some(order);
        Ok(order)
    }

    /// Reads the payload. A length without bytes behind it takes little memory. `ahead` allows to
    /// read the start of the next record too.
    fn read_payload(&mut self, size: usize, ahead: bool) -> Result<()> {
        const AT_ONCE: usize = 1 << 20;
        let mut payload = AlignedBuf::for_overwrite(size.min(AT_ONCE));
        let mut have = 0;
        loop {
            let end = payload.len();
            have += self.fill(&mut payload[have..], ahead && end == size)?;
            if have < end {
                self.payload = payload;
                return Err(Error::Truncated { record: self.number, at: self.at });
            }
            if have == size {
                break;
            }
            let mut larger = AlignedBuf::for_overwrite(size.min(4 * end));
            larger[..end].copy_from_slice(&payload);
            payload = larger;
        }
        if let Some(sum) = &mut self.sum {
            sum.append(&payload);
        }
        self.payload = payload;
        Ok(())
    }

    /// Reads until `buf` is full or the stream ends. Returns how much was read. `ahead` allows to
    /// read the start of the next record too.
    fn fill(&mut self, buf: &mut [u8], ahead: bool) -> Result<usize> {
        let mut have = 0;
        while have < buf.len() {
            let left = buf.len() - have;
            let read = match ahead {
                true => {
                    let mut parts = [IoSliceMut::new(&mut buf[have..]), IoSliceMut::new(&mut self.next.0)];
                    self.source.read_vectored(&mut parts)
                }
                false => self.source.read(&mut buf[have..]),
            };
            match read {
                Ok(0) => break,
                Ok(n) => {
                    have += n.min(left);
                    self.next.1 = n.saturating_sub(left);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Io { record: self.number, at: self.at, source }),
            }
        }
        Ok(have)
    }
}

#[cfg(test)]
pub(crate) mod tests;
