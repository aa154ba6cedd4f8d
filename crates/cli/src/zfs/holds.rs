//! `zfs holds`.

use api::{DatasetKind as K, Hold};

use super::datasets::{Gather, gather};
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};

/// `zfs holds [-rHp] <snapshot> ...` (`zfs_do_holds`).
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut recursive, mut scripted, mut exact) = (false, false, false);
    let mut g = Getopt::new(args, "rHp", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('r'), _) => recursive = true,
            Found::Is(Opt::Short('H'), _) => scripted = true,
            Found::Is(..) => exact = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    if names.is_empty() {
        return Err(Stop::usage("missing snapshot argument\n"));
    }
    let (mut holds, mut names_width, mut any, mut failed) = (Vec::<Hold>::new(), 0, false, false);
    let service = cx.service()?;
    for name in &names {
        let Some((head, snap)) = name.split_once('@') else {
            writeln!(cx.err, "'{name}' is not a snapshot");
            failed = true;
            continue;
        };
        let kinds = vec![K::Snapshot];
        let how = Gather { kinds, recurse: recursive, ..Gather::default() };
        let arg = if recursive { head.to_owned() } else { name.clone() };
        let gathered = gather(cx, &[arg], &how)?;
        failed |= gathered.failed();
        for d in gathered.found.iter().filter(|d| d.name.split_once('@').is_some_and(|(_, s)| s == snap)) {
            match service.holds(&d.name) {
                Ok(list) => {
                    names_width = names_width.max(d.name.len());
                    any = true;
                    holds.retain(|h| h.snapshot != d.name);
                    holds.extend(list);
                }
                Err(e) => {
                    cx.complain(&format!("cannot get holds for '{}'", d.name), &e);
                    failed = true;
                }
            }
        }
    }
    let tags_width = holds.iter().map(|h| h.tag.len()).max().unwrap_or(0);
    if !scripted {
        writeln!(cx.out, "{:<names_width$}  {:<tags_width$}  TIMESTAMP", "NAME", "TAG");
    }
    for h in &holds {
        let when = if exact { h.time.to_string() } else { cx.clock.hold(h.time) };
        let tag = cx.out.cell(&h.tag);
        if scripted {
            writeln!(cx.out, "{}\t{tag}\t{when}", h.snapshot);
        } else {
            writeln!(cx.out, "{:<names_width$}  {tag:<tags_width$}  {when}", h.snapshot);
        }
    }
    if !any {
        cx.err.put("no datasets available\n");
    }
    Ok(i32::from(failed))
}
