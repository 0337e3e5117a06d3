//! Peers that do not read: what waits for them is bounded, their tunnels end, and their neighbours do not notice.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::hostile::*;
use common::wire::{self, *};
use common::{Busy, echo, local, stream, tunnel};
use lateen_hbone::{CloseReason, Connection, Settings, TunnelError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

#[global_allocator]
static COUNTED: common::heap::Counting = common::heap::Counting;

/// Everything that makes us answer, from a peer that reads no answer: nothing piles up, and it is cut for that.
#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing() {
    local(async {
        type Turn = fn(u32) -> Vec<u8>;
        let turns: [(Serving, Turn); 4] = [
            (Serving::Refuses, |n| connect(odd(n))),
            (Serving::Accepts, |n| {
                [connect(odd(n)), frame(DATA, 0, odd(n), &[5; 300])].concat()
            }),
            (Serving::Accepts, |_| frame(PING, 0, 0, &[7; 8])),
            (Serving::Accepts, |_| {
                frame(SETTINGS, 0, 0, &setting(4, 1 << 20))
            }),
        ];
        for (serving, turn) in turns {
            // As little as possible waits in the pipe.
            let (near, far) = duplex(256);
            let (ended, turns, grown) =
                flood(server(far, serving), near, &opening(&[]), false, turn).await;
            let reason = CloseReason::of(&ended).as_str();
            let named = matches!(
                reason,
                "stalled" | "unresponsive" | "settings_flood" | "ping_flood" | "too_many_streams"
            );
            assert!(named, "{ended:?} after {turns} turns");
            assert!(grown < MODEST, "{grown} bytes");
        }
    })
    .await;
}

/// As many PINGs as a peer may send and read no answer of: they hold its reading up wherever they wait, and those that were
/// written and have not left count.
#[tokio::test(start_paused = true)]
async fn answers_that_were_written_and_have_not_left_are_bounded() {
    local(async {
        let (mut near, far) = duplex(256);
        let (far, most) = Gathers::new(far);
        let served = server(far, Serving::Accepts);
        wire::write(&mut near, &opening(&[])).await;
        let second = Duration::from_secs(1);
        let mut pings = 1_000;
        while !served.is_finished() {
            let bytes = frame(PING, 0, 0, &[7; 8]).repeat(pings);
            let write = tokio::time::timeout(second, near.write_all(&bytes));
            if !matches!(write.await, Ok(Ok(()))) {
                break;
            }
            tokio::time::sleep(second).await;
            pings = 190;
        }
        let ended = served.await.unwrap();
        assert_eq!(
            CloseReason::of(&ended).as_str(),
            "unresponsive",
            "{ended:?}"
        );
        let most = most.get();
        assert!((32 << 10..=33 << 10).contains(&most), "{most} bytes");
    })
    .await;
}

/// It acknowledges PINGs that it never read, so as to pass for alive.
#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_and_lies_about_it() {
    local(async {
        let (mut near, far) = duplex(256);
        let served = server(far, Serving::Refuses);
        let start = tokio::time::Instant::now();
        // What the answers need is more than the pipe takes.
        let requests: Vec<u8> = (0..60).flat_map(|n| connect(odd(n))).collect();
        wire::write(&mut near, &opening(&[])).await;
        let (_reader, mut writer) = tokio::io::split(near);
        let lie = spawn_local(async move {
            for piece in requests.chunks(64) {
                if writer.write_all(piece).await.is_err() {
                    return;
                }
            }
            // The opaque bytes of our PINGs are always the same, which is no secret.
            let ack = frame(
                PING,
                ACK,
                0,
                &[0x3b, 0x7c, 0xdb, 0x7a, 0x0b, 0x87, 0x16, 0xb4],
            );
            while writer.write_all(&ack).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let ended = served.await.unwrap();
        lie.abort();
        let reason = CloseReason::of(&ended).as_str();
        assert!(matches!(reason, "stalled" | "unresponsive"), "{ended:?}");
        assert!(start.elapsed() < Duration::from_secs(120));
    })
    .await;
}

/// Two hundred streams to a peer that granted every window and reads nothing: applications wait, memory does not grow.
#[tokio::test(start_paused = true)]
async fn stalled_receivers_cost_a_stated_amount() {
    local(async {
        const STREAMS: u32 = 200;
        let settings = Settings {
            send_budget: lateen_hbone::SendBudget::new(16 << 20),
            ..Settings::server()
        };
        let budget = settings.send_budget.clone();
        let tunnel_most = settings.tunnel_send_buffer;
        let (mut near, far) = duplex(4096);
        let before = common::heap::live();
        common::heap::mark();
        let written = Rc::new(Cell::new(0usize));
        let count = Rc::clone(&written);
        let served = spawn_local(async move {
            let mut connection = Connection::accept(far, settings).await?;
            while let Some(incoming) = connection.next().await? {
                let mut stream = incoming.accept(None).unwrap();
                let count = Rc::clone(&count);
                spawn_local(async move {
                    static BLOCK: [u8; 64 * 1024] = [7; 64 * 1024];
                    while let Ok(n) = stream.write(&BLOCK).await {
                        count.set(count.get() + n);
                    }
                });
            }
            Ok::<_, TunnelError>(())
        });
        // Every window as large as it can be.
        let windows = [
            opening(&setting(4, 0x7fff_ffff)),
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000u32.to_be_bytes()),
        ];
        wire::write(&mut near, &windows.concat()).await;
        for n in 0..STREAMS {
            if tokio::time::timeout(Duration::from_millis(100), near.write_all(&connect(odd(n))))
                .await
                .is_err()
            {
                break;
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!served.is_finished());
        let waiting = written.get();
        assert!(
            waiting > 64 * 1024,
            "only {waiting} bytes were taken: nothing is tested"
        );
        // The tunnel's own limit holds, though the peer's windows and 200 streams would allow 50 MiB and more.
        assert!(waiting <= tunnel_most + 128 * 1024, "{waiting} bytes wait");
        assert!(budget.granted() <= 16 << 20);
        let grown = common::heap::peak().saturating_sub(before);
        assert!(grown < tunnel_most + MODEST, "{grown} bytes");
        // Who reads again gets everything.
        let (mut reader, _writer) = tokio::io::split(near);
        let target = waiting + (8 << 20);
        let reading = spawn_local(async move {
            let mut buffer = vec![0; 64 * 1024];
            while matches!(reader.read(&mut buffer).await, Ok(1..)) {}
        });
        while written.get() < target {
            assert!(!served.is_finished());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        reading.abort();
        served.abort();
        let _ = served.await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(budget.granted(), 0, "what was granted came back");
    })
    .await;
}

/// A stream that nobody reads does not stop its neighbour, and what its relay holds back is counted.
#[tokio::test]
async fn a_stalled_stream_leaves_its_neighbours_alone() {
    local(async {
        let settings = Settings {
            stream_window: 64 * 1024,
            ..Settings::server()
        };
        let budget = settings.send_budget.clone();
        let (tunnel, mut incoming) = tunnel(
            Settings {
                send_budget: budget.clone(),
                ..Settings::client()
            },
            settings,
        )
        .await;
        let mut kept = Vec::new();
        for _ in 0..40 {
            let (near, far) = stream(&tunnel, &mut incoming).await;
            let (mut application, proxy) = sockets().await;
            // A relay from a socket into the tunnel whose far end reads nothing.
            spawn_local(lateen_relay::Relay::new(
                lateen_relay::Socket::from(proxy),
                near,
                lateen_relay::Counters::default(),
            ));
            spawn_local(async move {
                let block = vec![3; 256 * 1024];
                while application.write_all(&block).await.is_ok() {}
            });
            kept.push((far, Busy::default()));
        }
        // Let them run until all of them are stuck.
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        for _ in 0..100 {
            near.write_all(&[1; 4096]).await.unwrap();
            near.read_exact(&mut [0; 4096]).await.unwrap();
        }
        assert!(
            budget.granted() <= 4 << 20,
            "{} bytes wait in relays",
            budget.granted()
        );
        kept.clear();
    })
    .await;
}

async fn sockets() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}
