//! `zfs create`.

use api::settings::pool::nice_number;
use api::{
    Dataset, DatasetChange, DatasetKind as K, DatasetQuery, PoolQuery, PropSelect, Reason, Refusal, Settings,
};

use super::newkey::new_key;
use super::open::{HEADS, ask, exists, parse_prop, report};
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Opt};

/// The parsed command line.
#[derive(Default)]
struct Create {
    props: Settings,
    volume: bool,
    block_size_given: bool,
    sparse: bool,
    parents: bool,
    unmounted: bool,
    dry_run: bool,
    verbose: bool,
    parseable: bool,
}

/// Runs `zfs create` (`zfs_do_create`).
///
/// ```text
/// zfs create [-Pnpuv] [-o property=value] ... <filesystem>
/// zfs create [-Pnpsv] [-b blocksize] ... -V <size> <volume>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut c, operands) = read(cx, args)?;
    if (c.block_size_given || c.sparse) && !c.volume {
        return Err(Stop::usage("'-s' and '-b' can only be used when creating a volume\n"));
    }
    if c.unmounted && c.volume {
        return Err(Stop::usage("'-u' can only be used when creating a filesystem\n"));
    }
    let kind = if c.volume { K::Volume } else { K::Filesystem };
    let name = match &operands[..] {
        [] => {
            let what = if c.volume { "volume" } else { "filesystem" };
            return Err(Stop::usage(format!("missing {what} argument\n")));
        }
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if c.dry_run || c.volume {
        let pool = name.split('/').next().unwrap_or(name);
        let service = cx.service()?;
        if let Err(e) = service.pool(pool, &PoolQuery::default()) {
            return Err(cx.fail(&format!("cannot open '{pool}'"), &e));
        }
    }
    if c.parents && names::dataset_name_fault(name, false, false).is_none() {
        if exists(cx, name, &[kind])? {
            return Ok(0);
        }
        if c.verbose {
            match (c.parseable, c.dry_run) {
                (true, _) => writeln!(cx.out, "create_ancestors\t{name}"),
                (false, true) => writeln!(cx.out, "would create ancestors of {name}"),
                (false, false) => writeln!(cx.out, "create ancestors of {name}"),
            }
        }
    }
    let what = format!("cannot create '{name}'");
    if c.dry_run || c.verbose {
        check_name(cx, &what, name)?;
        let drafted = draft(cx, &c, name, kind, &what)?;
        if c.verbose {
            show(cx, &c, name, &drafted);
        }
        if c.dry_run {
            return Ok(0);
        }
    }
    check_name(cx, &what, name)?;
    let above_it = parent(cx, &what, name, c.parents)?;
    let key = new_key(cx, name, &mut c.props, encryption(&above_it)).map_err(|fault| {
        writeln!(cx.err, "{what}: {fault}");
        Stop::Fail(1)
    })?;
    let (sparse, parents, mount) = (c.sparse, c.parents, !c.unmounted);
    let change =
        DatasetChange::Create { name: name.clone(), kind, props: c.props, sparse, parents, mount, key };
    let changed = ask(cx, &change, &what, &|e| above(name, &e.reason))?;
    Ok(report(cx, changed, "created"))
}

fn read(cx: &mut Cx, args: &[String]) -> Result<(Create, Vec<String>), Stop> {
    let mut c = Create::default();
    let mut g = Getopt::new(args, ":PV:b:nso:puv", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('V'), arg) => {
                c.volume = true;
                size(cx, &mut c.props, "volsize", "volume size", &arg)?;
            }
            Found::Is(Opt::Short('b'), arg) => {
                c.block_size_given = true;
                size(cx, &mut c.props, "volblocksize", "volume block size", &arg)?;
            }
            Found::Is(Opt::Short('P'), _) => (c.verbose, c.parseable) = (true, true),
            Found::Is(Opt::Short('p'), _) => c.parents = true,
            Found::Is(Opt::Short('n'), _) => c.dry_run = true,
            Found::Is(Opt::Short('o'), arg) => parse_prop(cx, &mut c.props, &arg)?,
            Found::Is(Opt::Short('s'), _) => c.sparse = true,
            Found::Is(Opt::Short('u'), _) => c.unmounted = true,
            Found::Is(..) => c.verbose = true,
            Found::Missing(_) => return Err(Stop::usage("missing size argument\n")),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    Ok((c, g.operands()))
}

/// Reads a size, and adds it to the properties.
fn size(cx: &mut Cx, props: &mut Settings, name: &str, what: &str, arg: &str) -> Result<(), Stop> {
    match nice_number(arg) {
        Ok(n) => {
            props.retain(|(other, _)| other != name);
            props.push((name.to_owned(), n.to_string()));
            Ok(())
        }
        Err(fault) => {
            writeln!(cx.err, "bad {what} '{arg}': {fault}");
            Err(Stop::Fail(1))
        }
    }
}

/// The properties that the dataset would get: the requested ones, checked, and a volume's
/// reservation.
fn draft(cx: &mut Cx, c: &Create, name: &str, kind: K, what: &str) -> Result<Settings, Stop> {
    let change = DatasetChange::Create {
        name: name.to_owned(),
        kind,
        props: c.props.clone(),
        sparse: c.sparse,
        parents: c.parents,
        mount: false,
        key: None,
    };
    let drafted = cx.service()?.draft(&change);
    drafted.map_err(|e| cx.fail(what, &e))
}

fn show(cx: &mut Cx, c: &Create, name: &str, props: &Settings) {
    match (c.parseable, c.dry_run) {
        (true, _) => writeln!(cx.out, "create\t{name}"),
        (false, true) => writeln!(cx.out, "would create {name}"),
        (false, false) => writeln!(cx.out, "create {name}"),
    }
    for (property, value) in props {
        if c.parseable {
            writeln!(cx.out, "property\t{property}\t{value}");
        } else {
            writeln!(cx.out, "\t{property}={value}");
        }
    }
}

/// Refuses a name that is not valid for a new dataset.
///
/// # Errors
/// * [`Stop::Fail`]: the name is not valid or names a pool. That is reported.
pub fn check_name(cx: &mut Cx, what: &str, name: &str) -> Result<(), Stop> {
    let fault = names::new_name_fault(name, false)
        .or_else(|| (!name.contains('/')).then(|| "missing dataset name".to_owned()));
    match fault {
        None => Ok(()),
        Some(fault) => {
            writeln!(cx.err, "{what}: {fault}");
            Err(Stop::Fail(1))
        }
    }
}

/// The parent of a new dataset (`check_parents`).
///
/// With `nearest`, missing parents are to be created too, and this is the nearest existing
/// ancestor.
///
/// # Errors
/// * [`Stop::Fail`]: the pool or the parent does not exist, or the service refused a request. That
///   is reported.
pub fn parent(cx: &mut Cx, what: &str, name: &str, nearest: bool) -> Result<Dataset, Stop> {
    let service = cx.service()?;
    let pool = name.split('/').next().unwrap_or(name);
    if !service.pool_names().map_err(|e| cx.fail(what, &e))?.iter().any(|known| known == pool) {
        writeln!(cx.err, "{what}: no such pool '{pool}'");
        return Err(Stop::Fail(1));
    }
    let mut at = name;
    while let Some((above, _)) = at.rsplit_once('/') {
        let query = DatasetQuery {
            root: Some(above.to_owned()),
            depth: Some(0),
            kinds: HEADS.to_vec(),
            props: PropSelect::Named(vec!["encryption".to_owned()]),
            ..DatasetQuery::default()
        };
        match service.datasets(&query) {
            Ok(list) => match list.datasets.into_iter().next() {
                Some(dataset) => return Ok(dataset),
                None if nearest => {}
                None => break,
            },
            Err(e) if e.reason == Reason::NoSuchDataset => {
                if !nearest {
                    break;
                }
            }
            Err(e) => return Err(cx.fail(what, &e)),
        }
        at = above;
    }
    writeln!(cx.err, "{what}: parent does not exist");
    Err(Stop::Fail(1))
}

/// Whether a dataset is encrypted.
fn encryption(dataset: &Dataset) -> bool {
    dataset.prop("encryption").is_some_and(|p| !matches!(p.value(true), "off" | "-"))
}

/// The words for reasons about the parent of a new dataset. `None` for other reasons.
pub fn above(name: &str, reason: &Reason) -> Option<String> {
    let pool = name.split('/').next().unwrap_or(name);
    match reason {
        Reason::NoSuchPool => Some(format!("no such pool '{pool}'")),
        Reason::NoSuchDataset | Reason::Refused { why: Refusal::NoParent } => {
            Some("parent does not exist".into())
        }
        _ => None,
    }
}
