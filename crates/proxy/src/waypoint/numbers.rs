//! Numbers for sources and services, by which a request finds its counters without hashing their labels.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;

use lateen_config::ServiceKey;
use lateen_telemetry::Party;

/// Numbers that are kept; with more, all are given anew.
const MOST: usize = 4096;

/// Numbers that this worker has given. None is given twice.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    parties: RefCell<HashMap<Party, u32>>,
    services: RefCell<HashMap<ServiceKey, u32>>,
    last: Cell<u32>,
}

impl Numbers {
    /// The number of a source.
    pub(super) fn party(&self, party: &Party) -> u32 {
        self.number(&self.parties, party)
    }

    /// The number of a service.
    pub(super) fn service(&self, service: &ServiceKey) -> u32 {
        self.number(&self.services, service)
    }

    /// A number that nothing else has.
    pub(super) fn next(&self) -> u32 {
        // 0 stands for nothing; the numbers of a worker do not come round while it runs.
        self.last.set(self.last.get().wrapping_add(1).max(1));
        self.last.get()
    }

    fn number<K: Clone + Eq + Hash>(&self, known: &RefCell<HashMap<K, u32>>, key: &K) -> u32 {
        if let Some(number) = known.borrow().get(key) {
            return *number;
        }
        let mut known = known.borrow_mut();
        if known.len() >= MOST {
            known.clear();
        }
        let number = self.next();
        known.insert(key.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_one_thing_also_after_all_were_forgotten() {
        let numbers = Numbers::default();
        let key = |n: usize| ServiceKey::new("default", n.to_string());
        let first = numbers.service(&key(0));
        assert_eq!(numbers.service(&key(0)), first);
        let others: Vec<_> = (1..=MOST).map(|n| numbers.service(&key(n))).collect();
        assert!(!others.contains(&first));
        let again = numbers.service(&key(0));
        assert!(again != first && !others.contains(&again));
        assert_ne!(numbers.party(&Party::default()), 0);
    }
}
