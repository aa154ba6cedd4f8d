//! The error logs: damaged blocks that were found.
//!
//! # On disk
//! The MOS directory names two logs (`errlog_last`, `errlog_scrub`; 0 means none). The values of
//! their entries are empty strings.
//!
//! | feature `head_errlog` | form of a log |
//! |---|---|
//! | disabled | a ZAP whose names are bookmarks |
//! | enabled | a ZAP of ZAPs, one for each head dataset in which blocks were found |
//!
//! With `head_errlog`, the names have the birth of the block, which shows later which other
//! datasets have it.
//!
//! # See
//! OpenZFS `module/zfs/spa_errlog.c`.

use std::collections::BTreeMap;

use crate::{Mos, Result};
use dmu::Tx;
use ondisk::scan::ErrBookmark;
use ondisk::{DmuType, ObjNum, mos};

/// One of the two error logs. A scrub fills one, and at its end turns it into the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrLog {
    /// Errors that were found since the end of the last scrub (`spa_errlog_last`).
    Last,
    /// Errors of the running scrub (`spa_errlog_scrub`).
    Scrub,
}

impl ErrLog {
    /// Its name in the MOS directory.
    fn name(self) -> &'static str {
        match self {
            ErrLog::Last => mos::ERRLOG_LAST,
            ErrLog::Scrub => mos::ERRLOG_SCRUB,
        }
    }
}

impl Mos {
    /// The entries of an error log (`spa_get_errlog`).
    ///
    /// With the feature `head_errlog`, the log is a ZAP for each head dataset, and the bookmarks
    /// have births. A name that is no bookmark is skipped, so that damage of the log does not hide
    /// the rest of it.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn errlog(&self, which: ErrLog, head_errlog: bool) -> Result<Vec<ErrBookmark>> {
        let Some(log) = self.dir(which.name())? else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        if !head_errlog {
            for e in self.entries(log)? {
                out.extend(ErrBookmark::parse(&e?.name));
            }
        } else {
            for (head, inner) in self.errlog_heads(log)? {
                for e in self.entries(inner)? {
                    out.extend(ErrBookmark::parse_head(head, &e?.name));
                }
            }
        }
        out.sort_unstable();
        Ok(out)
    }

    /// The number of entries of a log (`spa_approx_errlog_size`).
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn errlog_count(&self, which: ErrLog, head_errlog: bool) -> Result<u64> {
        let Some(log) = self.dir(which.name())? else { return Ok(0) };
        if !head_errlog {
            return Ok(self.zap(log)?.count()?);
        }
        let mut sum = 0u64;
        for (_, inner) in self.errlog_heads(log)? {
            sum = sum.saturating_add(self.zap(inner)?.count()?);
        }
        Ok(sum)
    }

    /// The logs of the head datasets within a log. An entry that names no dataset, or leads to no
    /// log, is skipped.
    fn errlog_heads(&self, log: ObjNum) -> Result<Vec<(u64, ObjNum)>> {
        let mut out = Vec::new();
        for e in self.entries(log)? {
            let e = e?;
            let inner = ObjNum(e.value.first().unwrap_or(0));
            if let Ok(head) = u64::from_str_radix(&e.name_lossy(), 16)
                && self.is_errlog(inner)
            {
                out.push((head, inner));
            }
        }
        Ok(out)
    }

    fn is_errlog(&self, object: ObjNum) -> bool {
        self.objset().dnode(object).is_ok_and(|dnode| dnode.kind() == DmuType::ERROR_LOG)
    }

    /// Frees objects of an error log, and no other objects, whatever a damaged log claims. An
    /// object that can't be freed stays, because nothing may refer to it any more.
    fn errlog_discard(&self, tx: &Tx, objects: &[ObjNum]) {
        for object in objects.iter().filter(|object| self.is_errlog(**object)) {
            let _ = self.objset().free_object(tx, *object);
        }
    }

    /// Removes the entries of a head dataset that was destroyed (`spa_delete_dataset_errlog`). A
    /// damaged log keeps them.
    pub fn errlog_forget(&self, tx: &Tx, head: u64) {
        for which in [ErrLog::Last, ErrLog::Scrub] {
            let key = format!("{head:x}");
            let Ok(Some(log)) = self.dir(which.name()) else { continue };
            let Ok(Some(inner)) = self.u64(log, &key) else { continue };
            if self.unset(tx, log, &key).is_ok() {
                self.errlog_discard(tx, &[ObjNum(inner)]);
            }
        }
    }

    /// Adds blocks to a log, which is created if there is none (`sync_error_list`).
    ///
    /// Entries with births are added by their head dataset, in the form of `head_errlog`. All
    /// entries must have the same form.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn errlog_add(&self, tx: &Tx, which: ErrLog, entries: &[ErrBookmark]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let log = self.errlog_or_new(tx, which)?;
        let mut inner: BTreeMap<u64, ObjNum> = BTreeMap::new();
        for e in entries {
            let zap = match (e.birth, inner.get(&e.objset)) {
                (None, _) => log,
                (Some(_), Some(zap)) => *zap,
                (Some(_), None) => {
                    let zap = self.errlog_of(tx, log, e.objset)?;
                    inner.insert(e.objset, zap);
                    zap
                }
            };
            self.set_string(tx, zap, &e.entry_name(), "")?;
        }
        Ok(())
    }

    fn errlog_or_new(&self, tx: &Tx, which: ErrLog) -> Result<ObjNum> {
        if let Some(log) = self.dir(which.name())? {
            return Ok(log);
        }
        let log = self.create_zap_of(tx, DmuType::ERROR_LOG)?;
        self.set_dir_words(tx, which.name(), &[log.0])?;
        Ok(log)
    }

    /// The log of a head dataset within a log, created if there is none.
    fn errlog_of(&self, tx: &Tx, log: ObjNum, head: u64) -> Result<ObjNum> {
        let key = format!("{head:x}");
        if let Some(zap) = self.u64(log, &key)? {
            return Ok(ObjNum(zap));
        }
        let zap = self.create_zap_of(tx, DmuType::ERROR_LOG)?;
        self.set_word(tx, log, &key, zap.0)?;
        Ok(zap)
    }

    /// Removes the blocks of `entries` from a log, as far as it has them
    /// (`spa_remove_healed_errors`).
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn errlog_remove(&self, tx: &Tx, which: ErrLog, entries: &[ErrBookmark]) -> Result<()> {
        let Some(log) = self.dir(which.name())? else { return Ok(()) };
        for e in entries {
            let zap = match e.birth {
                None => log,
                Some(_) => match self.u64(log, &format!("{:x}", e.objset))? {
                    Some(zap) => ObjNum(zap),
                    None => continue,
                },
            };
            let name = e.entry_name();
            if self.value(zap, &name)?.is_some() {
                self.unset(tx, zap, &name)?;
            }
        }
        Ok(())
    }

    /// Replaces the log of the last scrub with that of the ended scrub, and frees the old one
    /// (`spa_errlog_rotate`).
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn errlog_rotate(&self, tx: &Tx, head_errlog: bool) -> Result<()> {
        let old = self.errlog_objects(ErrLog::Last, head_errlog);
        let scrub = self.dir(ErrLog::Scrub.name())?;
        self.set_dir_words(tx, ErrLog::Last.name(), &[scrub.map_or(0, |log| log.0)])?;
        self.set_dir_words(tx, ErrLog::Scrub.name(), &[0])?;
        self.errlog_discard(tx, &old);
        Ok(())
    }

    /// Adds the errors of a scrub to the other log, for a scrub that did not visit everything.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn errlog_merge(&self, tx: &Tx, head_errlog: bool) -> Result<()> {
        let found = self.errlog(ErrLog::Scrub, head_errlog)?;
        self.errlog_add(tx, ErrLog::Last, &found)?;
        let old = self.errlog_objects(ErrLog::Scrub, head_errlog);
        self.set_dir_words(tx, ErrLog::Scrub.name(), &[0])?;
        self.errlog_discard(tx, &old);
        Ok(())
    }

    /// The objects of a log, as far as they can be determined.
    fn errlog_objects(&self, which: ErrLog, head_errlog: bool) -> Vec<ObjNum> {
        let Ok(Some(log)) = self.dir(which.name()) else { return Vec::new() };
        let inner = if head_errlog { self.errlog_heads(log).unwrap_or_default() } else { Vec::new() };
        inner.into_iter().map(|(_, object)| object).chain([log]).collect()
    }

    /// Replaces a log without births by entries with births, when `head_errlog` is enabled
    /// (`sync_upgrade_errlog`).
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn errlog_upgrade(&self, tx: &Tx, which: ErrLog, entries: &[ErrBookmark]) -> Result<()> {
        if self.dir(which.name())?.is_none() {
            return Ok(());
        }
        let old = self.errlog_objects(which, false);
        self.set_dir_words(tx, which.name(), &[0])?;
        self.errlog_discard(tx, &old);
        self.errlog_add(tx, which, entries)
    }

    /// Moves entries from the head dataset `from` to the clone `to` that was promoted over it
    /// (`swap_errlog`).
    ///
    /// Blocks born before the txg `before` now belong to the promoted clone.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn errlog_promote(&self, tx: &Tx, from: u64, to: u64, before: u64) -> Result<()> {
        for which in [ErrLog::Last, ErrLog::Scrub] {
            let Some(log) = self.dir(which.name())? else { continue };
            let Some(old) = self.u64(log, &format!("{from:x}"))? else { continue };
            let mut moved = Vec::new();
            for e in self.entries(ObjNum(old))? {
                let e = ErrBookmark::parse_head(from, &e?.name).ok();
                moved.extend(e.filter(|e| e.birth.is_some_and(|birth| birth < before)));
            }
            self.errlog_remove(tx, which, &moved)?;
            moved.iter_mut().for_each(|e| e.objset = to);
            self.errlog_add(tx, which, &moved)?;
        }
        Ok(())
    }
}
