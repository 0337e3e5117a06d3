//! Readiness of the proxy: it may get traffic once every part that it waits for has reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The parts that are not ready, by name. Cheap to clone; all clones tell the same.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pending: BTreeSet<&'static str>,
    remarks: BTreeMap<&'static str, String>,
}

impl Readiness {
    /// Waits for these parts.
    pub fn waiting_for(parts: impl IntoIterator<Item = &'static str>) -> Self {
        Self(Arc::new(Mutex::new(State {
            pending: parts.into_iter().collect(),
            remarks: BTreeMap::new(),
        })))
    }

    /// This part is ready.
    pub fn reached(&self, part: &'static str) {
        self.lock().pending.remove(part);
    }

    /// This part is not ready, any more or yet.
    pub fn lost(&self, part: &'static str) {
        self.lock().pending.insert(part);
    }

    /// What is waited for.
    pub fn pending(&self) -> Vec<&'static str> {
        self.lock().pending.iter().copied().collect()
    }

    /// What is not as it should be with a part although traffic can be served, for people; `None` when it is well again.
    pub fn remark(&self, part: &'static str, text: Option<String>) {
        let mut state = self.lock();
        match text {
            Some(text) => state.remarks.insert(part, text),
            None => state.remarks.remove(part),
        };
    }

    /// Every remark with the part that it is about.
    pub fn remarks(&self) -> Vec<(&'static str, String)> {
        let state = self.lock();
        let remarks = state.remarks.iter();
        remarks.map(|(part, text)| (*part, text.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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

    #[test]
    fn remarks_do_not_make_it_unready() {
        let readiness = Readiness::waiting_for([]);
        readiness.remark("certificates", Some("one is stale".to_owned()));
        assert!(readiness.pending().is_empty());
        assert_eq!(
            readiness.remarks(),
            [("certificates", "one is stale".to_owned())]
        );
        readiness.remark("certificates", None);
        assert!(readiness.remarks().is_empty());
    }
}
