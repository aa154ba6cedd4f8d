//! The words for the vdevs of a pool (`construct_spec`).
//!
//! # Theory
//! | word | meaning |
//! |---|---|
//! | a device | a top-level vdev, or a child of the group before it |
//! | `mirror`, `raidz`, `draid` | begins a group, which takes the devices after it |
//! | `log`, `special`, `dedup` | sets the class of all vdevs up to the next such word |
//! | `spare`, `cache` | takes devices outside the tree |
//!
//! The result has the form in which pools show their vdevs, so that the same code prints and
//! compares both.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use api::{Layout, Vdev};

use crate::cx::{Cx, Stop};

#[cfg(test)]
mod tests;

/// Maximum number of devices in a raidz or draid (`VDEV_DRAID_MAX_CHILDREN`).
const MAX_CHILDREN: usize = 255;
/// Maximum parity (`VDEV_RAIDZ_MAXPARITY`).
const MAX_PARITY: u64 = 3;
/// Maximum number of distributed spares of a draid.
const MAX_DRAID_SPARES: u64 = 100;
/// Default number of data devices in a draid group.
const DRAID_DATA: u64 = 8;
/// The possible sector sizes, as shifts (`ASHIFT_MIN`, `ASHIFT_MAX`).
pub const ASHIFTS: std::ops::RangeInclusive<u64> = 9..=16;

/// The meaning of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Mirror,
    Raidz(u64),
    Draid(u64),
    Spare,
    Cache,
    For(For),
    Device,
}

/// The purpose of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Data,
    Log,
    Special,
    Dedup,
    Spare,
}

impl Word {
    fn of(word: &str) -> Self {
        let parity = |tail: &str| -> Option<u64> {
            if tail.is_empty() {
                return Some(1);
            }
            let n = (!tail.starts_with('0')).then(|| tail.parse().ok()).flatten()?;
            (1..=MAX_PARITY).contains(&n).then_some(n)
        };
        match word {
            "mirror" => Self::Mirror,
            "spare" => Self::Spare,
            "cache" => Self::Cache,
            "log" => Self::For(For::Log),
            "special" => Self::For(For::Special),
            "dedup" => Self::For(For::Dedup),
            _ => {
                let raidz = word.strip_prefix("raidz").and_then(parity).map(Self::Raidz);
                let draid = word.strip_prefix("draid");
                let draid = draid.map(|tail| tail.split(':').next().unwrap_or_default()).and_then(parity);
                raidz.or(draid.map(Self::Draid)).unwrap_or(Self::Device)
            }
        }
    }

    /// The name of the group that a word begins, and its minimum number of devices (`is_grouping`).
    fn group(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Mirror => Some(("mirror", 2)),
            Self::Raidz(parity) => Some(("raidz", parity as usize + 1)),
            Self::Draid(parity) => Some(("draid", parity as usize + 1)),
            Self::Spare => Some(("spare", 1)),
            Self::Cache => Some(("cache", 1)),
            Self::For(_) | Self::Device => None,
        }
    }
}

/// A fault of the words: the message.
///
/// It includes "invalid vdev specification" only where OpenZFS prints that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub String);

fn fault<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault(message.into()))
}

fn invalid<T>(message: &str) -> Result<T, Fault> {
    fault(format!("invalid vdev specification: {message}"))
}

/// Finds the device for a word.
pub type Finder<'a> = dyn FnMut(&str, DeviceRole) -> Result<Vdev, Fault> + 'a;

/// The place of a device. Only in the tree proper may a distributed spare be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRole {
    /// In the tree, for data.
    Data,
    /// Elsewhere.
    Other,
}

/// Parses the words; `find` finds the devices (`construct_spec`).
///
/// # Errors
/// * [`Fault`]: a device, group or number of devices is wrong, or a word is repeated.
pub fn parse(words: &[String], find: &mut Finder<'_>) -> Result<Layout, Fault> {
    let mut layout = Layout::default();
    let (mut purpose, mut seen_logs, mut logs) = (For::Data, false, 0);
    let (mut seen_spares, mut seen_cache) = (false, false);
    let mut rest = words;
    while let [first, after @ ..] = rest {
        let word = Word::of(first);
        if let Word::For(what) = word {
            if what == For::Log && std::mem::replace(&mut seen_logs, true) {
                return invalid("'log' can be specified only once");
            }
            purpose = what;
            rest = after;
            continue;
        }
        let whose = if purpose == For::Data { DeviceRole::Data } else { DeviceRole::Other };
        let Some((kind, least)) = word.group() else {
            let mut leaf = find(first, whose)?;
            dedicate(&mut leaf, purpose);
            logs += usize::from(purpose == For::Log);
            layout.tops.push(leaf);
            rest = after;
            continue;
        };
        match word {
            Word::Spare if std::mem::replace(&mut seen_spares, true) => {
                return invalid("'spare' can be specified only once");
            }
            Word::Cache if std::mem::replace(&mut seen_cache, true) => {
                return invalid("'cache' can be specified only once");
            }
            Word::Spare => purpose = For::Spare,
            Word::Cache => purpose = For::Data,
            _ => {}
        }
        if matches!(purpose, For::Log | For::Special | For::Dedup) {
            if word != Word::Mirror {
                let what = if purpose == For::Log { "log" } else { "special" };
                return invalid(&format!("unsupported '{what}' device: {kind}"));
            }
            logs += 1;
        }
        let end = after.iter().position(|w| Word::of(w) != Word::Device).unwrap_or(after.len());
        let whose = if purpose == For::Data { DeviceRole::Data } else { DeviceRole::Other };
        let children: Vec<Vdev> = after[..end].iter().map(|w| find(w, whose)).collect::<Result<_, _>>()?;
        if children.len() < least {
            return invalid(&format!("{first} requires at least {least} devices"));
        }
        if matches!(word, Word::Raidz(_) | Word::Draid(_)) && children.len() > MAX_CHILDREN {
            return invalid(&format!("{first} supports no more than {MAX_CHILDREN} devices"));
        }
        rest = &after[end..];
        match word {
            Word::Spare => layout.spares = children,
            Word::Cache => layout.cache = children,
            _ => layout.tops.push(top(word, kind, first, children, purpose)?),
        }
    }
    if layout.tops.is_empty() && layout.spares.is_empty() && layout.cache.is_empty() {
        return invalid("at least one toplevel vdev must be specified");
    }
    if seen_logs && logs == 0 {
        return invalid("log requires at least 1 device");
    }
    Ok(layout)
}

/// A top-level vdev with these children.
fn top(word: Word, kind: &str, text: &str, children: Vec<Vdev>, purpose: For) -> Result<Vdev, Fault> {
    let mut vdev = Vdev { kind: kind.to_owned(), ..Vdev::default() };
    match word {
        Word::Raidz(parity) => vdev.nparity = parity,
        Word::Draid(parity) => {
            let (data, spares) = draid(text, parity, children.len() as u64)?;
            (vdev.nparity, vdev.draid_ndata, vdev.draid_nspares) = (parity, data, spares);
        }
        _ => {}
    }
    vdev.children = children;
    dedicate(&mut vdev, purpose);
    Ok(vdev)
}

fn dedicate(vdev: &mut Vdev, purpose: For) {
    match purpose {
        For::Log => vdev.is_log = true,
        For::Special => vdev.alloc_bias = Some("special".into()),
        For::Dedup => vdev.alloc_bias = Some("dedup".into()),
        For::Data | For::Spare => {}
    }
}

/// Parses `draid2:4d:11c:1s`: returns the data devices of a group, and the distributed spares.
fn draid(text: &str, parity: u64, children: u64) -> Result<(u64, u64), Fault> {
    let (mut data, mut spares) = (None, 0);
    for part in text.split(':').skip(1) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let suffix = part[digits..].chars().next().map(|c| c.to_ascii_lowercase());
        let value = part[..digits].parse::<u64>().ok();
        match (value, suffix) {
            (Some(n), Some('c')) if n != children => {
                return fault(format!(
                    "invalid number of dRAID children; {n} required but {children} provided"
                ));
            }
            (Some(_), Some('c')) => {}
            (Some(n), Some('d')) => data = Some(n),
            (Some(n), Some('s')) => spares = n,
            _ => {
                return fault(format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{text}'"));
            }
        }
    }
    let room = children.saturating_sub(spares).saturating_sub(parity);
    let data = match data {
        None if room == 0 => {
            return fault(format!(
                "request number of distributed spares {spares} and parity level {parity}\nleaves no disks available for data"
            ));
        }
        None => room.min(DRAID_DATA),
        Some(n) => n,
    };
    if data == 0 || data > room {
        return fault(format!(
            "requested number of dRAID data disks per group {data} is too high,\nat most {room} disks are available for data"
        ));
    }
    if spares > MAX_DRAID_SPARES {
        return fault(format!("invalid number of dRAID spares {spares}; additional disks would be required"));
    }
    Ok((data, spares))
}

/// Finds a device of this machine: a path, or a name in the folders of devices (`make_leaf_vdev`).
///
/// A distributed spare is no device of the machine; the pool finds it by its name.
///
/// # Errors
/// * [`Fault`]: the path does not exist, or is neither a block device nor a regular file.
/// * [`Fault`]: the word is a distributed spare, but `whose` is [`DeviceRole::Other`].
pub fn find_device(word: &str, whose: DeviceRole) -> Result<Vdev, Fault> {
    if is_draid_spare(word) {
        if whose == DeviceRole::Other {
            return fault(format!(
                "cannot open '{word}': dRAID spares can only be used to replace primary vdevs"
            ));
        }
        return Ok(Vdev { kind: "dspare".into(), path: Some(word.to_owned()), ..Vdev::default() });
    }
    let path = if word.starts_with('/') {
        if std::fs::canonicalize(word).is_err() {
            return fault(format!("cannot resolve path '{word}'"));
        }
        Path::new(word).to_owned()
    } else {
        let places =
            ["/dev/disk/by-vdev", "/dev/mapper", "/dev/disk/by-partlabel", "/dev/disk/by-id", "/dev"];
        match places.iter().map(|dir| Path::new(dir).join(word)).find(|path| path.exists()) {
            Some(path) => path,
            None => {
                return fault(format!(
                    "cannot open '{word}': no such device in /dev\nmust be a full path or shorthand device name"
                ));
            }
        }
    };
    let shown = path.display().to_string();
    let kind = match std::fs::metadata(&path) {
        Err(e) => return fault(format!("cannot open '{shown}': {}", console::words::io(&e))),
        Ok(meta) if meta.file_type().is_block_device() => "disk",
        Ok(meta) if meta.is_file() => "file",
        Ok(_) => return fault(format!("cannot use '{shown}': must be a block device or regular file")),
    };
    Ok(Vdev { kind: kind.into(), path: Some(shown), ..Vdev::default() })
}

/// Whether a name is that of a distributed spare: `draid2-0-3` (`zpool_is_draid_spare`).
pub fn is_draid_spare(word: &str) -> bool {
    let Some(numbers) = word.strip_prefix("draid") else { return false };
    let parts: Vec<&str> = numbers.split('-').collect();
    parts.len() == 3 && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses the words of a command line.
///
/// # Errors
/// * [`Stop::Fail`]: the words have a [`Fault`], which is reported.
pub fn read(cx: &mut Cx, words: &[String]) -> Result<Layout, Stop> {
    parse(words, &mut find_device).map_err(|Fault(message)| {
        writeln!(cx.err, "{message}");
        Stop::Fail(1)
    })
}
