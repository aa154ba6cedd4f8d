//! The pool, dataset or objects that the command line names, and what to show of them.

use super::ctx::{Ctx, Run, Stop};
use super::opened::{Opened, load_key, open};
use super::opts::number;
use super::ranges;
use super::{block, bplists, lookup, objset, whole};
use dsl::Dataset;
use ondisk::ObjNum;

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
            metaslabs.push(number(arg).ok_or_else(|| cx.fatal(bad))?);
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
    bplists::bookmark(cx, &ds, &bookmark, true, cx.opts.count('v') > 1)?;
    Ok(0)
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
        if all { number(n) } else { None }
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
