//! `poolhouse ls --find`: which dataset was it?

use super::target::Error;
use super::{Chain, Io};
use poolhouse::Pool;

/// Prints the datasets and snapshots whose name holds `pattern`, or that have such a path if it begins with a slash.
/// `Ok(false)` if some could not be looked into, or none was found.
pub fn run(io: &mut Io, pool: &Pool, pattern: &str) -> Result<bool, Error> {
    let names = pool.dataset_names(true)?;
    let mut whole = super::report_unlisted(io, &names);
    let mut found = 0;
    for name in names.names {
        if !pattern.starts_with('/') {
            if name.contains(pattern) {
                writeln!(io.out, "{name}");
                found += 1;
            }
            continue;
        }
        match has_path(pool, &name, pattern) {
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
    Ok(whole && found > 0)
}

fn has_path(pool: &Pool, name: &str, path: &str) -> Result<bool, poolhouse::Error> {
    let fs = match pool.dataset(name)?.filesystem() {
        Ok(fs) => fs,
        Err(
            poolhouse::Error::File(poolhouse::zpl::Error::NotFileSystem) | poolhouse::Error::Empty { .. },
        ) => {
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    match fs.resolve_link(path.as_bytes()) {
        Ok(_) => Ok(true),
        Err(poolhouse::zpl::Error::NoEntry { .. } | poolhouse::zpl::Error::NotDirectory { .. }) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
