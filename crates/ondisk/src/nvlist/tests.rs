use proptest::prelude::*;

use super::*;

/// Packed configs from labels that OpenZFS 2.3.2 wrote, and the output of its `zdb -l` for them.
const REAL: [(&[u8], &str); 5] = [
    (
        include_bytes!("../../tests/data/stripe-classes-d0.nvlist"),
        include_str!("../../tests/data/stripe-classes-d0.txt"),
    ),
    (include_bytes!("../../tests/data/draid1-d0.nvlist"), include_str!("../../tests/data/draid1-d0.txt")),
    (include_bytes!("../../tests/data/v1-d0.nvlist"), include_str!("../../tests/data/v1-d0.txt")),
    (
        include_bytes!("../../tests/data/raidz-expanded-d0.nvlist"),
        include_str!("../../tests/data/raidz-expanded-d0.txt"),
    ),
    (
        include_bytes!("../../tests/data/removed-vdev-d0.nvlist"),
        include_str!("../../tests/data/removed-vdev-d0.txt"),
    ),
];

/// Goal: real configs decode to what zdb prints of them.
#[test]
fn real_configs_print_as_zdb_prints_them() {
    for (packed, text) in REAL {
        assert_eq!(format!("{:4}", Nvlist::decode(packed).unwrap()), text);
    }
}

/// Goal: a decoded real config is encoded to OpenZFS's bytes, sizes and flags included.
#[test]
fn real_configs_encode_to_the_same_bytes() {
    for (packed, _) in REAL {
        assert_eq!(Nvlist::decode(packed).unwrap().encode_xdr(), packed);
    }
}

fn every_type() -> Nvlist {
    let mut inner = Nvlist::new();
    inner.set("deep", Value::Uint64(7));
    let mut nv = Nvlist::new();
    let values = [
        Value::Boolean,
        Value::Byte(0xfe),
        Value::Int16(-2),
        Value::Uint16(0xfffe),
        Value::Int32(-3),
        Value::Uint32(0xffff_fff0),
        Value::Int64(i64::MIN),
        Value::Uint64(u64::MAX),
        Value::String(b"caf\xc3\xa9 \xff".to_vec()),
        Value::ByteArray(vec![1, 2, 3]),
        Value::Int16Array(vec![-1, 2]),
        Value::Uint16Array(vec![1, 65535]),
        Value::Int32Array(vec![-1, 2, 3]),
        Value::Uint32Array(vec![1, u32::MAX]),
        Value::Int64Array(vec![-1, i64::MAX]),
        Value::Uint64Array(vec![0, u64::MAX]),
        Value::StringArray(vec![b"a".to_vec(), b"".to_vec(), b"ccc".to_vec()]),
        Value::Hrtime(-5),
        Value::List(inner.clone()),
        Value::ListArray(vec![inner.clone(), Nvlist::new(), inner]),
        Value::BooleanValue(true),
        Value::Int8(-1),
        Value::Uint8(255),
        Value::BooleanArray(vec![true, false]),
        Value::Int8Array(vec![-1, 1]),
        Value::Uint8Array(vec![255, 1, 2]),
        Value::Double(1.5),
    ];
    for (i, v) in values.into_iter().enumerate() {
        nv.set(format!("v{i}"), v);
    }
    nv
}

/// Goal: each of the 27 types survives XDR.
#[test]
fn every_type_survives_xdr() {
    let nv = every_type();
    assert_eq!(Nvlist::decode(&nv.encode_xdr()).unwrap(), nv);
    assert_eq!(Nvlist::decode(&nv.encode_native()).unwrap(), nv);
}

/// Writes native images: the bytes so far, and whether the machine is big-endian.
struct NativeWriter(Vec<u8>, bool);

impl NativeWriter {
    fn int(&mut self, v: u64, n: usize) {
        let le = v.to_le_bytes();
        let mut b = le[..n].to_vec();
        if self.1 {
            b.reverse();
        }
        self.0.extend(b);
    }

    fn pad(&mut self) {
        let n = self.0.len().next_multiple_of(8);
        self.0.resize(n, 0);
    }

    fn ints(&mut self, vs: impl IntoIterator<Item = u64>, n: usize) {
        vs.into_iter().for_each(|v| self.int(v, n));
    }

    fn list_head(&mut self, l: &Nvlist) {
        self.int(0, 4);
        self.int(l.flags.into(), 4);
        self.0.extend([0xdd; 16]);
    }

    fn value(&mut self, v: &Value) {
        match v {
            Value::Boolean => {}
            Value::Byte(x) | Value::Uint8(x) => self.int((*x).into(), 1),
            Value::Int8(x) => self.int(*x as u64, 1),
            Value::Int16(x) => self.int(*x as u64, 2),
            Value::Uint16(x) => self.int((*x).into(), 2),
            Value::Int32(x) => self.int(*x as u64, 4),
            Value::Uint32(x) => self.int((*x).into(), 4),
            Value::Int64(x) | Value::Hrtime(x) => self.int(*x as u64, 8),
            Value::Uint64(x) => self.int(*x, 8),
            Value::Double(x) => self.int(x.to_bits(), 8),
            Value::BooleanValue(x) => self.int((*x).into(), 4),
            Value::String(s) => self.0.extend(s.iter().chain(&[0])),
            Value::ByteArray(a) | Value::Uint8Array(a) => self.0.extend(a),
            Value::Int8Array(a) => self.ints(a.iter().map(|x| *x as u64), 1),
            Value::Int16Array(a) => self.ints(a.iter().map(|x| *x as u64), 2),
            Value::Uint16Array(a) => self.ints(a.iter().map(|x| (*x).into()), 2),
            Value::Int32Array(a) => self.ints(a.iter().map(|x| *x as u64), 4),
            Value::Uint32Array(a) => self.ints(a.iter().map(|x| (*x).into()), 4),
            Value::BooleanArray(a) => self.ints(a.iter().map(|x| (*x).into()), 4),
            Value::Int64Array(a) => self.ints(a.iter().map(|x| *x as u64), 8),
            Value::Uint64Array(a) => self.ints(a.iter().copied(), 8),
            Value::StringArray(a) => {
                self.0.resize(self.0.len() + 8 * a.len(), 0xee);
                a.iter().for_each(|s| self.0.extend(s.iter().chain(&[0])));
            }
            Value::List(l) => self.list_head(l),
            Value::ListArray(a) => {
                self.0.resize(self.0.len() + 8 * a.len(), 0xee);
                a.iter().for_each(|l| self.list_head(l));
            }
        }
    }

    fn pairs(&mut self, l: &Nvlist) {
        for (name, v) in l.iter() {
            let mut p = NativeWriter(Vec::new(), self.1);
            p.int(0, 4);
            p.int(name.len() as u64 + 1, 2);
            p.int(0, 2);
            p.int(v.count() as u64, 4);
            p.int(v.kind() as u64, 4);
            p.0.extend(name.iter().chain(&[0]));
            p.pad();
            p.value(v);
            p.pad();
            self.int(p.0.len() as u64, 4);
            self.0.extend(&p.0[4..]);
            match v {
                Value::List(l) => self.pairs(l),
                Value::ListArray(a) => a.iter().for_each(|l| self.pairs(l)),
                _ => {}
            }
        }
        self.int(0, 4);
    }
}

/// The native image of `nv`, as a machine of this byte order would write it.
fn native(nv: &Nvlist, big: bool) -> Vec<u8> {
    let mut w = NativeWriter(vec![0, u8::from(!big), 0, 0], big);
    w.int(0, 4);
    w.int(nv.flags.into(), 4);
    w.pairs(nv);
    w.0
}

/// Goal: native images of both byte orders decode to the same list, and their unused pointers are
/// ignored.
#[test]
fn native_images_of_both_orders_decode() {
    let nv = every_type();
    assert_eq!(Nvlist::decode(&native(&nv, false)).unwrap(), nv);
    assert_eq!(Nvlist::decode(&native(&nv, true)).unwrap(), nv);
}

/// Goal: the decoder refuses lists that nest deeper than the bound.
#[test]
fn deep_nesting_is_refused() {
    let mut nv = Nvlist::new();
    for _ in 0..=MAX_DEPTH {
        let mut outer = Nvlist::new();
        outer.set("l", Value::List(nv));
        nv = outer;
    }
    let why = Err(Corrupt::Shape { what: WHAT, why: "lists nest too deeply" });
    assert_eq!(Nvlist::decode(&nv.encode_xdr()), why);
    assert_eq!(Nvlist::decode(&native(&nv, false)), why);
}

/// Goal: the decoder refuses an element count far beyond the bytes left before it allocates memory
/// for it.
#[test]
fn huge_counts_are_refused() {
    let mut nv = Nvlist::new();
    nv.set("a", Value::Uint64Array(vec![1]));
    let mut packed = nv.encode_xdr();
    // Header 4, version and flags 8, sizes 8, name 8, type 4: then the count, and the array's own
    // count.
    for at in [32, 36] {
        packed[at..at + 4].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    }
    assert!(matches!(Nvlist::decode(&packed), Err(Corrupt::Truncated { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: no damage to a list makes its decoder panic, and an accepted list can be encoded and
    /// decoded again.
    #[test]
    fn damaged_lists_never_panic(
        which in 0usize..8,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let every = every_type();
        let mut packed = match which {
            0 => every.encode_xdr(),
            1 => native(&every, false),
            2 => native(&every, true),
            n => REAL[n - 3].0.to_vec(),
        };
        for (at, b) in edits {
            let at = at.index(packed.len());
            packed[at] = b;
        }
        if let Some(cut) = cut {
            packed.truncate(cut.index(packed.len()));
        }
        if let Ok(nv) = Nvlist::decode(&packed) {
            let again = Nvlist::decode(&nv.encode_xdr()).unwrap();
            prop_assert_eq!(again.encode_xdr(), nv.encode_xdr());
            let again = Nvlist::decode(&nv.encode_native()).unwrap();
            prop_assert_eq!(again.encode_xdr(), nv.encode_xdr());
            let _ = nv.to_string();
            let _ = crate::PoolConfig::from_nvlist(&nv);
        }
    }
}
