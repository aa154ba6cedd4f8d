//! Serves the volumes of a pool over NBD at a Unix socket, until standard input ends. It needs no
//! daemon and no root.
//!
//! ```text
//! cargo run -p poolhouse-nbd --example serve_volume -- /tmp/tour.img /tmp/tour.sock
//! nbdinfo 'nbd+unix:///tour/disk?socket=/tmp/tour.sock'
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what it does")]

use nbd::{Exports, Listing, Offer, Server, Volumes};
use poolhouse::{OpenOptions, Pool};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

/// Offers all volumes of one pool.
struct All(Arc<Volumes>);

impl Exports for All {
    fn find(&self, name: &str) -> Option<Offer> {
        // A name without a volume is refused when the server opens it.
        Some(Offer { name: name.to_owned(), volumes: Arc::clone(&self.0), read_only: false })
    }

    fn listing(&self) -> Listing {
        Listing::All(vec![Arc::clone(&self.0)])
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, socket] = words.as_slice() else {
        return Err("usage: serve_volume IMAGE SOCKET".into());
    };
    let pool = Pool::open(&[image], &OpenOptions { write: true, ..OpenOptions::default() })?;
    let volumes = Volumes::new(pool.clone());
    let server = Server::start()?;
    let listener = server.listen_unix(Path::new(socket), Arc::new(All(Arc::clone(&volumes))), None)?;
    for name in volumes.names()? {
        println!("nbd+unix:///{name}?socket={socket}");
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;

    // Clients have until here. What they flushed is on disk, and an export writes the rest.
    drop(listener);
    volumes.close(true);
    drop((server, volumes));
    pool.export()?;
    Ok(())
}
