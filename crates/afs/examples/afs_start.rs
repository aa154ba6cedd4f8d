//! Times the start and the stop of a server of many volumes.
//!
//! Usage: `afs_start fill IMAGE COUNT` makes a pool with so many volumes, each with a backup
//! volume. `afs_start time IMAGE` opens it, starts a server, uses a volume, and ends all. It prints
//! how long each step took in milliseconds.

#[path = "shared/anonymous.rs"]
mod anonymous;

use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use afs::dump::VolumeHeader;
use afs::partition::PartitionId;
use afs::server::header::Stored;
use afs::server::store::{PARTITION, Partition};
use afs::server::volume::Access;
use afs::server::{Options, Server};
use afs::types::{Unique, VolumeId, VolumeType};
use afs::wire::Uuid;
use anonymous::Anonymous;
use poolhouse::{OpenOptions, Pool};
use rx::security::rxkad::Keys;

/// That of the daemon.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of the first volume. Each has its backup volume at the next number but one.
const FIRST: u32 = 536_870_912;
/// Numbers of a volume and its clones.
const STEP: u32 = 3;
/// Threads that make volumes: they share transaction groups.
const MAKERS: usize = 256;

fn header(id: u32, name: String, kind: VolumeType) -> Stored {
    let header = VolumeHeader {
        id: VolumeId(id),
        version: 1,
        name: name.into_bytes(),
        in_service: true,
        blessed: true,
        next_unique: Unique(2),
        kind,
        parent: VolumeId(id - id % STEP + FIRST % STEP),
        disk_used: 2,
        file_count: 1,
        ..VolumeHeader::default()
    };
    Stored { header, used: 2, ..Stored::default() }
}

fn make(partition: &Partition, number: u32) -> afs::server::Result<()> {
    let id = FIRST + STEP * number;
    let of = header(id, format!("volume.{number}"), VolumeType::ReadWrite);
    drop(partition.create(VolumeId(id), &of)?);
    let clone = header(id + 2, format!("volume.{number}.backup"), VolumeType::Backup);
    partition.clone_volume(VolumeId(id), &clone, None)?;
    partition.finish(VolumeId(id), None, true)
}

fn fill(image: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    std::fs::File::create(image)?.set_len(64 << 30)?;
    let pool = Pool::create("afs", &[&[image]])?;
    pool.create_filesystem("afs/vicepa")?;
    pool.set("afs/vicepa", PARTITION, "a")?;
    let partition = Partition::begin(PartitionId(0), pool.clone(), "afs/vicepa")?;
    let next = AtomicU32::new(0);
    let begun = Instant::now();
    let work = || {
        let numbers = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count);
        std::iter::from_fn(numbers).try_for_each(|number| make(&partition, number))
    };
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS).map(|_| scope.spawn(work)).collect();
        makers.into_iter().try_for_each(|maker| {
            maker.join().map_err(|_| "a thread panicked")?.map_err(Box::<dyn Error>::from)
        })
    })?;
    partition.end()?;
    drop(partition);
    pool.export()?;
    writeln!(std::io::stdout(), "made {:.1}", 1e3 * begun.elapsed().as_secs_f64())?;
    Ok(())
}

fn time(image: PathBuf) -> Result<(), Box<dyn Error>> {
    let mut last = Instant::now();
    let mut step = |what: &str| {
        let done = writeln!(std::io::stdout(), "{what} {:.1}", 1e3 * last.elapsed().as_secs_f64());
        last = Instant::now();
        done
    };
    let options =
        OpenOptions { write: true, force: true, claim: poolhouse::Claim::Own, ..OpenOptions::default() };
    let pool = Pool::open(&[image], &options)?;
    step("pool")?;
    let keys = Arc::new(Keys::fixed(Vec::new()));
    let options = Options::new(Ipv4Addr::LOCALHOST, keys, "cell".into(), Uuid([7; 16]));
    let server = Server::start(Options { file_port: 0, volume_port: 0, ..options }, Arc::new(Anonymous))?;
    let partition = Partition::begin(PartitionId(0), pool.clone(), "afs/vicepa")?;
    step("server")?;
    server.add(partition)?;
    step("partition")?;
    let table = &server.core().table;
    let ids = table.ids(None, 0);
    step("list")?;
    if let Some(volume) = ids.first().and_then(|id| table.get(*id)) {
        drop(volume.enter(Access::Read).map_err(|code| format!("the volume gives {code}"))?);
        step("first use")?;
    }
    drop(server);
    step("stop")?;
    pool.export()?;
    step("export")?;
    writeln!(std::io::stdout(), "volumes {}", ids.len())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fill", image, count] => fill(Path::new(image), count.parse()?),
        ["time", image] => time(PathBuf::from(image)),
        _ => Err("usage: afs_start fill IMAGE COUNT | time IMAGE".into()),
    }
}
