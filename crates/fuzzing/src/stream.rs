//! Send streams, and the tokens of interrupted ones.

use ondisk::replay::{
    BACKUP_MAGIC, Begin, Free, FreeObjects, Object, Record, Redact, Write, WriteEmbedded, features,
};
use ondisk::{ByteOrder, CompressKind, Nvlist, Value};
use stream::rewrite::{Change, rewrite};
use stream::{Reader, Writer};

/// A stream, whatever its checksums are: its records and lists, their order, and what is written
/// anew of it.
pub fn stream(data: &[u8]) {
    let _ = stream::check::check(data, |one| drop(format!("{one:?}")));
    let mut reader = Reader::unchecked(data);
    while let Ok(Some(packet)) = reader.next_packet() {
        let _ = format!("{:?}", packet.record);
        if matches!(packet.record, Record::Begin(_))
            && let Ok(list) = Nvlist::decode(packet.payload)
        {
            let _ = list.tabbed().to_string();
        }
    }
    let mut again = Vec::new();
    if rewrite(data, &mut again, |_| Ok::<_, stream::Error>(Change::Keep)).is_ok() {
        stream::check::check(&again[..], drop).expect("what is written anew is whole");
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = stream::token::decode(text);
    }
}

/// Streams as senders write them: in both byte orders, alone and as a package.
pub fn streams() -> Vec<Vec<u8>> {
    let token = b"1-d3e607288-b8-789c636064000310a500c4ec50360710e72765a52697303004409460caa7a515a79630c001489e0d49\
                  3ea9b224b518483be8d660d55f929f5e9a99c2c0b073b5deeeebeceaba1a48f29c60f9bcc4dc540686e2d4bc14dde2a26\
                  4fdb4628744a85d0012ac16b0";
    [ByteOrder::Little, ByteOrder::Big].map(package).into_iter().chain([token.to_vec()]).collect()
}

/// Whole streams of one snapshot, in both byte orders, with most kinds of records. The last ones
/// are redacted.
pub fn snapshots() -> Vec<Vec<u8>> {
    let orders = [ByteOrder::Little, ByteOrder::Big];
    orders.map(snapshot).into_iter().chain(orders.map(redacted)).collect()
}

/// A stream that leaves out a block, as its list says.
fn redacted(order: ByteOrder) -> Vec<u8> {
    let version_info = 1 | features::REDACTED << Begin::FEATURES_SHIFT;
    let mut list = Nvlist::new();
    list.set("redact_snaps", Value::Uint64Array(vec![8, 9]));
    let left_out = Redact { object: 3, offset: 512, length: 512, to_guid: 7 };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, order);
    let written = writer
        .begin(&Begin { version_info, ..begin() }, &list.encode_xdr())
        .and_then(|()| writer.write(&object(1, 21, 512), &[]))
        .and_then(|()| writer.write(&Record::Write(Write { object: 1, kind: 21, ..block() }), &[0; 512]))
        .and_then(|()| writer.write(&object(3, 19, 512), &[]))
        .and_then(|()| writer.write(&Record::Write(block()), &[5; 512]))
        .and_then(|()| writer.write(&Record::Redact(left_out), &[]))
        .and_then(|()| writer.end(7));
    written.expect("a Vec takes all");
    bytes
}

fn object(object: u64, kind: u32, block_size: u32) -> Record {
    Record::Object(Object {
        object,
        kind,
        bonus_type: 0,
        block_size,
        bonus_len: 0,
        checksum_type: 0,
        compress: 0,
        dn_slots: 1,
        flags: 0,
        raw_bonus_len: 0,
        to_guid: 7,
        indirect_shift: 0,
        levels: 0,
        block_pointers: 0,
        max_block: 0,
    })
}

fn snapshot(order: ByteOrder) -> Vec<u8> {
    let version_info = 1 | features::EMBED_DATA << Begin::FEATURES_SHIFT;
    let begin = Begin { version_info, ..begin() };
    let packed = packed_block();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, order);
    let written = writer
        .begin(&begin, &[])
        .and_then(|()| {
            writer.write(&Record::FreeObjects(FreeObjects { first: 0, count: 1, to_guid: 7 }), &[])
        })
        // Kind 21 is `DMU_OT_MASTER_NODE`, and 19 `DMU_OT_PLAIN_FILE_CONTENTS`.
        .and_then(|()| writer.write(&object(1, 21, 512), &[]))
        .and_then(|()| writer.write(&Record::Write(Write { object: 1, kind: 21, ..block() }), &[0; 512]))
        .and_then(|()| writer.write(&object(3, 19, 512), &[]))
        .and_then(|()| writer.write(&Record::Write(block()), &[5; 512]))
        .and_then(|()| writer.write(&Record::WriteEmbedded(embedded(packed.len())), &padded(&packed)))
        .and_then(|()| {
            writer.write(&Record::Free(Free { object: 3, offset: 1024, length: u64::MAX, to_guid: 7 }), &[])
        })
        .and_then(|()| {
            writer.write(&Record::FreeObjects(FreeObjects { first: 4, count: 28, to_guid: 7 }), &[])
        })
        .and_then(|()| writer.end(7));
    written.expect("a Vec takes all");
    bytes
}

/// The compressed form of a block of 512 bytes.
fn packed_block() -> Vec<u8> {
    let mut packed = vec![0; 112];
    let level = codec::compress::ZstdLevel::DEFAULT;
    let length = codec::compress::compress(CompressKind::Lz4, level, &[6; 512], &mut packed);
    packed.truncate(length.expect("equal bytes become few"));
    packed
}

/// The payload of an embedded block.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8), 0);
    padded
}

fn begin() -> Begin {
    let mut to_name = [0; 256];
    to_name[..6].copy_from_slice(b"tank@a");
    Begin {
        magic: BACKUP_MAGIC,
        version_info: 2,
        creation_time: 1,
        objset_type: 2,
        flags: 0,
        to_guid: 7,
        from_guid: 0,
        to_name,
    }
}

fn block() -> Write {
    Write {
        object: 3,
        kind: 19,
        offset: 0,
        logical_size: 512,
        to_guid: 7,
        checksum_type: 7,
        flags: 0,
        compression: 0,
        key_checksum: [0; 4],
        key_prop: 0,
        compressed_size: 0,
        crypt: ondisk::replay::Crypt::default(),
    }
}

fn embedded(length: usize) -> WriteEmbedded {
    WriteEmbedded {
        object: 3,
        offset: 512,
        length: 512,
        to_guid: 7,
        compression: 15,
        embedded_type: 0,
        logical_size: 512,
        physical_size: length as u32,
    }
}

fn package(order: ByteOrder) -> Vec<u8> {
    let begin = begin();
    let mut list = Nvlist::new();
    list.set("tosnap", Value::String(b"a".to_vec()));
    list.set("fss", Value::List(Nvlist::new()));
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, order);
    let written = writer
        .begin(&begin, &list.encode_xdr())
        .and_then(|()| writer.end(0))
        .and_then(|()| writer.begin(&Begin { version_info: 1, ..begin }, &[]))
        .and_then(|()| writer.write(&Record::Write(block()), &[5; 512]))
        .and_then(|()| writer.write(&Record::WriteEmbedded(embedded(20)), &[6; 24]))
        .and_then(|()| {
            writer.write(&Record::Free(Free { object: 3, offset: 1024, length: 9, to_guid: 7 }), &[])
        })
        .and_then(|()| writer.end(7));
    written.expect("a Vec takes all");
    bytes
}
