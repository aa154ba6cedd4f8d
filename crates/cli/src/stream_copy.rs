//! Copies of streams, for daemons that take no descriptors from this user ([`api::streams`]).

use std::fs::File;
use std::io::{self, Read, Write};

use ondisk::replay::Record;
use stream::Reader;

/// Copies what follows BEGIN up to END, record by record, since another stream may follow. A
/// malformed record and what is behind it are left out.
///
/// # Errors
/// The system's error from reading the stream or from writing.
pub(crate) fn copy_rest(begin: &[u8], mut input: &File, into: &mut dyn io::Write) -> io::Result<()> {
    let mut records = Reader::unchecked(begin.chain(&mut input));
    let mut into = io::BufWriter::with_capacity(1 << 20, into);
    loop {
        match records.next_packet() {
            Ok(Some(packet)) if matches!(packet.record, Record::Begin(_)) => {}
            Ok(Some(packet)) => {
                into.write_all(packet.raw)?;
                into.write_all(packet.payload)?;
                if matches!(packet.record, Record::End(_)) {
                    return into.flush();
                }
            }
            Err(stream::Error::Io { source, .. }) => return Err(source),
            Ok(None) | Err(_) => return into.flush(),
        }
    }
}
