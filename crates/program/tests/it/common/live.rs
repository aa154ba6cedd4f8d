//! A service over a pool that is open in this process: the daemon's replies without the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use api::*;
use dsl::Dsl;
use server::view;
use spa::import::{Claim, Options, SystemClock};
use spa::{Host, Spa};

/// An imported pool.
pub struct FixtureService {
    pub spa: Spa,
    pub dsl: Dsl,
    pub facts: view::PoolFacts,
    /// The datasets that are reported as mounted.
    pub mounted: BTreeSet<String>,
    /// The reported paths of devices: from the path here to the path that OpenZFS had.
    pub paths: BTreeMap<String, String>,
}

/// Replaces the paths here by those of the transcripts, in the tree and in properties that hold
/// paths.
fn rename(v: &mut Vdev, paths: &BTreeMap<String, String>) {
    if let Some(path) = &mut v.path
        && let Some(there) = paths.get(path)
    {
        path.clone_from(there);
    }
    for p in v.props.iter_mut().filter(|p| p.name == "path" || p.name == "children") {
        let words = p.text.split(',').map(|w| paths.get(w).map_or(w, String::as_str));
        p.text = words.collect::<Vec<_>>().join(",");
    }
    v.children.iter_mut().for_each(|c| rename(c, paths));
}

impl FixtureService {
    /// Opens the pool on these images read-only, without a lock.
    pub fn open(images: &[PathBuf]) -> Result<Self, Box<spa::Failure>> {
        let scan = spa::discover(images);
        let options = Options {
            readonly: true,
            claim: Claim::Nothing,
            skip_mmp: true,
            force: true,
            ..Options::default()
        };
        let spa = spa::import(&scan.pools[0], &options, &Host::of_system(), &SystemClock)?;
        let space = spa.space().expect("the pool's metadata can be read");
        let options = dsl::Options { pool_name: spa.name().to_owned(), space, altroot: None };
        let dsl = Dsl::open(spa.mos().clone(), options).expect("the datasets can be read");
        spa.cache().zio().set_keys(dsl.keys().clone());
        let facts = view::PoolFacts { readonly: true, ..view::PoolFacts::default() };
        Ok(Self { spa, dsl, facts, mounted: BTreeSet::new(), paths: BTreeMap::new() })
    }

    /// A fixture's pool in the state of its transcripts: devices at their paths, file systems
    /// mounted as recorded, and all keys loaded.
    pub fn of(f: &testkit::Fixture) -> Self {
        let mut live = Self::open(f.images()).unwrap_or_else(|e| panic!("{}: {e:?}", f.name()));
        let mut loops = 0;
        for image in f.images() {
            let (path, name) =
                (image.display().to_string(), image.file_name().unwrap_or_default().display().to_string());
            let disk = format!("{path}#1");
            if live.device_names().contains(&disk) {
                live.paths.insert(disk, format!("/dev/loop{loops}p1"));
                loops += 1;
            } else {
                live.paths.insert(path, format!("/fx/pools/{}/{name}", f.name()));
            }
        }
        let text = f.output("zfs-get.txt").unwrap_or_default();
        for line in text.lines().filter(|l| l.ends_with("\tmounted\tyes\t-")) {
            live.mounted.insert(line.split('\t').next().unwrap_or_default().to_owned());
        }
        for line in text.lines().filter(|l| l.contains("\tencryptionroot\t")) {
            let words: Vec<&str> = line.split('\t').collect();
            let loaded = text.contains(&format!("\n{}\tkeystatus\tavailable\t", words[0]));
            let dir =
                (loaded && words[0] == words[2]).then(|| live.dsl.dir(words[0]).expect("an encryption root"));
            let file = |name: &str| std::fs::read(f.dir().join(name)).unwrap_or_default();
            let hex = String::from_utf8(file("hex.key")).unwrap_or_default();
            for key in [b"correct horse".to_vec(), file("raw.key"), hex.trim_end().as_bytes().to_vec()] {
                // One of the keys fits.
                let _ = dir.as_ref().map(|d| live.dsl.keys().load(d, &key, false));
            }
        }
        live
    }

    /// The names of the devices here.
    fn device_names(&self) -> BTreeSet<String> {
        fn walk(v: &Vdev, into: &mut BTreeSet<String>) {
            into.extend(v.path.clone());
            v.children.iter().for_each(|c| walk(c, into));
        }
        let pool = view::pool(&self.spa, &self.dsl, &self.facts, &PoolQuery::default(), &Default::default())
            .expect("the pool");
        let mut all = BTreeSet::new();
        for v in std::iter::once(&pool.root).chain(&pool.spares).chain(&pool.l2cache) {
            walk(v, &mut all);
        }
        all
    }
}

impl FakeService for FixtureService {
    fn pool_names(&self, _: &Caller) -> Result<Vec<String>, Error> {
        Ok(vec![self.spa.name().to_owned()])
    }
    fn pool(&self, _: &Caller, name: &str, query: &PoolQuery) -> Result<Pool, Error> {
        if name != self.spa.name() {
            return Err(Error::new(name, Reason::NoSuchPool));
        }
        let mut pool = view::pool(&self.spa, &self.dsl, &self.facts, query, &Default::default())?;
        let all = std::iter::once(&mut pool.root).chain(&mut pool.spares).chain(&mut pool.l2cache);
        all.for_each(|v| rename(v, &self.paths));
        Ok(pool)
    }
    fn history(&self, _: &Caller, name: &str, from: &u64) -> Result<HistoryPage, Error> {
        // Small parts, so that there are several.
        view::history(name, self.spa.mos(), *from, 1 << 10)
    }
    fn datasets(&self, caller: &Caller, query: &DatasetQuery) -> Result<DatasetList, Error> {
        view::datasets(
            &self.dsl,
            query,
            false,
            &|d| self.mounted.contains(&d.name()).then(Vec::new),
            caller.budget(),
        )
    }
    fn space(&self, _: &Caller, dataset: &str, classes: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
        view::space(&self.dsl, dataset, classes)
    }
    fn holds(&self, _: &Caller, snapshot: &str) -> Result<Vec<Hold>, Error> {
        view::holds(&self.dsl, snapshot)
    }
    fn prefetch(&self, _: &Caller, _: &str) -> Result<u64, Error> {
        view::prefetch(&self.spa)
    }
    fn unlinked(&self, _: &Caller, d: &str) -> Result<u64, Error> {
        view::unlinked(&self.dsl, d)
    }
    fn events(&self, _: &Caller, _: &EventQuery) -> Result<EventPage, Error> {
        Ok(EventPage::default())
    }
    fn diff(&self, _: &Caller, r: &DiffRequest) -> Result<DiffPart, Error> {
        view::compared(&self.dsl, r).and_then(view::diff)
    }
    fn mounts(&self, _: &Caller) -> Result<Vec<Mount>, Error> {
        Ok(Vec::new())
    }
    fn load_key(&self, _: &Caller, r: &LoadKeyRequest) -> Result<(), Error> {
        let dir = self.dsl.dir(&r.dataset).map_err(|_| Error::new(&r.dataset, Reason::NoSuchDataset))?;
        let (KeyMaterial::Passphrase(key) | KeyMaterial::Hex(key) | KeyMaterial::Raw(key)) = &r.key;
        self.dsl.keys().load(&dir, key, r.noop).map_err(|e| view::key_error(&r.dataset, &e))
    }
    fn unload_key(&self, _: &Caller, dataset: &str) -> Result<(), Error> {
        let dir = self.dsl.dir(dataset).map_err(|_| Error::new(dataset, Reason::NoSuchDataset))?;
        self.dsl.keys().unload(&dir).map_err(|e| view::key_error(dataset, &e))
    }
    fn change_pool(&self, _: &Caller, name: &str, _: &PoolChange) -> Result<(), Error> {
        Err(Error::new(name, Reason::NoSuchPool))
    }
}
