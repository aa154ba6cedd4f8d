use super::*;
use proptest::prelude::*;

/// Flags, a name, and the form that `u8_textprep_str` of OpenZFS 2.3.2 gives it.
#[rustfmt::skip]
const VECTORS: &[(u64, &str, &str)] = &[
    (0x02, "a", "A"),
    (0x12, "a", "A"),
    (0x52, "a", "A"),
    (0x62, "a", "A"),
    (0x02, "Stra\u{df}e", "STRA\u{df}E"),
    (0x12, "Stra\u{df}e", "STRA\u{df}E"),
    (0x52, "Stra\u{df}e", "STRA\u{df}E"),
    (0x62, "Stra\u{df}e", "STRA\u{df}E"),
    (0x02, "\u{fb01}le", "\u{fb01}LE"),
    (0x20, "\u{fb01}le", "file"),
    (0x60, "\u{fb01}le", "file"),
    (0x12, "\u{fb01}le", "\u{fb01}LE"),
    (0x52, "\u{fb01}le", "\u{fb01}LE"),
    (0x62, "\u{fb01}le", "fiLE"),
    (0x02, "\u{1c4}abc", "\u{1c4}ABC"),
    (0x20, "\u{1c4}abc", "DZ\u{30c}abc"),
    (0x60, "\u{1c4}abc", "D\u{17d}abc"),
    (0x12, "\u{1c4}abc", "\u{1c4}ABC"),
    (0x52, "\u{1c4}abc", "\u{1c4}ABC"),
    (0x62, "\u{1c4}abc", "D\u{17d}ABC"),
    (0x02, "\u{1fb3}\u{313}", "\u{1fbc}\u{313}"),
    (0x10, "\u{1fb3}\u{313}", "\u{3b1}\u{313}\u{345}"),
    (0x50, "\u{1fb3}\u{313}", "\u{1f80}"),
    (0x20, "\u{1fb3}\u{313}", "\u{3b1}\u{313}\u{345}"),
    (0x60, "\u{1fb3}\u{313}", "\u{1f80}"),
    (0x12, "\u{1fb3}\u{313}", "\u{391}\u{313}\u{345}"),
    (0x52, "\u{1fb3}\u{313}", "\u{1f88}"),
    (0x62, "\u{1fb3}\u{313}", "\u{1f88}"),
    (0x02, "\u{3b1}\u{345}\u{301}", "\u{391}\u{399}\u{301}"),
    (0x10, "\u{3b1}\u{345}\u{301}", "\u{3b1}\u{301}\u{345}"),
    (0x50, "\u{3b1}\u{345}\u{301}", "\u{1fb4}"),
    (0x20, "\u{3b1}\u{345}\u{301}", "\u{3b1}\u{301}\u{345}"),
    (0x60, "\u{3b1}\u{345}\u{301}", "\u{1fb4}"),
    (0x12, "\u{3b1}\u{345}\u{301}", "\u{391}\u{301}\u{399}"),
    (0x52, "\u{3b1}\u{345}\u{301}", "\u{386}\u{399}"),
    (0x62, "\u{3b1}\u{345}\u{301}", "\u{386}\u{399}"),
    (0x02, "e\u{301}\u{327}x", "E\u{301}\u{327}X"),
    (0x10, "e\u{301}\u{327}x", "e\u{327}\u{301}x"),
    (0x50, "e\u{301}\u{327}x", "\u{229}\u{301}x"),
    (0x20, "e\u{301}\u{327}x", "e\u{327}\u{301}x"),
    (0x60, "e\u{301}\u{327}x", "\u{229}\u{301}x"),
    (0x12, "e\u{301}\u{327}x", "E\u{327}\u{301}X"),
    (0x52, "e\u{301}\u{327}x", "\u{228}\u{301}X"),
    (0x62, "e\u{301}\u{327}x", "\u{228}\u{301}X"),
    (0x10, "\u{c9}", "E\u{301}"),
    (0x20, "\u{c9}", "E\u{301}"),
    (0x12, "\u{c9}", "E\u{301}"),
    (0x10, "\u{d7a3}", "\u{1112}\u{1175}\u{11c2}"),
    (0x20, "\u{d7a3}", "\u{1112}\u{1175}\u{11c2}"),
    (0x12, "\u{d7a3}", "\u{1112}\u{1175}\u{11c2}"),
    (0x10, "\u{ac00}\u{ac01}\u{11a8}", "\u{1100}\u{1161}\u{1100}\u{1161}\u{11a8}\u{11a8}"),
    (0x20, "\u{ac00}\u{ac01}\u{11a8}", "\u{1100}\u{1161}\u{1100}\u{1161}\u{11a8}\u{11a8}"),
    (0x12, "\u{ac00}\u{ac01}\u{11a8}", "\u{1100}\u{1161}\u{1100}\u{1161}\u{11a8}\u{11a8}"),
    (0x50, "\u{1100}\u{1161}\u{11a8}\u{301}", "\u{ac01}\u{301}"),
    (0x60, "\u{1100}\u{1161}\u{11a8}\u{301}", "\u{ac01}\u{301}"),
    (0x52, "\u{1100}\u{1161}\u{11a8}\u{301}", "\u{ac01}\u{301}"),
    (0x62, "\u{1100}\u{1161}\u{11a8}\u{301}", "\u{ac01}\u{301}"),
    (0x50, "\u{9c7}\u{9be}", "\u{9cb}"),
    (0x60, "\u{9c7}\u{9be}", "\u{9cb}"),
    (0x52, "\u{9c7}\u{9be}", "\u{9cb}"),
    (0x62, "\u{9c7}\u{9be}", "\u{9cb}"),
    (0x20, "\u{644}\u{fef5}", "\u{644}\u{644}\u{627}\u{653}"),
    (0x60, "\u{644}\u{fef5}", "\u{644}\u{644}\u{622}"),
    (0x62, "\u{644}\u{fef5}", "\u{644}\u{644}\u{622}"),
    (0x20, "\u{2460}\u{b2}", "12"),
    (0x60, "\u{2460}\u{b2}", "12"),
    (0x62, "\u{2460}\u{b2}", "12"),
    (0x10, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}A\u{30a}"),
    (0x50, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}\u{c5}"),
    (0x20, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}A\u{30a}"),
    (0x60, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}\u{c5}"),
    (0x12, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}A\u{30a}"),
    (0x52, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}\u{c5}"),
    (0x62, "\u{3a9}\u{2126}\u{c5}", "\u{3a9}\u{3a9}\u{c5}"),
    (0x02, "\u{1c6}", "\u{1c4}"),
    (0x20, "\u{1c6}", "dz\u{30c}"),
    (0x60, "\u{1c6}", "d\u{17e}"),
    (0x12, "\u{1c6}", "\u{1c4}"),
    (0x52, "\u{1c6}", "\u{1c4}"),
    (0x62, "\u{1c6}", "D\u{17d}"),
    (0x02, "\u{fb00}\u{130}\u{131}", "\u{fb00}\u{130}I"),
    (0x10, "\u{fb00}\u{130}\u{131}", "\u{fb00}I\u{307}\u{131}"),
    (0x20, "\u{fb00}\u{130}\u{131}", "ffI\u{307}\u{131}"),
    (0x60, "\u{fb00}\u{130}\u{131}", "ff\u{130}\u{131}"),
    (0x12, "\u{fb00}\u{130}\u{131}", "\u{fb00}I\u{307}I"),
    (0x52, "\u{fb00}\u{130}\u{131}", "\u{fb00}\u{130}I"),
    (0x62, "\u{fb00}\u{130}\u{131}", "ff\u{130}I"),
    (0x02, "\u{250}\u{2c65}", "\u{250}\u{23a}"),
    (0x12, "\u{250}\u{2c65}", "\u{250}\u{23a}"),
    (0x52, "\u{250}\u{2c65}", "\u{250}\u{23a}"),
    (0x62, "\u{250}\u{2c65}", "\u{250}\u{23a}"),
    (0x10, "a\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}", "a\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{34f}\u{301}\u{301}\u{301}\u{301}"),
    (0x52, "a\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}", "\u{c1}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{34f}\u{301}\u{301}\u{301}\u{301}"),
    (0x20, "\u{3304}\u{3099}", "\u{30a4}\u{30cb}\u{30f3}\u{30af}\u{3099}\u{3099}"),
    (0x60, "\u{3304}\u{3099}", "\u{30a4}\u{30cb}\u{30f3}\u{30b0}\u{3099}"),
    (0x62, "\u{3304}\u{3099}", "\u{30a4}\u{30cb}\u{30f3}\u{30b0}\u{3099}"),
];

/// Goal: names get the form that OpenZFS gives them, with its Unicode 5.0, its case mapping and its
/// quirks.
#[test]
fn vectors_of_openzfs() {
    for (flags, name, want) in VECTORS {
        let norm = Normalization::from_disk(*flags).unwrap();
        let got = normalize(name.as_bytes(), norm);
        assert_eq!(std::str::from_utf8(&got).unwrap(), *want, "{name:?} with {flags:#x}");
    }
}

/// Goal: only the flags that `zfs create` can set are accepted.
#[test]
fn impossible_flags_are_refused() {
    for flags in [0x01u64, 0x04, 0x30, 0x40, 0x70, 0x1_0000_0000] {
        assert!(Normalization::from_disk(flags).is_err(), "{flags:#x}");
    }
    assert!(
        Normalization::from_disk(0x52).unwrap().without_case() == Normalization::from_disk(0x50).unwrap()
    );
}

proptest! {
    /// Goal: any bytes are prepared without a panic, into at most a fixed multiple of their length.
    /// Plain ASCII stays.
    #[test]
    fn any_bytes(name in prop::collection::vec(any::<u8>(), 0..300), flags in prop::sample::select(vec![0x02u64, 0x10, 0x50, 0x22, 0x62])) {
        let norm = Normalization::from_disk(flags).unwrap();
        let out = normalize(&name, norm);
        prop_assert!(out.len() <= name.len() * 18 + 2);
        let ascii: Vec<u8> = name.iter().map(|b| b & 0x7f).collect();
        prop_assert_eq!(normalize(&ascii, Normalization::from_disk(flags & !2).unwrap()), ascii);
    }
}
