//! `poolhouse afs export`: dumps of the AFS volumes of a pool that is not imported.
//!
//! # Theory
//! A dump is what `vos restore` takes, so volumes get out of a pool that no server can import. Each
//! is a file of its own, named by the volume's number, since the name of a volume is what a
//! stranger chose. An index has the names.
//!
//! A dump that lacks something must not pass for a whole one. So it has another name
//! (`ID.damaged.dump`), a list of what it lacks (`ID.lost.txt`), and its line in the index says so.
//! Each loss is also reported, and the exit code is 1.
//!
//! # Crash
//! A file gets its name when it is complete and on disk. The index is written last.

mod folder;

use std::io::{BufWriter, Write};

use afs::dump::VolumeHeader;
use afs::server::header::Stored;
use afs::server::store::{Failures, Offline, OnDisk, partitions};
use afs::types::{Date, VolumeId, VolumeType};
use afs::volume::{DumpScope, Loss, LostPart, count, dump, dump_readable};
use afs::volume_name::MAX_NAME;
use poolhouse::Pool;
use poolhouse::ondisk::zil::ZilHeader;
use poolhouse::zpl::FileSystem;

use super::args::Args;
use super::progress::Progress;
use super::target::{self, Error, Target};
use super::{Chain, Io, held};
use folder::{Folder, Kind, Part};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// Exports the volumes of a pool or partition. Returns `false` if something is missing.
///
/// # Errors
/// * [`Error::Operand`]: the operand is no pool or file system, it has no partition, or a daemon
///   holds the pool.
/// * [`Error::Destination`]: the folder can't be used, has files of these names, or is full.
/// * [`Error::Volumes`]: the volumes can't be listed.
/// * The errors of [`target::scan`], [`target::open`] and [`target::check_key`].
///
/// # Panics
/// If there are fewer than two operands. [`Args::parse`] makes sure that there are two.
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let [source, folder, wanted @ ..] = &args.operands[..] else {
        panic!("the arguments were counted");
    };
    let refused = |why| Error::Operand { operand: source.clone(), why };
    let target = Target::parse(source);
    if target.path.is_some() || target.dataset.contains(['@', '#']) {
        return Err(refused("is no pool and no partition: write POOL or POOL/DATASET"));
    }
    if held::held(io, args, &target).is_some() {
        return Err(refused(
            "the daemon of this user holds the pool: use `vos dump`, or run `zpool export` first",
        ));
    }
    let folder = Folder::open(folder.as_ref(), args.force)?;
    let (pool, target) = target::open(io, args, &target::scan(args)?, &target)?;
    let txg = pool.spa().uberblock().txg.0;
    let mut export = Export {
        progress: Progress::new(io.terminal && !args.quiet, None),
        io,
        args,
        folder,
        wanted: wanted.iter().map(|name| (name.as_str(), false)).collect(),
        lines: Vec::new(),
        counts: [0; 3],
        whole: true,
    };
    let names = export.partitions(&pool, &target)?;
    if names.is_empty() {
        return Err(refused("has no partition of AFS: name one, as POOL/DATASET; `poolhouse ls` lists them"));
    }
    let mut found = Vec::new();
    for name in &names {
        let offline = Offline::open(&pool, name)
            .map_err(|source| Error::Volumes { partition: name.clone(), source })?;
        target::check_key(&pool, name)?;
        found.push((name.as_str(), offline));
    }
    export.check_names(&found)?;
    for (name, offline) in &found {
        export.partition(name, offline)?;
    }
    export.end(&pool, txg)
}

/// What became of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Damaged,
    Failed,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Whole => "whole",
            State::Damaged => "damaged",
            State::Failed => "failed",
        }
    }
}

/// A volume of a dump.
struct Source<'a> {
    volume: &'a OnDisk,
    files: FileSystem,
    stored: Stored,
    /// Why the header had to be made up.
    headless: Option<afs::server::Error>,
}

struct Export<'a> {
    io: &'a mut Io,
    args: &'a Args,
    folder: Folder,
    /// The volumes that the user named, and whether they were found. Without any: all.
    wanted: Vec<(&'a str, bool)>,
    /// The lines of the index.
    lines: Vec<String>,
    /// How many volumes are in each [`State`].
    counts: [u64; 3],
    whole: bool,
    progress: Progress,
}

impl Export<'_> {
    fn say(&mut self, text: &str) {
        let err = &mut self.io.err;
        self.progress.suspend(|| writeln!(err, "poolhouse afs export: {text}"));
    }

    /// Reports that something is missing.
    fn fail(&mut self, text: &str) {
        self.whole = false;
        self.say(text);
    }

    fn unread(&mut self, failures: &Failures) {
        for (name, error) in failures {
            self.fail(&format!("{name}: {}", Chain(error)));
        }
    }

    /// The partitions that the operand names.
    fn partitions(&mut self, pool: &Pool, target: &Target) -> Result<Vec<String>, Error> {
        // One that is named counts as one, because its property may be lost, or a received one.
        if target.dataset.contains('/') {
            return Ok(vec![target.dataset.clone()]);
        }
        let failed = |source| Error::Volumes { partition: target.dataset.clone(), source };
        let (names, failures) = partitions(pool).map_err(failed)?;
        self.unread(&failures);
        Ok(names)
    }

    fn wants_all(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Whether the user wants a volume, by its number or its name.
    fn wants(&mut self, id: VolumeId, name: &[u8]) -> bool {
        let (id, mut wants) = (id.to_string(), self.wants_all());
        for (word, is_found) in &mut self.wanted {
            if *word == id || word.as_bytes() == name {
                *is_found = true;
                wants = true;
            }
        }
        wants
    }

    /// Refuses names of files that exist, before anything is written.
    fn check_names(&self, found: &[(&str, Offline)]) -> Result<(), Error> {
        let numbers = found.iter().flat_map(|(_, offline)| offline.volumes.iter().map(|it| it.id));
        // The names of volumes are not known yet.
        let numbered = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let by_number = !self.wants_all() && self.wanted.iter().all(|(word, _)| numbered(word));
        let named = |id: &VolumeId| self.wanted.iter().any(|(word, _)| *word == id.to_string());
        numbers.filter(|id| !by_number || named(id)).try_for_each(|id| self.folder.check(id))
    }

    fn partition(&mut self, name: &str, offline: &Offline) -> Result<(), Error> {
        self.unread(&offline.failures);
        if self.wants_all() {
            for id in &offline.unfinished {
                self.say(&format!(
                    "{name}: volume {id} was never completed and is left out: a server that starts \
                     destroys it"
                ));
            }
        }
        let letters = offline.letters.as_deref().map_or("-".to_owned(), |it| format!("/vicep{it}"));
        for volume in &offline.volumes {
            self.volume(&letters, offline, volume)?;
        }
        Ok(())
    }

    fn volume(&mut self, letters: &str, offline: &Offline, volume: &OnDisk) -> Result<(), Error> {
        let (id, dataset) = (volume.id, &volume.dataset);
        let (source, why) = match open(offline, volume) {
            Ok(source) => (Some(source), String::new()),
            Err(error) => (None, Chain(&error).to_string()),
        };
        let name = match &source {
            Some(source) => source.stored.header.name.clone(),
            None => offline.name(volume).unwrap_or_default().into_bytes(),
        };
        if !self.wants(id, &name) {
            return Ok(());
        }
        self.progress.file(&name);
        let mut line = Line { id, name: shown(&name), letters, ..Line::default() };
        match source {
            None => self.fail(&format!("{dataset}: not exported: {why}")),
            Some(source) => {
                line.header = Some((source.stored.header.kind, source.stored.header.parent));
                self.dump(&source, &mut line)?;
            }
        }
        let state = line.state;
        self.counts[state as usize] += 1;
        self.lines.push(line.text());
        Ok(())
    }

    /// Writes the dump of a volume, and notes in its line what became of it.
    fn dump(&mut self, source: &Source<'_>, line: &mut Line<'_>) -> Result<(), Error> {
        let dataset = &source.volume.dataset;
        if self.folder.has_written(source.volume.id) {
            self.fail(&format!(
                "{dataset}: not exported: another partition has a volume of this number: export each into \
                 a folder of its own"
            ));
            return Ok(());
        }
        if !dataset.contains('@') && has_log(&source.files) {
            self.say(&format!(
                "{dataset}: the intent log may have changes that the dump lacks: import the pool once for \
                 writing, and export it again, to add them"
            ));
        }
        let mut part = self.folder.part(source.volume.id)?;
        let since = Date(self.args.since.unwrap_or(0));
        let why = match whole(source, since, &mut part) {
            Ok(Ok(())) => {
                let kind = if since == Date(0) { Kind::Whole } else { Kind::Increment };
                (line.file, line.bytes) = self.folder.keep(part, kind)?;
                line.state = State::Whole;
                self.progress.bytes(line.bytes);
                return Ok(());
            }
            Ok(Err(why)) => why,
            Err(error) => return Err(self.folder.failed(error)),
        };
        if since != Date(0) {
            self.fail(&format!(
                "{dataset}: not exported: it is damaged, and who restores an increment would lose what is \
                 lost here: export it without --since: {why}"
            ));
            return Ok(());
        }
        self.readable(source, part, line)
    }

    /// Writes the dump of what can be read of a damaged volume.
    fn readable(&mut self, source: &Source<'_>, mut part: Part, line: &mut Line<'_>) -> Result<(), Error> {
        let dataset = &source.volume.dataset;
        part.restart().map_err(|error| self.folder.failed(error))?;
        let mut losses = self.folder.losses(source.volume.id);
        let mut lost = 0_u64;
        let mut failed = None;
        let (io, progress) = (&mut *self.io, &self.progress);
        let mut note = |text: String| {
            lost += 1;
            progress.suspend(|| writeln!(io.err, "poolhouse afs export: {dataset}{text}"));
            if let Err(error) = losses.add(&text) {
                failed.get_or_insert(error);
            }
        };
        if let Some(error) = &source.headless {
            note(format!(": the header is lost: name, quota and dates are made up: {}", Chain(error)));
        }
        let header = &source.stored.header;
        let to = BufWriter::with_capacity(BUFFER, part.file());
        let base = source.stored.version_base;
        let done = dump_readable(&source.files, header, base, to, &mut |loss| note(words(&loss)));
        let done = done.and_then(|mut to| to.flush().map_err(written));
        if let Some(error) = failed {
            return Err(error);
        }
        match done {
            Err(afs::Error::Write { source, .. }) => return Err(self.folder.failed(source)),
            Err(error) => {
                let why = Chain(&error).to_string();
                self.fail(&format!("{dataset}: not exported: {why}"));
                return Ok(());
            }
            Ok(()) => {}
        }
        // The damage may have been a device that did not answer once.
        let kind = if lost == 0 { Kind::Whole } else { Kind::Damaged };
        if lost > 0 {
            self.folder.keep_losses(losses)?;
            self.fail(&format!("{dataset}: {lost} parts are missing in its dump"));
        }
        (line.file, line.bytes) = self.folder.keep(part, kind)?;
        line.state = if lost == 0 { State::Whole } else { State::Damaged };
        self.progress.bytes(line.bytes);
        Ok(())
    }

    /// Writes the index, and says what there is.
    fn end(mut self, pool: &Pool, txg: u64) -> Result<bool, Error> {
        self.progress.finish();
        let lacking: Vec<&str> =
            self.wanted.iter().filter(|(_, is_found)| !is_found).map(|(word, _)| *word).collect();
        for word in lacking {
            self.fail(&format!("{word}: there is no such volume: give its number or name"));
        }
        let mut index = format!("# Volumes of the pool {} at transaction group {txg}.\n", pool.name());
        if let Some(since) = self.args.since {
            index += &format!("# Increments: what changed at {since} (seconds since 1970) or later.\n");
        }
        index +=
            "# A dump that is not whole is called ID.damaged.dump, and ID.lost.txt says what it lacks.\n";
        index += "#ID\tNAME\tTYPE\tRW_ID\tPARTITION\tSTATE\tBYTES\tFILE\n";
        index.extend(self.lines.iter().map(|line| format!("{line}\n")));
        self.folder.keep_index(&index)?;
        let [whole, damaged, failed] = self.counts;
        let dumps = whole + damaged;
        let at = self.folder.path().display().to_string();
        writeln!(
            self.io.out,
            "{at}: {dumps} dumps, {damaged} of them damaged; {failed} volumes not exported"
        );
        Ok(self.whole)
    }
}

/// A line of the index.
struct Line<'a> {
    id: VolumeId,
    name: String,
    /// The type, and the read-write volume of the group.
    header: Option<(VolumeType, VolumeId)>,
    letters: &'a str,
    state: State,
    bytes: u64,
    file: String,
}

impl Default for Line<'_> {
    fn default() -> Self {
        let (id, name, header, letters) = (VolumeId(0), String::new(), None, "-");
        Self { id, name, header, letters, state: State::Failed, bytes: 0, file: "-".to_owned() }
    }
}

impl Line<'_> {
    fn text(&self) -> String {
        let kind = match self.header {
            Some((VolumeType::ReadWrite, _)) => "RW",
            Some((VolumeType::ReadOnly, _)) => "RO",
            Some((VolumeType::Backup, _)) => "BK",
            None => "-",
        };
        let parent = self.header.map_or("-".to_owned(), |(_, parent)| parent.to_string());
        let Self { id, name, letters, state, bytes, file, .. } = self;
        format!("{id}\t{name}\t{kind}\t{parent}\t{letters}\t{}\t{bytes}\t{file}", state.word())
    }
}

/// Opens a volume. Its header is made up if it is lost.
fn open<'a>(offline: &Offline, volume: &'a OnDisk) -> afs::server::Result<Source<'a>> {
    let files = offline.files(volume)?;
    if !files.is_afs() {
        return Err(afs::server::Error::Header { volume: volume.id });
    }
    let (stored, headless) = match offline.header(volume, &files) {
        Ok(stored) => (stored, None),
        Err(error) => {
            let named = offline.name(volume).filter(|name| !name.is_empty() && name.len() <= MAX_NAME);
            let header = VolumeHeader {
                id: volume.id,
                version: 1,
                name: named.unwrap_or_else(|| volume.id.to_string()).into_bytes(),
                in_service: true,
                blessed: true,
                parent: volume.id,
                ..VolumeHeader::default()
            };
            (Stored { header, ..Stored::default() }, Some(error))
        }
    };
    Ok(Source { volume, files, stored, headless })
}

/// Whether a file system has an intent log that was not replayed.
fn has_log(files: &FileSystem) -> bool {
    let header = ZilHeader::decode(&files.objset().phys().zil_header);
    header.is_ok_and(|header| !header.log.is_hole())
}

fn written(source: std::io::Error) -> afs::Error {
    let place = afs::Place { record: afs::Record::DumpEnd, at: 0 };
    afs::Error::Write { place, source }
}

/// Writes the dump of an undamaged volume. Returns why it is none. The error is that of the output.
fn whole(source: &Source<'_>, since: Date, part: &mut Part) -> std::io::Result<Result<(), String>> {
    if let Some(error) = &source.headless {
        return Ok(Err(Chain(error).to_string()));
    }
    let mut stored = source.stored.clone();
    // A server crashed while it changed the volume, so its counts may lack changes.
    if stored.is_counting {
        match count(&source.files) {
            Ok(counts) => stored.set_counts(counts),
            Err(error) => return Ok(Err(Chain(&error).to_string())),
        }
    }
    let scope = DumpScope { since, version_base: stored.version_base, ..DumpScope::FULL };
    let to = BufWriter::with_capacity(BUFFER, part.file());
    match dump(&source.files, &stored.header, scope, to) {
        Ok(mut to) => to.flush().map(Ok),
        Err(afs::Error::Write { source, .. }) => Err(source),
        Err(error) => Ok(Err(Chain(&error).to_string())),
    }
}

/// What a dump lacks, as the end of a line.
fn words(loss: &Loss) -> String {
    let what = match &loss.part {
        LostPart::Vnodes => "a part of the list of vnodes".to_owned(),
        LostPart::Whole => "all of it".to_owned(),
        LostPart::Bytes { from, to } => format!("bytes {from} to {}, which are zeros", to - 1),
        LostPart::Names => "some of its names".to_owned(),
        LostPart::Entry => "this name, since another directory has the vnode".to_owned(),
        LostPart::Name { now } => format!("its name; it is {} now", shown(now)),
    };
    let place = match (&loss.path, loss.vnode) {
        (Some(path), Some(vnode)) => format!(":{} (vnode {vnode})", shown(path)),
        (Some(path), None) => format!(":{}", shown(path)),
        (None, Some(vnode)) => format!(": vnode {vnode}"),
        (None, None) => String::new(),
    };
    match &loss.why {
        Some(why) => format!("{place}: {what}: {}", Chain(why)),
        None => format!("{place}: {what}"),
    }
}

/// A name as text on one line, which gives back each byte.
pub(super) fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.extend(c.escape_default()),
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::shown;

    /// Goal: a hostile name stays on one line of the index, in one column, and no two are the same.
    #[test]
    fn names_in_the_index() {
        assert_eq!(shown("a\tb\nc".as_bytes()), "a\\tb\\nc");
        assert_eq!(shown(b"\xff\\xff"), "\\xff\\\\xff");
        assert_eq!(shown("größe 1".as_bytes()), "größe 1");
    }
}
