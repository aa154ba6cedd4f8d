//! Where the keys of encrypted blocks come from.

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
