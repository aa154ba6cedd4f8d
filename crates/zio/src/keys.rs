//! The source of the keys of encrypted blocks.

use codec::crypt::DataKeys;
use observe::lock::RwLock;
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

/// Unpredictable random bytes, for salts and initialisation vectors (`random_get_bytes`).
pub trait Entropy: Send + Sync {
    /// Fills `buf`.
    fn fill(&self, buf: &mut [u8]);
}

/// The source of the keys of datasets (`spa_keystore_t`); `dsl` implements it.
pub trait KeySource: Send + Sync {
    /// The keys of the dataset with this object number (`spa_keystore_lookup_key`).
    ///
    /// # Errors
    /// * [`KeyError::NotLoaded`]: the dataset's key is not loaded.
    fn keys(&self, objset: u64) -> Result<Arc<DataKeys>, KeyError>;
}

/// The key source of a pool, shared by all that need it; none until it is set.
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
