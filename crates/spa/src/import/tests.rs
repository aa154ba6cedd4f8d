use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use device::{Device, FileDevice};
use fuzzing::labels::relabel;
use ondisk::config::AllocBias;
use ondisk::label::{LABELS, PHYS_OFFSET, PHYS_SIZE, label_offset};
use ondisk::{Nvlist, ObjNum, PoolConfig, VdevKind};
use vdev::{VdevAux, VdevState};

use crate::import::*;
use crate::{PoolStatus, SpaError, discover};

mod damage;
mod multihost;

/// The host that wrote the fixtures.
fn their_host() -> Host {
    Host { hostid: 1_102_198_131, hostname: "zfsvm".into() }
}

fn our_host() -> Host {
    Host { hostid: 0x00c0_ffee, hostname: "here".into() }
}

/// These tests must not wait.
struct NoWait;

impl Clock for NoWait {
    fn now(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    fn sleep(&self, _: std::time::Duration) -> bool {
        panic!("an import waited");
    }

    fn random(&self, _: u32) -> u32 {
        0
    }
}

fn candidate<P: AsRef<Path>>(images: &[P]) -> Candidate {
    let mut found = discover(images);
    assert_eq!(found.pools.len(), 1);
    found.pools.remove(0)
}

fn try_import<P: AsRef<Path>>(images: &[P], options: &Options) -> Result<Spa, Box<Failure>> {
    import(&candidate(images), options, &their_host(), &NoWait)
}

/// Tests run in parallel on the same images.
fn sharing() -> Options {
    Options { claim: Claim::Share, ..Options::default() }
}

fn load<P: AsRef<Path>>(images: &[P]) -> Spa {
    try_import(images, &sharing()).unwrap()
}

/// Loads a fixture. ztest never exports its pools.
fn load_fixture(fixture: &testkit::Fixture) -> Spa {
    let force = fixture.name() == "big-endian";
    try_import(fixture.images(), &Options { force, ..sharing() }).unwrap()
}

/// The value of a field of the first uberblock in a transcript of `zdb -u`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|l| l.trim().strip_prefix(name)?.trim().strip_prefix("= "));
    line.unwrap().split(' ').next().unwrap()
}

/// Goal: every fixture imports; its uberblock and its MOS config are what zdb shows.
#[test]
fn imports_every_fixture() {
    let names = testkit::names();
    assert!(!names.is_empty());
    for fixture in names.iter().map(|n| testkit::load(n)) {
        let spa = load_fixture(&fixture);
        assert_eq!(spa.name(), fixture.pool());
        if let Some(text) = fixture.output("zdb-uberblock.txt") {
            let ub = spa.uberblock();
            let ours = [ub.txg.0, ub.guid_sum, ub.timestamp, ub.version].map(|n| n.to_string());
            let theirs = ["txg", "guid_sum", "timestamp", "version"].map(|n| field(&text, n));
            assert_eq!(ours, theirs, "{}", fixture.name());
        }
        if let Some(text) = fixture.output("zdb-config.txt") {
            let start = text.find("MOS Configuration:\n").unwrap() + "MOS Configuration:\n".len();
            let shown: String = text[start..]
                .lines()
                .take_while(|l| l.starts_with("        "))
                .flat_map(|l| [l, "\n"])
                .collect();
            assert_eq!(format!("{:8}", spa.config().nvlist), shown, "{}", fixture.name());
        }
        for object in spa.mos().objset().objects(ObjNum(1)) {
            object.unwrap_or_else(|e| panic!("{}: {e}", fixture.name()));
        }
        let offline = fixture.name() == "multi-vdev";
        assert_eq!(spa.tree().state().0 == VdevState::Healthy, !offline, "{}", fixture.name());
    }
}

/// Goal: a healthy pool that another host exported is reported as such; one not exported needs
/// force.
#[test]
fn ownership() {
    let exported = candidate(&testkit::fixture("single-lz4"));
    let options = sharing();
    assert!(import(&exported, &options, &our_host(), &NoWait).is_ok());
    let active = candidate(&testkit::fixture("zil-freeze"));
    let failure = import(&active, &options, &our_host(), &NoWait).unwrap_err();
    let SpaError::ForceRequired { hostname, hostid, timestamp } = failure.error else {
        panic!("{failure:?}")
    };
    assert_eq!((hostname.as_deref(), hostid), (Some("zfsvm"), 1_102_198_131));
    assert!(timestamp > 1_700_000_000);
    assert_eq!(examine(&active, &options, &our_host(), &NoWait).status, PoolStatus::HostidMismatch);
    assert!(import(&active, &Options { force: true, ..options }, &our_host(), &NoWait).is_ok());
}

/// Goal: allocation classes, log, cache and spare devices are recognised; the cache device is on a
/// partition.
#[test]
fn classes_and_auxiliary_devices() {
    let spa = load(&testkit::fixture("stripe-classes"));
    let config = spa.config();
    let tops = &config.vdev_tree.as_ref().unwrap().children;
    let bias: Vec<_> = tops.iter().map(|t| (t.alloc_bias, t.is_log)).collect();
    let normal = (None, false);
    assert_eq!(bias, [normal, normal, (Some(AllocBias::Special), false), (Some(AllocBias::Log), true)]);
    let [cache] = &spa.l2cache()[..] else { panic!("{:?}", spa.l2cache()) };
    assert!(cache.place.as_ref().unwrap().partition.is_some());
    assert_eq!(cache.state, VdevState::Healthy);
    let [spare] = &spa.spares()[..] else { panic!("{:?}", spa.spares()) };
    assert_eq!((spare.state, spare.config.kind), (VdevState::Healthy, VdevKind::File));
}

/// Goal: the config of an imported pool has the devices' present paths, not the recorded ones.
#[test]
fn paths_follow_the_devices() {
    let images = testkit::fixture("mirror2");
    let spa = load(&images);
    let leaves: Vec<_> = spa.config().vdev_tree.as_ref().unwrap().leaves().map(|l| l.path.clone()).collect();
    let found: Vec<_> = images.iter().map(|i| Some(i.display().to_string().into_bytes())).collect();
    assert_eq!(leaves, found);
}

/// Goal: a pool with a missing log device is refused by the device's name, and imports without it
/// if the options allow.
#[test]
fn missing_log() {
    let mut images = testkit::fixture("stripe-classes");
    images.remove(4);
    let failure = try_import(&images, &sharing()).unwrap_err();
    let SpaError::MissingLogs { logs } = &failure.error else { panic!("{failure:?}") };
    assert_eq!(logs.len(), 1);
    let spa = try_import(&images, &Options { missing_log: true, ..sharing() }).unwrap();
    assert!(spa.log_dropped());
}

/// Goal: a missing device with redundancy degrades the pool; one without makes it unavailable.
#[test]
fn missing_devices() {
    let images = testkit::fixture("raidz3-7");
    let report =
        |images: &[std::path::PathBuf]| examine(&candidate(images), &sharing(), &their_host(), &NoWait);
    let some = report(&images[..4]);
    assert_eq!(some.status, PoolStatus::MissingDevR);
    assert_eq!(some.tree.unwrap().state, VdevState::Degraded);
    let too_few = report(&images[..3]);
    assert_eq!(too_few.status, PoolStatus::MissingDevNr);
    let root = too_few.tree.unwrap();
    assert_eq!((root.state, root.aux), (VdevState::CantOpen, VdevAux::NoReplicas));
    let stripe = report(&testkit::fixture("stripe-classes")[1..]);
    assert_eq!(stripe.status, PoolStatus::MissingDevNr);
}

/// Goal: reports name the problems of old pools, and of defective ones none.
#[test]
fn conditions() {
    let status =
        |name: &str| examine(&candidate(&testkit::fixture(name)), &sharing(), &our_host(), &NoWait).status;
    assert_eq!(status("v1"), PoolStatus::VersionOlder);
    assert_eq!(status("v28"), PoolStatus::VersionOlder);
    assert_eq!(status("longname"), PoolStatus::Ok);
}

/// Goal: the state of a checkpoint is opened on request; without a checkpoint that is an error.
#[test]
fn checkpoint() {
    let rewind = Options { checkpoint: true, ..sharing() };
    let images = testkit::fixture("checkpoint");
    let now = load(&images);
    assert_eq!(now.checkpoint().unwrap().txg, Txg(28));
    let then = try_import(&images, &rewind).unwrap();
    assert_eq!((then.uberblock().checkpoint_txg, then.uberblock().timestamp), (Txg(28), 1_795_289_280));
    let failure = try_import(&testkit::fixture("v1"), &rewind).unwrap_err();
    assert!(matches!(failure.error, SpaError::NoCheckpoint));
}

/// Goal: the list of states begins with the one that an import opens, each on both devices and all
/// labels of a mirror.
#[test]
fn lists_states() {
    let images = testkit::fixture("mirror2");
    let states = list_txgs(&candidate(&images)).unwrap();
    assert_eq!(states[0].uberblock, load(&images).uberblock());
    assert!(states.windows(2).all(|w| w[0].uberblock.txg >= w[1].uberblock.txg));
    assert!(states.iter().all(|s| s.devices <= 2 && s.copies >= s.devices && s.copies <= 8));
    assert!(states.len() > 1);
}

/// Goal: one pool, one owner. While a program has a device in use, the pool can't be imported. Its
/// owner keeps out owners and readers alike. An examination is always possible.
#[test]
fn devices_in_use() {
    let copy = testkit::fixture_copy("mirror2");
    let with = |claim| try_import(copy.images(), &Options { claim, ..Options::default() });
    let refused = |claim| matches!(with(claim).map_err(|failure| failure.error), Err(SpaError::InUse(_)));
    let other = FileDevice::open(&copy.images()[1], Mode::Write).unwrap();
    assert!(refused(Claim::Own) && refused(Claim::Share));
    assert!(with(Claim::Nothing).is_ok());
    drop(other);
    let owner = with(Claim::Own).unwrap();
    assert!(refused(Claim::Own) && refused(Claim::Share));
    assert!(with(Claim::Nothing).is_ok());
    drop(owner);
    let reader = with(Claim::Share).unwrap();
    assert!(refused(Claim::Own) && !refused(Claim::Share));
    drop(reader);
    assert!(with(Claim::Own).is_ok());
}

/// Goal: a label with an unknown feature is refused by that feature's name, before the MOS is read.
#[test]
fn unknown_feature_in_the_label() {
    let copy = testkit::fixture_copy("longname");
    relabel(&copy.images()[0], |nv| {
        let mut features = nv.list("features_for_read").unwrap().clone();
        features.set("org.example:time_travel", ondisk::Value::Boolean);
        nv.set("features_for_read", ondisk::Value::List(features));
    });
    let failure = try_import(copy.images(), &sharing()).unwrap_err();
    let SpaError::UnsupportedFeatures { features, can_readonly } = &failure.error else {
        panic!("{failure:?}")
    };
    assert_eq!((features[0].guid.as_str(), *can_readonly), ("org.example:time_travel", false));
    let report = examine(&candidate(copy.images()), &sharing(), &our_host(), &NoWait);
    assert_eq!(report.status, PoolStatus::UnsupFeatRead);
}

/// Goal: a device outside the search is found at the path that the label records.
#[test]
fn recorded_path() {
    let copy = testkit::fixture_copy("mirror2");
    let images = copy.images().to_vec();
    let nth = |n: usize| ondisk::Value::String(images[n].display().to_string().into_bytes());
    relabel(&images[0], |nv| {
        let mut tree = nv.list("vdev_tree").unwrap().clone();
        let mut children = tree.lists("children").unwrap().to_vec();
        for (n, child) in children.iter_mut().enumerate() {
            child.set("path", nth(n));
        }
        tree.set("children", ondisk::Value::ListArray(children));
        nv.set("vdev_tree", ondisk::Value::List(tree));
    });
    let report = examine(&candidate(&images[..1]), &sharing(), &their_host(), &NoWait);
    assert_eq!(report.tree.unwrap().state, VdevState::Healthy);
}

/// Goal: a pool whose newest label's device is absent is described by the trusted config.
#[test]
fn config_of_the_report_is_the_trusted_one() {
    let images = testkit::fixture("mirror2");
    let report = examine(&candidate(&images[1..]), &sharing(), &their_host(), &NoWait);
    let config: PoolConfig = report.config.unwrap();
    assert!(config.nvlist.has("com.delphix:has_per_vdev_zaps"), "only the MOS says so");
}

/// Goal: every block of every dataset of every fixture is found and verifies; only what was damaged
/// beyond repair does not.
///
/// The blocks lie on stripes, mirrors, raidz, expanded raidz and draid, in gang blocks and behind
/// mappings of removed devices.
#[test]
fn every_block_verifies() {
    for fixture in testkit::names().iter().map(|n| testkit::load(n)) {
        let damage = verify::damage(&load_fixture(&fixture), true).unwrap();
        if fixture.name() == "raidz1-3-broken" {
            assert!(damage.data > 0);
        } else {
            assert_eq!(damage, verify::Damage::default(), "{}", fixture.name());
        }
    }
}
