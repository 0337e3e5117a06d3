//! Descriptor quota of each pod. It keeps one pod from taking the descriptors that other pods need.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The part of all descriptors that one pod may hold: one in this many.
const PART: u64 = 4;
/// Between two warnings about the same pod.
const QUIET: Duration = Duration::from_secs(10);

/// Limit of the process's descriptors that one pod may hold, and their number now.
#[derive(Debug)]
pub struct FdQuota {
    pod: String,
    limit: usize,
    held: AtomicUsize,
    said: Mutex<Option<Instant>>,
}

impl FdQuota {
    /// A quota of `limit` descriptors for `pod`, a name for the log.
    pub fn new(pod: String, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            pod,
            limit,
            held: AtomicUsize::new(0),
            said: Mutex::new(None),
        })
    }

    /// What a pod may have in a process that may open `files` files.
    pub fn of(files: u64) -> usize {
        usize::try_from(files / PART).unwrap_or(usize::MAX)
    }

    /// Reserves `descriptors` until the answer is dropped; `None`, and a warning now and then, if the pod has too many.
    pub fn take(self: &Arc<Self>, descriptors: u32) -> Option<Held> {
        let more = |held: usize| {
            held.checked_add(descriptors as usize)
                .filter(|held| *held <= self.limit)
        };
        // The number alone is shared; nothing else is published by it.
        match self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        {
            Ok(_) => Some(Held {
                quota: Arc::clone(self),
                descriptors,
            }),
            Err(held) => {
                self.warn(held);
                None
            }
        }
    }

    fn warn(&self, held: usize) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| said.elapsed() < QUIET) {
            return;
        }
        *said = Some(Instant::now());
        tracing::warn!(
            pod = self.pod,
            held,
            limit = self.limit,
            "a pod holds its share of the proxy's descriptors, a quarter of all: its further connections are reset; \
             close idle connections, or raise the proxy's limit of open files"
        );
    }
}

/// Descriptors that a pod's quota counts.
#[derive(Debug)]
pub struct Held {
    quota: Arc<FdQuota>,
    descriptors: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.quota
            .held
            .fetch_sub(self.descriptors as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_given_out_to_the_last_descriptor_and_again_once_it_is_back() {
        let quota = FdQuota::new("pod".to_owned(), 5);
        let first = quota.take(2).unwrap();
        let _second = quota.take(2).unwrap();
        assert!(quota.take(2).is_none());
        let third = quota.take(1).unwrap();
        assert!(quota.take(1).is_none());
        drop(third);
        assert!(quota.take(2).is_none());
        drop(first);
        assert!(quota.take(2).is_some());
    }

    #[test]
    fn four_pods_may_fill_the_process_and_one_may_not() {
        assert_eq!(FdQuota::of(20_000), 5000);
    }
}
