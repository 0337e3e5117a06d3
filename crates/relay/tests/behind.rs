//! Relays behind bytes that were read before they began.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lateen_relay::{Counters, Limits, Relay, RelayError, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Far longer than anything takes when it works.
const LONG: Duration = Duration::from_secs(60);

/// Two ends of one TCP connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

#[tokio::test]
async fn bytes_that_were_read_before_go_first_and_are_counted() {
    let (mut app, near) = pair().await;
    let (far, mut server) = pair().await;
    let counters = Rc::new(Counters::default());
    let relay = Relay::new(Socket::from(near), Socket::from(far), Rc::clone(&counters))
        .behind(Bytes::from_static(b"GET "), Bytes::from_static(b"220 "));
    let talk = async {
        app.write_all(b"/").await.unwrap();
        server.write_all(b"ready").await.unwrap();
        app.shutdown().await.unwrap();
        server.shutdown().await.unwrap();
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        server.read_to_end(&mut request).await.unwrap();
        app.read_to_end(&mut reply).await.unwrap();
        (request, reply)
    };
    let both = async { tokio::join!(talk, relay) };
    let ((request, reply), outcome) = timeout(LONG, both).await.expect("the relay hangs");
    assert_eq!(
        (&request[..], &reply[..]),
        (&b"GET /"[..], &b"220 ready"[..])
    );
    assert_eq!((outcome.sent, outcome.received), (5, 9));
    assert_eq!((counters.sent(), counters.received()), (5, 9));
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[tokio::test]
async fn bytes_that_were_read_before_and_that_nobody_takes_are_given_up_at_the_limit() {
    let (_app, near) = pair().await;
    let (far, _server) = pair().await;
    // Until the server's end has no room.
    let block = [7; 1 << 16];
    while let Ok(written) = timeout(Duration::from_millis(300), far.writable()).await {
        written.unwrap();
        // It fails once there is no room.
        let _ = far.try_write(&block);
    }
    let idle = Some(Duration::from_millis(100));
    let relay = Relay::new(Socket::from(near), Socket::from(far), Counters::default())
        .behind(Bytes::from_static(&[1; 1 << 16]), Bytes::new())
        .limited(Limits::new(idle, None));
    let outcome = timeout(LONG, relay).await.expect("the relay hangs");
    assert!(matches!(outcome.error, Some(RelayError::Idle { .. })));
    assert_eq!(outcome.sent, 0);
}

/// Bytes whose buffer says when it is gone.
struct Buffer {
    _alive: Arc<()>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        b"hello"
    }
}

#[tokio::test]
async fn the_buffer_of_bytes_that_were_taken_is_gone_while_nothing_flows() {
    let (_app, near) = pair().await;
    let (far, mut server) = pair().await;
    let alive = Arc::new(());
    let first = Bytes::from_owner(Buffer {
        _alive: Arc::clone(&alive),
    });
    let relay = Relay::new(Socket::from(near), Socket::from(far), Counters::default())
        .behind(first, Bytes::new());
    let look = async {
        server.read_exact(&mut [0; 5]).await.unwrap();
        tokio::task::yield_now().await;
        Arc::strong_count(&alive)
    };
    let both = async {
        tokio::select! {
            outcome = relay => panic!("{outcome:?}"),
            count = look => count,
        }
    };
    let count = timeout(LONG, both).await.expect("the relay hangs");
    assert_eq!(count, 1);
}
