//! State of scrubs and resilvers, and the bookmarks of the error log.

use crate::words::words_from;
use crate::{Corrupt, Result};

/// What a scan does (`pool_scan_func_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScanFunc {
    /// Nothing yet.
    None,
    /// Reads everything.
    Scrub,
    /// Rebuilds a device.
    Resilver,
    /// Reads what the error log names.
    ErrorScrub,
}

/// Where a scan stands (`dsl_scan_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScanState {
    /// Never ran.
    None,
    /// Running (or paused).
    Scanning,
    /// Done.
    Finished,
    /// Cancelled.
    Canceled,
    /// An error scrub is running.
    ErrorScrubbing,
}

impl ScanFunc {
    /// What a number on disk says.
    ///
    /// # Errors
    /// [`Corrupt::Range`].
    pub fn from_disk(v: u64) -> Result<Self> {
        Ok(match v {
            0 => Self::None,
            1 => Self::Scrub,
            2 => Self::Resilver,
            3 => Self::ErrorScrub,
            _ => return Err(Corrupt::Range { what: "scan", field: "function", value: v }),
        })
    }

    /// The number on disk.
    pub fn to_disk(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Scrub => 1,
            Self::Resilver => 2,
            Self::ErrorScrub => 3,
        }
    }
}

impl ScanState {
    /// The number on disk.
    pub fn to_disk(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Scanning => 1,
            Self::Finished => 2,
            Self::Canceled => 3,
            Self::ErrorScrubbing => 4,
        }
    }

    /// The state of an on-disk number.
    ///
    /// # Errors
    /// [`Corrupt::Range`].
    pub fn from_disk(v: u64) -> Result<Self> {
        Ok(match v {
            0 => Self::None,
            1 => Self::Scanning,
            2 => Self::Finished,
            3 => Self::Canceled,
            4 => Self::ErrorScrubbing,
            _ => return Err(Corrupt::Range { what: "scan", field: "state", value: v }),
        })
    }
}

/// The dataset at the bookmark is to be visited again from its beginning (`DSF_VISIT_DS_AGAIN`).
pub const DSF_VISIT_DS_AGAIN: u64 = 1;
/// The scrub is paused (`DSF_SCRUB_PAUSED`).
pub const DSF_SCRUB_PAUSED: u64 = 2;

/// State of the last scan, in the MOS directory as `scan` (`dsl_scan_phys_t`, 24 words).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanPhys {
    /// What it does.
    pub func: ScanFunc,
    /// Where it stands.
    pub state: ScanState,
    /// Queue of datasets yet to visit.
    pub queue_obj: u64,
    /// Blocks born before are not visited.
    pub min_txg: u64,
    /// Blocks born after are not visited.
    pub max_txg: u64,
    /// Lower bound of the dataset being visited.
    pub cur_min_txg: u64,
    /// Upper bound of the dataset being visited.
    pub cur_max_txg: u64,
    /// Seconds since 1970.
    pub start_time: u64,
    /// Seconds since 1970.
    pub end_time: u64,
    /// Bytes to scan.
    pub to_examine: u64,
    /// Bytes scanned.
    pub examined: u64,
    /// Bytes skipped.
    pub skipped: u64,
    /// Bytes repaired or resilvered.
    pub processed: u64,
    /// Errors met.
    pub errors: u64,
    /// Highest DDT class to visit.
    pub ddt_class_max: u64,
    /// DDT position: class, type, checksum, cursor.
    pub ddt_bookmark: [u64; 4],
    /// Position: object set, object, level, block.
    pub bookmark: [u64; 4],
    /// `DSF_*`.
    pub flags: u64,
}

impl ScanPhys {
    /// Words of the structure.
    pub const WORDS: usize = 24;

    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`]; [`Corrupt::Range`] for an unknown function or state.
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
    /// The ZAP value.
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

/// State of a scrub of what the error log names (`dsl_errorscrub_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorScrubPhys {
    /// What kind of scan: [`ScanFunc::ErrorScrub`], or none if none was begun since the last scan (`dep_func`).
    pub func: ScanFunc,
    /// How it stands (`dep_state`).
    pub state: ScanState,
    /// The place in the log, as a cursor of a ZAP is kept; 0 is its beginning (`dep_cursor`).
    pub cursor: u64,
    /// Seconds since 1970 (`dep_start_time`).
    pub start_time: u64,
    /// Seconds since 1970 (`dep_end_time`).
    pub end_time: u64,
    /// Blocks to look at (`dep_to_examine`).
    pub to_examine: u64,
    /// Blocks looked at (`dep_examined`).
    pub examined: u64,
    /// Blocks that were found damaged (`dep_errors`).
    pub errors: u64,
    /// It is paused (`dep_paused_flags`).
    pub paused: bool,
}

impl ErrorScrubPhys {
    /// Words of the ZAP value (`ERRORSCRUB_PHYS_NUMINTS`).
    pub const WORDS: usize = 9;

    /// None was begun.
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
    /// [`Corrupt::Truncated`]; [`Corrupt::Range`] for an unknown function or state.
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

    /// The ZAP value.
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

/// Where a sequential rebuild stands (`vdev_rebuild_state_t`), as [`RebuildPhys::state`] has it: none.
pub const REBUILD_NONE: u64 = 0;
/// It goes on.
pub const REBUILD_ACTIVE: u64 = 1;
/// It was given up.
pub const REBUILD_CANCELED: u64 = 2;
/// It came to its end.
pub const REBUILD_COMPLETE: u64 = 3;

/// State of a sequential rebuild of a top-level vdev (`vdev_rebuild_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RebuildPhys {
    /// [`REBUILD_NONE`] and so on.
    pub state: u64,
    /// Last offset rebuilt.
    pub last_offset: u64,
    /// First missing txg.
    pub min_txg: u64,
    /// Last missing txg.
    pub max_txg: u64,
    /// Seconds since 1970.
    pub start_time: u64,
    /// Seconds since 1970.
    pub end_time: u64,
    /// Time run in milliseconds.
    pub scan_time_ms: u64,
    /// Bytes scanned.
    pub bytes_scanned: u64,
    /// Bytes read.
    pub bytes_issued: u64,
    /// Bytes rebuilt.
    pub bytes_rebuilt: u64,
    /// Bytes to scan.
    pub bytes_est: u64,
    /// Errors met.
    pub errors: u64,
}

impl RebuildPhys {
    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
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

    /// The ZAP value.
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

/// The block that an entry of the error log names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrBookmark {
    /// Object set (of the head dataset, with `head_errlog`).
    pub objset: u64,
    /// Object.
    pub object: u64,
    /// Level; negative for the ZIL (-2) and dnodes (-3).
    pub level: i64,
    /// Block.
    pub blkid: u64,
    /// The block's birth txg, where the log keeps it (`head_errlog`).
    pub birth: Option<u64>,
}

impl ErrBookmark {
    /// Decodes a name of the old error log: `objset:object:level:blkid` in hexadecimal.
    ///
    /// # Errors
    /// [`Corrupt::Shape`].
    pub fn parse(name: &[u8]) -> Result<Self> {
        let [objset, object, level, blkid] = numbers(name)?;
        Ok(Self { objset, object, level: i64::from(level as i32), blkid, birth: None })
    }

    /// Decodes a name of a head dataset's error log: `object:level:blkid:birth` in hexadecimal.
    ///
    /// # Errors
    /// [`Corrupt::Shape`].
    pub fn parse_head(objset: u64, name: &[u8]) -> Result<Self> {
        let [object, level, blkid, birth] = numbers(name)?;
        Ok(Self { objset, object, level: i64::from(level as i32), blkid, birth: Some(birth) })
    }

    /// The name of its entry in a log: as [`ErrBookmark::parse_head`] reads it if the birth is known, and as [`ErrBookmark::parse`] does if not.
    pub fn entry_name(&self) -> String {
        match self.birth {
            Some(birth) => format!("{:x}:{:x}:{:x}:{birth:x}", self.object, self.level, self.blkid),
            None => format!("{:x}:{:x}:{:x}:{:x}", self.objset, self.object, self.level, self.blkid),
        }
    }

    /// Decodes the binary form of a scan's position.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
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

    /// Goal: what is written of a scan is what was read of it, each word in its place.
    #[test]
    fn a_scan_survives_its_words() {
        let mut words: [u64; ScanPhys::WORDS] = std::array::from_fn(|i| 1000 + i as u64);
        (words[0], words[1]) = (2, 3);
        let scan = ScanPhys::decode(&words).unwrap();
        assert_eq!(scan.encode(), words);
    }

    /// Goal: the same of an error scrub.
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

    /// Goal: entries of both forms of the error log are named as they are read.
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
