#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::*;

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Goal: each option is decoded as in the protocol's document.
#[test]
fn wishes() {
    let go = [string("tank/v"), vec![0, 2, 0, 3, 0, 1]].concat();
    let choice = Choice { name: "tank/v".into(), go: true, infos: vec![3, 1] };
    assert_eq!(Wish::parse(opt::GO, &go), Ok(Wish::Choose(choice.clone())));
    assert_eq!(Wish::parse(opt::INFO, &go), Ok(Wish::Choose(Choice { go: false, ..choice })));
    let plain = Choice { name: "x".into(), go: true, infos: vec![] };
    assert_eq!(Wish::parse(opt::EXPORT_NAME, b"x"), Ok(Wish::Choose(plain)));
    assert_eq!(Wish::parse(opt::ABORT, b"whatever"), Ok(Wish::Abort));
    assert_eq!(Wish::parse(opt::LIST, b""), Ok(Wish::List));
    assert_eq!(Wish::parse(opt::STRUCTURED_REPLY, b""), Ok(Wish::Structured));
    assert_eq!(Wish::parse(opt::STARTTLS, b""), Ok(Wish::Secure));
    assert!(Wish::parse(opt::STARTTLS, b"x").is_err());
    for option in [0, 4, 11, u32::MAX] {
        assert_eq!(Wish::parse(option, b""), Ok(Wish::Unknown));
    }
    let contexts = |set: bool, queries: &[&str]| {
        let count = (queries.len() as u32).to_be_bytes().to_vec();
        let queries: Vec<u8> = queries.iter().flat_map(|q| string(q)).collect();
        let option = if set { opt::SET_META_CONTEXT } else { opt::LIST_META_CONTEXT };
        match Wish::parse(option, &[string("v"), count, queries].concat()) {
            Ok(Wish::Contexts(c)) => {
                assert_eq!((c.name.as_str(), c.set), ("v", set));
                c.allocation
            }
            other => panic!("{other:?}"),
        }
    };
    for (set, queries, found) in [
        (true, &[][..], false),
        (false, &[], true),
        (true, &["base:allocation"], true),
        (true, &["base:"], false),
        (false, &["base:"], true),
        (true, &["qemu:dirty-bitmap:x", "base:allocation"], true),
        (true, &["base:other"], false),
    ] {
        assert_eq!(contexts(set, queries), found, "{set} {queries:?}");
    }
}

/// Goal: an option with parts that don't fit its length, or that are no text, is refused, whatever
/// lengths it contains.
#[test]
fn nonsense() {
    let big = u32::MAX.to_be_bytes().to_vec();
    for (option, data) in [
        (opt::LIST, b"x".to_vec()),
        (opt::STRUCTURED_REPLY, b"x".to_vec()),
        (opt::GO, vec![]),
        (opt::GO, big.clone()),
        (opt::GO, [string("v"), vec![0, 2, 0, 3]].concat()),
        (opt::GO, [string("v"), vec![0, 0, 0]].concat()),
        (opt::GO, [string("v\0"), vec![0, 0]].concat()),
        (opt::INFO, [string(&"v".repeat(4097)), vec![0, 0]].concat()),
        (opt::EXPORT_NAME, vec![0xff]),
        (opt::EXPORT_NAME, vec![b'v'; 4097]),
        (opt::SET_META_CONTEXT, [string("v"), big.clone()].concat()),
        (opt::SET_META_CONTEXT, [string("v"), 1u32.to_be_bytes().to_vec(), string("none")].concat()),
    ] {
        assert!(Wish::parse(option, &data).is_err(), "{option} {data:?}");
    }
}

/// Goal: a read-only export offers nothing that writes, and the reported sizes follow the
/// protocol's document.
#[test]
fn told() {
    let about = About {
        name: "tank/v".into(),
        size: 1 << 40,
        block_size: 16384,
        read_only: false,
        description: "ZFS volume".into(),
    };
    let writes = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    assert_eq!(about.flags(true) & (writes | flag::READ_ONLY), writes);
    let fixed = About { read_only: true, ..about.clone() };
    assert_eq!(fixed.flags(true) & (writes | flag::READ_ONLY), flag::READ_ONLY);
    assert_eq!(about.flags(false) & flag::SEND_DF, 0);
    assert_eq!(about.old_style(false, false).len(), 10);
    assert_eq!(about.old_style(true, false).len(), 134);
    let said = about.answer(opt::GO, true, &[info::BLOCK_SIZE]);
    let sizes = [1u32, 16384, 32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!((said.len(), &said[said.len() - 12..]), (20 + 12 + 20 + 14, &sizes[..]));
}
