//! Report of a run: JSON for programs, a short text for people. Times are in milliseconds, rates in requests per second.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer as JsonSerializer};

use crate::record::{ByKind, Counts, Kind, Times, merge, no_times};

mod warnings;

/// The version of the JSON that this program writes.
pub const FORMAT: &str = "lateen-load/1";

/// The result of one run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: &'static str,
    /// The name of the measured setup, for example `none` or `mesh`.
    pub name: String,
    /// Which repetition this is, from 1.
    pub round: u32,
    /// The plan of the run.
    pub config: Config,
    /// The start of the run, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The measured time, without the warm-up, in seconds.
    pub measured_s: f64,
    /// The time until every measured request had ended, in seconds: the measured time and, if answers
    /// came after it, the time until the last.
    pub ended_s: f64,
    /// Whether a signal ended the run early.
    pub interrupted: bool,
    /// Requests by outcome.
    pub counts: Counts,
    /// Requests per second.
    pub rates: Rates,
    /// Answers by status.
    pub status: BTreeMap<String, u64>,
    /// Failed requests by kind: refused, connect, reset, closed, timeout, malformed, tls, refusal,
    /// grpc_N, status_NNN.
    pub errors: BTreeMap<String, u64>,
    /// The same for the warm-up.
    pub warmup_errors: BTreeMap<String, u64>,
    /// The detail of the first failure of a kind, where there was more to say.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub error_details: BTreeMap<String, String>,
    /// The times of each kind. Unless something else is asked for, the response time is "latency".
    #[serde(flatten)]
    pub times: ByKind<Summary>,
    /// The generator's own use of the machine.
    pub generator: Generator,
}

/// The plan of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Config {
    /// The target of the requests; the first, if there are several.
    pub url: String,
    /// The address of its host.
    pub address: String,
    /// All targets, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetConfig>,
    /// http/1.1, h2c, h2, grpc, grpc-stream or tcp.
    pub protocol: &'static str,
    /// Whether TLS is spoken below it.
    pub tls: bool,
    /// The method, where it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Content of each request, in bytes.
    pub body_bytes: u64,
    /// Wanted requests per second; 0 means as fast as the answers come.
    pub qps: f64,
    /// Connections.
    pub connections: usize,
    /// Requests under way on one connection at once, at most.
    pub streams: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Measured time, in seconds; 0 where `requests` ends the run.
    pub duration_s: f64,
    /// Time before that, in seconds.
    pub warmup_s: f64,
    /// The number of requests to send, where not the time ends the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Whether connections carry more than one request.
    pub keepalive: bool,
    /// The number of requests that a connection carries before it is replaced: at least, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_connection: Option<[u64; 2]>,
    /// Connections replaced per second, beside that.
    pub connection_rate: f64,
    /// The spread of starts: uniform, poisson, jitter or closed-loop.
    pub arrivals: &'static str,
    /// Pause of a closed loop between an answer and the next request, in seconds.
    pub think_s: f64,
    /// The limit of a request, in seconds.
    pub timeout_s: f64,
    /// The seed of the random spread.
    pub seed: u64,
}

/// One of several targets.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TargetConfig {
    /// The target.
    pub url: String,
    /// The address of its host.
    pub address: String,
    /// Its share, relative to the others'.
    pub weight: f64,
}

/// Requests per second.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rates {
    /// The wanted rate; 0 in a closed loop.
    pub wanted_qps: f64,
    /// Answers below 400 that came within the measured time, per second of it.
    pub achieved_qps: f64,
}

/// The generator's use of the machine in the whole run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Generator {
    /// Processor time per request, user space and kernel together, in microseconds.
    pub cpu_us_per_request: f64,
    /// Processor time per second and thread; at 1 the generator can do no more.
    pub cpu_share: f64,
    /// Time per second and thread in which it could have run and was not let.
    pub wait_share: f64,
}

/// The number of times that must lie beyond a percentile for it to be told: one that rests on fewer is chance.
const LEAST_BEYOND: f64 = 100.0;

/// Whether enough of so many times lie beyond a quantile.
pub fn is_told(quantile: f64, count: u64) -> bool {
    // One minus a decimal fraction is a little beside what it looks like.
    (1.0 - quantile) * count as f64 >= LEAST_BEYOND * (1.0 - 1e-9)
}

/// The percentiles of a summary: the quantile of each, and its name.
pub const PERCENTILES: [(f64, &str); 5] = [
    (0.5, "p50"),
    (0.75, "p75"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
];

/// A histogram in numbers; milliseconds. A percentile is absent where too few times lie beyond it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The number of times that it holds. All else is 0 when it holds none.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub avg: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// [`PERCENTILES`] by name.
    #[serde(flatten)]
    pub percentiles: BTreeMap<&'static str, f64>,
    /// Largest.
    pub max: f64,
    /// All of it in nanoseconds: HdrHistogram's V2 encoding in base64.
    pub histogram: String,
}

impl Serialize for ByKind<Summary> {
    /// Some kinds are left out where there was none.
    fn serialize<S: JsonSerializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (kind, name, _) in Kind::ALL {
            let rare = [Kind::Handshake, Kind::WarmupConnect, Kind::WarmupHandshake];
            if rare.contains(&kind) && self[kind].count == 0 {
                continue;
            }
            let suffix = if kind == Kind::Lateness { "" } else { "_time" };
            map.serialize_entry(&format!("{name}{suffix}"), &self[kind])?;
        }
        map.end()
    }
}

impl Summary {
    /// Sums a histogram up, with every percentile, however few times lie beyond it.
    pub fn of(histogram: &Times) -> Summary {
        if histogram.is_empty() {
            return Summary::default();
        }
        let mut encoded = Vec::new();
        V2Serializer::new()
            .serialize(histogram, &mut encoded)
            .expect("a histogram fits into memory twice");
        let at = |(quantile, name)| (name, ms(histogram.value_at_quantile(quantile) as f64));
        Summary {
            count: histogram.len(),
            min: ms(histogram.min() as f64),
            avg: ms(histogram.mean()),
            stddev: ms(histogram.stdev()),
            percentiles: PERCENTILES.map(at).into(),
            max: ms(histogram.max() as f64),
            histogram: STANDARD.encode(encoded),
        }
    }

    /// The percentiles, of which some may be absent.
    pub fn percentiles(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
        PERCENTILES
            .map(|(_, name)| (name, self.percentiles.get(name).copied()))
            .into_iter()
    }

    /// Each figure and its name.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
        let ends = [("min", Some(self.min)), ("avg", Some(self.avg))];
        let figures = ends.into_iter().chain(self.percentiles());
        figures.chain([("max", Some(self.max))])
    }

    /// Leaves out the percentiles that rest on too few times.
    fn leave_out_few(&mut self) {
        let few = |(quantile, _): &(f64, &str)| !is_told(*quantile, self.count);
        for (_, name) in PERCENTILES.into_iter().filter(few) {
            self.percentiles.remove(name);
        }
    }

    /// The histogram itself, in nanoseconds; empty where the summary has none.
    pub fn times(&self) -> Times {
        let mut times = no_times();
        if let Ok(bytes) = STANDARD.decode(&self.histogram)
            && let Ok(written) = Deserializer::new().deserialize(&mut bytes.as_slice())
        {
            // The range of an encoded histogram is that of its values; adding needs the whole.
            merge(&mut times, &written);
        }
        times
    }

    /// The time that so much of the times is no longer than, however few lie beyond: to judge by, not to tell.
    pub fn quantile(&self, quantile: f64) -> f64 {
        ms(self.times().value_at_quantile(quantile) as f64)
    }
}

/// Milliseconds, to ten nanoseconds.
fn ms(nanoseconds: f64) -> f64 {
    (nanoseconds / 10.0).round() / 1e5
}

impl Report {
    /// Leaves out the percentiles with fewer than 100 times beyond them.
    pub fn leave_out_few(&mut self) {
        self.times.iter_mut().for_each(Summary::leave_out_few);
    }

    /// The report as a person reads it.
    pub fn to_text(&self) -> String {
        let config = &self.config;
        let mut out = String::new();
        let rate = match config.qps {
            0.0 => "as many requests as possible".to_owned(),
            qps => format!("{qps} requests/s"),
        };
        let plural = if config.connections == 1 { "" } else { "s" };
        let mut reuse = match (config.keepalive, config.requests_per_connection) {
            (false, _) => ", a new one per request".to_owned(),
            (true, Some([least, most])) => format!(", {least} to {most} requests on each"),
            (true, None) => String::new(),
        };
        if config.connection_rate > 0.0 {
            let _ = write!(reuse, ", {} replaced per second", config.connection_rate);
        }
        if config.streams > 1 {
            let _ = write!(reuse, " of {} streams", config.streams);
        }
        let others = match config.targets.len() {
            0 | 1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        let extent = match config.requests {
            Some(requests) => format!("{requests} in all"),
            None => format!(
                "{} s after {} s of warm-up",
                config.duration_s, config.warmup_s
            ),
        };
        let _ = writeln!(
            out,
            "{} ({}){others}: {rate} over {} connection{plural}{reuse}, {} arrivals, {extent}",
            config.url, config.address, config.connections, config.arrivals,
        );
        let _ = writeln!(
            out,
            "{:22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms", "avg", "P50", "P75", "P90", "P99", "P99.9", "max", "count"
        );
        let mut left_out = false;
        for (kind, _, name) in Kind::ALL {
            let summary = &self.times[kind];
            if summary.count == 0 {
                continue;
            }
            let _ = write!(out, "{name:22}{:>10.3}", summary.avg);
            for (_, value) in summary.percentiles() {
                left_out |= value.is_none();
                let value = value.map_or("–".to_owned(), |value| format!("{value:.3}"));
                let _ = write!(out, "{value:>10}");
            }
            let _ = writeln!(out, "{:>10.3}{:>10}", summary.max, summary.count);
        }
        if left_out {
            out.push_str(
                "– fewer than 100 times lie beyond; --all-percentiles tells it all the same\n",
            );
        }
        let list = |counts: &BTreeMap<String, u64>| {
            let said = |(kind, count): (&String, &u64)| format!("{kind} × {count}");
            counts.iter().map(said).collect::<Vec<_>>().join(", ")
        };
        let _ = write!(out, "{:.1} answers/s", self.rates.achieved_qps);
        if config.qps > 0.0 {
            let _ = write!(out, " of {:.1} wanted", self.rates.wanted_qps);
        }
        let counts = &self.counts;
        let _ = write!(out, "; {} ok, {} failed", counts.ok, counts.failed);
        if !self.errors.is_empty() {
            let _ = write!(out, " ({})", list(&self.errors));
        }
        if !self.warmup_errors.is_empty() {
            let _ = write!(out, ", in the warm-up: {}", list(&self.warmup_errors));
        }
        let (unsent, unanswered) = (counts.unsent, counts.unanswered);
        if unsent + unanswered > 0 {
            let _ = write!(out, ", {unsent} unsent, {unanswered} unanswered");
        }
        let _ = writeln!(
            out,
            "; the generator took {:.1} µs of processor time per request",
            self.generator.cpu_us_per_request
        );
        for (kind, detail) in &self.error_details {
            let _ = writeln!(out, "first {kind}: {detail}");
        }
        for warning in self.warnings() {
            let _ = writeln!(out, "note: {warning}");
        }
        out
    }
}

#[cfg(test)]
mod tests;
