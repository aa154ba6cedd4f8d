//! Known vectors, tickets, and both ends of a connection.

use std::sync::Arc;

use proptest::prelude::*;

use super::der::{self, Der};
use super::keys::{self, Key, Keys};
use super::krb5::{self, Aes};
use super::{Client, Server, code, ticket};
use crate::Error;
use crate::block::Slice;
use crate::packet::{Flags, Header, Kind};
use crate::security::{Class, ConnectionId, Level, Outgoing, RXKAD, Session};

const ID: ConnectionId = ConnectionId { epoch: 0x8123_4567, cid: 0x89ab_cd00 };
const NOW: u32 = 1_700_000_000;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn keys() -> Arc<Keys> {
    let all = [(1, 18, 32), (1, 17, 16), (1, 23, 16), (2, 18, 32)];
    let key = |(kvno, enctype, length): (i32, i32, usize)| Key::new(kvno, enctype, &vec![kvno as u8; length]);
    Arc::new(Keys::fixed(all.map(key).to_vec()))
}

fn refused<T>(result: crate::Result<T>) -> i32 {
    match result {
        Err(Error::Security { code }) => code,
        Err(_) => panic!("another error"),
        Ok(_) => 0,
    }
}

/// Goal: bytes are spread as the examples of RFC 3961 show.
#[test]
fn bytes_are_spread() {
    assert_eq!(krb5::spread(b"kerberos").to_vec(), hex("6b65726265726f737b9b5b2b93132b93"));
}

/// Goal: AES in CBC mode with a cut end has the results of RFC 3962, and is undone.
#[test]
fn the_vectors_of_rfc_3962() {
    let aes = Aes::new(b"chicken teriyaki").unwrap();
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    let cases = [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
        (
            47,
            "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98ebf5",
        ),
        (
            48,
            "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd839312523a78662d5be7fcbcc98ebf5a8",
        ),
    ];
    for (n, cipher) in cases {
        assert_eq!(krb5::encrypt_cts(&aes, &text[..n]), hex(cipher), "{n}");
        assert_eq!(krb5::decrypt_cts(&aes, &hex(cipher)), text[..n], "{n}");
    }
}

/// Goal: session keys of other types become keys for fcrypt as an implementation in another
/// language computes them.
#[test]
fn session_keys_are_derived() {
    let long: Vec<u8> = (0..32).collect();
    assert_eq!(ticket::session_key(18, &long).unwrap().to_vec(), hex("b60db5e30b266b16"));
    let triple: Vec<u8> = (100..124).collect();
    assert_eq!(ticket::session_key(16, &triple).unwrap().to_vec(), hex("f8ce2c8957adf4e3"));
    assert_eq!(ticket::session_key(1, b"abcdefgh").unwrap().to_vec(), b"abcdefgh");
    for (enctype, length) in [(0, 8), (4, 8), (-1, 8), (3, 7), (18, 6), (16, 20)] {
        assert!(ticket::session_key(enctype, &vec![1; length]).is_none(), "{enctype} {length}");
    }
}

/// Goal: tickets of each encryption type open with their key, and with no other.
#[test]
fn tickets_open_with_their_key() {
    for (kvno, enctype, length) in [(1, 17, 16), (1, 18, 32), (1, 23, 16)] {
        let key = Key::new(kvno, enctype, &vec![1; length]);
        let made = ticket::make(&key, "user.admin", NOW + 10, b"abcdefgh", &[7; 16]).unwrap();
        let opened = ticket::open(&keys(), ticket::PART, &made, NOW).unwrap();
        assert_eq!(
            (opened.name.as_str(), opened.realm.as_str(), opened.expires),
            ("user.admin", "", NOW + 10)
        );
        assert_eq!(*opened.key, *b"abcdefgh");
        // Clocks may differ by a quarter of an hour.
        assert!(ticket::open(&keys(), ticket::PART, &made, NOW + 10 + 900).is_ok());
        assert_eq!(refused(ticket::open(&keys(), ticket::PART, &made, NOW + 11 + 900)), code::EXPIRED);
        let wrong = Keys::fixed(vec![Key::new(kvno, enctype, &vec![9; length])]);
        assert_eq!(refused(ticket::open(&wrong, ticket::PART, &made, NOW)), code::BAD_TICKET);
        let none = Keys::fixed(Vec::new());
        assert_eq!(refused(ticket::open(&none, ticket::PART, &made, NOW)), code::UNKNOWN_KEY);
        for at in 0..made.len() {
            let mut bad = made.clone();
            bad[at] ^= 1;
            let result = ticket::open(&keys(), ticket::PART, &bad, NOW);
            assert!(result.is_err(), "{enctype}: the change of byte {at} is not seen");
        }
        for end in 0..made.len() {
            assert!(ticket::open(&keys(), ticket::PART, &made[..end], NOW).is_err());
        }
    }
}

/// Goal: moments are read and written as DER has them.
#[test]
fn moments_have_their_form() {
    for (seconds, text) in [
        (0, "19700101000000Z"),
        (951_827_696, "20000229123456Z"),
        (i32::MAX as u32, "20380119031407Z"),
        (1_735_689_599, "20241231235959Z"),
    ] {
        assert_eq!(der::time(seconds), text.as_bytes());
        assert_eq!(Der(text.as_bytes()).time(), Some(seconds));
    }
    for text in ["2000022912345Z", "20001329123456Z", "20000229123456+", "200002291234Z6Z"] {
        assert_eq!(Der(text.as_bytes()).time(), None, "{text}");
    }
}

/// Goal: a file of keys is read, keys for other uses are left out, and damage is an error.
#[test]
fn key_files_are_read() {
    let record = |kind: u8, kvno: u8, subtype: u8, key: &[u8]| {
        let words = [16, u32::from(kind), u32::from(kvno), u32::from(subtype), key.len() as u32];
        [&words.map(u32::to_be_bytes).concat()[..], key].concat()
    };
    let file = [
        &3u32.to_be_bytes()[..],
        &record(2, 5, 18, &[1; 32]),
        &record(4, 5, 18, &[2; 32]),
        &record(2, 6, 23, &[3; 16]),
    ]
    .concat();
    let read = keys::parse(&file).unwrap();
    assert_eq!(format!("{read:?}"), "[Key(version 5, type 18), Key(version 6, type 23)]");
    for end in 0..file.len() {
        assert!(keys::parse(&file[..end]).is_err(), "{end}");
    }
    assert!(keys::parse(&[&file[..], &[0]].concat()).is_err());
    assert!(keys::parse(&[0xff; 100]).is_err());
}

/// Goal: a changed file of keys is read again. One that vanishes leaves the keys that were in it.
#[test]
fn changed_keys_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("KeyFileExt");
    let file = |kvno: u8| {
        let words = [1, 16, 2, u32::from(kvno), 17, 16];
        [&words.map(u32::to_be_bytes).concat()[..], &[kvno; 16]].concat()
    };
    std::fs::write(&path, file(1)).unwrap();
    let keys = Keys::of_file(&path).unwrap();
    assert!(keys.find(1, 17).is_some() && keys.find(2, 17).is_none());
    std::fs::write(&path, file(2)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
    keys.check_now();
    assert!(keys.find(2, 17).is_some() && keys.find(1, 17).is_none());
    std::fs::remove_file(&path).unwrap();
    keys.check_now();
    assert!(keys.find(2, 17).is_some());
    assert!(matches!(Keys::of_file(&path), Err(Error::KeyFile { .. })));
}

/// Both ends of a proven connection.
fn pair(level: Level) -> (Box<dyn Session>, Box<dyn Session>) {
    let client = Client::local(&keys(), "afs", level).unwrap();
    let mut client = client.client(ID).unwrap();
    let mut server = Server::new(keys(), Level::Clear).server(ID, 77).unwrap();
    let challenge = server.challenge().unwrap();
    let response = client.respond(&challenge, [1, 2, 3, 4]).unwrap();
    let accepted = server.accept(&response, NOW).unwrap();
    assert_eq!((accepted.identity.name.as_str(), accepted.identity.level), ("afs", level));
    assert_eq!(accepted.calls, [1, 2, 3, 4]);
    (client, server)
}

fn header(packet: &Outgoing) -> Header {
    Header {
        epoch: ID.epoch,
        cid: packet.cid,
        call: packet.call,
        seq: packet.seq,
        serial: 1,
        kind: Kind::Data,
        flags: Flags::CLIENT,
        user_status: 0,
        security: RXKAD,
        checksum: packet.checksum,
        service: 1,
    }
}

fn outgoing(seq: u32, data: &[u8]) -> Outgoing {
    let payload = Slice::from(data.to_vec());
    Outgoing { cid: ID.cid | 2, call: 5, seq, checksum: 0, payload }
}

/// Goal: packets of each level open at the other end as they were sealed, in both directions.
#[test]
fn sealed_packets_open() {
    for level in [Level::Clear, Level::Auth, Level::Crypt] {
        let (mut client, mut server) = pair(level);
        let data: Vec<Vec<u8>> = (0..40).map(|n| vec![n as u8; n * 37 % 1_400]).collect();
        for there in [true, false] {
            let (from, to) = if there { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let mut packets: Vec<_> = (1..).zip(&data).map(|(seq, data)| outgoing(seq, data)).collect();
            from.seal(&mut packets);
            for (packet, data) in packets.iter().zip(&data) {
                let (header, mut body) = (header(packet), packet.payload.bytes().to_vec());
                assert_ne!(header.checksum, 0);
                assert!(level < Level::Crypt || (body != *data && body.len() % 8 == 0));
                let range = to.open(&header, &mut body).unwrap();
                assert_eq!(body[range], *data, "{level:?}");
            }
        }
    }
}

/// Goal: packets that are opened together have the results of each alone, good and bad ones.
#[test]
fn many_packets_open_as_each_does() {
    for level in [Level::Clear, Level::Auth, Level::Crypt] {
        let (mut client, mut server) = pair(level);
        let mut packets: Vec<_> =
            (1..=29).map(|seq| outgoing(seq, &vec![seq as u8; 1_412 - seq as usize])).collect();
        client.seal(&mut packets);
        assert_eq!((client.gathers(), server.gathers()), (level == Level::Crypt, level == Level::Crypt));
        let sealed: Vec<(Header, Vec<u8>)> = packets
            .iter()
            .enumerate()
            .map(|(at, packet)| {
                let (mut header, mut body) = (header(packet), packet.payload.bytes().to_vec());
                match at % 7 {
                    3 => header.checksum ^= 1,
                    4 => body.truncate(at - 1),
                    5 => body[1] ^= 1,
                    _ => {}
                }
                (header, body)
            })
            .collect();
        let (mut alone, mut together) = (sealed.clone(), sealed);
        let mut places: Vec<(Header, &mut [u8])> =
            together.iter_mut().map(|(header, body)| (*header, &mut body[..])).collect();
        let results = server.open_all(&mut places);
        assert_eq!(results.len(), alone.len());
        let mut good = 0;
        for ((result, (header, body)), (_, other)) in results.into_iter().zip(&mut alone).zip(&together) {
            match (result, server.open(header, body)) {
                (Ok(one), Ok(two)) => {
                    assert_eq!((&other[one.clone()], one), (&body[two.clone()], two));
                    good += 1;
                }
                (one, two) => assert_eq!(refused(one), refused(two)),
            }
        }
        assert!(good >= 17, "{level:?}: {good}");
    }
}

/// Goal: a packet that is moved to another place, changed or cut is refused, and does no harm.
#[test]
fn forged_packets_are_refused() {
    for level in [Level::Clear, Level::Auth, Level::Crypt] {
        let (mut client, mut server) = pair(level);
        let mut packets = [outgoing(3, &[9; 100])];
        client.seal(&mut packets);
        let (good, body) = (header(&packets[0]), packets[0].payload.bytes().to_vec());
        for bad in [
            Header { seq: 4, ..good },
            Header { call: 6, ..good },
            Header { cid: ID.cid, ..good },
            Header { checksum: good.checksum ^ 1, ..good },
            Header { checksum: 0, ..good },
        ] {
            assert_eq!(refused(server.open(&bad, &mut body.clone())), code::SEALED_INCONSISTENT);
        }
        if level > Level::Clear {
            for end in 0..8 {
                assert_ne!(refused(server.open(&good, &mut body[..end].to_vec())), 0);
            }
            let mut changed = body.clone();
            changed[1] ^= 1;
            assert_ne!(refused(server.open(&good, &mut changed)), 0);
        }
        assert_eq!(refused(server.open(&good, &mut body.clone())), 0);
    }
}

/// Goal: a response to another challenge, of another connection, of too low a level, or changed in
/// any byte, proves nothing.
#[test]
fn bad_responses_are_refused() {
    let class = Client::local(&keys(), "afs", Level::Auth).unwrap();
    let response = |id, challenge: &[u8]| class.client(id).unwrap().respond(challenge, [0; 4]).unwrap();
    let server = |least, nonce| Server::new(keys(), least).server(ID, nonce).unwrap();
    let mut challenged = server(Level::Clear, 77);
    let challenge = challenged.challenge().unwrap();
    let good = response(ID, &challenge);
    assert_eq!(refused(server(Level::Clear, 78).accept(&good, NOW)), code::OUT_OF_SEQUENCE);
    let other = response(ConnectionId { cid: 4, ..ID }, &challenge);
    assert_eq!(refused(challenged.accept(&other, NOW)), code::SEALED_INCONSISTENT);
    assert_eq!(refused(server(Level::Crypt, 77).accept(&good, NOW)), code::LEVEL_FAIL);
    let demanding = server(Level::Crypt, 77).challenge().unwrap();
    assert_eq!(refused(class.client(ID).unwrap().respond(&demanding, [0; 4])), code::LEVEL_FAIL);
    // The second word is unused.
    for at in (0..4).chain(8..good.len()) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(challenged.accept(&bad, NOW).is_err(), "the change of byte {at} is not seen");
    }
    for end in 0..good.len() {
        assert!(challenged.accept(&good[..end], NOW).is_err());
    }
    assert!(challenged.accept(&good, NOW).is_ok());
}

proptest! {
    /// Goal: no bytes make the readers of tickets, responses, challenges and files panic.
    #[test]
    fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut server = Server::new(keys(), Level::Clear).server(ID, 1).unwrap();
        let _ = server.accept(&bytes, NOW);
        let _ = ticket::open(&keys(), ticket::PART, &bytes, NOW);
        let _ = ticket::open(&keys(), ticket::WHOLE, &bytes, NOW);
        let _ = keys::parse(&bytes);
        let mut client = Client::local(&keys(), "afs", Level::Clear).unwrap().client(ID).unwrap();
        let _ = client.respond(&bytes, [0; 4]);
    }
}
