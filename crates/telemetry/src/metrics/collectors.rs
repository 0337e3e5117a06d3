//! Collectors of metrics that are computed at each scrape.

use std::fmt;
use std::time::Duration;

use lateen_types::Strng;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Processor time that workers spent on each pod: namespace, name, time.
#[derive(Debug, Default)]
pub(super) struct PodTimes(pub(super) Mutex<Vec<(Strng, Strng, Duration)>>);

impl Collector for PodTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "lateen_pod_cpu",
            "Time that workers spent on a pod's connections; the series goes with the pod",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        for (namespace, pod, time) in self.0.lock().iter() {
            family
                .encode_family(&[("namespace", namespace.as_ref()), ("pod", pod.as_ref())])?
                .encode_counter::<NoLabelSet, _, f64>(&time.as_secs_f64(), None)?;
        }
        Ok(())
    }
}

/// Number of connections of each worker, read at each scrape.
pub(super) struct WorkerLoads(pub(super) Box<dyn Fn() -> Vec<usize> + Send + Sync>);

impl fmt::Debug for WorkerLoads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerLoads").field(&self.0()).finish()
    }
}

impl Collector for WorkerLoads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "lateen_worker_connections",
            "Connections that each worker has",
            None,
            MetricType::Gauge,
        )?;
        for (worker, load) in self.0().into_iter().enumerate() {
            family
                .encode_family(&[("worker", worker.to_string())])?
                .encode_gauge(&(load as i64))?;
        }
        Ok(())
    }
}

/// Receive or send buffers of all tunnels.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// `receive` or `send`, from the proxy's view.
    pub direction: &'static str,
    /// Bytes granted to tunnels now.
    pub granted: usize,
    /// Limit for all tunnels together, in bytes.
    pub limit: usize,
}

/// Buffers of tunnels, read at each scrape.
pub(super) struct BufferBudgets(pub(super) Box<dyn Fn() -> [Buffers; 2] + Send + Sync>);

impl fmt::Debug for BufferBudgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferBudgets").field(&self.0()).finish()
    }
}

impl Collector for BufferBudgets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let budgets = self.0();
        for (name, help, value) in [
            (
                "lateen_tunnel_buffer_bytes",
                "Bytes that tunnels may hold for streams that are not read as fast as they are sent, by direction",
                (|b: &Buffers| b.granted) as fn(&Buffers) -> usize,
            ),
            (
                "lateen_tunnel_buffer_limit_bytes",
                "Bytes that all tunnels together may hold so, by direction",
                |b| b.limit,
            ),
        ] {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for budget in &budgets {
                let gauge = ConstGauge::new(value(budget) as u64);
                gauge.encode(encoder.encode_family(&[("direction", budget.direction)])?)?;
            }
        }
        Ok(())
    }
}

/// Memory of requests and answers, in accounts of one scope.
#[derive(Clone, Copy, Debug)]
pub struct HttpAccounts {
    /// `process`, `namespace` or `identity`.
    pub scope: &'static str,
    /// Accounts whose clients have a tunnel.
    pub accounts: usize,
    /// Bytes held by the account that holds most.
    pub largest: usize,
    /// Limit of each account, in bytes.
    pub limit: usize,
}

/// Memory of requests and answers that clients' connections hold.
#[derive(Clone, Copy, Debug)]
pub struct HttpBuffers {
    /// The accounts of each scope.
    pub accounts: [HttpAccounts; 3],
    /// Connections that are not read before an account has more room.
    pub waiting: usize,
}

/// Memory of requests and answers, read at each scrape.
pub(super) struct HttpBufferAccounts(pub(super) Box<dyn Fn() -> HttpBuffers + Send + Sync>);

impl fmt::Debug for HttpBufferAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpBufferAccounts")
            .field(&self.0())
            .finish()
    }
}

impl Collector for HttpBufferAccounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let HttpBuffers { accounts, waiting } = self.0();
        for (name, help, value) in [
            (
                "lateen_http_buffer_bytes",
                "Bytes of requests and answers that wait in a waypoint, in the account of each scope that holds most",
                (|a: &HttpAccounts| a.largest) as fn(&HttpAccounts) -> usize,
            ),
            (
                "lateen_http_buffer_limit_bytes",
                "Bytes that each account of a scope may hold",
                |a| a.limit,
            ),
            (
                "lateen_http_buffer_accounts",
                "Accounts of each scope whose clients have a tunnel",
                |a| a.accounts,
            ),
        ] {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for account in &accounts {
                let gauge = ConstGauge::new(value(account) as u64);
                gauge.encode(encoder.encode_family(&[("scope", account.scope)])?)?;
            }
        }
        let encoder = encoder.encode_descriptor(
            "lateen_http_buffer_waiting_connections",
            "Connections of HTTP/1 that are not read, since an account has no room for more",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(waiting as u64).encode(encoder)
    }
}

/// Number of connections that were reset for want of a descriptor, read at each scrape.
pub(super) struct Shed(pub(super) Box<dyn Fn() -> u64 + Send + Sync>);

impl fmt::Debug for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shed").field(&self.0()).finish()
    }
}

impl Collector for Shed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counter = ConstCounter::new(self.0());
        let encoder = encoder.encode_descriptor(
            "lateen_connections_shed",
            "Connections that were reset because their pod or the proxy had no descriptor left",
            None,
            MetricType::Counter,
        )?;
        counter.encode(encoder)
    }
}
