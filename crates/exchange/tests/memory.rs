//! Memory of a server's connection that waits for its next request.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use lateen_exchange::{Config, Protocol, server};
use lateen_http::{Length, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::sleep;

#[path = "../../hbone/tests/common/heap.rs"]
#[allow(dead_code)]
mod heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const CONNECTIONS: usize = 100;

/// Has a connection answer a request, and leaves it alone for longer than the interval of its checks.
async fn rest(
    (mut peer, io): (DuplexStream, DuplexStream),
    config: Rc<Config>,
) -> (DuplexStream, server::Connection<DuplexStream>) {
    let mut server = server::Connection::new(io, config);
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    peer.write_all(request).await.expect("there is room");
    let next = server.next().await.expect("the request is good");
    let (_, exchange) = next.expect("it has come");
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

#[test]
fn an_idle_connection_of_http1_has_at_most_900_bytes_beside_its_driver() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let config = Rc::new(Config::new(Protocol::Http1));
        let streams: Vec<_> = (0..CONNECTIONS).map(|_| duplex(4096)).collect();
        let mut kept = Vec::with_capacity(CONNECTIONS + 1);
        // The buffer that all connections of a thread read into.
        kept.push(rest(duplex(4096), Rc::clone(&config)).await);
        let before = heap::live();
        for stream in streams {
            kept.push(rest(stream, Rc::clone(&config)).await);
        }
        let each = heap::live().saturating_sub(before) / CONNECTIONS;
        assert!(each <= 900, "{each} bytes");
    });
}
