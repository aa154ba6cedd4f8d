//! Messages on the socket: a head of two lengths, JSON, and raw bytes.
//!
//! Data travels as raw bytes, since JSON would only make it longer.

use super::{Fault, Gap, Meta, PART_MAX, Page};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

/// Most bytes of the JSON of a request: a path of 64 KiB in any bytes, and its frame.
pub const ASK_MAX: usize = 512 << 10;
/// Most bytes of the JSON of an answer: a page of a directory, or all names of attributes.
pub const ANSWER_MAX: usize = 8 << 20;

/// Bytes in JSON: a text with one character up to U+00FF for each byte.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.iter().map(|byte| char::from(*byte)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        let byte = |c: char| u8::try_from(c).map_err(|_| D::Error::custom("a character that is no byte"));
        Ok(Self(text.chars().map(byte).collect::<Result<_, _>>()?))
    }
}

/// Object numbers in JSON.
pub(super) mod object {
    use ondisk::ObjNum;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(object: &ObjNum, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(object.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ObjNum, D::Error> {
        Ok(ObjNum(u64::deserialize(from)?))
    }
}

/// File types in JSON: the four bits of `st_mode`.
pub(super) mod kind {
    use serde::{Deserialize, Deserializer, Serializer};
    use zpl::FileType;

    pub fn serialize<S: Serializer>(kind: &FileType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(kind.bits())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FileType, D::Error> {
        Ok(FileType::from_bits(u64::deserialize(from)?))
    }
}

/// The first request of a visit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Opening {
    /// The dataset or snapshot.
    pub dataset: String,
    /// The name of the command.
    pub command: String,
    /// Whether it will write files.
    pub write: bool,
    /// Keys, each with its encryption root. Without a root, it is that of the dataset.
    pub keys: Vec<(Option<String>, Bytes)>,
    /// Read it as of the last txg, also while something else has it open. Nothing is kept from
    /// changing or destroying it meanwhile; only its key can't be unloaded.
    #[serde(default)]
    pub beside: bool,
}

/// The answer to a successful [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The size of a volume in bytes; absent for a file system.
    pub volume: Option<u64>,
    /// The bytes that the dataset refers to, as files see them.
    pub total: u64,
}

/// A request: a call of [`Files`](super::Files) with its arguments.
#[allow(missing_docs, reason = "a variant has the name of the call")]
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    Open(Opening),
    /// With the message may travel the file descriptor that the stream is written to.
    Send(crate::SendRequest),
    /// The names of snapshots follow as raw bytes, a line each. They are kept up to the end of the
    /// connection.
    Keep {
        /// They will be sent raw.
        raw: bool,
    },
    /// The bytes of BEGIN follow as raw bytes, and with the message travels a file descriptor.
    Receive(crate::ReceiveRequest),
    /// The dump of the volume follows on the connection, up to the end of what the command sends.
    Adopt(crate::AfsAdopt),
    Resolve {
        path: Bytes,
        follow: bool,
    },
    Meta {
        object: u64,
    },
    Page {
        folder: u64,
        from: u64,
    },
    Readlink {
        link: u64,
    },
    XattrNames {
        object: u64,
    },
    Xattr {
        object: u64,
        name: Bytes,
    },
    Begin {
        object: u64,
    },
    Next {
        at: u64,
        data: bool,
    },
    Read {
        at: u64,
        len: usize,
    },
    Lookup {
        folder: u64,
        name: Bytes,
    },
    Remove {
        folder: u64,
        name: Bytes,
    },
    Link {
        file: u64,
        folder: u64,
        name: Bytes,
    },
    Create {
        folder: u64,
        name: Bytes,
        new: New,
    },
    /// The data follows as raw bytes.
    Write {
        object: u64,
        at: u64,
    },
    Extend {
        object: u64,
        size: u64,
    },
    /// The value follows as raw bytes.
    SetXattr {
        object: u64,
        name: Bytes,
    },
    SetAttr {
        object: u64,
        set: Set,
    },
    Sync,
}

/// An answer: the result of a call of [`Files`](super::Files).
#[allow(missing_docs, reason = "a variant has the name of what it holds")]
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Opened(Opened),
    Received(crate::streams::Received),
    /// Bytes of a stream that were written to the command's output so far.
    Written(u64),
    Meta(Meta),
    Page(Page),
    Object(Option<u64>),
    At(Option<u64>),
    Names(Vec<Bytes>),
    /// The data follows as raw bytes.
    Bytes,
    Fault(Fault),
    Gap(Gap),
    Denied(Refusal),
}

/// Why a dataset is not opened: [`Denied`](super::Denied) on the wire.
#[allow(missing_docs, reason = "the fields are those of `Denied`")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The daemon serves files to its owners only.
    Theirs,
    /// Its key is not loaded.
    NoKey { dataset: String, root: String },
    /// A key was given, and the dataset is not encrypted.
    NotEncrypted { dataset: String },
    /// It is a snapshot, or not a file system.
    NotWritable { dataset: String },
    /// It has `readonly=on`, or is mounted read-only.
    ReadOnly { dataset: String },
    /// An error of the control protocol.
    Api(crate::Error),
    /// A failure of the library.
    Library { about: String, text: String },
}

/// [`zpl::NewFile`] on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub struct New {
    #[serde(with = "kind")]
    kind: zpl::FileType,
    target: Bytes,
    rdev: (u32, u32),
    permissions: u32,
    uid: u32,
    gid: u32,
}

impl From<&zpl::NewFile> for New {
    fn from(new: &zpl::NewFile) -> Self {
        use zpl::{FileType, Kind};
        let mut target = Bytes::default();
        let (kind, rdev) = match &new.kind {
            Kind::Regular => (FileType::Regular, (0, 0)),
            Kind::Directory => (FileType::Directory, (0, 0)),
            Kind::Symlink(to) => {
                target = to.clone().into();
                (FileType::Symlink, (0, 0))
            }
            Kind::Fifo => (FileType::Fifo, (0, 0)),
            Kind::Socket => (FileType::Socket, (0, 0)),
            Kind::CharDevice(major, minor) => (FileType::CharDevice, (*major, *minor)),
            Kind::BlockDevice(major, minor) => (FileType::BlockDevice, (*major, *minor)),
        };
        Self { kind, target, rdev, permissions: new.permissions, uid: new.uid, gid: new.gid }
    }
}

impl New {
    /// The value for the engine; `None` if the type is unknown.
    pub fn file(self) -> Option<zpl::NewFile> {
        use zpl::{FileType, Kind};
        let (major, minor) = self.rdev;
        let kind = match self.kind {
            FileType::Regular => Kind::Regular,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink(self.target.0),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharDevice => Kind::CharDevice(major, minor),
            FileType::BlockDevice => Kind::BlockDevice(major, minor),
            FileType::Unknown => return None,
        };
        let new = zpl::NewFile::new(kind, self.permissions & 0o7777);
        Some(zpl::NewFile { uid: self.uid, gid: self.gid, ..new })
    }
}

/// [`zpl::SetAttr`] on the wire, without the size.
#[derive(Debug, Serialize, Deserialize)]
pub struct Set {
    permissions: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<(i64, u32)>,
    mtime: Option<(i64, u32)>,
}

impl From<&zpl::SetAttr> for Set {
    fn from(set: &zpl::SetAttr) -> Self {
        let time = |time: zpl::Time| (time.secs, time.nanos);
        Self {
            permissions: set.permissions,
            uid: set.uid,
            gid: set.gid,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time),
        }
    }
}

impl From<Set> for zpl::SetAttr {
    fn from(set: Set) -> Self {
        let time = |(secs, nanos): (i64, u32)| zpl::Time { secs, nanos: nanos.min(999_999_999) };
        Self {
            permissions: set.permissions.map(|bits| bits & 0o7777),
            uid: set.uid,
            gid: set.gid,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time),
            ..Self::default()
        }
    }
}

fn nonsense(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Sends one message.
///
/// # Errors
/// * `InvalidData`: `message` or `bytes` is too long for a length of 32 bits.
/// * All others: the connection can't be written to.
pub fn send<T: Serialize>(to: &mut impl Write, message: &T, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&head_of(message, bytes)?)?;
    to.write_all(bytes)
}

/// The lengths and the JSON of a message.
fn head_of<T: Serialize>(message: &T, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let length = |n: usize| u32::try_from(n).map_err(|_| nonsense("a message is too long"));
    let mut head = Vec::with_capacity(8 + json.len());
    head.extend(length(json.len())?.to_le_bytes());
    head.extend(length(bytes.len())?.to_le_bytes());
    head.extend(json);
    Ok(head)
}

/// Sends one message together with a file descriptor (`SCM_RIGHTS`).
///
/// # Errors
/// Those of [`send`].
pub fn send_with<T: Serialize>(
    to: &mut UnixStream,
    message: &T,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let head = head_of(message, bytes)?;
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(nonsense("the control message is too long"));
    }
    // The descriptor travels with the first byte. The others may need several writes.
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(&*to, &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL)
    })?;
    to.write_all(&head[sent..])?;
    to.write_all(bytes)
}

/// Receives one message, whose JSON has at most `most` bytes. `None` at the end of the connection.
///
/// The raw bytes that follow the JSON replace those in `bytes`.
///
/// # Errors
/// * `InvalidData`: a length exceeds its limit, or the JSON does not decode to `T`.
/// * `UnexpectedEof`: the connection ended within a message.
/// * All others: the connection can't be read.
pub fn receive<T: DeserializeOwned>(
    from: &mut impl Read,
    most: usize,
    bytes: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    let mut head = [0; 8];
    // An orderly end of the connection is before the first byte of a message.
    match from.read(&mut head[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return receive(from, most, bytes),
        Err(error) => return Err(error),
    }
    from.read_exact(&mut head[1..])?;
    let length = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
    let (json, data) = (length(0), length(4));
    if json > most || data > PART_MAX {
        return Err(nonsense("a message is too long"));
    }
    let mut text = vec![0; json];
    from.read_exact(&mut text)?;
    bytes.resize(data, 0);
    from.read_exact(bytes)?;
    serde_json::from_slice(&text).map(Some).map_err(nonsense)
}
