//! The bytes of packets, and what is refused.

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;

use super::debug::{self, Question};
use super::{Ack, Flags, HEADER, Header, Kind, Reason, Trailer, abort_code};
use crate::Error;

fn header() -> Header {
    Header {
        epoch: 0x8000_0001,
        cid: 0x1234_5676,
        call: 3,
        seq: 4,
        serial: 5,
        kind: Kind::Data,
        flags: Flags::CLIENT.with(Flags::LAST),
        user_status: 7,
        security: 2,
        checksum: 0xabcd,
        service: 52,
    }
}

/// Goal: each field of a header is where OpenAFS has it.
#[test]
fn a_header_has_its_bytes() {
    let bytes = header().encode();
    let expected =
        b"\x80\0\0\x01\x12\x34\x56\x76\0\0\0\x03\0\0\0\x04\0\0\0\x05\x01\x05\x07\x02\xab\xcd\0\x34";
    assert_eq!(&bytes, expected);
    let datagram = [&bytes[..], b"data"].concat();
    let (parsed, rest) = Header::parse(&datagram).unwrap();
    assert_eq!((parsed, rest), (header(), &b"data"[..]));
    assert_eq!((parsed.channel(), parsed.connection()), (2, 0x1234_5674));
}

/// Goal: what is too short or has an unknown type is refused.
#[test]
fn bad_headers_are_refused() {
    assert!(matches!(Header::parse(&[0; HEADER - 1]), Err(Error::Short { missing: 1 })));
    let mut bytes = header().encode();
    for kind in [0, 10, 12, 14, 255] {
        bytes[20] = kind;
        assert!(matches!(Header::parse(&bytes), Err(Error::PacketType { .. })), "{kind}");
    }
    assert!(abort_code(&[0; 3]).is_err());
    assert_eq!(abort_code(&[0xff, 0xff, 0xfe, 0x39]).unwrap(), -455);
}

/// Goal: an acknowledgement with a part of a trailer, or with none, is read.
#[test]
fn acks_of_old_programs_are_read() {
    let trailer = Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 };
    let ack = Ack {
        first: 9,
        previous: 12,
        serial: 77,
        reason: Reason::OUT_OF_SEQUENCE,
        states: &[0, 1, 1],
        max_mtu: Some(1444),
        window: Some(32),
    };
    let bytes = ack.encode(&trailer);
    assert_eq!(bytes.len(), 18 + 3 + 3 + 16);
    assert_eq!(Ack::parse(&bytes).unwrap(), ack);
    assert_eq!(Ack::parse(&bytes[..24]).unwrap().max_mtu, None);
    assert_eq!(Ack::parse(&bytes[..28]).unwrap(), Ack { window: None, ..ack });
    assert!(matches!(Ack::parse(&bytes[..20]), Err(Error::Short { missing: 1 })));
    assert!(matches!(Ack::parse(&bytes[..17]), Err(Error::Short { missing: 1 })));
}

/// Goal: answers to `rxdebug` have the sizes and offsets of OpenAFS's structures.
#[test]
fn debug_answers_have_their_layout() {
    assert_eq!(Question::parse(&[0, 0, 0, 5, 0, 0, 0, 9]).unwrap(), Question::Peer(9));
    assert_eq!(debug::Stats::default().encode().len(), 56);
    assert_eq!(debug::Stats::default().encode()[14], b'S');
    assert_eq!(debug::Counters::default().encode().len(), 284);
    let peer = SocketAddrV4::new(Ipv4Addr::new(1, 2, 3, 4), 7001);
    let connection = debug::Connection {
        peer,
        cid: 0x11,
        epoch: 0x22,
        serial: 0x33,
        error: -1,
        server: true,
        security_index: 2,
        channels: Default::default(),
        security: debug::Security { kind: 3, level: 2, flags: 2, ..Default::default() },
        mtu: 1444,
    };
    let bytes = connection.encode();
    assert_eq!(bytes.len(), debug::SIZE_CONNECTION);
    assert_eq!(bytes[..8], [1, 2, 3, 4, 0, 0, 0, 0x11]);
    assert_eq!(bytes[32..37], [0x1b, 0x59, 0, 1, 2]);
    assert_eq!((bytes[56], bytes[57], bytes[71], bytes[135]), (3, 2, 2, 0x22));
    let known = debug::Peer {
        address: peer,
        connections: 1,
        rtt: 8,
        rtt_deviation: 4,
        sent: [10, 1],
        mtu: 1444,
        window: 16,
        bytes: [1 << 32, 5],
    };
    let bytes = known.encode();
    assert_eq!(bytes.len(), debug::SIZE_PEER);
    assert_eq!((bytes[13], bytes[43], bytes[71], bytes[79], bytes[91]), (1, 10, 16, 1, 5));
    assert_eq!(debug::Peer::end()[..4], [0xff; 4]);
}

proptest! {
    /// Goal: a header that is read and written again is the same, but for unknown types.
    #[test]
    fn headers_come_back(bytes: [u8; HEADER]) {
        if let Ok((header, _)) = Header::parse(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
        }
    }

    /// Goal: no bytes make the readers panic.
    #[test]
    fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(ack) = Ack::parse(&bytes) {
            prop_assert!(ack.states.len() + 18 <= bytes.len());
        }
        let _ = Question::parse(&bytes);
    }
}
