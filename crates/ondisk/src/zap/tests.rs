use super::*;
use proptest::prelude::*;

type Item<'a> = (u64, u32, &'a [u8], u8, &'a [u8]);

/// Builds a leaf of `1 << shift` bytes with these entries: hash, cd, name, integer size, big-endian
/// value.
fn leaf(shift: u32, entries: &[Item]) -> Vec<u8> {
    let size = 1usize << shift;
    let (at, chunks) = raw::geometry(size);
    let mut b = vec![0u8; size];
    b[..8].copy_from_slice(&ZBT_LEAF.to_le_bytes());
    b[24..28].copy_from_slice(&0x2AB_1EAFu32.to_le_bytes());
    b[30..32].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    b[48..at].fill(0xff);
    for c in 0..chunks {
        b[at + c * 24] = raw::CHUNK_FREE;
    }
    let mut next = 0u16;
    let mut put = |b: &mut [u8], bytes: &[u8]| -> u16 {
        let first = next;
        let n = bytes.len().div_ceil(21);
        for (i, part) in bytes.chunks(21).enumerate() {
            let c = at + usize::from(next) * 24;
            b[c] = raw::CHUNK_ARRAY;
            b[c + 1..c + 1 + part.len()].copy_from_slice(part);
            next += 1;
            let link = if i + 1 == n { 0xffff } else { next };
            b[c + 22..c + 24].copy_from_slice(&link.to_le_bytes());
        }
        first
    };
    let mut heads = Vec::new();
    for (hash, cd, name, int, value) in entries {
        let mut named = name.to_vec();
        named.push(0);
        let nc = put(&mut b, &named);
        let vc = put(&mut b, value);
        heads.push((*hash, *cd, named.len() as u16, nc, *int, vc, (value.len() / usize::from(*int)) as u16));
    }
    for (hash, cd, nlen, nc, int, vc, vlen) in heads {
        let n = next;
        next += 1;
        let c = at + usize::from(n) * 24;
        let bucket = 48 + 2 * ((hash >> (64 - (shift - 5))) as usize);
        let old = [b[bucket], b[bucket + 1]];
        b[bucket..bucket + 2].copy_from_slice(&n.to_le_bytes());
        b[c] = raw::CHUNK_ENTRY;
        b[c + 1] = int;
        b[c + 2..c + 4].copy_from_slice(&old);
        b[c + 4..c + 6].copy_from_slice(&nc.to_le_bytes());
        b[c + 6..c + 8].copy_from_slice(&nlen.to_le_bytes());
        b[c + 8..c + 10].copy_from_slice(&vc.to_le_bytes());
        b[c + 10..c + 12].copy_from_slice(&vlen.to_le_bytes());
        b[c + 12..c + 16].copy_from_slice(&cd.to_le_bytes());
        b[c + 16..c + 24].copy_from_slice(&hash.to_le_bytes());
    }
    b
}

/// Goal: the CRC table is the one that OpenZFS checks at its start: entry 128 is the polynomial.
#[test]
fn crc_is_ecma_182() {
    // Check value of CRC-64/XZ ("123456789"), whose initial value and final xor are all ones.
    let h = b"123456789".iter().fold(u64::MAX, |h, &b| {
        let full = hash_bytes(h, &[b], HashBits::Bits48);
        // hash_bytes masks the low bits; the unmasked variant below recovers them.
        full | (unmasked(h, b) & 0xffff)
    });
    assert_eq!(h ^ u64::MAX, 0x995D_C9BB_DF19_39FA);
}

fn unmasked(h: u64, b: u8) -> u64 {
    let mut c = (h ^ u64::from(b)) & 0xff;
    for _ in 0..8 {
        c = if c & 1 != 0 { (c >> 1) ^ 0xC96C_5795_D787_0F42 } else { c >> 1 };
    }
    (h >> 8) ^ c
}

/// Goal: a leaf returns names, values and order, and a chain only entries with the requested hash.
#[test]
fn leaf_entries_are_found_in_cursor_order() {
    let (a, b) = (0x1111_1110_0000_0000u64, 0x2222_2220_0000_0000u64);
    let long = [b'x'; 100];
    let buf = leaf(
        12,
        &[
            (b, 0, b"beta", 8, &7u64.to_be_bytes()),
            (a, 1, &long, 2, &[1, 2, 3, 4]),
            (a, 0, b"alpha", 1, b"text"),
        ],
    );
    let l = Leaf::parse(&buf).unwrap();
    let all = l.entries().unwrap();
    let names: Vec<_> = all.iter().map(|e| l.name(e).unwrap()).collect();
    assert_eq!(names, [b"alpha".to_vec(), long.to_vec(), b"beta".to_vec()]);
    assert_eq!(l.value(&all[1]).unwrap(), [1, 2, 3, 4]);
    assert_eq!(all[1].num_ints, 2);
    assert_eq!(l.entries_of(a).unwrap().len(), 2);
    assert_eq!(l.entries_of(0x3333_3330_0000_0000).unwrap().len(), 0);
}

/// Goal: a cyclic chain ends with an error.
#[test]
fn cyclic_chains_are_corrupt() {
    let h = 0x1111_1110_0000_0000u64;
    let mut buf = leaf(12, &[(h, 0, b"a", 8, &1u64.to_be_bytes())]);
    let (at, _) = raw::geometry(buf.len());
    let entry = at + 2 * 24;
    buf[entry + 2..entry + 4].copy_from_slice(&2u16.to_le_bytes());
    let l = Leaf::parse(&buf).unwrap();
    let circle = Corrupt::Shape { what: "ZAP leaf", why: "a chain of entries runs in a circle" };
    assert_eq!(l.entries().unwrap_err(), circle);
    assert_eq!(l.entries_of(h).unwrap_err(), circle);
}

/// Goal: a leaf knows the first hash after its own; the last leaf has none.
#[test]
fn leaves_know_their_successor() {
    let mut buf = leaf(12, &[]);
    assert_eq!(Leaf::parse(&buf).unwrap().next_hash(), None);
    buf[16..24].copy_from_slice(&2u64.to_le_bytes());
    buf[32] = 2;
    assert_eq!(Leaf::parse(&buf).unwrap().next_hash(), Some(0xc000_0000_0000_0000));
    buf[16] = 3;
    let l = Leaf::parse(&buf).unwrap();
    assert_eq!(l.next_hash(), None);
    assert!(l.covers(u64::MAX) && !l.covers(0));
}

/// Goal: free slots are skipped, and a name that fills its field without a NUL is refused.
#[test]
fn micro_slots() {
    let mut b = vec![0u8; 512];
    b[..8].copy_from_slice(&ZBT_MICRO.to_le_bytes());
    b[128..136].copy_from_slice(&42u64.to_le_bytes());
    b[142..146].copy_from_slice(b"ROOT");
    let z = MicroZap::parse(&b).unwrap();
    let all: Vec<_> = z.entries().collect::<Result<_>>().unwrap();
    assert_eq!(all, [MicroEntry { name: b"ROOT", value: 42, cd: 0 }]);
    b[142..192].fill(b'x');
    assert!(MicroZap::parse(&b).unwrap().entry(1).is_err());
}

fn read_all(buf: &[u8]) {
    if let Ok(l) = Leaf::parse(buf) {
        let _ = l.entries_of(l.prefix.checked_shl(64 - l.prefix_len).unwrap_or(0));
        for e in l.entries().unwrap_or_default() {
            let _ = (l.name(&e), l.words_key(&e), l.value(&e));
        }
        let _ = l.next_hash();
    }
    if let Ok(z) = MicroZap::parse(buf) {
        z.entries().for_each(drop);
    }
    if let Ok(h) = FatHeader::parse(buf) {
        for i in [0, 1, 1 << 20, u64::MAX] {
            let _ = (h.embedded(buf, h.index(i)), h.embedded(buf, i), h.external(1, i));
        }
    }
}

proptest! {
    /// Goal: no mutation of a leaf makes its decoder panic or loop.
    #[test]
    fn mutated_leaves_end(muts in prop::collection::vec((0usize..1024, any::<u8>()), 1..24)) {
        let h = 0x1111_1110_0000_0000u64;
        let mut buf = leaf(10, &[
            (h, 0, b"alpha", 8, &1u64.to_be_bytes()),
            (h, 1, &[b'y'; 60], 4, &[0; 64]),
            (h << 1, 0, b"gamma", 1, b"zz"),
        ]);
        for (at, v) in muts {
            buf[at] = v;
        }
        read_all(&buf);
    }

    /// Goal: no header, whatever it contains, makes its decoder panic.
    #[test]
    fn random_headers_end(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..64], 128),
        kind in prop_oneof![Just(ZBT_HEADER), Just(ZBT_MICRO), Just(ZBT_LEAF)],
    ) {
        let mut buf: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        buf[..8].copy_from_slice(&kind.to_le_bytes());
        if kind == ZBT_HEADER {
            buf[8..16].copy_from_slice(&0x2_F52A_B2ABu64.to_le_bytes());
        }
        read_all(&buf);
    }
}
