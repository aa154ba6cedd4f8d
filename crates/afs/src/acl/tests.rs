use proptest::prelude::*;

use super::*;
use crate::Error;
use crate::dump::{Event, Reader};

fn entry(who: i32, rights: u32) -> AclEntry {
    AclEntry { who: PrincipalId(who), rights: Rights(rights) }
}

fn any_acl() -> impl Strategy<Value = Acl> {
    let entries = prop::collection::vec((any::<i32>(), any::<u32>()), 0..=MAX_ENTRIES);
    (entries, any::<prop::sample::Index>()).prop_map(|(entries, at)| {
        let mut positive: Vec<_> = entries.into_iter().map(|(who, rights)| entry(who, rights)).collect();
        let negative = positive.split_off(at.index(positive.len() + 1));
        Acl::new(positive, negative).unwrap()
    })
}

fn name_of(who: PrincipalId) -> Vec<u8> {
    format!("u{who}").into_bytes()
}

fn ids_of(text: &AclText) -> Vec<PrincipalId> {
    text.names().map(|name| PrincipalId(std::str::from_utf8(&name[1..]).unwrap().parse().unwrap())).collect()
}

proptest! {
    /// Goal: each form has the whole list.
    #[test]
    fn a_list_comes_back(acl in any_acl()) {
        prop_assert_eq!(&Acl::from_raw(&acl.to_raw()).unwrap(), &acl);
        prop_assert_eq!(&Acl::from_compact(&acl.to_compact()).unwrap(), &acl);
        let known = acl.principals().iter().all(|who| *who != PrincipalId::ANONYMOUS);
        let names: Vec<_> = acl.principals().into_iter().map(name_of).collect();
        match acl.text(&names) {
            Ok(text) => {
                let text = AclText::parse(&text).unwrap();
                prop_assert!(!known || text.resolve(&ids_of(&text)).unwrap() == acl);
            }
            Err(error) => prop_assert!(matches!(error, Error::TooLong { .. }), "{error}"),
        }
    }

    /// Goal: no bytes make a decoder panic, and what is decoded comes back.
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), acl in any_acl(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        if let Ok(acl) = Acl::from_compact(&bytes) {
            prop_assert_eq!(acl.to_compact(), bytes);
        }
        let mut raw = acl.to_raw();
        raw[at.index(RAW_SIZE)] = to;
        if let Ok(acl) = Acl::from_raw(&raw) {
            prop_assert_eq!(Acl::from_raw(&acl.to_raw()).unwrap(), acl);
        }
    }

    /// Goal: no text makes the parser panic.
    #[test]
    fn texts_never_panic(text in "[0-9a-z:\\-\t\n ]{0,60}") {
        let text = [text.as_bytes(), &[0]].concat();
        let _ = AclText::parse(&text);
    }

    /// Goal: rights are those that a look at each right and entry gives.
    #[test]
    fn rights_are_those_of_the_entries(acl in any_acl(), mut cps in prop::collection::vec(any::<i32>().prop_map(PrincipalId), 0..4), others in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let all = acl.principals();
        cps.extend(others.into_iter().filter(|_| !all.is_empty()).map(|at| all[at.index(all.len())]));
        let rights = acl.rights(&cps);
        for bit in 0..32 {
            let right = Rights(1 << bit);
            let names = |list: &[AclEntry]| list.iter().any(|e| cps.contains(&e.who) && e.rights.has(right));
            prop_assert_eq!(rights.has(right), names(acl.positive()) && !names(acl.negative()));
        }
    }
}

/// Goal: the raw form has the offsets of OpenAFS; negative entries go backwards from the end.
#[test]
fn the_raw_form_is_that_of_openafs() {
    let acl = Acl::new(vec![entry(7, 9), entry(-204, 127)], vec![entry(9, 2), entry(-101, 1)]).unwrap();
    let raw = acl.to_raw();
    let words: Vec<i32> = raw.chunks(4).map(|word| i32::from_be_bytes(word.try_into().unwrap())).collect();
    let expected = [52, 1, 4, 2, 2, -204, 127, 7, 9, 9, 2, -101, 1];
    assert_eq!(words[..13], expected);
    assert!(words[13..].iter().all(|word| *word == 0));
    assert_eq!(acl.principals(), [-204, 7, -101, 9].map(PrincipalId));
    assert_eq!(Acl::new(vec![entry(1, 1); MAX_ENTRIES], vec![entry(1, 1)]), None);
}

/// Goal: a raw form with an impossible head is refused.
#[test]
fn impossible_heads_are_refused() {
    let raw = Acl::new(vec![entry(7, 9)], vec![entry(9, 2)]).unwrap().to_raw();
    let with = |word: usize, value: i32| {
        let mut raw = raw;
        raw[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
        Acl::from_raw(&raw).map_err(|error| error.to_string())
    };
    assert_eq!(with(0, 35).unwrap_err(), "the access list at byte 0: the size is 35, which is out of range");
    assert_eq!(
        with(0, 193).unwrap_err(),
        "the access list at byte 0: the size is 193, which is out of range"
    );
    assert_eq!(with(1, 2).unwrap_err(), "the access list at byte 4: the version is 2, which is out of range");
    assert!(with(0, 192).is_ok() && with(0, 36).is_ok());
    for (word, value) in [(2, 21), (2, -1), (2, 3), (3, 3), (3, -1), (4, 2), (4, -1)] {
        assert!(with(word, value).unwrap_err().contains("entries"), "{word} {value}");
    }
}

/// Goal: a compact form that is too short, too long or too full is refused.
#[test]
fn impossible_compact_forms_are_refused() {
    for bytes in [&[][..], &[1], &[1, 0], &[0, 0, 0], &[1, 0, 1, 0, 0, 0, 1, 0, 0]] {
        assert!(Acl::from_compact(bytes).is_err(), "{bytes:?}");
    }
    assert!(matches!(
        Acl::from_compact(&[[11, 10].as_slice(), &[0; 168]].concat()),
        Err(Error::Range { .. })
    ));
    assert_eq!(Acl::from_compact(&[0, 0]).unwrap(), Acl::default());
}

/// Goal: the text is that of OpenAFS, with a NUL at its end; user rights are a signed number.
#[test]
fn the_text_is_that_of_openafs() {
    let acl = Acl::new(vec![entry(-204, 127), entry(7, 0x8000_0009)], vec![entry(-101, 1)]).unwrap();
    let text = acl.text(&["system:administrators", "joe", "system:anyuser"]).unwrap();
    assert_eq!(text, b"2\n1\nsystem:administrators\t127\njoe\t-2147483639\nsystem:anyuser\t1\n\0");
    let parsed = AclText::parse(&text).unwrap();
    let names: Vec<_> = parsed.names().collect();
    assert_eq!(names, [&b"system:administrators"[..], b"joe", b"system:anyuser"]);
    let ids = [PrincipalId::ADMINISTRATORS, PrincipalId(7), PrincipalId::ANYUSER];
    assert_eq!(parsed.resolve(&ids).unwrap(), acl);
    assert_eq!(acl.text(&["a b", "", "c\n"]).unwrap(), b"2\n1\n-204\t127\n7\t-2147483639\n-101\t1\n\0");
    assert!(acl.text(&["one"]).is_err());
}

/// Goal: a text without a NUL is refused, as newer OpenAFS does; so are unknown names, and lines
/// that are not whole.
#[test]
fn bad_texts_are_refused() {
    let good: [&[u8]; 4] = [
        b"1\n0\njoe\t9\n\0",
        b" 1 0 joe 9 \n\0",
        b"0\n0\n\0",
        b"1\n1\njoe\t9 and more\njim\t4294967295\nmore\0\xff",
    ];
    for text in good {
        let text = AclText::parse(text).unwrap();
        assert!(text.resolve(&vec![PrincipalId(5); text.names().len()]).is_ok());
        assert!(text.resolve(&[PrincipalId(5); 3]).is_err());
    }
    let long = [b"1\n0\n", [b'x'; 64].as_slice(), b"\t9\n\0"].concat();
    let bad: [&[u8]; 14] = [
        b"",
        b"\0",
        b"1\n0\njoe\t9\n",
        b"1\n0\njoe\t9\0",
        b"1\n0\njoe\n\0",
        b"1\n0\n\t9\n\0",
        b"2\n0\njoe\t9\n\0",
        b"21\n0\njoe\t9\n\0",
        b"11\n10\njoe\t9\n\0",
        b"-1\n0\n\0",
        b"x\n0\n\0",
        b"1\n0\njoe\t4294967296\n\0",
        b"1\n0\njoe\t-\n\0",
        &long,
    ];
    for text in bad {
        assert!(AclText::parse(text).is_err(), "{:?}", String::from_utf8_lossy(text));
    }
    assert!(matches!(AclText::parse(&[b'0'; MAX_TEXT + 1]), Err(Error::TooLong { .. })));
    let unknown = AclText::parse(b"1\n0\njoe\t9\n\0").unwrap();
    assert!(unknown.resolve(&[PrincipalId::ANONYMOUS]).is_err());
}

/// Goal: negative entries take rights from the user, not those that the host gives.
#[test]
fn a_host_gives_rights_of_its_own() {
    let acl = Acl::new(vec![entry(-101, 9), entry(5, 127), entry(-300, 2)], vec![entry(5, 2)]).unwrap();
    let user = [PrincipalId(5), PrincipalId::ANYUSER];
    assert_eq!(acl.rights(&user), Rights(125));
    assert_eq!(acl.rights_on_host(&user, &[PrincipalId(-300)]), Rights(127));
    assert_eq!(acl.rights(&[]), Rights::NONE);
    assert_eq!(acl.rights(&user).to_string(), "rlidka");
    assert_eq!(Rights(0x8100_0000).to_string(), "AH");
    let root = Acl::of_new_volume();
    assert_eq!(root.rights(&[PrincipalId::ADMINISTRATORS]).to_string(), "rlidwka");
    assert!(Rights::ALL.has_any(Rights::READ) && !Rights::USER.has_any(Rights::ALL));
}

/// Goal: the lists in a dump of OpenAFS 1.8.9 are read, and their raw forms come back.
#[test]
fn lists_of_openafs_come_back() {
    let path = format!("{}/tests/data/openafs-full.dump", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut reader = Reader::new(&bytes[..]);
    let mut count = 0;
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => {
                let Some(raw) = record.attributes.unwrap().acl else { continue };
                let acl = Acl::from_raw(&raw).unwrap();
                assert_eq!(acl.rights(&[PrincipalId::ANYUSER]), Rights::ALL);
                assert_eq!(acl.to_raw(), raw);
                count += 1;
            }
            Event::End => break,
            _ => {}
        }
    }
    assert_eq!(count, 7);
}
