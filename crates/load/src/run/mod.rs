//! A run: one thread that sends every request when it is due, over a fixed set of connections, and
//! takes the answers as they come. It decides nothing about what the times mean.

mod alarm;
mod connection;
mod generator;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::arrivals::Arrivals;
use crate::record::{Failure, Record};
use crate::report::{Config, Counts, FORMAT, Generator as Used, Rates, Report, Summary};
use crate::signals::Signals;
use crate::target::{TargetError, Url};
use generator::Generator;

/// What to do in a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The URL as given.
    pub url: String,
    /// Requests per second; 0 means a closed loop: each answer starts the next request.
    pub qps: f64,
    /// How many connections to keep.
    pub connections: usize,
    /// How long to measure.
    pub duration: Duration,
    /// How long to send before that.
    pub warmup: Duration,
    /// How starts are spread.
    pub arrivals: Arrivals,
    /// Whether connections carry more than one request.
    pub keepalive: bool,
    /// The limit of one request, counted from its actual start.
    pub timeout: Duration,
    /// More fields for every request.
    pub headers: Vec<(String, String)>,
    /// What is measured.
    pub name: String,
    /// Which repetition this is.
    pub round: u32,
    /// What random spreads begin with.
    pub seed: u64,
    /// Whether to say each second how it goes.
    pub progress: bool,
}

/// Why a run could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The URL is of no use.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No connection to the target before the start.
    #[error("connect to {address}: {reason}")]
    Connect {
        /// The address that was dialled.
        address: SocketAddr,
        /// What happened, and what may help.
        reason: String,
    },
    /// The kernel refused something that the event loop cannot do without.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}

impl Plan {
    /// Runs the plan to its end, or until a signal arrives.
    pub fn run(&self, signals: &mut Signals) -> Result<Report, RunError> {
        let url = Url::parse(&self.url)?;
        let address = url.resolve()?;
        raise_descriptor_limit();
        // Sleeps end up to 50 µs late by default, which would show up as latency.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));

        let mut generator = Generator::new(self, address, self.request(&url))?;
        let interrupted_early = !generator.connect(signals)?;
        let started = std::time::SystemTime::now();
        let before = processor_time();
        let interrupted = interrupted_early || !generator.run(signals)?;
        let after = processor_time();
        let (record, unsent, unanswered) = generator.finish();

        let requests = (record.all_ok_count() + record.all_failed_count()).max(1) as f64;
        let cpu = after.saturating_sub(before).as_secs_f64() * 1e6 / requests;
        let measured_s = record.measured() as f64 / 1e9;
        let answered = record.ok_in_time as f64;
        Ok(Report {
            format: FORMAT.to_owned(),
            name: self.name.clone(),
            round: self.round,
            config: self.config(address),
            started_unix_ms: started
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| {
                    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
                }),
            measured_s,
            interrupted,
            counts: Counts {
                intended: record.ok + record.failed_count() + unsent + unanswered,
                ok: record.ok,
                failed: record.failed_count(),
                unsent,
                unanswered,
                warmup_ok: record.warmup.histogram().len(),
                connections_opened: record.connections,
                content_bytes: record.content,
            },
            rates: Rates {
                wanted_qps: self.qps,
                achieved_qps: if measured_s > 0.0 {
                    (answered / measured_s * 1000.0).round() / 1000.0
                } else {
                    0.0
                },
            },
            status: record
                .statuses
                .iter()
                .map(|(status, count)| (status.to_string(), *count))
                .collect(),
            errors: by_name(&record.failures),
            warmup_errors: by_name(&record.warmup_failures),
            response_time: Summary::of(&record.response),
            service_time: Summary::of(&record.service),
            lateness: Summary::of(&record.lateness),
            connect_time: Summary::of(&record.connect),
            failed_time: Summary::of(&record.failed),
            warmup_time: Summary::of(&record.warmup),
            generator: Used {
                cpu_us_per_request: (cpu * 1e3).round() / 1e3,
            },
            extra: Default::default(),
        })
    }

    fn config(&self, address: SocketAddr) -> Config {
        Config {
            url: self.url.clone(),
            address: address.to_string(),
            qps: self.qps,
            connections: self.connections,
            duration_s: self.duration.as_secs_f64(),
            warmup_s: self.warmup.as_secs_f64(),
            keepalive: self.keepalive,
            arrivals: match (self.qps > 0.0, self.arrivals) {
                (false, _) => "closed-loop",
                (true, Arrivals::Uniform) => "uniform",
                (true, Arrivals::Poisson) => "poisson",
                (true, Arrivals::Jitter) => "jitter",
            }
            .to_owned(),
            timeout_s: self.timeout.as_secs_f64(),
            seed: self.seed,
        }
    }

    /// The bytes of every request.
    fn request(&self, url: &Url) -> Vec<u8> {
        let mut request = format!("GET {} HTTP/1.1\r\n", url.path);
        let mut field = |name: &str, value: &str| {
            if !self
                .headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
            {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        };
        field("Host", &url.authority);
        field(
            "User-Agent",
            concat!("lateen-load/", env!("CARGO_PKG_VERSION")),
        );
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.keepalive {
            request.push_str("Connection: close\r\n");
        }
        request.push_str("\r\n");
        request.into_bytes()
    }
}

fn by_name(
    failures: &std::collections::BTreeMap<Failure, u64>,
) -> std::collections::BTreeMap<String, u64> {
    failures
        .iter()
        .map(|(failure, count)| (failure.to_string(), *count))
        .collect()
}

/// Asks for as many descriptors as this process may have; without them a run with many connections
/// fails later with a message of its own.
pub fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

/// The processor time of this process so far, in user space and in the kernel together. The kernel's
/// own split of the two is sampled, and wrong for a process that wakes up a thousand times a second.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Nanoseconds since a run began.
#[derive(Debug, Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A record that begins anew when the clock does.
fn record_of(plan: &Plan) -> Record {
    let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Record::new(
        nanoseconds(plan.warmup),
        nanoseconds(plan.warmup.saturating_add(plan.duration)),
    )
}
