//! Tests of the end of a receive.

use super::*;
use crate::server::store::kept::tests::{Rig, stored};

const ID: VolumeId = VolumeId(100);

/// A volume that has received contents, whose header is written, and whose operations were refused.
fn refused() -> Rig {
    let rig = Rig::new([ID.0].into_iter());
    let header = hexadecimal(&stored(ID.0).encode().unwrap());
    let props = vec![text(INCOMPLETE, RECEIVED), text(HEADER, header)];
    let name = rig.partition.name(ID);
    rig.partition.run(vec![Box::new(SetProps { name, props, source: SetAs::Local })]).unwrap();
    let ending = Received::Ending { ending: Arc::default(), is_complete: true };
    rig.partition.received.lock().insert(ID, ending);
    rig
}

/// Goal: operations that were refused are queued again by the next use, and each of several threads
/// returns after they have run: what it writes then can't be replaced by the header of before.
#[test]
fn refused_operations_run_later() {
    let rig = refused();
    let partition = &rig.partition;
    partition.note_settled();
    assert!(partition.is_marked_received(ID).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                partition.settle_received(ID).unwrap();
                assert!(!partition.is_marked_received(ID).unwrap());
            });
        }
    });
    assert!(partition.received.lock().is_empty());
    assert!(header_property(&rig.pool, &partition.name(ID), ID).is_err());
}

/// Goal: as long as the operations are refused, no use of the volume goes on.
#[test]
fn refused_operations_stop_each_use() {
    let rig = refused();
    let partition = &rig.partition;
    rig.pool.destroy(&partition.name(ID)).unwrap();
    for _ in 0..2 {
        assert!(partition.settle_received(ID).is_err());
        assert!(partition.begin_restore(ID).is_err());
        assert!(matches!(partition.received.lock().get(&ID), Some(Received::Ending { .. })));
    }
}
