//! Ends of relayed connections: counted, and written to the access log in the format that the mesh asks for.

use std::net::SocketAddr;
use std::time::SystemTime;

use lateen_telemetry::{Connection, Entry, Failure, ResponseFlags, log};

use super::access_log::{Address, Operator, Part, Value, Values};
use super::record::values::{address, cluster, milliseconds, of_session};
use super::session::Session;

/// Ends a connection. `endpoint` is where it led; without one it reached nobody.
pub(super) fn finish(
    session: &Session,
    connection: Connection,
    endpoint: Option<SocketAddr>,
    outcome: Result<(), Failure>,
) {
    let Some(format) = session.waypoint.log_format() else {
        return connection.finish(outcome);
    };
    let failure = match &outcome {
        Ok(()) => ResponseFlags::None,
        Err(failure) => failure.flags,
    };
    connection.finish_with(outcome, |entry| {
        if tracing::event_enabled!(target: "access", tracing::Level::INFO) {
            let line = format.line(&Line {
                session,
                entry,
                endpoint,
                failure,
            });
            log::line(&line, session.tunnel.log_share);
        }
    });
}

/// What is known of a connection at its end.
struct Line<'a> {
    session: &'a Session,
    entry: &'a Entry<'a>,
    endpoint: Option<SocketAddr>,
    failure: ResponseFlags,
}

impl Line<'_> {
    /// Envoy's flags. A refusal by a policy has none.
    fn flags(&self) -> &'static str {
        match (self.failure, self.endpoint) {
            (ResponseFlags::None | ResponseFlags::Denied, _) => "-",
            (_, None) => "UF",
            (_, Some(_)) => "UC",
        }
    }
}

impl Values for Line<'_> {
    fn value<'a>(&'a self, operator: &'a Operator) -> Value<'a> {
        let Self { entry, session, .. } = self;
        match operator {
            Operator::StartTime(format) => {
                let start = SystemTime::now().checked_sub(entry.duration);
                Value::text(format.show(start.unwrap_or(SystemTime::UNIX_EPOCH)))
            }
            Operator::ResponseCode => Value::Number(0),
            Operator::ResponseFlags => Value::text(self.flags()),
            Operator::ConnectionTerminationDetails => match self.failure {
                ResponseFlags::Denied => Value::text("rbac_access_denied"),
                _ => Value::Nothing,
            },
            Operator::UpstreamTransportFailureReason => match (self.failure, self.endpoint) {
                (ResponseFlags::None | ResponseFlags::Denied, _) | (_, Some(_)) => Value::Nothing,
                (_, None) => Value::shown(entry.error.map(|error| error.replace(' ', "_"))),
            },
            Operator::BytesReceived => Value::Number(entry.received),
            Operator::BytesSent => Value::Number(entry.sent),
            Operator::Duration => milliseconds(Some(entry.duration)),
            Operator::UpstreamHost => address(self.endpoint, Part::Whole),
            Operator::Address(Address::UpstreamRemote, part) => address(self.endpoint, *part),
            Operator::UpstreamCluster => cluster(session, "tcp"),
            other => of_session(session, other),
        }
    }
}
