//! Where the keys of encrypted blocks come from.

use codec::crypt::DataKeys;
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
