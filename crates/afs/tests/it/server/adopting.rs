//! Volumes that are adopted while their partition goes away.

use std::io::{self, Read};

use afs::dump::{Event, Reader};
use afs::errors::errno;
use afs::partition::PartitionId;
use afs::server::Error;
use afs::server::adopt::Beside;
use afs::types::{Date, VolumeId};

use super::Rig;

const DUMP: &[u8] = include_bytes!("../../data/made.dump");

/// A dump, and what happens when only `left` bytes of it have not come.
struct Late<F> {
    dump: &'static [u8],
    left: usize,
    event: Option<F>,
}

impl<F: FnOnce()> Read for Late<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.dump.len() == self.left
            && let Some(event) = self.event.take()
        {
            event();
        }
        let until = if self.dump.len() > self.left { self.dump.len() - self.left } else { self.dump.len() };
        let most = buffer.len().min(until);
        self.dump.read(&mut buffer[..most])
    }
}

/// The volume of the dump.
fn volume() -> VolumeId {
    let mut reader = Reader::new(DUMP);
    match reader.next_event() {
        Ok(Event::Header(header)) => header.volume,
        event => panic!("{event:?}"),
    }
}

fn adopt(rig: &Rig, from: impl Read) -> Result<(), Error> {
    let core = rig.server().core();
    let partition = core.partition(PartitionId(0)).unwrap();
    core.adopt(&partition, Beside { id: volume(), backup: VolumeId(0), copy_date: Date(1) }, from)
}

/// Goal: nothing of an adoption goes online if its partition is forced out before the end,
/// whether bytes are still to come or not. The next start has no trace of it, and then the volume
/// can be adopted.
#[test]
fn a_partition_ends_during_an_adoption() {
    for left in [0, 1] {
        let mut rig = Rig::new();
        let image = rig.dir.path().join("d0");
        let dataset = format!("cell/vicepa/{}", volume());
        let event = || {
            // The adoption has the volume, so this can't close it.
            let forced = rig.server().force_out(PartitionId(0));
            assert!(matches!(forced, Err(Error::Busy { volume: id }) if id == volume()), "{forced:?}");
        };
        let adopted = adopt(&rig, Late { dump: DUMP, left, event: Some(event) });
        assert!(matches!(adopted, Err(Error::Ended { partition: PartitionId(0) })), "{adopted:?}");
        assert!(!rig.server().core().table.has(volume()));
        assert!(!rig.server().core().transactions.has(volume()));
        rig.stop();
        rig.open(image);
        rig.start();
        assert!(rig.pool.as_ref().unwrap().dataset(&dataset).is_err());
        assert_eq!(rig.operator().listed(volume()).unwrap_err(), errno::ENODEV);
        adopt(&rig, DUMP).unwrap();
        assert_eq!(rig.operator().listed(volume()).unwrap().id, volume());
    }
}
