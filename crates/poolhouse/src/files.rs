//! Files that are written.

use crate::policy::policy_of;
use crate::{Dataset, Result};
use ondisk::ObjNum;
use std::io;
use std::sync::Arc;
use zpl::{FileSystem, FileType, Kind, NewFile, Policies};

/// Permissions of a new file, and of a new folder.
const MODES: (u32, u32) = (0o644, 0o755);

/// A file that is written. It sees its own changes at once; [`Dataset::open`] sees them when they are
/// on disk.
///
/// As [`io::Write`] it writes one piece after the other, from the beginning.
#[derive(Debug)]
pub struct FileWriter {
    fs: Arc<FileSystem>,
    object: ObjNum,
    /// Where [`io::Write`] goes on.
    at: u64,
}

impl FileWriter {
    /// Writes at byte `offset`.
    ///
    /// # Errors
    /// [`crate::Error::File`]: no space, a quota, a size that no file may have, or the pool stopped.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.fs.write(self.object, offset, data, false)?)
    }

    /// Fills `buf` from byte `offset` on; the count is short only at the end of the file.
    ///
    /// # Errors
    /// [`crate::Error::File`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.fs.read(self.object, offset, buf)?)
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// [`crate::Error::File`].
    pub fn size(&self) -> Result<u64> {
        Ok(self.fs.attr(self.object)?.size)
    }

    /// Makes it so many bytes long.
    ///
    /// # Errors
    /// As [`FileWriter::write_at`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        Ok(self.fs.truncate(self.object, size, false)?)
    }

    /// Waits until what was written to it is durable (`fsync`).
    ///
    /// # Errors
    /// [`crate::Error::File`] if the pool stopped.
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

    /// Does nothing: nothing is held back here. [`FileWriter::sync`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Dataset {
    /// The file system, to be changed: everything that the methods of this type don't do. All that
    /// write a dataset share one handle; while one is alive the dataset can't be destroyed.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`] if the pool is; [`crate::Error::Dataset`] for a snapshot;
    /// [`crate::Error::File`] if it holds no file system.
    pub fn writer(&self) -> Result<Arc<FileSystem>> {
        let mut open = self.pool().written().lock();
        let object = self.dsl().object().0;
        if let Some(fs) = open.get(&object).and_then(std::sync::Weak::upgrade) {
            return Ok(fs);
        }
        let policies = Policies::new(policy_of(self.dsl())?);
        let fs = Arc::new(self.pool().open_for_writing(self.dsl(), policies)?);
        open.retain(|_, fs| fs.strong_count() > 0);
        open.insert(object, Arc::downgrade(&fs));
        Ok(fs)
    }

    /// Creates a file, or empties the one that is there ([`std::fs::File::create`]). It belongs to
    /// this user.
    ///
    /// # Errors
    /// As [`Dataset::writer`]; [`crate::Error::File`] if the folder is missing, or what is there is no
    /// file.
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

    /// Opens a file to be changed.
    ///
    /// # Errors
    /// As [`Dataset::writer`]; [`crate::Error::File`] if it is missing.
    pub fn open_for_writing(&self, path: impl AsRef<[u8]>) -> Result<FileWriter> {
        let fs = self.writer()?;
        let object = fs.resolve(path.as_ref())?.object();
        Ok(FileWriter { fs, object, at: 0 })
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// As [`Dataset::writer`]; [`crate::Error::File`] if the folder above is missing, or something has
    /// the name.
    pub fn create_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        create(&*self.writer()?, path.as_ref(), Kind::Directory, MODES.1)?;
        Ok(())
    }

    /// Removes a file, or an empty folder.
    ///
    /// # Errors
    /// As [`Dataset::writer`]; [`crate::Error::File`] if it is missing, or a folder that is not empty.
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

/// The folder of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (b"/", path),
    }
}
