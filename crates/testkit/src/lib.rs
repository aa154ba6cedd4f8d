//! The fixtures that the tests read: pools which the real OpenZFS wrote, and what it says is in them.
//!
//! # Theory
//! Every room is measured by bytes that it did not write itself. A *fixture* is one such pool: device images, a
//! manifest of each dataset as the OpenZFS kernel module shows it, and transcripts of its commands. A choice of
//! them in which each feature occurs is bundled in `fixtures/` at the root of the repository; `FIXTURES=DIR` in the
//! environment names a folder with the whole set. A test asks for a fixture by name; one that only the whole set
//! has is asked for with [`find`], and the test passes over it when it is not there.
//!
//! Images are unpacked once per source, into `target/fixtures/`, as sparse files, and are shared by every test of
//! every process: they are never written. A test that writes takes a private copy ([`Fixture::copy`]).
//!
//! # On disk
//! `NAME/pool.json` (the pool's name, its images in order), `images.tar.zst` (old GNU sparse tar), and
//! `manifests` and `outputs`, each either a folder or one `.tar.zst`. A damaged fixture has `damage.json` and
//! `damage.bin` instead, to be applied to the images of the pool that it is based on.
//!
//! # Locks
//! Unpacking holds an exclusive file lock beside the result, so that parallel test processes wait for one another
//! and do the work once; the result appears by a rename.
//!
//! # Absent
//! Any room: the harness that compares a pool with its manifests lives with the library crate's tests. Errors:
//! this crate serves tests only, so what can't be had panics with a sentence that says why.

mod copy;
mod damage;
mod fixture;
mod manifest;
mod program;
mod tar;
mod unpack;

pub use copy::{FixtureCopy, copy_of};
pub use fixture::{
    Fixture, ImageSpec, bundled_dir, find, fixture, fixture_copy, load, names, workspace_root,
};
pub use manifest::{Entry, EntryKind, Manifest, Segment, Zvol};
pub use program::copy_program;
