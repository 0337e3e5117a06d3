//! Number of connections of each worker, by which new connections are placed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::fd_quota::Held;

/// How many connections each worker has, and how many none got; only the acceptor adds to it.
#[derive(Debug)]
pub struct Loads {
    workers: Box<[AtomicUsize]>,
    shed: AtomicU64,
}

impl Loads {
    /// No load on `workers` workers.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            workers: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            shed: AtomicU64::new(0),
        })
    }

    /// Connections by worker.
    pub fn read(&self) -> Vec<usize> {
        self.workers
            .iter()
            .map(|load| load.load(Ordering::Relaxed))
            .collect()
    }

    /// Connections that were reset at once because there was no descriptor for them.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    /// Counts a connection that was reset at once.
    pub(super) fn count_shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more connection on the least loaded worker, the first among equals.
    pub(super) fn charge(self: &Arc<Self>, held: Held) -> LoadGuard {
        let worker = (0..self.workers.len())
            .min_by_key(|&worker| self.workers[worker].load(Ordering::Relaxed))
            .expect("there is at least one worker");
        self.workers[worker].fetch_add(1, Ordering::Relaxed);
        LoadGuard {
            loads: Arc::clone(self),
            worker,
            _held: held,
        }
    }
}

/// One connection's part of a worker's load and of its pod's quota.
#[derive(Debug)]
pub struct LoadGuard {
    loads: Arc<Loads>,
    worker: usize,
    _held: Held,
}

impl LoadGuard {
    /// The worker that was chosen.
    pub fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.loads.workers[self.worker].fetch_sub(1, Ordering::Relaxed);
    }
}
