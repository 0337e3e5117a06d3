//! Requests that come to no answer of an endpoint: what the client is answered, what the record says, and whether another attempt
//! may follow.

use std::borrow::Cow;

use lateen_exchange::{ConnectionError, Error, server};
use lateen_h2::Code;
use lateen_http::{Canonical, Status};
use lateen_telemetry::RequestFlags;
use lateen_types::NamespacedName;

use super::choose::NoEndpoint;
use super::head;
use super::record::Record;
use super::relays::{CHANGED, DRAINED, Denial};
use super::upstream::UpstreamError;

/// An answer of our own.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) text: &'static str,
}

const fn status(code: u16) -> Status {
    match Status::new(code) {
        Some(status) => status,
        None => panic!("the code has three digits"),
    }
}

pub(super) const UNAUTHENTICATED: Answer = Answer {
    status: status(401),
    text: "Jwt verification fails",
};
pub(super) const DENIED: Answer = Answer {
    status: status(403),
    text: "RBAC: access denied",
};
pub(super) const NO_SUCH_HOST: Answer = Answer {
    status: status(404),
    text: "",
};
pub(super) const HEAD_TOO_LARGE: Answer = Answer {
    status: Status::HEADER_FIELDS_TOO_LARGE,
    text: "the request's head is larger than the upstream accepts",
};
pub(super) const NO_UPSTREAM: Answer = Answer {
    status: status(503),
    text: "no healthy upstream",
};
pub(super) const NOT_CONNECTED: Answer = Answer {
    status: status(503),
    text: "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure",
};
pub(super) const DISCONNECTED: Answer = Answer {
    status: status(503),
    text: "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
};
pub(super) const RESET: Answer = Answer {
    status: status(503),
    text: "upstream connect error or disconnect/reset before headers. reset reason: remote reset",
};
pub(super) const OVERFLOW: Answer = Answer {
    status: status(503),
    text: "upstream connect error or disconnect/reset before headers. reset reason: overflow",
};
pub(super) const TOO_LATE: Answer = Answer {
    status: status(504),
    text: "upstream request timeout",
};
pub(super) const INVALID: Answer = Answer {
    status: status(502),
    text: "upstream connect error or disconnect/reset before headers. reset reason: protocol error",
};

// Envoy's words for what became of a request.
pub(super) const NO_ROUTE: &str = "route_not_found";
pub(super) const INVALID_HEAD: &str = "http.invalid_request_head";
pub(super) const SLOW_HEAD: &str = "request_header_timeout";
pub(super) const NO_HEALTHY: &str = "no_healthy_upstream";
pub(super) const PROTOCOL_ERROR: &str = "protocol_error";
pub(super) const TERMINATION: &str = "connection_termination";
/// The client's connection was closed here. Envoy puts its reason into the parentheses, which is free text without spaces.
pub(super) const CLOSED_HERE: &str = "downstream_local_disconnect(connection_drain)";

/// The sentence for a request whose destination has left this waypoint.
pub(super) const UNBOUND: &str = "the destination is no longer bound to this waypoint";

/// A failure that is answered, unless another attempt comes to more.
pub(super) struct Failed {
    pub(super) answer: Answer,
    pub(super) flags: RequestFlags,
    /// Envoy's word for it.
    pub(super) details: Cow<'static, str>,
    pub(super) reason: String,
}

/// How an attempt ended.
pub(super) enum Outcome {
    /// The exchange is over, well or not.
    Over,
    /// The request may be given to another connection; otherwise this is the answer.
    Again(Failed),
    /// The same, but an endpoint may have processed it.
    Lost(Failed),
    /// This is the answer.
    Fail(Failed),
}

/// Envoy's word for a refusal by its RBAC filter, in which Istio names the policy.
pub(super) fn denied(policy: Option<&NamespacedName>) -> String {
    match policy {
        Some(NamespacedName { namespace, name }) => {
            format!("rbac_access_denied_matched_policy[ns[{namespace}]-policy[{name}]]")
        }
        None => "rbac_access_denied_matched_policy[none]".to_owned(),
    }
}

/// The answer where no endpoint is left.
pub(super) fn nowhere(why: &NoEndpoint) -> Failed {
    let (answer, flags, details) = match why {
        NoEndpoint::Gone(_) => (NO_UPSTREAM, RequestFlags::NoRoute, NO_ROUTE),
        // As where no virtual host of Envoy's has the domain.
        NoEndpoint::NoHost(_) => (NO_SUCH_HOST, RequestFlags::NoRoute, NO_ROUTE),
        NoEndpoint::Route(refusal) if refusal.is_about_host() => {
            (NO_SUCH_HOST, RequestFlags::NoRoute, NO_ROUTE)
        }
        _ => (NO_UPSTREAM, RequestFlags::NoHealthyUpstream, NO_HEALTHY),
    };
    Failed {
        answer,
        flags,
        details: details.into(),
        reason: why.to_string(),
    }
}

/// An exchange that an endpoint has broken off.
pub(super) struct Failure {
    pub(super) answer: Answer,
    pub(super) flags: RequestFlags,
    /// Envoy's word for the reset.
    pub(super) word: &'static str,
    pub(super) reason: String,
    /// The code for a client that was answered in part.
    pub(super) code: Code,
    pub(super) repeat: Repeat,
}

/// Whether a request that an endpoint has broken off may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Nobody has processed it.
    Always,
    /// Its connection, which was idle before, ended without a byte of an answer: it may have been closed while the request was on
    /// its way. A request that kills its endpoint looks the same, so it is repeated once.
    Once,
    /// It may have been processed, and may be processed twice.
    IfLost,
    Never,
}

impl Failure {
    /// The endpoint's answer cannot be passed on.
    pub(super) fn of_answer(reason: String) -> Self {
        Self {
            answer: INVALID,
            flags: RequestFlags::UpstreamProtocolError,
            word: PROTOCOL_ERROR,
            reason,
            code: Code::INTERNAL_ERROR,
            repeat: Repeat::Never,
        }
    }

    /// The endpoint has cancelled a call of gRPC whose deadline is over, as servers do that watch it. The client, whose clock may be
    /// behind, is told what its own deadline would tell it.
    pub(super) fn of_deadline() -> Self {
        Self {
            answer: TOO_LATE,
            flags: RequestFlags::UpstreamRequestTimeout,
            word: "response_timeout",
            reason: "the endpoint cancelled the call at its deadline".to_owned(),
            code: Code::CANCEL,
            repeat: Repeat::Never,
        }
    }

    /// An endpoint has broken the exchange off. `was_idle` says whether the connection had none when the request was given to it.
    pub(super) fn of(error: &Error, head: &Canonical, was_idle: bool) -> Self {
        let flags = match error {
            Error::Reset(_) | Error::Unprocessed => RequestFlags::UpstreamRemoteReset,
            Error::Connection(error) if error.is_silent() => {
                RequestFlags::UpstreamConnectionTermination
            }
            Error::Stream(_)
            | Error::Answer(_)
            | Error::Connection(ConnectionError::Http1(_) | ConnectionError::Http2(_)) => {
                RequestFlags::UpstreamProtocolError
            }
            _ => RequestFlags::UpstreamConnectionTermination,
        };
        let code = match error {
            Error::Reset(code) => passed_on(*code),
            _ => Code::INTERNAL_ERROR,
        };
        // Another attempt would have no more room.
        let has_no_room = matches!(
            error,
            Error::OverLimit | Error::Connection(ConnectionError::OverLimit)
        );
        let was_idle = was_idle && matches!(error, Error::Connection(error) if error.is_silent());
        let repeat = match (error.is_unprocessed(), head::is_idempotent(head)) {
            (true, _) => Repeat::Always,
            (false, _) if has_no_room => Repeat::Never,
            (false, true) if was_idle => Repeat::Once,
            (false, true) => Repeat::IfLost,
            (false, false) => Repeat::Never,
        };
        Self {
            answer: match flags {
                RequestFlags::UpstreamProtocolError => INVALID,
                RequestFlags::UpstreamRemoteReset => RESET,
                _ => DISCONNECTED,
            },
            flags,
            word: match flags {
                RequestFlags::UpstreamProtocolError => PROTOCOL_ERROR,
                RequestFlags::UpstreamRemoteReset => "remote_reset",
                _ => TERMINATION,
            },
            reason: error.to_string(),
            code,
            repeat,
        }
    }
}

/// The code for a client whose answer the endpoint has broken off by `code`. The client takes it for the waypoint's own. So no endpoint
/// may say that the connection is at fault, that nobody has processed the request, or that the answer is complete.
fn passed_on(code: Code) -> Code {
    match code {
        Code::CANCEL | Code::CONNECT_ERROR | Code::ENHANCE_YOUR_CALM => code,
        _ => Code::INTERNAL_ERROR,
    }
}

/// Ends an exchange that the endpoint has broken off: by another attempt, by an answer, or by a reset of a client that was
/// answered in part.
pub(super) fn broken(record: &Record, client: &server::Exchange, failure: Failure) -> Outcome {
    let Failure {
        answer,
        flags,
        word,
        reason,
        code,
        repeat,
    } = failure;
    if record.is_answered() {
        let details = format!("upstream_reset_after_response_started{{{word}}}");
        record.fail(flags, details, reason);
        client.reset(code);
        return Outcome::Over;
    }
    let failed = Failed {
        answer,
        flags,
        details: before_answer(word),
        reason,
    };
    match repeat {
        _ if record.is_begun() => Outcome::Fail(failed),
        Repeat::Always => Outcome::Again(failed),
        Repeat::Once | Repeat::IfLost => Outcome::Lost(failed),
        Repeat::Never => Outcome::Fail(failed),
    }
}

/// Envoy's words for an attempt that was reset before its answer.
pub(super) fn before_answer(word: &str) -> Cow<'static, str> {
    format!("upstream_reset_before_response_started{{{word}}}").into()
}

/// The end of a drain has cut the request. Envoy has one flag for connections that either side closes (`ConnectionManagerImpl::onEvent`), and
/// tells them apart by the details.
pub(super) fn drained(record: &Record) {
    let flags = RequestFlags::DownstreamConnectionTermination;
    record.fail(flags, CLOSED_HERE, DRAINED.to_owned());
}

/// Envoy's word for a reset by the client.
fn reset_by_client(code: Code) -> &'static str {
    match code {
        Code::REFUSED_STREAM => "http2.remote_refuse",
        _ => "http2.remote_reset",
    }
}

/// The client has left, has reset its request, or has broken its protocol, or the end of a drain has cut its tunnel.
pub(super) fn left(record: &Record, error: &Error) -> Outcome {
    let fault = match error {
        Error::Connection(error) => error.fault(),
        Error::Stream(_) => Some(0),
        _ => None,
    };
    match fault {
        Some(status) => {
            let flags = RequestFlags::DownstreamProtocolError;
            record.fail(flags, "http.invalid_request", error.to_string());
            if !record.is_answered() && status > 0 {
                record.replied(status, None, 0);
            }
        }
        None => match error {
            Error::Reset(code) => {
                let flags = RequestFlags::DownstreamRemoteReset;
                record.fail(flags, reset_by_client(*code), error.to_string());
            }
            _ if record.is_cut() => drained(record),
            _ => record.left(error.to_string()),
        },
    }
    Outcome::Over
}

/// There is no connection to the endpoint.
pub(super) fn unopened(record: &Record, error: &UpstreamError) -> Outcome {
    let transport = error.transport();
    let word = match error {
        UpstreamError::Timeout(_) => "connection_timeout".to_owned(),
        _ => format!("remote_connection_failure|{}", transport.replace(' ', "_")),
    };
    record.unconnected(transport);
    let failed = Failed {
        answer: NOT_CONNECTED,
        flags: RequestFlags::UpstreamConnectionFailure,
        details: before_answer(&word),
        reason: error.to_string(),
    };
    match error.blames_endpoint() {
        true => Outcome::Again(failed),
        false => Outcome::Fail(failed),
    }
}

/// The connection did not take the request; nothing was sent.
pub(super) fn untaken(error: &Error) -> Outcome {
    let is_unprocessed = error.is_unprocessed();
    let failed = match error {
        // As where the waypoint itself does not accept the head. Another endpoint may have a higher limit.
        Error::HeadTooLarge => Failed {
            answer: HEAD_TOO_LARGE,
            flags: RequestFlags::DownstreamProtocolError,
            details: INVALID_HEAD.into(),
            reason: error.to_string(),
        },
        _ => Failed {
            answer: match is_unprocessed {
                true => NOT_CONNECTED,
                false => INVALID,
            },
            flags: RequestFlags::UpstreamConnectionFailure,
            details: before_answer("remote_connection_failure"),
            reason: error.to_string(),
        },
    };
    match is_unprocessed {
        true => Outcome::Again(failed),
        false => Outcome::Fail(failed),
    }
}

/// The endpoint does not read what clients of the same namespace have sent, and their account has no room for more. Nothing was sent.
pub(super) fn overflow() -> Outcome {
    Outcome::Again(Failed {
        answer: OVERFLOW,
        flags: RequestFlags::UpstreamOverflow,
        details: before_answer("overflow"),
        reason: "the endpoint does not read earlier requests of the client's namespace, and the client's connections hold as much as they may; the endpoint should read, or LATEEN_HTTP_BUFFERS be raised".to_owned(),
    })
}

/// The connection to the endpoint ended behind its answer.
pub(super) fn terminated(record: &Record, reason: String) {
    let details = format!("upstream_reset_after_response_started{{{TERMINATION}}}");
    record.fail(RequestFlags::UpstreamConnectionTermination, details, reason);
}

/// A policy, or the leave of the destination, has cut the relay behind the answer.
pub(super) fn cut(record: &Record, denial: Denial) {
    match denial {
        Denial::Unbound => record.fail(RequestFlags::NoRoute, NO_ROUTE, UNBOUND.to_owned()),
        Denial::Policy { policy, reason } => {
            let details = denied(policy.as_ref());
            record.deny(policy, details, format!("{CHANGED}: {reason}"));
        }
    }
}
