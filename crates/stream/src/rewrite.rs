//! Streams with some of their records changed.

use std::io::{Read, Write};

use ondisk::replay::{RECORD_SIZE, Record, list_length};

use crate::check::State;
use crate::{Error, Packet, Reader, Writer};

/// What becomes of a record.
#[derive(Debug)]
pub enum Change {
    /// It stays.
    Keep,
    /// It and its payload are left out. BEGIN and END must stay.
    Drop,
    /// Another record takes its place.
    Replace {
        /// The bytes of that record, whatever its checksum is ([`Packet::with`]).
        raw: Box<[u8; RECORD_SIZE]>,
        /// The payload of that record. `None` if the payload stays.
        payload: Option<Vec<u8>>,
    },
}

/// Reads all streams of `source`, and writes to `sink` what `change` makes of each record.
///
/// The byte order and all bytes that `change` leaves alone stay, but for checksums. Each record of
/// the result has a checksum, even if the records of an old sender have none. After an error,
/// `sink` has the records before the wrong one, which are no whole stream.
///
/// # Errors
/// * Those of [`check`](crate::check::check).
/// * [`Error::Write`]: `sink` can't be written.
/// * [`Error::Order`], [`Error::Record`]: a record and its payload, as `change` makes them, do not
///   fit together.
/// * Those of `change`.
pub fn rewrite<E: From<Error>>(
    source: impl Read,
    sink: impl Write,
    mut change: impl FnMut(&Packet<'_>) -> Result<Change, E>,
) -> Result<(), E> {
    let mut reader = Reader::new(source);
    let Some(first) = reader.next_packet()? else { return Ok(()) };
    let mut writer = Writer::new(sink, first.order);
    let mut state = State::default();
    state.take(&first)?;
    write(&mut writer, &first, change(&first)?)?;
    while let Some(packet) = reader.next_packet()? {
        state.take(&packet)?;
        write(&mut writer, &packet, change(&packet)?)?;
    }
    Ok(state.finish(reader.position())?)
}

fn write(writer: &mut Writer<impl Write>, packet: &Packet<'_>, change: Change) -> Result<(), Error> {
    let written = match change {
        Change::Keep => writer.copy(packet.raw, packet.payload),
        Change::Drop => Ok(()),
        Change::Replace { raw, payload } => {
            let payload = payload.as_deref().unwrap_or(packet.payload);
            fits(packet, &raw, payload)?;
            writer.copy(&raw, payload)
        }
    };
    written.map_err(|source| Error::Write { record: packet.number, at: packet.at, source })
}

/// Holds that readers will find the payload as long as it is.
fn fits(packet: &Packet<'_>, raw: &[u8; RECORD_SIZE], payload: &[u8]) -> Result<(), Error> {
    let (record, at) = (packet.number, packet.at);
    let size = Record::decode(raw, packet.order)
        .and_then(|record| record.payload_size(list_length(raw, packet.order)))
        .map_err(|source| Error::Record { record, at, source })?;
    if size == payload.len() {
        return Ok(());
    }
    let why = format!("its payload has {} bytes, and its changed fields want {size}", payload.len());
    Err(Error::Order { record, at, why })
}

#[cfg(test)]
mod tests;
