use std::collections::BTreeMap;
use std::sync::Arc;

use device::{FileDevice, MemDevice, Mode, Region};
use ondisk::label::{LABEL_SIZE, PHYS_OFFSET, RING_OFFSET, label_offset};

use crate::discovery::label::*;

fn open(path: &std::path::Path) -> FileDevice {
    FileDevice::open(path, Mode::Peek).unwrap()
}

/// What `zdb -lu` prints of one uberblock, as far as it is compared.
fn zdb_fields(ub: &Uberblock) -> BTreeMap<String, String> {
    let rz = ub.raidz_reflow;
    let mut fields = vec![
        ("version", ub.version.to_string()),
        ("txg", ub.txg.to_string()),
        ("guid_sum", ub.guid_sum.to_string()),
        ("timestamp", ub.timestamp.to_string()),
        ("checkpoint_txg", ub.checkpoint_txg.to_string()),
        ("raidz_reflow", format!("state={} off={}", rz.scratch as u64, rz.offset)),
    ];
    if let Some(mmp) = ub.mmp {
        fields.push(("mmp_delay", mmp.delay_ns.to_string()));
        fields.push(("mmp_valid", mmp.valid_bits().to_string()));
    }
    fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

type Rings = BTreeMap<(usize, usize), BTreeMap<String, String>>;

/// The configs by label and the uberblocks by label and slot in a transcript of `zdb -lu`.
fn transcript(text: &str) -> (BTreeMap<usize, String>, Rings) {
    let labels = |line: &str| -> Vec<usize> {
        line.trim().trim_start_matches("labels = ").split_whitespace().map(|n| n.parse().unwrap()).collect()
    };
    let (mut configs, mut rings) = (BTreeMap::new(), Rings::new());
    let (mut config, mut slot, mut fields) = (String::new(), None, BTreeMap::new());
    for line in text.lines() {
        if line.starts_with("---") || line.starts_with("LABEL") || line.starts_with('(') {
            continue;
        } else if let Some(rest) = line.strip_prefix("    Uberblock[") {
            let n = rest.split(']').next().unwrap();
            slot = (!rest.ends_with("invalid")).then(|| n.parse::<usize>().unwrap());
        } else if line.starts_with("    labels = ") {
            labels(line).into_iter().for_each(|l| drop(configs.insert(l, config.clone())));
            config.clear();
        } else if let (Some(n), true) = (slot, line.starts_with("        labels = ")) {
            labels(line).into_iter().for_each(|l| drop(rings.insert((l, n), fields.clone())));
            (slot, fields) = (None, BTreeMap::new());
        } else if let Some(field) = line.strip_prefix('\t') {
            let by = if field.starts_with("raidz") { " " } else { " = " };
            let (k, v) = field.split_once(by).unwrap();
            let v = match k {
                "timestamp" => v.split(' ').next().unwrap().to_owned(),
                "mmp_valid" => u64::from_str_radix(v, 16).unwrap().to_string(),
                "magic" | "bp" | "mmp_magic" | "mmp_seq" | "mmp_write" | "mmp_fail" => continue,
                _ => v.to_owned(),
            };
            fields.insert(k.to_owned(), v);
        } else {
            config += line;
            config.push('\n');
        }
    }
    (configs, rings)
}

/// Goal: of every fixture's first device, each label's config and each uberblock is what zdb shows,
/// and no more.
#[test]
fn labels_are_as_zdb_shows_them() {
    let mut compared = 0;
    for fixture in testkit::names().iter().map(|n| testkit::load(n)) {
        let Some(text) = fixture.output("zdb-label-d0.txt") else { continue };
        let whole = Arc::new(open(&fixture.images()[0]));
        let device: Arc<dyn Device> = match crate::discovery::location::partitions(&*whole).first() {
            Some(p) => Arc::new(Region::new(whole, p.offset, p.size, "part").unwrap()),
            None => whole,
        };
        let (configs, rings) = transcript(&text);
        let labels = Labels::read(&*device);
        let ours: BTreeMap<_, _> = labels
            .copies
            .iter()
            .enumerate()
            .filter_map(|(l, c)| Some((l, format!("{:4}", c.as_ref().ok()?.nvlist))))
            .collect();
        assert_eq!(ours, configs, "{}", fixture.name());
        let tree = labels.newest().unwrap().vdev_tree.as_ref().unwrap();
        let found = read_uberblocks(&*device, tree.ashift.unwrap());
        let ours: Rings = found.iter().map(|u| ((u.label, u.slot), zdb_fields(&u.uberblock))).collect();
        assert_eq!(ours, rings, "{}", fixture.name());
        compared += rings.len();
    }
    assert!(compared > 0, "no fixture to compare with");
}

/// A device in memory with the labels of a real one.
fn real() -> MemDevice {
    let from = open(&testkit::fixture("single-lz4")[0]);
    let to = MemDevice::new("mem", from.size());
    for l in 0..LABELS {
        let mut buf = vec![0; LABEL_SIZE as usize];
        from.read_at(&mut buf, label_offset(from.size(), l).unwrap()).unwrap();
        to.write_at(&buf, label_offset(from.size(), l).unwrap()).unwrap();
    }
    to
}

/// Goal: a flipped bit anywhere in a label's config or uberblock makes that copy invalid and no
/// other.
#[test]
fn damage_is_noticed() {
    let device = real();
    assert_eq!(Labels::read(&device).valid(), 4);
    let before = read_uberblocks(&device, Ashift(9)).len();
    let first = read_uberblocks(&device, Ashift(9)).remove(0);
    for at in [PHYS_OFFSET + 100, RING_OFFSET + 1024 * first.slot as u64 + 50] {
        let mut b = [0];
        device.read_at(&mut b, at).unwrap();
        device.write_at(&[b[0] ^ 4], at).unwrap();
    }
    let labels = Labels::read(&device);
    assert!(matches!(labels.copies[0], Err(LabelError::Checksum { .. })));
    assert_eq!(labels.valid(), 3);
    assert_eq!(read_uberblocks(&device, Ashift(9)).len(), before - 1);
}

/// Goal: a label copied to another place on the device does not verify there.
#[test]
fn copied_labels_do_not_verify() {
    let device = real();
    let mut label = vec![0; LABEL_SIZE as usize];
    device.read_at(&mut label, 0).unwrap();
    device.write_at(&label, LABEL_SIZE).unwrap();
    let labels = Labels::read(&device);
    assert!(labels.copies[0].is_ok());
    assert!(matches!(labels.copies[1], Err(LabelError::Checksum { .. })));
    assert!(read_uberblocks(&device, Ashift(9)).iter().all(|u| u.label != 1));
}

/// Goal: devices too small for labels have none, without a panic.
#[test]
fn small_devices_have_no_labels() {
    let labels = Labels::read(&MemDevice::new("small", 1000));
    assert!(labels.copies.iter().all(|c| matches!(c, Err(LabelError::TooSmall { .. }))));
    assert!(read_uberblocks(&MemDevice::new("small", 0), Ashift(12)).is_empty());
}
