//! The bytes of one tunnel: whole, in both directions, and how each ends.

mod common;

use std::io::{ErrorKind, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use common::{Busy, Flushes, echo, local, noise, request, serve, settings, stream, tunnel};
use lateen_hbone::{Settings, client};
use lateen_relay::{Counters, Duplex, Relay, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

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
async fn pieces_of_one_write_are_one_payload() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        let pieces = ["a head", "", "content"].map(|piece| IoSlice::new(piece.as_bytes()));
        assert_eq!(near.write_vectored(&pieces).await.unwrap(), 13);
        let mut got = [0; 64];
        assert_eq!(far.read(&mut got).await.unwrap(), 13);
        assert_eq!(&got[..13], b"a headcontent");
        // As much as there is room for is taken, and the rest of it later.
        let block = noise(4 << 20, 3);
        let (half, rest) = block.split_at(1 << 20);
        let pieces = [half, rest].map(IoSlice::new);
        let taken = near.write_vectored(&pieces).await.unwrap();
        assert!(taken > 0 && taken < block.len(), "{taken}");
        let mut got = vec![0; taken];
        far.read_exact(&mut got).await.unwrap();
        assert!(got == block[..taken]);
    })
    .await;
}

#[tokio::test]
async fn an_abort_is_a_reset_and_so_is_a_drop_before_the_end() {
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

        // What was sent before counts, and is not taken for all.
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        far.write_all(b"part").await.unwrap();
        let mut got = [0; 4];
        near.read_exact(&mut got).await.unwrap();
        drop(far);
        let error = near
            .read(&mut got)
            .await
            .expect_err("a part was taken for all");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        // Other proxies cancel streams that they are done with.
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        far.write_all(b"all").await.unwrap();
        far.shutdown().await.unwrap();
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
async fn a_relay_carries_what_the_reader_before_it_had_no_room_for() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        let sent = noise(5000, 6);
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        let mut first = [0; 64];
        far.read_exact(&mut first).await.unwrap();
        let application = Busy::default();
        application.reads.set(true);
        let got = Rc::clone(&application.got);
        spawn_local(Relay::new(far, application, Counters::default()));
        let comes = async {
            while got.borrow().len() < sent.len() - first.len() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let came = tokio::time::timeout(Duration::from_secs(10), comes).await;
        came.expect("bytes were lost");
        assert!([&first[..], &got.borrow()].concat() == sent);
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
