//! Memory of a server's connection that waits for its next request, or for the rest of one.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use lateen_exchange::{BUFFER, Config, Protocol, server};
use lateen_h2::{Field, Timestamp};
use lateen_http::{Length, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::sleep;

#[allow(dead_code)]
#[path = "../../hbone/tests/common/heap.rs"]
mod heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const CONNECTIONS: usize = 100;

type Pipe = (DuplexStream, DuplexStream);

/// A pipe that has carried as much as it ever will.
async fn pipe() -> Pipe {
    let (mut near, mut far) = duplex(2 * BUFFER);
    let mut bytes = vec![0; BUFFER];
    near.write_all(&bytes).await.expect("there is room");
    far.read_exact(&mut bytes).await.expect("they have come");
    far.write_all(&bytes).await.expect("there is room");
    near.read_exact(&mut bytes).await.expect("they have come");
    (near, far)
}

/// Has a connection answer a request, and leaves it alone for longer than the interval of its checks.
async fn rest(
    (mut peer, io): Pipe,
    config: Rc<Config>,
    request: &[u8],
) -> (DuplexStream, server::Connection<DuplexStream>) {
    let mut server = server::Connection::new(io, config);
    peer.write_all(request).await.expect("there is room");
    let next = server.next().await.expect("the request is good");
    let (_, exchange) = next.expect("it has come");
    loop {
        let piece = poll_fn(|cx| {
            assert!(server.poll_next(cx).is_pending());
            exchange.poll_data(cx)
        });
        if piece.await.expect("the content is good").is_none() {
            break;
        }
    }
    exchange
        .reply(Status::OK, &[], Length::Known(0))
        .and_then(|()| exchange.finish())
        .expect("nothing was answered before");
    drop(exchange);
    for _ in 0..3 {
        poll_fn(|cx| {
            assert!(server.poll_next(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        sleep(Duration::from_secs(1)).await;
    }
    let mut answer = [0; 1024];
    let answered = peer.read(&mut answer).await.expect("an answer");
    assert!(answer[..answered].starts_with(b"HTTP/1.1 200 OK\r\n"));
    (peer, server)
}

/// The heap of an idle connection that has answered `request`, in bytes.
fn idle(request: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let config = Rc::new(Config::new(Protocol::Http1));
        let mut pipes = Vec::new();
        for _ in 0..CONNECTIONS {
            pipes.push(pipe().await);
        }
        let mut kept = Vec::with_capacity(CONNECTIONS + 1);
        // The buffer that all connections of a thread read into.
        kept.push(rest(pipe().await, Rc::clone(&config), request).await);
        let before = heap::live();
        for pipe in pipes {
            kept.push(rest(pipe, Rc::clone(&config), request).await);
        }
        heap::live().saturating_sub(before) / CONNECTIONS
    })
}

const MOST: usize = 900;

#[test]
fn an_idle_connection_of_http1_has_little_beside_its_driver() {
    let each = idle(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(each <= MOST, "{each} bytes");
}

/// Chunks end within a read, so that an empty rest of it is left.
#[test]
fn an_idle_connection_keeps_nothing_of_what_was_uploaded() {
    let mut request = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    request.extend_from_slice(b"4000\r\n");
    request.resize(request.len() + 0x4000, b'x');
    request.extend_from_slice(b"\r\n0\r\n\r\n");
    let each = idle(&request);
    assert!(each <= MOST, "{each} bytes");
}

/// The heap of a connection that has sent a head and `content` bytes of content. They were read, and the request is open.
fn open(content: usize) -> usize {
    let mut request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999\r\n\r\n".to_vec();
    request.resize(request.len() + content, b'x');
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let config = Rc::new(Config::new(Protocol::Http1));
        let mut pipes = Vec::new();
        for _ in 0..=CONNECTIONS {
            pipes.push(pipe().await);
        }
        let mut kept = Vec::with_capacity(CONNECTIONS + 1);
        let mut before = 0;
        for (mut peer, io) in pipes {
            if kept.len() == 1 {
                before = heap::live();
            }
            let mut server = server::Connection::new(io, Rc::clone(&config));
            peer.write_all(&request).await.expect("there is room");
            let next = server.next().await.expect("the request is good");
            let (head, exchange) = next.expect("it has come");
            let mut read = 0;
            while read < content {
                let piece = poll_fn(|cx| {
                    assert!(server.poll_next(cx).is_pending());
                    exchange.poll_data(cx)
                });
                let piece = piece.await.expect("the content is good");
                read += piece.expect("there is more").len();
            }
            kept.push((peer, server, head, exchange));
        }
        heap::live().saturating_sub(before) / CONNECTIONS
    })
}

/// The account is charged with the head's bytes alone.
#[test]
fn an_open_request_of_http1_does_not_keep_the_buffer_that_its_head_was_read_into() {
    let each = open(BUFFER - 1024);
    assert!(each <= 4 * 1024, "{each} bytes");
}

/// The bytes of a client of HTTP/2 that opens a request, whose content stays away, and sends a head of 24 KiB on another stream.
fn large_head() -> Vec<u8> {
    let config = lateen_h2::Config::requests().share();
    let mut client = lateen_h2::Connection::client(&config, Timestamp::default());
    let value = "x".repeat(24 * 1024);
    for (method, value, end) in [("POST", "", false), ("GET", &value[..], true)] {
        let fields = [
            Field::new(":method", method),
            Field::new(":scheme", "http"),
            Field::new(":authority", "a"),
            Field::new(":path", "/"),
            Field::new("x", value),
        ];
        client.request(None, &fields, end).expect("there is room");
    }
    let mut bytes = Vec::new();
    while client.has_output() {
        let before = bytes.len();
        bytes.extend(client.output().flatten());
        client.advance(bytes.len() - before);
    }
    // The acknowledgment of the server's SETTINGS.
    bytes.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
    bytes
}

/// Answers the second of two requests and leaves the first one open.
async fn answer_second(
    (mut peer, io): Pipe,
    config: Rc<Config>,
    requests: &[u8],
) -> (
    DuplexStream,
    server::Connection<DuplexStream>,
    server::Exchange,
) {
    let mut server = server::Connection::new(io, config);
    peer.write_all(requests).await.expect("there is room");
    let next = server.next().await.expect("the request is good");
    let (_, open) = next.expect("it has come");
    let next = server.next().await.expect("the request is good");
    let (head, exchange) = next.expect("it has come");
    drop(head);
    exchange
        .reply(Status::OK, &[], Length::Known(0))
        .and_then(|()| exchange.finish())
        .expect("nothing was answered before");
    drop(exchange);
    for _ in 0..2 {
        poll_fn(|cx| {
            assert!(server.poll_next(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        sleep(Duration::from_secs(1)).await;
    }
    let mut answer = [0; 1024];
    let answered = peer.read(&mut answer).await.expect("an answer");
    assert!(answered > 0);
    (peer, server, open)
}

/// No account is charged with the list that was decoded last. So its buffer must be small while a stream is open.
#[test]
fn an_open_stream_of_http2_does_not_keep_the_buffer_of_a_large_head() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let each = runtime.block_on(async {
        let config = Rc::new(Config::new(Protocol::Http2));
        let requests = large_head();
        let mut pipes = Vec::new();
        for _ in 0..CONNECTIONS {
            pipes.push(pipe().await);
        }
        let mut kept = Vec::with_capacity(CONNECTIONS + 1);
        kept.push(answer_second(pipe().await, Rc::clone(&config), &requests).await);
        let before = heap::live();
        for pipe in pipes {
            kept.push(answer_second(pipe, Rc::clone(&config), &requests).await);
        }
        heap::live().saturating_sub(before) / CONNECTIONS
    });
    assert!(each <= 16 * 1024, "{each} bytes");
}
