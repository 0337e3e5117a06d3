//! A run's report as one line of comma-separated values (RFC 4180), for spreadsheets. Times are in
//! milliseconds, rates in requests per second.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use csv::{Reader, Terminator, WriterBuilder};

use crate::record::Kind;
use crate::report::Report;

/// The names of the columns and the line of a report.
fn columns(report: &Report) -> Vec<(String, String)> {
    let (config, counts) = (&report.config, &report.counts);
    let cpu = &report.generator.cpu_us_per_request;
    let columns: [(&str, &dyn Display); 19] = [
        ("started_unix_ms", &report.started_unix_ms),
        ("name", &report.name),
        ("round", &report.round),
        ("url", &config.url),
        ("connections", &config.connections),
        ("keepalive", &config.keepalive),
        ("arrivals", &config.arrivals),
        ("measured_s", &report.measured_s),
        ("interrupted", &report.interrupted),
        ("wanted_qps", &report.rates.wanted_qps),
        ("achieved_qps", &report.rates.achieved_qps),
        ("intended", &counts.intended),
        ("ok", &counts.ok),
        ("failed", &counts.failed),
        ("unsent", &counts.unsent),
        ("unanswered", &counts.unanswered),
        ("connections_opened", &counts.connections_opened),
        ("content_bytes", &counts.content_bytes),
        ("generator_cpu_us_per_request", cpu),
    ];
    let columns = columns.map(|(name, value)| (name.to_owned(), value.to_string()));
    let mut columns = Vec::from(columns);
    for (kind, name, _) in Kind::ALL {
        if matches!(kind, Kind::WarmupConnect | Kind::WarmupHandshake) {
            continue;
        }
        let times = &report.times[kind];
        columns.extend(times.figures().map(|(point, figure)| {
            // A mean must not count a zero that nobody measured.
            let told = figure.filter(|_| times.count > 0);
            let told = told.map_or(String::new(), |figure| figure.to_string());
            (format!("{name}_{point}_ms"), told)
        }));
    }
    columns
}

/// A report's values by the names of their columns.
#[cfg(test)]
pub fn row(report: &Report) -> std::collections::BTreeMap<String, String> {
    columns(report).into_iter().collect()
}

/// Adds a report to a file, below the names of the columns if the file is new or empty, so that the
/// runs of a series make one table. A file with other columns is left alone.
pub fn append(path: &Path, report: &Report) -> io::Result<()> {
    let (names, values): (Vec<_>, Vec<_>) = columns(report).into_iter().unzip();
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).open(path)?;
    let held = Reader::from_reader(&file).headers()?.clone();
    let mut writer = WriterBuilder::new();
    let mut writer = writer.terminator(Terminator::CRLF).from_writer(&file);
    if held.is_empty() {
        writer.write_record(&names)?;
    } else if held.iter().ne(&names) {
        let reason = "the file has other columns; name a new one, or remove it";
        return Err(io::Error::other(reason));
    }
    writer.write_record(&values)?;
    writer.flush()
}
