use super::*;
use crate::{Device, DeviceError, FileDevice};

/// A reader's lock on an image, by a process that may only read it.
fn reader(path: &Path, how: FlockOperation) -> File {
    let reader = File::open(path).unwrap();
    flock(&reader, how).unwrap();
    record_lock(&reader, libc::F_OFD_SETLK, libc::F_RDLCK).unwrap();
    reader
}

fn image() -> tempfile::TempPath {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    image.into_temp_path()
}

fn is_busy(path: &Path, mode: Mode) -> bool {
    matches!(FileDevice::open(path, mode), Err(DeviceError::Busy { .. }))
}

/// Goal: a process that may only read an image refuses none of its owners, by no lock of any kind.
/// Of two owners one is still refused.
#[test]
fn readers_refuse_no_owner() {
    for how in [FlockOperation::NonBlockingLockShared, FlockOperation::NonBlockingLockExclusive] {
        for mode in [Mode::Write, Mode::Own, Mode::Share] {
            let image = image();
            let reader = reader(&image, how);
            let first = FileDevice::open(&image, mode).unwrap();
            assert!(is_busy(&image, Mode::Write) && is_busy(&image, Mode::Own), "{mode:?} {how:?}");
            drop(reader);
            drop(first);
            drop(FileDevice::open(&image, Mode::Write).unwrap());
        }
    }
}

/// Goal: an owner takes owed locks when it writes; from then on they refuse others by themselves.
/// If another owner was faster, the write of the first fails.
#[test]
fn owed_locks_are_taken() {
    let image = image();
    let reading = reader(&image, FlockOperation::NonBlockingLockExclusive);
    let first = FileDevice::open(&image, Mode::Write).unwrap();
    drop(reading);
    first.write_at(&[1], 0).unwrap();
    let other = File::options().read(true).write(true).open(&image).unwrap();
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    assert_eq!(record_lock(&other, libc::F_OFD_GETLK, libc::F_RDLCK).unwrap(), libc::F_WRLCK);
    drop((first, other));
    let reading = reader(&image, FlockOperation::NonBlockingLockExclusive);
    let first = FileDevice::open(&image, Mode::Write).unwrap();
    drop(reading);
    let second = FileDevice::open(&image, Mode::Write).unwrap();
    assert!(first.write_at(&[1], 0).is_err() && first.trim(0, 4096).is_err() && first.flush().is_err());
    second.write_at(&[2], 0).unwrap();
}

/// Goal: an older owner, which knows `flock` alone, is respected.
#[test]
fn owners_of_before() {
    let image = image();
    let old = File::options().read(true).write(true).open(&image).unwrap();
    flock(&old, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(is_busy(&image, Mode::Write) && is_busy(&image, Mode::Own) && is_busy(&image, Mode::Share));
    drop(old);
    assert!(!is_busy(&image, Mode::Write));
}

/// Goal: a claim of an image that may only be read detects an owner, and keeps none out.
#[test]
fn a_readers_claim() {
    let image = image();
    let open = || open_as(&image, Mode::Own, false).unwrap();
    let mere = share(open(), Mode::Peek).unwrap();
    let also = share(open(), Mode::Peek).unwrap();
    let owner = FileDevice::open(&image, Mode::Write).unwrap();
    drop((mere, also));
    owner.write_at(&[1], 0).unwrap();
    assert_eq!(share(open(), Mode::Peek).map_err(|e| e.kind()).unwrap_err(), io::ErrorKind::WouldBlock);
}
