//! Block pointers keep every field through decoding and encoding, and the decoder refuses what the
//! format forbids.

use super::*;

/// The first pointer to the MOS of a real pool, from its uberblock: lz4, fletcher4, three copies.
fn stored() -> Blkptr {
    let sum = [0x1_2345, 0x2_3456, 0x3_4567, 0x4_5678];
    let dva = |n: u64| {
        Some(Dva { vdev: VdevId(n as u32), offset: Offset(n << 20), asize: Asize(4096), gang: n == 2 })
    };
    Blkptr {
        kind: DmuType::OBJSET,
        level: Level(0),
        lsize: Lsize(4096),
        birth: Txg(77),
        order: ByteOrder::Little,
        body: Body::Stored(Stored {
            dvas: [dva(0), dva(1), dva(2)],
            psize: Psize(1024),
            compress: CompressKind::Lz4,
            checksum: ChecksumKind::Fletcher4,
            sum,
            phys_birth: Txg(77),
            fill: 59,
            dedup: false,
            crypt: false,
            crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
        }),
    }
}

/// Goal: a pointer keeps every field through encoding and decoding.
#[test]
fn round_trip() {
    let mut bp = stored();
    // A first copy at offset 0 of vdev 0 with a size is not a hole.
    assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), bp);
    bp.kind = DmuType::PLAIN_FILE_CONTENTS;
    let Body::Stored(s) = &mut bp.body else { unreachable!() };
    s.crypt = true;
    s.dvas[2] = None;
    s.fill = 1;
    s.crypt_params = CryptParams { salt: *b"saltsalt", iv: *b"twelve bytes" };
    assert!(bp.is_encrypted());
    assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), bp);
    bp.order = ByteOrder::Big;
    assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), bp);
    assert_eq!(&bp.encode()[32..40], b"tlastlas", "words of a big-endian pointer read as little-endian ones");
    assert_eq!(Blkptr::decode(&Blkptr::HOLE.encode()).unwrap(), Blkptr::HOLE);
}

/// Goal: an embedded pointer returns its payload, whose words are not adjacent.
#[test]
fn embedded_payload() {
    let mut raw = [0u8; 128];
    for (n, w) in PAYLOAD_WORDS.iter().enumerate() {
        for b in 0..8 {
            raw[w * 8 + b] = (n * 8 + b) as u8;
        }
    }
    let prop: u64 = 1 << 63 | 19 << 48 | 1 << 39 | 2 << 32 | 111 << 25 | 111;
    raw[48..56].copy_from_slice(&prop.to_le_bytes());
    raw[80] = 9;
    let bp = Blkptr::decode(&raw).unwrap();
    let Body::Embedded(e) = &bp.body else { panic!("not embedded") };
    assert_eq!(e.payload(), (0..112).collect::<Vec<u8>>());
    assert_eq!((bp.lsize, bp.birth), (Lsize(112), Txg(9)));
    assert_eq!(bp.encode(), raw);
}

/// Goal: the decoder refuses sizes above 16 MiB, unknown functions, and later copies without a
/// first copy; its error names the field.
#[test]
fn refusals() {
    let good = stored().encode();
    let with = |at: usize, v: u8| {
        let mut b = good;
        b[at] = v;
        Blkptr::decode(&b)
    };
    assert!(matches!(with(49, 0xff), Err(Corrupt::Range { field: "lsize", .. })));
    assert!(matches!(with(51, 0xff), Err(Corrupt::Range { field: "psize", .. })));
    assert!(matches!(with(53, 200), Err(Corrupt::Range { field: "checksum", .. })));
    assert!(matches!(with(52, 100), Err(Corrupt::Range { field: "compression", .. })));
    assert!(matches!(with(54, 60), Err(Corrupt::Range { field: "type", .. })));
    let mut b = good;
    b[..16].fill(0);
    assert!(matches!(Blkptr::decode(&b), Err(Corrupt::Shape { .. })));
    assert!(matches!(Blkptr::decode(&good[..127]), Err(Corrupt::Truncated { .. })));
}
