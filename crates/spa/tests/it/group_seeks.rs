//! The cost of a transaction group on a rotating disk, as the number of seeks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, Event, Recording};
use parking_lot::Mutex;
use spa::create::{VdevShape, claim_file};
use testpools::{images, new_pool_on, noise, own, write_file};

/// Seeks before each flush.
fn seeks(events: &[Event]) -> Vec<u64> {
    let (mut at, mut groups) = (0, vec![0]);
    for event in events {
        match event {
            Event::Write { offset, bytes } => {
                *groups.last_mut().unwrap() += u64::from(*offset != at);
                at = offset + bytes.len() as u64;
            }
            Event::Flush => groups.push(0),
            Event::Trim { .. } => {}
        }
    }
    groups
}

/// Goal: for a new file of 1 MiB, each device seeks to each of the three copies of metadata and to
/// the four labels.
///
/// Without deferred metadata writes it took 60 seeks and those to the labels.
#[test]
fn a_group_goes_through_a_device_once() {
    let shapes = [(VdevShape::Single, 1, 4), (VdevShape::Mirror, 2, 4), (VdevShape::Raidz(1), 3, 4)];
    for (shape, count, most) in shapes {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = images(dir.path(), count, 1 << 30);
        let disks = Mutex::new(Vec::new());
        let claimer = |path: &Path| {
            let (inner, kind) = claim_file(path)?;
            let disk = Arc::new(Recording::new(inner));
            disks.lock().push(disk.clone());
            Ok((disk as Arc<dyn Device>, kind))
        };
        let spa = new_pool_on(shape, &paths, &claimer);
        let live = spa.writer().unwrap();
        for seed in 0..3 {
            write_file(live, &own(live, "tank"), &noise(seed, 1 << 20)).unwrap();
        }
        live.sync_all().unwrap();
        let disks: Vec<Arc<Recording>> = disks.into_inner();
        disks.iter().for_each(|disk| drop(disk.take()));
        write_file(live, &own(live, "tank"), &noise(9, 1 << 20)).unwrap();
        live.sync_all().unwrap();
        for disk in disks {
            let [blocks, labels, ..] = seeks(&disk.take())[..] else { panic!("{shape:?}: flushed twice") };
            println!("{shape:?}: {blocks} seeks for blocks, {labels} for labels");
            assert!(blocks <= most && labels <= 4, "{shape:?}: {blocks} and {labels}");
        }
    }
}
