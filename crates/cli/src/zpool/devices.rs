//! Parses the devices for new vdevs, and checks them before a request to the daemon
//! (`make_root_vdev`).

use std::path::Path;

use api::{Layout, Pool, PoolQuery, Vdev};
use device::{Device, FileDevice, Mode};
use ondisk::config::PoolState;
use spa::Labels;

use super::foreign;
use super::replication;
use super::settings;
use super::spec::{self, ASHIFTS};
use crate::cx::{Cx, Stop};
use crate::vdev_name::{NameFlags, vdev_name};

/// The faults that are tolerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lenience {
    /// Devices with the label of a pool that is not imported, or with other contents.
    pub in_use: bool,
    /// Vdevs of different redundancy.
    pub replication: bool,
}

/// Parses and checks the words for vdevs.
///
/// `pool` is the pool to which the devices will belong, if it exists.
///
/// # Errors
/// * [`Stop::Fail`]: the words are wrong, a device is in use, the redundancies differ, or the pools
///   can't be listed. The fault is reported.
pub fn read(
    cx: &mut Cx,
    pool: Option<&Pool>,
    words: &[String],
    ashift: Option<&str>,
    let_pass: Lenience,
) -> Result<Layout, Stop> {
    check_ashift(cx, ashift)?;
    let layout = spec::read(cx, words)?;
    let mut faults = Vec::new();
    let imported = imported(cx)?;
    for (leaf, spare) in leaves(&layout) {
        faults.extend(leaf.path.as_deref().and_then(|path| in_use(path, &imported, let_pass.in_use, spare)));
    }
    if faults.is_empty() && !let_pass.replication {
        faults = replication::check(pool.map(|p| p.root.children.as_slice()), &layout.tops, &size);
    }
    if faults.is_empty() && pool.is_none() && !layout.tops.iter().any(normal) {
        faults.push("at least one general top-level vdev must be specified".to_owned());
    }
    if faults.is_empty() {
        return Ok(layout);
    }
    refuse(cx, let_pass, faults);
    Err(Stop::Fail(1))
}

/// Reports the faults of a command line.
fn refuse(cx: &mut Cx, let_pass: Lenience, faults: Vec<String>) {
    cx.err.put("invalid vdev specification\n");
    cx.err.put(if let_pass.in_use {
        "the following errors must be manually repaired:\n"
    } else {
        "use '-f' to override the following errors:\n"
    });
    for fault in faults {
        writeln!(cx.err, "{fault}");
    }
}

/// Parses and checks the word for one device that will join or replace another of a pool.
///
/// # Errors
/// * [`Stop::Fail`]: the word is wrong, the device is in use, or the pools can't be listed. The
///   fault is reported.
pub fn one(
    cx: &mut Cx,
    pool: &Pool,
    word: &str,
    ashift: Option<&str>,
    let_pass: Lenience,
    replace: bool,
) -> Result<Vdev, Stop> {
    // The word may be a short name, as the pool shows its devices.
    let layout = spec::read(cx, &[word.to_owned()])?;
    let [new] = &layout.tops[..] else {
        cx.err.put("new device must be a single disk\n");
        return Err(Stop::Fail(1));
    };
    check_ashift(cx, ashift)?;
    // The pool's own hot spares may replace a device, whatever their contents (`is_spare`).
    let own = replace && pool.spares.iter().any(|spare| spare.path == new.path);
    let imported = imported(cx)?;
    let path = new.path.as_deref().filter(|_| !own);
    if let Some(fault) = path.and_then(|path| in_use(path, &imported, let_pass.in_use, false)) {
        refuse(cx, let_pass, vec![fault]);
        return Err(Stop::Fail(1));
    }
    Ok(new.clone())
}

fn check_ashift(cx: &mut Cx, ashift: Option<&str>) -> Result<(), Stop> {
    let Some(text) = ashift else { return Ok(()) };
    match api::settings::pool::nice_number(text) {
        Err(_) => cx.err.put("ashift must be a number.\n"),
        Ok(n) if n != 0 && !ASHIFTS.contains(&n) => writeln!(
            cx.err,
            "invalid 'ashift={n}' property: only values between {} and {} are allowed.",
            ASHIFTS.start(),
            ASHIFTS.end()
        ),
        Ok(_) => return Ok(()),
    }
    Err(Stop::Fail(1))
}

/// Whether a vdev belongs to the normal class.
fn normal(vdev: &Vdev) -> bool {
    !vdev.is_log && vdev.alloc_bias.is_none()
}

/// All devices, and whether each is a hot spare.
fn leaves(layout: &Layout) -> Vec<(&Vdev, bool)> {
    fn walk<'a>(vdev: &'a Vdev, into: &mut Vec<(&'a Vdev, bool)>) {
        if vdev.children.is_empty() {
            into.push((vdev, false));
        }
        vdev.children.iter().for_each(|child| walk(child, into));
    }
    let mut all = Vec::new();
    layout.tops.iter().for_each(|top| walk(top, &mut all));
    all.extend(layout.spares.iter().map(|spare| (spare, true)));
    all.extend(layout.cache.iter().map(|cache| (cache, false)));
    all
}

/// The imported pools.
fn imported(cx: &mut Cx) -> Result<Vec<Pool>, Stop> {
    let service = cx.service()?;
    let names = service.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    Ok(names.iter().filter_map(|name| service.pool(name, &PoolQuery::default()).ok()).collect())
}

/// A message if a device is in use (`zpool_in_use`).
fn in_use(path: &str, imported: &[Pool], let_pass: bool, spare: bool) -> Option<String> {
    let device = FileDevice::open(Path::new(path), Mode::Peek).ok()?;
    let labels = Labels::read(&device);
    let Some(label) = labels.newest() else {
        // Only block devices are checked for other contents, as in OpenZFS (`check_file`).
        let kind = foreign::contents(&device).filter(|_| !let_pass && device.is_block())?;
        return Some(format!("{path} contains a filesystem of type '{kind}'"));
    };
    let name = label.name.clone().unwrap_or_default();
    let here = label.pool_guid.and_then(|guid| imported.iter().find(|pool| pool.guid == guid.0));
    // The label of a spare or cache device does not name its pool. The device is free if no
    // imported pool has it.
    let has = |list: &[Vdev]| label.guid.is_some_and(|guid| list.iter().any(|v| v.guid == guid.0));
    match (here, label.state) {
        (_, PoolState::Destroyed) => None,
        (_, PoolState::Spare) => {
            let pool = imported.iter().find(|pool| has(&pool.spares)).filter(|_| !spare)?;
            Some(format!("{path} is reserved as a hot spare for pool {}", pool.name))
        }
        (_, PoolState::L2cache) => {
            let pool = imported.iter().find(|pool| has(&pool.l2cache)).filter(|_| !let_pass)?;
            Some(format!("{path} is part of unknown pool '{}'", pool.name))
        }
        (Some(pool), PoolState::Active) => Some(format!("{path} is part of active pool '{}'", pool.name)),
        (None, PoolState::Active) if !let_pass => {
            Some(format!("{path} is part of potentially active pool '{name}'"))
        }
        (_, PoolState::Exported) if !let_pass => Some(format!("{path} is part of exported pool '{name}'")),
        _ => None,
    }
}

/// The size of a device in bytes, if it can be opened.
fn size(path: &str) -> Option<u64> {
    FileDevice::open(Path::new(path), Mode::Peek).ok().map(|device| device.size())
}

/// Shows the vdevs of one class below a title (`print_vdev_tree`).
pub fn show(cx: &mut Cx, title: Option<&str>, tops: &[Vdev], class: &str, flags: NameFlags) {
    let chosen: Vec<&Vdev> = tops
        .iter()
        .filter(|v| !v.is_hole)
        .filter(|v| {
            let of = if v.is_log { "log" } else { v.alloc_bias.as_deref().unwrap_or("") };
            of == class
        })
        .collect();
    if let (Some(title), false) = (title, chosen.is_empty()) {
        writeln!(cx.out, "\t{title}");
    }
    for vdev in chosen {
        branch(cx, vdev, 2, flags);
    }
}

fn branch(cx: &mut Cx, vdev: &Vdev, indent: usize, flags: NameFlags) {
    let name = vdev_name(None, vdev, flags);
    writeln!(cx.out, "\t{:indent$}{name}", "");
    for child in vdev.children.iter().filter(|v| !v.is_hole) {
        branch(cx, child, indent + 2, flags);
    }
}

/// Shows devices outside the tree, below a title.
pub fn show_aside(cx: &mut Cx, title: &str, devices: &[Vdev], flags: NameFlags) {
    if !devices.is_empty() {
        writeln!(cx.out, "\t{title}");
    }
    for device in devices {
        let name = vdev_name(None, device, flags);
        writeln!(cx.out, "\t  {name}");
    }
}

/// The property `ashift` of a command line.
pub fn ashift(props: &api::Settings) -> Option<&str> {
    settings::get(props, "ashift")
}
