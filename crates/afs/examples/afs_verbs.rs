//! Makes the calls of `vos` to a volume server, and prints how long each verb took in milliseconds.
//! Neither the start of a program nor the cell's databases are part of it.
//!
//! Usage: `afs_verbs ADDRESS KEYFILEEXT fill|rounds|list|clear FIRST COUNT`
//!
//! * `fill` makes volumes on the partition a, from this number on.
//! * `rounds` makes a volume, its backup volume twice, and removes both, so many times.
//! * `list` lists the partition so many times, with all that is known of a volume and without.
//! * `clear` removes what `fill` made.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afs::calls::volserver::{Call, Name, Reply, attach, volume_flag};
use afs::types::{VolumeId, VolumeType};
use rx::security::Level;
use rx::security::rxkad::{Client, Keys, SUPERUSER};
use rx::{Connection, Endpoint};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The port and the service of volume servers.
const PORT: u16 = 7005;
const SERVICE: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(600);
/// The partition a.
const PARTITION: i32 = 0;

/// The calls of `vos`, and how long they took.
struct Verbs {
    connection: Connection,
    times: BTreeMap<&'static str, Vec<f64>>,
}

impl Verbs {
    fn call(&self, call: &Call) -> Outcome<Reply> {
        let bytes = self.connection.call(call.request(), PATIENCE)?;
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
        let name = Name::new(format!("made.{}", volume.0).as_str()).ok_or("a long name")?;
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
        let of_clone = self.begin(backup, attach::OFFLINE)?;
        self.call(&Call::SetFlags { transaction: of_clone, flags: 0 })?;
        self.end(of_clone)?;
        self.end(transaction)
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

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, keys, what, first, count] = &words[..] else {
        return Err("usage: afs_verbs ADDRESS KEYFILEEXT fill|rounds|list|clear FIRST COUNT".into());
    };
    let (first, count): (u32, u32) = (first.parse()?, count.parse()?);
    let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), rx::Options::default())?;
    let ticket = Client::local(&Arc::new(Keys::of_file(keys.as_str())?), SUPERUSER, Level::Clear)?;
    let connection = endpoint.connect(SocketAddrV4::new(address.parse()?, PORT), SERVICE, &ticket)?;
    let mut verbs = Verbs { connection, times: BTreeMap::new() };
    for number in 0..count {
        let (volume, backup) = (VolumeId(first + 2 * number), VolumeId(first + 2 * number + 1));
        match what.as_str() {
            "fill" => verbs.timed("create", |verbs| verbs.create(volume))?,
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
    let mut out = std::io::stdout().lock();
    for (verb, times) in &mut verbs.times {
        times.sort_by(f64::total_cmp);
        let (least, most) = (times[0], times[times.len() - 1]);
        writeln!(out, "{verb} {:.3} {least:.3} {most:.3}", times[times.len() / 2])?;
    }
    Ok(())
}
