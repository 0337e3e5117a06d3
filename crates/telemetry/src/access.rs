//! Lines of the access log, in ztunnel's format: tab-separated text, or one JSON object a line.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tracing::Level;

use crate::clock::Timestamp;
use crate::export::{Report, ReportValue, Severity, Trace};
use crate::labels::{Labels, Party, Reporter, Security};
use crate::line::Line;
use crate::log::{self, Format};
use crate::share::LogShare;

/// The messages.
const COMPLETE: &str = "connection complete";
const FAILED: &str = "connection failed";

/// A connection, as the log tells of it.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Where it came from.
    pub source: SocketAddr,
    /// The name of the source's pod, where it is known.
    pub source_name: Option<&'a str>,
    /// Where it went: the tunnel's address where there is one.
    pub destination: SocketAddr,
    /// What the tunnel was asked for.
    pub hbone: Option<&'a str>,
    /// The name of the destination's pod.
    pub destination_name: Option<&'a str>,
    /// Everything else about the two ends.
    pub labels: &'a Labels,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
    /// How long it lived.
    pub duration: Duration,
    /// What policies in dry run would have done to it.
    pub dry_run: Option<&'a str>,
    /// Why it failed.
    pub error: Option<&'a str>,
}

impl Entry<'_> {
    /// Writes the line, unless the level of `access` leaves it out.
    pub fn log(&self) {
        let level = if self.error.is_some() {
            Level::ERROR
        } else {
            Level::INFO
        };
        let on = match level {
            Level::ERROR => tracing::event_enabled!(target: "access", Level::ERROR),
            _ => tracing::event_enabled!(target: "access", Level::INFO),
        };
        if on {
            let share = self.share();
            log::write_line(share, |format| self.render(format, level, Timestamp::now()));
        }
    }

    /// The share of the log's buffer that the line counts against: that of its source.
    fn share(&self) -> LogShare {
        match &self.labels.source.principal {
            Some(identity) => LogShare::of(identity),
            None => LogShare::of(&self.source.ip()),
        }
    }

    pub(crate) fn render(&self, format: Format, level: Level, time: Timestamp) -> Vec<u8> {
        let mut line = Line::at(format, level, time, COMPLETE);
        self.each(&mut |name, field| match field {
            Field::Address(value) => line.address(name, value),
            Field::Bare(value) => line.bare(name, value),
            Field::Text(value) => line.text(name, value),
            Field::Number(value) => line.number(name, value),
        });
        line.end()
    }
}

impl Entry<'_> {
    /// The same for a collector.
    pub(crate) fn report(&self, end: SystemTime, trace: Option<Trace>) -> Report {
        let mut attributes = Vec::with_capacity(20);
        self.each(&mut |name, field| attributes.push((name, field.into())));
        Report {
            start: end.checked_sub(self.duration).unwrap_or(end),
            end,
            severity: if self.error.is_some() {
                Severity::Error
            } else {
                Severity::Info
            },
            message: COMPLETE,
            attributes,
            error: self.error.map(str::to_owned),
            reporter: self.labels.reporter,
            trace,
        }
    }

    /// Every field that is there, in ztunnel's order.
    fn each(&self, put: &mut dyn FnMut(&'static str, Field<'_>)) {
        let labels = self.labels;
        let mtls = labels.security == Security::MutualTls;
        let identity = |party: &Party| {
            let principal = party.principal.as_ref().filter(|_| mtls);
            principal.map(ToString::to_string)
        };
        let (source, destination) = (&labels.source, &labels.destination);
        // Istio's metrics count from the server's side on both ends; the log counts from its own.
        let (bytes_sent, bytes_recv) = match labels.reporter {
            Reporter::Source => (self.received, self.sent),
            Reporter::Destination | Reporter::Waypoint => (self.sent, self.received),
        };
        put("src.addr", Field::Address(self.source));
        let text = |put: &mut dyn FnMut(&'static str, Field<'_>), name, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                put(name, Field::Text(value));
            }
        };
        text(put, "src.workload", self.source_name);
        text(put, "src.namespace", source.namespace.as_deref());
        text(put, "src.identity", identity(source).as_deref());
        text(put, "src.cluster", source.cluster.as_deref());
        put("dst.addr", Field::Address(self.destination));
        if let Some(hbone) = &self.hbone {
            put("dst.hbone_addr", Field::Bare(hbone));
        }
        let service = labels.service.as_ref().map(|service| &*service.hostname);
        text(put, "dst.service", service);
        text(put, "dst.workload", self.destination_name);
        text(put, "dst.namespace", destination.namespace.as_deref());
        text(put, "dst.identity", identity(destination).as_deref());
        text(put, "dst.cluster", destination.cluster.as_deref());
        text(put, "direction", Some(labels.reporter.direction()));
        put("bytes_sent", Field::Number(bytes_sent));
        put("bytes_recv", Field::Number(bytes_recv));
        let duration = format!("{}ms", self.duration.as_millis());
        text(put, "duration", Some(&duration));
        text(put, "policy.dry_run", self.dry_run);
        text(put, "error", self.error);
    }
}

/// Tells of a connection that was refused before both of its ends were known.
pub fn refused(source: SocketAddr, destination: SocketAddr, reporter: Reporter, error: &str) {
    if tracing::event_enabled!(target: "access", Level::WARN) {
        log::write_line(LogShare::of(&source.ip()), |format| {
            render_refused(
                format,
                Timestamp::now(),
                source,
                destination,
                reporter,
                error,
            )
        });
    }
}

fn render_refused(
    format: Format,
    time: Timestamp,
    source: SocketAddr,
    destination: SocketAddr,
    reporter: Reporter,
    error: &str,
) -> Vec<u8> {
    let mut line = Line::at(format, Level::WARN, time, FAILED);
    line.address("src.addr", source);
    line.address("dst.addr", destination);
    line.text("direction", reporter.direction());
    line.text("error", error);
    line.end()
}

/// A field's value.
enum Field<'a> {
    Address(SocketAddr),
    /// What the tunnel was asked for: without quotes in text.
    Bare(&'a str),
    Text(&'a str),
    Number(u64),
}

impl From<Field<'_>> for ReportValue {
    fn from(field: Field<'_>) -> Self {
        match field {
            Field::Address(value) => Self::Text(value.to_string()),
            Field::Bare(value) | Field::Text(value) => Self::Text(value.to_owned()),
            Field::Number(value) => Self::Number(value),
        }
    }
}

/// The same for a collector.
pub(crate) fn report_refused(
    source: SocketAddr,
    destination: SocketAddr,
    reporter: Reporter,
    error: &str,
) -> Report {
    let now = SystemTime::now();
    let text = |value: &dyn std::fmt::Display| ReportValue::Text(value.to_string());
    Report {
        start: now,
        end: now,
        severity: Severity::Warn,
        message: FAILED,
        attributes: vec![
            ("src.addr", text(&source)),
            ("dst.addr", text(&destination)),
            ("direction", text(&reporter.direction())),
            ("error", text(&error)),
        ],
        error: Some(error.to_owned()),
        reporter,
        trace: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use lateen_types::Identity;

    use super::*;
    use crate::labels::{ResponseFlags, Service};

    fn party(name: &str) -> Party {
        Party {
            workload: Some(name.into()),
            canonical_service: Some(name.into()),
            namespace: Some("default".into()),
            principal: Some(Identity::new("cluster.local", "default", name).unwrap()),
            cluster: Some("Kubernetes".into()),
            ..Party::default()
        }
    }

    fn labels(reporter: Reporter, security: Security) -> Labels {
        Labels {
            reporter,
            source: party("client"),
            service: Some(Service {
                hostname: "echo.default.svc.cluster.local".into(),
                name: "echo".into(),
                namespace: "default".into(),
            }),
            destination: party("echo"),
            flags: ResponseFlags::None,
            security,
        }
    }

    fn line(labels: &Labels, format: Format, error: Option<&str>) -> String {
        let entry = Entry {
            source: "10.244.1.2:40000".parse().unwrap(),
            source_name: Some("client-0"),
            destination: "10.244.2.2:15008".parse().unwrap(),
            hbone: Some("10.244.2.2:8080"),
            destination_name: Some("echo-0"),
            labels,
            received: 81,
            sent: 129,
            duration: Duration::from_micros(8900),
            dry_run: None,
            error,
        };
        let level = if error.is_some() {
            Level::ERROR
        } else {
            Level::INFO
        };
        let line = entry.render(format, level, Timestamp::from(UNIX_EPOCH));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_served_connection_reads_as_ztunnels_line() {
        let labels = labels(Reporter::Source, Security::MutualTls);
        assert_eq!(
            line(&labels, Format::Plain, None),
            "1970-01-01T00:00:00.000000Z\tinfo\taccess\tconnection complete\t\
             src.addr=10.244.1.2:40000 src.workload=\"client-0\" src.namespace=\"default\" \
             src.identity=\"spiffe://cluster.local/ns/default/sa/client\" src.cluster=\"Kubernetes\" \
             dst.addr=10.244.2.2:15008 dst.hbone_addr=10.244.2.2:8080 \
             dst.service=\"echo.default.svc.cluster.local\" dst.workload=\"echo-0\" dst.namespace=\"default\" \
             dst.identity=\"spiffe://cluster.local/ns/default/sa/echo\" dst.cluster=\"Kubernetes\" \
             direction=\"outbound\" bytes_sent=81 bytes_recv=129 duration=\"8ms\"\n"
        );
    }

    #[test]
    fn each_side_counts_from_its_own_view() {
        let labels = labels(Reporter::Destination, Security::MutualTls);
        let line = line(&labels, Format::Plain, None);
        assert!(
            line.contains("direction=\"inbound\" bytes_sent=129 bytes_recv=81 "),
            "{line}"
        );
    }

    #[test]
    fn identities_show_only_when_they_were_proven() {
        let labels = labels(Reporter::Destination, Security::Unknown);
        assert!(!line(&labels, Format::Plain, None).contains("identity"));
    }

    #[test]
    fn a_failure_is_an_error_with_its_reason() {
        let labels = labels(Reporter::Source, Security::MutualTls);
        let line = line(&labels, Format::Plain, Some("a \"quoted\" reason"));
        assert!(
            line.contains("\terror\taccess\tconnection complete\t"),
            "{line}"
        );
        assert!(
            line.ends_with("duration=\"8ms\" error=\"a \\\"quoted\\\" reason\"\n"),
            "{line}"
        );
    }

    #[test]
    fn the_json_line_is_one_object_with_the_same_fields() {
        let labels = labels(Reporter::Source, Security::MutualTls);
        assert_eq!(
            line(&labels, Format::Json, Some("tab\there")),
            "{\"level\":\"error\",\"time\":\"1970-01-01T00:00:00.000000Z\",\"scope\":\"access\",\
             \"message\":\"connection complete\",\"src.addr\":\"10.244.1.2:40000\",\"src.workload\":\"client-0\",\
             \"src.namespace\":\"default\",\"src.identity\":\"spiffe://cluster.local/ns/default/sa/client\",\
             \"src.cluster\":\"Kubernetes\",\"dst.addr\":\"10.244.2.2:15008\",\"dst.hbone_addr\":\"10.244.2.2:8080\",\
             \"dst.service\":\"echo.default.svc.cluster.local\",\"dst.workload\":\"echo-0\",\
             \"dst.namespace\":\"default\",\"dst.identity\":\"spiffe://cluster.local/ns/default/sa/echo\",\
             \"dst.cluster\":\"Kubernetes\",\"direction\":\"outbound\",\"bytes_sent\":81,\"bytes_recv\":129,\
             \"duration\":\"8ms\",\"error\":\"tab\\there\"}\n"
        );
    }

    #[test]
    fn a_connection_refused_early_says_where_it_was_going() {
        let refused = render_refused(
            Format::Plain,
            Timestamp::from(UNIX_EPOCH),
            "10.244.1.2:40000".parse().unwrap(),
            "10.96.0.1:80".parse().unwrap(),
            Reporter::Source,
            "nowhere to go",
        );
        assert_eq!(
            String::from_utf8(refused).unwrap(),
            "1970-01-01T00:00:00.000000Z\twarn\taccess\tconnection failed\tsrc.addr=10.244.1.2:40000 \
             dst.addr=10.96.0.1:80 direction=\"outbound\" error=\"nowhere to go\"\n"
        );
    }
}
