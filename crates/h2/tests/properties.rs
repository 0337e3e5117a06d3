//! Client against server under any cuts of the bytes, any order of what their callers do, and time that passes: what is
//! sent arrives once and in order, both ends agree on what is over, and nobody finds fault with the other.

mod common;

use std::collections::BTreeMap;

use common::*;
use lateen_h2::{Code, Config, Field, StreamId, Timestamp};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Open,
    Answer,
    Send(bool, usize, usize),
    Finish(bool, usize),
    Trailers(bool, usize),
    Inform(usize),
    Reset(bool, usize),
    Release(bool, usize),
    Deliver(bool, usize),
    Reads(bool, bool),
    Consume(bool),
    Allow(bool, u32),
    Wait(u64),
    Ping(bool),
    Rest,
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let (end, which) = (any::<bool>(), 0usize..6);
    prop_oneof![
        3 => Just(Open),
        3 => Just(Answer),
        8 => (end, which.clone(), prop_oneof![0usize..100, 0usize..90_000]).prop_map(|(e, w, n)| Send(e, w, n)),
        2 => (end, which.clone()).prop_map(|(e, w)| Finish(e, w)),
        2 => (end, which.clone()).prop_map(|(e, w)| Trailers(e, w)),
        1 => which.clone().prop_map(Inform),
        1 => (end, which.clone()).prop_map(|(e, w)| Reset(e, w)),
        1 => (end, which).prop_map(|(e, w)| Release(e, w)),
        16 => (end, prop_oneof![1usize..60, 1usize..200_000]).prop_map(|(e, n)| Deliver(e, n)),
        1 => (end, any::<bool>()).prop_map(|(e, r)| Reads(e, r)),
        2 => end.prop_map(Consume),
        1 => (end, 0u32..1_000_000).prop_map(|(e, n)| Allow(e, n)),
        2 => (1u64..100_000).prop_map(Wait),
        1 => end.prop_map(Ping),
        1 => Just(Rest),
    ]
}

/// What one end sent on its streams, and what was cut off.
#[derive(Default)]
struct Sent {
    bytes: BTreeMap<u32, Vec<u8>>,
    finished: Vec<u32>,
    trailed: Vec<u32>,
}

fn consume(end: &mut End) {
    for (id, (_, unread, _)) in &mut end.heard.data {
        let unread = std::mem::take(unread);
        if let Some(stream) = find(&end.heard.heads, *id) {
            end.connection.consumed(stream, unread);
        }
    }
}

fn find(heads: &[(StreamId, String)], id: u32) -> Option<StreamId> {
    heads
        .iter()
        .map(|(stream, _)| *stream)
        .find(|stream| stream.get() == id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_arrives(
        steps in prop::collection::vec(step(), 1..150),
        turn in 1u32..20_000,
        frames in prop_oneof![Just(1u32 << 14), Just(1 << 20)],
        streams in 2u32..8,
    ) {
        let config = Config { turn, max_streams: streams, max_frame: frames, ..small() }.share();
        let mut pair = Pair::new(&config, &config);
        let mut opened: Vec<StreamId> = Vec::new();
        let mut sent = [Sent::default(), Sent::default()];
        let mut cut: Vec<u32> = Vec::new();
        let mut answered = 0;
        for step in steps {
            macro_rules! side { ($client:expr) => { if $client { &mut pair.client } else { &mut pair.server } } }
            match step {
                Step::Open => {
                    if let Ok(stream) = pair.client.connection.request(None, &connect("a:1"), false) {
                        opened.push(stream);
                    }
                }
                Step::Answer => {
                    if let Some((stream, _)) = pair.server.heard.heads.get(answered) {
                        answered += 1;
                        let _ = pair.server.connection.respond(*stream, Some(&ok()), &[], false);
                    }
                }
                Step::Send(client, which, length) => {
                    // A server sends behind its answer.
                    let known = if client { &opened[..] } else { &opened[..answered.min(opened.len())] };
                    let Some(stream) = known.get(which) else { continue };
                    let stream = *stream;
                    let bytes: Vec<u8> = (0..length).map(|n| (n * 31 + length) as u8).collect();
                    if side!(client).connection.send(stream, bytes.clone().into()).is_ok() {
                        sent[usize::from(client)].bytes.entry(stream.get()).or_default().extend(bytes);
                    }
                }
                Step::Finish(client, which) => {
                    let known = if client { &opened[..] } else { &opened[..answered.min(opened.len())] };
                    let Some(stream) = known.get(which).copied() else { continue };
                    if side!(client).connection.finish(stream).is_ok() {
                        sent[usize::from(client)].finished.push(stream.get());
                    }
                }
                Step::Trailers(client, which) => {
                    let known = if client { &opened[..] } else { &opened[..answered.min(opened.len())] };
                    let Some(stream) = known.get(which).copied() else { continue };
                    let value = format!("{client}{stream}");
                    let fields = [Field::new("x-number", &value).kept(), Field::new("x-end", "1").kept()];
                    if side!(client).connection.trailers(stream, &fields).is_ok() {
                        let sent = &mut sent[usize::from(client)];
                        sent.trailed.push(stream.get());
                        // They end the stream whether or not data came.
                        sent.bytes.entry(stream.get()).or_default();
                    }
                }
                Step::Inform(which) => {
                    if let Some((stream, _)) = pair.server.heard.heads.get(which) {
                        let _ = pair.server.connection.inform(*stream, 103, &[]);
                    }
                }
                Step::Reset(client, which) => {
                    let Some(stream) = opened.get(which).copied() else { continue };
                    cut.push(stream.get());
                    side!(client).connection.reset(stream, Code::CANCEL);
                }
                Step::Release(client, which) => {
                    let Some(stream) = opened.get(which).copied() else { continue };
                    cut.push(stream.get());
                    side!(client).connection.release(stream);
                }
                Step::Deliver(to_server, bytes) => {
                    let result = pair.deliver(to_server, bytes);
                    prop_assert!(result.is_ok(), "{result:?}");
                }
                Step::Reads(client, reads) => side!(client).reads = reads,
                Step::Consume(client) => consume(side!(client)),
                Step::Allow(client, bytes) => {
                let connection = &mut side!(client).connection;
                connection.set_allowance(bytes);
                connection.set_most(bytes);
            }
                Step::Wait(micros) => pair.now = Timestamp::from_micros(pair.now.as_micros() + micros),
                Step::Ping(client) => side!(client).connection.ping(7),
                Step::Rest => { pair.client.connection.rest(); pair.server.connection.rest(); }
            }
        }
        // Everybody reads from now on.
        for end in [&mut pair.client, &mut pair.server] {
            end.reads = true;
            end.connection.set_allowance(u32::MAX);
        }
        for _ in 0..3 {
            pair.settle();
            consume(&mut pair.client);
            consume(&mut pair.server);
        }
        pair.settle();
        prop_assert!(pair.client.heard.failed.is_empty(), "{:?}", pair.client.heard.failed);
        prop_assert!(pair.server.heard.failed.is_empty(), "{:?}", pair.server.heard.failed);
        let refused: Vec<u32> = pair.client.heard.resets.iter().map(|(id, _)| *id).collect();
        for (sent, receiver) in [(&sent[1], &pair.server), (&sent[0], &pair.client)] {
            for (id, bytes) in &sent.bytes {
                let (got, _, ended) = receiver.heard.data.get(id).cloned().unwrap_or_default();
                prop_assert!(bytes.starts_with(&got), "stream {id}");
                if !cut.contains(id) && !refused.contains(id) {
                    prop_assert_eq!(got.len(), bytes.len(), "stream {}", id);
                    let trailed = sent.trailed.contains(id);
                    prop_assert_eq!(ended, sent.finished.contains(id) && !trailed, "stream {}", id);
                    let came = receiver.heard.blocks.iter().filter(|(of, what, _)| of == id && *what == "trailers");
                    let came: Vec<_> = came.map(|(_, _, list)| list[0].1.ends_with(&id.to_string())).collect();
                    prop_assert_eq!(came, vec![true; usize::from(trailed)], "stream {}", id);
                }
            }
        }
        prop_assert_eq!(pair.client.connection.active(), pair.server.connection.active());
        for stream in opened {
            pair.client.connection.release(stream);
            pair.server.connection.release(stream);
        }
        pair.settle();
        for end in [&mut pair.client, &mut pair.server] {
            prop_assert_eq!((end.connection.active(), end.connection.queued()), (0, 0));
            prop_assert_eq!(end.connection.credit().held, 0);
        }
    }

    /// The same bytes, cut otherwise, are the same events and the same answers.
    #[test]
    fn cuts_change_nothing(
        frames in prop::collection::vec((0u8..11, any::<u8>(), 0u32..6, prop::collection::vec(any::<u8>(), 0..60)), 1..12),
        cuts in prop::collection::vec(1usize..20, 1..40),
        to_client: bool,
    ) {
        let start = || if to_client { client(small(), 2) } else {
            let mut server = server(small());
            server.receive(&frame(1, 4, 1, CONNECT), Timestamp::default()).unwrap();
            server
        };
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
        let run = |pieces: Vec<&[u8]>| {
            let mut end = start();
            let result = pieces.into_iter().try_for_each(|piece| end.receive(piece, Timestamp::default()));
            end.write(usize::MAX);
            (end.heard, end.wire, result)
        };
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        let (mut whole, whole_wire, whole_result) = run(vec![&bytes]);
        let (parts, parts_wire, parts_result) = run(pieces);
        if whole_result.is_ok() {
            // A window may be granted in other portions.
            prop_assert_eq!(whole_wire.len(), parts_wire.len());
        } else {
            // What came of the frame at fault may differ by a frame that was never whole.
            whole.data = parts.data.clone();
        }
        prop_assert_eq!(whole, parts);
        prop_assert_eq!(whole_result, parts_result);
    }
}
