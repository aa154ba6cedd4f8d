//! The first record of a stream.

use std::fs::File;
use std::io::Read;

use api::streams::BEGIN_MAX;
use ondisk::bytes::{ByteOrder, le64};
use ondisk::replay::{BACKUP_MAGIC, Begin, HeaderType, RECORD_SIZE, Record, features, list_length};

use super::{CANNOT, refuse};
use crate::cx::{Cx, Stop};

/// What OpenZFS 2.3 receives (`DMU_BACKUP_FEATURE_MASK`).
const KNOWN: u64 = features::KNOWN & !(features::DEDUP | features::DEDUPPROPS);

/// The type of a file system's object set (`DMU_OST_ZFS`).
const FILESYSTEM: u32 = 2;
/// The type of a volume's object set (`DMU_OST_ZVOL`).
const VOLUME: u32 = 3;

/// The first record of a stream, and the list behind it.
#[derive(Debug)]
pub(super) struct Head {
    /// The fields of BEGIN.
    pub(super) begin: Begin,
    /// The name of the snapshot at its sender. It contains an `@`.
    pub(super) name: String,
    /// The bytes that were read so far.
    pub(super) bytes: Vec<u8>,
    /// The length of the list.
    list: usize,
}

impl Head {
    /// Reads and checks BEGIN (`zfs_receive_impl`). `None`: it is the END of a package.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: it can't be read, it is no stream, or no release receives it. That is
    ///   reported.
    pub(super) fn read(cx: &mut Cx, mut input: &File) -> Result<Option<Self>, Stop> {
        let mut raw = [0; RECORD_SIZE];
        if input.read_exact(&mut raw).is_err() {
            return Err(refuse(cx, CANNOT, "failed to read from stream"));
        }
        let order = ByteOrder::by_magic(le64(&raw, 8), BACKUP_MAGIC);
        let begin = match Record::decode(&raw, order.unwrap_or(ByteOrder::Little)) {
            Ok(Record::Begin(begin)) => Some(begin),
            Ok(Record::End(_)) => return Ok(None),
            _ => None,
        };
        let (Some(begin), Some(order)) = (begin, order) else {
            return Err(refuse(cx, CANNOT, "invalid stream (bad magic number)"));
        };
        check_features(cx, &begin)?;
        let name = String::from_utf8_lossy(begin.name()).into_owned();
        if !name.contains('@') {
            return Err(refuse(cx, CANNOT, "invalid stream (bad snapshot name)"));
        }
        let list = list_length(&raw, order) as usize;
        Ok(Some(Self { begin, name, bytes: raw.into(), list }))
    }

    /// Reads the list behind BEGIN. Returns whether it was whole.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: it is too long for the daemon. That is reported.
    pub(super) fn read_list(&mut self, cx: &mut Cx, what: &str, input: &File) -> Result<bool, Stop> {
        if self.list > BEGIN_MAX - RECORD_SIZE {
            let (list, most) = (self.list, BEGIN_MAX - RECORD_SIZE);
            let why = format!(
                "its first record has a list of {list} bytes; this release of Poolhouse takes {most}"
            );
            return Err(refuse(cx, what, why));
        }
        let read = input.take(self.list as u64).read_to_end(&mut self.bytes);
        Ok(read.is_ok_and(|have| have == self.list))
    }

    /// The name of the file system or volume at the sender.
    pub(super) fn sent(&self) -> &str {
        self.name.split('@').next().unwrap_or(&self.name)
    }

    /// Whether the stream has this feature.
    pub(super) fn has(&self, feature: u64) -> bool {
        self.begin.features() & feature != 0
    }

    /// Whether it begins a package.
    pub(super) fn is_package(&self) -> bool {
        matches!(self.begin.header_type(), Ok(HeaderType::Compound))
    }

    /// Whether it is a file system's.
    pub(super) fn is_filesystem(&self) -> bool {
        self.begin.objset_type == FILESYSTEM
    }

    /// Whether it is a volume's.
    pub(super) fn is_volume(&self) -> bool {
        self.begin.objset_type == VOLUME
    }
}

/// Refuses a stream with features that OpenZFS 2.3 does not receive.
fn check_features(cx: &mut Cx, begin: &Begin) -> Result<(), Stop> {
    let found = begin.features();
    if found & !KNOWN == 0 && begin.header_type().is_ok() {
        return Ok(());
    }
    if found & features::DEDUP != 0 {
        let why =
            "stream has deprecated feature: dedup, try 'zstream redup [send in a file] | zfs recv [...]'";
        return Err(refuse(cx, CANNOT, why));
    }
    let unknown = found & !KNOWN;
    let why =
        format!("stream has unsupported feature, feature flags = {found:x} (unknown flags = {unknown:x})");
    Err(refuse(cx, CANNOT, why))
}
