//! The daemon's side of `zfs send` ([`api::streams`]).

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use api::files::PART_MAX;
use api::files::wire::{Answer, Refusal, send};
use api::{Caller, Error, Reason, SendRequest};
use dsl::{LongHold, Owned};
use spa::engine::PoolWriter;
use stream::SendError;

use super::{Daemon, Seat, check_key, denied, library, take, visitor};
use crate::control::grants::streams::may_send;
use crate::replies::{error_of, of_send};
use crate::view::Sendable;

/// Serves one send to its end.
pub(super) fn serve(
    daemon: &Daemon,
    mut stream: UnixStream,
    request: &SendRequest,
    caller: &Caller,
) -> io::Result<()> {
    let sent = Sending::new(daemon, &stream, request, caller).and_then(|sending| sending.run(&stream));
    let answer = match sent {
        Ok(()) => Answer::Done,
        Err(refusal) => Answer::Denied(refusal),
    };
    send(&mut stream, &answer, &[])
}

/// A dataset that is being sent. It is released before the entry in the table is removed.
struct Sending {
    what: Sendable,
    #[allow(dead_code, reason = "keeps a file system or volume from being changed by living")]
    owned: Option<Owned>,
    #[allow(dead_code, reason = "keeps snapshots by living")]
    holds: Vec<LongHold>,
    #[allow(dead_code, reason = "is in the table by living")]
    seat: Seat,
}

impl Sending {
    fn new(
        daemon: &Daemon,
        stream: &UnixStream,
        request: &SendRequest,
        caller: &Caller,
    ) -> Result<Self, Refusal> {
        let name = request.dataset.as_str();
        let parsed = dsl::Name::parse(name).map_err(|_| denied(name, Reason::InvalidName))?;
        let again = stream.try_clone().map_err(|error| library(name, &error))?;
        may_send(&daemon.pools, caller, request).map_err(Refusal::Api)?;
        take(caller, name, stream::send::SEND_QUEUE_LENGTH.get())?;
        let user = visitor("send", caller.peer().pid);
        let seat = daemon.visits.enter(again, parsed.pool(), (caller, &user)).map_err(Refusal::Api)?;
        let imported = daemon.pools.pool_of(name).map_err(Refusal::Api)?;
        let find = || Sendable::find(&imported, request).map_err(Refusal::Api);
        let live = imported.pool.spa().writer();
        let owned = match live {
            Some(live) => imported.pool.spa().read(|| own(live, &find()?.dataset, request))?,
            None => None,
        };
        if let (Some(live), Some(_)) = (live, &owned) {
            // What the last owner changed may not be on disk yet.
            live.sync_all().map_err(|_| denied(name, Reason::Suspended))?;
        }
        let (what, holds) = imported.pool.spa().read(|| {
            let what = find()?;
            let hold = |of: &dsl::Dataset| live.map(|live| live.dsl().heads().long_hold(of.object().0));
            let datasets = [Some(&what.dataset), what.from.as_ref()].into_iter().flatten().filter_map(hold);
            let lists = what.lists().filter_map(|list| Some(live?.dsl().heads().long_hold(list.0)));
            let holds = datasets.chain(lists).collect();
            Ok::<_, Refusal>((what, holds))
        })?;
        daemon.visits.set_dataset(seat.number, Some(what.dataset.object().0));
        if !request.raw {
            check_key(&what.dataset)?;
        }
        Ok(Self { what, owned, holds, seat })
    }

    fn run(&self, stream: &UnixStream) -> Result<(), Refusal> {
        let what = &self.what;
        let mut parts = Outgoing { stream, part: Vec::with_capacity(PART_MAX) };
        let sent = stream::send(&what.dataset, &what.options, &mut parts);
        // What was read before a failure is good.
        let flushed = parts.flush().map_err(SendError::Write);
        sent.and(flushed).map_err(|error| {
            tracing::warn!(dataset = what.dataset.name(), error = api::chain(&error), "not sent whole");
            Refusal::Api(Error::new(what.dataset.name(), of_send(&error)))
        })
    }
}

/// Owns a file system or volume that is to be sent, so that it does not change meanwhile. A
/// snapshot needs no owner.
///
/// # Errors
/// * [`Reason::Busy`]: it is mounted, or in use otherwise.
/// * [`Reason::KeyNotLoaded`]: its key is not loaded, and the stream is not raw.
/// * [`Reason::Io`], [`Reason::Corrupt`]: it can't be read.
fn own(live: &PoolWriter, dataset: &dsl::Dataset, request: &SendRequest) -> Result<Option<Owned>, Refusal> {
    if dataset.is_snapshot() {
        return Ok(None);
    }
    let heads = live.dsl().heads();
    let owned = if request.raw { heads.own_locked(dataset) } else { heads.own(dataset) };
    owned.map(Some).map_err(|error| match error {
        dsl::Error::Refused { why: dsl::Refusal::Busy, .. } => denied(&request.dataset, Reason::Busy),
        error => Refusal::Api(error_of(&request.dataset, &error)),
    })
}

/// Collects parts of a stream for the command.
struct Outgoing<'a> {
    stream: &'a UnixStream,
    part: Vec<u8>,
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_MAX - self.part.len();
        let taken = bytes.len().min(room);
        self.part.extend_from_slice(&bytes[..taken]);
        if taken == room {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            send(&mut self.stream, &Answer::Bytes, &self.part)?;
            self.part.clear();
        }
        Ok(())
    }
}
