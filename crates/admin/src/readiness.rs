//! Whether the proxy may be sent traffic: it may once every part that it waits for has reported.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The parts that are not ready, by name. Cheap to clone; all clones tell the same.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<&'static str>>>);

impl Readiness {
    /// Waits for these parts.
    pub fn waiting_for(parts: impl IntoIterator<Item = &'static str>) -> Self {
        Self(Arc::new(Mutex::new(parts.into_iter().collect())))
    }

    /// This part is ready.
    pub fn reached(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// This part is not ready, any more or yet.
    pub fn lost(&self, part: &'static str) {
        self.lock().insert(part);
    }

    /// What is waited for.
    pub fn pending(&self) -> Vec<&'static str> {
        self.lock().iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_ready_when_every_part_has_reported_and_until_one_is_lost() {
        let readiness = Readiness::waiting_for(["pods", "configuration"]);
        let reporter = readiness.clone();
        assert_eq!(readiness.pending(), ["configuration", "pods"]);
        reporter.reached("pods");
        reporter.reached("pods");
        reporter.reached("configuration");
        assert!(readiness.pending().is_empty());
        reporter.lost("pods");
        assert_eq!(readiness.pending(), ["pods"]);
    }
}
