//! The fixtures that the tests read: pools that OpenZFS wrote, and descriptions of their contents.
//!
//! # Theory
//! The tests of every crate need bytes that the crate did not write itself. A *fixture* is such a
//! pool. It has device images, a manifest of each dataset as the OpenZFS kernel module shows it,
//! and transcripts of OpenZFS commands.
//!
//! A selection, in which each feature occurs, is bundled in `fixtures/` at the root of the
//! repository. `FIXTURES=DIR` in the environment names a directory with the whole set. A test
//! requests a fixture by name. For one that only the whole set has it uses [`find`], and passes
//! without it if it is not available.
//!
//! Images are unpacked once per source into `target/fixtures/`, as sparse files. All tests of all
//! processes share them, so they are never written. A test that writes takes a private copy
//! ([`Fixture::copy`]).
//!
//! # On disk
//! * `NAME/pool.json`: the pool's name, and its images in order.
//! * `NAME/images.tar.zst`: the images, as an old GNU sparse tar.
//! * `NAME/manifests` and `NAME/outputs`: manifests and transcripts. Each is a directory or one
//!   `.tar.zst`.
//! * `NAME/damage.json` and `NAME/damage.bin`: only of a damaged fixture, in place of images. They
//!   have the changes to the images of its base.
//!
//! # Locks
//! Unpacking holds an exclusive file lock beside the result. So parallel test processes wait for
//! each other, and only one does the work. The result appears by a rename.
//!
//! # Absent
//! * The code that compares a pool with its manifests: it is among the tests of the library crate.
//! * Errors: this crate serves only tests, so each failure is a panic that says why.

mod collide;
mod copy;
mod damage;
mod fixture;
mod manifest;
mod program;
mod tar;
mod unpack;

pub use collide::{colliding, colliding_with};
pub use copy::{FixtureCopy, copy_of};
pub use fixture::{
    Fixture, ImageSpec, bundled_dir, find, fixture, fixture_copy, load, names, workspace_root,
};
pub use manifest::{Entry, EntryKind, Manifest, Segment, Zvol};
pub use program::copy_program;
pub use unpack::unpacked;
