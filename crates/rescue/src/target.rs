//! The source of a rescue: a pool, a dataset, a path.

use super::Io;
use super::args::Args;
use api::files::Bytes;
use poolhouse::dsl::Dir;
use poolhouse::dsl::keys::KeyStatus;
use poolhouse::spa::discovery::DEFAULT_SEARCH_PATHS;
use poolhouse::spa::import::Rewind;
use poolhouse::spa::{Candidate, Discovery, Host, SpaError};
use poolhouse::{Claim, OpenOptions, Pool};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Why a rescue could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library reports an error; its variants name the cause.
    #[error(transparent)]
    Pool(#[from] poolhouse::Error),
    /// The states of a pool can't be listed.
    #[error(transparent)]
    States(#[from] poolhouse::spa::SpaError),
    /// An operand is not possible in its place: for example, it has no path where one is needed.
    #[error("{operand}: {why}")]
    Operand {
        /// The operand.
        operand: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The path can't be resolved: it leads to nothing, or the pool can't be read there.
    #[error("{dataset}:{path}")]
    Path {
        /// The dataset.
        dataset: String,
        /// The path in it.
        path: String,
        /// The cause.
        #[source]
        source: api::files::Fault,
    },
    /// A device, image or folder that the user named can't be read.
    #[error("{}", path.display())]
    Device {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Several pools have this name.
    #[error("more than one pool is called '{name}': name one by its guid: {}", pools.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// The guid of each, with one of its devices.
        pools: Vec<String>,
    },
    /// The dataset is encrypted, and its key is not loaded.
    #[error("{dataset} is encrypted, and its key is not loaded: give it with -k {root}=FILE")]
    NoKey {
        /// The dataset.
        dataset: String,
        /// Its encryption root.
        root: String,
    },
    /// The path lies below the mountpoint of another file system.
    #[error("{operand}: {child} has its mountpoint there and would hide what is written: write {instead}")]
    Hidden {
        /// The operand.
        operand: String,
        /// The other file system.
        child: String,
        /// The place in the other file system.
        instead: String,
    },
    /// The daemon that holds the pool belongs to another user.
    #[error("{dataset}: the daemon of another user holds the pool, and gives its files to that user alone{}", Mounted(at.as_deref()))]
    Theirs {
        /// The dataset.
        dataset: String,
        /// The dataset's mountpoint, if it is mounted.
        at: Option<PathBuf>,
    },
    /// The daemon that holds the pool refused a request. The text is the same as in `zfs`.
    #[error("{about}: {why}")]
    Refused {
        /// The subject of the refusal.
        about: String,
        /// The cause.
        why: String,
    },
    /// The daemon that holds the pool does not open a dataset.
    #[error(transparent)]
    Denied(#[from] api::files::Denied),
    /// The daemon that holds the pool can't list datasets or mounts.
    #[error("the daemon of this user, which holds the pool: {why}")]
    Daemon {
        /// The cause.
        why: String,
    },
    /// A key file can't be read.
    #[error("cannot read key file {}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A device of a pool that is to be written can only be read.
    #[error("cannot write {}", path.display())]
    NotWritable {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The stream of a snapshot is not whole.
    #[error("{dataset}: not sent whole")]
    Stream {
        /// The snapshot.
        dataset: String,
        /// The cause.
        #[source]
        source: stream::SendError,
    },
    /// A stored stream is damaged.
    #[error("{file}")]
    Stored {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        source: stream::Error,
    },
    /// A stored stream can't be received, so that what it has is not known.
    #[error("{snapshot}")]
    NotReceived {
        /// The snapshot.
        snapshot: String,
        /// The cause.
        #[source]
        source: stream::ReceiveError,
    },
    /// The volumes of AFS in a partition or pool can't be listed.
    #[error("{partition}: its volumes can't be listed")]
    Volumes {
        /// The file system.
        partition: String,
        /// The cause.
        #[source]
        source: afs::server::Error,
    },
    /// The destination can't be used.
    #[error("{}", path.display())]
    Destination {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Where the kernel has mounted the files, as the end of a message.
struct Mounted<'a>(Option<&'a Path>);

impl std::fmt::Display for Mounted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(at) => write!(f, "; they are mounted at {}", at.display()),
            None => Ok(()),
        }
    }
}

impl Error {
    /// Whether another process owns the pool, so that only `--peek` can read it.
    pub fn is_in_use(&self) -> bool {
        let Error::Pool(poolhouse::Error::Import(failure)) = self else { return false };
        matches!(failure.error, SpaError::InUse(_))
    }
}

/// The parts of `POOL/DATASET@SNAPSHOT:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The dataset or snapshot.
    pub dataset: String,
    /// What follows the colon, if there is one.
    pub path: Option<String>,
}

impl Target {
    /// Parses an operand.
    ///
    /// It splits at the first `:/`, or at a colon at its end, since a dataset's name may contain
    /// colons.
    pub fn parse(operand: &str) -> Target {
        let at = operand.find(":/").or_else(|| operand.ends_with(':').then(|| operand.len() - 1));
        match at {
            Some(at) => {
                Target { dataset: operand[..at].to_owned(), path: Some(operand[at + 1..].to_owned()) }
            }
            None => Target { dataset: operand.to_owned(), path: None },
        }
    }

    /// The same target with the pool's name, because the operand may have its guid instead.
    pub fn of(&self, pool: &str) -> Target {
        Target { dataset: format!("{pool}{}", &self.dataset[self.pool().len()..]), path: self.path.clone() }
    }

    /// The pool's name or guid.
    pub fn pool(&self) -> &str {
        self.dataset.split(['/', '@', '#']).next().unwrap_or_default()
    }
}

/// Looks for pools where the arguments say, or where OpenZFS would look.
///
/// # Errors
/// * [`Error::Device`]: a device, image or folder that the user named can't be read.
pub fn scan(args: &Args) -> Result<Discovery, Error> {
    if args.devices.is_empty() {
        return Ok(poolhouse::spa::discover(&DEFAULT_SEARCH_PATHS));
    }
    args.devices.iter().try_for_each(|path| readable(path))?;
    let scan = poolhouse::spa::discover(&args.devices);
    match scan.silent.first() {
        Some(path) if scan.pools.is_empty() => {
            let source = std::io::Error::other("it does not answer");
            Err(Error::Device { path: path.clone(), source })
        }
        _ => Ok(scan),
    }
}

/// Refuses what can't be read: a named path, and the files of a named folder.
///
/// Pipes and character devices are not opened, because that could block or have an effect.
fn readable(path: &Path) -> Result<(), Error> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Device { path, source }
    };
    let meta = std::fs::metadata(path).map_err(fail(path))?;
    let kind = meta.file_type();
    if kind.is_dir() {
        for entry in std::fs::read_dir(path).map_err(fail(path))?.flatten() {
            let path = entry.path();
            if std::fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
                File::open(&path).map_err(fail(&path))?;
            }
        }
    } else if kind.is_file() || kind.is_block_device() {
        File::open(path).map_err(fail(path))?;
    } else {
        return Err(fail(path)(std::io::Error::other("it is no file, block device or folder")));
    }
    Ok(())
}

/// The candidate with a pool's name or guid.
///
/// # Errors
/// * [`Error::Pool`] with [`poolhouse::Error::NoSuchPool`]: no pool has it.
/// * [`Error::Ambiguous`]: several pools have the name.
pub fn candidate<'s>(scan: &'s Discovery, name: &str) -> Result<&'s Candidate, Error> {
    let guid = name.parse().ok();
    let mut found = scan.pools.iter().filter(|c| c.name == name || guid == Some(c.guid.0));
    let first = found.next().ok_or_else(|| poolhouse::Error::NoSuchPool { name: name.to_owned() })?;
    let others: Vec<&Candidate> = found.collect();
    if others.is_empty() {
        return Ok(first);
    }
    let device = |c: &Candidate| c.members.first().map(|m| format!(" ({})", m.place.path.display()));
    let one = |c: &Candidate| format!("{}{}", c.guid, device(c).unwrap_or_default());
    let pools = std::iter::once(first).chain(others).map(one).collect();
    Err(Error::Ambiguous { name: name.to_owned(), pools })
}

/// The options for opening a pool that is only read. So it doesn't matter which host used the pool
/// last.
pub fn options(args: &Args) -> OpenOptions {
    OpenOptions {
        claim: if args.peek { Claim::Nothing } else { Claim::Share },
        force: true,
        missing_log: args.missing_log,
        checkpoint: args.checkpoint,
        rewind: if args.extreme { Rewind::Extreme } else { Rewind::No },
        max_txg: args.txg.map(Into::into),
        ..OpenOptions::default()
    }
}

/// Opens the pool of a target with the given keys. Returns it, and the target with the pool's name.
///
/// # Errors
/// * [`Error::Pool`]: the pool can't be imported, or the key does not fit.
/// * The errors of [`candidate`] and [`load_keys`].
pub fn open(io: &mut Io, args: &Args, scan: &Discovery, target: &Target) -> Result<(Pool, Target), Error> {
    let candidate = candidate(scan, target.pool())?;
    let pool = Pool::import(candidate, &options(args), &Host::of_system())?;
    let target = target.of(pool.name());
    if args.txg.is_some() {
        let ub = pool.spa().uberblock();
        writeln!(io.err, "poolhouse: {} at transaction group {}", pool.name(), ub.txg);
    }
    load_keys(&pool, args, &target)?;
    Ok((pool, target))
}

/// Refuses a dataset whose key is not loaded.
///
/// # Errors
/// * [`Error::NoKey`]: the key is not loaded.
/// * [`Error::Pool`]: the dataset does not exist, or its directory can't be read.
pub fn check_key(pool: &Pool, dataset: &str) -> Result<(), Error> {
    let head = dataset.split(['@', '#']).next().unwrap_or_default();
    let dir = pool.dsl().dir(head).map_err(poolhouse::Error::from)?;
    match dir.encryption_root().map_err(poolhouse::Error::from)? {
        Some(root) if !is_loaded(pool, &root)? => {
            Err(Error::NoKey { dataset: dataset.to_owned(), root: root.name().to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}

fn is_loaded(pool: &Pool, root: &Dir) -> Result<bool, Error> {
    let status = pool.dsl().keys().status(root).map_err(poolhouse::Error::from)?;
    Ok(status == KeyStatus::Available)
}

/// Loads the given keys.
///
/// # Errors
/// * [`Error::KeyFile`]: a key file can't be read.
/// * [`Error::Operand`]: a key without an encryption root was given, and the dataset is not
///   encrypted.
/// * [`Error::Pool`]: the key is wrong or malformed, or the dataset can't be read.
pub fn load_keys(pool: &Pool, args: &Args, target: &Target) -> Result<(), Error> {
    for (root, path) in &args.keys {
        let raw = std::fs::read(path).map_err(|source| Error::KeyFile { path: path.clone(), source })?;
        let root = match root {
            Some(root) => root.clone(),
            None => encryption_root(pool, target)?,
        };
        load_key(pool, &root, &raw)?;
    }
    Ok(())
}

/// Loads a key from the bytes of a file.
fn load_key(pool: &Pool, root: &str, raw: &[u8]) -> Result<(), Error> {
    Ok(pool.load_key(root, material(raw))?)
}

/// The key in the bytes of a key file: without the line's end, unless the length is a raw key's.
fn material(raw: &[u8]) -> &[u8] {
    let trimmed = raw.strip_suffix(b"\n").unwrap_or(raw);
    // A raw key has a fixed length, and may end in any byte, a line feed among them.
    if raw.len() == RAW_KEY_LEN { raw } else { trimmed }
}

/// The given keys, for the daemon that holds the pool.
///
/// # Errors
/// * [`Error::KeyFile`]: a key file can't be read.
pub fn keys(args: &Args) -> Result<Vec<(Option<String>, Bytes)>, Error> {
    let read = |(root, path): &(Option<String>, PathBuf)| {
        let raw = std::fs::read(path).map_err(|source| Error::KeyFile { path: path.clone(), source })?;
        Ok((root.clone(), material(&raw).to_vec().into()))
    };
    args.keys.iter().map(read).collect()
}

/// Bytes of a raw key (`WRAPPING_KEY_LEN`).
const RAW_KEY_LEN: usize = 32;

fn encryption_root(pool: &Pool, target: &Target) -> Result<String, Error> {
    let head = target.dataset.split('@').next().unwrap_or_default();
    let dir = pool.dsl().dir(head).map_err(poolhouse::Error::from)?;
    let root = dir.encryption_root().map_err(poolhouse::Error::from)?;
    let why = "is not encrypted, yet a key was given";
    Ok(root.ok_or_else(|| Error::Operand { operand: target.dataset.clone(), why })?.name().to_owned())
}

#[cfg(test)]
mod tests {
    //! Operands are split where a reader would split them.

    use super::Target;

    /// Goal: the path begins at the first `:/`. Colons in dataset names stay with the name.
    #[test]
    fn operands() {
        let parse = |s: &str| {
            let t = Target::parse(s);
            (t.dataset.clone(), t.path.clone(), t.pool().to_owned())
        };
        let got = parse("tank/home@a:b:/x:/y");
        assert_eq!(got, ("tank/home@a:b".into(), Some("/x:/y".into()), "tank".into()));
        assert_eq!(parse("tank/v:"), ("tank/v".into(), Some(String::new()), "tank".into()));
        assert_eq!(parse("tank@s"), ("tank@s".into(), None, "tank".into()));
    }
}
