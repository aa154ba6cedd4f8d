//! Records of the pool's history: commands and internal events.
//!
//! See OpenZFS `spa_history.c`, `ZPOOL_HIST_*` of `sys/fs/zfs.h`.

use dsl::sync::Event;
use ondisk::{Nvlist, Txg, Value};

fn text(nv: &mut Nvlist, name: &str, value: &str) {
    nv.set(name, Value::String(value.as_bytes().to_vec()));
}

/// The history record of an operation (`spa_history_log_internal`).
pub(crate) fn internal(event: &Event, txg: Txg, now: u64, hostname: &str) -> Nvlist {
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

/// The history record of a user's command (`zpool_log_history`).
pub(crate) fn command(line: &str, uid: u32, now: u64, hostname: &str) -> Nvlist {
    let mut nv = Nvlist::new();
    text(&mut nv, "history command", line);
    nv.set("history who", Value::Uint64(uid.into()));
    nv.set("history time", Value::Uint64(now));
    text(&mut nv, "history hostname", hostname);
    nv
}
