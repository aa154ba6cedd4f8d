//! Streams with wrong records under right checksums, received into a pool.
//!
//! # Theory
//! A stream is hostile input. Whatever its records say, it is received or refused. No transaction
//! group fails, and what a refused stream has left can be destroyed.
//!
//! A pool takes many streams, one after another. So a finding may need those before it.

use std::sync::Arc;

use codec::crypt::{CryptoSuite, WrappingKey};
use dsl::keys::KeyFormat;
use dsl::ops::create::Create;
use dsl::ops::key::{NewCrypt, NewKey};
use parking_lot::Mutex;
use poolhouse::ondisk::replay::Record;
use poolhouse::stream::{Forms, Options, Reader, ReceiveOptions, Writer, abort};
use poolhouse::{Error, Pool};
use spa::create::VdevShape;
use zpl::NewFileSystem;

use crate::crash::{Tape, begin};

/// Streams that one pool takes.
const EACH: u64 = 256;
/// The file system that a stream becomes.
const HEAD: &str = "tank/fs";

/// The pool, and how many streams it has taken.
static POOL: Mutex<Option<(Pool, u64)>> = Mutex::new(None);

/// A raw stream of an encrypted file system: its blocks of dnodes are announced, and it has keys.
///
/// # Panics
/// The pool refuses what a new pool takes.
pub fn raw() -> Vec<u8> {
    const FINE: &str = "nothing stands in the way of it";
    let spa = begin(&Tape::default(), VdevShape::Single, 1, 0, 2);
    let key = Arc::new(WrappingKey::from_raw([7; 32]));
    let key = NewKey { format: KeyFormat::Raw, location: Some("prompt".into()), key, salt: 0, iterations: 0 };
    let crypt = NewCrypt { suite: Some(CryptoSuite::Aes256Gcm), off: false, key: Some(key) };
    let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
    let name = HEAD.to_owned();
    let create = Create { name, contents, props: Vec::new(), crypt: Some(crypt), enforce_limits: false };
    spa.writer().expect(FINE).run(Box::new(create)).expect(FINE);
    let pool = Pool::with_spa(spa, None).expect(FINE);
    let fs = pool.dataset(HEAD).expect(FINE);
    let file = fs.create_file("/file").expect(FINE);
    file.write_at(&[5; 3000], 100).expect(FINE);
    file.sync().expect(FINE);
    let snapshot = pool.snapshot(&format!("{HEAD}@a")).expect(FINE);
    let forms = Forms { raw: true, ..Forms::default() };
    let mut stream = Vec::new();
    snapshot.send(&Options { forms, ..Options::default() }, &mut stream).expect(FINE);
    stream
}

/// Receives the records of a stream, whatever its checksums are.
///
/// # Panics
/// Those of [`receive`].
pub fn stream(data: &[u8]) {
    // Many are refused.
    let _ = receive(data);
}

/// Receives the records of a stream.
///
/// # Errors
/// Why they are refused.
///
/// # Panics
/// The pool stops, or what is left of the stream can't be destroyed.
pub fn receive(data: &[u8]) -> Result<(), String> {
    let stream = summed(data).ok_or("it begins with no BEGIN")?;
    let mut kept = POOL.lock();
    let (pool, taken) = kept.take().filter(|(_, taken)| *taken < EACH).unwrap_or_else(|| {
        let spa = begin(&Tape::default(), VdevShape::Single, 1, 0, 1);
        (Pool::with_spa(spa, None).expect("a new pool opens"), 0)
    });
    let resumable = data.len().is_multiple_of(2);
    let name = format!("{HEAD}@1");
    let done = pool.receive(&stream[..], &ReceiveOptions { name, resumable, ..ReceiveOptions::default() });
    clear(&pool).unwrap_or_else(|error| panic!("what is left: {}", crate::chain(&error)));
    pool.sync().expect("the pool goes on");
    *kept = Some((pool, taken + 1));
    done.map(drop).map_err(|error| crate::chain(&error))
}

/// The same records with right checksums. `None`: it begins with no BEGIN.
fn summed(data: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::unchecked(data);
    let mut stream = Vec::new();
    let order = match reader.next_packet() {
        Ok(Some(packet)) => packet.order,
        _ => return None,
    };
    let mut reader = Reader::unchecked(data);
    let mut writer = Writer::new(&mut stream, order);
    while let Ok(Some(packet)) = reader.next_packet() {
        let written = match packet.record {
            Record::Begin(begin) => writer.begin(&begin, packet.payload),
            Record::End(end) => writer.end(end.to_guid),
            record => writer.write(&record, packet.payload),
        };
        written.ok()?;
    }
    Some(stream)
}

/// Destroys what a stream has become.
fn clear(pool: &Pool) -> Result<(), Error> {
    let head = match pool.dataset(HEAD) {
        Err(Error::Dataset(dsl::Error::NoSuchDataset { .. })) => return Ok(()),
        head => head?,
    };
    if head.dsl().is_inconsistent() {
        return Ok(abort(pool.spa(), HEAD)?);
    }
    for snapshot in head.snapshots()? {
        pool.destroy(&snapshot.name())?;
    }
    drop(head);
    pool.destroy(HEAD)
}
