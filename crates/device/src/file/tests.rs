use super::*;

/// Goal: an image that was let go of is free, even while somebody else still has the open file, as a child that is just being started has.
#[test]
fn the_lock_ends_with_the_device() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let device = FileDevice::open(image.path(), Mode::Write).unwrap();
    let inherited = device.file.try_clone().unwrap();
    assert!(matches!(FileDevice::open(image.path(), Mode::Own), Err(DeviceError::Busy { .. })));
    drop(device);
    assert!(FileDevice::open(image.path(), Mode::Own).is_ok());
    drop(inherited);
}

/// Goal: large writes, of which the system is told through an opening of their own, are in the file, also when it has no name any more.
#[test]
fn large_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.img");
    std::fs::write(&path, vec![0; 8 << 20]).unwrap();
    let reader = FileDevice::open(&path, Mode::Peek).unwrap();
    let dev = FileDevice::open(&path, Mode::Write).unwrap();
    dev.write_vectored_at(&[b"little"], 0).unwrap();
    assert!(dev.ahead.get().is_none());
    std::fs::remove_file(&path).unwrap();
    let large = vec![7; 1 << 20];
    for at in 0..7 {
        dev.write_vectored_at(&[&large, b"end"], at << 20).unwrap();
    }
    assert!(dev.ahead.get().is_some_and(Option::is_some));
    let mut buf = vec![0; (7 << 20) + 3];
    reader.read_at(&mut buf, 0).unwrap();
    assert_eq!((buf[5 << 20], &buf[7 << 20..]), (7, &b"end"[..]));
}
