use proptest::prelude::*;

use super::{callback, fileserver, ptserver, vlserver, volserver};
use crate::Error;
use crate::types::{Fid, PrincipalId, Unique, Vnode, VolumeId};
use crate::wire::Chars;

/// A service's functions on bytes.
struct Service {
    name: &'static str,
    all: &'static [(u32, &'static str)],
    size_before_data: fn(u32) -> Option<usize>,
    /// Decodes a request's arguments, and makes the request again.
    again: fn(u32, &[u8]) -> crate::Result<Vec<u8>>,
    /// Decodes a reply, and encodes it again.
    reply: fn(u32, &[u8]) -> crate::Result<Vec<u8>>,
}

macro_rules! service {
    ($name:ident) => {
        Service {
            name: stringify!($name),
            all: $name::Call::ALL,
            size_before_data: $name::Call::size_before_data,
            again: |opcode, bytes| {
                let call = $name::Call::decode(opcode, bytes)?;
                assert_eq!(call.opcode(), opcode);
                assert!(!format!("{call:?}").is_empty());
                Ok(call.request())
            },
            reply: |opcode, bytes| Ok($name::Reply::decode(opcode, bytes)?.encode()),
        }
    };
}

const SERVICES: [Service; 5] =
    [service!(fileserver), service!(volserver), service!(callback), service!(ptserver), service!(vlserver)];

fn service(name: &str) -> &'static Service {
    SERVICES.iter().find(|service| service.name == name).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

/// Goal: requests and replies between programs of OpenAFS 1.8.9 are decoded, and encoded again they
/// have the same bytes.
#[test]
fn calls_of_openafs_come_back() {
    let path = format!("{}/tests/data/openafs-calls.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut count = 0;
    for row in text.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split(' ').collect();
        let [name, opcode, request, reply] = fields[..] else { panic!("{row}") };
        let (service, opcode, request) = (service(name), opcode.parse().unwrap(), unhex(request));
        let again = (service.again)(opcode, &request[4..]).unwrap_or_else(|error| panic!("{row}: {error:?}"));
        assert_eq!(again, request, "{name} {opcode}");
        if let Some(size) = (service.size_before_data)(opcode) {
            assert_eq!(size + 4, request.len(), "{name} {opcode}");
        }
        if reply != "-" {
            let reply = if reply == "." { Vec::new() } else { unhex(reply) };
            let again = (service.reply)(opcode, &reply).unwrap_or_else(|error| panic!("{row}: {error:?}"));
            assert_eq!(again, reply, "{name} {opcode}");
        }
        count += 1;
    }
    assert!(count > 50, "{count}");
}

/// Goal: each call and each reply comes back, and one that ends early is refused.
#[test]
fn each_call_comes_back() {
    for service in &SERVICES {
        for (opcode, name) in service.all {
            for decode in [service.again, service.reply] {
                // The smallest form is all zeros: empty strings and lists.
                let whole: Vec<usize> =
                    (0..3000).step_by(4).filter(|n| decode(*opcode, &vec![0; *n]).is_ok()).collect();
                assert_eq!(whole.len(), 1, "{} {name}: {whole:?}", service.name);
            }
            let size = (0..3000).step_by(4).find(|n| (service.again)(*opcode, &vec![0; *n]).is_ok()).unwrap();
            let request = (service.again)(*opcode, &vec![0; size]).unwrap();
            assert_eq!(request, [&opcode.to_be_bytes()[..], &vec![0; size]].concat());
        }
        let numbers: Vec<u32> = service.all.iter().map(|(opcode, _)| *opcode).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{}", service.name);
    }
}

/// Goal: the lists of calls are those that servers of a cell answer.
#[test]
fn all_calls_are_there() {
    let numbers = |service: &Service| service.all.iter().map(|(opcode, _)| *opcode).collect::<Vec<_>>();
    let needed = (130..=142)
        .chain([147, 149, 150, 153])
        .chain(155..=158)
        .chain([160, 161, 164])
        .chain(65_536..=65_540);
    let files = numbers(service("fileserver"));
    assert!(needed.into_iter().all(|opcode| files.contains(&opcode)));
    // The last two are ours alone, far from OpenAFS's.
    let ours = [0x506f_7001, 0x506f_7002];
    let volumes: Vec<u32> = (100..=128).chain(65_536..=65_539).chain([65_547]).chain(ours).collect();
    assert_eq!(numbers(service("volserver")), volumes);
    assert_eq!(numbers(service("callback")), [204, 205, 206, 212, 213, 214, 65_538]);
    assert_eq!(fileserver::Call::name(132), Some("FetchStatus"));
    assert_eq!(volserver::Call::name(1), None);
    for service in &SERVICES {
        assert!(matches!((service.again)(9999, &[]), Err(Error::Opcode { opcode: 9999 })));
        assert!(matches!((service.reply)(9999, &[]), Err(Error::Opcode { opcode: 9999 })));
    }
}

/// Goal: calls whose data follow say where they begin.
#[test]
fn data_follow_some_calls() {
    let with_data = |service: &Service| {
        let sizes = service.all.iter().map(|(opcode, _)| (*opcode, (service.size_before_data)(*opcode)));
        sizes.filter_map(|(opcode, size)| Some((opcode, size?))).collect::<Vec<_>>()
    };
    assert_eq!(with_data(service("fileserver")), [(133, 48), (65_538, 60)]);
    assert_eq!(with_data(service("volserver")), [(102, 148), (0x506f_7002, 160)]);
    assert_eq!(fileserver::Call::size_before_data(9999), None);
}

/// A request of fids, with this count before them.
fn fids(count: u32, there: usize) -> Vec<u8> {
    [count.to_be_bytes().to_vec(), vec![1; 12 * there]].concat()
}

/// Goal: lists and strings beyond their limits are refused, whatever follows them.
#[test]
fn limits_hold() {
    let inline = |bytes: &[u8]| fileserver::Call::decode(65_536, bytes);
    assert!(inline(&fids(50, 50)).is_ok());
    for bytes in [fids(51, 51), fids(u32::MAX, 0), fids(50, 49), fids(1, 2)] {
        assert!(matches!(inline(&bytes), Err(Error::Arguments { opcode: 65_536, .. })));
    }
    let fid = Fid { volume: VolumeId(1), vnode: Vnode(1), unique: Unique(1) };
    let acl = fileserver::AclBytes::new(vec![b'x'; 1024]).unwrap();
    let mut request = fileserver::Call::StoreAcl { fid, acl }.request();
    assert!(fileserver::Call::decode(164, &request[4..]).is_ok());
    request[18..20].copy_from_slice(&1025u16.to_be_bytes());
    request.extend_from_slice(&[0; 4]);
    assert!(fileserver::Call::decode(164, &request[4..]).is_err());
    assert_eq!(fileserver::AclBytes::new(vec![b'x'; 1025]), None);
}

/// Goal: a reply names what a client asked for.
#[test]
fn replies_carry_values() {
    let names = crate::wire::List::new(vec![Chars::new(b"joe"), Chars::new(b"system:anyuser")]).unwrap();
    let reply = ptserver::Reply::IdToName(names);
    assert_eq!(ptserver::Reply::decode(505, &reply.encode()).unwrap(), reply);
    let principals = crate::wire::List::new(vec![PrincipalId::ANYUSER, PrincipalId(7)]).unwrap();
    let reply = ptserver::Reply::GetCps(ptserver::CpsReply { principals, over: 0 });
    assert_eq!(reply.encode(), [0, 0, 0, 2, 255, 255, 255, 155, 0, 0, 0, 7, 0, 0, 0, 0]);
    let interface = callback::Interface { count: 2, addresses: [9; 32], ..Default::default() };
    assert_eq!(interface.known_addresses(), [9, 9]);
    for (count, known) in [(-1, 0), (0, 0), (33, 32), (i32::MAX, 32)] {
        assert_eq!(callback::Interface { count, ..Default::default() }.known_addresses().len(), known);
    }
}

proptest! {
    /// Goal: no bytes make a decoder panic, and what is decoded has the same bytes again, but for
    /// words without a meaning.
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 0..8u8, 1 => any::<u8>()], 0..400)) {
        for service in &SERVICES {
            for (opcode, name) in service.all {
                for decode in [service.again, service.reply] {
                    if let Ok(once) = decode(*opcode, &bytes) {
                        let arguments = once.strip_prefix(&opcode.to_be_bytes()[..]).unwrap_or(&once);
                        prop_assert!(arguments.len() <= bytes.len(), "{name}");
                    }
                }
            }
        }
    }
}
