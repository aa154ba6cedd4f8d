//! State of scrubs and resilvers, and the bookmarks of the error log.

use crate::words::words_from;
use crate::{Corrupt, Result};
use strum::FromRepr;

/// Purpose of a scan (`pool_scan_func_t`, `POOL_SCAN_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr)]
#[repr(u64)]
pub enum ScanFunc {
    /// No scan has run yet.
    None = 0,
    /// Scrub: a read of all blocks.
    Scrub = 1,
    /// Resilver: the reconstruction of a device.
    Resilver = 2,
    /// Error scrub: a read of the blocks in the error log.
    ErrorScrub = 3,
}

/// State of a scan (`dsl_scan_state_t`, `DSS_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr)]
#[repr(u64)]
pub enum ScanState {
    /// No scan has run yet.
    None = 0,
    /// In progress or paused.
    Scanning = 1,
    /// Finished.
    Finished = 2,
    /// Cancelled.
    Canceled = 3,
    /// An error scrub is in progress.
    ErrorScrubbing = 4,
}

impl ScanFunc {
    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: no purpose has this number.
    pub fn from_disk(v: u64) -> Result<Self> {
        Self::from_repr(v).ok_or(Corrupt::Range { what: "scan", field: "function", value: v })
    }

    /// Encodes the on-disk number.
    pub fn to_disk(self) -> u64 {
        self as u64
    }
}

impl ScanState {
    /// Encodes the on-disk number.
    pub fn to_disk(self) -> u64 {
        self as u64
    }

    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: no state has this number.
    pub fn from_disk(v: u64) -> Result<Self> {
        Self::from_repr(v).ok_or(Corrupt::Range { what: "scan", field: "state", value: v })
    }
}

/// The scan visits the dataset at the bookmark again, from its beginning.
pub const DSF_VISIT_DS_AGAIN: u64 = 1;
/// The scrub is paused.
pub const DSF_SCRUB_PAUSED: u64 = 2;

/// State of the last scan, 24 words: `scan` in the directory of the MOS.
///
/// OpenZFS's fields have these names with `scn_` in front (`dsl_scan_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanPhys {
    /// Purpose of the scan.
    pub func: ScanFunc,
    /// State of the scan.
    pub state: ScanState,
    /// ZAP of the datasets that the scan has yet to visit.
    pub queue_obj: u64,
    /// The scan skips blocks with an earlier birth.
    pub min_txg: u64,
    /// The scan skips blocks with a later birth.
    pub max_txg: u64,
    /// Lower bound for the current dataset.
    pub cur_min_txg: u64,
    /// Upper bound for the current dataset.
    pub cur_max_txg: u64,
    /// Start time in seconds since 1970.
    pub start_time: u64,
    /// End time in seconds since 1970.
    pub end_time: u64,
    /// Bytes to scan.
    pub to_examine: u64,
    /// Bytes scanned.
    pub examined: u64,
    /// Bytes skipped.
    pub skipped: u64,
    /// Bytes repaired or resilvered.
    pub processed: u64,
    /// Number of errors.
    pub errors: u64,
    /// Highest DDT class to visit.
    pub ddt_class_max: u64,
    /// Position in the DDT: class, type, checksum, cursor (`ddt_bookmark_t`).
    pub ddt_bookmark: [u64; 4],
    /// Position in the pool: object set, object, level, block (`zbookmark_phys_t`).
    pub bookmark: [u64; 4],
    /// Flags, `DSF_*`.
    pub flags: u64,
}

impl ScanPhys {
    /// Words of the structure (`SCAN_PHYS_NUMINTS`).
    pub const WORDS: usize = 24;

    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value has fewer than 24 words.
    /// * [`Corrupt::Range`]: the purpose or the state is unknown.
    pub fn decode(w: &[u64]) -> Result<Self> {
        let w: &[u64; Self::WORDS] = w.first_chunk().ok_or(Corrupt::Truncated {
            what: "scan",
            need: Self::WORDS * 8,
            have: w.len() * 8,
        })?;
        Ok(Self {
            func: ScanFunc::from_disk(w[0])?,
            state: ScanState::from_disk(w[1])?,
            queue_obj: w[2],
            min_txg: w[3],
            max_txg: w[4],
            cur_min_txg: w[5],
            cur_max_txg: w[6],
            start_time: w[7],
            end_time: w[8],
            to_examine: w[9],
            examined: w[10],
            skipped: w[11],
            processed: w[12],
            errors: w[13],
            ddt_class_max: w[14],
            ddt_bookmark: [w[15], w[16], w[17], w[18]],
            bookmark: [w[19], w[20], w[21], w[22]],
            flags: w[23],
        })
    }
}

impl ScanPhys {
    /// Encodes the ZAP value.
    pub fn encode(&self) -> [u64; Self::WORDS] {
        let [d0, d1, d2, d3] = self.ddt_bookmark;
        let [b0, b1, b2, b3] = self.bookmark;
        [
            self.func.to_disk(),
            self.state.to_disk(),
            self.queue_obj,
            self.min_txg,
            self.max_txg,
            self.cur_min_txg,
            self.cur_max_txg,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            d0,
            d1,
            d2,
            d3,
            b0,
            b1,
            b2,
            b3,
            self.flags,
        ]
    }
}

/// State of the last error scrub (`dsl_errorscrub_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorScrubPhys {
    /// [`ScanFunc::ErrorScrub`], or none if no error scrub began since the last scan (`dep_func`).
    pub func: ScanFunc,
    /// State of the error scrub (`dep_state`).
    pub state: ScanState,
    /// Position in the error log, as a serialized ZAP cursor; 0 is the beginning (`dep_cursor`).
    pub cursor: u64,
    /// Start time in seconds since 1970 (`dep_start_time`).
    pub start_time: u64,
    /// End time in seconds since 1970 (`dep_end_time`).
    pub end_time: u64,
    /// Blocks to read (`dep_to_examine`).
    pub to_examine: u64,
    /// Blocks read (`dep_examined`).
    pub examined: u64,
    /// Blocks found damaged (`dep_errors`).
    pub errors: u64,
    /// True if the error scrub is paused (`dep_paused_flags`).
    pub paused: bool,
}

impl ErrorScrubPhys {
    /// Words of the ZAP value (`ERRORSCRUB_PHYS_NUMINTS`).
    pub const WORDS: usize = 9;

    /// The state before the first error scrub.
    pub const NONE: Self = Self {
        func: ScanFunc::None,
        state: ScanState::None,
        cursor: 0,
        start_time: 0,
        end_time: 0,
        to_examine: 0,
        examined: 0,
        errors: 0,
        paused: false,
    };

    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value has fewer than nine words.
    /// * [`Corrupt::Range`]: the purpose or the state is unknown.
    pub fn decode(w: &[u64]) -> Result<Self> {
        let have = w.len() * 8;
        let short = Corrupt::Truncated { what: "error scrub", need: Self::WORDS * 8, have };
        let w: &[u64; Self::WORDS] = w.first_chunk().ok_or(short)?;
        Ok(Self {
            func: ScanFunc::from_disk(w[0])?,
            state: ScanState::from_disk(w[1])?,
            cursor: w[2],
            start_time: w[3],
            end_time: w[4],
            to_examine: w[5],
            examined: w[6],
            errors: w[7],
            paused: w[8] != 0,
        })
    }

    /// Encodes the ZAP value.
    pub fn encode(&self) -> [u64; Self::WORDS] {
        [
            self.func.to_disk(),
            self.state.to_disk(),
            self.cursor,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.errors,
            u64::from(self.paused),
        ]
    }
}

/// [`RebuildPhys::state`]: no rebuild has run (`VDEV_REBUILD_NONE`).
pub const REBUILD_NONE: u64 = 0;
/// [`RebuildPhys::state`]: the rebuild is in progress (`VDEV_REBUILD_ACTIVE`).
pub const REBUILD_ACTIVE: u64 = 1;
/// [`RebuildPhys::state`]: the rebuild was cancelled (`VDEV_REBUILD_CANCELED`).
pub const REBUILD_CANCELED: u64 = 2;
/// [`RebuildPhys::state`]: the rebuild is complete (`VDEV_REBUILD_COMPLETE`).
pub const REBUILD_COMPLETE: u64 = 3;

/// State of a sequential rebuild of a top-level vdev.
///
/// OpenZFS's fields have these names with `vrp_` in front (`vdev_rebuild_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RebuildPhys {
    /// [`REBUILD_NONE`], [`REBUILD_ACTIVE`], [`REBUILD_CANCELED`] or [`REBUILD_COMPLETE`]
    /// (`vrp_rebuild_state`).
    pub state: u64,
    /// Last offset rebuilt.
    pub last_offset: u64,
    /// First missing transaction group.
    pub min_txg: u64,
    /// Last missing transaction group.
    pub max_txg: u64,
    /// Start time in seconds since 1970.
    pub start_time: u64,
    /// End time in seconds since 1970.
    pub end_time: u64,
    /// Running time in milliseconds.
    pub scan_time_ms: u64,
    /// Bytes scanned.
    pub bytes_scanned: u64,
    /// Bytes read.
    pub bytes_issued: u64,
    /// Bytes rebuilt.
    pub bytes_rebuilt: u64,
    /// Bytes to scan.
    pub bytes_est: u64,
    /// Number of errors.
    pub errors: u64,
}

impl RebuildPhys {
    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value has fewer than twelve words.
    pub fn decode(w: &[u64]) -> Result<Self> {
        let w: &[u64; 12] =
            w.first_chunk().ok_or(Corrupt::Truncated { what: "rebuild", need: 96, have: w.len() * 8 })?;
        Ok(Self {
            state: w[0],
            last_offset: w[1],
            min_txg: w[2],
            max_txg: w[3],
            start_time: w[4],
            end_time: w[5],
            scan_time_ms: w[6],
            bytes_scanned: w[7],
            bytes_issued: w[8],
            bytes_rebuilt: w[9],
            bytes_est: w[10],
            errors: w[11],
        })
    }

    /// Encodes the ZAP value.
    pub fn encode(&self) -> [u64; 12] {
        [
            self.state,
            self.last_offset,
            self.min_txg,
            self.max_txg,
            self.start_time,
            self.end_time,
            self.scan_time_ms,
            self.bytes_scanned,
            self.bytes_issued,
            self.bytes_rebuilt,
            self.bytes_est,
            self.errors,
        ]
    }
}

/// The block that an entry of the error log names (`zbookmark_phys_t`, `zbookmark_err_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrBookmark {
    /// Object set; with `head_errlog`, that of the head dataset (`zb_objset`).
    pub objset: u64,
    /// Object (`zb_object`).
    pub object: u64,
    /// Level; -2 is the intent log, -3 dnodes (`zb_level`).
    pub level: i64,
    /// Number of the block (`zb_blkid`).
    pub blkid: u64,
    /// Birth of the block, if the log records it, as with `head_errlog` (`zb_birth`).
    pub birth: Option<u64>,
}

impl ErrBookmark {
    /// Decodes a name of the old error log: `objset:object:level:blkid` in hexadecimal
    /// (`name_to_bookmark`).
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the name is not four hexadecimal numbers.
    pub fn parse(name: &[u8]) -> Result<Self> {
        let [objset, object, level, blkid] = numbers(name)?;
        Ok(Self { objset, object, level: i64::from(level as i32), blkid, birth: None })
    }

    /// Decodes a name of a head dataset's error log: `object:level:blkid:birth` in hexadecimal
    /// (`name_to_errphys`).
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the name is not four hexadecimal numbers.
    pub fn parse_head(objset: u64, name: &[u8]) -> Result<Self> {
        let [object, level, blkid, birth] = numbers(name)?;
        Ok(Self { objset, object, level: i64::from(level as i32), blkid, birth: Some(birth) })
    }

    /// Encodes the name of the entry (`bookmark_to_name`, `errphys_to_name`).
    ///
    /// It is a name for [`ErrBookmark::parse_head`] if the birth is known, else for
    /// [`ErrBookmark::parse`].
    pub fn entry_name(&self) -> String {
        match self.birth {
            Some(birth) => format!("{:x}:{:x}:{:x}:{birth:x}", self.object, self.level, self.blkid),
            None => format!("{:x}:{:x}:{:x}:{:x}", self.objset, self.object, self.level, self.blkid),
        }
    }

    /// Decodes the binary form of a position in the pool (`zbookmark_phys_t`).
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` has fewer than 32 bytes.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let w: [u64; 4] = words_from("bookmark", buf, 4)?;
        Ok(Self { objset: w[0], object: w[1], level: w[2] as i64, blkid: w[3], birth: None })
    }
}

fn numbers(name: &[u8]) -> Result<[u64; 4]> {
    let bad = Corrupt::Shape { what: "error log entry", why: "name is not four hexadecimal numbers" };
    let text = std::str::from_utf8(name).map_err(|_| bad.clone())?;
    let mut out = [0; 4];
    let mut parts = text.split(':');
    for slot in &mut out {
        let part = parts.next().ok_or_else(|| bad.clone())?;
        *slot = u64::from_str_radix(part, 16).map_err(|_| bad.clone())?;
    }
    if parts.next().is_some() { Err(bad) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each word of a scan's state is encoded to the position from which it was decoded.
    #[test]
    fn a_scan_survives_its_words() {
        let mut words: [u64; ScanPhys::WORDS] = std::array::from_fn(|i| 1000 + i as u64);
        (words[0], words[1]) = (2, 3);
        let scan = ScanPhys::decode(&words).unwrap();
        assert_eq!(scan.encode(), words);
    }

    /// Goal: the same for an error scrub.
    #[test]
    fn an_error_scrub_survives_its_words() {
        let words = [3, 4, 5, 6, 7, 8, 9, 10, 1];
        let scrub = ErrorScrubPhys::decode(&words).unwrap();
        assert_eq!((scrub.func, scrub.state), (ScanFunc::ErrorScrub, ScanState::ErrorScrubbing));
        assert_eq!(scrub.encode(), words);
        assert_eq!(ErrorScrubPhys::NONE.encode(), [0; 9]);
        assert!(ErrorScrubPhys::decode(&[3, 9, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(ErrorScrubPhys::decode(&words[1..]).is_err());
    }

    /// Goal: names of both forms of the error log are encoded as they are decoded.
    #[test]
    fn names_of_entries() {
        let old = ErrBookmark { objset: 0x36, object: 2, level: 0, blkid: 0x1f, birth: None };
        assert_eq!(old.entry_name(), "36:2:0:1f");
        assert_eq!(ErrBookmark::parse(b"36:2:0:1f").unwrap(), old);
        let new = ErrBookmark { level: -2, birth: Some(0xabc), ..old };
        assert_eq!(new.entry_name(), "2:fffffffffffffffe:1f:abc");
        assert_eq!(ErrBookmark::parse_head(0x36, new.entry_name().as_bytes()).unwrap(), new);
    }
}
