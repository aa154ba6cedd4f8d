//! Times the start and the stop of a server of many volumes.
//!
//! Usage:
//! * `afs_start fill IMAGE COUNT` makes a pool with so many volumes, each with a backup volume.
//! * `afs_start names IMAGE COUNT` makes a pool whose list has so many volumes that do not exist.
//! * `afs_start time IMAGE` opens a pool, starts a server, lists the volumes, uses one, and ends.
//! * `afs_start use IMAGE COUNT` has 64 threads use so many volumes for the first time.
//!
//! It prints how long each step took in milliseconds, and the memory that the process has had at
//! most.

#[path = "shared/anonymous.rs"]
mod anonymous;

use std::collections::HashSet;
use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
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
use zpl::{Policies, Policy};

/// That of the daemon.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of the first volume. Each has its backup volume at the next number but one.
const FIRST: u32 = 536_870_912;
/// Numbers of a volume and its clones.
const STEP: u32 = 3;
/// Threads that make volumes: they share transaction groups.
const MAKERS: usize = 256;
/// Threads that use volumes.
const USERS: usize = 64;

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

/// Makes a list of volumes as a server keeps it (`store::kept`), without the volumes.
fn names(image: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    fill(image, 1)?;
    let pool = open(image)?;
    let table = pool.dataset("afs/vicepa/volume-table")?;
    let policy = Policy::of(table.dsl())?;
    let fs = pool.open_for_writing(table.dsl(), Policies::new(policy))?;
    let file = fs.lookup(fs.root(), b"volumes")?;
    let owner = [pool.spa().guid().0, pool.dsl().dir("afs/vicepa")?.object().0];
    let mut bytes = Vec::new();
    for number in 1..=count {
        let objects = 1 << 40 | u64::from(number) << 2;
        let words = [1, FIRST + STEP * number, 0, 0, 0];
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        (0..4).for_each(|at| bytes.extend((objects + at).to_le_bytes()));
    }
    let txg = pool.spa().writer().ok_or("the pool can't be changed")?.txgs().synced().0;
    bytes.extend(3u32.to_le_bytes());
    [txg, owner[0], owner[1]].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    fs.truncate(file, 0, false)?;
    for (number, piece) in bytes.chunks(1 << 20).enumerate() {
        fs.write(file, (number << 20) as u64, piece, false)?;
    }
    drop(fs);
    pool.export()?;
    Ok(())
}

fn open(image: &Path) -> Result<Pool, poolhouse::Error> {
    let options =
        OpenOptions { write: true, force: true, claim: poolhouse::Claim::Own, ..OpenOptions::default() };
    Pool::open(&[image], &options)
}

/// The greatest memory of this process so far, in MB.
fn memory() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1e3)
}

/// Has many threads use volumes at once that nothing has used yet.
fn use_all(image: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let pool = open(image)?;
    let (server, _) = serve(&pool)?;
    let table = &server.core().table;
    let ids = table.ids(None, 0);
    let volumes: Vec<VolumeId> =
        ids.into_iter().filter(|id| (id.0 - FIRST).is_multiple_of(STEP)).take(count).collect();
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    let work = || {
        while let Some(id) = volumes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let volume = table.get(*id).ok_or("a volume is gone")?;
            drop(volume.enter(Access::Read).map_err(|_| "a volume can't be used")?);
        }
        Ok::<_, &str>(())
    };
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..USERS).map(|_| scope.spawn(work)).collect();
        users.into_iter().try_for_each(|user| user.join().map_err(|_| "a thread panicked")?)
    })?;
    let mut out = std::io::stdout();
    writeln!(out, "first uses {:.1}", 1e3 * begun.elapsed().as_secs_f64())?;
    let begun = Instant::now();
    drop(server);
    writeln!(out, "stop {:.1}", 1e3 * begun.elapsed().as_secs_f64())?;
    pool.export()?;
    writeln!(out, "volumes {}", volumes.len())?;
    writeln!(out, "memory {:.1}", memory()?)?;
    Ok(())
}

/// A server without a partition yet, and the partition.
fn serve(pool: &Pool) -> Result<(Server, Arc<Partition>), Box<dyn Error>> {
    let keys = Arc::new(Keys::fixed(Vec::new()));
    let options = Options::new(Ipv4Addr::LOCALHOST, keys, "cell".into(), Uuid([7; 16]));
    let server = Server::start(Options { file_port: 0, volume_port: 0, ..options }, Arc::new(Anonymous))?;
    let partition = Partition::begin(PartitionId(0), pool.clone(), "afs/vicepa")?;
    server.add(Arc::clone(&partition))?;
    Ok((server, partition))
}

fn time(image: &Path) -> Result<(), Box<dyn Error>> {
    let mut last = Instant::now();
    let mut step = |what: &str| {
        let done = writeln!(std::io::stdout(), "{what} {:.1}", 1e3 * last.elapsed().as_secs_f64());
        last = Instant::now();
        done
    };
    let pool = open(image)?;
    step("pool")?;
    let (server, partition) = serve(&pool)?;
    step("partition")?;
    let table = &server.core().table;
    let ids = table.ids(None, 0);
    let mut headers_found = 0;
    step("list")?;
    let at_start = memory()?;
    for what in ["headers", "headers again"] {
        let headers = partition.headers(&HashSet::new())?.ok_or("the partition keeps no headers")?;
        let found = ids.iter().filter_map(|id| table.look(*id)).filter_map(|one| headers.get(one.found()));
        headers_found = found.count();
        step(what)?;
    }
    drop(partition);
    if let Some(volume) = ids.first().and_then(|id| table.get(*id)) {
        drop(volume.enter(Access::Read).map_err(|code| format!("the volume gives {code}"))?);
        step("first use")?;
    }
    drop(server);
    step("stop")?;
    pool.export()?;
    step("export")?;
    let mut out = std::io::stdout();
    writeln!(out, "volumes {}", ids.len())?;
    writeln!(out, "headers found {headers_found}")?;
    writeln!(out, "memory at start {at_start:.1}")?;
    writeln!(out, "memory {:.1}", memory()?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fill", image, count] => fill(Path::new(image), count.parse()?),
        ["names", image, count] => names(Path::new(image), count.parse()?),
        ["time", image] => time(Path::new(image)),
        ["use", image, count] => use_all(Path::new(image), count.parse()?),
        _ => Err("usage: afs_start fill|names|use IMAGE COUNT | time IMAGE".into()),
    }
}
