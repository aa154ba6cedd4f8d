//! Judging what a crash left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use afs::types::{FetchStatus, Fid, StoreStatus, VOK, VolumeId};
use poolhouse::{OpenOptions, Pool};
use spa::import::{Options, Resources, SystemClock, import_for_writing};

use super::net::{Cell, Client, Operator, partition, root};
use super::record::Recorded;
use super::volumes::READ_ONLY;
use super::world::{Body, Fallible, File, ROOT, Sight, State, Versions, Volume, World, check, fid, of_dump};
use crate::crash::work::{POOL, host};
use crate::crash::{Point, SplitMix, Tape};

/// Files and directories of a volume that are changed after the crash.
const CHANGED: usize = 4;
/// Stores in each of these files.
const STORES: usize = 4;

/// What clients know from before the crash, and learn after it.
#[derive(Default)]
struct Memory {
    /// The contents of each version that a client has seen.
    contents: HashMap<(Fid, u32), Arc<File>>,
    /// All files that there ever were.
    fids: BTreeSet<Fid>,
}

impl Memory {
    /// A client sees contents of a file.
    ///
    /// # Errors
    /// A client has seen other contents in that version.
    fn see(&mut self, fid: Fid, version: u32, file: &Arc<File>) -> Fallible<()> {
        self.fids.insert(fid);
        let known = self.contents.entry((fid, version)).or_insert_with(|| Arc::clone(file));
        match known.has_contents_of(file) {
            true => Ok(()),
            false => Err(format!("version {version} of {fid} has other contents than before").into()),
        }
    }
}

/// Opens the pool in `dir`, which has crashed at `point`, and judges it. The pool is exported in
/// the end. Returns the number of the state.
///
/// # Errors
/// What is wrong.
pub(super) fn judge(recorded: &Recorded, point: Point, seed: u64, dir: &Path) -> Fallible<usize> {
    let options = OpenOptions {
        write: true,
        force: true,
        cache_bytes: Some(32 << 20),
        no_read_ahead: true,
        ..OpenOptions::default()
    };
    let pool = Pool::open(&[dir], &options)?;
    let cell = Cell::start(&pool)?;
    let clients = [cell.client(1)?, cell.client(2)?];
    let operator = cell.operator()?;
    let (found, versions) = look(&operator)?;
    let state = compare(recorded, point, &found)?;
    check_datasets(&pool, &found)?;
    let before = recorded.sights.iter().filter(|sight| sight.from <= point);
    let mut memory = Memory::default();
    for Sight { fid, version, file, .. } in before {
        memory.see(*fid, *version, file)?;
    }
    for (fid, version) in &versions {
        let file = found.file(*fid).ok_or("a file has a version only")?;
        memory.see(*fid, *version, file)?;
    }
    let mut dice = SplitMix(seed);
    for client in &clients {
        meet(client, &found, &versions, &mut dice)?;
    }
    for (id, volume) in found.volumes.iter().filter(|(_, volume)| volume.kind == 0) {
        go_on(&clients, *id, (**volume).clone(), &mut memory, &mut dice)?;
    }
    drop((operator, clients, cell));
    pool.export()?;
    Ok(state)
}

/// Opens the pool in `dir`, starts a server and reads all. This is recorded on a tape. Returns the
/// end of that. Then it all ends, as if it crashed.
///
/// # Errors
/// What is wrong.
pub(super) fn recover(dir: &Path, tape: &Tape) -> Fallible<Point> {
    let scan = spa::discover(&[dir]);
    let [found] = &scan.pools[..] else {
        return Err(format!("there are {} pools", scan.pools.len()).into());
    };
    let (readonly, layer, cache) = (false, tape.layer(), (32u64 << 20).into());
    let options = Options { readonly, force: true, cache, layer, ..Options::default() };
    let resources = Resources::of_system(POOL);
    let spa = import_for_writing(found, &options, None, &host(), &SystemClock, resources)?;
    let pool = Pool::with_spa(spa, None)?;
    let cell = Cell::start(&pool)?;
    look(&cell.operator()?)?;
    Ok(tape.end())
}

/// All volumes and files, and their versions.
fn look(operator: &Operator) -> Fallible<(World, Versions)> {
    let (mut world, mut versions) = (World::default(), Versions::new());
    let listed = operator.list()?;
    let numbers = operator.numbers()?;
    if listed.iter().map(|info| info.id).ne(numbers.iter().copied()) {
        return Err(format!("volumes {numbers:?} are there, and some of them are incomplete").into());
    }
    for info in listed {
        let sound = info.status == VOK && info.in_use.0 != 0 && info.needs_salvaged.0 == 0;
        if !sound {
            return Err(format!("a volume is not in order: {info:?}").into());
        }
        let dump = operator.dump(info.id, 0)?;
        let read = of_dump(info.id, &dump, &mut versions);
        let mut volume = read.and_then(check).map_err(|error| format!("volume {}: {error}", info.id))?;
        volume.note(&info);
        // Now the server has opened it, and counted anew what it had to.
        let counted = operator.list_one(info.id)?;
        let (files, count) = (volume.files.len(), counted.file_count);
        if usize::try_from(count) != Ok(files) {
            return Err(format!("volume {} has {files} files, and its header says {count}", info.id).into());
        }
        if world.volumes.insert(info.id, Arc::new(volume)).is_some() {
            return Err(format!("volume {} is there twice", info.id).into());
        }
    }
    Ok((world, versions))
}

/// Finds the state of the workload that the crash left.
fn compare(recorded: &Recorded, point: Point, found: &World) -> Fallible<usize> {
    let states = &recorded.states;
    let durable = recorded.durable.iter().filter(|(_, from)| *from <= point);
    let first = durable.map(|(state, _)| *state).max().unwrap_or(0);
    let last = states.iter().rposition(|state| state.began <= point).unwrap_or(0).max(first);
    let committed = recorded.marks.iter().filter(|mark| mark.from <= point).map(|mark| mark.state);
    let committed = committed.max().unwrap_or(first).max(first);
    if let Some(at) = (committed..=last).rev().find(|at| states[*at].world == *found) {
        return Ok(at);
    }
    let has_commits = states[first + 1..=last].iter().any(|state| state.is_durable);
    let why = match has_commits {
        true => compare_parts(recorded, point, (first, last), found),
        false => Err("no commit".into()),
    };
    let Err(why) = why else { return Ok(last) };
    let near = (first..=last).min_by_key(|at| found.differences(&states[*at].world).len());
    let near = near.unwrap_or(last);
    let State { what, world, .. } = &states[near];
    let differences = found.differences(world).join("; ");
    let about = format!("there is no such state from {first} to {last} ({why})");
    Err(format!("{about}; beside {near}, {what}: {differences}").into())
}

/// Compares each volume for itself, and each file for itself: commits make the names in a volume
/// and a file durable, and nothing else.
fn compare_parts(
    recorded: &Recorded,
    point: Point,
    (first, last): (usize, usize),
    found: &World,
) -> Fallible<()> {
    let states = &recorded.states;
    let marks: Vec<_> = recorded.marks.iter().filter(|mark| mark.from <= point).collect();
    let since = |is: &dyn Fn(Fid) -> bool| {
        let of_it = marks.iter().filter(|mark| is(mark.fid)).map(|mark| mark.state);
        of_it.max().unwrap_or(first).max(first)
    };
    let has_volumes = |at: &usize| states[*at].world.volumes.keys().eq(found.volumes.keys());
    if !(first..=last).any(|at| has_volumes(&at)) {
        return Err("other volumes".into());
    }
    for (id, volume) in &found.volumes {
        let names = since(&|fid| fid.volume == *id);
        let then = |at: usize| states[at].world.volumes.get(id);
        if !(names..=last).any(|at| then(at).is_some_and(|then| then.has_names_of(volume))) {
            return Err(format!("other names in {id} since {names}").into());
        }
        if !(first..=last).any(|at| then(at).is_some_and(|then| then.header() == volume.header())) {
            return Err(format!("another header of {id}").into());
        }
        for (own, file) in &volume.files {
            let own = fid(*id, *own);
            let from = since(&|fid| fid == own);
            let then = |at: usize| states[at].world.file(own);
            let is_as = |at| then(at).is_some_and(|then| then.is_as(file));
            let is_partly =
                |at| then(at).zip(then(at + 1)).is_some_and(|(one, next)| one.is_partly(next, file));
            if !(from..=last).any(is_as) && !(from..last).any(is_partly) {
                return Err(format!("{own} is as never since {from}").into());
            }
        }
    }
    Ok(())
}

/// The dataset with the list of a partition's volumes.
const LIST: &str = "volume-table";
/// How the snapshot begins that a copy has received as blocks.
const BASE: &str = "release-base.";

/// The snapshot of a volume that a clone leaves when the next release takes its place.
const FORMER: &str = "release-former";

/// Checks that the partition has a dataset for each volume, and no others but its list, what came
/// as blocks, and the former snapshot of a volume that still has a read-only clone.
fn check_datasets(pool: &Pool, found: &World) -> Fallible<()> {
    let mut volumes: BTreeSet<String> = found.volumes.keys().map(ToString::to_string).collect();
    let below = format!("{}/", partition());
    let mut heads_of_clones: BTreeMap<String, bool> = BTreeMap::new();
    let names = pool.dataset_names(true)?.names;
    let is_released = |head: &str| {
        let clones = found.volumes.iter().filter(|(_, volume)| volume.kind == READ_ONLY);
        clones.into_iter().any(|(id, _)| names.contains(&format!("{below}{head}@{id}")))
    };
    for name in &names {
        let Some(own) = name.strip_prefix(&below) else { continue };
        let is_known = match own.split_once('@') {
            // What came last as blocks.
            Some((head, base)) if base.starts_with(BASE) => {
                found.volumes.iter().any(|(id, volume)| volume.kind == READ_ONLY && id.to_string() == head)
            }
            Some((head, FORMER)) => is_released(head),
            Some((head, clone)) => {
                if let Some(has_clones) = heads_of_clones.get_mut(head) {
                    *has_clones = true;
                }
                volumes.remove(clone)
            }
            None if own == LIST => true,
            None if own.contains(".clones-") => heads_of_clones.insert(own.to_owned(), false).is_none(),
            None => volumes.remove(own),
        };
        if !is_known {
            return Err(format!("{name} is the dataset of no volume").into());
        }
        // Listings leave it out.
        let hidden = dsl::ops::replace::hidden_name(name);
        if !name.contains('@') && pool.dataset(&hidden).is_ok() {
            return Err(format!("{hidden} is left of a restore").into());
        }
    }
    if let Some((head, _)) = heads_of_clones.iter().find(|(_, has_clones)| !**has_clones) {
        return Err(format!("{head} has no clone").into());
    }
    match volumes.first() {
        None => Ok(()),
        Some(volume) => Err(format!("volume {volume} has no dataset").into()),
    }
}

/// A client from before the crash meets the new server.
fn meet(client: &Client, found: &World, versions: &Versions, dice: &mut SplitMix) -> Fallible<()> {
    let open = found.volumes.iter().filter(|(_, volume)| is_open(volume));
    for (id, volume) in open {
        let files: Vec<_> = volume.files.iter().collect();
        for _ in 0..2 {
            let (own, file) = files[dice.below(files.len() as u64) as usize];
            let fid = fid(*id, *own);
            let (data, status) = client.fetch(fid)?;
            if *client.told.resets.lock() != 1 {
                return Err("a client does not hear that its promises ended".into());
            }
            let same = match &file.body {
                Body::File(right) | Body::Link(right) => **right == data,
                Body::Directory(..) => status.length == data.len() as u64,
            };
            let right = (file.links, file.parent.0, versions.get(&fid).copied());
            let is = (status.link_count, status.parent, Some(status.data_version.0));
            // The parent of a directory, for clients, is itself.
            let is_directory = file.entries().is_some();
            let agrees = is == right || is_directory && (is.0, is.2) == (right.0, right.2);
            if !same || !agrees || client.status(fid)?.data_version != status.data_version {
                return Err(format!("{fid} has status {status:?}, but {right:?} in a dump").into());
            }
        }
    }
    Ok(())
}

/// Whether anyone may use a volume. A crash may come before its access list is set.
fn is_open(volume: &Volume) -> bool {
    volume.acl(ROOT) != afs::acl::Acl::of_new_volume()
}

/// Clients go on with a volume: new files, and changes of old ones.
fn go_on(
    clients: &[Client],
    id: VolumeId,
    mut volume: Volume,
    memory: &mut Memory,
    dice: &mut SplitMix,
) -> Fallible<()> {
    if !is_open(&volume) {
        return Ok(());
    }
    let mut directories: Vec<_> =
        volume.files.iter().filter(|(_, file)| file.entries().is_some()).map(|(own, _)| *own).collect();
    let mut files: Vec<_> = volume
        .files
        .iter()
        .filter(|(_, file)| matches!(file.body, Body::File(_)))
        .map(|(own, _)| *own)
        .collect();
    for all in [&mut directories, &mut files] {
        let from = dice.below(all.len().max(1) as u64) as usize;
        all.rotate_left(from);
        all.truncate(CHANGED);
    }
    for (n, own) in directories.into_iter().enumerate() {
        for m in 0..STORES {
            let (above, name) = (fid(id, own), format!("after.{n}.{m}"));
            let client = &clients[m % clients.len()];
            let (new, statuses) = client.make(above, &name, m == 0, StoreStatus::default())?;
            if memory.fids.contains(&new) {
                return Err(format!("{new} is given out again").into());
            }
            note_new(&mut volume, (above, &name), new, m == 0);
            for (fid, status) in [new, above].into_iter().zip(&statuses) {
                note(memory, &volume, fid, status)?;
            }
        }
    }
    for own in files {
        for m in 0..STORES {
            let file = fid(id, own);
            let data: Vec<u8> = (0..dice.below(300)).map(|_| dice.roll() as u8).collect();
            let length = data.len() as u64;
            let status =
                clients[m % clients.len()].store(file, (0, &data), length, StoreStatus::default())?;
            volume.file(own).body = Body::File(Arc::new(data));
            note(memory, &volume, file, &status)?;
        }
    }
    let (_, status) = clients[0].fetch(root(id))?;
    note(memory, &volume, root(id), &status)
}

fn note(memory: &mut Memory, volume: &Volume, fid: Fid, status: &FetchStatus) -> Fallible<()> {
    let file = volume.files.get(&super::world::id(fid)).ok_or("the model has it")?;
    memory.see(fid, status.data_version.0, file)
}

fn note_new(volume: &mut Volume, (above, name): (Fid, &str), new: Fid, is_directory: bool) {
    let (above, new) = (super::world::id(above), super::world::id(new));
    let body = match is_directory {
        true => Body::Directory(BTreeMap::new(), volume.acl(above)),
        false => Body::File(Arc::default()),
    };
    let file = File { body, parent: above, links: 1, mode: 0 };
    volume.files.insert(new, Arc::new(file));
    volume.entries(above).insert(name.to_owned(), new);
}
