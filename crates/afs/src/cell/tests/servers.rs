//! Protection servers over Rx: the host itself.

use super::super::{PR_SERVICE, Protection, PtServer, User};
use super::*;
use crate::calls::ptserver::{Call, CpsReply, PrincipalName};
use crate::cell::protection::AWAY;
use crate::errors::{protection::PRNOENT, ubik};
use crate::types::PrincipalId;
use crate::wire::{List, Wire};

const USERS: [(&str, i32, &[i32]); 3] = [
    ("admin", 1, &[-204, -102, -101, 1]),
    ("someone@other.cell", 70, &[-300, -102, -101, 70]),
    ("anonymous", 32766, &[-101, 32766]),
];

/// The database of a small cell.
fn answer(opcode: u32, arguments: &[u8]) -> Result<Vec<u8>, i32> {
    let cps = |groups: &[i32]| {
        let principals = List::new(groups.iter().copied().map(PrincipalId).collect()).unwrap();
        Ok(CpsReply { principals, over: 0 }.to_bytes())
    };
    match Call::decode(opcode, arguments).unwrap() {
        Call::NameToId { names } => {
            let id = |name: &PrincipalName| {
                let known = USERS.iter().find(|(known, ..)| known.as_bytes() == name.as_bytes());
                PrincipalId(known.map_or(32766, |(_, id, _)| *id))
            };
            Ok(List::<_, 256>::new(names.iter().map(id).collect()).unwrap().to_bytes())
        }
        Call::IdToName { ids } => {
            let name = |id: &PrincipalId| {
                let known = USERS.iter().find(|(_, known, _)| *known == id.0);
                PrincipalName::new(known.map_or(id.to_string(), |(name, ..)| (*name).into()).as_bytes())
            };
            Ok(List::<_, 256>::new(ids.iter().map(name).collect()).unwrap().to_bytes())
        }
        Call::GetCps { id } => cps(USERS.iter().find(|(_, known, _)| *known == id.0).ok_or(PRNOENT)?.2),
        Call::GetHostCps { host: 0x0a00_0001 } => cps(&[-500, -600]),
        Call::GetHostCps { .. } => cps(&[]),
    }
}

fn fixed(kvno: i32) -> Keys {
    Keys::fixed(vec![key(kvno)])
}

/// Goal: users have their groups, and each takes one question until it is flushed.
#[test]
fn users_have_groups() {
    let (server, log) = database(LOCAL, PR_SERVICE, 1, Box::new(answer));
    let protection = PtServer::new(databases(PR_SERVICE, fixed(1), &[server.address()]));
    let admin = protection.user("ADMIN").unwrap();
    assert_eq!(admin.id, PrincipalId(1));
    assert_eq!(admin.groups[..], [-204, -102, -101, 1].map(PrincipalId));
    assert!(admin.is_administrator);
    assert!(Arc::ptr_eq(&admin, &protection.user("admin").unwrap()));
    assert_eq!(std::mem::take(&mut *log.lock()), [504, 508]);
    let foreign = protection.user("someone@other.cell").unwrap();
    assert!(foreign.id == PrincipalId(70) && !foreign.is_administrator);
    log.lock().clear();
    // Unknown names are anonymous, and so are names that no server can know.
    let anonymous = protection.user("unknown").unwrap();
    assert_eq!(*anonymous, User::anonymous());
    assert_eq!(std::mem::take(&mut *log.lock()), [504, 508]);
    for name in ["unknown", &"x".repeat(64), "admin\0"] {
        assert_eq!(protection.user(name).unwrap(), anonymous);
    }
    assert_eq!(*log.lock(), []);
    protection.flush(&[PrincipalId(70)], &[]);
    assert!(Arc::ptr_eq(&admin, &protection.user("admin").unwrap()));
    assert_eq!(*log.lock(), []);
    protection.flush(&[PrincipalId(1)], &[]);
    assert_eq!(protection.user("admin").unwrap(), admin);
    assert_eq!(std::mem::take(&mut *log.lock()), [504, 508]);
}

/// Goal: hosts have groups, and names and numbers are translated.
#[test]
fn hosts_names_and_numbers() {
    let (server, log) = database(LOCAL, PR_SERVICE, 1, Box::new(answer));
    let protection = PtServer::new(databases(PR_SERVICE, fixed(1), &[server.address()]));
    let (one, two) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(protection.host(one).unwrap()[..], [-600, -500].map(PrincipalId));
    assert_eq!(protection.host(two).unwrap()[..], []);
    protection.host(one).unwrap();
    assert_eq!(log.lock().len(), 2);
    protection.flush(&[], &[one.to_bits()]);
    protection.host(one).unwrap();
    protection.host(two).unwrap();
    assert_eq!(log.lock().len(), 3);
    let ids: Vec<_> = [70, 1, 99].map(PrincipalId).into();
    let names = protection.names(&ids).unwrap();
    assert_eq!(names, [b"someone@other.cell".to_vec(), b"admin".to_vec(), b"99".to_vec()]);
    let names = [b"Admin".to_vec(), vec![b'y'; 64], b"someone@other.cell".to_vec()];
    assert_eq!(protection.ids(&names).unwrap(), [1, 32766, 70].map(PrincipalId));
    let many = vec![b"admin".to_vec(); 600];
    assert_eq!(protection.ids(&many).unwrap(), vec![PrincipalId(1); 600]);
    assert_eq!(protection.names(&[]).unwrap(), Vec::<Vec<u8>>::new());
}

/// Goal: while no server answers, known users stay known, and others fail at once.
#[test]
fn the_servers_go_away() {
    let (server, _) = database(LOCAL, PR_SERVICE, 1, Box::new(answer));
    let (away, asked) = database(LOCAL, PR_SERVICE, 1, Box::new(|_, _| Err(ubik::UNOQUORUM)));
    let both = [away.address(), server.address()];
    let protection = PtServer::new(databases(PR_SERVICE, fixed(1), &both));
    // The second server answers for the first one.
    assert_eq!(protection.user("admin").unwrap().id, PrincipalId(1));
    assert_eq!(asked.lock().len(), 1);

    let protection = PtServer::new(databases(PR_SERVICE, fixed(1), &both[..1]));
    assert_eq!(protection.user("admin"), Err(AWAY));
    assert!(protection.is_away());
    let asked_before = asked.lock().len();
    assert_eq!(protection.names(&[PrincipalId(1)]), Err(AWAY));
    assert_eq!(asked.lock().len(), asked_before);
    assert_eq!(*protection.anonymous().unwrap(), User::anonymous());
    let none = PtServer::new(databases(PR_SERVICE, fixed(1), &[]));
    assert_eq!(none.host(Ipv4Addr::LOCALHOST), Err(AWAY));
}

/// Goal: a server with another key takes calls once the file has its key.
#[test]
fn keys_change() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |kvno: u32| {
        let words = [1, 16, 2, kvno, 18, 32].map(u32::to_be_bytes).concat();
        std::fs::write(file.path(), [words, vec![kvno as u8; 32]].concat()).unwrap();
    };
    write(1);
    let (server, _) = database(LOCAL, PR_SERVICE, 2, Box::new(answer));
    let keys = Keys::of_file(file.path()).unwrap();
    let mut databases = databases(PR_SERVICE, keys, &[server.address()]);
    databases.set_times(Duration::from_secs(10), Duration::ZERO);
    let request = Call::GetCps { id: PrincipalId(1) }.request();
    assert_eq!(databases.call(&request), Err(super::super::databases::Failure::Away));
    write(2);
    // The file is looked at again after a second.
    let reply = loop {
        if let Ok(reply) = databases.call(&request) {
            break reply;
        }
        std::thread::yield_now();
    };
    assert_eq!(reply, answer(508, &1u32.to_be_bytes()).unwrap());
    assert!(!databases.is_away());
}
