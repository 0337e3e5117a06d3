use std::cell::Cell;
use std::rc::Rc;
use std::sync::LazyLock;

use lateen_exchange::{Protocol, server};
use lateen_executor::{Executor, Group};
use lateen_http::{Length, Status};
use lateen_types::Identity;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::*;
use crate::testing::soon;
use crate::waypoint::tests::head;

/// An account with room.
static ACCOUNT: LazyLock<Account> = LazyLock::new(|| Account::new(1 << 20));

fn http2() -> Config {
    Config::new(Protocol::Http2)
}

/// A connection that no timer ends.
fn patient() -> Config {
    Config {
        timeouts: None,
        ..http2()
    }
}

/// The same, for one request at a time.
fn patient_with_one() -> Config {
    let http2 = lateen_h2::Config {
        max_streams: 1,
        ..lateen_h2::Config::requests()
    };
    Config {
        http2: http2.share(),
        ..patient()
    }
}

async fn plain(address: SocketAddr) -> Result<Wire, UpstreamError> {
    Ok(Wire::Plain(TcpStream::connect(address).await.unwrap()))
}

/// Makes requests, one after the other, over a connection to `address` that others may use as well.
async fn ask(connections: Rc<SharedConnections>, address: SocketAddr, times: usize) {
    for _ in 0..times {
        let lease = connections
            .lease(address, &ACCOUNT, true, http2, || plain(address))
            .await;
        let lease = lease.unwrap_or_else(|error| panic!("{error}"));
        let request = lease.handle().request(&head("GET", "/", &[]), None);
        request.unwrap().answer().await.unwrap();
    }
}

#[test]
fn a_connection_takes_turns_of_no_client_that_uses_it() {
    assert!(!pays_for_others(SharedConnections::default()));
}

#[test]
fn a_connection_of_one_source_takes_its_turns() {
    let source = Identity::new("cluster.local", "default", "web").unwrap();
    assert!(pays_for_others(SharedConnections::of(Owner::Source(
        source
    ))));
}

/// Returns true if a client that opened a connection, and uses it no more, pays for the requests of another client.
fn pays_for_others(connections: SharedConnections) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let executor = Executor::default();
        let (first, second, serving) = (executor.group(), executor.group(), executor.group());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        serving.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = server::Connection::new(stream, http2());
            while let Ok(Some((_, exchange))) = connection.next().await {
                exchange.reply(Status::OK, &[], Length::Known(0)).unwrap();
                exchange.finish().unwrap();
            }
        });
        let connections = Rc::new(connections);
        let run = |group: &Group, times| {
            let (done, is_done) = oneshot::channel();
            let asking = ask(Rc::clone(&connections), address, times);
            group.spawn(async move {
                asking.await;
                let _ = done.send(());
            });
            is_done
        };
        let test = async {
            run(&first, 1).await.unwrap();
            // Tasks of the first request end meanwhile: until then it uses time.
            let (mut before, mut equal) = (first.used(), 0);
            while equal < 10 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let now = first.used();
                equal = if now == before { equal + 1 } else { 0 };
                before = now;
            }
            run(&second, 200).await.unwrap();
            first.used() != before
        };
        executor.run_until(soon("all answers", test)).await
    })
}

#[tokio::test]
async fn an_opening_that_no_request_waits_for_is_not_joined() {
    let connections = SharedConnections::default();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let never = std::future::pending::<Result<Wire, UpstreamError>>;
    let left = connections
        .lease(address, &ACCOUNT, true, http2, never)
        .now_or_never();
    assert!(left.is_none(), "it is opened");
    let own = move || async move { Err(UpstreamError::Full(address)) };
    let next = connections.lease(address, &ACCOUNT, true, http2, own);
    let error = soon("an opening of its own", next).await.err();
    assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
    // While a request waits for it, others do as well.
    let mut first = std::pin::pin!(connections.lease(address, &ACCOUNT, true, http2, never));
    assert!(first.as_mut().now_or_never().is_none());
    let joined = connections
        .lease(address, &ACCOUNT, true, http2, own)
        .now_or_never();
    assert!(joined.is_none());
}

#[tokio::test]
async fn a_request_whose_connection_others_fill_opens_another() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Its client makes one request at a time.
    let one = || Config {
        http2: lateen_h2::Config {
            max_streams: 1,
            ..lateen_h2::Config::requests()
        }
        .share(),
        ..http2()
    };
    let open = || plain(address);
    let test = async {
        let connections = SharedConnections::default();
        let mut opener = Box::pin(connections.lease(address, &ACCOUNT, true, one, open));
        let mut joiner = Box::pin(connections.lease(address, &ACCOUNT, true, one, open));
        assert!(opener.as_mut().now_or_never().is_none());
        assert!(joiner.as_mut().now_or_never().is_none());
        let joined = joiner.await.unwrap_or_else(|error| panic!("{error}"));
        let request = joined.handle().request(&head("GET", "/", &[]), None);
        let _open = request.unwrap();
        let own = opener.await.unwrap_or_else(|error| panic!("{error}"));
        assert!(own.handle().is_ready());
    };
    LocalSet::new()
        .run_until(soon("two connections", test))
        .await;
}

/// A connection in plain text, as it is kept.
fn opened(handle: Handle) -> Opened {
    Opened {
        handle,
        ends: None,
        tunnels: Tunnels::default(),
    }
}

/// A connection whose endpoint reads no content. The far end is returned as well.
fn unread(config: Config) -> (Opened, tokio::io::DuplexStream) {
    let (ours, far_end) = tokio::io::duplex(1 << 17);
    let (handle, driver) = client::open(ours, config);
    tokio::task::spawn_local(driver);
    let upload = head("POST", "/", &[("content-length", "70000")]);
    let exchange = handle.request(&upload, None).unwrap();
    tokio::task::spawn_local(async move {
        exchange.send(vec![7; 70_000].into()).await.unwrap();
        std::future::pending::<()>().await;
    });
    (opened(handle), far_end)
}

#[tokio::test(start_paused = true)]
async fn stalled_connections_are_left_until_there_are_many() {
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let openings = Rc::new(Cell::new(0));
    let none = || {
        openings.set(openings.get() + 1);
        async move { Err(UpstreamError::Timeout(address)) }
    };
    let test = async {
        let connections = SharedConnections::default();
        let mut far_ends = Vec::new();
        for number in 0..STALLED {
            // Another one is opened. Where that fails, a stalled one is used.
            let lease = connections
                .lease(address, &ACCOUNT, true, patient, none)
                .await;
            assert_eq!((lease.is_ok(), openings.get()), (number > 0, number + 1));
            let (opened, far_end) = unread(patient());
            connections.open.borrow_mut().push(opened);
            far_ends.push(far_end);
            assert!(
                connections
                    .lease(address, &ACCOUNT, true, patient, none)
                    .await
                    .is_ok()
            );
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
        assert!(
            connections
                .lease(address, &ACCOUNT, true, patient, none)
                .await
                .is_ok()
        );
        assert_eq!(openings.get(), STALLED);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_without_content_opens_nothing_beside_a_stalled_connection() {
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let never = std::future::pending::<Result<Wire, UpstreamError>>;
    let test = async {
        let connections = SharedConnections::default();
        let (opened, _far_end) = unread(patient());
        connections.open.borrow_mut().push(opened);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let mut upload = std::pin::pin!(connections.lease(address, &ACCOUNT, true, patient, never));
        assert!(upload.as_mut().now_or_never().is_none());
        // It does not wait for the opening of others either.
        let plain = connections.lease(address, &ACCOUNT, false, patient, never);
        let lease = plain.now_or_never();
        assert!(lease.is_some_and(|lease| lease.is_ok_and(|lease| lease.is_reused())));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn heads_that_an_endpoint_does_not_read_are_bounded_over_all_connections() {
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let none = || async move { Err(UpstreamError::Timeout(address)) };
    let value = "x".repeat(32_000);
    let large = head("GET", "/", &[("x-large", &value)]);
    // A connection is full by frames that wait, or earlier by an open request.
    for heads in [7, 100] {
        let connections = SharedConnections::default();
        let mut kept = Vec::new();
        let error = loop {
            let error = connections
                .lease(address, &ACCOUNT, true, patient_with_one, none)
                .await
                .err();
            if !matches!(error, Some(UpstreamError::Timeout(_))) {
                break error;
            }
            let (handle, driver) = client::open(tokio::io::duplex(64).0, patient_with_one());
            let mut last = None;
            for _ in 0..heads {
                // A drop resets the one before.
                drop(last.take());
                if !handle.is_ready() {
                    break;
                }
                last = Some(handle.request(&large, None).unwrap());
            }
            kept.push((driver, last));
            connections.open.borrow_mut().push(opened(handle));
        };
        assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
        // All of them hold some 6 MiB.
        assert!((16..40).contains(&kept.len()), "{}", kept.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_account_opens_no_connection_beside_many_heads_that_are_not_read() {
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let value = "X".repeat(20_000);
    let large = head("GET", "/", &[("x-large", &value)]);
    let test = async {
        for (heads, content, expected) in [(0, 0, 0), (1, 0, 1), (1, 200_000, 1), (4, 0, 0)] {
            let account = Account::new(1 << 20).within(16 << 10);
            let connections = SharedConnections::default();
            let (near, _far) = tokio::io::duplex(64);
            let (handle, driver) = client::open(near, patient());
            tokio::task::spawn_local(driver);
            let upload = head("POST", "/", &[("transfer-encoding", "chunked")]);
            let upload = handle.request(&upload, None).unwrap();
            upload.charge(&account);
            let sent = upload.send(vec![7; content].into());
            let _ = tokio::time::timeout(Duration::from_millis(1), sent).await;
            for _ in 0..heads {
                handle.request(&large, None).unwrap().charge(&account);
            }
            connections.open.borrow_mut().push(opened(handle));
            tokio::time::sleep(Duration::from_millis(1)).await;
            let openings = Cell::new(0);
            let none = || {
                openings.set(openings.get() + 1);
                async move { Err(UpstreamError::Timeout(address)) }
            };
            let lease = connections
                .lease(address, &account, true, patient, none)
                .await;
            match expected {
                // The attempt refuses the request.
                0 => assert!(lease.is_ok_and(|lease| lease.is_reused())),
                _ => assert!(matches!(lease.err(), Some(UpstreamError::Timeout(_)))),
            }
            assert_eq!(openings.get(), expected, "{heads} heads, {content} bytes");
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_account_opens_no_connection_while_its_namespace_leaves_many_heads_elsewhere() {
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let value = "X".repeat(20_000);
    let large = head("GET", "/", &[("x-large", &value)]);
    let test = async {
        // An eighth of the namespace's limit is 8 KiB, or 128.
        for (limit, opens) in [(64 << 10, false), (1 << 20, true)] {
            let namespace = Account::new(limit);
            let [filled, free] = [16 << 10, 1 << 20].map(|limit| namespace.within(limit));
            let (near, _far) = tokio::io::duplex(64);
            let (elsewhere, driver) = client::open(near, patient());
            tokio::task::spawn_local(driver);
            elsewhere.request(&large, None).unwrap().charge(&filled);
            tokio::time::sleep(Duration::from_millis(1)).await;
            for (account, opens) in [(&filled, opens), (&free, true)] {
                let connections = SharedConnections::default();
                let none = || async move { Err(UpstreamError::Timeout(address)) };
                let lease = connections.lease(address, account, true, patient, none);
                let error = lease.await.err();
                match opens {
                    true => assert!(matches!(error, Some(UpstreamError::Timeout(_)))),
                    false => assert!(matches!(error, Some(UpstreamError::Full(_)))),
                }
            }
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn the_number_of_connections_to_one_endpoint_is_bounded() {
    let connections = SharedConnections::default();
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let none = || async move { Err(UpstreamError::Timeout(address)) };
    let mut open = Vec::new();
    for _ in 0..MOST {
        let error = connections
            .lease(address, &ACCOUNT, true, patient_with_one, none)
            .await
            .err();
        assert!(matches!(error, Some(UpstreamError::Timeout(_))));
        let (handle, driver) = client::open(tokio::io::duplex(64).0, patient_with_one());
        let exchange = handle.request(&head("GET", "/", &[]), None).unwrap();
        connections.open.borrow_mut().push(opened(handle));
        open.push((driver, exchange));
    }
    let error = connections
        .lease(address, &ACCOUNT, true, patient_with_one, none)
        .await
        .err();
    assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
    let (_driver, exchange) = open.pop().unwrap();
    drop(exchange);
    assert!(
        connections
            .lease(address, &ACCOUNT, true, patient_with_one, none)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn connections_that_are_to_end_are_counted_while_their_frames_wait() {
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let none = || async move { Err(UpstreamError::Timeout(address)) };
    let value = "x".repeat(32_000);
    let large = head("GET", "/", &[("x-large", &value)]);
    let connections = SharedConnections::default();
    let mut kept = Vec::new();
    let error = loop {
        let error = connections
            .lease(address, &ACCOUNT, true, patient, none)
            .await
            .err();
        if !matches!(error, Some(UpstreamError::Timeout(_))) || kept.len() > MOST {
            break error;
        }
        let (near, mut far) = tokio::io::duplex(64);
        let (handle, mut driver) = client::open(near, patient());
        for _ in 0..7 {
            // A drop resets the request.
            let request = handle.request(&large, None);
            drop(request.unwrap());
        }
        // SETTINGS and GOAWAY.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        far.write_all(&settings).await.unwrap();
        let going = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0];
        far.write_all(&going).await.unwrap();
        assert!((&mut driver).now_or_never().is_none());
        assert!(handle.is_closed());
        kept.push((driver, far));
        connections.open.borrow_mut().push(opened(handle));
    };
    assert!(matches!(error, Some(UpstreamError::Full(_))), "{error:?}");
    assert!((16..40).contains(&kept.len()), "{}", kept.len());
    // Connections that have ended do not count.
    drop(kept);
    connections.tidy();
    assert!(connections.is_empty());
}
