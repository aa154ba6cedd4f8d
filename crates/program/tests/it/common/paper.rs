//! A service with the data of transcripts of OpenZFS's commands, parsed back.
//!
//! The exact output (`-p`) of one command must come out of another in its own layout, byte for
//! byte. This checks parsers, widths, orders and number formats against the original, without an
//! engine.

use api::*;
use testkit::Fixture;

/// The pools and datasets of a transcript.
#[derive(Default)]
pub struct Paper {
    pub pools: Vec<Pool>,
    pub datasets: Vec<Dataset>,
    pub space: Vec<(String, SpaceEntry)>,
    pub holds: Vec<Hold>,
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn source(text: &str) -> Source {
    match text {
        "-" => Source::None,
        "default" => Source::Default,
        "local" => Source::Local,
        "temporary" => Source::Temporary,
        "received" => Source::Received,
        other => Source::Inherited(other.strip_prefix("inherited from ").expect("a source").to_owned()),
    }
}

/// The human-readable form of an exact value, by the rule of its property.
fn human(name: &str, exact: &str) -> String {
    let sizes = [
        "used",
        "available",
        "referenced",
        "usedbysnapshots",
        "usedbydataset",
        "usedbychildren",
        "usedbyrefreservation",
    ];
    let counts =
        ["size", "allocated", "free", "freeing", "leaked", "bcloneused", "bclonesaved", "dedup_table_size"];
    match number(exact) {
        Some(n) if sizes.contains(&name) => console::numbers::bytes(n),
        Some(n) if name == "checkpoint" => console::numbers::bytes(n),
        Some(n) if counts.contains(&name) => console::numbers::num(n),
        Some(n) if ["capacity", "fragmentation"].contains(&name) => format!("{n}%"),
        _ if ["dedupratio", "bcloneratio", "compressratio", "refcompressratio"].contains(&name) => {
            format!("{exact}x")
        }
        _ => exact.to_owned(),
    }
}

fn prop(name: &str, exact: &str, src: &str) -> Prop {
    let text = human(name, exact);
    let exact_text = (text != exact).then(|| exact.to_owned());
    Prop {
        name: name.into(),
        text,
        exact: exact_text,
        number: number(exact),
        source: source(src),
        received: None,
    }
}

impl Paper {
    /// Reads a fixture's transcripts.
    pub fn of(f: &Fixture) -> Self {
        let text = |name: &str| f.output(name).unwrap_or_default();
        let mut paper = Self {
            pools: vec![pool(f.pool(), &text("zpool-list.txt"), &text("zpool-list-p.txt"))],
            ..Self::default()
        };
        for line in text("zpool-get.txt").lines() {
            let [_, name, value, src] = fields(line);
            paper.pools[0].props.push(prop(name, value, src));
        }
        for line in text("zfs-get.txt").lines() {
            let [name, property, value, src] = fields(line);
            if paper.datasets.last().is_none_or(|d| d.name != name) {
                let kind = DatasetKind::Filesystem;
                paper.datasets.push(Dataset {
                    name: name.into(),
                    kind,
                    head: kind,
                    createtxg: 0,
                    props: Vec::new(),
                });
            }
            let d = paper.datasets.last_mut().expect("just pushed");
            match property {
                "type" => {
                    d.kind = match value {
                        "filesystem" => DatasetKind::Filesystem,
                        "volume" => DatasetKind::Volume,
                        "snapshot" => DatasetKind::Snapshot,
                        _ => DatasetKind::Bookmark,
                    };
                }
                "createtxg" => d.createtxg = number(value).expect("a number"),
                _ => {}
            }
            d.props.push(prop(property, value, src));
        }
        for line in text("zfs-userspace.txt").lines() {
            let f: Vec<&str> = line.split('\t').collect();
            let [dataset, table, _, id, used, quota, objused, objquota] = f[..] else {
                panic!("odd line {line:?}")
            };
            let class = match table {
                "userspace" => SpaceClass::User,
                "groupspace" => SpaceClass::Group,
                _ => SpaceClass::Project,
            };
            let id = id.parse().expect("an id");
            let (used, quota, objused, objquota) =
                (number(used), number(quota), number(objused), number(objquota));
            let entry = SpaceEntry { class, domain: String::new(), id, used, quota, objused, objquota };
            paper.space.push((dataset.into(), entry));
        }
        paper
    }
}

fn fields<const N: usize>(line: &str) -> [&str; N] {
    let v: Vec<&str> = line.splitn(N, '\t').collect();
    v.try_into().unwrap_or_else(|_| panic!("odd line {line:?}"))
}

/// A pool from its two listings: one shows the tree by its indentation, the other has the numbers.
fn pool(name: &str, shown: &str, exact: &str) -> Pool {
    let mut root = Vdev { kind: "root".into(), ..Vdev::default() };
    root.stat.state = VdevState::Healthy;
    let mut pool = Pool { name: name.into(), error_count: Some(0), ..Pool::default() };
    let mut section = String::new();
    for (line, numbers) in shown.lines().skip(2).zip(exact.lines().skip(1)) {
        let indent = line.len() - line.trim_start().len();
        if indent == 0 {
            section = line.split_whitespace().next().unwrap_or_default().to_owned();
            continue;
        }
        let [_, title, size, alloc, free, ckpt, expand, frag, _, _, health] = fields(numbers);
        let mut v = named(title);
        let s = &mut v.stat;
        s.pspace = number(size).unwrap_or(0);
        s.alloc = number(alloc).unwrap_or(0);
        s.space = s.alloc + number(free).unwrap_or(0);
        s.checkpoint_space = number(ckpt).unwrap_or(0);
        s.esize = number(expand).unwrap_or(0);
        s.fragmentation = number(frag);
        s.state = match health {
            "DEGRADED" => VdevState::Degraded,
            "OFFLINE" => VdevState::Offline,
            _ => VdevState::Healthy,
        };
        match section.as_str() {
            "cache" => pool.l2cache.push(v),
            "spare" => pool.spares.push(v),
            _ if indent > 2 => root.children.last_mut().expect("a group").children.push(v),
            section => {
                v.is_log = section == "logs";
                v.alloc_bias = (!section.is_empty() && !v.is_log).then(|| section.to_owned());
                root.children.push(v);
            }
        }
    }
    if root.children.iter().any(|c| c.stat.state == VdevState::Degraded) {
        root.stat.state = VdevState::Degraded;
    }
    pool.root = root;
    pool
}

/// A vdev that is displayed with this name.
fn named(title: &str) -> Vdev {
    let mut v = Vdev::default();
    let (kind, id) = title.rsplit_once('-').unwrap_or((title, ""));
    if title.starts_with('/') {
        (v.kind, v.path) = ("file".into(), Some(title.into()));
    } else if title.starts_with("draid1-") {
        (v.kind, v.path) = ("dspare".into(), Some(title.into()));
    } else if let Some(geometry) = kind.strip_prefix("draid") {
        let n: Vec<u64> = geometry
            .split(':')
            .map(|p| p.trim_end_matches(char::is_alphabetic).parse().expect("a number"))
            .collect();
        (v.kind, v.nparity, v.draid_ndata, v.draid_nspares) = ("draid".into(), n[0], n[1], n[3]);
    } else if let Some(parity) = kind.strip_prefix("raidz") {
        (v.kind, v.nparity) = ("raidz".into(), parity.parse().expect("a number"));
    } else if id.is_empty() {
        (v.kind, v.path) = ("disk".into(), Some(format!("/dev/{title}")));
    } else {
        v.kind = kind.into();
    }
    v.id = number(id).unwrap_or(0);
    v
}

impl FakeService for Paper {
    fn pool_names(&self, _: &Caller) -> Result<Vec<String>, Error> {
        Ok(self.pools.iter().map(|p| p.name.clone()).collect())
    }
    fn pool(&self, _: &Caller, name: &str, _: &PoolQuery) -> Result<Pool, Error> {
        self.pools
            .iter()
            .find(|p| p.name == name)
            .cloned()
            .ok_or_else(|| Error::new(name, Reason::NoSuchPool))
    }
    fn history(&self, _: &Caller, _: &str, _: &u64) -> Result<HistoryPage, Error> {
        Ok(HistoryPage::default())
    }
    fn datasets(&self, _: &Caller, q: &DatasetQuery) -> Result<DatasetList, Error> {
        let Some(root) = &q.root else { return Ok(DatasetList::whole(self.datasets.clone())) };
        let all = self.datasets.iter().filter(|d| {
            let below = d.name.strip_prefix(root.as_str());
            let depth = below.filter(|b| b.is_empty() || b.starts_with(['/', '@', '#']));
            depth.is_some_and(|b| q.depth.is_none_or(|d| b.matches(['/', '@', '#']).count() <= d as usize))
        });
        let found: Vec<Dataset> = all.filter(|d| q.kinds.contains(&d.kind)).cloned().collect();
        match self.datasets.iter().any(|d| d.name == *root) {
            true => Ok(DatasetList::whole(found)),
            false => Err(Error::new(root, Reason::NoSuchDataset)),
        }
    }
    fn space(&self, _: &Caller, dataset: &str, classes: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
        Ok(self
            .space
            .iter()
            .filter(|s| s.0 == dataset && classes.contains(&s.1.class))
            .map(|s| s.1.clone())
            .collect())
    }
    fn holds(&self, _: &Caller, snapshot: &str) -> Result<Vec<Hold>, Error> {
        Ok(self.holds.iter().filter(|h| h.snapshot == snapshot).cloned().collect())
    }
    fn events(&self, _: &Caller, _: &EventQuery) -> Result<EventPage, Error> {
        Ok(EventPage::default())
    }
    fn kstats(&self, _: &Caller) -> Result<Vec<Kstat>, Error> {
        Ok(Vec::new())
    }
    fn tunables(&self, _: &Caller) -> Result<Vec<Tunable>, Error> {
        Ok(Vec::new())
    }
    fn spl(&self, _: &Caller) -> Result<Vec<SplParameter>, Error> {
        Ok(Vec::new())
    }
    fn grants(&self, _: &Caller, _: &str) -> Result<Vec<Granted>, Error> {
        Ok(Vec::new())
    }
    fn scan(&self, _: &Caller, _: &ScanRequest) -> Result<Found, Error> {
        Ok(Found::default())
    }
    fn import(&self, _: &Caller, r: &ImportRequest) -> Result<ImportOutcome, Error> {
        Err(Error::new(r.guid.to_string(), Reason::NoSuchImport))
    }
    fn export(&self, _: &Caller, r: &ExportRequest) -> Result<(), Error> {
        Err(Error::new(&r.name, Reason::Busy))
    }
    fn logs(&self, _: &Caller) -> Result<Vec<LogStats>, Error> {
        Ok(Vec::new())
    }
    fn mounts(&self, _: &Caller) -> Result<Vec<Mount>, Error> {
        Ok(Vec::new())
    }
    fn mount(&self, _: &Caller, _: &MountRequest) -> Result<MountReport, Error> {
        Ok(MountReport::default())
    }
    fn create_pool(&self, _: &Caller, request: &CreatePool) -> Result<(), Error> {
        Err(Error::new(&request.name, Reason::PoolExists))
    }
    fn change_pool(&self, _: &Caller, name: &str, _: &PoolChange) -> Result<(), Error> {
        Err(Error::new(name, Reason::NoSuchPool))
    }
    fn change(&self, _: &Caller, change: &DatasetChange) -> Result<Changed, Error> {
        Err(Error::new(change.subject(), Reason::NoSuchDataset))
    }
    fn exports(&self, _: &Caller) -> Result<ExportList, Error> {
        Ok(ExportList::default())
    }
    fn attach(&self, _: &Caller, request: &AttachRequest) -> Result<String, Error> {
        Err(Error::new(&request.dataset, Reason::NoSuchDataset))
    }
    fn detach(&self, _: &Caller, request: &DetachRequest) -> Result<(), Error> {
        Err(Error::new(&request.dataset, Reason::NotAttached))
    }
}
