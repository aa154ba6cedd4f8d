//! OpenZFS pools in user space: open a pool, its datasets, their files.
//!
//! A pool that OpenZFS wrote opens from its devices, wherever they are now. No file system is
//! mounted and no daemon runs. The library writes to a pool only if the caller opens it for writing
//! ([`OpenOptions::write`]). It verifies every byte that it returns.
//!
//! ```
//! use poolhouse::{OpenOptions, Pool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let copy = testkit::fixture_copy("mirror2");
//! # let images = copy.images();
//! let pool = Pool::open(images, &OpenOptions::default())?;
//! let file = pool.dataset("xmirror2@s1")?.open("/gone/a")?;
//! let mut start = [0; 16];
//! let n = file.read_at(&mut start, 0)?;
//! assert_eq!(n, 16);
//! # Ok(())
//! # }
//! ```
//!
//! An encrypted dataset needs its key first:
//!
//! ```
//! # use poolhouse::{OpenOptions, Pool};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let copy = testkit::fixture_copy("encrypted");
//! # let images = copy.images();
//! let pool = Pool::open(images, &OpenOptions::default())?;
//! pool.load_key("encrypted/pass", b"correct horse")?;
//! assert!(pool.dataset("encrypted/pass")?.read_dir("/")?.count() > 0);
//! # Ok(())
//! # }
//! ```
//!
//! This example creates a pool, fills it and changes it. `examples/create.rs` has more.
//!
//! ```
//! use poolhouse::Pool;
//! use std::io::Write;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("d0");
//! # std::fs::File::create(&image)?.set_len(128 << 20)?;
//! let pool = Pool::create("t", &[&[&image]])?;
//! let a = pool.create_filesystem("t/a")?;
//! a.create_dir("/notes")?;
//! let mut file = a.create_file("/notes/today.txt")?;
//! file.write_all(b"first")?;
//! file.sync()?;
//!
//! pool.snapshot("t/a@s")?;
//! file.write_at(b"later", 0)?;
//! let mut buf = [0; 5];
//! pool.dataset("t/a@s")?.open("/notes/today.txt")?.read_at(&mut buf, 0)?;
//! assert_eq!(&buf, b"first");
//!
//! let clone = pool.clone_snapshot("t/a@s", "t/b")?;
//! clone.open_for_writing("/notes/today.txt")?.write_at(b"other", 0)?;
//!
//! let volume = pool.create_volume("t/v", 16 << 20)?.volume_for_writing()?;
//! volume.write_at(b"boot", 0)?;
//! volume.flush()?;
//! pool.export()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Theory
//! This crate joins the engine's crates for programs that embed them:
//!
//! * [`Pool`] is a [`spa::Spa`] with its [`dsl::Dsl`].
//! * [`Dataset`] opens into a [`zpl::FileSystem`] or a [`zvol::Volume`].
//! * [`File`] is a [`zpl::Node`] that reads like a file.
//!
//! Everything else is reached through these.
//!
//! # Absent
//! Mounts, exports and the control API: those are front ends, in other crates.

mod change;
mod dataset;
mod error;
mod file;
mod files;
mod pool;
pub mod tunables;
mod writing;

pub use ::spa::import::Claim;
pub use dataset::Dataset;
pub use error::Error;
pub use file::{File, ReadDir};
pub use files::FileWriter;
pub use pool::{DatasetNames, OpenOptions, Pool, default_cache_bytes};
pub use writing::Replay;

pub use ::pool as mos;
pub use {arc, device, dmu, dsl, ondisk, spa, stream, vdev, zil, zio, zpl, zvol};

/// A result of this library.
pub type Result<T> = std::result::Result<T, Error>;
