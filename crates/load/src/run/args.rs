//! The command line of a run, which is its plan.

use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;
use lateen_http::Method;
use serde::Serialize;

use super::error::RunError;
use super::live::Progress;
use crate::arrivals::Arrivals;
use crate::{csv, fortio, signals, text, tls};

/// The text that `--help` shows below the options.
pub const HELP: &str = "\
Example:
  lateen-load run --url http://details:9080/details/0 --qps 100 --connections 10 --json none-1.json --name none

The scheme of the URL names the protocol: http:// and https:// are HTTP/1.1 or, with --http2, HTTP/2;
grpc:// and grpcs:// call the method that the path names, /fgrpc.PingServer/Ping without one, and
--body-file is then the message itself; tcp:// sends a payload and takes the same bytes back.

Requests start when they are due, whatever became of the earlier ones (an open loop), and take turns on
the connections. One that finds its connection busy waits, and its response time counts from when
it was due. Times are reported three ways: the response time from when a request was due, the
service time from when it was sent, and the generator's own lateness. --qps 0 makes it a closed loop.

-n N sends exactly N requests, failed ones among them, and ends with the last answer: at the rate of
--qps, or with --qps 0 as fast as the answers come. All of them are measured.

Several --url share the requests by --weights. URLs of one server share its connections; the
connections are shared out among servers by the same weights, which in a closed loop decides.

Exit status: 0 when there were answers, 1 when there was none or the target cannot be used, 64 for a
wrong command line. Ctrl-C ends a run early; it still writes what it has.";

/// The requests, their targets and connections: all options that a run and a search share.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// Target of requests (repeatable): http://host[:port][/path], https://, grpc://, grpcs://, tcp://host:port
    #[arg(long = "url", value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// The share of each --url, for example 3,1
    #[arg(long, value_delimiter = ',',
        value_parser = text::number(0.000_001..=1e6, "write numbers above zero, for example 3,1"))]
    pub weights: Vec<f64>,
    /// Speak HTTP/2: with https:// if the server agrees (ALPN), with http:// unasked (h2c)
    #[arg(long)]
    pub http2: bool,
    /// Requests under way at once on a connection of HTTP/2 or gRPC
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u16).range(1..=10_000).map(usize::from))]
    pub streams: usize,
    /// Send messages of gRPC on streams that stay, instead of a call each
    #[arg(long)]
    pub streaming: bool,
    /// The method of requests; GET, or POST with a body, unless given
    #[arg(long, short = 'X', value_parser = method)]
    pub method: Option<String>,
    /// Send this text with every request
    #[arg(long, value_name = "TEXT", group = "content")]
    body: Option<String>,
    /// Send so many bytes with every request
    #[arg(
        long,
        visible_alias = "payload-size",
        value_name = "BYTES",
        group = "content",
        value_parser = clap::value_parser!(u32).range(..=64 << 20)
    )]
    body_size: Option<u32>,
    /// Send what this file holds with every request
    #[arg(long, value_name = "FILE", group = "content")]
    pub body_file: Option<PathBuf>,
    /// Add a field to every request (repeatable)
    #[arg(long = "header", short = 'H', value_name = "NAME:VALUE", value_parser = text::header)]
    pub headers: Vec<(String, String)>,
    /// Connections to keep
    #[arg(long, short = 'c', default_value = "10", value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub connections: usize,
    /// Threads that share connections and rate
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256).map(usize::from))]
    pub threads: usize,
    /// Spread of starts in time
    #[arg(long, value_enum, default_value_t = Arrivals::Uniform)]
    pub arrivals: Arrivals,
    /// Open a new connection for every request
    #[arg(long, conflicts_with = "requests_per_connection")]
    no_keepalive: bool,
    /// Replace a connection after so many requests, drawn anew for each connection
    #[arg(long, value_name = "MIN:MAX", value_parser = range)]
    requests_per_connection: Option<(u64, u64)>,
    /// Replace so many connections per second, each once its request is over
    #[arg(long, value_name = "PER_SECOND", default_value_t = 0.0, value_parser = rate)]
    pub connection_rate: f64,
    /// Give a request up after this time
    #[arg(long, default_value = "10s", value_parser = positive_duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub tls: tls::Options,
    /// Begin even if the target cannot be reached; requests fail until it can
    #[arg(long)]
    pub initial_errors: bool,
    /// Name of the measured setup, for the table: none, mesh, ...
    #[arg(long, default_value = "")]
    pub name: String,
    /// Seed of random arrivals
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write a line of progress each second; on a terminal this is the default
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text"
    )]
    progress: Option<Progress>,
}

/// The plan of a run.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Requests per second; 0 sends the next request when an answer is there
    #[arg(long, default_value_t = 100.0, value_parser = rate)]
    pub qps: f64,
    /// Time to measure
    #[arg(long, short = 'd', default_value = "10s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Send exactly this many requests, without a warm-up, instead of sending for a time
    #[arg(long, short = 'n', value_name = "N", conflicts_with_all = ["duration", "warmup"],
        value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Time to send before measuring
    #[arg(long, default_value = "2s", value_parser = text::duration)]
    pub warmup: Duration,
    /// Pause of a closed loop between an answer and the next request
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = text::duration)]
    pub think_time: Duration,
    /// Number of this repetition, for the table
    #[arg(long, default_value_t = 1)]
    pub round: u32,
}

/// The command line of `lateen-load run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    plan: Plan,
    /// Write the result as JSON to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Tell percentiles with fewer than 100 times beyond them, too
    #[arg(long)]
    all_percentiles: bool,
    /// Write the result as Fortio's JSON, which `fortio report` shows
    #[arg(long, value_name = "FILE")]
    fortio_json: Option<PathBuf>,
    #[command(flatten)]
    form: fortio::Form,
    /// Add the result to a file of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl LoadArgs {
    /// The content of every request.
    pub fn body(&self) -> Result<Arc<[u8]>, RunError> {
        Ok(match (&self.body, self.body_size, &self.body_file) {
            (Some(text), _, _) => text.as_bytes().into(),
            (_, Some(size), _) => (b'a'..=b'z').cycle().take(size as usize).collect(),
            (_, _, Some(path)) => std::fs::read(path)
                .map_err(|error| RunError::Plan(format!("read {}: {error}", path.display())))?
                .into(),
            _ => Arc::default(),
        })
    }

    /// The number of requests that a connection carries before another takes its place: at least, at most.
    pub fn reuse(&self) -> (u64, u64) {
        let unless_given = if self.no_keepalive { 1 } else { u64::MAX };
        let reuse = self.requests_per_connection;
        reuse.unwrap_or((unless_given, unless_given))
    }

    /// The form of a line of progress each second.
    pub fn progress(&self) -> Progress {
        let live = io::stderr().is_terminal();
        let unless_given = if live { Progress::Live } else { Progress::None };
        self.progress.unwrap_or(unless_given)
    }
}

/// Runs `lateen-load run`.
pub fn run(args: RunArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let signals = signals::take_over()?;
    let plan = args.plan;
    if plan.qps > 0.0 && !plan.think_time.is_zero() {
        return Err("--think-time is for a closed loop: add --qps 0".into());
    }
    let mut report = plan.run(&signals)?;
    if !args.all_percentiles {
        report.leave_out_few();
    }
    write(&report, &report.to_text(), args.json.as_deref())?;
    if let Some(path) = &args.fortio_json {
        write_file(path, &fortio::to_json(&report, &args.form))?;
    }
    if let Some(path) = &args.csv {
        csv::append(path, &report).map_err(|error| unwritten(path, &error))?;
    }
    let nothing_answered = report.counts.ok + report.counts.warmup_ok == 0;
    if nothing_answered && !report.interrupted {
        let url = report.config.url;
        return Err(format!("{url}: no request was answered with success").into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a result as JSON where it is wanted, and its text for people beside it.
pub fn write(
    result: &impl Serialize,
    text: &str,
    to: Option<&Path>,
) -> Result<(), Box<dyn std::error::Error>> {
    let json = serde_json::to_string_pretty(result)? + "\n";
    if to == Some(Path::new("-")) {
        io::stdout().write_all(json.as_bytes())?;
        io::stderr().write_all(text.as_bytes())?;
        return Ok(());
    }
    if let Some(path) = to {
        write_file(path, &json)?;
    }
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("write {}: {error}", path.display())
}

/// The rates that can be told apart, in requests per second.
pub const RATES: RangeInclusive<f64> = 0.001..=1_000_000.0;

/// Reads a rate, or 0.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(0.0),
        _ => text::number(RATES, "must be 0, or between 0.001 and 1000000")(text),
    }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once(':').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if 1 <= least && least <= most => Ok((least, most)),
        _ => Err("write MIN:MAX, for example 50:100; at least 1 each".to_owned()),
    }
}

fn method(text: &str) -> Result<String, String> {
    if Method::new(text).is_none() {
        return Err("not a method; write for example PUT".to_owned());
    }
    if text == "CONNECT" {
        return Err("CONNECT makes a tunnel, not a request".to_owned());
    }
    Ok(text.to_owned())
}

/// Reads a duration that is not zero.
pub fn positive_duration(value: &str) -> Result<Duration, String> {
    match text::duration(value)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused() {
        for value in ["-1", "nan", "inf", "0.0001", "2000000", "x"] {
            assert!(rate(value).is_err(), "{value}");
        }
        assert_eq!(rate("0"), Ok(0.0));
        assert_eq!(range("5:9"), Ok((5, 9)));
        assert_eq!(range("5"), Ok((5, 5)));
        for value in ["0:5", "9:5", ":", "1:x", ""] {
            assert!(range(value).is_err(), "{value}");
        }
        assert_eq!(method("PURGE"), Ok("PURGE".to_owned()));
        for value in ["", "GET /", "a\r\n", "CONNECT"] {
            assert!(method(value).is_err(), "{value}");
        }
    }
}
