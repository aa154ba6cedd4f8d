//! `zdb -l`: the labels and uberblocks of one device.
//!
//! # Theory
//! The four labels are copies. Equal contents appear once, with the numbers of the labels that hold
//! them.
//!
//! This command is for damaged devices, so it trusts nothing. It shows a label with a wrong
//! checksum as far as that decodes. An uberblock needs only its magic number.

use super::ctx::{Ctx, Run};
use super::uberblock;
use console::words;
use device::{Device, DeviceError, FileDevice, Mode, Region};
use ondisk::label::{
    LABEL_SIZE, LABELS, MMP_BLOCKS_PER_LABEL, PHYS_OFFSET, PHYS_SIZE, RING_OFFSET, label_offset,
    uberblock_count, uberblock_offset, uberblock_shift,
};
use ondisk::nvlist::Value;
use ondisk::uberblock::{MMP_MAGIC, UBERBLOCK_MAGIC, UBERBLOCK_SIZE};
use ondisk::{Ashift, Nvlist, Uberblock, bytes};
use std::path::Path;
use std::sync::Arc;

use crate::text;

/// log2 of the sector size if no label names one (`SPA_MINBLOCKSHIFT`).
const SPA_MINBLOCKSHIFT: u64 = 9;

/// The contents of one label (`zdb_label_t`).
struct Label {
    raw: Vec<u8>,
    config: Option<Nvlist>,
    cksum_valid: bool,
    ashift: Ashift,
    header_printed: bool,
}

impl Label {
    /// The bytes that hold the configuration.
    fn config_bytes(&self) -> Option<&[u8]> {
        let len = self.config.as_ref()?.encode_xdr().len();
        self.raw.get(PHYS_OFFSET as usize..)?.get(..len)
    }

    /// The bytes of the uberblock in a slot, if its magic number is right.
    fn uberblock(&self, slot: usize) -> Option<&[u8]> {
        let shift = uberblock_shift(self.ashift);
        if slot >= uberblock_count(shift) {
            return None;
        }
        let raw = self.raw.get(uberblock_offset(shift, slot) as usize..)?.get(..UBERBLOCK_SIZE)?;
        let magic = bytes::le64(raw, 0);
        (magic == UBERBLOCK_MAGIC || magic.swap_bytes() == UBERBLOCK_MAGIC).then_some(raw)
    }
}

/// Shows the labels of the device at `path` (`dump_label`).
///
/// Returns the exit code:
///
/// * 0: all four labels are readable.
/// * 1: some label is damaged, or the device can't be opened.
/// * 2: no label is readable.
pub fn run(cx: &mut Ctx<'_>, path: &str) -> Run<i32> {
    let path = match resolve(path) {
        Some(p) => p,
        None => {
            writeln!(cx.out, "failed to find device {path}, try specifying absolute path instead");
            return Ok(1);
        }
    };
    let device = match FileDevice::open(Path::new(&path), Mode::Peek) {
        Ok(d) => d,
        Err(e) => {
            writeln!(cx.out, "cannot open '{path}': {}", reason(&e));
            return Ok(1);
        }
    };
    let device = inside(device);
    let quiet = cx.opts.has('q');
    let mut damaged = false;
    let mut labels: Vec<Option<Label>> = Vec::new();
    for l in 0..LABELS {
        let label = read(&*device, l);
        if label.is_none() && !quiet {
            writeln!(cx.out, "failed to read label {l}");
        }
        damaged |= label.as_ref().is_none_or(|x| x.config.is_none());
        labels.push(label);
    }
    let ashift = labels.iter().flatten().rev().map(|l| l.ashift).next().unwrap_or(Ashift(9));
    for l in 0..LABELS {
        if labels[l].is_none() {
            continue;
        }
        config(cx, &mut labels, l);
        if cx.opts.has('u') {
            uberblocks(cx, &mut labels, l, ashift);
        }
    }
    let found = labels.iter().flatten().any(|l| l.config.is_some());
    Ok(if found { i32::from(damaged) } else { 2 })
}

/// The path as given, or in the folders of devices.
fn resolve(path: &str) -> Option<String> {
    if path.starts_with('/') || Path::new(path).exists() {
        return Some(path.to_owned());
    }
    let folders = spa::discovery::DEFAULT_SEARCH_PATHS;
    let found = folders.iter().map(|f| format!("{f}/{path}")).find(|p| Path::new(p).exists())?;
    // If ZFS partitioned a whole disk, its first partition holds the pool. After a digit, a
    // partition's number needs a letter: `loop11` is no partition of `loop1`.
    let ends: &[&str] = if found.ends_with(|c: char| c.is_ascii_digit()) {
        &["-part1", "p1"]
    } else {
        &["-part1", "p1", "1"]
    };
    let first = ends.iter().map(|end| format!("{found}{end}"));
    let mut first = first;
    Some(first.find(|p| Path::new(p).exists()).unwrap_or(found))
}

/// The device, or its first partition with labels if the device itself has none.
fn inside(device: FileDevice) -> Arc<dyn Device> {
    let whole: Arc<dyn Device> = Arc::new(device);
    let labelled = |d: &dyn Device| spa::Labels::read(d).valid() > 0;
    if labelled(&*whole) {
        return whole;
    }
    for p in spa::discovery::location::partitions(&*whole) {
        if let Ok(part) = Region::new(whole.clone(), p.offset, p.size, &format!("partition {}", p.number))
            && labelled(&part)
        {
            return Arc::new(part);
        }
    }
    whole
}

/// The text of a system error, as C's `strerror` has it.
fn reason(e: &DeviceError) -> String {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(e) = source {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            return words::io(io);
        }
        source = e.source();
    }
    e.to_string()
}

fn read(device: &dyn Device, l: usize) -> Option<Label> {
    let offset = label_offset(device.size(), l)?;
    let mut raw = vec![0; LABEL_SIZE as usize];
    device.read_at(&mut raw, offset).ok()?;
    let phys = &raw[PHYS_OFFSET as usize..(PHYS_OFFSET + PHYS_SIZE) as usize];
    let (config, cksum_valid) = match vdev::label::Labels::new(device).config_unverified(l) {
        Ok((config, good)) => (Some(config), good),
        Err(_) => (ondisk::label::decode_phys(phys).ok(), false),
    };
    // A cleared label decodes as an empty list, which is no label.
    let config = config.filter(|config| !config.is_empty());
    let tree = config.as_ref().and_then(|c| c.list("vdev_tree"));
    let ashift = tree.and_then(|t| t.u64("ashift")).filter(|a| *a < 32).unwrap_or(SPA_MINBLOCKSHIFT);
    Some(Label { raw, config, cksum_valid, ashift: Ashift(ashift as u8), header_printed: false })
}

fn header(cx: &mut Ctx<'_>, label: &mut Label, l: usize) {
    if cx.opts.has('q') || label.header_printed {
        return;
    }
    let rule = "-".repeat(36);
    let bad = if label.cksum_valid { "" } else { "(Bad label cksum)" };
    writeln!(cx.out, "{rule}\nLABEL {l} {bad}\n{rule}");
    label.header_printed = true;
}

/// The numbers of the labels that hold the same bytes as label `l`.
fn alike<'a>(
    labels: &'a [Option<Label>],
    l: usize,
    part: impl Fn(&'a Label) -> Option<&'a [u8]>,
) -> Vec<usize> {
    let of = |i: usize| labels[i].as_ref().and_then(&part);
    let own = of(l);
    (0..labels.len()).filter(|i| own.is_some() && of(*i) == own).collect()
}

fn numbers(cx: &mut Ctx<'_>, prefix: &str, same: &[usize]) {
    cx.out.put(prefix);
    for n in same {
        write!(cx.out, "{n} ");
    }
    cx.out.put("\n");
}

fn config(cx: &mut Ctx<'_>, labels: &mut [Option<Label>], l: usize) {
    let same = alike(labels, l, Label::config_bytes);
    let Some(label) = &mut labels[l] else { return };
    let Some(config) = label.config.clone() else {
        if !cx.opts.has('q') {
            writeln!(cx.out, "failed to unpack label {l}");
        }
        return;
    };
    if cx.opts.has('q') || (cx.opts.count('l') < 3 && same.first() != Some(&l)) {
        return;
    }
    header(cx, label, l);
    text::nvlist(cx.out, &config, 4);
    numbers(cx, "    labels = ", &same);
    if cx.opts.count('l') >= 2 {
        stats(cx, &config);
    }
}

/// Statistics of the lists in a label (`zdb_nvl_stats_t`).
#[derive(Default)]
struct Stats {
    lists: usize,
    leaves: Vec<usize>,
    /// Number and bytes of integers, strings and booleans.
    kinds: [(usize, usize); 3],
}

impl Stats {
    fn add(&mut self, list: &Nvlist) {
        self.lists += 1;
        for (name, value) in list.iter() {
            let kind = match value {
                Value::Uint64(_) => 0,
                Value::String(_) => 1,
                Value::Boolean => 2,
                Value::List(inner) => {
                    self.add(inner);
                    continue;
                }
                Value::ListArray(all) => {
                    for inner in all {
                        self.add(inner);
                        if name == b"children" {
                            self.leaves.push(inner.encode_xdr().len());
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            let mut alone = Nvlist::new();
            alone.set(name, value.clone());
            self.kinds[kind].0 += 1;
            self.kinds[kind].1 += alone.encode_xdr().len() - Nvlist::new().encode_xdr().len();
        }
    }
}

/// Shows how much of a label the configuration takes, and what for (`dump_nvlist_stats`).
fn stats(cx: &mut Ctx<'_>, config: &Nvlist) {
    /// Space for the configuration in a label, without the checksum after it.
    const CAPACITY: usize = PHYS_SIZE as usize - ondisk::label::ECK_SIZE;
    let total = config.encode_xdr().len();
    let mut stats = Stats::default();
    stats.add(config);
    let part = |bytes: usize| 100.0 * bytes as f64 / total as f64;
    writeln!(cx.out, "\n\nZFS Label NVList Config Stats:");
    let free = CAPACITY.saturating_sub(total);
    let used = 100.0 * total as f64 / CAPACITY as f64;
    writeln!(cx.out, "  {total} bytes used, {free} bytes free (using {used:4.1}%)\n");
    for (what, (count, bytes)) in ["integers:", "strings:", "booleans:"].into_iter().zip(stats.kinds) {
        writeln!(cx.out, "{what:>12} {count:4} {bytes:6} bytes ({:5.2}%)", part(bytes));
    }
    let rest = total.saturating_sub(stats.kinds.iter().map(|(_, bytes)| bytes).sum());
    writeln!(cx.out, "{:>12} {:4} {rest:6} bytes ({:5.2}%)\n", "nvlists:", stats.lists, part(rest));
    if let Some(largest) = stats.leaves.iter().max() {
        let average = stats.leaves.iter().sum::<usize>() / stats.leaves.len();
        writeln!(cx.out, "{:>12} {:4} {average:6} bytes average", "leaf vdevs:", stats.leaves.len());
        writeln!(cx.out, "{largest:24} bytes largest");
        if cx.opts.count('l') >= 3 && average > 0 {
            writeln!(cx.out, "  space for {} additional leaf vdevs", free / average);
        }
    }
    cx.out.put("\n");
}

fn uberblocks(cx: &mut Ctx<'_>, labels: &mut [Option<Label>], l: usize, ashift: Ashift) {
    let level = cx.opts.count('u');
    let count = uberblock_count(uberblock_shift(ashift));
    for slot in 0..count {
        let same = alike(labels, l, |x| x.uberblock(slot));
        let Some(label) = &mut labels[l] else { return };
        let found = label.uberblock(slot).map(Uberblock::decode);
        let Some(Ok(ub)) = found else {
            if level >= 2 {
                header(cx, label, l);
                writeln!(cx.out, "    Uberblock[{slot}] invalid");
            }
            continue;
        };
        if level < 3 && same.first() != Some(&l) {
            continue;
        }
        let heartbeat = ub.mmp.is_some_and(|m| m.delay_ns != 0);
        if level < 4 && heartbeat && slot >= count - MMP_BLOCKS_PER_LABEL {
            continue;
        }
        let mmp_magic = if ub.mmp.is_some() { MMP_MAGIC } else { raw_mmp_magic(label, slot) };
        header(cx, label, l);
        uberblock::dump(cx, &ub, mmp_magic, &format!("    Uberblock[{slot}]\n"), "");
        numbers(cx, "        labels = ", &same);
    }
}

/// The word at the place of the magic number of a multihost write.
fn raw_mmp_magic(label: &Label, slot: usize) -> u64 {
    label.uberblock(slot).map_or(0, |raw| bytes::le64(raw, 176))
}

const _: () = assert!(RING_OFFSET < LABEL_SIZE);
