//! The numbers of turns and connections.

use crate::control::turns::*;

fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(work)
}

/// Goal: a user whose requests all hang can't take turns from other users or owners, not even with
/// new connections.
#[test]
fn turns() {
    block(async {
        let callers = Arc::new(Callers::default());
        let patience = Duration::from_secs(10);
        let seat = callers.seat(7, false).expect("a place");
        let mut hung = Vec::new();
        for _ in 0..TURNS {
            hung.push(seat.turn(patience).await.expect("a turn"));
        }
        assert!(seat.turn(patience).await.is_none());
        drop(seat);
        assert!(callers.seat(7, false).expect("a place").turn(patience).await.is_none(), "they still hang");
        assert!(callers.seat(8, false).expect("a place").turn(patience).await.is_some());
        let owner = callers.seat(0, true).expect("a place");
        for _ in 0..TURNS_OF_OWNERS {
            hung.push(owner.turn(patience).await.expect("a turn"));
        }
        assert!(owner.turn(patience).await.is_none());
        assert!(callers.seat(8, false).expect("a place").turn(patience).await.is_some());
        drop(hung);
        assert!(callers.seat(7, false).expect("a place").turn(patience).await.is_some());
    });
}

/// Goal: connections of one user, and of all users together, have a limit. Owners have none.
#[test]
fn connections() {
    let callers = Arc::new(Callers::default());
    let mut seats: Vec<Seat> = (0..CONNECTIONS).map(|_| callers.seat(7, false).expect("a place")).collect();
    assert_eq!(callers.seat(7, false).err(), Some(Crowd::User));
    assert!(callers.seat(8, false).is_ok());
    seats.pop();
    assert!(callers.seat(7, false).is_ok());
    assert!((0..=CONNECTIONS).all(|_| callers.seat(0, true).is_ok()));
    let mut others = 100..;
    while seats.len() < CONNECTIONS_OF_OTHERS {
        seats.push(callers.seat(others.next().expect("there are enough"), false).expect("a place"));
    }
    assert_eq!(callers.seat(8, false).err(), Some(Crowd::AllUsers));
    assert!(callers.seat(0, true).is_ok());
}
