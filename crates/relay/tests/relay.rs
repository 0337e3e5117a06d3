//! Real TCP connections on both sides of a relay: app ⇄ (near, far) ⇄ server.

mod support;

use std::future::Future;
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lateen_relay::{Counters, Duplex, Limits, Outcome, Relay, RelayError, Side, Socket, run};
use support::noise;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Two ends of one TCP connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (near, far) = (near.unwrap(), far.unwrap().0);
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// Runs `talk` with an application and a server that a relay joins; gives what it gave and how the relay ended.
async fn relayed<T, F>(talk: impl FnOnce(TcpStream, TcpStream, Rc<Counters>) -> F) -> (T, Outcome)
where
    F: Future<Output = T>,
{
    let (app, near) = pair().await;
    let (far, server) = pair().await;
    let counters = Rc::new(Counters::default());
    let both = async {
        tokio::join!(
            talk(app, server, counters.clone()),
            run(Socket::from(near), Socket::from(far), counters.clone())
        )
    };
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("the relay hangs")
}

/// A server without TCP_NODELAY that writes head and body apart: its kernel keeps the body back until the head is
/// acknowledged, which the relay's would delay by 40 ms each time.
#[tokio::test]
async fn a_server_that_writes_in_pieces_waits_for_no_delayed_acknowledgement() {
    const REQUESTS: usize = 60;
    let (mut times, _) = relayed(|mut app, mut server, _| async move {
        server.set_nodelay(false).unwrap();
        let serve = async {
            let mut request = [0; 8];
            for _ in 0..REQUESTS {
                server.read_exact(&mut request).await.unwrap();
                server.write_all(&[1; 180]).await.unwrap();
                server.write_all(&[2; 178]).await.unwrap();
            }
        };
        let ask = async {
            let mut times = Vec::new();
            let mut reply = [0; 358];
            for _ in 0..REQUESTS {
                let start = std::time::Instant::now();
                app.write_all(b"question").await.unwrap();
                app.read_exact(&mut reply).await.unwrap();
                times.push(start.elapsed());
            }
            times
        };
        tokio::join!(serve, ask).1
    })
    .await;
    // A new connection is acknowledged at once for a while; the stall comes after that, twice until it is known for one.
    let late = &mut times[REQUESTS / 2..];
    late.sort();
    assert!(
        late[late.len() / 2] < Duration::from_millis(30),
        "half of the later requests took {:?}",
        late[late.len() / 2]
    );
}

#[tokio::test]
async fn a_request_and_its_reply_pass_and_are_counted_while_they_do() {
    let (_, outcome) = relayed(|mut app, mut server, counters| async move {
        app.write_all(b"question").await.unwrap();
        let mut got = [0; 8];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"question");
        // Counted before the connection ends.
        assert_eq!((counters.sent(), counters.received()), (8, 0));
        server.write_all(b"reply").await.unwrap();
        let mut got = [0; 5];
        app.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"reply");
        assert_eq!((counters.sent(), counters.received()), (8, 5));
    })
    .await;
    assert_eq!((outcome.sent, outcome.received), (8, 5));
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[tokio::test]
async fn an_end_of_the_request_leaves_the_reply_alone() {
    let reply = noise(300_000, 1);
    let expected = reply.clone();
    let (got, outcome) = relayed(|mut app, mut server, _| async move {
        app.write_all(b"all of it").await.unwrap();
        app.shutdown().await.unwrap();
        let mut request = Vec::new();
        server.read_to_end(&mut request).await.unwrap();
        assert_eq!(request, b"all of it");
        let serve = async move {
            server.write_all(&reply).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (read, ()) = tokio::join!(app.read_to_end(&mut got), serve);
        read.unwrap();
        got
    })
    .await;
    assert!(got == expected);
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[tokio::test]
async fn an_end_of_the_reply_leaves_the_request_alone() {
    let (got, outcome) = relayed(|mut app, mut server, _| async move {
        server.write_all(b"go on").await.unwrap();
        server.shutdown().await.unwrap();
        let mut banner = Vec::new();
        app.read_to_end(&mut banner).await.unwrap();
        assert_eq!(banner, b"go on");
        app.write_all(b"I do").await.unwrap();
        app.shutdown().await.unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        got
    })
    .await;
    assert_eq!(got, b"I do");
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[tokio::test]
async fn megabytes_cross_in_both_directions_at_once() {
    let (up, down) = (noise(10 << 20, 2), noise(10 << 20, 3));
    let expected = (up.clone(), down.clone());
    let (got, outcome) = relayed(|app, server, _| async move {
        let (mut app_in, mut app_out) = app.into_split();
        let (mut server_in, mut server_out) = server.into_split();
        let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
        let send_up = async move {
            app_out.write_all(&up).await.unwrap();
            app_out.shutdown().await.unwrap();
        };
        let send_down = async move {
            server_out.write_all(&down).await.unwrap();
            server_out.shutdown().await.unwrap();
        };
        let (_, _, a, b) = tokio::join!(
            send_up,
            send_down,
            server_in.read_to_end(&mut got_up),
            app_in.read_to_end(&mut got_down)
        );
        a.unwrap();
        b.unwrap();
        (got_up, got_down)
    })
    .await;
    assert!(got == expected, "bytes were changed on the way");
    assert_eq!((outcome.sent, outcome.received), (10 << 20, 10 << 20));
}

#[tokio::test]
async fn a_reset_of_the_application_resets_the_server() {
    let (error, outcome) = relayed(|mut app, mut server, _| async move {
        app.write_all(b"x").await.unwrap();
        let mut got = [0; 1];
        server.read_exact(&mut got).await.unwrap();
        socket2::SockRef::from(&app)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(app);
        server
            .read(&mut got)
            .await
            .expect_err("the reset became an end")
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = outcome.error.expect("the reset is told");
    assert!(error.to_string().starts_with("downstream: "), "{error}");
    match error {
        RelayError::Broken { side, source } => assert_eq!(
            (side, source.kind()),
            (Side::First, ErrorKind::ConnectionReset)
        ),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_reset_of_the_server_resets_the_application() {
    let (error, outcome) = relayed(|mut app, server, _| async move {
        socket2::SockRef::from(&server)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(server);
        let mut got = [0; 1];
        app.read(&mut got)
            .await
            .expect_err("the reset became an end")
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(matches!(
        outcome.error,
        Some(RelayError::Broken {
            side: Side::Second,
            ..
        })
    ));
}

#[tokio::test]
async fn a_receiver_that_does_not_read_stops_the_sender() {
    let (accepted, _) = relayed(|mut app, server, _| async move {
        let block = vec![0; 1 << 20];
        let mut accepted = 0;
        // Until nothing was taken for half a second.
        while let Ok(n) = tokio::time::timeout(Duration::from_millis(500), app.write(&block)).await
        {
            accepted += n.unwrap();
            assert!(accepted < 1 << 30, "the relay buffers without bound");
        }
        drop(server);
        accepted
    })
    .await;
    assert!(accepted > 0);
}

/// A relay under limits in milliseconds, with its two peers.
async fn limited(
    idle: u64,
    half_closed: u64,
) -> (TcpStream, TcpStream, Relay<Socket, Socket, Counters>) {
    let (app, near) = pair().await;
    let (far, server) = pair().await;
    let limit = |millis| Some(Duration::from_millis(millis));
    let relay = Relay::new(Socket::from(near), Socket::from(far), Counters::default())
        .limited(Limits::new(limit(idle), limit(half_closed)));
    (app, server, relay)
}

async fn settled(relay: Relay<Socket, Socket, Counters>) -> Outcome {
    tokio::time::timeout(Duration::from_secs(30), relay)
        .await
        .expect("the relay stands still for good")
}

async fn expect_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 1]).await.expect_err("an orderly end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_idle_relay_is_reset_on_both_sides_and_says_why() {
    let (mut app, mut server, relay) = limited(40, 0).await;
    let outcome = settled(relay).await;
    let error = outcome.error.expect("a reason");
    assert!(matches!(error, RelayError::Idle { limit } if limit.as_millis() == 40));
    assert!(error.to_string().starts_with("idle time-out: "), "{error}");
    expect_reset(&mut app).await;
    expect_reset(&mut server).await;
}

/// Bytes that pass the relay by: more each time that somebody asks, for a while.
struct Beside(std::cell::Cell<u64>);

impl lateen_relay::Meter for Beside {
    fn sent(&self, _: u64) {}

    fn received(&self, _: u64) {}

    fn beside(&self) -> u64 {
        self.0.set((self.0.get() + 1).min(20));
        self.0.get()
    }
}

#[tokio::test]
async fn bytes_beside_a_relay_keep_it_alive_as_long_as_they_come() {
    let ((_app, near), (far, _server)) = (pair().await, pair().await);
    let limits = Limits::new(Some(Duration::from_millis(40)), None);
    let meter = Rc::new(Beside(Default::default()));
    let relay = Relay::new(Socket::from(near), Socket::from(far), Rc::clone(&meter));
    assert!(relay.clear().is_some(), "nothing is under way");
    let outcome = tokio::time::timeout(Duration::from_secs(30), relay.limited(limits)).await;
    let outcome = outcome.expect("the relay stands still for good");
    assert!(matches!(outcome.error, Some(RelayError::Idle { .. })));
    assert_eq!(meter.0.get(), 20, "not before the last of them");
}

#[tokio::test]
async fn bytes_in_one_direction_keep_a_relay_alive() {
    // Longer than a busy machine stops a process.
    let (mut app, mut server, relay) = limited(5000, 5000).await;
    let talk = async {
        // Longer than the limit, in bytes that come much more often.
        for _ in 0..700 {
            server.write_all(b"x").await.unwrap();
            let mut got = [0; 1];
            app.read_exact(&mut got).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(server);
        drop(app);
    };
    let (outcome, ()) = tokio::join!(relay, talk);
    assert_eq!(outcome.received, 700);
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[tokio::test]
async fn a_direction_that_never_ends_is_given_up_after_the_other_one_has() {
    for first in [true, false] {
        let (mut app, mut server, relay) = limited(0, 40).await;
        let ended = if first {
            app.shutdown().await.unwrap();
            Side::First
        } else {
            server.shutdown().await.unwrap();
            Side::Second
        };
        let error = settled(relay).await.error.expect("a reason");
        match error {
            RelayError::HalfClosed { ended: side, .. } => assert_eq!(side, ended),
            other => panic!("{other}"),
        }
        let open = if first { &mut server } else { &mut app };
        let mut rest = Vec::new();
        // The end that was passed on comes first.
        let _ = open.read_to_end(&mut rest).await;
        expect_closed(open).await;
    }
}

/// Whatever is written to a connection that was reset fails sooner or later.
async fn expect_closed(stream: &mut TcpStream) {
    let all = async { while stream.write_all(b"x").await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .expect("the connection is still open");
}

#[tokio::test]
async fn without_limits_and_before_one_direction_ends_nothing_is_given_up() {
    let (app, server, relay) = limited(0, 20).await;
    let waited = tokio::time::timeout(Duration::from_millis(200), relay).await;
    assert!(waited.is_err(), "{waited:?}");
    drop((app, server));
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_given_up_like_one_that_is_silent() {
    let (mut app, server, relay) = limited(200, 0).await;
    let flood = async move {
        let block = vec![0; 1 << 20];
        while app.write_all(&block).await.is_ok() {}
    };
    let both = async { tokio::join!(relay, flood) };
    let (outcome, ()) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("a stalled relay lives on");
    assert!(matches!(outcome.error, Some(RelayError::Idle { .. })));
    drop(server);
}

#[tokio::test]
async fn an_aborted_relay_resets_both_sides() {
    let (mut app, near) = pair().await;
    let (far, mut server) = pair().await;
    let mut relay = Relay::new(Socket::from(near), Socket::from(far), Counters::default());
    relay.abort();
    assert!((&mut relay).await.error.is_none());
    drop(relay);
    for stream in [&mut app, &mut server] {
        let error = stream.read(&mut [0; 1]).await.expect_err("an orderly end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

/// Writes until nothing is taken for a while: everything between here and who does not read is full.
async fn fill(stream: &mut TcpStream) -> usize {
    let (block, mut accepted) = (vec![7; 1 << 16], 0);
    while let Ok(written) =
        tokio::time::timeout(Duration::from_millis(300), stream.write(&block)).await
    {
        accepted += written.unwrap();
    }
    accepted
}

fn reset(stream: TcpStream) {
    lateen_relay::reset_on_close(&stream);
}

/// Reads to the reset that must come; gives what came before it.
async fn read_to_reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    let error = stream
        .read_to_end(&mut got)
        .await
        .expect_err("the reset became an end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    got
}

fn broken(outcome: &Outcome) -> Side {
    match &outcome.error {
        Some(RelayError::Broken { side, .. }) => *side,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reset_behind_bytes_that_nobody_takes_is_passed_on() {
    for first in [true, false] {
        let (server, outcome) = relayed(|app, server, _| async move {
            let (mut writer, silent) = if first { (app, server) } else { (server, app) };
            fill(&mut writer).await;
            reset(writer);
            silent
        })
        .await;
        let from = if first { Side::First } else { Side::Second };
        assert_eq!(broken(&outcome), from);
        // Not an end: what came is not all.
        let mut server = server;
        read_to_reset(&mut server).await;
    }
}

#[tokio::test]
async fn a_reset_is_passed_on_while_neither_side_reads() {
    let (_, outcome) = relayed(|mut app, mut server, _| async move {
        tokio::join!(fill(&mut app), fill(&mut server));
        reset(app);
        server
    })
    .await;
    assert_eq!(broken(&outcome), Side::First);
}

#[tokio::test]
async fn bytes_before_a_reset_reach_a_server_that_reads() {
    let (_, outcome) = relayed(|mut app, mut server, _| async move {
        fill(&mut app).await;
        reset(app);
        tokio::time::sleep(Duration::from_millis(300)).await;
        // More than the pipe beyond the relay holds: the relay moved on.
        let mut got = Vec::new();
        let error = server
            .read_to_end(&mut got)
            .await
            .expect_err("the reset became an end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(!got.is_empty());
    })
    .await;
    assert_eq!(broken(&outcome), Side::First);
}

#[tokio::test]
async fn what_came_before_an_end_waits_for_its_reader_for_as_long_as_it_takes() {
    let (_, outcome) = relayed(|mut app, mut server, _| async move {
        let sent = fill(&mut app).await;
        // Both directions: there is nobody any more who could be waited for.
        drop(app);
        tokio::time::sleep(Socket::GRACE + Duration::from_secs(2)).await;
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len(), sent);
    })
    .await;
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[tokio::test]
async fn what_came_before_an_end_outlives_a_reset() {
    const SENT: usize = 96 * 1024;
    let (mut app, near) = pair().await;
    let (far, mut server) = pair().await;
    // All of it fits into the near socket, the end included, and not beyond the relay.
    socket2::SockRef::from(&far)
        .set_send_buffer_size(8192)
        .unwrap();
    socket2::SockRef::from(&server)
        .set_recv_buffer_size(8192)
        .unwrap();
    let talk = async move {
        app.write_all(&noise(SENT, 5)).await.unwrap();
        app.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        reset(app);
        // Longer than the bytes of a lost peer may wait.
        tokio::time::sleep(Socket::GRACE + Duration::from_secs(2)).await;
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert!(got == noise(SENT, 5));
    };
    let relay = run(Socket::from(near), Socket::from(far), Counters::default());
    let both = async { tokio::join!(relay, talk) };
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("the relay hangs");
}

#[tokio::test]
async fn a_reset_that_an_upload_meets_first_is_no_end_of_the_answer() {
    for _ in 0..5 {
        let (got, outcome) = relayed(|app, mut server, _| async move {
            let (mut reader, mut writer) = app.into_split();
            let upload = tokio::spawn(async move {
                let block = vec![1; 1 << 16];
                while writer.write_all(&block).await.is_ok() {}
                writer.forget();
            });
            server.read_exact(&mut [0; 1024]).await.unwrap();
            server.write_all(b"half of an ans").await.unwrap();
            let mut got = vec![0; 14];
            reader.read_exact(&mut got).await.unwrap();
            // The upload fills what lies between.
            tokio::time::sleep(Duration::from_millis(300)).await;
            reset(server);
            let error = reader
                .read_to_end(&mut got)
                .await
                .expect_err("half an answer passes for a whole one");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            upload.await.unwrap();
            got
        })
        .await;
        assert_eq!(got, b"half of an ans");
        assert_eq!(broken(&outcome), Side::Second);
    }
}

#[tokio::test]
async fn a_client_that_is_gone_after_its_end_is_not_waited_for() {
    let (_, outcome) = relayed(|mut app, mut server, _| async move {
        app.write_all(b"question").await.unwrap();
        app.shutdown().await.unwrap();
        let mut question = Vec::new();
        server.read_to_end(&mut question).await.unwrap();
        reset(app);
        // It computes for ever.
        server
    })
    .await;
    assert_eq!(broken(&outcome), Side::First);
}

/// Counts how often a relay is polled.
struct Polls<F>(F, Rc<std::cell::Cell<usize>>);

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = F::Output;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.set(self.1.get() + 1);
        std::pin::Pin::new(&mut self.0).poll(cx)
    }
}

#[tokio::test]
async fn a_relay_that_waits_sleeps() {
    let (mut app, near) = pair().await;
    let (far, server) = pair().await;
    let polls = Rc::default();
    let relay = Relay::new(Socket::from(near), Socket::from(far), Counters::default());
    let relay = Polls(relay, Rc::clone(&polls));
    let talk = async {
        fill(&mut app).await;
        for _ in 0..3 {
            let before = polls.get();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let more = polls.get() - before;
            assert!(more < 50, "polled {more} times while nothing happened");
            // The next round: an end that nobody reads; then a reset behind it.
            app.shutdown().await.unwrap();
        }
        reset(app);
        let before = polls.get();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(polls.get() - before < 50);
    };
    tokio::select! {
        outcome = relay => panic!("{outcome:?}"),
        () = talk => {}
    }
    drop(server);
}

/// One side of a relay whose kernel tells each error once. It is never woken.
struct Scripted {
    chunk: Option<bytes::Bytes>,
    /// What a write fails with; without one nothing is taken.
    error: Option<ErrorKind>,
    aborted: Rc<std::cell::Cell<bool>>,
}

impl Duplex for Scripted {
    const QUEUES: bool = true;
    const GRACE: Duration = Duration::from_millis(50);

    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        _: &mut lateen_relay::ReadSize,
        _: bool,
        take: impl FnOnce(&mut Context<'_>, lateen_relay::Chunk<'_>) -> T,
    ) -> Poll<std::io::Result<T>> {
        match self.chunk.take() {
            Some(bytes) => Poll::Ready(Ok(take(cx, lateen_relay::Chunk::Owned(bytes)))),
            None => Poll::Pending,
        }
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        _: &mut bytes::Bytes,
    ) -> Poll<std::io::Result<()>> {
        match self.error.take() {
            Some(error) => Poll::Ready(Err(error.into())),
            None => Poll::Pending,
        }
    }

    fn poll_write_borrowed(
        &mut self,
        _: &mut Context<'_>,
        _: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        unreachable!("chunks are owned")
    }

    fn hold(&mut self, _: &mut Context<'_>) -> Poll<std::io::Error> {
        Poll::Pending
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<std::io::Error> {
        Poll::Pending
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn abort(&mut self) {
        self.aborted.set(true);
    }
}

#[tokio::test]
async fn a_reset_that_a_write_meets_ends_a_stalled_direction_in_the_same_turn() {
    for first in [true, false] {
        let aborted = Rc::default();
        let side = |error| Scripted {
            chunk: Some(bytes::Bytes::from_static(b"x")),
            error,
            aborted: Rc::clone(&aborted),
        };
        let (lost, stalled) = (side(Some(ErrorKind::ConnectionReset)), side(None));
        let (a, b) = if first {
            (lost, stalled)
        } else {
            (stalled, lost)
        };
        let relay = run(a, b, Counters::default());
        let outcome = tokio::time::timeout(Duration::from_secs(30), relay)
            .await
            .expect("nobody looks at it again");
        let from = if first { Side::First } else { Side::Second };
        assert_eq!(broken(&outcome), from);
        assert!(aborted.get());
    }
}
