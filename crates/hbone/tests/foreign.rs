//! Peers that are no mesh proxies: whatever they send is answered or ends the connection, and nothing else.

mod common;

use common::wire::{self, *};
use common::{local, serve};
use lateen_hbone::{Connection, Settings};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

/// The status that a plain HTTP/2 request gets; none if it is reset.
async fn status_of(request: http::Request<()>) -> Option<u16> {
    let (near, far) = duplex(64 * 1024);
    let mut incoming = serve(far, Settings::server());
    let (mut send, connection) = h2::client::handshake(near).await.unwrap();
    spawn_local(connection);
    let (response, _body) = send.send_request(request, true).unwrap();
    let answer = response.await;
    assert!(incoming.try_recv().is_err(), "the request came through");
    answer.ok().map(|response| response.status().as_u16())
}

fn request(method: &str, uri: &str) -> http::Request<()> {
    http::Request::builder()
        .method(method)
        .uri(uri)
        .body(())
        .unwrap()
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    local(async {
        for method in ["GET", "POST", "OPTIONS", "TRACE"] {
            assert_eq!(
                status_of(request(method, "http://10.0.0.7:8080/")).await,
                Some(405)
            );
        }
    })
    .await;
}

/// It is answered before it is whole; what it says then is judged all the same.
#[tokio::test]
async fn a_request_that_was_turned_away_may_still_err() {
    local(async {
        let (mut near, far) = duplex(64 * 1024);
        let _incoming = serve(far, Settings::server());
        let post = [
            literal(b":method", b"POST"),
            literal(b":scheme", b"http"),
            literal(b":path", b"/"),
            literal(b"content-length", b"1"),
        ];
        let bytes = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &[]),
            frame(HEADERS, END_HEADERS, 1, &post.concat()),
        ];
        wire::write(&mut near, &bytes.concat()).await;
        while read_frame(&mut near).await.expect("it is answered").0 != HEADERS {}
        wire::write(&mut near, &frame(DATA, END_STREAM, 1, b"long")).await;
        loop {
            let (kind, _, stream, payload) = read_frame(&mut near).await.expect("it is told");
            if kind == RST_STREAM {
                assert_eq!((stream, &payload[..]), (1, &[0, 0, 0, 1][..]));
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn authorities_that_lead_nowhere_are_bad_requests() {
    local(async {
        for target in [
            "10.0.0.7",
            "reviews",
            "10.0.0.7:0",
            "10.0.0.7:99999",
            "user@10.0.0.7:80",
        ] {
            let status = status_of(request("CONNECT", target)).await;
            assert!(matches!(status, Some(400) | None), "{target}: {status:?}");
        }
        assert_eq!(status_of(request("CONNECT", "10.0.0.7:0")).await, Some(400));
    })
    .await;
}

#[tokio::test]
async fn http_1_is_no_tunnel() {
    local(async {
        let (mut near, far) = duplex(64 * 1024);
        near.write_all(b"GET / HTTP/1.1\r\nhost: b\r\n\r\n")
            .await
            .unwrap();
        near.shutdown().await.unwrap();
        assert!(Connection::accept(far, Settings::server()).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn header_lists_beyond_the_limit_do_not_come_through() {
    local(async {
        let mut large = request("CONNECT", "10.0.0.7:80");
        let value = http::HeaderValue::from_str(&"x".repeat(8 * 1024)).unwrap();
        for number in 0..16 {
            let name = http::HeaderName::from_bytes(format!("x-{number}").as_bytes()).unwrap();
            large.headers_mut().insert(name, value.clone());
        }
        assert_ne!(status_of(large).await, Some(200));
    })
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// After a good preface, any bytes: the connection ends or waits for more, it never panics.
    #[test]
    fn arbitrary_frames_do_no_harm(frames in prop::collection::vec(
        (any::<u8>(), any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..64)), 0..12)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(local(async {
            let (mut near, far) = duplex(1 << 20);
            let served = spawn_local(async move {
                let Ok(mut connection) = Connection::accept(far, Settings::server()).await else {
                    return;
                };
                while let Ok(Some(incoming)) = connection.next().await {
                    drop(incoming.accept(None));
                }
            });
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            // An empty SETTINGS, then the noise in frames of known kinds (0 to 9).
            bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
            for (kind, flags, stream, payload) in frames {
                bytes.extend([0, 0, payload.len() as u8, kind % 10, flags]);
                bytes.extend(stream.to_be_bytes());
                bytes.extend(payload);
            }
            // The server may close before it read everything.
            let _ = near.write_all(&bytes).await;
            let _ = near.shutdown().await;
            let mut rest = Vec::new();
            let _ = near.read_to_end(&mut rest).await;
            served.await.unwrap();
        }));
    }
}
