//! Volume dumps of AFS that are restored over the contents of a volume.
//!
//! # Theory
//! A dump is hostile input. Whatever it says, it is restored or refused. A volume that a refused
//! dump has left takes the next full dump, and that of a restored one can be restored again.
//!
//! A pool takes many dumps, one after another. So a finding may need those before it.

use std::sync::Arc;

use afs::dump::Reader;
use afs::volume::{DumpScope, dump, new_volume, restore};
use dsl::ops::create::Create;
use parking_lot::Mutex;
use spa::create::VdevShape;
use spa::{OpenHead, Spa};
use zpl::{FileSystem, Policies, Policy};

use crate::crash::{Tape, begin};

/// Dumps that one pool takes.
const EACH: u64 = 256;
/// The file system of the volume.
const HEAD: &str = "tank/536870915";

/// A volume, its pool, and how many dumps it has taken.
static VOLUME: Mutex<Option<(FileSystem, Arc<Spa>, u64)>> = Mutex::new(None);

/// Restores a full dump of OpenAFS, and over it a dump.
///
/// # Panics
/// Those of [`restored`].
pub fn increment(data: &[u8]) {
    // Many are refused.
    let _ = restored(data);
}

/// Restores a full dump of OpenAFS, and over it a dump.
///
/// # Errors
/// Why it is refused.
///
/// # Panics
/// The pool stops, or the volume can't be dumped or restored.
pub fn restored(data: &[u8]) -> Result<(), String> {
    let mut kept = VOLUME.lock();
    let (fs, spa, taken) = kept.take().filter(|(.., taken)| *taken < EACH).unwrap_or_else(|| {
        let (fs, spa) = volume();
        (fs, spa, 0)
    });
    let take = |dump: &[u8]| {
        let mut reader = Reader::new(dump);
        restore(&fs, &mut reader, 0, |restored| restored.volume.clone()).map_err(|error| crate::chain(&error))
    };
    let full = fuzzing::afs::dumps().swap_remove(0);
    take(&full).unwrap_or_else(|error| panic!("a full dump over what is left: {error}"));
    let done = take(data);
    if let Ok(restored) = &done {
        let again = dump(&fs, &restored.volume, DumpScope::FULL, Vec::new());
        let again = again.unwrap_or_else(|error| panic!("its dump: {}", crate::chain(&error)));
        take(&again).unwrap_or_else(|error| panic!("its own dump: {error}"));
    }
    fs.sync().expect("the pool goes on");
    *kept = Some((fs, spa, taken + 1));
    done.map(drop)
}

fn volume() -> (FileSystem, Arc<Spa>) {
    const FINE: &str = "nothing stands in the way of it";
    let spa = Arc::new(begin(&Tape::default(), VdevShape::Single, 1, 0, 3));
    let contents = Arc::new(new_volume((1_700_000_000, 0), Vec::new()));
    let name = HEAD.to_owned();
    let create = Create { name, contents, props: Vec::new(), crypt: None, enforce_limits: false };
    let live = spa.writer().expect(FINE);
    live.run(Box::new(create)).expect(FINE);
    let head = Arc::new(OpenHead::open(&spa, &live.dsl().dataset(HEAD).expect(FINE)).expect(FINE));
    let os = head.objset().clone();
    let fs = FileSystem::open_live(&os, head, Policies::new(Policy::default())).expect(FINE);
    (fs, spa)
}
