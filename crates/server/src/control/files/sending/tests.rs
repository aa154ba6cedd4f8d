//! How a stream is written to the output of a command.

#![allow(clippy::unwrap_used)]

use super::*;
use std::io::{Read, Seek, SeekFrom};

fn direct<'a>(output: impl Into<OwnedFd>, connection: &'a UnixStream) -> Direct<'a> {
    Direct::new(output.into(), connection).unwrap()
}

/// Goal: short and long records arrive in their order, in a pipe, a socket and a file. The
/// command's pipe still waits.
#[test]
fn records_keep_their_order() {
    let records: Vec<Vec<u8>> =
        (0..200u32).map(|i| vec![i as u8; [312, 40_000, 8, 70_000][i as usize % 4]]).collect();
    let (_command, connection) = UnixStream::pair().unwrap();
    let whole = records.concat();
    let write = |mut direct: Direct<'_>| {
        records.iter().for_each(|record| direct.write_all(record).unwrap());
        direct.flush().unwrap();
        assert_eq!(direct.written, whole.len() as u64);
    };
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).unwrap();
            all
        })
    };
    let (reads, writes) = std::io::pipe().unwrap();
    let kept = writes.try_clone().unwrap();
    let reader = read(Box::new(reads));
    write(direct(writes, &connection));
    assert!(!rustix::fs::fcntl_getfl(&kept).unwrap().contains(OFlags::NONBLOCK));
    drop(kept);
    assert!(reader.join().unwrap() == whole);
    let (reads, writes) = UnixStream::pair().unwrap();
    let reader = read(Box::new(reads));
    write(direct(writes, &connection));
    assert!(reader.join().unwrap() == whole);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"head").unwrap();
    write(direct(file.try_clone().unwrap(), &connection));
    file.seek(SeekFrom::Start(4)).unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    assert!(all == whole);
}

/// Goal: a send into a full pipe, or to a file, ends when the command does. One whose reader is
/// gone ends as such writes do.
#[test]
fn the_end_of_the_command_ends_a_write() {
    let (command, connection) = UnixStream::pair().unwrap();
    let (reads, writes) = std::io::pipe().unwrap();
    let mut pipe = direct(writes, &connection);
    let mut file = direct(tempfile::tempfile().unwrap(), &connection);
    drop(command);
    let endless = |direct: &mut Direct<'_>| loop {
        if let Err(error) = direct.write_all(&[0; 1 << 16]) {
            return error.kind();
        }
    };
    assert_eq!(endless(&mut pipe), io::ErrorKind::ConnectionAborted);
    assert_eq!(endless(&mut file), io::ErrorKind::ConnectionAborted);
    drop(reads);
    assert_eq!(endless(&mut pipe), io::ErrorKind::BrokenPipe);
}

/// Goal: a descriptor that the command can only read from is not written to.
#[test]
fn only_what_the_command_may_write_to() {
    let (_command, connection) = UnixStream::pair().unwrap();
    let (reads, _writes) = std::io::pipe().unwrap();
    assert!(Direct::new(reads.into(), &connection).is_none());
}
