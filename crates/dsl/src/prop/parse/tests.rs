use super::*;

const FS: Context = Context { kind: Kind::Filesystem, creating: false, max_block: 1 << 20 };

/// Goal: numbers are read with OpenZFS's units, and refused in its words.
#[test]
fn numbers() {
    for (text, n) in [
        ("0", 0),
        ("4096", 4096),
        ("10k", 10 << 10),
        ("1.5M", 3 << 19),
        ("2GiB", 2 << 30),
        ("7gb", 7 << 30),
        ("1T", 1 << 40),
        (".5K", 512),
        ("12B", 12),
    ] {
        assert_eq!(number(text), Ok(n), "{text}");
    }
    for (text, why) in [
        ("ten", "bad numeric value 'ten'"),
        ("", "bad numeric value ''"),
        ("-1", "bad numeric value '-1'"),
        ("1x", "invalid numeric suffix 'x'"),
        ("1BB", "invalid numeric suffix 'BB'"),
        ("1KBs", "invalid numeric suffix 'KBs'"),
        ("99999999999999999999", "numeric value is too large"),
        ("16E", "numeric value is too large"),
        ("1Z", "numeric value is too large"),
    ] {
        assert_eq!(number(text).unwrap_err().to_string(), why, "{text}");
    }
}

/// Goal: values get their stored form; wrong ones are refused in OpenZFS's words.
#[test]
fn settings() {
    let ok = |name: &str, text: &str| setting(name, text, FS).unwrap().value;
    assert_eq!(ok("compression", "zstd-3"), Value::Number(16 | 3 << 7));
    assert_eq!(ok("quota", "none"), Value::Number(0));
    assert_eq!(ok("quota", "10G"), Value::Number(10 << 30));
    assert_eq!(ok("filesystem_limit", "none"), Value::Number(u64::MAX));
    assert_eq!(ok("recordsize", "1M"), Value::Number(1 << 20));
    assert_eq!(ok("mountpoint", "legacy"), Value::Text("legacy".to_owned()));
    assert_eq!(ok("com.example:color", "blue"), Value::Text("blue".to_owned()));
    let bad = |name: &str, text: &str| setting(name, text, FS).unwrap_err().to_string();
    assert_eq!(bad("nonsense", "1"), "invalid property 'nonsense'");
    assert_eq!(bad("used", "1"), "'used' is readonly");
    assert_eq!(bad("casesensitivity", "mixed"), "'casesensitivity' is readonly");
    assert_eq!(bad("volsize", "1G"), "'volsize' does not apply to datasets of this type");
    assert_eq!(bad("quota", "0"), "use 'none' to disable quota/refquota");
    assert_eq!(bad("atime", "maybe"), "'atime' must be one of 'on | off'");
    assert_eq!(bad("recordsize", "3K"), "'recordsize' must be power of 2 from 512B to 1M");
    assert_eq!(bad("mountpoint", "here"), "'mountpoint' must be an absolute path, 'none', or 'legacy'");
    assert_eq!(bad("refreservation", "auto"), "'refreservation=auto' only allowed on volumes");
    let new = Context { creating: true, ..FS };
    assert!(setting("casesensitivity", "mixed", new).is_ok());
}
