//! The mount plans of many datasets at once.

use crate::replies::of_dsl;
use afs::server::store::is_volume_name;
use api::{Error, MountFailure, Reason};
use dsl::Dsl;
use mount_rules::Plan;
use observe::lock::Mutex;

/// The result of a pass over datasets.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    /// The plans, by name.
    pub(crate) plans: Vec<Plan>,
    /// What could not be read.
    pub(crate) failures: Vec<MountFailure>,
}

/// Reads the plans of a dataset, and with `below` of all below it, in one pass.
///
/// Calls `each` for each dataset that was read. Failures below `start` are in the result. Volumes
/// in the `partitions` of the AFS server are left out: they are mounted by name only, and there may
/// be a million.
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: there is no such dataset.
/// * [`Reason::BadType`]: it is not a file system, or a snapshot of one.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the list can't be read.
pub(crate) fn plans(
    dsl: &Dsl,
    start: Option<&str>,
    below: bool,
    partitions: &[String],
    threads: usize,
    each: &(dyn Fn() + Sync),
) -> Result<Plans, Error> {
    let name = start.unwrap_or(dsl.pool_name());
    let about = |error: dsl::Error| Error::new(name, of_dsl(&error));
    if !below {
        let plan = dsl.dataset(name).and_then(Plan::of).map_err(about)?;
        each();
        return match plan {
            Some(plan) => Ok(Plans { plans: vec![plan], failures: Vec::new() }),
            None => Err(Error::new(name, Reason::BadType)),
        };
    }
    let dir = start.map(|name| dsl.dir(name)).transpose().map_err(about)?;
    let found = Mutex::new(Plans::default());
    let without = Some(dsl::Without { of: partitions, child: is_volume_name });
    let options = dsl::ListOptions { threads, without, ..dsl::ListOptions::default() };
    dsl.list(dir, &options, &|listed| {
        let plan = match listed {
            dsl::Listed::Dataset(dataset) => {
                let name = dataset.name();
                Plan::of(dataset).map_err(|error| (name, error))
            }
            dsl::Listed::Failed { name, error } => Err((name, error)),
        };
        each();
        match plan {
            Ok(Some(plan)) => found.lock().plans.push(plan),
            Ok(None) => {}
            // Its siblings can still be mounted.
            Err((name, error)) => {
                let error = Error::new(&name, of_dsl(&error));
                found.lock().failures.push(MountFailure { name, error });
            }
        }
    })
    .map_err(about)?;
    let mut found = found.into_inner();
    found.plans.sort_by(|a, b| a.name.cmp(&b.name));
    found.failures.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::plans;
    use poolhouse::Pool;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Goal: a pass over a pool opens no volume of the AFS server, except one that is named.
    #[test]
    fn volumes_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("d0");
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let pool = Pool::create("cell", &[&[&image]]).unwrap();
        for name in ["vicepa", "vicepa/7", "vicepa/7/below", "vicepa/other", "8"] {
            pool.create_filesystem(&format!("cell/{name}")).unwrap();
        }
        let read = |start: Option<&str>, below| {
            let (count, partitions) = (AtomicUsize::new(0), ["cell/vicepa".to_owned()]);
            let each = || _ = count.fetch_add(1, Ordering::Relaxed);
            let found = plans(pool.dsl(), start, below, &partitions, 2, &each).unwrap();
            assert!(found.failures.is_empty());
            let names: Vec<_> = found.plans.into_iter().map(|plan| plan.name).collect();
            assert_eq!(count.into_inner(), names.len());
            names
        };
        assert_eq!(read(None, true), ["cell", "cell/8", "cell/vicepa", "cell/vicepa/other"]);
        assert_eq!(read(Some("cell/vicepa/7"), false), ["cell/vicepa/7"]);
        pool.export().unwrap();
    }
}
