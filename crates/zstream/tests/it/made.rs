//! Small streams, made here.

use ondisk::ByteOrder;
use ondisk::replay::{
    BACKUP_MAGIC, Begin, Crypt, Free, FreeObjects, Object, ObjectRange, Record, Redact, Spill, Write,
    WriteByRef, WriteEmbedded, features,
};
use stream::{Reader, Writer};

use crate::Sink;

/// Guids of the snapshots.
pub const FIRST: u64 = 7;
pub const SECOND: u64 = 8;

/// A stream in the making.
pub struct Made {
    writer: Writer<Sink>,
    sink: Sink,
}

pub fn begin(guid: u64, kind: u64, flags: u64) -> Begin {
    let mut to_name = [0; 256];
    to_name[..6].copy_from_slice(b"tank@a");
    Begin {
        magic: BACKUP_MAGIC,
        version_info: kind | flags << Begin::FEATURES_SHIFT,
        creation_time: 1,
        objset_type: 2,
        flags: 0,
        to_guid: guid,
        from_guid: 0,
        to_name,
    }
}

/// A block that is not compressed.
pub fn write(guid: u64, object: u64, offset: u64, size: u64) -> Write {
    Write {
        object,
        kind: 19,
        offset,
        logical_size: size,
        to_guid: guid,
        checksum_type: 7,
        flags: 0,
        compression: 0,
        key_checksum: [1, 2, 3, 4],
        key_prop: 5,
        compressed_size: 0,
        crypt: Crypt::default(),
    }
}

/// A block that an earlier record had: a guid, an object and an offset.
pub fn by_ref(guid: u64, object: u64, offset: u64, block: (u64, u64, u64)) -> Record {
    let (ref_guid, ref_object, ref_offset) = block;
    Record::WriteByRef(WriteByRef {
        object,
        offset,
        length: 512,
        to_guid: guid,
        ref_guid,
        ref_object,
        ref_offset,
        checksum_type: 7,
        flags: 0,
        key_checksum: [0; 4],
        key_prop: 0,
    })
}

pub fn embedded(object: u64, offset: u64) -> Record {
    Record::WriteEmbedded(WriteEmbedded {
        object,
        offset,
        length: 4096,
        to_guid: FIRST,
        compression: 15,
        embedded_type: 0,
        logical_size: 4096,
        physical_size: 20,
    })
}

/// Text that compresses well, in a block of this size.
pub fn text(size: usize) -> Vec<u8> {
    b"a line of a file that is much like others 0123456789\n".iter().copied().cycle().take(size).collect()
}

/// Bytes that do not compress.
pub fn noise(size: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    (0..size).map(|_| next()).collect()
}

impl Made {
    pub fn new(order: ByteOrder) -> Self {
        let sink = Sink::default();
        Self { writer: Writer::new(sink.clone(), order), sink }
    }

    pub fn begin(mut self, begin: &Begin, list: &[u8]) -> Self {
        self.writer.begin(begin, list).unwrap();
        self
    }

    pub fn put(mut self, record: &Record, payload: &[u8]) -> Self {
        self.writer.write(record, payload).unwrap();
        self
    }

    /// A block that is not compressed.
    pub fn block(self, guid: u64, object: u64, offset: u64, payload: &[u8]) -> Self {
        self.put(&Record::Write(write(guid, object, offset, payload.len() as u64)), payload)
    }

    pub fn end(mut self, guid: u64) -> Self {
        self.writer.end(guid).unwrap();
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        self.sink.0.take()
    }
}

/// A stream with a record of each type but references.
pub fn all_types(order: ByteOrder) -> Vec<u8> {
    let object = Object {
        object: 3,
        kind: 19,
        bonus_type: 44,
        block_size: 4096,
        bonus_len: 12,
        checksum_type: 7,
        compress: 15,
        dn_slots: 1,
        flags: 0,
        raw_bonus_len: 0,
        to_guid: FIRST,
        indirect_shift: 17,
        levels: 1,
        block_pointers: 1,
        max_block: 2,
    };
    let spill = Spill {
        object: 3,
        length: 512,
        to_guid: FIRST,
        flags: 0,
        compression: 0,
        compressed_size: 0,
        crypt: Crypt::default(),
        kind: 45,
    };
    let range = ObjectRange { first: 0, slots: 32, to_guid: FIRST, crypt: Crypt::default(), flags: 0 };
    let hole = Free { object: 3, offset: 0, length: u64::MAX, to_guid: FIRST };
    let redact = Redact { object: 3, offset: 0, length: 4096, to_guid: FIRST };
    Made::new(order)
        .begin(&begin(FIRST, 1, features::EMBED_DATA | features::REDACTED), &[1; 64])
        .put(&Record::ObjectRange(range), &[])
        .put(&Record::FreeObjects(FreeObjects { first: 9, count: 4, to_guid: FIRST }), &[])
        .put(&Record::Object(object), &[2; 16])
        .put(&Record::Spill(spill), &[3; 512])
        .put(&Record::Free(hole), &[])
        .block(FIRST, 3, 0, &text(4096))
        .block(FIRST, 3, 4096, &noise(4096))
        .put(&embedded(3, 8192), &[4; 24])
        .put(&Record::Redact(redact), &[])
        .block(FIRST, 4, 0, &text(512))
        .end(FIRST)
        .bytes()
}

/// A package of two streams in which blocks come again: as `zfs send -D` writes it, and in full.
pub fn deduplicated(order: ByteOrder) -> [Vec<u8>; 2] {
    [true, false].map(|dedup| {
        let again = |made: Made, guid, object, offset, block: (u64, u64, u64), payload: &[u8]| {
            if dedup {
                return made.put(&by_ref(guid, object, offset, block), &[]);
            }
            made.block(guid, object, offset, payload)
        };
        let flags = if dedup { features::DEDUP | features::DEDUPPROPS } else { 0 } | features::SA_SPILL;
        let made = Made::new(order)
            .begin(&begin(0, 2, flags), &[1; 32])
            .end(0)
            .begin(&begin(FIRST, 1, flags), &[])
            .block(FIRST, 3, 0, &[1; 512])
            .block(FIRST, 3, 512, &[2; 1024]);
        let made = again(made, FIRST, 4, 0, (FIRST, 3, 0), &[1; 512]);
        // The same place once more: later records mean this one.
        let made = made.block(FIRST, 3, 0, &[5; 512]);
        let made = again(made, FIRST, 4, 512, (FIRST, 3, 0), &[5; 512]);
        let made = made.end(FIRST).begin(&begin(SECOND, 1, flags), &[]).block(SECOND, 3, 0, &[6; 512]);
        let made = again(made, SECOND, 5, 0, (FIRST, 3, 512), &[2; 1024]);
        let made = again(made, SECOND, 5, 1024, (SECOND, 3, 0), &[6; 512]);
        let mut bytes = made.end(SECOND).bytes();
        // The END of the package has no sum of a stream, but one of its own, that of its bytes.
        bytes.extend(Made::new(order).end(0).bytes());
        bytes
    })
}

/// The bytes of the records of a stream, with their payloads.
pub fn records(bytes: &[u8]) -> Vec<(Record, [u8; 312], Vec<u8>)> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        all.push((packet.record, *packet.raw, packet.payload.to_vec()));
    }
    all
}
