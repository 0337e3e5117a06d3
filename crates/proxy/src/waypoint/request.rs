//! One request: make it canonical, judge it, choose an endpoint, send it, answer it, tell of it.

use std::borrow::Cow;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use lateen_config::PortProtocol;
use lateen_config::l7::{RequestRules, Standing};
use lateen_exchange::{ConnectionError, Error, Protocol, client, server};
use lateen_h2::Code;
use lateen_http::{Canonical, FieldValue, FramedRequest, Status, Version, WebSocketKey};
use lateen_telemetry::RequestFlags;
use lateen_types::NamespacedName;

use super::choose::{NoEndpoint, Tried, choose};
use super::dial::{Origin, open};
use super::forward::{Broken, Keys, forward};
use super::head;
use super::local_reply;
use super::mesh::Mesh;
use super::policy::{TOKEN_REFUSED, Verdict};
use super::record::Record;
use super::relays::{CHANGED, Denial, Tracked};
use super::service_view::KnownEndpoint;
use super::session::Session;
use super::switched;
use super::upstream::{Lease, UpstreamError};

/// An answer of our own.
#[derive(Clone, Copy)]
struct Answer {
    status: Status,
    text: &'static str,
}

const fn status(code: u16) -> Status {
    match Status::new(code) {
        Some(status) => status,
        None => panic!("the code has three digits"),
    }
}

const UNAUTHENTICATED: Answer = Answer {
    status: status(401),
    text: "Jwt verification fails",
};
const DENIED: Answer = Answer {
    status: status(403),
    text: "RBAC: access denied",
};
const NO_SUCH_HOST: Answer = Answer {
    status: status(404),
    text: "",
};
const NO_UPSTREAM: Answer = Answer {
    status: status(503),
    text: "no healthy upstream",
};
const NOT_CONNECTED: Answer = Answer {
    status: status(503),
    text: "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure",
};
const DISCONNECTED: Answer = Answer {
    status: status(503),
    text: "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
};
const TOO_LATE: Answer = Answer {
    status: status(504),
    text: "upstream request timeout",
};
const INVALID: Answer = Answer {
    status: status(502),
    text: "upstream connect error or disconnect/reset before headers. reset reason: protocol error",
};

// Envoy's words for what became of a request.
const NO_ROUTE: &str = "route_not_found";
const INVALID_HEAD: &str = "http.invalid_request_head";
const SLOW_HEAD: &str = "request_header_timeout";
const NO_HEALTHY: &str = "no_healthy_upstream";
const PROTOCOL_ERROR: &str = "protocol_error";
const TERMINATION: &str = "connection_termination";

/// The sentence for a request whose destination has left this waypoint.
const UNBOUND: &str = "the destination is no longer bound to this waypoint";

/// A failure that is answered, unless another attempt comes to more.
struct Failed {
    answer: Answer,
    flags: RequestFlags,
    /// Envoy's word for it.
    details: Cow<'static, str>,
    reason: String,
}

/// How an attempt ended.
enum Outcome {
    /// The exchange is over, well or not.
    Over,
    /// The request may be given to another connection; otherwise this is the answer.
    Again(Failed),
    /// The same, but an endpoint may have processed it.
    Lost(Failed),
    /// This is the answer.
    Fail(Failed),
}

/// Serves a request to its end.
pub(super) async fn serve(session: Rc<Session>, request: FramedRequest, below: server::Exchange) {
    let record = Record::new(&session);
    if let Err(answer) = admit(&session, request, &record).await {
        return give(&below, &record, answer).await;
    }
    send(&session, below, &record).await;
}

/// Tells of a request with an invalid, too large or too slow head, which its connection has answered.
pub(super) fn refused(session: &Rc<Session>, status: u16) {
    let record = Record::new(session);
    let (details, reason) = match status {
        408 => (
            SLOW_HEAD,
            "the client did not complete the request's head in time; LATEEN_HTTP_HEAD_TIMEOUT sets it",
        ),
        _ => (INVALID_HEAD, "the request's head is invalid or too large"),
    };
    record.fail(
        RequestFlags::DownstreamProtocolError,
        details,
        reason.to_owned(),
    );
    record.replied(status, 0);
}

/// Makes a request canonical and asks the policies. The record has its head from then on.
async fn admit(session: &Session, request: FramedRequest, record: &Record) -> Result<(), Answer> {
    let Some(view) = session.waypoint.view().await else {
        let reason = "the control plane has sent no configuration".to_owned();
        record.fail(RequestFlags::NoHealthyUpstream, NO_HEALTHY, reason);
        return Err(NO_UPSTREAM);
    };
    let mut id = || request_id(session);
    let head = match request.canonical(&view.mesh.rules, &session.downstream, &mut id) {
        Ok(mut head) => {
            if head::asks_for_tunnel(&head) {
                // It is kept for as long as the tunnel lives, for policies that come later.
                head.detach();
            }
            record.head(head)
        }
        Err(refusal) => {
            let flags = RequestFlags::DownstreamProtocolError;
            record.fail(flags, INVALID_HEAD, refusal.to_string());
            return Err(Answer {
                status: refusal.status(),
                text: "",
            });
        }
    };
    if session.standing(&view) == Standing::Unbound {
        // Its policies are gone from here as well.
        record.fail(RequestFlags::NoRoute, NO_ROUTE, UNBOUND.to_owned());
        return Err(NO_UPSTREAM);
    }
    let of_service = session.service_view(&view);
    let rules = match &of_service {
        Some(service) => &service.rules,
        None => view.request_rules(None),
    };
    match session.judge.request(rules, &session.peer_facts(), head) {
        Verdict::Admitted => Ok(()),
        Verdict::Denied { policy, reason } => {
            let details = denied(policy.as_ref());
            record.deny(policy, details, reason);
            Err(DENIED)
        }
        Verdict::TokenRefused => {
            let details = "jwt_authn_access_denied{Jwt_verification_fails}";
            record.deny(None, details, TOKEN_REFUSED.to_owned());
            Err(UNAUTHENTICATED)
        }
    }
}

/// Envoy's word for a refusal by its RBAC filter, in which Istio names the policy.
fn denied(policy: Option<&NamespacedName>) -> String {
    match policy {
        Some(NamespacedName { namespace, name }) => {
            format!("rbac_access_denied_matched_policy[ns[{namespace}]-policy[{name}]]")
        }
        None => "rbac_access_denied_matched_policy[none]".to_owned(),
    }
}

/// Gives the request to endpoints until one answers it.
async fn send(session: &Rc<Session>, below: server::Exchange, record: &Record) {
    let Some(head) = record.noted() else {
        return;
    };
    let protocol = upstream_protocol(session, head);
    let mut tried = Tried::default();
    let mut below = Some(below);
    // The failure of the last attempt, should there be no other.
    let mut last: Option<Failed> = None;
    let mut was_lost = false;
    let failed = loop {
        let (known, mesh) = match endpoint(session, head, &mut tried, protocol).await {
            Ok(found) => found,
            Err(why) => break last.unwrap_or_else(|| nowhere(&why)),
        };
        let attempt = Attempt {
            session,
            head,
            record,
            protocol,
            mesh: &mesh,
        };
        match attempt.run(&mut below, known, &mut tried).await {
            Outcome::Over => return,
            Outcome::Fail(failed) => break failed,
            // A request that kills who handles it does not go from one endpoint to the next.
            Outcome::Lost(failed) if was_lost => break failed,
            outcome @ (Outcome::Again(_) | Outcome::Lost(_)) => {
                was_lost |= matches!(outcome, Outcome::Lost(_));
                let (Outcome::Again(mut failed) | Outcome::Lost(mut failed)) = outcome else {
                    unreachable!("the pattern has no other")
                };
                if record.attempts() >= mesh.retry.attempts {
                    if mesh.retry.attempts > 1 {
                        failed.flags = failed.flags.exhausted();
                    }
                    break failed;
                }
                let reason = &failed.reason;
                tracing::debug!(%reason, "giving a request to another connection");
                last = Some(failed);
            }
        }
    };
    let Failed {
        answer,
        flags,
        details,
        reason,
    } = failed;
    record.fail(flags, details, reason);
    if let Some(below) = &below {
        give(below, record, answer).await;
    }
}

/// Chooses an endpoint by the configuration in force, which is not held for as long as the request lasts: only its settings are.
async fn endpoint(
    session: &Session,
    head: &Canonical,
    tried: &mut Tried,
    protocol: Protocol,
) -> Result<(Rc<KnownEndpoint>, Arc<Mesh>), NoEndpoint> {
    let view = session.waypoint.view().await;
    let view = view.ok_or_else(|| NoEndpoint::Gone("this proxy's own workload".to_owned()))?;
    let host = || head::host(head);
    let known = choose(session, &view, tried, Some(protocol), host).await?;
    Ok((known, Arc::clone(&view.mesh)))
}

fn nowhere(why: &NoEndpoint) -> Failed {
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

/// One attempt at a request.
struct Attempt<'a> {
    session: &'a Rc<Session>,
    head: &'a Canonical,
    record: &'a Record,
    protocol: Protocol,
    mesh: &'a Mesh,
}

impl Attempt<'_> {
    /// Gives the request to one connection of an endpoint. An exchange that becomes a tunnel is taken out of `below`.
    async fn run(
        &self,
        below: &mut Option<server::Exchange>,
        known: Rc<KnownEndpoint>,
        tried: &mut Tried,
    ) -> Outcome {
        let Self {
            session,
            head,
            record,
            protocol,
            mesh,
        } = *self;
        let Some(client) = below.as_ref() else {
            return Outcome::Over;
        };
        let waypoint = &session.waypoint;
        let endpoint = &known.endpoint;
        let upstream = waypoint.upstream(&known, protocol);
        let _occupied = upstream.occupy();
        record.attempt(&upstream, endpoint);
        let connect = || {
            let (waypoint, hop) = (Rc::clone(waypoint), endpoint.hop.clone());
            let limit = mesh.connect_timeout;
            // Requests that find a connection have no room for it.
            async move { Box::pin(open(&waypoint, &hop, Origin::default(), limit)).await }
        };
        let source = session.tunnel.peer.identity();
        let lease = tokio::select! {
            biased;
            // An endpoint hears nothing of a client that has left by now.
            error = poll_fn(|cx| client.poll_gone(cx)) => return left(record, &error),
            lease = upstream.lease(source, || waypoint.client_config(protocol), connect) => lease,
        };
        let mut lease = match lease {
            Ok(lease) => lease,
            Err(error) => {
                tried.add(endpoint);
                return unopened(record, &error);
            }
        };
        record.connected(lease.ends());
        let fresh = websocket_key(session, head, &lease);
        let above = match request(&lease, head, fresh.as_ref()) {
            Ok(above) => above,
            Err(error) => return untaken(&error),
        };
        above.charge(&session.tunnel.account);
        let own = head::websocket_key(head);
        let keys = Keys {
            client: own,
            upstream: fresh.as_ref().or(own).filter(|_| lease.is_http1()),
        };
        let moved = {
            // They stay in their places: each future that has another one by value has room for it twice.
            let moving = pin!(forward(
                client,
                &above,
                record,
                keys,
                head::has_content(head)
            ));
            let late = pin!(late(record, mesh.retry.per_try_timeout));
            let moving = async {
                tokio::select! {
                    biased;
                    moved = moving => moved,
                    () = late => Err(Broken::Late),
                }
            };
            lease.drive(moving).await
        };
        let is_cut_short = !lease.is_http1() && !above.is_complete();
        if is_cut_short && !matches!(moved, Ok(true) | Err(Broken::Upstream(_))) {
            // The endpoint sees a reset.
            upstream.note_reset(source);
        }
        match moved {
            Ok(false) => {
                record.complete();
                drop(above);
                lease.give_back();
                Outcome::Over
            }
            Ok(true) => {
                if let Some(client) = below.take() {
                    // Requests that stay requests have no room for it.
                    Box::pin(self.switch(lease, client, above)).await;
                }
                Outcome::Over
            }
            Err(Broken::Client(error)) => left(record, &error),
            Err(Broken::Late) => {
                tried.add(endpoint);
                let failed = Failed {
                    answer: TOO_LATE,
                    flags: RequestFlags::UpstreamRequestTimeout,
                    details: "upstream_per_try_timeout".into(),
                    reason: "the endpoint did not begin its answer in time".to_owned(),
                };
                match mesh.retry.repeats_lost && head::is_idempotent(head) && !record.is_begun() {
                    true => Outcome::Lost(failed),
                    false => Outcome::Fail(failed),
                }
            }
            Err(Broken::Answer(refusal)) => {
                let reason = format!("the endpoint's answer is invalid: {refusal}");
                broken(record, client, Failure::of_answer(reason))
            }
            Err(Broken::Declined) => {
                let reason = "the endpoint answered a request for a WebSocket as an ordinary one";
                broken(record, client, Failure::of_answer(reason.to_owned()))
            }
            Err(Broken::Upstream(error)) => {
                // A connection that ended with the request says nothing about its endpoint, unless it was new.
                if !lease.is_reused() || !lease.handle().is_closed() {
                    tried.add(endpoint);
                }
                let mut failure = Failure::of(&error, head, lease.is_reused());
                if failure.repeat == Repeat::IfLost && !mesh.retry.repeats_lost {
                    failure.repeat = Repeat::Never;
                }
                broken(record, client, failure)
            }
        }
    }

    /// Relays behind an accepted upgrade or CONNECT, for as long as policies admit the request.
    async fn switch(&self, mut lease: Lease, client: server::Exchange, above: client::Exchange) {
        let Self {
            session,
            head,
            record,
            ..
        } = *self;
        let (Ok(client), Ok(above)) = (client.into_tunnel(), above.into_tunnel()) else {
            let reason = "the connection ended with the answer that opens a tunnel".to_owned();
            return terminated(record, reason);
        };
        // Other rules may be in force than those that judged the request: the endpoint had its time to answer.
        let tracked = Tracked::new(session, None);
        let peer = session.peer_facts();
        let judge = |rules: &RequestRules| session.judge.request_again(rules, &peer, head);
        let relaying = async {
            tokio::select! {
                biased;
                denial = tracked.denied(judge) => Err(denial),
                relayed = switched::relay(client, above, |up, down| record.relayed(up, down)) => Ok(relayed),
            }
        };
        match lease.drive(relaying).await {
            Ok(Ok(())) => record.complete(),
            Ok(Err(error)) => terminated(record, error.to_string()),
            Err(denial) => cut(record, denial),
        }
    }
}

/// An exchange that an endpoint has broken off.
struct Failure {
    answer: Answer,
    flags: RequestFlags,
    /// Envoy's word for the reset.
    word: &'static str,
    reason: String,
    /// The code for a client that was answered in part.
    code: Code,
    repeat: Repeat,
}

/// Whether a request that an endpoint has broken off may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// Nobody has processed it.
    Always,
    /// Its connection, which had served before, ended without a byte of an answer: it may have been closed while the request was on
    /// its way. A request that kills its endpoint looks the same, so it is repeated once.
    Once,
    /// It may have been processed, and may be processed twice.
    IfLost,
    Never,
}

impl Failure {
    /// The endpoint's answer cannot be passed on.
    fn of_answer(reason: String) -> Self {
        Self {
            answer: INVALID,
            flags: RequestFlags::UpstreamProtocolError,
            word: PROTOCOL_ERROR,
            reason,
            code: Code::INTERNAL_ERROR,
            repeat: Repeat::Never,
        }
    }

    fn of(error: &Error, head: &Canonical, is_reused: bool) -> Self {
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
            Error::Reset(code) => *code,
            _ => Code::INTERNAL_ERROR,
        };
        // Another attempt would have no more room.
        let has_no_room = matches!(
            error,
            Error::OverLimit | Error::Connection(ConnectionError::OverLimit)
        );
        let was_idle = is_reused && matches!(error, Error::Connection(error) if error.is_silent());
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

/// Ends an exchange that the endpoint has broken off: by another attempt, by an answer, or by a reset of a client that was
/// answered in part.
fn broken(record: &Record, client: &server::Exchange, failure: Failure) -> Outcome {
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

/// Resolves if the endpoint, once it has the whole request, does not begin its answer in time.
async fn late(record: &Record, limit: Option<Duration>) {
    let Some(limit) = limit else {
        return pending().await;
    };
    // The request moves in the same task: when it is sent, this is polled behind it.
    poll_fn(|_| match record.is_sent() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
    tokio::time::sleep(limit).await;
    if record.is_answered() {
        pending().await
    }
}

/// Envoy's words for an attempt that was reset before its answer.
fn before_answer(word: &str) -> Cow<'static, str> {
    format!("upstream_reset_before_response_started{{{word}}}").into()
}

/// The client has left, or has broken its protocol.
fn left(record: &Record, error: &Error) -> Outcome {
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
                record.replied(status, 0);
            }
        }
        None => record.left(error.to_string()),
    }
    Outcome::Over
}

/// There is no connection to the endpoint.
fn unopened(record: &Record, error: &UpstreamError) -> Outcome {
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
fn untaken(error: &Error) -> Outcome {
    let is_unprocessed = error.is_unprocessed();
    let failed = Failed {
        answer: match is_unprocessed {
            true => NOT_CONNECTED,
            false => INVALID,
        },
        flags: RequestFlags::UpstreamConnectionFailure,
        details: before_answer("remote_connection_failure"),
        reason: error.to_string(),
    };
    match is_unprocessed {
        true => Outcome::Again(failed),
        false => Outcome::Fail(failed),
    }
}

/// The connection to the endpoint ended behind its answer.
fn terminated(record: &Record, reason: String) {
    let details = format!("upstream_reset_after_response_started{{{TERMINATION}}}");
    record.fail(RequestFlags::UpstreamConnectionTermination, details, reason);
}

/// A policy, or the leave of the destination, has cut the relay behind the answer.
fn cut(record: &Record, denial: Denial) {
    match denial {
        Denial::Unbound => record.fail(RequestFlags::NoRoute, NO_ROUTE, UNBOUND.to_owned()),
        Denial::Policy { policy, reason } => {
            let details = denied(policy.as_ref());
            record.deny(policy, details, format!("{CHANGED}: {reason}"));
        }
    }
}

/// Answers the request ourselves.
async fn give(below: &server::Exchange, record: &Record, answer: Answer) {
    let Answer { status, text } = answer;
    let head = record.noted();
    record.replied(status.code(), local_reply::content(head, text).len());
    if let Err(error) = local_reply::reply(below, head, status, text).await {
        tracing::debug!(%error, "a client left before its answer");
    }
}

/// The protocol that the endpoint is spoken to in: what the port's owner names, else what the client speaks. Istio calls
/// the second waypoint-auto-http2. A WebSocket goes over HTTP/1, which every server of WebSockets speaks.
fn upstream_protocol(session: &Session, head: &Canonical) -> Protocol {
    let is_http2 = match session.destination.protocol {
        _ if head::is_upgrade(head) => false,
        PortProtocol::Http2 | PortProtocol::Grpc => true,
        _ => head::version(head) == Version::Http2,
    };
    match is_http2 {
        true => Protocol::Http2,
        false => Protocol::Http1,
    }
}

fn request(
    lease: &Lease,
    head: &Canonical,
    key: Option<&WebSocketKey>,
) -> Result<client::Exchange, Error> {
    match head {
        Canonical::Request(head) => lease.handle().request(head, key),
        Canonical::Connect(head) => lease.handle().connect(head),
    }
}

/// A key for an endpoint that speaks HTTP/1 where the client, over HTTP/2, sent none.
fn websocket_key(session: &Session, head: &Canonical, lease: &Lease) -> Option<WebSocketKey> {
    let has_none = head::is_upgrade(head) && head::websocket_key(head).is_none();
    (has_none && lease.is_http1()).then(|| WebSocketKey::of(random(session).to_be_bytes()))
}

/// A value for `x-request-id`: a random UUID (RFC 9562 §5.4).
fn request_id(session: &Session) -> FieldValue {
    let bits = random(session);
    let bits = bits & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let text = format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        bits >> 80 & 0xffff,
        bits >> 64 & 0xffff,
        bits >> 48 & 0xffff,
        bits & 0xffff_ffff_ffff,
    );
    FieldValue::new(Bytes::from(text)).expect("digits and hyphens are visible")
}

fn random(session: &Session) -> u128 {
    let half = || u128::from(session.waypoint.worker.random_below(u64::MAX));
    half() << 64 | half()
}
