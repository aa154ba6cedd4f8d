//! Another encryption root for keys that were received as they are.
//!
//! # Theory
//! A raw stream brings the wrapped keys of its dataset, and does not say whose key wraps them. So a
//! new dataset becomes an encryption root at first. The commands know the sender's tree, and have
//! the datasets take the roots that they have there. Nothing is wrapped again, so no key is needed.
//!
//! # See
//! OpenZFS `DCP_CMD_FORCE_NEW_KEY`, `DCP_CMD_FORCE_INHERIT`, `recv_fix_encryption_hierarchy`.

use crate::error::KeyRefusal;
use crate::keys::read_wrapped;
use crate::mos_objects::words;
use crate::ops::props::{SetAs, Setting};
use crate::prop::{Prop, Value};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Result};
use ondisk::ObjNum;
use ondisk::crypto_key as ck;

/// Makes a dataset an encryption root, or has it take its parent's, without wrapping its keys
/// again.
///
/// The keys of datasets below that have the same root move with it.
#[derive(Debug, Clone)]
pub struct MoveKeys {
    /// The dataset's full name.
    pub name: String,
    /// It becomes an encryption root. Otherwise it takes its parent's root.
    pub own: bool,
}

impl MoveKeys {
    fn refuse<T>(&self, why: KeyRefusal) -> Result<T> {
        Err(Error::Key { name: self.name.clone(), why })
    }

    /// The directory, and the old and the new encryption root.
    fn roots(&self, s: &mut Syncing<'_>) -> Result<(u64, u64, u64)> {
        let dir = s.hold_dir(&self.name)?;
        let Some(object) = s.crypto_object(dir)? else { return self.refuse(KeyRefusal::NotEncrypted) };
        let root = s.key_root(object)?;
        if self.own {
            return Ok((dir, root, dir));
        }
        let parent = s.dir(dir)?.parent_obj;
        match s.crypto_object(parent)? {
            Some(above) => Ok((dir, root, s.key_root(above)?)),
            None => self.refuse(KeyRefusal::NoParentRoot),
        }
    }
}

impl SyncTask for MoveKeys {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(1)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (dir, root, to) = self.roots(s)?;
        let origin = s.dir(dir)?.origin_obj;
        if s.origin_txg(origin)? != 0 {
            return self.refuse(KeyRefusal::Clone);
        }
        match (self.own, root == dir, to == dir) {
            (true, true, _) => return self.refuse(KeyRefusal::IsRoot),
            (false, false, _) => return self.refuse(KeyRefusal::NotRoot),
            // After a promotion the parent may be a clone of its child.
            (false, true, true) => return self.refuse(KeyRefusal::KeyOfParent),
            _ => {}
        }
        // What a loaded key does not open could never be read under it.
        let key = s.dsl.keys().root(to);
        for object in s.keys_under(root, dir)?.into_keys().map(ObjNum) {
            let (_, wrapped) = read_wrapped(s.dsl, object)?;
            if key.as_ref().is_some_and(|key| key.unwrap(&wrapped).is_err()) {
                return self.refuse(KeyRefusal::OtherKey);
            }
        }
        Ok(())
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (dir, root, to) = self.roots(s)?;
        for object in s.keys_under(root, dir)?.into_keys() {
            s.zap(object)?.update(s.tx, ck::ROOT_DDOBJ.as_bytes(), &words(&[to]))?;
            s.dsl.keys().moved(object, to);
        }
        s.keys = None;
        if self.own {
            let (name, value) = (Prop::Keylocation.name().to_owned(), Value::Text("prompt".to_owned()));
            return s.store_prop(dir, &Setting { name, value }, SetAs::Local);
        }
        s.dsl.keys().forget_root(dir);
        s.remove_prop(dir, Prop::Keylocation.name())
    }
}
