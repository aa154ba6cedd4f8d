//! The damaged objects of a pool, by name.
//!
//! # See
//! OpenZFS's `zpool_get_errlog`, `zpool_obj_to_path`.

use std::collections::HashMap;

use dsl::Dsl;
use ondisk::ObjNum;
use spa::Spa;
use zpl::{FileSystem, Paths};

/// The mountpoints of file systems, by dataset name.
pub type Mountpoints = HashMap<String, String>;

/// A dataset with damaged objects.
struct Named {
    name: String,
    mountpoint: Option<String>,
    /// The paths of its objects, if it is a readable file system.
    paths: Option<Paths>,
}

impl Named {
    fn of(dsl: &Dsl, dataset: u64, mountpoints: &Mountpoints) -> Option<Named> {
        let found = dsl.by_object(ObjNum(dataset)).ok()?;
        let name = found.name();
        let objset = found.objset().ok().flatten();
        let fs = objset.and_then(|objset| FileSystem::open(&objset).ok());
        let mountpoint = mountpoints.get(&name).cloned();
        Some(Named { name, mountpoint, paths: fs.map(Paths::of) })
    }

    fn object(&mut self, object: u64) -> String {
        let path = self.paths.as_mut().and_then(|paths| paths.path(ObjNum(object)).ok());
        let Some(path) = path else { return format!("{}:<0x{object:x}>", self.name) };
        let path = String::from_utf8_lossy(&path);
        match self.mountpoint.as_deref() {
            Some("/") => path.into_owned(),
            Some(at) => format!("{at}{path}"),
            None => format!("{}:{path}", self.name),
        }
    }
}

/// The damaged objects, as `zpool status -v` names them (`zpool_get_errlog`).
///
/// | object | name |
/// |---|---|
/// | in a mounted file system | its path |
/// | in another readable file system | the dataset's name and its path in that |
/// | other | the numbers |
///
/// # Errors
/// * [`pool::Error`]: the logs of damaged blocks can't be read, or are damaged.
pub fn names(spa: &Spa, dsl: &Dsl, mountpoints: &Mountpoints) -> pool::Result<Vec<String>> {
    let mut last: Option<(u64, Option<Named>)> = None;
    let mut out = Vec::new();
    for (dataset, object) in spa.damaged_objects(dsl.heads())? {
        if dataset == 0 {
            out.push(format!("<metadata>:<0x{object:x}>"));
            continue;
        }
        if last.as_ref().is_none_or(|(of, _)| *of != dataset) {
            last = Some((dataset, Named::of(dsl, dataset, mountpoints)));
        }
        out.push(match last.as_mut().and_then(|(_, named)| named.as_mut()) {
            Some(named) => named.object(object),
            None => format!("<0x{dataset:x}>:<0x{object:x}>"),
        });
    }
    Ok(out)
}
