//! Answers of the echo service on their way out: the head, then a body in as many writes as the request asks for.

use bytes::Bytes;
use lateen_exchange::Error;
use lateen_exchange::server::Exchange;
use lateen_http::{
    Asked, FieldValue, Known, Length, Limits, PeerKind, RawResponse, ResponseHead, Status, Version,
};
use tokio::task::yield_now;

use super::reply::Reply;

/// The most bytes that are handed to the connection at once.
const PIECE: usize = 64 * 1024;

/// Sends a reply, with `date` unless it has one of its own, in so many writes: one is everything at once, two are head and body apart, more cut the body further.
///
/// The connection is to be polled whenever this waits, so that a write has left before the next one begins.
///
/// # Errors
/// The exchange failed.
pub async fn send(
    exchange: &Exchange,
    mut reply: Reply,
    writes: u32,
    date: Option<FieldValue>,
) -> Result<(), Error> {
    if let Some(status) = reply.interim.and_then(Status::new) {
        exchange.inform(&interim(status)?)?;
    }
    let mut fields = std::mem::take(&mut reply.fields);
    if !fields
        .iter()
        .any(|(name, _)| name.known() == Some(Known::Date))
    {
        fields.extend(date.map(|date| (Known::Date.into(), date)));
    }
    let status = Status::new(reply.status).unwrap_or(Status::BAD_REQUEST);
    // A status without content has no length either; an answer to HEAD has that of a GET.
    let length = match status.code() {
        204 | 304 => Length::None,
        _ => Length::Known(reply.body.len()),
    };
    exchange.reply(status, &fields, length)?;
    let length = u64::from(reply.has_content) * reply.body.len();
    let apart = u64::from(writes) - 1;
    let write = match apart {
        0 => length,
        apart => length.div_ceil(apart),
    };
    let (mut position, mut end) = (0, 0);
    while position < length {
        if position == end {
            if apart > 0 {
                yield_now().await;
            }
            end = (position + write).min(length);
        }
        let most = usize::try_from(end - position).unwrap_or(usize::MAX);
        let piece = reply.body.piece(position, most.min(PIECE));
        position += piece.len() as u64;
        exchange.send(piece).await?;
    }
    exchange.finish()
}

/// The head of an informational answer.
fn interim(status: Status) -> Result<ResponseHead, Error> {
    let (version, limits) = (Version::Http11, Limits::default());
    let raw = RawResponse::http1(Bytes::new(), status, version, limits)?;
    let framed = raw.frame(Asked::Ordinary)?;
    Ok(framed.canonical(None, PeerKind::Mesh)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::params::Params;
    use crate::serve::reply::{self, PATTERN, PATTERN_SIZE};
    use lateen_exchange::{Config, Protocol, server};
    use lateen_h1::{ClientConnection, ClientEvent};
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::io::IoSlice;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWrite, duplex, join};

    /// Takes up to `room` bytes per write, and refuses every other write.
    struct Slow {
        writes: Rc<RefCell<Vec<Vec<u8>>>>,
        room: usize,
        refuse: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<std::io::Result<usize>> {
            if self.room < usize::MAX {
                self.refuse = !self.refuse;
                if self.refuse {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            let all = pieces.iter().flat_map(|piece| piece.iter().copied());
            let taken: Vec<u8> = all.take(self.room).collect();
            let count = taken.len();
            self.writes.borrow_mut().push(taken);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The writes of an answer.
    fn written(query: &str, echoed: &[u8], room: usize) -> Vec<Vec<u8>> {
        let params = Params::of(query, u64::MAX, Duration::MAX);
        let asked = reply::Asked {
            body: echoed.to_vec().into(),
            ..reply::Asked::default()
        };
        let reply = Reply::new(&params, asked).unwrap();
        let writes = Rc::default();
        let slow = Slow {
            writes: Rc::clone(&writes),
            room,
            refuse: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.build().unwrap().block_on(async {
            let mut config = Config::new(Protocol::Http1);
            config.timeouts = None;
            let (silent, _other) = duplex(1);
            let asks = (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..]).chain(silent);
            let mut connection = server::Connection::new(join(asks, slow), config);
            let (_, exchange) = connection.next().await.unwrap().unwrap();
            let date = FieldValue::new("now");
            tokio::select! {
                biased;
                sent = send(&exchange, reply, params.writes, date) => sent.unwrap(),
                _ = connection.next() => panic!("the connection ended"),
            }
            drop(exchange);
            connection.drain();
            connection.next().await.unwrap();
        });
        writes.take()
    }

    #[test]
    fn the_number_of_writes_is_what_was_asked_for() {
        let table = [
            (2, vec![1000]),
            (3, vec![500; 2]),
            (5, vec![250; 4]),
            (1, vec![]),
        ];
        for (writes, body) in table {
            let written = written(&format!("size=1000&writes={writes}"), b"", usize::MAX);
            let lengths: Vec<usize> = written.iter().map(Vec::len).collect();
            let head = lengths.iter().sum::<usize>() - body.iter().sum::<usize>();
            assert_eq!(lengths, [vec![head], body].concat(), "writes={writes}");
        }
    }

    #[test]
    fn the_head_is_that_of_the_status_and_of_the_fields() {
        let empty = "204 No Content\r\ncontent-type: application/octet-stream\r\ndate: now";
        let interim = "150 \r\n\r\nHTTP/1.1 200 OK\r\ndate: then\r\ncontent-length: 0";
        for (query, expected) in [
            ("status=204&size=5", empty),
            ("status=150&header=date:then", interim),
        ] {
            let written = written(query, b"", usize::MAX).concat();
            let expected = format!("HTTP/1.1 {expected}\r\n\r\n");
            assert_eq!(String::from_utf8_lossy(&written), expected);
        }
    }

    proptest! {
        #[test]
        fn every_byte_leaves_once_and_in_order(
            size in prop::option::of(0u64..200_000),
            echoed in prop::collection::vec(any::<u8>(), 0..300),
            writes in 1u32..9,
            room in 1000usize..70_000,
        ) {
            let size_asked = size.map_or(String::new(), |size| format!("&size={size}"));
            let written = written(&format!("writes={writes}{size_asked}"), &echoed, room);
            let mut client = ClientConnection::new(lateen_h1::Config::default());
            client.expect(false).unwrap();
            let mut input = Bytes::from(written.concat());
            let mut body = Vec::new();
            while let Some(event) = client.receive(&mut input).unwrap() {
                if let ClientEvent::Data { bytes, .. } = event {
                    body.extend_from_slice(&bytes);
                }
            }
            prop_assert!(client.is_idle() && input.is_empty());
            prop_assert_eq!(body.len() as u64, size.unwrap_or(echoed.len() as u64));
            match size {
                None => prop_assert_eq!(body, echoed),
                Some(_) => prop_assert!(body.iter().enumerate().all(|(at, byte)| *byte == PATTERN[at % PATTERN_SIZE])),
            }
        }
    }
}
