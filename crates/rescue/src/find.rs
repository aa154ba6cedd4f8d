//! `poolhouse ls --find`: searches a pool's datasets.

use super::args::Args;
use super::held::Held;
use super::target::{self, Error};
use super::{Chain, Io};
use api::files::{Engine, Files, Kind};
use poolhouse::{Pool, dsl};

/// Prints the datasets and snapshots whose name contains `pattern`. A pattern that begins with a
/// slash is a path in them.
///
/// Returns `false` if some could not be read, or if none was found.
///
/// # Errors
/// * [`Error::Pool`]: the datasets of the pool can't be listed.
pub fn run(io: &mut Io, pool: &Pool, pattern: &str) -> Result<bool, Error> {
    let names = pool.dataset_names(true)?;
    let whole = super::report_unlisted(io, &names);
    let matches = |_: &Io, name: &str| {
        let dataset = pool.dataset(name)?;
        if dataset.dsl().head_kind().map_err(poolhouse::Error::from)? == Some(dsl::Kind::Volume) {
            return Ok(None);
        }
        target::check_key(pool, name)?;
        let engine = match dataset.filesystem() {
            Ok(fs) => Engine::files(fs),
            Err(
                poolhouse::Error::File(poolhouse::zpl::Error::NotFileSystem) | poolhouse::Error::Empty { .. },
            ) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        Ok(Some(Box::new(engine) as Box<dyn Files>))
    };
    Ok(print(io, &names.names, pattern, matches) && whole)
}

/// Searches a pool that the daemon holds. Otherwise like [`run`].
///
/// # Errors
/// * [`Error::Daemon`]: the daemon can't list the datasets.
pub fn in_daemon(io: &mut Io, args: &Args, held: &Held, pattern: &str) -> Result<bool, Error> {
    let (names, failures) = held.datasets(io, held.target.pool())?;
    for failure in &failures {
        writeln!(io.err, "poolhouse ls: {failure}");
    }
    let open = |io: &Io, name: &str| {
        let (visit, opened) = held.visit(io, args, name, "ls", false)?;
        Ok(opened.volume.is_none().then(|| Box::new(visit) as Box<dyn Files>))
    };
    Ok(print(io, &names, pattern, open) && failures.is_empty())
}

/// Prints which of these datasets match. Returns `false` if some could not be read, or if none
/// matches.
///
/// `open` provides the files of a dataset, if it has any.
fn print(
    io: &mut Io,
    names: &[String],
    pattern: &str,
    open: impl Fn(&Io, &str) -> Result<Option<Box<dyn Files>>, Error>,
) -> bool {
    let (mut whole, mut found) = (true, 0);
    for name in names {
        if !pattern.starts_with('/') {
            if name.contains(pattern) {
                writeln!(io.out, "{name}");
                found += 1;
            }
            continue;
        }
        match open(io, name).and_then(|files| has_path(files, name, pattern)) {
            Ok(true) => {
                writeln!(io.out, "{name}:{pattern}");
                found += 1;
            }
            Ok(false) => {}
            Err(e) => {
                writeln!(io.err, "poolhouse ls: {name}: {}", Chain(&e));
                whole = false;
            }
        }
    }
    if found == 0 {
        writeln!(io.err, "poolhouse ls: nothing found for {pattern:?}");
    }
    whole && found > 0
}

fn has_path(files: Option<Box<dyn Files>>, dataset: &str, path: &str) -> Result<bool, Error> {
    let Some(mut files) = files else { return Ok(false) };
    match files.resolve(path.as_bytes(), false) {
        Ok(_) => Ok(true),
        Err(fault) if matches!(fault.kind, Kind::NoEntry | Kind::NotFolder) => Ok(false),
        Err(source) => Err(Error::Path { dataset: dataset.to_owned(), path: path.to_owned(), source }),
    }
}
