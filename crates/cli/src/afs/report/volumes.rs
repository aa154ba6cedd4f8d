//! What the files of volumes would take with other record sizes and compressors.
//!
//! # Theory
//! The daemon gives each volume as of its last transaction group, beside the server ([`Opening`]).
//! So no volume is opened for an estimate, which `vos` and clients could find in use. One request
//! is under way at a time, which bounds what the daemon does for it. It ends with the command.
//!
//! A clone shares the files of its volume. So without names, only the newest clone is estimated of
//! those whose volume is not listed.

#[cfg(test)]
mod tests;

use super::Line;
use crate::cx::{Cx, Look, Stop};
use crate::estimate::{self, Asked};
use crate::json::{Json, Object};
use ::estimate::{FileSystems, Kind, Node, Wanted, estimate_file_systems};
use api::AfsPartition;
use api::files::{self, Denied, Fault, Files, Gap, Meta, Opening};
use console::words;
use ondisk::ObjNum;
use poolhouse::zpl::{DirCookie, FileType};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of volumes in the title of a chart.
const TITLE_MAX: usize = 4;

/// A volume to estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Volume {
    name: String,
    dataset: String,
}

/// The files of volumes.
struct Volumes {
    each: Vec<Volume>,
    look: Look,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The volume that is open. The daemon has one at a time.
    open: Option<(usize, Box<dyn Files + Send>)>,
    /// Volumes that the last walk could not open.
    left_out: BTreeSet<usize>,
    /// Why the daemon gives no more files.
    gone: Option<String>,
}

/// Estimates what these volumes would take, prints that, and adds it to the JSON. `part`: the
/// partition that is wanted, and whether all of its volumes are.
///
/// Returns whether everything could be read.
///
/// # Errors
/// [`Stop::Fail`]: there is no estimate. The reason has been printed.
pub(super) fn run(
    cx: &mut Cx,
    asked: &Asked,
    (partition, all): (Option<&str>, bool),
    lines: &[Line],
    root: &mut Object,
) -> Result<bool, Stop> {
    cx.out.flush();
    let each = if all { heads(lines) } else { lines.iter().map(volume).collect() };
    let volumes = Volumes { each, look: cx.look, state: Mutex::default() };
    let done = estimate_file_systems(&volumes, &asked.options);
    let gone = volumes.state().gone.take();
    let failed = gone.or_else(|| Some(estimate::cause(done.as_ref().err()?, asked.options.dedup)));
    if let Some(why) = failed {
        writeln!(cx.err, "cannot estimate: {why}");
        return Err(Stop::Fail(1));
    }
    let Ok(report) = done else { return Err(Stop::Fail(1)) };
    let away = if all { away(cx, partition)? } else { Vec::new() };
    let partitions = away.iter().map(|(partition, _)| partition.name.clone()).collect();
    let left_out: Vec<String> =
        volumes.state().left_out.iter().map(|at| volumes.each[*at].name.clone()).collect();
    if asked.json {
        let mut shown = Object::new();
        shown.number("volumes", (volumes.each.len() - left_out.len()) as u64);
        shown.put("left_out", Json::Texts(left_out));
        shown.put("partitions_left_out", Json::Texts(partitions));
        estimate::fields(&mut shown, &report);
        root.object("estimate", shown);
    } else {
        if !asked.scripted {
            cx.out.put("\n");
        }
        estimate::text(&mut cx.out, asked, &report);
    }
    for (partition, why) in &away {
        writeln!(cx.err, "{} ({}) is left out: {why}", partition.name, partition.dataset);
    }
    let whole = estimate::failures(&mut cx.err, &report) && away.is_empty();
    Ok(estimate::draw(&mut cx.err, asked, &title(&volumes.each), &report) && whole)
}

/// The partitions whose volumes are not listed, and why.
fn away(cx: &mut Cx, partition: Option<&str>) -> Result<Vec<(AfsPartition, String)>, Stop> {
    let status = cx.service()?.afs_status();
    let status = status.map_err(|error| cx.fail("cannot get the status of AFS", &error))?;
    let letters = partition.map(|name| name.trim_start_matches("/vicep").to_owned());
    let is_wanted = |found: &AfsPartition| {
        !found.served && letters.as_ref().is_none_or(|one| found.name == format!("/vicep{one}"))
    };
    let why = |found: &AfsPartition| match &found.problem {
        Some(reason) => words::reason(reason, &cx.clock),
        None => "another command works on it".to_owned(),
    };
    let away = status.partitions.into_iter().filter(is_wanted);
    Ok(away.map(|found| (found.clone(), why(&found))).collect())
}

fn volume(line: &Line) -> Volume {
    let name = match line.volume.name.is_empty() {
        true => line.volume.id.to_string(),
        false => line.volume.name.clone(),
    };
    Volume { name, dataset: line.volume.dataset.clone() }
}

/// The volumes that have the files of all: file systems, and of those that are no volumes the
/// newest clone.
fn heads(lines: &[Line]) -> Vec<Volume> {
    let mut of: BTreeMap<&str, &Line> = BTreeMap::new();
    for line in lines {
        let (head, is_clone) = match line.volume.dataset.split_once('@') {
            Some((head, _)) => (head, true),
            None => (line.volume.dataset.as_str(), false),
        };
        let is_better = |known: &&Line| {
            let known_is_clone = known.volume.dataset.contains('@');
            let newer = (line.volume.updated, line.volume.id) > (known.volume.updated, known.volume.id);
            known_is_clone && (!is_clone || newer)
        };
        if of.get(head).is_none_or(is_better) {
            of.insert(head, line);
        }
    }
    of.into_values().map(volume).collect()
}

fn title(each: &[Volume]) -> String {
    match each.len() {
        0..=TITLE_MAX => each.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", "),
        many => format!("{many} volumes"),
    }
}

fn other(text: impl Into<String>) -> Fault {
    Fault { kind: files::Kind::Other, text: text.into() }
}

/// Why a volume is not opened. `Err`: no other one can be.
fn refused(denied: Denied) -> Result<String, String> {
    match denied {
        Denied::NoKey { root, .. } => Ok(format!("its key is not loaded: use 'zfs load-key {root}' first")),
        Denied::Api(error) => Ok(words::reason(&error.reason, &console::Clock::system())),
        Denied::Theirs | Denied::Socket { .. } => Err(api::chain(&denied)),
        denied => Ok(api::chain(&denied)),
    }
}

impl Volumes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs requests about the files of a volume.
    fn with<T>(&self, system: usize, run: impl FnOnce(&mut dyn Files) -> Result<T, Fault>) -> io::Result<T> {
        let mut state = self.state();
        if let Some(why) = &state.gone {
            return Err(io::Error::other(why.clone()));
        }
        if state.open.as_ref().is_none_or(|(open, _)| *open != system) {
            // The daemon closes this one first.
            state.open = None;
            let (dataset, command) = (self.each[system].dataset.clone(), "afs".to_owned());
            let opening = Opening { dataset, command, beside: true, ..Opening::default() };
            match (self.look)(&opening).map_err(refused) {
                Ok(files) => state.open = Some((system, files)),
                Err(Ok(why)) => return Err(io::Error::other(why)),
                Err(Err(why)) => {
                    state.gone = Some(why.clone());
                    return Err(io::Error::other(why));
                }
            }
        }
        let Some((_, files)) = &mut state.open else { return Err(io::ErrorKind::NotConnected.into()) };
        run(&mut **files).map_err(|fault| {
            if fault.kind == files::Kind::Gone {
                (state.gone, state.open) = (Some(fault.text.clone()), None);
            }
            io::Error::other(fault.text)
        })
    }
}

fn node(meta: &Meta) -> Node {
    let kind = match meta.kind {
        FileType::Regular => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Special,
    };
    let time = |(secs, nanos): (i64, u32)| [secs as u64, nanos.into()];
    Node {
        number: meta.object.0,
        generation: meta.generation,
        kind,
        size: meta.size,
        sparse: meta.sparse,
        links: meta.nlink,
        mode: meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        times: [time(meta.atime), time(meta.mtime)],
    }
}

/// Fills `buf` with bytes of the file that was begun.
fn read(files: &mut dyn Files, mut at: u64, mut buf: &mut [u8]) -> Result<(), Gap> {
    while !buf.is_empty() {
        let most = buf.len().min(files::PART_MAX);
        let read = files.read(at, &mut buf[..most])?;
        at += read as u64;
        buf = &mut buf[read.min(most)..];
    }
    Ok(())
}

/// Reads what is no hole of the file that was begun.
fn data_of(
    files: &mut dyn Files,
    from: u64,
    data: &mut [u8],
    found: &mut dyn FnMut(Range<usize>),
) -> Result<(), Gap> {
    let (mut at, end) = (from, from + data.len() as u64);
    while at < end {
        let Some(begin) = files.next(at, true)?.filter(|begin| *begin < end) else { break };
        let begin = begin.max(at);
        let stop = files.next(begin, false)?.unwrap_or(end).clamp(begin + 1, end);
        let range = (begin - from) as usize..(stop - from) as usize;
        read(files, begin, &mut data[range.clone()])?;
        found(range);
        at = stop;
    }
    Ok(())
}

impl FileSystems for Volumes {
    fn count(&self) -> usize {
        self.each.len()
    }

    fn name(&self, system: usize) -> PathBuf {
        self.each[system].name.clone().into()
    }

    fn root(&self, system: usize) -> io::Result<Node> {
        if system == 0 {
            // A walk begins.
            self.state().left_out.clear();
        }
        let root = self.with(system, |files| files.resolve(b"/", true));
        if root.is_err() {
            self.state().left_out.insert(system);
        }
        root.map(|meta| node(&meta))
    }

    fn node(&self, system: usize, number: u64) -> io::Result<Node> {
        self.with(system, |files| files.meta(ObjNum(number))).map(|meta| node(&meta))
    }

    fn list(&self, system: usize, folder: u64, each: &mut dyn FnMut(&[u8], u64)) -> io::Result<()> {
        let mut from = DirCookie::START;
        loop {
            let page = self.with(system, |files| files.page(ObjNum(folder), from))?;
            for entry in &page.entries {
                each(&entry.name.0, entry.object.0);
            }
            if let Some(fault) = page.fault {
                return Err(io::Error::other(fault.text));
            }
            match page.entries.last().filter(|_| page.more) {
                Some(last) => from = DirCookie(last.next),
                None => return Ok(()),
            }
        }
    }

    fn read(
        &self,
        system: usize,
        file: Wanted,
        data: &mut [u8],
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()> {
        self.with(system, |files| {
            let object = ObjNum(file.number);
            files.begin(object)?;
            // After the begin: from there on the daemon reports a file that is another one.
            let meta = files.meta(object)?;
            if meta.generation != file.generation {
                return Err(other("it was replaced meanwhile"));
            }
            if meta.size < file.from.saturating_add(data.len() as u64) {
                return Err(other("it became shorter meanwhile"));
            }
            let done = match file.sparse {
                true => data_of(files, file.from, data, found),
                false => read(files, file.from, data).inspect(|()| found(0..data.len())),
            };
            done.map_err(|gap| gap.fault)
        })
    }
}
