//! Wrappers around devices, applied when they are opened.

use std::fmt;
use std::sync::Arc;

use crate::Device;

type Around = dyn Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync;

/// Puts a wrapper around each opened device, such as a [`Slow`](crate::Slow) one; nothing by
/// default.
///
/// Clones are the same layer.
#[derive(Clone, Default)]
pub struct Layer(Option<Arc<Around>>);

impl Layer {
    /// A layer that replaces each device by the result of `around`.
    pub fn new(around: impl Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(around)))
    }

    /// The device with this layer around it.
    pub fn around(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        match &self.0 {
            Some(around) => around(device),
            None => device,
        }
    }
}

impl PartialEq for Layer {
    /// True if both are clones of one layer; two layers made alike are not equal.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Layer {}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Layer(…)" } else { "Layer(none)" })
    }
}
