//! The creation of pools, and operations on them.

pub(crate) mod cachefile;
pub(crate) mod import;
pub(crate) mod inject;
pub(crate) mod scan;
pub(crate) mod split;

use dsl::ops::props::{SetAs, SetProps, needed_feature, needed_version};
use dsl::{Prop, PropError, PropList, Setting};
use ondisk::Ashift;
use ondisk::feature::Feature;
use ondisk::version::SPA_VERSION_FEATURES;
use poolhouse::Pool;
use spa::Host;
use spa::create::{self, Beginning, NewPool, claim_file, create};
use spa::engine::{PoolProp, PoolWriter, TaskError};
use spa::import::Resources;
use zpl::NewFileSystem;

use crate::commands::dataset::{quotas, tasks};
use crate::commands::vdev::layout::{add_aux, vdevs};
use crate::replies::{error_of, of_create, of_library, of_shape};
use crate::view::PoolFacts;
use api::settings::pool::{self, When};
use api::{Caller, CreatePool, Error, Reason, Refusal};

/// Creates a pool (`spa_create`).
///
/// # Errors
/// * [`Reason::BadValue`]: a property is not valid, or needs a feature that is not enabled.
/// * [`Reason::NotSupported`]: this release can't set a property of the pool at its creation.
/// * [`Reason::BadKey`]: the key is malformed.
/// * [`Reason::InvalidConfig`]: the layout is not valid.
/// * [`Reason::DeviceOpen`], [`Reason::DeviceTwice`], [`Reason::DeviceTooSmall`],
///   [`Reason::DeviceOfPool`]: a device can't be used.
/// * [`Reason::BadAshift`]: the sector size does not fit the devices.
/// * [`Reason::Refused`]: a quota or reservation does not fit the pool's space.
/// * [`Reason::Io`], [`Reason::Suspended`]: a device can't be written.
pub fn create_pool(
    caller: &Caller,
    request: &CreatePool,
    host: &Host,
    cache: arc::CacheMemory,
) -> Result<(Pool, PoolFacts), Error> {
    let mut request = request.clone();
    let name = request.name.clone();
    let limits = quotas::split_list(&name, &mut request.root_props, true)?;
    let (name, request) = (name.as_str(), &request);
    let NewProps { features, version, ashift, kept, facts } = new_props(request, host)?;
    let new =
        NewPool { name: name.to_owned(), vdevs: vdevs(name, &request.layout)?, ashift, force: request.force };
    let props = root_props(name, request)?;
    check_needs(name, &props, version, &features)?;
    let crypt = crate::commands::dataset::keys::new_crypt(name, request.key.as_ref(), &request.root_props)?;
    // The root dataset has no parent whose key it could inherit. This check comes before any device
    // is touched.
    if crypt.as_ref().is_some_and(|crypt| crypt.suite.is_some() && crypt.key.is_none()) {
        let what = dsl::KeyRefusal::NoFormat.to_string();
        return Err(Error::new(name, Reason::BadValue { what }));
    }
    let zpl = tasks::version_of(name, &props, version)?;
    // Quotas and reservations are checked against the new pool's space.
    let (space, props): (PropList, PropList) = props.into_iter().partition(limits_space);
    let fixed = |prop: dsl::Prop| Ok(tasks::number_of(&props, prop).unwrap_or(prop.desc().default));
    let contents = NewFileSystem { version: zpl, ..tasks::file_system(caller, fixed)? };
    let begin = Beginning {
        features: &features,
        version,
        contents: &contents,
        props: &props,
        crypt: crypt.as_ref(),
        temporary_name: request.temporary_name.as_deref(),
    };
    let Resources { workers, world } = Resources::of_system(name);
    let setting =
        create::Setting { host, world, claimer: &claim_file, workers, cache, altroot: facts.altroot.clone() };
    let spa = create(&new, &begin, &setting).map_err(|e| Error::new(name, of_create(&e)))?;
    if let Some(live) = spa.writer() {
        furnish(live, name, request, kept, space)?;
    }
    let pool = Pool::with_spa(spa, None).map_err(|e| Error::new(name, of_library(&e)))?;
    if !limits.is_empty() {
        quotas::set(&pool, name, None, &limits)?;
    }
    Ok((pool, facts))
}

/// The properties of a new pool.
struct NewProps {
    features: Vec<&'static Feature>,
    version: u64,
    ashift: Option<Ashift>,
    /// Those that the pool stores.
    kept: Vec<PoolProp>,
    facts: PoolFacts,
}

/// Sorts the properties that a new pool is requested with.
///
/// # Errors
/// * [`Reason::BadValue`]: a property is unknown or can't have this value, in OpenZFS's words.
/// * [`Reason::NotSupported`]: this release can't set a property of the pool at its creation.
fn new_props(request: &CreatePool, host: &Host) -> Result<NewProps, Error> {
    let name = request.name.as_str();
    let mut new = NewProps {
        features: Vec::new(),
        version: SPA_VERSION_FEATURES,
        ashift: None,
        kept: Vec::new(),
        facts: PoolFacts::default(),
    };
    for (property, value) in &request.props {
        let checked = pool::check(property, value, When::Create, 1, host.hostid);
        match checked.map_err(|what| Error::new(name, Reason::BadValue { what }))? {
            pool::Setting::Feature(feature) => new.features.push(feature),
            pool::Setting::NoFeature(_) => {}
            pool::Setting::Number(of, number) => {
                if of == "ashift" && number != 0 {
                    new.ashift = Some(Ashift(u8::try_from(number).expect("checked to be 16 at most")));
                }
                new.kept.push(PoolProp::Number(of.to_owned(), number));
            }
            pool::Setting::Text(of, text) => new.kept.push(PoolProp::Text(of, text)),
            pool::Setting::AltRoot(path) => {
                new.facts.altroot = Some(path.trim_end_matches('/').to_owned()).filter(|p| !p.is_empty());
            }
            pool::Setting::CacheFile(file) => new.facts.cachefile = file,
            pool::Setting::Version(number) => new.version = number,
            // The request has a field for it.
            pool::Setting::TemporaryName(_) => {}
            pool::Setting::ReadOnly(_) | pool::Setting::BootFs(_) => {
                return Err(absent(name, &format!("setting the property '{property}' of a pool")));
            }
        }
    }
    if !new.features.is_empty() {
        // Requested features need a version that has them.
        new.version = SPA_VERSION_FEATURES;
    }
    Ok(new)
}

/// Checks that a new pool has what the properties of its root file system need.
///
/// # Errors
/// * [`Reason::BadValue`]: a property needs a newer version, or a feature that is not enabled.
fn check_needs(name: &str, props: &[Setting], version: u64, features: &[&Feature]) -> Result<(), Error> {
    let too_new = |set: &&Setting| needed_version(set).is_some_and(|needed| version < needed);
    let lacks =
        |set: &&Setting| needed_feature(set).is_some_and(|f| features.iter().all(|has| has.name != f));
    match props.iter().find(too_new).or_else(|| props.iter().find(lacks)) {
        Some(set) => {
            let (property, why) = (set.name.clone(), PropError::Feature);
            Err(error_of(name, &dsl::Error::BadProperty { name: name.to_owned(), property, why }))
        }
        None => Ok(()),
    }
}

/// Sets what a new pool gets after its creation. If that fails, the pool is destroyed.
fn furnish(
    live: &PoolWriter,
    name: &str,
    request: &CreatePool,
    props: Vec<PoolProp>,
    space: PropList,
) -> Result<(), Error> {
    let set = if props.is_empty() { Ok(()) } else { live.set(props) };
    let done = set
        .map_err(|e| Error::new(name, of_shape(&e)))
        .and_then(|()| add_aux(live, name, &request.layout, 0, request.force))
        .and_then(|()| limit_space(live, name, space));
    if done.is_err() {
        // This frees its devices.
        let _ = live.destroy();
    }
    done
}

/// Whether a property is a quota or reservation.
fn limits_space(set: &Setting) -> bool {
    const LIMITS: [Prop; 4] = [Prop::Quota, Prop::Refquota, Prop::Reservation, Prop::Refreservation];
    LIMITS.iter().any(|limit| limit.name() == set.name)
}

/// Sets quotas and reservations of a new pool's root file system.
fn limit_space(live: &PoolWriter, name: &str, props: PropList) -> Result<(), Error> {
    if props.is_empty() {
        return Ok(());
    }
    let root = live.dsl().pool_name().to_owned();
    live.run(Box::new(SetProps { name: root, props, source: SetAs::Local })).map_err(|e| match e {
        TaskError::Stopped(_) => Error::new(name, Reason::Suspended),
        TaskError::Refused(dsl::Error::BadProperty {
            why: PropError::NoSpace | PropError::BelowUsed,
            ..
        }) => Error::new(name, Reason::Refused { why: Refusal::NoSpace }),
        TaskError::Refused(e) => error_of(name, &e),
    })
}

/// Writes a command line of the caller to the pool's history, with the next transaction group
/// (`spa_history_log`).
///
/// It becomes one line: control characters are written as octal numbers.
///
/// # Errors
/// * [`Reason::Suspended`]: the pool accepts no writes.
pub fn log(caller: &Caller, live: &PoolWriter, command: &str) -> Result<(), Reason> {
    live.log_command(&one_line(command), caller.peer().uid).map_err(|_| Reason::Suspended)
}

/// A text with its control characters as octal numbers.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let mut buffer = [0; 4];
            c.encode_utf8(&mut buffer).bytes().for_each(|byte| line += &format!("\\{byte:03o}"));
        } else {
            line.push(c);
        }
    }
    line
}

/// Destroys or exports a pool (`spa_destroy`, `spa_export`).
///
/// # Errors
/// * [`Reason::Suspended`]: the pool accepts no writes.
pub fn leave(live: &PoolWriter, destroy: bool) -> Result<(), Reason> {
    let left = if destroy { live.destroy() } else { live.export() };
    left.map_err(|_| Reason::Suspended)
}

/// The error for something that this release does not support.
pub(crate) fn absent(about: &str, what: &str) -> Error {
    Error::new(about, Reason::NotSupported { what: what.to_owned() })
}

/// The properties of a new pool's root file system that need nothing of the pool.
fn root_props(name: &str, request: &CreatePool) -> Result<PropList, Error> {
    let large = request.props.iter().any(|(n, v)| n == "feature@large_blocks" && v == "enabled");
    let max_block = if large { ondisk::SPA_MAXBLOCKSIZE } else { ondisk::SPA_OLD_MAXBLOCKSIZE };
    let context = dsl::prop::parse::Context { kind: dsl::Kind::Filesystem, creating: true, max_block };
    tasks::settings_in(name, context, &request.root_props)
}
