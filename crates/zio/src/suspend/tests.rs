//! Which threads wait, fail, or continue.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn attended(mode: FailMode) -> (Arc<Suspension>, Arc<AtomicUsize>) {
    let (suspension, told) = (Arc::new(Suspension::default()), Arc::new(AtomicUsize::new(0)));
    let count = told.clone();
    suspension.attend(
        "tank",
        mode,
        Box::new(move || {
            count.fetch_add(1, Relaxed);
        }),
    );
    (suspension, told)
}

/// Goal: a pool without an attendant is never suspended, and a thread that would wait for it gives
/// up at once.
#[test]
fn nobody_attends() {
    let suspension = Suspension::default();
    assert!(!suspension.wait(Reason::Io));
    assert_eq!((suspension.reason(), suspension.entry(), suspension.pass()), (None, Entry::Free, true));
}

/// Goal: a sleeper continues when the pool is cleared, and gives up when the attendance ends. The
/// listener is called for each.
#[test]
fn sleepers_wake() {
    for cleared in [true, false] {
        let (suspension, told) = attended(FailMode::Wait);
        let sleeper = std::thread::spawn({
            let suspension = suspension.clone();
            move || suspension.wait(Reason::Io)
        });
        while suspension.reason().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(suspension.entry(), Entry::Wait);
        if cleared {
            suspension.clear()
        } else {
            suspension.let_go()
        }
        assert_eq!(sleeper.join().unwrap(), cleared);
        assert_eq!((suspension.reason().is_none(), told.load(Relaxed)), (cleared, 2));
    }
}

/// Goal: with `failmode=continue` changes are refused while the pool is suspended, and the mode can
/// be changed meanwhile.
#[test]
fn changes_are_refused() {
    let (suspension, _) = attended(FailMode::Continue);
    suspension.suspend(Reason::Mmp);
    assert_eq!(suspension.entry(), Entry::Refused(Suspended { reason: Reason::Mmp }));
    suspension.set_mode(FailMode::Wait);
    assert_eq!((suspension.entry(), suspension.mode()), (Entry::Wait, FailMode::Wait));
    suspension.suspend(Reason::Io);
    assert_eq!(suspension.reason(), Some(Reason::Mmp), "the first reason stands");
    suspension.clear();
    assert_eq!(suspension.entry(), Entry::Free);
}

/// Goal: with `failmode=panic` the process ends, with a message that names the pool.
#[test]
fn the_process_ends() {
    const CHILD: &str = "POOLHOUSE_TEST_SUSPEND_CHILD";
    if std::env::var_os(CHILD).is_some() {
        attended(FailMode::Panic).0.suspend(Reason::Io);
        return;
    }
    let me = std::env::current_exe().unwrap();
    let test = ["--exact", "suspend::tests::the_process_ends", "--nocapture"];
    let out = std::process::Command::new(me).args(test).env(CHILD, "1").output().unwrap();
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && words.contains("Pool 'tank' has encountered an uncorrectable"),
        "{words}"
    );
}
