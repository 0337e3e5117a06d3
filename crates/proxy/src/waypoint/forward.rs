//! The two messages of an exchange: the request goes up, the answer comes down, each as the other side has room for it.

use std::future::{pending, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Error, client, server};
use lateen_http::{Known, PeerKind, Refusal, ResponseHead, WebSocketKey};

use super::date;
use super::head::is_extended_connect;
use super::record::Record;

/// The time that an endpoint has to end the stream of an answer that is complete for its client. Most endpoints say the end with the last
/// bytes, and the others in a frame right behind them.
pub(super) const LAST_FRAME: Duration = Duration::from_millis(100);

/// What ended an exchange before it was complete.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client, or its connection.
    Client(Error),
    /// The endpoint, or its connection.
    Upstream(Error),
    /// The endpoint's answer, which is invalid.
    Answer(Refusal),
    /// The endpoint's answer, which accepts no WebSocket and would tell a client of HTTP/2 that it does (RFC 8441 §4).
    Declined,
    /// The endpoint has not begun its answer in time.
    Late,
}

/// Keys of a WebSocket handshake.
#[derive(Clone, Copy, Default)]
pub(super) struct Keys<'a> {
    /// The key that the client sent.
    pub(super) client: Option<&'a WebSocketKey>,
    /// The key that the endpoint was sent.
    pub(super) upstream: Option<&'a WebSocketKey>,
}

/// Moves an exchange until the answer is complete. `has_content` says whether content of the request may come. Returns
/// whether the answer opens a tunnel.
///
/// The endpoint may answer a request that it does not read to its end; then the answer says how the exchange ends. It need not end the
/// stream of an answer that is complete for its client: [`client::Exchange::has_ended`] is false then.
///
/// # Errors
/// See [`Broken`].
pub(super) async fn forward(
    below: &server::Exchange,
    above: &client::Exchange,
    record: &Record,
    keys: Keys<'_>,
    has_content: bool,
) -> Result<bool, Broken> {
    tokio::select! {
        biased;
        answered = answer(below, above, record, keys) => answered,
        error = poll_fn(|cx| {
            record.note_received(below, cx);
            below.poll_gone(cx)
        }) => Err(Broken::Client(error)),
        broken = upload(below, above, record, has_content) => Err(broken),
    }
}

/// Moves the request's content. It ends only if the client breaks off: what ends the endpoint's side, its answer tells.
async fn upload(
    below: &server::Exchange,
    above: &client::Exchange,
    record: &Record,
    has_content: bool,
) -> Broken {
    if !has_content {
        record.sent();
    } else {
        loop {
            match below.data().await {
                Ok(Some(bytes)) => {
                    record.uploaded(&bytes);
                    if above.send(bytes).await.is_err() {
                        break;
                    }
                }
                Ok(None) => {
                    let _ = match below.trailers() {
                        Some(trailers) => {
                            record.uploaded_trailers(&trailers);
                            above.finish_with(&trailers)
                        }
                        None => above.finish(),
                    };
                    record.sent();
                    break;
                }
                Err(error) => return Broken::Client(error),
            }
        }
    }
    pending().await
}

async fn answer(
    below: &server::Exchange,
    above: &client::Exchange,
    record: &Record,
    keys: Keys<'_>,
) -> Result<bool, Broken> {
    let head = loop {
        let head = above.answer().await.map_err(Broken::Upstream)?;
        let head = head
            .canonical(keys.upstream, PeerKind::Mesh)
            .map_err(Broken::Answer)?;
        if !head.status().is_informational() || head.opens_tunnel() {
            break head;
        }
        match below.inform(&head) {
            // HTTP/1 cannot say it. An intermediary may drop it (RFC 9110 §15.2).
            Ok(()) | Err(Error::Write(_)) => {}
            Err(error) => return Err(Broken::Client(error)),
        }
    };
    let opens_tunnel = head.opens_tunnel();
    let is_extended = record.noted().is_some_and(is_extended_connect);
    if is_extended && head.status().is_success() && !opens_tunnel {
        return Err(Broken::Declined);
    }
    respond(below, record, head, keys.client)?;
    if opens_tunnel {
        return Ok(true);
    }
    while let Some(bytes) = poll_fn(|cx| poll_content(below, above, cx))
        .await
        .map_err(Broken::Upstream)?
    {
        record.downloaded(&bytes);
        below.send(bytes).await.map_err(Broken::Client)?;
    }
    match above.trailers() {
        Some(trailers) => {
            let finished = below.finish_with(&trailers);
            record.trailers(trailers);
            finished
        }
        None => below.finish(),
    }
    .map_err(unsent)?;
    Ok(false)
}

/// Sends the head of the final answer, with a Date if it came without one.
fn respond(
    below: &server::Exchange,
    record: &Record,
    head: ResponseHead,
    key: Option<&WebSocketKey>,
) -> Result<(), Broken> {
    let date = (!head.fields().has(Known::Date)).then(date::now);
    below
        .respond_dated(&head, key, date.as_ref())
        .map_err(unsent)?;
    record.answered(head, date.as_ref());
    Ok(())
}

/// Tells a client that is gone from one whose account has no room for a part of the answer. The latter gets a short answer instead, or a
/// reset if the first part was sent.
fn unsent(error: Error) -> Broken {
    match error {
        Error::OverLimit => Broken::Upstream(error),
        error => Broken::Client(error),
    }
}

/// The next content of the answer; none at its end. The answer may be complete for its client before the endpoint has ended the
/// stream. Then nobody waits for that.
fn poll_content(
    below: &server::Exchange,
    above: &client::Exchange,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Error>> {
    match above.poll_data(cx) {
        Poll::Pending if below.is_complete() => Poll::Ready(Ok(None)),
        polled => polled,
    }
}
