//! What a request to receive may name, and the replies for failures.

#![allow(clippy::unwrap_used)]

use super::*;

/// Goal: only a snapshot can be received, and no name that the engine keeps for itself.
#[test]
fn targets() {
    assert_eq!(head_of("tank/fs@s").unwrap(), "tank/fs");
    assert_eq!(head_of("tank/fs").unwrap_err().reason, Reason::InvalidName);
    let errno = Errno::INVAL.raw_os_error();
    assert_eq!(head_of("tank/fs/%recv@s").unwrap_err().reason, Reason::System { errno });
}

/// Goal: each failure of the engine has its reason. What was kept is said.
#[test]
fn reasons() {
    let of = |error| error_about("tank/fs", &error);
    let stream = |fault, what: &str| Reason::Stream { fault, what: what.to_owned() };
    let cut = || ReceiveError::Stream(stream::Error::Truncated { record: 7, at: 312 });
    let text = "the stream ends inside record 7, which begins at byte 312";
    assert_eq!(of(cut()).reason, stream(StreamFault::Truncated, text));
    let kept = ReceiveError::Resumable { source: Box::new(cut()) };
    let reason = Box::new(stream(StreamFault::Truncated, text));
    assert_eq!(of(kept).reason, Reason::Kept { reason });
    let odd = ReceiveError::Record { record: 2, at: 624, why: "an object of no type" };
    let text = "record 2 at byte 624: an object of no type";
    assert_eq!(of(odd).reason, stream(StreamFault::Invalid, text));
    assert_eq!(of(ReceiveError::Feature("zstd")).reason, stream(StreamFault::Feature, "zstd"));
    let why = dsl::Refusal::NotSource;
    let refused = of(ReceiveError::Refused(dsl::Error::Refused { name: "tank/fs".to_owned(), why }));
    assert_eq!(refused.about, "tank/fs");
    assert_eq!(refused.reason, Reason::Refused { why: api::Refusal::NotSource });
    let pool = ReceiveError::Pool(Box::new(std::io::Error::other("no device")));
    assert!(matches!(of(pool).reason, Reason::Io { .. }));
}

/// Goal: BEGIN is decoded in either byte order, and nothing else passes for it.
#[test]
fn begins() {
    let begin = Begin {
        magic: BACKUP_MAGIC,
        version_info: 1,
        creation_time: 0,
        objset_type: 2,
        flags: 0,
        to_guid: 5,
        from_guid: 4,
        to_name: [0; 256],
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let raw = Record::Begin(begin).encode(0, order);
        assert_eq!(first("tank@s", &raw).unwrap(), begin);
        assert!(first("tank@s", &raw[1..]).is_err());
    }
    assert!(first("tank@s", &[0; RECORD_SIZE]).is_err());
}
