//! The datasets of a new pool.

use crate::lists::words;
use crate::ops::create::Contents;
use crate::ops::key::NewCrypt;
use crate::ops::props::PropList;
use crate::sync::Syncing;
use crate::{Error, Result};
use dmu::zap::Zap;
use ondisk::mos::{DIRECTORY_OBJECT, FREE_BPOBJ, ROOT_DATASET};
use ondisk::version::{SPA_VERSION_DEADLISTS, SPA_VERSION_ORIGIN};

/// Name of the pool's own directory for the empty snapshot that every first dataset is a clone of (`ORIGIN_DIR_NAME`).
const ORIGIN: &str = "$ORIGIN";

impl crate::Dsl {
    /// Makes the root directory of a new pool, whose MOS has its directory object and nothing of datasets yet; then
    /// [`crate::Dsl::open`] works, and [`Syncing::create_pool_datasets`] does the rest (`dsl_pool_create`).
    ///
    /// # Errors
    /// As writing fails.
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
    /// Makes what a new pool has: `$MOS`, `$FREE` with the list of blocks to free, `$ORIGIN` with its snapshot, and the root dataset. The
    /// features that the pool begins with are enabled already, so that the root dataset can use them.
    ///
    /// # Errors
    /// As writing fails; [`Error::Key`] when the root dataset can't be encrypted so.
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

    /// Makes `$FREE`, and the list of blocks to free.
    pub(super) fn create_free_dir(&mut self, root: u64) -> Result<()> {
        self.create_dir(Some(root), "$FREE")?;
        let free = self.mos().create_bpobj(self.tx)?.0;
        self.zap(DIRECTORY_OBJECT)?.add(self.tx, FREE_BPOBJ.as_bytes(), &words(&[free]))?;
        Ok(())
    }

    /// Makes `$ORIGIN` with its empty snapshot, and returns that (`dsl_pool_create_origin`).
    pub(super) fn create_origin(&mut self, root: u64) -> Result<u64> {
        let dir = self.create_dir(Some(root), ORIGIN)?;
        // Whoever makes a dataset looks for the origin, and must find a whole directory.
        self.flush()?;
        let head = self.create_dataset(dir, None, 0)?;
        self.snapshot_head(head, ORIGIN)?;
        self.flush()?;
        let made = self.dsl.origin_snapshot()?;
        made.ok_or_else(|| Error::NoSuchDataset { name: ORIGIN.to_owned() })
    }
}
