//! Replaying a file system's log (`zfs_replay_vector`).
//!
//! # Theory
//! A record is applied by the operation that made it. The operation runs on a separate file system
//! over the same object set, which no other thread sees and which logs nothing. All of its
//! transactions are one ([`OneTx`]). So an operation that takes several transactions stays in one
//! txg here, together with the record's number in the log's header. New files get the number, the
//! generation and the times of the record, because later records name them.
//!
//! POSIX ACLs and set-user-id are left alone: their changes have records of their own.
//!
//! Ports for other systems log owners of Windows domains. Such an owner gets the id that this file
//! system has for the domain. Without one, the owner is -1, as in OpenZFS on Linux, which knows no
//! domains at all.

mod acl;
mod attr;
mod file;
mod names;

pub(super) use attr::{FLAG_BITS, PROJID};

use super::{Policies, Policy, Writer, Writing};
use crate::{Error, FileSystem, Node, Result, Time};
use dmu::{Objset, Tx};
use dsl::Need;
use observe::lock::Mutex;
use ondisk::objset::ObjsetFlags;
use ondisk::sa::Attr as Sa;
use ondisk::zil::{RecordBody, RecordHeader, TxKind, ZilHeader};
use ondisk::{Corrupt, ObjNum, Txg};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;
use zil::{Log, ReplayError, Replayed, Replayer, TxError, TxSource, Zilog};

/// The subject of errors about records.
const WHAT: &str = "intent log record";
/// Longest name that a record may have, whatever the properties say now.
const NAME_MAX: usize = 1023;
/// Most slots of a dnode.
const SLOTS_MAX: u64 = 32;
/// The owner of a file whose owner is unknown: `(uid_t)-1`.
const NOBODY: u32 = u32::MAX;

/// Replays the log of the file system that a live object set holds.
///
/// No other handle may have the file system open.
///
/// # Errors
/// The log stays, and a later replay continues where this one stopped.
///
/// * [`ReplayError::Open`]: the file system can't be opened; see [`FileSystem::open_live`].
/// * [`ReplayError::Record`]: the pool is stopped or full, or a device or key is missing.
/// * [`ReplayError::Unreadable`]: a block of the log can't be read.
///
/// # Panics
/// If `os` is not live.
pub fn replay(
    os: &Objset,
    log: &Log,
    txs: Arc<dyn TxSource>,
    policies: &Policies,
) -> std::result::Result<Replayed<Error>, ReplayError<Error>> {
    let one = Arc::new(OneTx { inner: txs, open: Mutex::new(None) });
    let policy = Policy { posix_acl: false, name_max: NAME_MAX, ..policies.get() };
    let write = Writing { txs: one.clone(), policies: Policies::new(policy), replaying: true };
    let fs = FileSystem::open_with(os, Some(write));
    let fs = fs.map_err(|source| ReplayError::Open { source })?;
    let by = Replay { fs, one, grown: log.grown_later() };
    log.replay(&by, &mut |tx: &Tx, header: &ZilHeader| {
        os.set_zil_header(tx, header.encode()).expect("a live object set takes a header");
    })
}

/// Hands out shares of one transaction.
struct OneTx {
    inner: Arc<dyn TxSource>,
    /// The transaction of the record that is being replayed.
    open: Mutex<Option<Tx>>,
}

impl TxSource for OneTx {
    fn tx(&self, _: Need) -> std::result::Result<Tx, TxError> {
        Ok(self.open.lock().as_ref().expect("records are applied under a transaction").share())
    }

    fn try_tx(&self, need: Need) -> std::result::Result<Option<Tx>, TxError> {
        self.tx(need).map(Some)
    }

    fn wait(&self, txg: Txg) -> std::result::Result<(), TxError> {
        self.inner.wait(txg)
    }

    fn log(&self) -> Option<&Zilog> {
        None
    }

    fn now(&self) -> SystemTime {
        self.inner.now()
    }

    fn begin_feature(&self, feature: &'static str) {
        self.inner.begin_feature(feature);
    }

    fn accounting(&self) -> ObjsetFlags {
        self.inner.accounting()
    }

    fn may_clone(&self) -> bool {
        // A record of a clone names its blocks, and is applied without a source file.
        false
    }
}

struct Replay {
    fs: FileSystem,
    one: Arc<OneTx>,
    /// Files whose end a record moves into a block that another record brought.
    grown: HashSet<ObjNum>,
}

impl Replayer for Replay {
    type Error = Error;

    fn tx(&self, bytes: u64) -> Result<Tx> {
        // The first execution reserved the space, and a full file system must not lose what was
        // fsynced.
        Ok(self.one.inner.tx(Need::netfree(bytes))?)
    }

    fn apply(&self, tx: &Tx, header: &RecordHeader, body: &RecordBody) -> Result<()> {
        *self.one.open.lock() = Some(tx.share());
        let result = self.fs.replay_record(header, body, &self.grown);
        *self.one.open.lock() = None;
        result
    }

    fn ends(&self, error: &Error) -> bool {
        match error {
            Error::Stopped { .. } | Error::NoSpace | Error::Quota => false,
            Error::Dmu(e) => !zil::may_pass(e),
            _ => true,
        }
    }
}

impl From<zio::Error> for Error {
    fn from(e: zio::Error) -> Self {
        Error::Dmu(dmu::Error::from(e))
    }
}

/// The values of a new file that its record determines.
pub(super) struct Given {
    pub(super) object: ObjNum,
    pub(super) slots: u8,
    pub(super) generation: u64,
    pub(super) time: Time,
}

/// The error for a record with an impossible value.
fn bad(object: u64, field: &'static str, value: u64) -> Error {
    Error::Corrupt { object: ObjNum(object), source: Corrupt::Range { what: WHAT, field, value } }
}

/// A time of a record.
fn time([secs, nanos]: [u64; 2]) -> Time {
    Time { secs: secs as i64, nanos: u32::try_from(nanos).ok().filter(|n| *n < 1_000_000_000).unwrap_or(0) }
}

/// An owner of a record as a plain id. An owner of a domain is `NOBODY` at first.
fn id(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(NOBODY)
}

impl FileSystem {
    /// Gives a file the local ids of owners from domains that this file system knows.
    fn replay_owners(&self, w: &Writer, object: ObjNum, ids: [u64; 2], domains: &[Vec<u8>]) -> Result<()> {
        if ids.iter().all(|id| id >> 32 == 0) {
            return Ok(());
        }
        let known = self.domains()?;
        let local = |id: u64| {
            let at = usize::try_from(id >> 32).ok()?.checked_sub(1)?;
            let domain = domains.get(at)?;
            let (index, _) = known.iter().find(|(_, name)| name.as_bytes() == domain.as_slice())?;
            Some(u64::from(index) << 32 | id & u64::from(u32::MAX))
        };
        let tx = w.tx(Need::growing(0))?;
        self.update(w, object, &tx, |_, c| {
            for (attr, id) in [Sa::Uid, Sa::Gid].into_iter().zip(ids) {
                if let Some(local) = local(id) {
                    c.word(attr, local);
                }
            }
            Ok(())
        })
    }

    fn replay_record(&self, header: &RecordHeader, body: &RecordBody, grown: &HashSet<ObjNum>) -> Result<()> {
        let w = self.writer()?;
        let (kind, ci) = (header.kind, header.ci);
        match body {
            RecordBody::Commit => Ok(()),
            RecordBody::Create(c) if kind == TxKind::Mkxattr => self.replay_hidden_dir(w, c),
            RecordBody::Create(c) => self.replay_create(w, c),
            RecordBody::Remove { doid, name } => self.replay_remove(ObjNum(*doid), name, kind, ci),
            RecordBody::Link { doid, link_obj, name } => {
                self.link(ObjNum(*link_obj), ObjNum(*doid), name).map(drop)
            }
            RecordBody::Rename(r) => self.replay_rename(w, r, kind, ci),
            RecordBody::Write(r) => self.if_there(r.foid, |node| match kind {
                TxKind::Write2 => self.replay_size(w, &node, r),
                _ => self.replay_write(w, node, r, grown.contains(&ObjNum(r.foid))),
            }),
            RecordBody::Truncate { foid, offset, length } => {
                self.if_there(*foid, |node| self.replay_free(node.object(), *offset, *length))
            }
            RecordBody::Setattr(s) => self.if_there(s.foid, |_| self.replay_setattr(w, s)),
            RecordBody::Acl { foid, acl } => self.if_there(*foid, |node| self.replay_acl(w, &node, acl)),
            RecordBody::SetSaXattr { foid, name, value } => {
                self.if_there(*foid, |node| self.replay_xattr(w, &node, name, value.as_deref()))
            }
            RecordBody::CloneRange(c) => self.if_there(c.foid, |node| self.replay_clone(w, node, c)),
        }
    }

    /// Applies a record to a file. The record may have been logged after the file's removal, and
    /// then has no effect (`TX_OOO`).
    fn if_there(&self, foid: u64, apply: impl FnOnce(Node) -> Result<()>) -> Result<()> {
        match self.node(ObjNum(foid)) {
            Ok(node) => apply(node),
            Err(Error::NoFile { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The name of an entry as it is stored, if the request ignored case.
    fn stored_name(&self, dir: ObjNum, name: &[u8], ci: bool) -> Result<Vec<u8>> {
        if !ci {
            return Ok(name.to_vec());
        }
        Ok(self.node(dir)?.lookup_entry(name, true)?.name)
    }
}
