use super::*;

fn name(text: &str) -> VolumeName {
    VolumeName::new(text.as_bytes()).unwrap()
}

/// Goal: names of one group differ by their suffixes.
#[test]
fn suffixes_say_the_type() {
    let base = name("user.joe-1_x");
    let read_only = base.with_type(VolumeType::ReadOnly).unwrap();
    assert_eq!(read_only.as_str(), "user.joe-1_x.readonly");
    assert_eq!(read_only.split(), ("user.joe-1_x", VolumeType::ReadOnly));
    let backup = read_only.with_type(VolumeType::Backup).unwrap();
    assert_eq!(backup.to_string(), "user.joe-1_x.backup");
    assert_eq!(backup.split(), ("user.joe-1_x", VolumeType::Backup));
    assert_eq!(backup.with_type(VolumeType::ReadWrite), Some(base));
}

/// Goal: lengths and characters are those that the VLDB takes.
#[test]
fn limits_hold() {
    let longest = "v".repeat(MAX_BASE_NAME);
    assert_eq!(MAX_BASE_NAME, 22);
    assert!(name(&longest).is_base_name());
    assert!(name(&longest).with_type(VolumeType::ReadOnly).is_some());
    let longer = name(&"v".repeat(MAX_BASE_NAME + 1));
    assert!(!longer.is_base_name());
    assert_eq!(longer.with_type(VolumeType::ReadOnly), None);
    assert!(VolumeName::new(&[b'v'; MAX_NAME]).is_some());
    for bytes in [&b""[..], &[b'v'; MAX_NAME + 1], b"a b", b"a/b", b"a\0", b"\xff", b"#x"] {
        assert_eq!(VolumeName::new(bytes), None, "{bytes:?}");
    }
    for text in ["536870912", "a.readonly", "a.backup"] {
        assert!(!name(text).is_base_name(), "{text}");
    }
    assert_eq!(name(".backup").with_type(VolumeType::ReadWrite), None);
}
