//! Increments that name only the objects that differ.

use std::collections::BTreeSet;
use std::path::Path;

use poolhouse::Pool;
use poolhouse::dsl::ops::bookmark::CreateBookmarks;
use poolhouse::ondisk::ObjNum;
use poolhouse::ondisk::replay::Record;
use poolhouse::stream::{Options, Origin, ReceiveOptions};

use crate::send::{compare, records};

const FILES: u64 = 120;
const ROUNDS: usize = 6;

fn create(dir: &Path) -> Pool {
    let image = dir.join("d");
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    Pool::create("d", &[&[&image]]).unwrap()
}

fn stream(pool: &Pool, round: usize, origin: Option<Origin>, only_differing: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    let options = Options { origin, only_differing, ..Options::default() };
    pool.dataset(&format!("d/fs@{round}")).unwrap().send(&options, &mut stream).unwrap();
    stream
}

fn receive(pool: &Pool, stream: &[u8], name: String) {
    let options = ReceiveOptions { name, force: true, ..ReceiveOptions::default() };
    assert_eq!(pool.receive(stream, &options).unwrap(), stream.len() as u64);
}

/// The objects that a stream makes or changes, and the numbers that it frees.
fn named(stream: &[u8]) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut objects, mut freed) = (BTreeSet::new(), BTreeSet::new());
    for (record, _) in records("d/fs", stream) {
        match record {
            Record::Object(object) => _ = objects.insert(object.object),
            // The last one frees all numbers behind the last block of dnodes.
            Record::FreeObjects(free) => freed.extend(free.first..(free.first + free.count).min(4096)),
            _ => {}
        }
    }
    (objects, freed)
}

/// The numbers of objects whose dnodes differ between two snapshots, and of those that are gone.
fn differing(pool: &Pool, from: &str, to: &str) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let [from, to] = [from, to].map(|name| pool.dataset(name).unwrap().dsl().objset().unwrap().unwrap());
    let all = |os: &poolhouse::dmu::Objset| -> BTreeSet<u64> {
        os.objects(ObjNum(1)).map(|dnode| dnode.unwrap().object().0).collect()
    };
    let (before, now) = (all(&from), all(&to));
    let phys = |os: &poolhouse::dmu::Objset, object: u64| os.dnode(ObjNum(object)).unwrap().phys().clone();
    let differs = |object: &&u64| !before.contains(object) || phys(&from, **object) != phys(&to, **object);
    (now.iter().filter(differs).copied().collect(), before.difference(&now).copied().collect())
}

/// Changes some of the files, with dnodes of this size for new ones.
fn change(pool: &Pool, round: usize, dnodesize: &str) {
    pool.set("d/fs", "dnodesize", dnodesize).unwrap();
    let fs = pool.dataset("d/fs").unwrap();
    for dice in testpools::noise(round as u64, 30).chunks(3) {
        let path = format!("/{}", u64::from(dice[0]) % FILES);
        if dice[1] % 4 == 0 {
            let _ = fs.remove(&path);
            continue;
        }
        let file = match fs.open_for_writing(&path) {
            Ok(file) if dice[1] % 4 == 1 => file,
            _ => fs.create_file(&path).unwrap(),
        };
        file.write_at(&testpools::noise(dice[2].into(), 3000), u64::from(dice[2]) << 12).unwrap();
        file.sync().unwrap();
    }
}

/// Goal: such an increment names each object that differs, and no other that is there. A receiver
/// has the same afterwards as with all of them. The origin may be a bookmark, or gone: then it
/// names all.
#[test]
fn only_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path());
    let fs = pool.create_filesystem("d/fs").unwrap();
    for n in 0..FILES {
        fs.create_file(format!("/{n}")).unwrap();
    }
    drop(fs);
    let mut fewer = 0;
    for round in 0..ROUNDS {
        if round > 0 {
            change(&pool, round, ["legacy", "1k", "2k"][round % 3]);
        }
        pool.snapshot(&format!("d/fs@{round}")).unwrap();
        let Some(before) = round.checked_sub(1) else {
            let whole = stream(&pool, round, None, true);
            ["all", "few"].iter().for_each(|to| receive(&pool, &whole, format!("d/{to}@0")));
            continue;
        };
        let [to, from] = [round, before].map(|round| pool.dataset(&format!("d/fs@{round}")).unwrap());
        let origin = Origin::of_snapshot(to.dsl(), from.dsl()).unwrap();
        let [all, few] = [false, true].map(|only| stream(&pool, round, Some(origin), only));
        let (want, gone) = differing(&pool, &from.name(), &to.name());
        let (objects, freed) = named(&few);
        assert_eq!(objects, want, "round {round}");
        assert!(freed.is_superset(&gone), "round {round}: {freed:?}, {gone:?}");
        assert!(freed.is_subset(&named(&all).1), "round {round}: {freed:?}");
        fewer += named(&all).0.len() - objects.len();
        receive(&pool, &all, format!("d/all@{round}"));
        receive(&pool, &few, format!("d/few@{round}"));
        let [all, few] = ["all", "few"].map(|name| {
            let mut bytes = Vec::new();
            let name = format!("d/{name}@{round}");
            pool.dataset(&name).unwrap().send(&Options::default(), &mut bytes).unwrap();
            records(&name, &bytes).split_off(1)
        });
        compare(&format!("round {round}"), &few, &all);
    }
    assert!(fewer > 100, "{fewer}");
    let last = ROUNDS - 1;
    let pairs = vec![("d/fs#mark".to_owned(), format!("d/fs@{}", last - 1))];
    pool.spa().writer().unwrap().run(Box::new(CreateBookmarks { pairs })).unwrap();
    let [to, head] = [format!("d/fs@{last}"), "d/fs".to_owned()].map(|name| pool.dataset(&name).unwrap());
    let mark = head.dsl().bookmark("mark").unwrap().unwrap();
    let origin = Origin::of_bookmark(to.dsl(), head.dsl(), &mark.phys).unwrap();
    let [all, few] = [false, true].map(|only| stream(&pool, last, Some(origin), only));
    assert_eq!(few, all);
    let from = pool.dataset(&format!("d/fs@{}", last - 1)).unwrap();
    let origin = Origin::of_snapshot(to.dsl(), from.dsl()).unwrap();
    assert!(stream(&pool, last, Some(origin), true).len() < all.len());
    pool.destroy(&from.name()).unwrap();
    assert_eq!(stream(&pool, last, Some(origin), true), all);
    pool.export().unwrap();
    testpools::judge(dir.path(), "d");
}
