//! Values of pool properties that OpenZFS accepts and refuses, with its messages.

use super::*;

fn fault(name: &str, value: &str, when: When) -> String {
    check(name, value, when, 5000, 0).expect_err("must be refused")
}

/// Goal: each wrong value is refused in OpenZFS's words.
#[test]
fn faults() {
    use When::{Create, Import, Set};
    for (name, value, when, words) in [
        ("nope", "1", Set, "invalid property 'nope'"),
        ("size", "1", Set, "'size' is readonly"),
        (
            "ashift",
            "7",
            Create,
            "property 'ashift' number 7 is invalid, only values between 9 and 16 are allowed.",
        ),
        ("ashift", "x", Create, "bad numeric value 'x'"),
        ("failmode", "x", Set, "'failmode' must be one of 'wait | continue | panic'"),
        ("autotrim", "x", Set, "'autotrim' must be one of 'on | off'"),
        ("version", "29", Create, "property 'version' number 29 is invalid."),
        ("version", "28", Set, "property 'version' number 28 is invalid."),
        ("bootfs", "a/b", Create, "property 'bootfs' cannot be set at creation or import time"),
        ("altroot", "/a", Set, "property 'altroot' can only be set during pool creation or import"),
        ("altroot", "a", Create, "bad alternate root 'a'"),
        ("cachefile", "a", Set, "property 'cachefile' must be empty, an absolute path, or 'none'"),
        ("cachefile", "/a/..", Set, "'/a/..' is not a valid file"),
        ("cachefile", "/no/such/a", Set, "'/no/such' is not a valid directory"),
        ("comment", "a\tb", Set, "comment may only have printable characters"),
        ("comment", "123456789012345678901234567890123", Set, "comment must not exceed 32 characters"),
        ("readonly", "on", Set, "property 'readonly' can only be set at import time"),
        ("multihost", "on", Import, "requires a non-zero system hostid"),
        ("tname", "a", Set, "property 'tname' can only be set at creation time"),
        ("feature@nope", "enabled", Set, "feature 'nope' unsupported by kernel"),
    ] {
        assert_eq!(fault(name, value, when), words, "{name}={value}");
    }
}

/// Goal: valid values become what the pool stores.
#[test]
fn values() {
    let ok = |name: &str, value: &str| check(name, value, When::Create, 1, 1).expect("a good value");
    assert_eq!(ok("ashift", "12"), Setting::Number("ashift", 12));
    assert_eq!(ok("failmode", "panic"), Setting::Number("failmode", 2));
    assert_eq!(ok("multihost", "on"), Setting::Number("multihost", 1));
    assert_eq!(ok("cachefile", "none"), Setting::CacheFile(Some("none".into())));
    assert_eq!(ok("comment", "hello there"), Setting::Text("comment".into(), "hello there".into()));
    assert_eq!(ok("org:note", "x"), Setting::Text("org:note".into(), "x".into()));
    assert_eq!(ok("version", "28"), Setting::Version(28));
}

/// Goal: numbers are parsed as in OpenZFS, with their units.
#[test]
fn numbers() {
    for (text, n) in [
        ("0", 0),
        ("16", 16),
        ("1k", 1 << 10),
        ("1.5G", 3 << 29),
        ("64KiB", 64 << 10),
        ("2mb", 2 << 20),
        ("0x10", 16),
        ("8E", 8 << 60),
        ("512B", 512),
    ] {
        assert_eq!(nice_number(text), Ok(n), "{text}");
    }
    for (text, words) in [
        ("", "bad numeric value ''"),
        ("x", "bad numeric value 'x'"),
        ("1x", "invalid numeric suffix 'x'"),
        ("1Bx", "invalid numeric suffix 'Bx'"),
        ("16E", "numeric value is too large"),
        ("99999999999999999999", "numeric value is too large"),
        ("1Z", "numeric value is too large"),
    ] {
        assert_eq!(nice_number(text), Err(words.to_owned()), "{text}");
    }
}
