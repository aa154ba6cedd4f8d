use super::*;

/// Waits until a thread waits at the site, then ends the hold.
fn until_waiting<G>(site: &'static Site, held: G) {
    while site.waiting.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    site.waiting.store(0, Relaxed);
    drop(held);
}

/// Goal: a lock of a free mutex counts nothing. A wait counts at the lock's site, with its time and
/// caller, for each lock of the site.
#[test]
fn waits_are_counted_by_site() {
    static HERE: Site = Site::new("observe test");
    let (one, other) = (Mutex::of(&HERE, 0), Mutex::of(&HERE, 0));
    *one.lock() += 1;
    assert_eq!(HERE.stat().wait_ns.count(), 0);
    assert!(lock_stats().iter().all(|s| s.name != "observe test"));
    let mut line = 0;
    for lock in [&one, &other] {
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                *lock.lock() += 1;
            });
            line = line!() - 2;
            until_waiting(&HERE, held);
            waiter.join().unwrap();
        });
    }
    let stat = lock_stats().into_iter().find(|s| s.name == "observe test").unwrap();
    assert_eq!((stat.wait_ns.count(), stat.total_ns > 0), (2, true));
    let expected = [(format!("observe/src/lock/tests.rs:{line}"), stat.wait_ns.clone())];
    assert_eq!(stat.callers, expected, "both waits are of one line");
    assert_eq!((*one.lock(), *other.lock()), (2, 1));
}

/// Goal: a lock without a named site belongs to the line that made it, also one that a derived
/// default made. Readers wait for writers, and writers for readers.
#[test]
fn waits_are_counted_by_line() {
    #[derive(Default)]
    struct Made {
        mutex: Mutex<u32>,
        lock: RwLock<u32>,
    }
    let (made, plain) = (Made::default(), RwLock::new(5));
    let line = line!() - 1;
    assert_eq!(plain.at.site().name, format!("observe/src/lock/tests.rs:{line}"));
    let file = "observe/src/lock/tests.rs:";
    assert!(made.mutex.at.site().name.starts_with(file), "{}", made.mutex.at.site().name);
    assert!(made.lock.at.site().name.starts_with(file), "{}", made.lock.at.site().name);
    assert!(std::ptr::eq(plain.at.site(), plain.at.site()), "a line has one site");
    let site = plain.at.site();
    std::thread::scope(|scope| {
        let held = plain.write();
        let waiter = scope.spawn(|| *plain.read());
        until_waiting(site, held);
        assert_eq!(waiter.join().unwrap(), 5);
        let held = plain.read();
        assert!(plain.try_read().is_some() && plain.try_write().is_none());
        let waiter = scope.spawn(|| *plain.write() += 1);
        until_waiting(site, held);
        waiter.join().unwrap();
    });
    let stat = site.stat();
    assert_eq!((stat.wait_ns.count(), stat.callers.len(), *plain.read()), (2, 2, 6));
}

/// Goal: a lock that the standard library made has the name of its type, so that two types are two
/// sites.
#[test]
fn made_by_the_library() {
    let (one, other) =
        (std::sync::Arc::<Mutex<Vec<u8>>>::default(), std::sync::Arc::<RwLock<u64>>::default());
    assert_eq!(one.at.site().name, "a lock of alloc::vec::Vec<u8>");
    assert_eq!(other.at.site().name, "a lock of u64");
    let mut map: HashMap<u8, Mutex<String>> = HashMap::new();
    let lock = map.entry(1).or_default();
    assert_eq!(lock.at.site().name, "a lock of alloc::string::String");
}
