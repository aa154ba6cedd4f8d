//! A pool that this daemon writes.
//!
//! # Theory
//! The engine holds the pool open for writing ([`spa::engine::Live`]). What commands ask about is answered from the state that the last
//! change left on the devices: after each change the pool is looked at anew, as a reader who claims nothing would. A change is over
//! only when it is on disk, so the answer to a question that follows it knows it.
//!
//! # Locks
//! Changes of one pool wait for each other; questions wait for nobody.
//!
//! # Absent
//! Pools that were imported: those can only be read.

use std::path::PathBuf;
use std::sync::Arc;

use dsl::PropList;
use ondisk::config::{AllocBias, DraidShape};
use ondisk::feature::Feature;
use ondisk::{Ashift, Guid};
use parking_lot::Mutex;
use poolhouse::Pool;
use spa::Host;
use spa::create::{
    Beginning, CreateError, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create,
};
use spa::engine::{Live, SystemWorld};
use spa::import::{Claim, Options, SystemClock};
use zpl::NewFileSystem;

use crate::api::{CreatePool, Error, Layout, Reason, Vdev};
use crate::change::{Task, Writer};
use crate::faults::{chain, of_library, of_spa};
use crate::settings::pool::{self, When};
use crate::view::PoolFacts;

/// Bytes of the block cache of a pool that is written.
const CACHE: u64 = 256 << 20;

/// A pool that is open for writing.
pub struct Work {
    /// Gone when the pool has been let go of.
    live: Mutex<Option<Live>>,
    devices: Vec<PathBuf>,
    guid: Guid,
    altroot: Option<String>,
}

impl Work {
    /// Makes a pool.
    ///
    /// # Errors
    /// What is wrong with its properties and devices, or could not be written.
    pub fn create(request: &CreatePool, host: &Host) -> Result<(Self, PoolFacts), Error> {
        let name = request.name.as_str();
        let bad = |what: String| Error::new(name, Reason::BadValue { what });
        let mut features: Vec<&'static Feature> = Vec::new();
        let (mut ashift, mut facts) = (None, PoolFacts::default());
        for (property, value) in &request.props {
            match pool::check(property, value, When::Create, 1, host.hostid).map_err(bad)? {
                pool::Setting::Feature(feature) => features.push(feature),
                pool::Setting::NoFeature(_) | pool::Setting::Number("ashift", 0) => {}
                pool::Setting::Number("ashift", shift) => {
                    ashift = Some(Ashift(u8::try_from(shift).expect("checked to be 16 at most")));
                }
                pool::Setting::AltRoot(path) => {
                    facts.altroot = Some(path.trim_end_matches('/').to_owned()).filter(|p| !p.is_empty());
                }
                pool::Setting::CacheFile(file) => facts.cachefile = file,
                _ => return Err(absent(name, &format!("setting the property '{property}' of a pool"))),
            }
        }
        if request.key.is_some() {
            return Err(absent(name, "making an encrypted pool"));
        }
        let new = NewPool {
            name: name.to_owned(),
            vdevs: vdevs(name, &request.layout)?,
            ashift,
            force: request.force,
        };
        let devices = new.vdevs.iter().flat_map(|v| &v.leaves).map(|leaf| leaf.path.clone()).collect();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let contents = NewFileSystem::new((now.as_secs(), u64::from(now.subsec_nanos())));
        let props = root_props(name, request)?;
        let begin = Beginning { features: &features, contents: &contents, props: &props };
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let setting = Setting {
            host,
            world: Arc::new(SystemWorld),
            claimer: &claim_file,
            workers: Arc::new(zio::Workers::new(&format!("zio-{name}"), threads)),
            cache_bytes: CACHE,
        };
        let live = create(&new, &begin, &setting).map_err(|e| Error::new(name, of_create(&e)))?;
        let guid = live.config().pool_guid.ok_or_else(|| Error::new(name, Reason::InvalidConfig))?;
        let altroot = facts.altroot.clone();
        Ok((Self { live: Mutex::new(Some(live)), devices, guid, altroot }, facts))
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The pool as it is on its devices.
    ///
    /// # Errors
    /// As reading them fails.
    pub fn look(&self, host: &Host) -> Result<Pool, Reason> {
        let found = spa::scan(&self.devices).pools;
        let candidate = found.iter().find(|pool| pool.guid == self.guid).ok_or(Reason::NoSuchImport)?;
        let options = Options {
            readonly: true,
            claim: Claim::Nothing,
            force: true,
            skip_mmp: true,
            cache_bytes: CACHE,
            ..Options::default()
        };
        let spa = spa::import(candidate, &options, host, &SystemClock).map_err(|failure| of_spa(&failure))?;
        Pool::with_spa(spa, self.altroot.clone()).map_err(|error| of_library(&error))
    }

    /// Writes what is pending.
    ///
    /// # Errors
    /// [`Reason::Suspended`].
    pub fn sync(&self) -> Result<(), Reason> {
        match &*self.live.lock() {
            Some(live) => live.sync_all().map_err(|_| Reason::Suspended),
            None => Err(Reason::Busy),
        }
    }

    /// Writes a command line to the pool's history, with the next group.
    ///
    /// # Errors
    /// [`Reason::Suspended`].
    pub fn log(&self, command: &str) -> Result<(), Reason> {
        let uid = rustix::process::geteuid().as_raw();
        match &*self.live.lock() {
            Some(live) => live.log_command(command, uid).map_err(|_| Reason::Suspended),
            None => Err(Reason::Busy),
        }
    }

    /// Lets the pool go, destroyed or exported.
    ///
    /// # Errors
    /// [`Reason::Suspended`].
    pub fn leave(&self, destroy: bool) -> Result<(), Reason> {
        let live = self.live.lock().take().ok_or(Reason::Busy)?;
        let left = if destroy { live.destroy() } else { live.export() };
        left.map_err(|_| Reason::Suspended)
    }
}

impl Writer for Work {
    fn run(&self, tasks: Vec<Task>) -> Result<Vec<dsl::Result<()>>, Reason> {
        match &*self.live.lock() {
            Some(live) => live.run_all(tasks).map_err(|_| Reason::Suspended),
            None => Err(Reason::Busy),
        }
    }
}

/// Something that this release does not do.
pub(crate) fn absent(about: &str, what: &str) -> Error {
    Error::new(about, Reason::NotSupported { what: what.to_owned() })
}

/// The properties of a new pool's root file system. Only those that need nothing of the pool are taken.
fn root_props(name: &str, request: &CreatePool) -> Result<PropList, Error> {
    let large = request.props.iter().any(|(n, v)| n == "feature@large_blocks" && v == "enabled");
    let max_block = if large { ondisk::SPA_MAXBLOCKSIZE } else { ondisk::SPA_OLD_MAXBLOCKSIZE };
    let context = dsl::prop::parse::Context { kind: dsl::Kind::Filesystem, creating: true, max_block };
    let fixed = ["version", "utf8only", "normalization", "casesensitivity", "encryption", "keyformat"];
    let each = |(property, value): &(String, String)| {
        if fixed.contains(&property.as_str()) {
            return Err(absent(name, &format!("'{property}' of a pool's root file system")));
        }
        dsl::prop::parse::setting(property, value, context)
            .map_err(|why| crate::change::tasks::bad_value(name, &why))
    };
    request.root_props.iter().map(each).collect()
}

fn vdevs(name: &str, layout: &Layout) -> Result<Vec<NewVdev>, Error> {
    if !layout.spares.is_empty() || !layout.cache.is_empty() {
        return Err(absent(name, "a pool with hot spares or cache devices"));
    }
    let leaf = |v: &Vdev| {
        let path = v.path.clone().ok_or_else(|| Error::new(name, Reason::InvalidConfig))?;
        Ok(NewLeaf { path: PathBuf::from(path) })
    };
    let top = |v: &Vdev| -> Result<NewVdev, Error> {
        let children = v.children.len() as u64;
        let shape = match v.kind.as_str() {
            "mirror" => VdevShape::Mirror,
            "raidz" => VdevShape::Raidz(v.nparity),
            "draid" => VdevShape::Draid(v.nparity, draid(v, children)),
            _ => VdevShape::Single,
        };
        let bias = match (v.is_log, v.alloc_bias.as_deref()) {
            (true, _) => Some(AllocBias::Log),
            (false, Some("special")) => Some(AllocBias::Special),
            (false, Some("dedup")) => Some(AllocBias::Dedup),
            (false, _) => None,
        };
        let leaves = if v.children.is_empty() {
            vec![leaf(v)?]
        } else {
            v.children.iter().map(leaf).collect::<Result<_, _>>()?
        };
        Ok(NewVdev { shape, bias, leaves })
    };
    layout.tops.iter().map(top).collect()
}

/// A draid's shape: as many groups as it takes until rows of groups and rows of devices end together.
fn draid(v: &Vdev, children: u64) -> DraidShape {
    let (group, disks) = (v.draid_ndata + v.nparity, children.saturating_sub(v.draid_nspares).max(1));
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    DraidShape { ndata: v.draid_ndata, nspares: v.draid_nspares, ngroups: disks / gcd(group, disks) }
}

fn of_create(error: &CreateError) -> Reason {
    match error {
        CreateError::Open { source, .. } => match device_errno(source) {
            Some(errno) => Reason::DeviceOpen { errno },
            None => Reason::DeviceTwice,
        },
        CreateError::TooSmall { .. } => Reason::DeviceTooSmall,
        CreateError::InUse { pool, .. } => {
            Reason::DeviceOfPool { pool: pool.clone(), state: crate::api::PoolState::PotentiallyActive }
        }
        CreateError::Twice { .. } => Reason::DeviceTwice,
        CreateError::Shape { .. } | CreateError::NoData => Reason::InvalidConfig,
        CreateError::Ashift { .. } => Reason::BadAshift,
        CreateError::Write(_) => Reason::Io { what: chain(error), info: Box::default() },
    }
}

/// What the system said of a device, if it was the system.
fn device_errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.into_iter().find_map(|e| e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error))
}
