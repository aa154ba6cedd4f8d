//! Every path of every manifest of every pool, and every volume, read through the library and
//! compared with what OpenZFS showed.
//!
//! The variable `FIXTURES=DIR` adds the pools that are not bundled.

use std::collections::BTreeSet;

use crate::common::{compare, of_volume, words};
use poolhouse::dsl::Prop;
use poolhouse::dsl::keys::KeyFormat;
use poolhouse::dsl::prop::text::LITERAL;
use poolhouse::{Claim, Dataset, OpenOptions, Pool};
use testkit::{Fixture, Manifest};

/// The number of compared paths and volumes, and the differences.
#[derive(Default)]
struct Verdict {
    paths: usize,
    volumes: usize,
    /// Dataset, path, and what differs.
    wrong: Vec<(String, String, String)>,
}

impl Verdict {
    fn wrong(&mut self, dataset: &str, path: &str, what: String) {
        self.wrong.push((dataset.to_owned(), path.to_owned(), what));
    }

    fn assert_none_wrong(&self, fixture: &Fixture) {
        let shown: Vec<String> = self
            .wrong
            .iter()
            .take(40)
            .map(|(dataset, path, what)| format!("{}: {dataset}: {path:?}: {what}", fixture.name()))
            .collect();
        assert!(shown.is_empty(), "{} differences, the first are:\n{}", self.wrong.len(), shown.join("\n"));
    }
}

/// The names of a pool's heads, all of which must be readable.
fn names(pool: &Pool) -> Vec<String> {
    let found = pool.dataset_names(false).unwrap();
    assert!(found.failures.is_empty(), "{:?}", found.failures);
    found.names
}

fn open(fixture: &Fixture, options: OpenOptions) -> Pool {
    let pool = Pool::open(fixture.images(), &options)
        .unwrap_or_else(|e| panic!("{}: {}", fixture.name(), words(&e)));
    for name in names(&pool) {
        let dir = pool.dsl().dir(&name).unwrap();
        if dir.encryption_root().unwrap().is_none_or(|root| root.object() != dir.object()) {
            continue;
        }
        let key = match dir.key_format().unwrap().unwrap() {
            KeyFormat::Passphrase => b"correct horse".to_vec(),
            KeyFormat::Raw => fixture.file("raw.key"),
            KeyFormat::Hex => fixture.file("hex.key").trim_ascii().to_vec(),
        };
        // A dataset of `send-partial` was received raw and has another pool's passphrase. It has no
        // manifest.
        if let Err(error) = pool.load_key(&name, &key) {
            assert!(fixture.manifest(&name).is_none(), "{}: {name}: {}", fixture.name(), words(&error));
        }
    }
    pool
}

/// The paths below a dataset at which its children were mounted.
fn mounted_below(dataset: &str, all: &[Manifest]) -> BTreeSet<Vec<u8>> {
    let prefix = format!("{dataset}/");
    all.iter()
        .filter_map(|m| m.dataset.strip_prefix(&prefix))
        .filter(|rest| !rest.contains('@'))
        .map(|rest| rest.as_bytes().to_vec())
        .collect()
}

fn acltype(dataset: &Dataset) -> String {
    let property = dataset.dsl().property(Prop::by_name("acltype").unwrap()).unwrap();
    property.map_or_else(String::new, |p| p.text(&LITERAL))
}

fn check_files(pool: &Pool, all: &[Manifest], variant: Option<&str>, verdict: &mut Verdict) {
    for manifest in all.iter().filter(|m| m.variant.as_deref() == variant) {
        let name = &manifest.dataset;
        let opened = pool.dataset(name).and_then(|d| Ok((d.filesystem()?, acltype(&d))));
        match opened {
            Ok((fs, acltype)) => {
                let (paths, wrong) = compare(&fs, manifest, &mounted_below(name, all), acltype == "posix");
                verdict.paths += paths;
                wrong.into_iter().for_each(|(path, what)| verdict.wrong(name, &path, what));
            }
            Err(error) => verdict.wrong(name, "", words(&error)),
        }
    }
}

fn check_volumes(pool: &Pool, fixture: &Fixture, verdict: &mut Verdict) {
    for zvol in fixture.zvols().iter().filter(|z| z.when.is_none()) {
        verdict.volumes += 1;
        match pool.dataset(&zvol.name).and_then(|d| d.volume()) {
            Ok(volume) => {
                if zvol.size.is_some_and(|size| size != volume.size()) {
                    verdict.wrong(&zvol.name, "", format!("size is {}, not {:?}", volume.size(), zvol.size));
                }
                let hash = of_volume(&volume);
                if hash != zvol.sha256 {
                    verdict.wrong(&zvol.name, "", format!("content is {hash}, not {}", zvol.sha256));
                }
            }
            Err(error) => verdict.wrong(&zvol.name, "", words(&error)),
        }
    }
}

fn read_all(fixture: &Fixture) -> Verdict {
    let pool = open(fixture, OpenOptions { claim: Claim::Share, force: true, ..OpenOptions::default() });
    let mut verdict = Verdict::default();
    check_files(&pool, &fixture.manifests(), None, &mut verdict);
    check_volumes(&pool, fixture, &mut verdict);
    verdict
}

/// Checks that everything in the fixture is as OpenZFS showed it, with at least this many paths and
/// volumes.
fn check(name: &str, paths: usize, volumes: usize) {
    let Some(fixture) = testkit::find(name) else {
        // `tidy.rs` lists the fixtures that are not bundled.
        return;
    };
    let verdict = read_all(&fixture);
    verdict.assert_none_wrong(&fixture);
    assert!(verdict.paths >= paths, "{name}: only {} paths", verdict.paths);
    assert!(verdict.volumes >= volumes, "{name}: only {} volumes", verdict.volumes);
}

macro_rules! fixtures {
    ($($test:ident: $name:literal, $paths:literal paths, $volumes:literal volumes;)*) => {
        $(
            /// Goal: everything in this fixture is as OpenZFS showed it.
            #[test]
            fn $test() {
                check($name, $paths, $volumes);
            }
        )*

        /// Goal: every available fixture has its test here.
        #[test]
        fn no_fixture_is_forgotten() {
            // ztest wrote these pools, which have objects and no files. `oracle.rs` reads one of
            // them.
            let mut tested = vec!["raidz1-3-broken", "big-endian"];
            $(tested.push($name);)*
            for name in testkit::names() {
                assert!(tested.contains(&name.as_str()), "{name} has no test");
            }
        }
    };
}

fixtures! {
    block_clone: "block-clone", 150 paths, 0 volumes;
    checkpoint: "checkpoint", 150 paths, 0 volumes;
    dedup_fast: "dedup-fast", 150 paths, 0 volumes;
    dedup_legacy: "dedup-legacy", 150 paths, 0 volumes;
    draid1: "draid1", 150 paths, 0 volumes;
    encrypted: "encrypted", 2000 paths, 1 volumes;
    gang: "gang", 150 paths, 0 volumes;
    longname: "longname", 150 paths, 0 volumes;
    mirror2: "mirror2", 150 paths, 0 volumes;
    mirror2_damaged: "mirror2-damaged", 150 paths, 0 volumes;
    multi_vdev: "multi-vdev", 150 paths, 0 volumes;
    raidz_expanded: "raidz-expanded", 150 paths, 0 volumes;
    raidz1_3: "raidz1-3", 3000 paths, 0 volumes;
    raidz1_3_damaged: "raidz1-3-damaged", 3000 paths, 0 volumes;
    raidz2_5: "raidz2-5", 150 paths, 0 volumes;
    raidz3_7: "raidz3-7", 150 paths, 0 volumes;
    removed_vdev: "removed-vdev", 150 paths, 0 volumes;
    send_partial: "send-partial", 150 paths, 1 volumes;
    send_src: "send-src", 150 paths, 0 volumes;
    single_lz4: "single-lz4", 10000 paths, 0 volumes;
    stripe_classes: "stripe-classes", 150 paths, 0 volumes;
    v1: "v1", 50 paths, 0 volumes;
    v28: "v28", 200 paths, 0 volumes;
    v5000_nofeat: "v5000-nofeat", 150 paths, 0 volumes;
    whole_disk_gpt: "whole-disk-gpt", 50 paths, 0 volumes;
    zil_crash: "zil-crash", 1 paths, 0 volumes;
    zil_freeze: "zil-freeze", 1 paths, 0 volumes;
    zil_slog: "zil-slog", 1 paths, 0 volumes;
    zvols: "zvols", 1 paths, 9 volumes;
}

/// Goal: a pool opened at its checkpoint shows its contents at that time.
#[test]
fn at_the_checkpoint() {
    let fixture = testkit::load("checkpoint");
    let pool = open(
        &fixture,
        OpenOptions { claim: Claim::Share, force: true, checkpoint: true, ..OpenOptions::default() },
    );
    let all: Vec<_> =
        fixture.manifests().into_iter().filter(|m| m.variant.as_deref() == Some("at-checkpoint")).collect();
    let mut verdict = Verdict::default();
    check_files(&pool, &all, Some("at-checkpoint"), &mut verdict);
    verdict.assert_none_wrong(&fixture);
    assert!(verdict.paths > 150);
}

/// Goal: with more damage than parity repairs, exactly the files that OpenZFS's scrub lists are
/// unreadable. All others are intact.
#[test]
fn damaged_beyond_repair() {
    let Some(fixture) = testkit::find("raidz1-3-broken") else { return };
    let verdict = read_all(&fixture);
    let scrub = String::from_utf8(fixture.file("scrub.txt")).unwrap();
    let listed: BTreeSet<&str> =
        scrub.lines().filter_map(|l| l.strip_prefix("        ")).filter(|l| l.contains(":/")).collect();
    assert!(!listed.is_empty(), "scrub.txt lists no file:\n{scrub}");
    let unreadable: BTreeSet<String> =
        verdict.wrong.iter().map(|(dataset, path, _)| format!("{dataset}:/{path}")).collect();
    assert_eq!(unreadable.iter().map(String::as_str).collect::<BTreeSet<_>>(), listed);
}
