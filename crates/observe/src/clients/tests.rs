use super::process::{Process, Thread};
use super::*;
use crate::ops::Op;
use std::time::Duration;

const EACCES: i32 = 13;

/// Processes that a test makes: by the numbers of their threads.
#[derive(Default)]
struct Fake {
    threads: Mutex<HashMap<u32, (Thread, Process)>>,
    looks: AtomicUsize,
}

impl Fake {
    /// A process, or a thread of it.
    fn set(&self, tid: u32, pid: u32, start: u64, name: &str) {
        let (name, cgroup) = (name.to_owned(), "/a".to_owned());
        let thread = Thread { name: name.clone(), start };
        self.threads.lock().insert(tid, (thread, Process { pid, start, name, cgroup }));
    }
}

impl Look for Arc<Fake> {
    fn thread(&self, tid: u32) -> Option<Thread> {
        self.looks.fetch_add(1, Relaxed);
        self.threads.lock().get(&tid).map(|(thread, _)| thread.clone())
    }

    fn process(&self, tid: u32, _: Thread) -> Option<Process> {
        self.threads.lock().get(&tid).map(|(_, process)| process.clone())
    }
}

/// Each number is a process of its own.
struct Endless;

impl Look for Endless {
    fn thread(&self, tid: u32) -> Option<Thread> {
        Some(Thread { name: String::new(), start: tid.into() })
    }

    fn process(&self, tid: u32, thread: Thread) -> Option<Process> {
        Some(Process { pid: tid, start: thread.start, ..Process::default() })
    }
}

fn made() -> (Clients, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    (Clients::new(Box::new(Arc::clone(&fake))), fake)
}

fn ended(op: Op, ns: u64, bytes: u64, failed: Option<i32>) -> Measured {
    Ended { op, began: Instant::now(), took: Duration::from_nanos(ns), bytes, failed }.measured()
}

/// An operation that begins so long after now that a client must be looked up again.
fn later(seconds: u64) -> Measured {
    let now = ended(Op::Mkdir, 1, 0, None);
    Measured { began: now.began + seconds * 1_000_000_000, ..now }
}

/// The client of a process with this begin.
fn of(clients: &Clients, pid: u32, start: u64, uid: u32) -> Option<Arc<Client>> {
    let who = Who::Process { pid, start, uid };
    clients.all().0.into_iter().find(|client| client.key.who == who)
}

fn count(clients: &Clients, pid: u32, start: u64) -> u64 {
    of(clients, pid, start, 0).map_or(0, |client| client.done().count())
}

/// How many operations all clients did, whether they have counters or not.
fn sum(clients: &Clients) -> u64 {
    let (all, others) = clients.all();
    all.iter().fold(others.count(), |sum, client| sum + client.done().count())
}

fn volume(name: &str) -> Key {
    let who = Who::Address([10, 0, 0, 7].into());
    Key { kind: Kind::Nbd, who, export: Some(name.into()), subject: None }
}

/// Goal: operations count for the process and user that did them, by kind, with bytes and errors.
/// The numbers are exact whichever threads count, and a process is looked up once.
#[test]
fn counts() {
    let (clients, fake) = made();
    fake.set(7, 7, 70, "cp");
    fake.set(8, 8, 80, "rm");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let memory = Memory::default();
                for _ in 0..1000 {
                    clients.count(&memory, 7, 5, &ended(Op::Read, 100, 4096, None));
                    clients.count(&memory, 7, 5, &ended(Op::Write, 300, 512, None));
                    clients.count(&memory, 7, 6, &ended(Op::Mkdir, 10, 0, None));
                    clients.count(&memory, 8, 5, &ended(Op::Unlink, 20, 0, Some(EACCES)));
                }
            });
        }
    });
    let done = of(&clients, 7, 70, 5).unwrap().done();
    let counted = |count, errors, ns| Counted { count, errors, ns };
    assert_eq!(done.ops, [(Op::Read, counted(4000, 0, 400_000)), (Op::Write, counted(4000, 0, 1_200_000))]);
    assert_eq!((done.read, done.written), (4000 * 4096, 4000 * 512));
    assert_eq!((done.reads.count(), done.writes.max, done.codes.len()), (4000, 300, 0));
    let done = of(&clients, 7, 70, 6).unwrap().done();
    assert_eq!((done.ops, done.max_ns), (vec![(Op::Mkdir, counted(4000, 0, 40_000))], 10));
    let rm = of(&clients, 8, 80, 5).unwrap();
    assert_eq!((rm.name().as_str(), rm.cgroup(), rm.connections()), ("rm", "/a", 0));
    let done = rm.done();
    assert_eq!(done.ops, [(Op::Unlink, counted(4000, 4000, 80_000))]);
    assert_eq!((done.codes, done.other_codes), (vec![(Op::Unlink, EACCES, 4000)], 0));
    // Each of the four threads may have looked before another one was done.
    assert!(fake.looks.load(Relaxed) <= 3 * 4);
}

/// Goal: the number of a process that ended, and is another one's now, does not count for the old
/// one. Between two looks the process is taken for the same.
#[test]
fn a_number_is_used_again() {
    let (clients, fake) = made();
    let (memory, other) = (Memory::default(), Memory::default());
    fake.set(7, 7, 70, "cp");
    clients.count(&memory, 7, 0, &later(0));
    clients.count(&other, 7, 0, &later(0));
    fake.set(7, 7, 71, "rm");
    clients.count(&memory, 7, 0, &later(0));
    assert_eq!((count(&clients, 7, 70), count(&clients, 7, 71)), (3, 0));
    clients.count(&memory, 7, 0, &later(2));
    assert_eq!((count(&clients, 7, 70), count(&clients, 7, 71)), (3, 1));
    // Another thread of this program remembers the old one.
    clients.count(&other, 7, 0, &later(2));
    assert_eq!((count(&clients, 7, 70), count(&clients, 7, 71)), (3, 2));
    assert_eq!(of(&clients, 7, 71, 0).unwrap().name(), "rm");
    // A process that ended before it could be looked up is none that is known.
    fake.threads.lock().clear();
    clients.count(&memory, 7, 0, &later(9));
    assert_eq!((count(&clients, 7, 71), count(&clients, 7, 0)), (2, 1));
}

/// Goal: a process that runs another program keeps its counters, under the new name.
#[test]
fn another_program() {
    let (clients, fake) = made();
    let memory = Memory::default();
    fake.set(7, 7, 70, "sh");
    clients.count(&memory, 7, 0, &later(0));
    fake.set(7, 7, 70, "ls");
    clients.count(&memory, 7, 0, &later(2));
    let client = of(&clients, 7, 70, 0).unwrap();
    assert_eq!((client.name().as_str(), client.done().count()), ("ls", 2));
}

/// Goal: threads of a process count together. What has no number is not looked up.
#[test]
fn threads_are_one_client() {
    let (clients, fake) = made();
    let memory = Memory::default();
    fake.set(7, 7, 70, "java");
    fake.threads.lock().insert(
        9,
        (
            Thread { name: "worker".to_owned(), start: 75 },
            Process { pid: 7, start: 70, name: "java".to_owned(), cgroup: String::new() },
        ),
    );
    for tid in [7, 9, 9, 7] {
        clients.count(&memory, tid, 0, &later(0));
    }
    clients.count(&memory, 9, 0, &later(2));
    let client = of(&clients, 7, 70, 0).unwrap();
    assert_eq!((client.done().count(), client.name().as_str()), (5, "java"));
    let looks = fake.looks.load(Relaxed);
    clients.count(&memory, 0, 0, &later(0));
    clients.count(&memory, 0, 0, &later(99));
    assert_eq!((count(&clients, 0, 0), fake.looks.load(Relaxed)), (2, looks));
}

/// Goal: when the table is full, those that did nothing for the longest time make room. What they
/// did is among the others, also what a thread still counts for one of them.
#[test]
fn makes_room() {
    let clients = Clients::new(Box::new(Endless));
    let (memory, held) = (Memory::default(), Memory::default());
    let connection = clients.connect(volume("p/v"));
    connection.count_measured(&ended(Op::Read, 5, 10, None));
    for tid in 1..=KEPT as u32 {
        clients.count(&memory, tid, 0, &later(0));
    }
    let first = of(&clients, ROOM as u32 + 1, ROOM as u64 + 1, 0).map(|client| client.number());
    assert!(first.is_some());
    let (all, others) = clients.all();
    // One had no place beside the connection.
    assert_eq!((all.len(), others.count()), (KEPT - ROOM + 1, ROOM as u64));
    assert_eq!((count(&clients, ROOM as u32, ROOM as u64), sum(&clients)), (0, KEPT as u64 + 1));
    drop(all);
    // This thread remembers a client that retires now.
    let of_held = ROOM as u32 + 1;
    clients.count(&held, of_held, 0, &later(0));
    let kept = of(&clients, of_held, of_held.into(), 0).unwrap();
    kept.last.store(0, Relaxed);
    for tid in KEPT as u32 + 1..=(KEPT + ROOM) as u32 {
        clients.count(&memory, tid, 0, &later(0));
    }
    assert!(of(&clients, of_held, of_held.into(), 0).is_none() && kept.is_retired());
    let before = sum(&clients);
    kept.count(&later(0));
    assert_eq!(sum(&clients), before + 1, "it is still counted");
    drop(kept);
    clients.count(&held, of_held, 0, &later(0));
    assert_eq!(sum(&clients), before + 2);
    let again = of(&clients, of_held, of_held.into(), 0).unwrap();
    assert_ne!(Some(again.number()), first);
    assert_eq!((again.done().count(), clients.table.lock().retired.len()), (1, 0));
    let (all, _) = clients.all();
    let volume = all.iter().find(|client| client.key.kind == Kind::Nbd).unwrap();
    assert_eq!((volume.done().read, volume.connections()), (10, 1));
}

/// Goal: no operation is lost while clients come and go under many threads.
#[test]
fn loses_nothing() {
    const EACH: u32 = 3 * KEPT as u32;
    let clients = Clients::new(Box::new(Endless));
    std::thread::scope(|scope| {
        for part in 0..4 {
            let clients = &clients;
            scope.spawn(move || {
                let memory = Memory::default();
                for n in 0..EACH {
                    // All threads count for some clients, and this one alone for others.
                    let tid = if n % 2 == 0 { 1 + n % 40 } else { 1000 + part * EACH + n };
                    clients.count(&memory, tid, 0, &ended(Op::Read, 64, 3, None));
                }
            });
        }
    });
    let (all, mut others) = clients.all();
    all.iter().for_each(|client| others.merge(&client.done()));
    let total = u64::from(4 * EACH);
    assert_eq!((others.count(), others.read, others.reads.sum), (total, 3 * total, 64 * total));
    assert!(all.len() <= KEPT);
    drop(all);
    assert!(clients.table.lock().retired.len() <= 4 * REMEMBERED);
}

/// Goal: clients with connections are not evicted. Beyond the limit, they count together, and one
/// of a process gets counters when there is room.
#[test]
fn all_are_in_use() {
    let (clients, fake) = made();
    fake.set(7, 7, 70, "cp");
    let mut connections: Vec<Connection> =
        (0..KEPT).map(|n| clients.connect(volume(&format!("p/{n}")))).collect();
    let crowded = clients.connect(volume("p/more"));
    crowded.count_measured(&ended(Op::Write, 1, 7, None));
    let memory = Memory::default();
    clients.count(&memory, 7, 0, &later(0));
    let (all, others) = clients.all();
    assert_eq!((all.len(), others.written, others.count()), (KEPT, 7, 2));
    connections.truncate(KEPT / 2);
    clients.count(&memory, 7, 0, &later(2));
    assert_eq!((count(&clients, 7, 70), sum(&clients)), (1, 3));
    // Two connections of one client count together.
    let again = clients.connect(volume("p/0"));
    assert_eq!((again.number(), again.0.connections()), (connections[0].number(), 2));
    let number = again.number();
    assert_eq!(clients.by_number(number).map(|client| client.key.clone()), Some(volume("p/0")));
    assert!(clients.by_number(next_number()).is_none());
}

/// Goal: requests of a user count for it, whichever process sends them.
#[test]
fn users() {
    let (clients, _) = made();
    for failed in [None, Some(0), None] {
        clients.count_of_user(1000, &ended(Op::Unknown, 1, 0, failed));
    }
    let (all, _) = clients.all();
    assert_eq!((all.len(), all[0].key.who.clone()), (1, Who::User(1000)));
    let done = all[0].done();
    assert_eq!((done.count(), done.codes), (3, vec![(Op::Unknown, 0, 1)]));
}
