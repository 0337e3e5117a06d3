//! Applications that do not read: they stall their own streams, and what they hold is bounded.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::wire::*;
use common::{Busy, echo, local, noise, request, settings, stream, tunnel};
use lateen_hbone::{Budget, Connection, Settings, Tunnel};
use lateen_relay::{Counters, Duplex, Relay};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

#[tokio::test(start_paused = true)]
async fn streams_that_nobody_reads_stall_only_themselves() {
    local(async {
        let (ours, theirs) = settings();
        // What a stream begins with, and what it keeps where nobody reads.
        let window = 65_535;
        let buffer = ours.send_buffer;
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        // More than the connection's own window holds.
        let mut stalled = Vec::new();
        for _ in 0..80 {
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
        let (mut near, far) = stalled.pop().unwrap();
        near.shutdown().await.unwrap();
        let mut far = far;
        let mut all = Vec::new();
        let read = far.read_to_end(&mut all).await.unwrap();
        assert!(read >= window, "{read}");
    })
    .await;
}

/// What is gathered for one write is the peer's until it is written.
#[tokio::test(start_paused = true)]
async fn what_an_application_leaves_in_the_middle_of_a_write_is_within_the_window() {
    local(async {
        const WINDOW: usize = 65_535;
        for taken in [100_000, 300_000, 777_777] {
            let (mut near, far) = duplex(1 << 20);
            let application = Busy::default();
            application.room.set(taken);
            let behind = application.clone();
            spawn_local(async move {
                let settings = Settings {
                    stream_window: WINDOW as u32,
                    ..Settings::server()
                };
                let mut connection = Connection::accept(far, settings).await.unwrap();
                while let Ok(Some(incoming)) = connection.next().await {
                    let stream = incoming.accept(None).unwrap();
                    let relay = Relay::new(stream, behind.clone(), Counters::default());
                    spawn_local(relay);
                }
            });
            let opening = frame(SETTINGS, 0, 0, &[]);
            write(&mut near, &[PREFACE, &opening, &connect(1)].concat()).await;
            let (mut windows, mut sent) = ([WINDOW; 2], 0);
            loop {
                let room = windows[0].min(windows[1]).min(16_000);
                if room > 0 {
                    write(&mut near, &frame(DATA, 0, 1, &vec![7; room])).await;
                    windows = windows.map(|window| window - room);
                    sent += room;
                    continue;
                }
                let read = tokio::time::timeout(Duration::from_secs(1), read_frame(&mut near));
                let Ok(Some((kind, _, stream, payload))) = read.await else {
                    break;
                };
                if kind == WINDOW_UPDATE {
                    let more = u32::from_be_bytes(payload[..].try_into().unwrap());
                    windows[stream as usize] += more as usize;
                }
            }
            assert_eq!(application.got.borrow().len(), taken);
            let held = sent - taken;
            assert!(
                (WINDOW / 4..=WINDOW).contains(&held),
                "{held} bytes are held"
            );
        }
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
        while sent.get() != before || before == 0 {
            before = sent.get();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let queued = TUNNELS * (256 * 1024 + STREAMS * ours.send_buffer);
        let bound = (24 << 20) + TUNNELS * 65_535 + queued;
        assert!(sent.get() <= bound, "{} of {bound} bytes", sent.get());
        // It is not so because nothing was taken.
        assert!(sent.get() > 12 << 20, "{} bytes", sent.get());
        assert!(budget.granted() <= 24 << 20);

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
