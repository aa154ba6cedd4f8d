//! `zfs share` and `unshare` (`share_mount_one`, `unshare_unmount`).
//!
//! # Theory
//! Poolhouse exports no file systems over NFS or SMB. It stores `sharenfs` and `sharesmb`, and
//! refuses by name to share a file system that has one of them set.
//!
//! Other file systems need no sharing. So scripts that share everything succeed if these properties
//! are not set.

use api::{Dataset, DatasetKind as K};

use super::open::{below, open};
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};

const PROPS: [&str; 5] = ["sharenfs", "sharesmb", "mountpoint", "canmount", "zoned"];
const ABSENT: &str = "sharing over NFS and SMB is not in this release of Poolhouse";

fn value<'a>(d: &'a Dataset, name: &str) -> &'a str {
    d.prop(name).map_or("", |p| p.value(true))
}

/// Whether a file system's properties request sharing.
fn asks(d: &Dataset) -> bool {
    ["sharenfs", "sharesmb"].iter().any(|name| !matches!(value(d, name), "" | "-" | "off"))
}

/// The file systems of all pools, for `-a`.
fn everything(cx: &mut Cx) -> Result<Vec<Dataset>, Stop> {
    let names = cx.service()?.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    let mut all = Vec::new();
    for name in names {
        all.extend(below(cx, &name, None, &[K::Filesystem], &PROPS)?);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Parses `-a`, the protocol that may follow it, and the operand.
fn operand(args: &[String], known: &'static str, none: &'static str) -> Result<Option<String>, Stop> {
    let mut all = false;
    let mut g = Getopt::new(args, known, &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('a'), _) => all = true,
            Found::Is(..) => {}
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut operands = g.operands();
    if all && operands.first().is_some_and(|p| matches!(p.as_str(), "nfs" | "smb")) {
        operands.remove(0);
    }
    match (all, operands.len()) {
        (true, 0) => Ok(None),
        (false, 0) => Err(Stop::usage(none)),
        (false, 1) => Ok(operands.pop()),
        _ => Err(Stop::usage("too many arguments\n")),
    }
}

/// `zfs share [-l] <-a [nfs|smb] | filesystem>` (`zfs_do_share`).
///
/// # Errors
/// See [`Outcome`].
pub fn share(cx: &mut Cx, args: &[String]) -> Outcome {
    let Some(name) = operand(args, "al", "missing filesystem argument (specify -a for all)\n")? else {
        let mut code = 0;
        for d in everything(cx)? {
            let place = matches!(value(&d, "mountpoint"), "legacy" | "none");
            if asks(&d) && !place && value(&d, "canmount") == "on" && value(&d, "zoned") != "on" {
                writeln!(cx.err, "cannot share '{}': {ABSENT}", d.name);
                code = 1;
            }
        }
        return Ok(code);
    };
    let d = open(cx, &name, &[K::Filesystem], &PROPS)?;
    let why = if value(&d, "zoned") == "on" {
        "dataset is exported to a local zone"
    } else if !asks(&d) {
        "legacy share\nuse exports(5) or smb.conf(5) to share this filesystem, or set the sharenfs or sharesmb property"
    } else if value(&d, "mountpoint") == "legacy" {
        "legacy mountpoint\nuse share(8) to share this filesystem"
    } else if value(&d, "mountpoint") == "none" {
        "no mountpoint set"
    } else if value(&d, "canmount") == "off" {
        "'canmount' property is set to 'off'"
    } else {
        ABSENT
    };
    writeln!(cx.err, "cannot share '{name}': {why}");
    Ok(1)
}

/// `zfs unshare <-a [nfs|smb] | filesystem|mountpoint>` (`zfs_do_unshare`).
///
/// # Errors
/// See [`Outcome`].
pub fn unshare(cx: &mut Cx, args: &[String]) -> Outcome {
    // Nothing is shared, so `-a` has nothing to do.
    let Some(name) = operand(args, ":a", "missing filesystem argument\n")? else { return Ok(0) };
    let (dataset, how) = if name.starts_with('/') {
        let mounts = cx.service()?.mounts().map_err(|e| cx.fail("cannot list mounts", &e))?;
        let Some(mount) = mounts.into_iter().find(|m| m.mountpoint == name) else {
            writeln!(cx.err, "cannot unshare '{name}': not currently mounted");
            return Ok(1);
        };
        (mount.dataset, "use exportfs(8) or smbcontrol(1)")
    } else {
        (name.clone(), "use exports(5) or smb.conf(5)")
    };
    let d = open(cx, &dataset, &[K::Filesystem], &PROPS)?;
    if asks(&d) {
        writeln!(cx.err, "cannot unshare '{name}': not currently shared");
    } else {
        writeln!(cx.err, "cannot unshare '{name}': legacy share\n{how} to unshare this filesystem");
    }
    Ok(1)
}
