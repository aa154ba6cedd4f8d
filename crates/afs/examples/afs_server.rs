//! A file server and volume server of a cell, without a daemon.
//!
//! OpenAFS's programs judge the crate by it. It serves one partition of a pool on image files, and
//! makes both if they do not exist. It ends with the end of its standard input, or by a signal,
//! which then is a crash.
//!
//! Usage: `afs_server [--shards N] [--dumps] ADDRESS KEYFILEEXT CELL IMAGE...`, with N sockets for
//! the file server, or one. With `--dumps`, volumes go to other servers as dumps, not as blocks. At
//! the end, it prints how many went in which way.

#[path = "shared/anonymous.rs"]
mod anonymous;

use std::error::Error;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use afs::partition::PartitionId;
use afs::server::store::{PARTITION, Partition};
use afs::server::{AFS_SEND_BLOCKS, Options, Server};
use afs::wire::Uuid;
use anonymous::Anonymous;
use poolhouse::{OpenOptions, Pool};
use rx::security::rxkad::Keys;

/// That of the daemon.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mut shards, mut args) = (1, &args[..]);
    loop {
        args = match args {
            [option, count, rest @ ..] if option == "--shards" => {
                shards = count.parse()?;
                rest
            }
            [option, rest @ ..] if option == "--dumps" => {
                AFS_SEND_BLOCKS.assign(0)?;
                rest
            }
            _ => break,
        };
    }
    let [address, keys, cell, images @ ..] = args else {
        return Err("usage: afs_server [--shards N] [--dumps] ADDRESS KEYFILEEXT CELL IMAGE...".into());
    };
    let address: Ipv4Addr = address.parse()?;
    let images: Vec<PathBuf> = images.iter().map(PathBuf::from).collect();
    let options =
        OpenOptions { write: true, force: true, claim: poolhouse::Claim::Own, ..OpenOptions::default() };
    let pool = match images.iter().all(|image| image.metadata().is_ok_and(|about| about.len() > 0)) {
        true => Pool::open(&images, &options)?,
        false => {
            for image in &images {
                std::fs::File::create(image)?.set_len(8 << 30)?;
            }
            let layout: Vec<&[PathBuf]> = images.iter().map(std::slice::from_ref).collect();
            let pool = Pool::create("afs", &layout)?;
            pool.create_filesystem("afs/vicepa")?;
            pool.set("afs/vicepa", PARTITION, "a")?;
            pool
        }
    };
    let partition = Partition::begin(PartitionId(0), pool.clone(), "afs/vicepa")?;
    let keys = Arc::new(Keys::of_file(keys)?);
    let promises_file = images.first().map(|image| image.with_extension("promises"));
    let options =
        Options { shards, promises_file, ..Options::new(address, keys, cell.clone(), Uuid([7; 16])) };
    let server = Server::start(options, Arc::new(Anonymous))?;
    server.add(partition)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let traffic = &server.core().traffic;
    let (blocks, dumps) = (traffic.sent.load(Relaxed), traffic.dumps.load(Relaxed));
    writeln!(std::io::stdout(), "sent as blocks {blocks}, as dumps {dumps}")?;
    drop(server);
    pool.export()?;
    Ok(())
}
