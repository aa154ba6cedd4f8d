//! Blocks of pools that OpenZFS wrote, written again by this crate onto blank devices. Every byte
//! must be the same, at the same place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{LAYOUTS, open, read, walk};
use device::{Device, Event, MemDevice, Recording};
use ondisk::{Guid, Psize};
use vdev::{Priority, Request, Tree, VdevAux};

/// Goal: data, parity and the zeros of whole stripes go where OpenZFS put them, for every block of
/// every layout. Only padding is left out.
#[test]
fn blocks_lie_as_openzfs_wrote_them() {
    for (name, nparity) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        let real = open(fixture.images());
        let blank: BTreeMap<Guid, Arc<Recording>> = (real.devices.iter())
            .map(|(guid, d)| (*guid, Arc::new(Recording::new(Arc::new(MemDevice::new("blank", d.size()))))))
            .collect();
        let ours = Tree::open(&real.root, &mut |leaf| {
            blank.get(&leaf.guid).map(|d| d.clone() as Arc<dyn Device>).ok_or(VdevAux::OpenFailed)
        });
        let ours = ours.unwrap();
        let (sector, children) = {
            let top = &ours.describe().children[0];
            (1 << top.ashift, top.children.len() as u64)
        };
        for (bp, stored) in walk(&real) {
            for (i, dva) in stored.copies().enumerate() {
                let (bytes, _) = read(&real, &stored, i).unwrap();
                let written = ours
                    .write(
                        dva.vdev,
                        dva.offset.0,
                        &bytes,
                        stored.phys_birth,
                        &Request::new(Priority::SyncWrite),
                    )
                    .unwrap();
                assert_eq!(written.missed, 0);
                let mut total = 0;
                for (guid, device) in &blank {
                    for event in device.take() {
                        let Event::Write { offset, bytes } = event else { panic!("{name}: {event:?}") };
                        let mut want = vec![0; bytes.len()];
                        real.devices[guid].read_at(&mut want, offset).unwrap();
                        assert!(want == bytes[..], "{name}: {bp:x?} differs on {guid} at {offset:#x}");
                        total += bytes.len() as u64;
                    }
                }
                match name {
                    "mirror2" => assert_eq!(total, children * dva.asize.0),
                    "draid1" => assert_eq!(total, dva.asize.0),
                    _ => assert!((dva.asize.0 - total) / sector <= nparity as u64, "{name}: {bp:x?}"),
                }
                let (size, request) = (Psize(bytes.len() as u64), Request::new(Priority::SyncRead));
                let back = ours.attempts(dva.vdev, dva.offset.0, size, stored.phys_birth, &request);
                assert!(back.unwrap().next().unwrap()[..] == bytes[..]);
            }
        }
    }
}
