//! DSL directories: the nodes of the tree of names.

use crate::dataset::Dataset;
use crate::name::ZFS_MAX_DATASET_NAME_LEN;
use crate::prop::value::PropZap;
use crate::{Dsl, Error, Result};
use ondisk::dsl::DslDirPhys;
use ondisk::{Corrupt, DmuType, ObjNum, crypto_key};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

const WHAT: &str = "DSL directory";

/// An open directory with all directories above it; clones share it (`dsl_dir_t`).
#[derive(Clone)]
pub struct Dir(Arc<Inner>);

struct Inner {
    dsl: Dsl,
    object: ObjNum,
    name: String,
    phys: DslDirPhys,
    /// The object is a ZAP with further fields.
    zapified: bool,
    parent: Option<Dir>,
    props: OnceLock<Arc<PropZap>>,
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir({} = {})", self.0.object, self.0.name)
    }
}

/// Whether objects of this type are ZAPs around their bonus (`DMU_OTN_ZAP_METADATA`).
pub(crate) fn is_zapified(kind: DmuType) -> bool {
    kind.to_disk() == 0xc4
}

impl Dir {
    /// Opens the directory `object` under `parent`.
    pub(crate) fn open(dsl: &Dsl, object: ObjNum, name: String, parent: Option<Dir>) -> Result<Dir> {
        let bad = Error::corrupt(object);
        let shape = |why| bad(Corrupt::Shape { what: WHAT, why });
        if name.len() >= ZFS_MAX_DATASET_NAME_LEN {
            return Err(shape("its name is too long"));
        }
        let dn = dsl.mos().dnode(object)?;
        if dn.bonus_kind() != DmuType::DSL_DIR {
            return Err(shape("its bonus is of another type"));
        }
        let phys = DslDirPhys::decode(dn.bonus()).map_err(&bad)?;
        // A directory has one parent, so the names form a tree whatever the child maps say.
        if phys.parent_obj != parent.as_ref().map_or(0, |p| p.object().0) {
            return Err(shape("it belongs to another parent"));
        }
        let zapified = is_zapified(dn.kind());
        let dsl = dsl.clone();
        Ok(Dir(Arc::new(Inner { dsl, object, name, phys, zapified, parent, props: OnceLock::new() })))
    }

    /// The object of the directory (`dd_object`).
    pub fn object(&self) -> ObjNum {
        self.0.object
    }

    /// The full name (`dsl_dir_name`).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The stored form (`dsl_dir_phys_t`).
    pub fn phys(&self) -> &DslDirPhys {
        &self.0.phys
    }

    /// The directory above (`dd_parent`).
    pub fn parent(&self) -> Option<&Dir> {
        self.0.parent.as_ref()
    }

    /// The datasets of the pool.
    pub fn dsl(&self) -> &Dsl {
        &self.0.dsl
    }

    /// This directory and all above it, up to the root.
    pub fn chain(&self) -> impl Iterator<Item = &Dir> {
        std::iter::successors(Some(self), |d| d.parent())
    }

    /// The first word of a field of its ZAP; `None` without the field.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the ZAP can't be read.
    pub fn field(&self, name: &str) -> Result<Option<u64>> {
        if !self.0.zapified {
            return Ok(None);
        }
        let words = self.0.dsl.mos().words(self.object(), name)?;
        Ok(words.and_then(|w| w.first().copied()))
    }

    /// The object with the wrapped key, if the dataset is encrypted (`dd_crypto_obj`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the directory's ZAP can't be read.
    pub fn crypto_object(&self) -> Result<Option<ObjNum>> {
        Ok(self.field(crypto_key::FIELD)?.filter(|o| *o != 0).map(ObjNum))
    }

    /// The stored properties, read once.
    pub(crate) fn props(&self) -> Result<Arc<PropZap>> {
        if let Some(p) = self.0.props.get() {
            return Ok(p.clone());
        }
        let p = Arc::new(PropZap::read(self.0.dsl.mos(), ObjNum(self.0.phys.props_zapobj))?);
        Ok(self.0.props.get_or_init(|| p).clone())
    }

    /// Drops the blocks with the properties of this directory from the cache, if this handle has
    /// read them. For a caller that opens many datasets, whose properties are not read soon.
    pub fn let_go_of_properties(&self) {
        let object = ObjNum(self.0.phys.props_zapobj);
        if object.0 != 0
            && self.0.props.get().is_some()
            && let Ok(properties) = self.0.dsl.mos().dnode(object)
        {
            properties.let_go();
        }
    }

    /// Names and objects of the children in the order of `dd_child_dir_zapobj`, hidden ones too.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the child map can't be read.
    /// * [`Error::Corrupt`]: an entry is malformed, or a child is listed twice.
    pub fn child_objects(&self) -> Result<Vec<(String, ObjNum)>> {
        self.children()?.collect()
    }

    /// Names and objects of the children, one by one.
    ///
    /// An entry that can't be read does not end the iteration.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the child map can't be opened.
    ///
    /// Each item has the errors of [`Dir::child_objects`].
    pub fn children(&self) -> Result<impl Iterator<Item = Result<(String, ObjNum)>> + use<>> {
        let map = ObjNum(self.0.phys.child_dir_zapobj);
        let shape =
            move |why| Error::Corrupt { object: map, source: Corrupt::Shape { what: "DSL child map", why } };
        let entries = if map.0 == 0 { None } else { Some(self.0.dsl.mos().entries(map)?) };
        let mut seen = BTreeSet::new();
        Ok(entries.into_iter().flatten().map(move |e| {
            let e = e?;
            let name = String::from_utf8(e.name).map_err(|_| shape("a name is not text"))?;
            let object = e.value.as_u64().ok_or_else(|| shape("a child is no object number"))?;
            if name.is_empty() || name.contains('/') {
                return Err(shape("a name is not a component"));
            }
            if !seen.insert(object) {
                return Err(shape("a child is listed twice"));
            }
            Ok((name, ObjNum(object)))
        }))
    }

    /// Opens a child that [`Dir::child_objects`] listed.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the child can't be read.
    /// * [`Error::Corrupt`]: the object is no child of this directory, or its name is too long.
    pub fn open_child(&self, name: &str, object: ObjNum) -> Result<Dir> {
        Dir::open(&self.0.dsl, object, format!("{}/{name}", self.0.name), Some(self.clone()))
    }

    /// Opens the child of this name, if it exists.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the child map or the child can't be read.
    /// * [`Error::Corrupt`]: the child names another parent, or its name is too long.
    pub fn child(&self, name: &str) -> Result<Option<Dir>> {
        let map = ObjNum(self.0.phys.child_dir_zapobj);
        if map.0 == 0 {
            return Ok(None);
        }
        match self.0.dsl.mos().u64(map, name)? {
            None => Ok(None),
            Some(object) => self.open_child(name, ObjNum(object)).map(Some),
        }
    }

    /// The live dataset; `None` for a directory without one (`dd_head_dataset_obj`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the dataset can't be read.
    /// * [`Error::Corrupt`]: it is no live dataset of this directory.
    pub fn head(&self) -> Result<Option<Dataset>> {
        match self.0.phys.head_dataset_obj {
            0 => Ok(None),
            object => Dataset::open(self, ObjNum(object), None).map(Some),
        }
    }

    /// Free bytes by the quotas and reservations of this directory and all above
    /// (`dsl_dir_space_available`).
    pub fn space_available(&self) -> u64 {
        let chain: Vec<&Dir> = self.chain().collect();
        let mut above = u64::MAX;
        for dir in chain.into_iter().rev() {
            let p = dir.phys();
            let mut quota = if p.quota == 0 { u64::MAX } else { p.quota };
            if dir.parent().is_none() {
                quota = quota.min(dir.dsl().space().adjusted());
            }
            // The unused part of this reservation was taken from the parent already.
            if above != u64::MAX {
                above = above.saturating_add(p.reserved.saturating_sub(p.used_bytes));
            }
            above = quota.checked_sub(p.used_bytes).map_or(0, |left| left.min(above));
        }
        above
    }
}
