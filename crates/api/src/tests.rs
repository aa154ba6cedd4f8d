//! The client and the dispatch agree on every method, and on errors.

use super::*;

/// A service that knows one pool.
struct One;

impl FakeService for One {
    fn pool_names(&self, _: &Caller) -> Result<Vec<String>, Error> {
        Ok(vec!["one".into()])
    }
    fn pool(&self, _: &Caller, name: &str, query: &PoolQuery) -> Result<Pool, Error> {
        if name != "one" {
            return Err(Error::new(name, Reason::NoSuchPool));
        }
        let props =
            if query.props { vec![Prop::number("size", "1K", 1024, Source::None)] } else { Vec::new() };
        Ok(Pool { name: name.into(), guid: u64::MAX, props, ..Pool::default() })
    }
    fn import(&self, _: &Caller, request: &ImportRequest) -> Result<ImportOutcome, Error> {
        Ok(ImportOutcome { name: request.new_name.clone().unwrap_or_default(), ..ImportOutcome::default() })
    }
    fn export(&self, _: &Caller, request: &ExportRequest) -> Result<(), Error> {
        Err(Error::new(&request.name, Reason::Busy))
    }
    fn logs(&self, _: &Caller) -> Result<Vec<LogStats>, Error> {
        Ok(vec![LogStats { dataset: "one/fs".into(), counters: [("zil_commit_count".into(), 7)].into() }])
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
    dispatch(&One, &Caller::this_process(), method, body, &mut answer).unwrap();
    (answer.0, answer.1)
}

/// A transport without a socket.
struct Direct;

impl Transport for Direct {
    fn post(&self, method: &str, body: &[u8]) -> Result<Vec<u8>, TransportError> {
        Ok(answered(method, body).1)
    }
}

/// Goal: answers and errors survive the wire format.
#[test]
fn client_and_dispatch_agree() {
    let c = Client::new(Direct);
    assert_eq!(c.pool_names().unwrap(), ["one"]);
    let query = PoolQuery { props: true, ..PoolQuery::default() };
    let pool = c.pool("one", &query).unwrap();
    assert_eq!(pool.guid, u64::MAX);
    assert_eq!(pool.prop("size").unwrap().value(true), "1024");
    assert_eq!(c.logs().unwrap(), InProcess::new(&One).logs().unwrap());
    assert_eq!(c.kstats().unwrap_err(), Error::new("kstats", Reason::NoSuchMethod));
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

/// Goal: a malformed request, or one for something absent, is an error with a fitting status and
/// never a panic.
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

/// Goal: a property that a query names several times is answered once, at its first position. A
/// query that names too many is refused.
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

/// Goal: a key never appears in a log line.
#[test]
fn keys_are_not_printed() {
    let r =
        LoadKeyRequest { dataset: "a".into(), key: KeyMaterial::Passphrase(b"secret".to_vec()), noop: false };
    assert!(!format!("{r:?}").contains("115"));
    assert!(!format!("{r:?}").contains("secret"));
}

/// Goal: messages have the texts of system errors without their numbers.
#[test]
fn messages_have_no_error_numbers() {
    for (message, expected) in [
        ("a: Permission denied (os error 13)", "a: Permission denied"),
        ("no (os error 2): later (os error -5)", "no: later"),
        ("the file 'x (os error y)'", "the file 'x (os error y)'"),
        ("the file 'x (os error 2'", "the file 'x (os error 2'"),
    ] {
        assert_eq!(plain(message), expected);
    }
    let missing = std::io::Error::from_raw_os_error(2);
    assert_eq!(chain(&std::io::Error::other(missing)), "No such file or directory");
}
