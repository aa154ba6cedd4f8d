//! `poolhouse afs adopt`: volumes of a partition of OpenAFS's file server, into a served partition.
//!
//! # Theory
//! OpenAFS's file server is stopped, so its partition does not change. For each volume, this
//! command checks all parts, makes the dump that OpenAFS's volume server would make, and sends it
//! to the daemon. The daemon makes the volume of it, or nothing at all. So an interrupted run
//! leaves whole volumes, and the next run takes the others.
//!
//! A volume that is damaged is not taken: OpenAFS's salvager knows how to fix most damage. The run
//! ends when a program of OpenAFS locks a volume meanwhile.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::Path;

use afs::dump::VolumeHeader;
use afs::types::{VolumeId, VolumeType};
use afs::vicep::{DumpError, Partition, Survey, Volume};
use api::files::Denied;
use api::{AfsAdopt, AfsPartition, AfsQuery, AfsVolume};
use console::{Clock, words};

use super::afs_export::shown;
use super::args::Args;
use super::progress::Progress;
use super::target::Error;
use super::{Chain, Io};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 18;
/// Most damaged parts of one volume that are listed.
const MOST: u64 = 50;

/// Adopts the volumes of a partition. Returns `false` if one is missing.
///
/// # Errors
/// * [`Error::Operand`]: the file system is no partition that is served, or a server uses the other
///   one.
/// * [`Error::Device`]: the folder is no partition, or can't be read.
/// * [`Error::Daemon`]: no daemon answers.
///
/// # Panics
/// If there are fewer than two operands. [`Args::parse`] makes sure that there are two.
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let [from, to, wanted @ ..] = &args.operands[..] else {
        panic!("the arguments were counted");
    };
    let refused = |operand: &String, why| Error::Operand { operand: operand.clone(), why };
    let unread = |source| Error::Device { path: from.into(), source };
    let partition = Partition::open(Path::new(from)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            refused(from, "is no partition of OpenAFS's file server: it needs the folder AFSIDat")
        }
        _ => unread(error),
    })?;
    if partition.is_locked().map_err(unread)? {
        return Err(refused(from, "is in use by OpenAFS's servers: stop them first (`bos shutdown`)"));
    }
    let ids = partition.volumes().map_err(unread)?;
    let status = io.service.afs_status().map_err(|error| daemon(&error))?;
    let target = status.partitions.into_iter().find(|one| one.dataset == *to && one.served);
    let target = target
        .ok_or_else(|| refused(to, "is no partition that is served: `poolhouse afs enable` serves it"))?;
    let mut adoption = Adoption {
        progress: Progress::new(io.terminal && !args.quiet && !args.dry_run, None),
        io,
        from,
        target,
        dry_run: args.dry_run,
        wanted: wanted.iter().map(|name| (name.as_str(), false)).collect(),
        counts: Counts::default(),
        is_stopped: false,
    };
    if args.dry_run {
        writeln!(adoption.io.out, "ID\tNAME\tTYPE\tRW_ID\tVNODES\tBYTES\tSTATE");
    }
    for id in ids {
        adoption.volume(&partition, id)?;
        if adoption.is_stopped {
            return Ok(adoption.end());
        }
    }
    for id in partition.headless().map_err(unread)? {
        if adoption.wants(id, None) {
            let (file, advice) =
                ("it has files, but no .vol file", "run OpenAFS's salvager on the partition");
            adoption.refuse(&format!("volume {id}: not adopted: {file}: {advice}"));
        }
    }
    Ok(adoption.end())
}

/// The error for a daemon that does not answer.
fn daemon(error: &api::Error) -> Error {
    Error::Daemon { why: words::reason(&error.reason, &Clock::system()) }
}

/// How many volumes became what.
#[derive(Debug, Default)]
struct Counts {
    taken: u64,
    bytes: u64,
    present: u64,
    refused: u64,
}

struct Adoption<'a> {
    io: &'a mut Io,
    from: &'a str,
    target: AfsPartition,
    dry_run: bool,
    /// The volumes that the user named, and whether they were found. Without any: all.
    wanted: Vec<(&'a str, bool)>,
    counts: Counts,
    progress: Progress,
    /// A server of OpenAFS has started, so no more volumes are taken.
    is_stopped: bool,
}

impl Adoption<'_> {
    fn say(&mut self, text: &str) {
        let err = &mut self.io.err;
        self.progress.suspend(|| writeln!(err, "poolhouse afs adopt: {text}"));
    }

    /// Reports that a volume is not taken.
    fn refuse(&mut self, text: &str) {
        self.counts.refused += 1;
        self.say(text);
    }

    /// Whether the user wants a volume, by its number or its name. `None`: its name is not known.
    fn wants(&mut self, id: VolumeId, name: Option<&[u8]>) -> bool {
        let (id, mut wants) = (id.to_string(), self.wanted.is_empty());
        for (word, is_found) in &mut self.wanted {
            if *word == id || name == Some(word.as_bytes()) {
                *is_found = true;
                wants = true;
            }
        }
        wants
    }

    fn volume(&mut self, partition: &Partition, id: VolumeId) -> Result<(), Error> {
        let volume = match partition.volume(id) {
            Ok(volume) => volume,
            Err(error) => {
                if self.wants(id, None) {
                    let advice = error.damage.advice();
                    self.refuse(&format!("volume {id}: not adopted: {}: {advice}", Chain(&error)));
                }
                return Ok(());
            }
        };
        let header = &volume.info.header;
        if !self.wants(id, Some(&header.name)) {
            return Ok(());
        }
        let name = format!("volume {id} ({})", shown(&header.name));
        self.progress.file(shown(&header.name).as_bytes());
        if let Some(present) = self.present(id)? {
            match self.conflict(&present, header) {
                None => {
                    self.counts.present += 1;
                    self.list(&volume, Survey::default(), "present");
                }
                Some(why) => self.refuse(&format!("{name}: not adopted: {why}")),
            }
            return Ok(());
        }
        if let Some(obstacle) = volume.info.obstacle() {
            self.refuse(&format!("{name}: not adopted: {obstacle}"));
            return Ok(());
        }
        let survey = self.check(&volume, &name);
        if survey.damaged > 0 {
            return Ok(());
        }
        self.list(&volume, survey, "adoptable");
        if self.dry_run || self.send(partition, &volume, &name)? {
            self.counts.taken += 1;
            self.counts.bytes += survey.bytes;
            self.progress.bytes(survey.bytes);
        }
        Ok(())
    }

    /// A line of the list of a dry run.
    fn list(&mut self, volume: &Volume, survey: Survey, state: &str) {
        if self.dry_run {
            let header = &volume.info.header;
            let (name, kind, parent) = (shown(&header.name), kind(header.kind), header.parent);
            let size = match state {
                "present" => "-\t-".to_owned(),
                _ => format!("{}\t{}", survey.vnodes, survey.bytes),
            };
            writeln!(self.io.out, "{}\t{name}\t{kind}\t{parent}\t{size}\t{state}", header.id);
        }
    }

    /// The volume of the server that has a number.
    fn present(&mut self, id: VolumeId) -> Result<Option<AfsVolume>, Error> {
        let query = AfsQuery { volume: Some(id.0), ..AfsQuery::default() };
        let found = self.io.service.afs_volumes(&query).map_err(|error| daemon(&error))?;
        Ok(found.into_iter().next())
    }

    /// Why a volume of the server with the number of one of the partition is not that one.
    fn conflict(&self, present: &AfsVolume, header: &VolumeHeader) -> Option<String> {
        let AfsVolume { name, partition, state, updated, .. } = present;
        if name.is_empty() {
            let why = match state.as_str() {
                "transaction" => "it is in a transaction",
                "damaged" => "it is damaged: the daemon's log says why",
                "offline" => "a restore has it",
                _ => "its header can't be read now",
            };
            return Some(format!("{partition} has a volume of this number already, and {why}"));
        }
        let is_it = *partition == self.target.name
            && *name == String::from_utf8_lossy(&header.name)
            && present.kind == kind(header.kind);
        if !is_it {
            return Some(format!("{partition} has this number for {} already", shown(name.as_bytes())));
        }
        let date = |seconds| Clock::system().ctime(seconds);
        let newer = u64::from(header.update_date.0);
        (*updated < newer).then(|| {
            let (ours, theirs) = (date(*updated), date(newer));
            format!(
                "the server has an older copy, of {ours}, and this one is of {theirs}: remove that first \
                 (`vos remove`), or adopt the others by name"
            )
        })
    }

    /// Checks all parts of a volume, and reports those that are damaged.
    fn check(&mut self, volume: &Volume, name: &str) -> Survey {
        let (mut listed, mut advice) = (0, BTreeSet::new());
        let (io, progress) = (&mut *self.io, &self.progress);
        let survey = volume.check(&mut |error| {
            listed += 1;
            advice.insert(error.damage.advice());
            if listed <= MOST {
                progress.suspend(|| writeln!(io.err, "poolhouse afs adopt: {name}: {}", Chain(&error)));
            }
        });
        if survey.damaged > 0 {
            let damaged = survey.damaged;
            let more = damaged.saturating_sub(MOST);
            let unlisted = if more > 0 { format!(", {more} of them not listed") } else { String::new() };
            let advice = Vec::from_iter(advice).join("; ");
            let parts = if damaged == 1 { "1 part is" } else { &format!("{damaged} parts are") };
            self.refuse(&format!("{name}: not adopted: {parts} damaged{unlisted}: {advice}"));
        }
        survey
    }

    /// Sends the dump of a volume to the daemon. Returns whether the daemon made the volume.
    fn send(&mut self, partition: &Partition, volume: &Volume, name: &str) -> Result<bool, Error> {
        let info = &volume.info;
        let request = AfsAdopt {
            dataset: self.target.dataset.clone(),
            volume: info.header.id.0,
            backup: info.backup.0,
            copied: info.copy_date.0,
        };
        let (mut damage, mut is_stopped) = (None, false);
        let adopted = (self.io.adopt)(&request, &mut |to| {
            let to = BufWriter::with_capacity(BUFFER, to);
            match volume.dump(to) {
                // The end of the dump is still in the buffer.
                Ok(mut to) => match partition.is_locked() {
                    Ok(false) => to.flush(),
                    locked => {
                        is_stopped = true;
                        drop(to.into_parts());
                        locked.and_then(|_| Err(std::io::Error::other("a server has started")))
                    }
                },
                Err(DumpError::Dump(afs::Error::Write { source, .. })) => Err(source),
                Err(error) => {
                    damage = Some(match &error {
                        DumpError::Volume(changed) => {
                            let advice = changed.damage.advice();
                            format!("it changed meanwhile: {}: {advice}", Chain(&error))
                        }
                        DumpError::Dump(_) => format!("it can't be sent: {}", Chain(&error)),
                    });
                    Err(std::io::Error::other("the dump has no end"))
                }
            }
        });
        self.is_stopped = is_stopped;
        match (adopted, damage) {
            _ if is_stopped => self.refuse(&format!(
                "{name}: not adopted, and no other is: {} is in use by OpenAFS's servers meanwhile, or its \
                 locks can't be read: stop them first (`bos shutdown`)",
                self.from
            )),
            (_, Some(why)) => self.refuse(&format!("{name}: not adopted: {why}")),
            (Ok(()), None) => return Ok(true),
            (Err(Denied::Api(error)), None) => {
                let why = words::reason(&error.reason, &Clock::system());
                self.refuse(&format!("{name}: not adopted: {why}"));
            }
            (Err(error), None) => return Err(error.into()),
        }
        Ok(false)
    }

    /// Says what there is, and what to do next.
    fn end(mut self) -> bool {
        self.progress.finish();
        let is_lacking = |(_, is_found): &&(&str, bool)| !is_found && !self.is_stopped;
        let lacking: Vec<&str> = self.wanted.iter().filter(is_lacking).map(|(word, _)| *word).collect();
        for word in lacking {
            self.refuse(&format!(
                "{word}: {} has no such volume, or its name can't be read: give its number",
                self.from
            ));
        }
        let Counts { taken, bytes, present, refused } = self.counts;
        let (out, name) = (&mut self.io.out, &self.target.name);
        let verb = if self.dry_run { "to adopt" } else { "adopted" };
        writeln!(
            out,
            "{name}: {taken} volumes {verb}, {bytes} bytes of dumps; {present} were there; {refused} not adopted"
        );
        if !self.dry_run && taken > 0 {
            writeln!(out, "next: 'vos syncvldb SERVER {name}' enters them in the cell's database");
        }
        refused == 0
    }
}

fn kind(kind: VolumeType) -> &'static str {
    match kind {
        VolumeType::ReadWrite => "RW",
        VolumeType::ReadOnly => "RO",
        VolumeType::Backup => "BK",
    }
}
