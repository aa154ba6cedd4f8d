//! Messages arrive as they were sent, and malformed ones are refused before they cost anything.

#![allow(clippy::unwrap_used)]

use super::wire::{ANSWER_MAX, ASK_MAX, Answer, Ask, Set, receive, send};
use super::{Bytes, Opened, Opening, PART_MAX, Visit};
use crate::run_dir::RunDir;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::Duration;

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

/// Goal: lengths beyond the limits, and text that is not a request, are errors. The receiver
/// neither reads nor allocates that length.
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

/// Goal: attributes that a command sets are limited to what a file can have.
#[test]
fn attributes_in_bounds() {
    let asked = r#"{"permissions":4294967295,"uid":1,"gid":null,"atime":[-5,4294967295],"mtime":null}"#;
    let set: zpl::SetAttr = serde_json::from_str::<Set>(asked).unwrap().into();
    assert_eq!((set.permissions, set.uid, set.gid), (Some(0o7777), Some(1), None));
    assert_eq!(set.atime.map(|time| (time.secs, time.nanos)), Some((-5, 999_999_999)));
    assert_eq!((set.size, set.kill), (None, false));
}

/// Receives bytes as the daemon does from a client, and as a command does from a daemon.
fn frames(data: &[u8]) {
    each(data, ASK_MAX, |ask| match ask {
        Ask::Create { new, .. } => drop(new.file()),
        Ask::SetAttr { set, .. } => {
            let set = zpl::SetAttr::from(set);
            assert!(set.permissions.is_none_or(|bits| bits <= 0o7777));
            assert!(set.mtime.is_none_or(|time| time.nanos < 1_000_000_000));
        }
        _ => {}
    });
    each(data, ANSWER_MAX, |_: Answer| ());
}

fn each<T: DeserializeOwned + Serialize>(mut data: &[u8], most: usize, use_it: impl Fn(T)) {
    let mut bytes = Vec::new();
    while let Ok(Some(message)) = receive::<T>(&mut data, most, &mut bytes) {
        assert!(bytes.len() <= PART_MAX);
        let mut sent = Vec::new();
        send(&mut sent, &message, &bytes).expect("memory takes it");
        let mut again = Vec::new();
        // Escapes may make its text longer.
        let twice: Option<T> =
            receive(&mut sent.as_slice(), usize::MAX, &mut again).expect("it is a message");
        let text = |message: &T| serde_json::to_string(message).expect("it was text");
        assert_eq!(twice.as_ref().map(text), Some(text(&message)));
        assert!(again == bytes);
        use_it(message);
    }
}

/// Goal: no bytes of a client or of a daemon make the other end panic.
#[test]
fn mutated_messages() {
    use fuzzing::mutate::{Rng, mutate};
    let set = Set::from(&zpl::SetAttr { permissions: Some(0o755), uid: Some(1), ..Default::default() });
    let new = zpl::NewFile::new(zpl::Kind::Symlink(b"to".to_vec()), 0o777);
    let asks = [
        Ask::Open(super::Opening { dataset: "t/a@s".to_owned(), ..Default::default() }),
        Ask::Create { folder: 3, name: Bytes(b"n\xff".to_vec()), new: (&new).into() },
        Ask::SetAttr { object: 7, set },
        Ask::Read { at: u64::MAX, len: PART_MAX },
    ];
    let answers = [Answer::Names(vec![Bytes(vec![0, 200])]), Answer::At(None), Answer::Object(Some(1))];
    let mut seeds = Vec::new();
    for ask in &asks {
        let mut pipe = Vec::new();
        send(&mut pipe, ask, b"data").unwrap();
        seeds.push(pipe);
    }
    for answer in &answers {
        let mut pipe = Vec::new();
        send(&mut pipe, answer, &[]).unwrap();
        seeds.push(pipe);
    }
    seeds.push(seeds.concat());
    seeds.iter().for_each(|seed| frames(seed));
    for round in 0..2000 {
        let mut rng = Rng::new(round);
        let mut input = seeds[rng.below(seeds.len())].clone();
        mutate(&mut rng, &mut input);
        let survived = std::panic::catch_unwind(|| frames(&input));
        assert!(survived.is_ok(), "panicked in round {round}");
    }
}

/// Goal: the end of a visit waits until the daemon has closed the dataset.
#[test]
fn a_visit_ends_when_its_dataset_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let place = RunDir::at(dir.path());
    let listener = UnixListener::bind(place.files()).unwrap();
    let (ended, end) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            let first = receive::<Ask>(&mut stream, ASK_MAX, &mut bytes).unwrap();
            assert!(matches!(first, Some(Ask::Open(_))));
            send(&mut stream, &Answer::Opened(Opened { volume: None, total: 0 }), &[]).unwrap();
            assert!(receive::<Ask>(&mut stream, ASK_MAX, &mut bytes).unwrap().is_none());
            // The dataset is still open.
            assert!(end.recv_timeout(Duration::from_millis(100)).is_err());
            drop(stream);
            end.recv().unwrap();
        });
        let (visit, _) = Visit::open(&place, &Opening::default()).unwrap();
        drop(visit);
        ended.send(()).unwrap();
    });
}
