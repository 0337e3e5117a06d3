//! One tunnel: requests, answers, bytes, ends.

mod common;

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use common::{Busy, Flushes, TARGET, echo, local, noise, request, serve, stream, tunnel};
use lateen_hbone::{
    Authority, Baggage, Budget, ConnectError, Connection, Forwarded, Settings, Status, TraceParent,
    Tunnel, TunnelError, client,
};
use lateen_relay::{Counters, Duplex, Relay, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

fn settings() -> (Settings, Settings) {
    (Settings::client(), Settings::server())
}

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

#[tokio::test]
async fn ten_megabytes_echo_whole() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (near, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        let sent = noise(10 << 20, 1);
        let expected = sent.clone();
        let (mut reader, mut writer) = tokio::io::split(near);
        let write = async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(write, reader.read_to_end(&mut got));
        read.unwrap();
        assert!(got == expected, "bytes were changed on the way");
    })
    .await;
}

#[tokio::test]
async fn an_end_of_one_direction_leaves_the_other_alone() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        for client_first in [true, false] {
            let (near, far) = stream(&tunnel, &mut incoming).await;
            let (mut first, mut second) = if client_first {
                (near, far)
            } else {
                (far, near)
            };
            first.write_all(b"question").await.unwrap();
            first.shutdown().await.unwrap();
            let mut got = Vec::new();
            second.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"question");
            let reply = noise(500_000, 2);
            let expected = reply.clone();
            let serve = async move {
                second.write_all(&reply).await.unwrap();
                second.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let ((), read) = tokio::join!(serve, first.read_to_end(&mut got));
            read.unwrap();
            assert!(got == expected);
        }
    })
    .await;
}

#[tokio::test]
async fn an_abort_is_a_reset_and_a_drop_is_an_end() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        far.write_all(b"half a").await.unwrap();
        let mut got = [0; 6];
        near.read_exact(&mut got).await.unwrap();
        far.abort();
        let error = near
            .read(&mut got)
            .await
            .expect_err("the abort became an end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        // Other proxies cancel streams that they are done with; what was sent before counts.
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        far.write_all(b"all").await.unwrap();
        let mut got = [0; 3];
        near.read_exact(&mut got).await.unwrap();
        drop(far);
        assert_eq!(near.read(&mut got).await.unwrap(), 0);
        let error = loop {
            if let Err(error) = near.write_all(b"anybody?").await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        // To end a direction that nobody listens to is no error.
        near.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn goaway_lets_streams_finish_and_takes_no_more() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        assert!(tunnel.usable());
        // Shuts the server down.
        drop(incoming);
        while tunnel.usable() {
            tokio::task::yield_now().await;
        }
        let refused = tunnel.connect(&request()).await.expect_err("it was taken");
        assert!(matches!(refused, ConnectError::Unprocessed(_)), "{refused}");
        assert!(refused.unprocessed());
        near.write_all(b"still here").await.unwrap();
        let mut got = [0; 10];
        far.read_exact(&mut got).await.unwrap();
        far.write_all(b"me too").await.unwrap();
        far.shutdown().await.unwrap();
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"me too");
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_breaks_streams_and_requests() {
    local(async {
        let (near_io, far_io) = duplex(64 * 1024);
        let (tunnel, driver) = client::handshake(near_io, Settings::client())
            .await
            .unwrap();
        let driver = spawn_local(driver);
        let mut server = Connection::accept(far_io, Settings::server())
            .await
            .unwrap();
        let request = request();
        let (connected, far) = tokio::join!(tunnel.connect(&request), async {
            let far = server.next().await.unwrap().unwrap().accept(None).unwrap();
            // Sends the answer.
            let idle = tokio::time::timeout(Duration::from_millis(50), server.next()).await;
            assert!(idle.is_err());
            far
        });
        let mut near = connected.unwrap().0;
        let pending = spawn_local({
            let tunnel = tunnel.clone();
            async move { tunnel.connect(&common::request()).await.err() }
        });
        tokio::task::yield_now().await;
        drop((server, far));
        near.read(&mut [0; 1])
            .await
            .expect_err("the loss became an end");
        let lost = pending.await.unwrap().expect("nobody answered");
        assert!(lost.unanswered() && !lost.unprocessed(), "{lost}");
        assert!(!tunnel.usable());
        assert_eq!(tunnel.active(), 1);
        drop(near);
        assert_eq!(tunnel.active(), 0);
        // How it ended depends on whether the end or the error came first.
        let _ = driver.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn streams_that_nobody_reads_stall_only_themselves() {
    local(async {
        let (ours, theirs) = settings();
        let window = theirs.stream_window as usize;
        let buffer = ours.send_buffer;
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        // More than the connection's own window holds.
        let mut stalled = Vec::new();
        for _ in 0..8 {
            let (mut near, far) = stream(&tunnel, &mut incoming).await;
            let block = vec![0; 256 * 1024];
            let mut sent = 0;
            while sent < window {
                let write = tokio::time::timeout(Duration::from_secs(60), near.write(&block));
                sent += write.await.expect("stalled within its window").unwrap();
            }
            let more = Duration::from_millis(200);
            while let Ok(n) = tokio::time::timeout(more, near.write(&block)).await {
                sent += n.unwrap();
                assert!(
                    sent <= window + buffer,
                    "{sent} bytes are buffered for one stream"
                );
            }
            stalled.push((near, far));
        }
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        let sent = noise(1 << 20, 3);
        let mut got = vec![0; 1 << 20];
        let (mut reader, mut writer) = tokio::io::split(&mut near);
        let (wrote, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut got));
        wrote.unwrap();
        read.unwrap();
        assert!(got == sent);
        // And they go on when they are read.
        let (near, far) = stalled.pop().unwrap();
        drop(near);
        let mut far = far;
        let mut all = Vec::new();
        let read = far.read_to_end(&mut all).await.unwrap();
        assert!(read >= window, "{read}");
    })
    .await;
}

/// An application that never reads, behind the relay of its proxy: the peer sends for as long as it may.
async fn pour(tunnel: Tunnel, sent: Rc<Cell<usize>>) {
    let Ok((mut near, _)) = tunnel.connect(&request()).await else {
        return;
    };
    let block = vec![0; 64 * 1024];
    while let Ok(n) = near.write(&block).await {
        sent.set(sent.get() + n);
    }
}

#[tokio::test]
async fn what_a_peer_makes_us_hold_is_bounded_whatever_it_opens() {
    local(async {
        const TUNNELS: usize = 6;
        const STREAMS: usize = 100;
        let budget = Budget::new(24 << 20);
        let sent = Rc::new(Cell::new(0));
        // The sending side's own buffers are another matter: they shall not blur the count.
        let ours = Settings {
            send_buffer: 1024,
            ..Settings::client()
        };
        let theirs = Settings {
            budget: budget.clone(),
            ..Settings::server()
        };
        let mut tasks = Vec::new();
        for _ in 0..TUNNELS {
            let (tunnel, mut incoming) = tunnel(ours.clone(), theirs.clone()).await;
            for _ in 0..STREAMS {
                tasks.push(spawn_local(pour(tunnel.clone(), Rc::clone(&sent))));
            }
            tasks.push(spawn_local(async move {
                while let Some(incoming) = incoming.recv().await {
                    let far = incoming.accept(None).unwrap();
                    spawn_local(Relay::new(far, Busy::default(), Counters::default()));
                }
            }));
        }
        // Until nothing moves any more.
        let mut before = usize::MAX;
        while sent.get() != before {
            before = sent.get();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let queued = TUNNELS * (256 * 1024 + STREAMS * ours.send_buffer);
        let bound = (24 << 20) + TUNNELS * 65_535 + queued;
        assert!(sent.get() <= bound, "{} of {bound} bytes", sent.get());
        // It is not so because nothing was taken.
        assert!(sent.get() > 12 << 20, "{} bytes", sent.get());
        assert!(budget.lent() <= 24 << 20);

        // Another peer comes late and is served.
        let (other, mut incoming) = tunnel(Settings::client(), theirs).await;
        let (near, far) = stream(&other, &mut incoming).await;
        spawn_local(echo(far));
        let data = noise(4 << 20, 5);
        let mut got = vec![0; data.len()];
        let (mut reader, mut writer) = tokio::io::split(near);
        let (wrote, read) = tokio::join!(writer.write_all(&data), reader.read_exact(&mut got));
        wrote.unwrap();
        read.unwrap();
        assert!(got == data);
    })
    .await;
}

#[tokio::test]
async fn small_frames_for_a_busy_reader_do_not_end_the_tunnel() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        let application = Busy::default();
        spawn_local(Relay::new(far, application.clone(), Counters::default()));
        // Each costs the HTTP/2 layer far more than its byte.
        const FRAMES: usize = 60_000;
        for i in 0..FRAMES {
            near.write_all(&[i as u8]).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert!(application.got.borrow().is_empty());
        application.reads.set(true);
        // Wakes the relay.
        near.write_all(&[FRAMES as u8]).await.unwrap();
        while application.got.borrow().len() <= FRAMES {
            assert!(tunnel.alive());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let got = application.got.take();
        assert!(got.iter().enumerate().all(|(i, byte)| *byte == i as u8));
    })
    .await;
}

#[tokio::test]
async fn two_hundred_streams_share_a_tunnel() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        spawn_local(async move {
            while let Some(incoming) = incoming.recv().await {
                spawn_local(echo(incoming.accept(None).unwrap()));
            }
        });
        let talks = (0..200).map(|seed| {
            let tunnel = tunnel.clone();
            spawn_local(async move {
                let (mut stream, _) = tunnel.connect(&request()).await.unwrap();
                for round in 0..5 {
                    let sent = noise(5_000, seed * 7 + round);
                    stream.write_all(&sent).await.unwrap();
                    let mut got = vec![0; sent.len()];
                    stream.read_exact(&mut got).await.unwrap();
                    assert!(got == sent);
                }
            })
        });
        for talk in talks.collect::<Vec<_>>() {
            talk.await.unwrap();
        }
        assert_eq!(tunnel.active(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    local(async {
        let (near, mut far) = duplex(64 * 1024);
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        // Reads and never says a word.
        let silent = spawn_local(async move {
            let mut sink = [0; 1024];
            while far.read(&mut sink).await.is_ok_and(|n| n > 0) {}
        });
        let started = tokio::time::Instant::now();
        let ended = driver.await.unwrap();
        assert!(matches!(ended, Err(TunnelError::Unresponsive)), "{ended:?}");
        let waited = started.elapsed().as_secs();
        assert!((30..=31).contains(&waited), "{waited} s");
        assert!(!tunnel.usable());
        silent.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_is_kept_and_an_idle_tunnel_is_not() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        let _incoming = serve(far, Settings::server());
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        tokio::time::sleep(Duration::from_secs(290)).await;
        assert!(tunnel.usable());
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!tunnel.usable());
        driver.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_with_a_stream_is_not_idle() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        tokio::time::sleep(Duration::from_secs(1800)).await;
        near.write_all(b"hello").await.unwrap();
        near.read_exact(&mut [0; 5]).await.unwrap();
        assert!(tunnel.usable());
    })
    .await;
}

#[tokio::test]
async fn a_relay_carries_a_stream_into_a_socket_and_back() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (socket, app) =
            tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        let relay = spawn_local(Relay::new(
            far,
            Socket::from(socket.unwrap()),
            Counters::default(),
        ));
        let mut app = app.unwrap().0;
        let sent = noise(3 << 20, 4);
        let expected = sent.clone();
        spawn_local(async move {
            let mut all = Vec::new();
            app.read_to_end(&mut all).await.unwrap();
            app.write_all(&all).await.unwrap();
        });
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.unwrap();
        assert!(got == expected);
        let outcome = relay.await.unwrap();
        assert_eq!((outcome.sent, outcome.received), (3 << 20, 3 << 20));
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
    })
    .await;
}

#[tokio::test]
async fn what_many_streams_say_at_once_is_flushed_once() {
    local(async {
        let (near, far) = duplex(1 << 20);
        let (near, flushes) = Flushes::new(near);
        let mut incoming = serve(far, Settings::server());
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        spawn_local(driver);
        let mut streams = Vec::new();
        for _ in 0..16 {
            streams.push(stream(&tunnel, &mut incoming).await);
        }
        let before = flushes.get();
        for (near, _) in &mut streams {
            near.write_all(&[7; 1024]).await.unwrap();
        }
        for (_, far) in &mut streams {
            far.read_exact(&mut [0; 1024]).await.unwrap();
        }
        let flushed = flushes.get() - before;
        assert!(
            (1..=2).contains(&flushed),
            "{flushed} flushes for 16 frames"
        );
    })
    .await;
}

#[test]
fn a_stream_is_small() {
    let size = size_of::<lateen_hbone::Stream>();
    assert!(size <= 128, "{size} bytes");
}

/// Applications that read nothing, clients that send until nobody takes more and give up with a reset: the window of
/// their tunnel comes back to those who use it.
#[tokio::test]
async fn resets_against_an_application_that_does_not_read_leave_the_tunnel_to_others() {
    local(async {
        const CLIENTS: usize = 20;
        let (tunnel, mut incoming) = tunnel(Settings::client(), Settings::server()).await;
        let mut relays = Vec::new();
        for _ in 0..CLIENTS {
            let (mut near, far) = stream(&tunnel, &mut incoming).await;
            relays.push(spawn_local(Relay::new(
                far,
                Busy::default(),
                Counters::default(),
            )));
            let block = vec![0; 64 * 1024];
            let quiet = Duration::from_millis(100);
            while let Ok(written) = tokio::time::timeout(quiet, near.write(&block)).await {
                written.unwrap();
            }
            near.abort();
        }
        for relay in relays {
            let outcome = tokio::time::timeout(Duration::from_secs(30), relay);
            let outcome = outcome.await.expect("nobody told the relay").unwrap();
            let error = outcome.error.expect("a reset").to_string();
            assert!(error.starts_with("downstream: "), "{error}");
        }
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        let sent = noise(1 << 20, 9);
        let mut got = vec![0; sent.len()];
        let (mut reader, mut writer) = tokio::io::split(&mut near);
        let talk = async { tokio::join!(writer.write_all(&sent), reader.read_exact(&mut got)) };
        let (wrote, read) = tokio::time::timeout(Duration::from_secs(30), talk)
            .await
            .expect("the tunnel's window is gone");
        wrote.unwrap();
        read.unwrap();
        assert!(got == sent);
    })
    .await;
}

#[tokio::test]
async fn a_reset_after_the_end_of_a_request_ends_the_wait_for_its_answer() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        let application = Busy::default();
        application.reads.set(true);
        let relay = spawn_local(Relay::new(far, application.clone(), Counters::default()));
        near.write_all(b"question").await.unwrap();
        near.shutdown().await.unwrap();
        while application.got.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(near);
        let outcome = tokio::time::timeout(Duration::from_secs(30), relay);
        let outcome = outcome.await.expect("the relay waits for nobody").unwrap();
        assert_eq!(outcome.sent, 8);
        assert!(outcome.error.is_some());
    })
    .await;
}

/// RFC 9113 §8.1: what a server does that has answered and reads no more.
#[tokio::test]
async fn a_peer_that_answers_and_wants_no_more_ends_its_direction_alone() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        let peer = spawn_local(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            let (request, mut respond) = server.accept().await.unwrap().unwrap();
            let mut answer = respond
                .send_response(http::Response::new(()), false)
                .unwrap();
            answer.send_data("answer".into(), true).unwrap();
            // What the library makes of it is a reset with NO_ERROR, behind the answer.
            drop((request, respond, answer));
            std::future::poll_fn(|cx| server.poll_closed(cx)).await
        });
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        let (stream, _) = tunnel.connect(&request()).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let (app, accepted) = tokio::join!(dialled, listener.accept());
        let socket = Socket::from(accepted.unwrap().0);
        let relay = spawn_local(Relay::new(socket, stream, Counters::default()));
        let mut app = app.unwrap();
        let mut got = String::new();
        app.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "answer");
        // Time for the reset to be taken for the end of both directions.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!relay.is_finished(), "{:?}", relay.await.unwrap().error);
        drop(app);
        let outcome = relay.await.unwrap();
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        driver.abort();
        peer.abort();
    })
    .await;
}
