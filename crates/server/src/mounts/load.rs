//! What datasets say about mounting them, of many at once.

use crate::faults::of_dsl;
use api::plan::Plan;
use api::{Error, MountFailure, Reason};
use dsl::Dsl;
use parking_lot::Mutex;

/// What a pass over datasets found.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    /// By name.
    pub(crate) plans: Vec<Plan>,
    /// What could not be read.
    pub(crate) failures: Vec<MountFailure>,
}

/// Reads the plans of a dataset, or of all below it too, in one pass; `each` is called for each that was read.
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
            // Its siblings are none the worse.
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
