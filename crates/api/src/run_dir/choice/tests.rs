use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

fn candidate(parent: &Path, crowded: bool) -> Candidate {
    Candidate { parent: parent.to_owned(), name: "poolhouse-1".into(), shared: false, crowded }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder where all users may create files.
fn crowd() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// Goal: the first writable candidate is chosen, and the earlier ones are named with their reasons.
/// The trial leaves nothing behind.
#[test]
fn chooses_the_first_that_can_be_written() {
    let (gone, file, good) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let absent = gone.path().join("none");
    fs::write(file.path().join("poolhouse-1"), "").unwrap();
    let all = [candidate(&absent, false), candidate(file.path(), false), candidate(good.path(), false)];
    let choice = choose_among(&all).unwrap();
    let passed = choice.passed();
    assert!(passed[0].contains("none/poolhouse-1: No such file"), "{passed:?}");
    assert!(passed[1].ends_with("is no folder"), "{passed:?}");
    assert_eq!(passed.len(), 2);
    assert_eq!(fs::read_dir(good.path()).unwrap().count(), 0);
    let place = choice.make().unwrap();
    assert_eq!(place.dir(), good.path().join("poolhouse-1"));
    assert_eq!(fs::metadata(place.dir()).unwrap().mode() & 0o7777, 0o700);
    // An existing folder is chosen again, and the trial leaves nothing in it.
    assert_eq!(choose_among(&all).unwrap().make().unwrap(), place);
    assert_eq!(fs::read_dir(place.dir()).unwrap().count(), 0);
    let nowhere = choose_among(&all[..2]).unwrap_err().to_string();
    assert!(nowhere.contains("is no folder; set POOLHOUSE_RUN_DIR"), "{nowhere}");
}

/// Goal: another user can't block the wanted name in a shared folder. The daemon gets another name
/// there and finds it again, even when the other user's object has disappeared.
#[test]
fn a_stranger_locks_nobody_out() {
    let dir = crowd();
    let taken = dir.path().join("poolhouse-1");
    let all = [candidate(dir.path(), true)];
    let mut strangers: Vec<Box<dyn Fn()>> = vec![
        Box::new(|| fs::write(&taken, "").unwrap()),
        Box::new(|| std::os::unix::fs::symlink("/nonexistent", &taken).unwrap()),
    ];
    if is_root() {
        strangers.push(Box::new(|| {
            fs::create_dir(&taken).unwrap();
            std::os::unix::fs::chown(&taken, Some(7), None).unwrap();
        }));
    }
    let mut first = None;
    for stranger in strangers {
        stranger();
        let choice = choose_among(&all).unwrap();
        assert!(!choice.passed().is_empty());
        let place = choice.make().unwrap();
        assert_eq!(*first.get_or_insert(place.clone()), place);
        fs::remove_file(&taken).or_else(|_| fs::remove_dir(&taken)).unwrap();
        assert_eq!(choose_among(&all).unwrap().make().unwrap(), place);
    }
    // Another user's folder with a suffix is not mistaken for this user's.
    if is_root() {
        let lure = dir.path().join("poolhouse-1.00000000");
        fs::create_dir(&lure).unwrap();
        std::os::unix::fs::chown(&lure, Some(7), None).unwrap();
        let chosen = choose_among(&all).unwrap().make().unwrap();
        assert_ne!(chosen.dir(), lure);
        assert_eq!(Some(chosen), first);
    }
}

/// Goal: nothing is created in a folder where all users may rename files, or where a socket's path
/// would be too long.
#[test]
fn passes_what_is_no_place_for_sockets() {
    let dir = crowd();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let loose = choose_among(&[candidate(dir.path(), true)]).unwrap_err().to_string();
    assert!(loose.contains("without the sticky bit"), "{loose}");
    let long = dir.path().join("n".repeat(90));
    fs::create_dir(&long).unwrap();
    let long = choose_among(&[candidate(&long, false)]).unwrap_err().to_string();
    assert!(long.contains("too long for a socket"), "{long}");
}

/// Goal: commands find a daemon in a later candidate, and so does a daemon that begins in an
/// earlier one.
#[test]
fn one_daemon_in_several_candidates() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let all = dirs.each_ref().map(|dir| candidate(dir.path(), false));
    let [first, second] =
        all.each_ref().map(|one| choose_among(std::slice::from_ref(one)).unwrap().make().unwrap());
    let (turn, other) = take_turn_among(&second, &all).unwrap();
    assert_eq!(other, None);
    let lock = second.lock_daemon().unwrap().expect("it is free");
    let socket = std::os::unix::net::UnixListener::bind(second.socket()).unwrap();
    drop(turn);
    let (_, running) = running_among(&all).unwrap().expect("it listens");
    assert_eq!(running, second);
    let (_turn, other) = take_turn_among(&first, &all).unwrap();
    assert_eq!(other, Some(second.clone()));
    drop((lock, socket));
    drop(_turn);
    assert_eq!(take_turn_among(&first, &all).unwrap().1, None);
    assert!(running_among(&all).unwrap().is_none());
}

/// Goal: of daemons that begin at the same time in different candidates, one serves, whichever
/// folders exist before.
#[test]
fn daemons_that_begin_at_one_time_meet() {
    for _ in 0..50 {
        let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        let all: Vec<Candidate> = dirs.iter().map(|dir| candidate(dir.path(), false)).collect();
        let gate = std::sync::Barrier::new(all.len());
        let begin = |own: &Candidate| {
            gate.wait();
            let place = choose_among(std::slice::from_ref(own)).unwrap().make().unwrap();
            let (_turn, other) = take_turn_among(&place, &all).unwrap();
            if other.is_some() { None } else { place.lock_daemon().unwrap() }
        };
        let serve: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = all.iter().map(|own| scope.spawn(|| begin(own))).collect();
            all.into_iter().filter_map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(serve.len(), 1);
    }
}

/// Goal: the candidates are those of the documentation. Root of a namespace has others than the
/// user outside.
#[test]
fn candidates_by_user() {
    let names = |who: Who| -> Vec<String> {
        let all = who.candidates();
        all.iter().map(|one| one.place(&one.name).dir.display().to_string()).collect()
    };
    let root = Who { runtime: Some("/home/u".into()), temporary: Some("/home/t".into()), ..Who::default() };
    let of_root = ["/run/poolhouse", "/tmp/poolhouse-0", "/var/tmp/poolhouse-0", "/dev/shm/poolhouse-0"];
    assert_eq!(names(root.clone()), of_root);
    let inside = names(Who { namespace: Some(17), ..root.clone() });
    assert_eq!(inside[..3], ["/run/poolhouse", "/home/u/poolhouse-ns17", "/home/t/poolhouse-ns17"]);
    let user = names(Who { uid: 61_013, temporary: None, ..root.clone() });
    assert_eq!(user[..2], ["/home/u/poolhouse", "/tmp/poolhouse-61013"]);
    let elsewhere = names(Who { uid: 61_013, runtime: None, ..root });
    assert_eq!(elsewhere[..2], ["/home/t/poolhouse-61013", "/tmp/poolhouse-61013"]);
}
