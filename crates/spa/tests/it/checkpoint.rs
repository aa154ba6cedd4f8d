//! Checkpoints of pools that are written. OpenZFS's `zdb` checks them if it is available.

use std::path::Path;

use ondisk::ObjNum;
use spa::Spa;
use spa::create::VdevShape;
use spa::engine::{CheckpointError, PoolWriter, ShapeError};
use spa::import::Options;
use testpools::{
    ask, images, import, import_as, judge, new_pool, noise, own, read_file, remove_file, write_file,
};

fn close(spa: Spa) {
    spa.writer().unwrap().export().unwrap();
}

/// Runs `zdb` on the state of the checkpoint, which must be as consistent as the current state.
fn judge_checkpoint(dir: &Path) {
    if let Some(out) = ask(dir, "tank", &["-k", "-bcc"]) {
        assert!(out.contains("No leaks"), "{out}");
    }
}

/// Writes one file for each seed.
fn fill(live: &PoolWriter, seeds: std::ops::Range<u64>) -> Vec<ObjNum> {
    let owned = own(live, "tank/a");
    let made = seeds.map(|seed| write_file(live, &owned, &noise(seed, 1 << 20)).unwrap()).collect();
    live.sync_all().unwrap();
    made
}

fn destroy(live: &PoolWriter, files: &[ObjNum]) {
    let owned = own(live, "tank/a");
    files.iter().for_each(|f| remove_file(live, &owned, *f).unwrap());
    live.sync_all().unwrap();
}

/// Goal: blocks that a checkpoint refers to stay allocated when they are freed, and count as
/// OpenZFS counts them, also after an export.
///
/// `zdb` finds both states consistent. Discarding the checkpoint frees everything that it held.
#[test]
fn a_checkpoint_holds_what_is_freed() {
    for (shape, count) in [(VdevShape::Single, 1), (VdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let spa = new_pool(shape, &images(dir.path(), count, 128 << 20));
        let live = spa.writer().unwrap();
        live.run(testpools::file_system("tank/a", Vec::new())).unwrap();
        let files = fill(live, 0..8);
        live.checkpoints().take().unwrap();
        assert!(matches!(live.checkpoints().take(), Err(CheckpointError::Exists)));
        assert!(matches!(live.reguid(None), Err(ShapeError::CheckpointExists)));
        destroy(live, &files[..4]);
        let held = live.dsl().space().checkpoint;
        assert!(held >= 4 << 20, "{held} bytes are held");
        fill(live, 8..20);
        close(spa);
        judge(dir.path(), "tank");
        judge_checkpoint(dir.path());

        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        assert!(spa.checkpoint().is_some());
        // Only frees add to the space that the checkpoint holds, and opening the pool has freed
        // some metadata.
        assert!(live.dsl().space().checkpoint >= held);
        destroy(live, &files[4..6]);
        assert!(live.dsl().space().checkpoint >= held + (2 << 20));
        close(spa);
        judge(dir.path(), "tank");
        judge_checkpoint(dir.path());

        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        live.checkpoints().discard(true).unwrap();
        assert_eq!(live.dsl().space().checkpoint, 0);
        assert!(matches!(live.checkpoints().discard(false), Err(CheckpointError::Absent)));
        assert!(!spa.is_discarding_checkpoint() && spa.checkpoint().is_none());
        live.checkpoints().take().unwrap();
        live.checkpoints().discard(false).unwrap();
        close(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: a pool rewinds to its checkpoint for writing, with the contents of that time, and works
/// from there.
///
/// Afterwards there is no checkpoint, and the pool opens in its new state.
#[test]
fn a_pool_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    live.run(testpools::file_system("tank/a", Vec::new())).unwrap();
    let files = fill(live, 0..8);
    let then = live.uberblock().txg;
    live.checkpoints().take().unwrap();
    assert!(spa.checkpoint().unwrap().txg >= then);
    destroy(live, &files);
    live.run(testpools::file_system("tank/later", Vec::new())).unwrap();
    fill(live, 20..60);
    let newest = live.uberblock().txg;
    close(spa);
    judge_checkpoint(dir.path());

    let back = Options { checkpoint: true, ..Options::default() };
    let spa = import_as(dir.path(), back.clone()).unwrap();
    let live = spa.writer().unwrap();
    assert!(live.uberblock().txg > newest, "it is newer than what was given up");
    assert!(spa.checkpoint().is_none() && live.dsl().dataset("tank/later").is_err());
    for (seed, file) in files.iter().enumerate() {
        assert_eq!(read_file(&own(live, "tank/a"), *file, 1 << 20), noise(seed as u64, 1 << 20));
    }
    destroy(live, &files[..2]);
    fill(live, 60..70);
    close(spa);
    judge(dir.path(), "tank");
    assert!(import_as(dir.path(), back).is_err(), "there is no checkpoint any more");
    close(import(dir.path()).unwrap());
    judge(dir.path(), "tank");
}

/// Goal: the checkpoint of a pool that OpenZFS wrote is kept, and can be discarded.
#[test]
fn a_checkpoint_of_openzfs() {
    let Some(fixture) = testkit::find("checkpoint") else { return };
    let images = fixture.copy();
    let dir = images.dir();
    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    let held = live.dsl().space().checkpoint;
    assert!(held > 0);
    live.run(testpools::file_system("checkpoint/a", Vec::new())).unwrap();
    close(spa);
    judge(dir, "checkpoint");
    let spa = import(dir).unwrap();
    spa.writer().unwrap().checkpoints().discard(true).unwrap();
    close(spa);
    judge(dir, "checkpoint");

    let images = fixture.copy();
    let dir = images.dir();
    let spa = import_as(dir, Options { checkpoint: true, ..Options::default() }).unwrap();
    spa.writer().unwrap().run(testpools::file_system("checkpoint/b", Vec::new())).unwrap();
    close(spa);
    judge(dir, "checkpoint");
}
