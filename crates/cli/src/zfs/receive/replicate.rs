//! What was destroyed, renamed and promoted at the sender since the last package
//! (`recv_incremental_replication`).
//!
//! # Theory
//! Datasets and snapshots are recognized by the guids of snapshots. What the sender no longer has
//! is destroyed with `-F`. What can't be destroyed or renamed yet gets a temporary name, which is
//! `recv-` and two numbers. The next pass tries it again.

use std::collections::HashSet;

use api::{DatasetChange, Error, Reason};
use rustix::io::Errno;

use super::Options;
use crate::cx::{Cx, Stop};
use crate::zfs::open::exists;
use crate::zfs::package::gather::{Tree, Wish, gather};
use crate::zfs::package::{ByGuid, Member, Package, Snap, texts};

/// Most passes. Each makes progress; this bounds what a hostile list can cause.
const PASSES: u32 = 1000;

/// Makes the tree below `top` like that of the sender. Returns whether all of it is.
pub(super) fn replicate(cx: &mut Cx, options: &Options, top: &str, package: &Package, sent: &ByGuid) -> bool {
    if options.dry {
        return true;
    }
    let from = package.from.as_deref().unwrap_or_default();
    let mut names = 0;
    for number in 0..PASSES {
        let mut pass = Pass {
            options,
            top,
            from,
            sent: (&package.members, sent),
            deleted: HashSet::new(),
            names,
            first: number == 0,
            again: false,
            progress: false,
        };
        if pass.run(cx).is_err() {
            return false;
        }
        names = pass.names;
        if !(pass.again && pass.progress) {
            return !pass.again;
        }
        if options.verbose {
            cx.out.put("another pass:\n");
        }
    }
    false
}

/// Snapshots whose properties one request sets.
const AT_ONCE: usize = 256;

struct Pass<'a> {
    options: &'a Options,
    /// The topmost dataset here.
    top: &'a str,
    /// The snapshot that the package builds on, without its dataset.
    from: &'a str,
    /// The members of the package.
    sent: (&'a [Member], &'a ByGuid),
    /// Guids of what was destroyed: of snapshots, and for datasets that of the parent's snapshot.
    deleted: HashSet<u64>,
    /// How many temporary names there are.
    names: u32,
    /// This is the first pass, which sets the properties of snapshots.
    first: bool,
    /// Something is left to do.
    again: bool,
    /// Something was done.
    progress: bool,
}

impl Pass<'_> {
    /// Goes once through the tree.
    fn run(&mut self, cx: &mut Cx) -> Result<(), Stop> {
        let tree = Tree::read(cx, self.top, true)?;
        let from = Some(self.from);
        let wish = Wish { top: self.top, from, recursive: true, raw: true, ..Wish::default() };
        let local = gather(cx, &tree, &wish)?;
        let places = ByGuid::of(&local);
        for member in &local {
            if self.one(cx, &tree, member, (&local, &places))? {
                break;
            }
        }
        Ok(())
    }

    fn note(&mut self, done: bool) {
        if done {
            self.progress = true;
        } else {
            self.again = true;
        }
    }

    /// The package's member that has a snapshot, and the snapshot's name there.
    fn sent(&self, guid: u64) -> Option<(&Member, &str)> {
        let (at, of) = self.sent.1.find(guid)?;
        let member = self.sent.0.get(at)?;
        Some((member, &member.snaps.get(of)?.name))
    }

    /// Handles one dataset. Returns whether this pass must end.
    fn one(
        &mut self,
        cx: &mut Cx,
        tree: &Tree,
        local: &Member,
        here: (&[Member], &ByGuid),
    ) -> Result<bool, Stop> {
        let origin = local.origin.unwrap_or(0);
        let found = local.snaps.iter().find_map(|snap| self.sent(snap.guid));
        let sent_origin = found.map(|(member, _)| member.origin.unwrap_or(0));
        if let Some(sent_origin) = sent_origin.filter(|guid| *guid != origin) {
            if was_promoted(tree, here, sent_origin, origin)? {
                let promoted = self.promote(cx, &local.name);
                self.progress |= promoted;
            }
            // Its list of snapshots is wrong until the next pass.
            self.again = true;
            return Ok(false);
        }
        let Some((member, has_from)) = self.snapshots(cx, local) else {
            if self.options.force {
                let done = self.destroy(cx, &local.name, self.top.len() + 1);
                self.note(done);
                self.deleted.insert(local.parent_from);
            }
            return Ok(false);
        };
        let (sent_name, sent_parent) = (member.name.clone(), member.parent_from);
        if !has_from {
            if self.options.verbose {
                writeln!(
                    cx.out,
                    "local fs {} does not have fromsnap ({} in stream); must have been deleted locally; ignoring",
                    local.name, self.from
                );
            }
            return Ok(false);
        }
        Ok(self.place(cx, local, here, (&sent_name, sent_parent)))
    }

    /// Destroys and renames the snapshots of a dataset. Returns the package's member for it, and
    /// whether it has the snapshot on which the package builds.
    fn snapshots(&mut self, cx: &mut Cx, local: &Member) -> Option<(&Member, bool)> {
        if self.first {
            self.set_props(cx, local);
        }
        let (mut last, mut has_from) = (None, false);
        let base = local.name.len() + 1;
        for snap in &local.snaps {
            let name = format!("{}@{}", local.name, snap.name);
            let Some(new) = self.sent(snap.guid).map(|(_, new)| new.to_owned()) else {
                if self.options.force {
                    let done = self.destroy(cx, &name, base);
                    self.note(done);
                    self.deleted.insert(snap.guid);
                }
                continue;
            };
            last = Some(snap.guid);
            if snap.name != new {
                let done = self.rename(cx, &name, Some(&format!("{}@{new}", local.name)), base);
                self.note(done);
            }
            has_from |= new == self.from;
        }
        let (member, _) = self.sent(last?)?;
        Some((member, has_from))
    }

    /// Sets the properties that the package lists for snapshots that are here already. As in
    /// OpenZFS, failures are not reported.
    fn set_props(&self, cx: &mut Cx, local: &Member) {
        let listed = |snap: &Snap| {
            let (at, of) = self.sent.1.find(snap.guid)?;
            let props = self.sent.0.get(at)?.snaps.get(of)?.props.as_ref()?;
            Some((format!("{}@{}", local.name, snap.name), texts(props)))
        };
        let all: Vec<_> = local.snaps.iter().filter_map(listed).collect();
        for some in all.chunks(AT_ONCE) {
            let _ = Self::change(cx, &local.name, &DatasetChange::SetReceived { snapshots: some.to_vec() });
        }
    }

    /// Renames a dataset that has another name or parent at the sender. Returns whether this pass
    /// must end.
    fn place(
        &mut self,
        cx: &mut Cx,
        local: &Member,
        (members, places): (&[Member], &ByGuid),
        (sent_name, sent_parent): (&str, u64),
    ) -> bool {
        let moved = sent_parent != 0 && local.parent_from != 0 && sent_parent != local.parent_from;
        if moved && self.deleted.contains(&local.parent_from) {
            // Its parent was destroyed a moment ago, so its place is not known yet.
            (self.progress, self.again) = (true, true);
            return true;
        }
        let tail = |name: &str| name.rfind('/').map(|at| name[at..].to_owned());
        let (here, there) = (tail(&local.name), tail(sent_name));
        // The target that was named on the command line keeps its name.
        let may_differ = self.top == local.name && !self.options.prefix && !self.options.tail;
        let renamed = !may_differ && here.is_some() && there.is_some() && here != there;
        if !moved && !renamed {
            return false;
        }
        let parent = places.find(sent_parent).and_then(|(at, _)| members.get(at));
        let new = match (parent, there) {
            (Some(parent), Some(there)) => format!("{}{there}", parent.name),
            _ => {
                if self.options.verbose {
                    writeln!(cx.out, "local fs {} new parent not found", local.name);
                }
                String::new()
            }
        };
        let done = self.rename(cx, &local.name, Some(&new), self.top.len() + 1);
        self.note(done);
        false
    }

    /// Requests a change, and notes it for the history.
    fn change(cx: &mut Cx, name: &str, change: &DatasetChange) -> Result<(), i32> {
        let service = cx.service().map_err(|_| Errno::IO.raw_os_error())?;
        let changed = service.change(change).map_err(|error| number(&error))?;
        // Of a destroy, what could not be destroyed. Of a rename, only what is not mounted again.
        let destroys = matches!(change, DatasetChange::Destroy { .. });
        if let Some(failure) = changed.failures.first().filter(|_| destroys) {
            return Err(number(&failure.error));
        }
        cx.made(name);
        Ok(())
    }

    fn promote(&self, cx: &mut Cx, name: &str) -> bool {
        if self.options.verbose {
            writeln!(cx.out, "promoting {name}");
        }
        Self::change(cx, name, &DatasetChange::Promote { name: name.to_owned() }).is_ok()
    }

    /// Destroys a dataset or snapshot. What can't be destroyed gets a temporary name
    /// (`recv_destroy`). Returns whether it is destroyed.
    fn destroy(&mut self, cx: &mut Cx, name: &str, base: usize) -> bool {
        let is_snapshot = name.contains('@');
        if self.options.verbose {
            writeln!(cx.out, "attempting destroy {name}");
        }
        let names = vec![name.to_owned()];
        let change = DatasetChange::Destroy { names, force: self.options.force, defer: is_snapshot };
        let done = Self::change(cx, name, &change).is_ok();
        if done && self.options.verbose {
            cx.out.put("success\n");
        }
        // A snapshot in use is only marked.
        let kinds = [api::DatasetKind::Snapshot];
        if done && !(is_snapshot && exists(cx, name, &kinds).unwrap_or(true)) {
            return true;
        }
        self.rename(cx, name, None, base);
        false
    }

    /// Renames a dataset or snapshot, or gives it a temporary name (`recv_rename`). Returns whether
    /// it has its new name.
    fn rename(&mut self, cx: &mut Cx, name: &str, new: Option<&str>, base: usize) -> bool {
        let verbose = self.options.verbose;
        let renamed = match new {
            None => Err(Errno::NOENT.raw_os_error()),
            Some(new) => {
                if verbose {
                    writeln!(cx.out, "attempting rename {name} to {new}");
                }
                self.rename_once(cx, name, new)
            }
        };
        let (above, own) = name.split_at_checked(base).unwrap_or((name, ""));
        if renamed.is_err() && !own.starts_with("recv-") {
            self.names += 1;
            let new = format!("{above}recv-{}-{}", std::process::id(), self.names);
            if verbose {
                writeln!(cx.out, "failed - trying rename {name} to {new}");
            }
            if let Err(number) = self.rename_once(cx, name, &new)
                && verbose
            {
                writeln!(cx.out, "failed ({number}) - will try again on next pass");
            }
        } else if verbose {
            match renamed {
                Ok(()) => cx.out.put("success\n"),
                Err(number) => writeln!(cx.out, "failed ({number})"),
            }
        }
        renamed.is_ok()
    }

    fn rename_once(&self, cx: &mut Cx, from: &str, to: &str) -> Result<(), i32> {
        let change = match (from.split_once('@'), to.split_once('@')) {
            (Some((dataset, from)), Some((_, to))) => DatasetChange::RenameSnapshot {
                dataset: dataset.to_owned(),
                from: from.to_owned(),
                to: to.to_owned(),
                recursive: false,
            },
            _ if to.is_empty() => return Err(Errno::INVAL.raw_os_error()),
            _ => DatasetChange::Rename {
                from: from.to_owned(),
                to: to.to_owned(),
                parents: false,
                keep_mounted: false,
                force: self.options.force,
            },
        };
        Self::change(cx, from, &change)
    }
}

/// Whether the origin that a clone has at the sender is newer than its origin here, so that the
/// clone was promoted there (`created_before`).
///
/// # Errors
/// * [`Stop::Fail`]: it is older. No promotion leads there.
fn was_promoted(
    tree: &Tree,
    (members, places): (&[Member], &ByGuid),
    sent: u64,
    local: u64,
) -> Result<bool, Stop> {
    if local == 0 {
        return Ok(false);
    }
    if sent == 0 {
        return Ok(true);
    }
    let txg = |guid: u64| {
        let (at, of) = places.find(guid)?;
        let member = members.get(at)?;
        Some(tree.head(&member.name)?.snap(&member.snaps.get(of)?.name)?.txg)
    };
    match (txg(sent), txg(local)) {
        (Some(sent), Some(local)) if sent >= local => Ok(sent > local),
        _ => Err(Stop::Fail(1)),
    }
}

/// The system's number for an error.
fn number(error: &Error) -> i32 {
    let errno = match &error.reason {
        Reason::System { errno } => return *errno,
        Reason::NoSuchDataset => Errno::NOENT,
        Reason::Refused { why: api::Refusal::Exists } => Errno::EXIST,
        _ => Errno::BUSY,
    };
    errno.raw_os_error()
}
