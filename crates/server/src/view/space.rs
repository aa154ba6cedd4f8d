//! The use and quotas of users, groups and projects.

use std::collections::BTreeMap;

use dsl::Dsl;
use zpl::{FileSystem, SpaceKind};

use crate::view::dataset as trouble;
use api::{Error, Prop, Source, SpaceClass, SpaceEntry};

/// The tables of a class: bytes used, byte quota, objects used, object quota.
fn tables(class: SpaceClass) -> [SpaceKind; 4] {
    use SpaceKind as K;
    match class {
        SpaceClass::User => [K::UserUsed, K::UserQuota, K::UserObjUsed, K::UserObjQuota],
        SpaceClass::Group => [K::GroupUsed, K::GroupQuota, K::GroupObjUsed, K::GroupObjQuota],
        SpaceClass::Project => [K::ProjectUsed, K::ProjectQuota, K::ProjectObjUsed, K::ProjectObjQuota],
    }
}

/// The entries of these classes in a file system or a snapshot of one, by id
/// (`zfs_userspace_many`).
///
/// # Errors
/// * [`api::Reason::NoSuchDataset`], [`api::Reason::InvalidName`]: there is no such dataset.
/// * [`api::Reason::BadType`]: it is not a file system.
/// * [`api::Reason::Io`], [`api::Reason::Corrupt`]: it can't be read. Without its key, that is an
///   I/O error.
pub fn space(dsl: &Dsl, dataset: &str, classes: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
    let d = dsl.dataset(dataset).map_err(|e| trouble(dataset, &e))?;
    let Some(objset) = d.objset().map_err(|e| trouble(dataset, &e))? else { return Ok(Vec::new()) };
    let fs = FileSystem::open(&objset).map_err(|e| of_zpl(dataset, &e))?;
    let domains = fs.domains().map_err(|e| of_zpl(dataset, &e))?;
    let mut all = Vec::new();
    for class in [SpaceClass::User, SpaceClass::Group, SpaceClass::Project] {
        if !classes.contains(&class) {
            continue;
        }
        let mut found: BTreeMap<(String, u32), SpaceEntry> = BTreeMap::new();
        for (column, kind) in tables(class).into_iter().enumerate() {
            for s in fs.space(kind).map_err(|e| of_zpl(dataset, &e))? {
                let domain = match (class, s.id.domain()) {
                    (SpaceClass::Project, _) | (_, 0) => String::new(),
                    _ => domains.of(s.id).unwrap_or_default().to_owned(),
                };
                let id = s.id.rid();
                let entry = found.entry((domain.clone(), id)).or_insert_with(|| SpaceEntry {
                    class,
                    domain,
                    id,
                    used: None,
                    quota: None,
                    objused: None,
                    objquota: None,
                });
                match column {
                    0 => entry.used = Some(s.value),
                    1 => entry.quota = Some(s.value),
                    2 => entry.objused = Some(s.value),
                    _ => entry.objquota = Some(s.value),
                }
            }
        }
        all.extend(found.into_values());
    }
    Ok(all)
}

/// The number of files that were removed and are not freed yet (`ZFS_WAIT_DELETEQ`).
///
/// # Errors
/// As those of [`space`].
pub fn unlinked(dsl: &Dsl, dataset: &str) -> Result<u64, Error> {
    let d = dsl.dataset(dataset).map_err(|e| trouble(dataset, &e))?;
    let Some(objset) = d.objset().map_err(|e| trouble(dataset, &e))? else { return Ok(0) };
    let fs = FileSystem::open(&objset).map_err(|e| of_zpl(dataset, &e))?;
    Ok(fs.unlinked().map_err(|e| of_zpl(dataset, &e))?.len() as u64)
}

fn of_zpl(dataset: &str, e: &zpl::Error) -> Error {
    Error::new(dataset, crate::replies::of_zpl(e))
}

/// The class, the column of [`tables`] and the owner in a name such as `userused@1000`
/// (`userquota_propname_decode`).
fn parse(name: &str) -> Option<(SpaceClass, usize, &str)> {
    let (table, who) = name.split_once('@')?;
    let classes =
        [("user", SpaceClass::User), ("group", SpaceClass::Group), ("project", SpaceClass::Project)];
    let (rest, class) =
        classes.into_iter().find_map(|(prefix, class)| Some((table.strip_prefix(prefix)?, class)))?;
    let column = ["used", "quota", "objused", "objquota"].into_iter().position(|c| c == rest)?;
    Some((class, column, who))
}

/// The quota that a name such as `userquota@1000` sets; `None` if it is not such a name.
pub(crate) fn limited(name: &str) -> Option<Limited> {
    let (class, column, who) = parse(name)?;
    let kind = tables(class)[column];
    Some(match class_id(class, who) {
        None => Limited::Nobody,
        Some(_) if column % 2 == 0 => Limited::Counted,
        Some(id) => Limited::By(kind, id),
    })
}

/// The meaning of a name of a quota.
pub(crate) enum Limited {
    /// Its owner does not exist.
    Nobody,
    /// It is a use, which can't be set.
    Counted,
    /// A quota of this user, group or project.
    By(SpaceKind, u32),
}

/// The id of a user, group or project, by name or number.
pub(crate) fn class_id(class: SpaceClass, who: &str) -> Option<u32> {
    match class {
        SpaceClass::User => api::accounts::user_id(who),
        SpaceClass::Group => api::accounts::group_id(who),
        SpaceClass::Project => who.parse().ok(),
    }
}

/// A property such as `userused@1000`, if the file system has that entry.
pub(super) fn userquota(d: &dsl::Dataset, name: &str) -> Option<Prop> {
    let (class, column, who) = parse(name)?;
    let id = class_id(class, who)?;
    let fs = FileSystem::open(&d.objset().ok()??).ok()?;
    let entries = fs.space(tables(class)[column]).ok()?;
    let value = entries.iter().find(|s| s.id.domain() == 0 && s.id.rid() == id).map(|s| s.value);
    let quota = column % 2 == 1;
    let n = value.unwrap_or(0);
    let text = match (quota, n) {
        (true, 0) => "none".to_owned(),
        _ if column < 2 => dsl::prop::text::nicebytes(n),
        _ => dsl::prop::text::nicenum(n),
    };
    Some(Prop::number(name, text, n, Source::Local))
}
