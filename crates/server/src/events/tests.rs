//! The ring of events, without a pool.

use crate::events::*;

fn post(events: &Events, class: &str) {
    let of = Of { pool: "tank".to_owned(), guid: 1, state: 0, context: Context::None };
    events.enter(&of, class, Vec::new(), SystemTime::now());
}

fn told(events: &Events, query: &EventQuery) -> (Vec<String>, u64) {
    let page = events.tell(query, &[]);
    (page.events.iter().map(|e| e.class.clone()).collect(), page.dropped)
}

/// Goal: a client that has seen the last event of a daemon gets all of its successor's, though
/// their numbers start again. The successor reports no missed events.
#[test]
fn successors_are_told_from_the_first_on() {
    let first = Events::default();
    ["a", "b", "c"].iter().for_each(|class| post(&first, class));
    let page = first.tell(&EventQuery::default(), &[]);
    assert_eq!((page.events.len(), page.dropped), (3, 0));
    let seen = EventQuery { after: 3, teller: page.teller, clear: false };
    assert_eq!(told(&first, &seen), (Vec::new(), 0));
    let second = Events::default();
    assert_eq!(told(&second, &seen), (Vec::new(), 0));
    ["d", "e", "f", "g"].iter().for_each(|class| post(&second, class));
    assert_eq!(told(&second, &seen).0, ["d", "e", "f", "g"]);
    let page = second.tell(&seen, &[]);
    assert_ne!(page.teller, seen.teller);
    post(&second, "h");
    let seen = EventQuery { after: 4, teller: page.teller, clear: false };
    assert_eq!(told(&second, &seen), (vec!["h".to_owned()], 0));
}

/// Goal: dropped events are counted for a client that has seen earlier ones.
#[test]
fn forgotten_are_counted() {
    let events = Events::default();
    post(&events, "first");
    let teller = events.tell(&EventQuery::default(), &[]).teller;
    (0..poolhouse::tunables::ZEVENT_LEN_MAX.default() as usize + 10).for_each(|_| post(&events, "more"));
    let (classes, dropped) = told(&events, &EventQuery { after: 1, teller, clear: false });
    assert_eq!((classes.len(), dropped), (poolhouse::tunables::ZEVENT_LEN_MAX.default() as usize, 10));
}
