//! Models of the cache's concurrency, run under many interleavings by a model checker (`shuttle`).
//!
//! * The multilist, with concurrent pushes, takes and reports of stale items.
//! * Threads that wait for memory, with the evictor that frees it.
//! * Hits on compressed blocks, with a thread that releases their plain forms.
//!
//! The modules are the crate's own. Their locks are the checker's.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

/// The checker's locks, with the interfaces that the crate uses.
mod sync {
    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    /// A guard that a condition variable can take and put back.
    pub(crate) struct Guard<'a, T>(Option<MutexGuard<'a, T>>);

    impl<T> std::ops::Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> std::ops::DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut Guard<'_, T>) {
            guard.0 = Some(self.0.wait(guard.0.take().unwrap()).unwrap());
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../src/multilist.rs"]
mod multilist;
#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../src/pressure.rs"]
mod pressure;

#[allow(dead_code, reason = "the models use a part of it")]
#[path = "../src/forms.rs"]
mod forms;

use forms::{Form, Forms};
use multilist::Multilist;
use pressure::{Pressure, Reserved};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

/// Schedules that the checker tries for each model.
const TRIES: usize = 1000;

/// Goal: a multilist returns each live item exactly once, under concurrent pushes, takes and
/// reports of stale items. No stale item is left at the end.
#[test]
fn multilist_loses_nothing() {
    shuttle::check_random(
        || {
            let list = Arc::new(Multilist::<Arc<AtomicU64>>::new(2));
            let items: Vec<_> = (0..64).map(|_| Arc::new(AtomicU64::new(0))).collect();
            let out = Arc::new(Mutex::new(Vec::new()));
            let mut threads = Vec::new();
            for half in 0..2 {
                let (list, items) = (list.clone(), items[half * 32..half * 32 + 32].to_vec());
                threads.push(thread::spawn(move || {
                    for (n, item) in items.iter().enumerate() {
                        list.push(n % 2, item.clone());
                        // Two of three items become stale.
                        if n % 3 != 0 {
                            item.store(1, Ordering::SeqCst);
                            list.note_stale(n % 2, |i| i.load(Ordering::SeqCst) == 1);
                        }
                    }
                }));
            }
            let (taker, to) = (list.clone(), out.clone());
            threads.push(thread::spawn(move || {
                let mut taken = Vec::new();
                for n in 0..6 {
                    taker.take(n % 2, 3, &mut taken);
                }
                to.lock().unwrap().append(&mut taken);
            }));
            threads.into_iter().for_each(|t| t.join().unwrap());
            let mut taken = std::mem::take(&mut *out.lock().unwrap());
            (0..2).for_each(|sublist| list.take(sublist, 100, &mut taken));
            assert_eq!(list.evenness().all, 0);
            for item in &items {
                let times = taken.iter().filter(|t| Arc::ptr_eq(t, item)).count();
                let stale = item.load(Ordering::SeqCst) == 1;
                assert!(times == 1 || stale && times == 0, "taken {times} times");
            }
        },
        TRIES,
    );
}

/// Goal: each thread that waits for memory gets an answer, and the size never exceeds the limit.
///
/// The memory that the evictor frees goes to the waiting threads. The evictor ends when the
/// pressure is closed.
#[test]
fn nobody_waits_for_ever() {
    shuttle::check_random(
        || {
            let pressure = Arc::new(Pressure::new(8, 6));
            // The bytes that can be evicted.
            let held = Arc::new(Mutex::new(0u64));
            let evictor = {
                let (pressure, held) = (pressure.clone(), held.clone());
                thread::spawn(move || {
                    while pressure.await_work() {
                        while pressure.size() > pressure.low() {
                            let mut held = held.lock().unwrap();
                            if *held == 0 {
                                break;
                            }
                            let some = (*held).min(2);
                            *held -= some;
                            pressure.give(some);
                            drop(held);
                            pressure.hint();
                        }
                        pressure.end_round();
                    }
                })
            };
            let users: Vec<_> = (0..3)
                .map(|user| {
                    let (pressure, held) = (pressure.clone(), held.clone());
                    thread::spawn(move || {
                        for n in 0..3 {
                            let bytes = 1 + (user + n) % 3;
                            if pressure.take(bytes, || true) != Reserved::No {
                                assert!(pressure.size() <= 8);
                                *held.lock().unwrap() += bytes;
                            }
                        }
                    })
                })
                .collect();
            users.into_iter().for_each(|t| t.join().unwrap());
            pressure.await_round();
            assert!(pressure.size() <= 6, "room is made down to the mark");
            assert_eq!(*held.lock().unwrap(), pressure.size());
            pressure.close();
            evictor.join().unwrap();
        },
        TRIES,
    );
}

/// Goal: a request for more memory than can be freed is refused. A request that waits at the close
/// is refused too.
#[test]
fn who_can_get_none_goes_without() {
    shuttle::check_random(
        || {
            let pressure = Arc::new(Pressure::new(4, 2));
            assert_eq!(pressure.take(4, || true), Reserved::Yes);
            assert_eq!(pressure.take(5, || true), Reserved::No, "more than the limit");
            let evictor = {
                let pressure = pressure.clone();
                // This evictor frees nothing.
                thread::spawn(move || {
                    while pressure.await_work() {
                        pressure.end_round();
                    }
                })
            };
            let user = {
                let pressure = pressure.clone();
                thread::spawn(move || assert_eq!(pressure.take(1, || true), Reserved::No))
            };
            let closer = {
                let pressure = pressure.clone();
                thread::spawn(move || pressure.close())
            };
            for t in [user, closer, evictor] {
                t.join().unwrap();
            }
            assert_eq!(pressure.size(), 4);
        },
        TRIES,
    );
}

/// Bytes of a block in each of its forms.
const PLAIN: u64 = 4;
const PACKED: u64 = 2;

/// Goal: hits unpack a block and store its plain form again, while a second thread releases plain
/// forms and a third evicts the block.
///
/// * Each hit gets the block or nothing, never a wrong block.
/// * An evicted block stays evicted.
/// * The taken size equals the size of the stored forms at the end. It never exceeds the limit.
#[test]
fn forms_are_paid_for() {
    shuttle::check_random(
        || {
            let room = Arc::new(Pressure::new(PLAIN + PACKED, PACKED));
            let forms = Arc::new(Forms::new("plain", Some("packed")));
            assert!(room.try_take(PLAIN + PACKED));
            let hit = |forms: Arc<Forms<&'static str>>, room: Arc<Pressure>| {
                thread::spawn(move || {
                    let mut gone = false;
                    for _ in 0..3 {
                        match forms.get() {
                            Form::Plain(plain) => assert!(plain == "plain" && !gone),
                            Form::Packed(packed) => {
                                assert!(packed == "packed" && !gone);
                                if room.try_take(PLAIN) && !forms.warm(&"plain") {
                                    room.give(PLAIN);
                                }
                            }
                            Form::Nothing => gone = true,
                        }
                        assert!(room.size() <= PLAIN + PACKED);
                    }
                })
            };
            let cool = |forms: Arc<Forms<&'static str>>, room: Arc<Pressure>| {
                thread::spawn(move || {
                    for _ in 0..3 {
                        if forms.cool().is_some() {
                            room.give(PLAIN);
                        }
                    }
                })
            };
            let evict = |forms: Arc<Forms<&'static str>>, room: Arc<Pressure>| {
                thread::spawn(move || {
                    let held = forms.give_up();
                    room.give(held.plain.map_or(0, |_| PLAIN) + held.packed.map_or(0, |_| PACKED));
                })
            };
            let evicts = shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5);
            let mut threads = vec![hit(forms.clone(), room.clone()), hit(forms.clone(), room.clone())];
            threads.push(cool(forms.clone(), room.clone()));
            if evicts {
                threads.push(evict(forms.clone(), room.clone()));
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
            let held = match forms.get() {
                Form::Plain(_) => PLAIN + PACKED,
                Form::Packed(_) => PACKED,
                Form::Nothing => 0,
            };
            assert_eq!(room.size(), held);
            assert_eq!(held == 0, evicts);
        },
        TRIES,
    );
}
