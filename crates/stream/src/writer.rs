//! Records with their checksums, as senders write them.

use std::io::{self, Write};

use codec::Checksum;
use codec::checksum::Fletcher4;
use ondisk::ByteOrder;
use ondisk::replay::{Begin, CHECKSUM_AT, End, RECORD_SIZE, Record, store_checksum};

/// Writes a stream.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    order: ByteOrder,
    sum: Fletcher4,
}

impl<W: Write> Writer<W> {
    /// Writes a stream as a machine of this byte order does.
    pub fn new(sink: W, order: ByteOrder) -> Self {
        Self { sink, order, sum: Fletcher4::new(order) }
    }

    /// Begins a stream. `list` is what follows, for example the packed list of a package.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn begin(&mut self, begin: &Begin, list: &[u8]) -> io::Result<()> {
        self.sum = Fletcher4::new(self.order);
        self.write(&Record::Begin(*begin), list)
    }

    /// Writes a record that neither begins nor ends a stream, with its payload.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write(&mut self, record: &Record, payload: &[u8]) -> io::Result<()> {
        self.write_summed(record, payload, None)
    }

    /// Writes a record like [`Writer::write`]. `sum` is Fletcher-4 of the payload in the stream's
    /// byte order, if it is known. Then the payload is not summed again.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write_summed(
        &mut self,
        record: &Record,
        payload: &[u8],
        sum: Option<&Checksum>,
    ) -> io::Result<()> {
        let begins = matches!(record, Record::Begin(_));
        let raw = record.encode(if begins { payload.len() as u32 } else { 0 }, self.order);
        self.put(raw, begins, payload, sum)
    }

    /// Writes a record of another stream, with the checksums of this one. All other bytes stay.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn copy(&mut self, raw: &[u8; RECORD_SIZE], payload: &[u8]) -> io::Result<()> {
        let mut raw = *raw;
        match Record::decode(&raw, self.order) {
            Ok(Record::Begin(_)) => {
                self.sum = Fletcher4::new(self.order);
                self.put(raw, true, payload, None)
            }
            Ok(Record::End(end)) => {
                let checksum = self.sum.finish().0;
                Record::End(End { checksum, ..end }).store(&mut raw, self.order);
                self.put(raw, false, payload, None)?;
                self.sum = Fletcher4::new(self.order);
                Ok(())
            }
            _ => self.put(raw, false, payload, None),
        }
    }

    fn put(
        &mut self,
        mut raw: [u8; RECORD_SIZE],
        begins: bool,
        payload: &[u8],
        sum: Option<&Checksum>,
    ) -> io::Result<()> {
        self.sum.append(&raw[..CHECKSUM_AT]);
        if !begins {
            store_checksum(&mut raw, self.order, &self.sum.finish().0);
        }
        self.sum.append(&raw[CHECKSUM_AT..]);
        match sum {
            Some(sum) => self.sum.append_summed(sum, payload.len()),
            None => self.sum.append(payload),
        }
        self.sink.write_all(&raw)?;
        self.sink.write_all(payload)
    }

    /// Ends the head of a package (`send_conclusion_record`). Unlike other records, it has no
    /// checksum of its own.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end_head(&mut self) -> io::Result<()> {
        let checksum = self.sum.finish().0;
        self.sink.write_all(&Record::End(End { checksum, to_guid: 0 }).encode(0, self.order))
    }

    /// Ends a package (`send_conclusion_record`). The record has no checksum at all.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end_package(&mut self) -> io::Result<()> {
        self.sink.write_all(&Record::End(End { checksum: [0; 4], to_guid: 0 }).encode(0, self.order))
    }

    /// Ends a stream.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end(&mut self, to_guid: u64) -> io::Result<()> {
        let checksum = self.sum.finish().0;
        self.write(&Record::End(End { checksum, to_guid }), &[])?;
        self.sum = Fletcher4::new(self.order);
        Ok(())
    }
}
