//! The client and the dispatch agree on every method, and on errors.

use super::*;

/// A service that knows one pool.
struct One;

impl Service for One {
    fn pool_names(&self) -> Result<Vec<String>, Error> {
        Ok(vec!["one".into()])
    }
    fn pool(&self, name: &str, query: &PoolQuery) -> Result<Pool, Error> {
        if name != "one" {
            return Err(Error::new(name, Reason::NoSuchPool));
        }
        let props =
            if query.props { vec![Prop::number("size", "1K", 1024, Source::None)] } else { Vec::new() };
        Ok(Pool { name: name.into(), guid: u64::MAX, props, ..Pool::default() })
    }
    fn history(&self, _: &str, _: &u64) -> Result<HistoryPage, Error> {
        Ok(HistoryPage::default())
    }
    fn datasets(&self, _: &DatasetQuery) -> Result<DatasetList, Error> {
        Ok(DatasetList::default())
    }
    fn space(&self, _: &str, _: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
        Ok(Vec::new())
    }
    fn holds(&self, _: &str) -> Result<Vec<Hold>, Error> {
        Ok(Vec::new())
    }
    fn kstats(&self) -> Result<Vec<Kstat>, Error> {
        Ok(Vec::new())
    }
    fn tunables(&self) -> Result<Vec<Tunable>, Error> {
        Ok(Vec::new())
    }
    fn spl(&self) -> Result<Vec<SplParameter>, Error> {
        Ok(Vec::new())
    }
    fn set_tunable(&self, name: &str, _: &u64) -> Result<(), Error> {
        Err(Error::new(name, Reason::BadProperty { property: name.to_owned() }))
    }
    fn inject(&self, _: &InjectRequest) -> Result<Vec<Injected>, Error> {
        Ok(Vec::new())
    }
    fn grants(&self, _: &str) -> Result<Vec<Granted>, Error> {
        Ok(Vec::new())
    }
    fn scan(&self, _: &ScanRequest) -> Result<Found, Error> {
        Ok(Found::default())
    }
    fn import(&self, request: &ImportRequest) -> Result<ImportOutcome, Error> {
        Ok(ImportOutcome { name: request.new_name.clone().unwrap_or_default(), ..ImportOutcome::default() })
    }
    fn export(&self, request: &ExportRequest) -> Result<(), Error> {
        Err(Error::new(&request.name, Reason::Busy))
    }
    fn logs(&self) -> Result<Vec<LogStats>, Error> {
        Ok(vec![LogStats { dataset: "one/fs".into(), counters: [("zil_commit_count".into(), 7)].into() }])
    }
    fn mounts(&self) -> Result<Vec<Mount>, Error> {
        Ok(Vec::new())
    }
    fn mount(&self, _: &MountRequest) -> Result<MountReport, Error> {
        Ok(MountReport::default())
    }
    fn mount_progress(&self, _: &u64) -> Result<Option<MountProgress>, Error> {
        Ok(None)
    }
    fn unmount(&self, _: &UnmountRequest) -> Result<MountReport, Error> {
        Ok(MountReport::default())
    }
    fn load_key(&self, _: &LoadKeyRequest) -> Result<(), Error> {
        Ok(())
    }
    fn unload_key(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn prefetch(&self, p: &str) -> Result<u64, Error> {
        Err(Error::new(p, Reason::NoSuchPool))
    }
    fn draft(&self, change: &DatasetChange) -> Result<Settings, Error> {
        Err(Error::new(change.subject(), Reason::NoSuchDataset))
    }
    fn object_path(&self, _: &str, _: &u64, _: &u64) -> Result<ObjectPath, Error> {
        Ok(ObjectPath::default())
    }
    fn unlinked(&self, d: &str) -> Result<u64, Error> {
        Err(Error::new(d, Reason::NoSuchDataset))
    }
    fn events(&self, _: &EventQuery) -> Result<EventPage, Error> {
        Ok(EventPage::default())
    }
    fn diff(&self, request: &DiffRequest) -> Result<DiffPart, Error> {
        Err(Error::new(&request.from, Reason::NoSuchDataset))
    }
    fn reclaimed(&self, first: &str, _: &str) -> Result<u64, Error> {
        Err(Error::new(first, Reason::NoSuchDataset))
    }
    fn create_pool(&self, request: &CreatePool) -> Result<(), Error> {
        Err(Error::new(&request.name, Reason::PoolExists))
    }
    fn change_pool(&self, name: &str, _: &PoolChange) -> Result<(), Error> {
        Err(Error::new(name, Reason::NoSuchPool))
    }
    fn change(&self, change: &DatasetChange) -> Result<Changed, Error> {
        Err(Error::new(change.subject(), Reason::NoSuchDataset))
    }
    fn offer(&self, _: &OfferRequest) -> Result<Vec<Offered>, Error> {
        Ok(Vec::new())
    }
    fn withdraw(&self, _: &WithdrawRequest) -> Result<(), Error> {
        Ok(())
    }
    fn exports(&self) -> Result<ExportList, Error> {
        Ok(ExportList::default())
    }
    fn attach(&self, request: &AttachRequest) -> Result<String, Error> {
        Err(Error::new(&request.dataset, Reason::NoSuchDataset))
    }
    fn detach(&self, request: &DetachRequest) -> Result<(), Error> {
        Err(Error::new(&request.dataset, Reason::NotAttached))
    }
}

/// The status and the body of an answer.
struct Whole(u16, Vec<u8>);

impl std::io::Write for Whole {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.1.write(text)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Answer for Whole {
    fn begin(&mut self, status: u16) {
        self.0 = status;
    }
}

fn answered(method: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut answer = Whole(0, Vec::new());
    dispatch(&One, method, body, &mut answer).unwrap();
    (answer.0, answer.1)
}

/// A transport without a socket.
struct Direct;

impl Transport for Direct {
    fn post(&self, method: &str, body: &[u8]) -> Result<Vec<u8>, TransportError> {
        Ok(answered(method, body).1)
    }
}

/// Goal: answers and errors survive the way through the wire format.
#[test]
fn client_and_dispatch_agree() {
    let c = Client::new(Direct);
    assert_eq!(c.pool_names().unwrap(), ["one"]);
    let query = PoolQuery { props: true, ..PoolQuery::default() };
    let pool = c.pool("one", &query).unwrap();
    assert_eq!(pool.guid, u64::MAX);
    assert_eq!(pool.prop("size").unwrap().value(true), "1024");
    assert_eq!(c.logs().unwrap(), One.logs().unwrap());
    assert_eq!(c.pool("two", &query).unwrap_err(), Error::new("two", Reason::NoSuchPool));
    assert_eq!(
        c.export(&ExportRequest { name: "one".into(), ..Default::default() }).unwrap_err().reason,
        Reason::Busy
    );
    assert_eq!(
        c.import(&ImportRequest { new_name: Some("n".into()), ..Default::default() }).unwrap().name,
        "n"
    );
}

/// Goal: what doesn't parse, or isn't there, is an error with a fitting status and never a panic.
#[test]
fn odd_requests_are_refused() {
    assert_eq!(answered("no_such", b"").0, 404);
    assert_eq!(answered("pool", b"{\"name\": 3}").0, 400);
    assert_eq!(answered("pool", b"\xff").0, 400);
    assert_eq!(answered("pool_names", b"").0, 200);
    let long = "a".repeat(1 << 20);
    for (method, body) in [(long.as_str(), ""), ("logs", ""), ("diff", &*format!("{{\"{long}\": {long}"))] {
        assert!(answered(method, body.as_bytes()).1.len() < 4096, "an error repeats what was sent");
    }
}

/// Goal: a property that a question names again and again is answered once, in the order of the
/// first; a question that names too many is refused.
#[test]
fn questions_name_each_thing_once() {
    let named = |names: Vec<String>| DatasetQuery {
        props: PropSelect::Named(names),
        kinds: vec![DatasetKind::Volume; 1000],
        ..DatasetQuery::default()
    };
    let names = ["used", "name"].iter().cycle().take(145_000).map(|name| (*name).to_owned());
    let distinct = named(names.collect()).distinct().unwrap();
    assert_eq!(distinct.props, PropSelect::Named(vec!["used".into(), "name".into()]));
    assert_eq!(distinct.kinds, [DatasetKind::Volume]);
    let many = named((0..90_000).map(|n| format!("written@{n}")).collect());
    assert_eq!(many.distinct().unwrap_err().reason, Reason::TooMuch);
}

/// Goal: a key never shows in a log line.
#[test]
fn keys_are_not_printed() {
    let r =
        LoadKeyRequest { dataset: "a".into(), key: KeyMaterial::Passphrase(b"secret".to_vec()), noop: false };
    assert!(!format!("{r:?}").contains("115"));
    assert!(!format!("{r:?}").contains("secret"));
}
