//! The datasets of a new pool.

use crate::mos_objects::words;
use crate::ops::create::Contents;
use crate::ops::key::NewCrypt;
use crate::ops::props::PropList;
use crate::sync::Syncing;
use crate::{Error, Result};
use dmu::zap::Zap;
use ondisk::mos::{DIRECTORY_OBJECT, FREE_BPOBJ, ROOT_DATASET};
use ondisk::version::{SPA_VERSION_DEADLISTS, SPA_VERSION_ORIGIN};

/// The directory of the empty snapshot that is every dataset's first origin (`ORIGIN_DIR_NAME`).
const ORIGIN: &str = "$ORIGIN";

impl crate::Dsl {
    /// Creates the root directory of a new pool (`dsl_pool_create`).
    ///
    /// The MOS has its directory object, and nothing of datasets yet. After this,
    /// [`crate::Dsl::open`] works. [`Syncing::create_pool_datasets`] creates the rest.
    ///
    /// # Errors
    /// * [Writing](Error#writing): an object can't be created.
    pub fn create_root_dir(mos: &pool::Mos, tx: &dmu::Tx, now: u64) -> Result<()> {
        use ondisk::dsl::DslDirPhys;
        use ondisk::{DmuType, ObjNum};
        let os = mos.objset();
        let zap = |kind| Zap::create_kind(os, tx, kind).map(|z| z.dnode().object().0);
        let phys = DslDirPhys {
            creation_time: now,
            props_zapobj: zap(DmuType::DSL_PROPS)?,
            child_dir_zapobj: zap(DmuType::DSL_DIR_CHILD_MAP)?,
            flags: super::create::breakdown(mos.version()),
            ..DslDirPhys::default()
        };
        let spec = dmu::NewObject::new(DmuType::DSL_DIR).with_bonus(DmuType::DSL_DIR, phys.encode().to_vec());
        let root = os.create_object(tx, &spec)?.object();
        mos.zap(ObjNum(DIRECTORY_OBJECT))?.add(tx, ROOT_DATASET.as_bytes(), &words(&[root.0]))?;
        Ok(())
    }
}

impl Syncing<'_> {
    /// Creates the datasets of a new pool (`dsl_pool_create`).
    ///
    /// | name | content |
    /// |---|---|
    /// | `$MOS` | the space of the MOS |
    /// | `$FREE` | with the list of blocks to free |
    /// | `$ORIGIN` | with its empty snapshot |
    /// | the pool's name | the root dataset |
    ///
    /// The pool's first features are already enabled, so the root dataset can use them.
    ///
    /// # Errors
    /// * [Writing](Error#writing): an object can't be created.
    /// * [`Error::Key`]: the root dataset can't be encrypted this way.
    /// * [`Error::Refused`]: the contents are no file system or volume.
    /// * [`Error::Contents`]: the contents can't be written.
    pub fn create_pool_datasets(
        &mut self,
        contents: &dyn Contents,
        props: &PropList,
        crypt: Option<&NewCrypt>,
    ) -> Result<()> {
        let root = self.dsl.root_object().0;
        self.create_dir(Some(root), "$MOS")?;
        if self.version() >= SPA_VERSION_DEADLISTS {
            self.create_free_dir(root)?;
        }
        if self.version() >= SPA_VERSION_ORIGIN {
            self.create_origin(root)?;
        }
        let name = self.dsl.pool_name().to_owned();
        let ds = self.create_dataset(root, None, 0)?;
        self.check_new_key(0, &name, crypt)?;
        self.create_key(root, ds, &name, crypt)?;
        self.create_contents(ds, contents, &name)?;
        self.set_new_props(root, props)?;
        self.log("create", &name, ds, String::new());
        Ok(())
    }

    /// Creates `$FREE`, and the list of blocks to free.
    pub(super) fn create_free_dir(&mut self, root: u64) -> Result<()> {
        self.create_dir(Some(root), "$FREE")?;
        let free = self.mos().create_bpobj(self.tx)?.0;
        self.zap(DIRECTORY_OBJECT)?.add(self.tx, FREE_BPOBJ.as_bytes(), &words(&[free]))?;
        Ok(())
    }

    /// Creates `$ORIGIN` with its empty snapshot, and returns the snapshot
    /// (`dsl_pool_create_origin`).
    pub(super) fn create_origin(&mut self, root: u64) -> Result<u64> {
        let dir = self.create_dir(Some(root), ORIGIN)?;
        // Creating a dataset looks up the origin, and must find a complete directory.
        self.flush()?;
        let head = self.create_dataset(dir, None, 0)?;
        // Every dataset must be born after the origin.
        self.snapshot_head_at(head, ORIGIN, 1)?;
        self.flush()?;
        let made = self.dsl.origin_snapshot()?;
        made.ok_or_else(|| Error::NoSuchDataset { name: ORIGIN.to_owned() })
    }
}
