//! A dataset of an open pool.

use crate::{Error, File, Pool, ReadDir, Result};
use dmu::Objset;
use std::io::Write;
use zpl::FileSystem;
use zvol::Volume;

/// A file system, volume or snapshot.
#[derive(Debug, Clone)]
pub struct Dataset {
    pool: Pool,
    ds: dsl::Dataset,
}

impl Dataset {
    pub(crate) fn new(pool: Pool, ds: dsl::Dataset) -> Dataset {
        Dataset { pool, ds }
    }

    /// The pool of the dataset.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The full name of the dataset.
    pub fn name(&self) -> String {
        self.ds.name()
    }

    /// The dataset as DSL: properties, snapshots, holds, bookmarks.
    pub fn dsl(&self) -> &dsl::Dataset {
        &self.ds
    }

    /// The snapshots of the dataset, oldest first.
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the list of snapshots, or one of them, can't be read.
    pub fn snapshots(&self) -> Result<Vec<Dataset>> {
        let of = |ds| Dataset::new(self.pool.clone(), ds);
        Ok(self.ds.snapshots()?.into_iter().map(of).collect())
    }

    /// The objects of the dataset (`dmu_objset_from_ds`).
    ///
    /// # Errors
    /// * [`Error::Empty`]: the dataset has no contents.
    /// * [`Error::Dataset`]: the object set can't be read.
    pub fn objset(&self) -> Result<Objset> {
        self.ds.objset()?.ok_or_else(|| Error::Empty { dataset: self.name() })
    }

    /// The file system of the dataset, for reading.
    ///
    /// # Errors
    /// * [`Error::File`]: the dataset holds no file system, or its key is not loaded.
    /// * [`Error::Empty`], [`Error::Dataset`]: see [`Dataset::objset`].
    pub fn filesystem(&self) -> Result<FileSystem> {
        Ok(FileSystem::open(&self.objset()?)?)
    }

    /// The volume of the dataset, for reading.
    ///
    /// # Errors
    /// * [`Error::Volume`]: the dataset holds no volume, or its key is not loaded.
    /// * [`Error::Empty`], [`Error::Dataset`]: see [`Dataset::objset`].
    pub fn volume(&self) -> Result<Volume> {
        Ok(Volume::open(&self.objset()?)?)
    }

    /// The volume of the dataset, for writing. While a handle is alive, no other user can have it.
    ///
    /// # Errors
    /// See [`Pool::open_volume`].
    pub fn volume_for_writing(&self) -> Result<Volume> {
        self.pool.open_volume(&self.ds)
    }

    /// Writes a send stream of the dataset, which must not change meanwhile (`zfs send`).
    ///
    /// # Errors
    /// * [`Error::Send`]: the dataset can't be read, or the stream not written.
    pub fn send(&self, options: &stream::Options, sink: impl Write) -> Result<()> {
        Ok(stream::send(&self.ds, options, sink)?)
    }

    /// Opens the file at `path`, and follows symbolic links.
    ///
    /// # Errors
    /// * [`Error::File`]: the path has no file, or leads over a symbolic link that can't be
    ///   followed.
    /// * Others: see [`Dataset::filesystem`].
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<File> {
        Ok(File::new(self.filesystem()?.resolve(path.as_ref())?))
    }

    /// Lists the directory at `path`.
    ///
    /// # Errors
    /// * [`Error::File`]: the path leads to no directory.
    /// * Others: see [`Dataset::filesystem`].
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<ReadDir> {
        self.open(path)?.read_dir()
    }
}
