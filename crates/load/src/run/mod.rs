//! A run: it sends every request when the request is due, over a fixed set of connections, and receives the answers. It does
//! not decide what the times mean.

mod args;
mod clock;
mod connection;
mod error;
mod generator;
mod live;
mod origin;
mod plan;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::record::{ByKind, Counts, Record};
use crate::report::{Config, FORMAT, Generator as Used, Rates, Report, Summary};
pub use args::{HELP, LoadArgs, Plan, RATES, RunArgs, positive_duration, run, write};
use clock::Clock;
pub use error::RunError;
use generator::Generator;
use live::Live;
use plan::nanoseconds;

impl Plan {
    /// Runs the plan to its end, or until a signal arrives.
    pub fn run(&self, signals: &UnixStream) -> Result<Report, RunError> {
        let parts = self.parts()?;
        let config = self.config(&parts[0])?;
        raise_descriptor_limit();
        // Sleeps end up to 50 µs late by default, which would show up as latency. Threads that begin
        // later inherit it.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));

        let (warmup_end, end) = self.span();
        let (progress, name) = (self.load.progress(), &self.load.name);
        let live = Arc::new(Live::new(progress, name, warmup_end, end, parts.len()));
        let mut generators = Vec::new();
        let mut interrupted = false;
        for part in parts {
            if interrupted {
                break;
            }
            let mut generator = Generator::new(self, part, Arc::clone(&live))?;
            interrupted |= !generator.connect(signals)?;
            generators.push(generator);
        }
        let started = std::time::SystemTime::now();
        let before = processor_time();
        let clock = Clock::start();
        if !interrupted {
            interrupted = !run_all(&mut generators, clock)?;
        }
        let wall = clock.elapsed();
        let used = processor_time().saturating_sub(before);
        live.clear();

        let records = generators.into_iter().map(Generator::finish);
        let record = records.reduce(|mut record, other| {
            record.merge(&other);
            record
        });
        let record = record.expect("a plan has at least one part");
        let time = (wall.as_secs_f64() * self.load.threads as f64).max(1e-9);
        let requests = (record.all_ok_count() + record.all_failed_count()).max(1) as f64;
        let generator = Used {
            cpu_us_per_request: round(used.as_secs_f64() * 1e6 / requests),
            cpu_share: round(used.as_secs_f64() / time),
            wait_share: round(record.waited as f64 / 1e9 / time),
        };
        let since = started.duration_since(std::time::UNIX_EPOCH);
        let mut report = self.report(config, &record, interrupted);
        report.started_unix_ms = since.map_or(0, |since| nanoseconds(since) / 1_000_000);
        report.generator = generator;
        Ok(report)
    }

    fn report(&self, config: Config, record: &Record, interrupted: bool) -> Report {
        let counts = &record.counts;
        let measured_s = record.measured() as f64 / 1e9;
        let per_second = |count: u64| match measured_s > 0.0 {
            true => round(count as f64 / measured_s),
            false => 0.0,
        };
        Report {
            format: FORMAT,
            name: self.load.name.clone(),
            round: self.round,
            config,
            measured_s,
            ended_s: record.ended() as f64 / 1e9,
            interrupted,
            counts: Counts {
                intended: counts.ok + counts.failed + counts.unsent + counts.unanswered,
                ..counts.clone()
            },
            rates: Rates {
                wanted_qps: self.qps,
                achieved_qps: per_second(record.ok_in_time),
            },
            status: by_name(&record.statuses),
            errors: by_name(&record.failures),
            warmup_errors: by_name(&record.warmup_failures),
            error_details: by_name(&record.details),
            times: ByKind::new(|kind| Summary::of(&record.times[kind])),
            ..Report::default()
        }
    }
}

/// Runs all parts of a plan, each in a thread of its own. Returns false if a signal interrupted them.
fn run_all(generators: &mut [Generator], clock: Clock) -> Result<bool, RunError> {
    if let [only] = generators {
        return only.run(clock);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = generators
            .iter_mut()
            .map(|generator| scope.spawn(move || generator.run(clock)))
            .collect();
        let mut whole = true;
        for thread in threads {
            whole &= thread.join().expect("a generator does not panic")?;
        }
        Ok(whole)
    })
}

/// Rounds a figure to three decimals, by which rates are told apart.
pub fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn by_name<K: ToString, T: Clone>(named: &BTreeMap<K, T>) -> BTreeMap<String, T> {
    let named = named.iter();
    named
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect()
}

/// Asks for as many descriptors as this process may have; without them a run with many connections
/// fails later with a message of its own.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
}

/// The processor time of this process so far, in user space and in the kernel together. The kernel's
/// own split of the two is sampled, and wrong for a process that wakes up a thousand times a second.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}
