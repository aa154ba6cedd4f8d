use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

/// Goal: the cell is the first word of the first line.
#[test]
fn the_cell_is_the_first_word() {
    assert_eq!(this_cell(b"example.org\n").unwrap(), "example.org");
    assert_eq!(this_cell(b"  example.org more\nother\n").unwrap(), "example.org");
    assert_eq!(this_cell(b"example.org").unwrap(), "example.org");
    for file in [&b""[..], b"\n", b"  \nexample.org", b"\xff\n", &[b'x'; 64]] {
        assert!(this_cell(file).is_err(), "{file:?}");
    }
}

/// Goal: cells have their servers, clones and links.
#[test]
fn cells_have_their_servers() {
    let file = b">example.org  #Example\n10.0.0.1 #db1.example.org\n[10.0.0.2] # db2\n\n\
        >Other.org example.org #Linked\r\n 192.168.1.1#one\n>empty.org\n>example.org\n10.0.0.9   #new more\n";
    let db = CellServDb::parse(file).unwrap();
    assert_eq!(db.cells().len(), 4);
    let first = &db.cells()[0];
    assert_eq!((first.name.as_str(), first.linked.as_deref()), ("example.org", None));
    let host = |address: [u8; 4], name: &str, is_clone| CellHost {
        address: address.into(),
        name: name.into(),
        is_clone,
    };
    assert_eq!(
        first.hosts,
        [host([10, 0, 0, 1], "db1.example.org", false), host([10, 0, 0, 2], "db2", true)]
    );
    let other = db.cell("other.ORG").unwrap();
    assert_eq!(other.linked.as_deref(), Some("example.org"));
    assert_eq!(other.hosts, [host([192, 168, 1, 1], "one", false)]);
    assert_eq!(db.cell("example.org").unwrap().hosts, [host([10, 0, 0, 9], "new", false)]);
    assert_eq!(db.cell("none.org"), None);
    let many = [&b">a\n"[..], &b"1.2.3.4 #x\n".repeat(MAX_HOSTS + 1)].concat();
    assert_eq!(CellServDb::parse(&many).unwrap().cells()[0].hosts.len(), MAX_HOSTS);
}

/// Goal: a wrong line of CellServDB is named.
#[test]
fn wrong_cells_are_refused() {
    for line in [
        "10.0.0.1",
        "10.0.0.1 name",
        "10.0.0.1 #",
        "10.0.1 #a",
        "10.0.0.256 #a",
        "10.0.0.1.2 #a",
        "[10.0.0.1 #a",
        "# comment",
        ">",
        "-1.0.0.1 #a",
    ] {
        let file = format!(">a\n{line}\n");
        let error = CellServDb::parse(file.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("line 2"), "{line}: {error}");
    }
    assert!(CellServDb::parse(b"10.0.0.1 #a\n").is_err());
}

fn addresses(list: &[[u8; 4]]) -> Vec<Ipv4Addr> {
    list.iter().map(|bytes| Ipv4Addr::from(*bytes)).collect()
}

/// Goal: NetInfo chooses existing addresses by its lines, and fake ones as they are.
#[test]
fn net_info_chooses_addresses() {
    let host = addresses(&[[10, 0, 0, 1], [10, 0, 1, 1], [192, 168, 7, 7]]);
    let choose = |file: &str| {
        let info = NetInfo::parse(file.as_bytes());
        (info.choose(&host), info.wrong_lines)
    };
    assert_eq!(choose("10.0.1.1\n"), (addresses(&[[10, 0, 1, 1]]), vec![]));
    assert_eq!(
        choose("  192.168/16 comment\n\n10.0.0.0/8\n"),
        (addresses(&[[192, 168, 7, 7], [10, 0, 0, 1]]), vec![])
    );
    assert_eq!(choose("10.0.0.1\n10.0.0.0/8\n10.0.0.1\n"), (addresses(&[[10, 0, 0, 1]]), vec![]));
    assert_eq!(choose("f 1.2.3.4\nF1.2.3.5\n10.9.9.9\n"), (addresses(&[[1, 2, 3, 4], [1, 2, 3, 5]]), vec![]));
    assert_eq!(choose("10.9.9.9\n"), (host.clone(), vec![]));
    assert_eq!(choose(""), (host.clone(), vec![]));
    assert_eq!(choose("10.0.1.1.\n"), (addresses(&[[10, 0, 1, 1]]), vec![]));
    let wrong =
        "#x\n10.1\n10.0.0.1/0\n10.0.0.1/33\n10.0.0.300\n10.0.0.1#x\nf 10.0.0.0/8\n1.2.3.4.5\n10.0.0.1/\n";
    assert_eq!(choose(wrong), (host.clone(), (1..=9).collect()));
}

/// Goal: NetRestrict excludes addresses.
#[test]
fn net_restrict_excludes_addresses() {
    let host = addresses(&[[10, 0, 0, 1], [10, 0, 1, 1], [192, 168, 7, 7]]);
    let restrict = NetRestrict::parse(b"10.0.1.0/24\nwrong\n192.168.7.7 # no\n");
    assert_eq!(restrict.keep(&host), addresses(&[[10, 0, 0, 1]]));
    assert_eq!(restrict.wrong_lines, [2]);
    assert_eq!(NetRestrict::default().keep(&host), host);
}

/// Goal: superusers are those of the lines before the first wrong one.
#[test]
fn superusers_are_listed() {
    let list =
        UserList::parse(b"joe\njim.admin extra\n 0 YW5uQGV4YW1wbGUub3Jn ann@example.org\n 1 eHg= xx\nlast");
    assert_eq!(list.wrong_line, None);
    let names: Vec<_> = list.names().collect();
    assert_eq!(names, [&b"joe"[..], b"jim.admin", b"ann@example.org", b"last"]);
    assert!(list.has(b"joe") && !list.has(b"jo") && !list.has(b"") && !list.has(b"xx"));
    for line in ["", " ", " x eHg= x", " 0 eHg x", " 0 eHg=", " 0 e!g= x", " 0 ==== x"] {
        let list = UserList::parse(format!("joe\n{line}\njim\n").as_bytes());
        assert_eq!((list.wrong_line, list.names().len()), (Some(2), 1), "{line}");
    }
}

/// Goal: a UserList that appears, changes and disappears takes effect.
#[test]
fn superusers_follow_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("UserList");
    let users = Superusers::of_file(&path).unwrap();
    assert_eq!((users.has(b"joe"), users.now()), (false, UserList::default()));
    std::fs::write(&path, "joe\n").unwrap();
    users.check_now();
    assert!(users.has(b"joe"));
    std::fs::remove_file(&path).unwrap();
    users.check_now();
    assert!(!users.has(b"joe"));
    std::fs::create_dir(&path).unwrap();
    assert!(Superusers::of_file(&path).is_err());
    assert!(Superusers::fixed(UserList::parse(b"ann")).has(b"ann"));
}

proptest! {
    /// Goal: no file makes a parser panic.
    #[test]
    fn files_never_panic(file in prop::collection::vec(any::<u8>(), 0..200), text in "[>\\[\\]#0-9./ f\n=a-z]{0,80}") {
        for file in [&file[..], text.as_bytes()] {
            let _ = this_cell(file);
            let _ = CellServDb::parse(file);
            NetInfo::parse(file).choose(&[]);
            NetRestrict::parse(file).keep(&[]);
            UserList::parse(file).has(b"x");
        }
    }
}

fn identity(name: &str, realm: &str) -> rx::security::Identity {
    let (name, cell, level) = (name.into(), realm.into(), rx::security::Level::Crypt);
    rx::security::Identity { name, cell, level, expires: 0, kvno: 256 }
}

/// Goal: names of other realms can't pass for those of the cell, and the realms of krb.conf are the
/// cell's, but for the users of krb.excl.
#[test]
fn names_of_callers() {
    let realms = Realms::parse("cell.org", b" EXAMPLE.ORG MORE.ORG\nnot.this\n", b"joe@more.org\n");
    let name = |name: &str, realm: &str| realms.name_of(&identity(name, realm));
    assert_eq!(name("Admin", "EXAMPLE.ORG").as_deref(), Some("admin"));
    assert_eq!(name("ann", "CELL.ORG").as_deref(), Some("ann"));
    assert_eq!(name("ann", "more.org").as_deref(), Some("ann"));
    assert_eq!(name("joe", "MORE.ORG").as_deref(), Some("joe@more.org"));
    assert_eq!(name("afs", "").as_deref(), Some("afs"));
    assert_eq!(name("ann", "not.this").as_deref(), Some("ann@not.this"));
    assert_eq!(name("someone.x", "OTHER.ORG").as_deref(), Some("someone.x@other.org"));
    assert_eq!(name("someone@other.org", "EXAMPLE.ORG"), None);
    assert_eq!(name("admin\0", "EXAMPLE.ORG"), None);
}

/// Goal: superusers are those of UserList, foreign ones with their realm, and none other.
#[test]
fn superusers_by_realm() {
    let realms = Realms::parse("cell.org", b"EXAMPLE.ORG", b"");
    let users = Superusers::fixed(UserList::parse(b"ann\nbob@other.org\n"));
    let is = |name: &str, realm: &str| realms.is_superuser(&identity(name, realm), &users);
    assert!(is("ann", "") && is("ann", "EXAMPLE.ORG") && is("ann", "cell.org"));
    assert!(is("bob", "other.org") && is("bob", "OTHER.ORG") && is("afs", ""));
    assert!(!is("ann", "other.org") && !is("bob", "") && !is("afs", "other.org") && !is("afs", "cell.org"));
    assert!(!is("bob@other.org", "") && !is("bob@other.org", "EXAMPLE.ORG"));
}
