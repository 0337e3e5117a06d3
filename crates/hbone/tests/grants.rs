//! Peers that grant little or read late: they are served as slowly as they ask to be, and not lost.

mod common;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use common::wire::*;
use common::{local, request};
use lateen_hbone::{Connection, Settings, client};
use lateen_relay::Duplex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;
use tokio::time::Instant;

/// No PING is needed to get on.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn windows_of_a_byte_are_filled_byte_by_byte() {
    local(async {
        let (mut near, far) = duplex(1 << 20);
        spawn_local(async move {
            let settings = Settings::server();
            let mut connection = Connection::accept(far, settings).await.unwrap();
            while let Some(incoming) = connection.next().await.unwrap() {
                let mut stream = incoming.accept(None).unwrap();
                spawn_local(async move {
                    stream.write_all(&common::noise(300, 1)).await.unwrap();
                    stream.shutdown().await.unwrap();
                    // Let go of, it would be reset behind its end.
                    let _ = stream.read(&mut [0]).await;
                });
            }
        });
        let opening = frame(SETTINGS, 0, 0, &setting(4, 1));
        write(&mut near, &[PREFACE, &opening, &connect(1)].concat()).await;
        let start = Instant::now();
        let mut got = Vec::new();
        loop {
            let (kind, flags, stream, payload) = read_frame(&mut near).await.unwrap();
            if (kind, stream) != (DATA, 1) {
                continue;
            }
            assert!(payload.len() <= 1, "{} bytes", payload.len());
            got.extend(payload);
            if flags & END_STREAM != 0 {
                break;
            }
            let grant = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
            write(&mut near, &grant).await;
        }
        assert_eq!(got, common::noise(300, 1));
        assert!(start.elapsed() < SOON);
    })
    .await;
}

/// A window that is taken back while data waits for it, and given again (RFC 9113 §6.9.2).
#[tokio::test(start_paused = true)]
async fn a_window_that_was_taken_back_is_waited_for() {
    local(async {
        let (mut near, far) = duplex(1 << 20);
        let settings = Settings::client();
        let (tunnel, driver) = client::handshake(far, settings).await.unwrap();
        spawn_local(driver);
        let asking = spawn_local(async move { tunnel.connect(&request()).await });
        near.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        write(&mut near, &frame(SETTINGS, 0, 0, &[])).await;
        while read_frame(&mut near).await.unwrap().0 != HEADERS {}
        write(&mut near, &frame(HEADERS, END_HEADERS, 1, &[0x88])).await;
        let (mut stream, _) = asking.await.unwrap().unwrap();
        let start = Instant::now();
        let writing = spawn_local(async move {
            stream
                .write_all(&common::noise(65_535 + 1_000, 7))
                .await
                .unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read(&mut [0]).await;
        });
        let mut got = Vec::new();
        while got.len() < 65_535 {
            let (kind, _, _, payload) = read_frame(&mut near).await.unwrap();
            if kind == DATA {
                got.extend(payload);
            }
        }
        // 65,535 below nothing, then up to 500 more, then all.
        for bytes in [
            frame(SETTINGS, 0, 0, &setting(4, 0)),
            frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]),
            frame(WINDOW_UPDATE, 0, 1, &(65_535u32 + 500).to_be_bytes()),
        ] {
            write(&mut near, &bytes).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        while got.len() < 65_535 + 500 {
            let (kind, _, _, payload) = read_frame(&mut near).await.unwrap();
            if kind == DATA {
                got.extend(payload);
            }
        }
        assert_eq!(got.len(), 65_535 + 500);
        write(&mut near, &frame(SETTINGS, 0, 0, &setting(4, 60_000))).await;
        loop {
            let (kind, flags, _, payload) = read_frame(&mut near).await.unwrap();
            if kind == DATA {
                got.extend(payload);
                if flags & END_STREAM != 0 {
                    break;
                }
            }
        }
        assert!(got == common::noise(65_535 + 1_000, 7));
        assert!(start.elapsed() < SOON);
        writing.abort();
    })
    .await;
}

/// Answers pile up until nothing more is read; when all of them are taken at once, it goes on.
#[tokio::test(start_paused = true)]
async fn who_reads_late_gets_every_answer() {
    const PINGS: usize = 270 * 23;
    local(async {
        let (near, far) = duplex(64 * 1024);
        spawn_local(async move {
            let settings = Settings::server();
            let mut connection = Connection::accept(far, settings).await.unwrap();
            connection.next().await.unwrap();
        });
        let (mut reader, mut writer) = tokio::io::split(near);
        let start = Instant::now();
        spawn_local(async move {
            let opening = frame(SETTINGS, 0, 0, &[]);
            writer
                .write_all(&[PREFACE, &opening].concat())
                .await
                .unwrap();
            // As many as are no flood.
            for _ in 0..PINGS / 23 {
                let pings = frame(PING, 0, 0, &[7; 8]).repeat(23);
                writer.write_all(&pings).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        });
        // Until it stands still, and before it is given up.
        tokio::time::sleep(Duration::from_secs(28)).await;
        let (mut got, mut at, mut answers) = (Vec::new(), 0, 0);
        while answers < PINGS {
            tokio::time::sleep(Duration::from_millis(20)).await;
            got.reserve(64 * 1024);
            assert!(reader.read_buf(&mut got).await.unwrap() > 0);
            while let Some(head) = got.get(at..at + 9) {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                if got.len() < at + 9 + length {
                    break;
                }
                answers += usize::from(head[3] == PING && head[4] == ACK);
                at += 9 + length;
            }
        }
        assert!(
            start.elapsed() < Duration::from_secs(29),
            "{:?}",
            start.elapsed()
        );
    })
    .await;
}

/// Room is told to a few at a time: those behind them learn of it, too, where the first make no use of it.
#[tokio::test(start_paused = true)]
async fn room_that_is_left_is_offered_to_the_next() {
    const STREAMS: u32 = 31;
    local(async {
        let (mut near, far) = duplex(1 << 20);
        let settings = Settings {
            tunnel_send_buffer: 64 * 1024,
            ..Settings::client()
        };
        let (tunnel, driver) = client::handshake(far, settings).await.unwrap();
        spawn_local(driver);
        write(&mut near, &frame(SETTINGS, 0, 0, &setting(4, 1 << 20))).await;
        let mut streams = Vec::new();
        for n in 0..STREAMS {
            let request = request();
            let ok = frame(HEADERS, END_HEADERS, 2 * n + 1, &[0x88]);
            let answer = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                write(&mut near, &ok).await;
            };
            let (stream, ()) = tokio::join!(tunnel.connect(&request), answer);
            streams.push(stream.unwrap().0);
        }
        // The connection's window, and what waits for more of it.
        let mut first = streams.remove(0);
        for _ in 0..10 {
            let write = first.write(&[7; 64 * 1024]);
            let _ = tokio::time::timeout(Duration::from_millis(10), write).await;
        }
        let tasks = streams.into_iter().enumerate().map(|(which, mut stream)| {
            spawn_local(async move {
                let mut bytes = Bytes::from_static(&[7; 1_000]);
                let mut times = 0;
                poll_fn(|cx| {
                    times += 1;
                    match times > 1 && which < 25 {
                        true => Poll::Ready(()),
                        false => stream.poll_write(cx, &mut bytes).map(|_| ()),
                    }
                })
                .await;
                // It stays, and so does what it was told.
                std::mem::forget(stream);
                times
            })
        });
        let tasks: Vec<_> = tasks.collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let start = Instant::now();
        let grant = frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
        write(&mut near, &grant).await;
        for task in tasks {
            let times = tokio::time::timeout(SOON, task).await;
            assert!(times.expect("it is told").unwrap() > 1, "there was no wait");
        }
        assert!(start.elapsed() < SOON);
    })
    .await;
}
