//! Where the keys of encrypted blocks come from.

use codec::crypt::DataKeys;
use parking_lot::RwLock;
use std::sync::Arc;

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The dataset's key is not loaded.
    #[error("the encryption key of dataset object {objset} is not loaded")]
    NotLoaded {
        /// Dataset object.
        objset: u64,
    },
}

/// Random bytes that nobody can guess: salts and initialisation vectors.
pub trait Entropy: Send + Sync {
    /// Fills `buf`.
    fn fill(&self, buf: &mut [u8]);
}

/// Gives the keys of datasets; the `dsl` room implements it.
pub trait KeySource: Send + Sync {
    /// The keys of the dataset with this object number.
    ///
    /// # Errors
    /// [`KeyError::NotLoaded`] when nobody has loaded them.
    fn keys(&self, objset: u64) -> Result<Arc<DataKeys>, KeyError>;
}

/// Where the keys of a pool come from, for all who need them; nowhere until somebody has said where.
#[derive(Clone, Default)]
pub(crate) struct KeyCell(Arc<RwLock<Option<Arc<dyn KeySource>>>>);

impl KeyCell {
    pub(crate) fn set(&self, source: Arc<dyn KeySource>) {
        *self.0.write() = Some(source);
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn KeySource>> {
        self.0.read().clone()
    }

    /// The keys of a dataset.
    pub(crate) fn keys(&self, objset: u64) -> Result<Arc<DataKeys>, KeyError> {
        self.get().map_or(Err(KeyError::NotLoaded { objset }), |source| source.keys(objset))
    }
}
