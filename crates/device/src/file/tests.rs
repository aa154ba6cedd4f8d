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
