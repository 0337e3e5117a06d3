//! Hostile peers, frame by frame: each ends with an error that names what it did, in bounded memory, and the tunnels
//! beside it do not notice.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::hostile::*;
use common::wire::{self, *};
use common::{echo, local, request, tunnel};
use lateen_hbone::{Abuse, CloseReason, Connection, Settings, TunnelError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;

#[global_allocator]
static COUNTED: common::heap::Counting = common::heap::Counting;

/// Floods a server of ours and expects to be caught as `abuse`.
async fn expect(
    abuse: Abuse,
    serving: Serving,
    opening: Vec<u8>,
    turn: impl FnMut(u32) -> Vec<u8>,
) {
    let (near, far) = duplex(64 * 1024);
    let (ended, turns, grown) = flood(server(far, serving), near, &opening, true, turn).await;
    judge(abuse, ended, turns, grown);
}

/// The same against a client of ours.
async fn expect_client(abuse: Abuse, turn: impl FnMut(u32) -> Vec<u8>) {
    let (near, far) = duplex(64 * 1024);
    let hello = frame(SETTINGS, 0, 0, &[]);
    let (ended, turns, grown) = flood(our_client(far), near, &hello, true, turn).await;
    judge(abuse, ended, turns, grown);
}

fn judge(abuse: Abuse, ended: Result<(), TunnelError>, turns: u32, grown: usize) {
    assert_eq!(
        CloseReason::of(&ended),
        CloseReason::Abuse(abuse),
        "{ended:?} after {turns} turns"
    );
    assert!(ended.unwrap_err().to_string().contains(abuse.as_str()));
    assert!(grown < MODEST, "{grown} bytes for {abuse:?}");
}

#[tokio::test(start_paused = true)]
async fn rapid_reset() {
    local(async {
        for serving in [Serving::Accepts, Serving::Refuses, Serving::Ponders] {
            let turn = |n| [connect(odd(n)), reset(odd(n))].concat();
            expect(Abuse::RapidReset, serving, opening(&[]), turn).await;
        }
    })
    .await;
}

/// One at a time, each gone before the next comes.
#[tokio::test(start_paused = true)]
async fn slower_rapid_reset() {
    local(async {
        let (mut near, far) = duplex(64 * 1024);
        let served = server(far, Serving::Ponders);
        wire::write(&mut near, &opening(&[])).await;
        let (mut reader, mut writer) = tokio::io::split(near);
        spawn_local(async move { while matches!(reader.read(&mut [0; 4096]).await, Ok(1..)) {} });
        let mut turns = 0;
        while !served.is_finished() && turns < 100_000 {
            if writer.write_all(&connect(odd(turns))).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
            if writer.write_all(&reset(odd(turns))).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
            turns += 1;
        }
        let ended = served.await.unwrap();
        assert_eq!(CloseReason::of(&ended).as_str(), "rapid_reset", "{ended:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn provoked_resets() {
    local(async {
        // A window update that overflows the stream's window.
        let update = |id| frame(WINDOW_UPDATE, 0, id, &[0x7f, 0xff, 0xff, 0xff]);
        let turn = |n| [connect(odd(n)), update(odd(n))].concat();
        expect(Abuse::ProvokedResets, Serving::Ponders, opening(&[]), turn).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn malformed_requests() {
    local(async {
        // Header blocks of nothing, and ones that are padding only.
        for block in [
            frame(HEADERS, END_HEADERS, 0, &[]),
            frame(HEADERS, END_HEADERS | 8, 0, &[3, 0, 0, 0]),
        ] {
            let turn = |n| {
                let mut bytes = block.clone();
                bytes[5..9].copy_from_slice(&odd(n).to_be_bytes());
                bytes
            };
            expect(Abuse::ProvokedResets, Serving::Accepts, opening(&[]), turn).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn too_many_streams() {
    local(async {
        let turn = |n| connect(odd(n));
        expect(Abuse::TooManyStreams, Serving::Ponders, opening(&[]), turn).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn continuation_flood() {
    local(async {
        for piece in [vec![], vec![0x20], literal(b"x", &[b'y'; 16_000])] {
            let start = [opening(&[]), frame(HEADERS, 0, 1, &connect_block())].concat();
            let turn = |_| frame(CONTINUATION, 0, 1, &piece);
            expect(Abuse::HeaderFlood, Serving::Accepts, start, turn).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_header_block_that_unpacks_to_gigabytes() {
    local(async {
        // A field of 4000 bytes goes into the table; each byte after it (0xbe, the newest entry) is that field again.
        let mut field = literal(b"x", &[b'a'; 4000]);
        field[0] = 0x40;
        let block = [connect_block(), field, vec![0xbe; 14_000]].concat();
        let turn = |n| frame(HEADERS, END_HEADERS, odd(n), &block);
        expect(Abuse::HeaderFlood, Serving::Accepts, opening(&[]), turn).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn floods_of_small_frames() {
    local(async {
        let open = [opening(&[]), connect(1)].concat();
        let cases: [(Abuse, Vec<u8>); 11] = [
            (Abuse::SettingsFlood, frame(SETTINGS, 0, 0, &[])),
            (
                Abuse::SettingsFlood,
                frame(SETTINGS, 0, 0, &setting(5, 16_384).repeat(1_000)),
            ),
            (Abuse::PingFlood, frame(PING, 0, 0, &[7; 8])),
            (Abuse::PingFlood, frame(PING, ACK, 0, &[7; 8])),
            (
                Abuse::UselessFrames,
                frame(PRIORITY, 0, 1, &[0, 0, 0, 5, 1]),
            ),
            (Abuse::UselessFrames, frame(0xfa, 0, 0, &[])),
            (Abuse::UselessFrames, frame(GOAWAY, 0, 0, &[0; 8])),
            (Abuse::EmptyData, frame(DATA, 0, 1, &[])),
            (Abuse::EmptyData, frame(DATA, 8, 1, &[0])),
            (
                Abuse::WindowUpdateFlood,
                frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            ),
            (
                Abuse::WindowUpdateFlood,
                frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            ),
        ];
        for (abuse, bytes) in cases {
            expect(abuse, Serving::Accepts, open.clone(), |_| bytes.clone()).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn window_size_jumps() {
    local(async {
        // Down to nothing and up again, while a stream has data on its way: negative windows and back.
        let open = [opening(&[]), connect(1), frame(DATA, 0, 1, &[1; 16_000])].concat();
        let turn = |n: u32| {
            frame(
                SETTINGS,
                0,
                0,
                &setting(4, if n.is_multiple_of(2) { 0 } else { 0x7fff_ffff }),
            )
        };
        expect(Abuse::SettingsFlood, Serving::Accepts, open, turn).await;
    })
    .await;
}

/// Breaches that end a connection at once by HTTP/2's own rules.
#[tokio::test(start_paused = true)]
async fn breaches_end_the_tunnel() {
    local(async {
        for (what, bytes) in [
            ("zero window update", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
            (
                "window overflow",
                frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            ),
            (
                "window setting too large",
                frame(SETTINGS, 0, 0, &setting(4, 0x8000_0000)),
            ),
            (
                "data after the end",
                [frame(DATA, END_STREAM, 1, b"x"), frame(DATA, 0, 1, b"y")].concat(),
            ),
            (
                "push from a client",
                frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
            ),
            (
                "frame too large",
                [&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1][..]].concat(),
            ),
            (
                "settings that nobody sent acknowledged twice",
                frame(SETTINGS, ACK, 0, &[]).repeat(2),
            ),
        ] {
            let (near, far) = duplex(64 * 1024);
            let served = server(far, Serving::Accepts);
            let mut near = near;
            wire::write(&mut near, &[opening(&[]), connect(1), bytes].concat()).await;
            let mut said_goaway = false;
            while let Some((kind, ..)) = read_frame(&mut near).await {
                said_goaway |= kind == GOAWAY;
            }
            let ended = served.await.unwrap();
            assert_eq!(
                CloseReason::of(&ended).as_str(),
                "protocol_error",
                "{what}: {ended:?}"
            );
            assert!(said_goaway, "{what}");
        }
    })
    .await;
}

/// RFC 9113 §6.9: a fault of the stream, which may be taken for one of the connection.
#[tokio::test(start_paused = true)]
async fn a_window_update_of_nothing_costs_its_stream() {
    local(async {
        let (mut near, far) = duplex(64 * 1024);
        let served = server(far, Serving::Accepts);
        let update = frame(WINDOW_UPDATE, 0, 1, &[0; 4]);
        wire::write(&mut near, &[opening(&[]), connect(1), update].concat()).await;
        loop {
            let (kind, _, stream, payload) = read_frame(&mut near).await.expect("it is told");
            match kind {
                RST_STREAM => assert_eq!((stream, &payload[..]), (1, &[0, 0, 0, 1][..])),
                GOAWAY => assert_eq!(payload[4..8], [0, 0, 0, 1]),
                _ => continue,
            }
            break;
        }
        served.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_told_to_calm_down() {
    local(async {
        let (mut near, far) = duplex(1 << 20);
        let served = server(far, Serving::Accepts);
        let pings = frame(PING, 0, 0, &[7; 8]).repeat(3_000);
        wire::write(&mut near, &[opening(&[]), pings].concat()).await;
        let mut goaway = None;
        while let Some((kind, _, _, payload)) = read_frame(&mut near).await {
            if kind == GOAWAY {
                goaway = Some(payload);
            }
        }
        // ENHANCE_YOUR_CALM (RFC 9113 §7).
        assert_eq!(goaway.expect("it was told")[4..8], [0, 0, 0, 0xb]);
        assert!(matches!(
            served.await.unwrap(),
            Err(TunnelError::Abusive(Abuse::PingFlood))
        ));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hostile_server_is_left() {
    local(async {
        // 100 (Continue) without end: static table entry 8 is ":status 200", so 1xx is spelt out.
        let informational = frame(HEADERS, END_HEADERS, 1, &literal(b":status", b"103"));
        expect_client(Abuse::HeaderFlood, |_| informational.clone()).await;
        for (abuse, bytes) in [
            (Abuse::PingFlood, frame(PING, 0, 0, &[7; 8])),
            (
                Abuse::SettingsFlood,
                frame(SETTINGS, 0, 0, &setting(4, 1 << 20)),
            ),
            (
                Abuse::UselessFrames,
                frame(PRIORITY, 0, 1, &[0, 0, 0, 5, 1]),
            ),
            (
                Abuse::WindowUpdateFlood,
                frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            ),
        ] {
            expect_client(abuse, |_| bytes.clone()).await;
        }
    })
    .await;
}

/// A header block, a frame and a preface that never end.
#[tokio::test(start_paused = true)]
async fn slow_loris() {
    local(async {
        for (beginning, drip) in [
            (frame(HEADERS, 0, 1, &connect_block()[..4]), 0u8),
            (
                vec![0, 0x3f, 0, HEADERS, END_HEADERS, 0, 0, 0, 1, 0x82],
                0x82,
            ),
            (vec![0, 0x3f, 0, DATA, 0, 0, 0, 0, 1], 1),
        ] {
            let (mut near, far) = duplex(64 * 1024);
            let served = server(far, Serving::Accepts);
            let open = if beginning[3] == DATA {
                connect(1)
            } else {
                Vec::new()
            };
            wire::write(&mut near, &[opening(&[]), open, beginning.clone()].concat()).await;
            let (mut reader, mut writer) = tokio::io::split(near);
            spawn_local(
                async move { while matches!(reader.read(&mut [0; 4096]).await, Ok(1..)) {} },
            );
            let start = tokio::time::Instant::now();
            while !served.is_finished() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                // One byte a second, where that continues what was begun.
                if beginning.len() <= 10 && writer.write_all(&[drip]).await.is_err() {
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "still served");
            }
            let ended = served.await.unwrap();
            assert_eq!(
                CloseReason::of(&ended).as_str(),
                "unresponsive",
                "{ended:?}"
            );
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_not_waited_for() {
    local(async {
        // The caller's time-out bounds the handshake: dropping it leaves nothing behind.
        let (mut near, far) = duplex(64);
        let accept = Connection::accept(far, Settings::server());
        let waited = tokio::time::timeout(Duration::from_secs(10), accept).await;
        assert!(waited.is_err(), "there was no preface");
        assert_eq!(
            near.read(&mut [0; 4096]).await.ok().filter(|n| *n == 0),
            None
        );
    })
    .await;
}

/// What an honest but busy peer does is no flood: a thousand connections a second that come, talk and end.
#[tokio::test(start_paused = true)]
async fn honest_peers_are_not_judged() {
    local(async {
        let (tunnel, mut incoming) = tunnel(Settings::client(), Settings::server()).await;
        spawn_local(async move {
            while let Some(incoming) = incoming.recv().await {
                spawn_local(echo(incoming.accept(None).unwrap()));
            }
        });
        let failed = Rc::new(Cell::new(0));
        for round in 0..200 {
            let mut all = Vec::new();
            for number in 0..50 {
                let (tunnel, failed) = (tunnel.clone(), Rc::clone(&failed));
                all.push(spawn_local(async move {
                    let Ok((mut stream, _)) = tunnel.connect(&request()).await else {
                        return failed.set(failed.get() + 1);
                    };
                    for _ in 0..(number % 3) * 10 {
                        stream.write_all(b"ping").await.unwrap();
                        stream.read_exact(&mut [0; 4]).await.unwrap();
                    }
                    match number % 4 {
                        0 => lateen_relay::Duplex::abort(&mut stream),
                        1 => stream.shutdown().await.unwrap(),
                        _ => {}
                    }
                }));
            }
            for task in all {
                task.await.unwrap();
            }
            assert_eq!(failed.get(), 0, "round {round}");
            assert!(tunnel.alive(), "round {round}");
        }
    })
    .await;
}
