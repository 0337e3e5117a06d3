//! One attempt at a request: a connection of an endpoint, the exchange on it, and the relay behind an upgrade.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use lateen_config::l7::RequestRules;
use lateen_exchange::{Error, Protocol, client, server};
use lateen_executor::SharedGroup;
use lateen_h2::Code;
use lateen_http::{Canonical, WebSocketKey};
use lateen_telemetry::RequestFlags;

use super::choose::Tried;
use super::dial::{Origin, Terms, open};
use super::failure::{
    Failed, Failure, Outcome, Repeat, TOO_LATE, broken, cut, drained, left, overflow, terminated,
    unopened, untaken,
};
use super::forward::{Broken, Keys, LAST_FRAME, forward};
use super::head;
use super::mesh::Mesh;
use super::record::Record;
use super::relays::{Denial, Tracked};
use super::service_view::KnownEndpoint;
use super::session::Session;
use super::switched::{self, Stopped};
use super::upstream::{Lease, Owner, Upstream};

/// The end of a relay behind an upgrade or a CONNECT.
enum Relayed {
    Over(Result<(), Stopped>),
    Denied(Denial),
    /// The end of a drain has cut it.
    Drained,
}

/// One attempt at a request.
pub(super) struct Attempt<'a> {
    pub(super) session: &'a Rc<Session>,
    pub(super) head: &'a Canonical,
    pub(super) record: &'a Record,
    pub(super) protocol: Protocol,
    pub(super) mesh: &'a Mesh,
}

impl Attempt<'_> {
    /// Gives the request to one connection of an endpoint. An exchange that becomes a tunnel is taken out of `below`.
    pub(super) async fn run(
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
        let connect = |owner: Option<Rc<Owner>>, group: Option<SharedGroup>| {
            let (waypoint, hop) = (Rc::clone(waypoint), endpoint.hop.clone());
            let limit = mesh.connect_timeout;
            // Requests that find a connection have no room for it.
            async move {
                let terms = Terms {
                    owner,
                    group,
                    sockets: waypoint.sockets.for_requests(),
                    limit,
                };
                Box::pin(open(&waypoint, &hop, Origin::default(), terms)).await
            }
        };
        let source = session.tunnel.peer.identity();
        let account = &session.tunnel.account;
        // Bytes of a tunnel need the connection's window, too.
        let has_content = head::has_content(head) || head::asks_for_tunnel(head);
        let lease = tokio::select! {
            biased;
            // An endpoint hears nothing of a client that has left by now.
            error = poll_fn(|cx| {
                record.note_received(client, cx);
                client.poll_gone(cx)
            }) => return left(record, &error),
            lease = upstream.lease(source, account, has_content, || waypoint.client_config(protocol), connect) => lease,
        };
        let mut lease = match lease {
            Ok(lease) => lease,
            Err(error) => {
                tried.add_at(endpoint, error.dialled());
                return unopened(record, &error);
            }
        };
        record.connected(lease.ends());
        if !lease.handle().has_room_for(account) {
            tried.add_at(endpoint, lease.remote());
            return overflow();
        }
        let fresh = websocket_key(session, head, &lease);
        let above = match request(&lease, head, fresh.as_ref()) {
            Ok(above) => above,
            Err(error) => {
                // A connection that closes says nothing about its endpoint. One that stays would refuse the request again.
                if !lease.handle().is_closed() {
                    tried.add_at(endpoint, lease.remote());
                }
                return untaken(&error);
            }
        };
        above.charge(account);
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
        let is_endpoints = match moved {
            // The client's account has no room, or one above it.
            Err(Broken::Upstream(Error::OverLimit)) => false,
            Err(Broken::Upstream(_)) => true,
            // It is counted when the relay ends.
            Ok(true) => true,
            // The client has the answer, whose stream the endpoint has not ended.
            Ok(false) => !above.has_ended(),
            // Faults of an answer over HTTP/2 are errors of the exchange already. An attempt that took too long is reset as well, and clients
            // may choose requests that take long.
            Err(Broken::Client(_) | Broken::Late | Broken::Answer(_) | Broken::Declined) => false,
        };
        if is_cut_short && !is_endpoints {
            // The endpoint sees a reset.
            upstream.note_reset(source);
        }
        match moved {
            Ok(false) => {
                record.complete();
                match above.has_ended() {
                    true => {
                        drop(above);
                        lease.give_back();
                    }
                    false => await_end(lease, above),
                }
                Outcome::Over
            }
            Ok(true) => {
                if let Some(client) = below.take() {
                    // Requests that stay requests have no room for it.
                    Box::pin(self.switch(&upstream, lease, client, above)).await;
                }
                Outcome::Over
            }
            Err(Broken::Client(error)) => left(record, &error),
            Err(Broken::Late) => {
                tried.add_at(endpoint, lease.remote());
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
                    match error.is_unprocessed() {
                        true => tried.put_last(endpoint, lease.remote()),
                        false => tried.add_at(endpoint, lease.remote()),
                    }
                }
                let is_cancelled = matches!(error, Error::Reset(Code::CANCEL));
                if is_cancelled && head::grpc_deadline(head).is_some_and(|at| record.is_past(at)) {
                    return broken(record, client, Failure::of_deadline());
                }
                let mut failure = Failure::of(&error, head, lease.was_idle());
                if failure.repeat == Repeat::IfLost && !mesh.retry.repeats_lost {
                    failure.repeat = Repeat::Never;
                }
                broken(record, client, failure)
            }
        }
    }

    /// Relays behind an accepted upgrade or CONNECT, for as long as policies admit the request.
    async fn switch(
        &self,
        upstream: &Upstream,
        mut lease: Lease,
        client: server::Exchange,
        above: client::Exchange,
    ) {
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
        let half_closed = session.waypoint.limits.half_closed();
        // The relay may wait for its endpoint alone, so the end of a drain is no news to it.
        let relaying = async {
            let mut above = above;
            let relayed = tokio::select! {
                biased;
                denial = tracked.denied(judge) => Relayed::Denied(denial),
                () = session.waypoint.is_cut() => Relayed::Drained,
                relayed = switched::relay(client, &mut above, half_closed, |up, down| record.relayed(up, down)) => Relayed::Over(relayed),
            };
            (relayed, above.is_complete())
        };
        let (relayed, is_complete) = lease.drive(relaying).await;
        let is_endpoints = match &relayed {
            Relayed::Over(Err(Stopped::Endpoint(error))) => !matches!(error, Error::OverLimit),
            _ => false,
        };
        if !lease.is_http1() && !is_complete && !is_endpoints {
            // The endpoint has seen a reset.
            upstream.note_reset(session.tunnel.peer.identity());
        }
        match relayed {
            Relayed::Over(Ok(())) => record.complete(),
            Relayed::Over(Err(Stopped::Client(error))) => _ = left(record, &error),
            Relayed::Over(Err(error)) => terminated(record, error.to_string()),
            Relayed::Denied(denial) => cut(record, denial),
            Relayed::Drained => drained(record),
        }
    }
}

/// Gives an endpoint the time to end the stream of an answer that its client has. The request is over meanwhile. Servers take many resets
/// for abuse, so those that end each stream in a frame of its own get none.
fn await_end(lease: Lease, above: client::Exchange) {
    lateen_executor::spawn_local(async move {
        // Dropped without an end, the stream is reset.
        let _ = tokio::time::timeout(LAST_FRAME, above.data()).await;
        drop((above, lease));
    });
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
    (has_none && lease.is_http1()).then(|| WebSocketKey::of(session.random().to_be_bytes()))
}
