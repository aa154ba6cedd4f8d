//! Finds and opens a pool, and loads keys.

use super::config;
use super::ctx::{Ctx, Run, Stop};
use super::opts::USAGE;
use super::text::lossy;
use dsl::{Dataset, Dsl};
use ondisk::Nvlist;
use pool::space::PoolSpace;
use spa::import::{Claim, Options, Rewind, SystemClock};
use spa::{Candidate, Host, Spa, SpaError};
use std::path::PathBuf;

/// Default size of the block cache in bytes. zdb rarely reads a block twice.
pub(super) const CACHE_BYTES: u64 = 256 << 20;
/// The tunable that sets the size of the cache, and its minimum in bytes.
const CACHE_TUNABLE: &str = "zfs_arc_max";
const CACHE_LEAST: u64 = 32 << 20;

/// Suffix of the pool's name if its checkpointed state is shown (`BOGUS_SUFFIX`).
const CHECKPOINTED: &str = "_CHECKPOINTED_UNIVERSE";

/// An open pool.
pub struct Opened {
    /// The pool.
    pub spa: Spa,
    /// The datasets.
    pub dsl: Dsl,
}

/// Sets the tunables of `-o`.
pub fn set_tunables(cx: &mut Ctx<'_>) -> Run {
    for (name, value) in cx.opts.tunables.clone() {
        if name == CACHE_TUNABLE {
            cx.cache_bytes = value.max(CACHE_LEAST);
        } else if let Err(e) = poolhouse::tunables::set(&name, value) {
            writeln!(cx.err, "{name}: {e}");
            cx.err.put(USAGE);
            return Err(Stop::Exit(1));
        }
    }
    Ok(())
}

/// Loads the key of `-K` if the dataset is encrypted (`zdb_load_key`).
///
/// # Errors
/// * [`Stop::Exit`]: the key does not fit.
/// * [`Stop::Failed`]: the dataset's directory can't be read.
pub fn load_key(cx: &mut Ctx<'_>, opened: &Opened, ds: &Dataset) -> Run {
    let Some(key) = cx.opts.key.clone() else { return Ok(()) };
    let Some(root) = ds.dir().encryption_root()? else { return Ok(()) };
    if let Err(e) = opened.dsl.keys().load(&root, key.as_bytes(), false)
        && !matches!(e, dsl::keys::KeyError::Loaded { .. })
    {
        return Err(cx.fatal(format!("couldn't load encryption key for {}: {e}", ds.name())));
    }
    Ok(())
}

/// Finds the pool `name` by its devices, and imports it without a claim. `target` is for messages.
///
/// # Errors
/// * [`Stop::Exit`]: there is no such pool, there are several, or it can't be opened.
/// * [`Stop::Failed`]: its datasets can't be read.
pub fn open(cx: &mut Ctx<'_>, name: &str, target: &str) -> Run<Opened> {
    let paths = search_paths(cx, name);
    let scan = spa::discover(&paths);
    let guid: Option<u64> = name.parse().ok();
    let mut named = scan.pools.iter().filter(|c| c.name == name);
    let candidate = match (named.next(), named.next()) {
        (Some(one), None) => one,
        (Some(_), Some(_)) => {
            writeln!(cx.err, "found pools with the same name; use the numeric identifier instead");
            return Err(cx.fatal(format!("can't open '{target}': Invalid argument")));
        }
        (None, _) => match scan.pools.iter().find(|c| guid == Some(c.guid.0)) {
            Some(c) => c,
            None => return Err(cx.fatal(format!("can't open '{target}': No such file or directory"))),
        },
    };
    if cx.opts.has('e') && cx.opts.count('C') > 1 {
        config::for_import(cx, &candidate.config, cx.opts.txg);
    }
    let spa = import(cx, candidate, target)?;
    // OpenZFS imports a checkpointed state under a name of its own.
    let suffix = if cx.opts.has('k') { CHECKPOINTED } else { "" };
    let pool_name = format!("{}{suffix}", spa.name());
    // No limit on space applies here, so the space is not read: an error there would stop zdb.
    let options = dsl::Options { pool_name, space: PoolSpace::default(), altroot: None };
    let dsl = Dsl::open(spa.mos().clone(), options)?;
    spa.cache().zio().set_keys(dsl.keys().clone());
    Ok(Opened { spa, dsl })
}

/// Where to search for devices: the folders of `-p`, the cache file's paths, or the usual folders.
fn search_paths(cx: &Ctx<'_>, name: &str) -> Vec<PathBuf> {
    if !cx.opts.paths.is_empty() {
        return cx.opts.paths.iter().map(PathBuf::from).collect();
    }
    let cached = if cx.opts.has('e') { None } else { cached_paths(&config::cachefile_path(cx), name) };
    cached.unwrap_or_else(|| spa::discovery::DEFAULT_SEARCH_PATHS.iter().map(PathBuf::from).collect())
}

/// The paths of a pool's devices in the cache file.
fn cached_paths(file: &str, name: &str) -> Option<Vec<PathBuf>> {
    let pools = Nvlist::decode(&std::fs::read(file).ok()?).ok()?;
    let config = ondisk::PoolConfig::from_nvlist(pools.list(name)?).ok()?;
    let tree = config.vdev_tree?;
    let leaves = tree.leaves().filter_map(|l| l.path.as_deref());
    Some(leaves.map(|p| PathBuf::from(lossy(p).into_owned())).collect())
}

fn import(cx: &mut Ctx<'_>, candidate: &Candidate, target: &str) -> Run<Spa> {
    let rewind = match (cx.opts.has('X'), cx.opts.has('F')) {
        (true, _) => Rewind::Extreme,
        (false, true) => Rewind::Recover,
        (false, false) => Rewind::No,
    };
    let options = Options {
        claim: Claim::Nothing,
        force: true,
        missing_log: true,
        skip_mmp: true,
        checkpoint: cx.opts.has('k'),
        rewind,
        max_txg: cx.opts.txg,
        cache: cx.cache_bytes.into(),
        ..Options::default()
    };
    let failure = match spa::import(candidate, &options, &Host::of_system(), &SystemClock) {
        Ok(spa) => return Ok(spa),
        Err(e) => e,
    };
    let errno = errno(&failure.error);
    cx.report(&anyhow::Error::new(failure.error));
    Err(cx.fatal(format!("can't open '{target}': {errno}")))
}

/// The text of the error number that OpenZFS returns.
fn errno(e: &SpaError) -> &'static str {
    match e {
        SpaError::InUse(_) => "Device or resource busy",
        SpaError::Config(_) => "Invalid argument",
        SpaError::CantOpen { .. }
        | SpaError::NoUberblock
        | SpaError::NoLabel
        | SpaError::MissingLogs { .. }
        | SpaError::BadGuidSum { .. } => "No such device or address",
        SpaError::Active { .. } | SpaError::NoHostid | SpaError::ForceRequired { .. } => "Remote I/O error",
        SpaError::Interrupted => "Interrupted system call",
        SpaError::Version { .. } | SpaError::UnsupportedFeatures { .. } => "Operation not supported",
        SpaError::Mos { .. }
        | SpaError::Corrupt { .. }
        | SpaError::TrustedConfig(_)
        | SpaError::Mapping { .. }
        | SpaError::Damaged { .. } => "Input/output error",
        SpaError::NoCheckpoint => "No such file or directory",
    }
}
