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

/// Goal: what a partition knows of a clone that was not sent ends with the clone, however it ends.
#[test]
fn clones_that_end_unsent() {
    let rig = Rig::new([ID.0].into_iter());
    let (partition, clone) = (&rig.partition, VolumeId(101));
    let unsent = || partition.unsent.lock().iter().copied().collect::<Vec<_>>();
    let make = |of: VolumeId| {
        partition.clone_volume(of, &stored(clone.0), None).unwrap();
        assert_eq!(unsent(), [clone]);
    };
    make(ID);
    // It is not made twice.
    assert!(partition.clone_volume(VolumeId(99), &stored(102), None).is_err());
    assert_eq!(unsent(), [clone]);
    partition.destroy_clone(Head::of(ID), clone).unwrap();
    assert_eq!(unsent(), []);
    // Its volume goes, and it takes that one's place.
    make(ID);
    let gone = partition.destroy(ID).unwrap().unwrap();
    let mut revived = stored(ID.0);
    revived.header.clone = clone;
    partition.revive(gone, clone, &revived).unwrap();
    assert_eq!(unsent(), []);
    // Its volume goes, and it becomes one of its own.
    make(ID);
    let gone = partition.destroy(ID).unwrap().unwrap();
    partition.detach(gone, clone).unwrap();
    assert_eq!(unsent(), []);
}
