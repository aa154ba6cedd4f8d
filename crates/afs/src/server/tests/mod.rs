mod callbacks;
mod clients;
mod hosts;
mod threads;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};

use super::callbacks::{CallBacks, Limits};
use super::clients::{About, Clients, Failure};
use super::hosts::{Host, Hosts, Options};
use crate::types::{Fid, Unique, Vnode, VolumeId};
use crate::wire::Uuid;

/// The epoch of each client's first connection.
const EPOCH: u32 = 77;

/// A call to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    About(SocketAddrV4),
    Reset(SocketAddrV4, bool),
    CallBack(SocketAddrV4, Vec<(u32, u32)>),
    Probe(SocketAddrV4),
}

/// What a client of a test does.
#[derive(Debug, Clone, Default)]
struct Behaviour {
    about: About,
    is_silent: bool,
}

/// Takes each end of a promise to a client.
type Taker = Box<dyn Fn(SocketAddrV4, &[Fid]) + Send + Sync>;

/// Clients without a network.
#[derive(Default)]
struct Fake {
    peers: Mutex<HashMap<SocketAddrV4, Behaviour>>,
    log: Mutex<Vec<Event>>,
    /// Addresses whose answers are held back.
    held: Mutex<Vec<SocketAddrV4>>,
    released: Condvar,
    taker: Option<Taker>,
}

impl Fake {
    fn behaviour(&self, peer: SocketAddrV4) -> Result<Behaviour, Failure> {
        let known = self.peers.lock().get(&peer).cloned();
        known.filter(|known| !known.is_silent).ok_or(Failure::Silent)
    }

    fn note(&self, event: Event) {
        self.log.lock().push(event);
    }

    /// The calls since the last look.
    fn events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.log.lock())
    }

    fn set(&self, peer: SocketAddrV4, uuid: Option<u8>) {
        let about = About { uuid: uuid.map(|number| Uuid([number; 16])), capabilities: 1 };
        self.peers.lock().insert(peer, Behaviour { about, is_silent: false });
    }

    fn silence(&self, peer: SocketAddrV4, is_silent: bool) {
        self.peers.lock().entry(peer).or_default().is_silent = is_silent;
    }

    fn release(&self) {
        self.held.lock().clear();
        self.released.notify_all();
    }
}

impl Clients for Fake {
    fn about(&self, peer: SocketAddrV4, _: Duration) -> Result<About, Failure> {
        self.note(Event::About(peer));
        let mut held = self.held.lock();
        while held.contains(&peer) {
            self.released.wait(&mut held);
        }
        drop(held);
        self.behaviour(peer).map(|known| known.about)
    }

    fn reset(&self, peer: SocketAddrV4, has_uuid: bool, _: Duration) -> Result<(), Failure> {
        self.note(Event::Reset(peer, has_uuid));
        self.behaviour(peer).map(|_| ())
    }

    fn call_back(&self, peers: &[SocketAddrV4], fids: &[Fid], _: Duration) -> Vec<Result<(), Failure>> {
        let one = |peer: &SocketAddrV4| {
            let files = fids.iter().map(|fid| (fid.vnode.0, fid.unique.0)).collect();
            self.note(Event::CallBack(*peer, files));
            self.behaviour(*peer)?;
            if let Some(taker) = &self.taker {
                taker(*peer, fids);
            }
            Ok(())
        };
        peers.iter().map(one).collect()
    }

    fn probe(&self, peers: &[SocketAddrV4], _: Duration) -> Vec<Result<(), Failure>> {
        let one = |peer: &SocketAddrV4| {
            self.note(Event::Probe(*peer));
            self.behaviour(*peer).map(|_| ())
        };
        peers.iter().map(one).collect()
    }

    fn forget(&self, _: SocketAddrV4) {}
}

fn peer(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), 7001)
}

/// A server with these clients.
struct World {
    fake: Arc<Fake>,
    hosts: Arc<Hosts>,
    callbacks: CallBacks,
}

impl World {
    fn with(fake: Fake, options: Options, limits: Limits) -> Self {
        let fake = Arc::new(fake);
        let hosts = Arc::new(Hosts::new(Arc::clone(&fake) as Arc<dyn Clients>, options));
        let callbacks = CallBacks::start(Arc::clone(&hosts), limits).unwrap();
        Self { fake, hosts, callbacks }
    }

    fn new() -> Self {
        // There is no pause after a client failed.
        let options = Options { retry: Duration::ZERO, ..Options::default() };
        Self::with(Fake::default(), options, Limits::default())
    }

    /// The host with this number, at the address with this number.
    fn host(&self, number: u8) -> Arc<Host> {
        self.fake.set(peer(number), Some(number));
        let host = self.hosts.of(peer(number), EPOCH, true);
        assert!(host.is_ready());
        self.fake.events();
        host
    }
}

fn file(number: u32) -> (Vnode, Unique) {
    (Vnode(2 * number), Unique(number))
}

const VOLUME: VolumeId = VolumeId(536_870_912);

fn broken(at: u8, files: &[u32]) -> Event {
    Event::CallBack(peer(at), files.iter().map(|number| (2 * number, *number)).collect())
}

fn now() -> Instant {
    Instant::now()
}
