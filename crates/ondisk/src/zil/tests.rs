use super::*;

fn words_of(w: &[u64]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn create_record() -> Vec<u8> {
    // TX_CREATE as `zdb -iiii` shows it for a real pool: doid 34, foid 130, mode 100644, name
    // new-small.
    let mut raw = words_of(&[1, 120, 59, 54, 34, 130, 0o100644, 0, 0, 59, 1795291528, 0, 0]);
    raw.extend(b"new-small\0");
    raw.resize(120, 0);
    raw
}

/// Goal: a create record decodes to its names and numbers.
#[test]
fn create_decodes() {
    let records: Vec<_> = Records::new(&create_record(), false).collect::<Result<_>>().unwrap();
    let RecordBody::Create(c) = &records[0].body else { panic!("{records:?}") };
    assert_eq!((c.doid, c.foid.object, c.foid.slots, c.name.as_slice()), (34, 130, 1, &b"new-small"[..]));
}

/// Goal: a record of the other byte order, after the swap of its words, decodes to the same names
/// and numbers.
#[test]
fn foreign_names_are_swapped_back() {
    let mut raw = create_record();
    crate::bytes::swap64(&mut raw[104..]);
    let got = Record::decode(&raw, true).unwrap();
    assert_eq!(got, Record::decode(&create_record(), false).unwrap());
}

/// Goal: every type number of OpenZFS 2.3 decodes, and no other number.
#[test]
fn kinds_are_complete() {
    assert_eq!(TxKind::ALL.len(), 25);
    for (i, k) in TxKind::ALL.iter().enumerate() {
        assert_eq!(TxKind::from_disk(i as u64).unwrap(), *k);
    }
    assert!(TxKind::from_disk(25).is_err());
}

/// Goal: a decoded record is encoded to OpenZFS's bytes.
#[test]
fn create_encodes() {
    let want = create_record();
    let record = Record::decode(&want, false).unwrap();
    let mut got = record.body.encode(record.header.kind, record.header.ci);
    set_place(&mut got, 59, 54);
    assert_eq!(got, want);
}

/// Goal: a record of every kind decodes to what was encoded.
#[test]
fn records_go_both_ways() {
    let foid = FileId { object: 7, slots: 3 };
    let acl =
        AclLog { count: 2, flags: 1, aces: vec![5; 13], fuids: vec![8, 9], domains: vec![b"S-1-5".to_vec()] };
    let x = Xvattr { bitmap: vec![1, 2, 3], attrs: 4, crtime: [5, 6], scanstamp: [7; 32] };
    let create = Create {
        doid: 34,
        foid,
        mode: 0o100644,
        uid: 1,
        gid: 2,
        gen_: 3,
        crtime: [4, 5],
        rdev: 6,
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: b"name".to_vec(),
        link: None,
    };
    let whiteout = Whiteout { foid, mode: 1, uid: 2, gid: 3, gen_: 4, crtime: [5, 6], rdev: 0 };
    let rename = Rename { sdoid: 1, tdoid: 2, source: b"a".to_vec(), target: b"bc".to_vec(), whiteout: None };
    let write = Write { foid: 7, offset: 1, length: 9, blkptr: None, data: b"nine bytes"[..9].to_vec() };
    let setattr = Setattr {
        foid: 7,
        mask: 0x3f,
        mode: 0o644,
        uid: 1,
        gid: 2,
        size: 3,
        atime: [4, 5],
        mtime: [6, 7],
        xvattr: None,
        domains: Vec::new(),
    };
    let both = Create { acl: Some(acl.clone()), xvattr: Some(x), ..create.clone() };
    let (name, value) = (b"user.x".to_vec(), Some(b"value".to_vec()));
    let all = [
        (TxKind::Mkdir, RecordBody::Create(create.clone())),
        (TxKind::Symlink, RecordBody::Create(Create { link: Some(b"to".to_vec()), ..create })),
        (TxKind::CreateAclAttr, RecordBody::Create(both)),
        (TxKind::Rmdir, RecordBody::Remove { doid: 1, name: name.clone() }),
        (TxKind::Link, RecordBody::Link { doid: 1, link_obj: 2, name: name.clone() }),
        (TxKind::RenameExchange, RecordBody::Rename(rename.clone())),
        (TxKind::RenameWhiteout, RecordBody::Rename(Rename { whiteout: Some(whiteout), ..rename })),
        (TxKind::Write, RecordBody::Write(write)),
        (TxKind::Truncate, RecordBody::Truncate { foid: 7, offset: 8, length: 9 }),
        (TxKind::Setattr, RecordBody::Setattr(setattr)),
        (TxKind::Acl, RecordBody::Acl { foid: 7, acl }),
        (TxKind::SetSaXattr, RecordBody::SetSaXattr { foid: 7, name: name.clone(), value }),
        (TxKind::SetSaXattr, RecordBody::SetSaXattr { foid: 7, name, value: None }),
        (
            TxKind::CloneRange,
            RecordBody::CloneRange(ClonedRange {
                foid: 7,
                offset: 0,
                length: 1,
                blksz: 512,
                blkptrs: vec![Blkptr::HOLE],
            }),
        ),
    ];
    for (kind, body) in all {
        let mut raw = body.encode(kind, true);
        set_place(&mut raw, 11, 12);
        let got = Record::decode(&raw, false).unwrap();
        assert_eq!((got.header.kind, got.header.ci, got.header.txg, got.header.seq), (kind, true, 11, 12));
        assert_eq!((got.header.reclen, got.body), (raw.len(), body));
    }
}

proptest::proptest! {
    /// Goal: the iteration over arbitrary bytes ends, without a panic.
    #[test]
    fn records_survive_anything(mut raw in proptest::collection::vec(proptest::num::u8::ANY, 0..700), kind in 0u64..26, foreign: bool) {
        if raw.len() >= 32 {
            raw[..8].copy_from_slice(&kind.to_le_bytes());
            let len = (raw.len() as u64) & !7;
            raw[8..16].copy_from_slice(&len.to_le_bytes());
        }
        for r in Records::new(&raw, foreign).take(100) {
            let _ = r;
        }
        let _ = ZilChain::decode(ChecksumKind::Zilog2, &raw);
        let _ = ZilChain::decode(ChecksumKind::Zilog, &raw);
        let _ = ZilHeader::decode(&raw);
    }
}

/// Goal: a write encoded in place equals the encoded record, whatever bytes were there before.
#[test]
fn writes_in_place() {
    for len in [0, 1, 7, 8, 8192, 8193] {
        let data: Vec<u8> = (0..len).map(|n| n as u8 ^ 0x5a).collect();
        let write = Write { foid: 9, offset: 77, length: len, blkptr: None, data: data.clone() };
        let want = RecordBody::Write(write).encode(TxKind::Write, false);
        let mut out = vec![0xff; want.len() + 3];
        assert_eq!(put_write(&mut out, 9, 77, &data), want.len());
        assert_eq!(out[..want.len()], want);
        assert_eq!(out[want.len()..], [0xff; 3]);
    }
}
