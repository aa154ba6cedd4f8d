//! Programs that read and write streams, and how often they wake up.

use super::*;
use crate::engine::program::WANTED_MOST;

/// Bytes of a packet.
const BYTES: usize = 1_412;

/// A server with a call whose program has taken all that arrived, and the next sequence number.
fn reading() -> (Engine, CallId, u32) {
    let mut server = acquainted(Config::default());
    let mut seq = 1;
    loop {
        feed(&mut server, &mut seq, Flags::default());
        if let [Event::Start(id)] = events(&mut server)[..] {
            server.take(id).unwrap();
            return (server, id, seq);
        }
    }
}

fn feed(server: &mut Engine, seq: &mut u32, flags: Flags) {
    server.receive(Time(2), CLIENT, &packet(2, *seq, flags, Kind::Data), &mut [0; BYTES]);
    sent(server, Time(2));
    *seq += 1;
}

/// Feeds packets until the program is woken. Returns how many bytes that took.
fn fed_until_readable(server: &mut Engine, id: CallId, seq: &mut u32) -> usize {
    for count in 1..1_000 {
        feed(server, seq, Flags::default());
        match events(server)[..] {
            [] => {}
            [Event::Readable(of)] if of == id => return count * BYTES,
            ref other => panic!("{other:?}"),
        }
    }
    panic!("the program is not woken");
}

/// Goal: a program that waits for many bytes is woken once they are there, or with the last ones.
/// It gets what there is whenever it takes it. Then it waits for one byte again.
#[test]
fn a_program_may_wait_for_many_bytes() {
    let (mut server, id, mut seq) = reading();
    assert!(!server.want(Time(2), id, 50_000).unwrap());
    assert_eq!(fed_until_readable(&mut server, id, &mut seq), 36 * BYTES);
    // It is not woken again before it has taken them.
    feed(&mut server, &mut seq, Flags::default());
    assert_eq!(events(&mut server), []);
    assert!(server.want(Time(2), id, 50_000).unwrap());
    assert_eq!(server.take(id).unwrap().bytes.len(), 37 * BYTES);
    assert_eq!(fed_until_readable(&mut server, id, &mut seq), BYTES);
    server.take(id).unwrap();
    // It takes what there is.
    assert!(!server.want(Time(2), id, 50_000).unwrap());
    feed(&mut server, &mut seq, Flags::default());
    assert_eq!(server.take(id).unwrap().bytes.len(), BYTES);
    assert!(!server.want(Time(2), id, 50_000).unwrap());
    feed(&mut server, &mut seq, Flags::LAST);
    assert_eq!(events(&mut server), [Event::Readable(id)]);
    assert!(server.want(Time(2), id, 50_000).unwrap());
    let read = server.take(id).unwrap();
    assert_eq!((read.bytes.len(), read.done), (BYTES, true));
}

/// Goal: a program that waits for more than a call may hold is woken all the same.
#[test]
fn no_program_waits_for_more_than_fits() {
    let (mut server, id, mut seq) = reading();
    assert!(!server.want(Time(2), id, usize::MAX).unwrap());
    let fed = fed_until_readable(&mut server, id, &mut seq);
    assert!((WANTED_MOST..WANTED_MOST + BYTES).contains(&fed), "{fed}");
}

/// Goal: a client whose program has less than it waits for owes the rest: its patience ends, though
/// some bytes are there.
#[test]
fn a_client_that_trickles_uses_patience() {
    for (wanted, lives) in [(1, true), (50_000, false)] {
        let (mut server, id, mut seq) = reading();
        server.want(Time(2), id, wanted).unwrap();
        feed(&mut server, &mut seq, Flags::default());
        events(&mut server);
        for second in 1..200 {
            let now = Time(second * 1_000_000);
            // The client answers pings, and sends no more.
            answer(&mut server, now, CLIENT, &packet(2, 1, Flags::default(), Kind::Ack));
            server.tick(now);
            sent(&mut server, now);
        }
        assert_eq!(server.info(id).is_some(), lives, "{wanted}");
    }
}

/// Lets time pass until something happens to a call, whose client answers pings or doesn't.
fn wait_for_event(server: &mut Engine, answers: bool) -> (Time, Event) {
    loop {
        let now = server.timer().expect("the call has a timer");
        assert!(now < Time(200_000_000));
        server.tick(now);
        if let Some(event) = server.event() {
            return (now, event);
        }
        for (header, body) in sent(server, now) {
            if answers && header.kind == Kind::Ack && Ack::parse(&body).unwrap().reason == Reason::PING {
                answer(server, now, CLIENT, &header);
            }
        }
    }
}

/// Goal: the patience with a client is used from the moment at which its program asks for more than
/// there is, and not from the next packet or timer on.
#[test]
fn patience_is_used_at_once() {
    let (mut server, id, mut seq) = reading();
    feed(&mut server, &mut seq, Flags::default());
    events(&mut server);
    let asked = Time(1_000_000);
    assert!(!server.want(asked, id, 50_000).unwrap());
    let (ended, event) = wait_for_event(&mut server, true);
    assert_eq!(event, Event::Failed(id, code::CALL_TIMEOUT));
    assert_eq!(ended, asked.after(Config::default().patience));
}

/// Goal: a program that waits for many bytes, and has some, learns how its call ended: by the
/// client's abort or next call, by silence, or by the end of this program.
#[test]
fn a_waiting_program_learns_the_end() {
    type End = fn(&mut Engine);
    let abort: End = |server| {
        let header = packet(2, 0, Flags::default(), Kind::Abort);
        server.receive(Time(3), CLIENT, &header, &mut 42i32.to_be_bytes());
    };
    let next: End = |server| request(server, Time(3), 3);
    for (end, code) in [
        (abort, 42),
        (next, code::USER_ABORT),
        (Engine::shut_down, code::RESTARTING),
        (|_| {}, code::CALL_DEAD),
    ] {
        let (mut server, id, mut seq) = reading();
        assert!(!server.want(Time(2), id, 50_000).unwrap());
        feed(&mut server, &mut seq, Flags::default());
        end(&mut server);
        let event = server.event().unwrap_or_else(|| wait_for_event(&mut server, false).1);
        assert_eq!(event, Event::Failed(id, code));
        assert!(matches!(server.want(Time(4), id, 50_000), Err(crate::Error::Gone)));
        assert!(matches!(server.take(id), Err(crate::Error::Gone)));
        server.finish(id);
    }
}

/// Goal: a buffer that a program gives back is used again, and its bytes are gone.
#[test]
fn a_buffer_is_used_again() {
    let (mut server, id, mut seq) = reading();
    let mut old = Vec::with_capacity(1 << 20);
    old.extend([7; 10]);
    server.take_into(id, old).unwrap();
    feed(&mut server, &mut seq, Flags::default());
    let bytes = server.take(id).unwrap().bytes;
    assert_eq!(bytes, [0; BYTES]);
    assert!(bytes.capacity() >= 1 << 20);
}

/// Goal: a program that was stopped goes on when there is some room, or in a long stream when half
/// of what waits has left.
#[test]
fn stopped_programs_go_on() {
    const FULL: usize = crate::engine::output::FULL;
    for (is_stream, below) in [(false, FULL), (true, FULL / 2)] {
        let waits = waiting_when_it_goes_on(is_stream, below);
        assert!((below / 2..below).contains(&waits), "{waits}");
    }
}

/// Stops a program, and returns how many bytes wait when it is woken.
fn waiting_when_it_goes_on(is_stream: bool, below: usize) -> usize {
    const FULL: usize = crate::engine::output::FULL;
    let mut server = acquainted(Config::default());
    request(&mut server, Time(2), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    if is_stream {
        server.will_stream(id);
    }
    let send =
        |server: &mut Engine, bytes: usize| server.send(id, [Slice::from(vec![1; bytes])], false).unwrap();
    assert!(send(&mut server, FULL - 1));
    assert!(!send(&mut server, 100_000));
    let mut waits = FULL - 1 + 100_000;
    loop {
        let out = sent(&mut server, Time(3));
        let data: Vec<_> = out.iter().filter(|(header, _)| header.kind == Kind::Data).collect();
        waits -= data.iter().map(|(_, body)| body.len()).sum::<usize>();
        match events(&mut server)[..] {
            [] => assert!(waits >= below, "{waits}"),
            [Event::Writable(of)] if of == id => break,
            ref other => panic!("{other:?}"),
        }
        let (last, _) = data.last().expect("there is room in the window");
        let ack = Ack {
            first: last.seq + 1,
            previous: last.seq,
            serial: last.serial,
            reason: Reason::REQUESTED,
            states: &[],
            max_mtu: None,
            window: None,
        };
        let mut body = ack.encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 });
        server.receive(Time(3), CLIENT, &packet(2, 0, Flags::default(), Kind::Ack), &mut body);
    }
    assert!(send(&mut server, FULL - waits - 1));
    waits
}

/// Goal: a request that its reply acknowledges is charged no more.
#[test]
fn a_reply_ends_the_charge_of_a_request() {
    let mut client = engine(Config::default());
    let connection = client.connect(Time(1), SERVER, SERVICE, &Null).unwrap();
    let id = client.start(Time(1), connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![1; 3 * BYTES])], true).unwrap();
    let request = sent(&mut client, Time(1)).remove(0).0;
    assert_eq!(client.reply_bytes(), 3 * BYTES);
    let reply = Header { flags: Flags::default(), ..request };
    client.receive(Time(2), SERVER, &reply, &mut [0; 8]);
    assert_eq!((client.reply_bytes(), client.unacknowledged(id)), (0, 0));
}
