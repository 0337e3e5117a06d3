//! What peers may not do too often.

mod common;

use common::*;
use lateen_h2::{Abuse, Allowance, Cause, Code, Config, ConnectionError, Timestamp};

/// The header block of a GET, by numbers of the static table.
const GET: &[u8] = &[0x82, 0x86, 0x84, 1, 1, b'a'];

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// Sends the same again and again: after how many times the connection ended, and by what.
fn flood(
    end: &mut End,
    most: usize,
    mut next: impl FnMut(usize) -> Vec<u8>,
) -> Option<(usize, ConnectionError)> {
    (0..most).find_map(|n| {
        let result = end.receive(&next(n), NOW);
        // It reads what we answer.
        end.write(usize::MAX);
        end.wire.clear();
        result.err().map(|error| (n, error))
    })
}

fn abused(outcome: Option<(usize, ConnectionError)>, at_least: usize) -> Abuse {
    let (count, error) = outcome.expect("it ends");
    assert!(count >= at_least, "it ended after {count}");
    assert_eq!(error.code, Code::ENHANCE_YOUR_CALM);
    match error.cause {
        Cause::Abuse(abuse) => abuse,
        other => panic!("{other}"),
    }
}

#[test]
fn floods_end_the_connection_and_ordinary_numbers_do_not() {
    let control: [(Abuse, usize, Vec<u8>); 4] = [
        (Abuse::PingFlood, 500, frame(6, 0, 0, &[1; 8])),
        (Abuse::SettingsFlood, 50, frame(4, 0, 0, &[])),
        (Abuse::UselessFrames, 1000, frame(2, 0, 1, &[0; 5])),
        (Abuse::UselessFrames, 1000, frame(0xee, 0xff, 9, &[0; 50])),
    ];
    for (abuse, usual, bytes) in control {
        let outcome = flood(&mut server(small()), 100_000, |_| bytes.clone());
        assert_eq!(abused(outcome, usual), abuse);
    }
    let opened = || {
        let mut server = server(small());
        server.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
        server
    };
    let outcome = flood(&mut opened(), 100_000, |_| frame(0, 0, 1, &[]));
    assert_eq!(abused(outcome, 500), Abuse::EmptyData);
    let outcome = flood(&mut opened(), 100_000, |_| frame(0, 8, 1, &[3, 0, 0, 0]));
    assert_eq!(abused(outcome, 500), Abuse::EmptyData);
    let outcome = flood(&mut opened(), 100_000, |_| frame(8, 0, 1, &[0, 0, 0, 1]));
    assert_eq!(abused(outcome, 1000), Abuse::WindowUpdateFlood);
}

/// CVE-2023-44487.
#[test]
fn rapid_resets_end_the_connection() {
    let mut server = server(small());
    let outcome = flood(&mut server, 100_000, |n| {
        let id = 1 + 2 * n as u32;
        [frame(1, 4, id, CONNECT), frame(3, 0, id, &[0, 0, 0, 8])].concat()
    });
    // Nobody lets them go: no more are kept than twice the limit, and then they are refused.
    assert_eq!(abused(outcome, 500), Abuse::TooManyStreams);
    assert_eq!(server.heard.heads.len(), 2 * small().max_streams as usize);
}

/// A busy pair opens and ends streams by the hundred thousand, each side resets what the other does, and what was under way
/// comes late: nobody is at fault.
#[test]
fn resets_that_cross_are_no_flood() {
    let mut server = server(small());
    for n in 0..50_000 {
        let id = 1 + 2 * n;
        server.receive(&frame(1, 4, id, CONNECT), NOW).unwrap();
        let (stream, _) = *server.heard.heads.last().expect("it was announced");
        server
            .connection
            .respond(stream, Some(&ok()), &[], false)
            .unwrap();
        server.connection.release(stream);
        let late = [frame(0, 0, id, b"late"), frame(3, 0, id, &[0, 0, 0, 8])].concat();
        server.receive(&late, NOW).unwrap();
        server.write(usize::MAX);
        server.wire.clear();
    }
    assert_eq!(server.connection.active(), 0);
}

/// CVE-2023-44487 with a caller that lets go at once.
#[test]
fn rapid_resets_are_named_when_the_caller_lets_go() {
    let mut server = server(small());
    let outcome = (0..100_000).find_map(|n| {
        let id = 1 + 2 * n;
        let bytes = [frame(1, 4, id, CONNECT), frame(3, 0, id, &[0, 0, 0, 8])].concat();
        let result = server.receive(&bytes, NOW);
        let (stream, _) = *server.heard.heads.last().expect("it was announced");
        server.connection.release(stream);
        result.err().map(|error| (n as usize, error))
    });
    assert_eq!(abused(outcome, 900), Abuse::RapidReset);
}

/// CVE-2025-8671: each fault makes us send a reset.
#[test]
fn provoked_resets_end_the_connection() {
    let mut server = server(small());
    let outcome = (0..100_000).find_map(|n| {
        let id = 1 + 2 * n;
        let bytes = [frame(1, 4, id, CONNECT), frame(8, 0, id, &[0; 4])].concat();
        let result = server.receive(&bytes, NOW);
        let (stream, _) = *server.heard.heads.last().expect("it was announced");
        server.connection.release(stream);
        result.err().map(|error| (n as usize, error))
    });
    assert_eq!(abused(outcome, 100), Abuse::ProvokedResets);
}

/// CVE-2024-27316: a block that never ends, in small pieces, in empty ones and in large ones.
#[test]
fn header_blocks_without_end_are_cut_off() {
    for piece in [vec![], vec![0x82], vec![0; 100_000]] {
        let mut server = server(small());
        server.receive(&frame(1, 0, 1, &[]), NOW).unwrap();
        let outcome = flood(&mut server, 100, |_| frame(9, 0, 1, &piece));
        assert_eq!(abused(outcome, 1), Abuse::HeaderFlood);
    }
    let mut entries = frame(4, 0, 0, &[0; 6 * 100]);
    entries[9..].chunks_mut(6).for_each(|entry| entry[1] = 0xee);
    let error = server(small()).receive(&entries, NOW).unwrap_err();
    assert_eq!(error.cause, Cause::Abuse(Abuse::SettingsFlood));
}

/// A reference of a byte to a large entry, many times.
#[test]
fn a_header_bomb_costs_its_stream() {
    let mut server = server(small());
    let mut block = b"\x40\x01a\x7f\x81\x1d".to_vec();
    block.extend([b'x'; 128 + 29 * 128]);
    block.extend([0xbe; 20]);
    server.receive(&frame(1, 4, 1, &block), NOW).unwrap();
    assert_eq!(server.heard.failed.len(), 1);
    assert!(
        server.heard.failed[0].contains("MAX_HEADER_LIST_SIZE"),
        "{:?}",
        server.heard.failed
    );
    // The connection goes on, and so does the table.
    server.receive(&frame(1, 4, 3, CONNECT), NOW).unwrap();
    assert_eq!(server.heard.heads.len(), 1);
    // One that no mistake explains ends it.
    block.extend([0xbe; 4000]);
    let error = server.receive(&frame(1, 4, 5, &block), NOW).unwrap_err();
    assert_eq!(error.cause, Cause::Abuse(Abuse::HeaderFlood));
}

/// CVE-2019-9511: windows of a byte at a time, of a stream that has much to say, or of the connection; where all of it waits
/// here, and where its caller keeps it until there is room.
#[test]
fn grants_of_crumbs_end_the_connection() {
    let granted = |grant: u32, on: u32, keeps: bool| {
        let mut end = server(small());
        let window = if on == 1 { 0u32 } else { 1 << 30 };
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        end.receive(&frame(4, 0, 0, &settings), NOW).unwrap();
        if on == 1 {
            let much = frame(8, 0, 0, &(1u32 << 30).to_be_bytes());
            end.receive(&much, NOW).unwrap();
        }
        end.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
        let (stream, _) = end.heard.heads[0];
        let server = &mut end.connection;
        server.respond(stream, Some(&ok()), &[], false).unwrap();
        let mut sent = 0;
        (0..20_000).find_map(|n| {
            loop {
                let room = if keeps {
                    end.connection.room(stream)
                } else {
                    (10 << 20) - sent
                };
                if room == 0 {
                    break;
                }
                let bytes = vec![7; room];
                end.connection.send(stream, bytes.into()).unwrap();
                sent += room;
            }
            if keeps {
                end.connection.await_room(stream);
            }
            while end.connection.has_output() {
                end.write(usize::MAX);
            }
            end.wire.clear();
            let result = end.receive(&frame(8, 0, on, &grant.to_be_bytes()), NOW);
            result.err().map(|error| (n, error))
        })
    };
    for (on, keeps) in [(0, false), (0, true), (1, false), (1, true)] {
        let outcome = granted(1, on, keeps);
        assert_eq!(
            abused(outcome, 1_000),
            Abuse::WindowUpdateFlood,
            "{on} {keeps}"
        );
        assert_eq!(granted(300, on, keeps), None, "{on} {keeps}");
    }
}

/// CVE-2019-9517: it asks, and reads no answers.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let config = || Config {
        unread_replies: 2000,
        ..small()
    };
    let unread = Cause::Abuse(Abuse::UnreadReplies);
    let mut end = server(config());
    let result = (0..1000).find_map(|_| end.receive(&frame(6, 0, 0, &[1; 8]), NOW).err());
    assert_eq!(result.expect("pings").cause, unread);
    // Requests that are answered and over at once.
    let mut end = server(config());
    let result = (0..10_000).find_map(|n| {
        let result = end.receive(&frame(1, 5, 1 + 2 * n, CONNECT), NOW);
        let (stream, _) = *end.heard.heads.last().expect("it was announced");
        let _ = end.connection.respond(stream, Some(&ok()), &[], true);
        end.connection.release(stream);
        result.err()
    });
    assert_eq!(result.expect("requests").cause, unread);
    // Data, for which it gets credit.
    let mut end = server(config());
    end.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
    let data = frame(0, 0, 1, &[0; 60_000]);
    let result = (0..10_000).find_map(|_| end.receive(&data, NOW).err());
    assert_eq!(result.expect("data").cause, unread);
    // Who reads may go on.
    let mut end = server(config());
    end.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
    for _ in 0..1000 {
        end.receive(&data, NOW).unwrap();
        end.write(usize::MAX);
        end.wire.clear();
    }
}

#[test]
fn informational_answers_without_end_are_cut_off() {
    let mut client = client(small(), 1);
    let outcome = flood(&mut client, 10_000, |_| frame(1, 4, 1, b"\x08\x03103"));
    assert_eq!(abused(outcome, 500), Abuse::HeaderFlood);
}

/// A client with short deadlines: it finishes as many requests as it cancels, far more than the allowance.
#[test]
fn requests_that_are_finished_earn_resets() {
    // Of `period` requests all but one are cancelled.
    let cancels = |config: Config, period: u32| {
        let mut server = server(config);
        (0..8_000u32).find_map(|n| {
            let id = 1 + 2 * n;
            let mut result = server.receive(&frame(1, 5, id, b"\x82\x86\x84"), NOW);
            let (stream, _) = *server.heard.heads.last().expect("it was announced");
            if n % period == 0 {
                let _ = server.connection.respond(stream, Some(&ok()), &[], true);
            } else if result.is_ok() {
                result = server.receive(&frame(3, 0, id, &[0, 0, 0, 8]), NOW);
            }
            server.connection.release(stream);
            server.write(usize::MAX);
            server.wire.clear();
            result.err().map(|error| (n as usize, error))
        })
    };
    assert_eq!(cancels(small(), 2), None);
    assert_eq!(abused(cancels(small(), 10), 1000), Abuse::RapidReset);
    let generous = Config {
        earned_resets: 9,
        ..small()
    };
    assert_eq!(cancels(generous, 10), None);
    let strict = Config {
        earned_resets: 0,
        ..small()
    };
    assert_eq!(abused(cancels(strict, 2), 1000), Abuse::RapidReset);
}

#[test]
fn allowances_are_those_of_the_configuration() {
    let few = Allowance {
        burst: 3,
        per_second: 1,
    };
    let config = || Config {
        allowances: small().allowances.with(Abuse::PingFlood, few),
        ..small()
    };
    let ping = frame(6, 0, 0, &[1; 8]);
    let outcome = flood(&mut server(config()), 100, |_| ping.clone());
    let (count, error) = outcome.expect("it ends");
    assert_eq!((count, error.cause), (3, Cause::Abuse(Abuse::PingFlood)));
    // Others are as they were.
    let useless = frame(2, 0, 1, &[0; 5]);
    let outcome = flood(&mut server(config()), 100_000, |_| useless.clone());
    assert_eq!(abused(outcome, 1000), Abuse::UselessFrames);
}

/// The libraries of gRPC send a PING for DATA that comes, as soon as the one before is answered. On a short path they are thousands a second.
#[test]
fn pings_for_data_that_came_are_no_flood() {
    let pings = |end: &mut End, stream| {
        let ping = frame(6, 0, 0, &[1; 8]);
        for _ in 0..10_000 {
            end.connection.send(stream, "hello".into()).unwrap();
            end.write(usize::MAX);
            end.wire.clear();
            end.receive(&ping, NOW).expect("it is no flood");
        }
        // Further ones are, even if as many as possible are saved up.
        let outcome = flood(end, 100_000, |_| ping.clone());
        assert!(outcome.as_ref().is_some_and(|(count, _)| *count <= 4_000));
        assert_eq!(abused(outcome, 500), Abuse::PingFlood);
    };
    let mut server = server(small());
    server.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
    let (stream, _) = server.heard.heads[0];
    let answered = server.connection.respond(stream, Some(&ok()), &[], false);
    answered.expect("it is open");
    pings(&mut server, stream);
    let mut client = client(small(), 0);
    let asked = client.connection.request(None, &ordinary("POST"), false);
    pings(&mut client, asked.expect("there is room"));
}

#[test]
fn answers_to_pings_that_were_not_sent_are_a_flood() {
    for payload in [*b"ltn#\0\0\0\x07", [1; 8]] {
        let outcome = flood(&mut server(small()), 100_000, |_| frame(6, 1, 0, &payload));
        assert_eq!(abused(outcome, 500), Abuse::PingFlood);
    }
}

/// Some servers pass on the end of another protocol's content as DATA without data, and then end the stream.
#[test]
fn an_empty_frame_for_each_answer_or_piece_is_no_flood() {
    let mut client = client(small(), 0);
    for _ in 0..5_000 {
        let asked = client.connection.request(None, &ordinary("GET"), true);
        let stream = asked.expect("there is room");
        let id = stream.get();
        let answer = [
            // Status 200 by its number in the static table.
            frame(1, 4, id, &[0x88]),
            frame(0, 0, id, b"piece"),
            frame(0, 0, id, &[]),
            frame(0, 0, id, &[]),
            frame(0, 1, id, &[]),
        ];
        client
            .receive(&answer.concat(), NOW)
            .expect("it is no flood");
        client.connection.release(stream);
        client.write(usize::MAX);
        client.wire.clear();
    }
    let asked = client.connection.request(None, &ordinary("GET"), true);
    let id = asked.expect("there is room").get();
    client
        .receive(&frame(1, 4, id, &[0x88]), NOW)
        .expect("an answer");
    let outcome = flood(&mut client, 100_000, |_| frame(0, 0, id, &[]));
    assert_eq!(abused(outcome, 500), Abuse::EmptyData);
}

/// gRPC's C library grants a few bytes with each call, also where the answer has no content.
#[test]
fn grants_for_requests_without_content_are_no_flood() {
    let mut server = server(small());
    for n in 0..10_000 {
        let id = 1 + 2 * n;
        let asked = [
            frame(1, 5, id, GET),
            frame(8, 0, id, &[0, 0, 0, 5]),
            frame(8, 0, 0, &[0, 0, 0, 5]),
        ];
        server
            .receive(&asked.concat(), NOW)
            .expect("it is no flood");
        let (stream, _) = *server.heard.heads.last().expect("it was announced");
        let answered = server.connection.respond(stream, Some(&ok()), &[], true);
        answered.expect("it is open");
        server.connection.release(stream);
        server.write(usize::MAX);
        server.wire.clear();
    }
}

/// A peer may use the window up before it hears of a reset, with a frame for each small message.
#[test]
fn small_messages_behind_a_reset_are_no_flood() {
    let mut server = server(small());
    for n in 0..50 {
        let id = 1 + 2 * n;
        server.receive(&frame(1, 4, id, CONNECT), NOW).unwrap();
        let (stream, _) = *server.heard.heads.last().expect("it was announced");
        server.connection.reset(stream, Code::CANCEL);
        for _ in 0..2_000 {
            let late = frame(0, 0, id, &[7; 32]);
            server.receive(&late, NOW).expect("it is no flood");
        }
        server.connection.release(stream);
        server.write(usize::MAX);
        server.wire.clear();
    }
}
