//! The daemon's side of `poolhouse afs adopt` ([`api::streams::adopt`]).
//!
//! The command writes the dump of a volume into its connection. What came is gone with the command.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use api::files::wire::{Answer, Refusal, send};
use api::{AfsAdopt, Caller, Error, Reason};

use super::{Daemon, denied, library, visitor};

/// Makes a volume for a caller: of a dump.
pub(super) type Adopt = dyn Fn(&Caller, &AfsAdopt, &mut dyn Read) -> Result<(), Error> + Send + Sync;

/// Serves one volume to its end.
pub(super) fn serve(
    daemon: &Daemon,
    mut connection: UnixStream,
    request: &AfsAdopt,
    caller: &Caller,
) -> io::Result<()> {
    let answer = match run(daemon, &connection, request, caller) {
        Ok(()) => Answer::Done,
        Err(refusal) => Answer::Denied(refusal),
    };
    send(&mut connection, &answer, &[])
}

/// Makes the volume, as a visit in the table.
fn run(daemon: &Daemon, connection: &UnixStream, request: &AfsAdopt, caller: &Caller) -> Result<(), Refusal> {
    let name = request.dataset.as_str();
    if !caller.owns() {
        return Err(Refusal::Theirs);
    }
    let parsed = dsl::Name::parse(name).map_err(|_| denied(name, Reason::InvalidName))?;
    let again = connection.try_clone().map_err(|error| library(name, &error))?;
    let user = visitor("adopt", caller.peer().pid);
    // It stays in the table until everything of the volume has ended.
    let _seat = daemon.visits.enter(again, parsed.pool(), (caller, &user)).map_err(Refusal::Api)?;
    tracing::debug!(dataset = name, volume = request.volume, user, "a volume is being adopted");
    (daemon.adopt)(caller, request, &mut { connection }).map_err(|error| {
        tracing::warn!(dataset = name, volume = request.volume, %error, "not adopted");
        Refusal::Api(error)
    })
}
