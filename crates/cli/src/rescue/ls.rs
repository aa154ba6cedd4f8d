//! `poolhouse ls`.

use super::args::Args;
use super::target::{self, Error, Target};
use super::{Chain, Io, find, held};
use crate::cx::Out;
use poolhouse::Pool;
use poolhouse::zpl::{DirEntry, FileSystem, FileType, Node};
use server::api::PoolQuery;
use std::rc::Rc;

/// Lists what the operands name; `Ok(false)` if something could not be read.
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
        // Two pools may have one name.
        [] => scanned(args)?.pools.iter().map(|c| c.guid.to_string()).collect(),
        named => named.to_vec(),
    };
    let mut whole = true;
    for operand in &names {
        let target = Target::parse(operand);
        if args.find.is_none()
            && let Some(held) = held::held(io, args, &target)
        {
            whole &= held.list(io, args)?;
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
                Some(held) if args.find.is_none() => {
                    whole &= held.list(io, args)?;
                    continue;
                }
                Some(_) | None => return Err(error),
            },
        };
        whole &= match (&args.find, &target.path) {
            (Some(pattern), _) => find::run(io, &pool, pattern)?,
            (None, None) => list_datasets(io, args, &pool, &target)?,
            (None, Some(path)) => {
                target::check_key(&pool, &target.dataset)?;
                let fs = pool.dataset(&target.dataset)?.filesystem()?;
                let mut listing = Listing {
                    io,
                    args,
                    fs: &fs,
                    dataset: &target.dataset,
                    whole: true,
                    headings: args.recursive,
                };
                listing.path(path)?;
                listing.whole
            }
        };
    }
    Ok(whole)
}

/// Lists pools: those that are found, and those that the daemon holds.
fn pools(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let scan = target::scan(args)?;
    let mut pools: Vec<(String, u64)> = scan.pools.iter().map(|c| (c.name.clone(), c.guid.0)).collect();
    if args.devices.is_empty() {
        for name in io.service.pool_names().unwrap_or_default() {
            let pool = io.service.pool(&name, &PoolQuery::default());
            pools.extend(pool.ok().map(|pool| (name, pool.guid)).filter(|new| !pools.contains(new)));
        }
    }
    for (name, guid) in &pools {
        writeln!(io.out, "{name}\t{guid}");
    }
    if pools.is_empty() {
        writeln!(io.err, "no pools available");
    }
    Ok(true)
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

fn list_datasets(io: &mut Io, args: &Args, pool: &Pool, target: &Target) -> Result<bool, Error> {
    if target.dataset.contains('@') {
        // A snapshot has nothing below it but its files.
        let mut listing_of = target.clone();
        listing_of.path = Some("/".to_owned());
        let fs = pool.dataset(&target.dataset)?.filesystem()?;
        let mut listing =
            Listing { io, args, fs: &fs, dataset: &target.dataset, whole: true, headings: args.recursive };
        listing.path("/")?;
        return Ok(listing.whole);
    }
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
    fs: &'a FileSystem,
    dataset: &'a str,
    whole: bool,
    headings: bool,
}

impl Listing<'_> {
    fn path(&mut self, path: &str) -> Result<(), Error> {
        let path = if path.is_empty() { "/" } else { path };
        let node = self.fs.resolve(path.as_bytes()).map_err(|source| Error::Path {
            dataset: self.dataset.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        if node.attr().kind != FileType::Directory {
            let name = path.rsplit('/').find(|p| !p.is_empty()).unwrap_or(path);
            self.entry(name.as_bytes(), &node);
            return Ok(());
        }
        // Folders still to list; a stack, so that depth costs no recursion.
        let mut todo = vec![(path.trim_end_matches('/').as_bytes().to_vec(), node)];
        let mut first = true;
        while let Some((path, node)) = todo.pop() {
            if self.headings {
                let gap = if first { "" } else { "\n" };
                let shown = if path.is_empty() { b"/".as_slice() } else { &path };
                writeln!(self.io.out, "{gap}{}:", String::from_utf8_lossy(shown));
            }
            first = false;
            let below = self.folder(&path, &node);
            if self.args.recursive {
                todo.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    /// Lists one folder, sorted; the folders in it.
    fn folder(&mut self, path: &[u8], node: &Node) -> Vec<(Vec<u8>, Node)> {
        let mut entries: Vec<DirEntry> = Vec::new();
        match node.read_dir(poolhouse::zpl::DirCookie::START) {
            Ok(dir) => {
                for e in dir {
                    match e {
                        Ok(e) if e.name == b"." || e.name == b".." => {}
                        Ok(e) => entries.push(e),
                        Err(e) => self.failed(path, &e),
                    }
                }
            }
            Err(e) => self.failed(path, &e),
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut below = Vec::new();
        for e in entries {
            let full = [path, b"/", &e.name].concat();
            match self.fs.node(e.object) {
                Ok(node) => {
                    self.entry(&e.name, &node);
                    if node.attr().kind == FileType::Directory {
                        below.push((full, node));
                    }
                }
                Err(err) => self.failed(&full, &err),
            }
        }
        below
    }

    fn entry(&mut self, name: &[u8], node: &Node) {
        let a = node.attr();
        let link = (self.args.long && a.kind == FileType::Symlink).then(|| node.readlink());
        let link = link.and_then(|link| link.map_err(|e| self.failed(name, &e)).ok());
        let shown = Shown {
            kind: a.kind,
            mode: a.mode,
            nlink: a.nlink,
            owner: (a.uid.rid(), a.gid.rid()),
            size: a.size,
            device: a.rdev,
            mtime: a.mtime.secs,
            link,
        };
        line(&mut self.io.out, self.args.long, name, &shown);
    }

    fn failed(&mut self, path: &[u8], e: &dyn std::error::Error) {
        self.whole = false;
        writeln!(self.io.err, "poolhouse ls: {}: {}", String::from_utf8_lossy(path), Chain(e));
    }
}

/// What a line tells of a file.
pub struct Shown {
    /// Kind.
    pub kind: FileType,
    /// Permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u64,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Bytes.
    pub size: u64,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// Seconds since the epoch.
    pub mtime: i64,
    /// What a symbolic link leads to.
    pub link: Option<Vec<u8>>,
}

/// Prints a file's line.
pub fn line(out: &mut Out, long: bool, name: &[u8], file: &Shown) {
    let name = String::from_utf8_lossy(name).into_owned();
    if !long {
        writeln!(out, "{name}");
        return;
    }
    let size = match file.device {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => file.size.to_string(),
    };
    let time = jiff::Timestamp::from_second(file.mtime)
        .map_or_else(|_| file.mtime.to_string(), |t| t.strftime("%Y-%m-%d %H:%M").to_string());
    let link = file.link.as_ref().map(|link| format!(" -> {}", String::from_utf8_lossy(link)));
    let (mode, (uid, gid)) = (mode_text(file.kind, file.mode), file.owner);
    let link = link.unwrap_or_default();
    writeln!(out, "{mode} {:>3} {uid:>6} {gid:>6} {size:>12} {time} {name}{link}", file.nlink);
}

/// `drwxr-xr-x` and the like.
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
    //! Modes look as `ls` shows them.

    use super::*;

    /// Set-id and sticky bits take the place of x.
    #[test]
    fn modes() {
        assert_eq!(mode_text(FileType::Directory, 0o41777), "drwxrwxrwt");
        assert_eq!(mode_text(FileType::Regular, 0o104640), "-rwSr-----");
    }
}
