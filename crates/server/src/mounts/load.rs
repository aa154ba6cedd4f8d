//! The mount plans of many datasets at once.

use crate::replies::of_dsl;
use api::{Error, MountFailure, Reason};
use dsl::Dsl;
use mount_rules::Plan;
use parking_lot::Mutex;

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
/// Calls `each` for each dataset that was read. Failures below `start` are in the result.
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: there is no such dataset.
/// * [`Reason::BadType`]: it is not a file system, or a snapshot of one.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the list can't be read.
pub(crate) fn plans(
    dsl: &Dsl,
    start: Option<&str>,
    below: bool,
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
    let options = dsl::ListOptions { threads, ..dsl::ListOptions::default() };
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
