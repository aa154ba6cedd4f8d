use std::os::unix::fs::PermissionsExt;

use super::super::VL_SERVICE;
use super::super::location::{
    Addresses, Problem, Registration, SysidError, host_addresses, parse_sysid, server_uuid,
};
use super::*;
use crate::calls::vlserver::Call;
use crate::errors::vldb;
use crate::wire::Uuid;

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

/// Goal: the file of the UUID is made once, in OpenAFS's layout, for its owner only.
#[test]
fn the_uuid_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sysid");
    let uuid = server_uuid(&path, &[address(1), address(2)]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 36);
    assert_eq!(bytes[..8], [0x88aa_bbcc_u32.to_ne_bytes(), 1u32.to_ne_bytes()].concat());
    assert_eq!(bytes[8..24], uuid.0);
    assert_eq!(bytes[24..28], 2u32.to_ne_bytes());
    assert_eq!(bytes[28..], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server_uuid(&path, &[]).unwrap(), uuid);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let other = server_uuid(&folder.path().join("other"), &[]).unwrap();
    assert_ne!(other, uuid);
}

/// Goal: a damaged file is an error, and is not replaced.
#[test]
fn a_damaged_uuid_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sysid");
    let uuid = server_uuid(&path, &[]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(parse_sysid(&bytes), Some(uuid));
    for length in 0..24 {
        assert_eq!(parse_sysid(&bytes[..length]), None);
    }
    // The file of a machine with the other byte order.
    let swapped = [[bytes[3], bytes[2], bytes[1], bytes[0]], [bytes[7], bytes[6], bytes[5], bytes[4]]];
    assert_eq!(parse_sysid(&[&swapped.concat(), &bytes[8..]].concat()), Some(uuid));
    let zero = [&bytes[..8], &[0; 20]].concat();
    std::fs::write(&path, &zero).unwrap();
    assert!(matches!(server_uuid(&path, &[]), Err(SysidError::Shape { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), zero);
    let missing = folder.path().join("no/sysid");
    assert!(matches!(server_uuid(&missing, &[]), Err(SysidError::Write { .. })));
}

/// Goal: programs that start together have one UUID.
#[test]
fn one_uuid_of_many_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sysid");
    let start = std::sync::Barrier::new(8);
    let made: Vec<Uuid> = std::thread::scope(|scope| {
        let make = || {
            start.wait();
            server_uuid(&path, &[address(1)]).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made, vec![made[0]; 8]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Goal: NetInfo and NetRestrict choose the addresses, and need not exist.
#[test]
fn files_choose_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = Addresses {
        net_info: folder.path().join("NetInfo"),
        net_restrict: folder.path().join("NetRestrict"),
    };
    let of_host = [address(1), address(2), address(3)];
    assert_eq!(addresses.choose_from(&of_host).unwrap(), of_host);
    std::fs::write(&addresses.net_restrict, "10.0.0.2\n").unwrap();
    assert_eq!(addresses.choose_from(&of_host).unwrap(), [address(1), address(3)]);
    std::fs::write(&addresses.net_info, "10.0.0.3\nf 1.2.3.4\n").unwrap();
    assert_eq!(addresses.choose_from(&of_host).unwrap(), [address(3), Ipv4Addr::new(1, 2, 3, 4)]);
    // What is wrong in them, or of no use, is said.
    let remarks = || addresses.look(&of_host).unwrap().1;
    assert!(remarks().is_empty());
    std::fs::write(&addresses.net_info, "10.0.0.3\nnonsense\n").unwrap();
    assert!(matches!(&remarks()[..], [one] if one.contains("NetInfo: line 2 ")), "{:?}", remarks());
    std::fs::write(&addresses.net_info, "10.9.9.9\n").unwrap();
    assert!(matches!(&remarks()[..], [one] if one.contains("no such address")), "{:?}", remarks());
    assert_eq!(addresses.choose_from(&of_host).unwrap(), [address(1), address(3)]);
    let many: Vec<_> = (1..=40).map(address).collect();
    std::fs::remove_file(&addresses.net_info).unwrap();
    assert_eq!(addresses.choose_from(&many).unwrap().len(), 16);
    assert!(host_addresses().unwrap().iter().all(|address| !address.is_loopback()));
}

fn fixed() -> Keys {
    Keys::fixed(vec![key(1)])
}

/// Goal: a server registers its addresses, and again when they change.
#[test]
fn a_server_registers() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&taken);
    let answer: Answer = Box::new(move |opcode, arguments| {
        let Call::RegisterAddrs { server, addresses, .. } = Call::decode(opcode, arguments).unwrap();
        kept.lock().push((server, addresses.into_vec()));
        Ok(Vec::new())
    });
    let (server, _) = database(LOCAL, VL_SERVICE, 1, answer);
    let vl = databases(VL_SERVICE, fixed(), &[server.address()]);
    let uuid = Uuid([7; 16]);
    let registration = Registration::start_with(vl, uuid, || Ok(vec![address(1), address(2)])).unwrap();
    let status = registration.wait(Duration::from_secs(60));
    assert!(status.is_registered && status.registered_at.is_some() && status.problem.is_none());
    assert_eq!(status.addresses, [address(1), address(2)]);
    assert_eq!(*taken.lock(), [(uuid, vec![address(1).to_bits(), address(2).to_bits()])]);
    registration.check_now(vec![address(3)]);
    assert_eq!(registration.status().addresses, [address(3)]);
    assert_eq!(taken.lock().len(), 2);
    // Nothing changed, so nothing is registered.
    registration.check_now(vec![address(3)]);
    assert_eq!(taken.lock().len(), 2);
}

/// Goal: a refusal is shown with its meaning, and tried again.
#[test]
fn refusals_are_tried_again() {
    for (code, problem) in [
        (vldb::VL_MULTIPADDR, Problem::AnotherServer),
        (vldb::VL_PERM, Problem::Key),
        (rxgen::RXGEN_OPCODE, Problem::TooOld),
        (vldb::VL_IO, Problem::Refused(vldb::VL_IO)),
        (crate::errors::ubik::UNOTSYNC, Problem::Away),
    ] {
        let (server, log) = database(LOCAL, VL_SERVICE, 1, Box::new(move |_, _| Err(code)));
        let vl = databases(VL_SERVICE, fixed(), &[server.address()]);
        let registration = Registration::start_with(vl, Uuid([7; 16]), || Ok(vec![address(1)])).unwrap();
        let status = registration.wait(Duration::from_secs(60));
        assert!(!status.is_registered);
        assert_eq!(status.problem.map(|(problem, _)| problem), Some(problem));
        assert_eq!(log.lock().len(), 1);
    }
    let vl = databases(VL_SERVICE, fixed(), &[]);
    let registration = Registration::start_with(vl, Uuid([7; 16]), || Ok(Vec::new())).unwrap();
    let status = registration.wait(Duration::from_secs(60));
    assert_eq!(status.problem.map(|(problem, _)| problem), Some(Problem::NoAddress));
}
