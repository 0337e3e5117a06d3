//! An HTTP connection inside a stream: its requests are polled in the connection's task.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lateen_config::l7::Standing;
use lateen_exchange::{Protocol, server};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};

use super::leaving::Watched;
use super::request;
use super::session::Session;
use super::slots::Slots;

/// Rounds of one turn; then other connections have theirs.
const ROUNDS: usize = 8;

/// Serves a connection until it has ended and its last request has.
///
/// When the destination leaves this waypoint, HTTP/2 is told by GOAWAY at once. A connection of HTTP/1 ends with its next answer, for
/// a request may be on its way. So does one of HTTP/2 that has had no request: its client would take the GOAWAY for a refusal. Once
/// the destination is gone from here, idle connections end.
///
/// When the process drains, all destinations leave, and are gone when the time for last requests is over: otherwise a client that
/// keeps its connection for later would hold the process until the deadline.
pub(super) fn serve<IO: AsyncRead + AsyncWrite + Unpin>(
    session: Rc<Session>,
    io: IO,
    protocol: Protocol,
) -> impl Future<Output = ()> {
    let config = session.tunnel.config(protocol);
    let mut connection = server::Connection::new(io, config);
    // An async function keeps room for its arguments beside what it makes of them, for as long as it lives. Most connections are idle,
    // so that room counts.
    async move {
        let mut requests = Slots::default();
        let mut draining = pin!(session.waypoint.worker.draining());
        let watched = Watched::new(&session);
        let seat = session
            .waypoint
            .listing
            .enter(session.about(match protocol {
                Protocol::Http1 => "HTTP/1.1",
                Protocol::Http2 => "HTTP/2",
            }));
        // Boxed, for a connection needs it in a drain alone.
        let mut last_request: Option<Pin<Box<Sleep>>> = None;
        let (mut is_draining, mut is_over, mut has_asked) = (false, false, false);
        // The waker of the task, as `draining` knows it.
        let mut known: Option<Waker> = None;
        let mut turn = |requests: &mut Slots<_>, cx: &mut Context<'_>| {
            let is_known = known
                .as_ref()
                .is_some_and(|known| known.will_wake(cx.waker()));
            if !is_known {
                known = Some(cx.waker().clone());
            }
            let asks =
                last_request.is_none() && (!is_known || session.waypoint.worker.is_draining());
            let mut standing = watched.poll_standing(cx);
            if asks && draining.as_mut().poll(cx).is_ready() {
                let left = session.waypoint.timeouts.last_request;
                last_request = Some(Box::pin(sleep(left)));
            }
            if let Some(over) = &mut last_request {
                standing = match (over.as_mut().poll(cx), standing) {
                    (Poll::Pending, Standing::Bound) => Standing::Leaving,
                    (Poll::Pending, standing) => standing,
                    (Poll::Ready(()), _) => Standing::Unbound,
                };
            }
            let is_told_at_once = protocol == Protocol::Http2 && has_asked || !requests.is_empty();
            let ends_idle =
                standing == Standing::Unbound || standing == Standing::Leaving && is_told_at_once;
            if !is_draining && ends_idle {
                is_draining = true;
                connection.drain();
            }
            for round in 0..ROUNDS {
                // An answer of a request that was woken leaves with the connection's first turn.
                let ((), is_due) = connection.attend(|| requests.poll());
                // The first round has the turn for which the task may have been woken.
                let has_turn = !is_over && (is_due || round == 0);
                while has_turn && !is_over {
                    match connection.poll_next(cx) {
                        Poll::Pending => break,
                        Poll::Ready(Ok(Some((head, exchange)))) => {
                            has_asked = true;
                            requests.push(request::serve(Rc::clone(&session), head, exchange));
                            if !is_draining && standing == Standing::Leaving {
                                is_draining = true;
                                connection.drain();
                            }
                            if protocol == Protocol::Http1 {
                                // The next one comes behind the answer of this one.
                                break;
                            }
                        }
                        Poll::Ready(Ok(None)) => is_over = true,
                        Poll::Ready(Err(error)) => {
                            is_over = true;
                            tracing::debug!(client = %session.tunnel.client, %error, "a connection of a client ended");
                        }
                    }
                }
                while let Some(status) = connection.next_refused() {
                    request::refused(&session, status);
                }
                seat.note(requests.len(), connection.bytes());
                if is_over && requests.is_empty() {
                    return Poll::Ready(());
                }
                if !requests.is_woken() {
                    return Poll::Pending;
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        };
        poll_fn(|cx| {
            requests.attend(cx);
            let turned = turn(&mut requests, cx);
            requests.rest(cx);
            turned
        })
        .await;
    }
}
