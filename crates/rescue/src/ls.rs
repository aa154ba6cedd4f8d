//! `poolhouse ls`.

use super::args::Args;
use super::nested::Nested;
use super::target::{self, Error, Target};
use super::{Chain, Io, find, held};
use api::PoolQuery;
use api::files::{Engine, Fault, Files, Item, Kind, Meta};
use console::Out;
use poolhouse::Pool;
use poolhouse::zpl::{DirCookie, FileType};
use std::rc::Rc;

/// Lists what the operands name. Returns `false` if something could not be read.
///
/// # Errors
/// * [`Error::Operand`]: the operand is a volume, which has no files.
/// * [`Error::Path`]: the path leads to nothing.
/// * [`Error::States`]: the transaction groups can't be listed.
/// * [`Error::Pool`]: the datasets can't be listed, or one can't be opened.
/// * [`Error::Theirs`], [`Error::Refused`], [`Error::Denied`], [`Error::Daemon`]: the daemon that
///   holds the pool does not provide the data.
/// * The errors of [`target::scan`], [`target::open`] and [`target::check_key`].
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    if args.operands.is_empty() && args.find.is_none() {
        return pools(io, args);
    }
    let mut scan = None;
    let mut scanned = |args| match &mut scan {
        Some(scan) => Ok(Rc::clone(scan)),
        none => Ok::<_, Error>(Rc::clone(none.insert(Rc::new(target::scan(args)?)))),
    };
    let names: Vec<String> = match args.operands.as_slice() {
        // Two pools may have the same name, so guids identify them here.
        [] => {
            let found = scanned(args)?.pools.iter().map(|c| (c.name.clone(), c.guid.0)).collect();
            with_held(io, args, found).into_iter().map(|(_, guid)| guid.to_string()).collect()
        }
        named => named.to_vec(),
    };
    let mut whole = true;
    for operand in &names {
        let target = Target::parse(operand);
        if let Some(held) = held::held(io, args, &target) {
            whole &= of_daemon(io, args, &held)?;
            continue;
        }
        let scan = scanned(args)?;
        if args.list_txgs {
            whole &= list_txgs(io, target::candidate(&scan, target.pool())?)?;
            continue;
        }
        let (pool, target) = match target::open(io, args, &scan, &target) {
            Ok(opened) => opened,
            Err(error) => match held::if_in_use(io, &target, &error) {
                Some(held) => {
                    whole &= of_daemon(io, args, &held)?;
                    continue;
                }
                None => return Err(error),
            },
        };
        whole &= match (&args.find, &target.path) {
            (Some(pattern), _) => find::run(io, &pool, pattern)?,
            // A snapshot has only files below it.
            (None, None) if !target.dataset.contains('@') => list_datasets(io, &pool, &target)?,
            (None, path) => {
                target::check_key(&pool, &target.dataset)?;
                let mut engine = Engine::files(pool.dataset(&target.dataset)?.filesystem()?);
                let shown = path.as_deref().unwrap_or("/");
                if args.recursive || shown.bytes().any(|byte| byte != b'/') {
                    Nested::of_pool(&pool, &target.dataset)?.report(io, "ls", shown, args.recursive);
                }
                files(io, args, &target.dataset, path.as_deref().unwrap_or("/"), &mut engine)?
            }
        };
    }
    Ok(whole)
}

/// Lists what an operand names in a pool that the daemon holds.
fn of_daemon(io: &mut Io, args: &Args, held: &held::Held) -> Result<bool, Error> {
    let target = &held.target;
    match (&args.find, &target.path) {
        (Some(pattern), _) => find::in_daemon(io, args, held, pattern),
        (None, None) if !target.dataset.contains('@') => {
            let (names, failures) = held.datasets(io, &target.dataset)?;
            for name in &names {
                writeln!(io.out, "{name}");
            }
            for failure in &failures {
                writeln!(io.err, "poolhouse ls: {failure}");
            }
            Ok(failures.is_empty())
        }
        (None, path) => {
            let (mut visit, opened) = held.visit(io, args, &target.dataset, "ls", false)?;
            if opened.volume.is_some() {
                let why = "is a volume, which has no files: `poolhouse cp` copies it";
                return Err(Error::Operand { operand: target.dataset.clone(), why });
            }
            let shown = path.as_deref().unwrap_or("/");
            Nested::of_held(io, held)?.report(io, "ls", shown, args.recursive);
            files(io, args, &target.dataset, shown, &mut visit)
        }
    }
}

/// Lists the file or folder at a path.
pub(super) fn files(
    io: &mut Io,
    args: &Args,
    dataset: &str,
    path: &str,
    files: &mut dyn Files,
) -> Result<bool, Error> {
    let mut listing =
        Listing { io, args, files, dataset, whole: true, gone: false, headings: args.recursive };
    listing.path(path)?;
    Ok(listing.whole)
}

/// Lists pools: those on the devices, and those that the daemon holds.
fn pools(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let scan = target::scan(args)?;
    let found = scan.pools.iter().map(|c| (c.name.clone(), c.guid.0)).collect();
    let pools = with_held(io, args, found);
    for (name, guid) in &pools {
        writeln!(io.out, "{name}\t{guid}");
    }
    let asked = held::by_ourselves(args) || super::report_unasked(io, super::args::Command::Ls);
    if pools.is_empty() && asked {
        writeln!(io.err, "no pools available");
    }
    Ok(asked)
}

/// Adds the pools that the daemon holds to the names and guids of pools.
fn with_held(io: &Io, args: &Args, mut pools: Vec<(String, u64)>) -> Vec<(String, u64)> {
    if !held::by_ourselves(args) {
        for name in io.service.pool_names().unwrap_or_default() {
            let pool = io.service.pool(&name, &PoolQuery::default());
            pools.extend(pool.ok().map(|pool| (name, pool.guid)).filter(|new| !pools.contains(new)));
        }
    }
    pools
}

fn list_txgs(io: &mut Io, candidate: &poolhouse::spa::Candidate) -> Result<bool, Error> {
    let states = poolhouse::spa::import::list_txgs(candidate)?;
    for s in &states {
        let secs = i64::try_from(s.uberblock.timestamp).ok();
        let time = secs.and_then(|t| jiff::Timestamp::from_second(t).ok());
        let time = time.map_or_else(|| "-".to_owned(), |t| t.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
        writeln!(io.out, "{}\t{time}\ton {} of the devices", s.uberblock.txg, s.devices);
    }
    Ok(!states.is_empty())
}

fn list_datasets(io: &mut Io, pool: &Pool, target: &Target) -> Result<bool, Error> {
    let base = pool.dataset(&target.dataset)?.name();
    let below = |name: &str| {
        name.strip_prefix(&base).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
    };
    let mut found = pool.dataset_names(true)?;
    for name in found.names.iter().filter(|name| below(name)) {
        writeln!(io.out, "{name}");
    }
    found.failures.retain(|(name, _)| below(name));
    Ok(super::report_unlisted(io, &found))
}

struct Listing<'a> {
    io: &'a mut Io,
    args: &'a Args,
    files: &'a mut dyn Files,
    dataset: &'a str,
    whole: bool,
    /// The daemon that has the files is no longer reachable.
    gone: bool,
    headings: bool,
}

impl Listing<'_> {
    fn path(&mut self, path: &str) -> Result<(), Error> {
        let path = if path.is_empty() { "/" } else { path };
        let meta = self.files.resolve(path.as_bytes(), true).map_err(|source| Error::Path {
            dataset: self.dataset.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        if meta.kind != FileType::Directory {
            let name = path.rsplit('/').find(|p| !p.is_empty()).unwrap_or(path);
            self.entry(name.as_bytes(), &meta);
            return Ok(());
        }
        // Folders still to list. The stack avoids recursion in deep trees.
        let mut todo = vec![(path.trim_end_matches('/').as_bytes().to_vec(), meta)];
        let mut first = true;
        while let Some((path, meta)) = todo.pop() {
            if self.gone {
                break;
            }
            if self.headings {
                let gap = if first { "" } else { "\n" };
                let shown = if path.is_empty() { b"/".as_slice() } else { &path };
                writeln!(self.io.out, "{gap}{}:", String::from_utf8_lossy(shown));
            }
            first = false;
            let below = self.folder(&path, &meta);
            if self.args.recursive {
                todo.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    /// Lists one folder, sorted. Returns the folders in it.
    fn folder(&mut self, path: &[u8], meta: &Meta) -> Vec<(Vec<u8>, Meta)> {
        let mut entries: Vec<Item> = Vec::new();
        let mut from = Some(DirCookie::START);
        while let Some(at) = from.take() {
            match self.files.page(meta.object, at) {
                Ok(page) => {
                    from = page.entries.last().filter(|_| page.more).map(|item| DirCookie(item.next));
                    entries.extend(page.entries);
                    if let Some(fault) = page.fault {
                        self.failed(path, &fault);
                    }
                }
                Err(fault) => self.failed(path, &fault),
            }
        }
        entries.sort_by(|a, b| a.name.0.cmp(&b.name.0));
        let mut below = Vec::new();
        for Item { name, object, .. } in entries {
            if self.gone {
                break;
            }
            let full = [path, b"/", &name.0].concat();
            match self.files.meta(object) {
                Ok(meta) => {
                    self.entry(&name.0, &meta);
                    if meta.kind == FileType::Directory {
                        below.push((full, meta));
                    }
                }
                Err(fault) => self.failed(&full, &fault),
            }
        }
        below
    }

    fn entry(&mut self, name: &[u8], meta: &Meta) {
        let link =
            (self.args.long && meta.kind == FileType::Symlink).then(|| self.files.readlink(meta.object));
        let link = link.and_then(|link| link.map_err(|fault| self.failed(name, &fault)).ok());
        line(&mut self.io.out, self.args.long, name, meta, link.as_deref());
    }

    /// Reports that something can't be read. That the daemon is unreachable is reported once.
    fn failed(&mut self, path: &[u8], fault: &Fault) {
        self.whole = false;
        if !self.gone {
            writeln!(self.io.err, "poolhouse ls: {}: {}", String::from_utf8_lossy(path), Chain(fault));
        }
        self.gone |= fault.kind == Kind::Gone;
    }
}

/// Prints the line of a file.
fn line(out: &mut Out, long: bool, name: &[u8], file: &Meta, link: Option<&[u8]>) {
    let name = String::from_utf8_lossy(name).into_owned();
    if !long {
        writeln!(out, "{name}");
        return;
    }
    let size = match file.rdev {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => file.size.to_string(),
    };
    let time = jiff::Timestamp::from_second(file.mtime.0)
        .map_or_else(|_| file.mtime.0.to_string(), |t| t.strftime("%Y-%m-%d %H:%M").to_string());
    let link = link.map(|link| format!(" -> {}", String::from_utf8_lossy(link)));
    let (mode, uid, gid) = (mode_text(file.kind, file.mode), file.uid, file.gid);
    let link = link.unwrap_or_default();
    writeln!(out, "{mode} {:>3} {uid:>6} {gid:>6} {size:>12} {time} {name}{link}", file.nlink);
}

/// The mode as text, like `drwxr-xr-x`.
fn mode_text(kind: FileType, mode: u32) -> String {
    let first = match kind {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        _ => '-',
    };
    let mut text = String::from(first);
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift & 7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    //! Modes appear as in `ls`.

    use super::*;

    /// Goal: set-id and sticky bits take the place of `x`.
    #[test]
    fn modes() {
        assert_eq!(mode_text(FileType::Directory, 0o41777), "drwxrwxrwt");
        assert_eq!(mode_text(FileType::Regular, 0o104640), "-rwSr-----");
    }
}
