//! Finds and opens the pool, dataset or objects that the command line names.

use super::ranges;
use super::{Ctx, Run, Stop, block, config, lookup, objset, whole};
use dsl::{Dataset, Dsl};
use ondisk::{Nvlist, ObjNum};
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

/// Opens `target`, and shows what the options choose.
///
/// `target` names a pool, a dataset, a bookmark, or a dataset by number.
///
/// # Errors
/// * [`Stop::Exit`]: an operand or tunable is wrong, or the pool, dataset or bookmark can't be
///   opened.
/// * [`Stop::Failed`]: an object can't be read.
pub fn run(cx: &mut Ctx<'_>, target: &str) -> Run<i32> {
    let is_pool = !target.contains(['/', '@', '#']);
    let target = target.strip_suffix('/').unwrap_or(target);
    let end = target.find(['/', '@', '#']).unwrap_or(target.len());
    let (pool_name, rest) = target.split_at(end);
    let opened = open(cx, pool_name, target)?;
    let operands: Vec<String> = cx.opts.operands[1..].to_vec();
    if cx.opts.has('R') {
        for place in &operands {
            cx.part(|cx| block::read(cx, &opened, place))?;
        }
        return Ok(0);
    }
    let (mut objects, mut metaslabs) = (Vec::new(), Vec::new());
    if cx.opts.has('d') {
        for arg in &operands {
            let parsed = ranges::parse(arg);
            objects.push(parsed.map_err(|why| cx.fatal(format!("Bad object or range: '{arg}': {why}\n")))?);
        }
    } else if cx.opts.has('m') {
        for arg in &operands {
            let bad = format!("bad number {arg}: Invalid argument");
            metaslabs.push(super::opts::number(arg).ok_or_else(|| cx.fatal(bad))?);
        }
    }
    let by_path = cx.opts.has('O') || cx.opts.has('r');
    if is_pool && !by_path {
        if !objects.is_empty() && !cx.opts.has('m') {
            objset::mos(cx, &opened, &objects, None)?;
            return Ok(0);
        }
        return whole::run(cx, &opened, &metaslabs);
    }
    if let Some((head, name)) = target.split_once('#') {
        return bookmark(cx, &opened, target, &rest[..head.len() - end], name);
    }
    let Some(ds) = dataset(cx, &opened, target, rest)? else {
        // Object set 0 is the pool itself.
        return whole::run(cx, &opened, &metaslabs);
    };
    load_key(cx, &opened, &ds)?;
    match &operands[..] {
        [path] if cx.opts.has('O') => lookup::show(cx, &opened, &ds, path),
        [path, to] if cx.opts.has('r') => lookup::copy(cx, &opened, &ds, path, to),
        _ => {
            objset::dataset(cx, &opened, &ds, &objects, None)?;
            Ok(0)
        }
    }
}

/// Shows the bookmark `name` of the dataset `rest` below the pool.
fn bookmark(cx: &mut Ctx<'_>, opened: &Opened, target: &str, rest: &str, name: &str) -> Run<i32> {
    let ds = match opened.dsl.dataset(&format!("{}{rest}", opened.dsl.pool_name())) {
        Ok(ds) => ds,
        Err(dsl::Error::NoSuchDataset { .. }) => {
            return Err(cx.fatal(format!("can't dump '{target}': No such file or directory")));
        }
        Err(e) => return Err(e.into()),
    };
    let Some(bookmark) = ds.bookmark(name)? else {
        return Err(cx.fatal(format!("can't dump '{target}': No such process")));
    };
    super::bplists::bookmark(cx, &ds, &bookmark, true, cx.opts.count('v') > 1)?;
    Ok(0)
}

/// Sets the tunables of `-o`.
pub fn set_tunables(cx: &mut Ctx<'_>) -> Run {
    for (name, value) in cx.opts.tunables.clone() {
        if name == CACHE_TUNABLE {
            cx.cache_bytes = value.max(CACHE_LEAST);
        } else if let Err(e) = poolhouse::tunables::set(&name, value) {
            writeln!(cx.err, "{name}: {e}");
            cx.err.put(super::opts::USAGE);
            return Err(Stop::Exit(1));
        }
    }
    Ok(())
}

/// Opens the dataset that is named; `None` for object set 0.
///
/// A number after the pool's name is an object set, unless a dataset has that name.
fn dataset(cx: &mut Ctx<'_>, opened: &Opened, target: &str, rest: &str) -> Run<Option<Dataset>> {
    let (_, tail) = target.split_at(target.len() - rest.len());
    let name = format!("{}{tail}", opened.dsl.pool_name());
    let number = rest.strip_prefix('/').and_then(|n| {
        let digits = n.strip_prefix("0x").unwrap_or(n);
        let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        if all { super::opts::number(n) } else { None }
    });
    if !cx.opts.has('N') {
        match opened.dsl.dataset(&name) {
            Ok(ds) => return Ok(Some(ds)),
            Err(dsl::Error::NoSuchDataset { .. }) if number.is_some() => {}
            Err(dsl::Error::NoSuchDataset { .. }) => {
                writeln!(cx.err, "failed to hold dataset '{name}': No such file or directory");
                return Err(cx.fatal(format!("can't open '{target}': No such file or directory")));
            }
            Err(e) => {
                cx.report(&anyhow::Error::new(e));
                return Err(cx.fatal(format!("can't open '{target}': Invalid argument")));
            }
        }
    }
    match number {
        Some(0) => Ok(None),
        Some(n) => match opened.dsl.by_object(ObjNum(n)) {
            Ok(ds) => Ok(Some(ds)),
            Err(e) => {
                cx.report(&anyhow::Error::new(e));
                Err(cx.fatal(format!("can't open '{target}': No such file or directory")))
            }
        },
        None => {
            writeln!(cx.out, "Supply a numeric objset ID with -N");
            Err(Stop::Exit(1))
        }
    }
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

fn open(cx: &mut Ctx<'_>, name: &str, target: &str) -> Run<Opened> {
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
    Some(leaves.map(|p| PathBuf::from(super::text::lossy(p).into_owned())).collect())
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
