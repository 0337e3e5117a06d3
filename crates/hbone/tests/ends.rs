//! How a stream's end looks to an application behind a relay: a reset, whatever its code, is an end only behind
//! END_STREAM, and what came before either arrives.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::wire::{self, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS};
use common::{local, request, stream, tunnel};
use lateen_hbone::{Connection, Settings, Stream, client};
use lateen_relay::{Counters, Relay, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

/// An application, and the socket that a relay has to it.
async fn application() -> (TcpStream, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap());
    let (app, accepted) = tokio::join!(dialled, listener.accept());
    (app.unwrap(), Socket::from(accepted.unwrap().0))
}

/// An application behind a relay to `stream`.
async fn relayed(stream: Stream) -> (TcpStream, JoinHandle<lateen_relay::Outcome>) {
    let (app, socket) = application().await;
    let relay = Relay::new(socket, stream, Counters::default());
    (app, spawn_local(relay))
}

/// What a peer says last, in one write: something, an end if it is to have one, a reset.
fn last_words(end: bool, code: u32) -> Vec<u8> {
    let flags = if end { END_STREAM } else { 0 };
    [
        wire::frame(DATA, flags, 1, b"words"),
        wire::frame(RST_STREAM, 0, 1, &code.to_be_bytes()),
    ]
    .concat()
}

async fn until_headers(io: &mut DuplexStream) {
    loop {
        let frame = wire::read_frame(io).await.expect("the peer is there");
        if frame.0 == HEADERS {
            return;
        }
    }
}

/// What an application hears to the end, and how that is.
async fn heard(mut app: TcpStream) -> (Vec<u8>, Result<(), ErrorKind>) {
    let mut got = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), app.read_to_end(&mut got));
    let end = read.await.expect("an end").map(drop);
    (got, end.map_err(|error| error.kind()))
}

fn expected(end: bool) -> Result<(), ErrorKind> {
    match end {
        true => Ok(()),
        false => Err(ErrorKind::ConnectionReset),
    }
}

const CASES: [(bool, u32); 6] = [
    (false, NO_ERROR),
    (false, CANCEL),
    (false, INTERNAL_ERROR),
    (true, NO_ERROR),
    (true, CANCEL),
    (true, INTERNAL_ERROR),
];

#[tokio::test]
async fn a_server_that_resets_a_stream_is_an_end_to_the_client_only_behind_its_end() {
    local(async {
        // The last words come with the answer, before there is a stream, or later.
        for (at_once, (end, code)) in [true, false]
            .into_iter()
            .flat_map(|at_once| CASES.map(|case| (at_once, case)))
        {
            let (near, mut far) = duplex(64 * 1024);
            let handshake = client::handshake(near, Settings::client());
            let (tunnel, driver) = handshake.await.unwrap();
            let driver = spawn_local(driver);
            let asking = spawn_local(async move { tunnel.connect(&request()).await });
            far.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
            wire::write(&mut far, &wire::frame(SETTINGS, 0, 0, &[])).await;
            until_headers(&mut far).await;
            // Status 200 of HPACK's static table.
            let mut answer = wire::frame(HEADERS, END_HEADERS, 1, &[0x88]);
            if at_once {
                answer.extend(last_words(end, code));
            }
            wire::write(&mut far, &answer).await;
            let (stream, _) = asking.await.unwrap().expect("a stream");
            let (app, relay) = relayed(stream).await;
            if !at_once {
                wire::write(&mut far, &last_words(end, code)).await;
            }
            let (got, how) = heard(app).await;
            assert_eq!(how, expected(end), "{at_once} {end} {code}");
            if how.is_ok() {
                assert_eq!(got, b"words", "{at_once} {end} {code}");
            }
            relay.abort();
            driver.abort();
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_resets_a_stream_is_an_end_to_the_server_only_behind_its_end() {
    local(async {
        for (end, code) in CASES {
            let (mut near, far) = duplex(64 * 1024);
            let serving = spawn_local(async move {
                let mut connection = Connection::accept(far, Settings::server()).await.unwrap();
                let incoming = connection.next().await.unwrap().unwrap();
                let stream = incoming.accept(None).unwrap();
                let (app, relay) = relayed(stream).await;
                spawn_local(async move { while let Ok(Some(_)) = connection.next().await {} });
                (app, relay)
            });
            let settings = wire::frame(SETTINGS, 0, 0, &[]);
            let opening = [PREFACE, &settings, &wire::connect(1)].concat();
            wire::write(&mut near, &opening).await;
            until_headers(&mut near).await;
            wire::write(&mut near, &last_words(end, code)).await;
            let (app, relay) = serving.await.unwrap();
            let (got, how) = heard(app).await;
            assert_eq!(how, expected(end), "{end} {code}");
            if how.is_ok() {
                assert_eq!(got, b"words", "{end} {code}");
            }
            relay.abort();
        }
    })
    .await;
}

/// A server that answers and closes before it has read all: its kernel sends the answer and then a reset.
#[tokio::test]
async fn what_an_application_said_before_its_reset_arrives() {
    local(async {
        for (length, by_server) in [(5, true), (30_000, true), (5, false), (30_000, false)] {
            let (tunnel, mut incoming) = tunnel(Settings::client(), Settings::server()).await;
            let (near, far) = stream(&tunnel, &mut incoming).await;
            let (ours, mut theirs) = if by_server { (far, near) } else { (near, far) };
            let (mut app, socket) = application().await;
            let relay = spawn_local(Relay::new(socket, ours, Counters::default()));
            app.write_all(b"first").await.unwrap();
            theirs.read_exact(&mut [0; 5]).await.unwrap();
            // All of it, before the relay looks again.
            assert_eq!(app.try_write(&vec![7; length]).unwrap(), length);
            app.set_zero_linger().unwrap();
            drop(app);
            let mut got = Vec::new();
            let read = tokio::time::timeout(Duration::from_secs(30), theirs.read_to_end(&mut got));
            let error = read.await.expect("an end").expect_err("a reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(got.len(), length, "{by_server}");
            let outcome = relay.await.unwrap();
            assert!(outcome.error.is_some());
            assert_eq!(outcome.sent, 5 + length as u64);
        }
    })
    .await;
}

/// A peer that reads nothing does not keep what a lost application said before.
#[tokio::test]
async fn a_reset_waits_for_what_came_before_it_only_as_long_as_that_moves() {
    local(async {
        let (near, far) = duplex(1024);
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        let mut connection = Connection::accept(far, Settings::server()).await.unwrap();
        let asked = request();
        let granted = async {
            let incoming = connection.next().await.unwrap().unwrap();
            let stream = incoming.accept(None).unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(50), connection.next()).await;
            stream
        };
        let (stream, _far) = tokio::join!(tunnel.connect(&asked), granted);
        let (mut app, socket) = application().await;
        app.write_all(&[7; 30_000]).await.unwrap();
        app.set_zero_linger().unwrap();
        drop(app);
        // The peer's task does not run any more; it would be given up itself after thirty seconds.
        let relay = Relay::new(socket, stream.unwrap().0, Counters::default());
        let outcome = tokio::time::timeout(Duration::from_secs(15), relay);
        let outcome = outcome.await.expect("it is given up");
        assert!(outcome.error.is_some());
        assert_eq!(outcome.sent, 30_000);
        driver.abort();
    })
    .await;
}
