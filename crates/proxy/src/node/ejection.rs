//! Which endpoints this worker leaves out because connections to them keep failing. The rule is `lateen_balance`'s; here
//! are its clock, its names and its gauge.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use lateen_balance::{Ejector, can_spare};
use lateen_config::Workload;
use lateen_types::WorkloadUid;
use prometheus_client::metrics::gauge::Gauge;

/// An endpoint: a next hop, and the port that clients dial to reach it there.
type Key = (WorkloadUid, u16);

/// The endpoints that a worker leaves out.
#[derive(Debug)]
pub struct Ejections {
    ejector: RefCell<Ejector<Key>>,
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
            ejector: RefCell::default(),
            start: Instant::now(),
            gauge,
            counted: Cell::new(0),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether any endpoint may be left out: if not, nobody needs to ask which.
    pub fn any(&self) -> bool {
        self.ejector.borrow().any(self.now())
    }

    /// Whether this one is left out.
    pub fn is_out(&self, workload: &Workload, port: u16) -> bool {
        let key = (workload.uid.clone(), port);
        self.ejector.borrow().is_out(&key, self.now())
    }

    /// Takes note of a failure that is the endpoint's, of a choice with these candidates.
    pub fn failed(self: &Rc<Self>, workload: &WorkloadUid, port: u16, census: &Census) {
        let key = (workload.clone(), port);
        let spare = || can_spare(census.total(), census.out());
        let time = self.ejector.borrow_mut().failed(key, self.now(), spare);
        if let Some(time) = time {
            tracing::warn!(workload = %workload, port, seconds = time.as_secs(), "left out: connections keep failing");
            self.count();
            let this = Rc::downgrade(self);
            lateen_fair::spawn_local(async move {
                tokio::time::sleep(time).await;
                if let Some(this) = this.upgrade() {
                    this.count();
                }
            });
        }
    }

    /// Takes note of a connection that was made.
    pub fn succeeded(&self, workload: &WorkloadUid, port: u16) {
        let key = (workload.clone(), port);
        if self.ejector.borrow_mut().succeeded(&key, self.now()) {
            self.count();
        }
    }

    /// Those that are left out.
    pub fn list(&self) -> Vec<Ejected> {
        let ejector = self.ejector.borrow();
        let listed = ejector
            .out(self.now())
            .map(|((workload, port), left)| Ejected {
                workload: workload.clone(),
                port: *port,
                left,
            });
        listed.collect()
    }

    fn count(&self) {
        let out = self.ejector.borrow().out(self.now()).count() as i64;
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
