//! Private copies of images, for tests that write.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use tempfile::TempDir;

/// Writable images of one fixture, in a directory of their own. Dropping this removes the
/// directory.
#[derive(Debug)]
pub struct FixtureCopy {
    dir: TempDir,
    images: Vec<PathBuf>,
}

impl FixtureCopy {
    pub(crate) fn of(images: &[PathBuf]) -> Self {
        let parent = crate::unpack::cache().join("copies");
        fs::create_dir_all(&parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        let dir = TempDir::new_in(&parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        let images = images
            .iter()
            .map(|from| {
                let to = dir.path().join(from.file_name().expect("an image has a file name"));
                copy_sparse(from, &to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
                to
            })
            .collect();
        FixtureCopy { dir, images }
    }

    /// The images, in the pool's order.
    pub fn images(&self) -> &[PathBuf] {
        &self.images
    }

    /// The directory that holds the images and nothing else.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Copies the files of a directory to a new directory.
///
/// If no process writes meanwhile, the copy is what a crash would leave.
///
/// # Panics
/// A file can't be read or written.
pub fn copy_of(dir: &Path) -> TempDir {
    let copy = TempDir::new().unwrap_or_else(|e| panic!("a folder: {e}"));
    let files = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for file in files {
        let from = file.unwrap_or_else(|e| panic!("{}: {e}", dir.display())).path();
        let to = copy.path().join(from.file_name().expect("a file has a name"));
        copy_sparse(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }
    copy
}

/// Copies a file. Holes stay holes.
pub(crate) fn copy_sparse(from: &Path, to: &Path) -> std::io::Result<()> {
    let (source, target) = (File::open(from)?, File::create(to)?);
    let len = source.metadata()?.len();
    target.set_len(len)?;
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < len {
        // ENXIO: only a hole is left up to the end.
        let Ok(start) = seek(&source, SeekFrom::Data(at)) else { break };
        let end = seek(&source, SeekFrom::Hole(start))?;
        at = start;
        while at < end {
            let want = buf.len().min((end - at) as usize);
            source.read_exact_at(&mut buf[..want], at)?;
            target.write_all_at(&buf[..want], at)?;
            at += want as u64;
        }
    }
    Ok(())
}
