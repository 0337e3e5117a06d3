//! An HTTP connection inside a stream: its requests are polled in the connection's task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use lateen_config::l7::Standing;
use lateen_exchange::{Protocol, server};
use tokio::io::{AsyncRead, AsyncWrite};

use super::leaving::Watched;
use super::request;
use super::session::Session;
use super::slots::Slots;

/// Rounds of one turn; then other connections have theirs.
const ROUNDS: usize = 8;

/// Serves a connection until it has ended and its last request has.
///
/// When the process drains, HTTP/2 is told by GOAWAY at once. A connection of HTTP/1 ends with its answer, and at once if it is idle:
/// otherwise a client that keeps it for later would hold the process until the deadline.
///
/// When the destination leaves this waypoint, a connection of HTTP/1 ends with its next answer, for a request may be on its way. Once
/// the destination is gone from here, the connection ends as in a drain.
pub(super) async fn serve<IO: AsyncRead + AsyncWrite + Unpin>(
    session: Rc<Session>,
    io: IO,
    protocol: Protocol,
) {
    let mut connection = server::Connection::new(io, session.waypoint.server_config(protocol));
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
    let (mut is_draining, mut is_over) = (false, false);
    poll_fn(|cx| {
        if !is_draining && draining.as_mut().poll(cx).is_ready() {
            is_draining = true;
            connection.drain();
        }
        let standing = watched.poll_standing(cx);
        let ends_idle = standing == Standing::Unbound
            || standing == Standing::Leaving && (protocol == Protocol::Http2 || !requests.is_empty());
        if !is_draining && ends_idle {
            is_draining = true;
            connection.drain();
        }
        for _ in 0..ROUNDS {
            let mut has_moved = false;
            while !is_over {
                match connection.poll_next(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(Some((head, exchange)))) => {
                        has_moved = true;
                        requests.push(request::serve(Rc::clone(&session), head, exchange));
                        if !is_draining && standing == Standing::Leaving {
                            is_draining = true;
                            connection.drain();
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
            has_moved |= requests.poll(cx);
            seat.note(requests.len(), connection.bytes());
            if is_over && requests.is_empty() {
                return Poll::Ready(());
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
