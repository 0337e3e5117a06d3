//! The state of a worker that every role needs: the configuration in force, the end of the process, groups of tasks and
//! random numbers. It lives on the worker's thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use lateen_config::Snapshot;
use lateen_executor::{Group, Groups};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;

/// A worker, seen from its own thread. `K` names the owners of connections ([`crate::Role::GroupKey`]).
#[derive(Debug)]
pub struct Worker<K> {
    index: usize,
    snapshot: RefCell<Option<Arc<Snapshot>>>,
    /// Notified after each change of `snapshot`.
    installed: Notify,
    draining: Cell<bool>,
    /// Notified once `draining` is set.
    drain: Notify,
    groups: Groups,
    by_key: RefCell<HashMap<K, Group>>,
    random: RefCell<SmallRng>,
}

impl<K: Clone + Eq + Hash> Worker<K> {
    pub(crate) fn new(index: usize, groups: Groups) -> Self {
        Self {
            index,
            snapshot: RefCell::new(None),
            installed: Notify::new(),
            draining: Cell::new(false),
            drain: Notify::new(),
            groups,
            by_key: RefCell::default(),
            random: RefCell::new(SmallRng::from_os_rng()),
        }
    }

    /// A worker without a thread, by a configuration that is in force. Its owner polls what it serves.
    #[cfg(feature = "measured")]
    pub fn without_thread(groups: Groups, snapshot: Arc<Snapshot>) -> Self {
        let worker = Self::new(0, groups);
        worker.replace(&snapshot);
        worker
    }

    /// The worker's number in its process, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The configuration in force; `None` until the control plane has sent all of it.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.borrow().clone()
    }

    /// Waits for a configuration in which `look` finds something, for as long as `timeout`. Returns `None` when the time
    /// is over.
    pub async fn find<T>(
        &self,
        timeout: Duration,
        look: impl Fn(Arc<Snapshot>) -> Option<T>,
    ) -> Option<T> {
        let now = || self.snapshot().and_then(&look);
        if let Some(found) = now() {
            return Some(found);
        }
        let wait = async {
            loop {
                let installed = self.installed.notified();
                if let Some(found) = now() {
                    return found;
                }
                installed.await;
            }
        };
        tokio::time::timeout(timeout, wait).await.ok()
    }

    /// Puts a configuration in force and returns the one before. [`Worker::tell_installed`] follows.
    pub(crate) fn replace(&self, snapshot: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        self.snapshot.replace(Some(Arc::clone(snapshot)))
    }

    /// Wakes the tasks that wait for a configuration.
    pub(crate) fn tell_installed(&self) {
        self.installed.notify_waiters();
    }

    /// Begins the end of the process for this worker.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
    }

    /// True once this process is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Resolves when this process is about to end.
    pub async fn draining(&self) {
        while !self.is_draining() {
            self.drain.notified().await;
        }
    }

    /// The tasks of an owner. All of them share one part of this thread's time. A role whose connections prove their owner
    /// only after they were accepted moves them here.
    pub fn group_of(&self, key: &K) -> Group {
        if let Some(group) = self.by_key.borrow().get(key) {
            return group.clone();
        }
        let group = self.groups.add();
        self.by_key.borrow_mut().insert(key.clone(), group.clone());
        group
    }

    /// Forgets an owner that has no further connections. Tasks of it that still run keep their group.
    pub fn forget_group(&self, key: &K) {
        self.by_key.borrow_mut().remove(key);
    }

    /// The time that the tasks of each owner have run so far.
    pub fn times_used(&self) -> HashMap<K, Duration> {
        let by_key = self.by_key.borrow();
        by_key
            .iter()
            .map(|(key, group)| (key.clone(), group.used()))
            .collect()
    }

    /// A uniform number below `bound`, from this worker's own generator. It is no secret.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().random_range(0..bound)
    }
}
