//! What users, groups and projects use and may use.

use std::collections::BTreeMap;

use dsl::Dsl;
use zpl::{FileSystem, SpaceKind};

use super::{dataset as trouble, engine};
use crate::api::{Error, Prop, Reason, Source, SpaceClass, SpaceEntry};

/// The tables of a class: bytes used, byte quota, objects used, object quota.
fn tables(class: SpaceClass) -> [SpaceKind; 4] {
    use SpaceKind as K;
    match class {
        SpaceClass::User => [K::UserUsed, K::UserQuota, K::UserObjUsed, K::UserObjQuota],
        SpaceClass::Group => [K::GroupUsed, K::GroupQuota, K::GroupObjUsed, K::GroupObjQuota],
        SpaceClass::Project => [K::ProjectUsed, K::ProjectQuota, K::ProjectObjUsed, K::ProjectObjQuota],
    }
}

/// The entries of these classes in a file system or a snapshot of one, by id.
///
/// # Errors
/// [`Reason::NoSuchDataset`], [`Reason::BadType`] for a volume, [`Reason::KeyNotLoaded`]; a failure to read.
pub fn space(dsl: &Dsl, dataset: &str, classes: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
    let d = dsl.dataset(dataset).map_err(|e| trouble(dataset, &e))?;
    let Some(objset) = d.objset().map_err(|e| trouble(dataset, &e))? else { return Ok(Vec::new()) };
    let fs = FileSystem::open(&objset).map_err(|e| of_zpl(dataset, &e))?;
    let domains = fs.domains().map_err(|e| of_zpl(dataset, &e))?;
    let mut all = Vec::new();
    for &class in classes {
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

fn of_zpl(dataset: &str, e: &zpl::Error) -> Error {
    match e {
        zpl::Error::NotFileSystem => Error::new(dataset, Reason::BadType),
        e => engine(dataset, e),
    }
}

/// A property of the kind `userused@1000`, if the name is one and the file system has that entry.
pub(super) fn userquota(d: &dsl::Dataset, name: &str) -> Option<Prop> {
    let (table, who) = name.split_once('@')?;
    let class = match table {
        t if t.starts_with("user") => SpaceClass::User,
        t if t.starts_with("group") => SpaceClass::Group,
        t if t.starts_with("project") => SpaceClass::Project,
        _ => return None,
    };
    let column =
        match table.trim_start_matches("user").trim_start_matches("group").trim_start_matches("project") {
            "used" => 0,
            "quota" => 1,
            "objused" => 2,
            "objquota" => 3,
            _ => return None,
        };
    let id: u32 = who.parse().ok()?;
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
