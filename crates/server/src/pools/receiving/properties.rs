//! The properties of a dataset that is received.
//!
//! # Theory
//! They are set before the data comes, so that they apply to it, and once the stream is accepted. A
//! new dataset disappears with them after a failure. One that exists has its old values put back.
//!
//! Some are set only after the data (`extract_delay_props`): a quota would be in the way of earlier
//! snapshots, for example.
//!
//! A property that can't be set does not stop the receive. It is in the answer.
//!
//! # See
//! OpenZFS `zfs_ioc_recv_impl`.

use api::{Caller, DatasetChange, Error, MountFailure, Reason, ReceiveRequest, Settings};
use dsl::ops::props::{DropReceived, InheritProp, SetAs, SetProps, Setting};
use dsl::prop::parse::Context;
use dsl::prop::{OwnValues, Value};
use dsl::{Dsl, Kind, SyncTask};
use ondisk::{SPA_MAXBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use spa::engine::{PoolWriter, TaskError};

use crate::commands::dataset::tasks::{Planned, settings_in};
use crate::pools::Pools;
use crate::replies::{error_of, of_dsl};

/// What is set after the data only.
const DELAYED: [&str; 3] = ["refquota", "keylocation", "sharesmb"];

/// One step of setting properties.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Set(Setting, SetAs),
    /// Removes the local value. With the flag, a received one holds again.
    Unset(String, bool),
    /// Removes the received value.
    Drop(String),
}

impl Step {
    fn property(&self) -> &str {
        match self {
            Self::Set(set, _) => &set.name,
            Self::Unset(name, _) | Self::Drop(name) => name,
        }
    }

    /// The steps that put back what a step changes.
    fn undo(&self, before: &OwnValues) -> Vec<Step> {
        let name = self.property().to_owned();
        let setting = |value: &Value| Setting { name: name.clone(), value: value.clone() };
        let received = match &before.received {
            Some(value) => Self::Set(setting(value), SetAs::Received),
            None => Self::Drop(name.clone()),
        };
        let local = match &before.local {
            Some(value) => Self::Set(setting(value), SetAs::Local),
            None => Self::Unset(name.clone(), !before.hidden),
        };
        match self {
            Self::Set(_, SetAs::Received) | Self::Drop(_) => vec![received],
            Self::Set(_, SetAs::Local) | Self::Unset(..) => vec![local],
        }
    }

    fn task(&self, name: &str) -> Box<dyn SyncTask + Send> {
        let name = name.to_owned();
        match self.clone() {
            Self::Set(set, source) => Box::new(SetProps { name, props: vec![set], source }),
            Self::Unset(property, received) => Box::new(InheritProp { name, property, received }),
            Self::Drop(property) => Box::new(DropReceived { name, property }),
        }
    }

    /// The change that a mounted file system follows in the same way. It stays where it is: as with
    /// the kernel module, a new mountpoint waits for the next mount.
    fn change(&self, name: &str) -> DatasetChange {
        let props = vec![(self.property().to_owned(), String::new())];
        DatasetChange::Set { name: name.to_owned(), props, keep_mounted: true }
    }
}

/// The properties of one receive.
#[derive(Debug, Default)]
pub(super) struct Properties {
    steps: Vec<Step>,
    /// Those after the data.
    late: Vec<Step>,
    snapshot: Vec<Setting>,
    /// What has been set can be put back with these, the last first.
    undo: Vec<Step>,
    /// What could not be set.
    pub(super) failures: Vec<MountFailure>,
}

impl Properties {
    /// Checks the properties of a request for a dataset of this kind. `may` says which of them the
    /// caller may set.
    ///
    /// # Errors
    /// * [`Reason::Io`], [`Reason::Corrupt`]: the dataset's properties can't be read.
    pub(super) fn of(
        dsl: &Dsl,
        (head, kind): (&str, Kind),
        request: &ReceiveRequest,
        may: &dyn Fn(&str) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut new = Self::default();
        let failed = |error: &dsl::Error| Error::new(head, of_dsl(error));
        let large = dsl.mos().features().map_err(|error| failed(&error.into()))?;
        let large = large.is_enabled("org.open-zfs:large_blocks");
        let max_block = if large { SPA_MAXBLOCKSIZE } else { SPA_OLD_MAXBLOCKSIZE };
        let context = |kind| Context { kind, creating: false, max_block };
        if let Some(received) = &request.received {
            let dataset = match dsl.dataset(head) {
                Ok(dataset) => Some(dataset),
                Err(dsl::Error::NoSuchDataset { .. }) => None,
                Err(error) => return Err(failed(&error)),
            };
            let has = |name: &str| received.iter().any(|(new, _)| new == name);
            let old = dataset.as_ref().map(dsl::Dataset::received_names).transpose();
            let old = old.map_err(|error| failed(&error))?.unwrap_or_default();
            let gone = old.into_iter().filter(|name| !has(name));
            new.steps.extend(gone.map(Step::Drop));
            for set in new.checked(head, context(kind), received) {
                let same = dataset.as_ref().and_then(|dataset| dataset.received(&set.name).ok().flatten());
                if same.as_ref() != Some(&set.value) {
                    new.steps.push(Step::Set(set, SetAs::Received));
                }
            }
        }
        let local = new.checked(head, context(kind), &request.local);
        new.steps.extend(local.into_iter().map(|set| Step::Set(set, SetAs::Local)));
        new.steps.extend(request.inherited.iter().map(|name| Step::Unset(name.clone(), false)));
        new.snapshot = new.checked(head, context(Kind::Snapshot), &request.snapshot);
        new.keep_granted(may);
        let (late, steps) = std::mem::take(&mut new.steps)
            .into_iter()
            .partition(|step| DELAYED.contains(&step.property()) && !matches!(step, Step::Drop(_)));
        (new.late, new.steps) = (late, steps);
        Ok(new)
    }

    /// The properties that can be set. The others become failures.
    fn checked(&mut self, about: &str, context: Context, props: &Settings) -> Vec<Setting> {
        let mut good = Vec::new();
        for pair in props {
            match settings_in(about, context, &vec![pair.clone()]) {
                Ok(set) => good.extend(set),
                Err(error) => self.failed(&pair.0, error),
            }
        }
        good
    }

    /// Turns what the caller may not set into failures.
    pub(super) fn keep_granted(&mut self, may: &dyn Fn(&str) -> Result<(), Error>) {
        let (mut steps, mut late) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.late));
        for steps in [&mut steps, &mut late] {
            steps.retain(|step| match may(step.property()) {
                Ok(()) => true,
                Err(error) => {
                    self.failed(step.property(), error);
                    false
                }
            });
        }
        (self.steps, self.late) = (steps, late);
        // OpenZFS does not report these.
        self.snapshot.retain(|set| may(&set.name).is_ok());
    }

    fn failed(&mut self, property: &str, error: Error) {
        self.failures.push(MountFailure { name: property.to_owned(), error });
    }

    /// Sets the properties of a dataset that was made a moment ago, and is not mounted.
    pub(super) fn begin_new(&mut self, live: &PoolWriter, head: &str) {
        for step in std::mem::take(&mut self.steps) {
            let error = match live.run(step.task(head)) {
                Ok(()) => continue,
                Err(TaskError::Refused(error)) => error_of(head, &error),
                Err(TaskError::Stopped(_)) => Error::new(head, Reason::Suspended),
            };
            self.failed(step.property(), error);
        }
    }

    /// Sets the properties of a dataset that exists.
    pub(super) fn begin(&mut self, pools: &Pools, caller: &Caller, dsl: &Dsl, head: &str) {
        let steps = std::mem::take(&mut self.steps);
        self.run(pools, caller, (dsl, head), steps, true);
    }

    /// Sets what comes after the data, and the snapshot's properties.
    pub(super) fn finish(
        &mut self,
        pools: &Pools,
        caller: &Caller,
        dsl: &Dsl,
        (head, snapshot): (&str, &str),
    ) {
        let steps = std::mem::take(&mut self.late);
        self.run(pools, caller, (dsl, head), steps, false);
        if self.snapshot.is_empty() {
            return;
        }
        let props = std::mem::take(&mut self.snapshot);
        let texts = props.iter().map(|set| (set.name.clone(), String::new())).collect();
        let change = DatasetChange::Set { name: snapshot.to_owned(), props: texts, keep_mounted: true };
        let task = SetProps { name: snapshot.to_owned(), props, source: SetAs::Received };
        // OpenZFS does not report these.
        if let Err(error) =
            pools.change_by(caller, &change, &|_, _, _| Ok(Planned::one(snapshot, task.clone())))
        {
            tracing::warn!(snapshot, %error, "its received properties are not set");
        }
    }

    /// Puts back what a failed receive had changed.
    pub(super) fn put_back(&mut self, pools: &Pools, caller: &Caller, dsl: &Dsl, head: &str) {
        let mut steps = std::mem::take(&mut self.undo);
        steps.reverse();
        self.failures.clear();
        self.run(pools, caller, (dsl, head), steps, false);
        for failure in &self.failures {
            tracing::warn!(dataset = head, property = failure.name, error = %failure.error, "not restored");
        }
    }

    fn run(
        &mut self,
        pools: &Pools,
        caller: &Caller,
        (dsl, head): (&Dsl, &str),
        steps: Vec<Step>,
        undo: bool,
    ) {
        for step in steps {
            let before = dsl.dataset(head).and_then(|dataset| dataset.own_values(step.property()));
            let plan: &crate::pools::datasets::PlanOf<'_> = &|_, _, _| {
                Ok(Planned { tasks: vec![step.task(head)], about: vec![head.to_owned()], made: Vec::new() })
            };
            match pools.change_by(caller, &step.change(head), plan) {
                Ok(_) if undo => self.undo.extend(before.iter().flat_map(|before| step.undo(before))),
                Ok(_) => {}
                Err(error) => self.failed(step.property(), error),
            }
        }
    }
}
