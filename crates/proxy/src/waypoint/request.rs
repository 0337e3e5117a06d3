//! One request: make it canonical, judge it, choose an endpoint, send it, answer it, tell of it.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lateen_config::PortProtocol;
use lateen_config::l7::Standing;
use lateen_exchange::{Protocol, server};
use lateen_http::{Canonical, FieldValue, FramedRequest, Version};
use lateen_telemetry::RequestFlags;

use super::attempt::Attempt;
use super::choose::{NoEndpoint, Tried, choose};
use super::failure::{
    Answer, DENIED, Failed, INVALID_HEAD, NO_HEALTHY, NO_ROUTE, NO_UPSTREAM, Outcome, SLOW_HEAD,
    UNAUTHENTICATED, UNBOUND, denied, nowhere,
};
use super::head;
use super::local_reply;
use super::mesh::Mesh;
use super::policy::{TOKEN_REFUSED, Verdict};
use super::record::Record;
use super::service_view::KnownEndpoint;
use super::session::Session;

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
    record.replied(status, None, 0);
}

/// Makes a request canonical and asks the policies. The record has its head from then on.
async fn admit(session: &Session, request: FramedRequest, record: &Record) -> Result<(), Answer> {
    let Some(view) = session.waypoint.view().await else {
        let reason = "the control plane has sent no configuration".to_owned();
        record.fail(RequestFlags::NoHealthyUpstream, NO_HEALTHY, reason);
        return Err(NO_UPSTREAM);
    };
    let mut id = || request_id(session);
    let head = match request.canonical(&view.mesh.rules, &session.tunnel.downstream, &mut id) {
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
        let Some(client) = &below else {
            return;
        };
        let (known, mesh) = match endpoint(session, record, client, &mut tried, protocol).await {
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
    record: &Record,
    client: &server::Exchange,
    tried: &mut Tried,
    protocol: Protocol,
) -> Result<(Rc<KnownEndpoint>, Arc<Mesh>), NoEndpoint> {
    let view = session.waypoint.view().await;
    let view = view.ok_or_else(|| NoEndpoint::Gone("this proxy's own workload".to_owned()))?;
    let host = || head::host(record.noted()?);
    let mut choosing = pin!(choose(session, &view, tried, Some(protocol), host));
    let known = poll_fn(|cx| {
        record.note_received(client, cx);
        choosing.as_mut().poll(cx)
    })
    .await?;
    Ok((known, Arc::clone(&view.mesh)))
}

/// Answers the request ourselves.
async fn give(below: &server::Exchange, record: &Record, answer: Answer) {
    let Answer { status, text } = answer;
    let head = record.noted();
    let content = local_reply::content(head, text).len();
    let (told, of_grpc) = local_reply::statuses(head, status);
    record.replied(told.code(), of_grpc, content);
    if let Err(error) = local_reply::reply(below, head, status, text).await {
        tracing::debug!(%error, "a client did not get its answer");
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

/// A value for `x-request-id`: a random UUID (RFC 9562 §5.4).
fn request_id(session: &Session) -> FieldValue {
    let bits = session.random();
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
