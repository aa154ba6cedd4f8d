#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use crate::volumes::exports::*;

/// Goal: addresses are parsed as people write them, and the URI for clients names the same place.
#[test]
fn places() {
    for (text, uri) in [
        ("127.0.0.1", "nbd://127.0.0.1:10809/p/v@s"),
        ("localhost:99", "nbd://127.0.0.1:99/p/v@s"),
        ("tcp:10.0.0.1:5", "nbd://10.0.0.1:5/p/v@s"),
        ("[::1]:7", "nbd://[::1]:7/p/v@s"),
        ("::1", "nbd://[::1]:10809/p/v@s"),
        ("/run/x y", "nbd+unix:///p/v@s?socket=/run/x%20y"),
        ("unix:/s", "nbd+unix:///p/v@s?socket=/s"),
    ] {
        assert_eq!(ListenAddress::parse(text).unwrap().uri("p/v@s", false), uri, "{text}");
    }
    for text in ["", "host.example:1", "127.0.0.1:", "127.0.0.1:70000", "1.2.3", "relative/path"] {
        assert_eq!(ListenAddress::parse(text), None, "{text}");
    }
    assert_eq!(encoded("a b%/ü"), "a%20b%25/%C3%BC");
}
