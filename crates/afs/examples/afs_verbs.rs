//! Makes the calls of `vos` to a volume server, and prints how long each verb took in milliseconds.
//! Neither the start of a program nor the cell's databases are part of it.
//!
//! Usage: `afs_verbs ADDRESS KEYFILEEXT VERB FIRST COUNT [SITE...]`
//!
//! There are COUNT volumes on the partition a. Their numbers are FIRST, FIRST + 2 and so on. The
//! next number is that of the backup volume or of the read-only one.
//!
//! * `fill` makes volumes, by 8 clients at once.
//! * `rounds` makes a volume, its backup volume twice, and removes both, so many times.
//! * `backups` makes the backup volumes of volumes twice, and removes them.
//! * `list` lists the partition so many times, with all that is known of a volume and without.
//! * `clear` removes volumes.
//! * `sites` releases volumes for the first time: to their own server, and to those at the
//!   addresses SITE.
//! * `release` releases them again.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afs::calls::volserver::{Call, Name, Reply, attach, volume_flag};
use afs::types::{Date, Destination, Replica, RestoreCookie, VolumeId, VolumeStatus, VolumeType};
use afs::wire::{Chars, List};
use rx::security::Level;
use rx::security::rxkad::{Client, Keys, SUPERUSER};
use rx::{Connection, Endpoint};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The port and the service of volume servers.
const PORT: u16 = 7005;
const SERVICE: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(600);
/// The most bytes of a reply: a list of millions of volumes.
const LONGEST: usize = 1 << 30;
/// Clients that make volumes at once.
const MAKERS: u32 = 8;
/// Seconds that `vos` takes from dates, since they have no parts of seconds.
const SKEW: u32 = 2;
/// The partition a.
const PARTITION: i32 = 0;

/// Another server, to which volumes are released.
struct Site {
    address: Ipv4Addr,
    verbs: Verbs,
}

/// The calls of `vos`, and how long they took.
struct Verbs {
    connection: Connection,
    times: BTreeMap<&'static str, Vec<f64>>,
}

impl Verbs {
    fn call(&self, call: &Call) -> Outcome<Reply> {
        let bytes = self.connection.call_up_to(LONGEST, call.request(), PATIENCE)?;
        Ok(Reply::decode(call.opcode(), &bytes)?)
    }

    fn timed<T>(&mut self, verb: &'static str, run: impl FnOnce(&Self) -> Outcome<T>) -> Outcome<T> {
        let begun = Instant::now();
        let done = run(self)?;
        self.times.entry(verb).or_default().push(begun.elapsed().as_secs_f64() * 1_000.0);
        Ok(done)
    }

    fn begin(&self, volume: VolumeId, flags: i32) -> Outcome<i32> {
        match self.call(&Call::TransCreate { volume, partition: PARTITION, flags })? {
            Reply::TransCreate(transaction) => Ok(transaction),
            _ => Err("another reply".into()),
        }
    }

    fn end(&self, transaction: i32) -> Outcome<()> {
        self.call(&Call::EndTrans { transaction }).map(drop)
    }

    /// `vos create`, with a quota.
    fn create(&self, volume: VolumeId) -> Outcome<()> {
        let name = Name::new(made(volume).as_str()).ok_or("a long name")?;
        let kind = VolumeType::ReadWrite as i32;
        let made = Call::CreateVolume { partition: PARTITION, name, kind, parent: VolumeId(0), volume };
        let Reply::CreateVolume(made) = self.call(&made)? else { return Err("another reply".into()) };
        let transaction = made.transaction;
        let listed = self.call(&Call::ListOneVolume { partition: PARTITION, volume })?;
        let Reply::ListOneVolume(listed) = listed else { return Err("another reply".into()) };
        let mut info = listed.iter().next().ok_or("it is not listed")?.clone();
        // -1 leaves what it is.
        (info.quota, info.day_use, info.spare, info.min_quota) = (5_000, -1, -1, -1);
        self.call(&Call::SetInfo { transaction, info })?;
        self.call(&Call::SetFlags { transaction, flags: 0 })?;
        self.end(transaction)
    }

    /// `vos backup`. `again`: there is a backup volume of this number.
    fn backup(&self, volume: VolumeId, backup: VolumeId, again: bool) -> Outcome<()> {
        let transaction = self.begin(volume, attach::BUSY)?;
        if again {
            // `vos` looks whether there is one.
            self.begin(backup, attach::OFFLINE).and_then(|found| self.end(found))?;
            self.call(&Call::ReClone { transaction, clone: backup })?;
        } else {
            let name = Name::new(format!("made.{}.backup", volume.0).as_str()).ok_or("a long name")?;
            let (kind, purge) = (VolumeType::Backup as i32, VolumeId(0));
            self.call(&Call::Clone { transaction, purge, kind, name, volume: backup })?;
        }
        self.bring_online(backup)?;
        self.end(transaction)
    }

    /// Begins a transaction without the flags that keep a volume out of service, and ends it.
    fn bring_online(&self, volume: VolumeId) -> Outcome<()> {
        let transaction = self.begin(volume, attach::OFFLINE)?;
        self.call(&Call::SetFlags { transaction, flags: 0 })?;
        self.end(transaction)
    }

    fn status(&self, transaction: i32) -> Outcome<VolumeStatus> {
        match self.call(&Call::GetStatus { transaction })? {
            Reply::GetStatus(status) => Ok(status),
            _ => Err("another reply".into()),
        }
    }

    /// The first half of `vos release`: the read-only volume of the server itself. Returns the
    /// status of the read-write volume.
    fn release_here(&self, volume: VolumeId, clone: VolumeId, again: bool) -> Outcome<VolumeStatus> {
        if again {
            self.begin(clone, attach::OFFLINE).and_then(|found| self.end(found))?;
        }
        let transaction = self.begin(volume, attach::BUSY)?;
        if again {
            self.call(&Call::ReClone { transaction, clone })?;
        } else {
            let (name, kind) = (read_only_name(volume)?, VolumeType::ReadOnly as i32);
            self.call(&Call::Clone { transaction, purge: VolumeId(0), kind, name, volume: clone })?;
        }
        let status = self.status(transaction)?;
        self.end(transaction)?;
        self.bring_online(clone)?;
        Ok(status)
    }

    /// A transaction of a site, and the date from which it needs changes.
    fn begin_site(&self, volume: VolumeId, of: &VolumeStatus, again: bool) -> Outcome<(i32, Date)> {
        let clone = VolumeId(volume.0 + 1);
        if !again {
            let (name, kind) = (read_only_name(volume)?, VolumeType::ReadOnly as i32);
            let made = Call::CreateVolume { partition: PARTITION, name, kind, parent: volume, volume: clone };
            let Reply::CreateVolume(made) = self.call(&made)? else { return Err("another reply".into()) };
            let (transaction, flags) =
                (made.transaction, volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE);
            self.call(&Call::SetFlags { transaction, flags })?;
            return Ok((transaction, Date(0)));
        }
        let transaction = self.begin(clone, attach::OFFLINE)?;
        let there = self.status(transaction)?;
        let is_older = of.creation_date.0 > there.creation_date.0.saturating_sub(SKEW);
        let since = if is_older { 0 } else { there.update_date.0.saturating_sub(SKEW) };
        Ok((transaction, Date(since)))
    }

    /// `vos release`, without the pause of 5 s that the program makes after the first half.
    fn release(&self, volume: VolumeId, sites: &[Site], again: bool) -> Outcome<()> {
        let clone = VolumeId(volume.0 + 1);
        let status = self.release_here(volume, clone, again)?;
        let source = self.begin(clone, attach::BUSY)?;
        self.status(source)?;
        // The first site is alone. Then it is half of all volumes in the entry of the database.
        let (alone, rest) = sites.split_at(sites.len().min(1));
        for group in alone.chunks(1).chain(rest.chunks(sites.len() / 2 + 1)) {
            let begin = |site: &Site| site.verbs.begin_site(volume, &status, again);
            let begun = group.iter().map(begin).collect::<Outcome<Vec<_>>>()?;
            let since = begun.iter().map(|(_, since)| *since).min().unwrap_or(Date(0));
            let replica = |(site, (transaction, _)): (&Site, &(i32, Date))| Replica {
                transaction: *transaction,
                server: Destination { host: site.address.to_bits(), port: i32::from(PORT), security: 1 },
            };
            let to = List::new(group.iter().zip(&begun).map(replica).collect()).ok_or("many sites")?;
            self.status(source)?;
            let name = read_only_name(volume)?;
            let kind = VolumeType::ReadOnly as i32;
            let (parent, none) = (volume, VolumeId(0));
            let cookie =
                RestoreCookie { name: Chars::new(made(volume).as_bytes()), kind, clone: none, parent };
            let forward = Call::ForwardMultiple { transaction: source, since, to, spare: 0, cookie };
            match self.call(&forward)? {
                Reply::ForwardMultiple(results) if results.iter().all(|result| *result == 0) => {}
                other => return Err(format!("a site was not reached: {other:?}").into()),
            }
            for (site, (transaction, _)) in group.iter().zip(&begun) {
                let (transaction, verbs, name) = (*transaction, &site.verbs, name.clone());
                verbs.call(&Call::SetIdsTypes {
                    transaction,
                    name,
                    kind,
                    parent,
                    clone: none,
                    backup: none,
                })?;
                verbs.call(&Call::SetFlags { transaction, flags: 0 })?;
                verbs.end(transaction)?;
            }
        }
        self.end(source)
    }

    /// `vos remove`.
    fn remove(&self, volume: VolumeId) -> Outcome<()> {
        let transaction = self.begin(volume, attach::OFFLINE)?;
        let flags = volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE;
        self.call(&Call::SetFlags { transaction, flags })?;
        self.call(&Call::DeleteVolume { transaction })?;
        self.end(transaction)
    }
}

fn made(volume: VolumeId) -> String {
    format!("made.{}", volume.0)
}

fn read_only_name(volume: VolumeId) -> Outcome<Name> {
    Ok(Name::new(format!("{}.readonly", made(volume)).as_str()).ok_or("a long name")?)
}

/// Does what `main`'s arguments name, with the volumes of some numbers.
fn run(
    verbs: &mut Verbs,
    what: &str,
    first: u32,
    sites: &[Site],
    numbers: impl Iterator<Item = u32>,
) -> Outcome<()> {
    for number in numbers {
        let (volume, backup) = (VolumeId(first + 2 * number), VolumeId(first + 2 * number + 1));
        match what {
            "fill" => verbs.timed("create", |verbs| verbs.create(volume))?,
            "sites" => verbs.timed("first", |verbs| verbs.release(volume, sites, false))?,
            "release" => verbs.timed("release", |verbs| verbs.release(volume, sites, true))?,
            "backups" => {
                verbs.timed("backup", |verbs| verbs.backup(volume, backup, false))?;
                verbs.timed("backup-again", |verbs| verbs.backup(volume, backup, true))?;
                verbs.timed("remove-backup", |verbs| verbs.remove(backup))?;
            }
            "clear" => verbs.timed("remove", |verbs| verbs.remove(volume))?,
            "rounds" => {
                verbs.timed("create", |verbs| verbs.create(volume))?;
                verbs.timed("backup", |verbs| verbs.backup(volume, backup, false))?;
                verbs.timed("backup-again", |verbs| verbs.backup(volume, backup, true))?;
                verbs.timed("remove-backup", |verbs| verbs.remove(backup))?;
                verbs.timed("remove", |verbs| verbs.remove(volume))?;
            }
            "list" => {
                let list = |flags| Call::ListVolumes { partition: PARTITION, flags };
                verbs.timed("list", |verbs| verbs.call(&list(1)))?;
                verbs.timed("list-fast", |verbs| verbs.call(&list(0)))?;
            }
            other => return Err(format!("there is no {other}").into()),
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, keys, what, first, count, sites @ ..] = &words[..] else {
        return Err("usage: afs_verbs ADDRESS KEYFILEEXT VERB FIRST COUNT [SITE...]".into());
    };
    let (first, count): (u32, u32) = (first.parse()?, count.parse()?);
    let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), rx::Options::default())?;
    let ticket = Client::local(&Arc::new(Keys::of_file(keys.as_str())?), SUPERUSER, Level::Clear)?;
    let connect = |address: &str| -> Outcome<Site> {
        let address = address.parse()?;
        let connection = endpoint.connect(SocketAddrV4::new(address, PORT), SERVICE, &ticket)?;
        Ok(Site { address, verbs: Verbs { connection, times: BTreeMap::new() } })
    };
    let clients = if what == "fill" { MAKERS.min(count.max(1)) } else { 1 };
    let client = &|at: u32| -> Outcome<Verbs> {
        let mut verbs = connect(address)?.verbs;
        let sites = sites.iter().map(|site| connect(site)).collect::<Outcome<Vec<_>>>()?;
        run(&mut verbs, what, first, &sites, (at..count).step_by(clients as usize))?;
        Ok(verbs)
    };
    let mut verbs: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    std::thread::scope(|scope| -> Outcome<()> {
        let running: Vec<_> = (0..clients).map(|at| scope.spawn(move || client(at))).collect();
        for one in running {
            let of = one.join().map_err(|_| "a thread panicked")??;
            of.times.into_iter().for_each(|(verb, times)| verbs.entry(verb).or_default().extend(times));
        }
        Ok(())
    })?;
    let mut out = std::io::stdout().lock();
    for (verb, times) in &mut verbs {
        times.sort_by(f64::total_cmp);
        let (least, most) = (times[0], times[times.len() - 1]);
        writeln!(out, "{verb} {:.3} {least:.3} {most:.3}", times[times.len() / 2])?;
    }
    Ok(())
}
