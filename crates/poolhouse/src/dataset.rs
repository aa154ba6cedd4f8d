//! A dataset of an open pool.

use crate::{Error, File, Pool, ReadDir, Result};
use dmu::Objset;
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

    /// Its pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its full name.
    pub fn name(&self) -> String {
        self.ds.name()
    }

    /// Its place among the datasets: properties, snapshots, holds, bookmarks.
    pub fn dsl(&self) -> &dsl::Dataset {
        &self.ds
    }

    /// Its snapshots, oldest first.
    ///
    /// # Errors
    /// As reading fails.
    pub fn snapshots(&self) -> Result<Vec<Dataset>> {
        let of = |ds| Dataset::new(self.pool.clone(), ds);
        Ok(self.ds.snapshots()?.into_iter().map(of).collect())
    }

    /// Its objects.
    ///
    /// # Errors
    /// [`Error::Empty`] if it has none.
    pub fn objset(&self) -> Result<Objset> {
        self.ds.objset()?.ok_or_else(|| Error::Empty { dataset: self.name() })
    }

    /// The file system that it holds.
    ///
    /// # Errors
    /// [`Error::File`] when it holds none or its key is not loaded.
    pub fn filesystem(&self) -> Result<FileSystem> {
        Ok(FileSystem::open(&self.objset()?)?)
    }

    /// The volume that it holds.
    ///
    /// # Errors
    /// [`Error::Volume`] when it holds none or its key is not loaded.
    pub fn volume(&self) -> Result<Volume> {
        Ok(Volume::open(&self.objset()?)?)
    }

    /// The volume that it holds, to be written. Nobody else can have it as long as a handle is alive.
    ///
    /// # Errors
    /// As [`Pool::open_volume`].
    pub fn volume_for_writing(&self) -> Result<Volume> {
        self.pool.open_volume(&self.ds)
    }

    /// Opens the file at `path`, symbolic links followed.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<File> {
        Ok(File::new(self.filesystem()?.resolve(path.as_ref())?))
    }

    /// Lists the folder at `path`.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<ReadDir> {
        self.open(path)?.read_dir()
    }
}
