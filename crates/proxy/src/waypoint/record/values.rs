//! The values of a request for the operators of the access log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::task::Context;
use std::time::{Duration, SystemTime};

use lateen_exchange::{Protocol, server};
use lateen_http::{Canonical, Fields, Version};

use super::Record;
use crate::waypoint::access_log::{
    Address, GrpcForm, Header, HeaderName, Operator, Part, Value, Values,
};
use crate::waypoint::grpc::status_of_http;
use crate::waypoint::head;
use crate::waypoint::session::Session;

/// The names of gRPC's statuses, by their numbers.
const GRPC: [(&str, &str); 17] = [
    ("OK", "OK"),
    ("Canceled", "CANCELLED"),
    ("Unknown", "UNKNOWN"),
    ("InvalidArgument", "INVALID_ARGUMENT"),
    ("DeadlineExceeded", "DEADLINE_EXCEEDED"),
    ("NotFound", "NOT_FOUND"),
    ("AlreadyExists", "ALREADY_EXISTS"),
    ("PermissionDenied", "PERMISSION_DENIED"),
    ("ResourceExhausted", "RESOURCE_EXHAUSTED"),
    ("FailedPrecondition", "FAILED_PRECONDITION"),
    ("Aborted", "ABORTED"),
    ("OutOfRange", "OUT_OF_RANGE"),
    ("Unimplemented", "UNIMPLEMENTED"),
    ("Internal", "INTERNAL"),
    ("Unavailable", "UNAVAILABLE"),
    ("DataLoss", "DATA_LOSS"),
    ("Unauthenticated", "UNAUTHENTICATED"),
];

impl Values for Record {
    fn value<'a>(&'a self, operator: &'a Operator) -> Value<'a> {
        let elapsed = || self.start.elapsed();
        match operator {
            Operator::StartTime(format) => {
                let start = SystemTime::now().checked_sub(elapsed());
                Value::text(format.show(start.unwrap_or(SystemTime::UNIX_EPOCH)))
            }
            Operator::Request(header) => self.request_field(header, |name| self.named(name)),
            Operator::RequestWithoutQuery(header) => {
                self.request_field(header, |name| self.named(name).map(without_query))
            }
            Operator::Response(header) => self.response_field(header),
            Operator::Trailer(header) => {
                let trailers = self.trailers.get();
                fields(header, trailers.map(|trailers| trailers.fields()))
            }
            Operator::Protocol => self.head.get().map_or(Value::Nothing, |head| {
                Value::text(match head::version(head) {
                    Version::Http10 => "HTTP/1.0",
                    Version::Http11 => "HTTP/1.1",
                    Version::Http2 => "HTTP/2",
                })
            }),
            Operator::UpstreamProtocol => match &*self.served.borrow() {
                None => Value::Nothing,
                Some(served) => Value::text(match served.upstream.protocol() {
                    Protocol::Http1 => "HTTP/1.1",
                    Protocol::Http2 => "HTTP/2",
                }),
            },
            Operator::ResponseCode => Value::Number(self.status.get().into()),
            Operator::ResponseFlags => Value::text(self.flags.get().as_str()),
            Operator::ResponseCodeDetails => Value::text(self.details.borrow().clone()),
            Operator::UpstreamTransportFailureReason => {
                let reason = self.transport_failure.borrow();
                Value::shown(reason.as_ref().map(|reason| reason.replace(' ', "_")))
            }
            Operator::BytesReceived => Value::Number(self.request.content.get()),
            Operator::BytesSent => Value::Number(self.response.content.get()),
            Operator::RequestHeadersBytes => Value::Number(self.request.head.get()),
            Operator::ResponseHeadersBytes => Value::Number(self.response.head.get()),
            Operator::ResponseTrailersBytes => Value::Number(self.response.trailers.get()),
            Operator::Duration => milliseconds(Some(elapsed())),
            Operator::RequestDuration => milliseconds(self.received.get()),
            Operator::ResponseDuration => milliseconds(self.served_after()),
            Operator::ResponseTxDuration => {
                let answered = self.served_after();
                milliseconds(answered.map(|answered| elapsed().saturating_sub(answered)))
            }
            Operator::UpstreamHost => self.upstream(Part::Whole),
            Operator::UpstreamCluster => self
                .head
                .get()
                .map_or(Value::Nothing, |_| cluster(&self.session, "http")),
            Operator::UpstreamRequestAttemptCount => Value::Number(self.attempts.get().into()),
            Operator::Address(Address::UpstreamRemote, part) => self.upstream(*part),
            Operator::Address(Address::UpstreamLocal, part) => {
                let served = self.served.borrow();
                address(served.as_ref().and_then(|served| served.local.get()), *part)
            }
            Operator::GrpcStatus(form) => {
                let status = self.grpc.get().and(self.grpc_status());
                status.map_or(Value::Nothing, |status| grpc(status, *form))
            }
            // Routes have no names of their own yet. It is Istio's for a service without one.
            Operator::RouteName => match self.head.get() {
                Some(_) => Value::text("default"),
                None => Value::Nothing,
            },
            other => of_session(&self.session, other),
        }
    }
}

impl Record {
    /// Notes when the last byte of the request comes, if the format may ask for it. It may wait unread for an endpoint. `cx` is woken
    /// when more of the request comes.
    pub(in crate::waypoint) fn note_received(
        &self,
        client: &server::Exchange,
        cx: &mut Context<'_>,
    ) {
        if self.format.is_some()
            && self.received.get().is_none()
            && client.poll_received(cx).is_ready()
        {
            self.received.set(Some(self.start.elapsed()));
        }
    }

    /// The status of gRPC. That of HTTP stands for one that the answer to a call did not give, as in Envoy: a client does the same.
    pub(super) fn grpc_status(&self) -> Option<u32> {
        let inferred = || match (self.grpc.get(), self.status.get()) {
            (Some(_), status @ 1..) => Some(status_of_http(status)),
            _ => None,
        };
        self.grpc_status.get().or_else(inferred)
    }

    /// The value of a field of the request, which must be noted.
    fn named<'a>(&'a self, name: &'a HeaderName) -> Option<&'a [u8]> {
        let head = self.head.get()?;
        Some(match (name, head) {
            (HeaderName::Method, head) => head::method(head),
            (HeaderName::Authority, head) => head::authority(head).as_bytes(),
            (HeaderName::Path, Canonical::Request(head)) => head.path().target(),
            (HeaderName::Scheme, Canonical::Request(head)) => head.scheme().as_str().as_bytes(),
            (HeaderName::Path | HeaderName::Scheme, Canonical::Connect(_))
            | (HeaderName::Status | HeaderName::UpstreamServiceTime, _) => return None,
            (HeaderName::Field(name), head) => return first(head::fields(head), name),
        })
    }

    fn request_field<'a>(
        &'a self,
        header: &'a Header,
        find: impl Fn(&'a HeaderName) -> Option<&'a [u8]>,
    ) -> Value<'a> {
        Value::bytes(header.names().find_map(find))
    }

    fn response_field<'a>(&'a self, header: &'a Header) -> Value<'a> {
        let answer = self.answer.get().map(|(answer, _)| answer.fields());
        header
            .names()
            .map(|name| match name {
                HeaderName::Status if self.status.get() > 0 => {
                    Value::text(self.status.get().to_string())
                }
                HeaderName::UpstreamServiceTime => {
                    Value::shown(self.service_time().map(|time| time.as_millis()))
                }
                HeaderName::Field(name) => {
                    Value::bytes(answer.and_then(|fields| first(fields, name)))
                }
                _ => Value::Nothing,
            })
            .find(|value| *value != Value::Nothing)
            .unwrap_or(Value::Nothing)
    }

    /// When the answer of an endpoint began.
    fn served_after(&self) -> Option<Duration> {
        self.answered.get().filter(|_| self.is_served.get())
    }

    /// The time from the whole request, or from the attempt if the answer came sooner, to the answer of an endpoint.
    fn service_time(&self) -> Option<Duration> {
        let served = self.served.borrow();
        let answered = self.served_after()?;
        let begun = served.as_ref()?.begun;
        let sent = self.sent.get().filter(|sent| *sent <= answered);
        Some(answered.saturating_sub(sent.unwrap_or(begun)))
    }

    fn upstream(&self, part: Part) -> Value<'_> {
        let served = self.served.borrow();
        address(served.as_ref().map(|served| served.address.get()), part)
    }
}

/// The values that all requests and connections of a stream share.
pub(in crate::waypoint) fn of_session<'a>(session: &'a Session, operator: &Operator) -> Value<'a> {
    match operator {
        Operator::Address(Address::DownstreamLocal, part) => {
            address(Some(session.destination.address), *part)
        }
        Operator::Address(Address::DownstreamRemote, part) => {
            address(Some(session.tunnel.client), *part)
        }
        Operator::DownstreamPeerUriSan => Value::shown(Some(session.tunnel.peer.identity())),
        Operator::DownstreamLocalUriSan => Value::shown(Some(&session.waypoint.own.identity)),
        Operator::Hostname => Value::text(&*session.waypoint.own.pod),
        _ => Value::Nothing,
    }
}

/// Istio's name for the cluster of a service behind a waypoint.
pub(in crate::waypoint) fn cluster<'a>(session: &Session, protocol: &str) -> Value<'a> {
    Value::text(match session.destination.target.service() {
        Some(service) => {
            let port = session.destination.address.port();
            format!("inbound-vip|{port}|{protocol}|{}", service.hostname)
        }
        None => "encap".to_owned(),
    })
}

/// The part of an address.
pub(in crate::waypoint) fn address<'a>(address: Option<SocketAddr>, part: Part) -> Value<'a> {
    match (address, part) {
        (None, _) => Value::Nothing,
        (Some(address), Part::Whole) => Value::text(address.to_string()),
        (Some(address), Part::WithoutPort) => Value::text(address.ip().to_string()),
        (Some(address), Part::Port) => Value::Number(address.port().into()),
    }
}

/// A duration in whole milliseconds.
pub(in crate::waypoint) fn milliseconds<'a>(duration: Option<Duration>) -> Value<'a> {
    duration.map_or(Value::Nothing, |duration| {
        Value::Number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    })
}

fn first<'a>(fields: &'a Fields, name: &'a lateen_http::FieldName) -> Option<&'a [u8]> {
    fields.named(name).next()
}

fn fields<'a>(header: &'a Header, fields: Option<&'a Fields>) -> Value<'a> {
    let find = |name: &'a HeaderName| match name {
        HeaderName::Field(name) => first(fields?, name),
        _ => None,
    };
    Value::bytes(header.names().find_map(find))
}

fn without_query(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| *byte == b'?');
    &target[..end.unwrap_or(target.len())]
}

fn grpc<'a>(status: u32, form: GrpcForm) -> Value<'a> {
    let names = GRPC.get(status as usize);
    match (form, names) {
        (GrpcForm::Number, _) => Value::Number(status.into()),
        (GrpcForm::Camel, Some((camel, _))) => Value::Text(Cow::Borrowed(camel.as_bytes())),
        (GrpcForm::Snake, Some((_, snake))) => Value::Text(Cow::Borrowed(snake.as_bytes())),
        // Envoy shows the number of a status without a name.
        (_, None) => Value::text(status.to_string()),
    }
}
