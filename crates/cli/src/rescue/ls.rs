//! `poolhouse ls`.

use super::args::Args;
use super::target::{self, Error, Target};
use super::{Chain, Io, find};
use poolhouse::Pool;
use poolhouse::zpl::{DirEntry, FileSystem, FileType, Node};

/// Lists what the operands name; `Ok(false)` if something could not be read.
pub fn run(io: &mut Io, args: &Args) -> Result<bool, Error> {
    let scan = target::scan(args);
    if args.operands.is_empty() && args.find.is_none() {
        for c in &scan.pools {
            writeln!(io.out, "{}\t{}", c.name, c.guid);
        }
        if scan.pools.is_empty() {
            writeln!(io.err, "no pools available");
        }
        return Ok(true);
    }
    let names: Vec<String> = match args.operands.as_slice() {
        [] => scan.pools.iter().map(|c| c.name.clone()).collect(),
        named => named.to_vec(),
    };
    let mut whole = true;
    for operand in &names {
        let target = Target::parse(operand);
        if args.list_txgs {
            whole &= list_txgs(io, target::candidate(&scan, target.pool())?)?;
            continue;
        }
        let pool = target::open(io, args, &scan, &target)?;
        whole &= match (&args.find, &target.path) {
            (Some(pattern), _) => find::run(io, &pool, pattern)?,
            (None, None) => list_datasets(io, args, &pool, &target)?,
            (None, Some(path)) => {
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
        let shown = String::from_utf8_lossy(name).into_owned();
        if !self.args.long {
            writeln!(self.io.out, "{shown}");
            return;
        }
        let a = node.attr();
        let size = match a.rdev {
            Some((major, minor)) => format!("{major}, {minor}"),
            None => a.size.to_string(),
        };
        let time = jiff::Timestamp::from_second(a.mtime.secs)
            .map_or_else(|_| a.mtime.secs.to_string(), |t| t.strftime("%Y-%m-%d %H:%M").to_string());
        let target = match a.kind {
            FileType::Symlink => match node.readlink() {
                Ok(t) => format!(" -> {}", String::from_utf8_lossy(&t)),
                Err(e) => {
                    self.failed(name, &e);
                    String::new()
                }
            },
            _ => String::new(),
        };
        let mode = mode_text(a.kind, a.mode);
        let (uid, gid) = (a.uid.rid(), a.gid.rid());
        writeln!(self.io.out, "{mode} {:>3} {uid:>6} {gid:>6} {size:>12} {time} {shown}{target}", a.nlink);
    }

    fn failed(&mut self, path: &[u8], e: &dyn std::error::Error) {
        self.whole = false;
        writeln!(self.io.err, "poolhouse ls: {}: {}", String::from_utf8_lossy(path), Chain(e));
    }
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
