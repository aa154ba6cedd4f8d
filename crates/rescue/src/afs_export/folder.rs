//! The folder that an export is written into.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use afs::types::VolumeId;
use tempfile::NamedTempFile;

use crate::target::Error;

/// The name of the index.
const INDEX: &str = "index.txt";

/// What a dump is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of the volume.
    Whole,
    /// What changed since a date, and the names of all else.
    Increment,
    /// All that could be read of a damaged volume.
    Damaged,
}

/// The endings of the names of a volume's files. At most one dump of a volume is in a folder.
const ENDINGS: [&str; 4] = ["dump", "increment.dump", "damaged.dump", LOST];
const LOST: &str = "lost.txt";

impl Kind {
    fn ending(self) -> &'static str {
        ENDINGS[self as usize]
    }
}

/// A file that is not complete. It is removed unless it is kept.
pub struct Part {
    id: VolumeId,
    file: NamedTempFile,
}

impl Part {
    /// The file.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// The system's.
    pub fn restart(&mut self) -> io::Result<()> {
        self.file().rewind()?;
        self.file().set_len(0)
    }
}

/// The list of what the dump of a volume lacks.
pub struct Losses {
    id: VolumeId,
    folder: PathBuf,
    part: Option<Part>,
}

impl Losses {
    /// Adds a line.
    ///
    /// # Errors
    /// [`Error::Destination`]: it can't be written.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        let write = |part: &mut Option<Part>| {
            let part = match part {
                Some(part) => part,
                none => none.insert(begin(&self.folder, self.id)?),
            };
            writeln!(part.file(), "{}{text}", self.id)
        };
        write(&mut self.part).map_err(|source| Error::Destination { path: self.folder.clone(), source })
    }
}

fn begin(folder: &Path, id: VolumeId) -> io::Result<Part> {
    let file = tempfile::Builder::new().prefix(&format!(".{id}.")).suffix(".part").tempfile_in(folder)?;
    Ok(Part { id, file })
}

/// The folder.
pub struct Folder {
    path: PathBuf,
    /// Whether files may be replaced.
    replaces: bool,
    written: HashSet<VolumeId>,
}

impl Folder {
    /// Opens the folder, or makes it. With `replaces`, its files may be replaced.
    ///
    /// # Errors
    /// [`Error::Destination`]: it can't be made, is no folder, or has an index that may not be
    /// replaced.
    pub fn open(path: &Path, replaces: bool) -> Result<Self, Error> {
        let folder = Self { path: path.to_owned(), replaces, written: HashSet::new() };
        match std::fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => {
                return Err(folder.failed(error));
            }
            _ => {}
        }
        folder.check_name(INDEX)?;
        Ok(folder)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error of this folder.
    pub fn failed(&self, source: io::Error) -> Error {
        Error::Destination { path: self.path.clone(), source }
    }

    fn check_name(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        if self.replaces || path.symlink_metadata().is_err() {
            return Ok(());
        }
        let why = "it exists: choose another folder, or replace the files by -f";
        Err(Error::Destination { path, source: io::Error::other(why) })
    }

    /// Refuses a volume that has files here.
    ///
    /// # Errors
    /// [`Error::Destination`]: there is such a file, and it may not be replaced.
    pub fn check(&self, id: VolumeId) -> Result<(), Error> {
        ENDINGS.iter().try_for_each(|ending| self.check_name(&format!("{id}.{ending}")))
    }

    /// Whether this export has written a dump of a volume of this number.
    pub fn has_written(&self, id: VolumeId) -> bool {
        self.written.contains(&id)
    }

    /// Begins the dump of a volume. Only this user may read it.
    ///
    /// # Errors
    /// [`Error::Destination`]: the folder can't be written.
    pub fn part(&self, id: VolumeId) -> Result<Part, Error> {
        begin(&self.path, id).map_err(|error| self.failed(error))
    }

    /// Begins the list of what the dump of a volume lacks.
    pub fn losses(&self, id: VolumeId) -> Losses {
        Losses { id, folder: self.path.clone(), part: None }
    }

    /// Gives a complete dump its name. Returns the name, and the length.
    ///
    /// With `-f`, files of the volume from another export go: they would contradict this one.
    ///
    /// # Errors
    /// [`Error::Destination`]: the folder can't be written, or the name exists.
    pub fn keep(&mut self, part: Part, kind: Kind) -> Result<(String, u64), Error> {
        let id = part.id;
        let name = format!("{id}.{}", kind.ending());
        let length = self.publish(part.file, &name)?;
        self.written.insert(id);
        let has_losses = kind == Kind::Damaged;
        let others = ENDINGS.iter().filter(|it| **it != kind.ending() && !(has_losses && **it == LOST));
        for ending in others.filter(|_| self.replaces) {
            match std::fs::remove_file(self.path.join(format!("{id}.{ending}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(error)),
                _ => {}
            }
        }
        Ok((name, length))
    }

    /// Gives the list of losses its name.
    ///
    /// # Errors
    /// [`Error::Destination`]: the folder can't be written, or the name exists.
    pub fn keep_losses(&self, losses: Losses) -> Result<(), Error> {
        match losses.part {
            Some(part) => self.publish(part.file, &format!("{}.{LOST}", losses.id)).map(drop),
            None => Ok(()),
        }
    }

    /// Writes the index, and has all names on disk.
    ///
    /// # Errors
    /// [`Error::Destination`]: the folder can't be written, or the name exists.
    pub fn keep_index(&self, text: &str) -> Result<(), Error> {
        let written = || {
            let mut file =
                tempfile::Builder::new().prefix(".index.").suffix(".part").tempfile_in(&self.path)?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        };
        self.publish(written().map_err(|error| self.failed(error))?, INDEX)?;
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(|error| self.failed(error))
    }

    fn publish(&self, file: NamedTempFile, name: &str) -> Result<u64, Error> {
        let path = self.path.join(name);
        let failed = |source| Error::Destination { path: path.clone(), source };
        file.as_file().sync_all().map_err(failed)?;
        let length = file.as_file().metadata().map_err(failed)?.len();
        let kept = if self.replaces { file.persist(&path) } else { file.persist_noclobber(&path) };
        kept.map_err(|error| failed(error.error))?;
        Ok(length)
    }
}
