//! Endpoints that this worker leaves out, for each pod, because the pod's connections to them keep failing. `lateen_balance`
//! has the rule; this module adds the clock, the names and the gauge.
//!
//! Each pod dials from its own network, with its own routes, resolvers and network policies. An endpoint that one pod does not
//! reach may be healthy, so it is left out for no other pod.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lateen_balance::{Ejector, can_spare};
use lateen_config::Workload;
use lateen_types::WorkloadUid;
use prometheus_client::metrics::gauge::Gauge;

use crate::pod::Pod;

/// An endpoint: a next hop, and the port that clients dial to reach it there.
type Key = (WorkloadUid, u16);

/// The endpoints that a worker leaves out.
#[derive(Debug)]
pub struct Ejections {
    /// By the pod that dials.
    pods: RefCell<HashMap<WorkloadUid, Ejector<Key>>>,
    start: Instant,
    gauge: Gauge,
    /// What the gauge has of this worker.
    counted: Cell<i64>,
}

/// The candidates of one choice.
#[derive(Debug, Default)]
pub struct Census {
    seen: RefCell<Vec<(WorkloadUid, bool)>>,
}

/// An endpoint that is left out, for operators.
#[derive(Clone, Debug)]
pub struct Ejected {
    /// The pod that it is left out for.
    pub pod: WorkloadUid,
    /// The workload's uid.
    pub workload: WorkloadUid,
    /// The port that clients dial.
    pub port: u16,
    /// How long it is still left out.
    pub left: Duration,
}

impl Ejections {
    /// None; `gauge` is shared by all workers.
    pub fn new(gauge: Gauge) -> Self {
        Self {
            pods: RefCell::default(),
            start: Instant::now(),
            gauge,
            counted: Cell::new(0),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether any endpoint may be left out for a pod: if not, nobody needs to ask which.
    pub fn any(&self, pod: &Pod) -> bool {
        let pods = self.pods.borrow();
        pods.get(&pod.uid)
            .is_some_and(|ejector| ejector.any(self.now()))
    }

    /// Whether this one is left out for a pod.
    pub fn is_out(&self, pod: &Pod, workload: &Workload, port: u16) -> bool {
        let pods = self.pods.borrow();
        pods.get(&pod.uid).is_some_and(|ejector| {
            ejector.any(self.now()) && ejector.is_out(&(workload.uid.clone(), port), self.now())
        })
    }

    /// Takes note of a failure of a pod's that is the endpoint's, of a choice with these candidates.
    pub fn failed(self: &Rc<Self>, pod: &Pod, workload: &WorkloadUid, port: u16, census: &Census) {
        // Nobody would forget it.
        if pod.is_leaving() {
            return;
        }
        let key = (workload.clone(), port);
        let spare = || can_spare(census.total(), census.out());
        let time = self
            .pods
            .borrow_mut()
            .entry(pod.uid.clone())
            .or_default()
            .failed(key, self.now(), spare);
        if let Some(time) = time {
            tracing::warn!(pod = %pod.uid, workload = %workload, port, seconds = time.as_secs(), "left out: connections keep failing");
            self.count();
            let this = Rc::downgrade(self);
            lateen_executor::spawn_local(async move {
                tokio::time::sleep(time).await;
                if let Some(this) = this.upgrade() {
                    this.count();
                }
            });
        }
    }

    /// Takes note of a connection that a pod made.
    pub fn succeeded(&self, pod: &Pod, workload: &WorkloadUid, port: u16) {
        let cleared = match self.pods.borrow_mut().get_mut(&pod.uid) {
            Some(ejector) => ejector.succeeded(&(workload.clone(), port), self.now()),
            None => false,
        };
        if cleared {
            self.count();
        }
    }

    /// Forgets what a pod met with.
    pub fn forget(&self, pod: &WorkloadUid) {
        if self.pods.borrow_mut().remove(pod).is_some() {
            self.count();
        }
    }

    /// Those that are left out.
    pub fn list(&self) -> Vec<Ejected> {
        let (pods, now) = (self.pods.borrow(), self.now());
        let listed = pods.iter().flat_map(|(pod, ejector)| {
            ejector.out(now).map(|((workload, port), left)| Ejected {
                pod: pod.clone(),
                workload: workload.clone(),
                port: *port,
                left,
            })
        });
        listed.collect()
    }

    fn count(&self) {
        let (pods, now) = (self.pods.borrow(), self.now());
        let out = pods.values().map(|one| one.out(now).count()).sum::<usize>() as i64;
        self.gauge.inc_by(out - self.counted.replace(out));
    }
}

impl Drop for Ejections {
    fn drop(&mut self) {
        self.gauge.dec_by(self.counted.get());
    }
}

impl Census {
    /// Takes note of a candidate, each once.
    pub fn note(&self, workload: &Workload, out: bool) {
        let mut seen = self.seen.borrow_mut();
        if !seen.iter().any(|(uid, _)| *uid == workload.uid) {
            seen.push((workload.uid.clone(), out));
        }
    }

    /// How many candidates there are.
    pub fn total(&self) -> usize {
        self.seen.borrow().len()
    }

    /// How many of them are left out.
    pub fn out(&self) -> usize {
        self.seen.borrow().iter().filter(|(_, out)| *out).count()
    }
}
