//! What status queries leave with a pool.

use api::Pool;
use observe::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The state of a pool's status queries.
#[derive(Default)]
pub(crate) struct Known {
    /// The number of overdue queries.
    pub(super) late: Arc<AtomicUsize>,
    /// The last known status.
    pub(super) told: Mutex<Option<Pool>>,
}
