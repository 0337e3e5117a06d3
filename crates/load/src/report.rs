//! What a run says about itself: as JSON for programs, as a short text for people. Times are in
//! milliseconds, rates in requests per second.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

use crate::record::Times;

/// The version of the JSON that this program writes.
pub const FORMAT: &str = "lateen-load/1";

/// The result of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: String,
    /// What was measured, for example `none` or `mesh`.
    pub name: String,
    /// Which repetition this is, from 1.
    pub round: u32,
    /// What was asked for.
    pub config: Config,
    /// When the run began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long was measured, without the warm-up, in seconds.
    pub measured_s: f64,
    /// Whether a signal ended the run early.
    pub interrupted: bool,
    /// Requests by outcome.
    pub counts: Counts,
    /// Requests per second.
    pub rates: Rates,
    /// Answers by status.
    pub status: BTreeMap<String, u64>,
    /// Failed requests by kind: refused, connect, reset, closed, timeout, malformed, status_NNN.
    pub errors: BTreeMap<String, u64>,
    /// The same for the warm-up.
    pub warmup_errors: BTreeMap<String, u64>,
    /// Intended start to end of the response. Unless something else is asked for, this is "latency".
    pub response_time: Summary,
    /// Actual start to end of the response.
    pub service_time: Summary,
    /// From when a request could have been sent to when it was.
    pub lateness: Summary,
    /// Time to set up a connection.
    pub connect_time: Summary,
    /// Intended start to failure.
    pub failed_time: Summary,
    /// Response time during the warm-up.
    pub warmup_time: Summary,
    /// What the generator itself used.
    pub generator: Generator,
    /// Room for whoever ran it: numbers such as `proxy_cpu_us_per_request`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
}

/// What a run was asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// Where the requests went.
    pub url: String,
    /// What the host resolved to.
    pub address: String,
    /// Wanted requests per second; 0 means as fast as the answers come.
    pub qps: f64,
    /// Connections.
    pub connections: usize,
    /// Measured time, in seconds.
    pub duration_s: f64,
    /// Time before that, in seconds.
    pub warmup_s: f64,
    /// Whether connections carry more than one request.
    pub keepalive: bool,
    /// How starts were spread: uniform, poisson or jitter.
    pub arrivals: String,
    /// The limit of a request, in seconds.
    pub timeout_s: f64,
    /// What the random spread began with.
    pub seed: u64,
}

/// Requests of the measured time by outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Meant to start.
    pub intended: u64,
    /// Answered with a status below 400.
    pub ok: u64,
    /// Failed.
    pub failed: u64,
    /// Meant to start, but the run ended before their connection was free.
    pub unsent: u64,
    /// Sent, but the run was interrupted before they were answered.
    pub unanswered: u64,
    /// Answered during the warm-up.
    pub warmup_ok: u64,
    /// Connections opened in the whole run.
    pub connections_opened: u64,
    /// Content received, in bytes.
    pub content_bytes: u64,
}

/// Requests per second.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Rates {
    /// What was asked for; 0 in a closed loop.
    pub wanted_qps: f64,
    /// Answers below 400 that came within the measured time, per second of it.
    pub achieved_qps: f64,
}

/// What the generator used in the whole run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Generator {
    /// Processor time per request, user space and kernel together, in microseconds.
    pub cpu_us_per_request: f64,
}

/// A histogram in numbers; milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many times it holds. All else is 0 when it holds none.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub avg: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// Largest.
    pub max: f64,
    /// All of it in nanoseconds: HdrHistogram's V2 encoding in base64.
    pub histogram: String,
}

impl Summary {
    /// Sums a histogram up.
    pub fn of(times: &Times) -> Summary {
        let histogram = times.histogram();
        if histogram.is_empty() {
            return Summary::default();
        }
        let mut encoded = Vec::new();
        V2Serializer::new()
            .serialize(histogram, &mut encoded)
            .expect("a histogram fits into memory twice");
        let ms = |nanoseconds: f64| (nanoseconds / 10.0).round() / 1e5;
        let at = |quantile| ms(histogram.value_at_quantile(quantile) as f64);
        Summary {
            count: histogram.len(),
            min: ms(histogram.min() as f64),
            avg: ms(histogram.mean()),
            stddev: ms(histogram.stdev()),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: ms(histogram.max() as f64),
            histogram: STANDARD.encode(encoded),
        }
    }
}

impl Report {
    /// The report as JSON, ending in a line feed.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("a report has only string keys");
        json.push('\n');
        json
    }

    /// The report as a person reads it.
    pub fn to_text(&self) -> String {
        let config = &self.config;
        let mut out = String::new();
        let rate = if config.qps == 0.0 {
            "as many requests as possible".to_owned()
        } else {
            format!("{} requests/s", config.qps)
        };
        let plural = if config.connections == 1 { "" } else { "s" };
        let reuse = if config.keepalive {
            ""
        } else {
            ", a new one per request"
        };
        let _ = writeln!(
            out,
            "{} ({}): {rate} over {} connection{plural}{reuse}, {} arrivals, {} s after {} s of warm-up",
            config.url,
            config.address,
            config.connections,
            config.arrivals,
            config.duration_s,
            config.warmup_s
        );
        let _ = writeln!(
            out,
            "{:22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms", "avg", "P50", "P75", "P90", "P99", "P99.9", "max", "count"
        );
        let rows = [
            ("response time", &self.response_time),
            ("service time", &self.service_time),
            ("generator's lateness", &self.lateness),
            ("connection set-up", &self.connect_time),
            ("failed requests", &self.failed_time),
            ("warm-up", &self.warmup_time),
        ];
        for (name, summary) in rows.into_iter().filter(|(_, summary)| summary.count > 0) {
            let _ = write!(out, "{name:22}");
            for value in [
                summary.avg,
                summary.p50,
                summary.p75,
                summary.p90,
                summary.p99,
                summary.p99_9,
                summary.max,
            ] {
                let _ = write!(out, "{value:>10.3}");
            }
            let _ = writeln!(out, "{:>10}", summary.count);
        }
        let list = |counts: &BTreeMap<String, u64>| {
            counts
                .iter()
                .map(|(kind, count)| format!("{kind} × {count}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let _ = write!(out, "{:.1} answers/s", self.rates.achieved_qps);
        if config.qps > 0.0 {
            let _ = write!(out, " of {:.1} wanted", self.rates.wanted_qps);
        }
        let _ = write!(
            out,
            "; {} ok, {} failed",
            self.counts.ok, self.counts.failed
        );
        if !self.errors.is_empty() {
            let _ = write!(out, " ({})", list(&self.errors));
        }
        if !self.warmup_errors.is_empty() {
            let _ = write!(out, ", in the warm-up: {}", list(&self.warmup_errors));
        }
        if self.counts.unsent + self.counts.unanswered > 0 {
            let _ = write!(
                out,
                ", {} unsent, {} unanswered",
                self.counts.unsent, self.counts.unanswered
            );
        }
        let _ = writeln!(
            out,
            "; the generator took {:.1} µs of processor time per request",
            self.generator.cpu_us_per_request
        );
        for warning in self.warnings() {
            let _ = writeln!(out, "note: {warning}");
        }
        out
    }

    /// What a reader must know before he trusts the numbers.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.interrupted {
            warnings.push(format!(
                "interrupted after {:.1} s of measuring",
                self.measured_s
            ));
        }
        if self.config.qps > 0.0
            && !self.interrupted
            && self.rates.achieved_qps < 0.99 * self.rates.wanted_qps
        {
            warnings.push("less than 99 % of the wanted rate: the times are those of a queue, not of the service".to_owned());
        }
        if self.lateness.count > 0 && self.lateness.p99 > 0.1 * self.response_time.p99 {
            warnings.push(format!(
                "the generator's own lateness (P99 {:.3} ms) is more than a tenth of the response time's; compare service times too",
                self.lateness.p99
            ));
        }
        if self.response_time.count > 0 && self.response_time.count < 10_000 {
            warnings
                .push("fewer than 100 answers lie beyond P99: it rests on few samples".to_owned());
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn percentiles_are_milliseconds_and_the_histogram_comes_back() {
        let mut times = Times::new();
        for microseconds in 1..=1000 {
            times.add(microseconds * 1000);
        }
        let summary = Summary::of(&times);
        let near = |value: f64, expected: f64| (value - expected).abs() <= expected * 0.002;
        assert!(
            near(summary.p50, 0.5)
                && near(summary.p99, 0.99)
                && near(summary.max, 1.0)
                && near(summary.avg, 0.5005),
            "{summary:?}"
        );
        let bytes = STANDARD.decode(&summary.histogram).unwrap();
        let back: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert_eq!(back.len(), 1000);
        assert_eq!(
            back.value_at_quantile(0.9),
            times.histogram().value_at_quantile(0.9)
        );
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        assert_eq!(Summary::of(&Times::new()), Summary::default());
    }
}
