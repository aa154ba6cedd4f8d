//! `zpool labelclear`.

use std::path::Path;

use api::{PoolQuery, Vdev, VdevState};
use device::{Device, FileDevice, Mode};
use ondisk::Txg;
use ondisk::config::PoolState;
use ondisk::label::{LABEL_START_SIZE, LABELS};
use spa::Labels;
use vdev::label::LabelWriter;

use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt};
use console::words;

/// `zpool labelclear [-f] <vdev>` (`zpool_do_labelclear`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut force = false;
    let mut g = Getopt::new(args, "f", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => force = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let word = match &operands[..] {
        [] => return Err(Stop::usage("missing vdev name\n")),
        [one] => one,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    let Some(path) = find(cx, word) else { return Ok(1) };
    let Ok(device) = FileDevice::open(Path::new(&path), Mode::Peek) else {
        writeln!(cx.err, "failed to open {path}: {}", words::errno(rustix::io::Errno::BUSY.raw_os_error()));
        return Ok(1);
    };
    let labels = Labels::read(&device);
    // A detached device, or one whose addition failed, keeps labels with txg 0. They belong to no
    // pool.
    let newest = labels.newest();
    let Some(label) = newest.or_else(|| labels.best(Txg(0))) else {
        writeln!(cx.err, "failed to read label from {path}");
        return Ok(1);
    };
    let pool = label.name.clone().unwrap_or_default();
    // The label of a hot spare or cache device does not name its pool.
    let aside = matches!(label.state, PoolState::Spare | PoolState::L2cache);
    let guid = label.pool_guid.map(|guid| guid.0).filter(|_| !aside);
    let own = label.guid.map(|guid| guid.0).filter(|_| aside);
    let asked = if aside || guid.is_some() { is_active(cx, (guid, own), &path, force) } else { Some(false) };
    let active = asked == Some(true);
    let refusal = match label.state {
        _ if active => Some(format!("{path} is a member (ACTIVE) of pool \"{pool}\"")),
        PoolState::Spare | PoolState::L2cache if asked.is_none() && !force => Some(format!(
            "use '-f' to override the following error:\n{path} may be a spare or cache device of a pool that does not answer"
        )),
        PoolState::Destroyed | PoolState::Spare | PoolState::L2cache => None,
        _ if force || newest.is_none() => None,
        PoolState::Exported => Some(format!(
            "use '-f' to override the following error:\n{path} is a member of exported pool \"{pool}\""
        )),
        _ => Some(format!(
            "use '-f' to override the following error:\n{path} is a member of potentially active pool \"{pool}\""
        )),
    };
    if let Some(refusal) = refusal {
        let hint = if active && force { ". Offline the disk first to clear its label." } else { "" };
        writeln!(cx.err, "{refusal}{hint}");
        return Ok(1);
    }
    drop(device);
    let cleared =
        FileDevice::open(Path::new(&path), Mode::Write).map_err(drop).and_then(|device| wipe(&device));
    if cleared.is_err() {
        writeln!(cx.err, "failed to clear label for {path}");
        return Ok(1);
    }
    Ok(0)
}

/// Size of the header of a cache device, after its front labels, in bytes (`l2arc_dev_hdr_phys_t`).
const CACHE_HEADER: usize = 512;

/// Overwrites the labels of a device, and the header of a cache device, durably
/// (`zpool_clear_label`).
///
/// It overwrites only labels with a device's guid and state, whatever their checksums. Without any
/// such label it fails: other areas may hold other data.
fn wipe(device: &FileDevice) -> Result<(), ()> {
    let (labels, writer) = (vdev::label::Labels::new(device), LabelWriter::new(device));
    let state = |label| {
        let (config, _) = labels.config_unverified(label).ok()?;
        config.u64("guid").filter(|guid| *guid != 0)?;
        config.u64("state").filter(|state| *state <= PoolState::L2cache as u64)
    };
    let found: Vec<_> = (0..LABELS).filter_map(|label| Some((label, state(label)?))).collect();
    for (label, _) in &found {
        writer.wipe(*label).map_err(drop)?;
    }
    if found.iter().any(|(_, state)| *state == PoolState::L2cache as u64) {
        device.write_at(&[0; CACHE_HEADER], LABEL_START_SIZE).map_err(drop)?;
    }
    device.flush().map_err(drop)?;
    if found.is_empty() { Err(()) } else { Ok(()) }
}

/// The path that a word names.
fn find(cx: &mut Cx, word: &str) -> Option<String> {
    let tries = [Path::new(word).to_owned(), Path::new("/dev").join(word)];
    let mut last = None;
    for path in tries {
        match std::fs::File::options().read(true).write(true).open(&path) {
            Ok(_) => return Some(path.display().to_string()),
            Err(e) => last = Some(e),
        }
        if word.starts_with('/') {
            break;
        }
    }
    match last {
        Some(e) if word.starts_with('/') || e.kind() != std::io::ErrorKind::NotFound => {
            writeln!(cx.err, "failed to open {word}: {}", words::io(&e));
        }
        _ => writeln!(cx.err, "failed to find device {word}, try specifying absolute path instead"),
    }
    None
}

/// Whether an imported pool uses the device (`vdev_is_active`).
///
/// * The device has this path, or the guid `own` if that is known.
/// * `pool` restricts the search to the pool with this guid.
/// * With `force`, a device that is offline or faulted counts as not in use.
/// * `None` means that the daemon or a pool can't be queried.
fn is_active(cx: &mut Cx, (pool, own): (Option<u64>, Option<u64>), path: &str, force: bool) -> Option<bool> {
    fn has(vdev: &Vdev, own: Option<u64>, path: &Path, force: bool) -> bool {
        let at = vdev.path.as_deref().and_then(|p| std::fs::canonicalize(p).ok());
        let it = at.is_some_and(|at| at == path) || own.is_some_and(|own| own == vdev.guid);
        let rests = force && matches!(vdev.stat.state, VdevState::Offline | VdevState::Faulted);
        it && !rests || vdev.children.iter().any(|child| has(child, own, path, force))
    }
    let service = cx.service().ok()?;
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let mut all = true;
    for name in service.pool_names().ok()? {
        let Ok(found) = service.pool(&name, &PoolQuery::default()) else {
            all = false;
            continue;
        };
        let mut devices = std::iter::once(&found.root).chain(&found.spares).chain(&found.l2cache);
        if pool.is_none_or(|guid| found.guid == guid) && devices.any(|v| has(v, own, &real, force)) {
            return Some(true);
        }
    }
    all.then_some(false)
}
