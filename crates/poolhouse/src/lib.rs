//! OpenZFS pools in user space: open a pool, its datasets, their files.
//!
//! A pool that OpenZFS wrote opens from its devices, wherever they are now; nothing is mounted, no daemon runs, and
//! nothing is written unless it is opened for that ([`OpenOptions::write`]). Every byte that comes back was verified.
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
//! Encrypted datasets want their key first:
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
//! # Theory
//! This room only ties the others together for programs that embed them: [`Pool`] is a [`spa::Spa`] with its [`dsl::Dsl`],
//! [`Dataset`] opens into a [`zpl::FileSystem`] or a [`zvol::Volume`], [`File`] is a [`zpl::Node`] that reads like a file. What is
//! not here is reached through them.
//!
//! # Absent
//! Mounts, exports and the control API: those are doors.

mod dataset;
mod error;
mod file;
mod pool;
mod writing;

pub use ::spa::import::Claim;
pub use dataset::Dataset;
pub use error::Error;
pub use file::{File, ReadDir};
pub use pool::{DatasetNames, OpenOptions, Pool, default_cache_bytes};
pub use writing::Replay;

pub use ::pool as books;
pub use {arc, device, dmu, dsl, ondisk, spa, vdev, zil, zio, zpl, zvol};

/// A result of this library.
pub type Result<T> = std::result::Result<T, Error>;
