//! Snapshots that a command sends one after the other, kept until it has sent them all
//! ([`api::streams::keep`]).

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use api::files::wire::{Answer, Refusal, send};
use api::{Caller, Reason, SendRequest};
use dsl::LongHold;

use super::{Daemon, Seat, denied, library, take, visitor};
use crate::control::grants::streams::may_send;
use crate::replies::error_of;

/// Serves one connection to its end. `names` has the snapshots, of one pool, a line each.
pub(super) fn serve(
    daemon: &Daemon,
    mut stream: UnixStream,
    (raw, names): (bool, &[u8]),
    caller: &Caller,
) -> io::Result<()> {
    let kept = match Kept::new(daemon, &stream, (raw, names), caller) {
        Ok(kept) => kept,
        Err(refusal) => return send(&mut stream, &Answer::Denied(refusal), &[]),
    };
    send(&mut stream, &Answer::Done, &[])?;
    // The command sends nothing. It ends with its process, or by an export.
    let ended = stream.read(&mut [0]).map(drop);
    drop(kept);
    ended
}

/// Snapshots that can't be destroyed. They are released before the entry in the table is removed.
struct Kept {
    #[allow(dead_code, reason = "keeps snapshots by living")]
    holds: Vec<LongHold>,
    #[allow(dead_code, reason = "is in the table by living")]
    seat: Seat,
}

impl Kept {
    fn new(
        daemon: &Daemon,
        stream: &UnixStream,
        (raw, names): (bool, &[u8]),
        caller: &Caller,
    ) -> Result<Self, Refusal> {
        let names = String::from_utf8_lossy(names);
        let first = names.lines().next().unwrap_or_default();
        let pool = dsl::Name::parse(first).map_err(|_| denied(first, Reason::InvalidName))?.pool().to_owned();
        // Each hold is smaller than its name.
        take(caller, first, 2 * names.len() as u64)?;
        for name in names.lines() {
            let of_pool = dsl::Name::parse(name).is_ok_and(|name| name.pool() == pool);
            if !of_pool || !name.contains('@') {
                return Err(denied(name, Reason::InvalidName));
            }
            let request = SendRequest { dataset: name.to_owned(), raw, ..SendRequest::default() };
            may_send(&daemon.pools, caller, &request).map_err(Refusal::Api)?;
        }
        let again = stream.try_clone().map_err(|error| library(first, &error))?;
        let user = visitor("send", caller.peer().pid);
        let seat = daemon.visits.enter(again, &pool, (caller, &user)).map_err(Refusal::Api)?;
        let imported = daemon.pools.pool_of(first).map_err(Refusal::Api)?;
        let spa = imported.pool.spa();
        let holds = spa.read(|| {
            let hold = |name: &str| {
                let found = imported.pool.dsl().dataset(name).map_err(|error| error_of(name, &error));
                let object = found.map_err(Refusal::Api)?.object();
                Ok::<_, Refusal>(spa.writer().map(|live| live.dsl().heads().long_hold(object.0)))
            };
            // A pool that is only read loses none.
            names.lines().filter_map(|name| hold(name).transpose()).collect::<Result<_, _>>()
        })?;
        Ok(Self { holds, seat })
    }
}
