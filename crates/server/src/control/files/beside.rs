//! Files of a dataset that something else may have open, such as the AFS server.
//!
//! # Theory
//! A visit of this kind is a reader that nothing waits for. It takes no claim and no hold, and
//! opens no file system of the server. It reads the dataset as of the last transaction group.
//!
//! Later transaction groups free blocks of that state, and a while later other blocks take their
//! places. So the state is opened anew each second. Reads say that their pointers may be stale:
//! what can't be read counts as no error of a device. A request that fails is repeated once with
//! the newest state, and its reads say so no more.
//!
//! The reads yield to foreground I/O. A caller that needs the same block meanwhile waits for them.

use super::{Answer, Engine, answer, bad, check_key, denied};
use crate::pools::imported::Imported;
use crate::replies::of_dsl;
use api::Reason;
use api::files::wire::{Ask, Refusal};
use api::files::{Fault, Files, Kind, Opening};
use device::SystemClock;
use observe::Counter;
use ondisk::ObjNum;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vdev::{Pace, Priority, Request};
use zio::{IoFlags, ReadOptions};
use zpl::FileSystem;

/// How old a state may be at the begin of a request.
const FRESH: Duration = Duration::from_secs(1);

/// The files of a dataset as of a recent transaction group.
pub(super) struct Beside {
    imported: Arc<Imported>,
    name: String,
    /// Its object: another dataset of the name is not read.
    object: ObjNum,
    engine: Engine,
    /// When the state was opened. `None`: it is to be opened anew.
    opened: Option<Instant>,
    /// The file that is being read.
    begun: Option<ObjNum>,
    options: ReadOptions,
}

impl Beside {
    /// Opens a file system or snapshot. Also returns the bytes that it refers to.
    ///
    /// # Errors
    /// * [`Refusal::NoKey`]: its key is not loaded.
    /// * [`Refusal::NotWritable`]: it is to be written.
    /// * [`Refusal::Api`]: there is no such dataset, it has no files, it can't be read, or its pool
    ///   is suspended.
    pub(super) fn open(imported: &Arc<Imported>, opening: &Opening) -> Result<(Self, u64), Refusal> {
        let name = &opening.dataset;
        if opening.write {
            return Err(Refusal::NotWritable { dataset: name.clone() });
        }
        if imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some()) {
            return Err(denied(name, Reason::Suspended));
        }
        let of_dsl = |error: dsl::Error| denied(name, of_dsl(&error));
        let dataset = imported.pool.spa().read(|| imported.pool.dsl().dataset(name)).map_err(of_dsl)?;
        check_key(&dataset)?;
        let (clock, waited_ns) = (Arc::new(SystemClock::default()), Arc::new(Counter::new()));
        let pace = Pace::new(clock, waited_ns, || false);
        let options = ReadOptions::new(Request::paced(Priority::AsyncRead, pace));
        let fs = files(imported, &dataset, &options.with(IoFlags::MAY_BE_STALE));
        let fs = fs.map_err(|fault| Refusal::Library { about: name.clone(), text: fault.text })?;
        let beside = Self {
            imported: Arc::clone(imported),
            name: name.clone(),
            object: dataset.object(),
            engine: Engine::files(fs),
            opened: Some(Instant::now()),
            begun: None,
            options,
        };
        Ok((beside, dataset.phys().uncompressed_bytes))
    }

    /// Answers a request. Its raw data goes to `data`.
    ///
    /// # Errors
    /// The request would change something, or fails with the newest state too.
    pub(super) fn answer(&mut self, ask: Ask, data: &mut Vec<u8>) -> Result<Answer, Fault> {
        let again = match &ask {
            Ask::Meta { object } => Ask::Meta { object: *object },
            Ask::Page { folder, from } => Ask::Page { folder: *folder, from: *from },
            Ask::Begin { object } => Ask::Begin { object: *object },
            Ask::Next { at, data } => Ask::Next { at: *at, data: *data },
            Ask::Read { at, len } => Ask::Read { at: *at, len: *len },
            Ask::Resolve { path, follow } => Ask::Resolve { path: path.clone(), follow: *follow },
            _ => return Err(bad("the dataset is read beside others")),
        };
        let goes_on = matches!(ask, Ask::Next { .. } | Ask::Read { .. });
        if self.opened.is_none_or(|opened| opened.elapsed() >= FRESH) {
            self.renew(true, goes_on)?;
        }
        if let Ask::Begin { object } = &ask {
            self.begun = Some(ObjNum(*object));
        }
        let found = answer(&mut self.engine, ask, &[], data);
        if !is_broken(&found) {
            return found;
        }
        data.clear();
        self.renew(false, goes_on)?;
        // The next request opens it with the usual options.
        self.opened = None;
        answer(&mut self.engine, again, &[], data)
    }

    /// Opens the state of now. `stale`: it may be out of date when it is read. `goes_on`: the
    /// request is about the file that was begun.
    fn renew(&mut self, stale: bool, goes_on: bool) -> Result<(), Fault> {
        let pool = &self.imported.pool;
        let dataset = pool.spa().read(|| pool.dsl().dataset(&self.name)).map_err(|e| Fault::other(&e))?;
        if dataset.object() != self.object {
            return Err(other("the dataset was replaced meanwhile"));
        }
        let flags = if stale { IoFlags::MAY_BE_STALE } else { IoFlags::NONE };
        self.engine = Engine::files(files(&self.imported, &dataset, &self.options.with(flags))?);
        self.opened = Some(Instant::now());
        match self.begun.map_or(Ok(()), |object| self.engine.begin(object)) {
            // The file is gone.
            Err(fault) => {
                self.begun = None;
                if goes_on { Err(fault) } else { Ok(()) }
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Whether a request may have failed because its state is out of date.
fn is_broken(found: &Result<Answer, Fault>) -> bool {
    matches!(found, Err(_) | Ok(Answer::Gap(_)))
        || matches!(found, Ok(Answer::Page(page)) if page.fault.is_some())
}

/// The files of a dataset as of the last transaction group.
fn files(imported: &Imported, dataset: &dsl::Dataset, options: &ReadOptions) -> Result<FileSystem, Fault> {
    let open = || dataset.synced_objset(options.clone());
    let objset = imported.pool.spa().read(open).map_err(|error| Fault::other(&error))?;
    let objset = objset.ok_or_else(|| other("the dataset has no contents"))?;
    FileSystem::open(&objset).map_err(|error| Fault::other(&error))
}

fn other(text: &str) -> Fault {
    Fault { kind: Kind::Other, text: text.to_owned() }
}
