//! Discovery: from paths to pools that can be imported.
//!
//! # Theory
//! Discovery reads the labels of every regular file and block device that the given paths lead to,
//! in the whole and in each partition. A label that names a pool makes its device a *member*.
//! Members are grouped by pool guid.
//!
//! The newest label of each top-level vdev gives that vdev's tree. The newest of all gives the
//! pool's own fields and the number of top-level vdevs. Vdevs that no label describes become
//! `missing` or `hole`. Labels are written at different times, so the resulting config may be wrong
//! in detail. The MOS corrects it at import.
//!
//! A split (`vdev_ops::split`) writes labels and uberblocks of a new pool to devices of an old one.
//! After a power failure, one such uberblock on any device means that the split happened. While
//! there is none, all these devices belong to the old pool by their older labels.
//!
//! Discovery does not wait for a file or device that hangs ([`crate::discovery::probe`]). A thread
//! that can be left behind reads each, and even looks it up. The others are found without it. The
//! result lists what did not answer.

mod assemble;
pub mod host;
pub mod label;
pub mod location;
pub mod probe;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, Layer, Mode};
use ondisk::config::PoolState;
use ondisk::label::SPA_MINDEVSIZE;
use ondisk::{Guid, PoolConfig, Txg};

use crate::discovery::label::{Labels, before_split, is_announced, split_from};
use crate::discovery::location::{DeviceLocation, Identity, Openings, partitions};

#[cfg(test)]
mod tests;

/// Where OpenZFS on Linux looks for devices by default (`zpool_default_import_path`).
pub const DEFAULT_SEARCH_PATHS: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// Most files that one search reads; a folder's further files are left out.
const MAX_FILES: usize = 1 << 17;

/// A device that holds a label.
#[derive(Debug, Clone)]
pub struct Member {
    /// Where it is.
    pub place: DeviceLocation,
    /// Its newest config.
    pub config: PoolConfig,
    /// The config before a split that was not completed. The newest label says that the device
    /// moved to another pool, but the uberblock of the split is absent.
    pub before: Option<Box<PoolConfig>>,
    /// Number of its labels that verify: 1 to 4.
    pub labels: usize,
    /// Its place in the order of the search.
    pub order: usize,
}

impl Member {
    /// The device's own guid.
    pub fn guid(&self) -> Guid {
        self.config.guid.unwrap_or_default()
    }

    /// The path that its own label records for it.
    fn recorded_path(&self) -> Option<&[u8]> {
        self.config.vdev_tree.as_ref()?.find(self.guid())?.path.as_deref()
    }

    /// The same device under the name that its label records, if that is among `aliases`. The
    /// pool's record of it then stays as it is (`fix_paths`).
    fn under_its_own(mut self, aliases: &[PathBuf]) -> Member {
        use std::os::unix::ffi::OsStrExt;
        let recorded = self.recorded_path().map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        if let Some(own) = recorded.filter(|own| self.place.partition.is_none() && aliases.contains(own)) {
            self.place.path = own;
        }
        self
    }

    /// The rank of a member among the devices of its guid, most significant first:
    ///
    /// * newer;
    /// * a whole device, not a partition found inside one (claiming a disk excludes its
    ///   partitions);
    /// * at the path that the label records;
    /// * more labels;
    /// * earlier in the search.
    fn rank(&self) -> (Txg, bool, bool, usize, std::cmp::Reverse<usize>) {
        use std::os::unix::ffi::OsStrExt;
        let at_home = self.recorded_path() == Some(self.place.path.as_os_str().as_bytes());
        (self.config.txg, self.place.partition.is_none(), at_home, self.labels, std::cmp::Reverse(self.order))
    }
}

/// A pool that was found.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its guid.
    pub guid: Guid,
    /// Its name by its labels.
    pub name: String,
    /// Its state by its labels.
    pub state: PoolState,
    /// The config from all its labels; the root of its tree has every top-level vdev.
    pub config: PoolConfig,
    /// Its devices, best first where a guid occurs twice. Then those that have left it with a
    /// split.
    pub members: Vec<Member>,
    /// Spare and cache devices of any pool: their labels don't name one.
    pub auxiliary: Arc<[Member]>,
    /// The pool of which this one is an old state, left on a device that the pool lost unnoticed
    /// before a guid change.
    ///
    /// By newer labels, that pool has devices which this one lacks, and none of this one's devices.
    pub superseded_by: Option<Guid>,
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// The pools, by guid.
    pub pools: Vec<Candidate>,
    /// Devices with the label of a hot spare or of a cache device.
    pub auxiliary: Arc<[Member]>,
    /// Number of files and devices that were read.
    pub asked: usize,
    /// Files, devices and folders that did not answer in time
    /// ([`PROBE_TIMEOUT`](crate::tunables::PROBE_TIMEOUT)).
    pub silent: Vec<PathBuf>,
}

/// Searches files, block devices and the folders that hold them for pools (`zpool_search_import`).
///
/// Skips what can't be opened. Never opens character devices, pipes and the like.
pub fn discover<P: AsRef<Path>>(paths: &[P]) -> Discovery {
    let mut silent = Vec::new();
    let files = files(paths, &mut silent);
    let members = probe_all(&files, &mut silent);
    let asked = files.len();
    let (auxiliary, members) = members
        .into_iter()
        .partition::<Vec<_>, _>(|m| matches!(m.config.state, PoolState::Spare | PoolState::L2cache));
    // Shared, because any number of files can be made to look like pools and spares.
    let auxiliary: Arc<[Member]> = auxiliary.into();
    let pools = by_pool(members);
    let left: Vec<(Guid, Member)> =
        pools.values().flatten().filter_map(|m| Some((split_from(&m.config)?, m.clone()))).collect();
    let newest = newest_of_each(&pools);
    let pools: Vec<Candidate> = pools
        .into_iter()
        .filter_map(|(guid, mut members)| {
            members.sort_by_key(|m| std::cmp::Reverse(m.rank()));
            let config = assemble::config(&members)?;
            let superseded_by = superseded_by(guid, &config, &members, &newest);
            members.extend(left.iter().filter(|(from, _)| *from == guid).map(|(_, m)| m.clone()));
            Some(Candidate {
                guid,
                name: config.name.clone().unwrap_or_default(),
                state: config.state,
                config,
                members,
                auxiliary: auxiliary.clone(),
                superseded_by,
            })
        })
        .collect();
    Discovery { pools, auxiliary, asked, silent }
}

/// The newest label of each device, and the pool that it names.
fn newest_of_each(pools: &BTreeMap<Guid, Vec<Member>>) -> HashMap<Guid, (Txg, Guid)> {
    let mut newest = HashMap::new();
    for (pool, m) in pools.iter().flat_map(|(pool, members)| members.iter().map(|m| (*pool, m))) {
        let label = (m.config.txg, pool);
        for guid in std::iter::once(m.guid()).chain(before_split(&m.config)) {
            let known = newest.entry(guid).or_insert(label);
            *known = (*known).max(label);
        }
    }
    newest
}

/// See [`Candidate::superseded_by`].
fn superseded_by(
    pool: Guid,
    config: &PoolConfig,
    members: &[Member],
    newest: &HashMap<Guid, (Txg, Guid)>,
) -> Option<Guid> {
    let own: HashSet<Guid> = members.iter().map(Member::guid).collect();
    let last = members.iter().map(|m| m.config.txg).max()?;
    // A pool that has copies of present devices is another pool.
    if own.iter().any(|guid| newest.get(guid).is_some_and(|(_, of)| *of != pool)) {
        return None;
    }
    let lacks = config.vdev_tree.iter().flat_map(ondisk::VdevConfig::leaves);
    let lacks = lacks.map(|leaf| leaf.guid).filter(|guid| !own.contains(guid));
    let mut elsewhere = lacks.filter_map(|guid| newest.get(&guid)).filter(|(txg, _)| *txg > last);
    elsewhere.next().map(|(_, other)| *other)
}

/// The members by their pools.
fn by_pool(members: Vec<Member>) -> BTreeMap<Guid, Vec<Member>> {
    let mut split = HashSet::new();
    for m in members.iter().filter(|m| m.before.is_none() && split_from(&m.config).is_some()) {
        split.extend(m.config.pool_guid);
    }
    let mut pools: BTreeMap<Guid, Vec<Member>> = BTreeMap::new();
    for mut m in members {
        let never = m.config.pool_guid.is_some_and(|guid| !split.contains(&guid));
        if let Some(before) = m.before.take_if(|_| never) {
            m.config = *before;
        }
        if let Some(guid) = m.config.pool_guid {
            pools.entry(guid).or_default().push(m);
        }
    }
    pools
}

/// A file or block device.
struct Found {
    /// The first name that leads to it, in the order of the search.
    path: PathBuf,
    /// Its other names.
    aliases: Vec<PathBuf>,
}

/// The files and block devices that `paths` lead to, in order, each once. Adds those that hang to
/// `silent`.
fn files<P: AsRef<Path>>(paths: &[P], silent: &mut Vec<PathBuf>) -> Vec<Found> {
    let given: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    let inside = |path: &Path| {
        let entries = path.read_dir().ok()?;
        let mut inside: Vec<_> = entries.take(MAX_FILES).flatten().map(|e| e.path()).collect();
        inside.sort();
        Some(inside)
    };
    let mut all = Vec::new();
    for (path, inside) in given.iter().zip(probe::each(&given, inside)) {
        match inside {
            Some(Some(inside)) => all.extend(inside),
            Some(None) => all.push(path.clone()),
            None => silent.push(path.clone()),
        }
    }
    let identities = probe::each(&all, Identity::of_path);
    let mut seen: HashMap<Identity, usize> = HashMap::new();
    let mut files: Vec<Found> = Vec::new();
    for (path, identity) in all.into_iter().zip(identities) {
        match identity {
            Some(Some(identity)) => match seen.get(&identity) {
                Some(at) => files[*at].aliases.push(path),
                None if files.len() < MAX_FILES => {
                    seen.insert(identity, files.len());
                    files.push(Found { path, aliases: Vec::new() });
                }
                None => {}
            },
            Some(None) => {}
            None => silent.push(path),
        }
    }
    files
}

/// The members in all of these, in order. Adds those that hang to `silent`.
fn probe_all(files: &[Found], silent: &mut Vec<PathBuf>) -> Vec<Member> {
    let mut all = Vec::new();
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    for ((order, file), members) in files.iter().enumerate().zip(probe::each(&paths, |path| probe(path, 0))) {
        match members {
            Some(members) => {
                let named = |m: Member| m.under_its_own(&file.aliases);
                all.extend(members.into_iter().map(named).map(|m| Member { order, ..m }));
            }
            None => silent.push(file.path.clone()),
        }
    }
    all
}

/// The members in one file or block device: itself, or its partitions.
pub(crate) fn probe(path: &Path, order: usize) -> Vec<Member> {
    probe_for(path, order, &Labels::newest)
}

/// The former members: their labels were made void when they left their pool.
pub(crate) fn probe_void(path: &Path) -> Vec<Member> {
    probe_for(path, usize::MAX, &|labels| labels.best(Txg(0)))
}

fn probe_for(path: &Path, order: usize, label: &Chosen<'_>) -> Vec<Member> {
    let openings = Openings::new(Mode::Peek, Layer::default());
    let whole = DeviceLocation::whole(path);
    let Ok(device) = openings.open(&whole) else { return Vec::new() };
    let mut found: Vec<_> = member(&*device, whole, order, label).into_iter().collect();
    for p in partitions(&*device) {
        let place = DeviceLocation { path: path.to_owned(), partition: Some(p) };
        if let Ok(device) = openings.open(&place) {
            found.extend(member(&*device, place, order, label));
        }
    }
    found
}

/// Chooses a device's valid label.
type Chosen<'a> = dyn Fn(&Labels) -> Option<&PoolConfig> + 'a;

fn member(device: &dyn Device, place: DeviceLocation, order: usize, label: &Chosen<'_>) -> Option<Member> {
    if device.size() < SPA_MINDEVSIZE {
        return None;
    }
    let labels = Labels::read(device);
    let config = label(&labels)?.clone();
    config.guid?;
    let undone = split_from(&config).is_some() && !is_announced(device, &config);
    let older = undone.then(|| labels.best(Txg(config.txg.0.saturating_sub(1)))).flatten();
    // A label of txg 0 is that of a device that was being added.
    let before = older.filter(|c| c.txg != Txg(0)).cloned().map(Box::new);
    Some(Member { place, config, before, labels: labels.valid(), order })
}
