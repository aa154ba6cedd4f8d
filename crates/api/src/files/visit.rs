//! A command's side of a visit.

use super::wire::{ANSWER_MAX, Answer, Ask, Refusal, receive, send};
use super::{Bytes, Fault, Files, Gap, Kind, Meta, Opened, Opening, PART_MAX, Page};
use ondisk::ObjNum;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zpl::{DirCookie, NewFile, SetAttr};

/// How long the end of a visit waits for the daemon.
const CLOSING: Duration = Duration::from_secs(5);

/// A connection to the daemon that holds a pool, for one dataset of it.
///
/// When it is dropped, it waits until the daemon has closed the dataset. So the next command does
/// not find the dataset busy.
pub struct Visit {
    stream: UnixStream,
    bytes: Vec<u8>,
}

/// Why a dataset was not opened.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// The daemon belongs to another user.
    #[error("the daemon is another user's")]
    Theirs,
    /// Its socket can't be used, or its answer makes no sense.
    #[error("{}", socket.display())]
    Socket {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The key of the dataset is not loaded.
    #[error("{dataset} is encrypted, and its key is not loaded: give it with -k {root}=FILE")]
    NoKey {
        /// The dataset.
        dataset: String,
        /// Its encryption root.
        root: String,
    },
    /// A key was given for a dataset that is not encrypted.
    #[error("{dataset}: is not encrypted, yet a key was given")]
    NotEncrypted {
        /// The dataset.
        dataset: String,
    },
    /// It is a snapshot, or not a file system.
    #[error("{dataset}: is no file system that can be written")]
    NotWritable {
        /// The dataset.
        dataset: String,
    },
    /// It is read-only.
    #[error("{dataset}: has the property readonly=on, or is mounted read only")]
    ReadOnly {
        /// The dataset.
        dataset: String,
    },
    /// The daemon refused, with its reason.
    #[error(transparent)]
    Api(crate::Error),
    /// The dataset can't be opened.
    #[error("{about}: {text}")]
    Library {
        /// Its name.
        about: String,
        /// The message, with its causes.
        text: String,
    },
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Theirs => Self::Theirs,
            Refusal::NoKey { dataset, root } => Self::NoKey { dataset, root },
            Refusal::NotEncrypted { dataset } => Self::NotEncrypted { dataset },
            Refusal::NotWritable { dataset } => Self::NotWritable { dataset },
            Refusal::ReadOnly { dataset } => Self::ReadOnly { dataset },
            Refusal::Api(error) => Self::Api(error),
            Refusal::Library { about, text } => Self::Library { about, text },
        }
    }
}

impl Visit {
    /// Opens a dataset through the daemon in a folder.
    ///
    /// # Errors
    /// * [`Denied::Theirs`]: the socket belongs to another user's daemon.
    /// * [`Denied::Socket`]: the socket can't be used, or the daemon's answer makes no sense.
    /// * All others: the daemon refused. See [`Denied`].
    pub fn open(place: &crate::run_dir::RunDir, opening: &Opening) -> Result<(Self, Opened), Denied> {
        let socket = place.files();
        let failed = |source| Denied::Socket { socket: socket.clone(), source };
        let stream = match UnixStream::connect(&socket) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(Denied::Theirs),
            stream => stream.map_err(failed)?,
        };
        let mut visit = Self { stream, bytes: Vec::new() };
        match visit.ask(&Ask::Open(opening.clone()), &[]).map_err(failed)? {
            Answer::Opened(opened) => Ok((visit, opened)),
            Answer::Denied(refusal) => Err(refusal.into()),
            _ => Err(nonsense(&socket)),
        }
    }

    fn ask(&mut self, ask: &Ask, bytes: &[u8]) -> io::Result<Answer> {
        send(&mut self.stream, ask, bytes)?;
        let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
        receive(&mut self.stream, ANSWER_MAX, &mut self.bytes)?.ok_or_else(gone)
    }

    /// Sends a request whose answer may be a fault.
    fn get(&mut self, ask: &Ask, bytes: &[u8]) -> Result<Answer, Fault> {
        let answer = self.ask(ask, bytes).map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                    "the daemon ended it: the pool is exported, or the daemon stops".to_owned()
                }
                _ => format!("the daemon that holds the pool: {}", crate::chain(&error)),
            };
            Fault { kind: Kind::Gone, text }
        })?;
        match answer {
            Answer::Fault(fault) => Err(fault),
            answer => Ok(answer),
        }
    }

    fn done(&mut self, ask: &Ask, bytes: &[u8]) -> Result<(), Fault> {
        match self.get(ask, bytes)? {
            Answer::Done => Ok(()),
            _ => Err(senseless()),
        }
    }

    fn one(&mut self, ask: &Ask) -> Result<Option<ObjNum>, Fault> {
        match self.get(ask, &[])? {
            Answer::Object(object) => Ok(object.map(ObjNum)),
            _ => Err(senseless()),
        }
    }

    fn bytes(&mut self, ask: &Ask) -> Result<Vec<u8>, Fault> {
        match self.get(ask, &[])? {
            Answer::Bytes => Ok(std::mem::take(&mut self.bytes)),
            _ => Err(senseless()),
        }
    }

    fn meta_of(&mut self, ask: &Ask) -> Result<Meta, Fault> {
        match self.get(ask, &[])? {
            Answer::Meta(meta) => Ok(meta),
            _ => Err(senseless()),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Ok(()) = self.stream.shutdown(Shutdown::Write) else { return };
        let Ok(()) = self.stream.set_read_timeout(Some(CLOSING)) else { return };
        // The daemon closes the connection last. An answer that is under way is dropped.
        while matches!(self.stream.read(&mut [0; 4096]), Ok(1..)) {}
    }
}

fn nonsense(socket: &Path) -> Denied {
    Denied::Socket { socket: socket.to_owned(), source: io::Error::other(senseless().text) }
}

fn senseless() -> Fault {
    Fault { kind: Kind::Gone, text: "the daemon's answer makes no sense".to_owned() }
}

fn named(name: &[u8]) -> Bytes {
    Bytes(name.to_vec())
}

impl Files for Visit {
    fn resolve(&mut self, path: &[u8], follow: bool) -> Result<Meta, Fault> {
        self.meta_of(&Ask::Resolve { path: named(path), follow })
    }

    fn meta(&mut self, object: ObjNum) -> Result<Meta, Fault> {
        self.meta_of(&Ask::Meta { object: object.0 })
    }

    fn page(&mut self, folder: ObjNum, from: DirCookie) -> Result<Page, Fault> {
        match self.get(&Ask::Page { folder: folder.0, from: from.0 }, &[])? {
            Answer::Page(page) => Ok(page),
            _ => Err(senseless()),
        }
    }

    fn readlink(&mut self, link: ObjNum) -> Result<Vec<u8>, Fault> {
        self.bytes(&Ask::Readlink { link: link.0 })
    }

    fn xattr_names(&mut self, object: ObjNum) -> Result<Vec<Vec<u8>>, Fault> {
        match self.get(&Ask::XattrNames { object: object.0 }, &[])? {
            Answer::Names(names) => Ok(names.into_iter().map(|name| name.0).collect()),
            _ => Err(senseless()),
        }
    }

    fn xattr(&mut self, object: ObjNum, name: &[u8]) -> Result<Vec<u8>, Fault> {
        self.bytes(&Ask::Xattr { object: object.0, name: named(name) })
    }

    fn begin(&mut self, object: ObjNum) -> Result<(), Fault> {
        self.done(&Ask::Begin { object: object.0 }, &[])
    }

    fn next(&mut self, at: u64, data: bool) -> Result<Option<u64>, Gap> {
        match self.get(&Ask::Next { at, data }, &[]).map_err(|fault| Gap::rest(at, fault))? {
            Answer::At(found) => Ok(found),
            Answer::Gap(gap) => Err(gap),
            _ => Err(Gap::rest(at, senseless())),
        }
    }

    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<usize, Gap> {
        let len = buf.len().min(PART_MAX);
        match self.get(&Ask::Read { at, len }, &[]).map_err(|fault| Gap::rest(at, fault))? {
            Answer::Bytes if (1..=len).contains(&self.bytes.len()) => {
                buf[..self.bytes.len()].copy_from_slice(&self.bytes);
                Ok(self.bytes.len())
            }
            Answer::Gap(gap) if gap.to > at => Err(gap),
            _ => Err(Gap::rest(at, senseless())),
        }
    }

    fn lookup(&mut self, folder: ObjNum, name: &[u8]) -> Result<ObjNum, Fault> {
        self.one(&Ask::Lookup { folder: folder.0, name: named(name) })?.ok_or_else(senseless)
    }

    fn remove(&mut self, folder: ObjNum, name: &[u8]) -> Result<Option<ObjNum>, Fault> {
        self.one(&Ask::Remove { folder: folder.0, name: named(name) })
    }

    fn link(&mut self, file: ObjNum, folder: ObjNum, name: &[u8]) -> Result<(), Fault> {
        self.done(&Ask::Link { file: file.0, folder: folder.0, name: named(name) }, &[])
    }

    fn create(&mut self, folder: ObjNum, name: &[u8], new: &NewFile) -> Result<ObjNum, Fault> {
        let ask = Ask::Create { folder: folder.0, name: named(name), new: new.into() };
        self.one(&ask)?.ok_or_else(senseless)
    }

    fn write(&mut self, object: ObjNum, at: u64, data: &[u8]) -> Result<(), Fault> {
        self.done(&Ask::Write { object: object.0, at }, data)
    }

    fn extend(&mut self, object: ObjNum, size: u64) -> Result<(), Fault> {
        self.done(&Ask::Extend { object: object.0, size }, &[])
    }

    fn set_xattr(&mut self, object: ObjNum, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.done(&Ask::SetXattr { object: object.0, name: named(name) }, value)
    }

    fn set_attr(&mut self, object: ObjNum, set: &SetAttr) -> Result<(), Fault> {
        self.done(&Ask::SetAttr { object: object.0, set: set.into() }, &[])
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.done(&Ask::Sync, &[])
    }
}
