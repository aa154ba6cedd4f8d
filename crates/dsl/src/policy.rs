//! How the blocks of a dataset are stored: its properties, resolved.
//!
//! # Theory
//! Compression, checksum, copies and others are properties of a dataset. The policy of a block
//! follows from them, its type and its level (`dmu_write_policy`). Metadata is always compressed,
//! has a strong enough checksum, and by default has one copy more than data.

use crate::Prop;
use codec::compress::ZstdLevel;
use ondisk::{ChecksumKind, CompressKind, DmuType, Level};
use zio::{ClassHint, WritePolicy};

/// Indirect blocks of this level and up get another copy with `redundant_metadata=most`
/// (`zfs_redundant_metadata_most_ditto_level`).
const MOST_DITTO_LEVEL: u8 = 2;

/// Which metadata gets another copy (`redundant_metadata`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redundant {
    All,
    Most,
    Some,
    None,
}

/// The settings of a dataset, resolved: neither `on` nor `inherit`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) checksum: ChecksumKind,
    pub(crate) compress: CompressKind,
    pub(crate) zstd: ZstdLevel,
    pub(crate) copies: u8,
    /// The checksum of the dedup table, and whether to compare bytes.
    pub(crate) dedup: Option<(ChecksumKind, bool)>,
    pub(crate) redundant: Redundant,
    pub(crate) special_small_blocks: u64,
    pub(crate) encrypt: bool,
    pub(crate) embed: bool,
    pub(crate) hole_birth: bool,
    /// Whether metadata may use LZ4.
    pub(crate) lz4: bool,
}

/// The checksum of a `checksum` value; `on` is Fletcher-4.
pub(crate) fn checksum_of(v: u64) -> ChecksumKind {
    match u8::try_from(v & 0xff).ok().and_then(|v| ChecksumKind::from_disk(v).ok()) {
        None | Some(ChecksumKind::Inherit | ChecksumKind::On) => ChecksumKind::Fletcher4,
        Some(kind) => kind,
    }
}

/// The checksum of a `dedup` value, and whether to compare bytes; `None` for `off`.
///
/// `on` is SHA-256.
pub(crate) fn dedup_of(v: u64) -> Option<(ChecksumKind, bool)> {
    let verify = v & 0x100 != 0;
    match u8::try_from(v & 0xff).ok().and_then(|v| ChecksumKind::from_disk(v).ok()) {
        None | Some(ChecksumKind::Off | ChecksumKind::Inherit) => None,
        Some(ChecksumKind::On) => Some((ChecksumKind::Sha256, verify)),
        Some(kind) => Some((kind, verify)),
    }
}

/// The algorithm of a `compression` value, and the level of zstd.
pub(crate) fn compress_of(v: u64, lz4: bool) -> (CompressKind, ZstdLevel) {
    let default = if lz4 { CompressKind::Lz4 } else { CompressKind::Lzjb };
    let kind = match u8::try_from(v & 0x7f).ok().and_then(|v| CompressKind::from_disk(v).ok()) {
        None | Some(CompressKind::Inherit | CompressKind::On) => default,
        Some(kind) => kind,
    };
    let level = u8::try_from(v >> 7).ok().and_then(ZstdLevel::from_disk).unwrap_or(ZstdLevel::default());
    (kind, level)
}

/// The algorithm of a value of `compression` by its name, and the level of zstd. `on` is LZ4.
///
/// `None` if no value has this name.
pub fn compression_named(name: &str) -> Option<(CompressKind, ZstdLevel)> {
    (name != "inherit").then(|| Prop::Compression.desc().index_value(name))?.map(|v| compress_of(v, true))
}

/// Whether a checksum is strong enough for metadata (`ZCHECKSUM_FLAG_METADATA`).
fn good_for_metadata(kind: ChecksumKind) -> bool {
    use ChecksumKind::{Blake3, Edonr, Fletcher4, Sha256, Sha512, Skein};
    matches!(kind, Fletcher4 | Sha256 | Sha512 | Skein | Edonr | Blake3)
}

/// Whether equal checksums prove equal blocks (`ZCHECKSUM_FLAG_NOPWRITE`).
fn good_for_nopwrite(kind: ChecksumKind) -> bool {
    use ChecksumKind::{Blake3, Edonr, Sha256, Sha512, Skein};
    matches!(kind, Sha256 | Sha512 | Skein | Edonr | Blake3)
}

/// Whether equal checksums suffice for dedup (`ZCHECKSUM_FLAG_DEDUP`).
fn good_for_dedup(kind: ChecksumKind) -> bool {
    use ChecksumKind::{Blake3, Sha256, Sha512, Skein};
    matches!(kind, Sha256 | Sha512 | Skein | Blake3)
}

impl Settings {
    /// How a block of this type and level is stored; `own` has the wishes of its dnode.
    pub(crate) fn policy(&self, kind: DmuType, level: Level, own: Own) -> WritePolicy {
        let mut out = WritePolicy {
            compress: self.compress,
            zstd: self.zstd,
            checksum: self.checksum,
            copies: self.copies,
            dedup: false,
            verify: false,
            nopwrite: false,
            encrypt: self.encrypt,
            embed: self.embed,
            hole_birth: self.hole_birth,
            class: ClassHint::Normal { special_small_blocks: self.special_small_blocks },
        };
        if level.0 > 0 || kind.is_metadata() {
            out.compress = if self.lz4 { CompressKind::Lz4 } else { CompressKind::Lzjb };
            if !good_for_metadata(out.checksum) {
                out.checksum = ChecksumKind::Fletcher4;
            }
            let critical = !matches!(kind, DmuType::DNODE | DmuType::DIRECTORY_CONTENTS | DmuType::SA);
            let more = match self.redundant {
                Redundant::All => true,
                Redundant::Most => level.0 >= MOST_DITTO_LEVEL || kind.is_metadata(),
                Redundant::Some => kind.is_metadata() && critical,
                Redundant::None => false,
            };
            out.copies += u8::from(more);
        } else {
            if let Some(own) = own.compress {
                out.compress = own;
            }
            if let Some(own) = own.checksum {
                out.checksum = own;
            }
            match self.dedup {
                Some((checksum, verify)) => {
                    out.checksum = checksum;
                    // The tables know no types: an encrypted object set shares only encrypted
                    // blocks.
                    out.dedup = !self.encrypt || kind.is_encrypted();
                    // A weak checksum needs a comparison of the bytes.
                    out.verify = out.dedup && (verify || !good_for_dedup(checksum));
                }
                None => {
                    out.nopwrite =
                        good_for_nopwrite(out.checksum) && out.compress != CompressKind::Off && !self.encrypt;
                }
            }
        }
        let most = if self.encrypt && kind.is_encrypted() && level.0 == 0 { 2 } else { 3 };
        out.copies = out.copies.min(most);
        out
    }
}

/// The settings of a dnode (`dn_compress`, `dn_checksum`); `None` inherits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    pub(crate) compress: Option<CompressKind>,
    pub(crate) checksum: Option<ChecksumKind>,
}

impl Own {
    /// Reads the settings of a dnode.
    pub(crate) fn of(dnode: &ondisk::DnodePhys) -> Own {
        let compress = match CompressKind::from_disk(dnode.compress) {
            Ok(CompressKind::Inherit | CompressKind::On) | Err(_) => None,
            Ok(kind) => Some(kind),
        };
        let checksum = match ChecksumKind::from_disk(dnode.checksum) {
            Ok(ChecksumKind::Inherit | ChecksumKind::On) | Err(_) => None,
            Ok(kind) => Some(kind),
        };
        Own { compress, checksum }
    }
}
