//! Replies that get lost: the other server has taken what was sent, and the sender does not know.

use afs::calls::volserver::{BLOCKS_WHOLE, BlocksReply};
use afs::errors::rx as rx_code;
use afs::wire::Wire;
use parking_lot::Mutex;

use super::*;

/// A server that takes all blocks, and whose replies to that get lost.
#[derive(Default)]
struct Lossy {
    /// The last call with blocks, which a site is still to get.
    taken: Mutex<Vec<u8>>,
}

impl Service for Lossy {
    fn quick(&self, _: &rx::Request) -> Option<rx::Reply> {
        None
    }

    fn run(&self, call: &mut rx::Call) -> Result<(), i32> {
        let request = call.read_all(64 << 20).map_err(|_| 1)?;
        let offer = Call::OfferBlocks { transaction: 0, version: BLOCKS_VERSION }.request();
        if request[..4] == offer[..4] {
            let reply = BlocksReply { version: BLOCKS_VERSION, flags: BLOCKS_WHOLE, base: 0 };
            return call.write(reply.to_bytes()).map_err(|_| 2);
        }
        *self.taken.lock() = request;
        Err(rx_code::RX_CALL_DEAD)
    }
}

/// Goal: a clone whose reply got lost counts as sent. So the next release is an increment of what
/// the site has.
#[test]
fn a_reply_that_gets_lost() {
    let cell = Cell::new(3);
    let lossy = Arc::new(Lossy::default());
    let key = rxkad::Server::new(Arc::clone(&cell.here.keys), Level::Clear);
    let options = rx::Options {
        classes: vec![Arc::new(Null), Arc::new(key)],
        services: vec![(4, Arc::clone(&lossy) as Arc<dyn Service>)],
        workers: 2,
        ..rx::Options::default()
    };
    let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0);
    let between = Endpoint::bind(address, options).unwrap();
    let (host, port) = (between.address().ip().to_bits(), between.address().port().into());
    let operator = cell.there.operator();
    let transaction = Cell::begin(&operator);
    let own = cell.here.operator();
    let of_clone = own.begin(CLONE, attach::BUSY).unwrap();
    let (to, to_transaction) = (Destination { host, port, security: 1 }, transaction);
    let call = Call::Forward { transaction: of_clone, since: Date(0), to, to_transaction, cookie: cookie() };
    own.connection.call(call.request(), TIME).unwrap_err();
    own.end(of_clone).unwrap();
    assert_eq!((cell.traffic().0, cell.traffic().2), (0, 0));
    // What the site got.
    let taken = std::mem::take(&mut *lossy.taken.lock());
    operator.connection.call(taken, TIME).unwrap();
    operator.complete(transaction);
    cell.settle();
    cell.check_equal();
    let base = cell.base();
    cell.change(0, 10);
    cell.reclone();
    let pool = cell.here.pool.as_ref().unwrap();
    let bookmarks = pool.dataset(&format!("cell/vicepa/{VOLUME}")).unwrap().dsl().bookmarks().unwrap();
    assert_eq!(bookmarks.iter().map(|bookmark| bookmark.phys.guid).collect::<Vec<_>>(), [base]);
    cell.release(1).unwrap();
    cell.check_equal();
    assert_eq!((cell.traffic().0, cell.traffic().2), (1, 0));
    assert_eq!(cell.there.server().core().traffic.compared.load(Ordering::Relaxed), 1);
}
