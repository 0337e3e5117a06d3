//! What waits for a peer that ends streams while it does not read: the account forgets what the HTTP/2 layer drops, in
//! whatever order the two hear of it.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::wire::*;
use common::{local, request};
use lateen_hbone::{Connection, Settings, Stream, Tunnel, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, duplex};
use tokio::task::{spawn_local, yield_now};

const MOST: usize = 1 << 20;

/// What a peer begins with that grants windows without end.
fn generous() -> Vec<u8> {
    [
        frame(SETTINGS, 0, 0, &setting(4, 0x3fff_ffff)),
        frame(WINDOW_UPDATE, 0, 0, &0x3fff_ffffu32.to_be_bytes()),
        frame(SETTINGS, ACK, 0, &[]),
    ]
    .concat()
}

fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[1; 8])
}

fn settings(defaults: Settings) -> Settings {
    Settings {
        tunnel_send_buffer: MOST,
        ..defaults
    }
}

/// Waits for what is bound to happen.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to it that {what}");
}

/// Lets every task do what it can.
async fn settled() {
    for _ in 0..1_000 {
        yield_now().await;
    }
}

/// Reads all that comes, for ever.
fn read_on(mut io: ReadHalf<DuplexStream>) {
    spawn_local(async move {
        let mut buffer = vec![0; 64 * 1024];
        while matches!(io.read(&mut buffer).await, Ok(1..)) {}
    });
}

/// Writes until the stream ends.
async fn pour(mut stream: Stream) {
    while stream.write_all(&[7; 16 * 1024]).await.is_ok() {}
}

/// A server whose streams pour; it says how much waits, and lets the first stream write only when `tick` says so.
fn pouring(far: DuplexStream, settings: Settings, queued: &Rc<Cell<usize>>, ticks: &Rc<Cell<u32>>) {
    let (queued, ticks) = (Rc::clone(queued), Rc::clone(ticks));
    spawn_local(async move {
        let mut connection = Connection::accept(far, settings).await.unwrap();
        let mut first = true;
        loop {
            queued.set(connection.queued());
            let next = tokio::time::timeout(Duration::from_millis(5), connection.next());
            let Ok(next) = next.await else { continue };
            let mut stream = next.unwrap().unwrap().accept(None).unwrap();
            if std::mem::replace(&mut first, false) {
                let ticks = Rc::clone(&ticks);
                spawn_local(async move {
                    // Fills the pipe, so that nothing can be written.
                    stream.write_all(&[7; 64 * 1024]).await.unwrap();
                    loop {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        stream.write_all(b"tick").await.unwrap();
                        ticks.set(ticks.get() + 1);
                    }
                });
            } else {
                spawn_local(pour(stream));
            }
        }
    });
}

/// A peer opens streams, stops reading, and resets them behind a PING that cannot be answered: the HTTP/2 layer stops
/// there, and the streams go on. `late` ones are opened in the same breath.
async fn resets_behind_a_ping(late: bool) {
    let (near, far) = duplex(16 * 1024);
    let settings = settings(Settings::server());
    let budget = settings.send_budget.clone();
    let (queued, ticks) = (Rc::default(), Rc::default());
    pouring(far, settings, &queued, &ticks);
    let (reader, mut writer) = tokio::io::split(near);
    let hello = [PREFACE.to_vec(), generous(), connect(1)].concat();
    writer.write_all(&hello).await.unwrap();
    until("the pipe is full", || queued.get() >= 16 * 1024).await;
    let streams = || (0..20).map(|n| 3 + 2 * n);
    let opened: Vec<u8> = streams().flat_map(connect).collect();
    let reset: Vec<u8> = streams().flat_map(reset).collect();
    if late {
        let all = [opened, ping(), reset].concat();
        writer.write_all(&all).await.unwrap();
    } else {
        writer.write_all(&opened).await.unwrap();
        until("the send buffer is full", || queued.get() >= MOST).await;
        writer.write_all(&[ping(), reset].concat()).await.unwrap();
    }
    settled().await;
    let before = ticks.get();
    read_on(reader);
    until("nothing waits any more", || queued.get() == 0).await;
    until("the budget has all back", || budget.granted() == 0).await;
    until("the first stream goes on", || ticks.get() > before + 10).await;
}

#[tokio::test]
async fn what_streams_queue_after_their_reset_was_read_is_given_back() {
    local(resets_behind_a_ping(false)).await;
}

#[tokio::test]
async fn what_streams_queue_that_were_reset_before_they_were_accepted_is_given_back() {
    local(resets_behind_a_ping(true)).await;
}

/// A tunnel of ours, on which the peer has granted streams 1, 3 and 5.
async fn granted(near: &mut DuplexStream, far: DuplexStream) -> (Tunnel, Vec<Stream>) {
    let (tunnel, driver) = client::handshake(far, settings(Settings::client()))
        .await
        .unwrap();
    spawn_local(driver);
    near.write_all(&generous()).await.unwrap();
    let mut streams = Vec::new();
    for id in [1, 3, 5] {
        let request = request();
        let answer = async {
            // The preface is no frame.
            if id == 1 {
                near.read_exact(&mut [0; 24]).await.unwrap();
            }
            while !matches!(read_frame(near).await.unwrap(), (HEADERS, _, stream, _) if stream == id)
            {
            }
            let ok = frame(HEADERS, END_HEADERS, id, &[0x88]);
            near.write_all(&ok).await.unwrap();
        };
        let (stream, ()) = tokio::join!(tunnel.connect(&request), answer);
        streams.push(stream.unwrap().0);
    }
    (tunnel, streams)
}

#[tokio::test]
async fn what_streams_queue_beyond_the_last_of_a_goaway_is_given_back() {
    local(async {
        let (mut near, far) = duplex(16 * 1024);
        let (tunnel, mut streams) = granted(&mut near, far).await;
        let mut kept = streams.remove(0);
        streams.into_iter().for_each(|stream| {
            spawn_local(pour(stream));
        });
        until("the pipe is full", || tunnel.queued() >= 256 * 1024).await;
        let away = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
        let (reader, mut writer) = tokio::io::split(near);
        writer.write_all(&[ping(), away].concat()).await.unwrap();
        settled().await;
        read_on(reader);
        until("nothing waits any more", || tunnel.queued() == 0).await;
        let bytes = vec![7; 2 * MOST];
        let write = kept.write_all(&bytes);
        let written = tokio::time::timeout(Duration::from_secs(30), write).await;
        written.expect("the stream that is kept goes on").unwrap();
    })
    .await;
}
