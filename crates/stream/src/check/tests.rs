use super::*;
use testkit::find;

fn checked(bytes: &[u8]) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    check(bytes, |one| all.push(one))?;
    Ok(all)
}

/// Goal: each stream that OpenZFS's kernel module made is whole, and its size is accounted for.
#[test]
fn real_streams() {
    let Some(pool) = find("send-src") else { return };
    let names = pool.streams();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let bytes = pool.stream(&format!("{name}.zsend")).unwrap();
        let all = checked(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let sum: u64 = all.iter().map(|one| one.bytes).sum();
        assert!(!all.is_empty() && sum <= bytes.len() as u64 && sum > bytes.len() as u64 / 2, "{name}");
        assert!(all.iter().all(|one| one.name.contains(&b'@')), "{name}: {all:?}");
    }
}

/// Goal: a stream whose tail is missing, doubled or another's is refused, wherever it is cut.
#[test]
fn spoiled_streams() {
    let Some(pool) = find("send-src") else { return };
    let bytes = pool.stream("incr-a-b.zsend").unwrap();
    assert_eq!(checked(&[&bytes[..], &bytes].concat()).unwrap().len(), 2);
    let end = bytes.len() - RECORD_SIZE;
    assert!(matches!(checked(&bytes[..end]), Err(Error::Truncated { .. })));
    let two_ends = [&bytes[..], &bytes[end..]].concat();
    assert!(matches!(checked(&two_ends), Err(Error::Checksum { .. } | Error::Order { .. })));
    let two_begins = [&bytes[..RECORD_SIZE], &bytes].concat();
    assert!(matches!(checked(&two_begins), Err(Error::Order { .. })));
    for at in (RECORD_SIZE..bytes.len()).step_by(bytes.len() / 50) {
        let mut spoiled = bytes.clone();
        spoiled[at] ^= 0x40;
        assert!(checked(&spoiled).is_err(), "byte {at}");
    }
}
