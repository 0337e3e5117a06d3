//! Memory of a server's connection that waits for its next request.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use lateen_exchange::{BUFFER, Config, Protocol, server};
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
