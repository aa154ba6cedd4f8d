//! Bookmarks, and the redaction lists that some bookmarks have.
//!
//! # On disk
//! A dataset's bookmarks are values of a ZAP. A value has 3 words (version 1) or up to 12
//! (`bookmark_v2`, `bookmark_written`, redaction). A redaction list is an object of
//! [`RedactBlock`]s, sorted by object and block. Its bonus is a [`RedactionListPhys`].

use crate::bytes::le64;
use crate::words::{words, words_from};
use crate::{Corrupt, Result};

/// The fields of the written size are valid.
pub const ZBM_FLAG_HAS_FBN: u64 = 1;
/// The snapshot of the bookmark still exists.
pub const ZBM_FLAG_SNAPSHOT_EXISTS: u64 = 2;

/// A bookmark (`zfs_bookmark_phys_t`). Fields that an older version lacks are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BookmarkPhys {
    /// Guid of the snapshot (`zbm_guid`).
    pub guid: u64,
    /// Transaction group in which the snapshot was made (`zbm_creation_txg`).
    pub creation_txg: u64,
    /// Time at which the snapshot was made, in seconds since 1970 (`zbm_creation_time`).
    pub creation_time: u64,
    /// Object of the redaction list, or 0 (`zbm_redaction_obj`).
    pub redaction_obj: u64,
    /// Flags, `ZBM_FLAG_*` (`zbm_flags`).
    pub flags: u64,
    /// Bytes that the snapshot referred to (`zbm_referenced_bytes_refd`).
    pub referenced_bytes: u64,
    /// Compressed bytes that the snapshot referred to (`zbm_compressed_bytes_refd`).
    pub compressed_bytes: u64,
    /// Uncompressed bytes that the snapshot referred to (`zbm_uncompressed_bytes_refd`).
    pub uncompressed_bytes: u64,
    /// Bytes that the dataset freed between the bookmark and the next snapshot
    /// (`zbm_referenced_freed_before_next_snap`).
    pub referenced_freed_before_next_snap: u64,
    /// Compressed bytes freed in that time (`zbm_compressed_freed_before_next_snap`).
    pub compressed_freed_before_next_snap: u64,
    /// Uncompressed bytes freed in that time (`zbm_uncompressed_freed_before_next_snap`).
    pub uncompressed_freed_before_next_snap: u64,
    /// Guid of the snapshot's set of initialisation vectors (`zbm_ivset_guid`).
    pub ivset_guid: u64,
    /// Number of words stored: 3 in version 1.
    pub words: usize,
}

impl BookmarkPhys {
    /// Decodes the words of a ZAP value.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value has fewer than 3 words.
    pub fn decode(value: &[u64]) -> Result<Self> {
        if value.len() < 3 {
            return Err(Corrupt::Truncated { what: "bookmark", need: 24, have: value.len() * 8 });
        }
        let w = |i: usize| value.get(i).copied().unwrap_or(0);
        Ok(Self {
            guid: w(0),
            creation_txg: w(1),
            creation_time: w(2),
            redaction_obj: w(3),
            flags: w(4),
            referenced_bytes: w(5),
            compressed_bytes: w(6),
            uncompressed_bytes: w(7),
            referenced_freed_before_next_snap: w(8),
            compressed_freed_before_next_snap: w(9),
            uncompressed_freed_before_next_snap: w(10),
            ivset_guid: w(11),
            words: value.len(),
        })
    }
}

/// Words of a bookmark of version 1 (`BOOKMARK_PHYS_SIZE_V1`).
pub const BOOKMARK_WORDS_V1: usize = 3;
/// Words of a bookmark of version 2 (`BOOKMARK_PHYS_SIZE_V2`).
pub const BOOKMARK_WORDS_V2: usize = 12;

impl BookmarkPhys {
    /// Encodes the words of the ZAP value, as many as [`BookmarkPhys::words`] but at least 3.
    pub fn encode(&self) -> Vec<u64> {
        let all = [
            self.guid,
            self.creation_txg,
            self.creation_time,
            self.redaction_obj,
            self.flags,
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.referenced_freed_before_next_snap,
            self.compressed_freed_before_next_snap,
            self.uncompressed_freed_before_next_snap,
            self.ivset_guid,
        ];
        let mut out = all.to_vec();
        out.resize(self.words.max(BOOKMARK_WORDS_V1), 0);
        out
    }
}

/// Header of a redaction list, in its bonus (`redaction_list_phys_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactionListPhys {
    /// Last object visited while the list was made; `u64::MAX` when the list is complete
    /// (`rlp_last_object`).
    pub last_object: u64,
    /// Last block visited (`rlp_last_blkid`).
    pub last_blkid: u64,
    /// Number of entries in the object (`rlp_num_entries`).
    pub num_entries: u64,
    /// Guids of the snapshots with respect to which the list redacts (`rlp_snaps`).
    pub snaps: Vec<u64>,
}

impl RedactionListPhys {
    /// Decodes the bonus.
    ///
    /// Lists of more than 36 snapshots keep header and guids in the spill block, which the caller
    /// passes as `spill`.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the spill block, or the bonus if there is none, is shorter than
    ///   the header.
    /// * [`Corrupt::Range`]: the header counts more guids than there are bytes for.
    pub fn decode(bonus: &[u8], spill: Option<&[u8]>) -> Result<Self> {
        const WHAT: &str = "redaction list";
        let buf = spill.unwrap_or(bonus);
        let w: [u64; 4] = words(WHAT, buf)?;
        let room = (buf.len() - 32) / 8;
        let n = usize::try_from(w[3]).ok().filter(|&n| n <= room).ok_or(Corrupt::Range {
            what: WHAT,
            field: "snapshots",
            value: w[3],
        })?;
        let snaps = (0..n).map(|i| le64(buf, 32 + i * 8)).collect();
        Ok(Self { last_object: w[0], last_blkid: w[1], num_entries: w[2], snaps })
    }

    /// Bytes of a list of this many snapshots.
    pub const fn size(snaps: usize) -> usize {
        32 + snaps * 8
    }

    /// Encodes the header and the guids.
    pub fn encode(&self) -> Vec<u8> {
        let head = [self.last_object, self.last_blkid, self.num_entries, self.snaps.len() as u64];
        head.iter().chain(&self.snaps).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Whether all blocks are on the list.
    pub fn is_complete(&self) -> bool {
        (self.last_object, self.last_blkid) == (u64::MAX, u64::MAX)
    }
}

/// A contiguous run of redacted blocks (`redact_block_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedactBlock {
    /// Object of the blocks (`rbp_object`).
    pub object: u64,
    /// Number of the first block (`rbp_blkid`).
    pub blkid: u64,
    /// Size of each block in bytes (`redact_block_get_size`).
    pub block_size: u64,
    /// Number of blocks (`redact_block_get_count`).
    pub count: u64,
}

impl RedactBlock {
    /// Bytes of one entry.
    pub const SIZE: usize = 32;

    /// Decodes one entry.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` is shorter than [`RedactBlock::SIZE`].
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let w: [u64; 4] = words_from("redaction list entry", buf, 4)?;
        Ok(Self {
            object: w[0],
            blkid: w[1],
            block_size: (w[2] >> 48) << crate::SPA_MINBLOCKSHIFT,
            count: (w[2] & ((1 << 48) - 1)) + 1,
        })
    }

    /// Encodes the entry. Its blocks are of whole sectors, and at least one.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let sizes = self.block_size >> crate::SPA_MINBLOCKSHIFT << 48 | (self.count - 1) & ((1 << 48) - 1);
        let mut out = [0; Self::SIZE];
        for (to, word) in out.chunks_exact_mut(8).zip([self.object, self.blkid, sizes]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }
}
