//! Blocks that were found damaged.
//!
//! # On disk
//! Two logs, which the directory names (`errlog_last`, `errlog_scrub`; 0 is none). Without the feature `head_errlog` each is a ZAP whose names are bookmarks; with it, a
//! ZAP of ZAPs: by the head dataset in which a block was met, names that have the block's birth, so that it is known later who else has the block. Values are an empty text.
//!
//! # See
//! OpenZFS `module/zfs/spa_errlog.c`.

use std::collections::BTreeMap;

use crate::{Mos, Result};
use dmu::Tx;
use ondisk::scan::ErrBookmark;
use ondisk::{DmuType, ObjNum, mos};

/// Which of the two error logs: a scrub fills the one and, when it ends, makes it the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrLog {
    /// Errors met since the last scrub ended.
    Last,
    /// Errors of the running scrub.
    Scrub,
}

impl ErrLog {
    /// Its name in the directory.
    fn name(self) -> &'static str {
        match self {
            ErrLog::Last => mos::ERRLOG_LAST,
            ErrLog::Scrub => mos::ERRLOG_SCRUB,
        }
    }
}

impl Mos {
    /// The entries of an error log. With `head_errlog` (the feature) the log is a ZAP per head dataset, and the
    /// bookmarks carry births.
    ///
    /// A name that is no bookmark is passed over: damage to a log of damage must not hide the rest of it.
    ///
    /// # Errors
    /// As reading fails.
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

    /// How many entries a log has (`spa_approx_errlog_size`).
    ///
    /// # Errors
    /// As reading fails.
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

    /// The logs by head dataset that a log is made of. What is no dataset's name, or leads to no log, is passed over.
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

    /// Frees what is an object of an error log, and nothing else, whatever a damaged log says. One that can't be freed stays: nothing may name it any more.
    fn errlog_discard(&self, tx: &Tx, objects: &[ObjNum]) {
        for object in objects.iter().filter(|object| self.is_errlog(**object)) {
            let _ = self.objset().free_object(tx, *object);
        }
    }

    /// Forgets what was met in a head dataset that is gone (`spa_delete_dataset_errlog`). A log that is damaged keeps it.
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

    /// Enters blocks in a log, which is made if there is none: those with births in the form that it has with `head_errlog`, by the head dataset that they
    /// name; the form must be the same for all (`sync_error_list`).
    ///
    /// # Errors
    /// As changing the MOS fails.
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

    /// The log of a head dataset within a log, made if there is none.
    fn errlog_of(&self, tx: &Tx, log: ObjNum, head: u64) -> Result<ObjNum> {
        let key = format!("{head:x}");
        if let Some(zap) = self.u64(log, &key)? {
            return Ok(ObjNum(zap));
        }
        let zap = self.create_zap_of(tx, DmuType::ERROR_LOG)?;
        self.set_word(tx, log, &key, zap.0)?;
        Ok(zap)
    }

    /// Takes blocks out of a log that has them (`spa_remove_healed_errors`).
    ///
    /// # Errors
    /// As changing the MOS fails.
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

    /// The log that a scrub has filled takes the place of the other, which is freed.
    ///
    /// # Errors
    /// As changing the MOS's directory fails.
    pub fn errlog_rotate(&self, tx: &Tx, head_errlog: bool) -> Result<()> {
        let old = self.errlog_objects(ErrLog::Last, head_errlog);
        let scrub = self.dir(ErrLog::Scrub.name())?;
        self.set_dir_words(tx, ErrLog::Last.name(), &[scrub.map_or(0, |log| log.0)])?;
        self.set_dir_words(tx, ErrLog::Scrub.name(), &[0])?;
        self.errlog_discard(tx, &old);
        Ok(())
    }

    /// What a scrub has found is entered in the other log: for one that did not look at everything.
    ///
    /// # Errors
    /// As reading the log or changing the MOS fails.
    pub fn errlog_merge(&self, tx: &Tx, head_errlog: bool) -> Result<()> {
        let found = self.errlog(ErrLog::Scrub, head_errlog)?;
        self.errlog_add(tx, ErrLog::Last, &found)?;
        let old = self.errlog_objects(ErrLog::Scrub, head_errlog);
        self.set_dir_words(tx, ErrLog::Scrub.name(), &[0])?;
        self.errlog_discard(tx, &old);
        Ok(())
    }

    /// A log's objects, as far as they can be told.
    fn errlog_objects(&self, which: ErrLog, head_errlog: bool) -> Vec<ObjNum> {
        let Ok(Some(log)) = self.dir(which.name()) else { return Vec::new() };
        let inner = if head_errlog { self.errlog_heads(log).unwrap_or_default() } else { Vec::new() };
        inner.into_iter().map(|(_, object)| object).chain([log]).collect()
    }

    /// Puts entries with births in the place of a log that has none, when `head_errlog` is enabled (`sync_upgrade_errlog`).
    ///
    /// # Errors
    /// As changing the MOS fails.
    pub fn errlog_upgrade(&self, tx: &Tx, which: ErrLog, entries: &[ErrBookmark]) -> Result<()> {
        if self.dir(which.name())?.is_none() {
            return Ok(());
        }
        let old = self.errlog_objects(which, false);
        self.set_dir_words(tx, which.name(), &[0])?;
        self.errlog_discard(tx, &old);
        self.errlog_add(tx, which, entries)
    }

    /// Of a head dataset that a clone was promoted over: what was born before this group is the promoted one's (`swap_errlog`).
    ///
    /// # Errors
    /// As changing the MOS fails.
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
