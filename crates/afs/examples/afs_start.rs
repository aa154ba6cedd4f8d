//! Times the start and the stop of a server of many volumes.
//!
//! Usage:
//! * `afs_start fill IMAGE COUNT` makes a pool with so many volumes, each with a backup volume.
//! * `afs_start names IMAGE COUNT` makes a pool whose list has so many volumes that do not exist.
//! * `afs_start time IMAGE` opens a pool, starts a server, lists the volumes, uses one, and ends.
//! * `afs_start use IMAGE COUNT` has 64 threads use so many volumes for the first time.
//! * `afs_start attach IMAGE COUNT` makes a pool with three partitions of so many names, attaches
//!   them at once, and prints in percent how long the threads waited for locks.
//!
//! It prints how long each step took in milliseconds, and the memory that the process has had at
//! most.

#[path = "shared/anonymous.rs"]
mod anonymous;

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    partition.create(VolumeId(id), &of)?;
    let clone = header(id + 2, format!("volume.{number}.backup"), VolumeType::Backup);
    partition.clone_volume(VolumeId(id), &clone, None)?;
    partition.finish(VolumeId(id), None, true)
}

/// Makes a pool with partitions, from a on.
fn new_pool(image: &Path, partitions: u8) -> Result<Pool, Box<dyn Error>> {
    std::fs::File::create(image)?.set_len(64 << 30)?;
    let pool = Pool::create("afs", &[&[image]])?;
    for number in 0..partitions {
        let dataset = dataset(number);
        pool.create_filesystem(&dataset)?;
        pool.set(&dataset, PARTITION, &PartitionId(number).to_string()["/vicep".len()..])?;
    }
    Ok(pool)
}

fn dataset(partition: u8) -> String {
    format!("afs{}", PartitionId(partition))
}

/// Makes volumes of these numbers in a partition.
fn fill_partition(pool: &Pool, partition: u8, numbers: Range<u32>) -> Result<(), Box<dyn Error>> {
    let partition = Partition::begin(PartitionId(partition), pool.clone(), &dataset(partition))?;
    let next = AtomicU32::new(numbers.start);
    let work = || {
        let each = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < numbers.end);
        std::iter::from_fn(each).try_for_each(|number| make(&partition, number))
    };
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS).map(|_| scope.spawn(work)).collect();
        makers.into_iter().try_for_each(|maker| {
            maker.join().map_err(|_| "a thread panicked")?.map_err(Box::<dyn Error>::from)
        })
    })?;
    partition.end()?;
    Ok(())
}

fn fill(image: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    let pool = new_pool(image, 1)?;
    let begun = Instant::now();
    fill_partition(&pool, 0, 0..count)?;
    pool.export()?;
    writeln!(std::io::stdout(), "made {:.1}", 1e3 * begun.elapsed().as_secs_f64())?;
    Ok(())
}

/// Makes partitions that each have a list of so many volumes as a server keeps it (`store::kept`),
/// without the volumes.
fn names(image: &Path, count: u32, partitions: u8) -> Result<(), Box<dyn Error>> {
    let pool = new_pool(image, partitions)?;
    let first = |partition: u8| u32::from(partition) * (count + 1);
    for partition in 0..partitions {
        fill_partition(&pool, partition, first(partition)..first(partition) + 1)?;
    }
    pool.export()?;
    drop(pool);
    let pool = open(image)?;
    for partition in 0..partitions {
        let first = first(partition) + 1;
        name_volumes(&pool, &dataset(partition), first..first + count)?;
    }
    pool.export()?;
    Ok(())
}

fn name_volumes(pool: &Pool, dataset: &str, numbers: Range<u32>) -> Result<(), Box<dyn Error>> {
    let table = pool.dataset(&format!("{dataset}/volume-table"))?;
    let policy = Policy::of(table.dsl())?;
    let fs = pool.open_for_writing(table.dsl(), Policies::new(policy))?;
    let file = fs.lookup(fs.root(), b"volumes")?;
    let owner = [pool.spa().guid().0, pool.dsl().dir(dataset)?.object().0];
    let mut bytes = Vec::new();
    for number in numbers {
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
    Ok(())
}

/// Attaches three partitions at once, each by a thread, and prints how long they waited for locks.
fn attach(image: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    const PARTITIONS: u8 = 3;
    names(image, count, PARTITIONS)?;
    let pool = open(image)?;
    let server = start()?;
    let waited = || observe::lock_stats().into_iter().map(|site| (site.name, site.total_ns));
    let before: BTreeMap<_, _> = waited().collect();
    let begun = Instant::now();
    let work = |number: u8| -> Result<Duration, Box<dyn Error + Send + Sync>> {
        server.add(Partition::begin(PartitionId(number), pool.clone(), &dataset(number))?)?;
        Ok(begun.elapsed())
    };
    let work = &work;
    let took = std::thread::scope(|scope| {
        let all: Vec<_> = (0..PARTITIONS).map(|number| scope.spawn(move || work(number))).collect();
        let each = all.into_iter().map(|one| one.join().map_err(|_| "a thread panicked")?);
        each.collect::<Result<Vec<_>, Box<dyn Error + Send + Sync>>>()
    });
    let took = took.map_err(|error| error.to_string())?;
    let (wall, threads) = (begun.elapsed(), took.iter().sum::<Duration>().as_secs_f64());
    let mut out = std::io::stdout();
    writeln!(out, "volumes {}", server.core().table.ids(None, 0).len())?;
    writeln!(out, "attach {:.1}", 1e3 * wall.as_secs_f64())?;
    for (site, ns) in waited() {
        let ns = ns - before.get(site).copied().unwrap_or(0);
        writeln!(out, "waits for {site} {:.2}", 1e2 * Duration::from_nanos(ns).as_secs_f64() / threads)?;
    }
    drop(server);
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

/// A server without a partition.
fn start() -> Result<Server, Box<dyn Error>> {
    let keys = Arc::new(Keys::fixed(Vec::new()));
    let options = Options::new(Ipv4Addr::LOCALHOST, keys, "cell".into(), Uuid([7; 16]));
    Ok(Server::start(Options { file_port: 0, volume_port: 0, ..options }, Arc::new(Anonymous))?)
}

/// A server of the partition a, and the partition.
fn serve(pool: &Pool) -> Result<(Server, Arc<Partition>), Box<dyn Error>> {
    let server = start()?;
    let partition = Partition::begin(PartitionId(0), pool.clone(), &dataset(0))?;
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
        ["names", image, count] => names(Path::new(image), count.parse()?, 1),
        ["attach", image, count] => attach(Path::new(image), count.parse()?),
        ["time", image] => time(Path::new(image)),
        ["use", image, count] => use_all(Path::new(image), count.parse()?),
        _ => Err("usage: afs_start fill|names|use|attach IMAGE COUNT | time IMAGE".into()),
    }
}
