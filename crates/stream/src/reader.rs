//! Records and payloads of a stream, verified.

use std::io::{ErrorKind, Read};

use codec::Checksum;
use codec::checksum::Fletcher4;
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
    payload: Vec<u8>,
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
            payload: Vec::new(),
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
        let mut raw = [0; RECORD_SIZE];
        match self.fill(&mut raw)? {
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
        self.read_payload(size)?;
        self.number += 1;
        self.at += (RECORD_SIZE + size) as u64;
        if matches!(record, Record::End(_)) {
            self.sum = None;
        }
        self.raw = raw;
        Ok(Some(Packet { record, raw: &self.raw, order, payload: &self.payload, number, at, stored, before }))
    }

    /// The payload of the last packet, which is then gone from here.
    pub(crate) fn take_payload(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.payload)
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

    /// Reads the payload. A length without bytes behind it takes little memory.
    fn read_payload(&mut self, size: usize) -> Result<()> {
        const AT_ONCE: usize = 1 << 20;
        self.payload.clear();
        self.payload.reserve(size.min(AT_ONCE));
        let (record, at) = (self.number, self.at);
        let read = (&mut self.source).take(size as u64).read_to_end(&mut self.payload);
        match read {
            Ok(have) if have < size => return Err(Error::Truncated { record, at }),
            Ok(_) => {}
            Err(source) => return Err(Error::Io { record, at, source }),
        }
        if let Some(sum) = &mut self.sum {
            sum.append(&self.payload);
        }
        Ok(())
    }

    /// Reads until `buf` is full or the stream ends. Returns how much was read.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut have = 0;
        while have < buf.len() {
            match self.source.read(&mut buf[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Io { record: self.number, at: self.at, source }),
            }
        }
        Ok(have)
    }
}

#[cfg(test)]
pub(crate) mod tests;
