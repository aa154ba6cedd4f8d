use std::sync::Arc;

use device::Device;
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, Psize, Txg, VdevId};

use super::*;
use crate::tests::{open, root, top};
use crate::{Priority, VdevKind};

fn extent(offset: u64) -> Extent {
    Extent { vdev: VdevId(0), offset, psize: Psize(4096), birth: Txg(9) }
}

/// Goal: batches come in order, each with its ranges, also batches of which no device has anything.
/// A batch that is not taken is not waited for.
#[test]
fn lots_come_in_order() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    let tree = Arc::new(tree);
    for device in &devices {
        let bytes: Vec<u8> = (0..1u32 << 20).map(|i| (i / 4096) as u8).collect();
        device.write_at(&bytes, LABEL_START_SIZE).unwrap();
    }
    std::thread::scope(|scope| {
        let mut ahead = BatchReader::new(scope, Request::new(Priority::Scrub));
        assert!(ahead.take().is_none());
        for n in 0..8 {
            ahead.begin(&tree, &[extent(n * 8192)], false);
        }
        ahead.begin(&tree, &[], false);
        ahead.begin(&tree, &[extent(1 << 19)], false);
        for n in 0..8 {
            let fetched = ahead.take().unwrap();
            for guid in [100, 101] {
                let mut buf = [0; 4096];
                assert!(fetched.get(Guid(guid), n * 8192, &mut buf));
                assert!(buf == [2 * n as u8; 4096]);
                assert!(!fetched.get(Guid(guid), (n + 1) * 8192, &mut buf));
            }
        }
        assert!(ahead.take().is_some_and(|nothing| nothing.runs.is_empty()));
        // One batch is left.
    });
}
