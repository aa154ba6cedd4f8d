//! Files that are open for writing.

use crate::{Dataset, Result};
use ondisk::ObjNum;
use std::io;
use std::sync::Arc;
use zpl::{FileSystem, FileType, Kind, NewFile, Policies, Policy};

/// Permissions of a new file, and of a new directory.
const MODES: (u32, u32) = (0o644, 0o755);

/// A file that is open for writing.
///
/// It sees its own changes at once. [`Dataset::open`] sees them when they are on disk.
///
/// As [`io::Write`] it writes from the beginning of the file, each write after the last.
#[derive(Debug)]
pub struct FileWriter {
    fs: Arc<FileSystem>,
    object: ObjNum,
    /// Where the next write of [`io::Write`] begins.
    at: u64,
}

impl FileWriter {
    /// Writes `data` at byte `offset` (`zfs_write`).
    ///
    /// # Errors
    /// * [`crate::Error::File`]: no free space, a quota, a size above the limit of a file, flags of
    ///   the file, or the pool stopped.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.fs.write(self.object, offset, data, false)?)
    }

    /// Fills `buf` from byte `offset` on.
    ///
    /// The returned count is shorter than `buf` only at the end of the file.
    ///
    /// # Errors
    /// * [`crate::Error::File`]: a block can't be read, or the file was removed.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.fs.read(self.object, offset, buf)?)
    }

    /// The size of the file in bytes.
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the file was removed, or its dnode can't be read.
    pub fn size(&self) -> Result<u64> {
        Ok(self.fs.attr(self.object)?.size)
    }

    /// Sets the size of the file in bytes (`zfs_freesp`).
    ///
    /// # Errors
    /// * [`crate::Error::File`]: see [`FileWriter::write_at`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        Ok(self.fs.truncate(self.object, size, false)?)
    }

    /// Waits until all earlier changes of the file are durable (`zfs_fsync`).
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the pool stopped before the changes were durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.fs.fsync(self.object)?)
    }
}

impl io::Write for FileWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_at(data, self.at).map_err(io::Error::other)?;
        self.at += data.len() as u64;
        Ok(data.len())
    }

    /// Does nothing, as this type has no buffer. [`FileWriter::sync`] makes writes durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Dataset {
    /// The file system, open for writing.
    ///
    /// It has all operations that this type does not wrap. All writers of a dataset share one
    /// handle. While one is alive, the dataset can't be destroyed.
    ///
    /// # Errors
    /// See [`Pool::open_for_writing`](crate::Pool::open_for_writing). Also
    /// [`crate::Error::Dataset`]: a property can't be read.
    pub fn writer(&self) -> Result<Arc<FileSystem>> {
        let mut open = self.pool().written().lock();
        let object = self.dsl().object().0;
        if let Some(fs) = open.get(&object).and_then(std::sync::Weak::upgrade) {
            return Ok(fs);
        }
        let policies = Policies::new(Policy::of(self.dsl())?);
        let fs = Arc::new(self.pool().open_for_writing(self.dsl(), policies)?);
        open.retain(|_, fs| fs.strong_count() > 0);
        open.insert(object, Arc::downgrade(&fs));
        Ok(fs)
    }

    /// Creates a file, or empties an existing one (`zfs_create`).
    ///
    /// It works like [`std::fs::File::create`]. A new file belongs to the user of this process.
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the directory is missing, the name belongs to another kind of
    ///   file, or the reasons of [`FileWriter::write_at`].
    /// * Others: see [`Dataset::writer`].
    pub fn create_file(&self, path: impl AsRef<[u8]>) -> Result<FileWriter> {
        let fs = self.writer()?;
        let object = match fs.resolve(path.as_ref()) {
            Ok(node) => {
                fs.truncate(node.object(), 0, false)?;
                node.object()
            }
            Err(zpl::Error::NoEntry { .. }) => create(&fs, path.as_ref(), Kind::Regular, MODES.0)?,
            Err(error) => return Err(error.into()),
        };
        Ok(FileWriter { fs, object, at: 0 })
    }

    /// Opens a file for writing.
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the file does not exist.
    /// * Others: see [`Dataset::writer`].
    pub fn open_for_writing(&self, path: impl AsRef<[u8]>) -> Result<FileWriter> {
        let fs = self.writer()?;
        let object = fs.resolve(path.as_ref())?.object();
        Ok(FileWriter { fs, object, at: 0 })
    }

    /// Creates a directory (`zfs_mkdir`).
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the parent directory is missing, the name exists, or the pool has
    ///   no free space.
    /// * Others: see [`Dataset::writer`].
    pub fn create_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        create(&*self.writer()?, path.as_ref(), Kind::Directory, MODES.1)?;
        Ok(())
    }

    /// Removes a file, or an empty directory (`zfs_remove`, `zfs_rmdir`).
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the file does not exist, or is a directory with entries.
    /// * Others: see [`Dataset::writer`].
    pub fn remove(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let fs = self.writer()?;
        let node = fs.resolve_link(path.as_ref())?;
        let (folder, name) = split(path.as_ref());
        let folder = fs.resolve(folder)?.object();
        if node.attr().kind == FileType::Directory {
            let gone = fs.rmdir(folder, name)?;
            fs.reap(gone)?;
        } else if let Some(gone) = fs.unlink(folder, name)? {
            fs.reap(gone)?;
        }
        Ok(())
    }
}

fn create(fs: &FileSystem, path: &[u8], kind: Kind, permissions: u32) -> Result<ObjNum> {
    let (folder, name) = split(path);
    let folder = fs.resolve(folder)?.object();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(fs.create(folder, name, &NewFile { uid, gid, ..NewFile::new(kind, permissions) })?.object)
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (b"/", path),
    }
}
