//! Transactions of a real pool, with the hooks and the clock of a test.

use dmu::Tx;
use dsl::Need;
use ondisk::Txg;
use ondisk::objset::ObjsetFlags;
use spa::OpenHead;
use std::time::SystemTime;
use zil::{TxError, TxSource, Zilog};

type Before = Box<dyn Fn(&OpenHead) + Send + Sync>;
type After = Box<dyn Fn(&OpenHead, &Tx) + Send + Sync>;
type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

/// Transactions of a head dataset, and what a test does around each of them.
pub struct HookedSource {
    head: OpenHead,
    before: Before,
    after: After,
    clock: Clock,
}

impl std::fmt::Debug for HookedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HookedSource({:?})", self.head)
    }
}

impl HookedSource {
    /// Without hooks. The time is what `clock` says.
    pub fn new(head: OpenHead, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> HookedSource {
        let (before, after) = (Box::new(|_: &_| {}), Box::new(|_: &_, _: &_| {}));
        HookedSource { head, before, after, clock: Box::new(clock) }
    }

    /// Runs `hook` before each transaction.
    #[must_use]
    pub fn before(self, hook: impl Fn(&OpenHead) + Send + Sync + 'static) -> HookedSource {
        HookedSource { before: Box::new(hook), ..self }
    }

    /// Runs `hook` at the start of each transaction, before its changes.
    #[must_use]
    pub fn after(self, hook: impl Fn(&OpenHead, &Tx) + Send + Sync + 'static) -> HookedSource {
        HookedSource { after: Box::new(hook), ..self }
    }

    /// The dataset.
    pub fn head(&self) -> &OpenHead {
        &self.head
    }
}

impl TxSource for HookedSource {
    fn tx(&self, need: Need) -> Result<Tx, TxError> {
        (self.before)(&self.head);
        let tx = self.head.tx(need)?;
        (self.after)(&self.head, &tx);
        Ok(tx)
    }

    /// Waits like [`HookedSource::tx`], so that a test's result does not depend on the throttle.
    fn try_tx(&self, need: Need) -> Result<Option<Tx>, TxError> {
        self.tx(need).map(Some)
    }

    fn wait(&self, txg: Txg) -> Result<(), TxError> {
        self.head.wait(txg)
    }

    fn log(&self) -> Option<&Zilog> {
        self.head.log()
    }

    fn now(&self) -> SystemTime {
        (self.clock)()
    }

    fn begin_feature(&self, feature: &'static str) {
        self.head.begin_feature(feature);
    }

    fn accounting(&self) -> ObjsetFlags {
        self.head.accounting()
    }

    fn may_clone(&self) -> bool {
        self.head.may_clone()
    }
}
