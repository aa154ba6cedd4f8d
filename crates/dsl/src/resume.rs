//! The token with which an interrupted receive continues (`receive_resume_token`).
//!
//! # On disk
//! A dataset's ZAP keeps how far the receive came. The token is `1-SUM-SIZE-HEX`:
//!
//! | part | content |
//! |---|---|
//! | `SUM` | first word of Fletcher-4 over the deflated bytes |
//! | `SIZE` | length of the nvlist before compression |
//! | `HEX` | the fields as a native little-endian nvlist, deflated (zlib 6), in hexadecimal |

use crate::Result;
use crate::dataset::Dataset;
use crate::ops::receive::RECEIVING;
use codec::compress::zlib6;
use ondisk::mos;
use ondisk::nvlist::{Nvlist, Value};
use pool::string_of;
use std::fmt::Write;

/// A snapshot that was received in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// The guid that the snapshot will have.
    pub guid: u64,
    /// Its name where it was sent.
    pub name: String,
}

impl Dataset {
    /// The snapshot of which this dataset itself has a part, if a receive was interrupted.
    ///
    /// # Errors
    /// * [Reading](crate::Error#reading): the dataset can't be read.
    pub fn partial(&self) -> Result<Option<Partial>> {
        let Some(guid) = self.field_u64(mos::DS_RESUME_TOGUID)? else { return Ok(None) };
        let name = self.field(mos::DS_RESUME_TONAME)?.as_ref().and_then(string_of);
        Ok(name.map(|name| Partial { guid, name }))
    }

    /// The dataset that an interrupted receive into this one wrote to: its hidden child `%recv`, or
    /// itself.
    ///
    /// # Errors
    /// * [Reading](crate::Error#reading): the child can't be read.
    pub fn receiving(&self) -> Result<Self> {
        let child = self.dir().child(RECEIVING)?.map(|dir| dir.head()).transpose()?.flatten();
        Ok(child.unwrap_or_else(|| self.clone()))
    }

    /// The token of an interrupted receive into this dataset, if there was one
    /// (`get_receive_resume_token`).
    ///
    /// It is the dataset's own token if the dataset is new, and otherwise that of its hidden child
    /// `%recv`.
    ///
    /// # Errors
    /// * [Reading](crate::Error#reading): the dataset or its child can't be read.
    pub fn resume_token(&self) -> Result<Option<String>> {
        if self.is_snapshot() {
            return Ok(None);
        }
        match self.own_resume_token()? {
            Some(token) => Ok(Some(token)),
            None => self.receiving()?.own_resume_token(),
        }
    }

    fn own_resume_token(&self) -> Result<Option<String>> {
        // Each interrupted receive has recorded the guid of the new dataset.
        if self.field(mos::DS_RESUME_TOGUID)?.is_none() {
            return Ok(None);
        }
        let mut list = Nvlist::new();
        for (name, field) in [
            ("fromguid", mos::DS_RESUME_FROMGUID),
            ("object", mos::DS_RESUME_OBJECT),
            ("offset", mos::DS_RESUME_OFFSET),
            ("bytes", mos::DS_RESUME_BYTES),
            ("toguid", mos::DS_RESUME_TOGUID),
        ] {
            if let Some(n) = self.field_u64(field)? {
                list.set(name, Value::Uint64(n));
            }
        }
        if let Some(name) = self.field(mos::DS_RESUME_TONAME)?.as_ref().and_then(string_of) {
            list.set("toname", Value::String(name.into_bytes()));
        }
        for (name, field) in [
            ("largeblockok", mos::DS_RESUME_LARGEBLOCK),
            ("embedok", mos::DS_RESUME_EMBEDOK),
            ("compressok", mos::DS_RESUME_COMPRESSOK),
            ("rawok", mos::DS_RESUME_RAWOK),
        ] {
            if self.field(field)?.is_some() {
                list.set(name, Value::Boolean);
            }
        }
        for (name, field) in [
            ("redact_snaps", mos::DS_REDACTED_SNAPS),
            ("book_redact_snaps", mos::DS_RESUME_REDACT_BOOKMARK_SNAPS),
        ] {
            if let Some(v) = self.field(field)? {
                list.set(name, Value::Uint64Array(v.iter().collect()));
            }
        }
        Ok(token(&list.encode_native()))
    }
}

/// Longest list that is compressed. A receive redacted for more snapshots than fit has no token.
const MAX_PACKED: usize = zlib6::MAX;

/// Encodes a packed list; `None` if it is too long.
fn token(packed: &[u8]) -> Option<String> {
    if packed.len() > MAX_PACKED {
        return None;
    }
    let mut data = zlib6::compress(packed);
    // Data that does not shrink stays as it is (`zfs_gzip_compress`).
    if data.len() > packed.len() {
        data = packed.to_vec();
    }
    let sum = data.as_chunks::<4>().0.iter().fold(0u64, |s, w| s.wrapping_add(u32::from_le_bytes(*w).into()));
    let mut out = format!("1-{sum:x}-{:x}-", packed.len());
    for b in data {
        write!(out, "{b:02x}").expect("writing to a string cannot fail");
    }
    Some(out)
}
