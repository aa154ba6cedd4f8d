//! Words that OpenZFS accepts and refuses.

use super::*;

fn layout(line: &str) -> Result<Layout, Fault> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    parse(&words, &mut |word, _| {
        Ok(Vdev { kind: "file".into(), path: Some(word.to_owned()), ..Vdev::default() })
    })
}

fn refused(line: &str) -> String {
    layout(line).expect_err("must be refused").0
}

/// Goal: words become the same tree as in OpenZFS.
#[test]
fn trees() {
    let l = layout("a mirror b c raidz2 d e f log mirror g h special i dedup j spare k cache l m").unwrap();
    let shape: Vec<_> = l.tops.iter().map(|v| (v.kind.as_str(), v.children.len(), v.is_log)).collect();
    assert_eq!(
        shape,
        [
            ("file", 0, false),
            ("mirror", 2, false),
            ("raidz", 3, false),
            ("mirror", 2, true),
            ("file", 0, false),
            ("file", 0, false),
        ]
    );
    assert_eq!(l.tops[2].nparity, 2);
    assert_eq!(l.tops[4].alloc_bias.as_deref(), Some("special"));
    assert_eq!(l.tops[5].alloc_bias.as_deref(), Some("dedup"));
    assert_eq!((l.spares.len(), l.cache.len()), (1, 2));
}

/// Goal: the layout of a draid follows from its words, or from the number of devices.
#[test]
fn draids() {
    let shape = |line: &str| {
        let v = layout(line).unwrap().tops.remove(0);
        (v.nparity, v.draid_ndata, v.draid_nspares)
    };
    assert_eq!(shape("draid a b c d"), (1, 3, 0));
    assert_eq!(shape("draid2:2d:1s:6c a b c d e f"), (2, 2, 1));
    assert_eq!(shape("draid1 a b c d e f g h i j k"), (1, 8, 0));
    assert_eq!(refused("draid:5c a b"), "invalid number of dRAID children; 5 required but 2 provided");
    assert_eq!(refused("draid:4x a b c"), "invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid:4x'");
    assert_eq!(
        refused("draid:9d a b c"),
        "requested number of dRAID data disks per group 9 is too high,\nat most 2 disks are available for data"
    );
    assert_eq!(
        refused("draid1:2s a b c"),
        "request number of distributed spares 2 and parity level 1\nleaves no disks available for data"
    );
}

/// Goal: each wrong command line is refused in OpenZFS's wording.
#[test]
fn refusals() {
    for (line, message) in [
        ("mirror a", "mirror requires at least 2 devices"),
        ("raidz2 a b", "raidz2 requires at least 3 devices"),
        ("raidz", "raidz requires at least 2 devices"),
        ("a spare b spare c", "'spare' can be specified only once"),
        ("a cache b cache c", "'cache' can be specified only once"),
        ("a log b log c", "'log' can be specified only once"),
        ("a log raidz b c", "unsupported 'log' device: raidz"),
        ("a special raidz b c", "unsupported 'special' device: raidz"),
        ("a log", "log requires at least 1 device"),
        ("", "at least one toplevel vdev must be specified"),
    ] {
        assert_eq!(refused(line), format!("invalid vdev specification: {message}"), "{line}");
    }
}

/// Goal: a device may have a name that resembles a keyword.
#[test]
fn devices() {
    for word in ["raidz0", "raidz4", "raidz01", "mirror-0", "draid0", "draid9", "logs"] {
        assert_eq!(layout(word).unwrap().tops[0].path.as_deref(), Some(word), "{word}");
    }
}
