//! The damaged blocks and objects of an imported pool.
//!
//! # See
//! OpenZFS `spa_get_errlog`, `spa_approx_errlog_size`, `zpool_get_errlog`.

use std::collections::BTreeSet;

use dsl::Heads;
use ondisk::Txg;
use pool::errlog::ErrLog;
use zio::Bookmark;

use crate::Spa;
use crate::damaged::{HEAD_ERRLOG, Holders, Search};

/// The logs in the order in which blocks move through them, after [`zio::Damage`]. Reading them in
/// this order while a txg syncs misses no block.
const LOGS: [ErrLog; 2] = [ErrLog::Scrub, ErrLog::Last];

impl Spa {
    /// Whether log entries name head datasets.
    fn by_head(&self) -> bool {
        self.mos.feature_enabled(HEAD_ERRLOG).unwrap_or(false)
    }

    /// About how many damaged blocks the pool knows; never 0 if there are any
    /// (`spa_approx_errlog_size`). A log that can't be read counts as one.
    pub fn error_count(&self) -> u64 {
        let by_head = self.by_head();
        let pending = self.cache.zio().damage().count();
        let logs = LOGS.map(|log| self.mos.errlog_count(log, by_head).unwrap_or(1));
        logs.into_iter().fold(pending, u64::saturating_add)
    }

    /// The blocks of which no copy was readable since the last call, and how many more there were.
    pub fn take_losses(&self) -> (Vec<zio::Loss>, u64) {
        self.cache.zio().damage().take_losses()
    }

    /// The damaged objects: dataset and object, each once, in OpenZFS's order (`spa_get_errlog`,
    /// `zpool_get_errlog`).
    ///
    /// `heads` are the pool's open head datasets. The next txg forgets the entries that no dataset
    /// holds any more.
    ///
    /// # Errors
    /// * [`pool::Error`]: an error log cannot be read.
    pub fn damaged_objects(&self, heads: &Heads) -> pool::Result<Vec<(u64, u64)>> {
        let search = Search::with_heads(&self.mos, heads);
        let by_head = self.by_head();
        let pending = self.cache.zio().damage().pending();
        let mut entries = Vec::new();
        for log in LOGS {
            entries.extend(self.mos.errlog(log, by_head)?);
        }
        let logged = entries.len();
        entries.extend(pending.iter().map(|(met, birth)| search.entry(met, *birth, by_head)));
        let mut objects = BTreeSet::new();
        let mut gone = Vec::new();
        for (i, e) in entries.iter().enumerate() {
            // If the holders can't be found, the dataset in which the block was found.
            match search.holders(e).unwrap_or_else(|_| Holders::These(vec![e.objset])) {
                Holders::These(datasets) => objects.extend(datasets.into_iter().map(|ds| (ds, e.object))),
                Holders::None if i < logged => gone.push(*e),
                Holders::None => {}
            }
        }
        if let Some(live) = self.writer().filter(|_| !gone.is_empty()) {
            live.forget_errors(gone);
        }
        let mut objects: Vec<(u64, u64)> = objects.into_iter().collect();
        // By their bytes in memory, lowest first: this is the order of `zpool status`.
        objects.sort_by_key(|(dataset, object)| (dataset.swap_bytes(), object.swap_bytes()));
        Ok(objects)
    }

    /// Removes blocks that were restored from the error logs, with the next txg
    /// (`spa_remove_error`).
    pub fn forget_damage(&self, restored: &[(Bookmark, Txg)]) {
        self.cache.zio().damage().seen_to(restored);
        let (search, by_head) = (Search::on_disk(&self.mos), self.by_head());
        let entry = |(at, birth): &(Bookmark, Txg)| search.entry(at, *birth, by_head);
        if let Some(live) = self.writer() {
            live.forget_errors(restored.iter().map(entry).collect());
        }
    }
}
