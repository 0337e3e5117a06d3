//! Requests and their answers, and who learns that the other gave up.

mod common;

use std::time::Duration;

use common::{TARGET, local, request, serve, settings, stream, tunnel};
use lateen_hbone::{
    Authority, Baggage, ConnectError, Forwarded, Settings, Status, TraceParent, client,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

#[tokio::test]
async fn headers_arrive_as_they_were_sent() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let baggage = Baggage {
            namespace: Some("default".into()),
            workload: Some("web".into()),
            ..Baggage::default()
        };
        let mut request = request();
        request.baggage = Some(baggage.to_string().into());
        request.forwarded = Some(Forwarded {
            client: Some("10.0.0.1:4711".parse().unwrap()),
            host: Some("web.default.svc.cluster.local".into()),
        });
        request.traceparent = Some(TraceParent::new(7, 9));
        request.network = Some("other".into());
        let asked = request.clone();
        let answer = async {
            let incoming = incoming.recv().await.unwrap();
            assert_eq!(incoming.authority, Authority::Ip(TARGET.parse().unwrap()));
            assert_eq!(incoming.baggage, Some(baggage));
            assert_eq!(incoming.forwarded, asked.forwarded);
            assert_eq!(incoming.traceparent, asked.traceparent);
            assert_eq!(incoming.network, asked.network);
            incoming.accept(Some("service.name=reviews")).unwrap()
        };
        let (connected, _far) = tokio::join!(tunnel.connect(&request), answer);
        let (_near, info) = connected.unwrap();
        assert_eq!(info.baggage.unwrap().service.as_deref(), Some("reviews"));
    })
    .await;
}

#[tokio::test]
async fn baggage_that_is_too_long_counts_as_missing() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let padded = |length: usize| {
            let field = "service.name=web,x=";
            format!("{field}{}", "a".repeat(length - field.len()))
        };
        for (length, is_read) in [(4096, true), (4097, false), (16_000, false)] {
            let text = padded(length);
            let mut request = request();
            request.baggage = Some(text.as_str().into());
            let answer = async {
                let incoming = incoming.recv().await.unwrap();
                assert_eq!(incoming.baggage.is_some(), is_read, "{length}");
                incoming.accept(Some(&text)).unwrap()
            };
            let (connected, _far) = tokio::join!(tunnel.connect(&request), answer);
            let (_near, info) = connected.unwrap();
            assert_eq!(info.baggage.is_some(), is_read, "{length}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_name_and_an_ipv6_address_are_targets_too() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        for target in ["reviews.default.svc.cluster.local:9080", "[fd00::1]:80"] {
            let authority: Authority = target.parse().unwrap();
            let request = lateen_hbone::ConnectRequest::new(authority.clone());
            let answer = async {
                let incoming = incoming.recv().await.unwrap();
                assert_eq!(incoming.authority, authority);
                incoming.accept(None).unwrap()
            };
            let (connected, _far) = tokio::join!(tunnel.connect(&request), answer);
            assert_eq!(connected.unwrap().1.baggage, None);
        }
    })
    .await;
}

#[tokio::test]
async fn refusals_carry_their_status() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        for (status, number) in [
            (Status::BadRequest, 400),
            (Status::Unauthorized, 401),
            (Status::Unavailable, 503),
        ] {
            let request = request();
            let refuse = async { incoming.recv().await.unwrap().refuse(status) };
            let (connected, ()) = tokio::join!(tunnel.connect(&request), refuse);
            let error = connected.expect_err("it was refused");
            assert!(
                matches!(error, ConnectError::Refused { status } if status == number),
                "{error}"
            );
            assert!(!error.unprocessed() && !error.unanswered());
        }
        // The tunnel is as good as before.
        let (near, far) = stream(&tunnel, &mut incoming).await;
        drop((near, far));
        tokio::task::yield_now().await;
        assert_eq!(tunnel.active(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_request_that_nobody_answers_is_reset() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let request = request();
        let ignore = async { drop(incoming.recv().await.unwrap()) };
        let (connected, ()) = tokio::join!(tunnel.connect(&request), ignore);
        assert!(
            matches!(connected, Err(ConnectError::Reset(_))),
            "{connected:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_server_learns_that_the_client_gave_up() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let asking = spawn_local(async move {
            let _ = tunnel.connect(&request()).await;
            std::future::pending::<()>().await;
        });
        let mut waiting = incoming.recv().await.unwrap();
        asking.abort();
        tokio::time::timeout(Duration::from_secs(60), waiting.cancelled())
            .await
            .expect("the server still waits");
    })
    .await;
}

#[tokio::test]
async fn a_request_whose_work_is_done_first_is_accepted_after_the_wait() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let request = request();
        let answer = async {
            let mut waiting = incoming.recv().await.unwrap();
            tokio::select! {
                () = waiting.cancelled() => panic!("nobody gave up"),
                () = tokio::time::sleep(Duration::from_millis(20)) => waiting.accept(None).unwrap(),
            }
        };
        let (connected, mut far) = tokio::join!(tunnel.connect(&request), answer);
        let mut near = connected.unwrap().0;
        near.write_all(b"hello").await.unwrap();
        far.read_exact(&mut [0; 5]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_server_learns_that_the_tunnel_was_lost_under_a_request() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        let mut incoming = serve(far, Settings::server());
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        spawn_local(async move { tunnel.connect(&request()).await.err() });
        let mut waiting = incoming.recv().await.unwrap();
        driver.abort();
        tokio::time::timeout(Duration::from_secs(60), waiting.cancelled())
            .await
            .expect("the server still waits");
    })
    .await;
}
