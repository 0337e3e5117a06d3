//! The configuration in force, for readers outside the workers.

use std::sync::{Arc, Mutex, PoisonError};

use lateen_config::Snapshot;

/// The configuration in force. Clones share it; a reader on any thread sees the last one that was set.
#[derive(Clone, Debug, Default)]
pub struct Current(Arc<Mutex<Option<Arc<Snapshot>>>>);

impl Current {
    /// `None` until the control plane has sent all of it.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, snapshot: Arc<Snapshot>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }
}
