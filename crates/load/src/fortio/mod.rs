//! A run's report as Fortio's JSON, for `fortio report` and other readers of that format. Keys and types are those of Fortio
//! 1.75.
//!
//! Times run from the instant at which a request was due to its end. So they count the queue that Fortio's own times leave out.

mod histogram;

use std::collections::BTreeMap;
use std::ops::Bound::Excluded;
use std::time::Duration;

use serde_json::{Value, json};
use time::UtcDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::record::{Kind, Times, merge};
use crate::report::{Report, Summary};
use crate::text::number;

/// The form of a result.
#[derive(Debug, clap::Args)]
pub struct Form {
    /// The width of the smallest buckets in Fortio's JSON, in seconds
    #[arg(long = "fortio-resolution", value_name = "SECONDS", default_value = "0.0001", value_parser = number(1e-9..=100.0, "must be a number of seconds between 1e-9 and 100"))]
    resolution: f64,
    /// The percentiles in Fortio's JSON
    #[arg(long = "fortio-percentiles", value_name = "LIST", value_delimiter = ',', default_value = "50,75,90,99,99.9", value_parser = number((Excluded(0.0), Excluded(100.0)), "must be above 0 and below 100"))]
    percentiles: Vec<f64>,
}

/// The report as Fortio's JSON, ending in a line feed.
pub fn to_json(report: &Report, form: &Form) -> String {
    format!("{:#}\n", value(report, form))
}

fn value(report: &Report, form: &Form) -> Value {
    let config = &report.config;
    let failed = report.times[Kind::Failed].times();
    let mut all = report.times[Kind::Response].times();
    // Fortio's histogram of all requests has the failed ones in it.
    merge(&mut all, &failed);
    let total = all.len();
    let (resolution, percentiles) = (form.resolution, &form.percentiles);
    let histogram = |times: &Times| histogram::export(times, resolution, percentiles);
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    // All requests, those answered after the measured time too, belong to the time until the last.
    let seconds = report.measured_s.max(report.ended_s);
    let rate = total as f64 / seconds.max(1e-9);
    let mut duration = match config.requests {
        Some(requests) => format!("exactly {requests} calls"),
        None => go_duration(config.duration_s),
    };
    if report.interrupted {
        duration += &format!(", interrupted after {total}");
    }
    let mut result = json!({
        "RunType": "HTTP",
        "Labels": labels(report),
        "StartTime": utc(report.started_unix_ms, format_description!(
            "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
        )),
        "RequestedQPS": if config.qps > 0.0 { config.qps.to_string() } else { "max".to_owned() },
        "RequestedDuration": duration,
        "ActualQPS": if total == 0 { 0.0 } else { rate },
        "ActualDuration": nanoseconds(seconds),
        "NumThreads": config.connections * config.streams.max(1),
        "Version": concat!("lateen-load ", env!("CARGO_PKG_VERSION")),
        "DurationHistogram": histogram(&all),
        "ErrorsDurationHistogram": histogram(&failed),
        "Exactly": config.requests.unwrap_or(0),
        "Jitter": config.arrivals == "jitter",
        "Uniform": config.arrivals == "uniform",
        "NoCatchUp": false,
        "RunID": 0,
        "AccessLoggerInfo": "",
        "ID": id(report),
        "RetCodes": codes(report),
        // The name of the times on Fortio's page; its own runs have no such key.
        "ResponseLabel": "Response time from when a request was due",
    });
    let of_protocol = match config.url.split("://").next() {
        Some("tcp") => json!({
            "RunType": "TCP",
            "Destination": config.url,
            "Payload": null,
            "UnixDomainSocket": "",
            "ReqTimeout": nanoseconds(config.timeout_s),
            "SocketCount": report.counts.connections_opened,
            "BytesSent": 0,
            "BytesReceived": report.counts.content_bytes,
        }),
        Some("grpc" | "grpcs") => json!({
            "RunType": "GRPC Ping",
            "Destination": config.url,
            "Streams": config.streams,
            "Ping": true,
            "Metadata": {},
        }),
        _ => http(report, form),
    };
    if let (Some(result), Value::Object(more)) = (result.as_object_mut(), of_protocol) {
        result.extend(more);
    }
    result
}

/// The keys that results of HTTP have beside those of every result. Figures that are not known here (sizes
/// with heads, sockets by thread) are empty.
fn http(report: &Report, form: &Form) -> Value {
    let config = &report.config;
    let opened = report.counts.connections_opened;
    // Fortio counts every connection.
    let mut connects = report.times[Kind::Connect].times();
    merge(&mut connects, &report.times[Kind::WarmupConnect].times());
    let no_sizes = || histogram::export(&Summary::default().times(), form.resolution, &[]);
    json!({
        "URL": config.url,
        "NumConnections": 1,
        "Compression": false,
        "DisableFastClient": config.protocol.starts_with("h2"),
        "HTTP10": false,
        "H2": config.protocol.starts_with("h2"),
        "DisableKeepAlive": !config.keepalive,
        "AllowHalfClose": false,
        "FollowRedirects": false,
        "Resolve": "",
        "HTTPReqTimeOut": (config.timeout_s * 1e9) as u64,
        "UserCredentials": "",
        "ContentType": "",
        "Payload": null,
        "MethodOverride": "",
        "LogErrors": false,
        "SequentialWarmup": false,
        "ConnReuseRange": [0, 0],
        "NoResolveEachConn": false,
        "Offset": 0,
        "Resolution": form.resolution,
        "CACert": "",
        "Cert": "",
        "Key": "",
        "UnixDomainSocket": "",
        "MTLS": false,
        "Insecure": false,
        "AbortOn": 0,
        "IPCountMap": BTreeMap::from([(&config.address, opened)]),
        "Sizes": no_sizes(),
        "HeaderSizes": no_sizes(),
        "Sockets": [],
        "SocketCount": opened,
        "ConnectionStats":
            histogram::export(&connects, form.resolution, &form.percentiles),
    })
}

/// Answers by status, requests without one as a socket's error; in the words of Fortio's protocol.
fn codes(report: &Report) -> BTreeMap<String, u64> {
    let scheme = report.config.url.split("://").next();
    let (answered, lost) = match scheme {
        Some("grpc" | "grpcs") => ("SERVING", "ERROR"),
        Some("tcp") => ("OK", "ERROR"),
        _ => ("200", "-1"),
    };
    let mut codes = report.status.clone();
    if let Some(count) = codes.remove("200") {
        codes.insert(answered.to_owned(), count);
    }
    let mut errors = report.errors.clone();
    errors.retain(|kind, _| !kind.starts_with("status_"));
    let count = errors.values().sum();
    if count > 0 {
        codes.insert(lost.to_owned(), count);
    }
    codes
}

fn labels(report: &Report) -> String {
    if !report.name.is_empty() {
        return report.name.clone();
    }
    let url = &report.config.url;
    let rest = url.split_once("://").map(|(_, rest)| rest);
    rest.unwrap_or(url).to_owned()
}

/// The text that Fortio names the file of a result after: time and labels, at most 96 bytes that fit a file name.
fn id(report: &Report) -> String {
    let format = format_description!("[year]-[month]-[day]-[hour][minute][second]_");
    let mut id = utc(report.started_unix_ms, format);
    let mut last = '_';
    for c in labels(report).chars() {
        let c = if c.is_ascii_alphanumeric() { c } else { '_' };
        if id.len() < 96 && (c != '_' || last != '_') {
            id.push(c);
            last = c;
        }
    }
    id.trim_end_matches('_').to_owned()
}

/// An instant in UTC, from milliseconds since 1970; empty beyond the year 9999.
fn utc(milliseconds: u64, format: &[BorrowedFormatItem<'_>]) -> String {
    let since = Duration::from_millis(milliseconds);
    let time = UtcDateTime::UNIX_EPOCH.checked_add(since.try_into().unwrap_or_default());
    let text = time.and_then(|time| time.format(format).ok());
    text.unwrap_or_default()
}

/// Seconds as Go prints a duration: 1m30s, 500ms.
fn go_duration(seconds: f64) -> String {
    if seconds < 1.0 {
        return match seconds > 0.0 {
            true => format!("{}ms", (seconds * 1e6).round() / 1e3),
            false => "0s".to_owned(),
        };
    }
    let whole = (seconds / 60.0).floor() as u64;
    let rest = ((seconds - whole as f64 * 60.0) * 1e9).round() / 1e9;
    match (whole / 60, whole % 60) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests;
