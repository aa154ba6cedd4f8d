//! Where a stream goes, and whether it may.

use api::{Dataset, DatasetChange, DatasetKind as K, Settings};
use ondisk::replay::{features, flags};

use super::begin::Head;
use super::package::Inside;
use super::{CANNOT, Options, refuse};
use crate::cx::{Cx, Stop};
use crate::names;
use crate::zfs::mount_failures;
use crate::zfs::open::{HEADS, below, exists, head_of, open};
use console::words;

/// All that a name can mean, but for bookmarks (`ZFS_TYPE_DATASET`).
const DATASETS: [K; 3] = [K::Filesystem, K::Volume, K::Snapshot];

const NEW: &str = "cannot receive new filesystem stream";
const RESUMED: &str = "cannot receive resume stream";
const INCREMENT: &str = "cannot receive incremental stream";

/// Where a stream goes.
#[derive(Debug)]
pub(super) struct Plan {
    /// The full name of the new snapshot.
    pub(super) snapshot: String,
    /// The snapshot of which the new dataset becomes a clone.
    pub(super) origin: Option<String>,
    /// What an error message begins with.
    pub(super) what: &'static str,
    /// The dataset did not exist, at least not whole.
    pub(super) is_new: bool,
    /// The stream makes a new dataset, or replaces one, from its start (`stream_wantsnewfs`).
    pub(super) wants_new: bool,
    /// An earlier receive into the dataset was interrupted.
    pub(super) has_token: bool,
}

impl Plan {
    /// Decides on the target of a stream, and checks whether it can be received there
    /// (`zfs_receive_one`).
    ///
    /// # Errors
    /// * [`Stop::Fail`]: it can't, or the service can't be reached. That is reported.
    pub(super) fn of(
        cx: &mut Cx,
        options: &Options,
        arg: &str,
        head: &Head,
        inside: Option<&Inside>,
    ) -> Result<Self, Stop> {
        let top = inside.map_or(head.sent(), |inside| &inside.sent);
        let snapshot = match target(options.prefix, options.tail, arg, (&head.name, top)) {
            Ok(snapshot) => snapshot,
            Err(why) => return Err(refuse(cx, CANNOT, why)),
        };
        let is_clone = head.begin.flags & flags::CLONE != 0;
        let origin = origin(cx, options, &snapshot, is_clone.then_some(head.begin.from_guid))?;
        let whole = head.begin.from_guid == 0 || is_clone || options.origin.is_some();
        let resuming = head.has(features::RESUMING);
        let what = match (whole, resuming) {
            (_, true) => RESUMED,
            (true, false) => NEW,
            (false, false) => INCREMENT,
        };
        let wants_new = whole && !resuming;
        let mut plan = Self { snapshot, origin, what, is_new: false, wants_new, has_token: false };
        let below_top = head.name.strip_prefix(top).is_some_and(|tail| tail.starts_with('/'));
        if wants_new {
            plan.near_parent(cx, head, inside)?;
        } else if (options.prefix || options.tail || below_top)
            && !exists(cx, plan.head(), &DATASETS)?
            && let Some(found) = with_guid(cx, &plan.snapshot, head.begin.from_guid)?
        {
            let (_, snap) = plan.snapshot.split_once('@').unwrap_or_default();
            plan.snapshot = format!("{}@{snap}", head_of(&found));
        }
        if options.corrective {
            plan.corrects(cx, options, head)?;
        } else if exists(cx, plan.head(), &DATASETS)? {
            plan.onto(cx, options, head, (whole, resuming))?;
        } else {
            plan.anew(cx, options, arg, wants_new)?;
        }
        Ok(plan)
    }

    /// Moves a new dataset whose parent does not exist below the dataset that has the parent's
    /// snapshot.
    fn near_parent(&mut self, cx: &mut Cx, head: &Head, inside: Option<&Inside>) -> Result<(), Stop> {
        let Some((parent, own)) = self.snapshot.rsplit_once('/') else { return Ok(()) };
        let listed = inside.and_then(|inside| inside.listed(head.begin.to_guid));
        let guid = listed.map_or(0, |(member, _)| member.parent_from);
        if guid == 0 || exists(cx, parent, &DATASETS)? {
            return Ok(());
        }
        if let Some(found) = with_guid(cx, parent, guid)? {
            self.snapshot = format!("{}/{own}", head_of(&found));
        }
        Ok(())
    }

    /// The name of the file system or volume.
    pub(super) fn head(&self) -> &str {
        head_of(&self.snapshot)
    }

    /// Checks a snapshot that is to be corrected.
    fn corrects(&self, cx: &mut Cx, options: &Options, head: &Head) -> Result<(), Stop> {
        let Options { prefix, tail, force, resumable, unmounted, skip_holds, .. } = *options;
        if prefix || tail || force || resumable || unmounted || skip_holds {
            let why = "corrective recv can not be used when combined with this flag";
            return Err(refuse(cx, self.what, why));
        }
        let found = match exists(cx, &self.snapshot, &[K::Snapshot])? {
            true => open(cx, &self.snapshot, &[K::Snapshot], &["guid"])?.number("guid"),
            false => None,
        };
        let why = match found {
            None => "corrective recv must specify an existing snapshot to heal",
            Some(guid) if guid != head.begin.to_guid => {
                "local snapshot doesn't match the snapshot in the provided stream"
            }
            Some(_) => return Ok(()),
        };
        Err(refuse(cx, self.what, why))
    }

    /// Checks a target that exists.
    fn onto(
        &mut self,
        cx: &mut Cx,
        options: &Options,
        head: &Head,
        (whole, resuming): (bool, bool),
    ) -> Result<(), Stop> {
        let (what, name) = (self.what, self.head().to_owned());
        if whole && !resuming {
            if !options.force {
                let why = format!("destination '{name}' exists\nmust specify -F to overwrite it");
                return Err(refuse(cx, what, why));
            }
            may_overwrite(cx, what, &name, head.is_volume())?;
        }
        let props = ["origin", "inconsistent", "encryption", "receive_resume_token"];
        let dataset = open(cx, &name, &HEADS, &props)?;
        let set = |property| {
            dataset.prop(property).map(|p| p.value(true)).filter(|value| !matches!(*value, "" | "-"))
        };
        let partial = dataset.number("inconsistent").is_some_and(|n| n != 0);
        if whole && resuming && !partial && !options.force {
            let why =
                format!("Resuming recv on existing destination '{name}'\nmust specify -F to overwrite it");
            return Err(refuse(cx, what, why));
        }
        if whole && !resuming && set("origin").is_some() {
            let why = format!("destination '{name}' is a clone\nmust destroy it to overwrite it");
            return Err(refuse(cx, what, why));
        }
        let (raw, encrypted) =
            (head.has(features::RAW), set("encryption").is_some_and(|value| value != "off"));
        if (resuming || !whole) && raw && !encrypted {
            let why = "cannot perform raw receive on top of existing unencrypted dataset";
            return Err(refuse(cx, what, why));
        }
        if whole && !resuming && (raw || encrypted) {
            let why = "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an \
                       unencrypted one with an encrypted one";
            return Err(refuse(cx, what, why));
        }
        self.is_new = resuming && partial;
        self.has_token = set("receive_resume_token").is_some();
        Ok(())
    }

    /// Checks a target that does not exist. With `-d`, creates its missing parents.
    fn anew(&mut self, cx: &mut Cx, options: &Options, arg: &str, whole: bool) -> Result<(), Stop> {
        let (what, name) = (self.what, self.head().to_owned());
        let Some((parent, _)) = name.rsplit_once('/').filter(|_| whole) else {
            return Err(refuse(cx, what, format_args!("destination '{name}' does not exist")));
        };
        if options.prefix && !options.dry {
            create_parents(cx, what, arg, parent)?;
        }
        let found = open(cx, parent, &DATASETS, &[]);
        let found = found.map_err(|_| refuse(cx, what, "unable to restore to destination"))?;
        if found.kind != K::Filesystem {
            return Err(refuse(cx, what, format_args!("parent '{parent}' is not a filesystem")));
        }
        self.is_new = true;
        Ok(())
    }
}

/// The full name of the snapshot that a stream becomes.
///
/// # Errors
/// The text of the refusal.
fn target(prefix: bool, tail: bool, arg: &str, (full, top): (&str, &str)) -> Result<String, &'static str> {
    let is_snapshot = arg.contains('@');
    // The streams of a package have names below that of its first dataset.
    let behind = |at: usize| full.get(at..).ok_or("invalid name");
    let added = match (prefix, tail, is_snapshot) {
        (_, true, true) => return Err("invalid argument - snapshot not allowed with -e"),
        (true, _, true) => return Err("invalid argument - snapshot not allowed with -d"),
        (_, true, false) => match top.rfind('/') {
            Some(at) => behind(at)?.to_owned(),
            None => format!("/{full}"),
        },
        (true, false, false) => behind(full.find('/').or(full.find('@')).unwrap_or(full.len()))?.to_owned(),
        (false, false, false) => behind(top.len())?.to_owned(),
        (false, false, true) => String::new(),
    };
    let target = format!("{arg}{added}");
    // No name beside the first dataset's.
    let below = full.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']));
    let valid = below && names::dataset_name_fault(&target, true, false).is_none() && target.contains('@');
    if valid { Ok(target) } else { Err("invalid name") }
}

/// The origin of a clone: the one that was given, or the local snapshot with this guid.
fn origin(cx: &mut Cx, options: &Options, snapshot: &str, guid: Option<u64>) -> Result<Option<String>, Stop> {
    if let Some(given) = &options.origin {
        if options.verbose {
            writeln!(cx.out, "using provided clone origin {given}");
        }
        return Ok(Some(given.clone()));
    }
    let Some(guid) = guid else { return Ok(None) };
    let Some(found) = with_guid(cx, snapshot, guid)? else {
        return Err(refuse(cx, CANNOT, format_args!("local origin for clone {snapshot} does not exist")));
    };
    if options.verbose {
        writeln!(cx.out, "found clone origin {found}");
    }
    Ok(Some(found))
}

/// The snapshot with this guid that is nearest to a name in the tree (`guid_to_name`).
fn with_guid(cx: &mut Cx, near: &str, guid: u64) -> Result<Option<String>, Stop> {
    let pool = &near[..near.find(['/', '@']).unwrap_or(near.len())];
    if !exists(cx, pool, &[K::Filesystem])? {
        return Ok(None);
    }
    let all = below(cx, pool, None, &[K::Snapshot], &["guid"])?;
    let found = all.into_iter().filter(|one| one.number("guid") == Some(guid)).map(|one| one.name);
    // The more parents it shares, the nearer it is. Of those, the shortest path is found first.
    let distance = |name: &String| {
        let (near, name) = (head_of(near).split('/'), head_of(name).split('/'));
        let length = name.clone().count();
        let shared = near.zip(name).take_while(|(one, other)| one == other).count();
        (std::cmp::Reverse(shared), length)
    };
    Ok(found.min_by(|a, b| distance(a).cmp(&distance(b)).then_with(|| a.cmp(b))))
}

/// Refuses to overwrite a dataset that has snapshots, or to replace more than a volume does.
fn may_overwrite(cx: &mut Cx, what: &str, name: &str, by_volume: bool) -> Result<(), Stop> {
    let mut snapshots = below(cx, name, Some(1), &[K::Snapshot], &[])?;
    snapshots.retain(|one| head_of(&one.name) == name);
    if let Some(first) = snapshots.iter().min_by_key(|one| one.createtxg) {
        let why =
            format!("destination has snapshots (eg. {})\nmust destroy them to overwrite it", first.name);
        return Err(refuse(cx, what, why));
    }
    if !by_volume {
        return Ok(());
    }
    if !name.contains('/') {
        let why = format!("destination {name} is the root dataset\ncannot overwrite with a ZVOL");
        return Err(refuse(cx, what, why));
    }
    let mut children: Vec<Dataset> = below(cx, name, Some(1), &HEADS, &[])?;
    children.retain(|one| one.name != name);
    if let Some(first) = children.iter().map(|one| &one.name).min() {
        let why = format!("destination has children (eg. {first})\ncannot overwrite with a ZVOL");
        return Err(refuse(cx, what, why));
    }
    Ok(())
}

/// Creates the missing parents of a target below `top`, and mounts them (`create_parents`).
fn create_parents(cx: &mut Cx, what: &str, top: &str, parent: &str) -> Result<(), Stop> {
    open(cx, top, &[K::Filesystem], &[]).map_err(|_| refuse(cx, what, "unable to restore to destination"))?;
    let ends = parent.match_indices('/').map(|(at, _)| at).filter(|at| *at > top.len());
    let ends: Vec<usize> = ends.chain(std::iter::once(parent.len())).filter(|at| *at > top.len()).collect();
    for end in ends {
        let name = &parent[..end];
        if exists(cx, name, &DATASETS)? {
            continue;
        }
        let change = DatasetChange::Create {
            name: name.to_owned(),
            kind: K::Filesystem,
            props: Settings::new(),
            sparse: false,
            parents: false,
            mount: true,
            key: None,
        };
        let verb = match cx.service()?.change(&change) {
            Ok(changed) => {
                cx.made(name);
                if changed.unmounted.is_empty() {
                    continue;
                }
                let report = api::MountReport { failures: changed.unmounted, ..Default::default() };
                mount_failures(cx, "mount", &report);
                "mount"
            }
            Err(error) => {
                let why = words::reason(&error.reason, &cx.clock);
                refuse(cx, &format!("cannot create '{name}'"), why);
                "create"
            }
        };
        return Err(refuse(cx, what, format_args!("failed to {verb} ancestor '{name}'")));
    }
    Ok(())
}
