//! The estimate of what destroying snapshots frees, and what it does free.

use dsl::ops::destroy::DestroySnapshots;
use dsl::ops::snapshot::Snapshot;
use ondisk::ObjNum;
use spa::create::VdevShape;
use spa::engine::PoolWriter;
use testpools::{file_system, new_pool, noise, own, remove_file, write_file};

const COUNT: usize = 9;

fn name(n: usize) -> String {
    format!("tank/a@s{n}")
}

/// Bytes that the dataset uses.
fn used(live: &PoolWriter) -> u64 {
    live.sync_all().unwrap();
    live.dsl().dataset("tank/a").unwrap().dir().phys().used_bytes
}

/// The estimate for these snapshots: the sum over their contiguous runs.
fn promised(live: &PoolWriter, there: &[usize], chosen: &[usize]) -> u64 {
    let mut sum = 0;
    for run in there.chunk_by(|a, b| chosen.contains(a) == chosen.contains(b)) {
        if !chosen.contains(&run[0]) {
            continue;
        }
        let [first, last] = [run[0], run[run.len() - 1]].map(|n| live.dsl().dataset(&name(n)).unwrap());
        sum += first.would_free(&last).unwrap().unwrap();
        if run.len() > 1 {
            assert_eq!(last.would_free(&first).unwrap(), None, "not before one another");
        }
    }
    sum
}

/// Goal: for files that live through any number of snapshots, the estimate for any list of
/// snapshots is what their destruction frees, to the byte.
#[test]
fn what_is_promised_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 512 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let owned = own(live, "tank/a");
    // One file for each pair of snapshots between which it lives.
    let mut files: Vec<(usize, ObjNum)> = Vec::new();
    for now in 0..COUNT {
        for (last, object) in &files {
            if *last == now {
                remove_file(live, &owned, *object).unwrap();
            }
        }
        for last in now + 1..=COUNT {
            let bytes = noise((now * 64 + last) as u64, 1 << (14 + (now + last) % 3));
            files.push((last, write_file(live, &owned, &bytes).unwrap()));
        }
        live.sync_all().unwrap();
        live.run(Box::new(Snapshot { names: vec![name(now)], ..Snapshot::default() })).unwrap();
    }
    for (_, object) in files.iter().filter(|(last, _)| *last == COUNT) {
        remove_file(live, &owned, *object).unwrap();
    }
    drop(owned);
    let mut there: Vec<usize> = (0..COUNT).collect();
    for chosen in [vec![3], vec![1, 2], vec![0, 5, 8], vec![4, 6, 7]] {
        let before = used(live);
        let promise = promised(live, &there, &chosen);
        assert!(promise > 0, "{chosen:?}");
        let names = chosen.iter().map(|n| name(*n)).collect();
        live.run(Box::new(DestroySnapshots { names, defer: false })).unwrap();
        assert_eq!(before - used(live), promise, "{chosen:?}");
        there.retain(|n| !chosen.contains(n));
    }
    live.export().unwrap();
    drop(spa);
    testpools::judge(dir.path(), "tank");
}
