//! The operators of formats, by Envoy's names.

use lateen_http::FieldName;

use super::time::TimeFormat;

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// The beginning of the request or connection.
    StartTime(TimeFormat),
    /// A field of the request.
    Request(Header),
    /// The same without a query.
    RequestWithoutQuery(Header),
    /// A field of the answer.
    Response(Header),
    /// A field of the answer's trailers.
    Trailer(Header),
    Protocol,
    UpstreamProtocol,
    ResponseCode,
    ResponseFlags,
    ResponseCodeDetails,
    ConnectionTerminationDetails,
    UpstreamTransportFailureReason,
    /// Content from the client.
    BytesReceived,
    /// Content to the client.
    BytesSent,
    RequestHeadersBytes,
    ResponseHeadersBytes,
    ResponseTrailersBytes,
    /// Milliseconds until the end.
    Duration,
    /// Milliseconds until the end of the request.
    RequestDuration,
    /// Milliseconds until the answer's head.
    ResponseDuration,
    /// Milliseconds from the answer's head to the end.
    ResponseTxDuration,
    UpstreamHost,
    UpstreamCluster,
    UpstreamRequestAttemptCount,
    /// An address of a connection.
    Address(Address, Part),
    RequestedServerName,
    RouteName,
    GrpcStatus(GrpcForm),
    /// The peer's SPIFFE identity.
    DownstreamPeerUriSan,
    /// The proxy's own.
    DownstreamLocalUriSan,
    /// The proxy's pod.
    Hostname,
    /// Nobody knows it.
    Unknown,
}

/// An address of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    UpstreamLocal,
    UpstreamRemote,
    DownstreamLocal,
    DownstreamRemote,
}

/// The part of an address that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    WithoutPort,
    Port,
}

/// How a status of gRPC is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcForm {
    /// `InvalidArgument`.
    Camel,
    /// `INVALID_ARGUMENT`.
    Snake,
    /// 3.
    Number,
}

/// A field by its name, and the one in its place where it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) main: HeaderName,
    pub(crate) alternative: Option<HeaderName>,
}

/// The name of a field or pseudo-field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderName {
    Method,
    Path,
    Authority,
    Scheme,
    Status,
    /// The time that the upstream took, which Envoy's router adds to answers. This proxy adds no such field, and measures it
    /// for the log alone.
    UpstreamServiceTime,
    Field(FieldName),
}

impl HeaderName {
    fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            ":method" => Self::Method,
            ":path" => Self::Path,
            ":authority" | "host" => Self::Authority,
            ":scheme" => Self::Scheme,
            ":status" => Self::Status,
            "x-envoy-upstream-service-time" => Self::UpstreamServiceTime,
            other => Self::Field(FieldName::new(other)?),
        })
    }
}

impl Header {
    fn of(argument: &str) -> Option<Self> {
        let (main, alternative) = match argument.split_once('?') {
            Some((main, alternative)) => (main, Some(HeaderName::of(alternative)?)),
            None => (argument, None),
        };
        Some(Self {
            main: HeaderName::of(main)?,
            alternative,
        })
    }

    /// The names in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [&self.main].into_iter().chain(&self.alternative)
    }
}

impl Operator {
    /// The operator of a name, if it takes this argument.
    pub(super) fn of(name: &str, argument: Option<&str>) -> Option<Self> {
        match (name, argument) {
            ("START_TIME", argument) => Some(Self::StartTime(TimeFormat::parse(argument))),
            ("REQ", Some(header)) => Header::of(header).map(Self::Request),
            ("REQ_WITHOUT_QUERY", Some(header)) => {
                Header::of(header).map(Self::RequestWithoutQuery)
            }
            ("RESP", Some(header)) => Header::of(header).map(Self::Response),
            ("TRAILER", Some(header)) => Header::of(header).map(Self::Trailer),
            ("GRPC_STATUS", None | Some("CAMEL_STRING")) => Some(Self::GrpcStatus(GrpcForm::Camel)),
            ("GRPC_STATUS", Some("SNAKE_STRING")) => Some(Self::GrpcStatus(GrpcForm::Snake)),
            ("GRPC_STATUS", Some("NUMBER")) | ("GRPC_STATUS_NUMBER", None) => {
                Some(Self::GrpcStatus(GrpcForm::Number))
            }
            (name, None) => Self::plain(name).or_else(|| address(name)),
            _ => None,
        }
    }

    /// The operator of a name that takes no argument.
    fn plain(name: &str) -> Option<Self> {
        Some(match name {
            "PROTOCOL" => Self::Protocol,
            "UPSTREAM_PROTOCOL" => Self::UpstreamProtocol,
            "RESPONSE_CODE" => Self::ResponseCode,
            "RESPONSE_FLAGS" => Self::ResponseFlags,
            "RESPONSE_CODE_DETAILS" => Self::ResponseCodeDetails,
            "CONNECTION_TERMINATION_DETAILS" => Self::ConnectionTerminationDetails,
            "UPSTREAM_TRANSPORT_FAILURE_REASON" => Self::UpstreamTransportFailureReason,
            "BYTES_RECEIVED" => Self::BytesReceived,
            "BYTES_SENT" => Self::BytesSent,
            "REQUEST_HEADERS_BYTES" => Self::RequestHeadersBytes,
            "RESPONSE_HEADERS_BYTES" => Self::ResponseHeadersBytes,
            "RESPONSE_TRAILERS_BYTES" => Self::ResponseTrailersBytes,
            "DURATION" => Self::Duration,
            "REQUEST_DURATION" => Self::RequestDuration,
            "RESPONSE_DURATION" => Self::ResponseDuration,
            "RESPONSE_TX_DURATION" => Self::ResponseTxDuration,
            "UPSTREAM_HOST" => Self::UpstreamHost,
            "UPSTREAM_CLUSTER" | "UPSTREAM_CLUSTER_RAW" => Self::UpstreamCluster,
            "UPSTREAM_REQUEST_ATTEMPT_COUNT" => Self::UpstreamRequestAttemptCount,
            "REQUESTED_SERVER_NAME" => Self::RequestedServerName,
            "ROUTE_NAME" => Self::RouteName,
            "DOWNSTREAM_PEER_URI_SAN" => Self::DownstreamPeerUriSan,
            "DOWNSTREAM_LOCAL_URI_SAN" => Self::DownstreamLocalUriSan,
            "HOSTNAME" => Self::Hostname,
            _ => return None,
        })
    }

    /// True if the value needs the head of the answer.
    pub(super) fn reads_answer(&self) -> bool {
        let is_field = |name: &HeaderName| matches!(name, HeaderName::Field(_));
        matches!(self, Self::Response(header) if header.names().any(is_field))
    }
}

/// The operator of an address: `DOWNSTREAM_REMOTE_ADDRESS`, with `_WITHOUT_PORT` behind it, or `_PORT` in its place.
fn address(name: &str) -> Option<Operator> {
    let (side, part) = if let Some(side) = name.strip_suffix("_ADDRESS") {
        (side, Part::Whole)
    } else if let Some(side) = name.strip_suffix("_ADDRESS_WITHOUT_PORT") {
        (side, Part::WithoutPort)
    } else {
        (name.strip_suffix("_PORT")?, Part::Port)
    };
    let address = match side {
        "UPSTREAM_LOCAL" => Address::UpstreamLocal,
        "UPSTREAM_REMOTE" => Address::UpstreamRemote,
        "DOWNSTREAM_LOCAL" | "DOWNSTREAM_DIRECT_LOCAL" => Address::DownstreamLocal,
        "DOWNSTREAM_REMOTE" | "DOWNSTREAM_DIRECT_REMOTE" => Address::DownstreamRemote,
        _ => return None,
    };
    Some(Operator::Address(address, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arguments_make_operators() {
        let field = |name: &str| HeaderName::Field(FieldName::new(name).unwrap());
        for (name, argument, expected) in [
            (
                "REQ",
                Some("X-ENVOY-ORIGINAL-PATH?:PATH"),
                Some(Operator::Request(Header {
                    main: field("x-envoy-original-path"),
                    alternative: Some(HeaderName::Path),
                })),
            ),
            (
                "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
                None,
                Some(Operator::Address(
                    Address::DownstreamRemote,
                    Part::WithoutPort,
                )),
            ),
            (
                "UPSTREAM_REMOTE_PORT",
                None,
                Some(Operator::Address(Address::UpstreamRemote, Part::Port)),
            ),
            (
                "GRPC_STATUS",
                Some("NUMBER"),
                Some(Operator::GrpcStatus(GrpcForm::Number)),
            ),
            ("REQ", None, None),
            ("REQ", Some("a b"), None),
            ("REQ", Some("a?b?c"), None),
            ("PROTOCOL", Some("x"), None),
            ("PORT", None, None),
            ("FILTER_STATE", Some("a:PLAIN"), None),
        ] {
            assert_eq!(Operator::of(name, argument), expected, "{name}");
        }
    }
}
