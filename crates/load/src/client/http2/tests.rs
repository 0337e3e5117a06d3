//! Tests of what the client makes of answers and limits. Frames that a server may not send are tests of `lateen-h2`.

use super::requests::{MAX_FIELDS, WINDOW};
use super::*;
use crate::client::interface::{Request, USER_AGENT};
use crate::frames::frame;
use lateen_h2::hpack::{Decoder, Fields, Limits};
use proptest::prelude::*;

/// Types of frames (RFC 9113 §6).
mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
}

/// Flags of frames, and of one that ends a header block and its stream.
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const ENDS: u8 = END_STREAM | END_HEADERS;

/// Settings (RFC 9113 §6.5.2).
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// RFC 9113 §7: the stream is no longer needed.
const CANCEL: u32 = 8;

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let bytes = settings.iter().flat_map(|(name, value)| {
        let (name, value) = (name.to_be_bytes(), value.to_be_bytes());
        name.into_iter().chain(value)
    });
    one(kind::SETTINGS, 0, 0, &bytes.collect::<Vec<u8>>())
}

fn request(body: &str) -> Request {
    let headers = [("Host", "b"), ("X-A", "c")];
    Request {
        method: "GET".to_owned(),
        authority: "a".to_owned(),
        path: "/".to_owned(),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        body: body.as_bytes().into(),
    }
}

/// A client whose server has said what it allows.
fn ready(form: Form, body: &str, allowed: &[(u16, u32)]) -> Http2 {
    let mut client = Http2::new(Arc::new(Requests::new(&[request(body)], "http", form)));
    client.open(&mut Output::default());
    feed(&mut client, &settings(allowed)).unwrap();
    client
}

type Sent = Vec<(u8, u8, u32, Vec<u8>)>;

fn frames(mut bytes: &[u8]) -> Sent {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, flags, w, x, y, z], rest)) = bytes.split_first_chunk() {
        let (payload, rest) = rest.split_at(u32::from_be_bytes([0, a, b, c]) as usize);
        let stream = u32::from_be_bytes([w, x, y, z]);
        frames.push((kind, flags, stream, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

fn feed(client: &mut Http2, bytes: &[u8]) -> Result<(Sent, Vec<Completion>), Malformed> {
    let mut out = Output::default();
    client.receive(&Bytes::copy_from_slice(bytes), 0, &mut out)?;
    Ok((frames(&out.bytes), out.done))
}

fn start(client: &mut Http2, slot: usize) -> Sent {
    let mut out = Output::default();
    let start = Start {
        slot,
        ..Start::default()
    };
    client.start(start, &mut out);
    frames(&out.bytes)
}

fn one(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// Fields with more behind them, and fields that end a stream.
fn head(stream: u32, block: &[u8]) -> Vec<u8> {
    one(kind::HEADERS, END_HEADERS, stream, block)
}

fn last(stream: u32, block: &[u8]) -> Vec<u8> {
    one(kind::HEADERS, ENDS, stream, block)
}

fn data(stream: u32, content: &[u8]) -> Vec<u8> {
    one(kind::DATA, 0, stream, content)
}

/// The static table's `:status: 200`.
const OK: &[u8] = &[0x88];

/// `grpc-status` with a value of one digit.
fn trailer(status: u8) -> Vec<u8> {
    [&b"\x00\x0bgrpc-status\x01"[..], &[b'0' + status]].concat()
}

fn answered(slot: usize, content: u64) -> Completion {
    let status = 200;
    let outcome = Ok(Answer { status, content });
    Completion { slot, outcome }
}

fn failed(slot: usize, failure: Failure) -> Completion {
    let outcome = Err(failure);
    Completion { slot, outcome }
}

#[test]
fn requests_share_a_connection_and_are_told_apart() {
    let mut client = ready(Form::Http, "", &[]);
    let first = start(&mut client, 5);
    let second = start(&mut client, 7);
    let (kind, flags, stream, _) = &first[0];
    assert_eq!((*kind, *flags, *stream), (kind::HEADERS, ENDS, 1));
    assert_eq!((second.len(), second[0].2), (1, 3));
    assert!(second[0].3.len() <= 7, "all is known by now: {second:?}");
    let (size, fields) = (MAX_FIELDS, u32::MAX);
    let mut decoded = Fields::new(Limits { size, fields });
    Decoder::new().decode(&first[0].3, &mut decoded).unwrap();
    let text =
        |(name, value): (&[u8], &[u8])| format!("{}={}", name.escape_ascii(), value.escape_ascii());
    let fields: Vec<String> = decoded.iter().map(text).collect();
    let agent = format!("user-agent={}", USER_AGENT);
    let pseudo = ":method=GET :scheme=http :path=/ :authority=b";
    assert_eq!(fields.join(" "), format!("{pseudo} {agent} x-a=c"));
    // The second is answered first, in pieces.
    let answer = [
        head(3, OK),
        data(3, b"abc"),
        last(1, OK),
        one(kind::DATA, END_STREAM, 3, b"de"),
    ];
    let mut done = Vec::new();
    for byte in answer.concat() {
        done.extend(feed(&mut client, &[byte]).unwrap().1);
    }
    assert_eq!(done, [answered(5, 0), answered(7, 5)]);
}

#[test]
fn the_servers_limits_are_kept() {
    let limits = [(MAX_CONCURRENT_STREAMS, 2), (INITIAL_WINDOW_SIZE, 4)];
    let mut client = ready(Form::Http, "0123456789", &limits);
    assert_eq!(client.room(), 2);
    let sent = start(&mut client, 0);
    assert_eq!(sent[1], (kind::DATA, 0, 1, b"0123".to_vec()));
    start(&mut client, 1);
    assert_eq!(client.room(), 0);
    let wider = settings(&[(INITIAL_WINDOW_SIZE, 10)]);
    let (sent, _) = feed(&mut client, &wider).unwrap();
    let rest = |stream| (kind::DATA, END_STREAM, stream, b"456789".to_vec());
    assert_eq!(sent[1..], [rest(1), rest(3)]);
}

#[test]
fn what_is_taken_makes_room() {
    let mut client = ready(Form::Http, "", &[]);
    start(&mut client, 0);
    feed(&mut client, &head(1, OK)).unwrap();
    let piece = data(1, &[0; 16 * 1024]);
    let half = (WINDOW / 2) as usize / (16 * 1024);
    let mut sent = Vec::new();
    for _ in 0..half {
        sent.extend(feed(&mut client, &piece).unwrap().0);
    }
    // The connection gets room with each quarter of its window, a stream with each half.
    let room = |stream, bytes: u32| (kind::WINDOW_UPDATE, 0, stream, bytes.to_be_bytes().to_vec());
    sent.sort_by_key(|frame| frame.2);
    let quarter = room(0, WINDOW / 4);
    assert_eq!(sent, [quarter.clone(), quarter, room(1, WINDOW / 2)]);
}

#[test]
fn a_server_that_does_not_read_cannot_fill_the_memory() {
    for asks in [one(kind::PING, 0, 0, b"12345678"), settings(&[])] {
        let mut client = ready(Form::Http, "", &[]);
        let asks_once = Bytes::copy_from_slice(&asks);
        let mut out = Output::default();
        let ended = (0..100_000)
            .find_map(|_| client.receive(&asks_once, 0, &mut out).err())
            .expect("the connection ends");
        assert!(ended.to_string().contains("does not read"), "{ended}");
        assert!(out.bytes.len() < MAX_ACKNOWLEDGEMENTS + 64);
        // One that reads may go on for ever.
        let mut client = ready(Form::Http, "", &[]);
        for _ in 0..100_000 {
            feed(&mut client, &asks).unwrap();
        }
    }
}

#[test]
fn what_the_server_gives_up_has_failed() {
    let mut client = ready(Form::Http, "", &[]);
    (0..3).for_each(|slot| drop(start(&mut client, slot)));
    let reset = one(kind::RST_STREAM, 0, 3, &7u32.to_be_bytes());
    let goaway = one(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    for (slot, bytes) in [(1, reset), (2, goaway)] {
        let done = feed(&mut client, &bytes).unwrap().1;
        assert_eq!(done, [failed(slot, Failure::Refusal)]);
    }
    assert!(client.is_over() && client.room() == 0);
    let answer = last(1, OK);
    assert_eq!(feed(&mut client, &answer).unwrap().1, [answered(0, 0)]);
}

#[test]
fn a_status_that_is_none_and_what_is_no_frame_are_malformed() {
    for bytes in [last(1, b"\x08\x03600"), b"HTTP/1.1 400 \r\n\r\n".to_vec()] {
        let mut client = ready(Form::Http, "", &[]);
        start(&mut client, 0);
        assert!(feed(&mut client, &bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_request_that_is_given_up_leaves_the_others() {
    let mut client = ready(Form::Http, "", &[]);
    start(&mut client, 4);
    start(&mut client, 6);
    let mut out = Output::default();
    assert!(client.cancel(4, &mut out));
    let reset = (kind::RST_STREAM, 0, 1, CANCEL.to_be_bytes().to_vec());
    assert_eq!(frames(&out.bytes), [reset]);
    let late = [last(1, OK), last(3, OK)].concat();
    assert_eq!(feed(&mut client, &late).unwrap().1, [answered(6, 0)]);
}

#[test]
fn a_unary_call_ends_with_its_status() {
    let begin = || head(1, OK);
    let message = || data(1, &frame(b"pong", false));
    let end = |status| last(1, &trailer(status));
    let table = [
        ([begin(), message(), end(0)].concat(), answered(0, 4)),
        ([begin(), end(8)].concat(), failed(0, Failure::Grpc(8))),
        (
            last(1, &[OK, &trailer(5)].concat()),
            failed(0, Failure::Grpc(5)),
        ),
        (last(1, &[0x8d]), failed(0, Failure::Status(404))),
        ([begin(), end(0)].concat(), failed(0, Failure::Malformed)),
        (
            [begin(), message(), one(kind::DATA, END_STREAM, 1, b"")].concat(),
            failed(0, Failure::Malformed),
        ),
    ];
    for (answer, expected) in table {
        let mut client = ready(Form::Unary, "ping", &[]);
        let sent = start(&mut client, 0);
        assert_eq!(sent[1].3, b"\0\0\0\0\x04ping");
        assert_eq!(sent[1].1, END_STREAM);
        assert_eq!(feed(&mut client, &answer).unwrap().1, [expected]);
    }
}

#[test]
fn messages_share_a_stream_that_stays() {
    let one_stream = [(MAX_CONCURRENT_STREAMS, 1)];
    let mut client = ready(Form::Streaming, "ping", &one_stream);
    let pong = data(1, &frame(b"pong!", false));
    for round in 0..3 {
        assert_eq!(client.room(), 1);
        let sent = start(&mut client, round);
        assert_eq!(sent.len(), if round == 0 { 2 } else { 1 });
        assert_eq!(sent.last().unwrap().1, 0, "the stream stays open");
        assert_eq!(client.room(), 0);
        if round == 0 {
            feed(&mut client, &head(1, OK)).unwrap();
        }
        assert_eq!(feed(&mut client, &pong).unwrap().1, [answered(round, 5)]);
    }
    assert!(feed(&mut client, &pong).is_err(), "nobody asked");
    let mut client = ready(Form::Streaming, "ping", &[]);
    start(&mut client, 0);
    let end = last(1, &[OK, &trailer(0)].concat());
    let done = feed(&mut client, &end).unwrap().1;
    assert_eq!(done, [failed(0, Failure::Closed)]);
    let stream = start(&mut client, 0)[0].2;
    assert_eq!(stream, 3, "the next message opens another stream");
}

#[test]
fn an_answer_ends_with_its_message_however_what_follows_is_cut() {
    let outcome = |pieces: &[&[u8]]| {
        let mut client = ready(Form::Streaming, "ping", &[]);
        start(&mut client, 0);
        let mut out = Output::default();
        let mut hear = |piece: &[u8]| {
            let piece = Bytes::copy_from_slice(piece);
            client.receive(&piece, 0, &mut out).is_err()
        };
        let broke = pieces.iter().any(|piece| hear(piece));
        (out.done, broke)
    };
    // Behind the answer: the begin of another message, a whole one, and what is none.
    for (more, broke) in [(&[0, 0, 1][..], false), (&[0; 5], true), (&[9; 5], true)] {
        let content = [&frame(b"pong", false), more].concat();
        let bytes = [head(1, OK), data(1, &content)].concat();
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let expected = (vec![answered(0, 4)], broke);
            assert_eq!(outcome(&[first, second]), expected, "{more:?} {cut}");
        }
    }
}

proptest! {
    #[test]
    fn no_frames_make_it_panic(
        sent in prop::collection::vec(
            (0u8..11, prop::sample::select(vec![0u8, 1, 4, 5, 8, 13, 0x20]), 0u32..8, prop::collection::vec(any::<u8>(), 0..12)), 0..30),
        form in prop::sample::select(vec![Form::Http, Form::Unary, Form::Streaming]),
        status in any::<bool>(),
    ) {
        let mut client = ready(form, "body", &[(INITIAL_WINDOW_SIZE, 3)]);
        let mut ended = 0;
        for slot in 0..3 { start(&mut client, slot); }
        for (kind, flags, stream, payload) in sent {
            let payload = if status && kind == kind::HEADERS { OK.to_vec() } else { payload };
            match feed(&mut client, &one(kind, flags, stream, &payload)) {
                Ok((_, done)) => ended += done.len(),
                Err(_) => break,
            }
            prop_assert!(ended <= 3, "a request ends once");
        }
    }

    #[test]
    fn pieces_do_not_change_the_answers(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
        piece in 1usize..50,
    ) {
        let mut client = ready(Form::Http, "", &[]);
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (slot, body) in bodies.iter().enumerate() {
            start(&mut client, slot);
            let stream = 2 * slot as u32 + 1;
            bytes.extend(head(stream, OK));
            for part in body.chunks(100) { bytes.extend(data(stream, part)); }
            bytes.extend(one(kind::DATA, END_STREAM, stream, b""));
            expected.push(answered(slot, body.len() as u64));
        }
        let mut done = Vec::new();
        for part in bytes.chunks(piece) { done.extend(feed(&mut client, part).unwrap().1); }
        prop_assert_eq!(done, expected);
    }
}
