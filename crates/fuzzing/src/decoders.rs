//! A target for each decoder. If a decoder takes numbers as well, the first bytes of the input are
//! the numbers.

use codec::checksum::Checksum;
use codec::checksum::embedded::{self, Verifier};
use codec::compress::decompress;
use ondisk::acl::{self, AclPhys, AclVersion};
use ondisk::bookmark::{BookmarkPhys, RedactBlock, RedactionListPhys};
use ondisk::bpobj::{BpobjPhys, DeadlistPhys};
use ondisk::brt::BrtVdevPhys;
use ondisk::ddt::{DdtKey, DdtLogHeader, DdtPacking, DdtPhys};
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::history::HistoryPhys;
use ondisk::indirect::{BirthEntry, CondensingPhys, MappingEntry, MappingPhys, RemovingPhys, births_count};
use ondisk::l2arc::{DevHeader, L2ARC_HDR_SIZE, L2ARC_LOG_BLK_MAX_ENTRIES, L2ARC_LOG_BLK_SIZE, LogBlock};
use ondisk::label::{BootEnv, Eck};
use ondisk::objset::ObjsetPhys;
use ondisk::sa::SaRegistry;
use ondisk::scan::{ErrBookmark, RebuildPhys, ScanPhys};
use ondisk::spacemap::SpaceMapPhys;
use ondisk::zap::{FatHeader, Leaf, MicroZap, PtrTable};
use ondisk::zil::{Records, ZilChain, ZilHeader};
use ondisk::znode::Znode;
use ondisk::{
    Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, DnodePhys, Level, Nvlist, PoolConfig, Uberblock,
    Value, VdevConfig,
};

/// The most that a caller allocates for one block, whatever size the disk states.
const LARGEST_BLOCK: usize = 1 << 24;

fn word(data: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(rest) = data.get(at..) {
        let n = rest.len().min(8);
        bytes[..n].copy_from_slice(&rest[..n]);
    }
    u64::from_le_bytes(bytes)
}

fn words(data: &[u8]) -> Vec<u64> {
    data.chunks_exact(8).map(|c| word(c, 0)).collect()
}

fn split(data: &[u8], at: usize) -> (&[u8], &[u8]) {
    data.split_at(at.min(data.len()))
}

/// Parts of a label: configuration, trailer, boot environment.
pub fn label(data: &[u8]) {
    let _ = ondisk::label::decode_phys(data);
    let _ = Eck::at_end(data);
    let _ = BootEnv::decode(data);
}

/// An uberblock, with its MMP and reflow fields, and the comparison of two.
pub fn uberblock(data: &[u8]) {
    let (one, two) = split(data, data.len() / 2);
    let decoded: Vec<_> = [data, one, two].into_iter().filter_map(|d| Uberblock::decode(d).ok()).collect();
    for a in &decoded {
        let _ = format!("{a:?}");
        for b in &decoded {
            assert_eq!(a.newer(b), b.newer(a).reverse(), "a choice that depends on the order of asking");
        }
    }
}

fn walk_nvlist(list: &Nvlist, depth: usize) -> usize {
    assert!(depth < 1000, "an nvlist without end");
    list.iter()
        .map(|(_, value)| match value {
            Value::List(inner) => 1 + walk_nvlist(inner, depth + 1),
            Value::ListArray(inner) => 1 + inner.iter().map(|l| walk_nvlist(l, depth + 1)).sum::<usize>(),
            _ => 1,
        })
        .sum()
}

/// An nvlist in either encoding. The target walks it to its leaves.
pub fn nvlist(data: &[u8]) {
    if let Ok(list) = Nvlist::decode(data) {
        walk_nvlist(&list, 0);
        let _ = format!("{list:?}");
    }
}

/// The configuration and vdev tree of a pool.
pub fn config(data: &[u8]) {
    let Ok(list) = Nvlist::decode(data) else { return };
    if let Ok(config) = PoolConfig::from_nvlist(&list) {
        let _ = format!("{config:?}");
    }
    if let Ok(tree) = VdevConfig::from_nvlist(&list) {
        assert!(tree.walk().count() >= tree.leaves().count());
    }
}

fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |crc, b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    })
}

/// A GPT header and its entries. The target sets their checksums first, so that the input reaches
/// the later checks.
pub fn gpt(data: &[u8]) {
    const SECTOR: usize = 512;
    let mut sector = [0; SECTOR];
    let (head, entries) = split(data, SECTOR);
    sector[..head.len()].copy_from_slice(head);
    sector[..8].copy_from_slice(b"EFI PART");
    sector[24..32].copy_from_slice(&1u64.to_le_bytes());
    sector[88..92].copy_from_slice(&crc32(entries.iter().copied()).to_le_bytes());
    let size = u32::from_le_bytes([sector[12], sector[13], sector[14], sector[15]]) as usize;
    if (92..=SECTOR).contains(&size) {
        sector[16..20].fill(0);
        let crc = crc32(sector[..size].iter().copied());
        sector[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    if let Ok(header) = ondisk::gpt::Header::decode(&sector, SECTOR as u64, 1 << 30) {
        let _ = header.other_offset();
        let _ = header.entries_offset();
        assert!(header.entries_len() <= LARGEST_BLOCK);
        if let Ok(partitions) = header.partitions(entries) {
            partitions.iter().for_each(|p| {
                let _ = p.is_zfs();
            });
        }
    }
}

/// A master boot record. The target sets its signature first.
pub fn mbr(data: &[u8]) {
    let mut sector = [0; ondisk::mbr::SECTOR as usize];
    let len = data.len().min(sector.len());
    sector[..len].copy_from_slice(&data[..len]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    for entry in ondisk::mbr::decode(&sector).into_iter().flatten().flatten() {
        assert!(entry.size >= ondisk::mbr::SECTOR && entry.offset < 1 << 42);
        let _ = (entry.is_extended(), entry.is_protective());
    }
}

/// A block pointer.
pub fn blkptr(data: &[u8]) {
    for raw in data.chunks(128) {
        if let Ok(bp) = Blkptr::decode(raw) {
            let _ = format!("{bp:?}");
        }
    }
}

/// A gang header.
pub fn gang(data: &[u8]) {
    let _ = ondisk::gang::decode_gang_header(data);
}

/// A block of dnodes. The target walks it slot by slot.
pub fn dnode(data: &[u8]) {
    let mut at = 0;
    while at < data.len() {
        let raw = &data[at..];
        let slots = DnodePhys::slots(raw).unwrap_or(1);
        assert!(slots >= 1, "a dnode of no slot is walked for ever");
        if let Ok(Some(dnode)) = DnodePhys::decode(raw) {
            let _ = format!("{dnode:?}");
        }
        at += slots * 512;
    }
}

/// An object set.
pub fn objset(data: &[u8]) {
    if let Ok(objset) = ObjsetPhys::decode(data) {
        let _ = format!("{objset:?}");
    }
}

/// A micro ZAP, with all slots.
pub fn zap_micro(data: &[u8]) {
    if let Ok(zap) = MicroZap::parse(data) {
        assert!(zap.entries().count() <= zap.slots());
    }
}

/// The header of a fat ZAP, and its pointers.
pub fn zap_fat(data: &[u8]) {
    let Ok(head) = FatHeader::parse(data) else { return };
    for hash in [0, 1, u64::MAX, word(data, 32)] {
        let index = head.index(hash);
        let _ = head.embedded(data, index).and_then(|blk| head.check_leaf(blk));
        if let PtrTable::External { start, .. } = head.table {
            let _ = head.external(start, index);
        }
    }
}

/// A leaf of a fat ZAP, with all chains.
pub fn zap_leaf(data: &[u8]) {
    let Ok(leaf) = Leaf::parse(data) else { return };
    let _ = leaf.next_hash();
    let _ = leaf.entries_of(word(data, 8));
    if let Ok(entries) = leaf.entries() {
        assert!(entries.len() <= data.len() / 24, "more entries than chunks");
        for entry in &entries {
            let _ = leaf.name(entry);
            let _ = leaf.words_key(entry);
            let _ = leaf.value(entry);
        }
    }
}

/// The registry of system attributes, its layouts, and a bonus buffer with one of them.
pub fn sa(data: &[u8]) {
    let Some((&count, rest)) = data.split_first() else { return };
    let mut registry = SaRegistry::new();
    let (table, bonus) = split(rest, usize::from(count) * 8);
    for value in words(table) {
        let _ = registry.register(&value.to_le_bytes(), value);
    }
    let attrs: Vec<u16> = table.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]]) % 64).collect();
    for (i, layout) in attrs.chunks(12).enumerate() {
        let _ = registry.add_layout(i.to_string().as_bytes(), layout);
    }
    if let Ok(located) = registry.locate(bonus) {
        for l in located {
            assert!(l.range.end <= bonus.len(), "an attribute beyond its buffer");
        }
    }
}

/// A znode in a bonus buffer of the old format.
pub fn znode(data: &[u8]) {
    if let Ok(znode) = Znode::parse(data) {
        let _ = format!("{znode:?}");
    }
}

/// Access control lists, of the old and the new format.
pub fn acl(data: &[u8]) {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        if let Ok(acl) = AclPhys::parse(order, data) {
            let _ = acl.aces();
        }
    }
    let count = word(data, 0) as u32;
    for version in [AclVersion::Initial, AclVersion::Fuid] {
        let _ = acl::aces(version, count, data);
    }
    let mut copy = data.to_vec();
    acl::swap_v0(&mut copy);
    acl::swap_v1(&mut copy);
}

/// The bonus buffer of a DSL directory or dataset.
pub fn dsl(data: &[u8]) {
    if let Ok(dir) = DslDirPhys::decode(data) {
        let _ = format!("{dir:?}");
    }
    if let Ok(dataset) = DslDatasetPhys::decode(data) {
        let _ = format!("{dataset:?} {}", dataset.is_snapshot());
    }
}

/// Bookmarks and redaction lists.
pub fn bookmark(data: &[u8]) {
    let _ = BookmarkPhys::decode(&words(data));
    let (bonus, spill) = split(data, data.len() / 2);
    let _ = RedactionListPhys::decode(data, None);
    let _ = RedactionListPhys::decode(bonus, Some(spill));
    data.chunks(32).for_each(|c| {
        let _ = RedactBlock::decode(c);
    });
}

/// Lists of block pointers, and deadlists.
pub fn bpobj(data: &[u8]) {
    let _ = BpobjPhys::decode(data);
    let _ = DeadlistPhys::decode(data);
}

/// The header of a space map, and its entries.
pub fn spacemap(data: &[u8]) {
    let _ = SpaceMapPhys::decode(data);
    let all = words(data);
    let mut at = 0;
    while at < all.len() {
        match ondisk::spacemap::decode_entry(all[at], all.get(at + 1).copied()) {
            Ok((_, used)) => {
                assert!(used > 0, "an entry of no word is read for ever");
                at += used;
            }
            Err(_) => break,
        }
    }
}

/// The header of a cache device, and a log block.
///
/// A fuzzing input is rarely long enough for one. So the target fills it up with zeros, and sets
/// the magic number of the log block.
pub fn l2arc(data: &[u8]) {
    let whole = |data: &[u8], len: usize| {
        let mut bytes = data.to_vec();
        bytes.resize(len, 0);
        bytes
    };
    if let Ok(header) = DevHeader::decode(&whole(data, L2ARC_HDR_SIZE)) {
        assert_eq!(DevHeader::decode(&header.encode()).ok(), Some(header), "it says something else again");
    }
    let magic = LogBlock::default().encode();
    let mut block = whole(data, L2ARC_LOG_BLK_SIZE);
    for _ in 0..2 {
        if let Ok(log) = LogBlock::decode(&block, L2ARC_LOG_BLK_MAX_ENTRIES as u64) {
            let _ = format!("{log:?}");
        }
        block[..8].copy_from_slice(&magic[..8]);
    }
}

/// The header of an intent log, its blocks of both kinds, and their records.
pub fn zil(data: &[u8]) {
    let _ = ZilHeader::decode(data);
    for kind in [ChecksumKind::Zilog, ChecksumKind::Zilog2] {
        if let Ok((chain, used)) = ZilChain::decode(kind, data) {
            let _ = format!("{chain:?}");
            for foreign in [false, true] {
                assert!(Records::new(used, foreign).count() <= used.len() / 8 + 1, "records without end");
            }
        }
    }
    for record in Records::new(data, false).flatten() {
        let _ = format!("{record:?}");
    }
}

/// Dedup table entries, flat and traditional, and their logs.
pub fn ddt(data: &[u8]) {
    for flat in [false, true] {
        if let Ok(phys) = DdtPhys::decode(flat, data) {
            let key = DdtKey::from_words(std::array::from_fn(|i| word(data, i * 8)));
            let _ = phys.total_refcnt();
            let _ = key.compress();
            for slot in phys.slots() {
                let _ = slot.dvas(&key);
                let _ = slot.blkptr(ChecksumKind::Sha256, &key);
            }
        }
        let _ = ondisk::ddt::log_entries(flat, data);
    }
    if let Ok((packing, rest)) = DdtPacking::split(data) {
        let _ = format!("{packing:?} {}", rest.len());
    }
    let _ = DdtLogHeader::decode(data);
}

/// The header of the block reference table.
pub fn brt(data: &[u8]) {
    let _ = BrtVdevPhys::decode(data);
}

/// The history ring, and the translation of offsets in it.
pub fn history(data: &[u8]) {
    if let Ok(history) = HistoryPhys::decode(data) {
        for at in [0, 1, u64::MAX, word(data, 16)] {
            let _ = history.to_phys(at);
        }
    }
}

/// The mappings of removed vdevs.
pub fn indirect(data: &[u8]) {
    let _ = MappingPhys::decode(data);
    let _ = births_count(data);
    data.chunks(24).for_each(|c| {
        let _ = MappingEntry::decode(c);
        let _ = BirthEntry::decode(c);
    });
    let _ = RemovingPhys::decode(&words(data));
    let _ = CondensingPhys::decode(&words(data));
}

/// The states of scans and rebuilds, and the error log.
pub fn scan(data: &[u8]) {
    let _ = ScanPhys::decode(&words(data));
    let _ = RebuildPhys::decode(&words(data));
    let _ = ErrBookmark::parse(data);
    let _ = ErrBookmark::parse_head(1, data);
    let _ = ErrBookmark::decode(data);
}

/// Byte-swapping a block of any kind.
pub fn byteswap(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    if let Ok(kind) = DmuType::from_disk(kind) {
        for level in [0, 1] {
            let _ = ondisk::byteswap::block(kind, Level(level), &mut rest.to_vec());
        }
    }
}

/// Checksums that are stored in blocks.
pub fn embedded_checksum(data: &[u8]) {
    let (numbers, block) = split(data, 32);
    let sum = Checksum(std::array::from_fn(|i| word(numbers, i * 8)));
    for verifier in [
        Verifier::Label { offset: sum.0[0] },
        Verifier::GangHeader { vdev: sum.0[0], offset: sum.0[1], birth: sum.0[2] },
        Verifier::Zilog(sum),
        Verifier::Zilog2(sum),
    ] {
        let _ = embedded::verify(&verifier, block, false);
        let mut sealed = block.to_vec();
        if embedded::seal(&verifier, &mut sealed, None).is_ok() {
            embedded::verify(&verifier, &sealed, false).expect("what was sealed verifies");
        }
    }
}

fn unpack(kinds: &[CompressKind], data: &[u8]) {
    let Some((&size, src)) = data.split_first() else { return };
    // Sizes from one sector to 1 MiB, and some that are no power of two.
    let lsize = (512usize << (size % 12)) + if size > 127 { 512 } else { 0 };
    let mut dst = vec![0xa5; lsize];
    for kind in kinds {
        let _ = decompress(*kind, src, &mut dst);
    }
}

/// The LZJB decompressor.
pub fn lzjb(data: &[u8]) {
    unpack(&[CompressKind::Lzjb], data);
}

/// The ZLE decompressor.
pub fn zle(data: &[u8]) {
    unpack(&[CompressKind::Zle], data);
}

/// The gzip decompressor.
pub fn gzip(data: &[u8]) {
    unpack(&[CompressKind::Gzip6], data);
}

/// The LZ4 decompressor.
pub fn lz4(data: &[u8]) {
    unpack(&[CompressKind::Lz4], data);
}

/// The zstd decompressor and its header.
pub fn zstd(data: &[u8]) {
    unpack(&[CompressKind::Zstd], data);
    let _ = codec::compress::zstd_header(data);
}
