//! Messages arrive as they were sent, and what is no message is refused before it costs anything.

#![allow(clippy::unwrap_used)]

use super::wire::{ASK_MAX, Answer, Ask, Set, receive, send};
use super::{Bytes, PART_MAX};
use std::io::ErrorKind;

/// Goal: names of any bytes pass through JSON.
#[test]
fn any_bytes() {
    let all = Bytes((0..=255).collect());
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), all);
    assert!(serde_json::from_str::<Bytes>("\"\u{100}\"").is_err());
}

/// Goal: a message and its bytes arrive; the end of the connection differs from a broken message.
#[test]
fn messages() {
    let mut pipe = Vec::new();
    send(&mut pipe, &Ask::Write { object: 7, at: 1 << 40 }, b"data").unwrap();
    send(&mut pipe, &Ask::Lookup { folder: 3, name: Bytes(b"a/\xff".to_vec()) }, &[]).unwrap();
    let (mut from, mut bytes) = (pipe.as_slice(), Vec::new());
    let first = receive::<Ask>(&mut from, ASK_MAX, &mut bytes).unwrap();
    assert!(matches!(first, Some(Ask::Write { object: 7, at }) if at == 1 << 40) && bytes == b"data");
    let second = receive::<Ask>(&mut from, ASK_MAX, &mut bytes).unwrap();
    assert!(matches!(second, Some(Ask::Lookup { folder: 3, name }) if name.0 == b"a/\xff"));
    assert!(bytes.is_empty());
    assert!(receive::<Ask>(&mut from, ASK_MAX, &mut bytes).unwrap().is_none());
    for cut in [1, 8, pipe.len() - 1] {
        let mut from = &pipe[..cut];
        let broken = loop {
            match receive::<Ask>(&mut from, ASK_MAX, &mut bytes) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("cut at {cut}: taken for an end"),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(broken, ErrorKind::UnexpectedEof, "cut at {cut}");
    }
}

/// Goal: lengths beyond the bounds, and text that is no question, are errors; nothing of that
/// length is read or reserved.
#[test]
fn hostile_messages() {
    let mut bytes = Vec::new();
    let head = |json: usize, data: usize| {
        [u32::try_from(json).unwrap().to_le_bytes(), u32::try_from(data).unwrap().to_le_bytes()].concat()
    };
    for (json, data) in [(ASK_MAX + 1, 0), (0, PART_MAX + 1), (u32::MAX as usize, u32::MAX as usize)] {
        let message = head(json, data);
        let refused = receive::<Ask>(&mut message.as_slice(), ASK_MAX, &mut bytes).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        assert!(bytes.capacity() <= PART_MAX);
    }
    for text in ["", "{}", "\"Nothing\"", "{\"Read\":{\"at\":-1,\"len\":1}}", "[[[[[[[["] {
        let message = [head(text.len(), 0), text.as_bytes().to_vec()].concat();
        let refused = receive::<Ask>(&mut message.as_slice(), ASK_MAX, &mut bytes).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData, "{text}");
    }
    assert!(receive::<Answer>(&mut head(4, 0).as_slice(), ASK_MAX, &mut bytes).is_err());
}

/// Goal: what a command sets of a file is bounded to what a file can have.
#[test]
fn attributes_in_bounds() {
    let asked = r#"{"permissions":4294967295,"uid":1,"gid":null,"atime":[-5,4294967295],"mtime":null}"#;
    let set: zpl::SetAttr = serde_json::from_str::<Set>(asked).unwrap().into();
    assert_eq!((set.permissions, set.uid, set.gid), (Some(0o7777), Some(1), None));
    assert_eq!(set.atime.map(|time| (time.secs, time.nanos)), Some((-5, 999_999_999)));
    assert_eq!((set.size, set.kill), (None, false));
}
