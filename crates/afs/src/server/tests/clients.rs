//! Clients over a network: the host itself.

use rx::{Call as RxCall, Endpoint, Reply, Request, Service};

use super::super::clients::RxClients;
use super::*;
use crate::calls::callback::{AboutReply, Call, Interface};
use crate::errors::rxgen;
use crate::wire::{List, Wire};

/// A client program.
struct Manager {
    uuid: Uuid,
    /// It knows only the calls of old clients.
    is_old: bool,
    log: Arc<Mutex<Vec<Call>>>,
}

impl Service for Manager {
    fn quick(&self, request: &Request) -> Option<Reply> {
        let (opcode, arguments) = request.body.split_at(4);
        let opcode = u32::from_be_bytes(opcode.try_into().unwrap());
        let call = Call::decode(opcode, arguments).unwrap();
        let interface = Interface { uuid: self.uuid, ..Interface::default() };
        let reply = match &call {
            Call::TellMeAboutYourself {} if self.is_old => return Some(Reply::Abort(rxgen::RXGEN_OPCODE)),
            Call::TellMeAboutYourself {} => {
                AboutReply { interface, capabilities: List::new(vec![1]).unwrap() }.to_bytes()
            }
            Call::WhoAreYou {} => interface.to_bytes(),
            _ => Vec::new(),
        };
        self.log.lock().push(call);
        Some(Reply::Parts(vec![reply.into()]))
    }

    fn run(&self, _: &mut RxCall) -> Result<(), i32> {
        Err(rxgen::RXGEN_OPCODE)
    }
}

const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn manager(number: u8, is_old: bool) -> (Endpoint, Arc<Mutex<Vec<Call>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let service = Manager { uuid: Uuid([number; 16]), is_old, log: Arc::clone(&log) };
    let services: Vec<(u16, Arc<dyn Service>)> = vec![(1, Arc::new(service))];
    let endpoint = Endpoint::bind(
        LOCAL,
        rx::Options { services, classes: vec![Arc::new(rx::security::Null)], ..rx::Options::default() },
    )
    .unwrap();
    (endpoint, log)
}

/// Goal: hosts are introduced and called back over Rx, and one that is not there fails alone.
#[test]
fn clients_are_called_over_rx() {
    let server = Arc::new(Endpoint::bind(LOCAL, rx::Options::default()).unwrap());
    let clients = Arc::new(RxClients::new(Uuid([9; 16])));
    let ((new, new_log), (old, old_log)) = (manager(1, false), manager(2, true));
    let time = Duration::from_secs(10);
    assert_eq!(clients.about(new.address(), time), Err(Failure::Silent));
    clients.attach(&server);

    let hosts = Arc::new(Hosts::new(Arc::clone(&clients) as Arc<dyn Clients>, Options::default()));
    let limits = Limits { deadline: time, ..Limits::default() };
    let callbacks = CallBacks::start(Arc::clone(&hosts), limits).unwrap();
    let (first, second) = (hosts.of(new.address(), EPOCH, true), hosts.of(old.address(), EPOCH, true));
    assert!(first.is_ready() && second.is_ready());
    assert!(first.wants_unified() && !second.wants_unified());
    assert_eq!(second.uuid(), Some(Uuid([2; 16])));
    let reset = Call::InitCallBackState3 { server: Uuid([9; 16]) };
    assert_eq!(std::mem::take(&mut *new_log.lock()), [Call::TellMeAboutYourself {}, reset.clone()]);
    assert_eq!(std::mem::take(&mut *old_log.lock()), [Call::WhoAreYou {}, reset]);

    let volume = callbacks.volume(VOLUME);
    for host in [&first, &second] {
        volume.promise(host, file(1).0, file(1).1, now());
    }
    volume.changed(&[file(1)], Some(&first));
    assert_eq!(*new_log.lock(), []);
    let calls = std::mem::take(&mut *old_log.lock());
    assert!(matches!(&calls[..], [Call::CallBack { fids, callbacks }]
        if fids[..] == [Fid { volume: VOLUME, vnode: file(1).0, unique: file(1).1 }]
            && callbacks.is_empty()));

    let gone = old.address();
    drop(old);
    let results = clients.probe(&[gone, new.address()], Duration::from_millis(200));
    assert_eq!(results, [Err(Failure::Silent), Ok(())]);
    drop(server);
    assert_eq!(clients.probe(&[new.address()], time), [Err(Failure::Silent)]);
}

/// Goal: more calls to a client than a connection carries don't wait for each other.
#[test]
fn many_calls_to_one_client() {
    let server = Arc::new(Endpoint::bind(LOCAL, rx::Options::default()).unwrap());
    let clients = RxClients::new(Uuid([9; 16]));
    clients.attach(&server);
    let (client, log) = manager(1, false);
    let peer = client.address();
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(clients.probe(&[peer], Duration::from_secs(20)), [Ok(())]);
                }
            });
        }
    });
    assert_eq!(log.lock().len(), 300);
    clients.forget(client.address());
    assert_eq!(clients.reset(client.address(), false, Duration::from_secs(20)), Ok(()));
    assert_eq!(log.lock().pop(), Some(Call::InitCallBackState {}));
}
