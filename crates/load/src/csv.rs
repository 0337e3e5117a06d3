//! A run's report as one line of comma-separated values (RFC 4180), for spreadsheets. Times are in
//! milliseconds, rates in requests per second.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::report::{Report, Summary};

/// The names of the columns and the line of a report.
fn columns(report: &Report) -> Vec<(String, String)> {
    let config = &report.config;
    let mut columns = vec![
        (
            "started_unix_ms".to_owned(),
            report.started_unix_ms.to_string(),
        ),
        ("name".to_owned(), report.name.clone()),
        ("round".to_owned(), report.round.to_string()),
        ("url".to_owned(), config.url.clone()),
        ("connections".to_owned(), config.connections.to_string()),
        ("keepalive".to_owned(), config.keepalive.to_string()),
        ("arrivals".to_owned(), config.arrivals.clone()),
        ("measured_s".to_owned(), report.measured_s.to_string()),
        ("interrupted".to_owned(), report.interrupted.to_string()),
        ("wanted_qps".to_owned(), report.rates.wanted_qps.to_string()),
        (
            "achieved_qps".to_owned(),
            report.rates.achieved_qps.to_string(),
        ),
        ("intended".to_owned(), report.counts.intended.to_string()),
        ("ok".to_owned(), report.counts.ok.to_string()),
        ("failed".to_owned(), report.counts.failed.to_string()),
        ("unsent".to_owned(), report.counts.unsent.to_string()),
        (
            "unanswered".to_owned(),
            report.counts.unanswered.to_string(),
        ),
        (
            "connections_opened".to_owned(),
            report.counts.connections_opened.to_string(),
        ),
        (
            "content_bytes".to_owned(),
            report.counts.content_bytes.to_string(),
        ),
        (
            "generator_cpu_us_per_request".to_owned(),
            report.generator.cpu_us_per_request.to_string(),
        ),
    ];
    let times = [
        ("response", &report.response_time),
        ("service", &report.service_time),
        ("lateness", &report.lateness),
        ("connect", &report.connect_time),
        ("handshake", &report.handshake_time),
        ("failed", &report.failed_time),
        ("warmup", &report.warmup_time),
    ];
    for (name, times) in times {
        for (point, value) in points(times) {
            columns.push((format!("{name}_{point}_ms"), value));
        }
    }
    columns
}

/// A report's values by the names of their columns.
#[cfg(test)]
pub fn row(report: &Report) -> std::collections::BTreeMap<String, String> {
    columns(report).into_iter().collect()
}

/// The figures of a histogram; empty where there is nothing to sum up or to tell, so that no mean counts a zero
/// that nobody measured.
fn points(times: &Summary) -> [(&'static str, String); 8] {
    let figure = |value: Option<f64>| match value {
        Some(value) if times.count > 0 => value.to_string(),
        _ => String::new(),
    };
    [
        ("min", figure(Some(times.min))),
        ("avg", figure(Some(times.avg))),
        ("p50", figure(times.p50)),
        ("p75", figure(times.p75)),
        ("p90", figure(times.p90)),
        ("p99", figure(times.p99)),
        ("p99.9", figure(times.p99_9)),
        ("max", figure(Some(times.max))),
    ]
}

fn line<'a>(fields: impl Iterator<Item = &'a String>) -> String {
    let mut line = fields
        .map(|field| quoted(field))
        .collect::<Vec<_>>()
        .join(",");
    line.push_str("\r\n");
    line
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// Adds a report to a file, below the names of the columns if the file is new or empty, so that the
/// runs of a series make one table. A file with other columns is left alone.
pub fn append(path: &Path, report: &Report) -> io::Result<()> {
    let columns = columns(report);
    let head = line(columns.iter().map(|(name, _)| name));
    let row = line(columns.iter().map(|(_, value)| value));
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    let mut begin = Vec::new();
    Read::by_ref(&mut file)
        .take(head.len() as u64)
        .read_to_end(&mut begin)?;
    if begin.is_empty() {
        return file.write_all(format!("{head}{row}").as_bytes());
    }
    if begin != head.as_bytes() {
        return Err(io::Error::other(
            "the file has other columns; name a new one, or remove it",
        ));
    }
    file.write_all(row.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads RFC 4180 back.
    fn fields(line: &str) -> Vec<String> {
        let (mut fields, mut field, mut inside) = (Vec::new(), String::new(), false);
        let mut chars = line.strip_suffix("\r\n").unwrap().chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if inside && chars.peek() == Some(&'"') => {
                    chars.next();
                    field.push('"');
                }
                '"' => inside = !inside,
                ',' if !inside => fields.push(std::mem::take(&mut field)),
                c => field.push(c),
            }
        }
        fields.push(field);
        fields
    }

    proptest! {
        #[test]
        fn every_text_comes_back(texts in prop::collection::vec("[a,\"\r\n☃]{0,6}", 1..6)) {
            prop_assert_eq!(fields(&line(texts.iter())), texts);
        }
    }
}
