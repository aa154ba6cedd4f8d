//! Calls whose threads wait for many bytes, and how such a wait ends.

use super::*;
use crate::engine::WANTED_MOST;

/// Bytes of packets with which a request begins.
const BEGINNING: usize = 40 * 1_412;

/// Reads the beginning of a call, says so, and then waits for more bytes than follow. It tells how
/// that wait ended, and with how many bytes.
struct Gathers {
    /// How long it waits.
    time: Duration,
    begun: Sender<()>,
    ended: Sender<(usize, Option<Error>)>,
}

impl Service for Gathers {
    fn quick(&self, _: &Request) -> Option<Reply> {
        None
    }

    fn run(&self, call: &mut Call) -> Result<(), i32> {
        call.read_exact(&mut [0; 1]).map_err(|_| code::SS_UNMARSHAL)?;
        if !call.info().proved {
            return Ok(());
        }
        let mut left = BEGINNING - 1;
        let mut bytes = Vec::new();
        while left > 0 {
            call.read_into(&mut bytes, left, Instant::now() + TIME).map_err(|_| code::SS_UNMARSHAL)?;
            left -= bytes.len();
        }
        let _ = self.begun.send(());
        let result = call.read_into(&mut bytes, WANTED_MOST, Instant::now() + self.time);
        let _ = self.ended.send((bytes.len(), result.err()));
        Err(7)
    }
}

type Ends = Receiver<(usize, Option<Error>)>;

/// A server, and a call of a client that the server's thread waits for.
fn waiting(time: Duration) -> (Endpoint, Endpoint, Call, Ends) {
    let ((begun, begins), (ended, ends)) = (channel(), channel());
    let services: Vec<(u16, Arc<dyn Service>)> = vec![(1, Arc::new(Gathers { time, begun, ended }))];
    let classes: Vec<Arc<dyn crate::security::Class>> = vec![Arc::new(Null)];
    let server = Endpoint::bind(LOCAL, Options { services, classes, ..Options::default() }).unwrap();
    let client = client();
    let connection = client.connect(server.address(), 1, &Null).unwrap();
    // A stranger's large request starts nothing, so its first call proves the address.
    assert!(connection.call(vec![0], TIME).is_ok_and(|reply| reply.is_empty()));
    let mut call = connection.open(TIME).unwrap();
    call.write(vec![1; BEGINNING]).unwrap();
    begins.recv_timeout(TIME).unwrap();
    (server, client, call, ends)
}

/// Goal: a thread that waits for many bytes goes on when the client aborts the call or drops it,
/// and when its own endpoint ends. It learns the code.
#[test]
fn a_wait_for_many_bytes_ends_with_its_call() {
    type End = fn(&mut Option<Endpoint>, Call);
    let (abort, leave): (End, End) = (|_, call| call.abort(42), |_, call| drop(call));
    let stop: End = |server, mut call| {
        drop(server.take());
        assert!(matches!(call.read(), Err(Error::Aborted { code: code::RESTARTING })));
    };
    for (end, expected) in [(abort, 42), (leave, code::USER_ABORT), (stop, code::RESTARTING)] {
        let (server, _client, mut call, ends) = waiting(TIME);
        call.write(vec![2; 1_000]).unwrap();
        let mut server = Some(server);
        end(&mut server, call);
        let (bytes, error) = ends.recv_timeout(TIME).unwrap();
        assert!(matches!(error, Some(Error::Aborted { code }) if code == expected), "{error:?}");
        assert_eq!(bytes, 0);
    }
}

/// Goal: a wait for many bytes ends at its own moment, with what there is or with none. The call
/// goes on: here, the service then aborts it.
#[test]
fn a_wait_for_many_bytes_has_an_end() {
    let (_server, _client, mut call, ends) = waiting(Duration::from_millis(50));
    let (bytes, error) = ends.recv_timeout(TIME).unwrap();
    assert!(bytes == 0 && matches!(error, Some(Error::Deadline)), "{bytes} {error:?}");
    assert!(matches!(call.read(), Err(Error::Aborted { code: 7 })));
}
