use super::*;

/// Goal: numbers have C's forms, and all of a word has to be one.
#[test]
fn numbers() {
    for (word, value) in [
        ("0", 0),
        ("", 0),
        ("10", 10),
        ("010", 8),
        ("0x1F", 31),
        ("0XaB", 171),
        (" \t7", 7),
        ("+7", 7),
        ("-1", u64::MAX),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(number(word), Some(value), "{word:?}");
    }
    for word in ["x", "1x", "7 ", " ", "0x", "0xg", "08", "18446744073709551616", "-", "+-1", "0x+1", "1_0"] {
        assert_eq!(number(word), None, "{word:?}");
    }
}
