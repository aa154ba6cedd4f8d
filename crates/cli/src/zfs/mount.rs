//! `zfs mount` and `unmount`.

use std::path::Path;

use api::{DatasetKind as K, Error, MountReport, MountRequest, Reason, UnmountRequest};

use super::datasets::{Gather, gather};
use super::keys::{load_key_for, load_keys_in};
use super::mounting;
use super::open::open;
use crate::cx::{Cx, Outcome, Stop};
use crate::json::{self, Object};
use console::getopt::{Found, Getopt, Long, Opt};
use console::words;

const LONG: &[Long] = &[Long { name: "json", val: Opt::Short('j'), arg: false }];

/// `zfs mount [-j]`, `zfs mount [-flvO] [-o opts] <-a|-R filesystem|filesystem>` (`zfs_do_mount`).
///
/// # Errors
/// See [`Outcome`].
pub fn mount(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut r = MountRequest { threads: cx.mount_threads(), ..MountRequest::default() };
    let (mut all, mut verbose, mut keys, mut as_json) = (false, false, false, false);
    let mut g = Getopt::new(args, ":ajRlvo:Of", LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('a'), _) => all = true,
            Found::Is(Opt::Short('R'), _) => r.recursive = true,
            Found::Is(Opt::Short('v'), _) => verbose = true,
            Found::Is(Opt::Short('l'), _) => keys = true,
            Found::Is(Opt::Short('j'), _) => as_json = true,
            Found::Is(Opt::Short('o'), arg) if arg.is_empty() => {
                return Err(Stop::usage("empty mount options (-o) specified\n"));
            }
            Found::Is(Opt::Short('o'), arg) => r.options.extend(arg.split(',').map(str::to_owned)),
            Found::Is(Opt::Short('O'), _) => r.overlay = true,
            Found::Is(..) => r.force = true,
            Found::Missing(c) => return Err(Stop::missing(c)),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    if as_json && !names.is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    if all || r.recursive {
        if all && !names.is_empty() {
            return Err(Stop::usage("too many arguments\n"));
        }
        if r.recursive && !all && names.is_empty() {
            return Err(Stop::usage("no dataset provided\n"));
        }
        if !names.is_empty() && opened(cx, &names)? {
            return Err(Stop::usage(""));
        }
        r.datasets = names;
        return run(cx, &r, keys, verbose);
    }
    match &names[..] {
        [] if !r.options.is_empty() => Err(Stop::usage("missing filesystem argument (specify -a for all)\n")),
        [] => list(cx, as_json),
        [_] if opened(cx, &names)? => Ok(1),
        [_] => {
            (r.datasets, r.explicit) = (names, true);
            run(cx, &r, keys, verbose)
        }
        _ => Err(Stop::usage("too many arguments\n")),
    }
}

/// The mounted dataset with this name or mountpoint, if `umount(8)` has to unmount it.
fn legacy(cx: &mut Cx, name: &str) -> Result<Option<String>, Stop> {
    let mounts = cx.service()?.mounts().map_err(|e| cx.fail("cannot list mounts", &e))?;
    let Some(mount) = mounts.into_iter().find(|m| m.dataset == name || m.mountpoint == name) else {
        return Ok(None);
    };
    if mount.dataset.contains('@') {
        return Ok(None);
    }
    let d = open(cx, &mount.dataset, &[K::Filesystem], &["mountpoint"])?;
    Ok(d.prop("mountpoint").is_some_and(|p| p.value(true) == "legacy").then_some(mount.dataset))
}

/// Whether one of the names is not an existing file system. That is reported.
fn opened(cx: &mut Cx, names: &[String]) -> Result<bool, Stop> {
    let how = Gather { kinds: vec![K::Filesystem], ..Gather::default() };
    Ok(gather(cx, names, &how)?.failed())
}

fn list(cx: &mut Cx, as_json: bool) -> Outcome {
    let mut mounts = cx.service()?.mounts().map_err(|e| cx.fail("cannot list mounts", &e))?;
    // The order in which `zfs mount -a` mounts. OpenZFS prints the kernel's table, which has the
    // same order.
    mounts.sort_by(|a, b| Path::new(&a.mountpoint).cmp(Path::new(&b.mountpoint)));
    let mut all = Object::new();
    for m in mounts.iter().filter(|m| !m.dataset.contains('@')) {
        if as_json {
            let mut o = Object::new();
            o.text("filesystem", &m.dataset);
            o.text("mountpoint", &m.mountpoint);
            all.object(m.dataset.clone(), o);
        } else {
            writeln!(cx.out, "{:<30}  {}", m.dataset, m.mountpoint);
        }
    }
    if !all.is_empty() {
        let mut root = json::schema("zfs mount");
        root.object("datasets", all);
        writeln!(cx.out, "{}", root.line());
    }
    Ok(0)
}

fn run(cx: &mut Cx, r: &MountRequest, keys: bool, verbose: bool) -> Outcome {
    let mut failed = false;
    if keys {
        if r.datasets.is_empty() {
            for name in cx.service()?.pool_names().map_err(|e| cx.fail("cannot list pools", &e))? {
                failed |= load_keys_in(cx, &name)?;
            }
        }
        for name in &r.datasets {
            failed |= load_key_for(cx, name)?;
        }
    }
    match mounting::mount(cx, r, verbose)? {
        Ok(report) => {
            cx.out.flush();
            failures(cx, "mount", &report);
            Ok(i32::from(failed || !report.failures.is_empty()))
        }
        // The failure may concern no particular file system.
        Err(e) if e.about.is_empty() || e.about == "mount" => Err(cx.fail("cannot mount", &e)),
        Err(e) => Err(cx.fail(&format!("cannot mount '{}'", e.about), &e)),
    }
}

/// Reports what could not be mounted or unmounted.
pub(crate) fn failures(cx: &mut Cx, verb: &str, report: &MountReport) {
    for f in &report.failures {
        let why = why(cx, &f.error);
        // For failures before the mount call, OpenZFS names the mountpoint.
        let of_place = matches!(
            f.error.reason,
            Reason::KeyNotLoaded | Reason::MountpointNotEmpty | Reason::MountpointNotMade { .. }
        );
        let name = if of_place { &f.error.about } else { &f.name };
        writeln!(cx.err, "cannot {verb} '{name}': {why}");
        if matches!(f.error.reason, Reason::LegacyMountpoint) {
            let tool = if verb == "mount" { "mount" } else { "umount" };
            writeln!(cx.err, "use {tool}(8) to {verb} this filesystem");
        }
    }
}

fn why(cx: &Cx, e: &Error) -> String {
    if matches!(e.reason, Reason::System { errno } if errno == rustix::io::Errno::BUSY.raw_os_error()) {
        return "mountpoint or dataset is busy".into();
    }
    words::reason(&e.reason, &cx.clock)
}

/// Reports what a path is that is not a mountpoint of a pool's file system
/// (`unshare_unmount_path`).
fn not_ours(cx: &mut Cx, path: &str) {
    // Reads the table of mounts. A query of the path itself could wait for the daemon of another
    // mount.
    let device = match fuse::system::device_at(Path::new(path)) {
        Ok((major, minor)) => format!("{major}:{minor}"),
        Err(errno) => {
            let why = words::errno(errno.raw_os_error());
            writeln!(cx.err, "warning: {path} not in/proc/self/mounts\n{path}: {why}");
            return;
        }
    };
    let mounts = fuse::system::table().unwrap_or_default();
    let ours = mounts.iter().any(|mount| mount.device == device && mount.fs_type == fuse::system::FS_TYPE);
    let what = if ours { "not a mountpoint" } else { "not a ZFS filesystem" };
    writeln!(cx.err, "cannot unmount '{path}': {what}");
}

/// `zfs unmount [-fu] <-a | filesystem|mountpoint>` (`zfs_do_unmount`).
///
/// # Errors
/// See [`Outcome`].
pub fn unmount(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut r = UnmountRequest { threads: cx.mount_threads(), ..UnmountRequest::default() };
    let mut all = false;
    let mut g = Getopt::new(args, "afu", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('a'), _) => all = true,
            Found::Is(Opt::Short('f'), _) => r.force = true,
            Found::Is(..) => r.unload_keys = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    r.names = g.operands();
    match (all, r.names.len()) {
        (true, 0) | (false, 1) => {}
        (false, 0) => return Err(Stop::usage("missing filesystem argument\n")),
        _ => return Err(Stop::usage("too many arguments\n")),
    }
    if let [name] = &r.names[..] {
        let name = name.clone();
        if !name.starts_with('/') && opened(cx, &r.names)? {
            return Ok(1);
        }
        if let Some(dataset) = legacy(cx, &name)? {
            writeln!(
                cx.err,
                "cannot unmount '{dataset}': legacy mountpoint\nuse umount(8) to unmount this filesystem"
            );
            return Ok(1);
        }
    }
    match cx.service()?.unmount(&r) {
        Ok(report) => {
            failures(cx, "unmount", &report);
            Ok(i32::from(!report.failures.is_empty()))
        }
        Err(Error { about, reason: Reason::NotAMountpoint }) => {
            not_ours(cx, &about);
            Ok(1)
        }
        Err(e) => {
            let name = r.names.first().unwrap_or(&e.about).clone();
            Err(cx.fail(&format!("cannot unmount '{name}'"), &e))
        }
    }
}
