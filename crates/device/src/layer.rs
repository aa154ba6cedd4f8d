//! What is put around devices as they are opened.

use std::fmt;
use std::sync::Arc;

use crate::Device;

type Around = dyn Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync;

/// Puts something around each device that is opened, say a [`Slow`](crate::Slow) one; nothing by default. Clones are the same layer.
#[derive(Clone, Default)]
pub struct Layer(Option<Arc<Around>>);

impl Layer {
    /// Puts what `around` makes of a device in its place.
    pub fn new(around: impl Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(around)))
    }

    /// A device with this layer around it.
    pub fn around(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        match &self.0 {
            Some(around) => around(device),
            None => device,
        }
    }
}

impl PartialEq for Layer {
    /// Whether they are the same layer, which two that were made alike are not.
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
