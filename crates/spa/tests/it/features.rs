//! Pools that OpenZFS wrote with features whose state a writer must maintain. They are changed
//! here, and OpenZFS's `zdb` checks them.

use dsl::ops::clone::Clone as CloneTask;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::{ListOptions, SyncTask};
use ondisk::feature::Feature;
use ondisk::{DmuType, ObjNum};
use spa::Spa;
use spa::engine::PoolWriter;
use testpools::{import, judge, noise, own, read_file, write_file};

fn users(spa: &Spa, name: &str) -> u64 {
    spa.mos().feature_refcount(Feature::by_name(name).unwrap()).unwrap().unwrap_or(0)
}

fn run(live: &PoolWriter, task: impl SyncTask + Send + 'static) {
    live.run(Box::new(task)).unwrap();
}

/// The snapshots of a pool, in the order of the listing.
fn snapshots(live: &PoolWriter) -> Vec<String> {
    let listed =
        live.dsl().list_sorted(None, &ListOptions { snapshots: true, ..Default::default() }).unwrap();
    listed.datasets.iter().map(dsl::Dataset::name).filter(|n| n.contains('@')).collect()
}

fn snapshot(name: String) -> Snapshot {
    Snapshot { names: vec![name], props: Vec::new(), enforce_limits: false }
}

/// Frees every other file of a head, so that older blocks are freed.
fn thin_out(live: &PoolWriter, name: &str) {
    let owned = own(live, name);
    let files: Vec<ObjNum> = owned
        .objset()
        .objects(ObjNum(1))
        .map(|d| d.unwrap())
        .filter(|d| d.kind() == DmuType::PLAIN_FILE_CONTENTS)
        .map(|d| d.object())
        .collect();
    assert!(!files.is_empty());
    for file in files.iter().step_by(2) {
        testpools::remove_file(live, &owned, *file).unwrap();
    }
    live.sync_all().unwrap();
}

/// As [`judge`], without `zdb -d`, which hangs on these pools also as OpenZFS left them.
fn judge_blocks(dir: &std::path::Path, pool: &str) {
    if let Some(blocks) = testpools::ask(dir, pool, &["-bcc"]) {
        assert!(blocks.contains("No leaks"), "{blocks}");
    }
}

/// Goal: a pool with removed devices can be changed. Blocks on these devices are freed, heads are
/// written, and snapshots are created, destroyed and rolled back to.
///
/// The obsolete bytes of the mappings are counted exactly, as `zdb` confirms.
#[test]
fn removed_devices() {
    let Some(fixture) = testkit::find("removed-vdev") else { return };
    let copy = fixture.copy();
    let dir = copy.dir();
    let pool = "removed-vdev";
    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    let before = snapshots(live);
    assert!(!before.is_empty());
    run(live, snapshot(format!("{pool}@ours")));
    live.export().unwrap();
    drop(spa);
    judge(dir, pool);

    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    thin_out(live, pool);
    let owned = own(live, pool);
    let file = write_file(live, &owned, &noise(3, 1 << 20)).unwrap();
    live.sync_all().unwrap();
    assert_eq!(read_file(&owned, file, 1 << 20), noise(3, 1 << 20));
    drop(owned);
    live.export().unwrap();
    drop(spa);
    judge(dir, pool);

    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    run(
        live,
        CloneTask {
            name: format!("{pool}/c"),
            origin: format!("{pool}@ours"),
            props: Vec::new(),
            enforce_limits: false,
        },
    );
    run(live, Rollback { name: pool.to_owned(), to: None });
    run(live, DestroyHead { name: format!("{pool}/c") });
    for name in before.iter().chain([&format!("{pool}@ours")]) {
        run(live, DestroySnapshots { names: vec![name.clone()], defer: false });
        live.sync_all().unwrap();
    }
    live.export().unwrap();
    drop(spa);
    judge(dir, pool);

    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    thin_out(live, pool);
    assert!(users(&spa, "obsolete_counts") > 0 && users(&spa, "device_removal") > 0);
    live.export().unwrap();
    drop(spa);
    judge(dir, pool);
}

/// Goal: an expanded raidz is written in its new geometry, and blocks of the old geometry are
/// freed.
#[test]
fn expanded_raidz() {
    let Some(fixture) = testkit::find("raidz-expanded") else { return };
    let copy = fixture.copy();
    let (dir, pool) = (copy.dir(), fixture.pool());
    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    live.run(testpools::file_system(&format!("{pool}/ours"), Vec::new())).unwrap();
    let owned = own(live, &format!("{pool}/ours"));
    let file = write_file(live, &owned, &noise(5, 3_000_000)).unwrap();
    live.sync_all().unwrap();
    drop(owned);
    thin_out(live, pool);
    live.export().unwrap();
    drop(spa);
    judge(dir, pool);
    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    assert_eq!(read_file(&own(live, &format!("{pool}/ours")), file, 3_000_000), noise(5, 3_000_000));
    live.export().unwrap();
}

/// Goal: redaction bookmarks and redacted datasets stay unchanged while the pool around them is
/// changed, and are destroyed with their datasets.
#[test]
fn redaction() {
    for (name, feature) in [("send-src", "redaction_bookmarks"), ("send-partial", "redacted_datasets")] {
        let Some(fixture) = testkit::find(name) else { continue };
        let copy = fixture.copy();
        let (dir, pool) = (copy.dir(), fixture.pool());
        let spa = import(dir).unwrap();
        let live = spa.writer().unwrap();
        let had = users(&spa, feature);
        assert!(had > 0);
        live.run(testpools::file_system(&format!("{pool}/ours"), Vec::new())).unwrap();
        live.export().unwrap();
        drop(spa);
        judge_blocks(dir, pool);
        let spa = import(dir).unwrap();
        let live = spa.writer().unwrap();
        assert_eq!(users(&spa, feature), had);
        match name {
            "send-src" => {
                let heads = live.dsl().list_sorted(None, &ListOptions::default()).unwrap().datasets;
                let marks = |d: &dsl::Dataset| {
                    let all = d.bookmarks().unwrap();
                    all.iter().map(|b| format!("{}#{}", d.name(), b.name)).collect::<Vec<_>>()
                };
                let names: Vec<String> = heads.iter().flat_map(marks).collect();
                assert!(!names.is_empty());
                run(live, dsl::ops::bookmark::DestroyBookmarks { names });
            }
            _ => {
                run(live, snapshot(format!("{pool}/red@ours")));
                assert_eq!(users(&spa, feature), had + 1);
                for snap in snapshots(live).into_iter().filter(|s| s.starts_with(&format!("{pool}/red@"))) {
                    run(live, DestroySnapshots { names: vec![snap], defer: false });
                }
                run(live, DestroyHead { name: format!("{pool}/red") });
            }
        }
        live.sync_all().unwrap();
        assert_eq!(users(&spa, feature), 0, "{name}");
        live.export().unwrap();
        drop(spa);
        judge_blocks(dir, pool);
    }
}
