//! Queries to devices that may not respond.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use spa::tunables::PROBE_TIMEOUT;
use spa::{ask_each as each, silent};

/// A barrier at which queries wait until it is opened.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    opened: Condvar,
    entered: AtomicUsize,
}

impl Door {
    fn pass(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Goal: devices that respond are reported despite others that hang, even if more hang than there
/// are threads.
///
/// A second query starts no thread for a device that still hangs. Once the devices respond, they
/// are reported again.
#[test]
fn hang() {
    PROBE_TIMEOUT.set(300);
    let door = Arc::new(Door::default());
    let paths: Vec<PathBuf> = (0..60).map(|n| PathBuf::from(format!("/ask/{n}"))).collect();
    let hangs = |path: &Path| path.to_string_lossy().ends_with('3') || path.to_string_lossy().len() == 6;
    let shared = Arc::clone(&door);
    let ask = move || {
        let door = Arc::clone(&shared);
        each(&paths, move |path| {
            if hangs(path) {
                door.pass();
            }
            path.to_owned()
        })
    };
    let check = |answers: &[Option<PathBuf>]| {
        for (n, answer) in answers.iter().enumerate() {
            let path = PathBuf::from(format!("/ask/{n}"));
            assert_eq!(*answer, (!hangs(&path)).then(|| path.clone()), "{n}");
            assert_eq!(silent([&*path]).len(), usize::from(hangs(&path)), "{n}");
        }
    };
    check(&ask());
    let hung = door.entered.load(Ordering::SeqCst);
    assert_eq!(hung, 15);
    check(&ask());
    assert_eq!(door.entered.load(Ordering::SeqCst), hung, "they are not asked again");
    door.open();
    while silent((0..60).map(|n| PathBuf::from(format!("/ask/{n}"))).collect::<Vec<_>>().iter().map(|p| &**p))
        != Vec::<PathBuf>::new()
    {
        std::thread::yield_now();
    }
    assert!(ask().iter().all(Option::is_some));
}
