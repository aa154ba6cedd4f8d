//! Files of a dataset that something else may have open, such as the AFS server.
//!
//! # Theory
//! A visit of this kind takes no claim and no hold, and opens no file system of the server. It
//! reads the dataset as of the last transaction group. It needs the key of an encrypted dataset,
//! which therefore can't be unloaded meanwhile.
//!
//! Later transaction groups free blocks of that state, and a while later other blocks take their
//! places. So the state is opened anew each second. All reads say that their blocks may have been
//! freed ([`IoFlags::MAY_BE_FREED`]): they count no checksum errors and record no damage. A scrub
//! does both.
//!
//! While the dataset's root block is the same, nothing that it leads to has been freed. So a
//! failure is returned if the root is still the same. Otherwise the request is repeated with the
//! newest state.
//!
//! The reads yield to foreground I/O, except those of a repeated request. A caller that needs the
//! same block meanwhile makes them hurry.
//!
//! # Locks
//! Operations on datasets wait while the root block's pointer is looked up, in the pool's metadata.
//! They do not wait for reads of the dataset.

use super::visits::Visits;
use super::{Answer, Engine, answer, bad, check_key, denied};
use crate::pools::imported::Imported;
use crate::replies::of_dsl;
use api::Reason;
use api::files::wire::{Ask, Refusal};
use api::files::{Fault, Files, Kind, Opening};
use device::SystemClock;
use dsl::{Prop, Value};
use observe::Counter;
use ondisk::{Blkptr, ObjNum};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vdev::{Pace, Priority, Request};
use zio::{IoFlags, ReadOptions};
use zpl::FileSystem;

/// How old a state may be at the begin of a request.
const FRESH: Duration = Duration::from_secs(1);
/// How often a request is tried while the dataset changes.
const TRIES: u32 = 4;

/// The files of a dataset as of a recent transaction group.
pub(super) struct Beside {
    imported: Arc<Imported>,
    name: String,
    /// Its object: another dataset of the name is not read.
    object: ObjNum,
    engine: Engine,
    /// The root block of the state.
    root: Blkptr,
    /// When the state was opened. `None`: it is to be opened anew.
    opened: Option<Instant>,
    begun: Begun,
}

/// The file that is being read.
enum Begun {
    Nothing,
    File {
        object: ObjNum,
        generation: u64,
        size: u64,
    },
    /// Why it can't be read on.
    Lost(String),
}

impl Beside {
    /// Opens a file system or snapshot for this visit. Also returns the bytes that it refers to.
    ///
    /// # Errors
    /// * [`Refusal::NoKey`]: its key is not loaded.
    /// * [`Refusal::NotWritable`]: it is to be written.
    /// * [`Refusal::Library`]: its blocks have no checksums, or it can't be read.
    /// * [`Refusal::Api`]: there is no such dataset, it has no files, or its pool is suspended.
    pub(super) fn open(
        imported: &Arc<Imported>,
        opening: &Opening,
        (visits, visit): (&Visits, u64),
    ) -> Result<(Self, u64), Refusal> {
        let name = &opening.dataset;
        if opening.write {
            return Err(Refusal::NotWritable { dataset: name.clone() });
        }
        if imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some()) {
            return Err(denied(name, Reason::Suspended));
        }
        let of_dsl = |error: dsl::Error| denied(name, of_dsl(&error));
        let library = |text: &str| Refusal::Library { about: name.clone(), text: text.to_owned() };
        let found = || {
            let dataset = imported.pool.dsl().dataset(name)?;
            dataset.synced_root().map(|root| (dataset, root))
        };
        let (dataset, root) = imported.pool.spa().read(found).map_err(of_dsl)?;
        let is_encrypted = dataset.dir().encryption_root().map_err(of_dsl)?.is_some();
        if is_encrypted {
            // Before the key is looked at, so that it is not unloaded in between.
            visits.set_reads(visit, dataset.object().0);
        }
        check_key(&dataset)?;
        let checksum = dataset.property(Prop::Checksum).map_err(of_dsl)?.map(|found| found.value);
        if !is_encrypted
            && let Some(Value::Number(number)) = checksum
            && Prop::Checksum.desc().index_name(number) == Some("off")
        {
            return Err(library(
                "its blocks have no checksums, so they can't be told from others that replace them: set \
                 'checksum' to another value than 'off', and write the files anew",
            ));
        }
        let root = root.ok_or_else(|| library("the dataset has no contents"))?;
        let fs = files(&dataset, &root, false).map_err(|fault| library(&fault.text))?;
        let beside = Self {
            imported: Arc::clone(imported),
            name: name.clone(),
            object: dataset.object(),
            engine: Engine::files(fs),
            root,
            opened: Some(Instant::now()),
            begun: Begun::Nothing,
        };
        Ok((beside, dataset.phys().uncompressed_bytes))
    }

    /// Answers a request. Its raw data goes to `data`.
    ///
    /// # Errors
    /// The request would change something, or fails, or the dataset changes again and again while
    /// it is read.
    pub(super) fn answer(&mut self, ask: Ask, data: &mut Vec<u8>) -> Result<Answer, Fault> {
        for tries in 0..TRIES {
            let is_repeated = tries > 0;
            let found = self.answer_once(again(&ask)?, data, is_repeated);
            if is_repeated {
                // The next request yields again.
                self.opened = None;
            }
            let goes_on = matches!(ask, Ask::Next { .. } | Ask::Read { .. });
            let is_lost = goes_on && matches!(self.begun, Begun::Lost(_));
            if !is_broken(&found) || is_lost || self.current()?.1 == Some(self.root) {
                return found;
            }
            data.clear();
            self.opened = None;
        }
        Err(other("the dataset changes faster than it is read: try again later"))
    }

    fn answer_once(&mut self, ask: Ask, data: &mut Vec<u8>, hurries: bool) -> Result<Answer, Fault> {
        if self.opened.is_none_or(|opened| opened.elapsed() >= FRESH) {
            self.renew(hurries)?;
        }
        match ask {
            Ask::Begin { object } => {
                self.begun = Begun::Nothing;
                let (object, meta) = (ObjNum(object), self.engine.meta(ObjNum(object))?);
                self.engine.begin(object)?;
                self.begun = Begun::File { object, generation: meta.generation, size: meta.size };
                Ok(Answer::Done)
            }
            Ask::Next { .. } | Ask::Read { .. } if let Begun::Lost(why) = &self.begun => Err(other(why)),
            ask => answer(&mut self.engine, ask, &[], data),
        }
    }

    /// The dataset, and its root block as of now.
    fn current(&self) -> Result<(dsl::Dataset, Option<Blkptr>), Fault> {
        let pool = &self.imported.pool;
        let found = || {
            let dataset = pool.dsl().dataset(&self.name)?;
            dataset.synced_root().map(|root| (dataset, root))
        };
        let (dataset, root) = pool.spa().read(found).map_err(|e| Fault::other(&e))?;
        match dataset.object() == self.object {
            true => Ok((dataset, root)),
            false => Err(other("the dataset was replaced meanwhile")),
        }
    }

    /// Opens the state of now. `hurries`: its reads do not yield.
    fn renew(&mut self, hurries: bool) -> Result<(), Fault> {
        let (dataset, root) = self.current()?;
        check_key(&dataset).map_err(|_| other("its key is not loaded any more"))?;
        self.root = root.ok_or_else(|| other("the dataset has no contents"))?;
        self.engine = Engine::files(files(&dataset, &self.root, hurries)?);
        self.opened = Some(Instant::now());
        let Begun::File { object, generation, size } = self.begun else { return Ok(()) };
        let now = self.engine.meta(object).and_then(|meta| self.engine.begin(object).map(|()| meta));
        let lost = match now {
            Err(fault) if fault.kind == Kind::NoEntry => fault.text,
            Err(fault) => {
                // The state may be out of date again.
                self.opened = None;
                return Err(fault);
            }
            Ok(meta) if meta.generation != generation => "it was replaced meanwhile".to_owned(),
            Ok(meta) if meta.size < size => "it became shorter meanwhile".to_owned(),
            Ok(_) => return Ok(()),
        };
        self.begun = Begun::Lost(lost);
        Ok(())
    }
}

/// The same request.
///
/// # Errors
/// It would change something.
fn again(ask: &Ask) -> Result<Ask, Fault> {
    Ok(match ask {
        Ask::Meta { object } => Ask::Meta { object: *object },
        Ask::Page { folder, from } => Ask::Page { folder: *folder, from: *from },
        Ask::Begin { object } => Ask::Begin { object: *object },
        Ask::Next { at, data } => Ask::Next { at: *at, data: *data },
        Ask::Read { at, len } => Ask::Read { at: *at, len: *len },
        Ask::Resolve { path, follow } => Ask::Resolve { path: path.clone(), follow: *follow },
        _ => return Err(bad("the dataset is read beside others")),
    })
}

/// Whether a request may have failed because its state is out of date.
fn is_broken(found: &Result<Answer, Fault>) -> bool {
    matches!(found, Err(_) | Ok(Answer::Gap(_)))
        || matches!(found, Ok(Answer::Page(page)) if page.fault.is_some())
}

/// The files of a dataset below this root block. `hurries`: their reads do not yield.
fn files(dataset: &dsl::Dataset, root: &Blkptr, hurries: bool) -> Result<FileSystem, Fault> {
    let request = match hurries {
        true => Request::new(Priority::AsyncRead),
        false => {
            let (clock, waited_ns) = (Arc::new(SystemClock::default()), Arc::new(Counter::new()));
            Request::paced(Priority::AsyncRead, Pace::new(clock, waited_ns, || false))
        }
    };
    let options = ReadOptions::new(request).with(IoFlags::MAY_BE_FREED);
    let objset = dataset.objset_at(root, options).map_err(|error| Fault::other(&error))?;
    FileSystem::open(&objset).map_err(|error| Fault::other(&error))
}

fn other(text: &str) -> Fault {
    Fault { kind: Kind::Other, text: text.to_owned() }
}
