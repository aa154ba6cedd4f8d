use super::*;

/// Goal: a released image is free, even while a child process that is just starting still has the
/// open file.
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

/// Goal: large writes, whose writeback starts through another file description, are in the file,
/// also if it has lost its name.
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
