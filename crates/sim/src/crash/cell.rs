//! An AFS server of a pool, with a power failure at any moment.
//!
//! # Theory
//! Two clients change files of several volumes, and an administrator makes, copies and removes
//! volumes, by calls over the network to the real server. A model follows. After a crash the pool
//! is imported, a new server started, and judged by what its clients get:
//!
//! 1. The volumes and files are those after some call of the workload. It is not before the last
//!    one that is on disk, and not after the last one that had begun. With commits between
//!    (AFS_FSYNC), the names in each volume and each file for itself are after some call that is
//!    not before its commit.
//! 2. A fid never names another file than before, also after new files were made.
//! 3. What a client has seen in a version of a file is what it gets in that version, also after
//!    more stores. So a client never keeps data that the server lost.
//! 4. Directories, vnodes, counts of links and access lists agree. Each vnode has a name.
//! 5. A volume that was being made, restored, cloned or removed is whole or gone, and no dataset is
//!    left of it.
//! 6. Clients hear that all promises ended before they get a reply.
//!
//! Some crashes are followed by another one, while the new server starts.
//!
//! While the workload is recorded, a client that has a promise must always have what the model
//! says.
//!
//! # Absent
//! * A tape that depends on the seed alone: the server's threads write beside the workload.
//! * The counts of space and files in headers, of which a crash may lose the last seconds.
//! * A restore that takes a read-write volume back to an older state. Clients can't tell.

mod judge;
mod net;
mod record;
mod volumes;
mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use poolhouse::Pool;
use spa::create::VdevShape;

use self::net::Cell;
use self::record::{FINE, Recorded, Recorder};
use super::work::{SIZE, begin, next};
use super::{Outcome, Point, Tape};
use crate::chain;

/// One in so many crashes is followed by another one, while the next server starts.
const AGAIN: u64 = 3;

/// A recorded workload of an AFS server.
pub struct Served {
    tape: Tape,
    count: usize,
    begun: Point,
    recorded: Recorded,
}

/// Records a workload of an AFS server on a new pool of this shape.
///
/// # Panics
/// A call fails, or a client gets what the model does not say. There are no faults yet.
pub fn serve(shape: VdevShape, count: usize, steps: usize, seed: u64) -> Served {
    let tape = Tape::default();
    let pool = Pool::with_spa(begin(&tape, shape, count, 0, seed), None).expect(FINE);
    Cell::prepare(&pool).expect(FINE);
    pool.sync().expect(FINE);
    let begun = tape.end();
    let recorded = Recorder::new(pool, &tape, seed).run(steps);
    tape.cut(recorded.end);
    Served { tape, count, begun, recorded }
}

impl Served {
    /// The first and the last crash point.
    pub fn points(&self) -> (Point, Point) {
        (self.begun, self.recorded.end)
    }

    /// How often each kind of call was made.
    pub fn kinds(&self) -> BTreeMap<&str, usize> {
        let mut kinds = BTreeMap::new();
        for state in &self.recorded.states {
            let kind = state.what.split(' ').next().unwrap_or_default();
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }

    /// Crashes at `point`, and judges what a new server has. The images go to `dir`.
    ///
    /// [`Outcome::Step`] has the number of the state that the crash left, or the last possible one.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be written.
    pub fn crash(&self, point: Point, seed: u64, dir: &Path) -> std::io::Result<Outcome> {
        let dice = AtomicU64::new(seed);
        let mut what = String::new();
        self.tape.develop(point, SIZE, self.count, dir, &mut || next(&dice))?;
        if next(&dice).is_multiple_of(AGAIN) {
            let more = Tape::default();
            let end = match judge::recover(dir, &more) {
                Ok(end) => end,
                Err(error) => return Ok(Outcome::Wrong(chain(&*error))),
            };
            let then = next(&dice) as usize % (end + 1);
            what = format!("after a second crash at {then} of {end}: ");
            let again = AtomicU64::new(seed);
            self.tape.develop(point, SIZE, self.count, dir, &mut || next(&again))?;
            more.develop_on(then, self.count, dir, &mut || next(&dice))?;
        }
        let judged = judge::judge(&self.recorded, point, next(&dice), dir);
        Ok(judged.map_or_else(|error| Outcome::Wrong(what + &chain(&*error)), Outcome::Step))
    }
}
