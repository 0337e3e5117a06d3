//! Memory accounts: what the connections of a peer hold, whether it does not read or is not read. Time is virtual: a sleep ends when
//! nothing else moves.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::{
    Exchanges, KIB, PIPE, answer, charged, content, head, keep, pattern, rest, virtually,
};
use lateen_exchange::{Account, BUFFER, Config, ConnectionError, Error, Protocol, client, server};
use lateen_h2::Code;
use lateen_http::{Length, Method, Status};
use tokio::io::duplex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// Sends a request with content, and returns the status of its answer.
fn upload(handle: &client::Handle, bytes: usize) -> JoinHandle<Result<Status, Error>> {
    let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
    let handle = handle.clone();
    spawn_local(async move {
        let exchange = handle.request(&chunked, None)?;
        exchange.send(pattern(bytes)).await?;
        exchange.finish()?;
        Ok(answer(&exchange).await?.status())
    })
}

/// Reads each request to its end and answers it, until `number` of them are over. Returns the number of those that came whole.
async fn read(exchanges: &Exchanges, number: usize) -> usize {
    let (over, whole) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    while over.get() < number {
        for exchange in exchanges.take() {
            let (over, whole) = (Rc::clone(&over), Rc::clone(&whole));
            spawn_local(async move {
                if content(&exchange).await.is_ok() {
                    exchange
                        .reply(Status::OK, &[], Length::Known(0))
                        .expect("it is open");
                    exchange.finish().expect("it is open");
                    whole.set(whole.get() + 1);
                }
                over.set(over.get() + 1);
            });
        }
        rest().await;
    }
    whole.get()
}

#[test]
fn clients_of_http1_wait_for_room_and_lose_nothing() {
    virtually(async {
        let account = Account::new(256 * KIB);
        let exchanges = Exchanges::default();
        let mut uploads = Vec::new();
        for _ in 0..8 {
            let (handle, server) = charged(Protocol::Http1, Some(&account));
            keep(server, &exchanges);
            uploads.push(upload(&handle, 512 * KIB));
        }
        rest().await;
        assert!(account.held() >= 64 * KIB, "{}", account.held());
        // One read may go beyond.
        assert!(
            account.held() <= 128 * KIB + 2 * BUFFER,
            "{}",
            account.held()
        );
        assert_eq!(read(&exchanges, 8).await, 8);
        for upload in uploads {
            let status = upload.await.expect("no panic").expect("it was answered");
            assert_eq!(status, Status::OK);
        }
        rest().await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn streams_of_http2_that_nobody_reads_wait_for_windows_and_lose_nothing() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let exchanges = Exchanges::default();
        let (handle, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let uploads: Vec<_> = (0..40).map(|_| upload(&handle, 128 * KIB)).collect();
        rest().await;
        assert!(account.held() >= 64 * KIB, "{}", account.held());
        assert!(account.held() <= 512 * KIB, "{}", account.held());
        assert_eq!(read(&exchanges, 40).await, 40);
        for upload in uploads {
            let status = upload.await.expect("no panic").expect("it was answered");
            assert_eq!(status, Status::OK);
        }
        drop(handle);
        rest().await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn beyond_the_limit_requests_of_http2_end_and_new_ones_are_refused() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let exchanges = Exchanges::default();
        let mut uploads = Vec::new();
        for _ in 0..40 {
            let (handle, server) = charged(Protocol::Http2, Some(&account));
            keep(server, &exchanges);
            uploads.push(upload(&handle, 60 * KIB));
        }
        rest().await;
        assert!(account.held() <= account.limit(), "{}", account.held());
        assert!(account.held() >= account.limit() - 64 * KIB);
        let (late, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let filler = upload(&late, 63 * KIB);
        rest().await;
        let ended = filler.await.expect("no panic").expect_err("it has no room");
        assert!(
            matches!(
                ended,
                Error::Reset(Code::ENHANCE_YOUR_CALM | Code::REFUSED_STREAM)
            ),
            "{ended}"
        );
        let mut lost = 0;
        let came = exchanges.borrow().len();
        let whole = read(&exchanges, came).await;
        for upload in uploads {
            match upload.await.expect("no panic") {
                Ok(status) => assert_eq!(status, Status::OK),
                Err(Error::Reset(Code::ENHANCE_YOUR_CALM | Code::REFUSED_STREAM)) => lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(lost > 0 && whole + lost == 40, "{whole} {lost}");
        rest().await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn large_heads_count_for_as_long_as_their_requests_are_open() {
    virtually(async {
        let account = Account::new(256 * KIB);
        let exchanges = Exchanges::default();
        let (handle, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let value = "v".repeat(30 * KIB);
        let large = head("GET", "/", &[("x-large", &value)]);
        let requests: Vec<_> = (0..20)
            .map(|_| handle.request(&large, None).expect("it is ready"))
            .collect();
        rest().await;
        assert!(account.held() <= account.limit(), "{}", account.held());
        let open = exchanges.borrow().len();
        assert!((6..=8).contains(&open), "{open}");
        let refused = requests.last().expect("there are some");
        let error = answer(refused).await.expect_err("it has no room");
        assert!(error.is_unprocessed(), "{error}");
        exchanges.take();
        drop(requests);
        rest().await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn open_requests_of_http2_are_bounded_though_they_hold_no_bytes() {
    virtually(async {
        let account = Account::new(64 * KIB);
        let exchanges = Exchanges::default();
        let (handle, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let small = head("GET", "/", &[]);
        let upload = head("POST", "/", &[("content-length", "3072")]);
        let sending = handle.request(&upload, None).expect("it is ready");
        let more: Vec<_> = (0..99)
            .map(|_| handle.request(&small, None).expect("it is ready"))
            .collect();
        rest().await;
        assert_eq!(exchanges.borrow().len(), 1 + 32);
        let refused = more.last().expect("there are some");
        let error = answer(refused).await.expect_err("it has no room");
        assert!(error.is_unprocessed(), "{error}");

        // They take no room from content, and none from HTTP/1.
        assert_eq!(account.held(), 0);
        sending.send(vec![0; 3 * KIB].into()).await.expect("room");
        rest().await;
        let receiving = exchanges.borrow_mut().remove(0);
        let content = receiving.data().await;
        exchanges.borrow_mut().insert(0, receiving);
        assert_eq!(
            content.expect("no fault").map(|piece| piece.len()),
            Some(3 * KIB)
        );
        let (other, server) = charged(Protocol::Http1, Some(&account));
        let others = Exchanges::default();
        keep(server, &others);
        let _asked = other.request(&small, None).expect("it is ready");
        rest().await;
        assert_eq!(others.borrow().len(), 1);

        // Further ones wait for one that ends, and no longer.
        drop(exchanges.borrow_mut().pop());
        rest().await;
        let late = handle.request(&small, None).expect("it is ready");
        rest().await;
        assert_eq!(exchanges.borrow().len(), 1 + 32);
        drop((handle, sending, more, late));
        exchanges.take();
        rest().await;
        let (handle, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let _again: Vec<_> = (0..33)
            .map(|_| handle.request(&small, None).expect("it is ready"))
            .collect();
        rest().await;
        assert_eq!(exchanges.borrow().len(), 1 + 32);
    });
}

/// A proxy of one request after the other: it asks the upstream in the name of an account, and passes the answer on.
async fn forward(
    exchange: server::Exchange,
    upstream: client::Handle,
    account: Account,
) -> Result<(), Error> {
    let above = upstream.request(&head("GET", "/", &[]), None)?;
    above.charge(&account);
    answer(&above).await?;
    exchange.reply(Status::OK, &[], Length::Delimited)?;
    while let Some(bytes) = above.data().await? {
        exchange.send(bytes).await?;
    }
    exchange.finish()
}

/// A server whose answers are long.
fn generous(protocol: Protocol) -> client::Handle {
    let (handle, server) = charged(protocol, None);
    common::serve(server, |_, exchange| async move {
        exchange.reply(Status::OK, &[], Length::Delimited)?;
        for _ in 0..64 {
            exchange.send(Bytes::from(vec![7; 16 * KIB])).await?;
        }
        exchange.finish()
    });
    handle
}

#[test]
fn a_client_that_reads_nothing_holds_no_more_than_its_account() {
    for (below, above) in [
        (Protocol::Http2, Protocol::Http2),
        (Protocol::Http2, Protocol::Http1),
        (Protocol::Http1, Protocol::Http2),
        (Protocol::Http1, Protocol::Http1),
    ] {
        virtually(async {
            let account = Account::new(1024 * KIB);
            let most = Rc::new(Cell::new(0));
            let mut clients = Vec::new();
            for _ in 0..10 {
                let (handle, mut server) = charged(below, Some(&account));
                let (account, most) = (account.clone(), Rc::clone(&most));
                // HTTP/1 carries one request on each connection.
                let shared = (above == Protocol::Http2).then(|| generous(above));
                spawn_local(async move {
                    while let Ok(Some((_, exchange))) = server.next().await {
                        most.set(account.held().max(most.get()));
                        let upstream = shared.clone().unwrap_or_else(|| generous(above));
                        spawn_local(forward(exchange, upstream, account.clone()));
                    }
                });
                let number = if below == Protocol::Http2 { 20 } else { 1 };
                let requests: Vec<_> = (0..number)
                    .map(|_| handle.request(&head("GET", "/", &[]), None))
                    .collect();
                clients.push((handle, requests));
            }
            for _ in 0..5 {
                rest().await;
                let held = account.held();
                assert!(held >= 64 * KIB, "{below:?} {above:?} {held}");
                // A read may go beyond, and so may the piece that is on its way at each of ten connections.
                assert!(held <= 1024 * KIB + 256 * KIB, "{below:?} {above:?} {held}");
            }
            assert!(most.get() <= 1024 * KIB + 256 * KIB);
            drop(clients);
            rest().await;
            assert_eq!(account.held(), 0, "{below:?} {above:?}");
        });
    }
}

#[test]
fn a_piece_of_content_is_charged_until_its_reader_asks_for_more() {
    for protocol in common::PROTOCOLS {
        virtually(async {
            let account = Account::new(1024 * KIB);
            let (upstream, server) = charged(protocol, None);
            common::serve(server, |_, exchange| async move {
                exchange.reply(Status::OK, &[], Length::Known(16 * 1024))?;
                exchange.send(pattern(16 * KIB)).await?;
                exchange.finish()
            });
            let above = upstream.request(&head("GET", "/", &[]), None);
            let above = above.expect("it is ready");
            above.charge(&account);
            let exchanges = Exchanges::default();
            let (handle, server) = charged(protocol, Some(&account));
            keep(server, &exchanges);
            drop(upload(&handle, 16 * KIB));
            answer(&above).await.expect("an answer");
            rest().await;
            let below = exchanges.take().pop().expect("a request");
            for (what, stream) in [("an answer", &*above), ("a request", &*below)] {
                let before = account.held();
                let piece = stream.data().await.expect("no fault").expect("content");
                rest().await;
                let context = format!("{what} over {protocol:?}");
                assert!(piece.len() > 8 * KIB, "{context}: {}", piece.len());
                assert_eq!(account.held(), before, "{context}");
                content(stream).await.expect("all of it");
                assert!(account.held() + piece.len() <= before, "{context}");
            }
            assert_eq!(account.held(), 0, "{protocol:?}");
        });
    }
}

#[test]
fn room_that_a_passed_on_piece_leaves_is_used_at_once() {
    virtually(async {
        let account = Account::new(1026 * KIB);
        let exchanges = Exchanges::default();
        let (filler, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let mut requests = Vec::new();
        for length in [30 * KIB, 5 * KIB] {
            let value = "v".repeat(length);
            for _ in 0..40 {
                let request = filler.request(&head("GET", "/", &[("x-large", &value)]), None);
                requests.push(request.expect("it is ready"));
                rest().await;
            }
        }
        let free = account.limit() - account.held();
        assert!((1..=8 * KIB).contains(&free), "{free}");
        let (upstream, server) = charged(Protocol::Http1, None);
        common::serve(server, |_, exchange| async move {
            exchange.reply(Status::OK, &[], Length::Delimited)?;
            // Each piece fills the account. It is too little to wake all that wait for room.
            for _ in 0..8 {
                exchange.send(pattern(12 * KIB)).await?;
                rest().await;
            }
            exchange.finish()
        });
        let above = upstream.request(&head("GET", "/", &[]), None);
        let above = above.expect("it is ready");
        above.charge(&account);
        let start = tokio::time::Instant::now();
        answer(&above).await.expect("an answer");
        assert_eq!(
            content(&above).await.expect("all of it").len(),
            8 * 12 * KIB
        );
        assert!(
            start.elapsed() < Duration::from_secs(8),
            "it waits for a timer"
        );
    });
}

#[test]
fn a_client_that_reads_gets_all_though_others_of_its_account_do_not() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let start = |protocol| {
            let (handle, mut server) = charged(protocol, Some(&account));
            let account = account.clone();
            let upstream = generous(Protocol::Http2);
            spawn_local(async move {
                while let Ok(Some((_, exchange))) = server.next().await {
                    spawn_local(forward(exchange, upstream.clone(), account.clone()));
                }
            });
            handle
        };
        let lazy = start(Protocol::Http2);
        let unread: Vec<_> = (0..4)
            .map(|_| lazy.request(&head("GET", "/", &[]), None).expect("ready"))
            .collect();
        rest().await;
        assert!(account.held() > 0);
        for protocol in common::PROTOCOLS {
            let handle = start(protocol);
            let request = handle.request(&head("GET", "/", &[]), None);
            let request = request.expect("it is ready");
            assert_eq!(
                answer(&request).await.expect("an answer").status(),
                Status::OK
            );
            let length = content(&request).await.expect("all of it").len();
            assert_eq!(length, 64 * 16 * KIB, "{protocol:?}");
        }
        drop(unread);
    });
}

#[test]
fn clients_of_http1_that_read_slowly_stop_no_requests_of_others() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let start = || {
            let (handle, server) = charged(Protocol::Http1, Some(&account));
            common::serve(server, |request, exchange| async move {
                exchange.reply(Status::OK, &[], Length::Delimited)?;
                content(&exchange).await?;
                if *request.method() == Method::GET {
                    for _ in 0..64 {
                        exchange.send(Bytes::from(vec![7; 16 * KIB])).await?;
                    }
                }
                exchange.finish()
            });
            handle
        };
        let mut slow = Vec::new();
        while account.held() < account.limit() * 5 / 8 {
            let handle = start();
            let request = handle.request(&head("GET", "/", &[]), None);
            slow.push((request.expect("it is ready"), handle));
            rest().await;
            assert!(slow.len() < 100, "{}", account.held());
        }
        assert!(account.held() < account.limit(), "{}", account.held());
        let status = upload(&start(), 16 * KIB).await.expect("no panic");
        assert_eq!(status.expect("it was answered"), Status::OK);
    });
}

#[test]
fn an_answer_of_http1_that_is_read_slowly_is_never_cut_and_one_that_nobody_reads_is() {
    virtually(async {
        let account = Account::new(32 * KIB);
        let upstream = generous(Protocol::Http1);
        let exchange = upstream.request(&head("GET", "/", &[]), None);
        let exchange = exchange.expect("it is ready");
        exchange.charge(&account);
        answer(&exchange).await.expect("an answer");
        let mut length = 0;
        let start = tokio::time::Instant::now();
        while let Some(bytes) = exchange.data().await.expect("it moves") {
            length += bytes.len();
            sleep(Duration::from_secs(20)).await;
        }
        assert_eq!(length, 64 * 16 * KIB);
        assert!(start.elapsed() > Duration::from_secs(300));

        let upstream = generous(Protocol::Http1);
        let exchange = upstream.request(&head("GET", "/", &[]), None);
        let exchange = exchange.expect("it is ready");
        exchange.charge(&account);
        let start = tokio::time::Instant::now();
        let gone = std::future::poll_fn(|cx| exchange.poll_gone(cx)).await;
        assert!(
            matches!(gone, Error::Connection(ConnectionError::OverLimit)),
            "{gone}"
        );
        assert!(start.elapsed() >= Duration::from_secs(60));
        assert!(start.elapsed() <= Duration::from_secs(70));
    });
}

#[test]
fn a_window_that_has_room_again_is_told_of_at_once() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let fillers = Exchanges::default();
        let mut uploads = Vec::new();
        for _ in 0..8 {
            let (handle, server) = charged(Protocol::Http1, Some(&account));
            keep(server, &fillers);
            uploads.push(upload(&handle, 512 * KIB));
        }
        rest().await;
        let (ours, theirs) = duplex(PIPE);
        let config = Config {
            // Nothing but what comes gives a connection its turns.
            timeouts: None,
            http2: lateen_h2::Config {
                connection_first: 65_535,
                ..lateen_h2::Config::requests()
            }
            .share(),
            ..Config::new(Protocol::Http2)
        };
        let (handle, connection) = client::open(ours, config.clone());
        spawn_local(connection);
        let config = Config {
            account: Some(account.clone()),
            ..config
        };
        let exchanges = Exchanges::default();
        keep(server::Connection::new(theirs, config), &exchanges);
        uploads.push(upload(&handle, 60 * KIB));
        rest().await;
        let unread = exchanges.take();
        let held = unread.iter().map(|exchange| exchange.held());
        assert_eq!(held.collect::<Vec<_>>(), [60 * KIB]);
        fillers.take();
        rest().await;
        // It does not fit into what is left of the window. Nobody reads it either.
        uploads.push(upload(&handle, 32 * KIB));
        rest().await;
        let late = exchanges.take();
        let held = late.iter().map(|exchange| exchange.held());
        assert_eq!(held.collect::<Vec<_>>(), [32 * KIB]);
    });
}

#[test]
fn content_of_http1_that_waits_for_room_ends_in_a_minute_and_its_connection_rests_then() {
    virtually(async {
        let account = Account::new(128 * KIB);
        let turns = Rc::new(Cell::new(0));
        let (mut uploads, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (handle, mut server) = charged(Protocol::Http1, Some(&account));
            let turns = Rc::clone(&turns);
            ended.push(spawn_local(async move {
                let mut exchanges: Vec<server::Exchange> = Vec::new();
                loop {
                    let next = std::future::poll_fn(|cx| {
                        turns.set(turns.get() + 1);
                        assert!(turns.get() < 10_000, "it never rests");
                        if let Some(exchange) = exchanges.last()
                            && exchange.poll_gone(cx).is_ready()
                        {
                            exchanges.clear();
                        }
                        server.poll_next(cx)
                    });
                    match next.await {
                        Ok(Some((_, exchange))) => exchanges.push(exchange),
                        Ok(None) => panic!("it is no orderly end"),
                        Err(error) => return error,
                    }
                }
            }));
            uploads.push(upload(&handle, 512 * KIB));
        }
        sleep(Duration::from_secs(55)).await;
        assert!(ended.iter().all(|ended| !ended.is_finished()));
        sleep(Duration::from_secs(10)).await;
        for ended in ended {
            let error = ended.await.expect("no panic");
            assert!(matches!(error, ConnectionError::OverLimit), "{error}");
        }
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn a_client_of_http1_that_leaves_is_noticed_though_its_account_has_no_room() {
    virtually(async {
        let account = Account::new(128 * KIB);
        let (mut peer, theirs) = duplex(PIPE);
        let config = Config {
            account: Some(account.clone()),
            half_close: false,
            ..Config::new(Protocol::Http1)
        };
        let mut server = server::Connection::new(theirs, config);
        let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx";
        tokio::io::AsyncWriteExt::write_all(&mut peer, request)
            .await
            .expect("there is room");
        let (_, exchange) = server.next().await.expect("no fault").expect("one");
        let driver = spawn_local(async move { server.next().await.map(|_| ()) });
        let exchanges = Exchanges::default();
        for _ in 0..16 {
            let (handle, server) = charged(Protocol::Http1, Some(&account));
            keep(server, &exchanges);
            drop(upload(&handle, 512 * KIB));
        }
        rest().await;
        assert!(account.held() >= 64 * KIB, "{}", account.held());
        drop(peer);
        rest().await;
        assert!(driver.is_finished());
        let gone = std::future::poll_fn(|cx| exchange.poll_gone(cx)).await;
        assert!(
            matches!(gone, Error::Connection(ConnectionError::ClosedByPeer)),
            "{gone}"
        );
    });
}

#[test]
fn connections_wait_until_they_have_room_and_no_longer() {
    virtually(async {
        let account = Account::new(256 * KIB);
        let exchanges = Exchanges::default();
        let mut uploads = Vec::new();
        for _ in 0..8 {
            let (handle, server) = charged(Protocol::Http1, Some(&account));
            keep(server, &exchanges);
            uploads.push(upload(&handle, 512 * KIB));
        }
        rest().await;
        assert_eq!(account.waiting(), 8);
        // The clients leave, which is noticed in a minute. Their exchanges are still here.
        for upload in uploads {
            upload.abort();
        }
        sleep(Duration::from_secs(200)).await;
        // A head comes in what is not charged.
        assert_eq!((exchanges.borrow().len(), account.waiting()), (8, 0));
        exchanges.take();
        rest().await;
        assert_eq!(account.held(), 0);

        let mut connections = Vec::new();
        for _ in 0..8 {
            let (handle, server) = charged(Protocol::Http1, Some(&account));
            keep(server, &exchanges);
            connections.push((upload(&handle, 128 * KIB), handle));
        }
        rest().await;
        assert!(account.waiting() > 0);
        assert_eq!(read(&exchanges, 8).await, 8);
        // They are open and have room.
        assert!(connections.iter().all(|(_, handle)| handle.is_ready()));
        assert_eq!((account.held(), account.waiting()), (0, 0));
    });
}
