//! Records of the pool's history: commands and internal events.
//!
//! See OpenZFS `spa_history.c`, `ZPOOL_HIST_*` of `sys/fs/zfs.h`.

use dmu::Tx;
use dsl::sync::Event;
use ondisk::version::SPA_VERSION_ZPOOL_HISTORY;
use ondisk::{Nvlist, Txg, Value, mos};
use pool::alloc::ClassKind;

use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;
use crate::pool_core::state::{Command, Logged, Recorded};

/// Most bytes of a text. Longer ones are cut off, as OpenZFS's commands do (`HIS_MAX_RECORD_LEN`).
const TEXT_MAX: usize = 2 * 4096;
/// Most bytes of a request's input: a sixteenth of the smallest history, whose other records it
/// would push out. OpenZFS has no limit.
const INPUT_MAX: usize = 8 << 10;

fn text(nv: &mut Nvlist, name: &str, value: &str) {
    let value = &value[..value.floor_char_boundary(TEXT_MAX)];
    nv.set(name, Value::String(value.as_bytes().to_vec()));
}

/// The history record of an operation (`spa_history_log_internal`).
fn internal(event: &Event, txg: Txg, now: u64, hostname: &str) -> Nvlist {
    let mut nv = Nvlist::new();
    if !event.dataset.is_empty() {
        text(&mut nv, "dsname", &event.dataset);
        nv.set("dsid", Value::Uint64(event.object));
    }
    text(&mut nv, "history internal str", &event.text);
    text(&mut nv, "internal_name", event.what);
    nv.set("history txg", Value::Uint64(txg.0));
    nv.set("history time", Value::Uint64(now));
    text(&mut nv, "history hostname", hostname);
    nv
}

/// The zone of commands (`ZPOOL_HIST_ZONE`), as OpenZFS names it on Linux.
const ZONE: &str = "linux";

/// The history record of a user's command or request (`zpool_log_history`, `zfsdev_ioctl_common`).
///
/// That of a request with a long input, such as the names of many snapshots, has no input.
fn command(command: &Command, now: u64, hostname: &str) -> Nvlist {
    let mut nv = Nvlist::new();
    match &command.what {
        Logged::Line(line) => text(&mut nv, "history command", line),
        Logged::Request(name, input) => {
            text(&mut nv, "ioctl", name);
            if input.encode_xdr().len() <= INPUT_MAX {
                nv.set("in_nvl", Value::List(input.clone()));
            }
        }
    }
    nv.set("history who", Value::Uint64(command.uid.into()));
    nv.set("history time", Value::Uint64(now));
    text(&mut nv, "history hostname", hostname);
    text(&mut nv, "history zone", ZONE);
    nv
}

/// History records that are kept until a caller takes them.
const RECORDED: usize = 1024;

impl PoolCore {
    /// Adds operations to the pool's history (`spa_history_log_internal`).
    pub(crate) fn log_events(&self, tx: &Tx, events: &[Event]) -> Result<(), SyncError> {
        let txg = tx.txg();
        let hostname = self.synced.read().config.hostname.clone().unwrap_or_default();
        let now = self.world.now();
        let commands = std::mem::take(&mut *self.history.commands.lock());
        let announced = std::mem::take(&mut *self.history.announced.lock());
        let nothing = events.len() + commands.len() + announced.len() == 0;
        if self.sync_mos.version() < SPA_VERSION_ZPOOL_HISTORY || nothing {
            return Ok(());
        }
        let metadata = |source| SyncError::Metadata { txg, source };
        if self.sync_mos.dir(mos::HISTORY).map_err(metadata)?.is_none() {
            // The pool was made before there were histories.
            let room = self.allocator.totals().of(ClassKind::Normal).dspace;
            self.sync_mos.create_history(tx, room).map_err(metadata)?;
        }
        let events: Vec<Nvlist> =
            announced.iter().chain(events).map(|e| internal(e, txg, now, &hostname)).collect();
        self.record(&events);
        let commands = commands.iter().map(|c| command(c, now, &hostname));
        events
            .into_iter()
            .chain(commands)
            .try_for_each(|record| self.sync_mos.log_history(tx, &record).map_err(metadata))
    }

    /// Records the software versions in the history with the next txg, when the pool is created or
    /// imported (`spa_history_log_version`).
    pub(crate) fn announce_versions(&self, what: &'static str, hostname: &str) {
        let text = crate::discovery::host::versions(self.synced.read().uberblock.version, hostname);
        self.history.announced.lock().push(Event { what, dataset: String::new(), object: 0, text });
    }

    /// Keeps the history records of operations for
    /// [`PoolWriter::take_recorded`](crate::engine::PoolWriter::take_recorded)
    /// (`spa_history_log_notify`).
    fn record(&self, records: &[Nvlist]) {
        let at = self.world.wall();
        let mut recorded = self.history.recorded.lock();
        for record in records {
            if recorded.len() == RECORDED {
                recorded.pop_front();
            }
            recorded.push_back(Recorded { at, record: record.clone() });
        }
    }
}
